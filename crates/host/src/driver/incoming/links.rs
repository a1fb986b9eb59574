//! Connections to other servers, once they are open (see [`dialling`](super::dialling)): those that
//! the core makes itself, to servers that databases follow and to members of clusters, and those
//! that such members have made.
//!
//! Links are watched for input at all times, and for room while something waits to be written. What
//! is queued leaves when all effects of a batch are executed: [`Links::flush`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::io::Errno;
use weir_net::Stream;
use weir_net::error::strerror;
use weir_server::effect::Framing;
use weir_server::event::{Bytes, Event, LinkId, PeerPortId};

use crate::coverage::{Counter, Coverage};
use crate::driver::incoming::channel::{Channel, Flush, Received};
use crate::driver::incoming::dialling::PEER_SILENCE;
use crate::driver::incoming::inbox::{Inbox, READ_BYTES};
use crate::driver::outgoing::outbox::BACKLOG_BYTES_MAX;
use crate::driver::token::Token;
use crate::poller::{Interest, Poller};
use crate::vlog::{Level, Vlog};

/// Longest message taken from a server that a database follows, in bytes: all rows of a database
/// come in one. The connection ends at a longer one.
pub const LINK_MESSAGE_BYTES_MAX: usize = 4 << 30;

/// Bytes taken in one round from one member of a cluster; the rest waits for the next one.
pub(crate) const PEER_READ_BYTES_MAX: usize = 256 << 10;

/// Pieces as long as the longest one that may wait for a member besides [`BACKLOG_BYTES_MAX`]: of
/// who led and leads no more, an entry that nobody will take, and the request that it came from on
/// its way to the next leader.
const LONG_PIECES_MAX: usize = 2;

/// Connections of others to one port for members of a cluster; more are closed as they come.
pub(crate) const PEER_LINKS_MAX: usize = 256;

/// All open links.
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    /// The links with something queued that nobody has tried to write.
    dirty: BTreeSet<LinkId>,
    /// How many peers have connected so far, for the numbers of their links.
    accepted_ever: u64,
    /// How many of those are open, by the ports that they came to.
    accepted: BTreeMap<PeerPortId, usize>,
    scratch: Box<[u8]>,
    log: Vlog,
}

struct Link {
    channel: Channel,
    framing: Framing,
    /// Where a member of a cluster has connected.
    port: Option<PeerPortId>,
    /// Bytes that may wait besides the longest pieces.
    bytes_max: usize,
}

/// Why a link ends, as strerror(3) says it; `None` is an orderly end.
type End = Option<String>;

impl Links {
    pub(crate) fn new(log: Vlog) -> Self {
        let scratch = vec![0; READ_BYTES].into_boxed_slice();
        let (links, dirty, accepted) = Default::default();
        Self { links, dirty, accepted_ever: 0, accepted, scratch, log }
    }

    /// A link of the core's is connected, its handshake over.
    pub(crate) fn open(
        &mut self,
        poller: &Poller,
        id: LinkId,
        stream: Stream,
        framing: Framing,
        events: &mut Vec<Event>,
    ) {
        events.push(Event::LinkUp { link: id });
        self.begin(poller, id, stream, (framing, None), events);
    }

    /// A member of a cluster has connected, its handshake over.
    pub(crate) fn accept(
        &mut self,
        poller: &Poller,
        port: PeerPortId,
        stream: Stream,
        name: String,
        events: &mut Vec<Event>,
    ) {
        let accepted = self.accepted.entry(port).or_default();
        if *accepted >= PEER_LINKS_MAX {
            let text = format!("{name}: connection dropped ({PEER_LINKS_MAX} others are open)");
            return self.log.log_limited("accept_peer", "raft", Level::Warn, &text);
        }
        let link = LinkId(LinkId::ACCEPTED_MIN + self.accepted_ever);
        self.accepted_ever += 1;
        *accepted += 1;
        if let Err(error) = stream.end_if_silent(PEER_SILENCE) {
            self.log.log_limited("accept_peer", "raft", Level::Warn, &strerror(&error));
        }
        events.push(Event::LinkAccepted { port, link, name });
        self.begin(poller, link, stream, (Framing::Bytes, Some(port)), events);
    }

    fn begin(
        &mut self,
        poller: &Poller,
        id: LinkId,
        stream: Stream,
        (framing, port): (Framing, Option<PeerPortId>),
        events: &mut Vec<Event>,
    ) {
        let inbox = Inbox::with_limit(LINK_MESSAGE_BYTES_MAX);
        let channel = match Channel::open(poller, Token::Link(id.0), stream, inbox) {
            Ok(channel) => channel,
            Err(error) => {
                self.has_closed(port);
                let error = Some(strerror(&error));
                return events.push(Event::LinkDown { link: id, error });
            }
        };
        let mut link = Link { channel, framing, port, bytes_max: BACKLOG_BYTES_MAX };
        let is_tls = link.channel.is_tls();
        let result = if is_tls { link.take(id, &mut self.scratch, events) } else { Ok(()) };
        self.links.insert(id, link);
        self.watch_or_end(poller, id, result, events);
    }

    pub(crate) fn is_open(&self, id: LinkId) -> bool {
        self.links.contains_key(&id)
    }

    /// The socket of a link is ready, unless the link was closed earlier in this round.
    pub(crate) fn on_ready(&mut self, poller: &Poller, id: LinkId, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let result = link.take(id, &mut self.scratch, events);
        let result = result.and_then(|()| link.flush());
        self.watch_or_end(poller, id, result, events);
    }

    /// Queues bytes. The core may not know yet that the link has ended.
    pub(crate) fn send(&mut self, id: LinkId, bytes: &Bytes) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.channel.outbox.push(bytes);
        self.dirty.insert(id);
    }

    /// Lets at most so many bytes wait on a link from now on.
    pub(crate) fn limit(&mut self, id: LinkId, bytes_max: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.bytes_max = bytes_max;
        }
    }

    /// Writes what was queued since the last call.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        poller: &Poller,
        coverage: &mut Coverage,
        events: &mut Vec<Event>,
    ) {
        while let Some(id) = self.dirty.pop_first() {
            if let Some(link) = self.links.get_mut(&id) {
                let (result, calls) = link.flush_counted();
                coverage.add(Counter::Writes, calls);
                self.watch_or_end(poller, id, result, events);
            }
        }
    }

    /// Bytes that members of clusters have not taken, of those that were queued for them.
    pub(crate) fn peer_backlog(&self) -> usize {
        let peers = self.links.values().filter(|link| link.framing == Framing::Bytes);
        peers.map(|link| link.channel.outbox.bytes()).sum()
    }

    /// Closes a link, if it has not ended by itself, without a word to the core.
    pub(crate) fn close(&mut self, poller: &Poller, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            // What the socket does not take now, nobody gets.
            let _ = link.flush();
        }
        self.remove(poller, id);
    }

    fn remove(&mut self, poller: &Poller, id: LinkId) {
        if let Some(link) = self.links.remove(&id) {
            link.channel.close(poller);
            self.has_closed(link.port);
        }
    }

    /// A link that came to this port, if to any, is open no more.
    fn has_closed(&mut self, port: Option<PeerPortId>) {
        let Some(port) = port else { return };
        let accepted = self.accepted.get_mut(&port).expect("it was counted when it came");
        *accepted -= 1;
        if *accepted == 0 {
            self.accepted.remove(&port);
        }
    }

    /// Watches a link for what it waits for, or tells the core of its end.
    fn watch_or_end(
        &mut self,
        poller: &Poller,
        id: LinkId,
        result: Result<(), End>,
        events: &mut Vec<Event>,
    ) {
        let link = self.links.get_mut(&id).expect("a link is removed only when it ends, below");
        let channel = &mut link.channel;
        for line in channel.take_log() {
            self.log.log("stream_ssl", line.severity.into(), &line.text);
        }
        let wanted = if channel.is_drained() { Interest::Read } else { Interest::ReadWrite };
        let result = result.and_then(|()| {
            channel.watch(poller, Token::Link(id.0), wanted).map_err(|error| Some(strerror(&error)))
        });
        if let Err(error) = result {
            self.remove(poller, id);
            events.push(Event::LinkDown { link: id, error });
        }
    }
}

impl Link {
    /// Tells the core of what has come.
    fn take(&mut self, id: LinkId, scratch: &mut [u8], events: &mut Vec<Event>) -> Result<(), End> {
        match self.framing {
            Framing::Json => self.take_messages(id, scratch, events),
            Framing::Bytes => self.take_bytes(id, scratch, events),
        }
    }

    /// Tells the core of all messages that are complete, and that something has come.
    fn take_messages(
        &mut self,
        id: LinkId,
        scratch: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), End> {
        if !go_on(self.channel.receive(scratch))? {
            return Ok(());
        }
        let before = events.len();
        while let Some(bytes) = self.channel.inbox.next_message().map_err(Some)? {
            events.push(Event::LinkMessage { link: id, bytes });
        }
        if events.len() == before {
            events.push(Event::LinkActivity { link: id });
        }
        Ok(())
    }

    fn take_bytes(
        &mut self,
        id: LinkId,
        scratch: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), End> {
        let (bytes, received) = self.channel.receive_bytes(scratch, PEER_READ_BYTES_MAX);
        if !bytes.is_empty() {
            events.push(Event::LinkBytes { link: id, bytes });
        }
        go_on(received).map(drop)
    }

    fn flush(&mut self) -> Result<(), End> {
        self.flush_counted().0
    }

    /// Writes what the socket takes; also in how many calls of the system.
    fn flush_counted(&mut self) -> (Result<(), End>, u64) {
        let Flush { result, calls, .. } = self.channel.flush();
        let is_overfull = self.framing == Framing::Bytes
            && self.channel.outbox.is_beyond(self.bytes_max, LONG_PIECES_MAX);
        let result = match result {
            Ok(_) if is_overfull => Err(Some(strerror(&Errno::NOBUFS.into()))),
            Ok(_) => Ok(()),
            Err(error) => Err(Some(strerror(&error))),
        };
        (result, calls)
    }
}

/// Whether something has come; or why nothing will.
fn go_on(received: io::Result<Received>) -> Result<bool, End> {
    match received {
        Ok(Received::Bytes(_)) => Ok(true),
        Ok(Received::Nothing) => Ok(false),
        Ok(Received::End) => Err(None),
        Err(error) => Err(Some(strerror(&error))),
    }
}
