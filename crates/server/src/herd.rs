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
use weir_monitor::{GroupId, Initial, MonitorKey, Version};

use crate::away::Out;
use crate::effect::Effect;
use crate::event::{Bytes, DbId, Now, SessionId};
use crate::server::Server;
use crate::work::{Work, WorkId};

/// Initial rows on their way to clients, in bytes; beyond it nothing more is composed until clients
/// have taken some, or have had their time.
pub(crate) const OUTSTANDING_BYTES_MAX: usize = 128 << 20;

/// How long clients that do not take their initial rows hold up others, in microseconds.
const OUTSTANDING_US_MAX: u64 = 5_000_000;

/// Smaller ones are not counted, in bytes.
const COUNTED_BYTES_MIN: usize = 1 << 20;

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
    composing: Option<WorkId>,
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
        let is_ready = |herd: &Herd| herd.composing.is_none() && !herd.waiting.is_empty();
        let ready = self.herds.by_group.iter().filter(|(_, herd)| is_ready(herd));
        let ready: Vec<(DbId, GroupId)> = ready.map(|(at, _)| *at).collect();
        for (id, group) in ready {
            if !self.herds.has_room(now) {
                self.herds.retry_us = Some(now.monotonic_us + RETRY_US);
                return;
            }
            let Some(herd) = self.herds.by_group.get_mut(&(id, group)) else { continue };
            let newcomers = std::mem::take(&mut herd.waiting);
            let begun = self.begin_anew(id, &newcomers);
            let Some((initial, snapshot)) = begun else {
                self.herds.by_group.remove(&(id, group));
                newcomers.into_iter().for_each(|gone| self.turn_away(now, &gone));
                continue;
            };
            let work = Work::Initial { initial, snapshot };
            let work = self.send_out(work, Out::Initial { db: id, group, newcomers });
            if let Some(herd) = self.herds.by_group.get_mut(&(id, group)) {
                herd.composing = Some(work);
            }
        }
    }

    /// What to compose for these monitors, if any of them is still there.
    fn begin_anew(
        &mut self,
        id: DbId,
        newcomers: &[Newcomer],
    ) -> Option<(Initial, weir_data::Snapshot)> {
        let db = self.dbs.get_mut(&id)?;
        let schema = Arc::clone(db.engine.schema());
        let mut initial = None;
        for newcomer in newcomers {
            db.monitors.begin_anew(newcomer.key, &schema);
            initial = initial.or_else(|| db.monitors.initial_work(newcomer.key));
        }
        Some((initial?, db.engine.snapshot()?))
    }

    /// Composed: it leaves with the round.
    pub(crate) fn initial_composed(
        &mut self,
        id: DbId,
        group: GroupId,
        newcomers: Vec<Newcomer>,
        rows: Bytes,
    ) {
        if let Some(db) = self.dbs.get_mut(&id)
            && let Some(newcomer) = newcomers.first()
        {
            db.monitors.keep_initial(newcomer.key, &rows);
        }
        if let Some(herd) = self.herds.by_group.get_mut(&(id, group)) {
            herd.composing = None;
            if herd.waiting.is_empty() {
                self.herds.by_group.remove(&(id, group));
            }
        }
        self.round.initials.push((newcomers, rows));
    }

    /// Gives monitors their first rows; what has changed since follows.
    pub(crate) fn give_initial(&mut self, now: Now, newcomers: Vec<Newcomer>, rows: &Bytes) {
        if rows.len() >= COUNTED_BYTES_MIN {
            self.herds.outstanding.push((now.monotonic_us, Arc::downgrade(rows)));
        }
        for Newcomer { session, key, request, version } in newcomers {
            // It may have gone with its database meanwhile.
            if self.monitor_sessions.get(&key) == Some(&session) {
                let (before, behind) = around(version);
                let (mut head, tail) = weir_wire::reply_result_around(&request);
                head.extend_from_slice(&before);
                let body = Arc::clone(rows);
                self.effect(Effect::Send { to: vec![session], head: Arc::new(head), body });
                self.send(session, [behind, tail].concat());
                self.let_go(now, session);
            } else {
                self.turn_away(now, &Newcomer { session, key, request, version });
            }
        }
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
