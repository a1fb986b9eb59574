//! `weir bench resume`: everybody comes back at once and names the last change that they know.
//!
//! Clients watch all of an OVN_Southbound-like database, as `ovn-controller` does: columns by name,
//! none of those that are kept out of files. They lose their connections, or their server, changes
//! are made without them, and all come back together. A server that still has what they know sends
//! what has changed; another one sends everything. One of the clients keeps a replica all the time,
//! which is compared with a fresh copy after each return.

mod clients;
mod writer;

use serde_json::Value;

use self::clients::{Clients, Return};
use self::writer::Writer;
use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::error::fail;
use crate::large::{Database, compact};
use crate::make_db;
use crate::peer::Peer;
use crate::procfs;
use crate::replica::Replica;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{End, Running, Source};

const CLIENTS: usize = 200;
const MEGABYTES: f64 = 20.0;
const CHANGES: usize = 100;
/// Changes that everybody sees before the connections end, so that each return begins elsewhere.
const SEEN: usize = 10;

/// The scenario's options in the help.
pub(crate) const OPTIONS: &[&str] = &[
    "--clients N (200) --megabytes N (20) --changes N  while they are away (100)",
    "--lines NAME[,NAME...]  reconnect, restart, kill, compaction (all of them)",
];

/// How clients lose their server.
struct Line {
    name: &'static str,
    section: &'static str,
    /// How the server ends; none where it goes on.
    end: Option<End>,
    /// Whether the database is compacted before that, between the changes.
    compacts: bool,
}

const LINES: &[Line] = &[
    Line { name: "reconnect", section: "connections are cut", end: None, compacts: false },
    Line { name: "restart", section: "restart", end: Some(End::Clean), compacts: false },
    Line { name: "kill", section: "kill -9", end: Some(End::Killed), compacts: false },
    Line {
        name: "compaction",
        section: "compaction and restart",
        end: Some(End::Clean),
        compacts: true,
    },
];

/// Runs the scenario `resume`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let clients = args.value("--clients")?.unwrap_or(CLIENTS).max(1);
    let megabytes: f64 = args.value("--megabytes")?.unwrap_or(MEGABYTES);
    let changes = args.value("--changes")?.unwrap_or(CHANGES).max(1);
    let lines = chosen(args)?;
    let schema = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("resume")?;
    let about = About {
        scenario: "resume".into(),
        title: format!(
            "resume: {clients} clients of {megabytes} MB come back after {changes} changes"
        ),
        standard: clients == CLIENTS && megabytes == MEGABYTES && changes == CHANGES,
    };
    let database = Database::make(bench, megabytes, &schema, 1)?;
    let schema = recorded(dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?);
    bench.rounds(about, Floors::None, &mut |peer| {
        let mut running = bench.start(peer, Source::File(&database.path))?;
        let mut scene = Scene { bench, peer, changes, figures: Figures::default() };
        let measured = scene.measure(&database, clients, &schema, &lines, &mut running);
        measured.map_err(|e| running.explain(&peer.name, &e))?;
        Ok(scene.figures)
    })
}

/// The lines that the options name, or all of them.
fn chosen(args: &mut Args) -> Result<Vec<&'static Line>, Error> {
    args.choose("--lines", LINES, |line| line.name)
}

/// The schema without the columns that are kept out of files.
fn recorded(mut schema: Value) -> Value {
    for (_, table) in schema["tables"].as_object_mut().into_iter().flatten() {
        if let Some(columns) = table["columns"].as_object_mut() {
            columns.retain(|_, column| column["ephemeral"] != true);
        }
    }
    schema
}

/// One server of one round.
struct Scene<'a> {
    bench: &'a Bench,
    peer: &'a Peer,
    changes: usize,
    figures: Figures,
}

impl Scene<'_> {
    fn measure(
        &mut self,
        database: &Database,
        clients: usize,
        schema: &Value,
        lines: &[&Line],
        running: &mut Running,
    ) -> Result<(), Error> {
        let mut replica = Replica::new(schema);
        let mut writer = Writer::find(running)?;
        // The first change may be what has a server begin to keep any.
        let (everything, id) = fresh(running, &replica)?;
        replica.apply(&everything["result"][2])?;
        if replica.rows() != database.rows {
            fail!("a client received {} rows of {}", replica.rows(), database.rows);
        }
        drop(everything);
        let mut clients = Clients::new(clients, id, replica, &self.bench.progress);
        self.bench.progress.phase("everybody comes", clients.count());
        clients.come_back(&running.target)?;
        for line in lines {
            self.line(line, &mut writer, &mut clients, running)?;
        }
        running.finish("memory and disk", &mut self.figures)
    }

    /// Everybody sees some changes, loses the server, and comes back after others.
    fn line(
        &mut self,
        line: &Line,
        writer: &mut Writer,
        clients: &mut Clients,
        running: &mut Running,
    ) -> Result<(), Error> {
        self.bench.progress.wait(line.section);
        for _ in 0..SEEN {
            writer.change(running, 1)?;
            clients.see_one()?;
        }
        let early = if line.compacts { self.changes / 2 } else { 0 };
        if line.end.is_none() || line.compacts {
            clients.leave();
        }
        let mut text = writer.change(running, early)?;
        if line.compacts {
            compact(running)?;
        }
        if let Some(end) = line.end {
            self.bench.restart(self.peer, end, running)?;
            let name = "listens again after s";
            self.figures.push(line.section, name, 2, running.age().as_secs_f64());
            clients.leave();
        }
        text += writer.change(running, self.changes - early)?;
        self.bench.progress.phase(line.section, clients.count());
        running.reset_peak();
        let me = std::process::id();
        let before = (running.cpu_nanos()?, procfs::cpu_nanos(me)?);
        let back = clients.come_back(&running.target)?;
        let after = (running.cpu_nanos()?, procfs::cpu_nanos(me)?);
        let cpu = |(after, before): (u64, u64)| (after - before) as f64 / 1e6;
        self.back(line.section, &back, text, clients.count());
        let mut push = |name, digits, value| self.figures.push(line.section, name, digits, value);
        if let Some(both) = after.0.zip(before.0) {
            push("server CPU ms", 0, cpu(both));
        }
        push("driver CPU ms", 0, cpu((after.1, before.1)));
        if let Some(memory) = running.memory()? {
            push("peak RSS MB", 1, memory.peak as f64 / 1e6);
        }
        self.bench.progress.note(&format!(
            "  {}: {:.2} s, {} of {} found",
            line.section,
            back.time.as_secs_f64(),
            back.found,
            clients.count()
        ));
        check(writer, clients, running)
    }

    /// What the table says of a return; `text` is what the changes were to those who saw them.
    fn back(&mut self, section: &str, back: &Return, text: usize, clients: usize) {
        let mut push = |name, digits, value| self.figures.push(section, name, digits, value);
        let all = clients as f64;
        push("found: true %", 1, 100.0 * back.found as f64 / all);
        push("s until all are current", 3, back.time.as_secs_f64());
        push("half of them after s", 3, back.current.percentile(50.0) / 1e6);
        push("sent to all MB", 2, back.bytes as f64 / 1e6);
        push("bytes a client", 0, back.bytes as f64 / all);
        push("of that _Server and schemas", 0, back.preface as f64);
        push("of that the database", 0, back.bytes as f64 / all - back.preface as f64);
        push("text of the changes, bytes", 0, text as f64);
        let database = back.bytes as f64 / all - back.preface as f64;
        push("database / text of the changes", 2, database / text.max(1) as f64);
    }
}

/// Whether the replica is what a client receives that knows nothing, and has seen the changes.
fn check(writer: &Writer, clients: &mut Clients, running: &Running) -> Result<(), Error> {
    let replica = clients.replica()?;
    let (everything, _) = fresh(running, replica)?;
    let mut other = replica.empty();
    other.apply(&everything["result"][2])?;
    drop(everything);
    if !other.has("Logical_Flow", writer.last_flow()) {
        fail!("the last change is not in the database");
    }
    replica.check_equal(&other)
}

/// Everything, for a client that knows nothing: the reply, and the id of what it is.
fn fresh(running: &Running, replica: &Replica) -> Result<(Value, String), Error> {
    let mut client = Client::connect(&running.target)?;
    let request = clients::monitor(&replica.requests(), clients::NOTHING);
    let reply = client.exchange(&request)?;
    let reply: Value = serde_json::from_slice(reply)
        .map_err(|e| Error::Check(format!("a monitor's reply is not JSON: {e}")))?;
    match (reply["result"][0].as_bool(), reply["result"][1].as_str()) {
        (Some(false), Some(id)) => {
            let id = id.to_owned();
            Ok((reply, id))
        }
        _ => fail!("who knows nothing was answered {}", clip(&reply.to_string())),
    }
}

fn clip(text: &str) -> &str {
    text.get(..300).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_that_are_kept_out_of_files_are_not_watched() {
        let schema = recorded(json!({"name": "D", "tables": {"C": {"columns": {
            "target": {"type": "string"},
            "status": {"type": "string", "ephemeral": true},
        }}}}));
        let requests = Replica::new(&schema).requests();
        assert_eq!(requests, json!({"C": [{"columns": ["target"]}]}));
    }

    #[test]
    fn every_line_is_in_the_help() {
        assert!(LINES.iter().all(|line| OPTIONS.join("\n").contains(line.name)));
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&mut Args::new(&words)).map(|lines| lines.len())
        };
        assert_eq!(chosen(&[]).unwrap(), LINES.len());
        assert_eq!(chosen(&["--lines=kill"]).unwrap(), 1);
        assert!(chosen(&["--lines=fall"]).is_err());
    }
}
