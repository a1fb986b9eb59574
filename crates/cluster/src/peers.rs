//! Connections to other members: who is at the other end, and what it understands.
//!
//! Each member connects to each other one that it knows, once for each [`Lane`], and speaks on the
//! connections that it has made itself; to who is not known to it yet, as a leader may be that has
//! joined since, on those that have come. Both ends greet. Who does not greet as a member of this
//! kind is left alone.

use std::collections::BTreeMap;
use std::iter;

use weir_data::Uuid;

use crate::effect::Effect;
use crate::entry::Text;
use crate::ids::LinkId;
use crate::wire::{Decoder, Frame, Hello, Lane, cut_off};

/// A connection attempt follows the last one after at least this, and at most [`BACKOFF_MAX_US`], in
/// microseconds: each failure doubles it.
const BACKOFF_US: u64 = 100_000;

/// Longest pause between attempts to connect, in microseconds: half of the shortest election timer
/// that is usual, so that a network that is whole again does not wait for its members.
const BACKOFF_MAX_US: u64 = 500_000;

/// How a connection came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// By us, to reach this address, for this lane.
    ByUs(Lane),
    /// By a peer, for this lane once it has greeted.
    ByPeer(Option<Lane>),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) made: Made,
    /// Whom we mean to reach, or who has greeted.
    pub(crate) peer: Option<Uuid>,
    /// Where we mean to reach it, or what logs call it.
    pub(crate) name: String,
    /// Where the peer has said that it listens.
    pub(crate) address: Option<String>,
    /// The connection is open.
    pub(crate) is_up: bool,
    /// The other end has greeted as a member of this kind.
    pub(crate) is_ours: bool,
    /// What is said to the peer on its lane goes here.
    pub(crate) carries: bool,
    /// The peer's last answer came here.
    pub(crate) answers: bool,
    /// Since when there is the connection, or the attempt; monotonic.
    pub(crate) since_us: u64,
    pub(crate) decoder: Decoder,
}

impl Link {
    pub(crate) fn lane(&self) -> Option<Lane> {
        match self.made {
            Made::ByUs(lane) => Some(lane),
            Made::ByPeer(lane) => lane,
        }
    }

    /// Whether there is another one for the same direction, for the other lane.
    pub(crate) fn is_second(&self) -> bool {
        self.lane() == Some(Lane::Log)
    }
}

/// What we want from somebody at an address.
#[derive(Debug)]
struct Target {
    peer: Option<Uuid>,
    links: [Option<LinkId>; Lane::ALL.len()],
    backoff_us: u64,
    again_us: u64,
    /// Who is connected to by another name meanwhile.
    put_off: Option<Uuid>,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Peers {
    links: BTreeMap<LinkId, Link>,
    /// By address.
    targets: BTreeMap<String, Target>,
    /// Where members were told something last.
    taken: BTreeMap<(Uuid, Lane), LinkId>,
    next_link: u64,
    effects: Vec<Effect>,
    /// Connections to members that have ended (`cluster/status`).
    pub(crate) disconnections: u64,
    /// Frames are not sent (`cluster/failure-test`).
    pub(crate) is_mute: bool,
}

impl Peers {
    pub(crate) fn new() -> Self {
        Self {
            links: BTreeMap::new(),
            targets: BTreeMap::new(),
            taken: BTreeMap::new(),
            next_link: 0,
            effects: Vec::new(),
            disconnections: 0,
            is_mute: false,
        }
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// Whether any connection to a server is open, whichever program it runs.
    pub(crate) fn is_connected(&self, server: Uuid) -> bool {
        self.links.values().any(|link| link.is_up && link.peer == Some(server))
    }

    /// Who is at the other end of a connection, if that is known.
    pub(crate) fn peer(&self, id: LinkId) -> Option<Uuid> {
        self.links.get(&id)?.peer
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().map(|(id, link)| (*id, link))
    }

    /// Whom to be connected to, from now on: servers by address, with their id if it is known. Answers
    /// with the connections that are closed for it.
    pub(crate) fn want(&mut self, wanted: &BTreeMap<String, Option<Uuid>>) -> Vec<Link> {
        let gone: Vec<String> =
            self.targets.keys().filter(|address| !wanted.contains_key(*address)).cloned().collect();
        let mut closed = vec![];
        for address in gone {
            let target = self.targets.remove(&address).expect("it is there");
            closed.extend(target.links.into_iter().flatten().filter_map(|link| self.close(link)));
        }
        for (address, peer) in wanted {
            let target = self.targets.entry(address.clone()).or_insert(Target {
                peer: *peer,
                links: [None; Lane::ALL.len()],
                backoff_us: BACKOFF_US,
                again_us: 0,
                put_off: None,
            });
            if target.peer != *peer && peer.is_some() {
                target.peer = *peer;
                // Who has greeted there is who it is: an older list of servers may name another one.
                for link in target.links.into_iter().flatten() {
                    let link = self.links.get_mut(&link).expect("a target's link is there");
                    if !link.is_ours {
                        link.peer = *peer;
                    }
                }
            }
        }
        closed
    }

    /// Servers to be connected to, as far as they are known.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.targets.values().filter_map(|target| target.peer)
    }

    /// Connects to whom it is time to.
    pub(crate) fn connect(&mut self, now_us: u64) {
        for (address, target) in &mut self.targets {
            if target.again_us > now_us {
                continue;
            }
            for (at, lane) in Lane::ALL.into_iter().enumerate() {
                if target.links[at].is_some() {
                    continue;
                }
                self.next_link += 1;
                let id = LinkId(self.next_link);
                target.links[at] = Some(id);
                let link = Link {
                    made: Made::ByUs(lane),
                    peer: target.peer,
                    name: address.clone(),
                    address: None,
                    is_up: false,
                    is_ours: false,
                    carries: false,
                    answers: false,
                    since_us: now_us,
                    decoder: Decoder::new(),
                };
                self.links.insert(id, link);
                self.effects.push(Effect::Connect { link: id, address: address.clone() });
            }
        }
    }

    /// When the next attempt to connect is due.
    pub(crate) fn wakeup_us(&self) -> Option<u64> {
        let is_wanting = |target: &&Target| target.links.iter().any(Option::is_none);
        self.targets.values().filter(is_wanting).map(|target| target.again_us).min()
    }

    /// A peer has connected.
    pub(crate) fn accepted(&mut self, now_us: u64, id: LinkId, name: String) {
        let link = Link {
            made: Made::ByPeer(None),
            peer: None,
            name,
            address: None,
            is_up: true,
            is_ours: false,
            carries: false,
            answers: false,
            since_us: now_us,
            decoder: Decoder::new(),
        };
        self.links.insert(id, link);
    }

    pub(crate) fn greet(&mut self, id: LinkId, hello: &Hello) {
        let mut bytes = Vec::new();
        hello.write(&mut bytes);
        self.say(id, bytes);
    }

    /// Says something that is no frame.
    pub(crate) fn say(&mut self, id: LinkId, bytes: Vec<u8>) {
        self.effects.push(Effect::Send { link: id, bytes: Text::new(bytes) });
    }

    /// A connection that works: the next attempt comes soon if it ends.
    pub(crate) fn works(&mut self, address: &str) {
        if let Some(target) = self.targets.get_mut(address) {
            target.backoff_us = BACKOFF_US;
        }
    }

    /// A peer is not connected to at this address before then, as long as it is by another name.
    pub(crate) fn put_off(&mut self, address: &str, peer: Uuid, again_us: u64) {
        if let Some(target) = self.targets.get_mut(address) {
            (target.put_off, target.again_us) = (Some(peer), again_us);
        }
    }

    /// A connection is no more: perhaps the only one by which a peer was connected to that has another name.
    fn end_put_off(&mut self, link: &Link) {
        let (Some(peer), Made::ByUs(_), true) = (link.peer, link.made, link.is_ours) else {
            return;
        };
        let is_like =
            |other: &Link| other.is_ours && (other.made, other.peer) == (link.made, link.peer);
        if !self.links.values().any(is_like) {
            let targets = self.targets.values_mut();
            for target in targets.filter(|target| target.put_off == Some(peer)) {
                (target.put_off, target.again_us) = (None, 0);
            }
        }
    }

    /// A connection has ended. Answers with what it was.
    pub(crate) fn lost(&mut self, now_us: u64, id: LinkId) -> Option<Link> {
        let link = self.links.remove(&id)?;
        self.end_put_off(&link);
        if let Made::ByUs(_) = link.made
            && let Some(target) = self.targets.get_mut(&link.name)
        {
            let slot = target.links.iter_mut().find(|slot| **slot == Some(id));
            *slot.expect("a target knows its links") = None;
            target.again_us = now_us + target.backoff_us;
            target.backoff_us = (2 * target.backoff_us).min(BACKOFF_MAX_US);
        }
        if link.is_ours {
            self.disconnections += 1;
        }
        Some(link)
    }

    /// Closes a connection of which nothing more is wanted, as if it had been lost.
    pub(crate) fn drop(&mut self, now_us: u64, id: LinkId) -> Option<Link> {
        let link = self.lost(now_us, id)?;
        self.effects.push(Effect::Disconnect { link: id });
        Some(link)
    }

    fn close(&mut self, id: LinkId) -> Option<Link> {
        let link = self.links.remove(&id)?;
        self.end_put_off(&link);
        self.effects.push(Effect::Disconnect { link: id });
        Some(link)
    }

    /// The connection to a member, if it greeted there: the one that was taken before, so that what
    /// is said on a lane comes in order; else rather one of ours.
    fn link_to(&mut self, peer: Uuid, lane: Lane) -> Option<LinkId> {
        let taken = self.taken.get(&(peer, lane)).copied();
        if taken.is_some_and(|link| self.links.contains_key(&link)) {
            return taken;
        }
        let links = self.links_for(peer, lane);
        let best = links.max_by_key(|(id, link)| (link.made == Made::ByUs(lane), *id));
        let link = best.map(|(id, _)| id);
        match link {
            Some(link) => {
                self.links.get_mut(&link).expect("it has just been found").carries = true;
                self.taken.insert((peer, lane), link);
            }
            None => {
                self.taken.remove(&(peer, lane));
            }
        }
        link
    }

    /// Whether a member can be told something.
    pub(crate) fn is_reached(&mut self, peer: Uuid, lane: Lane) -> bool {
        self.link_to(peer, lane).is_some()
    }

    /// Since when there is the connection to a member that carries what is said on a lane.
    pub(crate) fn carries_since(&self, peer: Uuid, lane: Lane) -> Option<u64> {
        let link = self.links.get(self.taken.get(&(peer, lane))?)?;
        Some(link.since_us)
    }

    /// Since when there is a connection to a member that would carry what is said on a lane.
    pub(crate) fn reached_since(&self, peer: Uuid, lane: Lane) -> Option<u64> {
        self.links_for(peer, lane).map(|(_, link)| link.since_us).min()
    }

    /// Connections to a member, where it has greeted, that would carry what is said on a lane.
    fn links_for(&self, peer: Uuid, lane: Lane) -> impl Iterator<Item = (LinkId, &Link)> {
        let is_of_lane =
            move |made: Made| made == Made::ByUs(lane) || made == Made::ByPeer(Some(lane));
        let is_it =
            move |link: &Link| link.is_ours && link.peer == Some(peer) && is_of_lane(link.made);
        self.links.iter().filter(move |(_, link)| is_it(link)).map(|(id, link)| (*id, link))
    }

    /// A peer answers on this connection. True if its last answer came on another one: what it has answered since may
    /// be lost, there or for want of any connection.
    pub(crate) fn answers_on(&mut self, id: LinkId, peer: Uuid) -> bool {
        if self.links.get(&id).is_some_and(|link| link.answers) {
            return false;
        }
        let links = self.links.iter_mut().filter(|(_, link)| link.peer == Some(peer));
        links.for_each(|(other, link)| link.answers = *other == id);
        true
    }

    /// Tells a member; false if there is no connection.
    pub(crate) fn send(&mut self, peer: Uuid, lane: Lane, frame: &Frame) -> bool {
        let Some(link) = self.link_to(peer, lane) else { return false };
        self.answer(link, frame);
        true
    }

    /// Tells whoever is there where we have connected to.
    pub(crate) fn tell_all(&mut self, lane: Lane, frame: &Frame) {
        let is_it = |link: &Link| link.is_ours && link.made == Made::ByUs(lane);
        let links: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| is_it(link)).map(|(id, _)| *id).collect();
        links.into_iter().for_each(|link| self.answer(link, frame));
    }

    /// Says something on one connection.
    pub(crate) fn answer(&mut self, link: LinkId, frame: &Frame) {
        if self.is_mute {
            return;
        }
        let send = |bytes| Effect::Send { link, bytes };
        // What goes to one receiver in one round leaves together.
        if let Some(Effect::Send { link: last, bytes }) = self.effects.last_mut()
            && *last == link
            && let Some(bytes) = Text::get_mut(bytes)
        {
            let shared = frame.write(bytes);
            let pieces = cut_off(bytes, shared);
            return self.effects.extend(pieces.into_iter().map(send));
        }
        let mut bytes = Vec::new();
        let shared = frame.write(&mut bytes);
        let pieces = cut_off(&mut bytes, shared);
        self.effects.extend(iter::once(Text::new(bytes)).chain(pieces).map(send));
    }
}
