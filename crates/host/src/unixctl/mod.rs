//! The admin socket that `ovs-appctl` talks to.

mod commands;
mod message;

pub(crate) use commands::{Commands, Outcome};
pub(crate) use message::{Request, reply};
