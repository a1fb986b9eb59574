//! What a transaction's record does to rows, named by their `name` columns.

use std::collections::HashMap;

use weir_data::{ColumnType, Schema};
use weir_json::{Kind, Object, Text};

use super::value;

/// Shows changes, and knows the names of the rows so far.
pub(in crate::tool) struct Changes {
    /// How much is shown: 0 nothing, 1 rows, 2 columns.
    more: u8,
    schema: Option<Schema>,
    /// JSON texts of names by UUID, empty for a row without one.
    names: HashMap<Vec<u8>, Vec<u8>>,
}

impl Changes {
    pub(in crate::tool) fn new(more: u8) -> Self {
        Self { more, schema: None, names: HashMap::new() }
    }

    /// Values are shown by their types from here on.
    pub(in crate::tool) fn set_schema(&mut self, schema: Schema) {
        self.schema = Some(schema);
    }

    /// Appends the changes, a line before the first.
    pub(super) fn show(&mut self, record: &Object<'_>, is_diff: bool, out: &mut Vec<u8>) {
        if self.more == 0 {
            return;
        }
        let mut tables = 0;
        for (name, rows) in record.iter() {
            let rows = if name.starts_with(b"_") { None } else { rows.object() };
            let Some(rows) = rows else { continue };
            if tables == 0 {
                out.push(b'\n');
            }
            tables += 1;
            for (uuid, columns) in rows.iter() {
                self.row(name, uuid, columns, is_diff, out);
            }
        }
    }

    fn row(
        &mut self,
        table: &[u8],
        uuid: &[u8],
        columns: Text<'_>,
        is_diff: bool,
        out: &mut Vec<u8>,
    ) {
        let object = columns.object();
        let new_name = object.as_ref().and_then(|columns| columns.get("name")).map(|name| {
            let mut text = Vec::new();
            name.write(&mut text);
            text
        });
        let short = uuid.get(..8).unwrap_or(uuid);
        let old_name = self.names.get(uuid);
        let shown = match (old_name, &new_name) {
            (None, name) => name.as_deref().unwrap_or_default(),
            (Some(old), _) if old.is_empty() => short,
            (Some(old), _) => old,
        };
        let (insert, diff) = match (old_name, is_diff) {
            (None, _) => (" insert", ""),
            (Some(_), true) => ("", " diff"),
            (Some(_), false) => ("", ""),
        };
        push(out, &[b"  table ", table, insert.as_bytes(), b" row "]);
        if shown.is_empty() {
            push(out, &[short, diff.as_bytes(), b":\n"]);
        } else {
            push(out, &[shown, b" (", short, b")", diff.as_bytes(), b":\n"]);
        }
        match (new_name, object.is_some()) {
            (Some(name), _) => drop(self.names.insert(uuid.to_vec(), name)),
            (None, true) => drop(self.names.entry(uuid.to_vec()).or_default()),
            (None, false) => {}
        }
        if columns.kind() == Kind::Null {
            self.names.remove(uuid);
            out.extend_from_slice(b"    delete row\n");
        }
        if let Some(columns) = object
            && self.more > 1
        {
            self.columns(table, &columns, out);
        }
    }

    fn columns(&self, table: &[u8], columns: &Object<'_>, out: &mut Vec<u8>) {
        for (column, value) in columns.iter() {
            push(out, &[b"    ", column, b"="]);
            value::write(value, self.column_type(table, column), out);
            out.push(b'\n');
        }
    }

    fn column_type(&self, table: &[u8], column: &[u8]) -> Option<&ColumnType> {
        let schema = self.schema.as_ref()?;
        let table = schema.table(schema.table_id(std::str::from_utf8(table).ok()?)?);
        Some(&table.column(table.column_id(std::str::from_utf8(column).ok()?)?).ty)
    }
}

fn push(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}
