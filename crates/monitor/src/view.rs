//! What has changed since a place, resolved once for all groups that are told of it: every changed
//! row with what it is now and, where somebody asks, what it was.

use std::borrow::Cow;
use std::cell::OnceCell;

use weir_data::{ColumnDelta, Row, Schema, TableId, Uuid};

use crate::change::{Changes, RowChangeRef, before};
use crate::shape::Fragments;

/// What has changed, by table.
#[derive(Debug, Default)]
pub(crate) struct View<'a> {
    /// The changed tables, ascending, none without rows.
    pub(crate) tables: Vec<TableView<'a>>,
}

/// The changed rows of a table.
#[derive(Debug)]
pub(crate) struct TableView<'a> {
    pub(crate) table: TableId,
    pub(crate) rows: Vec<RowView<'a>>,
    /// What was written of the whole table for subscriptions without a condition.
    pub(crate) whole: Fragments,
}

/// A changed row.
#[derive(Debug)]
pub(crate) struct RowView<'a> {
    pub(crate) uuid: Uuid,
    pub(crate) state: State<'a>,
    pub(crate) fragments: Fragments,
}

/// A changed row, before and after.
#[derive(Debug)]
pub(crate) enum State<'a> {
    /// The row is new; as it is.
    Inserted(&'a Row),
    /// The row is gone; as it was.
    Deleted(&'a Row),
    /// The row was there and still is.
    Modified(Modified<'a>),
}

/// A row that was there and still is.
#[derive(Debug)]
pub(crate) struct Modified<'a> {
    pub(crate) row: &'a Row,
    /// The columns that changed, ascending.
    pub(crate) columns: Cow<'a, [ColumnDelta]>,
    old: OnceCell<Row>,
}

impl<'a> View<'a> {
    /// Resolves changes against the rows as they are behind them, which `row` finds: it is asked
    /// once for each that is still there, always in the same order.
    pub(crate) fn new(
        changes: &'a Changes,
        schema: &Schema,
        mut row: impl FnMut(TableId, Uuid) -> Option<&'a Row>,
        is_watched: impl Fn(TableId) -> bool,
    ) -> Self {
        let mut tables = Vec::new();
        let mut add = |table: TableId, rows: Vec<RowView<'a>>| {
            if !rows.is_empty() {
                tables.push(TableView { table, rows, whole: Fragments::default() });
            }
        };
        match changes {
            Changes::One(delta, _) => {
                for table in delta.tables.iter().filter(|table| is_watched(table.table)) {
                    let rows = table.rows.iter();
                    let view = |(uuid, change)| {
                        RowView::new((table.table, schema), uuid, change, &mut row)
                    };
                    let rows = rows.map(|(uuid, row)| (*uuid, row.into()));
                    add(table.table, rows.filter_map(view).collect());
                }
            }
            Changes::Merged(set) => {
                for (table, rows) in set.tables().filter(|(table, _)| is_watched(*table)) {
                    let view =
                        |(uuid, change)| RowView::new((table, schema), uuid, change, &mut row);
                    add(table, rows.filter_map(view).collect());
                }
            }
        }
        Self { tables }
    }

    /// Number of changed rows.
    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(|table| table.rows.len()).sum()
    }
}

impl<'a> RowView<'a> {
    fn new(
        (table, schema): (TableId, &Schema),
        uuid: Uuid,
        change: RowChangeRef<'a>,
        row: &mut impl FnMut(TableId, Uuid) -> Option<&'a Row>,
    ) -> Option<Self> {
        let state = match change {
            RowChangeRef::Insert => State::Inserted(row(table, uuid)?),
            RowChangeRef::Delete(old) => State::Deleted(old),
            RowChangeRef::Modify(columns) => State::Modified(Modified {
                row: row(table, uuid)?,
                columns: changed(columns),
                old: OnceCell::new(),
            }),
            RowChangeRef::Replace(old) => {
                let row = row(table, uuid)?;
                let columns = ColumnDelta::between(old, row, schema.table(table));
                let old = OnceCell::from(old.clone());
                State::Modified(Modified { row, columns: Cow::Owned(columns), old })
            }
        };
        Some(Self { uuid, state, fragments: Fragments::default() })
    }
}

/// The columns that differ in the end. A commit may take back what an operation did (a weak
/// reference to no row): the row counts as changed by that, the column does not.
fn changed(columns: &[ColumnDelta]) -> Cow<'_, [ColumnDelta]> {
    let is_changed = |delta: &&ColumnDelta| !delta.change.is_empty();
    if columns.iter().all(|delta| is_changed(&delta)) {
        return Cow::Borrowed(columns);
    }
    Cow::Owned(columns.iter().filter(is_changed).cloned().collect())
}

impl Modified<'_> {
    /// The row as it was before the changes.
    pub(crate) fn old(&self) -> &Row {
        self.old.get_or_init(|| before(self.row, &self.columns))
    }
}
