//! What one database has committed, followed by another: the rows are the same, and what is derived
//! from them.

use weir_data::delta::Change;
use weir_data::{
    ColumnDelta, ColumnEdit, ColumnId, ColumnType, Datum, Delta, Edit, RowDelta, RowEdit, Store,
    TableId, Uuid, UuidSource,
};

use super::world::{self, Random};
use crate::commit::commit;
use crate::database::Database;
use crate::follow;
use crate::transaction::Transaction;

/// Transactions tried on each schema.
const TRANSACTIONS: usize = 60;
/// Schemas tried.
const SCHEMAS: u64 = 250;

/// A change as the difference that a log has of it.
fn difference(change: &Change, ty: &ColumnType) -> Datum {
    let mut text = vec![b'['];
    change.write_diff(ty, &mut text);
    text.push(b']');
    let [value] = weir_json::validate(&text).unwrap().array::<1>().unwrap();
    let any = ColumnType { n_min: 0, n_max: ColumnType::UNLIMITED, ..ty.clone() };
    Datum::parse(value, if ty.is_composite() { &any } else { ty }, None).unwrap()
}

/// What a log says of a delta that has made `store` what it is, in an order of its own.
fn edits(random: &mut Random, delta: &Delta, store: &Store) -> Vec<RowEdit> {
    let is_difference = random.percent(50);
    let column = |table: TableId, uuid: Uuid, delta: &ColumnDelta| {
        let ColumnDelta { column, change } = delta;
        let ty = &store.schema().table(table).column(*column).ty;
        let value = match is_difference {
            true => difference(change, ty),
            false => store.get(table, uuid).unwrap().datum(*column).clone(),
        };
        ColumnEdit { column: *column, value, is_difference }
    };
    let edit = |(table, uuid, row): (TableId, Uuid, &RowDelta)| {
        let edit = match row {
            RowDelta::Insert(row) => Edit::Insert(row.clone()),
            RowDelta::Delete(_) => Edit::Delete,
            RowDelta::Modify(columns) => {
                let data = columns.iter().filter(|delta| delta.column > ColumnId::VERSION);
                Edit::Modify(data.map(|delta| column(table, uuid, delta)).collect())
            }
        };
        RowEdit { table, uuid, edit }
    };
    let mut edits: Vec<RowEdit> = delta.rows().map(edit).collect();
    for at in (1..edits.len()).rev() {
        edits.swap(at, random.below(at as u64 + 1) as usize);
    }
    edits
}

/// Makes the versions and the position of a follower those of the leader.
pub(super) fn take_versions(follower: &mut Database, leader: &Database) {
    for (table, _) in leader.schema().clone().table_ids() {
        for row in leader.store().table(table).iter() {
            let version = row.datum(ColumnId::VERSION).clone();
            follower.store.edit(table, row.uuid(), ColumnId::VERSION, |datum| *datum = version);
        }
    }
    follower.position = leader.position;
}

/// Follows one transaction; answers how many rows it changed.
fn try_one(leader: &mut Database, follower: &mut Database, random: &mut Random) -> usize {
    let operations = world::operations(random, leader.store());
    let mut txn = Transaction::new(leader);
    operations.iter().for_each(|operation| world::run(&mut txn, operation));
    let Ok(delta) = commit(txn, &mut random.0) else { return 0 };
    let before = follower.state_hash();
    let edits = edits(random, &delta, leader.store());

    refuse_worse(follower, &edits, random);
    assert_eq!(follower.state_hash(), before, "a refused transaction left a trace");

    let mut uuids = UuidSource::new([random.below(1000), 7, 8, 9]);
    let followed = follow(follower, edits, &mut uuids).unwrap();
    for (table, uuid, row) in followed.rows() {
        if let RowDelta::Modify(columns) = row {
            assert!(columns.iter().all(|delta| !delta.change.is_empty()));
            assert!(columns.is_sorted_by_key(|delta| delta.column) && columns.len() > 1);
            let known = leader.store().get(table, uuid).unwrap().version();
            assert_ne!(follower.store().get(table, uuid).unwrap().version(), known);
        }
    }
    let after = follower.state_hash();
    if !followed.is_empty() {
        follower.revert(&followed);
        assert_eq!(follower.state_hash(), before, "the old values are not those that were there");
        follower.apply(&followed);
        assert_eq!(follower.state_hash(), after);
    }
    take_versions(follower, leader);
    assert_eq!(follower.state_hash(), leader.state_hash(), "{operations:?}\n{delta:?}");
    followed.rows().count()
}

/// Edits with one more that makes no sense are refused.
fn refuse_worse(follower: &mut Database, edits: &[RowEdit], random: &mut Random) {
    let Some(edit) = edits.first() else { return };
    let (table, uuid) = (edit.table, edit.uuid);
    let stranger = Uuid::from_u128(u128::MAX);
    let (worse, word) = match random.below(4) {
        0 => (edit.clone(), "twice"),
        1 => (RowEdit { table, uuid: stranger, edit: Edit::Delete }, "that does not exist"),
        2 => (RowEdit { table, uuid: stranger, edit: Edit::Modify(vec![]) }, "that does not exist"),
        _ => match follower.store().get(table, uuid).cloned() {
            Some(row) => (RowEdit { table, uuid, edit: Edit::Insert(row) }, "is there already"),
            None => return,
        },
    };
    let mut edits = edits.to_vec();
    edits.insert(random.below(edits.len() as u64 + 1) as usize, worse);
    let error = follow(follower, edits, &mut UuidSource::new([1, 2, 3, 4])).unwrap_err();
    assert!(error.to_string().contains(word), "{error}");
}

#[test]
fn a_follower_becomes_what_the_leader_is() {
    let mut changed = 0;
    for seed in 1..=SCHEMAS {
        let mut random = Random::new(seed);
        let schema = world::schema(&mut random);
        println!("seed {seed}: {schema}");
        let mut leader = Database::new(schema.clone(), seed);
        let mut follower = Database::new(schema, seed);
        for _ in 0..TRANSACTIONS {
            changed += try_one(&mut leader, &mut follower, &mut random);
        }
    }
    assert!(changed > 5_000, "only {changed} rows changed");
}
