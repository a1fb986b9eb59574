//! What the server knows of one client.

pub(crate) mod dispatch;
pub(crate) mod gate;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod probes;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_monitor::MonitorKey;

use crate::event::{DbId, RemoteId};
use crate::session::gate::Hold;

/// One of a session's monitors.
#[derive(Clone, Debug)]
pub(crate) struct SessionMonitor {
    /// Canonical JSON text of the id the client chose.
    pub(crate) id: Vec<u8>,
    /// In which database.
    pub(crate) db: DbId,
    /// Its key among that database's monitors.
    pub(crate) key: MonitorKey,
    /// Length of the texts that it was made from.
    pub(crate) bytes: usize,
}

/// How a session asked for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// `lock`
    Wait,
    /// `steal`
    Steal,
}

/// Who a client is: travels with its requests, wherever they are executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// For logs.
    pub(crate) name: String,
    /// It may not write.
    pub(crate) read_only: bool,
    /// The RBAC role of its remote, empty for none (ovsdb-server(7) §4.1.3).
    pub(crate) role: String,
    /// Common name of its verified certificate.
    pub(crate) client: Option<String>,
}

impl Identity {
    /// As role-based access control sees it.
    pub(crate) fn client(&self) -> weir_engine::Client<'_> {
        weir_engine::Client { role: &self.role, id: self.client.as_deref() }
    }
}

/// A client connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// Who it is.
    pub(crate) identity: Arc<Identity>,
    /// The listener it came through.
    pub(crate) remote: RemoteId,
    /// `set_db_change_aware` (ovsdb-server(7) §4.1.18).
    pub(crate) db_change_aware: bool,
    /// It is too far behind to be sent updates.
    pub(crate) blocked: bool,
    /// Its monitors, in the order of their making.
    pub(crate) monitors: Vec<SessionMonitor>,
    /// Locks it has asked for and not released, owned or not.
    pub(crate) locks: BTreeMap<String, LockMode>,
    /// Inactivity probe interval in microseconds, 0 for none.
    pub(crate) probe_us: u64,
    /// When anything last came in.
    pub(crate) heard_us: u64,
    /// A probe is out.
    pub(crate) probing: bool,
    /// Its messages that wait, and for what.
    pub(crate) hold: Hold,
    /// When it will be looked at next; another time in the queue of probes is out of date.
    pub(crate) probe_at_us: u64,
}

impl Session {
    /// Whether no update is to be composed for it: it is too far behind, or its own work is out.
    pub(crate) fn takes_no_updates(&self) -> bool {
        self.blocked || self.hold.is_working()
    }

    /// The monitor that the client calls `id`.
    pub(crate) fn monitor(&self, id: &[u8]) -> Option<&SessionMonitor> {
        self.monitors.iter().find(|monitor| monitor.id == id)
    }
}
