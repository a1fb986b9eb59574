//! A leader that hears of no majority while its own heartbeats still arrive, as where a network loses
//! packets in one direction. They hold the others back: it gives leadership up when it has heard of too
//! few for an election timer, and says so to who has most of its log, which then campaigns at once.
//! The raft library looks only once in an election timer whether a majority was heard since it looked
//! last, which can take twice as long, and tells nobody.
//!
//! So it is where the others are heard, and entries do not come to them, as where a network loses long packets, or a
//! firewall one connection of two.
//!
//! And a leader that hears one member no more, for as long as an operator has said, removes it
//! (`docs/decisions/019`).

use std::collections::BTreeMap;

use weir_data::Uuid;

use super::Member;
use super::clock::tick_us;
use crate::consensus::{ELECTION_TICKS, Progress};
use crate::effect::Level;
use crate::peers::Link;
use crate::wire::Lane;

/// Who is silent is not removed before so many election timers have passed: as long as others may take
/// to be heard again.
pub const REMOVAL_TIMERS_MIN: u64 = 5;

/// Entries do not come to a peer if the connection for them has ended so often, and the peer was heard in between,
/// since it acknowledged any.
const CUTS_MAX: u32 = 2;

/// A connection for entries that has lived for so many election timers carries them.
const CUTS_TIMERS: u64 = 5;

/// Such a connection has lived for so long at least, in microseconds: the system ends one that carries nothing sooner.
const CUTS_US_MIN: u64 = 10_000_000;

/// A connection for requests on which nothing was asked is believed to carry them after this long, in microseconds:
/// clients go where they are answered, so perhaps nothing ever is.
const IDLE_US_MIN: u64 = 60_000_000;

/// What the system says of a connection whose other end has acknowledged nothing for too long: nothing came back
/// (`ETIMEDOUT`), or a router or firewall has said that nothing goes there.
const CUT: [&str; 4] =
    ["Connection timed out", "No route to host", "Network is unreachable", REFUSED];

/// What it says where nobody listens, too (`ECONNREFUSED`).
const REFUSED: &str = "Connection refused";

/// So many members stay at least, however long some are silent.
const MEMBERS_MIN: usize = 3;

/// In time that ticks have counted, for they stand still while the process does: what was said meanwhile is
/// read first. In microseconds, for a tick has another length when the election timer changes.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    counted_us: u64,
    /// When each peer was heard last.
    heard: BTreeMap<Uuid, Heard>,
    /// To whom a leader's entries may not come, or to which leader a member's requests.
    cuts: BTreeMap<Uuid, Cuts>,
    /// Since when the member leads, if it does.
    led_since: Option<u64>,
    /// After so long a silent member is removed, in milliseconds; never if there is none.
    removal_ms: Option<u64>,
}

/// When a peer was heard.
#[derive(Clone, Copy, Debug)]
struct Heard {
    counted_us: u64,
    at_us: u64,
}

/// How often the connection for entries to a peer that lacks some has ended since it had those up to this one; or that
/// for requests to the leader of a term.
#[derive(Clone, Copy, Debug, Default)]
struct Cuts {
    since: u64,
    count: u32,
    /// When it was counted last.
    counted_us: u64,
}

impl Silence {
    /// The connection for entries to a peer that lacks some, and has these, has ended. True if it is one to whom none
    /// come.
    fn cut(&mut self, peer: Uuid, since: u64) -> bool {
        let before = self.cuts.get(&peer).filter(|cuts| cuts.since == since);
        // Who is not there is not cut off.
        if before.is_some_and(|cuts| !self.is_heard_since(peer, cuts.counted_us)) {
            return false;
        }
        let count = before.map_or(0, |cuts| cuts.count).saturating_add(1);
        self.cuts.insert(peer, Cuts { since, count, counted_us: self.counted_us });
        count >= CUTS_MAX
    }

    /// Whether the connection for entries to a peer has been cut since it had those up to this one.
    fn has_cut(&self, peer: Uuid, since: u64) -> bool {
        self.cuts_since(peer, since) > 0
    }

    fn cuts_since(&self, peer: Uuid, since: u64) -> u32 {
        self.cuts.get(&peer).filter(|cuts| cuts.since == since).map_or(0, |cuts| cuts.count)
    }

    /// Whether entries do not come to a peer that has these.
    fn is_cut_off(&self, peer: Uuid, since: u64) -> bool {
        self.cuts_since(peer, since) >= CUTS_MAX
    }

    /// Something came from a peer.
    pub(super) fn heard(&mut self, peer: Uuid, now_us: u64) {
        self.heard.insert(peer, Heard { counted_us: self.counted_us, at_us: now_us });
    }

    /// Forgets when peers were heard who are not wanted any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Uuid) -> bool) {
        self.heard.retain(|peer, _| is_wanted(peer));
        self.cuts.retain(|peer, _| is_wanted(peer));
    }

    /// How much time has been counted.
    pub(super) fn counted_us(&self) -> u64 {
        self.counted_us
    }

    /// Whether something has come from a peer since so much time had been counted.
    pub(super) fn is_heard_since(&self, peer: Uuid, counted_us: u64) -> bool {
        self.heard.get(&peer).is_some_and(|heard| heard.counted_us > counted_us)
    }

    /// When something came from a peer last.
    pub(crate) fn heard_us(&self, peer: Uuid) -> Option<u64> {
        self.heard.get(&peer).map(|heard| heard.at_us)
    }

    /// For how long nothing has come from a peer while this member leads.
    fn silent_us(&self, peer: Uuid, led_since: u64) -> u64 {
        self.counted_us - self.heard.get(&peer).map_or(0, |heard| heard.counted_us).max(led_since)
    }

    /// Whether nothing has come from a peer for so long while this member leads.
    pub(super) fn is_silent(&self, peer: Uuid, for_us: u64) -> bool {
        self.led_since.is_some_and(|led_since| self.silent_us(peer, led_since) >= for_us)
    }

    /// A tick of this length has passed. Whether a leader has heard of too few of these `others` for an
    /// election timer to make a majority with it; those count that its entries come to.
    fn is_alone(
        &mut self,
        tick_us: u64,
        is_leader: bool,
        others: impl Iterator<Item = (Uuid, bool)>,
    ) -> bool {
        self.counted_us += tick_us;
        if self.led_since.is_some() != is_leader {
            self.led_since = is_leader.then_some(self.counted_us);
            self.cuts.clear();
        }
        let Some(led_since) = self.led_since else { return false };
        let (mut voters, mut heard) = (1, 1);
        for (peer, is_cut_off) in others {
            voters += 1;
            let is_heard = self.silent_us(peer, led_since) < ELECTION_TICKS * tick_us;
            heard += usize::from(is_heard && !is_cut_off);
        }
        heard * 2 <= voters
    }

    /// The member that a leader has not heard of for `limit_us`, if all `others` are as silent or well, as who
    /// was heard within an election timer is, and enough of those are. Looked for behind [`Silence::is_alone`].
    fn removable(
        &self,
        timer_us: u64,
        limit_us: u64,
        others: impl Iterator<Item = Uuid>,
    ) -> Option<Uuid> {
        let led_since = self.led_since?;
        let (mut voters, mut well, mut silent) = (1, 1, None);
        for peer in others {
            voters += 1;
            match self.silent_us(peer, led_since) {
                silence if silence < timer_us => well += 1,
                silence if silence >= limit_us => silent = silent.or(Some(peer)),
                _ => return None,
            }
        }
        silent.filter(|_| voters > MEMBERS_MIN && well * 2 > voters)
    }
}

impl Member {
    /// A connection for entries that lives for long carries them, however long one of them takes. One for requests
    /// carries those when it was not ended: what waits for an answer is asked again on it at once.
    fn forget_cuts(&mut self) {
        let least_us = match self.node.is_leader() {
            true => (CUTS_TIMERS * self.election_timer * 1000).max(CUTS_US_MIN),
            false => CUTS_US_MIN,
        };
        let Self { silence, peers, now_us, .. } = self;
        let lives_for = |since_us: Option<u64>, least_us| {
            since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) > least_us)
        };
        let lives = |peer: &Uuid| {
            lives_for(peers.carries_since(*peer, Lane::Log), least_us)
                || lives_for(peers.reached_since(*peer, Lane::Log), least_us.max(IDLE_US_MIN))
        };
        silence.cuts.retain(|peer, _| !lives(peer));
    }

    /// Looks, at each tick, whether this member leads and hears of no majority.
    pub(super) fn look_for_silence(&mut self) {
        self.forget_cuts();
        let own = self.id();
        let cut_off = self.cut_off();
        let others = self.servers.keys().copied().filter(|id| *id != own);
        let others = others.map(|id| (id, cut_off.contains(&id)));
        let tick_us = tick_us(self.election_timer);
        if !self.silence.is_alone(tick_us, self.node.is_leader(), others) {
            return self.remove_silent();
        }
        // Who still joins does not vote.
        let is_voter = |id: &Uuid| *id != own && self.servers.contains_key(id);
        let progress = self.node.progress().into_iter().filter(|(id, _)| is_voter(id));
        // Who is heard is there. If nobody is, as where one direction of the network is cut, anybody may be.
        let is_heard = |id: &Uuid| !self.silence.is_silent(*id, ELECTION_TICKS * tick_us);
        let successor = progress.max_by_key(|(id, progress)| (is_heard(id), progress.match_index));
        let what = match cut_off.is_empty() {
            true => "no majority has been heard of",
            false => "entries do not come to a majority, though it may be heard",
        };
        let text = format!("{}: {what}, leading no more", self.name);
        self.log_limited("silence", Level::Info, text);
        self.lead_no_more(successor.map(|(id, _)| id));
    }

    /// Members to whom the entries of this leader do not come that they lack; who still joins is none.
    fn cut_off(&self) -> Vec<Uuid> {
        if self.silence.cuts.is_empty() {
            return Vec::new();
        }
        let last = self.node.last();
        let is_cut_off = |(id, progress): (Uuid, Progress)| {
            let has = progress.match_index;
            let is_it = has < last && self.silence.is_cut_off(id, has);
            (is_it && self.servers.contains_key(&id)).then_some(id)
        };
        self.node.progress().into_iter().filter_map(is_cut_off).collect()
    }

    /// A connection, or an attempt at one, has ended for this reason: perhaps the one for entries. What the peer has
    /// closed is not cut.
    pub(super) fn note_cut(&mut self, link: &Link, error: Option<&str>) {
        let Some(peer) = link.peer.filter(|_| link.lane() == Some(Lane::Log)) else { return };
        if !error.is_some_and(|error| CUT.contains(&error)) {
            return;
        }
        if !link.carries && self.peers.is_reached(peer, Lane::Log) {
            return;
        }
        let is_of_requests = self.node.leader() == Some(peer);
        let (since, what) = if is_of_requests {
            (self.node.term(), "requests")
        } else {
            let progress = self.node.progress().get(&peer).copied();
            let lacking = progress.filter(|progress| progress.match_index < self.node.last());
            let Some(Progress { match_index, .. }) = lacking else { return };
            (match_index, "entries")
        };
        // Whose process starts anew refuses attempts; behind a connection that was cut they are rejected for it.
        if error == Some(REFUSED) && !link.is_up && !self.silence.has_cut(peer, since) {
            return;
        }
        if self.silence.cut(peer, since) {
            let text = format!(
                "{}: server {} is heard, and {what} do not come there: does the network lose long packets (MTU), or \
                 a firewall one of two connections?",
                link.name,
                self.nickname(peer)
            );
            self.log_limited("cut_off", Level::Warning, text);
        }
    }

    /// Whether requests do not come to the leader, though it is heard.
    pub(crate) fn is_cut_from_leader(&self) -> bool {
        let leader = self.node.leader().filter(|leader| *leader != self.id());
        leader.is_some_and(|leader| self.silence.is_cut_off(leader, self.node.term()))
    }

    /// Has members removed that are silent for so many milliseconds, while this one leads; `None` never
    /// does.
    pub fn set_removal(&mut self, ms: Option<u64>) {
        self.silence.removal_ms = ms;
    }

    /// After how many milliseconds of silence a member is removed, if ever.
    pub fn removal_ms(&self) -> Option<u64> {
        self.silence.removal_ms
    }

    /// Removes a member that has been silent for as long as an operator has said, one at a time.
    fn remove_silent(&mut self) {
        let Some(ms) = self.silence.removal_ms else { return };
        let is_quiet = self.removals.going.is_empty() && self.removals.committing.is_none();
        if !is_quiet || !self.node.may_propose() {
            return;
        }
        let own = self.id();
        let others = self.servers.keys().copied().filter(|id| *id != own);
        let timer_us = self.election_timer * 1000;
        let limit_us = (ms * 1000).max(REMOVAL_TIMERS_MIN * timer_us);
        let Some(server) = self.silence.removable(timer_us, limit_us, others) else { return };
        // Who is connected may stand still, or be a packaged server of a cluster that is being moved.
        if self.peers.is_connected(server) {
            return;
        }
        let address = self.servers.get(&server).cloned().unwrap_or_default();
        let text = format!("{} was silent for {ms} ms", self.named(server, &address));
        self.remove_unasked(server, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: [Uuid; 2] = [Uuid::from_u128(1), Uuid::from_u128(2)];

    fn others() -> impl Iterator<Item = (Uuid, bool)> {
        OTHERS.into_iter().map(|id| (id, false))
    }

    /// How many ticks of a microsecond pass until the leader is alone, if `hears` says whom it hears at which.
    fn ticks_until_alone(hears: impl Fn(u64) -> Vec<Uuid>) -> Option<u64> {
        let mut silence = Silence::default();
        (1..1000).find(|tick| {
            hears(*tick).into_iter().for_each(|peer| silence.heard(peer, 0));
            silence.is_alone(1, true, others())
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
            assert!(!silence.is_alone(1, false, others()));
        }
        for _ in 0..ELECTION_TICKS {
            assert!(!silence.is_alone(1, true, others()));
        }
        assert!(silence.is_alone(1, true, others()));
    }

    /// Whom a leader may remove of others that it heard last at these ticks, at tick 1000, if that takes
    /// 500 ticks of silence.
    fn removable(heard: &[u64]) -> Option<usize> {
        let peers = || (1..=heard.len() as u128).map(Uuid::from_u128);
        let mut silence = Silence { led_since: Some(1), counted_us: 1000, ..Silence::default() };
        silence
            .heard
            .extend(peers().zip(heard.iter().map(|&tick| Heard { counted_us: tick, at_us: 0 })));
        peers().position(|peer| silence.removable(ELECTION_TICKS, 500, peers()) == Some(peer))
    }

    #[test]
    fn who_is_silent_for_long_may_go_if_enough_others_are_well() {
        assert_eq!(removable(&[1000, 400, 990]), Some(1), "three of four are well");
        assert_eq!(removable(&[1000, 600, 990]), None, "not for long enough");
        assert_eq!(removable(&[1000, 400]), None, "three members stay");
        assert_eq!(removable(&[1000, 400, 300, 990]), Some(1), "one after the other");
        assert_eq!(removable(&[1000, 400, 800, 990]), None, "another one is about to be silent");
        assert_eq!(removable(&[400, 400, 990]), None, "two of four are no majority");
        assert_eq!(removable(&[1000, 0, 1000, 1000]), Some(1), "never heard of");
    }

    #[test]
    fn who_has_just_begun_to_lead_has_heard_everybody_so_to_say() {
        let silence = Silence { led_since: Some(900), counted_us: 1000, ..Silence::default() };
        let peers = (1..=4).map(Uuid::from_u128);
        assert_eq!(silence.removable(ELECTION_TICKS, 500, peers), None);
    }

    #[test]
    fn who_is_alone_in_the_cluster_is_a_majority() {
        let mut silence = Silence::default();
        assert!((0..500).all(|_| !silence.is_alone(1, true, [].into_iter())));
    }

    #[test]
    fn who_is_heard_and_gets_no_entries_does_not_count() {
        let mut silence = Silence::default();
        assert!(!silence.is_alone(1, true, others()));
        assert!(!silence.cut(OTHERS[0], 7), "that happens");
        assert!(!silence.cut(OTHERS[0], 7) && !silence.is_cut_off(OTHERS[0], 7), "it is away");
        assert!(!silence.is_alone(1, true, others()));
        OTHERS.into_iter().for_each(|peer| silence.heard(peer, 0));
        assert!(silence.cut(OTHERS[0], 7), "it was heard, and has got nothing");
        assert!(silence.is_cut_off(OTHERS[0], 7) && !silence.is_cut_off(OTHERS[1], 7));
        assert!(!silence.is_cut_off(OTHERS[0], 8), "it has got one");
        assert!(!silence.cut(OTHERS[0], 8) && !silence.is_cut_off(OTHERS[0], 8));
        let with = |cut_off: [bool; 2]| OTHERS.into_iter().zip(cut_off);
        assert!(!silence.is_alone(1, true, with([true, false])));
        assert!(silence.is_alone(1, true, with([true, true])));
        silence.is_alone(1, false, others());
        assert!(!silence.is_cut_off(OTHERS[0], 8), "who leads later begins anew");
    }
}
