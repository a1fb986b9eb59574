//! Replies of several megabytes: composed piece by piece as clients take them.

use crate::shell::{Shell, insert, transact};
use weir_server::event::{Event, SessionId};

const MONITOR: &str = r#"{"id":7,"method":"monitor_cond_since","params":["Net","mon",{"Port":{"columns":["name"]}},"00000000-0000-0000-0000-000000000000"]}"#;
const LOCK: &str = r#"{"id":8,"method":"lock","params":["l"]}"#;
const STEAL: &str = r#"{"id":9,"method":"steal","params":["l"]}"#;
const SELECT: &str = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;

/// A server with this many ports, whose names have 10,000 bytes, and clients.
fn start(ports: usize, clients: usize) -> (Shell, Vec<SessionId>) {
    let mut shell = Shell::start();
    let client = shell.connect();
    let name = |i: usize| format!("old{i}{}", "x".repeat(10_000));
    for first in (0..ports).step_by(50) {
        let rows: Vec<String> = (first..ports.min(first + 50)).map(|i| insert(&name(i))).collect();
        assert!(shell.call(client, &transact(1, &rows.join(","))).contains("uuid"));
    }
    shell.server.set_step_cost_max(10);
    let clients = (0..clients).map(|_| shell.connect()).collect();
    (shell, clients)
}

fn pieces(shell: &Shell) -> usize {
    shell.sent_out.iter().filter(|what| *what == "Piece").count()
}

#[test]
fn what_is_sent_meanwhile_comes_behind_a_long_reply() {
    let (mut shell, clients) = start(450, 2);
    shell.call(clients[0], LOCK);
    shell.stuck.insert(clients[0]);
    shell.send(clients[0], MONITOR);
    shell.settle();
    assert_eq!(pieces(&shell), 1, "one piece more than the client has taken");
    // It loses its lock, it asks for something, and a row comes.
    assert!(shell.call(clients[1], STEAL).contains("true"));
    shell.send(clients[0], r#"{"id":10,"method":"echo","params":[]}"#);
    assert!(shell.call(clients[1], &transact(2, &insert("new"))).contains("uuid"));
    shell.stuck.clear();
    shell.settle();
    assert_eq!(pieces(&shell), 4);
    let received = shell.received(clients[0]);
    let starts = [
        r#"{"id":7,"result":[false,"#,
        r#"{"id":null,"method":"stolen""#,
        r#"{"id":10,"#,
        r#"{"id":null,"method":"update3""#,
    ];
    let mut starts: Vec<&str> = starts.to_vec();
    for message in &received {
        let at = starts.iter().position(|start| message.starts_with(start));
        starts.remove(at.unwrap_or_else(|| panic!("{:.200}", message)));
    }
    assert_eq!(starts, Vec::<&str>::new());
    assert!(received[0].starts_with(r#"{"id":7"#) && received[0].ends_with(r#"],"error":null}"#));
    assert_eq!(received[0].matches("old").count(), 450);
    assert!(!received[0].contains("new\""), "it was not there yet");
}

#[test]
fn a_long_select_is_the_same_in_pieces() {
    let operations = [SELECT, SELECT, r#"{"op":"select","table":"Port","where":[],"color":1}"#];
    for operations in [&operations[..2], &operations] {
        let (mut shell, clients) = start(250, 2);
        let request = transact(3, &operations.join(","));
        let in_pieces = shell.call(clients[0], &request);
        assert!(pieces(&shell) >= 3, "{:?}", shell.sent_out);
        shell.server.set_step_cost_max(u64::MAX);
        let whole = shell.call(clients[1], &request);
        assert!(in_pieces == whole && whole.len() > 4_000_000, "{:.200} {:.200}", in_pieces, whole);
    }
}

#[test]
fn who_does_not_read_holds_up_nobody_and_gets_everything_later() {
    let (mut shell, clients) = start(4000, 4);
    shell.stuck.insert(clients[0]);
    for client in &clients {
        shell.send(*client, MONITOR);
    }
    shell.settle();
    let whole = shell.received(clients[1]).pop().expect("a reply");
    assert_eq!(whole.matches("old").count(), 4000);
    for client in &clients[2..] {
        assert!(shell.received(*client) == [whole.as_str()], "as the first one");
    }
    // Its pieces were forgotten meanwhile.
    shell.stuck.clear();
    shell.settle();
    assert!(shell.received(clients[0]) == [whole.as_str()], "the same, composed again");
    assert!(pieces(&shell) > 70, "{}", pieces(&shell));
    // Somebody leaves in the middle of it.
    shell.stuck.insert(clients[1]);
    shell.send(clients[1], &MONITOR.replace("mon", "mon2"));
    shell.settle();
    shell.event(Event::Closed { session: clients[1], error: None });
    shell.settle();
    assert!(shell.call(clients[2], &transact(4, &insert("new"))).contains("uuid"));
}

#[test]
fn several_that_fall_behind_do_not_keep_whole_messages_for_each_other() {
    let (mut shell, clients) = start(6000, 4);
    // Three do not read: what the first one has read is composed again for them.
    for client in &clients {
        shell.send(*client, MONITOR);
    }
    shell.stuck.extend(&clients[1..]);
    shell.settle();
    let whole = shell.received(clients[0]).pop().expect("a reply");
    let length = pieces(&shell) + 1;
    assert!(length > 50, "{length}");
    // One of the three goes on, and the two others must not have all of it kept for them.
    let mut composed = pieces(&shell);
    for client in &clients[1..] {
        shell.stuck.remove(client);
        shell.settle();
        assert!(shell.received(*client) == [whole.as_str()], "the same, composed again");
        let again = pieces(&shell) - composed;
        assert!(again * 3 > length * 2, "{again} of {length} pieces");
        composed = pieces(&shell);
    }
}

#[test]
fn a_long_message_that_is_kept_for_others_goes_however_late_its_last_receiver_has_it() {
    let (mut shell, clients) = start(450, 1);
    shell.stuck.insert(clients[0]);
    shell.send(clients[0], MONITOR);
    shell.settle();
    // Those who might have come for the same are long here.
    shell.advance_ms(60_000);
    shell.settle();
    let freed = |shell: &Shell| shell.sent_out.iter().filter(|what| *what == "Free").count();
    shell.stuck.clear();
    shell.settle();
    assert!(shell.received(clients[0])[0].contains("old449"), "it has got all");
    assert_eq!(freed(&shell), 0, "it is kept for a moment");
    shell.advance_ms(3_000);
    shell.settle();
    assert_eq!(freed(&shell), 1, "{:?}", shell.sent_out);
}
