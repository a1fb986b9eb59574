//! The log of changes that some monitor has not been told of yet.
//!
//! ```text
//!   place 0      place 3         place 7 = end
//!     | segment     | segment       |
//!     M1            M2 M3           M4 ...      where members stand
//! ```
//!
//! A segment holds the changes between two places where somebody stands. A commit goes into the
//! last segment, or begins a new one if somebody stands at the end. So there are no more segments
//! than distinct places, however many transactions there were, but for those that are so long that
//! to merge them would take a step: whoever is told of them merges them, elsewhere.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_data::{Delta, Schema, TableId};

use crate::change::{ChangeSet, Changes};
use crate::flush::PENDING_BYTES_MAX;

/// Most rows that are gone through to merge two segments; those that are longer stay apart.
const MERGED_ROWS_MAX: usize = 32 << 10;

/// With so much pending, in bytes, the same few rows may be in it again and again: then longer ones are
/// merged as well, once, for what is merged is open to more.
const MUCH_BYTES: usize = PENDING_BYTES_MAX / 4;

/// Most rows that are gone through to merge two segments then.
const MUCH_ROWS_MAX: usize = 4 * MERGED_ROWS_MAX;

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
    /// How many rows have been gone through to merge changes: the work done.
    merged: Cell<u64>,
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
            merged: Cell::new(0),
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

    /// How many rows have been gone through to merge changes.
    pub(crate) fn merged(&self) -> u64 {
        self.merged.get()
    }

    fn note_merged(&self, rows: usize) {
        self.merged.set(self.merged.get() + rows as u64);
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
            && self.segments.get(at).is_some_and(|segment| {
                segment.start == place && self.can_extend(at - 1, &segment.changes, &is_watched)
            })
            && let Some(later) = self.segments.remove(at)
        {
            self.bytes -= later.changes.bytes();
            self.extend(at - 1, &later.changes, schema, is_watched);
        }
    }

    /// Whether later changes are merged into a segment at once.
    fn can_extend(&self, at: usize, later: &Changes, is_watched: impl Fn(TableId) -> bool) -> bool {
        let segment = &self.segments[at];
        let rows = segment.changes.rows_to_open(&is_watched) + later.len_of(is_watched);
        rows <= if self.bytes > MUCH_BYTES { MUCH_ROWS_MAX } else { MERGED_ROWS_MAX }
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
        let merged = self.merged.get_mut();
        let rows = segment.changes.rows_to_open(&is_watched) + later.len_of(&is_watched);
        *merged += rows as u64;
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
        let last = self.segments.len().checked_sub(1);
        let joins_last = |last: &usize| self.can_extend(*last, &changes, &is_watched);
        let last = last.filter(|_| self.standing_at(self.end) == 0).filter(joins_last);
        if let Some(last) = last {
            self.extend(last, &changes, schema, is_watched);
        } else {
            self.bytes += changes.bytes();
            self.segments.push_back(Segment { start: self.end, position, changes });
        }
        self.end += 1;
        self.changed_at.resize(schema.tables.len(), 0);
        for table in &delta.tables {
            self.changed_at[table.table.index()] = self.end;
        }
    }

    /// The segments since a place where somebody stands.
    fn behind(&self, place: Place) -> impl ExactSizeIterator<Item = &Changes> {
        let at = self.segments.partition_point(|segment| segment.start < place);
        self.segments.range(at..).map(|segment| &segment.changes)
    }

    /// Which watched tables have changed since a place where somebody stands, and about how many of
    /// their rows, at most. True if [`Pending::since`] puts the changes together.
    pub(crate) fn tables_since(
        &self,
        place: Place,
        is_watched: impl Fn(TableId) -> bool,
    ) -> (Vec<(TableId, usize)>, bool) {
        let mut segments = self.behind(place);
        let Some(first) = segments.next() else { return (Vec::new(), false) };
        let mut tables = first.tables(&is_watched);
        let is_joined = segments.len() > 0;
        for (table, rows) in segments.flat_map(|changes| changes.tables(&is_watched)) {
            match tables.binary_search_by_key(&table, |(table, _)| *table) {
                Ok(at) => tables[at].1 += rows,
                Err(at) => tables.insert(at, (table, rows)),
            }
        }
        (tables, is_joined)
    }

    /// All changes since a place where somebody stands, one after the other.
    pub(crate) fn parts_since(&self, place: Place) -> Vec<Changes> {
        self.behind(place).cloned().collect()
    }

    /// All changes since a place where somebody stands.
    pub(crate) fn since(
        &self,
        place: Place,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) -> Option<ChangesSince<'_>> {
        let segments = self.behind(place);
        if segments.len() > 1 {
            let parts = self.parts_since(place);
            self.note_merged(parts.iter().map(Changes::len).sum());
            return Some(ChangesSince::Joined(Changes::join(parts, self.seed, schema, is_watched)));
        }
        let mut segments = segments;
        segments.next().map(ChangesSince::Segment)
    }
}
