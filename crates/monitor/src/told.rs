//! How far a monitor has been told of what has happened, in positions of its database.

use crate::registry::{MonitorKey, Monitors};

impl Monitors {
    /// The position of the database up to which a monitor has been told everything; `None` if it
    /// has been told everything there is, and for a monitor that has ended. What happened to tables
    /// that it does not watch holds nobody back, unless something that it watches came before. What
    /// its conditions leave out does, until the next flush.
    pub fn told(&self, key: MonitorKey) -> Option<u64> {
        let membership = self.memberships.get(&key)?;
        let place = self.place_of(key);
        if !self.has_changed(membership, place) {
            return None;
        }
        let next = self.pending.next_position(place);
        Some(next.expect("what has changed since a place is in a segment behind it") - 1)
    }
}
