//! What the records of a standalone database say: first a schema, then transactions.

mod pass;
mod replay;
mod rows;
mod split;
mod write;

pub use pass::{NotASnapshot, SnapshotRows};
pub use replay::{IS_CLUSTERED, LoadError, Loaded, Replayer};
pub use write::{
    Form, snapshot_json, write_schema, write_snapshot, write_transaction, write_transaction_as,
    write_transaction_json,
};
