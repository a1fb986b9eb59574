//! Which clients may go on with big messages, so that input has a bound.
//!
//! Messages on their way, and those that the core is at, count against one budget. As long as there
//! is not much of them everybody is read; then, who sends little, and one client that sends much,
//! in turns (see [`turns`](super::turns)). A message that is too long for what is left is passed
//! over. Where as much is here as may be, the one whose turn it is waits for what is at work, or
//! takes the place of a client whose turn has ended before its message.

use weir_server::event::SessionId;

use crate::driver::incoming::inbox::READ_BYTES;
use crate::driver::incoming::turns::{Class, Turns};

/// Bytes of messages on their way and at work, beyond which big ones arrive one by one; at most
/// half of what there may be of them. What is left is the longest that one may be.
pub const UNPARSED_BYTES_MAX: usize = 512 << 20;

/// A message of which less has come, in bytes, is short: it needs no turn, as long as there are
/// not many.
const SHORT_BYTES_MAX: usize = 1 << 20;

/// Short messages beyond `READ_BYTES` may be this part of what may be here without turns.
const SHORT_SHARE: usize = 8;

/// From time to time the core is told of those who are not read, so that it does not take them for
/// silent: less than half the shortest interval of probes.
const PULSE_US: u64 = 400_000;

/// What is to become of a client whose socket has something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client is read now.
    Read,
    /// The message is too long: it is passed over as it comes, and the client is read.
    PassOver,
    /// The client is read once the longest message of a client that is late, if there is one, has
    /// been let go.
    MakeRoom,
    /// The client is not read before [`Admission::take_resumed`] names it.
    Wait,
}

/// The budget and who waits for it.
pub(crate) struct Admission {
    turns: Turns,
    /// When the core was last told of those who are not read.
    pulse_us: u64,
    /// Input of all clients that is no message yet.
    held_bytes: usize,
    /// What of it is of short messages beyond `READ_BYTES`.
    short_bytes: usize,
    /// Messages that the core is at.
    core_bytes: usize,
    /// What input and messages at work may be together.
    input_bytes_max: usize,
}

impl Admission {
    /// Nobody sends yet; `input_bytes_max` is what all messages on their way and at work may take
    /// together.
    pub(crate) fn new(input_bytes_max: usize) -> Self {
        Self {
            turns: Turns::default(),
            pulse_us: 0,
            held_bytes: 0,
            short_bytes: 0,
            core_bytes: 0,
            input_bytes_max,
        }
    }

    /// What all messages on their way and at work may take together from now on.
    pub(crate) fn limit_input(&mut self, bytes_max: usize) {
        self.input_bytes_max = bytes_max;
    }

    /// The inbox of a client held `before` bytes and holds `after`.
    #[inline]
    pub(crate) fn note_held(&mut self, before: usize, after: usize) {
        assert!(self.held_bytes >= before, "what an inbox holds was counted when it came");
        self.held_bytes = self.held_bytes - before + after;
        self.short_bytes = self.short_bytes - short(before) + short(after);
    }

    /// A client was read, whose inbox held `before` bytes and holds `after`.
    #[inline]
    pub(crate) fn note_read(&mut self, id: SessionId, before: usize, after: usize) {
        self.note_held(before, after);
        self.turns.note_read(id, after - before);
    }

    /// So many bytes of messages are at work in the core.
    pub(crate) fn note_at_work(&mut self, bytes: usize) {
        self.core_bytes = bytes;
    }

    /// True when it matters how much is at work.
    pub(crate) fn has_big(&self) -> bool {
        self.held_bytes >= READ_BYTES
    }

    /// Whether a client may be read whose inbox holds `held` bytes.
    #[inline]
    pub(crate) fn judge(&mut self, id: SessionId, held: usize, now_us: u64) -> Verdict {
        if !self.is_crowded() || held < READ_BYTES {
            return Verdict::Read;
        }
        self.judge_big(id, held, now_us)
    }

    fn judge_big(&mut self, id: SessionId, held: usize, now_us: u64) -> Verdict {
        let class = if short(held) > 0 { Class::Short } else { Class::Long };
        if class == Class::Short && self.short_room() > 0 {
            return Verdict::Read;
        }
        if self.turns.take(id, class, now_us) {
            if held >= self.input_bytes_max - self.crowd_bytes() {
                return Verdict::PassOver;
            }
            if !self.is_full() {
                return Verdict::Read;
            }
            if self.core_bytes == 0 {
                return Verdict::MakeRoom;
            }
        }
        self.turns.wait(id, class, now_us);
        Verdict::Wait
    }

    /// Big messages arrive one by one while there is more than this on its way and at work.
    fn crowd_bytes(&self) -> usize {
        UNPARSED_BYTES_MAX.min(self.input_bytes_max / 2)
    }

    fn is_crowded(&self) -> bool {
        self.held_bytes + self.core_bytes > self.crowd_bytes()
    }

    fn is_full(&self) -> bool {
        self.held_bytes + self.core_bytes >= self.input_bytes_max
    }

    /// What more may come of short messages without turns, in bytes.
    fn short_room(&self) -> usize {
        if self.is_full() {
            return 0;
        }
        (self.crowd_bytes() / SHORT_SHARE).saturating_sub(self.short_bytes)
    }

    /// Clients other than `id` whose turn has ended before their message.
    pub(crate) fn late_besides(&self, id: SessionId) -> impl Iterator<Item = SessionId> {
        self.turns.late_besides(id)
    }

    /// A client has ended its message, has had it passed over, or is gone: its right to go on is
    /// another's.
    #[inline]
    pub(crate) fn give_up_right(&mut self, id: SessionId) {
        if !self.turns.is_empty() {
            self.turns.end(id);
        }
    }

    /// A client is not read for a reason that is not the budget's.
    pub(crate) fn stand_aside(&mut self, id: SessionId) {
        self.turns.stand_aside(id);
    }

    /// When the right to go on is to be taken from somebody, or the core is to be told of those who
    /// wait for it.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let pulse = self.has_paused().then_some(self.pulse_us + PULSE_US);
        self.turns.deadline_us().into_iter().chain(pulse).min()
    }

    /// True while somebody waits for others to be done.
    pub(crate) fn has_paused(&self) -> bool {
        self.turns.has_waiting()
    }

    /// Sessions that are not read although they have something to say, if it is time to tell of that.
    pub(crate) fn take_pulse(&mut self, now_us: u64) -> Vec<SessionId> {
        if now_us < self.pulse_us + PULSE_US {
            return Vec::new();
        }
        self.pulse_us = now_us;
        self.turns.waiting().collect()
    }

    /// Once a round: takes the right to go on from one who is late.
    pub(crate) fn expire(&mut self, now_us: u64) {
        self.turns.expire(now_us);
    }

    /// Clients that waited and may be read again. Who cannot be read stands aside, and others may
    /// take its place in the next call.
    pub(crate) fn take_resumed(&mut self, now_us: u64) -> Vec<SessionId> {
        if !self.is_crowded() {
            return self.turns.dissolve();
        }
        if self.is_full() && self.core_bytes > 0 {
            return Vec::new();
        }
        // Each reads at least so much.
        let short = self.short_room().div_ceil(READ_BYTES);
        let mut resumed: Vec<SessionId> = self.turns.go_on(now_us).into_iter().collect();
        resumed.extend((0..short).map_while(|_| self.turns.pop_short()));
        resumed
    }

    /// Input of all clients that is no message yet, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

/// What an inbox of `held` bytes counts among short messages.
#[inline]
fn short(held: usize) -> usize {
    if (READ_BYTES..SHORT_BYTES_MAX).contains(&held) { held } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::incoming::turns::{TURN_PERIOD_US, TURN_ROUNDS_MIN};

    const BIG: usize = 2 * READ_BYTES;

    /// So many clients have sent `BIG` bytes of a message each, numbered from 1.
    fn crowd(clients: u64, input_bytes_max: usize) -> (Admission, Vec<SessionId>) {
        let mut admission = Admission::new(input_bytes_max);
        let clients: Vec<SessionId> = (1..=clients).map(SessionId).collect();
        clients.iter().for_each(|_| admission.note_held(0, BIG));
        (admission, clients)
    }

    #[test]
    fn in_a_crowd_one_goes_on_and_who_sends_little() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], BIG, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[1], BIG, 0), Verdict::Wait);
        assert_eq!(admission.judge(clients[2], READ_BYTES - 1, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[0], BIG, 1), Verdict::Read);
        assert_eq!(admission.take_resumed(1), []);
        admission.give_up_right(clients[0]);
        assert_eq!(admission.take_resumed(1), [clients[1]]);
        assert!(!admission.has_paused());
    }

    #[test]
    fn without_a_crowd_everybody_goes_on() {
        let (mut admission, clients) = crowd(3, 6 * BIG);
        for id in clients {
            assert_eq!(admission.judge(id, BIG, 0), Verdict::Read);
        }
        assert_eq!(admission.deadline_us(), None);
    }

    #[test]
    fn who_is_late_loses_the_right_and_then_makes_room() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], BIG, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[1], BIG, 0), Verdict::Wait);
        (0..TURN_ROUNDS_MIN).for_each(|_| admission.expire(TURN_PERIOD_US));
        assert_eq!(admission.take_resumed(TURN_PERIOD_US), [clients[1]]);
        // As much is here as there may be, and nothing is at work.
        admission.note_held(0, BIG);
        assert_eq!(admission.judge(clients[1], BIG, TURN_PERIOD_US), Verdict::MakeRoom);
        assert_eq!(admission.late_besides(clients[1]).collect::<Vec<_>>(), [clients[0]]);
        // With something at work it waits for that.
        admission.note_at_work(1);
        assert_eq!(admission.judge(clients[1], BIG, TURN_PERIOD_US), Verdict::Wait);
    }

    #[test]
    fn a_message_that_is_too_long_for_what_is_left_is_passed_over() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], 2 * BIG, 0), Verdict::PassOver);
    }

    #[test]
    fn short_messages_go_past_the_long_ones_as_long_as_they_are_not_many() {
        let mut admission = Admission::new(64 << 20);
        let long: Vec<SessionId> = (1..=5).map(SessionId).collect();
        long.iter().for_each(|_| admission.note_held(0, 7 << 20));
        assert_eq!(admission.judge(long[0], 7 << 20, 0), Verdict::Read);
        for id in &long[1..] {
            assert_eq!(admission.judge(*id, 7 << 20, 0), Verdict::Wait);
        }
        // An eighth of the half, and one more that was let in before.
        let mut let_in = Vec::new();
        for id in (10..100).map(SessionId) {
            admission.note_held(0, READ_BYTES);
            if admission.judge(id, READ_BYTES, 0) == Verdict::Wait {
                break;
            }
            let_in.push(id);
        }
        assert_eq!(let_in.len(), (4 << 20) / READ_BYTES - 1);
        assert_eq!(admission.take_resumed(0), []);
        admission.note_held(2 * READ_BYTES, 0);
        let waiting = SessionId(10 + let_in.len() as u64);
        assert_eq!(admission.take_resumed(0), [waiting]);
    }

    #[test]
    fn the_core_hears_from_time_to_time_of_those_who_are_not_read() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], BIG, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[1], BIG, 0), Verdict::Wait);
        assert_eq!(admission.take_pulse(PULSE_US), [clients[1]]);
        assert_eq!(admission.take_pulse(2 * PULSE_US - 1), []);
        assert_eq!(admission.take_pulse(2 * PULSE_US), [clients[1]]);
    }
}
