//! `weir bench set`: one element more or less in a set that is already large.
//!
//! What one insertion costs must not depend on how many elements are there. Elements are added
//! in blocks and the same ones removed again, so that the set keeps its size.

use std::io::Write;

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::drive::Load;
use crate::error::fail;
use crate::growth;
use crate::peer::Peer;
use crate::progress::Progress;
use crate::replica::{Datum, Replica};
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::tally::{Clients, ENOUGH_SECONDS, Sizes, Tally, seconds_from};
use crate::watch::{ELEMENT_DIGITS, Marker, uuid_hash, uuid_in};

const DB: &str = "Bench_Set";
/// Elements added, then removed, at a time.
const BLOCK: usize = 500;
/// Elements inserted in one transaction while filling the set.
const FILL: usize = 1_000;
/// Bytes a transaction, where no server of this run showed them.
pub(crate) const USUAL: Sizes = Sizes { update: 110, record: 200, request: 0 };
const SIZES: [usize; 2] = [300, 30_000];

/// How much is done to sets of which sizes.
pub(crate) struct Config {
    pub(crate) sizes: Vec<usize>,
    pub(crate) ops: usize,
    /// Seconds after which no more operations begin.
    pub(crate) seconds: f64,
    pub(crate) clients: Clients,
}

/// Runs the scenario `set`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let clients = Clients::from_args(args, 20, 10)?;
    let config = Config {
        sizes: args.list("--sizes")?.unwrap_or_else(|| SIZES.to_vec()),
        ops: args.value("--ops")?.unwrap_or(20_000).max(1),
        seconds: seconds_from(args)?,
        clients,
    };
    args.finish("set")?;
    let title = format!(
        "set: {} additions and removals at {:?} elements, {} writers, {} monitors",
        config.ops, config.sizes, clients.writers, clients.monitors
    );
    let long = config.ops >= 20_000 && config.seconds >= ENOUGH_SECONDS;
    let standard = config.sizes == SIZES && long && clients.monitors == 10;
    let about = About { scenario: "set".into(), title, standard };
    let floors = if clients.monitors > 0 { Floors::Both } else { Floors::Plain };
    let mut shape = USUAL;
    bench.rounds(about, floors, &mut |peer| sweep(&config, bench, peer, &mut shape))
}

/// Measures one server at all sizes.
pub(crate) fn sweep(
    config: &Config,
    bench: &Bench,
    peer: &Peer,
    shape: &mut Sizes,
) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let mut costs = Vec::new();
    let schema = schema();
    for &size in &config.sizes {
        let running = bench.start(peer, Source::Schema(&schema))?;
        let section = format!("{size} elements");
        bench.progress.phase(&section, BLOCK);
        let tally = measure(config, size, &running, peer.is_floor(), *shape, &bench.progress);
        let tally = tally.map_err(|e| running.explain(&peer.name, &e))?;
        if !peer.is_floor() {
            tally.learn(shape, config.clients.monitors);
        }
        tally.figures(&section, &mut figures);
        costs.extend(tally.cpu_micros().map(|cost| (size as f64, cost)));
        bench.progress.note(&format!("  {section}: {:.1} s", tally.seconds));
    }
    growth::draw("one element", "elements in the set", &costs, &mut figures);
    Ok(figures)
}

pub(crate) fn schema() -> Value {
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
    progress: &Progress,
) -> Result<Tally, Error> {
    let mut control = Client::connect(&running.target)?;
    if floor {
        shape.configure_floor(&mut control)?;
    } else {
        fill(&mut control, size)?;
    }
    let mut replica = Replica::new(&schema());
    let mut driver = config.clients.connect(&running.target, DB, &mut replica, progress)?;
    let mut tally = Tally::default();
    let mut base = 0;
    while tally.transactions < config.ops && tally.seconds < config.seconds {
        for mutator in ["insert", "delete"] {
            let mut load = Load {
                total: BLOCK,
                marker: if floor { Marker::Insert } else { Marker::Element },
                rate: None,
                unseen: false,
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
