//! A database: its rows, and what is derived from them.
//!
//! Rows live in the [`Store`]; reference counts and back-links in `Links`, unique indexes in
//! `Indexes`, other keys in `Keys`. A transaction edits rows in place and keeps a journal; the derived structures
//! follow only when it commits. [`Database::apply`] and [`Database::revert`] do rows and derived
//! structures alike: log replay, replication and undo are made of them.

use std::sync::Arc;

use weir_data::{DatumRef, Delta, Error, Schema, Snapshot, Store, TableId, Uuid};

use crate::index::Indexes;
use crate::keys::Keys;
use crate::links::Links;
use crate::load;

/// The rows of one database and what is derived from them.
#[derive(Debug)]
pub struct Database {
    pub(crate) store: Store,
    pub(crate) links: Links,
    pub(crate) indexes: Indexes,
    pub(crate) keys: Keys,
    /// Whether `links` says what refers to what: not in a view of a snapshot.
    pub(crate) has_links: bool,
    pub(crate) position: u64,
    pub(crate) seed: u64,
}

impl Database {
    /// An empty database. `seed` goes into every hash, so that clients cannot choose collisions; no
    /// answer depends on it.
    pub fn new(schema: Arc<Schema>, seed: u64) -> Self {
        Self::bare(Store::new(schema, seed), seed)
    }

    /// A database of these rows, once everything that a commit checks holds for them. As at a
    /// commit, unreferenced rows of non-root tables and weak references to missing rows go.
    ///
    /// # Errors
    /// As a commit's, had one transaction inserted all rows.
    pub fn from_store(store: Store, seed: u64) -> Result<Self, Error> {
        load::derive(Self::bare(store, seed)).map(|(database, _)| database)
    }

    /// A database of the rows that another server has told: just these. The packaged server can have weak
    /// references to rows that are gone, and take them out later; a difference that takes out what is not here
    /// would put it in.
    ///
    /// # Errors
    /// As [`Database::from_store`]'s.
    pub fn from_told(store: Store, seed: u64) -> Result<Self, Error> {
        load::derive_as_told(Self::bare(store, seed))
    }

    pub(crate) fn bare(store: Store, seed: u64) -> Self {
        let links = Links::new(store.schema(), seed);
        let indexes = Indexes::new(store.schema(), seed);
        let keys = Keys::new(store.schema(), seed);
        Self { store, links, indexes, keys, has_links: true, position: 0, seed }
    }

    /// All rows, as the last transaction left them.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// All rows, without what is derived from them.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// The schema that the rows conform to.
    pub fn schema(&self) -> &Arc<Schema> {
        self.store.schema()
    }

    /// How many transactions have taken effect since the database was made.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// All rows as they are now, to be read while the database goes on.
    pub fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Number of weak references between different rows: `n-weak-refs` of `memory/show`.
    pub fn weak_refs(&self) -> usize {
        self.links.weak_refs()
    }

    /// The committed row whose columns of the table's unique index number `index` have these
    /// values. Rows that a transaction under way has touched may be missed.
    pub fn lookup(&self, table: TableId, index: usize, values: &[DatumRef<'_>]) -> Option<Uuid> {
        self.indexes.lookup(&self.store, table, index, values)
    }

    /// Makes a change that was committed before, here or elsewhere: nothing is checked.
    pub fn apply(&mut self, delta: &Delta) {
        self.store.apply(delta);
        self.derive(delta);
        self.position += 1;
    }

    /// Gives up the room of rows that are gone; nothing may be undone any more.
    pub fn shrink(&mut self) {
        self.store.shrink();
        self.links.shrink();
        self.indexes.shrink();
    }

    /// Undoes the change that was applied last.
    pub fn revert(&mut self, delta: &Delta) {
        let inverse = delta.clone().inverse();
        self.store.apply(&inverse);
        self.derive(&inverse);
        self.position -= 1;
    }

    /// Counts, back-links, indexes and keys follow rows that have changed already.
    fn derive(&mut self, delta: &Delta) {
        self.links.apply(delta);
        self.indexes.apply(&self.store, delta);
        self.keys.apply(&self.store, delta);
    }

    /// A hash over rows, counts, back-links, unique indexes and the position: equal for equal states
    /// of databases of one seed, whatever led there and whatever keys they have. Visits everything; made for tests.
    pub fn state_hash(&self) -> u64 {
        let mut sum = crate::digest::Sum::default();
        for (id, schema) in self.schema().table_ids() {
            for row in self.store.table(id).iter() {
                sum.add(|hasher| {
                    std::hash::Hasher::write_u16(hasher, id.0);
                    for (column, _) in schema.column_ids() {
                        crate::digest::datum(row.get(column), hasher);
                    }
                });
            }
        }
        self.links.digest(&mut sum);
        self.indexes.digest(&mut sum);
        sum.add(|hasher| std::hash::Hasher::write_u64(hasher, self.position));
        sum.value()
    }
}
