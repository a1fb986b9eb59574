//! Servers, what happens next, and when all is well.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use weir_cluster::{Event, LinkId, Mark, Member, Position};
use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::checks::Checks;
use super::disk::Front;
use super::faults::Faults;
use super::network::{End, Network};
use super::rng::Rng;
use super::shell::{Lie, Server};

/// What will happen to a server, unless it has another life by then.
#[derive(Clone, Debug)]
pub enum Due {
    Wake,
    Synced {
        step: u64,
        upto: usize,
        result: Result<u64, String>,
    },
    Event(Event),
    /// A connection has been silent for long.
    TimedOut(LinkId),
    /// Nobody has answered an attempt to connect since then.
    Attempt {
        since_us: u64,
        link: LinkId,
        address: String,
    },
    /// What comes of a snapshot that is being received, of this number.
    Beside(u64, Event),
    /// A file that takes nothing, or cannot be read, is to be rewritten.
    Rewrite,
    Up,
    Down,
}

pub struct World {
    pub now_us: u64,
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    pub(super) lie: Option<Lie>,
    pub(super) servers: Vec<Server>,
    pub(super) network: Network,
    pub checks: Checks,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    due: BTreeMap<u64, (usize, u64, Due)>,
    next: u64,
    pub(super) next_eid: u128,
    /// Servers that were told to leave, or are to be removed.
    pub(super) told_to_go: BTreeSet<Uuid>,
    /// A server whose file is not what it was.
    pub(super) forgetful: Option<usize>,
    /// Nothing goes wrong until then.
    pub(super) careful_until: u64,
    pub trace: Vec<String>,
}

/// After so many election timers without faults somebody leads, and everybody has everything: two
/// for an election, some for attempts to connect that wait longest, and for a snapshot and a server
/// that joins behind it.
pub const SETTLE_TIMERS: u64 = 15;

/// Whose connections have been silent is not believed before others have lived for a minute, and what was silent last
/// goes on being that for 2.3 s.
const SILENCE_US: u64 = 66_000_000;

/// The election timer of a new cluster, in milliseconds.
const TIMER_MS: u64 = 1000;

fn server_id(n: usize) -> Uuid {
    Uuid::from_u128((n as u128 + 1) << 112)
}

fn address(n: usize) -> String {
    format!("tcp:10.0.0.{}:6643", n + 1)
}

impl World {
    /// A cluster of so many members that have always been members, and so many that want to join.
    pub fn new(seed: u64, members: usize, joiners: usize, faults: Faults) -> Self {
        let all: Servers = (0..members).map(|n| (server_id(n), address(n))).collect();
        let all = Arc::new(all);
        let first = Position { term: 1, index: 1 };
        let mut world = Self {
            now_us: 1_000_000,
            rng: Rng(seed),
            faults,
            lie: None,
            servers: vec![],
            network: Network::default(),
            checks: Checks::new(first.index, Arc::clone(&all), TIMER_MS),
            queue: BinaryHeap::new(),
            due: BTreeMap::new(),
            next: 0,
            next_eid: 1000,
            told_to_go: BTreeSet::new(),
            forgetful: None,
            careful_until: 0,
            trace: vec![],
        };
        let eid = Uuid::from_u128(5);
        let mark = Mark { last: first, eid, servers: all, election_timer: TIMER_MS };
        let cluster = Some(Uuid::from_u128(77));
        for n in 0..members {
            let front = Front::of(cluster, mark.clone(), &[(1, eid)].into(), faults.padding);
            world.servers.push(Server::new(server_id(n), address(n), front));
        }
        (0..joiners).for_each(|_| _ = world.add_joiner());
        (0..members + joiners).for_each(|n| world.start(n));
        world
    }

    /// The cluster, whose servers break a promise from now on.
    pub fn with_lie(mut self, lie: Lie) -> Self {
        self.lie = Some(lie);
        self
    }

    /// A server that wants to join, and is not started yet.
    pub fn add_joiner(&mut self) -> usize {
        let n = self.servers.len();
        let front = Front {
            cluster: None,
            mark: Mark {
                last: Position::default(),
                eid: Uuid::default(),
                servers: Arc::default(),
                election_timer: TIMER_MS,
            },
            data: vec![],
            remotes: self.checks.last_servers().values().cloned().collect(),
        };
        self.servers.push(Server::new(server_id(n), address(n), front));
        n
    }

    pub(super) fn tell(&mut self, text: String) {
        self.trace.push(format!("{} {text}", self.now_us));
    }

    pub(super) fn later(&mut self, at: u64, n: usize, due: Due) {
        self.push(at, n, self.servers[n].life, due);
    }

    fn push(&mut self, at: u64, n: usize, life: u64, due: Due) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next)));
        self.due.insert(self.next, (n, life, due));
    }

    /// Lets this much time pass.
    pub fn run_for(&mut self, ms: u64) {
        let end = self.now_us + ms * 1000;
        let mut next_ms = self.now_us + 1000;
        loop {
            let at = self.queue.peek().map_or(end, |Reverse((at, _))| *at);
            while next_ms <= at.min(end) {
                self.now_us = next_ms.max(self.now_us);
                next_ms += 1000;
                self.misfortune();
            }
            let at = self.queue.peek().map_or(end, |Reverse((at, _))| *at);
            if at >= end {
                break;
            }
            self.step();
        }
        self.now_us = end;
    }

    fn step(&mut self) {
        let Some(Reverse((at, number))) = self.queue.pop() else { return };
        let (n, life, due) = self.due.remove(&number).expect("it was queued");
        let server = &self.servers[n];
        if life != server.life && !matches!(due, Due::Up) {
            // It concerned a process that is no more; a connection to it is none.
            if let Due::Event(Event::Accepted { link, .. }) = due {
                self.close(End { server: n, link });
            }
            return;
        }
        if server.paused_until > at {
            // Under its number: it comes before what was to come later, even at the moment at which the server goes on.
            self.queue.push(Reverse((server.paused_until, number)));
            self.due.insert(number, (n, life, due));
            return;
        }
        self.now_us = self.now_us.max(at);
        match due {
            Due::Wake => self.tick(n),
            Due::Event(event) => {
                if let Event::Lost { link, .. } = event {
                    self.network.ends.remove(&End { server: n, link });
                }
                self.event(n, event);
            }
            Due::Attempt { since_us, link, address } => self.attempt(n, since_us, link, &address),
            Due::TimedOut(link) => self.time_out(End { server: n, link }),
            Due::Beside(number, event) if self.is_beside(n, number) => self.event(n, event),
            Due::Beside(..) => {}
            Due::Rewrite => self.rewrite(n),
            Due::Synced { step, upto, result } => self.synced(n, step, upto, result),
            Due::Up => self.start(n),
            Due::Down => self.stop(n),
        }
    }

    /// Ends all faults, and waits until somebody leads and everybody has everything.
    pub fn settle(&mut self) {
        let least_us = if self.faults.silence > 0 { SILENCE_US } else { 0 };
        self.calm();
        let timers = self.servers.iter().filter_map(|server| server.member.as_ref());
        let timer_ms = timers.map(Member::election_timer_ms).max().unwrap_or(TIMER_MS);
        let (started_us, mut n) = (self.now_us, 0);
        while n < SETTLE_TIMERS || self.now_us < started_us + least_us {
            n += 1;
            self.run_for(timer_ms);
            if self.leader().is_some_and(|leader| self.propose(leader, 1)) {
                self.run_for(timer_ms);
            }
            if self.unsettled().is_none() {
                self.checks.counts.settled_timers = n;
                self.check_converged();
                return;
            }
        }
        let why = self.unsettled().unwrap_or_default();
        panic!("all is not well {SETTLE_TIMERS} election timers after the last fault: {why}");
    }

    /// What is not well.
    fn unsettled(&self) -> Option<String> {
        let leader = self.leader();
        let Some(leader) = leader else { return Some("nobody leads".into()) };
        let last = self.checks.last();
        let servers = self.checks.last_servers();
        let is_there = |server: &&Server| !server.has_left && server.member.is_some();
        for (n, server) in self.servers.iter().enumerate().filter(|(_, it)| is_there(it)) {
            let member = server.member.as_ref().expect("it has just been seen");
            let is_in = servers.contains_key(&server.id);
            let knows = server.disk.remotes().iter().any(|at| servers.values().any(|it| it == at));
            if !is_in && !member.is_member() && knows && !self.checks.was_member(server.id) {
                return Some(format!("{n} has not joined"));
            }
            if is_in && (server.applied_to < last || !member.is_member()) {
                return Some(format!("{n} is behind {last}: {}", server.applied_to));
            }
            if !self.is_where_it_is_known(server) {
                return Some(format!("{n} is looked for where it was"));
            }
            if is_in && (!member.is_connected() || member.leader() != Some(self.servers[leader].id))
            {
                return Some(format!("{n} does not know that {leader} leads"));
            }
        }
        None
    }

    /// Who is a member now has everything that was ever committed.
    pub fn check_converged(&self) {
        let end = self.checks.last();
        let servers = self.checks.last_servers();
        for (n, server) in self.servers.iter().enumerate() {
            let is_in = servers.contains_key(&server.id);
            if server.member.is_some() && is_in {
                assert_eq!(server.applied_to, end, "server {n} has taken all in");
                self.checks.has_all(n, &server.applied, end);
            }
        }
    }

    /// How everybody does.
    pub fn status(&self) -> String {
        let of = |server: &Server| server.member.as_ref().map(Member::status);
        self.servers.iter().filter_map(of).collect::<Vec<_>>().join("\n")
    }

    /// Who leads and takes writes, of several the one of the newest term.
    pub fn leader(&self) -> Option<usize> {
        let of = |(n, server): (usize, &Server)| {
            let member = server.member.as_ref().filter(|member| member.may_propose())?;
            Some((member.term(), n))
        };
        self.servers.iter().enumerate().filter_map(of).max().map(|(_, n)| n)
    }

    /// How many members the cluster has.
    pub fn members(&self) -> usize {
        self.checks.last_servers().len()
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    pub fn member(&mut self, n: usize) -> Option<&mut Member> {
        self.servers[n].member.as_mut()
    }

    pub fn id(&self, n: usize) -> Uuid {
        self.servers[n].id
    }

    /// Whether there is a snapshot in a server's file.
    pub fn has_snapshot(&self, n: usize) -> bool {
        self.servers[n].disk.front.mark.last.index > 0
    }

    /// A server hears nothing of another one any more, until [`World::heal`].
    pub fn cut_from(&mut self, n: usize, from: usize) {
        self.network.cut.insert((from, n));
    }

    pub fn has_left(&self, n: usize) -> bool {
        self.servers[n].has_left
    }

    pub fn chance(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }
}
