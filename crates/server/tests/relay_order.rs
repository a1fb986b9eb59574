//! What comes before what at relays and their sources: how much of it in one round of the loop, in which
//! clients have their turns, and answers behind the changes that they are about.

use crate::relay::{asked, say};
use crate::relay_sources::{A, B, ZERO, played, told, value};
use crate::shell::{SCHEMA, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, LinkId, SessionId};

const C: &str = "cccccccc-0000-4000-8000-000000000003";

/// Else who comes and goes leaves more with the source than that takes.
#[test]
fn what_a_client_that_leaves_has_with_the_source_is_taken_back() {
    let (mut shell, link) = played();
    let (client, other) = (shell.connect(), shell.connect());
    shell.send(client, &transact(1, &insert("b")));
    shell.send(other, &transact(1, &insert("c")));
    shell.settle();
    let requests = crate::relay_sources::asked(&mut shell, link);
    let [first, _] = &requests[..] else { panic!("{requests:?}") };
    shell.event(Event::Closed { session: client, error: None });
    shell.settle();
    let told = crate::relay_sources::asked(&mut shell, link);
    assert_eq!(told, [json!({"id": null, "method": "cancel", "params": [first["id"]]})]);
}

/// Rounds as the loop has them, which ends one only because of an event or if the core asks for it.
fn rounds(shell: &mut Shell) {
    shell.short_round();
    while shell.server.next_wakeup_us().is_some_and(|at| at <= shell.now.monotonic_us) {
        shell.short_round();
    }
}

/// The source has inserted a port.
fn say_new(shell: &mut Shell, link: LinkId, row: &str, name: &str) {
    let params = json!([["monid", "Net"], row, null, {"Port": {row: {"insert": {"name": name}}}}]);
    let update = json!({"id":null,"method":"weir_update","params":params});
    shell.event(Event::LinkMessage { link, bytes: update.to_string().into_bytes() });
}

fn wait(table: &str, column: &str, row: &Value) -> String {
    let name = &row["name"];
    format!(
        r#"{{"op":"wait","table":"{table}","where":[["name","==",{name}]],"columns":["name","{column}"],"until":"==","rows":[{row}]}}"#
    )
}

#[test]
fn who_waits_for_rows_of_a_source_is_answered_in_the_round_in_which_they_come() {
    let (mut shell, link) = played();
    let [first, second] = ["b", "c"].map(|name| {
        let client = shell.connect();
        shell.send(client, &transact(1, &wait("Port", "up", &json!({"name":name,"up":false}))));
        client
    });
    shell.settle();
    // Both come with one read.
    say_new(&mut shell, link, B, "b");
    say_new(&mut shell, link, C, "c");
    rounds(&mut shell);
    for client in [first, second] {
        assert_eq!(shell.received(client).len(), 1, "{client:?} is answered");
    }
}

#[test]
fn who_waits_for_what_the_server_says_of_a_relay_is_answered_when_it_says_so() {
    const GRACE_US: u64 = 30_000_000;
    let (mut shell, link) = played();
    let client = shell.connect();
    let wait = wait("Database", "connected", &json!({"name":"Net","connected":false}));
    shell.send(client, &format!(r#"{{"id":1,"method":"transact","params":["_Server",{wait}]}}"#));
    shell.settle();
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    let lost_us = shell.now.monotonic_us;
    shell.pass_ms(29_000);
    assert_eq!(shell.received(client), Vec::<String>::new());
    shell.now.monotonic_us = lost_us + GRACE_US;
    rounds(&mut shell);
    assert_eq!(shell.received(client).len(), 1);
}

/// How many ports a client is told of that asks in this round.
fn count(shell: &mut Shell) -> usize {
    let client = shell.connect();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["_uuid"]}"#;
    shell.send(client, &transact(1, select));
    shell.short_round();
    let reply = shell.received(client).pop().expect("it is answered in this round");
    value(&reply)["result"][0]["rows"].as_array().expect("rows").len()
}

#[test]
fn clients_are_answered_while_a_relay_works_off_what_its_source_has_said() {
    const MANY: usize = 2000;
    let (mut shell, link) = played();
    shell.slow_work = true;
    say_new(&mut shell, link, B, &"b".repeat(1 << 20));
    shell.settle();
    // While a helper is at it, the source goes on.
    let long = "x".repeat(400);
    for n in 0..MANY {
        let row = format!("dddddddd-0000-4000-8000-{n:012}");
        say_new(&mut shell, link, &row, &format!("{n}{long}"));
    }
    shell.settle();
    assert_eq!(shell.sent_out.last().map(String::as_str), Some("TakeIn"));
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.sent_out.last().map(String::as_str), Some("TakeOver"));
    shell.do_work(0);
    let mut counts = vec![count(&mut shell)];
    while shell.server.next_wakeup_us() == Some(0) {
        counts.push(count(&mut shell));
    }
    counts.push(count(&mut shell));
    assert!(counts.len() > 3 && counts.is_sorted(), "{counts:?}");
    assert!(counts[0] > 100, "a step is not short: {counts:?}");
    assert_eq!(counts.last(), Some(&(MANY + 2)));
}

#[test]
fn what_a_relay_has_missed_comes_in_steps_and_before_its_reply() {
    const MISSED: usize = 8;
    let mut shell = Shell::start();
    let (writer, relay) = (shell.connect(), shell.connect());
    let monitor = format!(
        r#"{{"id":1,"method":"weir_monitor","params":["Net","w",{{"Port":{{"columns":["name"]}}}},"{ZERO}",{{"each":true}}]}}"#
    );
    shell.call(relay, &monitor);
    shell.event(Event::Blocked { session: relay });
    let long = "x".repeat(100_000);
    for n in 0..MISSED as u32 {
        shell.call(writer, &transact(n, &insert(&format!("{n}{long}"))));
    }
    assert_eq!(shell.received(relay), Vec::<String>::new());
    // It reads again, and has something of its own to say.
    shell.event(Event::Drained { session: relay });
    shell.send(relay, &transact(9, &insert("own")));
    let (mut all, mut rounds) = (Vec::new(), 0);
    while all.last().is_none_or(|last: &Value| last["id"] != 9) {
        assert!(rounds == 0 || shell.server.next_wakeup_us() == Some(0), "there is more: {all:?}");
        shell.short_round();
        let new = told(&mut shell, relay);
        let bytes: usize = new.iter().map(|message| message.to_string().len()).sum();
        assert!(bytes < 500_000, "{bytes} in round {rounds}");
        (all, rounds) = ([all, new].concat(), rounds + 1);
    }
    let updates = all.iter().filter(|message| message["method"] == "weir_update");
    assert_eq!(updates.count(), MISSED + 1, "all of them come before the reply");
    assert!(rounds > 2, "{rounds}");
    assert_eq!(ports(&mut shell).len(), MISSED + 1);
}

/// A relay whose client has asked for a column `speed`; its source has made the conversion, and said
/// nothing else of it.
fn converted(is_aware: bool) -> (Shell, LinkId, SessionId, String) {
    let (mut shell, link) = played();
    let client = shell.connect();
    let aware = format!(r#"{{"id":1,"method":"set_db_change_aware","params":[{is_aware}]}}"#);
    shell.call(client, &aware);
    shell.call(client, r#"{"id":2,"method":"get_schema","params":["Net"]}"#);
    asked(&mut shell, link);
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    shell.send(client, &json!({"id":3,"method":"convert","params":["Net",schema]}).to_string());
    shell.settle();
    let request = asked(&mut shell, link).swap_remove(0);
    assert_eq!(request["method"], "convert");
    say(&mut shell, link, &json!({"id":request["id"],"result":{},"error":null}));
    (shell, link, client, schema.to_string())
}

#[test]
fn a_conversion_is_answered_by_a_relay_that_has_its_schema() {
    for is_aware in [true, false] {
        let (mut shell, link, client, schema) = converted(is_aware);
        let select = r#"{"op":"select","table":"Port","where":[],"columns":["speed"]}"#;
        shell.send(client, &transact(4, select));
        shell.settle();
        assert_eq!(shell.received(client), Vec::<String>::new(), "the relay has the old one");
        let row = json!({"modify": {"schema": schema}});
        let update = json!([["monid","_Server"], {"Database": {ZERO: row}}]);
        say(&mut shell, link, &json!({"id":null,"method":"update2","params":update}));
        let requests = asked(&mut shell, link);
        let of_rows = requests.iter().find(|request| request["method"] == "weir_monitor");
        let id = &of_rows.expect("rows are asked for again")["id"];
        let rows = json!([false, C, {"Port": {A: {"initial": {"name":"a","speed":9}}}}]);
        say(&mut shell, link, &json!({"id":id,"result":rows,"error":null}));
        let told = told(&mut shell, client);
        assert_eq!((&told[0]["id"], &told[0]["result"]), (&json!(3), &json!({})), "{told:?}");
        // Who does not know of such things has to connect again, as with any server.
        assert_eq!(shell.disconnected.contains(&client), !is_aware);
        if is_aware {
            assert_eq!(told[1]["result"][0]["rows"], json!([{"speed": 9}]), "{told:?}");
        }
    }
}

/// Another conversion has led back to the schema that the relay has, and its source, a relay itself, was told of neither.
#[test]
fn a_conversion_is_answered_though_no_rows_come_under_its_schema() {
    let (mut shell, link, client, _) = converted(true);
    assert_eq!(shell.received(client), Vec::<String>::new(), "the relay has the old one");
    let requests = asked(&mut shell, link);
    let [echo] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(echo["method"], "echo");
    say(&mut shell, link, &json!({"id":echo["id"],"result":[],"error":null}));
    let told = told(&mut shell, client);
    assert_eq!((&told[0]["id"], &told[0]["result"]), (&json!(3), &json!({})), "{told:?}");
}

#[test]
fn a_conversion_that_changes_nothing_is_answered_at_once() {
    let (mut shell, link) = played();
    let client = shell.connect();
    let convert = json!({"id":3,"method":"convert","params":["Net",value(SCHEMA)]});
    shell.send(client, &convert.to_string());
    shell.settle();
    let request = asked(&mut shell, link).pop().expect("a request");
    assert_eq!(request["method"], "convert");
    say(&mut shell, link, &json!({"id":request["id"],"result":{},"error":null}));
    assert_eq!(told(&mut shell, client)[0]["result"], json!({}));
}

/// The relay knows the answer, and the source has yet to answer what was asked before.
#[test]
fn what_a_relay_refuses_by_itself_is_answered_in_its_order() {
    const LOCKED: &str = r#"{"op":"assert","lock":"other"}"#;
    const BY_VERSION: &str = r#"{"op":"delete","table":"Port","where":[["_version","==",["uuid","00000000-0000-0000-0000-000000000001"]]]}"#;
    for (refused, answer) in [
        (format!("{LOCKED},{}", insert("c")), "not owner"),
        (BY_VERSION.to_owned(), "not supported"),
    ] {
        let (mut shell, link) = played();
        let client = shell.connect();
        shell.send(client, &transact(1, &insert("b")));
        shell.send(client, &transact(2, &refused));
        shell.send(client, &transact(3, &insert("d")));
        shell.settle();
        assert_eq!(shell.received(client), Vec::<String>::new(), "{answer}");
        let mut told = Vec::new();
        while told.len() < 3 {
            let [request] = &crate::relay_sources::asked(&mut shell, link)[..] else {
                panic!("one at a time: {told:?}")
            };
            let result = json!({"id": A, "results": [{"uuid": ["uuid", B]}]});
            crate::relay_sources::answer(&mut shell, link, request, &result);
            told.extend(shell.received(client));
        }
        let is_so = |n: usize, text: &str| value(&told[n])["id"] == n + 1 && told[n].contains(text);
        assert!(is_so(0, B) && is_so(1, answer) && is_so(2, B), "{told:?}");
    }
}

/// A helper composes what the first of two requests has changed when the database goes.
#[test]
fn what_is_left_when_a_relay_goes_is_answered_in_its_order() {
    let (mut shell, link) = played();
    let client = shell.connect();
    for request in [
        r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#,
        r#"{"id":2,"method":"monitor","params":["Net","m",{"Port":{}}]}"#,
    ] {
        shell.call(client, request);
    }
    shell.send(client, &transact(3, &insert("b")));
    shell.send(client, &transact(4, &insert("d")));
    shell.settle();
    let requests = crate::relay_sources::asked(&mut shell, link);
    assert_eq!(requests.len(), 2);
    shell.slow_work = true;
    shell.server.set_step_cost_max(500);
    let row = |n| format!("dddddddd-0000-4000-8000-{n:012}");
    let many = (0..300).map(|n| (row(n), json!({"insert": {"name": format!("{n}")}})));
    let many: serde_json::Map<String, Value> = many.collect();
    let update = json!([["monid", "Net"], B, null, {"Port": many}]);
    say(&mut shell, link, &json!({"id":null,"method":"weir_update","params":update}));
    while shell.sent_out.last().is_none_or(|last| last != "Updates") {
        shell.do_work(0);
        shell.settle();
    }
    let results = json!({"id": B, "results": [{"uuid": ["uuid", C]}]});
    crate::relay_sources::answer(&mut shell, link, &requests[0], &results);
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), Some(Ok(String::new())));
    let answers = |shell: &mut Shell| {
        let all = told(shell, client).into_iter();
        all.filter(|told| told["method"].is_null()).collect::<Vec<Value>>()
    };
    assert_eq!(answers(&mut shell), Vec::<Value>::new());
    shell.slow_work = false;
    shell.do_work(0);
    shell.settle();
    let answers = answers(&mut shell);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!((&answers[0]["id"], &answers[0]["error"]), (&json!(3), &json!(null)));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]), (&json!(4), &json!("canceled")));
}

/// What waits at the source may do so for ever.
#[test]
fn what_a_relay_refuses_does_not_wait_for_what_waits_at_the_source() {
    let (mut shell, link) = played();
    let client = shell.connect();
    let waits = wait("Port", "up", &json!({"name": "a", "up": true}));
    shell.send(client, &transact(1, &format!("{waits},{}", insert("c"))));
    shell.settle();
    let requests = crate::relay_sources::asked(&mut shell, link);
    assert_eq!(requests[0]["method"], "weir_transact", "here it need not wait");
    shell.send(client, &transact(2, r#"{"op":"assert","lock":"other"}"#));
    shell.settle();
    let told = shell.received(client);
    assert!(told.len() == 1 && told[0].contains("not owner"), "{told:?}");
}
