//! The dumb twin: what a monitor is to be told, computed from whole states before and after, on
//! JSON values, by the letter of RFC 7047 §4.1.6 and ovsdb-server(7) §4.1.12 to §4.1.14.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use weir_data::Uuid;

use crate::world::{Random, State, text};

const KINDS: [&str; 4] = ["initial", "insert", "delete", "modify"];

/// What is asked of one table.
#[derive(Clone)]
pub(crate) struct Asked {
    /// By column, the kinds of event it is reported for.
    columns: BTreeMap<String, Vec<&'static str>>,
    /// Kinds selected by any request.
    select: Vec<&'static str>,
    pub(crate) clauses: Vec<Value>,
}

/// A subscription: what the server is asked, and what that means.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub is_v1: bool,
    pub(crate) tables: BTreeMap<String, Asked>,
    pub(crate) requests: Value,
}

fn columns_of(table: &str) -> &'static [&'static str] {
    match table {
        "Bridge" => &["_version", "name", "n", "tag", "ports", "words", "other", "one"],
        "Port" => &["_version", "n", "load", "up", "trunks"],
        _ => &["_version", "n"],
    }
}

/// `scalar` for columns of at most one element, else `set` or `map`.
fn shape(column: &str) -> &'static str {
    match column {
        "ports" | "words" | "trunks" => "set",
        "other" => "map",
        _ => "scalar",
    }
}

/// Values that insertions do not mention.
fn default_of(table: &str, column: &str) -> Value {
    match (table, column) {
        (_, "ports" | "trunks" | "tag") => json!(["set", []]),
        (_, "other" | "one") => json!(["map", []]),
        (_, "name" | "words") => json!(""),
        (_, "n" | "load") => json!(0),
        (_, "up") => json!(false),
        _ => json!(["uuid", "00000000-0000-0000-0000-000000000000"]),
    }
}

impl Subscription {
    pub(crate) fn random(random: &mut Random, is_v1: bool) -> Self {
        let mut tables = BTreeMap::new();
        let mut requests = Map::new();
        for table in ["Bridge", "Port", "Quiet"] {
            if random.percent(70) {
                let (asked, request) = Asked::random(random, table, is_v1);
                tables.insert(table.to_owned(), asked);
                requests.insert(table.to_owned(), request);
            }
        }
        Self { is_v1, tables, requests: Value::Object(requests) }
    }

    /// Changes some conditions; answers with the request that asks for it.
    pub(crate) fn change_conditions(&mut self, random: &mut Random) -> Value {
        let mut requests = Map::new();
        for (table, asked) in &mut self.tables {
            if random.percent(60) {
                let clauses = clauses(random, table);
                requests.insert(table.clone(), json!([{ "where": clauses }]));
                if !self.is_v1 {
                    ask_for(&mut self.requests[table], &clauses);
                    asked.clauses = clauses;
                }
            }
        }
        Value::Object(requests)
    }

    /// Whether updates tell everything there is to know of the rows and columns.
    pub(crate) fn is_complete(&self) -> bool {
        let all = |select: &Vec<&str>| select.len() == KINDS.len();
        let tables = || self.tables.values();
        tables().all(|asked| all(&asked.select) && asked.columns.values().all(all))
    }

    /// The rows and columns that a complete subscription shows.
    pub(crate) fn projection(&self, state: &State) -> State {
        let project = |(table, asked): (&String, &Asked)| {
            let rows = state[table].iter().filter(|(_, row)| asked.admits(row));
            let row = |(uuid, row): (&String, &Map<String, Value>)| {
                let columns = asked.columns.keys();
                (uuid.clone(), columns.map(|c| (c.clone(), row[c].clone())).collect())
            };
            (table.clone(), rows.map(row).collect())
        };
        self.tables.iter().map(project).collect()
    }

    pub(crate) fn initial(&self, state: &State) -> Value {
        self.updates(|table, asked| {
            let rows = state[table].iter().filter(|(_, row)| asked.admits(row));
            rows.map(|(uuid, row)| (uuid.clone(), "initial", Map::new(), row.clone())).collect()
        })
    }

    /// What changes between two states.
    pub(crate) fn changes(&self, old: &State, new: &State) -> Value {
        self.updates(|table, asked| {
            let (old, new) = (&old[table], &new[table]);
            let mut uuids: Vec<&String> = old.keys().chain(new.keys()).collect();
            uuids.sort();
            uuids.dedup();
            let nothing = Map::new();
            let event = |uuid: &String| {
                let was = old.get(uuid).filter(|row| asked.admits(row));
                let is = new.get(uuid).filter(|row| asked.admits(row));
                let kind = match (was, is) {
                    (None, None) => return None,
                    (None, Some(_)) => "insert",
                    (Some(_), None) => "delete",
                    (Some(was), Some(is)) => {
                        let mut watched = asked.columns.keys().map(String::as_str);
                        let changed = |column: &str| was[column] != is[column];
                        let watched =
                            watched.any(changed) || asked.condition_columns().any(changed);
                        if !watched {
                            return None;
                        }
                        "modify"
                    }
                };
                let old = old.get(uuid).unwrap_or(&nothing).clone();
                Some((uuid.clone(), kind, old, new.get(uuid).unwrap_or(&nothing).clone()))
            };
            uuids.into_iter().filter_map(event).collect()
        })
    }

    /// What other conditions make appear and vanish.
    pub(crate) fn condition_change(&self, before: &Self, state: &State) -> Value {
        self.updates(|table, asked| {
            let event = |(uuid, row): (&String, &Map<String, Value>)| {
                let kind = match (before.tables[table].admits(row), asked.admits(row)) {
                    (false, true) => "insert",
                    (true, false) => "delete",
                    _ => return None,
                };
                Some((uuid.clone(), kind, row.clone(), row.clone()))
            };
            state[table].iter().filter_map(event).collect()
        })
    }

    fn updates(&self, events: impl Fn(&str, &Asked) -> Vec<Event>) -> Value {
        let mut tables = Map::new();
        for (table, asked) in &self.tables {
            let mut rows = Map::new();
            for (uuid, kind, old, new) in events(table, asked) {
                if asked.select.contains(&kind) {
                    let update = asked.update(table, self.is_v1, kind, &old, &new);
                    rows.insert(uuid, update);
                }
            }
            if !rows.is_empty() {
                tables.insert(table.clone(), Value::Object(rows));
            }
        }
        Value::Object(tables)
    }
}

/// UUID, kind, the row before and after.
type Event = (String, &'static str, Map<String, Value>, Map<String, Value>);

impl Asked {
    fn random(random: &mut Random, table: &str, is_v1: bool) -> (Self, Value) {
        let mut asked = Self { columns: BTreeMap::new(), select: Vec::new(), clauses: Vec::new() };
        let is_simple = random.percent(30);
        let mut requests: Vec<Map<String, Value>> = Vec::new();
        let mut rest: Vec<&str> = columns_of(table).to_vec();
        for _ in 0..if is_simple { 1 } else { random.below(3) + 1 } {
            let mut request = Map::new();
            let mut columns: Vec<&str> = Vec::new();
            if is_simple {
                columns = std::mem::take(&mut rest);
            } else {
                rest.retain(|column| {
                    !random.percent(40) || {
                        columns.push(column);
                        false
                    }
                });
                request.insert("columns".to_owned(), json!(columns));
            }
            let mut select: Vec<&'static str> = KINDS.to_vec();
            if random.percent(40) {
                let mut flags = Map::new();
                select.retain(|kind| {
                    let is_on = random.percent(60);
                    if !is_on || random.percent(50) {
                        flags.insert((*kind).to_owned(), json!(is_on));
                    }
                    is_on
                });
                request.insert("select".to_owned(), Value::Object(flags));
            }
            for column in columns {
                asked.columns.insert(column.to_owned(), select.clone());
            }
            asked.select.extend(select);
            requests.push(request);
        }
        asked.select.sort();
        asked.select.dedup();
        if !is_v1 && random.percent(70) {
            asked.clauses = clauses(random, table);
            requests[0].insert("where".to_owned(), json!(asked.clauses));
            // Only the first request's condition counts.
            for request in &mut requests[1..] {
                request.insert("where".to_owned(), json!([false]));
            }
        }
        let request = if requests.len() == 1 && random.percent(50) {
            json!(requests[0])
        } else {
            json!(requests)
        };
        (asked, request)
    }

    fn admits(&self, row: &Map<String, Value>) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|clause| holds(clause, row))
    }

    fn condition_columns(&self) -> impl Iterator<Item = &str> {
        self.clauses.iter().filter_map(|clause| clause[0].as_str())
    }

    fn update(
        &self,
        table: &str,
        is_v1: bool,
        kind: &'static str,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) -> Value {
        let reported = self.columns.iter().filter(|(_, select)| select.contains(&kind));
        let columns: Vec<&String> = reported.map(|(column, _)| column).collect();
        let pick = |row: &Map<String, Value>, wanted: &dyn Fn(&str) -> bool| -> Value {
            let columns = columns.iter().filter(|column| wanted(column));
            Value::Object(columns.map(|c| ((*c).clone(), row[*c].clone())).collect())
        };
        let changed = |column: &str| old[column] != new[column];
        match (is_v1, kind) {
            (true, "delete") => json!({ "old": pick(old, &|_| true) }),
            (true, "modify") => json!({ "new": pick(new, &|_| true), "old": pick(old, &changed) }),
            (true, _) => json!({ "new": pick(new, &|_| true) }),
            (false, "delete") => json!({ "delete": null }),
            (false, "modify") => {
                let columns = columns.iter().filter(|column| changed(column));
                let diff = |column: &&&String| {
                    ((**column).clone(), diff(column, &old[**column], &new[**column]))
                };
                let diffs: Map<String, Value> = columns.map(|c| diff(&c)).collect();
                json!({ "modify": diffs })
            }
            (false, kind) => {
                let told = pick(new, &|column| new[column] != default_of(table, column));
                json!({ kind: told })
            }
        }
    }
}

/// Puts a condition into the first request for a table.
fn ask_for(requests: &mut Value, clauses: &[Value]) {
    let first = match requests {
        Value::Array(requests) => &mut requests[0],
        request => request,
    };
    first["where"] = json!(clauses);
}

fn clauses(random: &mut Random, table: &str) -> Vec<Value> {
    let clause = |random: &mut Random| match random.below(7) {
        0 => json!(true),
        1 => json!(false),
        2 if table == "Bridge" => json!(["name", "==", "a"]),
        3 if table == "Bridge" => json!(["words", "includes", ["set", ["a", "c"]]]),
        3 if table == "Port" => json!(["trunks", "excludes", ["set", [1, 2]]]),
        2 if table == "Port" => json!(["trunks", "excludes", random.below(4)]),
        4 if table == "Bridge" => json!(["tag", "<", 2]),
        4 if table == "Port" => json!(["up", "!=", true]),
        5 => json!(["n", "==", random.below(4)]),
        _ => {
            let functions = [">", ">=", "<", "<=", "!="];
            json!(["n", functions[random.below(5) as usize], random.below(4)])
        }
    };
    // Those that monitors are found by.
    let filed = |random: &mut Random| match random.below(6) {
        0 => json!(false),
        1 if table == "Bridge" => json!(["name", "==", "a"]),
        2 if table == "Bridge" => json!(["words", "includes", ["set", ["a", "c"]]]),
        2 if table == "Port" => json!(["trunks", "includes", random.below(4)]),
        3 if table == "Bridge" => json!(["words", "==", ["set", ["", "a"]]]),
        4 if table == "Bridge" => json!(["other", "includes", ["map", [["a", "c"]]]]),
        5 => json!(["_uuid", "==", ["uuid", text(Uuid::from_u128(u128::from(random.below(8))))]]),
        _ => json!(["n", "==", random.below(4)]),
    };
    if random.percent(50) {
        // Few, or so many that they are looked up.
        let most = if random.percent(50) { 3 } else { 12 };
        return (0..1 + random.below(most)).map(|_| filed(random)).collect();
    }
    (0..random.below(4)).map(|_| clause(random)).collect()
}

fn holds(clause: &Value, row: &Map<String, Value>) -> bool {
    if let Some(constant) = clause.as_bool() {
        return constant;
    }
    let value = &row[clause[0].as_str().expect("a column")];
    let argument = &clause[2];
    let all =
        |wanted: bool| elements(argument).iter().all(|e| elements(value).contains(e) == wanted);
    match clause[1].as_str().expect("a function") {
        "==" => value == argument,
        "!=" => value != argument,
        "<" => value.as_i64().is_some_and(|v| v < argument.as_i64().expect("an integer")),
        ">" => value.as_i64().is_some_and(|v| v > argument.as_i64().expect("an integer")),
        "<=" => value.as_i64().is_some_and(|v| v <= argument.as_i64().expect("an integer")),
        ">=" => value.as_i64().is_some_and(|v| v >= argument.as_i64().expect("an integer")),
        "includes" => all(true),
        _ => all(false),
    }
}

/// Elements of a set or pairs of a map.
fn elements(value: &Value) -> Vec<Value> {
    match value.as_array().map(Vec::as_slice) {
        Some([Value::String(tag), Value::Array(elements)]) if tag == "set" || tag == "map" => {
            elements.clone()
        }
        _ => vec![value.clone()],
    }
}

fn set(mut elements: Vec<Value>) -> Value {
    let key = |value: &Value| (value.as_i64(), value.to_string());
    elements.sort_by_key(key);
    if elements.len() == 1 { elements.remove(0) } else { json!(["set", elements]) }
}

fn map(mut pairs: Vec<Value>) -> Value {
    pairs.sort_by_key(|pair| pair[0].as_str().map(str::to_owned));
    json!(["map", pairs])
}

/// Elements that are in only one of two sets; the pairs to insert, replace and remove in a map.
fn diff(column: &str, old: &Value, new: &Value) -> Value {
    let (before, after) = (elements(old), elements(new));
    let without = |a: &[Value], b: &[Value]| -> Vec<Value> {
        a.iter().filter(|element| !b.contains(element)).cloned().collect()
    };
    match shape(column) {
        "set" => set([without(&before, &after), without(&after, &before)].concat()),
        "map" => {
            let has_key = |pairs: &[Value], pair: &Value| pairs.iter().any(|p| p[0] == pair[0]);
            let gone = before.iter().filter(|pair| !has_key(&after, pair)).cloned().collect();
            map([gone, without(&after, &before)].concat())
        }
        _ => new.clone(),
    }
}

/// Makes the changes of an update to a replica of a complete subscription's rows.
pub(crate) fn compose(replica: &mut State, asked: &Subscription, updates: &Value) {
    for (table, rows) in updates.as_object().expect("table updates") {
        let replica = replica.entry(table.clone()).or_default();
        for (uuid, update) in rows.as_object().expect("row updates") {
            let known = replica.get(uuid).cloned();
            let row = if asked.is_v1 {
                compose_v1(known, update)
            } else {
                compose_v2(table, &asked.tables[table], known, update)
            };
            match row {
                Some(row) => replica.insert(uuid.clone(), row),
                None => replica.remove(uuid),
            };
        }
    }
}

fn compose_v1(known: Option<Map<String, Value>>, update: &Value) -> Option<Map<String, Value>> {
    let part = |name: &str| update.get(name).and_then(Value::as_object);
    match (&known, part("old")) {
        (None, None) => {}
        (Some(row), Some(old)) => old.iter().for_each(|(c, v)| assert_eq!(&row[c], v, "old {c}")),
        _ => panic!("{known:?} does not fit {update}"),
    }
    part("new").cloned()
}

fn compose_v2(
    table: &str,
    asked: &Asked,
    known: Option<Map<String, Value>>,
    update: &Value,
) -> Option<Map<String, Value>> {
    let (kind, told) = update.as_object().and_then(|update| update.iter().next()).expect("a kind");
    assert_eq!(known.is_some(), kind == "modify" || kind == "delete", "{update}");
    let told = told.as_object();
    let mut row = match kind.as_str() {
        "delete" => return None,
        "modify" => known?,
        _ => asked.columns.keys().map(|c| (c.clone(), default_of(table, c))).collect(),
    };
    for (column, value) in told.expect("columns") {
        let old = row[column].clone();
        let new = if kind == "modify" { patched(column, &old, value) } else { value.clone() };
        row.insert(column.clone(), new);
    }
    Some(row)
}

fn patched(column: &str, old: &Value, diff: &Value) -> Value {
    let mut entries = elements(old);
    for element in elements(diff) {
        let same_key = |entry: &Value| match shape(column) {
            "map" => entry[0] == element[0],
            _ => *entry == element,
        };
        let known = entries.iter().position(same_key).map(|at| entries.remove(at));
        if known.as_ref() != Some(&element) {
            entries.push(element);
        }
    }
    match shape(column) {
        "set" => set(entries),
        "map" => map(entries),
        _ => diff.clone(),
    }
}
