//! A disk that does not answer, for its controller or its network hangs: nothing is refused, so nothing is known to
//! fail. What the others have committed does not take effect here meanwhile, though the member hears its leader, or
//! is heard as one.

use super::Member;
use super::clock::tick_us;
use crate::effect::Level;

/// A disk writes so many bytes in a microsecond, at least.
const BYTES_PER_US: u64 = 16;

/// For how long the file has owed an answer that others have not waited for, in time that ticks have counted: they
/// stand still while the process does. While nobody has gone on, all disks may be slow, as where they share one storage:
/// the one that answers last then has not hung for long.
#[derive(Debug, Default)]
pub(crate) struct Hanging {
    /// The step that is to be answered next.
    step: Option<u64>,
    /// How many bytes were on their way when that began: one fdatasync(2) may be for all of them.
    bytes: u64,
    for_us: u64,
    /// The log has been told.
    is_told: bool,
}

impl Hanging {
    /// A tick of this length has passed, this step is to be answered next, and so many bytes are on their way.
    fn tick(&mut self, owed: Option<(u64, u64)>, tick_us: u64) {
        let step = owed.map(|(step, _)| step);
        if std::mem::replace(&mut self.step, step) == step && step.is_some() {
            self.for_us += tick_us;
        } else {
            (self.bytes, self.for_us) = (owed.map_or(0, |(_, bytes)| bytes), 0);
        }
    }
}

impl Member {
    pub(super) fn look_for_hanging(&mut self) {
        let owed = self.steps.unanswered().filter(|_| self.lacks_committed());
        self.hanging.tick(owed, tick_us(self.election_timer));
        let is_hanging = self.is_hanging_for_long();
        if is_hanging && !self.hanging.is_told {
            let (name, ms) = (&self.name, self.hanging.for_us / 1000);
            let text = format!(
                "{name}: the disk has not answered for {ms} ms, and the others have gone on"
            );
            self.log_limited("disk", Level::Warning, text);
        }
        self.hanging.is_told = is_hanging;
        // What is committed without this member's disk, others can lead.
        if self.node.is_leader() && !self.node.is_handing_over() && is_hanging {
            self.give_lead_away();
        }
    }

    /// Whether entries are committed that do not take effect here, for they are not on this member's disk.
    pub fn lacks_committed(&self) -> bool {
        self.node.applied() < self.node.commit()
    }

    /// Whether the disk has not answered for as long as the election timer is, and for as long as what it was given
    /// takes, since the others have gone on.
    pub(crate) fn is_hanging_for_long(&self) -> bool {
        let Some((step, _)) = self.steps.unanswered() else { return false };
        let Hanging { step: owed, bytes, for_us, .. } = self.hanging;
        let patience_us = self.election_timer * 1000 + bytes / BYTES_PER_US;
        owed == Some(step) && for_us > patience_us && self.lacks_committed()
    }
}

#[cfg(test)]
mod tests {
    use super::Hanging;

    #[test]
    fn time_is_counted_while_the_same_answer_is_waited_for() {
        let mut hanging = Hanging::default();
        let mut tick = |step: Option<u64>| {
            hanging.tick(step.map(|step| (step, 0)), 10);
            hanging.for_us
        };
        assert_eq!([None, None, Some(1), Some(1), Some(1)].map(&mut tick), [0, 0, 0, 10, 20]);
        assert_eq!([Some(2), Some(2), None, Some(3)].map(&mut tick), [0, 10, 0, 0]);
    }
}
