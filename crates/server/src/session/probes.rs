//! Inactivity probes: an echo request to a silent client, then the end of its connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_upstream::probe::{self, Probe, Silence};

use crate::effect::Level;
use crate::ids::{RemoteId, SessionId};
use crate::session::{Session, Sessions};
use crate::shell::Shell;

/// Default interval for network connections, in milliseconds.
const NETWORK_MS: u64 = 5000;

/// How one session is probed.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) probe: Probe,
    /// When the session will be looked at next; another time in the queue is out of date.
    at_us: Option<u64>,
}

impl Watched {
    /// Nobody probes a channel.
    pub(super) fn never() -> Self {
        Self { probe: Probe::new(0, 0), at_us: None }
    }
}

/// Sessions by the time at which they must be looked at next. Entries of sessions that are gone or
/// were heard of meanwhile are found out when they come up.
#[derive(Debug, Default)]
pub(super) struct Probes {
    due: BinaryHeap<Reverse<(u64, SessionId)>>,
}

impl Probes {
    /// A session of this name has begun.
    pub(super) fn begin(
        &mut self,
        shell: &Shell,
        session: SessionId,
        name: &str,
        configured_ms: Option<u64>,
    ) -> Watched {
        let probe = Probe::new(interval_ms(name, configured_ms), shell.now_us());
        let mut watched = Watched { probe, at_us: None };
        self.watch(session, &mut watched);
        watched
    }

    /// Looks at the session when its probe has something to do, if ever.
    fn watch(&mut self, session: SessionId, watched: &mut Watched) {
        watched.at_us = watched.probe.next_us();
        self.due.extend(watched.at_us.map(|at| Reverse((at, session))));
    }

    fn next_us(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    fn pop_due(&mut self, now_us: u64) -> Option<(u64, SessionId)> {
        self.next_us().filter(|at| *at <= now_us)?;
        self.due.pop().map(|Reverse(entry)| entry)
    }
}

/// The interval for a session of this name: none on unix sockets unless configured.
fn interval_ms(name: &str, configured_ms: Option<u64>) -> u64 {
    configured_ms.unwrap_or(if name.starts_with("unix") { 0 } else { NETWORK_MS })
}

impl Sessions {
    /// Something came in from a session, unless it has left meanwhile.
    pub(crate) fn heard(&mut self, shell: &Shell, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.watched.probe.heard(shell.now_us());
        }
    }

    /// When the next session is to be looked at.
    pub(crate) fn next_probe_us(&self) -> Option<u64> {
        self.probes.next_us()
    }

    /// Another interval for all sessions of a remote.
    pub(crate) fn set_probe_interval(&mut self, remote: RemoteId, configured_ms: Option<u64>) {
        let is_meant =
            |id: &SessionId, session: &Session| !id.is_channel() && session.remote == remote;
        for (&id, session) in self.by_id.iter_mut().filter(|(id, session)| is_meant(id, session)) {
            let Session { identity, watched, .. } = session;
            watched.probe.set_interval(interval_ms(&identity.name, configured_ms));
            self.probes.watch(id, watched);
        }
    }

    /// Probes who has been silent; answers with those that have been silent for too long.
    pub(crate) fn run_probes(&mut self, shell: &mut Shell) -> Vec<SessionId> {
        let mut dead = Vec::new();
        while let Some((at_us, id)) = self.probes.pop_due(shell.now_us()) {
            // A session may have left, or be looked at another time. An interval that is changed and changed back
            // files the same time twice.
            let Some(session) = self.by_id.get_mut(&id) else { continue };
            if session.watched.at_us.take_if(|at| *at == at_us).is_some()
                && !is_there(&mut self.probes, shell, id, session)
            {
                dead.push(id);
            }
        }
        dead
    }
}

/// Looks at a session; false if it does not answer.
fn is_there(probes: &mut Probes, shell: &mut Shell, id: SessionId, session: &mut Session) -> bool {
    let Session { identity, full_gates, watched, .. } = session;
    let due_us = watched.probe.next_us().expect("a session without an interval is not looked at");
    if *full_gates > 0 && due_us <= shell.now_us() {
        // Whatever it says, nobody listens; but its own probes, which are not answered, find that somebody is there.
        watched.probe.heard(shell.now_us());
        shell.send(id, probe::request());
    }
    match watched.probe.run(shell.now_us()) {
        // It was heard of meanwhile.
        None => {}
        Some(Silence::Idle(_)) => shell.send(id, probe::request()),
        Some(lost @ Silence::Lost(_)) => {
            shell.log("reconnect", Level::Error, lost.text(&identity.name));
            return false;
        }
    }
    probes.watch(id, watched);
    true
}
