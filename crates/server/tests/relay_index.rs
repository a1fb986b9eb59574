//! The index of a source that nobody else decides about: told to relays of ours, never falling while the
//! file is the same, and what relays make of a file that went back.

mod chain;
mod shell;

use std::collections::BTreeMap;

use chain::Chain;
use serde_json::{Value, json};
use shell::{PATH, Shell, insert, ports, transact};
use weir_server::Config;
use weir_server::event::SessionId;

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Column `index` of `Net` in `_Server`.
fn index(shell: &mut Shell) -> Value {
    let client = shell.connect();
    let select = r#"{"id":1,"method":"transact","params":["_Server",{"op":"select","table":"Database",
        "where":[["name","==","Net"]],"columns":["index"]}]}"#;
    let index = value(&shell.call(client, select))["result"][0]["rows"][0]["index"].clone();
    shell.event(weir_server::event::Event::Closed { session: client, error: None });
    index
}

fn number(shell: &mut Shell) -> i64 {
    let index = index(shell);
    index.as_i64().unwrap_or_else(|| panic!("an index: {index}"))
}

fn write(chain: &mut Chain, names: std::ops::Range<u32>) {
    let writer = chain.servers[0].connect();
    for n in names {
        chain.call(0, writer, &transact(n, &insert(&format!("p{n}"))));
    }
}

fn logged(shell: &Shell, text: &str) -> usize {
    shell.log.iter().filter(|line| line.contains(text)).count()
}

/// The server ends, and begins again on these files.
fn restart(chain: &mut Chain, mut files: BTreeMap<String, Vec<u8>>) {
    let file = files.remove(PATH).expect("the database");
    let source = Shell::start_on_files(file, files, Config::default());
    chain.replace_source(source);
    chain.pass_ms(20_000);
}

#[test]
fn the_index_of_a_file_goes_down_a_chain_and_grows_with_each_transaction() {
    let mut chain = Chain::start(3);
    assert_eq!(index(&mut chain.servers[0]), json!(["set", []]), "as with the reference");
    write(&mut chain, 0..1);
    let before: Vec<i64> = chain.servers[1..].iter_mut().map(number).collect();
    assert!(before.iter().all(|index| *index == before[0]), "{before:?}");
    write(&mut chain, 1..6);
    for relay in &mut chain.servers[1..] {
        assert_eq!(number(relay), before[0] + 5);
    }
    // What no record has is no new state.
    let up = r#"{"op":"update","table":"Port","where":[],"row":{"up":true}}"#;
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(9, up));
    assert_eq!(number(&mut chain.servers[1]), before[0] + 5);
}

#[test]
fn the_index_never_falls_over_compactions_restarts_and_conversions() {
    let mut chain = Chain::start(2);
    write(&mut chain, 0..20);
    let mut last = number(&mut chain.servers[2]);
    for round in 0..3 {
        if round > 0 {
            let done = chain.servers[0].command("ovsdb-server/compact", &["Net"]);
            assert_eq!(done, Some(Ok(String::new())));
        }
        let files = chain.servers[0].files.clone();
        restart(&mut chain, files);
        assert_eq!(number(&mut chain.servers[2]), last, "round {round}");
        write(&mut chain, 100 * round + 100..100 * round + 103);
        assert_eq!(number(&mut chain.servers[2]), last + 3, "round {round}");
        last += 3;
    }
    let mut schema = value(shell::SCHEMA);
    schema["version"] = json!("2.0.0");
    let convert = json!({"id":3,"method":"convert","params":["Net", schema]});
    let converter = chain.servers[0].connect();
    chain.call(0, converter, &convert.to_string());
    chain.pass_ms(20_000);
    write(&mut chain, 900..901);
    let converted = number(&mut chain.servers[2]);
    assert!(converted > last, "{converted}");
    let files = chain.servers[0].files.clone();
    restart(&mut chain, files);
    assert_eq!(number(&mut chain.servers[2]), converted);
    for relay in &chain.servers[1..] {
        assert_eq!(logged(relay, "has gone back"), 0, "{:#?}", relay.log);
    }
}

#[test]
fn relays_of_a_file_that_was_restored_say_so_once_and_have_its_rows() {
    let mut chain = Chain::start(3);
    write(&mut chain, 0..3);
    let old = chain.servers[0].files.clone();
    write(&mut chain, 3..9);
    let newer = number(&mut chain.servers[3]);
    // The last one hears nothing of what happens.
    chain.is_cut[3] = true;
    chain.lose(3);
    restart(&mut chain, old);
    let older = number(&mut chain.servers[1]);
    assert!(older < newer, "{older} {newer}");
    for relay in &mut chain.servers[1..3] {
        assert_eq!(number(relay), older);
        assert_eq!(ports(relay), ["p0", "p1", "p2"]);
        assert_eq!(logged(relay, "has gone back"), 1, "{:#?}", relay.log);
    }
    // The last one cannot know whether its source is only behind, and waits a while for it.
    chain.is_cut[3] = false;
    chain.pass_ms(20_000);
    assert_eq!(ports(&mut chain.servers[3]).len(), 9);
    assert_eq!(logged(&chain.servers[3], "has stale data"), 1, "{:#?}", chain.servers[3].log);
    chain.pass_ms(60_000);
    assert_eq!(ports(&mut chain.servers[3]), ["p0", "p1", "p2"]);
    assert_eq!(number(&mut chain.servers[3]), older);
    assert_eq!(logged(&chain.servers[3], "has gone back"), 1, "{:#?}", chain.servers[3].log);
    write(&mut chain, 20..21);
    assert_eq!(ports(&mut chain.servers[3]), ["p0", "p1", "p2", "p20"]);
}

/// A monitor with options, and what it has been told since.
fn ask(shell: &mut Shell, options: &str, last: &str) -> (SessionId, Value, Vec<Value>) {
    let watcher = shell.connect();
    let requests = r#"{"Port":{"columns":["name"]}}"#;
    let ask = format!(
        r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{requests},"{last}",{options}]}}"#
    );
    shell.send(watcher, &ask);
    shell.settle();
    let mut told = told(shell, watcher);
    let reply = told.remove(0);
    assert_eq!(reply["id"], 1, "the answer comes first: {reply}");
    (watcher, reply["result"].clone(), told)
}

fn told(shell: &mut Shell, watcher: SessionId) -> Vec<Value> {
    shell.received(watcher).iter().map(|message| value(message)).collect()
}

#[test]
fn who_asks_is_told_the_index_and_the_oldest_state_that_is_remembered() {
    let mut shell = Shell::start();
    let writer = shell.connect();
    shell.call(writer, &transact(1, &insert("a")));
    let (plain, _, first) = ask(&mut shell, r#"{"each":true}"#, ZERO);
    assert_eq!(first, Vec::<Value>::new());
    let options = r#"{"each":true,"index":true,"low_water":true}"#;
    let (both, begun, first) = ask(&mut shell, options, ZERO);
    assert_eq!(first.len(), 1, "{first:?}");
    let params = &first[0]["params"];
    assert_eq!((&params[1], &params[3], &params[4]), (&begun[1], &json!({}), &json!(1)));
    let oldest = params[2].as_str().expect("a low-water mark").to_owned();
    // Two transactions in one round: the index is that of the state at their end.
    shell.send(writer, &transact(2, &insert("b")));
    shell.send(writer, &transact(3, &insert("c")));
    shell.settle();
    let updates = told(&mut shell, both);
    let indexes: Vec<&Value> = updates.iter().map(|update| &update["params"][4]).collect();
    assert_eq!(indexes, [&Value::Null, &json!(3)]);
    assert!(updates.iter().all(|update| update["params"][2] == oldest.as_str()), "{updates:?}");
    let updates = told(&mut shell, plain);
    assert!(updates.iter().all(|update| update["params"].as_array().unwrap().len() == 4));
    // The mark is the id of the oldest state that a client can come back with, however much has come.
    let long = "x".repeat(300_000);
    for n in 10..20 {
        let tags =
            format!(r#"{{"op":"update","table":"Port","where":[],"row":{{"tags":"{n}{long}"}}}}"#);
        shell.call(writer, &transact(n, &tags));
    }
    let updates = told(&mut shell, both);
    let mark = updates.last().expect("updates")["params"][2].as_str().unwrap().to_owned();
    assert_ne!(mark, oldest);
    let (_, begun, _) = ask(&mut shell, options, &mark);
    assert_eq!(begun[0], true);
    let (_, begun, _) = ask(&mut shell, options, &oldest);
    assert_eq!(begun[0], false, "what is before the mark is forgotten");
}

#[test]
fn options_that_are_not_known_are_refused() {
    let mut shell = Shell::start();
    let features = {
        let client = shell.connect();
        value(&shell.call(client, r#"{"id":1,"method":"weir_features","params":[]}"#))
    };
    for option in ["weir_monitor.index", "weir_monitor.low_water"] {
        assert!(features["result"].as_array().unwrap().contains(&json!(option)), "{features}");
    }
    for options in [r#"{"each":true,"index":1}"#, r#"{"index":true}"#, r#"{"each":true,"x":true}"#]
    {
        let watcher = shell.connect();
        let ask = format!(
            r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{{"Port":{{"columns":["name"]}}}},"{ZERO}",{options}]}}"#
        );
        assert!(!value(&shell.call(watcher, &ask))["error"].is_null(), "{options}");
    }
}
