//! One entry an index and term, and one committed entry an index, as the files of all servers have it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weir_log::clustered::{Kind, Record};
use weir_log::record::Reader;

use super::Verdict;

/// What was written to files.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    /// A hash of each entry, by index and term.
    by_place: BTreeMap<(u64, u64), u64>,
    /// The term of the entry that a server wrote last, by server and index.
    of_server: BTreeMap<(usize, u64), u64>,
    /// The term of the entry that somebody has seen committed, by index.
    committed: BTreeMap<u64, u64>,
}

impl Entries {
    /// A server writes these records.
    pub(crate) fn written(&mut self, n: usize, bytes: &[u8]) -> Verdict {
        let mut reader = Reader::new();
        reader.feed(bytes);
        while let Ok(Some(record)) = reader.next_record() {
            let text = record.json().map_err(|error| format!("server {n} writes: {error:?}"))?;
            let Ok(record) = Record::parse(text) else { continue };
            match &record.kind {
                Kind::Entry(entry) => {
                    let mut hash = DefaultHasher::new();
                    entry.data.map(|(text, eid)| (text.as_bytes(), eid)).hash(&mut hash);
                    format!("{:?} {:?}", entry.servers, entry.election_timer).hash(&mut hash);
                    self.entry(n, (entry.index, record.term), hash.finish())?;
                }
                Kind::CommitIndex(index) => self.commits(n, *index)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A server has this file now: what it wrote to the one before, and has by a snapshot, it has no more.
    pub(crate) fn replaced(&mut self, n: usize, file: &[u8]) -> Verdict {
        self.of_server.retain(|(of, _), _| *of != n);
        self.written(n, file)
    }

    fn entry(&mut self, n: usize, (index, term): (u64, u64), hash: u64) -> Verdict {
        self.of_server.insert((n, index), term);
        match *self.by_place.entry((index, term)).or_insert(hash) == hash {
            true => Ok(()),
            false => Err(format!("two entries of index {index} and term {term}: server {n}")),
        }
    }

    fn commits(&mut self, n: usize, index: u64) -> Verdict {
        // What came in a snapshot is not known.
        let Some(term) = self.of_server.get(&(n, index)) else { return Ok(()) };
        let seen = *self.committed.entry(index).or_insert(*term);
        match seen == *term {
            true => Ok(()),
            false => {
                Err(format!("index {index} is committed in terms {seen} and {term}: server {n}"))
            }
        }
    }

    /// How many indexes were seen committed.
    pub(crate) fn len(&self) -> usize {
        self.committed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_and_term_has_one_entry() {
        let mut entries = Entries::default();
        assert_eq!(entries.entry(0, (5, 1), 77), Ok(()));
        assert_eq!(entries.entry(1, (5, 1), 77), Ok(()));
        assert_eq!(entries.entry(1, (5, 2), 78), Ok(()), "another term");
        assert!(entries.entry(2, (5, 2), 79).is_err());
    }

    #[test]
    fn an_index_is_committed_once() {
        let mut entries = Entries::default();
        for (n, term) in [(0, 1), (1, 2), (2, 1)] {
            entries.entry(n, (5, term), term).expect("one an index and term");
        }
        assert_eq!(entries.commits(0, 5), Ok(()));
        assert_eq!(entries.commits(2, 5), Ok(()));
        assert_eq!(entries.commits(0, 6), Ok(()), "it came in a snapshot");
        assert!(entries.clone().commits(1, 5).is_err());
        entries.replaced(1, b"").expect("nothing is written");
        assert_eq!(entries.commits(1, 5), Ok(()), "another entry came in a snapshot");
    }
}
