//! `weir status`: one screen, JSON, and again every second, on a terminal and elsewhere.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Running, Scratch, WEIR, err, eventually, listens, out, reference};
use serde_json::Value;

const SCHEMA: &str = r#"{"name":"Net","tables":{"T":{"columns":{"a":{"type":"integer"}}}}}"#;

/// The signal of Ctrl-C.
const SIGINT: i32 = 2;

/// A server whose pid file and admin socket are in the run directory.
fn server(scratch: &Scratch, program: &Path, words: &[&str]) -> Running {
    let mut command: Command = scratch.command(program);
    command.args(words).args(["--pidfile", "-vconsole:off", "--remote=punix:x.sock"]);
    let running = Running::start(&mut command);
    let socket = format!("ovsdb-server.{}.ctl", running.pid());
    eventually("the admin socket is there", || listens(&scratch.path(&socket)));
    running
}

/// Weir, serving a database with one row.
fn with_a_row(scratch: &Scratch) -> Running {
    scratch.write("net.ovsschema", SCHEMA);
    let made = scratch.run(WEIR, &["tool", "create", "net.db", "net.ovsschema"]);
    assert!(made.status.success(), "{}", err(&made));
    let insert = r#"["Net",{"op":"insert","table":"T","row":{"a":1}}]"#;
    let done = scratch.run(WEIR, &["tool", "transact", "net.db", insert]);
    assert!(done.status.success(), "{}", err(&done));
    again(scratch)
}

fn again(scratch: &Scratch) -> Running {
    server(scratch, Path::new(WEIR), &["server", "net.db"])
}

fn end(scratch: &Scratch, mut server: Running) {
    let bye = scratch.run(WEIR, &["appctl", "-t", "ovsdb-server", "exit"]);
    assert!(bye.status.success(), "{}", err(&bye));
    assert!(server.wait().success());
}

#[test]
fn one_screen_and_who_cannot_tell() {
    let scratch = Scratch::new();
    let server_of_weir = with_a_row(&scratch);
    let shown = scratch.run(WEIR, &["status"]);
    assert!(shown.status.success(), "{}", err(&shown));
    let screen = out(&shown);
    let row = screen.lines().find(|line| line.starts_with("Net ")).unwrap_or_default();
    assert!(row.split_whitespace().nth(1) == Some("1") && row.ends_with(" ok"), "{screen}");
    assert!(screen.starts_with("ovsdb-server: memory ") && screen.ends_with("\nSLOW\nnothing\n"));
    assert!(!screen.contains('\x1b'), "{screen}");
    // By the path of its socket it is the same one.
    let socket = scratch.text(&format!("ovsdb-server.{}.ctl", server_of_weir.pid()));
    let by_path = scratch.run(WEIR, &["status", "-t", &socket]);
    assert!(out(&by_path).starts_with(&format!("{socket}: memory ")), "{}", err(&by_path));
    end(&scratch, server_of_weir);
    let Some(theirs) = reference("ovsdb-server") else { return };
    let _running = server(&scratch, &theirs, &["--no-dbs"]);
    let refused = scratch.run(WEIR, &["status"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("\"weir/status\" is not a valid command"), "{}", err(&refused));
}

#[test]
fn mistakes_are_told() {
    let scratch = Scratch::new();
    for (args, text) in [
        (&["-t", "nobody"][..], "weir: cannot read pidfile \""),
        (&["-t", "nobody", "--watch"], "weir: cannot read pidfile \""),
        (&["-t", "/nonexistent"], "weir: cannot connect to \"/nonexistent\" (No such file or"),
        (&["--nonsense"], "weir status: unrecognized option '--nonsense'\n"),
        (&["-t"], "weir status: option requires an argument -- 't'\n"),
        (&["--json=x"], "weir status: option '--json' doesn't allow an argument\n"),
        (&["OVN_Northbound"], "weir: unexpected word 'OVN_Northbound'; see weir status --help\n"),
    ] {
        let typed = [&["status"], args].concat();
        let failed = scratch.run(WEIR, &typed);
        assert_eq!(failed.status.code(), Some(1), "{args:?}");
        let said = err(&failed).replace(WEIR, "weir");
        assert!(said.starts_with(text) && said.lines().count() == 1, "{args:?}: {said}");
        assert_eq!(out(&failed), "", "{args:?}");
    }
}

/// Every name in the manual's list of members, with the object that it belongs to.
const MEMBERS: [(&str, &str); 4] = [
    (
        "/database",
        "atoms conversion file is_backup keys monitors name oldest_waiting_ms pending_bytes queued relay \
         rows waiting",
    ),
    ("/database/file", "compacting_ms fault path records size snapshot_size"),
    (
        "/sessions/0",
        "held kept_bytes locks monitors name queued_bytes read_only remote role silent_ms",
    ),
    (
        "/process",
        "kept_bytes kept_bytes_max queued_bytes resident_bytes rounds stall_ever_us stall_us",
    ),
];

#[test]
fn json_has_the_members_of_the_manual() {
    let scratch = Scratch::new();
    let _server = with_a_row(&scratch);
    let mut client = Running::start(scratch.command(WEIR).args([
        "client",
        "monitor",
        "unix:x.sock",
        "Net",
        "T",
    ]));
    client.line_with("initial");
    let shown = scratch.run(WEIR, &["status", "--json", "-t", "ovsdb-server"]);
    assert!(shown.status.success(), "{}", err(&shown));
    let text = out(&shown);
    assert_eq!(text.lines().count(), 1, "{text}");
    let mut status: Value = serde_json::from_str(&text).expect("JSON");
    let top: Vec<&str> = status.as_object().expect("object").keys().map(String::as_str).collect();
    assert_eq!(top, ["databases", "process", "sessions", "sessions_total", "work"]);
    let databases = status["databases"].as_array().expect("databases");
    let net = databases.iter().find(|db| db["name"] == "Net").cloned();
    status["database"] = net.expect("the database");
    let manual = out(&scratch.run(WEIR, &["status", "--help"]));
    let list = manual.split("Members of the JSON object:").nth(1).expect("the list");
    for (path, names) in MEMBERS {
        let object = status.pointer(path).and_then(Value::as_object).expect(path);
        let found: Vec<&str> = object.keys().map(String::as_str).collect();
        assert_eq!(found.join(" "), names, "{path} of {text}");
        for name in found {
            let words = |c: char| !c.is_alphanumeric() && c != '_';
            assert!(list.split(words).any(|word| word == name), "{name} in {manual}");
        }
    }
    let number = |path: &str| status.pointer(path).and_then(Value::as_i64);
    assert_eq!((number("/database/rows"), number("/database/monitors")), (Some(1), Some(1)));
    assert_eq!((number("/sessions_total"), number("/sessions/0/monitors")), (Some(1), Some(1)));
    assert_eq!(status.pointer("/work"), Some(&Value::Array(vec![])));
    assert!(number("/process/resident_bytes") > Some(0) && number("/process/rounds") > Some(0));
}

#[test]
fn a_terminal_is_cleared_before_each_look() {
    let scratch = Scratch::new();
    let server = with_a_row(&scratch);
    let mut command = scratch.command("script");
    let typed = format!("exec {WEIR} status --watch");
    command.args(["-qec", &typed, "/dev/null"]).stdin(Stdio::piped());
    if scratch.command("script").arg("-V").output().is_err() {
        return eprintln!("skipped: no script(1)");
    }
    let mut terminal = Running::start(&mut command);
    for _ in 0..3 {
        terminal.line_with("\x1b[H\x1b[Jovsdb-server: memory ");
        terminal.line_with("SLOW");
    }
    end(&scratch, server);
    let gone = terminal.line_with("no status: ");
    assert!(gone.starts_with("\x1b[H\x1b[Jno status: "), "{gone:?}");
    let _server = again(&scratch);
    terminal.line_with("\x1b[H\x1b[Jovsdb-server: memory ");
    terminal.type_in(b"\x03");
    assert_eq!(terminal.wait().code(), Some(128 + SIGINT));
}

#[test]
fn elsewhere_looks_are_plain_blocks() {
    let scratch = Scratch::new();
    let server = with_a_row(&scratch);
    let mut watch = Running::start(scratch.command(WEIR).args(["status", "--watch"]));
    watch.line_with("ovsdb-server: memory ");
    for _ in 0..2 {
        watch.line_with("SLOW");
        assert_eq!(watch.line_with(""), "nothing");
        assert_eq!(watch.line_with(""), "", "an empty line stands between two looks");
        assert!(watch.line_with("").starts_with("ovsdb-server: memory "));
    }
    end(&scratch, server);
    let gone = watch.line_with("no status: ");
    assert!(gone.ends_with("; asking again every second"), "{gone}");
    let _server = again(&scratch);
    watch.line_with("ovsdb-server: memory ");
    assert!(watch.seen().iter().all(|line| !line.contains('\x1b')), "{:#?}", watch.seen());
    interrupt(&watch);
    assert_eq!(watch.wait().signal(), Some(SIGINT));
}

#[test]
fn programs_get_a_line_a_look_and_nothing_else() {
    let scratch = Scratch::new();
    let server = with_a_row(&scratch);
    let complaints = std::fs::File::create(scratch.path("stderr")).expect("a file");
    let mut command = scratch.command(WEIR);
    let mut watch =
        Running::start(command.args(["status", "--json", "--watch"]).stderr(complaints));
    watch.line_with("{");
    watch.line_with("{");
    end(&scratch, server);
    let said = || std::fs::read_to_string(scratch.path("stderr")).unwrap_or_default();
    eventually("it says that the server is gone", || said().starts_with("weir: no status: "));
    let _server = again(&scratch);
    watch.line_with("{");
    for line in watch.seen() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
    interrupt(&watch);
    assert_eq!(watch.wait().signal(), Some(SIGINT));
}

fn interrupt(process: &Running) {
    let sent = Command::new("kill").args(["-INT", &process.pid().to_string()]).status();
    assert!(sent.expect("kill(1)").success());
}
