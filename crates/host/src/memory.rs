//! The memory of the process: `memory|INFO` lines when it has grown, and when what is free goes
//! back to the system.

use weir_server::event::Event;

/// From the last work to the moment at which freed memory goes back, in microseconds: who is about
/// to work again needs it no sooner.
const IDLE_US: u64 = 5_000_000;

/// A message up to this length, in bytes, is no work: the answer to a probe, or an empty `echo`.
const PROBE_BYTES_MAX: usize = 64;

/// What comes at once from a member of a cluster is no work up to this length, in bytes:
/// heartbeats, and answers to them.
const HEARTBEAT_BYTES_MAX: usize = 512;

/// When the server idles. The allocator gives back what is free while others allocate, so nobody
/// does it once nobody works.
#[derive(Debug, Default)]
pub(crate) struct Idleness {
    /// When something was done last, unless what that has freed is back already.
    worked_us: Option<u64>,
}

impl Idleness {
    /// The core is told of something at this time, in microseconds.
    #[inline]
    pub(crate) fn note(&mut self, now_us: u64, event: &Event) {
        let is_work = match event {
            Event::Message { bytes, .. } | Event::LinkMessage { bytes, .. } => {
                bytes.len() > PROBE_BYTES_MAX
            }
            Event::LinkBytes { bytes, .. } => bytes.len() > HEARTBEAT_BYTES_MAX,
            Event::Activity { .. } | Event::LinkActivity { .. } => false,
            // Who asks how the server is doing does not keep it busy.
            Event::Command { .. }
            | Event::Backlog { .. }
            | Event::HostStatus(_)
            | Event::Outboxes { .. }
            | Event::Idle => false,
            _ => true,
        };
        if is_work {
            self.worked_us = Some(now_us);
        }
    }

    /// When freed memory is to go back; never twice without work in between.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.worked_us.map(|worked| worked + IDLE_US)
    }

    /// Whether freed memory is to go back now.
    pub(crate) fn take_due(&mut self, now_us: u64) -> bool {
        let is_due = self.deadline_us().is_some_and(|deadline| deadline <= now_us);
        if is_due {
            self.worked_us = None;
        }
        is_due
    }
}

/// Between looks, in microseconds; the first report comes after as much.
const CHECK_INTERVAL_US: u64 = 10_000_000;

/// Remembers what was reported last.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    next_check_us: u64,
    /// When, in microseconds, and how much, in KiB.
    reported: Option<(u64, u64)>,
}

impl Default for MemoryWatch {
    fn default() -> Self {
        Self { next_check_us: CHECK_INTERVAL_US, reported: None }
    }
}

impl MemoryWatch {
    /// When the first report is due. What is idle does not grow, so nobody wakes for later ones.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.reported.is_none().then_some(self.next_check_us)
    }

    /// The text of a report, if one is due: the first, or half as much again as in the last.
    /// Times are microseconds since the start; `peak_kib` reads the most memory there ever was.
    pub(crate) fn check(&mut self, now_us: u64, peak_kib: impl Fn() -> u64) -> Option<String> {
        if now_us < self.next_check_us {
            return None;
        }
        self.next_check_us = now_us + CHECK_INTERVAL_US;
        let peak = peak_kib();
        let text = match self.reported {
            None => {
                let after_s = seconds(now_us);
                format!("{peak} kB peak resident set size after {after_s:.1} seconds")
            }
            Some((at_us, before)) if grown_by_half(before, peak) => {
                let (percent, in_s) = (growth_percent(before, peak), seconds(now_us - at_us));
                format!(
                    "peak resident set size grew {percent:.0}% in last {in_s:.1} seconds, \
                     from {before} kB to {peak} kB"
                )
            }
            Some(_) => return None,
        };
        self.reported = Some((now_us, peak));
        Some(text)
    }
}

/// 0 is what is read where the system does not say.
fn grown_by_half(before: u64, now: u64) -> bool {
    now > 0 && now.saturating_mul(2) >= before.saturating_mul(3)
}

fn growth_percent(before: u64, now: u64) -> f64 {
    (now as f64 / before.max(1) as f64 - 1.0) * 100.0
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use weir_server::event::SessionId;

    use super::*;

    fn message(length: usize) -> Event {
        Event::Message { session: SessionId(1), bytes: vec![b' '; length] }
    }

    #[test]
    fn memory_goes_back_once_when_nobody_has_worked_for_a_while() {
        let mut idleness = Idleness::default();
        assert_eq!(idleness.deadline_us(), None);
        idleness.note(1_000_000, &message(100));
        idleness.note(2_000_000, &message(100));
        assert_eq!(idleness.deadline_us(), Some(2_000_000 + IDLE_US));
        assert!(!idleness.take_due(1_999_999 + IDLE_US));
        assert!(idleness.take_due(2_000_000 + IDLE_US));
        assert_eq!(idleness.deadline_us(), None);
    }

    #[test]
    fn probes_and_questions_are_no_work() {
        let mut idleness = Idleness::default();
        let session = SessionId(1);
        idleness.note(1_000_000, &Event::Closed { session, error: None });
        let probed = br#"{"id":"echo","result":[],"error":null}"#;
        idleness.note(2_000_000, &Event::Message { session, bytes: probed.to_vec() });
        idleness.note(2_000_000, &Event::Activity { session });
        let link = weir_server::event::LinkId(1);
        idleness.note(2_000_000, &Event::LinkBytes { link, bytes: vec![0; HEARTBEAT_BYTES_MAX] });
        idleness.note(2_000_000, &Event::Backlog { bytes: 1, peers: 1 });
        assert_eq!(idleness.deadline_us(), Some(1_000_000 + IDLE_US));
        assert!(idleness.take_due(3_000_000 + IDLE_US));
        idleness.note(9_000_000, &Event::Activity { session });
        assert_eq!(idleness.deadline_us(), None);
    }

    #[test]
    fn growth_is_told_in_the_words_of_the_reference() {
        let mut watch = MemoryWatch::default();
        assert_eq!(watch.check(9_999_999, || panic!("too early")), None);
        assert_eq!(watch.deadline_us(), Some(10_000_000));
        let first = watch.check(10_040_000, || 5000);
        assert_eq!(first.as_deref(), Some("5000 kB peak resident set size after 10.0 seconds"));
        assert_eq!(watch.deadline_us(), None);
        assert_eq!(watch.check(15_000_000, || panic!("too early")), None);
        assert_eq!(watch.check(20_050_000, || 7499), None);
        let more = watch.check(35_040_000, || 12_500);
        let expected = "peak resident set size grew 150% in last 25.0 seconds, \
                        from 5000 kB to 12500 kB";
        assert_eq!(more.as_deref(), Some(expected));
        assert_eq!(watch.check(60_000_000, || 12_500), None);
    }

    /// As where `/proc` cannot be read.
    #[test]
    fn a_peak_that_is_not_known_has_not_grown() {
        let mut watch = MemoryWatch::default();
        assert!(watch.check(10_000_000, || 0).is_some());
        assert_eq!(watch.check(20_000_000, || 0), None);
    }
}
