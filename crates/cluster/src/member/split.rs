//! A member that has what the others have lost: too many files went back to an older state at once, and who leads was
//! elected by servers that had forgotten what this one knows to be committed. Neither can take the other's log without
//! losing something that was acknowledged, so this member takes no part under that leader: it counts for nothing there,
//! says that it is not connected, and keeps its file as it is for an operator.

use weir_data::Uuid;

use super::Member;
use crate::consensus::{APPEND, COMMIT, HEARTBEAT, TIMEOUT_NOW};
use crate::effect::Level;
use crate::ids::Position;
use crate::wire::Step;

impl Member {
    /// A leader's log has another entry where one is committed here.
    pub(super) fn split_from(&mut self, leader: Uuid, term: u64, why: &str) {
        self.split = Some((leader, term));
        self.node.step_down();
        let (name, commit) = (&self.name, self.node.commit());
        let text = format!(
            "{name}: server {} leads others that have lost what is committed here, up to entry {commit}: {why}. This \
             server takes no part: keep its file, then have it removed (cluster/kick) and join anew, or make a new \
             cluster of its file (recover-cluster)",
            self.nickname(leader),
        );
        self.log(Level::Error, text);
    }

    /// Whether what somebody says is not to be heard because he leads others that have lost what is committed here.
    /// He is heard again when he says that all of that is in his log.
    pub(super) fn keeps_apart(&mut self, from: Uuid, step: &Step) -> bool {
        let is_of_leader = matches!(step.kind, APPEND | COMMIT | HEARTBEAT | TIMEOUT_NOW);
        if !is_of_leader || self.split != Some((from, step.term)) {
            return false;
        }
        let follows = Position { term: step.log_term, index: step.index };
        let has_all = matches!(step.kind, APPEND | COMMIT) && self.node.is_behind_commit(follows);
        if has_all {
            self.split = None;
        }
        !has_all
    }

    /// Whether the leader of the present term leads others that have lost what is committed here.
    pub(crate) fn is_split(&self) -> bool {
        self.split.is_some_and(|(_, term)| term >= self.node.term())
    }
}
