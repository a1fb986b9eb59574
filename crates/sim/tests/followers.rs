//! What a member reads in its log makes its rows those of the leader that wrote it, to the last bit: whatever
//! the schema is, and whatever clients write.

use std::sync::Arc;

use serde_json::{Number, Value, json};
use weir_data::{AtomRef, Schema, Store, UuidSource};
use weir_engine::{Database, Env, Outcome, execute, follow_entry};
use weir_json::{Text, validate, validate_value};
use weir_log::standalone::{Decoder, Form, write_transaction_json};
use weir_testkit::dump::{Dump, select_all, table_names};
use weir_testkit::generate::transaction::request_bytes;
use weir_testkit::generate::{self, Generator};
use weir_testkit::rng::Rng;

const SEEDS: u64 = 200;
const TRANSACTIONS: usize = 150;

/// What texts carry badly if anything does.
const STRINGS: [&str; 8] = [
    "\u{0}",
    "\u{1}\u{1f}\u{7f}\u{80}",
    "\u{d7ff}\u{e000}\u{fffe}\u{ffff}",
    "\u{10ffff}",
    "\u{2028}\u{2029}\u{feff}",
    "a\u{0}b",
    "\\u0000",
    "/\u{8}\u{c}\r\n",
];

/// Puts another number or string in some places of a value.
fn make_worse(rng: &mut Rng, value: &mut Value) {
    match value {
        Value::Array(elements) => {
            let is_reference =
                elements.first().is_some_and(|tag| tag == "uuid" || tag == "named-uuid");
            let skipped = usize::from(elements.first().is_some_and(Value::is_string));
            if !is_reference {
                elements.iter_mut().skip(skipped).for_each(|element| make_worse(rng, element));
            }
        }
        _ if !rng.chance(30) => {}
        Value::Number(number) if number.is_i64() && rng.chance(50) => {
            let wide = [i64::MIN, i64::MAX, (1 << 53) + 1, -(1 << 53) - 1, i64::from(i32::MIN)];
            *value = json!(*rng.pick(&wide));
        }
        Value::Number(_) => *value = any_real(rng).map_or(Value::Null, Value::Number),
        Value::String(_) => *value = json!(*rng.pick(&STRINGS)),
        _ => {}
    }
}

/// Of any size, mostly such that meet again when they are added and multiplied.
fn any_real(rng: &mut Rng) -> Option<Number> {
    let few = [
        0.1,
        0.2,
        0.3,
        1.0 / 3.0,
        -0.0,
        1e15,
        1e16 + 2.0,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        1e-9,
    ];
    Number::from_f64(match rng.chance(80) {
        true => *rng.pick(&few),
        false => f64::from_bits(rng.bits()),
    })
}

/// Makes what an operation writes worse: not often, for most of it is refused then.
fn spoil(rng: &mut Rng, operation: &mut Value) {
    if !rng.chance(20) {
        return;
    }
    if let Some(row) = operation.get_mut("row").and_then(Value::as_object_mut) {
        row.values_mut().for_each(|value| make_worse(rng, value));
    }
    if let Some(mutations) = operation.get_mut("mutations").and_then(Value::as_array_mut) {
        mutations
            .iter_mut()
            .filter_map(|one| one.get_mut(2))
            .for_each(|value| make_worse(rng, value));
    }
}

/// All rows, but for their versions, as they are in memory.
fn rows(store: &Store) -> Vec<String> {
    let atom = |atom: AtomRef<'_>| match atom {
        AtomRef::Real(real) => format!("{:x}", real.to_bits()),
        other => format!("{other:?}"),
    };
    let mut rows = Vec::new();
    for (table, schema) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            let mut text = format!("{} {}", schema.name, row.uuid());
            for (column, schema) in schema.data_columns().filter(|(_, column)| column.persistent) {
                text.push_str(&format!("\n  {}:", schema.name));
                for (key, value) in row.get(column).entries() {
                    text.push_str(&format!(
                        " {} {}",
                        atom(key),
                        value.map_or_else(String::new, atom)
                    ));
                }
            }
            rows.push(text);
        }
    }
    rows.sort();
    rows
}

struct Leader {
    database: Database,
    uuids: UuidSource,
}

impl Leader {
    /// Runs operations: what comes of them, and the text of what they changed.
    fn run(&mut self, operations: &[Value], form: Form) -> (Vec<u8>, Option<Vec<u8>>) {
        let bytes = request_bytes("transact", &Value::from(operations).to_string(), 0);
        let Ok(request) = validate(&bytes) else { return Default::default() };
        let params = request.object().expect("a request");
        let params = params.get("params").expect("it has been put there");
        let operations: Vec<Text<'_>> = params.elements().expect("a list").collect();
        let outcome = execute(&mut self.database, &operations, &mut Env::new(&mut self.uuids));
        let Outcome::Done(done) = outcome else { return Default::default() };
        let mut text = Vec::new();
        let comment = done.comment.as_deref();
        let is_any = done.delta.is_some_and(|delta| {
            write_transaction_json(form, &mut text, &delta, self.database.store(), 5, comment)
        });
        (done.reply, is_any.then_some(text))
    }
}

#[test]
fn who_reads_what_a_leader_wrote_has_its_rows() {
    let mut followed = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let generated = generate::Schema::generate(&mut rng);
        let tables = table_names(&generated);
        let schema = Arc::new(
            Schema::parse_bytes(generated.json().to_string().as_bytes()).expect("a schema"),
        );
        let database = Database::new(Arc::clone(&schema), 5);
        let mut leader = Leader { database, uuids: UuidSource::new([seed, 2, 3, 4]) };
        let mut follower = Database::new(Arc::clone(&schema), 7);
        let (mut decoder, mut uuids) = (Decoder::new(&schema), UuidSource::new([seed, 5, 6, 7]));
        let mut generator = Generator::new(generated, rng);
        for round in 0..TRANSACTIONS {
            let mut operations = generator.transaction();
            operations.iter_mut().for_each(|operation| spoil(&mut generator.rng, operation));
            let form = if round % 3 == 0 { Form::Whole } else { Form::Difference };
            let (_, text) = leader.run(&operations, form);
            if let Some(text) = text {
                let said = || {
                    format!(
                        "seed {seed}, {}: {}",
                        Value::from(&*operations),
                        String::from_utf8_lossy(&text)
                    )
                };
                let read =
                    validate_value(&text).unwrap_or_else(|error| panic!("{}: {error}", said()));
                let edits = decoder.decode(read, follower.store(), &mut uuids);
                let edits = edits.unwrap_or_else(|error| panic!("{}: {error:?}", said()));
                let delta = follow_entry(&mut follower, edits, &mut uuids);
                delta.unwrap_or_else(|error| panic!("{}: {error:?}", said()));
                assert_eq!(rows(leader.database.store()), rows(follower.store()), "{}", said());
                followed += 1;
            }
            let (reply, _) = leader.run(&select_all(&tables), form);
            let reply = serde_json::from_slice(&reply).expect("a reply");
            generator.observe(Dump::from_result(&tables, &reply).expect("all rows"));
        }
    }
    assert!(followed as u64 > SEEDS * 20, "only {followed}");
}
