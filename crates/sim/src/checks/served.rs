//! Who changes nothing is answered, whatever becomes of the cluster.

use super::Verdict;

/// How long that takes at most, in microseconds, beside what slow helpers of the client's server take meanwhile.
const MOST_US: u64 = 2_400_000;

/// What such clients have waited for.
#[derive(Default)]
pub(crate) struct Served;

impl Served {
    /// A client looks at the clock that could have been answered at this time, and whose server's helpers were
    /// slow for so long since.
    pub(crate) fn looked(&self, now_us: u64, who: &str, since_us: u64, slow_us: u64) -> Verdict {
        let waited_us = now_us.saturating_sub(since_us);
        match waited_us > MOST_US + slow_us {
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
        assert_eq!(Served.looked(5 + MOST_US, "a", 5, 0), Ok(()));
        assert!(Served.looked(6 + MOST_US, "a", 5, 0).is_err());
        assert_eq!(Served.looked(6 + MOST_US, "a", 5, 1), Ok(()), "a helper was slow");
    }
}
