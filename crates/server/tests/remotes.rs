//! Remotes under a scripted shell: rows of tables, connections that go out, their status, and the
//! options of TLS that stand in a database.

use crate::shell::{PATH, Shell};
use weir_server::effect::TlsSettings;
use weir_server::event::{Event, RemoteId, SessionId};
use weir_server::{Config, StartStatus};

const SCHEMA: &str = r#"{"name":"D","version":"1.0.0","tables":{
    "Root":{"columns":{
        "managers":{"type":{"key":{"type":"uuid","refTable":"Manager"},"min":0,"max":"unlimited"}},
        "names":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "number":{"type":"integer"}}},
    "SSL":{"columns":{"key":{"type":"string"},"ca":{"type":{"key":"string","min":0,"max":1}}}},
    "Bare":{"columns":{"target":{"type":"string"}}},
    "Refs":{"columns":{
        "bare":{"type":{"key":{"type":"uuid","refTable":"Bare"},"min":0,"max":"unlimited"}}}},
    "Manager":{"columns":{
        "target":{"type":"string"},
        "max_backoff":{"type":{"key":"integer","min":0,"max":1}},
        "inactivity_probe":{"type":{"key":"integer","min":0,"max":1}},
        "read_only":{"type":"boolean"},
        "role":{"type":"string"},
        "other_config":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "is_connected":{"type":"boolean","ephemeral":true},
        "status":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"},
            "ephemeral":true}}}}}"#;

fn start(remotes: &[&str], tls: TlsSettings) -> Shell {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let remotes = remotes.iter().map(|&remote| remote.to_owned()).collect();
    Shell::start_with(file, Config { remotes, tls, ..Config::default() })
}

/// A server that listens for us, and looks for others in a table.
fn started() -> (Shell, SessionId) {
    let mut shell = start(&["punix:/sock", "db:D,Root,managers"], TlsSettings::default());
    assert_eq!(shell.server.start_status(), StartStatus::Ready);
    let client = shell.connect_to("punix:/sock").unwrap();
    (shell, client)
}

/// The server does not start, and the log says why.
fn failed(shell: &Shell, error: &str) {
    let status = StartStatus::Failed(vec!["server configuration failed".to_owned()]);
    assert_eq!(shell.server.start_status(), status);
    assert!(shell.log.iter().any(|line| line.contains(error)), "{:?} lacks {error}", shell.log);
}

fn transact(shell: &mut Shell, client: SessionId, operations: &str) -> serde_json::Value {
    let message = format!(r#"{{"id":1,"method":"transact","params":["D",{operations}]}}"#);
    let reply: serde_json::Value = serde_json::from_str(&shell.call(client, &message)).unwrap();
    assert_eq!(reply["error"], serde_json::Value::Null, "{reply}");
    reply["result"].clone()
}

/// Adds a manager with these columns.
fn add_manager(shell: &mut Shell, client: SessionId, columns: &str) {
    let operations = format!(
        r#"{{"op":"insert","table":"Manager","uuid-name":"m","row":{{{columns}}}}},
           {{"op":"insert","table":"Root","row":{{"managers":["named-uuid","m"]}}}}"#
    );
    transact(shell, client, &operations);
}

fn change_managers(shell: &mut Shell, client: SessionId, columns: &str) {
    let update = format!(r#"{{"op":"update","table":"Manager","where":[],"row":{{{columns}}}}}"#);
    transact(shell, client, &update);
}

/// `is_connected` and `status` of the only manager.
fn status(shell: &mut Shell, client: SessionId) -> (bool, String) {
    let select =
        r#"{"op":"select","table":"Manager","where":[],"columns":["is_connected","status"]}"#;
    let rows = transact(shell, client, select)[0]["rows"].clone();
    let pairs = rows[0]["status"][1].as_array().unwrap().iter();
    let words: Vec<String> =
        pairs.map(|pair| format!("{}={}", pair[0], pair[1]).replace('"', "")).collect();
    (rows[0]["is_connected"].as_bool().unwrap(), words.join(" "))
}

/// Takes the connections that are to be tried.
fn tried(shell: &mut Shell) -> Vec<RemoteId> {
    shell.reaching.drain(..).map(|(remote, ..)| remote).collect()
}

#[test]
fn rows_of_a_table_are_remotes() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"ptcp:6640:192.0.2.1""#);
    assert_eq!(shell.listening, ["punix:/sock", "ptcp:6640:192.0.2.1"]);
    transact(&mut shell, client, r#"{"op":"delete","table":"Root","where":[]}"#);
    assert_eq!(shell.listening, ["punix:/sock"]);
    assert!(shell.log.contains(&"ptcp:6640:192.0.2.1: remote deconfigured".to_owned()));
}

#[test]
fn sockets_of_others_cannot_be_named_in_a_table() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"pfd:3""#);
    let text =
        "pfd: remotes can only be specified on the command line; ignoring \"pfd:3\" from database";
    assert_eq!(shell.log.iter().filter(|line| *line == text).count(), 1, "{:?}", shell.log);
    assert_eq!(shell.listening, ["punix:/sock"]);
    let added = shell.command("ovsdb-server/add-remote", &["pfd:3"]).unwrap();
    assert_eq!(added.unwrap_err(), "pfd: remotes can only be specified on the command line");
}

#[test]
fn some_options_count_at_once_and_others_open_the_remote_anew() {
    let (mut shell, client) = started();
    let target = "ptcp:6640:192.0.2.1";
    add_manager(&mut shell, client, &format!(r#""target":"{target}","inactivity_probe":60000"#));
    let peer = shell.connect_to(target).unwrap();
    shell.pass_ms(50_000);
    assert_eq!(shell.received(peer), Vec::<String>::new());
    change_managers(&mut shell, client, r#""inactivity_probe":2000"#);
    shell.pass_ms(10);
    assert_eq!(shell.received(peer).len(), 1, "a probe, for the new interval is over");
    shell.event(Event::Activity { session: peer });
    change_managers(&mut shell, client, r#""inactivity_probe":0"#);
    shell.pass_ms(100_000);
    assert!(!shell.disconnected.contains(&peer), "no probes any more");

    change_managers(&mut shell, client, r#""read_only":true"#);
    assert!(!shell.disconnected.contains(&peer));
    let insert =
        r#"{"id":1,"method":"transact","params":["D",{"op":"insert","table":"SSL","row":{}}]}"#;
    assert!(!shell.call(peer, insert).contains("not allowed"), "it was there before");
    let late = shell.connect_to(target).unwrap();
    assert!(shell.call(late, insert).contains("not allowed"));

    let log = shell.log.len();
    change_managers(&mut shell, client, r#""other_config":["map",[["dscp","10"]]]"#);
    assert!(shell.disconnected.contains(&peer) && shell.disconnected.contains(&late));
    assert_eq!(shell.listening, ["punix:/sock", target]);
    let peer = shell.connect_to(target).unwrap();
    change_managers(&mut shell, client, r#""role":"r""#);
    assert!(shell.disconnected.contains(&peer));
    assert!(!shell.log[log..].iter().any(|line| line.contains("deconfigured")), "{:?}", shell.log);
}

#[test]
fn the_server_connects_serves_and_connects_again() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"tcp:192.0.2.1:6640""#);
    shell.pass_ms(0);
    let [remote] = tried(&mut shell)[..] else { panic!("{:?}", shell.log) };
    let session = shell.connect_through(remote, "tcp:192.0.2.1:6640");
    let reply = shell.call(session, r#"{"id":1,"method":"list_dbs","params":[]}"#);
    assert!(reply.contains(r#"["D","_Server"]"#), "{reply}");
    shell.pass_ms(3000);
    shell.call(session, r#"{"id":2,"method":"list_dbs","params":[]}"#);
    shell.event(Event::Closed { session, error: None });
    shell.pass_ms(999);
    assert_eq!(tried(&mut shell), []);
    shell.pass_ms(1);
    assert_eq!(tried(&mut shell), [remote]);
    shell.event(Event::ConnectFailed { remote, error: Some("Connection refused".into()) });
    shell.pass_ms(2000);
    assert_eq!(tried(&mut shell), [remote]);
    shell.event(Event::ConnectFailed { remote, error: None });
    shell.settle();
    let of_it: Vec<&str> =
        shell.log.iter().filter_map(|line| line.strip_prefix("tcp:192.0.2.1:6640: ")).collect();
    assert_eq!(
        of_it,
        [
            "connecting...",
            "connected",
            "connection closed by peer",
            "connecting...",
            "connection attempt failed (Connection refused)",
            "waiting 2 seconds before reconnect",
            "connecting...",
            "connection attempt timed out",
            "waiting 4 seconds before reconnect",
        ]
    );
}

#[test]
fn a_manager_that_does_not_answer_is_given_up_and_tried_again() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"tcp:192.0.2.1:6640""#);
    shell.pass_ms(0);
    let [remote] = tried(&mut shell)[..] else { panic!("{:?}", shell.log) };
    let session = shell.connect_through(remote, "tcp:192.0.2.1:6640");
    shell.pass_ms(5000);
    assert_eq!(shell.received(session).len(), 1, "a probe");
    shell.pass_ms(5000);
    assert!(shell.disconnected.contains(&session));
    assert!(shell.log.contains(&"tcp:192.0.2.1:6640: connection dropped".to_owned()));
    shell.pass_ms(2000);
    assert_eq!(tried(&mut shell), [remote]);
}

#[test]
fn a_manager_that_is_asked_whether_it_is_there_is_idle() {
    let (mut shell, client) = started();
    let columns = r#""target":"tcp:192.0.2.1:6640","inactivity_probe":2345"#;
    add_manager(&mut shell, client, columns);
    shell.pass_ms(0);
    let [remote] = tried(&mut shell)[..] else { panic!("{:?}", shell.log) };
    let session = shell.connect_through(remote, "tcp:192.0.2.1:6640");
    shell.pass_ms(2500);
    let (is_connected, text) = status(&mut shell, client);
    assert_eq!((is_connected, text.as_str()), (true, "sec_since_connect=2 state=IDLE"));
    shell.pass_ms(2345);
    assert!(shell.disconnected.contains(&session));
    let lost = "tcp:192.0.2.1:6640: no response to inactivity probe after 2.35 seconds, \
                disconnecting";
    assert!(shell.log.iter().any(|line| line == lost), "{:?}", shell.log);
}

#[test]
fn intervals_of_any_length_can_be_given() {
    let (mut shell, client) = started();
    let target = "ptcp:6640:192.0.2.1";
    let longest = i64::MAX;
    let columns =
        format!(r#""target":"{target}","inactivity_probe":{longest},"max_backoff":{longest}"#);
    add_manager(&mut shell, client, &columns);
    let peer = shell.connect_to(target).unwrap();
    shell.pass_ms(3_600_000);
    assert_eq!(shell.received(peer), Vec::<String>::new());
    assert!(!shell.disconnected.contains(&peer));
}

#[test]
fn who_comes_in_while_the_remote_is_closed_is_let_go() {
    let (mut shell, client) = started();
    let target = "ptcp:6640:192.0.2.1";
    add_manager(&mut shell, client, &format!(r#""target":"{target}","role":"r""#));
    // The first is the one that `client` came through.
    let remote = RemoteId(2);
    let early = shell.connect_through(remote, "tcp:192.0.2.1:4710");
    assert!(!shell.disconnected.contains(&early));
    change_managers(&mut shell, client, r#""role":"s""#);
    let late = shell.connect_through(remote, "tcp:192.0.2.1:4711");
    assert!(shell.disconnected.contains(&late), "it would have no role, and may do everything");
}

#[test]
fn a_manager_that_nobody_wants_is_left_alone() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"tcp:192.0.2.1:6640""#);
    shell.pass_ms(0);
    let [remote] = tried(&mut shell)[..] else { panic!("{:?}", shell.log) };
    let session = shell.connect_through(remote, "tcp:192.0.2.1:6640");
    transact(&mut shell, client, r#"{"op":"delete","table":"Root","where":[]}"#);
    assert!(shell.disconnected.contains(&session));
    shell.pass_ms(60_000);
    assert_eq!(tried(&mut shell), []);
}

#[test]
fn status_is_written_when_it_changes_and_not_to_the_file() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"ptcp:6640:192.0.2.1""#);
    assert_eq!(status(&mut shell, client), (false, String::new()));
    shell.pass_ms(2500);
    let zero = "sec_since_connect=0 sec_since_disconnect=0";
    assert_eq!(status(&mut shell, client), (false, zero.to_owned()));
    shell.connect_to("ptcp:6640:192.0.2.1").unwrap();
    let second = shell.connect_to("ptcp:6640:192.0.2.1").unwrap();
    shell.pass_ms(2500);
    assert_eq!(status(&mut shell, client), (true, format!("n_connections=2 {zero}")));
    shell.event(Event::Closed { session: second, error: None });
    shell.pass_ms(2500);
    assert_eq!(status(&mut shell, client), (true, zero.to_owned()));
    let (appends, size) = (shell.appends, shell.files[PATH].len());
    shell.pass_ms(60_000);
    assert_eq!((shell.appends, shell.files[PATH].len()), (appends, size));
}

#[test]
fn the_port_of_a_remote_is_there_with_the_first_read_after_the_start() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"ptcp:0:192.0.2.1""#);
    let remotes = ["punix:/sock", "db:D,Root,managers"].map(str::to_owned).to_vec();
    let config = Config { remotes, ..Config::default() };
    let mut again = Shell::start_with(shell.files[PATH].clone(), config);
    let client = again.connect_to("punix:/sock").unwrap();
    let (_, status) = status(&mut again, client);
    assert!(status.contains(&format!("bound_port={}", crate::shell::CHOSEN_PORT)), "{status}");
}

#[test]
fn nothing_is_told_to_monitors_while_nothing_changes() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"ptcp:6640:192.0.2.1""#);
    let monitor = r#"{"id":1,"method":"monitor","params":["D",1,{"Manager":{}}]}"#;
    shell.call(client, monitor);
    shell.pass_ms(2500);
    assert_eq!(shell.received(client).len(), 1);
    shell.pass_ms(60_000);
    assert_eq!(shell.received(client), Vec::<String>::new());
}

#[test]
fn the_status_of_a_connection_tells_its_story() {
    let (mut shell, client) = started();
    add_manager(&mut shell, client, r#""target":"tcp:192.0.2.1:6640","inactivity_probe":0"#);
    shell.pass_ms(2500);
    assert_eq!(status(&mut shell, client), (false, "state=CONNECTING".to_owned()));
    let [remote] = tried(&mut shell)[..] else { panic!("{:?}", shell.log) };
    let session = shell.connect_through(remote, "tcp:192.0.2.1:6640");
    shell.call(session, r#"{"id":1,"method":"lock","params":["a"]}"#);
    shell.call(session, r#"{"id":2,"method":"lock","params":["b"]}"#);
    shell.call(client, r#"{"id":2,"method":"steal","params":["b"]}"#);
    shell.pass_ms(2500);
    let (is_connected, text) = status(&mut shell, client);
    assert!(is_connected);
    assert_eq!(text, "locks_held=a locks_waiting=b sec_since_connect=2 state=ACTIVE");
    shell.event(Event::Closed { session, error: Some("Connection reset by peer".into()) });
    shell.pass_ms(2500);
    let (is_connected, text) = status(&mut shell, client);
    assert!(!is_connected);
    assert_eq!(
        text,
        "last_error=Connection reset by peer sec_since_connect=5 sec_since_disconnect=2 \
         state=CONNECTING"
    );
}

#[test]
fn columns_that_are_missing_are_named_once() {
    let remotes = ["punix:/sock", "db:D,Refs,bare", "db:D,Root,names"];
    let mut shell = start(&remotes, TlsSettings::default());
    let client = shell.connect_to("punix:/sock").unwrap();
    transact(
        &mut shell,
        client,
        r#"{"op":"insert","table":"Bare","uuid-name":"b","row":{"target":"ptcp:1:192.0.2.1"}},
           {"op":"insert","table":"Refs","row":{"bare":["named-uuid","b"]}},
           {"op":"insert","table":"Root","row":{"names":["set",["ptcp:2:192.0.2.1"]]}}"#,
    );
    shell.pass_ms(60_000);
    assert_eq!(shell.listening.len(), 3);
    // The first of them is for who debugs: such tables are as good as others.
    for missing in
        ["Table `Bare' has no `is_connected' column", "No status column present in the Bare table"]
    {
        let lines = shell.log.iter().filter(|line| line.contains(missing));
        assert_eq!(lines.count(), 1, "{missing}: {:?}", shell.log);
    }
}

#[test]
fn a_wrong_table_is_fatal_at_the_start_and_a_warning_later() {
    for (remote, error) in [
        ("db:X,Root,managers", "\"db:X,Root,managers\": no database named X"),
        ("db:D,X,managers", "\"db:D,X,managers\": no table named X"),
        ("db:D,Root,x", "\"db:D,Root,x\": table \"Root\" has no column \"x\""),
        ("db:D,Root", "\"db:D,Root\": invalid syntax"),
    ] {
        let shell = start(&[remote], TlsSettings::default());
        failed(&shell, error);
    }
    let (mut shell, _) = started();
    shell.command("ovsdb-server/remove-db", &["D"]).unwrap().unwrap();
    let text = "\"db:D,Root,managers\": no database named D";
    assert_eq!(shell.log.iter().filter(|line| *line == text).count(), 1);
}

#[test]
fn options_of_tls_come_from_columns() {
    let tls = TlsSettings {
        private_key: Some("db:D,SSL,key".into()),
        certificate: Some("/etc/cert.pem".into()),
        ca_cert: Some("db:D,SSL,ca".into()),
        ..TlsSettings::default()
    };
    let mut shell = start(&["punix:/sock"], tls);
    assert_eq!(shell.server.start_status(), StartStatus::Ready);
    let last = |shell: &Shell| shell.tls.last().cloned().unwrap();
    assert_eq!(last(&shell).private_key, None);
    assert_eq!(shell.log, Vec::<String>::new(), "an empty table is no reason to complain");
    let client = shell.connect_to("punix:/sock").unwrap();
    transact(
        &mut shell,
        client,
        r#"{"op":"insert","table":"SSL","row":{"key":""}},
           {"op":"insert","table":"SSL","row":{"key":"/etc/key.pem","ca":"/etc/ca.pem"}}"#,
    );
    let told = last(&shell);
    assert_eq!(told.private_key.as_deref(), Some("/etc/key.pem"));
    assert_eq!(told.certificate.as_deref(), Some("/etc/cert.pem"));
    assert_eq!(told.ca_cert.as_deref(), Some("/etc/ca.pem"));
    let count = shell.tls.len();
    transact(&mut shell, client, r#"{"op":"insert","table":"Root","row":{}}"#);
    assert_eq!(shell.tls.len(), count, "nothing has changed");
    let wrong = TlsSettings { ciphers: Some("db:D,Root,number".into()), ..TlsSettings::default() };
    let shell = start(&[], wrong);
    let text =
        "\"db:D,Root,number\": table \"Root\" column \"number\" is not string or set of strings";
    failed(&shell, text);
}
