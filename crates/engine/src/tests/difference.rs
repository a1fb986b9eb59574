//! A database that takes over the rows of another one, of which it lacks some transactions.

use weir_data::{Delta, Row, TableId, UuidSource};

use super::follow::take_versions;
use super::world::{self, Random};
use crate::commit::commit;
use crate::database::Database;
use crate::difference::{Difference, take_over};
use crate::transaction::Transaction;

/// Schemas tried, and on each so many times some transactions that one side misses.
const SCHEMAS: u64 = 100;
const TIMES: usize = 15;
const MISSED: u64 = 6;

/// All rows of a database, in an order of their own, as another server sends them.
fn rows(of: &Database, random: &mut Random) -> Vec<(TableId, Row)> {
    let mut rows = Vec::new();
    for (table, schema) in of.schema().table_ids() {
        for row in of.store().table(table).iter() {
            let values = schema.data_columns().map(|(column, _)| (column, row.datum(column)));
            let values = values.map(|(column, value)| (column, value.clone()));
            rows.push((table, Row::with_values(row.uuid(), random.0.next_uuid(), schema, values)));
        }
    }
    for at in (1..rows.len()).rev() {
        rows.swap(at, random.below(at as u64 + 1) as usize);
    }
    rows
}

fn compare(with: &Database, rows: Vec<(TableId, Row)>) -> Result<Delta, weir_data::Error> {
    let mut difference = Difference::new(&with.snapshot(), 7);
    rows.into_iter().try_for_each(|(table, row)| difference.row(table, row))?;
    difference.end()
}

/// How many rows are not the same on both sides.
fn differing(one: &Database, other: &Database) -> usize {
    let mut count = 0;
    for (table, schema) in one.schema().table_ids() {
        let missing = |in_: &Database, row: &Row| in_.store().get(table, row.uuid()).is_none();
        count += other.store().table(table).iter().filter(|row| missing(one, row)).count();
        for row in one.store().table(table).iter() {
            let is_same = other.store().get(table, row.uuid()).is_some_and(|other| {
                schema.data_columns().all(|(column, _)| row.datum(column) == other.datum(column))
            });
            count += usize::from(!is_same);
        }
    }
    count
}

#[test]
fn what_differs_is_found_and_taken_over() {
    let mut changed = 0;
    for seed in 1..=SCHEMAS {
        let mut random = Random::new(seed);
        let schema = world::schema(&mut random);
        println!("seed {seed}: {schema}");
        let mut leader = Database::new(schema.clone(), seed);
        let mut follower = Database::new(schema, seed);
        for _ in 0..TIMES {
            for _ in 0..random.below(MISSED) {
                let operations = world::operations(&mut random, leader.store());
                let mut txn = Transaction::new(&mut leader);
                operations.iter().for_each(|operation| world::run(&mut txn, operation));
                let _ = commit(txn, &mut random.0);
            }
            let before = follower.state_hash();
            let rows = rows(&leader, &mut random);
            let difference = compare(&follower, rows.clone()).unwrap();
            assert_eq!(difference.rows().count(), differing(&leader, &follower));
            if let Some(one) = rows.first() {
                let twice = [rows.clone(), vec![one.clone()]].concat();
                assert!(compare(&follower, twice).is_err());
            }
            let mut uuids = UuidSource::new([random.below(1000), 7, 8, 9]);
            let delta = take_over(&mut follower, difference, &mut uuids).unwrap();
            let after = follower.state_hash();
            if !delta.is_empty() {
                follower.revert(&delta);
                assert_eq!(follower.state_hash(), before);
                follower.apply(&delta);
                assert_eq!(follower.state_hash(), after);
            }
            take_versions(&mut follower, &leader);
            assert_eq!(follower.state_hash(), leader.state_hash(), "{delta:?}");
            changed += delta.rows().count();
        }
    }
    assert!(changed > 1_000, "only {changed} rows changed");
}
