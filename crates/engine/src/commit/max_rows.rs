//! `maxRows`: tables that the transaction touched stay within their limits.

use weir_data::{Error, Store, TableId};

use crate::transaction::Transaction;

/// Checks the tables in the order of first touch.
pub(super) fn check(txn: &Transaction<'_>) -> Result<(), Error> {
    txn.tables().try_for_each(|table| check_table(txn.store(), table))
}

/// Checks one table.
pub(crate) fn check_table(store: &Store, table: TableId) -> Result<(), Error> {
    let schema = store.schema().table(table);
    let (n, max) = (store.table(table).len(), schema.max_rows);
    if n as u64 <= u64::from(max) {
        return Ok(());
    }
    let name = &schema.name;
    Err(Error::constraint(format!(
        "transaction causes \"{name}\" table to contain {n} rows, greater than the schema-defined \
         limit of {max} row(s)"
    )))
}
