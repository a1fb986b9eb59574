//! Thousands of operations `wait` that nobody fulfils: they expire one after the other, or wait
//! while somebody commits to another table.

use std::time::{Duration, Instant};

use serde_json::json;

use super::DB;
use super::scene::{PATIENCE, Scene, TWO, Victim, name, request};
use crate::Error;
use crate::crowd::Crowd;

const ROWS: usize = 10;
const EXPIRING: usize = 10_000;
const ELSEWHERE: usize = 20_000;
/// Waits of one connection.
const EACH: usize = 100;
/// How long the server may take to read one of the waits, before the first expires.
const LEAD_EACH: Duration = Duration::from_micros(1_500);

/// A wait for what does not come.
pub(super) fn wait(table: &str, n: usize, timeout: Duration) -> Vec<u8> {
    let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let wait = json!({"op": "wait", "table": table, "timeout": timeout, "until": "==",
        "where": [["name", "==", name(n % ROWS)]], "columns": ["value"],
        "rows": [{"value": format!("what wait {n} is for")}]});
    request("transact", &json!([DB, wait]))
}

/// Connections with waits, the timeouts of which are given by their numbers; all of them are with
/// the server.
fn begin(
    scene: &Scene<'_>,
    waits: usize,
    timeout: &dyn Fn(usize) -> Duration,
) -> Result<Crowd, Error> {
    let mut crowd = Crowd::new()?;
    for first in (0..waits).step_by(EACH) {
        let token = crowd.join(scene.target)?;
        for n in first..waits.min(first + EACH) {
            crowd.send(token, &wait(scene.table, n, timeout(n)))?;
        }
        // An answer to `echo` says that what came before it was read.
        crowd.ask(token, &request("echo", &json!([])), PATIENCE)?;
    }
    Ok(crowd)
}

/// Waits expire a millisecond apart.
pub(super) fn expire(scene: &mut Scene<'_>) -> Result<(), Error> {
    let waits = scene.count(EXPIRING);
    scene.fill(ROWS)?;
    let first = Instant::now() + LEAD_EACH * waits as u32 + Duration::from_millis(100);
    let due = |n: usize| first + Duration::from_millis(n as u64);
    let mut crowd = begin(scene, waits, &|n| due(n).saturating_duration_since(Instant::now()))?;
    crowd.pass(first.saturating_duration_since(Instant::now()))?;
    // Nobody commits: a commit would wake waits besides.
    scene.beside(&[Victim::Echo], &mut |scene| {
        let before = crowd.told().answers;
        crowd.pass(due(waits).saturating_duration_since(Instant::now()))?;
        scene.push("expired", 0, (crowd.told().answers - before) as f64);
        let connections = waits.div_ceil(EACH);
        let all = (waits + connections) as u64;
        crowd.until(PATIENCE, &mut |crowd| Ok(crowd.told().answers >= all))?;
        scene.push("s late", 2, due(waits).elapsed().as_secs_f64());
        Ok(())
    })
}

/// Many waits for one table, and commits to another.
pub(super) fn elsewhere(scene: &mut Scene<'_>) -> Result<(), Error> {
    let waits = scene.count(ELSEWHERE);
    scene.fill(ROWS)?;
    let mut crowd = begin(scene, waits, &|_| 10 * PATIENCE)?;
    scene.beside(TWO, &mut |scene| crowd.pass(scene.size.limit))
}
