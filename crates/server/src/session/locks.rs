//! Locks (RFC 7047 §4.1.8): a queue of sessions for each name, its head is the owner.
//!
//! Locks belong to the server, not to a database.

use std::collections::{BTreeMap, VecDeque};

use crate::event::SessionId;
use crate::session::LockMode;

/// All lock queues.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    queues: BTreeMap<String, VecDeque<(SessionId, LockMode)>>,
}

impl Locks {
    /// Who owns the lock.
    pub(crate) fn owner(&self, name: &str) -> Option<SessionId> {
        self.queues.get(name)?.front().map(|(session, _)| *session)
    }

    /// Queues at the end; true if that made the session the owner.
    pub(crate) fn lock(&mut self, name: &str, session: SessionId) -> bool {
        let queue = self.queues.entry(name.to_owned()).or_default();
        queue.push_back((session, LockMode::Wait));
        queue.len() == 1
    }

    /// Takes the head of the queue; returns the owner it was stolen from. An owner that had stolen
    /// the lock itself leaves the queue, one that had waited for it is next.
    pub(crate) fn steal(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        let victim = queue.front().copied();
        if matches!(victim, Some((_, LockMode::Steal))) {
            queue.pop_front();
        }
        queue.push_front((session, LockMode::Steal));
        victim.map(|(session, _)| session)
    }

    /// Leaves the queue; returns who became the owner by that.
    pub(crate) fn unlock(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let queue = self.queues.get_mut(name)?;
        let was_owner = queue.front().is_some_and(|(owner, _)| *owner == session);
        queue.retain(|(waiter, _)| *waiter != session);
        let next = queue.front().map(|(session, _)| *session);
        if queue.is_empty() {
            self.queues.remove(name);
        }
        next.filter(|_| was_owner)
    }
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
        assert_eq!(locks.unlock("l", B), None);
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
        assert_eq!(locks.unlock("l", C), Some(A));
    }
}
