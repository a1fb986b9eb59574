//! `ovsdb-tool compact` and `convert`: a database written anew, as a schema and one record.
//!
//! In place:
//!
//! 1. The file that the name leads to is locked, and `FILE.tmp` too.
//! 2. It is read whole.
//! 3. `FILE.tmp` gets its mode and owner, the new content, and is synced.
//! 4. The rename makes it the database.
//!
//! To a named destination, that one is locked and must be new, empty, or a standalone database.
//! What takes its place is written beside it, so a destination may as well be the source.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::io::Errno;
use weir_data::{Snapshot, UuidSource};
use weir_engine::Database;
use weir_host::vlog::Level;
use weir_host::{LockError, LockFile, Replacement, lock_path, temporary_path};
use weir_log::record::Magic;
use weir_log::standalone::{write_schema, write_snapshot};

use super::beside::{Beside, sync_folder};
use super::log_file::LogFile;
use super::options::Tool;
use super::{keys, load, queries, schema_file};
use crate::program::{Failure, Outcome, strerror};
use crate::progress::Progress;
use crate::tool::database_file::follow_links;

/// Runs `compact [DB [DST]]`.
pub(super) fn compact(tool: &Tool, args: &[String]) -> Outcome {
    rewrite(tool, &queries::database(tool, args), args.get(1), "compacted", Ok)
}

/// Runs `convert [DB [SCHEMA [DST]]]`.
pub(super) fn convert(tool: &Tool, args: &[String]) -> Outcome {
    let schema = Arc::new(schema_file::read(&queries::schema_path(tool, args.get(1)))?);
    let database = queries::database(tool, args);
    let target = args.get(2).map_or(database.clone(), PathBuf::from);
    let wishes = Arc::clone(&schema);
    let converted = rewrite(tool, &database, args.get(2), "converted", |database| {
        let random = random()?;
        let mut uuids = UuidSource::new(random);
        let old = database.snapshot();
        drop(database);
        weir_engine::convert(&old, schema, &mut uuids, random[0])
            .map(|converted| converted.database)
            .map_err(|error| Failure::new(error.to_string()))
    })?;
    keys::follow(tool, &target, &wishes);
    Ok(converted)
}

/// Randomness for UUIDs and hashes.
pub(super) fn random() -> Result<[u64; 4], Failure> {
    weir_host::seed().map_err(|error| Failure::io("no random numbers", &error))
}

/// Reads `source`, changes it, and writes the result to `destination` or in its place.
fn rewrite(
    tool: &Tool,
    source: &Path,
    destination: Option<&String>,
    done: &str,
    change: impl FnOnce(Database) -> Result<Database, Failure>,
) -> Outcome {
    let source = follow_links(source);
    let target = match destination {
        Some(name) => follow_links(Path::new(name)),
        None => temporary_path(&source),
    };
    let _source_lock = match destination {
        Some(_) => None,
        None => Some(lock(tool, &source)?),
    };
    let _target_lock = lock(tool, &target)?;
    let database = change(load::load(&source, random()?[0])?.database)?;
    let snapshot = database.snapshot();
    drop(database);
    let comment = format!("{done} by ovsdb-tool {}", weir_host::version::OVS_VERSION);
    match destination {
        Some(_) => write_to(&target, &snapshot, &comment)?,
        None => replace(&source, |sink| write(&snapshot, &comment, sink))?,
    }
    // Nobody waits for memory to be given back row by row.
    std::mem::forget(snapshot);
    Ok(ExitCode::SUCCESS)
}

/// Locks a file by the reference's rules.
pub(super) fn lock(tool: &Tool, path: &Path) -> Result<LockFile, Failure> {
    LockFile::lock(&lock_path(path), &[]).map_err(|LockError { error, warnings }| {
        for warning in warnings {
            tool.log.log("lockfile", Level::Warn, &warning);
        }
        Failure::io(format!("{}: failed to lock lockfile", path.display()), &error)
    })
}

/// Takes bytes to write.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Failure>;

/// Writes a new file and puts it in the place of `path`.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(Sink<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let temporary = temporary_path(path);
    let written = |error| failed(&temporary, "write failed", &error);
    let like = path.metadata().map_err(|error| failed(path, "stat failed", &error))?;
    let mut file = Replacement::create(path, &like)
        .map_err(|error| failed(&temporary, "create failed", &error))?;
    write(&mut |bytes| file.write(bytes).map_err(written))?;
    file.sync().map_err(written)?;
    file.rename_over(path).map_err(|error| {
        let (from, to) = (temporary.display(), path.display());
        Failure::io(format!("failed to rename \"{from}\" to \"{to}\""), &error)
    })?;
    sync_folder(path);
    Ok(())
}

/// Writes a file that need not be there, and may be the one that was read.
fn write_to(path: &Path, snapshot: &Snapshot, comment: &str) -> Result<(), Failure> {
    let there = check_destination(path)?;
    let mut file = Beside::create(path, there.as_ref())
        .map_err(|error| failed(path, "create or open failed", &error))?;
    let written = |error| failed(path, "write failed", &error);
    write(snapshot, comment, &mut |bytes| file.write(bytes).map_err(written))?;
    file.sync().map_err(written)?;
    file.rename_over(path).map_err(|error| failed(path, "rename failed", &error))
}

/// What is at a destination; only an empty file or a standalone database may be.
fn check_destination(path: &Path) -> Result<Option<Metadata>, Failure> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let cannot = |error| failed(path, "create or open failed", &error);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(cannot)?,
    };
    let there = file.metadata().map_err(cannot)?;
    if there.len() > 0 && LogFile::open(path)?.1 != Magic::Standalone {
        let path = path.display();
        return Err(Failure::new(format!("ovsdb error: {path}: unexpected file format")));
    }
    if !there.is_file() {
        // A device or a pipe: the reference empties what it overwrites, and finds out.
        let error = file.set_len(0).err().unwrap_or(Errno::INVAL.into());
        return Err(failed(path, "cannot truncate to length 0", &error));
    }
    Ok(Some(there))
}

fn write(snapshot: &Snapshot, comment: &str, sink: Sink<'_>) -> Result<(), Failure> {
    let mut schema = Vec::new();
    write_schema(&mut schema, snapshot.schema());
    sink(&schema)?;
    let (mut progress, mut done) = (Progress::bytes("writing", None), 0);
    write_snapshot(snapshot, weir_host::wall_ms(), Some(comment), &mut |bytes: &[u8]| {
        done += bytes.len() as u64;
        progress.at(done);
        sink(bytes)
    })?;
    Ok(())
}

/// An I/O error of a log, as the reference words it.
pub(super) fn failed(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("I/O error: {}: {what} ({})", path.display(), strerror(error)))
}
