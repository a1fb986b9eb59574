//! `--monitor`: a server that crashes is started again, by Weir as by the reference.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support::{PATIENCE, Scratch, eventually, out, reference};

/// A server behind `--detach --monitor`, ended by TERM to it and to its monitor.
struct Daemon<'s> {
    scratch: &'s Scratch,
}

impl<'s> Daemon<'s> {
    fn start(scratch: &'s Scratch, program: &Path) -> Self {
        let schema = "{\"name\":\"D\",\"tables\":{}}";
        let line = format!("OVSDB JSON {} {}\n{schema}\n", schema.len() + 1, sha1(schema));
        scratch.write("d.db", &line);
        Self::start_on_file(scratch, program)
    }

    fn start_on_file(scratch: &'s Scratch, program: &Path) -> Self {
        let args = ["--detach", "--monitor", "--pidfile", "--remote=punix:d.sock"];
        let more = ["--log-file=d.log", "--unixctl=d.ctl", "-vconsole:off", "--no-chdir", "d.db"];
        let started = scratch.command(program).args(args).args(more).output().expect("a start");
        assert!(started.status.success(), "{started:?}");
        Self { scratch }
    }

    fn pid(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.scratch.path("ovsdb-server.pid")).ok()?;
        text.trim().parse().ok()
    }

    fn kill(&self, signal: &str) {
        let pid = self.pid().expect("a pid file").to_string();
        self.scratch.run("kill", &[signal, &pid]);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path("d.log")).unwrap_or_default()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            self.scratch.run("kill", &["-TERM", &pid.to_string()]);
        }
    }
}

/// What the header of a record says of its content.
fn sha1(record: &str) -> String {
    let printed = std::process::Command::new("sh")
        .args(["-c", "printf '%s\\n' \"$1\" | sha1sum", "sh", record])
        .output()
        .expect("sha1sum");
    out(&printed).split_whitespace().next().expect("a hash").to_owned()
}

/// Crashes a server, and returns the log without dates, numbers and process ids.
fn crash_and_return(program: &Path) -> Vec<String> {
    let scratch = Scratch::new();
    let daemon = Daemon::start(&scratch, program);
    let first = daemon.pid().expect("a pid file");
    // The last line of a start, written after the parent has been released: before it, an end is
    // that of a start that failed.
    let starts = || daemon.log().matches("|INFO|ovsdb-server (Open vSwitch) ").count();
    eventually("the server has started", || starts() == 1);
    daemon.kill("-SEGV");
    eventually("another server is there", || {
        daemon.pid().is_some_and(|pid| pid != first) && starts() == 2
    });
    daemon.kill("-TERM");
    eventually("the monitor has ended", || daemon.log().contains("exiting"));
    let pid = first.to_string();
    let lines = daemon.log().replace(&pid, "PID");
    lines.lines().map(|line| line.splitn(3, '|').nth(2).unwrap_or(line).to_owned()).collect()
}

#[test]
fn a_crashed_server_comes_back_and_the_log_says_why() {
    let link = Scratch::new();
    let log = crash_and_return(&link.link("ovsdb-server"));
    let at = |text: &str| log.iter().position(|line| line.starts_with(text));
    let backtrace = at("backtrace(monitor)|WARN|SIGSEGV detected, backtrace:");
    let restart =
        at("daemon_unix(monitor)|ERR|1 crashes: pid PID died, killed (Segmentation fault");
    assert!(backtrace.is_some() && backtrace < restart, "{log:#?}");
    assert!(log[restart.expect("a restart")].ends_with(", restarting"), "{log:#?}");
    assert!(
        at("ovsdb_server(ovsdb-server)|INFO|ovsdb-server (Open vSwitch) ") > restart,
        "{log:#?}"
    );
}

#[test]
fn a_crashed_member_of_a_cluster_comes_back_each_time() {
    let scratch = Scratch::new();
    scratch.write("schema", r#"{"name":"D","tables":{"T":{"columns":{"a":{"type":"string"}}}}}"#);
    let tool = scratch.link("ovsdb-tool");
    let create = ["create-cluster", "d.db", "schema", "unix:raft.sock"];
    let created = scratch.command(&tool).args(create).output().expect("a file");
    assert!(created.status.success(), "{created:?}");
    let daemon = Daemon::start_on_file(&scratch, &scratch.link("ovsdb-server"));
    let client = scratch.link("ovsdb-client");
    for row in ["first", "second", "third"] {
        let transact = format!(r#"["D",{{"op":"insert","table":"T","row":{{"a":"{row}"}}}}]"#);
        let args = ["--timeout=30", "transact", "unix:d.sock", &transact];
        eventually("a row is written", || {
            let told = scratch.command(&client).args(args).output().expect("an answer");
            out(&told).contains("uuid")
        });
        let pid = daemon.pid().expect("a pid file");
        daemon.kill("-SEGV");
        eventually("another server is there", || daemon.pid().is_some_and(|new| new != pid));
    }
    eventually("all rows are there", || {
        let told = scratch.command(&client).args(["--timeout=30", "dump", "unix:d.sock"]).output();
        let told = out(&told.expect("an answer"));
        ["first", "second", "third"].iter().all(|row| told.contains(row))
    });
}

#[test]
fn what_admin_commands_configured_survives_a_crash() {
    let scratch = Scratch::new();
    let daemon = Daemon::start(&scratch, &scratch.link("ovsdb-server"));
    let admin = |command: &str, args: &[&str]| {
        let request =
            format!("{{\"id\":1,\"method\":\"ovsdb-server/{command}\",\"params\":{args:?}}}");
        let mut socket = UnixStream::connect(scratch.path("d.ctl")).expect("an admin socket");
        socket.write_all(request.as_bytes()).expect("a request");
        socket.shutdown(Shutdown::Write).expect("the end of it");
        let mut reply = String::new();
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let mut buffer = [0; 4096];
        while !reply.contains('}') {
            let count = socket.read(&mut buffer).expect("a reply");
            assert!(count > 0, "{reply}");
            reply += &String::from_utf8_lossy(&buffer[..count]);
        }
        reply
    };
    admin("add-remote", &["punix:more.sock"]);
    admin("set-active-ovsdb-server", &["unix:nowhere.sock"]);
    admin("connect-active-ovsdb-server", &[]);
    let (remotes, status) = (admin("list-remotes", &[]), admin("sync-status", &[]));
    assert!(remotes.contains("punix:d.sock\\npunix:more.sock"), "{remotes}");
    assert!(status.contains("connecting: unix:nowhere.sock"), "{status}");
    let first = daemon.pid().expect("a pid file");
    daemon.kill("-SEGV");
    eventually("another server is there", || {
        let changed = daemon.pid().is_some_and(|pid| pid != first);
        changed && UnixStream::connect(scratch.path("d.ctl")).is_ok()
    });
    assert_eq!(admin("list-remotes", &[]), remotes);
    assert_eq!(admin("sync-status", &[]), status);
    eventually("the added remote listens", || {
        UnixStream::connect(scratch.path("more.sock")).is_ok()
    });
}

#[test]
fn the_lines_are_those_of_the_reference() {
    let Some(reference) = reference("ovsdb-server") else { return };
    let link = Scratch::new();
    let told = |program: &Path| -> Vec<String> {
        let lines = crash_and_return(program).into_iter();
        // The stock package has no unwinder, and its paths are relative.
        let kept = lines.filter(|line| line.contains("|ERR|") || line.contains("closing log file"));
        kept.map(|line| line.replace(", core dumped", "")).collect()
    };
    assert_eq!(told(&link.link("ovsdb-server")), told(&reference));
}
