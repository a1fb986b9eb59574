//! What has been composed for one member of a group, kept while another may need the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pending::Place;
use crate::registry::GroupId;

/// Most bytes of initial rows kept. Beyond it they are composed for every monitor anew.
pub(crate) const INITIAL_CACHE_BYTES_MAX: usize = 64 << 20;

/// Bodies of updates up to the log's end, and initial rows.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Updates by group and by the place that they begin at; `None` if there is nothing to tell.
    updates: BTreeMap<(GroupId, Place), Option<Arc<Vec<u8>>>>,
    initials: BTreeMap<GroupId, Arc<Vec<u8>>>,
    update_bytes: usize,
    initial_bytes: usize,
}

impl Cache {
    /// The update of a group's members at a place, if it has been composed.
    pub(crate) fn update(&self, group: GroupId, place: Place) -> Option<Option<Arc<Vec<u8>>>> {
        self.updates.get(&(group, place)).cloned()
    }

    /// Keeps an update.
    pub(crate) fn keep_update(
        &mut self,
        group: GroupId,
        place: Place,
        body: Option<&Arc<Vec<u8>>>,
    ) {
        self.update_bytes += body.map_or(0, |body| body.len());
        let other = self.updates.insert((group, place), body.cloned());
        self.update_bytes -= other.flatten().map_or(0, |body| body.len());
    }

    /// Forgets all updates: the log has a new end.
    pub(crate) fn forget_updates(&mut self) {
        self.updates.clear();
        self.update_bytes = 0;
    }

    /// A group's initial rows, if they are known.
    pub(crate) fn initial(&self, group: GroupId) -> Option<Arc<Vec<u8>>> {
        self.initials.get(&group).cloned()
    }

    /// Keeps initial rows, if there is room.
    pub(crate) fn keep_initial(&mut self, group: GroupId, rows: &Arc<Vec<u8>>) {
        if self.initial_bytes + rows.len() <= INITIAL_CACHE_BYTES_MAX {
            self.initial_bytes += rows.len();
            let other = self.initials.insert(group, Arc::clone(rows));
            self.initial_bytes -= other.map_or(0, |rows| rows.len());
        }
    }

    /// Forgets the initial rows of groups for which they `changed`.
    pub(crate) fn forget_initials_if(&mut self, changed: impl Fn(GroupId) -> bool) {
        self.initials.retain(|group, _| !changed(*group));
        self.initial_bytes = self.initials.values().map(|rows| rows.len()).sum();
    }

    /// Forgets all initial rows.
    pub(crate) fn forget_initials(&mut self) {
        self.forget_initials_if(|_| true);
    }

    /// Forgets everything about a group that is no more.
    pub(crate) fn forget(&mut self, group: GroupId) {
        if let Some(rows) = self.initials.remove(&group) {
            self.initial_bytes -= rows.len();
        }
        let of_group = self.updates.extract_if((group, 0)..=(group, Place::MAX), |_, _| true);
        self.update_bytes -= of_group.filter_map(|(_, body)| body).map(|b| b.len()).sum::<usize>();
    }

    /// How many updates and initial rows are kept.
    pub(crate) fn len(&self) -> usize {
        self.updates.values().flatten().count() + self.initials.len()
    }

    /// Bytes of all that is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.update_bytes + self.initial_bytes
    }
}
