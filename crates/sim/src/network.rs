//! Connections between servers: in order, delayed, in pieces of any length, cut one way or both.
//!
//! Members of the cluster speak to one another in a stream of bytes; a relay is a client of the server
//! before it, and what they say comes in whole messages.

use std::collections::{BTreeMap, BTreeSet};

use weir_server::effect::Framing;
use weir_server::event::{Event, LinkId, SessionId};

use crate::node::Node;
use crate::sessions::whole;
use crate::world::{Due, World};

/// The host of a member ends a connection to a peer of which nothing is heard for so long, in microseconds
/// (`PEER_SILENCE` of the real one), and up to [`PEER_ASKED_US`] more.
const PEER_SILENCE_US: u64 = 2_000_000;

/// The host asks a silent one so often whether it is there, in microseconds.
const PEER_ASKED_US: usize = 1_000_000;

/// An attempt to connect to a host of which nothing is heard is made again after so long, in microseconds, then
/// after twice as long each time, as TCP does.
const ATTEMPT_US: u64 = 1_000_000;

/// The host of a member gives an attempt to connect to a peer so long, in microseconds (`PEER_PATIENCE` of the real
/// one). A relay says itself how long it waits for its source.
const PEER_PATIENCE_US: u64 = 5_000_000;

/// What is told of a connection whose other end is known to be gone.
const RESET: &str = "Connection reset by peer";

/// What a server says that does not remember what has come of something.
const UNKNOWN: &[u8] = b"\"result\":\"unknown\"";

/// What is told of a connection on which nothing is heard.
const TIMED_OUT: &str = "Connection timed out";

/// What a server calls its end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Socket {
    Link(LinkId),
    Session(SessionId),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) node: usize,
    pub(crate) socket: Socket,
}

/// A connection that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) link: LinkId,
    pub(crate) target: String,
    pub(crate) framing: Framing,
    /// When the server asked for it.
    pub(crate) since_us: u64,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Network {
    /// The other end of each end.
    ends: BTreeMap<End, End>,
    /// When the last bytes come to each end, so that they stay in order.
    last_us: BTreeMap<End, u64>,
    /// Ends that do not know that the other end is gone.
    half_open: BTreeMap<End, Gone>,
    /// What an end has said of a message that is not whole yet.
    begun: BTreeMap<End, Vec<u8>>,
    accepted: u64,
    /// How often it was not known any more what a relay's source may make yet of what it was asked: a source does not
    /// remember, or the relay has ended.
    pub(crate) unknown: u64,
    /// Pairs of which the second one hears nothing of the first one.
    pub(crate) cut: BTreeSet<(usize, usize)>,
}

/// The other end of a connection is gone, and this one was not told.
#[derive(Clone, Copy)]
struct Gone {
    /// The server that had the other end.
    node: usize,
    /// The host of that server goes on saying so, and is heard once nothing is cut. A host without power says
    /// nothing: who sends it something when it is back is told then.
    is_told: bool,
}

impl Network {
    /// Each end, and the other one of its connection.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&End, &End)> {
        self.ends.iter()
    }
}

impl End {
    pub(crate) fn link(node: usize, link: LinkId) -> Self {
        Self { node, socket: Socket::Link(link) }
    }

    pub(crate) fn session(node: usize, session: SessionId) -> Self {
        Self { node, socket: Socket::Session(session) }
    }

    /// What is told at this end when the connection ends.
    fn down(self, error: &str) -> Event {
        let error = Some(error.to_owned());
        match self.socket {
            Socket::Link(link) => Event::LinkDown { link, error },
            Socket::Session(session) => Event::Closed { session, error },
        }
    }

    /// What is told at this end when a message of the other one comes.
    fn message(self, bytes: Vec<u8>) -> Event {
        match self.socket {
            Socket::Link(link) => Event::LinkMessage { link, bytes },
            Socket::Session(session) => Event::Message { session, bytes },
        }
    }
}

impl World {
    /// A server connects, unless it has given that up.
    pub(crate) fn connect(&mut self, node: usize, attempt: Attempt) {
        let link = attempt.link;
        if !self.nodes[node].links.contains(&link) {
            return;
        }
        let at = self.now_us + 300 + self.delay_us();
        let is_json = matches!(attempt.framing, Framing::Json);
        let is_there = |node: &Node| match is_json {
            true => node.client_address == attempt.target && node.remote.is_some(),
            false => node.address == attempt.target && node.port.is_some(),
        };
        let is_dark = |node: &Node| {
            node.is_dark && [&node.client_address, &node.address].contains(&&attempt.target)
        };
        let dark = || self.nodes.iter().position(is_dark);
        let Some(other) = self.nodes.iter().position(is_there).or_else(dark) else {
            return self.event_at(at, node, End::link(node, link).down("Connection refused"));
        };
        if self.nodes[other].is_dark || self.is_cut(node, other) {
            let again_us = 2 * self.now_us - attempt.since_us + ATTEMPT_US;
            let ends_us = attempt.since_us + PEER_PATIENCE_US;
            if is_json || again_us < ends_us {
                return self.due(again_us, node, Due::Connect(attempt));
            }
            return self.event_at(ends_us, node, End::link(node, link).down(TIMED_OUT));
        }
        let theirs = match is_json {
            true => End::session(other, self.accept_client(at, other)),
            false => End::link(other, self.accept(at, node, other)),
        };
        let ours = End::link(node, link);
        self.network.ends.extend([(ours, theirs), (theirs, ours)]);
        self.network.last_us.extend([(ours, at), (theirs, at)]);
        self.event_at(at, node, Event::LinkUp { link });
    }

    /// A member hears of a connection of a peer.
    fn accept(&mut self, at_us: u64, from: usize, n: usize) -> LinkId {
        self.network.accepted += 1;
        let link = LinkId(LinkId::ACCEPTED_MIN + self.network.accepted);
        let port = self.nodes[n].port.expect("it listens for peers");
        let name = format!("tcp:node{from}");
        self.event_at(at_us, n, Event::LinkAccepted { port, link, name });
        link
    }

    /// A server hears of a connection of a client.
    pub(crate) fn accept_client(&mut self, at_us: u64, n: usize) -> SessionId {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        self.nodes[n].sessions.insert(session);
        let remote = self.nodes[n].remote.expect("it listens for clients");
        let name = format!("unix#{}", self.sessions);
        self.event_at(at_us, n, Event::Accepted { session, remote, name, client: None });
        session
    }

    /// Whether a session is a relay's, and not a client's of this world.
    pub(crate) fn is_of_relay(&self, n: usize, session: SessionId) -> bool {
        let end = End::session(n, session);
        self.network.ends.contains_key(&end) || self.network.half_open.contains_key(&end)
    }

    pub(crate) fn send(&mut self, from: End, bytes: &[u8]) {
        let Some(to) = self.network.ends.get(&from).copied() else {
            return self.send_to_nobody(from);
        };
        // What a stream carries is stuck in a cut until the connection ends.
        if bytes.is_empty() || self.network.cut.contains(&(from.node, to.node)) {
            return;
        }
        let stalls = self.rng.below(10_000) < self.faults.stall;
        let stall_us = if stalls { self.rng.below(100_000) as u64 } else { 0 };
        let at = (self.now_us + 50 + self.delay_us()).max(self.network.last_us[&to] + 1) + stall_us;
        self.network.last_us.insert(to, at);
        if let (Socket::Link(_), Socket::Link(link)) = (from.socket, to.socket) {
            let (head, tail) = bytes.split_at(self.rng.below(bytes.len() + 1));
            for piece in [head, tail] {
                if !piece.is_empty() {
                    let event = Event::LinkBytes { link, bytes: piece.to_vec() };
                    self.event_at(at, to.node, event);
                }
            }
            return;
        }
        let mut begun = self.network.begun.remove(&from).unwrap_or_default();
        begun.extend_from_slice(bytes);
        while let Some(end) = whole(&begun).expect("servers send JSON") {
            let message: Vec<u8> = begun.drain(..end).collect();
            let is_unknown = message.windows(UNKNOWN.len()).any(|part| part == UNKNOWN);
            self.network.unknown += u64::from(is_unknown);
            self.event_at(at, to.node, to.message(message));
        }
        self.network.begun.insert(from, begun);
    }

    /// When all that was sent to a relay on a session has come there; `None` if it never does.
    pub(crate) fn drained_us(&mut self, n: usize, session: SessionId) -> Option<u64> {
        let is_slow = self.rng.below(10_000) < self.faults.slow_reader;
        let slow_us = if is_slow { self.rng.below(100_000) as u64 } else { 0 };
        let to = self.network.ends.get(&End::session(n, session))?;
        let is_cut = self.network.cut.contains(&(n, to.node));
        let read_us = self.network.last_us[to].max(self.nodes[to.node].paused_until_us);
        (!is_cut).then_some(read_us + slow_us)
    }

    /// An end sends something to one that is gone: the host there says so, if it runs and hears it.
    fn send_to_nobody(&mut self, from: End) {
        let Some(gone) = self.network.half_open.get(&from) else { return };
        if self.nodes[gone.node].server.is_some() && !self.is_cut(from.node, gone.node) {
            self.hears_of_end(from, self.now_us, RESET);
        }
    }

    /// A server is not heard by another one any more, which it does not hear either if the cut is mutual.
    pub(crate) fn cut(&mut self, n: usize, other: usize, is_mutual: bool) {
        self.network.cut.insert((n, other));
        if is_mutual {
            self.network.cut.insert((other, n));
        }
        // One way is enough: acknowledgements come the other way.
        let is_across = |a: &End, b: &End| [(n, other), (other, n)].contains(&(a.node, b.node));
        let across = self.network.ends.iter().filter(|(a, b)| is_across(a, b) && are_peers(a, b));
        let across: Vec<End> = across.map(|(end, _)| *end).collect();
        across.into_iter().for_each(|end| self.ask_whether_there(end));
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.network.cut.contains(&(a, b)) || self.network.cut.contains(&(b, a))
    }

    /// A connection is closed at one end; the other end hears of it, unless it hears nothing.
    pub(crate) fn close(&mut self, end: End) {
        self.end(end, true);
    }

    fn end(&mut self, end: End, is_told: bool) {
        self.network.half_open.remove(&end);
        let Some(other) = self.network.ends.remove(&end) else { return };
        self.network.ends.remove(&other);
        let last_us = self.network.last_us.remove(&other).unwrap_or_default();
        self.network.last_us.remove(&end);
        for end in [end, other] {
            self.network.begun.remove(&end);
        }
        if is_told && !self.network.cut.contains(&(end.node, other.node)) {
            return self.hears_of_end(other, last_us, RESET);
        }
        self.network.half_open.insert(other, Gone { node: end.node, is_told });
        if are_peers(&end, &other) {
            self.ask_whether_there(other);
        }
    }

    /// The host of a member begins to ask whether the one at the other end of a connection is there.
    fn ask_whether_there(&mut self, end: End) {
        let at = self.now_us + PEER_SILENCE_US + self.rng.below(PEER_ASKED_US) as u64;
        self.due(at, end.node, Due::Silent(end.socket));
    }

    /// The host at the other end of a connection to a peer has been silent for too long, if the process there is
    /// gone or the network is still cut.
    pub(crate) fn end_if_silent(&mut self, end: End) {
        if self.network.half_open.contains_key(&end) {
            return self.hears_of_end(end, self.now_us, TIMED_OUT);
        }
        let other = self.network.ends.get(&end).copied();
        if other.is_some_and(|other| self.is_cut(end.node, other.node)) {
            self.end(end, false);
            self.hears_of_end(end, self.now_us, TIMED_OUT);
        }
    }

    /// An end hears that the other one is gone, behind what comes to it at some time.
    fn hears_of_end(&mut self, end: End, last_us: u64, why: &str) {
        self.network.half_open.remove(&end);
        let at = last_us.max(self.now_us) + 200;
        self.event_at(at, end.node, end.down(why));
    }

    /// All connections of a server end with its process; nobody is told if its host goes, too.
    pub(crate) fn close_all(&mut self, node: usize, is_told: bool) {
        self.network.unknown += u64::from(self.nodes[node].is_relay());
        self.network.half_open.retain(|end, _| end.node != node);
        // Nor does it go on to say what it had said before.
        let its = self.network.half_open.values_mut().filter(|gone| gone.node == node);
        its.for_each(|gone| gone.is_told &= is_told);
        let ends = self.network.ends.keys().filter(|end| end.node == node);
        ends.copied().collect::<Vec<_>>().into_iter().for_each(|end| self.end(end, is_told));
    }

    /// A connection of a server ends for no reason that either end knows.
    pub(crate) fn reset_one(&mut self, n: usize) {
        let ends = self.network.ends.keys().filter(|end| end.node == n);
        let ends: Vec<End> = ends.copied().collect();
        if !ends.is_empty() {
            let end = *self.rng.pick(&ends);
            self.reset(end);
        }
    }

    fn reset(&mut self, end: End) {
        self.close(end);
        let event = end.down(RESET);
        self.due(self.now_us + 200, end.node, Due::Event(event));
    }

    /// Everybody hears everybody again; connections that were cut have lost bytes, so they end.
    pub(crate) fn heal(&mut self) {
        let ends = self.network.ends.iter();
        let broken: Vec<End> = ends
            .filter(|(end, other)| end < other && self.is_cut(end.node, other.node))
            .map(|(end, _)| *end)
            .collect();
        self.network.cut.clear();
        broken.into_iter().for_each(|end| self.reset(end));
        let half_open = self.network.half_open.iter();
        let told: Vec<End> =
            half_open.filter(|(_, gone)| gone.is_told).map(|(end, _)| *end).collect();
        told.into_iter().for_each(|end| self.hears_of_end(end, self.now_us, RESET));
    }
}

/// Whether a connection is one between members: its hosts end it when they hear nothing of each other.
fn are_peers(a: &End, b: &End) -> bool {
    matches!((a.socket, b.socket), (Socket::Link(_), Socket::Link(_)))
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
