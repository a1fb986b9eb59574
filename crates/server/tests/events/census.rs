//! How often what is of interest has happened: a generator that does not get there proves nothing.

use std::collections::BTreeMap;

/// What a long run must have met.
pub(crate) const MUST_HAPPEN: &[&str] = &[
    "admin command answered",
    "append answered while other databases commit",
    "append refused",
    "append refused with requests waiting behind it",
    "big message",
    "cancel of a queued transaction",
    "cancel of a waiting transaction",
    "changes of the log told",
    "client that does not read",
    "command about a database that is being written",
    "compaction with records behind the snapshot",
    "conditions changed by a helper",
    "configuration that cannot be read",
    "conversion done",
    "conversion followed by a helper",
    "conversion frozen with requests queued",
    "conversion refused",
    "database removed with a long read out",
    "database removed with a long write out",
    "delivery waited for",
    "delivery waited for in vain",
    "disconnected by the server",
    "duplicate request id",
    "fdatasync failed",
    "file rewritten after fdatasync failed",
    "first rows by a helper",
    "lock stolen",
    "long read",
    "long write",
    "long write compared with much that it has missed",
    "long write made way",
    "long write on a snapshot",
    "message of a source while its database is written",
    "monitor compared, with conditions",
    "monitor compared, without conditions",
    "monitor ended by its database",
    "probe answered",
    "reply in pieces",
    "rows of a source by a helper",
    "session not read for what it has queued",
    "session that left with requests out",
    "session that left with work out",
    "two replies in pieces to one session",
    "work stopped for which nobody waits",
];

/// Counts by what happened.
#[derive(Default)]
pub(crate) struct Census(BTreeMap<&'static str, u64>);

impl Census {
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    pub(crate) fn show(&self) {
        for (what, count) in &self.0 {
            println!("{count:>10}  {what}");
        }
    }

    /// What has never happened though it must.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        MUST_HAPPEN.iter().copied().filter(|what| !self.0.contains_key(what)).collect()
    }
}
