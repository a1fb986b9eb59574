//! Disks that are full or fail: writers are refused with the reason, readers are served, and it
//! ends by itself.
//!
//! 1. An append fails: its batch is undone and its writers get the error. Every later append is
//!    tried as ever, so the first one for which there is room ends the fault. The log has a line
//!    when a fault begins and when it ends, not one for each transaction.
//! 2. fdatasync(2) fails: the system may have lost what was written earlier, and the next
//!    fdatasync(2) would not tell. The file takes no more appends; it is rewritten from memory,
//!    where everything is that was ever answered, as often as it takes (`docs/decisions/006`).

use crate::effect::Level;
use crate::shell::Shell;
use crate::storage::standalone::Standalone;

/// From a failed attempt to rewrite a file to the next one, in microseconds.
pub(crate) const REWRITE_PAUSE_US: u64 = 5_000_000;

impl Standalone {
    /// Takes note of how an append ended.
    pub(super) fn appended(&mut self, shell: &mut Shell, error: Option<&str>) {
        match error {
            None => self.end_fault(shell),
            Some(error) => {
                self.take_back_append();
                self.begin_fault(shell, error);
            }
        }
    }

    fn begin_fault(&mut self, shell: &mut Shell, error: &str) {
        if self.fault.is_none() {
            self.fault = Some(error.to_owned());
            let path = self.path();
            let text = format!("{path}: write failed ({error}), the database is read-only");
            shell.log_limited("write_failed", "ovsdb_log", Level::Warning, text);
        }
    }

    pub(super) fn end_fault(&mut self, shell: &mut Shell) {
        if self.fault.take().is_some() {
            let path = self.path();
            let text = format!("{path}: written again, the database is no longer read-only");
            shell.log_limited("written_again", "ovsdb_log", Level::Info, text);
        }
    }

    /// Why the last append failed, strerror(3) text.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    pub(super) fn suspect(&mut self, shell: &Shell) {
        self.rewrite_us = Some(shell.now_us());
    }

    /// When the file is to be rewritten, unless that is under way.
    pub(super) fn rewrite_us(&self) -> Option<u64> {
        self.rewrite_us.filter(|_| self.compaction.is_none())
    }
}
