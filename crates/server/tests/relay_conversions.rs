//! Conversions at a relay whose source knows only what the reference does.

use crate::relay::{A, ZERO, answer, asked, relay, say, value};
use crate::shell::{SCHEMA, transact};
use serde_json::{Value, json};

const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

/// Packaged members agree to such a schema, and none of them ever serves again.
#[test]
fn a_schema_that_no_cluster_can_have_does_not_come_to_members() {
    let (mut shell, link) = relay();
    let knows = ["_Server", "monitor_cond_since"];
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &knows, &rows);
    let update = |row: Value| {
        let update = json!([["monid","_Server"], {"Database": {ZERO: {"modify": row}}}]);
        json!({"id":null,"method":"update2","params":update})
    };
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["seen"] = json!({"type": "boolean", "ephemeral": true});
    let convert = json!({"id": 1, "method": "convert", "params": ["Net", schema]}).to_string();
    say(&mut shell, link, &update(json!({"model": "clustered"})));
    answer(&mut shell, link, &knows, &rows);
    let client = shell.connect();
    let refused = shell.call(client, &convert);
    let refused = value(&refused);
    let details = refused["error"]["details"].as_str().unwrap_or_default();
    assert!(details.contains("column seen is ephemeral but clustered databases"), "{refused}");
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
    // What it asks later is answered, and a server that is alone may have it.
    assert!(shell.call(client, r#"{"id":2,"method":"list_dbs","params":[]}"#).contains("Net"));
    say(&mut shell, link, &update(json!({"model": "standalone"})));
    answer(&mut shell, link, &knows, &rows);
    shell.send(client, &convert);
    shell.settle();
    let methods = answer(&mut shell, link, &knows, &rows);
    assert!(methods.contains(&"convert".to_owned()), "{methods:?}");
}

/// A packaged server whose database is a file says in `_Server`, until it ends, what the schema was when it
/// began.
#[test]
fn a_conversion_that_the_source_does_not_tell_of_is_followed() {
    let (mut shell, link) = relay();
    let knows = ["_Server", "monitor_cond_since"];
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    let methods = answer(&mut shell, link, &knows, &rows);
    assert!(methods.ends_with(&["get_schema".into(), "monitor_cond_since".into()]), "{methods:?}");
    let canceled = json!({"id":null,"method":"monitor_canceled","params":[["monid","Net"]]});
    say(&mut shell, link, &canceled);
    let request = asked(&mut shell, link).swap_remove(0);
    assert_eq!((&request["method"], &request["params"]), (&json!("get_schema"), &json!(["Net"])));
    let mut schema = value(SCHEMA);
    schema["tables"]["Port"]["columns"]["speed"] = json!({"type":"integer"});
    say(&mut shell, link, &json!({"id":request["id"],"result":schema,"error":null}));
    let request = asked(&mut shell, link).swap_remove(0);
    assert!(request["params"][2]["Port"].to_string().contains("speed"), "{request}");
    let rows = json!([false, ZERO, {"Port": {A: {"initial": {"name": "a", "speed": 9}}}}]);
    say(&mut shell, link, &json!({"id":request["id"],"result":rows,"error":null}));
    // What it says of itself later is as old.
    let row = json!({"modify": {"sid": A}});
    let update = json!([["monid","_Server"], {"Database": {ZERO: row}}]);
    say(&mut shell, link, &json!({"id":null,"method":"update2","params":update}));
    assert_eq!(asked(&mut shell, link), Vec::<Value>::new());
    let client = shell.connect();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name","speed"]}"#;
    let reply = value(&shell.call(client, &transact(1, select)));
    assert_eq!(reply["result"][0]["rows"], json!([{"name": "a", "speed": 9}]));
}

/// Rows under another schema may be a long time under way, and a relay behind this one probes it meanwhile.
#[test]
fn who_asked_for_a_conversion_is_answered_echo_before_it_is_made() {
    let (mut shell, link) = relay();
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &["_Server", "monitor_cond_since"], &rows);
    let client = shell.connect();
    let convert = json!({"id": 1, "method": "convert", "params": ["Net", value(SCHEMA)]});
    shell.send(client, &convert.to_string());
    shell.settle();
    assert!(asked(&mut shell, link).iter().any(|asked| asked["method"] == "convert"));
    shell.send(client, r#"{"id":2,"method":"list_dbs","params":[]}"#);
    let replies = shell.call(client, r#"{"id":3,"method":"echo","params":["there?"]}"#);
    assert_eq!(value(&replies), json!({"id":3,"result":["there?"],"error":null}));
}

/// So much waits behind the conversion that the server does not read its client, whose own probes nobody answers.
#[test]
fn who_is_not_read_hears_that_the_server_is_there() {
    let (mut shell, link) = relay();
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &["_Server", "monitor_cond_since"], &rows);
    let client = shell.connect_as("tcp");
    let convert = json!({"id": 1, "method": "convert", "params": ["Net", value(SCHEMA)]});
    shell.send(client, &convert.to_string());
    let insert = json!({"op": "insert", "table": "Port", "row": {"name": "b".repeat(300 << 10)}});
    (2..6).for_each(|id| shell.send(client, &transact(id, &insert.to_string())));
    shell.settle();
    shell.pass_ms(5000);
    let heard = shell.received(client);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(value(&heard[0])["method"], "echo");
}

/// The source tells of no changes between the end of the monitor and the rows under the other schema.
#[test]
fn who_writes_while_the_source_is_converted_is_answered_when_the_rows_have_come() {
    let (mut shell, link) = relay();
    let rows = json!({"Port": {A: {"initial": {"name": "a"}}}});
    answer(&mut shell, link, &["_Server", "monitor_cond_since"], &rows);
    let client = shell.connect();
    shell.send(client, &transact(1, &crate::shell::insert("b")));
    shell.settle();
    let write = asked(&mut shell, link).swap_remove(0);
    assert_eq!(write["method"], "transact");
    say(
        &mut shell,
        link,
        &json!({"id":null,"method":"monitor_canceled","params":[["monid","Net"]]}),
    );
    let request = asked(&mut shell, link).swap_remove(0);
    let result = json!([{"uuid": ["uuid", B]}]);
    say(&mut shell, link, &json!({"id":write["id"],"result":result,"error":null}));
    assert_eq!(shell.received(client), Vec::<String>::new(), "the relay lacks the row");
    say(&mut shell, link, &json!({"id":request["id"],"result":value(SCHEMA),"error":null}));
    let request = asked(&mut shell, link).swap_remove(0);
    let rows = json!({A: {"initial": {"name": "a"}}, B: {"initial": {"name": "b"}}});
    let rows = json!([false, ZERO, {"Port": rows}]);
    say(&mut shell, link, &json!({"id":request["id"],"result":rows,"error":null}));
    assert_eq!(shell.received(client).len(), 1);
    assert_eq!(crate::shell::ports(&mut shell), ["a", "b"]);
}
