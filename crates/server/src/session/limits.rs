//! What clients make the server keep for them between their requests, and the most it may be: of
//! one, and of all together.
//!
//! 1. Who asks for something that is to be kept is refused if that would be too much for him, or if
//!    there is too much of all and he would have most of it.
//! 2. Anybody else is let in. When the round ends, all is counted; while it is too much, who has
//!    most is disconnected. So who has little never pays for who has much.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::Error;

use crate::ids::SessionId;
use crate::session::Sessions;

/// Most bytes kept for one session: its waiting transactions, conversions, results that it has not taken, monitors and locks.
/// Requests for more are refused.
pub(crate) const SESSION_BYTES_MAX: usize = 256 << 20;

/// Most bytes kept for all sessions, if the shell does not say: it knows what memory there is.
const KEPT_BYTES_MAX: usize = 1 << 30;

/// What each thing that is kept costs besides its text, in bytes.
pub(crate) const OVERHEAD_BYTES: usize = 512;

/// What is kept for sessions, as counted when a round ended.
#[derive(Debug)]
pub(super) struct Budget {
    /// Most bytes for all sessions.
    max: usize,
    /// Bytes for all of them, and what has come since that was counted.
    total: usize,
    by_session: BTreeMap<SessionId, usize>,
    /// What was counted for all of them together.
    counted: usize,
    /// Bytes and session, in the order of the bytes.
    by_bytes: BTreeSet<(usize, SessionId)>,
    /// Sessions for which more is kept than was counted, or less.
    noted: Vec<SessionId>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max: KEPT_BYTES_MAX,
            total: 0,
            by_session: BTreeMap::new(),
            counted: 0,
            by_bytes: BTreeSet::new(),
            noted: Vec::new(),
        }
    }
}

impl Budget {
    fn of(&self, id: SessionId) -> usize {
        self.by_session.get(&id).copied().unwrap_or(0)
    }

    /// Whether more may be kept for a session.
    fn check(&self, id: SessionId, more: usize) -> Result<(), Error> {
        let own = self.of(id).saturating_add(more);
        if own > SESSION_BYTES_MAX {
            return Err(exhausted("this client's"));
        }
        let others = || self.by_bytes.iter().rev().find(|(_, other)| *other != id);
        let is_most = || others().is_none_or(|(bytes, _)| own >= *bytes);
        if self.total.saturating_add(more) > self.max && is_most() {
            return Err(exhausted("all clients'"));
        }
        Ok(())
    }

    fn set(&mut self, id: SessionId, bytes: usize) {
        self.remove(id);
        if bytes > 0 {
            self.by_session.insert(id, bytes);
            self.counted += bytes;
            self.by_bytes.insert((bytes, id));
        }
    }

    fn remove(&mut self, id: SessionId) -> usize {
        let bytes = self.by_session.remove(&id).unwrap_or(0);
        self.by_bytes.remove(&(bytes, id));
        self.counted -= bytes;
        bytes
    }
}

fn exhausted(whose: &str) -> Error {
    let details = format!(
        "{whose} waiting transactions, results, monitors and locks take all the memory that is there for them"
    );
    Error::new("resources exhausted", details)
}

impl Sessions {
    /// Sets the most that may be kept for all sessions, in bytes.
    pub(crate) fn limit_kept(&mut self, bytes_max: usize) {
        self.budget.max = bytes_max;
    }

    /// Whether so many bytes more may be kept for a session that asks for it.
    ///
    /// # Errors
    /// `resources exhausted`, for the client.
    pub(crate) fn check_room(&self, id: SessionId, bytes: usize) -> Result<(), Error> {
        self.budget.check(id, bytes)
    }

    /// So many bytes more are kept for a session, or, with 0, less than before: that is counted when
    /// the round ends.
    pub(crate) fn note_kept(&mut self, id: SessionId, bytes: usize) {
        self.budget.total = self.budget.total.saturating_add(bytes);
        if self.budget.noted.last() != Some(&id) {
            self.budget.noted.push(id);
        }
    }

    /// Whether what is kept is to be counted.
    #[inline]
    pub(crate) fn must_count_kept(&self) -> bool {
        !self.budget.noted.is_empty()
    }

    /// Sessions for which more or less is kept than before.
    pub(crate) fn take_noted(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.budget.noted)
    }

    /// So many bytes are kept for a session.
    pub(crate) fn count_kept(&mut self, id: SessionId, bytes: usize) {
        if self.has(id) {
            self.budget.set(id, bytes);
        }
    }

    /// So many bytes are kept for all sessions; true if that is too much.
    pub(crate) fn count_all_kept(&mut self, bytes: usize) -> bool {
        self.budget.total = bytes;
        bytes > self.budget.max
    }

    /// The session that most is kept for, and how much, if what is counted for each of them is too
    /// much together.
    pub(crate) fn who_must_go(&self) -> Option<(SessionId, usize)> {
        let most = self.budget.by_bytes.last().filter(|_| self.budget.counted > self.budget.max);
        most.map(|(bytes, id)| (*id, *bytes))
    }

    /// Nothing is kept for a session that has left.
    pub(super) fn forget_kept(&mut self, id: SessionId) {
        let bytes = self.budget.remove(id);
        self.budget.total = self.budget.total.saturating_sub(bytes);
    }

    /// Bytes kept for all sessions, and the most that it may be, for `weir/status`.
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.budget.total, self.budget.max)
    }

    /// Bytes kept for a session, for `weir/status`.
    pub(crate) fn kept_for(&self, id: SessionId) -> usize {
        self.budget.of(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: SessionId = SessionId(1);
    const MODEST: SessionId = SessionId(2);

    #[test]
    fn only_who_has_most_is_refused() {
        let mut budget = Budget { max: 1000, ..Budget::default() };
        budget.set(GREEDY, 900);
        budget.set(MODEST, 50);
        budget.total = 950;
        assert!(budget.check(GREEDY, 50).is_ok() && budget.check(MODEST, 50).is_ok());
        assert!(budget.check(GREEDY, 51).is_err());
        assert!(budget.check(MODEST, 800).is_ok(), "it would still have less");
        assert!(budget.check(MODEST, 850).is_err());
        assert!(budget.check(SessionId(3), 100).is_ok(), "a new one");
        assert_eq!(budget.remove(GREEDY), 900);
        budget.total = 50;
        assert!(budget.check(MODEST, 950).is_ok());
        assert!(budget.check(MODEST, 951).is_err(), "nobody else has anything");
    }

    #[test]
    fn one_session_has_a_limit_of_its_own() {
        let budget = Budget { max: usize::MAX, ..Budget::default() };
        assert!(budget.check(MODEST, SESSION_BYTES_MAX).is_ok());
        assert!(budget.check(MODEST, SESSION_BYTES_MAX + 1).is_err());
    }
}
