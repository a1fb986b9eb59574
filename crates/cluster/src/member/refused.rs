//! Entries that the own file refuses for their length, though shorter ones would find room. A leader hands over to who
//! has all of its log; nobody has if the others refuse those entries as well, and what is behind them in the log waits
//! for as long. So a leader that gets rid of neither leads no more: what it was refused is forgotten then, as by who
//! follows, and the others go on without it. What is as long as that had better not be proposed again at once: an entry
//! is refused, and what was one batch is proposed as several.

use super::Member;
use super::clock::tick_us;
use crate::effect::Level;

/// A file that has no room for shorter entries has room for nothing: it keeps that much for votes.
const LENGTH_MIN: usize = 64 << 10;

/// What was refused for its length is not proposed for so long, in microseconds.
const LENGTH_US: u64 = 10_000_000;

/// For which lengths the file has had no room lately, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRoom {
    /// There was none for an entry of so many.
    pub entry: Option<usize>,
    /// There was none for entries that have so many together.
    pub batch: Option<usize>,
}

impl NoRoom {
    /// For entries of these lengths, which were to be written together.
    pub(super) fn of(lengths: impl Iterator<Item = usize>) -> Self {
        let (longest, all) = lengths.fold((0, 0), |(most, all), it| (most.max(it), all + it));
        let long = |bytes| Some(bytes).filter(|bytes| *bytes >= LENGTH_MIN);
        Self { entry: long(longest), batch: long(all) }
    }

    /// Whether anything of that would be no longer than what has found room.
    fn is_over(self, room: Self) -> bool {
        let is_no_longer = |had: Option<usize>, has: Option<usize>| {
            had.zip(has).is_some_and(|(had, has)| had <= has)
        };
        is_no_longer(self.entry, room.batch) || is_no_longer(self.batch, room.batch)
    }
}

/// What the file has refused last.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    lengths: NoRoom,
    /// Until when that counts, monotonic.
    until_us: u64,
    /// For how long this member has led since, in time that ticks have counted, and it could not be written.
    led_for_us: u64,
}

impl Refused {
    /// The file has refused what is first of all that waits for it.
    pub(super) fn note(&mut self, lengths: NoRoom, now_us: u64) {
        if lengths.batch.is_some() {
            (self.lengths, self.until_us) = (lengths, now_us + LENGTH_US);
        }
    }

    /// The file has taken entries of these lengths.
    pub(super) fn has_room(&mut self, lengths: impl Iterator<Item = usize>) {
        if self.lengths.is_over(NoRoom::of(lengths)) {
            self.until_us = 0;
        }
    }
}

impl Member {
    /// What is as long as this, or longer, had better not be proposed: the file has refused it lately.
    pub fn no_room(&self) -> NoRoom {
        let Refused { lengths, until_us, .. } = self.refused;
        if self.now_us < until_us { lengths } else { NoRoom::default() }
    }

    /// Looks, at each tick, whether a leader can get rid of what its file refuses.
    pub(super) fn look_for_refused(&mut self) {
        let waits = self.node.is_leader()
            && self.steps.no_room().batch.is_some()
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
            "{}: entries of {} bytes cannot be written, and nobody has all of the log, leading no more",
            self.name,
            self.steps.no_room().batch.unwrap_or_default()
        );
        self.log_limited("refused", Level::Warning, text);
        self.lead_no_more(successor);
    }
}
