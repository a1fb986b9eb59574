//! A replica of the follower's (`weir_upstream::follower`) behind a member of a cluster, packaged and ours:
//! conditions that change, connections that end in between, a change that is refused.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use weir_data::{AtomRef, Edit, Row, UuidSource};
use weir_testkit::client::Client;
use weir_testkit::process::{Scratch, Server, both};
use weir_upstream::Input;
use weir_upstream::follower::{Columns, Condition, Follower, Model, Output, Wanted};
use weir_upstream::news::Rows;
use weir_upstream::remotes::Remotes;
use weir_upstream::session::Options;

/// Messages that a step takes at most.
const MESSAGES_MAX: usize = 100;

/// A server of a cluster of one, and a replica of what it has.
struct Scene {
    server: Server,
    writer: Client,
    follower: Follower,
    connection: Option<Client>,
    now_us: u64,
    versions: UuidSource,
    /// The column `x` of each row, by table and `_uuid`.
    rows: BTreeMap<(String, String), i64>,
    /// How often all rows came.
    began: usize,
    /// The number of the conditions that hold, and of those that were refused last.
    told: Option<u64>,
    refused: Option<u64>,
    _scratch: Scratch,
}

impl Scene {
    fn start(program: &weir_testkit::process::Program) -> Self {
        let scratch = Scratch::new("replica");
        let [schema, file, raft] = ["schema", "db", "raft"].map(|name| scratch.file(name));
        let column = json!({"x": {"type": "integer"}});
        let table = json!({"isRoot": true, "columns": column});
        let tables = json!({"T": table, "U": table});
        let text = json!({"name": "D", "version": "1.0.0", "tables": tables}).to_string();
        std::fs::write(&schema, text).expect("a schema");
        let mut create = Command::new("ovsdb-tool");
        create.arg("create-cluster").arg(&file).arg(&schema);
        let created = create.arg(format!("unix:{}", raft.display())).status();
        assert!(created.expect("the reference's tool").success());
        let server = Server::start(program, &[file]).expect("the server starts");
        let mut writer = server.connect().expect("a session");
        let n = json!({"op": "wait", "timeout": 0, "table": "T", "columns": ["x"], "where": [],
            "until": "==", "rows": []});
        weir_testkit::patience::eventually(|| {
            let answer = writer.transact("D", std::slice::from_ref(&n));
            answer.map(|_| ()).map_err(|trouble| trouble.to_string())
        });
        let tables = ["T", "U"].map(|name| (name.to_owned(), Columns::All));
        let wanted = Wanted {
            database: "D".into(),
            remotes: Remotes::parse("unix:here"),
            leader_only: false,
            options: Options { probe_ms: 0, max_backoff_ms: 1000 },
            model: Model::Replica(tables.into()),
        };
        Self {
            server,
            writer,
            follower: Follower::new(wanted, 0),
            connection: None,
            now_us: 1_000_000,
            versions: UuidSource::new([1, 2, 3, 4]),
            rows: BTreeMap::new(),
            began: 0,
            told: None,
            refused: None,
            _scratch: scratch,
        }
    }

    fn insert(&mut self, table: &str, values: impl Iterator<Item = i64>) {
        let row = |x| json!({"op": "insert", "table": table, "row": {"x": x}});
        let operations: Vec<Value> = values.map(row).collect();
        self.writer.transact("D", &operations).expect("an answer");
    }

    /// Other conditions: any of these numbers, or what is no number.
    fn want(&mut self, wishes: &[(&str, &[Value])]) -> u64 {
        let clause = |value: &Value| {
            let text = json!(["x", "==", value]).to_string();
            weir_json::Value::parse(text.as_bytes()).expect("JSON")
        };
        let condition = |(table, values): &(&str, &[Value])| {
            ((*table).to_owned(), Condition::Any(values.iter().map(clause).collect()))
        };
        let mut out = Vec::new();
        let changes = wishes.iter().map(condition).collect();
        let number = self.follower.set_conditions(changes, &mut out);
        self.take(out, Vec::new());
        number
    }

    fn give(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.follower.handle(self.now_us, input, &mut self.versions, &mut out);
        let message = if let Input::Message(message) = input { message.to_vec() } else { vec![] };
        self.take(out, message);
    }

    fn take(&mut self, out: Vec<Output>, message: Vec<u8>) {
        for output in out {
            match output {
                Output::Connect { .. } => {
                    self.connection = Some(self.server.connect().expect("a session"));
                    self.give(Input::Up);
                }
                Output::Send(message) => {
                    let connection = self.connection.as_mut().expect("it is connected");
                    connection.send_raw(&message).expect("sending");
                }
                Output::News(news) => self.apply(*news, &message),
                Output::Conditions { number, whole } => {
                    assert_eq!(whole, Vec::<String>::new());
                    self.told = Some(number);
                }
                Output::Refused { number, .. } => self.refused = Some(number),
                Output::Log { .. } => {}
                output => panic!("{output:?}"),
            }
        }
    }

    fn apply(&mut self, news: weir_upstream::news::News, message: &[u8]) {
        let schema = news.schema;
        let x = |row: &Row, table| {
            let column = schema.table(table).column_id("x").expect("a column");
            match row.get(column).scalar() {
                Some(AtomRef::Integer(x)) => x,
                _ => 0,
            }
        };
        let name = |table| schema.table(table).name.clone();
        match news.rows {
            Rows::All(all) => {
                self.rows.clear();
                self.began += 1;
                let each = &mut |table, row: Row| {
                    self.rows.insert((name(table), row.uuid().to_string()), x(&row, table));
                    Ok(())
                };
                all.take(message.to_vec(), &mut self.versions, each).expect("rows make sense");
            }
            Rows::Edits(edits) => {
                for edit in edits {
                    let key = (name(edit.table), edit.uuid.to_string());
                    let before = match edit.edit {
                        Edit::Insert(row) => self.rows.insert(key, x(&row, edit.table)).is_none(),
                        Edit::Delete => self.rows.remove(&key).is_some(),
                        Edit::Modify(_) => false,
                    };
                    assert!(before, "rows come once, and go if they were there");
                }
            }
            Rows::Images(_) => panic!("the server knows newer methods"),
        }
    }

    fn hear(&mut self) {
        let connection = self.connection.as_mut().expect("it is connected");
        let message = connection.next_message().expect("a message");
        self.give(Input::Message(&message.raw));
    }

    fn hear_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..MESSAGES_MAX {
            if is_so(self) {
                return;
            }
            self.hear();
        }
        panic!("in vain: {:?}", self.told);
    }

    /// The connection ends, and is made again.
    fn come_back(&mut self) {
        self.connection = None;
        self.give(Input::Down(None));
        self.now_us = self.follower.next_wakeup_us().expect("an attempt");
        self.give(Input::Tick);
    }

    fn has(&self, table: &str, expected: &[i64]) {
        let of = self.rows.iter().filter(|((of, _), _)| of == table);
        let mut values: Vec<i64> = of.map(|(_, x)| *x).collect();
        values.sort_unstable();
        assert_eq!(values, expected, "{} in {table}", self.server.label());
    }
}

#[test]
fn a_replica_has_the_rows_of_the_conditions_that_it_was_told_to_hold() {
    let test = "a_replica_has_the_rows_of_the_conditions_that_it_was_told_to_hold";
    let Some((reference, weir)) = both(test) else { return };
    for program in [reference, weir] {
        let mut scene = Scene::start(&program);
        scene.insert("T", 0..10);
        scene.insert("U", 0..10);
        scene.want(&[("T", &[json!(1)]), ("U", &[])]);
        scene.give(Input::Tick);
        scene.hear_until(|scene| scene.told == Some(1));
        scene.has("T", &[1]);
        // What is wanted while a change is under way is in the next one.
        scene.want(&[("T", &[json!(2)])]);
        scene.want(&[("T", &[json!(2), json!(3)])]);
        let last = scene.want(&[("U", &[json!(5)])]);
        scene.hear_until(|scene| scene.told == Some(last));
        scene.has("T", &[2, 3]);
        scene.has("U", &[5]);
        // The connection ends when the difference has come, and before the answer.
        let last = scene.want(&[("T", &[json!(2), json!(4)])]);
        scene.hear_until(|scene| scene.told == Some(last));
        scene.come_back();
        scene.insert("T", [2, 3, 4].into_iter());
        scene.hear_until(|scene| scene.follower.is_following() && scene.told == Some(last));
        scene.writer.barrier().expect("an answer");
        scene.hear_until(|scene| scene.rows.len() == 5);
        scene.has("T", &[2, 2, 4, 4]);
        // Whatever was told of a change that makes no row come or go, and wherever the last id is from: a row
        // that is there for a while under the new conditions leaves nothing behind.
        let last = scene.want(&[("T", &[json!(2), json!(77)])]);
        scene.hear_until(|scene| scene.told == Some(last));
        let last = scene.want(&[("T", &[json!(2), json!(78)])]);
        scene.hear_until(|scene| scene.told == Some(last));
        scene.come_back();
        scene.hear_until(|scene| scene.follower.is_following() && scene.told == Some(last));
        scene.has("T", &[2, 2]);
        assert_eq!(scene.began, 1, "{} knows what came since", program.label);
        // One of the two tables has a condition that makes no sense; nothing of it holds.
        let refused = scene.want(&[("T", &[json!(9)]), ("U", &[json!("text")])]);
        scene.hear_until(|scene| scene.refused == Some(refused));
        scene.hear_until(|scene| scene.follower.is_following());
        scene.insert("T", [2, 9].into_iter());
        scene.hear_until(|scene| scene.rows.len() == 4);
        scene.has("T", &[2, 2, 2]);
        scene.has("U", &[5]);
        assert_eq!(scene.told, Some(last), "{}", program.label);
    }
}
