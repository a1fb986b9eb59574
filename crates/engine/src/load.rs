//! A database from rows that came without counts, back-links and indexes: those of a file.
//!
//! The checks and repairs are a commit's, in its order, over all rows at once.

use weir_data::{Delta, Error, TableId, Uuid};

use crate::commit::{self, StrongCounts};
use crate::database::Database;
use crate::transaction::Transaction;

/// Builds what is derived from the rows; the delta says what had to go.
pub(crate) fn derive(mut db: Database) -> Result<(Database, Delta), Error> {
    count_strong(&mut db)?;
    let mut counts = StrongCounts::new(db.seed);
    let unreferenced = unreferenced(&db);
    let mut txn = Transaction::new(&mut db);
    commit::sweep_garbage(&mut txn, &mut counts, unreferenced);
    let schema = txn.schema().clone();
    for (table, _) in schema.table_ids() {
        commit::check_max_rows(txn.store(), table)?;
    }
    while commit::remove_dangling_of_all_rows(&mut txn, &mut counts)? {
        commit::collect_garbage(&mut txn, &mut counts);
    }
    let (_, repairs) = txn.finish();
    counts.apply(&mut db.links);
    db.links.link_weak(&db.store);
    index_rows(&mut db)?;
    Ok((db, repairs))
}

/// As [`derive()`], of rows that another server has told: what a commit would repair stays, since differences to
/// these rows will come from there.
pub(crate) fn derive_as_told(mut db: Database) -> Result<Database, Error> {
    count_strong(&mut db)?;
    for (table, _) in db.schema().clone().table_ids() {
        commit::check_max_rows(&db.store, table)?;
    }
    db.links.link_weak(&db.store);
    index_rows(&mut db)?;
    Ok(db)
}

fn count_strong(db: &mut Database) -> Result<(), Error> {
    let Database { store, links, .. } = db;
    let mut held = Vec::new();
    for (table, _) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            let uuid = row.uuid();
            let references = links.of_row(table, row).filter(|reference| reference.holds(uuid));
            held.extend(references.map(|r| (r.column, r.table, r.to)));
            for (column, target, to) in held.drain(..) {
                if store.table(target).slot(to).is_none() {
                    let schema = store.schema();
                    return Err(commit::nonexistent(schema, (table, uuid, column), (target, to)));
                }
                links.adjust_strong(target, to, 1);
            }
        }
    }
    Ok(())
}

/// Rows of non-root tables that nothing refers to.
fn unreferenced(db: &Database) -> Vec<(TableId, Uuid)> {
    let tables = db.schema().table_ids().filter(|(_, table)| !table.is_root);
    let rows =
        tables.flat_map(|(id, _)| db.store.table(id).iter().map(move |row| (id, row.uuid())));
    rows.filter(|(table, uuid)| db.links.strong(*table, *uuid) == 0).collect()
}

fn index_rows(db: &mut Database) -> Result<(), Error> {
    let schema = db.schema().clone();
    for (table, table_schema) in schema.table_ids() {
        for (at, columns) in table_schema.indexes.iter().enumerate() {
            for row in db.store.table(table).iter() {
                let Some(other) = db.indexes.add_row(&db.store, table, at, row) else { continue };
                let Some(other) = db.store.get(table, other) else { continue };
                let inserted = commit::INSERTED;
                return Err(commit::duplicate(
                    table_schema,
                    columns,
                    (other, inserted),
                    (row, inserted),
                ));
            }
        }
    }
    Ok(())
}
