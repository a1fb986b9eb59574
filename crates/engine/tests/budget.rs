//! Requests that cost more than they may leave no trace, wherever they are stopped; and a request
//! that only reads gets the same from a snapshot as from the database.

use std::sync::Arc;

use weir_data::{Schema, Snapshot, UuidSource};
use weir_engine::{Database, Env, Outcome, execute, is_read_only, read};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"db","tables":{
  "Root":{"columns":{
    "name":{"type":"string"},
    "leaves":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}},
    "weak":{"type":{"key":{"type":"uuid","refTable":"Leaf","refType":"weak"},"min":0,"max":"unlimited"}},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "numbers":{"type":{"key":"integer","min":0,"max":"unlimited"}}},
    "indexes":[["name"]],"isRoot":true},
  "Leaf":{"columns":{
    "n":{"type":"integer"},
    "next":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":1}}}}}}"#;

/// Roots `r0`, `r1`...; each holds a chain of three leaves, and all leaves weakly.
fn database() -> Database {
    let schema = Schema::parse_bytes(SCHEMA).unwrap();
    let mut db = Database::new(Arc::new(schema), 5);
    for i in 0..10 {
        let leaf = |at: usize, next: &str| {
            format!(
                r#"{{"op":"insert","table":"Leaf","uuid-name":"l{at}","row":{{"n":{at}{next}}}}}"#
            )
        };
        let operations = [
            leaf(2, ""),
            leaf(1, r#","next":["named-uuid","l2"]"#),
            leaf(0, r#","next":["named-uuid","l1"]"#),
            format!(
                r#"{{"op":"insert","table":"Root","row":{{"name":"r{i}","tags":["set",["a","b"]],
                "leaves":["named-uuid","l0"],"weak":["set",[["named-uuid","l1"],["named-uuid","l2"]]]}}}}"#
            ),
        ];
        let outcome = run(&mut db, &format!("[{}]", operations.join(",")), i + 1, u64::MAX);
        assert!(matches!(outcome, Outcome::Done(done) if done.delta.is_some()));
    }
    db
}

fn run(db: &mut Database, operations: &str, seed: u64, budget: u64) -> Outcome {
    with_env(operations, seed, budget, |operations, env| execute(db, operations, env))
}

fn with_env<T>(
    operations: &str,
    seed: u64,
    budget: u64,
    run: impl FnOnce(&[Text<'_>], &mut Env<'_>) -> T,
) -> T {
    let text = validate(operations.as_bytes()).unwrap();
    let operations: Vec<Text<'_>> = text.elements().unwrap().collect();
    let mut uuids = UuidSource::new([seed, 2, 3, 4]);
    let mut env = Env { budget, ..Env::new(&mut uuids) };
    run(&operations, &mut env)
}

/// What a request ends with: the reply, or that it waits.
fn end(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done(done) => String::from_utf8(done.reply).unwrap(),
        other => format!("{other:?}"),
    }
}

#[test]
fn wherever_the_budget_ends_nothing_is_left() {
    let requests = [
        r#"[{"op":"insert","table":"Root","row":{"name":"new","tags":["set",["x","y","z"]]}},
            {"op":"update","table":"Root","where":[],"row":{"tags":["set",["a","c"]]}}]"#,
        // A cascade: roots, the leaves they hold, and the weak references to those.
        r#"[{"op":"delete","table":"Root","where":[["name","!=","r0"]]}]"#,
        r#"[{"op":"mutate","table":"Root","where":[],"mutations":[["leaves","delete",["uuid","00000000-0000-0000-0000-000000000000"]],["tags","insert","q"]]},
            {"op":"update","table":"Root","where":[["name","==","r3"]],"row":{"leaves":["set",[]]}}]"#,
        r#"[{"op":"select","table":"Root","where":[]},{"op":"update","table":"Leaf","where":[],"row":{"n":7}}]"#,
    ];
    for request in requests {
        let mut db = database();
        let before = db.state_hash();
        let mut stopped = 0;
        for budget in 0.. {
            let outcome = run(&mut db, request, 77, budget);
            if !matches!(outcome, Outcome::TooLong { .. }) {
                let mut other = database();
                let expected = end(run(&mut other, request, 77, u64::MAX));
                assert_eq!(end(outcome), expected);
                assert_eq!(db.state_hash(), other.state_hash());
                break;
            }
            assert_eq!(db.state_hash(), before, "budget {budget} of {request}");
            stopped += 1;
        }
        assert!(stopped > 300, "{stopped} of {request}");
    }
}

#[test]
fn a_scan_is_refused_before_it_begins() {
    let mut db = database();
    let scan = r#"[{"op":"select","table":"Root","where":[["tags","includes","a"]]}]"#;
    assert!(matches!(run(&mut db, scan, 1, 25), Outcome::TooLong { .. }));
    let lookup =
        r#"[{"op":"select","table":"Root","where":[["name","==","r1"]],"columns":["name"]}]"#;
    let outcome = run(&mut db, lookup, 1, 60);
    assert!(
        matches!(outcome, Outcome::Done(done) if done.cost <= 60 && done.work.rows_visited == 1)
    );
}

#[test]
fn what_is_done_to_a_big_set_is_refused_before_it_begins() {
    let mut db = database();
    let numbers: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let set = format!(r#"["set",[{}]]"#, numbers.join(","));
    let fill =
        format!(r#"[{{"op":"update","table":"Root","where":[],"row":{{"numbers":{set}}}}}]"#);
    assert!(matches!(run(&mut db, &fill, 1, u64::MAX), Outcome::Done(_)));
    let (empty, tripled) =
        (r#""row":{"numbers":["set",[]]}"#, r#""mutations":[["numbers","*=",3]]"#);
    for (op, name, change) in [("update", "r4", empty), ("mutate", "r5", tripled)] {
        let before = db.state_hash();
        let one = format!(
            r#"[{{"op":"{op}","table":"Root","where":[["name","==","{name}"]],{change}}}]"#
        );
        let outcome = run(&mut db, &one, 1, 1000);
        assert!(
            matches!(outcome, Outcome::TooLong { cost } if cost < 200),
            "{op} was begun: {outcome:?}"
        );
        assert_eq!(db.state_hash(), before);
        let outcome = run(&mut db, &one, 1, 10_000);
        assert!(matches!(&outcome, Outcome::Done(done) if done.cost > 3000), "{outcome:?}");
    }
}

/// As JSON, a set of so many integers from `first` on.
fn numbers(first: usize, count: usize) -> String {
    let numbers: Vec<String> = (first..first + count).map(|n| n.to_string()).collect();
    format!(r#"["set",[{}]]"#, numbers.join(","))
}

/// A database whose roots have a thousand numbers each, all the same.
fn database_of_big_sets() -> Database {
    let mut db = database();
    let row = format!(r#"{{"numbers":{}}}"#, numbers(0, 1000));
    let fill = format!(r#"[{{"op":"update","table":"Root","where":[],"row":{row}}}]"#);
    assert!(matches!(run(&mut db, &fill, 1, u64::MAX), Outcome::Done(_)));
    db
}

#[test]
fn what_is_compared_with_a_big_set_is_paid_for_before() {
    let mut db = database_of_big_sets();
    for (function, value) in [
        ("excludes", numbers(1000, 1000)),
        ("includes", numbers(0, 1000)),
        ("==", numbers(0, 1000)),
        ("!=", numbers(0, 1000)),
    ] {
        for op in [r#""select","columns":["name"]"#, r#""delete""#] {
            let condition = format!(r#"["numbers","{function}",{value}]"#);
            let scan = format!(r#"[{{"op":{op},"table":"Root","where":[{condition}]}}]"#);
            let text = scan.len() as u64 / 16;
            let outcome = run(&mut db, &scan, 1, text + 500);
            assert!(
                matches!(outcome, Outcome::TooLong { cost } if cost < text + 100),
                "{function} was begun: {} units",
                outcome.cost()
            );
        }
    }
    // What is known by another clause is looked at alone.
    let one = format!(
        r#"[{{"op":"select","table":"Root","columns":["name"],
             "where":[["name","==","r4"],["numbers","excludes",{}]]}}]"#,
        numbers(1000, 1000)
    );
    let outcome = run(&mut db, &one, 1, 2_000);
    assert!(matches!(outcome, Outcome::Done(done) if done.cost > 500));
}

#[test]
fn big_sets_that_are_brought_into_order_are_paid_for_before() {
    let mut db = database_of_big_sets();
    let rows = format!(r#""rows":[{{"numbers":{}}}],"until":"==","timeout":0"#, numbers(0, 1000));
    for (op, how) in [
        ("select", r#""columns":["numbers"]"#),
        ("select", r#""columns":["name"],"sort":["numbers"]"#),
        ("select", r#""columns":["name"],"order_by":[["numbers","desc"]]"#),
        ("wait", &format!(r#""columns":["numbers"],{rows}"#)),
    ] {
        let request = format!(r#"[{{"op":"{op}","table":"Root","where":[],{how}}}]"#);
        let text = request.len() as u64 / 16;
        let outcome = run(&mut db, &request, 1, text + 1_000);
        assert!(
            matches!(outcome, Outcome::TooLong { cost } if cost < text + 200),
            "{how} was begun: {} units",
            outcome.cost()
        );
    }
    // One row is compared with no other.
    let one = r#"[{"op":"select","table":"Root","where":[["name","==","r1"]],"sort":["numbers"],
                   "columns":["name"]}]"#;
    assert!(matches!(run(&mut db, one, 1, 100), Outcome::Done(_)));
}

#[test]
fn a_long_set_is_not_written_in_vain() {
    let mut db = database_of_big_sets();
    let one = r#"[{"op":"select","table":"Root","where":[["name","==","r1"]],
                   "columns":["numbers"]}]"#;
    let outcome = run(&mut db, one, 1, 100);
    assert!(matches!(outcome, Outcome::TooLong { cost } if cost <= 100), "{outcome:?}");
    // Nothing is counted twice.
    let Outcome::Done(done) = run(&mut db, one, 1, 1_000) else { panic!("it is not that long") };
    assert!(done.cost < done.reply.len() as u64 / 16 + 50, "{} units", done.cost);
}

#[test]
fn a_snapshot_answers_like_the_database() {
    let mut db = database();
    let requests = [
        r#"[{"op":"select","table":"Root","where":[]},{"op":"comment","comment":"c"}]"#,
        r#"[{"op":"select","table":"Root","where":[["name","==","r4"]]},{"op":"select","table":"Leaf","where":[["n",">=",1]],"columns":["n"]}]"#,
        r#"[{"op":"select","table":"Leaf","where":[["_uuid","==",["uuid","00000000-0000-0000-0000-000000000000"]]]},{"op":"assert","lock":"l"}]"#,
        r#"[{"op":"wait","table":"Root","where":[["name","==","r1"]],"columns":["tags"],"until":"!=","rows":[{"tags":["set",["a","b"]]}],"timeout":9}]"#,
        r#"[{"op":"wait","table":"Root","where":[["name","==","r1"]],"columns":["tags"],"until":"==","rows":[{"tags":["set",["b","a"]]}]},{"op":"abort"}]"#,
        r#"[{"op":"select","table":"Nowhere","where":[]}]"#,
        r#"[{"op":"nonsense"},7]"#,
        "[]",
    ];
    let snapshot = db.snapshot();
    for request in requests {
        let expected = end(run(&mut db, request, 1, u64::MAX));
        assert_eq!(read_on(&snapshot, request), expected, "{request}");
    }
    // What comes later is not in it.
    let all = r#"[{"op":"select","table":"Root","where":[]}]"#;
    let before = end(run(&mut db, all, 1, u64::MAX));
    run(&mut db, r#"[{"op":"delete","table":"Root","where":[["name","==","r4"]]}]"#, 1, u64::MAX);
    assert_ne!(end(run(&mut db, all, 1, u64::MAX)), before);
    assert_eq!(read_on(&snapshot, all), before);
}

fn read_on(snapshot: &Snapshot, request: &str) -> String {
    with_env(request, 1, u64::MAX, |operations, env| {
        assert!(is_read_only(operations));
        end(read(snapshot, operations, env, 9))
    })
}

#[test]
fn whatever_writes_is_no_reader() {
    for (request, expected) in [
        (r#"[{"op":"select"},{"op":"delete"}]"#, false),
        (r#"[{"op":"commit","durable":true}]"#, false),
        (r#"[{"op":"select","op":"insert"}]"#, false),
        (r#"[{"op":"wait"},{"op":"abort"},{"op":"comment"},{"op":"assert"}]"#, true),
    ] {
        let text = validate(request.as_bytes()).unwrap();
        let operations: Vec<Text<'_>> = text.elements().unwrap().collect();
        assert_eq!(is_read_only(&operations), expected, "{request}");
    }
}

#[test]
fn a_short_request_does_not_have_results_without_end() {
    let mut db = database();
    let name = "x".repeat(8 << 20);
    let insert = format!(r#"[{{"op":"insert","table":"Root","row":{{"name":"{name}"}}}}]"#);
    run(&mut db, &insert, 90, u64::MAX);
    let select = r#"{"op":"select","table":"Root","where":[],"columns":["name"]}"#;
    let update = r#"{"op":"update","table":"Leaf","where":[],"row":{"n":77}}"#;
    let request = format!("[{update},{}]", vec![select; 40].join(","));
    let reply = end(run(&mut db, &request, 91, u64::MAX));
    assert!(reply.len() < 160 << 20, "{}", reply.len());
    let error = &reply[reply.len() - 300..];
    assert!(error.contains(r#""error":"resources exhausted""#), "{error}");
    // Nothing of the request is left.
    let found = r#"[{"op":"select","table":"Leaf","where":[["n","==",77]]}]"#;
    assert_eq!(end(run(&mut db, found, 92, u64::MAX)), r#"[{"rows":[]}]"#);
}

/// Each row would have it in the record of the change.
#[test]
fn a_long_string_does_not_go_to_all_rows() {
    let mut db = database();
    let root = |i| format!(r#"{{"op":"insert","table":"Root","row":{{"name":"r{i}"}}}}"#);
    let roots: Vec<String> = (10..210).map(root).collect();
    run(&mut db, &format!("[{}]", roots.join(",")), 90, u64::MAX);
    let update = |bytes: usize| {
        let tag = "x".repeat(bytes);
        format!(r#"[{{"op":"update","table":"Root","where":[],"row":{{"tags":"{tag}"}}}}]"#)
    };
    let before = db.state_hash();
    let reply = end(run(&mut db, &update(6 << 20), 91, u64::MAX));
    assert!(reply.contains(r#""error":"resources exhausted""#), "{reply}");
    assert_eq!(db.state_hash(), before);
    assert_eq!(end(run(&mut db, &update(4 << 20), 92, u64::MAX)), r#"[{"count":210}]"#);
}
