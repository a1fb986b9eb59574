//! A session's own updates come before its own reply, whatever else of its is going on.

mod shell;

use shell::{Shell, insert, transact};
use weir_server::event::SessionId;

const MONITOR: &str =
    r#"{"id":"m","method":"monitor_cond","params":["Net","mon",{"Port":{"columns":["name"]}}]}"#;
const SELECT: &str = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;

/// Until there is a port `go`; then one more.
const WAIT: &str = r#"{"op":"wait","table":"Port","where":[["name","==","go"]],"columns":["name"],"until":"==","rows":[{"name":"go"}]},{"op":"insert","table":"Port","row":{"name":"fired"}}"#;

/// A step in which nothing long is done.
const SMALL: u64 = 500;
/// What a step may cost as a rule.
const USUAL: u64 = 100_000;

/// A server that does helpers' work only when told to, and a client that watches 300 ports and waits
/// for another.
fn start() -> (Shell, SessionId) {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    shell.slow_work = true;
    shell.call(client, MONITOR);
    shell.send(client, &transact(7, WAIT));
    shell.settle();
    assert!(!shell.has_received(client), "it waits");
    (shell, client)
}

/// Somebody else adds the port that is waited for, with steps as they are as a rule.
fn go(shell: &mut Shell) {
    let writer = shell.connect();
    shell.server.set_step_cost_max(USUAL);
    assert!(shell.call(writer, &transact(2, &insert("go"))).contains("uuid"));
}

/// Where a message stands that has this in it.
fn at(messages: &[String], part: &str) -> usize {
    let found = messages.iter().position(|message| message.contains(part));
    found.unwrap_or_else(|| panic!("no {part} in {messages:?}"))
}

/// The reply to the wait comes behind what it did, and the client goes on.
fn check(shell: &mut Shell, client: SessionId, mut received: Vec<String>) {
    received.extend(shell.received(client));
    assert!(at(&received, "fired") < at(&received, r#"{"id":7,"#), "{received:?}");
    shell.slow_work = false;
    assert!(shell.call(client, &transact(8, &insert("next"))).starts_with(r#"{"id":8,"#));
}

#[test]
fn a_wait_that_is_done_during_a_long_read_is_answered_behind_what_it_changed() {
    let (mut shell, client) = start();
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(3, SELECT));
    shell.settle();
    assert_eq!(shell.sent_out, ["Read"]);
    go(&mut shell);
    // What it asks now comes behind; `echo` does not.
    shell.send(client, &transact(4, &insert("behind")));
    shell.send(client, r#"{"id":5,"method":"echo","params":[]}"#);
    shell.settle();
    let received = shell.received(client);
    assert!(received.len() == 1 && received[0].contains(r#""id":5"#), "{received:?}");
    shell.do_work(0);
    shell.settle();
    let received = shell.received(client);
    assert!(at(&received, r#"{"id":3,"#) < at(&received, r#"{"id":4,"#), "{received:?}");
    assert!(at(&received, r#"{"id":7,"#) < at(&received, r#"{"id":4,"#), "{received:?}");
    check(&mut shell, client, received);
}

#[test]
fn a_wait_that_is_done_while_conditions_change_is_answered_behind_what_it_changed() {
    let (mut shell, client) = start();
    shell.server.set_step_cost_max(SMALL);
    let change = r#"{"id":3,"method":"monitor_cond_change","params":["mon","mon",{"Port":[{"where":[["name","!=","old7"]]}]}]}"#;
    shell.send(client, change);
    shell.settle();
    assert_eq!(shell.sent_out, ["Change"]);
    go(&mut shell);
    assert!(!shell.has_received(client));
    shell.do_work(0);
    shell.settle();
    let received = shell.received(client);
    // What the other conditions change comes first.
    assert_eq!(at(&received, "delete"), 0, "{received:?}");
    check(&mut shell, client, received);
}

#[test]
fn a_wait_that_is_done_in_the_middle_of_a_long_reply_is_answered_behind_what_it_changed() {
    let (mut shell, client) = start();
    let writer = shell.connect();
    let name = |i: usize| format!("{i}{}", "x".repeat(20_000));
    for first in [0, 50, 100] {
        let rows: Vec<String> = (first..first + 50).map(|i| insert(&name(i))).collect();
        assert!(shell.call(writer, &transact(1, &rows.join(","))).contains("uuid"));
    }
    shell.received(client);
    shell.slow_work = false;
    shell.stuck.insert(client);
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(3, SELECT));
    shell.settle();
    go(&mut shell);
    shell.stuck.clear();
    shell.settle();
    let received = shell.received(client);
    assert!(received[0].starts_with(r#"{"id":3,"#) && received[0].len() > 3_000_000);
    check(&mut shell, client, received);
}

#[test]
fn who_does_not_take_a_long_reply_does_not_have_others_kept_for_ever() {
    let (mut shell, client) = start();
    let writer = shell.connect();
    let name = |i: usize| format!("{i}{}", "x".repeat(20_000));
    for first in [0, 50, 100] {
        let rows: Vec<String> = (first..first + 50).map(|i| insert(&name(i))).collect();
        assert!(shell.call(writer, &transact(1, &rows.join(","))).contains("uuid"));
    }
    // What each of these answers has 3 MB.
    shell.server.set_step_cost_max(u64::MAX);
    for id in 10..40 {
        shell.send(
            client,
            &transact(id, &format!("{WAIT},{SELECT}").replace("fired", &format!("fired{id}"))),
        );
        shell.settle();
    }
    shell.slow_work = false;
    shell.stuck.insert(client);
    shell.server.set_step_cost_max(SMALL);
    shell.send(client, &transact(3, SELECT));
    shell.settle();
    shell.server.set_step_cost_max(u64::MAX);
    assert!(shell.call(writer, &transact(2, &insert("go"))).contains("uuid"));
    assert_eq!(shell.disconnected, [client]);
}
