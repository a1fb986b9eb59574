//! A member's file: what is synced survives a crash, of the rest any beginning, or all but a block.

use std::collections::BTreeMap;

use weir_cluster::{Content, Entry, Held, Logged, Mark, Opened, Place, Position};
use weir_data::Uuid;
use weir_log::clustered::{Kind, Record, Servers, joins_at};
use weir_log::record::{Hole, Magic, Reader, Search};

use super::rng::Rng;

/// What the snapshot in front of the file says.
#[derive(Clone, Debug)]
pub struct Front {
    pub cluster: Option<Uuid>,
    pub mark: Mark,
    pub data: Vec<u8>,
    /// For a server that has not joined.
    pub remotes: Vec<String>,
}

impl Front {
    /// A snapshot of what has taken effect, and about so many bytes that only say which snapshot it is.
    pub fn of(
        cluster: Option<Uuid>,
        mark: Mark,
        applied: &BTreeMap<u64, Uuid>,
        padding: usize,
    ) -> Self {
        let line = |(index, eid): (&u64, &Uuid)| format!("{index} {}\n", eid.to_u128());
        let mut data: String = applied.iter().map(line).collect();
        let of = padding_line(mark.last);
        data.extend(std::iter::repeat_n(of.as_str(), padding / of.len()));
        Self { cluster, mark, data: data.into_bytes(), remotes: vec![] }
    }

    /// What has taken effect, according to the snapshot.
    pub fn applied(&self) -> BTreeMap<u64, Uuid> {
        let text = std::str::from_utf8(&self.data).expect("text");
        let line = |line: &str| {
            let (index, eid) = line.split_once(' ').expect("two numbers");
            (index.parse().expect("a number"), Uuid::from_u128(eid.parse().expect("a number")))
        };
        let (padding, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#'));
        let of = padding_line(self.mark.last);
        assert!(padding.iter().all(|line| *line == of.trim_end()), "all is of one snapshot");
        lines.into_iter().map(line).collect()
    }

    /// A piece of the data of whatever snapshot the file has.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, String> {
        let piece = self.data.get(offset as usize..(offset + len) as usize);
        piece.map(<[u8]>::to_vec).ok_or("Unexpected end of file".into())
    }
}

/// What a snapshot that ends with this entry says besides its data.
fn padding_line(last: Position) -> String {
    format!("#{:09}:{:09}\n", last.term, last.index)
}

/// A file: its front, and records behind it.
#[derive(Clone, Debug)]
pub struct Disk {
    pub front: Front,
    pub records: Vec<u8>,
    pub synced: usize,
    /// Bytes of the files that were in this one's place before.
    before: usize,
    /// The step that was written last, in this life.
    pub step: u64,
    /// Terms of the entries that are there for good, as far as the records were looked at.
    durable: BTreeMap<u64, u64>,
    seen: usize,
    /// An fdatasync(2) has failed: the file takes nothing more.
    pub is_suspect: bool,
    /// Something in the file could not be read back.
    pub is_unread: bool,
    /// There is a bad record with good ones behind it.
    is_damaged: bool,
}

impl Disk {
    pub fn new(front: Front) -> Self {
        Self {
            front,
            records: vec![],
            synced: 0,
            before: 0,
            step: 0,
            durable: BTreeMap::new(),
            seen: 0,
            is_suspect: false,
            is_unread: false,
            is_damaged: false,
        }
    }

    /// Another file takes the place of this one, complete and synced.
    pub fn replace(&mut self, front: Front, tail: &[u8], step: u64) {
        let before = self.end();
        let (records, synced) = (tail.to_vec(), tail.len());
        *self = Self { records, synced, before, step, ..Self::new(front) };
    }

    /// Where the file ends, counted through all files that were in its place.
    pub fn end(&self) -> usize {
        self.before + self.records.len()
    }

    /// All up to some end is there for good, if that is one of this file.
    pub fn sync(&mut self, upto: usize) {
        let upto = upto.saturating_sub(self.before).min(self.records.len());
        self.synced = self.synced.max(upto);
    }

    /// Nobody has the file open; the next who opens it syncs it first.
    pub fn closed(&mut self) {
        (self.step, self.is_suspect, self.is_unread) = (0, false, false);
    }

    /// The power goes: of what was not synced, some is there.
    pub fn crash(&mut self, rng: &mut Rng) {
        let unsynced = self.records.len() - self.synced;
        let kept = self.synced + rng.below(unsynced as u64 + 1) as usize;
        if unsynced > 0 && rng.one_in(3) {
            self.lose_a_block(rng);
        } else {
            self.records.truncate(kept);
        }
        let end = whole(&self.records);
        assert!(end >= self.synced, "what is synced is there");
        let hole = Hole { at: end as u64, is_told: true };
        let mut search = Search::new(Magic::Clustered, end as u64, Some(hole));
        search.feed(&self.records[end..], &mut |_| ());
        assert_eq!(
            search.found(),
            None,
            "nothing is damaged behind {end}, and no promise forgotten"
        );
        // A torn record is cut off before the next one is written.
        self.records.truncate(end);
        self.synced = end;
    }

    /// What is written back in any order lacks a block.
    fn lose_a_block(&mut self, rng: &mut Rng) {
        // Files are short: a sector is lost as well as a page.
        let block = if rng.one_in(2) { 512 } else { 4096 };
        let (first, last) = (self.synced / block, (self.records.len() - 1) / block);
        let start = (first + rng.below((last - first + 1) as u64) as usize) * block;
        let end = self.records.len().min(start + block);
        self.records[start.max(self.synced)..end].fill(0);
    }

    /// All votes are gone.
    pub fn forget_votes(&mut self) {
        let mut records = vec![];
        let mut reader = Reader::new();
        reader.feed(&self.records);
        while let Some(record) = reader.next_record().expect("whole records") {
            let mut record = Record::parse(record.json().expect("JSON")).expect("a record");
            if let Kind::Vote(_) = record.kind {
                record.kind = Kind::Term;
            }
            record.write(&mut records);
        }
        (self.seen, self.synced) = (records.len(), records.len());
        self.records = records;
    }

    /// Some records at the end are gone.
    pub fn forget_tail(&mut self, rng: &mut Rng) {
        self.records.truncate(rng.below(self.records.len() as u64 + 1) as usize);
        self.records.truncate(whole(&self.records));
        (self.synced, self.seen) = (self.records.len(), 0);
        self.durable.clear();
    }

    /// What somebody gets who copies the file, as far as that is there for good.
    pub fn copy(&self) -> Self {
        let mut copy = self.clone();
        copy.records.truncate(self.synced);
        copy.closed();
        copy
    }

    /// The file with a record that cannot be read, but is there, and good ones behind it; `None`
    /// if it has too few.
    pub fn damaged(mut self, rng: &mut Rng) -> Option<Self> {
        let ends = ends(&self.records);
        let bad = rng.below(ends.len().checked_sub(1)?.try_into().ok().filter(|n| *n > 0)?);
        let from = (bad as usize).checked_sub(1).map_or(0, |before| ends[before]);
        self.records.truncate(from);
        (self.synced, self.seen, self.is_damaged) = (from, 0, true);
        self.durable.clear();
        Some(self)
    }

    /// Whether a copy lacks some of what is there for good.
    pub fn is_before(&self, later: &Self) -> bool {
        self.before + self.synced < later.before + later.synced
    }

    /// Whether an entry is there for good.
    pub fn is_durable(&self, at: Position) -> bool {
        let last = self.front.mark.last;
        at.index < last.index || at == last || self.durable.get(&at.index) == Some(&at.term)
    }

    /// Takes note of what has been synced; answers with the votes in it, and their terms.
    pub fn settle(&mut self) -> Vec<(u64, Uuid)> {
        let mut votes = vec![];
        let mut reader = Reader::new();
        reader.feed(&self.records[self.seen..self.synced]);
        while let Some(record) = reader.next_record().expect("whole records") {
            let record = Record::parse(record.json().expect("JSON")).expect("a record");
            match record.kind {
                Kind::Vote(vote) => votes.push((record.term, vote)),
                Kind::Entry(entry) => {
                    self.durable.split_off(&entry.index);
                    self.durable.insert(entry.index, record.term);
                }
                _ => {}
            }
        }
        self.seen = self.synced;
        votes
    }

    /// Bytes of the records.
    pub fn read(&self, place: Place) -> Result<Vec<u8>, String> {
        let range = place.offset as usize..(place.offset + place.len) as usize;
        self.records.get(range).map(<[u8]>::to_vec).ok_or("Unexpected end of file".into())
    }

    /// Where members listen, for a server that has not joined.
    pub fn remotes(&self) -> Vec<String> {
        let mut remotes = self.front.remotes.clone();
        self.notes(|record| {
            if let Kind::Note(note) = &record.kind {
                remotes.extend(joins_at(note).map(str::to_owned));
            }
        });
        remotes
    }

    fn notes(&self, mut each: impl FnMut(&Record<'_>)) {
        let mut reader = Reader::new();
        reader.feed(&self.records);
        while let Some(record) = reader.next_record().expect("whole records") {
            each(&Record::parse(record.json().expect("JSON")).expect("a record"));
        }
    }

    /// The damage is not seen.
    pub fn ignore_damage(&mut self) {
        self.is_damaged = false;
    }

    /// Whether who opens the file does not have what it has promised to keep, and knows.
    pub fn must_join_again(&self) -> bool {
        let mut has_noted = false;
        self.notes(|record| {
            has_noted |= matches!(&record.kind, Kind::Note(note) if note == "forgot");
        });
        self.is_damaged || has_noted
    }

    /// Whether a server was a member as of an entry that is committed, or of the snapshot, and whether it is one.
    fn membership(&self, server: Uuid) -> (bool, bool) {
        let (mut lists, mut commit) = (vec![(0, (*self.front.mark.servers).clone())], 0);
        self.notes(|record| match &record.kind {
            Kind::CommitIndex(index) => commit = *index,
            Kind::Entry(entry) => {
                lists.retain(|(index, _)| *index < entry.index);
                lists.extend(entry.servers.clone().map(|servers| (entry.index, servers)));
            }
            _ => {}
        });
        lists.retain(|(index, _)| *index <= commit);
        let is_in = |(_, servers): &(u64, Servers)| servers.contains_key(&server);
        (lists.iter().any(is_in), lists.last().is_some_and(is_in))
    }

    /// The servers that a server which starts takes for members, unless it is opened no more.
    pub fn servers(&self, server: Uuid) -> Option<Servers> {
        let (opened, committed) = self.open((server, server), "", "", (0, usize::MAX))?;
        let servers = committed.into_iter().rev().find_map(|entry| match entry.content {
            Content::Servers(servers) => Some((*servers).clone()),
            _ => None,
        });
        Some(servers.unwrap_or(opened.snapshot_servers))
    }

    /// What a server finds when it starts, and what is committed of it. Of that no text but the
    /// last one stays in memory. Nothing if the server was removed, and has forgotten what it had promised.
    pub fn open(
        &self,
        (server, again): (Uuid, Uuid),
        name: &str,
        address: &str,
        (seed, texts_bytes_max): (u64, usize),
    ) -> Option<(Opened, Vec<Entry>)> {
        let front = &self.front;
        let (was_member, is_member) = self.membership(server);
        let mut opened = Opened {
            server,
            cluster: front.cluster,
            name: name.to_owned(),
            address: address.to_owned(),
            remotes: front.remotes.clone(),
            replaces: None,
            snapshot: front.mark.last,
            snapshot_eid: front.mark.eid,
            snapshot_servers: (*front.mark.servers).clone(),
            snapshot_timer: front.mark.election_timer,
            snapshot_len: front.data.len() as u64,
            entries: vec![],
            log_len: self.records.len() as u64,
            texts_bytes_max,
            term: front.mark.last.term,
            vote: None,
            commit: front.mark.last.index,
            seed,
        };
        if self.must_join_again() {
            if was_member && !is_member {
                return None;
            }
            let mut known = (*self.front.mark.servers).clone();
            self.notes(|record| {
                if let Kind::Entry(entry) = &record.kind {
                    known.extend(entry.servers.clone().unwrap_or_default());
                }
            });
            known.remove(&server);
            let remotes = known.into_values().chain(self.remotes());
            return Some((opened.anew(again, remotes.collect()), vec![]));
        }
        let mut reader = Reader::new();
        reader.feed(&self.records);
        while let Some(record) = reader.next_record().expect("whole records") {
            let (text, body, begins) = (record.json().expect("JSON"), record.body, record.offset);
            let place = |text: &[u8]| Place {
                offset: begins + (text.as_ptr() as usize - body.as_ptr() as usize) as u64,
                len: text.len() as u64,
            };
            let record = Record::parse(text).expect("a record");
            note(&mut opened, &record, place);
        }
        let mut committed = vec![];
        for logged in &mut opened.entries {
            let Held::Here(content) = &logged.held else { unreachable!("all have been read") };
            if logged.at.index <= opened.commit {
                committed.push(Entry { at: logged.at, content: content.clone() });
            }
            if let (Some(eid), true) = (content.eid(), logged.at.index < opened.commit) {
                logged.held = Held::InFile { eid };
            }
        }
        if !was_member {
            opened.remotes = self.remotes();
        }
        Some((opened, committed))
    }
}

fn note(opened: &mut Opened, record: &Record<'_>, place: impl Fn(&[u8]) -> Place) {
    let first = opened.snapshot.index + 1;
    let end = first + opened.entries.len() as u64;
    if record.term > opened.term {
        (opened.term, opened.vote) = (record.term, None);
    }
    match &record.kind {
        Kind::Note(_) | Kind::Term | Kind::Leader(_) => {}
        Kind::CommitIndex(index) => {
            assert!(*index < end, "a commit index beyond the log's end {end}: {index}");
            assert!(*index >= opened.commit, "a commit index that falls");
            opened.commit = *index;
        }
        Kind::Vote(id) => {
            assert!(record.term == opened.term, "a vote in an old term");
            assert!(opened.vote.is_none_or(|vote| vote == *id), "two votes in a term");
            opened.vote = Some(*id);
        }
        Kind::Entry(entry) => {
            assert!(entry.index > opened.commit, "an entry below the commit index");
            assert!((first..=end).contains(&entry.index), "a gap before {}", entry.index);
            opened.entries.truncate((entry.index - first) as usize);
            let content = match (&entry.data, &entry.servers, entry.election_timer) {
                (Some((text, eid)), ..) => {
                    Content::Data { eid: *eid, text: text.as_bytes().to_vec().into() }
                }
                (None, Some(servers), _) => Content::Servers(servers.clone().into()),
                (None, None, Some(ms)) => Content::ElectionTimer(ms),
                (None, None, None) => Content::Empty,
            };
            let at = Position { term: record.term, index: entry.index };
            let place = entry.data.as_ref().map(|(text, _)| place(text.as_bytes()));
            opened.entries.push(Logged { at, held: Held::Here(content), place });
        }
    }
}

/// Where the last whole record ends.
fn whole(records: &[u8]) -> usize {
    ends(records).last().copied().unwrap_or(0)
}

/// Where the whole records end.
fn ends(records: &[u8]) -> Vec<usize> {
    let mut reader = Reader::new();
    reader.feed(records);
    let mut ends = vec![];
    while let Ok(Some(_)) = reader.next_record() {
        ends.push(usize::try_from(reader.offset()).expect("it is in memory"));
    }
    ends
}
