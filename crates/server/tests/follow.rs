//! A transaction goes from one server's tables to another's as the text that a cluster's log has.

use std::sync::Arc;

use weir_data::{Schema, Store, UuidSource};
use weir_engine::{Database, Env, Outcome, execute, follow};
use weir_json::{Text, validate};
use weir_log::clustered::{Data, DataText};
use weir_log::standalone::{Decoder, Form, write_transaction_json};

const SCHEMA: &[u8] = br#"{"name":"db","tables":{
  "Root":{"columns":{
    "name":{"type":"string"},
    "n":{"type":{"key":"integer","min":0,"max":1}},
    "few":{"type":{"key":"integer","min":1,"max":3}},
    "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "to":{"type":{"key":"integer","value":{"type":"uuid","refTable":"Leaf","refType":"weak"},
      "min":0,"max":"unlimited"}},
    "leaves":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}}},
    "indexes":[["name"]],"isRoot":true},
  "Leaf":{"columns":{"n":{"type":"integer"},"text":{"type":"string"}}}}}"#;

const ROUNDS: usize = 3000;

struct Random(UuidSource);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        (self.0.next_u64() >> 3) % n
    }

    fn pick(&mut self, choices: &[&str]) -> String {
        choices[self.below(choices.len() as u64) as usize].to_owned()
    }
}

fn operation(random: &mut Random, at: usize) -> String {
    let (name, n) = (random.below(12), random.below(6));
    let found = format!(r#""table":"Root","where":[["name","==","r{name}"]]"#);
    let ids = format!(r#"["map",[["k{n}","v\u00e9\n{name}"],["j",""]]]"#);
    let few = random.pick(&["0", r#"["set",[1,2,3]]"#, r#"["set",[0,7]]"#, "5"]);
    match random.below(10) {
        0..3 => format!(
            r#"{{"op":"insert","table":"Leaf","uuid-name":"l{at}","row":{{"n":{n},"text":"a\"b"}}}},
               {{"op":"insert","table":"Root","row":{{"name":"r{name}","few":{few},"ids":{ids},
                "leaves":["named-uuid","l{at}"],"to":["map",[[{n},["named-uuid","l{at}"]]]]}}}}"#
        ),
        3 => format!(r#"{{"op":"delete",{found}}}"#),
        4 => format!(r#"{{"op":"update",{found},"row":{{"n":{n},"few":{few}}}}}"#),
        5 => format!(r#"{{"op":"update",{found},"row":{{"ids":{ids},"n":["set",[]]}}}}"#),
        6 => format!(r#"{{"op":"mutate",{found},"mutations":[["ids","insert",{ids}]]}}"#),
        7 => format!(r#"{{"op":"mutate",{found},"mutations":[["ids","delete","j"]]}}"#),
        8 => format!(r#"{{"op":"update",{found},"row":{{"leaves":["set",[]]}}}}"#),
        _ => format!(
            r#"{{"op":"insert","table":"Leaf","uuid-name":"m{at}","row":{{"n":{n}}}}},
               {{"op":"mutate",{found},"mutations":[["leaves","insert",["named-uuid","m{at}"]],
                ["few","insert",{n}]]}}"#
        ),
    }
}

/// All rows, but for their versions.
fn rows(store: &Store) -> Vec<String> {
    let mut rows = Vec::new();
    for (table, schema) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            let mut text = format!("{} {}", schema.name, row.uuid()).into_bytes();
            for (column, schema) in schema.data_columns() {
                text.push(b' ');
                row.get(column).write(&schema.ty, &mut text);
            }
            rows.push(String::from_utf8(text).unwrap());
        }
    }
    rows.sort();
    rows
}

/// Executes operations; the text of what they changed.
fn lead(db: &mut Database, operations: &str, seed: u64, form: Form) -> Option<Vec<u8>> {
    let text = format!("[{operations}]");
    let text = validate(text.as_bytes()).unwrap();
    let operations: Vec<Text<'_>> = text.elements().unwrap().collect();
    let mut uuids = UuidSource::new([seed, 2, 3, 4]);
    let outcome = execute(db, &operations, &mut Env::new(&mut uuids));
    let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
    let delta = done.delta?;
    let mut transaction = vec![];
    let store = db.store();
    write_transaction_json(form, &mut transaction, &delta, store, 5, done.comment.as_deref())
        .then_some(())?;
    let mut data = vec![];
    DataText::Pair { schema: None, transaction: Some(&transaction) }.write(&mut data);
    Some(data)
}

#[test]
fn a_text_makes_another_database_the_same() {
    let schema = Arc::new(Schema::parse_bytes(SCHEMA).unwrap());
    let mut leader = Database::new(Arc::clone(&schema), 5);
    let mut follower = Database::new(Arc::clone(&schema), 5);
    let mut decoder = Decoder::new(&schema);
    let mut random = Random(UuidSource::new([1, 2, 3, 4]));
    let mut followed = 0;
    for round in 0..ROUNDS {
        let operations: Vec<String> =
            (0..=random.below(4) as usize).map(|at| operation(&mut random, at)).collect();
        let form = if random.below(3) == 0 { Form::Whole } else { Form::Difference };
        let data = lead(&mut leader, &operations.join(","), round as u64, form);
        if let Some(data) = data {
            let data = Data::parse(weir_json::validate_value(&data).unwrap()).unwrap();
            let text = data.transaction.unwrap();
            let edits = decoder.decode(text, follower.store(), &mut random.0).unwrap();
            let delta = follow(&mut follower, edits, &mut random.0).unwrap();
            assert!(!delta.is_empty());
            followed += 1;
        }
        assert_eq!(rows(leader.store()), rows(follower.store()), "round {round}");
        // Counts, links and indexes: those of a database made of the same rows.
        if round % 100 == 0 {
            let rebuilt = follower.snapshot().to_store(&all(&schema), 5);
            let mut rebuilt = Database::from_store(rebuilt, 5).unwrap();
            for _ in 0..follower.position() {
                rebuilt.apply(&weir_data::Delta::default());
            }
            assert_eq!(rebuilt.state_hash(), follower.state_hash());
        }
    }
    assert!(followed > ROUNDS / 3, "only {followed}");
}

fn all(schema: &Schema) -> Vec<weir_data::TableId> {
    schema.table_ids().map(|(table, _)| table).collect()
}
