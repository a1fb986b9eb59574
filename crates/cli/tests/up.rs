//! `weir up` as a stranger meets it: start it, paste its three lines, end it.

use crate::support::{Running, Scratch, WEIR, err, out};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Starts `weir up` on a free port and waits until it says how to end it.
fn up(scratch: &Scratch) -> Running {
    let mut up = Running::start(scratch.command(WEIR).args(["up", "--port=0"]));
    up.line_with("Ctrl-C ends it");
    up
}

/// The three lines to paste.
fn lines(up: &Running) -> Vec<String> {
    let lines = up.seen().iter().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}

fn shell(scratch: &Scratch, line: &str) -> Command {
    let mut command = scratch.command("sh");
    command.args(["-c", &format!("exec {line}")]);
    command
}

#[test]
fn the_three_lines_work() {
    let scratch = Scratch::new();
    let mut server = up(&scratch);
    let lines = lines(&server);
    assert_eq!(lines.len(), 3, "{lines:#?}");

    let mut watch = Running::start(&mut shell(&scratch, &lines[0]));
    watch.line_with("Host alpha");
    watch.line_with("Switch lab");
    watch.line_with("now live");

    for _ in 0..2 {
        let changed = shell(&scratch, &lines[1]).output().expect("sh");
        assert!(changed.status.success(), "{}{}", out(&changed), err(&changed));
        assert!(watch.line_with("+ Port").ends_with(" guest"));
        assert!(watch.line_with("~ Switch").ends_with(" lab  ports +guest"));
    }

    let asked = shell(&scratch, &lines[2]).output().expect("sh");
    assert!(asked.status.success(), "{}", err(&asked));
    assert!(out(&asked).contains(r#""name":"printer""#), "{}", out(&asked));

    let pid = i32::try_from(server.pid()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = server.wait();
    assert!(status.success() || status.signal() == Some(2), "{status}");
    assert!(!scratch.path("weir-demo/weir.sock").exists());
    watch.line_with("connection lost");
}

#[test]
fn the_example_is_kept_and_started_once() {
    let scratch = Scratch::new();
    let first = up(&scratch);
    assert!(first.seen().iter().any(|line| line.contains("(new)")), "{:#?}", first.seen());
    let insert = r#"["Network",{"op":"insert","table":"Host","row":{"name":"mine"}}]"#;
    let socket = format!("unix:{}", scratch.text("weir-demo/weir.sock"));
    let inserted = scratch.run(WEIR, &["transact", &socket, insert]);
    assert!(inserted.status.success(), "{}", err(&inserted));
    let again = scratch.run(WEIR, &["transact", &socket, insert]);
    assert_eq!(again.status.code(), Some(1));
    assert!(out(&again).contains("constraint violation"), "{}", out(&again));

    let second = scratch.run(WEIR, &["up"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(out(&second).contains("up already"), "{}{}", out(&second), err(&second));

    // Killed, it leaves its socket behind; the next one starts all the same.
    drop(first);
    let third = up(&scratch);
    let kept = third.seen().iter().any(|line| line.contains("(as you left it)"));
    assert!(kept, "{:#?}", third.seen());
    let found = scratch.run(WEIR, &["watch", "--count=0", &socket, "Network", "Host"]);
    assert!(out(&found).contains("Host mine"), "{}{}", out(&found), err(&found));
}

#[test]
fn a_watch_survives_a_restart_and_shows_what_it_missed() {
    let scratch = Scratch::new();
    let socket = format!("unix:{}", scratch.text("weir-demo/weir.sock"));
    let first = up(&scratch);
    let watching = ["watch", "--no-initial", &socket, "Network", "Switch"];
    let mut watch = Running::start(scratch.command(WEIR).args(watching));
    watch.line_with("now live");
    drop(first);
    watch.line_with("connection lost");

    let _second = up(&scratch);
    watch.line_with("connected again");
    let rename = r#"["Network",{"op":"update","table":"Switch",
        "where":[["name","==","office"]],"row":{"location":"cellar"}}]"#;
    let renamed = scratch.run(WEIR, &["transact", &socket, rename]);
    assert!(renamed.status.success(), "{}", err(&renamed));
    let line = watch.line_with("~ Switch");
    assert!(line.ends_with(r#"office  location "room 204" → cellar"#), "{line}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let scratch = Scratch::new();
    scratch.write("weir-demo", "a file");
    let failed = scratch.run(WEIR, &["up"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(err(&failed).starts_with("weir: weir-demo: cannot keep the example there ("));
    assert!(err(&failed).contains("try weir up FOLDER"), "{}", err(&failed));
}
