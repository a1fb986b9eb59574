//! `backup`: a database as a file of two records, which a server can serve.
//!
//! The rows go to the file as the server wrote them, without their `_uuid`. A record begins with
//! the length and the hash of what follows, so the reply is gone through twice: once to measure,
//! once to write.

use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_data::{AtomType, ColumnType, Datum, Schema, TableSchema};
use weir_json::{Text, Value, array, object, write_string, write_string_bytes};
use weir_log::record::{Measure, write_record};

use super::Client;
use super::info::finish;
use super::output::{stdout, write_failure};
use super::remote::Target;
use super::schema::fetch;
use super::session::transaction;
use super::transact::{results_of, rows_of};
use crate::program::{Failure, Outcome};
use crate::progress::Progress;

/// Pieces of a record are collected up to this many bytes.
const PIECE_SIZE: usize = 256 << 10;

/// Runs the command `backup`.
pub(super) fn backup(_client: &Client, mut target: Target) -> Outcome {
    if io::stdout().is_terminal() {
        let text = "not writing backup to a terminal; please redirect stdout to a file";
        return Err(Failure::new(text));
    }
    let schema = fetch(&mut target.session, &target.database)?;
    let operations = schema.tables.iter().map(select).collect();
    let mut params = vec![];
    transaction(&target.database, operations).write(&mut params);
    let mut progress = Progress::bytes("backup", None);
    target.session.watch_progress(move |bytes| progress.at(bytes));
    let mut out = stdout();
    let mut first = vec![];
    write_record(&mut first, schema.to_value().to_string().as_bytes());
    target.session.call_text("transact", &params, |reply| {
        out.write_all(&first).map_err(write_failure)?;
        write_rows(&schema, reply, &mut out)
    })??;
    finish(out.flush())
}

/// The operation that selects all that the file keeps of a table.
fn select(table: &TableSchema) -> Value {
    let kept = table.data_columns().filter(|(_, column)| column.persistent);
    let mut columns: Vec<Value> = vec!["_uuid".into()];
    columns.extend(kept.map(|(_, column)| Value::from(column.name.as_str())));
    object([
        ("op", "select".into()),
        ("table", table.name.as_str().into()),
        ("where", array::<Value>([])),
        ("columns", columns.into()),
    ])
}

fn write_rows(schema: &Schema, results: Text<'_>, out: &mut impl Write) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut measure = Measure::default();
    body(schema, results, now, &mut |piece| {
        measure.update(piece);
        Ok(())
    })?;
    out.write_all(&measure.header()).map_err(write_failure)?;
    body(schema, results, now, &mut |piece| out.write_all(piece).map_err(write_failure))
}

/// The second record, in pieces.
fn body(
    schema: &Schema,
    reply: Text<'_>,
    now_ms: u128,
    take: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut json = format!("{{\"_date\":{now_ms},\"_is_diff\":true").into_bytes();
    json.extend_from_slice(b",\"_comment\":");
    write_string(&mut json, "produced by \"ovsdb-client backup\"");
    let mut results = results_of(reply, schema.tables.len())?;
    for table in &schema.tables {
        let rows = rows_of(results.next(), &table.name)?;
        let mut any = false;
        for row in rows {
            json.push(b',');
            if !any {
                write_string(&mut json, &table.name);
                json.extend_from_slice(b":{");
            }
            any = true;
            write_row(row, &mut json).ok_or_else(|| bad_row(&table.name, row))?;
            if json.len() >= PIECE_SIZE {
                take(&json)?;
                json.clear();
            }
        }
        if any {
            json.push(b'}');
        }
    }
    json.extend_from_slice(b"}\n");
    take(&json)
}

/// What is wrong with a row that could not be written.
fn bad_row(table: &str, row: Text<'_>) -> Failure {
    let Some(members) = row.object() else {
        let row = row.to_value();
        return Failure::new(format!("{table} table reply row is not an object: {row}"));
    };
    let Some(uuid) = members.get("_uuid") else {
        let row = row.to_value();
        return Failure::new(format!("{table} table reply row lacks _uuid member: {row}"));
    };
    let ty = ColumnType::scalar(AtomType::Uuid);
    match Datum::parse(uuid, &ty, None) {
        Err(error) => Failure::new(error.to_string()),
        Ok(_) => Failure::new(format!("{table}: a row has no _uuid")),
    }
}

/// `"UUID":{...}`
fn write_row(row: Text<'_>, json: &mut Vec<u8>) -> Option<()> {
    // The UUID comes first there, wherever it stands here; its place is kept free.
    let start = json.len();
    json.push(b'"');
    json.resize(json.len() + weir_data::uuid::TEXT_LEN, b'?');
    json.extend_from_slice(b"\":{");
    let mut uuid = None;
    let mut first = true;
    for (key, value) in row.members()? {
        if key.as_ref() == b"_uuid" {
            uuid = value.elements()?.nth(1)?.string();
            continue;
        }
        if !std::mem::take(&mut first) {
            json.push(b',');
        }
        write_string_bytes(json, &key);
        json.push(b':');
        json.extend_from_slice(value.as_bytes());
    }
    json.push(b'}');
    let place = json.get_mut(start + 1..start + 1 + weir_data::uuid::TEXT_LEN)?;
    let uuid = uuid.filter(|uuid| uuid.len() == place.len())?;
    place.copy_from_slice(&uuid);
    Some(())
}
