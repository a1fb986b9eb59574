//! Who changes nothing is answered, whatever becomes of the cluster.

use super::Verdict;

/// How long that takes at most, in microseconds, beside what slow helpers of the client's server take meanwhile.
const MOST_US: u64 = 2_400_000;

/// A line is long on which a message may be for more than this, in microseconds.
const LINE_US: usize = 15_000;

/// On long lines so many messages may have to come and go before an answer.
const MESSAGES_MAX: u64 = 50;

/// What such clients have waited for.
pub(crate) struct Served {
    most_us: u64,
}

impl Default for Served {
    fn default() -> Self {
        Self::on_lines_of(0)
    }
}

impl Served {
    /// Where a message is so long on a line at most.
    pub(crate) fn on_lines_of(line_us: usize) -> Self {
        let lines_us = if line_us > LINE_US { MESSAGES_MAX * line_us as u64 } else { 0 };
        Self { most_us: MOST_US + lines_us }
    }

    /// A client looks at the clock that could have been answered at this time, and whose server's helpers were
    /// slow for so long since.
    pub(crate) fn looked(&self, now_us: u64, who: &str, since_us: u64, slow_us: u64) -> Verdict {
        let waited_us = now_us.saturating_sub(since_us);
        match waited_us > self.most_us + slow_us {
            false => Ok(()),
            true => {
                let (waited_ms, slow_ms) = (waited_us / 1000, slow_us / 1000);
                Err(format!("{who} was not answered for {waited_ms} ms; {slow_ms} for helpers"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_long() {
        let served = Served::on_lines_of(300);
        assert_eq!(served.looked(5 + MOST_US, "a", 5, 0), Ok(()));
        assert!(served.looked(6 + MOST_US, "a", 5, 0).is_err());
        assert_eq!(served.looked(6 + MOST_US, "a", 5, 1), Ok(()), "a helper was slow");
        let far = Served::on_lines_of(100_000);
        assert_eq!(far.looked(5_000_005 + MOST_US, "a", 5, 0), Ok(()));
        assert!(far.looked(5_000_006 + MOST_US, "a", 5, 0).is_err());
    }
}
