//! Which sessions have been delivered what has happened to a database: queued for them, handed to the
//! kernel, acknowledged by their kernels.
//!
//! Nothing is kept of that until somebody asks. Then:
//!
//! 1. The position of the database is noted, and the sessions that watch it.
//! 2. A session whose monitors have been told everything up to there has it queued: the shell is
//!    asked how many bytes were ever queued for it, which is its mark.
//! 3. When the shell says that as many have been written, or acknowledged, the session has it.
//!
//! Both are looked at again and again while somebody waits, at growing intervals.

mod answer;
mod request;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use weir_data::Error;

use crate::database::{Databases, Told};
use crate::effect::Effect;
use crate::event::Outbox;
use crate::ids::{CommandId, DbId, SessionId};
use crate::session::Sessions;
use crate::shell::Shell;

use answer::Row;
pub(crate) use request::{Asked, State, Wish};
pub(crate) use wait::Asker;
use wait::Wait;

/// Most that wait for deliveries at the same time, admins among them; more are refused.
const WAITS_MAX: usize = 64;

/// Most waits of one session; more are refused.
const WAITS_OF_SESSION_MAX: usize = 8;

/// Most admins that wait for the table of deliveries at the same time; more are refused.
const TABLES_MAX: usize = 16;

/// The first time between two looks, in microseconds; each time is twice the one before.
const LOOK_US_MIN: u64 = 1000;

/// The longest time between two looks, in microseconds.
const LOOK_US_MAX: u64 = 50_000;

/// An admin who is to be told how far the sessions are.
struct Table {
    command: CommandId,
    /// The database, or all.
    db: Option<DbId>,
    /// The shell's answer that is out is for this.
    is_asked: bool,
}

/// Who waits for deliveries.
#[derive(Default)]
pub(crate) struct Deliveries {
    waits: Vec<Wait>,
    tables: Vec<Table>,
    /// The shell has been asked for outboxes and has not answered.
    is_asked: bool,
    /// When it was last looked.
    looked_us: Option<u64>,
    /// When to look again.
    next_us: u64,
    /// How long after that.
    pause_us: u64,
}

impl Deliveries {
    /// Somebody waits for a delivery.
    ///
    /// # Errors
    /// Too many do.
    pub(crate) fn wait(&mut self, shell: &Shell, asker: Asker, asked: Asked) -> Result<(), Error> {
        let session = asker.session();
        let own = self.waits.iter().filter(|wait| wait.asker().session() == session);
        let is_over = session.is_some() && own.count() >= WAITS_OF_SESSION_MAX;
        if is_over || self.waits.len() >= WAITS_MAX {
            let whose = if is_over { "this client waits" } else { "clients wait" };
            let details = format!("{whose} for as many deliveries as the server keeps");
            return Err(Error::new("resources exhausted", details));
        }
        self.look_soon(shell);
        self.waits.push(Wait::new(asker, asked, shell.now_us()));
        Ok(())
    }

    /// An admin wants to know how far the sessions are that watch a database, or any.
    ///
    /// # Errors
    /// Too many do.
    pub(crate) fn tabulate(
        &mut self,
        shell: &Shell,
        command: CommandId,
        db: Option<DbId>,
    ) -> Result<(), String> {
        if self.tables.len() >= TABLES_MAX {
            return Err("too many of these commands are under way".to_owned());
        }
        self.tables.push(Table { command, db, is_asked: false });
        (self.next_us, self.pause_us) = (shell.now_us(), LOOK_US_MIN);
        Ok(())
    }

    /// Somebody new waits. Clients may ask as often as they like: that is no reason to look more often.
    fn look_soon(&mut self, shell: &Shell) {
        let at_us = self.may_look_us().max(shell.now_us());
        self.next_us = if self.is_idle() { at_us } else { self.next_us.min(at_us) };
        self.pause_us = LOOK_US_MIN;
    }

    /// When it may be looked again at the earliest.
    fn may_look_us(&self) -> u64 {
        self.looked_us.map_or(0, |looked_us| looked_us + LOOK_US_MIN)
    }

    /// When it is to be looked again: also when a wait is over, whose answer says how far all are. While the
    /// shell's answer is out it comes behind that.
    fn look_us(&self) -> u64 {
        let until_us = self.waits.iter().map(Wait::until_us).min().filter(|_| !self.is_asked);
        until_us.map_or(self.next_us, |until_us| self.next_us.min(until_us.max(self.may_look_us())))
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.waits.is_empty() && self.tables.is_empty()
    }

    /// When there is something to look at, or somebody has waited long enough.
    #[inline]
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.is_idle() {
            return None;
        }
        // The shell's answer comes by itself; those who are behind are looked at meanwhile.
        if self.is_asked {
            return (!self.waits.is_empty()).then_some(self.next_us);
        }
        Some(self.look_us())
    }

    /// Looks at how far the sessions are, if it is time for that, and answers who need not wait any
    /// longer. To be called when a round ends and its updates have left.
    #[inline]
    pub(crate) fn run(&mut self, shell: &mut Shell, sessions: &Sessions, databases: &Databases) {
        if !self.is_idle() {
            self.look(shell, sessions, databases);
        }
    }

    fn look(&mut self, shell: &mut Shell, sessions: &Sessions, databases: &Databases) {
        let now_us = shell.now_us();
        if now_us < self.look_us() {
            return;
        }
        let mut told = AllTold::new();
        for wait in &mut self.waits {
            wait.note_told(told_of(&mut told, shell, sessions, databases, wait.db()));
        }
        self.ask(shell, sessions, databases);
        self.looked_us = Some(now_us);
        self.next_us = now_us + self.pause_us;
        self.pause_us = (2 * self.pause_us).min(LOOK_US_MAX);
        self.answer(shell, sessions, databases, told);
    }

    /// Asks the shell for the outboxes that matter now.
    fn ask(&mut self, shell: &mut Shell, sessions: &Sessions, databases: &Databases) {
        if self.is_asked {
            return;
        }
        let mut of: BTreeSet<SessionId> = BTreeSet::new();
        self.waits.iter_mut().for_each(|wait| wait.ask(&mut of));
        for table in &mut self.tables {
            table.is_asked = true;
            for db in databases_of(databases, table.db) {
                of.extend(databases.told(shell, sessions, db).into_keys());
            }
        }
        self.is_asked = !of.is_empty() || !self.tables.is_empty();
        if self.is_asked {
            shell.ask(Effect::LookAtOutboxes { of: of.into_iter().collect() });
        }
    }

    /// The shell has looked at outboxes.
    pub(crate) fn looked(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        databases: &Databases,
        outboxes: Vec<(SessionId, Outbox)>,
    ) {
        let outboxes: BTreeMap<SessionId, Outbox> = outboxes.into_iter().collect();
        self.is_asked = false;
        self.waits.iter_mut().for_each(|wait| wait.note_outboxes(&outboxes));
        for table in self.tables.extract_if(.., |table| table.is_asked) {
            let mut rows = Vec::new();
            for id in databases_of(databases, table.db) {
                let Some(db) = databases.get(id) else { continue };
                for (session, told) in databases.told(shell, sessions, id) {
                    let outbox = outboxes.get(&session).copied().unwrap_or_default();
                    let client = sessions.get(session).map_or("", crate::session::Session::name);
                    rows.push(Row::new(db.name(), client, told, databases.shown(id), outbox));
                }
            }
            let reply = Ok(answer::table(rows));
            shell.ask(Effect::CommandReply { id: table.command, reply });
        }
        self.answer(shell, sessions, databases, AllTold::new());
    }

    /// Answers who need not wait any longer, and says how far those are who have it not.
    fn answer(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        databases: &Databases,
        mut all_told: AllTold,
    ) {
        // Whose time is up may have been delivered what the shell is about to tell.
        let now_us = if self.is_asked { 0 } else { shell.now_us() };
        let is_over =
            |wait: &mut Wait| wait.has_begun() && (wait.is_complete() || wait.until_us() <= now_us);
        for wait in self.waits.extract_if(.., is_over) {
            let told = told_of(&mut all_told, shell, sessions, databases, wait.db());
            let shown = databases.shown(wait.db());
            let missing = wait.missing().map(|(session, stage)| {
                let client = sessions.get(session).map_or("", crate::session::Session::name);
                let told = told.get(&session).copied().unwrap_or_default();
                answer::Missing::new(client, stage, told, shown)
            });
            let outcome = answer::Outcome::new(&wait, missing.collect());
            match wait.into_asker() {
                Asker::Session(session, request) => {
                    let result = outcome.to_json();
                    shell.send(session, weir_wire::reply_result(&request, result.as_bytes()));
                }
                Asker::Command(id) => {
                    shell.ask(Effect::CommandReply { id, reply: outcome.to_text() });
                }
            }
        }
    }

    /// A session has left: nobody waits for it, and it waits for nobody.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.waits.retain(|wait| wait.asker().session() != Some(session));
        self.waits.iter_mut().for_each(|wait| wait.forget(session));
    }

    /// A database has been removed: there is nothing to be delivered any more.
    pub(crate) fn forget_database(&mut self, shell: &mut Shell, db: DbId) {
        for wait in self.waits.extract_if(.., |wait| wait.db() == db) {
            match wait.into_asker() {
                Asker::Session(session, request) => {
                    shell.send(session, weir_wire::reply_error_string(&request, "canceled"));
                }
                Asker::Command(id) => {
                    let reply = Err("the database has been removed".to_owned());
                    shell.ask(Effect::CommandReply { id, reply });
                }
            }
        }
    }
}

/// How far the sessions have been told that watch each database, as far as somebody has asked.
type AllTold = BTreeMap<DbId, BTreeMap<SessionId, Told>>;

/// How far the sessions have been told that watch a database: found out once a look.
fn told_of<'a>(
    all: &'a mut AllTold,
    shell: &Shell,
    sessions: &Sessions,
    databases: &Databases,
    db: DbId,
) -> &'a BTreeMap<SessionId, Told> {
    all.entry(db).or_insert_with(|| databases.told(shell, sessions, db))
}

/// The databases that a table is about: one, or all but the server's own.
fn databases_of(databases: &Databases, db: Option<DbId>) -> Vec<DbId> {
    db.map_or_else(|| databases.ids_where(|db| !db.is_reserved()), |db| vec![db])
}
