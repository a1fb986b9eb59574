//! A cluster on one thread: members, a network that loses and delays, disks that forget what was not
//! synced, clocks. A run is a function of its seed.
#![allow(unreachable_pub, reason = "a module of tests")]

mod disk;
mod rng;
mod world;

pub use world::{Faults, World};
