//! How long the loop was away from its sockets, for `weir/status`.

/// One part of the time that is remembered, in microseconds.
const PART_US: u64 = 10_000_000;

/// So many parts are remembered: a minute.
const PARTS: usize = 6;

/// The longest rounds.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The number of a part since the start, and the longest round that began in it.
    parts: [(u64, u64); PARTS],
    ever_us: u64,
}

impl Stalls {
    /// A round is over.
    #[inline]
    pub(crate) fn note(&mut self, begun_us: u64, done_us: u64) {
        let took_us = done_us.checked_sub(begun_us).expect("the monotonic clock never steps back");
        let number = begun_us / PART_US;
        let part = &mut self.parts[(number % PARTS as u64) as usize];
        if part.0 != number {
            *part = (number, 0);
        }
        part.1 = part.1.max(took_us);
        self.ever_us = self.ever_us.max(took_us);
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
        stalls.note(5_000_000, 5_700_000);
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
    fn the_system_knows_what_this_process_has() {
        assert!(resident_bytes() > 1 << 20);
        assert!(peak_kib() >= resident_bytes() >> 10);
    }
}
