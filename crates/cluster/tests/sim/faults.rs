//! What goes wrong, and what operators do meanwhile, at random.

use super::forgetting::Forgets;
use super::rng::Rng;
use super::shell::Server;
use super::world::World;

/// How likely things are: one in so many milliseconds, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The power of a server goes for a while.
    pub crash: u64,
    /// Milliseconds that it is gone at most then, and fifty more.
    pub down: u64,
    /// The power of a server goes for up to a minute.
    pub away: u64,
    /// A server hears nothing of another one.
    pub cut: u64,
    /// A connection ends.
    pub reset: u64,
    /// A server hears nothing long of another one; or a connection goes silent both ways. What is silent ends
    /// after two seconds, also where it is cut.
    pub silence: u64,
    /// Nobody answers attempts to connect to who is down, or where a cut is; they are refused otherwise.
    pub is_dark: bool,
    /// A file is compacted.
    pub compact: u64,
    /// A file is copied.
    pub copy: u64,
    /// A server's file is not what it was when it comes back.
    pub forget: u64,
    /// A write to a disk fails: one in so many writes.
    pub disk: u64,
    /// An fdatasync(2) fails: one in so many.
    pub suspect: u64,
    /// A disk is full for up to ten seconds.
    pub full: u64,
    /// A disk answers nothing for up to five seconds.
    pub hang: u64,
    /// A server has no room for entries, or has some again.
    pub room: u64,
    /// A piece of a snapshot cannot be read, or its data not loaded: one in so many.
    pub snapshot: u64,
    /// A process stands still, for up to three seconds.
    pub pause: u64,
    /// A server's clock jumps ahead, by up to twenty seconds.
    pub jump: u64,
    /// A server is made that wants to join.
    pub join: u64,
    /// A member leaves.
    pub leave: u64,
    /// A member is removed by another one.
    pub kick: u64,
    /// Members are removed that were silent for so many milliseconds.
    pub removal_ms: Option<u64>,
    /// A member comes back at another address.
    pub moves: u64,
    /// The leader hands leadership over.
    pub hand_over: u64,
    /// The election timer is changed.
    pub timer: u64,
    /// Milliseconds that messages take at most.
    pub delay: u64,
    /// Milliseconds that fdatasync takes at most.
    pub sync: u64,
    /// A write is up to 1.5 MB long: one in so many.
    pub long: u64,
    /// Whether the same older copy of a file may come again, though its server has been another one since.
    pub forgets_again: bool,
    /// Bytes of a snapshot's data beside what it says.
    pub padding: usize,
}

/// So many servers are there at most, gone ones included.
const SERVERS_MAX: usize = 9;

/// Election timers that operators choose between, in milliseconds.
const TIMERS: std::ops::Range<u64> = 250..4000;

fn happens(rng: &mut Rng, rate: u64) -> bool {
    rate > 0 && rng.one_in(rate)
}

impl World {
    /// Something goes wrong, perhaps.
    pub(super) fn misfortune(&mut self) {
        let f = self.faults;
        if self.must_be_careful() {
            return;
        }
        if happens(&mut self.rng, f.copy) {
            let n = self.some_server();
            self.copy_file(n);
        }
        if happens(&mut self.rng, f.forget) {
            let (n, is_old) = (self.some_server(), self.rng.one_in(2));
            self.forget(n, if is_old { Forgets::OlderCopy } else { Forgets::BadRecord });
        }
        if happens(&mut self.rng, f.crash) {
            let n = self.some_server();
            self.crash(n, f.down);
        }
        if happens(&mut self.rng, f.away) {
            let n = self.some_server();
            self.crash(n, 60_000);
        }
        if happens(&mut self.rng, f.cut) {
            let pair = (self.some_server(), self.some_server());
            if self.network.cut.len() < 3 && pair.0 != pair.1 {
                self.tell(format!("cut {pair:?}"));
                self.network.cut.insert(pair);
            } else {
                self.heal();
            }
        }
        if happens(&mut self.rng, f.reset) && !self.network.ends.is_empty() {
            let at = self.rng.below(self.network.ends.len() as u64) as usize;
            let end = *self.network.ends.keys().nth(at).expect("it is one of them");
            self.break_connection(end);
        }
        if happens(&mut self.rng, f.silence) && !self.network.ends.is_empty() {
            let at = self.rng.below(self.network.ends.len() as u64) as usize;
            let (end, other) = self.network.ends.iter().nth(at).expect("it is one of them");
            let (end, other) = (*end, *other);
            if self.rng.one_in(2) {
                self.tell(format!("a connection of {} and {} is silent", end.server, other.server));
                self.go_silent(end);
                self.go_silent(other);
            } else if self.network.narrow.len() < 3 {
                let (pair, most) = ((end.server, other.server), 50 + self.rng.below(300) as usize);
                self.tell(format!("what is longer than {most} is lost: {pair:?}"));
                self.network.narrow.insert(pair, most);
            } else {
                self.network.narrow.clear();
            }
        }
        if happens(&mut self.rng, f.compact) {
            let n = self.some_server();
            self.compact(n);
        }
        if happens(&mut self.rng, f.full) {
            let n = self.some_server();
            let ms = self.rng.below(10_000);
            self.fill(n, ms);
        }
        if happens(&mut self.rng, f.hang) {
            let n = self.some_server();
            let ms = self.rng.below(5000);
            self.hang(n, ms);
        }
        if happens(&mut self.rng, f.room) {
            let (n, has_room) = (self.some_server(), self.rng.one_in(2));
            self.tell(format!("{n} takes entries: {has_room}"));
            if let Some(member) = self.awake(n) {
                member.take_entries(has_room);
            }
        }
        if happens(&mut self.rng, f.pause) {
            let n = self.some_server();
            let until = self.now_us + 1000 * self.rng.below(3000) + 7;
            self.pause(n, until);
        }
        if happens(&mut self.rng, f.jump) {
            let n = self.some_server();
            let by_us = 1000 * self.rng.below(20_000);
            self.tell(format!("the clock of {n} jumps by {by_us}"));
            self.servers[n].ahead_us += by_us;
        }
        self.operators(f);
    }

    fn operators(&mut self, f: Faults) {
        if happens(&mut self.rng, f.join) && self.servers.len() < SERVERS_MAX {
            let n = self.add_joiner();
            self.tell(format!("server {n} wants to join"));
            self.start(n);
        }
        if happens(&mut self.rng, f.leave)
            && let n = self.some_server()
            && self.may_go(n)
        {
            let (now_us, id) = (self.clock(n), self.servers[n].id);
            if let Some(member) = self.awake(n).filter(|member| member.is_member()) {
                member.leave(now_us);
                self.told_to_go.insert(id);
                self.tell(format!("{n} is to leave"));
                self.run(n);
            }
        }
        if happens(&mut self.rng, f.kick)
            && let (n, whom) = (self.some_server(), self.some_server())
            && self.may_go(whom)
        {
            let (now_us, id) = (self.clock(n), self.servers[whom].id);
            if let Some(member) = self.awake(n).filter(|it| it.servers().contains_key(&id)) {
                member.kick(now_us, id);
                self.told_to_go.insert(id);
                self.tell(format!("{whom} is to go, says {n}"));
                self.run(n);
            }
        }
        if happens(&mut self.rng, f.moves) {
            let n = self.some_server();
            self.move_server(n);
        }
        if happens(&mut self.rng, f.hand_over) {
            let n = self.some_server();
            let now_us = self.clock(n);
            if let Some(member) = self.awake(n) {
                member.hand_over(now_us);
                self.run(n);
            }
        }
        if happens(&mut self.rng, f.timer)
            && let Some(n) = self.leader()
        {
            let ms = TIMERS.start + self.rng.below(TIMERS.end - TIMERS.start);
            let now_us = self.clock(n);
            if let Some(member) = self.awake(n) {
                // Whether it is refused is for other tests.
                let _ = member.change_election_timer(now_us, ms);
                self.run(n);
            }
        }
    }

    /// The power goes at a member, and comes back where it has another address. Where several move before the others
    /// have taken that up, nobody may find anybody: one does, whose file says where they are.
    fn move_server(&mut self, n: usize) {
        let id = self.servers[n].id;
        let is_up = self.servers[n].member.is_some();
        if !is_up || !self.all_are_where_they_are_known() || self.told_to_go.contains(&id) {
            return;
        }
        self.crash(n, self.faults.down);
        let members = self.checks.last_servers();
        let known = self.servers[n].disk.servers(id);
        if !members.contains_key(&id) || known.as_ref() != Some(members) {
            return;
        }
        self.checks.counts.moves += 1;
        let address = format!("tcp:10.1.{}.{}:6643", self.checks.counts.moves, n + 1);
        self.tell(format!("{n} moves to {address}"));
        self.servers[n].address = address;
        // An older file names an address at which nobody looks for it.
        self.servers[n].image = None;
    }

    /// Whether a server is no member, or listens where the list of members says.
    pub(super) fn is_where_it_is_known(&self, server: &Server) -> bool {
        let known = self.checks.last_servers().get(&server.id);
        known.is_none_or(|known| *known == server.address)
    }

    pub(super) fn all_are_where_they_are_known(&self) -> bool {
        self.servers.iter().all(|server| server.has_left || self.is_where_it_is_known(server))
    }

    /// Whether a server may go: three stay, without those that have been told to go.
    fn may_go(&self, n: usize) -> bool {
        let servers = self.checks.last_servers();
        if self.told_to_go.contains(&self.servers[n].id) {
            return true;
        }
        let staying = servers.keys().filter(|id| !self.told_to_go.contains(*id)).count();
        let known = self.servers.iter().filter(|server| !server.has_left);
        let is_up = known.filter(|server| servers.contains_key(&server.id)).count();
        // Who has moved may find nobody but the one that goes.
        staying > 3 && is_up == servers.len() && self.all_are_where_they_are_known()
    }

    fn some_server(&mut self) -> usize {
        self.rng.below(self.servers.len() as u64) as usize
    }

    /// The disk of a server is full for so long.
    pub fn fill(&mut self, n: usize, ms: u64) {
        self.tell(format!("the disk of {n} is full for {ms} ms"));
        self.servers[n].full_until = self.now_us + 1000 * ms;
    }

    /// The disk of a server answers nothing for so long, and does what it is asked.
    pub fn hang(&mut self, n: usize, ms: u64) {
        self.tell(format!("the disk of {n} answers nothing for {ms} ms"));
        let until = self.now_us + 1000 * ms;
        self.servers[n].synced_at = self.servers[n].synced_at.max(until);
    }

    /// A server hears nobody, and nobody hears it, until [`World::heal`].
    pub fn cut_off(&mut self, n: usize) {
        self.tell(format!("cut off {n}"));
        let others = (0..self.servers.len()).filter(|other| *other != n);
        self.network.cut.extend(others.flat_map(|other| [(n, other), (other, n)]));
    }

    /// No more faults; whoever is down comes up.
    pub fn calm(&mut self) {
        let delay = self.faults.delay.min(2);
        self.faults = Faults { delay, sync: 2, ..Faults::default() };
        self.heal();
        self.tell("calm".to_owned());
        for n in 0..self.servers.len() {
            self.servers[n].full_until = 0;
            if let Some(member) = &mut self.servers[n].member {
                member.take_entries(true);
            }
            self.start(n);
        }
    }
}
