//! ovsdb-client looks for the right member of a cluster: ours beside the reference's, before servers
//! that say of themselves what a script has them say, and before a cluster of the reference.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::support::{self, Running, Scratch, err, eventually, out, reference};

/// What members of a cluster serve.
const SCHEMA: &str = r#"{"name":"Odd","version":"1.2.3","cksum":"12 345","tables":{"T":{
    "isRoot":true,"columns":{"name":{"type":"string"}}}}}"#;

/// How long a conversion takes these servers.
const SLOW: std::time::Duration = std::time::Duration::from_millis(1200);

/// A row of `_Server`'s table `Database`.
fn row(model: &str, connected: bool, leader: bool, cid: &str) -> String {
    let schema = if cid.is_empty() { r#"["set",[]]"# } else { "\"{}\"" };
    let cid = match cid {
        "" => r#"["set",[]]"#.to_owned(),
        cid => format!(r#"["uuid","{cid}"]"#),
    };
    format!(
        r#"{{"rows":[{{"name":"Odd","model":"{model}","connected":{connected},
            "leader":{leader},"schema":{schema},"cid":{cid},"sid":["set",[]],"index":7}}]}}"#
    )
}

/// Serves connections at `name`: the answer about `_Server` is `about`, or the end of the
/// connection if that is empty; the only row of the database has the member's name.
fn member(scratch: &Scratch, name: &str, about: &str) {
    let listener = UnixListener::bind(scratch.path(name)).expect("a socket");
    let (name, about) = (name.to_owned(), about.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = converse(stream, &name, &about);
        }
    });
}

fn converse(mut stream: UnixStream, name: &str, about: &str) -> std::io::Result<()> {
    let mut received = vec![];
    let mut chunk = [0; 4096];
    loop {
        let mut requests = serde_json::Deserializer::from_slice(&received).into_iter();
        let mut used = 0;
        while let Some(Ok::<serde_json::Value, _>(request)) = requests.next() {
            used = requests.byte_offset();
            let answer = match (request["method"].as_str(), request["params"][0].as_str()) {
                (Some("transact"), Some("_Server")) if about.is_empty() => return Ok(()),
                (Some("transact"), Some("_Server")) => match about.strip_prefix('!') {
                    Some(error) => format!(r#""result":null,"error":{error}"#),
                    None => format!(r#""result":[{about}],"error":null"#),
                },
                (Some("transact"), _) => {
                    format!(r#""result":[{{"rows":[{{"name":"{name}"}}]}}],"error":null"#)
                }
                (Some("convert"), _) => {
                    std::thread::sleep(SLOW);
                    r#""result":{},"error":null"#.to_owned()
                }
                (Some("get_schema"), _) => format!(r#""result":{SCHEMA},"error":null"#),
                _ => r#""result":["Odd","_Server"],"error":null"#.to_owned(),
            };
            write!(stream, "{{{answer},\"id\":{}}}", request["id"])?;
        }
        received.drain(..used);
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        received.extend_from_slice(chunk.get(..read).unwrap_or_default());
    }
}

/// What a client says to a command line: status, output and log without its times.
fn said(scratch: &Scratch, client: &PathBuf, args: &[&str]) -> String {
    let output = scratch.run(client, &[&["-t", "30"], args].concat());
    let line = |line: &str| {
        let line = line.split_once("Z|0").map_or(line, |(_, rest)| rest);
        format!("{line}\n")
    };
    let log: String = err(&output).lines().map(line).collect();
    format!("{:?}\n{}{log}", output.status.code(), out(&output))
}

const ODD: &str = "3c1b9f2e-0000-4000-8000-000000000001";

#[test]
fn the_member_that_is_meant_is_found() {
    let scratch = Scratch::new();
    for (name, about) in [
        ("leader", row("clustered", true, true, ODD)),
        ("follower", row("clustered", true, false, ODD)),
        ("lost", row("clustered", false, true, ODD)),
        ("joining", row("clustered", true, true, "")),
        ("relay", row("relay", true, false, ODD)),
        ("standalone", row("standalone", true, true, "")),
        ("without", r#"{"rows":[]}"#.to_owned()),
        ("old", r#"!{"error":"unknown database"}"#.to_owned()),
        ("refused", r#"{"error":"not allowed"}"#.to_owned()),
        ("nonsense", r#""rows""#.to_owned()),
        ("gone", String::new()),
    ] {
        member(&scratch, name, &about);
    }
    let mut clients = vec![scratch.link("ovsdb-client")];
    clients.extend(reference("ovsdb-client"));
    for (options, servers, served_by) in [
        (&[][..], "follower,lost,leader,standalone", "leader"),
        (&[], "without,gone,nowhere,leader", "leader"),
        (&["--no-leader-only"], "lost,follower,leader", "follower"),
        (&["--leader-only"], "follower,lost", ""),
        (&["--no-leader-only", "--leader-only"], "follower,lost", ""),
        (&[], "relay,leader", "leader"),
        (&["--no-leader-only"], "relay,leader", "relay"),
        (&[], "follower,standalone", "standalone"),
        (&[], "refused,leader", "leader"),
        (&[], "nonsense,leader", "leader"),
        (&[], "joining,leader", "joining"),
        (&[], "old,leader", "leader"),
        (&[], "follower", "follower"),
        (&[], "lost", "lost"),
    ] {
        let list: Vec<String> = servers.split(',').map(|name| format!("unix:{name}")).collect();
        let list = list.join(",");
        for command in [
            &["-f", "csv", "dump", &list, "Odd", "T", "name"][..],
            &["get-schema-version", &list, "Odd"],
            &["list-tables", &list, "Odd"],
            &["transact", &list, r#"["Odd",{"op":"select","table":"T","where":[]}]"#],
        ] {
            let args = [options, command].concat();
            let all: Vec<String> =
                clients.iter().map(|client| said(&scratch, client, &args)).collect();
            assert_eq!(all[0], all[all.len() - 1], "{args:?}");
            let is_served = |by: &str| {
                all[0].contains(&format!("\n{by}\n")) || all[0].contains(&format!("\"{by}\""))
            };
            match command[0] {
                _ if served_by.is_empty() => {
                    assert!(all[0].contains("no servers were available"), "{}", all[0]);
                }
                "transact" | "-f" => assert!(is_served(served_by), "{}", all[0]),
                _ => assert!(all[0].starts_with("Some(0)"), "{}", all[0]),
            }
        }
    }
}

#[test]
fn a_member_of_another_cluster_is_passed_over() {
    let scratch = Scratch::new();
    member(&scratch, "ours", &row("clustered", true, true, ODD));
    member(&scratch, "theirs", &row("clustered", true, true, &ODD.replace('1', "2")));
    let dump = |servers: &str| {
        let args = ["-f", "csv", "dump", servers, "Odd", "T", "name"];
        said(&scratch, &scratch.link("ovsdb-client"), &args)
    };
    let found = dump(&format!("unix:theirs,unix:ours,cid:{ODD}"));
    assert!(found.contains("\nours\n"), "{found}");
    let found = dump(&format!("unix:theirs,cid:{ODD}"));
    assert!(found.contains("no servers were available"), "{found}");
}

#[test]
fn a_person_sees_that_a_conversion_takes_a_while() {
    let scratch = Scratch::new();
    member(&scratch, "slow", &row("clustered", true, true, ODD));
    scratch.write("schema", SCHEMA);
    let client = scratch.link("ovsdb-client");
    let args = ["convert", "unix:slow", "schema"];
    let piped = scratch.run(&client, &args);
    assert!(piped.status.success() && piped.stderr.is_empty(), "{}", err(&piped));
    let typed = format!("{} {}", client.display(), args.join(" "));
    let terminal = scratch.command("script").args(["-qec", &typed, "/dev/null"]).output();
    let Ok(terminal) = terminal else { return eprintln!("skipped: no script(1)") };
    let shown = out(&terminal);
    assert!(shown.contains("convert     0 s") && shown.contains("convert     1 s"), "{shown}");
    assert!(shown.ends_with("\r\u{1b}[K"), "{shown:?}");
}

/// Three servers of the reference that are one cluster; the first one leads.
struct Cluster {
    scratch: Scratch,
    servers: Vec<Running>,
    clients: [PathBuf; 2],
}

const ALL: &str = "unix:3.sock,unix:2.sock,unix:1.sock";
const FOLLOWERS: &str = "unix:3.sock,unix:2.sock";

impl Cluster {
    fn new() -> Option<Self> {
        let (tool, server) = (reference("ovsdb-tool")?, reference("ovsdb-server")?);
        let client = reference("ovsdb-client")?;
        let scratch = Scratch::new();
        scratch.write("schema", SCHEMA);
        let run = |args: &[&str]| {
            let done = scratch.run(&tool, args);
            assert!(done.status.success(), "{}", err(&done));
        };
        run(&["create-cluster", "1.db", "schema", "unix:1.raft"]);
        run(&["join-cluster", "2.db", "Odd", "unix:2.raft", "unix:1.raft"]);
        run(&["join-cluster", "3.db", "Odd", "unix:3.raft", "unix:2.raft", "unix:1.raft"]);
        let start = |number: usize| {
            let mut command = scratch.command(&server);
            command.args([
                &format!("--remote=punix:{number}.sock"),
                &format!("--unixctl={number}.ctl"),
                "-vconsole:off",
                &format!("{number}.db"),
            ]);
            Running::start(&mut command)
        };
        let servers = (1..4).map(start).collect();
        let clients = [scratch.link("ovsdb-client"), client];
        let cluster = Self { scratch, servers, clients };
        for number in 1..4 {
            cluster.connected(&format!("unix:{number}.sock"));
        }
        Some(cluster)
    }

    /// Waits until a member takes part.
    fn connected(&self, server: &str) {
        let connected = r#"["_Server",{"op":"select","table":"Database",
            "where":[["name","==","Odd"],["connected","==",true]],"columns":["name"]}]"#;
        eventually("the member is connected", || {
            let asked = self.scratch.run(&self.clients[0], &["query", server, connected]);
            out(&asked).contains("Odd")
        });
    }

    /// Both clients say the same, apart from row ids; what ours says.
    fn alike(&self, args: &[&str]) -> String {
        let [ours, theirs] = self.clients.each_ref().map(|client| {
            let said = said(&self.scratch, client, args);
            let uuid = |word: &str| match word.len() {
                36 if word.bytes().filter(|b| *b == b'-').count() == 4 => "UUID".to_owned(),
                _ => word.to_owned(),
            };
            let words = said.split_inclusive([' ', '"', '\n']).map(|word| {
                let end = word.trim_end_matches([' ', '"', '\n']);
                uuid(end) + word.get(end.len()..).unwrap_or_default()
            });
            words.collect::<String>()
        });
        assert_eq!(ours, theirs, "{args:?}");
        ours
    }
}

#[test]
fn clients_agree_about_a_cluster() {
    let Some(mut cluster) = Cluster::new() else { return };
    let insert = r#"["Odd",{"op":"insert","table":"T","row":{"name":"a"}}]"#;
    let select = r#"["Odd",{"op":"select","table":"T","where":[],"columns":["name"]}]"#;
    // The leader is last in the list.
    let said = cluster.alike(&["transact", ALL, insert]);
    assert!(said.starts_with("Some(0)") && said.contains("unix:1.sock: connected"), "{said}");
    for args in [
        &["dump", ALL, "Odd", "T", "name"][..],
        &["dump", FOLLOWERS, "Odd"],
        &["--no-leader-only", "dump", FOLLOWERS, "Odd", "T", "name"],
        &["--no-leader-only", "transact", FOLLOWERS, insert],
        &["dump", "unix:2.sock", "Odd", "T", "name"],
        &["transact", "unix:3.sock", select],
        &["wait", "unix:2.sock", "Odd", "connected"],
        &["get-schema-version", ALL, "Odd"],
        &["get-schema", ALL, "Nope"],
        &["list-dbs", FOLLOWERS],
        &["dump", ALL],
        &["needs-conversion", ALL, "schema"],
        &["convert", ALL, "schema"],
        &["-t", "1", "monitor", ALL, "Nope", "T"],
    ] {
        cluster.alike(args);
    }
    a_backup_goes_through_followers(&cluster);
    the_leader_dies(&mut cluster, insert);
}

fn a_backup_goes_through_followers(cluster: &Cluster) {
    let shown = ["--no-leader-only", "dump", FOLLOWERS, "Odd", "T", "name"];
    let before = cluster.alike(&shown);
    let script = format!(
        "\"$0\" --no-leader-only backup {FOLLOWERS} Odd > backup && \
         \"$0\" transact {ALL} '[\"Odd\",{{\"op\":\"delete\",\"table\":\"T\",\"where\":[]}}]' && \
         \"$0\" --no-leader-only restore {FOLLOWERS} Odd < backup"
    );
    for client in &cluster.clients {
        let mut shell = cluster.scratch.command("sh");
        let done = shell.args(["-c", &script]).arg(client).output().expect("sh");
        assert!(done.status.success(), "{}", err(&done));
        assert!(out(&done).contains("count"), "{}", out(&done));
    }
    eventually("the followers have it", || cluster.alike(&shown) == before);
}

/// Monitors of the leader end, `wait` stays, and whoever asks again finds the new leader.
fn the_leader_dies(cluster: &mut Cluster, insert: &str) {
    let start = |client: &PathBuf, args: &[&str]| {
        let mut command = cluster.scratch.command(client);
        Running::start(command.arg("-vconsole:off").args(args))
    };
    let mut monitors = cluster.clients.each_ref().map(|client| {
        let mut monitor = start(client, &["monitor", ALL, "Odd", "T", "name"]);
        monitor.line_with("initial");
        monitor
    });
    let wait = ["wait", "unix:1.sock,unix:2.sock", "Other", "added"];
    let mut waiting = start(&cluster.clients[0], &wait);
    drop(cluster.servers.remove(0));
    for monitor in &mut monitors {
        assert_eq!(monitor.wait().code(), Some(1), "its connection is lost");
    }
    for client in &cluster.clients {
        eventually("there is another leader", || {
            let done = cluster.scratch.run(client, &["-t", "30", "transact", ALL, insert]);
            done.status.success() && out(&done).contains("uuid")
        });
    }
    let found = cluster.alike(&["-f", "csv", "dump", ALL, "Odd", "T", "name"]);
    assert!(found.contains("\na\n"), "{found}");
    let scratch = &cluster.scratch;
    scratch.write("other", &SCHEMA.replace("Odd", "Other"));
    scratch.run(scratch.link("ovsdb-tool"), &["create", "other.db", "other"]);
    let target = scratch.text("2.ctl");
    let add = ["appctl", "-t", &target, "ovsdb-server/add-db", "other.db"];
    assert!(scratch.run(support::WEIR, &add).status.success());
    assert!(waiting.wait().success());
}
