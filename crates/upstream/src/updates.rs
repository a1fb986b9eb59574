//! `<table-updates>` (RFC 7047 §4.1.6) read as images of rows.

use weir_data::{ColumnId, Datum, Error, RowImage, Schema, TableId, TableSchema, Uuid};
use weir_json::{Kind, Text};

/// Goes through the rows that a `<table-updates>` names, or a `<table-updates2>`, which has the same
/// outline: `version` is the number behind the names in errors.
///
/// # Errors
/// A table that the schema does not know, or another form; or one of `each`.
pub(crate) fn for_each<'a>(
    text: Text<'a>,
    schema: &Schema,
    version: &str,
    each: &mut dyn FnMut(TableId, Uuid, Text<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let not_object = |name: &str| shape(&format!("<table-update{name} is not object"));
    let tables = object(text).ok_or_else(|| not_object(&format!("s{version}>")))?;
    for (name, rows) in tables {
        let table = std::str::from_utf8(&name).ok().and_then(|name| schema.table_id(name));
        let Some(table) = table else {
            let name = String::from_utf8_lossy(&name);
            return Err(Error::new("unknown table", format!("unknown table {name}")));
        };
        let rows = object(rows).ok_or_else(|| not_object(&format!("{version}> for table")))?;
        for (uuid, row) in rows {
            let Some(uuid) = Uuid::parse_bytes(&uuid) else {
                let details = format!("<table-update{version}> names must be UUIDs");
                return Err(Error::syntax_tagged(text, "bad row UUID", details));
            };
            each(table, uuid, row)?;
        }
    }
    Ok(())
}

/// What a `<table-updates>` says about each row it names, in the order of tables and UUIDs, however the
/// source has put them; what comes last of two about one row counts.
///
/// # Errors
/// A table, a column or a value that the schema does not know, or another form.
pub fn parse(text: Text<'_>, schema: &Schema) -> Result<Vec<RowImage>, Error> {
    let mut images = Vec::new();
    for_each(text, schema, "", &mut |table, uuid, row| {
        let values = values_after(row, schema.table(table))?;
        images.push(RowImage { table, uuid, values });
        Ok(())
    })?;
    images.reverse();
    keep_first(&mut images);
    Ok(images)
}

/// Puts images in the order of tables and UUIDs; what comes first of two about one row counts.
pub(crate) fn keep_first(images: &mut Vec<RowImage>) {
    images.sort_by_key(|image| (image.table, image.uuid));
    images.dedup_by_key(|image| (image.table, image.uuid));
}

/// The values of a row as a `<row-update>` leaves it; `None` if the row goes.
pub(crate) fn values_after(
    update: Text<'_>,
    table: &TableSchema,
) -> Result<Option<Vec<(ColumnId, Datum)>>, Error> {
    let members = object(update).ok_or_else(|| shape("<row-update> is not object"))?;
    let is_new = |(name, value): &(_, Text<'_>)| {
        AsRef::<[u8]>::as_ref(name) == b"new" && value.kind() != Kind::Null
    };
    let new = members.filter(is_new).last();
    new.map(|(_, new)| values(new, table)).transpose()
}

/// The values of a `<row>`, `_uuid` and `_version` aside: those are the row's own on each side.
fn values(text: Text<'_>, table: &TableSchema) -> Result<Vec<(ColumnId, Datum)>, Error> {
    let row = object(text).ok_or_else(|| Error::syntax(text, "row must be JSON object"))?;
    let mut values = Vec::new();
    for (name, value) in row {
        let column = std::str::from_utf8(&name).ok().and_then(|name| table.column_id(name));
        let Some(column) = column else {
            let name = String::from_utf8_lossy(&name);
            let details = format!("No column {name} in table {}.", table.name);
            return Err(Error::syntax_tagged(text, "unknown column", details));
        };
        if column > ColumnId::VERSION {
            values.push((column, Datum::parse_committed(value, &table.column(column).ty)?));
        }
    }
    Ok(values)
}

/// The members of an object; `None` if it is something else.
pub(crate) fn object(text: Text<'_>) -> Option<weir_json::Members<'_>> {
    text.members().filter(|_| text.kind() == Kind::Object)
}

/// The error of something that is no object, or not one like that.
pub(crate) fn shape(details: &str) -> Error {
    Error::new("Not a JSON object", details)
}
