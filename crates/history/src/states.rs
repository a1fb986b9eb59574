//! The ids of a ring's entries in their order, and where each stands: found at the same cost however many there are.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use weir_data::Uuid;

/// The ids, oldest first.
#[derive(Debug)]
pub(crate) struct States {
    ids: VecDeque<Uuid>,
    /// How many have gone, and so the number of the first one; counted in 32 bits, and so around.
    gone: u32,
    /// The number of the newest entry of each id.
    numbers: HashTable<u32>,
    hasher: FixedState,
}

impl States {
    /// None; the seed keeps who chooses ids from making them collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            ids: VecDeque::new(),
            gone: 0,
            numbers: HashTable::new(),
            hasher: FixedState::with_seed(seed),
        }
    }

    pub(crate) fn push(&mut self, id: Uuid) {
        let Self { ids, gone, numbers, hasher } = self;
        // An entry costs more than a byte of a budget that has 32 bits.
        let number = gone.wrapping_add(u32::try_from(ids.len()).expect("the budget is less"));
        ids.push_back(id);
        let of = |number: &u32| ids[number.wrapping_sub(*gone) as usize];
        let hash = |id: Uuid| hasher.hash_one(id.to_u128());
        match numbers.entry(hash(id), |other| of(other) == id, |other| hash(of(other))) {
            Entry::Occupied(mut older) => *older.get_mut() = number,
            Entry::Vacant(place) => drop(place.insert(number)),
        }
    }

    /// Takes the oldest one away.
    pub(crate) fn pop_front(&mut self) -> Option<Uuid> {
        let id = self.ids.pop_front()?;
        let hash = self.hasher.hash_one(id.to_u128());
        // Where the id is there once more, the number is that of the newer one.
        if let Ok(number) = self.numbers.find_entry(hash, |number| *number == self.gone) {
            number.remove();
        }
        self.gone = self.gone.wrapping_add(1);
        Some(id)
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.numbers.clear();
        self.gone = 0;
    }

    /// At which of the entries that are here an id stands: the newest one.
    pub(crate) fn find(&self, id: Uuid) -> Option<usize> {
        let at = |number: u32| number.wrapping_sub(self.gone) as usize;
        let is_it = |number: &u32| self.ids[at(*number)] == id;
        self.numbers.find(self.hasher.hash_one(id.to_u128()), is_it).map(|number| at(*number))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Uuid> {
        self.ids.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a list that is searched from its end does it.
    #[test]
    fn each_id_is_found_where_it_stands_last() {
        let mut states = States::new(7);
        states.gone = u32::MAX - 20;
        let mut list: VecDeque<Uuid> = VecDeque::new();
        for step in 0..3000_u32 {
            let id = Uuid::from_u128(u128::from(step * step % 97));
            states.push(id);
            list.push_back(id);
            while list.len() > 40 || step % 500 == 499 && !list.is_empty() {
                assert_eq!(states.pop_front(), list.pop_front());
            }
            for id in (0..98).map(Uuid::from_u128) {
                assert_eq!(states.find(id), list.iter().rposition(|other| *other == id));
            }
            assert!(states.iter().eq(list.iter().copied()));
            if step % 701 == 700 {
                states.clear();
                list.clear();
            }
        }
        assert_eq!(states.pop_front().is_some(), !list.is_empty());
    }
}
