//! Effects on database files.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use weir_data::Schema;
use weir_net::error::strerror;
use weir_server::effect::{READ_FILE_BYTES_MAX, Step};
use weir_server::event::{ConversionError, DbId, Event, SyncTime, WorkId};
use weir_server::load::{Converted, Loaded, convert_rows, converted_image};
use weir_server::work::{Load, ReadAt, Search};

use crate::coverage::{Counter, Coverage};
use crate::disk::{
    DatabaseFile, Identity, LockError, Replacement, SideFile, inode, side_path, write_keys,
};
use crate::driver::files::copies::{Copy, Place, Source, load, read_error};
use crate::driver::files::jobs::{Done, Jobs};
use crate::driver::files::received::{Piece, Received};
use crate::driver::files::steps::Steps;
use crate::driver::lane::Lane;
use crate::vlog::{Level, Vlog};

/// Why a copy is neither extended nor put in place.
const LOST: &str = "the copy was lost";

/// Open files by database.
#[derive(Default)]
pub(crate) struct Databases {
    files: BTreeMap<DbId, Entry>,
}

struct Entry {
    file: DatabaseFile,
    /// The path as the user gave it.
    name: String,
    /// For helpers.
    log: Vlog,
    /// A helper is writing a compacted or converted copy that is wanted.
    compacting: bool,
    /// How often copies were given up: what comes of one that was begun before concerns nobody.
    given_up: u64,
    /// The compacted copy, once it is written.
    copy: Option<Copy>,
    /// Where the file's side file is, if there is one.
    side_file: Option<PathBuf>,
    /// A file that comes from elsewhere, while it is written, and how many of them there were.
    received: Option<Received>,
    received_ever: u64,
    steps: Steps,
    /// How many files have had this one's place.
    replaced: u64,
    /// The step that put the file in its place, and the file's length then, until the directory is known
    /// to show it.
    unshown: Option<(u64, u64)>,
    /// Who waits for fdatasync(2), and who reads pieces.
    syncing: Lane,
    reading: Lane,
    /// Who writes which keys are declared.
    keys: Lane,
}

impl Drop for Entry {
    /// A helper that is still writing cannot clean up any more when the process ends.
    fn drop(&mut self) {
        if self.compacting || self.received.is_some() {
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
                let (shown, target) = (name.clone(), file.path().to_owned());
                let work = move || Done::Loaded(db, load(&shown, &target, reader, seed));
                jobs.spawn("load", work, failed);
                self.files.insert(db, Entry::new(file, name, log.clone()));
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
        let file = DatabaseFile::open(path, &self.held()).map_err(|error| {
            for warning in &error.warnings {
                log.log("lockfile", Level::Warn, warning);
            }
            error.text
        })?;
        let reader = file.reader().map_err(|error| read_error(name, &error))?;
        Ok((file, reader))
    }

    /// The locks of this process.
    fn held(&self) -> Vec<Identity> {
        self.files.values().flat_map(|entry| entry.file.held()).collect()
    }

    /// Another file is about to be written that takes this one's place: where its name leads to now.
    fn follow_name(&mut self, db: DbId) -> io::Result<()> {
        let held = self.held();
        let entry = self.files.get_mut(&db).expect("the core replaces files that are open");
        let before = entry.file.path().to_owned();
        match entry.file.follow_name(&held) {
            Ok(None) => Ok(()),
            Ok(Some(now)) => {
                let (name, before, now) = (&entry.name, before.display(), now.display());
                let text = format!("{name}: leads to {now} now, and no more to {before}");
                entry.log.log("ovsdb_log", Level::Warn, &text);
                Ok(())
            }
            Err(LockError { error, warnings }) => {
                warnings.iter().for_each(|warning| entry.log.log("lockfile", Level::Warn, warning));
                Err(error)
            }
        }
    }

    /// A helper has read the file.
    pub(crate) fn loaded(
        &mut self,
        db: DbId,
        result: Result<Box<Loaded>, String>,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) {
        // The database was closed meanwhile: nobody waits for the answer.
        let Some(entry) = self.files.get_mut(&db) else { return };
        let result = result.and_then(|loaded| {
            let placed = entry.file.set_valid_len(loaded.valid_len());
            placed.map(|()| loaded).map_err(|error| read_error(&entry.name, &error))
        });
        match &result {
            Err(_) => drop(self.files.remove(&db)),
            Ok(loaded) => {
                if loaded.is_clustered() {
                    entry.file.keep_room();
                }
                let text = loaded.side_file();
                entry.side_file = text.map(|text| side_path(entry.file.path(), &text));
                log_problem(&entry.name, "read", loaded.side_file_problem(), log);
            }
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

    /// Writes a step now, and has it brought to the disk elsewhere if `sync`. Answers whether it is
    /// written.
    #[allow(clippy::too_many_arguments, reason = "what an effect has, and what it is done with")]
    pub(crate) fn persist(
        &mut self,
        db: DbId,
        step: Step,
        records: &[u8],
        (sync, is_urgent): (bool, bool),
        jobs: &Jobs,
        coverage: &mut Coverage,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) -> bool {
        coverage.add(Counter::Appends, 1);
        coverage.add(Counter::BytesAppended, records.len() as u64);
        let entry = self.files.get_mut(&db).expect("the core appends to files that are open");
        let checked = entry.steps.check(step);
        let result = checked.and_then(|()| entry.file.append_keeping_room(records, is_urgent));
        log_notice(&mut entry.file, log);
        let is_written = result.is_ok();
        entry.steps.note(step.number, result, sync);
        entry.sync_steps(db, jobs, coverage, events);
        is_written
    }

    /// A helper has waited for the disk.
    pub(crate) fn synced(
        &mut self,
        db: DbId,
        file: u64,
        result: &Result<SyncTime, String>,
        jobs: &Jobs,
        coverage: &mut Coverage,
        events: &mut Vec<Event>,
    ) {
        // The database was closed meanwhile, or another file has taken the place of that one.
        let Some(entry) = self.files.get_mut(&db).filter(|entry| entry.replaced == file) else {
            return;
        };
        if result.is_err() {
            entry.file.mark_suspect();
        }
        let mut answers = Vec::new();
        entry.steps.synced(result);
        entry.sync_steps(db, jobs, coverage, &mut answers);
        if result.is_err() {
            // It is the new file that is suspect, and not the one that it has replaced.
            let is_finished = |event: &Event| matches!(event, Event::CompactionFinished { .. });
            let at = answers.iter().position(is_finished).map_or(0, |finished| finished + 1);
            answers.insert(at, Event::FileSuspect { db });
        }
        events.append(&mut answers);
    }

    /// Has a helper read a piece of a file as it is now.
    pub(crate) fn read(&mut self, db: DbId, id: WorkId, offset: u64, len: u64, jobs: &Jobs) {
        assert!(len <= READ_FILE_BYTES_MAX, "the core reads in pieces");
        let entry = self.files.get_mut(&db).expect("the core reads files that are open");
        let (reader, valid_len) = (entry.file.reader(), entry.file.valid_len());
        let work = move || {
            let is_there = offset.checked_add(len).is_some_and(|end| end <= valid_len);
            let result = reader.and_then(|file| {
                // What follows the last record is going to be written over.
                let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
                if !is_there {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                file.read_exact_at(&mut bytes, offset).map(|()| bytes)
            });
            Done::Read(db, id, result.map_err(|error| piece_error(&error)))
        };
        jobs.spawn_in(&mut entry.reading, work, move |error| Done::Read(db, id, Err(error)));
    }

    /// A helper has read a piece.
    pub(crate) fn has_read(
        &self,
        db: DbId,
        id: WorkId,
        result: Result<Vec<u8>, String>,
        events: &mut Vec<Event>,
    ) {
        if self.files.contains_key(&db) {
            events.push(Event::FileRead { db, id, result });
        }
    }

    /// Gives a search the file as it is now, unless the database has none, as those of relays.
    pub(crate) fn give_file(&self, db: DbId, search: Box<Search>) -> Box<Search> {
        let Some(entry) = self.files.get(&db) else { return search };
        search.in_file(entry.file.valid_len(), read_at(entry.file.reader()))
    }

    /// Gives work the file that was received, or the file as it is now.
    pub(crate) fn give_loaded(&self, db: DbId, is_received: bool, load: Box<Load>) -> Box<Load> {
        let entry = self.files.get(&db).expect("the core loads files that are open");
        let copy = entry.copy.as_ref().filter(|_| is_received);
        load.in_file(read_at(match copy {
            Some(copy) => copy.replacement.reader(),
            None => entry.file.reader(),
        }))
    }

    /// Another file under the same name, with faults of its own; answers with the one that was there.
    #[cfg(test)]
    pub(crate) fn exchange(
        &mut self,
        db: DbId,
        file: impl Into<Arc<std::fs::File>>,
    ) -> Arc<std::fs::File> {
        self.files.get_mut(&db).expect("tests know what is open").file.exchange(file)
    }

    /// Another directory of a file, with faults of its own; answers with the one that was there.
    #[cfg(test)]
    pub(crate) fn exchange_directory(
        &self,
        db: DbId,
        other: Option<std::fs::File>,
    ) -> Option<std::fs::File> {
        self.files[&db].file.exchange_directory(other)
    }

    /// Closes and unlocks.
    pub(crate) fn close(&mut self, db: DbId) {
        self.files.remove(&db);
    }

    /// Removes a copy that is not to take the place of its file.
    pub(crate) fn discard_copy(&mut self, db: DbId) {
        if let Some(entry) = self.files.get_mut(&db) {
            entry.give_up_copies();
        }
    }

    /// Begins a file that comes from elsewhere.
    pub(crate) fn begin_received(&mut self, db: DbId, head: Vec<u8>, jobs: &Jobs) {
        let entry = self.files.get_mut(&db).expect("the core replaces files that are open");
        entry.give_up_copies();
        let followed = self.follow_name(db);
        let entry = self.files.get_mut(&db).expect("it was there");
        entry.received_ever += 1;
        let replacement = followed.and_then(|()| entry.file.replacement());
        entry.received = Some(Received::new(entry.received_ever, replacement));
        self.write_received(db, Piece::Write { offset: 0, bytes: head }, jobs);
    }

    /// Has a helper write a piece of such a file.
    pub(crate) fn write_received(&mut self, db: DbId, piece: Piece, jobs: &Jobs) {
        let received = self.received(db);
        let (shared, number) = (received.shared(), received.number);
        let work = move || {
            let (upto, result) = shared.take(&piece);
            Done::Received(db, number, upto, result)
        };
        let failed = move |error| Done::Received(db, number, 0, Err(error));
        jobs.spawn_in(&mut received.lane, work, failed);
    }

    /// Has a helper wait until such a file is on the disk.
    pub(crate) fn sync_received(&mut self, db: DbId, jobs: &Jobs) {
        let received = self.received(db);
        let (shared, number) = (received.shared(), received.number);
        let work = move || Done::ReceivedSynced(db, number, shared.finish());
        let failed = move |error| Done::ReceivedSynced(db, number, Err(error));
        jobs.spawn_in(&mut received.lane, work, failed);
    }

    fn received(&mut self, db: DbId) -> &mut Received {
        let entry = self.files.get_mut(&db).expect("the core replaces files that are open");
        entry.received.as_mut().expect("the core writes to what it has begun")
    }

    /// A helper has written a piece.
    pub(crate) fn has_received(
        &self,
        db: DbId,
        number: u64,
        (upto, result): (u64, Result<(), String>),
        events: &mut Vec<Event>,
    ) {
        let received = self.files.get(&db).and_then(|entry| entry.received.as_ref());
        if received.is_some_and(|received| received.number == number) {
            events.push(Event::ReceivedWritten { db, upto, result });
        }
    }

    /// A helper has brought such a file to the disk.
    pub(crate) fn received_synced(
        &mut self,
        db: DbId,
        number: u64,
        result: Result<Replacement, String>,
        events: &mut Vec<Event>,
    ) {
        let Some(entry) = self.files.get_mut(&db) else { return };
        if entry.received.take_if(|received| received.number == number).is_none() {
            return;
        }
        let result = result.map(|replacement| {
            let copy = Copy { replacement, side_file: None, problem: None };
            entry.copy.insert(copy).replacement.len()
        });
        events.push(Event::ReceivedSynced { db, result });
    }

    /// Has a helper write which keys are declared.
    pub(crate) fn keep_keys(&mut self, db: DbId, text: Option<Vec<u8>>, jobs: &Jobs) {
        let entry = self.files.get_mut(&db).expect("the core keeps keys of files that are open");
        let (target, like) = (entry.file.path().to_owned(), entry.file.metadata());
        let work = move || {
            let like = like.map_err(|error| strerror(&error));
            let result = like.and_then(|like| write_keys(&target, &like, text.as_deref()));
            Done::KeysKept(db, result)
        };
        jobs.spawn_in(&mut entry.keys, work, move |error| Done::KeysKept(db, Err(error)));
    }

    /// A helper has written which keys are declared, or has not.
    pub(crate) fn keys_kept(&self, db: DbId, result: Result<(), String>, events: &mut Vec<Event>) {
        if self.files.contains_key(&db) {
            events.push(Event::KeysKept { db, result });
        }
    }

    /// Where a helper is to write a copy that will take the place of the file.
    fn begin_copy(&mut self, db: DbId) -> Option<Result<(u64, Place), String>> {
        let entry = self.files.get_mut(&db)?;
        (entry.copy, entry.received) = (None, None);
        let followed = self.follow_name(db);
        let entry = self.files.get_mut(&db)?;
        let target = entry.file.path().to_owned();
        let place = followed
            .and_then(|()| entry.file.metadata())
            .and_then(|like| Ok(Place { replacement: entry.file.replacement()?, target, like }));
        entry.compacting |= place.is_ok();
        let given_up = entry.given_up;
        Some(place.map(|place| (given_up, place)).map_err(|error| strerror(&error)))
    }

    /// Has a helper write a compacted copy.
    pub(crate) fn compact(
        &mut self,
        db: DbId,
        source: Source,
        jobs: &Jobs,
        events: &mut Vec<Event>,
    ) {
        match self.begin_copy(db) {
            None => {}
            Some(Ok((number, place))) => {
                let failed = move |error| Done::Compacted(db, number, Err(error));
                let work = move || {
                    let Source { snapshot, comment, date_ms, history, member } = source;
                    if let Some(member) = member {
                        let copy = place.write_member(&member, &snapshot, (&comment, date_ms));
                        return Done::Compacted(db, number, copy);
                    }
                    let image = |_: &_| history.map(|image| *image);
                    let copy = place.write(&snapshot, (&comment, date_ms), image);
                    Done::Compacted(db, number, copy)
                };
                jobs.spawn_nice("compact", work, failed);
            }
            Some(Err(error)) => {
                events.push(Event::CompactionWritten { db, result: Err(error) });
            }
        }
    }

    /// Has a helper append records to a compacted copy.
    pub(crate) fn extend_copy(
        &mut self,
        db: DbId,
        records: Vec<u8>,
        jobs: &Jobs,
        events: &mut Vec<Event>,
    ) {
        let entry = self.files.get_mut(&db).expect("the core replaces files that are open");
        let Some(copy) = entry.copy.take() else {
            let result = Err(LOST.to_owned());
            return events.push(Event::CompactionWritten { db, result });
        };
        entry.compacting = true;
        let number = entry.given_up;
        let failed = move |error| Done::Compacted(db, number, Err(error));
        let work = move || Done::Compacted(db, number, copy.extended(&records));
        jobs.spawn_nice("compact", work, failed);
    }

    /// A helper has written the copy, or more of it.
    pub(crate) fn compacted(
        &mut self,
        db: DbId,
        number: u64,
        result: Result<Copy, String>,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) {
        let Some(entry) = self.files.get_mut(&db).filter(|entry| entry.given_up == number) else {
            return;
        };
        entry.compacting = false;
        let result = result.map(|copy| entry.take_copy(copy, log));
        events.push(Event::CompactionWritten { db, result });
    }

    /// Has a helper convert the database and write the result.
    pub(crate) fn convert(
        &mut self,
        db: DbId,
        source: Source,
        schema: Arc<Schema>,
        seed: [u64; 4],
        jobs: &Jobs,
        events: &mut Vec<Event>,
    ) {
        match self.begin_copy(db) {
            None => {}
            Some(Ok((number, place))) => {
                let failed =
                    move |error| Done::Converted(db, number, Err(ConversionError::Failed(error)));
                let work = move || {
                    Done::Converted(db, number, write_converted(place, source, schema, seed))
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
        number: u64,
        result: Result<(Copy, Box<Converted>), ConversionError>,
        jobs: &Jobs,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) {
        let Some(entry) = self.files.get_mut(&db).filter(|entry| entry.given_up == number) else {
            // The database was removed meanwhile, or the copy given up: to free another one takes a while.
            let free = move || {
                drop(result);
                Done::Nothing
            };
            return jobs.spawn("free", free, |_| Done::Nothing);
        };
        entry.compacting = false;
        let result = result.map(|(copy, converted)| {
            entry.take_copy(copy, log);
            converted
        });
        events.push(Event::Converted { db, result });
    }

    /// Puts the copy in the file's place.
    #[allow(clippy::too_many_arguments, reason = "what an effect has, and what it is done with")]
    pub(crate) fn finish_compaction(
        &mut self,
        db: DbId,
        tail: &[u8],
        sync: bool,
        step: Option<Step>,
        jobs: &Jobs,
        coverage: &mut Coverage,
        log: &Vlog,
        events: &mut Vec<Event>,
    ) {
        let entry = self.files.get_mut(&db).expect("the core replaces files that are open");
        // One that follows what could not be written stays for another time.
        let checked = step.map_or(Ok(()), |step| entry.steps.check(step));
        let copy = checked.and_then(|()| entry.copy.take().ok_or_else(|| LOST.to_owned()));
        let copy = match copy {
            Ok(copy) => copy,
            Err(error) => {
                entry.sync_steps(db, jobs, coverage, events);
                return events.push(Event::CompactionFinished { db, result: Err(error) });
            }
        };
        let sync = sync || entry.steps.has_unsynced();
        let result = entry.file.replace(copy.replacement, tail, sync).inspect(|len| {
            entry.replaced += 1;
            entry.steps.replaced(step, sync && entry.file.is_shown());
            if let Some(step) = step.filter(|_| sync && !entry.file.is_shown()) {
                // After a power failure the old file may be there again: it is answered behind what
                // waits for the directory.
                entry.steps.note(step.number, Ok(()), true);
                entry.unshown = Some((step.number, *len));
            }
        });
        log_notice(&mut entry.file, log);
        let old = result.is_ok().then(|| {
            let new = copy.side_file.and_then(SideFile::keep);
            std::mem::replace(&mut entry.side_file, new)
        });
        let old = old.flatten().filter(|old| Some(old) != entry.side_file.as_ref());
        let sync = entry.file.directory_sync();
        let work = move || {
            sync();
            // Behind the sync: what is found after a power failure is a pair.
            old.into_iter().for_each(|old| drop(std::fs::remove_file(old)));
            Done::Nothing
        };
        jobs.spawn("sync", work, |_| Done::Nothing);
        let is_unshown = entry.unshown.is_some();
        entry.sync_steps(db, jobs, coverage, events);
        if !is_unshown {
            events.push(Event::CompactionFinished { db, result });
        }
    }
}

/// Reads as pread(2) does.
fn read_at(file: io::Result<std::fs::File>) -> ReadAt {
    Box::new(move |offset, room: &mut [u8]| {
        let file = file.as_ref().map_err(strerror)?;
        loop {
            match file.read_at(room, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.map_err(|error| strerror(&error)),
            }
        }
    })
}

impl Entry {
    fn new(file: DatabaseFile, name: String, log: Vlog) -> Self {
        Self {
            file,
            name,
            log,
            compacting: false,
            given_up: 0,
            copy: None,
            side_file: None,
            received: None,
            received_ever: 0,
            steps: Steps::default(),
            replaced: 0,
            unshown: None,
            syncing: Lane::new("fdatasync"),
            reading: Lane::new("read"),
            keys: Lane::new("keys"),
        }
    }

    /// What is, or is being, written to take the file's place is not wanted any more.
    fn give_up_copies(&mut self) {
        if self.compacting || self.received.is_some() {
            // The helper that is at it goes on, to no effect.
            self.file.discard_replacement();
        }
        (self.copy, self.received) = (None, None);
        self.compacting = false;
        self.given_up += 1;
    }

    /// Answers the steps that are decided, and has what is written brought to the disk.
    fn sync_steps(
        &mut self,
        db: DbId,
        jobs: &Jobs,
        coverage: &mut Coverage,
        events: &mut Vec<Event>,
    ) {
        if self.steps.begin_sync() {
            coverage.add(Counter::Syncs, 1);
            let (log, name, file) = (self.log.clone(), self.name.clone(), self.replaced);
            let sync = self.file.sync_elsewhere(move |error| {
                let error = strerror(error);
                let text = format!(
                    "{name}: cannot sync its directory, nothing more is acknowledged: {error}"
                );
                log.log_limited("directory", "ovsdb_log", Level::Err, &text);
            });
            let work = move || {
                let begun = Instant::now();
                let synced = sync();
                let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                let result = synced.map(|()| SyncTime(took_us));
                Done::Synced(db, file, result.map_err(|error| strerror(&error)))
            };
            let failed = move |error| Done::Synced(db, file, Err(error));
            jobs.spawn_in(&mut self.syncing, work, failed);
        }
        while let Some((step, result)) = self.steps.pop_answer() {
            events.push(match self.unshown.take_if(|(copy, _)| *copy == step) {
                // The directory shows it by now, and it was on the disk before.
                Some((_, len)) => Event::CompactionFinished { db, result: Ok(len) },
                None => Event::Persisted { db, step, result },
            });
        }
    }

    /// A helper has written a copy; answers with its length.
    fn take_copy(&mut self, mut copy: Copy, log: &Vlog) -> u64 {
        log_problem(&self.name, "written", copy.problem.take().as_deref(), log);
        self.copy.insert(copy).replacement.len()
    }
}

/// Converts the rows and writes what comes of them; runs in a helper.
fn write_converted(
    place: Place,
    source: Source,
    schema: Arc<Schema>,
    seed: [u64; 4],
) -> Result<(Copy, Box<Converted>), ConversionError> {
    let Source { snapshot, comment, date_ms, history, .. } = source;
    let converted = convert_rows(&snapshot, schema, seed)?;
    let image = |binding: &_| {
        let image = *history?;
        Some(converted_image(image, snapshot.schema(), &converted, binding))
    };
    let rows = converted.database.snapshot();
    let copy = place.write(&rows, (&comment, date_ms), image);
    copy.map(|copy| (copy, converted)).map_err(ConversionError::Failed)
}

/// Why a piece of a file could not be read.
fn piece_error(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "Unexpected end of file".to_owned(),
        _ => strerror(error),
    }
}

/// A side file could not be used.
fn log_problem(name: &str, what: &str, problem: Option<&str>, log: &Vlog) {
    if let Some(problem) = problem {
        let text =
            format!("{name}: the change log beside the file could not be {what} ({problem})");
        log.log("ovsdb", Level::Info, &text);
    }
}

/// Something that could not be read has been cut off.
fn log_notice(file: &mut DatabaseFile, log: &Vlog) {
    if let Some(notice) = file.take_notice() {
        log.log("ovsdb_log", Level::Warn, &notice);
    }
}
