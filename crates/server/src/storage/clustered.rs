//! The state of a clustered file (ovsdb(5)), as far as commits depend on it; the log that it has is
//! the cluster's (`clusters`).

/// The state of a clustered file.
#[derive(Debug)]
pub(crate) struct Clustered {
    /// As the user gave it, absolute.
    path: String,
    /// The cluster takes what this server proposes.
    may_write: bool,
}

impl Clustered {
    /// The file that a database was loaded from.
    pub(crate) fn new(path: String) -> Self {
        Self { path, may_write: false }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn may_write(&self) -> bool {
        self.may_write
    }

    pub(super) fn set_may_write(&mut self, may_write: bool) {
        self.may_write = may_write;
    }
}
