//! `log`: what changed in a database, when, and who asked for it.

use std::path::Path;

use crate::support::{Running, Scratch, WEIR, err, out, reference, serve_net};
use weir_testkit::pki::Pki;

const SCHEMA: &str = r#"{"name":"Net","tables":{"T":{"isRoot":true,"columns":{
    "a":{"type":"string"},"tags":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;

fn server(scratch: &Scratch, program: &Path, words: &[&str]) -> Running {
    serve_net(scratch, program, words, SCHEMA)
}

fn transact(scratch: &Scratch, words: &[&str], operations: &str) {
    let transaction = format!(r#"["Net",{operations}]"#);
    let done = scratch.run(WEIR, &[&["client", "transact"], words, &[&transaction]].concat());
    assert!(done.status.success(), "{}", err(&done));
}

/// What `log` with these words shows.
fn log(scratch: &Scratch, words: &[&str]) -> String {
    let done = scratch.run(WEIR, &[&["client", "log"], words].concat());
    assert!(done.status.success(), "{}", err(&done));
    out(&done)
}

/// What it says with these words and its status, which is no success.
fn refused(scratch: &Scratch, words: &[&str]) -> String {
    let done = scratch.run(WEIR, &[&["client", "log"], words].concat());
    assert_eq!(done.status.code(), Some(1), "{}", out(&done));
    err(&done)
}

const INSERT: &str = r#"{"op":"insert","table":"T","row":{"a":"x"}}"#;
const MODIFY: &str = r#"{"op":"update","table":"T","where":[],
    "row":{"a":"y","tags":["set",["one","two"]]}},{"op":"comment","comment":"why not"}"#;

/// What is shown of both changes, without dates and ids, which are told to be of one form.
fn told(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with(' ') {
            let words = line.split(' ').map(|word| if word.len() == 36 { "UUID" } else { word });
            lines.push(words.collect::<Vec<_>>().join(" "));
            continue;
        }
        let (date, rest) = line.split_at("2026-11-23 01:52:09.123Z  ".len());
        assert!(date.starts_with("20") && date.ends_with("Z  "), "{line}");
        let (id, who) = rest.split_at(36);
        assert!(!id.contains(' '), "{line}");
        lines.push(format!("ID{who}"));
    }
    lines.join("\n")
}

#[test]
fn changes_are_shown_with_who_when_and_why() {
    let scratch = Scratch::new();
    let first = server(&scratch, Path::new(WEIR), &["server"]);
    transact(&scratch, &[], INSERT);
    transact(&scratch, &[], MODIFY);
    let text = log(&scratch, &["Net"]);
    let changes = "  ~ T UUID  a: \"x\" -> \"y\"\n  ~ T UUID  tags: +\"one\" +\"two\"\nID\n  \
                   + T UUID  a=\"x\"";
    // Behind who found the server listening, and who inserted.
    assert_eq!(told(&text), format!("ID  unix#2\n    why not\n{changes}"));
    // The option may stand behind the words.
    let newest = log(&scratch, &["Net", "--limit=1"]);
    assert!(text.starts_with(&newest) && newest.lines().count() == 4, "{newest}");
    let ids: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    let oldest = ids[1].split_whitespace().nth(2).expect("an id");
    assert_eq!(log(&scratch, &["--since", oldest]), newest);
    let row = text.lines().last().and_then(|line| line.split(' ').nth(4)).expect("a row");
    assert_eq!(log(&scratch, &["--row", row, "--table", "T", "Net"]), text);
    let json = log(&scratch, &["--format=json", "--limit=1"]);
    assert!(json.starts_with(r#"[{"changes":{"T":{""#) && json.contains("\"why not\""), "{json}");

    for (words, said) in [
        (&["--table=No"][..], "No table named No."),
        (&["--since=x"], "since must be the id of a transaction"),
        (&["--format=csv"], "log is shown as text, or with --format=json"),
        (&["--limit=0"], "value 0 on --limit is invalid"),
        (&["--since=12345678-1234-4234-8234-123456789abc"], "this server does not know its id"),
    ] {
        let text = refused(&scratch, words);
        assert!(text.contains(said), "{text}");
    }

    // Another process knows all but who it was.
    drop(first);
    std::fs::remove_file(scratch.path("server.ctl")).expect("it was killed");
    let _second = server(&scratch, Path::new(WEIR), &["server"]);
    assert_eq!(told(&log(&scratch, &[])), format!("ID\n    why not\n{changes}"));
}

#[test]
fn the_name_of_a_certificate_is_shown() {
    let Some(pki) = Pki::usual("log") else { return };
    let scratch = Scratch::new();
    let keys = pki.arguments("server");
    let log_file = format!("--log-file={}", scratch.text("server.log"));
    let mut words = vec!["server", "--remote=pssl:0:127.0.0.1", &log_file];
    words.extend(keys.iter().map(String::as_str));
    let _server = server(&scratch, Path::new(WEIR), &words);
    let text = std::fs::read_to_string(scratch.path("server.log")).expect("a log");
    let port = text.lines().find_map(|line| line.split_once("listening on port ")).expect("it").1;
    let remote = format!("ssl:127.0.0.1:{port}");
    let mut words: Vec<&str> = keys.iter().map(String::as_str).collect();
    words.push(&remote);
    transact(&scratch, &words, INSERT);
    let json = log(&scratch, &["--format=json"]);
    assert!(json.contains(r#""client":{"certificate":""#), "{json}");
    assert!(told(&log(&scratch, &[])).contains(" (ssl:127.0.0.1:"), "{json}");
}

#[test]
fn a_run_in_which_the_log_was_asked_for_can_be_replayed() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("recording")).expect("a folder");
    scratch.write("net.ovsschema", SCHEMA);
    let made = scratch.run(WEIR, &["tool", "create", "net.db", "net.ovsschema"]);
    assert!(made.status.success(), "{}", err(&made));
    std::fs::copy(scratch.path("net.db"), scratch.path("before.db")).expect("a copy");
    let recording = scratch.text("recording");
    let record = format!("--record={recording}");
    let mut running = server(&scratch, Path::new(WEIR), &["server", &record]);
    transact(&scratch, &[], INSERT);
    assert!(!log(&scratch, &[]).is_empty());
    transact(&scratch, &[], MODIFY);
    assert!(!log(&scratch, &["Net", "--limit=1"]).is_empty());
    let socket = scratch.text("server.ctl");
    assert!(scratch.run(WEIR, &["appctl", "-t", &socket, "exit"]).status.success());
    assert!(running.wait().success());
    std::fs::rename(scratch.path("net.db"), scratch.path("after.db")).expect("it is there");
    std::fs::rename(scratch.path("before.db"), scratch.path("net.db")).expect("a copy");
    let replay = format!("--replay={recording}");
    let words =
        ["server", &replay, "--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off"];
    let replayed = scratch.run(WEIR, &[&words[..], &["net.db"]].concat());
    assert!(replayed.status.success(), "{}", err(&replayed));
    let read = |name: &str| std::fs::read(scratch.path(name)).expect("a database");
    assert!(read("net.db") == read("after.db"));
}

#[test]
fn a_server_without_the_log_is_named() {
    let Some(program) = reference("ovsdb-server") else { return };
    let scratch = Scratch::new();
    let _server = server(&scratch, &program, &[]);
    let text = refused(&scratch, &["Net"]);
    assert!(text.contains("cannot tell what has changed: it is not Weir"), "{text}");
}
