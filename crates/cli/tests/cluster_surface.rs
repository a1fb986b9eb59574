//! What operators see of clusters and do to them: admin commands, failures on purpose, strangers that
//! connect, certificates that are renewed, remotes of a local database.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::group::{self, ALL, Group, Program, SCHEMA};
use crate::support::{
    Running, Scratch, WEIR, err, eventually, is_complaint, is_end_of_other, listens, out, reference,
};
use rustix::process::Signal;
use serde_json::json;
use weir_testkit::client::Client;
use weir_testkit::pki::{LEAF, Pki, Shape};

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

/// What a member answers to an admin command, and whether it is done.
fn ask(trio: &Group, at: usize, args: &[&str]) -> (bool, String) {
    let answer = trio.appctl(at, args);
    let said = format!("{}{}", out(&answer), err(&answer));
    let said = said.lines().next().unwrap_or_default().to_owned();
    (answer.status.success(), said)
}

/// The line of `cluster/status` that names the term.
fn term(trio: &Group, at: usize) -> Option<String> {
    let status = trio.status(at);
    status.lines().find(|line| line.starts_with("Term: ")).map(str::to_owned)
}

fn engage(trio: &Group, at: usize, scenario: &str) {
    let done = ask(trio, at, &["cluster/failure-test", scenario]);
    assert_eq!(done, (true, "test engaged".to_owned()), "{scenario}");
}

fn dismiss(trio: &Group, at: usize) {
    let done = ask(trio, at, &["cluster/failure-test", "clear"]);
    assert_eq!(done, (true, "test dismissed".to_owned()));
}

#[test]
fn admin_commands_answer_what_the_reference_does() {
    let Some(mut trio) = Group::packaged(SCHEMA) else { return };
    let questions: [&[&str]; 9] = [
        &["ovsdb-server/get-db-storage-status", "Odd"],
        &["ovsdb-server/get-db-storage-status", "Even"],
        &["cluster/set-backlog-threshold", "Odd", "49", "1000"],
        &["cluster/set-backlog-threshold", "Odd", "many", "1000"],
        &["cluster/set-backlog-threshold", "Odd", "50", "many"],
        &["cluster/set-backlog-threshold", "Odd", "50", "1000000000"],
        &["cluster/set-backlog-threshold", "Even", "50", "1000"],
        &["cluster/failure-test", "no such"],
        &["cluster/failure-test", "clear"],
    ];
    let answers =
        |trio: &Group| questions.map(|question| (question, ask(trio, 0, question))).to_vec();
    let words = |trio: &Group| -> Vec<String> {
        let said = ask(trio, 0, &["memory/show"]).1;
        said.split(' ').map(|word| word.split(':').next().unwrap_or_default().to_owned()).collect()
    };
    let (expected, expected_words) = (answers(&trio), words(&trio));
    trio.stop_all();
    trio.start_all(Program::Weir);
    assert_eq!(answers(&trio), expected);
    ALL.into_iter().for_each(|at| trio.insert(at, "a row"));
    eventually("memory/show counts a connection to and from each other member", || {
        ask(&trio, 0, &["memory/show"]).1.contains(" raft-connections:4 ")
    });
    let said = words(&trio);
    let of_raft = |words: &[String]| -> Vec<String> {
        words.iter().filter(|word| word.starts_with("raft-")).cloned().collect()
    };
    assert_eq!(of_raft(&said), of_raft(&expected_words), "{said:?}");
    assert!(said.is_sorted(), "{said:?}");
    let status = trio.status(0);
    for line in ["Worst heartbeat delay: ", "Worst fdatasync: "] {
        assert!(status.lines().any(|said| said.starts_with(line)), "{status}");
    }
    let behind = status.lines().skip_while(|line| *line != "Servers:").skip(1);
    assert!(behind.clone().all(|line| line.starts_with("    ")), "{status}");
    assert_eq!(behind.count(), 3, "{status}");
}

#[test]
fn members_that_crash_on_purpose_take_nothing_with_them() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    // Of whom, and whether that one leads.
    let scenarios = [
        ("crash-before-sending-append-request", true, "crash before sending append_request."),
        ("crash-after-sending-append-request", true, "crash after sending append_request."),
        (
            "crash-after-receiving-append-request-update",
            false,
            "crash after receiving append_request with update.",
        ),
        (
            "crash-before-sending-execute-command-request",
            false,
            "crash before sending execute_command_request",
        ),
        (
            "crash-after-sending-execute-command-request",
            false,
            "crash after sending execute_command_request",
        ),
        (
            "crash-before-sending-execute-command-reply",
            true,
            "crash before sending execute_command_reply",
        ),
        (
            "crash-after-sending-execute-command-reply",
            true,
            "crash after sending execute_command_reply.",
        ),
    ];
    for (scenario, of_leader, words) in scenarios {
        let leader = trio.settle(&ALL);
        let follower = others(leader)[0];
        let at = if of_leader { leader } else { follower };
        engage(&trio, at, scenario);
        let mut client = trio.client(follower);
        let insert = json!({"op": "insert", "table": "T", "row": {"name": scenario}});
        client.ask("transact", &json!(["Odd", insert])).expect("it listens");
        let (status, said) = trio.ended(at);
        assert_eq!(status.code(), Some(1), "{scenario}");
        let line = format!("ovsdb-server: Raft test: {words}\n");
        assert!(said.ends_with(&line), "{scenario}: {said}");
        assert!(!trio.socket(at).exists(), "{scenario}: its socket is there");
        let rest = others(at);
        trio.settle(&rest);
        rest.iter().for_each(|at| trio.insert(*at, "meanwhile"));
        trio.start(at, Program::Weir);
        trio.settle(&ALL);
        eventually("all members have the same rows", || {
            let names = trio.names(0);
            let count = |name: &str| names.iter().filter(|row| *row == name).count();
            // Who asked the follower that ends may have asked in vain; a leader's end loses nothing.
            let is_once = count(scenario) == 1 || at == follower && count(scenario) == 0;
            is_once && ALL.into_iter().all(|at| trio.names(at) == names)
        });
    }
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_member_that_crashes_behind_a_snapshot_has_it() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let rest = others(leader);
    let (away, near) = (rest[0], rest[1]);
    engage(&trio, away, "crash-before-sending-install-snapshot-reply");
    trio.signal(away, Signal::STOP);
    // More than is on its way to a member that does not answer.
    for row in 0..200 {
        trio.insert(near, &format!("row {row}"));
    }
    for at in [leader, near] {
        let done = trio.appctl(at, &["ovsdb-server/compact", "Odd"]);
        assert!(done.status.success(), "{}", err(&done));
    }
    trio.signal(away, Signal::CONT);
    let (status, said) = trio.ended(away);
    assert_eq!(status.code(), Some(1));
    assert!(said.ends_with("Raft test: crash before sending install_snapshot_reply\n"), "{said}");
    trio.start(away, Program::Weir);
    trio.settle(&ALL);
    eventually("the member has all rows", || trio.names(away).len() == 200);
    trio.stop_all();
    trio.check_files();
}

#[test]
fn elections_go_where_failures_on_purpose_send_them() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let mut does_other_win = |scenario: &str| {
        let leader = trio.settle(&ALL);
        let rest = others(leader);
        engage(&trio, rest[0], scenario);
        trio.kill(leader);
        let next = trio.settle(&rest);
        dismiss(&trio, rest[0]);
        trio.start(leader, Program::Weir);
        next == rest[1]
    };
    assert!(does_other_win("dont-send-vote-request"));
    // A machine that is busy elsewhere may delay the other one for longer than the delay.
    assert!(
        (0..5).any(|_| does_other_win("delay-election")),
        "one whose elections are delayed wins"
    );

    let leader = trio.settle(&ALL);
    engage(&trio, leader, "transfer-leadership");
    eventually("another one leads", || trio.leader_among(&others(leader)).is_some());
    let leader = trio.settle(&ALL);
    assert!(trio.log(leader).contains("starting election to take over leadership"));
    engage(&trio, leader, "transfer-leadership-after-sending-append-request");
    trio.insert(leader, "the last of a leader");
    eventually("another one leads", || trio.leader_among(&others(leader)).is_some());

    let leader = trio.settle(&ALL);
    engage(&trio, leader, "stop-raft-rpc");
    let rest = others(leader);
    let next = trio.settle(&rest);
    trio.insert(next, "without it");
    eventually("who hears nothing says so", || {
        trio.status(leader).contains("Status: disconnected from the cluster (election timeout)\n")
    });
    dismiss(&trio, leader);
    trio.settle(&ALL);
    eventually("it has what it missed", || trio.names(leader).contains(&"without it".to_owned()));

    // Members that hear of their leader let nobody else have their votes.
    let leader = trio.settle(&ALL);
    let first = term(&trio, leader);
    let follower = others(leader)[0];
    let begun = |trio: &Group| trio.log(follower).matches(", starting prevote").count();
    let before = begun(&trio);
    engage(&trio, follower, "force-election");
    eventually("an election has begun", || begun(&trio) > before);
    trio.settle(&ALL);
    trio.insert(follower, "as before");
    assert_eq!(term(&trio, leader), first, "the leader goes on leading");
}

#[test]
fn a_member_that_nobody_lets_go_says_that_it_is_leaving() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let alone = trio.settle(&ALL);
    others(alone).into_iter().for_each(|other| trio.stop(other));
    assert_eq!(ask(&trio, alone, &["cluster/leave", "Odd"]), (true, String::new()));
    let (is_done, said) = ask(&trio, alone, &["cluster/leave", "Odd"]);
    assert!(!is_done && said.contains("already in progress leaving cluster"), "{said}");
}

#[test]
fn a_member_leaves_and_returns_as_another_server() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let gone = others(leader)[0];
    let tool = reference("ovsdb-tool").expect("it has been used before");
    let cid = ask(&trio, gone, &["cluster/cid", "Odd"]).1;
    let sid = ask(&trio, gone, &["cluster/sid", "Odd"]).1;
    assert_eq!(ask(&trio, gone, &["cluster/leave", "Odd"]), (true, String::new()));
    eventually("the database is gone", || !ask(&trio, gone, &["cluster/sid", "Odd"]).0);
    trio.insert(leader, "meanwhile");
    trio.stop(gone);
    let file = trio.scratch.path(&trio.file(gone));
    std::fs::rename(&file, file.with_extension("left")).expect("the file is there");
    let cid = format!("--cid={cid}");
    let (own, known) = (trio.address(gone).to_owned(), trio.address(leader).to_owned());
    let args = [&cid, "join-cluster", &trio.file(gone), "Odd", &own, &known];
    let made = trio.scratch.run(&tool, &args);
    assert!(made.status.success(), "{}", err(&made));

    // The leader hands leadership over as soon as it hears of that: the next one is asked.
    engage(&trio, leader, "transfer-leadership-after-starting-to-add");
    trio.start(gone, Program::Weir);
    let next = trio.settle(&ALL);
    assert_ne!(next, leader, "it has handed leadership over");
    assert_ne!(ask(&trio, gone, &["cluster/sid", "Odd"]).1, sid, "another server");
    eventually("it has what it missed", || trio.names(gone) == ["meanwhile"]);
    let log = trio.log(next);
    for words in ["starting to add server ", "to cluster ", " succeeded (completed)"] {
        assert!(log.contains(words), "{words}");
    }
    assert!(trio.log(gone).contains("|raft|INFO|local server ID is "));

    // Of another cluster it may not be.
    trio.stop(gone);
    std::fs::remove_file(&file).expect("the file is there");
    let other = "--cid=01234567-89ab-4def-8123-456789abcdef";
    let args = [other, "join-cluster", &trio.file(gone), "Odd", &own, &known];
    let made = trio.scratch.run(&tool, &args);
    assert!(made.status.success(), "{}", err(&made));
    trio.start(gone, Program::Weir);
    eventually("the reason is told", || trio.log(leader).contains("it is of cluster 0123"));
    assert!(trio.status(gone).contains("Status: joining cluster\n"));
    assert!(trio.names(leader) == ["meanwhile"]);
}

#[test]
fn strangers_get_one_line_in_the_log_and_nothing_else() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    trio.complaints();
    let own = ask(&trio, leader, &["cluster/sid", "Odd"]).1;
    let cid = ask(&trio, leader, &["cluster/cid", "Odd"]).1;
    let member = ask(&trio, others(leader)[0], &["cluster/sid", "Odd"]).1;
    let stranger = "01234567-89ab-4def-8123-456789abcdef";
    let hello_at = |address: &str, cluster: &str, to: &str, from: &str| {
        json!({"method": "hello_request", "id": null, "params": [{"cluster": cluster, "to": to,
            "from": from, "comment": "weir/1 control", "address": address}]})
        .to_string()
        .into_bytes()
    };
    let hello =
        |cluster: &str, to: &str, from: &str| hello_at("tcp:127.0.0.1:9", cluster, to, from);
    // One that listens elsewhere might look for a member that it knew here.
    let at_home = trio.address(others(leader)[0]).to_owned();
    let with = |mut hello: Vec<u8>, garbage: &[u8]| {
        hello.extend_from_slice(garbage);
        hello
    };
    // What is said, and the end of the line.
    let said: Vec<(Vec<u8>, &str)> = vec![
        (hello(stranger, &own, stranger), "it is of cluster 0123"),
        (hello_at(&at_home, &cid, stranger, &member), "it means server 0123"),
        (hello(&cid, &own, &own), "it has this server's own id"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ""),
        (
            b"{\"method\":\"hello_request\",\"params\":[{}],\"id\":null}".to_vec(),
            "without a sender",
        ),
        (with(hello(&cid, &own, stranger), &[0xff; 64]), ""),
        (vec![b'['; 100_000], ""),
    ];
    let first = term(&trio, leader);
    for (number, (bytes, why)) in said.into_iter().enumerate() {
        // Few lines of a kind are logged in a minute; the first three are for the leader.
        let at = if number < 3 { leader } else { others(leader)[number % 2] };
        let address = trio.address(at).strip_prefix("tcp:").expect("it is").to_owned();
        let mut stream = TcpStream::connect(address).expect("it listens");
        let _ = stream.write_all(&bytes);
        // Whoever makes no sense is sent away.
        let _ = stream.read_to_end(&mut Vec::new());
        let mut lines = vec![];
        eventually(&format!("the log has a line for stranger {number}"), || {
            lines.extend(trio.complaints());
            !lines.is_empty()
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("connection dropped: ") && lines[0].ends_with(why), "{lines:?}");
    }
    assert_eq!(term(&trio, leader), first);
    assert_eq!(trio.leader_among(&ALL), Some(leader));
    ALL.into_iter().for_each(|at| trio.insert(at, "as before"));
    assert_eq!(trio.complaints(), [""; 0]);
}

#[test]
fn certificates_are_renewed_member_by_member_without_an_election() {
    let Some(pki) = Pki::usual("peers") else { return };
    let shape = Shape { extensions: LEAF, ..Shape::default() };
    pki.authority("next");
    pki.authority("foreign");
    pki.signed("stranger", "foreign", "stranger", shape);
    let name = |what: &str, at: usize| format!("{what}{at}");
    for at in ALL {
        pki.signed(&name("member", at), "ca", &name("member", at), shape);
        pki.signed(&name("renewed", at), "next", &name("member", at), shape);
        std::fs::copy(pki.certificate("ca"), pki.path(&name("trusted", at))).expect("a copy");
    }
    let options = |at: usize| {
        vec![
            format!("--private-key={}", pki.key(&name("member", at))),
            format!("--certificate={}", pki.certificate(&name("member", at))),
            format!("--ca-cert={}", pki.path(&name("trusted", at))),
        ]
    };
    let Some(mut trio) = Group::packaged_with(SCHEMA, "ssl", options) else { return };
    trio.stop_all();
    trio.start_all(Program::Weir);
    let leader = trio.settle(&ALL);
    let first = term(&trio, leader);
    trio.complaints();
    let read = |path: String| std::fs::read(path).expect("a certificate");
    // Both authorities are believed, then certificates are those of the new one, and at last no
    // other is believed.
    let both = [read(pki.certificate("ca")), read(pki.certificate("next"))].concat();
    for step in 0..3 {
        for at in ALL {
            let trusted = pki.path(&name("trusted", at));
            match step {
                0 => std::fs::write(trusted, &both).expect("a file"),
                1 => {
                    let (new, old) = (name("renewed", at), name("member", at));
                    std::fs::rename(pki.key(&new), pki.key(&old)).expect("the key");
                    std::fs::rename(pki.certificate(&new), pki.certificate(&old)).expect("it");
                }
                _ => std::fs::write(trusted, read(pki.certificate("next"))).expect("a file"),
            }
            trio.insert(at, &format!("step {step} of {at}"));
        }
        // A member that comes back shows what it has now, and judges by it.
        let follower = others(leader)[step % 2];
        trio.stop(follower);
        trio.start(follower, Program::Weir);
        assert_eq!(trio.settle(&ALL), leader, "step {step}");
        trio.insert(follower, "returned");
    }
    assert_eq!(term(&trio, leader), first, "nobody was elected");
    let mut complaints = trio.complaints();
    complaints.retain(|line| !is_end_of_other(line));
    assert_eq!(complaints, [""; 0]);

    // Who has a certificate of nobody that is believed is sent away.
    let client = reference("ovsdb-client").expect("it comes with the server");
    let (key, certificate) = (pki.key("stranger"), pki.certificate("stranger"));
    let ca = pki.certificate("next");
    let args = ["-t", "10", "-p", &key, "-c", &certificate, "-C", &ca, "list-dbs"];
    let came = trio.scratch.run(&client, &[&args[..], &[trio.address(leader)]].concat());
    assert!(!came.status.success());
    let mut lines = vec![];
    eventually("the log has a line", || {
        lines.extend(trio.complaints());
        !lines.is_empty()
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("|stream_ssl|WARN|SSL_accept: "), "{lines:?}");
    ALL.into_iter().for_each(|at| trio.insert(at, "as before"));
    assert_eq!(term(&trio, leader), first);
}

#[test]
fn clustered_servers_take_their_remotes_from_a_local_database() {
    const LOCAL: &str = "/usr/share/openvswitch/local-config.ovsschema";
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let follower = others(trio.settle(&ALL))[0];
    let tool = reference("ovsdb-tool").expect("it has been used before");
    let made = trio.scratch.run(&tool, &["create", "local.db", LOCAL]);
    assert!(made.status.success(), "{}", err(&made));
    trio.stop(follower);
    trio.complaints();
    let remotes = "--remote=db:Local_Config,Config,connections".to_owned();
    trio.set_options(follower, vec![remotes, "local.db".to_owned()]);
    trio.start(follower, Program::Weir);
    trio.settle(&ALL);
    let socket = trio.scratch.path("local.sock");
    let target = format!("punix:{}", socket.display());
    let connection = json!({"op": "insert", "table": "Connection", "uuid-name": "it",
        "row": {"target": target}});
    let config = json!({"op": "insert", "table": "Config",
        "row": {"connections": ["named-uuid", "it"]}});
    let done = trio.client(follower).transact("Local_Config", &[connection, config]);
    assert!(done.expect("a reply")[1]["uuid"].is_array());
    eventually("the follower listens there", || Client::connect(&socket).is_ok());
    let mut client = Client::connect(&socket).expect("it listens");
    let insert = json!({"op": "insert", "table": "T", "row": {"name": "by another way"}});
    assert!(client.transact("Odd", &[insert]).expect("a reply")[0]["uuid"].is_array());
    let select = json!({"op": "select", "table": "Connection", "where": [],
        "columns": ["is_connected"]});
    eventually("the local database says that somebody is connected", || {
        let result = client.transact("Local_Config", std::slice::from_ref(&select));
        result.expect("a reply")[0]["rows"][0]["is_connected"] == true
    });
    eventually("all members have the row, and none has another database", || {
        ALL.into_iter().all(|at| trio.names(at) == ["by another way"])
    });
    assert_eq!(trio.complaints(), [""; 0]);
}

#[test]
fn a_configuration_file_serves_clustered_databases() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let follower = others(trio.settle(&ALL))[0];
    trio.stop(follower);
    trio.complaints();
    let socket = format!("punix:{}", trio.socket(follower).display());
    let file = trio.scratch.text(&trio.file(follower));
    let write = |trio: &Group, model: &str| {
        let config =
            json!({"remotes": {&socket: null}, "databases": {&file: {"service-model": model}}});
        trio.scratch.write("config.json", &config.to_string()).display().to_string()
    };
    let path = write(&trio, "clustered");
    trio.set_options(follower, vec![format!("--config-file={path}")]);
    trio.start(follower, Program::Weir);
    trio.settle(&ALL);
    trio.insert(follower, "configured");
    // A database that went, and came back, would have ended its connection.
    let mut client = trio.client(follower);
    let select = json!({"op": "select", "table": "T", "where": []});
    client.transact("Odd", std::slice::from_ref(&select)).expect("a reply");
    assert!(ask(&trio, follower, &["ovsdb-server/reload"]).0);
    client.transact("Odd", &[select]).expect("the database is still the same one");
    trio.insert(follower, "reloaded");
    assert_eq!(trio.complaints(), [""; 0]);

    // What the file is, and what it is said to be, must agree.
    trio.stop(follower);
    write(&trio, "standalone");
    let server = trio.scratch.link("ovsdb-server");
    let started = trio.scratch.run(server, &[&format!("--config-file={path}"), "--unixctl=none"]);
    let said = err(&started);
    assert!(!started.status.success(), "{said}");
    assert!(said.contains("database is clustered and not standalone"), "{said}");
}

#[test]
fn a_leader_whose_database_goes_hands_leadership_over() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let is_taken_over = |trio: &Group, from: usize| {
        let next = trio.settle(&others(from));
        let log = trio.log(next);
        let elected =
            log.lines().rfind(|line| line.contains("starting election")).unwrap_or_default();
        assert!(elected.contains("to take over leadership"), "{log}");
    };
    let leader = trio.settle(&ALL);
    let file = trio.scratch.text(&trio.file(leader));
    assert_eq!(ask(&trio, leader, &["ovsdb-server/remove-db", "Odd"]), (true, String::new()));
    is_taken_over(&trio, leader);
    assert_eq!(ask(&trio, leader, &["ovsdb-server/add-db", &file]), (true, String::new()));
    trio.settle(&ALL);

    trio.stop_all();
    let write = |trio: &Group, at: usize, databases: serde_json::Value| {
        let socket = format!("punix:{}", trio.socket(at).display());
        let config = json!({"remotes": {socket: null}, "databases": databases});
        let path = trio.scratch.write(&format!("config{at}.json"), &config.to_string());
        format!("--config-file={}", path.display())
    };
    for at in ALL {
        let file = trio.scratch.text(&trio.file(at));
        let option = write(&trio, at, json!({file: null}));
        trio.set_options(at, vec![option]);
    }
    trio.start_all(Program::Weir);
    let leader = trio.settle(&ALL);
    // It is refused, and leadership stays.
    assert!(!ask(&trio, leader, &["ovsdb-server/remove-db", "Odd"]).0);
    assert_eq!(trio.settle(&ALL), leader);
    write(&trio, leader, json!({}));
    assert_eq!(ask(&trio, leader, &["ovsdb-server/reload"]), (true, String::new()));
    is_taken_over(&trio, leader);
    assert_eq!(trio.complaints(), [""; 0]);
}

#[test]
fn ovn_ctl_makes_clusters_of_weir() {
    const OVN_CTL: &str = "/usr/share/ovn/scripts/ovn-ctl";
    if !std::path::Path::new(OVN_CTL).exists() {
        return println!("skipped: there is no {OVN_CTL}");
    }
    let Some(pki) = Pki::usual("ovn-ctl") else { return };
    let scratch = Scratch::new();
    for program in ["ovsdb-server", "ovsdb-tool", "ovsdb-client"] {
        scratch.link(program);
    }
    let path = format!("{}:{}", scratch.text("bin"), std::env::var("PATH").unwrap_or_default());
    for method in ["tcp", "ssl"] {
        let ports = group::free_ports(ALL.len());
        let run = |member: usize, args: &[String]| {
            let folder = scratch.path(&format!("{method}{member}"));
            std::fs::create_dir_all(&folder).expect("a folder");
            let mut command = scratch.command("timeout");
            for name in ["OVS_RUNDIR", "OVN_RUNDIR", "OVN_DBDIR", "OVN_LOGDIR", "OVS_LOGDIR"] {
                command.env(name, &folder);
            }
            let done = command.env("PATH", &path).args(["120", OVN_CTL]).args(args).output();
            let done = done.expect("it starts");
            let said = format!("{}{}", out(&done), err(&done));
            assert!(done.status.success(), "{method}, member {member}: {said}");
            folder
        };
        let start = |member: usize| {
            let mut args = vec![
                "start_nb_ovsdb".to_owned(),
                "--db-nb-cluster-local-addr=127.0.0.1".to_owned(),
                format!("--db-nb-cluster-local-port={}", ports[member]),
                format!("--db-nb-cluster-local-proto={method}"),
                "--db-nb-election-timer=2000".to_owned(),
                "--db-nb-create-insecure-remote=no".to_owned(),
                format!("--ovn-nb-db-ssl-key={}", pki.key("server")),
                format!("--ovn-nb-db-ssl-cert={}", pki.certificate("server")),
                format!("--ovn-nb-db-ssl-ca-cert={}", pki.certificate("ca")),
            ];
            if member > 0 {
                args.push("--db-nb-cluster-remote-addr=127.0.0.1".to_owned());
                args.push(format!("--db-nb-cluster-remote-port={}", ports[0]));
                args.push(format!("--db-nb-cluster-remote-proto={method}"));
            }
            run(member, &args)
        };
        let folders = ALL.map(start);
        let nbctl = reference("ovn-nbctl").expect("it comes with ovn-ctl");
        let ask = |member: usize, args: &[&str]| {
            let db = format!("--db=unix:{}/ovnnb_db.sock", folders[member].display());
            let done =
                scratch.run(&nbctl, &[&["-t", "60", "--no-leader-only", &db], args].concat());
            assert!(done.status.success(), "{method}: {}", err(&done));
            out(&done)
        };
        for member in ALL {
            ask(member, &["ls-add", &format!("switch{member}")]);
        }
        eventually("all members have all switches", || {
            ALL.into_iter().all(|member| ask(member, &["ls-list"]).lines().count() == 3)
        });
        for (member, folder) in folders.iter().enumerate() {
            let log = std::fs::read_to_string(folder.join("ovsdb-server-nb.log"));
            let log = log.expect("the log");
            // A client may not stay for the last update.
            let bad = log.lines().find(|line| is_complaint(line) && !is_end_of_other(line));
            assert_eq!(bad, None, "{method}, member {member}");
            run(member, &["stop_nb_ovsdb".to_owned()]);
        }
    }
}

#[test]
fn a_member_that_is_silent_for_long_is_removed_if_an_operator_wished_that() {
    let Some(mut group) = Group::packaged_of(4, SCHEMA) else { return };
    group.stop_all();
    group.start_all(Program::Weir);
    let leader = group.settle(&group.all());
    let silent = (leader + 1) % 4;
    let command = "weir/remove-silent-members";
    assert_eq!(ask(&group, leader, &[command, "Odd"]), (true, "off".to_owned()));
    for bad in ["4", "-1", "soon", "400000000"] {
        let (is_done, said) = ask(&group, leader, &[command, "Odd", bad]);
        let is_refused =
            !is_done && said.contains("a number of seconds from 5 (5 election timers)");
        assert!(is_refused, "{bad}: {said}");
    }
    for at in group.all() {
        assert_eq!(ask(&group, at, &[command, "Odd", "5"]), (true, String::new()));
    }
    assert_eq!(ask(&group, leader, &[command, "Odd"]), (true, "5".to_owned()));
    group.kill(silent);
    let servers = |group: &Group| {
        let status = group.status(leader);
        status.lines().filter(|line| line.contains(" at tcp:")).count()
    };
    eventually("it has been removed", || servers(&group) == 3);
    assert!(group.log(leader).contains(" was silent for 5000 ms"), "{}", group.log(leader));
    group.insert(leader, "without it");
    group.start(silent, Program::Weir);
    eventually("it is told", || !ask(&group, silent, &["cluster/sid", "Odd"]).0);
}

/// Of a program of the server, with this control socket: what it answers to an admin command.
fn answer(scratch: &Scratch, args: &[&str]) -> (bool, String) {
    let socket = scratch.text("server.ctl");
    let answer = scratch.run(WEIR, &[&["appctl", "-t", &socket], args].concat());
    (answer.status.success(), format!("{}{}", out(&answer), err(&answer)))
}

#[test]
fn a_member_that_has_not_joined_stays_and_goes_with_the_configuration() {
    let scratch = Scratch::new();
    let addresses = group::free_ports(2).into_iter().map(|port| format!("tcp:127.0.0.1:{port}"));
    let [own, nobody] = addresses.collect::<Vec<_>>().try_into().expect("two");
    let join = ["tool", "join-cluster", "joining.db", "Odd", &own, &nobody];
    assert!(scratch.run(WEIR, &join).status.success());
    let file = scratch.text("joining.db");
    let write = |databases: serde_json::Value| {
        scratch.write("config.json", &json!({"databases": databases}).to_string());
    };
    write(json!({&file: {"service-model": "clustered"}}));
    let start = |word: &str| {
        let mut command = scratch.command(scratch.link("ovsdb-server"));
        command.args([word, "--unixctl=server.ctl", "-vconsole:off"]);
        Running::start(&mut command)
    };
    let server = start("--config-file=config.json");
    eventually("it answers", || listens(&scratch.path("server.ctl")));
    let listens = || TcpStream::connect(&own["tcp:".len()..]).is_ok();
    eventually("it listens for members", listens);
    for model in [json!({"service-model": "clustered"}), json!(null)] {
        write(json!({&file: model}));
        assert_eq!(answer(&scratch, &["ovsdb-server/reload"]), (true, String::new()));
        assert!(answer(&scratch, &["cluster/status", "Odd"]).1.contains("joining cluster"));
        assert_eq!(answer(&scratch, &["ovsdb-server/list-dbs"]).1, "Odd\n_Server\n");
    }
    write(json!({}));
    assert_eq!(answer(&scratch, &["ovsdb-server/reload"]), (true, String::new()));
    assert_eq!(answer(&scratch, &["ovsdb-server/list-dbs"]).1, "_Server\n");
    assert!(!answer(&scratch, &["cluster/status", "Odd"]).0);
    assert!(!listens(), "nobody is served there any more");
    // The file is nobody's, and can be served again.
    write(json!({&file: null}));
    assert_eq!(answer(&scratch, &["ovsdb-server/reload"]), (true, String::new()));
    eventually("it listens again", listens);

    // Where there is no configuration file, an operator removes it.
    drop(server);
    std::fs::remove_file(scratch.path("server.ctl")).expect("what the server has left");
    let _server = start("joining.db");
    eventually("it answers", || scratch.path("server.ctl").exists() && listens());
    assert_eq!(answer(&scratch, &["ovsdb-server/remove-db", "Odd"]), (true, String::new()));
    assert!(!answer(&scratch, &["cluster/status", "Odd"]).0 && !listens());
}

/// The file to join with names another database than the cluster has, which the server has already.
#[test]
fn a_server_does_not_join_a_cluster_of_a_database_that_it_has() {
    let scratch = Scratch::new();
    scratch.write("odd.ovsschema", SCHEMA);
    let addresses = group::free_ports(2).into_iter().map(|port| format!("tcp:127.0.0.1:{port}"));
    let [first, second] = addresses.collect::<Vec<_>>().try_into().expect("two");
    let tool = |args: &[&str]| {
        let made = scratch.run(WEIR, &[&["tool"], args].concat());
        assert!(made.status.success(), "{}", err(&made));
    };
    tool(&["create-cluster", "first.db", "odd.ovsschema", &first]);
    tool(&["join-cluster", "second.db", "Other", &second, &first]);
    tool(&["create", "own.db", "odd.ovsschema"]);
    let start = |files: &[&str], control: &str| {
        let mut command = scratch.command(scratch.link("ovsdb-server"));
        command.args(files).arg(format!("--unixctl={control}"));
        let log = format!("--log-file={}", scratch.text("second.log"));
        let running = Running::start(command.args([&log, "-vfile:info", "-vconsole:off"]));
        eventually("it answers", || listens(&scratch.path(control)));
        running
    };
    let _first = start(&["first.db"], "first.ctl");
    let second = start(&["own.db", "second.db"], "server.ctl");
    let says = |text: &str| {
        std::fs::read_to_string(scratch.path("second.log")).is_ok_and(|log| log.contains(text))
    };
    eventually("it says so", || says("Other: does not join a cluster of Odd"));
    // It was there while it wanted to join.
    let databases = |names: &str| answer(&scratch, &["ovsdb-server/list-dbs"]).1 == names;
    assert!(databases("Odd\n_Server\n"), "{:?}", answer(&scratch, &["ovsdb-server/list-dbs"]));
    drop(second);
    std::fs::remove_file(scratch.path("server.ctl")).expect("what the server has left");
    // Alone it serves the cluster's database, under that one's name.
    let _second = start(&["second.db"], "server.ctl");
    eventually("it has joined", || databases("Odd\n_Server\n"));
    assert!(says("name Other in header does not match name Odd in schema"));
    let refused = answer(&scratch, &["ovsdb-server/add-db", &scratch.text("own.db")]);
    assert!(!refused.0 && refused.1.contains("duplicate database name"), "{refused:?}");
}

#[test]
fn clients_that_take_all_descriptors_do_not_keep_a_member_from_writing() {
    let scratch = Scratch::new();
    scratch.write("odd.ovsschema", SCHEMA);
    let port = group::free_ports(1)[0];
    let address = format!("tcp:127.0.0.1:{port}");
    let create = ["tool", "create-cluster", "odd.db", "odd.ovsschema", &address];
    assert!(scratch.run(WEIR, &create).status.success());
    let line = r#"ulimit -n 48; exec "$0" "$@""#;
    let mut command = scratch.command("sh");
    command.args(["-c", line]).arg(scratch.link("ovsdb-server"));
    command.args(["--remote=punix:db.sock", "--unixctl=server.ctl", "--log-file=server.log"]);
    let _server = Running::start(command.args(["-vconsole:off", "odd.db"]));
    let connect = || Client::connect(&scratch.path("db.sock"));
    eventually("it listens", || connect().is_ok());
    let mut writer = connect().expect("it listens");
    let insert = |name: &str| json!([{"op": "insert", "table": "T", "row": {"name": name}}, {"op": "commit", "durable": true}]);
    let mut write = |name: &str| {
        let result = writer.transact("Odd", insert(name).as_array().expect("operations"));
        result.is_ok_and(|result| result[0]["uuid"].is_array())
    };
    eventually("it leads", || write("before"));
    let crowd: Vec<Client> = (0..60).map_while(|_| connect().ok()).collect();
    let log = || std::fs::read_to_string(scratch.path("server.log")).expect("a log");
    eventually("no descriptor is left", || log().contains("Too many open files"));
    assert!((0..5).all(|n| write(&format!("beside {n}"))), "{}", log());
    let control = scratch.text("server.ctl");
    let compacted =
        scratch.run("ovs-appctl", &["-T", "20", "-t", &control, "ovsdb-server/compact"]);
    assert!(compacted.status.success(), "{}", err(&compacted));
    drop(crowd);
    assert!(write("behind"), "{}", log());
}
