//! What a transaction costs: a deterministic estimate, so that a step of the server has a bound.
//!
//! The unit is what a fast machine does in about 50 ns. The constants were measured with requests
//! of 60,000 rows; they need to be right within a factor of two or three.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use weir_data::condition::{Clause, Condition, Function};

/// Checking a clause of a condition on a row, if the clause's value has no more than an element.
pub(crate) const CLAUSE: u64 = 1;
/// Elements that are looked for in a set or map cost a unit for so many.
const SOUGHT: u64 = 2;
/// Elements of sets or maps that are compared one by one cost a unit for so many.
pub(crate) const COMPARED: u64 = 16;
/// Going to a row that a key has found, wherever in memory it is.
pub(crate) const CANDIDATE: u64 = 3;
/// Walking so many entries of a key costs a unit.
pub(crate) const ENTRIES: u64 = 4;
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
/// An element of a set or map that is computed, added or removed, and what the commit makes of it.
pub(crate) const ELEMENT: u64 = 3;
/// A row that comes or goes, and what the commit makes of it.
pub(crate) const ROW_MOVED: u64 = 40;

/// What it costs to check a condition on a row at most, whatever the row has.
pub(crate) fn condition(condition: &Condition) -> u64 {
    let clause = |clause: &Clause| match clause {
        Clause::Constant(_) => CLAUSE,
        Clause::Compare { function, value, .. } => {
            let is_sought = matches!(function, Function::Includes | Function::Excludes);
            let each = if is_sought { SOUGHT } else { COMPARED };
            CLAUSE + value.as_ref().len() as u64 / each
        }
    };
    condition.clauses.iter().map(clause).sum::<u64>().max(CLAUSE)
}

/// A transaction that is watched asks for a word about once a millisecond.
const ASK_EACH: u64 = 20_000;

/// What somebody outside has to say to a transaction under way. A word may be followed by a later
/// one of these, never by an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// The transaction may cost as much as it takes.
    GoOn,
    /// Others wait: the transaction ends when it has cost more than its budget.
    Hurry,
    /// Nobody waits for the transaction any more: it ends.
    Stop,
}

/// Whom a long transaction asks now and then. The answer may take its time: the transaction is at
/// rest meanwhile.
#[derive(Clone)]
pub struct Watcher(Arc<dyn Fn() -> Word + Send + Sync>);

impl Watcher {
    /// A watcher that answers with what `word` returns.
    pub fn new(word: impl Fn() -> Word + Send + Sync + 'static) -> Self {
        Self(Arc::new(word))
    }

    /// What is to be done now.
    pub fn ask(&self) -> Word {
        (self.0)()
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// What has been spent, and how much may be.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: Cell<u64>,
    budget: u64,
    watcher: Option<Watcher>,
    /// When this much is spent, it must be found out whether the transaction may go on.
    limit: Cell<u64>,
}

/// The budget is spent: the transaction must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Meter {
    /// A meter of a transaction that may cost so much; one that is watched may go on beyond that as
    /// long as nobody waits.
    pub(crate) fn new(budget: u64, watcher: Option<Watcher>) -> Self {
        let limit = if watcher.is_some() { 0 } else { budget };
        Self { spent: Cell::new(0), budget, watcher, limit: Cell::new(limit) }
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
        let before = self.spent.get();
        self.spend_each(count, units);
        self.check().inspect_err(|_| self.spent.set(before))
    }

    /// Whether so much more may be spent, asked before work that cannot end half-way: what alone
    /// costs more than the budget is not begun, whether or not somebody waits yet.
    pub(crate) fn allow(&self, units: u64) -> Result<(), TooLong> {
        if units > self.budget {
            return Err(TooLong);
        }
        let before = self.spent.get();
        self.afford_each(1, units)?;
        self.spent.set(before);
        Ok(())
    }

    /// Spends what [`Meter::allow`] allows.
    pub(crate) fn spend_allowed(&self, count: usize, units: u64) -> Result<(), TooLong> {
        self.allow(units.saturating_mul(count as u64))?;
        self.spend_each(count, units);
        Ok(())
    }

    /// As [`Meter::afford_each`], for one thing.
    pub(crate) fn afford(&self, units: u64) -> Result<(), TooLong> {
        self.afford_each(1, units)
    }

    pub(crate) fn parsed(&self, bytes: usize) {
        self.spend((bytes / PARSED_BYTES) as u64);
    }

    pub(crate) fn written(&self, bytes: usize) {
        self.spend((bytes / WRITTEN_BYTES) as u64);
    }

    /// As [`Meter::written`], before the text is.
    pub(crate) fn afford_written(&self, bytes: usize) -> Result<(), TooLong> {
        self.afford((bytes / WRITTEN_BYTES) as u64)
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.spent.get() > self.limit.get() && self.must_end()
    }

    #[cold]
    fn must_end(&self) -> bool {
        let Some(watcher) = &self.watcher else { return true };
        let spent = self.spent.get();
        let must_end = match watcher.ask() {
            Word::GoOn => false,
            Word::Hurry => spent > self.budget,
            Word::Stop => true,
        };
        if !must_end {
            let pause = (self.budget / 16).clamp(1, ASK_EACH);
            self.limit.set(spent.saturating_add(pause));
        }
        must_end
    }

    /// Whether the transaction may go on.
    pub(crate) fn check(&self) -> Result<(), TooLong> {
        if self.is_over() { Err(TooLong) } else { Ok(()) }
    }
}
