//! A standalone database, read whole: every record must be good.

use std::path::Path;

use weir_engine::Database;
use weir_log::standalone::Replayer;

use super::log_file::LogFile;
use crate::program::Failure;
use crate::progress::Progress;

/// Records with bodies of at least so many bytes are read row by row: a whole one is never in memory.
const PIECES_MIN: u64 = 1 << 20;

/// A database and where its file ends.
pub(super) struct Loaded {
    pub(super) database: Database,
    /// Where the next record goes.
    pub(super) length: u64,
}

/// Reads a database file.
///
/// The server serves what precedes a bad record; here nothing is done with such a file, so that
/// nothing of it is lost unseen.
pub(super) fn load(path: &Path, seed: u64) -> Result<Loaded, Failure> {
    let log = LogFile::open_standalone(path)?;
    let mut replayer = Replayer::seekable(&path.display().to_string(), seed, PIECES_MIN);
    let mut progress = Progress::bytes("reading", log.length());
    log.replay(|bytes, done| {
        progress.at(done);
        replayer.feed(bytes).map_err(|error| Failure::new(error.to_string()))?;
        Ok(replayer.again_from())
    })?;
    let loaded = replayer.finish().map_err(|error| Failure::new(error.to_string()))?;
    if let Some(problem) = loaded.warning {
        return Err(Failure::new(problem));
    }
    let database = Database::from_store(loaded.store, seed);
    let database = database.map_err(|error| Failure::new(error.to_string()))?;
    Ok(Loaded { database, length: loaded.valid_len })
}
