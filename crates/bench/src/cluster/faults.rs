//! Members that go while clients write at a steady pace: the leader is killed, a follower is killed,
//! one that was away returns by a snapshot, all are compacted, all are restarted one by one.

use std::time::Duration;

use serde_json::{Value, json};

use super::Scene;
use super::members::Cluster;
use super::paced::{self, Paced};
use crate::Error;
use crate::client::Client;
use crate::ports::DB;
use crate::running::End;
use crate::stats::median;

/// The election timer of new clusters, in milliseconds.
const ELECTION_MS: f64 = 1_000.0;
/// How often the leader is killed, and a follower.
const LEADERS: usize = 20;
const FOLLOWERS: usize = 5;
/// How long nothing happens before and after each event.
const QUIET: Duration = Duration::from_secs(1);
/// How long clients may wait for a write.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a value, and rows of it in a transaction.
const VALUE: usize = 100_000;
const ROWS_AT_A_TIME: usize = 10;
/// Megabytes of a database that is copied or compacted.
const MEGABYTES: usize = 50;

/// A cluster with clients at work.
struct Stage<'a> {
    cluster: Cluster<'a>,
    paced: Paced,
}

impl<'a> Stage<'a> {
    fn set(scene: &Scene<'a>, megabytes: usize) -> Result<Self, Error> {
        let cluster = Cluster::start(scene.bench, scene.peer, scene.schema, scene.members)?;
        let leader = cluster.settle()?;
        let mut control = Client::connect(&cluster.members[leader].target)?;
        let insert =
            |name: String| json!({"op": "insert", "table": "Address_Set", "row": {"name": name}});
        control.transact(&transaction(paced::rows(scene.members).map(insert)))?;
        fill(&mut control, "before", megabytes)?;
        cluster.settle()?;
        let paced = Paced::start(cluster.targets());
        paced.await_all(0.0, PATIENCE)?;
        std::thread::sleep(QUIET);
        // What it took to connect is nobody's wait.
        paced.waited();
        Ok(Self { cluster, paced })
    }

    /// Waits until all members are there again, and each client has been answered.
    fn recover(&self) -> Result<(), Error> {
        self.cluster.settle()?;
        let all = self.paced.await_all(self.paced.now(), PATIENCE);
        all.map_err(|e| self.cluster.explain_all(&e))
    }

    /// What the clients waited for, and the plot.
    fn end(self, scene: &mut Scene<'_>, section: &str) -> Result<(), Error> {
        std::thread::sleep(QUIET);
        let waited = self.paced.waited();
        let figures = &mut scene.figures;
        figures.push(section, "longest stall of a writer ms", 0, waited.stall);
        figures.push(section, "writes answered with an error", 0, waited.refused as f64);
        figures.push(section, "connections that ended", 0, waited.lost as f64);
        figures.push(section, "writes without an answer", 0, waited.unanswered as f64);
        figures.draw(self.paced.stop(&format!("{section}, writes over time"))?);
        scene.bench.progress.note(&format!("  {section}: longest stall {:.0} ms", waited.stall));
        Ok(())
    }
}

/// The leader is killed and started again, many times.
pub(super) fn leader_killed(scene: &mut Scene<'_>) -> Result<(), Error> {
    const SECTION: &str = "leader killed";
    let mut stage = Stage::set(scene, 0)?;
    let mut waits = Vec::new();
    for _ in 0..scene.count(LEADERS) {
        let leader = stage.cluster.settle()?;
        let moment = stage.paced.now();
        stage.cluster.stop(leader, End::Killed);
        let written = stage.paced.await_after(moment, PATIENCE);
        waits.push(written.map_err(|e| stage.cluster.explain_all(&e))? / ELECTION_MS);
        stage.cluster.start_again(leader)?;
        stage.recover()?;
    }
    let worst = waits.iter().copied().fold(0.0, f64::max);
    let mut push = |name, value| scene.figures.push(SECTION, name, 2, value);
    push("writes again, election timers, median", median(&waits).unwrap_or(0.0));
    push("writes again, election timers, worst", worst);
    stage.end(scene, SECTION)
}

/// A follower is killed and started again, some times.
pub(super) fn follower_killed(scene: &mut Scene<'_>) -> Result<(), Error> {
    let mut stage = Stage::set(scene, 0)?;
    for round in 0..scene.count(FOLLOWERS) {
        // In turn: the clients of one that was killed are elsewhere.
        let next = 1 + round % (scene.members - 1);
        let follower = (stage.cluster.settle()? + next) % scene.members;
        stage.cluster.stop(follower, End::Killed);
        std::thread::sleep(QUIET);
        stage.cluster.start_again(follower)?;
        stage.recover()?;
    }
    stage.end(scene, "follower killed")
}

/// A follower is away while the database grows and the others drop their logs.
pub(super) fn returns(scene: &mut Scene<'_>) -> Result<(), Error> {
    const SECTION: &str = "member returns by a snapshot";
    let megabytes = scene.count(MEGABYTES);
    let mut stage = Stage::set(scene, 0)?;
    let leader = stage.cluster.settle()?;
    let away = (leader + 1) % scene.members;
    stage.cluster.stop(away, End::Clean);
    let mut control = Client::connect(&stage.cluster.members[leader].target)?;
    fill(&mut control, "away", megabytes)?;
    let others: Vec<_> = (0..scene.members).filter(|&member| member != away).collect();
    for &member in &others {
        compact(&stage.cluster, member)?;
    }
    stage.cluster.settle_among(&others)?;
    stage.paced.await_all(stage.paced.now(), PATIENCE)?;
    let filling = stage.paced.waited();
    let begun = stage.paced.now();
    stage.cluster.start_again(away)?;
    stage.cluster.settle()?;
    let mut push = |name, digits, value| scene.figures.push(SECTION, name, digits, value);
    push("MB that it missed", 0, megabytes as f64);
    push("longest stall of a writer before ms", 0, filling.stall);
    push("has everything after s", 2, stage.paced.now() - begun);
    for (n, member) in stage.cluster.members.iter().enumerate() {
        let role = if n == away {
            "that returned"
        } else if n == leader {
            "that led"
        } else {
            ""
        };
        if let (Some(memory), false) = (member.memory()?, role.is_empty()) {
            let name = format!("peak RSS of the member {role} MB");
            scene.figures.push(SECTION, &name, 1, memory.peak as f64 / 1e6);
        }
    }
    stage.end(scene, SECTION)
}

/// Every member is compacted.
pub(super) fn compaction(scene: &mut Scene<'_>) -> Result<(), Error> {
    const SECTION: &str = "compaction of each member";
    let megabytes = scene.count(MEGABYTES);
    let stage = Stage::set(scene, megabytes)?;
    for member in 0..scene.members {
        let begun = stage.paced.now();
        compact(&stage.cluster, member)?;
        let name = format!("member {}, s", member + 1);
        scene.figures.push(SECTION, &name, 2, stage.paced.now() - begun);
        std::thread::sleep(QUIET);
        stage.recover()?;
    }
    scene.figures.push(SECTION, "MB", 0, megabytes as f64);
    stage.end(scene, SECTION)
}

/// Every member is stopped and started again, one after the other.
pub(super) fn rolling(scene: &mut Scene<'_>) -> Result<(), Error> {
    const SECTION: &str = "rolling restart";
    let mut stage = Stage::set(scene, 0)?;
    let begun = stage.paced.now();
    for member in 0..scene.members {
        stage.cluster.stop(member, End::Asked);
        stage.cluster.start_again(member)?;
        stage.recover()?;
        std::thread::sleep(QUIET);
    }
    scene.figures.push(SECTION, "s", 1, stage.paced.now() - begun);
    stage.end(scene, SECTION)
}

fn transaction(operations: impl Iterator<Item = Value>) -> Value {
    std::iter::once(json!(DB)).chain(operations).collect()
}

/// Makes rows of so many megabytes.
fn fill(control: &mut Client, name: &str, megabytes: usize) -> Result<(), Error> {
    let rows = megabytes * 1_000_000 / VALUE;
    for begin in (0..rows).step_by(ROWS_AT_A_TIME) {
        let insert = |n: usize| {
            let value = format!("{name}-{n:06}").repeat(VALUE / 10);
            let ids = json!(["map", [["value", value.get(..VALUE)]]]);
            json!({"op": "insert", "table": "Address_Set",
                "row": {"name": format!("{name}-{n}"), "external_ids": ids}})
        };
        let end = rows.min(begin + ROWS_AT_A_TIME);
        control.transact(&transaction((begin..end).map(insert)))?;
    }
    Ok(())
}

/// Has a member replace its log by a snapshot.
fn compact(cluster: &Cluster<'_>, member: usize) -> Result<(), Error> {
    let Some(control) = cluster.members[member].control() else { return Ok(()) };
    let compacted = Client::connect(&control)
        .and_then(|mut client| client.call("ovsdb-server/compact", &json!([DB])));
    compacted.map(drop).map_err(|e| cluster.explain(member, &e))
}
