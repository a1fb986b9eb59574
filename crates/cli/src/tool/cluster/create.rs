//! `ovsdb-tool create-cluster` and `join-cluster`: the files that new servers start with.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use weir_data::parser::is_id;
use weir_data::{Error, Schema, UuidSource};
use weir_host::vlog::Level;
use weir_log::clustered::{
    Entry, Header, Kind, Record, Servers, Snapshot, State, check_address, port_of,
};
use weir_log::standalone::snapshot_json;

use crate::program::{Failure, Outcome};
use crate::tool::cluster::example;
use crate::tool::create::io_error;
use crate::tool::database_file;
use crate::tool::keys;
use crate::tool::load;
use crate::tool::log_file::LogFile;
use crate::tool::options::Tool;
use crate::tool::rewrite::random;
use crate::tool::schema_file;

/// Bounds of the election timer in milliseconds.
const ELECTION_TIMER_MS: std::ops::RangeInclusive<u64> = 100..=600_000;

/// Runs `create-cluster DB CONTENTS LOCAL`, `CONTENTS` being a database or a schema.
pub(in crate::tool) fn create_cluster(tool: &Tool, args: &[String]) -> Outcome {
    let [db, contents, local] = args else { return Err(Failure::silent(1)) };
    let timer = tool.election_timer.as_deref().map(election_timer).transpose()?;
    let random = random()?;
    let mut uuids = UuidSource::new(random);
    let (schema, rows) = read_contents(tool, Path::new(contents), random[0])?;
    let data = format!("[{schema},{rows}]");
    let content = new_cluster(tool, (contents, &data), (&schema.name, local), timer, &mut uuids)?;
    let created = finish(tool, Path::new(db), &content)?;
    keys::follow(tool, Path::new(db), &schema);
    Ok(created)
}

/// The file of the server that a new cluster begins with, at the address `local`. `data` is the text
/// `[SCHEMA,ROWS]`, made of the file `contents`; `timer` the election timer in milliseconds, if it is not the usual one.
fn new_cluster(
    tool: &Tool,
    (contents, data): (&str, &str),
    (name, local): (&str, &str),
    timer: Option<u64>,
    uuids: &mut UuidSource,
) -> Result<Vec<u8>, Failure> {
    check_address(local).map_err(|error| refused(tool, &error))?;
    let data = weir_json::validate(data.as_bytes())
        .map_err(|error| Failure::new(format!("{contents}: {error}")))?;
    let server = uuids.next_uuid();
    let snapshot =
        Snapshot { index: 1, term: 1, eid: uuids.next_uuid(), data, election_timer: None };
    let header = Header {
        server_id: server,
        local_address: local.to_owned(),
        name: name.to_owned(),
        cluster_id: Some(uuids.next_uuid()),
        state: State::Joined {
            servers: Servers::from([(server, local.to_owned())]),
            snapshot: Some(snapshot),
        },
    };
    let mut content = Vec::new();
    header.write(&mut content);
    if timer.is_some() {
        let entry = Entry { index: 2, servers: None, election_timer: timer, data: None };
        Record { comment: None, term: 1, kind: Kind::Entry(entry) }.write(&mut content);
    }
    Ok(content)
}

/// Runs `join-cluster DB NAME LOCAL REMOTE...`.
pub(in crate::tool) fn join_cluster(tool: &Tool, args: &[String]) -> Outcome {
    let [db, name, local, remotes @ ..] = args else { return Err(Failure::silent(1)) };
    if !is_id(name) {
        let hint = "(use \"schema-name\" command to find the correct name)";
        return Err(Failure::new(format!("{name}: not a valid schema name {hint}")));
    }
    let mut uuids = UuidSource::new(random()?);
    for address in std::iter::once(local).chain(remotes) {
        check_address(address).map_err(|error| refused(tool, &error))?;
    }
    if remotes.contains(local) {
        let why = "remote addresses cannot be the same as the local address";
        return Err(Failure::new(format!("ovsdb error: {why}")));
    }
    let mut distinct = remotes.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let header = Header {
        server_id: uuids.next_uuid(),
        local_address: local.clone(),
        name: name.clone(),
        cluster_id: tool.cluster_id,
        state: State::Joining { remotes: distinct },
    };
    let mut content = Vec::new();
    header.write(&mut content);
    finish(tool, Path::new(db), &content)
}

pub(super) fn finish(tool: &Tool, db: &Path, content: &[u8]) -> Outcome {
    database_file::create(db, content).map_err(|error| io_error(tool, db, error))?;
    Ok(ExitCode::SUCCESS)
}

/// The failure for an address that will not do.
pub(super) fn refused(tool: &Tool, error: &Error) -> Failure {
    let details = error.details().unwrap_or_default();
    if let Some(address) = details.strip_suffix(": syntax error in address") {
        let target = address.split_once(':').map_or(address, |(_, target)| target);
        let why = match port_of(target) {
            Some(port) => format!("bad port number \"{port}\""),
            None => "port must be specified".to_owned(),
        };
        tool.log.log("socket_util", Level::Err, &format!("{target}: {why}"));
    }
    Failure::new(error.to_string())
}

fn election_timer(text: &str) -> Result<u64, Failure> {
    let (first, last) = ELECTION_TIMER_MS.into_inner();
    let timer = text.parse().ok().filter(|timer| ELECTION_TIMER_MS.contains(timer));
    let range = format!("election timer must be between {first} and {last}, in msec.");
    timer.ok_or_else(|| Failure::new(format!("ovsdb error: {range}")))
}

/// A schema, perhaps with rows: the JSON of a transaction that inserts them.
fn read_contents(tool: &Tool, path: &Path, seed: u64) -> Result<(Schema, String), Failure> {
    // What is no schema is a database, so that is what messages are about.
    if let Ok(schema) = schema_file::read(path) {
        return Ok((persistent(tool, path, schema), "{}".to_owned()));
    }
    let database = load::load(path, seed)?.database;
    let snapshot = database.snapshot();
    let comment = format!("created from {}", path.display());
    let mut json = Vec::new();
    snapshot_json(&snapshot, weir_host::wall_ms(), Some(&comment), &mut json);
    let text = String::from_utf8_lossy(&json).into_owned();
    let schema = Arc::unwrap_or_clone(Arc::clone(database.schema()));
    Ok((persistent(tool, path, schema), text))
}

/// Makes every column of the schema persistent: clusters keep them all.
fn persistent(tool: &Tool, path: &Path, mut schema: Schema) -> Schema {
    let mut changed = Vec::new();
    for table in &mut schema.tables {
        for column in table.columns.iter_mut().skip(2).filter(|column| !column.persistent) {
            column.persistent = true;
            changed.push((table.name.clone(), column.name.clone()));
        }
    }
    if let Some((table, column)) = example(path, &changed).or(changed.last()) {
        let (path, count, name) = (path.display(), changed.len(), &schema.name);
        let text = format!(
            "{path}: changed {count} columns in '{name}' database from ephemeral to persistent, \
             including '{column}' column in '{table}' table, because clusters do not support \
             ephemeral columns"
        );
        tool.log.log("ovsdb", Level::Warn, &text);
    }
    schema
}

/// Which of the changed columns to name, by the text of the schema.
fn example<'a>(
    path: &Path,
    changed: &'a [example::EphemeralColumn],
) -> Option<&'a example::EphemeralColumn> {
    let bytes = std::fs::read(path).ok()?;
    if let Ok(schema) = weir_json::validate(&bytes) {
        return example::of(schema, false, changed);
    }
    let mut log = LogFile::open_standalone(path).ok()?;
    log.next(|schema| example::of(schema, true, changed)).ok()??
}
