//! `memory|INFO` lines: the most memory that the process ever had, when that has grown.

/// Between looks, in microseconds; the first report comes after as much.
const CHECK_INTERVAL_US: u64 = 10_000_000;

/// Remembers what was reported last.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    next_check_us: u64,
    /// When, in microseconds, and how much, in KiB.
    reported: Option<(u64, u64)>,
}

impl Default for MemoryWatch {
    fn default() -> Self {
        Self { next_check_us: CHECK_INTERVAL_US, reported: None }
    }
}

impl MemoryWatch {
    /// When the first report is due. What is idle does not grow, so nobody wakes for later ones.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.reported.is_none().then_some(self.next_check_us)
    }

    /// The text of a report, if one is due: the first, or half as much again as in the last.
    /// Times are microseconds since the start; `peak_kib` reads the most memory there ever was.
    pub(crate) fn check(&mut self, now_us: u64, peak_kib: impl Fn() -> u64) -> Option<String> {
        if now_us < self.next_check_us {
            return None;
        }
        self.next_check_us = now_us + CHECK_INTERVAL_US;
        let peak = peak_kib();
        let text = match self.reported {
            None => {
                let after_s = seconds(now_us);
                format!("{peak} kB peak resident set size after {after_s:.1} seconds")
            }
            Some((at_us, before)) if grown_by_half(before, peak) => {
                let (percent, in_s) = (growth_percent(before, peak), seconds(now_us - at_us));
                format!(
                    "peak resident set size grew {percent:.0}% in last {in_s:.1} seconds, \
                     from {before} kB to {peak} kB"
                )
            }
            Some(_) => return None,
        };
        self.reported = Some((now_us, peak));
        Some(text)
    }
}

fn grown_by_half(before: u64, now: u64) -> bool {
    now.saturating_mul(2) >= before.saturating_mul(3)
}

fn growth_percent(before: u64, now: u64) -> f64 {
    (now as f64 / before.max(1) as f64 - 1.0) * 100.0
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_in_the_words_of_the_reference() {
        let mut watch = MemoryWatch::default();
        assert_eq!(watch.check(9_999_999, || panic!("too early")), None);
        assert_eq!(watch.deadline_us(), Some(10_000_000));
        let first = watch.check(10_040_000, || 5000);
        assert_eq!(first.as_deref(), Some("5000 kB peak resident set size after 10.0 seconds"));
        assert_eq!(watch.deadline_us(), None);
        assert_eq!(watch.check(15_000_000, || panic!("too early")), None);
        assert_eq!(watch.check(20_050_000, || 7499), None);
        let more = watch.check(35_040_000, || 12_500);
        let expected = "peak resident set size grew 150% in last 25.0 seconds, \
                        from 5000 kB to 12500 kB";
        assert_eq!(more.as_deref(), Some(expected));
        assert_eq!(watch.check(60_000_000, || 12_500), None);
    }
}
