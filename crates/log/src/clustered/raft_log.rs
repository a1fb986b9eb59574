//! What the records behind the header make of term, vote and log, and what they must not say.

use weir_data::Uuid;

use super::{Kind, Record, Servers, check_address};

/// The election timer where a file has none, in milliseconds.
pub const ELECTION_TIMER_MS_DEFAULT: u64 = 1000;

/// What a server notes in its file, before it notes `left`, that has heard of others what it had
/// promised and does not have.
pub const FORGOT: &str = "forgot";

/// What a server notes in its file, with an address behind it, that has got a snapshot and has not joined: the
/// header has no room for where it was told to ask. The reference reads over it.
const JOINS_AT: &str = "joins at ";

/// The note of a server that has not joined and asks at this address.
pub fn joins_at_note(address: &str) -> String {
    format!("{JOINS_AT}{address}")
}

/// The address in a note, if it is one of [`joins_at_note`].
pub fn joins_at(note: &str) -> Option<&str> {
    note.strip_prefix(JOINS_AT).filter(|address| check_address(address).is_ok())
}

/// An entry of a log that was read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The entry's index.
    pub index: u64,
    /// The entry's term.
    pub term: u64,
    /// The servers from here on, if they change.
    pub servers: Option<Box<Servers>>,
    /// The election timer from here on in milliseconds, if it changes.
    pub election_timer: Option<u64>,
    /// Where the entry's data is, if it has any.
    pub data: Option<DataPlace>,
}

/// Where in a file the text `[SCHEMA,TRANSACTION]` of an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPlace {
    /// The entry's id.
    pub eid: Uuid,
    /// File offset of the text, in bytes.
    pub offset: u64,
    /// Bytes of the text.
    pub len: u64,
    /// Whether its record carries the [`crate::record::MARK`].
    pub is_marked: bool,
}

/// What entries change besides rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The servers of the cluster.
    pub servers: Servers,
    /// The election timer in milliseconds.
    pub election_timer: u64,
}

/// What a log starts from, apart from rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPlace {
    /// Index of the last entry in the snapshot.
    pub index: u64,
    /// Term of the last entry in the snapshot.
    pub term: u64,
    /// Where in the file the snapshot's data is, and the id of the last entry in it.
    pub data: DataPlace,
}

/// Term, vote and log, as the records so far tell.
#[derive(Debug)]
pub(super) struct RaftLog {
    /// Index of the first entry behind the snapshot.
    pub(super) start: u64,
    snapshot_term: u64,
    /// What is in force before the first entry.
    base: Configuration,
    pub(super) entries: Vec<LoggedEntry>,
    term: u64,
    pub(super) vote: Option<Uuid>,
    pub(super) leader: Option<Uuid>,
    pub(super) commit_index: u64,
    /// The server has noted [`FORGOT`].
    pub(super) has_forgotten: bool,
    /// Where the server has noted that it joins.
    pub(super) joins_at: Vec<String>,
}

/// What a record did to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that concerns entries.
    None,
    /// The last entry is new; all that were at its index and behind it are gone.
    Entry,
    /// More entries are committed.
    Commit,
}

impl RaftLog {
    /// A log behind the entry of this index and term; both are 0 if there is no snapshot.
    pub(super) fn new(index: u64, term: u64, base: Configuration) -> Self {
        Self {
            start: index + 1,
            snapshot_term: term,
            base,
            entries: Vec::new(),
            term: 0,
            vote: None,
            leader: None,
            commit_index: index,
            has_forgotten: false,
            joins_at: Vec::new(),
        }
    }

    /// One past the index of the last entry.
    pub(super) fn end(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    /// The entry of an index, if it is there.
    pub(super) fn entry(&self, index: u64) -> Option<&LoggedEntry> {
        self.entries.get(usize::try_from(index.checked_sub(self.start)?).ok()?)
    }

    /// The current term: never below that of the snapshot.
    pub(super) fn term(&self) -> u64 {
        self.term.max(self.snapshot_term)
    }

    /// What is in force with the entry of an index.
    pub(super) fn configuration(&self, index: u64) -> Configuration {
        let entries = || self.entries.iter().rev().skip_while(|entry| entry.index > index);
        let servers = entries().find_map(|entry| entry.servers.as_deref());
        let election_timer = entries().find_map(|entry| entry.election_timer);
        Configuration {
            servers: servers.unwrap_or(&self.base.servers).clone(),
            election_timer: election_timer.unwrap_or(self.base.election_timer),
        }
    }

    /// Whether a server was a member as of an entry that is committed.
    pub(super) fn has_had(&self, server: Uuid) -> bool {
        let committed = self.entries.iter().take_while(|entry| entry.index <= self.commit_index);
        let changes = committed.filter_map(|entry| entry.servers.as_deref());
        std::iter::once(&self.base.servers)
            .chain(changes)
            .any(|servers| servers.contains_key(&server))
    }

    /// What is in force before the first entry.
    pub(super) fn base(&self) -> &Configuration {
        &self.base
    }

    /// Takes a record; the one behind the header is number 1. `place` is where the data of an entry
    /// is.
    ///
    /// # Errors
    /// In the words of the reference.
    pub(super) fn record(
        &mut self,
        number: u64,
        record: Record<'_>,
        place: Option<DataPlace>,
    ) -> Result<Effect, String> {
        let term = record.term;
        if term > self.term {
            (self.term, self.vote, self.leader) = (term, None, None);
        }
        let at = format_args!("record {number}");
        match record.kind {
            Kind::Term => Ok(Effect::None),
            Kind::Note(note) if note == FORGOT => {
                self.has_forgotten = true;
                Ok(Effect::None)
            }
            Kind::Note(note) if note == "left" && !self.has_forgotten => Err(format!(
                "{at} indicates server has left the cluster; it cannot be added back (use \
                 \"ovsdb-tool join-cluster\" to add a new server)"
            )),
            Kind::Note(note) => {
                self.joins_at.extend(joins_at(&note).map(str::to_owned));
                Ok(Effect::None)
            }
            Kind::Leader(leader) => {
                if term == self.term {
                    self.leader = Some(leader);
                }
                Ok(Effect::None)
            }
            Kind::Vote(_) if term < self.term => {
                let current = self.term;
                Err(format!("{at} votes for term {term} but current term is {current}"))
            }
            Kind::Vote(vote) => match self.vote.replace(vote).filter(|before| *before != vote) {
                None => Ok(Effect::None),
                Some(before) => {
                    // The reference names the two this way round.
                    let (vote, before) = (short(vote), short(before));
                    let why = "but a previous record for the same term voted for";
                    Err(format!("{at} votes for {before} in term {term} {why} {vote}"))
                }
            },
            Kind::CommitIndex(index) => self.commit(number, index),
            Kind::Entry(entry) => {
                let servers = entry.servers.map(Box::new);
                let (index, election_timer) = (entry.index, entry.election_timer);
                let entry = LoggedEntry { index, term, servers, election_timer, data: place };
                self.append(number, entry)
            }
        }
    }

    fn commit(&mut self, number: u64, index: u64) -> Result<Effect, String> {
        let (before, last) = (self.commit_index, self.end() - 1);
        if index < before {
            return Err(format!("record {number} regresses commit index from {before} to {index}"));
        }
        if index > last {
            return Err(format!(
                "record {number} advances commit index to {index} but last log index is {last}"
            ));
        }
        self.commit_index = index;
        Ok(if index > before { Effect::Commit } else { Effect::None })
    }

    fn append(&mut self, number: u64, entry: LoggedEntry) -> Result<Effect, String> {
        let (index, end, commit) = (entry.index, self.end(), self.commit_index);
        // The reference lets the last committed entry be replaced, which no server does.
        if index <= commit {
            return Err(format!(
                "record {number} attempts to truncate log from {end} to {index} entries, but \
                 commit index is already {commit}"
            ));
        }
        if index > end {
            return Err(format!(
                "record {number} with index {index} skips past expected index {end}"
            ));
        }
        self.entries.truncate(usize::try_from(index - self.start).unwrap_or(usize::MAX));
        let before = self.entries.last().map_or(self.snapshot_term, |entry| entry.term);
        if entry.term < before {
            let term = entry.term;
            return Err(format!(
                "record {number} with index {index} term {term} precedes previous entry's term \
                 {before}"
            ));
        }
        self.entries.push(entry);
        Ok(Effect::Entry)
    }
}

/// The first four digits of an id, by which people know a server.
fn short(id: Uuid) -> String {
    let text = id.text();
    String::from_utf8_lossy(text.get(..4).unwrap_or_default()).into_owned()
}
