//! What comes in: connections and the bytes on them, until they are events of the core.
//!
//! 1. `listeners` accept connections, `dialling` makes them; `handshakes` is the thread in which
//!    both become ready for messages.
//! 2. A `channel` is a connection; its `inbox` cuts the bytes that come into messages.
//! 3. `sessions` are the clients of the core, `links` the servers that its databases follow,
//!    `admin` the users of `ovs-appctl`. What is written to each of them stands beside what is
//!    read: one of the two decides about the other. `admission` bounds what clients may send, `turns` says who is
//!    next where that is a lot, `unfinished` who brings too little.
//! 4. `endpoint` is an admin socket without a server, for clients in the background.

pub(super) mod listeners;

pub(super) mod dialling;
pub(super) mod handshakes;

mod channel;
mod inbox;

pub(super) mod admission;
mod turns;
mod unfinished;
pub(super) mod sessions;

pub(super) mod links;

pub(super) mod admin;
mod endpoint;

pub use endpoint::{AdminRequest, AdminSocket};
