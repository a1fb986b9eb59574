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

/// A changed row that is looked up, and whom it can concern.
pub(crate) const VIEW: u64 = 3;

/// Text that is written or copied costs a unit for so many bytes.
const WRITTEN_BYTES: usize = 32;

/// The step is over: what was begun is for a helper, or for another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// What may still be spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    /// So many units.
    pub(crate) fn new(units: u64) -> Self {
        Self { left: units }
    }

    /// No bound: for who has the time.
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX)
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
        let left = self.left.checked_sub(units);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(TooLong)
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
