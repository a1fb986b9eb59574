//! Weir alone: what must not kill it, hold others up, or make it say a wrong thing.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::client::{Client, Trouble};
use weir_testkit::files;
use weir_testkit::process::{Scratch, Server, weir};
use weir_testkit::rng::Rng;

/// A running Weir with a set, a map and a named table.
struct Lone {
    server: Server,
    session: Client,
    _scratch: Scratch,
}

impl Lone {
    fn start() -> Self {
        let scratch = Scratch::new("robust");
        let file = scratch.file("db");
        let any = |key: &str| json!({"key": key, "min": 0, "max": "unlimited"});
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {"T": {
            "isRoot": true, "indexes": [["name"]], "columns": {
                "name": {"type": "string"},
                "set": {"type": any("string")},
                "refs": {"type": {"key": {"type": "uuid", "refTable": "R"}, "min": 0, "max": "unlimited"}}}},
            "R": {"columns": {"n": {"type": "integer"}}}}});
        files::create(&file, &schema).expect("a database file");
        let server = Server::start(&weir(), &[file]).expect("the server starts");
        let session = server.connect().expect("a session");
        Self { server, session, _scratch: scratch }
    }

    fn transact(&mut self, ops: &[Value]) -> Value {
        self.session.transact("D", ops).expect("an answer")
    }

    /// A fresh session is served; a conversion among the noise may end the first ones.
    fn is_well(&mut self) {
        let is_served = || self.server.connect().is_ok_and(|mut new| new.barrier().is_ok());
        assert!((0..10).any(|_| is_served()), "no new session is served:\n{}", self.server.log());
        assert!(self.server.is_alive(), "the server died:\n{}", self.server.log());
        assert!(!self.server.log().contains("panicked"), "{}", self.server.log());
    }
}

#[test]
fn half_a_message_holds_nobody_up() {
    let mut weir = Lone::start();
    let mut stuck = vec![];
    for half in ["{", "[[[[", "{\"id\":0,\"method\":\"tr", "   ", "{\"a\":\"\\", "{\"id\":1e"] {
        let mut session = weir.server.connect().expect("a session");
        session.send_raw(half.as_bytes()).expect("sending");
        stuck.push(session);
        weir.transact(&[json!({"op": "comment", "comment": "x"})]);
    }
    weir.is_well();
}

#[test]
fn a_message_may_come_byte_by_byte() {
    let weir = Lone::start();
    let mut session = weir.server.connect().expect("a session");
    let text = r#"{"id":1,"method":"echo","params":["é😀",{"a":[1.5e3,null]}]} {"id":2,"#;
    for byte in text.as_bytes() {
        session.send_raw(&[*byte]).expect("sending");
    }
    let reply = session.reply(1).expect("a reply");
    assert_eq!(reply.value["result"], json!(["é😀", {"a": [1500, null]}]));
    session.send_raw(br#""method":"echo","params":[]}"#).expect("sending");
    session.reply(2).expect("a second reply");
}

/// Bytes without any meaning, and messages with some bytes changed.
#[test]
fn no_bytes_kill_the_server() {
    let mut weir = Lone::start();
    let mut rng = Rng::new(7);
    let messages = [
        r#"{"id":1,"method":"transact","params":["D",{"op":"insert","table":"T","row":{"name":"n","set":["set",["a","b"]]}}]}"#,
        r#"{"id":2,"method":"monitor_cond","params":["D","m",{"T":[{"columns":["name"],"where":[["name","==","n"]]}]}]}"#,
        r#"{"id":3,"method":"monitor","params":["D","m1",{"T":{"columns":["set"],"select":{"initial":true}}}]}"#,
        r#"{"id":4,"method":"monitor_cond_change","params":["m","m",{"T":[{"where":[["name","!=","n"]]}]}]}"#,
        r#"{"id":5,"method":"transact","params":["D",{"op":"mutate","table":"T","where":[["name","==","n"]],"mutations":[["set","insert",["set",["c"]]]]},{"op":"wait","timeout":0,"table":"T","where":[],"columns":["name"],"until":"==","rows":[{"name":"n"}]}]}"#,
        r#"{"id":6,"method":"lock","params":["l"]}{"id":7,"method":"get_schema","params":["D"]}"#,
        r#"{"id":8,"method":"convert","params":["D",{"name":"D","tables":{}}]}"#,
        r#"{"id":9,"method":"monitor_cond_since","params":["D","m3",{"T":[{}]},"00000000-0000-0000-0000-000000000000"]}"#,
    ];
    for round in 0..3000 {
        let mut bytes = rng.pick(&messages).as_bytes().to_vec();
        match rng.below(3) {
            0 => bytes = (0..rng.between(1, 60)).map(|_| rng.bits() as u8).collect(),
            1 => {
                let noise = b"[]{}\",:0-1e.\\untf\x00\xff\x80 ";
                for _ in 0..rng.between(1, 4) {
                    let at = rng.below(bytes.len());
                    bytes[at] = *rng.pick(noise);
                }
            }
            _ => {
                let (from, to) = (rng.below(bytes.len()), rng.below(bytes.len()));
                let piece = bytes[from.min(to)..from.max(to)].to_vec();
                let at = rng.below(bytes.len());
                bytes.splice(at..at, piece);
            }
        }
        let mut session = weir.server.connect().expect("the server accepts");
        // It may hang up at once.
        session.send_raw(&bytes).ok();
        if round % 100 == 0 {
            weir.is_well();
        }
    }
    weir.is_well();
}

/// Everything in a transaction that can be of a wrong kind is.
#[test]
fn no_parameters_kill_the_server() {
    let mut weir = Lone::start();
    let mut rng = Rng::new(11);
    let methods = [
        "transact",
        "monitor",
        "monitor_cond",
        "monitor_cond_since",
        "monitor_cond_change",
        "monitor_cancel",
        "lock",
        "steal",
        "unlock",
        "get_schema",
        "list_dbs",
        "get_server_id",
        "set_db_change_aware",
        "convert",
        "cancel",
    ];
    for _ in 0..3000 {
        let mut session = weir.server.connect().expect("the server accepts");
        let params: Vec<Value> = (0..rng.below(6)).map(|_| anything(&mut rng, 4)).collect();
        let request =
            json!({"id": anything(&mut rng, 1), "method": rng.pick(&methods), "params": params});
        session.send_raw(request.to_string().as_bytes()).expect("sending");
        session.set_patience(Duration::from_secs(20)).expect("a timeout");
        match session.barrier() {
            // A request with a null id is a bad message.
            Ok(()) | Err(Trouble::Closed) => {}
            Err(trouble) => panic!("{request}: {trouble}\n{}", weir.server.log()),
        }
    }
    weir.is_well();
}

fn anything(rng: &mut Rng, depth: usize) -> Value {
    let words = [
        "D",
        "T",
        "R",
        "_Server",
        "Database",
        "name",
        "set",
        "map",
        "uuid",
        "named-uuid",
        "refs",
        "n",
        "==",
        "includes",
        "insert",
        "op",
        "where",
        "select",
        "table",
        "columns",
        "_uuid",
        "",
        "m",
        "00000000-0000-0000-0000-000000000000",
    ];
    match rng.below(if depth == 0 { 5 } else { 9 }) {
        0 => json!(null),
        1 => json!(rng.chance(50)),
        2 => json!(rng.bits() as i64 >> rng.below(64)),
        3..=4 => json!(*rng.pick(&words)),
        5..=6 => (0..rng.below(4)).map(|_| anything(rng, depth - 1)).collect(),
        _ => Value::Object(
            (0..rng.below(4))
                .map(|_| ((*rng.pick(&words)).to_owned(), anything(rng, depth - 1)))
                .collect(),
        ),
    }
}

#[test]
fn a_transaction_of_100_000_operations() {
    let mut weir = Lone::start();
    let insert = |i| json!({"op": "insert", "table": "T", "row": {"name": format!("row {i}")}});
    let ops: Vec<Value> = (0..100_000).map(insert).collect();
    let result = weir.transact(&ops);
    let inserted = result.as_array().expect("an array");
    assert_eq!(inserted.len(), ops.len());
    assert!(inserted.iter().all(|one| one["uuid"].is_array()), "{}", inserted[0]);
    let found = json!({"op": "select", "table": "T", "where": [["name", "==", "row 99999"]], "columns": ["name"]});
    let result = weir.transact(&[found]);
    assert_eq!(result, json!([{"rows": [{"name": "row 99999"}]}]));
}

#[test]
fn a_set_of_100_000_elements() {
    let mut weir = Lone::start();
    let elements: Vec<String> = (0..100_000).map(|i| format!("e{i:06}")).collect();
    let row = json!({"name": "big", "set": ["set", elements]});
    weir.transact(&[json!({"op": "insert", "table": "T", "row": row})]);
    let by_name = json!([["name", "==", "big"]]);
    for i in 0..100 {
        let one = format!("x{i}");
        let mutations = json!([["set", "insert", one], ["set", "delete", format!("e{i:06}")]]);
        let op = json!({"op": "mutate", "table": "T", "where": by_name, "mutations": mutations});
        assert_eq!(weir.transact(&[op]), json!([{"count": 1}]));
    }
    let op = json!({"op": "select", "table": "T", "where": by_name, "columns": ["set"]});
    let result = weir.transact(&[op]);
    let set = result[0]["rows"][0]["set"][1].as_array().expect("a set").clone();
    assert_eq!(set.len(), 100_000);
    assert_eq!((&set[0], &set[99_999]), (&json!("e000100"), &json!("x99")));
    assert!(set.is_sorted_by_key(|one| one.as_str().unwrap_or_default().to_owned()));
}

#[test]
fn a_message_of_100_megabytes() {
    if std::env::var_os("TESTKIT_SLOW").is_none() {
        println!("SKIP a_message_of_100_megabytes: set TESTKIT_SLOW=1 to run it");
        return;
    }
    let mut weir = Lone::start();
    let text = "x".repeat(100_000_000);
    let request = format!(r#"{{"id":1,"method":"echo","params":["{text}"]}}"#);
    let mut session = weir.server.connect().expect("a session");
    let reply = session.send_while(request.as_bytes(), |session| session.reply(1));
    let reply = reply.expect("an echo");
    assert_eq!(reply.value["result"][0].as_str().map(str::len), Some(text.len()));
    weir.is_well();
}

#[test]
fn nesting_past_the_limit_ends_the_session_only() {
    let mut weir = Lone::start();
    for (depth, answered) in [(990, true), (1_010, false), (100_000, false)] {
        let mut session = weir.server.connect().expect("a session");
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let request = format!(r#"{{"id":1,"method":"echo","params":[{open}{close}]}}"#);
        session.send_raw(request.as_bytes()).ok();
        assert_eq!(session.reply(1).is_ok(), answered, "depth {depth}");
    }
    weir.is_well();
}

#[test]
fn answered_transactions_survive_a_kill() {
    let scratch = Scratch::new("kill");
    let file = scratch.file("db");
    let schema = json!({"name": "D", "tables": {"T": {"columns": {"n": {"type": "integer"}}}}});
    files::create(&file, &schema).expect("a database file");
    let mut expected = 0;
    for round in 0..10_i64 {
        let mut server = Server::start(&weir(), std::slice::from_ref(&file)).expect("it starts");
        let mut session = server.connect().expect("a session");
        let select = json!({"op": "select", "table": "T", "where": []});
        let result = session.transact("D", &[select]).expect("an answer");
        let rows = result[0]["rows"].as_array().map_or(0, Vec::len);
        assert!(rows >= expected, "{rows} rows of {expected} answered after kill {round}");
        expected = rows;
        for i in 0..20 + round {
            let insert = json!({"op": "insert", "table": "T", "row": {"n": i}});
            session.transact("D", &[insert]).expect("an answer");
            expected += 1;
        }
        let unanswered = json!({"op": "insert", "table": "T", "row": {"n": -1}});
        session.ask("transact", &json!(["D", unanswered])).expect("sending");
        server.kill();
    }
}
