//! Addresses, listeners, streams: the connection methods of ovsdb(7) over non-blocking sockets.
//!
//! [`address`] reads `punix:FILE`, `ptcp:[PORT][:IP]`, `unix:FILE`, `ssl:HOST[:PORT]` and so on;
//! [`listener`] and [`stream`] open and use them; [`tls`] has the options of TLS and decides whom to
//! believe. [`blocking`] is the same for programs that wait.

pub mod address;
pub mod blocking;
pub mod error;
mod inherited;
pub mod listener;
pub mod stream;
pub mod tls;
mod unacknowledged;
mod unix;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use blocking::BlockingStream;
pub use listener::{Accepted, ListenError, Listener, Peer};
pub use stream::{Progress, Stream};
pub use tls::{Tls, TlsOptions};
pub use unix::connect_unix;
