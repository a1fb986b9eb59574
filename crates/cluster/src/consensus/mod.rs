//! The raft library, whose types stay here: numbers of servers for their ids, messages for steps,
//! and entries for what they say.

mod check;
mod disk;
mod messages;
mod node;
mod older;
mod servers;
mod store;

pub(crate) use check::Odd;
pub(crate) use messages::{
    APPEND, APPEND_ANSWER, COMMIT, HEARTBEAT, HEARTBEAT_ANSWER, PRE_VOTE_REQUEST, TIMEOUT_NOW,
    VOTE_ANSWER, VOTE_REQUEST, VOTES,
};
pub(crate) use node::{Change, Node, Progress, Ready, Start};
pub(crate) use store::Fetch;
pub use store::Mark;

/// Ticks in an election timer.
pub(crate) const ELECTION_TICKS: u64 = 100;

/// A follower waits for so many more ticks at most before it campaigns.
pub(crate) const ELECTION_TICKS_MORE: u64 = 40;

/// Ticks between heartbeats: three in an election timer.
pub(crate) const HEARTBEAT_TICKS: u64 = 33;
