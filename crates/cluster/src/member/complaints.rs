//! What peers are told off for, in the log: once in a while each.

use std::collections::BTreeMap;

use weir_data::Uuid;

/// A complaint about a peer is not repeated for this long, in microseconds.
const AGAIN_US: u64 = 60_000_000;

/// So many complaints are remembered at most; at more, all are forgotten.
const COMPLAINTS_MAX: usize = 200;

/// What has been said of whom, and when it may be said again, monotonic.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: BTreeMap<(Option<Uuid>, String), u64>,
}

impl Complaints {
    /// Whether to say this now.
    pub(super) fn is_due(&mut self, of: Option<Uuid>, what: &str, now_us: u64) -> bool {
        let key = (of, what.to_owned());
        if self.said.get(&key).is_some_and(|until_us| *until_us > now_us) {
            return false;
        }
        if self.said.len() >= COMPLAINTS_MAX {
            self.said.clear();
        }
        self.said.insert(key, now_us + AGAIN_US);
        true
    }
}
