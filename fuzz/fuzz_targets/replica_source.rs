//! What a replica hears from a server, while its owner wants other rows. A line is a message; its
//! first byte says what else happens. The follower goes on, what it asks is a message, and no
//! conditions are told that nobody has asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use weir_data::UuidSource;
use weir_json::{Framer, validate};
use weir_upstream::Input;
use weir_upstream::follower::{Columns, Condition, Follower, Model, Output, Wanted};
use weir_upstream::remotes::Remotes;
use weir_upstream::session::Options;
use weir_wire::Message;

const SCHEMA: &str = r#"{"name":"D","tables":{
"T":{"columns":{"x":{"type":"integer"},"s":{"type":{"key":"string","min":0,"max":2}}}}}}"#;
const ROW: &str = "aaaaaaaa-0000-4000-8000-000000000001";

struct Owner {
    follower: Follower,
    now_us: u64,
    versions: UuidSource,
    is_connected: bool,
    is_connecting: bool,
    /// Requests that are not answered.
    requests: Vec<Value>,
    /// The number of the conditions that are wanted.
    number: u64,
}

impl Owner {
    fn new() -> Self {
        let columns = ["x", "z"].map(str::to_owned).into_iter().collect();
        let tables = [("T".to_owned(), Columns::These(columns)), ("U".to_owned(), Columns::All)];
        let wanted = Wanted {
            database: "D".into(),
            remotes: Remotes::parse("tcp:a:1,tcp:b:1"),
            leader_only: false,
            options: Options { probe_ms: 5000, max_backoff_ms: 8000 },
            model: Model::Replica(tables.into()),
        };
        Self {
            follower: Follower::new(wanted, 0),
            now_us: 1_000_000,
            versions: UuidSource::new([1, 2, 3, 4]),
            is_connected: false,
            is_connecting: false,
            requests: vec![],
            number: 0,
        }
    }

    fn give(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.follower.handle(self.now_us, input, &mut self.versions, &mut out);
        self.take(out);
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Connect { .. } => self.is_connecting = true,
                Output::Close => {
                    (self.is_connected, self.is_connecting) = (false, false);
                    self.requests.clear();
                }
                Output::Send(message) => {
                    let text = validate(&message).expect("what is asked is JSON");
                    assert!(Message::parse(text).is_ok());
                    let message: Value = serde_json::from_slice(&message).expect("JSON");
                    if message.get("method").is_some() {
                        self.requests.push(message);
                    }
                }
                Output::Conditions { number, .. } | Output::Refused { number, .. } => {
                    assert!(number <= self.number, "{number}");
                }
                _ => {}
            }
        }
    }

    fn say(&mut self, message: &[u8]) {
        if self.is_connected {
            self.give(Input::Message(message));
        }
    }

    /// Answers what has been asked as a server does that is well.
    fn answer(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            let row = json!({"name": "D", "model": "clustered", "connected": true, "leader": true,
                "schema": SCHEMA});
            let rows = json!({"T": {ROW: {"initial": {"x": 1}}}});
            let result = match request["method"].as_str() {
                Some("monitor_cond") if request["params"][0] == "_Server" => {
                    json!({"Database": {ROW: {"initial": row}}})
                }
                Some("monitor_cond_since") => json!([false, ROW, rows]),
                _ => json!({}),
            };
            let reply = json!({"id": request["id"], "result": result, "error": null});
            self.say(reply.to_string().as_bytes());
        }
    }

    /// The line is a condition of one of the tables.
    fn want(&mut self, table: &str, line: &[u8]) {
        let clauses = weir_json::Value::parse(line).ok();
        let condition = match clauses {
            Some(weir_json::Value::Array(clauses)) => Condition::Any(clauses),
            _ => Condition::All,
        };
        let (changes, mut out) = ([(table.to_owned(), condition)], Vec::new());
        self.number = self.follower.set_conditions(changes.into(), &mut out);
        self.take(out);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut owner = Owner::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((&first, message)) = line.split_first() else { continue };
        match first {
            b'W' => {
                owner.now_us = owner.follower.next_wakeup_us().unwrap_or(0).max(owner.now_us);
                owner.give(Input::Tick);
                if std::mem::take(&mut owner.is_connecting) {
                    owner.is_connected = true;
                    owner.give(Input::Up);
                }
            }
            b'D' if std::mem::take(&mut owner.is_connected) => {
                owner.requests.clear();
                owner.give(Input::Down(None));
            }
            b'A' => (0..4).for_each(|_| owner.answer()),
            b'T' => owner.want("T", message),
            b'U' => owner.want("U", message),
            _ if Framer::new().feed(message).is_ok_and(|end| end == Some(message.len())) => {
                owner.say(message);
            }
            _ => {}
        }
    }
});
