//! Messages of which a good part has come, and which of them come too slowly.
//!
//! While much is here, everybody who may send is looked at once a period: who has brought less than
//! [`PERIOD_BYTES_MIN`] of its message in it is late, until it brings as much again. Who is not read
//! for a reason that is not its own is not looked at.

use std::collections::{BTreeMap, BTreeSet};

use weir_server::event::SessionId;

use crate::driver::incoming::inbox::READ_BYTES;

/// Whoever has sent less of a message than this, in bytes, never waits for others.
pub(crate) const FREE_BYTES: usize = 128 << 10;

/// How long a client has time to bring [`PERIOD_BYTES_MIN`].
pub(super) const PERIOD_US: u64 = 500_000;

/// What must come in each [`PERIOD_US`], in bytes: 2 Mbit/s, below most networks.
pub(super) const PERIOD_BYTES_MIN: usize = 128 << 10;

/// A period has at least as many rounds of the loop. Who has sent enough is not late because the
/// loop was away, or the whole process was stopped.
pub(super) const PERIOD_ROUNDS_MIN: u32 = 8;

/// All messages of which at least `READ_BYTES` have come, and not the end.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    parts: BTreeMap<SessionId, Part>,
    /// What is here of all of them.
    bytes: usize,
    /// Who is late, by the length of what is here.
    late: BTreeSet<(usize, SessionId)>,
    late_bytes: usize,
    /// What is here beyond what everybody may have.
    beyond_bytes: usize,
    /// When the period began, and the rounds it has had.
    period_us: u64,
    rounds: u32,
}

#[derive(Debug)]
struct Part {
    bytes: usize,
    /// What of it came in this period.
    brought: usize,
    /// The socket is watched for more.
    may_send: bool,
    /// So it was for all of this period.
    could_send: bool,
    is_late: bool,
}

impl Unfinished {
    /// What a client has here of a message was `before` bytes long, and is `after`: if that is less,
    /// a message has ended, and what is left is another one's.
    pub(super) fn note(&mut self, id: SessionId, before: usize, after: usize) {
        let counted = self.parts.get(&id).map_or(0, |part| part.bytes);
        let is_counted = counted == if before < READ_BYTES { 0 } else { before };
        assert!(is_counted, "what an inbox holds was counted when it came");
        if after < before {
            self.forget(id);
        }
        if after < READ_BYTES {
            return;
        }
        let fresh =
            Part { bytes: 0, brought: 0, may_send: true, could_send: false, is_late: false };
        let part = self.parts.entry(id).or_insert(fresh);
        part.brought += after - part.bytes;
        self.bytes += after - part.bytes;
        let (is_late, brought) = (part.is_late, part.brought);
        self.beyond_bytes = self.beyond_bytes - beyond(part.bytes) + beyond(after);
        self.set_late(id, false);
        self.parts.get_mut(&id).expect("it was entered").bytes = after;
        self.set_late(id, is_late && brought < PERIOD_BYTES_MIN);
    }

    fn forget(&mut self, id: SessionId) {
        self.set_late(id, false);
        if let Some(part) = self.parts.remove(&id) {
            self.bytes -= part.bytes;
            self.beyond_bytes -= beyond(part.bytes);
        }
    }

    /// Whether a client is read from now on when it sends something.
    pub(super) fn note_watched(&mut self, id: SessionId, may_send: bool) {
        if let Some(part) = self.parts.get_mut(&id) {
            part.may_send = may_send;
            part.could_send &= may_send;
        }
    }

    /// A client could not send all that it wanted in this period.
    pub(super) fn note_left(&mut self, id: SessionId) {
        if let Some(part) = self.parts.get_mut(&id) {
            part.could_send = false;
        }
    }

    /// A client has sent too little when it was its turn.
    pub(super) fn mark_late(&mut self, id: SessionId) {
        if let Some(part) = self.parts.get_mut(&id) {
            part.brought = 0;
        }
        self.set_late(id, true);
    }

    fn set_late(&mut self, id: SessionId, is_late: bool) {
        // Of a client that has just begun, or whose message has ended in an error, too little is here.
        let Some(part) = self.parts.get_mut(&id) else { return };
        if part.is_late == is_late {
            return;
        }
        part.is_late = is_late;
        if is_late {
            self.late.insert((part.bytes, id));
            self.late_bytes += part.bytes;
        } else {
            self.late.remove(&(part.bytes, id));
            self.late_bytes -= part.bytes;
        }
    }

    /// Once a round, while much is here: where the period is over, says who is late.
    pub(super) fn look(&mut self, now_us: u64) {
        self.rounds = self.rounds.saturating_add(1);
        if now_us < self.deadline_us() || self.rounds < PERIOD_ROUNDS_MIN {
            return;
        }
        (self.period_us, self.rounds) = (now_us, 0);
        let mut slow = Vec::new();
        for (id, part) in &mut self.parts {
            if part.could_send && part.brought < PERIOD_BYTES_MIN {
                slow.push(*id);
            }
            part.brought = 0;
            part.could_send = part.may_send;
        }
        slow.into_iter().for_each(|id| self.set_late(id, true));
    }

    /// When [`Unfinished::look`] has something to do.
    pub(super) fn deadline_us(&self) -> u64 {
        self.period_us + PERIOD_US
    }

    pub(super) fn is_late(&self, id: SessionId) -> bool {
        self.parts.get(&id).is_some_and(|part| part.is_late)
    }

    /// What is here of messages, in bytes; of those of which less than `READ_BYTES` has come it is
    /// not counted.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is here of messages that are late, in bytes.
    #[inline]
    pub(super) fn late_bytes(&self) -> usize {
        self.late_bytes
    }

    /// What is here of messages beyond [`FREE_BYTES`] and a read of each, in bytes.
    pub(super) fn beyond_bytes(&self) -> usize {
        self.beyond_bytes
    }

    /// Who is late with the longest message.
    pub(super) fn longest_late(&self) -> Option<SessionId> {
        self.late.last().map(|(_, id)| *id)
    }
}

fn beyond(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES + READ_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const MUCH: usize = 1 << 20;

    /// As many rounds as a period needs.
    fn period(unfinished: &mut Unfinished, now_us: &mut u64) {
        for _ in 0..PERIOD_ROUNDS_MIN {
            *now_us += PERIOD_US.div_ceil(u64::from(PERIOD_ROUNDS_MIN));
            unfinished.look(*now_us);
        }
    }

    #[test]
    fn who_brings_too_little_is_late_until_it_brings_enough() {
        let (mut unfinished, mut now_us) = (Unfinished::default(), 0);
        unfinished.note(A, 0, MUCH);
        unfinished.note(B, 0, 2 * MUCH);
        period(&mut unfinished, &mut now_us);
        assert_eq!(unfinished.longest_late(), None, "it was not there for a whole period");
        unfinished.note(A, MUCH, MUCH + PERIOD_BYTES_MIN);
        unfinished.note(B, 2 * MUCH, 2 * MUCH + 1);
        period(&mut unfinished, &mut now_us);
        assert_eq!(unfinished.longest_late(), Some(B));
        period(&mut unfinished, &mut now_us);
        assert_eq!(unfinished.late_bytes(), 3 * MUCH + PERIOD_BYTES_MIN + 1);
        unfinished.note(B, 2 * MUCH + 1, 2 * MUCH + PERIOD_BYTES_MIN);
        assert_eq!(unfinished.longest_late(), Some(B), "a byte less than enough");
        unfinished.note(B, 2 * MUCH + PERIOD_BYTES_MIN, 2 * MUCH + PERIOD_BYTES_MIN + 1);
        assert_eq!(unfinished.longest_late(), Some(A));
        // The message has ended, and another one has begun.
        unfinished.note(A, MUCH + PERIOD_BYTES_MIN, MUCH);
        assert_eq!((unfinished.longest_late(), unfinished.late_bytes()), (None, 0));
    }

    #[test]
    fn who_is_not_read_is_not_late() {
        let (mut unfinished, mut now_us) = (Unfinished::default(), 0);
        unfinished.note(A, 0, MUCH);
        period(&mut unfinished, &mut now_us);
        unfinished.note_watched(A, false);
        (0..9).for_each(|_| period(&mut unfinished, &mut now_us));
        assert_eq!(unfinished.longest_late(), None);
        unfinished.note_watched(A, true);
        period(&mut unfinished, &mut now_us);
        assert_eq!(unfinished.longest_late(), None);
        unfinished.note_left(A);
        period(&mut unfinished, &mut now_us);
        assert_eq!(unfinished.longest_late(), None);
        period(&mut unfinished, &mut now_us);
        assert_eq!(unfinished.longest_late(), Some(A));
    }

    #[test]
    fn a_loop_that_was_away_makes_nobody_late() {
        let (mut unfinished, mut now_us) = (Unfinished::default(), 0);
        unfinished.note(A, 0, MUCH);
        period(&mut unfinished, &mut now_us);
        now_us += 70_000_000;
        unfinished.look(now_us);
        assert_eq!(unfinished.longest_late(), None);
        unfinished.note(A, MUCH, 2 * MUCH);
        (0..PERIOD_ROUNDS_MIN).for_each(|_| unfinished.look(now_us));
        assert_eq!(unfinished.longest_late(), None);
    }
}
