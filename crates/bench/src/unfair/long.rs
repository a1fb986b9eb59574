//! Transactions and reads that take seconds: one beside short ones, several clients' reads at the
//! same time, changes of a set of very many elements, and what clients have asked for that have left.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DB;
use super::scene::{PATIENCE, Scene, THREE, TWO, request};
use crate::Error;
use crate::crowd::Crowd;
use crate::error::fail;
use crate::stats::Latencies;

/// Rows that one operation goes over.
const ROWS: usize = 6_000;
const SCANS: usize = 20_000;
const READERS: usize = 8;
/// Operations of a long read, and of one that is not short either.
const LONG_READ: usize = 2_000;
const READ: usize = 100;
/// Clients that ask for much and leave, and how far apart.
const LEAVING: usize = 4;
const APART: Duration = Duration::from_millis(100);
/// Elements of the set that is changed.
const ELEMENTS: usize = 1_000_000;
/// How long the server must rest until nobody's work is left.
const REST: Duration = Duration::from_millis(200);

/// A transaction of so many operations, each of which looks for its rows in vain by a column in no
/// index.
fn scans(table: &str, operation: &Value, count: usize) -> Vec<u8> {
    let scan = |n: usize| {
        let mut scan = operation.clone();
        scan["table"] = table.into();
        scan["where"] = json!([["owner", "==", format!("nobody {n}")]]);
        scan
    };
    let params: Value = std::iter::once(json!(DB)).chain((0..count).map(scan)).collect();
    request("transact", &params)
}

fn updates(scene: &Scene<'_>) -> Vec<u8> {
    let update = json!({"op": "update", "row": {"value": "found"}});
    scans(scene.table, &update, scene.count(SCANS))
}

fn reads(scene: &Scene<'_>, count: usize) -> Vec<u8> {
    scans(scene.table, &json!({"op": "select", "columns": ["name"]}), scene.count(count))
}

/// A transaction that takes seconds, alone and beside others.
pub(super) fn transaction(scene: &mut Scene<'_>) -> Result<(), Error> {
    scene.fill(scene.count(ROWS))?;
    let mut crowd = Crowd::of(1, scene.target)?;
    let long = updates(scene);
    let once = |crowd: &mut Crowd| -> Result<f64, Error> {
        let time = crowd.ask(0, &long, PATIENCE)?.unwrap_or(PATIENCE);
        if crowd.told().refused > 0 || !crowd.is_open(0) {
            fail!("a long transaction was refused");
        }
        Ok(time.as_secs_f64())
    };
    let alone = once(&mut crowd)?;
    scene.push("alone s", 2, alone);
    scene.beside(THREE, &mut |scene| {
        let beside = once(&mut crowd)?;
        scene.push("beside others s", 2, beside);
        scene.push("beside others / alone", 2, beside / alone);
        Ok(())
    })
}

/// Several clients read all the time; another one reads less.
pub(super) fn readers(scene: &mut Scene<'_>) -> Result<(), Error> {
    scene.fill(scene.count(ROWS))?;
    let (long, read) = (reads(scene, LONG_READ), reads(scene, READ));
    let mut crowd = Crowd::of(READERS + 1, scene.target)?;
    scene.beside(THREE, &mut |scene| {
        let mut latencies = Latencies::default();
        let mut asked = [0; READERS + 1];
        let (start, mut sent) = (Instant::now(), Instant::now());
        let long_reads = |crowd: &Crowd| (0..READERS).map(|n| crowd.answers(n)).sum::<u64>();
        // A first one is waited for longer: a short line has to tell slow reads from none.
        while start.elapsed() < scene.size.limit
            || (long_reads(&crowd) == 0 && start.elapsed() < PATIENCE)
        {
            for (n, asked) in asked.iter_mut().enumerate() {
                if crowd.answers(n) < *asked || !crowd.is_open(n) {
                    continue;
                }
                if n == READERS {
                    if let Some(at) = crowd.answered_at(n) {
                        latencies.push(at.duration_since(sent));
                    }
                    sent = Instant::now();
                }
                *asked += 1;
                crowd.send(n, if n == READERS { &read } else { &long })?;
            }
            crowd.turn(Duration::from_millis(5))?;
        }
        // The one that is under way.
        latencies.push(sent.elapsed());
        scene.push("a lesser read p50 ms", 1, latencies.percentile(50.0) / 1e3);
        scene.push("a lesser read longest ms", 1, latencies.percentile(100.0) / 1e3);
        scene.push("long reads", 0, long_reads(&crowd) as f64);
        Ok(())
    })
}

/// Transactions change all elements of a set of very many.
pub(super) fn big_set(scene: &mut Scene<'_>) -> Result<(), Error> {
    let mut crowd = Crowd::of(1, scene.target)?;
    let table = scene.table;
    let elements: Value = (0..scene.count(ELEMENTS)).collect();
    let row = json!({"name": "big", "numbers": ["set", elements]});
    let mut ask = |operation: Value| -> Result<Duration, Error> {
        let bytes = request("transact", &json!([DB, operation]));
        let time = crowd.ask(0, &bytes, PATIENCE)?.unwrap_or(PATIENCE);
        if crowd.told().refused > 0 {
            fail!("a transaction was refused");
        }
        Ok(time)
    };
    ask(json!({"op": "insert", "table": table, "row": row}))?;
    scene.beside(TWO, &mut |scene| {
        let mut longest = Duration::ZERO;
        for (mutator, by) in [("*=", 3), ("+=", 1), ("*=", 2)] {
            let mutation = json!(["numbers", mutator, by]);
            let mutate = json!({"op": "mutate", "table": table, "where": [["name", "==", "big"]],
                "mutations": [mutation]});
            longest = longest.max(ask(mutate)?);
        }
        longest = longest.max(ask(json!({"op": "delete", "table": table, "where": []}))?);
        scene.push("a change longest ms", 1, longest.as_secs_f64() * 1e3);
        Ok(())
    })
}

/// Clients ask for what takes seconds, and leave.
pub(super) fn gone(scene: &mut Scene<'_>) -> Result<(), Error> {
    scene.fill(scene.count(ROWS))?;
    let long = updates(scene);
    scene.beside(THREE, &mut |scene| {
        let mut crowd = Crowd::new()?;
        for _ in 0..LEAVING {
            let token = crowd.join(scene.target)?;
            crowd.send(token, &long)?;
            crowd.until(APART, &mut |crowd| Ok(crowd.has_sent(token)))?;
            crowd.pass(APART)?;
            crowd.leave(token);
        }
        let left = Instant::now();
        let Some(running) = scene.alone else { return Ok(()) };
        while left.elapsed() < PATIENCE {
            let before = running.cpu_nanos()?;
            std::thread::sleep(REST);
            let spent =
                running.cpu_nanos()?.zip(before).map_or(0, |(after, before)| after - before);
            // The victims' requests are work, too.
            if u128::from(spent) < REST.as_nanos() / 3 {
                break;
            }
        }
        scene.push("busy after they have left s", 2, left.elapsed().as_secs_f64());
        Ok(())
    })
}
