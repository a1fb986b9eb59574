//! Entries of the log, as everybody but the raft library sees them.

use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::Servers;

use crate::ids::Position;

/// A text that several hold.
pub type Text = Arc<Vec<u8>>;

/// Bounds of the election timer, in milliseconds.
pub(crate) const ELECTION_TIMER_MS: std::ops::RangeInclusive<u64> = 100..=600_000;

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: the first entry of each term.
    Empty,
    /// A transaction or a schema.
    Data {
        /// The entry's id, which its origin has chosen.
        eid: Uuid,
        /// `[SCHEMA|null, TRANSACTION|null]` as JSON (ovsdb(5)).
        text: Text,
    },
    /// All servers of the cluster from here on.
    Servers(Arc<Servers>),
    /// The election timer from here on, in milliseconds.
    ElectionTimer(u64),
}

impl Content {
    /// Bytes that it holds besides itself.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data { text, .. } => text.len(),
            Self::Empty | Self::ElectionTimer(_) => 0,
            Self::Servers(servers) => servers.values().map(|address| address.len() + 64).sum(),
        }
    }

    /// The id of what it says, if that is data.
    pub fn eid(&self) -> Option<Uuid> {
        match self {
            Self::Data { eid, .. } => Some(*eid),
            _ => None,
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's term and index.
    pub at: Position,
    /// What it says.
    pub content: Content,
}

/// Where in a file something is, in bytes from the end of the file's first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

/// What an entry says, in memory or in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// In memory.
    Here(Content),
    /// Data of which only the id is in memory.
    InFile {
        /// The entry's id.
        eid: Uuid,
    },
}

/// An entry as a file's log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The entry's term and index.
    pub at: Position,
    /// What it says.
    pub held: Held,
    /// Where the text of its data is; `None` if it has none.
    pub place: Option<Place>,
}

/// Data that a leader's server wants to be the next entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The entry's id.
    pub eid: Uuid,
    /// `[SCHEMA|null, TRANSACTION|null]` as JSON.
    pub text: Text,
}
