//! Test harness: the reference server as an oracle, generators, golden scripts.

pub mod client;
pub mod normalise;
pub mod process;
pub mod rng;
