//! `weir bench tools`: both sides' `ovsdb-client` and `ovsdb-tool` at a large database.
//!
//! 1. The database is that of `make-db`. A server of the last peer serves it to both clients, so
//!    that only the programs differ; `restore` talks to a socket that swallows.
//! 2. Each side runs each command once, and the short ones many times. A process of our own stands
//!    between, for the kernel's account of that one command (`measured`).
//! 3. What they print or write must be the same: bytes where both have an order, and else what a
//!    server makes of the file.

mod measured;
pub(crate) mod programs;
mod swallow;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha1::{Digest, Sha1};

pub(crate) use measured::{COMMAND, command};

use self::measured::{Measured, Task};
use self::programs::Programs;
use crate::Error;
use crate::args::Args;
use crate::dbfile;
use crate::error::fail;
use crate::large::{DB, Database};
use crate::make_db;
use crate::peer::Peer;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};

const MEGABYTES: f64 = 162.0;
/// Runs of a command that is done at once.
const ONE_SHOTS: usize = 50;

/// Runs the scenario `tools`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let megabytes: f64 = args.value("--megabytes")?.unwrap_or(MEGABYTES);
    let one_shots = args.value("--one-shots")?.unwrap_or(ONE_SHOTS).max(1);
    let schema = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("tools")?;
    let about = About {
        scenario: "tools".into(),
        title: format!("tools: ovsdb-client and ovsdb-tool at a database of {megabytes} MB"),
        standard: megabytes == MEGABYTES,
    };
    let Some(last) = bench.last_peer() else { fail!("tools: no server") };
    let files = RunFiles::new(bench, megabytes, &schema, one_shots)?;
    let server = bench.start(&last, Source::File(&files.database.path))?;
    let mut same = Same::default();
    bench.rounds(about, Floors::None, &mut |peer| {
        let programs = Programs::beside(peer, &files.dir)?;
        let side = Side { files: &files, bench, last: &last, server: &server, programs, peer };
        side.run(&mut same)
    })
}

/// Files of a run.
struct RunFiles {
    dir: PathBuf,
    database: Database,
    /// The schema of the database, and what it is converted to.
    schema: PathBuf,
    wider: PathBuf,
    one_shots: usize,
}

impl RunFiles {
    fn new(bench: &Bench, megabytes: f64, schema: &str, one_shots: usize) -> Result<Self, Error> {
        let dir = bench.scratch("tools");
        fs::create_dir(&dir).map_err(|e| Error::io("creating", &dir, e))?;
        let dir = dir.canonicalize().map_err(|e| Error::io("finding", &dir, e))?;
        let mut read = dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?;
        let wider = dir.join("wider.ovsschema");
        read["tables"]["Logical_Flow"]["columns"]["weir_bench"] = json!({"type": "string"});
        fs::write(&wider, read.to_string()).map_err(|e| Error::io("writing", &wider, e))?;
        let database = Database::make(bench, megabytes, schema, 1)?;
        Ok(Self { dir, database, schema: schema.into(), wider, one_shots })
    }

    /// A new name for a file.
    fn fresh(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        let _ = fs::remove_file(&path);
        path
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// One side's programs at work.
struct Side<'a> {
    files: &'a RunFiles,
    bench: &'a Bench,
    last: &'a Peer,
    server: &'a Running,
    programs: Programs,
    peer: &'a Peer,
}

impl Side<'_> {
    fn run(&self, same: &mut Same) -> Result<Figures, Error> {
        let mut figures = Figures::default();
        let files = self.files;
        let target = self.server.target.to_string();
        let out = files.fresh("out");

        let dump = self.client(&["dump", &target, DB]).to(&out);
        self.measure("dump", &dump, &mut figures)?;
        let dumped = digest(&out)?;
        same.check("dump", self.peer, &dumped)?;

        let backup = self.client(&["backup", &target, DB]).to(&out);
        self.measure("backup", &backup, &mut figures)?;
        same.check("dump", self.peer, &self.served(&out)?)?;

        let rows = swallow::during(&files.fresh("swallow"), &files.schema, |target| {
            let restore = self.client(&["restore", target, DB]).from(&files.database.path);
            self.measure("restore", &restore, &mut figures)
        })?;
        if rows != files.database.rows {
            fail!("{}: restore sent {rows} rows of {}", self.peer.name, files.database.rows);
        }

        let new = files.fresh("new.db");
        let compact = self.tool(&["compact"]).file(&files.database.path).file(&new);
        self.measure("compact", &compact, &mut figures)?;
        same.check("dump", self.peer, &self.served(&new)?)?;

        let new = files.fresh("new.db");
        let convert = self.tool(&["convert"]).file(&files.database.path);
        self.measure("convert", &convert.file(&files.wider).file(&new), &mut figures)?;
        same.check("convert", self.peer, &self.served(&new)?)?;

        let select = json!([DB, {"op": "select", "table": "Datapath_Binding",
            "where": [["tunnel_key", "==", 1]], "columns": ["_uuid", "tunnel_key"]}]);
        let query = self.tool(&["query"]).file(&files.database.path).word(&select.to_string());
        self.measure("query", &query.to(&out), &mut figures)?;
        same.check("query", self.peer, &digest(&out)?)?;

        self.one_shot("list-dbs", self.client(&["list-dbs", &target]).to(&out), &mut figures)?;
        same.check("list-dbs", self.peer, &digest(&out)?)?;
        let compare = self.tool(&["compare-versions", "1.2.3", "<", "1.3.0"]).to(&out);
        self.one_shot("compare-versions", compare, &mut figures)?;
        Ok(figures)
    }

    fn client(&self, words: &[&str]) -> Task {
        self.client_of(&self.programs, words)
    }

    fn client_of(&self, programs: &Programs, words: &[&str]) -> Task {
        let tls = self.bench.client_options();
        let words: Vec<&str> =
            tls.iter().map(String::as_str).chain(words.iter().copied()).collect();
        Task::new(&programs.client, &words, &self.files.dir)
    }

    fn tool(&self, words: &[&str]) -> Task {
        Task::new(&self.programs.tool, words, &self.files.dir)
    }

    /// One run of a long command.
    fn measure(&self, section: &str, task: &Task, figures: &mut Figures) -> Result<(), Error> {
        self.bench.progress.wait(&format!("{}: {section}", self.peer.name));
        let Measured { seconds, cpu, peak } = task.run(1)?;
        let wall: f64 = seconds.iter().sum();
        figures.push(section, "s", 3, wall);
        figures.push(section, "CPU s", 3, cpu);
        figures.push(section, "peak MB", 1, peak / 1e6);
        self.bench.progress.note(&format!("  {section}: {wall:.1} s"));
        Ok(())
    }

    /// Many runs of a command that is done at once.
    fn one_shot(&self, section: &str, task: Task, figures: &mut Figures) -> Result<(), Error> {
        let mut measured = task.run(self.files.one_shots)?;
        measured.seconds.sort_by(f64::total_cmp);
        let runs = measured.seconds.len();
        let median = measured.seconds.get(runs / 2).copied().unwrap_or_default();
        figures.push(section, "p50 ms", 2, median * 1e3);
        figures.push(section, "CPU ms", 2, measured.cpu * 1e3 / runs as f64);
        Ok(())
    }

    /// What a server makes of a file: the digest of its dump.
    fn served(&self, file: &Path) -> Result<String, Error> {
        self.bench.progress.wait(&format!("{}: checking the file", self.peer.name));
        let running = self.bench.start(self.last, Source::File(file))?;
        let programs = Programs::beside(self.last, &self.files.dir)?;
        let out = self.files.fresh("served");
        let target = running.target.to_string();
        self.client_of(&programs, &["dump", &target, DB]).to(&out).run(1)?;
        digest(&out)
    }
}

/// The first result of each kind; all others must equal it.
#[derive(Default)]
struct Same {
    results: BTreeMap<&'static str, (String, String)>,
}

impl Same {
    fn check(&mut self, kind: &'static str, peer: &Peer, result: &str) -> Result<(), Error> {
        let first = self.results.entry(kind).or_insert_with(|| (peer.name.clone(), result.into()));
        if first.1 != result {
            fail!("{kind}: the result of {} is not that of {}", peer.name, first.0);
        }
        Ok(())
    }
}

/// The SHA-1 of a file that is not empty.
fn digest(path: &Path) -> Result<String, Error> {
    let failed = |e| Error::io("reading", path, e);
    let (mut hash, mut file) = (Sha1::new(), File::open(path).map_err(failed)?);
    if std::io::copy(&mut file, &mut hash).map_err(failed)? == 0 {
        fail!("{} is empty", path.display());
    }
    Ok(format!("{:x}", hash.finalize()))
}

/// The words of a command line as the system takes them.
fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}
