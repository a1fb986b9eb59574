//! Clients that ask for more before they are answered: rows, numbers of a row that nobody else writes, what
//! waits for such a number, and what is written under a lock of their server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_server::event::SessionId;

use crate::checks::locks::Guarded;
use crate::checks::order::Order;
use crate::checks::{COUNTER, must};
use crate::clients::{PATIENCE_US, count, id_in};
use crate::node::Node;
use crate::plan::Part;
use crate::sessions::{Session, is_not_served};
use crate::tempo::Tempo;
use crate::world::{Due, World};

/// How many such clients there are, and the number of the first among all clients.
const PIPELINES: usize = 4;
const FIRST: usize = 100;

/// Who is hasty may leave when it has waited for so long, in microseconds.
const HASTE_US: u64 = 1_000_000;

/// Clients that crowd at one server go on to the next one after so long, in microseconds.
const CROWD_US: u64 = 4_000_000;

/// Requests of one client that are not answered, at most, and those that leave together.
const UNDER_WAY_MAX: usize = 8;
const TOGETHER_MAX: usize = 4;

/// What those who write under it own.
const LOCK: &str = "door";

/// What is asked for.
#[derive(Clone, Debug)]
enum Asked {
    /// The session's own row.
    Begin,
    /// The next number of that row.
    Write,
    /// The number that it has been given last.
    Look(u64),
    /// What changes nothing: for no row is meant, or its client does not have a lock.
    Nothing,
    /// A row that is counted.
    Insert(String),
    /// A row that is counted, once the session's own row has a number: one that it has, gets later, or never has;
    /// and for how many microseconds the request waits for that at most.
    Wait(String, u64),
    /// The row that is written under the lock of this process.
    Guard,
    /// What is told of the row of this name.
    Watch(String),
    /// For so many times by now, and by force or not.
    Lock(u64, bool),
    Unlock,
    /// The number that is written under the lock, in this turn of it.
    Known(u64),
    /// One more under the lock, in this turn of it.
    Guarded(u64),
}

/// A client.
pub(crate) struct Pipeline {
    session: Option<Session>,
    sessions: u64,
    /// By the ids of the requests; since when.
    asked: BTreeMap<u64, (Asked, u64)>,
    requests: u64,
    /// When the last message arrives at the server.
    arrives_us: u64,
    rows: u64,
    /// What the session's own row has been given last.
    own: u64,
    /// The session has asked for its own row.
    has_begun: bool,
    /// Whether the lock is this client's, if it has asked for it.
    lock: Option<bool>,
    /// How often it has been asked for.
    locks: u64,
    /// Which turn of the lock it is.
    turn: u64,
    /// The row that is written under the lock, once the session has asked for it.
    guarded: Option<String>,
    /// The number of that row behind the last write of this turn.
    known: Option<u64>,
    /// The number of that row as far as the session has been told, if it is.
    watched: Option<u64>,
}

impl Asked {
    /// Whether it is answered in its order, for it waits for nothing.
    fn is_in_order(&self) -> bool {
        !matches!(self, Self::Wait(..) | Self::Watch(_) | Self::Lock(..) | Self::Unlock)
    }
}

impl Pipeline {
    fn new() -> Self {
        Self {
            session: None,
            sessions: 0,
            asked: BTreeMap::new(),
            requests: 0,
            arrives_us: 0,
            rows: 0,
            own: 0,
            has_begun: false,
            lock: None,
            locks: 0,
            turn: 0,
            guarded: None,
            known: None,
            watched: None,
        }
    }

    /// The number under the lock as it has been told, which is all that has been written when the lock is this client's: unless
    /// it has asked for something under it before.
    fn told(&self) -> Option<u64> {
        let is_under = |(asked, _): &(Asked, u64)| matches!(asked, Asked::Guarded(_));
        self.watched.filter(|_| !self.asked.values().any(is_under))
    }

    fn begin(&mut self, session: Session) {
        let (sessions, requests, rows) = (self.sessions + 1, self.requests, self.rows);
        *self = Self { session: Some(session), sessions, requests, rows, ..Self::new() };
    }
}

fn own_row(number: usize, session: u64) -> String {
    format!("own {number}-{session}")
}

fn is_row(name: &str) -> Value {
    json!([["name", "==", name]])
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

fn look(name: &str) -> Value {
    json!({"op": "select", "table": "T", "where": is_row(name), "columns": ["n"]})
}

fn transaction(operations: impl IntoIterator<Item = Value>) -> Value {
    std::iter::once(json!("Sim")).chain(operations).collect()
}

impl World {
    /// Clients that do not wait for answers come as well.
    pub fn add_pipelines(&mut self) {
        for number in 0..PIPELINES {
            self.pipelines.push(Pipeline::new());
            self.parts.push(Part::Client(FIRST + number));
            self.due(self.now_us + 1_500_000, 0, Due::Pipeline(number));
        }
    }

    /// A client has thought, or has waited long enough.
    pub(crate) fn pipeline_goes_on(&mut self, number: usize) {
        if !self.plan.has(Part::Client(FIRST + number)) {
            return;
        }
        let tempo = self.tempo_of_writers();
        let pause_us = 1 + self.rng.below(tempo.pause_us()) as u64;
        let now_us = self.now_us;
        self.due(now_us + pause_us, 0, Due::Pipeline(number));
        let pipeline = &self.pipelines[number];
        let oldest = pipeline.asked.values().min_by_key(|(_, asked_us)| *asked_us);
        let since_us = oldest.map(|(_, asked_us)| *asked_us);
        let who = format!("pipeline {number}, who asks for {oldest:?},");
        let tries = pipeline.session.map_or(0, |(n, ..)| self.tries_at(n));
        let tries = (tries, self.tries_of_writers());
        if !self.is_over {
            let may_wait_us = oldest.map_or(0, |(asked, _)| match asked {
                Asked::Wait(_, wait_us) => *wait_us,
                _ => 0,
            });
            // What was asked for among faults may begin to wait when they are over.
            let calm_us = self.calm_us.unwrap_or(0);
            let due_us = since_us.map(|since_us| since_us.max(calm_us) + may_wait_us);
            must("liveness", self.checks.liveness.looked(now_us, &who, due_us, tries));
        }
        // Who asks behind the faults waits, so that it is seen when nothing comes.
        let is_patient =
            self.is_calm || since_us.is_none_or(|since_us| since_us + PATIENCE_US > now_us);
        let is_late = || since_us.is_some_and(|since_us| since_us + HASTE_US < now_us);
        let leaves = self.are_hasty && !self.is_calm && is_late() && self.rng.chance(100);
        // A crowd moves on, with what it has not been answered yet.
        let moves_on = self.crowds_at_locks && !self.is_calm && self.rng.chance(3);
        match self.pipelines[number].session {
            Some(session) if !is_patient || leaves || moves_on => self.hang_up(session),
            _ if self.is_over || tempo == Tempo::Quiet || !self.clients[0].has_counter() => {}
            None => self.connect_pipeline(number),
            Some(session) if !self.is_calm && self.rng.chance(1) => self.hang_up(session),
            Some(_) => {
                for _ in 0..=self.rng.below(TOGETHER_MAX) {
                    self.pipeline_asks_more(number);
                }
            }
        }
    }

    fn connect_pipeline(&mut self, number: usize) {
        // Who meets nobody at a relay has its locks alone.
        let first = self.nodes.iter().position(Node::is_relay).filter(|_| self.locks_at_relays);
        let session = match first {
            _ if self.crowds_at_locks => {
                let crowd = (self.seed + self.now_us / CROWD_US) as usize % self.nodes.len();
                self.open_session_at(crowd)
            }
            Some(relay) if self.rng.below(2) == 0 => self.open_session_at(relay),
            _ => self.open_session(),
        };
        if let Some(session) = session {
            self.pipelines[number].begin(session);
        }
    }

    /// The row that is written under the lock of a process. The lock of a relay is that of its source: what another source
    /// has under it may be made yet, where that one is not asked what has become of it.
    fn guarded_row(&self, (n, life): (usize, u64)) -> Option<String> {
        match self.nodes[n].is_relay() {
            false => Some(format!("guarded {n}-{life}")),
            true if self.locks_at_relays => {
                Some(format!("guarded {n}-{life}-{}", self.network.unknown))
            }
            true => None,
        }
    }

    pub(crate) fn pipeline_of(&self, session: SessionId) -> Option<usize> {
        let is_it = |pipeline: &Pipeline| pipeline.session.is_some_and(|(.., own)| own == session);
        self.pipelines.iter().position(is_it)
    }

    pub(crate) fn is_of_pipeline(&self, session: SessionId) -> bool {
        self.pipeline_of(session).is_some()
    }

    /// A session has ended: nobody says what has become of what it has asked for.
    pub(crate) fn pipeline_ended(&mut self, session: SessionId) {
        let Some(number) = self.pipeline_of(session) else { return };
        self.pipelines[number].session = None;
        for (asked, _) in std::mem::take(&mut self.pipelines[number].asked).into_values() {
            if matches!(asked, Asked::Insert(_) | Asked::Wait(..)) {
                self.checks.unknown();
            }
        }
    }

    fn pipeline_asks_more(&mut self, number: usize) {
        let pipeline = &self.pipelines[number];
        if pipeline.asked.len() >= UNDER_WAY_MAX {
            return;
        }
        let (n, life, _) = pipeline.session.expect("it is connected");
        let own_name = own_row(number, pipeline.sessions);
        let guarded = self.guarded_row((n, life));
        if !pipeline.has_begun {
            self.pipelines[number].has_begun = true;
            self.pipeline_asks(number, Asked::Begin, "transact", &transaction([insert(&own_name)]));
            if guarded.is_none() {
                return;
            }
        }
        let pipeline = &mut self.pipelines[number];
        if pipeline.guarded != guarded {
            (pipeline.guarded, pipeline.known) = (guarded.clone(), None);
            pipeline.watched = None;
            pipeline.turn += 1;
            let guarded = guarded.expect("who has had one has one");
            let none = json!({"op": "wait", "timeout": 0, "table": "T", "columns": ["name"],
                "where": is_row(&guarded), "until": "==", "rows": []});
            let first = transaction([none, insert(&guarded)]);
            self.pipeline_asks(number, Asked::Guard, "transact", &first);
            if self.watches_under_locks {
                let of_row = json!({"T": [{"columns": ["n"], "where": is_row(&guarded)}]});
                let params = json!(["Sim", guarded, of_row]);
                self.pipeline_asks(number, Asked::Watch(guarded), "monitor_cond", &params);
            }
            return;
        }
        let dice = match self.rng.below(20) {
            // All that is asked for has to do with the lock.
            dice if self.crowds_at_locks => 12 + dice % 8,
            dice => dice,
        };
        let by_force = self.rng.chance(20);
        // What waits at a relay's source keeps what others wait for behind it.
        let is_relay = self.nodes[n].is_relay();
        let wait_ms: u64 = [0, 50, 1000, 3000][self.rng.below(if is_relay { 2 } else { 4 })];
        // What the own row has when this runs, what it gets behind that, or what it never has.
        let waits_for = self.pipelines[number].own + [0, 0, 1, 1_000_000][self.rng.below(4)] as u64;
        let pipeline = &mut self.pipelines[number];
        match dice {
            0..4 => {
                pipeline.own += 1;
                let write = json!({"op": "update", "table": "T", "where": is_row(&own_name),
                    "row": {"n": pipeline.own}});
                let asked = Asked::Write;
                self.pipeline_asks(number, asked, "transact", &transaction([write]));
            }
            7 if self.asks_for_nothing => {
                let nobody = json!({"op": "update", "table": "T", "where": is_row("nobody"),
                    "row": {"n": 1}});
                let refused = json!({"op": "assert", "lock": "other"});
                let nothing = [nobody, refused].into_iter().take(1 + usize::from(by_force));
                self.pipeline_asks(number, Asked::Nothing, "transact", &transaction(nothing));
            }
            4..8 => {
                let asked = Asked::Look(pipeline.own);
                self.pipeline_asks(number, asked, "transact", &transaction([look(&own_name)]));
            }
            8..10 => {
                pipeline.rows += 1;
                let name = format!("piped {number}-{}", pipeline.rows);
                let params = transaction(count(&name));
                self.pipeline_asks(number, Asked::Insert(name), "transact", &params);
            }
            10..12 => {
                pipeline.rows += 1;
                let name = format!("waited {number}-{}", pipeline.rows);
                let wait = json!({"op": "wait", "timeout": wait_ms, "table": "T",
                    "columns": ["n"], "where": is_row(&own_name), "until": "==",
                    "rows": [{"n": waits_for}]});
                let params = transaction(std::iter::once(wait).chain(count(&name)));
                self.pipeline_asks(number, Asked::Wait(name, wait_ms * 1000), "transact", &params);
            }
            _ => {
                if let Some(guarded) = guarded {
                    self.pipeline_goes_on_under_lock(number, &guarded, (dice, by_force));
                }
            }
        }
    }

    /// A client asks for the lock, gives it up, or asks for something under it.
    fn pipeline_goes_on_under_lock(
        &mut self,
        number: usize,
        guarded: &str,
        (dice, by_force): (usize, bool),
    ) {
        let pipeline = &mut self.pipelines[number];
        match (dice, pipeline.lock) {
            (12, Some(_)) => {
                (pipeline.lock, pipeline.turn, pipeline.known) = (None, pipeline.turn + 1, None);
                self.pipeline_asks(number, Asked::Unlock, "unlock", &json!([LOCK]));
            }
            (13..15, Some(true)) if self.reads_under_locks => {
                let asserted = json!({"op": "assert", "lock": LOCK});
                let asked = Asked::Known(pipeline.turn);
                let params = transaction([asserted, look(guarded)]);
                self.pipeline_asks(number, asked, "transact", &params);
            }
            (_, Some(true)) => {
                let asserted = json!({"op": "assert", "lock": LOCK});
                let one_more = json!({"op": "mutate", "table": "T", "where": is_row(guarded),
                    "mutations": [["n", "+=", 1]]});
                let asked = Asked::Guarded(pipeline.turn);
                let params = transaction([asserted, look(guarded), one_more]);
                self.pipeline_asks(number, asked, "transact", &params);
            }
            (_, Some(false)) => {}
            (_, None) => {
                (pipeline.lock, pipeline.locks) = (Some(false), pipeline.locks + 1);
                let method = if by_force { "steal" } else { "lock" };
                let asked = Asked::Lock(pipeline.locks, by_force);
                self.pipeline_asks(number, asked, method, &json!([LOCK]));
            }
        }
    }

    fn pipeline_asks(&mut self, number: usize, asked: Asked, method: &str, params: &Value) {
        let now_us = self.now_us;
        let pause_us = self.rng.below(200) as u64;
        let pipeline = &mut self.pipelines[number];
        pipeline.requests += 1;
        let id = pipeline.requests;
        let text = format!("pipeline {number} asks, as {id}: {asked:?}");
        pipeline.asked.insert(id, (asked, now_us));
        pipeline.arrives_us = (now_us + 20 + pause_us).max(pipeline.arrives_us + 1);
        let (arrives_us, session) = (pipeline.arrives_us, pipeline.session);
        let session = session.expect("it is connected");
        self.note(session.0, &text);
        self.send_request(arrives_us, session, (id, method, params));
    }

    /// A client takes what it has been sent.
    pub(crate) fn pipeline_is_told(&mut self, n: usize, session: SessionId) {
        while let Some(number) = self.pipeline_of(session) {
            let Some(message) = self.next_message(n, session) else { return };
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            match message["method"].as_str() {
                Some("echo") => self.answer_echo(n, session, &message),
                Some(turn @ ("locked" | "stolen")) => {
                    let pipeline = &mut self.pipelines[number];
                    pipeline.lock = pipeline.lock.map(|_| turn == "locked");
                    if turn == "locked" {
                        (pipeline.turn, pipeline.known) = (pipeline.turn + 1, pipeline.told());
                    }
                    self.note(n, &format!("pipeline {number} is told: {turn}"));
                }
                Some("update2") => {
                    let pipeline = &mut self.pipelines[number];
                    let [monitor, rows] = [0, 1].map(|at| &message["params"][at]);
                    if monitor.as_str() == pipeline.guarded.as_deref() {
                        pipeline.watched = told_number(rows, pipeline.watched);
                        self.owner_was_told(n, number);
                    }
                }
                Some(other) => panic!("{other}"),
                None => self.pipeline_answered(number, &message),
            }
        }
    }

    /// Who owns the lock of a member has been told of the number under it: nobody else has written that since. A relay
    /// has its source's word for a lock when something is written under it, and not before.
    fn owner_was_told(&mut self, n: usize, number: usize) {
        let pipeline = &self.pipelines[number];
        let is_owner = pipeline.lock == Some(true) && !self.nodes[n].is_relay();
        let numbers = pipeline.known.zip(pipeline.watched);
        let Some((known, watched)) = numbers.filter(|_| is_owner) else { return };
        let own = pipeline.asked.values().filter(|(asked, _)| matches!(asked, Asked::Guarded(_)));
        let own = own.count() as u64;
        must("locks", Guarded::told(&format!("pipeline {number}"), (known, own), watched));
    }

    fn pipeline_answered(&mut self, number: usize, message: &Value) {
        let id = message["id"].as_u64().expect("the id of a request");
        let pipeline = &mut self.pipelines[number];
        let (asked, asked_us) = pipeline.asked.remove(&id).expect("it is answered once");
        let session = pipeline.session.expect("it has a session");
        let (n, life, _) = session;
        let mut before =
            pipeline.asked.range(..id).filter(|(_, (earlier, _))| earlier.is_in_order());
        let earlier = before.next().map(|(id, _)| *id).filter(|_| asked.is_in_order());
        self.note(n, &format!("pipeline {number} is answered, as {id}: {}", message["result"]));
        let who = format!("pipeline {number} at server {n}");
        must("order", Order::answered(&who, id, earlier));
        let error = &message["error"];
        let is_away = is_not_served(error);
        let is_canceled = *error == json!("canceled") && self.nodes[n].is_relay();
        if is_away || is_canceled {
            let text = format!("pipeline {number} asks for {asked:?} and is told {error}");
            self.sent_away(n, &text);
            // What a relay had sent on may have been done.
            match asked {
                Asked::Insert(name) | Asked::Wait(name, _) if is_away => self.checks.refused(&name),
                Asked::Insert(_) | Asked::Wait(..) => self.checks.unknown(),
                _ => {}
            }
            return self.hang_up(session);
        }
        assert!(error.is_null(), "{asked:?}: {message}");
        let result = &message["result"];
        let wrong = result.as_array().into_iter().flatten().find_map(|done| done["error"].as_str());
        let count_of = |at: usize| result[at]["count"].as_u64();
        match asked {
            Asked::Begin => assert!(result[0]["uuid"].is_array(), "{message}"),
            Asked::Write => {
                must("order", self.checks.order.wrote(&who, count_of(0)));
            }
            Asked::Look(last) => {
                let found = result[0]["rows"][0]["n"].as_u64();
                must("order", self.checks.order.found(&who, last, found));
            }
            Asked::Wait(name, _) if wrong == Some("timed out") => self.checks.refused(&name),
            Asked::Insert(name) | Asked::Wait(name, _) => {
                assert_eq!(wrong, None, "{name}: {message}");
                let id = id_in(result.as_array().expect("results"));
                self.checks.acknowledged((n, life), (&name, id), asked_us);
            }
            // Somebody may have been there before.
            Asked::Nothing | Asked::Guard | Asked::Unlock => {}
            Asked::Watch(guarded) => {
                let pipeline = &mut self.pipelines[number];
                if pipeline.guarded.as_deref() == Some(guarded.as_str()) {
                    pipeline.watched = told_number(result, None);
                }
            }
            Asked::Lock(time, by_force) => {
                let pipeline = &mut self.pipelines[number];
                let is_locked = result["locked"] == json!(true);
                pipeline.turn += 1;
                pipeline.known = pipeline.told().filter(|_| is_locked && !by_force);
                // It may have been given up since.
                pipeline.lock = pipeline.lock.map(|lock| match pipeline.locks == time {
                    true => is_locked,
                    false => lock,
                });
            }
            Asked::Known(turn) | Asked::Guarded(turn) => {
                let found = result[1]["rows"][0]["n"].as_u64().filter(|_| wrong.is_none());
                let guarded = self.guarded_row((n, life));
                let pipeline = &mut self.pipelines[number];
                if turn != pipeline.turn || guarded != pipeline.guarded {
                    return;
                }
                let known = pipeline.known;
                let writes = u64::from(matches!(asked, Asked::Guarded(_)));
                pipeline.known = found.map(|found| found + writes);
                if let Some((known, found)) = known.zip(found) {
                    must("locks", self.checks.guarded.found(&who, known, found));
                }
            }
        }
    }
}

/// The number of the row that is watched alone, behind what was told of it (`<table-updates2>`).
fn told_number(rows: &Value, before: Option<u64>) -> Option<u64> {
    let Some(update) = rows["T"].as_object().and_then(|rows| rows.values().next()) else {
        return before;
    };
    let begun = update.get("initial").or_else(|| update.get("insert"));
    match (begun, update.get("modify")) {
        // What has the value that values begin with is not told.
        (Some(row), _) => Some(row["n"].as_u64().unwrap_or(0)),
        (None, Some(row)) => row["n"].as_u64().or(before),
        (None, None) => None,
    }
}

/// Whether a row is none of those that are counted.
pub(crate) fn is_uncounted(name: &str) -> bool {
    name == COUNTER || ["register ", "own ", "guarded "].iter().any(|kind| name.starts_with(kind))
}
