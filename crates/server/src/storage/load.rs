//! From the bytes of a database file to a database, and back for compaction.
//!
//! Files are read quickly: records are replayed, and integrity is checked once, at the end. Only if
//! it is broken, which no server does, the file is read again and every record is checked as a
//! commit would be. Those that fail are passed over, as the reference does, and stay in the file.

use std::sync::Arc;

pub use crate::work::convert_rows;
use weir_data::store::Snapshot;
use weir_data::{RowImage, Store, TableId, Uuid, UuidSource};
use weir_engine::replicate;
pub use weir_engine::{Converted, Database};
use weir_log::standalone::{self, Replayer};

/// Records with bodies of at least so many bytes are read row by row while they come, instead of
/// being held as a whole.
const PIECES_MIN: u64 = 1 << 20;

/// Of how many records that are passed over the log has the reason.
const REASONS_MAX: usize = 20;

/// Takes a database file's bytes as they are read.
pub struct Loader {
    replayer: Replayer,
    path: String,
    seed: u64,
    check: Option<Check>,
}

/// What has come of a whole file.
pub enum Finished {
    /// A database.
    Loaded(Box<Loaded>),
    /// Integrity is broken: this one wants the file from its beginning again.
    Again(Loader),
}

/// Checks every record as a commit would be.
struct Check {
    /// The rows of the records that passed; from the schema on.
    database: Option<Database>,
    uuids: UuidSource,
    passed_over: PassedOver,
}

/// Records that were not replayed because they break integrity.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    /// How many.
    pub(crate) records: u64,
    /// What is wrong with the first of them.
    pub(crate) reasons: Vec<String>,
}

/// A database as its file told.
pub struct Loaded {
    pub(crate) database: Database,
    pub(crate) path: String,
    pub(crate) records: u64,
    pub(crate) snapshot_len: u64,
    pub(crate) warning: Option<String>,
    pub(crate) passed_over: PassedOver,
    pub(crate) history: weir_history::History,
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
        Self { replayer: Replayer::new(path, seed), path: path.to_owned(), seed, check: None }
    }

    /// As [`Loader::new`], for a caller who can go back in the file: a big record is then never held
    /// as a whole. After each [`Loader::feed`] the caller must ask [`Loader::again_from`].
    pub fn seekable(path: &str, seed: u64) -> Self {
        let replayer = Replayer::seekable(path, seed, PIECES_MIN);
        Self { replayer, path: path.to_owned(), seed, check: None }
    }

    fn careful(path: String, seed: u64) -> Self {
        let uuids = UuidSource::new([seed, !seed, 0x7765_6972, 2]);
        let check = Check { database: None, uuids, passed_over: PassedOver::default() };
        Self { replayer: Replayer::noting(&path, seed), path, seed, check: Some(check) }
    }

    /// Where in the file the next bytes must come from, if not from behind the last ones.
    pub fn again_from(&mut self) -> Option<u64> {
        self.replayer.again_from()
    }

    /// Takes the next bytes; an error means that this is no database the server can open.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Self { replayer, seed, check, .. } = self;
        let fed = match check {
            None => replayer.feed(bytes),
            Some(check) => replayer
                .feed_with(bytes, &mut |record| check.record(record.store, record.rows, *seed)),
        };
        fed.map_err(|error| error.to_string())
    }

    /// The file has ended.
    pub fn finish(self) -> Result<Finished, String> {
        let loaded = self.replayer.finish().map_err(|error| error.to_string())?;
        let (checked, passed_over) = match self.check {
            None => (None, PassedOver::default()),
            Some(check) => (check.database, check.passed_over),
        };
        let database = match checked {
            Some(database) => database,
            None => match Database::from_store(loaded.store, self.seed) {
                Ok(database) => database,
                Err(_) => return Ok(Finished::Again(Self::careful(self.path, self.seed))),
            },
        };
        let tables = database.schema().tables.len();
        let history = weir_history::History::new([0; 20], tables, 1 << 20, self.seed);
        Ok(Finished::Loaded(Box::new(Loaded {
            history,
            database,
            path: self.path,
            records: loaded.records,
            snapshot_len: loaded.snapshot_len,
            warning: loaded.warning,
            passed_over,
            valid_len: loaded.valid_len,
        })))
    }
}

/// The database of a file whose bytes are at hand; `seed` is fresh randomness.
///
/// # Errors
/// Why the server cannot open it.
pub fn load(path: &str, seed: u64, bytes: &[u8]) -> Result<Box<Loaded>, String> {
    let mut loader = Loader::new(path, seed);
    loop {
        loader.feed(bytes)?;
        match loader.finish()? {
            Finished::Loaded(loaded) => return Ok(loaded),
            Finished::Again(again) => loader = again,
        }
    }
}

impl Check {
    /// A record has been replayed on `store`, which differs from the checked rows in `changed` only:
    /// it is committed here, or undone there.
    fn record(&mut self, store: &mut Store, changed: &[(TableId, Uuid)], seed: u64) {
        let schema = store.schema();
        let database = self.database.get_or_insert_with(|| Database::new(Arc::clone(schema), seed));
        let image = |&(table, uuid): &(TableId, Uuid)| {
            let columns = || schema.table(table).data_columns();
            let values = store.get(table, uuid).map(|row| {
                columns().map(|(column, _)| (column, row.datum(column).clone())).collect()
            });
            RowImage { table, uuid, values }
        };
        let images = changed.iter().map(image).collect();
        let mut differing = changed.to_vec();
        match replicate::apply_images(database, images, &mut self.uuids) {
            Ok(delta) => differing.extend(delta.rows().map(|(table, uuid, _)| (table, uuid))),
            Err(error) => self.passed_over.add(&error.to_string()),
        }
        for (table, uuid) in differing {
            store.remove(table, uuid);
            if let Some(row) = database.store().get(table, uuid) {
                store.insert(table, row.clone());
            }
        }
    }
}

impl PassedOver {
    fn add(&mut self, reason: &str) {
        self.records += 1;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason.to_owned());
        }
    }
}

impl Loaded {
    /// Where the last good record ends: appends go there, whatever follows is cut off first.
    pub fn valid_len(&self) -> u64 {
        self.valid_len
    }
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
