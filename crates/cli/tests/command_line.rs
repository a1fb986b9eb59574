//! Names, versions, help and mistakes of all programs, as a shell sees them.

use crate::support::{Scratch, WEIR, err, out, reference};

#[test]
fn the_name_of_the_link_chooses_the_program() {
    let scratch = Scratch::new();
    for program in ["ovsdb-server", "ovsdb-client", "ovsdb-tool"] {
        let link = scratch.link(program);
        let version = scratch.run(&link, &["-V"]);
        let text = out(&version);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("{program} (Open vSwitch) 4.0.90"));
        assert!(lines[1].to_lowercase().starts_with("weir "), "{text}");
        assert_eq!(lines.len(), 2);

        let word = program.trim_start_matches("ovsdb-");
        assert_eq!(out(&scratch.run(WEIR, &[word, "-V"])), text);
    }
    let missing = scratch.run(scratch.link("ovs-appctl"), &["version"]);
    assert_eq!(missing.status.code(), Some(1));
    let text = err(&missing);
    assert!(text.contains("\novs-appctl: cannot read pidfile \""), "{text}");
}

#[test]
fn a_log_file_that_cannot_be_opened_ends_the_program() {
    let scratch = Scratch::new();
    let run = scratch.run(
        scratch.link("ovsdb-server"),
        &["--log-file=/nonexistent/l", "--no-dbs", "--unixctl=none", "--run=true"],
    );
    let text = "|vlog|WARN|failed to open /nonexistent/l for logging: No such file or directory\n";
    assert!(err(&run).ends_with(text), "{}", err(&run));
    assert_eq!(run.status.code(), Some(1));
}

#[test]
fn help_goes_to_standard_output() {
    let scratch = Scratch::new();
    for (args, word) in [
        (&["help"][..], "weir up"),
        (&[], "weir up"),
        (&["server", "--help"], "disable-file-column-diff"),
        (&["server", "-h"], "punix:FILE"),
        (&["tool", "--help"], "--election-timer"),
        (&["tool", "help"], "create [DB [SCHEMA]]"),
        (&["up", "--help"], "weir-demo"),
        (&["status", "--help"], "--json"),
        (&["watch", "--help"], "--no-initial"),
        (&["call", "--help"], "METHOD"),
        (&["transact", "-h"], "OPERATION"),
        (&["man", "--help"], "weir-status.1"),
        (&["completions", "--help"], "bash|zsh|fish"),
    ] {
        let help = scratch.run(WEIR, args);
        assert!(help.status.success(), "{args:?}: {}", err(&help));
        assert!(out(&help).contains(word), "{args:?}: {}", out(&help));
    }
}

#[test]
fn directories_follow_the_environment() {
    let scratch = Scratch::new();
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    command.env("OVS_DBDIR", "/some/where").env("OVS_RUNDIR", "/run/here");
    let help = out(&command.arg("--help").output().expect("it runs"));
    assert!(help.contains("/some/where/conf.db"), "{help}");
    assert!(help.contains("/run/here/ovsdb-server.pid"), "{help}");
}

#[test]
fn mistakes_are_told_as_getopt_tells_them() {
    let Some(server) = reference("ovsdb-server") else { return };
    let scratch = Scratch::new();
    // Found by name, because the messages begin with the command as it was typed.
    let bin = scratch.link("ovsdb-server").parent().expect("bin").to_owned();
    let folder = server.parent().expect("a folder").to_owned();
    for args in [
        &["--nonsense"][..],
        &["--nonsense=3", "a.db"],
        &["a.db", "-Z"],
        &["--detach=yes"],
        &["--remote"],
        &["-p"],
        &["--re"],
        &["--ver"],
        &["--u"],
        &["--no"],
        &["-vnonsense"],
    ] {
        let run = |path: &std::path::Path| {
            let mut command = scratch.command("ovsdb-server");
            command.args(args).env("PATH", path).output().expect("it runs")
        };
        let (ours, theirs) = (run(&bin), run(&folder));
        assert_eq!(err(&ours), err(&theirs), "{args:?}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{args:?}");
    }
}

#[test]
fn what_is_missing_is_said_and_fatal() {
    let scratch = Scratch::new();
    let refused = scratch.run(scratch.link("ovsdb-server"), &["relay:D"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(err(&refused), "ovsdb-server: ovsdb error: relay:D: invalid syntax\n");
    let refused = scratch.run(WEIR, &["nonsense"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(err(&refused), "weir: unknown command 'nonsense'; see weir help\n");
}

#[test]
fn the_client_says_what_went_wrong() {
    let scratch = Scratch::new();
    for (args, expected) in [
        (
            &["call", "unix:/nowhere/sock", "list_dbs"][..],
            "weir: failed to connect to \"unix:/nowhere/sock\" (No such file or directory)\n",
        ),
        (
            &["call", "ssl:127.0.0.1:6640", "list_dbs"],
            "weir: failed to connect to \"ssl:127.0.0.1:6640\" (Protocol not available)\n",
        ),
        (&["call", "ftp:x", "list_dbs"], "weir: ftp:x: Address family not supported by protocol\n"),
        (&["call"], "weir: a method is missing; see weir call --help\n"),
        (&["transact"], "weir: expected one transaction; see weir transact --help\n"),
        (&["transact", "[1"], "weir: not JSON: line 0, column "),
        (&["watch", "--count=x"], "weir: --count takes a number\n"),
        (&["watch", "--nonsense"], "weir: unrecognized option '--nonsense'\n"),
        (&["up", "--port=x"], "weir: --port takes a port number\n"),
        (&["up", "a", "b"], "weir: expected at most one folder; see weir up --help\n"),
    ] {
        let failed = scratch.run(WEIR, args);
        assert_eq!(failed.status.code(), Some(1), "{args:?}");
        assert!(err(&failed).starts_with(expected), "{args:?}: {}", err(&failed));
    }
}
