//! Databases that were served, and whose files could not be opened once more: a disk that fails once must
//! not cost a member its place in its cluster.

use std::collections::BTreeMap;

use crate::configuration::DbConfig;

/// From one attempt to open such a file to the next one, in microseconds.
const PAUSE_US: u64 = 5_000_000;

/// A database that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// Its name.
    pub(crate) db: String,
    /// Where others of its cluster were, besides those that its file names.
    pub(crate) remotes: Vec<String>,
}

/// Files that are to be opened again, by path.
#[derive(Debug, Default)]
pub(crate) struct ToOpenAgain(BTreeMap<String, Waiting>);

#[derive(Debug)]
struct Waiting {
    again: Again,
    config: DbConfig,
    /// When, monotonic.
    at_us: u64,
}

impl ToOpenAgain {
    /// The file of this database could not be opened.
    pub(crate) fn put_off(&mut self, path: String, again: Again, config: DbConfig, now_us: u64) {
        self.0.insert(path, Waiting { again, config, at_us: now_us + PAUSE_US });
    }

    /// Files for which it is time: path, database and how that is to be served.
    pub(crate) fn take_due(&mut self, now_us: u64) -> Vec<(String, Again, DbConfig)> {
        let due = self.0.extract_if(.., |_, waiting| waiting.at_us <= now_us);
        due.map(|(path, Waiting { again, config, .. })| (path, again, config)).collect()
    }

    /// When the next one is to be opened.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.0.values().map(|waiting| waiting.at_us).min()
    }

    /// Nobody wants the database of this name any more; false if it does not wait here.
    pub(crate) fn remove(&mut self, db: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|_, waiting| waiting.again.db != db);
        self.0.len() < before
    }

    /// A file has been opened otherwise.
    pub(crate) fn is_open(&mut self, path: &str) {
        self.0.remove(path);
    }

    /// A configuration says anew which files are to be opened.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, DbConfig)> + '_ {
        self.0.iter().map(|(path, waiting)| (path.clone(), waiting.config.clone()))
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
}
