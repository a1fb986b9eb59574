//! Keys: which rows may have a value in a column, for columns that no unique index covers
//! (`docs/decisions/015`).
//!
//! No answer depends on a key: [`crate::planner`] checks what a key finds against the whole
//! condition, and looks for what a transaction under way has moved besides. So keys come and go
//! while the database is in use:
//!
//! 1. [`Database::add_key`](crate::Database::add_key) takes a snapshot of the table. From then on
//!    every delta that takes effect, or is undone, is filed at once.
//! 2. [`Database::build_keys`](crate::Database::build_keys) files the rows of the snapshot, so many
//!    a step. Entries are numbers that add up, so it does not matter which came first.
//! 3. With the last of them the key serves.
//!
//! `entries` and `runs` have the structure, `numbers` what values are filed under, `advice` which
//! keys the engine keeps on its own account.
//!
//! **Invariant:** a key that serves has what a walk over all committed rows would file.

mod advice;
mod api;
mod entries;
mod numbers;
mod runs;

use weir_data::{ColumnId, Delta, RowDelta, Schema, Snapshot, Store, TableId, TableSchema, Uuid};

pub use advice::KeyBudget;
pub use api::{DroppedKey, KeyError, KeyEvent, KeyState, Why};
pub(crate) use entries::{Entries, Form, Rows};
pub(crate) use numbers::{Number, Numbers, fits, order_of};

use advice::Demands;
pub(crate) use advice::ROWS_MIN;

/// Which questions a key answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// `==`, and `includes`, in columns of at most one element.
    Hash,
    /// `==`, `includes`, `<`, `<=`, `>` and `>=` in columns of at most one integer, real or string, and
    /// their order.
    Ordered,
    /// `includes`, and `==`, in sets and maps.
    Inverted,
}

/// What a key is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName {
    /// The table.
    pub table: TableId,
    /// The column.
    pub column: ColumnId,
    /// What the key answers.
    pub kind: KeyKind,
}

/// Who wants a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Somebody who says so: the key stays until dropped.
    Declared,
    /// The engine, as long as the key pays.
    Automatic,
}

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: KeyName,
    origin: Origin,
    pub(crate) entries: Entries,
    /// What is not filed yet of a key that is being built.
    building: Option<Building>,
    /// Entries that commits have filed since [`Key::saved`] was counted from 0.
    filed: u64,
    /// Rows that nobody had to look at, thanks to the key.
    saved: u64,
}

#[derive(Debug)]
struct Building {
    snapshot: Snapshot,
    /// The first slot that is not filed.
    slot: u32,
    /// Looked at by scans, when the engine decided to have the key.
    scanned: u64,
}

/// All keys of a database.
#[derive(Debug)]
pub(crate) struct Keys {
    /// By table.
    tables: Vec<Vec<Key>>,
    numbers: Numbers,
    demands: Demands,
    /// Something is to be built, or to be decided.
    is_restless: bool,
}

/// What a search says about keys, for [`advice`]: rows, not time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    /// A key would have served a scan of so many rows.
    Scanned(KeyName, u64),
    /// Thanks to a key, so many rows were not looked at.
    Saved(KeyName, u64),
}

impl Keys {
    /// No keys.
    pub(crate) fn new(schema: &Schema, seed: u64) -> Self {
        let tables = schema.tables.iter().map(|_| Vec::new()).collect();
        let (numbers, demands) = (Numbers::new(seed), Demands::default());
        Self { tables, numbers, demands, is_restless: false }
    }

    /// Gives values their numbers.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The keys of a table that serve.
    pub(crate) fn of(&self, table: TableId) -> impl Iterator<Item = &Key> {
        self.tables[table.index()].iter().filter(|key| key.building.is_none())
    }

    /// Whether a key that serves depends on a column of the table, or on any.
    #[inline]
    pub(crate) fn concerns(&self, table: TableId, column: Option<ColumnId>) -> bool {
        let keys = &self.tables[table.index()];
        !keys.is_empty() && keys.iter().any(|key| column.is_none_or(|c| c == key.name.column))
    }

    /// Whether the column has a key, of whatever kind, or is about to.
    fn has(&self, table: TableId, column: ColumnId, fits: impl Fn(KeyKind) -> bool) -> bool {
        let mut keys = self.tables[table.index()].iter();
        keys.any(|key| key.name.column == column && fits(key.name.kind))
    }

    fn get_mut(&mut self, name: KeyName) -> Option<&mut Key> {
        self.tables[name.table.index()].iter_mut().find(|key| key.name == name)
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        self.tables.iter().flatten()
    }

    /// Follows a change of rows, which are in place already.
    pub(crate) fn apply(&mut self, store: &Store, delta: &Delta) {
        let Self { tables, numbers, is_restless, .. } = self;
        for delta in &delta.tables {
            for key in &mut tables[delta.table.index()] {
                for (uuid, row) in &delta.rows {
                    key.follow(numbers, store, *uuid, row);
                }
                *is_restless |= key.is_to_be_judged(store);
            }
        }
    }

    /// Adds a key, of which nothing is filed yet.
    fn begin(&mut self, name: KeyName, origin: Origin, store: &Store, scanned: u64) {
        let building = Building { snapshot: store.snapshot_of(name.table), slot: 0, scanned };
        let key = Key {
            name,
            origin,
            entries: Entries::new(form(store, name)),
            building: Some(building),
            filed: 0,
            saved: 0,
        };
        let keys = &mut self.tables[name.table.index()];
        let at = keys.partition_point(|key| key.name < name);
        keys.insert(at, key);
        self.is_restless = true;
    }

    fn remove(&mut self, name: KeyName) -> Option<Key> {
        let keys = &mut self.tables[name.table.index()];
        let at = keys.iter().position(|key| key.name == name)?;
        Some(keys.remove(at))
    }

    /// Whether each key that serves is what a walk over all rows finds.
    fn match_rows(&self, store: &Store) -> bool {
        self.all().filter(|key| key.building.is_none()).all(|key| {
            let mut entries = Entries::new(form(store, key.name));
            let rows = store.table(key.name.table);
            for row in rows.iter() {
                let number = rows.row_number(row.uuid());
                let value = row.get(key.name.column);
                self.numbers.of_value(key.name.kind, value, |value| entries.add(value, number));
            }
            entries.is_equal(&key.entries)
        })
    }
}

fn form(store: &Store, name: KeyName) -> Form {
    Form::of(name.kind, store.schema().table(name.table).column(name.column))
}

impl Key {
    fn follow(&mut self, numbers: &Numbers, store: &Store, uuid: Uuid, delta: &RowDelta) {
        let Self { name: KeyName { table, column, kind }, entries, filed, .. } = self;
        let number = store.table(*table).row_number(uuid);
        match delta {
            RowDelta::Insert(row) => numbers.of_value(*kind, row.get(*column), |value| {
                entries.add(value, number);
                *filed += 1;
            }),
            RowDelta::Delete(row) => numbers.of_value(*kind, row.get(*column), |value| {
                entries.remove(value, number);
                *filed += 1;
            }),
            RowDelta::Modify(columns) => {
                let Some(delta) = columns.iter().find(|delta| delta.column == *column) else {
                    return;
                };
                let change = &delta.change;
                if *kind != KeyKind::Inverted {
                    let whole = |side: &weir_data::Datum, file: &mut dyn FnMut(Number)| {
                        numbers.of_value(*kind, side.as_ref(), file);
                    };
                    if let weir_data::delta::Change::Replace { old, new } = change {
                        whole(old, &mut |value| entries.remove(value, number));
                        whole(new, &mut |value| entries.add(value, number));
                        *filed += 2;
                    }
                    return;
                }
                let (mut added, mut removed) = (0, 0);
                for entry in change.removed() {
                    entries.remove(numbers.entry(entry), number);
                    removed += 1;
                }
                for entry in change.added() {
                    entries.add(numbers.entry(entry), number);
                    added += 1;
                }
                *filed += (added + removed) as u64;
                let now = store.get(*table, uuid).map_or(0, |row| row.get(*column).len());
                // Nothing is filed, too.
                match (now + removed - added, now) {
                    (0, 0) => {}
                    (0, _) => entries.remove(Numbers::of_nothing(), number),
                    (_, 0) => entries.add(Numbers::of_nothing(), number),
                    _ => {}
                }
            }
        }
    }

    /// Files rows of the snapshot until `most` rows, slots and entries are done: how many that were,
    /// and the snapshot, with how much scans had looked at, if the key serves now.
    fn build(
        &mut self,
        numbers: &Numbers,
        store: &Store,
        most: usize,
    ) -> (usize, Option<(Snapshot, u64)>) {
        let Self { name: KeyName { table, column, kind }, entries, building, .. } = self;
        let Some(Building { snapshot, slot, .. }) = building else { return (0, None) };
        let (begin, mut done) = (*slot, 0);
        let rows = store.table(*table);
        for (behind, row) in snapshot.rows_from(*table, begin) {
            *slot = behind;
            let number = rows.row_number(row.uuid());
            numbers.of_value(*kind, row.get(*column), |value| {
                entries.add(value, number);
                done += 1;
            });
            done += 1;
            if done + (behind - begin) as usize >= most {
                return (done + (behind - begin) as usize, None);
            }
        }
        assert!(entries.is_whole(), "all that was taken out of the key has been put in");
        (done, building.take().map(|building| (building.snapshot, building.scanned)))
    }

    /// Whether commits have filed so much in a key of the engine's own that it must have paid by now.
    fn is_to_be_judged(&self, store: &Store) -> bool {
        let rows = || store.table(self.name.table).len() as u64;
        self.origin == Origin::Automatic && self.filed >= rows().max(ROWS_MIN)
    }

    /// Bytes that the key takes, about.
    fn bytes(&self) -> usize {
        self.entries.bytes()
    }
}

/// The kind of key that serves columns like this one: `by_order` if they are compared by more than
/// equality.
pub fn kind_for(schema: &TableSchema, column: ColumnId, by_order: bool) -> KeyKind {
    let column = schema.column(column);
    match column.ty.is_composite() {
        true => KeyKind::Inverted,
        false if by_order && fits(KeyKind::Ordered, column) => KeyKind::Ordered,
        false => KeyKind::Hash,
    }
}
