//! Test harness: the reference server as an oracle, generators, golden scripts.

pub mod client;
pub mod differential;
pub mod dump;
pub mod files;
pub mod generate;
pub mod normalise;
pub mod patience;
pub mod pki;
pub mod process;
pub mod reach;
pub mod rng;
pub mod script;
mod stream;
