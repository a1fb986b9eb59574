//! Latencies of single operations and the percentiles of many.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Significant digits that a histogram keeps of a latency.
const DIGITS: u8 = 3;

/// Latencies of many operations, to three digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    nanos: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { nanos: empty() }
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("the histogram knows this number of digits")
}

impl Latencies {
    pub(crate) fn push(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // It grows as it must, so no value is out of range.
        self.nanos.record(nanos).expect("the histogram grows");
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.nanos += &other.nanos;
    }

    /// The number of operations.
    pub(crate) fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// How many operations took longer than that.
    pub(crate) fn above(&self, limit: Duration) -> u64 {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let later = self.nanos.iter_recorded().filter(|step| step.value_iterated_to() > nanos);
        later.map(|step| step.count_at_value()).sum()
    }

    /// The smallest latency that at least `percent` of all operations stayed within, in
    /// microseconds; 0 when there is none.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        if self.nanos.is_empty() {
            return 0.0;
        }
        self.nanos.value_at_quantile(percent / 100.0) as f64 / 1000.0
    }

    /// What a client that sends at a steady pace would have seen.
    ///
    /// A client in a closed loop sends nothing while it waits, so one long stall counts once
    /// where it would have met many requests ("coordinated omission"). A request is added for
    /// every median latency that an operation took longer than that.
    pub(crate) fn corrected(&self) -> Self {
        let mut nanos = empty();
        let usual = self.nanos.value_at_quantile(0.5);
        if nanos.add_correct(&self.nanos, usual).is_err() {
            return self.clone();
        }
        Self { nanos }
    }

    /// The distribution: `1 / (1 - quantile)` and microseconds, from the median up.
    pub(crate) fn distribution(&self) -> Vec<(f64, f64)> {
        let end = self.count() as f64;
        let mut points = Vec::new();
        let mut rarity = 1.0;
        while rarity <= end {
            points.push((rarity, self.percentile(100.0 * (1.0 - 1.0 / rarity))));
            rarity *= 10_f64.powf(0.125);
        }
        points
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

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected / 500.0
    }

    #[test]
    fn percentiles_are_known_to_three_digits() {
        let mut latencies = Latencies::default();
        for micros in (1..=100).rev() {
            latencies.push(Duration::from_micros(micros));
        }
        assert!(near(latencies.percentile(50.0), 50.0));
        assert!(near(latencies.percentile(99.0), 99.0));
        assert!(near(latencies.percentile(100.0), 100.0));
        assert_eq!(latencies.above(Duration::from_nanos(90_500)), 10);
        assert_eq!(Latencies::default().percentile(50.0), 0.0);
        let distribution = latencies.distribution();
        assert_eq!(distribution[0].0, 1.0);
        assert!(distribution.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }

    #[test]
    fn a_stall_counts_for_every_request_that_it_would_have_met() {
        let mut latencies = Latencies::default();
        (0..1000).for_each(|_| latencies.push(Duration::from_micros(10)));
        latencies.push(Duration::from_millis(10));
        assert!(near(latencies.percentile(99.0), 10.0));
        let corrected = latencies.corrected();
        // 1,000 requests at 10 us, and about 1,000 that the stall kept waiting.
        assert!((1990..=2001).contains(&corrected.count()), "{}", corrected.count());
        assert!(corrected.percentile(75.0) > 4_000.0);
    }

    #[test]
    fn a_median_is_a_value_that_was_seen() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(1.0));
        assert_eq!(median(&[]), None);
    }
}
