//! Locks of a relay's clients, at a source of ours that the test plays.

use crate::relay_sources::{
    A, B, answer, asked, guarded, play_with, played, say, say_rows, say_schema, value,
};
use crate::shell::{SCHEMA, Shell, insert, transact};
use serde_json::{Value, json};
use weir_server::event::{Event, LinkId, SessionId};

const LOCK: &str = r#"{"id":1,"method":"lock","params":["l"]}"#;
const ASSERT: &str = r#"{"op":"assert","lock":"l"}"#;
const UNLOCK: &str = r#"{"id":1,"method":"unlock","params":["l"]}"#;

/// The methods of requests.
fn methods(requests: &[Value]) -> Vec<&str> {
    requests.iter().map(|request| request["method"].as_str().expect("a method")).collect()
}

/// The source has another schema now: the request for its rows.
fn convert(shell: &mut Shell, link: LinkId) -> Value {
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    say_schema(shell, link, &schema);
    let requests = asked(shell, link);
    assert_eq!(methods(&requests), ["monitor_cancel", "monitor_cancel", "weir_monitor"]);
    requests[2].clone()
}

#[test]
fn a_lock_that_is_given_up_while_rows_are_asked_for_is_given_back_when_they_have_come() {
    let (mut shell, link) = played();
    let client = shell.connect();
    // A conversion does not end its session.
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.call(client, LOCK);
    shell.call(client, &guarded("b"));
    let requests = asked(&mut shell, link);
    assert_eq!(methods(&requests), ["lock", "weir_transact"]);
    answer(&mut shell, link, &requests[0], &json!({"locked": true}));
    say_rows(&mut shell, link, B, B, &json!({"insert": {"name": "b"}}));
    let results = json!({"id": B, "results": [{}, {"uuid": ["uuid", B]}]});
    answer(&mut shell, link, &requests[1], &results);
    assert!(shell.received(client).pop().expect("an answer").contains("uuid"));
    let request = convert(&mut shell, link);
    assert!(shell.call(client, UNLOCK).contains(r#""result":{}"#));
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new(), "its turn is behind the rows");
    let rows = json!([false, A, {"Port": {B: {"initial": {"name": "b"}}}}]);
    answer(&mut shell, link, &request, &rows);
    let requests = asked(&mut shell, link);
    let given_back = requests.iter().find(|request| request["method"] == "unlock");
    assert_eq!(given_back.map(|request| &request["params"]), Some(&json!(["l"])), "{requests:?}");
    // Who has it next asks for it anew.
    shell.call(client, LOCK);
    shell.call(client, &guarded("c"));
    assert_eq!(methods(&asked(&mut shell, link)), ["lock", "weir_transact"]);
}

/// A reply says that the transaction lacked its lock, and what it had read before that.
fn says_not_owner(reply: &str) {
    let reply = value(reply);
    let results =
        if reply["result"].is_array() { &reply["result"] } else { &reply["result"]["results"] };
    assert_eq!(results[0]["rows"][0]["name"], "a", "{reply}");
    assert_eq!(results[1]["error"], "not owner", "{reply}");
}

/// A transaction that reads before it asserts a lock, and one under a chosen id.
fn with_assert(id: Option<&str>) -> String {
    let operations =
        format!(r#"{{"op":"select","table":"Port","where":[]}},{ASSERT},{}"#, insert("b"));
    let Some(id) = id else { return transact(1, &operations) };
    format!(
        r#"{{"id":1,"method":"weir_transact","params":["Net",{{"id":"{id}","since":"{A}"}},{operations}]}}"#
    )
}

const CHOSEN: &str = "11111111-1111-4111-8111-111111111111";

/// A client that does not have the lock asks under its id: what the source is asked, which cannot make it.
fn asked_to_judge(shell: &mut Shell, link: LinkId, client: SessionId) -> Value {
    shell.send(client, &with_assert(Some(CHOSEN)));
    shell.settle();
    assert_eq!(shell.received(client), Vec::<String>::new(), "it may have been made before");
    let request = asked(shell, link).pop().expect("the source is asked");
    let (method, params) = (&request["method"], &request["params"]);
    assert_eq!((method, &params[1]["id"]), (&json!("weir_transact"), &json!(CHOSEN)));
    let first = &params[2];
    assert_eq!(first["op"], "assert");
    let lock = first["lock"].as_str().expect("a name");
    assert!(lock.starts_with('_') && lock != "l", "nobody has it: {lock}");
    assert_eq!(params[3]["op"], "select");
    request
}

#[test]
fn what_a_client_without_the_lock_asks_for_before_it_asserts_it_is_done_by_a_helper_if_it_is_long()
{
    for cost in [100_000, 1] {
        let (mut shell, link) = played();
        let client = shell.connect();
        shell.server.set_step_cost_max(cost);
        shell.sent_out.clear();
        says_not_owner(&shell.call(client, &with_assert(None)));
        assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
        let request = asked_to_judge(&mut shell, link, client);
        let not_owner = json!({"id": A, "results": [{"error": "not owner"}, null, null, null]});
        answer(&mut shell, link, &request, &not_owner);
        says_not_owner(&shell.received(client).pop().expect("an answer"));
        assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
        let by_helpers = shell.sent_out.iter().filter(|kind| *kind == "Write").count();
        assert_eq!(by_helpers, if cost == 1 { 2 } else { 0 }, "{:?}", shell.sent_out);
    }
}

#[test]
fn who_sends_again_what_was_made_under_a_lock_that_is_lost_hears_that_it_was_made() {
    let (mut shell, link) = played();
    let client = shell.connect();
    let request = asked_to_judge(&mut shell, link, client);
    answer(&mut shell, link, &request, &json!({"id": A, "results": null}));
    let reply = value(&shell.received(client).pop().expect("an answer"));
    assert_eq!(reply["result"], json!({"id": A, "results": null}));
}

/// The lock is lost with the connection, and what the transaction waits for is gone when there is another.
#[test]
fn a_transaction_whose_lock_is_lost_goes_on_waiting_for_rows() {
    let (mut shell, link) = played();
    let client = shell.connect();
    shell.call(client, LOCK);
    shell.call(client, &guarded("b"));
    let requests = asked(&mut shell, link);
    answer(&mut shell, link, &requests[0], &json!({"locked": true}));
    let failed = json!([{}, {"error": "constraint violation", "details": ""}]);
    answer(&mut shell, link, &requests[1], &json!({"id": A, "results": failed}));
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    shell.connecting.retain(|(begun, _)| *begun != link);
    shell.received(client);
    let wait = r#"{"op":"wait","table":"Port","where":[["name","==","a"]],"columns":["name"],"until":"==","rows":[{"name":"a"}]}"#;
    shell.call(client, &transact(3, &format!("{wait},{ASSERT},{}", insert("c"))));
    // Somebody else has the lock now.
    let link = play_with(&mut shell, &json!({}));
    assert_eq!(shell.received(client), Vec::<String>::new());
    say(&mut shell, link, &json!({"id":null,"method":"locked","params":["l"]}));
    assert!(shell.received(client)[0].contains("locked"));
    say_rows(&mut shell, link, B, A, &json!({"insert": {"name": "a"}}));
    assert_eq!(methods(&asked(&mut shell, link)), ["weir_transact"]);
}
