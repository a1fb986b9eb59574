//! Unique indexes: from the values of a row's index columns to the row.
//!
//! An entry is a row's UUID under the hash of its values; the values themselves are compared in the
//! rows. While a transaction is under way the entries are those of the committed state and the rows
//! are newer, so a lookup finds exactly the rows whose values are committed and still the same, and
//! two rows can swap values.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use weir_data::delta::ColumnDelta;
use weir_data::store::{SPARE_MIN, SPARE_SHARE};
use weir_data::{ColumnId, Datum, DatumRef, Delta, Row, RowDelta, Schema, Store, TableId, Uuid};

use crate::digest::{self, Sum};

/// An indexed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    hash: u64,
    uuid: Uuid,
}

/// A unique index of a table.
#[derive(Debug)]
pub(crate) struct Index {
    /// The columns of the index, in the order of the schema's text.
    pub(crate) columns: Vec<ColumnId>,
    entries: HashTable<Entry>,
}

/// All unique indexes of a database.
#[derive(Debug)]
pub(crate) struct Indexes {
    tables: Vec<Vec<Index>>,
    hasher: FixedState,
}

impl Indexes {
    /// Empty indexes.
    pub(crate) fn new(schema: &Schema, seed: u64) -> Self {
        let index =
            |columns: &Vec<ColumnId>| Index { columns: columns.clone(), entries: HashTable::new() };
        let tables = schema.tables.iter().map(|table| table.indexes.iter().map(index).collect());
        Self { tables: tables.collect(), hasher: FixedState::with_seed(seed) }
    }

    /// The indexes of one table, in the order of the schema's text.
    pub(crate) fn of(&self, table: TableId) -> &[Index] {
        &self.tables[table.index()]
    }

    /// The hash of a row's values in these columns.
    pub(crate) fn hash_row(&self, columns: &[ColumnId], row: &Row) -> u64 {
        self.hash(columns.iter().map(|column| row.get(*column)))
    }

    fn hash<'a>(&self, values: impl Iterator<Item = DatumRef<'a>>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        values.for_each(|value| digest::datum(value, &mut hasher));
        hasher.finish()
    }

    /// The indexed row that has these values, now as when it was committed.
    pub(crate) fn lookup(
        &self,
        store: &Store,
        table: TableId,
        index: usize,
        values: &[DatumRef<'_>],
    ) -> Option<Uuid> {
        let index = self.tables.get(table.index())?.get(index)?;
        let has_values = |row: &Row| {
            values.len() == index.columns.len()
                && index.columns.iter().zip(values).all(|(id, value)| row.get(*id) == *value)
        };
        index.find(self.hash(values.iter().copied()), store, table, has_values)
    }

    /// Follows a change of rows, which are in place already.
    pub(crate) fn apply(&mut self, store: &Store, delta: &Delta) {
        for (table, uuid, delta) in delta.rows() {
            for at in 0..self.tables[table.index()].len() {
                let columns = &self.tables[table.index()][at].columns;
                let (old, new) = match delta {
                    RowDelta::Insert(row) => (None, Some(self.hash_row(columns, row))),
                    RowDelta::Delete(row) => (Some(self.hash_row(columns, row)), None),
                    RowDelta::Modify(changes) if !changes_any(columns, changes) => continue,
                    RowDelta::Modify(changes) => {
                        let Some(row) = store.get(table, uuid) else { continue };
                        let old = old_values(columns, row, changes);
                        let old = self.hash(old.iter().map(|datum| datum.as_ref()));
                        (Some(old), Some(self.hash_row(columns, row)))
                    }
                };
                let index = &mut self.tables[table.index()][at];
                if let Some(hash) = old {
                    index.remove(Entry { hash, uuid });
                }
                if let Some(hash) = new {
                    index.insert(hash, uuid);
                }
            }
        }
    }

    /// Gives up the room of rows that are gone.
    pub(crate) fn shrink(&mut self) {
        for Index { entries, .. } in self.tables.iter_mut().flatten() {
            if entries.capacity() > (SPARE_SHARE * entries.len()).max(SPARE_MIN) {
                entries.shrink_to(2 * entries.len(), |entry| entry.hash);
            }
        }
    }

    /// Enters a row into one index; returns the row with equal values that is there already.
    pub(crate) fn add_row(
        &mut self,
        store: &Store,
        table: TableId,
        at: usize,
        row: &Row,
    ) -> Option<Uuid> {
        let index = &self.tables[table.index()][at];
        let hash = self.hash_row(&index.columns, row);
        let found = index.find_equal(hash, store, table, row);
        if found.is_none() {
            self.tables[table.index()][at].insert(hash, row.uuid());
        }
        found
    }

    /// Adds every entry to a hash.
    pub(crate) fn digest(&self, sum: &mut Sum) {
        for (table, indexes) in self.tables.iter().enumerate() {
            for (number, index) in indexes.iter().enumerate() {
                for entry in &index.entries {
                    sum.add(|hasher| {
                        hasher.write_usize(table);
                        hasher.write_usize(number);
                        hasher.write_u64(entry.hash);
                        hasher.write_u128(entry.uuid.to_u128());
                    });
                }
            }
        }
    }
}

/// Whether a change touches any of the columns.
pub(crate) fn changes_any(columns: &[ColumnId], changes: &[ColumnDelta]) -> bool {
    changes.iter().any(|delta| columns.contains(&delta.column) && !delta.change.is_empty())
}

/// The values of columns before these changes, from the row after them.
pub(crate) fn old_values(columns: &[ColumnId], row: &Row, changes: &[ColumnDelta]) -> Vec<Datum> {
    let old = |column: &ColumnId| match changes.iter().find(|delta| delta.column == *column) {
        Some(delta) => delta.change.old_value(row.get(*column)),
        None => row.get(*column).to_datum(),
    };
    columns.iter().map(old).collect()
}

impl Index {
    /// Number of rows that are filed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Another row that is indexed under `hash` and whose values are equal to `row`'s.
    pub(crate) fn find_equal(
        &self,
        hash: u64,
        store: &Store,
        table: TableId,
        row: &Row,
    ) -> Option<Uuid> {
        let uuid = row.uuid();
        self.find(hash, store, table, |other| other.uuid() != uuid && self.are_equal(row, other))
    }

    /// Whether two rows have the same values.
    pub(crate) fn are_equal(&self, a: &Row, b: &Row) -> bool {
        self.columns.iter().all(|column| a.get(*column) == b.get(*column))
    }

    fn find(
        &self,
        hash: u64,
        store: &Store,
        table: TableId,
        is_it: impl Fn(&Row) -> bool,
    ) -> Option<Uuid> {
        let is_it =
            |entry: &Entry| entry.hash == hash && store.get(table, entry.uuid).is_some_and(&is_it);
        self.entries.find(hash, is_it).map(|entry| entry.uuid)
    }

    fn insert(&mut self, hash: u64, uuid: Uuid) {
        self.entries.insert_unique(hash, Entry { hash, uuid }, |entry| entry.hash);
    }

    fn remove(&mut self, entry: Entry) {
        let found = self.entries.find_entry(entry.hash, |other| *other == entry);
        debug_assert!(found.is_ok(), "row {} is not in its index", entry.uuid);
        if let Ok(found) = found {
            found.remove();
        }
    }
}
