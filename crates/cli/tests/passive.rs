//! ovsdb-client waits for a server that connects (`punix:`, `ptcp:`, `pssl:`): our client beside the
//! reference's, each command once. Without the reference only ours is looked at.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{Running, Scratch, WEIR, err, eventually, listens, out, reference};
use weir_testkit::pki::Pki;

const SCHEMA: &str = r#"{"name":"Odd","version":"1.2.3","cksum":"12 345","tables":{"T":{
    "isRoot":true,"columns":{"name":{"type":"string"}}}}}"#;

const SELECT: &str = r#"["Odd",{"op":"select","table":"T","where":[]},{"op":"abort"}]"#;

/// A server that connects where it is told to, and the clients.
struct Room {
    scratch: Scratch,
    _server: Running,
    clients: Vec<PathBuf>,
}

/// A client that waits; killed at the end if it still runs.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Room {
    fn new(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        scratch.write("schema", SCHEMA);
        let created = scratch.run(scratch.link("ovsdb-tool"), &["create", "db", "schema"]);
        assert!(created.status.success(), "{}", err(&created));
        let mut command = scratch.command(scratch.link("ovsdb-server"));
        command.args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off", "db"]);
        let server = Running::start(command.args(options));
        eventually("the server listens", || listens(&scratch.path("server.ctl")));
        let mut clients = vec![scratch.link("ovsdb-client")];
        clients.extend(reference("ovsdb-client"));
        Self { scratch, _server: server, clients }
    }

    fn remote(&self, command: &str, remote: &str) {
        let target = self.scratch.text("server.ctl");
        let command = format!("ovsdb-server/{command}");
        let said = self.scratch.run(WEIR, &["appctl", "-t", &target, &command, remote]);
        assert!(said.status.success(), "{remote}: {}", err(&said));
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.scratch.path(name)).unwrap_or_default()
    }

    /// Starts a client that listens at `place`; what the server must connect to.
    fn listen(&self, client: &PathBuf, place: &str, args: &[&str]) -> (Waiting, String) {
        let file = |name| Stdio::from(File::create(self.scratch.path(name)).expect("a file"));
        let mut command: Command = self.scratch.command(client);
        command.args(["-vsyslog:off", "-t", "60"]).args(args);
        command.stdout(file("out")).stderr(file("err"));
        let child = Waiting(command.spawn().expect("the client starts"));
        eventually("the client listens", || {
            let said = self.read("err");
            said.contains("waiting for connection") || said.contains("listening...")
        });
        let remote = match place.split_once(':') {
            Some(("punix", path)) => format!("unix:{}", self.scratch.text(path)),
            _ => {
                let said = self.read("err");
                let port = said.split("listening on port ").nth(1).expect("a port");
                let port = port.lines().next().expect("a line");
                format!(
                    "{}:127.0.0.1:{port}",
                    if place.starts_with("pssl") { "ssl" } else { "tcp" }
                )
            }
        };
        (child, remote)
    }

    /// One command; the server connects, and leaves again once `leave_after` has been printed.
    fn run(&self, client: &PathBuf, place: &str, args: &[&str], leave_after: &str) -> String {
        let (mut client, remote) = self.listen(client, place, args);
        self.remote("add-remote", &remote);
        if !leave_after.is_empty() {
            eventually(leave_after, || self.read("out").contains(leave_after));
            self.remote("remove-remote", &remote);
        }
        let mut status = None;
        eventually("the client ends", || {
            status = client.0.try_wait().expect("a child");
            status.is_some()
        });
        if leave_after.is_empty() {
            self.remote("remove-remote", &remote);
        }
        assert!(!self.scratch.path("back.sock").exists(), "the socket is removed");
        let status = status.expect("just seen").into_raw();
        format!("{status}\n{}--\n{}", self.read("out"), without_numbers(&self.read("err")))
    }

    /// What our client says of a command of which both clients say the same.
    fn alike(&self, place: &str, args: &[&str], leave_after: &str) -> String {
        let said: Vec<String> =
            self.clients.iter().map(|client| self.run(client, place, args, leave_after)).collect();
        for other in &said {
            assert_eq!(said[0], *other, "{args:?}");
        }
        said[0].clone()
    }
}

/// Log lines without what differs: times, ports, and the form of the line about a port.
fn without_numbers(text: &str) -> String {
    let line = |line: &str| {
        let line = line.split_once("Z|0").map_or(line, |(_, rest)| rest);
        if line.contains("listening on port ") {
            return "listening on port N\n".to_owned();
        }
        match line.split_once("127.0.0.1:") {
            Some((before, after)) if after.starts_with(|c: char| c.is_ascii_digit()) => {
                let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before}127.0.0.1:PORT{rest}\n")
            }
            _ => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

#[test]
fn every_command_waits_for_a_server() {
    let room = Room::new(&[]);
    let at = "punix:back.sock";
    room.scratch.write("schema2", &SCHEMA.replace("1.2.3", "1.2.4"));
    for (args, leave_after, expected) in [
        (&["list-dbs", at][..], "", "Odd\n_Server\n"),
        (&["get-schema-version", at, "Odd"], "", "1.2.3\n"),
        (&["list-tables", at], "", "T"),
        (&["transact", at, SELECT], "", "[{\"rows\":[]}"),
        (&["query", at, SELECT], "", "[{\"rows\":[]}"),
        (&["dump", at], "", "T table"),
        (&["backup", at], "", "OVSDB JSON"),
        (&["needs-conversion", at, "schema2"], "", "yes\n"),
        (&["convert", at, "schema2"], "", "0\n"),
        (&["convert", at, "schema"], "", "0\n"),
        (&["wait", at, "Odd", "connected"], "", "reconnect|INFO|punix:back.sock: listening..."),
        (&["monitor", at, "T", "nope"], "", "unix#0: table"),
        (
            &["-fjson", "monitor", at, "_Server", "Database", "name"],
            "Odd",
            "unix#0: receive failed",
        ),
        (&["lock", at, "L"], "locked", "{\"locked\":true}"),
        (&["dump", "punix:back.sock,punix:back.sock", "Odd"], "", "T table"),
    ] {
        let said = match args[0] {
            // Dates and row ids are each run's own.
            "backup" | "monitor" | "-fjson" | "lock" => {
                let said: Vec<String> = room
                    .clients
                    .iter()
                    .map(|client| room.run(client, at, args, leave_after))
                    .collect();
                let ends = |said: &String| said.rsplit_once("--\n").map(|(_, end)| end.to_owned());
                assert_eq!(ends(&said[0]), said.last().and_then(ends), "{args:?}");
                assert!(said.iter().all(|said| said.contains(expected)), "{said:?}");
                continue;
            }
            _ => room.alike(at, args, leave_after),
        };
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn a_backup_is_restored_to_a_server_that_connects() {
    let room = Room::new(&[]);
    let backup = room.scratch.run(&room.clients[0], &["backup"]);
    room.scratch.write("backup", &out(&backup));
    for client in &room.clients {
        let mut shell = room.scratch.command("sh");
        let script = r#"exec "$0" -t 60 restore punix:back.sock < backup 2> err"#;
        let child = shell.args(["-c", script]).arg(client).stdout(Stdio::piped()).spawn();
        let mut child = Waiting(child.expect("sh"));
        eventually("it listens", || room.read("err").contains("waiting for connection"));
        let remote = format!("unix:{}", room.scratch.text("back.sock"));
        room.remote("add-remote", &remote);
        assert!(child.0.wait().expect("a child").success(), "{}", room.read("err"));
        room.remote("remove-remote", &remote);
        room.scratch.write("err", "");
    }
}

#[test]
fn servers_connect_over_tcp_and_tls() {
    let Some(pki) = Pki::usual("passive") else { return eprintln!("skipped: no openssl") };
    let (key, certificate, ca) =
        (pki.key("server"), pki.certificate("server"), pki.certificate("ca"));
    let room = Room::new(&["-p", &key, "-c", &certificate, "-C", &ca]);
    let (key, certificate) = (pki.key("client"), pki.certificate("client"));
    let tls = ["-p", &key, "-c", &certificate, "-C", &ca];
    for place in ["ptcp:0:127.0.0.1", "pssl:0:127.0.0.1"] {
        let said = room.alike(place, &[&tls[..], &["list-dbs", place]].concat(), "");
        assert!(said.contains("Odd\n_Server\n"), "{said}");
        let said = room.alike(place, &[&tls[..], &["wait", place, "Odd", "added"]].concat(), "");
        assert!(said.contains(": connected\n"), "{said}");
    }
    // Without a key nobody can be let in; the lines about it name SSL, or SSL/TLS.
    let said: Vec<String> = room
        .clients
        .iter()
        .map(|client| {
            let said = room.run(client, "pssl:0:127.0.0.1", &["list-dbs", "pssl:0:127.0.0.1"], "");
            said.replace("SSL/TLS", "SSL")
        })
        .collect();
    assert!(said.iter().all(|other| *other == said[0]), "{said:#?}");
    assert!(said[0].contains("failed to accept connection on"), "{}", said[0]);
}

#[test]
fn a_client_that_waits_in_vain_leaves_nothing() {
    let scratch = Scratch::new();
    for client in
        [Some(scratch.link("ovsdb-client")), reference("ovsdb-client")].into_iter().flatten()
    {
        let said = scratch.run(&client, &["-t", "1", "list-dbs", "punix:back.sock"]);
        assert_eq!(said.status.signal(), Some(14), "{}", err(&said));
        assert!(!scratch.path("back.sock").exists());
        for (place, reason) in [
            ("punix:no/such", "(No such file or directory)"),
            ("ptcp:port", "(Address family not supported by protocol)"),
            ("pfd:3", "(Address family not supported by protocol)"),
        ] {
            let said = scratch.run(&client, &["list-dbs", place]);
            let text =
                format!("ovsdb-client: failed to connect or listen to \"{place}\" {reason}\n");
            assert!(err(&said).ends_with(&text), "{}", err(&said));
            assert_eq!(said.status.code(), Some(1));
        }
    }
    // A socket of a client that was killed is no obstacle; any other file stays.
    scratch.write("file", "data");
    let said = scratch.run(scratch.link("ovsdb-client"), &["list-dbs", "punix:file"]);
    assert!(err(&said).contains("(File exists)"), "{}", err(&said));
    assert_eq!(std::fs::read_to_string(scratch.path("file")).expect("the file"), "data");
}
