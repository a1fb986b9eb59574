//! Monitors that begin with many rows: composed by a helper, once for all equal ones that come
//! meanwhile, while commits go on.
//!
//! 1. The monitor is made and its session held: what changes from now on merges for it.
//! 2. The round is decided, nobody composes the same, and there is room: a snapshot is taken, and
//!    all equal monitors that wait begin with it.
//! 3. Composed: each of their sessions gets the shared rows, then what has changed since.
//!
//! Who comes between 2 and 3 must not begin with a snapshot from before the request, so it waits for
//! the next one, with all the others who do.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use weir_data::Uuid;
use weir_monitor::{GroupId, MonitorKey, Version};

use crate::effect::Effect;
use crate::event::{Bytes, DbId, Now, SessionId};
use crate::monitors::pages::{Receiver, Source};
use crate::server::Server;
use crate::work::away::Out;
use crate::work::{Piece, Rest, Work};

/// Initial rows on their way to clients, in bytes; beyond it nothing more is composed until clients
/// have taken some, or have had their time.
pub(crate) const OUTSTANDING_BYTES_MAX: usize = 128 << 20;

/// How long clients that do not take their initial rows hold up others, in microseconds.
const OUTSTANDING_US_MAX: u64 = 5_000_000;

/// Smaller ones are not counted, in bytes.
const COUNTED_BYTES_MIN: usize = 1 << 20;

/// How long equal monitors wait for each other while rows are being sent, in microseconds.
const WAVE_US: u64 = 50_000;

/// How soon to look again whether clients have taken theirs, in microseconds.
const RETRY_US: u64 = 10_000;

/// A monitor whose first reply is being composed.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) session: SessionId,
    pub(crate) key: MonitorKey,
    /// The request's id, as JSON text.
    pub(crate) request: Vec<u8>,
    pub(crate) version: Version,
}

/// Equal monitors that wait.
#[derive(Debug, Default)]
struct Herd {
    waiting: Vec<Newcomer>,
    /// Rows for those before them are being composed.
    composing: bool,
    /// When the next ones may begin though those before them have not got all.
    again_us: Option<u64>,
}

/// Rows that are composed, or their first piece.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) source: Source,
    pub(crate) newcomers: Vec<Newcomer>,
    pub(crate) piece: Piece,
    /// Composes the piece again.
    pub(crate) from: Rest,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Herds {
    by_group: BTreeMap<(DbId, GroupId), Herd>,
    /// Rows that have been sent, and when.
    outstanding: Vec<(u64, Weak<Vec<u8>>)>,
    /// When to look again for room.
    retry_us: Option<u64>,
}

impl Herds {
    /// When the next ones may have room.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.retry_us
    }

    /// Whether there is room for more rows.
    fn has_room(&mut self, now: Now) -> bool {
        self.outstanding.retain(|(at, rows)| {
            now.monotonic_us < at + OUTSTANDING_US_MAX && rows.strong_count() > 0
        });
        let bytes: usize =
            self.outstanding.iter().filter_map(|(_, rows)| rows.upgrade()).map(|r| r.len()).sum();
        bytes < OUTSTANDING_BYTES_MAX
    }

    /// Rows go to clients.
    pub(crate) fn note_outstanding(&mut self, now: Now, rows: &Bytes) {
        if rows.len() >= COUNTED_BYTES_MIN {
            self.outstanding.push((now.monotonic_us, Arc::downgrade(rows)));
        }
    }

    /// All rows of those before them are composed.
    pub(crate) fn may_begin(&mut self, db: DbId, group: GroupId) {
        if let Some(herd) = self.by_group.get_mut(&(db, group)) {
            herd.again_us = None;
        }
    }
}

/// What comes around the rows in a monitor's first reply.
pub(crate) fn around(version: Version) -> (Vec<u8>, &'static [u8]) {
    match version {
        Version::V1 | Version::V2 => (Vec::new(), b""),
        // A standalone database has no history to find anything in.
        Version::V3 => (format!("[false,\"{}\",", Uuid::ZERO).into_bytes(), b"]"),
    }
}

impl Server {
    /// The session's monitor begins with what a helper composes.
    pub(crate) fn join_herd(&mut self, id: DbId, newcomer: Newcomer) {
        self.hold(newcomer.session);
        let group = self.dbs.get(&id).and_then(|db| db.monitors.group(newcomer.key));
        let herd = self.herds.by_group.entry((id, group.unwrap_or_default())).or_default();
        herd.waiting.push(newcomer);
    }

    /// The round is decided: takes snapshots for those who wait and have room.
    pub(crate) fn compose_for_herds(&mut self, now: Now) {
        self.herds.retry_us = None;
        if self.herds.by_group.is_empty() {
            return;
        }
        let waits = |herd: &Herd| herd.again_us.is_some_and(|at| at > now.monotonic_us);
        let is_done = |herd: &Herd| herd.waiting.is_empty() && !herd.composing && !waits(herd);
        self.herds.by_group.retain(|_, herd| !is_done(herd));
        let herds = self.herds.by_group.iter().filter(|(_, herd)| !herd.waiting.is_empty());
        let herds: Vec<(DbId, GroupId)> = herds.map(|(at, _)| *at).collect();
        for (db, group) in herds {
            let here = self.dbs.get(&db).and_then(|db| db.engine.here());
            let source = Source { db, group, position: here.map_or(0, |here| here.position()) };
            let stream = here.is_some().then(|| self.streams.joinable(source)).flatten();
            let Some(herd) = self.herds.by_group.get_mut(&(db, group)) else { continue };
            if let Some(stream) = stream {
                let newcomers = std::mem::take(&mut herd.waiting);
                self.begin_anew(db, &newcomers);
                let receivers = self.receivers(now, newcomers);
                self.join_stream(now, stream, receivers);
            } else if waits(herd) {
                let at_us = herd.again_us.into_iter().chain(self.herds.retry_us).min();
                self.herds.retry_us = at_us;
            } else if !herd.composing {
                if self.herds.has_room(now) {
                    self.compose_for_herd(now, source);
                } else {
                    self.herds.retry_us = Some(now.monotonic_us + RETRY_US);
                }
            }
        }
    }

    fn compose_for_herd(&mut self, now: Now, source: Source) {
        let at = (source.db, source.group);
        let Some(herd) = self.herds.by_group.get_mut(&at) else { return };
        let newcomers = std::mem::take(&mut herd.waiting);
        let Some(rest) = self.begin_anew(source.db, &newcomers) else {
            self.herds.by_group.remove(&at);
            return newcomers.into_iter().for_each(|gone| self.turn_away(now, &gone));
        };
        let from = rest.clone();
        self.send_out(Work::Initial(rest), Out::Initial { source, from, newcomers });
        if let Some(herd) = self.herds.by_group.get_mut(&at) {
            herd.composing = true;
        }
    }

    /// What to compose for these monitors, if any of them is still there.
    fn begin_anew(&mut self, id: DbId, newcomers: &[Newcomer]) -> Option<Rest> {
        let db = self.dbs.get_mut(&id)?;
        let schema = Arc::clone(db.engine.schema());
        let mut initial = None;
        for newcomer in newcomers {
            db.monitors.begin_anew(newcomer.key, &schema);
            initial = initial.or_else(|| db.monitors.initial_work(newcomer.key));
        }
        Some(Rest::initial(initial?, db.engine.snapshot()?))
    }

    /// Composed: it leaves with the round.
    pub(crate) fn initial_composed(&mut self, now: Now, begun: Begun) {
        let Source { db, group, .. } = begun.source;
        let is_whole = begun.piece.rest.is_none();
        if is_whole
            && let Some(db) = self.dbs.get_mut(&db)
            && let Some(newcomer) = begun.newcomers.first()
        {
            db.monitors.keep_initial(newcomer.key, &begun.piece.bytes);
        }
        if let Some(herd) = self.herds.by_group.get_mut(&(db, group)) {
            herd.composing = false;
            herd.again_us = (!is_whole).then_some(now.monotonic_us + WAVE_US);
        }
        self.round.initials.push(begun);
    }

    /// Gives monitors their first rows; what has changed since follows.
    pub(crate) fn give_initial(&mut self, now: Now, begun: Begun) {
        let Begun { source, newcomers, piece, from } = begun;
        self.herds.note_outstanding(now, &piece.bytes);
        let receivers = self.receivers(now, newcomers);
        if piece.rest.is_some() {
            let source = Some(source);
            return self.begin_stream(now, source, piece, Some(from), receivers);
        }
        for receiver in receivers {
            let (session, head, tail) = receiver.into_parts();
            let body = Arc::clone(&piece.bytes);
            self.effect(Effect::Send { to: vec![session], head, body });
            self.send(session, tail);
            self.let_go(now, session);
        }
    }

    /// Those of the newcomers whose monitors are still there, and what comes around their rows.
    fn receivers(&mut self, now: Now, newcomers: Vec<Newcomer>) -> Vec<Receiver> {
        let mut receivers = Vec::with_capacity(newcomers.len());
        for newcomer in newcomers {
            let Newcomer { session, key, .. } = newcomer;
            // It may have gone with its database meanwhile.
            if self.monitor_sessions.get(&key) == Some(&session) {
                let (before, behind) = around(newcomer.version);
                let (mut head, tail) = weir_wire::reply_result_around(&newcomer.request);
                head.extend_from_slice(&before);
                receivers.push(Receiver::new(session, head, [behind, tail].concat()));
            } else {
                self.turn_away(now, &newcomer);
            }
        }
        receivers
    }

    /// The monitor has gone with its database.
    fn turn_away(&mut self, now: Now, newcomer: &Newcomer) {
        if self.sessions.contains_key(&newcomer.session) {
            let message = weir_wire::reply_error_string(&newcomer.request, "canceled");
            self.send(newcomer.session, message);
            self.let_go(now, newcomer.session);
        }
    }
}
