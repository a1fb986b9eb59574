//! Locks (RFC 7047 §4.1.8): a queue of sessions for each name, its head is the owner.
//!
//! Locks belong to the server, not to a database.

use std::collections::{BTreeMap, VecDeque};

use weir_data::Error;
use weir_json::Text;

use crate::ids::SessionId;
use crate::reply::{Handled, Reply};
use crate::session::Sessions;
use crate::session::limits::OVERHEAD_BYTES;
use crate::session::message::asserted;
use crate::shell::Shell;

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

/// All lock queues.
#[derive(Debug, Default)]
pub(super) struct Locks {
    queues: BTreeMap<String, VecDeque<(SessionId, LockMode)>>,
    /// What the locks of all sessions occupy.
    pub(super) bytes: usize,
}

/// What a lock of a session occupies: its name stands among the session's, in front of a queue, and
/// perhaps with what the session is to be told of it.
fn lock_bytes(name: &str) -> usize {
    3 * name.len() + OVERHEAD_BYTES
}

impl Locks {
    fn owner(&self, name: &str) -> Option<SessionId> {
        self.queues.get(name)?.front().map(|(session, _)| *session)
    }

    /// Queues at the end; true if that made the session the owner.
    fn lock(&mut self, name: &str, session: SessionId) -> bool {
        let queue = self.queues.entry(name.to_owned()).or_default();
        queue.push_back((session, LockMode::Wait));
        queue.len() == 1
    }

    /// Takes the head of the queue; returns the owner it was stolen from. An owner that had stolen
    /// the lock itself leaves the queue, one that had waited for it is next.
    fn steal(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        let victim = queue.front().copied();
        if matches!(victim, Some((_, LockMode::Steal))) {
            queue.pop_front();
        }
        queue.push_front((session, LockMode::Steal));
        victim.map(|(session, _)| session)
    }

    /// Leaves the queue. Returns the owner from now on, even if it was that before: clients count
    /// on being told. A thief who was robbed is in no queue any more, and nobody hears of it.
    fn unlock(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let queue = self.queues.get_mut(name)?;
        let at = queue.iter().position(|(waiter, _)| *waiter == session)?;
        queue.remove(at);
        let owner = queue.front().map(|(session, _)| *session);
        if owner.is_none() {
            self.queues.remove(name);
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
        self.locks.owner(name) == Some(id)
    }

    /// Whether anybody owns the lock.
    pub(crate) fn is_locked(&self, name: &str) -> bool {
        self.locks.owner(name).is_some()
    }

    /// Whether the session has asked for the lock by force.
    pub(crate) fn has_stolen(&self, id: SessionId, name: &str) -> bool {
        self.get(id).and_then(|session| session.locks.get(name)) == Some(&LockMode::Steal)
    }

    /// The owner of a lock of a relay has lost it at the source, or has it there again.
    pub(crate) fn tell_owner(&mut self, shell: &mut Shell, name: &str, is_back: bool) {
        if let Some(owner) = self.locks.owner(name) {
            self.notify_lock(shell, owner, if is_back { LOCKED } else { STOLEN }, name);
        }
    }

    /// The locks that a session owns now.
    pub(crate) fn owned_locks(&self, id: SessionId) -> Vec<String> {
        let locks = self.get(id).into_iter().flat_map(|session| session.locks.keys());
        locks.filter(|name| self.owns_lock(id, name)).cloned().collect()
    }

    /// Which of the locks that operations `assert` the session owns now.
    pub(crate) fn owned_among<'m>(
        &self,
        id: SessionId,
        operations: impl Iterator<Item = Text<'m>>,
    ) -> Vec<String> {
        // As a rule there is none.
        if self.get(id).is_none_or(|session| session.locks.is_empty()) {
            return Vec::new();
        }
        let asserted = asserted(operations).into_iter();
        asserted.filter(|name| self.owns_lock(id, name)).collect()
    }

    /// `lock` and `steal`.
    pub(crate) fn lock(
        &mut self,
        shell: &mut Shell,
        id: SessionId,
        params: Text<'_>,
        mode: LockMode,
    ) -> Handled {
        let method = if mode == LockMode::Wait { "lock" } else { "steal" };
        let name = lock_name(params, method)?;
        let session = self.get(id).expect("its request is being handled");
        if session.locks.contains_key(&name) {
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(Error::syntax(params, details).into());
        }
        let bytes = lock_bytes(&name);
        self.check_room(id, bytes)?;
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        session.locks.insert(name.clone(), mode);
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
        let result: &[u8] = if is_owner { b"{\"locked\":true}" } else { b"{\"locked\":false}" };
        Ok(Reply::Result(result.to_vec()))
    }

    /// `unlock`
    pub(crate) fn unlock(&mut self, shell: &mut Shell, id: SessionId, params: Text<'_>) -> Handled {
        let name = lock_name(params, "unlock")?;
        let session = self.by_id.get_mut(&id).expect("its request is being handled");
        if session.locks.remove(&name).is_none() {
            let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
            return Err(Error::syntax(params, details).into());
        }
        let bytes = lock_bytes(&name);
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

    /// Tells a session of a lock. One that does not read is told later of the last two things that
    /// have happened to it: how it ended, and that it was stolen, if it was.
    fn notify_lock(&mut self, shell: &mut Shell, id: SessionId, method: &'static str, lock: &str) {
        let must_wait = shell.is_in_message(id);
        let Some(session) = self.by_id.get_mut(&id) else { return };
        if !session.is_blocked && !must_wait {
            return shell.send(id, notification(method, lock));
        }
        let news = session.lock_news.entry(lock.to_owned()).or_default();
        if news.last() != Some(&method) {
            if news.len() == 2 {
                news.remove(0);
            }
            news.push(method);
        }
    }

    /// Tells a session what has happened to its locks while it could not be told, if it can now.
    pub(crate) fn tell_lock_news(&mut self, shell: &mut Shell, id: SessionId) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        if session.is_blocked || shell.is_in_message(id) {
            return;
        }
        for (lock, news) in std::mem::take(&mut session.lock_news) {
            news.into_iter().for_each(|method| shell.send(id, notification(method, &lock)));
        }
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
