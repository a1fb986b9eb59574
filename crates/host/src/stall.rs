//! How long the loop was away from its sockets, for `weir/status` and the log.

use crate::usage::Usage;

/// One part of the time that is remembered, in microseconds.
const PART_US: u64 = 10_000_000;

/// So many parts are remembered: a minute.
const PARTS: usize = 6;

/// A round that takes as long is told to the log, as in the reference.
const LONG_US: u64 = 1_000_000;

/// What the thread has used is looked at before a round, if the last look is so long ago: that takes
/// a call of the system. What it has used since then counts as the round's.
const USAGE_US: u64 = 100_000;

/// What the loop does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Input,
    Core,
    Files,
    Output,
}

/// The steps, as the log names them.
const STEPS: [(Step, &str); 4] = [
    (Step::Input, "reading what clients sent"),
    (Step::Core, "requests and updates"),
    (Step::Files, "writing to files"),
    (Step::Output, "sending"),
];

/// What a round's time goes to.
#[derive(Debug, Default)]
pub(crate) struct RoundTime {
    /// When the last step ended.
    marked_us: u64,
    /// What each of the `STEPS` has taken, in microseconds.
    taken_us: [u64; STEPS.len()],
    /// What the thread had used, and when that was looked at.
    usage: Usage,
    looked_us: u64,
}

impl RoundTime {
    /// A round begins.
    #[inline]
    pub(crate) fn begin(&mut self, now_us: u64) {
        (self.marked_us, self.taken_us) = (now_us, [0; STEPS.len()]);
        if now_us >= self.looked_us + USAGE_US {
            (self.looked_us, self.usage) = (now_us, Usage::of_this_thread());
        }
    }

    /// A step has ended; the next one begins.
    #[inline]
    pub(crate) fn mark(&mut self, step: Step, now_us: u64) {
        self.taken_us[step as usize] += now_us - self.marked_us;
        self.marked_us = now_us;
    }

    /// A round is over that took so long, and the thread has used so much until now: lines for the
    /// log, if it was too long.
    #[inline]
    pub(crate) fn report(&self, took_us: u64, usage: fn() -> Usage) -> Option<Vec<String>> {
        (took_us >= LONG_US).then(|| self.lines(took_us, usage().since(self.usage)))
    }

    fn lines(&self, took_us: u64, used: Usage) -> Vec<String> {
        let (took, user, system) = (took_us / 1000, used.user_us / 1000, used.system_us / 1000);
        let mut lines = vec![format!(
            "Unreasonably long {took}ms poll interval ({user}ms user, {system}ms system)"
        )];
        let pairs = [
            ("faults", used.minor_faults, "minor", used.major_faults, "major"),
            ("disk", used.reads, "reads", used.writes, "writes"),
            (
                "context switches",
                used.voluntary_switches,
                "voluntary",
                used.involuntary_switches,
                "involuntary",
            ),
        ];
        let told = pairs.iter().filter(|(_, one, _, other, _)| one + other > 0);
        lines.extend(told.map(|(what, one, is_one, other, is_other)| {
            format!("{what}: {one} {is_one}, {other} {is_other}")
        }));
        let (step, name) = STEPS
            .into_iter()
            .max_by_key(|(step, _)| self.taken_us[*step as usize])
            .expect("there are steps");
        lines.push(format!("longest step: {name}, {}ms", self.taken_us[step as usize] / 1000));
        lines
    }
}

/// The longest rounds.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The number of a part since the start, and the longest round that began in it.
    parts: [(u64, u64); PARTS],
    ever_us: u64,
}

impl Stalls {
    /// A round is over; how long it took.
    #[inline]
    pub(crate) fn note(&mut self, begun_us: u64, done_us: u64) -> u64 {
        let took_us = done_us.checked_sub(begun_us).expect("the monotonic clock never steps back");
        let number = begun_us / PART_US;
        let part = &mut self.parts[(number % PARTS as u64) as usize];
        if part.0 != number {
            *part = (number, 0);
        }
        part.1 = part.1.max(took_us);
        self.ever_us = self.ever_us.max(took_us);
        took_us
    }

    /// The longest round of the last minute, in microseconds.
    pub(crate) fn recent_us(&self, now_us: u64) -> u64 {
        let oldest = (now_us / PART_US + 1).saturating_sub(PARTS as u64);
        let recent = self.parts.iter().filter(|part| part.0 >= oldest);
        recent.map(|part| part.1).max().unwrap_or(0)
    }

    /// The longest round since the start, in microseconds.
    pub(crate) fn ever_us(&self) -> u64 {
        self.ever_us
    }
}

/// Memory that the process has, in bytes; 0 where the system does not say (proc(5)).
pub(crate) fn resident_bytes() -> u64 {
    status_kib("VmRSS:") << 10
}

/// The most memory that the process ever had, in KiB.
pub(crate) fn peak_kib() -> u64 {
    status_kib("VmHWM:")
}

fn status_kib(label: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(label));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_round_is_forgotten_after_a_minute() {
        let mut stalls = Stalls::default();
        assert_eq!(stalls.note(5_000_000, 5_700_000), 700_000);
        stalls.note(6_000_000, 6_000_100);
        assert_eq!(stalls.recent_us(6_000_100), 700_000);
        stalls.note(55_000_000, 55_000_200);
        assert_eq!(stalls.recent_us(59_000_000), 700_000);
        assert_eq!(stalls.recent_us(61_000_000), 200);
        stalls.note(66_000_000, 66_000_300);
        assert_eq!((stalls.recent_us(67_000_000), stalls.ever_us()), (300, 700_000));
        assert_eq!(stalls.recent_us(1_000_000_000), 0);
    }

    #[test]
    fn a_round_of_a_second_is_told_with_what_it_used_and_its_longest_step() {
        let mut time = RoundTime::default();
        time.begin(5_000_000);
        // What a busy test has used until here is not this round's.
        time.usage = Usage { user_us: 3_000_000, minor_faults: 7, ..Usage::default() };
        time.mark(Step::Input, 5_100_000);
        time.mark(Step::Core, 5_600_000);
        time.mark(Step::Files, 6_000_000);
        time.mark(Step::Core, 6_250_000);
        time.mark(Step::Output, 6_250_999);
        let usage = || Usage {
            user_us: 3_900_900,
            system_us: 20_000,
            minor_faults: 9,
            involuntary_switches: 4,
            ..Usage::default()
        };
        assert_eq!(time.report(999_999, usage), None);
        let lines = time.report(1_250_999, usage).unwrap();
        let expected = [
            "Unreasonably long 1250ms poll interval (900ms user, 20ms system)",
            "faults: 2 minor, 0 major",
            "context switches: 0 voluntary, 4 involuntary",
            "longest step: requests and updates, 750ms",
        ];
        assert_eq!(lines, expected);
        // The next round begins with nothing.
        time.begin(7_000_000);
        time.mark(Step::Files, 8_000_000);
        let lines = time.report(1_000_000, Usage::of_this_thread).unwrap();
        assert_eq!(lines.last().unwrap(), "longest step: writing to files, 1000ms");
    }

    #[test]
    fn steps_are_named_in_their_order() {
        assert!(STEPS.iter().enumerate().all(|(index, (step, _))| *step as usize == index));
    }

    #[test]
    fn the_system_knows_what_this_process_has() {
        assert!(resident_bytes() > 1 << 20);
        assert!(peak_kib() >= resident_bytes() >> 10);
    }
}
