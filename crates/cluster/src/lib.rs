//! One member of a cluster (raft; ovsdb(7), "Clustered Database Service Model"): events in, effects
//! out. No sockets, files, clocks, randomness or threads; what a transaction is, nobody here knows.
//!
//! # Who owns what
//!
//! - [`Member`] is what the server above talks to: membership, who leads, what is committed.
//! - `consensus` holds the raft library, whose types stay there: [`raft`](https://docs.rs/raft)
//!   decides about terms, votes and entries, as numbers; what entries say lies in its `store`,
//!   each once.
//! - `peers` knows which connection leads to whom, and which of them speak this crate's frames.
//! - `wire` is what is said on them; `file` what is written down, in the records of `weir_log`.
//! - `status` says it all to people.
//!
//! # The life of an entry
//!
//! 1. The server of the leader proposes a batch: [`Member::propose`]. Each entry has an id (`eid`)
//!    and a text.
//! 2. One [`Effect::Persist`] has the records of the batch; the same texts go to the other members
//!    at once ([`Effect::Send`]).
//! 3. A member that gets them asks for an [`Effect::Persist`], too, and acknowledges when
//!    [`Event::Persisted`] has come.
//! 4. What a majority has is committed: [`Effect::Commit`] names it on every member, in the order of
//!    the log. The leader tells the others with its next message.
//!
//! # What may leave when
//!
//! From a leader, only what appends entries leaves before its own disk has them; votes and
//! acknowledgements leave behind the [`Event::Persisted`] of the step that they were decided in.
//! Each step is one write: term and vote, then entries, then the commit index, so that every prefix
//! of it is a legal file.

mod consensus;
mod effect;
mod entry;
mod event;
mod file;
mod ids;
mod member;
mod peers;
mod status;
mod wire;

pub use consensus::Mark;
pub use effect::{Effect, Level};
pub use entry::{Content, Entry, Held, Logged, Place, Proposal, Text};
pub use event::Event;
pub use ids::{LinkId, PLACE_MAX, Position};
pub use member::{
    Failure, Found, Member, NoRoom, NotLeader, Opened, REMOVAL_TIMERS_MIN, Role, TimerRefused,
};
pub use wire::FRAME_BYTES_MAX;
