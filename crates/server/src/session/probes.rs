//! Inactivity probes: an echo request to a silent client, then the end of its connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::effect::Level;
use crate::ids::{RemoteId, SessionId};
use crate::session::{Session, Sessions};
use crate::shell::Shell;

/// The id of a probe, as JSON text.
pub(crate) const ID: &[u8] = b"\"echo\"";

/// Default interval for network connections, in milliseconds.
const NETWORK_MS: u64 = 5000;

/// How one session is probed.
#[derive(Debug)]
pub(super) struct Probe {
    /// The interval in microseconds, 0 for none.
    interval_us: u64,
    /// When anything last came in.
    pub(super) heard_us: u64,
    /// A probe is out.
    pub(super) is_out: bool,
    /// When the session will be looked at next; another time in the queue is out of date.
    at_us: u64,
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
    ) -> Probe {
        let heard_us = shell.now_us();
        let interval_us = interval_us(name, configured_ms);
        let mut probe = Probe { interval_us, heard_us, is_out: false, at_us: 0 };
        self.watch(session, heard_us, &mut probe);
        probe
    }

    /// Looks at the session after an interval.
    fn watch(&mut self, session: SessionId, from_us: u64, probe: &mut Probe) {
        probe.at_us = from_us.saturating_add(probe.interval_us);
        if probe.interval_us > 0 {
            self.due.push(Reverse((probe.at_us, session)));
        }
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
fn interval_us(name: &str, configured_ms: Option<u64>) -> u64 {
    let default = if name.starts_with("unix") { 0 } else { NETWORK_MS };
    // Shorter ones would only measure the scheduler.
    let interval = configured_ms.unwrap_or(default);
    if interval == 0 { 0 } else { interval.max(1000) * 1000 }
}

impl Sessions {
    /// Something came in from a session, unless it has left meanwhile.
    pub(crate) fn heard(&mut self, shell: &Shell, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.probe.heard_us = shell.now_us();
            session.probe.is_out = false;
        }
    }

    /// When the next session is to be looked at.
    pub(crate) fn next_probe_us(&self) -> Option<u64> {
        self.probes.next_us()
    }

    /// Another interval for all sessions of a remote.
    pub(crate) fn set_probe_interval(&mut self, remote: RemoteId, configured_ms: Option<u64>) {
        for (&id, session) in self.by_id.iter_mut().filter(|(_, s)| s.remote == remote) {
            let Session { identity, probe, .. } = session;
            probe.interval_us = interval_us(&identity.name, configured_ms);
            self.probes.watch(id, probe.heard_us, probe);
        }
    }

    /// Probes who has been silent; answers with those that have been silent for too long.
    pub(crate) fn run_probes(&mut self, shell: &mut Shell) -> Vec<SessionId> {
        let mut dead = Vec::new();
        while let Some((at_us, id)) = self.probes.pop_due(shell.now_us()) {
            let session = self.by_id.get_mut(&id).filter(|session| session.probe.at_us == at_us);
            if let Some(session) = session
                && !probe(&mut self.probes, shell, id, session)
            {
                dead.push(id);
            }
        }
        dead
    }
}

/// Looks at a session; false if it does not answer.
fn probe(probes: &mut Probes, shell: &mut Shell, id: SessionId, session: &mut Session) -> bool {
    let Session { identity, gate, probe, .. } = session;
    let interval_us = probe.interval_us;
    if interval_us == 0 {
        return true;
    }
    if probe.heard_us + interval_us > shell.now_us() {
        probes.watch(id, probe.heard_us, probe);
        return true;
    }
    if gate.is_stopped() {
        // Whatever it says, nobody listens.
        (probe.heard_us, probe.is_out) = (shell.now_us(), false);
        probes.watch(id, shell.now_us(), probe);
        return true;
    }
    if probe.is_out {
        let (name, seconds) = (&identity.name, interval_us / 1_000_000);
        let text = format!(
            "{name}: no response to inactivity probe after {seconds} seconds, disconnecting"
        );
        shell.log("reconnect", Level::Error, text);
        return false;
    }
    probe.is_out = true;
    probes.watch(id, shell.now_us(), probe);
    shell.send(id, br#"{"id":"echo","method":"echo","params":[]}"#.to_vec());
    true
}
