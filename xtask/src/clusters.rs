//! Clusters of whole servers in the simulator (`crates/sim`), as a step of `cargo xtask soak`: with
//! fresh seeds, which are printed.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::step::{Outcome, passes};
use crate::tools::cargo;

/// Clusters of a run, each for 45 simulated seconds: ten minutes on a busy machine.
const SEEDS: u64 = 150;

/// Clusters of a run in CI.
const SEEDS_IN_CI: u64 = 20;

/// Runs them.
pub(crate) fn step(root: &Path) -> Result<Outcome> {
    let seeds = if std::env::var_os("CI").is_some() { SEEDS_IN_CI } else { SEEDS };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    println!("    WEIR_SEED={seed} WEIR_SEEDS={seeds}");
    let mut test = cargo(root);
    // As the tests are built: nothing is built again.
    test.args(["test", "--workspace", "--test", "simulation", "whatever", "--", "--nocapture"]);
    test.env("WEIR_SEED", seed.to_string()).env("WEIR_SEEDS", seeds.to_string());
    passes(&mut test)
}
