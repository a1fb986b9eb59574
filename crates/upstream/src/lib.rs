//! Following a database that another server has.
//!
//! Pure: what happened to the connection goes in with the time, what to do about it comes out. A
//! connection is the shell's; whoever owns a follower carries its bytes.
//!
//! 1. [`connection`]: one connection kept up: attempts, [`backoff`], what to log. A server keeps
//!    connections to managers by it too.
//! 2. [`probe`]: whether a silent peer is still there, whoever has made the connection.
//! 3. [`session`]: a JSON-RPC dialogue on such a connection, and what its messages are. It knows
//!    no database, so a relay's (`monitor_cond_since`) stands on it as well as a backup's.
//! 4. [`replication`]: the dialogue of a backup: server id, databases, schema, monitor, updates.
//! 5. `compatible`: whether the rows of one schema fit into another.
//! 6. [`follower`]: the dialogue of a relay: [`remotes`], `server_row`, [`freshness`], the schema,
//!    rows and what changes in them ([`news`]), requests of the owner's.
//! 7. [`updates`], [`updates2`]: `<table-updates>` (RFC 7047 §4.1.6) read as images of rows, and
//!    `<table-updates2>` (ovsdb-server(7) §4.1.14) as edits.

pub mod backoff;
mod compatible;
pub mod connection;
pub mod follower;
pub mod freshness;
pub mod news;
pub mod probe;
pub mod remotes;
pub mod replication;
mod server_row;
pub mod session;
pub mod updates;
pub mod updates2;

pub use replication::{Output, Replication, RowReader, Rows, Source, Status};
pub use session::{Input, Level};
