//! Garbage collection: rows of tables without `isRoot` go when no strong reference holds them.
//!
//! By counting, as the reference does it: a cycle of rows that only hold each other stays.

use weir_data::{TableId, Uuid};

use super::references::StrongCounts;
use crate::transaction::{Touch, Transaction};

/// Deletes the rows that the transaction left unreferenced, and those that they alone referred to.
pub(crate) fn collect(txn: &mut Transaction<'_>, counts: &mut StrongCounts) {
    let inserted = txn.touches().filter(|(_, _, touch)| matches!(touch, Touch::Inserted));
    let inserted = inserted.map(|(table, uuid, _)| (table, uuid));
    let candidates: Vec<_> = inserted
        .chain(counts.rows())
        .filter(|(table, uuid)| is_garbage(txn, counts, *table, *uuid))
        .collect();
    sweep(txn, counts, candidates);
}

/// Deletes `garbage` and what becomes garbage by that; iterative, each row and reference once. Stops
/// early, with garbage left, when the transaction has cost more than it may.
pub(crate) fn sweep(
    txn: &mut Transaction<'_>,
    counts: &mut StrongCounts,
    mut garbage: Vec<(TableId, Uuid)>,
) {
    let mut next = 0;
    while let Some(&(table, uuid)) = garbage.get(next) {
        next += 1;
        if txn.meter.is_over() {
            return;
        }
        let Some(row) = txn.store().get(table, uuid).cloned() else { continue };
        txn.delete(table, uuid);
        let held: Vec<(TableId, Uuid)> = txn
            .db()
            .links
            .of_row(table, &row)
            .filter(|reference| reference.holds(uuid))
            .map(|reference| (reference.table, reference.to))
            .collect();
        for (table, uuid) in held {
            counts.add(table, uuid, -1);
            if is_garbage(txn, counts, table, uuid) {
                garbage.push((table, uuid));
            }
        }
    }
}

fn is_garbage(txn: &Transaction<'_>, counts: &StrongCounts, table: TableId, uuid: Uuid) -> bool {
    !txn.schema().table(table).is_root
        && counts.total(&txn.db().links, table, uuid) == 0
        && txn.store().table(table).slot(uuid).is_some()
}
