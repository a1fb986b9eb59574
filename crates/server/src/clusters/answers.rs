//! Answers to other members that are on their way.
//!
//! 1. A leader counts the bytes of its answers to each member ([`Answers::sent`]).
//! 2. A member counts those that have come, and tells the leader of each [`TOLD_BYTES`] ([`Answers::taken`],
//!    [`Answers::told`]).
//! 3. Of a member that has not taken [`UNTAKEN_BYTES_MAX`] the leader runs nothing more until it has
//!    ([`Answers::is_full`]): answers come one after another, and those to come would only wait in its memory, and in
//!    front of a connection that ends when too much does.
//! 4. What helpers were at by then is answered, too: answers that belong to no entry are held until there is room
//!    ([`Answers::hold`], [`Answers::next_held`]). Those of entries go at once, ahead of them, and behind what is held for
//!    the same client ([`Answers::held_for`]): its member takes the entry for the end of what the client asked before.
//! 5. What a connection carried when it ended is asked for again: the count begins anew ([`Answers::lost`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_data::Uuid;

use crate::origin::Identity;

/// Bytes of answers that a member has not taken, beyond which nothing more runs for it. They stand in front of the
/// entries: over a line of 10 Mbit/s this is most of a second.
const UNTAKEN_BYTES_MAX: u64 = 1 << 20;

/// A member says so when it has taken so many bytes more.
const TOLD_BYTES: u64 = 64 << 10;

/// Answers between this server and other members.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Bytes sent to members that have not said that they have them.
    untaken: BTreeMap<Uuid, u64>,
    /// Bytes that have come from members that have not been told so.
    untold: BTreeMap<Uuid, u64>,
    /// For members that have much to take; none is empty.
    held: BTreeMap<Uuid, VecDeque<Held>>,
}

/// An answer that waits until its member has taken others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The request, and its attempt.
    pub(crate) of: (Uuid, u64),
    /// Who has asked, as its member calls it.
    pub(crate) client: Arc<Identity>,
    pub(crate) message: Vec<u8>,
}

impl Answers {
    /// An answer of so many bytes is on its way to a member.
    pub(crate) fn sent(&mut self, to: Uuid, bytes: usize) {
        *self.untaken.entry(to).or_default() += bytes as u64;
    }

    /// A member says that it has taken so many bytes more. Some may be of a connection that has ended since.
    pub(crate) fn told(&mut self, by: Uuid, bytes: u64) {
        if let Some(untaken) = self.untaken.get_mut(&by) {
            *untaken = untaken.saturating_sub(bytes);
        }
    }

    /// An answer of so many bytes has come: what its sender is to be told, if anything.
    pub(crate) fn taken(&mut self, from: Uuid, bytes: usize) -> Option<u64> {
        let untold = self.untold.entry(from).or_default();
        *untold += bytes as u64;
        (*untold >= TOLD_BYTES).then(|| std::mem::take(untold))
    }

    /// A connection to a member has ended.
    pub(crate) fn lost(&mut self, peer: Uuid) {
        self.untaken.remove(&peer);
        self.untold.remove(&peer);
        self.held.remove(&peer);
    }

    /// This server leads no more: what it has to say means nothing. Whose answers those were.
    pub(crate) fn take_held(&mut self) -> Vec<(Uuid, Held)> {
        let of = |(to, held): (Uuid, VecDeque<Held>)| held.into_iter().map(move |held| (to, held));
        std::mem::take(&mut self.held).into_iter().flat_map(of).collect()
    }

    /// An answer waits.
    pub(crate) fn hold(&mut self, to: Uuid, held: Held) {
        self.held.entry(to).or_default().push_back(held);
    }

    /// The next one for which there is room now.
    pub(crate) fn next_held(&mut self, to: Uuid, backlog_bytes_max: usize) -> Option<Vec<u8>> {
        if self.has_much(to, backlog_bytes_max) {
            return None;
        }
        let held = self.held.get_mut(&to)?;
        let next = held.pop_front();
        if held.is_empty() {
            self.held.remove(&to);
        }
        next.map(|held| held.message)
    }

    /// What is held for a client of a member, in order: it waits no longer.
    pub(crate) fn held_for(&mut self, to: Uuid, client: &Identity) -> Vec<Vec<u8>> {
        let Some(held) = self.held.get_mut(&to) else { return Vec::new() };
        let (of_client, others) =
            std::mem::take(held).into_iter().partition(|held| held.client.name == client.name);
        *held = others;
        if held.is_empty() {
            self.held.remove(&to);
        }
        let of_client: VecDeque<Held> = of_client;
        of_client.into_iter().map(|held| held.message).collect()
    }

    /// Whether a member has so much to take that nothing more runs for it. So many bytes may wait in front of its
    /// connection.
    pub(crate) fn is_full(&self, of: Uuid, backlog_bytes_max: usize) -> bool {
        self.held.contains_key(&of) || self.has_much(of, backlog_bytes_max)
    }

    fn has_much(&self, of: Uuid, backlog_bytes_max: usize) -> bool {
        // It need not have said that it has taken less than that.
        let least = 2 * TOLD_BYTES;
        let most = UNTAKEN_BYTES_MAX.min(backlog_bytes_max as u64 / 4).max(least);
        self.untaken.get(&of).is_some_and(|untaken| *untaken >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Uuid = Uuid::from_u128(1);

    fn held_for(client: &str, n: u8) -> Held {
        let client = Arc::new(Identity { name: client.into(), ..Identity::default() });
        Held { of: (Uuid::from_u128(7), n.into()), client, message: vec![n] }
    }

    /// Bytes that are sent to a member, one answer after another, until nothing more runs for it.
    fn until_full(answers: &mut Answers, each: usize, backlog_bytes_max: usize) -> u64 {
        let mut sent = 0;
        while !answers.is_full(PEER, backlog_bytes_max) {
            answers.sent(PEER, each);
            sent += each as u64;
        }
        sent
    }

    #[test]
    fn nothing_more_runs_for_who_has_much_to_take() {
        let mut leader = Answers::default();
        let each = 1 << 15;
        assert_eq!(until_full(&mut leader, each, usize::MAX), UNTAKEN_BYTES_MAX);
        leader.told(PEER, 1);
        assert_eq!(until_full(&mut leader, each, usize::MAX), each as u64);
        leader.lost(PEER);
        assert_eq!(until_full(&mut leader, each, 2 << 20), 1 << 19, "less may wait");
        leader.told(PEER, u64::MAX);
        assert_eq!(until_full(&mut leader, each, 2 << 20), 1 << 19, "that was of another one");
    }

    #[test]
    fn what_is_held_goes_one_by_one_and_nothing_runs_before() {
        let mut leader = Answers::default();
        let sent = until_full(&mut leader, 1 << 20, usize::MAX);
        let held = |n: u8| held_for("a", n);
        (1..=2).for_each(|n| leader.hold(PEER, held(n)));
        assert_eq!(leader.next_held(PEER, usize::MAX), None);
        leader.told(PEER, sent);
        assert!(leader.is_full(PEER, usize::MAX), "two come first");
        assert_eq!(leader.next_held(PEER, usize::MAX), Some(vec![1]));
        leader.sent(PEER, 100 << 20);
        assert_eq!(leader.next_held(PEER, usize::MAX), None);
        leader.told(PEER, 100 << 20);
        assert_eq!(leader.next_held(PEER, usize::MAX), Some(vec![2]));
        assert!(!leader.is_full(PEER, usize::MAX));
        leader.hold(PEER, held(3));
        assert_eq!(leader.take_held(), [(PEER, held(3))]);
        assert!(!leader.is_full(PEER, usize::MAX));
    }

    #[test]
    fn what_is_held_for_a_client_goes_before_more_for_it() {
        let mut leader = Answers::default();
        for (client, n) in [("a", 1), ("b", 2), ("a", 3)] {
            leader.hold(PEER, held_for(client, n));
        }
        let client = |name: &str| Identity { name: name.into(), ..Identity::default() };
        assert_eq!(leader.held_for(PEER, &client("a")), [[1], [3]]);
        assert_eq!(leader.held_for(Uuid::from_u128(2), &client("b")), <[Vec<u8>; 0]>::default());
        assert!(leader.is_full(PEER, usize::MAX), "one is held");
        assert_eq!(leader.held_for(PEER, &client("b")), [[2]]);
        assert!(!leader.is_full(PEER, usize::MAX));
    }

    #[test]
    fn who_takes_everything_is_never_left_waiting() {
        for backlog_bytes_max in [0, 1 << 20, usize::MAX] {
            for each in [1, 1000, TOLD_BYTES as usize - 1, 100 << 20] {
                let (mut leader, mut member) = (Answers::default(), Answers::default());
                for _ in 0..3 * UNTAKEN_BYTES_MAX as usize / each.max(10_000) {
                    assert!(!leader.is_full(PEER, backlog_bytes_max));
                    leader.sent(PEER, each);
                    member.taken(PEER, each).into_iter().for_each(|told| leader.told(PEER, told));
                }
            }
        }
    }
}
