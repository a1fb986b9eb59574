//! A change, computed once: what log, monitors, indexes, history and undo consume.
//!
//! A [`Change`] is one column's, a [`RowDelta`] one row's, a [`Delta`] a transaction's. Columns of
//! at most one element change by replacement, all others by the elements added and removed, so the
//! size of a change never depends on the size of the set it is made to. Every level can be merged
//! with a later change, inverted and applied.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::atom::{Atom, AtomRef};
use crate::datum::{Datum, DatumRef, write_entries};
use crate::row::Row;
use crate::schema::{ColumnId, TableId, TableSchema};
use crate::sorted::{Element, Pair, Sorted};
use crate::types::ColumnType;
use crate::uuid::Uuid;

/// What happened to one column of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A column of at most one element got a new value.
    Replace {
        /// The value before.
        old: Datum,
        /// The value after.
        new: Datum,
    },
    /// Elements of a set came and went.
    Set {
        /// Elements that are only after.
        added: Sorted<Atom>,
        /// Elements that are only before.
        removed: Sorted<Atom>,
    },
    /// Pairs of a map came and went; a key whose value changed is in both.
    Map {
        /// Pairs that are only after.
        added: Sorted<Pair>,
        /// Pairs that are only before.
        removed: Sorted<Pair>,
    },
}

/// A change and its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDelta {
    /// The column that changed.
    pub column: ColumnId,
    /// What happened to the column.
    pub change: Change,
}

/// What happened to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowDelta {
    /// The row is new.
    Insert(Row),
    /// The row is gone; as it was last.
    Delete(Row),
    /// These columns changed (`_version` among them), in ascending order.
    Modify(Vec<ColumnDelta>),
}

/// The changed rows of one table, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDelta {
    /// The table of the rows.
    pub table: TableId,
    /// The rows, in the order in which the transaction first touched them.
    pub rows: Vec<(Uuid, RowDelta)>,
}

/// All that a transaction changed; tables in ascending order, each once, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The changed tables.
    pub tables: Vec<TableDelta>,
}

/// The ids of a state for `monitor_cond_since`; zero where there is no history
/// (`docs/decisions/012`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// For who watches columns only that are kept in files: survives a restart.
    pub recorded: Uuid,
    /// For who watches or conditions on `_version` or a column that is not kept: names the process.
    pub volatile: Uuid,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdKind {
    /// [`Ids::recorded`]
    Recorded,
    /// [`Ids::volatile`]
    Volatile,
}

impl Ids {
    /// The id of a kind.
    pub fn of(self, kind: IdKind) -> Uuid {
        match kind {
            IdKind::Recorded => self.recorded,
            IdKind::Volatile => self.volatile,
        }
    }
}

/// How often what clients were told has grown older, by the kind of ids: those who were last told at
/// two ages less are told again, or the log of changes goes past the state that they know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Of recorded ids.
    pub recorded: u64,
    /// Of volatile ids.
    pub volatile: u64,
}

impl Ages {
    /// The age of a kind.
    pub fn of(self, kind: IdKind) -> u64 {
        match kind {
            IdKind::Recorded => self.recorded,
            IdKind::Volatile => self.volatile,
        }
    }
}

/// A transaction that took effect.
#[derive(Clone, Debug)]
pub struct Committed {
    /// How many transactions this database has committed since it was opened, this one included:
    /// outputs carry the position they were computed at.
    pub position: u64,
    /// The ids of the state behind the transaction.
    pub ids: Ids,
    /// What the transaction changed.
    pub delta: Arc<Delta>,
}

impl Change {
    /// The change from `old` to `new`; `None` if they are equal.
    pub fn between(old: &Datum, new: &Datum, ty: &ColumnType) -> Option<Self> {
        if old == new {
            return None;
        }
        if !ty.is_composite() {
            return Some(Self::Replace { old: old.clone(), new: new.clone() });
        }
        Some(if ty.is_map() {
            let pairs =
                |a, b| only_in(a, b, |(key, value)| Some((key.to_atom(), value?.to_atom())));
            Self::Map { added: pairs(new, old), removed: pairs(old, new) }
        } else {
            let atoms = |a, b| only_in(a, b, |(key, _)| Some(key.to_atom()));
            Self::Set { added: atoms(new, old), removed: atoms(old, new) }
        })
    }

    /// What a difference, as [`Datum::apply_diff`] takes it, changes in `old`; `None` if nothing.
    /// Costs what the difference costs, however long `old` is. The column has room for more than
    /// one element: others have no differences.
    pub fn of_difference(old: &Datum, difference: &Datum, ty: &ColumnType) -> Option<Self> {
        let (old, difference) = (old.as_ref(), difference.as_ref());
        let change = if ty.is_map() {
            map_difference(old, difference)
        } else {
            set_difference(old, difference)
        };
        (!change.is_empty()).then_some(change)
    }

    /// Whether the change leaves every value as it is.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Replace { old, new } => old == new,
            Self::Set { added, removed } => added.is_empty() && removed.is_empty(),
            Self::Map { added, removed } => added.is_empty() && removed.is_empty(),
        }
    }

    /// The change that undoes this one.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Replace { old, new } => Self::Replace { old: new, new: old },
            Self::Set { added, removed } => Self::Set { added: removed, removed: added },
            Self::Map { added, removed } => Self::Map { added: removed, removed: added },
        }
    }

    /// Changes a value.
    pub fn apply(&self, datum: &mut Datum) {
        match self {
            Self::Replace { new, .. } => *datum = new.clone(),
            Self::Set { added, removed } => apply_set(datum, added, removed),
            Self::Map { added, removed } => apply_map(datum, added, removed),
        }
    }

    /// The value before the change, from the one after it.
    pub fn old_value(&self, new: DatumRef<'_>) -> Datum {
        match self {
            Self::Replace { old, .. } => old.clone(),
            Self::Set { added, removed } => {
                let mut datum = new.to_datum();
                apply_set(&mut datum, removed, added);
                datum
            }
            Self::Map { added, removed } => {
                let mut datum = new.to_datum();
                apply_map(&mut datum, removed, added);
                datum
            }
        }
    }

    /// Adds a later change to the same column.
    pub fn merge(&mut self, later: &Self) {
        match (self, later) {
            (Self::Replace { new, .. }, Self::Replace { new: newer, .. }) => new.clone_from(newer),
            (
                Self::Set { added, removed },
                Self::Set { added: later_added, removed: later_removed },
            ) => {
                for atom in later_removed.iter() {
                    if added.remove(atom.key()).is_none() {
                        removed.insert(atom.clone());
                    }
                }
                for atom in later_added.iter() {
                    if removed.remove(atom.key()).is_none() {
                        added.insert(atom.clone());
                    }
                }
            }
            (
                Self::Map { added, removed },
                Self::Map { added: later_added, removed: later_removed },
            ) => {
                for pair in later_removed.iter() {
                    if added.remove(pair.key()).is_none() {
                        removed.insert(pair.clone());
                    }
                }
                for pair in later_added.iter() {
                    if removed.get(pair.key()).is_some_and(|old| old.1 == pair.1) {
                        removed.remove(pair.key());
                    } else {
                        added.insert(pair.clone());
                    }
                }
            }
            // A column's type decides the form of all its changes.
            (this, later) => debug_assert!(false, "{this:?} merged with {later:?}"),
        }
    }

    /// Appends the difference as `update2` and the log spell it (ovsdb-server(7) §4.1.14).
    pub fn write_diff(&self, ty: &ColumnType, out: &mut Vec<u8>) {
        match self {
            Self::Replace { new, .. } => new.as_ref().write(ty, out),
            Self::Set { added, removed } => {
                let mut sides = Sides::new(added.iter(), removed.iter());
                if added.len() + removed.len() == 1 {
                    if let Some(atom) = sides.next() {
                        atom.write(out);
                    }
                } else {
                    write_entries(sides.map(|atom| (atom.as_ref(), None)), false, out);
                }
            }
            Self::Map { added, removed } => {
                let sides = Sides::new(added.iter(), removed.iter());
                let entries = sides.map(|(key, value)| (key.as_ref(), Some(value.as_ref())));
                write_entries(entries, true, out);
            }
        }
    }

    /// Entries that are only in the value after the change.
    pub fn added(&self) -> impl Iterator<Item = (AtomRef<'_>, Option<AtomRef<'_>>)> {
        self.side(true)
    }

    /// Entries that are only in the value before the change.
    pub fn removed(&self) -> impl Iterator<Item = (AtomRef<'_>, Option<AtomRef<'_>>)> {
        self.side(false)
    }

    fn side(&self, is_new: bool) -> impl Iterator<Item = (AtomRef<'_>, Option<AtomRef<'_>>)> {
        use crate::datum::Entries;
        match self {
            Self::Replace { old, new } => (if is_new { new } else { old }).as_ref().entries(),
            Self::Set { added, removed } => {
                Entries::Set((if is_new { added } else { removed }).iter())
            }
            Self::Map { added, removed } => {
                Entries::Map((if is_new { added } else { removed }).iter())
            }
        }
    }
}

fn set_difference(old: DatumRef<'_>, difference: DatumRef<'_>) -> Change {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for (key, _) in difference.entries() {
        let side = if old.contains(key) { &mut removed } else { &mut added };
        side.push(key.to_atom());
    }
    Change::Set { added: Sorted::from_sorted(added), removed: Sorted::from_sorted(removed) }
}

fn map_difference(old: DatumRef<'_>, difference: DatumRef<'_>) -> Change {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for (key, value) in difference.entries() {
        let Some(value) = value else { continue };
        let before = old.value_of(key);
        if before != Some(value) {
            added.push((key.to_atom(), value.to_atom()));
        }
        removed.extend(before.map(|before| (key.to_atom(), before.to_atom())));
    }
    Change::Map { added: Sorted::from_sorted(added), removed: Sorted::from_sorted(removed) }
}

fn apply_set(datum: &mut Datum, added: &Sorted<Atom>, removed: &Sorted<Atom>) {
    for atom in removed.iter() {
        datum.set_remove(atom.key());
    }
    for atom in added.iter() {
        datum.set_insert(atom.clone());
    }
}

fn apply_map(datum: &mut Datum, added: &Sorted<Pair>, removed: &Sorted<Pair>) {
    // What has a new value is replaced.
    for pair in removed.iter().filter(|pair| !added.contains(pair.key())) {
        datum.map_remove(pair.key());
    }
    for pair in added.iter() {
        datum.map_insert(pair.0.clone(), pair.1.clone());
    }
}

type Entry<'a> = (AtomRef<'a>, Option<AtomRef<'a>>);

/// What `make` makes of the entries of `a` that `b` has not, by one walk over both.
fn only_in<'a, E: Element>(
    a: &'a Datum,
    b: &'a Datum,
    make: impl Fn(Entry<'a>) -> Option<E>,
) -> Sorted<E> {
    let mut others = b.as_ref().entries().peekable();
    let is_missing = |entry: &Entry<'a>| {
        while others.next_if(|other| other.0 < entry.0).is_some() {}
        others.peek() != Some(entry)
    };
    Sorted::from_sorted(a.as_ref().entries().filter(is_missing).filter_map(make).collect())
}

/// Both sides of a change in key order; of a key that is on both, the added side.
struct Sides<I: Iterator> {
    added: std::iter::Peekable<I>,
    removed: std::iter::Peekable<I>,
}

impl<'a, E: Element + 'a, I: Iterator<Item = &'a E>> Sides<I> {
    fn new(added: I, removed: I) -> Self {
        Self { added: added.peekable(), removed: removed.peekable() }
    }
}

impl<'a, E: Element + 'a, I: Iterator<Item = &'a E>> Iterator for Sides<I> {
    type Item = &'a E;

    fn next(&mut self) -> Option<&'a E> {
        let order = match (self.added.peek(), self.removed.peek()) {
            (Some(added), Some(removed)) => added.key().cmp(&removed.key()),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => self.added.next(),
            Ordering::Greater => self.removed.next(),
            Ordering::Equal => {
                self.removed.next();
                self.added.next()
            }
        }
    }
}

impl ColumnDelta {
    /// Column by column, what makes `old` into `new`, in ascending order.
    pub fn between(old: &Row, new: &Row, table: &TableSchema) -> Vec<Self> {
        let change = |(column, schema): (ColumnId, &crate::ColumnSchema)| {
            let change = Change::between(old.datum(column), new.datum(column), &schema.ty)?;
            Some(Self { column, change })
        };
        table.column_ids().filter_map(change).collect()
    }

    /// Adds a change to a list in ascending order of columns, merging with one already there.
    pub fn merge_into(columns: &mut Vec<Self>, column: ColumnId, change: Change) {
        match columns.binary_search_by_key(&column, |delta| delta.column) {
            Ok(at) => columns[at].change.merge(&change),
            Err(at) => columns.insert(at, Self { column, change }),
        }
    }
}

impl RowDelta {
    /// Adds what happened to the same row later; `None` if nothing is left of it.
    pub fn merge(self, later: &Self, table: &TableSchema) -> Option<Self> {
        match (self, later) {
            (Self::Insert(mut row), Self::Modify(columns)) => {
                for delta in columns {
                    delta.change.apply(row.get_mut(delta.column));
                }
                Some(Self::Insert(row))
            }
            (Self::Modify(mut columns), Self::Modify(later)) => {
                for delta in later {
                    ColumnDelta::merge_into(&mut columns, delta.column, delta.change.clone());
                }
                columns.retain(|delta| !delta.change.is_empty());
                (!columns.is_empty()).then_some(Self::Modify(columns))
            }
            (Self::Modify(columns), Self::Delete(row)) => {
                let mut old = row.clone();
                for ColumnDelta { column, change } in columns {
                    change.inverse().apply(old.get_mut(column));
                }
                Some(Self::Delete(old))
            }
            (Self::Delete(old), Self::Insert(new)) => {
                let columns = ColumnDelta::between(&old, new, table);
                (!columns.is_empty()).then_some(Self::Modify(columns))
            }
            (Self::Insert(_), Self::Delete(_)) => None,
            // A row is inserted only where there is none, and changed only where there is one.
            (this, later) => {
                debug_assert!(false, "{this:?} followed by {later:?}");
                Some(later.clone())
            }
        }
    }

    /// The change of the row that undoes this one.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Insert(row) => Self::Delete(row),
            Self::Delete(row) => Self::Insert(row),
            Self::Modify(columns) => Self::Modify(
                columns
                    .into_iter()
                    .map(|delta| ColumnDelta { change: delta.change.inverse(), ..delta })
                    .collect(),
            ),
        }
    }

    /// The column's change, if the row was modified in it. A commit may take back what an operation
    /// did (a weak reference to no row): such a column has not changed, though the row has.
    pub fn change(&self, column: ColumnId) -> Option<&Change> {
        let Self::Modify(columns) = self else { return None };
        let at = columns.binary_search_by_key(&column, |delta| delta.column).ok()?;
        Some(&columns[at].change).filter(|change| !change.is_empty())
    }
}

impl Delta {
    /// Whether the transaction changed nothing.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The delta that undoes this one: applying both leaves everything as it was.
    #[must_use]
    pub fn inverse(self) -> Self {
        let row = |(uuid, delta): (Uuid, RowDelta)| (uuid, delta.inverse());
        let table = |delta: TableDelta| TableDelta {
            table: delta.table,
            rows: delta.rows.into_iter().rev().map(row).collect(),
        };
        Self { tables: self.tables.into_iter().map(table).collect() }
    }

    /// All changed rows.
    pub fn rows(&self) -> impl Iterator<Item = (TableId, Uuid, &RowDelta)> {
        self.tables
            .iter()
            .flat_map(|table| table.rows.iter().map(|(uuid, row)| (table.table, *uuid, row)))
    }
}
