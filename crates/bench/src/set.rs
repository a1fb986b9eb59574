//! `weir bench set`: one element more or less in a set that is already large.
//!
//! What one insertion costs must not depend on how many elements are there. Elements are added
//! in blocks and the same ones removed again, so that the set keeps its size.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::drive::{DRAIN_EVERY, Load};
use crate::error::fail;
use crate::peer::{Peers, Running};
use crate::procfs;
use crate::replica::{Datum, Replica};
use crate::report::{Figures, Metric, Report};
use crate::tally::{Clients, Sizes, Tally};
use crate::watch::{ELEMENT_DIGITS, Marker, uuid_hash, uuid_in};

const DB: &str = "Bench_Set";
/// Elements added, then removed, at a time.
const BLOCK: usize = 500;
/// Elements inserted in one transaction while filling the set.
const FILL: usize = 1_000;
/// Bytes a transaction, where no server of this run showed them.
const USUAL: Sizes = Sizes { update: 110, record: 200 };

struct Config {
    sizes: Vec<usize>,
    ops: usize,
    clients: Clients,
}

/// Runs the command.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let mut args = Args::new(args);
    let peers = Peers::from_args(&mut args)?;
    let clients = Clients {
        writers: args.value("--writers")?.unwrap_or(20).max(1),
        monitors: args.value("--monitors")?.unwrap_or(10),
        drain_every: args.value("--drain-us")?.map_or(DRAIN_EVERY, Duration::from_micros),
    };
    let config = Config {
        sizes: args.list("--sizes")?.unwrap_or_else(|| vec![300, 30_000]),
        ops: args.value("--ops")?.unwrap_or(20_000).max(1),
        clients,
    };
    if let Some(word) = args.words()?.first() {
        return Err(Error::Usage(format!("set: unexpected '{word}'")));
    }
    let title = format!(
        "set: {} additions and removals at {:?} elements, {} writers, {} monitors",
        config.ops, config.sizes, clients.writers, clients.monitors
    );
    let mut report = Report::new(title, procfs::machine());
    let mut shape = USUAL;
    for run in 1..=peers.repeat {
        for peer in peers.order(clients.monitors > 0) {
            eprintln!("{} ({run} of {})", peer.name, peers.repeat);
            let mut figures = Figures::default();
            let mut costs = Vec::new();
            for &size in &config.sizes {
                let running = peer.start(peers.dir(), &|path| dbfile::create(path, &schema()))?;
                let tally = measure(&config, size, &running, peer.is_floor(), shape);
                let mut tally = tally.map_err(|e| running.explain(&peer.name, &e))?;
                if !peer.is_floor() {
                    tally.learn(&mut shape, clients.monitors);
                }
                tally.figures(&format!("{size} elements"), &mut figures);
                costs.push(tally.cpu_micros());
                eprintln!("  {size} elements: {:.1} s", tally.seconds);
            }
            if let [first, .., last] = costs[..] {
                let metric = Metric { name: "CPU, last size / first size", digits: 2 };
                figures.push("growth", metric, last / first);
            }
            report.add(&peer.name, peer.is_floor(), figures);
        }
    }
    report.publish(peers.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn schema() -> Value {
    let set = json!({"key": "string", "min": 0, "max": "unlimited"});
    json!({"name": DB, "version": "1.0.0", "tables": {"Holder": {
        "isRoot": true,
        "columns": {"name": {"type": "string"}, "elements": {"type": set}}
    }}})
}

fn measure(
    config: &Config,
    size: usize,
    running: &Running,
    floor: bool,
    shape: Sizes,
) -> Result<Tally, Error> {
    let mut control = Client::connect(&running.target)?;
    if floor {
        shape.impose(&mut control)?;
    } else {
        fill(&mut control, size)?;
    }
    let mut replica = Replica::new(&schema());
    let mut driver = config.clients.connect(&running.target, DB, &mut replica)?;
    let mut tally = Tally::default();
    let mut base = 0;
    while tally.transactions < config.ops {
        for mutator in ["insert", "delete"] {
            let mut load = Load {
                total: BLOCK,
                marker: if floor { Marker::Insert } else { Marker::Element },
                rate: None,
                request: &mut |i, out| request(i, base + i, mutator, out),
                reply: &mut |i, reply| check_reply(i, base + i, reply, floor),
            };
            tally.run(running, &mut driver, &mut load)?;
            let kept = driver.watches.first().and_then(|watch| watch.kept.as_deref());
            if let (Some(kept), false) = (kept, floor) {
                replica.apply_stream(kept)?;
                let expected = size + if mutator == "insert" { BLOCK } else { 0 };
                check_size(&replica, expected)?;
            }
        }
        base = (base + BLOCK) % 10_usize.pow(ELEMENT_DIGITS as u32);
    }
    if config.clients.monitors > 0 && !floor {
        replica.check_against(&running.target, DB)?;
    }
    Ok(tally)
}

/// Makes the row with its set; these elements are not named like those that come and go.
fn fill(control: &mut Client, size: usize) -> Result<(), Error> {
    let insert = json!({"op": "insert", "table": "Holder", "row": {"name": "holder"}});
    control.transact(&json!([DB, insert]))?;
    let elements: Vec<_> = (0..size).map(|n| format!("resident-{n:07}")).collect();
    for chunk in elements.chunks(FILL) {
        let mutations = json!([["elements", "insert", ["set", chunk]]]);
        let mutate =
            json!({"op": "mutate", "table": "Holder", "where": [], "mutations": mutations});
        control.transact(&json!([DB, mutate]))?;
    }
    Ok(())
}

fn request(i: usize, element: usize, mutator: &str, out: &mut Vec<u8>) {
    let _ = write!(
        out,
        concat!(
            r#"{{"id":{},"method":"transact","params":["{}",{{"op":"mutate","table":"Holder","#,
            r#""where":[],"mutations":[["elements","{}","element-{:0digits$}"]]}}]}}"#
        ),
        i,
        DB,
        mutator,
        element,
        digits = ELEMENT_DIGITS
    );
}

fn check_reply(i: usize, element: usize, reply: &[u8], floor: bool) -> Result<u64, Error> {
    if floor {
        return Ok(uuid_hash(uuid_in(reply)?.as_bytes()));
    }
    if memchr::memmem::find(reply, br#"[{"count":1}]"#).is_none() {
        fail!("transaction {i} was answered {}", String::from_utf8_lossy(reply));
    }
    Ok(uuid_hash(format!("{element:0ELEMENT_DIGITS$}").as_bytes()))
}

fn check_size(replica: &Replica, expected: usize) -> Result<(), Error> {
    let row = replica.tables.get("Holder").and_then(|rows| rows.values().next());
    let found = match row.and_then(|row| row.get("elements")) {
        Some(Datum::Set(elements)) => elements.len(),
        _ => 0,
    };
    if found != expected {
        fail!("a monitor's copy of the set has {found} elements of {expected}");
    }
    Ok(())
}
