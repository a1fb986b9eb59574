//! What the records of a standalone database say: first a schema, then transactions.

mod changes;
mod pass;
mod replay;
mod rows;
mod split;
mod write;

pub use pass::{NotASnapshot, SnapshotRows};
pub use replay::{IS_CLUSTERED, LoadError, Loaded, Replayed, Replayer};
pub use write::{
    Form, Style, snapshot_json, write_schema, write_snapshot, write_transaction,
    write_transaction_as, write_transaction_json,
};
