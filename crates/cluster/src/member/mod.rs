//! One member: it owns a node of the raft library, the connections to its peers, and what it has
//! promised to write.

mod clock;
mod commands;
mod complaints;
mod copies;
mod delays;
mod failures;
mod found;
mod hanging;
mod joining;
mod links;
mod lost;
mod moving;
mod promises;
mod queries;
mod refused;
mod removing;
mod silence;
mod snapshots;
mod split;
mod starved;
mod steps;
mod texts;
mod untaken;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::Servers;

use crate::consensus::{Change, Mark, Node, Start, VOTE_ANSWER};
use crate::effect::{Effect, Level};
use crate::entry::{Content, ELECTION_TIMER_MS, Entry, Held, Logged, Proposal};
use crate::event::Event;
use crate::ids::{PLACE_MAX, Position};
use crate::member::clock::{Clock, TICKS_AT_ONCE};
use crate::member::complaints::Complaints;
use crate::member::delays::Delays;
use crate::member::hanging::Hanging;
use crate::member::joining::Joins;
pub(crate) use crate::member::joining::Phase;
use crate::member::moving::Moves;
use crate::member::promises::Promises;
use crate::member::refused::Refused;
use crate::member::removing::{Gone, Removals};
use crate::member::silence::Silence;
use crate::member::snapshots::Snapshots;
use crate::member::starved::Starved;
use crate::member::steps::Steps;
use crate::member::texts::Texts;
use crate::member::untaken::Untaken;
use crate::peers::Peers;
use crate::wire::Step;

pub use commands::TimerRefused;
pub use failures::Failure;
pub use found::Found;
pub use refused::NoRoom;
pub use silence::REMOVAL_TIMERS_MIN;

/// What a clustered file says when it is opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// This server's id.
    pub server: Uuid,
    /// The cluster's id, once it is known.
    pub cluster: Option<Uuid>,
    /// The database's name.
    pub name: String,
    /// Where this server listens for its peers.
    pub address: String,
    /// Where members may listen, for a server that has not joined yet; else empty.
    pub remotes: Vec<String>,
    /// Which member the server was before it forgot what that had promised, if it joins again.
    pub replaces: Option<Uuid>,
    /// The last entry in the file's snapshot; zeros if there is none.
    pub snapshot: Position,
    /// The id of the last entry in the file's snapshot.
    pub snapshot_eid: Uuid,
    /// The servers after the snapshot.
    pub snapshot_servers: Servers,
    /// The election timer after the snapshot, in milliseconds.
    pub snapshot_timer: u64,
    /// Bytes of the snapshot's data.
    pub snapshot_len: u64,
    /// What follows it, without gaps. All are in memory that are not committed.
    pub entries: Vec<Logged>,
    /// Bytes of the file behind its first record.
    pub log_len: u64,
    /// Texts of entries that have taken effect stay in memory within so many bytes, for members that
    /// lack them; others are read back from the file.
    pub texts_bytes_max: usize,
    /// The newest term.
    pub term: u64,
    /// For whom this server votes in that term.
    pub vote: Option<Uuid>,
    /// Entries up to this one are committed, and have taken effect in the tables.
    pub commit: u64,
    /// Randomness for election timeouts.
    pub seed: u64,
}

impl Opened {
    /// The server begins anew, as another one that asks at these places to be taken in: of that one
    /// nobody has heard a promise. Its file stays as it is until a snapshot takes its place.
    #[must_use]
    pub fn anew(self, server: Uuid, remotes: Vec<String>) -> Self {
        Self {
            server,
            replaces: Some(self.server),
            remotes,
            snapshot: Position::default(),
            snapshot_eid: Uuid::ZERO,
            snapshot_servers: Servers::new(),
            snapshot_len: 0,
            entries: Vec::new(),
            term: 0,
            vote: None,
            commit: 0,
            ..self
        }
    }

    /// Whether a member can begin with this: a file may say what no server writes.
    ///
    /// # Errors
    /// What is out of bounds, in words for the log.
    pub fn check(&self) -> Result<(), String> {
        let Position { term, index } = self.snapshot;
        let is_bad = |n: u64| n == 0 || n > PLACE_MAX;
        let is_none = self.snapshot == Position::default();
        if !is_none && (is_bad(term) || is_bad(index)) || self.term > PLACE_MAX {
            let newest = self.term;
            return Err(format!("snapshot up to {term}:{index} in term {newest} is out of bounds"));
        }
        let timers = self.entries.iter().filter_map(|entry| match &entry.held {
            Held::Here(Content::ElectionTimer(ms)) => Some(*ms),
            _ => None,
        });
        let mut timers = std::iter::once(self.snapshot_timer).chain(timers);
        if let Some(ms) = timers.find(|ms| !ELECTION_TIMER_MS.contains(ms)) {
            return Err(format!("election timer of {ms} ms is out of bounds"));
        }
        let mut entries = self.entries.iter().map(|entry| entry.at);
        match entries.find(|at| is_bad(at.term) || is_bad(at.index)) {
            Some(Position { term, index }) => Err(format!("entry {term}:{index} is out of bounds")),
            None => Ok(()),
        }
    }

    /// A server that begins anew asks at these places as well.
    pub fn may_join_at(&mut self, remotes: &[String]) {
        let is_new = |remote: &&String| !self.remotes.contains(remote);
        if self.replaces.is_some() {
            let new: Vec<String> = remotes.iter().filter(is_new).cloned().collect();
            self.remotes.extend(new);
        }
    }
}

/// What part a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The member decides what comes next.
    Leader,
    /// The member asks for votes.
    Candidate,
    /// The member does what a leader says.
    Follower,
}

/// The member does not lead, or not yet, or is handing leadership over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeader;

/// How far a server is in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// The server asks to be taken in.
    Joining,
    Member,
    /// The server asks to be let go.
    Leaving,
    Left,
    /// The server does not have what it has promised to keep.
    Forgotten,
}

/// This member's own elections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elections {
    pub(crate) started_us: Option<u64>,
    pub(crate) won_us: Option<u64>,
    pub(crate) is_transfer: bool,
    /// The term of the last one.
    term: u64,
}

/// One member of a cluster.
pub struct Member {
    pub(crate) cluster: Option<Uuid>,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) node: Node,
    pub(crate) peers: Peers,
    pub(crate) membership: Membership,
    /// As of the last entry that took effect.
    pub(crate) servers: Arc<Servers>,
    /// As of the last entry that took effect, in milliseconds.
    pub(crate) election_timer: u64,
    /// The id of the last entry that took effect and has one.
    applied_eid: Uuid,
    pub(crate) clock: Clock,
    pub(crate) steps: Steps,
    /// Entries of the leader are taken: see [`Member::take_entries`].
    takes_entries: bool,
    untaken: Untaken,
    texts: Texts,
    ids: found::Ids,
    pub(crate) joins: Joins,
    /// Where to ask to be taken in.
    pub(crate) remotes: Vec<String>,
    /// Who is to go for it.
    pub(crate) replaces: Option<Uuid>,
    /// Others can connect to it, as far as is known.
    listens: bool,
    /// When connections of strangers are looked at next, monotonic.
    idle_links_us: u64,
    promises: Promises,
    /// Who leads, in this term, others that have lost what is committed here.
    split: Option<(Uuid, u64)>,
    started_us: u64,
    moves: Moves,
    pub(crate) removals: Removals,
    pub(crate) snapshots: Snapshots,
    /// Members that have not heard of the end of a connection to them.
    untold: BTreeSet<Uuid>,
    /// When a request to a peer is to be said again.
    ask_again_us: u64,
    effects: VecDeque<Effect>,
    /// Who led when the server was told last.
    told_leader: Option<(Uuid, u64)>,
    /// Whether the member was connected when the log was told last.
    told_connected: Option<bool>,
    pub(crate) elections: Elections,
    /// The last leader has handed leadership over to this one.
    is_given_lead: bool,
    /// Since when no leader has been known, if none is; for a leader, that it cannot be left alone.
    leaderless_us: Option<u64>,
    /// A leader has been known since the start, who has committed something if it is this member.
    has_known_leader: bool,
    /// When anything was heard of each peer last.
    pub(crate) silence: Silence,
    starved: Starved,
    hanging: Hanging,
    refused: Refused,
    complaints: Complaints,
    pub(crate) delays: Delays,
    /// What goes wrong on purpose.
    failure: Option<Failure>,
    pub(crate) now_us: u64,
}

/// A peer that must answer is asked again after so long, in microseconds.
const ASK_AGAIN_US: u64 = 1_000_000;

impl Member {
    /// The member of an opened file.
    pub fn open(opened: Opened, now_us: u64) -> Self {
        let mark = Mark {
            last: opened.snapshot,
            eid: opened.snapshot_eid,
            servers: Arc::new(opened.snapshot_servers),
            election_timer: opened.snapshot_timer,
        };
        let (mut servers, mut election_timer) = (Arc::clone(&mark.servers), mark.election_timer);
        let (mut applied_eid, mut gone) = (mark.eid, Gone::before(mark.last.index));
        for entry in opened.entries.iter().filter(|entry| entry.at.index <= opened.commit) {
            match &entry.held {
                Held::Here(Content::Servers(new)) => {
                    gone.note(&servers, new, entry.at.index);
                    servers = Arc::clone(new);
                }
                Held::Here(Content::ElectionTimer(ms)) => election_timer = *ms,
                Held::Here(Content::Data { eid, .. }) | Held::InFile { eid } => applied_eid = *eid,
                Held::Here(Content::Empty) => {}
            }
        }
        let is_member = servers.contains_key(&opened.server);
        // The process ended before others knew that this server was removed: they may still need its vote.
        let is_departing = !is_member && gone.has(&opened.server);
        let membership = match (is_member, is_departing) {
            (true, _) => Membership::Member,
            (false, true) => Membership::Leaving,
            (false, false) => Membership::Joining,
        };
        let mut remotes = opened.remotes;
        if membership == Membership::Joining {
            // It may have got a snapshot when it stopped.
            let known: Vec<String> =
                servers.values().filter(|server| !remotes.contains(server)).cloned().collect();
            remotes.extend(known);
        }
        let node = Node::new(Start {
            id: opened.server,
            mark,
            servers: Arc::clone(&servers),
            term: opened.term,
            vote: opened.vote,
            commit: opened.commit.max(opened.snapshot.index),
            entries: opened.entries,
            seed: opened.seed,
        });
        let at_start = Position { term: node.term(), index: node.last() };
        let in_log = node.mark().last.index + 1..=node.last();
        let promises = Promises::new(at_start, in_log.filter_map(|index| node.position(index)));
        let mut member = Self {
            cluster: opened.cluster,
            name: opened.name,
            address: opened.address,
            node,
            peers: Peers::new(),
            membership,
            servers,
            election_timer,
            applied_eid,
            clock: Clock::new(now_us),
            steps: Steps::new(opened.log_len, opened.commit.max(opened.snapshot.index))
                .keep_file(opened.replaces.is_some()),
            takes_entries: true,
            untaken: Untaken::default(),
            texts: Texts::new(opened.texts_bytes_max),
            ids: found::Ids::default(),
            joins: Joins::default(),
            remotes,
            replaces: opened.replaces,
            listens: true,
            idle_links_us: now_us,
            promises,
            split: None,
            started_us: now_us,
            moves: Moves::default(),
            removals: Removals::new(gone, is_departing),
            snapshots: Snapshots::new(opened.snapshot_len),
            untold: BTreeSet::new(),
            ask_again_us: now_us,
            effects: VecDeque::new(),
            told_leader: None,
            told_connected: None,
            elections: Elections::default(),
            is_given_lead: false,
            leaderless_us: Some(now_us),
            has_known_leader: false,
            silence: Silence::default(),
            starved: Starved::default(),
            hanging: Hanging::default(),
            refused: Refused::default(),
            complaints: Complaints::default(),
            delays: Delays::new(now_us),
            failure: None,
            now_us,
        };
        let (id, address) = (member.id(), member.address.clone());
        member.told_of_address(id, &address);
        member.want_peers();
        let text = format!("local server ID is {}", short(member.id()));
        member.log(Level::Info, text);
        // Who is alone need not wait for others to be silent.
        if is_member && member.servers.len() == 1 {
            member.node.campaign();
        }
        member.pump();
        member
    }

    /// This server's id.
    pub fn id(&self) -> Uuid {
        self.node.id()
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, now_us: u64, event: Event) {
        self.now_us = now_us;
        self.ids.forget_unused(now_us);
        self.note_own_delay();
        for _ in 0..self.clock.ticks(now_us, self.election_timer) {
            self.look_for_hanging();
            self.look_for_refused();
            // The library must not campaign between two logs.
            if !self.snapshots.is_installing() {
                self.tick();
            }
        }
        match event {
            Event::Tick => {}
            Event::Persisted { step, result } => self.persisted(step, result),
            Event::Connected { link } => self.connected(link),
            Event::Accepted { link, name } => self.peers.accepted(now_us, link, name),
            Event::Received { link, bytes } => self.received(link, &bytes),
            Event::Lost { link, error } => self.lost(link, error),
            Event::CopyWritten { mark, len } => self.copy_written(mark, len),
            Event::CopyExtended => self.copy_extended(),
            Event::SnapshotRead { to, number, offset, result } => {
                self.snapshot_read(to, number, offset, result);
            }
            Event::TextsRead { result } => self.texts_read(result),
            Event::SnapshotWritten { last, result } => self.snapshot_written(last, result),
            Event::SnapshotLoaded { last, result } => self.snapshot_loaded(last, result),
        }
        self.pump();
    }

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When a [`Event::Tick`] is due, monotonic.
    pub fn wakeup_us(&self) -> u64 {
        // More would not all be counted when they have passed.
        let ticks = self.node.ticks_left().min(TICKS_AT_ONCE);
        let ticks = self.clock.due_us(ticks, self.election_timer);
        let own = [self.steps.again_us, self.snapshots.wakeup_us(), self.untaken_wakeup_us()];
        let others = [self.peers.wakeup_us(), self.ask_wakeup_us()];
        own.into_iter().chain(others).flatten().fold(ticks, u64::min)
    }

    /// Whether the member leads and has everything of the leaders before it.
    pub fn may_propose(&self) -> bool {
        self.node.may_propose() && !self.steps.is_failing() && !self.is_hanging_for_long()
    }

    /// What part the member has.
    pub fn role(&self) -> Role {
        match self.node.role() {
            raft::StateRole::Leader => Role::Leader,
            raft::StateRole::Follower => Role::Follower,
            raft::StateRole::Candidate | raft::StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// Who leads, if that is known.
    pub fn leader(&self) -> Option<Uuid> {
        self.node.leader()
    }

    /// The newest term that the member knows.
    pub fn term(&self) -> u64 {
        self.node.term()
    }

    /// Whether the server is a member, as far as it knows.
    pub fn is_member(&self) -> bool {
        matches!(self.membership, Membership::Member | Membership::Leaving)
    }

    /// Whether the server has asked to be let go.
    pub fn is_leaving(&self) -> bool {
        self.membership == Membership::Leaving
    }

    /// Whether the server is no member any more, nor will be.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.membership, Membership::Left | Membership::Forgotten)
    }

    /// Whether the server is a member no more, and only votes until others know that.
    pub fn is_departing(&self) -> bool {
        self.removals.is_departing()
    }

    /// The election timer in milliseconds.
    pub fn election_timer_ms(&self) -> u64 {
        self.election_timer
    }

    /// Whether the member is one of a cluster that does its work, as far as it can know: one that has
    /// known no leader since its start, or for as long as the election timer is, says no, and so does one whose disk has
    /// refused everything, or each snapshot, for so long, or has not answered, for it falls behind, or to which none of its
    /// leader's entries have come for several timers, or whose requests do not come to that.
    pub fn is_connected(&self) -> bool {
        let patience_us = self.election_timer * 1000;
        let is_alone = |since_us: u64| self.now_us.saturating_sub(since_us) > patience_us;
        let has_room = !self.is_stuck_for_long() && !self.lacks_snapshot_for_long();
        let takes_part = self.is_member() && !self.is_departing();
        takes_part
            && self.has_known_leader
            && has_room
            && !self.is_starved_for_long()
            && !self.is_hanging_for_long()
            && !self.is_cut_from_leader()
            && !self.is_split()
            && !self.leaderless_us.is_some_and(is_alone)
    }

    /// Whether no snapshot could be kept for as long as the election timer is.
    pub(crate) fn lacks_snapshot_for_long(&self) -> bool {
        self.snapshots.are_refused_for(self.election_timer * 1000, self.now_us)
    }

    /// Whether the file has refused everything for as long as the election timer is.
    pub(crate) fn is_stuck_for_long(&self) -> bool {
        self.steps.is_failing_for(self.election_timer * 1000, self.now_us)
    }

    /// The last entry that is committed.
    pub fn committed(&self) -> u64 {
        self.node.commit()
    }

    /// Whether entries of the leader are taken. They may be refused while there is no room for more
    /// that have not taken effect: the leader sends them again when some are taken, and its heartbeats are heard.
    pub fn take_entries(&mut self, takes: bool) {
        self.takes_entries = takes;
    }

    /// The place of the entry of this index, unless it is in the file's snapshot or not there yet.
    pub fn position(&self, index: u64) -> Option<Position> {
        self.node.position(index)
    }

    /// Proposes the next entries: they stand one after another from the answered place on, and are
    /// committed if they still stand there when [`Effect::Commit`] comes to it.
    ///
    /// # Errors
    /// The member does not lead, or has not got everything of the leaders before it.
    pub fn propose(&mut self, now_us: u64, batch: Vec<Proposal>) -> Result<Position, NotLeader> {
        self.now_us = now_us;
        if !self.may_propose() {
            return Err(NotLeader);
        }
        let contents = batch.into_iter().map(|Proposal { eid, text }| Content::Data { eid, text });
        let at = self.node.propose(contents.collect()).ok_or(NotLeader)?;
        self.pump();
        Ok(at)
    }

    /// Does what the library wants to be done, until it wants nothing.
    fn pump(&mut self) {
        self.take_announced();
        self.answer_untaken();
        loop {
            while let Some(ready) = self.node.ready() {
                self.process(ready);
            }
            self.give_up_unwritten();
            self.node.forget_fetched();
            let has_restored = self.restore_loaded();
            if !self.go_on() && !has_restored {
                break;
            }
        }
        self.manage_texts();
        self.let_go();
        self.end_idle_links();
        self.tell_leader();
        self.tell_connected();
        self.ask();
        self.peers.connect(self.now_us);
        self.tell_of_lost();
        self.gather();
    }

    fn process(&mut self, ready: crate::consensus::Ready) {
        for (to, step) in ready.messages {
            self.say(to, step);
        }
        for to in ready.behind {
            self.begin_snapshot(to);
        }
        let reads = ready.reads.into_iter();
        self.effects.extend(reads.map(|(number, index)| Effect::ReadIndex { number, index }));
        let (vote, commit) = (ready.vote, ready.commit);
        let acknowledgements = ready.acknowledgements;
        if let Some(last) = ready.snapshot {
            self.install(ready.number, last, vote, acknowledgements);
        } else {
            let step = self.steps.write(ready.number, vote, &ready.entries, commit, self.now_us);
            match step {
                steps::Written::Step(effect) => {
                    self.gather();
                    self.effects.extend(effect);
                    self.steps.wait(acknowledgements);
                }
                steps::Written::Behind => self.steps.wait(acknowledgements),
                steps::Written::Nothing => {
                    self.reached_disk(ready.number, acknowledgements);
                }
            }
        }
        self.commit(ready.committed);
    }

    fn commit(&mut self, committed: Vec<Entry>) {
        let Some(last) = committed.last().map(|entry| entry.at.index) else { return };
        for entry in &committed {
            match &entry.content {
                Content::Servers(servers) => self.change_servers(servers, entry.at.index),
                Content::ElectionTimer(ms) => self.change_timer(*ms),
                Content::Data { eid, .. } => self.applied_eid = *eid,
                Content::Empty => {}
            }
        }
        self.node.has_applied(last);
        self.snapshots.lack_nothing();
        let of_servers = |entry: &&Entry| matches!(entry.content, Content::Servers(_));
        let servers = committed.iter().rfind(of_servers);
        let effect = servers.and_then(|entry| self.steps.write_commit_of_servers(entry.at.index));
        self.gather();
        self.effects.extend(effect);
        self.effects.push_back(Effect::Commit(committed));
    }

    fn change_servers(&mut self, servers: &Arc<Servers>, index: u64) {
        let before = std::mem::replace(&mut self.servers, Arc::clone(servers));
        for change in Change::between(&before, servers) {
            self.node.change(change);
        }
        self.look_for_moves();
        self.want_peers();
        self.servers_changed(&before, index);
    }

    fn change_timer(&mut self, ms: u64) {
        let before = std::mem::replace(&mut self.election_timer, ms);
        if before != ms {
            self.log(Level::Info, format!("Election timer changed from {before} to {ms}"));
        }
    }

    /// Connections to whom to tell something.
    fn want_peers(&mut self) {
        let mut wanted: BTreeMap<String, Option<Uuid>> = BTreeMap::new();
        if !self.is_gone() {
            wanted.extend(self.remotes.iter().map(|remote| (remote.clone(), None)));
            // One that has moved does not look for itself where it was.
            let own = self.id();
            let others = self.servers.iter().filter(|(id, _)| **id != own);
            // Who joins may have a list from long ago: whoever is there now can take it in.
            let is_joining = self.membership == Membership::Joining;
            let name = |id: &Uuid| (!is_joining).then_some(*id);
            let known = others.map(|(id, address)| (address.clone(), name(id)));
            wanted.extend(known);
            wanted.extend(self.joins.wanted());
            wanted.remove(&self.address);
        }
        let closed = self.peers.want(&wanted);
        closed.iter().for_each(|link| self.link_gone(link));
    }

    fn gather(&mut self) {
        self.effects.extend(self.peers.take_effects());
    }

    fn persisted(&mut self, step: u64, result: Result<u64, String>) {
        self.has_noted(step);
        match result {
            Ok(took_us) => {
                let Some(persisted) = self.steps.persisted(step, took_us) else { return };
                let lengths = persisted.texts.iter().map(|(_, place)| place.len as usize);
                self.refused.has_room(lengths);
                persisted.texts.into_iter().for_each(|(at, place)| self.node.placed(at, place));
                if persisted.has_recovered {
                    let text = format!("{}: the log can be written again", self.name);
                    self.log_limited("disk", Level::Info, text);
                }
                self.node.persisted(persisted.number);
                if persisted.has_installed {
                    self.installed();
                    if self.crash_if(Failure::CrashBeforeInstallReply) {
                        return;
                    }
                }
                self.note_disk(took_us);
                if persisted.has_finished {
                    self.finished();
                }
                let acknowledgements = persisted.acknowledgements.into_iter();
                acknowledgements.for_each(|(to, step)| self.say(to, step));
            }
            Err(error) => {
                let failed = self.steps.failed(step, self.now_us);
                if let Some(released) = failed.released {
                    self.reached_disk(released.number, released.acknowledgements);
                }
                if failed.is_news {
                    let text = format!("{}: cannot write log: {error}", self.name);
                    self.log_limited("disk", Level::Error, text);
                }
                self.snapshots.copies.note_failure(self.steps.is_finishing());
                if !failed.is_of_log {
                    // What was to follow a copy is not what is given up.
                    let again = self.steps.again(self.now_us);
                    self.effects.extend(again);
                }
                self.refused.note(self.steps.no_room(), self.now_us);
                // Others can do what this one cannot.
                if let Some(successor) = self.successor().filter(|_| failed.is_of_log) {
                    self.node.transfer(successor);
                }
            }
        }
    }

    /// Entries that the file refuses must not keep votes from it: who does not lead is as if they had
    /// never come, or as if the snapshot had not that could not take the file's place. The leader of the
    /// day sends it again.
    fn give_up_unwritten(&mut self) {
        if self.node.is_leader() || !self.steps.may_give_up() {
            return;
        }
        self.node.forget_unwritten();
        let (term, vote, commit) = (self.node.term(), self.node.vote(), self.node.commit());
        let is_vote = |step: &Step| step.kind == VOTE_ANSWER && step.term == term;
        let effects = self.steps.give_up((term, vote), commit, is_vote, self.now_us);
        self.note_refused();
        self.gather();
        self.effects.extend(effects);
        self.give_up_install();
    }

    /// All up to what the library calls `number` is on the disk: what waited for that leaves.
    fn reached_disk(&mut self, number: u64, acknowledgements: Vec<(Uuid, Step)>) {
        self.node.persisted(number);
        acknowledgements.into_iter().for_each(|(to, step)| self.say(to, step));
    }

    fn note_election(&mut self) {
        let (role, term) = (self.role(), self.node.term());
        if role == Role::Follower || self.elections.term == term {
            return;
        }
        self.elections.term = term;
        self.elections.started_us = Some(self.now_us);
        self.elections.is_transfer = std::mem::take(&mut self.is_given_lead);
        let text = if self.elections.is_transfer {
            format!("term {term}: starting election to take over leadership")
        } else {
            let ms = self.delays.silent_us(self.now_us) / 1000;
            let what = if self.node.only_asks() { "prevote" } else { "election" };
            format!("term {term}: {ms} ms timeout expired, starting {what}")
        };
        self.log_limited("election", Level::Info, text);
    }

    /// Tells whoever debugs whether the member is one of a cluster that works, if that has changed.
    fn tell_connected(&mut self) {
        let is_connected = self.is_connected();
        if self.told_connected.replace(is_connected) != Some(is_connected) {
            self.log(Level::Debug, format!("raft_is_connected: {is_connected}"));
        }
    }

    /// Tells the server who leads, if that has changed. A leader of a newer term is another one: it has
    /// forgotten what it was asked before.
    fn tell_leader(&mut self) {
        self.note_election();
        let (leader, term) = (self.node.leader(), self.node.term());
        match leader {
            Some(leader) => {
                self.leaderless_us = None;
                // What a file holds for certain a leader knows once it has committed something.
                self.has_known_leader |= leader != self.id() || self.node.may_propose();
                self.is_found();
            }
            None => _ = self.leaderless_us.get_or_insert(self.now_us),
        }
        let of_term = leader.map(|id| (id, term));
        if of_term == self.told_leader {
            return;
        }
        if self.told_leader.is_some_and(|(id, _)| id == self.id()) {
            self.delays.note_led(self.now_us);
        }
        self.told_leader = of_term;
        match leader {
            Some(id) if id == self.id() => {
                let (votes, of) = (self.servers.len() / 2 + 1, self.servers.len());
                let text = format!("term {term}: elected leader by {votes}+ of {of} servers");
                self.elections.won_us = Some(self.now_us);
                self.log(Level::Info, text);
                if self.take_failure(Failure::Transfer) {
                    self.give_lead_away();
                }
            }
            Some(id) => {
                let text = format!("server {} is leader for term {term}", self.nickname(id));
                self.log(Level::Info, text);
            }
            None => {}
        }
        self.leader_changed();
        self.effects.push_back(Effect::Leadership { leader });
    }

    /// Whether this server can listen at its address.
    pub fn set_listens(&mut self, listens: bool) {
        self.listens = listens;
    }

    pub(crate) fn nickname(&self, id: Uuid) -> String {
        crate::status::nickname(id, self.servers.get(&id).map(String::as_str))
    }

    /// A server as logs call one that may not be a member.
    fn named(&self, id: Uuid, address: &str) -> String {
        format!("{} ({} at {address})", crate::status::nickname(id, Some(address)), short(id))
    }

    fn cluster_name(&self) -> String {
        self.cluster.map_or_else(|| "not yet known".to_owned(), short)
    }

    fn log(&mut self, level: Level, text: String) {
        self.effects.push_back(Effect::Log { level, text, limit: None });
    }

    /// Logs what others can provoke as often as they like; `place` is where in the program.
    fn log_limited(&mut self, place: &'static str, level: Level, text: String) {
        self.effects.push_back(Effect::Log { level, text, limit: Some(place) });
    }
}

/// The first four digits of an id, as the reference shows it.
pub(crate) fn short(id: Uuid) -> String {
    id.to_string()[..4].to_owned()
}

#[cfg(test)]
mod tests;
