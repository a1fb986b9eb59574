//! Monitors that are told each change by itself (`weir_monitor`, docs/decisions/013): each reads the
//! change log from its place on. What it has not been told is kept for it beyond the log's budget, within one
//! of its own (`weir_history::PINNED_BYTES_MAX`): all rows take their time on a slow line. One that falls
//! behind further is disconnected, and comes back with the id that it knows.
//!
//! Such a monitor begins like any other, for equal ones share what they begin with. Once it has its first
//! rows, the database's monitors know it no longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_data::{Error, IdKind, Schema, Uuid};
use weir_history::{History, Place};
use weir_monitor::{Feed, MonitorKey};

use crate::database::history::{ChangeLog, DECODED_BYTES};
use crate::database::pacing::Watch;
use crate::database::{Databases, Db};
use crate::ids::{Bytes, DbId, SessionId};
use crate::session::Sessions;
use crate::shell::Shell;
use crate::storage::Storage;

/// So many bytes of changes are told in a step, to all of a database together; the rest comes in the next
/// one.
const STEP_BYTES_MAX: usize = 256 << 10;

/// A change counts for so many bytes at least: to find it and begin an update takes its time, too.
const CHANGE_BYTES_MIN: usize = 256;

/// What a monitor that is told each change has asked for besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FeedOptions {
    /// The id of the oldest state that is remembered, in every update.
    pub(crate) low_water: bool,
    /// The index of the database, in updates that lead to the state as it is.
    pub(crate) index: bool,
}

/// A monitor that is told each change by itself, and whose it is.
type FeedKey = (SessionId, MonitorKey);

/// A monitor that is told each change by itself.
#[derive(Debug)]
struct Feeding {
    feed: Feed,
    options: FeedOptions,
    /// The message up to the id of the state.
    head: Bytes,
    /// Where the log was when it came, and the state there: its first rows are of no earlier one.
    since: (Place, Uuid),
    /// What it has been told; `None` before its first rows.
    at: Option<Place>,
    /// The log did not have the state any more that its first rows are of: nothing leads on from there.
    is_lost: bool,
}

/// The monitors of a database that are told each change by itself.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    all: BTreeMap<FeedKey, Feeding>,
    /// For whom changes were composed last: the next step begins behind it, so that all take turns.
    last: Option<FeedKey>,
}

impl Feeds {
    /// True if the monitor was one of them.
    pub(super) fn remove(&mut self, key: FeedKey) -> bool {
        self.all.remove(&key).is_some()
    }

    /// Keeps the changes that feeds have not been told, for those that are further behind than the log reaches.
    fn pin(&self, history: &mut ChangeLog) {
        let Some(log) = history.kept_mut() else { return };
        let feeds = self.all.values().filter(|feeding| !feeding.is_lost);
        let places = feeds.map(|feeding| feeding.at.unwrap_or(feeding.since.0));
        let oldest = places.filter(|at| log.reaches(*at)).min();
        log.pin(oldest);
    }

    /// The feeds of a session, or all.
    fn of(&self, session: Option<SessionId>) -> impl Iterator<Item = (&FeedKey, &Feeding)> {
        let from = (session.unwrap_or(SessionId(0)), MonitorKey(0));
        let to = (session.unwrap_or(SessionId(u64::MAX)), MonitorKey(u64::MAX));
        self.all.range(from..=to)
    }

    /// The feeds of a session, or of all, that have not been told what is before a place, in the order of
    /// their turns.
    fn in_turn(&self, session: Option<SessionId>, end: Place) -> Vec<FeedKey> {
        let behind = self.of(session).filter(|(_, feeding)| feeding.is_behind(end));
        let mut keys: Vec<FeedKey> = behind.map(|(key, _)| *key).collect();
        let had_turn = keys.partition_point(|key| Some(*key) <= self.last);
        keys.rotate_left(had_turn);
        keys
    }
}

impl Feeding {
    fn is_behind(&self, end: Place) -> bool {
        self.at.is_some_and(|at| at < end)
    }

    /// Where a state is that it is given. A helper may have composed its rows for so long that the log has gone past
    /// that, but for what is kept for it.
    fn place_of(&self, log: &History, state: Uuid) -> Option<Place> {
        let kept = || {
            let (place, id) = self.since;
            let changes = log.since_pinned(place)?;
            if id == state { Some(place) } else { changes.find(state) }
        };
        log.find(state, IdKind::Recorded, std::iter::empty()).or_else(kept)
    }
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
    to: Place,
    bodies: Vec<Bytes>,
    /// What the changes count for.
    bytes: usize,
}

/// What updates are composed from.
struct Source<'a> {
    log: &'a History,
    schema: &'a Schema,
    /// The index of the state as it is.
    index: Option<u64>,
}

impl Source<'_> {
    /// The changes behind a place, until they count for `most` bytes, but at least one; `None` if the log
    /// does not reach back so far.
    fn tell(&self, from: Place, feeding: &Feeding, most: usize) -> Option<Told> {
        let Feeding { feed, options, is_lost, .. } = feeding;
        if *is_lost {
            return None;
        }
        let changes = self.log.since_pinned(from)?;
        let low_water = options.low_water.then(|| self.log.low_water());
        let last = self.log.chain().id();
        let mut told = Told { feed: feed.clone(), to: from, bodies: Vec::new(), bytes: 0 };
        let mut entries = changes.deltas(self.schema);
        while told.bytes < most {
            let Some(entry) = entries.next() else {
                // Changes of what no record has may have come behind.
                told.to = self.log.place();
                break;
            };
            let mut body = Vec::new();
            begin_body(entry.id, low_water, &mut body);
            feed.compose(&entry.delta, self.schema, &mut body);
            let index = self.index.filter(|_| entry.id == last);
            end_body(options.index.then_some(index), &mut body);
            told.bytes += CHANGE_BYTES_MIN.max(entry.bytes).max(body.len());
            told.to = entry.place;
            told.bodies.push(Bytes::new(body));
        }
        Some(told)
    }
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
        let Some(log) = db.history().kept().filter(|log| log.is_enabled()) else {
            let details = "this database has no log of changes (--no-standalone-history)";
            return Err(Error::new("not supported", details));
        };
        let since = (log.place(), log.chain().id());
        let feed = db.watch.monitors.feed(key, db.tables.schema());
        let feed = feed.expect("the monitor has just been made")?;
        let head = [b"{\"id\":null,\"method\":\"weir_update\",\"params\":[", name, b","].concat();
        let head = Bytes::new(head);
        let feeding = Feeding { feed, options, head, since, at: None, is_lost: false };
        db.watch.feeds.all.insert((session, key), feeding);
        db.watch.feeds.pin(&mut db.history);
        Ok(())
    }

    /// A monitor is given its first rows, or what it had missed: it has this state. What follows right behind
    /// that, if anything. Who does not learn the ids of states from updates is told of another one later: the Go
    /// library (libovsdb) connects by one request after the other, and reads nothing more if an update comes meanwhile.
    pub(crate) fn begin_updates(
        &mut self,
        shell: &Shell,
        (id, key): (DbId, MonitorKey),
        (known, state): (Option<Uuid>, Option<Uuid>),
        learns_from_updates: bool,
    ) -> Option<Vec<u8>> {
        if !self.is_fed(id, key) {
            let follow = self.says_other_state(id, key, known, state)?;
            if learns_from_updates {
                return Some(follow);
            }
            self.open(id).tell_id_later(shell.now_us(), key);
            return None;
        }
        let Db { history, watch, tables, storage, .. } = self.open(id);
        let owner = *watch.sessions.get(&key)?;
        let feeding = watch.feeds.all.get_mut(&(owner, key))?;
        let state = state.expect("who is told each change is told ids");
        let log = history.kept().expect("it was there when the monitor was made");
        let at = feeding.place_of(log, state);
        (feeding.at, feeding.is_lost) = (Some(at.unwrap_or_default()), at.is_none());
        watch.feeds.pin(history);
        watch.monitors.remove(key, tables.schema());
        let feeding = &watch.feeds.all[&(owner, key)];
        if feeding.options == FeedOptions::default() {
            return None;
        }
        let log = history.kept().expect("it has just been there");
        let index = index_of(log, storage).filter(|_| log.chain().id() == state);
        let mut message = feeding.head.to_vec();
        begin_body(state, feeding.options.low_water.then(|| log.low_water()), &mut message);
        message.extend_from_slice(b"{}");
        end_body(feeding.options.index.then_some(index), &mut message);
        Some(message)
    }

    /// Whether a monitor is told each change.
    pub(crate) fn is_fed(&self, id: DbId, key: MonitorKey) -> bool {
        let Some(Db { watch, .. }) = self.get(id) else { return false };
        let owner = watch.sessions.get(&key);
        owner.is_some_and(|owner| watch.feeds.all.contains_key(&(*owner, key)))
    }

    /// Tells a session what is new, as much as a step suffices for, if it `may_tell`. True if there is more,
    /// which is to come before replies: the session takes it.
    pub(crate) fn feed_session(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        (id, of): (DbId, SessionId),
        may_tell: bool,
    ) -> bool {
        let takes = |db: &Db| {
            db.is_feeding(Some(of)) && sessions.get(of).is_some_and(|session| !session.is_mute(id))
        };
        if !self.get(id).is_some_and(takes) {
            return false;
        }
        if !may_tell || !self.may_tell(id) {
            return true;
        }
        let Fed { bytes, has_more } = self.feed(shell, sessions, id, Some(of), false);
        self.open(id).watch.note_told((bytes / DECODED_BYTES) as u64);
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
        let Db { history, watch, tables, storage, .. } = self.open(id);
        if watch.feeds.all.is_empty() {
            watch.feeds.pin(history);
            return Fed::default();
        }
        let log = history.kept().expect("there is a log where anybody is told each change");
        let source = Source { log, schema: tables.schema(), index: index_of(log, storage) };
        let (end, mut fed) = (log.place(), Fed::default());
        let mut told: BTreeMap<(Place, FeedOptions, u64), Told> = BTreeMap::new();
        let mut lost: Vec<SessionId> = Vec::new();
        for key in watch.feeds.in_turn(of, end) {
            let (session, _) = key;
            if sessions.get(session).is_none_or(|session| session.is_mute(id)) {
                continue;
            }
            let Feeds { all, last } = &mut watch.feeds;
            let feeding = all.get_mut(&key).expect("it is one of them");
            let from = feeding.at.expect("it is behind");
            let like = (from, feeding.options, feeding.feed.digest());
            if !told.get(&like).is_some_and(|told| told.feed.is_like(&feeding.feed)) {
                let left = STEP_BYTES_MAX.saturating_sub(fed.bytes);
                if left == 0 && !is_whole {
                    fed.has_more = true;
                    continue;
                }
                let most = if is_whole { usize::MAX } else { left };
                let Some(new) = source.tell(from, feeding, most) else {
                    lost.push(session);
                    continue;
                };
                fed.bytes += new.bytes;
                told.insert(like, new);
                // Who is told before a reply has had no turn of all.
                if of.is_none() {
                    *last = Some(key);
                }
            }
            let Told { to, bodies, .. } = &told[&like];
            for body in bodies {
                shell.send_parts(vec![session], Arc::clone(&feeding.head), Arc::clone(body));
            }
            feeding.at = Some(*to);
            fed.has_more |= *to < end;
        }
        watch.feeds.pin(history);
        for session in lost {
            self.overflow(shell, sessions, session, "is further behind than the log of changes");
        }
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
        self.feeds.all.keys().map(|(session, _)| *session)
    }

    /// The sessions that have not been told each change yet, with the positions up to which they have.
    pub(super) fn behind(&self, log: &History) -> impl Iterator<Item = (SessionId, u64)> {
        self.feeds.all.iter().filter_map(|((session, _), feeding)| {
            let at = feeding.at.filter(|at| *at < log.place())?;
            let before = match log.since_pinned(at) {
                // Changes of what no record has are not told.
                Some(changes) => Place(changes.first()?.0 - 1),
                None => at,
            };
            Some((*session, self.position_at(log, before)))
        })
    }

    /// The position of a place of the log. What is in the log has been shown, but for what came from the
    /// file at the start, and for conversions, up to which everybody has been told.
    pub(super) fn position_at(&self, log: &History, place: Place) -> u64 {
        self.shown.saturating_sub(log.place().0 - place.0)
    }
}

impl Databases {
    /// Whether a session is told each change of any database, as relays are.
    pub(crate) fn feeds_any_to(&self, session: SessionId) -> bool {
        self.values().any(|db| db.watch.feeds.of(Some(session)).next().is_some())
    }

    /// Whether a session is to be told changes before anything of this database: what `_Server` says of another one
    /// holds for rows that have come.
    pub(crate) fn owes_before(&self, id: DbId, session: SessionId) -> bool {
        let is_reserved = self.get(id).is_some_and(Db::is_reserved);
        is_reserved && self.values().any(|db| db.owes(Some(session)).next().is_some())
    }

    /// The sessions of which that is true.
    pub(super) fn owed_before(&self, id: DbId) -> BTreeSet<SessionId> {
        let is_reserved = self.get(id).is_some_and(Db::is_reserved);
        let all = self.values().filter(|_| is_reserved);
        all.flat_map(|db| db.owes(None)).collect()
    }
}

impl Db {
    /// Whether anybody is told each change.
    pub(super) fn has_feeds(&self) -> bool {
        !self.watch.feeds.all.is_empty()
    }

    /// This session, or all, that is told each change, and has not been told all, or has no first rows yet.
    fn owes(&self, session: Option<SessionId>) -> impl Iterator<Item = SessionId> {
        let end = self.history.kept().map(History::place).unwrap_or_default();
        let owed = move |feeding: &Feeding| feeding.at.is_none_or(|at| at < end);
        let feeds = self.watch.feeds.of(session);
        feeds.filter(move |(_, feeding)| owed(feeding)).map(|((session, _), _)| *session)
    }

    /// Who is told each change begins anew under another schema. Those without first rows are among the monitors
    /// yet, and would go on as others do.
    pub(super) fn end_feeds(&mut self) {
        for (_, key) in std::mem::take(&mut self.watch.feeds).all.into_keys() {
            self.watch.monitors.remove(key, self.tables.schema());
        }
        self.feeds_ended();
    }

    /// Feeds have ended: nothing is kept for those.
    pub(super) fn feeds_ended(&mut self) {
        self.watch.feeds.pin(&mut self.history);
    }

    /// Whether a session, or anybody, has not been told each change yet.
    pub(super) fn is_feeding(&self, session: Option<SessionId>) -> bool {
        let Some(log) = self.history.kept() else { return false };
        let mut feeds = self.watch.feeds.of(session);
        feeds.any(|(_, feeding)| feeding.is_behind(log.place()))
    }
}
