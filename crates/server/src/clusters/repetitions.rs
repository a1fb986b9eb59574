//! Requests that a leader was asked for again: which attempt came last. What was sent first may come behind
//! it, by another connection.

use std::collections::BTreeMap;

use weir_data::Uuid;

/// Requests that were asked for again are remembered up to this number, while a term lasts: at more,
/// the log is searched for every request.
const REPETITIONS_MAX: usize = 1 << 16;

/// What an attempt is that has just come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Nothing has come of the request here.
    First,
    /// An earlier attempt at the request may have become an entry.
    Again,
    /// A later one has come: its answer is the one that is heeded, and it may have said that the request
    /// changes nothing, of which the log has nothing.
    TooLate,
}

/// The last attempts of requests that came here in this term, as its leader, not for the first time.
#[derive(Debug, Default)]
pub(crate) struct Repetitions {
    last: BTreeMap<Uuid, u64>,
}

impl Repetitions {
    /// An attempt has come of the request that becomes the entry of this id.
    pub(crate) fn note(&mut self, eid: Uuid, attempt: u64) -> Attempt {
        let are_many = self.last.len() >= REPETITIONS_MAX;
        match self.last.get_mut(&eid) {
            Some(last) if attempt < *last => Attempt::TooLate,
            Some(last) => {
                *last = attempt;
                Attempt::Again
            }
            None if attempt == 0 && !are_many => Attempt::First,
            None => {
                if attempt > 0 && !are_many {
                    self.last.insert(eid, attempt);
                }
                Attempt::Again
            }
        }
    }

    /// Another term has begun.
    pub(crate) fn clear(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_comes_behind_a_later_one_is_too_late() {
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let mut repetitions = Repetitions::default();
        assert_eq!(repetitions.note(one, 0), Attempt::First);
        assert_eq!(repetitions.note(one, 2), Attempt::Again);
        assert_eq!(repetitions.note(one, 0), Attempt::TooLate);
        assert_eq!(repetitions.note(one, 1), Attempt::TooLate);
        assert_eq!(repetitions.note(one, 3), Attempt::Again);
        assert_eq!(repetitions.note(other, 0), Attempt::First);
        repetitions.clear();
        assert_eq!(repetitions.note(one, 0), Attempt::First);
    }

    #[test]
    fn of_too_many_every_request_may_have_run() {
        let mut repetitions = Repetitions::default();
        for n in 0..REPETITIONS_MAX as u128 {
            repetitions.note(Uuid::from_u128(n), 1);
        }
        let new = Uuid::from_u128(u128::MAX);
        assert_eq!(repetitions.note(new, 1), Attempt::Again);
        assert_eq!(repetitions.note(new, 0), Attempt::Again);
        assert_eq!(repetitions.last.len(), REPETITIONS_MAX);
    }
}
