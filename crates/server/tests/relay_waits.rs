//! Writes that wait at a relay while its source is away, or at the source: who takes one back, or leaves, does
//! not make it, and what is kept of them is bounded as all else is.

use std::cell::RefCell;

use crate::chain::Chain;
use crate::relay_sources::{
    A, B, FEATURES, ZERO, answer, asked, next_source, play_by, played, say, say_schema, source_row,
    value,
};
use crate::shell::{PATH, SCHEMA, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::Config;
use weir_server::event::{Event, LinkId, SessionId};

/// What waits for the source is not made once nobody waits for it any more.
#[test]
fn a_write_that_waits_for_the_source_can_be_taken_back() {
    let mut chain = Chain::start(2);
    let [client, gone, stays] = [(); 3].map(|()| chain.servers[2].connect());
    let aware = r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#;
    chain.call(2, client, aware);
    chain.call(2, client, &transact(1, &insert("a")));
    // One has been sent, and did not arrive.
    chain.servers[2].send(client, &transact(2, &insert("sent")));
    chain.servers[2].settle();
    chain.is_cut[2] = true;
    chain.lose(2);
    chain.settle();
    chain.servers[2].send(client, &transact(3, &insert("waits")));
    chain.servers[2].send(gone, &transact(4, &insert("left")));
    chain.servers[2].send(stays, &transact(5, &insert("b")));
    chain.settle();
    let mut cancel = |id: u32| {
        let cancel = format!(r#"{{"id":null,"method":"cancel","params":[{id}]}}"#);
        let told = chain.call(2, client, &cancel);
        assert_eq!(told.len(), 1, "{told:?}");
        let told = value(&told[0]);
        assert_eq!((&told["id"], &told["error"]), (&json!(id), &json!("canceled")));
    };
    cancel(3);
    cancel(2);
    chain.servers[2].event(Event::Closed { session: gone, error: None });
    chain.is_cut[2] = false;
    chain.pass_ms(20_000);
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a", "b"]);
    }
    let reply = chain.servers[2].received(stays).pop().expect("an answer");
    assert!(value(&reply)["result"][0]["uuid"].is_array(), "{reply}");
    assert_eq!(chain.servers[2].received(client), Vec::<String>::new());
}

/// A chain of two relays, where a client of the last one has a write that waits at the source, as request 2: what it
/// waits for was there when the relay looked, and is gone by when the source does. With a client of the source.
fn with_write_that_waits_at_the_source() -> (Chain, SessionId, SessionId) {
    let mut chain = Chain::start(2);
    let client = chain.servers[2].connect();
    chain.call(2, client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    chain.call(2, client, &transact(1, &insert("a")));
    chain.is_cut[2] = true;
    chain.lose(2);
    chain.settle();
    let delete = r#"{"op":"delete","table":"Port","where":[]}"#;
    let writer = chain.servers[0].connect();
    chain.call(0, writer, &transact(1, delete));
    let wait = r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==","rows":[{"name":"a"}]}"#;
    chain.servers[2].send(client, &transact(2, &format!("{wait},{}", insert("b"))));
    chain.settle();
    chain.is_cut[2] = false;
    chain.pass_ms(20_000);
    (chain, client, writer)
}

#[test]
fn a_write_that_waits_at_the_source_ends_with_its_client() {
    let (mut chain, client, writer) = with_write_that_waits_at_the_source();
    chain.servers[2].event(Event::Closed { session: client, error: None });
    chain.settle();
    chain.call(0, writer, &transact(2, &insert("a")));
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a"], "nobody wants the other one any more");
    }
}

#[test]
fn a_write_that_waits_at_the_source_can_be_taken_back() {
    let (mut chain, client, writer) = with_write_that_waits_at_the_source();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
    let told = chain.call(2, client, &transact(3, select));
    assert_eq!(told, Vec::<String>::new(), "what comes behind it waits, too");
    let told = chain.call(2, client, r#"{"id":null,"method":"cancel","params":[2]}"#);
    let told: Vec<Value> = told.iter().map(|message| value(message)).collect();
    let (ids, first): (Vec<&Value>, _) =
        (told.iter().map(|reply| &reply["id"]).collect(), &told[0]["error"]);
    assert_eq!((ids, first), (vec![&json!(2), &json!(3)], &json!("canceled")));
    assert_eq!(told[1]["result"][0]["rows"], json!([]));
    chain.call(0, writer, &transact(2, &insert("a")));
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a"], "it is not made any more");
    }
}

/// Bytes kept for clients, by `weir/status`.
fn kept(shell: &mut Shell) -> u64 {
    let status = shell.command("weir/status", &[]).unwrap().unwrap();
    value(&status)["process"]["kept_bytes"].as_u64().expect("a number")
}

/// What a relay may keep in the tests below.
const MOST: usize = 20 << 20;

/// A source and a relay of it with little room.
fn with_little_room() -> Chain {
    let mut chain = Chain::start(1);
    let config = Config {
        databases: vec!["relay:Net:unix:/server0".into()],
        kept_bytes_max: Some(MOST),
        ..Config::default()
    };
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.servers[1] = Shell::start_with(b"relay".to_vec(), config);
    chain.is_cut[1] = false;
    chain.pass_ms(20_000);
    chain
}

/// The relay has room again once a write that waited is answered.
#[test]
fn what_a_write_was_kept_for_is_over_with_its_answer() {
    let mut chain = with_little_room();
    let client = chain.servers[1].connect();
    for n in 1..=4 {
        chain.is_cut[1] = true;
        chain.lose(1);
        chain.settle();
        let name = format!("{n}{}", "x".repeat(12 << 20));
        chain.servers[1].send(client, &transact(n, &insert(&name)));
        chain.settle();
        chain.is_cut[1] = false;
        chain.pass_ms(20_000);
        let reply = chain.servers[1].received(client).pop().expect("an answer");
        assert!(value(&reply)["result"][0]["uuid"].is_array(), "write {n}: {reply}");
    }
}

#[test]
fn writes_that_wait_for_the_source_count_as_kept_for_their_clients() {
    let mut chain = with_little_room();
    let modest = chain.servers[1].connect();
    chain.call(1, modest, &transact(1, &insert("a")));
    let before = kept(&mut chain.servers[1]);
    chain.is_cut[1] = true;
    chain.lose(1);
    chain.settle();
    chain.servers[1].send(modest, &transact(2, &insert("b")));
    chain.settle();
    let long = "x".repeat(3 << 20);
    for n in 0..10 {
        let greedy = chain.servers[1].connect();
        chain.servers[1].send(greedy, &transact(n, &insert(&format!("{n}{long}"))));
        chain.settle();
        assert!(kept(&mut chain.servers[1]) <= MOST as u64);
    }
    let most = kept(&mut chain.servers[1]);
    assert!(most > MOST as u64 / 2, "{most}");
    assert!(!chain.servers[1].disconnected.contains(&modest));
    chain.is_cut[1] = false;
    chain.pass_ms(20_000);
    let reply = chain.servers[1].received(modest).pop().expect("an answer");
    assert!(value(&reply)["result"][0]["uuid"].is_array(), "{reply}");
    assert_eq!(kept(&mut chain.servers[1]), before, "all of it is given back");
}

/// What a client is told whose write the source has got twice, on two connections: what that says to the second
/// attempt, and to whoever asks what has come of the id. With the methods of what it was asked behind the rows.
fn told_of_second_attempt(results: &Value, outcome: &Value) -> (Value, Vec<String>) {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.send(client, &transact(7, &insert("b")));
    shell.settle();
    assert_eq!(asked(&mut shell, link).len(), 1, "it is sent");
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    let methods = RefCell::new(Vec::new());
    play_by(&mut shell, &source_row(), |request| {
        let method = request["method"].as_str().expect("a method");
        if ["weir_transact", "weir_outcome"].contains(&method) {
            methods.borrow_mut().push(method.to_owned());
        }
        Some(match method {
            "weir_features" => json!(FEATURES),
            "weir_monitor" => json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}]),
            "weir_transact" => json!({"id": A, "results": results}),
            "weir_outcome" => outcome.clone(),
            _ => json!({}),
        })
    });
    let told = shell.received(client);
    assert_eq!(told.len(), 1, "{told:?}");
    (value(&told[0]), methods.into_inner())
}

/// What was sent first may wait somewhere, and come when the second attempt has failed.
#[test]
fn a_second_attempt_is_answered_when_the_first_one_is_never_to_be() {
    let failed = json!([{"error": "timed out", "details": ""}]);
    let (unchanged, made) = (json!([{"count": 0}]), json!([{"uuid": ["uuid", B]}]));
    let asks_twice = ["weir_transact", "weir_outcome"];
    for results in [failed, unchanged] {
        let (told, methods) = told_of_second_attempt(&results, &json!("not committed"));
        assert_eq!(told["result"], results);
        assert_eq!(methods, asks_twice);
        for outcome in ["committed", "unknown"] {
            let (told, methods) = told_of_second_attempt(&results, &json!(outcome));
            assert_eq!(told["error"], "canceled");
            assert_eq!(methods, asks_twice);
        }
    }
    let (told, methods) = told_of_second_attempt(&made, &json!("committed"));
    assert_eq!(told["result"], made);
    assert_eq!(methods, asks_twice);
    // An update to the value that is there changes nothing either, and does not say so.
    let (told, _) = told_of_second_attempt(&json!([{"count": 1}]), &json!("not committed"));
    assert_eq!(told["result"], json!([{"count": 1}]));
}

/// All rows are told again before the relay hears what has come of the id: the state that the second attempt was answered
/// as of is before them.
#[test]
fn a_second_attempt_is_answered_though_all_rows_are_told_again() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.send(client, &transact(7, &insert("b")));
    shell.settle();
    assert_eq!(asked(&mut shell, link).len(), 1, "it is sent");
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    let link = next_source(&mut shell);
    let failed = json!([{"error": "timed out", "details": ""}]);
    let (mut requests, mut methods) = (asked(&mut shell, link), Vec::new());
    while !requests.is_empty() {
        for request in std::mem::take(&mut requests) {
            let method = request["method"].as_str().expect("a method").to_owned();
            let result = match &*method {
                "weir_features" => json!(FEATURES),
                "weir_monitor" => json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}]),
                "weir_transact" => json!({"id": B, "results": failed}),
                "weir_outcome" => json!("not committed"),
                "monitor_cond" => json!({"Database": {ZERO: {"initial": source_row()}}}),
                _ => json!({}),
            };
            let is_transaction = method == "weir_transact";
            if is_transaction {
                let params = json!([["monid", "Net"]]);
                let canceled = json!({"id":null,"method":"monitor_canceled","params":params});
                say(&mut shell, link, &canceled);
            }
            answer(&mut shell, link, &request, &result);
            if is_transaction {
                let mut schema = value(SCHEMA);
                schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
                say_schema(&mut shell, link, &schema);
            }
            methods.push(method);
        }
        requests = asked(&mut shell, link);
    }
    let monitors = methods.iter().filter(|method| *method == "weir_monitor").count();
    assert_eq!((monitors, &methods[methods.len() - 1][..]), (2, "weir_outcome"), "{methods:?}");
    let told = shell.received(client);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(value(&told[0])["result"], failed);
}

/// The connection ends while the relay asks what has come of the id: it has been promised by then that nothing will.
#[test]
fn what_is_never_to_be_under_its_id_is_asked_for_under_another_one() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.send(client, &transact(7, &insert("b")));
    shell.settle();
    let first = asked(&mut shell, link).pop().expect("it is sent")["params"][1]["id"].clone();
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    let (never, made) = (json!([{"error": "not committed", "details": ""}]), json!([{"count": 1}]));
    let asked_under = RefCell::new(Vec::new());
    play_by(&mut shell, &source_row(), |request| {
        Some(match request["method"].as_str().expect("a method") {
            "weir_features" => json!(FEATURES),
            "weir_monitor" => json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}]),
            "weir_transact" => {
                let id = &request["params"][1]["id"];
                asked_under.borrow_mut().push(id.clone());
                json!({"id": A, "results": if *id == first { &never } else { &made }})
            }
            _ => json!({}),
        })
    });
    let told = shell.received(client);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(value(&told[0])["result"], made);
    let asked_under = asked_under.into_inner();
    assert!(asked_under.len() == 2 && asked_under[0] == first, "{asked_under:?}");
}

/// Plays the source that is next, and says `result` to what clients ask; answers with the methods and names of that, up to
/// the first one that is not answered.
fn requests_of(
    shell: &mut Shell,
    result: impl Fn(&str, &Value) -> Option<Value>,
) -> (LinkId, Vec<(String, Value)>) {
    let link = next_source(shell);
    let mut of_clients = Vec::new();
    loop {
        let requests = asked(shell, link);
        if requests.is_empty() {
            return (link, of_clients);
        }
        for request in requests {
            let method = request["method"].as_str().expect("a method");
            let result = match method {
                "weir_features" => json!(FEATURES),
                "weir_monitor" => json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}]),
                "monitor_cond" => json!({"Database": {ZERO: {"initial": source_row()}}}),
                "weir_transact" | "weir_outcome" => {
                    let params = &request["params"];
                    let name = params[2]["row"]["name"].clone();
                    of_clients.push((method.to_owned(), name));
                    let Some(result) = result(method, params) else { return (link, of_clients) };
                    result
                }
                _ => json!({}),
            };
            answer(shell, link, &request, &result);
        }
    }
}

fn made() -> Value {
    json!({"id": A, "results": [{"uuid": ["uuid", B]}]})
}

/// A relay whose client has asked for `b`, which has been sent, and then lost its source, and the id that it has.
fn sent_and_lost() -> (Shell, SessionId, Value) {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.send(client, &transact(7, &insert("b")));
    shell.settle();
    let sent = asked(&mut shell, link).pop().expect("it is sent");
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    (shell, client, sent["params"][1]["id"].clone())
}

/// The answer to the first one is known last: the source is asked what has come of its id.
#[test]
fn what_is_asked_behind_a_second_attempt_is_answered_behind_it() {
    for (outcome, is_lost) in [("committed", false), ("unknown", true)] {
        let (mut shell, client, _) = sent_and_lost();
        shell.send(client, &transact(8, &insert("c")));
        shell.send(client, &transact(9, r#"{"op":"assert","lock":"other"}"#));
        shell.settle();
        let (_, requests) = requests_of(&mut shell, |method, _| {
            Some(if method == "weir_transact" { made() } else { json!(outcome) })
        });
        let methods: Vec<&str> = requests.iter().map(|(method, _)| &**method).collect();
        assert_eq!(methods, ["weir_transact", "weir_transact", "weir_outcome"]);
        let told: Vec<Value> = shell.received(client).iter().map(|told| value(told)).collect();
        let ids: Vec<&Value> = told.iter().map(|told| &told["id"]).collect();
        assert_eq!(ids, [7, 8, 9], "{outcome}: {told:?}");
        assert_eq!(told[0]["error"] == "canceled", is_lost, "{told:?}");
        assert_eq!(told[1]["result"], made()["results"]);
        assert_eq!(told[2]["result"][0]["error"], "not owner");
    }
}

/// The connection ends twice, and the first one is asked for under another id then.
#[test]
fn what_is_asked_behind_what_is_asked_for_under_another_id_is_made_behind_it() {
    let (mut shell, client, first) = sent_and_lost();
    let (link, requests) =
        requests_of(&mut shell, |method, _| (method == "weir_transact").then(made));
    assert_eq!(requests.len(), 2, "it is asked what has come of the id");
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    shell.send(client, &transact(8, &insert("c")));
    shell.settle();
    let never = json!({"id": A, "results": [{"error": "not committed", "details": ""}]});
    let (_, requests) = requests_of(&mut shell, |_, params| {
        Some(if params[1]["id"] == first { never.clone() } else { made() })
    });
    let names: Vec<&Value> = requests.iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["b", "b", "c"]);
    let told: Vec<Value> = shell.received(client).iter().map(|told| value(told)).collect();
    let results: Vec<(&Value, &Value)> =
        told.iter().map(|told| (&told["id"], &told["result"])).collect();
    let results_of = made()["results"].clone();
    assert_eq!(results, [(&json!(7), &results_of), (&json!(8), &results_of)]);
}

/// A relay that is removed has no first rows that anybody could wait for.
#[test]
fn who_waits_for_first_rows_goes_on_when_the_relay_goes() {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let databases = vec![PATH.into(), "relay:Other:tcp:192.0.2.1:6640".into()];
    let mut shell = Shell::start_with(file, Config { databases, ..Config::default() });
    let client = shell.connect();
    assert_eq!(shell.call(client, &transact(1, &insert("a"))), "", "it waits for the first rows");
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Other"]), Some(Ok(String::new())));
    shell.pass_ms(10_000);
    let told = shell.received(client);
    assert!(told.iter().any(|told| told.contains("uuid")), "{told:?}");
}

/// Nobody waits for the tables of a relay that is configured no more.
#[test]
fn a_remote_in_a_relay_that_has_gone_is_complained_about() {
    const CONFIG: &str = "/etc/config.json";
    let with = |relay: &str| {
        let remotes = r#"{"db:Other,Port,name":null}"#;
        format!(r#"{{"remotes":{remotes},"databases":{{"{PATH}":null{relay}}}}}"#).into_bytes()
    };
    let relay = with(r#","Other":{"service-model":"relay","source":{"tcp:192.0.2.1:6640":null}}"#);
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let files = [(CONFIG.to_owned(), relay)];
    let config = Config { config_file: Some(CONFIG.to_owned()), ..Config::default() };
    let mut shell = Shell::start_on_files(file, files.into(), config);
    shell.files.insert(CONFIG.to_owned(), with(""));
    let reply = shell.command("ovsdb-server/reload", &[]);
    assert!(matches!(reply, Some(Err(_))), "{reply:?}");
    let why = "\"db:Other,Port,name\": no database named Other";
    assert!(shell.log.iter().any(|line| line.contains(why)), "{:?}", shell.log);
}
