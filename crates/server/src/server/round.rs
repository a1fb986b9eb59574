//! What waits until its database is decided, and what goes on then.
//!
//! Each database is a pipeline of its own (`database/commits.rs`): the others, and what concerns no
//! database, do not wait for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_engine::Converted;
use weir_monitor::LateBodies;

use crate::configuration::Configuration;
use crate::database::cancel::CANCELED;
use crate::database::{Answer, Db, Done, Next, Trigger, note_waited};
use crate::ids::{CommandId, DbId, SessionId, Ticket, WorkId};
use crate::monitors::{Begun, Changed, Receiver};
use crate::server::Server;
use crate::server::requests::changes_conditions;
use crate::session::gate::{Lane, Reason};
use crate::session::locks::Held;
use crate::session::message::{About, Incoming};
use crate::work::{ConversionError, Garbage, Piece};

/// What runs once its database is decided.
pub(super) enum Turn {
    /// A request of a session, which is held for it.
    Request { session: SessionId, message: Incoming, reason: Reason, lane: Lane },
    /// What a session asks next under these locks is in its gate, which is held for it: it comes behind what others
    /// have asked of the leader under them.
    UnderLocks { session: SessionId, locks: Vec<Held> },
    /// The reply to a transaction that a helper has run.
    Answer(Answer),
    /// A reply whose own updates have not been composed, which takes the tables, and a session
    /// that takes updates.
    Untold(Answer),
    /// What a session watches it is to be told: that a lock is its own, or that a state is there, comes behind.
    Rows(SessionId),
    /// Rows that monitors begin with.
    Initial(Begun),
    /// What other conditions make appear and vanish.
    Changed(Changed),
    /// A compacted copy is complete but for what was appended meanwhile.
    CompactionWritten(Result<u64, String>),
    /// A converted copy is complete but for what was committed meanwhile.
    Converted(Result<Box<Converted>, ConversionError>),
    /// The converted copy has taken the file's place, or has not.
    ConversionFinished(Result<u64, String>),
}

impl Turn {
    /// A reply that waits for updates of its session, or for what that is to be answered before.
    fn untold(&self) -> Option<&Answer> {
        match self {
            Self::Untold(answer) => Some(answer),
            _ => None,
        }
    }
}

/// What runs behind everything else of a round.
enum Last {
    /// An admin command: it may take a snapshot, or remove a database.
    Command { id: CommandId, name: String, args: Vec<String>, came_us: u64 },
    /// The configuration file has been read.
    Configuration(Result<Vec<u8>, String>),
    /// What was read takes effect: databases may go.
    Reconfiguration(Configuration),
}

/// A reply that must not come before updates which a helper composes.
struct Untold {
    answer: Answer,
    /// What its own transaction has changed is among these updates.
    is_among: bool,
}

/// What waits for a decision, or for the end of the round.
#[derive(Default)]
pub(super) struct Round {
    /// Until the updates are composed that belong before them, in order.
    untold: BTreeMap<(DbId, SessionId), VecDeque<Untold>>,
    /// Until its database is decided, in order of arrival.
    turns: BTreeMap<DbId, VecDeque<Turn>>,
    /// What was decided since whoever waits for that had a turn; whether long transactions have theirs, too.
    due: Vec<(DbId, bool)>,
    /// Until all else of the round is done.
    last: VecDeque<Last>,
    /// Of these sessions, which are told each change by itself, replies wait: they have had a step of it.
    fed: BTreeSet<(DbId, SessionId)>,
    /// Relays have set something aside for the next round.
    is_postponed: bool,
}

impl Round {
    pub(super) fn command(&mut self, id: CommandId, name: String, args: Vec<String>, came_us: u64) {
        self.last.push_back(Last::Command { id, name, args, came_us });
    }

    pub(super) fn configuration_read(&mut self, result: Result<Vec<u8>, String>) {
        self.last.push_back(Last::Configuration(result));
    }

    /// What has waited for the next round may go on.
    pub(super) fn begin(&mut self) {
        self.is_postponed = false;
        self.fed.clear();
    }

    /// Whether something waits for the next round that relays have set aside.
    pub(super) fn is_postponed(&self) -> bool {
        self.is_postponed
    }

    /// There is something for the next round that waits for nothing else.
    pub(super) fn postpone(&mut self) {
        self.is_postponed = true;
    }

    fn note_decided(&mut self, db: DbId, with_long: bool) {
        self.due.retain(|(due, _)| *due != db);
        self.due.push((db, with_long));
    }

    fn push(&mut self, db: DbId, turn: Turn) {
        self.turns.entry(db).or_default().push_back(turn);
    }

    fn push_front(&mut self, db: DbId, turn: Turn) {
        self.turns.entry(db).or_default().push_front(turn);
    }

    /// Takes the turns of a database.
    fn take(&mut self, db: DbId) -> VecDeque<Turn> {
        self.turns.remove(&db).unwrap_or_default()
    }

    /// Takes the turns of a database that has been removed: the answers, each session's in its order, and what comes behind
    /// all that is answered.
    pub(super) fn take_of_removed(&mut self, db: DbId) -> (Vec<Turn>, Vec<Turn>) {
        let answer = |turn: &Turn| match turn {
            Turn::Answer(answer) | Turn::Untold(answer) => Some(answer.order()),
            _ => None,
        };
        let (mut answers, others): (Vec<Turn>, Vec<Turn>) =
            self.take(db).into_iter().partition(|turn| answer(turn).is_some());
        answers.sort_by_key(answer);
        (answers, others)
    }

    /// Whether an answer waits for its turn that comes before this one.
    fn has_untold_before(&self, db: DbId, answer: &Answer) -> bool {
        let turns = self.turns.get(&db).into_iter().flatten();
        turns.filter_map(Turn::untold).any(|untold| untold.is_decided_here_before(answer))
    }

    /// Whether an answer to this session waits for updates.
    fn has_behind_updates(&self, db: DbId, session: SessionId) -> bool {
        let behind = self.untold.get(&(db, session.connection())).into_iter().flatten();
        behind.into_iter().any(|untold| untold.answer.session == session)
    }

    /// Puts back turns that have not come yet, before others that have come meanwhile.
    fn put_back(&mut self, db: DbId, mut turns: VecDeque<Turn>) {
        if !turns.is_empty() {
            turns.extend(self.take(db));
            self.turns.insert(db, turns);
        }
    }
}

impl Server {
    /// Lets something wait until its database is decided.
    pub(super) fn await_turn(&mut self, db: DbId, turn: Turn) {
        if self.databases.get(db).is_some() {
            self.round.push(db, turn);
        } else {
            // The database was removed meanwhile: nothing is left to wait for.
            self.take_turn(db, turn);
        }
    }

    /// A session is told what it watches of a database when that has its turn.
    pub(super) fn await_rows(&mut self, db: DbId, session: SessionId) {
        let mut turns = self.round.turns.get(&db).into_iter().flatten();
        if !turns.any(|turn| matches!(turn, Turn::Rows(waits) if *waits == session)) {
            self.await_turn(db, Turn::Rows(session));
        }
    }

    /// Whoever has waited for a database to be decided has a turn before anybody writes anew: under load
    /// without a pause nothing is decided when a round ends.
    pub(super) fn let_waiting_go(&mut self) {
        while let Some((id, with_long)) = self.round.due.pop() {
            if !self.is_there_and_decided(id) {
                continue;
            }
            self.take_turns(id);
            let Self { shell, sessions, databases, .. } = self;
            databases.wake(shell, sessions, id);
            if with_long {
                self.go_on_behind_turns(id);
            }
        }
    }

    fn is_there_and_decided(&self, id: DbId) -> bool {
        self.databases.get(id).is_some_and(Db::is_decided)
    }

    /// What needs a database decided, and comes behind whoever has waited for a turn there.
    fn go_on_behind_turns(&mut self, id: DbId) {
        if self.is_there_and_decided(id) {
            let Self { shell, sessions, databases, backups, clusters, .. } = self;
            let must_wait = |trigger: &Trigger| clusters.is_full_for(trigger);
            databases.hand_over_all(shell, sessions, id, must_wait);
            backups.go_on(shell, sessions, databases, id);
        }
    }

    /// Goes on with each database as far as it can.
    pub(super) fn advance(&mut self) {
        loop {
            self.sessions.look_at_order();
            let (mut has_moved, mut last) = (false, None);
            while let Some(id) = self.next_to_advance(&mut last) {
                has_moved |= self.advance_database(id);
            }
            has_moved |= self.run_last();
            if !has_moved {
                break;
            }
        }
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        subscriptions.compose_for_herds(shell, sessions, databases);
        if self.backups.take_changed() {
            self.save_configuration();
        }
    }

    fn next_to_advance(&self, last: &mut Option<DbId>) -> Option<DbId> {
        let (turns, backups) = (&self.round.turns, &self.backups);
        self.databases.next_where(last, |id, db| {
            !db.is_decided()
                || db.has_long()
                || !turns.is_empty() && turns.contains_key(&id)
                || backups.has_waiting(id)
        })
    }

    /// Writes what has run, or answers it, and goes on with what waited for that. True if that may
    /// have left more to do, here or elsewhere.
    fn advance_database(&mut self, id: DbId) -> bool {
        match self.databases.advance(&mut self.shell, id) {
            Next::Wait => return false,
            Next::Propose => {
                self.propose(id);
                return !self.databases.is_writing(id);
            }
            Next::Decide => {
                self.answer_peers(id);
                self.decide(id);
            }
            Next::Nothing => {}
        }
        self.round.due.retain(|(due, _)| *due != id);
        let has_turned = self.take_turns(id);
        self.go_on_behind_turns(id);
        has_turned || !self.databases.is_decided(id)
    }

    /// An append has been answered: what it wrote is decided, and the rest of the round goes on when
    /// the round ends.
    pub(super) fn appended(&mut self, id: DbId, result: &Result<(), String>) {
        let Self { shell, sessions, databases, backups, .. } = self;
        if databases.appended(shell, sessions, id, result) {
            backups.not_written(shell, sessions, databases, id);
        } else if result.is_ok() {
            self.decide(id);
        }
    }

    /// What has run is committed: monitors learn of it, then everybody is answered.
    pub(crate) fn decide(&mut self, id: DbId) {
        let mut done = self.databases.take_done(id);
        // Behind a long one it is for the others to write first.
        let is_of_long =
            |done: &Done| done.request.as_ref().is_some_and(|(trigger, _)| trigger.is_long);
        self.round.note_decided(id, !done.iter().any(is_of_long));
        self.databases.publish(&mut self.shell, id, &done);
        let mut deltas = done.iter().filter_map(|done| done.delta.as_deref());
        if deltas.any(|delta| self.remotes.are_named_in(id, delta)) {
            self.remotes_changed();
        }
        for Done { request, delta, .. } in done.drain(..) {
            delta.into_iter().for_each(|delta| self.shell.free(Garbage::Delta(delta)));
            let Some((mut trigger, result)) = request else { continue };
            note_waited(&mut self.sessions, &mut trigger);
            let Trigger { origin, message, holds, ticket, once, .. } = trigger;
            self.shell.free(Garbage::Text(message));
            // The server itself needs no answer.
            if let Some(session) = origin.session() {
                let (result, behind) = self.databases.result_of(id, once.as_deref(), result);
                let answer = Answer::new(session, origin, result);
                self.give(id, Answer { behind, holds, ticket, ..answer });
            }
        }
        self.databases.reuse(id, done);
        let Self { shell, sessions, databases, .. } = self;
        databases.reopen(shell, sessions, id);
    }

    /// What has waited for a database to be decided runs, as long as it stays so.
    fn take_turns(&mut self, id: DbId) -> bool {
        if self.round.turns.is_empty() {
            return false;
        }
        let (mut kept, mut has_turned) = (VecDeque::new(), false);
        self.databases.begin_turns(id);
        let turns = self.round.take(id);
        // Sessions that have not got a reply. What they have asked since comes behind it, though it may have
        // been filed before the reply was.
        let untold: BTreeSet<SessionId> =
            turns.iter().filter_map(Turn::untold).map(|answer| answer.session).collect();
        // Those to whom an answer is kept that has been decided here, and the place of the first one.
        let mut late: BTreeMap<SessionId, Ticket> = BTreeMap::new();
        let is_late = |late: &BTreeMap<SessionId, Ticket>, answer: &Answer| {
            late.get(&answer.session).is_some_and(|place| *place <= answer.place)
        };
        for turn in turns {
            let turn = match turn {
                // What held its session for a helper is not to hold up what comes before it.
                Turn::Answer(answer) if is_late(&late, &answer) => {
                    self.give_behind(id, answer, true);
                    continue;
                }
                turn => turn,
            };
            let is_away = || self.databases.get(id).is_some_and(|db| db.tables().is_away());
            let must_wait = match &turn {
                _ if !self.databases.is_decided(id) => true,
                Turn::Untold(answer)
                    if is_late(&late, answer) || self.is_behind_in_order(id, answer) =>
                {
                    true
                }
                Turn::Untold(Answer { session, rest: Some(_), .. })
                    if self.round.has_behind_updates(id, *session) =>
                {
                    true
                }
                Turn::Request { session, message, .. } => {
                    untold.contains(session) || self.is_late_change(id, *session, message)
                }
                Turn::UnderLocks { session, locks } => {
                    self.are_asked_of_leader_under(id, locks, *session)
                }
                // These need the tables themselves.
                Turn::Converted(_) | Turn::ConversionFinished(_) => is_away(),
                Turn::Untold(Answer { session, .. }) | Turn::Rows(session) => {
                    let told = session.connection();
                    is_away() && self.subscriptions.has_pending(&self.databases, id, told)
                        || self.is_told_later(id, told)
                        || self.is_fed_later(id, told)
                }
                _ => false,
            };
            if must_wait {
                // Whoever has the tables is to know that they are waited for.
                self.databases.hurry(&mut self.shell, id);
                if let Some(answer) = turn.untold().filter(|answer| answer.ticket.is_none()) {
                    let first = late.entry(answer.session).or_insert(answer.place);
                    *first = answer.place.min(*first);
                }
                kept.push_back(turn);
            } else {
                self.take_turn(id, turn);
                has_turned = true;
            }
        }
        self.round.put_back(id, kept);
        has_turned
    }

    pub(super) fn take_turn(&mut self, db: DbId, turn: Turn) {
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        match turn {
            Turn::Request { session, message, reason, lane } => {
                databases.release(shell, sessions, session, reason, lane);
                let has_untold = self.round.untold.contains_key(&(db, session));
                let has_earlier = has_untold
                    || databases.has_long_of(db, session)
                    || sessions.has_forwarded(session, db);
                if sessions.has(session) && has_earlier {
                    // What came before it is not answered yet: it waits for its own updates, could not be
                    // written and has become long when it ran again, or was in a batch that was given up.
                    let about = About::of(&message);
                    let (lane, marks) =
                        (self.lane_of(session, &about), self.decided_marks_of(session, &about));
                    self.sessions.put_back(session, message, lane, marks);
                    // It need not wait for that any more if it is `unlock`, and nobody leads.
                    return self.sessions.look_at(session);
                }
                match lane {
                    // It may come behind what has run in another database as well.
                    Lane::Unlock => self.take(session, message, None),
                    _ => self.request(session, message),
                }
            }
            Turn::UnderLocks { session, .. } => {
                databases.release(shell, sessions, session, Reason::Turn, Lane::Db(db));
            }
            Turn::Answer(answer) | Turn::Untold(answer) => self.give_behind(db, answer, false),
            Turn::Rows(session) => {
                self.tell_of_locks_of(session);
                self.answer_who_waits(|waits| waits == session);
            }
            Turn::Initial(begun) => {
                subscriptions.give_initial(shell, sessions, databases, begun);
            }
            Turn::Changed(changed) => {
                subscriptions.give_change(shell, sessions, databases, changed);
            }
            Turn::CompactionWritten(result) => databases.compaction_written(shell, db, result),
            Turn::Converted(result) => {
                databases.snapshot_converted(shell, sessions, db, result);
            }
            Turn::ConversionFinished(result) => self.conversion_finished(db, result),
        }
    }

    /// Answers a transaction, behind the updates that it has led to for its own session, and behind answers of it that wait
    /// for theirs.
    pub(super) fn give(&mut self, db: DbId, answer: Answer) {
        let comes_behind = self.round.has_untold_before(db, &answer);
        self.give_behind(db, answer, comes_behind);
    }

    /// Who was to decide a request has refused it, with this error, or will never answer.
    pub(super) fn refuse_request(&mut self, trigger: Trigger, error: &[u8]) {
        let Self { shell, sessions, databases, .. } = self;
        if let Some((db, answer)) = databases.refusal(shell, sessions, trigger, error) {
            self.give(db, answer);
        }
    }

    /// The database of a request goes, and nobody will decide it.
    pub(super) fn cancel_in_order(&mut self, trigger: Trigger) {
        let session = trigger.origin.session();
        if session.is_some_and(|session| self.sessions.is_db_change_aware(session)) {
            return self.refuse_request(trigger, CANCELED);
        }
        let Self { shell, sessions, databases, .. } = self;
        databases.cancel(shell, sessions, trigger);
    }

    /// Whether the session of an answer is to be answered something else before, which others have not decided.
    fn is_behind_in_order(&self, db: DbId, answer: &Answer) -> bool {
        // What is left when a database goes, nobody decides any more.
        let has_others = answer.ticket.is_some() || self.has_others();
        has_others
            && self.databases.get(db).is_some()
            && self.sessions.is_behind_in_order(answer.session, db, answer.place)
    }

    /// Answers a transaction, or has it wait where it comes behind other answers of its session.
    fn give_behind(&mut self, db: DbId, mut answer: Answer, comes_behind: bool) {
        let session = answer.session;
        if let Some(ticket) = answer.ticket {
            self.sessions.decided_in_order(session, db, ticket);
            answer.place = ticket;
        }
        // A long one is behind its own updates by itself.
        let is_long = answer.rest.is_some();
        let comes_behind = comes_behind
            || is_long && self.round.has_behind_updates(db, session)
            || self.is_behind_in_order(db, &answer);
        let Self { shell, sessions, databases, .. } = self;
        if (!is_long || comes_behind) && sessions.has(session) {
            if let Some(reason) = answer.holds.take() {
                databases.release(shell, sessions, session, reason, Lane::Db(db));
            }
            // What a channel's request has changed the connection is told before.
            let told = session.connection();
            let is_behind = databases.is_told_late(db, told);
            // What is left when a database goes comes behind updates of it that helpers compose, and nothing else.
            if databases.get(db).is_some()
                && (comes_behind
                    || !is_behind && self.is_told_later(db, told)
                    || self.is_fed_later(db, told))
            {
                return self.park(db, answer);
            }
            let Self { shell, sessions, databases, subscriptions, .. } = self;
            subscriptions.flush_session(shell, sessions, databases, told);
            if databases.is_told_late(db, told) {
                // What the session asks next is answered behind it.
                sessions.hold(session, Reason::Turn, Lane::Db(db));
                answer.holds = Some(Reason::Turn);
                let untold = Untold { answer, is_among: !is_behind };
                return self.round.untold.entry((db, told)).or_default().push_back(untold);
            }
        }
        self.give_told(db, answer);
    }

    /// Whether there is something to tell a session of a database that is not for now: the session
    /// takes no updates, or others come first.
    pub(super) fn is_told_later(&mut self, db: DbId, session: SessionId) -> bool {
        let Self { sessions, databases, subscriptions, .. } = self;
        let of_session = || sessions.get(session);
        let is_mute = sessions.are_any_mute()
            && of_session().is_some_and(|session| session.gate().is_working_on(db));
        if is_mute {
            return subscriptions.has_pending(databases, db, session);
        }
        let is_late = self.is_behind_others(db, session);
        if is_late {
            self.databases.wait_to_be_told(db);
        }
        is_late
    }

    /// Whether there is something to tell a session of a database, and others are told first: those for whom
    /// the step of this round has been spent, or who wait already.
    pub(super) fn is_behind_others(&self, db: DbId, session: SessionId) -> bool {
        let Self { databases, subscriptions, .. } = self;
        !databases.may_tell(db)
            && databases.can_tell(db)
            && subscriptions.has_pending(databases, db, session)
    }

    /// Whether a turn is a change of conditions, and what it comes behind is to be told later.
    fn is_late_change(&mut self, db: DbId, session: SessionId, message: &Incoming) -> bool {
        let is_late = self.is_behind_others(db, session) && changes_conditions(message);
        if is_late {
            self.databases.wait_to_be_told(db);
        }
        is_late
    }

    /// A session's message waits in its gate for what others have asked of the leader under these locks.
    pub(super) fn await_others_under(&mut self, session: SessionId, locks: Vec<Held>, db: DbId) {
        self.sessions.hold(session, Reason::Turn, Lane::Db(db));
        self.round.push(db, Turn::UnderLocks { session, locks });
    }

    /// A session's `unlock`, and what comes behind that, waits for what it has asked for under the lock.
    pub(super) fn await_own_write(&mut self, session: SessionId, message: Incoming, db: DbId) {
        let (reason, lane) = (Reason::Turn, Lane::Unlock);
        self.sessions.hold(session, reason, lane);
        self.round.push(db, Turn::Request { session, message, reason, lane });
    }

    /// A request comes behind what its session is to be told, when that has its turn.
    pub(super) fn await_own_turn(&mut self, session: SessionId, message: Incoming, db: DbId) {
        let (reason, lane) = (Reason::Turn, Lane::Db(db));
        self.sessions.hold(session, reason, lane);
        self.databases.wait_to_be_told(db);
        self.round.push(db, Turn::Request { session, message, reason, lane });
    }

    /// Whether there is more to tell a session of each change than one step: it is told that much in this
    /// round, if it has not been, and others do not come first.
    pub(super) fn is_fed_later(&mut self, db: DbId, session: SessionId) -> bool {
        let Self { shell, sessions, databases, round, .. } = self;
        let is_fed = round.fed.contains(&(db, session));
        let has_more = databases.feed_session(shell, sessions, (db, session), !is_fed);
        if has_more {
            databases.wait_to_be_told(db);
            round.fed.insert((db, session));
        }
        has_more
    }

    /// A transaction is done whose session cannot be told now what it has changed: other work of
    /// the session is out, or it is enough for this round. Its reply waits for that.
    fn park(&mut self, db: DbId, mut answer: Answer) {
        let session = answer.session;
        self.shell.count_behind(session, answer.result.len());
        // What the session asks next is answered behind it.
        self.sessions.hold(session, Reason::Turn, Lane::Db(db));
        answer.holds = Some(Reason::Turn);
        self.round.push(db, Turn::Untold(answer));
    }

    /// Answers a transaction whose session has been told what it changed.
    fn give_told(&mut self, db: DbId, answer: Answer) {
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        let Answer { session, id, mut result, is_error, rest, behind, holds, ticket, .. } = answer;
        if let Some(ticket) = ticket {
            sessions.leave_order(session, db, ticket);
        }
        let mut holds = holds;
        if rest.is_some() && holds == Some(Reason::Turn) {
            // It has waited for others. As long as it is under way the session is told nothing else.
            sessions.hold(session, Reason::Work, Lane::Db(db));
            databases.release(shell, sessions, session, Reason::Turn, Lane::Db(db));
            holds = Some(Reason::Work);
        }
        if rest.is_none() || !sessions.has(session) {
            if let Some(reason) = holds {
                databases.release(shell, sessions, session, reason, Lane::Db(db));
            }
            if is_error {
                if sessions.has(session) {
                    shell.send(session, weir_wire::reply_error(&id, &result));
                }
                return;
            }
            result.extend_from_slice(behind);
            subscriptions.send_result(shell, sessions, session, &id, result);
            return rest.into_iter().for_each(|rest| shell.free(Garbage::Rest(vec![rest])));
        }
        assert_eq!(holds, Some(Reason::Work), "only helpers leave results to be written later");
        let (head, tail) = weir_wire::reply_result_around(&id);
        let receiver = Receiver::new(session, db, head, [behind, tail].concat());
        let piece = Piece { bytes: Arc::new(result), rest };
        subscriptions.begin_results(shell, sessions, databases, piece, receiver);
    }

    /// A helper has composed updates: they leave, and the replies that had to wait for them.
    pub(super) fn updated(&mut self, work: WorkId, bodies: LateBodies) {
        let Self { shell, sessions, databases, .. } = self;
        let (db, told) = databases.have_updates(shell, sessions, work, bodies);
        for session in told {
            // More of its updates may be with other helpers.
            if self.databases.is_told_late(db, session) {
                continue;
            }
            let untold = self.round.untold.remove(&(db, session)).unwrap_or_default();
            let (told, untold): (Vec<Untold>, Vec<Untold>) =
                untold.into_iter().partition(|untold| untold.is_among);
            told.into_iter().for_each(|Untold { answer, .. }| self.give_told(db, answer));
            if self.databases.get(db).is_none() {
                untold.into_iter().for_each(|Untold { answer, .. }| self.give_told(db, answer));
                continue;
            }
            // What the session has asked since comes behind them.
            for Untold { answer, .. } in untold.into_iter().rev() {
                self.round.push_front(db, Turn::Untold(answer));
            }
        }
    }

    /// Runs what comes behind all else of the round, if that is decided which it needs. True if any
    /// of it ran.
    fn run_last(&mut self) -> bool {
        let mut has_run = false;
        if self.round.last.is_empty() {
            return has_run;
        }
        for last in std::mem::take(&mut self.round.last) {
            match last {
                Last::Command { id, name, args, came_us }
                    if self.may_run(&name, &args, came_us) =>
                {
                    self.command(id, &name, &args);
                    has_run = true;
                }
                // A member that has forgotten what it promised is being opened again, say.
                Last::Configuration(result) if !self.admin.is_opening() => {
                    if let Some(configuration) = self.configuration_read(result) {
                        self.round.last.push_back(Last::Reconfiguration(configuration));
                    }
                    has_run = true;
                }
                Last::Reconfiguration(configuration) if self.may_reconfigure(&configuration) => {
                    self.reconfigure(configuration);
                    has_run = true;
                }
                waits => self.round.last.push_back(waits),
            }
        }
        has_run
    }

    /// Whether all is decided but what clusters are to decide: a leader under load is hardly ever without that.
    fn are_all_settled(&self) -> bool {
        self.databases.values().all(Db::is_settled)
    }

    /// Whether a configuration can take effect.
    fn may_reconfigure(&mut self, configuration: &Configuration) -> bool {
        let leaving = self.leaving(configuration);
        // All of them begin at once, and none is left alone whose time passes.
        let mut have_left = true;
        for db in &leaving {
            have_left &= self.has_left_lead(*db);
        }
        have_left && !self.admin.is_opening() && self.are_all_settled()
    }

    /// Whether the databases that an admin command concerns are decided as far as it needs that, and, if it removes
    /// them, not at work on what came before it.
    fn may_run(&mut self, command: &str, args: &[String], came_us: u64) -> bool {
        let id = args.first().and_then(|name| self.databases.by_name(name));
        match (command, id) {
            // With a configuration file it is refused.
            ("ovsdb-server/remove-db", Some(id)) if self.admin.config_file().is_none() => {
                let is_at_work = self.databases.is_at_work_on_earlier(id, came_us);
                self.has_left_lead(id) && self.can_remove(id) && !is_at_work
            }
            // There is nothing to remove until its file is open once more, or cannot be opened.
            ("ovsdb-server/remove-db", None) => {
                !args.first().is_some_and(|name| self.admin.is_opening_again(name))
            }
            ("index/drop", Some(id)) => {
                self.databases.get(id).is_some_and(|db| !db.tables().is_away())
            }
            ("ovsdb-server/compact", Some(id)) => {
                self.databases.get(id).is_none_or(Db::shows_last_commit)
            }
            ("ovsdb-server/compact", None) => self.databases.values().all(Db::shows_last_commit),
            ("weir/standalone-history", _) => self.are_all_settled(),
            _ => true,
        }
    }
}
