//! A database's file, for the changes that the log does not have any more.
//!
//! It is gone through up to three times: for the chain that stands before its records, which may
//! follow from a side file; for the places of states and the notes of records; and, only if older
//! changes are wanted, for the rows, which takes as much memory as they do.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use weir_data::{Delta, Uuid};
use weir_history::{Chain, Stretch};
use weir_log::standalone::{Note, Replayer, Scanned, Scanner};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Records with bodies of at least so many bytes are read row by row.
const PIECES_MIN: u64 = 1 << 20;

/// How the comments of snapshots begin: what they insert has not been inserted then.
const SNAPSHOT_COMMENTS: [&str; 2] = ["compact", "converted by"];

/// Reads a file from an offset on, as pread(2) does; an error is strerror(3) text.
pub type ReadAt = Box<dyn FnMut(u64, &mut [u8]) -> Result<usize, String> + Send>;

/// Takes bytes and their offset; answers with the offset to go on from, or that it has enough.
type Take<'a> = dyn FnMut(u64, &[u8]) -> Result<Option<u64>, String> + 'a;

/// A file up to where it was good when the search began.
pub(crate) struct File {
    len: u64,
    read_at: ReadAt,
    /// The chain behind the first two records, or behind the only one, once it is known.
    base: Option<Chain>,
}

/// A record of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The schema's is number 1.
    pub(super) number: u64,
}

/// States that are looked for.
pub(super) struct States<'a> {
    pub(super) since: Option<Uuid>,
    pub(super) low_water: Uuid,
    /// The transactions whose notes are wanted.
    pub(super) unknown: &'a BTreeSet<Uuid>,
}

/// Behind which records they are.
pub(super) struct Places {
    pub(super) since: Option<Place>,
    pub(super) low_water: Option<Place>,
    pub(super) notes: BTreeMap<Uuid, Note>,
}

/// A change of the file.
pub(super) struct Replayed<'a> {
    pub(super) id: Uuid,
    /// What it changed, if that is known.
    pub(super) delta: Option<&'a Delta>,
    pub(super) note: Note,
}

impl File {
    pub(super) fn new(len: u64, read_at: ReadAt) -> Self {
        Self { len, read_at, base: None }
    }

    /// Hands the file's bytes to `take` until it has enough.
    fn read(&mut self, take: &mut Take<'_>) -> Result<(), String> {
        let (mut buffer, mut at) = (vec![0; READ_BYTES], 0);
        while at < self.len {
            let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
            let room = buffer.get_mut(..left.min(READ_BYTES)).unwrap_or_default();
            let count = (self.read_at)(at, room)?;
            let bytes = room.get(..count).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or("unexpected end of file")?;
            match take(at, bytes)? {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(())
    }

    fn scan(&mut self, each: &mut dyn FnMut(Scanned<'_>)) -> Result<(), String> {
        let mut scanner = Scanner::new();
        self.read(&mut |at, bytes| {
            let scanned = scanner.feed(bytes, each);
            scanned.map_err(|error| error.about("database").to_string())?;
            Ok(Some(at + bytes.len() as u64))
        })
    }

    /// The chain behind the first two records, where `end` is the one behind the last.
    fn base(&mut self, end: Chain) -> Result<Chain, String> {
        if let Some(base) = self.base {
            return Ok(base);
        }
        let mut stretch = Stretch::default();
        self.scan(&mut |record| {
            if record.number > 2 {
                stretch = stretch.then(record.end.hash.0);
            }
        })?;
        Ok(*self.base.insert(stretch.before(end)))
    }

    /// Finds states.
    pub(super) fn locate(&mut self, end: Chain, states: States<'_>) -> Result<Places, String> {
        let mut chain = self.base(end)?;
        let States { since, low_water, unknown } = states;
        let mut places = Places { since: None, low_water: None, notes: BTreeMap::new() };
        let (base, mut schema) = (chain, None);
        self.scan(&mut |record| {
            let (number, hash) = (record.number, record.end.hash.0);
            chain = behind(chain, number, hash);
            let (mut id, place) = (chain.id(), Some(Place { number }));
            if number == 1 {
                let chain = Chain::of_schema(hash);
                (id, schema) = (if base == chain { id } else { chain.id() }, Some(chain));
            } else if number == 2 && schema.is_some_and(|schema| schema.then(hash) != base) {
                // The state before the file's second record is one of another file.
                (places.since, places.low_water) = (None, None);
            }
            places.since = if since == Some(id) { place } else { places.since };
            places.low_water = if low_water == id { place } else { places.low_water };
            // The note of a snapshot is not that of the change before it.
            if unknown.contains(&id)
                && let note = record.note()
                && !is_snapshot(number, &note)
            {
                places.notes.insert(id, note);
            }
        })?;
        Ok(places)
    }

    /// Tells what these records changed.
    pub(super) fn replay(
        &mut self,
        end: Chain,
        numbers: RangeInclusive<u64>,
        each: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<(), String> {
        let mut chain = self.base(end)?;
        let mut replayer = Replayer::seekable("database", 1, PIECES_MIN);
        replayer.tell_all_from(*numbers.start());
        let mut last = 0;
        self.read(&mut |at, bytes| {
            let fed = replayer.feed_with(bytes, &mut |record| {
                let number = record.number;
                chain = behind(chain, number, record.end.hash.0);
                last = number;
                let Some(note) = record.note.filter(|_| numbers.contains(&number)) else { return };
                if number > 1 && !is_snapshot(number, &note) {
                    each(Replayed { id: chain.id(), delta: record.delta.as_ref(), note });
                }
            });
            fed.map_err(|error| error.to_string())?;
            let next = replayer.again_from().unwrap_or(at + bytes.len() as u64);
            Ok((last < *numbers.end()).then_some(next))
        })
    }
}

/// The chain behind a record; that behind the first two is known from the beginning.
fn behind(chain: Chain, number: u64, hash: [u8; 20]) -> Chain {
    if number > 2 { chain.then(hash) } else { chain }
}

fn is_snapshot(number: u64, note: &Note) -> bool {
    let comment = note.comment.as_deref().unwrap_or_default();
    number == 2 && SNAPSHOT_COMMENTS.iter().any(|begin| comment.starts_with(begin))
}
