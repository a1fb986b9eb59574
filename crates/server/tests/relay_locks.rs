//! Locks of a relay's clients, at a source of ours that the test plays.

use crate::relay_sources::{A, B, answer, asked, guarded, played, say_rows, say_schema, value};
use crate::shell::{SCHEMA, Shell};
use serde_json::{Value, json};
use weir_server::event::LinkId;

const LOCK: &str = r#"{"id":1,"method":"lock","params":["l"]}"#;
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
