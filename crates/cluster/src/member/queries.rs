//! What the server above asks about the log and the cluster.

use weir_data::Uuid;
use weir_log::clustered::Servers;

use super::Member;
use crate::ids::Position;

impl Member {
    /// The cluster's id, once it is known.
    pub fn cluster(&self) -> Option<Uuid> {
        self.cluster
    }

    /// Whether something is on its way to the file.
    pub fn is_writing(&self) -> bool {
        self.steps.is_waiting()
    }

    /// How many open connections to members there are, as the reference counts them: one stands for
    /// those of a direction.
    pub fn connections(&self) -> usize {
        let links = self.peers.links().filter(|(_, link)| link.is_up && !link.is_second());
        links.count()
    }

    /// How many entries the log has.
    pub fn log_len(&self) -> usize {
        usize::try_from(self.node.last() + 1 - self.first_index()).unwrap_or(usize::MAX)
    }

    /// Whether the file does not take what must be in it.
    pub fn is_stuck(&self) -> bool {
        self.steps.is_failing()
    }

    /// Where this server listens for its peers.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All members, as of the last entry that took effect.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The index of the first entry behind the file's snapshot.
    pub fn first_index(&self) -> u64 {
        self.node.mark().last.index + 1
    }

    /// Who is as far as any other member that has been heard of lately, for leadership to be handed
    /// to, if this one leads.
    pub(super) fn successor(&self) -> Option<Uuid> {
        let since_us = self.now_us.saturating_sub(self.election_timer * 1000);
        let is_heard =
            |id: &Uuid| self.silence.heard_us(*id).is_some_and(|at_us| at_us >= since_us);
        let all = self.node.progress().into_iter();
        let is_voter = |id: &Uuid| *id != self.id() && self.servers.contains_key(id);
        let others = all.filter(|(id, _)| is_voter(id) && is_heard(id));
        others.max_by_key(|(_, progress)| progress.match_index).map(|(id, _)| id)
    }

    /// The last entry that has taken effect.
    pub fn applied(&self) -> u64 {
        self.node.applied()
    }

    /// The last entry of the log.
    pub fn last_position(&self) -> Position {
        self.node.position(self.node.last()).unwrap_or_default()
    }

    /// The place of the entry that this member proposes next, as the leader.
    pub fn next_position(&self) -> Position {
        Position { term: self.term(), index: self.node.last() + 1 }
    }
}
