//! Generated transactions: all operations, mostly about rows that exist.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::dump::Dump;
use crate::generate::faults::spoil;
use crate::generate::rows::{Draft, Rows, pick_table};
use crate::generate::schema::{Schema, Table};
use crate::generate::value::NOT_UTF8;
use crate::rng::Rng;

/// The lock that the harness holds on the transacting session, for `assert`.
pub const HELD_LOCK: &str = "held";

/// Rows remembered after they went.
const GONE_MAX: usize = 64;

/// How many rounds of rows that were only referred to are inserted in one transaction.
const PROMISE_ROUNDS: usize = 3;

/// A source of transactions for one schema.
#[derive(Debug)]
pub struct Generator {
    /// The schema of the database.
    pub schema: Schema,
    /// The random numbers that transactions are drawn from.
    pub rng: Rng,
    live: Dump,
    gone: Vec<String>,
    /// Every UUID that the generator ever gave to a row: those that a server chose would make a run
    /// unrepeatable.
    given: BTreeSet<String>,
}

impl Generator {
    /// A generator that knows of no rows yet.
    pub fn new(schema: Schema, rng: Rng) -> Self {
        Self { schema, rng, live: Dump::default(), gone: vec![], given: BTreeSet::new() }
    }

    /// Tells the generator what the database now holds.
    pub fn observe(&mut self, mut live: Dump) {
        for rows in live.tables.values_mut() {
            rows.retain(|uuid, _| self.given.contains(uuid));
        }
        for (table, uuid, _) in self.live.rows() {
            let still = live.tables.get(table).is_some_and(|rows| rows.contains_key(uuid));
            if !still && self.gone.len() < GONE_MAX {
                self.gone.push(uuid.clone());
            } else if !still {
                let at = self.rng.below(GONE_MAX);
                self.gone[at].clone_from(uuid);
            }
        }
        self.live = live;
    }

    /// The operations of the next transaction.
    pub fn transaction(&mut self) -> Vec<Value> {
        let mut draft = Draft::default();
        let mut ops = vec![];
        for _ in 0..self.rng.weighted(&[1, 40, 30, 15, 8, 4, 2]) {
            let op = self.operation(&mut draft);
            ops.push(op);
        }
        for _ in 0..PROMISE_ROUNDS {
            for (table, name) in std::mem::take(&mut draft.promised) {
                if self.rng.chance(97) {
                    let op = self.insert(&mut draft, &table, Some(name));
                    // A name that was used before its row came with a UUID means another row.
                    if op.get("uuid").is_some() && self.rng.chance(93) {
                        ops.insert(0, op);
                    } else {
                        ops.push(op);
                    }
                }
            }
        }
        let mut rows = Rows { live: &self.live, gone: &self.gone, draft: &mut draft };
        ops.extend(rows.link_drafted(&mut self.rng, &self.schema));
        if self.rng.chance(3) {
            let op = if self.rng.chance(50) {
                json!({"op": "abort"})
            } else {
                json!({"op": "assert", "lock": "other"})
            };
            ops.push(op);
        }
        self.add_faults(&mut ops);
        ops
    }

    fn add_faults(&mut self, ops: &mut [Value]) {
        if ops.is_empty() || !self.rng.chance(14) {
            return;
        }
        for _ in 0..self.rng.weighted(&[0, 75, 18, 7]) {
            let at = self.rng.below(ops.len());
            spoil(&mut self.rng, &mut ops[at]);
            // Whoever waits here waits forever: nobody else changes the database.
            let timeout = &ops[at]["timeout"];
            let waits = timeout.is_null() || timeout.as_f64().is_some_and(|timeout| timeout > 0.0);
            if ops[at]["op"] == "wait" && waits {
                ops[at]["timeout"] = json!(0);
            }
        }
    }

    fn operation(&mut self, draft: &mut Draft) -> Value {
        let rng = &mut self.rng;
        let kind = rng.weighted(&[20, 15, 17, 26, 8, 15, 2, 1, 2, 2, 20, 3]);
        let table = pick_table(rng, &self.schema, &self.live, kind == 0).clone();
        let name = table.name.as_str();
        if kind == 0 {
            return self.insert(draft, name, None);
        }
        let rng = &mut self.rng;
        let mut rows = Rows { live: &self.live, gone: &self.gone, draft };
        match kind {
            10 => rows.cut_reference(rng, &self.schema),
            11 => rows.overflow(rng, &table),
            1 => select(rng, &mut rows, &table),
            2 => {
                let conditions = rows.conditions(rng, &table);
                let row = rows.changed_row(rng, &table);
                json!({"op": "update", "table": name, "where": conditions, "row": row})
            }
            3 => {
                let conditions = rows.conditions(rng, &table);
                let count = rng.weighted(&[3, 77, 15, 5]);
                let list: Vec<_> = (0..count).map(|_| rows.mutation(rng, &table)).collect();
                json!({"op": "mutate", "table": name, "where": conditions, "mutations": list})
            }
            4 => {
                let conditions = rows.conditions(rng, &table);
                json!({"op": "delete", "table": name, "where": conditions})
            }
            5 => wait(rng, &mut rows, &table),
            6 => json!({"op": "commit", "durable": rng.chance(1)}),
            7 => json!({"op": "abort"}),
            8 => {
                let texts = ["one", "", "two\nlines", "\u{7f}\u{1}é", NOT_UTF8];
                json!({"op": "comment", "comment": texts[rng.weighted(&[40, 20, 20, 19, 1])]})
            }
            _ => json!({"op": "assert", "lock": if rng.chance(90) { HELD_LOCK } else { "other" }}),
        }
    }

    fn insert(&mut self, draft: &mut Draft, table: &str, name: Option<String>) -> Value {
        let Some(table) = self.schema.table(table) else { return json!({"op": "comment"}) };
        let rng = &mut self.rng;
        let named = name.is_some();
        let name = name.or_else(|| rng.chance(30).then(|| draft.fresh_name()));
        let mut rows = Rows { live: &self.live, gone: &self.gone, draft };
        let row = rows.new_row(rng, table);
        let mut op = json!({"op": "insert", "table": table.name, "row": row});
        let mut reference = None;
        if rng.chance(if named { 60 } else { 95 }) {
            let fresh = rng.uuid();
            self.given.insert(fresh.clone());
            let uuid = match rng.below(250) {
                0..13 => rows.live_uuid(rng, &table.name).unwrap_or(fresh),
                13..20 if !self.gone.is_empty() => rng.pick(&self.gone).clone(),
                20 => "bad uuid".to_owned(),
                21 => fresh.to_uppercase(),
                _ => fresh,
            };
            op["uuid"] = json!(uuid);
            reference = Some(json!(["uuid", uuid]));
        }
        if let Some(name) = name {
            let taken = draft.inserted.iter().find(|row| row.1[0] == "named-uuid");
            let again = taken.filter(|_| rng.chance(4)).map(|row| row.1[1].clone());
            let name = again.unwrap_or_else(|| json!(name));
            op["uuid-name"] = name.clone();
            reference = Some(json!(["named-uuid", name]));
        }
        if let Some(reference) = reference {
            draft.inserted.push((table.name.clone(), reference));
        }
        op
    }
}

fn select(rng: &mut Rng, rows: &mut Rows<'_>, table: &Table) -> Value {
    let conditions = rows.conditions(rng, table);
    let mut op = json!({"op": "select", "table": table.name, "where": conditions});
    if rng.chance(60) {
        op["columns"] = json!(some_columns(rng, table));
    }
    op
}

fn some_columns(rng: &mut Rng, table: &Table) -> Vec<String> {
    let mut columns: Vec<String> = vec![];
    for _ in 0..rng.between(0, 7) {
        let name = rng.pick(&table.columns).name.clone();
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    if rng.chance(25) {
        columns.push("_uuid".into());
    }
    columns
}

/// A `wait` that mostly finds what it waits for.
fn wait(rng: &mut Rng, rows: &mut Rows<'_>, table: &Table) -> Value {
    let mut columns = some_columns(rng, table);
    let mut op = json!({"op": "wait", "timeout": 0, "table": table.name});
    let found = rows.live_row(rng, &table.name).cloned();
    let (conditions, expected) = match found {
        Some(row) if rng.chance(85) => (vec![json!(["_uuid", "==", row["_uuid"]])], Some(row)),
        _ => (rows.conditions(rng, table), None),
    };
    if rng.chance(10) {
        columns.push("_version".into());
    }
    let project = |name: &String| {
        expected.as_ref().and_then(|row| Some((name.clone(), row.get(name)?.clone())))
    };
    let mut listed = vec![];
    if expected.is_some() {
        let row: serde_json::Map<String, Value> = columns.iter().filter_map(project).collect();
        listed.push(Value::Object(row));
    }
    if rng.chance(10) {
        let other = rows.changed_row(rng, table);
        listed.push(Value::Object(other));
    }
    op["where"] = json!(conditions);
    if rng.chance(97) {
        op["columns"] = json!(columns);
    }
    op["until"] = json!(if rng.chance(80) { "==" } else { "!=" });
    op["rows"] = json!(listed);
    op
}

/// The `params` of a `transact` as bytes, with the bytes that are not UTF-8 in place.
pub fn params_text(db: &str, ops: &[Value]) -> String {
    let mut params = vec![json!(db)];
    params.extend_from_slice(ops);
    Value::Array(params).to_string()
}

/// A request around `params`.
pub fn request_bytes(method: &str, params: &str, id: u64) -> Vec<u8> {
    let text = format!("{{\"method\":\"{method}\",\"params\":{params},\"id\":{id}}}");
    let (mut bytes, mut rest) = (vec![], text.as_str());
    while let Some(at) = rest.find(NOT_UTF8) {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        bytes.push(0xff);
        rest = &rest[at + NOT_UTF8.len()..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}
