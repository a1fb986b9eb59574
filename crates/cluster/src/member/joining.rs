//! Becoming a member: a server asks whom it knows; the leader sends it everything as a learner, and
//! then makes it a member with an entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::Uuid;

use super::{ASK_AGAIN_US, Failure, Member, Membership};
use crate::consensus::Change;
use crate::effect::Level;
use crate::ids::LinkId;
use crate::wire::{Frame, Lane};

/// How far a server is that is being taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is sent what it does not have.
    Catchup,
    /// It has everything; another change of the members is under way.
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
}

/// A learner has caught up when it lacks no more entries than this.
const CAUGHT_UP_ENTRIES: u64 = 16;

/// So many servers are taken in at once, at most: others ask again.
const JOINS_MAX: usize = 16;

/// A server that joins asks at so many places, at most, of which others have told it.
const REMOTES_MAX: usize = 64;

/// The servers that the leader is taking in.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    pub(crate) by_id: BTreeMap<Uuid, Join>,
}

impl Joins {
    /// Whom to be connected to for it.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (String, Option<Uuid>)> + '_ {
        self.by_id.iter().map(|(id, join)| (join.address.clone(), Some(*id)))
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
            join.link = link;
            return self.answer_join(link, false, "in progress");
        }
        if self.joins.by_id.len() >= JOINS_MAX {
            return self.answer_join(link, false, "in progress");
        }
        let is_replaced = |id: &Uuid| self.servers.get(id) == Some(&address) && *id != self.id();
        if let Some(before) = replaces.filter(is_replaced) {
            // It asks again when that is done.
            self.remove_unasked(before);
            return self.answer_join(link, false, "in progress");
        }
        let is_taken = self.servers.values().any(|other| *other == address);
        if is_taken || weir_log::clustered::check_address(&address).is_err() {
            return self.answer_join(link, false, "another server has this address");
        }
        let (server, cluster) = (self.named(from, &address), self.cluster_name());
        let text = format!("starting to add server {server} to cluster {cluster}");
        self.log_limited("add_server", Level::Info, text);
        self.node.change(Change::Learn(from));
        self.joins.by_id.insert(from, Join { address, phase: Phase::Catchup, link });
        self.want_peers();
        if self.take_failure(Failure::TransferAfterAdd) {
            self.give_lead_away();
        }
    }

    fn log_end_of_join(&mut self, id: Uuid, address: &str, end: &str) {
        let (server, cluster) = (self.named(id, address), self.cluster_name());
        self.log(Level::Info, format!("adding {server} to cluster {cluster} {end}"));
    }

    fn answer_join(&mut self, link: LinkId, success: bool, comment: &str) {
        let leader = self.node.leader().and_then(|leader| self.servers.get(&leader));
        let mut remotes: Vec<String> = leader.into_iter().cloned().collect();
        remotes.extend(self.servers.values().cloned());
        let comment = comment.to_owned();
        self.peers.answer(link, &Frame::JoinReply { success, comment, remotes });
    }

    /// A server that we asked has answered.
    pub(super) fn join_answered(&mut self, success: bool, comment: &str, remotes: Vec<String>) {
        if self.membership != Membership::Joining {
            return;
        }
        if !success && comment != "not leader" && comment != "in progress" {
            self.log_limited("joining", Level::Info, format!("joining cluster: {comment}"));
        }
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

    /// Asks again what peers have not answered.
    pub(super) fn ask(&mut self) {
        if self.ask_wakeup_us().is_none_or(|at| at > self.now_us) {
            return;
        }
        self.ask_again_us = self.now_us + ASK_AGAIN_US;
        match self.membership {
            Membership::Joining => {
                let (address, replaces) = (self.address.clone(), self.replaces);
                let frame = Frame::Join { address, replaces };
                self.peers.tell_all(Lane::Control, &frame);
            }
            Membership::Leaving => self.ask_to_leave(),
            Membership::Member | Membership::Left | Membership::Forgotten => {}
        }
        self.ask_to_remove();
    }

    pub(super) fn ask_wakeup_us(&self) -> Option<u64> {
        let is_asking = matches!(self.membership, Membership::Joining | Membership::Leaving);
        (is_asking || self.removals.is_asking()).then_some(self.ask_again_us)
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
        if self.joins.by_id.is_empty() || !self.node.may_propose() {
            return has_gone_on;
        }
        let progress = self.node.progress();
        let last = self.node.last();
        let is_there = |(id, join): (&Uuid, &Join)| {
            let progress = progress.get(id).copied().unwrap_or_default();
            let has_all = progress.match_index > 0
                && progress.match_index + CAUGHT_UP_ENTRIES >= last
                && !progress.is_in_snapshot;
            (join.phase != Phase::Committing && has_all).then_some(*id)
        };
        let ready: Vec<Uuid> = self.joins.by_id.iter().filter_map(is_there).collect();
        let mut has_proposed = false;
        for id in ready {
            let join = &self.joins.by_id[&id];
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

    /// Other servers are members now.
    pub(super) fn servers_changed(&mut self, before: &weir_log::clustered::Servers) {
        let servers = Arc::clone(&self.servers);
        self.promises.retain(|id| servers.contains_key(id));
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
        self.removed(before);
    }

    /// Another member leads, or this one does: what the leader before was about, it must be asked
    /// again.
    pub(super) fn leader_changed(&mut self) {
        if self.node.is_leader() {
            return;
        }
        self.forget_removals();
        let joins = std::mem::take(&mut self.joins.by_id);
        let has_joins = !joins.is_empty();
        for (id, join) in joins {
            self.node.change(Change::Remove(id));
            self.log_end_of_join(id, &join.address, "failed (lost leadership)");
            self.answer_join(join.link, false, "lost leadership");
        }
        if has_joins {
            self.want_peers();
        }
    }
}
