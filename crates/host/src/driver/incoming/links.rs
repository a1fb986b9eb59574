//! Connections that the core makes itself, to servers that databases follow.
//!
//! They are watched for input at all times, and for room while something waits to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use weir_net::error::strerror;
use weir_net::tls::Line;
use weir_net::{Address, AddressError, Progress, Stream, Tls};
use weir_server::event::{Event, LinkId};

use crate::driver::files::jobs::{Done, Jobs};
use crate::driver::incoming::inbox::{Inbox, READ_BYTES};
use crate::driver::outgoing::outbox::{Flushed, Outbox};
use crate::driver::token::Token;
use crate::poller::{Interest, Poller};
use crate::vlog::{Level, Vlog};

/// Longest message taken from a server that a database follows, in bytes: all rows of a database
/// come in one. The connection ends at a longer one.
pub const LINK_MESSAGE_BYTES_MAX: usize = 4 << 30;

/// All of them.
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    /// Those whose host is being looked up.
    resolving: BTreeSet<LinkId>,
    /// Where relative sockets are.
    rundir: PathBuf,
    scratch: Box<[u8]>,
    log: Vlog,
}

struct Link {
    stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    interest: Interest,
    /// What the attempt waits for.
    connecting: Option<Interest>,
}

impl Links {
    pub(crate) fn new(rundir: PathBuf, log: Vlog) -> Self {
        let scratch = vec![0; READ_BYTES].into_boxed_slice();
        Self { links: BTreeMap::new(), resolving: BTreeSet::new(), rundir, scratch, log }
    }

    /// Begins to connect.
    pub(crate) fn connect(
        &mut self,
        poller: &Poller,
        id: LinkId,
        target: &str,
        dscp: Option<u8>,
        (tls, jobs): (&mut Tls, &Jobs),
        events: &mut Vec<Event>,
    ) {
        match self.try_connect(id, target, dscp, tls, jobs) {
            Ok(Some(stream)) => self.begin(poller, id, stream, events),
            // The resolver has it.
            Ok(None) => {
                self.resolving.insert(id);
            }
            Err(error) => events.push(Event::LinkDown { link: id, error: Some(error) }),
        }
    }

    /// A host has been looked up, and an attempt to connect has begun, or not.
    pub(crate) fn looked_up(
        &mut self,
        poller: &Poller,
        id: LinkId,
        stream: io::Result<Box<Stream>>,
        events: &mut Vec<Event>,
    ) {
        if !self.resolving.remove(&id) {
            return; // Given up meanwhile.
        }
        match stream {
            Ok(stream) => self.begin(poller, id, *stream, events),
            Err(error) => events.push(Event::LinkDown { link: id, error: Some(strerror(&error)) }),
        }
    }

    fn begin(&mut self, poller: &Poller, id: LinkId, stream: Stream, events: &mut Vec<Event>) {
        let token = Token::Link(id.0).encode();
        if let Err(error) = poller.add(&stream, token, Interest::Write) {
            return events.push(Event::LinkDown { link: id, error: Some(strerror(&error)) });
        }
        let link = Link {
            stream,
            inbox: Inbox::with_limit(LINK_MESSAGE_BYTES_MAX),
            outbox: Outbox::default(),
            interest: Interest::Write,
            connecting: Some(Interest::Write),
        };
        self.links.insert(id, link);
    }

    /// `None` if it is for the resolver to go on.
    fn try_connect(
        &self,
        id: LinkId,
        target: &str,
        dscp: Option<u8>,
        tls: &mut Tls,
        jobs: &Jobs,
    ) -> Result<Option<Stream>, String> {
        let address = Address::parse(target, &self.rundir).map_err(|error| {
            if let AddressError::Malformed(text) = &error {
                self.log.log("socket_util", Level::Err, text);
            }
            strerror(&Errno::AFNOSUPPORT.into())
        })?;
        let connector = match &address {
            Address::Ssl { .. } => {
                let connector = tls.connector();
                self.log_tls(&tls.take_log());
                Some(connector.map_err(|error| strerror(&error))?)
            }
            _ => None,
        };
        if !address.needs_lookup() {
            let stream = Stream::connect_with(&address, connector.as_ref(), dscp);
            return stream.map(Some).map_err(|error| strerror(&error));
        }
        let look_up = move || {
            let stream = Stream::connect_with(&address, connector.as_ref(), dscp);
            Done::LinkBegun(id, stream.map(Box::new))
        };
        let failed = move |error| Done::LinkBegun(id, Err(io::Error::other(error)));
        jobs.look_up(look_up, failed).map_err(|error| strerror(&error))?;
        Ok(None)
    }

    fn log_tls(&self, lines: &[Line]) {
        for line in lines {
            self.log.log("stream_ssl", line.severity.into(), &line.text);
        }
    }

    /// Queues and writes a message.
    pub(crate) fn send(
        &mut self,
        poller: &Poller,
        id: LinkId,
        bytes: Vec<u8>,
        events: &mut Vec<Event>,
    ) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.outbox.push(&Arc::new(bytes));
        let result = if link.connecting.is_some() { Ok(()) } else { link.flush() };
        self.settle(poller, id, result.map_err(Some), events);
    }

    /// Closes, without a word to the core.
    pub(crate) fn close(&mut self, poller: &Poller, id: LinkId) {
        self.resolving.remove(&id);
        if let Some(link) = self.links.remove(&id) {
            poller.remove(&link.stream);
        }
    }

    /// The socket is ready.
    pub(crate) fn ready(&mut self, poller: &Poller, id: LinkId, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut result = Ok(());
        if link.connecting.is_some() {
            result = link.go_on_connecting(id, events);
        }
        // What came right behind a handshake is here already, and the socket does not show it.
        if result.is_ok() && link.connecting.is_none() {
            result = link.read(id, &mut self.scratch, events);
            result = result.and_then(|()| link.flush().map_err(Some));
        }
        let tls = link.stream.take_log();
        self.log_tls(&tls);
        self.settle(poller, id, result, events);
    }

    /// Watches a connection for what it waits for, or tells the core of its end.
    fn settle(
        &mut self,
        poller: &Poller,
        id: LinkId,
        result: Result<(), Option<String>>,
        events: &mut Vec<Event>,
    ) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let wanted = match link.connecting {
            Some(interest) => interest,
            None if link.outbox.is_empty() && !link.stream.has_pending() => Interest::Read,
            None => Interest::ReadWrite,
        };
        let result = result.and_then(|()| {
            if wanted == link.interest {
                return Ok(());
            }
            link.interest = wanted;
            let token = Token::Link(id.0).encode();
            poller.change(&link.stream, token, wanted).map_err(|error| Some(strerror(&error)))
        });
        if let Err(error) = result {
            self.close(poller, id);
            events.push(Event::LinkDown { link: id, error });
        }
    }
}

impl Link {
    fn go_on_connecting(
        &mut self,
        id: LinkId,
        events: &mut Vec<Event>,
    ) -> Result<(), Option<String>> {
        let progress = self.stream.finish_connect().map_err(|error| Some(strerror(&error)))?;
        self.connecting = match progress {
            Progress::Done => None,
            Progress::Read => Some(Interest::Read),
            Progress::Write => Some(Interest::Write),
        };
        if self.connecting.is_none() {
            events.push(Event::LinkUp { link: id });
        }
        Ok(())
    }

    /// Reads once and takes all messages that are complete; `Err(None)` is an orderly end.
    fn read(
        &mut self,
        id: LinkId,
        scratch: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Option<String>> {
        let result = if self.inbox.is_big() {
            self.stream.read_spare(self.inbox.spare(), scratch)
        } else if let Stream::Tls(_) = self.stream {
            self.stream.read_spare(self.inbox.buffer(), scratch)
        } else {
            self.stream.read(scratch).inspect(|count| self.inbox.push(&scratch[..*count]))
        };
        match result {
            Ok(0) => return Err(None),
            Ok(_) => {}
            Err(error) => {
                let again = [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind());
                return if again { Ok(()) } else { Err(Some(strerror(&error))) };
            }
        }
        let before = events.len();
        while let Some(bytes) = self.inbox.next_message().map_err(Some)? {
            events.push(Event::LinkMessage { link: id, bytes });
        }
        if events.len() == before {
            events.push(Event::LinkActivity { link: id });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let stream = &mut self.stream;
        let flushed = self.outbox.flush(|slices| stream.write_vectored(slices));
        let flushed = flushed.and_then(|flushed| match flushed {
            Flushed::All => stream.write_pending().map(|_| ()),
            Flushed::Part => Ok(()),
        });
        flushed.map_err(|error| strerror(&error))
    }
}
