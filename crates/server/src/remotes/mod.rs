//! Remotes: where the server listens and to whom it connects, given on the command line, by admin
//! commands, or in tables.

mod connections;
mod following;
mod status;
mod tables;
mod tls;

use std::collections::{BTreeMap, BTreeSet};

use weir_data::{Delta, TableId};

use crate::effect::{Level, RemoteOptions, TlsSettings};
use crate::ids::{DbId, RemoteId};
use crate::remotes::connections::Outgoing;
use crate::remotes::status::StatusWriter;
use crate::remotes::tls::Tls;

pub(crate) use weir_upstream::connection::End;

/// One listener or connection that should be.
#[derive(Clone, Debug)]
struct Remote {
    id: RemoteId,
    options: RemoteOptions,
    way: Way,
    /// The listener has been opened, or has failed once.
    tried: bool,
}

/// In or out.
#[derive(Clone, Debug)]
enum Way {
    /// Clients come in, at this port if it is one of TCP.
    In { port: Option<u16> },
    /// We go out.
    Out(Outgoing),
}

/// What is wrong with a remote or a target, and how much it matters.
type Complaints = BTreeMap<String, (Level, String)>;

/// The configured remotes and what follows from them.
#[derive(Debug)]
pub(crate) struct Remotes {
    /// As configured; `db:` ones stand for what a table says.
    configured: BTreeMap<String, RemoteOptions>,
    /// By target.
    open: BTreeMap<String, Remote>,
    /// The tables that `db:` remotes, and options of TLS, are read from.
    sources: Vec<(DbId, TableId)>,
    /// The databases that `db:` remotes are read from.
    homes: Vec<DbId>,
    /// Whether any of them is one that goes out.
    any_goes_out: bool,
    /// Complaints about `db:` remotes that have been logged.
    complaints: Complaints,
    /// The databases of the start are open: remotes may be looked up in them.
    is_started: bool,
    /// Something has changed that remotes may depend on.
    is_stale: bool,
    next: u64,
    /// The options of TLS.
    tls: Tls,
    /// Databases that have not joined their clusters yet.
    awaited: BTreeSet<String>,
    /// What remotes' tables say of them.
    status: StatusWriter,
}

impl Remotes {
    pub(crate) fn new(tls: TlsSettings) -> Self {
        Self {
            configured: BTreeMap::new(),
            open: BTreeMap::new(),
            sources: Vec::new(),
            homes: Vec::new(),
            any_goes_out: false,
            complaints: Complaints::new(),
            is_started: false,
            is_stale: false,
            next: 0,
            tls: Tls::new(tls),
            awaited: BTreeSet::new(),
            status: StatusWriter::default(),
        }
    }

    /// What is configured, from now on.
    pub(crate) fn configure(&mut self, configured: BTreeMap<String, RemoteOptions>) {
        self.configured = configured;
    }

    /// What is configured.
    pub(crate) fn configured(&self) -> &BTreeMap<String, RemoteOptions> {
        &self.configured
    }

    /// The databases of the start are open: remotes may be looked up in them.
    pub(crate) fn start(&mut self) {
        self.is_started = true;
    }

    /// Something has changed that remotes may depend on.
    pub(crate) fn note_changed(&mut self) {
        self.is_stale = true;
    }

    /// Whether something has changed that has not been followed: it could not be read.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Whether every listener has been opened, or has failed once.
    pub(crate) fn all_tried(&self) -> bool {
        self.is_started && self.open.values().all(|remote| remote.tried)
    }

    /// The options of a remote's sessions.
    pub(crate) fn options(&self, id: RemoteId) -> RemoteOptions {
        let found = self.open.values().find(|remote| remote.id == id);
        found.map(|remote| remote.options.clone()).unwrap_or_default()
    }

    /// Whether a remote that was open once is not any more: numbers are given in order.
    pub(crate) fn is_closed(&self, id: RemoteId) -> bool {
        id.0 <= self.next && self.open.values().all(|remote| remote.id != id)
    }

    /// What is listened on or connected to.
    pub(crate) fn target(&self, id: RemoteId) -> Option<&str> {
        self.open.iter().find(|(_, remote)| remote.id == id).map(|(target, _)| target.as_str())
    }

    /// What has come of a target.
    fn get(&self, target: &str) -> Option<&Remote> {
        self.open.get(target)
    }

    /// The configured remotes that a table stands for.
    fn in_tables(&self) -> impl Iterator<Item = &str> {
        self.configured.keys().map(String::as_str).filter(|remote| remote.starts_with("db:"))
    }

    /// The connection of a remote, if it is one that goes out.
    fn outgoing(&mut self, id: RemoteId) -> Option<&mut Outgoing> {
        self.open.values_mut().find(|remote| remote.id == id).and_then(|remote| {
            match &mut remote.way {
                Way::In { .. } => None,
                Way::Out(outgoing) => Some(outgoing),
            }
        })
    }

    /// Connections that go out and are not there: the reference counts them as sessions.
    pub(crate) fn unconnected(&self) -> usize {
        let is_missing = |remote: &&Remote| match &remote.way {
            Way::In { .. } => false,
            Way::Out(outgoing) => outgoing.session.is_none(),
        };
        self.open.values().filter(is_missing).count()
    }

    /// Some remote has another way, is new or is gone.
    fn note_ways(&mut self) {
        self.any_goes_out = self.open.values().any(|remote| matches!(remote.way, Way::Out(_)));
    }

    /// When the next connection is to be tried, in microseconds. Every round asks this, mostly
    /// where there are listeners only.
    #[inline]
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.any_goes_out { self.next_attempt_us() } else { None }
    }

    fn next_attempt_us(&self) -> Option<u64> {
        let ways = self.open.values().map(|remote| &remote.way);
        let due = ways.filter_map(|way| match way {
            Way::In { .. } => None,
            Way::Out(outgoing) => outgoing.connection.due_us(),
        });
        due.min()
    }

    /// Whether a change may be one of remotes: it touches a table that names them.
    pub(crate) fn are_named_in(&self, db: DbId, delta: &Delta) -> bool {
        let is_meant = |table: TableId| self.sources.contains(&(db, table));
        !self.sources.is_empty() && delta.tables.iter().any(|table| is_meant(table.table))
    }
}
