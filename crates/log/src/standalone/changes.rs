//! What a record changes, both ways: noted while it is applied, when the rows before are still there.

use weir_data::delta::{Change, ColumnDelta, TableDelta};
use weir_data::{ColumnId, Delta, Row, RowDelta, TableId, Uuid};

/// The changes of one record so far; no row is named twice.
#[derive(Debug, Default)]
pub(super) struct Changes {
    rows: Vec<(TableId, Uuid, RowDelta)>,
}

impl Changes {
    pub(super) fn insert(&mut self, table: TableId, row: &Row) {
        self.rows.push((table, row.uuid(), RowDelta::Insert(row.clone())));
    }

    pub(super) fn delete(&mut self, table: TableId, row: Row) {
        self.rows.push((table, row.uuid(), RowDelta::Delete(row)));
    }

    /// Notes the change of a column. The changes of one row have to come one after the other.
    pub(super) fn modify(&mut self, table: TableId, uuid: Uuid, column: ColumnId, change: Change) {
        let delta = ColumnDelta { column, change };
        match self.rows.last_mut() {
            Some((last_table, last, RowDelta::Modify(columns)))
                if (*last_table, *last) == (table, uuid) =>
            {
                columns.push(delta);
            }
            _ => self.rows.push((table, uuid, RowDelta::Modify(vec![delta]))),
        }
    }

    pub(super) fn into_delta(self) -> Delta {
        let mut rows = self.rows;
        rows.sort_by_key(|(table, ..)| *table);
        let mut delta = Delta::default();
        for (table, uuid, mut row) in rows {
            if let RowDelta::Modify(columns) = &mut row {
                columns.sort_unstable_by_key(|delta| delta.column);
            }
            match delta.tables.last_mut() {
                Some(last) if last.table == table => last.rows.push((uuid, row)),
                _ => delta.tables.push(TableDelta { table, rows: vec![(uuid, row)] }),
            }
        }
        delta
    }
}
