//! Columns that no file keeps, behind a source of ours that the test plays: values that came before their
//! rows, and long messages of them.

use crate::relay_sources::{
    A, B, answer, asked, play_by, played, rows, say, say_rows, say_schema, say_up, up, value,
};
use crate::shell::{SCHEMA, Shell};
use serde_json::{Value, json};
use weir_server::event::{Event, LinkId};

/// The next server knows only what the reference does, and has these ports.
fn play_stock(shell: &mut Shell, ports: &Value) -> LinkId {
    let row = json!({"name":"Net","model":"clustered","connected":true,"leader":true,"index":9,"schema":SCHEMA});
    play_by(shell, &row, |request| match request["method"].as_str().unwrap() {
        "weir_features" => None,
        "monitor_cond_since" => Some(json!([false, B, {"Port": ports}])),
        _ => Some(json!({})),
    })
}

#[test]
fn values_whose_rows_have_not_come_end_with_the_connection() {
    let (mut shell, link) = played();
    say_up(&mut shell, link, B, &json!({"new": {"up": true}}));
    shell.event(Event::LinkDown { link, error: None });
    shell.settle();
    shell.connecting.retain(|(begun, _)| *begun != link);
    // This one tells them with the rows.
    let ports = json!({
        A: {"initial": {"name": "a", "up": true}},
        B: {"initial": {"name": "b"}},
    });
    play_stock(&mut shell, &ports);
    assert_eq!(up(&mut shell), rows(&[("a", true), ("b", false)]));
}

#[test]
fn values_whose_rows_have_not_come_end_with_the_schema_that_has_their_column() {
    let (mut shell, link) = played();
    say_up(&mut shell, link, B, &json!({"new": {"up": true}}));
    let mut schema = value(SCHEMA);
    let columns = schema["tables"]["Port"]["columns"].as_object_mut().expect("columns");
    columns.remove("up");
    say_schema(&mut shell, link, &schema);
    let request = asked(&mut shell, link).pop().expect("rows are asked for again");
    let first = json!([false, A, {"Port": {A: {"initial": {"name": "a"}}}}]);
    answer(&mut shell, link, &request, &first);
    let params = json!([["monid", "Net", 2], B, null, {"Port": {B: {"insert": {"name": "b"}}}}]);
    say(&mut shell, link, &json!({"id":null,"method":"weir_update","params":params}));
    assert_eq!(crate::shell::ports(&mut shell), ["a", "b"]);
}

/// So many ports that a message of their values is one for a helper.
const MANY: usize = 30_000;

fn port(number: usize) -> String {
    format!("aaaaaaaa-0000-4000-8000-{number:012x}")
}

/// Values of all ports.
fn values(is_up: impl Fn(usize) -> bool) -> Value {
    let row = |n: usize| (port(n), json!({"new": {"up": is_up(n)}}));
    json!({"Port": Value::Object((0..MANY).map(row).collect())})
}

#[test]
fn many_values_are_given_by_a_helper() {
    let (mut shell, link) = played();
    let row = |n: usize| (port(n), json!({"insert": {"name": format!("p{n:05}")}}));
    let new: serde_json::Map<String, Value> = (2..MANY).map(row).collect();
    let params = json!([["monid", "Net"], B, null, {"Port": new}]);
    say(&mut shell, link, &json!({"id":null,"method":"weir_update","params":params}));
    assert_eq!(up(&mut shell).len(), MANY - 1);
    let client = shell.connect();
    let monitor = r#"{"id":3,"method":"monitor","params":["Net","m",{"Port":{"columns":["up"]}}]}"#;
    shell.call(client, monitor);
    let since = r#"{"id":4,"method":"weir_transact","params":["Net",{}]}"#;
    let state = value(&shell.call(client, since))["result"]["id"].clone();
    shell.sent_out.clear();
    // One of the rows comes later.
    let params = json!([["ephemeral", "Net", 1], values(|n| n % 3 == 0)]);
    say(&mut shell, link, &json!({"id":null,"method":"update","params":params}));
    let of_values = |kind: &&String| *kind == "TakeIn" || *kind == "TakeOver";
    let kinds: Vec<&String> = shell.sent_out.iter().filter(of_values).collect();
    assert_eq!(kinds, ["TakeIn", "TakeOver"]);
    let are_up = up(&mut shell).iter().filter(|(_, up)| *up).count();
    // Port `a` is the one of number 1.
    assert_eq!(are_up, (2..MANY).filter(|n| n % 3 == 0).count());
    let told = shell.received(client);
    assert_eq!(told.len(), 1, "{}", told.len());
    assert_eq!(value(&shell.call(client, since))["result"]["id"], state, "it is no new state");
    let insert = json!({"insert": {"name": "p00000"}});
    say_rows(&mut shell, link, B, &port(0), &insert);
    assert!(up(&mut shell).contains(&("p00000".to_owned(), true)));
}
