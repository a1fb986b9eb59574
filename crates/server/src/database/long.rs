//! Long transactions: what costs more than a step of the core may is done by helpers, so that
//! nobody waits for a step that is not his own.
//!
//! 1. A transaction that costs more than a step may is reverted by the engine and set aside. Its
//!    session is held; the locks that it may `assert` are those that the session owns now.
//! 2. When all is decided the transaction is handed over. One that only reads gets a snapshot, and
//!    the database goes on. One that writes gets the tables: until they are back, requests that
//!    need them wait, in order of arrival, and everything else goes on.
//! 3. Done: the tables are home, and the transaction is filed as if it had run at this moment.
//!    Nothing else was committed between the hand-over and now, so it may as well have.
//! 4. Whoever waited goes on, in order.

use std::sync::Arc;

use weir_data::{Delta, Schema, UuidSource};
use weir_engine::{Attempt, Database, Missed, Outcome};
use weir_log::standalone::Style;

use crate::database::attempts::Way;
use crate::database::cancel::CANCELED;
use crate::database::commits::Writes;
use crate::database::conversion;
use crate::database::pacing::Flush;
use crate::database::tables::Queued;
use crate::database::transact::note_waited;
use crate::database::trigger::Trigger;
use crate::database::waiting::Moment;
use crate::database::{Databases, Db};
use crate::ids::{DbId, SessionId, Ticket, WorkId};
use crate::origin::{Asker, Origin};
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::shell::Shell;
use crate::work::{Followed, Garbage, Read, Request, Rest, Work, Write, Written};

/// What a helper is at work on.
#[derive(Debug)]
pub(super) enum Out {
    /// A helper has the tables, and the message, of which this is the length.
    Write { trigger: Trigger, bytes: usize, is_hurried: bool },
    /// The operations run on a snapshot, or have, and are compared with what they have missed.
    Try { trigger: Trigger, key: WorkId, confirms: u32 },
    /// With the moment at which the database was as the helper sees it, and what its rows conform to.
    Read { trigger: Trigger, moment: Moment, schema: Arc<Schema> },
    /// What a conversion has missed.
    Follow(DbId),
}

impl Out {
    /// The transaction.
    pub(super) fn trigger(&self) -> Option<&Trigger> {
        match self {
            Self::Write { trigger, .. }
            | Self::Try { trigger, .. }
            | Self::Read { trigger, .. } => Some(trigger),
            Self::Follow(_) => None,
        }
    }
}

/// The reply to a transaction, or to another request that others decide, on its way.
pub(crate) struct Answer {
    pub(crate) session: SessionId,
    /// The request's id, as JSON text.
    pub(crate) id: Vec<u8>,
    /// JSON text, or its first piece.
    pub(crate) result: Vec<u8>,
    /// The request has been refused: `result` is the error.
    pub(crate) is_error: bool,
    /// What comes behind that.
    pub(crate) rest: Option<Rest>,
    /// And what comes behind all.
    pub(crate) behind: &'static [u8],
    /// Why the session is held until the answer has left.
    pub(crate) holds: Option<Reason>,
    /// The place of the answer among those of its session that others decide, if they have decided it.
    pub(crate) ticket: Option<Ticket>,
    /// If this server has decided the answer: it goes before the answer of others with this ticket.
    pub(crate) place: Ticket,
}

impl Answer {
    /// What a session that has asked for something is answered: JSON text.
    pub(crate) fn new(session: SessionId, origin: Origin, result: Vec<u8>) -> Self {
        let (is_error, behind) = (false, b"".as_slice());
        let (rest, holds, ticket) = (None, None, None);
        let Origin { id, place, .. } = origin;
        Self { session, id, result, is_error, rest, behind, holds, ticket, place }
    }

    /// The place among the answers of its session.
    pub(crate) fn order(&self) -> (Ticket, bool) {
        (self.ticket.unwrap_or(self.place), self.ticket.is_some())
    }

    /// Whether this server has decided it, and it comes before another one to the same session. Those that others decide have
    /// an order of their own.
    pub(crate) fn is_decided_here_before(&self, other: &Self) -> bool {
        let is_own = self.session == other.session && self.ticket.is_none();
        is_own && self.place <= other.place
    }
}

impl Databases {
    /// A transaction is not for a step of the core: it waits until all before it is decided.
    pub(crate) fn set_aside(
        &mut self,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        writes: Writes<'_>,
    ) {
        trigger.is_long = true;
        trigger.refused = match writes {
            Writes::Accepted => None,
            Writes::Refused(error) => Some(error.to_owned()),
        };
        let id = trigger.origin.db;
        if let Asker::Session(session) = trigger.origin.asker {
            trigger.keep_locks(sessions);
            if trigger.holds.is_none() {
                trigger.holds = Some(Reason::Turn);
                sessions.hold(session, Reason::Turn, Lane::Db(id));
            }
        }
        self.open(id).commits.long.push(trigger);
    }

    /// Transactions that are with helpers, or wait for them or for the tables.
    pub(crate) fn unfinished(&self, id: DbId) -> impl Iterator<Item = &Trigger> {
        let waiting = self.get(id).into_iter().flat_map(|db| {
            let queued = db.tables.queue().filter_map(|queued| match queued {
                Queued::Trigger(trigger) => Some(trigger),
                _ => None,
            });
            db.commits.long.iter().chain(queued)
        });
        let out = self.out.values().filter_map(Out::trigger);
        waiting.chain(out.filter(move |trigger| trigger.origin.db == id))
    }

    /// Requests that have run, and are not decided.
    pub(crate) fn has_run(&self, id: DbId) -> impl Iterator<Item = &Trigger> {
        let done = self.get(id).into_iter().flat_map(|db| db.commits.done());
        done.filter_map(|done| done.request.as_ref()).map(|(trigger, _)| trigger)
    }

    /// Sets a new transaction aside.
    pub(crate) fn set_aside_new(&mut self, sessions: &mut Sessions, trigger: Trigger) {
        self.set_aside(sessions, trigger, Writes::Accepted);
    }

    /// All is decided: hands over what was set aside, and need not wait for something else.
    pub(crate) fn hand_over_all(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        must_wait: impl Fn(&Trigger) -> bool,
    ) {
        if !self.open(id).has_long() {
            return;
        }
        let mut long = std::mem::take(&mut self.open(id).commits.long).into_iter();
        for trigger in long.by_ref() {
            self.hand_over(shell, sessions, id, trigger, &must_wait);
            if !self.is_decided(id) {
                // One has been committed at once: the others wait for that.
                break;
            }
        }
        let since = std::mem::take(&mut self.open(id).commits.long);
        self.open(id).commits.long = long.chain(since).collect();
    }

    fn hand_over(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        mut trigger: Trigger,
        must_wait: &dyn Fn(&Trigger) -> bool,
    ) {
        if trigger.origin.session().is_some_and(|session| !sessions.has(session)) {
            return self.drop_long(shell, sessions, trigger);
        }
        if self.open(id).is_too_late(&trigger) {
            // The next leader may have committed it by now: its rows would be there already.
            self.forget_attempt(shell, &mut trigger);
            shell.free(Garbage::Text(trigger.message));
            return self.open(id).commits.peers_too_late.push(trigger.origin);
        }
        // What has run is kept until it is decided, whoever waits.
        if !matches!(trigger.way, Way::Back(_)) && must_wait(&trigger) {
            return self.open(id).commits.long.push(trigger);
        }
        if trigger.origin.is_of_peer() && !self.open(id).storage.may_write() {
            // This server still leads, and may again in this term.
            return self.open(id).commits.long.push(trigger);
        }
        if matches!(trigger.way, Way::Aside) && self.open(id).attempts.are_full() {
            return self.open(id).commits.long.push(trigger);
        }
        // What the session did before is answered and told.
        if let (Some(session), Some(reason)) = (trigger.origin.session(), trigger.holds)
            && reason != Reason::Work
        {
            trigger.holds = Some(Reason::Work);
            sessions.hold(session, Reason::Work, Lane::Db(id));
            self.release(shell, sessions, session, reason, Lane::Db(id));
        }
        let db = self.open(id);
        // What was committed last is always there to be read; but under a lock, behind what others wrote under it.
        let is_of_peer = trigger.origin.is_of_peer();
        let is_under_lock = trigger.has_locks();
        let reads_beside =
            db.tables.is_away() && !is_of_peer && !is_under_lock && trigger.reads_once();
        let may_run = db.tables.is_open() || reads_beside;
        if !may_run {
            db.tables.wait(Queued::Trigger(trigger));
            return self.hurry(shell, id);
        }
        let Some(judged) = self.judge_first(shell, sessions, trigger) else { return };
        let (mut trigger, db) = (judged, self.open(id));
        trigger.lose_locks(sessions);
        trigger.sent_us = shell.now_us();
        let read_only = db.read_only(&trigger.origin.identity);
        // What may write nothing changes nothing either, whatever it asks for. Another member is answered by way of
        // what has run, in its order.
        let reads =
            |trigger: &Trigger| trigger.is_read_only.unwrap_or_else(|| trigger.reads_only());
        let is_read_only = !is_of_peer && (read_only.is_some() || reads(&trigger));
        let request = Request {
            message: Arc::clone(&trigger.message),
            identity: Arc::clone(&trigger.origin.identity),
            read_only,
            locks: sessions.held_names(trigger.locks.as_deref().unwrap_or_default()),
            elapsed_ms: shell.elapsed_ms(trigger.origin.created_us),
            seed: trigger.origin.seed().unwrap_or_else(|| shell.seed()),
        };
        if !is_read_only {
            return self.hand_over_writer(shell, sessions, trigger, request);
        }
        let (snapshot, moment) = (db.tables.snapshot(), db.waiting.moment(db.position()));
        let schema = Arc::clone(snapshot.schema());
        let explained = trigger.explains().then(|| db.key_names());
        // It may have become a reader since: the server has become a backup.
        self.forget_attempt(shell, &mut trigger);
        let of = trigger.origin.asker;
        let read = Read { request, snapshot, explained };
        let work = shell.send_out(of, Work::Read(Box::new(read)));
        self.out.insert(work, Out::Read { trigger, moment, schema });
    }

    /// Hands a transaction over with the tables. `budget` is what it may cost if others wait for
    /// them.
    pub(super) fn write(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        request: Request,
        budget: u64,
        attempt: Option<(Box<Attempt>, Missed, u64)>,
    ) {
        let id = trigger.origin.db;
        let (database, style) = self.send_tables(shell, sessions, id);
        let refused = trigger.refused.take();
        let bytes = std::mem::take(&mut trigger.message).len();
        let (date_ms, of) = (shell.wall_ms(), trigger.origin.asker);
        // Whatever comes of it here, the leader of a cluster or the source of a relay may have to run it.
        let storage = &self.open(id).storage;
        let (keeps_text, entry_limit) = (storage.is_shared(), storage.entry_limit());
        let write = Write {
            request,
            database,
            style,
            date_ms,
            refused,
            entry_limit,
            budget,
            attempt,
            keeps_text,
        };
        let work = shell.send_out(of, Work::Write(Box::new(write)));
        self.out.insert(work, Out::Write { trigger, bytes, is_hurried: false });
    }

    /// A helper has read; the answer, if there is one, is for when the database is decided.
    pub(crate) fn have_read(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        work: WorkId,
        outcome: Outcome,
    ) -> Option<(DbId, Answer)> {
        let Some(Out::Read { mut trigger, moment, schema }) = self.out.remove(&work) else {
            panic!("a helper answers what it was asked")
        };
        if trigger.origin.session().is_some_and(|session| !sessions.has(session)) {
            shell.free(Garbage::Read(Box::new(outcome)));
            self.drop_long(shell, sessions, trigger);
            return None;
        }
        let id = trigger.origin.db;
        if self.get(id).is_none() {
            return self.refusal(shell, sessions, trigger, CANCELED);
        }
        if !trigger.explains() {
            // Other tables may have taken the place of those that were read.
            self.note_queries(shell, &trigger.origin, &outcome, Some(&schema));
        }
        match outcome {
            Outcome::Done(done) => {
                let Asker::Session(session) = trigger.origin.asker else {
                    // It has been taken back.
                    shell.free(Garbage::Read(Box::new(Outcome::Done(done))));
                    return None;
                };
                note_waited(sessions, &mut trigger);
                let Trigger { origin, message, holds, ticket, once, .. } = trigger;
                shell.free(Garbage::Text(message));
                let rest = done.late.map(Rest::results);
                let db = origin.db;
                let (result, behind) = self.result_of(db, once.as_deref(), done.reply);
                let answer = Answer::new(session, origin, result);
                return Some((db, Answer { rest, behind, holds, ticket, ..answer }));
            }
            Outcome::Wait { timeout_ms, reads, .. } => {
                // What it waits for may have come since.
                let since = Some(moment);
                self.make_wait(shell, sessions, trigger, (timeout_ms, reads), since);
            }
            // Only what nobody waits for is stopped.
            Outcome::TooLong { .. } => self.drop_long(shell, sessions, trigger),
        }
        None
    }

    /// The tables are home. If there is no such database any more, that is the answer.
    pub(crate) fn have_written(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        work: WorkId,
        written: Written,
    ) -> Option<(DbId, Answer)> {
        let Some(Out::Write { mut trigger, .. }) = self.out.remove(&work) else {
            panic!("a helper answers what it was asked")
        };
        let id = trigger.origin.db;
        let Written { database, outcome, made, message, .. } = written;
        trigger.message = message;
        if self.get(id).is_none() {
            // A configuration file has removed it.
            shell.free(Garbage::Database(database));
            return self.refusal(shell, sessions, trigger, CANCELED);
        }
        self.take_tables(shell, id, database);
        self.note_queries(shell, &trigger.origin, &outcome, None);
        let committed = match outcome {
            Outcome::Done(done) => {
                note_waited(sessions, &mut trigger);
                let judged = self.judge(shell, sessions, trigger, done, Writes::Accepted);
                judged.is_some_and(|(trigger, done)| {
                    let (db, eid) = (self.open(id), trigger.entry_id());
                    let made = made.filter(|_| done.delta.is_some());
                    let record = db.add_made(made, (eid, done.comment), done.durable);
                    let change = done.delta.map(|delta| (delta, record));
                    db.file_done(Some((trigger, done.reply)), change)
                })
            }
            Outcome::Wait { timeout_ms, reads, .. } => {
                self.make_wait(shell, sessions, trigger, (timeout_ms, reads), None);
                false
            }
            Outcome::TooLong { .. } if trigger.is_canceled => {
                self.cancel(shell, sessions, trigger);
                false
            }
            Outcome::TooLong { .. } => {
                trigger.way = Way::Aside;
                self.set_aside(sessions, trigger, Writes::Accepted);
                false
            }
        };
        self.reopen(shell, sessions, id);
        if committed {
            self.wake(shell, sessions, id);
        }
        None
    }

    /// A helper has converted what a conversion had missed; the database, if it is still there, is
    /// to go on with it once all is decided.
    pub(crate) fn have_followed(
        &mut self,
        shell: &mut Shell,
        work: WorkId,
        followed: Followed,
    ) -> Option<(DbId, Box<weir_engine::Converted>)> {
        let Some(Out::Follow(id)) = self.out.remove(&work) else {
            panic!("a helper answers what it was asked")
        };
        match self.get_mut(id) {
            Some(db) => db.conversions.caught_up(followed).map(|converted| (id, converted)),
            None => {
                conversion::forget(shell, followed);
                None
            }
        }
    }

    /// The tables leave for a helper, and how the record of what it changes is written.
    pub(crate) fn send_tables(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
    ) -> (Box<Database>, Style) {
        // What others have not been told cannot be composed while the tables are away.
        self.flush(shell, sessions, id, Flush::Now);
        let db = self.open(id);
        let style = db.record_style().expect("nothing long is written to `_Server`");
        (db.tables.leave(), style)
    }

    /// The tables are back; who has waited for them is let in by [`Databases::reopen`].
    pub(crate) fn take_tables(&mut self, shell: &mut Shell, id: DbId, database: Box<Database>) {
        self.open(id).has_hurried = false;
        if let Some(snapshot) = self.open(id).tables.come_home(database) {
            shell.free(Garbage::Rows(snapshot));
        }
    }

    /// Undoes what a helper has changed.
    pub(crate) fn take_back(&mut self, id: DbId, delta: &Delta) {
        let database = self.open(id).tables.here_mut();
        database.expect("the helper is done").revert(delta);
    }

    /// Changes open tables in the server's own name; [`Databases::join`] files what has changed.
    pub(crate) fn change_own<T>(
        &mut self,
        shell: &mut Shell,
        id: DbId,
        change: impl FnOnce(&mut Database, &mut UuidSource) -> T,
    ) -> T {
        let database = self.open(id).tables.here_mut();
        change(database.expect("only open tables are changed"), shell.uuids())
    }

    /// Whether a long transaction of a session is about to go to a helper, which holds the session.
    pub(crate) fn has_long_of(&self, id: DbId, session: SessionId) -> bool {
        let is_of = |trigger: &Trigger| trigger.holds.is_some() && trigger.origin.is_of(session);
        self.get(id).is_some_and(|db| db.commits.long.iter().any(is_of))
    }

    /// Whether long transactions on this database that had come by this time are with helpers, or about to go there.
    pub(crate) fn is_at_work_on_earlier(&self, id: DbId, came_us: u64) -> bool {
        self.unfinished(id).any(|trigger| trigger.origin.created_us <= came_us)
    }

    /// Bytes of long transactions that are with helpers, or wait to go there.
    pub(crate) fn message_bytes(&self) -> usize {
        let out = self.out.values().map(|out| match out {
            Out::Read { trigger, .. } | Out::Try { trigger, .. } => trigger.message.len(),
            Out::Write { bytes, .. } => *bytes,
            Out::Follow(_) => 0,
        });
        let of_db = |db: &Db| {
            let long = db.commits.long.iter().map(|trigger| trigger.message.len());
            let queued = db.tables.queue().map(|queued| match queued {
                Queued::Trigger(trigger) => trigger.message.len(),
                Queued::Session(_) => 0,
            });
            long.chain(queued).sum::<usize>()
        };
        out.chain(self.values().map(of_db)).sum()
    }

    /// What helpers are at work on: what, on which database, for whom, and since when.
    pub(crate) fn at_work(
        &self,
    ) -> impl Iterator<Item = (&'static str, DbId, Option<SessionId>, Option<u64>)> {
        let late = self.late.databases().map(|db| ("updates", db, None, None));
        let out = self.out.values().map(|out| {
            let transaction = |what, trigger: &Trigger| {
                let origin = &trigger.origin;
                (what, origin.db, origin.session(), Some(origin.created_us))
            };
            match out {
                Out::Write { trigger, .. } => transaction("write", trigger),
                Out::Try { trigger, .. } => transaction("try", trigger),
                Out::Read { trigger, .. } => transaction("read", trigger),
                Out::Follow(db) => ("conversion", *db, None, None),
            }
        });
        out.chain(late)
    }
}
