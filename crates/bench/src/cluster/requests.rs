//! What else is asked of a member while others write there without a pause.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Scene;
use super::members::Cluster;
use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::ports::DB;
use crate::report::Figures;
use crate::stats::Latencies;

/// Who writes rows, each the next one as soon as it is answered.
const WRITERS: usize = 16;
/// How long each request is asked for, one at a time.
const SECONDS: f64 = 10.0;
/// Rows of a long transaction.
const LONG_ROWS: usize = 1_000;
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// Asks one thing of a server, for the so many-th time, and times it.
type Ask = fn(&mut Client, usize) -> Result<Duration, Error>;

const REQUESTS: [(&str, Ask); 5] = [
    ("get_schema", get_schema),
    ("monitor", monitor),
    ("select", select),
    ("wait that is not true", wait),
    ("1,000 inserts in one", long),
];

pub(super) fn run(scene: &mut Scene<'_>) -> Result<(), Error> {
    for (who, leads) in [("the leader", true), ("a follower", false)] {
        let mut cluster = Cluster::start(scene.bench, scene.peer, scene.schema, scene.members)?;
        cluster.place_leader(leads)?;
        let section = format!("{WRITERS} writers at {who}");
        let target = &cluster.members[0].target;
        let asked = at(scene, target, &section).map_err(|e| cluster.explain_all(&e))?;
        scene.figures.append(asked);
    }
    Ok(())
}

/// Writes at a member, and asks it for everything meanwhile.
fn at(scene: &Scene<'_>, target: &Target, section: &str) -> Result<Figures, Error> {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let write = |n| write(target, n, (&stop, &written));
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(n))).collect();
        let asked = ask(scene, target, section, &written);
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("writers do not panic")?;
        }
        asked
    })
}

fn write(
    target: &Target,
    writer: usize,
    (stop, written): (&AtomicBool, &AtomicU64),
) -> Result<(), Error> {
    let mut client = Client::connect(target)?;
    let mut row = 0;
    while !stop.load(Ordering::Relaxed) {
        client.transact(&json!([DB, insert(&format!("writer_{writer}_{row}"))]))?;
        row += 1;
        written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn ask(
    scene: &Scene<'_>,
    target: &Target,
    section: &str,
    written: &AtomicU64,
) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let (start, before) = (Instant::now(), written.load(Ordering::Relaxed));
    let seconds = Duration::from_secs_f64(SECONDS / scene.divisor as f64).max(PAUSE);
    for (name, ask) in REQUESTS {
        let (mut client, mut latencies) = (Client::connect(target)?, Latencies::default());
        let begun = Instant::now();
        for n in 0.. {
            latencies.push(ask(&mut client, n)?);
            if begun.elapsed() > seconds {
                break;
            }
            thread::sleep(PAUSE);
        }
        for (figure, percent) in [("p50 us", 50.0), ("p99 us", 99.0), ("max us", 100.0)] {
            figures.push(&format!("{section}, {name}"), figure, 0, latencies.percentile(percent));
        }
    }
    let (writes, seconds) = (written.load(Ordering::Relaxed) - before, start.elapsed());
    figures.push(section, "writes a second", 0, writes as f64 / seconds.as_secs_f64());
    Ok(figures)
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "Address_Set", "row": {"name": name}})
}

fn timed<T>(asks: impl FnOnce() -> Result<T, Error>) -> Result<(T, Duration), Error> {
    let start = Instant::now();
    asks().map(|answer| (answer, start.elapsed()))
}

fn get_schema(client: &mut Client, _: usize) -> Result<Duration, Error> {
    Ok(timed(|| client.call("get_schema", &json!([DB])))?.1)
}

/// Of a table that nobody changes.
fn monitor(client: &mut Client, n: usize) -> Result<Duration, Error> {
    let params = json!([DB, n, {"NB_Global": {"columns": ["name"]}}]);
    let (_, took) = timed(|| client.call("monitor", &params))?;
    client.call("monitor_cancel", &json!([n]))?;
    Ok(took)
}

fn select(client: &mut Client, _: usize) -> Result<Duration, Error> {
    let params = json!([DB, {"op": "select", "table": "NB_Global", "where": []}]);
    Ok(timed(|| client.transact(&params))?.1)
}

/// A wait whose time is up at once.
fn wait(client: &mut Client, _: usize) -> Result<Duration, Error> {
    let params = json!([DB, {"op": "wait", "timeout": 0, "table": "Address_Set",
        "where": [["name", "==", "nobody"]], "columns": ["name"], "until": "==",
        "rows": [{"name": "nobody"}]}]);
    let (reply, took) = timed(|| client.call("transact", &params))?;
    if reply[0]["error"] != "timed out" {
        fail!("a wait for what is not true answered {reply}");
    }
    Ok(took)
}

fn long(client: &mut Client, n: usize) -> Result<Duration, Error> {
    let rows = (0..LONG_ROWS).map(|row| insert(&format!("long_{n}_{row}")));
    let params = [json!(DB)].into_iter().chain(rows).collect();
    Ok(timed(|| client.transact(&params))?.1)
}
