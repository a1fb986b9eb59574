//! Keys of a relay: its own, by what it is asked and told itself, whatever its source has or does.

use std::collections::BTreeMap;

use crate::chain::Chain;
use crate::keys::{
    MANY, SCANS, SCHEMA, add_ports, counted, first_rows, listed, logged, select, server_of,
};
use crate::shell::{PATH, Shell, key_path, transact};
use serde_json::Value;
use weir_server::Config;

const RELAY: usize = 1;

/// A source with many ports, and a relay of it.
fn chain() -> Chain {
    Chain::of(server_of(MANY), 1)
}

fn add(shell: &mut Shell, column: &[&str]) {
    let args = [&["Net", "Port"], column].concat();
    assert_eq!(shell.command("index/add", &args), Some(Ok(String::new())), "{column:?}");
}

/// How a server finds the ports of a condition.
fn explained(shell: &mut Shell, condition: &str) -> String {
    let client = shell.connect();
    let select = format!(r#"{{"op":"select","table":"Port","where":[{condition}]}}"#);
    shell.call(client, &format!(r#"{{"id":1,"method":"weir_explain","params":["Net",{select}]}}"#))
}

/// The names of the ports of a condition, sorted: a relay has its rows in an order of its own.
fn names(shell: &mut Shell, condition: &str) -> Vec<String> {
    let found: Value = serde_json::from_str(&select(shell, condition)).expect("JSON");
    let rows = found["result"][0]["rows"].as_array().expect("rows").iter();
    let mut names: Vec<String> = rows.map(|row| row["name"].to_string()).collect();
    names.sort_unstable();
    names
}

/// The relay finds ports by these keys, and they are those that its source finds by looking at all.
fn check(chain: &mut Chain, by_key: &[(&str, &str)]) {
    for (condition, plan) in by_key {
        let found = chain.servers.iter_mut().map(|server| names(server, condition));
        let [source, relay] = &found.collect::<Vec<_>>()[..] else { panic!("two servers") };
        assert_eq!(source, relay, "{condition}");
        assert!(!source.is_empty(), "{condition}");
        let told = explained(&mut chain.servers[RELAY], condition);
        assert!(told.contains(&format!(r#""plan":"{plan}""#)), "{condition}: {told}");
        let told = explained(&mut chain.servers[0], condition);
        assert!(told.contains(r#""plan":"linear""#), "{condition}: {told}");
    }
}

const KIND: (&str, &str) = (r#"["kind","==","k7"]"#, "alternate");
const TAG: (&str, &str) = (r#"["tag",">=",98]"#, "alternate");
const PEERS: (&str, &str) = (r#"["peers","includes","a9"]"#, "inverted");

#[test]
fn keys_that_are_declared_with_a_relay_follow_whatever_its_source_says() {
    let mut chain = chain();
    for column in [&["kind"][..], &["tag", "desc"], &["peers"]] {
        add(&mut chain.servers[RELAY], column);
    }
    chain.pass_ms(500);
    let all = [
        "Net Port kind hash declared ready",
        "Net Port peers inverted declared ready",
        "Net Port tag ordered declared, desc ready",
    ];
    assert_eq!(listed(&mut chain.servers[RELAY]), all);
    assert_eq!(listed(&mut chain.servers[0]), Vec::<String>::new());
    check(&mut chain, &[KIND, TAG, PEERS]);
    // Changes of the source.
    let writer = chain.servers[0].connect();
    let update = r#"{"op":"update","table":"Port","where":[["tag",">",96]],
        "row":{"kind":"k7","tag":99,"peers":"a9"}}"#;
    chain.call(0, writer, &transact(1, update));
    check(&mut chain, &[KIND, TAG, PEERS]);
    // What was missed is all rows.
    chain.lose(RELAY);
    add_ports(&mut chain.servers[0], MANY..MANY + 300);
    chain.pass_ms(20_000);
    assert_eq!(listed(&mut chain.servers[RELAY]), all);
    check(&mut chain, &[KIND, TAG, PEERS]);
    // Another server, of other rows, is where the source was.
    chain.replace_source(server_of(MANY / 2));
    chain.pass_ms(20_000);
    assert_eq!(listed(&mut chain.servers[RELAY]), all);
    check(&mut chain, &[KIND, TAG, PEERS]);
    let dropped = chain.servers[RELAY].command("index/drop", &["Net", "Port", "kind"]);
    assert_eq!(dropped, Some(Ok(String::new())));
    assert_eq!(listed(&mut chain.servers[RELAY]), all[1..]);
}

#[test]
fn a_conversion_through_a_relay_declares_with_both() {
    let mut chain = chain();
    add(&mut chain.servers[RELAY], &["tag", "asc"]);
    let convert =
        |schema: &str| format!(r#"{{"id":9,"method":"convert","params":["Net",{schema}]}}"#);
    let without = SCHEMA.replace(r#""tag":{"type":"integer"},"#, "");
    let with = SCHEMA.replace(r#""kind":{"#, r#""kind":{"alternate_key":true,"#);
    let (kind, tag) =
        ("Net Port kind hash declared ready", "Net Port tag ordered declared, asc ready");
    for (schema, of_source, of_relay) in [
        (without, &[][..], &["Net Port tag - declared, asc no column"][..]),
        (with, &[kind], &[kind, tag]),
        (SCHEMA.to_owned(), &[kind], &[kind, tag]),
    ] {
        let client = chain.servers[RELAY].connect();
        let reply = chain.call(RELAY, client, &convert(&schema));
        assert_eq!(reply, [r#"{"id":9,"result":{},"error":null}"#]);
        chain.pass_ms(20_000);
        assert_eq!(listed(&mut chain.servers[0]), of_source);
        assert_eq!(listed(&mut chain.servers[RELAY]), of_relay);
    }
    assert!(chain.servers[0].files.contains_key(&key_path(PATH)));
}

#[test]
fn what_monitors_of_a_relay_look_for_is_a_reason_for_its_key() {
    let mut chain = chain();
    for n in 0..SCANS {
        let rows = first_rows(&mut chain.servers[RELAY], &format!(r#"["kind","==","k{n}"]"#));
        assert_eq!(rows.matches("\"name\"").count(), 10, "{rows}");
        chain.settle();
    }
    chain.pass_ms(500);
    let relay = &mut chain.servers[RELAY];
    assert_eq!(listed(relay), ["Net Port kind hash server ready"]);
    assert_eq!(logged(relay, "Net: building a hash key on column kind of table Port: for want"), 1);
    let before = counted(relay, "monitor_linear");
    assert!(before >= 32, "{before}");
    let rows = first_rows(relay, r#"["kind","==","k100"]"#);
    assert_eq!(rows.matches("\"name\"").count(), 10, "{rows}");
    assert_eq!(counted(relay, "monitor_linear"), before);
    check(&mut chain, &[KIND]);
    // Changes that come from the source are what it costs.
    let writer = chain.servers[0].connect();
    let update = r#"{"op":"update","table":"Port","where":[],"row":{"kind":"z"}}"#;
    chain.call(0, writer, &transact(1, update));
    for row in 0..2 * MANY / 10 {
        let update = format!(
            r#"{{"op":"update","table":"Port","where":[["tag","==",{}]],"row":{{"kind":"z{row}"}}}}"#,
            row % 100
        );
        chain.call(0, writer, &transact(1, &update));
    }
    chain.pass_ms(500);
    let relay = &mut chain.servers[RELAY];
    assert_eq!(logged(relay, "dropped the hash key on column kind of table Port: it saved"), 1);
    assert_eq!(listed(relay), Vec::<String>::new());
}

#[test]
fn a_relay_counts_how_rows_are_found_and_logs_what_is_slow() {
    let mut chain = chain();
    let relay = &mut chain.servers[RELAY];
    assert_eq!(relay.command("weir/slow-query-rows", &["1000"]), Some(Ok(String::new())));
    select(relay, KIND.0);
    select(relay, r#"["name","==","p7"]"#);
    add(relay, &["kind"]);
    relay.pass_ms(1);
    select(relay, KIND.0);
    let counts = ["query_linear", "query_primary", "query_alternate"];
    assert_eq!(counts.map(|name| counted(relay, name)), [1, 1, 1]);
    assert_eq!(counted(&chain.servers[0], "query_linear"), 0);
    let relay = &chain.servers[RELAY];
    assert_eq!(logged(relay, "slow query: operation 1 looked at 3000 rows of table Port"), 1);
}

#[test]
fn a_configuration_declares_keys_of_a_relay() {
    let path = "/etc/weir.json";
    let text = |keys: &str| {
        format!(
            r#"{{"remotes":{{"punix:/relay.sock":null}},"databases":{{"Net":{{"service-model":"relay",
               "source":{{"unix:/server0":null}},"keys":{{"Port":{{{keys}}}}}}}}}}}"#
        )
    };
    let files = BTreeMap::from([(path.to_owned(), text(r#""kind":"hash""#).into_bytes())]);
    let config = Config { config_file: Some(path.to_owned()), ..Config::default() };
    let relay = Shell::start_on_files(b"relay".to_vec(), files, config);
    let mut chain = Chain::joined(vec![server_of(MANY), relay]);
    assert_eq!(listed(&mut chain.servers[RELAY]), ["Net Port kind hash configuration ready"]);
    check(&mut chain, &[KIND]);
    let relay = &mut chain.servers[RELAY];
    relay.files.insert(path.to_owned(), text(r#""tag":"asc""#).into_bytes());
    assert_eq!(relay.command("ovsdb-server/reload", &[]), Some(Ok(String::new())));
    chain.pass_ms(500);
    let relay = &mut chain.servers[RELAY];
    assert_eq!(listed(relay), ["Net Port tag ordered configuration, asc ready"]);
    check(&mut chain, &[TAG]);
}

/// What a conversion asked for that came to nothing is not asked for by the next one of the same name.
#[test]
fn a_conversion_that_came_to_nothing_declares_nothing() {
    let mut chain = chain();
    let with = |column: &str| {
        let schema = SCHEMA.replace(
            &format!(r#""{column}":{{"#),
            &format!(r#""{column}":{{"alternate_key":true,"#),
        );
        format!(r#"{{"id":9,"method":"convert","params":["Net",{schema}]}}"#)
    };
    let client = chain.servers[RELAY].connect();
    chain.servers[RELAY].call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    // It is with the source, or may be.
    chain.servers[RELAY].send(client, &with("kind"));
    chain.servers[RELAY].settle();
    chain.lose(RELAY);
    chain.settle();
    let told = chain.servers[RELAY].received(client);
    assert_eq!(told.last().map(String::as_str), Some(r#"{"id":9,"error":"canceled"}"#), "{told:?}");
    chain.pass_ms(20_000);
    chain.servers[RELAY].received(client);
    let reply = chain.call(RELAY, client, &with("tag"));
    assert_eq!(reply.last().map(String::as_str), Some(r#"{"id":9,"result":{},"error":null}"#));
    chain.pass_ms(20_000);
    assert_eq!(listed(&mut chain.servers[RELAY]), ["Net Port tag hash declared ready"]);
}
