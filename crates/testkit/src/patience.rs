//! Waiting for what another process does.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for something that should come at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so; `check` says what is instead.
///
/// # Panics
/// It has not come within a minute.
pub fn eventually(mut check: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match check() {
            Ok(()) => return,
            Err(told) => assert!(Instant::now() < deadline, "in vain: {told}"),
        }
        sleep(Duration::from_millis(5));
    }
}
