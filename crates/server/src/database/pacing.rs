//! Updates to those who watch a database: what is committed is shown to its monitors, and leaves
//! for other sessions at an idle moment, or when it has waited long enough
//! (`docs/decisions/003`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::{Committed, Delta, Ids};
use weir_monitor::{MonitorKey, Monitors, Update};

use crate::database::commits::Done;
use crate::database::feeds::Feeds;
use crate::database::searches::search;
use crate::database::{Databases, Db, server_db};
use crate::effect::Level;
use crate::ids::{Bytes, DbId, SessionId, earliest};
use crate::session::{Session, Sessions};
use crate::shell::Shell;

/// Longest that updates wait for an idle moment, in microseconds, if few monitors get them.
const FLUSH_DELAY_US_MIN: u64 = 500;

/// What each monitor adds to that: four times what a send costs, so that telling them takes no more
/// than a fifth of the time.
const FLUSH_DELAY_US_EACH: u64 = 16;

/// What each monitor adds to that in a cluster, where a transaction takes some milliseconds anyway.
const CLUSTERED_FLUSH_DELAY_US_EACH: u64 = 64;

/// Longest that updates wait however many monitors there are, in microseconds.
const FLUSH_DELAY_US_MAX: u64 = 2000;

/// To so few monitors updates go at the next idle moment even in a stream of transactions: telling
/// them costs less than the transaction did.
const FLUSH_AT_IDLE_MONITORS_MAX: usize = 4;

/// Most bytes of updates that wait for an idle moment.
const FLUSH_BYTES_MAX: usize = 256 << 10;

/// Updates that come this soon after the last were sent are part of a stream, in microseconds.
const STREAM_US: u64 = 1000;

/// Whoever named another state than the reply to it is told the id once more so long behind that, in
/// microseconds.
const ID_AFTER_US: u64 = 2_000_000;

/// How much of what is pending a flush tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// What a step suffices for; the rest is for later steps.
    Step,
    /// As much, and helpers do the rest: the rows are about to leave.
    Now,
    /// All, whatever it costs: the rows are about to go for good.
    Whole,
}

/// Which monitors are told nothing now: where all take updates, which is as a rule, none of them is
/// looked at.
fn are_mute<'a>(
    sessions: &'a Sessions,
    db: DbId,
    owners: &'a HashMap<MonitorKey, SessionId, FixedState>,
) -> impl Fn(MonitorKey) -> bool + 'a {
    let are_any_mute = sessions.are_any_mute();
    move |key| {
        let session = || owners.get(&key).and_then(|session| sessions.get(*session));
        are_any_mute && session().is_none_or(|session| session.is_mute(db))
    }
}

/// Who watches a database.
pub(super) struct Watch {
    pub(super) monitors: Monitors,
    /// Monitors that are told each change by itself.
    pub(super) feeds: Feeds,
    /// Whose each monitor is.
    pub(super) sessions: HashMap<MonitorKey, SessionId, FixedState>,
    /// When updates began to wait to be sent.
    since_us: Option<u64>,
    /// When updates were last sent.
    flushed_us: u64,
    /// What was pending behind that, for those who took nothing then.
    kept_bytes: usize,
    /// What it has cost in this round to tell sessions, before their replies, what they changed.
    pub(super) told_cost: u64,
    /// Somebody is to be told before a turn of his, and waits for the next round: who comes now comes behind.
    has_queue: bool,
    /// What each monitor adds to how long updates wait, in microseconds.
    delay_us_each: u64,
    /// Monitors that are to be told the id of their state, and from when on, in that order.
    learners: VecDeque<(u64, MonitorKey)>,
    /// The position up to which the monitors have been shown what is decided: how many changes,
    /// across conversions.
    pub(super) shown: u64,
}

impl Watch {
    pub(super) fn new(seed: u64, is_shared: bool) -> Self {
        let delay_us_each =
            if is_shared { CLUSTERED_FLUSH_DELAY_US_EACH } else { FLUSH_DELAY_US_EACH };
        Self {
            monitors: Monitors::new(seed),
            feeds: Feeds::default(),
            sessions: HashMap::with_hasher(FixedState::with_seed(seed)),
            since_us: None,
            flushed_us: 0,
            kept_bytes: 0,
            told_cost: 0,
            has_queue: false,
            delay_us_each,
            learners: VecDeque::new(),
            shown: 0,
        }
    }

    /// When updates must leave that wait for an idle moment.
    fn deadline_us(&self) -> Option<u64> {
        let of_all = self.monitors.len() as u64 * self.delay_us_each;
        Some(self.since_us? + of_all.clamp(FLUSH_DELAY_US_MIN, FLUSH_DELAY_US_MAX))
    }

    fn is_due(&self, now_us: u64) -> bool {
        let news = self.monitors.pending_bytes().saturating_sub(self.kept_bytes);
        self.deadline_us().is_some_and(|at| at <= now_us || news >= FLUSH_BYTES_MAX)
    }

    /// Whether updates wait that an idle moment is good enough for. In a stream of transactions to
    /// many monitors it is not: the next one is on its way, and one message will do for both.
    fn wants_idle_moment(&self) -> bool {
        let are_many = self.monitors.len() > FLUSH_AT_IDLE_MONITORS_MAX;
        let is_stream = |since| are_many && since < self.flushed_us.saturating_add(STREAM_US);
        self.since_us.is_some_and(|since| !is_stream(since))
    }

    /// Updates were composed before a reply.
    pub(super) fn note_told(&mut self, cost: u64) {
        self.told_cost = self.told_cost.saturating_add(cost);
    }

    /// A monitor is nobody's any more. True if it was told each change.
    fn disown(&mut self, key: MonitorKey) -> bool {
        let owner = self.sessions.remove(&key);
        owner.is_some_and(|session| self.feeds.remove((session, key)))
    }

    /// Sends composed updates to whose monitors they are for.
    pub(super) fn send(&self, shell: &mut Shell, updates: Vec<Update>) {
        for Update { to, head, body } in updates {
            let owner = |key: &MonitorKey| self.sessions.get(key).copied();
            let mut sessions = Vec::with_capacity(to.len());
            sessions.extend(to.iter().filter_map(owner));
            shell.send_parts(sessions, head, body);
        }
    }
}

impl Db {
    /// Shows one committed change to the monitors.
    pub(super) fn show(&mut self, shell: &mut Shell, delta: Arc<Delta>, ids: Ids) {
        self.log_changes(shell, &delta);
        self.note(&delta);
        self.watch.shown += 1;
        let position = self.watch.shown;
        self.watch.monitors.commit(&Committed { position, ids, delta }, self.tables.schema());
        self.want_updates(shell.now_us());
    }

    /// A committed change is news to conversions, and to transactions on snapshots.
    fn note(&mut self, delta: &Arc<Delta>) {
        self.conversions.note(delta);
        if let Some(store) = self.tables.store() {
            self.attempts.note(delta, store);
        }
    }

    fn disown(&mut self, key: MonitorKey) {
        if self.watch.disown(key) {
            self.feeds_ended();
        }
    }

    /// Whether updates can be composed.
    fn can_compose(&self) -> bool {
        !self.tables.is_away() && self.shows_last_commit()
    }

    /// Who has heard nothing for long is told the id of a newer state.
    pub(super) fn renew_ids(&mut self, now_us: u64) {
        self.watch.monitors.grow_older(self.history.ages());
        if self.watch.monitors.owes_ids() {
            self.want_updates(now_us);
        }
    }

    pub(super) fn want_updates(&mut self, now_us: u64) {
        let monitors = &self.watch.monitors;
        if monitors.has_pending() || monitors.owes_ids() || self.is_feeding(None) {
            self.watch.since_us.get_or_insert(now_us);
        }
    }

    /// When updates must leave, or ids be told.
    pub(super) fn updates_us(&self) -> Option<u64> {
        let learner_us = self.watch.learners.front().map(|(from_us, _)| *from_us);
        earliest([self.watch.deadline_us(), learner_us]).filter(|_| self.can_compose())
    }

    /// A monitor that was given its first rows is told the id of its state a while later.
    pub(super) fn tell_id_later(&mut self, now_us: u64, key: MonitorKey) {
        self.watch.learners.push_back((now_us + ID_AFTER_US, key));
    }

    /// Monitors are owed the ids that they were to be told later, and that are due.
    fn owe_ids(&mut self, now_us: u64) {
        if self.watch.learners.is_empty() || !self.can_compose() {
            return;
        }
        while let Some((_, key)) =
            self.watch.learners.pop_front_if(|(from_us, _)| *from_us <= now_us)
        {
            self.watch.monitors.owe_id(key);
            self.want_updates(now_us);
        }
    }
}

impl Databases {
    /// Shows what is decided to the monitors, unless it is nothing to any of them: thousands that
    /// have conditions on other rows need not be gone through.
    pub(crate) fn publish(&mut self, shell: &mut Shell, id: DbId, done: &[Done]) {
        let db = self.open(id);
        let mut deltas = done.iter().filter_map(|done| done.delta.as_deref()).peekable();
        if deltas.peek().is_none() {
            return;
        }
        let store = db.tables.store().expect("what has run has run on tables that are here");
        let ids = db.history.push(done, store.schema());
        let monitors = &mut db.watch.monitors;
        let is_unheard = !monitors.is_empty() && monitors.pass_over(deltas, store, ids);
        for Done { delta, .. } in done {
            let Some(delta) = delta else { continue };
            if is_unheard {
                db.log_changes(shell, delta);
                db.note(delta);
                db.watch.shown += 1;
            } else {
                db.show(shell, Arc::clone(delta), ids);
            }
        }
        db.renew_ids(shell.now_us());
        db.want_updates(shell.now_us());
    }

    /// Whether sessions may be told now, before replies, what is pending on a database: in each round as much
    /// as a step suffices for, what begins within it may cost another one, and nobody goes past those who
    /// wait.
    #[inline]
    pub(crate) fn may_tell(&self, id: DbId) -> bool {
        self.get(id).is_none_or(|Db { watch, .. }| {
            !watch.has_queue && (watch.told_cost == 0 || watch.told_cost < self.step_cost_max())
        })
    }

    /// Somebody is to be told, and has his turn in the next round.
    pub(crate) fn wait_to_be_told(&mut self, id: DbId) {
        self.open(id).watch.has_queue = true;
    }

    /// Notes that whoever waits to be told has his turn now.
    pub(crate) fn begin_turns(&mut self, id: DbId) {
        self.open(id).watch.has_queue = false;
    }

    /// Whether somebody waits for nothing but the next round.
    pub(crate) fn are_turns_postponed(&self) -> bool {
        self.values().any(|db| db.watch.has_queue && db.is_decided())
    }

    /// Whether updates of a database can be composed now.
    pub(crate) fn can_tell(&self, id: DbId) -> bool {
        self.get(id).is_some_and(Db::can_compose)
    }

    /// Whether updates wait for an idle moment.
    pub(crate) fn want_idle_moment(&self) -> bool {
        self.values().any(|db| db.can_compose() && db.watch.wants_idle_moment())
    }

    /// What has been held back from a session may go, wherever it watches.
    pub(crate) fn want_updates(&mut self, shell: &Shell) {
        for (_, db) in &mut self.entries {
            db.want_updates(shell.now_us());
        }
    }

    /// Sends what is pending to every session that keeps up.
    pub(crate) fn flush_all(&mut self, shell: &mut Shell, sessions: &mut Sessions) {
        let mut last = None;
        while let Some(id) = self.next_where(&mut last, |_, db| db.watch.since_us.is_some()) {
            self.flush(shell, sessions, id, Flush::Step);
        }
    }

    /// Sends the updates that have waited long enough, or are too many.
    pub(crate) fn flush_if_due(&mut self, shell: &mut Shell, sessions: &mut Sessions) {
        let now_us = shell.now_us();
        for (_, db) in &mut self.entries {
            db.owe_ids(now_us);
        }
        let is_due = |_, db: &Db| db.watch.is_due(now_us) && db.can_compose();
        let mut last = None;
        while let Some(id) = self.next_where(&mut last, is_due) {
            self.flush(shell, sessions, id, Flush::Step);
        }
    }

    /// Sends what is pending on a database to every session that keeps up, if updates can be
    /// composed now.
    pub(crate) fn flush(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        flush: Flush,
    ) {
        self.flush_alone(shell, sessions, id, flush);
        // Behind the rows comes what `_Server` says of them.
        if self.open(id).has_feeds()
            && let Some(server) = self.by_name(server_db::NAME)
            && self.open(server).watch.monitors.has_pending()
        {
            self.flush_alone(shell, sessions, server, Flush::Step);
        }
    }

    fn flush_alone(&mut self, shell: &mut Shell, sessions: &mut Sessions, id: DbId, flush: Flush) {
        let step = self.step_cost_of(id);
        let owed = self.owed_before(id);
        let db = self.open(id);
        if !db.can_compose() {
            return;
        }
        let Db { tables, watch, .. } = db;
        let store = tables.store().expect("updates can be composed");
        watch.flushed_us = shell.now_us();
        let most = if flush == Flush::Whole { u64::MAX } else { step };
        let may_postpone = flush == Flush::Step;
        let flushed = {
            let is_mute = are_mute(sessions, id, &watch.sessions);
            let is_owed = |key: MonitorKey| {
                !owed.is_empty() && watch.sessions.get(&key).is_some_and(|of| owed.contains(of))
            };
            let is_later = |key| is_mute(key) || is_owed(key);
            watch.monitors.flush_all(store, &is_later, most, may_postpone)
        };
        watch.since_us = flushed.has_more.then_some(watch.flushed_us);
        if !flushed.has_more {
            watch.kept_bytes = watch.monitors.pending_bytes();
        }
        let flushed_us = watch.flushed_us;
        watch.send(shell, flushed.updates);
        let overflowed = watch.monitors.overflowed();
        let overflowed: Vec<SessionId> =
            overflowed.iter().filter_map(|key| watch.sessions.get(key).copied()).collect();
        for session in overflowed {
            self.overflow(shell, sessions, session, "pending updates exceed their limit");
        }
        if self.feed(shell, sessions, id, None, flush == Flush::Whole).has_more {
            self.open(id).watch.since_us.get_or_insert(flushed_us);
        }
        if !flushed.leaving.is_empty() {
            self.send_late(shell, sessions, id, flushed.leaving);
        }
    }

    /// Sends what is pending for monitors of one session, if updates can be composed now.
    pub(crate) fn flush_monitors(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        keys: &[MonitorKey],
    ) {
        let step = self.step_cost_of(id);
        let db = self.open(id);
        if !db.can_compose() || !db.watch.monitors.has_pending() {
            return;
        }
        let store = db.tables.store().expect("updates can be composed");
        let flushed = {
            let is_mute = are_mute(sessions, id, &db.watch.sessions);
            db.watch.monitors.flush(keys, store, &is_mute, step)
        };
        db.watch.send(shell, flushed.updates);
        // What only the server changes is small.
        if !db.is_reserved() {
            db.watch.note_told(flushed.cost);
        }
        if !flushed.leaving.is_empty() {
            self.send_late(shell, sessions, id, flushed.leaving);
        }
    }

    /// What a step may cost that concerns a database: what only the server changes is small, and
    /// waits for no helper.
    pub(super) fn step_cost_of(&self, id: DbId) -> u64 {
        let is_reserved = self.get(id).is_some_and(Db::is_reserved);
        if is_reserved { u64::MAX } else { self.step_cost_max() }
    }

    /// A session is to be disconnected. It may be found more than once in a round, by several monitors of its own.
    pub(super) fn overflow(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        session: SessionId,
        why: &str,
    ) {
        if self.overflowed.insert(session) {
            let name = sessions.get(session).map_or("", Session::name);
            let text = format!("{name}: {why}, disconnecting");
            shell.log("ovsdb_jsonrpc_server", Level::Warning, text);
        }
    }

    /// Whether more updates were pending for any session than may be.
    #[inline]
    pub(crate) fn has_overflowed(&self) -> bool {
        !self.overflowed.is_empty()
    }

    /// Sessions for which more updates were pending than may be.
    pub(crate) fn take_overflowed(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.overflowed)
    }

    /// Who watches a database, to be changed.
    pub(crate) fn monitors_mut(&mut self, id: DbId) -> &mut Monitors {
        &mut self.open(id).watch.monitors
    }

    /// A monitor is this session's.
    pub(crate) fn own_monitor(&mut self, id: DbId, key: MonitorKey, session: SessionId) {
        self.open(id).watch.sessions.insert(key, session);
        self.count_unfiled(id);
    }

    /// The rows that a monitor begins with, if they are known, or cost no more than a step may.
    pub(crate) fn initial_rows(&mut self, id: DbId, key: MonitorKey) -> Option<Bytes> {
        let most = self.step_cost_of(id);
        let db = self.open(id);
        let monitors = &mut db.watch.monitors;
        if let Some(rows) = monitors.known_initial(key) {
            return Some(rows);
        }
        // While the tables are away, a helper composes what was committed last.
        let here = db.tables.here()?;
        let (rows, searches) = search(here, |rows| monitors.initial(key, rows, most).ok());
        self.note_searches(id, searches);
        rows
    }

    /// A monitor that has gone already is nobody's any more.
    pub(crate) fn disown_monitor(&mut self, id: DbId, key: MonitorKey) {
        // The database may have been removed.
        if let Some(db) = self.get_mut(id) {
            db.disown(key);
        }
    }

    /// A monitor ends, unless its database is gone.
    pub(crate) fn remove_monitor(&mut self, id: DbId, key: MonitorKey) {
        if let Some(db) = self.get_mut(id) {
            db.disown(key);
            db.watch.monitors.remove(key, db.tables.schema());
        }
    }

    /// Takes out what is left of monitors that have ended, and of sessions that have left with
    /// transactions that wait, as much as a step may.
    pub(crate) fn sweep(&mut self) {
        for (_, db) in &mut self.entries {
            db.watch.monitors.sweep();
            db.waiting.sweep();
        }
    }

    /// Whether something is left of those.
    pub(crate) fn are_to_be_swept(&self) -> bool {
        self.values().any(|db| db.watch.monitors.is_to_be_swept() || db.waiting.is_to_be_swept())
    }

    /// Whether a monitor is still there.
    pub(crate) fn has_monitor(&self, id: DbId, key: MonitorKey) -> bool {
        self.get(id).is_some_and(|db| db.watch.sessions.contains_key(&key))
    }

    /// Forgets the initial rows that were kept for others to come.
    pub(crate) fn forget_initial(&mut self) {
        self.entries.iter_mut().for_each(|(_, db)| db.watch.monitors.forget_initial());
    }
}
