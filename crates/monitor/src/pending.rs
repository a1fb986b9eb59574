//! The log of changes that some monitor has not been told of yet.
//!
//! ```text
//!   place 0      place 3         place 7 = end
//!     | segment     | segment       |
//!     M1            M2 M3           M4 ...      where members stand
//! ```
//!
//! A segment holds the merged changes between two places where members stand. A commit goes into
//! the last segment, or begins a new one if somebody stands at the end.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::{Delta, RowDelta, Schema, TableId, Uuid};

/// A place in the log; ascending.
pub(crate) type Place = u64;

/// Rough cost of a pending row, in bytes, beyond its elements.
const ROW_BYTES: usize = 128;
/// Rough cost of a pending element.
const ELEMENT_BYTES: usize = 48;

/// Merged changes by table and row.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeSet {
    tables: BTreeMap<TableId, TableChanges>,
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TableChanges {
    /// In the order of their first change; `None` where nothing is left of it.
    pub(crate) rows: Vec<(Uuid, Option<RowDelta>)>,
    index: HashMap<Uuid, usize, FixedState>,
}

impl ChangeSet {
    /// What has changed in a table.
    pub(crate) fn table(&self, table: TableId) -> Option<&TableChanges> {
        self.tables.get(&table)
    }

    fn merge_row(&mut self, schema: &Schema, table: TableId, uuid: Uuid, delta: &RowDelta) {
        self.bytes += row_bytes(delta);
        let changes = self.tables.entry(table).or_default();
        let at = *changes.index.entry(uuid).or_insert(changes.rows.len());
        if at == changes.rows.len() {
            changes.rows.push((uuid, Some(delta.clone())));
            return;
        }
        let slot = &mut changes.rows[at].1;
        *slot = match slot.take() {
            None => Some(delta.clone()),
            Some(earlier) => earlier.merge(delta, schema.table(table)),
        };
    }

    fn merge(&mut self, later: &Self, schema: &Schema) {
        for (table, changes) in &later.tables {
            for (uuid, delta) in &changes.rows {
                if let Some(delta) = delta {
                    self.merge_row(schema, *table, *uuid, delta);
                }
            }
        }
    }
}

fn row_bytes(delta: &RowDelta) -> usize {
    let elements = match delta {
        RowDelta::Insert(row) | RowDelta::Delete(row) => row.atoms(),
        RowDelta::Modify(columns) => columns
            .iter()
            .map(|delta| delta.change.added().count() + delta.change.removed().count())
            .sum(),
    };
    ROW_BYTES + elements * ELEMENT_BYTES
}

#[derive(Debug)]
struct Segment {
    start: Place,
    changes: ChangeSet,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    segments: VecDeque<Segment>,
    end: Place,
    /// How many members stand where.
    standing: BTreeMap<Place, usize>,
}

impl Pending {
    /// Where there is nothing more to be told.
    pub(crate) fn end(&self) -> Place {
        self.end
    }

    /// Whether there is anything that somebody has not been told.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Rough size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.changes.bytes).sum()
    }

    /// A member takes its stand at the end.
    pub(crate) fn enter(&mut self) -> Place {
        *self.standing.entry(self.end).or_default() += 1;
        self.end
    }

    /// `count` members leave a place.
    pub(crate) fn leave(&mut self, place: Place, count: usize, schema: &Schema) {
        let Some(standing) = self.standing.get_mut(&place) else { return };
        *standing = standing.saturating_sub(count);
        if *standing > 0 {
            return;
        }
        self.standing.remove(&place);
        // What is before the first member is of no use to anybody.
        let first = self.standing.keys().next().copied().unwrap_or(self.end);
        while self.segments.front().is_some_and(|segment| segment.start < first) {
            self.segments.pop_front();
        }
        let at = self.segments.partition_point(|segment| segment.start < place);
        if at > 0
            && self.segments.get(at).is_some_and(|segment| segment.start == place)
            && let Some(later) = self.segments.remove(at)
        {
            self.segments[at - 1].changes.merge(&later.changes, schema);
        }
    }

    /// Adds a transaction's changes to tables that `is_watched`.
    pub(crate) fn commit(
        &mut self,
        delta: &Delta,
        schema: &Schema,
        is_watched: impl Fn(TableId) -> bool,
    ) {
        if self.standing.is_empty() || !delta.tables.iter().any(|table| is_watched(table.table)) {
            return;
        }
        if self.standing.contains_key(&self.end) || self.segments.is_empty() {
            let segment = Segment { start: self.end, changes: ChangeSet::default() };
            self.segments.push_back(segment);
        }
        self.end += 1;
        let Some(segment) = self.segments.back_mut() else { return };
        for table in delta.tables.iter().filter(|table| is_watched(table.table)) {
            for (uuid, row) in &table.rows {
                segment.changes.merge_row(schema, table.table, *uuid, row);
            }
        }
    }

    /// All changes since `place`; borrowed if one segment has them all.
    pub(crate) fn since(
        &self,
        place: Place,
        schema: &Schema,
    ) -> Option<std::borrow::Cow<'_, ChangeSet>> {
        let at = self.segments.partition_point(|segment| segment.start < place);
        let mut segments = self.segments.iter().skip(at);
        let first = segments.next()?;
        let mut changes = std::borrow::Cow::Borrowed(&first.changes);
        for segment in segments {
            changes.to_mut().merge(&segment.changes, schema);
        }
        Some(changes)
    }

    /// The first place behind which more than `bytes_max` are pending, if there is one.
    pub(crate) fn overflow(&self, bytes_max: usize) -> Option<Place> {
        (self.bytes() > bytes_max).then(|| self.segments.front().map(|s| s.start)).flatten()
    }
}
