//! Relays with every step of the core as short as can be: what is more goes to helpers.

#[path = "relay.rs"]
mod relay;
