//! A source and relays behind it, each a core under a scripted shell, and the connections between
//! them: in a row, or in any other order.

#![allow(dead_code, reason = "every test uses another part")]

use weir_server::Config;
use weir_server::event::{Event, LinkId, SessionId};

use super::shell::Shell;

/// A connection of a relay to its source.
#[derive(Clone, Copy, Debug)]
struct Wire {
    /// The relay's number.
    from: usize,
    /// The source's number.
    to: usize,
    link: LinkId,
    session: SessionId,
}

/// The source, a relay of it, a relay of that, and so on.
pub(crate) struct Chain {
    pub(crate) servers: Vec<Shell>,
    /// One for each database that a relay has.
    wires: Vec<Wire>,
    /// All connections of a relay are refused.
    pub(crate) is_cut: Vec<bool>,
    /// All connections to a server are refused.
    is_away: Vec<bool>,
}

impl Chain {
    /// A source and so many relays; all rows have come.
    pub(crate) fn start(relays: usize) -> Self {
        Self::of(Shell::start(), relays)
    }

    /// This source and so many relays.
    pub(crate) fn of(source: Shell, relays: usize) -> Self {
        let mut servers = vec![source];
        servers.extend((0..relays).map(|number| relay_of(&format!("relay {number}"), &[number])));
        Self::joined(servers)
    }

    /// A source, and relays with these servers each to choose from.
    pub(crate) fn of_lists(lists: &[&[usize]]) -> Self {
        let relays = lists.iter().enumerate();
        let relays = relays.map(|(number, list)| relay_of(&format!("relay {number}"), list));
        Self::joined(std::iter::once(Shell::start()).chain(relays).collect())
    }

    /// A source, and relays, which find the servers by their numbers (`unix:/serverN`).
    pub(crate) fn joined(servers: Vec<Shell>) -> Self {
        let mut chain = Self {
            wires: Vec::new(),
            is_cut: vec![false; servers.len()],
            is_away: vec![false; servers.len()],
            servers,
        };
        chain.pass_ms(20_000);
        chain
    }

    /// Everything happens that does not need time.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut has_moved = false;
            for at in 0..self.servers.len() {
                self.servers[at].settle();
                has_moved |= self.carry(at) | self.connect(at);
            }
            if !has_moved {
                return;
            }
        }
    }

    /// Time passes for all.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(500) {
            self.settle();
            self.servers.iter_mut().for_each(|server| server.pass_ms(500));
        }
        self.settle();
    }

    fn connect(&mut self, at: usize) -> bool {
        let Some((link, target)) = self.servers[at].connecting.pop() else { return false };
        let to = target.strip_prefix("unix:/server").and_then(|to| to.parse().ok());
        let to: usize = to.unwrap_or_else(|| panic!("{target} is no server"));
        if self.is_cut[at] || self.is_away[to] {
            let error = Some("Connection refused".to_owned());
            self.servers[at].event(Event::LinkDown { link, error });
            return true;
        }
        let session = self.servers[to].accept_anywhere();
        self.wires.push(Wire { from: at, to, link, session });
        self.servers[at].event(Event::LinkUp { link });
        true
    }

    /// Carries messages between a relay and its sources.
    fn carry(&mut self, at: usize) -> bool {
        let wires = self.wires_of(at);
        wires.into_iter().fold(false, |has_moved, wire| self.carry_by(wire) | has_moved)
    }

    fn wires_of(&self, at: usize) -> Vec<Wire> {
        self.wires.iter().filter(|wire| wire.from == at).copied().collect()
    }

    fn carry_by(&mut self, wire: Wire) -> bool {
        let Wire { from: at, to, link, session } = wire;
        let Some(bytes) = self.servers[at].links.get_mut(&link).map(std::mem::take) else {
            // The relay has closed it.
            self.wires.retain(|wire| wire.session != session || wire.to != to);
            self.servers[to].event(Event::Closed { session, error: None });
            return true;
        };
        let to_source = messages(&bytes);
        let from_source = self.servers[to].received(session);
        let has_moved = !to_source.is_empty() || !from_source.is_empty();
        for message in to_source {
            self.servers[to].send(session, &message);
            self.servers[to].settle();
        }
        for message in from_source {
            self.servers[at].event(Event::LinkMessage { link, bytes: message.into_bytes() });
            self.servers[at].settle();
        }
        if self.servers[to].disconnected.contains(&session) {
            self.cut(wire);
            return true;
        }
        has_moved
    }

    /// The connections of a relay to its sources end; what is under way on them is lost.
    pub(crate) fn lose(&mut self, at: usize) {
        self.wires_of(at).into_iter().for_each(|wire| self.cut(wire));
    }

    fn cut(&mut self, Wire { from, to, link, session }: Wire) {
        self.wires.retain(|wire| wire.session != session || wire.to != to);
        self.servers[to].event(Event::Closed { session, error: None });
        self.servers[from].links.remove(&link);
        let error = Some("Connection reset by peer".to_owned());
        self.servers[from].event(Event::LinkDown { link, error });
    }

    /// A server goes: all its connections end, and no others come.
    pub(crate) fn goes(&mut self, to: usize) {
        self.is_away[to] = true;
        self.lose(to);
        let ended: Vec<Wire> = self.wires.iter().filter(|wire| wire.to == to).copied().collect();
        ended.into_iter().for_each(|wire| self.cut(wire));
    }

    /// The server is there again.
    pub(crate) fn comes_back(&mut self, to: usize) {
        self.is_away[to] = false;
    }

    /// The server that a relay is connected to.
    pub(crate) fn source_of(&self, at: usize) -> Option<usize> {
        self.wires_of(at).first().map(|wire| wire.to)
    }

    /// What a relay has said to its source arrives there, and is done; nothing comes back.
    pub(crate) fn carry_up(&mut self, at: usize) {
        let wires = self.wires_of(at);
        let [Wire { to, link, session, .. }] = wires[..] else { panic!("not one connection") };
        let bytes = self.servers[at].links.get_mut(&link).map(std::mem::take).unwrap_or_default();
        for message in messages(&bytes) {
            self.servers[to].send(session, &message);
            self.servers[to].settle();
        }
    }

    /// Everything happens between a relay and this source of it, and nothing anywhere else.
    pub(crate) fn settle_between(&mut self, at: usize, to: usize) {
        let wires = self.wires_of(at).into_iter().filter(|wire| wire.to == to);
        for wire in wires {
            let is_it = |other: &Wire| (other.to, other.session) == (wire.to, wire.session);
            while self.wires.iter().any(is_it) && self.carry_by(wire) {}
        }
    }

    /// Another server is where the source was.
    pub(crate) fn replace_source(&mut self, source: Shell) -> Shell {
        self.goes(0);
        self.comes_back(0);
        std::mem::replace(&mut self.servers[0], source)
    }

    /// Sends a message to a server, and lets everything happen; what has come back since.
    pub(crate) fn call(&mut self, at: usize, session: SessionId, message: &str) -> Vec<String> {
        self.servers[at].send(session, message);
        self.settle();
        self.servers[at].received(session)
    }
}

/// A relay with these servers to choose from; its randomness follows from its name.
pub(crate) fn relay_of(name: &str, list: &[usize]) -> Shell {
    relay_of_all(name, &[("Net", list)])
}

/// A relay of several databases, with the servers that it has for each.
pub(crate) fn relay_of_all(name: &str, databases: &[(&str, &[usize])]) -> Shell {
    let database = |(name, list): &(&str, &[usize])| {
        let list: Vec<String> = list.iter().map(|to| format!("unix:/server{to}")).collect();
        format!("relay:{name}:{}", list.join(","))
    };
    let databases = databases.iter().map(database).collect();
    Shell::start_with(name.as_bytes().to_vec(), Config { databases, ..Config::default() })
}

fn messages(bytes: &[u8]) -> Vec<String> {
    let (mut rest, mut messages) = (bytes, Vec::new());
    while !rest.is_empty() {
        let end = weir_json::Framer::new().feed(rest).unwrap().expect("whole messages");
        messages.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = &rest[end..];
    }
    messages
}
