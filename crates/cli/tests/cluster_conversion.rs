//! Conversions of clustered databases: through any member, under load, with members that are killed
//! or away, and on files that change their program.

use std::path::Path;
use std::sync::Barrier;

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::{err, eventually, out, reference};
use serde_json::{Value, json};
use weir_testkit::client::{Client, Trouble};

/// `SCHEMA` with a column more, and of another version.
fn wider(version: u32) -> Value {
    let mut schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    schema["version"] = json!(format!("{version}.0.0"));
    schema["tables"]["T"]["columns"]["extra"] = json!({"type": "string"});
    schema
}

/// A schema that has no room for a `n` of more than two.
fn narrow() -> Value {
    let mut schema = wider(9);
    let integer = json!({"key": {"type": "integer", "maxInteger": 2}});
    schema["tables"]["T"]["columns"]["n"] = json!({"type": integer});
    schema
}

fn version(socket: &Path, db: &str) -> Result<Value, Trouble> {
    let schema = Client::connect(socket)?.request("get_schema", &json!([db]))?;
    Ok(schema["result"]["version"].clone())
}

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

impl Group {
    /// Converts through a member, which answers that it has.
    fn convert(&self, at: usize, schema: &Value) {
        let mut client = self.client(at);
        // The packaged server disconnects others, often before it answers.
        client.request("set_db_change_aware", &json!([true])).expect("a reply");
        let converted = client.request("convert", &json!([self.db, schema]));
        assert_eq!(converted.expect("a reply")["result"], json!({}));
    }

    /// Waits until members have this version of the schema.
    fn await_version(&self, members: &[usize], wanted: u32) {
        let wanted = json!(format!("{wanted}.0.0"));
        eventually("the members have the schema", || {
            let is_there = |at: &usize| {
                version(&self.socket(*at), &self.db).is_ok_and(|version| version == wanted)
            };
            members.iter().all(is_there)
        });
    }

    /// How many entries of a member's log bring a schema, by its file.
    fn conversions(&self, at: usize) -> usize {
        let file = std::fs::read_to_string(self.scratch.path(&self.file(at))).expect("a file");
        file.lines().filter(|line| line.contains(r#""data":[{"#)).count()
    }
}

#[test]
fn a_conversion_through_any_member_reaches_all() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("before {at}")));
    for (version, at) in [(2, leader), (3, others(leader)[0])] {
        trio.convert(at, &wider(version));
        // Whoever asked sees it at once.
        trio.await_version(&[at], version);
        trio.await_version(&ALL, version);
        ALL.into_iter().for_each(|at| trio.insert(at, &format!("{version} {at}")));
    }
    let row = json!({"op": "update", "table": "T", "where": [], "row": {"extra": "new"}});
    let updated = trio.client(others(leader)[1]).transact("Odd", &[row]);
    assert_eq!(updated.expect("a reply"), json!([{"count": 9}]));
    let expected = trio.names(leader);
    assert_eq!(expected.len(), 9);
    trio.stop_all();
    trio.check_files();
    assert_eq!(ALL.map(|at| trio.conversions(at)), [2; 3]);

    trio.start_all(Program::Packaged);
    trio.await_version(&ALL, 3);
    ALL.into_iter().for_each(|at| assert_eq!(trio.names(at), expected, "member {at}"));
    trio.convert(0, &wider(4));
    trio.convert(1, &wider(5));
    trio.await_version(&ALL, 5);
    trio.stop_all();

    trio.start_all(Program::Weir);
    trio.await_version(&ALL, 5);
    ALL.into_iter().for_each(|at| assert_eq!(trio.names(at), expected, "member {at}"));
    trio.insert(2, "last");
}

#[test]
fn hosts_that_upgrade_at_once_convert_once() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    let schema = trio.scratch.write("wider", &wider(2).to_string()).display().to_string();
    let client = reference("ovsdb-client").expect("it comes with the server");
    let barrier = Barrier::new(ALL.len());
    let upgrade = |at: usize| {
        let remote = format!("unix:{}", trio.socket(at).display());
        let run = |command: &str| {
            trio.scratch.run(&client, &["-t", "60", "--no-leader-only", command, &remote, &schema])
        };
        assert_eq!(out(&run("needs-conversion")), "yes\n");
        barrier.wait();
        let converted = run("convert");
        assert!(converted.status.success(), "{}", err(&converted));
        assert_eq!(out(&run("needs-conversion")), "no\n");
    };
    std::thread::scope(|scope| {
        for at in ALL {
            scope.spawn(move || upgrade(at));
        }
    });
    load.go_on(20, &ALL);
    load.check(&trio);
    trio.stop_all();
    trio.check_files();
    assert_eq!(ALL.map(|at| trio.conversions(at)), [1; 3]);
}

#[test]
fn a_conversion_that_fails_changes_nothing() {
    let Some(mut trio) = Group::packaged(SCHEMA) else { return };
    let row = json!({"op": "insert", "table": "T", "row": {"name": "much", "n": 7}});
    trio.client(0).transact("Odd", &[row]).expect("a row");
    let other = json!({"name": "Even", "version": "1.0.0", "tables": {}});
    let wrong = json!({"name": "Odd", "tables": {"T": {"columns": {"n": {"type": "int"}}}}});
    let asked = [
        json!(["Odd", narrow()]),
        json!(["Odd", other]),
        json!(["Odd", wrong]),
        json!(["Odd"]),
        json!(["Even", other]),
        json!(["Odd", 1]),
    ];
    let answers = |trio: &Group| {
        let answer = |(at, params): (usize, &Value)| {
            let refused = trio.client(at).request("convert", params).expect("a reply");
            assert!(refused["error"].is_object(), "{refused}");
            refused["error"].clone()
        };
        let all = ALL.into_iter().flat_map(|at| asked.iter().map(move |params| (at, params)));
        all.map(answer).collect::<Vec<_>>()
    };
    let expected = answers(&trio);
    trio.stop_all();
    trio.start_all(Program::Weir);
    assert_eq!(answers(&trio), expected);
    // The packaged servers take it, and end.
    let mut ephemeral = wider(2);
    ephemeral["tables"]["T"]["columns"]["extra"]["ephemeral"] = json!(true);
    let refused = trio.client(1).request("convert", &json!(["Odd", ephemeral]));
    let refused = refused.expect("a reply")["error"].to_string();
    assert!(refused.contains("clustered databases do not support"), "{refused}");

    trio.await_version(&ALL, 1);
    ALL.into_iter().for_each(|at| trio.insert(at, "after"));
    trio.stop_all();
    trio.check_files();
    assert_eq!(ALL.map(|at| trio.conversions(at)), [0; 3]);
}

#[test]
fn members_that_are_killed_during_conversions_lose_nothing() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    for round in 0..6 {
        let leader = trio.settle(&ALL);
        let killed = if round % 2 == 0 { leader } else { others(leader)[0] };
        // Through a member that goes on; it waits for the next leader.
        let asked = others(killed)[round as usize % 2];
        let (params, mut client) = (json!(["Odd", wider(2 + round)]), trio.client(asked));
        let id = client.ask("convert", &params).expect("a request");
        std::thread::sleep(std::time::Duration::from_millis(u64::from(round)));
        trio.kill(killed);
        let reply = client.reply(id).expect("a reply").value;
        assert_eq!(reply["result"], json!({}), "round {round}: {reply}");
        trio.await_version(&others(killed), 2 + round);
        load.go_on(10, &others(killed));
        trio.start(killed, Program::Weir);
        trio.await_version(&ALL, 2 + round);
        load.go_on(10, &ALL);
    }
    load.check(&trio);
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_member_that_was_away_over_a_conversion_has_it_then() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let load = trio.load();
    for (round, with_snapshot) in [false, true].into_iter().enumerate() {
        let version = 2 + u32::try_from(round).expect("few");
        load.go_on(20, &ALL);
        let leader = trio.settle(&ALL);
        let away = others(leader)[round];
        trio.kill(away);
        load.go_on(20, &others(away));
        trio.convert(leader, &wider(version));
        load.go_on(20, &others(away));
        if with_snapshot {
            for at in others(away) {
                let done = trio.appctl(at, &["ovsdb-server/compact", "Odd"]);
                assert!(done.status.success(), "{}", err(&done));
            }
            load.go_on(20, &others(away));
        }
        trio.start(away, Program::Weir);
        trio.await_version(&ALL, version);
        load.go_on(20, &ALL);
    }
    load.check(&trio);
    trio.stop_all();
    trio.check_files();
    trio.start_all(Program::Packaged);
    trio.await_version(&ALL, 3);
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("packaged {at}")));
}

#[test]
fn a_big_conversion_goes_without_rows_and_its_files_are_written_anew() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    // More than goes with an entry.
    let leader = trio.settle(&ALL);
    for row in 0..3 {
        trio.insert(leader, &format!("{row}{}", "x".repeat(4 << 20)));
    }
    let killed = others(leader)[0];
    trio.convert(others(leader)[1], &wider(2));
    trio.kill(killed);
    trio.await_version(&others(killed), 2);
    trio.start(killed, Program::Weir);
    trio.await_version(&ALL, 2);
    ALL.into_iter().for_each(|at| trio.insert(at, "small"));
    let expected = trio.names(leader);
    assert_eq!(expected.len(), 6);
    eventually("the files have no entry that older servers do not read", || {
        ALL.into_iter().all(|at| trio.conversions(at) == 0)
    });
    trio.stop_all();
    trio.check_files();
    trio.start_all(Program::Packaged);
    trio.await_version(&ALL, 2);
    eventually("the packaged servers have all rows", || {
        ALL.into_iter().all(|at| trio.names(at) == expected)
    });
}

#[test]
fn clients_learn_of_a_conversion_wherever_they_are() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    trio.insert(0, "row");
    let leader = trio.settle(&ALL);
    let mut unaware = ALL.map(|at| trio.client(at));
    let mut aware = ALL.map(|at| trio.client(at));
    let watch = |client: &mut Client, id: &str| {
        let asked = json!(["Odd", id, {"T": {"columns": ["name"]}}]);
        client.request("monitor_cond", &asked).expect("rows");
    };
    for (at, client) in unaware.iter_mut().enumerate() {
        watch(client, &format!("unaware {at}"));
    }
    for (at, client) in aware.iter_mut().enumerate() {
        client.request("set_db_change_aware", &json!([true])).expect("an answer");
        watch(client, &format!("aware {at}"));
        let schema = json!({"Database": {"columns": ["schema"]}});
        client.request("monitor_cond", &json!(["_Server", "server", schema])).expect("rows");
    }
    let mut asking = trio.client(others(leader)[0]);
    let id = asking.ask("convert", &json!(["Odd", wider(2)])).expect("a request");
    let messages = asking.until_closed().expect("the connection ends");
    let answers: Vec<&Value> = messages.iter().map(|message| &message.value).collect();
    assert!(
        matches!(answers[..], [reply] if reply["id"] == id && reply["result"] == json!({})),
        "{answers:?}"
    );
    for mut client in unaware {
        client.until_closed().expect("the connection ends");
    }
    for (at, client) in aware.iter_mut().enumerate() {
        let canceled = client.next_message().expect("a notification").value;
        assert_eq!(canceled["method"], "monitor_canceled", "member {at}: {canceled}");
        assert_eq!(canceled["params"], json!([format!("aware {at}")]), "member {at}");
        let schema = client.next_message().expect("an update").value.to_string();
        assert!(schema.contains("extra"), "member {at}: {schema}");
        let row = client.transact(
            "Odd",
            &[json!({"op": "select", "table": "T", "where": [],
            "columns": ["name", "extra"]})],
        );
        assert_eq!(row.expect("rows"), json!([{"rows": [{"name": "row", "extra": ""}]}]));
    }
}
