//! Strong references: what the transaction changed about them, and whether all lead to rows.

use weir_data::{ColumnId, Error, Schema, TableId, Uuid};

use crate::links::{Links, Reference};
use crate::ordered::Ordered;
use crate::transaction::{Touch, Transaction};

/// By how much the transaction changes the number of strong references to rows.
#[derive(Debug)]
pub(crate) struct StrongCounts(Ordered<(TableId, Uuid), i64>);

impl StrongCounts {
    /// No change.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Ordered::new(seed))
    }

    /// Counts references to the row that came (1) or went (-1).
    pub(crate) fn add(&mut self, table: TableId, uuid: Uuid, change: i64) {
        *self.0.get_or_insert_with((table, uuid), || 0) += change;
    }

    /// How many strong references will hold the row.
    pub(crate) fn total(&self, links: &Links, table: TableId, uuid: Uuid) -> i64 {
        let change = self.0.get((table, uuid)).copied().unwrap_or(0);
        i64::from(links.strong(table, uuid)) + change
    }

    /// Rows whose count was looked at, in the order in which that began.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (TableId, Uuid)> {
        self.0.iter().map(|entry| entry.0)
    }

    /// Makes the changes.
    pub(crate) fn apply(&self, links: &mut Links) {
        for ((table, uuid), change) in self.0.iter().filter(|entry| entry.1 != 0) {
            links.adjust_strong(*table, *uuid, *change);
        }
    }
}

/// Counts the strong references that came and went.
///
/// # Errors
/// `referential integrity violation` if one leads to a row that neither exists nor was deleted by
/// this very transaction.
pub(super) fn count_strong(txn: &Transaction<'_>) -> Result<StrongCounts, Error> {
    let mut counts = StrongCounts::new(txn.db().seed);
    let links = &txn.db().links;
    for (table, uuid, touch) in txn.touches().filter(|entry| links.refers(entry.0)) {
        let mut lose = |references: &mut dyn Iterator<Item = Reference<'_>>| {
            for reference in references.filter(|reference| reference.holds(uuid)) {
                counts.add(reference.table, reference.to, -1);
            }
        };
        match touch {
            Touch::Inserted => {
                if let Some(row) = txn.store().get(table, uuid) {
                    let mut references = links.of_row(table, row);
                    gain(txn, &mut counts, (table, uuid), &mut references)?;
                }
            }
            Touch::Deleted(row) => lose(&mut links.of_row(table, row)),
            Touch::Changed(columns) => {
                lose(&mut links.of_changes(table, columns, false));
                let mut references = links.of_changes(table, columns, true);
                gain(txn, &mut counts, (table, uuid), &mut references)?;
            }
            Touch::Nothing => {}
        }
    }
    Ok(counts)
}

/// Counts references that came, each to a row that exists or that the transaction deleted.
fn gain(
    txn: &Transaction<'_>,
    counts: &mut StrongCounts,
    (table, uuid): (TableId, Uuid),
    references: &mut dyn Iterator<Item = Reference<'_>>,
) -> Result<(), Error> {
    for reference in references.filter(|reference| reference.holds(uuid)) {
        let exists = txn.store().table(reference.table).slot(reference.to).is_some();
        if !exists && !txn.deleted_existing(reference.table, reference.to) {
            let target = (reference.table, reference.to);
            return Err(nonexistent(txn.schema(), (table, uuid, reference.column), target));
        }
        counts.add(reference.table, reference.to, 1);
    }
    Ok(())
}

/// The error for a strong reference to a row that does not exist.
pub(crate) fn nonexistent(
    schema: &Schema,
    (table, row, column): (TableId, Uuid, ColumnId),
    (target, to): (TableId, Uuid),
) -> Error {
    let target = &schema.table(target).name;
    let table = schema.table(table);
    let (column, table) = (&table.column(column).name, &table.name);
    Error::new(
        "referential integrity violation",
        format!(
            "Table {table} column {column} row {row} references nonexistent row {to} in table \
             {target}."
        ),
    )
}

/// Checks that nothing holds the rows that the transaction deleted.
pub(super) fn check_deleted(txn: &Transaction<'_>, counts: &StrongCounts) -> Result<(), Error> {
    for (table, uuid, touch) in txn.touches() {
        if !matches!(touch, Touch::Deleted(_)) {
            continue;
        }
        let n = counts.total(&txn.db().links, table, uuid);
        if n > 0 {
            let table = &txn.schema().table(table).name;
            let details =
                format!("cannot delete {table} row {uuid} because of {n} remaining reference(s)");
            return Err(Error::new("referential integrity violation", details));
        }
    }
    Ok(())
}
