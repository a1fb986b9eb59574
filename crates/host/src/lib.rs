//! The thin shell: everything that the pure core asks for, done with system calls.
//!
//! - `run`: a server process from its options to its exit status.
//! - `driver`: the one hot thread, its loop of rounds over epoll(7), clients and listeners.
//! - `disk`: database files. `daemon`: forks and the pid file. `unixctl`: the admin socket.
//! - `recording`: `--record` and `--replay`.
//! - `vlog`: the log. `clock`, `seed`, `signals`: time, randomness, fatal signals.

mod clock;
mod coverage;
pub mod daemon;
mod disk;
mod driver;
mod fault;
#[cfg(fuzzing)]
pub mod fuzzing;
mod inbox;
mod limits;
mod memory;
mod outbox;
mod poller;
pub mod recording;
mod run;
mod seed;
pub mod signals;
mod stall;
mod unixctl;
pub mod version;
pub mod vlog;

pub use clock::wall_ms;
pub use disk::{Identity, LockError, LockFile, Replacement, lock_path, temporary_path};
pub use driver::{AdminRequest, AdminSocket, LINK_MESSAGE_BYTES_MAX, UNPARSED_BYTES_MAX};
pub use run::{Options, Unixctl, run};
pub use seed::seed;
