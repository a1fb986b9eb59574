//! Locks (RFC 7047 §4.1.8): a queue of sessions for each name, its head is the owner.
//!
//! Locks belong to the server, not to a database.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::Error;
use weir_json::Text;

use crate::ids::{DbId, SessionId};
use crate::once::Heard;
use crate::reply::{Handled, Reply};
use crate::session::limits::OVERHEAD_BYTES;
use crate::session::{Session, Sessions};
use crate::shell::Shell;
use crate::work::asserted;

/// Methods of notifications to who waits for a lock, or has it.
const LOCKED: &str = "locked";
const STOLEN: &str = "stolen";

/// How a session asked for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// `lock`
    Wait,
    /// `steal`
    Steal,
}

/// A lock that a session has asked for and not released, owned or not.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) mode: LockMode,
    /// Whether the session was told that it has it.
    is_owned: bool,
    /// How often it was told that it has it now, or has it no longer.
    told: u64,
    /// Where relays' databases were when it was told that it has it, if it has it.
    as_of: Option<Arc<AsOf>>,
    /// What it occupies.
    bytes: usize,
}

/// How many changes had been shown of each relay's database.
pub(crate) type AsOf = BTreeMap<DbId, u64>;

/// What that occupies for each of them.
const AS_OF_BYTES: usize = 32;

impl Lock {
    /// The session is sent a notification. It may say what has been said before.
    fn tell(&mut self, is_owned: bool) {
        if self.is_owned != is_owned {
            (self.is_owned, self.as_of) = (is_owned, None);
            self.told += 1;
        }
    }
}

/// Ends of turns that are remembered, the last ones: of a lock that its owner gave up and nobody has had
/// since. What was sent under an older one is refused.
const ENDED_MAX: usize = 64;

/// A lock that a session owned when it asked for something. That counts as long as nobody else has owned
/// the lock since: what waits while another one has it would otherwise come behind what that one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// Which turn it was; `None` if another server says so, which has the lock.
    turn: Option<u64>,
    /// How often the session had been told that it has it now, or has it no longer; `None` if it had yet to be told.
    told: Option<u64>,
}

impl Held {
    /// A client of another server owns it there.
    pub(crate) fn elsewhere(name: String) -> Self {
        Self { name, turn: None, told: None }
    }

    /// Whether the session had heard of all that it was told of the lock by when it asked for something.
    pub(crate) fn is_known(&self, heard: &Heard) -> bool {
        heard.is_all(&self.name, self.told)
    }
}

/// Who has a lock, or waits for it.
#[derive(Debug, Default)]
struct Queue {
    /// The owner first.
    sessions: VecDeque<(SessionId, LockMode)>,
    /// The owner's turn, which no other one has had.
    turn: u64,
    /// The owner was told in this turn that others have the lock at the source of a relay.
    is_lost: bool,
    /// The relays' databases in which the owner has asserted it, the last one last.
    asserted_in: Vec<DbId>,
}

/// All lock queues.
#[derive(Debug, Default)]
pub(super) struct Locks {
    queues: BTreeMap<String, Queue>,
    /// Turns so far.
    turns: u64,
    /// Turns that ended when their owners gave the locks up: whose, of which lock, which turn.
    ended: VecDeque<(SessionId, String, u64)>,
    /// What the locks of all sessions occupy.
    pub(super) bytes: usize,
    /// Sessions that have to be told of locks.
    to_tell: BTreeSet<SessionId>,
}

/// What a lock of a session occupies: its name stands among the session's, in front of a queue, and
/// perhaps with what the session is to be told of it.
fn lock_bytes(name: &str) -> usize {
    3 * name.len() + OVERHEAD_BYTES
}

impl Locks {
    fn owner(&self, name: &str) -> Option<SessionId> {
        self.queues.get(name)?.sessions.front().map(|(session, _)| *session)
    }

    /// Whether nobody else has owned a lock since.
    fn is_held(&self, held: &Held) -> bool {
        let Some(turn) = held.turn else { return true };
        let lasts = self.queues.get(&held.name).is_some_and(|queue| queue.turn == turn);
        lasts || self.ended.iter().any(|(.., ended)| *ended == turn)
    }

    /// Another turn of a lock begins.
    fn begin_turn(&mut self, name: &str) {
        self.turns += 1;
        let Some(queue) = self.queues.get_mut(name) else { return };
        (queue.turn, queue.is_lost) = (self.turns, false);
        let owner = queue.sessions.front().map(|(session, _)| *session);
        self.ended.retain(|(session, ended, _)| ended != name || Some(*session) == owner);
    }

    /// A turn of somebody else begins.
    fn change_owner(&mut self, name: &str) {
        self.begin_turn(name);
        if let Some(queue) = self.queues.get_mut(name) {
            queue.asserted_in.clear();
        }
    }

    /// Queues at the end; true if that made the session the owner.
    fn lock(&mut self, name: &str, session: SessionId) -> bool {
        let queue = self.queues.entry(name.to_owned()).or_default();
        queue.sessions.push_back((session, LockMode::Wait));
        let is_owner = queue.sessions.len() == 1;
        if is_owner {
            self.begin_turn(name);
        }
        is_owner
    }

    /// Takes the head of the queue; returns the owner it was stolen from. An owner that had stolen
    /// the lock itself leaves the queue, one that had waited for it is next.
    fn steal(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let queue = &mut self.queues.entry(name.to_owned()).or_default().sessions;
        let victim = queue.front().copied();
        if matches!(victim, Some((_, LockMode::Steal))) {
            queue.pop_front();
        }
        queue.push_front((session, LockMode::Steal));
        self.change_owner(name);
        victim.map(|(session, _)| session)
    }

    /// Leaves the queue. Returns the owner from now on, even if it was that before: clients count
    /// on being told, unless others have the lock. A thief who was robbed is in no queue any more, and nobody hears of it.
    fn unlock(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let Queue { sessions, turn, is_lost, .. } = self.queues.get_mut(name)?;
        let at = sessions.iter().position(|(waiter, _)| *waiter == session)?;
        sessions.remove(at);
        let owner = sessions.front().map(|(session, _)| *session);
        match owner {
            None => {
                // Where it was lost, others have had it since.
                if !*is_lost {
                    self.ended.push_back((session, name.to_owned(), *turn));
                    if self.ended.len() > ENDED_MAX {
                        self.ended.pop_front();
                    }
                }
                self.queues.remove(name);
                self.turns += 1;
            }
            Some(_) if at == 0 => self.change_owner(name),
            Some(_) if *is_lost => return None,
            Some(_) => {}
        }
        owner
    }
}

impl Sessions {
    /// What a session's locks occupy, in bytes.
    pub(crate) fn lock_bytes(&self, id: SessionId) -> usize {
        self.get(id).map_or(0, |session| session.lock_bytes)
    }

    /// What all locks occupy, in bytes.
    pub(crate) fn all_lock_bytes(&self) -> usize {
        self.locks.bytes
    }

    /// Whether the session owns the lock.
    pub(crate) fn owns_lock(&self, id: SessionId, name: &str) -> bool {
        self.locks.owner(name) == Some(id.connection())
    }

    /// Whether a session owns locks, or waits for some.
    pub(crate) fn has_locks(&self, id: SessionId) -> bool {
        self.get(id.connection()).is_some_and(|session| !session.locks.is_empty())
    }

    /// Who owns the lock.
    pub(crate) fn lock_owner(&self, name: &str) -> Option<SessionId> {
        self.locks.owner(name)
    }

    /// What the session knows of relays' databases, if it has been told just now that a lock is its own.
    pub(crate) fn note_known(&mut self, id: SessionId, lock: &str, as_of: &Arc<AsOf>) {
        let lock = self.by_id.get_mut(&id).and_then(|session| session.locks.get_mut(lock));
        if let Some(lock) = lock.filter(|lock| lock.is_owned) {
            lock.as_of = Some(Arc::clone(as_of));
        }
    }

    /// Where a relay's database was when the session was told that it has the lock, if it was told.
    pub(crate) fn known_under(&self, id: SessionId, name: &str, db: DbId) -> Option<u64> {
        let as_of = self.get(id)?.locks.get(name)?.as_of.as_ref()?;
        Some(as_of.get(&db).copied().unwrap_or_default())
    }

    /// Whether anybody owns the lock.
    pub(crate) fn is_locked(&self, name: &str) -> bool {
        self.locks.owner(name).is_some()
    }

    /// The owner of a lock asserts it in the database of a relay, which is the only one, or is to hear of that together with
    /// the others.
    pub(crate) fn note_asserted(&mut self, name: &str, db: DbId, is_only: bool) {
        let Some(queue) = self.locks.queues.get_mut(name) else { return };
        if queue.asserted_in.last() != Some(&db) {
            queue.asserted_in.retain(|other| *other != db);
            queue.asserted_in.push(db);
            self.locks.turns += u64::from(!is_only);
        }
    }

    /// Whether the owner of a lock has asserted it in the database of a relay.
    pub(crate) fn is_asserted_in(&self, name: &str, db: DbId) -> bool {
        self.asserted_in(name).contains(&db)
    }

    /// The relays' databases in which the owner of a lock has asserted it, the last one last.
    pub(crate) fn asserted_in(&self, name: &str) -> &[DbId] {
        self.locks.queues.get(name).map_or(&[], |queue| &queue.asserted_in)
    }

    /// A lock is another relay's at its source, or not any more.
    pub(crate) fn note_lock_change(&mut self) {
        self.locks.turns += 1;
    }

    /// How often a turn of any lock has begun or ended, here or at a relay's source, or an owner has come to assert his in
    /// another relay's database: while that stays the same, so does who owns which and where.
    pub(crate) fn lock_changes(&self) -> u64 {
        self.locks.turns
    }

    /// Who gave up a lock that nobody has owned since.
    pub(crate) fn last_owner(&self, name: &str) -> Option<SessionId> {
        let mut ended = self.locks.ended.iter().filter(|(_, ended, _)| ended == name);
        ended.next().map(|(session, ..)| *session)
    }

    /// A relay gives a lock back at its source, where others may have it from now on: what was asked for under it
    /// before it was given up here does not count any more.
    pub(crate) fn forget_ended(&mut self, name: &str) {
        self.locks.ended.retain(|(_, ended, _)| ended != name);
    }

    /// Whether the owner of a lock has asked for it by force.
    pub(crate) fn is_stolen(&self, name: &str) -> bool {
        self.locks.owner(name).is_some_and(|owner| self.has_stolen(owner, name))
    }

    /// Whether the session has asked for the lock by force.
    pub(crate) fn has_stolen(&self, id: SessionId, name: &str) -> bool {
        let lock = self.get(id.connection()).and_then(|session| session.locks.get(name));
        lock.is_some_and(|lock| lock.mode == LockMode::Steal)
    }

    /// Whether nobody else has owned a lock since a session owned it.
    pub(crate) fn is_held(&self, held: &Held) -> bool {
        self.locks.is_held(held)
    }

    /// The names of those of these locks that nobody else has owned since.
    pub(crate) fn held_names(&self, locks: &[Held]) -> Vec<String> {
        let held = locks.iter().filter(|held| self.is_held(held));
        held.map(|held| held.name.clone()).collect()
    }

    /// The owner of a lock of a relay has lost it at the source, or has it there again: what was sent
    /// under it before does not count any more.
    /// Who has yet to be told that it is his has lost nothing.
    pub(crate) fn tell_owner(&mut self, shell: &mut Shell, name: &str, is_back: bool) {
        self.forget_ended(name);
        self.locks.begin_turn(name);
        let is_told = self.lock_owner(name).is_some() && !self.is_yet_to_be_told(name);
        let Some(queue) = self.locks.queues.get_mut(name) else { return };
        queue.is_lost = !is_back && is_told;
        if let Some(owner) = self.locks.owner(name).filter(|_| is_back || is_told) {
            self.notify_lock(shell, owner, if is_back { LOCKED } else { STOLEN }, name);
        }
    }

    /// Whether the owner of a lock of a relay knows that others have it at the source. Who comes to own it here
    /// after him does not.
    pub(crate) fn knows_of_loss(&self, name: &str) -> bool {
        self.locks.queues.get(name).is_some_and(|queue| queue.is_lost)
    }

    /// The locks that a session owns now.
    pub(crate) fn owned_locks(&self, id: SessionId) -> Vec<Held> {
        let id = id.connection();
        let locks = self.get(id).into_iter().flat_map(|session| session.locks.keys());
        locks.filter_map(|name| self.held_by(id, name)).collect()
    }

    /// Whether a session owns a lock, and has been told so if it was told before that it has lost it.
    pub(crate) fn may_assert(&self, id: SessionId, name: &str) -> bool {
        self.held_by(id.connection(), name).is_some()
    }

    /// A lock that the session owns, as it counts for what it asks for now.
    pub(super) fn held_by(&self, id: SessionId, name: &str) -> Option<Held> {
        let turn = self.locks.queues.get(name).filter(|_| self.owns_lock(id, name))?.turn;
        let session = self.get(id)?;
        let lock = &session.locks[name];
        let mut news = session.lock_news.get(name).into_iter().flatten();
        let has_news = news.any(|method| (*method == LOCKED) != lock.is_owned);
        if has_news && (lock.is_owned || lock.told > 0) {
            // It has lost the lock, and what it asks for meanwhile it has computed before that.
            return None;
        }
        let told = (!has_news).then_some(lock.told);
        Some(Held { name: name.to_owned(), turn: Some(turn), told })
    }

    /// Which of the locks that operations `assert` the session owns now.
    pub(crate) fn owned_among<'m>(
        &self,
        id: SessionId,
        operations: impl Iterator<Item = Text<'m>>,
    ) -> Vec<Held> {
        // As a rule there is none.
        let id = id.connection();
        if self.get(id).is_none_or(|session| session.locks.is_empty()) {
            return Vec::new();
        }
        asserted(operations).iter().filter_map(|name| self.held_by(id, name)).collect()
    }

    /// `lock` and `steal`. Of a lock that is not free yet, for something of its last owner under it is not decided, the
    /// session is told when it is. `relays` is of how many it is noted what the session knows then.
    pub(crate) fn lock(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        params: Text<'_>,
        (mode, is_free): (LockMode, bool),
        relays: usize,
    ) -> Handled {
        let method = if mode == LockMode::Wait { "lock" } else { "steal" };
        let name = lock_name(params, method)?;
        let session = self.get(id).expect("its request is being handled");
        if session.locks.contains_key(&name) {
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(Error::syntax(params, details).into());
        }
        let bytes = lock_bytes(&name) + relays * AS_OF_BYTES;
        self.check_room(id, bytes)?;
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        session.lock_bytes += bytes;
        self.locks.bytes += bytes;
        self.note_kept(id, bytes);
        let is_owner = match mode {
            LockMode::Wait => self.locks.lock(&name, id),
            LockMode::Steal => {
                if let Some(victim) = self.locks.steal(&name, id) {
                    self.notify_lock(shell, victim, STOLEN, &name);
                }
                true
            }
        };
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        let is_told = is_owner && is_free;
        session
            .locks
            .insert(name.clone(), Lock { mode, is_owned: is_told, told: 0, as_of: None, bytes });
        if is_owner && !is_told {
            self.notify_lock(shell, id, LOCKED, &name);
        }
        let result: &[u8] = if is_told { b"{\"locked\":true}" } else { b"{\"locked\":false}" };
        Ok(Reply::Result(result.to_vec()))
    }

    /// `unlock`
    pub(crate) fn unlock(&mut self, shell: &mut Shell, id: SessionId, params: Text<'_>) -> Handled {
        let name = lock_name(params, "unlock")?;
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        let Some(Lock { bytes, .. }) = session.locks.remove(&name) else {
            let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
            return Err(Error::syntax(params, details).into());
        };
        // What comes behind the answer is of a lock that is asked for anew.
        session.lock_news.remove(&name);
        session.lock_repeats.remove(&name);
        session.lock_bytes -= bytes;
        self.locks.bytes -= bytes;
        self.note_kept(id, 0);
        self.leave_lock(shell, id, &name);
        Ok(Reply::empty())
    }

    /// A session no longer owns a lock or waits for it.
    pub(super) fn leave_lock(&mut self, shell: &mut Shell, id: SessionId, name: &str) {
        if let Some(owner) = self.locks.unlock(name, id) {
            self.notify_lock(shell, owner, LOCKED, name);
        }
    }

    /// Tells a session of a lock: that it is its own, once it has been told what comes before that. One that does not
    /// read is told later of the last two things that have happened to it: how it ended, and that it was stolen, if it was.
    /// An owner who has been told is told so again when somebody else waits no more, as by the reference, behind what he is to
    /// be told by then; but that is no news, and comes to nothing if something happens to the lock before.
    fn notify_lock(&mut self, shell: &mut Shell, id: SessionId, method: &'static str, lock: &str) {
        let takes_notices = self.takes_notices(shell, id);
        let Some(session) = self.by_id.get_mut(&id) else { return };
        let has_news = session.lock_news.contains_key(lock);
        if method == LOCKED && session.locks[lock].is_owned && !has_news {
            session.lock_repeats.insert(lock.to_owned());
            return self.keep_lock_news(id);
        }
        session.lock_repeats.remove(lock);
        if method == STOLEN && takes_notices && !has_news {
            return session.tell_lock(shell, id, lock, method);
        }
        let news = session.lock_news.entry(lock.to_owned()).or_default();
        if news.last() != Some(&method) {
            if news.len() == 2 {
                news.remove(0);
            }
            news.push(method);
        }
        self.keep_lock_news(id);
    }

    /// Whether sessions have to be told of locks.
    pub(crate) fn has_lock_news(&self) -> bool {
        !self.locks.to_tell.is_empty()
    }

    /// Of how many locks a session that has not left has to be told.
    pub(crate) fn count_lock_news(&self, id: SessionId) -> usize {
        self.get(id).map_or(0, |session| session.lock_news.len() + session.lock_repeats.len())
    }

    /// Locks of which their owner is to be told again that they are his.
    pub(crate) fn lock_repeats(&self, id: SessionId) -> impl Iterator<Item = &String> {
        self.get(id).into_iter().flat_map(|session| &session.lock_repeats)
    }

    /// Takes the sessions that have to be told of locks: the caller tells each, or has it kept.
    pub(crate) fn take_lock_news(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.locks.to_tell)
    }

    /// A session has to be told of its locks.
    pub(crate) fn keep_lock_news(&mut self, id: SessionId) {
        if self.has(id) {
            self.locks.to_tell.insert(id);
        }
    }

    /// Whether the owner of a lock has yet to be told that it is his.
    pub(crate) fn is_yet_to_be_told(&self, name: &str) -> bool {
        self.lock_owner(name).is_some_and(|owner| self.is_new(owner, name))
    }

    /// Whether a lock has become a session's own, which it has not been told.
    fn is_new(&self, id: SessionId, name: &str) -> bool {
        let news = self.get(id).and_then(|session| session.lock_news.get(name));
        news.is_some_and(|news| news.last() == Some(&LOCKED))
    }

    /// The locks that have become a session's own, which it has not been told.
    pub(crate) fn new_locks(&self, id: SessionId) -> impl Iterator<Item = &str> {
        let news = self.get(id).into_iter().flat_map(|session| &session.lock_news);
        news.filter(|(_, news)| news.last() == Some(&LOCKED)).map(|(name, _)| name.as_str())
    }

    /// Tells a session what has happened to its locks, but for those that are to wait.
    pub(crate) fn tell_lock_news(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        waits: impl Fn(&str) -> bool,
    ) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        let all = std::mem::take(&mut session.lock_news);
        let (later, now) = all.into_iter().partition(|(lock, _)| waits(lock));
        session.lock_news = later;
        for (lock, news) in now {
            news.into_iter().for_each(|method| session.tell_lock(shell, id, &lock, method));
        }
        let repeats: Vec<String> =
            session.lock_repeats.extract_if(.., |lock| !waits(lock)).collect();
        for lock in repeats {
            session.tell_lock(shell, id, &lock, LOCKED);
        }
    }
}

impl Session {
    fn tell_lock(&mut self, shell: &mut Shell, id: SessionId, name: &str, method: &'static str) {
        let lock = self.locks.get_mut(name).expect("it has asked for the lock");
        lock.tell(method == LOCKED);
        shell.send(id, notification(method, name));
    }
}

fn lock_name(params: Text<'_>, method: &str) -> Result<String, Reply> {
    let mut elements = params.elements().into_iter().flatten();
    let name = elements.next().and_then(|name| name.str().map(|name| name.into_owned()));
    match name.filter(|name| weir_data::parser::is_id(name)) {
        Some(name) if elements.next().is_none() => Ok(name),
        _ => {
            let details = format!("{method} request params must be <id>");
            Err(Error::syntax(params, details).into())
        }
    }
}

fn notification(method: &str, lock: &str) -> Vec<u8> {
    let params = weir_json::array([lock]).to_string();
    weir_wire::notification(method, params.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);

    #[test]
    fn waiters_get_the_lock_in_order() {
        let mut locks = Locks::default();
        assert!(locks.lock("l", A));
        assert!(!locks.lock("l", B));
        assert!(!locks.lock("l", C));
        assert_eq!(locks.unlock("l", B), Some(A), "the owner is told again");
        assert_eq!(locks.unlock("l", A), Some(C));
        assert_eq!(locks.unlock("l", C), None);
        assert_eq!(locks.owner("l"), None);
    }

    fn held(locks: &Locks, name: &str) -> Held {
        let turn = locks.queues.get(name).map(|queue| queue.turn);
        Held { name: name.to_owned(), turn, told: None }
    }

    #[test]
    fn a_lock_counts_until_somebody_else_owns_it() {
        let mut locks = Locks::default();
        locks.lock("l", A);
        let first = held(&locks, "l");
        locks.lock("l", B);
        assert!(locks.is_held(&first), "another one waits");
        locks.unlock("l", B);
        locks.unlock("l", A);
        assert!(locks.is_held(&first), "nobody has it");
        locks.lock("other", C);
        locks.lock("l", A);
        assert!(locks.is_held(&first), "the same one has it again");
        let second = held(&locks, "l");
        locks.steal("l", B);
        assert!(!locks.is_held(&first) && !locks.is_held(&second));
        locks.unlock("l", B);
        assert_eq!(locks.owner("l"), Some(A));
        assert!(!locks.is_held(&second), "another one had it in between");
        assert!(locks.is_held(&Held::elsewhere("x".into())));
    }

    #[test]
    fn as_many_ends_are_remembered_as_may_be() {
        let mut locks = Locks::default();
        let all: Vec<Held> = (0..=ENDED_MAX)
            .map(|n| {
                let name = format!("l{n}");
                locks.lock(&name, A);
                let held = held(&locks, &name);
                locks.unlock(&name, A);
                held
            })
            .collect();
        assert!(!locks.is_held(&all[0]) && all[1..].iter().all(|held| locks.is_held(held)));
    }

    #[test]
    fn a_lock_that_others_have_at_a_source_counts_no_longer_than_its_owner_has_it() {
        for is_lost in [false, true] {
            let mut locks = Locks::default();
            locks.lock("l", A);
            let first = held(&locks, "l");
            locks.queues.get_mut("l").expect("it is locked").is_lost = is_lost;
            locks.unlock("l", A);
            assert_eq!(locks.is_held(&first), !is_lost);
            locks.lock("l", A);
            assert_eq!(locks.is_held(&first), !is_lost);
        }
    }

    #[test]
    fn a_stolen_owner_is_next_unless_it_was_a_thief() {
        let mut locks = Locks::default();
        locks.lock("l", A);
        assert_eq!(locks.steal("l", B), Some(A));
        assert_eq!(locks.steal("l", C), Some(B));
        assert_eq!(locks.unlock("l", B), None, "it is in no queue any more");
        assert_eq!(locks.unlock("l", C), Some(A));
    }
}
