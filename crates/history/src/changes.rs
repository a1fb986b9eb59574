//! What a reader gets: the chunks from its place on, to be decoded where there is time.

use std::iter::Peekable;
use std::sync::Arc;

use weir_data::delta::Change;
use weir_data::{
    Atom, ColumnDelta, ColumnId, Datum, Delta, IdKind, Row, RowDelta, Schema, TableDelta, Uuid,
};

use crate::decode::{Item, ItemRow, Items};
use crate::ids::{Place, version_at, volatile_id};
use crate::ring::{Part, Stored};

/// All changes behind a place. Cheap to clone and to send.
#[derive(Clone, Debug)]
pub struct Changes {
    recorded: Arc<[Part]>,
    /// Empty for a reader of recorded columns.
    volatile: Arc<[Part]>,
    kind: IdKind,
    nonce: u64,
}

/// A change of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The state behind the change.
    pub place: Place,
    /// The state's id, of the kind that was asked for.
    pub id: Uuid,
    /// The change, of columns of that kind. No row has a true `_version`. For recorded columns all
    /// of them are zero. Otherwise rows are inserted, or modified to, one that no other place has,
    /// and had zero before, so that merged changes show that it changed.
    pub delta: Delta,
    /// How long the change is in its encoding.
    pub bytes: usize,
}

impl Changes {
    pub(crate) fn new(recorded: Vec<Part>, volatile: Vec<Part>, kind: IdKind, nonce: u64) -> Self {
        Self { recorded: recorded.into(), volatile: volatile.into(), kind, nonce }
    }

    /// How long the changes are in their encoding, about.
    pub fn bytes(&self) -> usize {
        self.recorded.iter().chain(&*self.volatile).map(|part| part.bytes().len()).sum()
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.volatile.is_empty()
    }

    /// The state behind the oldest change; `None` if nothing has changed.
    pub fn first(&self) -> Option<Place> {
        let first = |parts| stored(parts).next().map(|entry| Place(entry.header.place));
        [&self.recorded, &self.volatile].into_iter().filter_map(|parts| first(parts)).min()
    }

    /// The state behind a recorded change with this id, if it is one of these.
    pub fn find(&self, id: Uuid) -> Option<Place> {
        let mut entries = stored(&self.recorded);
        let found = entries.find(|entry| Uuid::from_u128(entry.header.id) == id);
        found.map(|entry| Place(entry.header.place))
    }

    /// The changes, oldest first, under the schema that the log had when it was asked.
    pub fn deltas<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = Entry> + 'a {
        let mut recorded = stored(&self.recorded).peekable();
        let mut volatile = stored(&self.volatile).peekable();
        std::iter::from_fn(move || {
            let place = match (place_of(&mut recorded), place_of(&mut volatile)) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b)?,
            };
            let recorded = recorded.next_if(|entry| entry.header.place == place.0);
            let volatile = volatile.next_if(|entry| entry.header.place == place.0);
            let id = match (self.kind, &recorded) {
                (IdKind::Recorded, Some(entry)) => Uuid::from_u128(entry.header.id),
                _ => volatile_id(self.nonce, place),
            };
            let parts = [recorded, volatile];
            let bytes = parts.iter().flatten().map(|entry| entry.items.len()).sum();
            let [mut rows, more] = parts.map(|entry| items(entry, schema));
            join(&mut rows, more);
            let version = match self.kind {
                IdKind::Recorded => Uuid::ZERO,
                IdKind::Volatile => version_at(place),
            };
            Some(Entry { place, id, delta: delta_of(rows, version, schema), bytes })
        })
    }
}

fn stored(parts: &[Part]) -> impl Iterator<Item = Stored<'_>> {
    parts.iter().flat_map(Part::entries)
}

fn place_of<'a>(entries: &mut Peekable<impl Iterator<Item = Stored<'a>>>) -> Option<Place> {
    entries.peek().map(|entry| Place(entry.header.place))
}

fn items(entry: Option<Stored<'_>>, schema: &Schema) -> Vec<Item> {
    let Some(entry) = entry else { return Vec::new() };
    let mut items = Items::new(entry.items, schema, entry.renumbering);
    std::iter::from_fn(|| items.next().expect("the log wrote it, or a side file was checked"))
        .collect()
}

/// Adds what the volatile part of a change says of its rows, which stand in the same order.
fn join(rows: &mut Vec<Item>, volatile: Vec<Item>) {
    let (mut at, mut alone) = (0, Vec::new());
    for item in volatile {
        if item.is_alone {
            alone.push(item);
            continue;
        }
        let is_same = |row: &Item| (row.table, row.uuid) == (item.table, item.uuid);
        let found = rows.iter_mut().skip(at).position(|row| is_same(row));
        at += found.expect("what is not alone is in the recorded part of the change, too");
        match (&mut rows[at].row, item.row) {
            (ItemRow::Insert(cells), ItemRow::Insert(more))
            | (ItemRow::Delete(cells), ItemRow::Delete(more)) => cells.extend(more),
            (ItemRow::Modify(changes), ItemRow::Modify(more)) => {
                changes.extend(more);
                changes.sort_by_key(|change| change.column);
            }
            _ => unreachable!("both parts were made of one row"),
        }
    }
    rows.extend(alone);
}

/// The delta of these rows, in which `_version` becomes `version` unless that is zero.
fn delta_of(mut rows: Vec<Item>, version: Uuid, schema: &Schema) -> Delta {
    // Tables may have been renumbered, and rows of the volatile part stand at the end.
    rows.sort_by_key(|row| row.table);
    let mut tables: Vec<TableDelta> = Vec::new();
    for Item { table, uuid, row, .. } in rows {
        let new_row = |version, cells| Row::with_values(uuid, version, schema.table(table), cells);
        let row = match row {
            ItemRow::Insert(cells) => RowDelta::Insert(new_row(version, cells)),
            ItemRow::Delete(cells) => RowDelta::Delete(new_row(Uuid::ZERO, cells)),
            ItemRow::Modify(mut changes) => {
                if version != Uuid::ZERO {
                    changes.insert(0, version_change(version));
                }
                RowDelta::Modify(changes)
            }
        };
        match tables.last_mut().filter(|last| last.table == table) {
            Some(last) => last.rows.push((uuid, row)),
            None => tables.push(TableDelta { table, rows: vec![(uuid, row)] }),
        }
    }
    Delta { tables }
}

fn version_change(version: Uuid) -> ColumnDelta {
    let [old, new] = [Uuid::ZERO, version].map(|uuid| Datum::One(Atom::Uuid(uuid)));
    ColumnDelta { column: ColumnId::VERSION, change: Change::Replace { old, new } }
}
