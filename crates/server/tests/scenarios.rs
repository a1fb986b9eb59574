//! The core under a scripted shell: what clients see, told as scenarios.

use crate::shell::{PATH, Shell, insert, ports, transact};
use weir_server::event::Event;

const MONITOR: &str = r#"{"id":"m","method":"monitor_cond","params":["Net","mon",{"Port":{"columns":["name","tags"]}}]}"#;

#[test]
fn a_transaction_is_written_before_it_is_answered() {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.send(client, &transact(7, &insert("p1")));
    assert_eq!(shell.received(client), Vec::<String>::new());
    shell.round();
    let reply = shell.received(client).pop().unwrap();
    assert!(reply.starts_with(r#"{"id":7,"result":[{"uuid":["uuid",""#), "{reply}");
    let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
    assert!(file.contains(r#""_is_diff":true,"Port":{""#), "{file}");
    assert!(file.contains(r#"{"name":"p1"}"#), "{file}");
}

#[test]
fn durable_commits_sync_and_ephemeral_ones_write_nothing() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let durable = format!(r#"{},{{"op":"commit","durable":true}}"#, insert("p1"));
    shell.call(client, &transact(1, &durable));
    assert_eq!((shell.appends, shell.syncs), (1, 1));
    let up = r#"{"op":"update","table":"Port","where":[],"row":{"up":true}}"#;
    let reply = shell.call(client, &transact(2, up));
    assert!(reply.contains(r#"{"count":1}"#), "{reply}");
    assert_eq!(shell.appends, 1);
}

#[test]
fn a_client_sees_its_own_change_before_the_reply() {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.call(client, MONITOR);
    shell.send(client, &transact(2, &insert("p1")));
    shell.round();
    let received = shell.received(client);
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(received[0].contains(r#""update2","params":["mon",{"Port":{""#), "{received:?}");
    assert!(received[1].starts_with(r#"{"id":2,"result""#), "{received:?}");
}

#[test]
fn a_blocked_client_gets_one_merged_update_later() {
    let mut shell = Shell::start();
    let (writer, watcher) = (shell.connect(), shell.connect());
    shell.call(watcher, MONITOR);
    shell.event(Event::Blocked { session: watcher });
    for i in 0..3 {
        shell.call(writer, &transact(i, &insert(&format!("p{i}"))));
    }
    let gone = r#"{"op":"delete","table":"Port","where":[["name","==","p1"]]}"#;
    shell.call(writer, &transact(8, gone));
    assert_eq!(shell.received(watcher).len(), 0);
    shell.event(Event::Drained { session: watcher });
    shell.settle();
    let updates = shell.received(watcher);
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].matches("insert").count(), 2, "{updates:?}");
}

#[test]
fn a_full_disk_aborts_the_round_and_leaves_no_trace() {
    let mut shell = Shell::start();
    let (writer, other, watcher) = (shell.connect(), shell.connect(), shell.connect());
    shell.call(watcher, MONITOR);
    shell.call(writer, &transact(1, &insert("before")));
    shell.received(watcher);
    let file = shell.files[PATH].clone();
    shell.disk_error = Some("No space left on device");
    shell.send(writer, &transact(2, &insert("lost")));
    // Runs on top of the insertion that is undone: it must not answer with it.
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
    shell.send(other, &transact(3, select));
    shell.settle();
    let refused = shell.received(writer).pop().unwrap();
    assert!(
        refused.contains(r#""error":"I/O error","io-error":"No space left on device""#),
        "{refused}"
    );
    let read = shell.received(other).pop().unwrap();
    assert_eq!(read, r#"{"id":3,"result":[{"rows":[{"name":"before"}]}],"error":null}"#);
    assert_eq!(shell.received(watcher), Vec::<String>::new());
    assert_eq!(shell.files[PATH], file);
    // Readers are served; when there is room again, so are writers.
    shell.disk_error = None;
    shell.call(writer, &transact(4, &insert("after")));
    assert_eq!(ports(&mut shell), ["after", "before"]);
    let copy = shell.files[PATH].clone();
    assert_eq!(ports(&mut Shell::start_on(copy)), ["after", "before"]);
}

#[test]
fn a_wait_is_answered_when_the_database_changes_or_its_time_is_up() {
    let mut shell = Shell::start();
    let (waiter, writer) = (shell.connect(), shell.connect());
    let wait = |timeout: &str| {
        format!(
            r#"{{"op":"wait"{timeout},"table":"Port","where":[["name","==","p1"]],"columns":["name"],"until":"==","rows":[{{"name":"p1"}}]}}"#
        )
    };
    assert_eq!(shell.call(waiter, &transact(1, &wait(""))), "");
    shell.call(writer, &transact(1, &insert("p0")));
    assert_eq!(shell.received(waiter).len(), 0);
    shell.call(writer, &transact(2, &insert("p1")));
    assert_eq!(shell.received(waiter), [r#"{"id":1,"result":[{}],"error":null}"#]);

    let other = wait(r#","timeout":100"#).replace("p1", "p2");
    assert_eq!(shell.call(waiter, &transact(2, &other)), "");
    assert_eq!(shell.server.next_wakeup_us(), Some(shell.now.monotonic_us + 100_000));
    shell.advance_ms(100);
    shell.settle();
    let reply = shell.received(waiter).pop().unwrap();
    assert!(reply.contains(r#""error":"timed out""#), "{reply}");
}

#[test]
fn cancel_answers_only_those_who_know_of_it() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let wait =
        r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"!=","rows":[]}"#;
    let cancel = r#"{"id":null,"method":"cancel","params":[5]}"#;
    shell.call(client, &transact(5, wait));
    assert_eq!(shell.call(client, cancel), "");
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(client, &transact(5, wait));
    let reply = shell.call(client, cancel);
    assert_eq!(reply, r#"{"id":5,"error":"canceled"}"#);
}

#[test]
fn locks_pass_from_client_to_client() {
    let mut shell = Shell::start();
    let (a, b) = (shell.connect(), shell.connect());
    let call = |method: &str| format!(r#"{{"id":1,"method":"{method}","params":["l"]}}"#);
    assert!(shell.call(a, &call("lock")).contains(r#"{"locked":true}"#));
    assert!(shell.call(b, &call("lock")).contains(r#"{"locked":false}"#));
    let asserts = r#"{"op":"assert","lock":"l"}"#;
    assert!(shell.call(b, &transact(2, asserts)).contains("not owner"));
    shell.event(Event::Closed { session: a, error: None });
    shell.settle();
    let locked = shell.received(b).pop().unwrap();
    assert_eq!(locked, r#"{"id":null,"method":"locked","params":["l"]}"#);
    assert!(shell.call(b, &transact(3, asserts)).contains("[{}]"));
}

#[test]
fn a_silent_network_client_is_probed_and_then_dropped() {
    let mut shell = Shell::start();
    let client = shell.connect_as("tcp:127.0.0.1:1");
    shell.advance_ms(5000);
    shell.round();
    assert_eq!(shell.received(client), [r#"{"id":"echo","method":"echo","params":[]}"#]);
    shell.send(client, r#"{"id":"echo","result":[],"error":null}"#);
    shell.advance_ms(5000);
    shell.round();
    assert_eq!(shell.disconnected, []);
    shell.advance_ms(5000);
    shell.round();
    assert_eq!(shell.disconnected, [client]);
}

#[test]
fn adding_a_database_disconnects_who_cannot_be_told() {
    let mut shell = Shell::start();
    let (aware, unaware) = (shell.connect(), shell.connect());
    shell.call(aware, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(unaware, r#"{"id":1,"method":"list_dbs","params":[]}"#);
    let other = crate::shell::SCHEMA.replace("\"Net\"", "\"Other\"");
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(other.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    shell.files.insert("/db/other.db".into(), file);
    assert_eq!(shell.command("ovsdb-server/add-db", &["/db/other.db"]), Some(Ok(String::new())));
    assert_eq!(shell.disconnected, [unaware]);
    let names = shell.call(aware, r#"{"id":2,"method":"list_dbs","params":[]}"#);
    assert_eq!(names, r#"{"id":2,"result":["Net","Other","_Server"],"error":null}"#);
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Other"]), Some(Ok(String::new())));
    let unknown = shell.command("ovsdb-server/remove-db", &["Other"]);
    assert_eq!(unknown, Some(Err("Failed to find the database.".into())));
}

#[test]
fn compaction_keeps_what_is_committed_meanwhile() {
    let mut shell = Shell::start();
    let client = shell.connect();
    for i in 0..50 {
        let tag = format!(r#"{},{{"op":"comment","comment":"c{i}"}}"#, insert(&format!("p{i}")));
        shell.call(client, &transact(i, &tag));
    }
    let size = shell.files[PATH].len();
    // The command and a transaction come in the same round.
    let id = weir_server::event::CommandId(1);
    let name = "ovsdb-server/compact".to_owned();
    shell.event(Event::Command { id, name, args: vec!["Net".into()] });
    shell.send(client, &transact(100, &insert("meanwhile")));
    shell.settle();
    assert_eq!(shell.replies[&id], Ok(String::new()));
    let file = shell.files[PATH].clone();
    assert!(file.len() < size, "{} < {size}", file.len());
    assert_eq!(ports(&mut Shell::start_on(file)).len(), 51);
}

#[test]
fn a_compaction_is_put_off_when_too_much_is_committed_meanwhile() {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.call(client, &transact(0, &insert("p")));
    shell.slow_helper = true;
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    for i in 0..17 {
        let name = format!("p{i}{}", "x".repeat(16 << 20));
        let update =
            format!(r#"{{"op":"update","table":"Port","where":[],"row":{{"name":"{name}"}}}}"#);
        assert!(shell.call(client, &transact(i + 1, &update)).contains(r#""count":1"#));
    }
    shell.helper_is_done();
    shell.settle();
    let reply = shell.replies.values().next().expect("the command is answered").clone();
    let error = reply.expect_err("the copy is too far behind");
    assert!(error.contains("committed meanwhile"), "{error}");
    assert!(!shell.files.contains_key(&format!("{PATH}.tmp")), "the copy is removed");
    // Nothing is lost, and the next one is done.
    assert!(shell.call(client, &transact(50, &insert("q"))).contains("uuid"));
    let size = shell.files[PATH].len();
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    shell.helper_is_done();
    shell.settle();
    let file = shell.files[PATH].clone();
    assert!(file.len() * 10 < size, "{} of {size}", file.len());
    assert_eq!(ports(&mut Shell::start_on(file)).len(), 2);
}

#[test]
fn what_is_no_json_rpc_ends_the_connection_and_nothing_else() {
    let bad = [
        "",
        "[]",
        "{",
        "\u{0}",
        "{}",
        r#"{"id":1}"#,
        r#"{"id":1,"method":1,"params":[]}"#,
        r#"{"id":1,"method":"x","params":{}}"#,
        r#"{"id":1,"result":1,"error":null}"#,
    ];
    let mut shell = Shell::start();
    for message in bad {
        let client = shell.connect();
        shell.send(client, message);
        shell.settle();
        assert_eq!(shell.disconnected.pop(), Some(client), "{message}");
    }
    let client = shell.connect();
    let reply = shell.call(client, r#"{"id":1,"method":"nonsense","params":[]}"#);
    assert_eq!(reply, r#"{"id":1,"error":"unknown method"}"#);
}

#[test]
fn remotes_follow_the_table_that_names_them() {
    let mut shell = Shell::start();
    let added = shell.command("ovsdb-server/add-remote", &["db:Net,Port,tags"]);
    assert_eq!(added, Some(Ok(String::new())));
    assert_eq!(shell.listening, ["punix:/sock"]);
    let client = shell.connect();
    let port = |tag: &str| {
        format!(r#"{{"op":"insert","table":"Port","row":{{"name":"{tag}","tags":"{tag}"}}}}"#)
    };
    shell.call(client, &transact(1, &port("ptcp:6641")));
    assert_eq!(shell.listening, ["punix:/sock", "ptcp:6641"]);
    let gone = r#"{"op":"delete","table":"Port","where":[["name","==","ptcp:6641"]]}"#;
    shell.call(client, &transact(2, gone));
    assert_eq!(shell.listening, ["punix:/sock"]);
    let wrong = shell.command("ovsdb-server/add-remote", &["db:Net,Port,nonsense"]);
    let text = "\"db:Net,Port,nonsense\": table \"Port\" has no column \"nonsense\"";
    assert_eq!(wrong, Some(Err(text.to_owned())));
}

#[test]
fn a_weak_reference_that_commit_takes_back_is_no_change_of_its_column() {
    let schema = r#"{"name":"Net","tables":{"T":{"columns":{
        "to":{"type":{"key":{"type":"uuid","refTable":"T","refType":"weak"},"min":0,"max":1}}}}}}"#;
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let mut shell = Shell::start_on(file);
    let (writer, watcher) = (shell.connect(), shell.connect());
    shell.call(writer, &transact(1, r#"{"op":"insert","table":"T","row":{}}"#));
    for (id, columns) in [("1", r#"["to"]"#), ("2", r#"["to","_version"]"#)] {
        let requests = format!(r#"{{"T":{{"columns":{columns}}}}}"#);
        let params = format!(r#"["Net",{id},{requests}]"#);
        shell.call(watcher, &format!(r#"{{"id":1,"method":"monitor","params":{params}}}"#));
    }
    let nowhere = r#"["uuid","00000000-0000-0000-0000-000000000001"]"#;
    let update = format!(r#"{{"op":"update","table":"T","where":[],"row":{{"to":{nowhere}}}}}"#);
    shell.call(writer, &transact(2, &update));
    let updates = shell.received(watcher);
    assert_eq!(updates.len(), 1, "{updates:?}");
    assert!(updates[0].contains(r#""params":[2,"#), "{updates:?}");
    assert!(updates[0].contains(r#""old":{"_version":"#), "{updates:?}");
    assert_eq!(updates[0].matches(r#""to""#).count(), 1, "{updates:?}");
}
