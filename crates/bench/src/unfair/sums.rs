//! Many sessions, each of which asks for little that stays: waits, locks, monitors. What counts is
//! the memory that all of it takes together, and whether somebody is refused in the end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DB;
use super::scene::{PATIENCE, Scene, TWO, name, request};
use crate::Error;
use crate::crowd::Crowd;

const SESSIONS: usize = 50;
/// A text of one request: below what counts as a big message.
const TEXT_BYTES: usize = 50_000;
/// How long memory may take to go back once everybody has left.
const LEFT: Duration = Duration::from_secs(2);
const ROWS: usize = 10;

/// A wait for a long value.
pub(super) fn waits(scene: &mut Scene<'_>) -> Result<(), Error> {
    hold(scene, false, &|table, n| {
        let wait = json!({"op": "wait", "table": table, "timeout": 3_600_000, "until": "==",
            "where": [["name", "==", name(n % ROWS)]], "columns": ["value"],
            "rows": [{"value": format!("{n:0TEXT_BYTES$}")}]});
        request("transact", &json!([DB, wait]))
    })
}

/// A lock with a long name.
pub(super) fn locks(scene: &mut Scene<'_>) -> Result<(), Error> {
    hold(scene, true, &|_, n| request("lock", &json!([format!("l{n:0TEXT_BYTES$}")])))
}

/// A monitor with conditions of long texts.
pub(super) fn monitors(scene: &mut Scene<'_>) -> Result<(), Error> {
    const CLAUSES: usize = 500;
    hold(scene, true, &|table, n| {
        let text = |k| format!("{:0width$}", n * CLAUSES + k, width = TEXT_BYTES / CLAUSES - 20);
        let clauses: Value = (0..CLAUSES).map(|k| json!(["value", "==", text(k)])).collect();
        let monitored = json!({table: [{"columns": ["name"], "where": clauses}]});
        request("monitor_cond", &json!([DB, format!("m{n}"), monitored]))
    })
}

/// All sessions ask in turn until the volume is reached or everybody was cut off. What is granted
/// is answered at once, or only in the end.
fn hold(
    scene: &mut Scene<'_>,
    is_answered: bool,
    ask: &dyn Fn(&str, usize) -> Vec<u8>,
) -> Result<(), Error> {
    scene.fill(ROWS)?;
    let before = scene.rss()?;
    scene.beside(TWO, &mut |scene| {
        let mut crowd = Crowd::of(scene.count(SESSIONS), scene.target)?;
        let sent = flood(scene, &mut crowd, is_answered, ask)?;
        let told = crowd.told();
        scene.push("sent MB", 1, sent as f64 / 1e6);
        scene.push("refused", 0, told.refused as f64);
        scene.push("sessions cut off", 0, told.closed as f64);
        if let Some((before, now)) = before.zip(scene.rss()?) {
            let grown = (now - before).max(0.0);
            scene.push("RSS grown MB", 1, grown / 1e6);
            scene.push("RSS grown / sent", 2, grown / sent as f64);
        }
        Ok(())
    })?;
    if scene.alone.is_some() {
        std::thread::sleep(LEFT);
    }
    if let Some((before, now)) = before.zip(scene.rss()?) {
        scene.push("RSS left behind MB", 1, (now - before).max(0.0) / 1e6);
    }
    Ok(())
}

/// Sends until the server has read all that it takes; returns the bytes.
fn flood(
    scene: &Scene<'_>,
    crowd: &mut Crowd,
    is_answered: bool,
    ask: &dyn Fn(&str, usize) -> Vec<u8>,
) -> Result<usize, Error> {
    let mut asked = vec![0_u64; scene.count(SESSIONS)];
    let (mut n, mut sent) = (0, 0);
    let start = Instant::now();
    while sent < scene.size.bytes
        && start.elapsed() < PATIENCE
        && crowd.told().closed < asked.len() as u64
    {
        for (token, asked) in asked.iter_mut().enumerate() {
            if crowd.is_open(token) && crowd.has_sent(token) {
                let request = ask(scene.table, n);
                sent += request.len();
                crowd.send(token, &request)?;
                *asked += u64::from(is_answered);
                n += 1;
            }
        }
        crowd.turn(Duration::from_micros(200))?;
    }
    // An answer to `echo` says that what came before it was read.
    for token in 0..asked.len() {
        crowd.send(token, &request("echo", &json!([])))?;
    }
    let has_read = |crowd: &Crowd, token, asked| {
        !crowd.is_open(token) || (crowd.answers(token) > asked && crowd.has_sent(token))
    };
    crowd.until(PATIENCE, &mut |crowd| {
        Ok(asked.iter().enumerate().all(|(token, asked)| has_read(crowd, token, *asked)))
    })?;
    Ok(sent)
}
