//! A long request whose operations run on a snapshot while the database goes on, and which is
//! committed later, behind what others have committed meanwhile, if that makes no difference to it.
//!
//! 1. [`Attempt::run`] runs the operations on rows as they were, and keeps what each has looked for.
//! 2. [`Missed`] collects which rows others change from then on.
//! 3. [`Attempt::holds`]: none of these rows, neither as it was nor as it is now, is one that an
//!    operation has looked for. Each operation would find the same rows now, and do the same.
//! 4. [`Attempt::commit`] does to the rows of the database what was done to those of the snapshot,
//!    and commits that: references, unique indexes and the like are judged as of now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use weir_data::condition::{Clause, Condition, Function};
use weir_data::{Atom, ColumnId, Datum, Delta, Row, Snapshot, Store, TableId, Uuid, UuidSource};
use weir_json::Text;

use crate::database::Database;
use crate::execute::{self, Env, Outcome, Results, Unanswered};
use crate::meter::{self, Meter, Watcher, Word};
use crate::ops::Run;
use crate::rbac;
use crate::reads::ValueHasher;
use crate::transaction::{Edit, Transaction};

/// A change of more rows than this counts as a change of all rows of its tables.
const ROWS_OF_CHANGE_MAX: usize = 1_000;

/// When more rows than this have changed, all rows of their tables count as changed.
const ROWS_MAX: usize = 100_000;

/// A watcher is asked when so many rows have been compared with what was looked for.
const ASK_EACH: usize = 64;

/// What the operations of a request have looked for.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    tables: BTreeMap<TableId, Vec<Condition>>,
}

impl Reads {
    /// An operation looks for the rows that satisfy a condition.
    pub(crate) fn note(&mut self, table: TableId, condition: &Condition) {
        let conditions = self.tables.entry(table).or_default();
        // Many operations of one kind are the common case.
        if conditions.last() != Some(condition) {
            conditions.push(condition.clone());
        }
    }

    /// An operation looks for a row of this name.
    pub(crate) fn note_row(&mut self, table: TableId, uuid: Uuid) {
        let value = Datum::One(Atom::Uuid(uuid));
        let (column, function) = (ColumnId::UUID, Function::Equal);
        let clauses = vec![Clause::Compare { column, function, value }];
        self.note(table, &Condition { clauses });
    }

    fn into_sought(self, seed: u64) -> BTreeMap<TableId, Sought> {
        let of_table = |(table, conditions)| (table, Sought::new(conditions, seed));
        self.tables.into_iter().map(of_table).collect()
    }
}

/// What has been looked for in one table: a row is compared with few of thousands of conditions.
#[derive(Debug)]
struct Sought {
    /// Conditions that demand a value of a column, by the column and the hash of the value.
    equal: BTreeMap<ColumnId, HashMap<u64, Vec<Condition>, FixedState>>,
    others: Vec<Condition>,
    hasher: ValueHasher,
}

impl Sought {
    fn new(conditions: Vec<Condition>, seed: u64) -> Self {
        let hasher = ValueHasher::new(seed);
        let mut sought = Self { equal: BTreeMap::new(), others: Vec::new(), hasher };
        for condition in conditions {
            let demanded = condition.clauses.iter().find_map(|clause| match clause {
                Clause::Compare { column, function: Function::Equal, value } => {
                    Some((*column, sought.hasher.hash(value.as_ref())))
                }
                _ => None,
            });
            let place = match demanded {
                Some((column, hash)) => {
                    let map = || HashMap::with_hasher(FixedState::with_seed(seed));
                    sought.equal.entry(column).or_insert_with(map).entry(hash).or_default()
                }
                None => &mut sought.others,
            };
            place.push(condition);
        }
        sought
    }

    /// Whether somebody has looked for a row like this one.
    fn has(&self, row: &Row) -> bool {
        let is_read = |read: &Condition| read.matches_all(row);
        let is_equal = |(column, conditions): (&ColumnId, &HashMap<_, Vec<_>, _>)| {
            let found = conditions.get(&self.hasher.hash(row.get(*column)));
            found.is_some_and(|found: &Vec<Condition>| found.iter().any(is_read))
        };
        self.others.iter().any(is_read) || self.equal.iter().any(is_equal)
    }

    /// How many conditions a row is compared with, about.
    fn cost(&self) -> u64 {
        (self.others.len() + self.equal.len()) as u64
    }
}

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
    edits: Vec<(TableId, Uuid, Edit)>,
    results: Results,
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
        let mut view = execute::view(snapshot, operations, seed);
        let (schema, read_only) = (Arc::clone(view.schema()), env.read_only);
        let has_role = !env.client.role.is_empty();
        let mut run = Run::new(&mut view, env);
        run.planner.reads = Some(Reads::default());
        let denials = (read_only, has_role);
        let failed = execute::run_operations(&mut run, &schema, operations, denials)?;
        let reads = run.planner.reads.take().unwrap_or_default();
        let (txn, _, results) = Results::of(run, failed, operations.is_empty());
        // Those of a transaction that has failed, too: what it has made of rows, it has read of them.
        let edits = txn.into_edits();
        Ok(Self { view, sought: reads.into_sought(seed), edits, results })
    }

    /// What [`Attempt::holds`] costs at most, in units of about 50 ns.
    pub fn cost(&self, missed: &Missed) -> u64 {
        let of_table = |table: &TableId| self.sought.get(table).map_or(0, Sought::cost);
        let compared = missed.rows.keys().map(|(table, _)| of_table(table));
        let compared = compared.fold(0, u64::saturating_add).saturating_mul(2 * meter::CLAUSE);
        let visited = (missed.rows.len() + self.edits.len()) as u64;
        compared.saturating_add(visited.saturating_mul(meter::ROW))
    }

    /// Whether the operations would do the same on the rows as they are now. False, too, if the
    /// watcher says that nobody wants to know any more.
    pub fn holds(&self, missed: &Missed, watcher: Option<&Watcher>) -> bool {
        let roles = || rbac::tables(self.view.schema());
        let matters = |table| {
            self.sought.contains_key(&table)
                || self.edits.iter().any(|(edited, ..)| *edited == table)
                || roles().any(|role| role == table)
        };
        if missed.tables.iter().any(|table| matters(*table)) {
            return false;
        }
        let mut edited: Vec<(TableId, Uuid)> =
            self.edits.iter().map(|(table, uuid, _)| (*table, *uuid)).collect();
        edited.sort_unstable();
        for (at, ((table, uuid), now)) in missed.rows.iter().enumerate() {
            if at % ASK_EACH == 0 && watcher.is_some_and(|watcher| watcher.ask() == Word::Stop) {
                return false;
            }
            let sought = self.sought.get(table);
            let versions = [self.view.store.get(*table, *uuid), now.as_ref()];
            let is_sought = |row: &&Row| sought.is_some_and(|sought| sought.has(row));
            if versions.iter().flatten().any(is_sought)
                || edited.binary_search(&(*table, *uuid)).is_ok()
                || roles().any(|role| role == *table)
            {
                return false;
            }
        }
        true
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
        let mut txn = Transaction::with_meter(db, Meter::new(budget, watcher));
        let edits = self.edits.iter().filter(|_| !self.results.has_failed());
        for (table, uuid, edit) in edits {
            if txn.meter.is_over() {
                return Outcome::TooLong { cost: txn.abort() };
            }
            txn.edit(*table, *uuid, edit);
        }
        self.results.clone().conclude(txn, uuids, budget)
    }
}
