//! Monitors of sessions (RFC 7047 §4.1.5): what a session watches, what its monitors begin with, and
//! long messages on their way.

mod first_rows;
mod pages;
mod requests;
mod resume;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_monitor::MonitorKey;

use crate::database::{Databases, Db};
use crate::effect::Effect;
use crate::ids::{Bytes, DbId, SessionId, WorkId, earliest};
use crate::monitors::first_rows::Herds;
use crate::monitors::pages::Streams;
use crate::monitors::requests::Changing;
use crate::monitors::resume::Resumed;
use crate::reply::Reply;
use crate::session::Sessions;
use crate::session::limits::OVERHEAD_BYTES;
use crate::shell::Shell;
use crate::work::{Rest, Word};

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
    /// What it occupies, as far as that has been counted.
    bytes: usize,
}

impl Monitor {
    /// What the monitor occupies outside of its database's monitors.
    fn own_bytes(&self) -> usize {
        self.id.len() + OVERHEAD_BYTES
    }

    /// Counts what the monitor occupies; answers with what was counted before, and now.
    fn count(&mut self, databases: &Databases) -> (usize, usize) {
        let shared = databases.get(self.db).map_or(0, |db| db.monitors().bytes_of(self.key));
        let bytes = self.own_bytes() + shared;
        (std::mem::replace(&mut self.bytes, bytes), bytes)
    }
}

/// The monitors of one session.
#[derive(Debug, Default)]
struct OfSession {
    /// By database, since what is told before a reply is told of each of them at once; of each in the order of their
    /// making.
    monitors: Vec<Monitor>,
    /// What they occupy, as far as that has been counted.
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
    by_session: BTreeMap<SessionId, OfSession>,
    /// What all monitors occupy outside of their databases.
    own_bytes: usize,
    /// Monitors that wait for their first rows.
    herds: Herds,
    /// Long messages on their way.
    streams: Streams,
    out: BTreeMap<WorkId, Out>,
    /// `ovsdb-server/disable-monitor-cond`
    no_conditions: bool,
    /// What monitors that came back have missed, for others who come back to the same.
    resumed: Resumed,
    /// When initial rows kept for a herd of equal monitors go.
    forget_us: Option<u64>,
}

impl Subscriptions {
    fn of(&self, session: SessionId) -> &[Monitor] {
        self.by_session.get(&session).map_or(&[], |of| of.monitors.as_slice())
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

    /// Bytes kept for what a session watches, as far as they have been counted, and for results that it has not got.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, |of| of.bytes) + self.streams.results_of(session)
    }

    /// Bytes kept for what all sessions watch and have not got, but for what their databases keep.
    pub(crate) fn all_kept_bytes(&self) -> usize {
        self.own_bytes + self.streams.all_results()
    }

    /// Counts again what each session's monitors occupy: the part of a monitor in what it shares
    /// grows when others leave.
    pub(crate) fn count_again(&mut self, databases: &Databases) {
        for of in self.by_session.values_mut() {
            of.bytes = of.monitors.iter_mut().map(|monitor| monitor.count(databases).1).sum();
        }
    }

    /// A session has one more monitor, which occupies so much.
    fn push(&mut self, databases: &Databases, session: SessionId, mut monitor: Monitor) -> usize {
        let (_, bytes) = monitor.count(databases);
        self.own_bytes += monitor.own_bytes();
        let of = self.by_session.entry(session).or_default();
        let at = of.monitors.partition_point(|other| other.db <= monitor.db);
        of.monitors.insert(at, monitor);
        of.bytes += bytes;
        bytes
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
        for (work, out) in &self.out {
            if let Out::Change(changing) = out
                && changing.session() == session
            {
                shell.ask(Effect::Say { id: *work, word: Word::Stop });
            }
        }
        for monitor in self.by_session.remove(&session).unwrap_or_default().monitors {
            self.own_bytes -= monitor.own_bytes();
            databases.remove_monitor(monitor.db, monitor.key);
        }
    }

    /// A database goes, or becomes another one: sessions that know of such things learn which
    /// monitors went with it, and are answered with. `kept` are the keys, ascending, of those that go on.
    pub(crate) fn cancel(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        db: DbId,
        kept: &[MonitorKey],
    ) -> Vec<SessionId> {
        let mut told = Vec::new();
        let ends =
            |monitor: &Monitor| monitor.db == db && kept.binary_search(&monitor.key).is_err();
        for (&id, OfSession { monitors, bytes }) in &mut self.by_session {
            let session = sessions.get(id).expect("monitors go with their session");
            let is_aware = session.is_db_change_aware();
            for monitor in monitors.extract_if(.., |monitor| ends(monitor)) {
                sessions.note_kept(id, 0);
                *bytes -= monitor.bytes;
                self.own_bytes -= monitor.own_bytes();
                databases.disown_monitor(db, monitor.key);
                if is_aware {
                    let params = [b"[".as_slice(), &monitor.id, b"]"].concat();
                    shell.send(id, weir_wire::notification("monitor_canceled", &params));
                    told.push(id);
                }
            }
        }
        told.dedup();
        told
    }

    /// Whether anything that a session's monitors of a database watch has changed since they were
    /// told.
    pub(crate) fn has_pending(&self, databases: &Databases, db: DbId, id: SessionId) -> bool {
        let Some(monitors) = databases.get(db).map(Db::monitors) else { return false };
        let mut own = self.of(id).iter().filter(|monitor| monitor.db == db);
        monitors.has_pending() && own.any(|monitor| monitors.is_behind(monitor.key))
    }

    /// The databases that a session watches.
    pub(crate) fn dbs_of(&self, id: SessionId) -> Vec<DbId> {
        let mut dbs: Vec<DbId> = self.of(id).iter().map(|monitor| monitor.db).collect();
        dbs.dedup();
        dbs
    }

    /// Sends a session what is pending for it: what it changed, it sees before the reply. Of what it is to be
    /// told of each change, as much as a step suffices for. Nothing of databases whose step of this round is
    /// spent: what others have changed there may as well come behind.
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
            if databases.may_tell(first.db) && !session.gate().is_working_on(first.db) {
                databases.feed_session(shell, sessions, (first.db, id), true);
                if databases.owes_before(first.db, id) {
                    continue;
                }
                let keys: Vec<MonitorKey> = these.iter().map(|m| m.key).collect();
                databases.flush_monitors(shell, sessions, first.db, &keys);
            }
        }
    }

    /// Sends a session what is pending of a database, whatever is to come before it.
    pub(crate) fn flush_of(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        (id, db): (SessionId, DbId),
    ) {
        let of_db = self.of(id).iter().filter(|monitor| monitor.db == db);
        let keys: Vec<MonitorKey> = of_db.map(|monitor| monitor.key).collect();
        databases.flush_monitors(shell, sessions, db, &keys);
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
            Reply::Shared { before, body, behind, follow } => {
                send_around(shell, id, request, &before, body, behind);
                follow.into_iter().for_each(|message| shell.send(id, message));
            }
        }
    }

    /// When something is due: rows to be composed or forgotten.
    pub(crate) fn next_us(&self) -> Option<u64> {
        earliest([self.herds.next_us(), self.forget_us])
    }

    /// The herd is over: what was kept for it goes.
    pub(crate) fn forget_initial_if_due(&mut self, shell: &mut Shell, databases: &mut Databases) {
        if self.forget_us.is_some_and(|at| at <= shell.now_us()) {
            self.forget_us = None;
            databases.forget_initial();
            self.resumed.forget();
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
