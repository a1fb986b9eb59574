//! `<table-updates2>` (ovsdb-server(7) §4.1.14) read as edits of rows.

use weir_data::{
    ColumnEdit, ColumnId, ColumnType, Datum, Edit, Error, Row, RowEdit, Schema, TableSchema, Uuid,
    UuidSource,
};
use weir_json::Text;

use crate::updates::{for_each, object, shape};

/// The version of `<table-updates2>` in errors.
pub(crate) const VERSION: &str = "2";

/// What a `<table-updates2>` does to rows of a schema. New rows are whole, with a `_version` from
/// `versions`.
///
/// # Errors
/// A table, a column or a value that the schema does not know, or another form.
pub fn parse(
    text: Text<'_>,
    schema: &Schema,
    versions: &mut UuidSource,
) -> Result<Vec<RowEdit>, Error> {
    let mut edits = Vec::new();
    for_each(text, schema, VERSION, &mut |table, uuid, row| {
        let edit = edit(row, schema.table(table), uuid, versions)?;
        edits.push(RowEdit { table, uuid, edit });
        Ok(())
    })?;
    Ok(edits)
}

/// A row that comes.
///
/// # Errors
/// As [`parse`]; a row that changes or goes.
pub(crate) fn new_row(
    text: Text<'_>,
    table: &TableSchema,
    uuid: Uuid,
    versions: &mut UuidSource,
) -> Result<Row, Error> {
    match edit(text, table, uuid, versions)? {
        Edit::Insert(row) => Ok(row),
        Edit::Delete | Edit::Modify(_) => Err(shape("the first rows change rows")),
    }
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
                Datum::parse_committed(value, &any)?
            }
            false => Datum::parse_committed(value, ty)?,
        };
        edits.push(ColumnEdit { column, value, is_difference });
    }
    Ok(edits)
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

    /// A conversion gives it to rows that lack the column.
    #[test]
    fn a_default_that_its_constraint_forbids_is_read() {
        let schema = r#"{"name":"D","tables":{"T":{"columns":{
            "s":{"type":{"key":{"type":"string","enum":["set",["x","y"]]},"max":3}}}}}}"#;
        let schema = Schema::parse_bytes(schema.as_bytes()).unwrap();
        let read = |row: &str| {
            let text = format!(r#"{{"T":{{"{ROW}":{row}}}}}"#);
            let text = weir_json::validate(text.as_bytes()).unwrap();
            parse(text, &schema, &mut UuidSource::new([1; 4])).map_err(|error| error.to_string())
        };
        read(r#"{"modify":{"s":["set",["","x"]]}}"#).unwrap();
        read(r#"{"insert":{"s":["set",["","x"]]}}"#).unwrap();
        let error = read(r#"{"modify":{"s":["set",["","z"]]}}"#).unwrap_err();
        assert!(error.contains("is not one of the allowed values"), "{error}");
    }
}
