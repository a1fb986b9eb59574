//! Keys that come and go at random, over restarts, compactions and conversions: every select is what
//! a look at all rows finds, row by row, monitors are told of the rows that their conditions ask
//! for, and what is declared is what the file beside the database's says. `keys_twin_long` does the same with all transactions in the hands of helpers.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;
use crate::shell::{PATH, Shell, key_path, transact};
use serde_json::Value;
use weir_data::KeyOrder;
use weir_server::Config;
use weir_server::event::Event;

const SEEDS: u64 = 24;
const STEPS: usize = 120;

/// Columns that are there under every schema, and one that comes and goes.
const COLUMNS: [&str; 5] = ["kind", "tag", "cost", "peers", "note"];

fn schema(has_note: bool, keys: &str) -> String {
    let note = if has_note { r#","note":{"type":"string"}"# } else { "" };
    format!(
        r#"{{"name":"Net","tables":{{"Port":{{"columns":{{"name":{{"type":"string"}},
           "kind":{{"type":"string"}},"tag":{{"type":"integer"{keys}}},"cost":{{"type":"real"}},
           "peers":{{"type":{{"key":"string","min":0,"max":"unlimited"}}}}{note}}},
           "indexes":[["name"]]}}}}}}"#
    )
}

struct World {
    shell: Shell,
    random: Chance,
    has_note: bool,
    next_port: u64,
    /// What is declared, as far as the one who declares it knows.
    declared: BTreeMap<String, KeyOrder>,
    /// How many selects were compared, and found something.
    found: usize,
    /// How many monitors were compared, and told of rows.
    told: usize,
    /// How many searches servers have made by keys that have ended since.
    by_keys: u64,
    /// How many searches for monitors indexes and keys have served there.
    of_monitors: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut file = Vec::new();
        let parsed = weir_data::Schema::parse_bytes(schema(true, "").as_bytes());
        weir_log::standalone::write_schema(&mut file, &parsed.expect("a schema"));
        Self {
            shell: Shell::start_on(file),
            random: Chance::new(seed),
            has_note: true,
            next_port: 0,
            declared: BTreeMap::new(),
            found: 0,
            told: 0,
            by_keys: 0,
            of_monitors: 0,
        }
    }

    fn call(&mut self, message: &str) -> String {
        let client = self.shell.connect();
        self.shell.call(client, message)
    }

    fn row(&mut self) -> String {
        let mut value = || self.random.below(6);
        let note = if self.has_note { format!(r#","note":"n{}""#, value()) } else { String::new() };
        format!(
            r#""kind":"k{}","tag":{},"cost":{}.5,"peers":["set",["a{}","b{}"]]{note}"#,
            value(),
            value(),
            value(),
            value(),
            value()
        )
    }

    fn transaction(&mut self) {
        let mut operations = Vec::new();
        for _ in 0..=self.random.below(5) {
            let (row, clause) = (self.row(), self.clause());
            operations.push(match self.random.below(5) {
                0 | 1 => {
                    self.next_port += 1;
                    let name = self.next_port;
                    format!(r#"{{"op":"insert","table":"Port","row":{{"name":"p{name}",{row}}}}}"#)
                }
                2 => format!(
                    r#"{{"op":"update","table":"Port","where":[{clause}],"row":{{{row}}}}}"#
                ),
                3 => format!(
                    r#"{{"op":"mutate","table":"Port","where":[{clause}],
                       "mutations":[["tag","+=",1],["peers","delete","a1"]]}}"#
                ),
                _ => format!(r#"{{"op":"delete","table":"Port","where":[{clause}]}}"#),
            });
        }
        if self.random.below(6) == 0 {
            operations.push(r#"{"op":"abort"}"#.to_owned());
        }
        let message = transact(1, &operations.join(","));
        let reply = self.call(&message);
        assert!(reply.contains("\"result\":["), "{reply}");
    }

    fn clause(&mut self) -> String {
        let value = self.random.below(6);
        let order = ["<", "<=", ">", ">=", "=="][self.random.below(5)];
        match self.random.below(if self.has_note { 5 } else { 4 }) {
            0 => format!(r#"["kind","==","k{value}"]"#),
            1 => format!(r#"["tag","{order}",{value}]"#),
            2 => format!(r#"["cost","{order}",{value}.5]"#),
            3 => format!(r#"["peers","includes","a{value}"]"#),
            _ => format!(r#"["note","==","n{value}"]"#),
        }
    }

    /// An operator adds or drops a key.
    fn command(&mut self) {
        let column = COLUMNS[self.random.below(5)];
        let is_there = self.has_note || column != "note";
        let args = ["Net", "Port", column];
        if self.random.below(2) == 0 {
            let reply = self.shell.command("index/drop", &args);
            let is_gone = matches!(reply, Some(Ok(_)));
            assert_eq!(is_gone, self.declared.remove(column).is_some(), "{column}: {reply:?}");
            return;
        }
        let order = match (column, self.random.below(3)) {
            ("tag" | "cost", 1) => KeyOrder::Ascending,
            ("tag" | "cost", 2) => KeyOrder::Descending,
            _ => KeyOrder::Hash,
        };
        let args = [&args[..], &[order.name()]].concat();
        let reply = self.shell.command("index/add", &args);
        assert_eq!(matches!(reply, Some(Ok(_))), is_there, "{column}: {reply:?}");
        if is_there {
            self.declared.insert(column.to_owned(), order);
        }
    }

    fn convert(&mut self) {
        self.has_note = self.random.below(2) == 0;
        let (keys, tag) = match self.random.below(4) {
            0 => (r#","alternate_key":true,"order":"desc""#, Some(Some(KeyOrder::Descending))),
            1 => (r#","alternate_key":false"#, Some(None)),
            _ => ("", None),
        };
        let schema = schema(self.has_note, keys);
        let reply =
            self.call(&format!(r#"{{"id":1,"method":"convert","params":["Net",{schema}]}}"#));
        assert_eq!(reply, r#"{"id":1,"result":{},"error":null}"#);
        match tag {
            Some(Some(order)) => drop(self.declared.insert("tag".to_owned(), order)),
            Some(None) => drop(self.declared.remove("tag")),
            None => {}
        }
    }

    /// The process is killed, and another one finds what is on the disk.
    fn restart(&mut self) {
        self.note_ended();
        let files = self.shell.files.clone();
        let file = files[PATH].clone();
        self.shell = Shell::start_on_files(file, files, Config::default());
    }

    /// A server ends, and takes its counters with it.
    fn note_ended(&mut self) {
        let counts: BTreeMap<&str, u64> = self.shell.server.query_counts().into_iter().collect();
        self.by_keys += counts["query_alternate"] + counts["query_inverted"];
        self.of_monitors += counts["monitor_indexed"];
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0 | 1 => self.convert(),
            2 | 3 => self.restart(),
            4 | 5 => {
                let reply = self.shell.command("ovsdb-server/compact", &["Net"]);
                assert_eq!(reply, Some(Ok(String::new())));
            }
            6..=11 => self.command(),
            _ => self.transaction(),
        }
    }

    /// All rows, as the server has them in its order.
    fn all(&mut self) -> Vec<Value> {
        self.rows("")
    }

    fn rows(&mut self, clause: &str) -> Vec<Value> {
        let select = format!(r#"{{"op":"select","table":"Port","where":[{clause}]}}"#);
        let reply = self.call(&transact(1, &select));
        let mut reply: Value = serde_json::from_str(&reply).expect("JSON");
        let Value::Array(rows) = reply["result"][0]["rows"].take() else { panic!("{reply}") };
        rows
    }

    fn check(&mut self) {
        let all = self.all();
        for _ in 0..3 {
            let clause = self.clause();
            let parsed: Value = serde_json::from_str(&clause).expect("JSON");
            let expected: Vec<&Value> = all.iter().filter(|row| matches(row, &parsed)).collect();
            let found = self.rows(&clause);
            assert!(found.iter().eq(expected), "{clause}");
            self.found += usize::from(!found.is_empty());
        }
        self.check_monitor(&all);
        self.check_declared();
    }

    /// A condition of a monitor, of which any clause will do, and the rows that satisfy it.
    fn condition(&mut self, all: &[Value]) -> (String, BTreeSet<String>) {
        let clauses: Vec<String> = (0..=self.random.below(3)).map(|_| self.clause()).collect();
        let parsed: Vec<Value> =
            clauses.iter().map(|clause| serde_json::from_str(clause).expect("JSON")).collect();
        let is_wanted = |row: &&Value| parsed.iter().any(|clause| matches(row, clause));
        let uuid = |row: &Value| row["_uuid"][1].as_str().expect("a UUID").to_owned();
        (clauses.join(","), all.iter().filter(is_wanted).map(uuid).collect())
    }

    /// The first rows of a monitor, and those that another condition brings and takes.
    fn check_monitor(&mut self, all: &[Value]) {
        let client = self.shell.connect();
        let (clauses, wanted) = self.condition(all);
        let monitor = format!(
            r#"{{"id":1,"method":"monitor_cond","params":["Net","m",
               {{"Port":[{{"columns":["name"],"where":[{clauses}]}}]}}]}}"#
        );
        let reply: Value = serde_json::from_str(&self.shell.call(client, &monitor)).expect("JSON");
        let rows = reply["result"]["Port"].as_object().into_iter().flatten();
        let mut has: BTreeSet<String> = rows.map(|(uuid, _)| uuid.clone()).collect();
        assert_eq!(has, wanted, "{clauses}");
        let (other, wanted) = self.condition(all);
        let change = format!(
            r#"{{"id":2,"method":"monitor_cond_change","params":["m","m",{{"Port":[{{"where":[{other}]}}]}}]}}"#
        );
        self.shell.send(client, &change);
        self.shell.settle();
        for message in self.shell.received(client) {
            let message: Value = serde_json::from_str(&message).expect("JSON");
            for (uuid, row) in message["params"][1]["Port"].as_object().into_iter().flatten() {
                let is_new = row.get("insert").is_some();
                let has_changed = if is_new { has.insert(uuid.clone()) } else { has.remove(uuid) };
                assert!(has_changed, "{clauses} to {other}: {message}");
            }
        }
        assert_eq!(has, wanted, "{clauses} to {other}");
        self.told += usize::from(!has.is_empty());
        self.shell.event(Event::Closed { session: client, error: None });
    }

    fn check_declared(&mut self) {
        let kept = self
            .shell
            .files
            .get(&key_path(PATH))
            .map(|bytes| weir_log::key_file::read(bytes, "Net").expect("the server wrote it"));
        let kept: BTreeMap<String, KeyOrder> = kept
            .iter()
            .flat_map(weir_data::DeclaredKeys::iter)
            .map(|(_, column, order)| (column.to_owned(), order))
            .collect();
        assert_eq!(kept, self.declared);
        let Some(Ok(listed)) = self.shell.command("index/list", &["Net"]) else {
            panic!("no list")
        };
        let lines = listed.lines().skip(1).filter(|line| line.contains("declared"));
        let mut listed = BTreeMap::new();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let order = words.iter().find_map(|word| match *word {
                "asc" => Some(KeyOrder::Ascending),
                "desc" => Some(KeyOrder::Descending),
                _ => None,
            });
            let is_there = self.has_note || words[2] != "note";
            assert_eq!(line.contains(" ready "), is_there, "{line}");
            listed.insert(words[2].to_owned(), order.unwrap_or(KeyOrder::Hash));
        }
        assert_eq!(listed, self.declared);
    }
}

/// Whether a row satisfies one of the clauses of [`World::clause`].
fn matches(row: &Value, clause: &Value) -> bool {
    let (value, wanted) = (&row[clause[0].as_str().expect("a column")], &clause[2]);
    let function = clause[1].as_str().expect("a function");
    let ordering = match (value.as_f64(), wanted.as_f64()) {
        (Some(value), Some(wanted)) => value.partial_cmp(&wanted),
        _ => None,
    };
    match function {
        "==" => value == wanted,
        "<" => ordering.is_some_and(std::cmp::Ordering::is_lt),
        "<=" => ordering.is_some_and(std::cmp::Ordering::is_le),
        ">" => ordering.is_some_and(std::cmp::Ordering::is_gt),
        ">=" => ordering.is_some_and(std::cmp::Ordering::is_ge),
        // A set of one is written as its element.
        _ => value == wanted || value[1].as_array().is_some_and(|set| set.contains(wanted)),
    }
}

#[test]
fn keys_are_right_at_every_point() {
    let (mut found, mut told, mut by_keys, mut of_monitors) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..20 {
            world.transaction();
        }
        for _ in 0..STEPS {
            world.step();
            world.check();
        }
        found += world.found;
        world.note_ended();
        told += world.told;
        by_keys += world.by_keys;
        of_monitors += world.of_monitors;
    }
    assert!(found > 2_000 && told > 2_000, "{found} selects, {told} monitors found something");
    if !env!("CARGO_CRATE_NAME").ends_with("_long") {
        assert!(by_keys > 500 && of_monitors > 150, "{by_keys}, of monitors {of_monitors} by keys");
    }
}
