//! Active-backup databases: following a source, and its long messages.

pub(crate) mod mirror;
pub(crate) mod replication;
