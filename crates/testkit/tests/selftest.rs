//! The harness itself: it must find what is wrong, and say the same for the same seed.

use serde_json::json;
use weir_testkit::differential::pair::{Finding, Pair};
use weir_testkit::files;
use weir_testkit::generate::{Generator, Schema};
use weir_testkit::normalise::{Correspondence, number_uuids};
use weir_testkit::process::{Program, Scratch, Server, reference};
use weir_testkit::rng::Rng;

/// The reference on both sides, or None after saying why the test is skipped.
fn twins(test: &str) -> Option<(Program, Program)> {
    let Some(reference) = reference() else {
        println!("SKIP {test}: the reference server is not installed");
        return None;
    };
    Some((reference.clone(), reference))
}

/// Runs transactions of some seeds against a B whose schema `spoil` has changed; true when found.
fn is_found(programs: &(Program, Program), spoil: fn(&mut Schema) -> bool) -> bool {
    for seed in 100..130 {
        let mut rng = Rng::new(seed);
        let schema = Schema::generate(&mut rng);
        let mut spoiled = schema.clone();
        if !spoil(&mut spoiled) {
            continue;
        }
        let mut pair = Pair::start_apart(programs, &schema, &spoiled).expect("two servers");
        let mut generator = Generator::new(schema, rng);
        for _ in 0..30 {
            let batch: Vec<_> = (0..10).map(|_| generator.transaction()).collect();
            let outcome = pair.exchange(&batch).and_then(|_| pair.dump());
            match outcome {
                Ok(dump) => generator.observe(dump),
                Err(Finding::Difference(_)) => return true,
                Err(_) => break,
            }
        }
    }
    false
}

#[test]
fn a_missing_index_is_found() {
    let Some(programs) = twins("a missing index") else { return };
    assert!(is_found(&programs, |schema| {
        let table = schema.tables.iter_mut().find(|table| !table.indexes.is_empty());
        table.map(|table| table.indexes.clear()).is_some()
    }));
}

#[test]
fn a_missing_row_limit_is_found() {
    let Some(programs) = twins("a missing row limit") else { return };
    assert!(is_found(&programs, |schema| {
        let table = schema.tables.iter_mut().find(|table| table.max_rows.is_some());
        table.map(|table| table.max_rows = None).is_some()
    }));
}

#[test]
fn a_missing_constraint_is_found() {
    let Some(programs) = twins("a missing constraint") else { return };
    assert!(is_found(&programs, |schema| {
        let mut columns = schema.tables.iter_mut().flat_map(|table| &mut table.columns);
        let column = columns.find(|column| !column.key.constraints.is_empty());
        column.map(|column| column.key.constraints.clear()).is_some()
    }));
}

#[test]
fn a_weak_reference_taken_for_a_strong_one_is_found() {
    let Some(programs) = twins("a weak reference") else { return };
    assert!(is_found(&programs, |schema| {
        let mut columns = schema.tables.iter_mut().flat_map(|table| &mut table.columns);
        let weak = columns.find_map(|column| column.key.reference.as_mut().filter(|one| !one.1));
        weak.map(|(_, strong)| *strong = true).is_some()
    }));
}

#[test]
fn a_root_table_taken_for_another_is_found() {
    let Some(programs) = twins("a root table") else { return };
    assert!(is_found(&programs, |schema| {
        let roots = schema.tables.iter().filter(|table| table.is_root).count();
        let table = schema.tables.iter_mut().find(|table| table.is_root);
        roots > 1 && table.map(|table| table.is_root = false).is_some()
    }));
}

#[test]
fn an_immutable_column_taken_for_a_mutable_one_is_found() {
    let Some(programs) = twins("an immutable column") else { return };
    assert!(is_found(&programs, |schema| {
        let mut columns = schema.tables.iter_mut().flat_map(|table| &mut table.columns);
        let fixed = columns.find(|column| !column.mutable && column.key.reference.is_none());
        fixed.map(|column| column.mutable = true).is_some()
    }));
}

#[test]
fn a_seed_means_the_same_every_time() {
    for seed in 0..20 {
        let draw = || {
            let mut rng = Rng::new(seed);
            let schema = Schema::generate(&mut rng);
            let text = schema.json().to_string();
            let mut generator = Generator::new(schema, rng);
            let ops: Vec<_> = (0..50).map(|_| generator.transaction()).collect();
            (text, json!(ops).to_string())
        };
        assert_eq!(draw(), draw(), "seed {seed}");
    }
}

#[test]
fn generated_schemas_are_read_back() {
    for seed in 0..50 {
        let schema = Schema::generate(&mut Rng::new(seed));
        assert_eq!(Schema::parse(&schema.json()).json(), schema.json(), "seed {seed}");
    }
}

#[test]
fn generated_schemas_are_accepted() {
    let Some((reference, _)) = twins("generated schemas") else { return };
    let scratch = Scratch::new("schemas");
    let server = Server::start_with(&reference, &[], &["--no-dbs"]).expect("the server starts");
    for seed in 0..200 {
        let file = scratch.file(&seed.to_string());
        let schema = Schema::generate(&mut Rng::new(seed));
        files::create(&file, &schema.json()).expect("a file");
        server.admin("ovsdb-server/add-db", &[&file.display().to_string()]).expect("it is taken");
        server.admin("ovsdb-server/remove-db", &[&schema.name]).expect("it goes");
    }
}

const U: [&str; 4] = [
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "33333333-3333-4333-8333-333333333333",
    "44444444-4444-4444-8444-444444444444",
];

#[test]
fn uuids_correspond_one_to_one() {
    let mut known = Correspondence::default();
    assert!(known.learn(U[0], U[1]));
    assert!(known.learn(U[0], U[1]), "the same again");
    assert!(!known.learn(U[0], U[2]), "A's name is taken");
    assert!(!known.learn(U[2], U[1]), "B's name is taken");
    assert_eq!(known.for_b(&format!("x{}y", U[0])), format!("x{}y", U[1]));
    assert_eq!(known.from_b(U[1]), U[0]);
    known.give(U[3]);
    assert!(!known.learn(U[3], U[2]), "what was given is the same on both sides");
}

#[test]
fn rows_compare_in_any_order_and_values_do_not() {
    let mut known = Correspondence::default();
    let a = json!({"rows": [{"n": 1}, {"n": 2}]});
    let b = json!({"rows": [{"n": 2}, {"n": 1}]});
    assert!(known.compare(&a, &b, false).is_ok());
    assert!(known.compare(&a, &b, true).is_err());
    assert!(known.compare(&json!(["set", [1, 2]]), &json!(["set", [2, 1]]), false).is_err());
    assert!(known.compare(&json!({"n": 1}), &json!({"n": 1, "m": 2}), false).is_err());
    assert!(known.compare(&json!({"n": 1}), &json!({"n": 1.5}), false).is_err());
}

#[test]
fn unknown_uuids_must_pair_up() {
    let mut known = Correspondence::default();
    let text = |x: &str, y: &str| json!({"details": format!("{x} and {y}")});
    assert!(known.compare(&text(U[0], U[0]), &text(U[1], U[1]), false).is_ok());
    assert!(known.compare(&text(U[0], U[0]), &text(U[1], U[2]), false).is_err());
    known.give(U[0]);
    assert!(known.compare(&text(U[0], U[0]), &text(U[1], U[1]), false).is_err());
}

#[test]
fn versions_change_on_both_sides_or_on_neither() {
    let mut known = Correspondence::default();
    known.give(U[3]);
    let row = |version: &str| json!({"_uuid": ["uuid", U[3]], "_version": ["uuid", version]});
    assert!(known.compare(&row(U[0]), &row(U[1]), false).is_ok());
    assert!(known.compare(&row(U[0]), &row(U[1]), false).is_ok());
    assert!(known.compare(&row(U[0]), &row(U[2]), false).is_err());
}

#[test]
fn uuids_are_numbered_by_first_appearance() {
    let mut seen = vec![];
    let text = format!("{} {} {}", U[1], U[0], U[1]);
    assert_eq!(number_uuids(&text, &mut seen), "<0> <1> <0>");
    assert_eq!(number_uuids(U[0], &mut seen), "<1>");
}
