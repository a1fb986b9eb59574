//! `ovs-appctl` beside the reference: on daemons of both sides, the same words and statuses.

use std::path::Path;
use std::process::Command;

use crate::support::{Running, Scratch, WEIR, err, eventually, listens, out, reference};

/// A line of the log without its time.
fn without_time(text: &str) -> String {
    let line = |line: &str| line.split_once("Z|").map_or(line, |(_, rest)| rest).to_owned() + "\n";
    text.lines().map(line).collect()
}

/// A server whose pid file and admin socket are in the run directory.
fn server(scratch: &Scratch, program: &Path, words: &[&str]) -> Running {
    let mut command: Command = scratch.command(program);
    command.args(words).args(["--no-dbs", "--pidfile", "-vconsole:off", "--remote=punix:x.sock"]);
    let running = Running::start(&mut command);
    let socket = format!("ovsdb-server.{}.ctl", running.pid());
    eventually("the admin socket is there", || listens(&scratch.path(&socket)));
    running
}

const QUESTIONS: [&[&str]; 20] = [
    &["-t", "ovsdb-server", "list-dbs-that-are-not-there"],
    &["-t", "ovsdb-server", "vlog/set", "a", "b"],
    &["-t", "ovsdb-server", "vlog/set", "-x"],
    &["-t", "ovsdb-server", "vlog/set", "info"],
    &["--target=ovsdb-server", "vlog/list-pattern"],
    &["--target", "ovsdb-server", "ovsdb-server/list-remotes"],
    &["-T", "30", "-t", "ovsdb-server", "version", "x"],
    &["-t", "ovsdb-server", "coverage/read-counter", "nonsense"],
    &["-t", "ovsdb-server"],
    &["-t", "nobody", "version"],
    &["-t", "/nonexistent/socket", "version"],
    &["-t", "/tmp", "version"],
    &["-t", "stale", "version"],
    &["version"],
    &["--timeout=0", "version"],
    &["--timeout=x", "version"],
    &["-t", "a", "-t", "b", "version"],
    &["-t"],
    &["--nonsense"],
    &[],
];

#[test]
fn answers_and_mistakes_are_told_alike() {
    let (Some(theirs), Some(daemon)) = (reference("ovs-appctl"), reference("ovsdb-server")) else {
        return;
    };
    for (program, words) in [(daemon.as_path(), &[][..]), (Path::new(WEIR), &["server"])] {
        let scratch = Scratch::new();
        let ours = scratch.link("ovs-appctl");
        scratch.write("stale.pid", "999999\n");
        let mut running = server(&scratch, program, words);
        for question in QUESTIONS {
            let a = scratch.run(&theirs, question);
            let b = scratch.run(&ours, question);
            let typed = |text: &str, program: &Path| {
                without_time(text).replace(&program.display().to_string(), "ovs-appctl")
            };
            assert_eq!(typed(&err(&b), &ours), typed(&err(&a), &theirs), "{question:?}");
            assert_eq!(out(&b), out(&a), "{question:?}");
            assert_eq!(b.status.code(), a.status.code(), "{question:?}");
        }
        let bye = scratch.run(&ours, &["-t", "ovsdb-server", "exit"]);
        assert!(bye.status.success(), "{}", err(&bye));
        assert!(running.wait().success());
    }
}

#[test]
fn a_daemon_that_hangs_is_given_up() {
    let scratch = Scratch::new();
    let ours = scratch.link("ovs-appctl");
    let socket = scratch.path("deaf.ctl");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let target = socket.display().to_string();
    let given_up = scratch.run(&ours, &["-T", "1", "-t", &target, "version"]);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(given_up.status.signal(), Some(14), "{}", err(&given_up));
    assert!(err(&given_up).contains("terminating with signal 14 (Alarm clock)"));
}

#[test]
fn json_is_asked_for_and_shown() {
    let scratch = Scratch::new();
    let ours = scratch.link("ovs-appctl");
    let _running = server(&scratch, Path::new(WEIR), &["server"]);
    let ask = |words: &[&str]| {
        let answer = scratch.run(&ours, &[&["-t", "ovsdb-server"], words].concat());
        assert!(answer.status.success(), "{words:?}: {}", err(&answer));
        out(&answer)
    };
    let remotes = "punix:x.sock";
    assert_eq!(ask(&["ovsdb-server/list-remotes"]), format!("{remotes}\n"));
    assert_eq!(
        ask(&["-f", "json", "ovsdb-server/list-remotes"]),
        format!("{{\"reply\":\"{remotes}\\n\",\"reply-format\":\"plain\"}}\n")
    );
    let pretty = ask(&["--format=json", "--pretty", "ovsdb-server/list-remotes"]);
    assert_eq!(
        pretty,
        format!("{{\n  \"reply\": \"{remotes}\\n\",\n  \"reply-format\": \"plain\"}}\n")
    );
}
