//! Who may go on: one by one, and in worlds of clients that drip, fill their sockets and stop, send
//! as fast as they can, or send slowly.

use weir_testkit::rng::Rng;

use super::*;
use crate::driver::incoming::turns::TURN_US_MAX;
use crate::driver::incoming::unfinished::{PERIOD_BYTES_MIN, PERIOD_ROUNDS_MIN, PERIOD_US};

const MIB: usize = 1 << 20;

/// So many clients have sent `bytes` of a message each, numbered from 1.
fn crowd(clients: u64, bytes: usize, input_bytes_max: usize) -> (Admission, Vec<SessionId>) {
    let mut admission = Admission::new(input_bytes_max);
    let clients: Vec<SessionId> = (1..=clients).map(SessionId).collect();
    clients.iter().for_each(|id| admission.note_held(*id, 0, bytes));
    (admission, clients)
}

/// Periods until everybody is late who has something here and sends nothing.
fn silence(admission: &mut Admission, now_us: &mut u64) {
    for _ in 0..2 * PERIOD_ROUNDS_MIN {
        *now_us += PERIOD_US / u64::from(PERIOD_ROUNDS_MIN);
        admission.expire(*now_us);
    }
}

#[test]
fn in_a_crowd_one_goes_on_and_who_sends_little() {
    let (mut admission, clients) = crowd(3, 2 * MIB, 8 * MIB);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 0), Verdict::Read);
    assert_eq!(admission.judge(clients[1], 2 * MIB, 0), Verdict::Wait);
    assert_eq!(admission.judge(clients[2], FREE_BYTES - 1, 0), Verdict::Read);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 1), Verdict::Read);
    assert_eq!(admission.take_resumed(1), []);
    admission.give_up_right(clients[0]);
    assert_eq!(admission.take_resumed(1), [clients[1]]);
    assert!(!admission.has_paused());
}

#[test]
fn without_a_crowd_everybody_goes_on() {
    let (mut admission, clients) = crowd(3, 2 * MIB, 12 * MIB);
    for id in clients {
        assert_eq!(admission.judge(id, 2 * MIB, 0), Verdict::Read);
    }
    assert_eq!(admission.deadline_us(), None);
}

#[test]
fn those_who_send_nothing_are_no_crowd_and_are_let_go_when_there_is_no_room() {
    let (mut admission, clients) = crowd(3, 2 * MIB, 8 * MIB);
    let (mut now_us, last) = (0, SessionId(9));
    admission.note_held(clients[2], 2 * MIB, 3 * MIB);
    assert!(admission.has_much());
    silence(&mut admission, &mut now_us);
    // As good as alone, as long as there is room.
    admission.note_held(last, 0, MIB - 1);
    assert_eq!(admission.judge(last, MIB - 1, now_us), Verdict::Read);
    admission.note_held(last, MIB - 1, MIB);
    assert_eq!(admission.judge(SessionId(10), 0, now_us), Verdict::LetGo(clients[2]));
    admission.note_held(clients[2], 3 * MIB, 0);
    assert_eq!(admission.judge(SessionId(10), 0, now_us), Verdict::Read);
    assert_eq!(admission.judge(last, MIB, now_us), Verdict::Read);
}

#[test]
fn who_is_held_up_by_what_is_at_work_waits_for_it() {
    let (mut admission, clients) = crowd(1, 2 * MIB, 8 * MIB);
    admission.note_at_work(6 * MIB);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 0), Verdict::Wait);
    assert_eq!(admission.judge(SessionId(2), FREE_BYTES - 1, 0), Verdict::Read);
    assert_eq!(admission.take_resumed(0), []);
    admission.note_at_work(6 * MIB - 1);
    assert_eq!(admission.take_resumed(0), clients);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 0), Verdict::Read);
}

#[test]
fn a_message_that_is_too_long_for_what_is_left_is_passed_over() {
    let (mut admission, clients) = crowd(3, 2 * MIB, 8 * MIB);
    assert_eq!(admission.judge(clients[0], 4 * MIB, 0), Verdict::PassOver);
}

#[test]
fn a_message_is_passed_over_where_all_the_others_come_fast_enough() {
    let (mut admission, clients) = crowd(4, 2 * MIB, 8 * MIB);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 0), Verdict::Read);
    admission.note_held(clients[1], 2 * MIB, 3 * MIB);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 0), Verdict::PassOver);
}

#[test]
fn what_everybody_may_have_is_no_reason_to_pass_over_the_message_of_one() {
    let (mut admission, clients) = crowd(100, FREE_BYTES, 8 * MIB);
    let mut held = FREE_BYTES;
    while held < 3 * MIB {
        assert_eq!(admission.judge(clients[0], held, 0), Verdict::Read);
        admission.note_held(clients[0], held, held + READ_BYTES);
        held += READ_BYTES;
    }
}

#[test]
fn thousands_with_less_than_a_read_each_cost_nobody_anything() {
    // Half as much again as the budget of a small machine.
    let (mut admission, clients) = crowd(6144, READ_BYTES - 1, BUDGETS[1]);
    let (slow, mut now_us) = (SessionId(10_000), 0);
    admission.note_held(slow, 0, 2 * MIB);
    silence(&mut admission, &mut now_us);
    admission.note_at_work(MIB);
    assert_eq!(admission.judge(slow, 2 * MIB, now_us), Verdict::Read);
    assert!(!admission.has_much());
    // They count as they become longer, and no more when they are whole.
    for id in &clients {
        admission.note_held(*id, READ_BYTES - 1, READ_BYTES);
    }
    assert_eq!(admission.judge(clients[0], READ_BYTES, now_us), Verdict::LetGo(slow));
    for id in &clients {
        admission.note_held(*id, READ_BYTES, READ_BYTES - 1);
    }
    assert_eq!(admission.held_bytes(), 2 * MIB);
}

#[test]
fn short_messages_go_past_the_long_ones_as_long_as_they_are_not_many() {
    let (mut admission, long) = crowd(33, 16 * MIB, 1024 * MIB);
    assert_eq!(admission.judge(long[0], 16 * MIB, 0), Verdict::Read);
    for id in &long[1..] {
        assert_eq!(admission.judge(*id, 16 * MIB, 0), Verdict::Wait);
    }
    // Each has less than the one before, and the last of them no more than everybody may have.
    let mut limits = Vec::new();
    for id in (100..).map(SessionId) {
        let mut held = 0;
        while admission.judge(id, held, 0) == Verdict::Read {
            admission.note_held(id, held, held + READ_BYTES);
            held += READ_BYTES;
        }
        limits.push(held);
        if held == FREE_BYTES {
            break;
        }
    }
    assert!(limits.is_sorted_by(|one, next| one >= next), "{limits:?}");
    // 48 MiB for all; who goes on leaves 64 times as much for others.
    let sum: usize = limits.iter().sum();
    assert!((40 * MIB..48 * MIB).contains(&sum), "{sum}, {limits:?}");
    assert_eq!((limits[0] / READ_BYTES, limits.len() > 100), (12, true), "{limits:?}");
    // As the first one goes, the one with least goes on.
    assert_eq!(admission.take_resumed(0), []);
    admission.note_held(SessionId(100), limits[0], 0);
    admission.note_held(SessionId(101), limits[1], 0);
    admission.note_held(SessionId(102), limits[2], 0);
    let last = SessionId(99 + limits.len() as u64);
    assert_eq!(admission.take_resumed(0).first(), Some(&last));
}

#[test]
fn the_core_hears_from_time_to_time_of_those_who_are_not_read() {
    let (mut admission, clients) = crowd(3, 2 * MIB, 8 * MIB);
    assert_eq!(admission.judge(clients[0], 2 * MIB, 0), Verdict::Read);
    assert_eq!(admission.judge(clients[1], 2 * MIB, 0), Verdict::Wait);
    assert_eq!(admission.take_pulse(PULSE_US), [clients[1]]);
    assert_eq!(admission.take_pulse(2 * PULSE_US - 1), []);
    assert_eq!(admission.take_pulse(2 * PULSE_US), [clients[1]]);
}

/// What the socket of a client holds.
const SOCKET_BYTES: usize = 200_000;

/// A client with one message to send.
#[derive(Debug)]
struct Peer {
    kind: Kind,
    /// How long the message is; more than anybody sends, where it has no end.
    total: usize,
    sent: usize,
    socket: usize,
    held: usize,
    is_watched: bool,
    /// When the next bytes are sent.
    due_us: u64,
    begun_us: u64,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// So much as fast as it can, then a byte every 0.4 s.
    Drips(usize),
    /// So many bytes every 0.1 s.
    Slow(usize),
    /// As fast as it can, to the end.
    Fast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The message has come, so many us after it was begun.
    Whole(u64),
    PassedOver,
    LetGo,
}

/// A server that reads from such clients, and does what is asked of it at 200 MB/s.
struct World {
    admission: Admission,
    peers: Vec<Peer>,
    now_us: u64,
    core_bytes: usize,
    noise: Rng,
}

impl World {
    fn new(seed: u64, input_bytes_max: usize) -> Self {
        let admission = Admission::new(input_bytes_max);
        Self { admission, peers: vec![], now_us: 0, core_bytes: 0, noise: Rng::new(seed) }
    }

    fn join(&mut self, kind: Kind, total: usize) -> usize {
        let (due_us, begun_us) = (self.now_us, self.now_us);
        let (sent, socket, held, is_watched, end) = (0, 0, 0, true, None);
        let peer = Peer { kind, total, sent, socket, held, is_watched, due_us, begun_us, end };
        self.peers.push(peer);
        self.peers.len() - 1
    }

    /// Everybody sends what it can now.
    fn send(&mut self) {
        let now_us = self.now_us;
        for peer in self.peers.iter_mut().filter(|peer| peer.end.is_none()) {
            let (wanted, pause_us) = match peer.kind {
                Kind::Drips(begun) if peer.sent < begun => (begun - peer.sent, 0),
                Kind::Drips(_) => (1, 400_000),
                Kind::Slow(bytes) => (bytes, 100_000),
                Kind::Fast => (usize::MAX, 0),
            };
            let room = SOCKET_BYTES - peer.socket;
            let bytes = wanted.min(room).min(peer.total - peer.sent);
            if now_us >= peer.due_us && bytes > 0 {
                (peer.sent, peer.socket) = (peer.sent + bytes, peer.socket + bytes);
                peer.due_us = now_us + pause_us;
            }
        }
    }

    /// Whatever a client has here, it has no more.
    fn end(&mut self, at: usize, end: End) {
        let (id, peer) = (SessionId(at as u64), &mut self.peers[at]);
        self.admission.note_held(id, peer.held, 0);
        self.admission.give_up_right(id);
        (peer.held, peer.end) = (0, Some(end));
    }

    fn judge(&mut self, at: usize) -> bool {
        let id = SessionId(at as u64);
        loop {
            match self.admission.judge(id, self.peers[at].held, self.now_us) {
                Verdict::Read => return true,
                Verdict::Wait => {
                    self.peers[at].is_watched = false;
                    self.admission.note_watched(id, false);
                    return false;
                }
                Verdict::PassOver => {
                    self.end(at, End::PassedOver);
                    return false;
                }
                Verdict::LetGo(SessionId(longest)) => {
                    assert!(self.admission.is_full(), "somebody is let go although there is room");
                    self.end(longest as usize, End::LetGo);
                    if longest as usize == at {
                        return false;
                    }
                }
            }
        }
    }

    fn read(&mut self, at: usize) {
        if self.peers[at].end.is_some() || !self.judge(at) {
            return;
        }
        let peer = &mut self.peers[at];
        let bytes_max = if peer.held < FREE_BYTES { READ_BYTES } else { peer.held.min(MIB) };
        let bytes = bytes_max.min(peer.socket);
        self.admission.note_read(SessionId(at as u64), peer.held, peer.held + bytes);
        (peer.held, peer.socket) = (peer.held + bytes, peer.socket - bytes);
        // A gigabyte a second.
        self.now_us += bytes as u64 / 1000;
        if peer.held == peer.total {
            self.core_bytes += peer.held;
            let end = End::Whole(self.now_us - peer.begun_us);
            self.end(at, end);
        }
    }

    fn round(&mut self) {
        let begun_us = self.now_us;
        self.send();
        self.admission.note_at_work(self.core_bytes);
        let is_ready = |peer: &Peer| peer.is_watched && peer.socket > 0 && peer.end.is_none();
        let ready: Vec<usize> =
            (0..self.peers.len()).filter(|at| is_ready(&self.peers[*at])).collect();
        ready.iter().for_each(|at| self.read(*at));
        if self.admission.has_much() {
            self.admission.note_at_work(self.core_bytes);
            self.admission.expire(self.now_us);
            for SessionId(id) in self.admission.take_resumed(self.now_us) {
                self.peers[id as usize].is_watched = true;
                self.admission.note_watched(SessionId(id), true);
            }
            self.admission.take_pulse(self.now_us);
        }
        self.check_bounds();
        self.now_us += 10;
        // With nothing to read until somebody sends, or something is due; in steps of 5 ms.
        let deadline_us = self.admission.deadline_us().unwrap_or(u64::MAX);
        if !self.peers.iter().any(is_ready) && deadline_us > self.now_us {
            let sending = self.peers.iter().filter(|peer| peer.end.is_none());
            let next = sending.map(|peer| peer.due_us).min().unwrap_or(u64::MAX);
            let step_us = next.min(deadline_us).saturating_sub(self.now_us);
            self.now_us += step_us.clamp(5_000, 50_000);
        }
        let done = (self.now_us - begun_us) as usize * 200;
        self.core_bytes = self.core_bytes.saturating_sub(done);
    }

    /// What is here beyond what everybody may have is within the budget.
    fn check_bounds(&self) {
        let free = FREE_BYTES + READ_BYTES;
        let beyond: usize = self.peers.iter().map(|peer| peer.held.saturating_sub(free)).sum();
        let bound = self.admission.input_bytes_max + self.admission.short_share() + MIB;
        assert!(beyond + self.core_bytes <= bound.max(self.core_bytes), "{beyond} of {bound}");
        let counted = self.peers.iter().map(|peer| peer.held).filter(|held| *held >= READ_BYTES);
        let held: usize = counted.sum();
        assert_eq!(held, self.admission.held_bytes());
        assert_eq!(beyond, self.admission.unfinished.beyond_bytes());
    }

    /// So much time passes.
    fn pass(&mut self, us: u64) {
        let until_us = self.now_us + us;
        while self.now_us < until_us {
            self.round();
        }
    }

    /// Rounds until a client's message has come, at most for so long; how long it took.
    fn whole(&mut self, at: usize, us_max: u64) -> Option<u64> {
        let until_us = self.now_us + us_max;
        while self.peers[at].end.is_none() && self.now_us < until_us {
            self.round();
        }
        match self.peers[at].end {
            Some(End::Whole(us)) => Some(us),
            _ => None,
        }
    }
}

/// The budget of a machine of 24 GiB, and the least there is.
const BUDGETS: [usize; 2] = [6 << 30, 256 << 20];

#[test]
fn nobody_waits_with_100_kb_whatever_others_drip() {
    for seed in 1..=20 {
        let budget = BUDGETS[seed as usize % 2];
        let mut world = World::new(seed * 0x9e37_79b9, budget);
        // Of any lengths; together a part of the budget, or several times as much.
        let most = [130_000, MIB, 2 * MIB, budget / 20, budget][world.noise.below(5)];
        let mut left = budget / 100 * world.noise.between(10, 249);
        while left > 0 && world.peers.len() < 1500 {
            let bytes = world.noise.between(1, most - 1).min(left);
            left -= bytes;
            let (kind, total) = match world.noise.below(20) {
                0 => (Kind::Fast, bytes),
                1 => (Kind::Slow(bytes / 100 + 1), usize::MAX),
                _ => (Kind::Drips(bytes), usize::MAX),
            };
            world.join(kind, total);
            if world.noise.below(20) == 0 {
                world.pass(1000);
            }
        }
        let mut longest_us = 0;
        for _ in 0..30 {
            let rounds = world.noise.between(1, 199);
            (0..rounds).for_each(|_| world.round());
            let victim = world.join(Kind::Fast, 100_000);
            // It is read twice; others may be read before it in both rounds.
            (0..2).for_each(|_| world.round());
            let Some(End::Whole(us)) = world.peers[victim].end else {
                panic!("seed {seed}: {:?}", world.peers[victim])
            };
            longest_us = longest_us.max(us);
        }
        assert!(longest_us < 1_000_000, "seed {seed}: {longest_us} us");
    }
}

/// Whether a message comes as fast as its client sends: what its socket holds every 5 ms.
fn comes_at_once(world: &mut World, total: usize) -> bool {
    let victim = world.join(Kind::Fast, total);
    world.whole(victim, 20_000 + total as u64 / 30).is_some()
}

#[test]
fn what_drips_costs_nobody_anything_once_that_is_known() {
    let mixes = [
        (BUDGETS[0], vec![(1, 520_000_000), (80, 1_000_000)]),
        (BUDGETS[0], vec![(5, 120_000_000)]),
        (BUDGETS[1], vec![(1, 100_000_000), (80, 1_000_000)]),
        (BUDGETS[1], vec![(3, 60_000_000), (200, 120_000), (200, 70_000)]),
    ];
    for (budget, mix) in mixes {
        let mut world = World::new(1, budget);
        for (clients, bytes) in &mix {
            (0..*clients).for_each(|_| _ = world.join(Kind::Drips(*bytes), usize::MAX));
        }
        world.pass(10_000_000);
        for total in [100_000, 300_000, MIB, 3 * MIB, 50 * MIB] {
            assert!(comes_at_once(&mut world, total), "{total} bytes beside {mix:?} of {budget}");
            world.pass(100_000);
        }
    }
}

#[test]
fn short_messages_wait_for_nobody_while_hundreds_fill_their_sockets() {
    let mut world = World::new(1, BUDGETS[0]);
    (0..700).for_each(|_| _ = world.join(Kind::Drips(1_100_000), usize::MAX));
    world.pass(1_000_000);
    assert!(world.admission.is_crowded() && world.admission.has_paused());
    for total in [100_000, 300_000, 1_000_000].into_iter().cycle().take(30) {
        assert!(comes_at_once(&mut world, total), "{total} bytes");
        world.pass(1_000_000);
    }
    assert!(world.peers.iter().all(|peer| peer.end != Some(End::LetGo)), "there is room");
}

#[test]
fn many_fast_clients_are_all_heard_to_the_end_beside_those_who_drip() {
    for budget in BUDGETS {
        let mut world = World::new(1, budget);
        for _ in 0..100 {
            world.join(Kind::Drips(budget / 300), usize::MAX);
        }
        let fast: Vec<usize> = (1..60).map(|n| world.join(Kind::Fast, n * budget / 1000)).collect();
        let mut waited_us = 0;
        while fast.iter().any(|at| world.peers[*at].end.is_none()) {
            world.pass(1_000_000);
            waited_us += 1_000_000;
            assert!(waited_us < 40 * TURN_US_MAX);
        }
        for at in fast {
            assert!(matches!(world.peers[at].end, Some(End::Whole(_))), "{:?}", world.peers[at]);
        }
    }
}

#[test]
fn a_slow_line_gets_its_message_through_as_long_as_there_is_room() {
    let mut world = World::new(1, BUDGETS[0]);
    for bytes in [520_000_000].into_iter().chain([1_000_000; 80]) {
        world.join(Kind::Drips(bytes), usize::MAX);
    }
    // 100 KB/s.
    let slow = world.join(Kind::Slow(10_000), 50_000_000);
    let mut others = 0;
    while world.peers[slow].end.is_none() {
        let other = world.join(Kind::Fast, 20_000_000);
        assert!(world.whole(other, 2_000_000).is_some(), "{:?}", world.peers[other]);
        others += 1;
        world.pass(20_000_000);
        assert!(world.now_us < 600_000_000, "{:?}", world.peers[slow]);
    }
    assert!(matches!(world.peers[slow].end, Some(End::Whole(_))), "{:?}", world.peers[slow]);
    assert!(others > 20 && PERIOD_BYTES_MIN > 5 * 10_000);
}
