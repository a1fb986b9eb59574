//! Ids of states are valid on every server: who comes with one that was told while all was well is told what
//! came since, wherever it comes to.

use super::Verdict;

/// Ids that somebody was told, and when.
#[derive(Default)]
pub(crate) struct Resume {
    told: Vec<(u64, String)>,
}

impl Resume {
    /// Somebody was told that its rows are those of the state of this id.
    pub(crate) fn told(&mut self, now_us: u64, id: &str) {
        if self.told.last().is_none_or(|(_, last)| last != id) {
            self.told.push((now_us, id.to_owned()));
        }
    }

    /// The first id that was told from some time on.
    pub(crate) fn first_since(&self, since_us: u64) -> Option<&str> {
        self.told.iter().find(|(at_us, _)| *at_us >= since_us).map(|(_, id)| id.as_str())
    }

    /// A server that has had all changes since was asked for what came after an id.
    pub(crate) fn asked(n: usize, id: &str, is_found: bool) -> Verdict {
        match is_found {
            true => Ok(()),
            false => {
                Err(format!("server {n} does not know {id}, which was told while all was well"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_since_some_time() {
        let mut resume = Resume::default();
        for (at_us, id) in [(1, "a"), (2, "b"), (3, "b"), (4, "c")] {
            resume.told(at_us, id);
        }
        assert_eq!(resume.first_since(3), Some("c"), "b was told before");
        assert_eq!(resume.first_since(0), Some("a"));
        assert_eq!(resume.first_since(5), None);
        assert_eq!(Resume::asked(1, "a", true), Ok(()));
        assert!(Resume::asked(1, "a", false).is_err());
    }
}
