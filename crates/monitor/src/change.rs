//! What happened to rows between two places of the log: changes of several transactions as one.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::delta::Change;
use weir_data::{
    Atom, AtomRef, ColumnDelta, ColumnId, Datum, DatumRef, Delta, Row, RowDelta, Schema,
    TableDelta, TableId, TableSchema, Uuid,
};

/// Rough memory of a pending row: its place in a list and in the index of that list, with slack.
const ROW_BYTES: usize = 112;
/// Cost of a heap allocation beyond its content: counters and rounding.
const HEAP_BYTES: usize = 24;
/// The estimate may grow by this much, and to twice what it was, before it is made anew.
const SLACK_BYTES: usize = 64 << 10;

/// What happened to a row. The row as it is now is the store's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// The row is new.
    Insert,
    /// The row is gone; as it was first.
    Delete(Row),
    /// Columns of the row changed: these, ascending.
    Modify(Vec<ColumnDelta>),
    /// The row was deleted, and inserted again under the same UUID; as it was first.
    Replace(Row),
}

/// A borrowed [`RowChange`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowChangeRef<'a> {
    /// See [`RowChange::Insert`].
    Insert,
    /// See [`RowChange::Delete`].
    Delete(&'a Row),
    /// See [`RowChange::Modify`].
    Modify(&'a [ColumnDelta]),
    /// See [`RowChange::Replace`].
    Replace(&'a Row),
}

impl RowChange {
    pub(crate) fn as_ref(&self) -> RowChangeRef<'_> {
        match self {
            Self::Insert => RowChangeRef::Insert,
            Self::Delete(old) => RowChangeRef::Delete(old),
            Self::Modify(columns) => RowChangeRef::Modify(columns),
            Self::Replace(old) => RowChangeRef::Replace(old),
        }
    }

    /// Adds what happened to the row later; `None` if nothing is left of the change.
    fn merge(self, later: RowChangeRef<'_>) -> Option<Self> {
        use RowChangeRef as Later;
        Some(match (self, later) {
            (Self::Insert, Later::Delete(_)) => return None,
            (Self::Insert, _) => Self::Insert,
            (Self::Modify(mut columns), Later::Modify(later)) => {
                for delta in later {
                    ColumnDelta::merge_into(&mut columns, delta.column, delta.change.clone());
                }
                columns.retain(|delta| !delta.change.is_empty());
                if columns.is_empty() {
                    return None;
                }
                Self::Modify(columns)
            }
            (Self::Modify(columns), Later::Delete(row)) => Self::Delete(before(row, &columns)),
            (Self::Modify(columns), Later::Replace(row)) => Self::Replace(before(row, &columns)),
            (Self::Delete(old), Later::Insert) => Self::Replace(old),
            (Self::Replace(old), Later::Delete(_)) => Self::Delete(old),
            (Self::Replace(old), Later::Modify(_) | Later::Replace(_)) => Self::Replace(old),
            // Something is missing between the two: for a while nobody watched the table. Those
            // who watch it now stand behind the gap.
            (_, later) => later.to_owned(),
        })
    }
}

impl<'a> RowChangeRef<'a> {
    fn to_owned(self) -> RowChange {
        match self {
            Self::Insert => RowChange::Insert,
            Self::Delete(old) => RowChange::Delete(old.clone()),
            Self::Modify(columns) => RowChange::Modify(columns.to_vec()),
            Self::Replace(old) => RowChange::Replace(old.clone()),
        }
    }

    /// Estimated memory that is kept for the sake of this change.
    pub(crate) fn bytes(self, table: &TableSchema) -> usize {
        let content = match self {
            Self::Insert => 0,
            Self::Delete(row) | Self::Replace(row) => row_bytes(row, table),
            Self::Modify(columns) => columns.iter().map(column_bytes).sum(),
        };
        ROW_BYTES + content
    }
}

impl<'a> From<&'a RowDelta> for RowChangeRef<'a> {
    fn from(delta: &'a RowDelta) -> Self {
        match delta {
            RowDelta::Insert(_) => Self::Insert,
            RowDelta::Delete(row) => Self::Delete(row),
            RowDelta::Modify(columns) => Self::Modify(columns),
        }
    }
}

/// The row before the changes of `columns` made it `after`.
pub(crate) fn before(after: &Row, columns: &[ColumnDelta]) -> Row {
    let mut row = after.clone();
    for ColumnDelta { column, change } in columns {
        *row.get_mut(*column) = change.old_value(after.get(*column));
    }
    row
}

fn row_bytes(row: &Row, table: &TableSchema) -> usize {
    let cell = |(column, _)| size_of::<Datum>() + heap_bytes(row.get(column));
    HEAP_BYTES + table.column_ids().map(cell).sum::<usize>()
}

fn column_bytes(delta: &ColumnDelta) -> usize {
    let content = match &delta.change {
        Change::Replace { old, new } => heap_bytes(old.as_ref()) + heap_bytes(new.as_ref()),
        change => entries_bytes(change.added()) + entries_bytes(change.removed()),
    };
    size_of::<ColumnDelta>() + content
}

/// Memory of a value beyond its cell.
fn heap_bytes(datum: DatumRef<'_>) -> usize {
    match datum.scalar() {
        Some(atom) => text_bytes(atom),
        None => entries_bytes(datum.entries()),
    }
}

fn entries_bytes<'a>(entries: impl Iterator<Item = (AtomRef<'a>, Option<AtomRef<'a>>)>) -> usize {
    let atom = |atom| size_of::<Atom>() + text_bytes(atom);
    let entry = |(key, value): (_, Option<_>)| atom(key) + value.map_or(0, atom);
    let content: usize = entries.map(entry).sum();
    if content == 0 { 0 } else { HEAP_BYTES + content }
}

fn text_bytes(atom: AtomRef<'_>) -> usize {
    atom.as_str().map_or(0, |text| HEAP_BYTES + text.len())
}

/// The changes of one table.
#[derive(Clone, Debug)]
struct TableChanges {
    table: TableId,
    /// Rows in the order of their first change; `None` where nothing is left of it.
    rows: Vec<(Uuid, Option<RowChange>)>,
    index: HashMap<Uuid, usize, FixedState>,
}

/// Merged changes of several transactions, by table and row.
#[derive(Clone, Debug)]
pub(crate) struct ChangeSet {
    /// The changed tables, ascending.
    tables: Vec<TableChanges>,
    /// What the hashes of UUIDs, which clients may choose, begin with.
    seed: u64,
    bytes: usize,
    /// The estimate when it was last made from what is there.
    exact_bytes: usize,
}

impl ChangeSet {
    /// No changes.
    pub(crate) fn new(seed: u64) -> Self {
        Self { tables: Vec::new(), seed, bytes: 0, exact_bytes: 0 }
    }

    fn table_mut(&mut self, table: TableId) -> &mut TableChanges {
        let at = match self.tables.binary_search_by_key(&table, |changes| changes.table) {
            Ok(at) => at,
            Err(at) => {
                let index = HashMap::with_hasher(FixedState::with_seed(self.seed));
                self.tables.insert(at, TableChanges { table, rows: Vec::new(), index });
                at
            }
        };
        &mut self.tables[at]
    }

    /// Adds a transaction's changes to tables that `is_watched`.
    pub(crate) fn merge_delta(
        &mut self,
        delta: &Delta,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) {
        for table in delta.tables.iter().filter(|table| is_watched(table.table)) {
            let rows = table.rows.iter().map(|(uuid, row)| (*uuid, row.into()));
            self.merge_rows(table.table, schema, rows);
        }
        self.compact(schema);
    }

    /// Adds the changes of a later set.
    pub(crate) fn merge(&mut self, later: &Self, schema: &Schema) {
        for (table, rows) in later.tables() {
            self.merge_rows(table, schema, rows);
        }
        self.compact(schema);
    }

    /// Gives changed rows the `_version` that they have, where one changed: what changed them did not
    /// know it.
    pub(crate) fn settle_versions<'a>(&mut self, row: impl Fn(TableId, Uuid) -> Option<&'a Row>) {
        for table in &mut self.tables {
            for (uuid, change) in &mut table.rows {
                let Some(RowChange::Modify(columns)) = change else { continue };
                let version = columns.iter_mut().find(|delta| delta.column == ColumnId::VERSION);
                if let (Some(delta), Some(row)) = (version, row(table.table, *uuid)) {
                    let new = Datum::One(Atom::Uuid(row.version()));
                    delta.change = Change::Replace { old: Datum::One(Atom::Uuid(Uuid::ZERO)), new };
                }
            }
        }
    }

    /// The changed rows of a table.
    pub(crate) fn changed(&self, table: TableId) -> Option<&HashMap<Uuid, usize, FixedState>> {
        let at = self.tables.binary_search_by_key(&table, |changes| changes.table).ok()?;
        Some(&self.tables[at].index)
    }

    fn merge_rows<'a>(
        &mut self,
        table: TableId,
        schema: &Schema,
        rows: impl Iterator<Item = (Uuid, RowChangeRef<'a>)>,
    ) {
        let mut bytes = 0;
        let changes = self.table_mut(table);
        for (uuid, later) in rows {
            bytes += later.bytes(schema.table(table));
            changes.merge_row(uuid, later);
        }
        self.bytes += bytes;
    }

    /// When enough has been added to pay for it: forgets rows of which nothing is left, and makes
    /// the estimate anew.
    fn compact(&mut self, schema: &Schema) {
        if self.bytes < 2 * self.exact_bytes + SLACK_BYTES {
            return;
        }
        for table in &mut self.tables {
            table.rows.retain(|(_, change)| change.is_some());
            table.index.clear();
            table.index.extend(table.rows.iter().enumerate().map(|(at, (uuid, _))| (*uuid, at)));
        }
        let bytes = |(table, rows): (TableId, _)| rows_bytes(rows, schema.table(table));
        self.exact_bytes = self.tables().map(bytes).sum();
        self.bytes = self.exact_bytes;
    }

    /// What has changed in which table.
    pub(crate) fn tables(
        &self,
    ) -> impl Iterator<Item = (TableId, impl Iterator<Item = (Uuid, RowChangeRef<'_>)>)> {
        self.tables.iter().map(|table| {
            let rows = table.rows.iter();
            (
                table.table,
                rows.filter_map(|(uuid, change)| Some((*uuid, change.as_ref()?.as_ref()))),
            )
        })
    }
}

fn rows_bytes<'a>(
    rows: impl Iterator<Item = (Uuid, RowChangeRef<'a>)>,
    table: &TableSchema,
) -> usize {
    rows.map(|(_, change)| change.bytes(table)).sum()
}

impl TableChanges {
    fn merge_row(&mut self, uuid: Uuid, later: RowChangeRef<'_>) {
        let at = *self.index.entry(uuid).or_insert(self.rows.len());
        match self.rows.get_mut(at) {
            None => self.rows.push((uuid, Some(later.to_owned()))),
            Some((_, slot)) => {
                *slot = match slot.take() {
                    None => Some(later.to_owned()),
                    Some(earlier) => earlier.merge(later),
                };
            }
        }
    }
}

/// What has changed between two places of the log.
#[derive(Clone, Debug)]
pub(crate) enum Changes {
    /// One transaction's changes, as the engine made them, and their estimated memory.
    One(Arc<Delta>, usize),
    /// Changes of several transactions, merged.
    Merged(Arc<ChangeSet>),
}

impl Changes {
    /// A transaction's changes.
    pub(crate) fn one(delta: &Arc<Delta>, schema: &Schema) -> Self {
        let table = |table: &TableDelta| {
            let rows = table.rows.iter().map(|(uuid, row)| (*uuid, row.into()));
            rows_bytes(rows, schema.table(table.table))
        };
        Self::One(Arc::clone(delta), delta.tables.iter().map(table).sum())
    }

    /// Estimated memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::One(_, bytes) => *bytes,
            Self::Merged(changes) => changes.bytes,
        }
    }

    /// About how many rows have changed.
    pub(crate) fn len(&self) -> usize {
        self.len_of(|_| true)
    }

    /// About how many rows of these tables have changed.
    pub(crate) fn len_of(&self, is_of_these: impl Fn(TableId) -> bool) -> usize {
        self.row_counts().filter(|(table, _)| is_of_these(*table)).map(|(_, rows)| rows).sum()
    }

    /// The changed tables, and about how many of their rows changed.
    fn row_counts(&self) -> impl Iterator<Item = (TableId, usize)> {
        let (one, merged) = match self {
            Self::One(delta, _) => (&delta.tables[..], &[][..]),
            Self::Merged(set) => (&[][..], &set.tables[..]),
        };
        let one = one.iter().map(|table| (table.table, table.rows.len()));
        one.chain(merged.iter().map(|table| (table.table, table.rows.len())))
    }

    /// How many rows are gone through to merge others into these, where only these tables are kept.
    pub(crate) fn rows_to_open(&self, is_kept: impl Fn(TableId) -> bool) -> usize {
        match self {
            Self::Merged(set) if Arc::strong_count(set) == 1 => 0,
            Self::One(..) => self.len_of(is_kept),
            // Somebody else has it, so that it is copied.
            Self::Merged(_) => self.len(),
        }
    }

    /// Changes one after the other as one.
    pub(crate) fn join(
        parts: Vec<Self>,
        seed: u64,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) -> Self {
        let mut parts = parts.into_iter();
        let first = parts.next().expect("something has changed");
        if parts.len() == 0 {
            return first;
        }
        let mut set = first.into_set(seed, schema, &is_watched);
        parts.for_each(|part| part.merge_into(&mut set, schema, &is_watched));
        Self::Merged(Arc::new(set))
    }

    /// The changed tables among these, and about how many of their rows changed.
    pub(crate) fn tables(&self, is_of_these: impl Fn(TableId) -> bool) -> Vec<(TableId, usize)> {
        self.row_counts().filter(|(table, _)| is_of_these(*table)).collect()
    }

    /// The changes as a set that more can be merged into.
    pub(crate) fn into_set(
        self,
        seed: u64,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) -> ChangeSet {
        match self {
            Self::One(delta, _) => {
                let mut set = ChangeSet::new(seed);
                set.merge_delta(&delta, schema, is_watched);
                set
            }
            Self::Merged(set) => Arc::unwrap_or_clone(set),
        }
    }

    /// Merges the changes into a set of earlier ones.
    pub(crate) fn merge_into(
        &self,
        earlier: &mut ChangeSet,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) {
        match self {
            Self::One(delta, _) => earlier.merge_delta(delta, schema, is_watched),
            Self::Merged(later) => earlier.merge(later, schema),
        }
    }
}
