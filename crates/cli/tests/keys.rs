//! Declared keys of a whole server: the tools, the files, stock programs in between, `kill -9`, and
//! what an operator sees.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::{Running, Scratch, WEIR, err, eventually, out, reference};
use weir_testkit::client::Client;

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
    let _ = fs::remove_file(scratch.path("s.sock"));
    let mut command: Command = scratch.command(program);
    command.args(["--remote=punix:s.sock", "--unixctl=ctl", "-vconsole:off", "net.db"]);
    let server = Running::start(&mut command);
    eventually("the server listens", || Client::connect(&scratch.path("s.sock")).is_ok());
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
