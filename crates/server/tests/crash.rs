//! A crash at any moment of a random life loses nothing that was answered: after `kill -9` every
//! answered transaction is in the file, after a power failure every durable one, and what is there
//! is always a beginning of what was committed.

use std::collections::{BTreeMap, BTreeSet};

use crate::shell::{Lost, PATH, Shell, transact};
use proptest::prelude::*;
use serde_json::Value;
use weir_server::event::{CommandId, Event, SessionId};

/// Clients at work at the same time.
const CLIENTS: usize = 4;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Transact {
        client: usize,
        op: Op,
        durable: bool,
    },
    Round,
    Compact,
    HelperDone,
    /// The disk is full from now on, or has room again.
    Full(bool),
}

/// What a transaction does, besides leaving its number in the tags of row `log`.
#[derive(Clone, Copy, Debug)]
enum Op {
    Insert,
    /// Deletes the row of an earlier transaction.
    Delete(u32),
    /// Adds this transaction's number to the tags of a row.
    Tag(u32),
    /// Gives a row these tags only.
    Set(u32),
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    PowerFailure(Lost),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Insert),
        1 => (100..140_u32).prop_map(Op::Delete),
        2 => (100..140_u32).prop_map(Op::Tag),
        1 => (100..140_u32).prop_map(Op::Set),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let transact = (0..CLIENTS, op(), prop::bool::weighted(0.25));
    prop_oneof![
        12 => transact.prop_map(|(client, op, durable)| Step::Transact { client, op, durable }),
        4 => Just(Step::Round),
        1 => Just(Step::Compact),
        2 => Just(Step::HelperDone),
        1 => prop::bool::weighted(0.3).prop_map(Step::Full),
    ]
}

fn end() -> impl Strategy<Value = End> {
    let lost = (any::<u16>(), prop::option::of(any::<u8>()), any::<bool>())
        .prop_map(|(kept, filler, old_name)| Lost { kept, filler, old_name });
    prop_oneof![Just(End::Kill), lost.prop_map(End::PowerFailure)]
}

/// A life: what happens, after how many effects it is cut short, and how.
fn life() -> impl Strategy<Value = (Vec<Step>, Option<usize>, End)> {
    (prop::collection::vec(step(), 1..60), prop::option::of(1..120_usize), end())
}

/// Rows by name, with their tags.
type Rows = BTreeMap<String, BTreeSet<String>>;

/// A transaction that was sent.
struct Sent {
    number: u32,
    op: Op,
    durable: bool,
    /// Whether the answer says that it was committed; `None` while there is no answer.
    committed: Option<bool>,
}

impl Sent {
    fn request(&self) -> String {
        let number = self.number;
        let by_name = |name: u32| format!(r#""table":"Port","where":[["name","==","p{name}"]]"#);
        let op = match self.op {
            Op::Insert => crate::shell::insert(&format!("p{number}")),
            Op::Delete(name) => format!(r#"{{"op":"delete",{}}}"#, by_name(name)),
            Op::Tag(name) => {
                let tag = format!(r#"[["tags","insert","{number}"]]"#);
                format!(r#"{{"op":"mutate",{},"mutations":{tag}}}"#, by_name(name))
            }
            Op::Set(name) => {
                let row = format!(r#"{{"tags":["set",["{number}","a","b"]]}}"#);
                format!(r#"{{"op":"update",{},"row":{row}}}"#, by_name(name))
            }
        };
        let log = format!(
            r#"{{"op":"mutate","table":"Port","where":[["name","==","log"]],"mutations":[["tags","insert","{number}"]]}}"#
        );
        let commit = format!(r#"{{"op":"commit","durable":{}}}"#, self.durable);
        transact(number, &format!("{op},{log},{commit}"))
    }

    fn apply(&self, rows: &mut Rows) {
        let number = self.number.to_string();
        match self.op {
            Op::Insert => {
                rows.insert(format!("p{number}"), BTreeSet::new());
            }
            Op::Delete(name) => {
                rows.remove(&format!("p{name}"));
            }
            Op::Tag(name) => {
                if let Some(tags) = rows.get_mut(&format!("p{name}")) {
                    tags.insert(number.clone());
                }
            }
            Op::Set(name) => {
                if let Some(tags) = rows.get_mut(&format!("p{name}")) {
                    *tags = [number.clone(), "a".into(), "b".into()].into();
                }
            }
        }
        rows.entry("log".into()).or_default().insert(number);
    }
}

/// A server, its clients, and what they have been told.
struct Life {
    shell: Shell,
    clients: Vec<SessionId>,
    /// Who has sent something in this round.
    busy: BTreeSet<usize>,
    sent: Vec<Sent>,
}

impl Life {
    fn start(file: Vec<u8>, fuse: Option<usize>) -> Self {
        let mut shell = Shell::start_on(file);
        let clients = (0..CLIENTS).map(|_| shell.connect()).collect();
        shell.settle();
        shell.slow_helper = true;
        shell.fuse = fuse;
        Self { shell, clients, busy: BTreeSet::new(), sent: vec![] }
    }

    fn step(&mut self, step: &Step, number: u32) {
        match *step {
            Step::Transact { client, op, durable } => {
                if !self.busy.insert(client) {
                    self.round();
                    self.busy.insert(client);
                }
                let sent = Sent { number, op, durable, committed: None };
                self.shell.send(self.clients[client], &sent.request());
                self.sent.push(sent);
            }
            Step::Round => self.round(),
            Step::Compact => {
                let (id, name) = (CommandId(1), "ovsdb-server/compact".to_owned());
                self.shell.event(Event::Command { id, name, args: vec!["Net".into()] });
            }
            Step::HelperDone => self.shell.helper_is_done(),
            Step::Full(full) => {
                self.round();
                self.shell.disk_error = full.then_some("No space left on device");
            }
        }
    }

    fn round(&mut self) {
        self.shell.round();
        self.busy.clear();
        for client in &self.clients {
            for reply in self.shell.received(*client) {
                let reply: Value = serde_json::from_str(&reply).unwrap();
                let sent = self.sent.iter_mut().find(|sent| reply["id"] == sent.number);
                let results = reply["result"].as_array().unwrap();
                let error = results.iter().find(|result| result["error"].is_string());
                if let Some(error) = error {
                    assert_eq!(error["error"], "I/O error", "{reply}");
                    assert_eq!(error["io-error"], "No space left on device", "{reply}");
                    assert!(self.shell.disk_error.is_some(), "{reply}");
                }
                sent.unwrap().committed = Some(error.is_none());
            }
        }
    }

    /// The file as the crash leaves it.
    fn end(&self, end: End) -> Vec<u8> {
        match end {
            End::Kill => self.shell.after_kill(PATH),
            End::PowerFailure(lost) => self.shell.after_power_failure(PATH, lost),
        }
    }

    /// Checks what a restart finds; the rows that are there.
    fn check(&self, mut rows: Rows, found: &Rows, end: End) -> Result<(), TestCaseError> {
        let promised = |sent: &&Sent| {
            let durable = sent.durable || matches!(end, End::Kill);
            durable && sent.committed == Some(true)
        };
        for sent in self.sent.iter().filter(|sent| sent.committed == Some(false)) {
            let log = &found["log"];
            prop_assert!(!log.contains(&sent.number.to_string()), "{} was refused", sent.number);
        }
        for sent in self.sent.iter().filter(promised) {
            let log = &found["log"];
            prop_assert!(log.contains(&sent.number.to_string()), "{} is lost", sent.number);
        }
        // The beginning of the committed ones whose numbers are there.
        for sent in self.sent.iter().filter(|sent| sent.committed != Some(false)) {
            if found["log"].contains(&sent.number.to_string()) {
                sent.apply(&mut rows);
            } else {
                break;
            }
        }
        prop_assert_eq!(&rows, found);
        Ok(())
    }
}

/// The rows of a server that has just been started.
fn rows(shell: &mut Shell) -> Rows {
    let session = shell.connect();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name","tags"]}"#;
    let reply: Value = serde_json::from_str(&shell.call(session, &transact(1, select))).unwrap();
    let tags = |row: &Value| match &row["tags"] {
        Value::String(one) => [one.clone()].into(),
        set => set[1].as_array().unwrap().iter().map(|t| t.as_str().unwrap().into()).collect(),
    };
    let rows = reply["result"][0]["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), tags(row))).collect()
}

/// A file with nothing but row `log`.
fn first_file() -> Vec<u8> {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.call(client, &transact(1, &crate::shell::insert("log")));
    shell.after_kill(PATH)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Three lives on one file, each cut short in its own way.
    #[test]
    fn nothing_that_was_promised_is_lost(lives in prop::collection::vec(life(), 1..4)) {
        let mut file = first_file();
        let mut before = rows(&mut Shell::start_on(file.clone()));
        // Numbers are never used again, not even after a restart.
        let mut number = 100;
        for (steps, fuse, end) in lives {
            let mut life = Life::start(file, fuse);
            for step in &steps {
                if life.shell.is_dead() {
                    break;
                }
                number += 1;
                life.step(step, number);
            }
            file = life.end(end);
            let found = rows(&mut Shell::start_on(file.clone()));
            life.check(before, &found, end)?;
            before = found;
        }
    }
}

#[test]
fn a_durable_transaction_survives_a_power_failure_right_after_its_answer() {
    let mut life = Life::start(first_file(), None);
    for (number, durable) in [(101, false), (102, true), (103, false)] {
        life.step(&Step::Transact { client: 0, op: Op::Insert, durable }, number);
        life.round();
    }
    assert!(life.sent.iter().all(|sent| sent.committed == Some(true)));
    let lost = Lost { kept: 0, filler: Some(0), old_name: true };
    let file = life.end(End::PowerFailure(lost));
    let found = rows(&mut Shell::start_on(file));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["log", "p101", "p102"]);
}

#[test]
fn a_database_is_closed_only_with_everything_written_that_is_answered() {
    let mut shell = Shell::start();
    let client = shell.connect();
    shell.call(client, r#"{"id":0,"method":"set_db_change_aware","params":[true]}"#);
    shell.received(client);
    shell.send(client, &transact(1, &crate::shell::insert("p1")));
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), Some(Ok(String::new())));
    assert!(shell.received(client)[0].starts_with(r#"{"id":1,"result":[{"uuid""#));
    assert!(rows(&mut Shell::start_on(shell.after_kill(PATH))).contains_key("p1"));
}

#[test]
fn a_compaction_keeps_nothing_that_the_full_disk_refuses() {
    let mut shell = Shell::start();
    shell.slow_helper = true;
    let client = shell.connect();
    shell.send(client, &transact(1, &crate::shell::insert("p1")));
    let (id, name) = (CommandId(1), "ovsdb-server/compact".to_owned());
    shell.event(Event::Command { id, name, args: vec![] });
    shell.disk_error = Some("No space left on device");
    shell.round();
    assert!(shell.received(client)[0].contains("I/O error"));
    shell.disk_error = None;
    shell.command("ovsdb-server/compact", &[]);
    shell.helper_is_done();
    shell.settle();
    assert_eq!(rows(&mut Shell::start_on(shell.after_kill(PATH))), Rows::new());
}

#[test]
fn a_wait_is_looked_at_again_when_the_disk_was_full() {
    let mut shell = Shell::start();
    let (writer, waiter) = (shell.connect(), shell.connect());
    shell.disk_error = Some("No space left on device");
    shell.send(writer, &transact(1, &crate::shell::insert("p1")));
    // It waits because of a row that the full disk then takes back.
    let gone = r#"{"op":"wait","table":"Port","where":[["name","==","p1"]],"columns":["name"],"until":"==","rows":[]}"#;
    shell.send(waiter, &transact(2, gone));
    shell.settle();
    assert!(shell.received(writer)[0].contains("I/O error"));
    assert_eq!(shell.received(waiter), [r#"{"id":2,"result":[{}],"error":null}"#]);
}

/// What comes while the copy is written is appended to it by the helper, but for the last megabytes.
#[test]
fn a_compaction_under_load_leaves_little_for_its_last_step() {
    let mut shell = Shell::start();
    shell.slow_helper = true;
    let client = shell.connect();
    let mut inserted = 0;
    let mut insert_megabytes = |shell: &mut Shell, count| {
        for _ in 0..count {
            inserted += 1;
            let name = format!("{inserted}{}", "x".repeat(1 << 20));
            shell.call(client, &transact(inserted, &crate::shell::insert(&name)));
        }
    };
    insert_megabytes(&mut shell, 1);
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    insert_megabytes(&mut shell, 5);
    insert_megabytes(&mut shell, 7);
    for (extended, more) in [(1, 5), (2, 2)] {
        shell.helper_is_done();
        shell.settle();
        assert_eq!((shell.copies_extended, shell.replies.len()), (extended, 0));
        insert_megabytes(&mut shell, more);
    }
    // A crash leaves the file that was there.
    assert_eq!(rows(&mut Shell::start_on(shell.after_kill(PATH))).len(), 20);
    shell.helper_is_done();
    shell.settle();
    // As much as before may come for ever.
    insert_megabytes(&mut shell, 3);
    shell.helper_is_done();
    shell.settle();
    assert_eq!((shell.copies_extended, shell.replies.len()), (3, 1));
    insert_megabytes(&mut shell, 1);
    assert_eq!(rows(&mut Shell::start_on(shell.after_kill(PATH))).len(), 24);
    // One that cannot be extended is given up.
    assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), None);
    insert_megabytes(&mut shell, 3);
    shell.disk_error = Some("No space left on device");
    shell.helper_is_done();
    shell.settle();
    shell.helper_is_done();
    shell.settle();
    let failed = shell.replies.values().filter(|reply| reply.is_err()).count();
    assert_eq!((shell.replies.len(), failed), (2, 1));
    shell.disk_error = None;
    insert_megabytes(&mut shell, 1);
    assert_eq!(rows(&mut Shell::start_on(shell.after_kill(PATH))).len(), 28);
}
