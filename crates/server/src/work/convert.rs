//! Rows of a snapshot under another schema, and why there may be none.

use std::sync::Arc;

use weir_data::{Error, Schema, Snapshot, TableId, TableSchema, UuidSource};
use weir_engine::Converted;
use weir_engine::convert::is_unaffected;

/// Why a database was not converted.
#[derive(Debug)]
pub enum ConversionError {
    /// The rows do not conform to the new schema.
    Refused(Error),
    /// The new file could not be written: strerror(3) text.
    Failed(String),
}

impl ConversionError {
    /// What the client is told.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Failed(error) => Error::io(Some("conversion failed".into()), error),
        }
    }
}

/// Converts rows to another schema; runs in a helper.
///
/// # Errors
/// Why the rows do not conform to it.
pub fn convert_rows(
    snapshot: &Snapshot,
    schema: Arc<Schema>,
    seed: [u64; 4],
) -> Result<Box<Converted>, ConversionError> {
    let mut uuids = UuidSource::new(seed);
    let seed = uuids.next_u64();
    let converted = weir_engine::convert(snapshot, schema, &mut uuids, seed);
    converted.map(Box::new).map_err(ConversionError::Refused)
}

/// By number under the `old` schema, the new number of each table whose rows the conversion left
/// alone.
pub(crate) fn unaffected_tables(old: &Schema, converted: &Converted) -> Vec<Option<TableId>> {
    let new = converted.database.schema();
    let target = |table: &TableSchema| {
        let id = new.table_id(&table.name).filter(|id| !converted.repaired.contains(id))?;
        is_unaffected(table, new.table(id)).then_some(id)
    };
    old.tables.iter().map(target).collect()
}

/// Whether a schema has a table or column that the one before it lacks. The usual client libraries look for what they can
/// use of a schema when their monitor ends, and at no other time while they are connected.
pub(crate) fn adds_to(old: &Schema, new: &Schema) -> bool {
    let is_new = |table: &TableSchema| match old.table_id(&table.name) {
        Some(id) => table.columns.iter().any(|own| old.table(id).column_id(&own.name).is_none()),
        None => true,
    };
    new.tables.iter().any(is_new)
}

/// The unaffected tables whose columns are kept in files as before: their changes stay in
/// the change log.
pub fn untouched_tables(old: &Schema, converted: &Converted) -> Vec<Option<TableId>> {
    let new = converted.database.schema();
    let is_kept_alike = |(table, target): (&TableSchema, Option<TableId>)| {
        let columns = &new.table(target?).columns;
        let mut pairs = table.columns.iter().zip(columns);
        target.filter(|_| pairs.all(|(a, b)| a.persistent == b.persistent))
    };
    let tables = old.tables.iter().zip(unaffected_tables(old, converted));
    tables.map(is_kept_alike).collect()
}
