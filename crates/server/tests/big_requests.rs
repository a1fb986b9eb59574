//! Requests with very many clauses: helpers parse them, and nobody waits for that.

use crate::shell::{Shell, insert, transact};
use weir_server::event::{Event, SessionId};

/// Of so many bytes a helper looks at a message.
const BIG: usize = 1 << 20;

/// More than a MiB of clauses; one more, so that no two lists need be equal.
fn clauses(name: &str) -> String {
    let long = "x".repeat(200);
    let mut clauses: Vec<String> =
        (0..BIG / 200).map(|i| format!(r#"["name","==","{i}{long}"]"#)).collect();
    clauses.push(format!(r#"["name","==","{name}"]"#));
    clauses.join(",")
}

fn monitor(table: &str) -> String {
    let clauses = clauses("a");
    format!(
        r#"{{"id":1,"method":"monitor_cond","params":["Net","mon",{{"{table}":{{"columns":["name"],"where":[{clauses}]}}}}]}}"#
    )
}

fn change(column: &str) -> String {
    let clauses = clauses("b").replace("\"name\"", &format!("\"{column}\""));
    format!(
        r#"{{"id":2,"method":"monitor_cond_change","params":["mon","mon",{{"Port":[{{"where":[{clauses}]}}]}}]}}"#
    )
}

/// A server with two ports, that does helpers' work only when told to.
fn start() -> (Shell, SessionId, SessionId) {
    let mut shell = Shell::start();
    let (client, other) = (shell.connect(), shell.connect());
    let rows = [insert("a"), insert("b")].join(",");
    shell.call(other, &transact(1, &rows));
    shell.slow_work = true;
    (shell, client, other)
}

/// Sends a request, and does what helpers have to do for it; whoever else asks is answered meanwhile.
fn ask(shell: &mut Shell, client: SessionId, other: SessionId, request: &str) -> Vec<String> {
    shell.sent_out.clear();
    shell.send(client, request);
    for work in ["Examine", "Prepare"] {
        shell.settle();
        assert_eq!(shell.sent_out.last().map(String::as_str), Some(work));
        assert!(!shell.has_received(client));
        assert!(shell.call(other, &transact(5, &insert("c"))).contains("uuid"));
        shell.do_work(0);
    }
    shell.settle();
    shell.received(client)
}

#[test]
fn conditions_of_a_big_request_are_parsed_by_a_helper() {
    let (mut shell, client, other) = start();
    let received = ask(&mut shell, client, other, &monitor("Port"));
    assert_eq!(received.len(), 1);
    assert!(received[0].contains(r#""name":"a""#) && !received[0].contains(r#""name":"b""#));
    // What it asks meanwhile comes behind; `echo` does not.
    shell.send(client, &change("name"));
    shell.settle();
    shell.do_work(0);
    shell.settle();
    shell.send(client, &transact(3, &insert("b")));
    shell.send(client, r#"{"id":4,"method":"echo","params":[]}"#);
    shell.settle();
    assert_eq!(shell.received(client).len(), 1, "echo");
    shell.slow_work = false;
    while !shell.work.is_empty() {
        shell.do_work(0);
    }
    shell.settle();
    let received = shell.received(client);
    let at = |part: &str| received.iter().position(|message| message.contains(part));
    let difference = at(r#"{"delete":null}"#);
    assert!(difference.is_some() && difference < at(r#"{"id":2,"#), "{received:?}");
    assert!(at(r#"{"id":2,"#) < at(r#"{"id":3,"#), "{received:?}");
}

#[test]
fn a_big_request_is_refused_as_a_small_one_is() {
    let (mut shell, client, other) = start();
    // Up to what it quotes of the request.
    let error = |reply: &str| {
        let error = &reply[reply.find("\"error\"").unwrap()..];
        error.split("\"syntax\"").next().unwrap_or_default().to_owned()
    };
    let small = r#"{"id":1,"method":"monitor_cond","params":["Net","small",{"Prot":{"columns":["name"]}}]}"#;
    let expected = error(&shell.call(client, small));
    assert_eq!(error(&ask(&mut shell, client, other, &monitor("Prot"))[0]), expected);
    ask(&mut shell, client, other, &monitor("Port"));
    let small = r#"{"id":2,"method":"monitor_cond_change","params":["mon","mon",{"Port":[{"where":[["nmae","==","x"]]}]}]}"#;
    let expected = error(&shell.call(client, small));
    assert_eq!(error(&ask(&mut shell, client, other, &change("nmae"))[0]), expected);
    assert!(expected.contains("nmae"), "{expected}");
}

#[test]
fn nothing_is_left_of_a_big_request_whose_client_has_gone() {
    let (mut shell, client, other) = start();
    shell.send(client, &monitor("Port"));
    shell.settle();
    shell.do_work(0);
    shell.settle();
    assert_eq!(shell.sent_out, ["Examine", "Prepare"]);
    shell.event(Event::Closed { session: client, error: None });
    shell.do_work(0);
    shell.settle();
    assert!(shell.call(other, &transact(2, &insert("a"))).contains("uuid"));
    assert!(shell.disconnected.is_empty() && shell.work.is_empty());
}

#[test]
fn nothing_is_left_of_conditions_whose_database_has_gone() {
    for is_parsed_first in [false, true] {
        let (mut shell, client, other) = start();
        shell.call(client, r#"{"id":9,"method":"set_db_change_aware","params":[true]}"#);
        shell.send(client, &monitor("Port"));
        shell.settle();
        shell.do_work(0);
        shell.settle();
        assert_eq!(shell.sent_out, ["Examine", "Prepare"]);
        assert!(shell.server.message_bytes() > BIG);
        if is_parsed_first {
            // Its turn comes when the record is written.
            shell.slow_disk = true;
            shell.send(other, &transact(5, &insert("c")));
            shell.round();
            shell.do_work(0);
            shell.round();
            assert!(!shell.has_received(client), "it waits");
            assert!(shell.server.message_bytes() > BIG);
            shell.slow_disk = false;
            shell.do_disk(0);
        } else {
            let removed = shell.command("ovsdb-server/remove-db", &["Net"]);
            assert_eq!(removed, Some(Ok(String::new())));
            shell.do_work(0);
        }
        shell.settle();
        let received = shell.received(client).concat();
        let is_refused = received.contains("unknown database");
        assert_eq!(is_refused, !is_parsed_first, "{received}");
        assert_eq!(shell.server.message_bytes(), 0);
    }
}
