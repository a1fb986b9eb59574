//! `weir_log`: what changed, when, and who asked for it, from the change log and from the file.

use std::collections::{BTreeMap, BTreeSet};

use crate::chain::Chain;
use crate::chance::Chance;
use crate::shell::{PATH, Shell, insert, transact};
use serde_json::{Value, json};
use weir_data::Schema;
use weir_log::standalone;
use weir_server::Config;
use weir_server::event::{Event, RemoteId, SessionId};

const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "Other":{"isRoot":true,"columns":{"n":{"type":"integer"}}},
    "Port":{"isRoot":true,"columns":{
        "name":{"type":"string"},
        "n":{"type":{"key":"integer","min":0,"max":1}},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "status":{"type":{"key":"string","value":"integer","min":0,"max":"unlimited"}},
        "up":{"type":"boolean","ephemeral":true}}}}}"#;

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

fn start() -> Shell {
    let mut file = Vec::new();
    let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
    standalone::write_schema(&mut file, &schema);
    Shell::start_on(file)
}

/// Another process on the same files.
fn restart(shell: &mut Shell) -> SessionId {
    let mut files = shell.files.clone();
    let file = files.remove(PATH).expect("the database");
    *shell = Shell::start_on_files(file, files, Config::default());
    shell.connect()
}

/// From now on changes are kept.
fn ask_for_ids(shell: &mut Shell, client: SessionId) {
    let request = format!(
        r#"{{"id":1,"method":"monitor_cond_since","params":["Net","m",{{"Other":{{"columns":["n"]}}}},"{ZERO}"]}}"#
    );
    assert!(shell.call(client, &request).contains("result"));
}

fn ask(shell: &mut Shell, client: SessionId, params: &str) -> Value {
    let request = format!(r#"{{"id":"log","method":"weir_log","params":{params}}}"#);
    serde_json::from_str(&shell.call(client, &request)).expect("an answer")
}

/// The changes that are told.
fn log(shell: &mut Shell, client: SessionId, options: &str) -> Vec<Value> {
    let mut answer = ask(shell, client, &format!(r#"["Net",{options}]"#));
    assert_eq!(answer["error"], Value::Null, "{answer}");
    match answer["result"].take() {
        Value::Array(changes) => changes,
        other => panic!("{other}"),
    }
}

fn error(shell: &mut Shell, client: SessionId, params: &str) -> (String, String) {
    let answer = ask(shell, client, params);
    let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
    (text("error"), text("details"))
}

fn run(shell: &mut Shell, client: SessionId, operations: &str) -> Value {
    let reply = shell.call(client, &transact(1, operations));
    let reply: Value = serde_json::from_str(&reply).expect("a reply");
    assert!(!reply.to_string().contains("details"), "{reply}");
    reply["result"].clone()
}

fn add_port(shell: &mut Shell, client: SessionId, name: &str) -> String {
    run(shell, client, &insert(name))[0]["uuid"][1].as_str().expect("a row").to_owned()
}

fn with_comment(operation: &str, comment: &str) -> String {
    format!(r#"{operation},{{"op":"comment","comment":"{comment}"}}"#)
}

fn certified(shell: &mut Shell, name: &str) -> SessionId {
    let session = SessionId(7000);
    let client = Some(name.to_owned());
    let (remote, name) = (RemoteId(u64::MAX), "ssl:192.0.2.7:4711".to_owned());
    shell.event(Event::Accepted { session, remote, name, client });
    session
}

fn comments(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["comment"].as_str().unwrap_or("")).collect()
}

#[test]
fn a_change_says_who_made_it_when_and_why() {
    let mut shell = start();
    let plain = shell.connect();
    let chassis = certified(&mut shell, "chassis-1");
    let a = add_port(&mut shell, plain, "a");
    shell.advance_ms(1000);
    let b = add_port(&mut shell, chassis, "b");
    shell.advance_ms(1000);
    let modify = r#"{"op":"update","table":"Port","where":[["name","==","a"]],"row":{"n":7}},
        {"op":"mutate","table":"Port","where":[["name","==","a"]],
         "mutations":[["tags","insert","x"]]}"#;
    run(&mut shell, plain, &with_comment(modify, "ovs-vsctl: set Port a"));
    let delete = r#"{"op":"delete","table":"Port","where":[["name","==","b"]]}"#;
    run(&mut shell, plain, delete);
    let log = log(&mut shell, plain, "{}");
    let told: Vec<Value> = log
        .iter()
        .map(|change| {
            let mut change = change.clone();
            let id = change.as_object_mut().and_then(|change| change.remove("id"));
            assert!(id.is_some_and(|id| id.as_str().is_some_and(|id| id.len() == 36)));
            change
        })
        .collect();
    let unknown = Value::Null;
    let first = 1_700_000_000_000_i64;
    assert_eq!(
        told,
        [
            json!({"date":first + 2000,"client":unknown,"comment":unknown,
                "changes":{"Port":{&b:{"delete":{"name":"b"}}}}}),
            json!({"date":first + 2000,"client":{"session":"unix#0"},
                "comment":"ovs-vsctl: set Port a","changes":{"Port":{&a:{"modify":{
                "n":[["set",[]],7],"tags":[["set",[]],"x"]}}}}}),
            json!({"date":first + 1000,
                "client":{"session":"ssl:192.0.2.7:4711","certificate":"chassis-1"},
                "comment":unknown,"changes":{"Port":{&b:{"insert":{"name":"b"}}}}}),
            json!({"date":first,"client":unknown,"comment":unknown,
                "changes":{"Port":{&a:{"insert":{"name":"a"}}}}}),
        ]
    );
}

#[test]
fn only_what_is_asked_for_is_told() {
    for keeps in [false, true] {
        let mut shell = start();
        let client = shell.connect();
        if keeps {
            ask_for_ids(&mut shell, client);
        }
        let a = add_port(&mut shell, client, "a");
        let other = r#"{"op":"insert","table":"Other","row":{"n":1}}"#;
        let both = format!("{other},{}", insert("b"));
        run(&mut shell, client, &with_comment(&both, "both"));
        run(&mut shell, client, &with_comment(&insert("c"), "c"));
        let touch = r#"{"op":"update","table":"Port","where":[["name","==","a"]],"row":{"n":1}}"#;
        run(&mut shell, client, &with_comment(touch, "touch"));
        let all = log(&mut shell, client, "{}");
        assert_eq!(comments(&all), ["touch", "c", "both", ""], "{keeps}");
        let of = |shell: &mut Shell, options: &str| {
            let log = log(shell, client, options);
            comments(&log).iter().map(|comment| (*comment).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(&mut shell, r#"{"limit":2}"#), ["touch", "c"]);
        assert_eq!(of(&mut shell, &format!(r#"{{"row":"{a}"}}"#)), ["touch", ""]);
        assert_eq!(of(&mut shell, &format!(r#"{{"row":"{a}","table":"Other"}}"#)), [""; 0]);
        for (at, change) in all.iter().enumerate() {
            let since = format!(r#"{{"since":{}}}"#, change["id"]);
            assert_eq!(log(&mut shell, client, &since), all[..at], "{keeps}");
        }
        assert_eq!(of(&mut shell, &format!(r#"{{"since":"{ZERO}"}}"#)).len(), 4);
        let others = log(&mut shell, client, r#"{"table":"Other","limit":1}"#);
        assert_eq!(comments(&others), ["both"]);
        let tables = others[0]["changes"].as_object().expect("tables");
        assert_eq!(tables.keys().collect::<Vec<_>>(), ["Other"]);
    }
}

#[test]
fn mistakes_are_told_as_others_are() {
    let mut shell = start();
    let client = shell.connect();
    add_port(&mut shell, client, "a");
    let unknown = "12345678-1234-4234-8234-123456789abc";
    for (params, kind, details) in [
        ("[]", "syntax error", "weir_log request params must begin with <db-name>"),
        (r#"["No"]"#, "unknown database", "weir_log request specifies unknown database No"),
        (r#"["Net",1]"#, "syntax error", "weir_log: options must be an object"),
        (r#"["Net",{"x":1}]"#, "syntax error", "weir_log: unknown option x"),
        (
            r#"["Net",{"since":"x"}]"#,
            "syntax error",
            "weir_log: since must be the id of a transaction",
        ),
        (r#"["Net",{"row":1}]"#, "syntax error", "weir_log: row must be a UUID"),
        (r#"["Net",{"table":"No"}]"#, "syntax error", "weir_log: No table named No."),
        (
            r#"["Net",{"limit":0}]"#,
            "syntax error",
            "weir_log: limit must be an integer from 1 to 10000",
        ),
        (r#"["Net",{},{}]"#, "syntax error", "weir_log: at most two parameters expected"),
        (
            &format!(r#"["Net",{{"since":"{unknown}"}}]"#),
            "unknown transaction",
            "this server does not know its id",
        ),
    ] {
        assert_eq!(error(&mut shell, client, params), (kind.to_owned(), details.to_owned()));
    }
    assert_eq!(ask(&mut shell, client, r#"["_Server"]"#)["result"], json!([]));
    let off = shell.command("weir/standalone-history", &["off"]);
    assert_eq!(off, Some(Ok(String::new())));
    let (kind, _) = error(&mut shell, client, r#"["Net"]"#);
    assert_eq!(kind, "not supported");
}

#[test]
fn a_client_with_a_role_may_not_read_of_others() {
    let remotes = vec!["db:Net,Root,remotes".to_owned()];
    let schema = r#"{"name":"Net","tables":{
        "Root":{"isRoot":true,"columns":{"remotes":{"type":{"key":{"type":"uuid","refTable":"Remote"}}}}},
        "Remote":{"columns":{"target":{"type":"string"},"role":{"type":"string"}}}}}"#;
    let mut file = Vec::new();
    let schema = Schema::parse_bytes(schema.as_bytes()).expect("a schema");
    standalone::write_schema(&mut file, &schema);
    let mut shell = Shell::start_with(file, Config { remotes, ..Config::default() });
    let free = shell.accept_anywhere();
    let row = r#"{"op":"insert","table":"Remote","row":{"target":"ptcp:1","role":"chassis"},
        "uuid-name":"r"},
        {"op":"insert","table":"Root","row":{"remotes":["named-uuid","r"]}}"#;
    run(&mut shell, free, row);
    shell.settle();
    let bound = shell.connect_to("ptcp:1").expect("the remote is there");
    let (kind, _) = error(&mut shell, bound, r#"["Net"]"#);
    assert_eq!(kind, "permission error");
    let request = r#"{"id":"w","method":"weir_wait_delivered","params":["Net"]}"#;
    let reply = shell.call(bound, request);
    assert!(reply.contains(r#""error":"permission error""#), "{reply}");
    assert_eq!(log(&mut shell, free, "{}").len(), 1);
}

#[test]
fn what_the_server_has_is_listed() {
    let mut shell = start();
    let client = shell.connect();
    let reply = shell.call(client, r#"{"id":1,"method":"weir_features","params":[]}"#);
    let reply: Value = serde_json::from_str(&reply).expect("a reply");
    let names: Vec<&str> =
        reply["result"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert!(names.is_sorted() && ["weir_features", "weir_log"].iter().all(|x| names.contains(x)));
}

#[test]
fn after_a_restart_the_file_says_when_and_why() {
    let mut shell = start();
    let mut client = shell.connect();
    ask_for_ids(&mut shell, client);
    run(&mut shell, client, &with_comment(&insert("a"), "first"));
    shell.advance_ms(5000);
    add_port(&mut shell, client, "b");
    let before = log(&mut shell, client, "{}");
    client = restart(&mut shell);
    let after = log(&mut shell, client, "{}");
    assert_eq!(after.len(), 2);
    for (before, after) in before.iter().zip(&after) {
        for same in ["id", "date", "comment", "changes"] {
            assert_eq!(before[same], after[same], "{same}");
        }
        assert_eq!(after["client"], Value::Null);
    }
    // A compaction takes the records away; who has them in memory knows them still.
    run(&mut shell, client, &with_comment(&insert("c"), "third"));
    let plain = add_port(&mut shell, client, "e");
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
    run(&mut shell, client, &with_comment(&insert("d"), "fourth"));
    let compacted = log(&mut shell, client, "{}");
    assert_eq!(comments(&compacted), ["fourth", "", "third", "", ""]);
    assert!(compacted[1]["changes"]["Port"][&plain].is_object());
    assert!(compacted[1]["date"].is_i64(), "the process knows it");
    assert_eq!(compacted[3]["id"], after[0]["id"]);
    assert_eq!(compacted[3]["changes"], after[0]["changes"]);
    assert_eq!(compacted[3]["date"], Value::Null, "the record is gone");
    client = restart(&mut shell);
    let restarted = log(&mut shell, client, "{}");
    assert_eq!(comments(&restarted), ["fourth", "", "", "", ""]);
    let ids = |log: &[Value]| log.iter().map(|change| change["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&restarted), ids(&compacted));
}

#[test]
fn a_conversion_leaves_the_changes_of_other_tables() {
    let mut shell = start();
    let client = shell.connect();
    ask_for_ids(&mut shell, client);
    run(&mut shell, client, &with_comment(&insert("a"), "port"));
    let other = r#"{"op":"insert","table":"Other","row":{"n":1}}"#;
    run(&mut shell, client, &with_comment(other, "other"));
    let wider = SCHEMA.replace(r#""n":{"type":"integer"}"#, r#""m":{"type":"string"}"#);
    let request = format!(r#"{{"id":"c","method":"convert","params":["Net",{wider}]}}"#);
    assert!(shell.call(client, &request).contains(r#""result":{}"#));
    let client = shell.connect();
    run(&mut shell, client, &with_comment(&insert("b"), "later"));
    let told = log(&mut shell, client, "{}");
    assert_eq!(comments(&told), ["later", "port"]);
}

#[test]
fn as_many_as_may_wait_for_searches_and_who_leaves_waits_no_longer() {
    let mut shell = start();
    let client = shell.connect();
    add_port(&mut shell, client, "a");
    shell.slow_work = true;
    for id in 0..5 {
        shell.send(client, &format!(r#"{{"id":{id},"method":"weir_log","params":["Net"]}}"#));
        shell.settle();
    }
    let refused = shell.received(client);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("resources exhausted"), "{refused:?}");
    shell.do_work(0);
    shell.settle();
    assert!(shell.received(client)[0].contains(r#""id":0,"result":[{"changes""#));
    shell.event(Event::Closed { session: client, error: None });
    shell.settle();
    assert_eq!(shell.said.len(), 3);
    while !shell.work.is_empty() {
        shell.do_work(0);
    }
    shell.settle();
    let next = shell.connect();
    shell.slow_work = false;
    assert_eq!(log(&mut shell, next, "{}").len(), 1);
}

#[test]
fn an_answer_has_its_bounds() {
    for keeps in [false, true] {
        let mut shell = start();
        let client = shell.connect();
        if keeps {
            ask_for_ids(&mut shell, client);
        }
        for (name, bytes) in
            [("a", 3_500_000), ("b", 5_000_000), ("c", 3_500_000), ("d", 3_500_000)]
        {
            let long =
                with_comment(&insert(&"x".repeat(bytes)), &format!("{name}{}", "y".repeat(5000)));
            run(&mut shell, client, &long);
        }
        let told = log(&mut shell, client, "{}");
        let lengths: Vec<usize> =
            told.iter().map(|change| change["changes"].to_string().len() / 1_000_000).collect();
        assert_eq!(lengths, [3, 3, 0], "{keeps}: the oldest is left out, one is too long");
        assert_eq!(told[2]["changes"], Value::Null);
        let told = comments(&told).into_iter().map(|comment| comment.len());
        assert_eq!(told.collect::<Vec<_>>(), [4096; 3]);
        // So it is when all that is not in the change log comes from the file.
        let client = restart(&mut shell);
        let again = log(&mut shell, client, "{}");
        assert_eq!(again.len(), 3);
        assert!(comments(&again).iter().all(|comment| comment.len() == 4096));
        assert!(again.iter().all(|change| change["date"].is_i64()), "{keeps}");
        assert_eq!(again[2]["changes"], Value::Null);
    }
}

/// A value as a set or map of JSON texts.
fn elements(value: &Value) -> BTreeSet<String> {
    match value[0].as_str() {
        Some("set" | "map") => {
            value[1].as_array().expect("elements").iter().map(Value::to_string).collect()
        }
        _ => [value.to_string()].into(),
    }
}

type Rows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn row_of(columns: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let columns = columns.as_object().expect("columns").iter();
    columns.map(|(name, value)| (name.clone(), elements(value))).collect()
}

/// Applies a change of ports; what it says was there must be what is there.
fn apply(rows: &mut Rows, change: &Value) {
    for (uuid, what) in change["changes"]["Port"].as_object().into_iter().flatten() {
        let (kind, what) = what.as_object().and_then(|what| what.iter().next()).expect("one");
        match kind.as_str() {
            "insert" => assert!(rows.insert(uuid.clone(), row_of(what)).is_none(), "{change}"),
            "delete" => {
                let mut old = rows.remove(uuid).expect("a row");
                old.retain(|_, value| !value.is_empty());
                assert_eq!(old, row_of(what), "{change}");
            }
            _ => {
                let row = rows.get_mut(uuid).expect("a row");
                for (column, pair) in what.as_object().expect("columns") {
                    let value = row.entry(column.clone()).or_default();
                    let [old, new] = [&pair[0], &pair[1]].map(elements);
                    assert!(old.is_subset(value), "{change}");
                    value.retain(|element| !old.contains(element));
                    value.extend(new);
                }
            }
        }
    }
}

/// All ports, without what is empty.
fn ports(shell: &mut Shell, client: SessionId) -> Rows {
    let columns = r#"["_uuid","name","n","tags","status"]"#;
    let select = format!(r#"{{"op":"select","table":"Port","where":[],"columns":{columns}}}"#);
    let result = run(shell, client, &select);
    let rows = result[0]["rows"].as_array().expect("rows").iter();
    let row = |row: &Value| {
        let mut columns = row.as_object().expect("columns").clone();
        let uuid = columns.remove("_uuid").expect("asked for");
        (uuid[1].as_str().expect("a UUID").to_owned(), row_of(&Value::Object(columns)))
    };
    without_empty(rows.map(row).collect())
}

fn without_empty(mut rows: Rows) -> Rows {
    rows.values_mut().for_each(|row| row.retain(|_, value| !value.is_empty()));
    rows
}

/// A random transaction on ports; every name is one character or more.
fn random(chance: &mut Chance, text: usize) -> String {
    let name = chance.below(6);
    let of = format!(r#""table":"Port","where":[["name","==","p{name}"]]"#);
    let (a, b) = (chance.below(4), chance.below(9));
    let operation = match chance.below(10) {
        0..=3 => {
            let long = "x".repeat(chance.below(text.max(1)));
            format!(
                r#"{{"op":"insert","table":"Port","row":{{"name":"p{name}","n":{b},
                 "tags":["set",["{long}","t{a}"]],"status":["map",[["k{a}",{b}]]]}}}}"#
            )
        }
        4 => format!(r#"{{"op":"delete",{of}}}"#),
        5 => format!(r#"{{"op":"update",{of},"row":{{"n":["set",[]],"tags":["set",[]]}}}}"#),
        6 => format!(r#"{{"op":"update",{of},"row":{{"n":{b},"status":["map",[["k{b}",{a}]]]}}}}"#),
        7 => format!(
            r#"{{"op":"mutate",{of},"mutations":[["tags","insert",["set",["t{a}","u{b}"]]]]}}"#
        ),
        8 => {
            format!(r#"{{"op":"mutate",{of},"mutations":[["status","delete",["set",["k{a}"]]]]}}"#)
        }
        _ => format!(
            r#"{{"op":"mutate",{of},"mutations":[["status","insert",["map",[["k{a}",{b}]]]]]}}"#
        ),
    };
    if chance.one_in(3) { with_comment(&operation, "because") } else { operation }
}

/// In random lives: all changes, applied in their order to nothing, or to what was there before the
/// last compaction, make the rows that are there.
#[test]
fn the_changes_lead_from_nothing_to_what_is_there() {
    let mut beyond = 0;
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let mut shell = start();
        let mut client = shell.connect();
        let is_big = seed % 6 == 0;
        let text = if is_big { 200_000 } else { 20 };
        let (mut base, mut since) = (Rows::new(), ZERO.to_owned());
        for _ in 0..60 {
            let operation = random(&mut chance, text);
            match chance.below(20) {
                0 => client = restart(&mut shell),
                1 => {
                    shell.received(client);
                    client = shell.connect();
                    ask_for_ids(&mut shell, client);
                }
                2 if !is_big && chance.one_in(3) => {
                    // What the log does not have is gone then.
                    let is_kept = chance.one_in(2);
                    if is_kept {
                        shell.received(client);
                        client = shell.connect();
                        ask_for_ids(&mut shell, client);
                    }
                    let kept = shell.command("ovsdb-server/compact", &["Net"]);
                    assert_eq!(kept, Some(Ok(String::new())));
                    if !is_kept {
                        // Without a side file ids begin anew.
                        client = restart(&mut shell);
                    }
                    base = ports(&mut shell, client);
                    run(&mut shell, client, &insert("mark"));
                    let newest = log(&mut shell, client, r#"{"limit":1}"#);
                    since = newest[0]["id"].as_str().expect("an id").to_owned();
                    newest.iter().for_each(|change| apply(&mut base, change));
                }
                _ => drop(run(&mut shell, client, &operation)),
            }
        }
        let options = format!(r#"{{"since":"{since}","limit":10000}}"#);
        let changes = log(&mut shell, client, &options);
        let mut rows = base;
        changes.iter().rev().for_each(|change| apply(&mut rows, change));
        assert_eq!(without_empty(rows), ports(&mut shell, client), "seed {seed}");
        assert!(changes.iter().all(|change| change["date"].is_i64()), "seed {seed}");
        let counts = shell.command("memory/show", &[]).and_then(Result::ok).unwrap_or_default();
        let kept = counts.split("txn-history:").nth(1).and_then(|text| text.split(' ').next());
        let kept: usize = kept.and_then(|text| text.parse().ok()).unwrap_or_default();
        beyond += usize::from(is_big && 0 < kept && kept < changes.len());
        // The newest of them are the newest of all.
        let few = log(&mut shell, client, &format!(r#"{{"since":"{since}","limit":7}}"#));
        assert_eq!(few, changes[..changes.len().min(7)], "seed {seed}");
        let few = log(&mut shell, client, r#"{"limit":7}"#);
        assert_eq!(few[..few.len().min(changes.len())], changes[..changes.len().min(7)]);
    }
    assert!(beyond > 3, "no log went beyond its budget");
}

/// A relay has no file: what its memory does not have it does not know.
#[test]
fn a_relay_tells_the_changes_that_its_memory_has() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    let monitor = format!(
        r#"{{"id":1,"method":"monitor_cond_since","params":["Net","m",{{"Port":{{}}}},"{ZERO}"]}}"#
    );
    chain.call(1, client, &monitor);
    chain.call(1, client, &transact(2, &insert("a")));
    let log =
        |options: &str| format!(r#"{{"id":3,"method":"weir_log","params":["Net",{options}]}}"#);
    let told: Value = serde_json::from_str(&chain.call(1, client, &log("{}"))[0]).expect("JSON");
    let changes = told["result"].as_array().expect("changes");
    assert!(changes.len() == 1 && changes[0]["changes"]["Port"].is_object(), "{told}");
    let unknown = log(r#"{"since":"00000000-0000-0000-0000-0000000000ff"}"#);
    let told: Value = serde_json::from_str(&chain.call(1, client, &unknown)[0]).expect("JSON");
    assert_eq!(told["error"]["error"], "unknown transaction", "{told}");
}
