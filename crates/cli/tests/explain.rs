//! `explain`: how a transaction would find its rows; and that stock servers refuse what they do not
//! know, clearly.

use std::path::Path;

use crate::support::{Running, Scratch, WEIR, err, out, reference, serve_net};

const SCHEMA: &str = r#"{"name":"Net","tables":{"T":{"isRoot":true,"indexes":[["a"]],"columns":{
    "a":{"type":"string"},"n":{"type":"integer"}}}}}"#;

fn server(scratch: &Scratch, program: &Path, words: &[&str]) -> Running {
    let running = serve_net(scratch, program, words, SCHEMA);
    let rows: Vec<String> = (0..20)
        .map(|n| format!(r#"{{"op":"insert","table":"T","row":{{"a":"row {n:02}","n":{}}}}}"#, -n))
        .collect();
    client(scratch, &["transact", "unix:db.sock", &format!(r#"["Net",{}]"#, rows.join(","))]);
    running
}

fn client(scratch: &Scratch, words: &[&str]) -> String {
    let done = scratch.run(WEIR, &[&["client"], words].concat());
    assert!(done.status.success(), "{}", err(&done));
    out(&done)
}

const PAGE: &str = r#"["Net",{"op":"select","table":"T","where":[],"columns":["a"],
    "order_by":["n"],"limit":2}]"#;

#[test]
fn a_transaction_is_explained_line_by_line() {
    let scratch = Scratch::new();
    let _server = server(&scratch, Path::new(WEIR), &["server"]);
    let transaction = r#"["Net",
        {"op":"select","table":"T","where":[["a","==","row 07"]]},
        {"op":"delete","table":"T","where":[["n","<",-18]]},
        {"op":"insert","table":"T","row":{"a":"new"}},
        {"op":"mutate","table":"T","where":[["a","==","row 01"]],"mutations":[["n","/=",0]]},
        {"op":"abort"}]"#;
    let told = client(&scratch, &["explain", "unix:db.sock", transaction]);
    let lines = [
        "1: select T: primary by a, 1 rows looked at, 1 found",
        "2: delete T: linear, 20 rows looked at, 1 found; ordered key on n would help",
        "3: insert",
        "4: domain error: Division by zero.",
        "5: not reached",
    ];
    assert_eq!(told, lines.join("\n") + "\n");
    let json = client(&scratch, &["--format=json", "explain", "unix:db.sock", transaction]);
    assert!(json.contains(r#""plan":"primary""#), "{json}");
    let page = client(&scratch, &["transact", "unix:db.sock", PAGE]);
    assert_eq!(page.trim(), r#"[{"rows":[{"a":"row 19"},{"a":"row 18"}]}]"#);
}

#[test]
fn a_stock_server_refuses_pages_and_explanations_clearly() {
    let Some(program) = reference("ovsdb-server") else { return };
    let scratch = Scratch::new();
    let _server = server(&scratch, &program, &[]);
    let refused = scratch.run(WEIR, &["client", "explain", "unix:db.sock", PAGE]);
    assert_eq!(refused.status.code(), Some(1), "{}", out(&refused));
    assert!(err(&refused).contains("cannot explain: it is not Weir"), "{}", err(&refused));
    let page = client(&scratch, &["transact", "unix:db.sock", PAGE]);
    assert!(page.contains(r#""error":"syntax error""#), "{page}");
    assert!(page.contains("present but not allowed here."), "{page}");
    let insert = r#"{"op":"insert","table":"T","row":{"a":"beside"}}"#;
    let both = PAGE.replacen("{", &format!("{insert},{{"), 1);
    client(&scratch, &["transact", "unix:db.sock", &both]);
    let rows = client(&scratch, &["dump", "unix:db.sock", "Net", "T", "a"]);
    assert!(rows.contains("row 19") && !rows.contains("beside"), "{rows}");
}
