//! How old the states are that clients have been told: a client whose tables never change is told
//! the id of a newer state before the log has gone past the one that it knows.

use crate::history::BUDGET_BYTES_MIN;
use crate::ids::Place;

/// So many times within its budget a log grows older.
const AGES_PER_BUDGET: u64 = 4;

/// Counts how often a log has taken on a quarter of its budget.
///
/// **Invariant:** what was told at this count is at `last` or later, what was told at the one before
/// at `before` or later. So what is two behind lies behind at least a quarter of the budget, and, as
/// a rule, at most half of it.
#[derive(Debug)]
pub(crate) struct Age {
    count: u64,
    last: Place,
    before: Place,
    /// What has been spent since `last`.
    cost: u64,
    /// The log's budget, or, as long as nobody can know that, the smallest that the next process may
    /// find.
    budget: u64,
}

impl Age {
    pub(crate) fn new(here: Place) -> Self {
        Self { count: 0, last: here, before: here, cost: 0, budget: BUDGET_BYTES_MIN as u64 }
    }

    pub(crate) fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn spend(&mut self, cost: u32) {
        self.cost += u64::from(cost);
    }

    /// The log begins here, and nobody is to be told that.
    pub(crate) fn begin(&mut self, here: Place) {
        *self = Self { count: self.count, budget: self.budget, ..Self::new(here) };
    }

    /// The log reaches from `low_water` up to `here`.
    #[inline]
    pub(crate) fn note(&mut self, low_water: Place, here: Place) {
        if self.cost > self.budget / AGES_PER_BUDGET || low_water > self.before {
            self.grow(low_water, here);
        }
    }

    fn grow(&mut self, low_water: Place, here: Place) {
        let is_late = low_water > self.before || self.cost > 2 * (self.budget / AGES_PER_BUDGET);
        self.count += if is_late { 2 } else { 1 };
        self.before = if is_late { here } else { self.last };
        (self.last, self.cost) = (here, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of changes that cost at most `most`; answers with what stood behind the state that was
    /// told last whenever a newer one was due, and whether that state was still in the log.
    fn renewals(budget: u64, most: u32) -> Vec<(u64, bool)> {
        let mut age = Age::new(Place(0));
        age.set_budget(budget);
        let (mut costs, mut low_water, mut random) = (Vec::new(), 0, 7_u32);
        let (mut told, mut told_at, mut seen) = (0, 0, Vec::new());
        for place in 1..=3000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            costs.push(1 + (random >> 8) % most);
            age.spend(costs[place - 1]);
            let behind = |at: usize| costs[at..].iter().map(|cost| u64::from(*cost)).sum::<u64>();
            while behind(low_water) > budget {
                low_water += 1;
            }
            age.note(Place(low_water as u64), Place(place as u64));
            if age.count() >= told_at + 2 {
                seen.push((behind(told), told >= low_water));
                (told, told_at) = (place, age.count());
            }
        }
        seen
    }

    #[test]
    fn what_was_told_is_renewed_while_it_is_known() {
        let budget = 10_000;
        for most in [1, 10, 500, 2500] {
            let seen = renewals(budget, most);
            let half = budget / 2 + 2 * u64::from(most);
            assert!(seen.len() as u64 + 1 >= u64::from(most) * 3000 / 2 / half, "{most}: {seen:?}");
            for (behind, is_known) in seen {
                assert!(is_known && behind > budget / 4 && behind <= half, "{most}: {behind}");
            }
        }
    }

    #[test]
    fn what_was_told_is_renewed_at_once_if_it_is_lost() {
        let seen = renewals(10_000, 9000);
        assert!(
            seen.iter().any(|(_, is_known)| !is_known),
            "changes are nearly as much as is kept"
        );
        assert!(seen.iter().all(|(behind, _)| *behind <= 20_000), "{seen:?}");
    }
}
