//! Long transactions: set aside, handed to a helper, and answered when it is done.
//!
//! 1. A transaction that costs more than a step may is reverted by the engine and set aside. Its
//!    session is held; the locks that it may `assert` are those that the session owns now.
//! 2. When the round is decided the transaction is handed over. One that only reads gets a
//!    snapshot, and the database goes on. One that writes gets the tables: until they are back,
//!    requests that need them wait, in order of arrival, and everything else goes on.
//! 3. Done: the tables are home, and the transaction joins the round as if it had run at this
//!    moment. Nothing else was committed between the hand-over and now, so it may as well have.
//! 4. Whoever waited goes on, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_engine::{LateReply, Outcome, ReadOnly};

use crate::database::trigger::{Origin, Trigger};
use crate::effect::Effect;
use crate::event::{DbId, LinkId, Now, SessionId};
use crate::monitors::first_rows::{Begun, Newcomer};
use crate::monitors::pages::{Source, StreamId};
use crate::monitors::requests::Changing;
use crate::round::{Answer, Writes};
use crate::server::Server;
use crate::session::gate::Incoming;
use crate::work::{
    Content, Examined, Finished, Garbage, Read, Request, Rest, Work, WorkId, Write, Written,
};

/// The most that one transaction may cost in a step of the core, in units of about 50 ns; what
/// costs more runs with a helper.
pub(crate) const STEP_COST_MAX: u64 = 100_000;

/// The transactions of one round share that; each gets at least this part of it.
pub(crate) const STEP_PART_MIN: u64 = 64;

/// Messages from this size on are checked by a helper, in bytes; transactions among them run there.
pub(crate) const EXAMINE_BYTES_MIN: usize = 1 << 20;

/// From this size on memory is freed by a helper, in bytes.
const FREE_BYTES_MIN: usize = 4 << 20;

/// A change of so many rows is freed by a helper.
const FREE_ROWS_MIN: usize = 1_000;

/// What a finished piece of work was for.
#[derive(Debug)]
pub(crate) enum Out {
    Examine {
        session: SessionId,
        came_us: u64,
        /// Of the message.
        bytes: usize,
    },
    /// With the length of its message, which the helper has.
    Write(Trigger, usize),
    /// With the database's position at that moment.
    Read(Trigger, u64),
    Initial {
        source: Source,
        from: Rest,
        newcomers: Vec<Newcomer>,
    },
    Piece {
        stream: StreamId,
        from: Option<Rest>,
    },
    /// The difference that other conditions make to a monitor.
    Change(Box<Changing>),
    /// A long message of a source, for its database.
    Mirror(LinkId, DbId),
    /// What a conversion has missed.
    Follow(DbId),
    Free,
}

/// Who waits for tables that are away.
#[derive(Debug)]
pub(crate) enum Queued {
    /// The first message of a session's queue.
    Session(SessionId),
    /// A long transaction.
    Trigger(Trigger),
}

impl Server {
    /// Hands a piece of work to the shell.
    pub(crate) fn send_out(&mut self, work: Work, out: Out) -> WorkId {
        self.next_work += 1;
        let id = WorkId(self.next_work);
        self.out.insert(id, out);
        self.effect(Effect::Work { id, work });
        id
    }

    /// A piece of work is done.
    pub(crate) fn work_done(&mut self, now: Now, id: WorkId, finished: Finished) {
        match (self.out.remove(&id), finished) {
            (Some(Out::Change(out)), Finished::Changed(difference)) => {
                self.round.changes.push((*out, difference));
            }
            (Some(Out::Examine { session, came_us, .. }), Finished::Examined(examined)) => {
                self.examined(now, session, came_us, examined);
            }
            (Some(Out::Write(trigger, _)), Finished::Written(written)) => {
                self.come_home(now, trigger, written);
            }
            (Some(Out::Read(trigger, position)), Finished::Read(outcome)) => {
                self.have_read(now, trigger, position, outcome);
            }
            (Some(Out::Mirror(link, db)), Finished::Mirrored(mirrored)) => {
                self.have_mirrored(now, link, db, mirrored);
            }
            (Some(Out::Follow(db)), Finished::Followed(followed)) => self.caught_up(db, followed),
            (Some(Out::Initial { source, from, newcomers }), Finished::Piece(piece)) => {
                self.initial_composed(now, Begun { source, from, newcomers, piece });
            }
            (Some(Out::Piece { stream, from }), Finished::Piece(piece)) => {
                self.piece_composed(now, stream, from, piece);
            }
            _ => {}
        }
    }

    /// A message that is too big to be looked at here.
    pub(crate) fn examine(&mut self, now: Now, session: SessionId, message: Vec<u8>) {
        self.has_asked(session);
        let (came_us, bytes) = (now.monotonic_us, message.len());
        self.send_out(Work::Examine(message), Out::Examine { session, came_us, bytes });
    }

    fn examined(&mut self, now: Now, id: SessionId, came_us: u64, examined: Examined) {
        let Some(session) = self.sessions.get(&id) else { return };
        let identity = Arc::clone(&session.identity);
        let (message, content) = match examined {
            Examined(Ok(examined)) => examined,
            Examined(Err(error)) => return self.bad_stream(id, &error),
        };
        match content {
            Content::Transact { db, id: request, is_read_only } => {
                let db = self.db_names.get(&db).copied();
                let origin = db.map(|db| Origin {
                    session: id,
                    identity,
                    id: request,
                    db,
                    created_us: came_us,
                });
                if let Some(origin) = origin.filter(|origin| !self.is_in_flight(origin)) {
                    let mut trigger = Trigger::new(origin, Arc::new(message));
                    trigger.holds = true;
                    trigger.is_read_only = Some(is_read_only);
                    return self.set_aside(trigger, Writes::Accepted);
                }
                self.take(now, id, Incoming::Checked(message));
            }
            Content::Echo { id: request, result } => {
                let answer = Answer { session: id, id: request, result, rest: None, holds: false };
                self.round.answers.push(answer);
            }
            Content::Other => self.take(now, id, Incoming::Checked(message)),
        }
        self.took(id);
        self.is_heard_out(id);
    }

    /// A transaction is not for a step of the core: it waits for the end of the round.
    pub(crate) fn set_aside(&mut self, mut trigger: Trigger, writes: Writes<'_>) {
        let session = trigger.origin.session;
        trigger.is_long = true;
        trigger.refused = match writes {
            Writes::Accepted => None,
            Writes::Refused(error) => Some(error.to_owned()),
        };
        let locks = self.sessions.get(&session).into_iter().flat_map(|s| s.locks.keys());
        let owned = locks.filter(|lock| self.locks.owner(lock) == Some(session));
        trigger.locks = owned.cloned().collect();
        if !std::mem::replace(&mut trigger.holds, true) {
            self.has_asked(session);
        }
        self.round.long.push(trigger);
    }

    /// The round is decided: hands over what was set aside.
    pub(crate) fn hand_over_all(&mut self, now: Now) {
        if self.round.long.is_empty() && self.round.mirrored.is_empty() {
            return;
        }
        for trigger in std::mem::take(&mut self.round.long) {
            self.hand_over(now, trigger);
        }
        for (link, message) in std::mem::take(&mut self.round.mirrored) {
            self.send_mirror(now, link, message);
        }
    }

    fn hand_over(&mut self, now: Now, mut trigger: Trigger) {
        let id = trigger.origin.db;
        // What the session did before is answered and told.
        if !std::mem::replace(&mut trigger.is_out, true) {
            self.hold(trigger.origin.session);
            self.is_heard_out(trigger.origin.session);
        }
        let Some(db) = self.dbs.get_mut(&id) else {
            self.let_go(now, trigger.origin.session);
            return self.reply_canceled(&trigger);
        };
        if db.is_closed() {
            return db.queue.push_back(Queued::Trigger(trigger));
        }
        let read_only = trigger.origin.identity.read_only || db.is_backup();
        // What may write nothing changes nothing either, whatever it asks for.
        let is_read_only =
            read_only || trigger.is_read_only.unwrap_or_else(|| trigger.reads_only());
        let request = Request {
            message: Arc::clone(&trigger.message),
            identity: Arc::clone(&trigger.origin.identity),
            read_only: read_only.then_some(ReadOnly::Server),
            locks: std::mem::take(&mut trigger.locks),
            elapsed_ms: now.monotonic_us.saturating_sub(trigger.origin.created_us) / 1000,
            seed: std::array::from_fn(|_| self.uuids.next_u64()),
        };
        if is_read_only {
            let Some(snapshot) = db.engine.snapshot() else { return };
            let position = db.engine.here().map_or(0, weir_engine::Database::position);
            let work = Work::Read(Box::new(Read { request, snapshot }));
            self.send_out(work, Out::Read(trigger, position));
            return;
        }
        // What others have not been told cannot be composed while the tables are away.
        self.flush_db(now, id);
        let Some(database) = self.dbs.get_mut(&id).and_then(|db| db.engine.leave()) else { return };
        let refused = trigger.refused.take();
        let bytes = std::mem::take(&mut trigger.message).len();
        let form = self.form();
        let write = Write { request, database, form, date_ms: now.wall_ms, refused };
        self.send_out(Work::Write(Box::new(write)), Out::Write(trigger, bytes));
    }

    fn have_read(&mut self, now: Now, trigger: Trigger, position: u64, outcome: Outcome) {
        let Some(db) = self.dbs.get_mut(&trigger.origin.db) else {
            self.let_go(now, trigger.origin.session);
            return self.reply_canceled(&trigger);
        };
        match outcome {
            Outcome::Done(done) => self.answer_later(trigger, done.reply, done.late),
            // What it waits for may have come since.
            _ if db.engine.here().is_none_or(|here| here.position() != position) => {
                self.set_aside(trigger, Writes::Accepted);
            }
            Outcome::Wait { timeout_ms } => self.make_wait(now, trigger, timeout_ms),
            Outcome::TooLong => self.let_go(now, trigger.origin.session),
        }
    }

    fn answer_later(&mut self, trigger: Trigger, result: Vec<u8>, late: Option<LateReply>) {
        let Trigger { origin, message, holds, .. } = trigger;
        self.free(Garbage::Text(message));
        let Origin { session, id, .. } = origin;
        let rest = late.map(Rest::results);
        self.round.answers.push(Answer { session, id, result, rest, holds });
    }

    fn come_home(&mut self, now: Now, mut trigger: Trigger, written: Written) {
        let id = trigger.origin.db;
        let Written { database, outcome, record, message } = written;
        trigger.message = message;
        let Some(db) = self.dbs.get_mut(&id) else {
            // A configuration file has removed it.
            self.free(Garbage::Database(database));
            self.let_go(now, trigger.origin.session);
            return self.reply_canceled(&trigger);
        };
        let garbage = db.engine.come_home(database);
        let queue = std::mem::take(&mut db.queue);
        let committed = match outcome {
            Outcome::Done(done) => {
                if !record.is_empty() {
                    db.add_record(record, done.durable);
                }
                self.answer_with_round(trigger, done.reply, done.delta)
            }
            Outcome::Wait { timeout_ms } => {
                self.make_wait(now, trigger, timeout_ms);
                false
            }
            Outcome::TooLong => false,
        };
        garbage.into_iter().for_each(|snapshot| self.free(Garbage::Rows(snapshot)));
        self.go_on(queue);
        if committed {
            self.wake(now, id);
        }
    }

    /// Tables are back: whoever waited for them goes on.
    pub(crate) fn go_on(&mut self, queue: VecDeque<Queued>) {
        for queued in queue {
            match queued {
                Queued::Session(session) => self.stop_waiting(session),
                Queued::Trigger(trigger) => self.round.long.push(trigger),
            }
        }
        self.remotes_may_have_changed();
    }

    /// Whether long transactions on this database are out, or about to go.
    pub(crate) fn is_at_work(&self, id: DbId) -> bool {
        let of_db = |trigger: &Trigger| trigger.origin.db == id;
        let is_out = |out: &Out| match out {
            Out::Write(trigger, _) | Out::Read(trigger, _) => of_db(trigger),
            Out::Mirror(_, db) => *db == id,
            Out::Examine { .. } | Out::Initial { .. } | Out::Piece { .. } => false,
            Out::Change(_) | Out::Follow(_) | Out::Free => false,
        };
        self.round.long.iter().any(of_db) || self.out.values().any(is_out)
    }

    /// Bytes of messages that are at work or wait for their turn, but for short ones that wait: what
    /// the shell need not wait for before it takes more is not counted.
    pub fn message_bytes(&self) -> usize {
        let out = self.out.values().map(|out| match out {
            Out::Examine { bytes, .. } => *bytes,
            Out::Read(trigger, _) => trigger.message.len(),
            Out::Write(_, bytes) => *bytes,
            Out::Initial { .. } | Out::Piece { .. } | Out::Change(_) => 0,
            Out::Mirror(..) | Out::Follow(_) | Out::Free => 0,
        });
        let long = self.round.long.iter().map(|trigger| trigger.message.len());
        let queues = self.dbs.values().flat_map(|db| &db.queue);
        let queued = queues.map(|queued| match queued {
            Queued::Trigger(trigger) => trigger.message.len(),
            Queued::Session(_) => 0,
        });
        let held = self.sessions.values().filter(|session| session.hold.is_stopped());
        let held = held.map(|session| session.hold.queued_bytes());
        out.chain(long).chain(queued).chain(held).sum()
    }

    /// Forgets what nobody needs any more, elsewhere if there is much of it.
    pub(crate) fn free(&mut self, garbage: Garbage) {
        let is_big = match &garbage {
            Garbage::Text(text) => text.len() >= FREE_BYTES_MIN,
            Garbage::Delta(delta) => delta.rows().take(FREE_ROWS_MIN).count() == FREE_ROWS_MIN,
            Garbage::Rows(_) | Garbage::Database(_) | Garbage::Rest(_) => true,
        };
        if is_big {
            self.send_out(Work::Free(garbage), Out::Free);
        }
    }
}
