//! Monitors of one database: who watches what, what has changed for them, and the updates.
//!
//! # The life of an update
//!
//! 1. [`Monitors::commit`] merges a transaction's delta into the newest segment of the change log
//!    (`pending`): once for everybody, whatever the number of monitors.
//! 2. [`Monitors::flush_all`] (or [`Monitors::flush`] for a session's own) goes through the groups:
//!    monitors with equal subscriptions (`subscription`) are one group.
//! 3. For every distinct place in the log where members of the group stand, the body of the update
//!    is composed once (`compose`), from the merged changes and the rows as they are now.
//! 4. Members move to the log's end; segments that nobody needs any more go, and neighbours that
//!    nobody stands between are merged.
//!
//! **Invariant:** at a flush the store is exactly at the position of the last commit, so the rows
//! of the store are the new rows of the pending changes.

mod compose;
mod pending;
mod registry;
mod subscription;

pub use registry::{Counts, MonitorKey, Monitors, PENDING_BYTES_MAX, Update, Version};
