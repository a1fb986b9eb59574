//! Following a database that another server has.
//!
//! Pure: what happened to the connection goes in with the time, what to do about it comes out. A
//! connection is the shell's; whoever owns a follower carries its bytes.
//!
//! 1. [`session`]: one connection kept up: attempts, [`backoff`], probes, echo. It knows no dialogue,
//!    so a relay's (`monitor_cond_since`) stands on it as well as a backup's.
//! 2. [`replication`]: the dialogue of a backup: server id, databases, schema, monitor, updates.
//! 3. `compatible`: whether the rows of one schema fit into another.
//! 4. [`updates`]: `<table-updates>` (RFC 7047 §4.1.6) read as images of rows.

pub mod backoff;
mod compatible;
pub mod replication;
pub mod session;
pub mod updates;

pub use replication::{Output, Replication, RowReader, Rows, Source, Status};
pub use session::Level;
