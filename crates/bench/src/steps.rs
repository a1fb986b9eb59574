//! `weir bench steps`: what one client can ask for that takes long, while others commit.
//!
//! Each phase is one such request on a database of 162 MB (see `make-db`): everything changes, with
//! nobody watching, with a hundred monitors, with a hundred that have conditions of their own; one
//! transaction of 100,000 operations; a select, and a condition, that bring every row; a conversion
//! while every row changes; a database of the same size that comes and goes; a backup that takes its
//! first rows. Meanwhile one client commits and another sends `echo`, both at a steady rate: the
//! one shows how long the database was shut, the other how long the server heard nobody.

mod audience;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::audience::{Audience, Shown};
use crate::Error;
use crate::args::Args;
use crate::client::{Client, Target};
use crate::dbfile;
use crate::error::fail;
use crate::large::Database;
use crate::make_db;
use crate::pulse::{self, Pulse};
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};

const DB: &str = "OVN_Southbound";
const SECOND: &str = "Second_Southbound";
const MEGABYTES: f64 = 162.0;
const MONITORS: usize = 100;
const OPERATIONS: usize = 100_000;
/// How long the pulses go on where the other work is over at once: what it has left behind counts.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a backup may take until it has all rows.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a run is made of.
struct Setting<'a> {
    bench: &'a Bench,
    running: Running,
    database: &'a Database,
    /// A file with the same rows, of a database of another name.
    second: PathBuf,
    monitors: usize,
    operations: usize,
}

/// Runs the scenario `steps`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let megabytes: f64 = args.value("--megabytes")?.unwrap_or(MEGABYTES);
    let monitors = args.value("--monitors")?.unwrap_or(MONITORS).max(1);
    let operations = args.value("--ops")?.unwrap_or(OPERATIONS).max(1);
    let schema = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("steps")?;
    let about = About {
        scenario: "steps".into(),
        title: format!("steps: long requests on {megabytes} MB, {monitors} monitors"),
        standard: megabytes == MEGABYTES && monitors == MONITORS && operations == OPERATIONS,
    };
    let database = Database::make(bench, megabytes, &schema, 1)?;
    let empty = dbfile::read_schema(schema.as_ref(), "as before")?;
    let renamed = Renamed::write(bench, &schema)?;
    let second = Database::make_as(bench, "second", megabytes, &renamed.text(), 1)?;
    bench.rounds(about, Floors::None, &mut |peer| {
        let running = bench.start(peer, Source::File(&database.path))?;
        let second = second.path.clone();
        let setting = Setting { bench, running, database: &database, second, monitors, operations };
        let mut figures = Figures::default();
        let measured = setting.all(&mut figures, &|| bench.start(peer, Source::Schema(&empty)));
        measured.map_err(|e| setting.running.explain(&peer.name, &e))?;
        setting.running.finish("memory and disk", &mut figures)?;
        Ok(figures)
    })
}

/// The schema under the second database's name.
struct Renamed(PathBuf);

impl Renamed {
    fn write(bench: &Bench, schema: &str) -> Result<Self, Error> {
        let hint = "of Debian's package ovn-common";
        let mut schema = dbfile::read_schema(schema.as_ref(), hint)?;
        schema["name"] = SECOND.into();
        let path = bench.scratch("second.ovsschema");
        fs::write(&path, schema.to_string()).map_err(|e| Error::io("writing", &path, e))?;
        Ok(Self(path))
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Setting<'_> {
    /// `backup` starts another server, whose database is empty.
    fn all(
        &self,
        figures: &mut Figures,
        backup: &dyn Fn() -> Result<Running, Error>,
    ) -> Result<(), Error> {
        pulse::prepare(&self.running.target)?;
        self.during("nothing else", figures, &mut || Ok(()))?;
        self.changes(figures)?;
        self.during("select of every row", figures, &mut || self.select())?;
        let name = format!("{} operations in one transaction", self.operations);
        self.during(&name, figures, &mut || self.many_operations())?;
        let mut shown = self.watch_nothing()?;
        self.during("monitor_cond_change shows every row", figures, &mut || {
            let request = json!({"id": 1, "method": "monitor_cond_change", "params":
                ["nothing", "all", {"Logical_Flow": [{"where": [true]}]}]});
            shown.ask(&request)?;
            shown.wait_for(self.database.flows)
        })?;
        drop(shown);
        self.follow(&backup()?, figures)?;
        self.during("conversion while every row changes", figures, &mut || self.convert())?;
        self.other_database(figures)
    }

    /// One transaction changes every flow.
    fn changes(&self, figures: &mut Figures) -> Result<(), Error> {
        self.during("every row changes", figures, &mut || self.change("weir-0"))?;
        let columns = json!(["controller_meter"]);
        let everything = (0..self.monitors).map(|_| json!({"columns": columns}));
        let all = self.database.flows as u64 * self.monitors as u64;
        let mut audience = Audience::gather(&self.target(), everything, all)?;
        self.during("every row changes, equal monitors", figures, &mut || {
            self.change_before(&mut audience, "weir-1")
        })?;
        drop(audience);
        let datapaths = self.datapaths()?;
        let share = datapaths.len().div_ceil(self.monitors);
        let own = datapaths.chunks(share).map(|datapaths| {
            let clause = |datapath: &Value| json!(["logical_datapath", "==", datapath]);
            let clauses: Vec<Value> = datapaths.iter().map(clause).collect();
            json!({"columns": columns, "where": clauses})
        });
        let all = self.database.flows as u64;
        let mut audience = Audience::gather(&self.target(), own, all)?;
        self.during("every row changes, monitors of their own rows", figures, &mut || {
            self.change_before(&mut audience, "weir-2")
        })
    }

    fn target(&self) -> Target {
        self.running.target.clone()
    }

    fn change(&self, meter: &str) -> Result<(), Error> {
        change(&self.running.target, self.database.flows, meter)
    }

    /// Gives every flow another meter, and everybody the time to see it.
    fn change_before(&self, audience: &mut Audience, meter: &str) -> Result<(), Error> {
        let (target, flows) = (&self.running.target, self.database.flows);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| change(target, flows, meter));
            let seen = audience.wait();
            match changing.join() {
                Ok(changed) => changed.and(seen),
                Err(_) => fail!("the client that changes every row has failed"),
            }
        })
    }

    fn datapaths(&self) -> Result<Vec<Value>, Error> {
        let select = json!({"op": "select", "table": "Datapath_Binding", "where": [],
            "columns": ["_uuid"]});
        let results = Client::connect(&self.target())?.transact(&json!([DB, select]))?;
        let rows = results[0]["rows"].as_array().into_iter().flatten();
        Ok(rows.map(|row| row["_uuid"].clone()).collect())
    }

    fn select(&self) -> Result<(), Error> {
        let select = json!({"op": "select", "table": "Logical_Flow", "where": []});
        let request = json!({"id": 1, "method": "transact", "params": [DB, select]});
        let mut client = Client::connect(&self.target())?;
        let reply = client.exchange(request.to_string().as_bytes())?;
        let rows = memchr::memmem::find_iter(reply, br#""_version""#).count();
        if rows != self.database.flows {
            fail!("a select of everything brought {rows} rows of {}", self.database.flows);
        }
        Ok(())
    }

    /// Inserts as many rows as operations.
    fn many_operations(&self) -> Result<(), Error> {
        let insert = |n: usize| {
            let row = json!({"name": format!("weir-bench-{n}"), "addresses": "10.0.0.1"});
            json!({"op": "insert", "table": "Address_Set", "row": row})
        };
        let params = std::iter::once(json!(DB)).chain((0..self.operations).map(insert));
        let results = Client::connect(&self.target())?.transact(&params.collect())?;
        if results.len() != self.operations {
            fail!("{} operations had {} results", self.operations, results.len());
        }
        Ok(())
    }

    fn watch_nothing(&self) -> Result<Shown, Error> {
        let mut client = Client::connect(&self.target())?;
        let flows = json!({"columns": ["match", "actions", "priority"], "where": [false]});
        let params = json!([DB, "nothing", {"Logical_Flow": [flows]}]);
        client.call("monitor_cond", &params)?;
        Ok(Shown::new(client))
    }

    /// The largest table gets another column, and meanwhile each of its rows another value.
    fn convert(&self) -> Result<(), Error> {
        let mut client = Client::connect(&self.target())?;
        let mut schema = client.call("get_schema", &json!([DB]))?;
        schema["tables"]["Logical_Flow"]["columns"]["weir_bench"] = json!({"type": "string"});
        let converting =
            std::thread::spawn(move || client.call("convert", &json!([DB, schema])).map(drop));
        // It has come when the update comes.
        std::thread::sleep(Duration::from_millis(20));
        let changed = self.change_unless_converted();
        match converting.join() {
            Ok(converted) => converted.and(changed),
            Err(_) => fail!("the client that converts has failed"),
        }
    }

    /// A server that converts everything at once may have cut the client off before it changed
    /// anything.
    fn change_unless_converted(&self) -> Result<(), Error> {
        match self.change("weir-3") {
            Err(Error::Io(..)) => Ok(()),
            Err(Error::Check(text)) if text.contains("closed the connection") => Ok(()),
            changed => changed,
        }
    }

    /// A database comes, and goes.
    fn other_database(&self, figures: &mut Figures) -> Result<(), Error> {
        let Some(control) = self.running.control() else { return Ok(()) };
        let command = |name: &str, argument: Value| {
            Client::connect(&control)?.call(name, &json!([argument])).map(drop)
        };
        let copy = self.bench.scratch("second-copy.db");
        fs::copy(&self.second, &copy).map_err(|e| Error::io("copying to", &copy, e))?;
        let added =
            self.during("add-db", figures, &mut || command("ovsdb-server/add-db", json!(copy)));
        let removed = added.and_then(|()| {
            self.during("remove-db", figures, &mut || {
                command("ovsdb-server/remove-db", json!(SECOND))
            })
        });
        let _ = fs::remove_file(&copy);
        let name = copy.file_name().unwrap_or_default().to_string_lossy();
        let _ = fs::remove_file(copy.with_file_name(format!(".{name}.~lock~")));
        removed
    }

    /// A backup takes its first rows; a server that follows lets nobody commit.
    fn follow(&self, backup: &Running, figures: &mut Figures) -> Result<(), Error> {
        const SECTION: &str = "a backup takes its first rows";
        let (Some(control), Target::Unix(path)) = (backup.control(), self.target()) else {
            return Ok(());
        };
        self.bench.progress.wait(SECTION);
        let echo = Pulse::echo(&backup.target)?;
        let start = Instant::now();
        let mut admin = Client::connect(&control)?;
        let active = format!("unix:{}", path.display());
        admin.call("ovsdb-server/set-active-ovsdb-server", &json!([active]))?;
        admin.call("ovsdb-server/connect-active-ovsdb-server", &json!([]))?;
        let followed = self.wait_for_rows(&backup.target);
        figures.push(SECTION, "s", 2, start.elapsed().as_secs_f64());
        std::thread::sleep(SETTLE);
        let heard = echo.stop()?;
        followed?;
        figures.push(SECTION, "longest wait of an echo ms", 1, heard.percentile(100.0) / 1e3);
        self.bench.progress.note(&format!("  {SECTION}"));
        Ok(())
    }

    fn wait_for_rows(&self, backup: &Target) -> Result<(), Error> {
        let start = Instant::now();
        let select = json!({"op": "select", "table": "Datapath_Binding",
            "where": [["tunnel_key", "==", 1]], "columns": ["tunnel_key"]});
        loop {
            let results = Client::connect(backup)?.transact(&json!([DB, select]))?;
            if results[0]["rows"].as_array().is_some_and(|rows| !rows.is_empty()) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                fail!("a backup has no rows after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Does some work while others commit and send echoes.
    fn during(
        &self,
        section: &str,
        figures: &mut Figures,
        work: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.bench.progress.wait(section);
        let commits = Pulse::start(&self.running.target)?;
        let echoes = Pulse::echo(&self.running.target)?;
        let start = Instant::now();
        let worked = work();
        let seconds = start.elapsed().as_secs_f64();
        std::thread::sleep(SETTLE);
        let (commits, echoes) = (commits.stop(), echoes.stop());
        worked?;
        let (commits, echoes) = (commits?, echoes?);
        let mut push = |name, digits, value| figures.push(section, name, digits, value);
        push("s", 2, seconds);
        push("longest wait of a commit ms", 1, commits.percentile(100.0) / 1e3);
        push("longest wait of an echo ms", 1, echoes.percentile(100.0) / 1e3);
        self.bench.progress.note(&format!("  {section}: {seconds:.1} s"));
        Ok(())
    }
}

/// Gives every flow another meter.
fn change(target: &Target, flows: usize, meter: &str) -> Result<(), Error> {
    let row = json!({"controller_meter": meter});
    let update = json!({"op": "update", "table": "Logical_Flow", "where": [], "row": row});
    let results = Client::connect(target)?.transact(&json!([DB, update]))?;
    if results[0]["count"] != json!(flows) {
        fail!("an update of every row was answered {}", results[0]);
    }
    Ok(())
}
