//! Members, what is between them, and what must always hold.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use weir_cluster::{Content, Effect, Entry, Event, LinkId, Mark, Member, Position, Proposal};
use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::disk::{Disk, Front};
use super::rng::Rng;

/// How likely faults are: one in so many milliseconds, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub crash: u64,
    pub cut: u64,
    pub reset: u64,
    pub compact: u64,
    pub disk: u64,
    pub pause: u64,
    /// Milliseconds that messages take at most.
    pub delay: u64,
    /// Milliseconds that fdatasync takes at most.
    pub sync: u64,
}

/// What will happen to a member, unless it has another life by then.
#[derive(Clone, Debug)]
enum Due {
    Wake,
    Synced { step: u64, upto: usize, result: Result<u64, String> },
    Event(Event),
    Up,
}

struct Server {
    id: Uuid,
    address: String,
    disk: Disk,
    member: Option<Member>,
    life: u64,
    /// What has taken effect: ids by index.
    applied: BTreeMap<u64, Uuid>,
    applied_to: u64,
    /// A snapshot that is coming.
    receiving: Option<Front>,
    /// What it led to in the tables, when it is installed.
    paused_until: u64,
    /// Proposals that are not decided.
    proposed: BTreeMap<u64, (Position, Uuid)>,
    wake_at: u64,
    /// When the last write is answered: they are answered in order.
    synced_at: u64,
    /// A copy of the file is being written, or about to take its place.
    is_copying: bool,
    finish: u64,
    has_left: bool,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    server: usize,
    link: LinkId,
}

pub struct World {
    pub now_us: u64,
    rng: Rng,
    faults: Faults,
    servers: Vec<Server>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    due: BTreeMap<u64, (usize, u64, Due)>,
    next: u64,
    /// The other end of each end.
    ends: BTreeMap<End, End>,
    /// When the last bytes come on each connection, so that they stay in order.
    last_at: BTreeMap<End, u64>,
    next_accepted: u64,
    /// Pairs that hear nothing of each other, one way.
    cut: BTreeSet<(usize, usize)>,
    /// Entries that somebody has seen committed.
    pub committed: BTreeMap<u64, (u64, Option<Uuid>)>,
    leaders: BTreeMap<u64, Uuid>,
    next_eid: u128,
    pub acknowledged: u64,
    pub elections: u64,
    pub snapshots: u64,
    pub compactions: u64,
    pub trace: Vec<String>,
}

fn server_id(n: usize) -> Uuid {
    Uuid::from_u128((n as u128 + 1) << 112)
}

impl World {
    /// A cluster of so many members that have always been members, and so many that want to join.
    pub fn new(seed: u64, members: usize, joiners: usize, faults: Faults) -> Self {
        let mut world = Self {
            now_us: 1_000_000,
            rng: Rng(seed),
            faults,
            servers: vec![],
            queue: BinaryHeap::new(),
            due: BTreeMap::new(),
            next: 0,
            ends: BTreeMap::new(),
            last_at: BTreeMap::new(),
            next_accepted: 1 << 32,
            cut: BTreeSet::new(),
            committed: BTreeMap::new(),
            leaders: BTreeMap::new(),
            next_eid: 1000,
            acknowledged: 0,
            elections: 0,
            snapshots: 0,
            compactions: 0,
            trace: vec![],
        };
        let address = |n: usize| format!("tcp:10.0.0.{}:6643", n + 1);
        let all: Servers = (0..members).map(|n| (server_id(n), address(n))).collect();
        let cluster = Some(Uuid::from_u128(77));
        for n in 0..members + joiners {
            let is_member = n < members;
            let front = Front {
                cluster: cluster.filter(|_| is_member),
                mark: Mark {
                    last: if is_member {
                        Position { term: 1, index: 1 }
                    } else {
                        Position::default()
                    },
                    eid: Uuid::from_u128(if is_member { 5 } else { 0 }),
                    servers: Arc::new(if is_member { all.clone() } else { Servers::new() }),
                    election_timer: 1000,
                },
                data: if is_member { b"1 5\n".to_vec() } else { vec![] },
                remotes: if is_member { vec![] } else { all.values().cloned().collect() },
            };
            world.servers.push(Server {
                id: server_id(n),
                address: address(n),
                disk: Disk { front, records: vec![], synced: 0, step: 0 },
                member: None,
                life: 0,
                applied: BTreeMap::new(),
                applied_to: 0,
                receiving: None,
                paused_until: 0,
                proposed: BTreeMap::new(),
                wake_at: 0,
                synced_at: 0,
                is_copying: false,
                finish: 0,
                has_left: false,
            });
        }
        for n in 0..members + joiners {
            world.start(n);
        }
        world
    }

    fn later(&mut self, at: u64, n: usize, due: Due) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next)));
        let life = self.servers[n].life;
        self.due.insert(self.next, (n, life, due));
    }

    fn start(&mut self, n: usize) {
        let seed = self.rng.next();
        let server = &mut self.servers[n];
        if server.has_left {
            return;
        }
        server.life += 1;
        let opened = server.disk.open(server.id, "db", &server.address, seed);
        server.applied = applied_of(&server.disk.front.data);
        server.applied_to = server.disk.front.mark.last.index;
        let committed: Vec<Entry> = opened
            .entries
            .iter()
            .filter(|entry| entry.at.index <= opened.commit)
            .cloned()
            .collect();
        self.trace.push(format!("{} start {n} term {}", self.now_us, opened.term));
        self.apply(n, committed);
        let member = Member::open(opened, self.now_us);
        self.servers[n].member = Some(member);
        self.run(n);
    }

    /// The power goes at a server.
    pub fn crash(&mut self, n: usize) {
        self.trace.push(format!("{} crash {n}", self.now_us));
        let server = &mut self.servers[n];
        server.member = None;
        server.life += 1;
        (server.receiving, server.is_copying) = (None, false);
        server.proposed.clear();
        server.disk.crash(&mut self.rng);
        let ends: Vec<End> = self.ends.keys().filter(|end| end.server == n).copied().collect();
        for end in ends {
            self.close(end);
        }
        let at = self.now_us + 1000 * (50 + self.rng.below(3000));
        self.later(at, n, Due::Up);
    }

    /// A connection ends; the other end hears of it.
    fn close(&mut self, end: End) {
        let Some(other) = self.ends.remove(&end) else { return };
        self.ends.remove(&other);
        let at = self.now_us + 1000;
        let lost = Event::Lost { link: other.link, error: Some("Connection reset by peer".into()) };
        self.later(at, other.server, Due::Event(lost));
    }

    /// Carries out what a member asks for, until it asks for nothing.
    fn run(&mut self, n: usize) {
        loop {
            let Some(member) = &mut self.servers[n].member else { return };
            let Some(effect) = member.poll() else { break };
            self.execute(n, effect);
        }
        let Some(member) = &self.servers[n].member else { return };
        let at = member.wakeup_us().max(self.now_us + 1000);
        if self.servers[n].wake_at <= self.now_us || at < self.servers[n].wake_at {
            self.servers[n].wake_at = at;
            self.later(at, n, Due::Wake);
        }
    }

    fn event(&mut self, n: usize, event: Event) {
        let now_us = self.now_us;
        if let Some(member) = &mut self.servers[n].member {
            member.handle(now_us, event);
            self.run(n);
        }
    }

    fn execute(&mut self, n: usize, effect: Effect) {
        match effect {
            Effect::Persist { step, behind, bytes, sync } => {
                self.persist(n, (step, behind), &bytes, sync);
            }
            Effect::Connect { link, address } => self.connect(n, link, &address),
            Effect::Send { link, bytes } => self.send(End { server: n, link }, bytes),
            Effect::Disconnect { link } => self.close(End { server: n, link }),
            Effect::Commit(entries) => self.apply(n, entries),
            Effect::Leadership { leader } => self.led(n, leader),
            Effect::Message { .. } | Effect::PeerLost { .. } => {}
            Effect::ReadSnapshot { to, last, offset, len } => {
                let front = &self.servers[n].disk.front;
                let (from, to_byte) = (offset as usize, (offset + len) as usize);
                let result = if front.mark.last == last {
                    Ok(front.data[from..to_byte].to_vec())
                } else {
                    Err("the file has another snapshot".into())
                };
                let read = Event::SnapshotRead { to, last, offset, result };
                let at = self.now_us + 100;
                self.later(at, n, Due::Event(read));
            }
            Effect::ReceiveSnapshot { cluster, mark, .. } => {
                let front = Front { cluster, mark, data: vec![], remotes: vec![] };
                self.servers[n].is_copying = false;
                self.servers[n].receiving = Some(front);
            }
            Effect::FinishCopy { step, tail } => {
                let server = &mut self.servers[n];
                server.finish = step;
                let is_whole = |front: &Front| front.mark.last.index <= server.applied_to;
                let Some(front) = server.receiving.take_if(|front| is_whole(front)) else {
                    let result = Err("the copy is gone".into());
                    return self.synced(self.now_us + 10, n, Due::Synced { step, upto: 0, result });
                };
                let (records, synced) = (tail.to_vec(), tail.len());
                server.disk = Disk { front, records, synced, step };
                self.compactions += 1;
                self.synced(
                    self.now_us + 5000,
                    n,
                    Due::Synced { step, upto: synced, result: Ok(1) },
                );
            }
            Effect::SnapshotPiece { bytes } => {
                let receiving = self.servers[n].receiving.as_mut().expect("it was announced");
                receiving.data.extend_from_slice(&bytes);
            }
            Effect::LoadSnapshot { last } => {
                let at = self.now_us + 1000 * (1 + self.rng.below(20));
                self.later(at, n, Due::Event(Event::SnapshotLoaded { last, result: Ok(()) }));
            }
            Effect::InstallSnapshot { step, behind, last, tail } => {
                let server = &mut self.servers[n];
                if server.disk.step != behind {
                    let result = Err("No space left on device".into());
                    let due = Due::Synced { step, upto: 0, result };
                    return self.synced(self.now_us + 10, n, due);
                }
                let front = server.receiving.take().expect("it has come");
                assert_eq!(front.mark.last, last);
                let (records, synced) = (tail.to_vec(), tail.len());
                server.disk = Disk { front, records, synced, step };
                server.applied = applied_of(&server.disk.front.data);
                server.applied_to = last.index;
                self.snapshots += 1;
                self.agree(n);
                let at = self.now_us + 5000;
                self.synced(at, n, Due::Synced { step, upto: tail.len(), result: Ok(5000) });
            }
            Effect::DropSnapshot => self.servers[n].receiving = None,
            Effect::DropCopy => {
                (self.servers[n].receiving, self.servers[n].is_copying) = (None, false);
            }
            Effect::Left => {
                self.servers[n].has_left = true;
                self.trace.push(format!("{} left {n}", self.now_us));
            }
            Effect::Log { text, .. } => self.trace.push(format!("{} {n}: {text}", self.now_us)),
        }
    }

    fn persist(&mut self, n: usize, (step, behind): (u64, u64), bytes: &Arc<Vec<u8>>, sync: bool) {
        let is_full = self.faults.disk > 0 && self.rng.one_in(self.faults.disk);
        let took = 1000 * self.rng.below(self.faults.sync.max(1)) + 50;
        let disk = &mut self.servers[n].disk;
        if is_full || disk.step != behind {
            let result = Err("No space left on device".into());
            return self.synced(self.now_us + 10, n, Due::Synced { step, upto: 0, result });
        }
        disk.step = step;
        disk.records.extend_from_slice(bytes);
        let upto = if sync { disk.records.len() } else { 0 };
        let at = self.now_us + if sync { took } else { 1 };
        self.synced(at, n, Due::Synced { step, upto, result: Ok(took) });
    }

    fn synced(&mut self, at: u64, n: usize, due: Due) {
        let at = at.max(self.servers[n].synced_at + 1);
        self.servers[n].synced_at = at;
        self.later(at, n, due);
    }

    fn connect(&mut self, n: usize, link: LinkId, address: &str) {
        let at = self.now_us + 500 + 1000 * self.rng.below(self.faults.delay.max(1));
        let target = self.servers.iter().position(|server| server.address == address);
        let target = target.filter(|target| {
            self.servers[*target].member.is_some()
                && !self.cut.contains(&(n, *target))
                && !self.cut.contains(&(*target, n))
        });
        let Some(target) = target else {
            let error = Some("Connection refused".into());
            return self.later(at, n, Due::Event(Event::Lost { link, error }));
        };
        self.next_accepted += 1;
        let (ours, theirs) =
            (End { server: n, link }, End { server: target, link: LinkId(self.next_accepted) });
        self.ends.insert(ours, theirs);
        self.ends.insert(theirs, ours);
        let name = format!("tcp:{n}");
        self.later(at, target, Due::Event(Event::Accepted { link: theirs.link, name }));
        self.later(at, n, Due::Event(Event::Connected { link }));
        self.last_at.insert(ours, at);
        self.last_at.insert(theirs, at);
    }

    fn send(&mut self, from: End, bytes: Vec<u8>) {
        let Some(to) = self.ends.get(&from).copied() else { return };
        // A cut wire loses nothing of a stream: what it carries is stuck until the connection ends.
        if self.cut.contains(&(from.server, to.server)) {
            return;
        }
        let delay = 100 + self.rng.below(1000 * self.faults.delay.max(1));
        let at = (self.now_us + delay).max(self.last_at[&to] + 1);
        self.last_at.insert(to, at);
        // Streams come in any pieces.
        let cut = self.rng.below(bytes.len() as u64 + 1) as usize;
        let (head, tail) = bytes.split_at(cut);
        for piece in [head, tail] {
            if !piece.is_empty() {
                let event = Event::Received { link: to.link, bytes: piece.to_vec() };
                self.later(at, to.server, Due::Event(event));
            }
        }
    }

    fn apply(&mut self, n: usize, entries: Vec<Entry>) {
        for entry in entries {
            let server = &mut self.servers[n];
            let index = entry.at.index;
            assert_eq!(index, server.applied_to + 1, "server {n} applies without gaps");
            server.applied_to = index;
            let eid = entry.content.eid();
            if let Some(eid) = eid {
                server.applied.insert(index, eid);
            }
            let seen = self.committed.entry(index).or_insert((entry.at.term, eid));
            assert_eq!(*seen, (entry.at.term, eid), "one entry at index {index}, server {n}");
            if let Some((at, _)) = server.proposed.remove(&index)
                && at == entry.at
            {
                self.acknowledged += 1;
            }
            if let Content::Servers(servers) = &entry.content {
                self.trace.push(format!("{} {n}: {} servers", self.now_us, servers.len()));
            }
        }
    }

    /// What a server has is what was committed.
    fn agree(&self, n: usize) {
        for (index, eid) in &self.servers[n].applied {
            if let Some((_, seen)) = self.committed.get(index) {
                assert_eq!(*seen, Some(*eid), "server {n} at index {index}");
            }
        }
    }

    fn led(&mut self, n: usize, leader: Option<Uuid>) {
        let server = &self.servers[n];
        if leader != Some(server.id) {
            return;
        }
        let member = server.member.as_ref().expect("it has just spoken");
        let term = member.term();
        self.elections += 1;
        let other = self.leaders.insert(term, server.id);
        assert!(other.is_none_or(|other| other == server.id), "two leaders in term {term}");
    }

    /// A client of a server's writes, if the server leads.
    pub fn propose(&mut self, n: usize, count: usize) -> bool {
        if self.servers[n].paused_until > self.now_us {
            return false;
        }
        let mut batch = vec![];
        for _ in 0..count {
            self.next_eid += 1;
            let eid = Uuid::from_u128(self.next_eid);
            let text = format!("[null,{{\"n\":{}}}]", self.next_eid);
            batch.push(Proposal { eid, text: text.into_bytes().into() });
        }
        let eids: Vec<Uuid> = batch.iter().map(|proposal| proposal.eid).collect();
        let now_us = self.now_us;
        let Some(member) = &mut self.servers[n].member else { return false };
        let Ok(first) = member.propose(now_us, batch) else { return false };
        for (index, eid) in (first.index..).zip(eids) {
            let at = Position { term: first.term, index };
            self.servers[n].proposed.insert(index, (at, eid));
        }
        self.run(n);
        true
    }

    /// The file of a server is rewritten with a snapshot of what has taken effect.
    pub fn compact(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let Some(member) = &server.member else { return };
        if server.is_copying
            || server.receiving.is_some()
            || server.applied_to <= server.disk.front.mark.last.index
        {
            return;
        }
        let mark = member.mark();
        assert_eq!(mark.last.index, server.applied_to);
        let line = |(index, eid): (&u64, &Uuid)| format!("{index} {}\n", eid.to_u128());
        let data: String = server.applied.iter().map(line).collect();
        let len = data.len() as u64;
        let cluster = server.disk.front.cluster;
        let remotes = vec![];
        let front = Front { cluster, mark: mark.clone(), data: data.into_bytes(), remotes };
        (server.receiving, server.is_copying) = (Some(front), true);
        let at = self.now_us + 1000 * (1 + self.rng.below(30));
        self.later(at, n, Due::Event(Event::CopyWritten { mark, len }));
    }

    /// Something goes wrong, perhaps.
    fn misfortune(&mut self) {
        let count = self.servers.len() as u64;
        let f = self.faults;
        let happens = |rng: &mut Rng, rate: u64| rate > 0 && rng.one_in(rate);
        if happens(&mut self.rng, f.crash) {
            let n = self.rng.below(count) as usize;
            if self.servers[n].member.is_some() {
                self.crash(n);
            }
        }
        if happens(&mut self.rng, f.cut) {
            let pair = (self.rng.below(count) as usize, self.rng.below(count) as usize);
            if self.cut.len() < 3 && pair.0 != pair.1 {
                self.trace.push(format!("{} cut {pair:?}", self.now_us));
                self.cut.insert(pair);
            } else {
                self.heal();
            }
        }
        if happens(&mut self.rng, f.reset) && !self.ends.is_empty() {
            let at = self.rng.below(self.ends.len() as u64) as usize;
            let end = *self.ends.keys().nth(at).expect("it is one of them");
            self.break_connection(end);
        }
        if happens(&mut self.rng, f.compact) {
            let n = self.rng.below(count) as usize;
            self.compact(n);
        }
        if happens(&mut self.rng, f.pause) {
            let n = self.rng.below(count) as usize;
            let until = self.now_us + 1000 * self.rng.below(3000) + 7;
            // What waits for the end of a pause comes in its order only if that stays.
            if self.servers[n].paused_until < self.now_us {
                self.servers[n].paused_until = until;
            }
        }
    }

    fn break_connection(&mut self, end: End) {
        let Some(other) = self.ends.get(&end).copied() else { return };
        self.close(end);
        let lost = Event::Lost { link: end.link, error: Some("Connection reset by peer".into()) };
        let _ = other;
        self.later(self.now_us + 1000, end.server, Due::Event(lost));
    }

    /// Everybody hears everybody again; connections that were cut have lost bytes, so they end.
    pub fn heal(&mut self) {
        let cut = std::mem::take(&mut self.cut);
        let ends: Vec<End> = self.ends.keys().copied().collect();
        for end in ends {
            let Some(other) = self.ends.get(&end) else { continue };
            let pair = (end.server, other.server);
            if cut.contains(&pair) || cut.contains(&(pair.1, pair.0)) {
                self.break_connection(end);
            }
        }
    }

    /// No more faults; whoever is down comes up.
    pub fn calm(&mut self) {
        let delay = self.faults.delay.min(2);
        self.faults = Faults { delay, sync: 2, ..Faults::default() };
        self.heal();
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
        let server = &mut self.servers[n];
        if life != server.life && !matches!(due, Due::Up) {
            // It concerned a process that is no more; a connection to it is none.
            if let Due::Event(Event::Accepted { link, .. }) = due {
                self.close(End { server: n, link });
            }
            return;
        }
        if server.paused_until > at {
            let until = server.paused_until;
            self.next += 1;
            self.queue.push(Reverse((until, self.next)));
            self.due.insert(self.next, (n, life, due));
            return;
        }
        self.now_us = self.now_us.max(at);
        match due {
            Due::Wake => self.event(n, Event::Tick),
            Due::Event(event) => {
                if let Event::Lost { link, .. } = event {
                    self.ends.remove(&End { server: n, link });
                }
                self.event(n, event);
            }
            Due::Synced { step, upto, result } => {
                server.is_copying &= step != server.finish;
                server.disk.synced = server.disk.synced.max(upto.min(server.disk.records.len()));
                self.event(n, Event::Persisted { step, result });
            }
            Due::Up => {
                if server.member.is_none() {
                    self.start(n);
                }
            }
        }
    }

    /// How everybody does.
    pub fn status(&self) -> String {
        let of = |server: &Server| server.member.as_ref().map(Member::status);
        self.servers.iter().filter_map(of).collect::<Vec<_>>().join("\n")
    }

    pub fn leader(&self) -> Option<usize> {
        let leads = |server: &Server| server.member.as_ref().is_some_and(Member::may_propose);
        let of = |(n, server): (usize, &Server)| {
            leads(server).then(|| (server.member.as_ref().map_or(0, Member::term), n))
        };
        self.servers.iter().enumerate().filter_map(of).max().map(|(_, n)| n)
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    pub fn member(&mut self, n: usize) -> Option<&mut Member> {
        self.servers[n].member.as_mut()
    }

    pub fn after_command(&mut self, n: usize) {
        self.run(n);
    }

    pub fn id(&self, n: usize) -> Uuid {
        self.servers[n].id
    }

    pub fn has_left(&self, n: usize) -> bool {
        self.servers[n].has_left
    }

    pub fn chance(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// Who is a member now has everything that was ever committed.
    pub fn check_converged(&self) {
        let end = *self.committed.keys().next_back().expect("something was committed");
        for (n, server) in self.servers.iter().enumerate() {
            let Some(member) = &server.member else { continue };
            if !member.is_member() {
                continue;
            }
            assert_eq!(server.applied_to, end, "server {n} has taken all in");
            let expected: BTreeMap<u64, Uuid> = self
                .committed
                .iter()
                .filter_map(|(index, (_, eid))| eid.map(|eid| (*index, eid)))
                .collect();
            for (index, eid) in &expected {
                assert_eq!(server.applied.get(index), Some(eid), "server {n} at index {index}");
            }
        }
    }
}

fn applied_of(data: &[u8]) -> BTreeMap<u64, Uuid> {
    let text = std::str::from_utf8(data).expect("text");
    let line = |line: &str| {
        let (index, eid) = line.split_once(' ').expect("two numbers");
        (index.parse().expect("a number"), Uuid::from_u128(eid.parse().expect("a number")))
    };
    text.lines().map(line).collect()
}
