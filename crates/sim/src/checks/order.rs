//! What a session asks without waiting for answers happens in its order: who writes numbers to a row that is his
//! alone finds the one that he wrote last; and while nothing fails the answers come in that order.

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

    /// A session has been answered, as of this request, and not yet what it had asked before, as of `earlier`.
    pub(crate) fn answered(who: &str, id: u64, earlier: Option<u64>) -> Verdict {
        match earlier {
            None => Ok(()),
            Some(earlier) => Err(format!("{who} is answered as of {id} before {earlier}")),
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

    #[test]
    fn answers_come_in_order() {
        assert_eq!(Order::answered("a", 3, None), Ok(()));
        assert!(Order::answered("a", 3, Some(2)).is_err());
    }
}
