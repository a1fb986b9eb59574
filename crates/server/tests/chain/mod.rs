//! A source and relays behind it, each a core under a scripted shell, and the connections between
//! them.

#![allow(dead_code, reason = "every test uses another part")]

use weir_server::Config;
use weir_server::event::{Event, LinkId, SessionId};

use super::shell::Shell;

/// Where the connection of a relay to the server before it ends.
#[derive(Clone, Copy, Debug)]
struct Wire {
    link: LinkId,
    session: SessionId,
}

/// The source, a relay of it, a relay of that, and so on.
pub(crate) struct Chain {
    pub(crate) servers: Vec<Shell>,
    /// Of each server to the one before it; the source has none.
    wires: Vec<Option<Wire>>,
    /// The connection to the server before it is refused.
    pub(crate) is_cut: Vec<bool>,
}

impl Chain {
    /// A source and so many relays; all rows have come.
    pub(crate) fn start(relays: usize) -> Self {
        Self::of(Shell::start(), relays)
    }

    /// This source and so many relays.
    pub(crate) fn of(source: Shell, relays: usize) -> Self {
        let mut servers = vec![source];
        for number in 0..relays {
            let relay = format!("relay:Net:unix:/server{number}");
            // The randomness of a server follows from its file, which these do not have.
            let file = format!("relay {number}").into_bytes();
            let config = Config { databases: vec![relay], ..Config::default() };
            servers.push(Shell::start_with(file, config));
        }
        Self::joined(servers)
    }

    /// A source, and relays whose source is the server before each (`unix:/serverN`).
    pub(crate) fn joined(servers: Vec<Shell>) -> Self {
        let mut chain = Self {
            wires: servers.iter().map(|_| None).collect(),
            is_cut: vec![false; servers.len()],
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
                has_moved |= at > 0 && (self.connect(at) | self.carry(at));
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
        assert_eq!(target, format!("unix:/server{}", at - 1));
        if self.is_cut[at] {
            let error = Some("Connection refused".to_owned());
            self.servers[at].event(Event::LinkDown { link, error });
            return true;
        }
        let session = self.servers[at - 1].accept_anywhere();
        self.wires[at] = Some(Wire { link, session });
        self.servers[at].event(Event::LinkUp { link });
        true
    }

    /// Carries messages between a relay and the server before it.
    fn carry(&mut self, at: usize) -> bool {
        let Some(Wire { link, session }) = self.wires[at] else { return false };
        let Some(bytes) = self.servers[at].links.get_mut(&link).map(std::mem::take) else {
            // The relay has closed it.
            self.wires[at] = None;
            self.servers[at - 1].event(Event::Closed { session, error: None });
            return true;
        };
        let to_source = messages(&bytes);
        let from_source = self.servers[at - 1].received(session);
        let has_moved = !to_source.is_empty() || !from_source.is_empty();
        for message in to_source {
            self.servers[at - 1].send(session, &message);
            self.servers[at - 1].settle();
        }
        for message in from_source {
            self.servers[at].event(Event::LinkMessage { link, bytes: message.into_bytes() });
            self.servers[at].settle();
        }
        if self.servers[at - 1].disconnected.contains(&session) {
            self.lose(at);
            return true;
        }
        has_moved
    }

    /// The connection to the server before ends; what is under way on it is lost.
    pub(crate) fn lose(&mut self, at: usize) {
        let Some(Wire { link, session }) = self.wires[at].take() else { return };
        self.servers[at - 1].event(Event::Closed { session, error: None });
        self.servers[at].links.remove(&link);
        let error = Some("Connection reset by peer".to_owned());
        self.servers[at].event(Event::LinkDown { link, error });
    }

    /// What a relay has said to the server before it arrives there, and is done; nothing comes back.
    pub(crate) fn carry_up(&mut self, at: usize) {
        let Some(Wire { link, session }) = self.wires[at] else { panic!("no connection") };
        let bytes = self.servers[at].links.get_mut(&link).map(std::mem::take).unwrap_or_default();
        for message in messages(&bytes) {
            self.servers[at - 1].send(session, &message);
            self.servers[at - 1].settle();
        }
    }

    /// Another server is where the source was.
    pub(crate) fn replace_source(&mut self, source: Shell) -> Shell {
        self.lose(1);
        std::mem::replace(&mut self.servers[0], source)
    }

    /// Sends a message to a server, and lets everything happen; what has come back since.
    pub(crate) fn call(&mut self, at: usize, session: SessionId, message: &str) -> Vec<String> {
        self.servers[at].send(session, message);
        self.settle();
        self.servers[at].received(session)
    }
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
