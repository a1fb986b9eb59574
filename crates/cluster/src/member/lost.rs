//! A member that was removed while it was away, and knows only servers that have gone since, or such that do
//! not remember it: whoever it reaches names the members of today, and their leader tells it.
//!
//! Nothing of that happens to who has heard of a leader within an election timer. Who has been told to leave, or is a
//! member no more and waits until it may go, is as lost where it does not hear who leads.

use weir_data::Uuid;

use super::Member;
use crate::consensus::PRE_VOTE_REQUEST;
use crate::ids::LinkId;
use crate::peers::Made;
use crate::wire::{Hello, Lane, Step};

impl Member {
    /// Whether this member has known no leader for an election timer, or is one no more.
    pub(super) fn is_lost(&self) -> bool {
        let patience_us = self.election_timer * 1000;
        let is_long = |since_us: u64| self.now_us.saturating_sub(since_us) > patience_us;
        let is_alone = self.leaderless_us.is_some_and(is_long);
        self.is_member() && (is_alone || self.is_departing())
    }

    /// Whether who greets here, and means another server, may be lost: it is no member as far as this one
    /// knows, or listens where nobody looks for it.
    pub(super) fn is_lost_one(&self, hello: &Hello) -> bool {
        let known = self.servers.get(&hello.from);
        let is_known_there =
            known.is_some() && (hello.address.is_none() || known == hello.address.as_ref());
        self.is_member() && self.is_of_cluster(hello) && !is_known_there
    }

    /// Whether who greets is of the same cluster, and both know that.
    pub(super) fn is_of_cluster(&self, hello: &Hello) -> bool {
        self.cluster.is_some() && hello.cluster == self.cluster
    }

    /// Tells where members are who is none, as far as this one knows, or one that others may look for in vain.
    pub(super) fn tell_stranger(&mut self, link: LinkId, from: Uuid) {
        let is_found = self.servers.contains_key(&from) && !self.has_moved(&from);
        if self.is_member() && !is_found && !self.is_being_added(&from) {
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
        let strangers = self.strangers().collect::<Vec<_>>();
        self.ask_for_votes(strangers);
    }

    /// As [`Self::ask_strangers`], of everybody that this member has connected to.
    pub(super) fn ask_all_for_votes(&mut self) {
        let control = Made::ByUs(Lane::Control);
        let links = self.peers.links().filter(|(_, link)| link.is_ours && link.made == control);
        let links = links.map(|(id, _)| id).collect::<Vec<_>>();
        self.ask_for_votes(links);
    }

    fn ask_for_votes(&mut self, links: Vec<LinkId>) {
        let last = self.last_position();
        let (term, log_term, index) = (self.node.term() + 1, last.term, last.index);
        let step = Step { kind: PRE_VOTE_REQUEST, term, log_term, index, ..Step::default() };
        for link in links {
            self.peers.answer(link, &crate::wire::Frame::Step(step.clone()));
        }
    }

    /// There is a leader: nobody else need be asked for one.
    pub(super) fn is_found(&mut self) {
        if self.is_member() && !self.is_departing() && !self.remotes.is_empty() {
            self.remotes.clear();
            self.want_peers();
        }
    }
}
