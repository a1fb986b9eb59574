//! Whose turn it is to go on with a big message, where they come one by one.
//!
//! | a turn ends with | and then |
//! |---|---|
//! | the message, or the connection | it is the next one's turn |
//! | an empty socket, of one that had the time to fill it | so it is, and the client is late |
//! | too little in a period, while others wait | the same |
//! | [`TURN_US_MAX`] in all, while others wait | the same |
//! | the core, that wants no more of the client | the client waits again when it is wanted |
//!
//! Short messages come first, then the others in the order in which they began to wait. Who is late
//! has its turn when nobody else waits.

use std::collections::BTreeMap;
use std::mem;

use weir_server::event::SessionId;

use crate::driver::incoming::unfinished::{PERIOD_BYTES_MIN, PERIOD_ROUNDS_MIN, PERIOD_US};

/// The longest turn, from when others began to wait, without the time in which the core held it up
/// and for the most part without that in which the loop was away.
pub(super) const TURN_US_MAX: u64 = 10_000_000;

/// What the socket of a client holds, in bytes, that has waited for its turn and sends as fast as it
/// can: less than the smallest buffers.
const OWED_BYTES_MAX: u64 = 16 << 10;

/// In which order clients have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// What has come of the message is short; those with less of it come first.
    Short(usize),
    Long,
    /// The client sends too slowly.
    Late,
}

/// Who has the turn, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    holder: Option<Holder>,
    /// Clients that wait for a turn, the next one first, and since when.
    queue: BTreeMap<Place, (SessionId, u64)>,
    places: BTreeMap<SessionId, Place>,
    /// Places ever given out.
    given: u64,
}

type Place = (Class, u64);

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
    /// How long it lasts already, and until when that is counted.
    spent_us: u64,
    counted_us: u64,
    period_us: u64,
    /// What came in this period.
    bytes: usize,
    /// Rounds of this period since the client was left for want of time.
    rounds: u32,
    /// What must come at once.
    owed_bytes: usize,
}

impl Contest {
    fn new(now_us: u64) -> Self {
        let (spent_us, bytes, rounds, owed_bytes) = (0, 0, 0, 0);
        Self { spent_us, counted_us: now_us, period_us: now_us, bytes, rounds, owed_bytes }
    }

    /// Another period of the same turn.
    fn renew(&mut self, now_us: u64) {
        *self = Self { spent_us: self.spent_us, ..Self::new(now_us) };
    }

    /// One round more. Counts no more than a period for it: the loop may have been away.
    fn count_round(&mut self, now_us: u64) {
        self.spent_us += (now_us - self.counted_us).min(PERIOD_US);
        self.counted_us = now_us;
        self.rounds += 1;
    }

    /// Whether too little has come, or the turn has lasted for too long.
    fn is_lost(&self, now_us: u64) -> bool {
        let due_bytes = if self.is_over(now_us) { PERIOD_BYTES_MIN } else { self.owed_bytes };
        let is_late = self.rounds >= PERIOD_ROUNDS_MIN && self.bytes < due_bytes;
        is_late || self.spent_us >= TURN_US_MAX
    }

    fn is_over(&self, now_us: u64) -> bool {
        now_us >= self.period_us + PERIOD_US
    }
}

/// What one must bring at once that has waited for so long.
fn owed_bytes(waited_us: u64) -> usize {
    let sent = (PERIOD_BYTES_MIN as u64).saturating_mul(waited_us) / PERIOD_US;
    sent.min(OWED_BYTES_MAX) as usize
}

impl Turns {
    /// Whether it is the client's turn; so it is if nobody has it and nobody is before it.
    pub(super) fn take(&mut self, id: SessionId, class: Class, now_us: u64) -> bool {
        if let Some(holder) = &self.holder {
            return holder.id == id;
        }
        let place = self.places.get(&id).copied().unwrap_or((class, u64::MAX));
        let is_first = self.queue.first_key_value().is_none_or(|(first, _)| *first >= place);
        if is_first {
            self.leave_queue(id);
            self.give(id, now_us, now_us);
        }
        is_first
    }

    fn give(&mut self, id: SessionId, since_us: u64, now_us: u64) {
        let owed_bytes = owed_bytes(now_us - since_us);
        let contest =
            (!self.queue.is_empty()).then(|| Contest { owed_bytes, ..Contest::new(now_us) });
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
        let place = (class, self.given);
        self.queue.insert(place, (id, now_us));
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

    /// The client was not read in this round, although it has sent something. That excuses missing
    /// bytes, and makes the turn no longer.
    pub(super) fn note_left(&mut self, id: SessionId) {
        if let Some(Holder { id: holder, contest: Some(contest), .. }) = &mut self.holder
            && *holder == id
        {
            contest.rounds = 0;
        }
    }

    /// A client's message has ended, or it is not to be read for a reason of its own: it neither has
    /// the turn nor waits.
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
        let is_owing = contest.bytes < contest.owed_bytes;
        Some(if is_owing { contest.period_us } else { contest.period_us + PERIOD_US })
    }

    /// Once a round: ends the turn of one who is late, and says who that is.
    pub(super) fn expire(&mut self, now_us: u64) -> Option<SessionId> {
        let holder = self.holder.as_mut()?;
        let contest = holder.contest.as_mut().filter(|_| !holder.is_held_up)?;
        contest.count_round(now_us);
        if contest.is_lost(now_us) {
            return self.holder.take().map(|holder| holder.id);
        }
        if contest.rounds >= PERIOD_ROUNDS_MIN && contest.is_over(now_us) {
            contest.renew(now_us);
        }
        None
    }

    /// True while somebody is not read.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.holder.as_ref().is_some_and(|holder| holder.is_held_up)
    }

    /// Everybody who is not read.
    pub(super) fn waiting(&self) -> impl Iterator<Item = SessionId> {
        let held_up = self.holder.iter().filter(|holder| holder.is_held_up);
        held_up.map(|holder| holder.id).chain(self.queue.values().map(|(id, _)| *id))
    }

    /// True when nobody has a turn or waits for one.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty()
    }

    /// Who may be read from now on: the one whose turn it is, if it was held up, or the next one.
    pub(super) fn go_on(&mut self, now_us: u64) -> Option<SessionId> {
        if let Some(holder) = &mut self.holder {
            let is_resumed = mem::replace(&mut holder.is_held_up, false);
            if let Some(contest) = holder.contest.as_mut().filter(|_| is_resumed) {
                contest.renew(now_us);
            }
            return is_resumed.then_some(holder.id);
        }
        let (_, (id, since_us)) = self.queue.pop_first()?;
        self.places.remove(&id);
        self.give(id, since_us, now_us);
        Some(id)
    }

    /// The next of those who wait with less than so many bytes of a short message; it has no turn,
    /// and needs none.
    pub(super) fn pop_short(&mut self, bytes_max: usize) -> Option<SessionId> {
        let first = self.queue.first_entry()?;
        if !matches!(first.key().0, Class::Short(bytes) if bytes < bytes_max) {
            return None;
        }
        let (id, _) = first.remove();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);

    /// A period, with as many rounds as it needs, in which `bytes` come from `id`; who is late then.
    fn period(
        turns: &mut Turns,
        now_us: &mut u64,
        id: SessionId,
        bytes: usize,
    ) -> Option<SessionId> {
        turns.note_read(id, bytes);
        let mut rounds = (0..PERIOD_ROUNDS_MIN).map(|_| {
            *now_us += PERIOD_US / u64::from(PERIOD_ROUNDS_MIN);
            turns.expire(*now_us)
        });
        rounds.find_map(|late| late)
    }

    /// So many rounds at the same moment; who is late then.
    fn rounds(turns: &mut Turns, now_us: u64, count: u32) -> Option<SessionId> {
        (0..count).find_map(|_| turns.expire(now_us))
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
        assert_eq!(turns.deadline_us(), Some(now_us + PERIOD_US));
        assert_eq!(period(&mut turns, &mut now_us, A, PERIOD_BYTES_MIN), None);
        assert_eq!(turns.go_on(now_us), None);
        assert_eq!(period(&mut turns, &mut now_us, A, PERIOD_BYTES_MIN - 1), Some(A));
        assert_eq!(turns.go_on(now_us), Some(B));
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
        assert_eq!(periods, TURN_US_MAX / PERIOD_US);
        assert!(turns.take(B, Class::Long, now_us) && !turns.take(A, Class::Long, now_us));
    }

    #[test]
    fn a_loop_that_was_away_makes_nobody_late() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        assert_eq!(turns.expire(70_000_000), None);
        turns.note_read(A, PERIOD_BYTES_MIN);
        assert_eq!(rounds(&mut turns, 70_000_001, PERIOD_ROUNDS_MIN), None);
        assert_eq!(turns.go_on(70_000_001), None);
    }

    #[test]
    fn who_had_the_time_to_fill_its_socket_and_has_not_loses_its_turn_at_once() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        for id in [B, C] {
            turns.wait(id, Class::Long, 0);
        }
        turns.stand_aside(A);
        let now_us = 400_000;
        assert_eq!(turns.go_on(now_us), Some(B));
        assert_eq!(turns.deadline_us(), Some(now_us), "it is looked at without delay");
        turns.note_read(B, 1);
        assert_eq!(rounds(&mut turns, now_us, PERIOD_ROUNDS_MIN - 1), None);
        // It was left for want of time: that is no fault of its own.
        turns.note_left(B);
        assert_eq!(rounds(&mut turns, now_us, PERIOD_ROUNDS_MIN - 1), None);
        assert_eq!(rounds(&mut turns, now_us, 1), Some(B));
        // What a small socket holds suffices for a period.
        turns.wait(B, Class::Late, now_us);
        assert_eq!(turns.go_on(now_us), Some(C));
        turns.note_read(C, OWED_BYTES_MAX as usize);
        assert_eq!(rounds(&mut turns, now_us, 100), None);
        assert_eq!(turns.deadline_us(), Some(now_us + PERIOD_US));
        turns.stand_aside(C);
        // Who has hardly waited has had no time.
        turns.wait(C, Class::Late, now_us);
        assert_eq!(turns.go_on(now_us), Some(B));
        assert_eq!(rounds(&mut turns, now_us, 100), None);
    }

    #[test]
    fn who_is_left_again_and_again_has_a_turn_that_ends() {
        let (mut turns, mut now_us) = (Turns::default(), 0);
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        while turns.go_on(now_us).is_none() {
            assert!(now_us < TURN_US_MAX, "it goes on for ever");
            now_us += 2000;
            turns.note_read(A, 1);
            assert_eq!(turns.expire(now_us - 1000), None);
            turns.note_left(A);
            turns.expire(now_us);
        }
        assert_eq!(now_us, TURN_US_MAX);
    }

    #[test]
    fn who_is_held_up_again_and_again_has_a_turn_that_ends() {
        let (mut turns, mut now_us, mut read_us) = (Turns::default(), 0, 0);
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.wait(A, Class::Long, 0);
        while turns.go_on(now_us + 70_000_000) == Some(A) {
            assert!(read_us < TURN_US_MAX, "it goes on for ever");
            now_us += 70_000_000 + 1000;
            read_us += 1000;
            turns.note_read(A, 1);
            let late = turns.expire(now_us);
            assert_eq!(late.is_some(), read_us == TURN_US_MAX);
            turns.wait(A, Class::Late, now_us);
        }
        assert_eq!(read_us, TURN_US_MAX);
    }

    #[test]
    fn short_ones_come_first_and_late_ones_last() {
        let mut turns = Turns::default();
        turns.take(SessionId(9), Class::Long, 0);
        let waiting = [
            (A, Class::Late),
            (B, Class::Long),
            (C, Class::Short(2)),
            (SessionId(4), Class::Short(1)),
            (SessionId(5), Class::Short(1)),
        ];
        for (id, class) in waiting {
            turns.wait(id, class, 0);
        }
        // It has its place.
        turns.wait(SessionId(5), Class::Long, 0);
        turns.stand_aside(SessionId(9));
        for expected in [SessionId(4), SessionId(5), C, B, A] {
            assert_eq!(turns.go_on(0), Some(expected));
            assert_eq!(turns.go_on(0), None);
            turns.stand_aside(expected);
        }
        assert!(!turns.has_waiting() && turns.is_empty());
    }

    #[test]
    fn nobody_takes_a_turn_before_those_who_wait() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.stand_aside(A);
        assert!(!turns.take(A, Class::Long, 0));
        assert!(turns.take(C, Class::Short(0), 0));
        turns.stand_aside(C);
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
        assert!((0..100).all(|_| period(&mut turns, &mut now_us, A, 0).is_none()));
        assert_eq!(turns.waiting().collect::<Vec<_>>(), [A, B]);
        assert_eq!(turns.go_on(now_us), Some(A));
        assert_eq!(turns.deadline_us(), Some(now_us + PERIOD_US));
        assert_eq!(turns.dissolve(), [B]);
        assert!(turns.take(B, Class::Long, now_us));
    }

    #[test]
    fn those_with_short_messages_can_be_let_past() {
        let mut turns = Turns::default();
        turns.take(A, Class::Long, 0);
        turns.wait(B, Class::Long, 0);
        turns.wait(C, Class::Short(0), 0);
        assert_eq!(turns.pop_short(0), None, "it has as much");
        assert_eq!((turns.pop_short(1), turns.pop_short(usize::MAX)), (Some(C), None));
        assert_eq!(turns.waiting().collect::<Vec<_>>(), [B]);
    }
}
