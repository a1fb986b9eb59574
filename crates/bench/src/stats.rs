//! Latencies of single operations and the percentiles of many.

use std::time::Duration;

/// Latencies in nanoseconds (at most 4.29 s each; longer ones count as that).
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    nanos: Vec<u32>,
    sorted: bool,
}

impl Latencies {
    pub(crate) fn push(&mut self, latency: Duration) {
        self.nanos.push(u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX));
        self.sorted = false;
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.nanos.extend_from_slice(&other.nanos);
        self.sorted = false;
    }

    /// The smallest latency that at least `percent` of all operations stayed within, in
    /// microseconds; 0 when there is none.
    pub(crate) fn percentile(&mut self, percent: f64) -> f64 {
        if !self.sorted {
            self.nanos.sort_unstable();
            self.sorted = true;
        }
        let rank = (percent / 100.0 * self.nanos.len() as f64).ceil() as usize;
        let index = rank.max(1).min(self.nanos.len()).wrapping_sub(1);
        self.nanos.get(index).map_or(0.0, |&ns| f64::from(ns) / 1000.0)
    }
}

/// The median; of an even number of values the lower one, so that it is a value that was seen.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_follow_the_nearest_rank() {
        let mut latencies = Latencies::default();
        for micros in (1..=100).rev() {
            latencies.push(Duration::from_micros(micros));
        }
        assert_eq!(latencies.percentile(50.0), 50.0);
        assert_eq!(latencies.percentile(99.0), 99.0);
        assert_eq!(latencies.percentile(100.0), 100.0);
        assert_eq!(Latencies::default().percentile(50.0), 0.0);
    }

    #[test]
    fn a_median_is_a_value_that_was_seen() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(1.0));
        assert_eq!(median(&[]), None);
    }
}
