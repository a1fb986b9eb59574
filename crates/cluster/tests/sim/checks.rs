//! What must always hold, whatever goes wrong.
//!
//! 1. One leader a term.
//! 2. One entry an index: what was committed once is the same everywhere, for ever.
//! 3. Entries take effect in order, each once.
//! 4. A server votes once in a term, over all its lives.
//! 5. What is committed is on the disks of most of the servers, synced.
//! 6. All members of the same index have the same servers and the same election timer.
//! 7. A snapshot says what was committed.
//! 8. Who is elected has everything that was committed in terms before.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::{Content, Entry, Mark, Member};
use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::shell::Server;

/// How often things have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub acknowledged: u64,
    pub elections: u64,
    /// Snapshots of other members that were installed.
    pub snapshots: u64,
    /// Snapshots of other members that could not take the file's place.
    pub lost_snapshots: u64,
    /// Failed fdatasync(2)s.
    pub suspect: u64,
    pub compactions: u64,
    /// Connections that were silent until the system ended them.
    pub timed_out: u64,
    /// Parts that were appended to copies of files before these took the files' place.
    pub extensions: u64,
    /// Questions what is committed that were answered.
    pub reads: u64,
    /// Times that texts of entries were read back.
    pub texts_read: u64,
    pub crashes: u64,
    /// Files that were not what they had been when their server came back.
    pub forgotten: u64,
    /// Times that a server heard of others that it had forgotten something.
    pub hindered: u64,
    /// Entries that changed the servers.
    pub changes: u64,
    /// Entries that changed the election timer.
    pub timers: u64,
    pub left: u64,
    /// Members that were to be removed since they were silent.
    pub silent: u64,
    /// Leaders that could not get rid of a long entry that their disk refused.
    pub too_long: u64,
    /// Members that came back at another address.
    pub moves: u64,
    /// Most election timers that it took until all was well after faults.
    pub settled_timers: u64,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.elections += other.elections;
        self.snapshots += other.snapshots;
        self.lost_snapshots += other.lost_snapshots;
        self.suspect += other.suspect;
        self.compactions += other.compactions;
        self.timed_out += other.timed_out;
        self.extensions += other.extensions;
        self.texts_read += other.texts_read;
        self.reads += other.reads;
        self.crashes += other.crashes;
        self.forgotten += other.forgotten;
        self.hindered += other.hindered;
        self.changes += other.changes;
        self.timers += other.timers;
        self.left += other.left;
        self.moves += other.moves;
        self.silent += other.silent;
        self.too_long += other.too_long;
        self.settled_timers = self.settled_timers.max(other.settled_timers);
    }
}

/// What was seen so far.
pub struct Checks {
    /// Entries that somebody has seen committed.
    pub committed: BTreeMap<u64, Entry>,
    /// The term of who told that first: it was committed in that term, or before.
    known_in: BTreeMap<u64, u64>,
    /// All servers from an index on.
    servers: BTreeMap<u64, Arc<Servers>>,
    /// The election timer from an index on.
    timers: BTreeMap<u64, u64>,
    leaders: BTreeMap<u64, Uuid>,
    votes: BTreeMap<(Uuid, u64), Uuid>,
    /// What was committed when somebody asked what is, by the question's number.
    asked: Vec<u64>,
    pub counts: Counts,
}

impl Checks {
    pub fn new(first: u64, servers: Arc<Servers>, timer: u64) -> Self {
        Self {
            committed: BTreeMap::new(),
            servers: BTreeMap::from([(0, Arc::default()), (first, servers)]),
            timers: BTreeMap::from([(0, timer)]),
            known_in: BTreeMap::new(),
            leaders: BTreeMap::new(),
            votes: BTreeMap::new(),
            asked: vec![],
            counts: Counts::default(),
        }
    }

    /// All servers as of an index.
    pub fn servers_at(&self, index: u64) -> &Servers {
        self.servers.range(..=index).next_back().expect("there is a first one").1
    }

    /// All servers as of the last entry that is committed.
    pub fn last_servers(&self) -> &Servers {
        self.servers_at(u64::MAX)
    }

    /// The last index that is committed.
    pub fn last(&self) -> u64 {
        self.committed.keys().next_back().copied().unwrap_or_default()
    }

    /// Whether a server has ever been a member.
    pub fn was_member(&self, id: Uuid) -> bool {
        self.servers.values().any(|servers| servers.contains_key(&id))
    }

    fn timer_at(&self, index: u64) -> u64 {
        *self.timers.range(..=index).next_back().expect("there is a first one").1
    }

    pub fn leads(&mut self, member: &Member) {
        self.counts.elections += 1;
        let (id, term) = (member.id(), member.term());
        let other = self.leaders.insert(term, id);
        assert!(other.is_none_or(|other| other == id), "two leaders in term {term}");
        // A leader of an earlier term, elected by votes that were long on their way, need not have it.
        let is_before = |index: &u64| self.known_in[index] < term;
        let last = self.committed.keys().rev().find(|index| is_before(index));
        if let Some(last) = last.map(|index| &self.committed[index]) {
            let index = last.at.index;
            let has_it = index < member.first_index() || member.position(index) == Some(last.at);
            assert!(has_it, "{id} leads in term {term}, and does not have {:?}", last.at);
        }
    }

    /// A vote is on the disk, so that it may have been said.
    pub fn votes(&mut self, server: Uuid, term: u64, vote: Uuid) {
        let before = *self.votes.entry((server, term)).or_insert(vote);
        assert_eq!(before, vote, "server {server} votes once in term {term}");
    }

    /// An entry takes effect at a server.
    pub fn applies(&mut self, n: usize, entry: &Entry, servers: &[Server]) {
        let index = entry.at.index;
        if let Some(seen) = self.committed.get(&index) {
            assert_eq!(seen, entry, "one entry at index {index}, server {n}");
            return;
        }
        match &entry.content {
            Content::Servers(servers) => {
                self.counts.changes += 1;
                self.servers.insert(index, Arc::clone(servers));
            }
            Content::ElectionTimer(ms) => {
                self.counts.timers += 1;
                self.timers.insert(index, *ms);
            }
            Content::Empty | Content::Data { .. } => {}
        }
        let term = servers[n].member.as_ref().expect("it has just told").term();
        self.known_in.insert(index, term);
        self.is_durable(entry, servers);
        self.committed.insert(index, entry.clone());
    }

    /// Somebody asks what is committed: the question's number.
    pub fn asks(&mut self) -> u64 {
        self.asked.push(self.committed.keys().next_back().copied().unwrap_or_default());
        self.asked.len() as u64 - 1
    }

    /// A leader has answered such a question: it knows of all that anybody had seen committed then.
    pub fn is_fresh(&mut self, n: usize, number: u64, index: u64) {
        let seen = self.asked[usize::try_from(number).expect("it was asked")];
        assert!(index >= seen, "server {n} says {index} is the last one, {seen} was seen before");
        self.counts.reads += 1;
    }

    /// What is committed is on most disks: of the servers of that time, or of those before.
    fn is_durable(&self, entry: &Entry, servers: &[Server]) {
        let has_it = |id: &&Uuid| {
            let of = servers.iter().find(|server| server.id == **id);
            let is_there = of.is_some_and(|server| server.disk.is_durable(entry.at));
            // What was acknowledged before it was gone counts until the leader hears of that.
            let mut lost = servers.iter().flat_map(|server| &server.lost);
            is_there || lost.any(|(of, disk)| of == *id && disk.is_durable(entry.at))
        };
        let is_on_most = |of: &Servers| of.keys().filter(has_it).count() > of.len() / 2;
        let mut lists = self.servers.range(..=entry.at.index).rev().take(2);
        let is_durable = lists.any(|(_, list)| is_on_most(list));
        assert!(is_durable, "{:?} is committed, and is not on the disks of most", entry.at);
    }

    /// A member is as its index says.
    pub fn agrees(&self, n: usize, member: &Member, applied_to: u64) {
        let expected = self.servers_at(applied_to);
        assert_eq!(member.servers(), expected, "servers at index {applied_to}, server {n}");
        if member.is_member() {
            let timer = self.timer_at(applied_to);
            assert_eq!(member.election_timer_ms(), timer, "timer at {applied_to}, server {n}");
        }
    }

    /// A snapshot of a member is in another one's tables.
    pub fn snapshot(&self, n: usize, mark: &Mark, applied: &BTreeMap<u64, Uuid>) {
        let index = mark.last.index;
        if let Some(last) = self.committed.get(&index) {
            assert_eq!(last.at, mark.last, "the last entry of a snapshot, server {n}");
        }
        assert_eq!(*mark.servers, *self.servers_at(index), "servers of a snapshot, server {n}");
        assert_eq!(mark.election_timer, self.timer_at(index), "timer of a snapshot, server {n}");
        self.has_all(n, applied, index);
        let eid = applied.values().next_back();
        assert_eq!(eid, Some(&mark.eid), "the id of a snapshot, server {n}");
    }

    /// What a server has is what was committed up to an index, neither more nor less.
    pub fn has_all(&self, n: usize, applied: &BTreeMap<u64, Uuid>, upto: u64) {
        let expected = self.committed.range(..=upto).filter_map(|(index, entry)| {
            let eid = entry.content.eid()?;
            Some((*index, eid))
        });
        let first = self.committed.keys().next().copied().unwrap_or(u64::MAX);
        let has = applied.range(first..).map(|(index, eid)| (*index, *eid));
        assert!(expected.eq(has), "server {n} has what was committed up to {upto}");
    }
}
