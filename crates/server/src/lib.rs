//! The server core: events in, effects out. No sockets, files, clocks, randomness or threads.
//!
//! # Who owns what
//!
//! [`Server`] is fifteen owners; what they have is their own. Arrows between their folders point one
//! way (tidy checks it), from the top of this list to its end:
//!
//! - `server`: what concerns several owners, a file for each occasion: events and timers, requests
//!   (`requests`), what goes on when a database is decided (`round`), what ends with a session or a
//!   database (`ending`), databases that come (`opening`), configurations, admin commands.
//! - `admin`: how far the start has come, reconfigurations, `weir/status`.
//! - `backup`: databases that follow a source. `remotes`: listeners, connections to managers, their
//!   status, options of TLS. `delivery`: who waits until clients have what was committed.
//!   `log_searches`: who waits for changes of the log; `states`: who waits for a state.
//!   `monitors`: what sessions watch, first rows, long messages.
//! - `relays`: databases that another server has, messages of it, requests that go to it.
//! - `clusters`: members of clusters, connections to their peers, requests that go to leaders.
//! - `database`: tables and whether they are open, the pipeline of commits, transactions that wait
//!   or are long, updates and their pacing, conversions.
//! - `storage`: where commits go; the state of a file, compaction, faults, loading.
//! - `session`: who is connected; the gate, locks, probes, limits.
//! - `shell`: the shell as the core sees it: time and randomness in, effects out.
//! - `work`: pure pieces of work for helpers.
//!
//! # The life of a transaction
//!
//! 1. The shell frames a message and hands it over: [`event::Event::Message`]. If anything makes it
//!    wait, it waits in its session's gate (`session/gate.rs`), in the lane of its database.
//! 2. `server/requests.rs` takes it apart. A `transact` on open tables runs at once
//!    (`database/transact.rs`): `weir_engine::execute` changes the tables in place and answers with
//!    a delta. A request that must find its database decided waits for its turn (`server/round.rs`).
//! 3. The delta's log record joins those of its database (`database/commits.rs`); waiting
//!    transactions are woken and run.
//! 4. At the end of the round, [`Server::end_round`] asks for one [`effect::Effect::Append`] a database. Until it is answered
//!    nothing more runs there, and nothing computed on top of it leaves. Other databases, and what
//!    concerns none (`echo`, `lock`), go on.
//! 5. Written: what ran is decided. The deltas go to the monitors (`database/pacing.rs`), a session's
//!    own updates go out, then its reply. Not written (a full disk): the deltas are undone newest
//!    first and every request runs again, writers against a file that refuses.
//! 6. Requests that waited for that take their turns, on what is now committed; then whoever waited
//!    for the tables; then admin commands.
//! 7. What cost more than a step may is handed to a helper now (`database/long.rs`).
//! 8. Updates to other sessions wait for an idle moment, or until there are enough of them:
//!    [`Server::flush_updates`].

pub mod event;
pub mod effect;
mod once;
mod options;
mod server;

mod session;
mod database;
mod storage;
pub mod work;
mod monitors;
mod delivery;
mod log_searches;
mod states;
mod text_limit;
mod clusters;
mod relays;
mod remotes;
mod backup;
mod admin;

pub mod configuration;
mod aligned;
mod asked;
mod ids;
mod mail;
mod outbound;
mod origin;
mod reply;
mod shell;

pub use admin::{overview, unixctl};
pub use options::{Config, FileForms, StartStatus};
pub use server::Server;
pub use storage::{load, recovery};
