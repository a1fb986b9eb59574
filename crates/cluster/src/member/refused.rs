//! An entry that the own file refuses for its length, though shorter ones would find room. A leader hands over to who
//! has all of its log; nobody has if the others refuse that entry as well, and what is behind it in the log waits for as
//! long. So a leader that gets rid of neither leads no more: what it was refused is forgotten then, as by who follows,
//! and the others go on without it. What is as long as that had better not be proposed again at once.

use super::Member;
use super::clock::tick_us;
use crate::effect::Level;

/// A file that has no room for shorter entries has room for nothing: it keeps that much for votes.
const LENGTH_MIN: usize = 64 << 10;

/// An entry of a length that was refused is not proposed for so long, in microseconds.
const LENGTH_US: u64 = 10_000_000;

/// What the file has refused last.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// How long the longest entry of it was, in bytes.
    length: usize,
    /// Until when that counts, monotonic.
    until_us: u64,
    /// For how long this member has led since, in time that ticks have counted, and it could not be written.
    led_for_us: u64,
}

impl Refused {
    /// The file has refused entries of which the longest has so many bytes.
    pub(super) fn note(&mut self, length: usize, now_us: u64) {
        if length >= LENGTH_MIN {
            (self.length, self.until_us) = (length, now_us + LENGTH_US);
        }
    }

    /// The file has taken an entry of this length.
    pub(super) fn has_room(&mut self, length: usize) {
        if length >= self.length {
            self.until_us = 0;
        }
    }
}

impl Member {
    /// Entries of so many bytes or more had better not be proposed: the file has refused one lately.
    pub fn refused_length(&self) -> Option<usize> {
        let Refused { length, until_us, .. } = self.refused;
        (self.now_us < until_us).then_some(length)
    }

    /// Looks, at each tick, whether a leader can get rid of what its file refuses.
    pub(super) fn look_for_refused(&mut self) {
        let waits = self.node.is_leader()
            && self.steps.longest_refused() >= LENGTH_MIN
            && self.node.commit() < self.node.last();
        if !waits {
            self.refused.led_for_us = 0;
            return;
        }
        self.refused.led_for_us += tick_us(self.election_timer);
        if self.refused.led_for_us <= self.election_timer * 1000 {
            return;
        }
        // Who is alone follows nobody for a moment, which is enough.
        let successor = self.successor();
        if successor.is_none() && self.servers.len() > 1 {
            return;
        }
        self.refused.led_for_us = 0;
        let text = format!(
            "{}: an entry of {} bytes cannot be written, and nobody has all of the log, leading no more",
            self.name,
            self.steps.longest_refused()
        );
        self.log_limited("refused", Level::Warning, text);
        self.lead_no_more(successor);
    }
}
