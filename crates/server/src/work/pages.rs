//! Long messages, composed piece by piece.

use std::sync::Arc;

use weir_data::Snapshot;
use weir_engine::LateReply;
use weir_history::Changes;
use weir_monitor::{Initial, InitialPieces, Missed};

/// Room for a piece of a long message and its last row, in bytes.
const PIECE_ROOM: usize = (1 << 20) + (64 << 10);

/// What is left of a long message. A clone composes the same again.
#[derive(Clone, Debug)]
pub struct Rest(Source);

#[derive(Clone, Debug)]
enum Source {
    Initial(InitialPieces),
    Missed { missed: Missed, changes: Changes, snapshot: Arc<Snapshot> },
    Results(LateReply),
}

/// A piece of a long message.
#[derive(Clone, Debug)]
pub struct Piece {
    pub(crate) bytes: Arc<Vec<u8>>,
    /// What comes behind it, if it is not the last.
    pub(crate) rest: Option<Rest>,
}

impl Rest {
    /// All rows that monitors begin with.
    pub(crate) fn initial(initial: Initial, snapshot: Snapshot) -> Self {
        Self(Source::Initial(initial.pieces(snapshot)))
    }

    /// What monitors have missed, all of it in one piece.
    pub(crate) fn missed(missed: Missed, changes: Changes, snapshot: Snapshot) -> Self {
        Self(Source::Missed { missed, changes, snapshot: Arc::new(snapshot) })
    }

    /// The results of a reader.
    pub(crate) fn results(results: LateReply) -> Self {
        Self(Source::Results(results))
    }

    /// What it occupies for its receiver alone, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        match &self.0 {
            Source::Results(results) => results.bytes(),
            // What monitors begin with is the database's.
            Source::Initial(_) | Source::Missed { .. } => 0,
        }
    }

    /// Composes the next piece.
    pub(crate) fn compose(mut self) -> Piece {
        let mut bytes = Vec::with_capacity(PIECE_ROOM);
        let has_more = match &mut self.0 {
            Source::Initial(pieces) => pieces.write_piece(&mut bytes),
            Source::Missed { missed, changes, snapshot } => {
                let deltas = changes.deltas(snapshot.schema()).map(|entry| entry.delta);
                missed.compose_from(deltas, snapshot, &mut bytes);
                false
            }
            Source::Results(results) => results.write_piece(&mut bytes),
        };
        if !has_more {
            bytes.shrink_to_fit();
        }
        Piece { bytes: Arc::new(bytes), rest: has_more.then_some(self) }
    }
}
