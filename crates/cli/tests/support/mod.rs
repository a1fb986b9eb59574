//! What the tests of the programs share: scratch folders, links, processes that are always reaped.

#![allow(dead_code, reason = "every test uses another part")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// How long anything may take that should happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own for a test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-cli-test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // A process of the same number that was killed may have left one.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file in the scratch folder");
        path
    }

    /// A link of this name to Weir.
    pub(crate) fn link(&self, name: &str) -> PathBuf {
        let bin = self.path("bin");
        std::fs::create_dir_all(&bin).expect("bin");
        let link = bin.join(name);
        if !link.exists() {
            symlink(WEIR, &link).expect("a link to weir");
        }
        link
    }

    /// A command in this folder, with all of Open vSwitch's directories here as well.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.prepare(Command::new(program))
    }

    /// Gives a command its surroundings.
    pub(crate) fn prepare(&self, mut command: Command) -> Command {
        command.current_dir(&self.0).stdin(Stdio::null());
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &self.0);
        }
        command.env("OVS_SYSLOG_METHOD", "null").env_remove("OVS_SYSCONFDIR");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Output {
        self.command(program).args(args).output().expect("the program starts")
    }

    /// Runs a command that the system kills in the middle of a file: beyond 8 KiB of it.
    pub(crate) fn run_killed(&self, program: &Path, args: &[&str]) {
        let limited = r#"ulimit -c 0; ulimit -f 16; exec "$0" "$@""#;
        let program = program.to_str().expect("a path of text");
        let killed = self.run("sh", &[&["-c", limited, program], args].concat());
        let signal = std::os::unix::process::ExitStatusExt::signal(&killed.status);
        let expected = rustix::process::Signal::XFSZ.as_raw();
        assert_eq!(signal, Some(expected), "{args:?}: {}", err(&killed));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The packaged program of Open vSwitch, if it is here; else says so.
pub(crate) fn reference(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin"];
    let found = folders.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: {name} of Open vSwitch is not installed");
    }
    found
}

/// A server of the database `net.db`, which is made with this schema unless it is there, at `db.sock` and
/// with the control socket `server.ctl`. `words` come first.
pub(crate) fn serve_net(
    scratch: &Scratch,
    program: &Path,
    words: &[&str],
    schema: &str,
) -> Running {
    scratch.write("net.ovsschema", schema);
    if !scratch.path("net.db").exists() {
        let made = scratch.run(WEIR, &["tool", "create", "net.db", "net.ovsschema"]);
        assert!(made.status.success(), "{}", err(&made));
    }
    let mut command = scratch.command(program);
    command.args(words).args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off"]);
    let running = Running::start(command.arg("net.db"));
    eventually("the server listens", || listens(&scratch.path("server.ctl")));
    running
}

/// Whether somebody takes connections at a socket: one is there before that is so.
pub(crate) fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// The tables of roles in a schema (ovsdb(7), "Role-Based Access Control").
pub(crate) const RBAC_TABLES: &str = r#"
    "RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},"permissions":{"type":{
        "key":"string","min":0,"max":"unlimited",
        "value":{"type":"uuid","refTable":"RBAC_Permission","refType":"weak"}}}}},
    "RBAC_Permission":{"isRoot":true,"columns":{"table":{"type":"string"},
        "authorization":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "insert_delete":{"type":"boolean"},
        "update":{"type":{"key":"string","min":0,"max":"unlimited"}}}}"#;

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process whose standard output is read line by line; killed at the end if it still runs.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("a pipe");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: vec![] }
    }

    /// Waits for a line that contains this; the line.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {text:?} after {:#?}", self.seen);
            };
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Types this at its standard input, which must be a pipe.
    pub(crate) fn type_in(&mut self, keys: &[u8]) {
        let stdin = self.child.stdin.as_mut().expect("a pipe to standard input");
        stdin.write_all(keys).and_then(|()| stdin.flush()).expect("it reads what is typed");
    }

    /// All lines so far that `line_with` has passed.
    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself; its status.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("just seen")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A record of a standalone log.
pub(crate) fn log_record(json: &str) -> Vec<u8> {
    let mut record = Vec::new();
    weir_log::record::write_record(&mut record, json.as_bytes());
    record
}

/// A record of a clustered log.
pub(crate) fn clustered_record(json: &str) -> Vec<u8> {
    // The checksum is of the body alone, so only the magic differs.
    let record = log_record(json);
    [b"OVSDB CLUSTER", &record["OVSDB JSON".len()..]].concat()
}

/// Whether a line of a log says that the other end of a connection went while something was being
/// sent to it. Which of the two errors the system reports depends on what it had received.
pub(crate) fn is_end_of_other(line: &str) -> bool {
    line.contains("Connection reset by peer") || line.contains("Broken pipe")
}

/// Whether a line of a log is a warning or an error. How busy this machine is, is nobody's fault.
pub(crate) fn is_complaint(line: &str) -> bool {
    let of_machine = [" near a third of the election timer ", "|timeval|WARN|"];
    let is_of_machine = of_machine.iter().any(|words| line.contains(words));
    !is_of_machine && ["|WARN|", "|ERR|", "|EMER|"].iter().any(|w| line.contains(w))
}
