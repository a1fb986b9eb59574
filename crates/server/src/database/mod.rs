//! The open databases: for each one its tables, the pipeline of its commits, its waiting
//! transactions, who watches it, and where its commits go.
//!
//! Databases know sessions, for a session's requests wait in its gate and its locks are asserted by
//! transactions. They know nothing of who else makes use of them.

mod attempts;
pub(crate) mod cancel;
mod clustered;
mod commits;
mod conversion;
mod delivered;
mod feeds;
mod history;
mod keys;
mod late;
mod long;
mod once;
mod pacing;
mod recasting;
mod relayed;
pub(crate) mod searches;
pub(crate) mod server_db;
mod table_log;
mod tables;
mod transact;
mod trigger;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::{Ids, Schema, Store};
use weir_engine::{Database, Work};
use weir_history::History;
use weir_monitor::Monitors;

use crate::database::attempts::Attempts;
use crate::database::commits::Commits;
use crate::database::conversion::Conversions;
use crate::database::history::ChangeLog;
use crate::database::keys::Keys;
use crate::database::late::LateUpdates;
use crate::database::long::Out;
use crate::database::pacing::Watch;
use crate::database::tables::Sizes;
use crate::database::transact::Step;
use crate::database::waiting::Waiting;
use crate::effect::Effect;
use crate::ids::{CommandId, DbId, SessionId, WorkId, earliest};
use crate::origin::Origin;
use crate::session::Sessions;
use crate::shell::Shell;
use crate::storage::{Standalone, Storage};
use crate::work::Garbage;

pub(crate) use commits::{Done, Fate};
pub(crate) use conversion::{Replaced, conversion_bytes};
pub(crate) use delivered::Told;
pub(crate) use feeds::FeedOptions;
pub(crate) use keys::ShownKey;
pub(crate) use long::Answer;
pub(crate) use relayed::Changed;
pub(crate) use tables::{Queued, Tables};
pub(crate) use transact::{Joining, note_waited, note_waits};
pub(crate) use trigger::{Ran, Trigger, other_versions};
pub(crate) use waiting::kept_bytes;

/// One open database.
pub(crate) struct Db {
    /// The schema's name.
    name: String,
    tables: Tables,
    /// What has run and is not decided.
    commits: Commits,
    /// Transactions that wait, in order of arrival.
    waiting: Waiting,
    /// Long transactions on snapshots.
    attempts: Attempts,
    storage: Storage,
    /// What has changed, and the ids of states.
    history: ChangeLog,
    watch: Watch,
    /// Which keys are wanted beside the unique indexes.
    keys: Keys,
    /// Conversions to another schema.
    conversions: Conversions,
    /// Tables whose changes are logged (`tlog-set`).
    logged_tables: BTreeSet<String>,
    /// The database follows a source, which alone may write.
    is_backup: bool,
    /// Whoever has the tables has been told that they are waited for.
    has_hurried: bool,
}

impl Db {
    fn new(database: Database, storage: Storage, history: Option<History>, seed: u64) -> Self {
        Self {
            name: database.schema().name.clone(),
            tables: Tables::new(database),
            commits: Commits::default(),
            waiting: Waiting::new(seed),
            attempts: Attempts::default(),
            watch: Watch::new(seed, storage.is_shared()),
            history: ChangeLog::new(history, storage.is_shared()),
            storage,
            keys: Keys::default(),
            conversions: Conversions::default(),
            logged_tables: BTreeSet::new(),
            is_backup: false,
            has_hurried: false,
        }
    }

    /// The schema's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.tables.schema()
    }

    /// The tables, and whether they are open.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The rows as they were committed last; `None` while they are away, or show what is not decided. A batch
    /// that a cluster decides on is not in them.
    pub(crate) fn committed(&self) -> Option<&Store> {
        self.tables.store().filter(|_| self.shows_last_commit())
    }

    /// The rows while all is decided, with what finds them.
    pub(crate) fn committed_rows(&self) -> Option<&Database> {
        self.tables.here().filter(|_| self.is_decided())
    }

    /// How many transactions have taken effect; 0 while the tables are away.
    pub(crate) fn position(&self) -> u64 {
        self.tables.here().map_or(0, Database::position)
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.tables.sizes()
    }

    /// Who watches the database.
    pub(crate) fn monitors(&self) -> &Monitors {
        &self.watch.monitors
    }

    /// Where commits go.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Standalone> {
        self.storage.file()
    }

    /// Whether only the server itself may write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.storage.is_reserved()
    }

    /// Whether the database follows a source, which alone may write.
    pub(crate) fn is_backup(&self) -> bool {
        self.is_backup
    }

    /// Whether a conversion is under way.
    pub(crate) fn is_converting(&self) -> bool {
        self.conversions.is_busy()
    }

    /// Whether transactions have been set aside for helpers.
    pub(crate) fn has_long(&self) -> bool {
        !self.commits.long.is_empty()
    }

    /// How many transactions wait, and since when the oldest of them does.
    pub(crate) fn waiting(&self) -> (usize, Option<u64>) {
        let oldest = self.waiting.iter().map(|trigger| trigger.origin.created_us).min();
        (self.waiting.len(), oldest)
    }

    /// When something is to be done though nothing happens: a wait is over, updates must leave, or
    /// a suspect file is to be rewritten.
    fn next_us(&self) -> Option<u64> {
        let rewrite_us = if self.tables.is_writing() { None } else { self.rewrite_us() };
        earliest([self.wait_us(), self.updates_us(), rewrite_us])
    }

    /// When the rules for compaction are looked at: only if the file is as the tables are.
    fn rewrite_us(&self) -> Option<u64> {
        self.storage.rewrite_us().filter(|_| !self.conversions.is_busy())
    }
}

/// What is to be done with a database next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing has run.
    Nothing,
    /// The shell has not answered, or the cluster has not.
    Wait,
    /// What has run is to be proposed to the cluster.
    Propose,
    /// What has run is decided.
    Decide,
}

/// The open databases, by ascending number. They are few and all of them are gone through several
/// times a round, so they lie side by side.
pub(crate) struct Databases {
    entries: Vec<(DbId, Db)>,
    names: BTreeMap<String, DbId>,
    next: u64,
    /// What transactions may cost in a step of the core.
    step: Step,
    /// Long transactions that are with helpers, and conversions.
    out: BTreeMap<WorkId, Out>,
    /// Updates that helpers compose.
    late: LateUpdates,
    /// Sessions for which more updates are pending than may be.
    overflowed: BTreeSet<SessionId>,
    /// How requests that were answered have found their rows.
    queries: Work,
    /// How monitors have.
    of_monitors: searches::Counts,
    /// An operation that has looked at so many rows is logged.
    slow_rows: u64,
}

impl Databases {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            names: BTreeMap::new(),
            next: 0,
            step: Step::default(),
            out: BTreeMap::new(),
            late: LateUpdates::default(),
            overflowed: BTreeSet::new(),
            queries: Work::default(),
            of_monitors: searches::Counts::default(),
            slow_rows: transact::SLOW_QUERY_ROWS,
        }
    }

    /// A number for a database to come.
    pub(crate) fn next_id(&mut self) -> DbId {
        self.next += 1;
        DbId(self.next)
    }

    fn find(&self, id: DbId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |(id, _)| *id)
    }

    /// A database that is still there.
    pub(crate) fn get(&self, id: DbId) -> Option<&Db> {
        let at = self.find(id).ok()?;
        Some(&self.entries[at].1)
    }

    fn get_mut(&mut self, id: DbId) -> Option<&mut Db> {
        let at = self.find(id).ok()?;
        Some(&mut self.entries[at].1)
    }

    /// A database that nobody can have removed meanwhile.
    fn open(&mut self, id: DbId) -> &mut Db {
        self.get_mut(id).expect("the database is open while it is at work")
    }

    /// The database of this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<DbId> {
        self.names.get(name).copied()
    }

    /// Names and numbers, in the order of the names.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = (&str, DbId)> {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// All, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DbId, &Db)> {
        self.entries.iter().map(|(id, db)| (*id, db))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Db> {
        self.entries.iter().map(|(_, db)| db)
    }

    /// The numbers of those that are meant, for one who changes them.
    pub(crate) fn ids_where(&self, is_meant: impl Fn(&Db) -> bool) -> Vec<DbId> {
        self.iter().filter(|(_, db)| is_meant(db)).map(|(id, _)| id).collect()
    }

    /// The first one that is meant behind the last one, which it is from then on. Every round asks
    /// this, mostly for nothing, so that no list is made.
    #[inline]
    pub(crate) fn next_where(
        &self,
        last: &mut Option<DbId>,
        is_meant: impl Fn(DbId, &Db) -> bool,
    ) -> Option<DbId> {
        let from = last.map_or(0, |last| self.entries.partition_point(|(id, _)| *id <= last));
        let mut behind = self.entries.get(from..)?.iter();
        let (id, _) = behind.find(|(id, db)| is_meant(*id, db))?;
        *last = Some(*id);
        *last
    }

    /// A database is there from now on.
    pub(crate) fn insert(
        &mut self,
        shell: &mut Shell,
        id: DbId,
        database: Database,
        (storage, history): (Storage, Option<History>),
    ) {
        let db = Db::new(database, storage, history, shell.uuids().next_u64());
        let other = self.names.insert(db.name.clone(), id);
        assert!(other.is_none(), "a name is checked before its database is opened");
        let at = self.find(id).expect_err("a number is used once");
        self.entries.insert(at, (id, db));
    }

    /// A database goes; who has waited for its tables finds that out by himself. Answers with its name, and with what
    /// nobody runs any more.
    pub(crate) fn remove(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
    ) -> (String, VecDeque<Trigger>) {
        let at = self.find(id).expect("only an open database is removed");
        let (_, mut db) = self.entries.remove(at);
        self.names.remove(&db.name);
        sessions.forget_database(id);
        assert!(db.is_decided(), "a database is removed when all is decided");
        db.storage.close(shell);
        self.stop_work(shell, |trigger| trigger.origin.db == id);
        self.abandon_keys(shell, sessions, &mut db);
        let conversions = std::mem::take(&mut db.conversions);
        let mut left = self.cancel_conversions(shell, sessions, conversions);
        left.extend(db.waiting.take());
        left.extend(std::mem::take(&mut db.commits.long));
        for queued in db.tables.take_queue() {
            match queued {
                Queued::Session(session) => self.let_in(shell, sessions, session, id),
                Queued::Trigger(trigger) => left.push_back(trigger),
            }
        }
        if let Some(database) = db.tables.into_here() {
            shell.free(Garbage::Database(database));
        }
        shell.ask(Effect::Close { db: id });
        (db.name, left)
    }

    /// A database follows a source from now on, or no longer.
    pub(crate) fn set_backup(&mut self, id: DbId, is_backup: bool) {
        let db = self.open(id);
        db.is_backup = is_backup;
        // Clients may write no longer, or again.
        db.waiting.wake_all();
    }

    /// Whether every database follows a source: then clients may not even lock.
    pub(crate) fn are_all_backups(&self) -> bool {
        let mut own = self.values().filter(|db| !db.is_reserved()).peekable();
        own.peek().is_some() && own.all(Db::is_backup)
    }

    /// Whether a transaction can run on a database now.
    pub(crate) fn is_open(&self, id: DbId) -> bool {
        self.get(id).is_some_and(|db| db.tables.is_open())
    }

    /// Whether all that has run on a database is decided, or the database is gone.
    pub(crate) fn is_decided(&self, id: DbId) -> bool {
        self.get(id).is_none_or(Db::is_decided)
    }

    /// Whether records of a database are on their way to its file.
    pub(crate) fn is_writing(&self, id: DbId) -> bool {
        self.get(id).is_some_and(|db| db.tables.is_writing())
    }

    /// What is to be done with a database next; its records leave for the file.
    pub(crate) fn advance(&mut self, shell: &mut Shell, id: DbId) -> Next {
        let Some(db) = self.get_mut(id) else { return Next::Nothing };
        if db.tables.is_writing() {
            return Next::Wait;
        }
        if db.is_decided() {
            return Next::Nothing;
        }
        if db.has_proposals() {
            return Next::Propose;
        }
        match db.take_append(id) {
            Some(append) => {
                shell.ask(append);
                Next::Wait
            }
            None => Next::Decide,
        }
    }

    /// What has run and is decided now.
    pub(crate) fn take_done(&mut self, id: DbId) -> Vec<Done> {
        self.open(id).take_done()
    }

    /// Gives the list back, to be used again.
    pub(crate) fn reuse(&mut self, id: DbId, done: Vec<Done>) {
        if let Some(db) = self.get_mut(id) {
            db.reuse(done);
        }
    }

    /// The shell has answered an append; on a failure, what was to be written is undone and runs
    /// again. True if a change of the database's source is among that.
    pub(crate) fn appended(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        result: &Result<(), String>,
    ) -> bool {
        let db = self.open(id);
        db.tables.end_writing();
        db.storage.appended(shell, result.as_ref().err().map(String::as_str));
        let is_replicated = match result {
            Ok(()) => false,
            Err(error) => self.run_again(shell, sessions, id, error),
        };
        if self.is_decided(id) {
            self.reopen(shell, sessions, id);
        }
        is_replicated
    }

    /// Whoever has waited for a database goes on, if its tables are open.
    pub(crate) fn reopen(&mut self, shell: &Shell, sessions: &mut Sessions, id: DbId) {
        let Some(db) = self.get_mut(id) else { return };
        for queued in db.tables.take_queue_if_open() {
            match queued {
                Queued::Session(session) => self.let_in(shell, sessions, session, id),
                Queued::Trigger(trigger) => self.open(id).commits.long.push(trigger),
            }
        }
    }

    /// What of a file is on the disk is not known.
    pub(crate) fn file_suspect(&mut self, shell: &Shell, id: DbId) {
        self.open(id).storage.suspect(shell);
    }

    /// Begins a compaction, or joins what makes it superfluous.
    pub(crate) fn compact(&mut self, shell: &mut Shell, id: DbId, command: Option<CommandId>) {
        let db = self.open(id);
        assert!(db.is_decided(), "a snapshot has nothing in it that may be undone");
        if db.conversions.is_busy() {
            return db.conversions.join(command);
        }
        let rows = db.tables.snapshot();
        let Db { storage, history, .. } = db;
        storage.compact(shell, id, rows, || history.image(), command);
    }

    /// The compacted copy is complete but for what was appended meanwhile.
    pub(crate) fn compaction_written(
        &mut self,
        shell: &mut Shell,
        id: DbId,
        result: Result<u64, String>,
    ) {
        // The database may have been removed meanwhile.
        if let Some(db) = self.get_mut(id) {
            db.storage.compaction_written(shell, id, result);
            if !db.storage.is_compacting() {
                db.settle_budget(shell.now_us());
            }
        }
    }

    /// The compacted copy has taken the file's place, or has not; true if it has.
    pub(crate) fn compaction_finished(
        &mut self,
        shell: &mut Shell,
        id: DbId,
        result: Result<u64, String>,
    ) -> bool {
        let Some(db) = self.get_mut(id) else { return false };
        let is_replaced = db.storage.compaction_finished(shell, result);
        db.settle_budget(shell.now_us());
        is_replaced
    }

    /// Rewrites the suspect files for which it is time.
    pub(crate) fn rewrite_if_due(&mut self, shell: &mut Shell) {
        let now_us = shell.now_us();
        let is_due = |_, db: &Db| db.is_decided() && db.rewrite_us().is_some_and(|at| at <= now_us);
        let mut last = None;
        while let Some(id) = self.next_where(&mut last, is_due) {
            self.compact(shell, id, None);
        }
    }

    /// When something is to be done with any of them though nothing happens.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.values().fold(None, |next, db| earliest([next, db.next_us()]))
    }

    /// Begins the automatic compactions that are due.
    pub(crate) fn compact_if_due(&mut self, shell: &mut Shell) {
        for id in self.ids_where(|db| db.is_decided() && db.storage.is_compaction_due(shell)) {
            self.compact(shell, id, None);
        }
    }

    /// Gives up the room of rows that are gone.
    pub(crate) fn shrink(&mut self) {
        for id in self.ids_where(|db| db.is_decided() && db.tables.is_open()) {
            if let Some(database) = self.open(id).tables.here_mut() {
                database.shrink();
            }
        }
    }

    /// Whether any file has anything to compact.
    pub(crate) fn has_grown(&self) -> bool {
        self.values().any(|db| db.storage.has_grown())
    }

    /// Records are written as differences from now on.
    pub(crate) fn write_differences(&mut self) {
        self.entries.iter_mut().for_each(|(_, db)| db.storage.write_differences());
    }

    /// A session has left: nobody waits for what it has asked for.
    pub(crate) fn forget_session(&mut self, shell: &mut Shell, session: SessionId) {
        self.stop_work(shell, |trigger| trigger.origin.is_of(session));
        for (_, db) in &mut self.entries {
            db.waiting.forget(session);
            db.conversions.forget(session);
        }
    }

    /// Whether a request of the same asker with the same id is not answered yet.
    pub(crate) fn is_in_flight(&self, origin: &Origin) -> bool {
        let is_same = |other: &Origin| other.asker == origin.asker && other.id == origin.id;
        self.values().any(|db| {
            db.waiting.has(origin) || db.conversions.in_flight().any(|(other, _)| is_same(other))
        })
    }

    /// Bytes kept for a session's waiting transactions and conversions.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        let of_db = |db: &Db| db.waiting.kept_bytes(session) + db.conversions.kept_bytes(session);
        self.values().map(of_db).sum()
    }

    /// Bytes kept for all sessions' waiting transactions, conversions and monitors.
    pub(crate) fn all_kept_bytes(&self) -> usize {
        let of_db = |db: &Db| {
            db.waiting.all_kept_bytes()
                + db.conversions.all_kept_bytes()
                + db.watch.monitors.bytes()
        };
        self.values().map(of_db).sum()
    }

    /// Makes one change to `_Server` and shows it to its monitors. Who waits for it runs when waits do
    /// ([`Databases::run_waits`]), for this may come behind all else of a round.
    pub(crate) fn change_server_db(&mut self, shell: &mut Shell, operation: &weir_json::Value) {
        // At the start it is the first of all.
        let Some(id) = self.by_name(server_db::NAME) else { return };
        let db = self.open(id);
        let database = db.tables.here_mut().expect("long transactions on `_Server` are refused");
        let Some(delta) = server_db::execute(database, operation, shell.uuids()) else { return };
        db.note_change(&delta);
        db.show(shell, Arc::new(delta), Ids::default());
    }
}
