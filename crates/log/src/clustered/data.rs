//! `[SCHEMA,TRANSACTION]` in pieces: a snapshot's text becomes rows while it comes, and is never
//! held as a whole.

use std::sync::Arc;

use weir_data::{Error, Row, Schema, Store, TableId};
use weir_json::{Framer, Text};

use super::Data;
use crate::standalone::rows::Rows;
use crate::standalone::split::Unusual;

/// What is wrong with a log whose first transaction comes without a schema.
pub(super) const NO_SCHEMA: &str = "data without schema";

/// What the text of some data makes of the rows.
#[derive(Debug)]
pub(super) enum Made {
    /// The rows that there were have changed, or have not.
    Changed,
    /// These rows are in their place.
    Replaced(Rows),
    /// The rows that there were, under this schema, are.
    Convert(Arc<Schema>),
}

/// Takes the text in pieces.
pub(super) struct DataReader {
    seed: u64,
    state: State,
    /// What has come of a schema or of `null`.
    text: Vec<u8>,
    framer: Framer,
    schema: Option<Schema>,
    /// The rows of the transaction, if it has a schema of its own.
    rows: Option<Rows>,
    /// The last byte that came: the bracket that ends the text is not the transaction's.
    held: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the opening bracket.
    Start,
    /// Before or in the first element.
    Schema,
    /// Before the comma.
    Comma,
    /// Before the second element.
    Transaction,
    /// In a `null` as the second element.
    Null,
    /// In a transaction.
    Rows,
}

impl DataReader {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            state: State::Start,
            text: Vec::new(),
            framer: Framer::new(),
            schema: None,
            rows: None,
            held: None,
        }
    }

    /// Takes the next bytes; `base` are the rows that there are.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        base: &mut Option<Rows>,
    ) -> Result<(), Unusual> {
        while let Some(&byte) = bytes.first() {
            let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            let taken = match self.state {
                State::Rows | State::Null => return self.feed_transaction(bytes, base),
                State::Schema => self.feed_schema(bytes)?,
                _ if is_space => 1,
                State::Start if byte == b'[' => self.enter(State::Schema, 1),
                State::Comma if byte == b',' => self.enter(State::Transaction, 1),
                State::Transaction if byte == b'{' => self.enter(State::Rows, 0),
                State::Transaction if byte == b'n' => self.enter(State::Null, 0),
                _ => return Err(Unusual),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    fn enter(&mut self, state: State, taken: usize) -> usize {
        self.state = state;
        taken
    }

    /// Takes bytes of the first element; answers how many.
    fn feed_schema(&mut self, bytes: &[u8]) -> Result<usize, Unusual> {
        let first = self.text.first().or(bytes.iter().find(|byte| !byte.is_ascii_whitespace()));
        let end = match first {
            None => return Ok(bytes.len()),
            Some(b'{') => self.framer.feed(bytes).map_err(|_| Unusual)?,
            Some(_) => bytes.iter().position(|byte| *byte == b','),
        };
        let (taken, _) = bytes.split_at(end.unwrap_or(bytes.len()));
        let blank = if self.text.is_empty() { leading_space(taken) } else { 0 };
        self.text.extend_from_slice(taken.get(blank..).unwrap_or_default());
        if end.is_some() {
            let text = std::mem::take(&mut self.text);
            if text.trim_ascii_end() != b"null" {
                let schema = Schema::parse_bytes(&text).map_err(|_| Unusual)?;
                self.rows = Some(Rows::new(schema.clone(), self.seed, false));
                self.schema = Some(schema);
            }
            self.state = State::Comma;
        }
        Ok(taken.len())
    }

    fn feed_transaction(&mut self, bytes: &[u8], base: &mut Option<Rows>) -> Result<(), Unusual> {
        let Some((last, bytes)) = bytes.split_last() else { return Ok(()) };
        let held = self.held.replace(*last);
        if self.state == State::Null {
            self.text.extend(held.iter().chain(bytes));
            return if self.text.len() > b"null".len() { Err(Unusual) } else { Ok(()) };
        }
        let rows = self.rows.as_mut().or(base.as_mut()).ok_or(Unusual)?;
        if let Some(held) = held {
            rows.replay_piece(&[held])?;
        }
        rows.replay_piece(bytes)
    }

    /// All has come; `tells` asks for what it changes in `base`.
    pub(super) fn finish(mut self, base: &mut Option<Rows>, tells: bool) -> Result<Made, Unusual> {
        if self.held != Some(b']') {
            return Err(Unusual);
        }
        match (self.state, self.rows.take(), self.schema.take()) {
            (State::Rows, Some(mut rows), _) => {
                rows.finish_pieces(false)?;
                Ok(Made::Replaced(rows))
            }
            (State::Rows, None, _) => {
                base.as_mut().ok_or(Unusual)?.finish_pieces(tells)?;
                Ok(Made::Changed)
            }
            (State::Null, _, schema) if self.text == b"null" => Ok(match schema {
                Some(schema) => Made::Convert(Arc::new(schema)),
                None => Made::Changed,
            }),
            _ => Err(Unusual),
        }
    }
}

impl DataReader {
    /// All has come of data that has both a schema and rows; those are taken as they come.
    fn end_rows(&mut self) -> Result<(), Unusual> {
        if self.held != Some(b']') || self.state != State::Rows {
            return Err(Unusual);
        }
        self.rows.as_mut().ok_or(Unusual)?.end_splitting()
    }
}

fn leading_space(bytes: &[u8]) -> usize {
    bytes.len() - bytes.trim_ascii_start().len()
}

/// What a whole text makes of the rows; `tells` asks for what it changes in `base`.
pub(super) fn apply(
    text: Text<'_>,
    base: &mut Option<Rows>,
    seed: u64,
    tells: bool,
) -> Result<Made, Error> {
    let Some(Data { schema, transaction }) = Data::parse(text) else {
        return Err(Error::ovsdb("invalid commit format"));
    };
    let schema = schema.map(Schema::parse).transpose()?;
    match (schema, transaction) {
        (None, None) => Ok(Made::Changed),
        (Some(schema), None) => Ok(Made::Convert(Arc::new(schema))),
        (Some(schema), Some(transaction)) => {
            let mut rows = Rows::new(schema, seed, false);
            rows.replay(transaction, false)?;
            Ok(Made::Replaced(rows))
        }
        (None, Some(transaction)) => {
            let no_rows = || Error::ovsdb(NO_SCHEMA);
            base.as_mut().ok_or_else(no_rows)?.replay(transaction, tells)?;
            Ok(Made::Changed)
        }
    }
}

/// The rows of data that has both a schema and a transaction; `seed` is fresh randomness. Nothing is
/// checked but types.
///
/// # Errors
/// What is wrong with one of the two.
pub fn rows_of(text: Text<'_>, seed: u64) -> Result<Store, Error> {
    match apply(text, &mut None, seed, false)? {
        Made::Replaced(rows) => Ok(rows.into_store()),
        Made::Changed | Made::Convert(_) => Err(Error::ovsdb("invalid commit format")),
    }
}

/// Takes the data of a snapshot in pieces, as [`super::stream_snapshot_data`] writes it, and gives
/// out its rows as they come: it keeps none.
pub struct SnapshotReader {
    reader: DataReader,
    has_failed: bool,
}

/// The bytes are not a snapshot's data as servers write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSnapshotData;

impl SnapshotReader {
    /// A reader at the beginning of the data; `seed` is fresh randomness.
    pub fn new(seed: u64) -> Self {
        Self { reader: DataReader::new(seed), has_failed: false }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// They cannot be a snapshot's; nothing more is taken then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), NotSnapshotData> {
        self.has_failed = self.has_failed || self.reader.feed(bytes, &mut None).is_err();
        if self.has_failed { Err(NotSnapshotData) } else { Ok(()) }
    }

    /// The schema of the snapshot, once it has come.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.reader.rows.as_ref().map(|rows| rows.store().schema())
    }

    /// The rows that have come and were not taken yet. Nothing is checked but types: a row may be
    /// there twice.
    pub fn take_rows(&mut self) -> impl Iterator<Item = (TableId, Row)> {
        self.reader.rows.as_mut().into_iter().flat_map(Rows::take_new)
    }

    /// All has come; the last rows may be taken now.
    ///
    /// # Errors
    /// It is no snapshot.
    pub fn end(&mut self) -> Result<(), NotSnapshotData> {
        self.has_failed = self.has_failed || self.reader.end_rows().is_err();
        if self.has_failed { Err(NotSnapshotData) } else { Ok(()) }
    }
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotReader").finish_non_exhaustive()
    }
}
