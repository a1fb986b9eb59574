//! Which groups a change can concern: an index over the clauses of all conditions.
//!
//! A group is filed under each clause `column == value` and `column includes value` of its condition
//! on a table. A changed row is looked up by the values that its columns have and had: who is not
//! found cannot be told anything of it, and costs nothing. Groups with other clauses, or without a
//! condition, are asked one by one.
//!
//! Finding too many is harmless (they compose nothing), so hashes stand for values and nobody
//! compares.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::delta::Change;
use weir_data::{
    Atom, AtomRef, ColumnDelta, ColumnId, Datum, DatumRef, Delta, Row, RowDelta, Store, TableId,
};

use crate::filter::{EQUAL_MAX, Entry, Filter, Kind, Values, hash_entry, hash_value};
use crate::registry::GroupId;
use crate::subscription::{Subscription, TableSubscription};
use crate::view::{RowView, State, View};

/// Most clauses on a table that one group is filed under. A group with more is asked of every
/// changed row: a look-up each, and no step in which so many clauses are filed.
const FILED_MAX: usize = 16 << 10;

/// Clauses of groups that have gone which are taken out in a step: some milliseconds' worth. Those of
/// one group on one table are taken out together.
const SWEPT_MAX: usize = 8 << 10;

/// What a group is filed as; stays the same while the conditions of its only member change.
pub(crate) type FiledId = u32;

/// Whom a change can concern, by table.
#[derive(Debug)]
pub(crate) struct ClauseIndex {
    tables: Vec<TableClauses>,
    /// The group that is filed as each number; none under a number that is free, or whose clauses have
    /// not all been taken out.
    groups: Vec<Option<GroupId>>,
    free: Vec<FiledId>,
    /// Groups that have gone, and whose clauses are found until they have been taken out.
    gone: VecDeque<Gone>,
    hasher: FixedState,
    /// Conditions so far that ask for some rows, and for which every changed row is judged.
    unfiled: u64,
}

#[derive(Debug)]
struct Gone {
    filed: FiledId,
    subscription: Arc<Subscription>,
    /// The clauses on so many of its tables have been taken out.
    tables: usize,
}

#[derive(Debug, Default)]
struct TableClauses {
    /// Groups that every change of the table can concern.
    all: BTreeSet<FiledId>,
    /// The groups that only some changes of the table can concern, by the columns of their clauses.
    columns: Vec<ColumnClauses>,
}

#[derive(Debug)]
struct ColumnClauses {
    column: ColumnId,
    /// Groups whose clause demands a value with `==`, by the hash of the whole value.
    equal: HashMap<u64, Vec<FiledId>, FixedState>,
    /// Groups whose clause demands entries with `includes`, by the hash of the first.
    includes: HashMap<u64, Filed, FixedState>,
}

#[derive(Debug)]
struct Filed {
    /// The element, or the key and value, that the clauses demand.
    entry: (Atom, Option<Atom>),
    groups: Vec<FiledId>,
}

/// A row whose change can concern a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) group: GroupId,
    pub(crate) table: TableId,
    /// The index of the row among the table's changed rows.
    pub(crate) at: usize,
}

/// How a condition is filed.
enum Filing<'a> {
    /// No row is asked for.
    Nowhere,
    /// Every change can concern the group.
    All,
    /// Under each of these values.
    Values(&'a [Values]),
}

impl<'a> Filing<'a> {
    fn of(filter: &'a Filter) -> Self {
        match filter.demanded() {
            _ if filter.matches_no_row() => Self::Nowhere,
            Some(values) if values.iter().map(Values::len).sum::<usize>() <= FILED_MAX => {
                Self::Values(values)
            }
            _ => Self::All,
        }
    }

    /// Whether every changed row is judged by the filter, though not every row is asked for.
    fn is_unfiled(&self, filter: &Filter) -> bool {
        matches!(self, Self::All) && !filter.holds_always()
    }

    fn values(&self) -> &'a [Values] {
        match self {
            Self::Values(values) => values,
            Self::Nowhere | Self::All => &[],
        }
    }
}

impl ClauseIndex {
    /// An index of no groups; `hasher` is that of the filters.
    pub(crate) fn new(hasher: FixedState) -> Self {
        let (tables, groups, free) = Default::default();
        Self { tables, groups, free, gone: VecDeque::new(), hasher, unfiled: 0 }
    }

    /// How many conditions could not be filed since this was asked last.
    pub(crate) fn take_unfiled(&mut self) -> u64 {
        std::mem::take(&mut self.unfiled)
    }

    /// Files a group.
    pub(crate) fn add(
        &mut self,
        group: GroupId,
        subscription: &Subscription,
        n_tables: usize,
    ) -> FiledId {
        self.tables.resize_with(n_tables, TableClauses::default);
        let filed = self.free.pop().unwrap_or(self.groups.len() as FiledId);
        match self.groups.get_mut(filed as usize) {
            Some(free) => *free = Some(group),
            None => self.groups.push(Some(group)),
        }
        for of in &subscription.tables {
            let table = &mut self.tables[of.shape.table.index()];
            let filing = Filing::of(&of.filter);
            self.unfiled += u64::from(filing.is_unfiled(&of.filter));
            table.refile(filed, &Filing::Nowhere, &filing);
        }
        filed
    }

    /// Another group takes the place of one whose tables it has: only what differs is filed.
    pub(crate) fn replace(
        &mut self,
        filed: FiledId,
        group: GroupId,
        old: &Subscription,
        new: &Subscription,
    ) {
        self.groups[filed as usize] = Some(group);
        for (old, new) in old.tables.iter().zip(&new.tables) {
            assert_eq!(old.shape.table, new.shape.table, "conditions change, tables do not");
            let table = &mut self.tables[new.shape.table.index()];
            let filing = Filing::of(&new.filter);
            self.unfiled += u64::from(filing.is_unfiled(&new.filter) && old.filter != new.filter);
            table.refile(filed, &Filing::of(&old.filter), &filing);
        }
    }

    /// Takes a group out. Its clauses are left to [`ClauseIndex::sweep`]: many clients that leave at
    /// the same time may have millions.
    pub(crate) fn remove(&mut self, filed: FiledId, subscription: Arc<Subscription>) {
        self.groups[filed as usize] = None;
        for of in &subscription.tables {
            self.tables[of.shape.table.index()].all.remove(&filed);
        }
        let has_values = |of: &TableSubscription| !Filing::of(&of.filter).values().is_empty();
        if subscription.tables.iter().any(has_values) {
            self.gone.push_back(Gone { filed, subscription, tables: 0 });
        } else {
            self.free.push(filed);
        }
    }

    /// Whether clauses are left of groups that have gone.
    pub(crate) fn is_to_be_swept(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Takes some of these out.
    pub(crate) fn sweep(&mut self) {
        let mut swept = 0;
        while swept < SWEPT_MAX
            && let Some(gone) = self.gone.front_mut()
        {
            if let Some(of) = gone.subscription.tables.get(gone.tables) {
                let filing = Filing::of(&of.filter);
                swept += 1 + filing.values().iter().map(Values::len).sum::<usize>();
                let table = &mut self.tables[of.shape.table.index()];
                table.refile(gone.filed, &filing, &Filing::Nowhere);
                gone.tables += 1;
            } else {
                self.free.push(gone.filed);
                self.gone.pop_front();
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
                let mut find = |filed: &[FiledId]| found |= !filed.is_empty();
                match row {
                    RowDelta::Insert(row) | RowDelta::Delete(row) => {
                        self.of_row(table, row, &mut find);
                    }
                    RowDelta::Modify(changes) => {
                        let row = store.get(delta.table, *uuid);
                        row.into_iter().for_each(|row| self.of_row(table, row, &mut find));
                        // Later transactions may have changed the row again.
                        self.of_changes(table, changes, None, &mut find);
                    }
                }
                if found {
                    return false;
                }
            }
        }
        true
    }

    /// The groups, ascending, that what has changed can concern, and which rows can, in order.
    pub(crate) fn concerned(&self, view: &View<'_>) -> (Vec<GroupId>, Vec<Found>) {
        let (mut affected, mut found) = (Vec::new(), Vec::new());
        for table in &view.tables {
            self.concerned_by(table.table, &table.rows, &mut affected, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        affected.extend(found.chunk_by(|a, b| a.group == b.group).map(|found| found[0].group));
        affected.sort_unstable();
        affected.dedup();
        (affected, found)
    }

    /// Adds the groups that changes of rows can concern: to `groups` those to which every row can
    /// be something, to `found` the others, each with the rows that can.
    fn concerned_by(
        &self,
        table: TableId,
        rows: &[RowView<'_>],
        groups: &mut Vec<GroupId>,
        found: &mut Vec<Found>,
    ) {
        let of_table = self.tables.get(table.index());
        let Some(clauses) = of_table else { return };
        groups.extend(clauses.all.iter().filter_map(|filed| self.group(*filed)));
        if clauses.columns.is_empty() {
            return;
        }
        for (at, row) in rows.iter().enumerate() {
            let mut find = |filed: &[FiledId]| {
                let groups = filed.iter().filter_map(|filed| self.group(*filed));
                found.extend(groups.map(|group| Found { group, table, at }));
            };
            match &row.state {
                State::Inserted(row) | State::Deleted(row) => {
                    self.of_row(clauses, row, &mut find);
                }
                State::Modified(modified) => {
                    self.of_row(clauses, modified.row, &mut find);
                    self.of_changes(clauses, &modified.columns, Some(modified.row), &mut find);
                }
            }
        }
    }

    /// Whether some group asks for rows of the table by values of theirs.
    pub(crate) fn has_values(&self, table: TableId) -> bool {
        self.tables.get(table.index()).is_some_and(|table| !table.columns.is_empty())
    }

    /// The group that is filed as this number, unless it has gone.
    fn group(&self, filed: FiledId) -> Option<GroupId> {
        self.groups[filed as usize]
    }

    /// Whether [`ClauseIndex::concerned`] finds all rows that can be something to this group.
    pub(crate) fn finds_all(&self, filed: FiledId, table: TableId) -> bool {
        self.tables.get(table.index()).is_some_and(|table| !table.all.contains(&filed))
    }

    /// Finds the groups whose clauses hold for the row.
    fn of_row(&self, table: &TableClauses, row: &Row, find: &mut impl FnMut(&[FiledId])) {
        for column in &table.columns {
            let value = row.get(column.column);
            self.of_value(column, value, find);
        }
    }

    fn of_value(
        &self,
        column: &ColumnClauses,
        value: DatumRef<'_>,
        find: &mut impl FnMut(&[FiledId]),
    ) {
        if !column.equal.is_empty() && value.len() <= EQUAL_MAX {
            let hash = hash_value(value, &self.hasher);
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
        entries: impl Iterator<Item = Entry<'a>>,
        find: &mut impl FnMut(&[FiledId]),
    ) {
        for entry in entries {
            let hash = hash_entry(entry, &self.hasher);
            column.includes.get(&hash).into_iter().for_each(|filed| find(&filed.groups));
        }
    }

    /// Finds the groups whose clauses held before the changes. `now` is the row behind them: without
    /// it only some of the groups are found, if any are.
    fn of_changes(
        &self,
        table: &TableClauses,
        changes: &[ColumnDelta],
        now: Option<&Row>,
        find: &mut impl FnMut(&[FiledId]),
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
            if column.equal.is_empty() {
                continue;
            }
            let Some(now) = now.map(|row| row.get(column.column)) else {
                column.equal.values().take(1).for_each(|groups| find(groups));
                continue;
            };
            // Entries of a map that have another value now are among both.
            let added = change.added().count();
            if now.len() <= EQUAL_MAX + added {
                let old = change.old_value(now);
                if old.as_ref().len() <= EQUAL_MAX {
                    let hash = hash_value(old.as_ref(), &self.hasher);
                    column.equal.get(&hash).into_iter().for_each(|groups| find(groups));
                }
            }
        }
    }
}

/// The changed rows of a table that can be something to a group; `found` is sorted.
pub(crate) fn found_of(found: &[Found], group: GroupId, table: TableId) -> &[Found] {
    let from = found.partition_point(|one| (one.group, one.table) < (group, table));
    let found = &found[from..];
    &found[..found.partition_point(|one| (one.group, one.table) == (group, table))]
}

/// Clauses of a group that it is filed under.
pub(crate) fn filed_clauses(subscription: &Subscription) -> usize {
    let filings = subscription.tables.iter().map(|of| Filing::of(&of.filter));
    filings.flat_map(|filing| filing.values()).map(Values::len).sum()
}

impl TableClauses {
    /// Files a group otherwise than before.
    fn refile(&mut self, filed: FiledId, old: &Filing<'_>, new: &Filing<'_>) {
        match new {
            Filing::All => self.all.insert(filed),
            Filing::Nowhere | Filing::Values(_) => self.all.remove(&filed),
        };
        let is_in = |list: &[Values], of: &Values| {
            list.iter().any(|other| (other.column, other.kind) == (of.column, of.kind))
        };
        for of in old.values() {
            let same = |other: &&Values| (other.column, other.kind) == (of.column, of.kind);
            match new.values().iter().find(same) {
                Some(new) => self.refile_values(filed, of, new),
                None => of.found_by_each().for_each(|(hash, _)| self.remove(filed, of, hash)),
            }
        }
        for of in new.values().iter().filter(|of| !is_in(old.values(), of)) {
            of.found_by_each().for_each(|(hash, value)| self.insert(filed, of, hash, value));
        }
        self.columns.retain(|of| !of.equal.is_empty() || !of.includes.is_empty());
    }

    fn refile_values(&mut self, filed: FiledId, old: &Values, new: &Values) {
        let (mut before, mut after) = (old.found_by_each().peekable(), new.found_by_each());
        let mut next = after.next();
        loop {
            let order = match (before.peek(), &next) {
                (Some((before, _)), Some((after, _))) => before.cmp(after),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            if order.is_lt()
                && let Some((hash, _)) = before.next()
            {
                self.remove(filed, old, hash);
                continue;
            }
            if order.is_eq() {
                before.next();
            } else if let Some((hash, value)) = next {
                self.insert(filed, new, hash, value);
            }
            next = after.next();
        }
    }

    fn insert(&mut self, filed: FiledId, of: &Values, hash: u64, value: &Datum) {
        let at = self.columns.iter().position(|column| column.column == of.column);
        let at = at.unwrap_or_else(|| {
            let (equal, includes) = (HashMap::default(), HashMap::default());
            self.columns.push(ColumnClauses { column: of.column, equal, includes });
            self.columns.len() - 1
        });
        let column = &mut self.columns[at];
        let groups = if of.kind == Kind::Equal {
            column.equal.entry(hash).or_default()
        } else {
            let new = || {
                let first = value.as_ref().entries().next();
                let (key, value) = first.expect("what includes nothing holds always");
                let entry = (key.to_atom(), value.map(AtomRef::to_atom));
                Filed { entry, groups: Vec::new() }
            };
            &mut column.includes.entry(hash).or_insert_with(new).groups
        };
        let at = groups.binary_search(&filed).expect_err("a group is filed under a hash once");
        groups.insert(at, filed);
    }

    fn remove(&mut self, filed: FiledId, of: &Values, hash: u64) {
        let column = self.columns.iter_mut().find(|column| column.column == of.column);
        let column = column.expect("the group is filed under this column");
        let without = |groups: &mut Vec<FiledId>| {
            groups.remove(groups.binary_search(&filed).expect("the group is filed under it"));
            groups.is_empty()
        };
        if of.kind == Kind::Equal {
            if without(column.equal.get_mut(&hash).expect("somebody is filed under it")) {
                column.equal.remove(&hash);
            }
        } else {
            let of_entry = column.includes.get_mut(&hash).expect("somebody is filed under it");
            if without(&mut of_entry.groups) {
                column.includes.remove(&hash);
            }
        }
    }
}
