//! No relay follows itself for long, however many others are between.

use super::Verdict;

/// A ring of connections ends by then, in microseconds, if all in it hear each other: the news goes round, and
/// helpers may take seconds before somebody looks at it.
const RING_US_MAX: u64 = 10_000_000;

/// The ring of connections that there was when somebody looked last, and since when.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    ring: Vec<usize>,
    since_us: u64,
}

impl Rings {
    /// Takes note of the relays that are connected to one another in a ring, if there is one, and of whether
    /// some of them cannot hear others.
    pub(crate) fn look(&mut self, now_us: u64, ring: Vec<usize>, is_disturbed: bool) -> Verdict {
        if ring.is_empty() || is_disturbed || self.ring != ring {
            *self = Self { ring, since_us: now_us };
            return Ok(());
        }
        let for_us = now_us - self.since_us;
        match for_us < RING_US_MAX {
            true => Ok(()),
            false => {
                let ring = &self.ring;
                Err(format!("{ring:?} have been connected in a ring for {} ms", for_us / 1000))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_may_come_and_go_but_not_stay() {
        let mut rings = Rings::default();
        for second in 0..100 {
            let ring = if second % 9 < 8 { vec![1, 2] } else { Vec::new() };
            assert_eq!(rings.look(second * 1_000_000, ring, false), Ok(()));
        }
        let mut rings = Rings::default();
        let mut at =
            |second: u64, is_disturbed| rings.look(second * 1_000_000, vec![1, 2], is_disturbed);
        assert_eq!(at(1, false), Ok(()));
        assert_eq!(at(5, true), Ok(()));
        assert_eq!(at(14, false), Ok(()));
        assert!(at(15, false).is_err());
    }
}
