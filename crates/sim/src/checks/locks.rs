//! A lock keeps others out: who has read a number under it and writes the next one, under it still, finds
//! the number as it was.

use super::Verdict;

/// A number that is written under a lock only.
#[derive(Default)]
pub(crate) struct Guarded {
    looks: u64,
}

impl Guarded {
    /// A client that had read `known` under the lock has looked again, or written the next number under it, where it
    /// found `found`.
    pub(crate) fn found(&mut self, who: &str, known: u64, found: u64) -> Verdict {
        self.looks += 1;
        match known == found {
            true => Ok(()),
            false => {
                Err(format!("{who} had read {known} under its lock, and then {found} is there"))
            }
        }
    }

    /// A client that has the lock, had `known` there, and has asked for so many more, was told of what is there.
    pub(crate) fn told(who: &str, (known, own): (u64, u64), told: u64) -> Verdict {
        match told <= known + own {
            true => Ok(()),
            false => Err(format!(
                "{who} owns the lock, knows {known}, has asked for {own} more, and is told {told}"
            )),
        }
    }

    /// How often that was done.
    pub(crate) fn looks(&self) -> u64 {
        self.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_writes_under_a_lock() {
        let mut guarded = Guarded::default();
        assert_eq!(guarded.found("a", 4, 4), Ok(()));
        assert_eq!(guarded.looks(), 1);
        assert!(guarded.found("a", 5, 6).is_err());
        assert_eq!(Guarded::told("a", (5, 1), 6), Ok(()));
        assert!(Guarded::told("a", (5, 1), 7).is_err());
    }
}
