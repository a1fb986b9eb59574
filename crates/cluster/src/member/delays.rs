//! How near the member came to an election that nobody needed: heartbeats that were late, and a disk
//! that was slow. Operators see the worst, and are told which election timer would bear it.

use weir_data::Uuid;

use super::Member;
use crate::consensus::HEARTBEAT_TICKS;
use crate::effect::Level;
use crate::member::clock::tick_us;
use crate::member::failures::Failure;

/// A delay is near a third of the election timer, when the next heartbeat is due, from this part of
/// it on.
const NEAR: u64 = 4;

/// An election timer is good if the worst delay is at most this part of it.
const GOOD: u64 = 5;

/// What is seen, in the words of the log.
const KINDS: [&str; 2] = ["heartbeats were late by up to", "fdatasync took up to"];

/// What takes longer than so many election timers has hung: no timer is to bear that.
const HUNG: u64 = 4;

/// Election timers are recommended in multiples of this, in milliseconds.
const ROUND_MS: u64 = 500;

/// The worst delays since the member was opened.
#[derive(Debug)]
pub(crate) struct Delays {
    /// Since when a leader could have been heard: the member was opened, or had led itself.
    since_us: u64,
    worst_us: u64,
    /// The worst that a timer could be to bear, of heartbeats and of the disk.
    bearable_us: [u64; 2],
    /// The delay that a warning was about last, of heartbeats and of the disk.
    warned_us: [u64; 2],
    /// Of which leader, in which term, was heard last, and when.
    leader: Option<(Uuid, u64, u64)>,
}

impl Delays {
    pub(super) fn new(opened_us: u64) -> Self {
        Self {
            since_us: opened_us,
            worst_us: 0,
            bearable_us: [0; 2],
            warned_us: [0; 2],
            leader: None,
        }
    }

    /// For how long no leader has been heard.
    pub(super) fn silent_us(&self, now_us: u64) -> u64 {
        let heard_us = self.leader.map_or(0, |(.., at_us)| at_us);
        now_us.saturating_sub(heard_us.max(self.since_us))
    }

    /// This member has led until now.
    pub(super) fn note_led(&mut self, now_us: u64) {
        self.since_us = now_us;
    }

    /// How late a heartbeat left here, or came here, in microseconds.
    pub(crate) fn worst_us(&self) -> u64 {
        self.worst_us
    }

    fn note(&mut self, late_us: u64, timer_us: u64) {
        self.worst_us = self.worst_us.max(late_us);
        self.bear(0, late_us, timer_us);
    }

    /// What has hung once must not hide what comes later.
    fn bear(&mut self, kind: usize, late_us: u64, timer_us: u64) {
        if late_us <= HUNG * timer_us {
            self.bearable_us[kind] = self.bearable_us[kind].max(late_us);
        }
    }

    /// Whether the worst of this kind is to be told: near the limit, and a quarter more than before.
    fn is_news(&mut self, kind: usize, worst_us: u64, timer_us: u64) -> bool {
        let warned_us = &mut self.warned_us[kind];
        let is_news = worst_us > timer_us / NEAR && worst_us > *warned_us + *warned_us / 4;
        if is_news {
            *warned_us = worst_us;
        }
        is_news
    }
}

impl Member {
    /// A tick has passed.
    pub(super) fn tick(&mut self) {
        // Others can do what one cannot whose file refuses entries.
        let is_slow = self.is_failing(Failure::DelayElection) || self.steps.is_failing();
        if is_slow && !self.node.is_leader() {
            let is_about_to_campaign = self.node.ticks_left() <= 1;
            if self.clock.puts_off(is_about_to_campaign) {
                return;
            }
        }
        self.node.tick();
        self.look_for_silence();
    }

    /// A leader that comes to look at its clock only now sends its heartbeat late.
    pub(super) fn note_own_delay(&mut self) {
        if self.node.is_leader() && self.servers.len() > 1 {
            let due_us = self.clock.due_us(self.node.ticks_left(), self.election_timer);
            let late_us = self.now_us.saturating_sub(due_us);
            self.delays.note(late_us, self.election_timer * 1000);
            self.warn_of_delays();
        }
    }

    /// The leader has said something: later than it was to, if it was silent for longer than the
    /// time between two heartbeats. A leader of another term had none to send before.
    pub(super) fn note_leaders_delay(&mut self, from: Uuid, term: u64) {
        if self.node.leader() != Some(from) || self.node.term() != term {
            return;
        }
        let before = self.delays.leader.replace((from, term, self.now_us));
        let Some((leader, of, at_us)) = before else { return };
        if (leader, of) == (from, term) {
            let silent_us = self.now_us.saturating_sub(at_us);
            if silent_us > self.election_timer * 1000 {
                // It was not late, but away, or this member was: no timer is to bear that.
                return;
            }
            let beat_us = HEARTBEAT_TICKS * tick_us(self.election_timer);
            self.delays.note(silent_us.saturating_sub(beat_us), self.election_timer * 1000);
            self.warn_of_delays();
        }
    }

    /// An fdatasync(2) took so long.
    pub(super) fn note_disk(&mut self, took_us: u64) {
        self.delays.bear(1, took_us, self.election_timer * 1000);
        self.warn_of_delays();
    }

    /// Says which election timer would bear what was seen, before there is an election for it.
    fn warn_of_delays(&mut self) {
        if self.servers.len() < 2 {
            return;
        }
        let timer_us = self.election_timer * 1000;
        for (kind, what) in KINDS.into_iter().enumerate() {
            let worst_us = self.delays.bearable_us[kind];
            if self.delays.is_news(kind, worst_us, timer_us) {
                let good = good_timer_ms(worst_us);
                let timer = self.election_timer;
                let name = &self.name;
                let mut text = format!(
                    "{name}: {what} {} ms, near a third of the election timer of {timer} ms: run \
                     \"cluster/change-election-timer {name} {good}\" on the leader",
                    worst_us.div_ceil(1000),
                );
                if good > 2 * timer {
                    text.push_str(", by way of values that double at most");
                }
                self.log(Level::Warning, text);
            }
        }
    }
}

/// The election timer that bears such delays, in milliseconds.
fn good_timer_ms(worst_us: u64) -> u64 {
    let ms = (worst_us.div_ceil(1000) * GOOD).div_ceil(ROUND_MS) * ROUND_MS;
    ms.min(*crate::entry::ELECTION_TIMER_MS.end())
}

#[cfg(test)]
mod tests {
    use super::{Delays, good_timer_ms};

    #[test]
    fn a_recommended_timer_bears_what_was_seen() {
        assert_eq!(good_timer_ms(251_000), 1500);
        assert_eq!(good_timer_ms(400_000), 2000);
        assert_eq!(good_timer_ms(u64::MAX / 1000), 600_000);
    }

    #[test]
    fn a_delay_is_told_when_it_is_near_and_again_when_it_is_much_worse() {
        let mut delays = Delays::new(0);
        assert!(!delays.is_news(0, 250_000, 1_000_000), "it is not near");
        assert!(delays.is_news(0, 251_000, 1_000_000));
        assert!(!delays.is_news(0, 260_000, 1_000_000), "it is not much worse");
        assert!(delays.is_news(0, 400_000, 1_000_000));
        assert!(delays.is_news(1, 251_000, 1_000_000), "it is of another kind");
    }

    #[test]
    fn what_has_hung_does_not_hide_what_comes_later() {
        let mut delays = Delays::new(0);
        for (late_us, bearable_us) in [(40_000_000, 0), (300_000, 300_000), (4_000_001, 300_000)] {
            delays.note(late_us, 1_000_000);
            assert_eq!((delays.bearable_us, delays.worst_us()), ([bearable_us, 0], 40_000_000));
        }
    }
}
