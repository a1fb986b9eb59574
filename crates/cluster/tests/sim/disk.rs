//! A member's file: what is synced survives a crash, of the rest any beginning.

use weir_cluster::{Content, Entry, Mark, Opened, Position};
use weir_data::Uuid;
use weir_log::clustered::{Kind, Record};
use weir_log::record::Reader;

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

/// A file: its front, and records behind it.
#[derive(Clone, Debug)]
pub struct Disk {
    pub front: Front,
    pub records: Vec<u8>,
    pub synced: usize,
    /// The step that was written last, in this life.
    pub step: u64,
}

impl Disk {
    /// The power goes: of what was not synced, some is there.
    pub fn crash(&mut self, rng: &mut Rng) {
        let unsynced = self.records.len() - self.synced;
        let kept = self.synced + rng.below(unsynced as u64 + 1) as usize;
        self.records.truncate(kept);
        // A torn record is cut off before the next one is written.
        self.records.truncate(whole(&self.records));
        (self.synced, self.step) = (self.records.len(), 0);
    }

    /// What a server finds when it starts.
    pub fn open(&self, server: Uuid, name: &str, address: &str, seed: u64) -> Opened {
        let front = &self.front;
        let mut opened = Opened {
            server,
            cluster: front.cluster,
            name: name.to_owned(),
            address: address.to_owned(),
            remotes: front.remotes.clone(),
            snapshot: front.mark.last,
            snapshot_eid: front.mark.eid,
            snapshot_servers: (*front.mark.servers).clone(),
            snapshot_timer: front.mark.election_timer,
            snapshot_len: front.data.len() as u64,
            entries: vec![],
            term: front.mark.last.term,
            vote: None,
            commit: front.mark.last.index,
            seed,
        };
        let mut reader = Reader::new();
        reader.feed(&self.records);
        while let Some(record) = reader.next_record().expect("whole records") {
            let text = record.json().expect("JSON");
            let record = Record::parse(text).expect("a record");
            note(&mut opened, &record);
        }
        opened
    }
}

fn note(opened: &mut Opened, record: &Record<'_>) {
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
                    Content::Data { eid: *eid, text: text.as_bytes().into() }
                }
                (None, Some(servers), _) => Content::Servers(servers.clone().into()),
                (None, None, Some(ms)) => Content::ElectionTimer(ms),
                (None, None, None) => Content::Empty,
            };
            let at = Position { term: record.term, index: entry.index };
            opened.entries.push(Entry { at, content });
        }
    }
}

/// Where the last whole record ends.
fn whole(records: &[u8]) -> usize {
    let mut reader = Reader::new();
    reader.feed(records);
    let mut end = 0;
    while let Ok(Some(_)) = reader.next_record() {
        end = usize::try_from(reader.offset()).expect("it is in memory");
    }
    end
}
