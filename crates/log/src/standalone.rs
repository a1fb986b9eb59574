//! What the records of a standalone database say: first a schema, then transactions.

mod changes;
mod decode;
mod note;
mod pass;
mod replay;
pub(crate) mod rows;
mod scan;
pub(crate) mod split;
mod write;

pub use decode::Decoder;
pub use note::Note;
pub use pass::{NotASnapshot, SnapshotRows};
pub use replay::{IS_CLUSTERED, LoadError, Loaded, Replayed, Replayer};
pub use scan::{Scanned, Scanner};
pub use write::{
    Form, Style, snapshot_json, stream_snapshot_json, write_nothing, write_schema, write_snapshot,
    write_transaction, write_transaction_as, write_transaction_json,
};
