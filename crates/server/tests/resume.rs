//! Clients that come back (`docs/decisions/012`): in random lives of a server with restarts,
//! compactions and writers of another kind, a replica that was resumed is always what a fresh one
//! is.

use std::collections::BTreeMap;

use crate::chance::Chance;
use crate::replica::Rows;
use crate::shell::{PATH, Shell, insert, transact};
use serde_json::{Value, json};
use weir_data::Schema;
use weir_log::{record, standalone};
use weir_server::event::{Event, SessionId};
use weir_server::{Config, FileForms};

const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "Port":{"isRoot":true,"indexes":[["name"]],"columns":{
        "name":{"type":"string"},
        "n":{"type":"integer"},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "status":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "items":{"type":{"key":{"type":"uuid","refTable":"Item"},"min":0,"max":"unlimited"}},
        "up":{"type":"boolean","ephemeral":true}}},
    "Item":{"columns":{"n":{"type":"integer"}}}}}"#;

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

/// What clients ask of each table.
const REQUESTS: [&str; 6] = [
    r#"{"Port":{"columns":["name","n","tags","status","items"]},"Item":{"columns":["n"]}}"#,
    r#"{"Port":{"columns":["name","tags"],"where":[["n",">=",3]]}}"#,
    r#"{"Port":{"columns":["status"],"where":[["name","==","p1"],["name","==","p2"]]}}"#,
    r#"{"Port":{"columns":["n"],"where":[["tags","includes","a"]]},"Item":{}}"#,
    r#"{"Port":{}}"#,
    r#"{"Port":{"columns":["n"],"where":[["up","==",true]]}}"#,
];

/// Whether something that no file keeps is asked for: all columns, or `up`.
fn is_volatile(requests: &Value) -> bool {
    let tables = requests.as_object().expect("an object");
    tables.values().any(|table| table.get("columns").is_none() || table["where"][0][0] == "up")
}

/// Other conditions on ports.
const CONDITIONS: [&str; 4] =
    [r#"[["n","<",5]]"#, r#"[["tags","includes","b"]]"#, "[true]", r#"[["name","==","p3"]]"#];

/// A client as the libraries are.
struct Client {
    /// What it asks for, with the conditions that have been answered.
    requests: Value,
    /// The client learns ids from replies, too, as all libraries but that for Python do.
    learns_from_replies: bool,
    session: Option<SessionId>,
    last_id: String,
    rows: Rows,
    /// A request for these conditions has not been answered.
    changing: Option<Value>,
    /// How many servers there were when it knew its last id.
    life: usize,
    /// There was a conversion since.
    is_converted: bool,
}

struct World {
    shell: Shell,
    chance: Chance,
    writer: SessionId,
    clients: Vec<Client>,
    /// How many servers there were.
    life: usize,
    next: u32,
    /// Since the last start: whether the file has been compacted, and was so before.
    is_compacted: bool,
    /// Somebody else has written to the file since this life.
    foreign: usize,
    has_other_items: bool,
    seen: BTreeMap<&'static str, usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut file = Vec::new();
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
        standalone::write_schema(&mut file, &schema);
        let mut shell = Shell::start_on(file);
        let writer = shell.connect();
        let chance = Chance::new(seed);
        let (clients, seen) = (Vec::new(), BTreeMap::new());
        Self {
            shell,
            chance,
            writer,
            clients,
            life: 0,
            next: 1,
            is_compacted: false,
            foreign: 0,
            has_other_items: false,
            seen,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..=39 => self.write(),
            40..=49 => self.shell.round(),
            50..=57 => self.settle(),
            58..=69 => self.come_back(),
            70..=75 => self.leave(),
            76..=80 => self.change_conditions(),
            81..=85 => self.get_stuck(),
            86..=89 => self.begin(),
            90..=93 => self.compact(),
            94..=96 => self.restart(),
            97 => self.convert(),
            98 if self.chance.one_in(4) => self.switch(),
            _ => self.check(),
        }
        self.receive();
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn operation(&mut self) -> String {
        let name = format!("p{}", self.chance.below(8));
        let at = format!(r#""table":"Port","where":[["name","==","{name}"]]"#);
        let (n, tag) = (self.chance.below(9), *self.chance.pick(&["a", "b", "c"]));
        let how = *self.chance.pick(&["insert", "delete"]);
        match self.chance.below(9) {
            0 | 1 => format!(
                r#"{{"op":"delete",{at}}},{{"op":"insert","table":"Port",
                    "row":{{"name":"{name}","n":{n},"tags":"{tag}"}}}}"#
            ),
            2 => format!(r#"{{"op":"delete",{at}}}"#),
            3 => format!(r#"{{"op":"update",{at},"row":{{"n":{n}}}}}"#),
            4 => format!(r#"{{"op":"mutate",{at},"mutations":[["tags","{how}","{tag}"]]}}"#),
            5 => format!(r#"{{"op":"update",{at},"row":{{"status":["map",[["{tag}","{n}"]]]}}}}"#),
            6 => format!(r#"{{"op":"update",{at},"row":{{"up":{}}}}}"#, n > 4),
            7 => format!(
                r#"{{"op":"insert","table":"Item","uuid-name":"i","row":{{"n":{n}}}}},
                   {{"op":"mutate",{at},"mutations":[["items","insert",["named-uuid","i"]]]}}"#
            ),
            _ => format!(r#"{{"op":"update",{at},"row":{{"items":["set",[]],"tags":"{tag}"}}}}"#),
        }
    }

    fn write(&mut self) {
        let id = self.id();
        let operations: Vec<String> =
            (0..1 + self.chance.below(3)).map(|_| self.operation()).collect();
        self.shell.send(self.writer, &transact(id, &operations.join(",")));
    }

    fn begin(&mut self) {
        if self.clients.len() >= 6 {
            let gone = self.clients.remove(0);
            self.close(gone.session);
        }
        let requests = *self.chance.pick(&REQUESTS);
        self.clients.push(Client {
            requests: serde_json::from_str(requests).expect("JSON"),
            learns_from_replies: !self.chance.one_in(3),
            session: None,
            last_id: ZERO.into(),
            rows: Rows::new(),
            changing: None,
            life: self.life,
            is_converted: false,
        });
        let last = self.clients.len() - 1;
        self.connect(last);
    }

    fn connect(&mut self, at: usize) {
        let session = self.shell.connect();
        let client = &mut self.clients[at];
        client.session = Some(session);
        if client.changing.take().is_some() {
            // Nobody knows under which conditions it was told what it was told last.
            (client.last_id, client.rows) = (ZERO.into(), Rows::new());
        }
        if !client.learns_from_replies {
            // The library for Python can be told by that.
            let request = r#"{"id":"server","method":"monitor","params":["_Server","s",{"Database":{"columns":["name"]}}]}"#;
            self.shell.send(session, request);
        }
        let params = json!(["Net", "mon", client.requests, client.last_id]);
        let request = json!({"id": "first", "method": "monitor_cond_since", "params": params});
        self.shell.send(session, &request.to_string());
    }

    fn come_back(&mut self) {
        let away: Vec<usize> =
            (0..self.clients.len()).filter(|at| self.clients[*at].session.is_none()).collect();
        if !away.is_empty() {
            let at = *self.chance.pick(&away);
            self.connect(at);
        }
    }

    fn any(&mut self) -> Option<usize> {
        let here: Vec<usize> =
            (0..self.clients.len()).filter(|at| self.clients[*at].session.is_some()).collect();
        (!here.is_empty()).then(|| *self.chance.pick(&here))
    }

    fn close(&mut self, session: Option<SessionId>) {
        let Some(session) = session else { return };
        self.shell.stuck.remove(&session);
        self.shell.event(Event::Closed { session, error: None });
    }

    fn leave(&mut self) {
        let Some(at) = self.any() else { return };
        self.receive();
        let session = self.clients[at].session.take();
        self.close(session);
    }

    fn change_conditions(&mut self) {
        let Some(at) = self.any().filter(|at| self.clients[*at].changing.is_none()) else { return };
        let condition: Value =
            serde_json::from_str(self.chance.pick::<&str>(&CONDITIONS)).expect("JSON");
        let client = &mut self.clients[at];
        client.changing = Some(condition.clone());
        let change = json!({"Port": [{"where": condition}]});
        let params = json!(["mon", "mon", change]);
        let request = json!({"id": "change", "method": "monitor_cond_change", "params": params});
        self.shell.send(client.session.expect("it is here"), &request.to_string());
    }

    fn get_stuck(&mut self) {
        let Some(at) = self.any() else { return };
        let session = self.clients[at].session.expect("it is here");
        if !self.shell.stuck.remove(&session) {
            self.shell.stuck.insert(session);
        }
    }

    fn compact(&mut self) {
        self.settle();
        if self.shell.command("ovsdb-server/compact", &["Net"]) == Some(Ok(String::new())) {
            self.is_compacted = true;
        }
    }

    /// Items have another column from now on, or no longer; ports stay as they are. Clients that do
    /// not know of such things are disconnected.
    fn convert(&mut self) {
        self.settle();
        self.has_other_items = !self.has_other_items;
        let column = r#""Item":{"columns":{"more":{"type":"integer"},"#;
        let other = SCHEMA.replace(r#""Item":{"columns":{"#, column);
        let schema = if self.has_other_items { &other } else { SCHEMA };
        let request = format!(r#"{{"id":"convert","method":"convert","params":["Net",{schema}]}}"#);
        let reply = self.shell.call(self.writer, &request);
        assert!(reply.contains(r#""result":{}"#), "{reply}");
        for client in &mut self.clients {
            client.session = None;
            client.is_converted = true;
        }
        self.writer = self.shell.connect();
    }

    /// Ids are given no longer, and then again.
    fn switch(&mut self) {
        self.settle();
        let off = self.shell.command("weir/standalone-history", &["off"]);
        assert_eq!(off, Some(Ok(String::new())));
        if self.chance.one_in(2) {
            self.write();
            self.settle();
        }
        let on = self.shell.command("weir/standalone-history", &["on"]);
        assert_eq!(on, Some(Ok(String::new())));
        self.count("switched off and on");
    }

    /// The process is killed, and another one begins on its files.
    fn restart(&mut self) {
        self.receive();
        let mut files = self.shell.files.clone();
        let mut file = files.remove(PATH).expect("the database");
        // What was torn before is cut off with the first append.
        let torn = b"OVSDB JSON 100 torn";
        file.truncate(file.strip_suffix(torn).map_or(file.len(), <[u8]>::len));
        if self.chance.one_in(4) {
            file.extend_from_slice(torn);
        } else if self.chance.one_in(6) {
            record::write_record(&mut file, br#"{"_date":1,"_comment":"by somebody else"}"#);
            self.foreign = self.life + 1;
        }
        files.insert(PATH.to_owned(), file);
        self.shell.files = files;
        self.restart_as(Config::default());
        if std::mem::take(&mut self.is_compacted) {
            self.count("restarted behind a compaction");
        }
    }

    /// Another process begins on the files, with these options.
    fn restart_as(&mut self, config: Config) {
        let mut files = self.shell.files.clone();
        let file = files.remove(PATH).expect("the database");
        self.shell = Shell::start_on_files(file, files, config);
        self.life += 1;
        self.writer = self.shell.connect();
        for client in &mut self.clients {
            client.session = None;
        }
    }

    fn settle(&mut self) {
        self.shell.stuck.clear();
        self.shell.settle();
        self.shell.advance_ms(5);
        self.shell.settle();
        self.receive();
    }

    fn receive(&mut self) {
        for at in 0..self.clients.len() {
            let Some(session) = self.clients[at].session else { continue };
            for message in self.shell.whole_messages(session) {
                let message: Value = serde_json::from_str(&message).expect("JSON");
                self.take(at, &message);
            }
        }
    }

    fn take(&mut self, at: usize, message: &Value) {
        let (life, foreign) = (self.life, self.foreign);
        let client = &mut self.clients[at];
        let mut seen = None;
        if message["method"] == "update3" {
            let params = &message["params"];
            let told = crate::replica::update(&mut client.rows, &params[2]);
            told.unwrap_or_else(|wrong| panic!("{wrong} in {message}"));
            client.last_id = params[1].as_str().expect("an id").to_owned();
            client.life = life;
        } else if message["id"] == "first" {
            assert_eq!(message["error"], Value::Null, "{message}");
            let found = message["result"][0] == true;
            let is_converted = std::mem::take(&mut client.is_converted);
            seen = Some(match (found, client.life == life, is_volatile(&client.requests)) {
                (true, ..) if is_converted => {
                    assert!(client.requests.get("Item").is_none(), "items were converted");
                    "resumed over a conversion"
                }
                (true, true, false) => "resumed",
                (true, true, true) => "resumed with what no file keeps",
                (true, false, false) => "resumed over a restart",
                (true, false, true) => panic!("what no file keeps was resumed over a restart"),
                (false, ..) if client.last_id == ZERO => "new",
                (false, false, true) => "not resumed, for no file keeps it",
                (false, ..) => "not resumed",
            });
            assert!(!found || client.life >= foreign, "resumed in front of a foreign record");
            if !found {
                client.rows.clear();
            }
            let told = crate::replica::update(&mut client.rows, &message["result"][2]);
            told.unwrap_or_else(|wrong| panic!("{wrong} in {message}"));
            if client.learns_from_replies {
                client.last_id = message["result"][1].as_str().expect("an id").to_owned();
                client.life = life;
            }
        } else if message["id"] == "change" {
            let condition = client.changing.take().expect("it was asked for");
            client.requests["Port"]["where"] = condition;
        }
        if let Some(seen) = seen {
            self.count(seen);
        }
    }

    /// Everybody who is here has what a newcomer gets.
    fn check(&mut self) {
        self.settle();
        for at in 0..self.clients.len() {
            if self.clients[at].session.is_none() {
                continue;
            }
            assert!(self.clients[at].changing.is_none(), "all is answered");
            let newcomer = self.shell.connect();
            let params = json!(["Net", "new", self.clients[at].requests, ZERO]);
            let request = json!({"id": 1, "method": "monitor_cond_since", "params": params});
            self.shell.send(newcomer, &request.to_string());
            self.shell.settle();
            let reply = self.shell.whole_messages(newcomer).remove(0);
            let reply: Value = serde_json::from_str(&reply).expect("JSON");
            let mut fresh = Rows::new();
            crate::replica::update(&mut fresh, &reply["result"][2]).expect("all rows");
            fresh.retain(|_, rows| !rows.is_empty());
            let client = &mut self.clients[at];
            client.rows.retain(|_, rows| !rows.is_empty());
            assert_eq!(client.rows, fresh, "{}", client.requests);
            self.close(Some(newcomer));
            self.count("compared");
        }
    }
}

/// A client that learns ids from updates only names an id to a server that gives none, which changes
/// nothing that the file would show. Then there is one again that does.
#[test]
fn an_id_that_was_refused_by_a_server_without_ids_is_refused_ever_after() {
    let insert = r#"{"op":"insert","table":"Port","row":{"name":"p1","tags":"a"}}"#;
    let mutate = r#"{"op":"mutate","table":"Port","where":[],"mutations":[["tags","insert","b"]]}"#;
    for is_switched in [true, false] {
        let mut world = World::new(1);
        world.begin();
        world.clients[0].requests = serde_json::from_str(REQUESTS[0]).expect("JSON");
        world.clients[0].learns_from_replies = false;
        world.leave();
        world.connect(0);
        world.shell.call(world.writer, &transact(1, insert));
        world.settle();
        assert_ne!(world.clients[0].last_id, ZERO);
        world.leave();
        world.shell.call(world.writer, &transact(2, mutate));
        if is_switched {
            let off = world.shell.command("weir/standalone-history", &["off"]);
            assert_eq!(off, Some(Ok(String::new())));
        } else {
            let files = FileForms { no_history: true, ..FileForms::default() };
            world.restart_as(Config { files, ..Config::default() });
        }
        world.connect(0);
        world.settle();
        world.check();
        world.leave();
        world.restart_as(Config::default());
        world.connect(0);
        world.check();
        assert_eq!(world.seen.get("compared"), Some(&2));
    }
}

#[test]
fn a_resumed_replica_is_what_a_fresh_one_is() {
    let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
    let lives = std::env::var("WEIR_LIVES").map_or(150, |lives| lives.parse().expect("a number"));
    let first = std::env::var("WEIR_LIVES_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + lives {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..250 {
            world.step();
        }
        (0..world.clients.len()).for_each(|_| world.come_back());
        world.check();
        for (what, count) in world.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    for (what, least) in [
        ("compared", 1500),
        ("resumed", 150),
        ("resumed with what no file keeps", 200),
        ("resumed over a restart", 300),
        ("resumed over a conversion", 60),
        ("not resumed, for no file keeps it", 200),
        ("not resumed", 200),
        ("restarted behind a compaction", 200),
        ("switched off and on", 50),
    ] {
        let count = seen.get(what).copied().unwrap_or(0);
        assert!(count >= least, "{what}: only {count}: {seen:?}");
    }
}

/// What others who came back to the same state had missed then is not what is missed later, though
/// nobody can say how many transactions the tables have seen while a helper has them.
#[test]
fn who_comes_back_while_a_helper_has_the_tables_is_told_what_was_missed_since() {
    let mut file = Vec::new();
    let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
    standalone::write_schema(&mut file, &schema);
    let mut shell = Shell::start_on(file);
    let come = |since: &str| {
        format!(
            r#"{{"id":1,"method":"monitor_cond_since","params":["Net","m",{},"{since}"]}}"#,
            REQUESTS[0]
        )
    };
    let answer = |text: &str| -> Value { serde_json::from_str(text).expect("an answer") };
    let add = |name: &str| {
        let row = json!({"op": "insert", "table": "Port", "row": {"name": name}});
        transact(2, &row.to_string())
    };
    let first = shell.connect();
    shell.call(first, &come(ZERO));
    shell.call(first, &add("before"));
    let second = shell.connect();
    let known = answer(&shell.call(second, &come(ZERO)))["result"][1].clone();
    let known = known.as_str().expect("an id");

    // Another process on the same file: nothing has happened there yet.
    let mut files = shell.files.clone();
    let file = files.remove(PATH).expect("the database");
    let mut shell = Shell::start_on_files(file, files, Config::default());
    let early = shell.connect();
    assert_eq!(answer(&shell.call(early, &come(known)))["result"], json!([true, known, {}]));
    let writer = shell.connect();
    shell.call(writer, &add("after"));
    (shell.slow_work, _) = (true, shell.server.set_step_cost_max(0));
    shell.send(writer, &add("with a helper"));
    shell.settle();
    assert!(shell.sent_out.iter().any(|work| work.starts_with("Write")), "{:?}", shell.sent_out);
    let late = shell.connect();
    shell.send(late, &come(known));
    shell.settle();
    while !shell.work.is_empty() {
        shell.do_work(0);
        shell.settle();
    }
    let told = shell.received(late).concat();
    assert!(told.contains(r#"{"insert":{"name":"after"}}"#), "{told}");
}

/// The library for Go reads nothing more if an update comes between its requests as it connects; that for Python
/// learns the id from updates only.
#[test]
fn whose_state_is_not_known_is_told_another_one_when_it_may_read_that() {
    const UNKNOWN: &str = "12345678-1234-4234-8234-123456789abc";
    let server_db = r#"{"id":"s","method":"METHOD","params":["_Server","s",{"Database":{"columns":["name"]}}]}"#;
    let since = format!(
        r#"{{"id":"m","method":"monitor_cond_since","params":["Net","m",{{"Port":{{"columns":["name"]}}}},"{UNKNOWN}"]}}"#
    );
    let mut shell = Shell::start();
    let writer = shell.connect();
    shell.call(writer, &transact(1, &insert("p")));
    let ids = |messages: &[String]| -> Vec<String> {
        let id = |message: &String| {
            let message: Value = serde_json::from_str(message).expect("JSON");
            let update = message["method"] == "update3";
            update.then(|| format!("{} {}", message["params"][1], message["params"][2]))
        };
        messages.iter().filter_map(id).collect()
    };
    for (is_python, method) in [(true, "monitor"), (false, "monitor_cond")] {
        let client = shell.connect();
        if is_python {
            shell.send(client, &server_db.replace("METHOD", method));
        }
        shell.send(client, &since);
        shell.settle();
        if !is_python {
            shell.send(client, &server_db.replace("METHOD", method));
            shell.settle();
        }
        shell.pass_ms(1500);
        let messages = shell.received(client);
        let replies: Vec<Value> = messages
            .iter()
            .map(|message| serde_json::from_str(message).expect("JSON"))
            .filter(|message: &Value| !message["id"].is_null())
            .collect();
        assert_eq!(replies.len(), 2, "{messages:?}");
        let reply = replies.iter().find(|reply| reply["id"] == "m").expect("it was asked for");
        assert_eq!(reply["result"][0], false);
        let expected = vec![format!("{} {{}}", reply["result"][1])];
        assert_eq!(ids(&messages), if is_python { expected.clone() } else { vec![] });
        shell.pass_ms(1000);
        let later = ids(&shell.received(client));
        assert_eq!(later, if is_python { vec![] } else { expected });
    }
}
