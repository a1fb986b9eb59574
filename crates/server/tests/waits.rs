//! A `wait` costs what concerns it: which waiting transactions run again, and how many at a time.

use crate::shell::Shell;
use serde_json::{Value, json};
use weir_server::event::SessionId;

const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "Port":{"columns":{
        "name":{"type":"string"},
        "n":{"type":"integer"},
        "mac":{"type":{"key":"string","min":0,"max":1}},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}},
        "indexes":[["name"]]},
    "Other":{"columns":{"name":{"type":"string"}}}}}"#;

const UUID: &str = "00000000-0000-0000-0000-00000000000a";

/// Ports p0, p1 and p2.
fn start() -> (Shell, SessionId, SessionId) {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
    weir_log::standalone::write_schema(&mut file, &schema);
    let mut shell = Shell::start_on(file);
    let (waiter, writer) = (shell.connect(), shell.connect());
    let ports: Vec<Value> = (0..3).map(|i| insert(&format!("p{i}"))).collect();
    commit(&mut shell, writer, json!(ports));
    (shell, waiter, writer)
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "Port", "row": {"name": name}})
}

fn other() -> Value {
    json!([{"op": "insert", "table": "Other", "row": {"name": "x"}}])
}

fn request(id: impl Into<Value>, operations: &Value) -> String {
    let mut params = vec![json!("Net")];
    params.extend(operations.as_array().unwrap().iter().cloned());
    json!({"id": id.into(), "method": "transact", "params": params}).to_string()
}

fn commit(shell: &mut Shell, session: SessionId, operations: Value) {
    let reply = shell.call(session, &request("commit", &operations));
    assert!(reply.contains("result") && !reply.contains(r#""error":""#), "{reply}");
}

/// Waits until there is such a port.
fn wait_for(condition: Value) -> Value {
    let columns = json!(["name"]);
    json!({"op": "wait", "table": "Port", "where": condition, "columns": columns, "until": "!=",
        "rows": []})
}

fn ids(messages: &[String]) -> Vec<Value> {
    let message = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    messages.iter().map(|text| message(text)["id"].clone()).collect()
}

/// How many times waiting transactions have run again since.
fn runs(shell: &Shell, since: &mut u64) -> u64 {
    let before = std::mem::replace(since, shell.server.ran_again());
    *since - before
}

#[test]
fn a_wait_whose_time_is_up_runs_alone() {
    let (mut shell, waiter, writer) = start();
    for i in 0..50_u64 {
        let mut wait = wait_for(json!([["n", ">", 5]]));
        wait["timeout"] = json!(1000 - 10 * i);
        shell.send(waiter, &request(i, &json!([wait])));
    }
    shell.settle();
    commit(&mut shell, writer, other());
    assert_eq!(shell.server.ran_again(), 0);
    shell.pass_ms(1001);
    assert_eq!(shell.server.ran_again(), 50);
    let received = shell.received(waiter);
    let expected: Vec<u64> = (0..50).rev().collect();
    assert_eq!(ids(&received), expected);
    assert!(received.iter().all(|reply| reply.contains("timed out")), "{received:?}");
}

#[test]
fn a_change_wakes_those_who_look_at_it() {
    let by_name = || wait_for(json!([["name", "==", "p9"], ["n", ">", 5]]));
    let by_mac = || wait_for(json!([["n", "==", 7], ["mac", "==", "m"]]));
    let by_uuid = || wait_for(json!([["_uuid", "==", ["uuid", UUID]]]));
    let by_tag = || wait_for(json!([["tags", "includes", "t"]]));
    let whole = || {
        let mut wait = wait_for(json!([]));
        wait.as_object_mut().unwrap().remove("columns");
        (wait["until"], wait["rows"]) = (json!("=="), json!([{"name": "nobody"}]));
        wait
    };
    let never = || wait_for(json!([false]));
    let update = |name: &str, row: Value| {
        let condition = json!([["name", "==", name]]);
        json!([{"op": "update", "table": "Port", "where": condition, "row": row}])
    };
    let waits = [by_name(), by_mac(), by_uuid(), by_tag(), whole(), never()];
    let with_uuid = json!([{"op": "insert", "table": "Port", "uuid": UUID, "row": {"name": "p8"}}]);
    for (change, woken) in [
        (json!([insert("p9")]), [true, false, false, true, true, false]),
        (json!([insert("p8")]), [false, false, false, true, true, false]),
        (with_uuid, [false, false, true, true, true, false]),
        (update("p1", json!({"name": "p9"})), [true, false, false, true, true, false]),
        (update("p1", json!({"n": 3})), [false, false, false, false, true, false]),
        (update("p1", json!({"n": 0})), [false; 6]),
        (update("p1", json!({"mac": "m"})), [false, true, false, false, true, false]),
        (update("p1", json!({"tags": "x"})), [false, false, false, true, true, false]),
        (other(), [false; 6]),
    ] {
        for (wait, woken) in waits.iter().zip(woken) {
            let (mut shell, waiter, writer) = start();
            shell.send(waiter, &request(1, &json!([wait])));
            shell.settle();
            assert_eq!(shell.received(waiter), Vec::<String>::new(), "{wait}");
            commit(&mut shell, writer, change.clone());
            assert_eq!(shell.server.ran_again() > 0, woken, "{wait} {change}");
        }
    }
}

#[test]
fn a_change_of_a_value_wakes_those_who_wait_for_the_old_one_and_for_the_new_one() {
    let (mut shell, waiter, writer) = start();
    for (id, name) in [(1, "p0"), (2, "p3"), (3, "p1")] {
        let mut wait = wait_for(json!([["name", "==", name], ["n", "!=", 1]]));
        if name != "p3" {
            wait["until"] = json!("==");
        }
        shell.send(waiter, &request(id, &json!([wait])));
    }
    shell.settle();
    let rename = json!([{"op": "update", "table": "Port", "where": [["name", "==", "p0"]],
        "row": {"name": "p3"}}]);
    commit(&mut shell, writer, rename);
    assert_eq!(shell.server.ran_again(), 2);
    assert_eq!(ids(&shell.received(waiter)), [1, 2]);
    let delete = json!([{"op": "delete", "table": "Port", "where": [["name", "==", "p1"]]}]);
    commit(&mut shell, writer, delete);
    assert_eq!(ids(&shell.received(waiter)), [3]);
}

#[test]
fn operations_before_a_wait_count_if_they_can_make_a_difference() {
    let select = json!({"op": "select", "table": "Other", "where": []});
    let update = json!({"op": "update", "table": "Other", "where": [], "row": {"name": "y"}});
    let plain = json!({"op": "insert", "table": "Other", "row": {"name": "z"}});
    let chosen = json!({"op": "insert", "table": "Other", "uuid": UUID, "row": {"name": "z"}});
    let assert = json!({"op": "assert", "lock": "l"});
    let comment = json!({"op": "comment", "comment": "c"});
    for (before, is_woken) in [
        (select, false),
        (update, true),
        (plain, false),
        (chosen, true),
        (assert, true),
        (comment, false),
    ] {
        let (mut shell, waiter, writer) = start();
        shell.call(waiter, r#"{"id":0,"method":"lock","params":["l"]}"#);
        let wait = wait_for(json!([["name", "==", "p9"]]));
        shell.send(waiter, &request(1, &json!([before, wait])));
        shell.settle();
        commit(&mut shell, writer, other());
        assert_eq!(shell.server.ran_again(), u64::from(is_woken), "{before}");
        commit(&mut shell, writer, json!([insert("p9")]));
        assert_eq!(ids(&shell.received(waiter)), [1], "{before}");
    }
}

#[test]
fn a_lock_that_is_lost_meanwhile_is_noticed() {
    let (mut shell, waiter, writer) = start();
    shell.call(waiter, r#"{"id":0,"method":"lock","params":["l"]}"#);
    let wait = wait_for(json!([["name", "==", "p9"]]));
    let assert = json!({"op": "assert", "lock": "l"});
    shell.send(waiter, &request(1, &json!([assert, wait])));
    shell.settle();
    shell.call(writer, r#"{"id":0,"method":"steal","params":["l"]}"#);
    commit(&mut shell, writer, other());
    let received = shell.received(waiter);
    assert!(received[1].contains("not owner"), "{received:?}");
}

/// Waits that all look at every port, in a server whose steps are short.
fn many(count: u64) -> (Shell, SessionId, SessionId) {
    let (mut shell, waiter, writer) = start();
    for i in 0..count {
        shell.send(waiter, &request(i, &json!([wait_for(json!([["n", "==", 1]]))])));
        shell.settle();
    }
    shell.server.set_step_cost_max(2000);
    (shell, waiter, writer)
}

#[test]
fn those_whom_one_change_wakes_run_in_slices_and_in_order() {
    let (mut shell, waiter, writer) = many(300);
    let echo = shell.connect();
    let port = json!([{"op": "insert", "table": "Port", "row": {"name": "p9", "n": 1}}]);
    shell.send(writer, &request(1, &port));
    let (mut since, mut rounds) = (0, 0);
    while shell.server.ran_again() < 300 {
        shell.send(echo, r#"{"id":7,"method":"echo","params":[]}"#);
        let handled = runs(&shell, &mut since);
        shell.short_round();
        let ran = handled + runs(&shell, &mut since);
        assert!(ran <= 20, "{ran} in a round");
        assert_eq!(ids(&shell.received(echo)), [7]);
        assert!(shell.server.next_wakeup_us().is_some());
        rounds += 1;
        assert!(rounds < 1000, "they do not go on");
    }
    shell.settle();
    assert!(rounds > 15, "{rounds}");
    assert_eq!(ids(&shell.received(waiter)), (0..300).collect::<Vec<u64>>());
}

#[test]
fn one_who_waits_again_keeps_the_place() {
    let (mut shell, waiter, writer) = start();
    let wait = |n: u64| {
        let mut wait = wait_for(json!([["name", "==", "p0"]]));
        (wait["columns"], wait["until"], wait["rows"]) =
            (json!(["n"]), json!("=="), json!([{"n": n}]));
        wait
    };
    let set = |n: u64| {
        let condition = json!([["name", "==", "p0"]]);
        json!({"op": "update", "table": "Port", "where": condition, "row": {"n": n}})
    };
    // Each goes on when the one before has, and then the second one's turn is over for now.
    for (id, from, to) in [(1, 4, 5), (2, 2, 3), (3, 1, 2), (4, 3, 4)] {
        shell.send(waiter, &request(id, &json!([wait(from), set(to)])));
    }
    shell.settle();
    for _ in 0..3 {
        commit(&mut shell, writer, json!([set(9)]));
    }
    assert_eq!(shell.received(waiter), Vec::<String>::new());
    commit(&mut shell, writer, json!([set(1)]));
    assert_eq!(ids(&shell.received(waiter)), [3, 2, 4, 1]);
}

#[test]
fn what_waits_or_is_too_long_counts_for_the_step_too() {
    let (mut shell, _, writer) = start();
    let ports: Vec<Value> = (10..300).map(|i| insert(&format!("p{i}"))).collect();
    commit(&mut shell, writer, json!(ports));
    shell.slow_work = true;
    shell.server.set_step_cost_max(1000);
    for _ in 0..30 {
        let session = shell.connect();
        // It looks at all ports.
        let wait = json!([wait_for(json!([["n", "==", 1]]))]);
        shell.send(session, &request(1, &wait));
    }
    shell.settle();
    let reads = shell.sent_out.iter().filter(|kind| *kind == "Read").count();
    assert!((26..30).contains(&reads), "{reads}");
}

/// A wait that is too long for a step, and 300 ports.
fn long_wait() -> (Shell, SessionId, SessionId) {
    let (mut shell, waiter, writer) = start();
    let ports: Vec<Value> = (10..300).map(|i| insert(&format!("p{i}"))).collect();
    commit(&mut shell, writer, json!(ports));
    shell.call(waiter, r#"{"id":0,"method":"set_db_change_aware","params":[true]}"#);
    shell.slow_work = true;
    shell.server.set_step_cost_max(200);
    shell.send(waiter, &request(1, &json!([wait_for(json!([["n", "==", 1]]))])));
    shell.settle();
    assert_eq!(shell.sent_out, ["Read"]);
    (shell, waiter, writer)
}

#[test]
fn a_long_wait_does_not_hold_its_session_while_others_commit() {
    let (mut shell, waiter, writer) = long_wait();
    let select = json!([{"op": "select", "table": "Port", "where": [["name", "==", "p0"]]}]);
    for i in 0..5 {
        let name = format!("new{i}");
        commit(&mut shell, writer, json!([insert(&name)]));
        shell.send(waiter, &request(2 + i, &select));
        shell.advance_ms(10);
        assert_eq!(shell.work.len(), 1);
        shell.do_work(0);
        shell.round();
        // It rests as long as it has taken.
        assert_eq!(shell.work.len(), 0);
        assert_eq!(ids(&shell.received(waiter)), [2 + i]);
        shell.pass_ms(10);
        assert_eq!(shell.work.len(), 1);
    }
    let port = json!([{"op": "insert", "table": "Port", "row": {"name": "last", "n": 1}}]);
    commit(&mut shell, writer, port);
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    assert_eq!(ids(&shell.received(waiter)), [1]);
}

#[test]
fn a_long_wait_that_nothing_concerns_rests() {
    let (mut shell, waiter, writer) = long_wait();
    commit(&mut shell, writer, other());
    shell.do_work(0);
    shell.settle();
    commit(&mut shell, writer, other());
    assert_eq!(shell.sent_out, ["Read"]);
    let port = json!([{"op": "insert", "table": "Port", "row": {"name": "last", "n": 1}}]);
    commit(&mut shell, writer, port);
    assert_eq!(shell.sent_out, ["Read", "Read"]);
    shell.do_work(0);
    shell.settle();
    assert_eq!(ids(&shell.received(waiter)), [1]);
}

const CANCEL: &str = r#"{"id":null,"method":"cancel","params":[1]}"#;
const CANCELED: &str = r#"{"id":1,"error":"canceled"}"#;

#[test]
fn a_long_read_can_be_canceled() {
    let (mut shell, waiter, writer) = long_wait();
    shell.send(waiter, CANCEL);
    shell.settle();
    assert_eq!(shell.received(waiter), [CANCELED]);
    shell.do_work(0);
    shell.settle();
    let port = json!([{"op": "insert", "table": "Port", "row": {"name": "last", "n": 1}}]);
    commit(&mut shell, writer, port);
    assert_eq!(shell.received(waiter), Vec::<String>::new());
    assert_eq!(shell.sent_out, ["Read"]);
}

#[test]
fn a_long_write_is_completed_or_canceled() {
    for (must_wait, end) in [(true, "canceled"), (false, r#"{"count":29"#)] {
        let (mut shell, waiter, _) = long_wait();
        shell.send(waiter, CANCEL);
        shell.do_work(0);
        shell.settle();
        shell.received(waiter);
        let all = json!([["name", "!=", "p0"]]);
        let tag = json!({"op": "update", "table": "Port", "where": all, "row": {"n": 2}});
        let mut operations = vec![tag];
        operations.extend(must_wait.then(|| wait_for(json!([["name", "==", "nobody"]]))));
        shell.send(waiter, &request(1, &json!(operations)));
        shell.settle();
        assert_eq!(shell.sent_out, ["Read", "Write"]);
        shell.send(waiter, CANCEL);
        shell.settle();
        assert_eq!(shell.received(waiter), Vec::<String>::new());
        shell.do_work(0);
        shell.settle();
        let received = shell.received(waiter);
        assert!(received.len() == 1 && received[0].contains(end), "{received:?}");
    }
}

#[test]
fn what_waits_for_a_helper_can_be_canceled() {
    let (mut shell, waiter, writer) = long_wait();
    shell.send(waiter, CANCEL);
    shell.do_work(0);
    shell.settle();
    shell.received(waiter);
    let all = json!([{"op": "update", "table": "Port", "where": [], "row": {"n": 2}}]);
    // One has the tables, the other one waits for them.
    shell.send(writer, &request(7, &all));
    shell.settle();
    let big = request(1, &json!([{"op": "comment", "comment": "x".repeat(1 << 20)}, insert("q")]));
    for is_examined in [false, true] {
        shell.send(waiter, &big);
        shell.settle();
        assert_eq!(shell.sent_out.last().unwrap(), "Examine");
        if is_examined {
            let last = shell.work.len() - 1;
            shell.do_work(last);
            shell.settle();
        }
        shell.send(waiter, CANCEL);
        shell.settle();
        if !is_examined {
            let last = shell.work.len() - 1;
            shell.do_work(last);
            shell.settle();
        }
        assert_eq!(shell.received(waiter), [CANCELED], "{is_examined}");
    }
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    assert_eq!(ids(&shell.received(writer)), [7]);
    let select = json!([{"op": "select", "table": "Port", "where": [["name", "==", "q"]]}]);
    let reply = shell.call(waiter, &request(2, &select));
    assert!(reply.contains(r#""rows":[]"#), "{reply}");
}

#[test]
fn what_is_about_to_become_long_can_be_canceled() {
    let (mut shell, waiter, writer) = long_wait();
    shell.slow_disk = true;
    shell.send(writer, &request(7, &json!([insert("written")])));
    shell.round();
    shell.do_work(0);
    shell.settle();
    // A message is only looked at when the disk is done; this one's has been.
    shell.send(waiter, CANCEL);
    shell.settle();
    assert_eq!(shell.received(waiter), [CANCELED]);
    shell.slow_disk = false;
    shell.disk_is_done();
    shell.settle();
    assert_eq!(shell.received(waiter), Vec::<String>::new());
}
