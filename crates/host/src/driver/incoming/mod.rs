//! What comes in: connections and the bytes on them, until they are events of the core.
//!
//! 1. `listeners` accept connections, `dialling` makes them; `handshakes` is the thread in which
//!    both become ready for messages.
//! 2. `inbox` cuts the bytes of a connection into messages.
//! 3. `sessions` are the clients of the core, `links` the servers that its databases follow,
//!    `admin` the users of `ovs-appctl`. What is written to each of them stands beside what is
//!    read: one of the two decides about the other.
//! 4. `endpoint` is an admin socket without a server, for clients in the background.

pub(super) mod listeners;

pub(super) mod dialling;
pub(super) mod handshakes;

mod inbox;

pub(super) mod admin;
mod endpoint;
pub(super) mod links;
pub(super) mod sessions;

pub use endpoint::{AdminRequest, AdminSocket};
