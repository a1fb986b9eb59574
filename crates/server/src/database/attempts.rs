//! Long transactions that write and for whose tables others wait (`docs/decisions/010`).
//!
//! 1. On the tables. When others wait and the transaction has cost what it may, it is undone.
//! 2. Its operations run on a snapshot, and the database goes on. What others commit is noted.
//! 3. What has been noted is compared with what the operations have looked for: here if that is
//!    little, by a helper as long as it is much.
//! 4. It makes no difference: what the operations have done is done to the tables, and committed
//!    there, behind all that was noted.
//! 5. It makes one to few operations: a helper does so, too, and runs these again when their turn
//!    comes.
//! 6. It makes one to many: the transaction runs on the tables to its end.

use weir_data::{Delta, Store};
use weir_engine::{Attempt, Missed, Outcome};

use crate::database::cancel::CANCELED;
use crate::database::long::Out;
use crate::database::transact::note_waited;
use crate::database::trigger::Trigger;
use crate::database::{Answer, Databases};
use crate::effect::Effect;
use crate::ids::{DbId, WorkId};
use crate::session::Sessions;
use crate::shell::Shell;
use crate::work::{Confirm, Failed, Garbage, Request, Tried, Try, Word, Work, compare};

/// How often a helper compares what was committed meanwhile with what a transaction has looked for;
/// then the tables are kept while it does.
const CONFIRMS_MAX: u32 = 6;

/// Most transactions of a database that run, or have run, on snapshots: every commit is noted for
/// each of them. More wait until one of those is done.
const OPEN_MAX: usize = 16;

/// Bytes of the replies of those that have run and are not committed; with more no other one begins.
const REPLIES_BYTES_MAX: usize = 64 << 20;

/// Most of those that run: helpers run no more at once, and nobody knows how long their replies will be.
const RUNNING_MAX: usize = 4;

/// Where a long transaction that writes runs next.
#[derive(Debug, Default)]
pub(crate) enum Way {
    /// On the tables, unless others wait for them too long.
    #[default]
    Briefly,
    /// On a snapshot.
    Aside,
    /// The transaction has run on a snapshot.
    Back(Box<Back>),
    /// On the tables, to its end.
    Alone,
}

/// A transaction that has run on a snapshot.
#[derive(Debug)]
pub(crate) struct Back {
    attempt: Box<Attempt>,
    /// Under which what it has missed is noted.
    key: WorkId,
    /// How often a helper has compared that with what it has looked for.
    confirms: u32,
    /// A lock has been stolen from its session since.
    has_lost_locks: bool,
}

/// The transactions of one database that run, or have run, on snapshots, and what each of them has
/// missed.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    key: WorkId,
    missed: Missed,
    /// Bytes of its reply, once it has run.
    reply_bytes: Option<usize>,
}

impl Trigger {
    /// Others have come before a transaction that has waited or made way: locks that they have had
    /// meanwhile do not count, and what it has done with them is in vain.
    pub(super) fn lose_locks(&mut self, sessions: &Sessions) {
        let Some(locks) = &mut self.locks else { return };
        let before = locks.len();
        locks.retain(|held| sessions.is_held(held));
        if let Way::Back(back) = &mut self.way {
            back.has_lost_locks |= locks.len() < before;
        }
    }
}

impl Attempts {
    /// Takes note of a committed change.
    pub(super) fn note(&mut self, delta: &Delta, store: &Store) {
        for open in &mut self.open {
            open.missed.note(delta, store);
        }
    }

    /// Whether another one has to wait.
    pub(super) fn are_full(&self) -> bool {
        let running = self.open.iter().filter(|open| open.reply_bytes.is_none()).count();
        let reply_bytes: usize = self.open.iter().filter_map(|open| open.reply_bytes).sum();
        self.open.len() >= OPEN_MAX || running >= RUNNING_MAX || reply_bytes >= REPLIES_BYTES_MAX
    }

    fn begin(&mut self, key: WorkId) {
        self.open.push(Open { key, missed: Missed::default(), reply_bytes: None });
    }

    /// One has run. What it has missed is not known if the tables have become others.
    fn has_run(&mut self, key: WorkId, reply_bytes: usize) {
        let open = self.open.iter_mut().find(|open| open.key == key);
        open.into_iter().for_each(|open| open.reply_bytes = Some(reply_bytes));
    }

    /// The tables become others: what has run on their rows has run in vain.
    pub(super) fn forget_all(&mut self) {
        self.open.clear();
    }

    /// What one has missed since this was asked last; `None` if that is not known.
    fn take_missed(&mut self, key: WorkId) -> Option<Missed> {
        let open = self.open.iter_mut().find(|open| open.key == key)?;
        Some(std::mem::take(&mut open.missed))
    }

    fn end(&mut self, key: WorkId) {
        self.open.retain(|open| open.key != key);
    }
}

impl Databases {
    /// Hands a transaction that writes to a helper, on its way; the tables are open.
    pub(super) fn hand_over_writer(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        request: Request,
    ) {
        let (id, hold_max) = (trigger.origin.db, self.hold_cost_max());
        match std::mem::take(&mut trigger.way) {
            // What the file refuses would be refused again.
            Way::Briefly if trigger.refused.is_none() => {
                self.write(shell, sessions, trigger, request, hold_max, None);
            }
            Way::Briefly | Way::Alone => {
                trigger.way = Way::Alone;
                self.write(shell, sessions, trigger, request, u64::MAX, None);
            }
            Way::Aside => {
                let snapshot = self.open(id).tables.snapshot();
                let of = trigger.origin.asker;
                let work = shell.send_out(of, Work::Try(Box::new(Try { request, snapshot })));
                self.open(id).attempts.begin(work);
                self.out.insert(work, Out::Try { trigger, key: work, confirms: 0 });
            }
            Way::Back(back) => self.bring_back(shell, sessions, trigger, request, *back),
        }
    }

    /// A transaction has run on a snapshot: it is committed now, unless that takes a helper.
    fn bring_back(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        request: Request,
        back: Back,
    ) {
        let (id, of, step_max) = (trigger.origin.db, trigger.origin.asker, self.step_cost_max());
        let again_max = self.hold_cost_max();
        let Back { mut attempt, key, confirms, has_lost_locks } = back;
        let db = self.open(id);
        let missed = db.attempts.take_missed(key).filter(|_| !has_lost_locks);
        let Some(missed) = missed else {
            db.attempts.end(key);
            return self.run_alone(shell, sessions, trigger, request, attempt);
        };
        let is_much = attempt.cost(&missed) > step_max;
        if is_much && confirms < CONFIRMS_MAX {
            let confirm = Confirm { attempt, missed, again_max };
            let work = shell.send_out(of, Work::Confirm(Box::new(confirm)));
            let out = Out::Try { trigger, key, confirms: confirms + 1 };
            return drop(self.out.insert(work, out));
        }
        db.attempts.end(key);
        trigger.way = Way::Alone;
        if !is_much && !compare(&mut attempt, &missed, again_max, None) {
            return self.run_alone(shell, sessions, trigger, request, attempt);
        }
        if is_much || !attempt.holds() {
            let missed = if is_much { missed } else { Missed::default() };
            let attempt = Some((attempt, missed, again_max));
            return self.write(shell, sessions, trigger, request, u64::MAX, attempt);
        }
        let tables = db.tables.here_mut().expect("a transaction is brought back to open tables");
        match attempt.commit(tables, shell.uuids(), step_max, None) {
            Outcome::TooLong { .. } => {
                let attempt = Some((attempt, Missed::default(), again_max));
                self.write(shell, sessions, trigger, request, u64::MAX, attempt);
            }
            outcome => {
                shell.free(Garbage::Attempt(attempt));
                trigger.way = Way::Briefly;
                self.transact(shell, sessions, trigger, outcome);
            }
        }
    }

    /// What a transaction has done on a snapshot is of no use.
    fn run_alone(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        request: Request,
        attempt: Box<Attempt>,
    ) {
        shell.free(Garbage::Attempt(attempt));
        trigger.way = Way::Alone;
        self.write(shell, sessions, trigger, request, u64::MAX, None);
    }

    /// A transaction has run on a snapshot, or has been compared with what it has missed. If there is no such database any
    /// more, that is the answer.
    pub(crate) fn have_tried(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        work: WorkId,
        tried: Tried,
    ) -> Option<(DbId, Answer)> {
        let Some(Out::Try { mut trigger, key, confirms }) = self.out.remove(&work) else {
            panic!("a helper answers what it was asked")
        };
        let is_gone = trigger.origin.session().is_some_and(|session| !sessions.has(session));
        if is_gone || trigger.is_canceled {
            self.get_mut(trigger.origin.db).into_iter().for_each(|db| db.attempts.end(key));
            shell.free(Garbage::Tried(tried));
            self.drop_long(shell, sessions, trigger);
            return None;
        }
        let Tried(tried) = tried;
        let Some(db) = self.get_mut(trigger.origin.db) else {
            tried.into_iter().for_each(|attempt| shell.free(Garbage::Attempt(attempt)));
            return self.refusal(shell, sessions, trigger, CANCELED);
        };
        match tried {
            Ok(attempt) => {
                db.attempts.has_run(key, attempt.reply_len());
                let back = Back { attempt, key, confirms, has_lost_locks: false };
                trigger.way = Way::Back(Box::new(back));
            }
            Err(failed) => {
                let missed = db.attempts.take_missed(key);
                db.attempts.end(key);
                if let (Failed::Waits { timeout_ms, reads }, true) =
                    (failed, missed.is_some_and(|missed| missed.is_empty()))
                    && db.is_decided()
                    && db.tables.is_open()
                {
                    // What it waits for has not come since.
                    let until = (timeout_ms, reads);
                    self.make_wait(shell, sessions, trigger, until, None);
                    return None;
                }
                trigger.way = Way::Alone;
            }
        }
        self.set_aside(sessions, trigger, super::commits::Writes::Accepted);
        None
    }

    /// Nothing more comes of a transaction: nothing is kept for it, and its session goes on.
    pub(super) fn end(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        trigger: &mut Trigger,
    ) {
        note_waited(sessions, trigger);
        self.forget_attempt(shell, trigger);
        self.let_go(shell, sessions, trigger);
    }

    /// Nobody waits for a transaction any more: it is forgotten.
    pub(super) fn drop_long(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
    ) {
        self.end(shell, sessions, &mut trigger);
        shell.free(Garbage::Text(trigger.message));
    }

    /// What a transaction has done on a snapshot is not needed any more.
    pub(super) fn forget_attempt(&mut self, shell: &mut Shell, trigger: &mut Trigger) {
        if let Way::Back(back) = std::mem::take(&mut trigger.way) {
            self.get_mut(trigger.origin.db).into_iter().for_each(|db| db.attempts.end(back.key));
            shell.free(Garbage::Attempt(back.attempt));
        }
    }

    /// Somebody waits for tables that a helper has.
    pub(crate) fn hurry(&mut self, shell: &mut Shell, id: DbId) {
        let Some(db) = self.get_mut(id).filter(|db| db.tables.is_away()) else { return };
        db.has_hurried = true;
        for (work, out) in &mut self.out {
            if let Out::Write { trigger, is_hurried, .. } = out
                && trigger.origin.db == id
                && !std::mem::replace(is_hurried, true)
            {
                shell.ask(Effect::Say { id: *work, word: Word::Hurry });
            }
        }
    }

    /// Nobody waits any more for what these transactions do: helpers are to end it.
    pub(super) fn stop_work(&self, shell: &mut Shell, is_meant: impl Fn(&Trigger) -> bool) {
        for (work, out) in &self.out {
            if out.trigger().is_some_and(&is_meant) {
                shell.ask(Effect::Say { id: *work, word: Word::Stop });
            }
        }
    }
}
