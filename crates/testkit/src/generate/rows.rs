//! What the generator knows of the rows: those that live, those of the transaction being drawn.

use serde_json::{Map, Value, json};

use crate::dump::Dump;
use crate::generate::schema::{Base, Column, Schema, Shape, Table};
use crate::generate::value::{self, References};
use crate::normalise::uuids;
use crate::rng::Rng;

/// Rows that a transaction under construction inserts or promises to insert.
#[derive(Debug, Default)]
pub struct Draft {
    /// Table and the `["uuid", …]` or `["named-uuid", …]` of rows inserted by earlier operations.
    pub inserted: Vec<(String, Value)>,
    /// Table and name of rows that were referred to and are still to be inserted.
    pub promised: Vec<(String, String)>,
    next_name: usize,
}

impl Draft {
    /// A `uuid-name` that the transaction has not used.
    pub fn fresh_name(&mut self) -> String {
        self.next_name += 1;
        format!("n{}", self.next_name)
    }
}

/// The rows that references are drawn from.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Committed content, slightly old at times.
    pub live: &'a Dump,
    /// UUIDs of rows that are gone.
    pub gone: &'a [String],
    /// The rows that the transaction itself inserts.
    pub draft: &'a mut Draft,
}

impl References for Rows<'_> {
    fn reference(&mut self, rng: &mut Rng, table: &str) -> Value {
        let drafted: Vec<_> = self.draft.inserted.iter().filter(|row| row.0 == table).collect();
        let has_live = self.live.count(table) > 0;
        let weights =
            [if has_live { 600 } else { 0 }, if drafted.is_empty() { 0 } else { 250 }, 60, 6, 3, 6];
        match rng.weighted(&weights) {
            0 => json!(["uuid", self.live_uuid(rng, table).unwrap_or_default()]),
            1 => rng.pick(&drafted).1.clone(),
            2 => {
                let known = self.draft.promised.iter().find(|row| row.0 == table);
                let name = match known {
                    Some((_, name)) if rng.chance(70) => name.clone(),
                    _ => {
                        let name = self.draft.fresh_name();
                        self.draft.promised.push((table.to_owned(), name.clone()));
                        name
                    }
                };
                json!(["named-uuid", name])
            }
            3 if !self.gone.is_empty() => json!(["uuid", rng.pick(self.gone)]),
            4 => json!(["named-uuid", "never"]),
            _ => value::plain_atom(rng, super::schema::Atom::Uuid),
        }
    }
}

impl Rows<'_> {
    /// The UUID of a live row of a table.
    pub fn live_uuid(&self, rng: &mut Rng, table: &str) -> Option<String> {
        let rows = self.live.tables.get(table)?;
        rows.keys().nth(rng.below(rows.len())).cloned()
    }

    /// A live row of a table.
    pub fn live_row(&self, rng: &mut Rng, table: &str) -> Option<&Map<String, Value>> {
        let rows = self.live.tables.get(table)?;
        rows.values().nth(rng.below(rows.len()))
    }

    /// The columns of a new row.
    pub fn new_row(&mut self, rng: &mut Rng, table: &Table) -> Map<String, Value> {
        let mut row = Map::new();
        for column in &table.columns {
            let needed = column.min == 1 && column.bases().any(rejects_default);
            if rng.chance(if needed { 98 } else { 55 }) {
                let datum = value::datum(rng, column, self);
                row.insert(column.name.clone(), datum);
            }
        }
        row
    }

    /// Some columns of a row to be changed, at times to what they are.
    pub fn changed_row(&mut self, rng: &mut Rng, table: &Table) -> Map<String, Value> {
        let mut row = Map::new();
        for _ in 0..rng.between(1, 3) {
            let column = rng.pick(&table.columns);
            if !column.mutable && rng.chance(90) {
                continue;
            }
            let current = self.live_row(rng, &table.name).and_then(|row| row.get(&column.name));
            let datum = match current {
                Some(current) if rng.chance(15) => current.clone(),
                _ => value::datum(rng, column, self),
            };
            row.insert(column.name.clone(), datum);
        }
        row
    }

    /// The conditions of a `where`.
    pub fn conditions(&mut self, rng: &mut Rng, table: &Table) -> Vec<Value> {
        let mut clauses = vec![];
        let itself = if rng.chance(45) { self.a_row(rng, &table.name) } else { None };
        if let Some(row) = itself {
            let function = if rng.chance(92) { "==" } else { *rng.pick(&["!=", "includes"]) };
            clauses.push(json!(["_uuid", function, row]));
            if rng.chance(80) {
                return clauses;
            }
        }
        for _ in 0..rng.weighted(&[12, 65, 20, 3]) {
            clauses.push(self.clause(rng, table));
        }
        clauses
    }

    /// A reference to a row, the transaction's own at times.
    fn a_row(&mut self, rng: &mut Rng, table: &str) -> Option<Value> {
        let own: Vec<_> = self.draft.inserted.iter().filter(|row| row.0 == table).collect();
        if !own.is_empty() && rng.chance(25) {
            return Some(rng.pick(&own).1.clone());
        }
        Some(json!(["uuid", self.live_uuid(rng, table)?]))
    }

    /// Refers to the transaction's own rows that would not live otherwise.
    pub fn link_drafted(&mut self, rng: &mut Rng, schema: &Schema) -> Vec<Value> {
        let mut ops = vec![];
        for (target, reference) in self.draft.inserted.clone() {
            let root = schema.table(&target).is_none_or(|target| target.is_root);
            if root || rng.chance(25) {
                continue;
            }
            let holders: Vec<_> = schema
                .tables
                .iter()
                .filter(|table| self.live.count(&table.name) > 0)
                .flat_map(|table| table.columns.iter().map(move |column| (table, column)))
                .filter(|(_, column)| {
                    let strong = Some((target.clone(), true));
                    let roomy = column.value.is_none() && (column.min, column.max) != (1, 1);
                    roomy && column.mutable && column.key.reference == strong
                })
                .collect();
            if holders.is_empty() {
                continue;
            }
            let (table, column) = rng.pick(&holders);
            let uuid = self.live_uuid(rng, &table.name).unwrap_or_default();
            let row = json!({column.name.as_str(): reference});
            let clauses = json!([["_uuid", "==", ["uuid", uuid]]]);
            ops.push(json!({"op": "update", "table": table.name, "where": clauses, "row": row}));
        }
        ops
    }

    /// Ends a reference: strands a row that lives by one, or deletes a row that weak ones name.
    pub fn cut_reference(&mut self, rng: &mut Rng, schema: &Schema) -> Value {
        let strand = rng.chance(50);
        let mut found = vec![];
        for (table, uuid, row) in self.live.rows() {
            for column in schema.table(table).map_or(&[][..], |table| &table.columns) {
                let Some((target, strong)) =
                    column.bases().find_map(|base| base.reference.as_ref())
                else {
                    continue;
                };
                let root = schema.table(target).is_some_and(|target| target.is_root);
                let named = row.get(&column.name).map(|datum| uuids(&datum.to_string()));
                let named = named.unwrap_or_default().into_iter();
                let named = named.filter(|one| self.live.tables[target].contains_key(one));
                if *strong == strand && !(strand && root) {
                    found.extend(named.map(|one| (table, uuid, column, target, one)));
                }
            }
        }
        let itself = |uuid: &str| json!([["_uuid", "==", ["uuid", uuid]]]);
        if found.is_empty() {
            return json!({"op": "comment", "comment": "no references"});
        }
        let (table, uuid, column, target, named) = rng.pick(&found);
        if !strand {
            return json!({"op": "delete", "table": target, "where": itself(named)});
        }
        if !column.mutable || column.min == 1 {
            return json!({"op": "delete", "table": table, "where": itself(uuid)});
        }
        let empty = if column.value.is_some() { "map" } else { "set" };
        let row = json!({column.name.as_str(): [empty, []]});
        json!({"op": "update", "table": table, "where": itself(uuid), "row": row})
    }

    /// One condition, mostly about the value of a live row.
    pub fn clause(&mut self, rng: &mut Rng, table: &Table) -> Value {
        if rng.chance(2) {
            return json!(rng.chance(70));
        }
        if rng.chance(2) {
            let version = self.live_row(rng, &table.name).and_then(|row| row.get("_version"));
            return json!(["_version", "==", version.unwrap_or(&json!(["uuid", "x"]))]);
        }
        let column = rng.pick(&table.columns);
        let numeric = matches!(column.key.atom.word(), "integer" | "real")
            && matches!(column.shape(), Shape::Scalar | Shape::Optional);
        let functions: &[&str] = match numeric || rng.chance(1) {
            true => &["==", "!=", "<", "<=", ">", ">=", "includes", "excludes"],
            false => &["==", "==", "!=", "includes", "excludes"],
        };
        let function = *rng.pick(functions);
        let known = self.live_row(rng, &table.name).and_then(|row| row.get(&column.name)).cloned();
        let part = function.ends_with("cludes");
        let argument = match known {
            Some(known) if rng.chance(65) => {
                if part && rng.chance(70) {
                    part_of(rng, &known)
                } else {
                    known
                }
            }
            _ => self.argument(rng, column, part),
        };
        json!([column.name, function, argument])
    }

    /// A fresh argument; a part need not have the column's minimum.
    pub fn argument(&mut self, rng: &mut Rng, column: &Column, part: bool) -> Value {
        if part && column.shape() != Shape::Scalar {
            let most = column.max.min(3);
            let count = rng.between(0, most);
            return value::sized_datum(rng, column, count, self);
        }
        value::datum(rng, column, self)
    }

    /// A mutation that takes some number out of its range.
    pub fn overflow(&mut self, rng: &mut Rng, table: &Table) -> Value {
        let scalars =
            table.columns.iter().filter(|one| one.mutable && one.shape() == Shape::Scalar);
        let (mut column, mut operand) = (None, json!(0));
        for scalar in scalars.filter(|_| rng.chance(60)).collect::<Vec<_>>() {
            match scalar.key.atom.word() {
                "integer" => (column, operand) = (Some(scalar), json!(i64::MAX)),
                "real" => (column, operand) = (Some(scalar), json!(1e308)),
                _ => {}
            }
        }
        let Some(name) = column.map(|column| column.name.as_str()) else {
            return json!({"op": "comment", "comment": "no number"});
        };
        let clauses = json!([[name, ">", 0]]);
        let mutations = json!([[name, "*=", operand], [name, "*=", operand]]);
        json!({"op": "mutate", "table": table.name, "where": clauses, "mutations": mutations})
    }

    /// A mutation that the column's type allows.
    pub fn mutation(&mut self, rng: &mut Rng, table: &Table) -> Value {
        let mut column = rng.pick(&table.columns);
        for _ in 0..6 {
            if column.mutable && mutable_in_place(column) {
                break;
            }
            column = rng.pick(&table.columns);
        }
        let collection = column.shape() != Shape::Scalar;
        let numeric =
            matches!(column.key.atom.word(), "integer" | "real") && column.shape() != Shape::Map;
        if numeric && (!collection || rng.chance(75)) {
            let mutator = *rng.pick(&["+=", "-=", "*=", "/=", "%="]);
            return json!([column.name, mutator, operand(rng, column, mutator)]);
        }
        let mutator = if rng.chance(55) { "insert" } else { "delete" };
        let row = self.live_row(rng, &table.name).and_then(|row| row.get(&column.name));
        let known = row.cloned().filter(|_| mutator == "delete" || rng.chance(20));
        let mut argument = match known {
            Some(known) if rng.chance(75) => part_of(rng, &known),
            _ => self.argument(rng, column, true),
        };
        if mutator == "delete" && argument[0] == "map" && rng.chance(40) {
            argument = keys_of(&argument);
        }
        json!([column.name, mutator, argument])
    }
}

/// A schema's tables with those that have few rows first in line for inserts.
pub fn pick_table<'s>(rng: &mut Rng, schema: &'s Schema, live: &Dump, fill: bool) -> &'s Table {
    let weights: Vec<usize> = schema
        .tables
        .iter()
        .map(|table| match (fill, live.count(&table.name)) {
            (true, 0..4) => 6,
            (true, 16..) => 1,
            (false, 0) => 1,
            _ => 4,
        })
        .collect();
    &schema.tables[rng.weighted(&weights)]
}

fn rejects_default(base: &Base) -> bool {
    base.reference.is_some() || !base.constraints.is_empty()
}

fn mutable_in_place(column: &Column) -> bool {
    column.shape() != Shape::Scalar || matches!(column.key.atom.word(), "integer" | "real")
}

fn operand(rng: &mut Rng, column: &Column, mutator: &str) -> Value {
    let huge = rng.chance(65);
    if column.key.atom.word() == "real" {
        // Never -0: the reference takes it for another value than 0 until it reads its own file.
        return json!(match mutator {
            "*=" if huge => 1e300,
            "/=" if rng.chance(60) => 0.0,
            "*=" | "/=" => *rng.pick(&[1.0, 0.5, 2.0, 0.25, 4.0]),
            _ => *rng.pick(&[1.0, 0.5, -1.0, 2.0, 0.25, 0.0, 3.0]),
        });
    }
    let zero = matches!(mutator, "/=" | "%=") && rng.chance(60);
    match (zero, huge) {
        (true, _) => json!(0),
        // COMPAT.md: of two negative factors the reference takes some products that overflow.
        (_, true) if mutator == "*=" => json!(*rng.pick(&[i64::MAX, i64::MAX - 2])),
        _ if mutator == "*=" => json!(*rng.pick(&[1, 2, 3, 5])),
        (_, true) => json!(*rng.pick(&[i64::MAX, i64::MIN, i64::MAX - 2])),
        _ => json!(*rng.pick(&[1, 1, 2, 3, -1, -2, 5])),
    }
}

fn elements_of(datum: &Value) -> Option<(&str, &Vec<Value>)> {
    match (datum[0].as_str()?, datum[1].as_array()) {
        (word @ ("set" | "map"), Some(elements)) => Some((word, elements)),
        _ => None,
    }
}

/// Some of the elements of a datum.
pub fn part_of(rng: &mut Rng, datum: &Value) -> Value {
    match elements_of(datum) {
        Some((word, elements)) => {
            let kept: Vec<_> = elements.iter().filter(|_| rng.chance(50)).collect();
            json!([word, kept])
        }
        None => datum.clone(),
    }
}

fn keys_of(map: &Value) -> Value {
    let pairs = map[1].as_array().map_or(&[][..], Vec::as_slice);
    let keys: Vec<_> = pairs.iter().map(|pair| &pair[0]).collect();
    json!(["set", keys])
}
