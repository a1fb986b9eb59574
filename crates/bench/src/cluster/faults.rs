//! Members that go while clients write at a steady pace: the leader is killed, a follower is
//! killed, one that was away returns by a snapshot, all are compacted, all are restarted one by
//! one.

use std::time::Duration;

use serde_json::{Value, json};

use super::members::Cluster;
use super::paced::Paced;
use super::{Scene, held};
use crate::Error;
use crate::client::Client;
use crate::ports::DB;
use crate::procfs;
use crate::report::Figures;
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
    /// The term when it began, and CPU time in nanoseconds of members and driver until then.
    term: f64,
    cpu: [u64; 2],
}

impl<'a> Stage<'a> {
    fn set(scene: &Scene<'a>, megabytes: usize) -> Result<Self, Error> {
        let cluster = Cluster::start(scene.bench, scene.peer, scene.schema, scene.members)?;
        let leader = cluster.settle()?;
        let mut control = Client::connect(&cluster.members[leader].target)?;
        fill(&mut control, "before", megabytes)?;
        cluster.settle()?;
        let paced = Paced::start(cluster.targets());
        paced.await_all(0.0, PATIENCE).map_err(|e| cluster.explain_all(&e))?;
        std::thread::sleep(QUIET);
        paced.begin();
        let (term, cpu) = (cluster.term()?, cpu(&cluster)?);
        // What is usual is drawn too.
        std::thread::sleep(QUIET);
        Ok(Self { cluster, paced, term, cpu })
    }

    /// Waits until all members are there again, and each client has been answered.
    fn recover(&self) -> Result<(), Error> {
        self.cluster.settle()?;
        let all = self.paced.await_all(self.paced.now(), PATIENCE);
        all.map_err(|e| self.cluster.explain_all(&e))
    }

    /// What the clients waited for, what the members have of it, and what it took them.
    fn end(self, scene: &mut Scene<'_>, section: &str) -> Result<(), Error> {
        let Self { cluster, paced, term, cpu: before } = self;
        std::thread::sleep(QUIET);
        let (stall, after) = (paced.stall(), cpu(&cluster)?);
        let done = paced.stop(&format!("{section}, writes over time"))?;
        scene.bench.progress.note(&format!("  {section}: longest stall {stall:.0} ms"));
        let figures = &mut scene.figures;
        let writes = done.latencies.count() as f64;
        let mut push = |name, digits, value| figures.push(section, name, digits, value);
        push("longest stall of a writer ms", 0, stall);
        push("writes a second", 0, writes / done.seconds);
        push("p50 ms", 2, done.latencies.percentile(50.0) / 1e3);
        push("p99 ms", 2, done.latencies.percentile(99.0) / 1e3);
        push("writes answered with an error", 0, done.refused.len() as f64);
        push("connections that ended", 0, done.lost as f64);
        push("writes without an answer", 0, done.unanswered as f64);
        for (name, n) in [("server CPU us/tx", 0), ("driver CPU us/tx", 1)] {
            push(name, 1, after[n].saturating_sub(before[n]) as f64 / 1e3 / writes.max(1.0));
        }
        cluster.fared(term, section, figures)?;
        let kept = held::compare(&cluster, &done, PATIENCE)?;
        figures.push(section, held::MISSING, 0, kept.missing as f64);
        figures.push(section, held::REFUSED, 0, kept.refused as f64);
        figures.draw(done.curve);
        for (n, member) in cluster.members.iter().enumerate() {
            let mut own = Figures::default();
            member.finish(&format!("member {}", n + 1), &mut own)?;
            figures.append(own.within(section));
        }
        Ok(())
    }
}

/// CPU time so far in nanoseconds, of all members and of the driver.
fn cpu(cluster: &Cluster<'_>) -> Result<[u64; 2], Error> {
    Ok([cluster.cpu_nanos()?, procfs::cpu_nanos(std::process::id())?])
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
    let filling = stage.paced.stall();
    let begun = stage.paced.now();
    stage.cluster.start_again(away)?;
    stage.cluster.settle()?;
    let mut push = |name, digits, value| scene.figures.push(SECTION, name, digits, value);
    push("MB that it missed", 0, megabytes as f64);
    push("longest stall of a writer before ms", 0, filling);
    push("has everything after s", 2, stage.paced.now() - begun);
    push("the member that returned", 0, (away + 1) as f64);
    push("the member that led", 0, (leader + 1) as f64);
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
