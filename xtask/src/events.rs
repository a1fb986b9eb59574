//! The core of the server under millions of events, as a step of `cargo xtask soak`: the test
//! `events` of `weir-server` with fresh seeds, which are printed. In CI a run begins where the last
//! one did, so that a failure is one of the change, and it is shorter.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::step::{Outcome, passes};
use crate::tools::cargo;

/// About two minutes on a busy machine; enough that all of interest must have happened.
const EVENTS: u64 = 4_000_000;

/// Events and seed of a run in CI.
const IN_CI: (u64, u64) = (900_000, 30_000_000);

/// Runs them.
pub(crate) fn step(root: &Path) -> Result<Outcome> {
    let (events, seed) = match std::env::var_os("CI") {
        Some(_) => IN_CI,
        None => (EVENTS, SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() << 16),
    };
    println!("    WEIR_EVENTS={events} WEIR_EVENTS_SEED={seed}");
    let mut test = cargo(root);
    // As the tests are built: nothing is built again.
    test.args(["test", "--workspace", "--test", "events", "--", "--nocapture"]);
    test.env("WEIR_EVENTS", events.to_string()).env("WEIR_EVENTS_SEED", seed.to_string());
    passes(&mut test)
}
