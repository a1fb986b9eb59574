//! Clusters whose members run on hosts of their own, while what can happen to hosts happens to them:
//! lost packets in one direction or both, slow lines, full disks, members that are killed or stand
//! still. Clients write through all members all the time; in the end nothing that was acknowledged is
//! missing, and nothing is there twice.
//!
//! `WEIR_ROUNDS=100 WEIR_SEED=7` does more of it, in another order.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::group::{ALL, Group, Load, Program, SCHEMA};
use crate::support;
use rustix::process::Signal;

/// What happens to a member, or to the way between two.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Nothing reaches it, and nothing leaves it.
    Apart(usize),
    /// What others send to it is lost.
    Deaf(usize),
    /// What it sends is lost.
    Mute(usize),
    /// Two do not reach each other.
    Between(usize, usize),
    SlowLine(usize),
    FullDisk(usize),
    StandsStill(usize),
    Killed(usize),
    /// Leaves the cluster; a new member takes the place.
    Leaves(usize),
    /// Is removed by another member; a new one takes the place.
    Removed(usize),
}

impl Fault {
    /// Begins while these members are well.
    fn begin(self, group: &mut Group, well: &[usize]) {
        match self {
            Self::StandsStill(at) => group.signal(at, Signal::STOP),
            Self::Killed(at) => group.kill(at),
            Self::Leaves(at) => {
                let told = group.appctl(at, &["cluster/leave", &group.db]);
                assert!(told.status.success(), "{}", support::err(&told));
                group.has_left(at);
            }
            Self::Removed(at) => {
                let kick = ["cluster/kick", &group.db, group.address(at)];
                let told = group.appctl(well[0], &kick);
                assert!(told.status.success(), "{}", support::err(&told));
                group.has_left(at);
            }
            _ => self.set(group, true),
        }
    }

    fn end(self, group: &mut Group) {
        match self {
            Self::StandsStill(at) => group.signal(at, Signal::CONT),
            Self::Killed(at) => group.start(at, Program::Weir),
            Self::Leaves(at) | Self::Removed(at) => group.join_anew(at),
            _ => self.set(group, false),
        }
    }

    /// What concerns the network and the disks is so from now on, or no longer.
    fn set(self, group: &Group, is_so: bool) {
        let hosts = group.hosts();
        let others = |at: usize| group.all().into_iter().filter(move |other| *other != at);
        match self {
            Self::Apart(at) => {
                Self::Deaf(at).set(group, is_so);
                Self::Mute(at).set(group, is_so);
            }
            Self::Deaf(at) => others(at).for_each(|from| hosts.lose(from, at, is_so)),
            Self::Mute(at) => others(at).for_each(|to| hosts.lose(at, to, is_so)),
            Self::Between(one, other) => {
                hosts.lose(one, other, is_so);
                hosts.lose(other, one, is_so);
            }
            Self::SlowLine(at) => hosts.slow(at, is_so),
            Self::FullDisk(at) => hosts.fill(at, is_so),
            Self::StandsStill(_) | Self::Killed(_) | Self::Leaves(_) | Self::Removed(_) => {
                unreachable!("processes have no such state")
            }
        }
    }

    /// Whether a member need not serve while this is so. Where two of three do not reach each other, the
    /// third is sure to reach the leader.
    fn concerns(self, member: usize) -> bool {
        match self {
            Self::Between(one, other) => member == one || member == other,
            Self::Apart(at)
            | Self::Deaf(at)
            | Self::Mute(at)
            | Self::SlowLine(at)
            | Self::FullDisk(at)
            | Self::StandsStill(at)
            | Self::Killed(at)
            | Self::Leaves(at)
            | Self::Removed(at) => member == at,
        }
    }
}

/// Numbers made of a seed (xorshift64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    /// A fault of these members; half of them are the leader's.
    fn fault(&mut self, kind: usize, members: &[usize], leader: Option<usize>) -> Fault {
        let any = members[self.below(members.len())];
        let leader = leader.filter(|leader| members.contains(leader) && self.below(2) == 0);
        let at = leader.unwrap_or(any);
        let rest: Vec<usize> = members.iter().copied().filter(|other| *other != at).collect();
        match kind {
            0 => Fault::Apart(at),
            1 => Fault::Deaf(at),
            2 => Fault::Mute(at),
            3 => Fault::Between(at, rest[self.below(rest.len())]),
            4 => Fault::SlowLine(at),
            5 => Fault::FullDisk(at),
            6 => Fault::StandsStill(at),
            7 => Fault::Killed(at),
            8 => Fault::Leaves(at),
            _ => Fault::Removed(at),
        }
    }
}

const KINDS: usize = 10;

/// How long a fault lasts, at least: others notice after one election timer, which is a second, or
/// never.
const LASTS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(1500), Duration::from_millis(3500)];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect("a number"))
}

/// As many faults at a time as a majority survives; each kind comes in turn, to members by chance.
/// Answers with how long it took, with each and after it, until writes went through all that should
/// serve.
fn rounds(
    group: &mut Group,
    load: &Load,
    rounds: u64,
    at_once: usize,
) -> Vec<(Duration, Duration)> {
    let seed = number("WEIR_SEED", 1);
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut until_all = vec![];
    for round in 0..rounds {
        let (mut members, mut faults) = (group.all(), vec![]);
        let leader = group.leader_among(&members);
        let lasts = LASTS[chance.below(LASTS.len())];
        for nth in 0..at_once {
            let kind = (usize::try_from(round).expect("not many") + nth * 3) % KINDS;
            let fault = chance.fault(kind, &members, leader);
            // One fault a member, and never more members than may fail.
            members.retain(|at| !fault.concerns(*at));
            fault.begin(group, &members);
            faults.push(fault);
            if members.len() * 2 <= group.all().len() + 1 {
                break;
            }
        }
        let begun = Instant::now();
        load.go_on(10, &members);
        let served = begun.elapsed();
        sleep(lasts.saturating_sub(served));
        load.go_on(10, &members);
        for fault in &faults {
            fault.end(group);
        }
        let ended = Instant::now();
        load.go_on(5, &group.all());
        let after = ended.elapsed();
        println!("seed {seed}, leader {leader:?}, {faults:?}: {served:?} with it, {after:?} after");
        until_all.push((served, after));
    }
    until_all
}

fn whatever_happens(count: usize, default_rounds: u64, at_once: usize) {
    let Some(mut group) = Group::on_hosts(count, SCHEMA) else { return };
    let load = group.load();
    load.go_on(10, &group.all());
    let waits = rounds(&mut group, &load, number("WEIR_ROUNDS", default_rounds), at_once);
    let median_and_worst = |mut waits: Vec<Duration>| {
        waits.sort();
        (waits[waits.len() / 2], waits[waits.len() - 1])
    };
    let (with, after) = waits.into_iter().unzip();
    println!("with faults, median and worst wait: {:?}", median_and_worst(with));
    println!("after them: {:?}", median_and_worst(after));
    println!("longest waits: {:?}", load.check(&group));
    group.stop_all();
    group.bring_files_back();
    group.check_files();
}

#[test]
fn whatever_happens_to_one_of_three_hosts_nothing_is_lost_and_nothing_happens_twice() {
    whatever_happens(3, 10, 1);
}

#[test]
fn whatever_happens_to_two_of_five_hosts_nothing_is_lost_and_nothing_happens_twice() {
    whatever_happens(5, 4, 2);
}

#[test]
fn a_leader_that_nobody_hears_or_that_hears_nobody_is_followed_by_another() {
    let Some(mut group) = Group::on_hosts(3, SCHEMA) else { return };
    let load = group.load();
    for fault in [Fault::Mute, Fault::Deaf] {
        let leader = group.settle(&ALL);
        let others: Vec<usize> = ALL.into_iter().filter(|at| *at != leader).collect();
        fault(leader).begin(&mut group, &others);
        let next = group.settle(&others);
        assert_ne!(next, leader);
        load.go_on(10, &others);
        // Who leads no more says so: its clients look for another server.
        support::eventually("the old leader notices", || group.leader_among(&[leader]).is_none());
        fault(leader).end(&mut group);
        load.go_on(10, &ALL);
    }
    println!("longest waits: {:?}", load.check(&group));
    group.stop_all();
    group.bring_files_back();
    group.check_files();
}

/// The sockets of connections to these ports of this host, both ends of each: whose they are, and after how many
/// hundredths of a second of silence the system will ask whether the other end is there, if it will (proc(5),
/// `/proc/net/tcp`).
fn silences(ports: &[u16]) -> Vec<(String, Option<u64>)> {
    const ESTABLISHED: &str = "01";
    const KEEPALIVE: &str = "02";
    let table = std::fs::read_to_string("/proc/net/tcp").expect("proc is there");
    let ends_there = |end: &str| {
        let port = end.split_once(':').map(|(_, port)| u16::from_str_radix(port, 16));
        port.is_some_and(|port| port.is_ok_and(|port| ports.contains(&port)))
    };
    let mut sockets = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, _, timer, ..] = fields[..] else { panic!("{line}") };
        if state == ESTABLISHED && (ends_there(local) || ends_there(remote)) {
            let (kind, after) = timer.split_once(':').expect("a timer");
            let after = u64::from_str_radix(after, 16).expect("a number");
            sockets.push((format!("{local} {remote}"), (kind == KEEPALIVE).then_some(after)));
        }
    }
    sockets
}

/// Neither end may say anything any more; a host that lost its power or its network says nothing of it.
#[test]
fn the_system_watches_both_ends_of_what_members_say_to_each_other() {
    let Some(group) = Group::weir(SCHEMA) else { return };
    group.settle(&ALL);
    let port =
        |at: &usize| group.address(*at).rsplit(':').next().and_then(|port| port.parse().ok());
    let ports: Vec<u16> = ALL.iter().map(|at| port(at).expect("a port")).collect();
    // While what was said has not been acknowledged another timer runs.
    let mut watched = BTreeSet::new();
    support::eventually("all connections of members are watched", || {
        let sockets = silences(&ports);
        let soon = sockets.iter().filter(|(_, after)| after.is_some_and(|after| after <= 200));
        watched.extend(soon.map(|(socket, _)| socket.clone()));
        // Each of three has a connection to each other one, which has an end at both.
        sockets.len() >= 12 && sockets.iter().all(|(socket, _)| watched.contains(socket))
    });
}
