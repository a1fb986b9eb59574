//! Sessions: who is connected, what each of them waits for, which locks they have, and whether they
//! are still there.
//!
//! A session knows nothing of databases: what it has going there belongs to them.

mod channels;
pub(crate) mod deaf;
pub(crate) mod gate;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod message;
pub(crate) mod order;
pub(crate) mod probes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::effect::RemoteOptions;
use crate::ids::{DbId, RemoteId, SessionId};
use crate::once::CHANNELS_MAX;
use crate::origin::Identity;
use crate::session::deaf::Deaf;
use crate::session::gate::{ALL_QUEUED_BYTES_MAX, Gate, Lane, QUEUED_BYTES_MAX, Queued, Reason};
use crate::session::limits::Budget;
use crate::session::locks::{Lock, LockMode, Locks};
use crate::session::message::{Incoming, Marks};
use crate::session::order::Order;
use crate::session::probes::{Probes, Watched};
use crate::shell::Shell;

/// A client connection.
#[derive(Debug)]
pub(crate) struct Session {
    identity: Arc<Identity>,
    /// The listener it came through.
    remote: RemoteId,
    /// `set_db_change_aware` (ovsdb-server(7) §4.1.18).
    is_db_change_aware: bool,
    /// The client has asked for something of a database other than `_Server`.
    knows_tables: bool,
    /// The session is too far behind to be sent updates.
    is_blocked: bool,
    /// Locks it has asked for and not released, owned or not.
    locks: BTreeMap<String, Lock>,
    /// What those occupy.
    lock_bytes: usize,
    /// What has happened to them that the session could not be told.
    lock_news: BTreeMap<String, SmallVec<[&'static str; 2]>>,
    /// Locks of which it is to be told once more that they are its own.
    lock_repeats: BTreeSet<String>,
    watched: Watched,
    /// By when the client must have asked for monitors: its own have ended with a schema.
    asks_by_us: Option<u64>,
    gate: Gate,
    order: Order,
    /// Of a connection: its channels.
    channels: BTreeSet<SessionId>,
    /// Of a connection: how many of its gates, and of its channels', are why nothing is read.
    full_gates: usize,
    /// How many connections and channels had begun with it.
    number: u64,
}

impl Session {
    /// Who the client is.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// What logs call the session.
    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// The listener that the session came through.
    pub(crate) fn remote(&self) -> RemoteId {
        self.remote
    }

    /// Whether the client wants to know of databases that come and go.
    pub(crate) fn is_db_change_aware(&self) -> bool {
        self.is_db_change_aware
    }

    /// Whether the client may go by databases that were there when it asked.
    pub(crate) fn is_unaware(&self) -> bool {
        !self.is_db_change_aware && self.gate.has_passed()
    }

    /// Whether the client's requests wait for the first rows of a relay, so that it has not been told that there
    /// are none.
    pub(crate) fn awaits_source(&self) -> bool {
        self.gate.awaits_source()
    }

    /// Whether the client may know tables of a database other than `_Server`.
    pub(crate) fn knows_tables(&self) -> bool {
        self.knows_tables
    }

    /// Names of the locks that the session owns or waits for, and how it asked for them.
    pub(crate) fn locks(&self) -> impl ExactSizeIterator<Item = (&str, LockMode)> {
        self.locks.iter().map(|(name, lock)| (name.as_str(), lock.mode))
    }

    /// When anything last came in.
    pub(crate) fn heard_us(&self) -> u64 {
        self.watched.probe.heard_us()
    }

    /// Whether a probe is out that nobody has answered.
    pub(crate) fn is_probing(&self) -> bool {
        self.watched.probe.is_out()
    }

    /// What keeps the session's messages waiting.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether no update of a database is to be composed for the session: it is too far behind, or
    /// its own work on the database is out.
    pub(crate) fn is_mute(&self, db: DbId) -> bool {
        self.is_blocked || self.gate.mutes(Some(db))
    }

    fn is_mute_somewhere(&self) -> bool {
        self.is_blocked || self.gate.mutes(None)
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Connections, and their channels.
    by_id: BTreeMap<SessionId, Session>,
    /// Connections and channels that have begun.
    accepted: u64,
    /// How many of them are mute somewhere.
    mute: usize,
    /// Sessions with messages that may wait for nothing but their turn.
    ready: VecDeque<SessionId>,
    /// Sessions with an `unlock` in their gates that has waited for something which is done.
    released_unlocks: BTreeSet<SessionId>,
    /// Answers that have waited for others may go now.
    is_order_to_be_looked_at: bool,
    /// Counts rounds: a session's messages are handled one a round.
    round: u64,
    /// Bytes of messages that wait in their gates.
    queued_bytes: usize,
    /// What is kept for all of them.
    budget: Budget,
    locks: Locks,
    probes: Probes,
    deaf: Deaf,
}

impl Sessions {
    /// A client has connected.
    pub(crate) fn accept(
        &mut self,
        shell: &Shell,
        id: SessionId,
        remote: RemoteId,
        identity: Identity,
        options: &RemoteOptions,
    ) {
        let watched = self.probes.begin(shell, id, &identity.name, options.probe_ms);
        let session = Session {
            identity: Arc::new(identity),
            remote,
            is_db_change_aware: false,
            knows_tables: false,
            is_blocked: false,
            locks: BTreeMap::new(),
            lock_bytes: 0,
            lock_news: BTreeMap::new(),
            lock_repeats: BTreeSet::new(),
            watched,
            asks_by_us: None,
            gate: Gate::default(),
            order: Order::default(),
            channels: BTreeSet::new(),
            full_gates: 0,
            number: self.next_number(),
        };
        assert!(!id.is_channel(), "the shell numbers connections below channels");
        let other = self.by_id.insert(id, session);
        assert!(other.is_none(), "numbers of sessions are never used again");
    }

    fn next_number(&mut self) -> u64 {
        self.accepted += 1;
        self.accepted
    }

    /// The channel in which a relay asks its source what this session asks of it, if it is still there. Sessions that come
    /// one after the other have different ones.
    pub(crate) fn channel_at_source(&self, id: SessionId) -> Option<u16> {
        let number = self.get(id)?.number % u64::from(CHANNELS_MAX);
        Some(u16::try_from(number).expect("it is less than the bound"))
    }

    /// A session that is still there.
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    /// Whether a session is still there.
    pub(crate) fn has(&self, id: SessionId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Whether a session is still there, and its client wants to know of databases that come and go.
    pub(crate) fn is_db_change_aware(&self, id: SessionId) -> bool {
        self.get(id.connection()).is_some_and(Session::is_db_change_aware)
    }

    /// All connections, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let all = self.by_id.iter().map(|(id, session)| (*id, session));
        all.take_while(|(id, _)| !id.is_channel())
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// All connections and channels.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.by_id.keys().copied().collect()
    }

    /// The sessions of a remote.
    pub(crate) fn of_remote(&self, remote: RemoteId) -> Vec<SessionId> {
        self.iter().filter(|(_, session)| session.remote == remote).map(|(id, _)| id).collect()
    }

    /// The client says whether it wants to know of databases that come and go.
    pub(crate) fn set_db_change_aware(&mut self, id: SessionId, is_aware: bool) {
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        session.is_db_change_aware = is_aware;
    }

    /// The client asks for something of a database other than `_Server`.
    pub(crate) fn note_knows_tables(&mut self, id: SessionId) {
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        session.knows_tables = true;
    }

    /// A session ends: its locks go to who waits for them. Its channels have ended before.
    pub(crate) fn remove(&mut self, shell: &mut Shell, id: SessionId) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        assert!(session.channels.is_empty(), "channels end before their connection");
        self.leave_connection(id);
        self.mute -= usize::from(session.is_mute_somewhere());
        shell.forget(id);
        self.forget_kept(id);
        self.queued_bytes -= session.gate.queued_bytes();
        self.released_unlocks.remove(&id);
        for name in session.locks.keys() {
            self.leave_lock(shell, id, name);
        }
        self.locks.bytes -= session.lock_bytes;
        Some(session)
    }

    /// Whether any session is mute somewhere: as a rule none is, and none need be looked at.
    pub(crate) fn are_any_mute(&self) -> bool {
        self.mute > 0
    }

    /// Whether a session can be told now what it has not asked for, or has to be told later.
    pub(crate) fn takes_notices(&self, shell: &Shell, id: SessionId) -> bool {
        self.get(id).is_some_and(|session| !session.is_blocked) && !shell.is_in_message(id)
    }

    /// The shell has said whether the session's outbox is too full for updates.
    pub(crate) fn set_blocked(&mut self, id: SessionId, is_blocked: bool) {
        let was_blocked =
            self.change(id, |session| std::mem::replace(&mut session.is_blocked, is_blocked));
        match (was_blocked, is_blocked) {
            (Some(false), true) => self.hold(id, Reason::Behind, Lane::Every),
            (Some(true), false) => {
                self.release(id, Reason::Behind, Lane::Every);
            }
            _ => {}
        }
    }

    /// Changes what may make a session mute; one that has left is mute for good.
    fn change<T>(&mut self, id: SessionId, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let session = self.by_id.get_mut(&id)?;
        let before = session.is_mute_somewhere();
        let changed = change(session);
        let after = session.is_mute_somewhere();
        self.mute = self.mute - usize::from(before) + usize::from(after);
        Some(changed)
    }

    /// A reason for the session's messages of a lane to wait. A session that has left waits for
    /// nothing. Where a connection takes nothing, its channels wait as well.
    pub(crate) fn hold(&mut self, id: SessionId, reason: Reason, lane: Lane) {
        for id in self.held_with(id, reason) {
            self.change(id, |session| session.gate.hold(reason, lane));
        }
    }

    /// The reason is gone; true if updates may have waited for that. A session may have left
    /// meanwhile.
    pub(crate) fn release(&mut self, id: SessionId, reason: Reason, lane: Lane) -> bool {
        let mut may_tell = false;
        for id in self.held_with(id, reason) {
            let mut has_unlock = false;
            let released = self.change(id, |session| {
                session.gate.release(reason, lane);
                has_unlock = session.gate.queues_unlock();
                !session.gate.mutes(None) && reason.mutes()
            });
            if released.is_some() {
                self.look_at(id);
            }
            if has_unlock {
                self.released_unlocks.insert(id);
            }
            may_tell |= released.unwrap_or(false);
        }
        may_tell
    }

    /// Changes what waits in a session's gate.
    fn change_queue<T>(&mut self, id: SessionId, change: impl FnOnce(&mut Gate) -> T) -> Option<T> {
        let gate = &mut self.by_id.get_mut(&id)?.gate;
        self.queued_bytes -= gate.queued_bytes();
        let changed = change(gate);
        self.queued_bytes += gate.queued_bytes();
        Some(changed)
    }

    /// Whether an `unlock` of a session waits for what it has asked for under the lock.
    pub(crate) fn has_unlock(&self, id: SessionId) -> bool {
        self.by_id.get(&id).is_some_and(|session| session.gate.has_unlock())
    }

    /// Sessions that give locks up behind what they have asked for under them.
    pub(crate) fn waiting_unlocks(&self) -> Vec<SessionId> {
        let waiting = self.by_id.iter().filter(|(_, session)| session.gate.has_unlock());
        waiting.map(|(id, _)| *id).collect()
    }

    /// Sessions with a waiting `unlock` that wait for less than when this was asked last.
    pub(crate) fn take_released_unlocks(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.released_unlocks)
    }

    /// Whether any session with a waiting `unlock` waits for less than before.
    pub(crate) fn have_released_unlocks(&self) -> bool {
        !self.released_unlocks.is_empty()
    }

    /// Something that a session has asked for goes elsewhere, and may wait there for the next owner of a lock, if it
    /// `may_wait`: what is asked for behind it to give the lock up does not wait for it.
    pub(crate) fn let_unlock_pass(&mut self, id: SessionId, may_wait: impl FnOnce() -> bool) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        if session.gate.has_unlock() && may_wait() {
            session.gate.let_unlock_pass();
            self.look_at(id);
        }
    }

    /// Queues the session for its next message, if one may be handled.
    pub(crate) fn look_at(&mut self, id: SessionId) {
        if self.by_id.get_mut(&id).is_some_and(|session| session.gate.becomes_ready()) {
            self.ready.push_back(id);
        }
    }

    /// A message has come: whether it is handled right away, and counts as this round's. `None` if
    /// the session has left meanwhile.
    pub(crate) fn message_came(&mut self, shell: &Shell, id: SessionId) -> Option<bool> {
        let session = self.by_id.get_mut(&id)?;
        session.watched.probe.heard(shell.now_us());
        Some(session.gate.pass(self.round))
    }

    /// Whether a message of this lane goes past those that wait.
    pub(crate) fn may_pass(&self, id: SessionId, lane: Lane) -> bool {
        self.by_id.get(&id).is_some_and(|session| session.gate.may_pass(lane))
    }

    /// Whether a request of a session about a database is with the leader of its cluster.
    pub(crate) fn has_forwarded(&self, id: SessionId, db: DbId) -> bool {
        self.by_id.get(&id).is_some_and(|session| session.gate.has_forwarded(db))
    }

    /// A message waits behind others. A session that makes the server keep too many of them is not
    /// read meanwhile.
    pub(crate) fn queue(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        message: Incoming,
        lane: Lane,
        marks: Marks,
    ) {
        let are_many = self.queued_bytes > ALL_QUEUED_BYTES_MAX;
        let most = if are_many { 0 } else { QUEUED_BYTES_MAX };
        let queue = |gate: &mut Gate| gate.push_back(message, lane, marks, most);
        if self.change_queue(id, queue).expect("its message has just come") {
            self.gate_is_full(shell, id);
        }
    }

    /// A message whose turn it was must wait after all.
    pub(crate) fn put_back(&mut self, id: SessionId, message: Incoming, lane: Lane, marks: Marks) {
        let queued = self.change_queue(id, |gate| gate.push_front(message, lane, marks));
        queued.expect("its message is being handled");
    }

    /// A session has asked for a lock, or has given one up, of this name if that has changed anything: which locks count for
    /// what it has asked for behind that is decided, up to the next message of that kind. Answers with the lock that this
    /// one gives up, if it does, and where it stands.
    pub(crate) fn decide_locks(
        &mut self,
        id: SessionId,
        name: Option<&str>,
    ) -> Option<(usize, String)> {
        let changed = name.map(|name| (name, self.held_by(id, name)));
        self.change_queue(id, |gate| {
            changed.iter().for_each(|(name, held)| gate.change_locks(name, held.as_ref()));
            gate.decide_locks()
        })?
    }

    /// What a message that waits comes behind.
    pub(crate) fn set_lane(&mut self, id: SessionId, at: usize, lane: Lane) {
        self.change_queue(id, |gate| gate.set_lane(at, lane)).expect("its message waits");
        self.look_at(id);
    }

    /// The next session and its message that has waited long enough.
    pub(crate) fn next_queued(&mut self, shell: &mut Shell) -> Option<(SessionId, Queued)> {
        for _ in 0..self.ready.len() {
            let id = self.ready.pop_front()?;
            // A session may have left, or wait for something else by now.
            let Some(session) = self.by_id.get_mut(&id) else { continue };
            if session.gate.is_spent(self.round) {
                self.ready.push_back(id);
                continue;
            }
            session.gate.is_looked_at();
            let round = self.round;
            let queued = self.change_queue(id, |gate| gate.pop(round)).flatten();
            let Some(queued) = queued else { continue };
            self.may_be_read(shell, id);
            self.look_at(id);
            return Some((id, queued));
        }
        None
    }

    /// A database is gone, and what waits for its turn concerns perhaps another one.
    pub(crate) fn forget_database(&mut self, db: DbId) {
        self.by_id.values_mut().for_each(|session| session.gate.forget_database(db));
    }

    /// Takes back a `transact` request that has not been looked at: true if there was one of this
    /// id, in its JSON text.
    pub(crate) fn cancel_queued(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        request: &[u8],
    ) -> bool {
        let canceled = self.change_queue(id, |gate| gate.take_transact(request));
        let is_canceled = canceled.expect("its request is being handled");
        self.may_be_read(shell, id);
        // What came behind it may go on.
        self.look_at(id);
        is_canceled
    }

    /// A message of the session is handled in this round, though not for its turn.
    pub(crate) fn note_handled(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.gate.note_handled(self.round);
        }
    }

    /// Whether messages may wait for nothing but their turn.
    pub(crate) fn are_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many sessions have such messages.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Bytes of messages that wait for sessions that are not read.
    pub(crate) fn stopped_bytes(&self) -> usize {
        let gates = self.by_id.values().map(|session| &session.gate);
        gates.filter(|gate| gate.is_stopped()).map(Gate::queued_bytes).sum()
    }

    /// From now on each session may have one more message handled.
    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
    }
}
