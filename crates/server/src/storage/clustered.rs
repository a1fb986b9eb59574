//! The state of a clustered file (ovsdb(5)), as far as commits depend on it; the log that it has is
//! the cluster's (`clusters`).

use crate::text_limit::EntryLimit;

/// The state of a clustered file.
#[derive(Debug)]
pub(crate) struct Clustered {
    /// As the user gave it, absolute.
    path: String,
    /// The term in which this server leads.
    leads: Option<u64>,
    /// The cluster takes what it proposes: not always all the time that it leads.
    may_write: bool,
    /// How long an entry may be.
    entry_limit: EntryLimit,
}

impl Clustered {
    /// The file that a database was loaded from.
    pub(crate) fn new(path: String) -> Self {
        Self { path, leads: None, may_write: false, entry_limit: EntryLimit::default() }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn leads(&self) -> Option<u64> {
        self.leads
    }

    pub(super) fn may_write(&self) -> bool {
        self.may_write
    }

    pub(super) fn entry_limit(&self) -> EntryLimit {
        self.entry_limit
    }

    pub(super) fn set_leads(&mut self, term: Option<u64>, may_write: bool, limit: EntryLimit) {
        assert!(term.is_some() || !may_write, "who writes leads");
        (self.leads, self.may_write, self.entry_limit) = (term, may_write, limit);
    }
}
