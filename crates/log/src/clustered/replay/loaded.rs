//! What a clustered file is found to hold.

use weir_data::{Store, Uuid};

use crate::clustered::Servers;
use crate::clustered::raft_log::{Configuration, LoggedEntry, SnapshotPlace};

/// What one server's file holds.
#[derive(Debug)]
pub struct Loaded {
    /// The id of the server whose file this is.
    pub server_id: Uuid,
    /// The address at which other servers reach this one.
    pub local_address: String,
    /// The database's name.
    pub name: String,
    /// The cluster's id, once the server knows it.
    pub cluster_id: Option<Uuid>,
    /// Whom to ask, if the server has not joined, as the header or notes say; else empty.
    pub remotes: Vec<String>,
    /// What the log starts from; none if it starts from nothing.
    pub snapshot: Option<SnapshotPlace>,
    /// What is in force before the first entry.
    pub base: Configuration,
    /// All entries behind the snapshot, of ascending index.
    pub entries: Vec<LoggedEntry>,
    /// The current term.
    pub term: u64,
    /// For whom the server has voted in the current term.
    pub vote: Option<Uuid>,
    /// Who leads in the current term, if the server has noted that.
    pub leader: Option<Uuid>,
    /// Entries up to this index are committed.
    pub commit_index: u64,
    /// What is in force as of the commit index.
    pub committed: Configuration,
    /// What is in force as of the last entry.
    pub latest: Configuration,
    /// The rows as of the commit index, or of the last entry if [`super::Replayer::salvage`] asked
    /// for that; none without a snapshot or an entry with a schema. Nothing but types has been
    /// checked.
    pub store: Option<Store>,
    /// Where the last good record ends: appends go there.
    pub valid_len: u64,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Number of good records, the header included.
    pub records: u64,
    /// Length of the header's record: a compacted file begins with little more.
    pub snapshot_len: u64,
    /// An entry that is committed has a schema and no rows, which not every version of the reference
    /// reads.
    pub has_bare: bool,
    /// The server has noted that it does not have what it had promised to keep.
    pub has_forgotten: bool,
    /// What is wrong behind `valid_len`.
    pub tail: Tail,
}

/// What is behind the last good record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    None,
    /// A bad record, and none behind it that shows that it was on the disk once: what a crash leaves
    /// of what was being written.
    Torn {
        /// What is wrong with it, in the words of the reference.
        warning: String,
    },
    /// A bad record with good ones behind it, by which it is no hole in what was being written: the
    /// server has forgotten what it had promised to keep.
    Damaged {
        /// What is wrong with it, in the words of the reference.
        warning: String,
        /// File offset of the first good record behind the bad one.
        good_offset: u64,
        /// The servers of the cluster by the last record behind the bad one that names any.
        servers: Option<Servers>,
    },
}
