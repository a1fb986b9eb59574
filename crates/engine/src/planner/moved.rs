//! Rows that a transaction under way may have given values that indexes and keys do not know.
//!
//! Those hold committed values. A few moved rows are all looked at; many are filed under the values
//! that somebody asks for, as far as they have come.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::{ColumnId, DatumRef, TableId, TableSchema, Uuid};

use super::Few;
use crate::digest;
use crate::keys::{Entries, Form, KeyKind, Keys, Number, Numbers};
use crate::transaction::Transaction;

/// So many moved rows, at most, are all looked at without a [`Lookup`].
const LOOK_AT_ALL: usize = 8;

/// The moved rows of a transaction.
#[derive(Debug)]
pub(super) struct Moved {
    tables: Vec<MovedRows>,
    hasher: FixedState,
}

/// Rows of one table that may have values that the table's indexes and keys do not know.
#[derive(Debug)]
struct MovedRows {
    table: TableId,
    /// The moved rows in the order in which they got such values; a row may be there more than
    /// once.
    uuids: Vec<Uuid>,
    lookups: Vec<Lookup>,
    by_key: Vec<KeyLookup>,
}

/// The moved rows by the hash of their values in one unique index, as far as somebody asked.
#[derive(Debug)]
struct Lookup {
    index: usize,
    /// How many of [`MovedRows::uuids`] are in.
    done: usize,
    by_hash: HashMap<u64, Vec<Uuid>, FixedState>,
}

/// The moved rows by what a key files their values under, as far as somebody asked.
#[derive(Debug)]
struct KeyLookup {
    column: ColumnId,
    kind: KeyKind,
    /// How many of [`MovedRows::uuids`] are in, by their places there.
    done: usize,
    entries: Entries,
}

impl Moved {
    pub(super) fn new(seed: u64) -> Self {
        Self { tables: Vec::new(), hasher: FixedState::with_seed(seed) }
    }

    /// Takes note that a row was inserted, or changed in `column`.
    pub(super) fn note(
        &mut self,
        (schema, keys): (&TableSchema, &Keys),
        table: TableId,
        uuid: Uuid,
        column: Option<ColumnId>,
    ) {
        let concerns = |index: &Vec<ColumnId>| column.is_none_or(|column| index.contains(&column));
        if !schema.indexes.iter().any(concerns) && !keys.concerns(table, column) {
            return;
        }
        match self.tables.iter_mut().find(|moved| moved.table == table) {
            Some(moved) => moved.uuids.push(uuid),
            None => self.tables.push(MovedRows {
                table,
                uuids: vec![uuid],
                lookups: Vec::new(),
                by_key: Vec::new(),
            }),
        }
    }

    /// The moved rows of a table, some more than once.
    pub(super) fn all(&self, table: TableId) -> &[Uuid] {
        self.tables.iter().find(|moved| moved.table == table).map_or(&[], |moved| &moved.uuids)
    }

    /// Adds the moved rows that may have these values in a unique index.
    pub(super) fn by_index(
        &mut self,
        txn: &Transaction<'_>,
        table: TableId,
        (index, values): (usize, &[DatumRef<'_>]),
        candidates: &mut Few<Uuid>,
    ) {
        let Self { tables, hasher } = self;
        let Some(moved) = tables.iter_mut().find(|moved| moved.table == table) else { return };
        if moved.uuids.len() <= LOOK_AT_ALL {
            candidates.extend_from_slice(&moved.uuids);
        } else {
            let lookup = moved.lookup(txn, index, hasher);
            let hash = hash(hasher, values.iter().copied());
            candidates.extend(lookup.by_hash.get(&hash).into_iter().flatten().copied());
        }
    }

    /// The moved rows that a key of this column would file under numbers from `first` to `last`,
    /// had they been committed; perhaps more.
    pub(super) fn by_key(
        &mut self,
        txn: &Transaction<'_>,
        table: TableId,
        (column, kind): (ColumnId, KeyKind),
        (first, last): (Number, Number),
    ) -> Few<Uuid> {
        let moved = self.tables.iter_mut().find(|moved| moved.table == table);
        let Some(moved) = moved else { return Few::new() };
        if moved.uuids.len() <= LOOK_AT_ALL {
            return Few::from_slice(&moved.uuids);
        }
        let MovedRows { uuids, by_key, .. } = moved;
        let at = by_key.iter().position(|lookup| (lookup.column, lookup.kind) == (column, kind));
        let at = at.unwrap_or_else(|| {
            let form = Form::of(kind, txn.schema().table(table).column(column));
            by_key.push(KeyLookup { column, kind, done: 0, entries: Entries::new(form) });
            by_key.len() - 1
        });
        let lookup = &mut by_key[at];
        lookup.follow(txn, table, uuids, txn.db().keys.numbers());
        lookup.entries.rows(first, last).map(|place| uuids[place as usize]).collect()
    }
}

impl MovedRows {
    /// The lookup for an index, with all moved rows in it.
    fn lookup(&mut self, txn: &Transaction<'_>, index: usize, hasher: &FixedState) -> &Lookup {
        let at = self.lookups.iter().position(|lookup| lookup.index == index);
        let at = at.unwrap_or_else(|| {
            let by_hash = HashMap::with_hasher(hasher.clone());
            self.lookups.push(Lookup { index, done: 0, by_hash });
            self.lookups.len() - 1
        });
        let lookup = &mut self.lookups[at];
        let columns = &txn.schema().table(self.table).indexes[index];
        for uuid in &self.uuids[lookup.done..] {
            if let Some(row) = txn.store().get(self.table, *uuid) {
                let hash = hash(hasher, columns.iter().map(|column| row.get(*column)));
                lookup.by_hash.entry(hash).or_default().push(*uuid);
            }
        }
        lookup.done = self.uuids.len();
        lookup
    }
}

impl KeyLookup {
    /// Files the rows that have moved since somebody asked last.
    fn follow(&mut self, txn: &Transaction<'_>, table: TableId, uuids: &[Uuid], numbers: &Numbers) {
        for (place, uuid) in uuids.iter().enumerate().skip(self.done) {
            let Ok(place) = u32::try_from(place) else { continue };
            if let Some(row) = txn.store().get(table, *uuid) {
                let entries = &mut self.entries;
                let value = row.get(self.column);
                numbers.of_value(self.kind, value, |value| entries.add(value, place));
            }
        }
        self.done = uuids.len();
    }
}

fn hash<'a>(hasher: &FixedState, values: impl Iterator<Item = DatumRef<'a>>) -> u64 {
    let mut hasher = hasher.build_hasher();
    values.for_each(|value| digest::datum(value, &mut hasher));
    hasher.finish()
}
