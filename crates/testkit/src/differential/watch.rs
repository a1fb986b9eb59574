//! Generated monitors, and the replica that a client composes from what they send.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::client::{Client, Message, Trouble};
use crate::dump::Dump;
use crate::generate::rows::{Draft, Rows};
use crate::generate::schema::{Atom, Column, Schema, Shape, Table};
use crate::rng::Rng;

/// The UUID that no transaction has.
const NO_TRANSACTION: &str = "00000000-0000-0000-0000-000000000000";

/// What is watched of one table.
#[derive(Clone, Debug)]
pub struct TableWatch {
    /// The columns, None for all.
    pub columns: Option<Vec<String>>,
    /// The clauses, any of which may hold; None for every row.
    pub clauses: Option<Vec<Value>>,
    select: Option<Value>,
    /// A second request for the same table.
    second: Option<Value>,
}

impl TableWatch {
    fn has_column(&self, name: &Value) -> bool {
        let columns = self.columns.as_ref();
        columns.is_none_or(|columns| columns.iter().any(|column| name == column.as_str()))
    }
}

/// A generated monitor.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The monitor's id.
    pub id: Value,
    /// The protocol version: 1, 2 or 3.
    pub version: usize,
    /// The tables that are watched.
    pub tables: BTreeMap<String, TableWatch>,
}

/// What the generator of monitors needs.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The schema of the database.
    pub schema: &'a Schema,
    /// The rows whose values conditions are drawn from.
    pub live: &'a Dump,
}

impl Scene<'_> {
    fn clauses(&self, rng: &mut Rng, table: &Table) -> Vec<Value> {
        let mut draft = Draft::default();
        let mut rows = Rows { live: self.live, gone: &[], draft: &mut draft };
        let mut clauses = vec![];
        for _ in 0..rng.weighted(&[10, 50, 25, 15]) {
            let clause = rows.clause(rng, table);
            // A name means nothing here, and versions differ between the servers.
            let text = clause.to_string();
            if !text.contains("named-uuid") && !text.contains("_version") {
                clauses.push(clause);
            }
        }
        clauses
    }
}

impl Watch {
    /// A monitor of all tables and all columns, in protocol version 1.
    pub fn everything(schema: &Schema) -> Self {
        let whole = TableWatch { columns: None, clauses: None, select: None, second: None };
        let tables = schema.tables.iter().map(|table| (table.name.clone(), whole.clone()));
        Self { id: json!("everything"), version: 1, tables: tables.collect() }
    }

    /// A monitor of some tables in some way; `whole` leaves out what a replica cannot be composed
    /// from.
    pub fn generate(rng: &mut Rng, scene: &Scene<'_>, name: &str, whole: bool) -> Self {
        let version = rng.between(1, 3);
        let mut tables = BTreeMap::new();
        for table in &scene.schema.tables {
            if !rng.chance(70) {
                continue;
            }
            let columns = rng.chance(60).then(|| columns(rng, table));
            let clauses = (version > 1 && rng.chance(60)).then(|| scene.clauses(rng, table));
            let select = (!whole && rng.chance(35)).then(|| {
                let names = ["initial", "insert", "delete", "modify"];
                let said = names.iter().filter(|_| rng.chance(60)).collect::<Vec<_>>();
                let said = said.into_iter().map(|name| ((*name).to_owned(), json!(rng.chance(50))));
                Value::Object(said.collect())
            });
            // Whose condition of two counts depends on the reference's hash table.
            let second =
                (!whole && clauses.is_none() && rng.chance(12)).then(|| json!({"columns": []}));
            tables.insert(table.name.clone(), TableWatch { columns, clauses, select, second });
        }
        let id = if rng.chance(80) { json!(name) } else { json!([name, {"n": 1}]) };
        Self { id, version, tables }
    }

    /// The method and parameters that start the monitor.
    pub fn request(&self, db: &str) -> (&'static str, Value) {
        let mut requests = Map::new();
        for (table, watch) in &self.tables {
            let mut request = Map::new();
            if let Some(columns) = &watch.columns {
                request.insert("columns".into(), json!(columns));
            }
            if let Some(clauses) = &watch.clauses {
                request.insert("where".into(), json!(clauses));
            }
            if let Some(select) = &watch.select {
                request.insert("select".into(), select.clone());
            }
            let first = Value::Object(request);
            let request = match &watch.second {
                // Two requests must not name a column twice.
                Some(second) if watch.columns.is_some() => json!([first, second]),
                _ if watch.select.is_none() => first,
                _ => json!([first]),
            };
            requests.insert(table.clone(), request);
        }
        let mut params = vec![json!(db), self.id.clone(), Value::Object(requests)];
        if self.version == 3 {
            params.push(json!(NO_TRANSACTION));
        }
        let method = ["monitor", "monitor_cond", "monitor_cond_since"][self.version - 1];
        (method, Value::Array(params))
    }

    /// The parameters that change the conditions of some tables.
    pub fn change(&mut self, rng: &mut Rng, scene: &Scene<'_>) -> Value {
        let mut requests = Map::new();
        for (name, watch) in &mut self.tables {
            let Some(table) = scene.schema.table(name).filter(|_| rng.chance(60)) else { continue };
            let mut clauses = scene.clauses(rng, table);
            // 3.1.0 dies of a change that brings in a column which was not monitored before.
            clauses.retain(|clause| watch.has_column(&clause[0]));
            requests.insert(name.clone(), json!([{"where": clauses}]));
            watch.clauses = Some(clauses);
        }
        json!([self.id, self.id, requests])
    }

    /// The rows that a client of this monitor should now have, read with selects.
    ///
    /// # Errors
    /// When the session fails.
    pub fn expected(&self, session: &mut Client, schema: &Schema) -> Result<Replica, Trouble> {
        let mut replica = Replica::default();
        for (name, watch) in &self.tables {
            let wheres = match watch.clauses.as_deref() {
                None | Some([]) => vec![json!([])],
                Some(clauses) => clauses.iter().map(|clause| json!([clause])).collect(),
            };
            let select = |clauses| json!({"op": "select", "table": name, "where": clauses});
            let ops: Vec<Value> = wheres.into_iter().map(select).collect();
            let result = session.transact(&schema.name, &ops)?;
            for row in
                result.as_array().into_iter().flatten().flat_map(|one| one["rows"].as_array())
            {
                for row in row.iter().filter_map(Value::as_object) {
                    let uuid = row["_uuid"][1].as_str().unwrap_or_default().to_owned();
                    let mut row = row.clone();
                    row.retain(|column, _| match &watch.columns {
                        Some(columns) => columns.contains(column),
                        None => column != "_uuid",
                    });
                    replica.row(name, &uuid, row);
                }
            }
        }
        Ok(replica)
    }
}

fn columns(rng: &mut Rng, table: &Table) -> Vec<String> {
    let mut columns: Vec<String> = vec![];
    for column in &table.columns {
        if rng.chance(50) {
            columns.push(column.name.clone());
        }
    }
    if rng.chance(20) {
        columns.push("_version".into());
    }
    columns
}

/// A client's copy of what it monitors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    tables: BTreeMap<String, BTreeMap<String, Map<String, Value>>>,
}

impl Replica {
    fn row(&mut self, table: &str, uuid: &str, row: Map<String, Value>) {
        self.tables.entry(table.to_owned()).or_default().insert(uuid.to_owned(), row);
    }

    /// Takes the initial reply of a monitor.
    ///
    /// # Errors
    /// What does not fit.
    pub fn start(&mut self, watch: &Watch, schema: &Schema, result: &Value) -> Result<(), String> {
        let updates = if watch.version == 3 { &result[2] } else { result };
        self.apply(watch, schema, updates)
    }

    /// Takes a notification, which must be of the monitor's own method.
    ///
    /// # Errors
    /// What does not fit.
    pub fn notified(
        &mut self,
        watch: &Watch,
        schema: &Schema,
        message: &Message,
    ) -> Result<(), String> {
        let method = ["update", "update2", "update3"][watch.version - 1];
        if message.value["method"] != method {
            return Err(format!("{} instead of {method}", message.value["method"]));
        }
        let at = if watch.version == 3 { 2 } else { 1 };
        self.apply(watch, schema, &message.value["params"][at])
    }

    fn apply(&mut self, watch: &Watch, schema: &Schema, updates: &Value) -> Result<(), String> {
        for (name, rows) in updates.as_object().ok_or("updates are no object")? {
            let table = schema.table(name).ok_or("unknown table")?;
            let monitored = watch.tables.get(name).ok_or("a table that is not monitored")?;
            let mine = self.tables.entry(name.clone()).or_default();
            for (uuid, update) in rows.as_object().ok_or("rows are no object")? {
                let done = match watch.version {
                    1 => apply_v1(mine, uuid, update),
                    _ => apply_v2(mine, table, monitored, uuid, update).map_err(str::to_owned),
                };
                if let Err(what) = done {
                    return Err(format!("{name} {uuid}: {what}: {update}"));
                }
            }
        }
        Ok(())
    }

    /// Compares with what the client should have.
    ///
    /// # Errors
    /// The first row that differs.
    pub fn compare(&self, expected: &Self) -> Result<(), String> {
        let nothing = BTreeMap::new();
        for name in self.tables.keys().chain(expected.tables.keys()) {
            let mine = self.tables.get(name).unwrap_or(&nothing);
            let theirs = expected.tables.get(name).unwrap_or(&nothing);
            for uuid in mine.keys().chain(theirs.keys()) {
                let (x, y) = (mine.get(uuid), theirs.get(uuid));
                if !same(&json!(x), &json!(y)) {
                    return Err(format!(
                        "{name} {uuid}:\n    composed {}\n    selected {}",
                        json!(x),
                        json!(y)
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether two values are equal, where -0 is 0: a default is not sent, and it may be either.
fn same(x: &Value, y: &Value) -> bool {
    match (x, y) {
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            let pairs =
                |(key, value): (&String, &Value)| y.get(key).is_some_and(|y| same(value, y));
            x.len() == y.len() && x.iter().all(pairs)
        }
        _ => x == y || (x.as_f64() == Some(0.0) && y.as_f64() == Some(0.0)),
    }
}

type Mine = BTreeMap<String, Map<String, Value>>;

fn apply_v1(mine: &mut Mine, uuid: &str, update: &Value) -> Result<(), String> {
    let (old, new) = (update["old"].as_object(), update["new"].as_object());
    match (mine.contains_key(uuid), old, new) {
        (false, None, Some(new)) => drop(mine.insert(uuid.to_owned(), new.clone())),
        (true, Some(_), None) => drop(mine.remove(uuid)),
        (true, Some(old), Some(new)) => {
            let had = mine.insert(uuid.to_owned(), new.clone()).unwrap_or_default();
            for (column, value) in old {
                if !had.get(column).is_some_and(|had| same(had, value)) {
                    let had = had.get(column).unwrap_or(&Value::Null);
                    return Err(format!("the old {column} is not {had} as sent before"));
                }
            }
        }
        _ => return Err("does not follow".into()),
    }
    Ok(())
}

fn apply_v2(
    mine: &mut Mine,
    table: &Table,
    monitored: &TableWatch,
    uuid: &str,
    update: &Value,
) -> Result<(), &'static str> {
    let Some((word, row)) = update.as_object().and_then(|update| update.iter().next()) else {
        return Err("no object with one member");
    };
    match (word.as_str(), mine.get_mut(uuid)) {
        ("initial" | "insert", None) => {
            let given = row.as_object().ok_or("no row")?;
            let mut row = default_row(table, monitored);
            row.extend(given.clone());
            mine.insert(uuid.to_owned(), row);
        }
        ("delete", Some(_)) if row.is_null() => drop(mine.remove(uuid)),
        ("modify", Some(had)) => {
            for (name, diff) in row.as_object().ok_or("no row")? {
                let old = had.get(name).cloned().unwrap_or_default();
                let new = match table.column(name) {
                    Some(column) if column.max > 1 => merge(column, &old, diff),
                    _ => diff.clone(),
                };
                had.insert(name.clone(), new);
            }
        }
        _ => return Err("does not follow"),
    }
    Ok(())
}

fn default_row(table: &Table, monitored: &TableWatch) -> Map<String, Value> {
    let wanted = |column: &&Column| {
        monitored.columns.as_ref().is_none_or(|columns| columns.contains(&column.name))
    };
    table
        .columns
        .iter()
        .filter(wanted)
        .map(|column| (column.name.clone(), default(column)))
        .collect()
}

/// The value of a column that is not sent.
fn default(column: &Column) -> Value {
    let atom = |atom: Atom| match atom {
        Atom::Integer | Atom::Real => json!(0),
        Atom::Boolean => json!(false),
        Atom::String => json!(""),
        Atom::Uuid => json!(["uuid", NO_TRANSACTION]),
    };
    match (&column.value, column.min) {
        (Some(_), 0) => json!(["map", []]),
        (Some(value), _) => json!(["map", [[atom(column.key.atom), atom(value.atom)]]]),
        (None, 0) => json!(["set", []]),
        (None, _) => atom(column.key.atom),
    }
}

/// The elements of a datum as (key, value); a bare atom is a set of one.
pub fn pairs(datum: &Value) -> Vec<(Value, Value)> {
    match (datum[0].as_str(), datum[1].as_array()) {
        (Some("set"), Some(elements)) => {
            elements.iter().map(|element| (element.clone(), Value::Null)).collect()
        }
        (Some("map"), Some(elements)) => {
            elements.iter().map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
        _ => vec![(datum.clone(), Value::Null)],
    }
}

/// Applies a difference: keys on one side only come or go, keys of both take the new value.
fn merge(column: &Column, old: &Value, diff: &Value) -> Value {
    let mut merged = pairs(old);
    for (key, value) in pairs(diff) {
        match merged.iter().position(|(known, _)| same(known, &key)) {
            Some(at) if same(&merged[at].1, &value) => drop(merged.remove(at)),
            Some(at) => merged[at].1 = value,
            None => merged.push((key, value)),
        }
    }
    merged.sort_by(|(x, _), (y, _)| compare_atoms(x, y));
    let is_map = column.shape() == Shape::Map;
    let one = |(key, value): (Value, Value)| if is_map { json!([key, value]) } else { key };
    let mut elements: Vec<Value> = merged.into_iter().map(one).collect();
    match (is_map, elements.len()) {
        (true, _) => json!(["map", elements]),
        (false, 1) => elements.remove(0),
        (false, _) => json!(["set", elements]),
    }
}

/// The order in which servers print atoms.
fn compare_atoms(x: &Value, y: &Value) -> std::cmp::Ordering {
    match (x, y) {
        (Value::Number(_), Value::Number(_)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or(0.0).total_cmp(&y.as_f64().unwrap_or(0.0)),
        },
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(_), Value::Array(_)) => x[1].as_str().cmp(&y[1].as_str()),
        _ => x.as_str().cmp(&y.as_str()),
    }
}
