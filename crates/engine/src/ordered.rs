//! A small hash map that iterates in the order of insertion.
//!
//! Transactions keep their rows and counts in these: what comes of an iteration can reach an error
//! text or the log, so it must not depend on a hash. Most transactions touch a few rows, so below
//! [`SCAN_MAX`] entries there is no table at all.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Most entries that are found by looking at each.
const SCAN_MAX: usize = 8;

/// The map. Entries are never removed, only overwritten.
#[derive(Debug)]
pub(crate) struct Ordered<K, V> {
    entries: Vec<(K, V)>,
    places: HashTable<usize>,
    hasher: FixedState,
}

impl<K: Copy + Eq + Hash, V> Ordered<K, V> {
    /// An empty map; `seed` keeps clients who choose keys from choosing collisions.
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self { entries: Vec::new(), places: HashTable::new(), hasher }
    }

    /// Entries in the order of their first insertion.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, (K, V)> {
        self.entries.iter()
    }

    /// Entries in the order of their first insertion, to change the values.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (*key, value))
    }

    /// The entries themselves, in the order of their first insertion.
    pub(crate) fn into_entries(self) -> Vec<(K, V)> {
        self.entries
    }

    /// The value for `key`.
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.place(key).map(|at| &self.entries[at].1)
    }

    /// The value for `key`, made by `make` if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let at = self.place(key).unwrap_or_else(|| {
            self.entries.push((key, make()));
            self.index_last();
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    fn place(&self, key: K) -> Option<usize> {
        if self.entries.len() <= SCAN_MAX {
            return self.entries.iter().position(|entry| entry.0 == key);
        }
        let hash = self.hasher.hash_one(key);
        self.places.find(hash, |&at| self.entries[at].0 == key).copied()
    }

    /// Enters the last entry, and all before it when the map has just outgrown scanning.
    fn index_last(&mut self) {
        let len = self.entries.len();
        if len <= SCAN_MAX {
            return;
        }
        let first = if len == SCAN_MAX + 1 { 0 } else { len - 1 };
        let Self { entries, places, hasher } = self;
        let hash = |at: usize| hasher.hash_one(entries[at].0);
        for at in first..len {
            places.insert_unique(hash(at), at, |&at| hash(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_in_the_order_of_first_insertion_at_every_size() {
        for size in [0, 1, SCAN_MAX, SCAN_MAX + 1, 1000] {
            let mut map = Ordered::new(7);
            let keys: Vec<u64> = (0..size as u64).map(|i| i * 0x9e37 % 65_537).collect();
            for round in 0..2 {
                for &key in &keys {
                    *map.get_or_insert_with(key, || 0) += round + 1;
                }
            }
            assert!(map.iter().map(|entry| entry.0).eq(keys.iter().copied()));
            assert!(keys.iter().all(|&key| map.get(key) == Some(&3)));
            assert_eq!(map.get(70_000), None);
        }
    }
}
