//! `restore`: everything in a database is replaced by what a file holds, in one transaction.
//!
//! The steps:
//! 1. Standard input is replayed as a server would replay it.
//! 2. Its schema must have the version of the database's, or the user insists.
//! 3. The transaction is written row by row while it is sent: for each table one `delete` of all
//!    rows, then an `insert` a row, named after its UUID, so that references find it.

use std::io::Read;
use std::process::ExitCode;

use weir_data::{AtomRef, ColumnSchema, DatumRef, Row, Schema, Store, TableSchema};
use weir_host::vlog::Level;
use weir_json::{Text, Value, write_string};
use weir_log::standalone::{Loaded, Replayer};

use super::Client;
use super::progress::Progress;
use super::remote::Target;
use super::schema::fetch;
use super::session::{Lost, Session};
use crate::program::{Failure, Outcome, strerror};

/// Bytes read at once.
const READ_SIZE: usize = 1 << 20;

/// Operations are collected up to this many bytes before they are sent.
const PIECE_SIZE: usize = 256 << 10;

/// What messages call standard input.
const INPUT: &str = "/dev/stdin";

/// `restore`
pub(super) fn restore(client: &Client, mut target: Target) -> Outcome {
    let loaded = read_input()?;
    let schema = fetch(&mut target.session, &target.database)?;
    check_version(client, &loaded.schema, &schema)?;
    let id = target.session.begin_request("transact")?;
    send(&mut target.session, &loaded.store)?;
    target.session.end_request("transact", b"[...]", id)?;
    drop(loaded);
    let error = target.session.reply(id, first_error)?;
    match error {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(Failure::new(format!("transaction returned error: {error}"))),
    }
}

fn read_input() -> Result<Loaded, Failure> {
    let failure = Failure::new;
    let mut input = std::io::stdin().lock();
    let total = std::fs::metadata(INPUT).ok().map(|metadata| metadata.len());
    let mut progress = Progress::new("restore: reading", total);
    let mut replayer = Replayer::new(INPUT, 0);
    let mut buffer = vec![0; READ_SIZE];
    let mut done = 0;
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(failure(format!("ovsdb error: {INPUT}: {}", strerror(&error))));
            }
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        replayer.feed(bytes).map_err(|error| failure(error.to_string()))?;
        done += count as u64;
        progress.at(done);
    }
    let loaded = replayer.finish().map_err(|error| failure(error.to_string()))?;
    match loaded.warning {
        Some(warning) => Err(failure(warning)),
        None => Ok(loaded),
    }
}

fn check_version(client: &Client, backup: &Schema, database: &Schema) -> Result<(), Failure> {
    if backup.version == database.version {
        return Ok(());
    }
    let text = format!(
        "backup schema has version \"{}\" but database schema has version \"{}\"",
        backup.version, database.version
    );
    if client.options.force {
        client.log.log("ovsdb_client", Level::Info, &text);
        return Ok(());
    }
    Err(Failure::new(format!(
        "{text} (use --force to override differences, or \"ovsdb-client convert\" to change the \
         schema)"
    )))
}

/// Sends `["DATABASE", OPERATION, ...]`.
fn send(session: &mut Session, store: &Store) -> Result<(), Lost> {
    let schema = store.schema();
    let total: usize = store.schema().table_ids().map(|(id, _)| store.table(id).len()).sum();
    let mut progress = Progress::new("restore: sending", Some(total as u64));
    let mut done = 0;
    let mut json = vec![b'['];
    // The database is the one that the file is of, as for the reference.
    write_string(&mut json, &schema.name);
    for table in &schema.tables {
        json.extend_from_slice(b",{\"op\":\"delete\",\"table\":");
        write_string(&mut json, &table.name);
        json.extend_from_slice(b",\"where\":[]}");
    }
    for (id, table) in store.schema().table_ids() {
        for row in store.table(id).iter() {
            write_insert(table, row, &mut json);
            done += 1;
            if json.len() >= PIECE_SIZE {
                session.write(&json)?;
                json.clear();
                progress.at(done);
            }
        }
    }
    json.push(b']');
    session.write(&json)
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
        if value.is_default(&column.ty) {
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
    let is_map = column.ty.is_map();
    json.extend_from_slice(if is_map { b"[\"map\",[" } else { b"[\"set\",[" });
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
fn write_name(uuid: weir_data::Uuid, json: &mut Vec<u8>) {
    json.extend_from_slice(b"\"row");
    json.extend(uuid.text().map(|c| if c == b'-' { b'_' } else { c }));
    json.push(b'"');
}

/// The first operation that failed.
fn first_error(results: Text<'_>) -> Option<Value> {
    let mut results = results.elements()?;
    results.find_map(|result| {
        let error = result.object()?.get("error")?;
        (error.as_bytes() != b"null").then(|| result.to_value())
    })
}
