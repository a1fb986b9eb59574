//! `wait-delivered` and its admin commands, with clients that stop reading and go on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::support::{Running, Scratch, WEIR, err, eventually, listens, out, reference};
use rustix::process::{Pid, Signal, kill_process};
use weir_testkit::pki::Pki;

const SCHEMA: &str = r#"{"name":"Net","tables":{"T":{"columns":{"a":{"type":"string"}}}}}"#;

fn server(scratch: &Scratch, program: &Path, words: &[&str]) -> Running {
    scratch.write("net.ovsschema", SCHEMA);
    let made = scratch.run(WEIR, &["tool", "create", "net.db", "net.ovsschema"]);
    assert!(made.status.success(), "{}", err(&made));
    let mut command: Command = scratch.command(program);
    command.args(words).args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off"]);
    let running = Running::start(command.arg("net.db"));
    eventually("the server listens", || listens(&scratch.path("server.ctl")));
    running
}

fn weir(scratch: &Scratch) -> Running {
    server(scratch, Path::new(WEIR), &["server"])
}

/// A client that watches the table.
fn watcher(scratch: &Scratch, remote: &str) -> Running {
    let mut command = scratch.command(WEIR);
    command.args(["client", "--no-headings", "monitor", remote, "Net", "T", "a"]);
    let mut running = Running::start(&mut command);
    running.line_with("initial");
    running
}

fn signal(process: &Running, signal: Signal) {
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

fn insert(scratch: &Scratch, text: &str) {
    let transaction = format!(r#"["Net",{{"op":"insert","table":"T","row":{{"a":"{text}"}}}}]"#);
    let done = scratch.run(WEIR, &["client", "transact", &transaction]);
    assert!(done.status.success(), "{}", err(&done));
}

/// Inserts rows of a megabyte.
fn fill(scratch: &Scratch, rows: usize) {
    let text = "x".repeat(1 << 20);
    let row = format!(r#"{{"op":"insert","table":"T","row":{{"a":"{text}"}}}}"#);
    let operations = vec![row; rows].join(",");
    let request = format!(r#"{{"id":0,"method":"transact","params":["Net",{operations}]}}"#);
    let mut stream = UnixStream::connect(scratch.path("db.sock")).expect("a server");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = vec![0; 4096];
    let length = stream.read(&mut reply).expect("a reply");
    let reply = String::from_utf8_lossy(&reply[..length]).into_owned();
    assert!(reply.contains("uuid") && !reply.contains("details"), "{reply}");
}

/// The status of `wait-delivered` with these words, and what it says.
fn wait(scratch: &Scratch, words: &[&str]) -> (Option<i32>, String) {
    let done = scratch.run(WEIR, &[&["client", "wait-delivered"], words].concat());
    (done.status.code(), out(&done) + &err(&done))
}

fn admin(scratch: &Scratch, words: &[&str]) -> (Option<i32>, String) {
    let socket = scratch.text("server.ctl");
    let done = scratch.run(WEIR, &[&["appctl", "-t", &socket], words].concat());
    (done.status.code(), out(&done) + &err(&done))
}

#[test]
fn a_client_that_does_not_read_holds_the_wait_until_it_goes_on() {
    let scratch = Scratch::new();
    let _server = weir(&scratch);
    let first = r#"["Net",{"op":"insert","table":"T","row":{"a":"first"}}]"#;
    assert!(scratch.run(WEIR, &["client", "transact", first]).status.success());
    let remote = format!("unix:{}", scratch.text("db.sock"));
    let (mut quick, mut slow) = (watcher(&scratch, &remote), watcher(&scratch, &remote));
    let all = (Some(0), "2 of 2 clients have it\n".to_owned());
    assert_eq!(wait(&scratch, &["Net"]), all);

    signal(&slow, Signal::STOP);
    insert(&scratch, "second");
    quick.line_with("second");
    assert_eq!(wait(&scratch, &["--level=written"]), all, "a socket takes some");
    assert_eq!(wait(&scratch, &["--count=1", "Net", "now"]).0, Some(0));
    let (status, text) = wait(&scratch, &["-t", "1"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("1 of 2 clients have it\nunix#"), "{text}");
    assert!(text.ends_with(": written, and not acknowledged\n"), "{text}");

    // More than a socket takes, and then more than is composed for who does not take it.
    for _ in 0..8 {
        insert(&scratch, &"x".repeat(100_000));
    }
    let is_behind = || {
        let (status, table) = admin(&scratch, &["weir/delivery", "Net"]);
        assert_eq!(status, Some(0), "{table}");
        insert(&scratch, "more");
        let first = table.lines().nth(1).unwrap_or_default();
        let cells: Vec<&str> = first.split_whitespace().collect();
        cells.len() == 5 && cells[2] != "0" && cells[3] != "0" && cells[4] != "0"
    };
    eventually("the table tells who is behind", is_behind);
    // The quick client may not have taken the last of it yet.
    eventually("one of two has it", || {
        let (status, text) = admin(&scratch, &["weir/wait-delivered", "Net", "now", "all", "0"]);
        assert_eq!(status, Some(2), "{text}");
        text.contains("1 of 2 clients have it; the others: unix#")
    });

    signal(&slow, Signal::CONT);
    assert_eq!(wait(&scratch, &[]), all);
    slow.line_with("more");
    let done = (Some(0), "2 of 2 clients have it\n".to_owned());
    assert_eq!(admin(&scratch, &["weir/wait-delivered", "Net"]), done);
}

#[test]
fn a_client_that_ends_is_not_waited_for() {
    let scratch = Scratch::new();
    let _server = weir(&scratch);
    insert(&scratch, "first");
    let slow = watcher(&scratch, &format!("unix:{}", scratch.text("db.sock")));
    signal(&slow, Signal::STOP);
    insert(&scratch, "second");
    let mut command = scratch.command(WEIR);
    let mut waiting = Running::start(command.args(["client", "wait-delivered", "Net"]));
    eventually("it waits", || {
        let table = admin(&scratch, &["weir/delivery"]).1;
        table.lines().count() == 2
    });
    drop(slow);
    assert!(waiting.wait().success());
    // It may have been gone before the wait began.
    waiting.line_with("0 of 0 clients have it");
}

/// A client that is stopped behind this remote has what its kernel has acknowledged, and not more
/// than that takes.
fn acknowledged_by_the_kernel(remote: &str, method: &str, keys: &[String]) {
    let scratch = Scratch::new();
    let remote = format!("--remote={remote}:0:127.0.0.1");
    let log = format!("--log-file={}", scratch.text("server.log"));
    let mut words = vec!["server", &remote, &log];
    words.extend(keys.iter().map(String::as_str));
    let _server = server(&scratch, Path::new(WEIR), &words);
    insert(&scratch, "first");
    let log = std::fs::read_to_string(scratch.path("server.log")).expect("a log");
    let port =
        log.lines().find_map(|line| line.split_once("listening on port ")).expect("a port").1;
    let mut command = scratch.command(WEIR);
    let remote = format!("{method}:127.0.0.1:{port}");
    command
        .args(["client", "--no-headings"])
        .args(keys)
        .args(["monitor", &remote, "Net", "T", "a"]);
    let mut slow = Running::start(&mut command);
    slow.line_with("initial");
    let all = (Some(0), "1 of 1 clients have it\n".to_owned());
    assert_eq!(wait(&scratch, &[]), all);
    signal(&slow, Signal::STOP);
    insert(&scratch, "second");
    assert_eq!(wait(&scratch, &[]), all, "its kernel has it");
    // More than both kernels take, and TLS on the way to them.
    fill(&scratch, 12);
    let (status, text) = wait(&scratch, &["-t", "1"]);
    assert_eq!(status, Some(1), "{text}");
    signal(&slow, Signal::CONT);
    assert_eq!(wait(&scratch, &[]), all);
}

#[test]
fn a_kernel_acknowledges_for_a_client_on_tcp() {
    acknowledged_by_the_kernel("ptcp", "tcp", &[]);
}

#[test]
fn a_kernel_acknowledges_for_a_client_on_tls() {
    let Some(pki) = Pki::usual("delivery") else { return };
    acknowledged_by_the_kernel("pssl", "ssl", &pki.arguments("server"));
}

#[test]
fn a_server_that_cannot_tell_is_named() {
    let Some(program) = reference("ovsdb-server") else { return };
    let scratch = Scratch::new();
    let _server = server(&scratch, &program, &[]);
    let (status, text) = wait(&scratch, &["Net"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("cannot tell what its clients have: it is not Weir"), "{text}");
}
