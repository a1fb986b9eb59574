//! Which clients may go on with big messages, so that input has a bound.
//!
//! Messages on their way of which a read has come, and those that the core is at, count against one
//! budget. What is shorter does not count, and is bounded by the number of clients: nobody is let go
//! for it, so that thousands with so little would fill the budget for good.
//!
//! - As long as there is room, what comes too slowly (see [`unfinished`](super::unfinished)) is kept
//!   and costs nobody anything. Where there is none, the longest of it is let go, with its
//!   connection.
//! - As long as there is not much of the rest, everybody is read.
//! - Then there is a limit for a message: what of it comes before is read at once, what comes behind
//!   in turns (see [`turns`](super::turns)). The limit falls while the room shrinks, and never
//!   below [`FREE_BYTES`].
//! - A message that is too long for what is left is passed over.
//!
//! Where as much is here as may be, and nothing of it is late, the one whose turn it is waits for
//! what is at work. With nothing at work it goes on beyond the budget, until what all have beyond
//! [`FREE_BYTES`] and a read each is as much as the budget: then its message is passed over.

use weir_server::event::SessionId;

use crate::driver::incoming::inbox::READ_BYTES;
use crate::driver::incoming::turns::{Class, Turns};
use crate::driver::incoming::unfinished::{FREE_BYTES, Unfinished};

/// Bytes of messages on their way and at work, beyond which big ones arrive one by one; at most
/// half of what there may be of them. What is left is the longest that one may be.
pub const UNPARSED_BYTES_MAX: usize = 512 << 20;

/// A message of which less has come, in bytes, is short: it needs no turn, as long as there are
/// not many.
const SHORT_BYTES_MAX: usize = 1 << 20;

/// Short messages without turns may take this part of what one long message may.
const SHORT_SHARE: usize = 8;

/// One of them may have this part of what is left of that.
const ROOM_SHARE: usize = 64;

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
    /// There is no room: this client is let go, whose message is the longest of those that come too
    /// slowly. The caller asks again afterwards.
    LetGo(SessionId),
    /// The client is not read before [`Admission::take_resumed`] names it.
    Wait,
}

/// The budget and who waits for it.
pub(crate) struct Admission {
    turns: Turns,
    unfinished: Unfinished,
    /// When the core was last told of those who are not read.
    pulse_us: u64,
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
            unfinished: Unfinished::default(),
            pulse_us: 0,
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
    pub(crate) fn note_held(&mut self, id: SessionId, before: usize, after: usize) {
        if before != after && before.max(after) >= READ_BYTES {
            self.unfinished.note(id, before, after);
        }
    }

    /// A client was read, whose inbox held `before` bytes and holds `after`.
    #[inline]
    pub(crate) fn note_read(&mut self, id: SessionId, before: usize, after: usize) {
        self.note_held(id, before, after);
        self.turns.note_read(id, after - before);
    }

    /// Whether a client is read from now on when it sends something.
    pub(crate) fn note_watched(&mut self, id: SessionId, is_watched: bool) {
        self.unfinished.note_watched(id, is_watched);
    }

    /// A client has something to say, and is not read in this round for want of time.
    pub(crate) fn note_left(&mut self, id: SessionId) {
        self.unfinished.note_left(id);
        self.turns.note_left(id);
    }

    /// So many bytes of messages are at work in the core.
    pub(crate) fn note_at_work(&mut self, bytes: usize) {
        self.core_bytes = bytes;
    }

    /// True when it matters how much is at work.
    pub(crate) fn has_big(&self) -> bool {
        self.unfinished.bytes() > 0
    }

    /// Whether a client may be read whose inbox holds `held` bytes.
    #[inline]
    pub(crate) fn judge(&mut self, id: SessionId, held: usize, now_us: u64) -> Verdict {
        if !self.is_full() && (held < FREE_BYTES || !self.is_crowded()) {
            return Verdict::Read;
        }
        self.judge_big(id, held, now_us)
    }

    fn judge_big(&mut self, id: SessionId, held: usize, now_us: u64) -> Verdict {
        if self.is_full()
            && let Some(longest) = self.unfinished.longest_late()
        {
            return Verdict::LetGo(longest);
        }
        if held < self.short_bytes_max() {
            return Verdict::Read;
        }
        let class = match held {
            _ if self.unfinished.is_late(id) => Class::Late,
            ..SHORT_BYTES_MAX => Class::Short(held),
            _ => Class::Long,
        };
        if self.turns.take(id, class, now_us) {
            if held >= self.long_bytes_max() {
                return Verdict::PassOver;
            }
            if !self.is_full() {
                return Verdict::Read;
            }
            if self.core_bytes == 0 {
                let is_beyond = self.unfinished.beyond_bytes() >= self.input_bytes_max;
                return if is_beyond { Verdict::PassOver } else { Verdict::Read };
            }
        }
        self.turns.wait(id, class, now_us);
        Verdict::Wait
    }

    /// Big messages arrive one by one while there is more than this on its way and at work.
    fn crowd_bytes(&self) -> usize {
        UNPARSED_BYTES_MAX.min(self.input_bytes_max / 2)
    }

    /// No message may be longer.
    fn long_bytes_max(&self) -> usize {
        self.input_bytes_max - self.crowd_bytes()
    }

    /// What short messages may take without turns.
    fn short_share(&self) -> usize {
        self.long_bytes_max() / SHORT_SHARE
    }

    /// Short messages without turns may be so much more.
    fn short_room(&self) -> usize {
        (self.crowd_bytes() + self.short_share()).saturating_sub(self.brisk_bytes())
    }

    /// Of which less has come needs no turn.
    fn short_bytes_max(&self) -> usize {
        (self.short_room() / ROOM_SHARE).clamp(FREE_BYTES, SHORT_BYTES_MAX)
    }

    /// What is at work, or on its way and comes fast enough.
    fn brisk_bytes(&self) -> usize {
        self.all_bytes() - self.unfinished.late_bytes()
    }

    fn all_bytes(&self) -> usize {
        self.unfinished.bytes() + self.core_bytes
    }

    fn is_crowded(&self) -> bool {
        self.brisk_bytes() > self.crowd_bytes()
    }

    fn is_full(&self) -> bool {
        self.all_bytes() >= self.input_bytes_max
    }

    /// A client has ended its message, has had it passed over, or is gone: its right to go on is
    /// another's.
    #[inline]
    pub(crate) fn give_up_right(&mut self, id: SessionId) {
        if !self.turns.is_empty() {
            self.turns.stand_aside(id);
        }
    }

    /// A client is not read for a reason that is not the budget's.
    pub(crate) fn stand_aside(&mut self, id: SessionId) {
        self.turns.stand_aside(id);
    }

    /// When the right to go on is to be taken from somebody, or the core is to be told of those who
    /// wait for it.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        if !self.has_paused() {
            return None;
        }
        let others = [self.pulse_us + PULSE_US, self.unfinished.deadline_us()];
        self.turns.deadline_us().into_iter().chain(others).min()
    }

    /// True while somebody waits for others to be done.
    pub(crate) fn has_paused(&self) -> bool {
        self.turns.has_waiting()
    }

    /// True while it matters who sends too slowly.
    pub(crate) fn has_much(&self) -> bool {
        self.all_bytes() > self.crowd_bytes() || self.has_paused()
    }

    /// Sessions that are not read although they have something to say, if it is time to tell of that.
    pub(crate) fn take_pulse(&mut self, now_us: u64) -> Vec<SessionId> {
        if now_us < self.pulse_us + PULSE_US {
            return Vec::new();
        }
        self.pulse_us = now_us;
        self.turns.waiting().collect()
    }

    /// Once a round, while there is much: looks who is late, and takes the right to go on from one
    /// who is.
    pub(crate) fn expire(&mut self, now_us: u64) {
        if let Some(late) = self.turns.expire(now_us) {
            self.unfinished.mark_late(late);
        }
        self.unfinished.look(now_us);
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
        let bytes_max = self.short_bytes_max();
        // Each reads at least so much.
        let short = self.short_room().div_ceil(READ_BYTES);
        let mut resumed: Vec<SessionId> = self.turns.go_on(now_us).into_iter().collect();
        resumed.extend((0..short).map_while(|_| self.turns.pop_short(bytes_max)));
        resumed
    }

    /// What counts of the input of all clients that is no message yet, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.unfinished.bytes()
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
