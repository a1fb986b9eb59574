//! `weir bench large`: a database of hundreds of megabytes is opened, dumped, compacted and converted
//! to another schema.
//!
//! The database is OVN_Southbound-like, one record (see `make-db`). While one client receives all
//! of it, and while it is compacted and converted, another one commits at a steady rate. `snapshot-memory` is
//! the same at other sizes: memory beyond the data.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::frame::Framer;
use crate::make_db::{self, Content};
use crate::pulse::{self, Pulse};
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;

pub(crate) const DB: &str = "OVN_Southbound";
const MEGABYTES: f64 = 162.0;
/// How long commits go on where the other work is over at once.
const SETTLE: Duration = Duration::from_millis(500);
/// What a row of an initial reply begins with.
const ROW: &[u8] = br#":{"initial""#;

/// Runs the scenario `large`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let megabytes: f64 = args.value("--megabytes")?.unwrap_or(MEGABYTES);
    let records = args.value("--records")?.unwrap_or(1).max(1);
    let schema = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("large")?;
    let about = About {
        scenario: "large".into(),
        title: format!("large: a database of {megabytes} MB in {records} record(s)"),
        standard: megabytes == MEGABYTES && records == 1,
    };
    let database = Database::make(bench, megabytes, &schema, records)?;
    let mut shape = Dump::default();
    bench.rounds(about, Floors::Bulk, &mut |peer| {
        let mut figures = Figures::default();
        let running = bench.start(peer, Source::File(&database.path))?;
        let measured = started(&database, &running, "start", &mut figures)
            .and_then(
                |()| if peer.is_floor() { shape.configure_floor(&running.target) } else { Ok(()) },
            )
            .and_then(|()| whole_life(&database, bench, &running, &mut shape, &mut figures));
        measured.map_err(|e| running.explain(&peer.name, &e))?;
        Ok(figures)
    })
}

fn whole_life(
    database: &Database,
    bench: &Bench,
    running: &Running,
    dumped: &mut Dump,
    figures: &mut Figures,
) -> Result<(), Error> {
    pulse::prepare(&running.target)?;
    let quiet = during(bench, running, "commits alone", &mut || {
        std::thread::sleep(SETTLE);
        Ok(())
    })?;
    pulse::figures(&quiet.commits, "commits alone", figures);
    let dump = during(bench, running, "full dump", &mut || {
        *dumped = Dump::take(&running.target)?;
        Ok(())
    })?;
    dump.figures("full dump", figures);
    database.check(dumped)?;
    figures.push("full dump", "first byte after ms", 1, dumped.first.as_secs_f64() * 1e3);
    figures.push("full dump", "MB/s", 0, dumped.bytes as f64 / 1e6 / dump.seconds);
    if running.control().is_some() {
        let compaction = during(bench, running, "compaction", &mut || compact(running))?;
        compaction.figures("compaction", figures);
        database.check(&Dump::take(&running.target)?)?;
    }
    let conversion = during(bench, running, "conversion", &mut || convert(running))?;
    conversion.figures("conversion", figures);
    database.check(&Dump::take(&running.target)?)?;
    running.finish("memory and disk", figures)
}

/// Runs the scenario `snapshot-memory`.
pub(crate) fn snapshots(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let sizes: Vec<f64> = args.list("--megabytes")?.unwrap_or_else(|| vec![125.0, 270.0]);
    let schema = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("snapshot-memory")?;
    let about = About {
        scenario: "snapshot-memory".into(),
        title: format!("snapshot-memory: databases of {sizes:?} MB are compacted"),
        standard: sizes == [125.0, 270.0],
    };
    let databases: Result<Vec<_>, Error> =
        sizes.iter().map(|&size| Database::make(bench, size, &schema, 1)).collect();
    let databases = databases?;
    bench.rounds(about, Floors::None, &mut |peer| {
        let mut figures = Figures::default();
        for database in &databases {
            let running = bench.start(peer, Source::File(&database.path))?;
            let section = format!("{:.0} MB", database.megabytes);
            let measured = snapshot(database, &running, &section, &mut figures);
            measured.map_err(|e| running.explain(&peer.name, &e))?;
            bench.progress.note(&format!("  {section}"));
        }
        Ok(figures)
    })
}

fn snapshot(
    database: &Database,
    running: &Running,
    section: &str,
    figures: &mut Figures,
) -> Result<(), Error> {
    started(database, running, section, figures)?;
    let Some(before) = running.memory()? else { return Ok(()) };
    running.reset_peak();
    compact(running)?;
    let Some(after) = running.memory()? else { return Ok(()) };
    let mut push = |name, digits, value| figures.push(section, name, digits, value);
    push("RSS / file", 2, before.rss as f64 / 1e6 / database.megabytes);
    push("peak of compaction MB", 1, after.peak as f64 / 1e6);
    push("peak of compaction / RSS before", 2, after.peak as f64 / before.rss as f64);
    push("RSS after compaction MB", 1, after.rss as f64 / 1e6);
    database.check(&Dump::take(&running.target)?)
}

/// The file that every server gets a copy of.
pub(crate) struct Database {
    pub(crate) path: std::path::PathBuf,
    pub(crate) rows: usize,
    /// Rows of the largest table, `Logical_Flow`.
    pub(crate) flows: usize,
    pub(crate) megabytes: f64,
}

impl Database {
    pub(crate) fn make(
        bench: &Bench,
        megabytes: f64,
        schema: &str,
        records: usize,
    ) -> Result<Self, Error> {
        Self::make_as(bench, "", megabytes, schema, records)
    }

    /// `name` tells files of one run apart.
    pub(crate) fn make_as(
        bench: &Bench,
        name: &str,
        megabytes: f64,
        schema: &str,
        records: usize,
    ) -> Result<Self, Error> {
        bench.progress.wait("writing the database");
        let content = Content::sized(1, megabytes * 1e6);
        let path = bench.scratch(&format!("{name}{megabytes}.db"));
        content.write_file(&path, schema, records)?;
        Ok(Self { path, rows: content.rows(), flows: content.flows(), megabytes })
    }

    /// Whether a client received every row. The row that commits change is there or not.
    pub(crate) fn check(&self, dump: &Dump) -> Result<(), Error> {
        if dump.rows != self.rows && dump.rows != self.rows + 1 {
            fail!("a client received {} rows of {}", dump.rows, self.rows);
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits until the server answers from the database, and tells what that took.
fn started(
    database: &Database,
    running: &Running,
    section: &str,
    figures: &mut Figures,
) -> Result<(), Error> {
    let select = json!({"op": "select", "table": "Datapath_Binding", "columns": ["tunnel_key"],
        "where": [["tunnel_key", "==", 1]]});
    let results = Client::connect(&running.target)?.transact(&json!([DB, select]))?;
    if results[0]["rows"].as_array().is_none_or(|rows| rows.len() != 1) {
        fail!("the database does not answer with its first row");
    }
    let seconds = running.age().as_secs_f64();
    let mut push = |name, digits, value| figures.push(section, name, digits, value);
    push("s", 2, seconds);
    push("MB/s", 0, database.megabytes / seconds);
    if let Some(cpu) = running.cpu_nanos()? {
        push("server CPU s", 2, cpu as f64 / 1e9);
    }
    if let Some(memory) = running.memory()? {
        push("RSS MB", 1, memory.rss as f64 / 1e6);
        push("peak RSS MB", 1, memory.peak as f64 / 1e6);
    }
    Ok(())
}

/// What went on beside some work, and what that took.
struct Beside {
    commits: Latencies,
    seconds: f64,
    cpu: Option<f64>,
    peak: Option<u64>,
}

/// Does some work while a client commits.
fn during(
    bench: &Bench,
    running: &Running,
    name: &str,
    work: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Beside, Error> {
    bench.progress.wait(name);
    running.reset_peak();
    let before = running.cpu_nanos()?;
    let pulse = Pulse::start(&running.target)?;
    let start = Instant::now();
    let worked = work();
    let seconds = start.elapsed().as_secs_f64();
    let commits = pulse.stop()?;
    worked?;
    let cpu = running.cpu_nanos()?.zip(before).map(|(after, before)| after - before);
    let peak = running.memory()?.map(|memory| memory.peak);
    bench.progress.note(&format!("  {name}: {seconds:.1} s"));
    Ok(Beside { commits, seconds, cpu: cpu.map(|cpu| cpu as f64 / 1e9), peak })
}

impl Beside {
    fn figures(&self, section: &str, figures: &mut Figures) {
        figures.push(section, "s", 2, self.seconds);
        if let Some(cpu) = self.cpu {
            figures.push(section, "server CPU s", 2, cpu);
        }
        if let Some(peak) = self.peak {
            figures.push(section, "peak RSS MB", 1, peak as f64 / 1e6);
        }
        pulse::figures(&self.commits, section, figures);
    }
}

/// Has the server compact the database.
pub(crate) fn compact(running: &Running) -> Result<(), Error> {
    let Some(control) = running.control() else { return Ok(()) };
    let mut client = Client::connect(&control)?;
    client.call("ovsdb-server/compact", &json!([DB])).map(drop)
}

/// Gives every row of the largest table another column.
fn convert(running: &Running) -> Result<(), Error> {
    let mut client = Client::connect(&running.target)?;
    let mut schema = client.call("get_schema", &json!([DB]))?;
    schema["tables"]["Logical_Flow"]["columns"]["weir_bench"] = json!({"type": "string"});
    client.call("convert", &json!([DB, schema])).map(drop)
}

/// A reply with all rows, as a client received it.
#[derive(Default)]
pub(crate) struct Dump {
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    /// Time until the first byte.
    pub(crate) first: Duration,
}

/// The request for all columns of the tables that `make-db` fills, and of that which commits
/// change; the bytes of the answer do not depend on when it is made.
pub(crate) fn dump_request() -> Vec<u8> {
    let tables = ["Datapath_Binding", "Port_Binding", "Logical_Flow", "Address_Set"];
    let requests: serde_json::Map<String, Value> =
        tables.iter().map(|&table| (table.to_owned(), json!([{}]))).collect();
    let params = json!([DB, ["monid", DB], requests, "00000000-0000-0000-0000-000000000000"]);
    json!({"id": 1, "method": "monitor_cond_since", "params": params}).to_string().into_bytes()
}

impl Dump {
    /// Has the floor answer with as much.
    pub(crate) fn configure_floor(&self, target: &Target) -> Result<(), Error> {
        let params = json!([0, self.bytes, self.rows]);
        Client::connect(target)?.call("floor", &params).map(drop)
    }

    /// Asks for everything and reads the reply without understanding it.
    pub(crate) fn take(target: &Target) -> Result<Self, Error> {
        const READ_SIZE: usize = 1 << 20;
        const TAIL: usize = ROW.len() - 1;
        let mut stream = target.connect()?;
        stream.write_all(&dump_request())?;
        let start = Instant::now();
        let mut dump = Self { bytes: 0, rows: 0, first: Duration::ZERO };
        let mut framer = Framer::default();
        let mut buffer = vec![0; TAIL + READ_SIZE];
        loop {
            let n = stream.read(&mut buffer[TAIL..])?;
            if n == 0 {
                fail!("the server closed the connection in the middle of a reply");
            }
            if dump.bytes == 0 {
                dump.first = start.elapsed();
            }
            let end = framer.scan(&buffer[TAIL..TAIL + n]);
            let taken = end.unwrap_or(n);
            dump.bytes += taken;
            dump.rows += memchr::memmem::find_iter(&buffer[..TAIL + taken], ROW).count();
            if end.is_some() {
                return Ok(dump);
            }
            buffer.copy_within(n..TAIL + n, 0);
        }
    }
}
