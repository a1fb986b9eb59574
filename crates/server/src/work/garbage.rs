//! Memory that takes a while to be given back.

use std::sync::Arc;

use weir_data::{Delta, Snapshot};
use weir_engine::keys::DroppedKey;
use weir_engine::{Attempt, Database, Outcome};
use weir_json::TextBuf;

use crate::work::{Rest, Tried};

/// From this size on memory is freed by a helper, in bytes.
const FREE_BYTES_MIN: usize = 4 << 20;

/// A change of so many rows is freed by a helper.
const FREE_ROWS_MIN: usize = 1_000;

/// Rows of a database that had more atoms are freed by a helper.
const FREE_ATOMS_MIN: usize = 100_000;

/// What is to be forgotten.
#[derive(Debug)]
pub enum Garbage {
    /// A message.
    Text(Arc<TextBuf>),
    /// The rows that nobody else has.
    Rows(Snapshot),
    /// A database that was removed.
    Database(Box<Database>),
    /// A transaction that has run on a snapshot.
    Attempt(Box<Attempt>),
    /// What came of a transaction for which nobody waits, be it done or stopped.
    Tried(Tried),
    /// What came of a read for which nobody waits, be it done or stopped.
    Read(Box<Outcome>),
    /// What a transaction has changed.
    Delta(Arc<Delta>),
    /// A key that nobody wants any more.
    Key(Box<DroppedKey>),
    /// What composes pieces that nobody waits for.
    Rest(Vec<Rest>),
}

impl Garbage {
    /// Whether a helper is to forget it.
    pub(crate) fn is_big(&self) -> bool {
        match self {
            Self::Text(text) => text.len() >= FREE_BYTES_MIN,
            Self::Delta(delta) => delta.rows().take(FREE_ROWS_MIN).count() == FREE_ROWS_MIN,
            Self::Rows(snapshot) => snapshot.atoms() > FREE_ATOMS_MIN,
            Self::Database(_) | Self::Attempt(_) | Self::Rest(_) | Self::Key(_) => true,
            // A replay does what was stopped, and must ask for as much.
            Self::Tried(_) | Self::Read(_) => true,
        }
    }
}
