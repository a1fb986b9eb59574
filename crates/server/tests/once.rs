//! `weir_transact` and `weir_outcome` in a database without a cluster: the server itself remembers the
//! ids that clients chose, until it ends.

use crate::shell::{PATH, Shell, ports};
use serde_json::{Value, json};
use weir_server::event::SessionId;

const FIRST: &str = "11111111-1111-4111-8111-111111111111";
const SECOND: &str = "22222222-2222-4222-a222-222222222222";

fn ask(shell: &mut Shell, client: SessionId, method: &str, params: &Value) -> Value {
    let request = json!({"id": "x", "method": method, "params": params}).to_string();
    serde_json::from_str(&shell.call(client, &request)).expect("an answer")
}

fn transact(shell: &mut Shell, client: SessionId, options: &Value, operations: &Value) -> Value {
    let mut params = vec![json!("Net"), options.clone()];
    params.extend(operations.as_array().expect("operations").iter().cloned());
    let answer = ask(shell, client, "weir_transact", &Value::Array(params));
    assert_eq!(answer["error"], Value::Null, "{answer}");
    answer["result"].clone()
}

fn outcome(shell: &mut Shell, client: SessionId, id: &str, since: &str) -> String {
    let answer = ask(shell, client, "weir_outcome", &json!(["Net", id, since]));
    answer["result"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn state(shell: &mut Shell, client: SessionId) -> String {
    let result = transact(shell, client, &json!({}), &json!([]));
    assert_eq!(result["results"], json!([]));
    result["id"].as_str().expect("an id").to_owned()
}

fn insert(name: &str) -> Value {
    json!([{"op": "insert", "table": "Port", "row": {"name": name}}])
}

#[test]
fn what_is_sent_twice_runs_once() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let since = state(&mut shell, client);
    let options = json!({"id": FIRST, "since": since});
    let first = transact(&mut shell, client, &options, &insert("a"));
    assert!(first["results"][0]["uuid"].is_array(), "{first}");
    // Another one in between changes nothing of that.
    transact(&mut shell, client, &json!({}), &insert("b"));
    let other = shell.connect();
    let second = transact(&mut shell, other, &options, &insert("a"));
    assert_eq!(second["results"], Value::Null, "committed; its results are not remembered");
    assert_eq!(outcome(&mut shell, other, FIRST, &since), "committed");
    // The state of the answer has the transaction in it.
    let wait = json!(["Net", second["id"], 0]);
    assert_eq!(ask(&mut shell, other, "weir_wait_id", &wait)["result"], json!({}));
    assert_eq!(ports(&mut shell), ["a", "b"]);
}

/// Such a change leaves no record in the file.
#[test]
fn what_changes_ephemeral_columns_alone_runs_once() {
    let mut shell = Shell::start();
    let client = shell.connect();
    transact(&mut shell, client, &json!({}), &insert("a"));
    let since = state(&mut shell, client);
    let options = json!({"id": FIRST, "since": since});
    let update = json!([{"op": "update", "table": "Port", "where": [], "row": {"up": true}}]);
    assert_eq!(transact(&mut shell, client, &options, &update)["results"], json!([{"count": 1}]));
    assert_eq!(transact(&mut shell, client, &options, &update)["results"], Value::Null);
    assert_eq!(outcome(&mut shell, client, FIRST, &since), "committed");
}

#[test]
fn both_of_a_round_run_once() {
    let mut shell = Shell::start();
    let (one, other) = (shell.connect(), shell.connect());
    let since = state(&mut shell, one);
    let request = |method: &str, params: Value| {
        json!({"id": 1, "method": method, "params": params}).to_string()
    };
    let options = json!({"id": FIRST, "since": since});
    let row = insert("a")[0].clone();
    let transaction = request("weir_transact", json!(["Net", options, row]));
    shell.send(one, &transaction);
    shell.send(other, &transaction);
    shell.settle();
    let results = |shell: &mut Shell, client| {
        let all = shell.received(client);
        let answer: Value = serde_json::from_str(&all[0]).expect("an answer");
        answer["result"]["results"].clone()
    };
    assert!(results(&mut shell, one)[0]["uuid"].is_array());
    assert_eq!(results(&mut shell, other), Value::Null);
    // The question in the same round as the transaction waits for it, and the other way round.
    let (options, row) = (json!({"id": SECOND, "since": since}), insert("b")[0].clone());
    shell.send(one, &request("weir_transact", json!(["Net", options, row])));
    shell.send(other, &request("weir_outcome", json!(["Net", SECOND, since])));
    shell.settle();
    let word = |shell: &mut Shell, client| -> Value {
        serde_json::from_str(&shell.received(client)[0]).expect("an answer")
    };
    assert_eq!(word(&mut shell, other)["result"], "committed");
}

#[test]
fn not_committed_is_a_promise() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let since = state(&mut shell, client);
    assert_eq!(outcome(&mut shell, client, FIRST, &since), "not committed");
    let options = json!({"id": FIRST, "since": since});
    let late = transact(&mut shell, client, &options, &insert("late"));
    assert_eq!(late["results"][0]["error"], "not committed", "{late}");
    assert!(ports(&mut shell).is_empty());
    assert_eq!(outcome(&mut shell, client, FIRST, &since), "not committed");

    // One that has failed has not been, and may be tried again.
    let options = json!({"id": SECOND, "since": since});
    let bad = json!([{"op": "insert", "table": "Port", "row": {"none": 1}}]);
    let failed = transact(&mut shell, client, &options, &bad);
    assert_eq!(failed["results"][0]["error"], "unknown column", "{failed}");
    let done = transact(&mut shell, client, &options, &insert("a"));
    assert!(done["results"][0]["uuid"].is_array(), "{done}");
}

/// Who has been promised that nothing comes of a write may write something else; a message that was late elsewhere comes
/// to the next process.
#[test]
fn the_promise_outlives_the_process() {
    let mut shell = Shell::start();
    let client = shell.connect();
    transact(&mut shell, client, &json!({}), &insert("a"));
    let since = state(&mut shell, client);
    assert_eq!(outcome(&mut shell, client, FIRST, &since), "not committed");
    assert_ne!(state(&mut shell, client), since, "the state that was named is not the last one");

    let mut again = Shell::start_on(shell.files[PATH].clone());
    let client = again.connect();
    let late = transact(&mut again, client, &json!({"id": FIRST, "since": since}), &insert("late"));
    assert_eq!(late["results"][0]["error"], "unknown state", "{late}");
    assert_eq!(outcome(&mut again, client, FIRST, &since), "unknown");
    assert_eq!(ports(&mut again), ["a"]);
    let since = state(&mut again, client);
    let next = transact(&mut again, client, &json!({"id": FIRST, "since": since}), &insert("b"));
    assert!(next["results"][0]["uuid"].is_array(), "who knows the state behind it: {next}");
}

#[test]
fn nothing_is_promised_that_cannot_be_written() {
    let mut shell = Shell::start();
    let client = shell.connect();
    transact(&mut shell, client, &json!({}), &insert("a"));
    let since = state(&mut shell, client);
    shell.disk_error = Some("No space left on device");
    assert_eq!(outcome(&mut shell, client, FIRST, &since), "unknown");
    assert_eq!(state(&mut shell, client), since);
    shell.disk_error = None;
    let options = json!({"id": FIRST, "since": since});
    let made = transact(&mut shell, client, &options, &insert("b"));
    assert!(made["results"][0]["uuid"].is_array(), "{made}");
}

#[test]
fn what_is_older_than_what_is_remembered_is_not_known() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let since = state(&mut shell, client);
    let strange = json!({"id": FIRST, "since": SECOND});
    let refused = transact(&mut shell, client, &strange, &insert("a"));
    assert_eq!(refused["results"][0]["error"], "unknown state", "{refused}");
    assert_eq!(outcome(&mut shell, client, FIRST, SECOND), "unknown");
    // More ids than the server keeps.
    for n in 0..16_385_u32 {
        let id = format!("33333333-3333-4333-8333-{n:012}");
        assert_eq!(outcome(&mut shell, client, &id, &since), "not committed", "{n}");
        if n == 0 {
            transact(&mut shell, client, &json!({}), &insert("b"));
        }
        if n == 16_383 {
            assert_eq!(outcome(&mut shell, client, &id, &since), "not committed");
        }
    }
    let gone = "33333333-3333-4333-8333-000000000000";
    assert_eq!(outcome(&mut shell, client, gone, &since), "unknown");
    let late = json!({"id": gone, "since": since});
    let refused = transact(&mut shell, client, &late, &insert("late"));
    assert_eq!(refused["results"][0]["error"], "unknown state", "{refused}");
    assert_eq!(ports(&mut shell), ["b"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut shell = Shell::start();
    let client = shell.connect();
    let old = "11111111-1111-1111-8111-111111111111";
    for (method, params) in [
        ("weir_transact", json!(["Net"])),
        ("weir_transact", json!(["Net", []])),
        ("weir_transact", json!(["Net", {"id": FIRST}])),
        ("weir_transact", json!(["Net", {"since": FIRST}])),
        ("weir_transact", json!(["Net", {"id": old, "since": FIRST}])),
        ("weir_transact", json!(["Net", {"id": "x", "since": FIRST}])),
        ("weir_transact", json!(["Net", {"other": FIRST}])),
        ("weir_outcome", json!(["Net"])),
        ("weir_outcome", json!(["Net", FIRST])),
        ("weir_outcome", json!(["Net", old, FIRST])),
        ("weir_outcome", json!(["Net", FIRST, 1])),
        ("weir_outcome", json!(["Net", FIRST, FIRST, 1])),
    ] {
        let answer = ask(&mut shell, client, method, &params);
        assert_eq!(answer["error"]["error"], "syntax error", "{method} {params}: {answer}");
    }
    for (method, params) in
        [("weir_transact", json!(["None", {}])), ("weir_outcome", json!(["None", FIRST, FIRST]))]
    {
        let answer = ask(&mut shell, client, method, &params);
        assert_eq!(answer["error"]["error"], "unknown database", "{method} {params}: {answer}");
    }
    // `_Server` has no history.
    let answer = ask(&mut shell, client, "weir_outcome", &json!(["_Server", FIRST, FIRST]));
    assert_eq!(answer["result"], "unknown", "{answer}");
}
