//! Channels of a connection (`"channel"` of `weir_transact`): a relay asks its source for many clients at once.

use crate::chain::Chain;
use crate::pipelines::{received, send};
use crate::shell::{PATH, Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, SessionId};

const SELECT: &str = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;

/// What an insertion may cost here, and little more.
const SMALL: u64 = 500;

fn in_channel(id: u32, channel: u64, operations: &str) -> String {
    let options = json!({"channel": channel});
    format!(r#"{{"id":{id},"method":"weir_transact","params":["Net",{options},{operations}]}}"#)
}

/// A server with 300 ports that does helpers' work only when told to, and for which reading all ports is long.
fn start() -> (Shell, SessionId) {
    let mut shell = Shell::start();
    let client = shell.connect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    shell.call(client, &transact(1, &rows.join(",")));
    shell.server.set_step_cost_max(SMALL);
    shell.slow_work = true;
    (shell, client)
}

#[test]
fn what_is_long_in_one_channel_holds_up_no_other_one() {
    let (mut shell, relay) = start();
    let messages = [
        in_channel(1, 7, SELECT),
        in_channel(2, 7, &insert("behind")),
        in_channel(3, 8, &insert("beside")),
        transact(4, &insert("without a channel")),
    ];
    send(&mut shell, relay, &messages);
    assert_eq!(received(&mut shell, relay), [3, 4]);
    shell.do_work(0);
    shell.settle();
    assert_eq!(received(&mut shell, relay), [1, 2], "a channel keeps its order");
}

/// Each channel has a turn in a round, as each connection has.
#[test]
fn a_batch_has_the_requests_of_all_channels() {
    let mut shell = Shell::start();
    let relay = shell.connect();
    shell.slow_files.insert(PATH.to_owned());
    send(&mut shell, relay, &[transact(1, &insert("first"))]);
    let later: Vec<String> =
        (2..12).map(|id| in_channel(id, u64::from(id), &insert(&format!("p{id}")))).collect();
    send(&mut shell, relay, &later);
    assert_eq!(received(&mut shell, relay), Vec::<Value>::new());
    for expected in [(1..2).collect::<Vec<u32>>(), (2..12).collect()] {
        shell.disk_is_done();
        shell.settle();
        assert_eq!(received(&mut shell, relay), expected);
    }
}

#[test]
fn channels_have_the_locks_of_their_connection_and_its_monitors_are_told_first() {
    let mut shell = Shell::start();
    let (relay, other) = (shell.connect(), shell.connect());
    let asserting = |name: &str| format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert(name));
    let refused = shell.call(relay, &in_channel(1, 0, &asserting("a")));
    assert!(refused.contains("not owner"), "{refused}");
    shell.call(relay, r#"{"id":2,"method":"lock","params":["l"]}"#);
    shell.call(relay, r#"{"id":3,"method":"monitor","params":["Net","m",{"Port":{}}]}"#);
    send(&mut shell, relay, &[in_channel(4, 1023, &asserting("b"))]);
    assert_eq!(received(&mut shell, relay), [json!("update"), json!(4)]);
    let refused = shell.call(other, &in_channel(5, 0, &asserting("c")));
    assert!(refused.contains("not owner"), "channels of others are others: {refused}");
    assert_eq!(ports(&mut shell), ["b"]);
}

#[test]
fn what_waits_in_a_channel_is_taken_back_and_ends_with_the_connection() {
    let mut shell = Shell::start();
    let relay = shell.connect();
    shell.call(relay, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    let wait = r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==","rows":[{"name":"x"}]}"#;
    let waiting = format!("{wait},{}", insert("y"));
    send(&mut shell, relay, &[in_channel(2, 3, &waiting), in_channel(3, 4, &waiting)]);
    assert_eq!(received(&mut shell, relay), Vec::<Value>::new());
    send(&mut shell, relay, &[r#"{"id":null,"method":"cancel","params":[2]}"#.to_owned()]);
    assert_eq!(received(&mut shell, relay), [2]);
    shell.event(Event::Closed { session: relay, error: None });
    shell.settle();
    let other = shell.connect();
    shell.call(other, &transact(1, &insert("x")));
    assert_eq!(ports(&mut shell), ["x"], "nobody waits any more");
}

#[test]
fn a_full_channel_stops_its_connection_until_it_is_empty() {
    let mut shell = Shell::start();
    let relay = shell.connect();
    shell.slow_files.insert(PATH.to_owned());
    send(&mut shell, relay, &[in_channel(1, 1, &insert("first"))]);
    let long = insert(&"x".repeat(400 << 10));
    let messages: Vec<String> = (2..6).map(|id| in_channel(id, u64::from(id % 2), &long)).collect();
    for message in &messages {
        shell.send(relay, message);
        shell.settle();
    }
    for _ in 0..8 {
        shell.disk_is_done();
        shell.settle();
    }
    assert_eq!(received(&mut shell, relay).len(), 5, "all of it is answered");
    assert_eq!(
        shell.call(relay, r#"{"id":"e","method":"echo","params":[]}"#).matches("\"e\"").count(),
        1
    );
}

#[test]
fn no_other_channels_can_be_named() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let id = "11111111-1111-4111-8111-111111111111";
    for channel in [json!(1024), json!(-1), json!("a"), json!(1.5), json!(null)] {
        let options = json!({"channel": channel});
        for (method, params) in [
            ("weir_transact", json!(["Net", options])),
            ("weir_outcome", json!(["Net", id, id, options])),
        ] {
            let request = json!({"id": 1, "method": method, "params": params}).to_string();
            let reply = shell.call(client, &request);
            assert!(reply.contains("a whole number from 0 to 1023"), "{reply}");
        }
    }
    for params in [
        json!(["Net", id, id, {"lane": 1}]),
        json!(["Net", id, id, 1]),
        json!(["Net", id, id, {}, {}]),
    ] {
        let request = json!({"id": 1, "method": "weir_outcome", "params": params}).to_string();
        assert!(shell.call(client, &request).contains("syntax error"), "{params}");
    }
}

/// A client of a relay reads under a lock, which the source does for it and which takes long; others write.
#[test]
fn clients_of_a_relay_do_not_wait_for_each_other_at_its_source() {
    let mut chain = Chain::start(2);
    let clients: Vec<SessionId> = (0..3).map(|_| chain.servers[2].connect()).collect();
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("old{i}"))).collect();
    let reply = chain.call(2, clients[0], &transact(1, &rows.join(","))).concat();
    assert!(reply.contains("uuid"), "{reply}");
    chain.call(2, clients[0], r#"{"id":2,"method":"lock","params":["l"]}"#);
    let source = &mut chain.servers[0];
    source.server.set_step_cost_max(SMALL);
    source.slow_work = true;
    let reading = format!(r#"{{"op":"assert","lock":"l"}},{SELECT}"#);
    chain.servers[2].send(clients[0], &transact(3, &reading));
    chain.settle();
    for client in &clients[1..] {
        let new = insert(&format!("new{}", client.0));
        let reply = chain.call(2, *client, &transact(4, &new)).concat();
        assert!(reply.contains("uuid"), "{reply}");
    }
    assert!(chain.servers[2].received(clients[0]).is_empty());
    chain.servers[0].slow_work = false;
    while !chain.servers[0].work.is_empty() {
        chain.servers[0].do_work(0);
    }
    chain.settle();
    let reply = chain.servers[2].received(clients[0]).pop().expect("it has been read by now");
    assert_eq!(reply.matches("old").count(), 300);
}
