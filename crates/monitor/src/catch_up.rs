//! Long bodies for those who are behind: who is told late gets what others at the same place got.
//!
//! ```text
//!   P ---- long body ----> E ---- short bodies ----> end
//!   S1, S2 stand here      S3 got the body, and has gone on
//! ```
//!
//! Monitors that fall behind together are ready to go on one after the other, and meanwhile more is
//! committed. A body for each of them, up to the end as it is then, would be composed, and kept in
//! an outbox, as often as there are monitors. Instead those behind step to where the first of them
//! was led, and there they are together again. Short bodies are composed anew: that costs little,
//! and what merges is less to send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pending::Place;
use crate::registry::GroupId;

/// Shorter bodies are composed again rather than kept, in bytes.
const CATCH_UP_BYTES_MIN: usize = 128 << 10;

/// Most bytes of bodies that are kept. Beyond it they are composed again.
pub const CATCH_UP_BYTES_MAX: usize = 64 << 20;

/// A body, and where it leads.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) end: Place,
    pub(crate) body: Arc<Vec<u8>>,
}

/// Steps from places where somebody stands. Each of them is a stand where it leads to.
#[derive(Debug)]
pub(crate) struct CatchUps {
    steps: BTreeMap<(GroupId, Place), Step>,
    bytes: usize,
    /// [`CATCH_UP_BYTES_MIN`] but for tests.
    pub(crate) bytes_min: usize,
}

impl Default for CatchUps {
    fn default() -> Self {
        Self { steps: BTreeMap::new(), bytes: 0, bytes_min: CATCH_UP_BYTES_MIN }
    }
}

impl CatchUps {
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many steps are kept.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Bytes of the bodies of all steps.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many steps lead to a place.
    pub(crate) fn leading_to(&self, place: Place) -> usize {
        self.steps.values().filter(|step| step.end == place).count()
    }

    /// The step of a group's members from a place.
    pub(crate) fn step(&self, group: GroupId, place: Place) -> Option<&Step> {
        self.steps.get(&(group, place))
    }

    /// Keeps a long body, if there is room. True if it is kept: then it takes a stand.
    pub(crate) fn keep(&mut self, group: GroupId, place: Place, step: Step) -> bool {
        let bytes = step.body.len();
        let has_room = self.bytes + bytes <= CATCH_UP_BYTES_MAX;
        let is_kept = has_room && !self.steps.contains_key(&(group, place));
        if is_kept {
            self.bytes += bytes;
            self.steps.insert((group, place), step);
        }
        is_kept
    }

    /// Forgets a step that nobody may take any more; answers with where it led to.
    pub(crate) fn remove(&mut self, group: GroupId, place: Place) -> Option<Place> {
        let step = self.steps.remove(&(group, place))?;
        self.bytes -= step.body.len();
        Some(step.end)
    }

    /// Forgets the steps that nobody may take any more; answers with where they led to.
    pub(crate) fn prune(&mut self, waiting: &BTreeSet<(GroupId, Place)>) -> Vec<Place> {
        let gone = self.steps.extract_if(.., |from, _| !waiting.contains(from));
        let gone: Vec<Step> = gone.map(|(_, step)| step).collect();
        self.bytes -= gone.iter().map(|step| step.body.len()).sum::<usize>();
        gone.into_iter().map(|step| step.end).collect()
    }
}
