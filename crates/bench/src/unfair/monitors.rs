//! What monitors of many clauses make of large commits: many of them at once, one that has fallen
//! behind, one with clauses that no index of equal values helps, a thousand on one connection.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DB;
use super::clauses::{Column, equal, monitor};
use super::scene::{PATIENCE, Scene, TWO, insert, name, request};
use crate::Error;
use crate::crowd::Crowd;
use crate::error::fail;

const ROWS: usize = 10_000;
const MONITORS: usize = 200;
const CLAUSES: usize = 2_000;
const CHANGED: usize = 1_000;
/// How long monitors are read after a commit.
const PAUSE: Duration = Duration::from_millis(500);

const BEHIND_CLAUSES: usize = 20_000;
/// Commits of every row that a client leaves unread.
const UNREAD: usize = 10;

const RANGES: usize = 30_000;

const ON_ONE_SESSION: usize = 1_000;

/// Monitors of all rows, and rows in a commit.
const WATCHERS: usize = 20;
const MANY_ROWS: usize = 300_000;
/// Values by which a monitor of a few rows asks for them.
const FEW: usize = 10;

const LONG_TEXTS: usize = 100;
const LONG_TEXT: usize = 1_000_000;

/// An update of the rows below a number.
fn update(table: &str, below: usize, value: &str) -> Vec<u8> {
    let row = json!({"value": format!("the value {value}, which is about as long as usual")});
    let update = json!({"op": "update", "table": table, "where": [["number", "<", below]],
        "row": row});
    request("transact", &json!([DB, update]))
}

/// Many monitors of many clauses, and commits of many rows: they come, change and go.
pub(super) fn audience(scene: &mut Scene<'_>) -> Result<(), Error> {
    let (rows, clauses) = (scene.count(ROWS), scene.count(CLAUSES));
    let monitors = scene.count(MONITORS);
    scene.fill(rows)?;
    let mut crowd = Crowd::of(monitors, scene.target)?;
    let all = rows + scene.count(CHANGED);
    for n in 0..monitors {
        // No two are equal, and each wants as many of the new rows as its share of all rows.
        let own = (0..clauses).map(|k| (n * 37 + k * (all / clauses)) % all);
        crowd.send(n, &monitor(scene.table, "m", &equal(Column::Owner, own)))?;
    }
    // Not what is measured here.
    if !crowd.wait_for(1, 5 * PATIENCE)? {
        fail!("the monitors did not get their first rows");
    }
    commit_beside(scene, &mut crowd, rows..all)
}

/// Many monitors on one connection, and commits of many rows.
pub(super) fn one_session(scene: &mut Scene<'_>) -> Result<(), Error> {
    let rows = scene.count(CHANGED);
    let monitors = scene.count(ON_ONE_SESSION);
    scene.fill(rows)?;
    let mut crowd = Crowd::of(1, scene.target)?;
    for n in 0..monitors {
        let own = equal(Column::Owner, (n..n + 10).map(|row| rows + row % rows));
        crowd.send(0, &monitor(scene.table, &format!("m{n}"), &own))?;
    }
    crowd.wait_for(monitors as u64, PATIENCE)?;
    commit_beside(scene, &mut crowd, rows..2 * rows)
}

/// Some monitors of everything, and commits of very many rows.
pub(super) fn many_rows(scene: &mut Scene<'_>) -> Result<(), Error> {
    let watchers = scene.count(WATCHERS);
    let mut crowd = Crowd::of(watchers, scene.target)?;
    watch_all(&mut crowd, watchers, scene.table)?;
    commit_beside(scene, &mut crowd, 0..scene.count(MANY_ROWS))
}

/// Monitors of a few of very many rows, each by values of its own, and commits of all these rows.
pub(super) fn few_of_many(scene: &mut Scene<'_>) -> Result<(), Error> {
    let (monitors, rows) = (scene.count(MONITORS), scene.count(MANY_ROWS));
    let mut crowd = Crowd::of(monitors, scene.target)?;
    for n in 0..monitors {
        let own = (0..FEW).map(|k| (n * FEW + k) % rows);
        crowd.send(n, &monitor(scene.table, "m", &equal(Column::Owner, own)))?;
    }
    if !crowd.wait_for(1, PATIENCE)? {
        fail!("the monitors did not get their first rows");
    }
    commit_beside(scene, &mut crowd, 0..rows)
}

/// The first clients of a crowd begin a monitor of a table at the same time.
fn watch_all(crowd: &mut Crowd, watchers: usize, table: &str) -> Result<(), Error> {
    for n in 0..watchers {
        crowd.send(n, &monitor(table, "m", &json!([])))?;
    }
    if !crowd.wait_for(1, PATIENCE)? {
        fail!("the monitors did not get their first rows");
    }
    Ok(())
}

/// Several clients begin with rows of long texts at the same time.
pub(super) fn long_texts(scene: &mut Scene<'_>) -> Result<(), Error> {
    let text = "x".repeat(LONG_TEXT);
    let watchers = scene.count(WATCHERS);
    let mut crowd = Crowd::of(watchers, scene.target)?;
    let writer = crowd.join(scene.target)?;
    for n in 0..scene.count(LONG_TEXTS) {
        let row = json!({"name": name(n), "value": text});
        let insert = json!([DB, {"op": "insert", "table": scene.table, "row": row}]);
        crowd.ask(writer, &request("transact", &insert), PATIENCE)?;
    }
    scene.beside(TWO, &mut |scene| {
        let start = Instant::now();
        watch_all(&mut crowd, watchers, scene.table)?;
        scene.push("all have begun after s", 2, start.elapsed().as_secs_f64());
        Ok(())
    })?;
    let delete = json!([DB, {"op": "delete", "table": scene.table, "where": []}]);
    crowd.ask(writer, &request("transact", &delete), PATIENCE).map(drop)
}

/// Inserts rows in one commit, changes them in the next and deletes them, with everybody reading.
fn commit_beside(
    scene: &mut Scene<'_>,
    crowd: &mut Crowd,
    rows: Range<usize>,
) -> Result<(), Error> {
    let writer = crowd.join(scene.target)?;
    let wanted = json!([["number", ">=", rows.start]]);
    let operation = |mut operation: Value| {
        (operation["table"], operation["where"]) = (scene.table.into(), wanted.clone());
        request("transact", &json!([DB, operation]))
    };
    let row = json!({"value": "another value, which is about as long as usual"});
    let commits = [
        request("transact", &insert(scene.table, rows)),
        operation(json!({"op": "update", "row": row})),
        operation(json!({"op": "delete"})),
    ];
    scene.beside(TWO, &mut |scene| {
        let before = crowd.told().bytes;
        let mut longest = Duration::ZERO;
        for commit in &commits {
            longest = longest.max(crowd.ask(writer, commit, PATIENCE)?.unwrap_or(PATIENCE));
            crowd.pass(PAUSE)?;
        }
        scene.push("the commit itself, longest ms", 1, longest.as_secs_f64() * 1e3);
        let delivered = crowd.told().bytes - before;
        scene.push("delivered MB", 1, delivered as f64 / 1e6);
        Ok(())
    })
}

/// One client of many clauses leaves large commits unread, then reads.
pub(super) fn behind(scene: &mut Scene<'_>) -> Result<(), Error> {
    let (rows, clauses) = (scene.count(ROWS), scene.count(BEHIND_CLAUSES));
    scene.fill(rows)?;
    let mut crowd = Crowd::of(1, scene.target)?;
    let begin = monitor(scene.table, "m", &equal(Column::Owner, 0..clauses));
    crowd.ask(0, &begin, PATIENCE)?;
    let writer = crowd.join(scene.target)?;
    scene.beside(TWO, &mut |scene| {
        crowd.set_reading(0, false)?;
        for n in 0..UNREAD {
            let commit = update(scene.table, rows, &format!("of commit {n}"));
            crowd.ask(writer, &commit, PATIENCE)?;
        }
        let before = crowd.told().bytes;
        crowd.set_reading(0, true)?;
        let caught_up = crowd.ask(0, &request("echo", &json!([])), PATIENCE)?;
        scene.push("caught up after ms", 1, caught_up.unwrap_or(PATIENCE).as_secs_f64() * 1e3);
        crowd.pass(PAUSE)?;
        scene.push("delivered MB", 1, (crowd.told().bytes - before) as f64 / 1e6);
        Ok(())
    })
}

/// One client with clauses none of which is an equation, and a commit of many rows.
pub(super) fn ranges(scene: &mut Scene<'_>) -> Result<(), Error> {
    let (rows, clauses) = (scene.count(ROWS), scene.count(RANGES));
    let mut crowd = Crowd::of(1, scene.target)?;
    // No row has such a number, so that every clause has to be looked at for every row.
    let below: Value = (0..clauses as i64).map(|n| json!(["number", "<", -n])).collect();
    crowd.ask(0, &monitor(scene.table, "m", &below), PATIENCE)?;
    let writer = crowd.join(scene.target)?;
    let insert = request("transact", &insert(scene.table, 0..rows));
    scene.beside(TWO, &mut |scene| {
        let start = Instant::now();
        crowd.ask(writer, &insert, PATIENCE)?;
        scene.push("the commit itself ms", 1, start.elapsed().as_secs_f64() * 1e3);
        // Whoever is told later has the loop for that later.
        crowd.pass(PAUSE)
    })?;
    crowd.leave(0);
    let delete = json!([DB, {"op": "delete", "table": scene.table, "where": []}]);
    crowd.ask(writer, &request("transact", &delete), PATIENCE)?;
    Ok(())
}
