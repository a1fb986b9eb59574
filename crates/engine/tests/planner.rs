//! Plans against scans: the same requests, once with conditions that an index serves and once with
//! conditions that say the same in a way that no index serves, have the same answers.

use std::sync::Arc;

use proptest::prelude::*;
use weir_data::{Schema, UuidSource};
use weir_engine::{Database, Done, Env, Outcome, execute};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"db","tables":{"T":{"columns":{
  "a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},
  "indexes":[["a"],["c","b"]]}}}"#;

struct Side {
    db: Database,
    uuids: UuidSource,
    visited: u64,
}

impl Side {
    fn new() -> Self {
        let schema = Schema::parse_bytes(SCHEMA).expect("the schema");
        let db = Database::new(Arc::new(schema), 3);
        Self { db, uuids: UuidSource::new([3, 1, 4, 1]), visited: 0 }
    }

    fn transact(&mut self, operations: &str) -> Done {
        let array = validate(operations.as_bytes()).expect("operations");
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
        let uuids = &mut self.uuids;
        let mut env = Env::new(uuids);
        match execute(&mut self.db, &operations, &mut env) {
            Outcome::Done(done) => {
                self.visited += done.work.rows_visited;
                done
            }
            Outcome::Wait { .. } | Outcome::TooLong { .. } => panic!("it waits"),
        }
    }
}

/// A clause and how a scan says it.
fn clause() -> impl Strategy<Value = (String, String)> {
    let column = prop_oneof![3 => Just("a"), 2 => Just("b"), 2 => Just("c")];
    (column, 0..12i64, 0..6u8).prop_map(|(column, value, which)| {
        let function = match which {
            0..=3 => "==",
            4 => "includes",
            _ => {
                let text = format!("[\"{column}\",\"!=\",{value}]");
                return (text.clone(), text);
            }
        };
        (
            format!("[\"{column}\",\"{function}\",{value}]"),
            format!("[\"{column}\",\">=\",{value}],[\"{column}\",\"<=\",{value}]"),
        )
    })
}

/// An operation, for an index and for a scan.
fn operation() -> impl Strategy<Value = (String, String)> {
    let clauses = proptest::collection::vec(clause(), 1..4);
    (0..8u8, clauses, 0..12i64, 0..4i64).prop_map(|(which, clauses, a, b)| {
        let text = |condition: Vec<&str>| {
            let condition = condition.join(",");
            let head = format!(r#""table":"T","where":[{condition}]"#);
            match which {
                0 | 1 => format!(
                    r#"{{"op":"insert","table":"T","row":{{"a":{a},"b":{b},"c":{}}}}}"#,
                    a % 5
                ),
                2 => format!(r#"{{"op":"update",{head},"row":{{"a":{a}}}}}"#),
                3 => format!(r#"{{"op":"mutate",{head},"mutations":[["b","+=",{b}]]}}"#),
                4 => format!(r#"{{"op":"delete",{head}}}"#),
                _ => format!(r#"{{"op":"select",{head}}}"#),
            }
        };
        let (indexed, scanned): (Vec<_>, Vec<_>) =
            clauses.iter().map(|(i, s)| (i.as_str(), s.as_str())).unzip();
        (text(indexed), text(scanned))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_plan_finds_what_a_scan_finds(
        transactions in proptest::collection::vec(proptest::collection::vec(operation(), 1..16), 1..12),
    ) {
        let (mut indexed, mut scanned) = (Side::new(), Side::new());
        for operations in transactions {
            let (i, s): (Vec<_>, Vec<_>) = operations.into_iter().unzip();
            let by_index = indexed.transact(&format!("[{}]", i.join(",")));
            let by_scan = scanned.transact(&format!("[{}]", s.join(",")));
            prop_assert_eq!(
                String::from_utf8_lossy(&by_index.reply),
                String::from_utf8_lossy(&by_scan.reply)
            );
            prop_assert_eq!(by_scan.work.by_index, 0);
        }
        prop_assert_eq!(indexed.db.state_hash(), scanned.db.state_hash());
        prop_assert!(indexed.visited <= scanned.visited);
    }
}
