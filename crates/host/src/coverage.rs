//! Counters of what the loop did, shown by `coverage/show` (ovs-appctl(8)).

use std::collections::VecDeque;
use std::fmt::Write as _;

/// The counters, in the order of the alphabet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    Accepts,
    Appends,
    BytesAppended,
    BytesReceived,
    Messages,
    Rounds,
    Syncs,
    UpdateFlushes,
    Writes,
}

/// Names of the counters, in the same order; behind them those that the core counts.
const NAMES: [&str; 17] = [
    "host_accept",
    "host_append",
    "host_append_bytes",
    "host_received_bytes",
    "host_message",
    "host_round",
    "host_fdatasync",
    "host_update_flush",
    "host_write",
    "query_uuid",
    "query_primary",
    "query_alternate",
    "query_inverted",
    "query_linear",
    "monitor_indexed",
    "monitor_linear",
    "monitor_unfiled",
];

type Totals = [u64; NAMES.len()];

/// Samples are this far apart.
const SAMPLE_INTERVAL_US: u64 = 5_000_000;

/// Samples of one hour.
const SAMPLES_MAX: usize = 720;

/// Totals since the start, and samples for averages.
#[derive(Default)]
pub(crate) struct Coverage {
    totals: Totals,
    samples: VecDeque<(u64, Totals)>,
    now_us: u64,
}

impl Coverage {
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, count: u64) {
        self.totals[counter as usize] += count;
    }

    /// What the core has counted so far.
    pub(crate) fn set<const N: usize>(&mut self, counts: [(&'static str, u64); N]) {
        for (name, total) in counts {
            let index = NAMES.iter().position(|each| *each == name);
            self.totals[index.expect("what the core counts has a name here")] = total;
        }
    }

    /// Whether it is time for a sample.
    #[inline]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        let due = |last: &(u64, Totals)| now_us >= last.0 + SAMPLE_INTERVAL_US;
        self.samples.back().is_none_or(due)
    }

    /// To be called now and then with the monotonic time.
    #[inline]
    pub(crate) fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
        if self.is_due(now_us) {
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back((now_us, self.totals));
        }
    }

    /// One counter's total.
    pub(crate) fn total(&self, counter: Counter) -> u64 {
        self.totals[counter as usize]
    }

    /// The total of the counter that is called so.
    pub(crate) fn read(&self, name: &str) -> Option<u64> {
        NAMES.iter().position(|each| *each == name).map(|index| self.totals[index])
    }

    /// The reply to `coverage/show`.
    pub(crate) fn show(&self) -> String {
        let mut out = String::from(
            "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  \
             hash=00000000:\n",
        );
        let mut never = 0;
        for (index, name) in NAMES.iter().enumerate() {
            let total = self.totals[index];
            if total == 0 {
                never += 1;
                continue;
            }
            let rate = |seconds| self.rate(index, seconds);
            let (now, minute, hour) = (rate(5), rate(60), rate(3600));
            let _ = writeln!(
                out,
                "{name:<24} {now:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {total}"
            );
        }
        let _ = writeln!(out, "{never} events never hit");
        out
    }

    /// Events a second over the last `seconds`.
    fn rate(&self, index: usize, seconds: u64) -> f64 {
        let begin = self.now_us.saturating_sub(seconds * 1_000_000);
        let before = self.samples.iter().rev().find(|(at, _)| *at <= begin);
        let before = before.map_or(0, |(_, totals)| totals[index]);
        (self.totals[index] - before) as f64 / seconds as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_averages() {
        let mut coverage = Coverage::default();
        coverage.tick(0);
        coverage.add(Counter::Messages, 600);
        coverage.tick(55_000_000);
        coverage.add(Counter::Messages, 10);
        coverage.tick(60_000_000);
        assert_eq!(coverage.read("host_message"), Some(610));
        assert_eq!(coverage.read("nope"), None);
        let shown = coverage.show();
        assert!(shown.contains(
            "host_message               2.0/sec    10.167/sec        0.1694/sec   total: 610\n"
        ));
        assert!(shown.ends_with("16 events never hit\n"), "{shown}");
        coverage.set([("query_linear", 7), ("query_uuid", 3)]);
        assert_eq!(coverage.read("query_linear"), Some(7));
        assert!(coverage.show().contains("query_uuid "), "{shown}");
    }
}
