//! Places in the log, and the numbers of connections.

/// A connection to a peer, numbered by whoever opened it; never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// A place in the log: an index may be taken again in a later term, the pair may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The term in which the entry was proposed.
    pub term: u64,
    /// The entry's index.
    pub index: u64,
}

/// Terms and indexes are no larger: sums do not overflow, and a file's JSON has them.
pub const PLACE_MAX: u64 = 1 << 62;
