//! `weir watch` against servers of every age, played by a few lines here.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use crate::support::{Running, Scratch, WEIR, err};
use weir_json::{Framer, Value};

/// How a method is answered; `None` is "unknown method".
type Answer = fn(&str) -> Option<&'static str>;

/// A server that takes one connection, answers requests from a table, and sends `last` after the
/// monitor's reply.
fn play(scratch: &Scratch, answer: Answer, last: &'static str) -> String {
    let socket = scratch.path("s.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        serve(&mut stream, answer, last);
    });
    format!("unix:{}", socket.display())
}

fn serve(stream: &mut UnixStream, answer: Answer, last: &str) {
    let mut framer = Framer::new();
    let mut message = vec![];
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|n| n == 1) {
        message.push(byte[0]);
        if framer.feed(&byte).expect("JSON").is_none() {
            continue;
        }
        let request = Value::parse(&message).expect("JSON");
        message.clear();
        let Some(method) = request.get("method").and_then(Value::as_str) else { continue };
        let id = request.get("id").cloned().unwrap_or(Value::Null);
        let reply = match answer(method) {
            Some(result) => format!(r#"{{"id":{id},"result":{result},"error":null}}"#),
            None => format!(r#"{{"id":{id},"error":"unknown method"}}"#),
        };
        stream.write_all(reply.as_bytes()).expect("a client");
        if method.starts_with("monitor") && answer(method).is_some() {
            let probe = r#"{"method":"echo","params":["are you there"],"id":"echo"}"#;
            stream.write_all(probe.as_bytes()).expect("a client");
            stream.write_all(last.as_bytes()).expect("a client");
        }
    }
}

const SCHEMA: &str = r#"{"name":"D","tables":{"T":{"columns":{"name":{"type":"string"},
    "n":{"type":"integer"},"s":{"type":{"key":"integer","min":0,"max":9}}}}}}"#;

fn watched(scratch: &Scratch, server: &str) -> Running {
    let mut watch = Running::start(scratch.command(WEIR).args(["watch", "--count=1", server]));
    watch.line_with("D on unix:");
    watch
}

#[test]
fn a_server_of_rfc_7047_only() {
    let scratch = Scratch::new();
    let answer: Answer = |method| match method {
        "list_dbs" => Some(r#"["D","_Server"]"#),
        "get_schema" => Some(SCHEMA),
        "monitor" => Some(r#"{"T":{"u-1":{"new":{"name":"a","n":1,"s":["set",[]]}}}}"#),
        _ => None,
    };
    let change = r#"{"method":"update","id":null,"params":["weir-watch",
        {"T":{"u-1":{"old":{"n":1},"new":{"name":"a","n":2,"s":["set",[]]}}}}]}"#;
    let server = play(&scratch, answer, change);
    let mut watch = watched(&scratch, &server);
    assert_eq!(watch.line_with("T a"), "  T a  n=1");
    assert!(watch.line_with("~ T a").ends_with("~ T a  n 1 → 2"));
    assert!(watch.wait().success());
}

#[test]
fn a_server_with_conditions_but_without_history() {
    let scratch = Scratch::new();
    let answer: Answer = |method| match method {
        "list_dbs" => Some(r#"["D"]"#),
        "get_schema" => Some(SCHEMA),
        "monitor_cond" => Some(r#"{"T":{"u-1":{"initial":{"name":"a","s":["set",[1,2]]}}}}"#),
        _ => None,
    };
    let change = r#"{"method":"update2","id":null,"params":["weir-watch",
        {"T":{"u-1":{"modify":{"s":["set",[2,3]]}}}}]}"#;
    let server = play(&scratch, answer, change);
    let mut watch = watched(&scratch, &server);
    assert_eq!(watch.line_with("T a"), "  T a  s=[1, 2]");
    assert!(watch.line_with("~ T a").ends_with("~ T a  s -2 +3"));
    assert!(watch.wait().success());
}

#[test]
fn a_server_of_today() {
    let scratch = Scratch::new();
    let answer: Answer = |method| match method {
        "list_dbs" => Some(r#"["D"]"#),
        "get_schema" => Some(SCHEMA),
        "monitor_cond_since" => {
            Some(r#"[false,"00000000-0000-0000-0000-000000000001",{"T":{"u-1":{"initial":{}}}}]"#)
        }
        _ => None,
    };
    let change = r#"{"method":"update3","id":null,"params":["weir-watch",
        "00000000-0000-0000-0000-000000000002",{"T":{"u-1":{"delete":null}}}]}"#;
    let server = play(&scratch, answer, change);
    let mut watch = watched(&scratch, &server);
    assert!(watch.line_with("- T u-1").ends_with("- T u-1"));
    assert!(watch.wait().success());
}

#[test]
fn a_server_with_several_databases_asks_which() {
    let scratch = Scratch::new();
    let answer: Answer = |method| match method {
        "list_dbs" => Some(r#"["One","Two","_Server"]"#),
        _ => None,
    };
    let server = play(&scratch, answer, "");
    let failed = scratch.run(WEIR, &["watch", &server]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(err(&failed), "weir: which database? The server has: One Two\n");
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let scratch = Scratch::new();
    let answer: Answer = |method| match method {
        "get_schema" => Some(SCHEMA),
        _ => None,
    };
    let server = play(&scratch, answer, "");
    let failed = scratch.run(WEIR, &["watch", &server, "D", "X"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(err(&failed), "weir: no table \"X\"; there are: T\n");
}
