//! ovsdb-client in the background, over TLS, and at its end: beside the reference's client, against
//! both servers.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Running, Scratch, WEIR, err, eventually, listens, out, reference};
use weir_testkit::pki::Pki;

/// A server with an empty database, and both clients.
struct Room {
    scratch: Scratch,
    server: Option<Running>,
    clients: [PathBuf; 2],
}

const SCHEMA: &str = r#"{"name":"Odd","tables":{"T":{"isRoot":true,"columns":{
    "name":{"type":"string"},"n":{"type":"integer"}}}}}"#;

/// Runs a scenario for each of the two servers and clients; what it says must not depend on the
/// client.
fn clients_agree(options: &[&str], scenario: impl Fn(&mut Room, &PathBuf) -> String) {
    let (Some(server), Some(client)) = (reference("ovsdb-server"), reference("ovsdb-client"))
    else {
        return;
    };
    for is_ours in [true, false] {
        let said = [0, 1].map(|place| {
            let scratch = Scratch::new();
            scratch.write("schema", SCHEMA);
            let created = scratch.run(scratch.link("ovsdb-tool"), &["create", "db", "schema"]);
            assert!(created.status.success(), "{}", err(&created));
            let program = if is_ours { scratch.link("ovsdb-server") } else { server.clone() };
            let mut command = scratch.command(program);
            command.args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off", "db"]);
            let running = Running::start(command.args(options));
            eventually("the server listens", || listens(&scratch.path("server.ctl")));
            let clients = [scratch.link("ovsdb-client"), client.clone()];
            let mut room = Room { scratch, server: Some(running), clients };
            let client = room.clients[place].clone();
            let folder = room.scratch.text("");
            scenario(&mut room, &client).replace(&folder, "")
        });
        assert_eq!(said[0], said[1], "the server is ours: {is_ours}");
    }
}

impl Room {
    fn insert(&self, name: &str) {
        let transaction =
            format!(r#"["Odd",{{"op":"insert","table":"T","row":{{"name":"{name}","n":1}}}}]"#);
        let inserted = self.scratch.run(&self.clients[0], &["transact", &transaction]);
        assert!(out(&inserted).contains("uuid"), "{}", err(&inserted));
    }

    fn ctl(&self, target: &str, words: &[&str]) -> String {
        let target = self.scratch.text(target);
        let said = self.scratch.run(WEIR, &[&["appctl", "-t", &target][..], words].concat());
        out(&said) + &err(&said)
    }

    /// A client in the background that writes to the file `out`; the name of its admin socket.
    fn detach(&self, client: &PathBuf, args: &[&str]) -> String {
        let file = std::fs::File::create(self.scratch.path("out")).expect("a file");
        let mut command = self.scratch.command(client);
        command.args(["--detach", "--no-chdir", "--pidfile=pid"]).args(args);
        assert!(command.stdout(Stdio::from(file)).status().expect("it starts").success());
        let pid = std::fs::read_to_string(self.scratch.path("pid")).expect("the pid file");
        format!("ovsdb-client.{}.ctl", pid.trim())
    }

    /// What the client in the background wrote, once this is in it; UUIDs are left out.
    fn written(&self, text: &str) -> String {
        let read = || std::fs::read_to_string(self.scratch.path("out")).expect("the output");
        eventually(text, || read().contains(text));
        let no_uuid = |line: &str| match line.split_once(' ') {
            Some((uuid, rest)) if uuid.len() == 36 => rest.to_owned() + "\n",
            _ => line.to_owned() + "\n",
        };
        read().lines().map(no_uuid).collect()
    }

    /// Ends a client in the background.
    fn exit(&self, target: &str) {
        self.ctl(target, &["exit"]);
        eventually("the client cleans up", || {
            !self.scratch.path("pid").exists() && !self.scratch.path(target).exists()
        });
    }
}

#[test]
fn a_monitor_in_the_background_takes_commands() {
    clients_agree(&[], |room, client| {
        let target = room.detach(client, &["monitor-cond", "Odd", "[true]", "T", "name"]);
        let mut said = vec![];
        room.insert("first");
        said.push(room.written("first"));
        for words in [&["ovsdb-client/block"][..], &["ovsdb-client/block"]] {
            said.push(room.ctl(&target, words));
        }
        room.insert("second");
        for words in [
            &["ovsdb-client/cond_change", "T"][..],
            &["ovsdb-client/unblock"],
            &["ovsdb-client/unblock"],
            &["ovsdb-client/cond_change", "T", r#"[["name","==","first"]]"#],
        ] {
            said.push(room.ctl(&target, words));
        }
        said.push(room.written("delete"));
        room.exit(&target);
        said.join("").replace(&target, "TARGET")
    });
}

#[test]
fn locks_in_the_background() {
    clients_agree(&[], |room, client| {
        let target = room.detach(client, &["lock", "a"]);
        // The reference passes over the reply to all but the last request: one after the other.
        for (words, reply) in [
            (["lock", "b"], "true}\n{\"locked\":true}"),
            (["unlock", "a"], "{}"),
            (["lock", "b"], "{}"),
            (["steal", "c"], "{}\n{\"locked\":true}"),
        ] {
            assert_eq!(room.ctl(&target, &words), "");
            room.written(reply);
        }
        let mut thief = room.scratch.command(&room.clients[1]);
        let _thief = Running::start(thief.args(["-vconsole:off", "steal", "c"]));
        let written = room.written("stolen");
        room.exit(&target);
        written
    });
}

/// Starts a monitor, does something, and tells how the monitor ends.
fn end_of_monitor(
    room: &mut Room,
    client: &PathBuf,
    args: &[&str],
    then: impl FnOnce(&mut Room),
) -> String {
    let mut command = room.scratch.command(client);
    let errors = std::fs::File::create(room.scratch.path("err")).expect("a file");
    command.args(args).args(["monitor", "Odd", "T", "name"]).stderr(Stdio::from(errors));
    let mut monitor = Running::start(&mut command);
    room.insert("seen");
    monitor.line_with("seen");
    then(room);
    let status = monitor.wait();
    let said = std::fs::read_to_string(room.scratch.path("err")).expect("the errors");
    format!("{args:?}: {status}: {said}")
}

#[test]
fn monitors_end_with_their_database_or_server() {
    clients_agree(&[], |room, client| {
        let aware = end_of_monitor(room, client, &[], |room| {
            room.ctl("server.ctl", &["ovsdb-server/remove-db", "Odd"]);
        });
        room.ctl("server.ctl", &["ovsdb-server/add-db", &room.scratch.text("db")]);
        let unaware = end_of_monitor(room, client, &["--no-db-change-aware"], |room| {
            room.ctl("server.ctl", &["ovsdb-server/remove-db", "Odd"]);
        });
        room.ctl("server.ctl", &["ovsdb-server/add-db", &room.scratch.text("db")]);
        let killed = end_of_monitor(room, client, &[], |room| room.server = None);
        format!("{aware}{unaware}{killed}")
    });
}

#[test]
fn a_wait_goes_on_when_the_server_does() {
    let scratch = Scratch::new();
    scratch.write("schema", SCHEMA);
    scratch.run(scratch.link("ovsdb-tool"), &["create", "db", "schema"]);
    let start = || {
        let mut command = scratch.command(scratch.link("ovsdb-server"));
        let args = ["--no-dbs", "--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off"];
        let running = Running::start(command.args(args));
        eventually("the server listens", || listens(&scratch.path("server.ctl")));
        running
    };
    let ctl = |words: &[&str]| {
        let target = scratch.text("server.ctl");
        scratch.run(WEIR, &[&["appctl", "-t", &target][..], words].concat())
    };
    let mut command = scratch.command(scratch.link("ovsdb-client"));
    let mut wait = Running::start(command.args(["-vconsole:off", "wait", "Odd", "added"]));
    let first = start();
    eventually("the client asks", || out(&ctl(&["memory/show"])).contains("sessions:1"));
    drop(first);
    let _ = std::fs::remove_file(scratch.path("server.ctl"));
    let _second = start();
    assert!(ctl(&["ovsdb-server/add-db", &scratch.text("db")]).status.success());
    assert!(wait.wait().success());
}

/// A member that is stopped is connected to by the system, and answers nothing.
#[test]
fn a_server_that_stands_still_does_not_keep_others_from_being_asked() {
    clients_agree(&[], |room, client| {
        room.insert("first");
        let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = silent.local_addr().expect("bound").port();
        let servers = format!("tcp:127.0.0.1:{port},unix:{}", room.scratch.text("db.sock"));
        let run = |args: &[&str]| {
            let done = room.scratch.run(client, &[&["-vconsole:off", "-t", "120"], args].concat());
            assert!(done.status.success(), "{args:?}: {}", err(&done));
            out(&done)
        };
        // The reference's `wait` takes one server.
        if *client == room.clients[0] {
            run(&["wait", &servers, "Odd", "connected"]);
        }
        run(&["dump", &servers, "Odd", "T", "name"])
    });
}

#[test]
fn connections_over_tls() {
    let Some(pki) = Pki::usual("client") else {
        eprintln!("skipped: openssl is not installed");
        return;
    };
    let [server, client] = ["server", "client"].map(|name| pki.arguments(name));
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = socket.local_addr().expect("bound").port();
    drop(socket);
    let remote = format!("--remote=pssl:{port}:127.0.0.1");
    clients_agree(&[&remote, &server[0], &server[1], &server[2]], |room, program| {
        let peer = format!("ssl:127.0.0.1:{port}");
        let args = client.each_ref().map(String::as_str);
        room.insert("first");
        let dump = [&args[..], &["dump", &peer, "Odd", "T", "name"]].concat();
        let dump = out(&room.scratch.run(program, &dump));
        assert!(dump.contains("first"), "{dump}");
        // Many small records of one moment: none may stay behind poll(2).
        let target = room.detach(program, &[&args[..], &["monitor", &peer, "Odd", "T"]].concat());
        let rows = |from: usize| -> String {
            let row = |n| format!(r#",{{"op":"insert","table":"T","row":{{"name":"z{n}"}}}}"#);
            (from..from + 300).map(row).collect()
        };
        for from in [1000, 2000, 3000] {
            let transaction = format!(r#"["Odd"{}]"#, rows(from));
            assert!(
                room.scratch.run(&room.clients[0], &["transact", &transaction]).status.success()
            );
            room.written(&format!("z{}", from + 299));
        }
        room.exit(&target);
        let nobody = [&args[..], &["list-dbs", "ssl:127.0.0.1:1"]].concat();
        dump + &err(&room.scratch.run(program, &nobody))
    });
}

#[test]
fn a_reader_that_left_is_no_failure_and_a_full_disk_is_one() {
    clients_agree(&[], |room, client| {
        let end = |client: &PathBuf, args: &[&str], out: Stdio| {
            let mut command: Command = room.scratch.command(client);
            let ended = command.args(args).stdout(out).output().expect("it starts");
            format!("{} {}", ended.status, err(&ended))
        };
        let mut said = String::new();
        for args in [&["dump"][..], &["list-dbs"], &["backup"], &["get-schema"]] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            said += &end(client, args, writer.into());
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
            let ended = end(&room.clients[0], args, full.expect("/dev/full").into());
            assert_eq!(ended, "exit status: 1 ovsdb-client: write to stdout failed\n");
        }
        said
    });
}
