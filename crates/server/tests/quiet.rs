//! Clients whose tables never change (`docs/history.md`): they are told the ids of newer states, so
//! that they are resumed however much has changed since they had something to hear.

use crate::chance::Chance;
use crate::replica::Rows;
use crate::shell::{PATH, Shell, transact};
use serde_json::{Value, json};
use weir_data::Schema;
use weir_log::standalone;
use weir_server::Config;
use weir_server::event::{Event, SessionId};

const SCHEMA: &str = r#"{"name":"Net","tables":{
    "Port":{"isRoot":true,"columns":{
        "name":{"type":"string"},
        "text":{"type":"string"},
        "status":{"type":"string","ephemeral":true}}},
    "Quiet":{"isRoot":true,"columns":{"n":{"type":"integer"}}}}}"#;

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

/// What the log of such small a database keeps, and how often within that it grows older.
const BUDGET: usize = 1 << 20;
const QUARTERS: usize = 4;

/// Methods and requests: of clients that hear of nothing, of one that hears of few ports, of one
/// that hears of all.
const CLIENTS: [(&str, &str); 8] = [
    ("monitor_cond_since", r#"{"Quiet":{"columns":["n"]}}"#),
    ("monitor_cond_since", r#"{"Quiet":{"columns":["n"]}}"#),
    ("monitor_cond_since", r#"{"Quiet":{}}"#),
    ("monitor_cond_since", r#"{"Port":{"columns":["text"],"where":[["name","==","none"]]}}"#),
    ("monitor_cond_since", r#"{"Port":{"columns":["name"],"where":[["name","==","p1"]]}}"#),
    ("monitor_cond_since", r#"{"Port":{"columns":["name","text","status"]}}"#),
    ("monitor_cond", r#"{"Quiet":{"columns":["n"]}}"#),
    ("monitor", r#"{"Quiet":{"columns":["n"]}}"#),
];

/// Whether helpers do what takes more than the shortest steps.
fn is_long() -> bool {
    env!("CARGO_CRATE_NAME").ends_with("_long")
}

struct Client {
    method: &'static str,
    requests: Value,
    session: SessionId,
    last_id: String,
    rows: Rows,
    /// Updates that said an id only, since the client knows rows.
    renewals: usize,
}

struct World {
    shell: Shell,
    writer: SessionId,
    clients: Vec<Client>,
    next: u32,
    /// Bytes of changes, about.
    written: usize,
    /// How often a client has come back.
    resumed: usize,
}

impl World {
    /// A server of a file that has been compacted: it is known how much is kept.
    fn new() -> Self {
        Self::on(|shell| {
            assert_eq!(shell.command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
        })
    }

    fn on(prepare: impl FnOnce(&mut Shell)) -> Self {
        let mut file = Vec::new();
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
        standalone::write_schema(&mut file, &schema);
        let mut shell = Shell::start_on(file);
        prepare(&mut shell);
        let writer = shell.connect();
        let mut world =
            Self { shell, writer, clients: Vec::new(), next: 0, written: 0, resumed: 0 };
        for (method, requests) in CLIENTS {
            let session = world.shell.connect();
            world.clients.push(Client {
                method,
                requests: serde_json::from_str(requests).expect("JSON"),
                session,
                last_id: ZERO.into(),
                rows: Rows::new(),
                renewals: 0,
            });
            world.begin(world.clients.len() - 1);
        }
        world
    }

    fn begin(&mut self, at: usize) {
        let client = &self.clients[at];
        let mut params = vec![json!("Net"), json!("mon"), client.requests.clone()];
        if client.method == "monitor_cond_since" {
            params.push(json!(client.last_id));
        }
        let request = json!({"id": "first", "method": client.method, "params": params});
        self.shell.send(client.session, &request.to_string());
        self.settle();
    }

    /// Ports of these names get a text of this length.
    fn write(&mut self, name: &str, len: usize) {
        self.next += 1;
        let text = "x".repeat(len);
        let operation = format!(
            r#"{{"op":"delete","table":"Port","where":[["name","==","{name}"]]}},
               {{"op":"insert","table":"Port",
                 "row":{{"name":"{name}","text":"{text}","status":"new"}}}}"#
        );
        // The log has the row that goes, too.
        self.written += 2 * len;
        self.shell.send(self.writer, &transact(self.next, &operation));
    }

    fn settle(&mut self) {
        self.shell.settle();
        self.shell.advance_ms(5);
        self.shell.settle();
        self.shell.whole_messages(self.writer);
        for at in 0..self.clients.len() {
            for message in self.shell.whole_messages(self.clients[at].session) {
                self.take(at, &serde_json::from_str(&message).expect("JSON"));
            }
        }
    }

    fn take(&mut self, at: usize, message: &Value) {
        let client = &mut self.clients[at];
        if client.method != "monitor_cond_since" {
            assert_eq!(message["id"], "first", "there is nothing else to hear: {message}");
            return;
        }
        let (id, updates) = if message["method"] == "update3" {
            (&message["params"][1], &message["params"][2])
        } else {
            assert_eq!(message["id"], "first", "{message}");
            let is_new = client.last_id == ZERO;
            assert_eq!(message["result"][0], !is_new, "{} {}", client.requests, client.last_id);
            self.resumed += usize::from(!is_new);
            (&message["result"][1], &message["result"][2])
        };
        client.renewals += usize::from(message["id"] != "first" && *updates == json!({}));
        client.last_id = id.as_str().expect("an id").to_owned();
        let told = crate::replica::update(&mut client.rows, updates);
        told.unwrap_or_else(|wrong| panic!("{wrong} in {message}"));
    }

    /// The connection breaks, and the client comes back with what it knows.
    fn come_back(&mut self, at: usize) {
        let session = self.clients[at].session;
        self.shell.stuck.remove(&session);
        self.shell.event(Event::Closed { session, error: None });
        self.clients[at].session = self.shell.connect();
        self.begin(at);
    }

    /// The process is killed, and another one begins on its files.
    fn restart(&mut self) {
        let mut files = self.shell.files.clone();
        let file = files.remove(PATH).expect("the database");
        self.shell = Shell::start_on_files(file, files, Config::default());
        self.writer = self.shell.connect();
    }

    /// What a newcomer is told.
    fn fresh(&mut self, at: usize) -> Rows {
        let newcomer = self.shell.connect();
        let params = json!(["Net", "new", self.clients[at].requests, ZERO]);
        let request = json!({"id": 1, "method": "monitor_cond_since", "params": params});
        let reply: Value =
            serde_json::from_str(&self.shell.call(newcomer, &request.to_string())).expect("JSON");
        let mut rows = Rows::new();
        crate::replica::update(&mut rows, &reply["result"][2]).expect("all rows");
        self.shell.event(Event::Closed { session: newcomer, error: None });
        rows
    }
}

#[test]
fn a_client_that_hears_of_nothing_is_resumed_however_much_has_changed() {
    let mut world = World::new();
    for _ in 0..250 {
        world.write("p0", 10_000);
        world.settle();
    }
    assert!(world.written > 4 * BUDGET);
    let most = QUARTERS / 2 * world.written / BUDGET + 1;
    for at in 0..world.clients.len() {
        let client = &world.clients[at];
        let is_quiet = client.method == "monitor_cond_since" && at < 5;
        let renewals = client.renewals;
        // Of who was told something by helpers it is not noted when.
        let is_by_helpers = client.method == "monitor_cond_since" && is_long();
        let expected = match is_quiet {
            true => most / 2..=most,
            false => 0..=if is_by_helpers { most } else { 0 },
        };
        assert!(expected.contains(&renewals), "{}: {renewals} of {most}", client.requests);
        world.come_back(at);
    }
    assert_eq!(world.resumed, 6);
}

#[test]
fn one_change_that_is_more_than_all_that_is_kept_leaves_nobody_behind() {
    let mut world = World::new();
    world.write("p0", 2 * BUDGET);
    world.settle();
    (0..world.clients.len()).for_each(|at| world.come_back(at));
    assert_eq!(world.resumed, 6);
}

#[test]
fn a_restart_that_keeps_less_leaves_nobody_behind() {
    // As long as the file has only a schema, nobody knows how much the next process will keep.
    let mut world = World::on(|_| {});
    for _ in 0..250 {
        world.write("p0", 10_000);
        world.settle();
    }
    world.restart();
    for at in [0, 1, 3, 4] {
        world.clients[at].session = world.shell.connect();
        world.begin(at);
    }
    assert_eq!(world.resumed, 4);
}

#[test]
fn a_smaller_budget_leaves_nobody_behind() {
    let mut world = World::new();
    // The file's snapshot is long, and with it what is kept; then the rows are gone.
    world.write("long", 6 * BUDGET);
    world.settle();
    assert_eq!(world.shell.command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
    world.write("long", 1);
    for _ in 0..400 {
        world.write("p0", 5000);
        world.settle();
    }
    assert_eq!(world.shell.command("ovsdb-server/compact", &["Net"]), Some(Ok(String::new())));
    world.settle();
    (0..world.clients.len()).for_each(|at| world.come_back(at));
    assert_eq!(world.resumed, 6);
}

#[test]
fn whoever_is_stuck_is_told_the_id_behind_what_came_before() {
    let mut world = World::new();
    let all = 5;
    world.settle();
    for at in [0, 3, all] {
        world.shell.stuck.insert(world.clients[at].session);
    }
    for _ in 0..200 {
        world.write("p0", 10_000);
        world.settle();
    }
    // What is on its way is lost with the connection; what comes behind is not.
    world.shell.stuck.clear();
    world.settle();
    for at in [0, 3, all] {
        world.come_back(at);
        let fresh = world.fresh(at);
        assert_eq!(world.clients[at].rows, fresh);
    }
    assert_eq!(world.resumed, 3);
}

#[test]
fn in_random_lives_whoever_was_told_all_is_resumed() {
    let (mut resumed, mut renewals) = (0, 0);
    for seed in 0..20 {
        println!("seed {seed}");
        let mut chance = Chance::new(seed);
        let mut world = World::new();
        for _ in 0..200 {
            let at = chance.below(6);
            let session = world.clients[at].session;
            match chance.below(20) {
                0 if !world.shell.stuck.remove(&session) => {
                    world.shell.stuck.insert(session);
                }
                1 => {
                    let compacted = world.shell.command("ovsdb-server/compact", &["Net"]);
                    assert_eq!(compacted, Some(Ok(String::new())));
                }
                2 | 3 => {
                    world.shell.stuck.clear();
                    world.settle();
                    world.come_back(at);
                    let fresh = world.fresh(at);
                    let rows = &mut world.clients[at].rows;
                    rows.retain(|_, rows| !rows.is_empty());
                    assert_eq!(*rows, fresh);
                }
                _ => {
                    let len = [10, 1000, 50_000, 300_000][chance.below(4)];
                    let name = *chance.pick(&["p0", "p1", "p2"]);
                    world.write(name, len);
                    if chance.one_in(2) {
                        world.settle();
                    }
                }
            }
        }
        resumed += world.resumed;
        renewals += world.clients.iter().map(|client| client.renewals).sum::<usize>();
    }
    assert!(resumed > 300 && renewals > 300, "{resumed} {renewals}");
}
