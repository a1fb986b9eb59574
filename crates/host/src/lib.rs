//! The thin shell: everything that the pure core asks for, done with system calls.
//!
//! 1. `run`: a server process from its options to its exit status. `daemon`: forks and the pid
//!    file.
//! 2. `driver`: the one hot thread, its loop of rounds over epoll(7) (`poller`), with what comes
//!    in, what goes out, and the work of helpers.
//! 3. `disk`: database files. `unixctl`: commands of admins. `recording`: `--record`, `--replay`.
//! 4. `vlog`: the log. `coverage`, `stall`, `usage`, `memory`: what the process tells about
//!    itself.
//! 5. `clock`, `seed`, `signals`, `fault`, `limits`, `version`: time, randomness, fatal signals,
//!    what the system lets the process have, and who it is.

pub mod daemon;
mod run;

mod driver;
mod poller;

mod disk;
pub mod recording;
mod unixctl;

mod coverage;
mod memory;
mod stall;
mod usage;
pub mod vlog;

mod clock;
mod fault;
#[cfg(fuzzing)]
pub mod fuzzing;
mod limits;
mod seed;
pub mod signals;
pub mod version;

pub use clock::wall_ms;
pub use disk::{
    Identity, LockError, LockFile, Replacement, lock_path, read_keys, temporary_path, write_keys,
};
pub use driver::{AdminRequest, AdminSocket, LINK_MESSAGE_BYTES_MAX, UNPARSED_BYTES_MAX};
pub use run::{Options, Unixctl, run};
pub use seed::seed;
