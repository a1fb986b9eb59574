//! What rows that come one after the other, from another server, change in those that there are.
//!
//! Rows that are equal leave a mark that they were there, so what is kept follows the change, and
//! not the rows. At the end, rows that have no mark are gone.

use std::sync::Arc;

use weir_data::delta::{Change, TableDelta};
use weir_data::store::Slot;
use weir_data::{
    ColumnDelta, ColumnId, ColumnSchema, Delta, Error, Row, RowDelta, Schema, Snapshot, Store,
    TableId, Uuid, UuidSource,
};

use crate::commit;
use crate::database::Database;
use crate::transaction::Transaction;

/// Rows that are compared with those of a snapshot.
#[derive(Debug)]
pub struct Difference {
    before: Store,
    /// Columns that no file keeps stay as they are in rows that stay.
    spares_ephemeral: bool,
    tables: Vec<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// A bit a slot: the row in it has come.
    seen: Vec<u64>,
    rows: Vec<(Uuid, RowDelta)>,
}

impl Table {
    /// Marks a slot; false if it is marked already.
    fn mark(&mut self, slot: usize) -> bool {
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let before = self.seen[word];
        self.seen[word] |= bit;
        before & bit == 0
    }

    fn is_marked(&self, slot: usize) -> bool {
        self.seen.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

impl Difference {
    /// No rows have come; `seed` as for [`Database::new`]. Visits all rows of the snapshot.
    pub fn new(before: &Snapshot, seed: u64) -> Self {
        let tables: Vec<TableId> = before.schema().table_ids().map(|(table, _)| table).collect();
        let before = before.to_store(&tables, seed);
        let tables = tables.iter().map(|_| Table::default()).collect();
        Self { before, spares_ephemeral: false, tables }
    }

    /// The rows come without the columns that no file keeps: those say nothing.
    #[must_use]
    pub fn spare_ephemeral(self) -> Self {
        Self { spares_ephemeral: true, ..self }
    }

    /// A row has come, under an equal schema.
    ///
    /// # Errors
    /// The row has come before, which is not always noticed at once.
    pub fn row(&mut self, table: TableId, row: Row) -> Result<(), Error> {
        let (uuid, noted) = (row.uuid(), &mut self.tables[table.index()]);
        let schema = self.before.schema().table(table);
        let rows = self.before.table(table);
        let Some((slot, before)) = rows.slot(uuid).and_then(|slot| Some((slot, rows.at(slot)?)))
        else {
            noted.rows.push((uuid, RowDelta::Insert(row)));
            return Ok(());
        };
        if !noted.mark(slot.0 as usize) {
            return Err(twice(self.before.schema(), table, uuid));
        }
        let spares_ephemeral = self.spares_ephemeral;
        let change = |(column, schema): (ColumnId, &ColumnSchema)| {
            if spares_ephemeral && !schema.persistent {
                return None;
            }
            let change = Change::between(before.datum(column), row.datum(column), &schema.ty)?;
            Some(ColumnDelta { column, change })
        };
        let columns: Vec<ColumnDelta> = schema.data_columns().filter_map(change).collect();
        if !columns.is_empty() {
            noted.rows.push((uuid, RowDelta::Modify(columns)));
        }
        Ok(())
    }

    /// All rows have come: what [`take_over`] makes of the rows before. A `_version` is not in it.
    ///
    /// # Errors
    /// A row has come twice.
    pub fn end(self) -> Result<Delta, Error> {
        let Self { before, tables, .. } = self;
        let mut delta = Delta::default();
        for ((table, _), mut noted) in before.schema().table_ids().zip(tables) {
            let inserted = |(uuid, row): &(Uuid, RowDelta)| {
                matches!(row, RowDelta::Insert(_)).then_some(*uuid)
            };
            let mut new: Vec<Uuid> = noted.rows.iter().filter_map(inserted).collect();
            new.sort_unstable();
            if let Some(two) = new.windows(2).find(|two| two[0] == two[1]) {
                return Err(twice(before.schema(), table, two[0]));
            }
            let rows = before.table(table);
            for slot in 0..rows.slot_end().0 {
                if let Some(row) = rows.at(Slot(slot))
                    && !noted.is_marked(slot as usize)
                {
                    noted.rows.push((row.uuid(), RowDelta::Delete(row.clone())));
                }
            }
            if !noted.rows.is_empty() {
                delta.tables.push(TableDelta { table, rows: noted.rows });
            }
        }
        Ok(delta)
    }
}

fn twice(schema: &Arc<Schema>, table: TableId, uuid: Uuid) -> Error {
    let name = &schema.table(table).name;
    Error::ovsdb(format!("row {uuid} of table {name} is there twice"))
}

/// Makes the rows what others were found to be that were compared with them, and nothing else: one transaction,
/// with every check of a commit. Answers with what has changed.
///
/// # Errors
/// As a commit's; nothing has changed then.
pub fn take_over(
    db: &mut Database,
    difference: Delta,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    commit::commit_as_told(made(db, difference), uuids)
}

/// Makes a change as a transaction of this database, with all that a commit checks and repairs.
///
/// # Errors
/// As a commit's; nothing has changed then.
pub(crate) fn commit_with_repairs(
    db: &mut Database,
    change: Delta,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    commit::commit(made(db, change), uuids)
}

/// A transaction that has made a change.
fn made(db: &mut Database, change: Delta) -> Transaction<'_> {
    let mut txn = Transaction::new(db);
    for TableDelta { table, rows } in change.tables {
        for (uuid, row) in rows {
            match row {
                RowDelta::Insert(row) => txn.insert(table, row),
                RowDelta::Delete(_) => txn.delete(table, uuid),
                RowDelta::Modify(columns) => {
                    for ColumnDelta { column, change } in columns {
                        txn.change(table, uuid, column, change);
                    }
                }
            }
        }
    }
    txn
}
