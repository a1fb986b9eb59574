//! What one client makes the server keep for it between its requests, and the most it may.

use crate::effect::Level;
use crate::event::SessionId;
use crate::server::Server;

/// Most bytes kept for one session: its waiting transactions, monitors and locks, by the texts
/// that asked for them. Beyond it, the session is disconnected.
pub(crate) const SESSION_BYTES_MAX: usize = 256 << 20;

/// What each of those costs besides its text, in bytes.
pub(crate) const OVERHEAD_BYTES: usize = 512;

impl Server {
    /// Disconnects a session for which too much is kept.
    pub(crate) fn check_kept(&mut self, id: SessionId) {
        if self.kept_bytes(id) <= SESSION_BYTES_MAX {
            return;
        }
        let Some(session) = self.sessions.get(&id) else { return };
        let name = &session.identity.name;
        let text = format!(
            "{name}: waiting transactions, monitors and locks exceed their limit, disconnecting"
        );
        self.log("ovsdb_jsonrpc_server", Level::Warning, text);
        self.disconnect(id);
    }

    fn kept_bytes(&self, id: SessionId) -> usize {
        let Some(session) = self.sessions.get(&id) else { return 0 };
        let monitors = session.monitors.iter().map(|monitor| monitor.bytes);
        let locks = session.locks.keys().map(String::len);
        let waiting: usize = self.dbs.values().map(|db| db.waiting.kept_bytes(id)).sum();
        let conversions = self.dbs.values().flat_map(|db| db.conversions.in_flight());
        let conversions = conversions.filter(|(origin, _)| origin.session == id);
        let conversions = conversions.map(|(_, bytes)| bytes);
        let kept: usize =
            monitors.chain(locks).chain(conversions).map(|bytes| bytes + OVERHEAD_BYTES).sum();
        kept + waiting
    }
}
