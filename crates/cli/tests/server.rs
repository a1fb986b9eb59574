//! The server process as scripts handle it: `--run`, `--detach`, pid files, sockets, `exit`.

use crate::support::{Scratch, WEIR, err, eventually, is_complaint, out, reference};
use std::path::Path;

fn network(scratch: &Scratch) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/network.ovsschema");
    let schema = schema.to_str().expect("UTF-8");
    let created = scratch.run(WEIR, &["tool", "create", "net.db", schema]);
    assert!(created.status.success(), "{}", err(&created));
}

#[test]
fn run_follows_the_command() {
    let scratch = Scratch::new();
    network(&scratch);
    let server = scratch.link("ovsdb-server");
    let run = |command: &str| {
        let run = format!("--run={command}");
        let args = ["net.db", "--remote=punix:s.sock", "--unixctl=none", "-vconsole:off", &run];
        scratch.run(&server, &args)
    };
    let listed = run(&format!("{WEIR} call unix:{} list_dbs", scratch.text("s.sock")));
    assert!(listed.status.success(), "{}", err(&listed));
    assert!(out(&listed).contains("\"Network\""), "{}", out(&listed));
    assert!(!scratch.path("s.sock").exists());

    let failed = run("exit 3");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(err(&failed), "ovsdb-server: exit 3: child exited, exit status 3\n");
    let killed = run("kill -9 $$");
    assert_eq!(killed.status.code(), Some(1));
    assert_eq!(err(&killed), "ovsdb-server: kill -9 $$: child exited, killed (Killed)\n");
}

#[test]
fn a_daemon_is_ready_when_its_parent_ends_and_gone_after_exit() {
    let Some(appctl) = reference("ovs-appctl") else { return };
    let scratch = Scratch::new();
    network(&scratch);
    let args = [
        "--detach",
        "--no-chdir",
        "--pidfile",
        "--log-file",
        "-vconsole:off",
        "--remote=punix:s.sock",
        "net.db",
    ];
    let started = scratch.run(scratch.link("ovsdb-server"), &args);
    assert!(started.status.success(), "{}", err(&started));

    // All of it is there the moment that the parent has ended.
    let pid = std::fs::read_to_string(scratch.path("ovsdb-server.pid")).expect("the pid file");
    let pid = pid.trim();
    let reaper = Reaper(pid.to_owned());
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("the process");
    assert_eq!(comm, "ovsdb-server\n");
    let socket = format!("unix:{}", scratch.text("s.sock"));
    let listed = scratch.run(WEIR, &["call", &socket, "list_dbs"]);
    assert!(out(&listed).contains("Network"), "{}{}", out(&listed), err(&listed));

    let version = scratch.run(&appctl, &["-t", "ovsdb-server", "version"]);
    let first = out(&version).lines().next().unwrap_or_default().to_owned();
    assert_eq!(first, "ovsdb-server (Open vSwitch) 4.0.90", "{}", err(&version));
    let commands = out(&scratch.run(&appctl, &["-t", "ovsdb-server", "list-commands"]));
    assert!(commands.contains("memory-trim-on-compaction"), "{commands}");

    let exited = scratch.run(&appctl, &["-t", "ovsdb-server", "exit"]);
    assert!(exited.status.success(), "{}", err(&exited));
    eventually("the server ends", || is_gone(pid));
    std::mem::forget(reaper);
    for name in ["ovsdb-server.pid", "s.sock", &format!("ovsdb-server.{pid}.ctl")] {
        assert!(!scratch.path(name).exists(), "{name} is still there");
    }
    let log = std::fs::read_to_string(scratch.path("ovsdb-server.log")).expect("the log file");
    assert!(log.contains("|vlog|INFO|opened log file "), "{log}");
    assert!(!log.lines().any(is_complaint), "{log}");
}

#[test]
fn a_start_that_fails_fails_in_the_parent() {
    let scratch = Scratch::new();
    let args = ["--detach", "--pidfile", "--no-chdir", "-vconsole:off", "missing.db"];
    let failed = scratch.run(scratch.link("ovsdb-server"), &args);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(err(&failed), "ovsdb-server: server configuration failed\n");
    assert!(!scratch.path("ovsdb-server.pid").exists());
}

#[test]
fn a_second_server_of_a_pid_file_says_so_in_its_log_too() {
    let scratch = Scratch::new();
    let server = scratch.link("ovsdb-server");
    let second = format!(
        "--run={} --no-dbs --pidfile --unixctl=none --log-file=second.log",
        server.display()
    );
    let first = ["--no-dbs", "--pidfile", "--unixctl=none", "-vconsole:off", second.as_str()];
    let both = scratch.run(&server, &first);
    assert_eq!(both.status.code(), Some(1));
    let said = err(&both);
    let line = said.lines().find(|line| line.starts_with("ovsdb-server: ")).expect("a reason");
    let reason = line.trim_start_matches("ovsdb-server: ");
    assert!(reason.contains("ovsdb-server.pid: already running as pid "), "{said}");
    let log = std::fs::read_to_string(scratch.path("second.log")).expect("a log");
    assert!(log.contains(&format!("|daemon_unix|EMER|{reason}\n")), "{log}");
}

#[test]
fn the_default_database_is_conf_db() {
    let scratch = Scratch::new();
    let failed = scratch.run(scratch.link("ovsdb-server"), &["--unixctl=none", "--run=true"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(err(&failed).contains(&scratch.text("conf.db")), "{}", err(&failed));
    let without = ["--no-dbs", "--unixctl=none", "--run=true"];
    let empty = scratch.run(scratch.link("ovsdb-server"), &without);
    assert!(empty.status.success(), "{}", err(&empty));
}

/// Kills a daemon that a failed test leaves behind.
struct Reaper(String);

impl Drop for Reaper {
    fn drop(&mut self) {
        let pid = self.0.parse().ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// No such process, or only its exit status is left of it.
fn is_gone(pid: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z')),
        Err(_) => true,
    }
}

#[test]
fn a_configuration_file_is_in_the_directory_of_databases() {
    let scratch = Scratch::new();
    scratch
        .write("d.ovsschema", r#"{"name":"D","tables":{"T":{"columns":{"x":{"type":"string"}}}}}"#);
    let created = scratch.run(WEIR, &["tool", "create", "d.db", "d.ovsschema"]);
    assert!(created.status.success(), "{}", err(&created));
    scratch.write("c.json", r#"{"remotes":{"punix:c.sock":{}},"databases":{"d.db":{}}}"#);
    let sock = scratch.text("c.sock");
    let ask = format!("{WEIR} call unix:{sock} list_dbs");
    let run = format!("--run={ask}");
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    // The directory of databases is another one than that where the server is started.
    let elsewhere = scratch.path("etc");
    std::fs::create_dir(&elsewhere).expect("a folder");
    std::fs::rename(scratch.path("c.json"), elsewhere.join("c.json")).expect("moved");
    command.env("OVS_DBDIR", &elsewhere);
    let served =
        command.args(["--config-file=c.json", "--unixctl=none", &run]).output().expect("a run");
    assert!(served.status.success(), "{}", err(&served));
    assert!(out(&served).contains("\"D\""), "{} {}", out(&served), err(&served));
    let path = elsewhere.join("c.json").display().to_string();
    let loading = format!("|ovsdb_server|INFO|loading configuration from '{path}'\n");
    assert!(err(&served).contains(&loading), "{}", err(&served));
    let missing = scratch.run(scratch.link("ovsdb-server"), &["--config-file=x", "-vconsole:off"]);
    assert_eq!(err(&missing), "ovsdb-server: server configuration failed\n");
}
