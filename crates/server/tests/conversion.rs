//! Online conversion: what its clients, its bystanders and the file see.

use crate::shell::{PATH, SCHEMA, Shell, insert, ports, transact};
use weir_server::event::SessionId;

/// [`shell::SCHEMA`] with another table and another column, version 2.0.0.
const WIDER: &str = r#"{"name":"Net","version":"2.0.0","tables":{
    "Port":{"columns":{
        "name":{"type":"string"},
        "speed":{"type":"integer"},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "up":{"type":"boolean","ephemeral":true}},
        "indexes":[["name"]]},
    "Added":{"columns":{"x":{"type":"integer"}}}}}"#;

/// [`shell::SCHEMA`] with another table only: ports are what they were.
const BESIDE: &str = r#"{"name":"Net","version":"1.1.0","tables":{
    "Added":{"columns":{"x":{"type":"integer"}}},
    "Port":{"columns":{
        "name":{"type":"string"},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "up":{"type":"boolean","ephemeral":true}},
        "indexes":[["name"]]}}}"#;

const AWARE: &str = r#"{"id":"aware","method":"set_db_change_aware","params":[true]}"#;
const MONITOR: &str = r#"{"id":"m","method":"monitor_cond","params":["Net","mon",{"Port":{"columns":["name","_version"]}}]}"#;

fn convert(schema: &str) -> String {
    format!(r#"{{"id":"c","method":"convert","params":["Net",{schema}]}}"#)
}

const CONVERTED: &str = r#"{"id":"c","result":{},"error":null}"#;

fn aware(shell: &mut Shell) -> SessionId {
    let session = shell.connect();
    shell.call(session, AWARE);
    session
}

fn file(shell: &Shell) -> String {
    String::from_utf8(shell.after_kill(PATH)).unwrap()
}

#[test]
fn a_conversion_rewrites_the_file_and_disconnects_whoever_cannot_know() {
    let mut shell = Shell::start();
    let (asking, unaware, silent) = (shell.connect(), shell.connect(), shell.connect());
    let looking = shell.connect();
    shell.call(asking, &transact(1, &insert("p1")));
    shell.call(unaware, r#"{"id":1,"method":"get_schema","params":["Net"]}"#);
    // What ovsdb-client asks first, whatever it is to do.
    shell.call(looking, r#"{"id":1,"method":"list_dbs","params":[]}"#);
    let model = r#"{"op":"select","table":"Database","where":[["name","==","Net"]]}"#;
    shell.call(looking, &transact(2, model).replace(r#""Net",{"#, r#""_Server",{"#));
    assert_eq!(shell.call(asking, &convert(WIDER)), CONVERTED);
    assert_eq!(
        shell.disconnected,
        [asking, unaware],
        "{silent:?}, {looking:?} know no table of it"
    );
    assert!(
        shell.log.contains(
            &"unix#1: disconnecting (committed Net database schema conversion)".to_owned()
        )
    );
    let file = file(&shell);
    assert!(file.contains(r#""version":"2.0.0""#), "{file}");
    assert!(file.contains(r#""_comment":"converted by ovsdb-server""#), "{file}");
    assert_eq!(file.matches("OVSDB JSON").count(), 2, "{file}");
    assert_eq!(ports(&mut shell), ["p1"]);
    // The restarted server says the same.
    assert_eq!(ports(&mut Shell::start_on(shell.after_kill(PATH))), ["p1"]);
}

#[test]
fn aware_sessions_learn_which_monitors_and_transactions_ended() {
    let mut shell = Shell::start();
    let (asking, waiting) = (aware(&mut shell), aware(&mut shell));
    for session in [asking, waiting] {
        shell.call(session, MONITOR);
        let wait =
            r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"!=","rows":[]}"#;
        shell.call(session, &transact(3, wait));
    }
    shell.call(asking, &convert(WIDER));
    let ended = r#"{"id":null,"method":"monitor_canceled","params":["mon"]}"#;
    let canceled = r#"{"id":3,"error":"canceled"}"#;
    assert_eq!(shell.received(waiting), [ended, canceled]);
    assert!(shell.disconnected.is_empty());
    // The monitor's name is free again, and the new columns are there.
    let again =
        r#"{"id":"m","method":"monitor","params":["Net","mon",{"Port":{"columns":["speed"]}}]}"#;
    assert_eq!(shell.call(waiting, again), r#"{"id":"m","result":{},"error":null}"#);
}

/// As the Python library does, to which `monitor_canceled` says nothing.
#[test]
fn who_asks_for_nothing_behind_the_end_of_its_monitors_is_disconnected() {
    let mut shell = Shell::start();
    let sessions = [0; 5].map(|_| aware(&mut shell));
    let [asking, deaf, reading, watching, elsewhere] = sessions;
    for session in [deaf, reading, watching] {
        shell.call(session, MONITOR);
    }
    shell
        .call(elsewhere, r#"{"id":5,"method":"monitor","params":["_Server","s",{"Database":{}}]}"#);
    assert_eq!(shell.call(asking, &convert(WIDER)), CONVERTED);
    shell.pass_ms(20_000);
    shell.call(reading, r#"{"id":6,"method":"get_schema","params":["Net"]}"#);
    shell.call(watching, MONITOR);
    // It writes as before, and probes the server.
    shell.call(deaf, &transact(7, &insert("p")));
    shell.call(deaf, r#"{"id":"echo","method":"echo","params":[]}"#);
    shell.pass_ms(9_000);
    assert_eq!(shell.disconnected, []);
    shell.pass_ms(2_000);
    assert_eq!(shell.disconnected, [deaf]);
    assert!(shell.log.iter().any(|line| line.contains("has not asked for others in 30 s")));
    shell.pass_ms(60_000);
    assert_eq!(shell.disconnected, [deaf]);
}

#[test]
fn the_answer_stands_between_the_ended_monitors_and_the_canceled_transactions() {
    let mut shell = Shell::start();
    let asking = aware(&mut shell);
    shell.call(asking, MONITOR);
    let wait =
        r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"!=","rows":[]}"#;
    shell.call(asking, &transact(3, wait));
    shell.send(asking, &convert(WIDER));
    shell.settle();
    let ended = r#"{"id":null,"method":"monitor_canceled","params":["mon"]}"#;
    assert_eq!(shell.received(asking), [ended, CONVERTED, r#"{"id":3,"error":"canceled"}"#]);
}

#[test]
fn monitors_of_unaffected_tables_go_on_unless_there_is_more_to_watch() {
    let mut shell = Shell::start();
    let (asking, watching) = (aware(&mut shell), aware(&mut shell));
    shell.call(asking, &transact(1, &insert("p1")));
    shell.call(watching, MONITOR);
    // Its client may know what to do with the other table, and looks for it when its monitor ends.
    assert_eq!(shell.call(asking, &convert(BESIDE)), CONVERTED);
    let ended = r#"{"id":null,"method":"monitor_canceled","params":["mon"]}"#;
    assert_eq!(shell.received(watching), [ended]);
    let initial = shell.call(watching, MONITOR);
    assert_eq!(shell.call(asking, &convert(SCHEMA)), CONVERTED);
    assert_eq!(shell.received(watching), Vec::<String>::new());
    let writer = aware(&mut shell);
    shell.call(writer, &transact(2, &insert("p2")));
    let updates = shell.received(watching);
    assert_eq!(updates.len(), 1, "{updates:?}");
    assert!(updates[0].contains(r#""update2","params":["mon",{"Port":{""#), "{updates:?}");
    assert!(updates[0].contains(r#""name":"p2""#), "{updates:?}");
    // What it has been told holds still, versions included.
    let second = MONITOR.replace("\"mon\"", "\"other\"");
    let now = shell.call(watching, &second);
    let version = initial.split("\"_version\":").nth(1).unwrap().split(']').next().unwrap();
    assert!(now.contains(version), "{initial} {now}");
}

#[test]
fn transactions_go_on_while_a_helper_converts() {
    let mut shell = Shell::start();
    let (asking, writer) = (aware(&mut shell), aware(&mut shell));
    shell.call(writer, &transact(1, &[insert("p1"), insert("p2")].join(",")));
    shell.slow_helper = true;
    shell.send(asking, &convert(WIDER));
    shell.settle();
    let changes = [
        insert("p3"),
        r#"{"op":"delete","table":"Port","where":[["name","==","p1"]]}"#.into(),
        r#"{"op":"update","table":"Port","where":[["name","==","p2"]],"row":{"tags":"x"}}"#.into(),
    ];
    let reply = shell.call(writer, &transact(2, &changes.join(",")));
    assert!(reply.contains(r#"{"count":1}"#), "{reply}");
    assert_eq!(shell.received(asking), Vec::<String>::new());
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(asking), [CONVERTED]);
    let restarted = Shell::start_on(shell.after_kill(PATH));
    for mut shell in [shell, restarted] {
        let session = shell.connect();
        let select = r#"{"op":"select","table":"Port","where":[],"columns":["name","tags","speed"],"sort":["name"]}"#;
        let reply = shell.call(session, &transact(9, select));
        let rows =
            r#"[{"name":"p2","speed":0,"tags":"x"},{"name":"p3","speed":0,"tags":["set",[]]}]"#;
        assert!(reply.contains(rows), "{reply}");
    }
}

#[test]
fn transactions_go_on_while_a_helper_converts_what_they_have_changed() {
    let mut shell = Shell::start();
    let (asking, writer) = (aware(&mut shell), aware(&mut shell));
    shell.call(writer, &transact(1, &insert("p1")));
    shell.slow_helper = true;
    shell.send(asking, &convert(WIDER));
    shell.settle();
    // Too many to be followed in one step.
    let many: Vec<String> = (0..1200).map(|n| insert(&format!("many{n:04}"))).collect();
    shell.call(writer, &transact(2, &many.join(",")));
    shell.slow_work = true;
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(asking), Vec::<String>::new());
    // What comes now is followed when the helper has followed that.
    shell.send(writer, &transact(3, &insert("late")));
    shell.settle();
    while shell.received(asking).is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    // A long one makes way for the conversion, and runs behind it.
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    shell.slow_work = false;
    let restarted = Shell::start_on(shell.after_kill(PATH));
    for mut shell in [shell, restarted] {
        let names = ports(&mut shell);
        assert_eq!((names.len(), names.last().map(String::as_str)), (1202, Some("p1")));
        assert_eq!((names[0].as_str(), names[1200].as_str()), ("late", "many1199"));
        let session = shell.connect();
        let select = r#"{"op":"select","table":"Port","where":[["name","==","many0007"]],"columns":["speed"]}"#;
        assert!(shell.call(session, &transact(9, select)).contains(r#"[{"speed":0}]"#));
    }
}

#[test]
fn what_is_committed_meanwhile_may_forbid_the_conversion() {
    let unique_tags = WIDER.replace(r#""indexes":[["name"]]"#, r#""indexes":[["tags"]]"#);
    let mut shell = Shell::start();
    let (asking, writer) = (aware(&mut shell), aware(&mut shell));
    shell.call(writer, &transact(1, &insert("p1")));
    shell.slow_helper = true;
    shell.send(asking, &convert(&unique_tags));
    shell.settle();
    shell.call(writer, &transact(2, &insert("p2")));
    while shell.received(asking).is_empty() {
        shell.helper_is_done();
        shell.settle();
    }
    // Both have no tags; transactions were never refused, and go on under the old schema.
    assert_eq!(ports(&mut shell), ["p1", "p2"]);
    shell.call(writer, &transact(3, &insert("p3")));
    assert_eq!(ports(&mut shell), ["p1", "p2", "p3"]);
    assert!(file(&shell).contains(r#""version":"1.0.0""#));
}

#[test]
fn a_refused_conversion_changes_nothing() {
    let mut shell = Shell::start();
    let asking = shell.connect();
    shell.call(asking, &transact(1, &insert("p1")));
    let before = shell.after_kill(PATH);
    let other = WIDER.replace(r#""name":"Net""#, r#""name":"Other""#);
    assert_eq!(
        shell.call(asking, &convert(&other)),
        r#"{"id":"c","error":{"details":"new schema name (Other) does not match database name (Net)","error":"invalid parameters"}}"#
    );
    let short = WIDER
        .replace(r#"{"type":"string"}"#, r#"{"type":{"key":{"type":"string","maxLength":1}}}"#);
    assert_eq!(
        shell.call(asking, &convert(&short)),
        r#"{"id":"c","error":{"details":"\"p1\" length 2 is greater than maximum allowed length 1","error":"constraint violation"}}"#
    );
    let reply = shell.call(asking, r#"{"id":"c","method":"convert","params":["Net"]}"#);
    assert!(reply.contains(r#"{"details":"array expected","error":"syntax error""#), "{reply}");
    assert_eq!(shell.after_kill(PATH), before);
    assert!(shell.disconnected.is_empty());
}

#[test]
fn a_full_disk_stops_a_conversion_at_any_moment() {
    let mut shell = Shell::start();
    let asking = aware(&mut shell);
    shell.call(asking, &transact(1, &insert("p1")));
    shell.call(asking, MONITOR);
    let before = shell.after_kill(PATH);
    let failed = r#"{"id":"c","error":{"details":"conversion failed","error":"I/O error","io-error":"No space left on device"}}"#;
    // While the helper writes.
    shell.disk_error = Some("No space left on device");
    assert_eq!(shell.call(asking, &convert(WIDER)), failed);
    // When the new file takes the old one's place.
    shell.disk_error = None;
    shell.slow_helper = true;
    shell.send(asking, &convert(WIDER));
    shell.settle();
    shell.disk_error = Some("No space left on device");
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(asking), [failed]);
    assert_eq!(shell.after_kill(PATH), before);
    shell.disk_error = None;
    shell.slow_helper = false;
    assert_eq!(shell.call(asking, &convert(WIDER)), CONVERTED);
}

#[test]
fn the_server_database_shows_the_new_schema() {
    let mut shell = Shell::start();
    let (asking, watching) = (shell.connect(), aware(&mut shell));
    let monitor = r#"{"id":"m","method":"monitor","params":["_Server","srv",{"Database":{"columns":["schema"]}}]}"#;
    shell.call(watching, monitor);
    shell.call(asking, &convert(WIDER));
    let updates = shell.received(watching);
    assert!(updates[0].contains(r#"\"version\":\"2.0.0\""#), "{updates:?}");
}

#[test]
fn compactions_and_conversions_wait_for_each_other() {
    let mut shell = Shell::start();
    let asking = aware(&mut shell);
    shell.call(asking, &transact(1, &insert("p1")));
    shell.slow_helper = true;
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    shell.send(asking, &convert(WIDER));
    shell.settle();
    shell.helper_is_done();
    shell.settle();
    // The compaction is done, the conversion under way; another compaction joins it.
    assert_eq!(shell.replies.len(), 1);
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.replies.len(), 2);
    assert_eq!(shell.received(asking), [CONVERTED]);
    assert_eq!(ports(&mut Shell::start_on(shell.after_kill(PATH))), ["p1"]);
}

#[test]
fn a_database_that_is_removed_is_not_converted() {
    let mut shell = Shell::start();
    let asking = aware(&mut shell);
    shell.slow_helper = true;
    shell.send(asking, &convert(WIDER));
    shell.settle();
    shell.command("ovsdb-server/remove-db", &["Net"]);
    assert_eq!(shell.received(asking), [r#"{"id":"c","error":"canceled"}"#]);
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(asking), Vec::<String>::new());
}

#[test]
fn a_conversion_begins_anew_when_too_much_is_committed_meanwhile() {
    let mut shell = Shell::start();
    let (asking, other) = (aware(&mut shell), aware(&mut shell));
    let rows: Vec<String> = (0..1_001).map(|i| insert(&format!("p{i}"))).collect();
    shell.call(other, &transact(1, &rows.join(",")));
    shell.slow_helper = true;
    shell.send(asking, &convert(WIDER));
    shell.settle();
    for i in 0..1_000 {
        let update =
            format!(r#"{{"op":"update","table":"Port","where":[],"row":{{"up":{}}}}}"#, i % 2 == 0);
        let reply = shell.call(other, &transact(i + 2, &update));
        assert!(reply.contains(r#""count":1001"#), "{reply}");
    }
    let followed = |shell: &Shell| shell.sent_out.iter().any(|what| what == "Follow");
    shell.helper_is_done();
    shell.settle();
    assert!(!followed(&shell) && shell.helpers_out() == 1, "{:?}", shell.sent_out);
    assert!(shell.sent_out.iter().any(|what| what == "Free"), "a helper frees what was converted");
    assert!(shell.received(asking).is_empty());
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(asking), [CONVERTED]);
    assert_eq!(ports(&mut Shell::start_on(shell.after_kill(PATH))).len(), 1_001);
}

/// Others have asked for it there, and take it for dead that does not answer.
#[test]
fn a_relay_that_asks_for_a_conversion_is_answered_echo_before_it_is_made() {
    let mut shell = Shell::start();
    let (relay, client) = (aware(&mut shell), aware(&mut shell));
    let monitor = r#"{"id":1,"method":"weir_monitor","params":["Net","w",{"Port":{"columns":["name"]}},"00000000-0000-0000-0000-000000000000",{"each":true}]}"#;
    assert!(shell.call(relay, monitor).contains(r#""error":null"#));
    shell.slow_helper = true;
    for (session, is_answered) in [(relay, true), (client, false)] {
        shell.send(session, &convert(WIDER));
        shell.send(session, r#"{"id":2,"method":"echo","params":[]}"#);
        shell.settle();
        assert_eq!(shell.has_received(session), is_answered);
    }
}
