//! A leader that hears of no majority while its own heartbeats still arrive, as where a network loses
//! packets in one direction. They hold the others back: it gives leadership up when it has heard of too
//! few for an election timer, and says so to who has most of its log, which then campaigns at once.
//! The raft library looks only once in an election timer whether a majority was heard since it looked
//! last, which can take twice as long, and tells nobody.

use std::collections::BTreeMap;

use weir_data::Uuid;

use super::Member;
use crate::consensus::{ELECTION_TICKS, TIMEOUT_NOW};
use crate::effect::Level;
use crate::wire::Step;

/// In ticks, for they stand still while the process does: what was said meanwhile is read first.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    ticks: u64,
    /// When each peer was heard last.
    heard: BTreeMap<Uuid, Heard>,
    /// Since when the member leads, if it does.
    led_since: Option<u64>,
}

/// When a peer was heard.
#[derive(Clone, Copy, Debug)]
struct Heard {
    tick: u64,
    at_us: u64,
}

impl Silence {
    /// Something came from a peer.
    pub(super) fn heard(&mut self, peer: Uuid, now_us: u64) {
        self.heard.insert(peer, Heard { tick: self.ticks, at_us: now_us });
    }

    /// When something came from a peer last.
    pub(crate) fn heard_us(&self, peer: Uuid) -> Option<u64> {
        self.heard.get(&peer).map(|heard| heard.at_us)
    }

    /// A tick has passed. Whether a leader has heard of too few of these `others` for an election
    /// timer to make a majority with it.
    fn is_alone(&mut self, is_leader: bool, others: impl Iterator<Item = Uuid>) -> bool {
        self.ticks += 1;
        if !is_leader {
            self.led_since = None;
            return false;
        }
        let led_since = *self.led_since.get_or_insert(self.ticks);
        let (mut voters, mut heard) = (1, 1);
        for peer in others {
            let at = self.heard.get(&peer).map_or(0, |heard| heard.tick).max(led_since);
            voters += 1;
            heard += usize::from(at + ELECTION_TICKS > self.ticks);
        }
        heard * 2 <= voters
    }
}

impl Member {
    /// Looks, at each tick, whether this member leads and hears of no majority.
    pub(super) fn look_for_silence(&mut self) {
        let own = self.id();
        let others = self.servers.keys().copied().filter(|id| *id != own);
        if !self.silence.is_alone(self.node.is_leader(), others) {
            return;
        }
        let progress = self.node.progress().into_iter().filter(|(id, _)| *id != own);
        let successor = progress.max_by_key(|(_, progress)| progress.match_index);
        if let Some((successor, _)) = successor {
            let term = self.node.term();
            self.say(successor, Step { kind: TIMEOUT_NOW, term, ..Step::default() });
        }
        let text = format!("{}: no majority has been heard of, leading no more", self.name);
        self.log_limited("silence", Level::Info, text);
        self.node.step_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: [Uuid; 2] = [Uuid::from_u128(1), Uuid::from_u128(2)];

    /// How many ticks pass until the leader is alone, if `hears` says whom it hears at which.
    fn ticks_until_alone(hears: impl Fn(u64) -> Vec<Uuid>) -> Option<u64> {
        let mut silence = Silence::default();
        (1..1000).find(|tick| {
            hears(*tick).into_iter().for_each(|peer| silence.heard(peer, 0));
            silence.is_alone(true, OTHERS.into_iter())
        })
    }

    #[test]
    fn a_leader_of_three_needs_to_hear_of_one() {
        assert_eq!(ticks_until_alone(|_| vec![OTHERS[1]]), None);
        assert_eq!(
            ticks_until_alone(|tick| if tick % 90 == 0 { vec![OTHERS[0]] } else { vec![] }),
            None
        );
    }

    #[test]
    fn a_leader_that_hears_nobody_is_alone_after_an_election_timer() {
        assert_eq!(ticks_until_alone(|_| vec![]), Some(ELECTION_TICKS + 1));
        let until_300 = |tick| if tick < 300 { vec![OTHERS[0]] } else { vec![] };
        assert_eq!(ticks_until_alone(until_300), Some(298 + ELECTION_TICKS));
    }

    #[test]
    fn who_has_just_begun_to_lead_waits_as_long() {
        let mut silence = Silence::default();
        for _ in 0..500 {
            assert!(!silence.is_alone(false, OTHERS.into_iter()));
        }
        for _ in 0..ELECTION_TICKS {
            assert!(!silence.is_alone(true, OTHERS.into_iter()));
        }
        assert!(silence.is_alone(true, OTHERS.into_iter()));
    }

    #[test]
    fn who_is_alone_in_the_cluster_is_a_majority() {
        let mut silence = Silence::default();
        assert!((0..500).all(|_| !silence.is_alone(true, [].into_iter())));
    }
}
