//! A cluster, relays before it, clients at these, and a database that grows.

use std::fmt::Write as _;
use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use super::Scene;
use crate::Error;
use crate::client::{Client, Target};
use crate::cluster::members::Cluster;
use crate::drive::{Driver, Load};
use crate::error::fail;
use crate::large::DB;
use crate::pulse::Pulse;
use crate::replica::Replica;
use crate::report::Figures;
use crate::rng::Rng;
use crate::running::Running;
use crate::stats::Latencies;
use crate::tally::{Clients, Tally};
use crate::watch::{Marker, uuid_hash, uuid_in};

const MEMBERS: usize = 3;
/// Clients that write; as many as there are, if they are fewer.
const WRITERS: usize = 10;
/// Addresses in the match of a flow: one makes about 2 KB of text.
const ADDRESSES: usize = 110;
/// Relays of the line `crowd`, which has an eighth of the rows.
const CROWD_RELAYS: usize = 3;
const CROWD_SHARE: f64 = 1.0 / 8.0;
/// Fewer clients are that many times fewer.
const FEWER: usize = 10;

/// What was measured of a server, or of some together.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    cpu_nanos: u64,
    /// Bytes resident before and after all have compacted.
    before: u64,
    after: u64,
}

/// The database grows, with so many relays.
pub(super) fn growth(scene: &mut Scene<'_>, relays: usize) -> Result<(), Error> {
    let section = format!("{relays} relays");
    let (figures, ..) = grow(scene, relays, scene.clients, scene.megabytes)?;
    scene.figures.append(figures.within(&section));
    Ok(())
}

/// Whether members notice how many clients relays have.
pub(super) fn crowd(scene: &mut Scene<'_>) -> Result<(), Error> {
    let megabytes = scene.megabytes * CROWD_SHARE;
    let few = (scene.clients / FEWER).max(1);
    let (_, with_few) = grow(scene, CROWD_RELAYS, few, megabytes)?;
    let (_, with_many) = grow(scene, CROWD_RELAYS, scene.clients, megabytes)?;
    let seconds = |needs: Needs| needs.cpu_nanos as f64 / 1e9;
    let mut push = |name: &str, digits, value| scene.figures.push("crowd", name, digits, value);
    push(&format!("members' CPU s, {few} clients"), 2, seconds(with_few));
    push("members' CPU s, all clients", 2, seconds(with_many));
    push("all clients / a tenth of them", 2, seconds(with_many) / seconds(with_few));
    Ok(())
}

/// What was found, and what members needed.
fn grow(
    scene: &Scene<'_>,
    relays: usize,
    clients: usize,
    megabytes: f64,
) -> Result<(Figures, Needs), Error> {
    let mut cluster = Cluster::start(scene.bench, scene.peer, scene.schema, MEMBERS)?;
    cluster.place_leader(true)?;
    let relays: Result<Vec<Running>, Error> =
        (0..relays).map(|_| scene.relay(&cluster.members)).collect();
    let relays = relays?;
    let grown = grow_at(scene, &cluster, &relays, clients, megabytes);
    grown.map_err(|e| cluster.explain_all(&e))
}

fn grow_at(
    scene: &Scene<'_>,
    cluster: &Cluster<'_>,
    relays: &[Running],
    clients: usize,
    megabytes: f64,
) -> Result<(Figures, Needs), Error> {
    let servers = if relays.is_empty() { &cluster.members } else { relays };
    let targets: Vec<&Target> = servers.iter().map(|server| &server.target).collect();
    let mut replica = Replica::new(scene.schema);
    let writers = WRITERS.min(clients);
    let drain_every = scene.drain_every;
    let connected = Clients { writers, monitors: clients, drain_every };
    let mut driver = connected.connect_to(&targets, DB, &mut replica, &scene.bench.progress)?;
    let pulses =
        || Ok::<_, Error>([Pulse::echo(&cluster.members[0].target)?, Pulse::echo(targets[0])?]);
    let (mut tally, growing) = (Tally::default(), pulses()?);
    let (members, relayed) = (Spending::begin(&cluster.members)?, Spending::begin(relays)?);
    let done = run(scene, &cluster.members, &mut driver, &mut tally, megabytes);
    let (members, relayed) = (members.end()?, relayed.end()?);
    let waited = growing.map(Pulse::stop);
    done?;
    if let Some(kept) = driver.watches.first_mut().and_then(|watch| watch.kept.take()) {
        replica.apply_stream(&kept)?;
    }
    targets.iter().try_for_each(|target| replica.check_against(target, DB))?;
    let mut figures = Figures::default();
    tally.figures("members", &mut figures);
    let mut waits = |when: &str, [at_member, at_client]: [Result<Latencies, Error>; 2]| {
        stalls(&format!("members{when}"), &at_member?, &mut figures);
        stalls(&format!("clients' servers{when}"), &at_client?, &mut figures);
        Ok::<(), Error>(())
    };
    waits("", waited)?;
    let compacting = pulses()?;
    let members = compact(&cluster.members, members)?;
    let relayed = compact(relays, relayed)?;
    waits(" while all compact", compacting.map(Pulse::stop))?;
    for (kind, of_each) in [("member", &members), ("relay", &relayed)] {
        for (n, needs) in of_each.iter().enumerate() {
            needs.figures(&format!("{kind} {}", n + 1), "", &mut figures);
        }
    }
    let [members, relayed]: [Needs; 2] =
        [members, relayed].map(|of_each| of_each.into_iter().sum());
    for (section, needs) in [("members", members), ("relays", relayed), ("all", members + relayed)]
    {
        needs.figures(section, ", all together", &mut figures);
    }
    Ok((figures, members))
}

/// Adds flows until there are so many megabytes; all clients have all of them in the end.
fn run(
    scene: &Scene<'_>,
    members: &[Running],
    driver: &mut Driver,
    tally: &mut Tally,
    megabytes: f64,
) -> Result<(), Error> {
    let mut rng = Rng::new(1);
    let total = (megabytes * 1e6 / flow(&mut rng, 0).len() as f64).ceil() as usize;
    scene.bench.progress.phase("the database grows", total);
    let mut load = Load {
        total,
        marker: Marker::Insert,
        rate: None,
        unseen: false,
        request: &mut |i, out| {
            let flow = flow(&mut rng, i);
            let insert = format!(
                r#"{{"id":{i},"method":"transact","params":["{DB}",{{"op":"insert","table":"Logical_Flow","row":{flow}}}]}}"#
            );
            out.extend_from_slice(insert.as_bytes());
        },
        reply: &mut |_, reply| Ok(uuid_hash(uuid_in(reply)?.as_bytes())),
    };
    tally.run_at(members, driver, &mut load)
}

/// A flow that matches many addresses, as those of network policies do.
fn flow(rng: &mut Rng, n: usize) -> String {
    let mut text = format!(
        r#"{{"pipeline":"ingress","table_id":{},"priority":{},"match":"ip4.src == {{"#,
        n % 30,
        1000 + n % 2000,
    );
    for at in 0..ADDRESSES {
        let comma = if at == 0 { "" } else { ", " };
        let host = rng.below(1 << 22);
        let (a, b, c) = (128 + (host >> 16), host >> 8 & 255, host & 255);
        let _ = write!(text, "{comma}10.{a}.{b}.{c}");
    }
    let _ = write!(
        text,
        r#"}}","actions":"reg8[16] = 1; next;","external_ids":["map",[["source","northd.c:{n}"],["stage-name","ls_in_acl_eval"]]]}}"#
    );
    text
}

/// CPU time of some servers from a moment on.
struct Spending<'a> {
    servers: &'a [Running],
    /// What each had spent by then, in nanoseconds.
    before: Vec<u64>,
}

impl<'a> Spending<'a> {
    fn begin(servers: &'a [Running]) -> Result<Self, Error> {
        Ok(Self { servers, before: cpu_nanos(servers)? })
    }

    /// What each has spent since, in nanoseconds.
    fn end(self) -> Result<Vec<u64>, Error> {
        let spent = cpu_nanos(self.servers)?.into_iter().zip(self.before);
        Ok(spent.map(|(after, before)| after.saturating_sub(before)).collect())
    }
}

fn cpu_nanos(servers: &[Running]) -> Result<Vec<u64>, Error> {
    let known = "servers of our own have processes";
    servers.iter().map(|server| Ok(server.cpu_nanos()?.expect(known))).collect()
}

fn rss(server: &Running) -> Result<u64, Error> {
    Ok(server.memory()?.expect("servers of our own have processes").rss)
}

/// Reads the memory of all, has them compact one after the other, and reads it again.
fn compact(servers: &[Running], spent: Vec<u64>) -> Result<Vec<Needs>, Error> {
    let before: Result<Vec<u64>, Error> = servers.iter().map(rss).collect();
    for server in servers {
        let Some(control) = server.control() else { fail!("a server of our own") };
        Client::connect(&control)?.call("ovsdb-server/compact", &serde_json::json!([DB]))?;
    }
    let of_each = servers.iter().zip(spent).zip(before?);
    of_each
        .map(|((server, cpu_nanos), before)| Ok(Needs { cpu_nanos, before, after: rss(server)? }))
        .collect()
}

/// How long others have waited.
fn stalls(section: &str, waited: &Latencies, figures: &mut Figures) {
    let mut push = |name: &str, digits, value| figures.push(section, name, digits, value);
    push("echo longest wait ms", 1, waited.percentile(100.0) / 1e3);
    push("echoes above 100 ms", 0, waited.above(Duration::from_millis(100)) as f64);
    push("echoes above 1 s", 0, waited.above(Duration::from_secs(1)) as f64);
}

impl Add for Needs {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu_nanos: self.cpu_nanos + other.cpu_nanos,
            before: self.before + other.before,
            after: self.after + other.after,
        }
    }
}

impl Sum for Needs {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

impl Needs {
    fn figures(self, section: &str, whose: &str, figures: &mut Figures) {
        let mut push = |name: &str, digits, value| {
            figures.push(section, &format!("{name}{whose}"), digits, value);
        };
        push("CPU s", 2, self.cpu_nanos as f64 / 1e9);
        push("RSS MB", 1, self.before as f64 / 1e6);
        push("RSS MB after compaction", 1, self.after as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_json_of_about_two_kilobytes() {
        let flow = flow(&mut Rng::new(1), 7);
        assert!((1_500..2_500).contains(&flow.len()), "{}", flow.len());
        let flow: serde_json::Value = serde_json::from_str(&flow).unwrap();
        assert_eq!(flow["priority"], 1007);
    }
}
