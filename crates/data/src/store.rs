//! Rows by table and UUID, in copy-on-write pages.
//!
//! A [`Snapshot`] shares the pages: taking one of a million rows copies four thousand pointers.
//! Afterwards the first change to a page, a row, or a chunk of a big set copies just that.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::datum::Datum;
use crate::delta::{Change, Delta, RowDelta};
use crate::row::{Row, datum_atoms};
use crate::schema::{ColumnId, Schema, TableId};
use crate::uuid::Uuid;

/// Rows in a page: what a change copies that a snapshot still holds.
pub const PAGE_ROWS: usize = 256;

type Page = Arc<Vec<Option<Row>>>;

/// Free room of a table or an index, in entries, that is kept whatever there is in it.
pub const SPARE_MIN: usize = 1024;

/// An index with room for so many times what is in it is made smaller when the server idles.
pub const SPARE_SHARE: usize = 4;

/// Where a row is in its table: stable while the row lives, reused afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    const fn page(self) -> usize {
        self.0 as usize / PAGE_ROWS
    }

    const fn row(self) -> usize {
        self.0 as usize % PAGE_ROWS
    }
}

/// The rows of one table.
#[derive(Debug)]
pub struct Table {
    pages: Vec<Page>,
    n_rows: usize,
    /// Rows by the hash of their UUID; the UUID itself is in the row.
    slots: HashTable<IndexEntry>,
    hasher: FixedState,
    free: Vec<Slot>,
}

/// A row's entry in the index by UUID.
#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    slot: Slot,
    /// Half of the UUID's hash: growing the index must not visit the rows.
    hash: u32,
}

impl IndexEntry {
    /// The hash that the index goes by: its high bits tell neighbours apart, its low ones choose
    /// the neighbourhood.
    const fn hash(&self) -> u64 {
        (self.hash as u64) << 32 | self.hash as u64
    }
}

/// All rows of a database.
#[derive(Debug)]
pub struct Store {
    schema: Arc<Schema>,
    tables: Vec<Table>,
    atoms: usize,
}

/// All rows as they were at one moment; cheap to take, safe to read on another thread.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: Arc<Schema>,
    tables: Vec<Pages>,
    atoms: usize,
}

/// The rows of one table in a snapshot.
#[derive(Clone, Debug, Default)]
struct Pages {
    pages: Vec<Page>,
    n_rows: usize,
}

impl Table {
    fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self { pages: Vec::new(), n_rows: 0, slots: HashTable::new(), hasher, free: Vec::new() }
    }

    /// Number of rows of the table.
    pub fn len(&self) -> usize {
        self.n_rows
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.n_rows == 0
    }

    /// The slot of the row called `uuid`.
    pub fn slot(&self, uuid: Uuid) -> Option<Slot> {
        let wanted = IndexEntry { slot: Slot(0), hash: self.hash(uuid) };
        let is_it = |entry: &IndexEntry| {
            entry.hash == wanted.hash && self.at(entry.slot).is_some_and(|row| row.uuid() == uuid)
        };
        self.slots.find(wanted.hash(), is_it).map(|entry| entry.slot)
    }

    fn hash(&self, uuid: Uuid) -> u32 {
        (self.hasher.hash_one(uuid) >> 32) as u32
    }

    /// A short name of the row called `uuid`, whether or not the table has it: the same in whatever
    /// slot the row is. Two rows may share one.
    pub fn row_number(&self, uuid: Uuid) -> u32 {
        self.hash(uuid)
    }

    /// The slots of the rows with this [`Table::row_number`]: nearly always one.
    pub fn slots_of_number(&self, number: u32) -> impl Iterator<Item = Slot> {
        let wanted = IndexEntry { slot: Slot(0), hash: number };
        let found = self.slots.iter_hash(wanted.hash());
        found.filter(move |entry| entry.hash == number).map(|entry| entry.slot)
    }

    /// The row in a slot.
    pub fn at(&self, slot: Slot) -> Option<&Row> {
        self.pages.get(slot.page())?.get(slot.row())?.as_ref()
    }

    /// The row called `uuid`.
    pub fn get(&self, uuid: Uuid) -> Option<&Row> {
        self.at(self.slot(uuid)?)
    }

    /// All rows of the table, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        rows(&self.pages)
    }

    /// The rows in so many slots that are spread over the table, be there a row in each or not: the
    /// same in tables that are the same.
    pub fn sample(&self, slots: usize) -> impl Iterator<Item = &Row> {
        /// Multiples of the golden ratio, beyond the point, lie neither side by side nor in steps.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let end = u128::from(self.slot_end().0);
        let slot = move |at: u64| (u128::from(at.wrapping_mul(GOLDEN)) * end) >> 64;
        (1..=slots as u64).filter_map(move |at| self.at(Slot(slot(at) as u32)))
    }

    /// One past the highest slot ever used: the bound for resumable scans by [`Table::at`].
    pub fn slot_end(&self) -> Slot {
        let last = self.pages.last().map_or(0, |page| page.len());
        Slot((self.pages.len().saturating_sub(1) * PAGE_ROWS + last) as u32)
    }

    fn insert(&mut self, row: Row) -> Slot {
        let uuid = row.uuid();
        let slot = self.free.pop().unwrap_or_else(|| self.slot_end());
        if slot.page() == self.pages.len() {
            self.pages.push(Arc::new(Vec::new()));
        }
        let page = Arc::make_mut(&mut self.pages[slot.page()]);
        if page.len() <= slot.row() {
            // A page that was emptied has no places any more.
            page.resize_with(slot.row() + 1, || None);
        }
        page[slot.row()] = Some(row);
        self.n_rows += 1;
        self.enter(uuid, slot);
        slot
    }

    /// Makes the row in a slot known by its UUID, which is not known yet.
    fn enter(&mut self, uuid: Uuid, slot: Slot) {
        debug_assert!(self.get(uuid).is_none(), "a UUID is that of one row {uuid}");
        let entry = IndexEntry { slot, hash: self.hash(uuid) };
        self.slots.insert_unique(entry.hash(), entry, IndexEntry::hash);
    }

    fn remove(&mut self, uuid: Uuid) -> Option<(Slot, Row)> {
        let slot = self.slot(uuid)?;
        let hash = IndexEntry { slot, hash: self.hash(uuid) }.hash();
        if let Ok(entry) = self.slots.find_entry(hash, |entry| entry.slot == slot) {
            entry.remove();
        }
        let page = Arc::make_mut(&mut self.pages[slot.page()]);
        let row = page[slot.row()].take()?;
        self.n_rows -= 1;
        self.free.push(slot);
        Some((slot, row))
    }

    /// Gives up the room of rows that are gone; the others keep their slots.
    fn shrink(&mut self) {
        if self.free.len() < SPARE_MIN {
            return;
        }
        let is_empty = |page: &Page| page.iter().all(Option::is_none);
        while self.pages.last().is_some_and(is_empty) {
            self.pages.pop();
        }
        for page in self.pages.iter_mut().filter(|page| !page.is_empty() && is_empty(page)) {
            *page = Page::default();
        }
        let end = self.slot_end();
        self.free.retain(|slot| *slot < end);
        self.free.shrink_to(2 * self.free.len());
        self.pages.shrink_to(2 * self.pages.len());
        if self.slots.capacity() > (SPARE_SHARE * self.slots.len()).max(SPARE_MIN) {
            self.slots.shrink_to(2 * self.slots.len(), IndexEntry::hash);
        }
    }

    fn to_pages(&self) -> Pages {
        Pages { pages: self.pages.clone(), n_rows: self.n_rows }
    }

    fn get_mut(&mut self, uuid: Uuid) -> Option<&mut Row> {
        let slot = self.slot(uuid)?;
        Arc::make_mut(&mut self.pages[slot.page()]).get_mut(slot.row())?.as_mut()
    }
}

fn rows(pages: &[Page]) -> impl Iterator<Item = &Row> {
    pages.iter().flat_map(|page| page.iter().flatten())
}

impl Store {
    /// An empty database; `seed` keeps clients who choose UUIDs from choosing collisions.
    pub fn new(schema: Arc<Schema>, seed: u64) -> Self {
        let tables = schema.tables.iter().map(|_| Table::new(seed)).collect();
        Self { schema, tables, atoms: 0 }
    }

    /// The schema that the rows conform to.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// One table's rows.
    pub fn table(&self, table: TableId) -> &Table {
        &self.tables[table.index()]
    }

    /// The row called `uuid` of a table.
    pub fn get(&self, table: TableId, uuid: Uuid) -> Option<&Row> {
        self.table(table).get(uuid)
    }

    /// Number of atoms in all rows of the database.
    pub fn atoms(&self) -> usize {
        self.atoms
    }

    /// Number of rows times columns, summed over tables.
    pub fn cells(&self) -> usize {
        self.schema.table_ids().map(|(id, t)| self.table(id).len() * t.columns.len()).sum()
    }

    /// Adds a row that is not there yet.
    pub fn insert(&mut self, table: TableId, row: Row) -> Slot {
        self.atoms += row.atoms();
        self.tables[table.index()].insert(row)
    }

    /// Removes a row; returns it with the slot that it had.
    pub fn remove(&mut self, table: TableId, uuid: Uuid) -> Option<(Slot, Row)> {
        let (slot, row) = self.tables[table.index()].remove(uuid)?;
        self.atoms -= row.atoms();
        Some((slot, row))
    }

    /// Changes one column of a row, if the row is there.
    pub fn change(&mut self, table: TableId, uuid: Uuid, column: ColumnId, change: &Change) {
        self.edit(table, uuid, column, |datum| change.apply(datum));
    }

    /// Edits one column of a row in place, if the row is there.
    pub fn edit(
        &mut self,
        table: TableId,
        uuid: Uuid,
        column: ColumnId,
        edit: impl FnOnce(&mut Datum),
    ) {
        let Some(row) = self.tables[table.index()].get_mut(uuid) else { return };
        let datum = row.get_mut(column);
        let before = datum_atoms(datum.as_ref());
        edit(datum);
        if column > ColumnId::VERSION {
            self.atoms = self.atoms + datum_atoms(datum.as_ref()) - before;
        }
    }

    /// Changes one row as a delta says.
    pub fn apply_row(&mut self, table: TableId, uuid: Uuid, delta: &RowDelta) {
        match delta {
            RowDelta::Insert(row) => {
                self.insert(table, row.clone());
            }
            RowDelta::Delete(_) => {
                self.remove(table, uuid);
            }
            RowDelta::Modify(columns) => {
                for delta in columns {
                    self.change(table, uuid, delta.column, &delta.change);
                }
            }
        }
    }

    /// Changes all rows that a delta names, as it says.
    pub fn apply(&mut self, delta: &Delta) {
        for (table, uuid, row) in delta.rows() {
            self.apply_row(table, uuid, row);
        }
    }

    /// Gives up the room of rows that are gone. Takes a look at each page, and at each row of a
    /// table that has few left.
    pub fn shrink(&mut self) {
        self.tables.iter_mut().for_each(Table::shrink);
    }

    /// The rows of one table as they are now; in the snapshot the other tables are empty.
    pub fn snapshot_of(&self, table: TableId) -> Snapshot {
        let mut tables = vec![Pages::default(); self.tables.len()];
        tables[table.index()] = self.table(table).to_pages();
        Snapshot { schema: Arc::clone(&self.schema), tables, atoms: self.atoms }
    }

    /// All rows as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let tables = self.tables.iter().map(Table::to_pages).collect();
        Snapshot { schema: Arc::clone(&self.schema), tables, atoms: self.atoms }
    }
}

impl Snapshot {
    /// The schema that the rows conform to.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Number of atoms in all rows that the database had.
    pub fn atoms(&self) -> usize {
        self.atoms
    }

    /// One table's rows, in slot order.
    pub fn rows(&self, table: TableId) -> impl Iterator<Item = &Row> {
        rows(&self.tables[table.index()].pages)
    }

    /// One table's rows from slot `slot` on, each with the number of the slot behind it.
    pub fn rows_from(&self, table: TableId, slot: u32) -> impl Iterator<Item = (u32, &Row)> {
        let (page, place) = (Slot(slot).page(), Slot(slot).row());
        let pages = self.tables[table.index()].pages.iter().enumerate().skip(page);
        pages.flat_map(move |(at, rows)| {
            let skip = if at == page { place } else { 0 };
            let rows = rows.iter().enumerate().skip(skip);
            let behind = move |place: usize| (at * PAGE_ROWS + place + 1) as u32;
            rows.filter_map(move |(place, row)| Some((behind(place), row.as_ref()?)))
        })
    }

    /// A store of these rows, in the same slots. Rows can be looked up in `tables` only: finding
    /// out where they are takes a visit to each.
    pub fn to_store(&self, tables: &[TableId], seed: u64) -> Store {
        let mut store = Store::new(Arc::clone(&self.schema), seed);
        store.atoms = self.atoms;
        for (at, (table, Pages { pages, n_rows })) in
            store.tables.iter_mut().zip(&self.tables).enumerate()
        {
            table.pages.clone_from(pages);
            table.n_rows = *n_rows;
            if !tables.iter().any(|id| id.index() == at) {
                continue;
            }
            for (at, page) in pages.iter().enumerate() {
                for (place, row) in page.iter().enumerate() {
                    if let Some(row) = row {
                        table.enter(row.uuid(), Slot((at * PAGE_ROWS + place) as u32));
                    }
                }
            }
        }
        store
    }
}
