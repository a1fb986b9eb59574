//! Conversion: the rows of a database under another schema (ovsdb-server(7) "convert").
//!
//! 1. Tables and columns that both schemas have are carried over by name; the others are lost, or
//!    begin with default values. Rows keep their UUIDs.
//! 2. A column whose type is another is written as JSON and read as its new type, constraints
//!    included.
//! 3. Everything that a commit checks is checked over all rows at once: a conversion is like one
//!    transaction that inserts them.
//!
//! A row's `_version` stays if its table's schema does: those rows have not changed.

use std::sync::Arc;

use weir_data::{
    ColumnId, ColumnSchema, Datum, Error, Row, Schema, Snapshot, Store, TableSchema, UuidSource,
};

use crate::database::Database;

/// How the columns of one table become another's.
struct TableConversion<'s> {
    from: &'s TableSchema,
    to: &'s TableSchema,
    /// Numbers before and after of the columns that both have.
    columns: Vec<(ColumnId, ColumnId)>,
    /// Whether rows stay as they are.
    is_same: bool,
}

/// The database that `schema` makes of the rows in `source`; `seed` as for [`Database::new`].
///
/// # Errors
/// What is wrong with a value under its new type, or what a commit would find wrong with the rows.
pub fn convert(
    source: &Snapshot,
    schema: Arc<Schema>,
    uuids: &mut UuidSource,
    seed: u64,
) -> Result<Database, Error> {
    let mut store = Store::new(Arc::clone(&schema), seed);
    for (from, from_schema) in source.schema().table_ids() {
        let Some(to) = schema.table_id(&from_schema.name) else { continue };
        let conversion = TableConversion::new(from_schema, schema.table(to));
        for row in source.rows(from) {
            store.insert(to, conversion.row(row, uuids)?);
        }
    }
    Database::from_store(store, seed)
}

/// Checks that a database may be given this schema at all.
///
/// # Errors
/// `invalid parameters` if the schema is another database's.
pub fn check_name(schema: &Schema, database: &str) -> Result<(), Error> {
    if schema.name == database {
        return Ok(());
    }
    let name = &schema.name;
    let details = format!("new schema name ({name}) does not match database name ({database})");
    Err(Error::new("invalid parameters", details))
}

impl<'s> TableConversion<'s> {
    fn new(from: &'s TableSchema, to: &'s TableSchema) -> Self {
        let both =
            |(id, column): (ColumnId, &ColumnSchema)| Some((id, to.column_id(&column.name)?));
        let columns = from.data_columns().filter_map(both).collect();
        Self { from, to, columns, is_same: has_same_columns(from, to) }
    }

    fn row(&self, row: &Row, uuids: &mut UuidSource) -> Result<Row, Error> {
        if self.is_same {
            return Ok(row.clone());
        }
        let value = |(from, to): &(ColumnId, ColumnId)| Ok((*to, self.value(row, *from, *to)?));
        let values: Vec<_> = self.columns.iter().map(value).collect::<Result<_, Error>>()?;
        Ok(Row::with_values(row.uuid(), uuids.next_uuid(), self.to, values))
    }

    fn value(&self, row: &Row, from: ColumnId, to: ColumnId) -> Result<Datum, Error> {
        let (old, new) = (&self.from.column(from).ty, &self.to.column(to).ty);
        if old == new {
            return Ok(row.datum(from).clone());
        }
        // A text of its own is an array or an object.
        let mut text = vec![b'['];
        row.get(from).write(old, &mut text);
        text.push(b']');
        let text = weir_json::validate(&text).ok();
        let value = text.and_then(|text| text.elements()?.next());
        let value = value.ok_or_else(|| Error::plain_syntax("value has no JSON form"))?;
        Datum::parse(value, new, None)
    }
}

/// Whether rows of one table are rows of the other as they are.
fn has_same_columns(from: &TableSchema, to: &TableSchema) -> bool {
    from.columns.len() == to.columns.len()
        && from.columns.iter().zip(&to.columns).all(|(a, b)| a.name == b.name && a.ty == b.ty)
}
