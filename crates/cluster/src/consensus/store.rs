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

use super::older::Older;
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
    /// The members that vote according to the snapshot.
    voters: ConfState,
    hard: HardState,
    /// The members that voted when the file was opened.
    first_voters: ConfState,
    /// What follows the snapshot, up to the last entry whose text has left memory.
    older: Older,
    /// What follows that.
    recent: VecDeque<Slot>,
    /// What entries say that the library has and this log has not got yet.
    incoming: BTreeMap<Position, Content>,
    /// Bytes that entries hold in memory, but for what each of the older ones takes.
    bytes: usize,
    /// Texts that have been read back, by index, until those who lack them are sent them.
    fetched: BTreeMap<u64, Text>,
    /// Where the library wants to read entries whose texts are not in memory.
    wanted: RefCell<BTreeSet<u64>>,
}

/// An entry.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) term: u64,
    pub(super) held: Held,
    /// Where the file has its text, once it does.
    pub(super) place: Option<Place>,
}

/// An entry, wherever it is kept.
pub(super) struct Seen<'a> {
    pub(super) term: u64,
    pub(super) said: Said<'a>,
    pub(super) place: Option<Place>,
}

/// What an entry says, in memory or in the file.
pub(super) enum Said<'a> {
    Here(&'a Content),
    InFile(Uuid),
}

impl Slot {
    pub(super) fn seen(&self) -> Seen<'_> {
        let said = match &self.held {
            Held::Here(content) => Said::Here(content),
            Held::InFile { eid } => Said::InFile(*eid),
        };
        Seen { term: self.term, said, place: self.place }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let text = match &self.held {
            Held::Here(content) => content.len(),
            Held::InFile { .. } => 0,
        };
        size_of::<Self>() + text
    }
}

impl Seen<'_> {
    /// Bytes on the wire.
    pub(super) fn len(&self) -> u64 {
        match (&self.said, self.place) {
            (Said::Here(content), _) => content.len() as u64,
            (Said::InFile(_), place) => place.map_or(0, |place| place.len),
        }
    }

    /// Whether what it says are servers.
    pub(super) fn changes_servers(&self) -> bool {
        matches!(self.said, Said::Here(Content::Servers(_)))
    }

    /// The id of what it says, if that is data.
    pub(super) fn eid(&self) -> Option<Uuid> {
        match self.said {
            Said::Here(content) => content.eid(),
            Said::InFile(eid) => Some(eid),
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
        let (mut recent, mut bytes) = (VecDeque::new(), 0);
        let mut older = Older::new(mark.last.index + 1);
        for (index, Logged { at, held, place }) in (mark.last.index + 1..).zip(entries) {
            assert_eq!(at.index, index, "the file's entries are without gaps");
            let is_in_file = matches!(held, Held::InFile { .. });
            recent.push_back(Slot { term: at.term, held, place });
            if is_in_file {
                bytes += recent.drain(..).map(|slot| older.push(slot)).sum::<usize>();
            }
        }
        bytes += recent.iter().map(Slot::bytes).sum::<usize>();
        let incoming = BTreeMap::new();
        let (fetched, wanted) = (BTreeMap::new(), RefCell::default());
        Self { mark, voters, hard, first_voters, older, recent, incoming, bytes, fetched, wanted }
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
        self.older.last() + self.recent.len() as u64
    }

    /// Where a recent entry is.
    fn offset(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.older.last() + 1)?).ok()
    }

    fn slot(&self, index: u64) -> Option<Seen<'_>> {
        match self.offset(index) {
            Some(offset) => self.recent.get(offset).map(Slot::seen),
            None => self.older.get(index),
        }
    }

    /// The entry that stands at this place, if it does.
    fn slot_at(&self, at: Position) -> Option<Seen<'_>> {
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

    /// What an entry says that the library knows; `None` if that has left the log, or memory, since the library
    /// looked.
    pub(super) fn content(&self, at: Position) -> Option<Content> {
        if at.index <= self.mark.last.index {
            return None;
        }
        if let Some(content) = self.incoming.get(&at) {
            return Some(content.clone());
        }
        match self.slot_at(at).map(|slot| slot.said) {
            None => Some(Content::Empty),
            Some(Said::Here(content)) => Some(content.clone()),
            Some(Said::InFile(eid)) => {
                let text = Arc::clone(self.fetched.get(&at.index)?);
                Some(Content::Data { eid, text })
            }
        }
    }

    /// The id of what an entry says, if that is data.
    pub(super) fn eid(&self, at: Position) -> Option<Uuid> {
        if let Some(content) = self.incoming.get(&at) {
            return content.eid();
        }
        self.slot_at(at)?.eid()
    }

    /// The library's entry becomes the log's last one; those from its index on are gone.
    pub(super) fn append(&mut self, at: Position) -> Entry {
        self.truncate(at.index);
        assert_eq!(at.index, self.last() + 1, "entries come without gaps");
        let content = self.incoming.remove(&at).unwrap_or(Content::Empty);
        let slot = Slot { term: at.term, held: Held::Here(content.clone()), place: None };
        self.bytes += slot.bytes();
        self.recent.push_back(slot);
        Entry { at, content }
    }

    fn truncate(&mut self, from: u64) {
        assert!(from > self.older.last(), "what has taken effect stays");
        while self.last() >= from {
            let slot = self.recent.pop_back().expect("the last one is there");
            self.bytes -= slot.bytes();
        }
    }

    /// The log up to this entry, for a node that starts from it; nothing stays here.
    pub(super) fn take_until(&mut self, last: u64, voters: ConfState, hard: HardState) -> Self {
        self.truncate(last + 1);
        self.incoming.clear();
        let nobody = (ConfState::default(), ConfState::default());
        let empty = Self::new(self.mark.clone(), nobody, HardState::default(), vec![]);
        let log = std::mem::replace(self, empty);
        Self { hard, first_voters: voters, ..log }
    }

    /// The log begins with a snapshot that says more than it; answers with what it was.
    pub(super) fn begin_anew(&mut self, mark: Mark, voters: ConfState) -> Self {
        let voters = (voters, self.first_voters.clone());
        let new = Self::new(mark, voters, self.hard.clone(), vec![]);
        std::mem::replace(self, new)
    }

    /// The file has the text of an entry.
    pub(super) fn placed(&mut self, at: Position, place: Place) {
        // One that was overwritten and came back is in the file twice, and may have left memory.
        let Some(offset) = self.offset(at.index) else { return };
        if let Some(slot) = self.recent.get_mut(offset).filter(|slot| slot.term == at.term) {
            slot.place = Some(place);
        }
    }

    /// Texts of entries up to this one leave memory, oldest first, while entries hold more than so
    /// many bytes.
    pub(super) fn release(&mut self, upto: u64, bytes_max: usize) {
        while self.bytes > bytes_max && self.older.last() < upto {
            let Some(mut slot) = self.recent.pop_front() else { break };
            let bytes = slot.bytes();
            if let Held::Here(Content::Data { eid, .. }) = slot.held {
                // It is not in the file yet.
                if slot.place.is_none() {
                    self.recent.push_front(slot);
                    break;
                }
                slot.held = Held::InFile { eid };
            }
            self.bytes = self.bytes - bytes + self.older.push(slot);
        }
    }

    /// Bytes of the entries in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
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
        for index in from..=self.older.last() {
            let Some(slot) = self.older.get(index) else { break };
            let Said::InFile(_) = slot.said else { continue };
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
            self.fetched.insert(*index, Text::new(text.to_vec()));
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

    /// The file starts from another snapshot of this log: entries up to it are gone.
    pub(super) fn compact(&mut self, mark: Mark, voters: ConfState) {
        assert!(self.slot_at(mark.last).is_some(), "the snapshot is of this log");
        for _ in self.mark.last.index..mark.last.index {
            let older = self.older.pop_front();
            let bytes = older.or_else(|| Some(self.recent.pop_front()?.bytes()));
            self.bytes -= bytes.expect("the log has all of them");
        }
        if self.older.len() == 0 {
            self.older = Older::new(mark.last.index + 1);
        }
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
            let is_away = matches!(slot.said, Said::InFile(_)) && !self.has_fetched(index);
            if is_away && context.can_async() {
                if !entries.is_empty() {
                    break;
                }
                self.wanted.borrow_mut().insert(low);
                return Err(Error::Store(StorageError::LogTemporarilyUnavailable));
            }
            let at = Position { term: slot.term, index };
            entries.push(raft_entry(at, slot.changes_servers()));
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
