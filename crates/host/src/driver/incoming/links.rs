//! Connections that the core makes itself, to servers that databases follow, once they are open
//! (see [`dialling`](super::dialling)).
//!
//! Links are watched for input at all times, and for room while something waits to be written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use weir_net::Stream;
use weir_net::error::strerror;
use weir_server::event::{Event, LinkId};

use crate::driver::incoming::channel::{Channel, Received};
use crate::driver::incoming::inbox::{Inbox, READ_BYTES};
use crate::driver::token::Token;
use crate::poller::{Interest, Poller};
use crate::vlog::Vlog;

/// Longest message taken from a server that a database follows, in bytes: all rows of a database
/// come in one. The connection ends at a longer one.
pub const LINK_MESSAGE_BYTES_MAX: usize = 4 << 30;

/// All open links.
pub(crate) struct Links {
    links: BTreeMap<LinkId, Channel>,
    scratch: Box<[u8]>,
    log: Vlog,
}

/// Why a link ends, as strerror(3) says it; `None` is an orderly end.
type End = Option<String>;

impl Links {
    pub(crate) fn new(log: Vlog) -> Self {
        let scratch = vec![0; READ_BYTES].into_boxed_slice();
        Self { links: BTreeMap::new(), scratch, log }
    }

    /// A link is connected, its handshake over.
    pub(crate) fn open(
        &mut self,
        poller: &Poller,
        id: LinkId,
        stream: Stream,
        events: &mut Vec<Event>,
    ) {
        let inbox = Inbox::with_limit(LINK_MESSAGE_BYTES_MAX);
        let mut channel = match Channel::open(poller, Token::Link(id.0), stream, inbox) {
            Ok(channel) => channel,
            Err(error) => {
                let error = Some(strerror(&error));
                return events.push(Event::LinkDown { link: id, error });
            }
        };
        events.push(Event::LinkUp { link: id });
        let received = channel.receive_early(&mut self.scratch);
        let result = take_messages(&mut channel, received, id, events);
        self.links.insert(id, channel);
        self.watch_or_end(poller, id, result, events);
    }

    /// The socket of a link is ready, unless the link was closed earlier in this round.
    pub(crate) fn on_ready(&mut self, poller: &Poller, id: LinkId, events: &mut Vec<Event>) {
        let Some(channel) = self.links.get_mut(&id) else { return };
        let received = channel.receive(&mut self.scratch);
        let result = take_messages(channel, received, id, events);
        let result = result.and_then(|()| flush(channel));
        self.watch_or_end(poller, id, result, events);
    }

    /// Queues and writes a message. The core may not know yet that the link has ended.
    pub(crate) fn send(
        &mut self,
        poller: &Poller,
        id: LinkId,
        bytes: Vec<u8>,
        events: &mut Vec<Event>,
    ) {
        let Some(channel) = self.links.get_mut(&id) else { return };
        channel.outbox.push(&Arc::new(bytes));
        let result = flush(channel);
        self.watch_or_end(poller, id, result, events);
    }

    /// Closes a link, if it has not ended by itself, without a word to the core.
    pub(crate) fn close(&mut self, poller: &Poller, id: LinkId) {
        if let Some(channel) = self.links.remove(&id) {
            channel.close(poller);
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
        let channel = self.links.get_mut(&id).expect("a link is removed only when it ends, below");
        for line in channel.take_log() {
            self.log.log("stream_ssl", line.severity.into(), &line.text);
        }
        let wanted = if channel.is_drained() { Interest::Read } else { Interest::ReadWrite };
        let result = result.and_then(|()| {
            channel.watch(poller, Token::Link(id.0), wanted).map_err(|error| Some(strerror(&error)))
        });
        if let Err(error) = result {
            self.close(poller, id);
            events.push(Event::LinkDown { link: id, error });
        }
    }
}

/// Tells the core of all messages that are complete, and that something has come.
fn take_messages(
    channel: &mut Channel,
    received: io::Result<Received>,
    id: LinkId,
    events: &mut Vec<Event>,
) -> Result<(), End> {
    match received {
        Ok(Received::Bytes(_)) => {}
        Ok(Received::Nothing) => return Ok(()),
        Ok(Received::End) => return Err(None),
        Err(error) => return Err(Some(strerror(&error))),
    }
    let before = events.len();
    while let Some(bytes) = channel.inbox.next_message().map_err(Some)? {
        events.push(Event::LinkMessage { link: id, bytes });
    }
    if events.len() == before {
        events.push(Event::LinkActivity { link: id });
    }
    Ok(())
}

fn flush(channel: &mut Channel) -> Result<(), End> {
    channel.flush().result.map(|_| ()).map_err(|error| Some(strerror(&error)))
}
