//! Whatever a server does meanwhile, and whenever connections end: the rows of a replica are, at
//! every moment, all rows that match the conditions which were told to hold, of one state of the
//! server, and these states are in order. In the end they are the rows that are there, under the
//! conditions that were wanted last.

mod owner;
mod server;

use std::cell::Cell;

use owner::{Owner, Wishes};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use server::Kind;
use weir_json::Value;
use weir_upstream::follower::Condition;

#[derive(Clone, Debug)]
enum Step {
    /// A row of `T` or `U` gets these values, or goes.
    Commit {
        in_u: bool,
        row: u8,
        values: Option<[i64; 3]>,
    },
    /// The server tells what has changed.
    Flush,
    /// The server answers so many requests.
    Serve(u8),
    /// The owner hears so many messages.
    Hear(u8),
    Want(Wishes),
    /// The connection ends.
    Lose,
    /// The next connection is to this server.
    Next(Kind),
    /// Time passes.
    Tick,
    /// So much time that it has rows.
    Follow,
    /// The server forgets what has changed.
    Forget,
    /// The database gets or loses a column and a table.
    Convert {
        has_z: bool,
        has_u: bool,
    },
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Ours),
        4 => Just(Kind::Packaged),
        1 => Just(Kind::Standalone),
        1 => Just(Kind::Old),
        1 => Just(Kind::Oldest),
    ]
}

fn clause(columns: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let than = prop_oneof![20 => (0..3_i64).prop_map(Value::from), 1 => Just(Value::from("text"))];
    let function = prop::sample::select(&["==", "<"][..]);
    let column = prop::sample::select(columns);
    let clause = (column, function, than).prop_map(|(column, function, than)| {
        Value::Array(vec![column.into(), function.into(), than])
    });
    prop_oneof![10 => clause, 1 => any::<bool>().prop_map(Value::from)]
}

fn condition(columns: &'static [&'static str]) -> impl Strategy<Value = Condition> {
    let any = prop::collection::vec(clause(columns), 0..3).prop_map(Condition::Any);
    prop_oneof![1 => Just(Condition::All), 6 => any]
}

fn wishes() -> impl Strategy<Value = Wishes> {
    let of_t =
        condition(&["x", "x", "y", "y", "z"]).prop_map(|condition| ("T".to_owned(), condition));
    let of_u = condition(&["x"]).prop_map(|condition| ("U".to_owned(), condition));
    let of_w = condition(&["x"]).prop_map(|condition| ("W".to_owned(), condition));
    prop::collection::vec(prop_oneof![6 => of_t, 2 => of_u, 1 => of_w], 1..3)
        .prop_map(|wishes| wishes.into_iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let values = prop::option::weighted(0.8, [0..3_i64, 0..3, 0..3]);
    prop_oneof![
        8 => (prop::bool::weighted(0.2), 0..4_u8, values)
            .prop_map(|(in_u, row, values)| Step::Commit { in_u, row, values }),
        4 => Just(Step::Flush),
        5 => (1..4_u8).prop_map(Step::Serve),
        5 => (1..4_u8).prop_map(Step::Hear),
        6 => wishes().prop_map(Step::Want),
        2 => Just(Step::Lose),
        2 => kind().prop_map(Step::Next),
        2 => Just(Step::Tick),
        3 => Just(Step::Follow),
        1 => Just(Step::Forget),
        1 => any::<[bool; 2]>().prop_map(|[has_z, has_u]| Step::Convert { has_z, has_u }),
    ]
}

fn take(owner: &mut Owner, step: &Step) {
    match step {
        Step::Commit { in_u, row, values } => owner.server.commit(|state| {
            let table = if *in_u { "U" } else { "T" };
            let key =
                (table.to_owned(), format!("{:08}-0000-4000-8000-{:012}", u8::from(*in_u), row));
            let columns = state.columns(table);
            match values {
                _ if columns.is_empty() => {}
                None => _ = state.rows.remove(&key),
                Some(values) => {
                    let values = columns.iter().zip(values).filter(|(_, value)| **value != 0);
                    let row = values.map(|(name, value)| ((*name).to_owned(), *value)).collect();
                    state.rows.insert(key, row);
                }
            }
        }),
        Step::Flush => owner.server.flush(),
        Step::Serve(n) => (0..*n).for_each(|_| owner.serve()),
        Step::Hear(n) => (0..*n).for_each(|_| owner.hear()),
        Step::Want(wishes) => owner.want(wishes.clone()),
        Step::Lose => owner.lose(),
        Step::Next(kind) => owner.next_kind = *kind,
        Step::Tick => owner.tick(),
        Step::Follow => owner.follow(),
        Step::Forget => owner.server.forget(),
        Step::Convert { has_z, has_u } => {
            if !owner.server.convert(*has_z, *has_u) {
                owner.lose();
            }
        }
    }
}

#[test]
fn rows_are_those_of_the_conditions_that_hold() {
    let config =
        ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() };
    let (resumed, refused, silent) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let (gone_back, reached) = (Cell::new(0), Cell::new(0));
    let strategy = (kind(), prop::collection::vec(step(), 1..200));
    let run = TestRunner::new(config).run(&strategy, |(kind, steps)| {
        let mut owner = Owner::new(kind);
        for step in &steps {
            take(&mut owner, step);
        }
        owner.settle();
        let add = |cell: &Cell<usize>, n: usize| cell.set(cell.get() + n);
        add(&resumed, owner.server.resumed);
        add(&refused, owner.server.refused);
        add(&silent, owner.server.silent);
        add(&gone_back, owner.gone_back);
        add(&reached, owner.reached);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    let counts = [&resumed, &refused, &silent, &gone_back, &reached].map(Cell::get);
    println!("resumed, refused, silent, gone back, reached: {counts:?}");
    assert!(counts.iter().all(|count| *count >= 20), "{counts:?}");
}
