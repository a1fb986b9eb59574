//! The operations of `restore`: a database's rows as one transaction in place of all others.

use std::sync::Arc;

use weir_data::{AtomRef, ColumnSchema, DatumRef, Row, Schema, TableId, TableSchema, Uuid};
use weir_json::write_string;

/// Writes `["DATABASE", OPERATION, ...]`, a `delete` before the first `insert` of each table.
pub(super) struct Insertions {
    schema: Arc<Schema>,
    /// What has been written and not taken yet.
    pub(super) json: Vec<u8>,
    /// By table, whether its old rows have been deleted.
    emptied: Vec<bool>,
}

impl Insertions {
    /// A transaction on the database that the schema names.
    pub(super) fn new(schema: &Arc<Schema>) -> Self {
        let mut json = vec![b'['];
        write_string(&mut json, &schema.name);
        Self { schema: Arc::clone(schema), json, emptied: vec![false; schema.tables.len()] }
    }

    /// Adds a row. A table's rows must come together.
    pub(super) fn row(&mut self, table: TableId, row: &Row) {
        self.empty(table);
        write_insert(self.schema.table(table), row, &mut self.json);
    }

    /// There are no more rows.
    pub(super) fn end(&mut self) {
        for (id, _) in Arc::clone(&self.schema).table_ids() {
            self.empty(id);
        }
        self.json.push(b']');
    }

    fn empty(&mut self, table: TableId) {
        let Some(is_emptied) = self.emptied.get_mut(table.index()) else { return };
        if !std::mem::replace(is_emptied, true) {
            self.json.extend_from_slice(b",{\"op\":\"delete\",\"table\":");
            write_string(&mut self.json, &self.schema.table(table).name);
            self.json.extend_from_slice(b",\"where\":[]}");
        }
    }
}

fn write_insert(table: &TableSchema, row: &Row, json: &mut Vec<u8>) {
    json.extend_from_slice(b",{\"op\":\"insert\",\"table\":");
    write_string(json, &table.name);
    json.extend_from_slice(b",\"uuid-name\":");
    write_name(row.uuid(), json);
    json.extend_from_slice(b",\"row\":{");
    let mut first = true;
    for (id, column) in table.data_columns() {
        let value = row.get(id);
        if !column.persistent || value.is_default(&column.ty) {
            continue;
        }
        if !std::mem::take(&mut first) {
            json.push(b',');
        }
        write_string(json, &column.name);
        json.push(b':');
        if column.ty.references().next().is_some() {
            write_references(column, value, json);
        } else {
            value.write(&column.ty, json);
        }
    }
    json.extend_from_slice(b"}}");
}

/// A value that names rows: each by the name that its insertion gives it.
fn write_references(column: &ColumnSchema, value: DatumRef<'_>, json: &mut Vec<u8>) {
    let refers = |reference: bool, atom: AtomRef<'_>, json: &mut Vec<u8>| match atom.as_uuid() {
        Some(uuid) if reference => {
            json.extend_from_slice(b"[\"named-uuid\",");
            write_name(uuid, json);
            json.push(b']');
        }
        _ => atom.write(json),
    };
    let key_refers = column.ty.key.reference().is_some();
    let value_refers = column.ty.value.as_ref().is_some_and(|base| base.reference().is_some());
    let is_map = column.ty.is_map();
    if let (Some(atom), false) = (value.scalar(), is_map) {
        return refers(key_refers, atom, json);
    }
    json.extend_from_slice(if is_map { b"[\"map\",[" } else { b"[\"set\",[" });
    for (place, (key, of_key)) in value.entries().enumerate() {
        if place > 0 {
            json.push(b',');
        }
        if let Some(of_key) = of_key {
            json.push(b'[');
            refers(key_refers, key, json);
            json.push(b',');
            refers(value_refers, of_key, json);
            json.push(b']');
        } else {
            refers(key_refers, key, json);
        }
    }
    json.extend_from_slice(b"]]");
}

/// `"row0123_4567_..."`
fn write_name(uuid: Uuid, json: &mut Vec<u8>) {
    json.extend_from_slice(b"\"row");
    json.extend(uuid.text().map(|c| if c == b'-' { b'_' } else { c }));
    json.push(b'"');
}
