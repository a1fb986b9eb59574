//! Durability: what was acknowledged is there for good.

use std::collections::HashSet;

use super::{Row, Verdict};

/// Rows that are committed, in the order in which clients heard of it.
#[derive(Default)]
pub(crate) struct Durable {
    acknowledged: Vec<String>,
}

impl Durable {
    pub(crate) fn acknowledged(&mut self, name: &str) {
        self.acknowledged.push(name.to_owned());
    }

    /// How many rows there are at least, at whoever has taken everything in.
    pub(crate) fn len(&self) -> usize {
        self.acknowledged.len()
    }

    /// The last one of the first so many rows.
    pub(crate) fn last(&self, up_to: usize) -> Option<&str> {
        self.acknowledged[..up_to].last().map(String::as_str)
    }

    /// All rows of a server that has taken in what was acknowledged up to some time.
    pub(crate) fn rows(&self, rows: &[Row], up_to: usize) -> Verdict {
        let names: HashSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let is_missing = |name: &&String| !names.contains(name.as_str());
        let missing: Vec<&String> =
            self.acknowledged[..up_to].iter().filter(is_missing).take(10).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("acknowledged, and not there: {missing:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_is_there() {
        let mut durable = Durable::default();
        durable.acknowledged("a");
        durable.acknowledged("b");
        let row = |name: &str| Row { id: String::new(), name: name.to_owned(), n: 0 };
        assert_eq!(durable.rows(&[row("b"), row("x"), row("a")], 2), Ok(()));
        assert_eq!(durable.rows(&[row("a")], 1), Ok(()), "b came later");
        assert!(durable.rows(&[row("a")], 2).is_err());
    }
}
