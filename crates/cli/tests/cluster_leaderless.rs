//! Transactions that come to a member while nobody leads wait for a leader, as long as their client does.

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
