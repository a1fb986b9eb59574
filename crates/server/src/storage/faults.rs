//! Disks that are full or fail: writers are refused with the reason, readers are served, and it
//! ends by itself.
//!
//! 1. An append fails: its round is undone and its writers get the error. Every later append is
//!    tried as ever, so the first one for which there is room ends the fault. The log has a line
//!    when a fault begins and when it ends, not one for each transaction.
//! 2. fdatasync(2) fails: the system may have lost what was written earlier, and the next
//!    fdatasync(2) would not tell. The file takes no more appends; it is rewritten from memory,
//!    where everything is that was ever answered, as often as it takes (`docs/decisions/006`).

use crate::database::Db;
use crate::effect::Level;
use crate::event::{DbId, Now};
use crate::server::Server;

/// From a failed attempt to rewrite a file to the next one, in microseconds.
pub(crate) const REWRITE_PAUSE_US: u64 = 5_000_000;

impl Server {
    /// Takes note of how an append ended.
    pub(crate) fn note_append(&mut self, id: DbId, error: Option<&String>) {
        let Some(file) = self.file(id) else { return };
        if file.fault.is_some() == error.is_some() {
            return;
        }
        file.fault = error.cloned();
        let path = file.path.clone();
        match error {
            Some(error) => {
                let text = format!("{path}: write failed ({error}), the database is read-only");
                self.log("ovsdb_log", Level::Warning, text);
            }
            None => {
                let text = format!("{path}: written again, the database is no longer read-only");
                self.log("ovsdb_log", Level::Info, text);
            }
        }
    }

    /// The file must be rewritten.
    pub(crate) fn file_suspect(&mut self, now: Now, id: DbId) {
        if let Some(file) = self.file(id) {
            file.rewrite_us = Some(now.monotonic_us);
        }
    }

    /// Rewrites the files for which it is time; the tables are as they were answered.
    pub(crate) fn rewrite_if_due(&mut self, now: Now) {
        let is_due = |db: &Db| db.rewrite_us().is_some_and(|at| at <= now.monotonic_us);
        for id in self.dbs.ids_where(is_due) {
            self.compact(now, id, None);
        }
    }

    /// When the next file is to be rewritten.
    pub(crate) fn next_rewrite_us(&self) -> Option<u64> {
        self.dbs.values().filter_map(Db::rewrite_us).min()
    }
}

impl Db {
    /// When its file is to be rewritten, unless that is under way.
    fn rewrite_us(&self) -> Option<u64> {
        let file = self.standalone_ref()?;
        file.rewrite_us.filter(|_| file.compaction.is_none() && !self.conversions.is_busy())
    }
}
