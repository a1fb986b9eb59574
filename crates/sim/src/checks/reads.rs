//! What is read: it has what the same process has told of before, and behind `weir_sync` all that anybody
//! had been told of.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::deleted::KnownItems;
use super::{Row, Verdict};

/// A process of a server: which server, and how often it had been started.
pub(crate) type Process = (usize, u64);

/// What each process has told clients of: they find it there.
#[derive(Default)]
pub(crate) struct Reads {
    by_process: BTreeMap<Process, Vec<String>>,
    /// Processes that have shown somebody that they have rows.
    with_rows: BTreeSet<Process>,
}

/// What a client may count on when it begins to read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// So many rows that a process has told of.
    pub(crate) of_process: usize,
    /// So many rows that anybody was told of.
    pub(crate) of_all: usize,
    /// So much of what was told of items.
    pub(crate) items: KnownItems,
}

impl Reads {
    /// A process has told a client that a row is committed.
    pub(crate) fn told(&mut self, process: Process, name: &str) {
        self.by_process.entry(process).or_default().push(name.to_owned());
    }

    /// A process has shown somebody that it has rows.
    pub(crate) fn shows_rows(&mut self, process: Process) {
        self.with_rows.insert(process);
    }

    /// Whether a process has shown that, or has told a client of a row.
    pub(crate) fn has_rows(&self, process: Process) -> bool {
        self.with_rows.contains(&process) || self.by_process.contains_key(&process)
    }

    /// What a client may count on that reads from a process now.
    pub(crate) fn known(&self, process: Process, of_all: usize) -> Known {
        let of_process = self.by_process.get(&process).map_or(0, Vec::len);
        Known { of_process, of_all, ..Known::default() }
    }

    /// The row that a process had told of last, of what a client may count on.
    pub(crate) fn last(&self, process: Process, known: Known) -> Option<&str> {
        let last = known.of_process.checked_sub(1)?;
        self.by_process.get(&process)?.get(last).map(String::as_str)
    }

    /// A client has read how many rows there are, and how often some that it may count on are.
    pub(crate) fn counted<'a>(
        known: Known,
        counted: u64,
        mut found: impl Iterator<Item = (&'a str, usize)>,
    ) -> Verdict {
        let known_rows = known.of_process.max(known.of_all) as u64;
        if counted < known_rows {
            return Err(format!("{counted} rows, and {known_rows} are known"));
        }
        match found.find(|(_, rows)| *rows != 1) {
            None => Ok(()),
            Some((name, rows)) => Err(format!("{name} was answered, and is there {rows} times")),
        }
    }

    /// A client has read all rows of a process.
    pub(crate) fn rows(&self, process: Process, known: Known, rows: &[Row]) -> Verdict {
        let names: HashSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let told = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
        let is_missing = |name: &&String| !names.contains(name.as_str());
        match told[..known.of_process].iter().find(is_missing) {
            None => Ok(()),
            Some(name) => Err(format!("{name} was answered by this process, and is not there")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_told_finds_it() {
        let (mut reads, process) = (Reads::default(), (1, 2));
        reads.told(process, "a");
        let known = reads.known(process, 0);
        assert_eq!(reads.last(process, reads.known((1, 3), 0)), None);
        reads.told(process, "b");
        assert_eq!(reads.last(process, known), Some("a"));
        let row = |name: &str| Row { id: String::new(), name: name.to_owned(), n: 0 };
        assert_eq!(reads.rows(process, known, &[row("a")]), Ok(()));
        assert!(reads.rows(process, known, &[row("b")]).is_err());
        assert_eq!(reads.rows((1, 3), reads.known((1, 3), 0), &[]), Ok(()), "another process");
    }

    #[test]
    fn who_has_waited_for_all_counts_all() {
        let known = Known { of_process: 1, of_all: 3, ..Known::default() };
        let counted = |counted, rows| Reads::counted(known, counted, [("a", rows)].into_iter());
        assert_eq!(counted(3, 1), Ok(()));
        assert!(counted(2, 1).is_err());
        assert!(counted(3, 0).is_err(), "what was told last is not there");
        assert!(counted(3, 2).is_err(), "twice");
    }
}
