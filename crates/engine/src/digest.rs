//! Order-free hashes over a database's state, and hashes of column values.

use std::hash::Hasher;

use foldhash::fast::FixedState;
use weir_data::DatumRef;

/// A sum of hashes: equal for equal multisets, in whatever order they were visited.
#[derive(Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds one element, hashed by what `feed` writes.
    pub(crate) fn add(&mut self, feed: impl FnOnce(&mut foldhash::fast::FoldHasher<'_>)) {
        let state = FixedState::with_seed(0);
        let mut hasher = std::hash::BuildHasher::build_hasher(&state);
        feed(&mut hasher);
        self.0 = self.0.wrapping_add(hasher.finish());
    }

    /// The sum so far.
    pub(crate) const fn value(&self) -> u64 {
        self.0
    }
}

/// Feeds a column's value to a hasher; equal values feed equal bytes.
pub(crate) fn datum(datum: DatumRef<'_>, hasher: &mut impl Hasher) {
    hasher.write_usize(datum.len());
    for (key, value) in datum.entries() {
        key.hash_into(hasher);
        if let Some(value) = value {
            value.hash_into(hasher);
        }
    }
}
