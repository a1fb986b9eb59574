//! Clients of a standalone server and its relays: those that write and take a lock, through one server after
//! the other, those that do so by what they have been told as watchers, and those that only watch.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};
use weir_server::event::SessionId;

use crate::checks::must;
use crate::sessions::is_not_served;
use crate::sources::schema;
use crate::world::{Due, World};

/// Who has no answer for so long gives up, in microseconds.
const PATIENCE_US: u64 = 8_000_000;

/// Whoever was told that it has the lock may be refused under it for so long behind faults, in microseconds, and
/// so often.
const REFUSED_US_MAX: u64 = 3_000_000;
const REFUSED_MAX: usize = 3;

/// Who waits for all that anybody has been told asks for so long, in milliseconds.
const SYNC_MS: u64 = 2_000;

/// So many characters of an answer are in the trace.
const NOTED_MAX: usize = 200;

/// How often one converts the database, of 1,000 requests.
const CONVERT: usize = 5;

/// Zeros: no state.
const NONE: &str = "00000000-0000-0000-0000-000000000000";

/// The row whose number is written under the lock.
const GUARDED: &str = "guarded";

/// Rows whose `s` is written all the time.
const SLOTS: usize = 3;

/// The lock.
const LOCK: &str = "l";

/// What a visitor waits for the answer to.
#[derive(Clone, Debug)]
enum Asked {
    /// Whether the first rows are there, or are now.
    FirstRows,
    /// A row of this name.
    Insert(String),
    /// A row of this name, which was there before, and had been asked for then.
    Find(String, u64),
    /// Deletes a row of this name, which was there since then.
    Delete(String, u64),
    /// A number that no file keeps.
    Slot,
    Lock,
    Unlock,
    /// The guarded number, which is one more then.
    Learn,
    /// The number behind this one.
    Guarded(u64),
    Index,
    /// To be told of changes of the databases, and not disconnected.
    Aware,
    Monitor,
    /// Another schema.
    Convert,
    /// `weir_sync`, when so many rows had been acknowledged.
    Sync(usize),
}

/// A client.
pub(crate) struct Visitor {
    pub(crate) number: usize,
    /// Whether it watches, and does nothing else.
    pub(crate) watches: bool,
    /// Whether it watches, and goes by that when it writes under the lock.
    pub(crate) acts_on_updates: bool,
    /// Whether it stays connected when the database is converted.
    pub(crate) is_aware: bool,
    /// The monitor of this visitor has ended with a conversion.
    is_to_watch_anew: bool,
    session: Option<(usize, u64, SessionId)>,
    asked: Option<(Asked, u64)>,
    requests: u64,
    writes: u64,
    has_first_rows: bool,
    /// Whether it has the lock or waits for it, as far as it was told.
    lock: Option<bool>,
    /// The lock was asked for by force.
    by_force: bool,
    /// The lock came back since it has asked for something.
    is_turned: bool,
    /// Since when, and how often, it was refused under a lock that it has as far as it was told.
    refused: Option<(u64, usize)>,
    /// The guarded number, as it has read or written it since it has the lock.
    known: Option<u64>,
    /// A row that it has written on this session, and when.
    written: Option<(String, u64)>,
    /// What a watcher has, and as of which state.
    pub(crate) rows: BTreeMap<String, Value>,
    /// A hash of them.
    hash: u64,
    state: String,
}

/// What a watcher wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Columns that files keep: states have the same ids everywhere.
    Kept,
    /// All of them: ids belong to a process.
    All,
}

impl Visitor {
    pub(crate) fn new(number: usize, watches: bool) -> Self {
        Self {
            number,
            watches,
            acts_on_updates: false,
            is_aware: false,
            is_to_watch_anew: false,
            session: None,
            asked: None,
            requests: 0,
            writes: 0,
            has_first_rows: false,
            lock: None,
            by_force: false,
            is_turned: false,
            refused: None,
            known: None,
            written: None,
            rows: BTreeMap::new(),
            hash: 0,
            state: NONE.to_owned(),
        }
    }

    /// What it wants to know, if it watches.
    pub(crate) fn columns(&self) -> Columns {
        if self.number.is_multiple_of(2) { Columns::Kept } else { Columns::All }
    }

    /// The state that a watcher has, by an id that all servers know.
    pub(crate) fn state(&self) -> Option<&str> {
        let is_known = self.watches && self.columns() == Columns::Kept && self.state != NONE;
        is_known.then_some(self.state.as_str())
    }

    /// The guarded number as it has been told as a watcher, when the lock becomes its own, if that is all that has
    /// been written under it. Who takes it by force does not wait for what others have asked for under it, and
    /// nobody knows in which turn of the lock something is made that it has asked for itself.
    fn told_number(&self) -> Option<u64> {
        let is_unclear = matches!(self.asked, Some((Asked::Learn | Asked::Guarded(_), _)));
        if !self.acts_on_updates || self.by_force || is_unclear || self.is_to_watch_anew {
            return None;
        }
        self.rows.values().find(|row| row["name"] == GUARDED)?["n"].as_u64()
    }

    fn lose_session(&mut self) -> Option<Asked> {
        (self.session, self.lock, self.known, self.written) = (None, None, None, None);
        self.refused = None;
        self.is_to_watch_anew = false;
        self.asked.take().map(|(asked, _)| asked)
    }

    /// Takes what was told (`<table-updates2>`).
    fn take(&mut self, updates: &Value) -> Result<(), String> {
        for (id, update) in updates["T"].as_object().into_iter().flatten() {
            if let Some(row) = update.get("initial").or_else(|| update.get("insert")) {
                // What has the value that values begin with is not told.
                let mut whole = json!({"name": "", "n": 0});
                if self.columns() == Columns::All {
                    whole["s"] = json!(0);
                }
                merge(&mut whole, row);
                self.hash ^= hash(id, &whole);
                if self.rows.insert(id.clone(), whole).is_some() {
                    return Err(format!("{id} is inserted twice"));
                }
            } else if let Some(row) = update.get("modify") {
                let mine = self.rows.get_mut(id);
                let mine = mine.ok_or_else(|| format!("{id} is modified, and was not there"))?;
                self.hash ^= hash(id, mine);
                merge(mine, row);
                self.hash ^= hash(id, mine);
            } else {
                let mine = self.rows.remove(id);
                let mine = mine.ok_or_else(|| format!("{id} is deleted, and was not there"))?;
                self.hash ^= hash(id, &mine);
            }
        }
        Ok(())
    }
}

/// A hash of a row, whatever is watched of it.
fn hash(id: &str, row: &Value) -> u64 {
    let mut hash = DefaultHasher::new();
    (id, row["name"].as_str(), row["n"].as_i64(), row["s"].as_i64()).hash(&mut hash);
    hash.finish()
}

/// Columns that have one value each: a difference is the new value.
fn merge(row: &mut Value, change: &Value) {
    for (column, value) in change.as_object().into_iter().flatten() {
        row[column] = value.clone();
    }
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

fn update(name: &str, row: &Value) -> Value {
    json!({"op": "update", "table": "T", "where": [["name", "==", name]], "row": row})
}

fn select(name: &str) -> Value {
    json!({"op": "select", "table": "T", "where": [["name", "==", name]], "columns": ["n"]})
}

fn assertion() -> Value {
    json!({"op": "assert", "lock": LOCK})
}

fn slot(number: usize) -> String {
    format!("slot {number}")
}

/// The rows that are there before all others, unless they are there already.
fn first_rows() -> Value {
    let none = json!({"op": "wait", "timeout": 0, "table": "T", "columns": ["name"],
        "where": [["name", "==", GUARDED]], "until": "==", "rows": []});
    let mut params = vec![json!("Sim"), none, insert(GUARDED)];
    params.extend((0..SLOTS).map(|number| insert(&slot(number))));
    Value::Array(params)
}

impl World {
    /// A visitor has thought, or has waited long enough.
    pub(crate) fn visitor_goes_on(&mut self, number: usize) {
        let now_us = self.now_us;
        let pause_us = 1000 + self.rng.below(if self.is_calm { 600_000 } else { 40_000 }) as u64;
        self.due(now_us + pause_us, 0, Due::Visitor(number));
        let visitor = &self.sources().visitors[number];
        let session = visitor.session;
        if !visitor.watches && !self.is_over {
            let asked_us = visitor.asked.as_ref().map(|(_, asked_us)| *asked_us);
            let who = format!("visitor {number}");
            let tries = session.map_or(0, |(n, ..)| self.tries_at(n));
            must("liveness", self.checks.liveness.looked(now_us, &who, asked_us, (tries, 0)));
        }
        if let Some((_, since_us)) = &visitor.asked {
            let is_patient = visitor.watches || self.is_calm || since_us + PATIENCE_US > now_us;
            if !is_patient && let Some(session) = session {
                self.hang_up(session);
            }
            return;
        }
        match session {
            _ if self.is_over && !self.sources().visitors[number].watches => {}
            None => self.connect_visitor(number),
            // Somebody else may have a turn.
            Some(session) if !self.is_calm && self.rng.chance(2) => self.hang_up(session),
            Some(_) if self.sources().visitors[number].is_to_watch_anew => self.watch(number),
            Some(_) if self.sources().visitors[number].watches => {}
            Some(session) => self.next_visitor_request(number, session),
        }
    }

    fn connect_visitor(&mut self, number: usize) {
        // At most servers there is nobody else; at the source and the first relay some meet.
        let most = if self.rng.chance(50) { 2 } else { self.nodes.len() };
        let n = self.rng.below(most);
        let Some(session) = self.open_session_at(n) else { return };
        let visitor = &mut self.sources_mut().visitors[number];
        visitor.session = Some(session);
        match visitor.is_aware {
            true => self.visitor_asks(number, Asked::Aware, "set_db_change_aware", &json!([true])),
            false => self.watch(number),
        }
    }

    /// A visitor asks to be told of the rows, if it watches.
    fn watch(&mut self, number: usize) {
        let visitor = &mut self.sources_mut().visitors[number];
        if visitor.watches || visitor.acts_on_updates {
            if std::mem::take(&mut visitor.is_to_watch_anew) {
                self.sources_mut().counts.watched_anew += 1;
            }
            let visitor = &self.sources().visitors[number];
            let tables = match visitor.columns() {
                Columns::Kept => json!({"T": [{"columns": ["name", "n"]}]}),
                Columns::All => json!({"T": [{"columns": ["name", "n", "s"]}]}),
            };
            let params = json!(["Sim", "m", tables, visitor.state]);
            self.visitor_asks(number, Asked::Monitor, "monitor_cond_since", &params);
        }
    }

    fn next_visitor_request(&mut self, number: usize, (n, life, _): (usize, u64, SessionId)) {
        if self.sources().is_without_ids && !self.is_calm && self.rng.below(1000) < CONVERT {
            let params = json!(["Sim", schema(self.rng.below(3))]);
            return self.visitor_asks(number, Asked::Convert, "convert", &params);
        }
        let dice = self.rng.below(20);
        let (of, by_force) = (self.rng.below(SLOTS), self.rng.chance(30));
        let acknowledged = self.sources().acknowledged.len();
        let told = self.sources().told_here((n, life));
        let is_without_ids = self.sources().is_without_ids;
        let visitor = &mut self.sources_mut().visitors[number];
        visitor.writes += 1;
        let written = visitor.writes * 100 + number as u64;
        let (asked, method, params) = match (dice, visitor.lock) {
            _ if !visitor.has_first_rows && number > 0 => {
                (Asked::FirstRows, "transact", json!(["Sim", select(GUARDED)]))
            }
            _ if !visitor.has_first_rows => (Asked::FirstRows, "transact", first_rows()),
            (0..4, _) => {
                let name = format!("row {number}-{}", visitor.writes);
                let params = json!(["Sim", insert(&name)]);
                (Asked::Insert(name), "transact", params)
            }
            (4, _) if let Some((name, since_us)) = visitor.written.take() => {
                let delete = json!({"op": "delete", "table": "T", "where": [["name", "==", name]]});
                self.sources_mut().going.insert(name.clone());
                (Asked::Delete(name, since_us), "transact", json!(["Sim", delete]))
            }
            (4..6, _) if let Some((name, since_us)) = told.or_else(|| visitor.written.clone()) => {
                let params = json!(["Sim", select(&name)]);
                (Asked::Find(name, since_us), "transact", params)
            }
            (6, _) if n > 0 => {
                let select = json!({"op": "select", "table": "Database", "columns": ["index"],
                    "where": [["name", "==", "Sim"]]});
                (Asked::Index, "transact", json!(["_Server", select]))
            }
            // A source without ids cannot say what is committed.
            (7, _) if visitor.acts_on_updates && !is_without_ids => {
                (Asked::Sync(acknowledged), "weir_sync", json!(["Sim", SYNC_MS]))
            }
            (4..10, _) => {
                let update = update(&slot(of), &json!({"s": written}));
                (Asked::Slot, "transact", json!(["Sim", update]))
            }
            (_, None) => {
                let method = if by_force { "steal" } else { "lock" };
                visitor.by_force = by_force;
                (Asked::Lock, method, json!([LOCK]))
            }
            (10..12, Some(_)) => (Asked::Unlock, "unlock", json!([LOCK])),
            (_, Some(false)) => return,
            (_, Some(true)) => match visitor.known {
                None => {
                    // What only reads is answered at the relay, under the relay's lock.
                    let one_more = json!({"op": "mutate", "table": "T",
                        "where": [["name", "==", GUARDED]], "mutations": [["n", "+=", 1]]});
                    let params = json!(["Sim", assertion(), select(GUARDED), one_more]);
                    (Asked::Learn, "transact", params)
                }
                Some(known) => {
                    let write = update(GUARDED, &json!({"n": known + 1}));
                    let params = json!(["Sim", assertion(), select(GUARDED), write]);
                    (Asked::Guarded(known), "transact", params)
                }
            },
        };
        self.visitor_asks(number, asked, method, &params);
    }

    fn visitor_asks(&mut self, number: usize, asked: Asked, method: &str, params: &Value) {
        let now_us = self.now_us;
        let text = format!("visitor {number} asks: {asked:?}");
        let visitor = &mut self.sources_mut().visitors[number];
        visitor.requests += 1;
        let id = visitor.requests;
        visitor.asked = Some((asked, now_us));
        visitor.is_turned = false;
        let session = visitor.session.expect("it is connected");
        self.note(session.0, &text);
        let at = now_us + 20 + self.rng.below(200) as u64;
        self.send_request(at, session, (id, method, params));
    }

    /// A session has ended.
    pub(crate) fn visit_ended(&mut self, session: SessionId) {
        let Some(number) = self.visitor_of(session) else { return };
        let sources = self.sources_mut();
        let lost = sources.visitors[number].lose_session();
        if let Some(Asked::Insert(_) | Asked::Delete(..) | Asked::Guarded(_)) = lost {
            sources.counts.unknown += 1;
        }
    }

    pub(crate) fn visitor_of(&self, session: SessionId) -> Option<usize> {
        let visitors = &self.sources.as_ref()?.visitors;
        visitors.iter().position(|visitor| visitor.session.is_some_and(|(.., own)| own == session))
    }

    /// A visitor takes what it has been sent.
    pub(crate) fn visitor_is_told(&mut self, n: usize, session: SessionId) {
        while let Some(number) = self.visitor_of(session) {
            let Some(message) = self.next_message(n, session) else { return };
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            let is_without_ids = self.sources().is_without_ids;
            let visitor = &mut self.sources_mut().visitors[number];
            match message["method"].as_str() {
                Some("echo") => self.answer_echo(n, session, &message),
                Some(turn @ ("locked" | "stolen")) => {
                    let is_owned = turn == "locked";
                    visitor.lock = visitor.lock.map(|_| is_owned);
                    visitor.known = visitor.told_number().filter(|_| is_owned);
                    // A source without ids cannot be told which turn something was asked for in.
                    visitor.is_turned |= is_owned || is_without_ids;
                    visitor.refused = None;
                    self.sources_mut().counts.stolen += u64::from(!is_owned);
                    self.note(n, &format!("visitor {number} is told: {turn}"));
                }
                Some("monitor_canceled") => visitor.is_to_watch_anew = true,
                Some("update3") => {
                    let state = message["params"][1].as_str().expect("an id").to_owned();
                    self.watcher_takes(number, &state, &message["params"][2]);
                }
                Some(other) => panic!("{other}"),
                None => self.visitor_is_answered(number, n, &message),
            }
        }
    }

    fn watcher_takes(&mut self, number: usize, state: &str, updates: &Value) {
        let sources = self.sources_mut();
        let visitor = &mut sources.visitors[number];
        must("replicas", visitor.take(updates));
        state.clone_into(&mut visitor.state);
        let (n, ..) = visitor.session.expect("it is connected");
        let (who, rows) = (format!("watcher {number} at server {n}"), visitor.rows.len());
        if state != NONE {
            must("states", sources.states.told(&who, state, visitor.hash));
        }
        self.note(n, &format!("{who} has {state}, {rows} rows"));
    }

    fn visitor_is_answered(&mut self, number: usize, n: usize, message: &Value) {
        let restored_us = self.sources().restored_us;
        let visitor = &mut self.sources_mut().visitors[number];
        assert_eq!(message["id"], json!(visitor.requests), "answers come in order");
        let (asked, asked_us) = visitor.asked.take().expect("it has asked");
        let (n_of_session, life, session) = visitor.session.expect("it has a session");
        assert_eq!(n, n_of_session, "a session has one server");
        let error = &message["error"];
        let is_away = is_not_served(error);
        if is_away || *error == json!("canceled") {
            self.sent_away(n, &format!("visitor {number} asks for {asked:?} and is told {error}"));
        }
        let visitor = &mut self.sources_mut().visitors[number];
        if is_away {
            return self.hang_up((n, life, session));
        }
        if *error == json!("canceled") {
            // Nobody knows whether it was done.
            visitor.known = None;
            self.sources_mut().counts.unknown += 1;
            return;
        }
        if matches!(asked, Asked::Sync(_)) && error["error"] == json!("timed out") {
            return;
        }
        assert!(error.is_null(), "{asked:?}: {message}");
        let text: String = message["result"].to_string().chars().take(NOTED_MAX).collect();
        self.note(n, &format!("visitor {number} is answered: {text}"));
        let visitor = &mut self.sources_mut().visitors[number];
        let result = &message["result"];
        if result[0]["error"] == json!("not owner") {
            visitor.known = None;
            self.sources_mut().counts.not_owner += 1;
            return self.visitor_is_refused(number, n);
        }
        if matches!(asked, Asked::Learn | Asked::Guarded(_)) {
            visitor.refused = None;
        }
        let first = &result[0]["rows"][0];
        match asked {
            Asked::FirstRows => {
                let rows = result[0]["rows"].as_array();
                visitor.has_first_rows = rows.is_none_or(|rows| !rows.is_empty());
            }
            Asked::Insert(name) => {
                assert!(result[0]["uuid"].is_array(), "{name}: {message}");
                visitor.written = Some((name.clone(), asked_us));
                self.sources_mut().told_at.insert((n, life), (name.clone(), asked_us));
                self.acknowledged(name, asked_us);
            }
            Asked::Find(name, since_us) => {
                let is_going = self.sources().going.contains(&name);
                let is_there = !first.is_null() || restored_us >= since_us || is_going;
                must(
                    "reads",
                    match is_there {
                        true => Ok(()),
                        false => {
                            Err(format!("server {n} has told of {name}, and does not have it"))
                        }
                    },
                );
            }
            Asked::Delete(name, written_us) => {
                self.deleted(name, (asked_us, written_us), result[0]["count"].as_u64());
            }
            Asked::Slot => self.sources_mut().counts.ephemeral += 1,
            Asked::Lock if result["locked"].is_boolean() => {
                // What was told behind the answer counts.
                if visitor.lock.is_none() {
                    let is_owned = result["locked"] == json!(true);
                    visitor.lock = Some(is_owned);
                    visitor.known = visitor.told_number().filter(|_| is_owned);
                }
            }
            Asked::Unlock => {
                (visitor.lock, visitor.known, visitor.refused) = (None, None, None);
            }
            Asked::Learn => {
                // What is on its way while the lock is lost and comes back is made under the lock as it is then:
                // who asserts it does not say since when he has it, and an answer that waits for the disk
                // comes behind what is told of the lock.
                let is_owned = visitor.lock == Some(true) && !visitor.is_turned;
                let found = result[1]["rows"][0]["n"].as_u64().filter(|_| is_owned);
                visitor.known = found.map(|found| found + 1);
            }
            // An older file has no such row yet.
            Asked::Guarded(_) if result[2]["count"] == json!(0) => visitor.known = None,
            // Nobody knows which turn of the lock that was made in, as with what is learned. While it is only
            // lost, what succeeds was made before.
            Asked::Guarded(_) if visitor.is_turned => {}
            Asked::Guarded(known) => {
                visitor.known = visitor.known.map(|known| known + 1);
                let found = result[1]["rows"][0]["n"].as_u64().expect("a number");
                self.note(n, &format!("visitor {number} had {known}, finds {found}"));
                let who = format!("visitor {number} at server {n}");
                must("locks", self.sources_mut().guarded.found(&who, known, found));
            }
            Asked::Index => {
                if let Some(index) = first["index"].as_i64() {
                    self.said_index((n, life), index);
                }
            }
            Asked::Aware => self.watch(number),
            Asked::Convert => self.sources_mut().counts.converted += 1,
            Asked::Monitor => {
                let is_found = result[0] == json!(true);
                let visitor = &mut self.sources_mut().visitors[number];
                if !is_found {
                    visitor.rows.clear();
                    visitor.hash = 0;
                }
                let counts = &mut self.sources_mut().counts;
                match is_found {
                    true => counts.resumed += 1,
                    false => counts.began_anew += 1,
                }
                let state = result[1].as_str().expect("an id").to_owned();
                self.watcher_takes(number, &state, &result[2]);
            }
            Asked::Sync(acknowledged) => {
                let sources = self.sources_mut();
                sources.counts.synced += 1;
                if sources.visitors[number].is_to_watch_anew {
                    return;
                }
                let rows = &sources.visitors[number].rows;
                let told: BTreeSet<&str> =
                    rows.values().filter_map(|row| row["name"].as_str()).collect();
                let lost = sources.stay(acknowledged).find(|name| !told.contains(name));
                let text = |name| {
                    format!(
                        "visitor {number} at server {n} has not been told of {name} behind weir_sync"
                    )
                };
                must("reads", lost.map_or(Ok(()), |name| Err(text(name))));
            }
            Asked::Lock => panic!("{message}"),
        }
    }

    /// A visitor was refused under the lock: if it has been told that it has that, and of nobody who has taken
    /// it, that does not last behind faults.
    fn visitor_is_refused(&mut self, number: usize, n: usize) {
        let now_us = self.now_us;
        let visitor = &mut self.sources_mut().visitors[number];
        if visitor.lock != Some(true) || visitor.is_turned {
            visitor.refused = None;
            return;
        }
        let (since_us, times) = visitor.refused.map_or((now_us, 1), |(us, times)| (us, times + 1));
        visitor.refused = Some((since_us, times));
        if now_us > since_us + REFUSED_US_MAX && times > REFUSED_MAX {
            let for_ms = (now_us - since_us) / 1000;
            let text =
                format!("visitor {number} has the lock, and is refused under it {times} times");
            self.sent_away(n, &format!("{text} in {for_ms} ms"));
        }
    }

    /// All rows of a server, by id.
    pub(crate) fn visited_rows(&mut self, n: usize) -> BTreeMap<String, Value> {
        let select = json!({"op": "select", "table": "T", "where": [],
            "columns": ["_uuid", "name", "n", "s"]});
        let result = self.result_of(n, "transact", &json!(["Sim", select]));
        let row = |row: &Value| {
            let id = row["_uuid"][1].as_str().expect("an id").to_owned();
            (id, json!({"name": row["name"], "n": row["n"], "s": row["s"]}))
        };
        result[0]["rows"].as_array().into_iter().flatten().map(row).collect()
    }

    /// The index that a relay says.
    pub(crate) fn index_of(&mut self, n: usize) -> Option<i64> {
        let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "Sim"]],
            "columns": ["index"]});
        let result = self.result_of(n, "transact", &json!(["_Server", select]));
        result[0]["rows"][0]["index"].as_i64()
    }
}
