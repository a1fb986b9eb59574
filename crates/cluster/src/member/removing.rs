//! Ceasing to be a member, by one's own wish or an operator's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::{ASK_AGAIN_US, Member, Membership};
use crate::consensus::{Change, Odd};
use crate::effect::{Effect, Level};
use crate::ids::LinkId;
use crate::wire::{Frame, Lane};

/// Removals that are under way.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// As the leader: who is to go, and where that is waited for.
    pub(crate) going: BTreeMap<Uuid, BTreeSet<LinkId>>,
    /// Of which the entry is on its way.
    pub(crate) committing: Option<Uuid>,
    /// As another member: whose removal the leader was asked for.
    asked: BTreeSet<Uuid>,
    /// Servers of whom a committed entry says that they are members no more, as far as this one knows.
    pub(super) gone: Gone,
    /// As the leader: whom it has removed since each had forgotten what it promised, and joins as another one.
    pub(super) forgotten: BTreeSet<Uuid>,
    /// As the leader: removed servers that wait to hear that they may go, and where.
    departing: BTreeMap<Uuid, BTreeSet<LinkId>>,
    /// This server is a member no more, and goes when a leader says that it may.
    is_departing: bool,
}

/// Servers that were members, the last [`GONE_MAX`] of them.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    known: VecDeque<Removed>,
    /// The entries by which all others are no members are this one and ones before it.
    others: u64,
}

/// A server that was a member.
#[derive(Debug)]
struct Removed {
    id: Uuid,
    /// Where it was.
    address: String,
    /// The entry of its removal is this one, or one before it.
    index: u64,
}

/// A leader that leaves has led for so long before it hands over, in microseconds: others that leave have asked it
/// by then. Else two that leave could hand leadership to each other for ever.
const LEAD_US: u64 = 2 * ASK_AGAIN_US;

/// Removed servers that a member remembers, so that they are told when it leads.
const GONE_MAX: usize = 1000;

impl Gone {
    /// Of whoever was removed up to this entry, that of a snapshot, nothing is known.
    pub(super) fn before(index: u64) -> Self {
        Self { known: VecDeque::new(), others: index }
    }

    /// A snapshot up to this entry may lack servers that came and went before it.
    pub(super) fn skipped(&mut self, index: u64) {
        self.others = self.others.max(index);
    }

    /// Takes note of what a committed entry, this one or one before it, changes.
    pub(super) fn note(&mut self, before: &Servers, after: &Servers, index: u64) {
        self.known.retain(|removed| !after.contains_key(&removed.id));
        let gone = before.iter().filter(|(id, _)| !after.contains_key(id));
        let gone = gone.map(|(id, address)| Removed { id: *id, address: address.clone(), index });
        self.known.extend(gone);
        for dropped in self.known.drain(..self.known.len().saturating_sub(GONE_MAX)) {
            self.others = self.others.max(dropped.index);
        }
    }

    fn get(&self, id: &Uuid) -> Option<&Removed> {
        self.known.iter().find(|removed| removed.id == *id)
    }

    pub(super) fn has(&self, id: &Uuid) -> bool {
        self.get(id).is_some()
    }

    /// Who knows that this entry is committed knows that a server is no member.
    fn index_of(&self, id: &Uuid) -> u64 {
        self.get(id).map_or(self.others, |of| of.index)
    }
}

impl Removals {
    pub(super) fn new(gone: Gone, is_departing: bool) -> Self {
        Self { gone, is_departing, ..Self::default() }
    }

    pub(super) fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether this server is a member no more, and still votes.
    pub(super) fn is_departing(&self) -> bool {
        self.is_departing
    }
}

impl Member {
    /// Begins to leave the cluster (`cluster/leave`).
    pub fn leave(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.begin_to_leave();
        self.pump();
    }

    fn begin_to_leave(&mut self) {
        if self.is_member() {
            self.membership = Membership::Leaving;
            self.ask_again_us = self.now_us;
        }
    }

    /// Asks the leader to remove a member (`cluster/kick`). Who is to remove itself leaves.
    pub fn kick(&mut self, now_us: u64, server: Uuid) {
        if server == self.id() {
            return self.leave(now_us);
        }
        self.now_us = now_us;
        if self.node.is_leader() {
            self.removals.going.entry(server).or_default();
            self.log_removal(server);
        } else {
            self.removals.asked.insert(server);
            self.ask_again_us = now_us;
        }
        self.pump();
    }

    /// The leader has a server removed that nobody named: one that was silent for long, or one that has joined
    /// anew because it does not have what it had promised to keep.
    pub(super) fn remove_unasked(&mut self, server: Uuid, why: &str) {
        if self.removals.going.contains_key(&server) {
            return;
        }
        self.removals.going.insert(server, BTreeSet::new());
        self.log(Level::Info, why.to_owned());
        self.log_removal(server);
    }

    fn log_removal(&mut self, server: Uuid) {
        let address = self.servers.get(&server).cloned().unwrap_or_default();
        let (server, cluster) = (self.named(server, &address), self.cluster_name());
        let text = format!("starting to remove server {server} from cluster {cluster}");
        self.log(Level::Info, text);
    }

    /// Who is alone goes. The leader hands leadership over before it goes, and before that removes others that
    /// leave; others ask it. Who is a member no more does not hear who leads, nor does who is lost: they
    /// ask everybody.
    pub(super) fn ask_to_leave(&mut self) {
        let frame = Frame::Remove { server: self.id() };
        if self.is_alone() {
            if !self.is_waited_for() {
                self.left();
            }
        } else if self.node.is_leader() {
            if self.removals.going.is_empty() && self.has_led_for(LEAD_US) {
                self.give_lead_away();
            }
        } else if self.is_lost() {
            self.peers.tell_all(Lane::Control, &frame);
            self.ask_all_for_votes();
        } else if let Some(leader) = self.node.leader() {
            self.peers.send(leader, Lane::Control, &frame);
        }
    }

    fn has_led_for(&self, us: u64) -> bool {
        self.elections.won_us.is_some_and(|won_us| self.now_us >= won_us + us)
    }

    fn is_alone(&self) -> bool {
        self.servers.len() == 1 && self.servers.contains_key(&self.id())
    }

    /// Whether servers that were removed are still connected: the last member is the only one that can tell
    /// them that they may go.
    fn is_waited_for(&self) -> bool {
        self.removals.gone.known.iter().any(|removed| self.peers.is_connected(removed.id))
    }

    pub(super) fn ask_to_remove(&mut self) {
        let Some(leader) = self.node.leader() else { return };
        for server in self.removals.asked.clone() {
            if leader == self.id() {
                self.removals.asked.remove(&server);
                self.removals.going.entry(server).or_default();
            } else {
                self.peers.send(leader, Lane::Control, &Frame::Remove { server });
            }
        }
    }

    pub(super) fn asked_to_remove(
        &mut self,
        link: LinkId,
        from: Uuid,
        server: Uuid,
    ) -> Result<(), Odd> {
        if from != server && !self.servers.contains_key(&from) {
            return Err(Odd::Ignored("remove_server_request from unknown server".into()));
        }
        self.remove_asked(link, from, server);
        Ok(())
    }

    fn remove_asked(&mut self, link: LinkId, from: Uuid, server: Uuid) {
        if !self.node.may_propose() {
            if from == server {
                self.tell_stranger(link, from);
            }
            return self.answer_removal(link, server, false, "not leader");
        }
        if self.is_being_added(&server) {
            // It is asked for again when that has taken effect.
            return self.answer_removal(link, server, false, "in progress");
        }
        if !self.servers.contains_key(&server) {
            // Whom this leader does not remember it may never have known, for it leads no more: that one asks
            // for its vote as well, which says of which term it knows.
            if from == server && !self.has_gone(&server) {
                return self.answer_removal(link, server, false, "in progress");
            }
            if from == server {
                self.removals.departing.entry(server).or_default().insert(link);
                return self.let_go();
            }
            return self.answer_removal(link, server, true, "completed");
        }
        if self.removals.going.entry(server).or_default().insert(link) {
            self.log_removal(server);
        }
    }

    /// Whether a server that asks for votes for a term is no member any more, and may be told. It was one as of a
    /// committed entry of an earlier term: a leader that has everything of those before it knows, unless
    /// that entry is of a later leader, of which it has not heard.
    pub(super) fn has_removed(&self, server: &Uuid, term: u64) -> bool {
        let is_of_later = term > self.node.term() + 1 && !self.has_gone(server);
        if !self.node.may_propose() || is_of_later || self.servers.contains_key(server) {
            return false;
        }
        !self.is_being_added(server) && self.may_go(server)
    }

    /// Whether a server was a member, and is no more.
    pub(super) fn has_gone(&self, server: &Uuid) -> bool {
        self.removals.gone.has(server)
    }

    /// Whether another server is where this one was, which is a member no more, or joins there since that one
    /// had forgotten what it promised.
    pub(super) fn is_replaced(&self, server: &Uuid) -> bool {
        let Some(gone) = self.removals.gone.get(server) else { return false };
        let is_there = self.servers.values().any(|address| *address == gone.address);
        is_there || self.removals.forgotten.contains(server)
    }

    /// Whether a server that is no member may be told so by this leader, and go. Members that do not know that its
    /// removal is committed count it among those whose votes they need, and it votes until it is told.
    /// With a majority that knows, one of those is elected, or makes who is elected know.
    pub(super) fn may_go(&self, server: &Uuid) -> bool {
        let index = self.removals.gone.index_of(server);
        let progress = self.node.progress();
        let knows = |id: &&Uuid| match **id == self.id() {
            true => self.steps.commit_on_disk() >= index,
            false => progress.get(id).is_some_and(|of| of.committed >= index),
        };
        self.servers.keys().filter(knows).count() * 2 > self.servers.len()
    }

    /// Tells removed servers that wait for it that they may go.
    pub(super) fn let_go(&mut self) {
        if self.removals.departing.is_empty() {
            return;
        }
        for (server, links) in std::mem::take(&mut self.removals.departing) {
            if self.may_go(&server) {
                for link in links {
                    self.answer_removal(link, server, true, "completed");
                }
            } else {
                self.removals.departing.insert(server, links);
            }
        }
    }

    /// A server did not hear that it was removed: it was down, or cut off.
    pub(super) fn tell_removed(&mut self, link: LinkId, server: Uuid) {
        self.answer_removal(link, server, true, "completed");
    }

    fn answer_removal(&mut self, link: LinkId, server: Uuid, success: bool, comment: &str) {
        let comment = comment.to_owned();
        self.peers.answer(link, &Frame::RemoveReply { server, success, comment });
    }

    pub(super) fn remove_answered(
        &mut self,
        from: Uuid,
        server: Uuid,
        success: bool,
        comment: &str,
    ) -> Result<(), Odd> {
        // That this server is no member any more may be told by one that has become one since.
        let is_own = success && server == self.id();
        let is_known = self.servers.contains_key(&from) || self.node.leader() == Some(from);
        if !is_known && !is_own {
            return Err(Odd::Ignored("remove_server_reply from unknown server".into()));
        }
        if success {
            self.removals.asked.remove(&server);
            match is_own.then_some(&self.membership) {
                Some(Membership::Joining) => self.joins_as_another(),
                Some(_) => self.left(),
                None => {}
            }
        } else if comment != "not leader" && comment != "in progress" {
            self.log(Level::Info, format!("removing server: {comment}"));
        }
        Ok(())
    }

    /// Goes on with the servers that are to go; true if that led to something.
    pub(super) fn go_on_removing(&mut self) -> bool {
        if self.removals.committing.is_some() || !self.node.may_propose() {
            return false;
        }
        let Some(server) = self.removals.going.keys().next().copied() else { return false };
        if server == self.id() {
            // It asks the next leader, as often as that takes.
            self.removals.going.remove(&server);
            self.begin_to_leave();
            return true;
        }
        let mut servers = (*self.servers).clone();
        if servers.remove(&server).is_none() {
            self.removals.going.remove(&server);
            return false;
        }
        let proposed = self.node.propose_servers(Arc::new(servers), Change::Remove(server));
        self.removals.committing = proposed.map(|_| server);
        proposed.is_some()
    }

    /// Some that were members may be no more, as of the entry of this index.
    pub(super) fn removed(&mut self, before: &Servers, index: u64) {
        self.removals.gone.note(before, &self.servers, index);
        let Removals { forgotten, going, gone, .. } = &mut self.removals;
        forgotten.retain(|server| going.contains_key(server) || gone.has(server));
        let gone = before.keys().filter(|id| !self.servers.contains_key(id)).copied();
        for server in gone.collect::<Vec<_>>() {
            self.removals.asked.remove(&server);
            self.removals.committing.take_if(|committing| *committing == server);
            let links = self.removals.going.remove(&server).unwrap_or_default();
            let of_server = |link: &LinkId| self.peers.peer(*link) == Some(server);
            // The server itself is told when others know of it as well.
            let (its, others): (BTreeSet<LinkId>, BTreeSet<LinkId>) =
                links.into_iter().partition(of_server);
            if self.node.is_leader() && !its.is_empty() {
                self.removals.departing.insert(server, its);
            }
            for link in others {
                self.answer_removal(link, server, true, "completed");
            }
        }
        if !self.node.is_leader() {
            self.forget_removals();
        }
        if self.membership == Membership::Leaving {
            self.ask_again_us = self.now_us;
        }
        let own = self.id();
        if before.contains_key(&own) && !self.servers.contains_key(&own) {
            self.departs();
        }
    }

    /// This server is a member no more. Others may not know that yet, and need its vote: it goes when a
    /// leader says that it may.
    fn departs(&mut self) {
        if self.is_gone() || self.removals.is_departing {
            return;
        }
        self.removals.is_departing = true;
        self.membership = Membership::Leaving;
        self.ask_again_us = self.now_us;
        if self.node.is_leader() {
            self.node.step_down();
        }
    }

    /// Who does not lead removes nobody: the entry of a removal may be lost, and who was silent may be well
    /// again when this member leads once more.
    pub(super) fn forget_removals(&mut self) {
        self.removals.committing = None;
        self.removals.forgotten.clear();
        self.removals.departing.clear();
        for (server, links) in std::mem::take(&mut self.removals.going) {
            if links.is_empty() {
                let address = self.servers.get(&server).cloned().unwrap_or_default();
                let server = self.named(server, &address);
                self.log(Level::Info, format!("removing server {server} failed (lost leadership)"));
            }
            for link in links {
                self.answer_removal(link, server, false, "lost leadership");
            }
        }
    }

    /// The server is no member any more, for good: its file says so.
    pub(super) fn left(&mut self) {
        if self.is_gone() {
            return;
        }
        self.membership = Membership::Left;
        self.removals.is_departing = false;
        if let Some(effect) = self.steps.write_notes(&["left"]) {
            self.gather();
            self.effects.push_back(effect);
        }
        self.log(Level::Info, format!("{}: left the cluster", self.name));
        self.want_peers();
        self.gather();
        self.effects.push_back(Effect::Left);
    }
}
