//! Finding the rows that satisfy a condition: by UUID, by a unique index, or by looking at all.
//!
//! Whatever finds candidates, each is checked against the whole condition, so a plan decides only
//! how many rows are visited. The result is in slot order under every plan.
//!
//! Indexes hold committed values. What the transaction itself has moved in them, rows that it
//! inserted or changed in an index column, is found through `Moved`.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::{SmallVec, smallvec};
use weir_data::condition::{Clause, Condition, Function};
use weir_data::{ColumnId, DatumRef, Row, TableId, TableSchema, Uuid};

use crate::attempt::Reads;
use crate::digest;
use crate::meter::{self, TooLong};
use crate::transaction::Transaction;

/// What finding rows took, for tests and coverage counters: work, not time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows that a condition was checked on.
    pub rows_visited: u64,
    /// Searches by `_uuid`.
    pub by_uuid: u64,
    /// Searches by a unique index.
    pub by_index: u64,
    /// Searches that looked at every row of a table.
    pub scans: u64,
}

/// Finds rows for the operations of one transaction.
pub(crate) struct Planner {
    pub(crate) work: Work,
    /// What was looked for, if somebody wants to know.
    pub(crate) reads: Option<Reads>,
    moved: Vec<Moved>,
    hasher: FixedState,
}

/// Rows of one table that may have values that the table's indexes do not know.
struct Moved {
    table: TableId,
    /// The moved rows in the order in which they got such values; a row may be there more than
    /// once.
    uuids: Vec<Uuid>,
    lookups: Vec<Lookup>,
}

/// The moved rows by the hash of their values in one index, as far as somebody asked.
struct Lookup {
    index: usize,
    /// How many of [`Moved::uuids`] are in.
    done: usize,
    by_hash: HashMap<u64, Vec<Uuid>, FixedState>,
}

/// So many moved rows, at most, are all looked at without a [`Lookup`].
const LOOK_AT_ALL: usize = 8;

/// A few things: there is usually one, and seldom more than four.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// How to find candidates.
enum Plan<'c> {
    Nothing,
    Uuid(Uuid),
    Index { index: usize, values: Few<DatumRef<'c>> },
    Scan,
}

impl Planner {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self { work: Work::default(), reads: None, moved: Vec::new(), hasher }
    }

    /// The rows that satisfy every clause, in slot order, unless looking for them costs more than
    /// the transaction may.
    pub(crate) fn rows<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
    ) -> Result<Few<&'t Row>, TooLong> {
        let clauses = condition.clauses.len().max(1) as u64;
        let rows = txn.store().table(table);
        if let Some(reads) = &mut self.reads {
            reads.note(table, condition);
        }
        let candidates = match plan(condition, txn.schema().table(table)) {
            Plan::Nothing => Few::new(),
            Plan::Uuid(uuid) => {
                self.work.by_uuid += 1;
                smallvec![uuid]
            }
            Plan::Index { index, values } => {
                self.work.by_index += 1;
                self.candidates(txn, table, index, &values)
            }
            Plan::Scan => {
                txn.meter.afford_each(rows.len(), meter::CLAUSE * clauses)?;
                self.work.scans += 1;
                self.work.rows_visited += rows.len() as u64;
                return Ok(rows.iter().filter(|row| condition.matches_all(row)).collect());
            }
        };
        let mut slots: Few<_> = Few::new();
        for uuid in &candidates {
            slots.extend(rows.slot(*uuid));
        }
        if slots.len() > 1 {
            slots.sort_unstable();
            slots.dedup();
        }
        self.work.rows_visited += slots.len() as u64;
        txn.meter.spend_each(slots.len(), meter::CLAUSE * clauses);
        let found = slots.into_iter().filter_map(|slot| rows.at(slot));
        Ok(found.filter(|row| condition.matches_all(row)).collect())
    }

    /// Takes note that a row was inserted, or changed in `column`.
    pub(crate) fn row_moved(
        &mut self,
        schema: &TableSchema,
        table: TableId,
        uuid: Uuid,
        column: Option<ColumnId>,
    ) {
        let concerns = |index: &Vec<ColumnId>| column.is_none_or(|column| index.contains(&column));
        if !schema.indexes.iter().any(concerns) {
            return;
        }
        match self.moved.iter_mut().find(|moved| moved.table == table) {
            Some(moved) => moved.uuids.push(uuid),
            None => self.moved.push(Moved { table, uuids: vec![uuid], lookups: Vec::new() }),
        }
    }

    /// Rows that may have these values in a unique index.
    fn candidates(
        &mut self,
        txn: &Transaction<'_>,
        table: TableId,
        index: usize,
        values: &[DatumRef<'_>],
    ) -> Few<Uuid> {
        let mut candidates: Few<Uuid> = txn.db().lookup(table, index, values).into_iter().collect();
        if let Some(moved) = self.moved.iter_mut().find(|moved| moved.table == table) {
            if moved.uuids.len() <= LOOK_AT_ALL {
                candidates.extend_from_slice(&moved.uuids);
            } else {
                let lookup = moved.lookup(txn, index, &self.hasher);
                let hash = hash(&self.hasher, values.iter().copied());
                candidates.extend(lookup.by_hash.get(&hash).into_iter().flatten().copied());
            }
        }
        candidates
    }
}

impl Moved {
    /// The lookup for an index, with all moved rows in it.
    fn lookup(&mut self, txn: &Transaction<'_>, index: usize, hasher: &FixedState) -> &Lookup {
        let at = self.lookups.iter().position(|lookup| lookup.index == index);
        let at = at.unwrap_or_else(|| {
            let by_hash = HashMap::with_hasher(hasher.clone());
            self.lookups.push(Lookup { index, done: 0, by_hash });
            self.lookups.len() - 1
        });
        let lookup = &mut self.lookups[at];
        let columns = &txn.schema().table(self.table).indexes[index];
        for uuid in &self.uuids[lookup.done..] {
            if let Some(row) = txn.store().get(self.table, *uuid) {
                let hash = hash(hasher, columns.iter().map(|column| row.get(*column)));
                lookup.by_hash.entry(hash).or_default().push(*uuid);
            }
        }
        lookup.done = self.uuids.len();
        lookup
    }
}

fn hash<'a>(hasher: &FixedState, values: impl Iterator<Item = DatumRef<'a>>) -> u64 {
    let mut hasher = hasher.build_hasher();
    values.for_each(|value| digest::datum(value, &mut hasher));
    hasher.finish()
}

/// Chooses how to find the rows that satisfy a condition.
fn plan<'c>(condition: &'c Condition, schema: &TableSchema) -> Plan<'c> {
    if condition.clauses.contains(&Clause::Constant(false)) {
        return Plan::Nothing;
    }
    let uuid = bound(condition, schema, ColumnId::UUID).and_then(DatumRef::scalar);
    if let Some(uuid) = uuid.and_then(|atom| atom.as_uuid()) {
        return Plan::Uuid(uuid);
    }
    for (index, columns) in schema.indexes.iter().enumerate() {
        let values = columns.iter().map(|column| bound(condition, schema, *column));
        if let Some(values) = values.collect() {
            return Plan::Index { index, values };
        }
    }
    Plan::Scan
}

/// The value that a condition demands of a column.
fn bound<'c>(
    condition: &'c Condition,
    schema: &TableSchema,
    wanted: ColumnId,
) -> Option<DatumRef<'c>> {
    // A scalar that includes a value is that value.
    let is_scalar = schema.column(wanted).ty.is_scalar();
    condition.clauses.iter().find_map(|clause| match clause {
        Clause::Compare { column, function, value } if *column == wanted => match function {
            Function::Equal => Some(value.as_ref()),
            Function::Includes if is_scalar => Some(value.as_ref()),
            _ => None,
        },
        _ => None,
    })
}
