//! Declared keys of a whole server: the tools, the files, stock programs in between, `kill -9`, and
//! what an operator sees.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Running, Scratch, WEIR, err, eventually, out, reference};
use serde_json::{Value, json};
use weir_testkit::client::Client;
use weir_testkit::rng::Rng;

/// A schema as the stock tools take it, and with what they do not know.
fn schema(is_plain: bool) -> String {
    let key = if is_plain { "" } else { r#","alternate_key":true,"order":"asc""# };
    format!(
        r#"{{"name":"Net","version":"1.0.0","tables":{{"Port":{{"columns":{{
            "name":{{"type":"string"}},"tag":{{"type":"integer"{key}}}}},"indexes":[["name"]]}}}}}}"#
    )
}

fn create(scratch: &Scratch) {
    scratch.write("keys.ovsschema", &schema(false));
    scratch.write("plain.ovsschema", &schema(true));
    let created = scratch.run(WEIR, &["tool", "create", "net.db", "keys.ovsschema"]);
    assert!(created.status.success() && err(&created).is_empty(), "{}", err(&created));
}

fn serve(scratch: &Scratch, program: &Path) -> Running {
    // Those of a server that was killed are there yet, and the new one opens the second behind the first.
    let sockets = ["s.sock", "ctl"].map(|name| scratch.path(name));
    sockets.iter().for_each(|socket| _ = fs::remove_file(socket));
    let mut command: Command = scratch.command(program);
    command.args(["--remote=punix:s.sock", "--unixctl=ctl", "-vconsole:off", "net.db"]);
    let server = Running::start(&mut command);
    let listens = |socket: &PathBuf| UnixStream::connect(socket).is_ok();
    eventually("the server listens", || sockets.iter().all(listens));
    server
}

fn kill(mut server: Running) {
    let killed = Command::new("kill").args(["-9", &server.pid().to_string()]).status();
    assert!(killed.expect("kill(1)").success());
    server.wait();
}

fn admin(scratch: &Scratch, args: &[&str]) -> String {
    let ctl = scratch.text("ctl");
    let told = scratch.run(WEIR, &[&["appctl", "-t", &ctl], args].concat());
    assert!(told.status.success(), "{args:?}: {}", err(&told));
    out(&told)
}

/// Column, kind, and who wants it, of all keys, once all are built.
fn keys(scratch: &Scratch) -> Vec<String> {
    let list = || admin(scratch, &["index/list", "Net"]);
    eventually("keys are built", || !list().contains("building"));
    let shown = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[2..words.len() - 4].join(" ")
    };
    list().lines().skip(1).map(shown).collect()
}

fn insert(scratch: &Scratch, tags: std::ops::Range<u64>) {
    let mut client = Client::connect(&scratch.path("s.sock")).expect("a connection");
    let row = |tag: u64| json!({"name": format!("p{tag}"), "tag": tag});
    let insert = |tag| json!({"op": "insert", "table": "Port", "row": row(tag)});
    let operations: Vec<Value> = tags.map(insert).collect();
    client.transact("Net", &operations).expect("an insertion");
}

/// How many ports have at least this tag.
fn count(scratch: &Scratch, tag: u64) -> usize {
    let mut client = Client::connect(&scratch.path("s.sock")).expect("a connection");
    let select = json!({"op": "select", "table": "Port", "where": [["tag", ">=", tag]]});
    let reply = client.transact("Net", &[select]).expect("rows");
    reply[0]["rows"].as_array().map_or(0, Vec::len)
}

#[test]
fn keys_are_there_whoever_had_the_file_in_between() {
    let scratch = Scratch::new();
    create(&scratch);
    let file = fs::read_to_string(scratch.path("net.db")).expect("a file");
    assert!(!file.contains("alternate_key"), "{file}");
    let ours = scratch.link("ovsdb-server");
    let server = serve(&scratch, &ours);
    assert_eq!(keys(&scratch), ["tag ordered declared, asc"]);
    insert(&scratch, 0..50);
    assert_eq!(count(&scratch, 45), 5);
    admin(&scratch, &["index/add", "Net", "Port", "name"]);
    kill(server);
    let both = ["name hash declared", "tag ordered declared, asc"];
    let mut rows = 50;
    // What the stock programs do with the file, where they are installed.
    let tool = |args: &[&str]| {
        let Some(tool) = reference("ovsdb-tool") else { return };
        let done = scratch.run(tool, args);
        assert!(done.status.success(), "{}", err(&done));
    };
    tool(&["compact", "net.db"]);
    let server = serve(&scratch, &ours);
    assert_eq!(keys(&scratch), both);
    assert_eq!(count(&scratch, 45), 5);
    kill(server);
    if let Some(theirs) = reference("ovsdb-server") {
        let server = serve(&scratch, &theirs);
        insert(&scratch, 50..60);
        rows = 60;
        kill(server);
    }
    tool(&["convert", "net.db", "plain.ovsschema"]);
    let server = serve(&scratch, &ours);
    assert_eq!(keys(&scratch), both);
    assert_eq!(count(&scratch, 45), rows - 45);
    admin(&scratch, &["index/drop", "Net", "Port", "tag"]);
    kill(server);
    let server = serve(&scratch, &ours);
    assert_eq!(keys(&scratch), ["name hash declared"]);
    kill(server);
    // Our tool's conversion follows its schema; one that says nothing of keys changes none.
    for (schema, expected) in [("plain.ovsschema", &both[..1]), ("keys.ovsschema", &both)] {
        let converted = scratch.run(WEIR, &["tool", "convert", "net.db", schema]);
        assert!(converted.status.success() && err(&converted).is_empty(), "{}", err(&converted));
        let server = serve(&scratch, &ours);
        assert_eq!(keys(&scratch), expected);
        kill(server);
    }
}

#[test]
fn a_client_that_converts_declares_what_its_schema_says() {
    let scratch = Scratch::new();
    scratch.write("plain.ovsschema", &schema(true));
    scratch.write("keys.ovsschema", &schema(false));
    let none = schema(false).replace("true", "false");
    scratch.write("none.ovsschema", &none);
    let run = |program: &str, args: &[&str]| {
        let done = scratch.run(program, args);
        assert!(done.status.success() && err(&done).is_empty(), "{args:?}: {}", err(&done));
        out(&done)
    };
    run(WEIR, &["tool", "create", "net.db", "plain.ovsschema"]);
    let ours = scratch.link("ovsdb-server");
    let server = serve(&scratch, &ours);
    assert!(keys(&scratch).is_empty());
    let socket = format!("unix:{}", scratch.text("s.sock"));
    let convert = |schema: &str| run(WEIR, &["client", "convert", &socket, schema]);
    let tag = ["tag ordered declared, asc"];
    // One that says nothing of keys leaves them alone.
    for (schema, expected) in
        [("keys.ovsschema", &tag[..]), ("plain.ovsschema", &tag), ("none.ovsschema", &[])]
    {
        convert(schema);
        assert_eq!(keys(&scratch), expected, "{schema}");
        let seen = run(WEIR, &["client", "get-schema", &socket, "Net"]);
        assert!(!seen.contains("alternate_key") && seen.contains("tag"), "{seen}");
    }
    convert("keys.ovsschema");
    kill(server);
    let server = serve(&scratch, &ours);
    assert_eq!(keys(&scratch), tag);
    kill(server);
}

#[test]
fn a_stock_server_says_which_member_of_a_schema_it_does_not_know() {
    let (Some(theirs), Some(tool)) = (reference("ovsdb-server"), reference("ovsdb-tool")) else {
        return;
    };
    let scratch = Scratch::new();
    scratch.write("plain.ovsschema", &schema(true));
    scratch.write("keys.ovsschema", &schema(false));
    let created = scratch.run(tool, &["create", "net.db", "plain.ovsschema"]);
    assert!(created.status.success(), "{}", err(&created));
    let server = serve(&scratch, &theirs);
    let socket = format!("unix:{}", scratch.text("s.sock"));
    let refused = scratch.run(WEIR, &["client", "convert", &socket, "keys.ovsschema"]);
    assert!(!refused.status.success() && err(&refused).contains("'alternate_key'"), "{refused:?}");
    kill(server);
}

#[test]
fn an_operator_sees_keys_and_what_they_do() {
    let scratch = Scratch::new();
    create(&scratch);
    let server = serve(&scratch, &scratch.link("ovsdb-server"));
    insert(&scratch, 0..50);
    assert_eq!(keys(&scratch), ["tag ordered declared, asc"]);
    assert_eq!((count(&scratch, 48), count(&scratch, 0)), (2, 50));
    // One came by the key; for the other, all rows were looked at.
    let shown = admin(&scratch, &["coverage/show"]);
    for (name, total) in [("query_alternate", 1), ("query_linear", 1)] {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line.ends_with(&format!(" total: {total}")), "{shown}");
        assert_eq!(admin(&scratch, &["coverage/read-counter", name]).trim(), total.to_string());
    }
    let ctl = scratch.text("ctl");
    let screen = out(&scratch.run(WEIR, &["status", "-t", &ctl]));
    let line = screen.lines().find(|line| line.starts_with("Net Port tag ")).unwrap_or_default();
    assert!(line.contains("ordered") && line.trim_end().ends_with("ready"), "{screen}");
    let status = out(&scratch.run(WEIR, &["status", "--json", "-t", &ctl]));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let mut databases = status["databases"].as_array().expect("databases").iter();
    let key = &databases.find(|db| db["name"] == "Net").expect("it is served")["keys"][0];
    assert_eq!(
        (&key["column"], &key["entries"], &key["rows_saved"]),
        (&json!("tag"), &json!(50), &json!(48))
    );
    assert!(key["bytes"].as_i64() > Some(0), "{key}");
    kill(server);
}

/// A file that servers and tools of both sides have in turn, and what is declared for it.
struct Story {
    scratch: Scratch,
    random: Rng,
    server: Option<Running>,
    has_note: bool,
    next_port: u64,
    declared: Declared,
    /// How often keys had served when it was looked.
    by_keys: u64,
}

/// The order of each column that is declared.
type Declared = BTreeMap<&'static str, &'static str>;

const COLUMNS: [&str; 4] = ["kind", "note", "peers", "tag"];

impl Story {
    fn begin(seed: u64) -> Self {
        let mut story = Self {
            scratch: Scratch::new(),
            random: Rng::new(seed),
            server: None,
            has_note: true,
            next_port: 0,
            declared: Declared::new(),
            by_keys: 0,
        };
        story.write_schema("");
        story.tool(Path::new(WEIR), &["tool", "create", "net.db", "it.ovsschema"]);
        story.reopen();
        story
    }

    /// Puts a schema into a file, with or without the column that comes and goes; `keys` is what it
    /// says of `tag`.
    fn write_schema(&mut self, keys: &str) {
        let note = if self.has_note { r#","note":{"type":"string"}"# } else { "" };
        let text = format!(
            r#"{{"name":"Net","version":"1.0.0","tables":{{"Port":{{"columns":{{
               "name":{{"type":"string"}},"kind":{{"type":"string"}},"tag":{{"type":"integer"{keys}}},
               "peers":{{"type":{{"key":"string","min":0,"max":"unlimited"}}}}{note}}},
               "indexes":[["name"]]}}}}}}"#
        );
        self.scratch.write("it.ovsschema", &text);
    }

    fn tool(&self, program: &Path, args: &[&str]) {
        let done = self.scratch.run(program, args);
        assert!(done.status.success(), "{args:?}: {}", err(&done));
    }

    fn kill(&mut self) {
        kill(self.server.take().expect("it runs"));
    }

    fn reopen(&mut self) {
        self.server = Some(serve(&self.scratch, &self.scratch.link("ovsdb-server")));
    }

    fn client(&self) -> Client {
        Client::connect(&self.scratch.path("s.sock")).expect("a connection")
    }

    fn row(&mut self) -> Value {
        let mut n = || self.random.below(5);
        let (kind, tag, peers) = (n(), n(), [format!("a{}", n()), format!("b{}", n())]);
        let mut row = json!({"kind": format!("k{kind}"), "tag": tag, "peers": ["set", peers]});
        if self.has_note {
            row["note"] = json!(format!("n{}", n()));
        }
        row
    }

    fn transaction(&mut self) -> Vec<Value> {
        let mut operations = vec![];
        for _ in 0..1 + self.random.below(30) {
            let mut row = self.row();
            self.next_port += 1;
            row["name"] = json!(format!("p{}", self.next_port));
            operations.push(json!({"op": "insert", "table": "Port", "row": row}));
        }
        let (clause, row) = (self.clause(), self.row());
        operations.push(json!({"op": "update", "table": "Port", "where": [clause], "row": row}));
        let both = [self.clause(), self.clause()];
        operations.push(json!({"op": "delete", "table": "Port", "where": both}));
        operations
    }

    fn clause(&mut self) -> Value {
        let n = self.random.below(5);
        match self.random.below(if self.has_note { 4 } else { 3 }) {
            0 => json!(["kind", "==", format!("k{n}")]),
            1 => {
                let function = [">=", "<", "=="][self.random.below(3)];
                json!(["tag", function, n])
            }
            2 => json!(["peers", "includes", format!("a{n}")]),
            _ => json!(["note", "==", format!("n{n}")]),
        }
    }

    /// A command that declares a key or takes it back, and what is declared then.
    fn command(&mut self) -> (Vec<&'static str>, Declared) {
        let mut then = self.declared.clone();
        let there = COLUMNS.map(|column| (column != "note" || self.has_note).then_some(column));
        let there: Vec<&str> = there.into_iter().flatten().collect();
        let column = there[self.random.below(there.len())];
        if then.remove(column).is_some() && self.random.below(2) == 0 {
            return (vec!["index/drop", "Net", "Port", column], then);
        }
        let orders = if column == "tag" { &["hash", "asc", "desc"][..] } else { &["hash"] };
        let order = orders[self.random.below(orders.len())];
        then.insert(column, order);
        (vec!["index/add", "Net", "Port", column, order], then)
    }

    /// Another schema, which may say something of a key; what is declared then.
    fn other_schema(&mut self, may_wish: bool) -> Declared {
        self.has_note = self.random.below(2) == 0;
        let mut then = self.declared.clone();
        let keys = match self.random.below(3) {
            0 if may_wish => {
                then.insert("tag", "desc");
                r#","alternate_key":true,"order":"desc""#
            }
            1 if may_wish => {
                then.remove("tag");
                r#","alternate_key":false"#
            }
            _ => "",
        };
        self.write_schema(keys);
        then
    }

    fn step(&mut self) {
        let socket = format!("unix:{}", self.scratch.text("s.sock"));
        match self.random.below(10) {
            0 | 1 => {
                let (command, then) = self.command();
                admin(&self.scratch, &command);
                self.declared = then;
            }
            2 => {
                self.declared = self.other_schema(true);
                self.tool(Path::new(WEIR), &["client", "convert", &socket, "it.ovsschema"]);
            }
            3 => drop(admin(&self.scratch, &["ovsdb-server/compact", "Net"])),
            4 => self.is_killed_meanwhile(),
            5 => {
                self.kill();
                self.declared = self.other_schema(true);
                self.tool(Path::new(WEIR), &["tool", "convert", "net.db", "it.ovsschema"]);
                self.reopen();
            }
            6 => self.is_with_the_stock_tool(),
            7 => self.is_with_the_stock_server(),
            _ => {
                let operations = self.transaction();
                self.client().transact("Net", &operations).expect("an answer");
            }
        }
    }

    /// The server is killed while it does what a command and a client want of it.
    fn is_killed_meanwhile(&mut self) {
        let (command, then) = self.command();
        let operations = self.transaction();
        let mut client = self.client();
        let mut params = vec![json!("Net")];
        params.extend(operations);
        client.ask("transact", &Value::Array(params)).expect("it is sent");
        let ctl = self.scratch.text("ctl");
        let mut asking = self.scratch.command(WEIR);
        asking.args(["appctl", "-t", &ctl]).args(&command).stderr(Stdio::null());
        let mut asking = asking.spawn().expect("a process");
        std::thread::sleep(Duration::from_micros(self.random.bits() % 8_000));
        self.kill();
        let is_answered = asking.wait().expect("it ends").success();
        self.reopen();
        // Whoever has an answer can rely on it; else it is done or not.
        if is_answered || self.listed() == then {
            self.declared = then;
        }
    }

    fn is_with_the_stock_tool(&mut self) {
        let Some(tool) = reference("ovsdb-tool") else { return };
        self.kill();
        if self.random.below(2) == 0 {
            self.tool(&tool, &["compact", "net.db"]);
        } else {
            self.declared = self.other_schema(false);
            self.tool(&tool, &["convert", "net.db", "it.ovsschema"]);
        }
        self.reopen();
    }

    fn is_with_the_stock_server(&mut self) {
        let Some(theirs) = reference("ovsdb-server") else { return };
        self.kill();
        self.server = Some(serve(&self.scratch, &theirs));
        let operations = self.transaction();
        self.client().transact("Net", &operations).expect("an answer");
        self.kill();
        self.reopen();
    }

    /// What the server says is declared; all that can be built is.
    fn listed(&self) -> Declared {
        let list = || admin(&self.scratch, &["index/list", "Net"]);
        eventually("keys are built", || !list().contains("building"));
        let mut listed = Declared::new();
        for line in list().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let column = COLUMNS.into_iter().find(|column| *column == words[2]);
            let column = column.expect("a column of the schema");
            let order = ["asc", "desc"].into_iter().find(|order| words.contains(order));
            let is_there = column != "note" || self.has_note;
            assert_eq!(is_there, line.contains(" ready "), "{line}");
            listed.insert(column, order.unwrap_or("hash"));
        }
        listed
    }

    /// What is declared is there, and selects find what a look at all rows does.
    fn check(&mut self) {
        assert_eq!(self.listed(), self.declared);
        let mut client = self.client();
        let mut rows = |clauses: &[&Value]| {
            let select = json!({"op": "select", "table": "Port", "where": clauses});
            let mut reply = client.transact("Net", &[select]).expect("rows");
            let Value::Array(rows) = reply[0]["rows"].take() else { panic!("{reply}") };
            rows
        };
        let all = rows(&[]);
        for _ in 0..4 {
            let clause = self.clause();
            let expected: Vec<&Value> = all.iter().filter(|row| matches(row, &clause)).collect();
            assert!(rows(&[&clause]).iter().eq(expected), "{clause}");
        }
        let used = admin(&self.scratch, &["coverage/read-counter", "query_alternate"]);
        let used: u64 = used.trim().parse().expect("a number");
        self.by_keys += u64::from(used > 0);
    }
}

/// Whether a row satisfies one of the clauses of [`Story::clause`].
fn matches(row: &Value, clause: &Value) -> bool {
    let (value, wanted) = (&row[clause[0].as_str().expect("a column")], &clause[2]);
    match clause[1].as_str().expect("a function") {
        ">=" => value.as_u64() >= wanted.as_u64(),
        "<" => value.as_u64() < wanted.as_u64(),
        "==" => value == wanted,
        // A set of one is written as its element.
        _ => value == wanted || value[1].as_array().is_some_and(|set| set.contains(wanted)),
    }
}

#[test]
fn keys_are_right_whoever_had_the_file_and_whenever_servers_are_killed() {
    let mut by_keys = 0;
    for seed in 0..3 {
        eprintln!("seed {seed}");
        let mut story = Story::begin(seed);
        for _ in 0..30 {
            story.step();
            story.check();
        }
        story.kill();
        by_keys += story.by_keys;
    }
    assert!(by_keys > 10, "{by_keys}");
}
