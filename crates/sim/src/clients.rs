//! Clients: those that write and read through one server after the other, and those that watch.

use serde_json::{Value, json};
use weir_server::event::{Event, SessionId};
use weir_upstream::Input;

use crate::checks::{COUNTER, Kind, Known, Process, REGISTERS, Replica, must, register};
use crate::items::{self, OwnItems, items_in};
use crate::replica::Following;
use crate::sessions::{Session, is_not_served};
use crate::tempo::Tempo;
use crate::world::{Due, World};

/// Who has no answer for so long gives up, in microseconds.
pub(crate) const PATIENCE_US: u64 = 8_000_000;

/// Zeros: no state.
const NONE: &str = "00000000-0000-0000-0000-000000000000";

/// A row that is to be written once, under an id that its client chose.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    name: String,
    id: String,
    since: String,
    /// The answer did not come: it is to be asked what has come of it.
    is_lost: bool,
}

impl Chosen {
    fn told(&self) -> String {
        format!("{} as {} since {}", self.name, &self.id[..8], &self.since[..8])
    }
}

/// What a client waits for the answer to.
#[derive(Clone, Debug)]
enum Asked {
    /// Whether the first row is there, or is now.
    Counter,
    Insert(String),
    State,
    Chosen(Chosen),
    Outcome(Chosen),
    Sync(Known),
    /// The row that counts the others, and these rows.
    Count(Known, Vec<String>),
    /// All rows.
    Read(Known),
    /// A register's number, for one that nobody else writes there; whether the process has shown that it has
    /// the registers.
    Swap(usize, u64, bool),
    /// A register's number, which was asked for at this time.
    Register(usize, u64),
    /// An item of this name.
    Item(String),
    /// Deletes an item, of this name and id; whether the process has shown that it has rows.
    Delete((String, String), bool),
    /// All items.
    Items(Known),
    Convert,
    Monitor,
}

/// A client.
pub(crate) struct Client {
    pub(crate) number: usize,
    /// The client watches, and does nothing else.
    pub(crate) watches: bool,
    /// What leads its dialogue, if it watches as a replica does.
    pub(crate) following: Option<Box<Following>>,
    /// The client's session: with which process.
    pub(crate) session: Option<Session>,
    asked: Option<(Asked, u64)>,
    requests: u64,
    rows: u64,
    items: OwnItems,
    /// A row whose fate it wants to know.
    chosen: Option<Chosen>,
    /// The counter is there.
    has_counter: bool,
    /// What a watcher has, and as of which state.
    pub(crate) replica: Replica,
    state: String,
}

impl Client {
    pub(crate) fn new(number: usize, watches: bool) -> Self {
        Self {
            number,
            watches,
            following: None,
            session: None,
            asked: None,
            requests: 0,
            rows: 0,
            items: OwnItems::default(),
            chosen: None,
            has_counter: false,
            replica: Replica::default(),
            state: NONE.to_owned(),
        }
    }

    /// One that watches as a replica does.
    pub(crate) fn replica(number: usize) -> Self {
        Self { following: Some(Box::new(Following::new())), ..Self::new(number, true) }
    }

    /// The state that a watcher's rows are of.
    pub(crate) fn state(&self) -> &str {
        &self.state
    }

    /// Whether it knows that there is a counter.
    pub(crate) fn has_counter(&self) -> bool {
        self.has_counter
    }

    /// Whether it has asked for a conversion.
    pub(crate) fn converts(&self) -> bool {
        matches!(self.asked, Some((Asked::Convert, _)))
    }

    /// The answer will not come.
    fn lose(&mut self) -> Option<(Asked, u64)> {
        self.session = None;
        self.asked.take()
    }
}

/// A schema; the second one has another column, the third one another table.
pub(crate) fn schema(version: &str) -> Value {
    let mut schema = json!({"name": "Sim", "version": version, "tables": {"T": {"isRoot": true,
        "columns": {"name": {"type": "string"}, "n": {"type": "integer"}}}}});
    for (name, table) in items::tables() {
        schema["tables"][name] = table;
    }
    match version {
        "1.0.1" => schema["tables"]["T"]["columns"]["x"] = json!({"type": "boolean"}),
        "1.0.2" => schema["tables"]["U"] = json!({"columns": {"name": {"type": "string"}}}),
        _ => {}
    }
    schema
}

pub(crate) fn count(name: &str) -> [Value; 2] {
    let insert = json!({"op": "insert", "table": "T", "row": {"name": name}});
    let one_more = json!({"op": "mutate", "table": "T", "where": [["name", "==", COUNTER]],
        "mutations": [["n", "+=", 1]]});
    [insert, one_more]
}

/// A `wait` that is true already: what has one is tried where it was asked.
fn wait() -> Value {
    json!({"op": "wait", "timeout": 5000, "table": "T", "columns": ["name"],
        "where": [["name", "==", COUNTER]], "until": "==", "rows": [{"name": COUNTER}]})
}

/// The rows that are there before all others, unless they are there already.
fn first_rows() -> Value {
    let insert = |name: &str| json!({"op": "insert", "table": "T", "row": {"name": name}});
    let none = json!({"op": "wait", "timeout": 0, "table": "T", "columns": ["name"],
        "where": [["name", "==", COUNTER]], "until": "==", "rows": []});
    let mut params = vec![json!("Sim"), none, insert(COUNTER), items::insert_list()];
    params.extend((0..REGISTERS).map(|number| insert(&register(number))));
    Value::Array(params)
}

/// What reads a register's number.
fn read_register(number: usize) -> Value {
    json!({"op": "select", "table": "T", "where": [["name", "==", register(number)]],
        "columns": ["n"]})
}

/// What reads a register's number and writes another one.
fn swap(number: usize, new: u64) -> Value {
    let write = json!({"op": "update", "table": "T", "where": [["name", "==", register(number)]],
        "row": {"n": new}});
    json!(["Sim", read_register(number), write])
}

fn select(columns: &[&str]) -> Value {
    json!({"op": "select", "table": "T", "where": [], "columns": columns})
}

impl World {
    /// A client has thought, or has waited long enough.
    pub(crate) fn client_goes_on(&mut self, number: usize) {
        let tempo = self.tempo(number);
        let pause_us = 1 + self.rng.below(tempo.pause_us()) as u64;
        self.due(self.now_us + pause_us, 0, Due::Client(number));
        let now_us = self.now_us;
        let tries = self.clients[number].session.map_or(0, |(n, ..)| self.tries_at(n));
        let tries = (tries, self.tries_of_writers());
        let client = &mut self.clients[number];
        if client.following.is_some() {
            return self.replica_goes_on(number);
        }
        if !client.watches && !self.is_over {
            let asked_us = client.asked.as_ref().map(|(_, asked_us)| *asked_us);
            let who = match &client.asked {
                Some((asked, _)) => format!("client {number}, who asks for {asked:?},"),
                None => format!("client {number}"),
            };
            must("liveness", self.checks.liveness.looked(now_us, &who, asked_us, tries));
        }
        if let Some((_, since_us)) = &client.asked {
            // Who asks behind the faults waits, so that it is seen when nothing comes.
            let is_patient = client.watches || self.is_calm || since_us + PATIENCE_US > now_us;
            if !is_patient && let Some(session) = client.session {
                self.hang_up(session);
            }
            return;
        }
        match self.clients[number].session {
            _ if self.is_over && !self.clients[number].watches => {}
            _ if tempo == Tempo::Quiet => {}
            None => self.connect_client(number),
            Some(_) if self.clients[number].watches => self.move_watcher(number),
            Some(_) => self.next_request(number),
        }
    }

    /// How fast a client asks now. Who watches asks for nothing, and moves as often as ever; behind faults
    /// somebody always asks, so that it is seen that all goes on.
    fn tempo(&self, number: usize) -> Tempo {
        if self.clients[number].watches {
            return Tempo::Steady;
        }
        self.tempo_of_writers()
    }

    pub(crate) fn tempo_of_writers(&self) -> Tempo {
        if !self.tempo_changes {
            return Tempo::Steady;
        }
        match Tempo::at(self.seed, self.now_us) {
            Tempo::Quiet if self.is_calm => Tempo::Leisurely,
            tempo => tempo,
        }
    }

    fn connect_client(&mut self, number: usize) {
        self.clients[number].session = self.open_session();
        if self.clients[number].session.is_some() && self.clients[number].watches {
            let state = self.clients[number].state.clone();
            let tables = items::watched(json!({"T": [{"columns": ["name", "n"]}]}));
            let params = json!(["Sim", "m", tables, state]);
            self.ask(number, Asked::Monitor, "monitor_cond_since", &params);
        }
    }

    /// A watcher goes to another server now and then.
    pub(crate) fn move_watcher(&mut self, number: usize) {
        if self.is_calm || !self.rng.chance(2) {
            return;
        }
        if let Some(session) = self.clients[number].session {
            self.hang_up(session);
        }
    }

    fn next_request(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let process = client.session.map(|(n, life, _)| (n, life)).expect("it is connected");
        if let Some(chosen) = client.chosen.clone() {
            if chosen.is_lost && self.rng.chance(70) {
                let params = json!(["Sim", chosen.id, chosen.since]);
                return self.ask(number, Asked::Outcome(chosen), "weir_outcome", &params);
            }
            return self.send_chosen(number, chosen);
        }
        if !client.has_counter {
            if number == 0 {
                return self.ask(number, Asked::Counter, "transact", &first_rows());
            }
            let params = json!(["Sim", select(&["name", "n"])]);
            return self.ask(number, Asked::Counter, "transact", &params);
        }
        if self.rng.below(10_000) < self.faults.convert {
            // Another schema, or the one that is there already.
            let version = format!("1.0.{}", self.rng.below(3));
            let params = json!(["Sim", schema(&version)]);
            return self.ask(number, Asked::Convert, "convert", &params);
        }
        let client = &mut self.clients[number];
        match self.rng.below(14) {
            12.. => self.write_item(number, process),
            10.. => {
                client.rows += 1;
                let new = client.rows * 100 + number as u64;
                let of = self.rng.below(REGISTERS);
                let has_rows = self.checks.has_rows(process);
                self.ask(number, Asked::Swap(of, new, has_rows), "transact", &swap(of, new));
            }
            0..4 => {
                client.rows += 1;
                let name = format!("row {number}-{}", client.rows);
                let mut params = vec![json!("Sim")];
                if self.rng.chance(20) {
                    params.push(wait());
                }
                params.extend(count(&name));
                self.ask(number, Asked::Insert(name), "transact", &Value::Array(params));
            }
            4..7 => self.ask(number, Asked::State, "weir_transact", &json!(["Sim", {}])),
            7 => {
                let known = self.checks.known(process, true);
                self.ask(number, Asked::Sync(known), "weir_sync", &json!(["Sim", 60_000]));
            }
            _ => self.read(number, process, self.checks.known(process, false)),
        }
    }

    /// Deletes an item that the client has inserted, or inserts one.
    fn write_item(&mut self, number: usize, process: Process) {
        let client = &mut self.clients[number];
        if let Some(item) = client.items.pick(&mut self.rng) {
            self.checks.deleted.asked(&item.0);
            let params = items::delete_item(&item, self.rng.chance(50));
            let has_rows = self.checks.has_rows(process);
            return self.ask(number, Asked::Delete(item, has_rows), "transact", &params);
        }
        client.rows += 1;
        let name = format!("item {number}-{}", client.rows);
        let params = items::insert_item(&name);
        self.ask(number, Asked::Item(name), "transact", &params);
    }

    /// Reads everything now and then, for that costs much, and else how much there is, and what was told last.
    fn read(&mut self, number: usize, process: Process, known: Known) {
        if self.rng.chance(10) {
            let all = json!(["Sim", select(&["_uuid", "name", "n"])]);
            return self.ask(number, Asked::Read(known), "transact", &all);
        }
        if self.rng.chance(20) {
            let params = items::read_items();
            return self.ask(number, Asked::Items(known), "transact", &params);
        }
        let last = self.checks.last(process, known);
        let of = |name: &str| {
            let is_it = json!([["name", "==", name]]);
            json!({"op": "select", "table": "T", "where": is_it, "columns": ["n"]})
        };
        let mut params = vec![json!("Sim"), of(COUNTER)];
        params.extend(last.iter().map(|name| of(name)));
        self.ask(number, Asked::Count(known, last), "transact", &Value::Array(params));
    }

    fn send_chosen(&mut self, number: usize, chosen: Chosen) {
        let options = json!({"id": chosen.id, "since": chosen.since});
        let mut params = vec![json!("Sim"), options];
        if self.rng.chance(20) {
            params.push(wait());
        }
        params.extend(count(&chosen.name));
        self.ask(number, Asked::Chosen(chosen), "weir_transact", &Value::Array(params));
    }

    fn ask(&mut self, number: usize, asked: Asked, method: &str, params: &Value) {
        let now_us = self.now_us;
        let client = &mut self.clients[number];
        client.requests += 1;
        let id = client.requests;
        client.asked = Some((asked, now_us));
        let session = client.session.expect("it is connected");
        let at = now_us + 20 + self.rng.below(200) as u64;
        self.send_request(at, session, (id, method, params));
    }

    pub(crate) fn client_of(&self, session: SessionId) -> Option<usize> {
        let is_it = |client: &Client| client.session.is_some_and(|(_, _, own)| own == session);
        self.clients.iter().position(is_it)
    }

    /// A session has ended.
    pub(crate) fn client_ended(&mut self, session: SessionId) {
        let Some(number) = self.client_of(session) else { return };
        if self.clients[number].following.is_some() {
            self.clients[number].session = None;
            return self.replica_input(number, Input::Down(None));
        }
        if let Some((asked, asked_us)) = self.clients[number].lose() {
            self.answer_lost(number, asked, asked_us);
        }
    }

    /// Nobody has said what has become of something.
    fn answer_lost(&mut self, number: usize, asked: Asked, asked_us: u64) {
        match asked {
            Asked::Insert(_) | Asked::Item(_) | Asked::Delete(..) => self.checks.unknown(),
            Asked::Swap(of, new, _) => {
                self.checks.registers[of].push(asked_us, None, Kind::Swap { new, old: None });
            }
            Asked::Chosen(chosen) => {
                self.note(0, &format!("client {number}: {}: lost", chosen.told()));
                self.clients[number].chosen = Some(Chosen { is_lost: true, ..chosen });
            }
            _ => {}
        }
    }

    /// A client takes what it has been sent.
    pub(crate) fn sent(&mut self, n: usize, session: SessionId) {
        while let Some(number) = self.client_of(session) {
            let Some(message) = self.next_message(n, session) else { return };
            if self.clients[number].following.is_some() {
                self.replica_hears(number, &message);
                continue;
            }
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            match message["method"].as_str() {
                Some("echo") => self.answer_echo(n, session, &message),
                Some("update3") => {
                    let client = &mut self.clients[number];
                    must("replicas", client.replica.take(&message["params"][2]));
                    let state = message["params"][1].as_str().expect("an id").to_owned();
                    self.checks.watched((number, n), &state, &client.replica);
                    client.state.clone_from(&state);
                    self.checks.resume.told(self.now_us, &state);
                    self.note(n, &format!("watcher {number} has {}", &state[..8]));
                    self.compare_watchers();
                }
                Some(other) => panic!("{other}"),
                None => self.answered(number, &message),
            }
        }
    }

    fn answered(&mut self, number: usize, message: &Value) {
        let client = &mut self.clients[number];
        assert_eq!(message["id"], json!(client.requests), "answers come in order");
        let (asked, asked_us) = client.asked.take().expect("it has asked");
        let (n, life, _) = client.session.expect("it has a session");
        let is_conversion = matches!(asked, Asked::Convert);
        let error = &message["error"];
        let is_away = is_not_served(error);
        let is_canceled = *error == json!("canceled");
        if is_away || is_canceled {
            let text = format!("client {number} asks for {asked:?} and is told {error}");
            self.sent_away(n, &text);
        }
        let client = &mut self.clients[number];
        // Who waits for a state, or for first rows, is told when the database goes.
        if is_away || is_canceled && matches!(asked, Asked::Sync(_) | Asked::Monitor) {
            return self.not_served(number, (asked, asked_us));
        }
        if is_canceled && self.nodes[n].is_relay() {
            // The relay does not know what has become of it, so nobody here does.
            return self.answer_lost(number, asked, asked_us);
        }
        assert!(is_conversion || message["error"].is_null(), "{asked:?}: {message}");
        let result = &message["result"];
        match asked {
            Asked::Counter => {
                let rows = result[0]["rows"].as_array();
                client.has_counter = match rows {
                    Some(rows) => !rows.is_empty(),
                    // It was there before, or is there now.
                    None => true,
                };
                if client.has_counter {
                    self.checks.shows_rows((n, life));
                }
            }
            Asked::Insert(name) => {
                self.insert_answered(number, (n, life), (&name, asked_us), result)
            }
            Asked::State => {
                client.rows += 1;
                let (name, id) = (format!("once {number}-{}", client.rows), self.rng.uuid());
                let since = result["id"].as_str().expect("an id").to_owned();
                let chosen = Chosen { name, id, since, is_lost: false };
                self.clients[number].chosen = Some(chosen);
            }
            Asked::Chosen(chosen) => {
                self.chosen_answered(number, (n, life), (chosen, asked_us), result);
            }
            Asked::Outcome(chosen) => {
                client.chosen = None;
                self.note(n, &format!("client {number}: {}: {result}", chosen.told()));
                match result.as_str() {
                    Some("committed") => {
                        self.checks.counts.found += 1;
                        self.checks.acknowledged((n, life), (&chosen.name, None), asked_us);
                    }
                    Some("not committed") => self.checks.refused(&chosen.name),
                    Some("unknown") => self.checks.unknown(),
                    _ => panic!("{message}"),
                }
                if self.rng.chance(30) && result.as_str() == Some("not committed") {
                    // Who does not believe it is told once more.
                    self.clients[number].chosen = Some(Chosen { is_lost: true, ..chosen });
                }
            }
            Asked::Sync(_) if client.has_counter && self.rng.chance(50) => {
                let of = self.rng.below(REGISTERS);
                let params = json!(["Sim", read_register(of)]);
                self.ask(number, Asked::Register(of, asked_us), "transact", &params);
            }
            Asked::Sync(known) => self.read(number, (n, life), known),
            Asked::Swap(of, new, had_rows) => {
                let before = result[0]["rows"][0]["n"].as_u64();
                if result[1]["count"] == json!(0) && before.is_none() && !had_rows {
                    // A server that is behind has no registers yet: what changes nothing is answered there.
                    return;
                }
                let is_one = result[1]["count"] == json!(1) && before.is_some();
                let wrong = || format!("there is one register {of}: {result}");
                must("linear", is_one.then_some(()).ok_or_else(wrong));
                self.checks.shows_rows((n, life));
                let kind = Kind::Swap { new, old: before };
                self.checks.registers[of].push(asked_us, Some(self.now_us), kind);
            }
            Asked::Register(of, since_us) => {
                self.checks.shows_rows((n, life));
                let n = result[0]["rows"][0]["n"].as_u64().expect("the register is there");
                self.checks.registers[of].push(since_us, Some(self.now_us), Kind::Read(n));
            }
            Asked::Count(known, last) => {
                let counted = result[0]["rows"][0]["n"].as_u64();
                self.note(n, &format!("client {number} counts {counted:?}"));
                let rows_of = |at: usize| result[at + 1]["rows"].as_array().map_or(0, Vec::len);
                let found = last.iter().enumerate().map(|(at, name)| (name.as_str(), rows_of(at)));
                self.checks.counted(known, counted.unwrap_or(0), found);
            }
            Asked::Read(known) => {
                if client.has_counter && !result[0]["rows"].as_array().is_none_or(Vec::is_empty) {
                    self.note(n, &format!("client {number} reads"));
                    self.checks.read((n, life), known, &result[0]["rows"]);
                }
            }
            Asked::Item(name) => {
                self.note(n, &format!("client {number} is told of {name}: {result}"));
                let id = id_in(result.as_array().expect("results")).expect("an id").to_owned();
                self.checks.deleted.inserted((n, life), &name, &id);
                self.checks.wrote_item(asked_us);
                self.clients[number].items.push(name, id);
            }
            Asked::Delete(item, had_rows) => {
                self.note(n, &format!("client {number} deletes {}: {result}", item.0));
                let counts = [0, 1].map(|at| result[at]["count"].as_u64());
                if counts == [Some(0); 2] && !had_rows {
                    // A server that is behind has neither yet.
                    return self.item_stays(number, item);
                }
                must("deleted", self.checks.deleted.deleted((n, life), &item.0, counts));
                self.checks.wrote_item(asked_us);
            }
            Asked::Items(known) => {
                self.note(n, &format!("client {number} reads items"));
                self.checks.read_items((n, life), known, &items_in(result));
            }
            Asked::Convert => {
                let is_done = message["error"].is_null();
                self.checks.counts.conversions += u64::from(is_done);
                self.note(n, &format!("client {number}: conversion: {message}"));
            }
            Asked::Monitor => {
                let is_found = result[0] == json!(true);
                if is_found {
                    self.checks.counts.resumed += 1;
                } else {
                    client.replica.clear();
                    self.checks.counts.began_anew += 1;
                }
                let client = &mut self.clients[number];
                must("replicas", client.replica.take(&result[2]));
                let (before, state) = (&client.state[..8], result[1].as_str().expect("an id"));
                self.checks.watched((number, n), state, &client.replica);
                self.checks.resume.told(self.now_us, state);
                let text = format!("watcher {number} comes with {before}, found: {is_found}");
                client.state = state.to_owned();
                let rows = client.replica.len();
                self.note(n, &format!("{text}, has {}, {rows} rows", &state[..8]));
            }
        }
    }

    fn item_stays(&mut self, number: usize, (name, id): (String, String)) {
        self.checks.deleted.stays(&name);
        self.clients[number].items.push(name, id);
    }

    /// A server that joins its cluster again has no database yet: the client goes to another one.
    fn not_served(&mut self, number: usize, (asked, asked_us): (Asked, u64)) {
        let session = self.clients[number].session.expect("it has a session");
        match asked {
            Asked::Insert(name) => self.checks.refused(&name),
            Asked::Item(name) => self.checks.deleted.refused(&name),
            Asked::Delete(item, _) => self.item_stays(number, item),
            // It has not happened, and will not.
            Asked::Swap(..) => {}
            asked => self.clients[number].asked = Some((asked, asked_us)),
        }
        self.hang_up(session);
    }

    fn insert_answered(
        &mut self,
        number: usize,
        process: Process,
        (name, asked_us): (&str, u64),
        result: &Value,
    ) {
        let done = result.as_array().expect("results");
        let error = done.iter().find_map(|done| done["error"].as_str());
        self.note(process.0, &format!("client {number} is told of {name}: {error:?}"));
        if error == Some("timed out") {
            // A server that lacks the rows of the others for long does not have what it waits for.
            return self.checks.refused(name);
        }
        assert_eq!(error, None, "{name}: {result}");
        self.checks.acknowledged(process, (name, id_in(done)), asked_us);
        self.read_at_once(number, process);
    }

    fn chosen_answered(
        &mut self,
        number: usize,
        process: Process,
        (chosen, asked_us): (Chosen, u64),
        result: &Value,
    ) {
        self.clients[number].chosen = None;
        let results = &result["results"];
        self.note(process.0, &format!("client {number}: {}: {results}", chosen.told()));
        let done = results.as_array().map_or(&[][..], Vec::as_slice);
        match done.iter().find_map(|done| done["error"].as_str()) {
            // What its operations answered is not remembered, if it had been committed before.
            None => {
                self.checks.acknowledged(process, (&chosen.name, id_in(done)), asked_us);
                self.read_at_once(number, process);
            }
            Some("not committed") => self.checks.refused(&chosen.name),
            // What it waits for is not there; an earlier attempt may have found it elsewhere.
            Some("timed out") => {
                self.clients[number].chosen = Some(Chosen { is_lost: true, ..chosen });
            }
            Some("unknown state") => self.checks.unknown(),
            Some(other) => panic!("{chosen:?}: {other}"),
        }
    }

    /// Whoever was told can see it at once, at the same process.
    fn read_at_once(&mut self, number: usize, process: Process) {
        if self.rng.chance(50) {
            self.read(number, process, self.checks.known(process, false));
        }
    }

    /// All rows of a server, as a client reads them.
    pub(crate) fn rows_of(&mut self, n: usize) -> Value {
        let params = json!(["Sim", select(&["_uuid", "name", "n"])]);
        self.result_of(n, "transact", &params)[0]["rows"].clone()
    }

    /// Whether a server can tell what has come since a state.
    pub(crate) fn knows_id(&mut self, n: usize, id: &str) -> bool {
        let params = json!(["Sim", "m", {"T": [{"columns": ["name", "n"]}]}, id]);
        self.result_of(n, "monitor_cond_since", &params)[0] == json!(true)
    }

    pub(crate) fn result_of(&mut self, n: usize, method: &str, params: &Value) -> Value {
        let session = self.accept_client(self.now_us, n);
        self.run_for(1);
        let message = json!({"id": 1, "method": method, "params": params});
        let bytes = message.to_string().into_bytes();
        self.handle(n, Event::Message { session, bytes });
        for _ in 0..100 {
            if let Some(message) = self.next_message(n, session) {
                let message: Value = serde_json::from_slice(&message).expect("JSON");
                return message["result"].clone();
            }
            self.run_for(50);
        }
        panic!("server {n} does not answer");
    }
}

/// The id of the row that was inserted, as the results of a transaction say it.
pub(crate) fn id_in(results: &[Value]) -> Option<&str> {
    results.iter().find_map(|result| result["uuid"][1].as_str())
}
