//! What a log keeps and finds, rule by rule.

mod world;

use std::thread;

use weir_data::delta::{Change, TableDelta};
use weir_data::{ColumnDelta, Delta, IdKind, Ids, RowDelta, Schema, TableId, Uuid};
use weir_history::{
    BUDGET_BYTES_MAX, BUDGET_BYTES_MIN, Counts, History, Name, Place, Record, budget_of,
};

use world::{Random, Rows, delta_between, schema};

const KINDS: [IdKind; 2] = [IdKind::Recorded, IdKind::Volatile];

/// A log that is told of random changes.
struct World {
    log: History,
    random: Random,
    rows: Rows,
    schema: Schema,
}

impl World {
    fn new() -> Self {
        let schema = schema(false);
        let log = History::new([1; 20], schema.tables.len(), BUDGET_BYTES_MIN, 5);
        Self { log, random: Random::new(1), rows: Rows::new(), schema }
    }

    fn keeping(kind: IdKind) -> Self {
        let mut world = Self::new();
        world.log.keep(kind);
        world
    }

    fn delta(&mut self) -> Delta {
        let next = self.random.step(&self.rows, &self.schema, false);
        let delta = delta_between(&self.rows, &next, &self.schema);
        self.rows = next;
        delta
    }

    fn push(&mut self) -> Ids {
        let is_marked = self.log.is_kept(IdKind::Recorded);
        self.push_as(is_marked)
    }

    fn push_as(&mut self, is_marked: bool) -> Ids {
        let (delta, record) = (self.delta(), self.random.record(is_marked));
        self.log.push(Some(&delta), &self.schema, Some(record));
        self.log.ids()
    }

    fn finds(&self, ids: Ids) -> [bool; 2] {
        let find = |id, kind| self.log.find(id, kind, [TableId(0), TableId(2)].into_iter());
        [find(ids.recorded, KINDS[0]).is_some(), find(ids.volatile, KINDS[1]).is_some()]
    }
}

#[test]
fn nothing_is_kept_before_somebody_asks() {
    let mut world = World::new();
    let first = world.push();
    let second = world.push();
    assert_eq!(world.log.counts(), Counts::default());
    assert_eq!((world.finds(first), world.finds(second)), ([false; 2], [true; 2]));
    world.log.keep(IdKind::Recorded);
    let third = world.push();
    assert_eq!(world.finds(second), [true, false], "volatile changes are not kept");
    assert_eq!(world.finds(third), [true; 2]);
    world.log.keep(IdKind::Volatile);
    world.push();
    assert_eq!((world.finds(second), world.finds(third)), ([true, false], [true; 2]));
}

#[test]
fn who_keeps_volatile_changes_keeps_recorded_ones() {
    let world = World::keeping(IdKind::Volatile);
    assert!(KINDS.iter().all(|kind| world.log.is_kept(*kind)));
}

#[test]
fn a_record_without_a_mark_is_a_barrier_and_so_is_one_that_was_not_taken_apart() {
    let mut world = World::keeping(IdKind::Volatile);
    let before = world.push();
    let barrier = world.push_as(false);
    let after = world.push();
    assert_eq!(
        [before, barrier, after].map(|ids| world.finds(ids)),
        [[false; 2], [true; 2], [true; 2]]
    );
    assert_eq!(world.log.low_water(), barrier.recorded);
    let record = world.random.record(true);
    world.log.push(None, &world.schema, Some(record));
    assert_eq!((world.finds(after), world.finds(world.log.ids())), ([false; 2], [true; 2]));
    assert_eq!(world.log.counts(), Counts::default());
}

#[test]
fn a_disabled_log_has_no_ids_and_remembers_nothing_when_it_is_enabled_again() {
    let mut world = World::keeping(IdKind::Volatile);
    let before = world.push();
    world.log.disable();
    assert_eq!((world.log.ids(), world.log.low_water()), (Ids::default(), Uuid::ZERO));
    world.log.keep(IdKind::Volatile);
    assert!(!world.log.is_enabled() && KINDS.iter().all(|kind| !world.log.is_kept(*kind)));
    assert!(world.log.is_dormant(before.recorded) && !world.log.is_dormant(before.volatile));
    assert_eq!(world.push(), Ids::default());
    assert!(!world.log.is_dormant(before.recorded), "the next process meets a barrier");
    assert_eq!((world.finds(before), world.finds(Ids::default())), ([false; 2], [false; 2]));
    assert!(world.log.since(world.log.place(), IdKind::Recorded).is_none());
    assert!(!world.log.image().is_kept());
    world.log.enable();
    let here = world.log.ids();
    assert_eq!((world.finds(before), world.finds(here)), ([false; 2], [true; 2]));
    assert!(!world.log.is_kept(IdKind::Recorded));
    // The ids are those of the file all the same.
    let mut other = World::keeping(IdKind::Recorded);
    (0..2).for_each(|_| _ = other.push());
    assert_eq!(here.recorded, other.log.ids().recorded);
}

#[test]
fn what_costs_more_than_the_budget_goes_with_all_before_it() {
    let mut world = World::keeping(IdKind::Recorded);
    let before = world.push();
    let delta = world.delta();
    let body_len = BUDGET_BYTES_MIN as u64;
    let record = Record { name: Name::Hash([3; 20]), body_len, is_marked: true };
    world.log.push(Some(&delta), &world.schema, Some(record));
    let here = world.log.ids();
    assert_eq!((world.finds(before)[0], world.finds(here)[0]), (false, true));
    assert_eq!(world.log.counts(), Counts::default());
    world.push();
    assert!(world.finds(here)[0]);
}

/// A budget that an entry needs to the byte. A loader does not see what is not kept in the file, so
/// that must not count.
#[test]
fn what_costs_just_the_budget_stays_whatever_else_the_change_has() {
    let schema = schema(false);
    let (row, column) = (Uuid::from_u128(1), schema.tables[0].column_id("ei").unwrap());
    let insert = weir_data::Row::new(row, row, &schema.tables[0]);
    let [old, new] = [0, 1].map(|i| weir_data::Datum::One(weir_data::Atom::Integer(i)));
    let change = ColumnDelta { column, change: Change::Replace { old, new } };
    let rows = |table, rows| TableDelta { table: TableId(table), rows };
    let delta = Delta {
        tables: vec![
            rows(0, vec![(row, RowDelta::Insert(insert))]),
            rows(1, vec![(row, RowDelta::Modify(vec![change]))]),
        ],
    };
    let record = Record { name: Name::Hash([3; 20]), body_len: 0, is_marked: true };
    let changes = |budget| {
        let mut log = History::new([1; 20], schema.tables.len(), budget, 5);
        log.push(Some(&delta), &schema, Some(record));
        log.push(Some(&delta), &schema, Some(record));
        (log.counts().changes, log.counts().bytes)
    };
    // Before each entry stand 32 bytes, which do not count; 64 others do.
    let cost = changes(BUDGET_BYTES_MAX).1 / 2 - 32 + 64;
    assert_eq!([2 * cost, 2 * cost - 1, cost, cost - 1].map(|b| changes(b).0), [2, 1, 1, 0]);
}

#[test]
fn nothing_goes_while_a_file_is_written_whose_budget_may_be_larger() {
    let mut world = World::keeping(IdKind::Recorded);
    let first = world.push();
    let image = world.log.image();
    assert!(image.is_kept());
    let delta = world.delta();
    let record =
        |hash| Record { name: Name::Hash([hash; 20]), body_len: 700 << 10, is_marked: true };
    for hash in 0..3 {
        world.log.push(Some(&delta), &world.schema, Some(record(hash)));
    }
    assert!(world.finds(first)[0]);
    world.log.set_budget(budget_of(0));
    assert_eq!((world.finds(first)[0], world.log.counts().changes), (false, 1));
}

#[test]
fn a_budget_is_the_length_of_the_snapshot_within_limits() {
    let budgets = [0, 2 << 20, u64::MAX].map(budget_of);
    assert_eq!(budgets, [BUDGET_BYTES_MIN, 2 << 20, BUDGET_BYTES_MAX]);
}

#[test]
fn a_reader_has_the_changes_up_to_its_place_whatever_comes_later() {
    let mut world = World::keeping(IdKind::Volatile);
    world.log.set_budget(BUDGET_BYTES_MAX);
    (0..300).for_each(|_| _ = world.push());
    let changes = KINDS.map(|kind| world.log.since(Place(200), kind).unwrap());
    let schema = world.schema.clone();
    let count = move |changes: &weir_history::Changes| changes.deltas(&schema).count();
    let others = changes.clone();
    let reader = thread::spawn(move || others.map(|changes| count(&changes)));
    (0..300).for_each(|_| _ = world.push());
    world.log.disable();
    assert_eq!(reader.join().unwrap(), [100; 2]);
    assert!(changes.iter().all(|changes| changes.bytes() > 0 && !changes.is_empty()));
}
