//! Databases that were served, and whose files could not be opened once more: a disk that fails once must
//! not cost a member its place in its cluster.

use std::collections::BTreeMap;

use crate::configuration::DbConfig;

/// From one attempt to open such a file to the next one, in microseconds.
const PAUSE_US: u64 = 5_000_000;

/// A database that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// The name of the database.
    pub(crate) db: String,
    /// Where others of its cluster were, besides those that its file names.
    pub(crate) remotes: Vec<String>,
}

/// Files that are to be opened again, by path.
#[derive(Debug, Default)]
pub(crate) struct ToOpenAgain {
    waiting: BTreeMap<String, Waiting>,
    /// When each was opened again last, monotonic.
    opened_us: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Waiting {
    again: Again,
    config: DbConfig,
    /// When, monotonic.
    at_us: u64,
}

impl ToOpenAgain {
    /// Whether a file may be opened again now. One that is to be at once, again and again, must wait: what it
    /// was to say of itself could not be written there.
    pub(crate) fn may_open(&mut self, path: &str, now_us: u64) -> bool {
        let before = self.opened_us.get(path);
        let may = before.is_none_or(|before| now_us >= before + PAUSE_US);
        if may {
            self.opened_us.insert(path.to_owned(), now_us);
        }
        may
    }

    /// The file of this database could not be opened, or must not be yet.
    pub(crate) fn put_off(&mut self, path: String, again: Again, config: DbConfig, now_us: u64) {
        self.waiting.insert(path, Waiting { again, config, at_us: now_us + PAUSE_US });
    }

    /// Files for which it is time: path, database and how that is to be served.
    pub(crate) fn take_due(&mut self, now_us: u64) -> Vec<(String, Again, DbConfig)> {
        let due = self.waiting.extract_if(.., |_, waiting| waiting.at_us <= now_us);
        due.map(|(path, Waiting { again, config, .. })| (path, again, config)).collect()
    }

    /// When the next one is to be opened.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.waiting.values().map(|waiting| waiting.at_us).min()
    }

    /// Nobody wants the database of this name any more; false if it does not wait here.
    pub(crate) fn remove(&mut self, db: &str) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|_, waiting| waiting.again.db != db);
        self.waiting.len() < before
    }

    /// A file has been opened otherwise.
    pub(crate) fn is_open(&mut self, path: &str) {
        self.waiting.remove(path);
    }

    /// A configuration says anew which files are to be opened.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, DbConfig)> + '_ {
        self.waiting.iter().map(|(path, waiting)| (path.clone(), waiting.config.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_opened_is_tried_again_until_nobody_wants_it() {
        let mut again = ToOpenAgain::default();
        let a = || Again { db: "A".into(), remotes: vec![] };
        again.put_off("/a.db".into(), a(), DbConfig::default(), 1_000_000);
        assert_eq!(again.next_us(), Some(6_000_000));
        assert!(again.take_due(5_999_999).is_empty());
        assert_eq!(again.take_due(6_000_000).len(), 1);
        assert_eq!(again.next_us(), None);
        again.put_off("/a.db".into(), a(), DbConfig::default(), 6_000_000);
        assert!(!again.remove("B") && again.remove("A"));
        assert!(again.take_due(u64::MAX).is_empty());
    }

    #[test]
    fn a_file_is_not_opened_all_the_time() {
        let mut again = ToOpenAgain::default();
        assert!(again.may_open("/a.db", 1_000_000) && again.may_open("/b.db", 1_000_000));
        assert!(!again.may_open("/a.db", 5_999_999));
        assert!(again.may_open("/a.db", 6_000_000));
    }
}
