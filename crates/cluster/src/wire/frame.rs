//! Everything that one member says to another, once they have greeted.

use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::Servers;

use crate::entry::Entry;
use crate::ids::Position;

/// A message of the raft library, with entries as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Number of the library's `MessageType`.
    pub(crate) kind: u8,
    pub(crate) term: u64,
    pub(crate) log_term: u64,
    pub(crate) index: u64,
    pub(crate) commit: u64,
    pub(crate) commit_term: u64,
    pub(crate) request_snapshot: u64,
    pub(crate) reject: bool,
    pub(crate) reject_hint: u64,
    /// Of a leader: its log is on its disk up to this entry.
    pub(crate) synced: u64,
    pub(crate) context: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

/// What a snapshot is, before its bytes come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    /// The sender's term.
    pub(crate) term: u64,
    /// The last entry that it has in it.
    pub(crate) last: Position,
    /// That entry's id.
    pub(crate) eid: Uuid,
    /// All servers after that entry.
    pub(crate) servers: Arc<Servers>,
    /// The election timer after that entry, in milliseconds.
    pub(crate) election_timer: u64,
    /// How many bytes its data has.
    pub(crate) len: u64,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// For the raft library.
    Step(Step),
    /// A snapshot is to follow, unless the receiver has some of it: it says how much.
    Begin(Begin),
    /// Bytes of a snapshot's data.
    Piece {
        /// The last entry that the snapshot has in it.
        last: Position,
        /// Where in the data they belong.
        offset: u64,
        bytes: Vec<u8>,
    },
    /// So much of a snapshot's data is there.
    Have {
        /// The last entry that the snapshot has in it.
        last: Position,
        /// How many bytes, from the beginning.
        upto: u64,
    },
    /// A server wants to become a member.
    Join {
        /// Where it listens.
        address: String,
        /// The server that it was before it forgot what that had promised.
        replaces: Option<Uuid>,
    },
    /// What has come of that.
    JoinReply {
        /// The server that asked is a member.
        success: bool,
        /// Why not, or not yet.
        comment: String,
        /// Where members listen, the leader first if it is known.
        remotes: Vec<String>,
    },
    /// A member is to be removed, by its own wish or that of an operator.
    Remove {
        /// Which.
        server: Uuid,
    },
    /// What has come of that.
    RemoveReply {
        /// Which.
        server: Uuid,
        /// The server is no member any more.
        success: bool,
        /// Why not.
        comment: String,
    },
    /// From server to server; nobody below looks into it.
    Message(Vec<u8>),
    /// A connection to the receiver has ended: what was said there before may not have come.
    Lost,
}
