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
use weir_history::Place;
use weir_monitor::MonitorKey;

use crate::database::Databases;
use crate::ids::{Bytes, DbId, SessionId, WorkId, earliest};
use crate::monitors::pages::{Beginning, Receiver, Source};
use crate::monitors::{Out, Subscriptions};
use crate::origin::Asker;
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
    /// The state that the client knows, as it says.
    pub(super) known: Option<Uuid>,
    /// As [`Subscriptions::learns_from_updates`] says.
    pub(super) learns_from_updates: bool,
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
    /// The id of the state that it leads to, for those who are told one.
    state: Option<Uuid>,
    newcomers: Vec<Newcomer>,
    /// Composes the first piece again.
    from: Rest,
}

impl Composing {
    pub(super) fn db(&self) -> DbId {
        self.source.of.db
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
    by_beginning: BTreeMap<Beginning, Herd>,
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

    /// There may be something to compose then.
    fn look_at(&mut self, at_us: u64) {
        self.retry_us = earliest([self.retry_us, Some(at_us)]);
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
    pub(super) fn may_begin(&mut self, of: Beginning) {
        if let Some(herd) = self.by_beginning.get_mut(&of) {
            herd.again_us = None;
        }
    }
}

/// What comes around the rows in a monitor's first reply.
pub(super) fn around(found: bool, state: Option<Uuid>) -> (Vec<u8>, &'static [u8]) {
    match state {
        None => (Vec::new(), b""),
        Some(state) => (format!("[{found},\"{state}\",").into_bytes(), b"]"),
    }
}

impl Subscriptions {
    /// The session's monitor begins with what a helper composes.
    pub(super) fn join_herd(
        &mut self,
        sessions: &mut Sessions,
        databases: &Databases,
        (db, since): (DbId, Option<Place>),
        newcomer: Newcomer,
    ) {
        sessions.hold(newcomer.session, Reason::Work, Lane::Db(db));
        let monitors = databases.get(db).expect("its monitor is there").monitors();
        let group = monitors.group(newcomer.key).expect("a monitor is in a group");
        let herd = self.herds.by_beginning.entry(Beginning { db, group, since }).or_default();
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
        if self.herds.by_beginning.is_empty() {
            return;
        }
        let now_us = shell.now_us();
        let waits = |herd: &Herd| herd.again_us.is_some_and(|at| at > now_us);
        let is_done = |herd: &Herd| herd.waiting.is_empty() && !herd.composing && !waits(herd);
        self.herds.by_beginning.retain(|_, herd| !is_done(herd));
        let herds = self
            .herds
            .by_beginning
            .iter()
            .filter(|(of, herd)| !herd.waiting.is_empty() && databases.is_decided(of.db));
        let herds: Vec<Beginning> = herds.map(|(of, _)| *of).collect();
        for of in herds {
            let db = of.db;
            let here = databases.get(db).filter(|db| !db.tables().is_away());
            let position = here.map_or(0, |here| here.position());
            let source = Source { of, position };
            let stream = here.is_some().then(|| self.streams.joinable(source)).flatten();
            let Some(herd) = self.herds.by_beginning.get_mut(&of) else { continue };
            if let Some(stream) = stream {
                // Who is in the middle of another message comes later.
                let is_free = |newcomer: &mut Newcomer| !shell.is_in_message(newcomer.session);
                let newcomers: Vec<Newcomer> = herd.waiting.extract_if(.., is_free).collect();
                let state = begin_anew(databases, db, &newcomers);
                let known = (of.since.is_some(), state);
                let receivers = receivers(shell, sessions, databases, (db, known), newcomers);
                self.join_stream(shell, sessions, databases, stream, receivers);
            } else if waits(herd) {
                let again_us = herd.again_us;
                again_us.into_iter().for_each(|at_us| self.herds.look_at(at_us));
            } else if !herd.composing {
                if self.herds.has_room(now_us) {
                    self.compose_for_herd(shell, sessions, databases, source);
                } else {
                    self.herds.look_at(now_us + RETRY_US);
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
        let of = source.of;
        let herd = self.herds.by_beginning.get_mut(&of).expect("a herd waits for that");
        let newcomers = std::mem::take(&mut herd.waiting);
        let state = begin_anew(databases, of.db, &newcomers);
        let Some(rest) = what_to_compose(databases, of, &newcomers) else {
            self.herds.by_beginning.remove(&of);
            return newcomers.into_iter().for_each(|newcomer| {
                if of.since.is_some() && databases.has_monitor(of.db, newcomer.key) {
                    // The changes since then have been forgotten meanwhile: it begins with all rows, in
                    // the next round.
                    self.herds.look_at(shell.now_us());
                    databases.release(
                        shell,
                        sessions,
                        newcomer.session,
                        Reason::Work,
                        Lane::Db(of.db),
                    );
                    self.join_herd(sessions, databases, (of.db, None), newcomer);
                } else {
                    turn_away(shell, sessions, databases, of.db, &newcomer);
                }
            });
        };
        herd.composing = true;
        let from = rest.clone();
        let first = newcomers.first().map(|newcomer| newcomer.session);
        let of = first.map_or(Asker::Server, Asker::Session);
        let work = shell.send_out(of, Work::Initial(rest));
        self.out.insert(work, Out::Initial(Composing { source, state, newcomers, from }));
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
        let of @ Beginning { db, since, .. } = composing.source.of;
        let is_whole = piece.rest.is_none();
        if is_whole
            && since.is_none()
            && databases.get(db).is_some()
            && let Some(newcomer) = composing.newcomers.first()
        {
            databases.monitors_mut(db).keep_initial(newcomer.key, &piece.bytes);
        }
        if let Some(herd) = self.herds.by_beginning.get_mut(&of) {
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
        let Composing { source, state, newcomers, from } = composing;
        let Beginning { db, since, .. } = source.of;
        self.herds.note_outstanding(shell.now_us(), &piece.bytes);
        let known = (since.is_some(), state);
        let receivers = receivers(shell, sessions, databases, (db, known), newcomers);
        if piece.rest.is_some() {
            let of = (Some(source), Some(from));
            return self.begin_stream(shell, sessions, databases, of, piece, receivers);
        }
        for receiver in receivers {
            let session = receiver.session();
            receiver.give_whole(shell, &piece.bytes);
            databases.release(shell, sessions, session, Reason::Work, Lane::Db(db));
        }
    }
}

/// These monitors begin with the rows as they are now; the id of that state, for those who are told
/// one.
fn begin_anew(databases: &mut Databases, id: DbId, newcomers: &[Newcomer]) -> Option<Uuid> {
    let schema = Arc::clone(databases.get(id)?.schema());
    let monitors = databases.monitors_mut(id);
    let mut state = None;
    for newcomer in newcomers {
        monitors.begin_anew(newcomer.key, &schema);
        state = state.or_else(|| monitors.state_id(newcomer.key));
    }
    state
}

/// What to compose for equal monitors, if any of them is still there, and what leads on from the
/// state that they know.
fn what_to_compose(
    databases: &mut Databases,
    of: Beginning,
    newcomers: &[Newcomer],
) -> Option<Rest> {
    let db = databases.get(of.db)?;
    let snapshot = db.tables().snapshot();
    if let Some(since) = of.since {
        let missed = newcomers.iter().find_map(|newcomer| db.monitors().missed(newcomer.key))?;
        let changes = db.history().since(since, missed.ids())?;
        return Some(Rest::missed(missed, changes, snapshot));
    }
    let monitors = databases.monitors_mut(of.db);
    let initial = newcomers.iter().find_map(|newcomer| monitors.initial_work(newcomer.key))?;
    Some(Rest::initial(initial, snapshot))
}

/// The newcomers whose monitors are still there, and what comes around their rows.
fn receivers(
    shell: &mut Shell,
    sessions: &mut Sessions,
    databases: &mut Databases,
    (db, (found, state)): (DbId, (bool, Option<Uuid>)),
    newcomers: Vec<Newcomer>,
) -> Vec<Receiver> {
    let mut receivers = Vec::with_capacity(newcomers.len());
    for newcomer in newcomers {
        // It may have gone with its database meanwhile, or with its session.
        if databases.has_monitor(db, newcomer.key) {
            let (before, behind) = around(found, state);
            let (mut head, tail) = weir_wire::reply_result_around(&newcomer.request);
            head.extend_from_slice(&before);
            let tail = [behind, tail].concat();
            let Newcomer { key, known, learns_from_updates, .. } = newcomer;
            let follow =
                databases.begin_updates(shell, (db, key), (known, state), learns_from_updates);
            let receiver = Receiver::new(newcomer.session, db, head, tail);
            receivers.push(receiver.with_follow(follow));
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
