//! Exactly once, with the true reply: a row that was written once is there once, under the id that its
//! client was told; what was refused is never there.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Row, Verdict};

/// What clients were told of rows that they wrote.
#[derive(Default)]
pub(crate) struct Once {
    /// The ids that the answers named.
    ids: BTreeMap<String, String>,
    /// Rows that are never to be.
    refused: BTreeSet<String>,
}

impl Once {
    /// A row is committed; its id, if the answer has it.
    pub(crate) fn committed(&mut self, name: &str, id: Option<&str>) -> Verdict {
        if self.refused.contains(name) {
            return Err(format!("{name} was never to be, and is committed"));
        }
        if let Some(id) = id {
            self.ids.insert(name.to_owned(), id.to_owned());
        }
        Ok(())
    }

    /// A row is never to be.
    pub(crate) fn refused(&mut self, name: &str) {
        self.refused.insert(name.to_owned());
    }

    /// All rows that somebody was told, and how often they were counted, each in the transaction that
    /// wrote it.
    pub(crate) fn rows(&self, rows: &[Row], counted: u64) -> Verdict {
        let mut names = HashSet::new();
        for Row { id, name, .. } in rows {
            if !names.insert(name) {
                return Err(format!("{name} is there more than once"));
            }
            if self.refused.contains(name) {
                return Err(format!("{name} was never to be, and is there"));
            }
            if let Some(told) = self.ids.get(name).filter(|told| *told != id) {
                return Err(format!("{name} is {id}, and its client was told {told}"));
            }
        }
        if counted != rows.len() as u64 {
            return Err(format!("{} rows were counted {counted} times", rows.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, id: &str) -> Row {
        Row { id: id.to_owned(), name: name.to_owned(), n: 0 }
    }

    #[test]
    fn each_row_once_and_as_it_was_answered() {
        let mut once = Once::default();
        once.committed("a", Some("1")).expect("nothing is known of it");
        once.committed("b", None).expect("nothing is known of it");
        once.refused("c");
        assert_eq!(once.rows(&[row("a", "1"), row("b", "2")], 2), Ok(()));
        assert!(once.rows(&[row("a", "1"), row("a", "3")], 2).is_err(), "twice");
        assert!(once.rows(&[row("a", "1"), row("b", "2")], 3).is_err(), "counted twice");
        assert!(once.rows(&[row("a", "7")], 1).is_err(), "another reply");
        assert!(once.rows(&[row("c", "7")], 1).is_err(), "refused");
        assert!(once.committed("c", None).is_err(), "refused, and committed");
    }
}
