//! Large transactions and large sets: what they visit and what they lead to, not how long it takes.

use std::sync::Arc;

use weir_data::{RowDelta, Schema, UuidSource};
use weir_engine::{Database, Done, Env, Outcome, execute};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"db","tables":{
  "Switch":{"columns":{
    "name":{"type":"string"},
    "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}},
    "indexes":[["name"]],"isRoot":true},
  "Port":{"columns":{
    "name":{"type":"string"},
    "n":{"type":"integer"},
    "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}},
    "indexes":[["name"]]}}}"#;

const MANY: usize = 100_000;

fn database() -> (Database, UuidSource) {
    let schema = Schema::parse_bytes(SCHEMA).expect("the schema");
    (Database::new(Arc::new(schema), 5), UuidSource::new([5, 6, 7, 8]))
}

fn transact(db: &mut Database, uuids: &mut UuidSource, operations: &str) -> Done {
    let array = validate(operations.as_bytes()).expect("operations");
    let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
    let mut env = Env::new(uuids);
    match execute(db, &operations, &mut env) {
        Outcome::Done(done) => done,
        Outcome::Wait { .. } | Outcome::TooLong { .. } => panic!("it waits"),
    }
}

fn array(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

/// A port and its name in the set of ports, as three operations.
fn add_port(n: usize) -> String {
    format!(
        r#"{{"op":"insert","table":"Port","row":{{"name":"p{n}","ids":["map",[["vif","v{n}"]]]}},"uuid-name":"p{n}"}},
           {{"op":"mutate","table":"Switch","where":[["name","==","s"]],"mutations":[["ports","insert",["named-uuid","p{n}"]]]}},
           {{"op":"wait","table":"Port","where":[["name","==","p{n}"]],"columns":["n"],"until":"==","rows":[{{"n":0}}],"timeout":0}}"#
    )
}

const ADD_SWITCH: &str = r#"[{"op":"insert","table":"Switch","row":{"name":"s"}}]"#;

#[test]
fn a_transaction_of_a_hundred_thousand_operations_finds_its_own_rows_one_by_one() {
    let (mut db, mut uuids) = database();
    transact(&mut db, &mut uuids, ADD_SWITCH);
    let ports = MANY / 3;
    let done = transact(&mut db, &mut uuids, &array((0..ports).map(add_port)));
    let reply = validate(&done.reply).expect("the reply");
    assert_eq!(reply.elements().expect("an array").count(), 3 * ports);
    let delta = done.delta.expect("a change");
    assert_eq!(delta.rows().count(), ports + 1);
    assert_eq!(done.work.by_index, 2 * ports as u64);
    assert_eq!(done.work.scans, 0);
    // The switch each time, and each new port; a few of the first rows more than once.
    assert!(done.work.rows_visited < 2 * ports as u64 + 100, "{:?}", done.work);
}

#[test]
fn a_port_added_to_many_is_a_change_of_one_element() {
    let (mut db, mut uuids) = database();
    transact(&mut db, &mut uuids, ADD_SWITCH);
    transact(&mut db, &mut uuids, &array((0..MANY / 3).map(add_port)));
    let done = transact(&mut db, &mut uuids, &array([add_port(MANY)].into_iter()));
    // The switch, and the port itself.
    assert_eq!((done.work.rows_visited, done.work.scans), (2, 0));
    let delta = done.delta.expect("a change");
    let mut rows = delta.rows().map(|(_, _, row)| row);
    let Some(RowDelta::Modify(columns)) = rows.find(|row| matches!(row, RowDelta::Modify(_)))
    else {
        panic!("the switch is not modified: {delta:?}");
    };
    let ports = columns.iter().find(|delta| delta.column.0 == 3).expect("its ports");
    assert_eq!((ports.change.added().count(), ports.change.removed().count()), (1, 0));
}

#[test]
fn a_set_of_a_hundred_thousand_elements() {
    let (mut db, mut uuids) = database();
    transact(&mut db, &mut uuids, ADD_SWITCH);
    let tag = |n: usize| format!(r#""tag-{}""#, n * 7919 % MANY);
    let all = array((0..MANY).map(tag));
    let mutate = |what: &str, tags: &str| {
        format!(
            r#"[{{"op":"mutate","table":"Switch","where":[["name","==","s"]],"mutations":[["tags","{what}",["set",{tags}]]]}}]"#
        )
    };
    let added = |done: &Done| {
        let delta = done.delta.as_ref().expect("a change");
        let change = |row: &RowDelta| {
            let RowDelta::Modify(columns) = row else { return (0, 0) };
            let of = |delta: &weir_data::ColumnDelta| {
                (delta.change.added().count(), delta.change.removed().count())
            };
            columns.iter().map(of).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        delta.rows().map(|(_, _, row)| change(row)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    // Besides the tags, `_version` is replaced.
    let done = transact(&mut db, &mut uuids, &mutate("insert", &all));
    assert_eq!(added(&done), (MANY + 1, 1));
    assert!(transact(&mut db, &mut uuids, &mutate("insert", &all)).delta.is_none());
    let done = transact(&mut db, &mut uuids, &mutate("delete", r#"["tag-5","tag-99999","none"]"#));
    assert_eq!(added(&done), (1, 3));
    let update = format!(
        r#"[{{"op":"update","table":"Switch","where":[],"row":{{"tags":["set",{all}]}}}},
            {{"op":"select","table":"Switch","where":[["tags","includes",["set",{all}]]],"columns":["name"]}}]"#
    );
    let done = transact(&mut db, &mut uuids, &update);
    assert_eq!(added(&done), (3, 1));
    assert!(done.reply.ends_with(br#"{"rows":[{"name":"s"}]}]"#));
}
