//! A whole server process, seen from outside: admin commands, exit, signals, files left behind.
//!
//! The process is this test binary again, told by the environment to be a server.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use weir_host::daemon::DaemonOptions;
use weir_host::vlog::Vlog;
use weir_host::{Options, Unixctl, run};
use weir_server::Config;

/// Names the directory of a server, and thereby says to be one.
const DIRECTORY: &str = "WEIR_HOST_TEST_DIRECTORY";

/// The command of `--run`, if any.
const RUN: &str = "WEIR_HOST_TEST_RUN";

/// Makes the server hit a bug when it gives memory back, which it does after a compaction.
const BUG: &str = "WEIR_HOST_TEST_BUG";

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test but the server, when the environment says so.
#[test]
fn serve_if_told() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let log = Vlog::new("ovsdb-server");
    let database = directory.join("conf.db");
    let pidfile = Some(directory.join("server.pid"));
    let options = Options {
        server: Config {
            seed: [0; 4],
            server_name: "ovsdb-server",
            remotes: vec!["punix:db.sock".to_owned(), "ptcp:0:127.0.0.1".to_owned()],
            databases: vec![database.display().to_string()],
            ..Config::default()
        },
        rundir: directory.clone(),
        unixctl: Unixctl::Path("ctl".into()),
        daemon: DaemonOptions { pidfile, ..DaemonOptions::default() },
        log_file: Some(directory.join("server.log")),
        recording: weir_host::recording::Recording::Off,
        run_command: std::env::var(RUN).ok(),
        input_bytes_max: None,
        trim_memory: if std::env::var_os(BUG).is_some() { || panic!("a bug") } else { || () },
    };
    let code = run(options, &log);
    std::process::exit(i32::from(
        format!("{code:?}") != format!("{:?}", std::process::ExitCode::SUCCESS),
    ));
}

/// A server process and its directory; both end with it.
struct Server {
    directory: PathBuf,
    child: Child,
}

impl Server {
    fn start(name: &str) -> Self {
        Self::start_with(name, &[]).ready()
    }

    fn start_with(name: &str, environment: &[(&str, &str)]) -> Self {
        let name = format!("weir-process-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let schema = "{\"name\":\"N\",\"tables\":{\"T\":{\"columns\":{\"c\":{\"type\":\"integer\"}},\"isRoot\":true}}}\n";
        fs::write(directory.join("conf.db"), record(schema)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve_if_told", "--nocapture"]).env(DIRECTORY, &directory);
        command.envs(environment.iter().copied());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { directory, child }
    }

    fn ready(self) -> Self {
        let limit = Instant::now() + PATIENCE;
        // The last words of the start: it listens before them.
        let is_ready = || {
            self.log().contains("(Open vSwitch) ") && UnixStream::connect(self.path("ctl")).is_ok()
        };
        while !is_ready() {
            assert!(Instant::now() < limit, "the server did not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    /// Sends one request on a new connection and reads until the answer is complete.
    fn call(&self, socket: &str, request: &str) -> String {
        call(&mut connect(&self.path(socket)), request)
    }

    fn admin(&self, method: &str) -> String {
        self.call("ctl", &format!("{{\"id\":0,\"method\":\"{method}\",\"params\":[]}}"))
    }

    fn kill(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < limit, "the server did not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it left, without what always stays.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let stays = [".conf.db.~lock~", "conf.db", "server.log"];
        names.filter(|name| !stays.contains(&name.as_str())).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn call(stream: &mut UnixStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut framer = weir_json::Framer::new();
    let mut answer = Vec::new();
    let mut byte = [0];
    loop {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "no whole answer to {request}");
        answer.extend_from_slice(&byte);
        if framer.feed(&byte).unwrap().is_some() {
            return String::from_utf8(answer).unwrap();
        }
    }
}

/// A record of a database file, by the tool of the packages or, without it, by sha1sum(1).
fn record(json: &str) -> Vec<u8> {
    let mut child =
        Command::new("sha1sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json.as_bytes()).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let hash = output.split_whitespace().next().unwrap();
    format!("OVSDB JSON {} {hash}\n{json}", json.len()).into_bytes()
}

#[test]
fn clients_and_admins_are_answered_and_exit_leaves_nothing_behind() {
    let mut server = Server::start("exit");
    let pid = fs::read_to_string(server.path("server.pid")).unwrap();
    assert_eq!(pid, format!("{}\n", server.child.id()));
    assert!(server.log().contains("|socket_util|INFO|0:127.0.0.1: listening on port "));
    assert!(server.log().ends_with("|ovsdb_server|INFO|ovsdb-server (Open vSwitch) 4.0.90\n"));

    let mut client = connect(&server.path("db.sock"));
    let answer = call(&mut client, r#"{"id":"x","method":"echo","params":[1,{"a":"}"}]}"#);
    assert_eq!(answer, r#"{"id":"x","result":[1,{"a":"}"}],"error":null}"#);
    let insert = r#"["N",{"op":"insert","table":"T","row":{"c":7}}]"#;
    let answer = call(&mut client, &format!(r#"{{"id":1,"method":"transact","params":{insert}}}"#));
    assert!(answer.contains("uuid"), "{answer}");
    let file = fs::read_to_string(server.path("conf.db")).unwrap();
    assert!(file.contains("\"c\":7"), "the record is in the file when the answer is there: {file}");

    let list = server.admin("ovsdb-server/list-dbs");
    assert!(list.contains("N\\n_Server\\n"), "{list}");
    assert!(server.admin("version").contains("ovsdb-server (Open vSwitch) 4.0.90\\n"));
    let read_counter = r#"{"id":0,"method":"coverage/read-counter","params":["host_append"]}"#;
    assert!(server.call("ctl", read_counter).contains("\"1\\n\""));

    assert!(server.admin("exit").contains("\"result\":\"\""));
    assert!(server.wait().success());
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0, "clients see the end of the stream");
    assert_eq!(server.left(), [] as [&str; 0]);
}

#[test]
fn messages_are_traced_while_an_admin_wants_it() {
    let server = Server::start("trace");
    server.call("db.sock", r#"{"id":1,"method":"echo","params":["untraced"]}"#);
    let set = r#"{"id":0,"method":"vlog/set","params":["jsonrpc:file:dbg"]}"#;
    server.call("ctl", set);
    server.call("db.sock", r#"{"id":2,"params":[{"b":1,"a":2}],"method":"echo"}"#);
    server.admin("exit");
    let log = server.log();
    let traced = [
        r#"|jsonrpc|DBG|unix#3: received request, method="echo", params=[{"a":2,"b":1}], id=2"#,
        r#"|jsonrpc|DBG|unix#3: send reply, result=[{"a":2,"b":1}], id=2"#,
    ];
    assert!(traced.iter().all(|line| log.contains(line)), "{log}");
    assert!(!log.contains("untraced"), "{log}");
}

#[test]
fn updates_are_delivered_before_exit() {
    let mut server = Server::start("flush");
    let mut monitor = connect(&server.path("db.sock"));
    let request = r#"{"id":0,"method":"monitor","params":["N","m",{"T":[{}]}]}"#;
    call(&mut monitor, request);
    let mut writer = connect(&server.path("db.sock"));
    for value in 0..20 {
        let insert = format!(r#"["N",{{"op":"insert","table":"T","row":{{"c":{value}}}}}]"#);
        call(&mut writer, &format!(r#"{{"id":1,"method":"transact","params":{insert}}}"#));
    }
    server.admin("exit");
    assert!(server.wait().success());
    let mut updates = String::new();
    monitor.read_to_string(&mut updates).unwrap();
    assert!((0..20).all(|value| updates.contains(&format!("\"c\":{value}"))), "{updates}");
}

#[test]
fn a_fatal_signal_is_logged_and_cleaned_up_after() {
    let mut server = Server::start("signal");
    server.kill("-TERM");
    assert_eq!(server.wait().signal(), Some(15));
    let expected = "|fatal_signal|WARN|terminating with signal 15 (Terminated)\n";
    assert!(server.log().ends_with(expected), "{}", server.log());
    assert_eq!(server.left(), [] as [&str; 0]);
}

#[test]
fn a_fault_kills_at_once() {
    let mut server = Server::start("fault");
    server.kill("-SEGV");
    assert_eq!(server.wait().signal(), Some(11));
    let log = server.log();
    let (_, backtrace) = log.split_once("\nSIGSEGV detected, backtrace:\n").expect("a backtrace");
    assert!(backtrace.starts_with("  0x"), "{backtrace}");
}

#[test]
fn a_bug_is_logged_cleaned_up_after_and_dies_as_a_crash() {
    let mut server = Server::start_with("bug", &[(BUG, "")]).ready();
    let request = r#"{"id":0,"method":"ovsdb-server/compact","params":[]}"#;
    let _ = connect(&server.path("ctl")).write_all(request.as_bytes());
    assert_eq!(server.wait().signal(), Some(6));
    assert!(server.log().contains(": assertion failed: a bug\n"), "{}", server.log());
    assert!(server.left().is_empty(), "{:?}", server.left());
}

#[test]
fn two_servers_do_not_share_a_database_or_a_pid_file() {
    let first = Server::start("shared");
    let mut second = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serve_if_told", "--nocapture"])
        .env(DIRECTORY, &first.directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = String::new();
    second.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(!second.wait().unwrap().success());
    let expected = format!("already running as pid {}, aborting\n", first.child.id());
    assert!(stderr.ends_with(&expected), "{stderr}");
    assert!(first.admin("ovsdb-server/list-dbs").contains("_Server"), "the first one goes on");
}

#[test]
fn the_exit_status_follows_the_command_of_run() {
    let mut server =
        Server::start_with("run", &[(RUN, "test -S \"$WEIR_HOST_TEST_DIRECTORY/db.sock\"")]);
    assert!(server.wait().success(), "the command runs while the server serves");
    let mut server = Server::start_with("run-fails", &[(RUN, "exit 3")]);
    assert!(!server.wait().success());
    let mut stderr = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.ends_with("ovsdb-server: exit 3: child exited, exit status 3\n"), "{stderr}");
    assert_eq!(server.left(), [] as [&str; 0]);
}

#[test]
fn the_stock_admin_tool_understands_us() {
    let server = Server::start("appctl");
    let appctl = |args: &[&str]| {
        let output =
            Command::new("ovs-appctl").arg("-t").arg(server.path("ctl")).args(args).output();
        output.ok().map(|output| {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (output.status.code(), text(output.stdout), text(output.stderr))
        })
    };
    let Some((code, list, _)) = appctl(&["list-commands"]) else {
        eprintln!("skipped: no ovs-appctl here");
        return;
    };
    assert_eq!(code, Some(0));
    assert!(list.starts_with("The available commands are:\n  c"), "{list}");
    assert!(list.contains("\n  coverage/read-counter   COUNTER\n"), "{list}");
    assert!(list.contains("memory-trim-on-compaction on|off\n"));
    let (code, _, error) = appctl(&["foo"]).unwrap();
    assert_eq!(code, Some(2));
    let expected =
        "\"foo\" is not a valid command (use \"list-commands\" to see a list of valid commands)\n";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(appctl(&["vlog/set", "jsonrpc:file:dbg"]).unwrap().0, Some(0));
    assert!(
        appctl(&["vlog/list"])
            .unwrap()
            .1
            .contains("jsonrpc           INFO       INFO        DBG\n")
    );
    assert_eq!(appctl(&["exit"]).unwrap().0, Some(0));
}
