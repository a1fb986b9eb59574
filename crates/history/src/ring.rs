//! Entries in chunks of bytes that readers share, within a budget.
//!
//! A chunk is full at [`CHUNK_BYTES`]; a reader shares it, and copies the one that is not full yet.
//! No entry is in two chunks; what is longer is a chunk of its own. When the entries cost more than
//! the budget, the oldest go, and the low-water mark moves behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_data::Uuid;

use crate::age::Age;
use crate::encode::TooLong;
use crate::entry::{COST_OF_ENTRY, HEADER_LEN, Header};
use crate::history::BUDGET_BYTES_MAX;
use crate::ids::Place;
use crate::pinned::{PINNED_BYTES_MAX, Pinned};
use crate::renumbering::{Renumbering, renumber};
use crate::states::States;

/// Length at which a chunk is full: what a reader copies at most.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// States before the low-water mark of which the ids are kept, the last ones.
const PAST_MAX: usize = 1024;

/// Room behind a chunk for the entry that makes it full, so that few of them grow it.
const SPARE_BYTES: usize = 4 << 10;

/// A state: its place, and the id that it has for readers of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) place: Place,
    pub(crate) id: Uuid,
}

/// The log of one kind of changes.
#[derive(Debug)]
pub(crate) struct Ring {
    budget: u64,
    /// Full chunks, oldest first; the first one may begin with entries that are gone.
    chunks: VecDeque<Chunk>,
    /// The chunk that is not full yet, and how many bytes have been before it.
    open: Vec<u8>,
    open_start: u64,
    /// The entries, and, apart from them, their ids.
    slots: VecDeque<Slot>,
    states: States,
    /// Sums over the entries.
    cost: u64,
    atoms: u64,
    /// The oldest state from which all changes are here.
    low_water: Mark,
    /// All states that came right before that one.
    past: VecDeque<Mark>,
    age: Age,
    pinned: Pinned,
}

#[derive(Debug)]
struct Chunk {
    /// How many bytes have been before this chunk.
    start: u64,
    bytes: Arc<Vec<u8>>,
    renumbering: Option<Arc<Renumbering>>,
}

impl Chunk {
    /// The bytes of a chunk from there on.
    fn part(&self, from: usize) -> Part {
        Part { bytes: Arc::clone(&self.bytes), from, renumbering: self.renumbering.clone() }
    }
}

#[derive(Debug)]
struct Slot {
    place: Place,
    /// How many bytes have been before this entry.
    at: u64,
    cost: u32,
    atoms: u32,
}

/// Entries from one on to the end of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    bytes: Arc<Vec<u8>>,
    from: usize,
    pub(crate) renumbering: Option<Arc<Renumbering>>,
}

impl Ring {
    /// A ring that begins here.
    pub(crate) fn new(budget: usize, here: Mark, seed: u64) -> Self {
        Self {
            budget: budget as u64,
            chunks: VecDeque::new(),
            open: Vec::new(),
            open_start: 0,
            slots: VecDeque::new(),
            states: States::new(seed),
            cost: 0,
            atoms: 0,
            low_water: here,
            past: VecDeque::new(),
            age: Age::new(here.place),
            pinned: Pinned::new(here.place),
        }
    }

    /// Forgets all entries: the ring begins here.
    pub(crate) fn begin(&mut self, here: Mark) {
        self.past.clear();
        self.drop_all(here);
    }

    /// Drops all entries up to this state.
    fn drop_all(&mut self, here: Mark) {
        self.low_water = here;
        self.age.begin(here.place);
        self.pinned.begin(here.place);
        if self.slots.is_empty() {
            return;
        }
        self.slots.clear();
        self.states.clear();
        (self.cost, self.atoms) = (0, 0);
        self.chunks.clear();
        self.open_start += self.open.len() as u64;
        self.open.clear();
    }

    /// Appends an entry, whose items `write` appends and counts the atoms of. Without a record, an
    /// entry without items is left out. What costs more than the budget is gone at once, and all
    /// before it with it, but for readers that have pinned what is before.
    pub(crate) fn push(
        &mut self,
        mark: Mark,
        body_len: Option<u64>,
        write: impl FnOnce(&mut Vec<u8>, usize) -> Result<usize, TooLong>,
    ) {
        let start = self.open.len();
        let Some((len, atoms)) = self.write(body_len, write) else {
            self.open.truncate(start);
            self.open.shrink_to(CHUNK_BYTES + SPARE_BYTES);
            self.age.note(mark.place, mark.place);
            self.remember(self.low_water);
            let mut states = std::mem::take(&mut self.past);
            let marks = self.slots.iter().zip(self.states.iter());
            let marks = marks.skip(self.slots.len().saturating_sub(PAST_MAX));
            states.extend(marks.map(|(slot, id)| Mark { place: slot.place, id }));
            states.drain(..states.len().saturating_sub(PAST_MAX));
            self.past = states;
            return self.drop_all(mark);
        };
        if len == 0 && body_len.is_none() {
            return self.open.truncate(start);
        }
        // Within the budget, or what is pinned: both have 32 bits.
        let cost = (len.max(body_len.unwrap_or(0)) + COST_OF_ENTRY) as u32;
        let (place, id) = (mark.place.0, mark.id.to_u128());
        let header = Header { len: len as u32, cost, place, id };
        self.open[start..start + HEADER_LEN].copy_from_slice(&header.to_bytes());
        let at = self.open_start + start as u64;
        self.note(Slot { place: mark.place, at, cost, atoms: atoms as u32 }, mark.id);
        if self.open.len() > CHUNK_BYTES {
            self.close(start);
        }
        self.trim();
    }

    /// Room for a header, and the items; answers their length and atoms, unless they or the record
    /// cost more than the budget, and than what is kept for readers that are behind, if there are any.
    #[inline]
    fn write(
        &mut self,
        body_len: Option<u64>,
        write: impl FnOnce(&mut Vec<u8>, usize) -> Result<usize, TooLong>,
    ) -> Option<(u64, usize)> {
        let cost_max =
            self.budget.max(if self.pinned.has_readers() { PINNED_BYTES_MAX as u64 } else { 0 });
        let len_max = cost_max.checked_sub(COST_OF_ENTRY)?;
        if body_len.is_some_and(|len| len > len_max) {
            return None;
        }
        if self.open.capacity() < CHUNK_BYTES {
            self.open.reserve_exact(CHUNK_BYTES + SPARE_BYTES - self.open.len());
        }
        self.open.extend_from_slice(&[0; HEADER_LEN]);
        let start = self.open.len();
        let atoms = write(&mut self.open, usize::try_from(len_max).unwrap_or(usize::MAX)).ok()?;
        let len = (self.open.len() - start) as u64;
        (len <= len_max).then_some((len, atoms))
    }

    fn note(&mut self, slot: Slot, id: Uuid) {
        self.cost += u64::from(slot.cost);
        self.age.spend(slot.cost);
        self.atoms += u64::from(slot.atoms);
        self.slots.push_back(slot);
        self.states.push(id);
    }

    /// The open chunk is full: its last entry begins the next one.
    fn close(&mut self, last: usize) {
        let next = self.open.split_off(last);
        self.seal();
        self.open = next;
        if self.open.len() > CHUNK_BYTES {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.open);
        bytes.shrink_to_fit();
        let start = self.open_start;
        self.open_start += bytes.len() as u64;
        self.chunks.push_back(Chunk { start, bytes: Arc::new(bytes), renumbering: None });
    }

    fn trim(&mut self) {
        if self.cost > self.budget {
            self.drop_oldest();
        }
        let here = self.slots.back().map_or(self.low_water.place, |slot| slot.place);
        self.age.note(self.low_water.place, here);
    }

    /// A state comes before the low-water mark.
    fn remember(&mut self, mark: Mark) {
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(mark);
    }

    fn drop_oldest(&mut self) {
        while self.cost > self.budget {
            self.remember(self.low_water);
            let (slot, id) =
                self.slots.pop_front().zip(self.states.pop_front()).expect("they cost");
            self.cost -= u64::from(slot.cost);
            self.atoms -= u64::from(slot.atoms);
            self.low_water = Mark { place: slot.place, id };
        }
        self.drop_chunks();
    }

    /// Drops the chunks of which no entry is left.
    fn drop_chunks(&mut self) {
        if self.slots.is_empty() {
            self.seal();
        }
        let first = self.slots.front().map_or(self.open_start, |slot| slot.at);
        let is_gone = |chunk: &Chunk| chunk.start + chunk.bytes.len() as u64 <= first;
        while self.chunks.front().is_some_and(is_gone) {
            let chunk = self.chunks.pop_front().expect("it is there");
            self.pinned.take(chunk.part(0));
        }
    }

    pub(crate) fn set_budget(&mut self, budget: usize) {
        self.budget = budget as u64;
        self.age.set_budget(self.budget);
        self.trim();
    }

    /// Until its budget is set again, nothing goes that might be kept by any.
    pub(crate) fn suspend_budget(&mut self) {
        self.budget = BUDGET_BYTES_MAX as u64;
    }

    /// How often what clients were told has grown older ([`Age`]).
    pub(crate) fn age(&self) -> u64 {
        self.age.count()
    }

    pub(crate) fn low_water(&self) -> Mark {
        self.low_water
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn atoms(&self) -> u64 {
        self.atoms
    }

    /// Bytes that the chunks have, with what is kept for readers that are behind.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>();
        chunks + self.open.len() + self.pinned.bytes()
    }

    /// Keeps what is behind this place for who reads it, however far the low-water mark moves on.
    pub(crate) fn pin(&mut self, place: Option<Place>) {
        self.pinned.pin(place);
    }

    /// Whether all entries behind a place are here, perhaps only for who has pinned them.
    pub(crate) fn reaches(&self, place: Place) -> bool {
        place >= self.low_water.place || place >= self.pinned.from()
    }

    /// Entries behind a place that the ring reaches back to.
    pub(crate) fn since_pinned(&self, place: Place) -> Vec<Part> {
        if place >= self.low_water.place {
            return self.since(place);
        }
        let open = Part::whole(self.open.clone(), None);
        let chunks = self.chunks.iter().map(|chunk| chunk.part(0)).chain([open]);
        let all = self.pinned.since(place).cloned().chain(chunks);
        let mut has_begun = false;
        let behind = |mut part: Part| {
            if !has_begun {
                part.skip_to(place);
                has_begun = !part.bytes().is_empty();
            }
            Some(part).filter(|part| !part.bytes().is_empty())
        };
        all.filter_map(behind).collect()
    }

    /// The ids of all states that are found.
    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.states.iter().chain([self.low_water.id]).collect()
    }

    /// The place of the newest state with this id.
    pub(crate) fn find(&self, id: Uuid) -> Option<Place> {
        if let Some(at) = self.states.find(id) {
            return self.slots.get(at).map(|slot| slot.place);
        }
        (self.low_water.id == id).then_some(self.low_water.place)
    }

    /// The place of a state whose changes are here no more, but the ids of all states since are.
    pub(crate) fn find_past(&self, id: Uuid) -> Option<Place> {
        self.past.iter().rev().find(|mark| mark.id == id).map(|mark| mark.place)
    }

    /// Entries behind a place.
    pub(crate) fn since(&self, place: Place) -> Vec<Part> {
        let first = self.slots.partition_point(|slot| slot.place <= place);
        let Some(at) = self.slots.get(first).map(|slot| slot.at) else { return Vec::new() };
        let offset = |start: u64| usize::try_from(at.saturating_sub(start)).expect("in memory");
        let chunk = self.chunks.partition_point(|chunk| chunk.start <= at).saturating_sub(1);
        let mut parts: Vec<Part> = self
            .chunks
            .range(chunk..)
            .filter(|chunk| offset(chunk.start) < chunk.bytes.len())
            .map(|chunk| chunk.part(offset(chunk.start)))
            .collect();
        let open = self.open.get(offset(self.open_start)..).unwrap_or_default();
        if !open.is_empty() {
            parts.push(Part::whole(open.to_vec(), None));
        }
        parts
    }

    /// From here on the tables of all entries so far have other numbers.
    pub(crate) fn renumber(&mut self, conversion: &Arc<Renumbering>) {
        self.seal();
        // Who has not been told up to a conversion what is gone from the ring comes back.
        self.pinned.begin(self.low_water.place);
        let mut last = None;
        for chunk in &mut self.chunks {
            chunk.renumbering = Some(renumber(&chunk.renumbering, conversion, &mut last));
        }
    }

    /// Appends a chunk whose entries are good and have these numbers of atoms.
    pub(crate) fn restore(&mut self, part: &Part, atoms: &[u32]) {
        self.seal();
        let mut at = self.open_start;
        for (entry, atoms) in part.entries().zip(atoms) {
            let Header { len, cost, place, id } = entry.header;
            let slot = Slot { place: Place(place), at, cost, atoms: *atoms };
            self.note(slot, Uuid::from_u128(id));
            at += HEADER_LEN as u64 + u64::from(len);
        }
        let (start, bytes) = (self.open_start, Arc::clone(&part.bytes));
        self.open_start = at;
        self.chunks.push_back(Chunk { start, bytes, renumbering: part.renumbering.clone() });
        self.trim();
    }
}

impl Part {
    /// All of these bytes.
    pub(crate) fn whole(bytes: Vec<u8>, renumbering: Option<Arc<Renumbering>>) -> Self {
        Self { bytes: Arc::new(bytes), from: 0, renumbering }
    }

    /// Leaves out the entries up to a place.
    fn skip_to(&mut self, place: Place) {
        let before = self.entries().take_while(|entry| entry.header.place <= place.0);
        let bytes: usize = before.map(|entry| HEADER_LEN + entry.items.len()).sum();
        self.from += bytes;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    pub(crate) fn entries(&self) -> Entries<'_> {
        Entries { bytes: self.bytes(), renumbering: self.renumbering.as_deref() }
    }
}

/// An entry of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) header: Header,
    pub(crate) items: &'a [u8],
    pub(crate) renumbering: Option<&'a Renumbering>,
}

/// The entries of a chunk; ends at bytes that are none.
#[derive(Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    renumbering: Option<&'a Renumbering>,
}

impl Entries<'_> {
    /// Whether all bytes have been understood.
    pub(crate) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Stored<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = Header::split(self.bytes)?;
        let (items, rest) = rest.split_at_checked(header.len as usize)?;
        self.bytes = rest;
        Some(Stored { header, items, renumbering: self.renumbering })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(place: u64) -> Mark {
        Mark { place: Place(place), id: Uuid::from_u128(u128::from(place)) }
    }

    /// Pushes an entry with so many bytes of items.
    fn push(ring: &mut Ring, place: u64, len: usize) {
        ring.push(mark(place), Some(0), |out, len_max| {
            if len > len_max {
                return Err(TooLong);
            }
            out.resize(out.len() + len, 7);
            Ok(1)
        });
    }

    fn places(ring: &Ring, place: u64) -> Vec<u64> {
        let parts = ring.since_pinned(Place(place));
        parts.iter().flat_map(Part::entries).map(|entry| entry.header.place).collect()
    }

    /// Pushes entries with items of these lengths, which cost what they cost.
    fn ring(lens: impl IntoIterator<Item = usize>) -> Ring {
        let mut ring = Ring::new(16 << 20, mark(0), 0);
        for (place, len) in (1..).zip(lens) {
            push(&mut ring, place, len);
        }
        ring
    }

    /// Which of so many states are found, and which only by their ids.
    fn found(ring: &Ring, states: u64) -> [Vec<u64>; 2] {
        let places = |find: &dyn Fn(Uuid) -> Option<Place>| {
            let is_found = |place: &u64| find(mark(*place).id) == Some(Place(*place));
            (0..=states).filter(is_found).collect()
        };
        [places(&|id| ring.find(id)), places(&|id| ring.find_past(id))]
    }

    #[test]
    fn ids_of_states_are_known_for_longer_than_their_changes() {
        let mut ring = ring([4 << 20, 5 << 20, 5 << 20, 5 << 20]);
        assert_eq!(found(&ring, 4), [vec![1, 2, 3, 4], vec![0]]);
        push(&mut ring, 5, 17 << 20);
        assert_eq!(found(&ring, 5), [vec![5], vec![0, 1, 2, 3, 4]]);
        let many = 6 + PAST_MAX as u64;
        (6..=many).for_each(|place| push(&mut ring, place, 17 << 20));
        assert_eq!(found(&ring, many), [vec![many], (many - PAST_MAX as u64..many).collect()]);
        push(&mut ring, many + 1, 0);
        push(&mut ring, many + 2, 17 << 20);
        let first = many + 2 - PAST_MAX as u64;
        assert_eq!(found(&ring, many + 2), [vec![many + 2], (first..many + 2).collect()]);
        // What comes behind a gap is not behind those.
        ring.begin(mark(many + 9));
        assert_eq!(found(&ring, many + 9), [vec![many + 9], vec![]]);
    }

    #[test]
    fn no_entry_is_in_two_chunks_and_only_one_that_is_longer_makes_a_chunk_long() {
        let lens = (0..400).map(|i| if i % 50 == 7 { 3 * CHUNK_BYTES } else { 40 * i });
        let ring = ring(lens.clone());
        assert!(ring.open.len() <= CHUNK_BYTES);
        let mut found = Vec::new();
        for chunk in &ring.chunks {
            let part = Part { bytes: Arc::clone(&chunk.bytes), from: 0, renumbering: None };
            let mut entries = part.entries();
            let start = found.len();
            found.extend(entries.by_ref().map(|entry| entry.items.len()));
            assert!(entries.is_at_end());
            assert!(chunk.bytes.len() <= CHUNK_BYTES || found.len() == start + 1);
        }
        assert!(ring.chunks.len() > 30, "{}", ring.chunks.len());
        assert_eq!(found[..], lens.take(found.len()).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn a_reader_begins_at_the_entry_behind_its_place() {
        let ring = ring((0..400).map(|i| i % 7 * 100));
        for place in 0..=400 {
            let parts = ring.since(Place(place));
            let places: Vec<u64> =
                parts.iter().flat_map(Part::entries).map(|entry| entry.header.place).collect();
            assert_eq!(places, (place + 1..=400).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_pinned_is_read_though_the_low_water_mark_is_behind_it() {
        let mut ring = ring((0..400).map(|_| 1000));
        ring.pin(Some(Place(150)));
        ring.set_budget(100 << 10);
        assert!(ring.low_water().place > Place(250) && ring.find(Uuid::from_u128(200)).is_none());
        for place in [150, 151, 200, 299, 399, 400] {
            assert!(ring.reaches(Place(place)));
            assert_eq!(places(&ring, place), (place + 1..=400).collect::<Vec<_>>());
        }
        let before = ring.bytes();
        ring.pin(Some(Place(250)));
        assert!(ring.reaches(Place(250)) && ring.bytes() < before);
        assert_eq!(places(&ring, 250), (251..=400).collect::<Vec<_>>());
        ring.pin(None);
        assert!(!ring.reaches(Place(200)) && ring.bytes() < (100 << 10) + CHUNK_BYTES);
        assert_eq!(places(&ring, 390), (391..=400).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_is_pinned_than_there_is_room_for() {
        let mut ring = ring((0..10).map(|_| 1000));
        ring.pin(Some(Place(3)));
        for place in 11..200 {
            push(&mut ring, place, 1 << 20);
        }
        assert!(ring.bytes() < PINNED_BYTES_MAX + (18 << 20), "{}", ring.bytes());
        assert!(!ring.reaches(Place(3)) && ring.reaches(Place(100)));
    }

    #[test]
    fn an_entry_longer_than_the_budget_is_there_for_those_who_have_pinned_what_is_before() {
        let mut ring = ring((0..10).map(|_| 1000));
        ring.pin(Some(Place(7)));
        push(&mut ring, 11, 20 << 20);
        assert_eq!((ring.len(), ring.low_water().place), (0, Place(11)));
        assert_eq!((places(&ring, 7), places(&ring, 10)), (vec![8, 9, 10, 11], vec![11]));
        push(&mut ring, 12, 1000);
        assert_eq!((places(&ring, 9), places(&ring, 11)), (vec![10, 11, 12], vec![12]));
        ring.pin(Some(Place(12)));
        assert!(
            ring.bytes() < 2 * CHUNK_BYTES && ring.reaches(Place(11)) && !ring.reaches(Place(10))
        );
        // Nor is one that is longer than all that is pinned.
        push(&mut ring, 13, PINNED_BYTES_MAX);
        assert!(
            !ring.reaches(Place(12)) && ring.reaches(Place(13)) && ring.bytes() < 2 * CHUNK_BYTES
        );
        // Nobody is behind.
        ring.pin(None);
        push(&mut ring, 14, 20 << 20);
        assert!(!ring.reaches(Place(13)) && ring.bytes() < 2 * CHUNK_BYTES, "{}", ring.bytes());
    }

    #[test]
    fn chunks_go_with_their_last_entry() {
        let mut ring = ring((0..400).map(|_| 1000));
        let before = ring.bytes();
        ring.set_budget(100 << 10);
        assert!(before > 400_000 && ring.bytes() < (100 << 10) + CHUNK_BYTES);
        ring.set_budget(0);
        assert_eq!((ring.bytes(), ring.len(), ring.low_water().place), (0, 0, Place(400)));
    }
}
