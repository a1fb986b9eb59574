//! Rows made like those of another database, in one transaction.
//!
//! What was committed there is committed here: every check of a commit runs, since this database
//! may have tables of its own, but nothing that only stops clients, such as immutable columns.

use weir_data::delta::Change;
use weir_data::{Delta, Error, Row, RowImage, TableId, UuidSource};

use crate::commit;
use crate::database::Database;
use crate::transaction::Transaction;

/// Makes rows like `images`. A row that is not here is made, with default values for columns that
/// its image lacks; one that is gone already stays gone.
///
/// # Errors
/// As a commit's; nothing has changed then.
pub fn apply_images(
    db: &mut Database,
    images: Vec<RowImage>,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    let mut txn = Transaction::new(db);
    for image in images {
        put(&mut txn, image, uuids);
    }
    commit::commit(txn, uuids)
}

/// Makes `images` the only rows of the tables for which `replaces` says so. What is equal already
/// does not change.
///
/// # Errors
/// As [`apply_images`].
pub fn replace_rows(
    db: &mut Database,
    images: Vec<RowImage>,
    replaces: impl Fn(TableId) -> bool,
    uuids: &mut UuidSource,
) -> Result<Delta, Error> {
    let mut kept: Vec<_> = images.iter().map(|image| (image.table, image.uuid)).collect();
    kept.sort_unstable();
    let mut txn = Transaction::new(db);
    for (table, _) in txn.schema().clone().table_ids().filter(|(table, _)| replaces(*table)) {
        let rows = txn.store().table(table).iter().map(Row::uuid);
        let gone = rows.filter(|uuid| kept.binary_search(&(table, *uuid)).is_err());
        for uuid in gone.collect::<Vec<_>>() {
            txn.delete(table, uuid);
        }
    }
    for image in images {
        put(&mut txn, image, uuids);
    }
    commit::commit(txn, uuids)
}

fn put(txn: &mut Transaction<'_>, image: RowImage, uuids: &mut UuidSource) {
    let RowImage { table, uuid, values } = image;
    let Some(values) = values else { return txn.delete(table, uuid) };
    let schema = txn.schema().clone();
    let schema = schema.table(table);
    if txn.store().get(table, uuid).is_none() {
        let mut row = Row::new(uuid, uuids.next_uuid(), schema);
        for (column, value) in values {
            *row.get_mut(column) = value;
        }
        return txn.insert(table, row);
    }
    for (column, value) in values {
        let ty = &schema.column(column).ty;
        let row = txn.store().get(table, uuid);
        let change = row.and_then(|row| Change::between(row.datum(column), &value, ty));
        if let Some(change) = change {
            txn.change(table, uuid, column, change);
        }
    }
}
