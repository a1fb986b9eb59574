//! Monitors that are told each change by itself (`weir_monitor`, docs/decisions/013): each reads the
//! change log from its place on. One that falls behind further than the log reaches is disconnected, and
//! comes back with the id that it knows.
//!
//! Such a monitor begins like any other, for equal ones share what they begin with. Once it has its first
//! rows, the database's monitors know it no longer.

use std::sync::Arc;

use weir_data::{Error, IdKind, Uuid};
use weir_history::{History, Place};
use weir_monitor::{Feed, MonitorKey};

use crate::database::history::DECODED_BYTES;
use crate::database::pacing::Watch;
use crate::database::{Databases, Db};
use crate::effect::Level;
use crate::ids::{Bytes, DbId, SessionId};
use crate::session::{Session, Sessions};
use crate::shell::Shell;
use crate::storage::Storage;

/// So many bytes of changes are told in a step; the rest comes in the next one.
const STEP_BYTES_MAX: usize = 256 << 10;

/// What a monitor that is told each change has asked for besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedOptions {
    /// The id of the oldest state that is remembered, in every update.
    pub(crate) low_water: bool,
    /// The index of the database, in updates that lead to the state as it is.
    pub(crate) index: bool,
}

/// A monitor that is told each change by itself.
#[derive(Debug)]
pub(super) struct Feeding {
    pub(super) key: MonitorKey,
    session: SessionId,
    feed: Feed,
    options: FeedOptions,
    /// The message up to the id of the state.
    head: Bytes,
    /// What it has been told; `None` before its first rows.
    at: Option<Place>,
}

/// What a step has told.
#[derive(Default)]
pub(super) struct Fed {
    /// Bytes that were composed.
    bytes: usize,
    /// There is more, for those who take it.
    pub(super) has_more: bool,
}

/// What equal monitors at the same place are told: the messages behind their heads, and the place they
/// lead to.
struct Told {
    feed: Feed,
    options: FeedOptions,
    from: Place,
    to: Place,
    bodies: Vec<Bytes>,
}

impl Databases {
    /// A monitor is to be told each change once it has its first rows.
    ///
    /// # Errors
    /// What it asks for is in no log, or there is none.
    pub(crate) fn add_feed(
        &mut self,
        id: DbId,
        (key, options): (MonitorKey, FeedOptions),
        session: SessionId,
        name: &[u8],
    ) -> Result<(), Error> {
        let db = self.open(id);
        if !db.history().kept().is_some_and(History::is_enabled) {
            let details = "this database has no log of changes (--no-standalone-history)";
            return Err(Error::new("not supported", details));
        }
        let feed = db.watch.monitors.feed(key, db.tables.schema());
        let feed = feed.expect("the monitor has just been made")?;
        let head = [b"{\"id\":null,\"method\":\"weir_update\",\"params\":[", name, b","].concat();
        let head = Bytes::new(head);
        db.watch.feeds.push(Feeding { key, session, feed, options, head, at: None });
        Ok(())
    }

    /// A monitor is given its first rows, or what it had missed: it has this state. What follows behind
    /// that, if anything.
    pub(crate) fn begin_updates(
        &mut self,
        id: DbId,
        key: MonitorKey,
        (known, state): (Option<Uuid>, Option<Uuid>),
    ) -> Option<Vec<u8>> {
        if !self.is_fed(id, key) {
            return self.says_other_state(id, key, known, state);
        }
        let Db { history, watch, tables, storage, .. } = self.open(id);
        let feeding = watch.feeds.iter_mut().find(|feeding| feeding.key == key)?;
        let state = state.expect("who is told each change is told ids");
        let log = history.kept().expect("it was there when the monitor was made");
        // A state that the log does not reach back to any more is one that nothing leads on from.
        let at = log.find(state, IdKind::Recorded, std::iter::empty()).unwrap_or(Place(0));
        feeding.at = Some(at);
        watch.monitors.remove(key, tables.schema());
        if feeding.options == FeedOptions::default() {
            return None;
        }
        let index = index_of(log, storage).filter(|_| log.chain().id() == state);
        let mut message = feeding.head.to_vec();
        begin_body(state, feeding.options.low_water.then(|| log.low_water()), &mut message);
        message.extend_from_slice(b"{}");
        end_body(feeding.options.index.then_some(index), &mut message);
        Some(message)
    }

    /// Whether a monitor is told each change.
    pub(crate) fn is_fed(&self, id: DbId, key: MonitorKey) -> bool {
        let db = self.get(id);
        db.is_some_and(|db| db.watch.feeds.iter().any(|feeding| feeding.key == key))
    }

    /// Tells a session what is new, as much as a step suffices for. True if there is more, which is to
    /// come before replies: the session takes it.
    pub(crate) fn feed_session(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        id: DbId,
        of: SessionId,
    ) -> bool {
        let takes = |db: &Db| {
            db.feeds_behind().any(|feeding| feeding.session == of)
                && sessions.get(of).is_some_and(|session| !session.is_mute(id))
        };
        if !self.get(id).is_some_and(takes) {
            return false;
        }
        if !self.may_tell() {
            return true;
        }
        let Fed { bytes, has_more } = self.feed(shell, sessions, id, Some(of), false);
        self.step.note_told((bytes / DECODED_BYTES) as u64);
        has_more
    }

    /// Tells what is new, to a session or to all: whole, or as much as a step suffices for.
    pub(super) fn feed(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        id: DbId,
        of: Option<SessionId>,
        is_whole: bool,
    ) -> Fed {
        let db = self.open(id);
        let Db { history, watch, tables, storage, .. } = db;
        if watch.feeds.is_empty() {
            return Fed::default();
        }
        let log = history.kept().expect("there is a log where anybody is told each change");
        let (low_water, last) = (log.low_water(), log.chain().id());
        let (end, mut fed) = (log.place(), Fed::default());
        let (mut told, mut lost): (Vec<Told>, Vec<SessionId>) = (Vec::new(), Vec::new());
        let is_meant = |session: SessionId| of.is_none_or(|of| of == session);
        for feeding in watch.feeds.iter_mut().filter(|feeding| is_meant(feeding.session)) {
            let Some(from) = feeding.at.filter(|at| *at < end) else { continue };
            let takes = |session: &Session| !session.is_mute(id);
            if !sessions.get(feeding.session).is_some_and(takes) {
                continue;
            }
            let options = feeding.options;
            let known = |told: &Told| {
                told.from == from && told.options == options && told.feed.is_like(&feeding.feed)
            };
            let at = match told.iter().position(known) {
                Some(at) => at,
                None => {
                    let Some(changes) = log.since(from, IdKind::Recorded) else {
                        lost.push(feeding.session);
                        continue;
                    };
                    let feed = feeding.feed.clone();
                    let mut new = Told { feed, options, from, to: from, bodies: Vec::new() };
                    let (schema, mut bytes) = (tables.schema(), 0);
                    let mut entries = changes.deltas(schema);
                    while is_whole || bytes < STEP_BYTES_MAX {
                        let Some(entry) = entries.next() else {
                            // Changes of what no record has may have come behind.
                            new.to = end;
                            break;
                        };
                        let mut body = Vec::new();
                        begin_body(entry.id, options.low_water.then_some(low_water), &mut body);
                        new.feed.compose(&entry.delta, schema, &mut body);
                        let is_last = entry.id == last;
                        let index = options.index.then(|| index_of(log, storage));
                        end_body(index.map(|index| index.filter(|_| is_last)), &mut body);
                        bytes += body.len();
                        new.to = entry.place;
                        new.bodies.push(Bytes::new(body));
                    }
                    fed.bytes += bytes;
                    told.push(new);
                    told.len() - 1
                }
            };
            let Told { to, bodies, .. } = &told[at];
            for body in bodies {
                shell.send_parts(
                    vec![feeding.session],
                    Arc::clone(&feeding.head),
                    Arc::clone(body),
                );
            }
            feeding.at = Some(*to);
            fed.has_more |= *to < end;
        }
        for &session in &lost {
            let name = sessions.get(session).map_or("", Session::name);
            let text = format!("{name}: is further behind than the log of changes, disconnecting");
            shell.log("ovsdb_jsonrpc_server", Level::Warning, text);
        }
        self.overflowed.extend(lost);
        fed
    }
}

/// The index of a database that nobody but this server decides about: how many records there have been.
/// Members of clusters and relays say theirs in `_Server`.
fn index_of(log: &History, storage: &Storage) -> Option<u64> {
    (!storage.is_shared()).then(|| log.records())
}

/// The id of the state that an update leads to, and the low-water mark.
fn begin_body(id: Uuid, low_water: Option<Uuid>, out: &mut Vec<u8>) {
    let low_water = low_water.map_or("null".to_owned(), |id| format!("\"{id}\""));
    out.extend_from_slice(format!("\"{id}\",{low_water},").as_bytes());
}

/// The end of the message; with the index if it was asked for.
fn end_body(index: Option<Option<u64>>, out: &mut Vec<u8>) {
    if let Some(index) = index {
        let index = index.map_or("null".to_owned(), |index| index.to_string());
        out.extend_from_slice(format!(",{index}").as_bytes());
    }
    out.extend_from_slice(b"]}");
}

impl Watch {
    /// The sessions that are told each change.
    pub(super) fn fed_sessions(&self) -> impl Iterator<Item = SessionId> {
        self.feeds.iter().map(|feeding| feeding.session)
    }

    /// The sessions that have not been told each change yet, with the positions up to which they have.
    pub(super) fn behind(&self, log: &History) -> impl Iterator<Item = (SessionId, u64)> {
        self.feeds.iter().filter_map(|feeding| {
            let at = feeding.at.filter(|at| *at < log.place())?;
            let before = match log.since(at, IdKind::Recorded) {
                // Changes of what no record has are not told.
                Some(changes) => Place(changes.first()?.0 - 1),
                None => at,
            };
            Some((feeding.session, self.position_at(log, before)))
        })
    }

    /// The position of a place of the log. What is in the log has been shown, but for what came from the
    /// file at the start, and for conversions, up to which everybody has been told.
    pub(super) fn position_at(&self, log: &History, place: Place) -> u64 {
        self.shown.saturating_sub(log.place().0 - place.0)
    }
}

impl Db {
    /// Whether anybody has not been told each change yet.
    pub(super) fn is_feeding(&self) -> bool {
        self.feeds_behind().next().is_some()
    }

    /// Monitors that have not been told each change yet.
    fn feeds_behind(&self) -> impl Iterator<Item = &Feeding> {
        let end = self.history.kept().map(History::place);
        let is_behind = move |feeding: &&Feeding| feeding.at.is_some() && feeding.at < end;
        self.watch.feeds.iter().filter(is_behind)
    }
}
