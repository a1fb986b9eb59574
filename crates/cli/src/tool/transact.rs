//! `ovsdb-tool query` and `transact`: one transaction on a file that no server has open.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weir_data::{Error, UuidSource};
use weir_engine::{Client, Database, Done, Env, Outcome as Executed, execute};
use weir_host::vlog::Level;
use weir_host::{LockError, LockFile, lock_path};
use weir_json::{Kind, Text};
use weir_log::standalone::write_transaction;

use super::load;
use super::options::Tool;
use super::rewrite::{failed, random};
use crate::program::{Failure, Outcome, say_bytes, strerror};
use crate::tool::database_file::follow_links;

/// Runs `query [DB] TXN`.
pub(super) fn query(tool: &Tool, args: &[String]) -> Outcome {
    run(tool, args, false)
}

/// Runs `transact [DB] TXN`.
pub(super) fn transact(tool: &Tool, args: &[String]) -> Outcome {
    run(tool, args, true)
}

fn run(tool: &Tool, args: &[String], may_write: bool) -> Outcome {
    let (path, text) = match args {
        [path, text] => (PathBuf::from(path), text),
        [text] => (tool.dirs.default_database(), text),
        _ => return Err(Failure::silent(1)),
    };
    let _lock = if may_write { Some(lock(tool, &path)?) } else { None };
    if may_write {
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        opened.map_err(|error| failed(&path, "open failed", &error))?;
    }
    let random = random()?;
    let load::Loaded { mut database, length } = load::load(&path, random[0])?;
    let request = weir_json::validate(text.as_bytes())
        .map_err(|error| Failure::new(format!("\"{text}\": {error}")))?;
    let reply = match operations(request, &database) {
        Ok(operations) => {
            let done = perform(&mut database, &operations, tool, random);
            store(done, &mut database, &path, length, may_write)
        }
        Err(error) => {
            let mut reply = Vec::new();
            error.write(&mut reply);
            reply
        }
    };
    std::mem::forget(database);
    say_bytes(&[&reply, b"\n"])?;
    Ok(std::process::ExitCode::SUCCESS)
}

/// The operations of `["DB", OPERATION...]`.
fn operations<'a>(request: Text<'a>, database: &Database) -> Result<Vec<Text<'a>>, Error> {
    if request.kind() != Kind::Array {
        return Err(Error::syntax(request, "array expected"));
    }
    let mut elements = request.elements().into_iter().flatten();
    let name = elements.next().and_then(Text::string);
    if name.as_deref() != Some(database.schema().name.as_bytes()) {
        return Err(Error::syntax(request, "database name expected as first parameter"));
    }
    Ok(elements.collect())
}

fn perform(
    database: &mut Database,
    operations: &[Text<'_>],
    tool: &Tool,
    random: [u64; 4],
) -> Option<Done> {
    let mut uuids = UuidSource::new(random);
    let mut env = Env {
        may_wait: false,
        client: Client { role: tool.role.as_deref().unwrap_or_default(), id: None },
        ..Env::new(&mut uuids)
    };
    match execute(database, operations, &mut env) {
        Executed::Done(done) => Some(done),
        // Ruled out by `may_wait` and `budget`.
        Executed::Wait { .. } | Executed::TooLong { .. } => None,
    }
}

/// Appends what was changed to the file; the reply, with one element more if that failed.
fn store(
    done: Option<Done>,
    database: &mut Database,
    path: &Path,
    length: u64,
    may_write: bool,
) -> Vec<u8> {
    let Some(Done { mut reply, delta, comment, .. }) = done else { return b"[]".to_vec() };
    let Some(delta) = delta else { return reply };
    let mut record = Vec::new();
    let now = weir_host::wall_ms();
    if write_transaction(&mut record, &delta, database.store(), now, comment.as_deref()).is_none() {
        return reply;
    }
    let written = if may_write {
        append(path, &record, length)
    } else {
        // In the reference a query only finds out when it comes to this.
        let details = format!("{}: cannot truncate to length {length}", path.display());
        Err(Error::io(Some(details), "Invalid argument"))
    };
    if let Err(error) = written {
        reply.pop();
        reply.push(b',');
        error.write(&mut reply);
        reply.push(b']');
    }
    reply
}

fn append(path: &Path, record: &[u8], length: u64) -> Result<(), Error> {
    let error = |what: &str, error: std::io::Error| {
        Error::io(Some(format!("{}: {what}", path.display())), strerror(&error))
    };
    let file = OpenOptions::new().write(true).open(path).map_err(|e| error("open failed", e))?;
    let written = file.write_all_at(record, length).and_then(|()| file.sync_data());
    written.map_err(|e| {
        // Half a record is worse than none.
        let _ = file.set_len(length);
        error("write failed", e)
    })
}

/// Locks a database that is about to be changed.
fn lock(tool: &Tool, path: &Path) -> Result<LockFile, Failure> {
    LockFile::lock(&lock_path(&follow_links(path)), &[]).map_err(|LockError { error, warnings }| {
        for warning in warnings {
            tool.log.log("lockfile", Level::Warn, &warning);
        }
        failed(path, "failed to lock lockfile", &error)
    })
}
