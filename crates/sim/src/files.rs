//! What a server asks of its files, carried out on a disk that may be full, or fail.

use weir_engine::Converted;
use weir_server::event::{ConversionError, DbId, Event, SyncTime};
use weir_server::load::{Finished, Loaded, Loader};

use crate::world::{Due, World};

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Copies that a server asks for at most where none can be begun.
const TRIES_MAX: u64 = 1000;

/// How long a helper takes at most for a piece of a file from elsewhere, in microseconds.
const WRITE_US: usize = 2000;

/// An answer of a disk that is well comes within so many microseconds.
const HANGING_US: u64 = 50_000;

impl World {
    /// A helper writes a copy, if that can be begun.
    pub(crate) fn write_copy(&mut self, n: usize, db: DbId, copy: Vec<u8>) {
        let node = &mut self.nodes[n];
        node.copies_tried += 1;
        if node.refuses_copies {
            // The shell tells it in the round in which it was asked.
            assert!(node.copies_tried < TRIES_MAX, "it is tried again without any pause");
            let result = Err("Permission denied".to_owned());
            return self.event_at(self.now_us, n, Event::CompactionWritten { db, result });
        }
        self.keep_copy(n, db, copy);
    }

    fn keep_copy(&mut self, n: usize, db: DbId, copy: Vec<u8>) {
        let result = match self.is_full(n) {
            true => Err("No space left on device".to_owned()),
            false => Ok(copy.len() as u64),
        };
        self.nodes[n].disk.copy = result.is_ok().then_some(copy);
        self.copy_done(n, Event::CompactionWritten { db, result });
    }

    /// A helper writes a copy of rows that it has converted.
    pub(crate) fn write_converted(
        &mut self,
        n: usize,
        db: DbId,
        converted: Result<(Vec<u8>, Box<Converted>), ConversionError>,
    ) {
        let result = converted.map(|(copy, converted)| {
            self.nodes[n].disk.copy = Some(copy);
            converted
        });
        self.copy_done(n, Event::Converted { db, result });
    }

    /// A helper appends records to a copy.
    pub(crate) fn extend_copy(&mut self, n: usize, db: DbId, records: &[u8]) {
        self.nodes[n].copies_extended += 1;
        let copy = self.nodes[n].disk.copy.take().expect("it was written");
        self.keep_copy(n, db, [&copy, records].concat());
    }

    /// A file comes from elsewhere.
    pub(crate) fn begin_received(&mut self, n: usize, db: DbId, head: Vec<u8>) {
        let disk = &mut self.nodes[n].disk;
        disk.discard();
        (disk.received, disk.is_receiving) = (Some(Ok(head)), true);
        self.has_written(n, db);
    }

    pub(crate) fn write_received(&mut self, n: usize, db: DbId, offset: u64, bytes: &[u8]) {
        let file = self.nodes[n].disk.received.as_mut().expect("it has begun");
        if let Ok(file) = file {
            assert_eq!(file.len() as u64, offset, "pieces come in order");
            file.extend_from_slice(bytes);
        }
        self.has_written(n, db);
    }

    pub(crate) fn patch_received(&mut self, n: usize, db: DbId, offset: u64, bytes: &[u8]) {
        let file = self.nodes[n].disk.received.as_mut().expect("it has begun");
        if let Ok(file) = file {
            file[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        self.has_written(n, db);
    }

    /// A helper says in its turn what has come of a piece: behind one that could not be written none is.
    fn has_written(&mut self, n: usize, db: DbId) {
        let is_bad = self.is_full(n) || self.happens_once(self.faults.lost);
        let file = self.nodes[n].disk.received.as_mut().expect("it has begun");
        if is_bad {
            *file = Err(file.as_ref().map_or_else(|upto| *upto, |file| file.len() as u64));
        }
        let (upto, result) = match file {
            Ok(file) => (file.len() as u64, Ok(())),
            Err(upto) => (*upto, Err("No space left on device".to_owned())),
        };
        let at = self.now_us + 20 + self.rng.below(WRITE_US) as u64;
        let node = &mut self.nodes[n];
        node.last_piece_us = node.last_piece_us.max(at);
        let (at, copies) = (node.last_piece_us, node.disk.copies);
        self.due(at, n, Due::Copy(copies, Event::ReceivedWritten { db, upto, result }));
    }

    pub(crate) fn sync_received(&mut self, n: usize, db: DbId) {
        let is_full = self.is_full(n);
        let disk = &mut self.nodes[n].disk;
        let file = disk.received.take().expect("it has begun");
        disk.copy = file.ok().filter(|_| !is_full);
        let len = disk.copy.as_ref().map(|copy| copy.len() as u64);
        let result = len.ok_or_else(|| "No space left on device".to_owned());
        self.copy_done(n, Event::ReceivedSynced { db, result });
    }

    /// Whether something happens that does in so many of 10,000 cases.
    fn happens_once(&mut self, rate: usize) -> bool {
        rate > 0 && self.rng.below(10_000) < rate
    }

    /// Whether the disk of a server answers later than it takes what it is given.
    pub(crate) fn is_hanging(&self, n: usize) -> bool {
        self.nodes[n].last_step_us > self.now_us + HANGING_US
    }

    /// Whether the disk of a server takes nothing but what is urgent.
    fn is_full(&self, n: usize) -> bool {
        self.nodes[n].full_until_us > self.now_us
    }

    /// A copy is complete, unless it is let go before its helper says so.
    fn copy_done(&mut self, n: usize, event: Event) {
        let copies = self.nodes[n].disk.copies;
        let at = self.now_us + 1000 + self.rng.below(500_000) as u64;
        let at = at.max(self.nodes[n].last_piece_us);
        self.due(at, n, Due::Copy(copies, event));
    }

    pub(crate) fn persist(
        &mut self,
        n: usize,
        db: DbId,
        (step, behind): (u64, Option<u64>),
        bytes: &[u8],
        (sync, is_urgent): (bool, bool),
    ) {
        let delay = 20 + self.rng.below(self.faults.sync_us) as u64;
        let now_us = self.now_us;
        let node = &mut self.nodes[n];
        let is_full = node.full_until_us > now_us && !is_urgent;
        let is_refused = is_full || node.disk.is_suspect;
        if is_refused || behind.is_some_and(|behind| behind != node.disk.step) {
            let why = if is_full { "No space left on device" } else { "Input/output error" };
            let result = Err(why.to_owned());
            let at = node.last_step_us.max(now_us);
            node.last_step_us = at;
            return self.event_at(at, n, Event::Persisted { db, step, result });
        }
        self.checks.written(n, bytes);
        let upto = node.disk.append(bytes);
        node.disk.step = step;
        let begin = node.last_step_us.max(now_us);
        let at = if sync { begin + delay } else { begin };
        node.last_step_us = at;
        if sync && std::mem::take(&mut node.breaks_sync) {
            node.disk.is_suspect = true;
            self.event_at(at, n, Event::FileSuspect { db });
            let result = Err("Input/output error".to_owned());
            return self.event_at(at, n, Event::Persisted { db, step, result });
        }
        let synced = sync.then_some((upto, node.disk.files));
        self.due(at, n, Due::Persisted { db, step, synced, took_us: delay });
    }

    pub(crate) fn persisted(
        &mut self,
        n: usize,
        (db, step): (DbId, u64),
        synced: Option<(usize, u64)>,
        took_us: u64,
    ) {
        let is_honest = self.faults.lie != Some(crate::faults::Lie::SkipsSync);
        let disk = &mut self.nodes[n].disk;
        // Where another file has taken the place it was on the disk from the beginning.
        if let Some((upto, _)) = synced.filter(|(_, files)| *files == disk.files && is_honest) {
            disk.sync(upto);
        }
        self.handle(n, Event::Persisted { db, step, result: Ok(SyncTime(took_us)) });
    }

    pub(crate) fn finish_copy(
        &mut self,
        n: usize,
        db: DbId,
        tail: &[u8],
        step: Option<(u64, Option<u64>)>,
    ) {
        let now_us = self.now_us;
        let is_lost = self.is_full(n) || self.happens_once(self.faults.lost);
        let disk = &mut self.nodes[n].disk;
        let follows = step.is_none_or(|(_, behind)| behind.is_none_or(|b| b == disk.step));
        if is_lost && follows {
            // An attempt takes the copy, whatever comes of it.
            disk.copy = None;
        }
        let result = match follows {
            true => disk.replace(tail),
            false => Err("Input/output error".to_owned()),
        };
        if let (Ok(_), Some((number, _))) = (&result, step) {
            disk.step = number;
            disk.copies += 1;
        }
        if result.is_ok() {
            self.checks.replaced(n, &self.nodes[n].disk.copy_of_file());
            self.has_compacted();
        }
        let at = self.nodes[n].last_step_us.max(now_us) + 500;
        self.nodes[n].last_step_us = at;
        self.event_at(at, n, Event::CompactionFinished { db, result });
    }
}

/// What a server finds in its file.
pub(crate) fn load(path: &str, seed: u64, file: &[u8]) -> Result<Box<Loaded>, String> {
    let mut loader = Loader::seekable(path, seed);
    let mut at = 0;
    loop {
        let from = |offset: u64| usize::try_from(offset).expect("it is in memory");
        let left = file.get(at..).unwrap_or_default();
        let piece = &left[..left.len().min(PIECE_BYTES)];
        at += piece.len();
        if !piece.is_empty() {
            loader.feed(piece)?;
            if let Some(offset) = loader.again_from() {
                at = from(offset);
            }
            continue;
        }
        match loader.finish()? {
            Finished::Again(mut again) => {
                at = from(again.again_from().unwrap_or(0));
                loader = again;
            }
            Finished::Loaded(mut loaded) => {
                let mut read = |offset: u64, len: u64| {
                    let text = file.get(from(offset)..from(offset + len));
                    text.map(<[u8]>::to_vec).ok_or_else(|| "too short".to_owned())
                };
                loaded.read_texts(&mut read)?;
                return Ok(loaded);
            }
        }
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
