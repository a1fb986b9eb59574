//! What a transaction costs: a deterministic estimate, so that a step of the server has a bound.
//!
//! The unit is what a fast machine does in about 50 ns. The constants were measured with requests
//! of 60,000 rows; they need to be right within a factor of two or three.

use std::cell::Cell;

/// Checking a condition on a row, for each of the condition's clauses.
pub(crate) const CLAUSE: u64 = 1;
/// Dispatching an operation.
pub(crate) const OPERATION: u64 = 20;
/// Text of a request that is parsed costs a unit for so many bytes.
const PARSED_BYTES: usize = 16;
/// Text of a reply that is written costs a unit for so many bytes.
const WRITTEN_BYTES: usize = 16;
/// Bringing a row into the order or the form that is asked for.
pub(crate) const ROW: u64 = 4;
/// A change of one column of one row, and what the commit makes of it.
pub(crate) const CHANGE: u64 = 20;
/// A row that comes or goes, and what the commit makes of it.
pub(crate) const ROW_MOVED: u64 = 40;

/// What has been spent, and how much may be.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: Cell<u64>,
    budget: u64,
}

/// The budget is spent: the transaction must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Meter {
    pub(crate) fn new(budget: u64) -> Self {
        Self { spent: Cell::new(0), budget }
    }

    pub(crate) fn spend(&self, units: u64) {
        self.spent.set(self.spent.get().saturating_add(units));
    }

    /// As [`Meter::spend`], for things that are counted by number.
    pub(crate) fn spend_each(&self, count: usize, units: u64) {
        self.spend(units.saturating_mul(count as u64));
    }

    /// As [`Meter::spend_each`], before the work: what is too much is neither spent nor done.
    pub(crate) fn afford_each(&self, count: usize, units: u64) -> Result<(), TooLong> {
        let sum = self.spent().saturating_add(units.saturating_mul(count as u64));
        if sum > self.budget {
            return Err(TooLong);
        }
        self.spent.set(sum);
        Ok(())
    }

    pub(crate) fn parsed(&self, bytes: usize) {
        self.spend((bytes / PARSED_BYTES) as u64);
    }

    pub(crate) fn written(&self, bytes: usize) {
        self.spend((bytes / WRITTEN_BYTES) as u64);
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.spent.get() > self.budget
    }

    /// Whether the transaction may go on.
    pub(crate) fn check(&self) -> Result<(), TooLong> {
        if self.is_over() { Err(TooLong) } else { Ok(()) }
    }
}
