//! Conditions of thousands of clauses: begun and changed, and swapped clause by clause by several
//! clients, as `ovn-controller` has them.

use std::time::Instant;

use serde_json::{Value, json};

use super::DB;
use super::scene::{PATIENCE, Scene, TWO, name, owner, request};
use crate::Error;
use crate::crowd::Crowd;
use crate::error::fail;
use crate::stats::{Latencies, median};

const CLAUSES: usize = 10_000;
/// Times that each condition is begun and changed, where that is fast.
const ROUNDS: usize = 5;
const SWAP_ROWS: usize = 30_000;
const SWAP_CLIENTS: usize = 20;
const SWAP_CLAUSES: usize = 2_500;

/// A column that conditions are on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    /// A unique column, which has an index.
    Name,
    /// A column in no index.
    Owner,
}

/// A clause for each of the rows.
pub(super) fn equal(column: Column, rows: impl Iterator<Item = usize>) -> Value {
    let clause = |row| match column {
        Column::Name => json!(["name", "==", name(row)]),
        Column::Owner => json!(["owner", "==", owner(row)]),
    };
    rows.map(clause).collect()
}

/// Begins a monitor of a table, with conditions.
pub(super) fn monitor(table: &str, id: &str, clauses: &Value) -> Vec<u8> {
    let columns = json!(["name", "value"]);
    let requests = json!({table: [{"columns": columns, "where": clauses}]});
    request("monitor_cond", &json!([DB, id, requests]))
}

pub(super) fn change(table: &str, id: &str, clauses: &Value) -> Vec<u8> {
    let requests = json!({table: [{"where": clauses}]});
    request("monitor_cond_change", &json!([id, id, requests]))
}

/// One client begins a condition of many clauses, and swaps one of them.
pub(super) fn one_client(scene: &mut Scene<'_>) -> Result<(), Error> {
    let rows = scene.count(CLAUSES);
    scene.fill(rows)?;
    scene.beside(TWO, &mut |scene| {
        for (column, suffix) in [(Column::Owner, ""), (Column::Name, ", by index")] {
            let first = monitor(scene.table, "m", &equal(column, 0..rows));
            let second = change(scene.table, "m", &equal(column, 1..rows + 1));
            let (mut begun, mut changed) = (Vec::new(), Vec::new());
            let start = Instant::now();
            while begun.len() < ROUNDS && (begun.is_empty() || start.elapsed() < scene.size.limit) {
                let mut crowd = Crowd::of(1, scene.target)?;
                begun.push(answer(&mut crowd, &first)?);
                changed.push(answer(&mut crowd, &second)?);
            }
            let mut push = |name: &str, values: &[f64]| {
                scene.push(&format!("{name}{suffix} ms"), 1, median(values).unwrap_or_default());
            };
            push("monitor_cond", &begun);
            push("monitor_cond_change", &changed);
        }
        Ok(())
    })
}

/// Milliseconds until the answer.
fn answer(crowd: &mut Crowd, request: &[u8]) -> Result<f64, Error> {
    let refused = crowd.told().refused;
    let time = crowd.ask(0, request, PATIENCE)?.unwrap_or(PATIENCE);
    if crowd.told().refused > refused || !crowd.is_open(0) {
        fail!("a condition of many clauses was refused");
    }
    Ok(time.as_secs_f64() * 1e3)
}

/// Several clients swap one clause each, all at the same time.
pub(super) fn swap(scene: &mut Scene<'_>) -> Result<(), Error> {
    let (rows, clauses) = (scene.count(SWAP_ROWS), scene.count(SWAP_CLAUSES));
    let clients = scene.count(SWAP_CLIENTS);
    scene.fill(rows)?;
    let mut crowd = Crowd::of(clients, scene.target)?;
    // Client `n` has a window of the rows of its own, which moves by one row a round.
    let window = move |n: usize, round: usize| {
        let begin = n * (rows / clients) + round;
        equal(Column::Owner, (begin..begin + clauses).map(|row| row % rows))
    };
    for n in 0..clients {
        let begin = monitor(scene.table, "m", &window(n, 0));
        crowd.send(n, &begin)?;
    }
    crowd.wait_for(1, PATIENCE)?;
    scene.beside(TWO, &mut |scene| {
        let mut latencies = Latencies::default();
        let start = Instant::now();
        let mut round = 0;
        while round == 0 || start.elapsed() < scene.size.limit {
            round += 1;
            let requests: Vec<_> =
                (0..clients).map(|n| change(scene.table, "m", &window(n, round))).collect();
            let sent = Instant::now();
            for (n, request) in requests.iter().enumerate() {
                crowd.send(n, request)?;
            }
            crowd.wait_for(round as u64 + 1, PATIENCE)?;
            for n in 0..clients {
                let at = crowd.answered_at(n).filter(|at| *at > sent);
                latencies.push(at.map_or(PATIENCE, |at| at.duration_since(sent)));
            }
        }
        scene.push("answer p50 ms", 1, latencies.percentile(50.0) / 1e3);
        scene.push("answer longest ms", 1, latencies.percentile(100.0) / 1e3);
        Ok(())
    })
}
