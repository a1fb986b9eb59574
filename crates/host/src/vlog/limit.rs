//! Rate limits: a peer that misbehaves does not fill the disk with lines about it.
//!
//! Each place that logs what a peer can provoke has a bucket of tokens, as in the reference.

use std::collections::BTreeMap;

/// Lines that one place may log a minute, once its bucket is empty.
pub(crate) const PER_MINUTE: u64 = 5;

/// Lines that one place may log at once.
pub(crate) const BURST: u64 = 5;

/// Tokens that a line costs: a millisecond brings as many as there are lines a minute.
const LINE_TOKENS: u64 = 60_000;

/// Lines a minute and at once of a place, where the reference allows more.
fn rate(place: &str) -> (u64, u64) {
    match place {
        "table" => (30, 60),
        "ssl_accept" | "ssl_connect" | "ssl_read" => (10, 25),
        _ => (PER_MINUTE, BURST),
    }
}

/// One bucket a place; places are few and fixed.
#[derive(Default)]
pub(crate) struct Limits {
    buckets: BTreeMap<&'static str, Bucket>,
}

struct Bucket {
    tokens: u64,
    /// When the tokens were counted, in ms.
    at_ms: u64,
    dropped: Option<Dropped>,
}

struct Dropped {
    count: u64,
    first_ms: u64,
    last_ms: u64,
}

/// Whether a line is logged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes, behind a line that tells how many were not.
    Pass(Option<String>),
    /// No.
    Drop,
}

impl Limits {
    /// Judges a line of `place` at `now_ms` of a clock that never steps back.
    pub(crate) fn judge(&mut self, place: &'static str, now_ms: u64) -> Verdict {
        let (per_minute, burst) = rate(place);
        let full = burst * LINE_TOKENS;
        let fresh = Bucket { tokens: full, at_ms: now_ms, dropped: None };
        let bucket = self.buckets.entry(place).or_insert(fresh);
        let elapsed_ms = now_ms.saturating_sub(bucket.at_ms);
        let earned = elapsed_ms.saturating_mul(per_minute);
        bucket.tokens = bucket.tokens.saturating_add(earned).min(full);
        bucket.at_ms = now_ms;
        if bucket.tokens < LINE_TOKENS {
            let none = Dropped { count: 0, first_ms: now_ms, last_ms: now_ms };
            let dropped = bucket.dropped.get_or_insert(none);
            dropped.count += 1;
            dropped.last_ms = now_ms;
            return Verdict::Drop;
        }
        bucket.tokens -= LINE_TOKENS;
        Verdict::Pass(bucket.dropped.take().map(|dropped| dropped.text(now_ms)))
    }
}

impl Dropped {
    fn text(&self, now_ms: u64) -> String {
        let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
        let (count, first, last) = (self.count, seconds(self.first_ms), seconds(self.last_ms));
        format!(
            "Dropped {count} log messages in last {first} seconds (most recently, {last} seconds \
             ago) due to excessive rate"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_the_rest_is_counted_and_told_later() {
        let mut limits = Limits::default();
        for _ in 0..BURST {
            assert_eq!(limits.judge("place", 1000), Verdict::Pass(None));
        }
        assert_eq!(limits.judge("place", 2000), Verdict::Drop);
        assert_eq!(limits.judge("place", 9000), Verdict::Drop);
        assert_eq!(limits.judge("another", 9000), Verdict::Pass(None));
        let told = "Dropped 2 log messages in last 11 seconds (most recently, 4 seconds ago) due \
                    to excessive rate";
        assert_eq!(limits.judge("place", 13_000), Verdict::Pass(Some(told.to_owned())));
        assert_eq!(limits.judge("place", 13_000), Verdict::Drop);
    }

    #[test]
    fn a_clock_far_ahead_fills_the_bucket_and_no_more() {
        let mut limits = Limits::default();
        limits.judge("place", 0);
        for _ in 0..BURST {
            assert_eq!(limits.judge("place", u64::MAX), Verdict::Pass(None));
        }
        assert_eq!(limits.judge("place", u64::MAX), Verdict::Drop);
    }
}
