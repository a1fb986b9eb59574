//! An id names one state, whoever tells it: who goes on from an id is told a difference that leads to the
//! rows that everybody else has under the next one.

use std::collections::BTreeMap;

use super::Verdict;

/// What rows were under each id that somebody was told.
#[derive(Default)]
pub(crate) struct States {
    by_id: BTreeMap<String, (u64, String)>,
}

impl States {
    /// Somebody has rows of this hash, and was told that they are of this state.
    pub(crate) fn told(&mut self, who: &str, id: &str, hash: u64) -> Verdict {
        let (before, first) =
            self.by_id.entry(id.to_owned()).or_insert_with(|| (hash, who.to_owned()));
        match *before == hash {
            true => Ok(()),
            false => Err(format!("{who} has other rows than {first} as of {id}")),
        }
    }

    /// How many states have been told.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_the_same_rows_for_all() {
        let mut states = States::default();
        assert_eq!(states.told("a", "1", 7), Ok(()));
        assert_eq!(states.told("b", "2", 7), Ok(()), "a change that came back");
        assert_eq!(states.told("b", "1", 7), Ok(()));
        assert_eq!(states.len(), 2);
        assert!(states.told("b", "2", 8).is_err());
    }
}
