//! The log as the raft library reads it: places from a snapshot on, with what they say.
//!
//! Texts beyond a budget leave memory, oldest first, once they have taken effect and the file has
//! them. If a member lacks such entries, the library is told to wait ([`Store::next_fetch`]) until
//! they have been read back ([`Store::fetched`]).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use raft::prelude::{ConfState, Entry as RaftEntry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use weir_data::Uuid;
use weir_log::clustered::Servers;

use crate::entry::{Content, Entry, Held, Logged, Place, Text};
use crate::ids::Position;

/// What a snapshot has in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The last entry in the snapshot.
    pub last: Position,
    /// The id of the last entry in it that has one.
    pub eid: Uuid,
    /// The servers after that entry.
    pub servers: Arc<Servers>,
    /// The election timer after that entry, in milliseconds.
    pub election_timer: u64,
}

/// The log from its snapshot on.
#[derive(Debug)]
pub(crate) struct Store {
    mark: Mark,
    /// Those who vote according to the snapshot.
    voters: ConfState,
    hard: HardState,
    /// Those who voted when the file was opened.
    first_voters: ConfState,
    /// What follows the snapshot.
    entries: VecDeque<Slot>,
    /// What entries say that the library has and this log has not got yet.
    incoming: BTreeMap<Position, Content>,
    /// Bytes that entries hold in memory.
    bytes: usize,
    /// Up to this one no entry has a text in memory.
    in_file_to: u64,
    /// Texts that have been read back, by index, until those who lack them are sent them.
    fetched: BTreeMap<u64, Text>,
    /// Where the library wants to read entries whose texts are not in memory.
    wanted: RefCell<BTreeSet<u64>>,
}

/// An entry.
#[derive(Debug)]
struct Slot {
    term: u64,
    held: Held,
    /// Where the file has its text, once it does.
    place: Option<Place>,
}

impl Slot {
    /// Bytes in memory.
    fn bytes(&self) -> usize {
        match &self.held {
            Held::Here(content) => content.len(),
            Held::InFile { .. } => 0,
        }
    }

    /// Bytes on the wire.
    fn len(&self) -> u64 {
        match (&self.held, self.place) {
            (Held::Here(content), _) => content.len() as u64,
            (Held::InFile { .. }, place) => place.map_or(0, |place| place.len),
        }
    }
}

/// Texts to be read back from the file.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// All that is to be read.
    pub(crate) place: Place,
    /// The parts of it, each with its entry's index.
    texts: Vec<(u64, Place)>,
}

/// Bytes that are read back at once, but for a text that is longer.
const FETCH_BYTES: u64 = 1 << 20;

impl Store {
    /// The log as the file has it.
    pub(super) fn new(
        mark: Mark,
        (voters, first_voters): (ConfState, ConfState),
        hard: HardState,
        entries: Vec<Logged>,
    ) -> Self {
        let (mut slots, mut bytes) = (VecDeque::with_capacity(entries.len()), 0);
        let (mut in_file_to, mut has_text) = (mark.last.index, false);
        for (index, Logged { at, held, place }) in (mark.last.index + 1..).zip(entries) {
            assert_eq!(at.index, index, "the file's entries are without gaps");
            if let Held::InFile { .. } = held {
                assert!(!has_text, "the oldest texts leave memory first");
                in_file_to = index;
            }
            has_text |= matches!(held, Held::Here(Content::Data { .. }));
            let slot = Slot { term: at.term, held, place };
            bytes += slot.bytes();
            slots.push_back(slot);
        }
        let incoming = BTreeMap::new();
        let (fetched, wanted) = (BTreeMap::new(), RefCell::default());
        let entries = slots;
        Self {
            mark,
            voters,
            hard,
            first_voters,
            entries,
            incoming,
            bytes,
            in_file_to,
            fetched,
            wanted,
        }
    }

    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The term, the number of whom it votes for in it, and the commit index, as raised last.
    pub(super) fn hard_state(&self) -> (u64, u64, u64) {
        (self.hard.term, self.hard.vote, self.hard.commit)
    }

    pub(super) fn set_hard_state(&mut self, hard: HardState) {
        self.hard = hard;
    }

    pub(super) fn last(&self) -> u64 {
        self.mark.last.index + self.entries.len() as u64
    }

    fn offset(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.mark.last.index + 1)?).ok()
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.entries.get(self.offset(index)?)
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        let offset = self.offset(index)?;
        self.entries.get_mut(offset)
    }

    /// The entry that stands at this place, if it does.
    fn slot_at(&self, at: Position) -> Option<&Slot> {
        self.slot(at.index).filter(|slot| slot.term == at.term)
    }

    /// What an entry says that the library is about to have.
    pub(super) fn expect(&mut self, at: Position, content: Content) {
        if content != Content::Empty {
            self.incoming.insert(at, content);
        }
    }

    /// Whether the log has an entry, or is about to have it.
    pub(super) fn has(&self, at: Position) -> bool {
        self.incoming.contains_key(&at) || self.slot_at(at).is_some()
    }

    /// What an entry says that the library knows.
    pub(super) fn content(&self, at: Position) -> Content {
        if let Some(content) = self.incoming.get(&at) {
            return content.clone();
        }
        match self.slot_at(at).map(|slot| &slot.held) {
            None => Content::Empty,
            Some(Held::Here(content)) => content.clone(),
            Some(Held::InFile { eid }) => {
                let text = self.fetched.get(&at.index);
                let text = text.expect("texts that left memory are read before they are needed");
                Content::Data { eid: *eid, text: Arc::clone(text) }
            }
        }
    }

    /// The id of what an entry says, if that is data.
    pub(super) fn eid(&self, at: Position) -> Option<Uuid> {
        if let Some(content) = self.incoming.get(&at) {
            return content.eid();
        }
        match &self.slot_at(at)?.held {
            Held::Here(content) => content.eid(),
            Held::InFile { eid } => Some(*eid),
        }
    }

    /// The library's entry becomes the log's last one; those from its index on are gone.
    pub(super) fn append(&mut self, at: Position) -> Entry {
        self.truncate(at.index);
        assert_eq!(at.index, self.last() + 1, "entries come without gaps");
        let content = self.incoming.remove(&at).unwrap_or(Content::Empty);
        self.bytes += content.len();
        let held = Held::Here(content.clone());
        self.entries.push_back(Slot { term: at.term, held, place: None });
        Entry { at, content }
    }

    fn truncate(&mut self, from: u64) {
        assert!(from > self.mark.last.index, "what is in the snapshot is committed");
        while self.last() >= from {
            let slot = self.entries.pop_back().expect("the last one is there");
            self.bytes -= slot.bytes();
        }
        assert!(from > self.in_file_to, "what has taken effect stays");
    }

    /// The file has the text of an entry.
    pub(super) fn placed(&mut self, at: Position, place: Place) {
        if let Some(slot) = self.slot_mut(at.index).filter(|slot| slot.term == at.term) {
            slot.place = Some(place);
        }
    }

    /// Texts of entries up to this one leave memory, oldest first, while entries hold more than so
    /// many bytes.
    pub(super) fn release(&mut self, upto: u64, bytes_max: usize) {
        while self.bytes > bytes_max && self.in_file_to < upto {
            let index = self.in_file_to + 1;
            let Some(slot) = self.slot_mut(index) else { break };
            let mut freed = 0;
            if let Held::Here(Content::Data { eid, text }) = &slot.held {
                // It is not in the file yet.
                let Some(_) = slot.place else { break };
                freed = text.len();
                slot.held = Held::InFile { eid: *eid };
            }
            self.bytes -= freed;
            self.in_file_to = index;
        }
    }

    /// What to read next for a member that lacks entries whose texts are not in memory.
    pub(super) fn next_fetch(&mut self) -> Option<Fetch> {
        while let Some(from) = self.wanted.get_mut().pop_first() {
            if let Some(fetch) = self.fetch(from) {
                return Some(fetch);
            }
        }
        None
    }

    /// What to read for a member that lacks this entry and those behind it; `None` if the text is in
    /// memory, or not in the log any more.
    fn fetch(&self, from: u64) -> Option<Fetch> {
        let mut texts = Vec::new();
        let mut all: Option<Place> = None;
        for index in from..=self.in_file_to {
            let Some(slot) = self.slot(index) else { break };
            let Held::InFile { .. } = slot.held else { continue };
            let place = slot.place.expect("it has left memory because the file has it");
            let begins = all.map_or(place.offset, |all| all.offset);
            let end = place.offset + place.len;
            // Places rise with the index.
            let is_near = begins <= place.offset && end - begins <= FETCH_BYTES;
            if all.is_some() && !is_near {
                break;
            }
            all = Some(Place { offset: begins, len: end - begins });
            texts.push((index, place));
        }
        Some(Fetch { place: all?, texts })
    }

    /// Texts have been read back: they can be sent until [`Store::forget_fetched`].
    ///
    /// # Errors
    /// What was read is not what was written.
    pub(super) fn fetched(&mut self, fetch: &Fetch, bytes: &[u8]) -> Result<(), String> {
        for (index, place) in &fetch.texts {
            let start = usize::try_from(place.offset - fetch.place.offset).ok();
            let len = usize::try_from(place.len).ok();
            let text = start.zip(len).and_then(|(start, len)| bytes.get(start..)?.get(..len));
            let is_data = |text: &&[u8]| weir_json::validate_value(text).is_ok();
            let text = text.filter(is_data).ok_or(format!("no text of entry {index}"))?;
            self.fetched.insert(*index, text.into());
        }
        Ok(())
    }

    /// Whether texts are there that have been read back.
    pub(super) fn has_fetched(&self, index: u64) -> bool {
        self.fetched.contains_key(&index)
    }

    /// Whoever lacked what has been read back has been sent it.
    pub(super) fn forget_fetched(&mut self) {
        self.fetched.clear();
    }

    /// What the library was about to have, it has by now, or never will.
    pub(super) fn settle(&mut self) {
        self.incoming.clear();
    }

    /// The file starts from another snapshot: entries up to it are gone; all, if it is not one of
    /// this log.
    pub(super) fn compact(&mut self, mark: Mark, voters: ConfState) {
        let is_ours = self.slot_at(mark.last).is_some();
        let keep_from = if is_ours { mark.last.index + 1 } else { u64::MAX };
        let mut index = self.mark.last.index + 1;
        while index < keep_from {
            let Some(slot) = self.entries.pop_front() else { break };
            self.bytes -= slot.bytes();
            index += 1;
        }
        self.in_file_to = self.in_file_to.max(mark.last.index);
        (self.mark, self.voters) = (mark, voters);
    }
}

/// What the library calls an entry.
pub(super) fn raft_entry(at: Position, changes_servers: bool) -> RaftEntry {
    let mut entry = RaftEntry { index: at.index, term: at.term, ..RaftEntry::default() };
    if changes_servers {
        entry.set_entry_type(EntryType::EntryConfChange);
    }
    entry
}

impl Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.first_voters.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.mark.last.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let (mut entries, mut size) = (Vec::new(), 0);
        for index in low..high {
            let slot = self.slot(index).expect("the library knows where the log ends");
            size += slot.len();
            if size > max_size && !entries.is_empty() {
                break;
            }
            let is_away = matches!(slot.held, Held::InFile { .. }) && !self.has_fetched(index);
            if is_away && context.can_async() {
                if !entries.is_empty() {
                    break;
                }
                self.wanted.borrow_mut().insert(low);
                return Err(Error::Store(StorageError::LogTemporarilyUnavailable));
            }
            let changes_servers = matches!(slot.held, Held::Here(Content::Servers(_)));
            entries.push(raft_entry(Position { term: slot.term, index }, changes_servers));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.mark.last.index {
            return Ok(self.mark.last.term);
        }
        let is_older = index < self.mark.last.index;
        let error = if is_older { StorageError::Compacted } else { StorageError::Unavailable };
        self.slot(index).map(|slot| slot.term).ok_or(Error::Store(error))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.mark.last.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.mark.last.index;
        metadata.term = self.mark.last.term;
        metadata.set_conf_state(self.voters.clone());
        Ok(snapshot)
    }
}
