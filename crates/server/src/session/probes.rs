//! Inactivity probes: an echo request to a silent client, then the end of its connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::effect::Level;
use crate::event::{Now, RemoteId, SessionId};
use crate::server::Server;

/// The id of a probe, as JSON text.
pub(crate) const ID: &[u8] = b"\"echo\"";

/// Default interval for network connections, in milliseconds.
const NETWORK_MS: u64 = 5000;

/// Sessions by the time at which they must be looked at next. Entries of sessions that are gone or
/// were heard of meanwhile are found out when they come up.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    due: BinaryHeap<Reverse<(u64, SessionId)>>,
}

impl Probes {
    /// The interval for a session of this name: none on unix sockets unless configured.
    pub(crate) fn interval_us(&self, name: &str, configured_ms: Option<u64>) -> u64 {
        let default = if name.starts_with("unix") { 0 } else { NETWORK_MS };
        // Shorter ones would only measure the scheduler.
        let interval = configured_ms.unwrap_or(default);
        if interval == 0 { 0 } else { interval.max(1000) * 1000 }
    }

    /// Looks at the session after an interval: when that is.
    pub(crate) fn watch(&mut self, session: SessionId, from_us: u64, interval_us: u64) -> u64 {
        let at_us = from_us.saturating_add(interval_us);
        if interval_us > 0 {
            self.due.push(Reverse((at_us, session)));
        }
        at_us
    }

    /// When the next session is to be looked at.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    fn pop_due(&mut self, now_us: u64) -> Option<(u64, SessionId)> {
        self.next_us().filter(|at| *at <= now_us)?;
        self.due.pop().map(|Reverse(entry)| entry)
    }
}

impl Server {
    /// Something came in.
    pub(crate) fn heard(&mut self, now: Now, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.heard_us = now.monotonic_us;
            session.probing = false;
        }
    }

    /// Everything that time alone brings about.
    pub(crate) fn run_timers(&mut self, now: Now) {
        self.run_waits(now);
        if self.serves {
            self.run_replications(now);
            self.run_connections(now);
        }
        self.forget_initial_if_due(now);
        while let Some((at_us, id)) = self.probes.pop_due(now.monotonic_us) {
            if self.sessions.get(&id).is_some_and(|session| session.probe_at_us == at_us) {
                self.probe(now, id);
            }
        }
        self.update_status_if_due(now);
    }

    /// Another interval for all sessions of a remote.
    pub(crate) fn probe_sessions_of(&mut self, remote: RemoteId, configured_ms: Option<u64>) {
        for (&id, session) in self.sessions.iter_mut().filter(|(_, s)| s.remote == remote) {
            session.probe_us = self.probes.interval_us(&session.identity.name, configured_ms);
            session.probe_at_us = self.probes.watch(id, session.heard_us, session.probe_us);
        }
    }

    fn probe(&mut self, now: Now, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let interval = session.probe_us;
        if interval == 0 {
            return;
        }
        if session.heard_us + interval > now.monotonic_us {
            session.probe_at_us = self.probes.watch(id, session.heard_us, interval);
            return;
        }
        if session.hold.is_stopped() {
            // Whatever it says, nobody listens.
            (session.heard_us, session.probing) = (now.monotonic_us, false);
            session.probe_at_us = self.probes.watch(id, now.monotonic_us, interval);
            return;
        }
        if session.probing {
            let seconds = interval / 1_000_000;
            let name = session.identity.name.clone();
            let text = format!(
                "{name}: no response to inactivity probe after {seconds} seconds, disconnecting"
            );
            self.log("reconnect", Level::Error, text);
            return self.disconnect(id);
        }
        session.probing = true;
        session.probe_at_us = self.probes.watch(id, now.monotonic_us, interval);
        self.send(id, br#"{"id":"echo","method":"echo","params":[]}"#.to_vec());
    }
}
