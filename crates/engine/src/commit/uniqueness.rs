//! Unique indexes: no two rows have the same values, as the transaction leaves them.
//!
//! Looked at are rows that were inserted or changed in an index column: against each other, and
//! against committed rows whose values are still the same. So rows may swap values.

use std::cmp::Ordering;

use hashbrown::HashTable;
use weir_data::{ColumnId, DatumRef, Error, Row, TableId, TableSchema, Uuid, english};

use crate::index::{Index, changes_any, old_values};
use crate::planner::Few;
use crate::transaction::{Touch, Transaction};

/// What became of a row that the transaction made, in the words of the error.
pub(crate) const INSERTED: &str = "was inserted by this transaction.";

/// Rows that enter one index, by the hash of their values.
type Entering = HashTable<(u64, Uuid)>;

/// Checks all tables in the order of first touch.
pub(super) fn check(txn: &Transaction<'_>) -> Result<(), Error> {
    for table in txn.tables() {
        let indexes = txn.db().indexes.of(table);
        if !indexes.is_empty() {
            check_table(txn, table, indexes)?;
        }
    }
    Ok(())
}

fn check_table(txn: &Transaction<'_>, table: TableId, indexes: &[Index]) -> Result<(), Error> {
    // One row alone has nobody to enter with.
    let is_alone = txn.touched(table).nth(1).is_none();
    let mut entering: Few<Entering> = indexes.iter().map(|_| HashTable::new()).collect();
    for uuid in txn.touched(table) {
        let Some(row) = txn.store().get(table, uuid) else { continue };
        for (index, entering) in indexes.iter().zip(&mut entering) {
            if !has_new_values(txn.touch(table, uuid), &index.columns) {
                continue;
            }
            let hash = txn.db().indexes.hash_row(&index.columns, row);
            if let Some(other) = find_equal(txn, table, index, entering, (hash, row)) {
                return Err(violation(txn, table, &index.columns, other, row));
            }
            if !is_alone {
                entering.insert_unique(hash, (hash, uuid), |entry| entry.0);
            }
        }
    }
    Ok(())
}

fn has_new_values(touch: Option<&Touch>, columns: &[ColumnId]) -> bool {
    match touch {
        Some(Touch::Inserted) => true,
        Some(Touch::Changed(changes)) => changes_any(columns, changes),
        _ => false,
    }
}

/// Another row with the values of `row`.
fn find_equal<'a>(
    txn: &'a Transaction<'_>,
    table: TableId,
    index: &Index,
    entering: &Entering,
    (hash, row): (u64, &Row),
) -> Option<&'a Row> {
    let get = |uuid: Uuid| txn.store().get(table, uuid);
    let entered = entering.find(hash, |entry| {
        entry.0 == hash && get(entry.1).is_some_and(|other| index.are_equal(row, other))
    });
    let other = match entered {
        Some(entry) => entry.1,
        None => index.find_equal(hash, txn.store(), table, row)?,
    };
    get(other)
}

fn violation(
    txn: &Transaction<'_>,
    table: TableId,
    columns: &[ColumnId],
    a: &Row,
    b: &Row,
) -> Error {
    let schema = txn.schema().table(table);
    let fate = |row: &Row| match txn.touch(table, row.uuid()) {
        Some(Touch::Inserted) => INSERTED.to_owned(),
        Some(Touch::Changed(changes)) if changes_any(columns, changes) => {
            let old = old_values(columns, row, changes);
            let old = old.iter().map(|datum| datum.as_ref());
            let values = spell_values(schema, columns, old);
            format!("had the following index values before the transaction: {values}.")
        }
        Some(Touch::Changed(_)) => "existed in the database before this transaction, which \
                                    modified some of the row's columns but not any columns in \
                                    this index."
            .to_owned(),
        _ => "existed in the database before this transaction and was not modified by the \
              transaction."
            .to_owned(),
    };
    duplicate(schema, columns, (a, &fate(a)), (b, &fate(b)))
}

/// The error for two rows with equal values, each with what became of it.
pub(crate) fn duplicate(
    schema: &TableSchema,
    columns: &[ColumnId],
    a: (&Row, &str),
    b: (&Row, &str),
) -> Error {
    // Which row is called the first does not depend on the order of the transaction's operations.
    let (first, second) = match compare(schema, a.0, b.0) {
        Ordering::Less => (b, a),
        _ => (a, b),
    };
    let values = spell_values(schema, columns, columns.iter().map(|id| first.0.get(*id)));
    let names = columns.iter().map(|id| format!("\"{}\"", schema.column(*id).name));
    let plural = if columns.len() == 1 { "" } else { "s" };
    let (names, table) = (join(names.collect()), &schema.name);
    let (first_uuid, second_uuid) = (first.0.uuid(), second.0.uuid());
    let (first, second) = (first.1, second.1);
    Error::constraint(format!(
        "Transaction causes multiple rows in \"{table}\" table to have identical values ({values}) \
         for index on column{plural} {names}.  First row, with UUID {first_uuid}, {first}  Second \
         row, with UUID {second_uuid}, {second}"
    ))
}

/// By all columns that clients fill, then by UUID.
fn compare(schema: &TableSchema, a: &Row, b: &Row) -> Ordering {
    let by_column =
        |order: Ordering, (id, _): (ColumnId, _)| order.then_with(|| a.get(id).cmp(&b.get(id)));
    let order = schema.data_columns().fold(Ordering::Equal, by_column);
    order.then_with(|| a.uuid().cmp(&b.uuid()))
}

fn spell_values<'a>(
    schema: &TableSchema,
    columns: &[ColumnId],
    values: impl Iterator<Item = DatumRef<'a>>,
) -> String {
    let spelt = columns.iter().zip(values);
    join(spelt.map(|(id, datum)| english::datum(datum, &schema.column(*id).ty)).collect())
}

/// `a`, `a and b`, `a, b, and c`.
fn join(mut parts: Vec<String>) -> String {
    match parts.len() {
        0 | 1 => parts.pop().unwrap_or_default(),
        2 => parts.join(" and "),
        n => {
            parts[n - 1].insert_str(0, "and ");
            parts.join(", ")
        }
    }
}
