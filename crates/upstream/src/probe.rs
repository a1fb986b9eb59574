//! Inactivity probes: an `echo` request to a silent peer, then the end of its connection.
//!
//! | state | ends by | next |
//! |---|---|---|
//! | heard of | silence for an interval | a probe is out |
//! | a probe is out | anything that arrives; silence for another interval | heard of; lost |
//! | the same, and nobody has looked since | the look | a probe is out |
//!
//! Texts and times are the reference's.

use crate::backoff::seconds;

/// Intervals below this, in milliseconds, would only measure the scheduler.
const INTERVAL_MS_MIN: u64 = 1000;

/// A look at an answer that comes so much too late, in microseconds, shows that nobody has looked
/// for a while: the process was stopped, or busy. What has come meanwhile may not be read yet.
const AWAY_US: u64 = 1_000_000;

/// The id of a probe, as JSON text.
pub const ID: &[u8] = b"\"echo\"";

/// The message that is sent as a probe.
pub fn request() -> Vec<u8> {
    weir_wire::request(ID, "echo", b"[]")
}

/// How one peer is probed. Times are microseconds on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// 0 for none.
    interval_us: u64,
    heard_us: u64,
    /// When the probe was sent that is out.
    sent_us: Option<u64>,
}

/// What comes of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// A probe must be sent, after so many microseconds.
    Idle(u64),
    /// Nobody has answered the probe for so many microseconds: the connection must end.
    Lost(u64),
}

impl Probe {
    /// The probing of a peer that is heard of now, at an interval in ms, 0 for none.
    pub fn new(interval_ms: u64, now_us: u64) -> Self {
        let mut new = Self { interval_us: 0, heard_us: now_us, sent_us: None };
        new.set_interval(interval_ms);
        new
    }

    /// Another interval in ms, 0 for none; it counts at once.
    pub fn set_interval(&mut self, ms: u64) {
        // Longer than the clock runs is never.
        let us = ms.max(INTERVAL_MS_MIN).saturating_mul(1000);
        self.interval_us = if ms == 0 { 0 } else { us };
    }

    /// Something has come from the peer.
    pub fn heard(&mut self, now_us: u64) {
        (self.heard_us, self.sent_us) = (now_us, None);
    }

    /// When anything last came from the peer.
    pub fn heard_us(&self) -> u64 {
        self.heard_us
    }

    /// Whether a probe is out that nobody has answered.
    pub fn is_out(&self) -> bool {
        self.sent_us.is_some()
    }

    /// When [`Probe::run`] has something to do; `None` without an interval.
    pub fn next_us(&self) -> Option<u64> {
        let since_us = self.sent_us.unwrap_or(self.heard_us);
        (self.interval_us > 0).then(|| since_us.saturating_add(self.interval_us))
    }

    /// Does what is due by now.
    pub fn run(&mut self, now_us: u64) -> Option<Silence> {
        let due_us = self.next_us().filter(|at| *at <= now_us)?;
        if self.is_out() && now_us - due_us >= AWAY_US {
            self.sent_us = Some(now_us);
            return None;
        }
        Some(match self.sent_us {
            Some(sent_us) => Silence::Lost(now_us - sent_us),
            None => {
                self.sent_us = Some(now_us);
                Silence::Idle(now_us - self.heard_us)
            }
        })
    }
}

impl Silence {
    /// What to log: of a probe at DBG, of a lost peer at ERR.
    pub fn text(self, name: &str) -> String {
        match self {
            Self::Idle(us) => format!("{name}: idle {} ms, sending inactivity probe", us / 1000),
            Self::Lost(us) => {
                let seconds = seconds(us / 1000);
                format!(
                    "{name}: no response to inactivity probe after {seconds} seconds, disconnecting"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_listened_to_has_another_interval_to_answer() {
        let mut probe = Probe::new(5000, 0);
        assert_eq!(probe.run(5_000_000), Some(Silence::Idle(5_000_000)));
        // The process is stopped for 70 s.
        assert_eq!(probe.run(75_000_000), None);
        assert_eq!(probe.next_us(), Some(80_000_000));
        assert_eq!(probe.run(80_000_100), Some(Silence::Lost(5_000_100)));
    }

    #[test]
    fn silence_is_probed_and_then_too_long() {
        let mut probe = Probe::new(2345, 0);
        probe.heard(1_000_000);
        assert_eq!(probe.run(3_344_999), None);
        let idle = probe.run(3_345_000).unwrap();
        assert_eq!(idle.text("tcp:x"), "tcp:x: idle 2345 ms, sending inactivity probe");
        assert!(probe.is_out());
        let lost = probe.run(5_691_000).unwrap();
        assert_eq!(
            lost.text("tcp:x"),
            "tcp:x: no response to inactivity probe after 2.35 seconds, disconnecting"
        );
    }

    #[test]
    fn whoever_answers_is_not_lost() {
        let mut probe = Probe::new(5000, 0);
        assert_eq!(probe.run(5_000_000), Some(Silence::Idle(5_000_000)));
        probe.heard(6_000_000);
        assert_eq!((probe.is_out(), probe.next_us()), (false, Some(11_000_000)));
    }

    #[test]
    fn another_interval_counts_from_the_probe_that_is_out() {
        let mut probe = Probe::new(5000, 0);
        probe.run(5_000_000);
        probe.set_interval(2000);
        assert_eq!(probe.next_us(), Some(7_000_000));
    }

    #[test]
    fn intervals_are_a_second_at_least_or_none_and_may_be_for_ever() {
        assert_eq!(Probe::new(1, 7).next_us(), Some(1_000_007));
        assert_eq!(Probe::new(0, 7).next_us(), None);
        assert_eq!(Probe::new(u64::MAX, 7).run(u64::MAX - 1), None);
    }
}
