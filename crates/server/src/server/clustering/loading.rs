//! From a snapshot that has come to the tables, without holding up the loop or a second copy of the
//! rows.
//!
//! 1. On the disk: a helper reads the file and compares it with the tables as they are
//!    (`work/load.rs`). One whose data makes no sense is refused.
//! 2. In the file's place: nothing that is committed behind it takes effect before it does. If the
//!    tables have moved since, a helper reads it once more, and until it can be read nothing takes effect.
//! 3. What it changes is changed by a helper, while who needs the tables waits, and then told like
//!    any change. New tables, of a member that joins or of another schema, take the place of the old
//!    ones.

use weir_cluster::Event as Happened;
use weir_data::Delta;
use weir_engine::Database;
use weir_history::History;

use crate::clusters::receiving::{Base, Receiving, Stage};
use crate::clusters::{End, LOAD_AGAIN_US, Part};
use crate::effect::{Effect, Level};
use crate::ids::{DbId, WorkId};
use crate::origin::Asker;
use crate::server::Server;
use crate::shell::Shell;
use crate::storage::{Clustered, Storage};
use crate::work::{Load, LoadedRows, Rows, TakeOver, TakenOver, Work};

/// A snapshot will not take effect: a helper forgets what was made of it.
pub(super) fn forget(shell: &mut Shell, receiving: Option<Receiving>) {
    if let Some(rows) = receiving.and_then(Receiving::into_rows) {
        shell.free(rows.into_garbage());
    }
}

impl Server {
    /// Has a helper compare a snapshot that is on the disk, as soon as the tables are settled and
    /// none before it is about to change them.
    pub(super) fn load_if_due(&mut self, db: DbId) {
        let Some(part) = self.clusters.parts.get_mut(&db) else { return };
        let Some(receiving) = &mut part.receiving else { return };
        let is_settled = self.databases.get(db).is_none() || self.databases.can_follow(db);
        let is_free = part.loading.is_none() && part.loaded.is_none();
        if !matches!(receiving.stage, Stage::Synced) || !is_settled || !is_free {
            return;
        }
        let place = receiving.place.clone();
        let (work, base) = self.send_load(db, place, true);
        let part = self.clusters.part_mut(db);
        part.loading = Some(work);
        part.receiving.as_mut().expect("it is there").stage = Stage::Loading(base);
    }

    fn send_load(
        &mut self,
        db: DbId,
        place: std::ops::Range<u64>,
        is_received: bool,
    ) -> (WorkId, Base) {
        let before = self.databases.get(db).map(|db| db.tables().snapshot());
        let (id, seed) = (self.shell.next_work(), self.shell.seed());
        let load = Box::new(Load { before, place, seed, read_at: None });
        self.shell.ask(Effect::Load { id, db, is_received, load });
        (id, self.base(db))
    }

    fn base(&self, db: DbId) -> Base {
        let version = self.databases.get(db)?.tables().version();
        Some(version.expect("nobody has the tables of who follows a snapshot"))
    }

    /// The database whose snapshot a helper was at; it is not any more.
    fn end_loading(&mut self, work: WorkId) -> Option<(DbId, &mut Part)> {
        let mut parts = self.clusters.parts.iter_mut();
        let (db, part) = parts.find(|(_, part)| part.loading == Some(work))?;
        part.loading = None;
        Some((*db, part))
    }

    /// A helper has read a snapshot.
    pub(in crate::server) fn have_loaded(&mut self, work: WorkId, loaded: LoadedRows) {
        let LoadedRows(result) = loaded;
        let is_loading = |receiving: &&mut Receiving| matches!(receiving.stage, Stage::Loading(_));
        let Some((db, _)) = self.end_loading(work) else {
            return self.forget_rows(result.ok());
        };
        if let Ok(Rows::Fresh(database)) = &result
            && !self.may_be_named(db, &database.schema().name)
        {
            self.forget_rows(result.ok());
            return self.run_member(db);
        }
        let part = self.clusters.part_mut(db);
        // One that was given up may be another one by now, which waits for the helper.
        if let Some(receiving) = part.receiving.as_mut().filter(is_loading) {
            let last = receiving.last;
            let result = result.map(|rows| receiving.have_loaded(rows));
            self.member_event(db, Happened::SnapshotLoaded { last, result });
        } else if let Some(loaded) = part.loaded.as_mut().filter(is_loading) {
            match result {
                Ok(rows) => loaded.have_loaded(rows),
                Err(error) => {
                    (loaded.stage, loaded.is_unread) = (Stage::Synced, true);
                    self.cannot_load(db, &error);
                }
            }
            self.run_member(db);
        } else {
            self.forget_rows(result.ok());
            self.run_member(db);
        }
    }

    /// Without what is in the file's place nothing takes effect: it is read again, and others can lead.
    fn cannot_load(&mut self, db: DbId, error: &str) {
        let now_us = self.shell.now_us();
        let part = self.clusters.part_mut(db);
        part.load_again_us = Some(now_us + LOAD_AGAIN_US);
        let name = part.member.name();
        let text = format!("{name}: cannot read the snapshot in the file: {error}");
        self.shell.log_limited("snapshot", "raft", Level::Error, text);
        let part = self.clusters.part_mut(db);
        if part.member.leader() == Some(part.member.id()) {
            part.member.hand_over(now_us);
        }
    }

    /// Whether a database that has come by a snapshot may have the name of its schema. Who made the file to join
    /// with may have named another database than its cluster has, and that one may be here already: then the member
    /// ends.
    fn may_be_named(&mut self, db: DbId, schema: &str) -> bool {
        let is_here = self.databases.get(db).is_some();
        if is_here || self.clusters.part_mut(db).member.name() == schema {
            return true;
        }
        let Err(error) = self.check_new_name(schema) else { return true };
        let part = self.clusters.part_mut(db);
        part.end = Some(End::Unfit);
        let name = part.member.name();
        let text = format!("{name}: does not join a cluster of {schema}: {error}");
        self.shell.log("raft", Level::Error, text);
        false
    }

    fn forget_rows(&mut self, rows: Option<Rows>) {
        if let Some(rows) = rows {
            self.shell.free(rows.into_garbage());
        }
    }

    /// A snapshot has taken the file's place: the tables follow, now or as soon as they can.
    pub(super) fn snapshot_installed(&mut self, db: DbId, receiving: Receiving) {
        let part = self.clusters.part_mut(db);
        assert!(
            part.loaded.is_none(),
            "a snapshot is loaded when the one before it has taken effect"
        );
        if self.databases.get(db).is_some() {
            part.loaded = Some(receiving);
            return;
        }
        part.applied = receiving.last.index;
        let Stage::Loaded(_, Rows::Fresh(database)) = receiving.stage else {
            unreachable!("what is installed was loaded, without any tables")
        };
        // The name may have been given to another database since the snapshot was loaded.
        if !self.may_be_named(db, &database.schema().name) {
            return self.forget_rows(Some(Rows::Fresh(database)));
        }
        let part = self.clusters.part_mut(db);
        let (name, schema) = (part.member.name(), &database.schema().name);
        if name != schema {
            let text = format!("name {name} in header does not match name {schema} in schema");
            self.shell.log("raft", Level::Error, text);
        }
        let path = part.path.clone();
        let (kept, configured) = (part.keys.take(), std::mem::take(&mut part.configured_keys));
        self.shell.ask(Effect::TrimMemory);
        let storage = Storage::Clustered(Clustered::new(path));
        let (tables, nonce) = (database.schema().tables.len(), self.shell.uuids().next_u64());
        let history = History::of_cluster(receiving.eid, tables, nonce);
        self.add_database(db, *database, (storage, Some(history)));
        self.databases.begin_keys(&mut self.shell, db, kept);
        self.databases.configure_keys(db, configured);
    }

    /// The tables are settled, and a snapshot is to change them. False if that takes a while.
    pub(super) fn follow_snapshot(&mut self, db: DbId) -> bool {
        let part = self.clusters.part_mut(db);
        if part.loading.is_some() || part.load_again_us.is_some() {
            return false;
        }
        self.end_what_is_under_way(db);
        // Who waited for a conversion that is not to be may have run.
        if !self.databases.is_decided(db) {
            return false;
        }
        let base = self.base(db);
        let mut loaded = self.clusters.part_mut(db).loaded.take().expect("it was looked at");
        let rows = match std::mem::replace(&mut loaded.stage, Stage::Synced) {
            Stage::Loaded(of, rows) if of == base => Some(rows),
            Stage::Loaded(_, rows) => {
                self.forget_rows(Some(rows));
                None
            }
            // It could not be read.
            Stage::Synced => None,
            _ => unreachable!("no helper is at it any more"),
        };
        let (last, eid) = (loaded.last, loaded.eid);
        match rows {
            None => {
                let (work, base) = self.send_load(db, loaded.place.clone(), false);
                loaded.stage = Stage::Loading(base);
                self.await_helper(db, work, loaded);
                false
            }
            Some(Rows::Changed(difference)) if !difference.is_empty() => {
                let Self { shell, sessions, databases, .. } = self;
                let database = databases.send_tables_to_snapshot(shell, sessions, db);
                let take_over = TakeOver { database, difference, seed: shell.seed() };
                let work = shell.send_out(Asker::Server, Work::TakeOver(Box::new(take_over)));
                loaded.stage = Stage::TakingOver;
                self.await_helper(db, work, loaded);
                false
            }
            Some(Rows::Changed(_)) => {
                self.has_rows_until(db, last.index);
                // Entries that come to nothing together have their ids all the same.
                self.databases.have_rows_of(&self.shell, db, Delta::default(), eid);
                self.decide(db);
                true
            }
            Some(Rows::Recast(converted)) => {
                self.has_rows_until(db, last.index);
                self.take_tables_of(db, (*converted, eid), None);
                true
            }
            Some(Rows::Fresh(_)) => unreachable!("there were tables to compare with"),
        }
    }

    /// A snapshot up to this index has taken effect.
    fn has_rows_until(&mut self, db: DbId, index: u64) {
        let part = self.clusters.part_mut(db);
        part.applied = index;
        for session in part.forwards.in_doubt(index) {
            self.forget_session(db, session);
        }
    }

    fn await_helper(&mut self, db: DbId, work: WorkId, loaded: Receiving) {
        let part = self.clusters.part_mut(db);
        (part.loading, part.loaded) = (Some(work), Some(loaded));
    }

    /// The tables are back, and like those of a snapshot.
    pub(in crate::server) fn have_taken_over(&mut self, work: WorkId, taken: TakenOver) {
        let TakenOver { database, result } = taken;
        let Some((db, part)) = self.end_loading(work) else {
            return self.forget_database(database);
        };
        let loaded = part.loaded.take().expect("nothing else takes effect before it");
        let Self { shell, databases, .. } = self;
        databases.take_tables(shell, db, database);
        match result {
            Ok(delta) => {
                databases.have_rows_of(shell, db, delta, loaded.eid);
                self.has_rows_until(db, loaded.last.index);
            }
            Err(error) => self.cannot_follow(db, loaded.last, &error.to_string()),
        }
        self.decide(db);
        let Self { shell, sessions, databases, .. } = self;
        databases.wake(shell, sessions, db);
        self.run_member(db);
    }

    fn forget_database(&mut self, database: Box<Database>) {
        self.shell.free(crate::work::Garbage::Database(database));
    }

    /// What is under way comes too late: the snapshot may have it, or not.
    fn end_what_is_under_way(&mut self, db: DbId) {
        self.end_batch(db);
        self.end_conversion_under_way(db);
    }
}

impl Receiving {
    fn have_loaded(&mut self, rows: Rows) {
        let Stage::Loading(base) = &mut self.stage else { panic!("a helper was at it") };
        self.stage = Stage::Loaded(base.take(), rows);
        self.is_unread = false;
    }
}
