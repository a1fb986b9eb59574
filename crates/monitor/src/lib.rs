//! Monitors of one database: who watches what, what has changed for them, and the updates.
//!
//! # The life of an update
//!
//! 1. [`Monitors::commit`] puts a transaction's delta into the log (`pending`): once for everybody,
//!    whatever the number of monitors. A table that nobody watches costs nothing.
//! 2. [`Monitors::flush_all`] finds the groups whose conditions (`filter`) a change can concern
//!    (`clauses`); monitors with equal subscriptions (`subscription`) are one group (`registry`).
//!    [`Monitors::flush`] does the same for a session's own monitors, before its reply. Both have a
//!    budget (`cost`): beyond it groups come later, or are composed elsewhere (`late`).
//! 3. The changes are resolved against the store once (`view`), and for each of those groups the
//!    body of the update is composed once (`compose`), or found composed (`cache`). Groups that
//!    differ only in their conditions share what is written of a row (`shape`). Only the heads of
//!    the messages differ between members with different names (`message`).
//! 4. Who has been told stands at the log's end. Nearly everybody is there together, at the
//!    *base*, which moves as one; those whose sessions do not read stay behind, and what happens
//!    meanwhile merges (`change`). Who comes back is led where others went from the same place, if
//!    that was long (`catch_up`).
//! 5. Whoever has had nothing to hear for long is told the id of a newer state (`renewal`).
//!
//! **Invariant:** at a flush the store is exactly at the position of the last commit, so the rows
//! of the store are the new rows of the pending changes.

mod cache;
mod catch_up;
mod change;
mod clauses;
mod compose;
mod cost;
mod difference;
mod feed;
mod filter;
mod flush;
mod initial;
mod late;
mod message;
mod occupied;
mod pending;
mod prepare;
mod registry;
mod renewal;
mod resume;
mod rows;
mod shape;
mod subscription;
mod told;
mod view;

pub use catch_up::CATCH_UP_BYTES_MAX;
pub use cost::TooLong;
pub use difference::ConditionChange;
pub use feed::Feed;
pub use flush::{Flushed, PENDING_BYTES_MAX};
pub use initial::{Initial, InitialPieces};
pub use late::{LateBodies, LateId, LateUpdates, Leaving};
pub use message::{Update, Version};
pub use occupied::bytes_of_text;
pub use prepare::{Prepare, Prepared};
pub use registry::{Counts, GroupId, MonitorKey, Monitors};
pub use resume::Missed;
pub use rows::{FindCandidates, FindRow, Rows, Told};
