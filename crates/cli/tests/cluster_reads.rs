//! Clients of any member that ask for more than what that member has: for all that is committed
//! (`weir_sync`), or for the state of an id (`weir_wait_id`).

use std::time::Duration;

use crate::group::{ALL, Group, Program, SCHEMA};
use rustix::process::Signal;
use serde_json::{Value, json};

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

fn sync(trio: &Group, at: usize, ms: u64) -> Value {
    trio.client(at).request("weir_sync", &json!(["Odd", ms])).expect("a reply")
}

#[test]
fn who_asks_for_what_is_committed_reads_it() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    for round in 0..30 {
        let (from, to) = (ALL[round % 3], ALL[(round + 1) % 3]);
        trio.insert(from, &format!("row {round}"));
        assert_eq!(sync(&trio, to, 60_000)["result"], json!({}), "member {to}");
        assert_eq!(trio.names(to).len(), round + 1, "member {to}");
    }

    // Whoever stood still while others have written does not know it, until it is asked.
    trio.signal(leader, Signal::STOP);
    let next = trio.settle(&others(leader));
    trio.insert(next, "behind its back");
    trio.signal(leader, Signal::CONT);
    assert_eq!(sync(&trio, leader, 60_000)["result"], json!({}));
    assert!(trio.names(leader).contains(&"behind its back".to_owned()));

    // Alone, nobody can know.
    let leader = trio.settle(&ALL);
    others(leader).into_iter().for_each(|at| trio.kill(at));
    let reply = sync(&trio, leader, 300);
    assert_eq!(reply["error"]["error"], "timed out", "{reply}");
    others(leader).into_iter().for_each(|at| trio.start(at, Program::Weir));
    trio.settle(&ALL);
    assert_eq!(sync(&trio, leader, 60_000)["result"], json!({}));
}

/// Without being asked for it, as the reference's does: also what its own disk has not got yet, while
/// the others' have.
#[test]
fn a_leader_shows_what_others_have_acknowledged() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let count = json!({"op": "select", "table": "T", "where": [], "columns": ["_uuid"]});
    let mut reader = trio.client(leader);
    let mut writer = trio.client(others(leader)[0]);
    for round in 1..=500 {
        let row = json!({"op": "insert", "table": "T", "row": {"name": "x"}});
        writer.transact("Odd", &[row]).expect("a reply");
        let rows = reader.transact("Odd", std::slice::from_ref(&count)).expect("a reply");
        assert_eq!(rows[0]["rows"].as_array().expect("rows").len(), round);
    }
}

/// What the one before him has asked of the leader is decided before he reads, though he has the lock already.
#[test]
fn who_reads_under_a_lock_finds_what_others_wrote_under_it() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let (lock, assert) = (json!(["L"]), json!({"op": "assert", "lock": "L"}));
    let select = json!({"op": "select", "table": "T", "where": [], "columns": ["_uuid"]});
    let read = [assert.clone(), select.clone()];
    let write = json!(["Odd", assert, {"op": "insert", "table": "T", "row": {"name": "x"}}]);
    let mut written = 0;
    for at in [leader, others(leader)[0]] {
        assert_eq!(sync(&trio, at, 60_000)["result"], json!({}));
        let mut clients = [trio.client(at), trio.client(at)];
        for turn in 0..100 {
            let client = &mut clients[turn % 2];
            let locked = client.request("lock", &lock).expect("a reply");
            if locked["result"]["locked"] == false {
                // What the one before has written under it is not known here yet.
                let told = client.next_message().expect("a notification").value;
                assert_eq!(told["method"], "locked", "{told}");
            }
            let rows = client.transact("Odd", &read).expect("a reply");
            assert_eq!(rows[1]["rows"].as_array().expect("rows").len(), written, "member {at}");
            client.ask("transact", &write).expect("it is sent");
            client.request("unlock", &lock).expect("a reply");
            written += 1;
        }
        // What it asks next comes behind its own.
        clients[1].transact("Odd", std::slice::from_ref(&select)).expect("a reply");
    }
}

/// A helper looks at a request of a mebibyte first, and comes back while the leader has not answered.
#[test]
fn a_long_read_under_a_lock_finds_what_others_wrote_under_it() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    let at = others(leader)[0];
    let (lock, assert) = (json!(["L"]), json!({"op": "assert", "lock": "L"}));
    let write = json!(["Odd", assert, {"op": "insert", "table": "T", "row": {"name": "x"}}]);
    let mut clients = [trio.client(at), trio.client(at)];
    for client in &mut clients {
        client.request("lock", &lock).expect("a reply");
    }
    trio.signal(leader, Signal::STOP);
    let [first, second] = &mut clients;
    first.ask("transact", &write).expect("it is sent");
    first.request("unlock", &lock).expect("a reply");
    let select = |name: &str| {
        let is_it = json!([["name", "==", name]]);
        json!({"op": "select", "table": "T", "where": is_it, "columns": ["name"]})
    };
    let read = json!(["Odd", assert, select("x"), select(&"long".repeat(300_000))]);
    let asked = second.ask("transact", &read).expect("it is sent");
    std::thread::sleep(Duration::from_millis(200));
    trio.signal(leader, Signal::CONT);
    let reply = second.reply(asked).expect("a reply").value;
    assert_eq!(reply["result"][1]["rows"], json!([{"name": "x"}]), "{reply}");
}

#[test]
fn what_is_asked_of_a_leader_that_is_lost_is_asked_of_the_next_one() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let leader = trio.settle(&ALL);
    trio.signal(leader, Signal::STOP);
    let at = others(leader)[0];
    let mut client = trio.client(at);
    client.set_patience(Duration::from_secs(60)).expect("a socket");
    let reply = client.request("weir_sync", &json!(["Odd", 60_000])).expect("a reply");
    assert_eq!(reply["result"], json!({}), "{reply}");
    trio.signal(leader, Signal::CONT);
}

#[test]
fn who_has_written_reads_that_from_another_member() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    let zero = "00000000-0000-0000-0000-000000000000";
    for round in 0..10 {
        let (from, to) = (ALL[round % 3], ALL[(round + 1) % 3]);
        trio.insert(from, &format!("row {round}"));
        let monitor = json!(["Odd", "m", {"T": [{"columns": ["name"]}]}, zero]);
        let first = trio.client(from).request("monitor_cond_since", &monitor).expect("a reply");
        let wait = json!(["Odd", first["result"][1], 60_000]);
        let reply = trio.client(to).request("weir_wait_id", &wait).expect("a reply");
        assert_eq!(reply["result"], json!({}), "{reply}");
        assert_eq!(trio.names(to).len(), round + 1, "member {to}");
    }
    let wait = json!(["Odd", "11111111-1111-4111-8111-111111111111", 50]);
    let reply = trio.client(0).request("weir_wait_id", &wait).expect("a reply");
    assert_eq!(reply["error"]["error"], "timed out", "{reply}");
    for (method, params) in [
        ("weir_wait_id", json!(["Odd"])),
        ("weir_wait_id", json!(["Odd", "x", 1])),
        ("weir_wait_id", json!(["Odd", zero])),
        ("weir_sync", json!(["Odd"])),
        ("weir_sync", json!(["Odd", -1])),
        ("weir_sync", json!(["Odd", 1, 2])),
    ] {
        let reply = trio.client(0).request(method, &params).expect("a reply");
        assert_eq!(reply["error"]["error"], "syntax error", "{method} {params}: {reply}");
    }
    trio.stop_all();
}
