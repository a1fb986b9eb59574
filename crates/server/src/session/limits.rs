//! What one client makes the server keep for it between its requests, and the most it may.

use crate::ids::SessionId;
use crate::session::Sessions;

/// Most bytes kept for one session: its waiting transactions, monitors and locks, by the texts
/// that asked for them. Beyond it, the session is disconnected.
pub(crate) const SESSION_BYTES_MAX: usize = 256 << 20;

/// What each of those costs besides its text, in bytes.
pub(crate) const OVERHEAD_BYTES: usize = 512;

impl Sessions {
    /// More is kept for a session than before: its sum is looked at when the round ends.
    pub(crate) fn note_grown(&mut self, id: SessionId) {
        if self.grown.last() != Some(&id) {
            self.grown.push(id);
        }
    }

    /// Whether more is kept for any session than before.
    #[inline]
    pub(crate) fn has_grown(&self) -> bool {
        !self.grown.is_empty()
    }

    /// Sessions for which more is kept than before.
    pub(crate) fn take_grown(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.grown)
    }

    /// Bytes kept for a session's locks.
    pub(crate) fn lock_bytes(&self, id: SessionId) -> usize {
        let locks = self.get(id).into_iter().flat_map(|session| session.locks.keys());
        locks.map(|name| name.len() + OVERHEAD_BYTES).sum()
    }
}
