//! Monitors of sessions (RFC 7047 §4.1.5): what a session watches, what its monitors begin with, and
//! long messages on their way.

mod first_rows;
mod pages;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_monitor::MonitorKey;

use crate::database::Databases;
use crate::ids::{Bytes, DbId, SessionId, WorkId};
use crate::monitors::first_rows::Herds;
use crate::monitors::pages::Streams;
use crate::monitors::requests::Changing;
use crate::reply::Reply;
use crate::session::Sessions;
use crate::session::limits::OVERHEAD_BYTES;
use crate::shell::Shell;
use crate::work::Rest;

pub(crate) use first_rows::Begun;
pub(crate) use pages::{Receiver, StreamId};
pub(crate) use requests::Changed;

/// How long initial rows are kept for others who ask for the same, after the last who did, in
/// microseconds.
const INITIAL_KEPT_US: u64 = 2_000_000;

/// Results from this size on are not copied into their message, in bytes.
const SHARED_BYTES_MIN: usize = 64 << 10;

/// One monitor of a session.
#[derive(Clone, Debug)]
struct Monitor {
    /// Canonical JSON text of the id the client chose.
    id: Vec<u8>,
    /// The database that is watched.
    db: DbId,
    /// The monitor's key among those of its database.
    key: MonitorKey,
    /// Length of the texts that it was made from.
    bytes: usize,
}

/// What a helper composes.
#[derive(Debug)]
enum Out {
    /// The rows that monitors begin with.
    Initial(first_rows::Composing),
    /// The next piece of a long message.
    Piece { stream: StreamId, from: Option<Rest> },
    /// The difference that other conditions make to a monitor.
    Change(Changing),
}

/// What the sessions watch.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// The monitors of each session, in the order of their making.
    by_session: BTreeMap<SessionId, Vec<Monitor>>,
    /// Monitors that wait for their first rows.
    herds: Herds,
    /// Long messages on their way.
    streams: Streams,
    out: BTreeMap<WorkId, Out>,
    /// `ovsdb-server/disable-monitor-cond`
    no_conditions: bool,
    /// When initial rows kept for a herd of equal monitors go.
    forget_us: Option<u64>,
}

impl Subscriptions {
    fn of(&self, session: SessionId) -> &[Monitor] {
        self.by_session.get(&session).map_or(&[], Vec::as_slice)
    }

    fn find(&self, session: SessionId, id: &[u8]) -> Option<&Monitor> {
        self.of(session).iter().find(|monitor| monitor.id == id)
    }

    /// The database of the monitor that the client calls so, in JSON text.
    pub(crate) fn db_of(&self, session: SessionId, id: &[u8]) -> Option<DbId> {
        self.find(session, id).map(|monitor| monitor.db)
    }

    /// How many monitors a session has.
    pub(crate) fn count(&self, session: SessionId) -> usize {
        self.of(session).len()
    }

    /// Bytes kept for a session's monitors.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        self.of(session).iter().map(|monitor| monitor.bytes + OVERHEAD_BYTES).sum()
    }

    /// From now on there are only monitors of RFC 7047.
    pub(crate) fn disable_conditions(&mut self) {
        self.no_conditions = true;
    }

    /// A session has left, and with it all that it watched.
    pub(crate) fn forget_session(
        &mut self,
        shell: &mut Shell,
        databases: &mut Databases,
        session: SessionId,
    ) {
        self.leave_stream(shell, session);
        for monitor in self.by_session.remove(&session).into_iter().flatten() {
            databases.remove_monitor(monitor.db, monitor.key);
        }
    }

    /// A database goes, or becomes another one: sessions that know of such things learn which
    /// monitors went with it. `kept` are the keys, ascending, of those that go on.
    pub(crate) fn cancel(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        databases: &mut Databases,
        db: DbId,
        kept: &[MonitorKey],
    ) {
        let ends =
            |monitor: &Monitor| monitor.db == db && kept.binary_search(&monitor.key).is_err();
        for (&id, monitors) in &mut self.by_session {
            let session = sessions.get(id).expect("monitors go with their session");
            for monitor in monitors.extract_if(.., |monitor| ends(monitor)) {
                databases.disown_monitor(db, monitor.key);
                if session.is_db_change_aware() {
                    let params = [b"[".as_slice(), &monitor.id, b"]"].concat();
                    shell.send(id, weir_wire::notification("monitor_canceled", &params));
                }
            }
        }
    }

    /// Sends a session what is pending for it: what it changed, it sees before the reply.
    pub(crate) fn flush_session(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: SessionId,
    ) {
        let mut monitors = self.of(id);
        if monitors.is_empty() {
            return;
        }
        while let Some(first) = monitors.first() {
            let length = monitors.iter().take_while(|m| m.db == first.db).count();
            let (these, rest) = monitors.split_at(length);
            monitors = rest;
            // A session may have left before its reply was ready.
            let Some(session) = sessions.get(id) else { return };
            if !session.gate().is_working_on(first.db) {
                let keys: Vec<MonitorKey> = these.iter().map(|m| m.key).collect();
                databases.flush_monitors(shell, sessions, first.db, &keys);
            }
        }
    }

    /// Sends a result, copied only if that costs little, to a session that has been told what comes
    /// before it.
    pub(crate) fn send_result(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        id: SessionId,
        request: &[u8],
        result: Vec<u8>,
    ) {
        // The session may have left meanwhile.
        if !sessions.has(id) {
            return;
        }
        if result.len() < SHARED_BYTES_MIN {
            shell.send(id, weir_wire::reply_result(request, &result));
        } else {
            send_around(shell, id, request, &[], Arc::new(result), b"");
        }
    }

    /// Answers a request.
    pub(crate) fn answer(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: SessionId,
        request: &[u8],
        reply: Reply,
    ) {
        if !sessions.has(id) || matches!(reply, Reply::Later) {
            return;
        }
        self.flush_session(shell, sessions, databases, id);
        match reply {
            Reply::Result(result) => self.send_result(shell, sessions, id, request, result),
            Reply::Later => {}
            Reply::Error(error) => shell.send(id, weir_wire::reply_error(request, &error)),
            Reply::Shared { before, body, behind } => {
                send_around(shell, id, request, &before, body, behind);
            }
        }
    }

    /// When something is due: rows to be composed or forgotten.
    pub(crate) fn next_us(&self) -> Option<u64> {
        [self.herds.next_us(), self.forget_us].into_iter().flatten().min()
    }

    /// The herd is over: what was kept for it goes.
    pub(crate) fn forget_initial_if_due(&mut self, shell: &mut Shell, databases: &mut Databases) {
        if self.forget_us.is_some_and(|at| at <= shell.now_us()) {
            self.forget_us = None;
            databases.forget_initial();
            self.forget_idle_streams(shell);
        }
    }

    /// What helpers compose: what, on which database, and for whom.
    pub(crate) fn at_work(
        &self,
    ) -> impl Iterator<Item = (&'static str, Option<DbId>, Option<SessionId>)> {
        self.out.values().filter_map(|out| match out {
            Out::Initial(composing) => Some(("first rows", Some(composing.db()), None)),
            Out::Piece { .. } => None,
            Out::Change(changing) => Some(("conditions", None, Some(changing.session()))),
        })
    }
}

/// Sends a result whose `body` others may get, too.
fn send_around(
    shell: &mut Shell,
    id: SessionId,
    request: &[u8],
    before: &[u8],
    body: Bytes,
    behind: &[u8],
) {
    let (mut head, tail) = weir_wire::reply_result_around(request);
    head.extend_from_slice(before);
    shell.send_parts(vec![id], Arc::new(head), body);
    shell.send(id, [behind, tail].concat());
}
