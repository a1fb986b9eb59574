//! Snapshots that other threads read, change copies of, and drop, while the store goes on.
//!
//! A reader that met a change would see it in the digest. `cargo xtask miri` and
//! `cargo xtask tsan` run the same scenarios and see every access that nothing orders.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use weir_data::delta::{ColumnDelta, TableDelta};
use weir_data::sorted::{CHUNK_MAX, FLAT_MAX, Sorted};
use weir_data::store::PAGE_ROWS;
use weir_data::{
    Atom, ColumnId, Datum, Delta, Row, RowDelta, Schema, Snapshot, Store, TableId, Uuid, UuidSource,
};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{"T":{"columns":{
  "name":{"type":"string"},
  "pairs":{"type":{"key":"integer","value":"string","min":0,"max":"unlimited"}},
  "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;
const TABLE: TableId = TableId(0);
const NAME: ColumnId = ColumnId(2);
const PAIRS: ColumnId = ColumnId(3);
const TAGS: ColumnId = ColumnId(4);

/// The row with the big set.
const BIG: Uuid = Uuid::from_u128(1);

/// An interpreter takes a thousand times as long.
const fn size(under_miri: usize, otherwise: usize) -> usize {
    if cfg!(miri) { under_miri } else { otherwise }
}

const ROWS: usize = size(PAGE_ROWS + 2, 8 * PAGE_ROWS);
/// Of them, those that go at once.
const LEAVING: usize = size(30, 4 * PAGE_ROWS);
/// Of the big set: several chunks, and several nodes where there is time for that.
const ELEMENTS: usize = size(CHUNK_MAX, 200 * CHUNK_MAX);
const SNAPSHOTS: usize = size(2, 12);
const STEPS: usize = size(8, 200);
/// More than a chunk has room for, so that it is split, and merged when they go.
const RUN: usize = size(CHUNK_MAX / 4 + 10, CHUNK_MAX + 10);
const READERS: u64 = 2;
/// Snapshots that wait for a reader, at most: the writer goes on while they are read.
const WAITING_MAX: usize = 4;

/// A snapshot, and what it held when it was taken.
struct Taken {
    snapshot: Snapshot,
    digest: u64,
}

fn digest<'a>(rows: impl Iterator<Item = &'a Row>) -> u64 {
    let mut hasher = foldhash::fast::FixedState::with_seed(1).build_hasher();
    for row in rows {
        hasher.write_u128(row.uuid().to_u128());
        for column in [NAME, PAIRS, TAGS] {
            hasher.write_usize(row.get(column).len());
            for (key, value) in row.get(column).entries() {
                key.hash_into(&mut hasher);
                if let Some(value) = value {
                    value.hash_into(&mut hasher);
                }
            }
        }
    }
    hasher.finish()
}

/// Too long to be kept in place: shared between rows and snapshots.
fn text(n: u64) -> Atom {
    Atom::string(&format!("a string that is shared, number {n:012}"))
}

/// Changes a store at random.
struct Writer {
    store: Store,
    random: UuidSource,
    /// Rows that are there, but for the big one.
    known: Vec<Uuid>,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let schema = Arc::new(Schema::parse_bytes(SCHEMA).expect("the schema"));
        let store = Store::new(Arc::clone(&schema), seed);
        let random = UuidSource::new([seed, 2, 3, 4]);
        let mut writer = Self { store, random, known: Vec::new() };
        // Even numbers: the odd ones come later, between them.
        let tags = (0..ELEMENTS as u64).map(|n| text(2 * n)).collect();
        let tags = Datum::set(Sorted::from_sorted(tags));
        let big = Row::with_values(BIG, BIG, &schema.tables[0], [(TAGS, tags)]);
        writer.store.insert(TABLE, big);
        while writer.known.len() < ROWS {
            writer.insert();
        }
        writer
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() >> 8) as usize % n
    }

    fn new_row(&mut self) -> Row {
        let uuid = self.random.next_uuid();
        let name = Datum::One(text(self.random.next_u64()));
        Row::with_values(uuid, uuid, &self.store.schema().tables[0], [(NAME, name)])
    }

    fn insert(&mut self) {
        let row = self.new_row();
        self.known.push(row.uuid());
        self.store.insert(TABLE, row);
    }

    fn step(&mut self) {
        let at = self.below(self.known.len());
        let (uuid, n) = (self.known[at], self.below(2 * FLAT_MAX) as u64);
        match self.below(8) {
            0 => self.insert(),
            1 => {
                self.known.swap_remove(at);
                self.store.remove(TABLE, uuid);
            }
            2 => self.edit(uuid, NAME, |name| *name = Datum::One(text(n))),
            3 => self.edit(uuid, PAIRS, |pairs| {
                if pairs.map_remove(Atom::Integer(n as i64).as_ref()).is_none() {
                    pairs.map_insert(Atom::Integer(n as i64), text(n));
                }
            }),
            // Sets grow from nothing to one element, to a flat run, to a tree, and back.
            4 => self.edit(uuid, TAGS, |tags| {
                (0..n).for_each(|n| _ = tags.set_insert(text(n)));
            }),
            5 => self.edit(uuid, TAGS, |tags| {
                (0..n).for_each(|n| _ = tags.set_remove(text(n).as_ref()));
            }),
            6 => self.forth_and_back(uuid),
            _ => {
                let tag = text(2 * self.below(ELEMENTS) as u64 + 1);
                self.edit(BIG, TAGS, |tags| _ = tags.set_insert(tag));
            }
        }
    }

    fn edit(&mut self, uuid: Uuid, column: ColumnId, edit: impl FnOnce(&mut Datum)) {
        self.store.edit(TABLE, uuid, column, edit);
    }

    /// A transaction that is undone: one row new, one changed, one deleted.
    fn forth_and_back(&mut self, changed: Uuid) {
        let new = self.new_row();
        let old = self.store.get(TABLE, changed).expect("a known row").clone();
        let mut row = old.clone();
        *row.get_mut(NAME) = new.datum(NAME).clone();
        row.get_mut(TAGS).set_insert(text(99));
        let columns = ColumnDelta::between(&old, &row, &self.store.schema().tables[0]);
        let mut rows = vec![(new.uuid(), RowDelta::Insert(new))];
        let at = self.below(self.known.len());
        match self.known[at] {
            deleted if deleted != changed => {
                let row = self.store.get(TABLE, deleted).expect("a known row").clone();
                rows.push((deleted, RowDelta::Delete(row)));
            }
            _ => {}
        }
        rows.push((changed, RowDelta::Modify(columns)));
        let delta = Delta { tables: vec![TableDelta { table: TABLE, rows }] };
        self.store.apply(&delta);
        self.store.apply(&delta.inverse());
        assert_eq!(self.store.get(TABLE, changed), Some(&old));
    }

    /// Splits a chunk of the big set by a run of new elements, or merges it again.
    fn swell(&mut self, swells: bool) {
        let first = 2 * (ELEMENTS as u64 / 2);
        let more = (0..RUN as u64).map(|n| Atom::string(&format!("{}{n:05}", name_of(first))));
        self.edit(BIG, TAGS, |tags| {
            tags.set_remove(text(first + 4).as_ref());
            for tag in more {
                assert!(if swells {
                    tags.set_insert(tag)
                } else {
                    tags.set_remove(tag.as_ref()).is_some()
                });
            }
        });
    }

    fn take(&self) -> Taken {
        Taken { snapshot: self.store.snapshot(), digest: digest(self.store.table(TABLE).iter()) }
    }
}

fn name_of(n: u64) -> String {
    text(n).as_ref().as_str().unwrap_or_default().to_owned()
}

/// Reads what it is sent, changes copies, and drops each a while after the writer has.
fn read(taken: &Receiver<Taken>, seed: u64) -> usize {
    let (mut n_read, mut kept) = (0, None);
    for Taken { snapshot, digest: expected } in taken {
        assert_eq!(digest(snapshot.rows(TABLE)), expected);
        // A copy is a store of its own, whose edits nobody else sees.
        let mut copy = Writer {
            store: snapshot.to_store(&[TABLE], seed),
            random: UuidSource::new([seed, 5, 6, n_read as u64]),
            known: snapshot.rows(TABLE).map(Row::uuid).filter(|uuid| *uuid != BIG).collect(),
        };
        for step in 0..STEPS {
            // Places of rows that were removed are not known to a copy.
            if step % 4 == 0 { copy.forth_and_back(copy.known[0]) } else { copy.step() }
        }
        let atoms = copy.store.table(TABLE).iter().map(Row::atoms).sum();
        assert_eq!(copy.store.atoms(), atoms);
        drop(copy);
        // Rows outlive their snapshot.
        let rows: Vec<Row> = snapshot.rows(TABLE).cloned().collect();
        if n_read % 2 == 0 {
            drop(snapshot);
            assert_eq!(digest(rows.iter()), expected);
        } else {
            assert_eq!(digest(snapshot.rows(TABLE)), expected);
            kept = Some(snapshot);
        }
        n_read += 1;
    }
    drop(kept);
    n_read
}

#[test]
fn a_snapshot_stays_what_it_was_while_the_store_goes_on() {
    let mut writer = Writer::new(7);
    thread::scope(|scope| {
        let (senders, readers): (Vec<_>, Vec<_>) = (0..READERS)
            .map(|seed| {
                let (sender, taken) = sync_channel(WAITING_MAX);
                (sender, scope.spawn(move || read(&taken, seed)))
            })
            .unzip();
        for round in 0..SNAPSHOTS {
            let Taken { snapshot, digest } = writer.take();
            for sender in &senders {
                let snapshot = snapshot.clone();
                sender.send(Taken { snapshot, digest }).expect("a reader has found a change");
            }
            drop(snapshot);
            writer.swell(round % 2 == 0);
            (0..STEPS).for_each(|_| writer.step());
        }
        drop(senders);
        for reader in readers {
            assert_eq!(reader.join().expect("a reader"), SNAPSHOTS);
        }
    });
}

#[test]
fn whoever_drops_a_row_last_frees_it() {
    let mut writer = Writer::new(8);
    for _ in 0..size(1, 12) {
        let Taken { snapshot, digest: expected } = writer.take();
        thread::scope(|scope| {
            for _ in 0..READERS {
                let snapshot = snapshot.clone();
                scope.spawn(move || assert_eq!(digest(snapshot.rows(TABLE)), expected));
            }
            drop(snapshot);
            // Rows leave the store, and others come, while the readers end one by one.
            for uuid in writer.known.split_off(ROWS - LEAVING) {
                writer.store.remove(TABLE, uuid);
            }
            (0..LEAVING).for_each(|_| writer.insert());
        });
    }
    assert_eq!(writer.store.table(TABLE).len(), ROWS + 1);
}
