//! The gate of a session: why its messages wait, and which.
//!
//! Every reason to wait is held once by whoever has it, and released once. A reason concerns a
//! lane: the messages about one database, or all. So what a session asks of one database is handled
//! in the order in which it came, however long some of it takes, and what it asks of another one, or
//! of none (`echo`, `lock`, `list_dbs`), goes past.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::ids::DbId;
use crate::session::locks::Held;
use crate::session::message::{About, Incoming, Marks};

/// Most bytes of messages that wait for one session, beyond which it is not read.
pub(crate) const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Most bytes of messages that wait for all sessions together, beyond which none is read for which
/// any waits.
pub(super) const ALL_QUEUED_BYTES_MAX: usize = 256 << 20;

/// Most requests of a session about one database that are with the leader of its cluster.
const FORWARDED_MAX: usize = 32;

/// What a queued message costs besides its texts, in bytes.
const OVERHEAD_BYTES: usize = 160;

/// Why messages wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A request of the session runs once its database is decided.
    Turn,
    /// A request of the session is with the leader of its database's cluster: others may follow it
    /// there.
    Forwarded,
    /// Work of the session's own is with a helper. No update of the database is composed for it:
    /// what changes meanwhile merges, as for a session that does not read.
    Work,
    /// A big message of the session is being checked by a helper.
    Check,
    /// No request can run on the database now.
    Closed,
    /// A relay has not heard from its source since the start: who asks for it now would be sent
    /// elsewhere.
    Source,
    /// The session has asked for a conversion: everything behind waits for its answer, but for messages of
    /// [`Lane::Echo`].
    Conversion,
    /// The session is in the middle of a long message: nothing can be sent to it before the end.
    Message,
    /// The session does not take what it was sent: nobody is answered who does not read answers.
    Behind,
}

impl Reason {
    /// Whether even messages that concern no database wait.
    fn stops_all(self) -> bool {
        self == Self::Conversion || self.stops_echo()
    }

    /// Whether nothing but replies to probes goes on.
    pub(super) fn stops_echo(self) -> bool {
        matches!(self, Self::Message | Self::Behind)
    }

    /// Whether no updates are composed meanwhile.
    pub(crate) fn mutes(self) -> bool {
        matches!(self, Self::Work | Self::Message)
    }
}

/// What a message, or a reason to wait, concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A reply, which is for a probe: it waits for nothing.
    Probe,
    /// `echo`, by which a client finds out whether anybody is there, at a server that asks others, and of a relay, for
    /// which others ask. It takes as long for a conversion as all its rows are under way, and who probes it meanwhile is
    /// answered.
    Echo,
    /// `cancel`, and `echo` elsewhere behind an `unlock` that waits: only a conversion comes first.
    Aside,
    /// No database.
    None,
    /// No database, but the locks of the session: what is asked for behind it that may assert them waits, and it waits for
    /// what was asked for before it under locks that are not known yet.
    Lock,
    /// A database, but for a channel of the connection: it waits there.
    Channel,
    /// One database.
    Db(DbId),
    /// One database, for the leader of its cluster.
    Leader(DbId),
    /// One database, and everything that comes behind: `convert`.
    Conversion(DbId),
    /// All that has come before, and everything that comes behind: `unlock` of a lock that others are to have only behind
    /// what is under it.
    Unlock,
    /// Perhaps any database.
    Every,
}

impl Lane {
    fn db(self) -> Option<DbId> {
        match self {
            Self::Db(db) | Self::Leader(db) | Self::Conversion(db) => Some(db),
            Self::Probe
            | Self::Echo
            | Self::Aside
            | Self::None
            | Self::Lock
            | Self::Channel
            | Self::Unlock
            | Self::Every => None,
        }
    }

    /// Whether a message of this lane waits behind something of the other.
    fn waits_behind(self, other: Self) -> bool {
        match (self, other) {
            (Self::Echo, Self::Echo)
            | (Self::Aside, Self::Aside | Self::Conversion(_))
            | (Self::None | Self::Lock, Self::None | Self::Lock)
            | (Self::Channel, Self::Channel) => true,
            (Self::Probe | Self::Echo | Self::Aside, _)
            | (_, Self::Probe | Self::Echo | Self::Aside) => false,
            (Self::Unlock, _) | (_, Self::Unlock | Self::Conversion(_)) => true,
            (_, Self::Lock) => true,
            (_, Self::None) | (Self::None | Self::Lock, _) => false,
            (Self::Every, _) | (_, Self::Every) => true,
            (Self::Channel, _) | (_, Self::Channel) => false,
            _ => self.db() == other.db(),
        }
    }
}

/// A message that waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) message: Incoming,
    lane: Lane,
    pub(crate) marks: Marks,
}

impl Queued {
    /// The name of the lock that the message gives up, if that is what it asks for.
    fn unlocks(&self) -> Option<String> {
        match About::of(&self.message) {
            About::Unlock(name) => name.str().map(|name| name.into_owned()),
            _ => None,
        }
    }

    /// What the message occupies.
    fn bytes(&self) -> usize {
        self.message.len() + self.marks.bytes() + OVERHEAD_BYTES
    }
}

/// The gate of one session.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Each as often as it is held.
    holds: SmallVec<[(Reason, Lane); 2]>,
    /// Messages that wait, in order of arrival.
    queue: VecDeque<Queued>,
    /// How many of them are of [`Lane::Unlock`].
    unlocks: usize,
    queued_bytes: usize,
    /// The shell does not read from the session.
    is_stopped: bool,
    /// The round in which its last message was handled.
    handled_in: Option<u64>,
    /// The session is in the queue of those that may have a message for this round.
    is_ready: bool,
}

impl Gate {
    pub(super) fn hold(&mut self, reason: Reason, lane: Lane) {
        self.holds.push((reason, lane));
    }

    pub(super) fn release(&mut self, reason: Reason, lane: Lane) {
        let at = self.holds.iter().position(|held| *held == (reason, lane));
        self.holds.swap_remove(at.expect("a reason is released as often as it was held"));
    }

    /// Whether no updates are composed: of this database, or of any.
    pub(super) fn mutes(&self, db: Option<DbId>) -> bool {
        self.holds.iter().any(|(reason, lane)| {
            reason.mutes() && (db.is_none() || *lane == Lane::Every || lane.db() == db)
        })
    }

    /// Whether the session's own work is out on this database, or a long message on its way.
    pub(crate) fn is_working_on(&self, db: DbId) -> bool {
        self.mutes(Some(db))
    }

    /// Whether a message waits that is meant by its database, if that is known, and the locks that its session owned when it
    /// came; or a helper is at a big one, of which nobody knows yet what it is.
    pub(crate) fn has_coming(&self, is_meant: impl Fn(Option<DbId>, &[Held]) -> bool) -> bool {
        let is_checked = self.holds.iter().any(|(reason, _)| *reason == Reason::Check);
        // What is not decided comes behind who asks.
        let is_it = |queued: &Queued| {
            let locks = queued.marks.locks.as_deref().filter(|_| queued.marks.undecided.is_none());
            locks.is_some_and(|locks| is_meant(queued.lane.db(), locks))
        };
        is_checked || self.queue.iter().any(is_it)
    }

    /// Whether the session's requests wait for the first rows of a relay.
    pub(super) fn awaits_source(&self) -> bool {
        self.holds.iter().any(|(reason, _)| *reason == Reason::Source)
    }

    /// Whether a message waits by which the session asks for a lock, or gives one up, here or for its turn.
    pub(crate) fn changes_locks(&self) -> bool {
        self.has_unlock() || self.queue.iter().any(|queued| queued.marks.changes_locks)
    }

    /// A message that changes what the session owns has been handled: it has this lock, or has it not. So it counts, or does
    /// not, for what came behind that.
    pub(super) fn change_locks(&mut self, name: &str, held: Option<&Held>) {
        for marks in self.queue.iter_mut().map(|queued| &mut queued.marks) {
            self.queued_bytes -= marks.bytes();
            marks.change(name, held);
            self.queued_bytes += marks.bytes();
        }
    }

    /// Decides which locks count for the messages up to the next one that changes them, as all before has been handled. The
    /// name of a lock that one of them gives up, and where that stands.
    pub(super) fn decide_locks(&mut self) -> Option<(usize, String)> {
        for (at, queued) in self.queue.iter_mut().enumerate() {
            self.queued_bytes -= queued.marks.bytes();
            let was_undecided = queued.marks.undecided.take().is_some();
            self.queued_bytes += queued.marks.bytes();
            if queued.marks.changes_locks {
                return queued.unlocks().filter(|_| was_undecided).map(|name| (at, name));
            }
        }
        None
    }

    /// What a message that waits comes behind.
    pub(super) fn set_lane(&mut self, at: usize, lane: Lane) {
        let queued = &mut self.queue[at];
        self.unlocks -= usize::from(queued.lane == Lane::Unlock);
        queued.lane = lane;
        self.unlocks += usize::from(lane == Lane::Unlock);
    }

    /// Whether anything waits, or would.
    pub(crate) fn is_closed(&self) -> bool {
        !self.holds.is_empty() || !self.queue.is_empty()
    }

    /// Whether a message of this lane must wait for a reason, whatever it comes behind.
    fn is_held(&self, lane: Lane) -> bool {
        let follows = matches!(lane, Lane::Leader(db) if self.forwarded(db) < FORWARDED_MAX);
        let is_held_by = |(reason, held): &(Reason, Lane)| match lane {
            Lane::Probe => false,
            Lane::Echo => reason.stops_echo(),
            lane => {
                let is_followed = follows && *reason == Reason::Forwarded;
                reason.stops_all() || lane.waits_behind(*held) && !is_followed
            }
        };
        self.holds.iter().any(is_held_by)
    }

    /// How many requests about a database are with the leader of its cluster.
    fn forwarded(&self, db: DbId) -> usize {
        let forwarded = (Reason::Forwarded, Lane::Db(db));
        self.holds.iter().filter(|held| **held == forwarded).count()
    }

    /// Whether a request about this database is with the leader of its cluster.
    pub(super) fn has_forwarded(&self, db: DbId) -> bool {
        self.forwarded(db) > 0
    }

    /// Whether a message of this lane goes past those that wait.
    pub(super) fn may_pass(&self, lane: Lane) -> bool {
        !self.is_held(lane) && !self.queue.iter().any(|queued| lane.waits_behind(queued.lane))
    }

    /// Lets a message through if nothing waits.
    pub(super) fn pass(&mut self, round: u64) -> bool {
        let passes = !self.is_closed();
        if passes {
            self.handled_in = Some(round);
        }
        passes
    }

    pub(super) fn note_handled(&mut self, round: u64) {
        self.handled_in = Some(round);
    }

    /// Whether any message of the session has been handled.
    pub(super) fn has_passed(&self) -> bool {
        self.handled_in.is_some()
    }

    /// Whether the session's message of the round has been handled.
    pub(super) fn is_spent(&self, round: u64) -> bool {
        self.handled_in == Some(round)
    }

    /// Queues a message; true if the session is not to be read any more, for more than `most` bytes
    /// wait.
    pub(super) fn push_back(
        &mut self,
        message: Incoming,
        lane: Lane,
        marks: Marks,
        most: usize,
    ) -> bool {
        let queued = Queued { message, lane, marks };
        self.count_in(&queued);
        self.queue.push_back(queued);
        let must_stop = self.queued_bytes > most && !self.is_stopped;
        self.is_stopped |= must_stop;
        must_stop
    }

    fn count_in(&mut self, queued: &Queued) {
        self.queued_bytes += queued.bytes();
        self.unlocks += usize::from(queued.lane == Lane::Unlock);
    }

    fn count_out(&mut self, queued: &Queued) {
        self.queued_bytes -= queued.bytes();
        self.unlocks -= usize::from(queued.lane == Lane::Unlock);
    }

    pub(super) fn push_front(&mut self, message: Incoming, lane: Lane, marks: Marks) {
        let queued = Queued { message, lane, marks };
        self.count_in(&queued);
        self.queue.push_front(queued);
    }

    /// Where the first message stands that neither a reason nor another message keeps waiting.
    fn next(&self) -> Option<usize> {
        let mut before: SmallVec<[Lane; 4]> = SmallVec::new();
        for (at, queued) in self.queue.iter().enumerate() {
            let lane = queued.lane;
            let is_behind = before.iter().any(|other| lane.waits_behind(*other));
            if !self.is_held(lane) && !is_behind {
                return Some(at);
            }
            if matches!(lane, Lane::Every | Lane::Unlock | Lane::Conversion(_)) {
                // Everything behind it waits for it, but for this.
                let passes = |queued: &Queued| {
                    let other = queued.lane;
                    matches!(other, Lane::Echo | Lane::Aside)
                        && !other.waits_behind(lane)
                        && !self.is_held(other)
                };
                return self.queue.iter().position(passes);
            }
            if !before.contains(&lane) {
                before.push(lane);
            }
        }
        None
    }

    /// Whether the session is to be queued for its next message: it has one, and is not queued.
    pub(super) fn becomes_ready(&mut self) -> bool {
        let becomes = !self.is_ready && self.next().is_some();
        self.is_ready |= becomes;
        becomes
    }

    /// The session has been taken out of that queue.
    pub(super) fn is_looked_at(&mut self) {
        self.is_ready = false;
    }

    pub(super) fn pop(&mut self, round: u64) -> Option<Queued> {
        let queued = self.queue.remove(self.next()?)?;
        self.handled_in = Some(round);
        self.count_out(&queued);
        Some(queued)
    }

    /// Takes the next message if it is for a channel, where its turn comes.
    pub(super) fn pop_for_channel(&mut self) -> Option<Queued> {
        let at = self.next().filter(|at| self.queue[*at].lane == Lane::Channel)?;
        let queued = self.queue.remove(at)?;
        self.count_out(&queued);
        Some(queued)
    }

    /// A gate of another session that is held for what the connection is held for.
    pub(super) fn of_channel(&self) -> Self {
        let holds = self.holds.iter().filter(|(reason, _)| reason.stops_echo());
        Self { holds: holds.copied().collect(), ..Self::default() }
    }

    /// Whether a session that was not read may be read again; asked once.
    pub(super) fn may_be_read(&mut self) -> bool {
        self.queue.is_empty() && std::mem::take(&mut self.is_stopped)
    }

    /// The database is gone: another one may have its name when the messages' turn comes.
    pub(super) fn forget_database(&mut self, db: DbId) {
        for queued in self.queue.iter_mut().filter(|queued| queued.lane.db() == Some(db)) {
            queued.lane = Lane::Every;
        }
    }

    /// Whether an `unlock` waits for what is asked for under the lock.
    pub(super) fn has_unlock(&self) -> bool {
        self.queues_unlock() || self.holds.iter().any(|(_, lane)| *lane == Lane::Unlock)
    }

    /// Whether it is among the messages that wait.
    pub(super) fn queues_unlock(&self) -> bool {
        self.unlocks > 0
    }

    /// The locks that are to be given up behind what is asked for under them.
    pub(crate) fn unlocks(&self) -> Vec<String> {
        let unlocks = self.queue.iter().filter(|queued| queued.lane == Lane::Unlock);
        unlocks.filter_map(Queued::unlocks).collect()
    }

    /// An `unlock` waits no more for what is asked for under the lock.
    pub(super) fn let_unlock_pass(&mut self) {
        for queued in self.queue.iter_mut().filter(|queued| queued.lane == Lane::Unlock) {
            queued.lane = Lane::Lock;
        }
        self.unlocks = 0;
    }

    /// Takes the `transact` request of this id out of the queue, if it is there.
    pub(super) fn take_transact(&mut self, id: &[u8]) -> bool {
        let at = self.queue.iter().position(|queued| queued.marks.id.as_deref() == Some(id));
        let Some(queued) = at.and_then(|at| self.queue.remove(at)) else { return false };
        self.count_out(&queued);
        true
    }

    /// Whether nothing is read from the session, so that it cannot be heard.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Bytes of the messages that wait.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::message::Asserts;

    const A: Lane = Lane::Db(DbId(1));
    const B: Lane = Lane::Db(DbId(2));

    fn message(text: &str) -> Incoming {
        Incoming::Raw(text.as_bytes().to_vec())
    }

    fn pop(gate: &mut Gate) -> Option<String> {
        match gate.pop(0)?.message {
            Incoming::Raw(text) => String::from_utf8(text).ok(),
            Incoming::Checked(_) | Incoming::Refused { .. } => None,
        }
    }

    #[test]
    fn each_database_has_an_order_of_its_own() {
        let mut gate = Gate::default();
        gate.hold(Reason::Closed, A);
        for (text, lane) in [("a1", A), ("b1", B), ("a2", A), ("b2", B)] {
            gate.push_back(message(text), lane, Marks::default(), usize::MAX);
        }
        assert!(gate.may_pass(Lane::None));
        assert_eq!(pop(&mut gate).as_deref(), Some("b1"));
        assert_eq!(pop(&mut gate).as_deref(), Some("b2"));
        assert_eq!(pop(&mut gate), None);
        gate.release(Reason::Closed, A);
        assert_eq!(pop(&mut gate).as_deref(), Some("a1"));
        assert!(!gate.may_pass(A), "a2 came before");
        assert_eq!(pop(&mut gate).as_deref(), Some("a2"));
        assert!(gate.may_pass(A));
    }

    #[test]
    fn requests_follow_others_to_the_leader_and_nothing_else_does() {
        let (mut gate, to_leader) = (Gate::default(), Lane::Leader(DbId(1)));
        gate.hold(Reason::Forwarded, A);
        assert!(gate.may_pass(to_leader) && !gate.may_pass(A));
        gate.push_back(message("reads"), A, Marks::default(), usize::MAX);
        assert!(!gate.may_pass(to_leader), "it comes behind what reads");
        gate.release(Reason::Forwarded, A);
        assert_eq!(pop(&mut gate).as_deref(), Some("reads"));
        (0..FORWARDED_MAX).for_each(|_| gate.hold(Reason::Forwarded, A));
        assert!(!gate.may_pass(to_leader), "as many as may be are there");
        gate.release(Reason::Forwarded, A);
        assert!(gate.may_pass(to_leader));
        gate.hold(Reason::Turn, A);
        assert!(!gate.may_pass(to_leader));
    }

    #[test]
    fn a_reason_that_is_held_twice_is_released_twice() {
        let mut gate = Gate::default();
        gate.hold(Reason::Work, A);
        gate.hold(Reason::Work, A);
        gate.release(Reason::Work, A);
        assert!(!gate.may_pass(A) && gate.mutes(Some(DbId(1))) && !gate.mutes(Some(DbId(2))));
        gate.release(Reason::Work, A);
        assert!(gate.may_pass(A) && !gate.mutes(None));
    }

    #[test]
    #[should_panic(expected = "as often as it was held")]
    fn a_reason_that_is_not_held_is_not_released() {
        Gate::default().release(Reason::Work, A);
    }

    #[test]
    fn behind_a_conversion_only_probes_and_their_answers_go_on() {
        let mut gate = Gate::default();
        gate.hold(Reason::Closed, A);
        gate.push_back(message("convert"), Lane::Conversion(DbId(1)), Marks::default(), usize::MAX);
        for lane in [Lane::None, A, B, Lane::Every] {
            assert!(!gate.may_pass(lane));
        }
        assert!(gate.may_pass(Lane::Probe) && gate.may_pass(Lane::Echo));
        gate.release(Reason::Closed, A);
        assert!(pop(&mut gate).is_some());
        gate.hold(Reason::Conversion, Lane::Every);
        assert!(!gate.may_pass(Lane::None) && gate.may_pass(Lane::Probe));
        assert!(gate.may_pass(Lane::Echo));
    }

    #[test]
    fn an_echo_that_waited_for_the_end_of_a_message_goes_past_a_conversion() {
        let mut gate = Gate::default();
        gate.hold(Reason::Closed, A);
        gate.hold(Reason::Message, Lane::Every);
        gate.push_back(message("convert"), Lane::Conversion(DbId(1)), Marks::default(), usize::MAX);
        gate.push_back(message("lock"), Lane::Lock, Marks::default(), usize::MAX);
        gate.push_back(message("echo"), Lane::Echo, Marks::default(), usize::MAX);
        assert!(pop(&mut gate).is_none() && !gate.may_pass(Lane::Echo));
        gate.release(Reason::Message, Lane::Every);
        assert_eq!(pop(&mut gate).as_deref(), Some("echo"));
        assert!(pop(&mut gate).is_none());
        gate.release(Reason::Closed, A);
        assert_eq!(pop(&mut gate).as_deref(), Some("convert"));
    }

    #[test]
    fn what_concerns_no_database_keeps_its_order() {
        let mut gate = Gate::default();
        gate.hold(Reason::Message, Lane::Every);
        gate.push_back(message("lock"), Lane::Lock, Marks::default(), usize::MAX);
        gate.push_back(message("unlock"), Lane::Lock, Marks::default(), usize::MAX);
        gate.release(Reason::Message, Lane::Every);
        assert!(!gate.may_pass(Lane::None), "two came before");
        assert_eq!(pop(&mut gate).as_deref(), Some("lock"));
        assert!(!gate.may_pass(Lane::None), "one came before");
        assert_eq!(pop(&mut gate).as_deref(), Some("unlock"));
    }

    #[test]
    fn what_may_assert_a_lock_waits_for_that_to_be_asked_for() {
        let mut gate = Gate::default();
        gate.hold(Reason::Turn, Lane::Unlock);
        gate.push_back(message("list_dbs"), Lane::None, Marks::default(), usize::MAX);
        gate.push_back(message("lock"), Lane::Lock, Marks::default(), usize::MAX);
        gate.release(Reason::Turn, Lane::Unlock);
        for lane in [A, Lane::Leader(DbId(1)), Lane::Channel, Lane::Every, Lane::Lock] {
            assert!(!gate.may_pass(lane), "{lane:?}");
        }
        assert_eq!(pop(&mut gate).as_deref(), Some("list_dbs"));
        assert!(!gate.may_pass(A));
        assert_eq!(pop(&mut gate).as_deref(), Some("lock"));
        assert!(gate.may_pass(A));
    }

    #[test]
    fn which_locks_count_is_decided_up_to_the_next_message_that_changes_them() {
        let mut gate = Gate::default();
        let held = |name: &str| Held::elsewhere(name.to_owned());
        let asserts = || {
            let undecided = Some(Asserts::These(["k".to_owned(), "l".to_owned()].into()));
            let locks = Some(vec![held("k"), held("m")]);
            Marks { locks, undecided, ..Marks::default() }
        };
        let none = Some(Asserts::These([].into()));
        let unlock = Marks { changes_locks: true, undecided: none, ..Marks::default() };
        let text = r#"{"id":1,"method":"unlock","params":["k"]}"#;
        gate.hold(Reason::Turn, Lane::Unlock);
        gate.push_back(message("write"), A, asserts(), usize::MAX);
        gate.push_back(message(text), Lane::Lock, unlock, usize::MAX);
        gate.push_back(message("behind"), A, asserts(), usize::MAX);
        gate.change_locks("l", Some(&held("l")));
        gate.change_locks("m", Some(&held("m")));
        assert_eq!(gate.decide_locks(), Some((1, "k".to_owned())));
        assert_eq!(gate.decide_locks(), None);
        gate.set_lane(1, Lane::Unlock);
        gate.change_locks("k", None);
        let names = |gate: &mut Gate| {
            let queued = gate.pop(0).expect("a message");
            let locks = queued.marks.locks.into_iter().flatten();
            locks.map(|held| held.name).collect::<Vec<_>>()
        };
        gate.release(Reason::Turn, Lane::Unlock);
        assert_eq!(names(&mut gate), ["k", "l"], "it was decided before");
        assert_eq!(names(&mut gate), Vec::<String>::new());
        let left = Marks { locks: Some(vec![held("l")]), ..asserts() };
        assert_eq!(gate.queued_bytes(), "behind".len() + left.bytes() + OVERHEAD_BYTES);
        assert_eq!(names(&mut gate), ["l"]);
        assert_eq!((gate.queued_bytes(), gate.queues_unlock()), (0, false));
    }

    #[test]
    fn who_gives_up_a_lock_behind_what_is_under_it_does_so_in_order() {
        let mut gate = Gate::default();
        gate.hold(Reason::Work, A);
        gate.push_back(message("under it"), A, Marks::default(), usize::MAX);
        assert!(!gate.may_pass(Lane::Unlock));
        gate.push_back(message("unlock"), Lane::Unlock, Marks::default(), usize::MAX);
        for lane in [Lane::None, A, B, Lane::Unlock, Lane::Every] {
            assert!(!gate.may_pass(lane));
        }
        for lane in [Lane::Probe, Lane::Echo, Lane::Aside] {
            assert!(gate.may_pass(lane));
        }
        gate.push_back(message("lock"), Lane::Lock, Marks::default(), usize::MAX);
        assert!(pop(&mut gate).is_none());
        gate.push_back(message("cancel"), Lane::Aside, Marks::default(), usize::MAX);
        assert_eq!(pop(&mut gate).as_deref(), Some("cancel"));
        gate.release(Reason::Work, A);
        for text in ["under it", "unlock", "lock"] {
            assert_eq!(pop(&mut gate).as_deref(), Some(text));
        }
    }

    #[test]
    fn who_gives_up_a_lock_behind_what_waits_for_its_next_owner_does_so_at_once() {
        let mut gate = Gate::default();
        gate.hold(Reason::Forwarded, A);
        gate.push_back(message("reads"), A, Marks::default(), usize::MAX);
        gate.push_back(message("unlock"), Lane::Unlock, Marks::default(), usize::MAX);
        gate.let_unlock_pass();
        assert_eq!(pop(&mut gate).as_deref(), Some("unlock"));
        assert!(pop(&mut gate).is_none());
    }

    #[test]
    fn a_conversion_comes_before_what_else_would_not_wait() {
        let mut gate = Gate::default();
        gate.hold(Reason::Closed, A);
        let convert = Lane::Conversion(DbId(1));
        gate.push_back(message("convert"), convert, Marks::default(), usize::MAX);
        assert!(!gate.may_pass(Lane::Aside) && gate.may_pass(Lane::Echo));
        gate.push_back(message("cancel"), Lane::Aside, Marks::default(), usize::MAX);
        assert!(pop(&mut gate).is_none());
    }

    #[test]
    fn what_may_concern_any_database_keeps_its_place_among_all() {
        let mut gate = Gate::default();
        gate.hold(Reason::Closed, A);
        gate.push_back(message("big"), Lane::Every, Marks::default(), usize::MAX);
        assert!(!gate.may_pass(B), "it came behind");
        assert!(gate.may_pass(Lane::None));
        gate.release(Reason::Closed, A);
        assert_eq!(pop(&mut gate).as_deref(), Some("big"));
        assert!(gate.may_pass(B));
    }
}
