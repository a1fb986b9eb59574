//! The answer of `weir_log`: changes as JSON, the newest first (`docs/log-of-changes.md`).

use std::collections::VecDeque;

use weir_data::delta::{Change, ColumnDelta};
use weir_data::{ColumnId, Datum, Delta, Row, RowDelta, Schema, TableSchema};
use weir_json::{write_integer, write_string};

use super::{About, Wanted};
use crate::asked;
use crate::origin::Identity;

/// Most bytes of the changes in an answer; the oldest are left out.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Most bytes of what one change did; what is longer is not told.
const CHANGE_BYTES_MAX: usize = 4 << 20;

/// Changes, the newest of those that there is room for.
pub(super) struct Answer {
    room: usize,
    /// Each as JSON, oldest first.
    changes: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Answer {
    /// Room for so many.
    pub(super) fn new(room: usize) -> Self {
        Self { room, changes: VecDeque::new(), bytes: 0 }
    }

    /// For how many changes there is room, those that are there among them.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Adds a change that is newer than the others; `delta` is what it did, if that is known.
    pub(super) fn push(
        &mut self,
        about: &About<'_>,
        delta: Option<&Delta>,
        schema: &Schema,
        wanted: &Wanted,
    ) {
        let mut text = Vec::new();
        write(&mut text, about, delta, schema, wanted);
        text.shrink_to_fit();
        self.bytes += text.len();
        self.changes.push_back(text);
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.changes.len() > self.room || self.bytes > ANSWER_BYTES_MAX {
            let oldest = self.changes.pop_front().expect("nothing has no bytes");
            self.bytes -= oldest.len();
        }
    }

    /// With older changes.
    pub(super) fn behind(mut self, mut older: Self) -> Self {
        older.bytes += self.bytes;
        older.changes.append(&mut self.changes);
        let mut all = Self { room: self.room, ..older };
        all.drop_oldest();
        all
    }

    pub(super) fn into_json(self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.bytes + self.changes.len() + 2);
        json.push(b'[');
        for (i, change) in self.changes.into_iter().rev().enumerate() {
            json.extend_from_slice(if i > 0 { b"," } else { b"" });
            json.extend_from_slice(&change);
        }
        json.push(b']');
        json
    }
}

fn write(
    out: &mut Vec<u8>,
    about: &About<'_>,
    delta: Option<&Delta>,
    schema: &Schema,
    wanted: &Wanted,
) {
    let About { id, note, asked } = about;
    out.extend_from_slice(b"{\"changes\":");
    let start = out.len();
    if !delta.is_some_and(|delta| write_changes(out, delta, schema, wanted)) {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
    out.extend_from_slice(b",\"client\":");
    match asked.and_then(|asked| asked.client.as_deref()) {
        Some(client) => write_client(out, client),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"comment\":");
    match asked.and_then(|asked| asked.comment.as_ref()).or(note.comment.as_ref()) {
        Some(comment) => {
            let mut comment = comment.clone();
            asked::cut(&mut comment);
            write_string(out, &comment);
        }
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"date\":");
    match asked.map(|asked| asked.date_ms).or(note.date_ms) {
        Some(date_ms) => write_integer(out, date_ms),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"id\":");
    out.push(b'"');
    out.extend_from_slice(&id.text());
    out.push(b'"');
    out.push(b'}');
}

/// Writes who somebody is: what is not known of him is left out.
fn write_client(out: &mut Vec<u8>, client: &Identity) {
    let mut members = Members::begin(out);
    if let Some(name) = &client.client {
        write_string(members.key("certificate"), name);
    }
    if !client.role.is_empty() {
        write_string(members.key("role"), &client.role);
    }
    write_string(members.key("session"), &client.name);
    members.end();
}

/// Writes the wanted part of a change; false if it is too long.
fn write_changes(out: &mut Vec<u8>, delta: &Delta, schema: &Schema, wanted: &Wanted) -> bool {
    let start = out.len();
    let mut tables = Members::begin(out);
    for changed in &delta.tables {
        let has = |(uuid, _): &&(_, RowDelta)| wanted.has(changed.table, *uuid);
        let mut rows = changed.rows.iter().filter(has).peekable();
        if rows.peek().is_none() {
            continue;
        }
        let table = schema.table(changed.table);
        let mut rows_out = Members::begin(tables.key(&table.name));
        for (uuid, row) in rows {
            let out = rows_out.key(&uuid.to_string());
            write_row_delta(out, row, table);
            if out.len() - start > CHANGE_BYTES_MAX {
                return false;
            }
        }
        rows_out.end();
    }
    tables.end();
    true
}

fn write_row_delta(out: &mut Vec<u8>, delta: &RowDelta, table: &TableSchema) {
    let mut members = Members::begin(out);
    match delta {
        RowDelta::Insert(row) => write_row(members.key("insert"), row, table),
        RowDelta::Delete(row) => write_row(members.key("delete"), row, table),
        RowDelta::Modify(columns) => {
            let mut members = Members::begin(members.key("modify"));
            for ColumnDelta { column, change } in columns {
                let named = table.column(*column);
                if named.persistent && *column > ColumnId::VERSION {
                    let out = members.key(&named.name);
                    let [old, new] = sides(change);
                    out.push(b'[');
                    old.as_ref().write(&named.ty, out);
                    out.push(b',');
                    new.as_ref().write(&named.ty, out);
                    out.push(b']');
                }
            }
            members.end();
        }
    }
    members.end();
}

/// The value before and after; of sets and maps the elements that went, and those that came.
fn sides(change: &Change) -> [Datum; 2] {
    match change {
        Change::Replace { old, new } => [old.clone(), new.clone()],
        Change::Set { added, removed } => [removed, added].map(|run| Datum::set(run.clone())),
        Change::Map { added, removed } => [removed, added].map(|run| Datum::map(run.clone())),
    }
}

/// Writes what is kept in files of a row, and is not the default.
fn write_row(out: &mut Vec<u8>, row: &Row, table: &TableSchema) {
    let mut members = Members::begin(out);
    for (id, column) in table.data_columns() {
        let datum = row.get(id);
        if column.persistent && !datum.is_default(&column.ty) {
            datum.write(&column.ty, members.key(&column.name));
        }
    }
    members.end();
}

/// An object that is being written.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Members<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// The next member's value goes there.
    fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        write_string(self.out, name);
        self.out.push(b':');
        self.out
    }

    fn end(self) {
        self.out.push(b'}');
    }
}
