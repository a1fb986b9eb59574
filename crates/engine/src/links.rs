//! References between rows: how many strong ones hold a row, and which rows refer to it weakly.
//!
//! A reference from a row to itself does not count. The reference server tells a row from itself by
//! UUID alone, so a strong reference to a row of another table that has the same UUID is not
//! counted either, nor is its target required to exist; Weir does the same.
//!
//! **Invariant:** both structures say what a walk over all rows would find; entries change only
//! with a whole [`Delta`].

use std::collections::BTreeSet;
use std::hash::Hasher;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::delta::ColumnDelta;
use weir_data::schema::ColumnRefs;
use weir_data::store::{SPARE_MIN, SPARE_SHARE};
use weir_data::types::RefKind;
use weir_data::{Atom, AtomRef, ColumnId, Delta, Row, RowDelta, Schema, Store, TableId, Uuid};

use crate::digest::Sum;

/// One reference that a column makes to a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference<'a> {
    /// The column that makes it.
    pub(crate) column: ColumnId,
    /// The table of the row referred to.
    pub(crate) table: TableId,
    /// The row referred to.
    pub(crate) to: Uuid,
    /// Strong or weak.
    pub(crate) kind: RefKind,
    /// The key of the pair whose value it is; `None` for elements and keys.
    pub(crate) key: Option<AtomRef<'a>>,
}

/// A weak reference, filed under the row that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    to: Uuid,
    /// The table of the row that refers.
    pub(crate) table: TableId,
    /// The row that refers.
    pub(crate) row: Uuid,
    /// The column that holds the reference.
    pub(crate) column: ColumnId,
    /// The key of the pair whose value it is; `None` for elements and keys.
    pub(crate) key: Option<Box<Atom>>,
}

/// Strong counts and weak back-links of a database.
#[derive(Debug)]
pub(crate) struct Links {
    /// By table: its columns that refer to rows.
    columns: Vec<Vec<(ColumnId, ColumnRefs)>>,
    /// By table: rows that strong references of others hold, and how many.
    strong: Vec<HashMap<Uuid, u32, FixedState>>,
    /// By table: weak references to its rows.
    weak: Vec<BTreeSet<Link>>,
}

impl Links {
    /// Nothing refers to anything yet.
    pub(crate) fn new(schema: &Schema, seed: u64) -> Self {
        let columns = schema.tables.iter().map(|table| {
            let refs = table.column_ids().map(|(id, column)| (id, column.refs));
            refs.filter(|(_, refs)| refs.any()).collect()
        });
        let map = || HashMap::with_hasher(FixedState::with_seed(seed));
        let strong = schema.tables.iter().map(|_| map());
        let weak = schema.tables.iter().map(|_| BTreeSet::new());
        Self { columns: columns.collect(), strong: strong.collect(), weak: weak.collect() }
    }

    /// Whether any column of the table refers to rows.
    pub(crate) fn refers(&self, table: TableId) -> bool {
        !self.columns[table.index()].is_empty()
    }

    /// How many strong references hold the row.
    pub(crate) fn strong(&self, table: TableId, uuid: Uuid) -> u32 {
        self.strong[table.index()].get(&uuid).copied().unwrap_or(0)
    }

    /// Gives up the room of rows that are gone.
    pub(crate) fn shrink(&mut self) {
        for counts in &mut self.strong {
            if counts.capacity() > (SPARE_SHARE * counts.len()).max(SPARE_MIN) {
                counts.shrink_to(2 * counts.len());
            }
        }
    }

    /// Changes how many strong references hold the row.
    pub(crate) fn adjust_strong(&mut self, table: TableId, uuid: Uuid, change: i64) {
        let counts = &mut self.strong[table.index()];
        let count = counts.entry(uuid).or_insert(0);
        let sum = i64::from(*count) + change;
        debug_assert!(sum >= 0, "{sum} references to {uuid}");
        *count = u32::try_from(sum).unwrap_or(if sum < 0 { 0 } else { u32::MAX });
        if *count == 0 {
            counts.remove(&uuid);
        }
    }

    /// Weak references to a row, sorted by the row that refers.
    pub(crate) fn weak_to(&self, table: TableId, to: Uuid) -> impl Iterator<Item = &Link> {
        let (column, key) = (ColumnId(0), None);
        let first = Link { to, table: TableId(0), row: Uuid::ZERO, column, key };
        self.weak[table.index()].range(first..).take_while(move |link| link.to == to)
    }

    /// Rows of table `from` that refer weakly to a row, in whatever column; each once a reference.
    pub(crate) fn weak_from(
        &self,
        from: TableId,
        (table, to): (TableId, Uuid),
    ) -> impl Iterator<Item = Uuid> {
        let first = Link { to, table: from, row: Uuid::ZERO, column: ColumnId(0), key: None };
        let links = self.weak[table.index()].range(first..);
        links.take_while(move |link| (link.to, link.table) == (to, from)).map(|link| link.row)
    }

    /// Whether any column of the table refers to rows weakly.
    pub(crate) fn refers_weakly(&self, table: TableId) -> bool {
        let is_weak = |(_, kind): &(TableId, RefKind)| *kind == RefKind::Weak;
        let mut columns = self.columns[table.index()].iter();
        columns.any(|(_, refs)| [refs.key, refs.value].iter().flatten().any(is_weak))
    }

    /// Number of weak references between different rows.
    pub(crate) fn weak_refs(&self) -> usize {
        self.weak.iter().map(BTreeSet::len).sum()
    }

    /// References that a row makes to others.
    pub(crate) fn of_row<'a>(
        &'a self,
        table: TableId,
        row: &'a Row,
    ) -> impl Iterator<Item = Reference<'a>> {
        let columns = self.columns[table.index()].iter();
        columns.flat_map(|(id, refs)| references(*id, *refs, row.get(*id).entries()))
    }

    /// References that changes to a row's columns add, or else those that they remove.
    pub(crate) fn of_changes<'a>(
        &'a self,
        table: TableId,
        changes: &'a [ColumnDelta],
        added: bool,
    ) -> impl Iterator<Item = Reference<'a>> {
        let columns = &self.columns[table.index()];
        let changes = changes.iter().filter_map(|delta| {
            let at = columns.binary_search_by_key(&delta.column, |entry| entry.0).ok()?;
            Some((columns[at], &delta.change))
        });
        changes.flat_map(move |((id, refs), change)| {
            let (new, old) =
                if added { (Some(change.added()), None) } else { (None, Some(change.removed())) };
            let entries = new.into_iter().flatten().chain(old.into_iter().flatten());
            references(id, refs, entries)
        })
    }

    /// Follows a change of rows.
    pub(crate) fn apply(&mut self, delta: &Delta) {
        for (table, uuid, row) in delta.rows() {
            if self.refers(table) {
                self.apply_strong(table, uuid, row);
                self.apply_weak(table, uuid, row);
            }
        }
    }

    /// Follows a change of rows in the weak references only.
    pub(crate) fn apply_weak_only(&mut self, delta: &Delta) {
        for (table, uuid, row) in delta.rows() {
            if self.refers(table) {
                self.apply_weak(table, uuid, row);
            }
        }
    }

    /// Files the weak references of all rows, at once instead of one by one.
    pub(crate) fn link_weak(&mut self, store: &Store) {
        let mut filed: Vec<Vec<Link>> = self.weak.iter().map(|_| Vec::new()).collect();
        for (table, _) in store.schema().table_ids() {
            for row in store.table(table).iter() {
                let uuid = row.uuid();
                let others = self.of_row(table, row).filter(|r| r.is_filed(table, uuid));
                others.for_each(|r| filed[r.table.index()].push(r.link_from(table, uuid)));
            }
        }
        self.weak = filed.into_iter().map(BTreeSet::from_iter).collect();
    }

    fn apply_strong(&mut self, table: TableId, uuid: Uuid, delta: &RowDelta) {
        let mut changes: Vec<(TableId, Uuid, i64)> = Vec::new();
        let mut collect = |references: &mut dyn Iterator<Item = Reference<'_>>, by: i64| {
            let counted = references.filter(|reference| reference.holds(uuid));
            changes.extend(counted.map(|reference| (reference.table, reference.to, by)));
        };
        match delta {
            RowDelta::Insert(row) => collect(&mut self.of_row(table, row), 1),
            RowDelta::Delete(row) => collect(&mut self.of_row(table, row), -1),
            RowDelta::Modify(columns) => {
                collect(&mut self.of_changes(table, columns, false), -1);
                collect(&mut self.of_changes(table, columns, true), 1);
            }
        }
        for (table, uuid, by) in changes {
            self.adjust_strong(table, uuid, by);
        }
    }

    fn apply_weak(&mut self, table: TableId, uuid: Uuid, delta: &RowDelta) {
        let filed = |references: &mut dyn Iterator<Item = Reference<'_>>| {
            let others = references.filter(|r| r.is_filed(table, uuid));
            others.map(|r| (r.table, r.link_from(table, uuid))).collect::<Vec<_>>()
        };
        let (removed, added) = match delta {
            RowDelta::Insert(row) => (Vec::new(), filed(&mut self.of_row(table, row))),
            RowDelta::Delete(row) => (filed(&mut self.of_row(table, row)), Vec::new()),
            RowDelta::Modify(columns) => (
                filed(&mut self.of_changes(table, columns, false)),
                filed(&mut self.of_changes(table, columns, true)),
            ),
        };
        // Removed first: a pair whose value changed is on both sides.
        for (table, link) in removed {
            self.weak[table.index()].remove(&link);
        }
        for (table, link) in added {
            self.weak[table.index()].insert(link);
        }
    }

    /// Adds every count and link to a hash.
    pub(crate) fn digest(&self, sum: &mut Sum) {
        for (table, counts) in self.strong.iter().enumerate() {
            for (uuid, count) in counts {
                sum.add(|hasher| {
                    hasher.write_usize(table);
                    hasher.write_u128(uuid.to_u128());
                    hasher.write_u32(*count);
                });
            }
        }
        for (table, links) in self.weak.iter().enumerate() {
            for link in links {
                sum.add(|hasher| {
                    hasher.write_usize(table);
                    hasher.write_u128(link.to.to_u128());
                    hasher.write_u16(link.table.0);
                    hasher.write_u128(link.row.to_u128());
                    hasher.write_u16(link.column.0);
                    if let Some(key) = &link.key {
                        key.as_ref().as_ref().hash_into(hasher);
                    }
                });
            }
        }
    }
}

impl Reference<'_> {
    /// Whether the reference keeps its target from being deleted, coming from row `from`.
    pub(crate) fn holds(&self, from: Uuid) -> bool {
        self.kind == RefKind::Strong && self.to != from
    }

    /// Whether the reference is filed as a weak one, coming from row `from`.
    fn is_filed(&self, table: TableId, from: Uuid) -> bool {
        self.kind == RefKind::Weak && (self.table, self.to) != (table, from)
    }

    fn link_from(&self, table: TableId, row: Uuid) -> Link {
        let key = self.key.map(|key| Box::new(key.to_atom()));
        Link { to: self.to, table, row, column: self.column, key }
    }
}

/// The references among a column's entries.
fn references<'a>(
    column: ColumnId,
    refs: ColumnRefs,
    entries: impl Iterator<Item = (AtomRef<'a>, Option<AtomRef<'a>>)>,
) -> impl Iterator<Item = Reference<'a>> {
    entries.flat_map(move |(key, value)| {
        let by_key = refs.key.zip(key.as_uuid()).map(|(target, to)| (target, to, None));
        let value = value.and_then(AtomRef::as_uuid);
        let by_value = refs.value.zip(value).map(|(target, to)| (target, to, Some(key)));
        by_key.into_iter().chain(by_value).map(move |((table, kind), to, key)| Reference {
            column,
            table,
            to,
            kind,
            key,
        })
    })
}
