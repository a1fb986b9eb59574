//! Ids for those who have nothing else to hear. A monitor whose tables do not change knows the id of
//! the state in which it was last told something. The change log goes past that state some day, so
//! whoever has heard nothing for two ages of the log is told the id of a newer one.
//!
//! 1. [`Monitors::grow_older`] finds groups that were last told, all members at once, too long ago.
//!    Their members are *owed* an id.
//! 2. A flush tells those of them who have been told all that there is. Who does not take updates
//!    now, or has more to hear first, stays owed.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::{Ages, IdKind};

use crate::message::{self, Update, Version};
use crate::registry::{GroupId, Label, MonitorKey, Monitors};
use crate::subscription::Subscription;

/// What was told so many ages ago is told anew.
const AGES_MAX: u64 = 2;

impl Subscription {
    /// The age of what is told now; zero where updates carry no ids.
    pub(crate) fn age_of(&self, ages: Ages) -> u64 {
        if self.version == Version::V3 { ages.of(self.ids()) } else { 0 }
    }
}

impl Monitors {
    /// The log of changes has these ages from now on. Goes through the groups if that is news.
    pub fn grow_older(&mut self, ages: Ages) {
        if ages == self.ages {
            return;
        }
        self.ages = ages;
        for group in self.groups.values_mut() {
            let age = group.subscription.age_of(ages);
            if group.told_age + AGES_MAX <= age {
                group.told_age = age;
                self.owed.extend(group.classes.values().flat_map(|class| &class.members));
            }
        }
    }

    /// A monitor is to be told the id of the state that it has, when it has been told all.
    pub fn owe_id(&mut self, key: MonitorKey) {
        if self.memberships.contains_key(&key) {
            self.owed.insert(key);
        }
    }

    /// Whether somebody is to be told the id of a newer state, when he has been told all that led
    /// to it.
    pub fn owes_ids(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Tells those who are owed an id, are not `blocked`, and have nothing else to hear: one body for
    /// each kind of ids.
    pub(crate) fn tell_ids(&mut self, blocked: &dyn Fn(MonitorKey) -> bool, out: &mut Vec<Update>) {
        let mut told: BTreeMap<(GroupId, Label), Vec<MonitorKey>> = BTreeMap::new();
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|key| {
            let Some(membership) = self.memberships.get(key) else { return false };
            let place = self.place_of(*key);
            let is_kept =
                blocked(*key) || self.away.contains(key) || self.has_changed(membership, place);
            if !is_kept {
                let class = (membership.group, Arc::clone(&membership.label));
                told.entry(class).or_default().push(*key);
            }
            is_kept
        });
        self.owed = owed;
        let bodies = [IdKind::Recorded, IdKind::Volatile].map(|kind| {
            let mut body = Vec::new();
            message::begin(Some(self.last_ids.of(kind)), &mut body);
            body.extend_from_slice(b"{}]}");
            Arc::new(body)
        });
        for ((group, label), to) in told {
            let Some(group) = self.groups.get(&group) else { continue };
            let Some(class) = group.classes.get(&label) else { continue };
            let [recorded, volatile] = &bodies;
            let body = match group.subscription.ids() {
                IdKind::Recorded => recorded,
                IdKind::Volatile => volatile,
            };
            out.push(Update { to, head: Arc::clone(&class.head), body: Arc::clone(body) });
        }
    }
}
