//! A cluster on one thread: members, a network that loses and delays, disks that forget what was not
//! synced, clocks. A run is a function of its seed.
#![allow(unreachable_pub, reason = "a module of tests")]

mod checks;
mod disk;
mod faults;
mod forgetting;
mod network;
mod rng;
mod shell;
mod status;
mod world;

pub use checks::Counts;
pub use faults::Faults;
pub use forgetting::{Forgets, HEARD_MS};
pub use rng::Rng;
pub use shell::Lie;
pub use world::{SETTLE_TIMERS, World};
