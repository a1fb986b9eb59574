//! Connections between servers: in order, delayed, in pieces of any length, cut one way or both.

use std::collections::{BTreeMap, BTreeSet};

use weir_cluster::{Event, LinkId};

use super::shell::Lie;
use super::world::{Due, World};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub server: usize,
    pub link: LinkId,
}

#[derive(Default)]
pub struct Network {
    /// The other end of each end.
    pub ends: BTreeMap<End, End>,
    /// When the last bytes come on each connection, so that they stay in order.
    last_at: BTreeMap<End, u64>,
    accepted: u64,
    /// Other names by which servers are found, besides their addresses.
    names: BTreeMap<String, usize>,
    /// Pairs of which the second one hears nothing of the first one.
    pub cut: BTreeSet<(usize, usize)>,
    /// Pairs of which the second one hears nothing of the first one that is longer than so many bytes.
    pub narrow: BTreeMap<(usize, usize), usize>,
    /// Ends of which nothing comes to the other end any more.
    silent: BTreeSet<End>,
    /// Ends of connections that are being made, while nobody answers.
    attempts: BTreeSet<End>,
}

/// Connections that come have numbers from here on, so that they differ from those that were made.
const ACCEPTED_FROM: u64 = 1 << 32;

/// How long an end is silent before the system ends it, and how much longer at most: `TCP_USER_TIMEOUT`.
const SILENT_US: u64 = 2_000_000;
const SILENT_MORE_US: u64 = 300_000;

/// An attempt to connect that nobody answers is made again after so long, then after twice as long each time, and
/// is given up after the longer time.
const ATTEMPT_US: u64 = 1_000_000;
const PATIENCE_US: u64 = 5_000_000;

fn reset() -> Option<String> {
    Some("Connection reset by peer".into())
}

impl World {
    /// A server that wants to join, and has been told of another one by a name that this does not have for itself.
    pub fn add_joiner_at(&mut self, other: usize, name: &str) -> usize {
        let joiner = self.add_joiner();
        self.network.names.insert(name.to_owned(), other);
        self.servers[joiner].disk.front.remotes = vec![name.to_owned()];
        joiner
    }

    /// How many connections there have been so far.
    pub fn connections(&self) -> u64 {
        self.network.accepted
    }

    pub(super) fn connect(&mut self, n: usize, link: LinkId, address: &str) {
        self.network.attempts.insert(End { server: n, link });
        self.attempt(n, self.now_us, link, address);
    }

    /// A server connects, and has tried to since then.
    pub(super) fn attempt(&mut self, n: usize, since_us: u64, link: LinkId, address: &str) {
        let ours = End { server: n, link };
        if !self.network.attempts.remove(&ours) {
            return;
        }
        let at = self.now_us + 500 + 1000 * self.rng.below(self.faults.delay.max(1));
        let target = self.servers.iter().position(|server| server.address == address);
        let target = target.or_else(|| self.network.names.get(address).copied());
        let cut = &self.network.cut;
        let is_cut = |target: &usize| cut.contains(&(n, *target)) || cut.contains(&(*target, n));
        let is_up = |target: &usize| self.servers[*target].member.is_some();
        let again_us = 2 * self.now_us - since_us + ATTEMPT_US;
        if self.faults.is_dark && target.is_some_and(|target| is_cut(&target) || !is_up(&target)) {
            let ends_us = since_us + PATIENCE_US;
            if again_us < ends_us {
                self.network.attempts.insert(ours);
                let due = Due::Attempt { since_us, link, address: address.to_owned() };
                return self.later(again_us, n, due);
            }
            let lost = Event::Lost { link, error: Some("Connection timed out".into()) };
            return self.later(ends_us, n, Due::Event(lost));
        }
        let target = target.filter(|target| is_up(target) && !is_cut(target));
        let Some(target) = target else {
            let error = Some("Connection refused".into());
            return self.later(at, n, Due::Event(Event::Lost { link, error }));
        };
        self.network.accepted += 1;
        let theirs = End { server: target, link: LinkId(ACCEPTED_FROM + self.network.accepted) };
        self.network.ends.extend([(ours, theirs), (theirs, ours)]);
        self.network.last_at.extend([(ours, at), (theirs, at)]);
        let name = format!("tcp:{n}");
        self.later(at, target, Due::Event(Event::Accepted { link: theirs.link, name }));
        self.later(at, n, Due::Event(Event::Connected { link }));
    }

    pub(super) fn send(&mut self, from: End, bytes: &[u8]) {
        let Some(to) = self.network.ends.get(&from).copied() else { return };
        // What a stream carries is stuck in a cut until the connection ends, and so is what comes behind it.
        let pair = (from.server, to.server);
        let is_too_long = self.network.narrow.get(&pair).is_some_and(|most| bytes.len() > *most);
        let is_cut = self.network.cut.contains(&pair);
        if (is_cut && self.faults.silence > 0) || is_too_long {
            self.go_silent(from);
        }
        if is_cut || self.network.silent.contains(&from) {
            return;
        }
        let is_silent = matches!(
            self.lie,
            Some(Lie::TellsNothing | Lie::IgnoresDamage | Lie::ForgetsVotes | Lie::ForgetsTail)
        );
        let bytes = &if is_silent { untold(bytes) } else { bytes.to_vec() };
        let delay = 100 + self.rng.below(1000 * self.faults.delay.max(1));
        let at = (self.now_us + delay).max(self.network.last_at[&to] + 1);
        self.network.last_at.insert(to, at);
        let cut = self.rng.below(bytes.len() as u64 + 1) as usize;
        let (head, tail) = bytes.split_at(cut);
        for piece in [head, tail] {
            if !piece.is_empty() {
                let event = Event::Received { link: to.link, bytes: piece.to_vec() };
                self.later(at, to.server, Due::Event(event));
            }
        }
    }

    /// A connection is closed at one end; the other end hears of it.
    pub(super) fn close(&mut self, end: End) {
        self.network.silent.remove(&end);
        self.network.attempts.remove(&end);
        let Some(other) = self.network.ends.remove(&end) else { return };
        self.forget_ends([end, other]);
        self.network.silent.remove(&other);
        let lost = Event::Lost { link: other.link, error: reset() };
        self.later(self.now_us + 1000, other.server, Due::Event(lost));
    }

    /// Nothing of an end comes to the other one any more, and after a while the system ends it.
    pub(super) fn go_silent(&mut self, end: End) {
        if self.network.silent.insert(end) {
            let at = self.now_us + SILENT_US + self.rng.below(SILENT_MORE_US);
            self.later(at, end.server, Due::TimedOut(end.link));
        }
    }

    /// The system ends a connection that was silent; the other end hears of it unless it has gone silent, too.
    pub(super) fn time_out(&mut self, end: End) {
        if !self.network.silent.remove(&end) {
            return;
        }
        self.checks.counts.timed_out += 1;
        let other = self.network.ends.get(&end).copied();
        if other.is_some_and(|other| self.network.silent.contains(&other)) {
            self.forget_ends([end].into_iter().chain(other));
        } else {
            self.close(end);
        }
        let (link, error) = (end.link, Some("Connection timed out".into()));
        self.event(end.server, Event::Lost { link, error });
    }

    /// The numbers of these ends may be those of others from now on.
    fn forget_ends(&mut self, ends: impl IntoIterator<Item = End>) {
        for end in ends {
            self.network.ends.remove(&end);
            self.network.last_at.remove(&end);
        }
    }

    /// All connections of a server end with its process.
    pub(super) fn close_all(&mut self, n: usize) {
        self.network.silent.retain(|end| end.server != n);
        self.network.attempts.retain(|end| end.server != n);
        let ends = self.network.ends.keys().filter(|end| end.server == n);
        for end in ends.copied().collect::<Vec<_>>() {
            self.close(end);
        }
    }

    /// A connection ends at both ends.
    pub(super) fn break_connection(&mut self, end: End) {
        if self.network.ends.contains_key(&end) {
            self.close(end);
            let lost = Event::Lost { link: end.link, error: reset() };
            self.later(self.now_us + 1000, end.server, Due::Event(lost));
        }
    }

    /// Everybody hears everybody again; connections that were cut have lost bytes, so they end.
    pub fn heal(&mut self) {
        self.network.narrow.clear();
        let cut = std::mem::take(&mut self.network.cut);
        let ends: Vec<(End, End)> =
            self.network.ends.iter().map(|(end, other)| (*end, *other)).collect();
        for (end, other) in ends {
            let pair = (end.server, other.server);
            if cut.contains(&pair) || cut.contains(&(pair.1, pair.0)) {
                self.break_connection(end);
            }
        }
    }
}

/// A greeting without what its sender has heard its receiver promise.
fn untold(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let Some(at) = text.find("\"weir/1 ") else { return bytes.to_vec() };
    let end = text[at + 1..].find('"').map_or(text.len(), |end| at + 1 + end);
    let words: Vec<&str> = text[at..end].split(' ').take(2).collect();
    format!("{}{}{}", &text[..at], words.join(" "), &text[end..]).into_bytes()
}
