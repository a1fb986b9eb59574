//! Who changes nothing is answered, whatever becomes of the cluster.

use super::Verdict;

/// How long that takes at most, in microseconds: a helper that writes a snapshot, say, may take 2 s, and more
/// than one may be needed.
const MOST_US: u64 = 8_000_000;

/// What such clients have waited for.
#[derive(Default)]
pub(crate) struct Served;

impl Served {
    /// A client looks at the clock that could have been answered at this time.
    pub(crate) fn looked(&self, now_us: u64, who: &str, since_us: u64) -> Verdict {
        match now_us > since_us + MOST_US {
            false => Ok(()),
            true => Err(format!("{who} was not answered for {} s", MOST_US / 1_000_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_long() {
        assert_eq!(Served.looked(5 + MOST_US, "a", 5), Ok(()));
        assert!(Served.looked(6 + MOST_US, "a", 5).is_err());
    }
}
