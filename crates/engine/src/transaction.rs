//! A transaction under way: rows changed in place, and a journal of how to change them back.
//!
//! ```text
//! insert, delete, change ──► Store (rows, at once)      read by the operations that follow
//!                       └──► Journal (merged a row)     read by the phases of commit
//! abort: the journal backwards          commit: the journal becomes the Delta
//! ```
//!
//! **Invariant:** undoing the journal from its end leaves the rows as they were.

use std::sync::Arc;

use weir_data::delta::{Change, ColumnDelta, TableDelta};
use weir_data::{
    Atom, AtomRef, ColumnId, Datum, Delta, Row, RowDelta, Schema, Store, TableId, Uuid, UuidSource,
};

use crate::database::Database;
use crate::keys::Note;
use crate::meter::{self, Meter};
use crate::ordered::Ordered;

/// What a transaction has done to one row so far.
#[derive(Debug)]
pub(crate) enum Touch {
    /// The transaction made the row.
    Inserted,
    /// The transaction changed these columns, in ascending order.
    Changed(Vec<ColumnDelta>),
    /// The transaction deleted the row; as it was before the transaction.
    Deleted(Row),
    /// Nothing that is left: the transaction made and deleted the row, or changed it back.
    Nothing,
}

/// What was done to one row, once.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// The row is new.
    Insert(Row),
    /// This column was changed.
    Change(ColumnId, Change),
    /// The row is gone; as it was.
    Delete(Row),
}

impl Edit {
    /// What doing it costs.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::Insert(row) | Self::Delete(row) => row_cost(row),
            Self::Change(_, change) => cost(change),
        }
    }
}

/// What was done to which row, once.
pub(crate) type Logged = (TableId, Uuid, Edit);

/// What a transaction has done to each row, in the order of first touch.
#[derive(Debug)]
struct Journal {
    tables: Vec<(TableId, Ordered<Uuid, Touch>)>,
    seed: u64,
}

impl Journal {
    fn table(&self, table: TableId) -> Option<&Ordered<Uuid, Touch>> {
        self.tables.iter().find(|entry| entry.0 == table).map(|entry| &entry.1)
    }

    fn table_mut(&mut self, table: TableId) -> &mut Ordered<Uuid, Touch> {
        let at = self.tables.iter().position(|entry| entry.0 == table).unwrap_or_else(|| {
            self.tables.push((table, Ordered::new(self.seed)));
            self.tables.len() - 1
        });
        &mut self.tables[at].1
    }

    fn touch(&self, table: TableId, uuid: Uuid) -> Option<&Touch> {
        self.table(table)?.get(uuid)
    }
}

/// A transaction on `db`. Dropped without [`abort`](Self::abort) or commit it would leave its
/// changes behind, so everything that begins one ends it by either.
#[derive(Debug)]
pub(crate) struct Transaction<'db> {
    db: &'db mut Database,
    journal: Journal,
    /// Everything that was done, in order, if somebody wants to know.
    log: Option<Vec<Logged>>,
    /// What the transaction has cost so far.
    pub(crate) meter: Meter,
}

impl<'db> Transaction<'db> {
    /// Begins a transaction that may cost as much as it takes.
    pub(crate) fn new(db: &'db mut Database) -> Self {
        Self::with_meter(db, Meter::new(u64::MAX, None))
    }

    /// Begins a transaction that ends when its meter says so.
    pub(crate) fn with_meter(db: &'db mut Database, meter: Meter) -> Self {
        let seed = db.seed;
        Self { db, journal: Journal { tables: Vec::new(), seed }, log: None, meter }
    }

    /// The database: rows with the changes made so far, derived structures without them.
    pub(crate) fn db(&self) -> &Database {
        self.db
    }

    /// The rows, with the changes made so far.
    pub(crate) fn store(&self) -> &Store {
        &self.db.store
    }

    /// The schema that the rows conform to.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.db.store.schema()
    }

    /// Adds a row. Its UUID is not in the table, and it has its `_version` already: an insertion's
    /// is the one that the transaction itself sees.
    pub(crate) fn insert(&mut self, table: TableId, row: Row) {
        self.meter.spend(row_cost(&row));
        let touch = self.journal.table_mut(table);
        *touch.get_or_insert_with(row.uuid(), || Touch::Nothing) = Touch::Inserted;
        if let Some(log) = &mut self.log {
            log.push((table, row.uuid(), Edit::Insert(row.clone())));
        }
        self.db.store.insert(table, row);
    }

    /// Removes a row, if it is there.
    pub(crate) fn delete(&mut self, table: TableId, uuid: Uuid) {
        let Some((_, mut row)) = self.db.store.remove(table, uuid) else { return };
        self.meter.spend(row_cost(&row));
        if let Some(log) = &mut self.log {
            log.push((table, uuid, Edit::Delete(row.clone())));
        }
        let rows = self.journal.table_mut(table);
        let touch = rows.get_or_insert_with(uuid, || Touch::Changed(Vec::new()));
        *touch = match std::mem::replace(touch, Touch::Nothing) {
            Touch::Inserted => Touch::Nothing,
            Touch::Changed(columns) => {
                for ColumnDelta { column, change } in columns {
                    change.inverse().apply(row.get_mut(column));
                }
                Touch::Deleted(row)
            }
            // Changed back earlier: the row is as it was.
            Touch::Nothing => Touch::Deleted(row),
            Touch::Deleted(old) => Touch::Deleted(old),
        };
    }

    /// Changes one column of a row that is there; nothing if the change is empty.
    pub(crate) fn change(&mut self, table: TableId, uuid: Uuid, column: ColumnId, change: Change) {
        if change.is_empty() {
            return;
        }
        self.meter.spend(cost(&change));
        self.db.store.change(table, uuid, column, &change);
        if let Some(log) = &mut self.log {
            log.push((table, uuid, Edit::Change(column, change.clone())));
        }
        let rows = self.journal.table_mut(table);
        let touch = rows.get_or_insert_with(uuid, || Touch::Changed(Vec::new()));
        match touch {
            Touch::Changed(columns) => ColumnDelta::merge_into(columns, column, change),
            Touch::Nothing => *touch = Touch::Changed(vec![ColumnDelta { column, change }]),
            Touch::Inserted | Touch::Deleted(_) => {}
        }
    }

    /// Whether the row was there before the transaction and was deleted by it. Its UUID cannot be
    /// inserted again by the same transaction.
    pub(crate) fn deleted_existing(&self, table: TableId, uuid: Uuid) -> bool {
        matches!(self.journal.touch(table, uuid), Some(Touch::Deleted(_)))
    }

    /// Whether the transaction made the row, which is still there.
    pub(crate) fn inserted(&self, table: TableId, uuid: Uuid) -> bool {
        matches!(self.journal.touch(table, uuid), Some(Touch::Inserted))
    }

    /// Rows of the table that the transaction inserted or changed and that are still there, in the
    /// order of first touch: a lookup by index looks at these besides.
    pub(crate) fn touched(&self, table: TableId) -> impl Iterator<Item = Uuid> {
        let rows = self.journal.table(table).into_iter().flat_map(Ordered::iter);
        rows.filter(|(_, touch)| matches!(touch, Touch::Inserted | Touch::Changed(_)))
            .map(|(uuid, _)| *uuid)
    }

    /// How many rows of the table the transaction has touched at all.
    pub(crate) fn n_touched(&self, table: TableId) -> usize {
        self.journal.table(table).map_or(0, |rows| rows.iter().len())
    }

    /// Hands on what searches have to say about keys.
    pub(crate) fn note_keys(&mut self, notes: Vec<Note>) {
        let Database { keys, store, position, .. } = &mut *self.db;
        notes.into_iter().for_each(|note| keys.note(note, store, *position));
    }

    /// What was done to one row.
    pub(crate) fn touch(&self, table: TableId, uuid: Uuid) -> Option<&Touch> {
        self.journal.touch(table, uuid)
    }

    /// What was done, row by row: tables and rows in the order of first touch.
    pub(crate) fn touches(&self) -> impl Iterator<Item = (TableId, Uuid, &Touch)> {
        self.journal
            .tables
            .iter()
            .flat_map(|(table, rows)| rows.iter().map(|(uuid, touch)| (*table, *uuid, touch)))
    }

    /// Tables in the order of first touch.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> {
        self.journal.tables.iter().map(|entry| entry.0)
    }

    /// Whether the text of what comes to rows takes more than `most` bytes, as little as it may be. What the
    /// transaction has been asked for has `text` bytes: so many come to a row at most.
    pub(crate) fn has_more_than(&self, most: usize, text: usize) -> bool {
        let rows: usize = self.journal.tables.iter().map(|(_, rows)| rows.iter().len()).sum();
        if rows.saturating_mul(text) <= most {
            return false;
        }
        let texts = |entries: &mut dyn Iterator<Item = (AtomRef<'_>, Option<AtomRef<'_>>)>| {
            let atoms = entries.flat_map(|(key, value)| [Some(key), value]).flatten();
            atoms.map(text_bytes).sum::<usize>()
        };
        let mut left = most;
        self.touches().any(|(table, uuid, touch)| {
            let come = match touch {
                Touch::Inserted => self.store().get(table, uuid).map_or(0, |row| {
                    let columns = self.schema().table(table).data_columns();
                    columns.map(|(column, _)| texts(&mut row.get(column).entries())).sum()
                }),
                Touch::Changed(columns) => {
                    columns.iter().map(|delta| texts(&mut delta.change.added())).sum()
                }
                Touch::Deleted(_) | Touch::Nothing => 0,
            };
            match left.checked_sub(come) {
                Some(rest) => left = rest,
                None => return true,
            }
            false
        })
    }

    /// Forgets columns that were changed back, and rows of which nothing else changed.
    pub(crate) fn drop_unchanged(&mut self) {
        let rows = self.journal.tables.iter_mut().flat_map(|entry| entry.1.iter_mut());
        for (_, touch) in rows {
            if let Touch::Changed(columns) = touch {
                columns.retain(|delta| !delta.change.is_empty());
                if columns.is_empty() {
                    *touch = Touch::Nothing;
                }
            }
        }
    }

    /// Gives every row that changed a new `_version`; an inserted row has had its own all along.
    pub(crate) fn renew_versions(&mut self, uuids: &mut UuidSource) {
        for (table, rows) in &mut self.journal.tables {
            for (uuid, touch) in rows.iter_mut() {
                let Touch::Changed(columns) = touch else { continue };
                let Some(row) = self.db.store.get(*table, uuid) else { continue };
                let old = row.datum(ColumnId::VERSION).clone();
                let new = Datum::One(Atom::Uuid(uuids.next_uuid()));
                let change = Change::Replace { old, new };
                self.meter.spend(cost(&change));
                self.db.store.change(*table, uuid, ColumnId::VERSION, &change);
                ColumnDelta::merge_into(columns, ColumnId::VERSION, change);
            }
        }
    }

    /// From now on everything that is done is kept.
    pub(crate) fn begin_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// How much has been kept.
    pub(crate) fn log_len(&self) -> usize {
        self.log.as_ref().map_or(0, Vec::len)
    }

    /// What was done since [`Transaction::begin_log`]; nothing more is kept.
    pub(crate) fn end_log(&mut self) -> Vec<Logged> {
        self.log.take().unwrap_or_default()
    }

    /// Puts all rows back as they were; answers with what the transaction has cost.
    pub(crate) fn abort(self) -> u64 {
        let store = &mut self.db.store;
        for (table, rows) in self.journal.tables.into_iter().rev() {
            for (uuid, touch) in rows.into_entries().into_iter().rev() {
                match touch {
                    Touch::Inserted => drop(store.remove(table, uuid)),
                    Touch::Deleted(row) => drop(store.insert(table, row)),
                    Touch::Changed(columns) => {
                        for ColumnDelta { column, change } in columns {
                            store.change(table, uuid, column, &change.inverse());
                        }
                    }
                    Touch::Nothing => {}
                }
            }
        }
        self.meter.spent()
    }

    /// Ends the transaction with its rows in place: the database, whose derived structures do not
    /// follow yet, and what was done.
    pub(crate) fn finish(self) -> (&'db mut Database, Delta) {
        let store = &self.db.store;
        let row_delta = |table: TableId, uuid: Uuid, touch| match touch {
            Touch::Inserted => store.get(table, uuid).cloned().map(RowDelta::Insert),
            Touch::Changed(columns) => Some(RowDelta::Modify(columns)),
            Touch::Deleted(row) => Some(RowDelta::Delete(row)),
            Touch::Nothing => None,
        };
        let mut tables = Vec::with_capacity(self.journal.tables.len());
        for (table, rows) in self.journal.tables {
            let rows: Vec<(Uuid, RowDelta)> = rows
                .into_entries()
                .into_iter()
                .filter_map(|(uuid, touch)| Some((uuid, row_delta(table, uuid, touch)?)))
                .collect();
            if !rows.is_empty() {
                tables.push(TableDelta { table, rows });
            }
        }
        tables.sort_by_key(|delta| delta.table);
        (self.db, Delta { tables })
    }
}

/// Bytes of the text of an atom, at the least.
fn text_bytes(atom: AtomRef<'_>) -> usize {
    match atom {
        AtomRef::String(text) => text.as_str().len() + 3,
        AtomRef::Uuid(_) => 48,
        AtomRef::Integer(_) | AtomRef::Real(_) | AtomRef::Boolean(_) => 2,
    }
}

/// What a row that comes or goes costs, and what the commit makes of it.
fn row_cost(row: &Row) -> u64 {
    meter::ROW_MOVED + row.atoms() as u64
}

/// What a change costs, and what the commit makes of it.
pub(crate) fn cost(change: &Change) -> u64 {
    let elements = match change {
        Change::Replace { .. } => 1,
        Change::Set { added, removed } => added.len() + removed.len(),
        Change::Map { added, removed } => added.len() + removed.len(),
    };
    meter::CHANGE + meter::ELEMENT * elements as u64
}
