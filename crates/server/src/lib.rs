//! The server core: events in, effects out. No sockets, files, clocks, randomness or threads.
//!
//! # The life of a transaction
//!
//! 1. The shell frames a message and hands it over: [`event::Event::Message`].
//! 2. `dispatch` takes it apart. A `transact` becomes a `trigger::Trigger` and runs at once
//!    (`round`): `weir_engine::execute` changes the tables in place and answers with a delta.
//! 3. The delta's log record joins the round's bytes; waiting triggers are woken and run.
//! 4. [`Server::end_round`] asks for one [`effect::Effect::Append`] a database. Nothing computed
//!    on top of it leaves before it is answered.
//! 5. Written: the deltas go to the monitors, a session's own updates go out, then its reply. Not
//!    written (a full disk): the round's deltas are undone newest first and every request of the
//!    round runs again, writers against a file that refuses.
//! 6. Other requests of the round (monitors, locks, echo) run last, on what is now committed, and
//!    then admin commands. A session has at most one message in a round, so no session sees its
//!    requests reordered.
//! 7. What cost more than a step may is handed to a helper now (`away`, `hold`).
//! 8. Updates to other sessions wait for an idle moment, at most `FLUSH_DELAY_US_MAX` or
//!    `FLUSH_BYTES_MAX`: [`Server::flush_updates`].

pub mod event;
pub mod effect;
mod options;
mod server;

mod session;
mod database;
mod storage;
pub mod work;
mod monitors;
mod remotes;
mod backup;
mod admin;

pub mod configuration;
mod ids;
mod origin;
mod reply;
mod shell;

pub use admin::{overview, unixctl};
pub use options::{Config, FileForms, StartStatus};
pub use server::Server;
pub use storage::load;
