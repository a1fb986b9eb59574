//! What composing costs: a deterministic estimate, so that a step of the server has a bound.
//!
//! The unit is what a fast machine does in about 50 ns, as in the engine's estimate of what
//! transactions cost.

/// A row that is told of, besides its values.
pub(crate) const ROW: u64 = 4;

/// Each value of a row that is told of.
pub(crate) const ATOM: u64 = 2;

/// Finding a row by the value of a column.
pub(crate) const LOOKUP: u64 = 2;

/// Walking so many entries of a key costs a unit.
pub(crate) const ENTRIES: u64 = 4;

/// A changed row that is put together with what happened to it before.
pub(crate) const JOIN: u64 = 3;

/// A changed row that is looked up, and whom it can concern.
pub(crate) const VIEW: u64 = 3;

/// Who may take his time is asked to rest after so many units: about 1 ms.
const REST_EACH: u64 = 20_000;

/// Text that is written or copied costs a unit for so many bytes.
const WRITTEN_BYTES: usize = 32;

/// The step is over: what was begun is for a helper, or for another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// What may still be spent.
#[derive(Clone, Copy)]
pub(crate) struct Budget<'r> {
    left: u64,
    /// What is done when nothing is left, and as much again may be spent.
    rest: Option<&'r dyn Fn()>,
}

impl<'r> Budget<'r> {
    /// So many units.
    pub(crate) fn new(units: u64) -> Self {
        Self { left: units, rest: None }
    }

    /// No bound: for who has the time.
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// No bound, but for what is done after about every millisecond.
    pub(crate) fn resting(rest: &'r dyn Fn()) -> Self {
        Self { left: REST_EACH, rest: Some(rest) }
    }

    /// What may still be spent.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing is left.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn spend(&mut self, units: u64) -> Result<(), TooLong> {
        match self.left.checked_sub(units) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.exceed(units),
        }
    }

    #[cold]
    fn exceed(&mut self, units: u64) -> Result<(), TooLong> {
        let over = units - std::mem::take(&mut self.left);
        let rest = self.rest.ok_or(TooLong)?;
        (0..over.div_ceil(REST_EACH)).for_each(|_| rest());
        self.left = REST_EACH;
        Ok(())
    }

    /// As [`Budget::spend`], for things that are counted by number.
    pub(crate) fn spend_each(&mut self, count: usize, units: u64) -> Result<(), TooLong> {
        self.spend(units.saturating_mul(count as u64))
    }

    /// As [`Budget::spend`], for text.
    pub(crate) fn written(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.spend(bytes.div_ceil(WRITTEN_BYTES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_may_take_his_time_rests_as_often_as_it_takes() {
        let rests = Cell::new(0);
        let rest = || rests.set(rests.get() + 1);
        let mut budget = Budget::resting(&rest);
        for expected in [0, 1, 1, 2] {
            assert_eq!(budget.spend(REST_EACH / 2 + 1), Ok(()));
            assert_eq!(rests.get(), expected);
        }
        assert_eq!(budget.spend(10 * REST_EACH), Ok(()));
        assert!((11..=12).contains(&rests.get()), "{}", rests.get());
        let mut budget = Budget::new(1);
        assert_eq!((budget.spend(2), budget.left()), (Err(TooLong), 0));
    }
}
