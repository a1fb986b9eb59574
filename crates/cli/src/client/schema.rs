//! The schema of the database that a command works on.

use std::fs::File;
use std::io::Read;

use weir_data::{ColumnSchema, Schema, TableSchema};
use weir_json::{Text, Value, array};

use super::session::Session;
use crate::program::{Failure, strerror};

/// Asks a server for a schema.
pub(super) fn fetch(session: &mut Session, database: &str) -> Result<Schema, Failure> {
    let mut params = vec![];
    array([database]).write(&mut params);
    let parse = |schema: Text<'_>| Schema::parse(schema).map_err(|error| error.to_string());
    let schema = session.call_text("get_schema", &params, parse)?;
    schema.map_err(Failure::new)
}

/// Reads a schema from a file.
pub(super) fn read_file(name: &str) -> Result<(Schema, Value), Failure> {
    let unreadable = |reason: String| {
        Failure::new(format!(
            "failed to read schema: \"{name}\" could not be read as JSON ({reason})"
        ))
    };
    let mut file = File::open(name)
        .map_err(|error| unreadable(format!("error opening \"{name}\": {}", strerror(&error))))?;
    let mut bytes = vec![];
    file.read_to_end(&mut bytes)
        .map_err(|error| unreadable(format!("error reading JSON stream: {}", strerror(&error))))?;
    let value = Value::parse(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let schema = Schema::parse_bytes(&bytes).map_err(|error| {
        // The error's own text begins with what is wrong and where; the file goes between.
        let (place, reason) = error.rsplit_once("syntax error: ").unwrap_or(("", &error));
        Failure::new(format!(
            "{place}syntax error: failed to parse \"{name}\" as ovsdb schema: {reason}"
        ))
    })?;
    Ok((schema, value))
}

/// The tables by name.
pub(super) fn sorted_tables(schema: &Schema) -> Vec<&TableSchema> {
    let mut tables: Vec<_> = schema.table_ids().map(|(_, table)| table).collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    tables
}

/// All columns of a table by name, `_uuid` and `_version` included.
pub(super) fn sorted_columns(table: &TableSchema) -> Vec<&ColumnSchema> {
    let mut columns: Vec<_> = table.column_ids().map(|(_, column)| column).collect();
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    columns
}
