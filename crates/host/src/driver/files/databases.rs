//! Effects on database files.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use weir_data::store::Snapshot;
use weir_net::error::strerror;
use weir_server::event::{ConversionError, DbId, Event};
use weir_server::load::{Converted, Finished, Loaded, Loader, write_snapshot};

use crate::coverage::{Counter, Coverage};
use crate::disk::{DatabaseFile, Identity, Replacement, inode};
use crate::driver::files::jobs::{Done, Jobs};
use crate::vlog::{Level, Vlog};

/// Bytes handed to the loader at once.
const LOAD_BYTES: usize = 1 << 20;

/// The rows of a converted database, to be written, and the database.
type Conversion = (Snapshot, Box<Converted>);

/// Open files by database.
#[derive(Default)]
pub(crate) struct Databases {
    files: BTreeMap<DbId, Entry>,
}

struct Entry {
    file: DatabaseFile,
    /// The path as the user gave it.
    name: String,
    /// A helper is writing a compacted copy.
    compacting: bool,
    /// The compacted copy, once it is written.
    replacement: Option<Replacement>,
}

impl Drop for Entry {
    /// A helper that is still writing cannot clean up any more when the process ends.
    fn drop(&mut self) {
        if self.compacting {
            self.file.discard_replacement();
        }
    }
}

impl Databases {
    /// Locks and opens a file and has it read by a helper.
    pub(crate) fn open(
        &mut self,
        db: DbId,
        name: String,
        seed: u64,
        jobs: &Jobs,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) {
        let failed = move |error| Done::Loaded(db, Err(error));
        match self.try_open(&name, log) {
            Ok((file, reader)) => {
                let path = name.clone();
                jobs.spawn("load", move || Done::Loaded(db, load(&path, reader, seed)), failed);
                self.files.insert(db, Entry { file, name, compacting: false, replacement: None });
            }
            Err(error) => events.push(Event::Opened { db, result: Err(error) }),
        }
    }

    fn try_open(&self, name: &str, log: &Vlog) -> Result<(DatabaseFile, std::fs::File), String> {
        let path = Path::new(name);
        let same = |entry: &Entry| inode(Path::new(&entry.name)) == inode(path);
        if inode(path).is_some() && self.files.values().any(same) {
            return Err(format!("ovsdb error: {name}: already open"));
        }
        let held: Vec<Identity> = self.files.values().map(|entry| entry.file.identity()).collect();
        let file = DatabaseFile::open(path, &held).map_err(|error| {
            for warning in &error.warnings {
                log.log("lockfile", Level::Warn, warning);
            }
            error.text
        })?;
        let reader = file.reader().map_err(|error| read_error(name, &error))?;
        Ok((file, reader))
    }

    /// A helper has read the file.
    pub(crate) fn loaded(
        &mut self,
        db: DbId,
        result: Result<Box<Loaded>, String>,
        events: &mut Vec<Event>,
    ) {
        // The database was closed meanwhile: nobody waits for the answer.
        let Some(entry) = self.files.get_mut(&db) else { return };
        let result = result.and_then(|loaded| {
            let placed = entry.file.set_valid_len(loaded.valid_len());
            placed.map(|()| loaded).map_err(|error| read_error(&entry.name, &error))
        });
        if result.is_err() {
            self.files.remove(&db);
        }
        events.push(Event::Opened { db, result });
    }

    /// Appends records.
    pub(crate) fn append(
        &mut self,
        db: DbId,
        records: &[u8],
        sync: bool,
        coverage: &mut Coverage,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) {
        coverage.add(Counter::Appends, 1);
        coverage.add(Counter::BytesAppended, records.len() as u64);
        coverage.add(Counter::Syncs, u64::from(sync));
        let entry = self.files.get_mut(&db).expect("the core appends to files that are open");
        let was_suspect = entry.file.is_suspect();
        let result = entry.file.append(records, sync);
        log_notice(&mut entry.file, log);
        if entry.file.is_suspect() && !was_suspect {
            events.push(Event::FileSuspect { db });
        }
        events.push(Event::Appended { db, result });
    }

    /// Closes and unlocks.
    pub(crate) fn close(&mut self, db: DbId) {
        self.files.remove(&db);
    }

    /// Removes a copy that is not to take the place of its file.
    pub(crate) fn discard_copy(&mut self, db: DbId) {
        if let Some(entry) = self.files.get_mut(&db) {
            entry.replacement = None;
        }
    }

    /// Where a helper is to write a copy that will take the place of the file.
    fn begin_copy(&mut self, db: DbId) -> Option<Result<Replacement, String>> {
        let entry = self.files.get_mut(&db)?;
        entry.replacement = None;
        let replacement = entry.file.replacement().map_err(|error| strerror(&error));
        entry.compacting |= replacement.is_ok();
        Some(replacement)
    }

    /// Has a helper write a compacted copy.
    pub(crate) fn compact(
        &mut self,
        db: DbId,
        snapshot: Snapshot,
        comment: String,
        date_ms: i64,
        jobs: &Jobs,
        events: &mut Vec<Event>,
    ) {
        match self.begin_copy(db) {
            None => {}
            Some(Ok(replacement)) => {
                let failed = move |error| Done::Compacted(db, Err(error));
                let work = move || {
                    Done::Compacted(db, write_copy(replacement, &snapshot, &comment, date_ms))
                };
                jobs.spawn_nice("compact", work, failed);
            }
            Some(Err(error)) => {
                events.push(Event::CompactionWritten { db, result: Err(error) });
            }
        }
    }

    /// A helper has written the copy.
    pub(crate) fn compacted(
        &mut self,
        db: DbId,
        result: Result<Replacement, String>,
        events: &mut Vec<Event>,
    ) {
        let Some(entry) = self.files.get_mut(&db) else { return };
        entry.compacting = false;
        let result = result.map(|replacement| entry.replacement.insert(replacement).len());
        events.push(Event::CompactionWritten { db, result });
    }

    /// Has a helper convert the database and write the result.
    pub(crate) fn convert(
        &mut self,
        db: DbId,
        convert: impl FnOnce() -> Result<Conversion, ConversionError> + Send + 'static,
        comment: String,
        date_ms: i64,
        jobs: &Jobs,
        events: &mut Vec<Event>,
    ) {
        match self.begin_copy(db) {
            None => {}
            Some(Ok(replacement)) => {
                let failed = move |error| Done::Converted(db, Err(ConversionError::Failed(error)));
                let work = move || {
                    let result = convert().and_then(|(snapshot, converted)| {
                        write_copy(replacement, &snapshot, &comment, date_ms)
                            .map(|replacement| (replacement, converted))
                            .map_err(ConversionError::Failed)
                    });
                    Done::Converted(db, result)
                };
                jobs.spawn("convert", work, failed);
            }
            Some(Err(error)) => {
                let result = Err(ConversionError::Failed(error));
                events.push(Event::Converted { db, result });
            }
        }
    }

    /// A helper has converted the database and written the copy.
    pub(crate) fn converted(
        &mut self,
        db: DbId,
        result: Result<(Replacement, Box<Converted>), ConversionError>,
        jobs: &Jobs,
        events: &mut Vec<Event>,
    ) {
        let Some(entry) = self.files.get_mut(&db) else {
            // The database was removed meanwhile: to free another one takes a while.
            let free = move || {
                drop(result);
                Done::Nothing
            };
            return jobs.spawn("free", free, |_| Done::Nothing);
        };
        entry.compacting = false;
        let result = result.map(|(replacement, converted)| {
            entry.replacement = Some(replacement);
            converted
        });
        events.push(Event::Converted { db, result });
    }

    /// Puts the copy in the file's place.
    pub(crate) fn finish_compaction(
        &mut self,
        db: DbId,
        tail: &[u8],
        sync: bool,
        jobs: &Jobs,
        log: &Vlog,
    ) -> Event {
        let entry = self.files.get_mut(&db).expect("the core replaces files that are open");
        let replacement = entry.replacement.take();
        let replacement = replacement.expect("the core was told that the copy is written");
        let result = entry.file.replace(replacement, tail, sync);
        log_notice(&mut entry.file, log);
        let sync = entry.file.directory_sync();
        let work = move || {
            sync();
            Done::Nothing
        };
        jobs.spawn("sync", work, |_| Done::Nothing);
        Event::CompactionFinished { db, result }
    }
}

/// Something that could not be read has been cut off.
fn log_notice(file: &mut DatabaseFile, log: &Vlog) {
    if let Some(notice) = file.take_notice() {
        log.log("ovsdb_log", Level::Warn, &notice);
    }
}

/// Reads a whole file; runs in a helper.
fn load(name: &str, mut file: std::fs::File, seed: u64) -> Result<Box<Loaded>, String> {
    let mut loader = Loader::seekable(name, seed);
    let mut buffer = vec![0; LOAD_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => match loader.finish()? {
                Finished::Loaded(loaded) => return Ok(loaded),
                Finished::Again(again) => {
                    loader = again;
                    file.rewind().map_err(|error| read_error(name, &error))?;
                }
            },
            Ok(count) => {
                loader.feed(&buffer[..count])?;
                if let Some(offset) = loader.again_from() {
                    let back = file.seek(SeekFrom::Start(offset));
                    back.map_err(|error| read_error(name, &error))?;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_error(name, &error)),
        }
    }
}

fn read_error(name: &str, error: &std::io::Error) -> String {
    format!("I/O error: {name}: read failed ({})", strerror(error))
}

/// Writes schema and rows; runs in a helper.
fn write_copy(
    mut replacement: Replacement,
    snapshot: &Snapshot,
    comment: &str,
    date_ms: i64,
) -> Result<Replacement, String> {
    let mut sink = |bytes: &[u8]| replacement.write(bytes).map_err(|error| strerror(&error));
    write_snapshot(snapshot, comment, date_ms, &mut sink)?;
    replacement.sync().map_err(|error| strerror(&error))?;
    Ok(replacement)
}
