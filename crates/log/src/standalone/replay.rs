//! From a file's bytes to its schema and rows.

use std::fmt;
use std::sync::Arc;

use weir_data::{Delta, Error, Schema, Store, TableId, Uuid};

use crate::record::{self, End, Magic, Piece, Reader};
use crate::standalone::note::Note;
use crate::standalone::rows::Rows;

/// How the error ends for a file of a clustered database.
pub const IS_CLUSTERED: &str = "this is a clustered database; this version serves standalone \
                                databases (\"ovsdb-tool cluster-to-standalone\" makes one)";

/// Why a file cannot be opened as a database; Display is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError(pub(crate) String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// What a standalone database's file holds.
#[derive(Debug)]
pub struct Loaded {
    /// The schema, from the first record.
    pub schema: Arc<Schema>,
    /// The rows after the last good record.
    pub store: Store,
    /// Where the last good record ends: appends go there.
    pub valid_len: u64,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Number of good records, the schema's included.
    pub records: u64,
    /// Length of the first two records: a compacted file has no more.
    pub snapshot_len: u64,
    /// What is wrong behind `valid_len`, if anything.
    pub warning: Option<String>,
}

/// A good record, and what it made of the rows.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// The schema's is number 1.
    pub number: u64,
    /// What the frame says of the record.
    pub end: End,
    /// What the record changed, if [`Replayer::tell_deltas_from`] asked for it. A record that no
    /// server writes, with equal keys in one object, has none.
    pub delta: Option<Delta>,
    /// The record's date and comment, if [`Replayer::tell_all_from`] asked for them.
    pub note: Option<Note>,
    /// The rows behind the record. They may be changed.
    pub store: &'a mut Store,
    /// The rows that the record was about, if the replayer notes them.
    pub rows: &'a [RowId],
}

/// A row of a database.
type RowId = (TableId, Uuid);

/// Replays a file fed in pieces.
#[derive(Debug)]
pub struct Replayer {
    path: String,
    seed: u64,
    reader: Reader,
    /// Records with bodies of at least so many bytes are read while they come; some must then be
    /// fed twice.
    pieces_min: u64,
    /// The current record must be read as a whole.
    whole: bool,
    again_from: Option<u64>,
    /// Somebody looks at each record's rows.
    notes: bool,
    /// Marked records that begin here or later are told with what they change.
    deltas_from: u64,
    /// Records from this number on are told with what they change and say, marked or not.
    all_from: u64,
    /// From the first record on.
    rows: Option<Rows>,
    valid_len: u64,
    file_len: u64,
    records: u64,
    snapshot_len: u64,
    warning: Option<String>,
}

impl Replayer {
    /// A replayer for the file that messages call `path`; `seed` is fresh randomness.
    pub fn new(path: &str, seed: u64) -> Self {
        Self::seekable(path, seed, u64::MAX)
    }

    /// A replayer that never holds more than a row and what it was fed last of a record whose body
    /// has at least `pieces_min` bytes. After each [`Replayer::feed`] the caller must ask
    /// [`Replayer::again_from`].
    pub fn seekable(path: &str, seed: u64, pieces_min: u64) -> Self {
        Self {
            path: path.to_owned(),
            seed,
            reader: Reader::new(),
            pieces_min,
            whole: false,
            again_from: None,
            notes: false,
            deltas_from: u64::MAX,
            all_from: u64::MAX,
            rows: None,
            valid_len: 0,
            file_len: 0,
            records: 0,
            snapshot_len: 0,
            warning: None,
        }
    }

    /// A replayer that notes the rows of each record, for [`Replayer::feed_with`].
    pub fn noting(path: &str, seed: u64) -> Self {
        Self { notes: true, ..Self::new(path, seed) }
    }

    /// From now on [`Replayer::feed_with`] tells what each record changes that carries the mark and
    /// begins at this file offset or behind it.
    pub fn tell_deltas_from(&mut self, offset: u64) {
        self.deltas_from = offset;
    }

    /// From now on [`Replayer::feed_with`] tells what each record changes, and its note, from this
    /// number on; the schema's is 1.
    pub fn tell_all_from(&mut self, number: u64) {
        self.all_from = number;
    }

    /// Takes the next bytes. After the first bad record the rest is only counted.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        self.feed_with(bytes, &mut |_| ())
    }

    /// As [`Replayer::feed`]; `each` is told of every record.
    pub fn feed_with(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<(), LoadError> {
        self.file_len += bytes.len() as u64;
        if self.warning.is_some() {
            return Ok(());
        }
        debug_assert!(self.again_from.is_none(), "the caller does not go back");
        self.reader.feed(bytes);
        loop {
            match self.next() {
                Ok(None) => return self.check_magic(),
                Ok(Some(end)) => {
                    self.whole = false;
                    self.valid_len = end.offset;
                    self.records += 1;
                    if self.records <= 2 {
                        self.snapshot_len = end.offset;
                    }
                    if let Some(rows) = &mut self.rows {
                        let (number, delta) = (self.records, rows.take_delta());
                        let note = rows.take_note();
                        let (store, rows) = rows.last_record();
                        each(Replayed { number, end, delta, note, store, rows });
                    }
                }
                Err(problem) => return self.stop(&problem),
            }
        }
    }

    /// Where in the file the next bytes must come from, if not from behind the last ones.
    pub fn again_from(&mut self) -> Option<u64> {
        self.again_from.take()
    }

    /// Replays the next record, if it is all there.
    fn next(&mut self) -> Result<Option<End>, Problem> {
        if self.reader.magic() == Some(Magic::Clustered) || self.again_from.is_some() {
            return Ok(None);
        }
        if self.rows.is_some()
            && !self.whole
            && self.reader.body_len()?.is_some_and(|length| length >= self.pieces_min)
        {
            return self.next_piece();
        }
        let start = self.reader.offset();
        let Some(record) = self.reader.next_record()? else { return Ok(None) };
        let (json, end) = (record.json()?, record.end());
        let tells_all = self.records + 1 >= self.all_from;
        let tells = tells_all || end.is_marked && start >= self.deltas_from;
        match &mut self.rows {
            None => self.rows = Some(Rows::new(Schema::parse(json)?, self.seed, self.notes)),
            Some(rows) => {
                rows.begin_note(tells_all);
                rows.replay(json, tells)?;
            }
        }
        Ok(Some(end))
    }

    /// Replays what has come of a big record; answers if it is all there.
    fn next_piece(&mut self) -> Result<Option<End>, Problem> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let start = self.reader.offset();
        let tells_all = self.records + 1 >= self.all_from;
        if !rows.is_in_pieces() {
            rows.begin_note(tells_all);
        }
        let Piece { body, end } = match self.reader.next_piece() {
            Ok(None) => return Ok(None),
            Ok(Some(piece)) => piece,
            Err(error) => {
                rows.forget_pieces();
                return Err(error.into());
            }
        };
        let is_marked = end.is_some_and(|end| end.is_marked);
        let tells = tells_all || is_marked && start >= self.deltas_from;
        let replayed = rows.replay_piece(body);
        if replayed.and_then(|()| end.map_or(Ok(()), |_| rows.finish_pieces(tells))).is_ok() {
            return Ok(end);
        }
        rows.forget_pieces();
        self.reader.rewind_to(start);
        (self.whole, self.again_from, self.file_len) = (true, Some(start), start);
        Ok(None)
    }

    fn check_magic(&self) -> Result<(), LoadError> {
        if self.reader.magic() != Some(Magic::Clustered) {
            return Ok(());
        }
        let path = &self.path;
        Err(LoadError(format!("{path}: {IS_CLUSTERED}")))
    }

    /// Before the schema nothing can be served; behind it, all before the problem can.
    fn stop(&mut self, problem: &Problem) -> Result<(), LoadError> {
        self.check_magic()?;
        let text = match problem {
            Problem::Record(error) => error.about(&self.path).to_string(),
            Problem::Content(error) => error.to_string(),
        };
        if self.rows.is_none() {
            return Err(LoadError(text));
        }
        self.warning = Some(text);
        Ok(())
    }

    /// Ends the replay where the file has ended: what the file holds.
    pub fn finish(mut self) -> Result<Loaded, LoadError> {
        if self.warning.is_none()
            && let Err(error) = std::mem::take(&mut self.reader).finish()
        {
            self.stop(&Problem::Record(error))?;
        }
        let Some(rows) = self.rows else {
            return Err(LoadError(format!("{}: file has no schema", self.path)));
        };
        let store = rows.into_store();
        Ok(Loaded {
            schema: Arc::clone(store.schema()),
            store,
            valid_len: self.valid_len,
            file_len: self.file_len,
            records: self.records,
            snapshot_len: self.snapshot_len,
            warning: self.warning,
        })
    }
}

enum Problem {
    Record(record::Error),
    Content(Error),
}

impl From<record::Error> for Problem {
    fn from(error: record::Error) -> Self {
        Self::Record(error)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Content(error)
    }
}
