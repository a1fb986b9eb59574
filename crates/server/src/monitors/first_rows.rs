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

use crate::database::Databases;
use crate::ids::{Bytes, DbId, SessionId, WorkId};
use crate::monitors::pages::{Receiver, Source};
use crate::monitors::{Out, Subscriptions};
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::shell::Shell;
use crate::work::{Piece, Rest, Work};

/// Initial rows on their way to clients, in bytes; beyond it nothing more is composed until clients
/// have taken some, or have had their time.
const OUTSTANDING_BYTES_MAX: usize = 128 << 20;

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
pub(super) struct Newcomer {
    pub(super) session: SessionId,
    pub(super) key: MonitorKey,
    /// The request's id, as JSON text.
    pub(super) request: Vec<u8>,
    pub(super) version: Version,
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

/// Rows that a helper composes, and for whom.
#[derive(Debug)]
pub(super) struct Composing {
    source: Source,
    newcomers: Vec<Newcomer>,
    /// Composes the first piece again.
    from: Rest,
}

impl Composing {
    pub(super) fn db(&self) -> DbId {
        self.source.db
    }
}

/// Rows that are composed, or their first piece.
#[derive(Debug)]
pub(crate) struct Begun {
    composing: Composing,
    piece: Piece,
}

/// All equal monitors that wait.
#[derive(Debug, Default)]
pub(super) struct Herds {
    by_group: BTreeMap<(DbId, GroupId), Herd>,
    /// Rows that have been sent, and when.
    outstanding: Vec<(u64, Weak<Vec<u8>>)>,
    /// When to look again for room.
    retry_us: Option<u64>,
}

impl Herds {
    /// When the next ones may have room.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.retry_us
    }

    /// Whether there is room for more rows.
    fn has_room(&mut self, now_us: u64) -> bool {
        self.outstanding
            .retain(|(at, rows)| now_us < at + OUTSTANDING_US_MAX && rows.strong_count() > 0);
        let bytes: usize =
            self.outstanding.iter().filter_map(|(_, rows)| rows.upgrade()).map(|r| r.len()).sum();
        bytes < OUTSTANDING_BYTES_MAX
    }

    /// Rows go to clients.
    pub(super) fn note_outstanding(&mut self, now_us: u64, rows: &Bytes) {
        if rows.len() >= COUNTED_BYTES_MIN {
            self.outstanding.push((now_us, Arc::downgrade(rows)));
        }
    }

    /// All rows of those before them are composed.
    pub(super) fn may_begin(&mut self, db: DbId, group: GroupId) {
        if let Some(herd) = self.by_group.get_mut(&(db, group)) {
            herd.again_us = None;
        }
    }
}

/// What comes around the rows in a monitor's first reply.
pub(super) fn around(version: Version) -> (Vec<u8>, &'static [u8]) {
    match version {
        Version::V1 | Version::V2 => (Vec::new(), b""),
        // A standalone database has no history to find anything in.
        Version::V3 => (format!("[false,\"{}\",", Uuid::ZERO).into_bytes(), b"]"),
    }
}

impl Subscriptions {
    /// The session's monitor begins with what a helper composes.
    pub(super) fn join_herd(
        &mut self,
        sessions: &mut Sessions,
        databases: &Databases,
        id: DbId,
        newcomer: Newcomer,
    ) {
        sessions.hold(newcomer.session, Reason::Work, Lane::Db(id));
        let db = databases.get(id).expect("its monitor is there");
        let group = db.monitors().group(newcomer.key).expect("a monitor is in a group");
        let herd = self.herds.by_group.entry((id, group)).or_default();
        herd.waiting.push(newcomer);
    }

    /// Takes snapshots for those who wait and have room, where all is decided.
    pub(crate) fn compose_for_herds(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
    ) {
        self.herds.retry_us = None;
        if self.herds.by_group.is_empty() {
            return;
        }
        let now_us = shell.now_us();
        let waits = |herd: &Herd| herd.again_us.is_some_and(|at| at > now_us);
        let is_done = |herd: &Herd| herd.waiting.is_empty() && !herd.composing && !waits(herd);
        self.herds.by_group.retain(|_, herd| !is_done(herd));
        let herds = self
            .herds
            .by_group
            .iter()
            .filter(|((db, _), herd)| !herd.waiting.is_empty() && databases.is_decided(*db));
        let herds: Vec<(DbId, GroupId)> = herds.map(|(at, _)| *at).collect();
        for (db, group) in herds {
            let here = databases.get(db).filter(|db| !db.tables().is_away());
            let position = here.map_or(0, |here| here.position());
            let source = Source { db, group, position };
            let stream = here.is_some().then(|| self.streams.joinable(source)).flatten();
            let Some(herd) = self.herds.by_group.get_mut(&(db, group)) else { continue };
            if let Some(stream) = stream {
                // Who is in the middle of another message comes later.
                let is_free = |newcomer: &mut Newcomer| !shell.is_in_message(newcomer.session);
                let newcomers: Vec<Newcomer> = herd.waiting.extract_if(.., is_free).collect();
                begin_anew(databases, db, &newcomers);
                let receivers = receivers(shell, sessions, databases, db, newcomers);
                self.join_stream(shell, sessions, databases, stream, receivers);
            } else if waits(herd) {
                let at_us = herd.again_us.into_iter().chain(self.herds.retry_us).min();
                self.herds.retry_us = at_us;
            } else if !herd.composing {
                if self.herds.has_room(now_us) {
                    self.compose_for_herd(shell, sessions, databases, source);
                } else {
                    self.herds.retry_us = Some(now_us + RETRY_US);
                }
            }
        }
    }

    fn compose_for_herd(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        source: Source,
    ) {
        let at = (source.db, source.group);
        let herd = self.herds.by_group.get_mut(&at).expect("a herd waits for that");
        let newcomers = std::mem::take(&mut herd.waiting);
        let Some(rest) = begin_anew(databases, source.db, &newcomers) else {
            self.herds.by_group.remove(&at);
            let gone = newcomers.into_iter();
            return gone.for_each(|gone| turn_away(shell, sessions, databases, source.db, &gone));
        };
        herd.composing = true;
        let from = rest.clone();
        let of = newcomers.first().map(|newcomer| newcomer.session);
        let work = shell.send_out(of, Work::Initial(rest));
        self.out.insert(work, Out::Initial(Composing { source, newcomers, from }));
    }

    /// A helper has composed the next piece of a long message, or what monitors begin with: that
    /// leaves when the database is decided.
    pub(crate) fn have_composed(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        work: WorkId,
        piece: Piece,
    ) -> Option<(DbId, Begun)> {
        let composing = match self.out.remove(&work) {
            Some(Out::Initial(composing)) => composing,
            Some(Out::Piece { stream, from }) => {
                self.piece_composed(shell, sessions, databases, stream, from, piece);
                return None;
            }
            Some(Out::Change(_)) | None => panic!("a helper answers what it was asked"),
        };
        let Source { db, group, .. } = composing.source;
        let is_whole = piece.rest.is_none();
        if is_whole
            && databases.get(db).is_some()
            && let Some(newcomer) = composing.newcomers.first()
        {
            databases.monitors_mut(db).keep_initial(newcomer.key, &piece.bytes);
        }
        if let Some(herd) = self.herds.by_group.get_mut(&(db, group)) {
            herd.composing = false;
            herd.again_us = (!is_whole).then_some(shell.now_us() + WAVE_US);
        }
        Some((db, Begun { composing, piece }))
    }

    /// Gives monitors their first rows; what has changed since follows.
    pub(crate) fn give_initial(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        begun: Begun,
    ) {
        let Begun { composing, piece } = begun;
        let Composing { source, newcomers, from } = composing;
        self.herds.note_outstanding(shell.now_us(), &piece.bytes);
        let receivers = receivers(shell, sessions, databases, source.db, newcomers);
        if piece.rest.is_some() {
            let of = (Some(source), Some(from));
            return self.begin_stream(shell, sessions, databases, of, piece, receivers);
        }
        for receiver in receivers {
            let (session, head, tail) = receiver.into_parts();
            shell.send_parts(vec![session], head, Arc::clone(&piece.bytes));
            shell.send(session, tail);
            databases.release(shell, sessions, session, Reason::Work, Lane::Db(source.db));
        }
    }
}

/// What to compose for these monitors, if any of them is still there.
fn begin_anew(databases: &mut Databases, id: DbId, newcomers: &[Newcomer]) -> Option<Rest> {
    let db = databases.get(id)?;
    let (schema, snapshot) = (Arc::clone(db.schema()), db.tables().snapshot());
    let monitors = databases.monitors_mut(id);
    let mut initial = None;
    for newcomer in newcomers {
        monitors.begin_anew(newcomer.key, &schema);
        initial = initial.or_else(|| monitors.initial_work(newcomer.key));
    }
    Some(Rest::initial(initial?, snapshot))
}

/// The newcomers whose monitors are still there, and what comes around their rows.
fn receivers(
    shell: &mut Shell,
    sessions: &mut Sessions,
    databases: &mut Databases,
    db: DbId,
    newcomers: Vec<Newcomer>,
) -> Vec<Receiver> {
    let mut receivers = Vec::with_capacity(newcomers.len());
    for newcomer in newcomers {
        // It may have gone with its database meanwhile, or with its session.
        if databases.has_monitor(db, newcomer.key) {
            let (before, behind) = around(newcomer.version);
            let (mut head, tail) = weir_wire::reply_result_around(&newcomer.request);
            head.extend_from_slice(&before);
            let tail = [behind, tail].concat();
            receivers.push(Receiver::new(newcomer.session, db, head, tail));
        } else {
            turn_away(shell, sessions, databases, db, &newcomer);
        }
    }
    receivers
}

/// The monitor has gone with its database.
fn turn_away(
    shell: &mut Shell,
    sessions: &mut Sessions,
    databases: &mut Databases,
    db: DbId,
    newcomer: &Newcomer,
) {
    let session = newcomer.session;
    if sessions.has(session) {
        shell.send(session, weir_wire::reply_error_string(&newcomer.request, "canceled"));
        databases.release(shell, sessions, session, Reason::Work, Lane::Db(db));
    }
}
