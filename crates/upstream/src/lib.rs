//! Following a database that another server has.
//!
//! Pure: what happened to the connection goes in with the time, what to do about it comes out. A
//! connection is the shell's; whoever owns a follower carries its bytes.
//!
//! 1. [`connection`]: one connection kept up: attempts, [`backoff`], what to log. A server keeps
//!    connections to managers by it too.
//! 2. [`probe`]: whether a silent peer is still there, whoever has made the connection.
//! 3. [`session`]: a JSON-RPC dialogue on such a connection, and what its messages are. It knows
//!    no database.
//! 4. [`follower`]: the dialogue about a database, of a relay or of a replica ([`remotes`], `server_row`,
//!    [`freshness`], [`path`]), or of a backup (`compatible`: whether the rows of one schema fit into another): the
//!    schema, rows and what changes in them ([`news`]), requests of the owner's.
//! 5. [`updates`], [`updates2`]: `<table-updates>` (RFC 7047 §4.1.6) read as images of rows, and
//!    `<table-updates2>` (ovsdb-server(7) §4.1.14) as edits.

pub mod backoff;
mod compatible;
pub mod connection;
pub mod follower;
pub mod freshness;
pub mod news;
pub mod path;
pub mod probe;
pub mod remotes;
mod server_row;
pub mod session;
pub mod updates;
pub mod updates2;

pub use session::{Input, Level};
