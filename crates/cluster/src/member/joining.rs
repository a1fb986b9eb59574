//! Becoming a member: a server asks whom it knows; the leader sends it everything as a learner, and
//! then makes it a member with an entry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_data::Uuid;

use super::clock::tick_us;
use super::{ASK_AGAIN_US, Failure, Member, Membership};
use crate::consensus::{Change, HEARTBEAT_TICKS};
use crate::effect::Level;
use crate::entry::Content;
use crate::file;
use crate::ids::LinkId;
use crate::wire::{Frame, Lane};

/// How far a server is that is being taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The joiner is sent what it does not have.
    Catchup,
    /// The joiner has everything; another change of the members is under way.
    CaughtUp,
    /// The entry that makes it a member is on its way.
    Committing,
}

/// A server that is being taken in.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) address: String,
    pub(crate) phase: Phase,
    /// Where it waits for an answer.
    link: LinkId,
    /// Since when it joins, monotonic.
    since_us: u64,
}

/// A learner has caught up when it lacks no more entries than this, or none that the log had a heartbeat ago: under load
/// without a pause, who is slower than most lacks what has just been proposed each time that it is looked.
const CAUGHT_UP_ENTRIES: u64 = 16;

/// So many servers are taken in at once, at most: others ask again.
const JOINS_MAX: usize = 16;

/// A server that joins and has not been heard of for so long, in microseconds, joins no more, and makes
/// way for others.
const JOIN_SILENCE_US: u64 = 30_000_000;

/// A server that joins and has not been heard of for so long, in microseconds, makes way for another one that
/// joins at its address.
const JOIN_REPLACED_US: u64 = 5_000_000;

/// A server that joins asks at so many places, at most, of which others have told it.
const REMOTES_MAX: usize = 64;

/// The servers that the leader is taking in.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    pub(crate) by_id: BTreeMap<Uuid, Join>,
    /// Where the log ended, and when that was noted, monotonic: some time ago, and lately.
    ends: [Option<(u64, u64)>; 2],
    /// Members that others say they were, and since when it is looked whether they live, in time that ticks have
    /// counted.
    doubted: BTreeMap<Uuid, u64>,
}

/// Whether a member lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    None,
    /// Whether the member lives will be known within an election timer.
    Unknown,
    Certain,
}

impl Joins {
    /// Whom to be connected to for it.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (String, Option<Uuid>)> + '_ {
        self.by_id.iter().map(|(id, join)| (join.address.clone(), Some(*id)))
    }

    /// The log ends with this entry now. Answers with which one it did a while ago, at least so long, if that is known.
    fn note_end(&mut self, last: u64, now_us: u64, apart_us: u64) -> Option<u64> {
        let [before, lately] = &mut self.ends;
        if lately.is_none_or(|(at_us, _)| now_us >= at_us + apart_us) {
            *before = lately.replace((now_us, last));
        }
        before.map(|(_, last)| last)
    }

    /// The server that joins at this address, of which there is one at most, and how far it is.
    fn at(&self, address: &str) -> Option<(Uuid, Phase)> {
        let joining = self.by_id.iter().find(|(_, join)| join.address == address);
        joining.map(|(id, join)| (*id, join.phase))
    }
}

impl Member {
    /// A server wants to become a member.
    pub(super) fn asked_to_join(
        &mut self,
        link: LinkId,
        from: Uuid,
        address: String,
        replaces: Option<Uuid>,
    ) {
        if self.servers.contains_key(&from) {
            return self.answer_join(link, true, "already in cluster");
        }
        if !self.node.may_propose() {
            return self.answer_join(link, false, "not leader");
        }
        if let Some(join) = self.joins.by_id.get_mut(&from) {
            let is_committing = join.phase == Phase::Committing;
            if join.address == address {
                join.link = link;
                return self.answer_join(link, false, "in progress");
            }
            let before = join.address.clone();
            // Two processes may have copies of one file that was made to join: the first one goes on, or neither would.
            if is_committing || self.is_at(from, &before) {
                return self.answer_join(link, false, "in progress");
            }
            // It has moved since it asked first, and asks again.
            self.end_join(from, "failed (it has moved)");
            return self.want_peers();
        }
        if self.has_gone(&from) {
            return match self.may_go(&from) {
                true => self.tell_removed(link, from),
                false => self.answer_join(link, false, "in progress"),
            };
        }
        let member = replaces.filter(|before| self.servers.contains_key(before));
        // Its file is from before it had joined again, which is remembered.
        let between = replaces.filter(|before| self.is_replaced(before));
        let between = between.and_then(|_| self.member_at(&address));
        match member.or(between).map_or(Life::None, |member| self.life_of(member)) {
            Life::None => {}
            Life::Unknown => return self.answer_join(link, false, "in progress"),
            Life::Certain => return self.refuse_twin(link, from, &address),
        }
        let replaced = || replaces.and_then(|before| self.replaced_at(&address, before));
        if let Some(before) = between.or_else(replaced) {
            // It asks again when that is done.
            let server = self.named(from, &address);
            self.remove_unasked(before, &format!("{server} does not have what it had promised"));
            self.removals.forgotten.insert(before);
            return self.answer_join(link, false, "in progress");
        }
        let is_taken = self.servers.values().any(|other| *other == address);
        if is_taken || weir_log::clustered::check_address(&address).is_err() {
            return self.answer_join(link, false, "another server has this address");
        }
        if let Some((before, phase)) = self.joins.at(&address) {
            let is_open = phase != Phase::Committing;
            if !is_open || !self.is_silent_join(before, JOIN_REPLACED_US) {
                return self.answer_join(link, false, "in progress");
            }
            // One that was there before comes no more.
            self.end_join(before, "failed (another server joins at its address)");
        }
        if self.joins.by_id.len() >= JOINS_MAX {
            return self.answer_join(link, false, "in progress");
        }
        let (server, cluster) = (self.named(from, &address), self.cluster_name());
        let text = format!("starting to add server {server} to cluster {cluster}");
        self.log_limited("add_server", Level::Info, text);
        self.node.change(Change::Learn(from));
        let (phase, since_us) = (Phase::Catchup, self.now_us);
        self.joins.by_id.insert(from, Join { address, phase, link, since_us });
        self.want_peers();
        if self.take_failure(Failure::TransferAfterAdd) {
            self.give_lead_away();
        }
    }

    /// A server joins that has a file of one that runs: an older copy of it, or another member's.
    fn refuse_twin(&mut self, link: LinkId, from: Uuid, address: &str) {
        let (server, why) = (self.named(from, address), "the server that this one was is running");
        self.log_limited("twin", Level::Warning, format!("{server} does not join: {why}"));
        self.answer_join(link, false, why);
    }

    /// Whether a member lives that another server says it was: two processes may have been started with files of one
    /// server, and the one that runs is not to go. Who lives answers heartbeats, of which an election timer has
    /// some; who has no connection may be about to start. The time is counted by ticks: while this process stands
    /// still nobody is asked anything, and what goes by of that at once is less than an election timer.
    fn life_of(&mut self, member: Uuid) -> Life {
        if member == self.id() {
            return Life::Certain;
        }
        let (counted_us, timer_us) = (self.silence.counted_us(), self.election_timer * 1000);
        let is_silent = if self.peers.is_connected(member) {
            let asked_us = self.joins.doubted.entry(member).or_insert(counted_us);
            if self.silence.is_heard_since(member, *asked_us) {
                *asked_us = counted_us;
                return Life::Certain;
            }
            counted_us - *asked_us >= timer_us
        } else {
            self.silence.is_silent(member, timer_us)
        };
        if is_silent { Life::None } else { Life::Unknown }
    }

    fn member_at(&self, address: &str) -> Option<Uuid> {
        self.servers.iter().find(|(_, at)| *at == address).map(|(id, _)| *id)
    }

    /// The member in whose place a server joins that has forgotten what it promised as `before`: that one, or
    /// whom it was between that and now, if its file is from before it joined again. That one is not heard of
    /// any more.
    fn replaced_at(&self, address: &str, before: Uuid) -> Option<Uuid> {
        let is_there = |id: &Uuid| self.servers.get(id).is_some_and(|at| at == address);
        if is_there(&before) {
            return Some(before);
        }
        // Long enough for a member that is started anew, and for a new leader to hear all.
        let since_us = self.now_us.saturating_sub(JOIN_SILENCE_US);
        let has_led = self.elections.won_us.is_none_or(|won_us| won_us <= since_us);
        let is_heard = |id: &Uuid| self.silence.heard_us(*id).is_some_and(|us| us > since_us);
        let between = self.member_at(address);
        let is_away = |id: &Uuid| !is_heard(id) && !self.peers.is_connected(*id);
        between.filter(|id| *id != self.id() && has_led && is_away(id))
    }

    /// Whether a server joins, or an entry that makes it a member is in the log and has not taken effect.
    pub(super) fn is_being_added(&self, server: &Uuid) -> bool {
        let is_in = |index| match self.node.entry(index).map(|entry| entry.content) {
            Some(Content::Servers(servers)) => servers.contains_key(server),
            _ => false,
        };
        self.joins.by_id.contains_key(server) || self.node.open_entries().any(is_in)
    }

    /// A server is not taken in, whatever it has been sent.
    fn end_join(&mut self, id: Uuid, why: &str) {
        let join = self.joins.by_id.remove(&id).expect("it joins");
        self.node.change(Change::Remove(id));
        self.log_end_of_join(id, &join.address, why);
        self.answer_join(join.link, false, why);
    }

    /// Whether a server that joins has not been heard of for so long.
    fn is_silent_join(&self, id: Uuid, us: u64) -> bool {
        let since_us = self.joins.by_id[&id].since_us;
        let heard_us = self.silence.heard_us(id).unwrap_or(0).max(since_us);
        self.now_us.saturating_sub(heard_us) > us
    }

    /// Servers that are heard of no more do not join any more.
    fn end_silent_joins(&mut self) {
        let open = self.joins.by_id.iter().filter(|(_, join)| join.phase != Phase::Committing);
        let silent = open.map(|(id, _)| *id).filter(|id| self.is_silent_join(*id, JOIN_SILENCE_US));
        let silent: Vec<Uuid> = silent.collect();
        if silent.is_empty() {
            return;
        }
        silent.into_iter().for_each(|id| self.end_join(id, "failed (nothing is heard of it)"));
        self.want_peers();
    }

    fn log_end_of_join(&mut self, id: Uuid, address: &str, end: &str) {
        let (server, cluster) = (self.named(id, address), self.cluster_name());
        self.log(Level::Info, format!("adding {server} to cluster {cluster} {end}"));
    }

    pub(super) fn answer_join(&mut self, link: LinkId, success: bool, comment: &str) {
        let leader = self.node.leader().and_then(|leader| self.servers.get(&leader));
        let mut remotes: Vec<String> = leader.into_iter().cloned().collect();
        remotes.extend(self.servers.values().cloned());
        let comment = comment.to_owned();
        self.peers.answer(link, &Frame::JoinReply { success, comment, remotes });
    }

    /// A server that we asked has answered.
    pub(super) fn join_answered(&mut self, success: bool, comment: &str, remotes: Vec<String>) {
        if self.is_lost() {
            return self.may_join_at(remotes);
        }
        if self.membership != Membership::Joining {
            return;
        }
        if !success && comment != "not leader" && comment != "in progress" {
            self.log_limited("joining", Level::Info, format!("joining cluster: {comment}"));
        }
        self.may_join_at(remotes);
    }

    /// Somebody may be at these places who can take this server in.
    fn may_join_at(&mut self, remotes: Vec<String>) {
        let known = self.remotes.len();
        for remote in remotes {
            let is_good = weir_log::clustered::check_address(&remote).is_ok();
            let is_room = self.remotes.len() < REMOTES_MAX;
            if is_good && is_room && remote != self.address && !self.remotes.contains(&remote) {
                self.remotes.push(remote);
            }
        }
        if self.remotes.len() > known {
            self.want_peers();
        }
    }

    /// What goes with a new file of `len` bytes of records: the servers in its snapshot may have gone when it is opened again, so who joins
    /// keeps where it was told to ask.
    pub(super) fn write_joins_at(&self, len: u64, tail: &mut Vec<u8>) {
        if self.membership == Membership::Joining {
            file::write_joins_at(&self.remotes, len, tail);
        }
    }

    /// Somebody has connected and says where it listens: of those that a server that joins knows perhaps
    /// none is a member any more, and then these know it from a list that has it.
    pub(super) fn told_of_place(&mut self, address: &str) {
        if self.membership == Membership::Joining {
            self.may_join_at(vec![address.to_owned()]);
        }
    }

    /// Asks again what peers have not answered.
    pub(super) fn ask(&mut self) {
        if self.ask_wakeup_us().is_none_or(|at| at > self.now_us) {
            return;
        }
        self.ask_again_us = self.now_us + ASK_AGAIN_US;
        match self.membership {
            // Another process may have the address, and the file that this one is an older copy of.
            Membership::Joining if self.replaces.is_some() && !self.listens => {
                let text = format!("{}: does not join again while it cannot listen", self.address);
                self.log_limited("deaf", Level::Warning, text);
            }
            Membership::Joining => {
                let (address, replaces) = (self.address.clone(), self.replaces);
                let frame = Frame::Join { address, replaces };
                self.peers.tell_all(Lane::Control, &frame);
            }
            Membership::Leaving => self.ask_to_leave(),
            Membership::Member if self.is_lost() => self.ask_strangers(),
            Membership::Member | Membership::Left | Membership::Forgotten => {}
        }
        self.ask_to_remove();
    }

    pub(super) fn ask_wakeup_us(&self) -> Option<u64> {
        let is_asking = matches!(self.membership, Membership::Joining | Membership::Leaving);
        let is_asking = is_asking || self.removals.is_asking() || self.asks_strangers();
        is_asking.then_some(self.ask_again_us)
    }

    /// Goes on with the servers that are being taken in; true if that led to something.
    pub(super) fn go_on(&mut self) -> bool {
        if let Some(effect) = self.write_commit_if_idle() {
            self.gather();
            self.effects.push_back(effect);
        }
        for effect in self.steps.again(self.now_us) {
            self.effects.push_back(effect);
        }
        let has_gone_on = self.go_on_removing() || self.go_on_moving();
        self.end_silent_joins();
        if self.joins.by_id.is_empty() {
            self.joins.ends = [None; 2];
            return has_gone_on;
        }
        if !self.node.may_propose() {
            return has_gone_on;
        }
        let progress = self.node.progress();
        let last = self.node.last();
        let beat_us = HEARTBEAT_TICKS * tick_us(self.election_timer);
        let before = self.joins.note_end(last, self.now_us, beat_us);
        let is_there = |(id, join): (&Uuid, &Join)| {
            let progress = progress.get(id).copied().unwrap_or_default();
            let has = progress.match_index;
            let has_all = has + CAUGHT_UP_ENTRIES >= last || before.is_some_and(|last| has >= last);
            let is_there = has > 0 && has_all && !progress.is_in_snapshot;
            (join.phase != Phase::Committing && is_there).then_some(*id)
        };
        let ready: Vec<Uuid> = self.joins.by_id.iter().filter_map(is_there).collect();
        let mut has_proposed = false;
        for id in ready {
            let join = &self.joins.by_id[&id];
            if self.servers.values().any(|taken| *taken == join.address) {
                self.end_join(id, "failed (another server has this address)");
                continue;
            }
            let mut servers = (*self.servers).clone();
            servers.insert(id, join.address.clone());
            let proposed = self.node.propose_servers(Arc::new(servers), Change::Add(id));
            let join = self.joins.by_id.get_mut(&id).expect("it was there");
            join.phase = if proposed.is_some() { Phase::Committing } else { Phase::CaughtUp };
            has_proposed |= proposed.is_some();
        }
        has_proposed || has_gone_on
    }

    fn write_commit_if_idle(&mut self) -> Option<crate::effect::Effect> {
        self.steps.write_commit_if_old(self.now_us)
    }

    /// Other servers are members, as of the entry of this index.
    pub(super) fn servers_changed(&mut self, before: &weir_log::clustered::Servers, index: u64) {
        let servers = Arc::clone(&self.servers);
        self.joins.doubted.retain(|id, _| servers.contains_key(id));
        let own = self.id();
        let is_in = self.servers.contains_key(&own);
        if self.membership == Membership::Joining && is_in {
            self.membership = Membership::Member;
            self.remotes.clear();
            self.log(Level::Info, "joined cluster".to_owned());
            self.want_peers();
        }
        let done: Vec<Uuid> =
            self.joins.by_id.keys().filter(|id| self.servers.contains_key(id)).copied().collect();
        for id in done {
            let join = self.joins.by_id.remove(&id).expect("it was there");
            self.log_end_of_join(id, &join.address, "succeeded (completed)");
            self.answer_join(join.link, true, "completed");
        }
        self.removed(before, index);
        // An older file of a server that was replaced may come back, and again.
        let is_known =
            |id: &Uuid| servers.contains_key(id) || self.is_being_added(id) || self.has_gone(id);
        let known: BTreeSet<Uuid> = self.promises.servers().filter(is_known).collect();
        self.promises.retain(&known);
    }

    /// Another member leads, or this one does: what the leader before was about, it must be asked
    /// again.
    pub(super) fn leader_changed(&mut self) {
        if self.node.is_leader() {
            return;
        }
        self.forget_removals();
        self.joins.doubted.clear();
        let joins: Vec<Uuid> = self.joins.by_id.keys().copied().collect();
        if joins.is_empty() {
            return;
        }
        joins.into_iter().for_each(|id| self.end_join(id, "failed (lost leadership)"));
        self.want_peers();
    }
}
