//! A follower that hears its leader, and to which no entries come: short messages pass, long ones do not, or the
//! connection for entries is cut and the other one is not. Its clients had better go elsewhere.

use weir_data::Uuid;

use super::Member;
use crate::consensus::{APPEND, COMMIT, HEARTBEAT};
use crate::wire::Step;

/// Entries may take so many election timers to come: one that is long takes its time on a slow line.
const STARVED_TIMERS: u64 = 5;

/// Whether entries come that the leader has.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    /// In which term the leader was heard, and up to where the log went then.
    had: (u64, u64),
    /// Since when the leader has had more, and nothing has come; monotonic.
    since_us: Option<u64>,
}

impl Starved {
    /// The leader of a term has said that it has entries up to `upto`, to who has them up to `last`.
    pub(super) fn heard(&mut self, (term, last): (u64, u64), upto: u64, now_us: u64) {
        let has_come = std::mem::replace(&mut self.had, (term, last)) != (term, last);
        self.since_us = match self.since_us.filter(|_| !has_come) {
            _ if upto <= last => None,
            Some(since_us) => Some(since_us),
            None => Some(now_us),
        };
    }

    /// Something has come that is as good as an entry: a piece of a snapshot.
    pub(super) fn fed(&mut self) {
        self.since_us = None;
    }

    /// Whether that has been so for this long.
    pub(super) fn is_for(&self, us: u64, now_us: u64) -> bool {
        self.since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) > us)
    }
}

impl Member {
    /// A peer has said something; a leader says with it up to where its log goes on its disk.
    pub(super) fn note_leaders_log(&mut self, from: Uuid, step: &Step) {
        let keeps_none = !self.takes_entries || self.steps.is_failing() || self.steps.is_behind();
        if keeps_none || self.snapshots.is_taking_in() {
            // It is this member that keeps none, or that has got as much as it can take in.
            return self.starved.fed();
        }
        let is_of_leader = self.node.leader() == Some(from) && step.term == self.node.term();
        if is_of_leader && matches!(step.kind, APPEND | COMMIT | HEARTBEAT) {
            self.starved.heard((step.term, self.node.last()), step.synced, self.now_us);
        }
    }

    /// Whether entries of the leader have not come for several election timers, though it is heard.
    pub(crate) fn is_starved_for_long(&self) -> bool {
        let is_following = self.node.leader().is_some_and(|leader| leader != self.id());
        let most_us = STARVED_TIMERS * self.election_timer * 1000;
        is_following && self.starved.is_for(most_us, self.now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_what_the_leader_has_is_starved_until_something_comes() {
        let mut starved = Starved::default();
        starved.heard((1, 7), 7, 10);
        assert!(!starved.is_for(0, 1000), "it has all");
        starved.heard((1, 7), 8, 20);
        starved.heard((1, 7), 9, 30);
        assert!(starved.is_for(9, 30) && !starved.is_for(10, 30));
        starved.heard((1, 8), 9, 40);
        assert!(!starved.is_for(0, 40), "one has come");
        assert!(starved.is_for(9, 50), "another one has not");
        starved.heard((2, 8), 9, 60);
        assert!(!starved.is_for(0, 60), "another one leads");
        starved.fed();
        assert!(!starved.is_for(0, 1000));
    }
}
