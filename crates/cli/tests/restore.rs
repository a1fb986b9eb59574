//! `ovsdb-client restore`: what it sends for every kind of file, beside what the reference's sends.
//! The server is played here; it takes every transaction.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::support::{Scratch, err, log_record, out, reference};
use weir_json::{Framer, Value};

const SCHEMA: &str = r#"{"name":"D","version":"1.2.3","tables":{
  "Empty":{"columns":{"a":{"type":"integer"}}},
  "One":{"isRoot":true,"columns":{"s":{"type":"string"}}},
  "T":{"isRoot":true,"columns":{
    "name":{"type":"string"},"real":{"type":"real"},
    "ranged":{"type":{"key":{"type":"integer","minInteger":3,"maxInteger":9}}},
    "kind":{"type":{"key":{"type":"string","enum":["set",["b","c"]]}}},
    "numbers":{"type":{"key":"integer","min":0,"max":"unlimited"}},
    "friends":{"type":{"key":{"type":"uuid","refTable":"T"},"min":0,"max":9}},
    "weak":{"type":{"key":{"type":"uuid","refTable":"T","refType":"weak"},"min":0}},
    "one":{"type":{"key":{"type":"uuid","refTable":"One"}}},
    "plain":{"type":{"key":"uuid","min":0,"max":"unlimited"}},
    "refs":{"type":{"key":"integer","value":{"type":"uuid","refTable":"One"},
      "min":0,"max":"unlimited"}},
    "seen":{"type":"integer","ephemeral":true}}}}}"#;

const U: &str = "1234567N-1234-1234-1234-123456789abc";

fn uuid(n: u8) -> String {
    U.replace('N', &n.to_string())
}

/// Serves a database of [`SCHEMA`] with this version on `s.sock`; every transaction is handed out.
fn serve(scratch: &Scratch, version: &str) -> Receiver<Vec<Value>> {
    let listener = UnixListener::bind(scratch.path("s.sock")).expect("a socket");
    let schema = SCHEMA.replace("1.2.3", version);
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            answer(&mut stream, &schema, &sender);
        }
    });
    receiver
}

fn answer(stream: &mut UnixStream, schema: &str, sender: &Sender<Vec<Value>>) {
    let (mut framer, mut message) = (Framer::new(), vec![]);
    let mut piece = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        message.extend_from_slice(&piece[..count]);
        // The client waits for each reply, so nothing comes behind a message.
        if framer.feed(&piece[..count]).expect("JSON").is_none() {
            continue;
        }
        let request = Value::parse(&message).expect("JSON");
        message.clear();
        let params = request.get("params").and_then(Value::as_array).unwrap_or_default();
        let result = match request.get("method").and_then(Value::as_str) {
            Some("list_dbs") => r#"["D"]"#,
            Some("get_schema") => schema,
            Some("transact") => {
                let _ = sender.send(params.to_vec());
                r#"[{"count":0}]"#
            }
            other => panic!("{other:?}"),
        };
        let id = request.get("id").cloned().unwrap_or(Value::Null);
        let reply = format!(r#"{{"id":{id},"result":{result},"error":null}}"#);
        stream.write_all(reply.as_bytes()).expect("a client");
    }
}

fn restore(scratch: &Scratch, program: &Path, args: &[&str], is_pipe: bool) -> Output {
    let mut command = scratch.command(program);
    command.args(["-vconsole:off"]).args(args).args(["restore", "unix:s.sock", "D"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if !is_pipe {
        let file = std::fs::File::open(scratch.path("in")).expect("the input");
        return command.stdin(Stdio::from(file)).output().expect("it starts");
    }
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    let content = std::fs::read(scratch.path("in")).expect("the input");
    let mut stdin = child.stdin.take().expect("a pipe");
    // Who has seen enough does not read the rest.
    let _ = stdin.write_all(&content);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// The database and the operations; those of the reference come table by table in hash order.
fn sorted(mut params: Vec<Value>) -> Vec<String> {
    let name = params.remove(0).to_string();
    let table = |op: &Value| op.get("table").map(Value::to_string).unwrap_or_default();
    let mut emptied = vec![];
    for op in &params {
        match op.get("op").and_then(Value::as_str) {
            Some("delete") => emptied.push(table(op)),
            Some("insert") => assert!(emptied.contains(&table(op)), "{op} before its delete"),
            other => panic!("{other:?}"),
        }
    }
    let mut operations: Vec<String> = params.iter().map(Value::to_string).collect();
    operations.sort();
    operations.insert(0, name);
    operations
}

/// Files, and whether a whole transaction is sent for them.
fn inputs() -> Vec<(&'static str, Vec<u8>, bool)> {
    let [a, b, c] = [1, 2, 3].map(uuid);
    let rows = format!(
        r#"{{"_date":1,"_is_diff":true,"_comment":"x","T":{{
          "{a}":{{"name":"plain \"q\" \n","real":0.5,"ranged":4,"kind":"c","one":["uuid","{c}"],
            "numbers":["set",[3,1]],"friends":["set",[["uuid","{b}"],["uuid","{a}"]]],
            "plain":["uuid","{c}"],"refs":["map",[[2,["uuid","{c}"]],[1,["uuid","{c}"]]]]}},
          "{b}":{{"ranged":3,"kind":"b","one":["uuid","{c}"],"seen":5,
            "friends":["uuid","{a}"],"weak":["uuid","{a}"],"plain":["set",[]]}}}},
          "One":{{"{c}":{{"s":"é"}}}}}}"#
    );
    let change = format!(
        r#"{{"_date":2,"_is_diff":true,"T":{{"{b}":null,
          "{a}":{{"numbers":["set",[1,7]],"friends":["uuid","{b}"]}}}}}}"#
    );
    let twice = format!(r#"{{"One":{{"{c}":{{"s":"a"}},"{c}":{{"s":"b"}}}}}}"#);
    let file = |records: &[&str]| -> Vec<u8> {
        records.iter().flat_map(|record| log_record(record)).collect()
    };
    let snapshot = file(&[SCHEMA, &rows]);
    let mut bad_hash = snapshot.clone();
    if let Some(byte) = bad_hash.iter_mut().rev().find(|byte| **byte == b'4') {
        *byte = b'5';
    }
    let torn = snapshot[..snapshot.len() - 9].to_vec();
    let many: String = (0..20_000)
        .map(|n| format!(r#","{n:08x}-1234-1234-1234-123456789abc":{{"s":"row {n}"}}"#))
        .collect();
    let large = file(&[SCHEMA, &format!(r#"{{"One":{{{}}}}}"#, &many[1..])]);
    let mut bad_large = large.clone();
    bad_large.extend_from_slice(b"no record");
    vec![
        ("a snapshot", snapshot, true),
        ("no rows", file(&[SCHEMA, "{}"]), true),
        ("a schema alone", file(&[SCHEMA]), true),
        ("a history", file(&[SCHEMA, &rows, &change]), true),
        ("a row twice", file(&[SCHEMA, &twice]), true),
        ("many rows", large, true),
        ("many rows and nonsense", bad_large, false),
        ("a bad checksum", bad_hash, false),
        ("a torn file", torn, false),
        ("an unknown table", file(&[SCHEMA, r#"{"Q":{}}"#]), false),
        (
            "a value out of range",
            file(&[SCHEMA, &format!(r#"{{"T":{{"{a}":{{"ranged":77}}}}}}"#)]),
            false,
        ),
        ("a bad schema", file(&["{}"]), false),
        ("no database", b"hello".to_vec(), false),
        ("nothing", vec![], false),
    ]
}

/// What a program said and what it sent.
fn outcome(program: &Path, args: &[&str], version: &str, input: &[u8], is_pipe: bool) -> Said {
    let scratch = Scratch::new();
    let transactions = serve(&scratch, version);
    std::fs::write(scratch.path("in"), input).expect("the input");
    let done = restore(&scratch, program, args, is_pipe);
    let sent: Vec<_> = transactions.try_iter().map(sorted).collect();
    (done.status.code(), out(&done) + &err(&done), sent)
}

type Said = (Option<i32>, String, Vec<Vec<String>>);

#[test]
fn every_kind_of_file_is_sent_or_refused_alike() {
    let scratch = Scratch::new();
    let ours = scratch.link("ovsdb-client");
    let theirs = reference("ovsdb-client");
    for (what, input, is_good) in inputs() {
        let direct = outcome(&ours, &[], "1.2.3", &input, false);
        assert_eq!(direct.0, Some(i32::from(!is_good)), "{what}: {}", direct.1);
        assert_eq!(direct.2.len(), usize::from(is_good), "{what}: a transaction was sent");
        assert_eq!(outcome(&ours, &[], "1.2.3", &input, true), direct, "{what}, from a pipe");
        if let Some(theirs) = &theirs {
            assert_eq!(direct, outcome(theirs, &[], "1.2.3", &input, false), "{what}");
        }
    }
}

#[test]
fn another_version_is_refused_or_forced() {
    let scratch = Scratch::new();
    let ours = scratch.link("ovsdb-client");
    let theirs = reference("ovsdb-client");
    for (what, input, is_good) in inputs() {
        for args in [&[][..], &["--force"]] {
            let said = outcome(&ours, args, "1.2.4", &input, false);
            let expected = is_good && !args.is_empty();
            assert_eq!((said.0 == Some(0), said.2.len() == 1), (expected, expected), "{what}");
            if is_good && !expected {
                assert!(said.1.contains("backup schema has version \"1.2.3\" but"), "{}", said.1);
            }
            if let Some(theirs) = &theirs {
                assert_eq!(said, outcome(theirs, args, "1.2.4", &input, false), "{what} {args:?}");
            }
        }
    }
}
