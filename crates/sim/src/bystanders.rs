//! Clients that change nothing: whatever becomes of the cluster, the server that they are connected to answers
//! them.

use serde_json::{Value, json};
use weir_server::event::SessionId;

use crate::checks::must;
use crate::plan::Part;
use crate::sessions::{Session, is_not_served};
use crate::world::{Due, World};

/// How many there are, and the number of the first among all clients.
const BYSTANDERS: usize = 2;
const FIRST: usize = 200;

/// How long a `wait` whose time is up may have to wait for its turn where steps are short, in microseconds: more than a
/// hundred others that are long for a step may be before it, each of which is a batch of its own.
const TURN_US: u64 = 10_000_000;

/// How much longer another one may wait, in microseconds: when its time is up it runs once more, perhaps behind another
/// batch that a leader has patience with.
const SECOND_TURN_US: u64 = 2_500_000;

/// How long one thinks at most, in microseconds.
const PAUSE_US: usize = 100_000;

/// A client.
#[derive(Default)]
pub(crate) struct Bystander {
    session: Option<Session>,
    requests: u64,
    /// What it waits for the answer to; since when, and how long that may wait by itself.
    asked: Option<(&'static str, u64, u64)>,
    /// For how long helpers of its server had been slow when it asked.
    slow_us: u64,
    /// When its server was last seen without anything to answer with.
    kept_us: u64,
    /// The client has a monitor in this session.
    watches: bool,
}

impl World {
    /// Clients come as well that change nothing.
    pub fn add_bystanders(&mut self) {
        for number in 0..BYSTANDERS {
            self.bystanders.push(Bystander::default());
            self.parts.push(Part::Client(FIRST + number));
            self.due(self.now_us + 1_500_000, 0, Due::Bystander(number));
        }
    }

    /// A client has thought.
    pub(crate) fn bystander_goes_on(&mut self, number: usize) {
        if !self.plan.has(Part::Client(FIRST + number)) {
            return;
        }
        let now_us = self.now_us;
        let pause_us = 1 + self.rng.below(PAUSE_US) as u64;
        self.due(now_us + pause_us, 0, Due::Bystander(number));
        let Bystander { session, asked, .. } = self.bystanders[number];
        match (session, asked) {
            (Some((n, ..)), Some((what, since_us, wait_us))) => {
                // Who stands still answers nobody.
                let since_us = since_us.max(self.nodes[n].paused_until_us) + wait_us;
                let turn_us = match what {
                    "wait" if self.nodes[n].has_short_steps => TURN_US,
                    "wait" => SECOND_TURN_US,
                    // What is long for a step waits until a batch is decided, as such a wait does, and first rows that a
                    // helper has composed wait for the next one.
                    "select" | "monitor" if self.nodes[n].has_short_steps => SECOND_TURN_US,
                    _ => 0,
                };
                let who = format!("bystander {number} at server {n}, who asks for {what},");
                let slow_us = self.slow_us_at(n).saturating_sub(self.bystanders[number].slow_us);
                if self.has_database(n) {
                    // Until its first rows have come a relay keeps whoever asks.
                    let served_us = since_us.max(self.bystanders[number].kept_us);
                    let slow_us = slow_us + turn_us;
                    must("served", self.checks.served.looked(now_us, &who, served_us, slow_us));
                } else {
                    self.bystanders[number].kept_us = now_us;
                }
                let tries = (self.tries_at(n), self.tries_of_writers());
                must("liveness", self.checks.liveness.looked(now_us, &who, Some(since_us), tries));
            }
            _ if self.is_over => {}
            (None, _) => {
                let session = self.open_session();
                let bystander = &mut self.bystanders[number];
                (bystander.session, bystander.watches) = (session, false);
            }
            (Some(session), None) if self.rng.chance(5) => self.hang_up(session),
            (Some(_), None) => self.bystander_asks(number),
        }
    }

    fn bystander_asks(&mut self, number: usize) {
        let now_us = self.now_us;
        let (n, ..) = self.bystanders[number].session.expect("it is connected");
        self.bystanders[number].slow_us = self.slow_us_at(n);
        let wait_ms = [0, 20, 500][self.rng.below(3)];
        let dice = self.rng.below(5);
        let bystander = &mut self.bystanders[number];
        let (what, params, wait_ms) = match dice {
            0 => ("get_schema", json!(["Sim"]), 0),
            1 => ("weir_sync", json!(["Sim", wait_ms]), wait_ms),
            2 => {
                let never = json!({"op": "wait", "timeout": wait_ms, "table": "T",
                    "columns": ["name"], "where": [["name", "==", "nobody"]], "until": "==",
                    "rows": [{"name": "nobody"}]});
                ("wait", json!(["Sim", never]), wait_ms)
            }
            3 => {
                let count = json!({"op": "select", "table": "T", "columns": ["n"],
                    "where": [["name", "==", "counter"]]});
                ("select", json!(["Sim", count]), 0)
            }
            _ if bystander.watches => ("monitor_cancel", json!(["m"]), 0),
            _ => ("monitor", json!(["Sim", "m", {"T": {"columns": ["name"]}}]), 0),
        };
        bystander.requests += 1;
        let id = bystander.requests;
        bystander.asked = Some((what, now_us, wait_ms * 1000));
        let session = bystander.session.expect("it is connected");
        self.note(session.0, &format!("bystander {number} asks for {what}"));
        let method = if matches!(what, "wait" | "select") { "transact" } else { what };
        self.send_request(now_us + 20, session, (id, method, &params));
    }

    /// Whether a server has had something to answer with: a relay gets that from its source first.
    fn has_database(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        !node.is_relay() || node.has_answered || self.checks.has_rows((n, node.life))
    }

    pub(crate) fn bystander_of(&self, session: SessionId) -> Option<usize> {
        let is_it = |who: &Bystander| who.session.is_some_and(|(.., own)| own == session);
        self.bystanders.iter().position(is_it)
    }

    pub(crate) fn is_of_bystander(&self, session: SessionId) -> bool {
        self.bystander_of(session).is_some()
    }

    /// A session has ended.
    pub(crate) fn bystander_ended(&mut self, session: SessionId) {
        if let Some(number) = self.bystander_of(session) {
            let bystander = &mut self.bystanders[number];
            (bystander.session, bystander.asked) = (None, None);
        }
    }

    /// A client takes what it has been sent.
    pub(crate) fn bystander_is_told(&mut self, n: usize, session: SessionId) {
        while let Some(number) = self.bystander_of(session) {
            let Some(message) = self.next_message(n, session) else { return };
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            match message["method"].as_str() {
                Some("echo") => self.answer_echo(n, session, &message),
                // What others write.
                Some("update") => {}
                Some(other) => panic!("{other}"),
                None => self.bystander_answered(number, &message),
            }
        }
    }

    fn bystander_answered(&mut self, number: usize, message: &Value) {
        let bystander = &mut self.bystanders[number];
        assert_eq!(message["id"], json!(bystander.requests), "answers come in order");
        let (what, ..) = bystander.asked.take().expect("it has asked");
        let session = bystander.session.expect("it has a session");
        let error = &message["error"];
        if is_not_served(error) || *error == json!("canceled") {
            let text = format!("bystander {number} asks for {what} and is told {error}");
            self.sent_away(session.0, &text);
            return self.hang_up(session);
        }
        let is_late = what == "weir_sync" && error["error"] == json!("timed out");
        assert!(is_late || error.is_null(), "{what}: {message}");
        let bystander = &mut self.bystanders[number];
        match what {
            "monitor" => bystander.watches = true,
            "monitor_cancel" => bystander.watches = false,
            _ => {}
        }
        self.nodes[session.0].has_answered = true;
        self.checks.counts.served += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;

    /// Nobody writes, and heartbeats are a third of a second from each other.
    #[test]
    fn a_follower_with_nothing_to_do_asks_its_leader_at_once_what_is_committed() {
        let faults = Faults { sync_us: 300, delay_us: 300, ..Faults::default() };
        let mut world = World::new(1, 3, faults);
        world.forget_clients();
        world.run_for(5000);
        for (n, pause_ms) in [(0, 10), (1, 70), (2, 130), (0, 190), (1, 250), (2, 310), (1, 20)] {
            world.run_for(pause_ms);
            let asked_us = world.now_us;
            assert_eq!(world.result_of(n, "weir_sync", &json!(["Sim", 5000])), json!({}));
            let took_ms = (world.now_us - asked_us) / 1000;
            assert!(took_ms <= 60, "server {n} has answered after {took_ms} ms");
        }
    }
}
