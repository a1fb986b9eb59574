//! The time of a round: monotonic for timers, wall for records.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Reads both clocks.
pub(crate) struct Clock {
    /// The monotonic clock counts from here.
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Microseconds since the start.
    pub(crate) fn monotonic_us(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros())
    }

    /// Milliseconds since 1970-01-01 UTC, negative before.
    pub(crate) fn wall_ms(&self) -> i64 {
        wall_ms()
    }
}

/// Milliseconds since 1970-01-01 UTC, negative before.
pub fn wall_ms() -> i64 {
    let millis = |elapsed: std::time::Duration| i64::try_from(elapsed.as_millis()).ok();
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => millis(after).unwrap_or(i64::MAX),
        Err(before) => millis(before.duration()).map_or(i64::MIN, |ms| -ms),
    }
}
