//! Snapshots of a database that other threads search, and make databases of, while transactions
//! commit, fail and are reverted.
//!
//! A reader that met a change would see it in a reply. `cargo xtask miri` and `cargo xtask tsan`
//! run the same scenarios and see every access that nothing orders.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use weir_data::{Schema, Snapshot, TableId, UuidSource};
use weir_engine::{Database, Done, Env, Outcome, execute, read};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"db","tables":{
  "Switch":{"columns":{
    "name":{"type":"string"},
    "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}},
    "indexes":[["name"]],"isRoot":true},
  "Port":{"columns":{
    "name":{"type":"string"},
    "peers":{"type":{"key":{"type":"uuid","refTable":"Port","refType":"weak"},"min":0,"max":"unlimited"}},
    "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}},
    "indexes":[["name"]]}}}"#;
const TABLES: [TableId; 2] = [TableId(0), TableId(1)];

const SELECT: &str = r#"[{"op":"select","table":"Switch","where":[]},
  {"op":"select","table":"Port","where":[]},
  {"op":"select","table":"Port","where":[["name","==","p3"]],"columns":["ids","peers"]}]"#;

/// An interpreter takes a thousand times as long.
const fn size(under_miri: usize, otherwise: usize) -> usize {
    if cfg!(miri) { under_miri } else { otherwise }
}

/// So many that they lie in more than one page, and their set in more than one chunk.
const PORTS: usize = size(8, 600);
/// In one transaction.
const TAGS: usize = size(10, 400);
const SNAPSHOTS: usize = size(2, 10);
const TRANSACTIONS: usize = size(4, 60);
const READERS: u64 = 2;
/// Snapshots that wait for a reader, at most: the writer goes on while they are read.
const WAITING_MAX: usize = 4;

/// A snapshot, and the reply of [`SELECT`] when it was taken.
struct Taken {
    snapshot: Snapshot,
    reply: Arc<Vec<u8>>,
}

fn run(operations: &str, run: impl FnOnce(&[Text<'_>]) -> Outcome) -> Done {
    let array = validate(operations.as_bytes()).expect("operations");
    let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
    match run(&operations) {
        Outcome::Done(done) => done,
        Outcome::Wait { .. } | Outcome::TooLong { .. } => panic!("it waits"),
    }
}

/// A database that random transactions change.
struct Writer {
    db: Database,
    uuids: UuidSource,
    random: UuidSource,
}

impl Writer {
    fn new(db: Database, seed: u64) -> Self {
        let (uuids, random) = (UuidSource::new([seed, 1, 2, 3]), UuidSource::new([seed, 4, 5, 6]));
        Self { db, uuids, random }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() >> 8) as usize % n
    }

    fn transact(&mut self, operations: &str) -> Done {
        run(operations, |operations| {
            execute(&mut self.db, operations, &mut Env::new(&mut self.uuids))
        })
    }

    /// A transaction of a random kind; some change nothing.
    fn step(&mut self) {
        let n = self.below(2 * PORTS);
        match self.below(4) {
            // The second port of a name breaks the index, after everything else was done.
            0 => drop(self.transact(&format!("[{}]", add_port(n)))),
            1 => self.let_go(n),
            2 => self.tag(n),
            _ => self.forth_and_back(n),
        }
    }

    /// A port that nothing holds goes, and with it the weak references to it.
    fn let_go(&mut self, n: usize) {
        let find = format!(
            r#"[{{"op":"select","table":"Port","where":[["name","==","p{n}"]],"columns":["_uuid"]}}]"#
        );
        let reply = String::from_utf8(self.transact(&find).reply).expect("UTF-8");
        if let Some(uuid) = reply.split('"').find(|word| word.len() == 36) {
            let value = format!(r#"["uuid","{uuid}"]"#);
            let operation = mutate("Switch", "s", "ports", "delete", &value);
            assert!(self.transact(&format!("[{operation}]")).delta.is_some());
        }
    }

    /// The set of tags grows or shrinks.
    fn tag(&mut self, n: usize) {
        let tags = (n..n + TAGS).map(|n| format!(r#""the tag that has the number {n}""#));
        let tags = format!(r#"["set",[{}]]"#, tags.collect::<Vec<_>>().join(","));
        let what = if n.is_multiple_of(3) { "delete" } else { "insert" };
        let operation = mutate("Switch", "s", "tags", what, &tags);
        self.transact(&format!("[{operation}]"));
    }

    /// A transaction that is aborted, and the same one committed and reverted.
    fn forth_and_back(&mut self, n: usize) {
        let ids = r#"["map",[["k","a value that is not short"]]]"#;
        let ids = mutate("Port", &format!("p{n}"), "ids", "insert", ids);
        let new = r#"{"op":"insert","table":"Switch","row":{"name":"new"}}"#;
        let operations = format!("{ids},{new},{}", add_port(4 * PORTS));
        let before = self.db.state_hash();
        let aborted = self.transact(&format!(r#"[{operations},{{"op":"abort"}}]"#));
        assert_eq!((aborted.delta, self.db.state_hash()), (None, before));
        let delta = self.transact(&format!("[{operations}]")).delta.expect("a change");
        self.db.revert(&delta);
        assert_eq!(self.db.state_hash(), before);
    }

    fn take(&self) -> Taken {
        let snapshot = self.db.snapshot();
        let reply = Arc::new(reply(&snapshot));
        Taken { snapshot, reply }
    }
}

/// A port that the switch holds, and that the one before it has as a peer.
fn add_port(n: usize) -> String {
    let row = format!(r#"{{"name":"p{n}","ids":["map",[["vif","the interface of port {n}"]]]}}"#);
    let named = r#"["named-uuid","p"]"#;
    let holds = mutate("Switch", "s", "ports", "insert", named);
    let peers = mutate("Port", &format!("p{}", n.wrapping_sub(1)), "peers", "insert", named);
    format!(r#"{{"op":"insert","table":"Port","uuid-name":"p","row":{row}}},{holds},{peers}"#)
}

fn mutate(table: &str, name: &str, column: &str, what: &str, value: &str) -> String {
    format!(
        r#"{{"op":"mutate","table":"{table}","where":[["name","==","{name}"]],"mutations":[["{column}","{what}",{value}]]}}"#
    )
}

fn reply(snapshot: &Snapshot) -> Vec<u8> {
    let mut uuids = UuidSource::new([9; 4]);
    run(SELECT, |operations| read(snapshot, operations, &mut Env::new(&mut uuids), 9)).reply
}

/// Searches what it is sent, and makes a database of it that goes another way.
fn search(taken: &Receiver<Taken>, seed: u64) -> usize {
    let (mut n_read, mut last) = (0, None);
    for Taken { snapshot, reply: expected } in taken {
        assert!(reply(&snapshot) == *expected, "a snapshot has changed");
        let store = snapshot.to_store(&TABLES, seed);
        let mut other = Writer::new(Database::from_store(store, seed).expect("a database"), seed);
        (0..TRANSACTIONS / 4).for_each(|_| other.step());
        assert!(reply(&snapshot) == *expected, "a copy has changed its snapshot");
        // The one before goes only now, after the writer has gone on.
        drop(last.replace((snapshot, other)));
        n_read += 1;
    }
    n_read
}

#[test]
fn a_snapshot_answers_as_it_did_while_transactions_come_and_go() {
    let schema = Schema::parse_bytes(SCHEMA).expect("the schema");
    let mut writer = Writer::new(Database::new(Arc::new(schema), 5), 5);
    writer.transact(r#"[{"op":"insert","table":"Switch","row":{"name":"s"}}]"#);
    for n in 0..PORTS {
        assert!(writer.transact(&format!("[{}]", add_port(n))).delta.is_some());
    }
    thread::scope(|scope| {
        let (senders, readers): (Vec<_>, Vec<_>) = (0..READERS)
            .map(|seed| {
                let (sender, taken) = sync_channel(WAITING_MAX);
                (sender, scope.spawn(move || search(&taken, 100 + seed)))
            })
            .unzip();
        for _ in 0..SNAPSHOTS {
            let Taken { snapshot, reply } = writer.take();
            for sender in &senders {
                let (snapshot, reply) = (snapshot.clone(), Arc::clone(&reply));
                sender.send(Taken { snapshot, reply }).expect("a reader has found a change");
            }
            drop(snapshot);
            (0..TRANSACTIONS).for_each(|_| writer.step());
        }
        drop(senders);
        for reader in readers {
            assert_eq!(reader.join().expect("a reader"), SNAPSHOTS);
        }
    });
}
