//! A round: transactions run and are written together, then answered together.

use std::sync::Arc;

use weir_data::{Committed, Delta, Error, Uuid};
use weir_engine::{Converted, Env, Outcome, ReadOnly};
use weir_json::{Text, TextBuf};
use weir_log::standalone::{self, Form};

use crate::database::trigger::{Origin, Trigger};
use crate::database::{Db, Storage};
use crate::effect::Effect;
use crate::event::{CommandId, ConversionError, DbId, LinkId, Now, SessionId};
use crate::monitors::first_rows::Begun;
use crate::monitors::pages::Receiver;
use crate::monitors::requests::Changing;
use crate::server::Server;
use crate::session::gate::Incoming;
use crate::work::away::STEP_PART_MIN;
use crate::work::{Garbage, Piece, Rest, append_error};

/// Longest that updates wait for an idle moment, in microseconds, if few monitors get them.
pub(crate) const FLUSH_DELAY_US_MIN: u64 = 500;
/// The same for each monitor: four times what a send costs, so that telling them takes no more than
/// a fifth of the time.
pub(crate) const FLUSH_DELAY_US_EACH: u64 = 16;
/// The same however many monitors there are.
pub(crate) const FLUSH_DELAY_US_MAX: u64 = 2000;
/// To so few monitors updates go at the next idle moment even in a stream of transactions: telling
/// them costs less than the transaction did.
pub(crate) const FLUSH_AT_IDLE_MONITORS_MAX: usize = 4;
/// Room that is made for a round's records at once, if the last round's were as long, in bytes.
const APPEND_ROOM_MAX: usize = 64 << 10;
/// A round's list of transactions is used again, with room for at most so many.
const DONE_KEPT: usize = 64;
/// Most bytes of updates that wait for one.
pub(crate) const FLUSH_BYTES_MAX: usize = 256 << 10;

/// A transaction that has run in this round.
struct Done {
    db: DbId,
    /// The request and its reply; none if the change came from the database's source.
    request: Option<(Trigger, Vec<u8>)>,
    delta: Option<Arc<Delta>>,
}

/// A reply that waits for the end of the round only because everything does.
pub(crate) struct Answer {
    pub(crate) session: SessionId,
    /// The request's id, as JSON text.
    pub(crate) id: Vec<u8>,
    /// JSON text, or its first piece.
    pub(crate) result: Vec<u8>,
    /// What comes behind that.
    pub(crate) rest: Option<Rest>,
    /// The session is held until it has left.
    pub(crate) holds: bool,
}

/// A request other than a transaction, or a notification.
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    pub(crate) message: Incoming,
    /// The session is held until it has been handled, so that what comes behind it stays there.
    pub(crate) holds: bool,
}

/// Events that wait until the round's transactions are decided.
pub(crate) enum Deferred {
    /// An admin command: it may take a snapshot, or remove a database.
    Command { id: CommandId, name: String, args: Vec<String> },
    /// A compacted copy is complete but for what was appended meanwhile.
    CompactionWritten { db: DbId, result: Result<u64, String> },
    /// A converted copy is complete but for what was committed meanwhile.
    Converted { db: DbId, result: Result<Box<Converted>, ConversionError> },
    /// It has taken the file's place.
    ConversionFinished { db: DbId, result: Result<u64, String> },
    /// The configuration file has been read: databases may go.
    ConfigurationRead { result: Result<Vec<u8>, String> },
}

/// What has been handled since the last round ended.
#[derive(Default)]
pub(crate) struct Round {
    /// Counts rounds.
    pub(crate) number: u64,
    /// What its transactions have cost, in units of about 50 ns.
    cost: u64,
    /// Transactions, in the order in which they ran.
    done: Vec<Done>,
    /// Transactions that are too long for a step.
    pub(crate) long: Vec<Trigger>,
    /// Long messages of sources.
    pub(crate) mirrored: Vec<(LinkId, Vec<u8>)>,
    /// Rows that monitors begin with.
    pub(crate) initials: Vec<Begun>,
    /// What helpers have found out.
    pub(crate) answers: Vec<Answer>,
    /// Other requests: they run when the transactions are decided.
    pub(crate) requests: Vec<Asked>,
    /// What other conditions make appear and vanish.
    pub(crate) changes: Vec<(Changing, Vec<u8>)>,
    /// What else must see the tables as they are in the files, and runs after the requests.
    pub(crate) deferred: Vec<Deferred>,
    /// Appends that have not been answered.
    appending: usize,
    /// Databases whose append failed.
    failed: Vec<(DbId, String)>,
}

/// Whether a transaction that runs may write to the file.
#[derive(Clone, Copy)]
pub(crate) enum Writes<'a> {
    Accepted,
    /// The file refuses, with this strerror(3) text.
    Refused(&'a str),
}

impl Round {
    /// Whether the tables are as they are in the files and as the monitors know them.
    pub(crate) fn is_decided(&self) -> bool {
        self.appending == 0 && self.done.is_empty()
    }

    /// Whether there is anything to answer besides transactions.
    fn has_more(&self) -> bool {
        let Self { answers, initials, changes, requests, deferred, .. } = self;
        !(answers.is_empty()
            && initials.is_empty()
            && changes.is_empty()
            && requests.is_empty()
            && deferred.is_empty())
    }
}

impl Server {
    /// Whether a transaction of the server's own may run: no append is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.round.appending == 0
    }

    /// Runs a new transaction, whose operations are already at hand, and those that it wakes.
    pub(crate) fn transact(
        &mut self,
        now: Now,
        origin: Origin,
        message: TextBuf,
        outcome: Outcome,
    ) {
        let trigger = Trigger::new(origin, Arc::new(message));
        let db = trigger.origin.db;
        if self.settle(now, trigger, outcome, Writes::Accepted) {
            self.wake(now, db);
        }
    }

    /// Runs waiting transactions again, in order of arrival, until no more of them commit.
    pub(crate) fn wake(&mut self, now: Now, db: DbId) {
        loop {
            let Some(state) = self.dbs.get_mut(&db).filter(|db| !db.is_closed()) else { return };
            let waiting = state.waiting.take();
            let mut committed = false;
            for trigger in waiting {
                committed |= self.run(now, trigger, Writes::Accepted);
            }
            if !committed {
                return;
            }
        }
    }

    /// Runs a transaction from scratch: it waits, or is done for this round. True if it changed
    /// something.
    fn run(&mut self, now: Now, trigger: Trigger, writes: Writes<'_>) -> bool {
        if trigger.is_long {
            self.set_aside(trigger, writes);
            return false;
        }
        let message = Arc::clone(&trigger.message);
        match self.execute(now, &trigger.origin, &Trigger::operations(message.text())) {
            Some(outcome) => self.settle(now, trigger, outcome, writes),
            None => false,
        }
    }

    /// Executes operations for `origin`, as long as that takes no longer than a step may; `None` if
    /// the database is gone.
    pub(crate) fn execute(
        &mut self,
        now: Now,
        origin: &Origin,
        operations: &[Text<'_>],
    ) -> Option<Outcome> {
        let db = self.dbs.get_mut(&origin.db)?;
        let (locks, session) = (&self.locks, origin.session);
        let (is_reserved, is_backup) = (db.is_reserved(), db.is_backup());
        let engine = db.engine.here_mut()?;
        let left = self.step_cost_max.saturating_sub(self.round.cost);
        let budget = left.max(self.step_cost_max / STEP_PART_MIN);
        let mut env = Env {
            uuids: &mut self.uuids,
            read_only: match (is_reserved, origin.identity.read_only || is_backup) {
                (true, _) => Some(ReadOnly::ReservedDatabase),
                (false, true) => Some(ReadOnly::Server),
                (false, false) => None,
            },
            client: origin.identity.client(),
            has_lock: &|lock| locks.owner(lock) == Some(session),
            elapsed_ms: now.monotonic_us.saturating_sub(origin.created_us) / 1000,
            may_wait: true,
            budget: if is_reserved { u64::MAX } else { budget },
        };
        let outcome = weir_engine::execute(engine, operations, &mut env);
        let cost = if let Outcome::Done(done) = &outcome { done.cost } else { 0 };
        self.round.cost = self.round.cost.saturating_add(cost);
        Some(outcome)
    }

    /// Takes a transaction's outcome: it waits, or joins the round. True if it changed something.
    fn settle(&mut self, now: Now, trigger: Trigger, outcome: Outcome, writes: Writes<'_>) -> bool {
        let form = self.form();
        let done = match outcome {
            Outcome::Wait { timeout_ms } => {
                self.make_wait(now, trigger, timeout_ms);
                return false;
            }
            Outcome::TooLong => {
                self.set_aside(trigger, writes);
                return false;
            }
            Outcome::Done(done) => done,
        };
        let Some(db) = self.dbs.get_mut(&trigger.origin.db) else { return false };
        let (mut reply, mut delta) = (done.reply, done.delta);
        if let Some(change) = &delta {
            let comment = done.comment.as_deref();
            if let Err(error) = db.record(change, now.wall_ms, comment, done.durable, writes, form)
            {
                if let Some(engine) = db.engine.here_mut() {
                    engine.revert(change);
                }
                append_error(&mut reply, &error);
                delta = None;
            }
        }
        self.answer_with_round(trigger, reply, delta)
    }

    /// A transaction has run: it is answered with its round. True if it changed something.
    pub(crate) fn answer_with_round(
        &mut self,
        trigger: Trigger,
        reply: Vec<u8>,
        delta: Option<Delta>,
    ) -> bool {
        let committed = delta.is_some();
        let db = trigger.origin.db;
        self.round.done.push(Done {
            db,
            request: Some((trigger, reply)),
            delta: delta.map(Arc::new),
        });
        committed
    }

    /// A change that no client asked for, and that has been made already, is written and told with
    /// the others of the round.
    pub(crate) fn join_round(&mut self, now: Now, id: DbId, delta: Delta) {
        let form = self.form();
        let Some(db) = self.dbs.get_mut(&id) else { return };
        // Only a client's change can be refused here.
        let _ = db.record(&delta, now.wall_ms, None, false, Writes::Accepted, form);
        self.round.done.push(Done { db: id, request: None, delta: Some(Arc::new(delta)) });
    }

    /// The same if its record has been made elsewhere.
    pub(crate) fn join_round_with(&mut self, id: DbId, delta: Delta, record: Vec<u8>) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        if !record.is_empty() {
            db.add_record(record, false);
        }
        self.round.done.push(Done { db: id, request: None, delta: Some(Arc::new(delta)) });
    }

    /// In which form records are written.
    pub(crate) fn form(&self) -> Form {
        if self.files.whole_columns { Form::Whole } else { Form::Difference }
    }

    /// A transaction waits until its database changes, or its time is up.
    pub(crate) fn make_wait(&mut self, now: Now, mut trigger: Trigger, timeout_ms: Option<u64>) {
        let Origin { session, created_us, db, .. } = trigger.origin;
        trigger.deadline_us = timeout_ms.map(|ms| deadline_us(created_us, ms));
        trigger.is_out = false;
        if std::mem::take(&mut trigger.holds) {
            self.let_go(now, session);
        }
        let is_open = self.sessions.contains_key(&session);
        if let Some(db) = self.dbs.get_mut(&db).filter(|_| is_open) {
            db.waiting.push(trigger);
            self.check_kept(session);
        }
    }

    /// All events are in: has the round's records written, or answers right away.
    pub(crate) fn finish_round(&mut self, now: Now) {
        if self.round.appending > 0 {
            return;
        }
        for (db, state) in self.dbs.iter_mut().filter(|(_, db)| !db.append.is_empty()) {
            self.effects.push(state.take_append(db));
            self.round.appending += 1;
        }
        if self.round.appending == 0 {
            self.answer_round(now);
        }
    }

    /// An append has been answered; after the last one the round is decided.
    pub(crate) fn appended(&mut self, now: Now, db: DbId, result: Result<(), String>) {
        self.round.appending = self.round.appending.saturating_sub(1);
        self.note_append(db, result.as_ref().err());
        if let Err(error) = result {
            self.round.failed.push((db, error));
        }
        if self.round.appending > 0 {
            return;
        }
        for (db, error) in std::mem::take(&mut self.round.failed) {
            self.undo_round(now, db, &error);
        }
        // Waiting transactions that ran again may have something to write.
        self.finish_round(now);
    }

    /// The database's records could not be written: undoes its transactions, newest first, and runs
    /// every request of the round again, read-only and failed ones included.
    fn undo_round(&mut self, now: Now, id: DbId, error: &str) {
        let of_db = |done: &Done| done.db == id;
        let done = std::mem::take(&mut self.round.done);
        let (undone, rest): (Vec<_>, Vec<_>) = done.into_iter().partition(of_db);
        self.round.done = rest;
        if let Some(db) = self.dbs.get_mut(&id) {
            for done in undone.iter().rev() {
                if let (Some(delta), Some(engine)) = (&done.delta, db.engine.here_mut()) {
                    engine.revert(delta);
                }
            }
            db.note_append_failed();
        }
        let replicated = undone.iter().any(|done| done.request.is_none());
        let requests = undone.into_iter().filter_map(|done| done.request);
        let mut requests: Vec<(Trigger, Vec<u8>)> = requests.collect();
        requests.sort_by_key(|(trigger, _)| trigger.origin.created_us);
        for (trigger, mut reply) in requests {
            if trigger.message.is_empty() {
                // A big one, whose text is gone.
                append_error(&mut reply, &Error::io(None, error));
                self.answer_with_round(trigger, reply, None);
            } else {
                self.run(now, trigger, Writes::Refused(error));
            }
        }
        // What made others wait may be undone.
        self.wake(now, id);
        if replicated {
            self.replication_not_written(now, id);
        }
    }

    /// What was written is committed: monitors learn of it, then everybody is answered.
    fn answer_round(&mut self, now: Now) {
        self.round.number += 1;
        self.round.cost = 0;
        self.answer_transactions(now);
        if self.round.has_more() {
            self.answer_others(now);
        }
        if self.round.done.is_empty() {
            self.compose_for_herds(now);
            self.hand_over_all(now);
        } else {
            // A command has ended somebody's wait on `_Server`.
            self.finish_round(now);
        }
    }

    fn answer_transactions(&mut self, now: Now) {
        if self.round.done.is_empty() {
            return;
        }
        let mut done = std::mem::take(&mut self.round.done);
        let unheard = self.pass_over(&done);
        for done in &done {
            if let Some(delta) = &done.delta {
                self.publish(now, done.db, Arc::clone(delta), unheard.contains(&done.db));
            }
        }
        for Done { request, delta, .. } in done.drain(..) {
            delta.into_iter().for_each(|delta| self.free(Garbage::Delta(delta)));
            let Some((trigger, result)) = request else { continue };
            let Trigger { origin, message, holds, .. } = trigger;
            self.free(Garbage::Text(message));
            let Origin { session, id, .. } = origin;
            self.give(now, Answer { session, id, result, rest: None, holds });
        }
        if self.round.done.is_empty() {
            done.shrink_to(DONE_KEPT);
            self.round.done = done;
        }
    }

    /// Answers what has waited for the transactions to be decided.
    fn answer_others(&mut self, now: Now) {
        for answer in std::mem::take(&mut self.round.answers) {
            self.give(now, answer);
        }
        for begun in std::mem::take(&mut self.round.initials) {
            self.give_initial(now, begun);
        }
        for (changing, difference) in std::mem::take(&mut self.round.changes) {
            self.give_change(now, changing, difference);
        }
        for Asked { session, message, holds } in std::mem::take(&mut self.round.requests) {
            if holds {
                self.is_heard_out(session);
            }
            self.request(now, session, message);
        }
        for deferred in std::mem::take(&mut self.round.deferred) {
            if self.round.done.is_empty() {
                self.do_deferred(now, deferred);
            } else {
                // It must find decided what those before it have set off.
                self.round.deferred.push(deferred);
            }
        }
    }

    fn give(&mut self, now: Now, answer: Answer) {
        let Answer { session, id, result, rest, holds } = answer;
        if holds {
            self.let_go(now, session);
        }
        let Some(rest) = rest else { return self.reply_result(session, &id, result) };
        if self.sessions.contains_key(&session) {
            self.flush_session(session);
            self.hold(session);
            let (head, tail) = weir_wire::reply_result_around(&id);
            let receiver = Receiver::new(session, head, tail.to_vec());
            let piece = Piece { bytes: Arc::new(result), rest: Some(rest) };
            self.begin_stream(now, None, piece, None, vec![receiver]);
        }
    }

    fn do_deferred(&mut self, now: Now, deferred: Deferred) {
        match deferred {
            Deferred::Command { id, name, args } => {
                if self.must_wait(&name, &args) {
                    self.round.deferred.push(Deferred::Command { id, name, args });
                } else {
                    self.command(now, id, &name, &args);
                }
            }
            Deferred::CompactionWritten { db, result } => self.compaction_written(now, db, result),
            Deferred::Converted { db, result } => {
                if self.is_away(db) {
                    self.round.deferred.push(Deferred::Converted { db, result });
                } else {
                    self.snapshot_converted(now, db, result);
                }
            }
            Deferred::ConversionFinished { db, result } => {
                self.conversion_finished(now, db, result);
            }
            Deferred::ConfigurationRead { result } => self.configuration_read(now, result),
        }
    }

    /// Whether an admin command removes a database that long transactions are at work on.
    fn must_wait(&self, command: &str, args: &[String]) -> bool {
        let name = args.first().filter(|_| command == "ovsdb-server/remove-db");
        let id = name.and_then(|name| self.db_names.get(name));
        id.is_some_and(|id| self.is_at_work(*id))
    }

    /// Databases whose transactions of this round are nothing to any monitor: those of thousands
    /// that have conditions on other rows need not be gone through.
    fn pass_over(&mut self, done: &[Done]) -> Vec<DbId> {
        let mut unheard = Vec::new();
        for (id, db) in self.dbs.iter_mut() {
            let of_db = done.iter().filter(|done| done.db == id);
            let mut deltas = of_db.filter_map(|done| done.delta.as_deref()).peekable();
            let Some(engine) = db.engine.here() else { continue };
            if !db.monitors.is_empty()
                && deltas.peek().is_some()
                && db.monitors.pass_over(deltas, engine.store(), Uuid::ZERO)
            {
                unheard.push(id);
            }
        }
        unheard
    }

    /// Tells a database's monitors, unless it is known to be nothing to them, and whoever reads
    /// remotes from it, of a commit.
    pub(crate) fn publish(&mut self, now: Now, id: DbId, delta: Arc<Delta>, is_unheard: bool) {
        self.log_changes(id, &delta);
        let Some(db) = self.dbs.get_mut(&id) else { return };
        db.conversions.note(&delta);
        let position = db.engine.here().map_or(0, weir_engine::Database::position);
        let committed = Committed { position, txn_id: Uuid::ZERO, delta };
        if !is_unheard {
            db.monitors.commit(&committed, db.engine.schema());
        }
        if db.monitors.has_pending() {
            db.updates_since_us.get_or_insert(now.monotonic_us);
        }
        if self.remotes.are_named_in(id, &committed.delta) {
            self.remotes_changed();
        }
    }

    /// Times out waiting transactions.
    pub(crate) fn run_waits(&mut self, now: Now) {
        let is_due = |db: &Db| db.waiting.deadline_us().is_some_and(|at| at <= now.monotonic_us);
        for id in self.dbs.ids_where(|db| is_due(db) && !db.is_closed()) {
            self.wake(now, id);
        }
    }
}

fn deadline_us(created_us: u64, timeout_ms: u64) -> u64 {
    created_us.saturating_add(timeout_ms.saturating_mul(1000))
}

impl Db {
    /// Adds a transaction's record to the round's bytes.
    fn record(
        &mut self,
        delta: &Delta,
        date_ms: i64,
        comment: Option<&str>,
        durable: bool,
        writes: Writes<'_>,
        form: Form,
    ) -> Result<(), Error> {
        if matches!(self.storage, Storage::Memory) {
            return Ok(());
        }
        if self.append.is_empty() {
            self.append.reserve(self.append_room);
        }
        let start = self.append.len();
        let Some(store) = self.engine.store() else { return Ok(()) };
        if !standalone::write_transaction_as(form, &mut self.append, delta, store, date_ms, comment)
        {
            return Ok(());
        }
        if let Writes::Refused(error) = writes {
            self.append.truncate(start);
            return Err(Error::io(None, error));
        }
        self.append_records += 1;
        self.append_sync |= durable;
        Ok(())
    }

    /// Adds a record that has been made elsewhere.
    pub(crate) fn add_record(&mut self, record: Vec<u8>, durable: bool) {
        if self.append.is_empty() {
            self.append = record;
        } else {
            self.append.extend_from_slice(&record);
        }
        self.append_records += 1;
        self.append_sync |= durable;
    }

    /// The round's records, on their way to the file.
    fn take_append(&mut self, db: DbId) -> Effect {
        let bytes = std::mem::take(&mut self.append);
        let sync = std::mem::take(&mut self.append_sync);
        self.append_room = bytes.len().min(APPEND_ROOM_MAX);
        self.note_appended(&bytes);
        Effect::Append { db, bytes, sync }
    }

    /// Keeps count of what goes to the file; a compaction under way needs a copy.
    fn note_appended(&mut self, bytes: &[u8]) {
        let records = std::mem::take(&mut self.append_records);
        let Some(file) = self.standalone() else { return };
        file.size += bytes.len() as u64;
        file.records += records;
        file.appended = (bytes.len() as u64, records);
        if let Some(compaction) = &mut file.compaction {
            compaction.tail.extend_from_slice(bytes);
            compaction.tail_records += records;
        }
    }

    /// Takes back what [`Db::note_appended`] counted.
    fn note_append_failed(&mut self) {
        let Some(file) = self.standalone() else { return };
        let (bytes, records) = std::mem::take(&mut file.appended);
        file.size -= bytes;
        file.records -= records;
        if let Some(compaction) = &mut file.compaction {
            let keep = compaction.tail.len().saturating_sub(bytes as usize);
            compaction.tail.truncate(keep);
            compaction.tail_records = compaction.tail_records.saturating_sub(records);
        }
    }
}
