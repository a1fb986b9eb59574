//! Relays (ovsdb(7), "Relay Service Model") under scripted shells: chains of them behind a source of
//! ours, and one behind a source that knows only what the reference does.

use crate::chain::Chain;
use crate::shell::{PATH, SCHEMA, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::Config;
use weir_server::event::{Event, LinkId, SessionId};

pub(crate) const ZERO: &str = "00000000-0000-0000-0000-000000000000";

pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The row of `Net` in `_Server`.
fn server_row(shell: &mut Shell) -> Value {
    let client = shell.connect();
    let select = r#"{"id":1,"method":"transact","params":["_Server",{"op":"select","table":"Database",
        "where":[["name","==","Net"]],"columns":["model","connected","leader","schema"]}]}"#;
    value(&shell.call(client, select))["result"][0]["rows"][0].clone()
}

fn monitor_since(id: u32, last: &str) -> String {
    format!(
        r#"{{"id":{id},"method":"monitor_cond_since","params":["Net","m",{{"Port":{{"columns":["name","tags"]}}}},"{last}"]}}"#
    )
}

#[test]
fn rows_go_down_a_chain_of_ten_and_writes_go_up() {
    const LAST: usize = 10;
    let mut chain = Chain::start(LAST);
    let source_client = chain.servers[0].connect();
    chain.call(0, source_client, &transact(1, &insert("a")));
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a"]);
    }
    let client = chain.servers[LAST].connect();
    let reply = chain.call(LAST, client, &transact(2, &insert("b")));
    assert_eq!(value(&reply[0])["id"], 2);
    assert!(value(&reply[0])["result"][0]["uuid"][1].is_string(), "{reply:?}");
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a", "b"]);
    }
    let row = server_row(&mut chain.servers[LAST]);
    assert_eq!(
        (&row["model"], &row["connected"], &row["leader"]),
        (&json!("relay"), &json!(true), &json!(false))
    );
    let dbs = chain.servers[LAST].command("ovsdb-server/list-dbs", &[]).unwrap();
    assert_eq!(dbs, Ok("Net\n_Server\n".into()));
}

#[test]
fn who_writes_sees_his_change_before_his_reply() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    chain.call(2, client, &monitor_since(1, ZERO));
    let messages = chain.call(2, client, &transact(2, &insert("a")));
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(value(&messages[0])["method"], "update3");
    assert_eq!(value(&messages[1])["id"], 2);
}

#[test]
fn writes_that_helpers_try_first_go_to_the_source() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    // Longer than what the loop reads itself.
    let long = insert(&"long".repeat(300_000));
    let reply = chain.call(2, client, &transact(1, &long));
    assert!(value(&reply[0])["result"][0]["uuid"].is_array(), "{reply:?}");
    let row = r#"[{"name":"b"}]"#;
    let wait = format!(
        r#"{{"op":"wait","table":"Port","where":[["name","==","b"]],"columns":["name"],"until":"==","rows":{row},"timeout":60000}}"#
    );
    chain.servers[2].send(client, &transact(2, &format!("{wait},{}", insert("c"))));
    chain.settle();
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, &insert("b")));
    chain.settle();
    let reply = chain.servers[2].received(client).pop().expect("an answer");
    assert!(value(&reply)["result"][1]["uuid"].is_array(), "{reply}");
    for server in &mut chain.servers {
        assert_eq!(ports(server)[..2], ["b", "c"]);
        assert_eq!(ports(server).len(), 3);
    }
}

/// What has not come to a relay yet is there for whoever writes through it, however long the message is.
#[test]
fn a_write_that_helpers_look_at_finds_what_the_source_has() {
    let mut chain = Chain::start(1);
    let (writer, client) = (chain.servers[0].connect(), chain.servers[1].connect());
    for (name, bytes) in [("short", 1), ("long", 2 << 20)] {
        chain.servers[0].call(writer, &transact(1, &insert(name)));
        let row = format!(r#"{{"op":"delete","table":"Port","where":[["name","==","{name}"]]}}"#);
        let comment = format!(r#"{{"op":"comment","comment":"{}"}}"#, "x".repeat(bytes));
        // The relay is asked before it hears of the row.
        chain.servers[1].send(client, &transact(2, &format!("{row},{comment}")));
        chain.servers[1].settle();
        chain.settle();
        let told = chain.servers[1].received(client);
        assert_eq!(value(&told[0])["result"], json!([{"count": 1}, {}]), "{name}");
    }
}

#[test]
fn the_source_decides_what_breaks_a_constraint() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, &transact(1, &insert("a")));
    let reply = chain.call(1, client, &transact(2, &insert("a")));
    assert_eq!(value(&reply[0])["result"][1]["error"], "constraint violation");
    assert_eq!(ports(&mut chain.servers[1]), ["a"]);
}

#[test]
fn states_have_the_same_ids_everywhere() {
    const LAST: usize = 10;
    let mut chain = Chain::start(LAST);
    let clients: Vec<SessionId> = chain.servers.iter_mut().map(|server| server.connect()).collect();
    for (at, client) in clients.iter().enumerate() {
        chain.call(at, *client, &monitor_since(1, ZERO));
    }
    chain.call(LAST, clients[LAST], &transact(2, &insert("a")));
    chain.servers.iter_mut().zip(&clients).for_each(|(server, client)| {
        server.received(*client);
    });
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, &insert("b")));
    let ids: Vec<Value> = chain
        .servers
        .iter_mut()
        .zip(&clients)
        .map(|(server, client)| value(&server.received(*client)[0])["params"][1].clone())
        .collect();
    assert_ne!(ids[0], json!(ZERO));
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    // Who knows a state from one server goes on with another.
    chain.call(0, writer, &transact(2, &insert("c")));
    for at in [0, 1, LAST] {
        let client = chain.servers[at].connect();
        let reply = chain.call(at, client, &monitor_since(1, ids[0].as_str().unwrap()));
        let result = &value(&reply[0])["result"];
        assert_eq!(result[0], true, "server {at}: {result}");
        assert_eq!(result[2]["Port"].as_object().map(|rows| rows.len()), Some(1), "{result}");
    }
}

#[test]
fn a_relay_goes_on_where_it_was() {
    let mut chain = Chain::start(2);
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, &insert("a")));
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.settle();
    chain.call(0, writer, &transact(2, &insert("b")));
    assert_eq!(ports(&mut chain.servers[2]), ["a"]);
    chain.is_cut[1] = false;
    let client = chain.servers[2].connect();
    chain.call(2, client, &monitor_since(1, ZERO));
    chain.pass_ms(20_000);
    assert_eq!(ports(&mut chain.servers[2]), ["a", "b"]);
    // Only what is new was told.
    let told = chain.servers[2].received(client);
    let told: Vec<Value> = told.iter().map(|message| value(message)).collect();
    let of_rows = told.iter().filter(|message| message["method"] == "update3");
    let rows: Vec<usize> = of_rows
        .filter_map(|message| Some(message["params"][2]["Port"].as_object()?.len()))
        .collect();
    assert_eq!(rows, [1], "{told:?}");
}

#[test]
fn a_write_whose_answer_was_lost_is_made_once() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, &transact(1, &insert("a")));
    // The request arrives at the source, and the answer never comes back.
    chain.servers[1].send(client, &transact(2, &insert("b")));
    chain.servers[1].settle();
    chain.carry_up(1);
    chain.lose(1);
    chain.pass_ms(20_000);
    assert_eq!(ports(&mut chain.servers[0]), ["a", "b"]);
    assert_eq!(ports(&mut chain.servers[1]), ["a", "b"]);
    // What its operations answered nobody knows.
    let reply = chain.servers[1].received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["error"], "canceled", "{reply}");
}

#[test]
fn a_write_that_did_not_arrive_is_made_once_the_source_is_back() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, &transact(1, &insert("a")));
    chain.servers[1].send(client, &transact(2, &insert("b")));
    chain.servers[1].settle();
    chain.lose(1);
    chain.pass_ms(20_000);
    assert_eq!(ports(&mut chain.servers[0]), ["a", "b"]);
    let reply = chain.servers[1].received(client).pop().expect("an answer");
    assert!(value(&reply)["result"][0]["uuid"].is_array(), "{reply}");
}

#[test]
fn a_relay_gives_memory_back_where_others_compact_their_files() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, &transact(1, &insert("a")));
    let compact = |shell: &mut Shell, of: &[&str]| shell.command("ovsdb-server/compact", of);
    for of in [&["Net"][..], &[]] {
        assert_eq!(compact(&mut chain.servers[1], of), Some(Ok(String::new())));
    }
    assert_eq!(ports(&mut chain.servers[1]), ["a"]);
    let (mut early, _) = relay();
    assert_eq!(compact(&mut early, &[]), Some(Ok(String::new())));
}

#[test]
fn a_relay_that_lost_its_source_says_so_after_a_while_and_serves_what_it_has() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, &transact(1, &insert("a")));
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.pass_ms(25_000);
    assert_eq!(server_row(&mut chain.servers[1])["connected"], true);
    chain.pass_ms(10_000);
    assert_eq!(server_row(&mut chain.servers[1])["connected"], false);
    assert_eq!(ports(&mut chain.servers[1]), ["a"]);
    chain.is_cut[1] = false;
    chain.pass_ms(20_000);
    assert_eq!(server_row(&mut chain.servers[1])["connected"], true);
}

#[test]
fn a_source_with_other_rows_is_followed_all_the_same() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    chain.call(2, client, &transact(1, &insert("a")));
    chain.call(2, client, &transact(2, &insert("b")));
    chain.call(2, client, &monitor_since(3, ZERO));
    let mut other = Shell::start();
    let writer = other.connect();
    other.call(writer, &transact(1, &insert("b")));
    other.call(writer, &transact(2, &insert("c")));
    chain.replace_source(other);
    chain.pass_ms(20_000);
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["b", "c"]);
    }
}

#[test]
fn another_schema_comes_down_the_chain() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    chain.call(2, client, &transact(1, &insert("a")));
    let aware = chain.servers[2].connect();
    chain.call(2, aware, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    chain.call(2, aware, &monitor_since(2, ZERO));
    let mut schema = value(SCHEMA);
    schema["version"] = json!("2.0.0");
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    let convert = json!({"id":3,"method":"convert","params":["Net", schema]});
    // Any server of the chain can be asked.
    let converter = chain.servers[2].connect();
    let reply = chain.call(2, converter, &convert.to_string());
    assert_eq!(value(&reply[0])["result"], json!({}), "{reply:?}");
    chain.pass_ms(20_000);
    let told = chain.servers[2].received(aware);
    assert!(told.iter().any(|message| value(message)["method"] == "monitor_canceled"), "{told:?}");
    let insert = r#"{"op":"insert","table":"Port","row":{"name":"b","speed":9}}"#;
    let again = chain.servers[2].connect();
    chain.call(2, again, &transact(1, insert));
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a", "b"]);
    }
    let row = server_row(&mut chain.servers[2]);
    assert!(row["schema"].as_str().unwrap().contains("speed"));
}

/// A relay, and the connection to a source that the test plays.
pub(crate) fn relay() -> (Shell, LinkId) {
    let config =
        Config { databases: vec!["relay:Net:tcp:192.0.2.1:6640".into()], ..Config::default() };
    let mut shell = Shell::start_with(b"relay".to_vec(), config);
    let link = open(&mut shell);
    (shell, link)
}

fn open(shell: &mut Shell) -> LinkId {
    let (link, target) = shell.connecting.pop().expect("a connection was begun");
    assert_eq!(target, "tcp:192.0.2.1:6640");
    shell.event(Event::LinkUp { link });
    shell.settle();
    link
}

/// The next attempt, after a pause.
fn reopen(shell: &mut Shell) -> LinkId {
    shell.connecting.clear();
    while shell.connecting.is_empty() {
        shell.pass_ms(250);
    }
    open(shell)
}

/// What the relay has asked for since.
pub(crate) fn asked(shell: &mut Shell, link: LinkId) -> Vec<Value> {
    let log = shell.log.join("\n");
    let bytes = shell.links.get_mut(&link).unwrap_or_else(|| panic!("the link has ended: {log}"));
    let bytes = std::mem::take(bytes);
    let stream = serde_json::Deserializer::from_slice(&bytes).into_iter();
    stream.map(|request| request.expect("requests")).collect()
}

pub(crate) fn say(shell: &mut Shell, link: LinkId, message: &Value) {
    shell.event(Event::LinkMessage { link, bytes: message.to_string().into_bytes() });
    shell.settle();
}

/// Answers requests as a server does that knows these methods beyond the oldest.
pub(crate) fn answer(shell: &mut Shell, link: LinkId, knows: &[&str], rows: &Value) -> Vec<String> {
    let mut methods = Vec::new();
    loop {
        let requests = asked(shell, link);
        if requests.is_empty() {
            return methods;
        }
        for request in requests {
            let method = request["method"].as_str().unwrap();
            methods.push(method.to_owned());
            let is_server = request["params"][0] == "_Server";
            let row = json!({"name":"Net","model":"standalone","connected":true,"leader":true,"schema":SCHEMA});
            let result = match method {
                "set_db_change_aware" => json!({}),
                "get_schema" if is_server && knows.contains(&"_Server") => json!({}),
                "get_schema" if !is_server => value(SCHEMA),
                "monitor_cond" if is_server => json!({"Database": {ZERO: {"initial": row}}}),
                "monitor" => rows.clone(),
                method if knows.contains(&method) => match method {
                    "monitor_cond_since" => json!([false, ZERO, rows]),
                    _ => rows.clone(),
                },
                _ => Value::Null,
            };
            let error = if result.is_null() { json!("unknown method") } else { Value::Null };
            say(shell, link, &json!({"id":request["id"],"result":result,"error":error}));
        }
    }
}

pub(crate) const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";

#[test]
fn before_the_first_rows_there_is_a_name_and_nothing_else() {
    let (mut shell, link) = relay();
    let early = shell.connect();
    assert_eq!(shell.call(early, &transact(7, &insert("a"))), "", "it waits for the first rows");
    shell.pass_ms(5000);
    let refused = shell.received(early).pop().expect("it does not wait for ever");
    assert_eq!(value(&refused)["error"]["error"], "database not available", "{refused}");
    let client = shell.connect();
    let list = shell.call(client, r#"{"id":1,"method":"list_dbs","params":[]}"#);
    assert_eq!(value(&list)["result"], json!(["Net", "_Server"]));
    let refused = shell.call(client, &transact(2, &insert("a")));
    assert_eq!(value(&refused)["error"]["error"], "database not available", "{refused}");
    let row = server_row(&mut shell);
    assert_eq!((&row["model"], &row["connected"]), (&json!("relay"), &json!(false)));
    assert_eq!(row["schema"], json!(["set", []]));
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &["_Server", "monitor_cond_since"], &rows);
    // Both have been told that there are no rows.
    assert!([early, client].iter().all(|session| shell.disconnected.contains(session)));
    assert_eq!(ports(&mut shell), ["a"]);
    assert_eq!(server_row(&mut shell)["connected"], true);
}

#[test]
fn who_comes_before_the_first_rows_is_answered_when_they_are_there() {
    let (mut shell, link) = relay();
    let client = shell.connect();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
    assert_eq!(shell.call(client, &transact(1, select)), "");
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &["_Server", "monitor_cond_since"], &rows);
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["result"][0]["rows"], json!([{"name": "a"}]));
    assert!(shell.disconnected.is_empty(), "{:?}", shell.disconnected);
}

#[test]
fn old_sources_are_asked_as_they_know_it() {
    let new = json!({"Port": {A: {"initial": {"name": "a"}}}});
    let old = json!({"Port": {A: {"new": {"name": "a"}}}});
    for (knows, rows, update) in [
        (
            &["_Server", "monitor_cond_since"][..],
            &new,
            json!(["update3", [["monid","Net"], ZERO, {"Port":{A:{"modify":{"tags":"t"}}}}]]),
        ),
        (
            &["_Server", "monitor_cond"],
            &new,
            json!(["update2", [["monid","Net",2], {"Port":{A:{"modify":{"tags":"t"}}}}]]),
        ),
        (
            &[],
            &old,
            json!(["update", [["monid","Net",3], {"Port":{A:{"old":{"tags":["set",[]]},"new":{"name":"a","tags":"t"}}}}]]),
        ),
    ] {
        let (mut shell, link) = relay();
        let methods = answer(&mut shell, link, knows, rows);
        assert_eq!(ports(&mut shell), ["a"], "{methods:?}");
        let client = shell.connect();
        shell.call(client, &monitor_since(1, ZERO));
        say(&mut shell, link, &json!({"id":null,"method":update[0],"params":update[1]}));
        let told = value(&shell.received(client)[0]);
        assert_eq!(told["params"][2]["Port"][A]["modify"], json!({"tags":"t"}), "{methods:?}");
        // The state has an id here though the source gave none.
        assert_ne!(told["params"][1], json!(ZERO));
    }
}

#[test]
fn a_write_that_an_old_source_may_have_made_is_canceled_and_not_made_again() {
    let (mut shell, link) = relay();
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    let knows = ["_Server", "monitor_cond_since"];
    answer(&mut shell, link, &knows, &rows);
    let client = shell.connect();
    shell.send(client, &transact(1, &insert("b")));
    shell.settle();
    let requests = asked(&mut shell, link);
    assert_eq!(requests[0]["method"], "transact");
    assert_eq!(requests[0]["params"][0], "Net");
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!((&value(&reply)["id"], &value(&reply)["error"]), (&json!(1), &json!("canceled")));
    // What comes while the source is away waits for it.
    shell.send(client, &transact(2, &insert("c")));
    shell.settle();
    let link = reopen(&mut shell);
    let methods = answer(&mut shell, link, &knows, &rows);
    assert_eq!(methods.iter().filter(|method| *method == "transact").count(), 1, "{methods:?}");
}

#[test]
fn rows_that_make_no_sense_are_asked_for_again() {
    let (mut shell, link) = relay();
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    let knows = ["_Server", "monitor_cond_since"];
    answer(&mut shell, link, &knows, &rows);
    let mut link = link;
    for nonsense in [
        json!({"Port": {A: {"insert": {"name": "twice"}}}}),
        json!({"Port": {ZERO: {"delete": null}}}),
        json!({"Nothing": {}}),
        json!([]),
    ] {
        let update = json!([["monid", "Net"], ZERO, nonsense]);
        say(&mut shell, link, &json!({"id":null,"method":"update3","params":update}));
        assert!(!shell.links.contains_key(&link), "{nonsense}");
        link = reopen(&mut shell);
        answer(&mut shell, link, &knows, &rows);
        assert_eq!(ports(&mut shell), ["a"]);
    }
}

#[test]
fn relays_come_and_go_by_admin_commands() {
    let mut shell = Shell::start();
    let add =
        |shell: &mut Shell, name: &str| shell.command("ovsdb-server/add-db", &[name]).unwrap();
    assert_eq!(add(&mut shell, "relay:Other:tcp:192.0.2.1:6640"), Ok(String::new()));
    let twice = "ovsdb error: Other: duplicate database name";
    assert_eq!(add(&mut shell, "relay:Other:tcp:192.0.2.2:6640"), Err(twice.into()));
    assert_eq!(
        add(&mut shell, "relay:Other"),
        Err("ovsdb error: relay:Other: invalid syntax".into())
    );
    let list = shell.command("ovsdb-server/list-dbs", &[]).unwrap();
    assert_eq!(list, Ok("Net\nOther\n_Server\n".into()));
    assert!(String::from_utf8_lossy(shell.saved.as_deref().unwrap()).contains("192.0.2.1"));
    let status = shell.command("ovsdb-server/get-db-storage-status", &["Other"]).unwrap();
    assert_eq!(status, Ok("status: ok".into()));
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Other"]).unwrap(), Ok(String::new()));
    let list = shell.command("ovsdb-server/list-dbs", &[]).unwrap();
    assert_eq!(list, Ok("Net\n_Server\n".into()));
    assert!(shell.files.contains_key(PATH));
}

#[test]
fn a_configuration_file_has_relays_beside_files() {
    const CONFIG: &str = "/etc/config.json";
    let with = |relay: &str| format!(r#"{{"remotes":{{}},"databases":{{"{PATH}":null{relay}}}}}"#);
    let of = |source: &str| {
        let options = r#"{"inactivity-probe":7000,"max-backoff":3000}"#;
        with(&format!(r#","Other":{{"service-model":"relay","source":{{"{source}":{options}}}}}"#))
    };
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let files = [(CONFIG.to_owned(), of("tcp:192.0.2.1:6640").into_bytes())];
    let config = Config { config_file: Some(CONFIG.to_owned()), ..Config::default() };
    let mut shell = Shell::start_on_files(file, files.into(), config);
    let (first, target) = shell.connecting.pop().expect("a connection was begun");
    assert_eq!(target, "tcp:192.0.2.1:6640");
    shell.event(Event::LinkUp { link: first });
    shell.pass_ms(5000);
    let client = shell.connect();
    shell.call(client, r#"{"id":0,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(client, &transact(1, &insert("a")));
    let mut reload = |config: String| {
        shell.files.insert(CONFIG.to_owned(), config.into_bytes());
        assert_eq!(shell.command("ovsdb-server/reload", &[]), Some(Ok(String::new())));
        shell.pass_ms(2000);
        let dbs = shell.command("ovsdb-server/list-dbs", &[]).unwrap().unwrap();
        (dbs, shell.links.contains_key(&first), std::mem::take(&mut shell.connecting))
    };
    let names = || "Net\nOther\n_Server\n".to_owned();
    assert_eq!(reload(of("tcp:192.0.2.1:6640")), (names(), true, vec![]), "nothing is new");
    let (dbs, has_first, begun) = reload(of("tcp:192.0.2.2:6640"));
    assert_eq!((dbs, has_first), (names(), false));
    assert!(begun.iter().all(|(_, target)| target == "tcp:192.0.2.2:6640"), "{begun:?}");
    assert_eq!(begun.len(), 1);
    assert_eq!(reload(with("")).0, "Net\n_Server\n");
    // Who is served from the file notices nothing.
    assert_eq!(shell.disconnected, []);
    assert_eq!(ports(&mut shell), ["a"]);
}

/// Who is configured as the source is followed, and nobody who was being connected to before.
#[test]
fn another_source_ends_an_attempt_to_reach_the_one_before() {
    const CONFIG: &str = "/etc/config.json";
    let of = |source: &str| {
        let relay = format!(r#"{{"service-model":"relay","source":{{"{source}":null}}}}"#);
        format!(r#"{{"remotes":{{}},"databases":{{"Net":{relay}}}}}"#).into_bytes()
    };
    let files = [(CONFIG.to_owned(), of("tcp:192.0.2.1:6640"))];
    let config = Config { config_file: Some(CONFIG.to_owned()), ..Config::default() };
    let mut shell = Shell::start_on_files(b"relay".to_vec(), files.into(), config);
    let (first, _) = shell.connecting.pop().expect("a connection was begun");
    shell.files.insert(CONFIG.to_owned(), of("tcp:192.0.2.2:6640"));
    assert_eq!(shell.command("ovsdb-server/reload", &[]), Some(Ok(String::new())));
    assert!(!shell.links.contains_key(&first), "nobody waits for it");
    shell.pass_ms(2000);
    let begun: Vec<&str> = shell.connecting.iter().map(|(_, target)| target.as_str()).collect();
    assert_eq!(begun, ["tcp:192.0.2.2:6640"]);
}

#[test]
fn how_long_a_silent_source_is_waited_for_can_be_set() {
    let (mut shell, link) = relay();
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &["_Server", "monitor_cond_since"], &rows);
    let set = "ovsdb-server/set-relay-source-probe-interval";
    assert_eq!(shell.command(set, &["7000"]), Some(Ok(String::new())));
    shell.pass_ms(6500);
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
    shell.pass_ms(1000);
    assert_eq!(asked(&mut shell, link)[0]["method"], "echo");
    shell.pass_ms(6000);
    assert!(shell.links.contains_key(&link), "it may answer yet");
    shell.pass_ms(1500);
    assert!(!shell.links.contains_key(&link), "it is lost");
}

#[test]
fn who_must_not_read_what_is_stale_waits_for_what_the_source_has() {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    let sync = |id: u32| format!(r#"{{"id":{id},"method":"weir_sync","params":["Net",1000]}}"#);
    let reply = chain.call(2, client, &sync(1));
    assert_eq!(value(&reply[0])["result"], json!({}), "{reply:?}");
    // A source that is out of reach may have committed anything.
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.settle();
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, &insert("a")));
    assert_eq!(chain.call(2, client, &sync(2)), Vec::<String>::new());
    chain.pass_ms(1500);
    let reply = chain.servers[2].received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["error"]["error"], "timed out", "{reply}");
    chain.is_cut[1] = false;
    chain.servers[2].send(client, r#"{"id":3,"method":"weir_sync","params":["Net",60000]}"#);
    chain.pass_ms(20_000);
    let reply = chain.servers[2].received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["result"], json!({}), "{reply}");
    assert_eq!(ports(&mut chain.servers[2]), ["a"]);
}

/// Each server makes up versions of its own: a row that was not to be deleted if it had not changed would be.
#[test]
fn what_another_server_would_judge_by_its_own_versions_is_refused() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    chain.call(1, client, &transact(1, &insert("a")));
    let version = json!(["uuid", ZERO]);
    let [delete, update] = [("delete", "!="), ("update", "==")].map(|(op, function)| {
        json!({"op": op, "table": "Port", "where": [["_version", function, version]], "row": {"name": "b"}})
    });
    let wait = json!({"op": "wait", "timeout": 0, "table": "Port", "where": [], "until": "==",
        "columns": ["name", "_version"], "rows": [{"name": "a", "_version": version}]});
    let (delete, update) = (delete.to_string(), update.to_string());
    let escaped = delete.replace("_version", r"\u005fversion");
    for operations in [delete, escaped, update, format!("{wait},{}", insert("c"))] {
        let reply = chain.call(1, client, &transact(2, &operations)).pop().expect("an answer");
        assert!(reply.contains("not supported"), "{operations}: {reply}");
    }
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["_version"]}"#;
    let reply = chain.call(1, client, &transact(3, &format!("{select},{}", insert("d"))));
    assert!(reply.last().is_some_and(|reply| reply.contains("_version")), "{reply:?}");
    assert_eq!(ports(&mut chain.servers[1]), ["a", "d"]);
}

#[test]
fn each_change_is_told_with_its_id_to_who_asks_for_that() {
    let mut shell = Shell::start();
    let writer = shell.connect();
    let watcher = shell.connect();
    let ask = |each: &str, requests: &str| {
        format!(
            r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{requests},"{ZERO}",{each}]}}"#
        )
    };
    let names = r#"{"Port":{"columns":["name"]}}"#;
    for (options, requests, expected) in [
        ("{}", names, "there is no other way yet"),
        (r#"{"every":true}"#, names, "options are"),
        (r#"{"each":true}"#, r#"{"Port":{"columns":["up"]}}"#, "no record has column up"),
        (r#"{"each":true}"#, r#"{"Port":{}}"#, "no record has column"),
        (
            r#"{"each":true}"#,
            r#"{"Port":{"columns":["name"],"where":[["name","==","a"]]}}"#,
            "has a condition",
        ),
    ] {
        let refused = shell.call(watcher, &ask(options, requests));
        assert!(refused.contains(expected), "{refused}");
    }
    let begun = value(&shell.call(watcher, &ask(r#"{"each":true}"#, names)));
    assert_eq!(begun["result"][0], false);
    let reader = shell.connect();
    shell.call(reader, &monitor_since(1, ZERO));
    // Three transactions of one round; the one in the middle changes nothing that is watched.
    shell.send(writer, &transact(1, &insert("a")));
    let tags = r#"{"op":"update","table":"Port","where":[],"row":{"tags":"t"}}"#;
    shell.send(writer, &transact(2, tags));
    shell.send(writer, &transact(3, &insert("b")));
    shell.settle();
    let told: Vec<Value> = shell.received(watcher).iter().map(|it| value(it)).collect();
    assert!(told.iter().all(|update| update["method"] == "weir_update"), "{told:?}");
    let rows =
        |update: &Value| update["params"][3]["Port"].as_object().map_or(0, |rows| rows.len());
    assert_eq!(told.iter().map(rows).collect::<Vec<_>>(), [1, 0, 1]);
    assert!(told.iter().all(|update| update["params"][2].is_null()));
    // Any of these ids is one to come back with, by either method.
    let middle = told[1]["params"][1].as_str().unwrap();
    let back = shell.connect();
    shell.send(back, &monitor_since(1, middle));
    shell.settle();
    let reply = value(&shell.received(back)[0]);
    assert_eq!(reply["result"][0], true);
    assert_eq!(reply["result"][2]["Port"].as_object().map(|rows| rows.len()), Some(1));
    let cancel = shell.call(watcher, r#"{"id":9,"method":"monitor_cancel","params":["w"]}"#);
    assert_eq!(value(&cancel)["result"], json!({}));
    shell.call(writer, &transact(4, &insert("c")));
    assert_eq!(shell.received(watcher), Vec::<String>::new());
}

#[test]
fn a_relay_that_is_stuck_is_told_each_change_later() {
    let mut shell = Shell::start();
    let (writer, watcher) = (shell.connect(), shell.connect());
    let ask = format!(
        r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{{"Port":{{"columns":["name"]}}}},"{ZERO}",{{"each":true}}]}}"#
    );
    shell.call(watcher, &ask);
    shell.event(Event::Blocked { session: watcher });
    for n in 0..5 {
        shell.call(writer, &transact(n, &insert(&format!("p{n}"))));
    }
    assert_eq!(shell.received(watcher), Vec::<String>::new());
    shell.event(Event::Drained { session: watcher });
    shell.settle();
    assert_eq!(shell.received(watcher).len(), 5);
}

/// The first requests of a relay are answered, and those for rows are out: their number.
fn until_rows_are_asked_for(shell: &mut Shell, link: LinkId) -> Value {
    let row = json!({"name":"Net","model":"clustered","connected":true,"leader":true,"index":3,"schema":SCHEMA});
    loop {
        for request in asked(shell, link) {
            let result = match request["method"].as_str().unwrap() {
                "monitor_cond" => json!({"Database": {ZERO: {"initial": row}}}),
                "monitor_cond_since" => return request["id"].clone(),
                "weir_features" => {
                    let error = json!({"id":request["id"],"result":null,"error":"unknown method"});
                    say(shell, link, &error);
                    continue;
                }
                _ => json!({}),
            };
            say(shell, link, &json!({"id":request["id"],"result":result,"error":null}));
        }
    }
}

#[test]
fn what_a_source_says_is_read_in_its_order_however_long_a_helper_takes() {
    let (mut shell, link) = relay();
    let rows = until_rows_are_asked_for(&mut shell, link);
    shell.slow_work = true;
    let index = json!([["monid","_Server"], {"Database": {ZERO: {"modify": {"index": 4}}}}]);
    let update = |id: &str, edit: Value| json!([["monid","Net"], id, {"Port": {A: edit}}]);
    let first = json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}]);
    for message in [
        json!({"id":null,"method":"update2","params":index}),
        json!({"id":rows,"result":first,"error":null}),
        json!({"id":null,"method":"update3","params":update(A, json!({"modify":{"tags":"t"}}))}),
        json!({"id":"echo","method":"echo","params":[]}),
        json!({"id":null,"method":"update3","params":update(ZERO, json!({"delete":null}))}),
    ] {
        say(&mut shell, link, &message);
    }
    let told = asked(&mut shell, link);
    assert_eq!(told, [json!({"id":"echo","result":[],"error":null})], "a probe waits for nobody");
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    shell.slow_work = false;
    assert_eq!(ports(&mut shell), Vec::<String>::new());
    let client = shell.connect();
    let select = r#"{"id":1,"method":"transact","params":["_Server",{"op":"select","table":"Database",
        "where":[["name","==","Net"]],"columns":["index","connected"]}]}"#;
    let row = value(&shell.call(client, select))["result"][0]["rows"][0].clone();
    assert_eq!(row, json!({"index": 4, "connected": true}));
}

const STATE: &str = "bbbbbbbb-0000-4000-8000-000000000002";

/// A relay that has sent a write of a client to a source of ours: the client, and the request.
fn with_a_write() -> (Shell, LinkId, SessionId, Value) {
    let (mut shell, link) = relay();
    let features = json!(["weir_features", "weir_transact"]);
    let row =
        json!({"name":"Net","model":"standalone","connected":true,"leader":true,"schema":SCHEMA});
    for _ in 0..3 {
        for request in asked(&mut shell, link) {
            let result = match request["method"].as_str().unwrap() {
                "weir_features" => features.clone(),
                "monitor_cond" => json!({"Database": {ZERO: {"initial": row}}}),
                "monitor_cond_since" => json!([false, A, {}]),
                _ => json!({}),
            };
            say(&mut shell, link, &json!({"id":request["id"],"result":result,"error":null}));
        }
    }
    let client = shell.connect();
    // A conversion does not end its session.
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.send(client, &transact(1, &insert("a")));
    shell.settle();
    let request = asked(&mut shell, link).swap_remove(0);
    assert_eq!(request["method"], "weir_transact");
    assert_eq!(request["params"][1]["since"], json!(A));
    (shell, link, client, request)
}

/// The source does not remember what has happened since. Nothing has run now; but it may be a relay that
/// lost its own source, or a member that lost its leader, and then an attempt came before.
#[test]
fn a_write_of_which_the_source_does_not_know_is_canceled_and_not_made_again() {
    let (mut shell, link, client, request) = with_a_write();
    let results = json!([{"error": "unknown state", "details": "it was long ago"}]);
    let result = json!({"id": STATE, "results": results});
    say(&mut shell, link, &json!({"id":request["id"],"result":result,"error":null}));
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["error"], "canceled", "{reply}");
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new(), "nothing is sent again");
}

/// A relay whose source has answered a write, and has not told the change: the client that waits for
/// the answer, and the results in it.
fn with_an_early_answer() -> (Shell, LinkId, SessionId, Value) {
    let (mut shell, link, client, request) = with_a_write();
    let results = json!([{"uuid": ["uuid", A]}]);
    let answer = json!({"id":request["id"],"result":{"id":STATE,"results":results},"error":null});
    say(&mut shell, link, &answer);
    assert_eq!(shell.received(client), Vec::<String>::new());
    (shell, link, client, results)
}

#[test]
fn an_answer_that_overtakes_its_change_waits_for_it() {
    let (mut shell, link, client, results) = with_an_early_answer();
    let update = json!([["monid","Net"], STATE, {"Port": {A: {"insert": {"name": "a"}}}}]);
    say(&mut shell, link, &json!({"id":null,"method":"update3","params":update}));
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["result"], results);
    assert_eq!(ports(&mut shell), ["a"]);
}

/// Another server may be behind.
#[test]
fn an_answer_whose_change_has_not_come_is_lost_with_the_connection() {
    let (mut shell, link, client, _) = with_an_early_answer();
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    let reply = shell.received(client).pop().expect("nobody says any more when it is there");
    assert_eq!(value(&reply)["error"], "canceled");
}

/// The source has got another schema, and tells all rows again instead of the change.
#[test]
fn an_answer_whose_change_is_never_told_waits_for_all_rows() {
    let (mut shell, link, client, results) = with_an_early_answer();
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    let row = json!({"modify": {"schema": schema.to_string()}});
    let update = json!([["monid","_Server"], {"Database": {ZERO: row}}]);
    say(&mut shell, link, &json!({"id":null,"method":"update2","params":update}));
    let requests = asked(&mut shell, link);
    let of_rows = requests.last().expect("rows are asked for again");
    assert_eq!(of_rows["method"], "monitor_cond_since");
    let later = "cccccccc-0000-4000-8000-000000000003";
    let rows = json!([false, later, {"Port": {A: {"initial": {"name": "a"}}}}]);
    assert_eq!(shell.received(client), Vec::<String>::new());
    say(&mut shell, link, &json!({"id":of_rows["id"],"result":rows,"error":null}));
    assert_eq!(ports(&mut shell), ["a"]);
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["result"], results);
}

#[test]
fn what_was_read_and_never_took_effect_is_asked_for_again() {
    let (mut shell, link) = relay();
    let request = until_rows_are_asked_for(&mut shell, link);
    say(&mut shell, link, &json!({"id":request,"result":[false, A, {}],"error":null}));
    shell.event(Event::LinkDown { link, error: None });
    let link = reopen(&mut shell);
    let request = until_rows_are_asked_for(&mut shell, link);
    // A helper reads what has changed; before it is done, another takes the tables.
    shell.slow_work = true;
    shell.server.set_step_cost_max(0);
    let next = "bbbbbbbb-0000-4000-8000-000000000002";
    let change = json!([true, next, {"Port": {A: {"insert": {"name": "a"}}}}]);
    say(&mut shell, link, &json!({"id":request,"result":change,"error":null}));
    let client = shell.connect();
    let wait = r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==","rows":[],"timeout":9000}"#;
    shell.send(client, &transact(1, &format!("{wait},{}", insert("b"))));
    shell.settle();
    assert_eq!(shell.work.len(), 2, "{:?}", shell.sent_out);
    shell.do_work(0);
    shell.settle();
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    shell.slow_work = false;
    // Since the state that it has, and not since the one that it was about to have.
    let link = reopen(&mut shell);
    let mut since = Value::Null;
    while since.is_null() {
        for request in asked(&mut shell, link) {
            let row = json!({"name":"Net","model":"clustered","connected":true,"index":3,"schema":SCHEMA});
            let result = match request["method"].as_str().unwrap() {
                "monitor_cond" => json!({"Database": {ZERO: {"initial": row}}}),
                "weir_features" => json!([]),
                "monitor_cond_since" => {
                    since = request["params"][3].clone();
                    continue;
                }
                _ => json!({}),
            };
            say(&mut shell, link, &json!({"id":request["id"],"result":result,"error":null}));
        }
    }
    assert_eq!(since, json!(A));
}
