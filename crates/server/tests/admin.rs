//! Admin commands of the core: what they answer and change.

use crate::shell::{PATH, Shell, insert, transact};
use weir_server::event::{Event, HostStatus};

fn ok(text: &str) -> Option<Result<String, String>> {
    Some(Ok(text.to_owned()))
}

fn error(text: &str) -> Option<Result<String, String>> {
    Some(Err(text.to_owned()))
}

#[test]
fn changes_of_chosen_tables_are_logged() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let set = "ovsdb-server/tlog-set";
    shell.call(client, &transact(1, &insert("quiet")));
    assert_eq!(shell.command(set, &["Net:Port", "on"]), ok(""));
    shell.call(client, &transact(2, &insert("p 1")));
    let update = r#"{"op":"update","table":"Port","where":[["name","==","p 1"]],"row":{"tags":["set",["a","b"]]}}"#;
    shell.call(client, &transact(3, update));
    let delete = r#"{"op":"delete","table":"Port","where":[["name","==","p 1"]]}"#;
    shell.call(client, &transact(4, delete));
    assert_eq!(shell.command(set, &["Net:Port", "off"]), ok(""));
    shell.call(client, &transact(5, &insert("quiet again")));
    let lines: Vec<&String> = shell.log.iter().filter(|line| line.starts_with("table:")).collect();
    let starts = ["inserted", "updated", "deleted"].map(|op| format!("table:Port,op:{op},_uuid:"));
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(&start), "{line}");
    }
    assert!(lines[0].ends_with(",name:\"p 1\",tags:[],up:false"), "{lines:?}");
    assert!(lines[1].ends_with(",name:\"p 1\",tags:[a, b],up:false"), "{lines:?}");
}

#[test]
fn table_logs_are_listed_and_named_carefully() {
    let mut shell = Shell::start();
    let set = "ovsdb-server/tlog-set";
    assert_eq!(shell.command(set, &["Net:Port", "maybe"]), error("invalid command argument"));
    assert_eq!(shell.command(set, &["Net", "on"]), error("invalid DB:TABLE argument"));
    assert_eq!(shell.command(set, &["Net:Port:x", "on"]), error("invalid DB:TABLE argument"));
    assert_eq!(shell.command(set, &["Old:Port", "on"]), error("no such database"));
    assert_eq!(shell.command(set, &["Net:Old", "on"]), error("no such table"));
    shell.command(set, &["Net:Port", "on"]);
    let list = "database        table                       logging\n\
                --------        -----                       -------\n\
                Net              \n                Port                        ON\n\
                _Server          \n                Database                    OFF\n";
    assert_eq!(shell.command("ovsdb-server/tlog-list", &[]), ok(list));
}

#[test]
fn without_conditions_clients_fall_back_to_plain_monitors() {
    let mut shell = Shell::start();
    let before = shell.connect();
    assert_eq!(shell.command("ovsdb-server/disable-monitor-cond", &[]), ok(""));
    assert_eq!(shell.disconnected, [before]);
    let client = shell.connect();
    let monitor = |method: &str, rest: &str| {
        format!(
            r#"{{"id":1,"method":"{method}","params":["Net","{method}",{{"Port":{{}}}}{rest}]}}"#
        )
    };
    let unknown = r#"{"id":1,"error":"unknown method"}"#;
    assert_eq!(shell.call(client, &monitor("monitor_cond", "")), unknown);
    let since = monitor("monitor_cond_since", r#","00000000-0000-0000-0000-000000000000""#);
    assert_eq!(shell.call(client, &since), unknown);
    let plain = shell.call(client, &monitor("monitor", ""));
    assert_eq!(plain, r#"{"id":1,"result":{},"error":null}"#);
}

#[test]
fn whole_columns_are_written_until_differences_are_enabled() {
    let mut shell = Shell::start_in(weir_server::FileForms {
        whole_columns: true,
        ..weir_server::FileForms::default()
    });
    let client = shell.connect();
    let tags = r#"{"op":"update","table":"Port","where":[],"row":{"tags":["set",["a","b"]]}}"#;
    let more = r#"{"op":"mutate","table":"Port","where":[],"mutations":[["tags","insert","c"]]}"#;
    shell.call(client, &transact(1, &insert("p1")));
    shell.call(client, &transact(2, tags));
    shell.call(client, &transact(3, more));
    let file = |shell: &Shell| String::from_utf8(shell.after_kill(PATH)).unwrap();
    assert!(!file(&shell).contains("_is_diff"), "{}", file(&shell));
    assert!(file(&shell).ends_with("{\"tags\":[\"set\",[\"a\",\"b\",\"c\"]]}}}\n"));
    assert_eq!(shell.command("ovsdb/file/column-diff-enable", &[]), ok(""));
    shell.call(client, &transact(4, &more.replace("\"c\"", "\"d\"")));
    assert!(file(&shell).contains("_is_diff"));
    assert!(file(&shell).ends_with("{\"tags\":\"d\"}}}\n"), "{}", file(&shell));
}

#[test]
fn odds_and_ends() {
    let mut shell = Shell::start();
    let unsupported = "performance counter is not supported on this platform\n";
    assert_eq!(shell.command("ovsdb-server/perf-counters-show", &[]), ok(unsupported));
    assert_eq!(shell.command("ovsdb-server/perf-counters-clear", &[]), ok(""));
    let status = "ovsdb-server/get-db-storage-status";
    assert_eq!(shell.command(status, &["Net"]), ok("status: ok"));
    assert_eq!(shell.command(status, &["Old"]), error("Failed to find the database."));
    // Two rows of `_Server`: `_uuid` and `_version` count, empty columns do not.
    assert_eq!(
        shell.command("memory/show", &[]),
        ok("atoms:14 cells:20 monitors:0 n-weak-refs:0\n")
    );
}

#[test]
fn memory_show_has_a_line_of_what_is_not_zero() {
    let mut shell = Shell::start();
    let shown = |shell: &mut Shell| match shell.command("memory/show", &[]) {
        Some(Ok(line)) => line,
        other => panic!("{other:?}"),
    };
    let before = shown(&mut shell);
    assert!(!before.contains("json-caches") && !before.contains("backlog"), "{before}");
    assert!(before.ends_with('\n'), "{before}");
    for name in ["a", "b"] {
        let client = shell.connect();
        let monitor = format!(
            r#"{{"id":1,"method":"monitor_cond","params":["Net","{name}",{{"Port":{{}}}}]}}"#
        );
        shell.call(client, &monitor);
    }
    // Equal ones share what they began with.
    assert!(shown(&mut shell).contains(" json-caches:1 monitors:1 "));
    // Monitors of the same columns count as one, whatever their conditions and protocol.
    let client = shell.connect();
    for (method, request) in [
        ("monitor_cond", r#"{"where":[["name","==","x"]]}"#),
        ("monitor_cond_since", r#"{"where":[["name","==","y"]]}"#),
        ("monitor", "{}"),
    ] {
        let monitor = format!(
            r#"{{"id":1,"method":"{method}","params":["Net","{method}",{{"Port":{request}}}]}}"#
        );
        shell.call(client, &monitor);
    }
    shell.event(Event::Backlog { bytes: 17, peers: 0 });
    let shown = shown(&mut shell);
    assert!(shown.contains(" monitors:1 n-weak-refs:0 sessions:3"), "{shown}");
    let keys: Vec<&str> =
        shown.split_whitespace().map(|word| word.split_once(':').unwrap().0).collect();
    assert!(keys.is_sorted(), "{shown}");
    assert!(shown.contains(" backlog:17 "), "{shown}");
}

/// A client's select over many rows runs with a helper, another one waits, one does not read.
#[test]
fn weir_status_tells_who_and_what_is_slow() {
    let mut shell = Shell::start();
    let (writer, waiter, slow) = (shell.connect(), shell.connect(), shell.connect());
    let rows: Vec<String> = (0..300).map(|i| insert(&format!("p{i}"))).collect();
    shell.call(writer, &transact(1, &rows.join(",")));
    let monitor = r#"{"id":1,"method":"monitor_cond","params":["Net","m",{"Port":{}}]}"#;
    shell.call(slow, monitor);
    let wait = r#"{"op":"wait","table":"Port","timeout":60000,"where":[["name","==","x"]],"columns":["name"],"until":"==","rows":[{"name":"x"}]}"#;
    shell.send(waiter, &transact(2, wait));
    shell.settle();
    shell.server.set_step_cost_max(500);
    shell.slow_work = true;
    shell.send(writer, &transact(3, r#"{"op":"select","table":"Port","where":[]}"#));
    shell.settle();
    let queued = [(slow, 4096)].into_iter().collect();
    let told =
        HostStatus { resident_bytes: 7 << 20, stall_us: 1234, queued, ..HostStatus::default() };
    shell.event(Event::HostStatus(Box::new(told)));
    let status = match shell.command("weir/status", &[]) {
        Some(Ok(text)) => weir_json::Value::parse(text.as_bytes()).unwrap(),
        other => panic!("{other:?}"),
    };
    let at = |path: &str| {
        let step = |value: &weir_json::Value, key: &str| match key.parse::<usize>() {
            Ok(place) => value.as_array()?.get(place).cloned(),
            Err(_) => value.get(key).cloned(),
        };
        let found = path.split('.').try_fold(status.clone(), |value, key| step(&value, key));
        found.unwrap_or_else(|| panic!("{path}: {status}")).to_string()
    };
    assert_eq!(at("databases.1.name"), r#""Net""#);
    assert_eq!(at("databases.1.rows"), "300");
    assert_eq!(at("databases.1.waiting"), "1");
    assert_eq!(at("databases.1.monitors"), "1");
    assert_eq!(at("databases.1.file.path"), format!("\"{PATH}\""));
    assert_eq!(at("databases.1.file.fault"), "null");
    assert_eq!(at("sessions_total"), "3");
    // Who is furthest behind comes first.
    assert_eq!(at("sessions.0.queued_bytes"), "4096");
    assert_eq!(at("sessions.0.monitors"), "1");
    assert_eq!(at("sessions.1.held"), "true");
    assert_eq!(at("work.0.what"), r#""read""#);
    assert_eq!(at("work.0.database"), r#""Net""#);
    assert_eq!(at("process.resident_bytes"), (7 << 20).to_string());
    assert_eq!(at("process.stall_us"), "1234");
    assert_eq!(at("process.queued_bytes"), "4096");
}
