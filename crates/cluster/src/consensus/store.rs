//! The log as the raft library reads it: places from a snapshot on, with what they say.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use raft::prelude::{ConfState, Entry as RaftEntry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use weir_data::Uuid;
use weir_log::clustered::Servers;

use crate::entry::{Content, Entry};
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
    /// What follows the snapshot: the term and what it says.
    entries: VecDeque<(u64, Content)>,
    /// What entries say that the library has and this log has not got yet.
    incoming: BTreeMap<Position, Content>,
    bytes: usize,
}

impl Store {
    /// The log as the file has it.
    pub(super) fn new(
        mark: Mark,
        (voters, first_voters): (ConfState, ConfState),
        hard: HardState,
        entries: Vec<Entry>,
    ) -> Self {
        let (mut slots, mut bytes) = (VecDeque::with_capacity(entries.len()), 0);
        for (index, Entry { at, content }) in (mark.last.index + 1..).zip(entries) {
            assert_eq!(at.index, index, "the file's entries are without gaps");
            bytes += content.len();
            slots.push_back((at.term, content));
        }
        let incoming = BTreeMap::new();
        Self { mark, voters, hard, first_voters, entries: slots, incoming, bytes }
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

    fn slot(&self, index: u64) -> Option<&(u64, Content)> {
        let at = index.checked_sub(self.mark.last.index + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// What an entry says that the library is about to have.
    pub(super) fn expect(&mut self, at: Position, content: Content) {
        if content != Content::Empty {
            self.incoming.insert(at, content);
        }
    }

    /// What an entry says that the library knows.
    pub(super) fn content(&self, at: Position) -> Content {
        if let Some(content) = self.incoming.get(&at) {
            return content.clone();
        }
        let slot = self.slot(at.index).filter(|(term, _)| *term == at.term);
        slot.map_or(Content::Empty, |(_, content)| content.clone())
    }

    /// The library's entry becomes the log's last one; those from its index on are gone.
    pub(super) fn append(&mut self, at: Position) -> Entry {
        self.truncate(at.index);
        assert_eq!(at.index, self.last() + 1, "entries come without gaps");
        let content = self.incoming.remove(&at).unwrap_or(Content::Empty);
        self.bytes += content.len();
        self.entries.push_back((at.term, content.clone()));
        Entry { at, content }
    }

    fn truncate(&mut self, from: u64) {
        assert!(from > self.mark.last.index, "what is in the snapshot is committed");
        while self.last() >= from {
            let (_, content) = self.entries.pop_back().expect("the last one is there");
            self.bytes -= content.len();
        }
    }

    /// What the library was about to have, it has by now, or never will.
    pub(super) fn settle(&mut self) {
        self.incoming.clear();
    }

    /// The file starts from another snapshot: entries up to it are gone; all, if it is not one of
    /// this log.
    pub(super) fn compact(&mut self, mark: Mark, voters: ConfState) {
        let is_ours = self.slot(mark.last.index).is_some_and(|(term, _)| *term == mark.last.term);
        let keep_from = if is_ours { mark.last.index + 1 } else { u64::MAX };
        let mut index = self.mark.last.index + 1;
        while index < keep_from {
            let Some((_, content)) = self.entries.pop_front() else { break };
            self.bytes -= content.len();
            index += 1;
        }
        (self.mark, self.voters) = (mark, voters);
    }
}

/// What the library calls an entry.
pub(super) fn raft_entry(at: Position, content: &Content) -> RaftEntry {
    let mut entry = RaftEntry { index: at.index, term: at.term, ..RaftEntry::default() };
    if let Content::Servers(_) = content {
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
        _: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.mark.last.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let (mut entries, mut size) = (Vec::new(), 0);
        for index in low..high {
            let (term, content) = self.slot(index).expect("the library knows where the log ends");
            size += content.len() as u64;
            if size > max_size && !entries.is_empty() {
                break;
            }
            entries.push(raft_entry(Position { term: *term, index }, content));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.mark.last.index {
            return Ok(self.mark.last.term);
        }
        let is_older = index < self.mark.last.index;
        let error = if is_older { StorageError::Compacted } else { StorageError::Unavailable };
        self.slot(index).map(|(term, _)| *term).ok_or(Error::Store(error))
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
