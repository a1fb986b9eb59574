//! From the bytes of one server's file to its tables, term, vote and log.
//!
//! 1. The header: who the server is; the snapshot's rows are made while they come.
//! 2. The records behind it. An entry's text is kept until a later record says that it is
//!    committed, and then applied to the tables; beyond [`KEPT_BYTES_MAX`] only its place is noted.
//! 3. If a record is bad: do good ones behind it show that it was on the disk once? Else it is what a
//!    crash has torn ([`Search`]).
//! 4. Committed entries that were not kept are read again from their places; all entries, if their
//!    cluster is lost.
//!
//! The caller feeds the file from its beginning, and goes to another place whenever
//! [`Replayer::again_from`] says so.

mod again;
mod file;
mod loaded;

use std::sync::Arc;

use file::File;
pub use loaded::{Loaded, Tail};
use weir_data::{Delta, Error, Schema, Store, Uuid};
use weir_json::Text;

use super::data::{self, DataReader, Made};
use super::outline::Outline;
use super::raft_log::{DataPlace, Effect, LoggedEntry};
use super::unapplied::Unapplied;
use super::{Entry, Header, Kind, Record, Servers, State};
use crate::record::{self, End, Hole, Magic, Piece, Reader, Search};
use crate::standalone::LoadError;
use crate::standalone::rows::Rows;
use crate::standalone::split::Unusual;

/// Bytes of entries not known to be committed that a replayer of a file that can be read again
/// keeps; what comes behind them is read again.
pub const KEPT_BYTES_MAX: usize = 16 << 20;

/// Makes the rows of a store conform to another schema: what an entry of a schema alone asks for.
/// The number is fresh randomness.
pub type Convert = fn(Store, Arc<Schema>, u64) -> Result<Store, String>;

/// What has come of a whole file.
#[derive(Debug)]
pub enum Finished {
    /// All that it holds.
    Loaded(Box<Loaded>),
    /// Some of it is to be read again, from where [`Replayer::again_from`] says to the end.
    Again(Box<Replayer>),
}

/// A committed entry that has been applied to the tables.
#[derive(Debug)]
pub struct Applied<'a> {
    /// The entry's index.
    pub index: u64,
    /// The entry's term.
    pub term: u64,
    /// The entry's id.
    pub eid: Uuid,
    /// Bytes of the entry's data.
    pub len: u64,
    /// Whether the entry's record carries the [`record::MARK`].
    pub is_marked: bool,
    /// The id of the state that the file's snapshot is of, if there is one.
    pub snapshot_eid: Option<Uuid>,
    /// What the entry changed, if [`Replayer::tell_deltas_from`] asked for it. One that brought a
    /// schema has none, nor has a text that no server writes, with equal keys in one object.
    pub delta: Option<Delta>,
    /// The rows behind the entry.
    pub store: &'a Store,
}

/// Who is told of entries.
type Each<'a> = dyn FnMut(Applied<'_>) + 'a;

/// Replays a file fed in pieces.
#[derive(Debug)]
pub struct Replayer {
    path: String,
    seed: u64,
    convert: Convert,
    reader: Reader,
    /// Records with bodies of at least so many bytes are read while they come.
    pieces_min: u64,
    /// The current record, or data that is read again, must be read as a whole.
    whole: bool,
    again_from: Option<u64>,
    phase: Phase,
    /// From the header on.
    file: Option<File>,
    rows: Option<Rows>,
    unapplied: Unapplied,
    /// Entries whose data lies at this file offset or behind it are told with what they change.
    deltas_from: u64,
    /// File offset of the next byte.
    position: u64,
    file_len: u64,
    valid_len: u64,
    records: u64,
    snapshot_len: u64,
    /// An entry of a schema without rows has been applied.
    has_bare: bool,
    /// As [`Replayer::salvage`] asked for.
    salvages: bool,
    tail: Tail,
    /// The servers that the last good record names which names any, of those behind a bad one.
    servers_behind: Option<Servers>,
}

#[derive(Debug)]
enum Phase {
    /// Records come.
    Records(Option<Box<Streaming>>),
    /// Behind a bad record.
    Search(Search),
    /// Data of committed entries comes that was not kept.
    Again(Option<Box<again::Data>>),
}

/// A record of which pieces have come.
struct Streaming {
    outline: Outline,
    /// For the header's snapshot.
    data: Option<DataReader>,
}

enum Problem {
    Record(record::Error),
    Content(String),
}

impl From<record::Error> for Problem {
    fn from(error: record::Error) -> Self {
        Self::Record(error)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Content(error.to_string())
    }
}

impl std::fmt::Debug for Streaming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streaming").finish_non_exhaustive()
    }
}

/// No record is that long: all are read as a whole.
const NO_PIECES: u64 = u64::MAX;

impl Replayer {
    /// A replayer for the file that messages call `path`, which holds every record as a whole and
    /// all entries until they are committed; `seed` is fresh randomness.
    pub fn new(path: &str, seed: u64) -> Self {
        Self::with_budget(path, seed, NO_PIECES, usize::MAX)
    }

    /// A replayer that never holds more than a row and what it was fed last of a record whose body
    /// has at least `pieces_min` bytes, and no more than [`KEPT_BYTES_MAX`] of entries. Data of an
    /// entry that it does not hold is judged when it is applied, and no sooner. After each
    /// [`Replayer::feed`] the caller must ask [`Replayer::again_from`].
    pub fn seekable(path: &str, seed: u64, pieces_min: u64) -> Self {
        Self::with_budget(path, seed, pieces_min, KEPT_BYTES_MAX)
    }

    /// As [`Replayer::seekable`], with a budget of one's own.
    pub fn with_budget(path: &str, seed: u64, pieces_min: u64, kept_bytes_max: usize) -> Self {
        Self {
            path: path.to_owned(),
            seed,
            convert: |_, _, _| Err("the schema changes without data".to_owned()),
            reader: Reader::new(),
            pieces_min,
            whole: false,
            again_from: None,
            phase: Phase::Records(None),
            file: None,
            rows: None,
            unapplied: Unapplied::new(kept_bytes_max),
            deltas_from: u64::MAX,
            position: 0,
            file_len: 0,
            valid_len: 0,
            records: 0,
            snapshot_len: 0,
            has_bare: false,
            salvages: false,
            tail: Tail::None,
            servers_behind: None,
        }
    }

    /// The cluster is lost, and the file is to give what it has: at its end all entries of its log
    /// are applied, committed or not, and whether its server is a member does not matter.
    pub fn salvage(&mut self) {
        self.salvages = true;
    }

    /// How rows come under another schema. Without this a file with such an entry is refused.
    pub fn convert_with(&mut self, convert: Convert) {
        self.convert = convert;
    }

    /// From now on [`Replayer::feed_with`] tells what each entry changes whose data lies at this
    /// file offset or behind it.
    pub fn tell_deltas_from(&mut self, offset: u64) {
        self.deltas_from = offset;
    }

    /// Whether what an entry changes is asked for.
    fn tells(&self, index: u64) -> bool {
        let entry = self.file.as_ref().and_then(|file| file.log.entry(index));
        let data = entry.and_then(|entry| entry.data);
        data.is_some_and(|data| data.offset >= self.deltas_from)
    }

    /// Where in the file the next bytes must come from, if not from behind the last ones.
    pub fn again_from(&mut self) -> Option<u64> {
        self.again_from.take()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The file cannot be used, whatever follows.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        self.feed_with(bytes, &mut |_| ())
    }

    /// As [`Replayer::feed`]; `each` is told of every committed entry with data.
    ///
    /// # Errors
    /// As there.
    pub fn feed_with(&mut self, bytes: &[u8], each: &mut Each<'_>) -> Result<(), LoadError> {
        debug_assert!(self.again_from.is_none(), "the caller does not go back");
        let start = self.position;
        self.position += bytes.len() as u64;
        self.file_len = self.file_len.max(self.position);
        match &mut self.phase {
            Phase::Search(search) => {
                search.feed(bytes, &mut |body| note_servers(body, &mut self.servers_behind));
            }
            Phase::Again(_) => {
                let fed = self.feed_again(start, bytes, each);
                return fed.map_err(|problem| self.told(problem));
            }
            Phase::Records(_) => {
                self.reader.feed(bytes);
                while self.again_from.is_none() && matches!(self.phase, Phase::Records(_)) {
                    match self.next(each) {
                        Ok(None) => break,
                        Ok(Some(end)) => self.end_record(end),
                        Err(problem) => self.stop(problem)?,
                    }
                }
                if self.reader.magic() == Some(Magic::Standalone) {
                    let path = &self.path;
                    return Err(LoadError(format!(
                        "ovsdb error: {path}: not a clustered database"
                    )));
                }
            }
        }
        Ok(())
    }

    fn go_to(&mut self, offset: u64) {
        self.again_from = Some(offset);
        self.position = offset;
    }

    fn end_record(&mut self, end: End) {
        self.whole = false;
        self.valid_len = end.offset;
        self.records += 1;
        if self.records == 1 {
            self.snapshot_len = end.offset;
        }
    }

    /// Replays the next record, if it is all there.
    fn next(&mut self, each: &mut Each<'_>) -> Result<Option<End>, Problem> {
        self.reader.peek()?;
        if self.reader.magic() == Some(Magic::Standalone) {
            return Ok(None);
        }
        if !self.whole && self.reader.body_len()?.is_some_and(|length| length >= self.pieces_min) {
            return self.next_piece(each);
        }
        let Some(record) = self.reader.next_record()? else { return Ok(None) };
        let (json, end) = (record.json()?, record.end());
        // Texts are parts of the body, so where they are says where in the file they are.
        let (body, offset) = (record.body.as_ptr() as usize, record.offset);
        let place = |text: Text<'_>, eid: Uuid| {
            let bytes = text.as_bytes();
            let offset = offset + (bytes.as_ptr() as usize - body) as u64;
            DataPlace { eid, offset, len: bytes.len() as u64, is_marked: end.is_marked }
        };
        let Some(file) = &mut self.file else {
            let header = Header::parse(json)?;
            if let State::Joined { snapshot: Some(snapshot), .. } = &header.state {
                let made = data::apply(snapshot.data, &mut None, self.seed, false)?;
                self.rows = Some(snapshot_rows(made, self.seed)?);
            }
            self.file = Some(File::new(header, place));
            return Ok(Some(end));
        };
        let record = Record::parse(json).map_err(|error| file.wrap(self.records, error))?;
        let text = match &record.kind {
            Kind::Entry(entry) => entry.data,
            _ => None,
        };
        let place = text.map(|(text, eid)| place(text, eid));
        let effect = file.record(self.records, record, place)?;
        if let (Effect::Entry, Some((text, _))) = (effect, text) {
            self.unapplied.push(file.log.end() - 1, text.as_bytes());
        } else if effect == Effect::Entry {
            self.unapplied.truncate(file.log.end() - 1);
        }
        self.apply_committed(effect, each)?;
        Ok(Some(end))
    }

    /// Replays what has come of a big record; answers if it is all there.
    fn next_piece(&mut self, each: &mut Each<'_>) -> Result<Option<End>, Problem> {
        let Phase::Records(streaming) = &mut self.phase else { return Ok(None) };
        let start = self.reader.offset();
        let is_header = self.file.is_none();
        let mut current = streaming.take().unwrap_or_else(|| {
            let outline = Outline::new(if is_header { "prev_data" } else { "data" });
            let data = is_header.then(|| DataReader::new(self.seed));
            Box::new(Streaming { outline, data })
        });
        let Piece { body, end } = match self.reader.next_piece() {
            Ok(None) => {
                *streaming = Some(current);
                return Ok(None);
            }
            Ok(Some(piece)) => piece,
            Err(error) => {
                // What has come of it is to be searched, too.
                *streaming = Some(current);
                return Err(error.into());
            }
        };
        let Streaming { outline, data } = &mut *current;
        let fed = outline.feed(body, &mut |bytes| match data {
            Some(data) => data.feed(bytes, &mut None),
            None => Ok(()),
        });
        let Some(end) = end.filter(|_| fed.is_ok()) else {
            if fed.is_ok() {
                *streaming = Some(current);
            } else {
                self.read_whole(start);
            }
            return Ok(None);
        };
        match self.end_pieces(*current, end, each)? {
            Ok(()) => Ok(Some(end)),
            Err(Unusual) => {
                self.read_whole(start);
                Ok(None)
            }
        }
    }

    /// The record at this offset has to be read once more, as a whole.
    fn read_whole(&mut self, start: u64) {
        self.phase = Phase::Records(None);
        self.reader.rewind_to(start);
        self.whole = true;
        self.go_to(start);
    }

    /// All of a big record has come.
    fn end_pieces(
        &mut self,
        streaming: Streaming,
        end: End,
        each: &mut Each<'_>,
    ) -> Result<Result<(), Unusual>, Problem> {
        let Ok((kept, range)) = streaming.outline.finish() else { return Ok(Err(Unusual)) };
        let Some(kept) = weir_json::validate(&kept).ok() else { return Ok(Err(Unusual)) };
        let body = end.offset - end.body_len;
        let place = |_: Text<'_>, eid: Uuid| {
            let range = range.clone().unwrap_or_default();
            let (offset, len) = (body + range.start, range.end - range.start);
            DataPlace { eid, offset, len, is_marked: end.is_marked }
        };
        let Some(file) = &mut self.file else {
            let Ok(header) = Header::parse(kept) else { return Ok(Err(Unusual)) };
            if let State::Joined { snapshot: Some(_), .. } = &header.state {
                let made =
                    streaming.data.ok_or(Unusual).and_then(|data| data.finish(&mut None, false));
                let Ok(made) = made else { return Ok(Err(Unusual)) };
                self.rows = Some(snapshot_rows(made, self.seed)?);
            }
            self.file = Some(File::new(header, place));
            return Ok(Ok(()));
        };
        let Ok(record) = Record::parse(kept) else { return Ok(Err(Unusual)) };
        let place = match &record.kind {
            Kind::Entry(entry) => match (entry.data, &range) {
                (Some((text, eid)), Some(_)) => Some(place(text, eid)),
                (None, None) => None,
                _ => return Ok(Err(Unusual)),
            },
            _ if range.is_some() => return Ok(Err(Unusual)),
            _ => None,
        };
        let effect = file.record(self.records, record, place)?;
        match (effect, place) {
            (Effect::Entry, Some(_)) => self.unapplied.skip(file.log.end() - 1),
            (Effect::Entry, None) => self.unapplied.truncate(file.log.end() - 1),
            _ => {}
        }
        self.apply_committed(effect, each)?;
        Ok(Ok(()))
    }

    /// Applies what has become committed, as far as it has been kept.
    fn apply_committed(&mut self, effect: Effect, each: &mut Each<'_>) -> Result<(), Problem> {
        if effect != Effect::Commit {
            return Ok(());
        }
        let commit_index = self.file.as_ref().map_or(0, |file| file.log.commit_index);
        while let Some((index, text)) = self.unapplied.take(commit_index) {
            self.apply(index, &text, each)?;
        }
        Ok(())
    }

    /// Applies all entries that have been kept, committed or not.
    fn apply_kept(&mut self) -> Result<(), Problem> {
        while let Some((index, text)) = self.unapplied.take(u64::MAX) {
            self.apply(index, &text, &mut |_| ())?;
        }
        Ok(())
    }

    /// Applies the data of an entry.
    fn apply(&mut self, index: u64, text: &[u8], each: &mut Each<'_>) -> Result<(), Problem> {
        let text = weir_json::validate_value(text)
            .map_err(|error| Problem::Content(format!("data of entry {index}: {error}")))?;
        let (seed, tells) = (self.seed.wrapping_add(index), self.tells(index));
        let made = data::apply(text, &mut self.rows, seed, tells)?;
        self.end_entry(index, made, each)
    }

    /// The data of an entry has been applied.
    fn end_entry(&mut self, index: u64, made: Made, each: &mut Each<'_>) -> Result<(), Problem> {
        match made {
            Made::Changed => {}
            Made::Replaced(rows) => self.rows = Some(rows),
            Made::Convert(schema) => {
                self.has_bare = true;
                let seed = self.seed.wrapping_add(index);
                let rows = self.rows.take().map(Rows::into_store);
                let store = rows.unwrap_or_else(|| Store::new(Arc::clone(&schema), seed));
                let store = (self.convert)(store, schema, seed).map_err(|why| {
                    Problem::Content(format!("conversion at entry {index}: {why}"))
                })?;
                self.rows = Some(Rows::of_store(store, seed));
            }
        }
        let entry = self.file.as_ref().and_then(|file| file.log.entry(index));
        if let (Some(rows), Some(LoggedEntry { term, data: Some(place), .. })) =
            (&mut self.rows, entry)
        {
            let DataPlace { eid, len, is_marked, .. } = *place;
            let (term, delta, store) = (*term, rows.take_delta(), rows.store());
            let snapshot = self.file.as_ref().and_then(|file| file.snapshot.as_ref());
            let snapshot_eid = snapshot.map(|snapshot| snapshot.data.eid);
            each(Applied { index, term, eid, len, is_marked, snapshot_eid, delta, store });
        }
        Ok(())
    }

    /// A problem at the first bad record, or with what a good one says.
    fn stop(&mut self, problem: Problem) -> Result<(), LoadError> {
        let Problem::Record(error) = problem else { return Err(self.told(problem)) };
        let may_be_hole = error.may_be_unwritten();
        let search = self.search_unread(may_be_hole);
        self.begin_search(&error, search)
    }

    /// A search that has gone through what has come and has not been given out.
    fn search_unread(&mut self, may_be_hole: bool) -> Search {
        let mut search = self.search_from(self.reader.unread_offset(), may_be_hole);
        let servers = &mut self.servers_behind;
        search.feed(self.reader.unread(), &mut |body| note_servers(body, servers));
        search
    }

    /// A search behind a bad record, from an offset on.
    fn search_from(&self, offset: u64, may_be_hole: bool) -> Search {
        let is_told = self.file.as_ref().is_some_and(|file| file.tells_synced);
        let hole = Hole { at: self.valid_len - self.snapshot_len, is_told };
        Search::new(Magic::Clustered, offset, may_be_hole.then_some(hole))
    }

    fn told(&self, problem: Problem) -> LoadError {
        LoadError(match problem {
            Problem::Content(text) => text,
            Problem::Record(error) => error.about(&self.path).to_string(),
        })
    }

    /// A record is bad; `search` has gone through what has come of it and behind it, as far as that
    /// is still there.
    fn begin_search(&mut self, error: &record::Error, mut search: Search) -> Result<(), LoadError> {
        let warning = error.about(&self.path).to_string();
        if self.file.is_none() {
            return Err(LoadError(warning));
        }
        if let Phase::Records(Some(_)) = &self.phase {
            let start = self.valid_len;
            search = self.search_from(start, error.may_be_unwritten());
            self.go_to(start);
        }
        self.phase = Phase::Search(search);
        self.tail = Tail::Torn { warning };
        self.reader = Reader::new();
        Ok(())
    }

    /// The file has ended: what it holds, or what is to be read again.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn finish(mut self) -> Result<Finished, LoadError> {
        if let Phase::Records(_) = &self.phase {
            let search = self.search_unread(true);
            if let Err(error) = std::mem::take(&mut self.reader).finish() {
                self.begin_search(&error, search)?;
            }
            if self.again_from.is_some() {
                return Ok(Finished::Again(Box::new(self)));
            }
        }
        if let (Phase::Search(search), Tail::Torn { warning }) = (&self.phase, &self.tail)
            && let Some(good_offset) = search.found()
        {
            let (warning, servers) = (warning.clone(), self.servers_behind.take());
            self.tail = Tail::Damaged { warning, good_offset, servers };
        }
        if self.salvages {
            self.apply_kept().map_err(|problem| self.told(problem))?;
        }
        if let Some((_, place)) = self.next_place() {
            if !matches!(self.phase, Phase::Again(_)) {
                self.phase = Phase::Again(None);
                self.go_to(place.offset);
                return Ok(Finished::Again(Box::new(self)));
            }
            let path = &self.path;
            return Err(LoadError(format!("I/O error: {path}: file became shorter")));
        }
        self.loaded().map(|loaded| Finished::Loaded(Box::new(loaded)))
    }

    fn loaded(self) -> Result<Loaded, LoadError> {
        let Some(file) = self.file else {
            return Err(LoadError(format!("ovsdb error: {}: unexpected end of file", self.path)));
        };
        let File { server_id, local_address, name, cluster_id, mut remotes, snapshot, log, .. } =
            file;
        let committed = log.configuration(log.commit_index);
        let latest = log.configuration(u64::MAX);
        // A change of the servers that is not committed may never be; and one that has never been a
        // member has got a snapshot, and is about to become one.
        let was_member = log.has_had(server_id) || log.base().servers.is_empty();
        let is_member = committed.servers.contains_key(&server_id);
        // Who was removed votes until others know that. Who does not have what it had promised must not vote, nor
        // join again in the place of a server that is no member.
        let has_lost = log.has_forgotten || matches!(self.tail, Tail::Damaged { .. });
        if remotes.is_empty() && was_member && !is_member && has_lost && !self.salvages {
            return Err(LoadError("ovsdb error: server does not belong to cluster".to_owned()));
        }
        if !was_member {
            remotes.extend(log.joins_at.iter().cloned());
        }
        Ok(Loaded {
            server_id,
            local_address,
            name,
            cluster_id,
            remotes,
            snapshot,
            base: log.base().clone(),
            term: log.term(),
            vote: log.vote,
            leader: log.leader,
            commit_index: log.commit_index,
            committed,
            latest,
            entries: log.entries,
            store: self.rows.map(Rows::into_store),
            valid_len: self.valid_len,
            file_len: self.file_len,
            records: self.records,
            snapshot_len: self.snapshot_len,
            has_bare: self.has_bare,
            has_forgotten: log.has_forgotten,
            tail: self.tail,
        })
    }
}

/// Notes the servers that a good record behind a bad one names, if it does.
fn note_servers(body: &[u8], servers: &mut Option<Servers>) {
    let Ok(text) = weir_json::validate(body) else { return };
    if let Ok(Record { kind: Kind::Entry(Entry { servers: named @ Some(_), .. }), .. }) =
        Record::parse(text)
    {
        *servers = named;
    }
}

/// The rows that a file starts from.
fn snapshot_rows(made: Made, seed: u64) -> Result<Rows, Problem> {
    match made {
        Made::Replaced(rows) => Ok(rows),
        Made::Convert(schema) => Ok(Rows::new(Arc::unwrap_or_clone(schema), seed, false)),
        Made::Changed => Err(Error::ovsdb(data::NO_SCHEMA).into()),
    }
}
