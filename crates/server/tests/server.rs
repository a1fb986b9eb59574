//! The core, driven by a shell of memory. One program, for each takes its time to link.

#[allow(dead_code, reason = "`events` uses the rest")]
#[path = "events/chance.rs"]
mod chance;
mod chain;
#[allow(dead_code, reason = "`events` uses the rest")]
#[path = "events/replica.rs"]
mod replica;
mod shell;

mod admin;
mod any_moment;
mod backup;
mod batching;
mod big_requests;
mod channels;
mod conversion;
mod crash;
mod delivery;
mod explain;
mod fault;
mod feeds;
mod follow;
mod herd;
mod kept;
mod keys;
mod keys_of_relays;
mod keys_twin;
mod lock_pipelines;
mod lock_successors;
mod log_of_changes;
mod long_transactions;
mod members;
mod once;
mod own_updates;
mod past;
mod pipelines;
mod quiet;
mod relay;
mod relay_conversions;
mod relay_locks;
mod relay_locks_of_several;
mod relay_order;
mod relay_rights;
mod relay_rings;
mod relay_sources;
mod relay_states;
mod relay_values;
mod relay_waits;
mod remotes;
mod resume;
mod scenarios;
mod streams;
mod waits;
mod waits_twin;
