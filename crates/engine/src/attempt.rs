//! A long request whose operations run on a snapshot while the database goes on, and which is
//! committed later, behind what others have committed meanwhile.
//!
//! 1. [`Attempt::run`] runs the operations on rows as they were, and keeps what each has looked for
//!    and done.
//! 2. [`Missed`] collects which rows others change from then on.
//! 3. [`Attempt::compare`] finds the operations that have looked for one of these rows, as it was or
//!    as it is now. The others would find the same rows now, and do the same.
//! 4. [`Attempt::commit`] does to the rows of the database what was done to those of the snapshot,
//!    and commits that: references, unique indexes and the like are judged as of now. Operations
//!    that would do something else run again when their turn comes (`replay`).

mod replay;
mod sought;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_data::{Delta, Names, Row, Snapshot, Store, TableId, Uuid, UuidSource};
use weir_json::Text;

use self::sought::Sought;
pub(crate) use self::sought::Trace;
use crate::database::Database;
use crate::execute::{self, Env, Outcome, Results, Unanswered};
use crate::meter::{self, Meter, Watcher, Word};
use crate::ops::Run;
use crate::rbac;
use crate::transaction::{Edit, Logged, Transaction};
use crate::view;

/// A change of more rows than this counts as a change of all rows of its tables.
const ROWS_OF_CHANGE_MAX: usize = 1_000;

/// When more rows than this have changed, all rows of their tables count as changed.
const ROWS_MAX: usize = 100_000;

/// A watcher is asked when so many rows have been compared with what was looked for.
const ASK_EACH: usize = 64;

/// Rows that others have changed since an attempt began, as they are now.
#[derive(Debug, Default)]
pub struct Missed {
    /// `None` for a row that is gone.
    rows: BTreeMap<(TableId, Uuid), Option<Row>>,
    /// Tables of which any row may have changed.
    tables: BTreeSet<TableId>,
}

impl Missed {
    /// Adds a change that has been made to the rows of `store`.
    pub fn note(&mut self, delta: &Delta, store: &Store) {
        let is_big = delta.rows().nth(ROWS_OF_CHANGE_MAX).is_some();
        if is_big || self.rows.len() > ROWS_MAX {
            let rows = std::mem::take(&mut self.rows);
            self.tables.extend(rows.keys().map(|(table, _)| *table));
            self.tables.extend(delta.tables.iter().map(|delta| delta.table));
            return;
        }
        for (table, uuid, _) in delta.rows() {
            self.rows.insert((table, uuid), store.get(table, uuid).cloned());
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.tables.is_empty()
    }
}

/// A request whose operations have run on a snapshot.
#[derive(Debug)]
pub struct Attempt {
    /// The rows of the snapshot, as the operations have left them.
    view: Database,
    sought: BTreeMap<TableId, Sought>,
    trace: Trace,
    log: Vec<Logged>,
    /// Where in the log something was done to a row.
    edited: BTreeMap<(TableId, Uuid), Vec<usize>>,
    names: Names,
    results: Results,
    /// Rows that others have changed since.
    stale: BTreeSet<(TableId, Uuid)>,
    /// Operations that have looked for one of those.
    again: BTreeSet<usize>,
}

impl Attempt {
    /// Runs the operations of a request on a snapshot. `seed` is any: no answer depends on it.
    ///
    /// # Errors
    /// The request is to be run again, or need not be run at all.
    pub fn run(
        snapshot: &Snapshot,
        operations: &[Text<'_>],
        env: &mut Env<'_>,
        seed: u64,
    ) -> Result<Self, Unanswered> {
        let mut view = view::whole(snapshot, operations, seed);
        let (schema, read_only) = (Arc::clone(view.schema()), env.read_only);
        let has_role = !env.client.role.is_empty();
        let mut run = Run::new(&mut view, env);
        run.planner.trace = Some(Trace::default());
        run.txn.begin_log();
        let denials = (read_only, has_role);
        let failed = execute::run_operations(&mut run, &schema, operations, denials)?;
        let mut trace = run.planner.trace.take().unwrap_or_default();
        // What a transaction that has failed has done, too: what it has made of rows, it has read
        // of them.
        let log = run.txn.end_log();
        let names = run.take_names();
        let (_, _, results) = Results::of(run, failed, operations);
        let mut edited: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (at, (table, uuid, _)) in log.iter().enumerate() {
            edited.entry((*table, *uuid)).or_default().push(at);
        }
        let sought = trace.take_sought(seed);
        let (stale, again) = Default::default();
        Ok(Self { view, sought, trace, log, edited, names, results, stale, again })
    }

    /// Bytes of the reply, as far as nothing runs again.
    pub fn reply_len(&self) -> usize {
        self.results.reply().len()
    }

    /// What [`Attempt::compare`] costs at most, in units of about 50 ns.
    pub fn cost(&self, missed: &Missed) -> u64 {
        let of_table = |table: &TableId| self.sought.get(table).map_or(0, Sought::cost);
        let compared = missed.rows.keys().map(|(table, _)| of_table(table));
        let compared = compared.fold(0, u64::saturating_add).saturating_mul(2);
        let visited = missed.rows.len() as u64;
        compared.saturating_add(visited.saturating_mul(meter::ROW))
    }

    /// Finds the operations to which these changes may make a difference. False if that may be all
    /// of them, or the watcher says that nobody wants to know any more.
    pub fn compare(&mut self, missed: &Missed, watcher: Option<&Watcher>) -> bool {
        let roles: Vec<TableId> = rbac::tables(self.view.schema()).collect();
        let matters = |table: &TableId| {
            self.sought.contains_key(table)
                || self.edited.keys().any(|(edited, _)| edited == table)
                || roles.contains(table)
        };
        if missed.tables.iter().any(matters) {
            return false;
        }
        for (at, (key, now)) in missed.rows.iter().enumerate() {
            if at % ASK_EACH == 0 && watcher.is_some_and(|watcher| watcher.ask() == Word::Stop) {
                return false;
            }
            let (table, uuid) = *key;
            if roles.contains(&table) {
                return false;
            }
            self.stale.insert(*key);
            let mut was = self.view.store.get(table, uuid).cloned();
            for logged in self.edited.get(key).into_iter().flatten().rev() {
                self.again.insert(self.trace.step_of(*logged));
                was = replay::undone(was, &self.log[*logged].2);
            }
            if let Some(sought) = self.sought.get(&table) {
                let versions = was.iter().chain(now);
                versions.for_each(|row| sought.find(row, &mut self.again));
            }
        }
        // What has failed or has been called otherwise in between is run from its beginning.
        self.again.is_empty() || !self.results.has_failed() && !self.trace.is_renamed
    }

    /// What the operations cost that are to run again, as far as that is known, in units of about
    /// 50 ns.
    pub fn again_cost(&self) -> u64 {
        self.again.iter().map(|at| self.trace.cost(*at)).fold(0, u64::saturating_add)
    }

    /// Whether no operation would do anything else than it has done.
    pub fn holds(&self) -> bool {
        self.again.is_empty()
    }

    /// Commits what the operations have done, on the rows as they are now; the attempt must hold.
    /// [`Outcome::TooLong`] if that costs more than `budget`.
    pub fn commit(
        &self,
        db: &mut Database,
        uuids: &mut UuidSource,
        budget: u64,
        watcher: Option<Watcher>,
    ) -> Outcome {
        assert!(self.holds(), "operations that would do something else run again");
        let mut txn = Transaction::with_meter(db, Meter::new(budget, watcher));
        let log = self.log.iter().filter(|_| !self.results.has_failed());
        for (table, uuid, edit) in log {
            if txn.meter.allow(edit.cost()).is_err() {
                return Outcome::TooLong { cost: txn.abort() };
            }
            match edit {
                Edit::Insert(row) => txn.insert(*table, row.clone()),
                Edit::Change(column, change) => txn.change(*table, *uuid, *column, change.clone()),
                Edit::Delete(_) => txn.delete(*table, *uuid),
            }
        }
        self.results.clone().conclude(txn, uuids, budget)
    }
}
