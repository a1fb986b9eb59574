//! How long a change takes to the client of a server, and to those of relays behind it.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Scene;
use crate::Error;
use crate::crowd::{Crowd, Kind};
use crate::error::fail;
use crate::large::DB;
use crate::pulse;
use crate::running::Source;
use crate::stats::Latencies;

const SECTION: &str = "depth";
const CHANGES: usize = 2_000;
/// Relays one behind the other.
const DEPTH: usize = 3;
/// Between a change that everybody was told of and the next one.
const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(20);
const TURN: Duration = Duration::from_millis(100);

/// A chain, with a client at each place.
pub(super) fn run(scene: &mut Scene<'_>) -> Result<(), Error> {
    let mut servers = vec![scene.bench.start(scene.peer, Source::Schema(scene.schema))?];
    pulse::prepare(&servers[0].target)?;
    for _ in 0..DEPTH {
        let last = servers.last().map(std::slice::from_ref).unwrap_or_default();
        let relay = scene.relay(last)?;
        servers.push(relay);
    }
    let mut crowd = Crowd::new()?;
    let requests = json!({"Address_Set": [{"columns": ["name", "addresses"]}]});
    let watch = json!({"id": 1, "method": "monitor_cond", "params": [DB, "m", requests]});
    for server in &servers {
        let token = crowd.join(&server.target)?;
        crowd.send(token, watch.to_string().as_bytes())?;
    }
    if !crowd.wait_for(1, PATIENCE)? {
        fail!("the clients of the chain are not answered");
    }
    let writer = crowd.join(&servers[0].target)?;
    crowd.listen();
    let changes = (CHANGES / scene.divisor).max(2);
    scene.bench.progress.phase(SECTION, changes);
    let mut told = vec![Latencies::default(); servers.len()];
    for n in 0..changes {
        change(&mut crowd, writer, n, &mut told)?;
        scene.bench.progress.at(n);
        std::thread::sleep(PAUSE);
    }
    let median = |at: usize| told[at].percentile(50.0);
    let mut push = |name: &str, digits, value| scene.figures.push(SECTION, name, digits, value);
    for (place, name) in
        ["at the source", "1 relay deep", "2 relays deep", "3 relays deep"].into_iter().enumerate()
    {
        push(&format!("{name}, p50 us"), 0, median(place));
        push(&format!("{name}, p99 us"), 0, told[place].percentile(99.0));
    }
    push("3 relays deep / 1 relay deep", 2, median(DEPTH) / median(1));
    Ok(())
}

/// Makes a change, and waits until all have been told of it.
fn change(crowd: &mut Crowd, writer: usize, n: usize, told: &mut [Latencies]) -> Result<(), Error> {
    let update = json!({"op": "update", "table": "Address_Set",
        "where": [["name", "==", "weir-bench-pulse"]],
        "row": {"addresses": format!("pulse-{:07}", n + 1)}});
    let request = json!({"id": n + 10, "method": "transact", "params": [DB, update]}).to_string();
    let start = Instant::now();
    crowd.send(writer, request.as_bytes())?;
    let (mut missing, mut is_answered) = (told.len(), false);
    while missing > 0 || !is_answered {
        crowd.turn(TURN)?;
        for message in crowd.heard() {
            match message.edges.kind() {
                Kind::Notification => {
                    told[message.token].push(start.elapsed());
                    missing = missing.saturating_sub(1);
                }
                Kind::Answer => is_answered |= message.token == writer,
                Kind::Refusal => fail!("a change is refused"),
                Kind::Probe => {}
            }
        }
        if start.elapsed() > PATIENCE {
            fail!("{missing} clients have not been told of a change");
        }
    }
    Ok(())
}
