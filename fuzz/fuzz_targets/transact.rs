//! Any operations are executed or refused: an error or a wait leaves no trace, a change can be
//! undone and made again, and the file tells the same database as memory. A line is a transaction,
//! the array of its operations.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_data::{Delta, Schema, UuidSource};
use weir_engine::{Database, Done, Env, Outcome, execute};
use weir_json::{Kind, Text, validate};
use weir_log::standalone::{Replayer, write_schema, write_transaction};

const SEED: u64 = 7;

/// References of both kinds, every type, an index, garbage and limits.
const SCHEMA: &[u8] = br#"{"name":"D","tables":{
"T":{"isRoot":true,"maxRows":4,"indexes":[["n"]],"columns":{
  "n":{"type":"string"},"i":{"type":{"key":{"type":"integer","minInteger":-9,"maxInteger":9},"min":0,"max":3}},
  "r":{"type":{"key":"real","min":0,"max":"unlimited"}},"b":{"type":"boolean","mutable":false},
  "e":{"type":{"key":{"type":"string","enum":["set",["x","y"]]},"min":0,"max":1}},
  "m":{"type":{"key":"string","value":"integer","min":0,"max":"unlimited"}},
  "w":{"type":{"key":{"type":"uuid","refTable":"C","refType":"weak"},"min":0,"max":"unlimited"}},
  "c":{"type":{"key":{"type":"uuid","refTable":"C"},"min":0,"max":2}}}},
"C":{"columns":{"s":{"type":{"key":{"type":"string","maxLength":3},"min":0,"max":1}},
  "v":{"type":{"key":"string","value":{"type":"uuid","refTable":"C"},"min":0,"max":"unlimited"}}}}}}"#;

/// What there is to begin with.
const FIRST: &[u8] = br#"[{"op":"insert","table":"T","uuid":"00000000-0000-0000-0000-000000000001",
"row":{"n":"a","i":["set",[1,2]],"m":["map",[["k",1]]],"c":["named-uuid","c"]}},
{"op":"insert","table":"C","uuid-name":"c","row":{"s":"abc"}}]"#;

fn run(db: &mut Database, uuids: &mut UuidSource, operations: Text<'_>) -> Option<Done> {
    let operations: Vec<Text<'_>> = operations.elements()?.collect();
    let mut env = Env { has_lock: &|lock| lock == "mine", ..Env::new(uuids) };
    match execute(db, &operations, &mut env) {
        Outcome::Done(done) => Some(done),
        Outcome::Wait { .. } | Outcome::TooLong { .. } => None,
    }
}

/// The reply is an array whose last element alone may be an error.
fn has_error(reply: &[u8]) -> bool {
    let reply = validate(reply).expect("a reply is JSON");
    let results: Vec<Text<'_>> = reply.elements().expect("an array").collect();
    let is_error = |result: &Text<'_>| {
        let mut members = result.members().into_iter().flatten();
        members.any(|(name, _)| name.as_ref() == b"error")
    };
    let first = results.iter().position(is_error);
    if let Some(at) = first {
        let is_null = |result: &Text<'_>| result.kind() == Kind::Null;
        assert!(results[at + 1..].iter().all(is_null), "something ran after an error");
    }
    first.is_some()
}

/// Undone and made again.
fn there_and_back(db: &mut Database, delta: &Delta, before: u64) {
    let after = db.state_hash();
    db.revert(delta);
    assert_eq!(db.state_hash(), before, "a revert leaves something");
    db.apply(delta);
    assert_eq!(db.state_hash(), after, "made again it is another");
}

/// A database read from the file is the same, but for how many transactions it took.
fn replays(db: &Database, file: &[u8]) {
    let mut replayer = Replayer::new("db", SEED);
    replayer.feed(file).expect("what is written is read");
    let loaded = replayer.finish().expect("what is written is a database");
    assert_eq!(loaded.warning, None);
    let loaded = Database::from_store(loaded.store, SEED).expect("it was checked before");
    let schema = db.schema();
    for (table, columns) in schema.table_ids() {
        let (ours, theirs) = (db.store().table(table), loaded.store().table(table));
        assert_eq!(ours.len(), theirs.len(), "rows of {}", columns.name);
        for row in ours.iter() {
            let same = theirs.get(row.uuid()).expect("the row is in the file");
            for (column, _) in columns.data_columns() {
                assert_eq!(row.get(column).to_datum(), same.get(column).to_datum());
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let schema = Schema::parse_bytes(SCHEMA).expect("a schema");
    let mut file = Vec::new();
    write_schema(&mut file, &schema);
    let mut db = Database::new(Arc::new(schema), SEED);
    let mut uuids = UuidSource::new([1, 2, 3, 4]);
    for line in std::iter::once(FIRST).chain(input.split(|byte| *byte == b'\n')) {
        let Ok(operations) = validate(line) else { continue };
        if operations.kind() != Kind::Array {
            continue;
        }
        let before = db.state_hash();
        let done = run(&mut db, &mut uuids, operations);
        let is_error = done.as_ref().is_some_and(|done| has_error(&done.reply));
        match done.and_then(|done| done.delta) {
            None => assert_eq!(db.state_hash(), before, "a trace without a change"),
            Some(delta) => {
                assert!(!is_error, "an error changed something");
                there_and_back(&mut db, &delta, before);
                write_transaction(&mut file, &delta, db.store(), 1, None);
            }
        }
    }
    replays(&db, &file);
});
