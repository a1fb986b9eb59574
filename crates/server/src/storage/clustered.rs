//! The state of a clustered file (ovsdb(5)), as far as commits depend on it; the log that it has is
//! the cluster's (`clusters`).

/// The state of a clustered file.
#[derive(Debug)]
pub(crate) struct Clustered {
    /// As the user gave it, absolute.
    path: String,
    /// The cluster takes what this server proposes, in this term.
    leads: Option<u64>,
}

impl Clustered {
    /// The file that a database was loaded from.
    pub(crate) fn new(path: String) -> Self {
        Self { path, leads: None }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn leads(&self) -> Option<u64> {
        self.leads
    }

    pub(super) fn set_leads(&mut self, term: Option<u64>) {
        self.leads = term;
    }
}
