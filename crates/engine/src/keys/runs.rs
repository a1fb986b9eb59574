//! A sorted set in runs: what a tree of the standard library is, at two thirds of its memory.
//!
//! Entries of a key are small and many. In a tree of nodes of eleven, room and pointers cost as
//! much as the entries; in runs of some hundred they cost a third, most of it room for more.

use std::collections::{BTreeMap, btree_map};
use std::slice;

/// Most entries of a run; a full one is cut in two.
const RUN_MAX: usize = 256;
/// A run with fewer entries joins a neighbour if both fit into half a run.
const RUN_MIN: usize = RUN_MAX / 8;
/// Runs grow by room for so many entries: those that were cut in two are half empty, all at a time if
/// all grow alike.
const ROOM_STEP: usize = RUN_MAX / 8;
/// A full run is cut where the new entry goes if that is so near its end: then entries ascend, but
/// for those of one value, whose rows have numbers in no order.
const NEAR_END: usize = RUN_MAX / 16;

/// The set.
///
/// **Invariants:** a run's entries ascend; they are not below the run's key, and below the next
/// run's. The first run has the default as its key, which is the least entry.
#[derive(Debug)]
pub(crate) struct Runs<E> {
    runs: BTreeMap<E, Vec<E>>,
    len: usize,
}

/// Entries of a range, ascending.
#[derive(Debug)]
pub(crate) struct Range<'a, E> {
    run: slice::Iter<'a, E>,
    runs: btree_map::Range<'a, E, Vec<E>>,
    last: E,
}

impl<E: Ord + Copy + Default> Runs<E> {
    pub(crate) fn new() -> Self {
        Self { runs: BTreeMap::from([(E::default(), Vec::new())]), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry; false if it was there.
    pub(crate) fn insert(&mut self, entry: E) -> bool {
        let run = self.run_mut(entry).1;
        let Err(at) = run.binary_search(&entry) else { return false };
        if run.len() < RUN_MAX {
            make_room(run, 1);
            run.insert(at, entry);
            self.len += 1;
            return true;
        }
        // Entries that come in ascending order fill their runs.
        let is_ascending = at >= RUN_MAX - NEAR_END;
        let cut = if is_ascending { at } else { RUN_MAX / 2 };
        let mut upper = Vec::with_capacity(RUN_MAX - cut + ROOM_STEP);
        upper.extend(run.drain(cut..));
        match at.checked_sub(cut) {
            Some(at) => upper.insert(at, entry),
            None => run.insert(at, entry),
        }
        if is_ascending {
            self.join_behind(entry, &mut upper);
        } else {
            // Not in place: what is left over would be of no size that other runs take.
            let mut lower = Vec::with_capacity(run.len() + ROOM_STEP);
            lower.extend_from_slice(run);
            *run = lower;
        }
        self.runs.insert(upper[0], upper);
        self.len += 1;
        true
    }

    /// Removes an entry; false if it was not there.
    pub(crate) fn remove(&mut self, entry: E) -> bool {
        let (key, run) = self.run_mut(entry);
        let Ok(at) = run.binary_search(&entry) else { return false };
        run.remove(at);
        let len = run.len();
        if run.capacity() > len + 3 * ROOM_STEP {
            run.shrink_to(len + ROOM_STEP);
        }
        self.len -= 1;
        if len < RUN_MIN {
            self.join(key, len);
        }
        true
    }

    /// Entries from `first` to `last`.
    pub(crate) fn range(&self, first: E, last: E) -> Range<'_, E> {
        let begin = self.runs.range(..=first).next_back().map_or_else(E::default, |run| *run.0);
        let mut runs = self.runs.range(begin..);
        let run = runs
            .next()
            .map_or(&[][..], |(_, run)| &run[run.partition_point(|entry| *entry < first)..]);
        Range { run: run.iter(), runs, last }
    }

    /// The greatest entry that is not above `last`.
    pub(crate) fn last_to(&self, last: E) -> Option<E> {
        // Only the first run can be empty, or begin above what it is asked for.
        let mut runs = self.runs.range(..=last).rev();
        runs.find_map(|(_, run)| run[..run.partition_point(|entry| *entry <= last)].last().copied())
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.runs.values().flatten()
    }

    fn run_mut(&mut self, entry: E) -> (E, &mut Vec<E>) {
        let run = self.runs.range_mut(..=entry).next_back();
        let (key, run) = run.expect("the first run begins with the least entry");
        (*key, run)
    }

    /// Joins the run behind an entry to a new one before it, if they fit into half a run.
    fn join_behind(&mut self, entry: E, new: &mut Vec<E>) {
        let behind = self.runs.range(entry..).next();
        let fits = behind.filter(|(_, run)| run.len() + new.len() <= RUN_MAX / 2);
        if let Some(key) = fits.map(|(key, _)| *key) {
            let behind = self.runs.remove(&key).unwrap_or_default();
            make_room(new, behind.len());
            new.extend(behind);
        }
    }

    /// Joins a run that has become short with the one before it or behind it, if they fit.
    fn join(&mut self, key: E, len: usize) {
        let fits = |(other, run): (&E, &Vec<E>)| (run.len() + len <= RUN_MAX / 2).then_some(*other);
        let before = self.runs.range(..key).next_back().and_then(fits);
        let behind = || self.runs.range(key..).nth(1).and_then(fits);
        let (lower, upper) = match before {
            Some(before) => (before, key),
            None => match behind() {
                Some(behind) => (key, behind),
                None => return,
            },
        };
        let upper = self.runs.remove(&upper).unwrap_or_default();
        if let Some(lower) = self.runs.get_mut(&lower) {
            make_room(lower, upper.len());
            lower.extend(upper);
        }
    }
}

/// Makes room for so many more entries of a run, and a little besides.
fn make_room<E>(run: &mut Vec<E>, more: usize) {
    if run.capacity() < run.len() + more {
        run.reserve_exact(more.max(ROOM_STEP));
    }
}

impl<E: Ord + Copy> Iterator for Range<'_, E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        loop {
            if let Some(entry) = self.run.next() {
                return (*entry <= self.last).then_some(*entry);
            }
            self.run = self.runs.next()?.1.iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weir_data::UuidSource;

    use super::*;

    fn assert_equal(runs: &Runs<u64>, twin: &BTreeSet<u64>, random: &mut UuidSource, domain: u64) {
        assert_eq!(runs.len(), twin.len());
        assert!(runs.iter().eq(twin.iter()));
        for _ in 0..20 {
            let (a, b) = (random.next_u64() % domain, random.next_u64() % domain);
            let (first, last) = (a.min(b), a.max(b));
            assert!(runs.range(first, last).eq(twin.range(first..=last).copied()));
            assert_eq!(runs.last_to(last), twin.range(..=last).next_back().copied());
        }
        for (at, (key, run)) in runs.runs.iter().enumerate() {
            assert!(run.len() <= RUN_MAX && run.is_sorted());
            assert!(run.first().is_none_or(|first| first >= key));
            assert_eq!(at == 0, *key == 0);
        }
    }

    #[test]
    fn runs_are_a_sorted_set() {
        for domain in [100, 5_000, u64::MAX] {
            let mut random = UuidSource::new([domain, 2, 3, 4]);
            let (mut runs, mut twin) = (Runs::new(), BTreeSet::new());
            // It grows, shrinks to nearly nothing, and grows again.
            for phase in 0..4 {
                for step in 0..20_000u64 {
                    let any = random.next_u64() % domain;
                    let near = || twin.range(any..).next().copied().unwrap_or(any);
                    let is_growing = phase % 2 == 0;
                    if (random.next_u64() % 10 < 8) == is_growing {
                        let entry = if domain > 5_000 && step % 3 == 0 { step } else { any };
                        assert_eq!(runs.insert(entry), twin.insert(entry));
                    } else {
                        let entry = near();
                        assert_eq!(runs.remove(entry), twin.remove(&entry));
                    }
                    if step % 1_000 == 0 {
                        assert_equal(&runs, &twin, &mut random, domain);
                    }
                }
            }
            let (entries, rooms) = (runs.len(), runs.runs.len());
            assert!(rooms <= 2 + 8 * entries / RUN_MAX, "{entries} entries in {rooms} runs");
        }
    }

    #[test]
    fn entries_in_ascending_order_fill_their_runs() {
        let mut runs = Runs::new();
        (0..100_000u64).for_each(|entry| assert!(runs.insert(entry)));
        assert_eq!(runs.runs.len(), 100_000usize.div_ceil(RUN_MAX));
    }

    /// How much of the runs' room has entries in it, in percent.
    fn percent_filled(runs: &Runs<u64>) -> usize {
        100 * runs.len() / runs.runs.values().map(Vec::capacity).sum::<usize>()
    }

    #[test]
    fn values_in_ascending_order_fill_their_runs_whatever_the_order_of_their_rows() {
        let mut random = UuidSource::new([1, 2, 3, 4]);
        let (mut ascending, mut any) = (Runs::new(), Runs::new());
        for n in 0..200_000u64 {
            let value = n / 10;
            ascending.insert(value << 32 | random.next_u64() >> 32);
            any.insert(random.next_u64());
        }
        assert!(percent_filled(&ascending) >= 90, "{}", percent_filled(&ascending));
        assert!(percent_filled(&any) >= 85, "{}", percent_filled(&any));
        // All runs grow alike, and have just been cut in two.
        let mut alike = Runs::new();
        for round in 0..9u64 {
            (0..20_000).for_each(|value| _ = alike.insert(value << 32 | round));
        }
        assert!(percent_filled(&alike) >= 80, "{}", percent_filled(&alike));
        // They give room back.
        (0..20_000u64)
            .for_each(|value| (1..9).for_each(|round| _ = alike.remove(value << 32 | round)));
        assert_eq!(alike.len(), 20_000);
        assert!(percent_filled(&alike) >= 25, "{}", percent_filled(&alike));
    }
}
