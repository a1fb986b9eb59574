//! Entries whose texts have left memory: where the file has them, and their ids. There may be
//! millions, so each takes 32 bytes, and no room is left for as many again.

use std::collections::{BTreeMap, VecDeque};

use weir_data::Uuid;

use super::store::{Said, Seen, Slot};
use crate::entry::{Held, Place};

/// Entries of a chunk.
const CHUNK: usize = 1024;

/// Data of an entry.
#[derive(Clone, Copy, Debug)]
struct Away {
    eid: Uuid,
    offset: u64,
    len: u32,
}

/// The file has no text of an entry like this: what it says is among the others.
const NONE: Away = Away { eid: Uuid::ZERO, offset: 0, len: 0 };

/// The oldest entries of the log, without gaps.
#[derive(Debug)]
pub(super) struct Older {
    /// The index of the first one.
    first: u64,
    /// All but the last chunk are full.
    chunks: VecDeque<Vec<Away>>,
    /// How many of the first chunk are gone.
    gone: usize,
    /// Terms, each with its first entry's index; the first entry's term is that of the first.
    terms: VecDeque<(u64, u64)>,
    /// What is not data, or longer than most, by index.
    others: BTreeMap<u64, Slot>,
}

impl Older {
    /// No entries; the first one will have this index.
    pub(super) fn new(first: u64) -> Self {
        let (chunks, terms) = (VecDeque::new(), VecDeque::new());
        Self { first, chunks, gone: 0, terms, others: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        let last = self.chunks.back().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last - self.gone
    }

    /// The last entry's index; the one before the first, if there is none.
    pub(super) fn last(&self) -> u64 {
        self.first + self.len() as u64 - 1
    }

    /// The next entry. Answers with the bytes that it goes on to have in memory.
    pub(super) fn push(&mut self, slot: Slot) -> usize {
        let index = self.last() + 1;
        if self.terms.back().is_none_or(|(_, term)| *term != slot.term) {
            self.terms.push_back((index, slot.term));
        }
        let data = match (&slot.held, slot.place) {
            (Held::InFile { eid }, Some(Place { offset, len })) => {
                let len = u32::try_from(len).ok().filter(|len| *len > 0);
                len.map(|len| Away { eid: *eid, offset, len })
            }
            _ => None,
        };
        let bytes = if data.is_some() { 0 } else { slot.bytes() };
        if data.is_none() {
            self.others.insert(index, slot);
        }
        if self.chunks.back().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push_back(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.back_mut().expect("there is one");
        chunk.push(data.unwrap_or(NONE));
        bytes
    }

    /// The entry of this index.
    pub(super) fn get(&self, index: u64) -> Option<Seen<'_>> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()? + self.gone;
        let away = self.chunks.get(at / CHUNK)?.get(at % CHUNK)?;
        if away.len == 0 {
            return self.others.get(&index).map(Slot::seen);
        }
        let next = self.terms.partition_point(|(first, _)| *first <= index);
        let Away { eid, offset, len } = *away;
        let place = Some(Place { offset, len: len.into() });
        Some(Seen { term: self.terms[next - 1].1, said: Said::InFile(eid), place })
    }

    /// The first entry goes. Answers with the bytes in memory that it had.
    pub(super) fn pop_front(&mut self) -> Option<usize> {
        let chunk = self.chunks.front()?;
        let bytes = self.others.remove(&self.first).map_or(0, |slot| slot.bytes());
        self.gone += 1;
        if self.gone == chunk.len() {
            self.chunks.pop_front();
            self.gone = 0;
        }
        self.first += 1;
        if self.terms.get(1).is_some_and(|(first, _)| *first <= self.first) {
            self.terms.pop_front();
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Content;

    fn in_file(term: u64, number: u64) -> Slot {
        let held = Held::InFile { eid: Uuid::from_u128(number.into()) };
        Slot { term, held, place: Some(Place { offset: number * 10, len: 1 + number % 7 }) }
    }

    fn timer(term: u64) -> Slot {
        Slot { term, held: Held::Here(Content::ElectionTimer(1_000)), place: None }
    }

    /// Entries of all kinds come and go; a list of them all says what there must be.
    #[test]
    fn entries_are_what_was_pushed() {
        let (mut older, mut first) = (Older::new(100), 100);
        let mut all: VecDeque<(u64, Option<Uuid>, Option<Place>)> = VecDeque::new();
        for number in 0..10_000_u64 {
            let term = 1 + number / 700;
            let slot = if number % 11 == 3 { timer(term) } else { in_file(term, number) };
            let seen = slot.seen();
            all.push_back((term, seen.eid(), seen.place));
            let bytes = older.push(slot);
            assert_eq!(bytes > 0, number % 11 == 3);
            // More go than come at times, so that it is empty now and then.
            for _ in 0..(if number % 2_000 > 1_500 { 6 } else { 0 }) {
                let gone = all.pop_front();
                assert_eq!(older.pop_front().is_some(), gone.is_some());
                first += u64::from(gone.is_some());
            }
            assert_eq!(older.len(), all.len());
            assert_eq!(older.last() + 1, first + all.len() as u64);
            if number % 97 == 0 || number % 2_000 > 1_900 {
                for (index, (term, eid, place)) in (first..).zip(&all) {
                    let seen = older.get(index).unwrap();
                    assert_eq!((seen.term, seen.eid(), seen.place), (*term, *eid, *place));
                }
                assert!(older.get(first - 1).is_none() && older.get(older.last() + 1).is_none());
            }
        }
    }

    #[test]
    fn what_is_too_long_for_a_place_of_its_own_is_kept_whole() {
        let mut older = Older::new(1);
        let place = Place { offset: 7, len: 1 << 33 };
        let slot = Slot { place: Some(place), ..in_file(1, 5) };
        assert!(older.push(slot) > 0);
        assert_eq!(older.get(1).unwrap().place, Some(place));
    }
}
