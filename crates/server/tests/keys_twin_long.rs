//! What `keys_twin` checks, with everything done by helpers: the tables are away much of the time.

#[path = "keys_twin.rs"]
mod keys_twin;
