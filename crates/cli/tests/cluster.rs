//! Clusters of three: the files of the packaged servers, served by Weir and back, under load, with
//! members that are killed, stopped for a while, or changed for the other program.
//!
//! `WEIR_CLUSTER_ROUNDS` repeats what is random that often.

use std::thread::sleep;
use std::time::Duration;

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::{Running, err, eventually, is_end_of_other, out, reference};
use rustix::process::Signal;
use serde_json::{Value, json};

/// How often to repeat what depends on when things happen.
fn rounds(by_itself: u32) -> u32 {
    let rounds = std::env::var("WEIR_CLUSTER_ROUNDS").ok();
    rounds.map_or(by_itself, |rounds| rounds.parse().expect("a number of rounds"))
}

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

fn name_in(round: u32, row: u32) -> String {
    format!("{round:02} {row:04}")
}

/// Waits until every member has the rows of all rounds up to this one, and no others.
fn each_row_is_there_once(trio: &Group, round: u32, rows: u32) {
    let names_in = |round| (0..rows).map(move |row| name_in(round, row));
    let expected: Vec<String> = (0..=round).flat_map(names_in).collect();
    eventually("all members have each row once", || {
        ALL.into_iter().all(|at| trio.names(at) == expected)
    });
}

#[test]
fn files_of_packaged_members_are_served_and_go_back() {
    let Some(mut trio) = Group::packaged(SCHEMA) else { return };
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("packaged {at}")));
    trio.stop_all();
    trio.complaints();

    trio.start_all(Program::Weir);
    for at in ALL {
        assert_eq!(trio.names(at), ["packaged 0", "packaged 1", "packaged 2"], "member {at}");
    }
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("weir {at}")));
    trio.check_files();
    trio.stop_all();
    trio.check_files();
    assert_eq!(trio.complaints(), [""; 0]);

    trio.start_all(Program::Packaged);
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("back {at}")));
    let expected: Vec<String> = ["back", "packaged", "weir"]
        .iter()
        .flat_map(|word| ALL.map(|at| format!("{word} {at}")))
        .collect();
    eventually("each packaged member has everything", || {
        ALL.into_iter().all(|at| trio.names(at) == expected)
    });
    trio.stop_all();
    trio.check_files();
}

#[test]
fn members_change_their_program_one_by_one_under_load() {
    change_one_by_one(3);
}

#[test]
fn five_members_change_their_program_one_by_one_under_load() {
    change_one_by_one(5);
}

/// A cluster of so many packaged members becomes one of Weir, and goes back.
fn change_one_by_one(count: usize) {
    let Some(mut group) = Group::packaged_of(count, SCHEMA) else { return };
    let (all, majority) = (group.all(), count / 2 + 1);
    let load = group.load();
    load.led_by_packaged(true);
    load.go_on(20, &all);
    group.complaints();
    for program in [Program::Weir, Program::Packaged] {
        for at in all.iter().copied() {
            // With this one the majority changes.
            let flips = at + 1 == majority;
            if flips && program == Program::Packaged {
                load.led_by_packaged(true);
            }
            group.stop(at);
            group.start(at, program);
            // Whoever is of the program that the majority runs does its work.
            let (changed, others) = all.split_at(at + 1);
            let serving = if at + 1 < majority { others } else { changed };
            load.go_on(10, serving);
            if flips {
                load.led_by_packaged(program == Program::Packaged);
                load.go_on(10, serving);
            }
        }
        group.settle(&all);
    }
    println!("longest waits: {:?}", load.check(&group));
    group.stop_all();
    group.check_files();
    // Packaged servers may say that who stops ends its connections, how they elect each other, and
    // that they send each other away when one of them had no processor for a second.
    let usual = [
        "ignoring vote request received after",
        "sending backlog exceeded maximum number of messages",
        "Argument list too long",
    ];
    let mut complaints = group.complaints();
    complaints
        .retain(|line| !is_end_of_other(line) && !usual.iter().any(|words| line.contains(words)));
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn a_killed_member_takes_nothing_with_it() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    for round in 0..rounds(3) {
        let leader = trio.settle(&ALL);
        // A follower every third time.
        let killed = if round % 3 == 1 { (leader + 1) % ALL.len() } else { leader };
        trio.kill(killed);
        load.go_on(20, &others(killed));
        trio.start(killed, Program::Weir);
        load.go_on(20, &ALL);
    }
    println!("longest waits: {:?}", load.check(&trio));
    trio.stop_all();
    trio.check_files();
}

#[test]
fn clients_of_followers_notice_no_change_of_the_leader() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    for round in 0..rounds(2) {
        let leader = trio.settle(&ALL);
        let mut client = trio.client(others(leader)[0]);
        let asked: Vec<u64> = (0..400)
            .map(|row| {
                let insert =
                    json!({"op": "insert", "table": "T", "row": {"name": name_in(round, row)}});
                let select = json!({"op": "select", "table": "T", "columns": ["n"],
                    "where": [["name", "==", name_in(round, row)]]});
                // What only reads waits for what the client has asked before.
                client.ask("transact", &json!(["Odd", insert])).expect("a request");
                client.ask("transact", &json!(["Odd", select])).expect("a request")
            })
            .collect();
        client.reply(asked[0]).expect("the first reply");
        trio.kill(leader);
        for id in asked.into_iter().skip(1) {
            let reply = client.reply(id).expect("a reply").value;
            assert_eq!(reply["result"][0]["rows"].as_array().map(Vec::len), Some(1), "{reply}");
        }
        for message in client.take_notifications() {
            let reply = message.value;
            assert!(reply["result"][0]["uuid"].is_array(), "{reply}");
        }
        trio.start(leader, Program::Weir);
        each_row_is_there_once(&trio, round, 400);
    }
    trio.stop_all();
    trio.check_files();
}

#[test]
fn what_a_client_asks_of_a_follower_at_once_happens_in_its_order() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    for round in 0..rounds(2) {
        let leader = trio.settle(&ALL);
        let mut client = trio.client(others(leader)[0]);
        let asked: Vec<u64> = (0..1000)
            .map(|row| {
                let insert =
                    json!({"op": "insert", "table": "T", "row": {"name": name_in(round, row)}});
                let mut operations = vec![json!("Odd"), insert];
                if let Some(before) = row.checked_sub(1).map(|row| name_in(round, row)) {
                    let is_there = json!({"op": "wait", "table": "T", "timeout": 0, "until": "==",
                        "where": [["name", "==", before]], "columns": ["name"],
                        "rows": [{"name": before}]});
                    operations.insert(1, is_there);
                }
                client.ask("transact", &Value::Array(operations)).expect("a request")
            })
            .collect();
        client.reply(asked[0]).expect("the first reply");
        trio.kill(leader);
        for id in asked.into_iter().skip(1) {
            let reply = client.reply(id).expect("a reply").value;
            assert!(reply["result"][1]["uuid"].is_array(), "{reply}");
        }
        trio.start(leader, Program::Weir);
        each_row_is_there_once(&trio, round, 1000);
    }
    trio.stop_all();
    trio.check_files();
}

#[test]
fn big_transactions_go_through_any_member() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    for (at, len) in [(0, 1_100_000), (1, 2_000_000), (2, 3_000_000)] {
        let insert = json!({"op": "insert", "table": "T", "row": {"name": "x".repeat(len)}});
        let result = trio.client(at).transact("Odd", &[insert]).expect("a reply");
        assert!(result[0]["uuid"].is_array(), "member {at}: {result}");
    }
    eventually("all members have all of it", || {
        ALL.into_iter().all(|at| trio.names(at).iter().map(String::len).sum::<usize>() == 6_100_000)
    });
}

/// What others have committed has not taken effect while a helper has the tables; who leads then does
/// not put its own on top of rows that are too old.
#[test]
fn a_member_begins_to_lead_while_it_is_busy_with_a_big_transaction() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let [busy, other] = others(leader)[..] else { panic!("three members") };
    let rows: Vec<Value> = (0..30_000)
        .map(|n| json!({"op": "insert", "table": "T", "row": {"name": format!("row {n:05}")}}))
        .collect();
    trio.client(busy).transact(&trio.db, &rows).expect("a reply");
    // One that may wait is tried where it was asked; this one looks at all rows thousands of times.
    let at_once = json!({"op": "wait", "timeout": 1, "table": "T", "columns": ["name"],
        "where": [["name", "==", "none"]], "until": "==", "rows": []});
    let look = json!({"op": "update", "table": "T", "where": [["n", "==", 1]], "row": {"n": 2}});
    let insert = json!({"op": "insert", "table": "T", "row": {"name": "big"}});
    let mut big = vec![at_once, insert];
    big.resize(10_000, look);
    let mut client = trio.client(busy);
    client.set_patience(Duration::from_secs(120)).expect("a socket");
    let db = trio.db.clone();
    let asked = std::thread::spawn(move || client.transact(&db, &big));
    // As long as that runs, others go on.
    for n in 0..20 {
        sleep(Duration::from_millis(20));
        trio.insert(other, &format!("small {n:02}"));
    }
    assert!(trio.appctl(other, &["cluster/failure-test", "delay-election"]).status.success());
    trio.kill(leader);
    for n in 20..40 {
        trio.insert(other, &format!("small {n:02}"));
    }
    let result = asked.join().expect("a client").expect("a reply");
    assert!(result.as_array().is_some_and(|results| results.len() == 10_000), "{result}");
    trio.start(leader, Program::Weir);
    trio.settle(&ALL);
    for at in ALL {
        eventually("each row is there once", || {
            let names = trio.names(at);
            names.len() == 30_041 && names.windows(2).all(|pair| pair[0] != pair[1])
        });
    }
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_leader_that_stands_still_is_followed_by_another() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    for _ in 0..rounds(1) {
        let leader = trio.settle(&ALL);
        trio.signal(leader, Signal::STOP);
        let stopped = std::time::Instant::now();
        load.go_on(20, &others(leader));
        sleep(Duration::from_secs(3).saturating_sub(stopped.elapsed()));
        trio.signal(leader, Signal::CONT);
        load.go_on(20, &ALL);
    }
    println!("longest waits: {:?}", load.check(&trio));
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_leader_that_is_stopped_hands_leadership_over() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    for _ in 0..rounds(2) {
        let leader = trio.settle(&ALL);
        trio.stop(leader);
        let next = trio.settle(&others(leader));
        let taken = "starting election to take over leadership";
        assert!(trio.log(next).contains(taken), "{}", trio.log(next));
        trio.start(leader, Program::Weir);
    }
}

#[test]
fn a_member_that_was_away_gets_what_the_others_have() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    for round in 0..rounds(3) {
        let leader = trio.settle(&ALL);
        let away = (leader + 1 + round as usize % 2) % ALL.len();
        match round % 2 {
            0 => trio.stop(away),
            _ => trio.kill(away),
        }
        load.go_on(20, &others(away));
        // What it lacks is in no log any more.
        for at in others(away) {
            let done = trio.appctl(at, &["ovsdb-server/compact", "Odd"]);
            assert!(done.status.success(), "{}", err(&done));
        }
        load.go_on(20, &others(away));
        trio.start(away, Program::Weir);
        load.go_on(20, &ALL);
        let done = trio.appctl(away, &["ovsdb-server/compact", "Odd"]);
        assert!(done.status.success(), "{}", err(&done));
    }
    println!("longest waits: {:?}", load.check(&trio));
    trio.stop_all();
    trio.check_files();
    trio.start_all(Program::Packaged);
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("packaged {at}")));
}

#[test]
fn members_find_each_other_by_names() {
    // A name of this host that the system's resolver knows without asking anybody.
    let Some(mut trio) = Group::weir_named(SCHEMA, "127.1") else { return };
    let load = trio.load();
    load.go_on(10, &ALL);
    let leader = trio.settle(&ALL);
    trio.kill(leader);
    load.go_on(10, &others(leader));
    trio.start(leader, Program::Weir);
    trio.settle(&ALL);
    load.go_on(10, &ALL);
    load.check(&trio);
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_member_whose_address_changes_is_found_there() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(10, &ALL);
    for moves in [trio.settle(&ALL), others(trio.settle(&ALL))[0]] {
        let sid = out(&trio.appctl(moves, &["cluster/sid", &trio.db]));
        trio.stop(moves);
        trio.move_to_another_port(moves);
        trio.start(moves, Program::Weir);
        trio.settle(&ALL);
        assert_eq!(out(&trio.appctl(moves, &["cluster/sid", &trio.db])), sid);
        load.go_on(10, &ALL);
        for at in ALL {
            eventually("each member knows where it listens now", || {
                trio.status(at).contains(&format!(" at {})", trio.address(moves)))
            });
        }
    }
    // Who starts again knows the others from the file alone.
    let leader = trio.settle(&ALL);
    trio.stop(leader);
    trio.start(leader, Program::Weir);
    load.go_on(10, &ALL);
    load.check(&trio);
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_member_that_was_removed_while_it_was_down_leaves_when_it_comes_back() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let away = others(leader)[0];
    let sid = out(&trio.appctl(away, &["cluster/sid", "Odd"]));
    trio.kill(away);
    let done = trio.appctl(leader, &["cluster/kick", "Odd", sid.trim()]);
    assert!(done.status.success(), "{}", err(&done));
    eventually("the others are two", || !trio.status(leader).contains(&sid[..4]));
    trio.start(away, Program::Weir);
    eventually("it hears of that", || trio.log(away).contains("left the cluster"));
    eventually("the database is gone", || {
        out(&trio.appctl(away, &["ovsdb-server/list-dbs"])).lines().all(|name| name != "Odd")
    });
    trio.insert(leader, "two go on");
}

/// The log behind the file's snapshot is longer than what stays in memory of it.
#[test]
fn a_member_that_was_away_gets_entries_that_are_in_files_only() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    trio.insert(0, "the row");
    for round in 0..2 {
        let away = others(trio.settle(&ALL))[round];
        trio.kill(away);
        let mut client = trio.client(trio.settle(&others(away)));
        for n in 0..30 {
            let row = json!({"name": format!("{n}").repeat(500_000)});
            let update = json!({"op": "update", "table": "T", "where": [], "row": row});
            let result = client.transact("Odd", &[update]).expect("a reply");
            assert_eq!(result[0]["count"], 1, "{result}");
        }
        if round == 1 {
            // Who starts reads no more of it than it keeps.
            others(away).into_iter().for_each(|at| trio.stop(at));
            others(away).into_iter().for_each(|at| trio.start(at, Program::Weir));
        }
        trio.start(away, Program::Weir);
        trio.settle(&ALL);
        let last = "29".repeat(500_000);
        eventually("it has what it missed", || trio.names(away) == [last.as_str()]);
        for at in ALL {
            let log = trio.log(at);
            assert!(!log.contains("cannot read entries back"), "{log}");
        }
        assert!(!trio.log(away).contains("receiving snapshot"), "entries are enough");
    }
    trio.stop_all();
    trio.check_files();
}

#[test]
fn tools_read_the_files_while_they_are_written() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let tool = reference("ovsdb-tool").expect("it has been used before");
    let load = trio.load();
    load.go_on(5, &ALL);
    for round in 0..40 * rounds(1) {
        for at in ALL {
            if round % 10 == 5 {
                let done = trio.appctl(at, &["ovsdb-server/compact", "Odd"]);
                assert!(done.status.success(), "{}", err(&done));
            }
            for question in ["check-cluster", "show-log", "db-cid"] {
                let ask = || trio.scratch.run(&tool, &[question, &trio.file(at)]);
                let (mut asked, mut looks) = (ask(), 1);
                // A file grows page by page while a record is written: who looks in that moment
                // sees its beginning, as with the packaged server.
                while !asked.status.success() && looks < 10 {
                    (asked, looks) = (ask(), looks + 1);
                }
                let said = err(&asked);
                let is_well = asked.status.success() && said.is_empty();
                assert!(is_well, "{question} of member {at}, round {round}: {said}");
            }
        }
    }
    load.go_on(5, &ALL);
    load.check(&trio);
}

#[test]
fn followers_serve_monitors_waits_and_locks() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let followers = others(leader);
    let (near, far) = (followers[0], followers[1]);
    let ovsdb_client = reference("ovsdb-client").expect("it comes with the server");
    let server = format!("unix:{}", trio.socket(near).display());
    trio.insert(near, "begin");
    let mut monitor = Running::start(
        trio.scratch.command(&ovsdb_client).args(["monitor", &server, "Odd", "T", "name"]),
    );

    monitor.line_with("begin");

    // A client of one follower waits for what a client of the other writes.
    let mut waiting = trio.client(near);
    let is_there = json!({"op": "wait", "table": "T", "where": [["name", "==", "far"]],
        "columns": ["name"], "until": "==", "rows": [{"name": "far"}], "timeout": 50_000});
    let insert = json!({"op": "insert", "table": "T", "row": {"name": "near"}});
    let asked = waiting.ask("transact", &json!(["Odd", is_there, insert])).expect("a request");
    trio.insert(far, "far");
    let reply = waiting.reply(asked).expect("the reply").value;
    assert!(reply["result"][1]["uuid"].is_array(), "{reply}");
    monitor.line_with("far");
    monitor.line_with("near");
    let never = json!({"op": "wait", "table": "T", "where": [["name", "==", "never"]],
        "columns": ["name"], "until": "==", "rows": [{"name": "never"}], "timeout": 10});
    let insert = json!({"op": "insert", "table": "T", "row": {"name": "never"}});
    let result = waiting.transact("Odd", &[never, insert]).expect("a reply");
    assert_eq!(result[0]["error"], "timed out", "{result}");

    // A lock is that of the member that a client is connected to.
    let assert_lock = json!({"op": "assert", "lock": "door"});
    let (mut owner, mut other) = (trio.client(near), trio.client(near));
    let locked = owner.request("lock", &json!(["door"])).expect("a reply");
    assert_eq!(locked["result"]["locked"], true, "{locked}");
    let insert = |name: &str| json!({"op": "insert", "table": "T", "row": {"name": name}});
    let done = owner.transact("Odd", &[assert_lock.clone(), insert("owner")]).expect("a reply");
    assert!(done[1]["uuid"].is_array(), "{done}");
    let done = other.transact("Odd", &[assert_lock, insert("other")]).expect("a reply");
    assert_eq!(done[0]["error"], "not owner", "{done}");
    monitor.line_with("owner");
    eventually("all members have the same", || {
        ALL.into_iter().all(|at| trio.names(at) == ["begin", "far", "near", "owner"])
    });
}

#[test]
fn clients_come_back_to_any_member_and_are_told_what_they_missed() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let since = |id: &Value| json!(["Odd", "m", {"T": [{"columns": ["name"]}]}, id]);
    let zero = json!("00000000-0000-0000-0000-000000000000");
    let ask = |trio: &Group, at: usize, id: &Value| {
        let reply = trio.client(at).request("monitor_cond_since", &since(id)).expect("a reply");
        let [found, last, rows] = [0, 1, 2].map(|n| reply["result"][n].clone());
        let mut names: Vec<String> = rows["T"]
            .as_object()
            .into_iter()
            .flat_map(|rows| rows.values())
            .map(|row| row.as_object().and_then(|row| row.values().next()).expect("an edit"))
            .map(|values| values["name"].as_str().expect("a name").to_owned())
            .collect();
        names.sort();
        (found == true, last, names)
    };
    let leader = trio.settle(&ALL);
    trio.insert(leader, "first");
    eventually("all have the first row", || ALL.into_iter().all(|at| trio.names(at) == ["first"]));
    // All members call the state by one name, and none of them knows another one.
    let (found, known, names) = ask(&trio, leader, &zero);
    assert_eq!((found, names), (false, vec!["first".to_owned()]));
    assert_ne!(known, zero);
    for at in ALL {
        assert_eq!(ask(&trio, at, &known), (true, known.clone(), vec![]), "member {at}");
    }
    trio.insert(others(leader)[0], "second");
    eventually("all have the second row", || ALL.into_iter().all(|at| trio.names(at).len() == 2));
    for at in ALL {
        let (found, _, names) = ask(&trio, at, &known);
        assert_eq!((found, names), (true, vec!["second".to_owned()]), "member {at}");
    }
    // Compaction takes the entries out of the file, and nothing out of the log.
    for at in ALL {
        let done = trio.appctl(at, &["ovsdb-server/compact", "Odd"]);
        assert!(done.status.success(), "{}", err(&done));
        assert_eq!(ask(&trio, at, &known).2, ["second"], "member {at}");
    }
    let (.., known, _) = ask(&trio, leader, &zero);
    // The next processes find in their files what came behind the snapshot, and the snapshot itself.
    trio.insert(leader, "third");
    eventually("all have the third row", || ALL.into_iter().all(|at| trio.names(at).len() == 3));
    trio.stop_all();
    trio.start_all(Program::Weir);
    for at in ALL {
        let (found, _, names) = ask(&trio, at, &known);
        assert_eq!((found, names), (true, vec!["third".to_owned()]), "member {at}");
    }
    // What packaged servers have told their clients of is another matter.
    trio.stop_all();
    trio.complaints();
    trio.start_all(Program::Packaged);
    trio.insert(leader, "fourth");
    eventually("all have the fourth row", || ALL.into_iter().all(|at| trio.names(at).len() == 4));
    trio.stop_all();
    trio.start_all(Program::Weir);
    for at in ALL {
        assert!(!ask(&trio, at, &known).0, "member {at}");
    }
}

#[test]
fn operators_ask_and_change_what_they_want() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let ask = |at: usize, args: &[&str]| {
        let answer = trio.appctl(at, args);
        let said = format!("{}{}", out(&answer), err(&answer));
        (answer.status.success(), said)
    };
    let tool = reference("ovsdb-tool").expect("it has been used before");
    for at in ALL {
        for (command, question) in [("cluster/cid", "db-cid"), ("cluster/sid", "db-sid")] {
            let of_file = out(&trio.scratch.run(&tool, &[question, &trio.file(at)]));
            assert_eq!(ask(at, &[command, "Odd"]), (true, of_file));
        }
    }
    let follower = (leader + 1) % ALL.len();
    let (is_done, said) = ask(follower, &["cluster/change-election-timer", "Odd", "2000"]);
    assert!(!is_done && said.contains("must be changed through leader"), "{said}");
    let (is_done, said) = ask(leader, &["cluster/change-election-timer", "Odd", "9000"]);
    assert!(!is_done && said.contains("should not exceed the current value x 2"), "{said}");
    let (is_done, said) = ask(leader, &["cluster/change-election-timer", "Odd", "2000"]);
    assert!(is_done && said == "change of election timer initiated.\n", "{said}");
    eventually("all members have the new timer", || {
        ALL.into_iter().all(|at| trio.status(at).contains("\nElection timer: 2000\n"))
    });

    // A follower goes, then the leader throws the other one out.
    assert_eq!(ask(follower, &["cluster/leave", "Odd"]), (true, String::new()));
    let rest = others(follower);
    eventually("the others are two", || {
        let servers =
            |at: usize| trio.status(at).lines().filter(|line| line.contains(" at tcp:")).count();
        rest.iter().all(|at| servers(*at) == 2)
    });
    rest.iter().for_each(|at| trio.insert(*at, &format!("without it {at}")));
    let last = rest.into_iter().find(|at| *at != leader).expect("two");
    let (is_done, said) = ask(leader, &["cluster/kick", "Odd", "no such"]);
    assert!(!is_done && said.contains("unknown server"), "{said}");
    let (is_done, said) = ask(leader, &["cluster/kick", "Odd", trio.address(last)]);
    assert!(is_done && said == "started removal\n", "{said}");
    eventually("the leader is alone", || {
        trio.status(leader).lines().filter(|line| line.contains(" at tcp:")).count() == 1
    });
    trio.insert(leader, "alone");
}

#[test]
fn ovn_northd_works_on_a_pair_of_clusters() {
    let Some(northd) = reference("ovn-northd") else { return };
    let schemas = ["/usr/share/ovn/ovn-nb.ovsschema", "/usr/share/ovn/ovn-sb.ovsschema"];
    let [Some(mut north), Some(south)] = schemas.map(Group::weir) else { return };
    let remotes =
        |trio: &Group| ALL.map(|at| format!("unix:{}", trio.socket(at).display())).join(",");
    let (nb, sb) = (remotes(&north), remotes(&south));
    let control = north.scratch.text("northd.ctl");
    let mut daemon = north.scratch.command(northd);
    daemon.args(["-vconsole:off", "-vsyslog:off", "--unixctl", &control]);
    daemon.arg(format!("--ovnnb-db={nb}")).arg(format!("--ovnsb-db={sb}"));
    let _daemon = Running::start(&mut daemon);
    let nbctl = reference("ovn-nbctl").expect("it comes with ovn-northd");
    let run = |trio: &Group, args: &[&str]| {
        let done = trio.scratch.run(&nbctl, &[&["-t", "60", "--db", nb.as_str()], args].concat());
        assert!(done.status.success(), "ovn-nbctl {args:?}: {}", err(&done));
        out(&done)
    };
    run(&north, &["--wait=sb", "ls-add", "first", "--", "lsp-add", "first", "port"]);
    // Through each follower, too.
    for at in ALL {
        let server = format!("unix:{}", north.socket(at).display());
        let name = format!("through {at}");
        let done = north
            .scratch
            .run(&nbctl, &["-t", "60", "--db", &server, "--no-leader-only", "ls-add", &name]);
        assert!(done.status.success(), "through member {at}: {}", err(&done));
    }
    run(&north, &["--wait=sb", "sync"]);
    let leader = north.settle(&ALL);
    north.kill(leader);
    // Clients that try each member once find no leader during the election.
    north.settle(&others(leader));
    run(&north, &["--wait=sb", "ls-add", "last"]);
    let expected = ["first", "last", "through 0", "through 1", "through 2"];
    let list = run(&north, &["ls-list"]);
    expected.iter().for_each(|name| assert!(list.contains(&format!("({name})")), "{list}"));
    let select = json!({"op": "select", "table": "Datapath_Binding", "where": [],
        "columns": ["external_ids"]});
    for at in ALL {
        eventually("the member of the southbound cluster has all datapaths", || {
            let rows = south.client(at).transact("OVN_Southbound", std::slice::from_ref(&select));
            let rows = rows.expect("a reply").to_string();
            expected.iter().all(|name| rows.contains(name))
        });
    }
}
