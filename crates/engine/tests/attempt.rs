//! A transaction that ran on a snapshot and is committed behind what others committed meanwhile
//! says and does what it would have said and done there.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_data::{Schema, UuidSource};
use weir_engine::{Attempt, Database, Env, Missed, Outcome, Watcher, Word, execute};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"db","tables":{
  "Root":{"columns":{
    "name":{"type":"string"},
    "n":{"type":"integer"},
    "numbers":{"type":{"key":"integer","min":0,"max":"unlimited"}},
    "leaves":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}},
    "weak":{"type":{"key":{"type":"uuid","refTable":"Leaf","refType":"weak"},"min":0,"max":"unlimited"}},
    "other":{"type":{"key":{"type":"uuid","refTable":"Root","refType":"weak"},"min":0,"max":1}}},
    "indexes":[["name"]],"isRoot":true,"maxRows":14},
  "Leaf":{"columns":{"n":{"type":"integer"}}},
  "Other":{"columns":{"n":{"type":"integer"}},"isRoot":true}}}"#;

/// A name that an insertion may choose.
const UUIDS: [&str; 2] =
    ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"];

fn database() -> Database {
    let schema = Schema::parse_bytes(SCHEMA).unwrap();
    let mut db = Database::new(Arc::new(schema), 5);
    for i in 0..6 {
        let rows = [
            format!(r#"{{"op":"insert","table":"Leaf","uuid-name":"l","row":{{"n":{i}}}}}"#),
            format!(
                r#"{{"op":"insert","table":"Root","row":{{"name":"r{i}","n":{i},
                "leaves":["named-uuid","l"],"weak":["named-uuid","l"]}}}}"#
            ),
            format!(r#"{{"op":"insert","table":"Other","row":{{"n":{i}}}}}"#),
        ];
        let outcome = run(&rows, i + 1, |operations, env| execute(&mut db, operations, env));
        assert!(matches!(outcome, Outcome::Done(done) if done.delta.is_some()));
    }
    db
}

fn run<T>(operations: &[String], seed: u64, run: impl FnOnce(&[Text<'_>], &mut Env<'_>) -> T) -> T {
    let text = format!("[{}]", operations.join(","));
    let text = validate(text.as_bytes()).unwrap();
    let operations: Vec<Text<'_>> = text.elements().unwrap().collect();
    let mut uuids = UuidSource::new([seed, 2, 3, 4]);
    run(&operations, &mut Env::new(&mut uuids))
}

/// All rows, but for their versions, which are random.
fn rows(db: &mut Database) -> String {
    let select = |table: &str, columns: &str| {
        format!(
            r#"{{"op":"select","table":"{table}","where":[],"columns":{columns},"sort":["_uuid"]}}"#
        )
    };
    let selects = [
        select("Root", r#"["_uuid","name","n","leaves","weak","other"]"#),
        select("Leaf", r#"["_uuid","n"]"#),
        select("Other", r#"["_uuid","n"]"#),
    ];
    end(run(&selects, 1, |operations, env| execute(db, operations, env)))
}

fn end(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done(done) => without_rows(String::from_utf8(done.reply).unwrap()),
        other => format!("{other:?}"),
    }
}

/// Of several rows that break an index the two are told that lie first in the table, and where they
/// lie depends on transactions that were undone.
fn without_rows(reply: String) -> String {
    let Some((before, rows)) = reply.split_once(" First row, with UUID ") else { return reply };
    let end = rows.find('"').expect("the text ends");
    format!("{before}{}", &rows[end..])
}

fn condition() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just("[]".to_owned()),
        3 => (0..9).prop_map(|i| format!(r#"[["name","==","r{i}"]]"#)),
        3 => (0..9).prop_map(|i| format!(r#"[["n","==",{i}]]"#)),
        1 => (0..9).prop_map(|i| format!(r#"[["n",">",{i}]]"#)),
        1 => (0..2_usize).prop_map(|i| format!(r#"[["_uuid","==",["uuid","{}"]]]"#, UUIDS[i])),
    ]
}

fn operation() -> impl Strategy<Value = String> {
    let n = || 0..12_u32;
    prop_oneof![
        4 => condition().prop_map(|c| format!(
            r#"{{"op":"select","table":"Root","where":{c},"columns":["_uuid","name","n","leaves","other"],"sort":["_uuid"]}}"#
        )),
        2 => (condition(), n()).prop_map(|(c, n)| format!(
            r#"{{"op":"update","table":"Root","where":{c},"row":{{"n":{n}}}}}"#
        )),
        1 => (condition(), n()).prop_map(|(c, n)| format!(
            r#"{{"op":"update","table":"Root","where":{c},"row":{{"name":"r{n}"}}}}"#
        )),
        1 => condition().prop_map(|c| format!(
            r#"{{"op":"update","table":"Root","where":{c},"row":{{"leaves":["set",[]]}}}}"#
        )),
        2 => condition().prop_map(|c| format!(r#"{{"op":"delete","table":"Root","where":{c}}}"#)),
        2 => n().prop_map(|n| format!(
            r#"{{"op":"insert","table":"Root","row":{{"name":"r{n}","n":{n}}}}}"#
        )),
        1 => (n(), 0..2).prop_map(|(n, i)| format!(
            r#"{{"op":"insert","table":"Root","uuid-name":"x{i}","row":{{"name":"r{n}","n":{n}}}}}"#
        )),
        1 => (condition(), 0..2).prop_map(|(c, i)| format!(
            r#"{{"op":"update","table":"Root","where":{c},"row":{{"other":["named-uuid","x{i}"]}}}}"#
        )),
        1 => (condition(), n()).prop_map(|(c, n)| format!(
            r#"{{"op":"mutate","table":"Root","where":{c},"mutations":[["n","+=",{n}]]}}"#
        )),
        1 => (n(), 0..2_usize).prop_map(|(n, i)| format!(
            r#"{{"op":"insert","table":"Root","uuid":"{}","row":{{"name":"r{n}","n":{n}}}}}"#, UUIDS[i]
        )),
        1 => n().prop_map(|n| format!(r#"{{"op":"insert","table":"Other","row":{{"n":{n}}}}}"#)),
        1 => n().prop_map(|n| format!(
            r#"{{"op":"select","table":"Other","where":[["n","==",{n}]],"columns":["n"]}}"#
        )),
        1 => (condition(), n()).prop_map(|(c, n)| format!(
            r#"{{"op":"wait","table":"Root","timeout":0,"where":{c},"columns":["n"],"until":"==","rows":[{{"n":{n}}}]}}"#
        )),
    ]
}

#[derive(Debug, Default)]
struct Met {
    held: u32,
    held_in_vain: u32,
    overtaken: u32,
    changed: u32,
    /// Operations ran again, and the whole came to something or to nothing; or all must run again.
    replayed: u32,
    replayed_in_vain: u32,
    failed: u32,
}

#[test]
fn what_holds_does_what_it_would_have_done_behind_the_others() {
    let transaction = || prop::collection::vec(operation(), 1..5);
    let strategy =
        (prop::collection::vec(operation(), 1..9), prop::collection::vec(transaction(), 0..3));
    let mut runner = TestRunner::new(Config { cases: 6000, ..Config::default() });
    let mut met = Met::default();
    let met_of_case = std::cell::RefCell::new(&mut met);
    runner
        .run(&strategy, |(long, others)| {
            let (mut db, mut twin) = (database(), database());
            let snapshot = db.snapshot();
            let mut missed = Missed::default();
            for (at, other) in others.iter().enumerate() {
                let seed = 50 + at as u64;
                let outcome = run(other, seed, |ops, env| execute(&mut db, ops, env));
                if let Outcome::Done(done) = &outcome
                    && let Some(delta) = &done.delta
                {
                    missed.note(delta, db.store());
                }
                let expected = run(other, seed, |ops, env| execute(&mut twin, ops, env));
                prop_assert_eq!(end(outcome), end(expected));
            }
            let expected = run(&long, 90, |ops, env| execute(&mut twin, ops, env));
            let mut attempt =
                run(&long, 90, |ops, env| Attempt::run(&snapshot, ops, env, 7)).unwrap();
            let mut met = met_of_case.borrow_mut();
            if !attempt.compare(&missed, None) {
                met.overtaken += 1;
                return Ok(());
            }
            if !attempt.holds() {
                let before = db.state_hash();
                let outcome = run(&long, 91, |ops, env| attempt.replay(&mut db, ops, env));
                let Some(outcome) = outcome else {
                    met.failed += 1;
                    prop_assert_eq!(db.state_hash(), before);
                    return Ok(());
                };
                let has_changed = matches!(&outcome, Outcome::Done(done) if done.delta.is_some());
                met.replayed += u32::from(has_changed);
                met.replayed_in_vain += u32::from(!has_changed);
                prop_assert_eq!(end(outcome), end(expected));
                prop_assert_eq!(rows(&mut db), rows(&mut twin));
                return Ok(());
            }
            let mut uuids = UuidSource::new([91, 0, 0, 0]);
            let outcome = attempt.commit(&mut db, &mut uuids, u64::MAX, None);
            let has_changed = matches!(&outcome, Outcome::Done(done) if done.delta.is_some());
            met.held += u32::from(!missed.is_empty());
            met.held_in_vain += u32::from(!has_changed);
            met.changed += u32::from(has_changed && !missed.is_empty());
            prop_assert_eq!(end(outcome), end(expected));
            prop_assert_eq!(rows(&mut db), rows(&mut twin));
            Ok(())
        })
        .unwrap();
    let Met { held, held_in_vain, overtaken, changed, replayed, replayed_in_vain, failed } = met;
    let often = [held, held_in_vain, overtaken, changed, replayed, replayed_in_vain];
    assert!(often.into_iter().min() > Some(100) && failed > 0, "{met:?}");
}

/// A change of very many rows says which tables it concerns, and no more.
#[test]
fn a_big_change_of_a_table_that_nobody_looked_at_makes_no_difference() {
    let mut db = database();
    let snapshot = db.snapshot();
    let many: Vec<String> = (0..2000)
        .map(|n| format!(r#"{{"op":"insert","table":"Other","row":{{"n":{n}}}}}"#))
        .collect();
    let Outcome::Done(done) = run(&many, 9, |ops, env| execute(&mut db, ops, env)) else {
        panic!("it is done")
    };
    let mut missed = Missed::default();
    missed.note(&done.delta.unwrap(), db.store());
    let select = |table: &str| {
        vec![format!(r#"{{"op":"select","table":"{table}","where":[["n","==",77777]]}}"#)]
    };
    let holds = |table: &str| {
        let run = |ops: &[Text<'_>], env: &mut Env<'_>| Attempt::run(&snapshot, ops, env, 7);
        let mut attempt = self::run(&select(table), 3, run).unwrap();
        attempt.compare(&missed, None) && attempt.holds()
    };
    assert!(holds("Root"));
    assert!(!holds("Other"));
}

#[test]
fn a_change_that_costs_more_than_a_step_is_not_begun_in_one() {
    let mut db = database();
    let numbers: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let update = format!(
        r#"{{"op":"update","table":"Root","where":[["name","==","r1"]],
        "row":{{"numbers":["set",[{}]]}}}}"#,
        numbers.join(",")
    );
    let snapshot = db.snapshot();
    let run = |ops: &[Text<'_>], env: &mut Env<'_>| Attempt::run(&snapshot, ops, env, 7);
    let attempt = self::run(&[update], 3, run).unwrap();
    let before = db.state_hash();
    let mut uuids = UuidSource::new([1, 2, 3, 4]);
    let outcome = attempt.commit(&mut db, &mut uuids, 1000, None);
    assert!(matches!(outcome, Outcome::TooLong { cost: 0 }), "{outcome:?}");
    assert_eq!(db.state_hash(), before);
    let outcome = attempt.commit(&mut db, &mut uuids, 10_000, None);
    assert!(matches!(&outcome, Outcome::Done(done) if done.delta.is_some()), "{outcome:?}");
}

/// Wherever somebody says so, a transaction that is watched ends and leaves nothing.
#[test]
fn a_transaction_ends_at_its_next_step_when_nobody_waits_for_it() {
    let mut db = database();
    let before = db.state_hash();
    let updates: Vec<String> = (0..200)
        .map(|n| format!(r#"{{"op":"update","table":"Root","where":[],"row":{{"n":{n}}}}}"#))
        .collect();
    let mut run_with = |budget: u64, word: fn(u32) -> Word| {
        let asks = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = Arc::clone(&asks);
        let watcher =
            Watcher::new(move || word(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
        let outcome = run(&updates, 3, |ops, env| {
            (env.budget, env.watcher) = (budget, Some(watcher));
            execute(&mut db, ops, env)
        });
        if !matches!(outcome, Outcome::Done(_)) {
            assert_eq!(db.state_hash(), before);
        }
        (outcome, asks.load(std::sync::atomic::Ordering::Relaxed))
    };
    let (outcome, asks) = run_with(1_600, |asks| if asks < 20 { Word::GoOn } else { Word::Stop });
    assert!(matches!(outcome, Outcome::TooLong { .. }) && asks >= 21, "{outcome:?} after {asks}");
    // In a hurry the budget counts.
    let (outcome, asks) = run_with(1_600, |_| Word::Hurry);
    assert!(matches!(outcome, Outcome::TooLong { .. }) && asks >= 10, "{outcome:?} after {asks}");
    let (outcome, _) = run_with(10_000_000, |_| Word::Hurry);
    assert!(matches!(outcome, Outcome::Done(_)));
}
