//! Addresses, listeners, streams: the connection methods of ovsdb(7) over non-blocking sockets.
//!
//! [`address`] reads `punix:FILE`, `ptcp:[PORT][:IP]`, `unix:FILE` and `tcp:HOST[:PORT]`,
//! [`listener`] and [`stream`] open and use them. TLS (`pssl:`, `ssl:`) is not here yet; a stream
//! is a closed enum so that it will be one more arm.

pub mod address;
pub mod error;
pub mod listener;
pub mod stream;
mod unix;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use listener::{Accepted, ListenError, Listener, Peer};
pub use stream::Stream;
