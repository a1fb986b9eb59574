//! A server with one database, as simple as can be: each state is kept whole, and what a monitor is
//! told is the difference of what it may see of two of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub(crate) const NAME: &str = "D";
const NO_ID: &str = "00000000-0000-0000-0000-000000000000";
const UNKNOWN: &str = "unknown method";

/// The values of a row that are not 0.
pub(crate) type Row = BTreeMap<String, i64>;
/// Rows by table and UUID.
pub(crate) type Rows = BTreeMap<(String, String), Row>;

/// The database at one moment. A table `T` always has the columns `x` and `y`.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// There is a column `z` in `T`, too.
    pub(crate) has_z: bool,
    /// There is a table `U`, with a column `x`.
    pub(crate) has_u: bool,
    pub(crate) rows: Rows,
}

impl State {
    pub(crate) fn columns(&self, table: &str) -> &'static [&'static str] {
        match (table, self.has_z, self.has_u) {
            ("T", true, _) => &["x", "y", "z"],
            ("T", false, _) => &["x", "y"],
            ("U", _, true) => &["x"],
            _ => &[],
        }
    }

    pub(crate) fn schema(&self) -> String {
        let columns = |table: &str| -> Map<String, Value> {
            let columns = self.columns(table).iter();
            columns.map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect()
        };
        let mut schema = json!({"name": NAME, "version": "1.0.0",
            "tables": {"T": {"columns": columns("T")}}});
        if self.has_u {
            schema["tables"]["U"] = json!({"columns": columns("U")});
        }
        schema.to_string()
    }

    /// What somebody may see who wants these columns of rows for which any of these clauses holds.
    pub(crate) fn view(&self, of: &BTreeMap<String, Shown>) -> Rows {
        let shown = self.rows.iter().filter_map(|((table, id), row)| {
            let Shown { columns, clauses } = of.get(table)?;
            let columns = row.iter().filter(|(name, _)| columns.contains(name));
            let shown = columns.map(|(name, value)| (name.clone(), *value)).collect();
            holds(clauses, row).then(|| ((table.clone(), id.clone()), shown))
        });
        shown.collect()
    }
}

/// What is shown of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) columns: Vec<String>,
    pub(crate) clauses: Vec<Value>,
}

fn holds(clauses: &[Value], row: &Row) -> bool {
    clauses.is_empty()
        || clauses.iter().any(|clause| match clause {
            Value::Bool(is_true) => *is_true,
            clause => {
                let value = row.get(clause[0].as_str().expect("a column")).copied().unwrap_or(0);
                // No server takes anything else, so nobody has rows of it.
                let Some(than) = clause[2].as_i64() else { return false };
                match clause[1].as_str() {
                    Some("==") => value == than,
                    Some("<") => value < than,
                    other => panic!("{other:?}"),
                }
            }
        })
}

/// What a server is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A server of ours: an empty difference of conditions is told with its id.
    Ours,
    /// A packaged one in a cluster: an empty difference is not told, and a refused change may have
    /// been made for some tables.
    Packaged,
    /// One whose states have no ids.
    Standalone,
    /// One without `monitor_cond_since` and `_Server`.
    Old,
    /// One that knows `monitor` only.
    Oldest,
}

#[derive(Debug)]
struct Monitor {
    name: Value,
    shown: BTreeMap<String, Shown>,
    /// What it has been told.
    told: Rows,
    /// `update3` and so on.
    method: &'static str,
}

/// The server, and its only connection.
#[derive(Debug)]
pub(crate) struct Server {
    /// All states that there have been.
    pub(crate) states: Vec<State>,
    pub(crate) kind: Kind,
    /// From which state on it knows what has changed.
    oldest: usize,
    monitor: Option<Monitor>,
    server_monitor: Option<Value>,
    /// What it has said that has not been heard.
    pub(crate) said: Vec<Value>,
    /// How many answers were of some kind.
    pub(crate) resumed: usize,
    pub(crate) refused: usize,
    pub(crate) silent: usize,
}

impl Server {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            states: vec![State::default()],
            kind,
            oldest: 0,
            monitor: None,
            server_monitor: None,
            said: vec![],
            resumed: 0,
            refused: 0,
            silent: 0,
        }
    }

    pub(crate) fn now(&self) -> &State {
        self.states.last().expect("there is a state")
    }

    /// The connection has ended.
    pub(crate) fn disconnect(&mut self) {
        (self.monitor, self.server_monitor) = (None, None);
        self.said.clear();
    }

    /// The database has another state.
    pub(crate) fn commit(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.now().clone();
        change(&mut state);
        self.states.push(state);
    }

    /// The states before this one are forgotten.
    pub(crate) fn forget(&mut self) {
        self.oldest = self.states.len() - 1;
    }

    /// Other tables; false if the connection ends by it.
    pub(crate) fn convert(&mut self, has_z: bool, has_u: bool) -> bool {
        self.commit(|state| {
            (state.has_z, state.has_u) = (has_z, has_u);
            for ((table, _), row) in &mut state.rows {
                row.retain(|column, _| table != "T" || column != "z" || has_z);
            }
            state.rows.retain(|(table, _), _| table != "U" || has_u);
        });
        self.forget();
        let Some(name) = &self.server_monitor else { return false };
        if let Some(monitor) = self.monitor.take() {
            self.said
                .push(json!({"id": null, "method": "monitor_canceled", "params": [monitor.name]}));
        }
        let row = json!({"modify": {"schema": self.now().schema()}});
        let params = json!([name, {"Database": {"d": row}}]);
        self.said.push(json!({"id": null, "method": "update2", "params": params}));
        true
    }

    fn id(&self, place: usize) -> String {
        match self.kind {
            Kind::Ours | Kind::Packaged => format!("00000000-0000-4000-8000-{:012x}", place + 1),
            _ => NO_ID.to_owned(),
        }
    }

    /// Tells what has changed.
    pub(crate) fn flush(&mut self) {
        let Some(monitor) = &mut self.monitor else { return };
        let state = self.states.last().expect("there is a state");
        let rows = state.view(&monitor.shown);
        let is_old = monitor.method == "update";
        let difference = difference(&monitor.told, &rows, is_old);
        monitor.told = rows;
        if !difference.is_empty() {
            self.say_update(difference);
        }
    }

    fn say_update(&mut self, difference: Map<String, Value>) {
        let id = self.id(self.states.len() - 1);
        let monitor = self.monitor.as_ref().expect("there is a monitor");
        let params = match monitor.method {
            "update3" => json!([monitor.name, id, difference]),
            _ => json!([monitor.name, difference]),
        };
        self.said.push(json!({"id": null, "method": monitor.method, "params": params}));
    }

    /// Answers a request.
    pub(crate) fn serve(&mut self, request: &Value) {
        let (method, params) = (request["method"].as_str().expect("a request"), &request["params"]);
        let reply = match method {
            "get_schema" if params[0] == "_Server" => {
                self.has_server_db().then(|| json!({})).ok_or_else(unknown_db)
            }
            "get_schema" => Ok(serde_json::from_str(&self.now().schema()).expect("JSON")),
            "monitor_cond" if params[0] == "_Server" => {
                self.server_monitor = Some(params[1].clone());
                let row = json!({"name": NAME, "model": "clustered", "connected": true,
                    "leader": true, "schema": self.now().schema()});
                Ok(json!({"Database": {"d": {"initial": row}}}))
            }
            "weir_features" if self.kind == Kind::Ours => Ok(json!(["weir_features"])),
            "monitor_cond_since" if self.has_server_db() => self.begin(params, "update3"),
            "monitor_cond" if self.kind != Kind::Oldest => self.begin(params, "update2"),
            "monitor" => self.begin(params, "update"),
            "monitor_cond_change" if self.kind != Kind::Oldest => self.change(params),
            "monitor_cancel" => {
                self.monitor = self.monitor.take().filter(|monitor| monitor.name != params[0]);
                Ok(json!({}))
            }
            _ => Err(json!(UNKNOWN)),
        };
        let (result, error) = match reply {
            Ok(result) => (result, Value::Null),
            Err(error) => (Value::Null, error),
        };
        self.said.push(json!({"id": request["id"], "result": result, "error": error}));
    }

    fn has_server_db(&self) -> bool {
        !matches!(self.kind, Kind::Old | Kind::Oldest)
    }

    fn begin(&mut self, params: &Value, method: &'static str) -> Result<Value, Value> {
        let mut shown = BTreeMap::new();
        for (table, request) in params[2].as_object().expect("tables") {
            let columns = request[0]["columns"].as_array().expect("columns").iter();
            let columns = columns.map(|name| name.as_str().expect("a name").to_owned()).collect();
            let clauses = self.clauses(table, &request[0]["where"])?;
            shown.insert(table.clone(), Shown { columns, clauses });
        }
        let rows = self.now().view(&shown);
        let newest = self.states.len() - 1;
        let place = (self.oldest..=newest).find(|place| json!(self.id(*place)) == params[3]);
        let is_old = method == "update";
        let found = place.filter(|_| method == "update3" && self.id(0) != NO_ID);
        let result = match found {
            Some(place) => {
                self.resumed += 1;
                json!([
                    true,
                    self.id(newest),
                    difference(&self.states[place].view(&shown), &rows, false)
                ])
            }
            None => {
                let all = difference(&Rows::new(), &rows, is_old);
                if method == "update3" { json!([false, self.id(newest), all]) } else { json!(all) }
            }
        };
        let name = params[1].clone();
        self.monitor = Some(Monitor { name, shown, told: rows, method });
        Ok(result)
    }

    fn change(&mut self, params: &Value) -> Result<Value, Value> {
        if self.monitor.as_ref().is_none_or(|monitor| monitor.name != params[0]) {
            return Err(json!({"error": "syntax error", "details": "unknown monitor session"}));
        }
        let mut changes = vec![];
        for (table, request) in params[2].as_object().expect("tables") {
            match self.clauses(table, &request[0]["where"]) {
                Ok(clauses) => {
                    self.bear(table, &clauses);
                    changes.push((table.clone(), clauses));
                }
                Err(error) => {
                    self.refused += 1;
                    if self.kind == Kind::Packaged {
                        self.show(changes);
                    }
                    return Err(error);
                }
            }
        }
        self.flush();
        self.show(changes);
        let monitor = self.monitor.as_mut().expect("it was looked up");
        monitor.name = params[1].clone();
        let rows = self.states.last().expect("there is a state").view(&monitor.shown);
        let difference = difference(&monitor.told, &rows, false);
        monitor.told = rows;
        match difference.is_empty() && self.kind != Kind::Ours {
            true => self.silent += 1,
            false => self.say_update(difference),
        }
        Ok(json!({}))
    }

    /// Packaged servers end by a condition on a column that the monitor did not ask for.
    fn bear(&self, table: &str, clauses: &[Value]) {
        let shown = &self.monitor.as_ref().expect("it was looked up").shown[table];
        let is_shown = |clause: &Value| {
            clause[0].as_str().is_none_or(|name| shown.columns.iter().any(|shown| shown == name))
        };
        assert!(self.kind == Kind::Ours || clauses.iter().all(is_shown), "the server ends");
    }

    fn show(&mut self, changes: Vec<(String, Vec<Value>)>) {
        let monitor = self.monitor.as_mut().expect("it was looked up");
        for (table, clauses) in changes {
            monitor.shown.get_mut(&table).expect("the table is monitored").clauses = clauses;
        }
    }

    /// The clauses of a condition, if they make sense under the present schema.
    fn clauses(&self, table: &str, condition: &Value) -> Result<Vec<Value>, Value> {
        let clauses = condition.as_array().cloned().unwrap_or_default();
        let columns = self.now().columns(table);
        let is_there =
            |clause: &Value| clause[0].as_str().is_none_or(|name| columns.contains(&name));
        let is_number = |clause: &Value| clause.is_boolean() || clause[2].is_i64();
        if columns.is_empty() || !clauses.iter().all(is_there) {
            return Err(json!({"error": "unknown column", "details": "or table"}));
        }
        if !clauses.iter().all(is_number) {
            return Err(json!({"error": "syntax error", "details": "expected integer"}));
        }
        Ok(clauses)
    }
}

fn unknown_db() -> Value {
    json!({"error": "unknown database", "details": "unknown database"})
}

/// What makes one view of another one: `<table-updates>`, or `<table-updates2>`.
fn difference(before: &Rows, after: &Rows, is_old: bool) -> Map<String, Value> {
    let mut updates: Map<String, Value> = Map::new();
    let mut say = |(table, id): &(String, String), update: Value| {
        updates.entry(table).or_insert_with(|| json!({}))[id] = update;
    };
    for (key, row) in before {
        match after.get(key) {
            None if is_old => say(key, json!({"old": row})),
            None => say(key, json!({"delete": null})),
            Some(new) if new == row => {}
            Some(new) if is_old => say(key, json!({"old": row, "new": new})),
            Some(new) => {
                let names = row.keys().chain(new.keys());
                let changed = names.filter(|name| row.get(*name) != new.get(*name));
                let value = |name: &String| new.get(name).copied().unwrap_or(0);
                let values: Row = changed.map(|name| (name.clone(), value(name))).collect();
                say(key, json!({"modify": values}));
            }
        }
    }
    for (key, row) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        say(key, if is_old { json!({"new": row}) } else { json!({"insert": row}) });
    }
    updates
}
