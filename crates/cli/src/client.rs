//! The built-in client: `weir call`, `weir transact`, `weir watch`.
//!
//! Small on purpose: blocking sockets, one connection, no TLS.

pub(crate) mod address;
mod call;
mod cell;
mod column;
mod replica;
mod session;
mod show;
mod watch;

pub(crate) use call::{call, transact};
pub(crate) use watch::watch;
