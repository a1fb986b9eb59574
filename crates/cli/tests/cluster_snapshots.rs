//! Snapshots that members get of a database of some size, since they were away or are new: what
//! they have then, and what their clients are told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::{err, eventually, out, reference};
use rustix::process::Signal;
use serde_json::{Value, json};
use weir_testkit::client::Client;

/// Rows, each with a name of so many bytes.
const ROWS: usize = 30_000;
const NAME_BYTES: usize = 1_000;

/// Rows of one transaction.
const BATCH: usize = 3_000;

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

fn all_rows() -> Value {
    json!({"op": "select", "table": "T", "where": [], "columns": ["_uuid", "name", "n"]})
}

impl Group {
    /// Fills the table.
    fn fill(&self, at: usize) {
        let mut client = self.client(at);
        for first in (0..ROWS).step_by(BATCH) {
            let insert = |n: usize| {
                let name = format!("{n:0NAME_BYTES$}");
                json!({"op": "insert", "table": "T", "row": {"name": name, "n": n}})
            };
            let rows: Vec<Value> = (first..first + BATCH).map(insert).collect();
            client.transact(&self.db, &rows).expect("the rows");
        }
    }

    /// The rows of a member, by UUID.
    fn rows(&self, at: usize) -> BTreeMap<String, Value> {
        let mut selected = self.client(at).transact(&self.db, &[all_rows()]).expect("rows");
        let Value::Array(rows) = selected[0]["rows"].take() else { panic!("rows") };
        let by_id = |row: Value| (row["_uuid"][1].as_str().expect("a UUID").to_owned(), row);
        rows.into_iter().map(by_id).collect()
    }

    /// Changes a row, takes two away and brings new ones: more entries than are on their way to a
    /// member that does not answer.
    fn change(&self, at: usize) {
        let mut client = self.client(at);
        let (first, second) = (format!("{:0NAME_BYTES$}", 11), format!("{:0NAME_BYTES$}", 12));
        let operations = [
            json!({"op": "update", "table": "T", "where": [["n", "==", 10]],
                "row": {"name": "other"}}),
            json!({"op": "delete", "table": "T", "where": [["name", "==", first]]}),
            json!({"op": "delete", "table": "T", "where": [["name", "==", second]]}),
        ];
        client.transact(&self.db, &operations).expect("a change");
        for row in 0..200 {
            self.insert(at, &format!("new {row}"));
        }
    }

    fn compact(&self, members: &[usize]) {
        for at in members {
            let done = self.appctl(*at, &["ovsdb-server/compact", &self.db]);
            assert!(done.status.success(), "{}", err(&done));
        }
    }

    fn has_received(&self, at: usize) -> bool {
        self.log(at).contains("receiving snapshot from server")
    }

    /// Waits until all members have the same rows.
    fn await_equal(&self, members: &[usize]) -> BTreeMap<String, Value> {
        let mut rows = BTreeMap::new();
        eventually("the members have the same rows", || {
            rows = self.rows(members[0]);
            members[1..].iter().all(|at| self.rows(*at) == rows)
        });
        rows
    }
}

/// Takes updates of a monitor until a row of this name has come; what was in them.
fn updates(client: &mut Client, until: &str) -> BTreeMap<String, Value> {
    let mut edits = BTreeMap::new();
    loop {
        let update = client.next_message().expect("an update").value;
        assert_eq!(update["method"], "update2", "{update}");
        let rows = update["params"][1]["T"].as_object().expect("rows").clone();
        let is_last = rows.values().any(|edit| edit["insert"]["name"] == until);
        for (uuid, edit) in rows {
            assert!(edits.insert(uuid, edit).is_none(), "a row is told of once");
        }
        if is_last {
            return edits;
        }
    }
}

#[test]
fn clients_of_a_member_that_was_away_are_told_what_differs() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    trio.fill(leader);
    let before = trio.await_equal(&ALL);
    assert_eq!(before.len(), ROWS);
    let (away, near) = (others(leader)[0], others(leader)[1]);
    let mut watching = trio.client(away);
    let monitor = json!(["Odd", "m", {"T": [{"columns": ["name", "n"]}]}]);
    watching.request("monitor_cond", &monitor).expect("rows");
    // Whoever leads by then sends it.
    trio.signal(away, Signal::STOP);
    trio.change(near);
    trio.compact(&[leader, near]);
    trio.insert(near, "last");
    trio.signal(away, Signal::CONT);

    let edits = updates(&mut watching, "last");
    let after = trio.await_equal(&ALL);
    assert!(trio.has_received(away), "{}", trio.log(away));
    for (uuid, edit) in &edits {
        let [old, new] = [&before, &after].map(|rows| rows.get(uuid));
        let kind = match (old, new) {
            (None, Some(row)) => {
                assert_eq!(edit["insert"]["name"], row["name"]);
                "insert"
            }
            (Some(_), Some(row)) => {
                assert_eq!(edit["modify"], json!({"name": row["name"]}));
                "modify"
            }
            _ => "delete",
        };
        assert!(edit.get(kind).is_some(), "{kind}: {edit}");
    }
    let is_changed = |uuid: &&String| before.get(*uuid) != after.get(*uuid);
    let changed: Vec<&String> = before.keys().filter(is_changed).collect();
    assert_eq!(changed.len(), 3);
    assert!(changed.into_iter().all(|uuid| edits.contains_key(uuid)));
    assert_eq!(edits.len(), 3 + 201);
    ALL.into_iter().for_each(|at| trio.insert(at, "behind"));
    trio.stop_all();
    trio.check_files();
    // The file that came is what the next process begins with.
    trio.start_all(Program::Weir);
    assert_eq!(trio.await_equal(&ALL).len(), ROWS - 2 + 201 + 3);
}

#[test]
fn a_snapshot_whose_sender_is_killed_comes_from_the_next_leader() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    trio.fill(leader);
    let away = others(leader)[0];
    let near = others(leader)[1];
    trio.await_equal(&ALL);
    trio.signal(away, Signal::STOP);
    trio.change(near);
    trio.compact(&[leader, near]);
    trio.signal(away, Signal::CONT);
    let mut sender = None;
    eventually("the snapshot is under way", || {
        sender = trio.leader_among(&[leader, near]);
        trio.has_received(away) && sender.is_some()
    });
    let sender = sender.expect("just seen");
    trio.kill(sender);
    let rest = others(sender);
    trio.settle(&rest);
    rest.iter().for_each(|at| trio.insert(*at, "meanwhile"));
    assert_eq!(trio.await_equal(&rest).len(), ROWS - 2 + 200 + 2);
    trio.start(sender, Program::Weir);
    trio.settle(&ALL);
    trio.await_equal(&ALL);
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_server_joins_a_cluster_of_many_rows() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    trio.fill(leader);
    trio.await_equal(&ALL);
    trio.compact(&ALL);
    // One leaves, and comes again with an empty file.
    let gone = others(leader)[0];
    let left = trio.appctl(gone, &["cluster/leave", "Odd"]);
    assert!(left.status.success(), "{}", err(&left));
    eventually("the database is gone", || {
        !trio.appctl(gone, &["cluster/sid", "Odd"]).status.success()
    });
    trio.stop(gone);
    std::fs::remove_file(trio.scratch.path(&trio.file(gone))).expect("its file");
    let tool = reference("ovsdb-tool").expect("it has been used before");
    let (file, own) = (trio.file(gone), trio.address(gone).to_owned());
    let known = trio.address(leader).to_owned();
    let made = trio.scratch.run(&tool, &["join-cluster", &file, "Odd", &own, &known]);
    assert!(made.status.success(), "{}{}", out(&made), err(&made));
    trio.start(gone, Program::Weir);
    trio.settle(&ALL);
    ALL.into_iter().for_each(|at| trio.insert(at, "joined"));
    assert_eq!(trio.await_equal(&ALL).len(), ROWS + 3);
    assert!(trio.has_received(gone), "{}", trio.log(gone));
    trio.stop_all();
    trio.check_files();
}

/// Some request waits whenever a batch is decided, so that the next batch begins at once.
#[test]
fn a_leader_is_compacted_under_load_without_a_pause() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let mut client = trio.client(leader);
            let is_over = &is_over;
            scope.spawn(move || {
                let insert = json!({"op": "insert", "table": "T", "row": {"name": "x"}});
                while !is_over.load(Ordering::Relaxed) {
                    client.transact("Odd", std::slice::from_ref(&insert)).expect("a reply");
                }
            });
        }
        eventually("there is load", || trio.names(leader).len() > 1000);
        let compacted = trio.appctl(leader, &["-T", "20", "ovsdb-server/compact", "Odd"]);
        is_over.store(true, Ordering::Relaxed);
        assert!(compacted.status.success(), "{}", err(&compacted));
    });
}
