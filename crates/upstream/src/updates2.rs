//! `<table-updates2>` (ovsdb-server(7) §4.1.14) read as edits of rows.

use weir_data::{
    ColumnEdit, ColumnId, ColumnType, Datum, Edit, Error, Row, RowEdit, Schema, TableId,
    TableSchema, Uuid, UuidSource,
};
use weir_json::{Kind, Text};

use crate::updates::shape;

/// Goes through what a `<table-updates2>` does to rows of a schema. New rows are whole, with a
/// `_version` from `versions`.
///
/// # Errors
/// A table, a column or a value that the schema does not know, or another form; or one of `each`.
pub fn for_edits(
    text: Text<'_>,
    schema: &Schema,
    versions: &mut UuidSource,
    each: &mut dyn FnMut(RowEdit) -> Result<(), Error>,
) -> Result<(), Error> {
    let tables = object(text).ok_or_else(|| shape("<table-updates2> is not object"))?;
    for (name, rows) in tables {
        let table = std::str::from_utf8(&name).ok().and_then(|name| schema.table_id(name));
        let Some(table) = table else {
            let name = String::from_utf8_lossy(&name);
            return Err(Error::new("unknown table", format!("unknown table {name}")));
        };
        let rows = object(rows).ok_or_else(|| shape("<table-update2> for table is not object"))?;
        for (uuid, row) in rows {
            let Some(uuid) = Uuid::parse_bytes(&uuid) else {
                let details = "<table-update2> names must be UUIDs";
                return Err(Error::syntax_tagged(text, "bad row UUID", details));
            };
            let edit = edit(row, schema.table(table), uuid, versions)?;
            each(RowEdit { table, uuid, edit })?;
        }
    }
    Ok(())
}

/// The edits of a `<table-updates2>`.
///
/// # Errors
/// As [`for_edits`].
pub fn parse(
    text: Text<'_>,
    schema: &Schema,
    versions: &mut UuidSource,
) -> Result<Vec<RowEdit>, Error> {
    let mut edits = Vec::new();
    let mut push = |edit| {
        edits.push(edit);
        Ok(())
    };
    for_edits(text, schema, versions, &mut push)?;
    Ok(edits)
}

/// Goes through the rows of a `<table-updates2>` that has nothing but those.
///
/// # Errors
/// As [`for_edits`]; a row that changes or goes.
pub fn for_rows(
    text: Text<'_>,
    schema: &Schema,
    versions: &mut UuidSource,
    each: &mut dyn FnMut(TableId, Row) -> Result<(), Error>,
) -> Result<(), Error> {
    for_edits(text, schema, versions, &mut |RowEdit { table, edit, .. }| match edit {
        Edit::Insert(row) => each(table, row),
        Edit::Delete | Edit::Modify(_) => Err(shape("the first rows change rows")),
    })
}

fn edit(
    text: Text<'_>,
    table: &TableSchema,
    uuid: Uuid,
    versions: &mut UuidSource,
) -> Result<Edit, Error> {
    let mut members = object(text).ok_or_else(|| shape("<row-update2> is not object"))?;
    let (Some((operation, row)), None) = (members.next(), members.next()) else {
        return Err(shape("<row-update2> must have exactly one operation"));
    };
    match &*operation {
        b"initial" | b"insert" => {
            let values = columns(row, table, false)?;
            let values = values.into_iter().map(|edit| (edit.column, edit.value));
            Ok(Edit::Insert(Row::with_values(uuid, versions.next_uuid(), table, values)))
        }
        b"modify" => Ok(Edit::Modify(columns(row, table, true)?)),
        b"delete" => Ok(Edit::Delete),
        _ => {
            let name = String::from_utf8_lossy(&operation);
            Err(Error::new("unknown operation", format!("unknown row operation {name}")))
        }
    }
}

/// The values of a `<row>`, or differences to them, but for `_uuid` and `_version`: those are the
/// row's own on each side.
fn columns(
    text: Text<'_>,
    table: &TableSchema,
    is_difference: bool,
) -> Result<Vec<ColumnEdit>, Error> {
    let row = object(text).ok_or_else(|| Error::syntax(text, "row must be JSON object"))?;
    let mut edits = Vec::new();
    for (name, value) in row {
        let column = std::str::from_utf8(&name).ok().and_then(|name| table.column_id(name));
        let Some(column) = column else {
            let name = String::from_utf8_lossy(&name);
            let details = format!("No column {name} in table {}.", table.name);
            return Err(Error::syntax_tagged(text, "unknown column", details));
        };
        if column <= ColumnId::VERSION {
            continue;
        }
        let ty = &table.column(column).ty;
        let value = match is_difference && ty.is_composite() {
            // A difference may have more elements than a value.
            true => {
                let any = ColumnType { n_min: 0, n_max: ColumnType::UNLIMITED, ..ty.clone() };
                Datum::parse(value, &any, None)?
            }
            false => Datum::parse(value, ty, None)?,
        };
        edits.push(ColumnEdit { column, value, is_difference });
    }
    Ok(edits)
}

/// The members of an object; `None` if it is something else.
pub(crate) fn object(text: Text<'_>) -> Option<weir_json::Members<'_>> {
    text.members().filter(|_| text.kind() == Kind::Object)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"name":"D","tables":{"T":{"columns":{"i":{"type":"integer"},
        "s":{"type":{"key":"string","min":0,"max":2}}}}}}"#;
    const ROW: &str = "6e4d5c9e-32ba-4e6f-9b49-b7e1a0a6a1a1";

    fn edits(text: &str) -> Result<Vec<RowEdit>, String> {
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
        let text = weir_json::validate(text.as_bytes()).unwrap();
        parse(text, &schema, &mut UuidSource::new([1; 4])).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_come_change_and_go() {
        let row = |operation: &str| edits(&format!(r#"{{"T":{{"{ROW}":{operation}}}}}"#));
        let new = row(r#"{"insert":{"i":4}}"#).unwrap();
        let Edit::Insert(inserted) = &new[0].edit else { panic!("{new:?}") };
        assert_eq!(inserted.uuid().to_string(), ROW);
        let three = r#"{"modify":{"s":["set",["a","b","c"]],"i":5}}"#;
        let Edit::Modify(columns) = &row(three).unwrap()[0].edit else { panic!("a modification") };
        assert_eq!(columns.len(), 2);
        assert!(matches!(row(r#"{"delete":null}"#).unwrap()[0].edit, Edit::Delete));
    }

    #[test]
    fn what_the_schema_does_not_know_is_refused() {
        for (text, expected) in [
            (r#"[]"#, "<table-updates2> is not object"),
            (r#"{"U":{}}"#, "unknown table U"),
            (r#"{"T":{"x":{}}}"#, "names must be UUIDs"),
            (&format!(r#"{{"T":{{"{ROW}":{{}}}}}}"#), "exactly one operation"),
            (&format!(r#"{{"T":{{"{ROW}":{{"insert":{{"z":1}}}}}}}}"#), "No column z in table T"),
            (&format!(r#"{{"T":{{"{ROW}":{{"insert":{{"i":"x"}}}}}}}}"#), "expected integer"),
        ] {
            let error = edits(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
