//! The server core: events in, effects out. No sockets, files, clocks, randomness or threads.

pub mod effect;
pub mod event;
