//! What a request that waits depends on: until some of it changes, and before its time is up, the
//! request need not run again.
//!
//! A request waits at a `wait` that does not hold, and next time it may fail before, wait elsewhere
//! or go on. That depends on
//!
//! 1. the rows that this `wait` looks at. Where its condition demands a value of a column, other
//!    rows do not matter, whether or not there is a row of that value yet;
//! 2. the tables of the operations before it, as a whole: what they change the `wait` may see, and
//!    they may fail. What only becomes part of the reply (`select`) does not matter;
//! 3. the locks that they assert;
//! 4. the tables of roles and permissions, if the client has a role.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use weir_data::condition::{Clause, Condition, Function};
use weir_data::delta::{Change, ColumnDelta, TableDelta};
use weir_data::{
    AtomType, ColumnId, Datum, DatumRef, RowDelta, Schema, Store, TableId, TableSchema, Uuid,
};
use weir_json::Text;

use crate::ops::{self, Needs};
use crate::{digest, rbac};

/// What a request that waits depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Rows.
    pub rows: Vec<Read>,
    /// Locks have been asserted: the outcome depends on who owns them, too.
    pub asserts: bool,
}

/// Rows that are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The table of the rows.
    pub table: TableId,
    /// Which columns of the rows.
    pub columns: ColumnSet,
    /// Only rows that have this value in this column, whose values have one element at most.
    pub value: Option<(ColumnId, Datum)>,
}

/// Columns of one table; where there are more than 127, all behind these are as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnSet(u128);

impl ColumnSet {
    /// All columns.
    pub const ALL: Self = Self(u128::MAX);

    /// Adds a column.
    #[must_use]
    pub fn with(self, column: ColumnId) -> Self {
        Self(self.0 | 1 << column.0.min(127))
    }

    /// The columns of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a column is in both.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The columns of a row that a transaction has changed: all, if the row came or went.
    pub fn changed(delta: &RowDelta) -> Self {
        let RowDelta::Modify(columns) = delta else { return Self::ALL };
        columns.iter().fold(Self::default(), |set, delta| set.with(delta.column))
    }
}

impl FromIterator<ColumnId> for ColumnSet {
    fn from_iter<T: IntoIterator<Item = ColumnId>>(columns: T) -> Self {
        columns.into_iter().fold(Self::default(), Self::with)
    }
}

impl Read {
    fn whole(table: TableId) -> Self {
        Self { table, columns: ColumnSet::ALL, value: None }
    }

    /// What a `wait` looks at; `None` if no row can satisfy its condition.
    pub(crate) fn of_wait(
        table: TableId,
        schema: &TableSchema,
        condition: Condition,
        columns: &[ColumnId],
    ) -> Option<Self> {
        if condition.clauses.contains(&Clause::Constant(false)) {
            return None;
        }
        let compared = condition.clauses.iter().filter_map(|clause| match clause {
            Clause::Compare { column, .. } => Some(*column),
            Clause::Constant(_) => None,
        });
        let columns = compared.chain(columns.iter().copied()).collect();
        Some(Self { table, columns, value: demanded(schema, condition) })
    }
}

/// The value that a condition demands of a column: of the one that tells most rows apart.
fn demanded(schema: &TableSchema, condition: Condition) -> Option<(ColumnId, Datum)> {
    let demanded = condition.clauses.into_iter().filter_map(|clause| match clause {
        Clause::Compare { column, function, value } => {
            let ty = &schema.column(column).ty;
            // A scalar that includes a value is that value.
            let demands = function == Function::Equal
                || function == Function::Includes && ty.is_scalar() && value.as_ref().len() == 1;
            (demands && !ty.is_composite()).then_some((column, value))
        }
        Clause::Constant(_) => None,
    });
    demanded.min_by_key(|(column, _)| {
        let is_indexed = schema.indexes.iter().any(|index| index.contains(column));
        match schema.column(*column).ty.key.ty {
            _ if *column == ColumnId::UUID => 0,
            _ if is_indexed => 1,
            AtomType::String | AtomType::Uuid => 2,
            AtomType::Integer | AtomType::Real | AtomType::Boolean => 3,
        }
    })
}

impl Reads {
    /// What a request depends on that has come so far: `before` are the operations before the
    /// `wait` that looks at `here`.
    pub(crate) fn new(
        schema: &Schema,
        before: &[Text<'_>],
        here: Option<Read>,
        has_role: bool,
    ) -> Self {
        let (mut tables, mut asserts) = (Vec::new(), false);
        for operation in before {
            match needs(*operation) {
                Needs::Nothing => {}
                Needs::Lock => asserts = true,
                Needs::Rows => tables.extend(named_tables(schema, *operation)),
            }
        }
        if has_role {
            tables.extend(rbac::tables(schema));
        }
        tables.sort_unstable();
        tables.dedup();
        let here = here.filter(|read| tables.binary_search(&read.table).is_err());
        Self { rows: tables.into_iter().map(Read::whole).chain(here).collect(), asserts }
    }
}

/// What an operation's success depends on, and what it leaves for those behind it to see.
fn needs(operation: Text<'_>) -> Needs {
    let members = || operation.members().into_iter().flatten();
    let kinds = members().filter(|(key, _)| **key == *b"op");
    let kind = kinds.last().and_then(|(_, name)| ops::find(&name.str()?));
    let needs = kind.map_or(Needs::Rows, |kind| kind.needs);
    // A row with a UUID of the client's choice must be new.
    let is_insert = kind.is_some_and(|kind| kind.name == "insert");
    if is_insert && members().all(|(key, _)| *key != *b"uuid") { Needs::Nothing } else { needs }
}

fn named_tables(schema: &Schema, operation: Text<'_>) -> impl Iterator<Item = TableId> {
    let members = operation.members().into_iter().flatten();
    let named = members.filter(|(key, _)| **key == *b"table");
    named.filter_map(|(_, name)| schema.table_id(&name.str()?))
}

/// Values by number, for who looks for requests by the value that they wait for.
#[derive(Clone, Debug)]
pub struct ValueHasher(FixedState);

impl ValueHasher {
    /// `seed` keeps clients from choosing values of equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// The number of a value: the same for equal values.
    pub fn hash(&self, value: DatumRef<'_>) -> u64 {
        let mut hasher = self.0.build_hasher();
        digest::datum(value, &mut hasher);
        hasher.finish()
    }

    /// The numbers of the values that changed rows had and have in `column`, with the columns that
    /// changed. `store` has the rows as they are now.
    pub fn changed<'d>(
        &'d self,
        delta: &'d TableDelta,
        column: ColumnId,
        store: &'d Store,
    ) -> impl Iterator<Item = (u64, ColumnSet)> + 'd {
        delta.rows.iter().flat_map(move |(uuid, row)| {
            let (one, other) = self.values(delta.table, column, store, *uuid, row);
            let columns = ColumnSet::changed(row);
            one.into_iter().chain(other).map(move |value| (value, columns))
        })
    }

    fn values(
        &self,
        table: TableId,
        column: ColumnId,
        store: &Store,
        uuid: Uuid,
        delta: &RowDelta,
    ) -> (Option<u64>, Option<u64>) {
        match delta {
            RowDelta::Insert(row) | RowDelta::Delete(row) => {
                (Some(self.hash(row.get(column))), None)
            }
            RowDelta::Modify(columns) => {
                let changed = columns.iter().find(|delta| delta.column == column);
                if let Some(ColumnDelta { change: Change::Replace { old, new }, .. }) = changed {
                    return (Some(self.hash(old.as_ref())), Some(self.hash(new.as_ref())));
                }
                let row = store.get(table, uuid);
                (row.map(|row| self.hash(row.get(column))), None)
            }
        }
    }
}
