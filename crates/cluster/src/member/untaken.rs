//! Entries of its leader that a follower has not kept: it wanted none just then, its file refused them, or much was on
//! its way there. Their
//! connection lives, so the leader thinks that they are on their way, and says them again only when they must have come
//! long ago. So the follower answers them when it takes entries again, as if none had been with what came: the answer
//! says which it lacks.

use weir_data::Uuid;

use super::Member;
use crate::wire::Step;

/// What has come last of a leader's entries.
#[derive(Debug, Default)]
pub(crate) struct Untaken {
    /// Who has sent it, and the step without its entries.
    came: Option<(Uuid, Step)>,
    /// The entries were not kept, or some before them.
    is_lacking: bool,
}

impl Member {
    /// Whether entries that have come are taken.
    pub(super) fn takes(&mut self, from: Uuid, step: &Step) -> bool {
        let is_behind = self.steps.is_behind();
        let takes = self.takes_entries && !is_behind && !self.steps.is_closed(self.now_us);
        if step.term >= self.node.term() {
            let Step { kind, term, log_term, index, commit, commit_term, .. } = *step;
            let empty =
                Step { kind, term, log_term, index, commit, commit_term, ..Step::default() };
            self.untaken = Untaken { came: Some((from, empty)), is_lacking: !takes };
        }
        takes
    }

    /// The file has refused entries, which are given up.
    pub(super) fn note_refused(&mut self) {
        self.untaken.is_lacking |= self.steps.is_closed(self.now_us);
    }

    /// Answers what was not kept, if it would be now.
    pub(super) fn answer_untaken(&mut self) {
        if self.untaken_wakeup_us().is_none_or(|at| at > self.now_us) {
            return;
        }
        let Untaken { came, .. } = std::mem::take(&mut self.untaken);
        let Some((from, step)) = came else { return };
        let is_of_leader = self.node.leader() == Some(from) && step.term == self.node.term();
        if is_of_leader && !self.is_gone() && !self.keeps_apart(from, &step) {
            self.node.step_late(from, step);
        }
    }

    /// When that is due.
    pub(super) fn untaken_wakeup_us(&self) -> Option<u64> {
        let is_due = self.untaken.is_lacking && self.takes_entries && !self.steps.is_behind();
        is_due.then(|| self.steps.closed_until_us().unwrap_or(self.now_us))
    }
}
