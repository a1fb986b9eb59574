//! Who changes nothing is answered, whatever becomes of the cluster.

use super::Verdict;

/// How long that takes at most, in microseconds.
const MOST_US: u64 = 3_000_000;

/// And where helpers take up to 2 s for a piece of work, and more than one may be needed.
const MOST_WITH_SLOW_HELPERS_US: u64 = 8_000_000;

/// What such clients have waited for.
#[derive(Default)]
pub(crate) struct Served;

impl Served {
    /// A client looks at the clock that could have been answered at this time.
    pub(crate) fn looked(
        &self,
        now_us: u64,
        who: &str,
        since_us: u64,
        has_slow_helpers: bool,
    ) -> Verdict {
        let most_us = if has_slow_helpers { MOST_WITH_SLOW_HELPERS_US } else { MOST_US };
        match now_us > since_us + most_us {
            false => Ok(()),
            true => Err(format!("{who} was not answered for {} s", most_us / 1_000_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_long() {
        assert_eq!(Served.looked(5 + MOST_US, "a", 5, false), Ok(()));
        assert!(Served.looked(6 + MOST_US, "a", 5, false).is_err());
        assert_eq!(Served.looked(6 + MOST_US, "a", 5, true), Ok(()));
    }
}
