//! Time as the raft library sees it: ticks, a hundred to an election timer.

use crate::consensus::ELECTION_TICKS;

/// So many ticks at most pass at once: who has slept hears first what was said meanwhile.
pub(super) const TICKS_AT_ONCE: u64 = ELECTION_TICKS / 2;

#[derive(Debug)]
pub(crate) struct Clock {
    /// When the last tick was, monotonic.
    last_us: u64,
    /// Ticks for which an election was put off.
    put_off: u64,
}

impl Clock {
    pub(super) fn new(now_us: u64) -> Self {
        Self { last_us: now_us, put_off: 0 }
    }

    /// How many ticks have passed since the last time, at this election timer in milliseconds.
    pub(super) fn ticks(&mut self, now_us: u64, timer_ms: u64) -> u64 {
        let tick_us = tick_us(timer_ms);
        let passed = now_us.saturating_sub(self.last_us) / tick_us;
        if passed > TICKS_AT_ONCE {
            self.last_us = now_us;
            return TICKS_AT_ONCE;
        }
        self.last_us += passed * tick_us;
        passed
    }

    /// Whether a member that is to be slow lets this tick pass: it votes as others do, and campaigns
    /// an election timer later than it would.
    pub(super) fn puts_off(&mut self, is_about_to_campaign: bool) -> bool {
        if !is_about_to_campaign {
            self.put_off = 0;
        }
        let puts_off = is_about_to_campaign && self.put_off < ELECTION_TICKS;
        self.put_off += u64::from(puts_off);
        puts_off
    }

    /// When so many more ticks have passed.
    pub(super) fn due_us(&self, ticks: u64, timer_ms: u64) -> u64 {
        self.last_us + ticks * tick_us(timer_ms)
    }
}

/// How long a tick is at this election timer in milliseconds.
pub(super) fn tick_us(timer_ms: u64) -> u64 {
    (timer_ms * 1000 / ELECTION_TICKS).max(1)
}
