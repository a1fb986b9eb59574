//! One node of the raft library.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use raft::prelude::{
    ConfChange, ConfChangeType, ConfState, HardState, Message, MessageType, Snapshot,
};
use raft::{Config, ProgressState, RawNode, SnapshotStatus, StateRole};
use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::check::{self, Odd};
use super::disk::Disk;
use super::messages::{
    APPEND, APPEND_ANSWER, COMMIT, HEARTBEAT, TIMEOUT_NOW, as_many_as_fit, is_free, to_message,
    to_step,
};
use super::servers::Numbers;
use super::store::{Fetch, Mark, Store};
use super::{ELECTION_TICKS, ELECTION_TICKS_MORE, HEARTBEAT_TICKS};
use crate::entry::{Content, Entry, Logged, Place};
use crate::ids::Position;
use crate::wire::Step;

/// Bytes of texts in one message, or one entry.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of texts in a message, or one entry, to a member of which it is not known where its log ends, or that has lost a
/// connection: the answer says from where on it lacks entries.
const PROBE_BYTES_MAX: usize = 64 << 10;

/// Such a message is not sent again on the same connection before its answer can have come: an election timer, and
/// another one for each so many bytes.
const PROBE_BYTES_PER_TIMER: u64 = 1 << 20;

/// Such a message is sent again after so many election timers at the latest, whatever became of it.
const PROBE_TIMERS_MAX: u64 = 64;

/// Messages with entries that are under way to a member.
const MESSAGES_IN_FLIGHT: usize = 64;

/// Bytes of entries that take effect between two looks at other things.
const COMMITTED_BYTES_MAX: u64 = 4 << 20;

/// What a node starts with: what its file says.
pub(crate) struct Start {
    pub(crate) id: Uuid,
    pub(crate) mark: Mark,
    /// The servers as of the commit index.
    pub(crate) servers: Arc<Servers>,
    pub(crate) term: u64,
    pub(crate) vote: Option<Uuid>,
    /// Entries up to this one are committed, and have taken effect.
    pub(crate) commit: u64,
    pub(crate) entries: Vec<Logged>,
    pub(crate) seed: u64,
}

/// What the library wants to be done.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// To be answered with [`Node::persisted`] when all below is on the disk.
    pub(crate) number: u64,
    /// The term and for whom the node votes in it, if they have changed.
    pub(crate) vote: Option<(u64, Option<Uuid>)>,
    /// Entries to be written: the first one's index may be there already, then it replaces what is
    /// there and all behind it.
    pub(crate) entries: Vec<Entry>,
    /// The commit index, if it has changed.
    pub(crate) commit: Option<u64>,
    /// The log is to start from this snapshot.
    pub(crate) snapshot: Option<Position>,
    /// What leaves now.
    pub(crate) messages: Vec<(Uuid, Step)>,
    /// What leaves when all above is on the disk.
    pub(crate) acknowledgements: Vec<(Uuid, Step)>,
    /// Members that need a snapshot.
    pub(crate) behind: Vec<Uuid>,
    /// Entries that take effect.
    pub(crate) committed: Vec<Entry>,
    /// What [`Node::read_index`] was given, and the entry up to which all was committed then.
    pub(crate) reads: Vec<(u64, u64)>,
}

/// A member as its leader sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The next entry that it is sent.
    pub(crate) next_index: u64,
    /// The member has all entries up to this one.
    pub(crate) match_index: u64,
    /// The member knows that entries up to this one are committed.
    pub(crate) committed: u64,
    /// The member is being sent a snapshot.
    pub(crate) is_in_snapshot: bool,
}

/// One node.
pub(crate) struct Node {
    raw: RawNode<Store>,
    numbers: Numbers,
    seed: u64,
    /// The log before a snapshot that is not in the file's place yet, who voted then, and what of it is on the disk.
    before: Option<(Store, ConfState, Disk)>,
    disk: Disk,
    /// Ticks so far.
    ticks: u64,
    /// The last term in which the node has led: in no later one it says what only a leader says.
    led: u64,
    /// To whom entries were sent of whom it is not known where their logs end, by number.
    probes: BTreeMap<u64, Probe>,
    /// Members, by number, whose answers may have been lost: they are asked once more what they have.
    unsure: BTreeSet<u64>,
    /// Answers were given up with what could not be written: the next [`COMMIT`] is answered.
    owes_answer: bool,
}

/// Entries that were sent to find out where a member's log ends.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The leader's term, and the entry before them.
    behind: (u64, u64),
    /// Until this tick the answer may be on its way.
    until: u64,
}

impl Node {
    pub(crate) fn new(start: Start) -> Self {
        let mut numbers = Numbers::default();
        let id = numbers.of(start.id);
        let commit = start.commit;
        let voters = numbers.voters(&start.mark.servers);
        let first_voters = numbers.voters(&start.servers);
        let vote = start.vote.map_or(0, |vote| numbers.of(vote));
        let hard =
            HardState { term: start.term, vote, commit: start.commit, ..HardState::default() };
        let store = Store::new(start.mark, (voters, first_voters), hard, start.entries);
        let disk = Disk::new(store.last());
        let raw = raw_node(id, commit, store);
        let mut node = Self {
            raw,
            numbers,
            seed: start.seed,
            before: None,
            disk,
            ticks: 0,
            led: 0,
            probes: BTreeMap::new(),
            unsure: BTreeSet::new(),
            owes_answer: false,
        };
        node.has_stepped();
        node
    }

    /// The library may have changed role or term. It draws election timeouts from randomness of its own: they are a
    /// function of the seed, the term and the role instead.
    fn has_stepped(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader {
            self.led = raft.term;
        }
        let mut n = self.seed ^ raft.term.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (raft.state as u64);
        // splitmix64
        n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^= n >> 31;
        let ticks = ELECTION_TICKS + n % (ELECTION_TICKS_MORE + 1);
        raft.set_randomized_election_timeout(usize::try_from(ticks).expect("ticks are few"));
    }

    pub(crate) fn id(&self) -> Uuid {
        self.numbers.id(self.raw.raft.id).expect("a node has a number")
    }

    pub(crate) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    pub(crate) fn vote(&self) -> Option<Uuid> {
        self.numbers.id(self.raw.raft.vote)
    }

    pub(crate) fn role(&self) -> StateRole {
        self.raw.raft.state
    }

    pub(crate) fn leader(&self) -> Option<Uuid> {
        self.numbers.id(self.raw.raft.leader_id)
    }

    /// Whether the node asks who would vote for it, before it begins a term.
    pub(crate) fn only_asks(&self) -> bool {
        self.role() == StateRole::PreCandidate
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.role() == StateRole::Leader
    }

    /// Whether the node leads and everything has taken effect that leaders before it have left.
    pub(crate) fn may_propose(&self) -> bool {
        let raft = &self.raw.raft;
        // A leader may find its own removal in what the leader before it has left.
        let is_member = raft.prs().get(raft.id).is_some();
        self.is_leader()
            && is_member
            && raft.apply_to_current_term()
            && raft.lead_transferee.is_none()
    }

    pub(crate) fn commit(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    pub(crate) fn applied(&self) -> u64 {
        self.raw.raft.raft_log.applied
    }

    pub(crate) fn last(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    pub(crate) fn mark(&self) -> &Mark {
        self.raw.store().mark()
    }

    /// The place of the entry of this index, if the log has it, or it is the snapshot's last one.
    pub(crate) fn position(&self, index: u64) -> Option<Position> {
        // Of an index that the log does not reach back to, or on to, the library says 0.
        let term = self.raw.raft.raft_log.term(index).ok().filter(|term| *term > 0)?;
        Some(Position { term, index })
    }

    /// The entry of this index, if the log has it; its text must be in memory, as all are that have
    /// not taken effect, and those that [`Node::release`] left. The last one of the snapshot has no
    /// content.
    pub(crate) fn entry(&self, index: u64) -> Option<Entry> {
        let at = self.position(index)?;
        if at == self.mark().last {
            return Some(Entry { at, content: Content::Empty });
        }
        let content = self.raw.store().content(at).expect("its text is in memory");
        Some(Entry { at, content })
    }

    /// Indexes of the entries in the log that have not taken effect. A snapshot that has still to take effect may be
    /// a thousand million entries ahead of what has.
    pub(crate) fn open_entries(&self) -> RangeInclusive<u64> {
        self.applied().max(self.mark().last.index) + 1..=self.last()
    }

    /// The id of the entry of this index, if the log has it and it has one.
    pub(crate) fn eid(&self, index: u64) -> Option<Uuid> {
        self.raw.store().eid(self.position(index)?)
    }

    /// The file has the text of an entry.
    pub(crate) fn placed(&mut self, at: Position, place: Place) {
        self.raw.mut_store().placed(at, place);
    }

    /// Texts of entries that have taken effect, up to this one at most, leave memory beyond so many
    /// bytes.
    pub(crate) fn release(&mut self, upto: u64, bytes_max: usize) {
        let upto = upto.min(self.applied());
        self.raw.mut_store().release(upto, bytes_max);
    }

    /// Bytes of the entries in memory.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.raw.store().bytes()
    }

    /// What to read next from the file for a member that lacks entries whose texts are not in
    /// memory.
    pub(crate) fn next_fetch(&mut self) -> Option<Fetch> {
        self.raw.mut_store().next_fetch()
    }

    /// Texts have been read back: members that lack them are sent them.
    ///
    /// # Errors
    /// What was read is not what was written.
    pub(crate) fn fetched(&mut self, fetch: &Fetch, bytes: &[u8]) -> Result<(), String> {
        self.raw.mut_store().fetched(fetch, bytes)?;
        if !self.is_leader() {
            self.forget_fetched();
            return Ok(());
        }
        let own = self.raw.raft.id;
        let lacks = |(number, progress): (&u64, &raft::Progress)| {
            (*number != own && self.raw.store().has_fetched(progress.next_idx)).then_some(*number)
        };
        let lacking: Vec<u64> = self.raw.raft.prs().iter().filter_map(lacks).collect();
        lacking.into_iter().for_each(|number| self.raw.raft.send_append(number));
        Ok(())
    }

    /// Whoever lacked what has been read back has been sent it.
    pub(crate) fn forget_fetched(&mut self) {
        self.raw.mut_store().forget_fetched();
    }

    /// How far the members are, if this one leads.
    pub(crate) fn progress(&self) -> BTreeMap<Uuid, Progress> {
        let progress = |(number, progress): (&u64, &raft::Progress)| {
            let of = Progress {
                next_index: progress.next_idx,
                match_index: progress.matched,
                committed: progress.committed_index,
                is_in_snapshot: progress.state == ProgressState::Snapshot,
            };
            (self.numbers.id(*number).expect("it has a number"), of)
        };
        if !self.is_leader() {
            return BTreeMap::new();
        }
        self.raw.raft.prs().iter().map(progress).collect()
    }

    /// Whether a server votes for this one, which asks for votes.
    pub(crate) fn is_voting_for_us(&self, id: Uuid) -> bool {
        let is_asking = matches!(self.role(), StateRole::Candidate | StateRole::PreCandidate);
        let mut votes = self.raw.raft.prs().votes().iter();
        is_asking && votes.any(|(number, vote)| *vote && self.numbers.id(*number) == Some(id))
    }

    /// Ticks until the node has something to do by itself.
    pub(crate) fn ticks_left(&self) -> u64 {
        let raft = &self.raw.raft;
        let left = if self.is_leader() {
            raft.heartbeat_timeout().saturating_sub(raft.heartbeat_elapsed())
        } else {
            raft.randomized_election_timeout().saturating_sub(raft.election_elapsed)
        };
        (left as u64).max(1)
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        // Who waits for its disk does not campaign: it must not lead before it has what it has.
        let is_waiting = !self.is_leader() && !check::is_persisted(&self.raw.raft);
        if !is_waiting || self.ticks_left() > 1 {
            self.raw.tick();
        }
        self.has_stepped();
    }

    /// Asks for votes now, unless entries are on their way to the disk: the next tick tries again. Who is no voter
    /// cannot lead, and would win where nobody votes.
    pub(crate) fn campaign(&mut self) {
        if self.raw.raft.promotable() && check::is_persisted(&self.raw.raft) {
            let _ = self.raw.campaign();
            self.has_stepped();
        }
    }

    /// Hands leadership over.
    pub(crate) fn transfer(&mut self, to: Uuid) {
        let to = self.numbers.of(to);
        self.raw.transfer_leader(to);
    }

    /// Whether leadership is being handed over.
    pub(crate) fn is_handing_over(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    /// Leads no more, in the same term.
    pub(crate) fn step_down(&mut self) {
        let term = self.term();
        self.raw.raft.become_follower(term, raft::INVALID_ID);
        self.has_stepped();
    }

    /// A peer has said something. Answers with a remark for the log, if there is one to make.
    pub(crate) fn step(&mut self, from: Uuid, step: Step) -> Result<Option<String>, Odd> {
        let message = to_message(&step);
        let mut message =
            message.ok_or_else(|| Odd::Nonsense("a step that no member takes".into()))?;
        message.from = self.numbers.of(from);
        message.to = self.raw.raft.id;
        check::check(&self.raw.raft, &message)?;
        let remark = check::stale(&self.raw.raft, &message);
        let store = self.raw.mut_store();
        step.entries.into_iter().for_each(|Entry { at, content }| {
            if !store.has(at) {
                store.expect(at, content);
            }
        });
        let accepted = (step.kind == COMMIT).then_some((message.term, message.index));
        let (number, answered) = (message.from, (message.term, message.index));
        let has_all_before = step.kind == APPEND_ANSWER && !step.reject;
        // What is left to refuse is an answer that comes too late.
        let _ = self.raw.step(message);
        if has_all_before {
            self.probe_untaken(number, answered);
        }
        if let Some(accepted) = accepted
            && !std::mem::take(&mut self.owes_answer)
        {
            self.swallow_answer(accepted);
        }
        self.has_stepped();
        Ok(remark)
    }

    /// A peer has said something some time ago: it is not heard now. What is odd about it was remarked when it came.
    pub(crate) fn step_late(&mut self, from: Uuid, step: Step) {
        let elapsed = self.raw.raft.election_elapsed;
        let _ = self.step(from, step);
        self.raw.raft.election_elapsed = elapsed;
    }

    /// Whether an entry is in the log, and all that is committed is up to it: who has the entry has that.
    pub(crate) fn is_behind_commit(&self, at: Position) -> bool {
        self.position(at.index) == Some(at) && at.index >= self.commit()
    }

    /// Nobody waits for the answer to a [`COMMIT`], unless it is that the log has another entry there.
    fn swallow_answer(&mut self, accepted: (u64, u64)) {
        let is_acceptance = |answer: &mut Message| {
            answer.get_msg_type() == MessageType::MsgAppendResponse
                && !answer.reject
                && (answer.term, answer.index) == accepted
        };
        self.raw.raft.msgs.pop_if(is_acceptance);
    }

    /// Whether a snapshot of a peer can be one of this log.
    pub(crate) fn check_snapshot(
        &mut self,
        from: Uuid,
        term: u64,
        last: Position,
    ) -> Result<(), Odd> {
        if term < self.term() {
            let own = self.term();
            return Err(Odd::Ignored(format!(
                "rejecting term {term} < current term {own} received in install_snapshot_request \
                 message"
            )));
        }
        let from = self.numbers.of(from);
        check::check_leader(&self.raw.raft, from, term)?;
        let log = &self.raw.raft.raft_log;
        let is_known = last.index <= log.committed && last.index + 1 >= log.first_index();
        if is_known && log.term(last.index).ok() != Some(last.term) {
            let index = last.index;
            let why = format!("entry {index} is of term {} in a snapshot there", last.term);
            return Err(Odd::Split { term, why });
        }
        Ok(())
    }

    /// Asks a majority whether the node still leads; the answer names the last entry that was committed
    /// when this was asked. There is none if it does not, or not any more.
    pub(crate) fn read_index(&mut self, number: u64) {
        self.raw.read_index(number.to_be_bytes().to_vec());
    }

    /// Entries to be the next ones; `None` unless the node leads.
    pub(crate) fn propose(&mut self, contents: Vec<Content>) -> Option<Position> {
        if !self.may_propose() {
            return None;
        }
        let (term, first) = (self.term(), self.last() + 1);
        let (mut entries, mut bytes) = (Vec::with_capacity(contents.len()), 0);
        for (index, content) in (first..).zip(contents) {
            let at = Position { term, index };
            assert!(!matches!(content, Content::Servers(_)), "servers change one at a time");
            let len = content.len() as u64;
            if bytes + len > MESSAGE_BYTES_MAX && !entries.is_empty() {
                self.propose_together(std::mem::take(&mut entries));
                bytes = 0;
            }
            bytes += len;
            entries.push(raft::prelude::Entry::default());
            self.raw.mut_store().expect(at, content);
        }
        self.propose_together(entries);
        Some(Position { term, index: first })
    }

    /// What is proposed together is sent together, however long it is: the library does not know that.
    fn propose_together(&mut self, entries: Vec<raft::prelude::Entry>) {
        let next = self.last() + 1 + entries.len() as u64;
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.raw.raft.id;
        message.entries = entries.into();
        let result = self.raw.step(message);
        assert!(result.is_ok(), "a leader takes what it is given: {result:?}");
        assert_eq!(self.last() + 1, next, "entries take the next places");
    }

    /// All servers from here on, one more or one less than before; `None` if the node does not lead,
    /// or another such change is under way.
    pub(crate) fn propose_servers(
        &mut self,
        servers: Arc<Servers>,
        change: Change,
    ) -> Option<Position> {
        if !self.may_propose() || self.raw.raft.has_pending_conf() {
            return None;
        }
        let at = Position { term: self.term(), index: self.last() + 1 };
        self.raw.mut_store().expect(at, Content::Servers(servers));
        let change = self.conf_change(change);
        let proposed = self.raw.propose_conf_change(Vec::new(), change).is_ok();
        (proposed && self.last() == at.index).then_some(at)
    }

    fn conf_change(&mut self, change: Change) -> ConfChange {
        let (kind, id) = match change {
            Change::Add(id) => (ConfChangeType::AddNode, id),
            Change::Learn(id) => (ConfChangeType::AddLearnerNode, id),
            Change::Remove(id) => (ConfChangeType::RemoveNode, id),
        };
        let mut conf_change = ConfChange::default();
        conf_change.set_change_type(kind);
        conf_change.node_id = self.numbers.of(id);
        conf_change
    }

    /// A change of servers has taken effect; a learner is one for this node alone.
    pub(crate) fn change(&mut self, change: Change) {
        let conf_change = self.conf_change(change);
        let result = self.raw.apply_conf_change(&conf_change);
        assert!(result.is_ok(), "servers change one at a time: {result:?}");
        let servers = self.raw.raft.prs();
        self.probes.retain(|number, _| servers.get(*number).is_some());
        self.unsure.retain(|number| servers.get(*number).is_some());
        self.has_stepped();
    }

    /// What the library wants to be done, if anything.
    pub(crate) fn ready(&mut self) -> Option<Ready> {
        if !self.raw.has_ready() {
            return None;
        }
        let mut rd = self.raw.ready();
        let mut ready = Ready { number: rd.number(), ..Ready::default() };
        if let Some(hard) = rd.hs() {
            let before = self.raw.store().hard_state();
            if (hard.term, hard.vote) != (before.0, before.1) {
                ready.vote = Some((hard.term, self.numbers.id(hard.vote)));
            }
            if hard.commit != before.2 {
                ready.commit = Some(hard.commit);
            }
            let hard = hard.clone();
            self.raw.mut_store().set_hard_state(hard);
        }
        for read in rd.take_read_states() {
            let number = <[u8; 8]>::try_from(&*read.request_ctx).expect("numbers are asked with");
            ready.reads.push((u64::from_be_bytes(number), read.index));
        }
        if !rd.snapshot().is_empty() {
            let metadata = rd.snapshot().get_metadata();
            ready.snapshot = Some(Position { term: metadata.term, index: metadata.index });
        }
        // Messages look their entries up before these become the log's.
        for message in rd.take_messages() {
            self.outgoing(&message, true, &mut ready);
        }
        for message in rd.take_persisted_messages() {
            self.outgoing(&message, is_free(message.get_msg_type()), &mut ready);
        }
        for entry in rd.take_entries() {
            let at = Position { term: entry.term, index: entry.index };
            ready.entries.push(self.raw.mut_store().append(at));
        }
        self.disk.write(ready.number, &ready.entries);
        self.raw.mut_store().settle();
        for entry in rd.take_committed_entries() {
            let at = Position { term: entry.term, index: entry.index };
            let content = self.raw.store().content(at);
            let content = content.expect("what has not taken effect is in memory");
            ready.committed.push(Entry { at, content });
        }
        self.raw.advance_append_async(rd);
        self.has_stepped();
        Some(ready)
    }

    fn outgoing(&mut self, message: &Message, is_now: bool, ready: &mut Ready) {
        let to = self.numbers.id(message.to).expect("messages go to somebody");
        let Some(mut step) = to_step(message, self.raw.store()) else {
            assert_eq!(message.get_msg_type(), MessageType::MsgSnapshot, "all others are steps");
            return ready.behind.push(to);
        };
        let is_said_by_leader = matches!(step.kind, APPEND | HEARTBEAT | TIMEOUT_NOW);
        assert!(!is_said_by_leader || step.term <= self.led, "a leader's word: {step:?}");
        // In any other state the library learns from the answer where the member is.
        let is_followed = |to| {
            let progress = self.raw.raft.prs().get(to);
            progress.is_some_and(|progress| progress.state == ProgressState::Replicate)
        };
        if step.kind == APPEND {
            if is_followed(message.to) {
                self.probes.remove(&message.to);
                if step.entries.is_empty() && !self.unsure.remove(&message.to) {
                    step.kind = COMMIT;
                }
            } else {
                let upto = as_many_as_fit(step.entries.iter(), PROBE_BYTES_MAX);
                step.entries.truncate(upto);
                if !self.may_probe(message.to, &step) {
                    return;
                }
            }
        }
        if self.is_leader() && step.term == self.term() {
            step.synced = self.raw.raft.raft_log.persisted;
        }
        let queue = if is_now { &mut ready.messages } else { &mut ready.acknowledgements };
        queue.push((to, step));
    }

    /// Whether entries are sent to a member of which it is not known where its log ends. The library sends them whenever
    /// the member says that it is there, though they may be on their way behind much else.
    fn may_probe(&mut self, to: u64, step: &Step) -> bool {
        let behind = (step.term, step.index);
        let is_on_its_way = |probe: &Probe| probe.behind == behind && self.ticks < probe.until;
        if step.entries.is_empty() {
            return true;
        }
        if self.probes.get(&to).is_some_and(is_on_its_way) {
            return false;
        }
        let bytes: usize = step.entries.iter().map(|entry| entry.content.len()).sum();
        let timers = (1 + bytes as u64 / PROBE_BYTES_PER_TIMER).min(PROBE_TIMERS_MAX);
        self.probes.insert(to, Probe { behind, until: self.ticks + timers * ELECTION_TICKS });
        true
    }

    /// A member has everything up to this entry, and no more: if entries were sent behind it, they have come and were
    /// not kept, and the member takes them now. The answer may come to who leads no more; the library would send them
    /// in the name of the next leader.
    fn probe_untaken(&mut self, to: u64, answered: (u64, u64)) {
        if !self.is_leader() || self.probes.get(&to).is_none_or(|probe| probe.behind != answered) {
            return;
        }
        self.probes.remove(&to);
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(to)
            && progress.state == ProgressState::Probe
        {
            progress.resume();
            self.raw.raft.send_append(to);
        }
    }

    /// All up to this ready is on the disk.
    pub(crate) fn persisted(&mut self, number: u64) {
        self.disk.persisted(number);
        self.raw.on_persist_ready(number);
        self.has_stepped();
    }

    /// Entries up to this one have taken effect.
    pub(crate) fn has_applied(&mut self, index: u64) {
        self.raw.advance_apply_to(index);
    }

    /// What has not been written is as if it had never come: the node is as after a start from what
    /// is on the disk, but knows its term, its vote, who leads and since when that was not heard. What
    /// it wanted to be written before has no meaning any more, nor have the numbers of [`Ready`].
    pub(crate) fn forget_unwritten(&mut self) {
        assert!(!self.is_leader(), "what a leader has proposed is with others");
        let before = self.before.take();
        let raft = &self.raw.raft;
        let is_following = raft.state == StateRole::Follower;
        let leader = if is_following { raft.leader_id } else { raft::INVALID_ID };
        let (id, term, vote, elapsed) = (raft.id, raft.term, raft.vote, raft.election_elapsed);
        let (applied, persisted) = (raft.raft_log.applied, self.disk.last);
        let hard = HardState { term, vote, commit: applied, ..HardState::default() };
        let store = if let Some((mut store, voters, disk)) = before {
            store.take_until(disk.last, voters, hard)
        } else {
            assert!(applied <= persisted, "what takes effect is on the disk");
            let voters = raft.prs().conf().to_conf_state();
            self.raw.mut_store().take_until(persisted, voters, hard)
        };
        self.disk = Disk::new(store.last());
        self.raw = raw_node(id, applied, store);
        self.owes_answer = true;
        // Who goes on refusing must notice all the same that its leader is gone.
        (self.raw.raft.leader_id, self.raw.raft.election_elapsed) = (leader, elapsed);
        self.has_stepped();
    }

    /// Answers of a member come on another connection than before: they come in order on one, so the last ones on
    /// that may be lost. The member does not know, and does not repeat them.
    pub(crate) fn answers_lost(&mut self, id: Uuid) {
        let number = self.numbers.of(id);
        let progress = self.raw.raft.prs().get(number).filter(|_| self.is_leader());
        let Some(matched) = progress.map(|progress| progress.matched) else { return };
        self.probes.remove(&number);
        if matched < self.last() {
            self.unsure.insert(number);
        }
    }

    /// Of how many servers it is remembered what may not have come.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.probes.len().max(self.unsure.len())
    }

    /// What was sent to a member may not have come.
    pub(crate) fn unreachable(&mut self, id: Uuid) {
        let number = self.numbers.of(id);
        self.probes.remove(&number);
        self.raw.report_unreachable(number);
        self.has_stepped();
    }

    /// A snapshot has come to its member, or has not.
    pub(crate) fn snapshot_sent(&mut self, id: Uuid, has_come: bool) {
        let status = if has_come { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        let number = self.numbers.of(id);
        self.raw.report_snapshot(number, status);
        self.has_stepped();
    }

    /// Whether a snapshot says more than the log.
    pub(crate) fn lacks(&self, last: Position) -> bool {
        last.index > self.commit()
            && self.raw.raft.raft_log.term(last.index).ok() != Some(last.term)
    }

    /// Whether what a snapshot says is in the log, and on the disk.
    pub(crate) fn has_on_disk(&self, last: Position) -> bool {
        !self.lacks(last) && last.index <= self.raw.raft.raft_log.persisted
    }

    /// A snapshot is here, complete: the next [`Ready`] makes it the log's beginning. Until [`Node::restored`]
    /// [`Node::forget_unwritten`] goes back to what is on the disk of the log as it is now.
    pub(crate) fn restore(&mut self, from: Uuid, term: u64, mark: Mark) {
        let own = self.raw.raft.id;
        let mut voters: ConfState = self.numbers.voters(&mark.servers);
        if !voters.voters.contains(&own) {
            voters.learners.push(own);
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (mark.last.index, mark.last.term);
        metadata.set_conf_state(voters.clone());
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        (message.from, message.to, message.term) = (self.numbers.of(from), own, term);
        message.set_snapshot(snapshot);
        let before = self.raw.raft.prs().conf().to_conf_state();
        let _ = self.raw.step(message);
        let is_pending = self.raw.raft.snap().is_some();
        if is_pending {
            let disk = std::mem::replace(&mut self.disk, Disk::new(mark.last.index));
            let log = self.raw.mut_store().begin_anew(mark, voters);
            self.before = Some((log, before, disk));
        }
        self.has_stepped();
    }

    /// The snapshot is in the file's place.
    pub(crate) fn restored(&mut self) {
        self.before = None;
    }

    /// The file starts from another snapshot of this log.
    pub(crate) fn compacted(&mut self, mark: Mark) {
        let voters = self.numbers.voters(&mark.servers);
        self.raw.mut_store().compact(mark, voters);
    }
}

fn raw_node(id: u64, applied: u64, store: Store) -> RawNode<Store> {
    let ticks = |n: u64| usize::try_from(n).expect("ticks are few");
    let config = Config {
        id,
        election_tick: ticks(ELECTION_TICKS),
        heartbeat_tick: ticks(HEARTBEAT_TICKS),
        min_election_tick: ticks(ELECTION_TICKS),
        max_election_tick: ticks(ELECTION_TICKS + ELECTION_TICKS_MORE + 1),
        applied,
        max_size_per_msg: MESSAGE_BYTES_MAX,
        max_inflight_msgs: MESSAGES_IN_FLIGHT,
        check_quorum: true,
        pre_vote: true,
        batch_append: false,
        max_committed_size_per_ready: COMMITTED_BYTES_MAX,
        ..Config::default()
    };
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&config, store, &logger).expect("a log that was read makes sense")
}

/// What a list of servers changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A server votes from now on.
    Add(Uuid),
    /// A server is sent everything, and does not vote.
    Learn(Uuid),
    /// A server is a member no more.
    Remove(Uuid),
}

impl Change {
    /// What makes the servers before those after.
    pub(crate) fn between(before: &Servers, after: &Servers) -> Vec<Self> {
        let added = after.keys().filter(|id| !before.contains_key(id)).map(|id| Self::Add(*id));
        let removed = before.keys().filter(|id| !after.contains_key(id));
        added.chain(removed.map(|id| Self::Remove(*id))).collect()
    }
}
