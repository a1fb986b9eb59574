//! Database files: how they are read, compacted, and what happens when the disk fails.

pub(crate) mod compaction;
pub(crate) mod faults;
pub mod load;
