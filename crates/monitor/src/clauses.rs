//! Which groups a change can concern: an index over the clauses of all conditions.
//!
//! A group is filed under each clause `column == value` and `column includes value` of its condition
//! on a table. A changed row is looked up by the values that its columns have and had: who is not
//! found cannot be told anything of it, and costs nothing. Groups with other clauses, or without a
//! condition, are asked one by one.
//!
//! Finding too many is harmless (they compose nothing), so hashes stand for values and nobody
//! compares.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::condition::{Clause, Function};
use weir_data::delta::Change;
use weir_data::{
    Atom, AtomRef, ColumnDelta, ColumnId, DatumRef, Delta, Row, RowDelta, Store, TableId,
};

use crate::registry::GroupId;
use crate::subscription::{Subscription, TableSubscription};
use crate::view::{RowView, State};

/// Longest value that `==` is filed under: hashing a value must not cost more than a change.
const EQUAL_MAX: usize = 8;

/// Whom a change can concern, by table.
#[derive(Debug)]
pub(crate) struct ClauseIndex {
    tables: Vec<TableClauses>,
    hasher: FixedState,
}

#[derive(Debug, Default)]
struct TableClauses {
    /// Groups that every change of the table can concern.
    all: BTreeSet<GroupId>,
    /// The groups that only some changes of the table can concern, by the columns of their clauses.
    columns: Vec<ColumnClauses>,
}

#[derive(Debug)]
struct ColumnClauses {
    column: ColumnId,
    /// Groups whose clause demands a value with `==`, by the hash of the whole value.
    equal: HashMap<u64, Vec<GroupId>, FixedState>,
    /// Groups whose clause demands an entry with `includes`, by the hash of the entry.
    includes: HashMap<u64, Filed, FixedState>,
}

#[derive(Debug)]
struct Filed {
    /// The element, or the key and value, that the clauses demand.
    entry: (Atom, Option<Atom>),
    groups: Vec<GroupId>,
}

/// A row whose change can concern a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) group: GroupId,
    pub(crate) table: TableId,
    /// The index of the row among the table's changed rows.
    pub(crate) at: usize,
}

/// What a clause is filed under.
enum Key<'a> {
    Equal(DatumRef<'a>),
    Includes((AtomRef<'a>, Option<AtomRef<'a>>)),
}

impl ClauseIndex {
    /// An index of no groups; `seed` is for hashing what clients choose.
    pub(crate) fn new(seed: u64) -> Self {
        Self { tables: Vec::new(), hasher: FixedState::with_seed(seed) }
    }

    /// Files a group; its number is higher than those of all before.
    pub(crate) fn add(&mut self, group: GroupId, subscription: &Subscription, n_tables: usize) {
        self.tables.resize_with(n_tables, TableClauses::default);
        for of in subscription.tables.iter().filter(|table| !table.matches_no_row()) {
            let table = &mut self.tables[of.shape.table.index()];
            let Some(keys) = keys(of) else {
                table.all.insert(group);
                continue;
            };
            for (column, key) in keys {
                let groups = table.place(column, &key, key.hash(&self.hasher));
                if groups.last() != Some(&group) {
                    groups.push(group);
                }
            }
        }
    }

    /// Takes a group out.
    pub(crate) fn remove(&mut self, group: GroupId, subscription: &Subscription) {
        for of in &subscription.tables {
            let Some(table) = self.tables.get_mut(of.shape.table.index()) else { continue };
            table.all.remove(&group);
            for (column, key) in keys(of).into_iter().flatten() {
                table.remove(group, column, &key, key.hash(&self.hasher));
            }
        }
    }

    /// Whether none of these transactions, all of which the store shows, can concern anybody.
    pub(crate) fn concern_nobody<'a>(
        &self,
        deltas: impl Iterator<Item = &'a Delta>,
        store: &Store,
    ) -> bool {
        let mut found = false;
        for delta in deltas.flat_map(|delta| &delta.tables) {
            let Some(table) = self.tables.get(delta.table.index()) else { continue };
            if !table.all.is_empty() {
                return false;
            }
            if table.columns.is_empty() {
                continue;
            }
            for (uuid, row) in &delta.rows {
                let mut find = |groups: &[GroupId]| found |= !groups.is_empty();
                match row {
                    RowDelta::Insert(row) | RowDelta::Delete(row) => {
                        self.of_row(table, row, &mut find);
                    }
                    RowDelta::Modify(changes) => {
                        let row = store.get(delta.table, *uuid);
                        row.into_iter().for_each(|row| self.of_row(table, row, &mut find));
                        self.of_changes(table, changes, &mut find);
                    }
                }
                if found {
                    return false;
                }
            }
        }
        true
    }

    /// Adds the groups that changes of rows can concern: to `groups` those to which every row can
    /// be something, to `found` the others, each with the rows that can.
    pub(crate) fn concerned(
        &self,
        table: TableId,
        rows: &[RowView<'_>],
        groups: &mut Vec<GroupId>,
        found: &mut Vec<Found>,
    ) {
        let of_table = self.tables.get(table.index());
        let Some(clauses) = of_table else { return };
        groups.extend(&clauses.all);
        if clauses.columns.is_empty() {
            return;
        }
        for (at, row) in rows.iter().enumerate() {
            let mut find = |groups: &[GroupId]| {
                found.extend(groups.iter().map(|&group| Found { group, table, at }));
            };
            match &row.state {
                State::Inserted(row) | State::Deleted(row) => {
                    self.of_row(clauses, row, &mut find);
                }
                State::Modified(modified) => {
                    self.of_row(clauses, modified.row, &mut find);
                    self.of_changes(clauses, &modified.columns, &mut find);
                }
            }
        }
    }

    /// Whether [`ClauseIndex::concerned`] finds all rows that can be something to this group.
    pub(crate) fn finds_all(&self, group: GroupId, table: TableId) -> bool {
        self.tables.get(table.index()).is_some_and(|table| !table.all.contains(&group))
    }

    /// Finds the groups whose clauses hold for the row.
    fn of_row(&self, table: &TableClauses, row: &Row, find: &mut impl FnMut(&[GroupId])) {
        for column in &table.columns {
            let value = row.get(column.column);
            self.of_value(column, value, find);
        }
    }

    fn of_value(
        &self,
        column: &ColumnClauses,
        value: DatumRef<'_>,
        find: &mut impl FnMut(&[GroupId]),
    ) {
        if !column.equal.is_empty() && value.len() <= EQUAL_MAX {
            let hash = Key::Equal(value).hash(&self.hasher);
            column.equal.get(&hash).into_iter().for_each(|groups| find(groups));
        }
        if value.len() <= column.includes.len() {
            self.of_entries(column, value.entries(), find);
            return;
        }
        for Filed { entry: (key, with), groups } in column.includes.values() {
            if value.has_entry((key.as_ref(), with.as_ref().map(Atom::as_ref))) {
                find(groups);
            }
        }
    }

    fn of_entries<'a>(
        &self,
        column: &ColumnClauses,
        entries: impl Iterator<Item = (AtomRef<'a>, Option<AtomRef<'a>>)>,
        find: &mut impl FnMut(&[GroupId]),
    ) {
        for entry in entries {
            let hash = Key::Includes(entry).hash(&self.hasher);
            column.includes.get(&hash).into_iter().for_each(|filed| find(&filed.groups));
        }
    }

    /// Finds the groups whose clauses held before the changes.
    fn of_changes(
        &self,
        table: &TableClauses,
        changes: &[ColumnDelta],
        find: &mut impl FnMut(&[GroupId]),
    ) {
        for column in &table.columns {
            let at = changes.binary_search_by_key(&column.column, |delta| delta.column);
            let Some(ColumnDelta { change, .. }) = at.ok().and_then(|at| changes.get(at)) else {
                continue;
            };
            if let Change::Replace { old, .. } = change {
                self.of_value(column, old.as_ref(), find);
                continue;
            }
            if !column.includes.is_empty() {
                self.of_entries(column, change.removed(), find);
            }
            // What a set was between two changes nobody knows any more.
            column.equal.values().for_each(|groups| find(groups));
        }
    }
}

impl TableClauses {
    fn place(&mut self, column: ColumnId, key: &Key<'_>, hash: u64) -> &mut Vec<GroupId> {
        let at = self.columns.iter().position(|of| of.column == column);
        let at = at.unwrap_or_else(|| {
            let (equal, includes) = (HashMap::default(), HashMap::default());
            self.columns.push(ColumnClauses { column, equal, includes });
            self.columns.len() - 1
        });
        let column = &mut self.columns[at];
        match key {
            Key::Equal(_) => column.equal.entry(hash).or_default(),
            Key::Includes((key, value)) => {
                let entry = || (key.to_atom(), value.map(AtomRef::to_atom));
                let new = || Filed { entry: entry(), groups: Vec::new() };
                &mut column.includes.entry(hash).or_insert_with(new).groups
            }
        }
    }

    fn remove(&mut self, group: GroupId, column: ColumnId, key: &Key<'_>, hash: u64) {
        let Some(at) = self.columns.iter().position(|of| of.column == column) else { return };
        let of = &mut self.columns[at];
        let without = |groups: &mut Vec<GroupId>| {
            if let Ok(at) = groups.binary_search(&group) {
                groups.remove(at);
            }
            groups.is_empty()
        };
        match key {
            Key::Equal(_) if of.equal.get_mut(&hash).is_some_and(without) => {
                of.equal.remove(&hash);
            }
            Key::Includes(_)
                if of.includes.get_mut(&hash).is_some_and(|filed| without(&mut filed.groups)) =>
            {
                of.includes.remove(&hash);
            }
            _ => {}
        }
        if of.equal.is_empty() && of.includes.is_empty() {
            self.columns.remove(at);
        }
    }
}

impl Key<'_> {
    fn hash(&self, hasher: &FixedState) -> u64 {
        let mut hasher = hasher.build_hasher();
        let mut add = |(key, value): (AtomRef<'_>, Option<AtomRef<'_>>)| {
            key.hash_into(&mut hasher);
            value.into_iter().for_each(|value| value.hash_into(&mut hasher));
        };
        match self {
            Key::Equal(value) => value.entries().for_each(add),
            Key::Includes(entry) => add(*entry),
        }
        hasher.finish()
    }
}

/// What the condition on a table is filed under; `None` if something in it cannot be filed.
fn keys(table: &TableSubscription) -> Option<Vec<(ColumnId, Key<'_>)>> {
    let clauses = table.clauses();
    if clauses.is_empty() {
        return None;
    }
    let key = |clause| match clause {
        &Clause::Constant(constant) => (!constant).then_some(None),
        Clause::Compare { column, function: Function::Equal, value } => {
            let value = value.as_ref();
            (value.len() <= EQUAL_MAX).then_some(Some((*column, Key::Equal(value))))
        }
        Clause::Compare { column, function: Function::Includes, value } => {
            let first = value.as_ref().entries().next()?;
            Some(Some((*column, Key::Includes(first))))
        }
        Clause::Compare { .. } => None,
    };
    let keys: Option<Vec<_>> = clauses.iter().map(key).collect();
    keys.map(|keys| keys.into_iter().flatten().collect())
}
