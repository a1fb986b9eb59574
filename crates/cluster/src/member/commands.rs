//! What operators ask for: the election timer, handing over, how the member does.

use super::Member;
use crate::entry::{Content, ELECTION_TIMER_MS};

/// Why the election timer cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerRefused {
    /// Another member leads, or nobody.
    NotLeader,
    /// A change is under way.
    Pending,
    /// The timer has that value already.
    Current,
    /// The value is out of bounds.
    Range,
    /// A timer may double at once, and no more.
    Factor,
}

impl Member {
    /// Changes the election timer of the cluster (`cluster/change-election-timer`).
    ///
    /// # Errors
    /// Why it cannot be changed.
    pub fn change_election_timer(&mut self, now_us: u64, ms: u64) -> Result<(), TimerRefused> {
        self.now_us = now_us;
        if !self.may_propose() {
            return Err(TimerRefused::NotLeader);
        }
        if self.pending_timer().is_some() {
            return Err(TimerRefused::Pending);
        }
        if !ELECTION_TIMER_MS.contains(&ms) {
            return Err(TimerRefused::Range);
        }
        if ms == self.election_timer {
            return Err(TimerRefused::Current);
        }
        if ms > 2 * self.election_timer {
            return Err(TimerRefused::Factor);
        }
        self.node.propose(vec![Content::ElectionTimer(ms)]).ok_or(TimerRefused::NotLeader)?;
        self.pump();
        Ok(())
    }

    /// The election timer that the cluster is about to have.
    pub(crate) fn pending_timer(&self) -> Option<u64> {
        let open = self.node.open_entries().rev();
        let timer = |index| match self.node.entry(index)?.content {
            Content::ElectionTimer(ms) => Some(ms),
            _ => None,
        };
        open.into_iter().find_map(timer)
    }

    /// Asks which entry is the last one that is committed, anywhere, for reads that must not be stale:
    /// [`Effect::ReadIndex`](crate::Effect::ReadIndex) answers if a majority still follows this leader, nothing if not. False
    /// if the member does not lead, or has not got everything of the leaders before it.
    pub fn read_index(&mut self, now_us: u64, number: u64) -> bool {
        self.now_us = now_us;
        let may_ask = self.node.may_propose();
        if may_ask {
            self.node.read_index(number);
            self.pump();
        }
        may_ask
    }

    /// Hands leadership over, if the member has it, to who is as far as any other: before a stop,
    /// so that nobody waits for an election. True if there is somebody to take it.
    pub fn hand_over(&mut self, now_us: u64) -> bool {
        self.now_us = now_us;
        let has_given = self.give_lead_away();
        self.pump();
        has_given
    }
}
