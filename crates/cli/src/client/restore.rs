//! `restore`: everything in a database is replaced by what a file holds, in one transaction.
//!
//! A snapshot in a regular file, the usual case, is sent while it is read:
//! 1. Its schema must have the version of the database's, or the user insists.
//! 2. For each table one `delete` of all rows is sent, and an `insert` a row, named after its UUID,
//!    so that references find it.
//! 3. Only behind the last good row does the message end. If something is wrong before, the server
//!    never sees a whole one.
//!
//! Whatever else comes from standard input (a pipe, a file with a history, a bad one) is first
//! replayed as a server would replay it.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

use weir_data::{Schema, Store};
use weir_host::vlog::Level;
use weir_json::Text;
use weir_log::standalone::{NotASnapshot, Replayer, SnapshotRows};

use super::Client;
use super::failures::hint_for;
use super::insertion::Insertions;
use super::remote::{Target, connect};
use super::schema::fetch;
use super::session::Session;
use crate::program::{Failure, Outcome, strerror};
use crate::progress::{Progress, Waiting};

/// Bytes read at once.
const READ_SIZE: usize = 256 << 10;

/// Operations are collected up to this many bytes before they are sent.
const PIECE_SIZE: usize = 256 << 10;

/// Records of at least this size are read row by row.
const PIECES_MIN: u64 = 1 << 20;

/// What messages call standard input.
const INPUT: &str = "/dev/stdin";

/// Runs the command `restore`.
pub(super) fn restore(client: &Client, mut target: Target) -> Outcome {
    if io::stdin().is_terminal() {
        let text = "not reading backup from a terminal; please redirect stdin from a file";
        return Err(Failure::new(text));
    }
    let mut input = Input::open()?;
    if input.start.is_some() {
        let is_begun = match send_snapshot(client, &mut target, &mut input) {
            Ok(id) => return end(&mut target.session, id),
            Err(Direct::Failed(failure)) => return Err(failure),
            Err(Direct::Other { is_begun }) => is_begun,
        };
        input.rewind()?;
        if is_begun {
            let store = input.replay()?;
            // Half a message cannot be taken back.
            target.session = connect(client, &target.server)?;
            return send_store(&mut target.session, &store);
        }
    }
    let store = input.replay()?;
    let schema = fetch(&mut target.session, &target.database)?;
    check_version(client, store.schema(), &schema)?;
    send_store(&mut target.session, &store)
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

/// Why a file is not sent while it is read.
enum Direct {
    /// The file is not a snapshot, or one that must be looked at first.
    Other {
        /// A part of the message has been sent.
        is_begun: bool,
    },
    Failed(Failure),
}

impl<F: Into<Failure>> From<F> for Direct {
    fn from(failure: F) -> Self {
        Self::Failed(failure.into())
    }
}

/// Sends a snapshot while it is read; the request's id.
fn send_snapshot(client: &Client, target: &mut Target, input: &mut Input) -> Result<i64, Direct> {
    let mut rows = SnapshotRows::new(0);
    let schema = loop {
        let bytes = input.read()?;
        let is_end = bytes.is_empty();
        let fed = rows.feed(bytes, &mut |_, _| ());
        match rows.schema() {
            Some(schema) if fed.is_ok() => break Arc::clone(schema),
            None if fed.is_ok() && !is_end => {}
            _ => return Err(Direct::Other { is_begun: false }),
        }
    };
    let has = fetch(&mut target.session, &target.database)?;
    if schema.version != has.version && !client.options.force {
        // What is wrong with the rest of the file is told first.
        return Err(Direct::Other { is_begun: false });
    }
    check_version(client, &schema, &has)?;
    let unusual = |NotASnapshot| Direct::Other { is_begun: true };
    let mut sending = Sending::begin(&mut target.session, &schema)?;
    let mut progress = Progress::bytes("restore", input.length);
    loop {
        let bytes = input.read()?;
        let is_end = bytes.is_empty();
        rows.feed(bytes, &mut |table, row| sending.insertions.row(table, row)).map_err(unusual)?;
        sending.send(PIECE_SIZE)?;
        progress.at(input.done);
        if is_end {
            break;
        }
    }
    rows.finish(&mut |table, row| sending.insertions.row(table, row)).map_err(unusual)?;
    Ok(sending.end()?)
}

fn send_store(session: &mut Session, store: &Store) -> Outcome {
    let count: usize = store.schema().table_ids().map(|(id, _)| store.table(id).len()).sum();
    let mut progress = Progress::rows("sending", count as u64);
    let mut sending = Sending::begin(session, store.schema())?;
    let mut done = 0;
    for (id, _) in store.schema().table_ids() {
        for row in store.table(id).iter() {
            sending.insertions.row(id, row);
            sending.send(PIECE_SIZE)?;
            done += 1;
            progress.at(done);
        }
    }
    let id = sending.end()?;
    drop(progress);
    end(session, id)
}

/// Waits for the results.
fn end(session: &mut Session, id: i64) -> Outcome {
    let _waiting = Waiting::new("waiting");
    session.reply(id, check_results)??;
    Ok(ExitCode::SUCCESS)
}

/// Whether all operations of a transaction succeeded.
pub(super) fn check_results(results: Text<'_>) -> Result<(), Failure> {
    let results = results.elements().ok_or_else(|| Failure::new("result is not array"))?;
    for result in results {
        let is_error = result.object().map(|result| result.get("error").is_some());
        match is_error {
            Some(false) => {}
            Some(true) => {
                let text = format!("server returned error reply: {}", result.to_value());
                let hint = hint_for(&text);
                return Err(Failure::new(text).maybe_hint(hint));
            }
            None => return Err(Failure::new("result array element is not object")),
        }
    }
    Ok(())
}

/// The request while it is written.
struct Sending<'a> {
    session: &'a mut Session,
    id: i64,
    insertions: Insertions,
}

impl<'a> Sending<'a> {
    fn begin(session: &'a mut Session, schema: &Arc<Schema>) -> Result<Self, Failure> {
        let id = session.begin_request("transact")?;
        Ok(Self { session, id, insertions: Insertions::new(schema) })
    }

    /// Sends what has been written, if it is worth it.
    fn send(&mut self, least: usize) -> Result<(), Failure> {
        let json = &mut self.insertions.json;
        if json.len() < least {
            return Ok(());
        }
        let sent = self.session.write(json);
        json.clear();
        Ok(sent?)
    }

    fn end(mut self) -> Result<i64, Failure> {
        self.insertions.end();
        self.send(0)?;
        self.session.end_request("transact", b"[...]", self.id)?;
        Ok(self.id)
    }
}

/// Standard input, read in pieces.
struct Input {
    file: File,
    /// Where in a regular file it begins.
    start: Option<u64>,
    /// Bytes in all, if they are known.
    length: Option<u64>,
    done: u64,
    buffer: Vec<u8>,
}

impl Input {
    fn open() -> Result<Self, Failure> {
        let mut file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(unreadable)?);
        let metadata = file.metadata().map_err(unreadable)?;
        let start = metadata.is_file().then(|| file.stream_position().ok()).flatten();
        let length = start.map(|start| metadata.len().saturating_sub(start));
        Ok(Self { file, start, length, done: 0, buffer: vec![0; READ_SIZE] })
    }

    /// The next bytes; none at the end.
    fn read(&mut self) -> Result<&[u8], Failure> {
        let count = loop {
            match self.file.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(unreadable)?,
            }
        };
        self.done += count as u64;
        Ok(self.buffer.get(..count).unwrap_or_default())
    }

    /// Back to where a regular file began.
    fn rewind(&mut self) -> Result<(), Failure> {
        self.seek(0)
    }

    fn seek(&mut self, offset: u64) -> Result<(), Failure> {
        self.done = offset;
        let place = SeekFrom::Start(self.start.unwrap_or_default() + offset);
        self.file.seek(place).map(|_| ()).map_err(unreadable)
    }

    /// The rows after the last record; each must be good.
    fn replay(&mut self) -> Result<Store, Failure> {
        let failure = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let mut progress = Progress::bytes("reading", self.length);
        let pieces_min = if self.start.is_some() { PIECES_MIN } else { u64::MAX };
        let mut replayer = Replayer::seekable(INPUT, 0, pieces_min);
        loop {
            let bytes = self.read()?;
            if bytes.is_empty() {
                break;
            }
            replayer.feed(bytes).map_err(|error| failure(&error))?;
            if let Some(offset) = replayer.again_from() {
                self.seek(offset)?;
            }
            progress.at(self.done);
        }
        let loaded = replayer.finish().map_err(|error| failure(&error))?;
        match loaded.warning {
            Some(warning) => Err(Failure::new(warning)),
            None => Ok(loaded.store),
        }
    }
}

fn unreadable(error: io::Error) -> Failure {
    Failure::new(format!("ovsdb error: {INPUT}: {}", strerror(&error)))
}
