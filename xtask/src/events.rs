//! The core of the server under millions of events, as a step of `cargo xtask soak`: the test
//! `events` of `weir-server` with fresh seeds, which are printed.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::step::{Outcome, passes};
use crate::tools::cargo;

/// About two minutes on a busy machine; enough that all of interest must have happened.
const EVENTS: u64 = 4_000_000;

/// Runs them.
pub(crate) fn step(root: &Path) -> Result<Outcome> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() << 16;
    println!("    WEIR_EVENTS={EVENTS} WEIR_EVENTS_SEED={seed}");
    let mut test = cargo(root);
    test.args(["test", "-p", "weir-server", "--test", "events", "--", "--nocapture"]);
    test.env("WEIR_EVENTS", EVENTS.to_string()).env("WEIR_EVENTS_SEED", seed.to_string());
    passes(&mut test)
}
