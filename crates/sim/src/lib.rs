//! A cluster of whole servers in one thread: the core that the program runs, with a disk, a network,
//! helpers, clocks and clients that are made of a seed.
//!
//! Where `weir-cluster` simulates members alone, this has all that stands on them: tables that are with
//! a helper, forwarded requests, monitors, snapshots that are loaded, ids that clients chose. Reading
//! order:
//!
//! 1. [`world`]: time, what is due when, and what ends a run; `faults`: what goes wrong meanwhile.
//! 2. `node`: one server; carries out what the core asks for; `files`: what of that concerns its files.
//! 3. `disk`: what of a file is there after a crash.
//! 4. `network`: connections between the servers.
//! 5. `sessions`: what all clients do; `clients`: who writes and reads, and knows what it has been told;
//!    `replica`: one of those who watch, under conditions; `pipelines`: who asks for more before he is
//!    answered; `items`: rows that are deleted again; `bystanders`: who changes nothing; `tempo`: how fast.
//! 6. `membership`, `forgetting` and `recovery`: servers that join and leave, files that are not what they were,
//!    and clusters that are made of what is left of one.
//! 7. `checks`: what must be true of all that, a checker a file.
//! 8. [`sources`]: a standalone server in the place of the cluster, and what only that has.
//! 9. [`plan`] and [`coverage`]: parts that can be left out, and what has met what.
//! 10. [`seed`]: a run of everything, and how a failing one becomes short.

mod bystanders;
mod checks;
mod clients;
pub mod coverage;
mod disk;
mod faults;
mod files;
mod forgetting;
mod items;
mod membership;
mod network;
mod node;
mod pipelines;
pub mod plan;
mod recovery;
mod replica;
pub mod seed;
mod sessions;
pub mod sources;
mod tempo;
pub mod world;

pub use faults::{Faults, Lie};
pub use world::{Counts, World};

/// The seeds with which a simulator of this name has failed once.
///
/// # Panics
/// The file has a line that names no seed.
pub fn failed_seeds(simulator: &str) -> impl Iterator<Item = u64> {
    include_str!("../failed-seeds").lines().filter_map(move |line| {
        let mut words = line.split(' ');
        let seed = words.next().filter(|name| *name == simulator).and_then(|_| words.next())?;
        Some(seed.parse().expect("a seed"))
    })
}
