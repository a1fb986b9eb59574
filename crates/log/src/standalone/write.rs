//! Records from deltas and snapshots.

use sha1::{Digest, Sha1};
use weir_data::delta::{Change, ColumnDelta, TableDelta};
use weir_data::sorted::Element;
use weir_data::{
    ColumnType, DatumRef, Delta, Row, RowDelta, Schema, Snapshot, Store, TableSchema, Uuid,
};

use crate::record::{self, Hash, Magic, Unfinished, Written};

/// Size of the pieces in which a snapshot is written.
const PIECE_BYTES: usize = 64 << 10;

/// Appends the record of a schema, the first of a file; answers with the hash of its body.
pub fn write_schema(out: &mut Vec<u8>, schema: &Schema) -> Hash {
    record::write_hashed_record(out, schema.to_string().as_bytes())
}

/// How changed columns of rows that were there are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As differences wherever every reader understands them: short, and so the usual form.
    Difference,
    /// Whole values, as servers before 2.16 and `--disable-file-column-diff` want them.
    Whole,
}

/// How a transaction's record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// How changed columns are written.
    pub form: Form,
    /// Whether the record carries the [`record::MARK`].
    pub is_marked: bool,
}

impl Style {
    /// What every reader understands, in the short form, without the mark.
    pub const PLAIN: Self = Self { form: Form::Difference, is_marked: false };
}

/// Appends a transaction's record, unmarked; `store` is what the transaction made of it. `None`,
/// and nothing appended, if the transaction changed nothing that is kept in files.
pub fn write_transaction(
    out: &mut Vec<u8>,
    delta: &Delta,
    store: &Store,
    date_ms: i64,
    comment: Option<&str>,
) -> Option<Written> {
    write_transaction_as(Style::PLAIN, out, delta, store, date_ms, comment)
}

/// Appends a transaction's record, as [`write_transaction`] does, written as `style` says.
pub fn write_transaction_as(
    style: Style,
    out: &mut Vec<u8>,
    delta: &Delta,
    store: &Store,
    date_ms: i64,
    comment: Option<&str>,
) -> Option<Written> {
    let record = Unfinished::begin(Magic::Standalone, out);
    if write_transaction_json(style.form, out, delta, store, date_ms, comment) {
        Some(record.finish(out, style.is_marked))
    } else {
        record.abandon(out);
        None
    }
}

/// Appends the record of a transaction that changes nothing, and says why it is there.
pub fn write_nothing(is_marked: bool, out: &mut Vec<u8>, date_ms: i64, comment: &str) -> Written {
    let record = Unfinished::begin(Magic::Standalone, out);
    begin(out, date_ms, false, Some(comment));
    out.push(b'}');
    record.finish(out, is_marked)
}

/// Appends a transaction as JSON, without the frame of a record: what comes behind a schema in a
/// standalone file, and in an entry of a clustered one (ovsdb(5)). False if the transaction changed
/// nothing that is kept in files; what was appended then means nothing.
pub fn write_transaction_json(
    form: Form,
    out: &mut Vec<u8>,
    delta: &Delta,
    store: &Store,
    date_ms: i64,
    comment: Option<&str>,
) -> bool {
    let form = match form {
        Form::Difference if !delta.tables.iter().all(|table| can_differ(store, table)) => {
            Form::Whole
        }
        form => form,
    };
    begin(out, date_ms, form == Form::Difference, comment);
    let mut any = false;
    for table in &delta.tables {
        any |= write_table(out, store, table, form);
    }
    out.push(b'}');
    any
}

/// Whether the table's changes can be written as differences.
///
/// Two kinds are misread, though they are correct: OVS up to 3.1 refuses a difference of more
/// elements than the column may have, and takes the difference for the value if the value before
/// was the default (which matters where that is not empty).
fn can_differ(store: &Store, delta: &TableDelta) -> bool {
    let schema = store.schema().table(delta.table);
    delta.rows.iter().all(|(uuid, row)| {
        let RowDelta::Modify(columns) = row else { return true };
        columns.iter().all(|delta_column| {
            let ColumnDelta { column, change } = delta_column;
            let ty = &schema.column(*column).ty;
            if !ty.is_composite() || ty.n_min == 0 && ty.n_max == ColumnType::UNLIMITED {
                return true;
            }
            let Some(row) = store.get(delta.table, *uuid) else { return true };
            elements(change) <= ty.n_max as usize && !was_default(change, row.get(*column), ty)
        })
    })
}

/// Number of elements of a difference.
fn elements(change: &Change) -> usize {
    match change {
        Change::Replace { new, .. } => new.as_ref().len(),
        Change::Set { added, removed } => added.len() + removed.len(),
        Change::Map { added, removed } => {
            let gone = removed.iter().filter(|pair| !added.contains(pair.key()));
            added.len() + gone.count()
        }
    }
}

/// Whether the value before the change was a default value that is not empty.
fn was_default(change: &Change, new: DatumRef<'_>, ty: &ColumnType) -> bool {
    let old_len = (new.len() + change.removed().count()).saturating_sub(change.added().count());
    ty.n_min > 0 && old_len == 1 && change.old_value(new).as_ref().is_default(ty)
}

/// `_is_diff` comes right after `_date`: scripts that strip it count on a key behind it.
fn begin(json: &mut Vec<u8>, date_ms: i64, is_diff: bool, comment: Option<&str>) {
    json.extend_from_slice(b"{\"_date\":");
    weir_json::write_integer(json, date_ms);
    if is_diff {
        json.extend_from_slice(b",\"_is_diff\":true");
    }
    if let Some(comment) = comment {
        json.extend_from_slice(b",\"_comment\":");
        weir_json::write_string(json, comment);
    }
}

/// Appends `,"TABLE":{...}`, or nothing if no row of it is worth it.
fn write_table(json: &mut Vec<u8>, store: &Store, table: &TableDelta, form: Form) -> bool {
    let schema = store.schema().table(table.table);
    let start = json.len();
    let mut separator = Separator::default();
    write_key(json, b',', &schema.name);
    json.push(b'{');
    for (uuid, delta) in &table.rows {
        match delta {
            RowDelta::Insert(row) => {
                separator.row(json, *uuid);
                write_row(json, schema, row);
            }
            RowDelta::Delete(_) => {
                separator.row(json, *uuid);
                json.extend_from_slice(b"null");
            }
            RowDelta::Modify(columns) => {
                let kept = |delta: &&ColumnDelta| schema.column(delta.column).persistent;
                if columns.iter().any(|delta| kept(&delta)) {
                    separator.row(json, *uuid);
                    let whole = match form {
                        Form::Difference => None,
                        Form::Whole => store.get(table.table, *uuid),
                    };
                    write_changes(json, schema, columns.iter().filter(kept), whole);
                }
            }
        }
    }
    if separator.0 {
        json.push(b'}');
    } else {
        json.truncate(start);
    }
    separator.0
}

/// Writes a comma before all but the first.
#[derive(Default)]
struct Separator(bool);

impl Separator {
    fn write(&mut self, json: &mut Vec<u8>) {
        if std::mem::replace(&mut self.0, true) {
            json.push(b',');
        }
    }

    fn row(&mut self, json: &mut Vec<u8>, uuid: Uuid) {
        self.write(json);
        json.push(b'"');
        json.extend_from_slice(&uuid.text());
        json.extend_from_slice(b"\":");
    }

    fn column(&mut self, json: &mut Vec<u8>, name: &str) {
        self.write(json);
        json.push(b'"');
        json.extend_from_slice(name.as_bytes());
        json.extend_from_slice(b"\":");
    }
}

fn write_key(json: &mut Vec<u8>, before: u8, name: &str) {
    json.push(before);
    json.push(b'"');
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
}

/// A whole row: what is kept and not the default.
fn write_row(json: &mut Vec<u8>, schema: &TableSchema, row: &Row) {
    let mut separator = Separator::default();
    json.push(b'{');
    for (id, column) in schema.data_columns() {
        let datum = row.get(id);
        if column.persistent && !datum.is_default(&column.ty) {
            separator.column(json, &column.name);
            datum.write(&column.ty, json);
        }
    }
    json.push(b'}');
}

/// The changed columns: their values in `whole`, or as differences.
fn write_changes<'a>(
    json: &mut Vec<u8>,
    schema: &TableSchema,
    columns: impl Iterator<Item = &'a ColumnDelta>,
    whole: Option<&Row>,
) {
    let mut separator = Separator::default();
    json.push(b'{');
    for delta in columns {
        let column = schema.column(delta.column);
        separator.column(json, &column.name);
        match whole {
            Some(row) => row.get(delta.column).write(&column.ty, json),
            None => delta.change.write_diff(&column.ty, json),
        }
    }
    json.push(b'}');
}

/// Writes one record with all rows to `sink`, in bounded memory: the header has the length and the
/// hash in front, so the rows are gone through twice. Answers with the hash of the record's body.
pub fn write_snapshot<E>(
    snapshot: &Snapshot,
    date_ms: i64,
    comment: Option<&str>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Hash, E> {
    let mut hash = Sha1::new();
    let mut length = 0;
    snapshot_body(snapshot, date_ms, comment, b"}\n", &mut |piece: &[u8]| {
        hash.update(piece);
        length += piece.len() as u64;
        Ok::<(), E>(())
    })?;
    let (mut header, hash) = (Vec::new(), Hash::of(&mut hash));
    record::write_header(&mut header, length, hash);
    sink(&header)?;
    snapshot_body(snapshot, date_ms, comment, b"}\n", sink)?;
    Ok(hash)
}

/// Appends the JSON of one transaction that inserts all rows, as clustered files have it.
pub fn snapshot_json(snapshot: &Snapshot, date_ms: i64, comment: Option<&str>, out: &mut Vec<u8>) {
    let mut sink = |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        Ok::<(), std::convert::Infallible>(())
    };
    let Ok(()) = stream_snapshot_json(snapshot, date_ms, comment, &mut sink);
}

/// As [`snapshot_json`], in pieces: `sink` gets them in order.
///
/// # Errors
/// The first one of `sink`.
pub fn stream_snapshot_json<E>(
    snapshot: &Snapshot,
    date_ms: i64,
    comment: Option<&str>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    snapshot_body(snapshot, date_ms, comment, b"}", sink)
}

fn snapshot_body<E>(
    snapshot: &Snapshot,
    date_ms: i64,
    comment: Option<&str>,
    end: &[u8],
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut json = Vec::with_capacity(2 * PIECE_BYTES);
    begin(&mut json, date_ms, false, comment);
    for (id, table) in snapshot.schema().table_ids() {
        let mut rows = snapshot.rows(id).peekable();
        if rows.peek().is_none() {
            continue;
        }
        write_key(&mut json, b',', &table.name);
        json.push(b'{');
        let mut separator = Separator::default();
        for row in rows {
            separator.row(&mut json, row.uuid());
            write_row(&mut json, table, row);
            if json.len() >= PIECE_BYTES {
                sink(&json)?;
                json.clear();
            }
        }
        json.push(b'}');
    }
    json.extend_from_slice(end);
    sink(&json)
}
