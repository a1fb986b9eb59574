//! What the server makes of its files when things go wrong: kills, full disks, bad files, signals.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::peer::{Client, SCHEMA, Server, create, insert, transact};
use crate::support::{self, Scratch, err, eventually, out, reference};

/// Writes ports until the connection breaks; the names of those that were answered.
fn write_until_killed(mut client: Client, prefix: &str, answered: &Mutex<Vec<String>>) {
    for i in 0.. {
        let name = format!("{prefix}-{i}");
        let durable = i % 16 == 0;
        let commit = format!(r#"{{"op":"commit","durable":{durable}}}"#);
        let request = transact(&format!("{},{commit}", insert(&name, "some text")));
        let Some(reply) = client.try_call(&request) else { return };
        assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply}");
        answered.lock().expect("a lock").push(name);
    }
}

#[test]
fn nothing_answered_is_lost_by_a_kill_under_load() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let mut expected: Vec<String> = vec![];
    for life in 0..4 {
        let server = Server::start(&scratch);
        let found = server.client().ports();
        for name in &expected {
            assert!(found.binary_search(name).is_ok(), "{name} is lost, life {life}");
        }
        // Besides, at most what each writer had under way at the kill.
        assert!(found.len() <= expected.len() + 4, "{} of {}", found.len(), expected.len());
        let answered = Mutex::new(found);
        let before = answered.lock().expect("a lock").len();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (client, answered) = (server.client(), &answered);
                let prefix = format!("{life}-{writer}");
                scope.spawn(move || write_until_killed(client, &prefix, answered));
            }
            let written = |count| {
                eventually("the writers write", || {
                    answered.lock().expect("a lock").len() >= before + count
                });
            };
            written(100);
            if life % 2 == 1 {
                let reply = server.admin("ovsdb-server/compact", "");
                assert!(reply.contains(r#""error":null"#), "{reply}");
            }
            written(300 + 37 * life);
            server.kill();
        });
        expected = answered.into_inner().expect("a lock");
    }
    // The kill may have torn the last record; the next write cuts it off, for stock tools read
    // no file with a torn end.
    let server = Server::start(&scratch);
    let reply = server.client().transact(&insert("last", "after the kills"));
    assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply}");
    server.kill();
    if let Some(tool) = reference("ovsdb-tool") {
        let shown = scratch.run(
            tool,
            &[
                "query",
                "net.db",
                r#"["Net",{"op":"select","table":"Port","where":[],"columns":["name"]}]"#,
            ],
        );
        assert!(shown.status.success(), "{}", err(&shown));
        let rows = out(&shown).matches(r#""name":"#).count();
        assert!(rows > expected.len(), "{rows} of {}", expected.len());
    }
}

/// Writes until the disk is full and checks what everybody sees of it; the ports that are there.
fn fill(server: &Server, why: &str) -> Vec<String> {
    let (mut writer, mut reader) = (server.client(), server.client());
    let text = "x".repeat(50_000);
    let mut names = vec![];
    let refused = loop {
        let name = format!("p{:03}", names.len());
        let reply = writer.transact(&insert(&name, &text));
        if reply.contains("error\":\"") {
            break reply;
        }
        names.push(name);
        assert!(names.len() < 1000, "the disk is never full");
    };
    let error = format!(r#""error":"I/O error","io-error":"{why}"}}]"#);
    assert!(refused.contains(&error), "{refused}");
    assert!(!names.is_empty());
    // Readers are served, and see nothing of what was refused.
    assert_eq!(reader.ports(), names);
    // Small ones may still fit; whatever is refused leaves the rest as it is.
    let reply = writer.transact(&insert("again", &text));
    assert!(reply.contains(&error), "{reply}");
    assert_eq!(writer.ports(), names);
    names
}

/// There is room again: writes go on, and everything is there after a restart.
fn goes_on(scratch: &Scratch, server: Server, mut names: Vec<String>) {
    let mut writer = server.client();
    let reply = writer.transact(&insert("room", "again"));
    assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply}");
    names.push("room".into());
    assert_eq!(writer.ports(), names);
    server.kill();
    let server = Server::start(scratch);
    assert_eq!(server.client().ports(), names);
    assert!(!server.log().contains("|ovsdb_file|"), "a torn record: {}", server.log());
}

/// The reference reads a file without a complaint, and finds this many ports.
fn reference_reads(scratch: &Scratch, file: &str, ports: usize) {
    let Some(tool) = reference("ovsdb-tool") else { return };
    let query = r#"["Net",{"op":"select","table":"Port","where":[],"columns":["name"]}]"#;
    let shown = scratch.run(tool, &["query", file, query]);
    assert!(shown.status.success(), "{}", err(&shown));
    assert_eq!(err(&shown), "");
    assert_eq!(out(&shown).matches(r#""name":"#).count(), ports);
}

#[test]
fn a_file_that_may_not_grow_refuses_writers_only() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let link = scratch.link("ovsdb-server");
    let mut shell = scratch.command("sh");
    // 2,000 blocks of 512 bytes.
    let line = format!(r#"ulimit -S -f 2000; exec "{}" "$@""#, link.display());
    shell.args(["-c", &line, "sh"]).args(Server::ARGS);
    let server = Server::spawn(&scratch, shell);
    let names = fill(&server, "File too large");
    reference_reads(&scratch, "net.db", names.len());
    let pid = server.pid().to_string();
    let raised = scratch.run("prlimit", &["--pid", &pid, "--fsize=unlimited"]);
    assert!(raised.status.success(), "{}", err(&raised));
    goes_on(&scratch, server, names);
}

#[test]
fn a_full_disk_refuses_writers_only() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    std::fs::create_dir(scratch.path("disk")).expect("a folder");
    // A disk of 1 MiB that only the server sees, in a namespace of its own.
    let mount = "mount -t tmpfs -o size=1M tmpfs disk && cp net.db disk/ && \
        dd if=/dev/zero of=disk/ballast bs=1000 count=500 2>/dev/null && ln -sf disk/net.db net.db";
    let link = scratch.link("ovsdb-server");
    let unshare = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let tried = scratch.command("unshare").args(unshare).arg(format!("set -e; {mount}")).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: no mount namespace may be created here");
        return;
    }
    std::fs::remove_file(scratch.path("net.db")).expect("the link");
    create(&scratch, "net.db");
    let mut command = scratch.command("unshare");
    command.args(unshare).arg(format!(r#"{mount} && exec "{}" "$@""#, link.display()));
    command.arg("sh").args(Server::ARGS);
    let server = Server::spawn(&scratch, command);
    let names = fill(&server, "No space left on device");
    let disk = PathBuf::from(format!("/proc/{}/root", server.pid()))
        .join(scratch.path("disk").strip_prefix("/").expect("absolute"));
    let copy = || std::fs::copy(disk.join("net.db"), scratch.path("copy.db")).expect("a copy");
    copy();
    reference_reads(&scratch, "copy.db", names.len());
    // A compaction finds no room either, says so, and changes nothing.
    let reply = server.admin("ovsdb-server/compact", "");
    assert!(reply.contains("No space left on device"), "{reply}");
    // Nor does a conversion.
    let schema = SCHEMA.replace("1.0.0", "2.0.0");
    assert_ne!(schema, SCHEMA);
    let convert = format!(r#"{{"id":7,"method":"convert","params":["Net",{schema}]}}"#);
    let reply = server.client().call(&convert);
    assert!(reply.contains(r#""error":"I/O error""#), "{reply}");
    assert!(reply.contains("No space left on device"), "{reply}");
    assert_eq!(server.client().ports(), names);
    let left: Vec<_> = std::fs::read_dir(&disk).expect("the disk").flatten().collect();
    assert!(
        left.iter().all(|entry| !entry.file_name().to_string_lossy().contains("tmp")),
        "{left:?}"
    );
    std::fs::remove_file(disk.join("ballast")).expect("the ballast");
    let reply = server.client().transact(&insert("room", "again"));
    assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply}");
    let copied = copy();
    assert!(copied > 100_000);
    reference_reads(&scratch, "copy.db", names.len() + 1);
    // What could not be done is done now.
    assert_eq!(server.client().call(&convert), r#"{"id":7,"result":{},"error":null}"#);
    assert!(server.client().ports().contains(&"room".to_owned()));
    let log = server.log();
    for line in [
        "write failed (No space left on device), the database is read-only",
        "no longer read-only",
        "compaction failed",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    server.is_well();
}

#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() {
    for signal in ["TERM", "INT", "HUP"] {
        let scratch = Scratch::new();
        create(&scratch, "net.db");
        let mut command = scratch.command(scratch.link("ovsdb-server"));
        command.args(Server::ARGS).arg("--pidfile=server.pid");
        let mut server = Server::spawn(&scratch, command);
        let pid = std::fs::read_to_string(scratch.path("server.pid")).expect("a pid file");
        assert_eq!(pid.trim(), server.pid().to_string());
        let mut client = server.client();
        client.transact(&insert("p", "written"));
        server.signal(signal);
        let status = server.wait();
        assert!(!status.success(), "{status}");
        assert!(client.receive().is_none());
        for name in ["server.pid", "s.sock", "ctl.sock"] {
            assert!(!scratch.path(name).exists(), "{name} is still there after {signal}");
        }
        assert_eq!(Server::start(&scratch).client().ports(), ["p"]);
    }
}

#[test]
fn two_servers_do_not_share_a_file() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let first = Server::start(&scratch);
    let lock = format!(
        "lockfile|WARN|.net.db.~lock~: cannot lock file because it is already locked by pid {}",
        first.pid()
    );
    let servers = [Some(scratch.link("ovsdb-server")), reference("ovsdb-server")];
    for server in servers.into_iter().flatten() {
        let second = scratch.run(server, &["--remote=punix:t.sock", "--unixctl=none", "net.db"]);
        assert_eq!(second.status.code(), Some(1));
        let said = err(&second);
        let error =
            "I/O error: net.db: failed to lock lockfile (Resource temporarily unavailable)\n";
        assert!(said.contains(error), "{said}");
        assert!(said.contains(&lock) || said.contains("/.net.db.~lock~: cannot lock"), "{said}");
    }
    first.is_well();
}

#[test]
fn a_file_that_is_no_database_is_refused_and_named() {
    let scratch = Scratch::new();
    create(&scratch, "good.db");
    let good = std::fs::read_to_string(scratch.path("good.db")).expect("UTF-8");
    scratch.write("empty.db", "");
    scratch.write("text.db", "hello world\n");
    scratch.write("torn.db", &good[..100]);
    scratch.write("changed.db", &good.replace("Port", "Part"));
    scratch.write("clustered.db", "OVSDB CLUSTER 2 0000000000000000000000000000000000000000\n{}");
    std::fs::create_dir(scratch.path("folder.db")).expect("a folder");
    let cases = [
        ("missing.db", "I/O error: missing.db: open failed (No such file or directory)"),
        ("folder.db", "I/O error: folder.db: open failed (Is a directory)"),
        ("empty.db", "ovsdb error: empty.db: cannot identify file type"),
        ("text.db", "ovsdb error: text.db: unexpected file format"),
        ("torn.db", "I/O error: torn.db: error reading"),
        ("changed.db", "syntax error: changed.db: "),
        (
            "clustered.db",
            "syntax error: clustered.db: 2 bytes starting at offset 57 have SHA-1 hash",
        ),
    ];
    let packaged = reference("ovsdb-server");
    for (file, expected) in cases {
        let args = ["--remote=punix:s.sock", "--unixctl=none", "--run=true", file];
        let refused = scratch.run(scratch.link("ovsdb-server"), &args);
        let said = err(&refused);
        assert_eq!(refused.status.code(), Some(1), "{file}: {said}");
        let first = said.lines().next().unwrap_or_default();
        let marker = format!("|ovsdb_server|WARN|failed to open database '{file}': ");
        let (_, error) = first.split_once(&marker).expect(&said);
        assert!(error.starts_with(expected), "{file}: {said}");
        assert!(said.ends_with("\novsdb-server: server configuration failed\n"), "{said}");
        assert!(!scratch.path("s.sock").exists());
        if let Some(packaged) = packaged.as_ref().filter(|_| file != "clustered.db") {
            let theirs = err(&scratch.run(packaged, &args));
            // The installed version may be of the time before configuration files.
            let old = format!("ovsdb-server: {error}\n");
            assert!(theirs == old || theirs.contains(&format!("{marker}{error}\n")), "{theirs}");
        }
    }
}

fn read(scratch: &Scratch, name: &str) -> Vec<u8> {
    std::fs::read(scratch.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn what_cannot_be_read_of_a_file_is_kept_beside_it() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let server = Server::start(&scratch);
    server.client().transact(&insert("good", "text"));
    server.kill();
    let good = read(&scratch, "net.db");
    let good = String::from_utf8(good).expect("UTF-8");
    let torn = format!("{good}OVSDB JSON 20 half a rec");
    scratch.write("net.db", &torn);
    let server = Server::start(&scratch);
    assert_eq!(server.client().ports(), ["good"]);
    assert!(!scratch.path("net.db.torn.1").exists(), "nobody has written");
    server.client().transact(&insert("new", "text"));
    assert_eq!(read(&scratch, "net.db.torn.1"), b"OVSDB JSON 20 half a rec");
    let log = server.log();
    let line = format!(
        "/net.db: what follows offset {} cannot be read and is cut off; its 24 bytes are kept in ",
        good.len()
    );
    assert!(log.contains("|ovsdb_log|WARN|") && log.contains(&line), "{log}");
    server.kill();
    reference_reads(&scratch, "net.db", 2);
}

#[test]
fn exit_ends_it_within_two_seconds_whatever_the_size() {
    // The promise is about 200 MB; everybody's run makes sure with less that nothing is written.
    let slow = std::env::var_os("WEIR_SLOW_TESTS").is_some();
    let (megabytes, limit) =
        if slow { (200, Duration::from_secs(2)) } else { (5, support::PATIENCE) };
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let mut server = Server::start(&scratch);
    let mut client = server.client();
    let text = "y".repeat(1000);
    for i in 0..megabytes {
        let rows: Vec<String> = (0..1000).map(|j| insert(&format!("{i}-{j}"), &text)).collect();
        client.transact(&rows.join(","));
    }
    let size = std::fs::metadata(scratch.path("net.db")).expect("the file").len();
    assert!(size > megabytes * 1_000_000);
    let start = Instant::now();
    assert!(server.admin("exit", "").contains(r#""error":null"#));
    assert!(server.wait().success());
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    assert_eq!(std::fs::metadata(scratch.path("net.db")).expect("the file").len(), size);
}

#[test]
fn a_kill_during_a_compaction_leaves_the_old_file_or_the_new_one() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let mut server = Server::start(&scratch);
    let rows: Vec<String> = (0..5000).map(|i| insert(&format!("p{i:05}"), "text")).collect();
    server.client().transact(&rows.join(","));
    for delay in [0, 1, 3, 10, 30] {
        let asked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let socket = scratch.path("ctl.sock");
            let mut control = Client::connect(&socket).expect("the admin socket");
            let asked = &asked;
            scope.spawn(move || {
                let compact = r#"{"id":0,"method":"ovsdb-server/compact","params":[]}"#;
                control.send(compact).expect("sending");
                asked.store(true, Ordering::Release);
                control.try_call("")
            });
            eventually("the request is sent", || asked.load(Ordering::Acquire));
            std::thread::sleep(Duration::from_millis(delay));
            server.signal("KILL");
        });
        drop(server);
        server = Server::start(&scratch);
        assert_eq!(server.client().ports().len(), 5000);
    }
    assert!(server.admin("ovsdb-server/compact", "").contains(r#""error":null"#));
    assert!(!scratch.path("net.db.tmp").exists(), "what was left goes with the next one");
}
