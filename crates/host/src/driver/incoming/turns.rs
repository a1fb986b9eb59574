//! Whose turn it is to go on with a big message, where they come one by one.
//!
//! | a turn ends with | and then |
//! |---|---|
//! | the message, or the connection | it is the next one's turn |
//! | too little in a period, while others wait | so it is, and the client is late |
//! | [`TURN_US_MAX`] in all, while others wait | the same |
//! | the core, that wants no more of the client | the client waits again when it is wanted |
//!
//! Short messages come first, then the others in the order in which they began to wait. Who is late
//! has its turn when nobody else waits, and is the first to go where there is no room.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use weir_server::event::SessionId;

/// While others wait, at least [`TURN_BYTES_MIN`] must come in so long.
pub(super) const TURN_PERIOD_US: u64 = 500_000;

/// What must come in each [`TURN_PERIOD_US`], in bytes: 2 Mbit/s, below most networks.
pub(super) const TURN_BYTES_MIN: usize = 128 << 10;

/// A period has at least as many rounds of the loop. Who has sent enough is not late because the
/// loop was away, or the whole process was stopped.
pub(super) const TURN_ROUNDS_MIN: u32 = 8;

/// The longest turn, from when others began to wait.
pub(super) const TURN_US_MAX: u64 = 10_000_000;

/// In which order clients have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// What has come of the message is short.
    Short,
    Long,
    /// A turn of the client's has ended before the message.
    Late,
}

/// Who has the turn, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    holder: Option<Holder>,
    /// Clients that wait for a turn, the next one first.
    queue: BTreeMap<(Class, u64), SessionId>,
    places: BTreeMap<SessionId, (Class, u64)>,
    /// Places ever given out.
    given: u64,
    late: BTreeSet<SessionId>,
}

#[derive(Debug)]
struct Holder {
    id: SessionId,
    /// The client is not read until the core has done something: nothing is demanded of it.
    is_held_up: bool,
    /// Since others wait.
    contest: Option<Contest>,
}

/// What has come of a message while others wait.
#[derive(Debug)]
struct Contest {
    begun_us: u64,
    period_us: u64,
    /// What came in this period, and the rounds it has had.
    bytes: usize,
    rounds: u32,
}

impl Contest {
    fn new(now_us: u64) -> Self {
        Self { begun_us: now_us, period_us: now_us, bytes: 0, rounds: 0 }
    }
}

impl Turns {
    /// Whether it is the client's turn; so it is if nobody has it and nobody is before it.
    pub(super) fn take(&mut self, id: SessionId, class: Class, now_us: u64) -> bool {
        if let Some(holder) = &self.holder {
            return holder.id == id;
        }
        let class = self.class(id, class);
        let place = self.places.get(&id).copied().unwrap_or((class, u64::MAX));
        let is_first = self.queue.first_key_value().is_none_or(|(first, _)| *first >= place);
        if is_first {
            self.leave_queue(id);
            self.give(id, now_us);
        }
        is_first
    }

    fn class(&self, id: SessionId, class: Class) -> Class {
        if self.late.contains(&id) { Class::Late } else { class }
    }

    fn give(&mut self, id: SessionId, now_us: u64) {
        let contest = (!self.queue.is_empty()).then(|| Contest::new(now_us));
        self.holder = Some(Holder { id, is_held_up: false, contest });
    }

    /// The client is not read for now. The one whose turn it is keeps it.
    pub(super) fn wait(&mut self, id: SessionId, class: Class, now_us: u64) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.id == id) {
            holder.is_held_up = true;
            return;
        }
        if self.places.contains_key(&id) {
            return;
        }
        self.given += 1;
        let place = (self.class(id, class), self.given);
        self.queue.insert(place, id);
        self.places.insert(id, place);
        if let Some(holder) = &mut self.holder {
            holder.contest.get_or_insert_with(|| Contest::new(now_us));
        }
    }

    /// So many bytes have come of a client's message.
    #[inline]
    pub(super) fn note_read(&mut self, id: SessionId, bytes: usize) {
        if let Some(Holder { id: holder, contest: Some(contest), .. }) = &mut self.holder
            && *holder == id
        {
            contest.bytes += bytes;
        }
    }

    /// A client's message has ended, or the client is gone.
    pub(super) fn end(&mut self, id: SessionId) {
        self.stand_aside(id);
        self.late.remove(&id);
    }

    /// A client is not to be read for a reason of its own: it neither has the turn nor waits.
    pub(super) fn stand_aside(&mut self, id: SessionId) {
        if self.holder.as_ref().is_some_and(|holder| holder.id == id) {
            self.holder = None;
        }
        self.leave_queue(id);
    }

    fn leave_queue(&mut self, id: SessionId) {
        if let Some(place) = self.places.remove(&id) {
            self.queue.remove(&place);
            self.settle();
        }
    }

    /// Where nobody waits any more, nothing is demanded.
    fn settle(&mut self) {
        if let Some(holder) = self.holder.as_mut().filter(|_| self.queue.is_empty()) {
            holder.contest = None;
        }
    }

    /// When [`Turns::expire`] has something to do.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        let Holder { is_held_up: false, contest: Some(contest), .. } = self.holder.as_ref()? else {
            return None;
        };
        Some(contest.period_us + TURN_PERIOD_US)
    }

    /// Once a round: ends the turn of one who is late.
    pub(super) fn expire(&mut self, now_us: u64) {
        let Some(holder) = &mut self.holder else { return };
        let Some(contest) = holder.contest.as_mut().filter(|_| !holder.is_held_up) else { return };
        contest.rounds += 1;
        if now_us < contest.period_us + TURN_PERIOD_US || contest.rounds < TURN_ROUNDS_MIN {
            return;
        }
        let is_slow = contest.bytes < TURN_BYTES_MIN;
        if is_slow || now_us >= contest.begun_us + TURN_US_MAX {
            self.late.insert(holder.id);
            self.holder = None;
        } else {
            *contest = Contest { begun_us: contest.begun_us, ..Contest::new(now_us) };
        }
    }

    /// True while somebody is not read.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.holder.as_ref().is_some_and(|holder| holder.is_held_up)
    }

    /// Everybody who is not read.
    pub(super) fn waiting(&self) -> impl Iterator<Item = SessionId> {
        let held_up = self.holder.iter().filter(|holder| holder.is_held_up);
        held_up.map(|holder| holder.id).chain(self.queue.values().copied())
    }

    /// True when nobody has a turn, waits for one or is late.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty() && self.late.is_empty()
    }

    /// Who may be read from now on: the one whose turn it is, if it was held up, or the next one.
    pub(super) fn go_on(&mut self, now_us: u64) -> Option<SessionId> {
        if let Some(holder) = &mut self.holder {
            let is_resumed = mem::replace(&mut holder.is_held_up, false);
            if is_resumed {
                holder.contest = holder.contest.as_ref().map(|_| Contest::new(now_us));
            }
            return is_resumed.then_some(holder.id);
        }
        let (_, id) = self.queue.pop_first()?;
        self.places.remove(&id);
        self.give(id, now_us);
        Some(id)
    }

    /// The next of those who wait with a short message; it has no turn, and needs none.
    pub(super) fn pop_short(&mut self) -> Option<SessionId> {
        let first = self.queue.first_entry().filter(|first| first.key().0 == Class::Short)?;
        let id = first.remove();
        self.places.remove(&id);
        self.settle();
        Some(id)
    }

    /// Turns are needed no longer: everybody who waited.
    pub(super) fn dissolve(&mut self) -> Vec<SessionId> {
        let all = self.waiting().collect();
        self.holder = None;
        self.queue.clear();
        self.places.clear();
        all
    }

    /// Clients other than `id` whose turn has ended before their message.
    pub(super) fn late_besides(&self, id: SessionId) -> impl Iterator<Item = SessionId> {
        self.late.iter().copied().filter(move |late| *late != id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);

    /// A period, with as many rounds as it needs, in which `bytes` come from `id`.
    fn period(turns: &mut Turns, now_us: &mut u64, id: SessionId, bytes: usize) {
        turns.note_read(id, bytes);
        for _ in 0..TURN_ROUNDS_MIN {
            *now_us += TURN_PERIOD_US / u64::from(TURN_ROUNDS_MIN);
            turns.expire(*now_us);
        }
    }

    fn late(turns: &Turns) -> Vec<SessionId> {
        turns.late_besides(SessionId(0)).collect()
    }

    #[test]
    fn a_turn_without_others_never_ends() {
        let (mut turns, mut now_us) = (Turns::default(), 0);
        assert!(turns.take(A, Class::Long, now_us));
        for _ in 0..100 {
            period(&mut turns, &mut now_us, A, 1);
        }
        assert_eq!(turns.deadline_us(), None);
        assert!(turns.take(A, Class::Long, now_us));
        // From the moment at which others wait on.
        turns.wait(B, Class::Long, now_us);
        assert_eq!(turns.deadline_us(), Some(now_us + TURN_PERIOD_US));
        period(&mut turns, &mut now_us, A, TURN_BYTES_MIN);
        assert_eq!((turns.go_on(now_us), late(&turns)), (None, vec![]));
        period(&mut turns, &mut now_us, A, TURN_BYTES_MIN - 1);
        assert_eq!((turns.go_on(now_us), late(&turns)), (Some(B), vec![A]));
    }

    #[test]
    fn a_turn_of_which_others_wait_for_the_end_has_one() {
        let (mut turns, mut now_us) = (Turns::default(), 0);
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        let mut periods = 0;
        while turns.go_on(now_us).is_none() {
            period(&mut turns, &mut now_us, A, 1 << 20);
            periods += 1;
        }
        assert_eq!(periods, TURN_US_MAX / TURN_PERIOD_US);
        assert!(turns.take(B, Class::Long, now_us) && !turns.take(A, Class::Long, now_us));
    }

    #[test]
    fn a_loop_that_was_away_makes_nobody_late() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.expire(70_000_000);
        assert_eq!(late(&turns), []);
        turns.note_read(A, TURN_BYTES_MIN);
        (0..TURN_ROUNDS_MIN).for_each(|_| turns.expire(70_000_001));
        // In turn for another reason: this one has lasted for 70 s.
        assert_eq!(late(&turns), [A]);

        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.expire(5_000_000);
        turns.note_read(A, TURN_BYTES_MIN);
        (0..TURN_ROUNDS_MIN).for_each(|_| turns.expire(5_000_001));
        assert_eq!((late(&turns), turns.go_on(5_000_001)), (vec![], None));
    }

    #[test]
    fn short_ones_come_first_and_late_ones_last() {
        let (mut turns, mut now_us) = (Turns::default(), 0);
        turns.take(A, Class::Short, 0);
        turns.wait(B, Class::Long, 0);
        period(&mut turns, &mut now_us, A, 0);
        turns.wait(A, Class::Short, now_us);
        turns.wait(C, Class::Short, now_us);
        turns.wait(C, Class::Long, now_us);
        for expected in [C, B, A] {
            assert_eq!(turns.go_on(now_us), Some(expected));
            assert_eq!(turns.go_on(now_us), None);
            turns.end(expected);
        }
        assert!(!turns.has_waiting());
        // The message has ended: the next one of the same client is as good as any.
        assert_eq!(late(&turns), []);
    }

    #[test]
    fn nobody_takes_a_turn_before_those_who_wait() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.stand_aside(A);
        assert!(!turns.take(A, Class::Long, 0));
        assert!(turns.take(C, Class::Short, 0));
        turns.end(C);
        assert!(turns.take(B, Class::Long, 0));
        assert!(!turns.has_waiting());
    }

    #[test]
    fn who_is_held_up_by_the_core_is_not_late() {
        let (mut turns, mut now_us) = (Turns::default(), 0);
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.wait(A, Class::Long, 0);
        assert_eq!(turns.deadline_us(), None);
        (0..100).for_each(|_| period(&mut turns, &mut now_us, A, 0));
        assert_eq!(turns.waiting().collect::<Vec<_>>(), [A, B]);
        assert_eq!(turns.go_on(now_us), Some(A));
        assert_eq!(turns.deadline_us(), Some(now_us + TURN_PERIOD_US));
        assert_eq!(turns.dissolve(), [B]);
        assert!(turns.take(B, Class::Long, now_us));
    }

    #[test]
    fn those_with_short_messages_can_be_let_past() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.wait(C, Class::Short, 0);
        assert_eq!((turns.pop_short(), turns.pop_short()), (Some(C), None));
        assert_eq!(turns.waiting().collect::<Vec<_>>(), [B]);
    }
}
