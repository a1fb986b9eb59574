//! Linearizability: whether what clients were told of a register can have happened in one order, in which
//! each operation stands between its request and its answer.
//!
//! An operation writes a value that nobody else writes and is told the one before, or only reads. The
//! search is that of Wing and Gong, which goes no way twice (Lowe): a way is the set of operations
//! that have happened and the value that they left.

use std::collections::{BTreeSet, HashSet};

use super::Verdict;

/// Ways that are tried of one register; the verdict on a history that needs more is open.
const WAYS_MAX: usize = 200_000;

/// What an operation did, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Writes a value, and was told the one before if there was an answer.
    Swap { new: u64, old: Option<u64> },
    /// Reads a value.
    Read(u64),
}

/// An operation on a register.
#[derive(Clone, Copy, Debug)]
struct Operation {
    asked_us: u64,
    /// Never, if nobody knows what has come of it.
    answered_us: u64,
    kind: Kind,
}

/// What has happened to one register, which began with 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    operations: Vec<Operation>,
}

/// A way that is being tried.
struct Way {
    /// A bit an operation.
    done: Vec<u64>,
    value: u64,
    /// The operations that may come next, and have not been tried.
    next: Vec<usize>,
}

impl Way {
    fn has(&self, number: usize) -> bool {
        self.done[number / 64] >> (number % 64) & 1 == 1
    }
}

impl History {
    /// An operation from when it was asked for to when it was answered, if ever.
    pub(crate) fn push(&mut self, asked_us: u64, answered_us: Option<u64>, kind: Kind) {
        let answered_us = answered_us.unwrap_or(u64::MAX);
        self.operations.push(Operation { asked_us, answered_us, kind });
    }

    /// How many operations there were.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is such an order; `Ok(false)` if that was not found out.
    pub(crate) fn check(&self) -> Result<bool, String> {
        let operations = self.relevant();
        let none = vec![0; operations.len().div_ceil(64)];
        let mut seen: HashSet<(Vec<u64>, u64)> = HashSet::new();
        let mut ways = vec![];
        let mut best = (0, 0, vec![]);
        let mut way = Way { done: none, value: 0, next: vec![] };
        loop {
            let (is_all, next) = candidates(&operations, &way);
            if is_all {
                return Ok(true);
            }
            if ways.len() >= best.0 {
                best = (ways.len(), way.value, next.clone());
            }
            way.next = next;
            ways.push(way);
            way = loop {
                let Some(last) = ways.last_mut() else {
                    let stuck = best.2.iter().map(|n| format!("{:?}", operations[*n]));
                    let stuck: Vec<String> = stuck.collect();
                    let (count, value) = (best.0, best.1);
                    return Err(format!("behind {count} operations, with {value}: {stuck:?}"));
                };
                let Some(number) = last.next.pop() else {
                    ways.pop();
                    continue;
                };
                let Some(value) = after(operations[number].kind, last.value) else { continue };
                let mut done = last.done.clone();
                done[number / 64] |= 1 << (number % 64);
                if seen.len() == WAYS_MAX {
                    return Ok(false);
                }
                if seen.insert((done.clone(), value)) {
                    break Way { done, value, next: vec![] };
                }
            };
        }
    }

    /// The operations in the order in which they were asked for, without such that nobody knows of and
    /// whose value nobody was told: whether they happened makes no difference.
    fn relevant(&self) -> Vec<Operation> {
        let told = self.operations.iter().filter_map(|operation| match operation.kind {
            Kind::Swap { old, .. } => old,
            Kind::Read(value) => Some(value),
        });
        let told: BTreeSet<u64> = told.collect();
        let is_relevant = |operation: &&Operation| match operation.kind {
            Kind::Swap { new, old: None } => told.contains(&new),
            _ => true,
        };
        let mut relevant: Vec<Operation> =
            self.operations.iter().filter(is_relevant).copied().collect();
        relevant.sort_by_key(|operation| operation.asked_us);
        relevant
    }
}

/// Whether everything that was answered has happened, and what may happen next: all that was asked for
/// before anything that has not happened was answered. What was answered is tried first.
fn candidates(operations: &[Operation], way: &Way) -> (bool, Vec<usize>) {
    let mut until_us = u64::MAX;
    let mut next = vec![];
    for (number, operation) in operations.iter().enumerate() {
        if operation.asked_us > until_us {
            break;
        }
        if !way.has(number) {
            until_us = until_us.min(operation.answered_us);
            next.push(number);
        }
    }
    next.retain(|number| operations[*number].asked_us <= until_us);
    let is_answered = |number: &usize| operations[*number].answered_us != u64::MAX;
    let is_all = !next.iter().any(is_answered);
    // The last one is tried first.
    next.sort_by_key(|number| std::cmp::Reverse(operations[*number].answered_us));
    (is_all, next)
}

/// The value behind an operation, if it can have been answered as it was.
fn after(kind: Kind, value: u64) -> Option<u64> {
    match kind {
        Kind::Swap { new, old } => old.is_none_or(|old| old == value).then_some(new),
        Kind::Read(read) => (read == value).then_some(value),
    }
}

/// What a register's history says; counts those that nothing was found out about.
pub(super) fn verdict(number: usize, history: &History, open: &mut u64) -> Verdict {
    let is_known = history.check().map_err(|why| format!("register {number}: {why}"))?;
    *open += u64::from(!is_known);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Option<u64> = None;

    /// Operations: when they were asked for, when they were answered, what they did.
    fn check(operations: &[(u64, Option<u64>, Kind)]) -> Result<bool, String> {
        let mut history = History::default();
        for (asked, answered, kind) in operations {
            history.push(*asked, *answered, *kind);
        }
        history.check()
    }

    fn swap(new: u64, old: u64) -> Kind {
        Kind::Swap { new, old: Some(old) }
    }

    const fn lost(new: u64) -> Kind {
        Kind::Swap { new, old: None }
    }

    #[test]
    fn one_after_the_other() {
        let history =
            [(0, Some(1), swap(5, 0)), (2, Some(3), swap(6, 5)), (4, Some(5), Kind::Read(6))];
        assert_eq!(check(&history), Ok(true));
    }

    #[test]
    fn at_once_any_order_will_do() {
        let history =
            [(0, Some(9), swap(5, 6)), (0, Some(9), swap(6, 0)), (10, Some(11), Kind::Read(5))];
        assert_eq!(check(&history), Ok(true));
    }

    #[test]
    fn a_stale_read_is_none() {
        let history =
            [(0, Some(1), swap(5, 0)), (2, Some(3), swap(6, 5)), (4, Some(5), Kind::Read(5))];
        assert!(check(&history).is_err());
    }

    #[test]
    fn a_write_that_is_lost_is_seen_by_the_next() {
        let history = [(0, Some(1), swap(5, 0)), (2, Some(3), swap(6, 0))];
        assert!(check(&history).is_err());
    }

    #[test]
    fn reads_at_once_do_not_go_back() {
        let history =
            [(0, Some(20), swap(5, 0)), (1, Some(3), Kind::Read(5)), (4, Some(6), Kind::Read(0))];
        assert!(check(&history).is_err());
        let swapped =
            [(0, Some(20), swap(5, 0)), (1, Some(3), Kind::Read(0)), (4, Some(6), Kind::Read(5))];
        assert_eq!(check(&swapped), Ok(true));
    }

    #[test]
    fn what_nobody_knows_of_happened_late_or_never() {
        let history = [(0, LOST, lost(5)), (1, Some(2), Kind::Read(0)), (8, Some(9), swap(6, 5))];
        assert_eq!(check(&history), Ok(true));
        let never = [(0, LOST, lost(5)), (1, Some(2), Kind::Read(0)), (8, Some(9), swap(6, 0))];
        assert_eq!(check(&never), Ok(true));
        let early = [(3, LOST, lost(5)), (0, Some(2), Kind::Read(5))];
        assert!(check(&early).is_err(), "before it was asked for");
        let twice = [(0, LOST, lost(5)), (1, Some(2), swap(6, 5)), (3, Some(4), swap(7, 5))];
        assert!(check(&twice).is_err(), "it happens once");
    }

    #[test]
    fn many_that_nobody_knows_of_are_no_reason_to_search_for_ever() {
        let mut history = History::default();
        for n in 1..400 {
            history.push(n, LOST, lost(1000 + n));
            history.push(n, Some(n + 5), swap(n, n - 1));
        }
        assert_eq!(history.check(), Ok(true));
    }
}
