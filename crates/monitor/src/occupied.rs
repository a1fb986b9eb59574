//! What monitors occupy in memory, for who bounds the sum of what clients make a server keep.

use crate::registry::{MonitorKey, Monitors};
use crate::subscription::Subscription;

/// What a group occupies besides its subscription, and a monitor besides its name and its part of
/// its group, in bytes.
const GROUP_BYTES: usize = 1024;
const MONITOR_BYTES: usize = 512;

/// How often a monitor's name is kept: in its label, and in the head of its messages.
const NAME_COPIES: usize = 2;

/// What a condition comes to occupy for each byte of its text, at least and about: a clause
/// `["_uuid","==",["uuid","X"]]` has 58 bytes there, and takes about 120.
const TEXT_BYTES_EACH: usize = 2;

/// What a group with this subscription occupies, in bytes.
pub(crate) fn group_bytes(subscription: &Subscription) -> usize {
    GROUP_BYTES + subscription.bytes()
}

/// What a monitor of this name occupies besides its part of its group, in bytes.
pub(crate) fn own_bytes(name: &[u8]) -> usize {
    MONITOR_BYTES + name.len() * NAME_COPIES
}

/// What a monitor comes to occupy at least, about, that is asked for with a name and a request of
/// these lengths, in bytes: so much can be refused before anything is parsed.
pub fn bytes_of_text(name: usize, request: usize) -> usize {
    let texts = name.saturating_mul(NAME_COPIES).saturating_add(request * TEXT_BYTES_EACH);
    texts.saturating_add(GROUP_BYTES + MONITOR_BYTES)
}

impl Monitors {
    /// What all monitors occupy, in bytes; what equal ones share counts once.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a monitor occupies, in bytes: its own, and its part of what it shares with equal ones.
    pub fn bytes_of(&self, key: MonitorKey) -> usize {
        let Some(membership) = self.memberships.get(&key) else { return 0 };
        let group = self.groups.get(&membership.group);
        let shared = group.map_or(0, |group| group.bytes / group.members.max(1));
        own_bytes(&membership.label.1) + shared
    }
}
