//! However much a step may cost, and whenever helpers do their work, clients see one history: what
//! is in the file, in its order. Every answer is that of one moment of it, every session's moments
//! are in order, and a monitor is told each of its states in order, the last one included.

use std::collections::{BTreeMap, BTreeSet};

use crate::shell::{PATH, Shell, transact};
use proptest::prelude::*;
use serde_json::Value;
use weir_server::event::SessionId;

const CLIENTS: usize = 4;

/// Conditions of which the first two tell the row, each by another clause, and the others do not,
/// each for another reason.
const CONDITIONS: [&str; 4] =
    [r#"["name","==","log"]"#, r#"["name","includes","log"]"#, r#"["name","==","other"]"#, "false"];

#[derive(Clone, Debug)]
enum Step {
    Write {
        client: usize,
        wide: bool,
    },
    Read {
        client: usize,
        wide: bool,
    },
    Monitor {
        client: usize,
    },
    /// `monitor_cond_change`: to this condition.
    Change {
        client: usize,
        condition: usize,
    },
    Round,
    Work(usize),
    /// The most that a step may cost from now on.
    Cost(u64),
    /// The disk is full from now on, or has room again.
    Full(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let cost = prop_oneof![Just(0), Just(u64::MAX), 0..2000_u64];
    prop_oneof![
        6 => (0..CLIENTS, any::<bool>()).prop_map(|(client, wide)| Step::Write { client, wide }),
        3 => (0..CLIENTS, any::<bool>()).prop_map(|(client, wide)| Step::Read { client, wide }),
        1 => (0..CLIENTS).prop_map(|client| Step::Monitor { client }),
        2 => (0..CLIENTS, 0..CONDITIONS.len())
            .prop_map(|(client, condition)| Step::Change { client, condition }),
        4 => Just(Step::Round),
        4 => (0..8_usize).prop_map(Step::Work),
        1 => cost.prop_map(Step::Cost),
        1 => prop::bool::weighted(0.3).prop_map(Step::Full),
    ]
}

/// What one client has asked and seen.
#[derive(Default)]
struct Client {
    /// Requests in order, with what they are.
    asked: Vec<(u32, Asked)>,
    answered: usize,
    /// The latest moments that it has read, and been told of: so many transactions. An answer of
    /// the same round may be a little older than the updates before it.
    seen: [usize; 2],
    monitors: bool,
    /// The condition of its monitor that it has heard of last.
    condition: usize,
    /// Rows of its monitor: the tags of each.
    replica: Option<BTreeMap<String, BTreeSet<String>>>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Asked {
    Write,
    Read,
    Monitor,
    Change(usize),
}

struct World {
    shell: Shell,
    clients: Vec<(SessionId, Client)>,
    next: u32,
    busy: BTreeSet<usize>,
    /// Requests that were refused, by number.
    refused: BTreeSet<u32>,
    /// Moments seen by reads and monitors: the numbers in row `log`.
    seen: Vec<BTreeSet<String>>,
}

impl World {
    fn start() -> Self {
        let mut shell = Shell::start();
        let first = shell.connect();
        shell.call(first, &transact(1, &crate::shell::insert("log")));
        let clients = (0..CLIENTS).map(|_| (shell.connect(), Client::default())).collect();
        shell.slow_work = true;
        let (busy, refused) = (BTreeSet::new(), BTreeSet::new());
        Self { shell, clients, next: 100, busy, refused, seen: vec![] }
    }

    fn send(&mut self, client: usize, asked: Asked, request: impl Fn(u32) -> String) {
        if !self.busy.insert(client) {
            self.round();
            self.busy.insert(client);
        }
        self.next += 1;
        let (session, state) = &mut self.clients[client];
        state.asked.push((self.next, asked));
        let request = request(self.next);
        self.shell.send(*session, &request);
    }

    fn step(&mut self, step: &Step) {
        // A wide one looks at all rows.
        let place = |wide: bool| {
            if wide { r#"["name","includes","log"]"# } else { r#"["name","==","log"]"# }
        };
        match *step {
            Step::Write { client, wide } => self.send(client, Asked::Write, |number| {
                let filler = if wide { r#",{"op":"select","table":"Port","where":[["tags","includes","x"]]}"# } else { "" };
                let tag = format!(
                    r#"{{"op":"mutate","table":"Port","where":[{}],"mutations":[["tags","insert","{number}"]]}}"#,
                    place(false)
                );
                transact(number, &format!(r#"{tag},{{"op":"comment","comment":"number {number}"}}{filler}"#))
            }),
            Step::Read { client, wide } => self.send(client, Asked::Read, |number| {
                let select = format!(
                    r#"{{"op":"select","table":"Port","where":[{}],"columns":["tags"]}}"#,
                    place(wide)
                );
                transact(number, &select)
            }),
            Step::Monitor { client } => {
                if !std::mem::replace(&mut self.clients[client].1.monitors, true) {
                    self.send(client, Asked::Monitor, |number| {
                        format!(r#"{{"id":{number},"method":"monitor_cond","params":["Net","mon",{{"Port":{{"columns":["tags"]}}}}]}}"#)
                    });
                }
            }
            Step::Change { client, condition } => {
                if self.clients[client].1.monitors {
                    self.send(client, Asked::Change(condition), |number| {
                        let wanted = CONDITIONS[condition];
                        format!(r#"{{"id":{number},"method":"monitor_cond_change","params":["mon","mon",{{"Port":[{{"where":[{wanted}]}}]}}]}}"#)
                    });
                }
            }
            Step::Round => self.round(),
            Step::Work(at) => self.shell.do_work(at),
            Step::Cost(cost) => self.shell.server.set_step_cost_max(cost),
            Step::Full(full) => {
                self.round();
                self.shell.disk_error = full.then_some("No space left on device");
            }
        }
    }

    fn round(&mut self) {
        self.shell.settle();
        self.busy.clear();
        for at in 0..CLIENTS {
            let session = self.clients[at].0;
            for message in self.shell.received(session) {
                let message: Value = serde_json::from_str(&message).unwrap();
                self.take(at, &message);
            }
        }
    }

    fn take(&mut self, at: usize, message: &Value) {
        let client = &mut self.clients[at].1;
        if message["id"].is_null() {
            assert_eq!(message["method"], "update2", "{message}");
            let replica = client.replica.as_mut().expect("the first reply comes first");
            follow(replica, &message["params"][1]);
            let Some(moment) = replica.values().next().cloned() else { return };
            return self.saw(at, 1, moment);
        }
        // Answers come in the order of the requests.
        let (number, asked) = client.asked[client.answered];
        assert_eq!(message["id"], number, "{message}");
        client.answered += 1;
        match asked {
            Asked::Write => {
                let results = message["result"].as_array().unwrap();
                if let Some(error) = results.iter().find(|result| result["error"].is_string()) {
                    assert_eq!(error["error"], "I/O error", "{message}");
                    self.refused.insert(number);
                } else if let Some(replica) = client.replica.as_ref().filter(|r| !r.is_empty()) {
                    // What a client did itself it has been told before the answer.
                    assert!(replica.values().any(|tags| tags.contains(&number.to_string())));
                }
            }
            Asked::Read => {
                let rows = message["result"][0]["rows"].as_array().unwrap();
                self.saw(at, 0, tags(&rows[0]["tags"]));
            }
            Asked::Change(condition) => {
                assert_eq!(message["result"], serde_json::json!({}), "{message}");
                client.condition = condition;
                let replica = client.replica.as_ref().expect("the first reply comes first");
                assert_eq!(replica.is_empty(), condition >= 2, "the difference comes first");
            }
            Asked::Monitor => {
                let mut replica = BTreeMap::new();
                follow(&mut replica, &message["result"]);
                let moment = replica.values().next().unwrap().clone();
                client.replica = Some(replica);
                self.saw(at, 1, moment);
            }
        }
    }

    /// A client saw a moment: no earlier one than before.
    fn saw(&mut self, at: usize, how: usize, moment: BTreeSet<String>) {
        let seen = &mut self.clients[at].1.seen[how];
        assert!(moment.len() >= *seen, "client {at} was sent back in time");
        *seen = moment.len();
        self.seen.push(moment);
    }

    fn finish(mut self) -> Result<(), TestCaseError> {
        self.shell.disk_error = None;
        self.round();
        while !self.shell.work.is_empty() {
            self.shell.do_work(0);
            self.round();
        }
        let file = String::from_utf8(self.shell.files[PATH].clone()).unwrap();
        let history: Vec<String> = file
            .lines()
            .filter_map(|line| Some(line.split_once("number ")?.1.split_once('"')?.0.to_owned()))
            .collect();
        for moment in &self.seen {
            let expected: BTreeSet<String> = history[..moment.len()].iter().cloned().collect();
            prop_assert_eq!(moment, &expected);
        }
        for (at, (_, client)) in self.clients.iter().enumerate() {
            prop_assert_eq!(client.answered, client.asked.len(), "client {} is not answered", at);
            for (number, asked) in &client.asked {
                let is_there = history.contains(&number.to_string());
                let committed = *asked == Asked::Write && !self.refused.contains(number);
                prop_assert_eq!(is_there, committed, "request {}", number);
            }
            if let Some(replica) = &client.replica {
                let Some(told) = replica.values().next() else {
                    prop_assert!(client.condition >= 2, "client {} misses the row", at);
                    continue;
                };
                prop_assert_eq!(told.len(), history.len(), "client {} misses something", at);
            }
        }
        Ok(())
    }
}

/// A set of strings as JSON.
fn tags(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(one) => [one.clone()].into(),
        Value::Null => BTreeSet::new(),
        set => set[1].as_array().unwrap().iter().map(|t| t.as_str().unwrap().into()).collect(),
    }
}

/// Applies table updates.
fn follow(replica: &mut BTreeMap<String, BTreeSet<String>>, updates: &Value) {
    for (uuid, update) in updates["Port"].as_object().unwrap() {
        for kind in ["initial", "insert"] {
            if update[kind].is_object() {
                replica.insert(uuid.clone(), tags(&update[kind]["tags"]));
            }
        }
        if update.get("delete").is_some() {
            replica.remove(uuid).expect("a row that was there");
        }
        if update["modify"].is_object() {
            let row = replica.get_mut(uuid).expect("a row that was there");
            for tag in tags(&update["modify"]["tags"]) {
                assert!(row.insert(tag), "told twice");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_see_one_history(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::start();
        for step in &steps {
            world.step(step);
        }
        world.finish()?;
    }
}
