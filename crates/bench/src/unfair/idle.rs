//! What costs though nobody asks for anything: sessions that break while they are written to,
//! connections that wait where no more files may be opened, memory that was freed.

use std::time::{Duration, Instant};

use serde_json::json;

use super::DB;
use super::clauses::monitor;
use super::scene::{PATIENCE, Scene, TWO, insert, request};
use crate::Error;
use crate::client::Client;
use crate::crowd::Crowd;
use crate::procfs;

const BROKEN_ROWS: usize = 2_000;
/// Sessions that break at a time.
const BROKEN: usize = 10;

/// Files that the server may open beyond those that it has.
const ROOM: u64 = 20;
/// Connections that find no room, to the database and to the administrators' socket.
const WITHOUT_ROOM: usize = 30;
const ADMINISTRATORS: usize = 5;

/// What is inserted and deleted.
const BYTES: usize = 150_000_000;
const VALUE_BYTES: usize = 10_000;
const VALUES_A_COMMIT: usize = 100;
/// How long nobody speaks, of 5 s that a line goes on.
const IDLE: u32 = 2;

/// Sessions end while they are written to.
pub(super) fn broken(scene: &mut Scene<'_>) -> Result<(), Error> {
    let rows = scene.count(BROKEN_ROWS);
    scene.fill(rows)?;
    let lines = scene.alone.and_then(|running| running.log_lines());
    let mut ended = 0_usize;
    scene.beside(TWO, &mut |scene| {
        let start = Instant::now();
        while start.elapsed() < scene.size.limit {
            let mut crowd = Crowd::of(BROKEN, scene.target)?;
            for token in 0..BROKEN {
                crowd.send(token, &monitor(scene.table, "m", &json!([true])))?;
            }
            crowd.wait_for(1, PATIENCE)?;
            let writer = crowd.join(scene.target)?;
            for token in 0..BROKEN {
                crowd.set_reading(token, false)?;
            }
            for n in 0..2 {
                let value = format!("{ended} sessions have ended {n} {}", "x".repeat(100));
                let update = json!({"op": "update", "table": scene.table, "where": [],
                    "row": {"value": value}});
                crowd.ask(writer, &request("transact", &json!([DB, update])), PATIENCE)?;
            }
            for token in 0..BROKEN {
                crowd.leave(token);
            }
            ended += BROKEN;
        }
        Ok(())
    })?;
    scene.push("sessions ended", 0, ended as f64);
    if let Some((before, after)) = lines.zip(scene.alone.and_then(|running| running.log_lines())) {
        scene.push("lines logged", 0, (after - before) as f64);
    }
    Ok(())
}

/// Connections wait where the server may open no more files.
pub(super) fn files(scene: &mut Scene<'_>) -> Result<(), Error> {
    let Some(running) = scene.alone.filter(|running| !running.is_found()) else { return Ok(()) };
    let Some(pid) = running.pid else { return Ok(()) };
    scene.beside(TWO, &mut |scene| {
        let most = procfs::files(pid)? + ROOM;
        let before = procfs::limit_files(pid, most)?;
        let waited = wait_for_room(scene, most);
        procfs::limit_files(pid, before)?;
        waited
    })
}

fn wait_for_room(scene: &mut Scene<'_>, most: u64) -> Result<(), Error> {
    let echo = request("echo", &json!([]));
    let clients = ROOM as usize + WITHOUT_ROOM;
    let mut crowd = Crowd::of(clients, scene.target)?;
    if let Some(control) = scene.alone.and_then(|running| running.control()) {
        for _ in 0..ADMINISTRATORS {
            crowd.join(&control)?;
        }
    }
    for token in 0..clients {
        crowd.send(token, &echo)?;
    }
    crowd.pass(scene.size.limit)?;
    scene.push("files allowed", 0, most as f64);
    scene.push("clients answered meanwhile", 0, crowd.told().answers as f64);
    for token in 0..clients {
        if crowd.answers(token) > 0 {
            crowd.leave(token);
        }
    }
    let left = Instant::now();
    let waiting = (0..clients).filter(|&token| crowd.is_open(token));
    let waiting: Vec<_> = waiting.take(ROOM as usize / 2).collect();
    crowd.until(PATIENCE, &mut |crowd| {
        Ok(waiting.iter().all(|&token| crowd.answers(token) > 0 || !crowd.is_open(token)))
    })?;
    scene.push("until others have their place ms", 1, left.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Much is inserted and deleted, then nobody speaks.
pub(super) fn memory(scene: &mut Scene<'_>) -> Result<(), Error> {
    let rows = scene.count(BYTES / VALUE_BYTES);
    let mut client = Client::connect(scene.target)?;
    for begin in (0..rows).step_by(VALUES_A_COMMIT) {
        let mut transaction = insert(scene.table, begin..rows.min(begin + VALUES_A_COMMIT));
        for operation in transaction.as_array_mut().into_iter().flatten().skip(1) {
            operation["row"]["value"] = format!("{begin:0VALUE_BYTES$}").into();
        }
        client.transact(&transaction)?;
    }
    if let Some(full) = scene.rss()? {
        scene.push("RSS with all rows MB", 1, full / 1e6);
    }
    client.transact(&json!([DB, {"op": "delete", "table": scene.table, "where": []}]))?;
    if let Some(deleted) = scene.rss()? {
        scene.push("RSS after their deletion MB", 1, deleted / 1e6);
    }
    let Some(running) = scene.alone else { return Ok(()) };
    let cpu = running.cpu_nanos()?;
    let idle = scene.size.limit * IDLE;
    std::thread::sleep(idle);
    let Some(after) = scene.rss()? else { return Ok(()) };
    scene.push("RSS after a while without a word MB", 1, after / 1e6);
    if let Some((before, now)) = cpu.zip(running.cpu_nanos()?) {
        let busy = (now - before) as f64 / 1e9 / idle.as_secs_f64();
        scene.push("server CPU % meanwhile", 1, 100.0 * busy);
    }
    let Some((fresh, file)) = scene.fresh.zip(running.file()) else { return Ok(()) };
    let fresh = fresh(file)?;
    // As long as the other one.
    std::thread::sleep(idle.max(Duration::from_millis(100)));
    if let Some(memory) = fresh.memory()? {
        scene.push("RSS of a fresh start on the same file MB", 1, memory.rss as f64 / 1e6);
        scene.push("after a while / fresh start", 2, after / memory.rss as f64);
    }
    Ok(())
}
