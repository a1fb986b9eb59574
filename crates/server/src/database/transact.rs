//! Transactions run: those that have just come, those that wake, and those whose records could not
//! be written.

use std::sync::Arc;

use weir_data::{Delta, Error, Schema, Uuid};
use weir_engine::{Env, Outcome, ReadOnly, Reads, Search};
use weir_json::{Text, TextBuf};

use crate::database::attempts::Way;
use crate::database::commits::Writes;
use crate::database::trigger::Trigger;
use crate::database::waiting::{Moment, kept_bytes};
use crate::database::{Databases, Db};
use crate::effect::Level;
use crate::ids::{DbId, SessionId, Ticket};
use crate::once::Once;
use crate::origin::{Asker, Identity, Origin};
use crate::reply::error_text;
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::session::locks::Held;
use crate::shell::Shell;
use crate::work::{Made, MadeRecord, append_error, operations};

/// The most that one transaction may cost in a step of the core, in units of about 50 ns; what
/// costs more runs with a helper.
const STEP_COST_MAX: u64 = 100_000;

/// A transaction may keep others from the tables for so many steps, unless what they do would make
/// a difference to it: 250 ms.
const HOLD_STEPS: u64 = 50;

/// The transactions of one round share that; each gets at least this part of it.
const STEP_PART_MIN: u64 = 64;

/// Waiting transactions that run again may cost a database this part of a step in a round; one that
/// begins within it may cost a step of its own.
const WAKE_SHARE: u64 = 4;

/// What it costs to run a waiting transaction again, besides what the transaction costs itself.
const WAKE_COST: u64 = 20;

/// What transactions may cost in a step of the core, in units of about 50 ns.
pub(super) struct Step {
    max: u64,
    /// What those of this round have cost.
    cost: u64,
}

impl Default for Step {
    fn default() -> Self {
        Self { max: STEP_COST_MAX, cost: 0 }
    }
}

impl Step {
    fn budget(&self) -> u64 {
        self.max.saturating_sub(self.cost).max(self.max / STEP_PART_MIN)
    }

    fn spend(&mut self, outcome: &Outcome) {
        self.cost = self.cost.saturating_add(outcome.cost());
    }
}

/// The locks that a session owned when its request came, if it had to wait since, and what the
/// request asks for that `transact` does not know.
type How<'a> = (Option<&'a [Held]>, Option<Once>);

/// An operation that has looked at so many rows is logged.
pub(super) const SLOW_QUERY_ROWS: u64 = 10_000;

/// Whether a change that no client asked for has a record.
pub(crate) enum Joining {
    /// The record has been made, unless nothing of the change is for the file.
    Recorded(Option<MadeRecord>),
    /// The record is to be made.
    Unrecorded,
}

impl Databases {
    /// Sets the most that one transaction may cost in a step.
    pub(crate) fn set_step_cost_max(&mut self, units: u64) {
        self.step.max = units;
    }

    /// What a transaction may cost on tables for which others wait.
    pub(super) fn hold_cost_max(&self) -> u64 {
        self.step.max.saturating_mul(HOLD_STEPS)
    }

    /// The most that anything may cost in a step.
    pub(crate) fn step_cost_max(&self) -> u64 {
        self.step.max
    }

    /// Transactions, and updates before replies, may cost as much again.
    pub(crate) fn begin_round(&mut self) {
        self.step.cost = 0;
        for (_, db) in &mut self.entries {
            // Mostly none has run again, and nobody was told.
            if db.waiting.cost > 0 {
                db.waiting.cost = 0;
            }
            if db.watch.told_cost > 0 {
                db.watch.told_cost = 0;
            }
        }
    }

    /// How many times waiting transactions have run again.
    pub(crate) fn ran_again(&self) -> u64 {
        self.values().map(|db| db.waiting.ran()).sum()
    }

    /// Files a new transaction that has been executed, and runs those that it wakes.
    pub(crate) fn transact(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        trigger: Trigger,
        outcome: Outcome,
    ) {
        let db = trigger.origin.db;
        if self.settle(shell, sessions, trigger, outcome, Writes::Accepted) {
            self.wake(shell, sessions, db);
        }
    }

    /// Runs a transaction of the server's own; one that would wait is forgotten.
    pub(crate) fn transact_own(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        db: DbId,
        name: &str,
        message: TextBuf,
    ) {
        let identity = Arc::new(Identity { name: name.to_owned(), ..Identity::default() });
        let (id, created_us) = (b"null".to_vec(), shell.now_us());
        let eid = self.fresh_eid(shell, db);
        let origin = Origin {
            asker: Asker::Server,
            identity,
            id,
            db,
            place: Ticket::default(),
            created_us,
            eid,
        };
        let outcome =
            self.execute(shell, sessions, &origin, (None, None), &operations(message.text()));
        // One that is too long for this step is done by a helper.
        if !matches!(outcome, Outcome::Wait { .. }) {
            self.transact(shell, sessions, Trigger::new(origin, Arc::new(message)), outcome);
        }
    }

    /// Runs the waiting transactions that are awake, in order of arrival, as far as a step goes;
    /// what they change may wake more of them. The rest runs in the next rounds, with what others
    /// ask for in between.
    pub(crate) fn wake(&mut self, shell: &mut Shell, sessions: &mut Sessions, id: DbId) {
        let budget = self.step.max;
        loop {
            // While the tables are not open, it is done when they are.
            let Some(db) = self.get_mut(id).filter(|db| db.tables.is_open()) else { return };
            if db.waiting.cost > budget / WAKE_SHARE {
                return;
            }
            let Some(trigger) = db.waiting.next(shell.now_us()) else { return };
            let cost = if trigger.is_long {
                self.set_aside(sessions, trigger, Writes::Accepted);
                0
            } else if let Some(trigger) = self.judge_first(shell, sessions, trigger) {
                let outcome = self.execute_again(shell, sessions, &trigger, budget);
                let cost = outcome.cost();
                self.settle(shell, sessions, trigger, outcome, Writes::Accepted);
                cost
            } else {
                0
            };
            let spent = &mut self.open(id).waiting.cost;
            *spent = spent.saturating_add(cost).saturating_add(WAKE_COST);
        }
    }

    /// Runs a transaction from scratch: it waits, or is filed.
    fn run(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        trigger: Trigger,
        writes: Writes<'_>,
    ) {
        if trigger.is_long {
            return self.set_aside(sessions, trigger, writes);
        }
        let Some(trigger) = self.judge_first(shell, sessions, trigger) else { return };
        let outcome = self.execute_again(shell, sessions, &trigger, self.step.budget());
        self.step.spend(&outcome);
        self.settle(shell, sessions, trigger, outcome, writes);
    }

    fn execute_again(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        trigger: &Trigger,
        budget: u64,
    ) -> Outcome {
        let how = (trigger.locks.as_deref(), trigger.once.as_deref().copied());
        let operations = operations(trigger.message.text());
        self.execute_within(shell, sessions, &trigger.origin, how, &operations, budget)
    }

    /// Executes operations on open tables, as long as that takes no longer than a step may. `locks`
    /// are those that the session owned when the request came, if it had to wait since; `once` is what
    /// it asks for that `transact` does not know.
    pub(crate) fn execute(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        origin: &Origin,
        how: How<'_>,
        operations: &[Text<'_>],
    ) -> Outcome {
        let budget = self.step.budget();
        let outcome = self.execute_within(shell, sessions, origin, how, operations, budget);
        self.step.spend(&outcome);
        outcome
    }

    pub(super) fn execute_within(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        origin: &Origin,
        (locks, once): How<'_>,
        operations: &[Text<'_>],
        budget: u64,
    ) -> Outcome {
        let elapsed_ms = shell.elapsed_ms(origin.created_us);
        let db = self.open(origin.db);
        let (is_reserved, read_only) = (db.is_reserved(), db.read_only(&origin.identity));
        let has_lock = |lock: &str| match (locks, origin.asker) {
            (Some(locks), _) => {
                locks.iter().any(|held| held.name == lock && sessions.is_held(held))
            }
            (None, Asker::Session(session)) => sessions.may_assert(session, lock),
            (None, Asker::Server | Asker::Peer(_)) => false,
        };
        let mut own = origin.uuids();
        let mut env = Env {
            uuids: own.as_mut().unwrap_or_else(|| shell.uuids()),
            read_only,
            client: origin.identity.client(),
            has_lock: &has_lock,
            elapsed_ms,
            may_wait: true,
            budget: if is_reserved { u64::MAX } else { budget },
            watcher: None,
            teaches: true,
        };
        let database = db.tables.here_mut().expect("transactions run on open tables");
        if Once::explains(once) {
            return weir_engine::explain(database, operations, &mut env);
        }
        let outcome = weir_engine::execute(database, operations, &mut env);
        self.note_queries(shell, origin, &outcome, None);
        outcome
    }

    /// Counts how a request has found its rows, wherever it has run, and logs it if it was slow.
    /// `schema` is that of the rows, if they may be others by now.
    #[inline]
    pub(super) fn note_queries(
        &mut self,
        shell: &mut Shell,
        origin: &Origin,
        outcome: &Outcome,
        schema: Option<&Schema>,
    ) {
        if let Outcome::Done(done) = outcome {
            self.queries.add(&done.work);
            let is_slow = |search: &Search| search.rows_visited >= self.slow_rows;
            if let Some(search) = done.slowest.filter(is_slow) {
                self.log_slow(shell, origin, &search, schema);
            }
        }
    }

    #[cold]
    fn log_slow(
        &self,
        shell: &mut Shell,
        origin: &Origin,
        search: &Search,
        schema: Option<&Schema>,
    ) {
        let Some(db) = self.get(origin.db) else { return };
        let (name, client, number) = (&db.name, &origin.identity.name, search.operation + 1);
        let what = search.describe(schema.unwrap_or_else(|| db.schema()));
        let text = format!("{name}: {client}: slow query: operation {number} {what}");
        shell.log_limited("slow query", "ovsdb_server", Level::Info, text);
    }

    /// `weir/slow-query-rows [ROWS]`: from how many rows on, looked at by one operation, a query is
    /// logged.
    pub(crate) fn slow_query_rows(&mut self, argument: &str) -> Result<String, String> {
        if argument.is_empty() {
            return Ok(format!("{}\n", self.slow_rows));
        }
        self.slow_rows = argument.parse().map_err(|_| "invalid argument")?;
        Ok(String::new())
    }

    /// What has come of a transaction: it waits, or is filed. True if it changed something.
    fn settle(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        outcome: Outcome,
        writes: Writes<'_>,
    ) -> bool {
        if !matches!(outcome, Outcome::Wait { .. }) {
            note_waited(sessions, &mut trigger);
        }
        let done = match outcome {
            Outcome::Done(done) => done,
            Outcome::Wait { timeout_ms, reads, .. } => {
                self.make_wait(shell, sessions, trigger, (timeout_ms, reads), None);
                return false;
            }
            Outcome::TooLong { .. } => {
                self.set_aside(sessions, trigger, writes);
                return false;
            }
        };
        debug_assert!(done.late.is_none(), "only helpers leave results to be written later");
        let Some((mut trigger, done)) = self.judge(shell, sessions, trigger, done, writes) else {
            return false;
        };
        let (mut reply, mut delta, comment) = (done.reply, done.delta, done.comment);
        let db = self.open(trigger.origin.db);
        let mut record = None;
        if let Some(change) = &delta {
            if db.storage.is_clustered() {
                // What it has run under counts as well if another leader has to run it.
                trigger.keep_locks(sessions);
            }
            let eid = trigger.entry_id();
            match db.record(shell, change, (eid, comment), done.durable, writes) {
                Ok(written) => record = written,
                Err(error) => {
                    let database = db.tables.here_mut();
                    database.expect("the change has just been made there").revert(change);
                    append_error(&mut reply, &error);
                    delta = None;
                }
            }
        }
        db.file_done(Some((trigger, reply)), delta.map(|delta| (delta, record)))
    }

    /// A change that no client asked for, and that has been made already, is written and told with
    /// the others of its batch.
    pub(crate) fn join(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        (delta, joining): (Delta, Joining),
    ) {
        let db = self.open(id);
        let record = match joining {
            Joining::Recorded(made) => {
                db.add_made(made.map(Made::Record), (Uuid::ZERO, None), false)
            }
            Joining::Unrecorded => {
                let recorded =
                    db.record(shell, &delta, (Uuid::ZERO, None), false, Writes::Accepted);
                recorded.expect("only a client's change is refused before it is written")
            }
        };
        db.file_done(None, Some((delta, record)));
        self.wake(shell, sessions, id);
    }

    /// A transaction waits until what it depends on changes, or its time is up. It has looked at
    /// the database as it is, or as it was `since` then.
    pub(super) fn make_wait(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        (timeout_ms, reads): (Option<u64>, Reads),
        since: Option<Moment>,
    ) {
        if trigger.is_canceled {
            return self.cancel(shell, sessions, trigger);
        }
        let created_us = trigger.origin.created_us;
        let deadline_us = |ms: u64| created_us.saturating_add(ms.saturating_mul(1000));
        trigger.deadline_us = timeout_ms.map(deadline_us);
        if let Asker::Peer(_) = trigger.origin.asker {
            // Who asked waits itself.
            return self.open(trigger.origin.db).commits.peers_waiting.push(trigger.origin);
        }
        // As long as it has taken.
        let now_us = shell.now_us();
        let rest_us = now_us.saturating_add(now_us.saturating_sub(trigger.sent_us));
        trigger.rest_us = trigger.is_long.then_some(rest_us);
        // When it runs again, the locks count that are owned then, unless it says by which it was asked for.
        trigger.locks = trigger.locks.filter(|_| trigger.has_heard);
        trigger.lacks_locks = false;
        trigger.way = Way::default();
        self.let_go(shell, sessions, &mut trigger);
        let session = trigger.origin.session();
        // The session may have left while a helper was at work.
        let Some(session) = session.filter(|session| sessions.has(*session)) else { return };
        if !trigger.has_waited {
            if let Err(error) = sessions.check_room(session, kept_bytes(&trigger)) {
                let message = weir_wire::reply_error(&trigger.origin.id, &error_text(&error));
                // It has changed nothing that the session would have to see before.
                return shell.send(session, message);
            }
            note_waits(sessions, &mut trigger);
        }
        self.open(trigger.origin.db).waiting.push(trigger, reads, since);
    }

    /// What could not be written is undone, and every request of the batch runs again, read-only
    /// and failed ones included. True if a change of the database's source is among that.
    pub(super) fn run_again(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        error: &str,
    ) -> bool {
        let undone = self.open(id).undo();
        let is_replicated = undone.iter().any(|done| done.request.is_none());
        let requests = undone.into_iter().filter_map(|done| done.request);
        let mut requests: Vec<(Trigger, Vec<u8>)> = requests.collect();
        requests.sort_by_key(|(trigger, _)| trigger.origin.created_us);
        // What is set aside now came before what has been set aside since.
        let later = std::mem::take(&mut self.open(id).commits.long);
        for (mut trigger, mut reply) in requests {
            let comes_behind = |long: &Trigger| long.origin.asker == trigger.origin.asker;
            if trigger.message.is_empty() {
                // A big one, whose text is gone.
                append_error(&mut reply, &Error::io(None, error));
                self.open(id).file_done(Some((trigger, reply)), None);
            } else {
                // What has become long is answered before what its session has asked since.
                trigger.is_long |= self.open(id).commits.long.iter().any(comes_behind);
                self.run(shell, sessions, trigger, Writes::Refused(error));
            }
        }
        self.open(id).commits.long.extend(later);
        self.wake(shell, sessions, id);
        is_replicated
    }

    /// Runs a transaction that has been elsewhere, and who is woken by it.
    pub(crate) fn run_again_here(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        trigger: Trigger,
    ) {
        let id = trigger.origin.db;
        if trigger.is_conversion() {
            return self.await_conversion(trigger);
        }
        self.run(shell, sessions, trigger, Writes::Accepted);
        self.wake(shell, sessions, id);
    }

    /// Runs the waiting transactions that are awake, or whose time is up.
    pub(crate) fn run_waits(&mut self, shell: &mut Shell, sessions: &mut Sessions) {
        let now_us = shell.now_us();
        let is_due = |_, db: &Db| db.wait_us().is_some_and(|at| at <= now_us);
        let mut last = None;
        while let Some(id) = self.next_where(&mut last, is_due) {
            if self.is_open(id) {
                self.wake(shell, sessions, id);
            } else {
                self.hurry(shell, id);
            }
        }
    }

    /// The session of a transaction goes on, if it was held for it, and what it asked behind that is answered.
    pub(super) fn let_go(&mut self, shell: &Shell, sessions: &mut Sessions, trigger: &mut Trigger) {
        if let (Some(session), Some(ticket)) = (trigger.origin.session(), trigger.ticket.take()) {
            sessions.leave_order(session, trigger.origin.db, ticket);
        }
        if let (Some(session), Some(reason)) = (trigger.origin.session(), trigger.holds.take()) {
            self.release(shell, sessions, session, reason, Lane::Db(trigger.origin.db));
        }
    }

    /// A reason to wait is gone for a session; updates that have waited for it may go.
    pub(crate) fn release(
        &mut self,
        shell: &Shell,
        sessions: &mut Sessions,
        session: SessionId,
        reason: Reason,
        lane: Lane,
    ) {
        if sessions.release(session, reason, lane) {
            self.want_updates(shell);
        }
    }

    /// A session's message waits until the database is open.
    pub(crate) fn wait_for(&mut self, sessions: &mut Sessions, session: SessionId, id: DbId) {
        sessions.hold(session, Reason::Closed, Lane::Db(id));
        self.open(id).tables.wait(super::Queued::Session(session));
    }

    /// The database that a session's message waited for is open, or gone.
    pub(super) fn let_in(
        &mut self,
        shell: &Shell,
        sessions: &mut Sessions,
        session: SessionId,
        id: DbId,
    ) {
        self.release(shell, sessions, session, Reason::Closed, Lane::Db(id));
    }
}

impl Db {
    /// Why this client may not write, if it may not.
    pub(super) fn read_only(&self, identity: &Identity) -> Option<ReadOnly> {
        match (self.is_reserved(), identity.read_only || self.is_backup) {
            (true, _) => Some(ReadOnly::ReservedDatabase),
            (false, true) => Some(ReadOnly::Server),
            (false, false) => None,
        }
    }

    /// When the next transaction runs again that waits, or asks for tables that are away; nobody can
    /// say while they are closed.
    pub(super) fn wait_us(&self) -> Option<u64> {
        let may_ask = self.tables.is_away() && !self.has_hurried;
        self.waiting.wakeup_us().filter(|_| self.tables.is_open() || may_ask)
    }
}

/// A transaction waits from now on: so many bytes are kept for it. `None` if its session has left.
pub(crate) fn note_waits(sessions: &mut Sessions, trigger: &mut Trigger) -> Option<usize> {
    let Some(session) = trigger.origin.session() else { return Some(0) };
    if !sessions.has(session) {
        return None;
    }
    let bytes = kept_bytes(trigger);
    sessions.note_kept(session, bytes);
    trigger.has_waited = true;
    Some(bytes)
}

/// A transaction that has waited does not any more: nothing is kept for that.
pub(crate) fn note_waited(sessions: &mut Sessions, trigger: &mut Trigger) {
    if let (true, Some(session)) = (trigger.has_waited, trigger.origin.session()) {
        trigger.has_waited = false;
        sessions.note_kept(session, 0);
    }
}
