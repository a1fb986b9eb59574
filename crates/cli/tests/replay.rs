//! `--record` and `--replay`: a run that is had again from what came in, without its clients, ends
//! with the same database file and the same log.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Running, Scratch, WEIR, err, eventually, listens, out};
use serde_json::{Value, json};
use weir_testkit::client::Client;

/// Both runs have these arguments.
const ARGS: [&str; 8] = [
    "--remote=punix:s.sock",
    "--remote=db:Net,Manager,targets",
    "--unixctl=ctl",
    "--no-chdir",
    "-vconsole:off",
    "-vjsonrpc:file:dbg",
    "--log-file=server.log",
    "net.db",
];

/// `Port` has one more column in `more`.
fn schema(more: &str) -> String {
    let scalar = |kind: &str| format!(r#"{{"type":"{kind}"}}"#);
    let (text, number) = (scalar("string"), scalar("integer"));
    format!(
        r#"{{"name":"Net","version":"1.0.0","tables":{{
            "Port":{{"columns":{{"name":{text},"n":{number}{more}}},"indexes":[["name"]]}},
            "Manager":{{"columns":{{"targets":{{"type":{{"key":"string","min":0,"max":9}}}}}}}}}}}}"#
    )
}

fn create(scratch: &Scratch) {
    scratch.write("net.ovsschema", &schema(""));
    let created = scratch.run(WEIR, &["tool", "create", "original.db", "net.ovsschema"]);
    assert!(created.status.success(), "{}", err(&created));
    begin_anew(scratch);
}

/// The database is as it was, and nothing is left of an earlier run.
fn begin_anew(scratch: &Scratch) {
    fs::copy(scratch.path("original.db"), scratch.path("net.db")).expect("a copy");
    let _ = fs::remove_file(scratch.path("server.log"));
}

fn record(scratch: &Scratch) -> Running {
    fs::create_dir_all(scratch.path("rec")).expect("a folder");
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    let server = Running::start(command.args(ARGS).arg("--record=rec"));
    eventually("the server listens", || listens(&scratch.path("ctl")));
    server
}

fn replay(scratch: &Scratch) -> Output {
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    let replayed = command.args(ARGS).arg("--replay=rec").output().expect("a replay");
    assert!(!scratch.path("s.sock").exists() && !scratch.path("ctl").exists(), "it has sockets");
    replayed
}

/// The log without times.
fn log(scratch: &Scratch) -> Vec<String> {
    let log = fs::read_to_string(scratch.path("server.log")).expect("a log");
    log.lines().map(|line| line.split_once('|').expect(line).1.to_owned()).collect()
}

fn admin(scratch: &Scratch, args: &[&str]) -> Output {
    let ctl = scratch.text("ctl");
    scratch.run(WEIR, &[&["appctl", "-t", &ctl], args].concat())
}

fn client(scratch: &Scratch) -> Client {
    Client::connect(&scratch.path("s.sock")).expect("a connection")
}

fn insert(name: &str, n: u64) -> Value {
    json!({"op": "insert", "table": "Port", "row": {"name": name, "n": n}})
}

fn monitor(client: &mut Client, method: &str) {
    let mut params = vec![json!("Net"), json!("m"), json!({"Port": [{"columns": ["name", "n"]}]})];
    if method == "monitor_cond_since" {
        params.push(json!("00000000-0000-0000-0000-000000000000"));
    }
    let reply = client.request(method, &Value::Array(params)).expect("a reply");
    assert!(reply["error"].is_null(), "{reply}");
}

/// Runs, and runs again from the recording; what the two runs wrote is compared.
fn compare(scratch: &Scratch, mut server: Running) {
    assert!(server.wait().success());
    let first = (fs::read(scratch.path("net.db")).expect("a database"), log(scratch));
    begin_anew(scratch);
    let replayed = replay(scratch);
    assert_eq!((err(&replayed).as_str(), replayed.status.code()), ("", Some(0)));
    let second = (fs::read(scratch.path("net.db")).expect("a database"), log(scratch));
    assert_eq!(first.1, second.1);
    assert!(first.0 == second.0, "{}", String::from_utf8_lossy(&second.0));
}

#[test]
fn clients_that_come_write_watch_and_leave() {
    let scratch = Scratch::new();
    create(&scratch);
    let server = record(&scratch);
    let mut watchers: Vec<Client> = (0..6).map(|_| client(&scratch)).collect();
    for (watcher, method) in
        watchers.iter_mut().zip(["monitor", "monitor_cond", "monitor_cond_since"].iter().cycle())
    {
        monitor(watcher, method);
    }
    for round in 0..40 {
        let mut writer = client(&scratch);
        let comment = json!({"op": "comment", "comment": format!("round {round}")});
        let durable = json!({"op": "commit", "durable": round % 8 == 0});
        let operations = [insert(&format!("p{round}"), round), comment, durable];
        writer.transact("Net", &operations).expect("an insertion");
        // The name is there: an error.
        writer.transact("Net", &[insert("p0", 1)]).expect("an error among the results");
        if round % 10 == 5 {
            writer.send_raw(b"{\"id\":1,\"method\":").expect("half a message");
        }
        if round % 10 == 7 {
            writer.send_raw(b"no JSON").expect("noise");
            let _ = writer.until_closed();
        }
    }
    let mut waiting = client(&scratch);
    let wait = json!({"op": "wait", "table": "Port", "timeout": 60, "columns": ["n"],
        "where": [["name", "==", "p3"]], "until": "==", "rows": [{"n": 4000}]});
    let timed_out = waiting.transact("Net", std::slice::from_ref(&wait)).expect("its end");
    assert_eq!(timed_out[0]["error"], "timed out");
    let mut patient = wait;
    patient["timeout"] = json!(60_000);
    let mut params = vec![json!("Net"), patient];
    params.push(json!({"op": "delete", "table": "Port", "where": [["name", "==", "p9"]]}));
    let id = waiting.ask("transact", &Value::Array(params)).expect("sending");
    waiting.barrier().expect("an answer");
    let change = json!({"op": "update", "table": "Port", "where": [["name", "==", "p3"]],
        "row": {"n": 4000}});
    watchers[0].transact("Net", &[change]).expect("an update");
    waiting.reply(id).expect("the wait is over");
    assert!(waiting.request("lock", &json!(["l"])).expect("a reply")["error"].is_null());
    for watcher in &mut watchers {
        watcher.barrier().expect("an answer");
    }
    assert!(!watchers[5].take_notifications().is_empty());
    drop(watchers);
    assert!(admin(&scratch, &["exit"]).status.success());
    compare(&scratch, server);
    let lines = log(&scratch);
    assert!(lines.iter().any(|line| line.contains("received request, method=\"transact\"")));
}

#[test]
fn long_work_commands_compaction_and_conversion() {
    let scratch = Scratch::new();
    create(&scratch);
    let server = record(&scratch);
    let (mut writer, mut watcher) = (client(&scratch), client(&scratch));
    monitor(&mut watcher, "monitor_cond_since");
    // More than a step of the core may take: helpers do it, while others go on.
    let many: Vec<Value> =
        (0..12_000).map(|n| insert(&format!("port-{n:06}-{n:040}"), n)).collect();
    let mut params = vec![json!("Net")];
    params.extend(many);
    let request = json!({"id": "big", "method": "transact", "params": params}).to_string();
    assert!(request.len() > 1 << 20);
    writer.send_raw(request.as_bytes()).expect("sending");
    for n in 0..20 {
        watcher.transact("Net", &[insert(&format!("between {n}"), n)]).expect("an insertion");
    }
    let reply = writer.next_message().expect("an answer");
    assert_eq!((&reply.value["id"], &reply.value["error"]), (&json!("big"), &Value::Null));
    let scan = json!({"op": "select", "table": "Port", "where": [["n", ">", 11_990]]});
    writer.transact("Net", &vec![scan; 40]).expect("a long read");
    monitor(&mut writer, "monitor");

    for command in [
        &["ovsdb-server/compact"][..],
        &["vlog/set", "ovsdb_jsonrpc_server:file:dbg"],
        &["memory/show"],
        &["ovsdb-server/add-remote", "ptcp:0:127.0.0.1"],
        &["vlog/reopen"],
        &["no-such-command"],
    ] {
        admin(&scratch, command);
    }
    assert!(out(&admin(&scratch, &["ovsdb-server/list-remotes"])).contains("ptcp:0:127.0.0.1"));
    let targets = json!({"op": "insert", "table": "Manager",
        "row": {"targets": ["set", ["punix:more.sock", "nonsense:"]]}});
    writer.transact("Net", &[targets]).expect("an insertion");
    eventually("the remote of the table", || listens(&scratch.path("more.sock")));
    let new: Value =
        serde_json::from_str(&schema(r#","more":{"type":"boolean"}"#)).expect("a schema");
    let mut third = Client::connect(&scratch.path("more.sock")).expect("a connection");
    third.request("set_db_change_aware", &json!([true])).expect("a reply");
    let converted = third.request("convert", &json!(["Net", new])).expect("a reply");
    assert!(converted["error"].is_null(), "{converted}");
    third.transact("Net", &[insert("after", 1)]).expect("an insertion");
    assert!(admin(&scratch, &["exit"]).status.success());
    compare(&scratch, server);
    let text = fs::read_to_string(scratch.path("net.db")).expect("a database");
    assert!(text.contains("converted by ovsdb-server"));
}

/// What helpers do for a client that leaves is stopped, and a long writer makes way for others: when
/// that is depends on threads. Whether it was so is in the recording.
#[test]
fn long_work_that_ends_when_its_client_leaves_and_that_makes_way() {
    let scratch = Scratch::new();
    create(&scratch);
    let server = record(&scratch);
    let mut other = client(&scratch);
    let rows: Vec<Value> = (0..3000).map(|n| insert(&format!("port {n}"), n)).collect();
    other.transact("Net", &rows).expect("insertions");
    let scan = |n: u64| json!({"op": "select", "table": "Port", "where": [["n", "==", n]]});
    let long = |last: Value| {
        let scans = (0..8000).map(|n| scan(10_000 + n)).chain([last]);
        Value::Array([json!("Net")].into_iter().chain(scans).collect())
    };
    for attempt in 0..6 {
        let last = [insert(&format!("gone {attempt}"), 1), scan(1)][attempt % 2].clone();
        let mut leaves = client(&scratch);
        leaves.ask("transact", &long(last)).expect("sending");
        // As often as not a helper has begun with it.
        for n in 0..attempt {
            other.transact("Net", &[insert(&format!("{attempt} {n}"), 1)]).expect("an insertion");
        }
    }
    let mut stays = client(&scratch);
    let id = stays.ask("transact", &long(insert("stays", 1))).expect("sending");
    for n in 0..200 {
        other.transact("Net", &[insert(&format!("beside {n}"), 1)]).expect("an insertion");
    }
    let reply = stays.reply(id).expect("an answer");
    assert!(reply.value["error"].is_null(), "{reply:?}");
    assert!(admin(&scratch, &["exit"]).status.success());
    compare(&scratch, server);
    let text = fs::read_to_string(scratch.path("net.db")).expect("a database");
    assert!(text.contains("stays") && text.contains("beside 199"));
}

#[test]
fn commits_go_on_while_a_copy_takes_the_file_s_place() {
    let scratch = Scratch::new();
    create(&scratch);
    let server = record(&scratch);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (mut writer, done) = (client(&scratch), &done);
            scope.spawn(move || {
                for n in 0.. {
                    let name = format!("{number} {n}");
                    writer.transact("Net", &[insert(&name, n)]).expect("an insertion");
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut ctl = Client::connect(&scratch.path("ctl")).expect("a connection");
        for _ in 0..20 {
            ctl.request("ovsdb-server/compact", &json!([])).expect("the compaction is over");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(admin(&scratch, &["exit"]).status.success());
    compare(&scratch, server);
}

#[test]
fn a_run_that_a_signal_ended_ends_at_the_same_place() {
    let scratch = Scratch::new();
    create(&scratch);
    let mut server = record(&scratch);
    client(&scratch).transact("Net", &[insert("a", 1)]).expect("an insertion");
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.pid()).expect("a pid"));
    let pid = pid.expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    assert!(!server.wait().success());
    let first = (fs::read(scratch.path("net.db")).expect("a database"), log(&scratch));
    begin_anew(&scratch);
    let replayed = replay(&scratch);
    assert_eq!((err(&replayed).as_str(), replayed.status.code()), ("", Some(0)));
    assert_eq!(first, (fs::read(scratch.path("net.db")).expect("a database"), log(&scratch)));
    assert!(first.1.last().expect("a line").contains("terminating with signal 15"));
}

#[test]
fn what_is_no_recording_of_this_run_is_told() {
    let scratch = Scratch::new();
    create(&scratch);
    let server = scratch.link("ovsdb-server");
    let run = |option: &str| scratch.run(&server, &[&ARGS[..], &[option]].concat());
    for option in ["--record=nowhere", "--replay=nowhere", "--replay"] {
        let refused = run(option);
        let expected = "ovsdb-server: failed to open replay file: No such file or directory.\n";
        assert_eq!((err(&refused).as_str(), refused.status.code()), (expected, Some(1)));
    }
    let path = scratch.text("nowhere/replay_ovsdb-server");
    let said = format!("|ovs_replay|ERR|{path}: fopen failed: No such file or directory");
    assert!(log(&scratch).iter().any(|line| line.ends_with(&said)), "{:?}", log(&scratch));

    let mut recorded = record(&scratch);
    client(&scratch).transact("Net", &[insert("a", 1)]).expect("an insertion");
    assert!(admin(&scratch, &["exit"]).status.success());
    assert!(recorded.wait().success());
    let file = scratch.path("rec/replay_ovsdb-server");
    let good = fs::read(&file).expect("a recording");
    let told = |content: &[u8], database: &Path, expected: &str| {
        fs::write(&file, content).expect("a recording");
        fs::copy(database, scratch.path("net.db")).expect("a database");
        let refused = run("--replay=rec");
        assert!(err(&refused).contains(expected), "{expected}: {}", err(&refused));
        assert_eq!(refused.status.code(), Some(1), "{expected}");
    };
    let original = scratch.path("original.db");
    told(b"something else", &original, "not a recording of this program");
    told(b"weir recording 3 ovsdb-server\n", &original, "a recording of another version");
    told(b"weir recording 2 ovsdb-server\n", &original, "an empty recording");
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    told(&bad, &original, "damaged at offset ");
    // Another database: the same insertion is refused there.
    let mut other = scratch.path("other.db");
    fs::copy(&original, &other).expect("a copy");
    let operations = json!(["Net", insert("a", 2)]).to_string();
    let written = scratch.run(WEIR, &["tool", "transact", "other.db", &operations]);
    assert!(written.status.success(), "{}", err(&written));
    told(&good, &other, "the run differs at offset ");
    other.set_file_name("net.db");
    let fewer = scratch.run(&server, &["--remote=punix:s.sock", "net.db", "--replay=rec"]);
    assert!(err(&fewer).contains("a replay needs the same options"), "{}", err(&fewer));
    // Half of it, as after a crash, is replayed as far as it goes.
    fs::write(&file, &good[..good.len() - 3]).expect("a recording");
    begin_anew(&scratch);
    let replayed = replay(&scratch);
    assert_eq!((err(&replayed).as_str(), replayed.status.code()), ("", Some(0)));
    assert!(log(&scratch).last().expect("a line").ends_with("the recording ends here"));
}

#[test]
fn a_client_says_again_what_it_said() {
    let scratch = Scratch::new();
    create(&scratch);
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    let mut server = Running::start(command.args(ARGS));
    eventually("the server listens", || listens(&scratch.path("ctl")));
    let client = scratch.link("ovsdb-client");
    let operations = json!(["Net", insert("a", 1)]).to_string();
    let commands: [&[&str]; 6] = [
        &["list-dbs", "unix:s.sock"],
        &["transact", "unix:s.sock", &operations],
        &["dump", "unix:s.sock", "Net"],
        &["get-schema", "unix:s.sock,unix:none.sock", "Net"],
        &["dump", "unix:none.sock", "Net"],
        &["-vjsonrpc:console:dbg", "lock", "unix:s.sock", "l", "-t", "1"],
    ];
    let run = |command: &[&str], option: String| {
        let output =
            scratch.run(&client, &[&["-vPATTERN:console:%c|%m", &option], command].concat());
        (out(&output), err(&output), output.status)
    };
    let mut told = vec![];
    for (number, command) in commands.iter().enumerate() {
        let folder = format!("client{number}");
        fs::create_dir(scratch.path(&folder)).expect("a folder");
        told.push(run(command, format!("--record={folder}")));
    }
    fs::create_dir(scratch.path("monitor")).expect("a folder");
    let mut watched = scratch.command(&client);
    let mut watched =
        Running::start(watched.args(["--record=monitor", "monitor", "unix:s.sock", "Net", "Port"]));
    watched.line_with("initial");
    let more = json!(["Net", insert("b", 2)]).to_string();
    run(&["transact", "unix:s.sock", &more], "-vconsole:info".to_owned());
    watched.line_with("insert");
    assert!(admin(&scratch, &["exit"]).status.success());
    assert!(server.wait().success());
    let ended = watched.wait();

    for (number, (command, before)) in commands.iter().zip(&told).enumerate().take(5) {
        assert_eq!(run(command, format!("--replay=client{number}")), *before, "{command:?}");
    }
    assert!(told[0].0.contains("Net") && told[2].0.contains('a') && !told[4].2.success());
    // A run that a signal ended has no end: it is told where the recording has one.
    let (output, said, status) = run(commands[5], "--replay=client5".to_owned());
    assert_eq!((output, status.code()), (told[5].0.clone(), Some(1)));
    assert!(said.contains("the recording ends here"), "{said}");
    let again = run(&["monitor", "unix:s.sock", "Net", "Port"], "--replay=monitor".to_owned());
    let lines: Vec<&str> = again.0.lines().collect();
    assert_eq!(lines[..watched.seen().len()], watched.seen()[..]);
    assert!(again.0.contains("insert") && again.2 == ended, "{again:?} {ended}");

    for (option, path) in [
        ("--replay=client0", "other.sock: no connection to it is recorded here"),
        ("--replay=none", "/none/replay_ovsdb-client: fopen failed: No such file or directory"),
        ("--record=none", "/none/replay_ovsdb-client: fopen failed: No such file or directory"),
    ] {
        let (_, said, status) = run(&["list-dbs", "unix:other.sock"], option.to_owned());
        let expected = "failed to connect to \"unix:other.sock\" (No such file or directory)";
        assert!(said.contains(path) && said.contains(expected), "{said}");
        assert_eq!(status.code(), Some(1));
    }
}

#[test]
fn a_replay_has_the_keys_that_there_were() {
    let scratch = Scratch::new();
    create(&scratch);
    let kept = scratch.path(".net.db.weir-keys");
    let text = r#"{"database":"Net","format":1,"keys":{"Port":{"n":"asc"}}}"#;
    fs::write(&kept, text).expect("it can be written");
    let server = record(&scratch);
    let mut writer = client(&scratch);
    let ports: Vec<Value> = (0..300).map(|n| insert(&format!("p{n}"), n)).collect();
    writer.transact("Net", &ports).expect("an insertion");
    let add = admin(&scratch, &["index/add", "Net", "Port", "name"]);
    assert!(add.status.success(), "{}", err(&add));
    let update =
        json!({"op": "update", "table": "Port", "where": [["n", ">", 290]], "row": {"n": 7}});
    writer.transact("Net", &[update]).expect("an update");
    assert!(admin(&scratch, &["exit"]).status.success());
    // What is declared now is not what was then.
    let declared = fs::read_to_string(&kept).expect("it is there");
    assert!(declared.contains(r#""name":"hash""#), "{declared}");
    fs::remove_file(&kept).expect("it was there");
    compare(&scratch, server);
    assert!(!kept.exists(), "a replay declares nothing");
    assert!(
        log(&scratch).iter().any(|line| line.contains("ordered key on column n of table Port"))
    );
}
