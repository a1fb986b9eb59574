//! Columns that no file keeps, of a source of ours: told beside the states, so values may come before
//! their rows do.

use std::collections::BTreeMap;

use weir_data::{RowEdit, RowImage, Store, TableId, Uuid};

use crate::work::{Values, modification};

/// Values whose rows have not come. They are as many as rows are on their way at most: who tells values of a
/// row also tells that it is gone.
#[derive(Debug, Default)]
pub(crate) struct Unplaced {
    by_row: BTreeMap<(TableId, Uuid), Values>,
}

impl Unplaced {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// Keeps what the source says of rows that are not here; if that was of all rows, nothing else.
    pub(crate) fn keep(&mut self, is_all: bool, absent: Vec<RowImage>) {
        if is_all {
            self.by_row.clear();
        }
        for RowImage { table, uuid, values } in absent {
            match values {
                Some(values) => _ = self.by_row.insert((table, uuid), values),
                None => _ = self.by_row.remove(&(table, uuid)),
            }
        }
    }

    /// Takes the values that waited for these rows, which have come.
    pub(crate) fn take(&mut self, rows: &[(TableId, Uuid)]) -> Vec<RowEdit> {
        let take = |row: &(TableId, Uuid)| {
            self.by_row.remove(row).map(|values| modification(row.0, row.1, values))
        };
        rows.iter().filter_map(take).collect()
    }

    /// Any rows have come: the values of those that are here now.
    pub(crate) fn take_all(&mut self, store: &Store) -> Vec<RowEdit> {
        let here = |(table, uuid): &(TableId, Uuid)| store.get(*table, *uuid).is_some();
        let rows = self.by_row.extract_if(.., |row, _| here(row));
        rows.map(|((table, uuid), values)| modification(table, uuid, values)).collect()
    }
}
