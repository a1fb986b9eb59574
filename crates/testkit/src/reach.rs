//! What a run has reached: a run that never met a case has not tested it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::generate::schema::{ATOMS, SHAPES, Schema};

/// The error tags that generated transactions must meet.
const TAGS: [&str; 10] = [
    "syntax error",
    "constraint violation",
    "referential integrity violation",
    "duplicate uuid",
    "duplicate uuid-name",
    "domain error",
    "range error",
    "timed out",
    "aborted",
    "not owner",
];

/// What a commit can run into.
const PHASES: [&str; 7] = [
    "no-op",
    "cannot delete",
    "nonexistent row",
    "garbage collection",
    "max rows",
    "weak removal",
    "index violation",
];

/// The operations that name columns, and in which member.
const COLUMN_OPERATIONS: [&str; 6] = ["insert", "select", "update", "mutate", "wait", "where"];

/// Counts of the cases that transactions have met.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    counts: BTreeMap<String, u64>,
}

impl Reach {
    /// Counts one more of a case.
    pub fn hit(&mut self, case: impl Into<String>) {
        *self.counts.entry(case.into()).or_default() += 1;
    }

    /// How often a case was met.
    pub fn count(&self, case: &str) -> u64 {
        self.counts.get(case).copied().unwrap_or(0)
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (case, count) in &other.counts {
            *self.counts.entry(case.clone()).or_default() += count;
        }
    }

    /// Every case that must be met.
    pub fn required() -> Vec<String> {
        let mut cases: Vec<String> = TAGS.iter().map(|tag| format!("error {tag}")).collect();
        cases.extend(PHASES.iter().map(|phase| format!("commit {phase}")));
        for operation in COLUMN_OPERATIONS {
            for atom in ATOMS {
                for shape in SHAPES {
                    let kind = format!("{} {}", atom.word(), shape.word());
                    // Nothing mutates these in place.
                    let fixed =
                        matches!(kind.as_str(), "boolean scalar" | "string scalar" | "uuid scalar");
                    if operation != "mutate" || !fixed {
                        cases.push(format!("{operation} of {kind}"));
                    }
                }
            }
        }
        for function in ["==", "!=", "<", "<=", ">", ">=", "includes", "excludes"] {
            cases.push(format!("function {function}"));
        }
        for mutator in ["+=", "-=", "*=", "/=", "%=", "insert", "delete"] {
            cases.push(format!("mutator {mutator}"));
        }
        cases
    }

    /// The required cases met fewer than `times` times, with their counts.
    pub fn missing(&self, times: u64) -> Vec<String> {
        Self::required()
            .into_iter()
            .filter(|case| self.count(case) < times)
            .map(|case| format!("{case}: {}", self.count(&case)))
            .collect()
    }

    /// All counts, a line each.
    pub fn report(&self) -> String {
        self.counts.iter().map(|(case, count)| format!("{count:8} {case}\n")).collect()
    }

    /// Counts what a transaction's operations did, by its result.
    pub fn transaction(&mut self, schema: &Schema, ops: &[Value], result: &Value) {
        let Some(results) = result.as_array() else { return };
        for (op, outcome) in ops.iter().zip(results) {
            match outcome.get("error").and_then(Value::as_str) {
                Some(tag) => self.hit(format!("error {tag}")),
                None if outcome.is_object() => self.operation(schema, op),
                None => {}
            }
        }
        match results.get(ops.len()) {
            Some(error) => self.commit_error(error),
            None if results.iter().any(|one| one["error"].is_string()) => self.hit("failed"),
            None => self.hit("committed"),
        }
    }

    fn commit_error(&mut self, error: &Value) {
        self.hit(format!("error {}", error["error"].as_str().unwrap_or("none")));
        let details = error["details"].as_str().unwrap_or_default();
        let phases = [
            ("cannot delete", "cannot delete"),
            ("references nonexistent row", "nonexistent row"),
            ("greater than the schema-defined limit", "max rows"),
            ("multiple rows in", "index violation"),
            ("weak reference", "weak minimum"),
        ];
        for (text, phase) in phases {
            if details.contains(text) {
                self.hit(format!("commit {phase}"));
            }
        }
    }

    fn operation(&mut self, schema: &Schema, op: &Value) {
        let name = op["op"].as_str().unwrap_or_default();
        self.hit(format!("op {name}"));
        let Some(table) = op["table"].as_str().and_then(|table| schema.table(table)) else {
            return;
        };
        let mut touch = |what: &str, column: &Value| {
            let column = column.as_str().and_then(|name| table.column(name));
            if let Some(column) = column {
                self.hit(format!("{what} of {}", column.kind()));
            }
        };
        for column in op["row"].as_object().into_iter().flat_map(|row| row.keys()) {
            touch(name, &Value::from(column.as_str()));
        }
        for column in op["columns"].as_array().into_iter().flatten() {
            touch(name, column);
        }
        for mutation in op["mutations"].as_array().into_iter().flatten() {
            touch("mutate", &mutation[0]);
        }
        for clause in op["where"].as_array().into_iter().flatten() {
            touch("where", &clause[0]);
        }
        self.functions(op);
    }

    fn functions(&mut self, op: &Value) {
        for (list, word) in [("where", "function"), ("mutations", "mutator")] {
            for triple in op[list].as_array().into_iter().flatten() {
                if let Some(function) = triple[1].as_str() {
                    self.hit(format!("{word} {function}"));
                }
            }
        }
    }

    /// Counts what a commit did beyond its operations: `updates` is what an unconditional monitor of
    /// version 1 over all tables heard of it, None where it heard nothing.
    pub fn commit(&mut self, schema: &Schema, ops: &[Value], updates: Option<&Value>) {
        let writes = |op: &&Value| {
            matches!(op["op"].as_str(), Some("insert" | "update" | "mutate" | "delete"))
        };
        let Some(updates) = updates.and_then(Value::as_object) else {
            if ops.iter().any(|op| writes(&op)) {
                self.hit("commit no-op");
            }
            return;
        };
        let touched = |table: &str, names: &[&str]| {
            ops.iter().any(|op| op["table"] == table && names.iter().any(|name| op["op"] == *name))
        };
        for (table, rows) in updates {
            for row in rows.as_object().into_iter().flat_map(|rows| rows.values()) {
                let weak =
                    |column: &String| column.starts_with("weak") && schema.table(table).is_some();
                match (row.get("old"), row.get("new")) {
                    (Some(_), None) if !touched(table, &["delete"]) => {
                        self.hit("commit garbage collection");
                    }
                    (Some(Value::Object(old)), Some(_))
                        if old.keys().any(weak)
                            && !touched(table, &["update", "mutate", "insert"]) =>
                    {
                        self.hit("commit weak removal");
                    }
                    _ => {}
                }
            }
        }
    }
}
