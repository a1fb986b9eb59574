//! How far clients may be behind before what is for them merges.
//!
//! A client whose outbox is not empty is sent updates all the same: they are composed for those who
//! keep up, and take no memory of their own. Only when it has been behind from one tick to the next
//! is the core told that it is blocked; then what is for it merges until it has taken everything.
//!
//! All who are slow are told of at the same tick, so that they fall behind at the same place of the
//! log: what they get later is composed once for all of them. When more than
//! [`SHARED_BYTES_MAX`] waits for those behind, the core is told at once.

use std::sync::{Arc, Weak};

use weir_server::event::{Bytes, SessionId};

/// Time from tick to tick, in microseconds.
const TICK_US: u64 = 100_000;

/// Most bytes that wait for clients that are sent updates although they are behind. What waits for
/// several counts once.
const SHARED_BYTES_MAX: usize = 32 << 20;

/// What a short message counts for, in bytes.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// Clients that are behind and that the core does not know of, and what they were sent.
#[derive(Default)]
pub(crate) struct Lag {
    bodies: Vec<(Weak<Vec<u8>>, usize)>,
    bytes: usize,
    next_tick_us: u64,
    /// Clients that fell behind before the last tick, and since then, each with the round in which
    /// it did.
    slow: Vec<(SessionId, u64)>,
    recent: Vec<(SessionId, u64)>,
}

impl Lag {
    /// A client's outbox could not be emptied in this round.
    pub(crate) fn falls_behind(&mut self, id: SessionId, round: u64) {
        self.recent.push((id, round));
    }

    /// Something more was queued for a client that is behind.
    pub(crate) fn note(&mut self, body: &Bytes) {
        let last = self.bodies.last();
        if last.is_some_and(|(last, _)| std::ptr::eq(last.as_ptr(), Arc::as_ptr(body))) {
            return;
        }
        let bytes = body.len().max(COUNTED_BYTES_MIN);
        self.bodies.push((Arc::downgrade(body), bytes));
        self.bytes += bytes;
    }

    /// A new round begins. Answers with those who are too far behind, if they still are and have
    /// been since the round in which they fell.
    pub(crate) fn begin_round(&mut self, now_us: u64) -> Vec<(SessionId, u64)> {
        if self.bytes >= SHARED_BYTES_MAX {
            self.bodies.retain(|(body, _)| body.strong_count() > 0);
            self.bytes = self.bodies.iter().map(|(_, bytes)| bytes).sum();
        }
        let is_full = self.bytes >= SHARED_BYTES_MAX;
        let mut late = Vec::new();
        if now_us >= self.next_tick_us || is_full {
            late = std::mem::replace(&mut self.slow, std::mem::take(&mut self.recent));
            self.next_tick_us = now_us + TICK_US;
        }
        if is_full {
            late.append(&mut self.slow);
        }
        late
    }
}
