//! Connections between servers: in order, delayed, in pieces of any length, cut one way or both.

use std::collections::{BTreeMap, BTreeSet};

use weir_server::event::{Event, LinkId};

use crate::world::{Due, World};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) node: usize,
    pub(crate) link: LinkId,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Network {
    /// The other end of each end.
    ends: BTreeMap<End, End>,
    /// When the last bytes come to each end, so that they stay in order.
    last_us: BTreeMap<End, u64>,
    accepted: u64,
    /// Pairs of which the second one hears nothing of the first one.
    pub(crate) cut: BTreeSet<(usize, usize)>,
}

impl World {
    pub(crate) fn connect(&mut self, node: usize, link: LinkId, target: &str) {
        let at = self.now_us + 300 + self.delay_us();
        let other = self.nodes.iter().position(|node| node.address == target);
        let cut = &self.network.cut;
        let other = other.filter(|other| {
            self.nodes[*other].port.is_some()
                && !cut.contains(&(node, *other))
                && !cut.contains(&(*other, node))
        });
        let Some(other) = other else {
            let error = Some("Connection refused".into());
            return self.event_at(at, node, Event::LinkDown { link, error });
        };
        self.network.accepted += 1;
        let number = LinkId(LinkId::ACCEPTED_MIN + self.network.accepted);
        let (ours, theirs) = (End { node, link }, End { node: other, link: number });
        self.network.ends.extend([(ours, theirs), (theirs, ours)]);
        self.network.last_us.extend([(ours, at), (theirs, at)]);
        let port = self.nodes[other].port.expect("just looked at");
        let name = format!("tcp:node{node}");
        self.event_at(at, other, Event::LinkAccepted { port, link: number, name });
        self.event_at(at, node, Event::LinkUp { link });
    }

    pub(crate) fn send(&mut self, from: End, bytes: &[u8]) {
        let Some(to) = self.network.ends.get(&from).copied() else { return };
        // What a stream carries is stuck in a cut until the connection ends.
        if bytes.is_empty() || self.network.cut.contains(&(from.node, to.node)) {
            return;
        }
        let stalls = self.rng.below(10_000) < self.faults.stall;
        let stall_us = if stalls { self.rng.below(100_000) as u64 } else { 0 };
        let at = (self.now_us + 50 + self.delay_us()).max(self.network.last_us[&to] + 1) + stall_us;
        self.network.last_us.insert(to, at);
        let (head, tail) = bytes.split_at(self.rng.below(bytes.len() + 1));
        for piece in [head, tail] {
            if !piece.is_empty() {
                let event = Event::LinkBytes { link: to.link, bytes: piece.to_vec() };
                self.event_at(at, to.node, event);
            }
        }
    }

    /// A connection is closed at one end; the other end hears of it.
    pub(crate) fn close(&mut self, end: End) {
        let Some(other) = self.network.ends.remove(&end) else { return };
        self.network.ends.remove(&other);
        let last_us = self.network.last_us.remove(&other).unwrap_or_default();
        self.network.last_us.remove(&end);
        let error = Some("Connection reset by peer".to_owned());
        let at = last_us.max(self.now_us) + 200;
        self.event_at(at, other.node, Event::LinkDown { link: other.link, error });
    }

    /// All connections of a server end with its process.
    pub(crate) fn close_all(&mut self, node: usize) {
        let ends = self.network.ends.keys().filter(|end| end.node == node);
        ends.copied().collect::<Vec<_>>().into_iter().for_each(|end| self.close(end));
    }

    /// A connection ends for no reason that either end knows.
    pub(crate) fn reset_one(&mut self) {
        let ends: Vec<End> = self.network.ends.keys().copied().collect();
        if !ends.is_empty() {
            let end = *self.rng.pick(&ends);
            self.reset(end);
        }
    }

    fn reset(&mut self, end: End) {
        self.close(end);
        let error = Some("Connection reset by peer".to_owned());
        let event = Event::LinkDown { link: end.link, error };
        self.due(self.now_us + 200, end.node, Due::Event(event));
    }

    /// Everybody hears everybody again; connections that were cut have lost bytes, so they end.
    pub(crate) fn heal(&mut self) {
        let cut = std::mem::take(&mut self.network.cut);
        let is_cut = |a: usize, b: usize| cut.contains(&(a, b)) || cut.contains(&(b, a));
        let ends = self.network.ends.iter();
        let broken: Vec<End> = ends
            .filter(|(end, other)| end < other && is_cut(end.node, other.node))
            .map(|(end, _)| *end)
            .collect();
        broken.into_iter().for_each(|end| self.reset(end));
    }
}
