//! The log of changes that some monitor has not been told of yet.
//!
//! ```text
//!   place 0      place 3         place 7 = end
//!     | segment     | segment       |
//!     M1            M2 M3           M4 ...      where members stand
//! ```
//!
//! A segment holds the changes between two places where somebody stands. A commit goes into the
//! last segment, or begins a new one if somebody stands at the end. So there are never more
//! segments than distinct places, however many transactions there were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_data::{Delta, Schema, TableId};

use crate::change::{ChangeSet, Changes};

/// A place in the log of changes: ascending, one more for each commit.
pub(crate) type Place = u64;

#[derive(Debug)]
struct Segment {
    start: Place,
    /// The position of the database behind the first of its changes.
    position: u64,
    changes: Changes,
}

/// The log of changes that some monitor has not been told of yet.
#[derive(Debug)]
pub(crate) struct Pending {
    segments: VecDeque<Segment>,
    end: Place,
    /// How many monitors or steps stand at each place.
    standing: BTreeMap<Place, usize>,
    /// The place behind the last change of each table.
    changed_at: Vec<Place>,
    /// Estimated memory of all segments.
    bytes: usize,
    /// What the hashes of UUIDs, which clients may choose, begin with.
    seed: u64,
}

/// The changes since a place.
pub(crate) enum ChangesSince<'a> {
    /// All changes since the place are in one segment.
    Segment(&'a Changes),
    /// The changes were put together from several segments.
    Joined(Changes),
}

impl ChangesSince<'_> {
    pub(crate) fn changes(&self) -> &Changes {
        match self {
            Self::Segment(changes) => changes,
            Self::Joined(changes) => changes,
        }
    }
}

impl Pending {
    /// An empty log; `seed` is for hashing what clients choose.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            segments: VecDeque::new(),
            end: 0,
            standing: BTreeMap::new(),
            changed_at: Vec::new(),
            bytes: 0,
            seed,
        }
    }

    /// What hashes of what clients choose begin with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The log's end: who stands there knows everything.
    pub(crate) fn end(&self) -> Place {
        self.end
    }

    /// Whether there is anything that somebody has not been told.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of segments of the log.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Estimated memory of all segments.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many monitors or steps stand at a place.
    pub(crate) fn standing_at(&self, place: Place) -> usize {
        self.standing.get(&place).copied().unwrap_or(0)
    }

    /// The first place where somebody stands.
    pub(crate) fn first(&self) -> Place {
        self.standing.keys().next().copied().unwrap_or(self.end)
    }

    /// Whether a table has changed since a place.
    pub(crate) fn has_changed(&self, table: TableId, since: Place) -> bool {
        self.changed_at.get(table.index()).is_some_and(|at| *at > since)
    }

    /// Somebody takes a stand at a place where there is somebody already, or at the end.
    pub(crate) fn stand(&mut self, place: Place) {
        *self.standing.entry(place).or_default() += 1;
    }

    /// Somebody leaves a place. `is_watched` as of [`Pending::commit`].
    pub(crate) fn leave(
        &mut self,
        place: Place,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) {
        let Some(standing) = self.standing.get_mut(&place) else { return };
        *standing -= 1;
        if *standing > 0 {
            return;
        }
        self.standing.remove(&place);
        // What is before the first place is of no use to anybody.
        let first = self.first();
        while let Some(segment) = self.segments.pop_front_if(|segment| segment.start < first) {
            self.bytes -= segment.changes.bytes();
        }
        // Nobody tells the segments before and behind the place apart any more.
        let at = self.segments.partition_point(|segment| segment.start < place);
        if at > 0
            && self.segments.get(at).is_some_and(|segment| segment.start == place)
            && let Some(later) = self.segments.remove(at)
        {
            self.bytes -= later.changes.bytes();
            self.extend(at - 1, &later.changes, schema, is_watched);
        }
    }

    /// Merges later changes into a segment.
    fn extend(
        &mut self,
        at: usize,
        later: &Changes,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) {
        let Some(segment) = self.segments.get_mut(at) else { return };
        self.bytes -= segment.changes.bytes();
        let nothing = Changes::Merged(Arc::new(ChangeSet::new(self.seed)));
        let earlier = std::mem::replace(&mut segment.changes, nothing);
        let mut set = earlier.into_set(self.seed, schema, &is_watched);
        later.merge_into(&mut set, schema, is_watched);
        segment.changes = Changes::Merged(Arc::new(set));
        self.bytes += segment.changes.bytes();
    }

    /// The position of the database behind the first change since a place where somebody stands.
    pub(crate) fn next_position(&self, place: Place) -> Option<u64> {
        let at = self.segments.partition_point(|segment| segment.start < place);
        self.segments.get(at).map(|segment| segment.position)
    }

    /// Adds a transaction's changes, of which those to tables that `is_watched` matter. `position`
    /// is that of the database behind it.
    pub(crate) fn commit(
        &mut self,
        delta: &Arc<Delta>,
        position: u64,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) {
        let changes = Changes::one(delta, schema);
        if self.segments.is_empty() || self.standing_at(self.end) > 0 {
            self.bytes += changes.bytes();
            self.segments.push_back(Segment { start: self.end, position, changes });
        } else {
            self.extend(self.segments.len() - 1, &changes, schema, is_watched);
        }
        self.end += 1;
        self.changed_at.resize(schema.tables.len(), 0);
        for table in &delta.tables {
            self.changed_at[table.table.index()] = self.end;
        }
    }

    /// All changes since a place where somebody stands.
    pub(crate) fn since(
        &self,
        place: Place,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) -> Option<ChangesSince<'_>> {
        let at = self.segments.partition_point(|segment| segment.start < place);
        let mut segments = self.segments.iter().skip(at);
        let first = segments.next()?;
        let mut segments = segments.peekable();
        if segments.peek().is_none() {
            return Some(ChangesSince::Segment(&first.changes));
        }
        let mut set = first.changes.clone().into_set(self.seed, schema, &is_watched);
        for segment in segments {
            segment.changes.merge_into(&mut set, schema, &is_watched);
        }
        Some(ChangesSince::Joined(Changes::Merged(Arc::new(set))))
    }
}
