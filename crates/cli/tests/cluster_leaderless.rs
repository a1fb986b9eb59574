//! While nobody leads, transactions wait for a leader as long as their clients do, and all else is answered.

use rustix::process::Signal;
use serde_json::json;

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::{eventually, out};

#[test]
fn who_has_left_or_taken_a_write_back_has_written_nothing_when_somebody_leads_again() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    for at in [1, 2] {
        trio.kill(at);
    }
    eventually("nobody leads", || trio.status(0).lines().any(|line| line == "Leader: unknown"));

    let write = |name: &str| json!(["Odd", {"op": "insert", "table": "T", "row": {"name": name}}]);
    let [mut leaving, mut regretting, mut patient] = [0; 3].map(|at| trio.client(at));
    // Only such clients hear that a transaction is canceled.
    regretting.request("set_db_change_aware", &json!([true])).expect("an answer");
    leaving.ask("transact", &write("of one who left")).expect("it is read");
    let id = regretting.ask("transact", &write("taken back")).expect("it is read");
    let waits = patient.ask("transact", &write("of one who waits")).expect("it is read");
    for client in [&mut leaving, &mut regretting, &mut patient] {
        client.barrier().expect("echo is answered meanwhile");
    }
    let cancel = json!({"method": "cancel", "params": [id], "id": null}).to_string();
    regretting.send_raw(cancel.as_bytes()).expect("it is read");
    let reply = regretting.reply(id).expect("an answer at once");
    assert_eq!(reply.value["error"], json!("canceled"));
    drop(leaving);
    let has_left = || out(&trio.appctl(0, &["memory/show"])).contains("sessions:2");
    eventually("one client has left", has_left);

    for at in [1, 2] {
        trio.start(at, Program::Weir);
    }
    trio.settle(&ALL);
    assert_eq!(patient.reply(waits).expect("an answer").value["error"], json!(null));
    trio.insert(0, "last");
    assert_eq!(trio.names(0), ["last", "of one who waits"]);
}

#[test]
fn a_leader_that_is_alone_with_a_write_answers_all_but_that() {
    let Some(trio) = Group::weir(SCHEMA) else { return };
    let alone = trio.settle(&ALL);
    trio.insert(alone, "before");
    let rest: Vec<usize> = ALL.into_iter().filter(|at| *at != alone).collect();
    for at in &rest {
        trio.signal(*at, Signal::STOP);
    }
    let write = json!(["Odd", {"op": "insert", "table": "T", "row": {"name": "alone"}}]);
    let mut writer = trio.client(alone);
    let written = writer.ask("transact", &write).expect("it is read");
    let leads_no_more = || trio.status(alone).lines().any(|line| line == "Leader: unknown");
    eventually("nobody leads", leads_no_more);

    let mut client = trio.client(alone);
    let schema = client.request("get_schema", &json!(["Odd"])).expect("an answer");
    assert_eq!(schema["result"]["name"], "Odd", "{schema}");
    let tables = json!({"T": {"columns": ["name"]}});
    let rows = client.request("monitor", &json!(["Odd", "m", tables])).expect("an answer");
    let rows = rows["result"]["T"].as_object().expect("rows").values();
    let names: Vec<_> = rows.map(|row| row["new"]["name"].clone()).collect();
    assert_eq!(names, ["before"], "what is not decided is not shown");
    let never = json!({"op": "wait", "table": "T", "where": [], "columns": ["name"],
        "until": "==", "rows": [], "timeout": 200});
    let result = client.transact("Odd", &[never]).expect("an answer");
    assert_eq!(result[0]["error"], "timed out", "{result}");
    let reply = client.request("weir_sync", &json!(["Odd", 200])).expect("an answer");
    assert_eq!(reply["error"]["error"], "timed out", "{reply}");

    for at in &rest {
        trio.signal(*at, Signal::CONT);
    }
    trio.settle(&ALL);
    let reply = writer.reply(written).expect("an answer").value;
    assert!(reply["result"][0]["uuid"].is_array(), "{reply}");
    assert_eq!(trio.names(alone), ["alone", "before"]);
}
