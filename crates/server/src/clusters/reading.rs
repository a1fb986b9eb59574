//! What is read of a member's file for other members.

use weir_cluster::Place;
use weir_data::Uuid;

use crate::effect::READ_FILE_BYTES_MAX;

/// A piece of the file.
pub(crate) enum Piece {
    /// Of the file's snapshot: for whom, for which sending, and where in its data.
    Snapshot { to: Uuid, number: u64, offset: u64 },
    /// Of texts of entries.
    Text,
}

/// Texts of entries on their way, in pieces.
pub(crate) struct Texts {
    /// Pieces that have not come.
    left: usize,
    /// What has come.
    result: Result<Vec<u8>, String>,
}

impl Texts {
    /// The reading begins; where its pieces are.
    pub(crate) fn begin(place: Place) -> (Self, Vec<Place>) {
        let end = place.offset + place.len;
        let step = usize::try_from(READ_FILE_BYTES_MAX).expect("it fits in memory");
        let piece = |offset| Place { offset, len: READ_FILE_BYTES_MAX.min(end - offset) };
        let pieces: Vec<Place> = (place.offset..end).step_by(step).map(piece).collect();
        (Self { left: pieces.len(), result: Ok(Vec::new()) }, pieces)
    }

    /// The next piece is here, or cannot be read; answers whether all have been.
    pub(crate) fn piece(&mut self, piece: Result<Vec<u8>, String>) -> bool {
        match (&mut self.result, piece) {
            (Ok(bytes), Ok(piece)) => bytes.extend_from_slice(&piece),
            (Ok(_), Err(error)) => self.result = Err(error),
            (Err(_), _) => {}
        }
        self.left -= 1;
        self.left == 0
    }

    /// What has come of it.
    pub(crate) fn finish(self) -> Result<Vec<u8>, String> {
        self.result
    }
}
