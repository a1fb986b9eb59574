//! A client that sends one transaction after the other, without ever blocking the driver.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Error;
use crate::client::{ECHO_REPLY, Stream, Target};
use crate::error::fail;
use crate::frame::Framer;

/// What a command-line client asks for before its transaction: whether the database is there.
const PRELUDE: &[u8] = br#"{"id":"db","method":"transact","params":["_Server",{"op":"select","table":"Database","where":[]}]}"#;

/// A client that sends transactions one after the other.
pub(crate) struct Writer {
    pub(crate) stream: Stream,
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// Whether the socket did not take all of the transaction.
    pub(crate) blocked: bool,
    /// Whether the socket is watched for room.
    watched: bool,
    pub(crate) input: Vec<u8>,
    framer: Framer,
    /// The transaction under way and since when.
    pub(crate) busy: Option<(usize, Instant)>,
    /// The transaction that waits for the answer to the prelude.
    held: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            out: Vec::new(),
            sent: 0,
            blocked: false,
            watched: false,
            input: Vec::new(),
            framer: Framer::default(),
            busy: None,
            held: Vec::new(),
        }
    }

    /// Sends what is in `out`.
    pub(crate) fn begin(&mut self, epoll: &OwnedFd, token: usize) -> Result<(), Error> {
        self.sent = 0;
        self.flush(epoll, token)
    }

    /// Connects anew and holds what is in `out` back until the prelude is answered, as a
    /// command-line client does that is started for one transaction.
    pub(crate) fn begin_anew(
        &mut self,
        target: &Target,
        epoll: &OwnedFd,
        token: usize,
    ) -> Result<(), Error> {
        self.stream = target.begin()?;
        epoll::add(epoll, &self.stream, EventData::new_u64(token as u64), EventFlags::IN)?;
        (self.blocked, self.watched) = (false, false);
        self.held = std::mem::replace(&mut self.out, PRELUDE.to_vec());
        self.begin(epoll, token)
    }

    /// After the answer to the prelude, sends what was held back; false where nothing was.
    pub(crate) fn release(&mut self, epoll: &OwnedFd, token: usize) -> Result<bool, Error> {
        if self.held.is_empty() {
            return Ok(false);
        }
        self.input.clear();
        self.out = std::mem::take(&mut self.held);
        self.begin(epoll, token)?;
        Ok(true)
    }

    /// Writes what the socket takes; the rest waits until it takes more.
    pub(crate) fn flush(&mut self, epoll: &OwnedFd, token: usize) -> Result<(), Error> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(Error::Io("writing a request".into(), e)),
            }
        }
        self.blocked = match self.stream.flush() {
            Ok(()) => self.sent < self.out.len(),
            Err(e) if e.kind() == ErrorKind::WouldBlock => true,
            Err(e) => return Err(Error::Io("writing a request".into(), e)),
        };
        let watched = self.blocked && !self.stream.awaits_peer();
        if watched != self.watched {
            self.watched = watched;
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, watched);
            epoll::modify(epoll, &self.stream, EventData::new_u64(token as u64), flags)?;
        }
        Ok(())
    }

    /// Reads once, and what the socket no longer shows; true when the reply is complete in `input`.
    pub(crate) fn receive(&mut self, chunk: &mut [u8]) -> Result<bool, Error> {
        loop {
            let is_complete = self.read(chunk)?;
            if is_complete || !self.stream.has_plain() {
                return Ok(is_complete);
            }
        }
    }

    fn read(&mut self, chunk: &mut [u8]) -> Result<bool, Error> {
        let n = match self.stream.read(chunk) {
            Ok(0) => fail!("the server closed a writer's connection"),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(Error::Io("reading a reply".into(), e)),
        };
        let mut rest = &chunk[..n];
        while let Some(end) = self.framer.scan(rest) {
            self.input.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
            if memchr::memmem::find(&self.input, br#""method":"echo""#).is_none() {
                if !rest.is_empty() {
                    fail!("unexpected bytes after a reply");
                }
                return Ok(true);
            }
            self.stream.write_all(ECHO_REPLY)?;
            self.input.clear();
        }
        self.input.extend_from_slice(rest);
        Ok(false)
    }
}
