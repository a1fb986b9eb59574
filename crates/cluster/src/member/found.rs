//! Which entries are in the log, for a leader whose predecessor was asked for them: all clients of all members ask
//! at once, and the log may have grown by hundreds of thousands of entries since they did first.

use std::collections::BTreeMap;

use weir_data::Uuid;

use super::Member;
use crate::consensus::Node;
use crate::ids::Position;

/// What was learned of the log is kept for so long after the last question, in microseconds.
const KEPT_US: u64 = 10_000_000;

/// Whether an entry of some id is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The entry is at this place, committed or not.
    Yes(Position),
    /// The log does not have the entry, nor will it get it from an earlier leader.
    No,
    /// The log does not reach back to when it might have been proposed.
    Unknown,
}

/// A part of the log by the ids of its entries. While its member leads in a term, nothing of that log goes but by
/// compaction.
#[derive(Debug, Default)]
pub(super) struct Ids {
    term: u64,
    /// The entries that are known are those behind the first index, up to the second one.
    range: (u64, u64),
    by_id: BTreeMap<Uuid, u64>,
    used_us: u64,
}

impl Ids {
    /// Nobody has asked for long: the memory is for others.
    pub(super) fn forget_unused(&mut self, now_us: u64) {
        if !self.by_id.is_empty() && now_us >= self.used_us + KEPT_US {
            *self = Self::default();
        }
    }

    /// Learns what is missing of the entries behind one.
    fn learn(&mut self, node: &Node, since: u64) {
        let (first, last) = (node.mark().last.index, node.last());
        if self.term != node.term() || !node.is_leader() {
            *self = Self { term: node.term(), range: (last, last), ..Self::default() };
        }
        if self.range.0 < first {
            // What a compaction has taken out of the log is not kept here either.
            self.by_id.retain(|_, index| *index > first);
            self.range = (first, self.range.1.max(first));
        }
        let (from, upto) = self.range;
        let since = since.clamp(first, last);
        for index in (since + 1..=from).chain(upto + 1..=last) {
            if let Some(id) = node.eid(index) {
                self.by_id.insert(id, index);
            }
        }
        self.range = (from.min(since), last);
    }
}

impl Member {
    /// Whether an entry that was proposed when entries up to `since` were committed, at the
    /// earliest, is in the log of this leader.
    pub fn find(&mut self, eid: Uuid, since: u64) -> Found {
        if self.node.mark().last.index > since {
            return Found::Unknown;
        }
        self.ids.learn(&self.node, since);
        self.ids.used_us = self.now_us;
        let index = self.ids.by_id.get(&eid).copied().filter(|index| *index > since);
        index.and_then(|index| self.node.position(index)).map_or(Found::No, Found::Yes)
    }
}
