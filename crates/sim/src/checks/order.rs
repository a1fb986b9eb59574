//! What a session asks without waiting for answers happens in its order: who writes numbers to a row that is his
//! alone finds the one that he wrote last.

use super::Verdict;

/// What such sessions have found.
#[derive(Default)]
pub(crate) struct Order {
    looks: u64,
}

impl Order {
    /// A session has written to its own row, so many of which were there.
    pub(crate) fn wrote(&mut self, who: &str, count: Option<u64>) -> Verdict {
        match count {
            Some(1) => Ok(()),
            _ => Err(format!("{who} wrote to a row of its own, and found {count:?}")),
        }
    }

    /// A session has looked at its own row, behind the last number that it had written there.
    pub(crate) fn found(&mut self, who: &str, last: u64, found: Option<u64>) -> Verdict {
        self.looks += 1;
        match found == Some(last) {
            true => Ok(()),
            false => Err(format!("{who} wrote {last} before, and finds {found:?}")),
        }
    }

    /// How often somebody has looked.
    pub(crate) fn looks(&self) -> u64 {
        self.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_finds_what_it_wrote_last() {
        let mut order = Order::default();
        assert_eq!(order.wrote("a", Some(1)), Ok(()));
        assert_eq!(order.found("a", 3, Some(3)), Ok(()));
        assert!(order.wrote("a", Some(0)).is_err(), "the row is to be there");
        assert!(order.found("a", 3, Some(2)).is_err(), "too early");
        assert!(order.found("a", 3, Some(4)).is_err(), "too late");
        assert!(order.found("a", 3, None).is_err(), "nothing");
        assert_eq!(order.looks(), 4);
    }
}
