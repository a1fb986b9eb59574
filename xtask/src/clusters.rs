//! Clusters of whole servers in the simulator (`crates/sim`), and of members (`crates/cluster`): new seeds and
//! all that ever failed, as a step of `cargo xtask soak`, and one seed of whole servers again with `cargo xtask sim`.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::background::Background;
use crate::step::{Outcome, passes};
use crate::tools::cargo;

/// How long the soak runs seeds of whole servers, in seconds; those of members take a quarter of that besides.
const SECONDS: u64 = 600;

/// How long CI does.
const SECONDS_IN_CI: u64 = 170;

/// Lines of the trace of one seed: all of them.
const LINES: &str = "1000000";

/// Begins to run the seeds that ever failed, and new ones while there is time: on one processor, which leaves
/// the others to other steps.
pub(crate) fn begin(root: &Path) -> Result<Background> {
    let mut test = test(root, "whatever");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let seconds = if std::env::var_os("CI").is_some() { SECONDS_IN_CI } else { SECONDS };
    println!(
        "beside the steps: clusters in the simulator, WEIR_SEED={seed} WEIR_SECONDS={seconds}"
    );
    test.env("WEIR_SEED", seed.to_string()).env("WEIR_SECONDS", seconds.to_string());
    Background::begin_beside(root, "clusters", &mut test)
}

/// Runs one seed; if it fails, all that it does not fail without is left out, and the rest is shown.
pub(crate) fn replay(root: &Path, seed: u64) -> Result<bool> {
    let mut test = test(root, "whatever_happens_clients");
    test.env("WEIR_SEED", seed.to_string()).env("WEIR_SEEDS", "1");
    test.env("WEIR_SHRINK", "1").env("WEIR_TRACE", LINES);
    Ok(matches!(passes(&mut test)?, Outcome::Passed))
}

/// The test, as the tests are built: nothing is built again.
fn test(root: &Path, name: &str) -> Command {
    let mut test = cargo(root);
    test.args(["test", "--workspace", "--test", "simulation", name, "--", "--nocapture"]);
    test
}
