//! Relays (ovsdb(7), "Relay Service Model"): databases whose rows are those of another server, which
//! decides what changes in them.
//!
//! # The life of a write
//!
//! 1. A transaction that may change something goes to the source (`server/relaying/requests.rs`), in
//!    order of arrival. One of a client with a role, or that may wait, is tried on the rows here first:
//!    the source knows neither the client nor when what it waits for comes.
//! 2. A source that has `weir_transact` gets it under an id: when the connection ends before the
//!    answer, it is sent again, and committed once. Any other source gets it once, and the client an
//!    error if there is no answer.
//! 3. What the source has changed comes before its answer, so the client is told of that first.
//!
//! # The life of a change
//!
//! 1. A message of the source is read here, or by a helper if it is long (`work/take_in.rs`).
//! 2. It takes effect as a transaction that is decided (`server/relaying/rows.rs`), under the id that it
//!    has at the source: a client can go on with any server that has the same ids.

pub(crate) mod ephemeral;
pub(crate) mod forwards;
pub(crate) mod locks;
mod paths;
mod window;

use std::collections::BTreeMap;

use weir_data::{DeclaredKeys, Uuid};
use weir_upstream::follower::{Follower, Model as Part, Wanted};
use weir_upstream::remotes::Remotes;

use crate::configuration::{DbConfig, Model, Source};
use crate::effect::{Effect, Framing};
use crate::ids::{DbId, LinkId, SessionId, WorkId, earliest};
use crate::mail::{Mail, is_of_probe};
use crate::relays::ephemeral::Unplaced;
use crate::relays::forwards::{Forwards, Passed};
use crate::relays::locks::SourceLocks;
use crate::relays::paths::Paths;
use crate::shell::Shell;
use crate::work::Taken;

/// Numbers of connections to sources begin here: those below belong to active-backup databases, those
/// from the next power of two on to members of clusters.
const LINKS_FROM: u64 = 1 << 39;

/// A relay that lost its source says so in `_Server` only after this long, in microseconds, as with
/// the reference: clients need not look for another server because of a short interruption.
const GRACE_US: u64 = 30_000_000;

/// What comes before a relay has rows waits for them this long at most, in microseconds, counted from
/// the server's start.
const FIRST_ROWS_US_MAX: u64 = 5_000_000;

/// What `_Server` says of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) is_connected: bool,
    pub(crate) index: Option<u64>,
}

/// A question to the source, for clients that must not read what is stale: first whether it has all that
/// is committed, then which state that is.
#[derive(Debug)]
pub(crate) struct Syncing {
    /// The question's number.
    pub(crate) question: u64,
    /// The number of the request at the source.
    pub(crate) request: u64,
    /// The source has all; it has been asked which state that is.
    pub(crate) has_all: bool,
    /// States that the relay has had since then: the log of changes may have lost the one that is answered.
    pub(crate) passed: Passed,
}

/// A relay of one database.
pub(crate) struct Relay {
    /// The database's name.
    pub(crate) name: String,
    /// As it was configured.
    pub(crate) source: Source,
    /// Keys that are configured.
    pub(crate) keys: DeclaredKeys,
    pub(crate) follower: Follower,
    /// The connection, or the attempt.
    pub(crate) link: Option<LinkId>,
    /// What the source has said, and nobody has looked at.
    mail: Mail,
    /// What the source has said that a helper took for rows.
    pub(crate) unread: Option<Vec<u8>>,
    /// The helper that reads a message or changes the tables, and the connection that it is from.
    pub(crate) at_work: Option<(WorkId, Option<LinkId>)>,
    /// What was read is to take effect as soon as the tables are settled.
    pub(crate) read: Option<Taken>,
    /// The state that a helper makes of the tables; `None` if it gives values that are in no state.
    pub(crate) taking_over: Option<Uuid>,
    pub(crate) forwards: Forwards,
    pub(crate) locks: SourceLocks,
    /// Values of columns that are in no state, whose rows have not come.
    pub(crate) unplaced: Unplaced,
    /// The server has `weir_transact`, and has said that its own source does not.
    pub(crate) lacks_once: bool,
    /// The source is being asked what is committed.
    pub(crate) syncing: Option<Syncing>,
    pub(crate) told: Told,
    /// Since when the source has not been followed, or has been cut off itself.
    lost_us: Option<u64>,
}

/// All relays.
#[derive(Default)]
pub(crate) struct Relays {
    pub(crate) by_db: BTreeMap<DbId, Relay>,
    pub(crate) paths: Paths,
    links: BTreeMap<LinkId, DbId>,
    next_link: u64,
    /// When sessions need not wait for first rows any longer; `None` once they do not.
    await_until_us: Option<u64>,
    /// Sessions that wait for first rows.
    waiting: Vec<SessionId>,
}

impl Relay {
    fn new(own_id: Uuid, name: String, source: Source, shell: &mut Shell) -> Self {
        let wanted = Wanted {
            database: name.clone(),
            remotes: remotes(&source, shell),
            leader_only: false,
            options: source.session_options(),
            model: Part::Relay { own_id },
        };
        Self {
            name,
            follower: Follower::new(wanted, shell.uuids().next_u64()),
            source,
            keys: DeclaredKeys::default(),
            link: None,
            mail: Mail::default(),
            unread: None,
            at_work: None,
            read: None,
            taking_over: None,
            forwards: Forwards::default(),
            locks: SourceLocks::default(),
            unplaced: Unplaced::default(),
            lacks_once: false,
            syncing: None,
            told: Told::default(),
            lost_us: None,
        }
    }

    /// What the configuration says of it.
    pub(crate) fn config(&self) -> DbConfig {
        let source = Some(self.source.clone());
        let keys = self.keys.clone();
        DbConfig { model: Some(Model::Relay), source, keys, ..DbConfig::default() }
    }

    /// Takes a message that has to wait, unless it may pass those that do.
    pub(crate) fn put(&mut self, message: Vec<u8>) -> Option<Vec<u8>> {
        let is_busy = self.at_work.is_some() || self.read.is_some() || self.unread.is_some();
        if (is_busy || !self.mail.is_empty()) && is_of_probe(&message) {
            return Some(message);
        }
        self.mail.push(message);
        None
    }

    /// The message that is next, unless it is for another round.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.mail.pop()
    }

    /// Whether anything waits to be looked at.
    pub(crate) fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }

    /// Whether more waits than may.
    pub(crate) fn is_overfull(&self) -> bool {
        self.mail.is_overfull()
    }

    /// What the source has said on a connection that has ended counts no longer. The rows that were
    /// read of it, if nothing has become of them.
    pub(crate) fn forget_mail(&mut self) -> Option<Taken> {
        self.mail.clear();
        self.unread = None;
        self.read.take()
    }

    /// Whether the source takes transactions under ids, which are known since a state that has one.
    pub(crate) fn has_once(&self) -> bool {
        let gives_ids = self.follower.last() != Uuid::ZERO;
        self.follower.has("weir_transact") && gives_ids && !self.lacks_once
    }

    /// Since when the rows have not been those of the source for sure, on the monotonic clock; `None`
    /// while they are.
    pub(crate) fn lost_us(&self) -> Option<u64> {
        self.lost_us
    }

    /// What `_Server` is to say by now.
    pub(crate) fn state_by(&mut self, now_us: u64) -> Told {
        let is_current = self.follower.is_current();
        self.lost_us = if is_current { None } else { self.lost_us.or(Some(now_us)) };
        let is_short = self.lost_us.is_some_and(|since| now_us < since + GRACE_US);
        let is_connected = is_current || self.told.is_connected && is_short;
        // As long as a helper makes the rows those of the source they are as they were.
        let index = match self.taking_over {
            Some(_) => self.told.index,
            None => self.follower.index(),
        };
        Told { is_connected, index }
    }

    fn next_us(&self) -> Option<u64> {
        let lost_us = self.lost_us.filter(|_| self.told.is_connected);
        let grace_us = lost_us.map(|since| since + GRACE_US);
        let locks_us = self.locks.next_us().filter(|_| self.follower.may_ask());
        earliest([self.follower.next_wakeup_us(), grace_us, locks_us])
    }
}

/// The servers of a source, in an order of chance.
fn remotes(source: &Source, shell: &mut Shell) -> Remotes {
    let mut remotes = Remotes::parse(&source.target);
    remotes.shuffle(|| shell.uuids().next_u64());
    remotes
}

impl Relays {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_db.is_empty()
    }

    /// Whether there is nothing to do: no relay, and nobody who waits for one that has gone.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.by_db.is_empty() && self.await_until_us.is_none()
    }

    pub(crate) fn get(&self, db: DbId) -> Option<&Relay> {
        self.by_db.get(&db)
    }

    pub(crate) fn get_mut(&mut self, db: DbId) -> &mut Relay {
        self.by_db.get_mut(&db).expect("a relay has its source")
    }

    /// The relay of this name, whether it has heard from its source or not.
    pub(crate) fn by_name(&self, name: &str) -> Option<DbId> {
        self.by_db.iter().find(|(_, relay)| relay.name == name).map(|(db, _)| *db)
    }

    /// The relay that a connection is of.
    pub(crate) fn of_link(&self, link: LinkId) -> Option<DbId> {
        self.links.get(&link).copied()
    }

    /// The relay that a helper is at work for.
    pub(crate) fn of_work(&self, work: WorkId) -> Option<DbId> {
        let is_it = |relay: &Relay| relay.at_work.is_some_and(|(at_work, _)| at_work == work);
        self.by_db.iter().find(|(_, relay)| is_it(relay)).map(|(db, _)| *db)
    }

    /// The server starts: sessions wait until all relays have rows, within a bound.
    pub(crate) fn await_first_rows(&mut self, now_us: u64) {
        self.await_until_us = Some(now_us + FIRST_ROWS_US_MAX);
    }

    /// Whether a session that comes now is to wait for first rows, which it does from then on.
    pub(crate) fn keeps_waiting(&mut self, session: SessionId) -> bool {
        let waits = self.await_until_us.is_some();
        if waits {
            self.waiting.push(session);
        }
        waits
    }

    /// Sessions that need not wait for first rows any longer.
    pub(crate) fn end_waiting(&mut self, now_us: u64, have_all_rows: bool) -> Vec<SessionId> {
        let is_over = |until: u64| have_all_rows || until <= now_us;
        match self.await_until_us.take_if(|until| is_over(*until)) {
            Some(_) => std::mem::take(&mut self.waiting),
            None => Vec::new(),
        }
    }

    /// Bytes kept for a session's requests that had to wait for a source.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        self.by_db.values().map(|relay| relay.forwards.outbound().kept_bytes(session)).sum()
    }

    /// Bytes kept for all such requests.
    pub(crate) fn all_kept_bytes(&self) -> usize {
        self.by_db.values().map(|relay| relay.forwards.outbound().all_kept_bytes()).sum()
    }

    /// As much of what sources have said may be looked at again.
    pub(crate) fn begin_round(&mut self) {
        self.by_db.values_mut().for_each(|relay| relay.mail.begin_round());
    }

    /// When something is to be done though nothing happens.
    #[inline]
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.by_db.is_empty() {
            return None;
        }
        let of_relays = self.by_db.values().filter_map(Relay::next_us).min();
        earliest([of_relays, self.await_until_us])
    }

    /// A database is relayed from now on, by the server of this id.
    pub(crate) fn insert(
        &mut self,
        shell: &mut Shell,
        (own_id, db): (Uuid, DbId),
        name: String,
        source: Source,
    ) {
        let relay = Relay::new(own_id, name, source, shell);
        self.by_db.insert(db, relay);
    }

    /// A database is no longer relayed.
    pub(crate) fn remove(&mut self, shell: &mut Shell, db: DbId) -> Option<Relay> {
        self.close_link(shell, db);
        self.by_db.remove(&db)
    }

    /// Another source, or other options of it.
    pub(crate) fn configure(
        &mut self,
        shell: &mut Shell,
        db: DbId,
        source: Source,
        out: &mut Vec<weir_upstream::follower::Output>,
    ) {
        let now_us = shell.now_us();
        let remotes = remotes(&source, shell);
        let relay = self.get_mut(db);
        relay.follower.set_options(source.session_options());
        if relay.source.target != source.target {
            relay.follower.set_remotes(now_us, remotes, out);
        }
        relay.source = source;
    }

    /// Another inactivity probe interval of the connections to all sources, in milliseconds.
    pub(crate) fn set_probe(&mut self, probe_ms: u64) {
        for relay in self.by_db.values_mut() {
            relay.source.probe_ms = probe_ms;
            relay.follower.set_options(relay.source.session_options());
        }
    }

    /// Another longest pause between attempts to reach any source, in milliseconds.
    pub(crate) fn set_backoff(&mut self, backoff_ms: u64) {
        for relay in self.by_db.values_mut() {
            relay.source.max_backoff_ms = backoff_ms;
            relay.follower.set_options(relay.source.session_options());
        }
    }

    pub(crate) fn connect(&mut self, shell: &mut Shell, db: DbId, target: String) {
        self.next_link += 1;
        let link = LinkId(LINKS_FROM + self.next_link);
        self.links.insert(link, db);
        let relay = self.get_mut(db);
        relay.link = Some(link);
        let (dscp, framing) = (relay.source.dscp, Framing::Json);
        shell.ask(Effect::Connect { link, target, dscp, framing });
    }

    /// Ends a connection, if there is one.
    pub(crate) fn close_link(&mut self, shell: &mut Shell, db: DbId) {
        if let Some(link) = self.by_db.get_mut(&db).and_then(|relay| relay.link.take()) {
            self.links.remove(&link);
            shell.ask(Effect::CloseLink { link });
        }
    }

    /// A connection has ended by itself.
    pub(crate) fn lost_link(&mut self, link: LinkId) {
        if let Some(db) = self.links.remove(&link) {
            self.get_mut(db).link = None;
        }
    }
}
