//! What a member asks for.

use std::sync::Arc;

use weir_data::Uuid;

use crate::consensus::Mark;
use crate::entry::{Entry, Place, Text};
use crate::ids::{LinkId, Position};

/// Severity of a log line, as vlog(8) names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `err`.
    Error,
    /// `warn`.
    Warning,
    /// `info`.
    Info,
    /// `dbg`.
    Debug,
}

/// What must be done, in the order in which it is polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append this to the file with one write(2), then fdatasync(2) if `sync`; answer with
    /// [`Event::Persisted`](crate::Event::Persisted). The next step may be written before. Unless the
    /// step written last is `behind`, fail without writing: what comes before could not be written.
    Persist {
        /// The number to answer with, greater than any before.
        step: u64,
        /// The step that this one follows; 0 for none.
        behind: u64,
        /// Whole records.
        bytes: Arc<Vec<u8>>,
        /// Something depends on their being on the disk.
        sync: bool,
        /// The records say a term, a vote or the end: room that is kept for such may be used.
        is_urgent: bool,
    },
    /// Connect; answer with `Connected` or `Lost`.
    Connect {
        /// The connection's number.
        link: LinkId,
        /// `tcp:IP:PORT`, `ssl:IP:PORT` or `unix:FILE`.
        address: String,
    },
    /// Queue bytes on a connection.
    Send {
        /// Which.
        link: LinkId,
        /// The bytes. Long ones may be shared with other connections and the log.
        bytes: Text,
    },
    /// Close a connection when what is queued has left. Nothing more is heard of it.
    Disconnect {
        /// Which.
        link: LinkId,
    },
    /// These entries are committed, in the order of the log: make them take effect.
    Commit(Vec<Entry>),
    /// This member leads since now, leads no longer, or knows another leader.
    Leadership {
        /// Who leads; `None` while nobody is known to.
        leader: Option<Uuid>,
    },
    /// What another member's server has sent to this one's with
    /// [`Member::send`](crate::Member::send), in order.
    Message {
        /// Who.
        from: Uuid,
        /// What.
        body: Vec<u8>,
    },
    /// A connection to a member has ended, or one of its connections here: what was sent may not have
    /// come, and what it was to answer may not be answered.
    PeerLost {
        /// Who.
        peer: Uuid,
    },
    /// Read a piece of the data of the file's snapshot; answer with
    /// [`Event::SnapshotRead`](crate::Event::SnapshotRead), whatever takes the file's place meanwhile.
    ReadSnapshot {
        /// For whom.
        to: Uuid,
        /// Which sending of a snapshot it is for.
        number: u64,
        /// Where the piece begins, in bytes from the beginning of the data.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// Read texts of entries back from the file as it is now, for members that lack them; answer with
    /// [`Event::TextsRead`](crate::Event::TextsRead). There is one such reading at a time.
    ReadTexts(Place),
    /// What [`Member::read_index`](crate::Member::read_index) asked for: everything up to this entry
    /// was committed, and nothing behind it, anywhere, when it was asked.
    ReadIndex {
        /// The number that was given.
        number: u64,
        /// The entry.
        index: u64,
    },
    /// A snapshot is about to come: write a new file beside the file, which begins with a header for
    /// it. One that is there already is given up, and so is a copy that is being written. Answer with
    /// [`Event::SnapshotWritten`](crate::Event::SnapshotWritten).
    ReceiveSnapshot {
        /// The cluster's id.
        cluster: Option<Uuid>,
        /// What it has in it.
        mark: Mark,
        /// How many bytes the data will have.
        len: u64,
    },
    /// More of the snapshot's data has come; the pieces come in order. Answer with
    /// [`Event::SnapshotWritten`](crate::Event::SnapshotWritten).
    SnapshotPiece {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The snapshot's data is complete: load it; answer with
    /// [`Event::SnapshotLoaded`](crate::Event::SnapshotLoaded).
    LoadSnapshot {
        /// The last entry in the snapshot.
        last: Position,
    },
    /// Append these records to the file beside, put it in the file's place, and its tables in the
    /// place of the tables; answer with [`Event::Persisted`](crate::Event::Persisted). It makes all of no
    /// account that was to be written before this. If it fails, it may be lost.
    InstallSnapshot {
        /// The number to answer with, the last one written if that succeeds.
        step: u64,
        /// The last entry in the snapshot.
        last: Position,
        /// Whole records.
        tail: Arc<Vec<u8>>,
    },
    /// In a helper, append these records to the copy of [`Event::CopyWritten`](crate::Event::CopyWritten),
    /// and bring it to the disk; answer with [`Event::CopyExtended`](crate::Event::CopyExtended).
    ExtendCopy {
        /// Whole records.
        records: Vec<u8>,
    },
    /// Append these records to the copy of [`Event::CopyWritten`](crate::Event::CopyWritten), and put
    /// it in the file's place; answer with [`Event::Persisted`](crate::Event::Persisted). It has all
    /// that was to be written before this, even what could not be.
    FinishCopy {
        /// The number to answer with, the last one written if that succeeds.
        step: u64,
        /// Whole records.
        tail: Arc<Vec<u8>>,
    },
    /// What has come of a snapshot is of no use.
    DropSnapshot,
    /// The copy of [`Event::CopyWritten`](crate::Event::CopyWritten) is of no use.
    DropCopy,
    /// The copy that was begun cannot be finished, whether it is written or not.
    FailCopy {
        /// Why, for the log.
        why: String,
    },
    /// Something in the file cannot be read back that others lack: write a copy of it, even of a file that has nothing
    /// behind its snapshot.
    RewriteFile,
    /// The member has left its cluster: its database is to be closed.
    Left,
    /// The member does not have what it has promised to keep: its file, which says so, is to be opened
    /// anew, for the server to join its cluster again.
    Forgot {
        /// Where others were, besides those that the file names: among them may be the only ones that are
        /// members now.
        remotes: Vec<String>,
    },
    /// End the process behind all that was asked for before, with these last words: an operator wants
    /// to see what comes of it (`cluster/failure-test`).
    Crash {
        /// For standard error.
        why: &'static str,
    },
    /// Write a log line.
    Log {
        /// Severity.
        level: Level,
        /// The text.
        text: String,
        /// The place in the program, if others can provoke the line as often as they like: it is
        /// limited in rate.
        limit: Option<&'static str>,
    },
}
