//! At most one leader a term.

use std::collections::BTreeMap;

use super::Verdict;

/// Who was elected, by term.
#[derive(Default)]
pub(crate) struct Leaders {
    of: BTreeMap<u64, usize>,
}

impl Leaders {
    /// What a server has said: that it was elected, perhaps.
    pub(crate) fn heard(&mut self, n: usize, text: &str) -> Verdict {
        let Some((term, _)) = text.split_once(": elected leader by ") else { return Ok(()) };
        let term = term.rsplit_once("term ").and_then(|(_, term)| term.parse().ok());
        self.elected(n, term.ok_or_else(|| format!("no term: {text}"))?)
    }

    fn elected(&mut self, n: usize, term: u64) -> Verdict {
        let other = *self.of.entry(term).or_insert(n);
        match other == n {
            true => Ok(()),
            false => Err(format!("servers {other} and {n} lead in term {term}")),
        }
    }

    /// How many terms had a leader.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_has_one_leader() {
        let mut leaders = Leaders::default();
        assert_eq!(leaders.heard(1, "Sim: term 4: elected leader by 2+ of 3 servers"), Ok(()));
        assert_eq!(leaders.heard(1, "term 4: elected leader by 2+ of 3 servers"), Ok(()));
        assert_eq!(leaders.heard(2, "term 5: elected leader by 2+ of 3 servers"), Ok(()));
        assert_eq!(leaders.heard(2, "server 1 is leader for term 4"), Ok(()));
        assert_eq!(leaders.len(), 2);
        assert!(leaders.heard(0, "term 5: elected leader by 2+ of 3 servers").is_err());
    }
}
