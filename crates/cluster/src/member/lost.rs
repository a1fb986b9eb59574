//! A member that was removed while it was away, and knows only servers that have gone since, or such that do
//! not remember it: whoever it reaches names the members of today, and their leader tells it.
//!
//! Nothing of that happens to who has heard of a leader within an election timer.

use weir_data::Uuid;

use super::{Member, Membership};
use crate::consensus::PRE_VOTE_REQUEST;
use crate::ids::LinkId;
use crate::peers::Made;
use crate::wire::{Hello, Lane, Step};

impl Member {
    /// Whether this member has known no leader for an election timer.
    pub(super) fn is_lost(&self) -> bool {
        let patience_us = self.election_timer * 1000;
        let is_long = |since_us: u64| self.now_us.saturating_sub(since_us) > patience_us;
        self.membership == Membership::Member && self.leaderless_us.is_some_and(is_long)
    }

    /// Whether who greets here, and means another server, may be lost: neither of them is a member.
    pub(super) fn is_lost_one(&self, hello: &Hello, meant: Uuid) -> bool {
        let is_known = |id: &Uuid| self.servers.contains_key(id);
        let is_of_cluster = self.cluster.is_some() && hello.cluster == self.cluster;
        self.is_member() && is_of_cluster && !is_known(&hello.from) && !is_known(&meant)
    }

    /// Tells who is no member, as far as this one knows, where members are.
    pub(super) fn tell_stranger(&mut self, link: LinkId, from: Uuid) {
        if self.is_member() && !self.servers.contains_key(&from) && !self.is_being_added(&from) {
            self.answer_join(link, false, "not a member");
        }
    }

    /// Connections of a lost member to servers that are no members, as far as it knows.
    fn strangers(&self) -> impl Iterator<Item = LinkId> {
        let is_one = |peer: Option<Uuid>| peer.is_some_and(|id| !self.servers.contains_key(&id));
        let control = Made::ByUs(Lane::Control);
        let links = self.peers.links();
        links
            .filter(move |(_, link)| link.is_ours && link.made == control && is_one(link.peer))
            .map(|(id, _)| id)
    }

    /// Whether there is somebody for a lost member to ask.
    pub(super) fn asks_strangers(&self) -> bool {
        self.is_lost() && self.strangers().next().is_some()
    }

    /// Asks strangers whether they would vote for this member: a leader among them says that it is none.
    pub(super) fn ask_strangers(&mut self) {
        let last = self.last_position();
        let (term, log_term, index) = (self.node.term() + 1, last.term, last.index);
        let step = Step { kind: PRE_VOTE_REQUEST, term, log_term, index, ..Step::default() };
        for link in self.strangers().collect::<Vec<_>>() {
            self.peers.answer(link, &crate::wire::Frame::Step(step.clone()));
        }
    }

    /// There is a leader: nobody else need be asked for one.
    pub(super) fn is_found(&mut self) {
        if self.membership == Membership::Member && !self.remotes.is_empty() {
            self.remotes.clear();
            self.want_peers();
        }
    }
}
