//! What can happen to a member.

use weir_data::Uuid;

use crate::consensus::Mark;
use crate::ids::{LinkId, Position};

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed, as [`Member::wakeup_us`](crate::Member::wakeup_us) wished.
    Tick,
    /// Result of [`Effect::Persist`](crate::Effect::Persist), in the order of the steps. On `Err`
    /// nothing of the step is in the file, or nobody knows.
    Persisted {
        /// Which step.
        step: u64,
        /// How long fdatasync(2) took in microseconds, or the failure as strerror(3) text.
        result: Result<u64, String>,
    },
    /// The connection of [`Effect::Connect`](crate::Effect::Connect) is open.
    Connected {
        /// Which.
        link: LinkId,
    },
    /// A peer has connected.
    Accepted {
        /// The new connection.
        link: LinkId,
        /// What logs call it.
        name: String,
    },
    /// Bytes have come on a connection, in pieces of any length.
    Received {
        /// Which.
        link: LinkId,
        /// What has come.
        bytes: Vec<u8>,
    },
    /// The connection has ended, or could not be opened; nothing more is heard of this number.
    Lost {
        /// Which.
        link: LinkId,
        /// The failure as strerror(3) text, `None` for an orderly end.
        error: Option<String>,
    },
    /// A copy of the file begins with a snapshot of what had taken effect when
    /// [`Member::begin_copy`](crate::Member::begin_copy) was asked; it lacks what is to stand behind it.
    CopyWritten {
        /// What was answered then.
        mark: Mark,
        /// Bytes of the snapshot's data.
        len: u64,
    },
    /// The records of [`Effect::ExtendCopy`](crate::Effect::ExtendCopy) are in the copy, and on the disk.
    CopyExtended,
    /// Result of [`Effect::ReadSnapshot`](crate::Effect::ReadSnapshot).
    SnapshotRead {
        /// For whom.
        to: Uuid,
        /// The number that was given.
        number: u64,
        /// Where the piece begins.
        offset: u64,
        /// The bytes, or the failure as strerror(3) text.
        result: Result<Vec<u8>, String>,
    },
    /// Result of [`Effect::ReadTexts`](crate::Effect::ReadTexts).
    TextsRead {
        /// The bytes, or the failure as strerror(3) text.
        result: Result<Vec<u8>, String>,
    },
    /// What [`Effect::ReceiveSnapshot`](crate::Effect::ReceiveSnapshot) begins is there, or more pieces of
    /// [`Effect::SnapshotPiece`](crate::Effect::SnapshotPiece) are: the other end sends no more before.
    SnapshotWritten {
        /// The last entry in the snapshot.
        last: Position,
        /// How many bytes of its data are in the new file, or why it takes nothing more.
        result: Result<u64, String>,
    },
    /// Result of [`Effect::LoadSnapshot`](crate::Effect::LoadSnapshot).
    SnapshotLoaded {
        /// The last entry in the snapshot.
        last: Position,
        /// Why its data makes no sense.
        result: Result<(), String>,
    },
}
