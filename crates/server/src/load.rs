//! From the bytes of a database file to a database, and back for compaction.

use std::sync::Arc;

use weir_data::store::Snapshot;
use weir_data::{Schema, UuidSource};
pub use weir_engine::{Converted, Database};
use weir_log::standalone::{self, Replayer};

use crate::event::ConversionError;

/// Records with bodies of at least so many bytes are read row by row while they come, instead of
/// being held as a whole.
const PIECES_MIN: u64 = 1 << 20;

/// Takes a database file's bytes as they are read.
pub struct Loader {
    replayer: Replayer,
    path: String,
    seed: u64,
}

/// A database as its file told.
pub struct Loaded {
    pub(crate) database: Database,
    pub(crate) path: String,
    pub(crate) records: u64,
    pub(crate) snapshot_len: u64,
    pub(crate) warning: Option<String>,
    valid_len: u64,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Loader {
    /// Starts on the file called `path`; `seed` is fresh randomness.
    pub fn new(path: &str, seed: u64) -> Self {
        Self { replayer: Replayer::new(path, seed), path: path.to_owned(), seed }
    }

    /// As [`Loader::new`], for a caller who can go back in the file: a big record is then never held
    /// as a whole. After each [`Loader::feed`] the caller must ask [`Loader::again_from`].
    pub fn seekable(path: &str, seed: u64) -> Self {
        Self { replayer: Replayer::seekable(path, seed, PIECES_MIN), path: path.to_owned(), seed }
    }

    /// Where in the file the next bytes must come from, if not from behind the last ones.
    pub fn again_from(&mut self) -> Option<u64> {
        self.replayer.again_from()
    }

    /// Takes the next bytes; an error means that this is no database the server can open.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.replayer.feed(bytes).map_err(|error| error.to_string())
    }

    /// The file has ended.
    pub fn finish(self) -> Result<Loaded, String> {
        let loaded = self.replayer.finish().map_err(|error| error.to_string())?;
        let database =
            Database::from_store(loaded.store, self.seed).map_err(|error| error.to_string())?;
        Ok(Loaded {
            database,
            path: self.path,
            records: loaded.records,
            snapshot_len: loaded.snapshot_len,
            warning: loaded.warning,
            valid_len: loaded.valid_len,
        })
    }
}

impl Loaded {
    /// Where the last good record ends: appends go there, whatever follows is cut off first.
    pub fn valid_len(&self) -> u64 {
        self.valid_len
    }
}

/// Converts rows to another schema; runs in a helper.
///
/// # Errors
/// Why the rows do not conform to it.
pub fn convert_rows(
    snapshot: &Snapshot,
    schema: Arc<Schema>,
    seed: [u64; 4],
) -> Result<Box<Converted>, ConversionError> {
    let mut uuids = UuidSource::new(seed);
    let seed = uuids.next_u64();
    let converted = weir_engine::convert(snapshot, schema, &mut uuids, seed);
    converted.map(Box::new).map_err(ConversionError::Refused)
}

/// Streams a compacted file: schema record, then one record with all rows. Returns its length.
pub fn write_snapshot(
    snapshot: &Snapshot,
    comment: &str,
    date_ms: i64,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let mut length = 0;
    let mut counted = |bytes: &[u8]| {
        length += bytes.len() as u64;
        sink(bytes)
    };
    let mut schema = Vec::new();
    standalone::write_schema(&mut schema, snapshot.schema());
    counted(&schema)?;
    standalone::write_snapshot(snapshot, date_ms, Some(comment), &mut counted)?;
    Ok(length)
}
