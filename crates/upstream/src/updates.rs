//! `<table-updates>` (RFC 7047 §4.1.6) read as images of rows.

use weir_data::{ColumnId, Datum, Error, RowImage, Schema, TableSchema, Uuid};
use weir_json::{Kind, Text};

/// What a `<table-updates>` says about each row it names.
///
/// # Errors
/// A table, a column or a value that the schema does not know, or another form.
pub fn parse(text: Text<'_>, schema: &Schema) -> Result<Vec<RowImage>, Error> {
    let tables = object(text).ok_or_else(|| shape("<table-updates> is not object"))?;
    let mut images = Vec::new();
    for (name, rows) in tables.iter() {
        let table = std::str::from_utf8(name).ok().and_then(|name| schema.table_id(name));
        let Some(table) = table else {
            let name = String::from_utf8_lossy(name);
            return Err(Error::new("unknown table", format!("unknown table {name}")));
        };
        let rows = object(rows).ok_or_else(|| shape("<table-update> for table is not object"))?;
        for (uuid, row) in rows.iter() {
            let Some(uuid) = Uuid::parse_bytes(uuid) else {
                let details = "<table-update> names must be UUIDs";
                return Err(Error::syntax_tagged(text, "bad row UUID", details));
            };
            let row = object(row).ok_or_else(|| shape("<row-update> is not object"))?;
            let new = row.get("new").filter(|new| new.kind() != Kind::Null);
            let values = new.map(|new| values(new, schema.table(table))).transpose()?;
            images.push(RowImage { table, uuid, values });
        }
    }
    Ok(images)
}

/// The values of a `<row>`, `_uuid` and `_version` aside: those are the row's own on each side.
fn values(text: Text<'_>, table: &TableSchema) -> Result<Vec<(ColumnId, Datum)>, Error> {
    let row = object(text).ok_or_else(|| Error::syntax(text, "row must be JSON object"))?;
    let mut values = Vec::with_capacity(row.len());
    for (name, value) in row.iter() {
        let column = std::str::from_utf8(name).ok().and_then(|name| table.column_id(name));
        let Some(column) = column else {
            let name = String::from_utf8_lossy(name);
            let details = format!("No column {name} in table {}.", table.name);
            return Err(Error::syntax_tagged(text, "unknown column", details));
        };
        if column > ColumnId::VERSION {
            values.push((column, Datum::parse(value, &table.column(column).ty, None)?));
        }
    }
    Ok(values)
}

fn object(text: Text<'_>) -> Option<weir_json::Object<'_>> {
    text.object().filter(|_| text.kind() == Kind::Object)
}

/// The error of something that is no object, or not one like that.
pub(crate) fn shape(details: &str) -> Error {
    Error::new("Not a JSON object", details)
}
