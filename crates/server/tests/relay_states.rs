//! States of a relay's source that the relay does not find: the source gives them no ids, or the log of
//! changes has lost them.

use crate::chain::Chain;
use crate::relay_sources::{
    A, B, FEATURES, ZERO, answer, asked, play_by, play_with, played, say, say_rows, source_row,
    value,
};
use crate::shell::{Shell, insert, ports, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, LinkId};
use weir_server::{Config, FileForms};

const C: &str = "cccccccc-0000-4000-8000-000000000003";
const CHOSEN: &str = "11111111-1111-4111-8111-111111111111";

/// A source that gives no ids, and so many relays behind it.
fn without_ids(relays: usize) -> Chain {
    let files = FileForms { no_history: true, ..FileForms::default() };
    Chain::of(Shell::start_in(files), relays)
}

fn is_done(told: &[String]) -> bool {
    let reply = value(told.last().expect("an answer"));
    reply["result"][0]["uuid"].is_array()
}

#[test]
fn who_chooses_an_id_behind_a_source_without_ids_is_told_that_it_means_nothing_there() {
    let mut chain = without_ids(2);
    let client = chain.servers[2].connect();
    let asks = format!(
        r#"{{"id":2,"method":"weir_transact","params":["Net",{{"id":"{CHOSEN}","since":"{ZERO}"}},{}]}}"#,
        insert("a")
    );
    for at in [1, 2] {
        let client = chain.servers[at].connect();
        let told = chain.call(at, client, &asks);
        let reply = value(told.last().expect("an answer"));
        assert_eq!(reply["error"]["error"], "not supported", "{reply}");
        // What it asks for next is answered.
        let name = format!("p{at}");
        let told = chain.call(at, client, &transact(3, &insert(&name)));
        assert!(is_done(&told), "{told:?}");
    }
    let told = chain.call(2, client, &transact(3, &insert("b")));
    assert!(is_done(&told), "{told:?}");
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["b", "p1", "p2"]);
    }
}

/// Ids that the source has given mean nothing any more.
#[test]
fn writes_go_on_when_the_source_gives_ids_no_longer() {
    let mut chain = Chain::start(1);
    let client = chain.servers[1].connect();
    assert!(is_done(&chain.call(1, client, &transact(1, &insert("a")))));
    switch(&mut chain, "off");
    chain.pass_ms(20_000);
    for name in ["b", "c"] {
        let told = chain.call(1, client, &transact(2, &insert(name)));
        assert!(is_done(&told), "{told:?}");
    }
    for server in &mut chain.servers {
        assert_eq!(ports(server), ["a", "b", "c"]);
    }
}

/// The source gives ids from now on, or no longer.
fn switch(chain: &mut Chain, to: &str) {
    let done = chain.servers[0].command("weir/standalone-history", &[to]);
    assert_eq!(done, Some(Ok(String::new())));
}

#[test]
fn who_must_not_read_what_is_stale_hears_that_a_source_without_ids_cannot_say() {
    let mut chain = without_ids(1);
    let client = chain.servers[1].connect();
    let sync = r#"{"id":1,"method":"weir_sync","params":["Net",1000]}"#;
    let told = chain.call(1, client, sync);
    let reply = value(told.last().expect("an answer"));
    assert_eq!(reply["error"]["error"], "not supported", "{reply}");
    switch(&mut chain, "on");
    chain.lose(1);
    chain.pass_ms(20_000);
    let told = chain.call(1, client, sync);
    assert_eq!(value(&told[0])["result"], json!({}), "{told:?}");
    switch(&mut chain, "off");
    chain.servers[1].send(client, &sync.replace("1000", "60000"));
    chain.pass_ms(20_000);
    let reply = value(chain.servers[1].received(client).last().expect("an answer"));
    assert_eq!(reply["error"]["error"], "not supported", "{reply}");
}

#[test]
fn so_does_who_asks_a_relay_of_a_relay_of_such_a_source() {
    let mut chain = without_ids(3);
    for at in [2, 3] {
        let client = chain.servers[at].connect();
        let told =
            chain.call(at, client, r#"{"id":1,"method":"weir_sync","params":["Net",60000]}"#);
        let reply = value(told.last().expect("an answer before the time is up"));
        assert_eq!(reply["error"]["error"], "not supported", "{reply}");
    }
}

/// A source that has taken its database out and in again shows what its file is known to have, which may be less
/// than it had told before.
#[test]
fn a_database_that_its_only_server_opens_anew_is_not_followed_before_it_has_what_was_seen() {
    let row = |index: i64| {
        let mut row = source_row();
        (row["model"], row["index"]) = (json!("clustered"), json!(index));
        row
    };
    let config =
        Config { databases: vec!["relay:Net:tcp:192.0.2.1:6640".into()], ..Config::default() };
    let mut shell = Shell::start_with(b"relay".to_vec(), config);
    let link = play_by(&mut shell, &row(5), |request| match request["method"].as_str().unwrap() {
        "weir_features" => Some(json!(FEATURES)),
        "weir_monitor" => Some(json!([false, B, {"Port": {B: {"initial": {"name": "b"}}}}])),
        _ => Some(json!({})),
    });
    let tell = |shell: &mut Shell, rows: Value| {
        let params = json!([["monid", "_Server"], {"Database": rows}]);
        say(shell, link, &json!({"id": null, "method": "update2", "params": params}));
        asked(shell, link)
    };
    say(
        &mut shell,
        link,
        &json!({"id":null,"method":"monitor_canceled","params":[["monid","Net"]]}),
    );
    tell(&mut shell, json!({ZERO: {"delete": null}}));
    let requests = tell(&mut shell, json!({C: {"insert": row(4)}}));
    assert_eq!(requests, Vec::<Value>::new(), "its rows are those from before");
    assert!(!shell.log.iter().any(|line| line.contains("gone back")), "{:#?}", shell.log);
    let requests = tell(&mut shell, json!({C: {"modify": {"index": 5}}}));
    assert_eq!(requests.len(), 1, "{requests:?}");
    // What it says in one row, it says of one file.
    let requests = tell(&mut shell, json!({C: {"modify": {"index": 3}}}));
    assert_eq!(requests, Vec::<Value>::new());
    assert!(shell.log.iter().any(|line| line.contains("gone back")), "{:#?}", shell.log);
}

/// The source had much to tell in one message before it came to the answer.
#[test]
fn an_answer_is_given_though_the_log_has_lost_its_state_meanwhile() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, &transact(1, &insert("b")));
    let request = asked(&mut shell, link).swap_remove(0);
    assert_eq!(request["method"], "weir_transact");
    say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
    let long = "x".repeat(17 << 20);
    say_rows(&mut shell, link, C, C, &json!({"insert": {"name": long}}));
    let results = json!([{"uuid": ["uuid", B]}]);
    answer(&mut shell, link, &request, &json!({"id": B, "results": results}));
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["result"], results);
    // One that overtakes its change still waits for it.
    shell.call(client, &transact(2, &insert("d")));
    let request = asked(&mut shell, link).swap_remove(0);
    let state = "dddddddd-0000-4000-8000-000000000004";
    answer(&mut shell, link, &request, &json!({"id": state, "results": results}));
    assert_eq!(shell.received(client), Vec::<String>::new());
    say_rows(&mut shell, link, state, state, &json!({"insert": {"name": "d"}}));
    let reply = shell.received(client).pop().expect("an answer");
    assert_eq!(value(&reply)["result"], results);
}

/// Another program is there since the source was away.
#[test]
fn who_waits_for_a_source_that_comes_back_and_cannot_say_what_is_committed_is_told_so() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.event(Event::LinkDown { link, error: None });
    let sync = r#"{"id":1,"method":"weir_sync","params":["Net",60000]}"#;
    assert_eq!(shell.call(client, sync), "", "the source may say it when it is there");
    play_with(&mut shell, &json!({A: {"initial": {"name": "a"}}}));
    shell.pass_ms(500);
    let reply = shell.received(client).pop().expect("an answer before the time is up");
    assert_eq!(value(&reply)["error"]["error"], "not supported", "{reply}");
}

/// A relay whose source, which the test plays, says what is committed.
fn played_with_sync() -> (Shell, LinkId) {
    let config =
        Config { databases: vec!["relay:Net:tcp:192.0.2.1:6640".into()], ..Config::default() };
    let mut shell = Shell::start_with(b"relay".to_vec(), config);
    let link =
        play_by(&mut shell, &source_row(), |request| match request["method"].as_str().unwrap() {
            "weir_features" => Some(json!([&FEATURES[..], &["weir_sync"]].concat())),
            "weir_monitor" => Some(json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}])),
            _ => Some(json!({})),
        });
    (shell, link)
}

/// The source names the state that it had when it was asked, and has told much more before it comes to say so.
#[test]
fn who_must_not_read_what_is_stale_is_answered_though_the_log_has_lost_that_state_meanwhile() {
    for state in [A, B] {
        let (mut shell, link) = played_with_sync();
        let client = shell.connect();
        shell.send(client, r#"{"id":1,"method":"weir_sync","params":["Net",60000]}"#);
        shell.settle();
        let request = asked(&mut shell, link).swap_remove(0);
        assert_eq!(request["method"], "weir_sync");
        answer(&mut shell, link, &request, &json!({}));
        let request = asked(&mut shell, link).swap_remove(0);
        assert_eq!(request["method"], "weir_transact");
        say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
        let long = "x".repeat(17 << 20);
        say_rows(&mut shell, link, C, C, &json!({"insert": {"name": long}}));
        answer(&mut shell, link, &request, &json!({"id": state, "results": []}));
        let reply = shell.received(client).pop().expect("an answer before the time is up");
        assert_eq!(value(&reply)["result"], json!({}), "{reply}");
    }
}
