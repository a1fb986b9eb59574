//! Active-backup databases and configuration files under a scripted shell.

use crate::shell::{PATH, SCHEMA, Shell, insert, ports, transact};
use weir_server::Config;
use weir_server::event::{CommandId, Event, LinkId};

const SOURCE: &str = "tcp:192.0.2.1:6640";
const OTHER_ID: &str = r#""00000000-0000-0000-0000-000000000008""#;
const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

fn empty_file() -> Vec<u8> {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    file
}

fn start(exclude: Option<&str>, active: bool) -> Shell {
    let config = Config {
        sync_from: Some(SOURCE.to_owned()),
        sync_exclude: exclude.map(str::to_owned),
        sync_active: active,
        ..Config::default()
    };
    Shell::start_with(empty_file(), config)
}

/// The connection that was begun last, now open.
fn open_link(shell: &mut Shell) -> LinkId {
    let (link, target) = shell.connecting.pop().expect("a connection was begun");
    assert_eq!(target, SOURCE);
    shell.event(Event::LinkUp { link });
    shell.settle();
    link
}

fn say(shell: &mut Shell, link: LinkId, message: &str) {
    shell.event(Event::LinkMessage { link, bytes: message.as_bytes().to_vec() });
    shell.settle();
}

/// Answers the request that the server made last.
fn answer(shell: &mut Shell, link: LinkId, result: &str) -> String {
    let sent = std::mem::take(shell.links.get_mut(&link).expect("an open link"));
    let request: serde_json::Value = serde_json::from_slice(&sent).expect("one request");
    let message = format!(r#"{{"id":{},"result":{result},"error":null}}"#, request["id"]);
    say(shell, link, &message);
    request["method"].as_str().unwrap().to_owned()
}

/// The dialogue up to the rows.
fn replicate(shell: &mut Shell, rows: &str) -> LinkId {
    let link = open_link(shell);
    let answers = [OTHER_ID, r#"["Net","_Server"]"#, SCHEMA, rows];
    let asked: Vec<String> = answers.iter().map(|result| answer(shell, link, result)).collect();
    assert_eq!(asked, ["get_server_id", "list_dbs", "get_schema", "monitor"]);
    link
}

fn row(uuid: &str, name: &str) -> String {
    format!(r#""{uuid}":{{"new":{{"name":"{name}","tags":["set",[]],"up":false}}}}"#)
}

fn update(rows: &str) -> String {
    format!(r#"{{"id":null,"method":"update","params":["Net",{{"Port":{{{rows}}}}}]}}"#)
}

fn sync_status(shell: &mut Shell) -> String {
    shell.command("ovsdb-server/sync-status", &[]).unwrap().unwrap()
}

#[test]
fn rows_of_the_source_replace_those_of_the_backup_and_keep_their_uuids() {
    let mut shell = start(None, true);
    let client = shell.connect();
    shell.call(client, &transact(1, &insert("old")));
    shell.command("ovsdb-server/connect-active-ovsdb-server", &[]).unwrap().unwrap();
    replicate(&mut shell, &format!(r#"{{"Port":{{{},{}}}}}"#, row(A, "a"), row(B, "b")));
    assert_eq!(ports(&mut shell), ["a", "b"]);
    let file = String::from_utf8(shell.files[PATH].clone()).unwrap();
    assert!(file.contains(&format!(r#""{A}":{{"name":"a"}}"#)), "{file}");
    let reopened = Shell::start_on(shell.files[PATH].clone());
    assert_eq!(ports(&mut { reopened }), ["a", "b"]);
}

#[test]
fn an_update_of_the_source_is_one_transaction_for_monitors_and_file() {
    let mut shell = start(None, false);
    let watcher = shell.connect();
    let link = replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    let monitor =
        r#"{"id":1,"method":"monitor","params":["Net","m",{"Port":{"columns":["name"]}}]}"#;
    shell.call(watcher, monitor);
    let appends = shell.appends;
    let rows = format!(r#"{},"{A}":{{"old":{{"name":"a"}}}}"#, row(B, "b"));
    say(&mut shell, link, &update(&rows));
    assert_eq!(shell.appends, appends + 1);
    let updates = shell.received(watcher);
    let expected = format!(
        r#"{{"id":null,"method":"update","params":["m",{{"Port":{{"{A}":{{"old":{{"name":"a"}}}},"{B}":{{"new":{{"name":"b"}}}}}}}}]}}"#
    );
    assert_eq!(updates, [expected]);
}

#[test]
fn what_is_equal_already_is_not_touched_when_the_connection_comes_back() {
    let mut shell = start(None, false);
    let rows = format!(r#"{{"Port":{{{}}}}}"#, row(A, "a"));
    let link = replicate(&mut shell, &rows);
    let appends = shell.appends;
    shell.event(Event::LinkDown { link, error: Some("Connection reset by peer".into()) });
    shell.settle();
    shell.advance_ms(1000);
    shell.settle();
    replicate(&mut shell, &rows);
    assert_eq!(shell.appends, appends);
    assert!(sync_status(&mut shell).contains("replicating: "));
}

/// The answer with the first rows, longer than what the core reads itself.
fn long_answer(shell: &mut Shell, link: LinkId) {
    let mut rows: Vec<String> = (0..12_000)
        .map(|n| row(&format!("cccccccc-0000-4000-8000-{n:012}"), &format!("long{n:05}")))
        .collect();
    rows.push(row(A, "a"));
    assert!(rows.iter().map(String::len).sum::<usize>() > 1 << 20);
    for result in [OTHER_ID, r#"["Net","_Server"]"#, SCHEMA] {
        answer(shell, link, result);
        finish_work(shell);
    }
    answer(shell, link, &format!(r#"{{"Port":{{{}}}}}"#, rows.join(",")));
}

fn finish_work(shell: &mut Shell) {
    for _ in 0..100 {
        shell.do_work(0);
        shell.settle();
    }
}

#[test]
fn while_a_helper_takes_the_first_rows_others_are_heard_and_what_comes_behind_waits() {
    let mut shell = start(None, false);
    let client = shell.connect();
    shell.slow_work = true;
    let link = open_link(&mut shell);
    long_answer(&mut shell, link);
    say(&mut shell, link, &update(&format!(r#""{A}":{{"old":{{"name":"a"}}}},{}"#, row(B, "b"))));
    assert_eq!(shell.sent_out.last().map(String::as_str), Some("Mirror"));
    let echo = r#"{"id":5,"method":"echo","params":["x"]}"#;
    assert_eq!(shell.call(client, echo), r#"{"id":5,"result":["x"],"error":null}"#);
    shell.links.get_mut(&link).unwrap().clear();
    say(&mut shell, link, r#"{"id":"e","method":"echo","params":[]}"#);
    let sent = String::from_utf8(shell.links[&link].clone()).unwrap();
    assert!(sent.contains(r#""id":"e""#), "the source is answered: {sent}");
    assert!(!sync_status(&mut shell).contains("replicating"));
    finish_work(&mut shell);
    shell.slow_work = false;
    assert!(sync_status(&mut shell).contains("replicating"));
    let restarted = Shell::start_on(shell.after_kill(PATH));
    for mut shell in [shell, restarted] {
        let names = ports(&mut shell);
        assert_eq!((names.len(), names[0].as_str()), (12_001, "b"));
    }
}

#[test]
fn clients_are_answered_while_a_backup_works_off_what_its_source_has_said() {
    const MANY: usize = 2000;
    let mut shell = start(None, false);
    // Where steps are as short as can be, each message and each client would wait for a helper.
    shell.server.set_step_cost_max(100_000);
    let link = replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    let client = shell.connect();
    shell.slow_work = true;
    say(&mut shell, link, &update(&row(B, &"b".repeat(1 << 20))));
    for n in 0..MANY {
        let uuid = format!("dddddddd-0000-4000-8000-{n:012}");
        let update = update(&row(&uuid, &format!("{n}{}", "x".repeat(400))));
        shell.event(Event::LinkMessage { link, bytes: update.into_bytes() });
    }
    shell.settle();
    assert_eq!(shell.work.len(), 1);
    shell.do_work(0);
    let (mut counts, mut is_done) = (Vec::new(), false);
    while !is_done {
        is_done = !counts.is_empty() && shell.server.next_wakeup_us() != Some(0);
        let select = r#"{"op":"select","table":"Port","where":[],"columns":["_uuid"]}"#;
        shell.send(client, &transact(1, select));
        shell.server.end_round(shell.now);
        shell.pump();
        let reply = shell.received(client).pop().expect("it is answered in this round");
        let reply: serde_json::Value = serde_json::from_str(&reply).expect("JSON");
        counts.push(reply["result"][0]["rows"].as_array().expect("rows").len());
        // What was appended is answered in the same round, and the source is not heard again in it.
        let appends = shell.appends;
        shell.short_round();
        assert_eq!(shell.appends, appends);
    }
    assert!(counts.len() > 3 && counts[0] > 100, "{counts:?}");
    assert_eq!(counts.last(), Some(&(MANY + 2)));
}

#[test]
fn rows_of_a_connection_that_has_ended_are_taken_back() {
    let mut shell = start(None, false);
    shell.slow_work = true;
    let link = open_link(&mut shell);
    long_answer(&mut shell, link);
    shell.event(Event::LinkDown { link, error: Some("Connection reset by peer".into()) });
    shell.settle();
    finish_work(&mut shell);
    shell.slow_work = false;
    assert_eq!(ports(&mut shell), Vec::<String>::new());
    shell.advance_ms(1000);
    shell.settle();
    replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    assert_eq!(ports(&mut shell), ["a"]);
}

#[test]
fn rows_that_change_nothing_are_not_taken_back() {
    let mut shell = start(None, false);
    // Whatever the source says is for helpers.
    shell.server.set_step_cost_max(0);
    shell.slow_work = true;
    let link = replicate(&mut shell, r#"{"Port":{}}"#);
    assert_eq!(shell.work.len(), 1, "the rows are with a helper");
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    finish_work(&mut shell);
    shell.slow_work = false;
    shell.pass_ms(10_000);
    replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    assert_eq!(ports(&mut shell), ["a"]);
}

#[test]
fn a_disk_that_refuses_the_first_rows_has_them_asked_for_again() {
    let mut shell = start(None, false);
    let link = open_link(&mut shell);
    shell.disk_error = Some("No space left on device");
    long_answer(&mut shell, link);
    shell.disk_error = None;
    assert_eq!(ports(&mut shell), Vec::<String>::new());
    shell.advance_ms(10_000);
    shell.settle();
    replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    assert_eq!(ports(&mut shell), ["a"]);
}

#[test]
fn a_backup_is_read_only_until_it_is_told_otherwise() {
    let mut shell = start(None, false);
    let client = shell.connect();
    replicate(&mut shell, "{}");
    let reply = shell.call(client, &transact(1, &insert("p")));
    let refusal = "insert operation not allowed when database server is in read only mode";
    assert!(reply.contains(refusal), "{reply}");
    let lock = r#"{"id":2,"method":"lock","params":["l"]}"#;
    let reply = shell.call(client, lock);
    assert!(reply.contains("lock and unlock methods not allowed, DB server is read only."));
    // Nor can it say that it has all that the active server has acknowledged.
    let sync = r#"{"id":4,"method":"weir_sync","params":["Net",1000]}"#;
    assert!(shell.call(client, sync).contains("not supported"));
    shell.command("ovsdb-server/disconnect-active-ovsdb-server", &[]).unwrap().unwrap();
    assert!(shell.links.is_empty());
    assert!(shell.call(client, sync).contains(r#""result":{}"#));
    assert!(shell.call(client, lock).contains(r#"{"locked":true}"#));
    shell.call(client, &transact(3, &insert("p")));
    assert_eq!(ports(&mut shell), ["p"]);
    assert_eq!(sync_status(&mut shell), "state: active\ndatabase: Net\n\n");
}

#[test]
fn excluded_tables_are_left_alone() {
    let mut shell = start(Some("Net:Port,Other:Port"), true);
    let client = shell.connect();
    shell.call(client, &transact(1, &insert("own")));
    shell.command("ovsdb-server/connect-active-ovsdb-server", &[]).unwrap().unwrap();
    let link = open_link(&mut shell);
    for result in [OTHER_ID, r#"["Net"]"#, SCHEMA] {
        answer(&mut shell, link, result);
    }
    let monitor = String::from_utf8(shell.links[&link].clone()).unwrap();
    assert!(monitor.contains(r#""params":["Net","Net",{}]"#), "{monitor}");
    answer(&mut shell, link, "{}");
    assert_eq!(ports(&mut shell), ["own"]);
    let expected =
        format!("state: backup\ndatabase: Net\nreplicating: {SOURCE}\nexclude: Net:Port\n");
    assert_eq!(sync_status(&mut shell), expected);
    let list = shell.command("ovsdb-server/get-sync-exclude-tables", &[]).unwrap();
    assert_eq!(list, Ok("Net:Port,Other:Port".into()));
    let reply = shell.command("ovsdb-server/set-sync-exclude-tables", &["Port"]).unwrap();
    assert_eq!(reply, Ok("Can't parse excluded table: Port".into()));
}

#[test]
fn nobody_follows_himself_and_failures_make_the_database_active() {
    let mut shell = start(None, false);
    let client = shell.connect();
    let reply = shell.call(client, r#"{"id":1,"method":"get_server_id","params":[]}"#);
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    let link = open_link(&mut shell);
    answer(&mut shell, link, &reply["result"].to_string());
    let said =
        "unexpected ovsdb error: Server ID check failed: Net: Self replicating is not allowed";
    assert!(shell.log.iter().any(|line| line == said), "{:?}", shell.log);
    assert!(shell.links.is_empty());
    shell.call(client, &transact(2, &insert("p")));
    assert_eq!(ports(&mut shell), ["p"]);
}

#[test]
fn rows_that_cannot_be_written_are_asked_for_again() {
    let mut shell = start(None, false);
    let link = replicate(&mut shell, "{}");
    shell.disk_error = Some("No space left on device");
    say(&mut shell, link, &update(&row(A, "a")));
    assert_eq!(ports(&mut shell), Vec::<String>::new());
    assert!(shell.links.is_empty());
    shell.disk_error = None;
    shell.advance_ms(10_000);
    shell.settle();
    replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    assert_eq!(ports(&mut shell), ["a"]);
}

#[test]
fn the_active_server_is_set_before_it_is_connected_to() {
    let mut shell = Shell::start();
    let connect = "ovsdb-server/connect-active-ovsdb-server";
    let reply = shell.command(connect, &[]).unwrap();
    assert_eq!(reply, Ok("Unable to connect: active server is not specified.\n".into()));
    assert_eq!(sync_status(&mut shell), "state: active\n");
    let get = "ovsdb-server/get-active-ovsdb-server";
    assert_eq!(shell.command(get, &[]).unwrap(), Ok(String::new()));
    shell.command("ovsdb-server/set-active-ovsdb-server", &[SOURCE]).unwrap().unwrap();
    assert_eq!(shell.command(get, &[]).unwrap(), Ok(SOURCE.into()));
    assert!(shell.connecting.is_empty());
    shell.command(connect, &[]).unwrap().unwrap();
    let status = sync_status(&mut shell);
    assert_eq!(status, format!("state: backup\ndatabase: Net\nconnecting: {SOURCE}\n"));
    assert_eq!(shell.connecting.len(), 1);
    for (command, argument) in [
        ("ovsdb-server/set-active-ovsdb-server-probe-interval", "x"),
        ("ovsdb-server/set-relay-source-probe-interval", "5.5"),
    ] {
        let reply = shell.command(command, &[argument]).unwrap();
        assert_eq!(reply, Err("Invalid probe interval, integer value expected".into()));
        assert_eq!(shell.command(command, &["7000"]).unwrap(), Ok(String::new()));
    }
}

#[test]
fn what_admin_commands_configured_survives_a_crash() {
    let mut shell = Shell::start();
    shell.command("ovsdb-server/add-remote", &["punix:/more"]).unwrap().unwrap();
    shell.command("ovsdb-server/set-sync-exclude-tables", &["Net:Port"]).unwrap().unwrap();
    shell.command("ovsdb-server/set-active-ovsdb-server", &[SOURCE]).unwrap().unwrap();
    shell.command("ovsdb-server/connect-active-ovsdb-server", &[]).unwrap().unwrap();
    let status = sync_status(&mut shell);
    let config = Config { saved: shell.saved.clone(), ..Config::default() };
    assert!(config.saved.is_some());
    let mut shell = Shell::start_with(shell.files[PATH].clone(), config);
    assert_eq!(shell.listening, ["punix:/more", "punix:/sock"]);
    assert_eq!(sync_status(&mut shell), status);
    let list = shell.command("ovsdb-server/get-sync-exclude-tables", &[]).unwrap();
    assert_eq!(list, Ok("Net:Port".into()));
}

const CONFIG: &str = "/etc/config.json";

/// A server of a configuration file, with an empty database at [`PATH`].
fn configured(config: &str) -> Shell {
    let files = [(CONFIG.to_owned(), config.as_bytes().to_vec())];
    let config = Config { config_file: Some(CONFIG.to_owned()), ..Config::default() };
    Shell::start_on_files(empty_file(), files.into(), config)
}

fn reload(shell: &mut Shell, config: &str) -> Result<String, String> {
    shell.files.insert(CONFIG.to_owned(), config.as_bytes().to_vec());
    shell.log.clear();
    shell.command("ovsdb-server/reload", &[]).expect("an answer")
}

const FAILED: &str = "Configuration failed.  See the log file for details.";

/// A configuration of one listener and the database at [`PATH`], configured so.
fn of(database: &str) -> String {
    format!(r#"{{"remotes":{{"punix:/a":{{}}}},"databases":{{"{PATH}":{database}}}}}"#)
}

fn backup_of(backup: bool) -> String {
    of(&format!(
        r#"{{"service-model":"active-backup","backup":{backup},"source":{{"{SOURCE}":null}}}}"#
    ))
}

#[test]
fn a_configuration_file_says_what_is_served() {
    let mut shell = configured(&of("null"));
    assert_eq!(shell.listening, ["punix:/a"]);
    let loading = format!("loading configuration from '{CONFIG}'");
    assert!(shell.log.contains(&loading), "{:?}", shell.log);
    let client = shell.connect();
    shell.call(client, &transact(1, &insert("p")));
    // Nothing changes, nobody is disturbed.
    assert_eq!(reload(&mut shell, &of(r#"{"service-model":"standalone"}"#)), Ok(String::new()));
    assert_eq!(shell.disconnected, []);
    let other = r#"{"remotes":{"punix:/b":{"read-only":true}},"databases":{}}"#;
    assert_eq!(reload(&mut shell, other), Ok(String::new()));
    assert_eq!(shell.listening, ["punix:/b"]);
    assert_eq!(shell.disconnected, [client]);
    let removed = "disconnecting (database Net removed from configuration)";
    assert!(shell.log.iter().any(|line| line.contains(removed)), "{:?}", shell.log);
    assert_eq!(shell.command("ovsdb-server/list-dbs", &[]).unwrap(), Ok("_Server\n".into()));
    assert_eq!(reload(&mut shell, &of("{}")), Ok(String::new()));
    assert_eq!(ports(&mut shell), ["p"]);
}

#[test]
fn a_configuration_that_cannot_be_read_changes_nothing() {
    let mut shell = configured(&of("{}"));
    for (config, said) in [
        (
            r#"{"remotes":{},x}"#,
            "config: reading JSON failed (line 0, column 15, byte 15: invalid keyword 'x')",
        ),
        (
            r#"{"databases":{"D":{"service-model":"x"}}}"#,
            "Unrecognized database service model: 'x'",
        ),
    ] {
        assert_eq!(reload(&mut shell, config), Err(FAILED.into()));
        assert!(shell.log.iter().any(|line| line == said), "{:?}", shell.log);
        let last = format!("failed to load configuration from {CONFIG}");
        assert_eq!(shell.log.last(), Some(&last));
        assert_eq!(shell.listening, ["punix:/a"]);
    }
    shell.files.remove(CONFIG);
    assert_eq!(shell.command("ovsdb-server/reload", &[]), Some(Err(FAILED.into())));
    assert_eq!(ports(&mut shell), Vec::<String>::new());
}

#[test]
fn what_can_be_done_of_a_configuration_is_done() {
    let mut shell = configured(&of("{}"));
    let config = format!(
        r#"{{"remotes":{{"punix:/b":null,"db:Other,T,c":null}},"databases":{{"{PATH}":{{}},
            "/missing.db":{{}},"_Sb":{{"service-model":"relay","source":{{"{SOURCE}":null}}}}}}}}"#
    );
    assert_eq!(reload(&mut shell, &config), Err(FAILED.into()));
    assert_eq!(shell.listening, ["punix:/b"]);
    let log = shell.log.join("\n");
    for said in [
        "failed to open database '/missing.db': ",
        "failed to open database '_Sb': ovsdb error: _Sb: names beginning with \"_\" are reserved",
        "failed to configure databases",
        "failed to configure remotes: \"db:Other,T,c\": no database named Other\n",
    ] {
        assert!(log.contains(said), "{said} in {log}");
    }
    let clustered = of(r#"{"service-model":"clustered"}"#);
    assert_eq!(reload(&mut shell, &clustered), Err(FAILED.into()));
    let said = format!(
        "failed to open database '{PATH}': ovsdb error: {PATH}: database is standalone and not \
         clustered"
    );
    assert!(shell.log.contains(&said), "{:?}", shell.log);
    assert_eq!(shell.command("ovsdb-server/list-dbs", &[]).unwrap(), Ok("_Server\n".into()));
}

#[test]
fn a_database_turns_into_a_backup_and_back_without_a_word_to_clients() {
    let mut shell = configured(&of("{}"));
    let client = shell.connect();
    shell.call(client, &transact(1, &insert("p")));
    assert_eq!(reload(&mut shell, &backup_of(true)), Ok(String::new()));
    shell.settle();
    assert!(shell.call(client, &transact(2, &insert("q"))).contains("read only mode"));
    let link = replicate(&mut shell, &format!(r#"{{"Port":{{{}}}}}"#, row(A, "a")));
    assert_eq!(ports(&mut shell), ["a"]);
    // The same once more: the connection goes on.
    assert_eq!(reload(&mut shell, &backup_of(true)), Ok(String::new()));
    assert!(shell.links.contains_key(&link) && shell.connecting.is_empty());
    assert_eq!(reload(&mut shell, &backup_of(false)), Ok(String::new()));
    assert!(shell.links.is_empty());
    shell.call(client, &transact(3, &insert("q")));
    let standalone = of(r#"{"service-model":"standalone"}"#);
    assert_eq!(reload(&mut shell, &standalone), Ok(String::new()));
    assert_eq!(sync_status(&mut shell), "state: active\n");
    assert_eq!(ports(&mut shell), ["a", "q"]);
    assert_eq!(shell.disconnected, []);
    // A backup of which the file says nothing more is opened anew, as by the reference.
    reload(&mut shell, &backup_of(false)).unwrap();
    assert_eq!(reload(&mut shell, &of("{}")), Ok(String::new()));
    let reopened = "disconnecting (service model changed for database Net)";
    assert!(shell.log.iter().any(|line| line.contains(reopened)), "{:?}", shell.log);
    assert_eq!(ports(&mut shell), ["a", "q"]);
}

#[test]
fn admin_commands_leave_the_configuration_to_the_file() {
    let mut shell = configured(&of("{}"));
    let expected = format!("Update the {CONFIG} and use ovsdb-server/reload instead");
    for (command, args) in [
        ("add-db", &["/x.db"][..]),
        ("add-remote", &["punix:/c"]),
        ("connect-active-ovsdb-server", &[]),
        ("disconnect-active-ovsdb-server", &[]),
        ("remove-db", &["Net"]),
        ("remove-remote", &["punix:/a"]),
        ("set-active-ovsdb-server", &[SOURCE]),
        ("set-active-ovsdb-server-probe-interval", &["5000"]),
        ("set-relay-source-probe-interval", &["5000"]),
        ("set-sync-exclude-tables", &["Net:Port"]),
    ] {
        let reply = shell.command(&format!("ovsdb-server/{command}"), args);
        assert_eq!(reply, Some(Err(expected.clone())), "{command}");
    }
    let mut without = Shell::start();
    let reply = without.command("ovsdb-server/reload", &[]);
    assert_eq!(reply, Some(Err("Configuration file was not specified on command line".into())));
}

#[test]
fn a_conversion_that_waits_is_refused_when_its_database_becomes_a_backup() {
    let mut shell = Shell::start();
    let asking = shell.connect();
    shell.slow_helper = true;
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    let schema = SCHEMA.replace("1.0.0", "2.0.0");
    for id in 1..3 {
        let ask = format!(r#"{{"id":{id},"method":"convert","params":["Net",{schema}]}}"#);
        shell.send(asking, &ask);
    }
    shell.settle();
    shell.command("ovsdb-server/set-active-ovsdb-server", &["tcp:192.0.2.1:6640"]);
    shell.command("ovsdb-server/connect-active-ovsdb-server", &[]);
    assert_eq!(shell.received(asking), Vec::<String>::new());
    shell.helper_is_done();
    shell.settle();
    let refused = shell.received(asking);
    assert_eq!(refused.len(), 2, "{refused:?}");
    let text = "conversion is not allowed for read-only database Net";
    assert!(refused.iter().all(|reply| reply.contains(text)), "{refused:?}");
    let file = String::from_utf8(shell.after_kill(PATH)).unwrap();
    assert!(!file.contains("2.0.0"));
}

#[test]
fn a_conversion_is_finished_when_its_database_becomes_a_backup_before_the_last_step() {
    let mut shell = Shell::start();
    let asking = shell.connect();
    shell.call(asking, r#"{"id":9,"method":"set_db_change_aware","params":[true]}"#);
    shell.slow_helper = true;
    let schema = SCHEMA.replace("1.0.0", "2.0.0");
    shell.send(asking, &format!(r#"{{"id":1,"method":"convert","params":["Net",{schema}]}}"#));
    shell.settle();
    shell.command("ovsdb-server/set-active-ovsdb-server", &["tcp:192.0.2.1:6640"]);
    // The helper is done, and the command comes before the answer to the rename.
    shell.helper_is_done();
    let (id, name) = (CommandId(7), "ovsdb-server/connect-active-ovsdb-server".to_owned());
    shell.event(Event::Command { id, name, args: vec![] });
    shell.settle();
    assert_eq!(shell.received(asking), [r#"{"id":1,"result":{},"error":null}"#]);
    let file = String::from_utf8(shell.after_kill(PATH)).unwrap();
    assert!(file.contains("2.0.0"));
    let refused = shell.call(asking, &transact(2, &insert("p")));
    assert!(refused.contains("not allowed"), "{refused}");
}

#[test]
fn who_no_longer_wants_to_know_of_databases_is_still_answered() {
    let net = format!(r#"{{"remotes":{{"punix:/sock":null}},"databases":{{"{PATH}":null}}}}"#);
    let mut shell = configured(&net);
    let client = shell.connect();
    let aware = |is| format!(r#"{{"id":1,"method":"set_db_change_aware","params":[{is}]}}"#);
    shell.call(client, &aware(true));
    shell.server.set_step_cost_max(0);
    shell.slow_work = true;
    shell.send(client, &transact(2, &insert("a")));
    shell.settle();
    let none = r#"{"remotes":{"punix:/sock":null},"databases":{}}"#;
    assert_eq!(reload(&mut shell, none), Ok(String::new()));
    shell.call(client, &aware(false));
    finish_work(&mut shell);
    assert_eq!(shell.received(client), [r#"{"id":2,"error":"canceled"}"#]);
}
