//! Scenarios of `server.rs` with a server to which every transaction is too long for one step, and
//! every step as short as can be: helpers do what is more, and nobody can tell.

#[allow(dead_code, reason = "`events` uses the rest")]
#[path = "events/chance.rs"]
mod chance;
mod chain;
#[allow(dead_code, reason = "`events` uses the rest")]
#[path = "events/replica.rs"]
mod replica;
mod shell;

mod backup;
mod conversion;
mod crash;
mod keys_twin;
mod quiet;
mod relay;
mod relay_conversions;
mod remotes;
mod resume;
mod scenarios;
