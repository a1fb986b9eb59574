//! Sessions of clients, whatever these ask for.

use serde_json::{Value, json};
use weir_json::Framer;
use weir_server::event::{Event, SessionId};

use crate::checks::must;
use crate::clients::Client;
use crate::world::World;

/// A session: at which server, and in which life of its process.
pub(crate) type Session = (usize, u64, SessionId);

impl World {
    /// A client tries a server: the session, if somebody listens there.
    pub(crate) fn open_session(&mut self) -> Option<Session> {
        let n = self.rng.below(self.nodes.len());
        self.open_session_at(n)
    }

    /// A client tries this server.
    pub(crate) fn open_session_at(&mut self, n: usize) -> Option<Session> {
        let now_us = self.now_us;
        let node = &self.nodes[n];
        let is_up = node.server.is_some() && node.paused_until_us <= now_us;
        if !is_up || node.remote.is_none() || node.db.is_none() && !node.is_relay() {
            return None;
        }
        let life = node.life;
        Some((n, life, self.accept_client(now_us, n)))
    }

    /// A client ends its session.
    pub(crate) fn hang_up(&mut self, (n, _, session): Session) {
        self.event_at(self.now_us, n, Event::Closed { session, error: None });
        self.session_ended(n, session);
    }

    /// A server has ended a session: that is seldom well when faults are over.
    pub(crate) fn disconnected(&mut self, n: usize, session: SessionId) {
        if let Some(who) = self.whose(session) {
            self.sent_away(n, &format!("{who} is disconnected by server {n}"));
        }
        self.session_ended(n, session);
    }

    /// A server does not give a client what it asks for.
    pub(crate) fn sent_away(&mut self, n: usize, text: &str) {
        self.note(n, text);
        // Who was removed says so to its clients whenever it hears of that.
        if self.is_over || self.nodes[n].is_leaving || self.nodes[n].is_spare {
            return;
        }
        // What a client asked of a relay may come late, and a conversion sends away clients of all servers.
        let converts = self.clients.iter().any(Client::converts);
        let all = (0..self.nodes.len()).map(|n| self.tries_at(n)).max().unwrap_or(0);
        let tries = if converts { all } else { self.tries_at(n) };
        must("liveness", self.checks.liveness.sent_away(self.now_us, text, tries));
    }

    /// Which client has a session.
    fn whose(&self, session: SessionId) -> Option<String> {
        let client = self.client_of(session).map(|number| format!("client {number}"));
        let pipeline = || self.pipeline_of(session).map(|number| format!("pipeline {number}"));
        let bystander = || self.bystander_of(session).map(|number| format!("bystander {number}"));
        let visitor = || self.visitor_of(session).map(|number| format!("visitor {number}"));
        client.or_else(pipeline).or_else(bystander).or_else(visitor)
    }

    /// A server has ended a session, or its process has ended, or a client has gone.
    pub(crate) fn session_ended(&mut self, n: usize, session: SessionId) {
        self.nodes[n].received.remove(&session);
        self.visit_ended(session);
        self.pipeline_ended(session);
        self.bystander_ended(session);
        self.client_ended(session);
    }

    /// A client's request arrives at this time.
    pub(crate) fn send_request(
        &mut self,
        at_us: u64,
        (n, _, session): Session,
        (id, method, params): (u64, &str, &Value),
    ) {
        let message = json!({"id": id, "method": method, "params": params}).to_string();
        self.event_at(at_us, n, Event::Message { session, bytes: message.into_bytes() });
    }

    /// The next whole message that a client has been sent.
    pub(crate) fn next_message(&mut self, n: usize, session: SessionId) -> Option<Vec<u8>> {
        let stream = self.nodes[n].received.get_mut(&session)?;
        let end = whole(stream).ok()??;
        Some(stream.drain(..end).collect())
    }

    /// A server asks whether its client is still there.
    pub(crate) fn answer_echo(&mut self, n: usize, session: SessionId, message: &Value) {
        let reply = json!({"id": message["id"], "result": message["params"], "error": null});
        let bytes = reply.to_string().into_bytes();
        self.event_at(self.now_us, n, Event::Message { session, bytes });
    }
}

/// Whether a server answers that it does not serve the database, or not yet.
pub(crate) fn is_not_served(error: &Value) -> bool {
    let texts = ["database not available", "unknown database"];
    texts.iter().any(|text| error["error"] == json!(text))
}

/// Where the first whole message ends.
pub(crate) fn whole(stream: &[u8]) -> Result<Option<usize>, String> {
    if stream.is_empty() {
        return Ok(None);
    }
    let end = Framer::new().feed(stream).map_err(|error| error.to_string())?;
    Ok(end)
}
