//! A JSON-RPC session over one blocking connection.
//!
//! A reply may be a whole database: it is validated where it was received and handed out as a
//! [`Text`] that borrows from there, never as a tree.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_host::vlog::{Level, Vlog};
use weir_json::{Framer, Text, Value, array, object, validate};
use weir_wire::{Message, trace};

use super::address::{Address, Stream};
use super::background::Happened;
use super::tape::Tape;
use crate::program::strerror;

/// The longest message that a server may send. An initial reply holds a whole database.
const MESSAGE_MAX: usize = 4 << 30;

/// Bytes asked for at once, at first; a message that is longer is read in larger pieces.
const READ_SIZE: usize = 64 << 10;

/// Bytes asked for at once, at most.
const READ_SIZE_MAX: usize = 4 << 20;

/// Bytes of a request that are collected before they are sent.
const UNSENT_MAX: usize = 16 << 10;

/// A buffer larger than this is given back once its message has been read.
const BUFFER_KEPT: usize = 1 << 20;

/// A server that is probed is asked after so long without a word, and given up after as long again, in seconds; as
/// with the reference.
const PROBE_SECONDS: i64 = 5;

/// Why a session cannot go on.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The server closed the connection.
    Closed,
    /// The connection failed.
    Io(io::Error),
    /// What the server sent makes no sense.
    Protocol(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("End of file"),
            Self::Io(error) => f.write_str(&strerror(error)),
            Self::Protocol(text) => f.write_str(text),
        }
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The server answered with this error.
    Error(Value),
    /// The session ended first.
    Lost(Lost),
}

impl From<Lost> for Refusal {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error}"),
            Self::Lost(lost) => write!(f, "{lost}"),
        }
    }
}

/// A notification of the server.
#[derive(Debug)]
pub(crate) struct Notification {
    /// The notification's method.
    pub(crate) method: String,
    /// The notification's parameters.
    pub(crate) params: Vec<Value>,
}

/// An open session with a server.
pub(crate) struct Session {
    stream: Stream,
    /// What the log calls the server, and the log.
    peer: String,
    log: Option<Vlog>,
    /// Bytes of a request that are not sent yet: a small one goes out in one piece.
    unsent: Vec<u8>,
    framer: Framer,
    /// Bytes read; those before `used` belong to messages already taken.
    buffer: Vec<u8>,
    used: usize,
    /// Bytes from `used` on that the framer has seen.
    scanned: usize,
    next_id: i64,
    /// Notifications that came while a reply was awaited.
    waiting: VecDeque<Notification>,
    /// Told how many bytes of a message are here.
    progress: Option<Box<dyn FnMut(u64)>>,
    /// Where all that comes is written down, or comes from.
    tape: Option<Rc<Tape>>,
    probing: Probing,
}

/// Whether a server that says nothing is asked if it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probing {
    /// Nobody asks: it may take as long as it likes.
    Off,
    /// The server has been heard since it was asked last.
    Heard,
    /// The server has been asked, and not been heard since.
    Asked,
}

impl Session {
    /// Connects to a server.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        Ok(Self::new(address.connect()?, String::new(), None))
    }

    /// A session over a connection that is there.
    pub(crate) fn new(stream: Stream, peer: String, log: Option<Vlog>) -> Self {
        Self {
            stream,
            peer,
            log,
            unsent: vec![],
            framer: Framer::new(),
            buffer: vec![],
            used: 0,
            scanned: 0,
            next_id: 0,
            waiting: VecDeque::new(),
            progress: None,
            tape: None,
            probing: Probing::Off,
        }
    }

    /// From now on the server is probed, or no more. One on the same host need not be.
    pub(crate) fn probe(&mut self, is_wanted: bool) {
        let is_probed = is_wanted && self.stream.is_remote();
        self.probing = if is_probed { Probing::Heard } else { Probing::Off };
    }

    /// Has all that comes written down on a tape, or taken from it.
    pub(crate) fn taped(self, tape: Rc<Tape>) -> Self {
        Self { tape: Some(tape), ..self }
    }

    /// What the log and error messages call the server.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Has `progress` told how much of a message is here.
    pub(crate) fn watch_progress(&mut self, progress: impl FnMut(u64) + 'static) {
        self.progress = Some(Box::new(progress));
    }

    /// Sends a request and waits for its reply. Notifications that come first are kept.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value, Refusal> {
        let mut bytes = vec![];
        params.write(&mut bytes);
        self.call_text(method, &bytes, |result| result.to_value())
    }

    /// Sends a request and waits for its reply, as [`Session::call`] does, with parameters that are
    /// written already and a result that is read where it was received.
    pub(crate) fn call_text<R>(
        &mut self,
        method: &str,
        params: &[u8],
        read: impl FnOnce(Text<'_>) -> R,
    ) -> Result<R, Refusal> {
        let id = self.begin_request(method)?;
        self.write(params)?;
        self.end_request(method, params, id)?;
        self.reply(id, read)
    }

    /// Writes a request up to its parameters, which [`Session::write`] goes on with.
    pub(crate) fn begin_request(&mut self, method: &str) -> Result<i64, Lost> {
        let id = self.next_id;
        self.next_id += 1;
        self.write(format!("{{\"id\":{id},\"method\":\"{method}\",\"params\":").as_bytes())?;
        Ok(id)
    }

    /// Writes bytes of a message that has been begun.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        if self.unsent.len() + bytes.len() > UNSENT_MAX {
            self.stream.write_all(&self.unsent)?;
            self.unsent.clear();
        }
        if bytes.len() > UNSENT_MAX {
            return Ok(self.stream.write_all(bytes)?);
        }
        self.unsent.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends what is left of a message.
    fn flush(&mut self) -> Result<(), Lost> {
        self.stream.write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(self.stream.flush()?)
    }

    /// Ends a request; its parameters are only for the log.
    pub(crate) fn end_request(&mut self, method: &str, params: &[u8], id: i64) -> Result<(), Lost> {
        self.write(b"}")?;
        self.flush()?;
        self.trace(|peer| {
            let mut request = format!("{{\"method\":\"{method}\",\"id\":{id},\"params\":");
            request.push_str(&String::from_utf8_lossy(params));
            request.push('}');
            trace::sent(peer, request.as_bytes())
        });
        Ok(())
    }

    /// Sends a request whose reply nobody waits for.
    pub(crate) fn request_only(&mut self, method: &str, params: &Value) -> Result<(), Lost> {
        let id = self.begin_request(method)?;
        let params = params.to_string();
        self.write(params.as_bytes())?;
        self.end_request(method, params.as_bytes(), id)
    }

    /// Waits for a reply and reads its result where it was received.
    pub(crate) fn reply<R>(
        &mut self,
        id: i64,
        read: impl FnOnce(Text<'_>) -> R,
    ) -> Result<R, Refusal> {
        loop {
            let range = self.next_message()?;
            let result = match self.parse(&range)? {
                Message::Reply { result, id: of } if of.integer() == Some(id) => Ok(result),
                Message::Error { error, id: of } if of.integer() == Some(id) => {
                    Err(Refusal::Error(error.to_value()))
                }
                _ => {
                    if let Some(notification) = self.take(range)? {
                        self.waiting.push_back(notification);
                    }
                    continue;
                }
            };
            let result = result.map(read);
            self.forget(range);
            return result;
        }
    }

    /// Waits for the next notification.
    pub(crate) fn notification(&mut self) -> Result<Notification, Lost> {
        if let Some(notification) = self.waiting.pop_front() {
            return Ok(notification);
        }
        loop {
            let range = self.next_message()?;
            if let Some(notification) = self.take(range)? {
                return Ok(notification);
            }
        }
    }

    /// The next message that is here already, if there is one; probes are answered and skipped.
    pub(super) fn poll_received(&mut self) -> Result<Option<Happened>, Lost> {
        if let Some(notification) = self.waiting.pop_front() {
            return Ok(Some(Happened::Notification(notification)));
        }
        while let Some(range) = self.frame()? {
            let is_ours =
                |id: Text<'_>| id.integer().is_some_and(|id| (0..self.next_id).contains(&id));
            let reply = match self.parse(&range)? {
                Message::Reply { result, id } if is_ours(id) => Some(result.to_value().to_string()),
                Message::Error { id, .. } if is_ours(id) => None,
                _ => {
                    if let Some(notification) = self.take(range)? {
                        return Ok(Some(Happened::Notification(notification)));
                    }
                    continue;
                }
            };
            self.forget(range);
            return Ok(Some(Happened::Reply(reply)));
        }
        Ok(None)
    }

    /// Waits for more bytes of the server.
    pub(super) fn wait_for_more(&mut self) -> Result<(), Lost> {
        self.fill()
    }

    /// Takes a message apart where it was received.
    fn parse(&self, range: &Range<usize>) -> Result<Message<'_>, Lost> {
        let bytes = self.buffer.get(range.clone()).unwrap_or_default();
        let text = validate(bytes).map_err(|error| self.not_json(&error))?;
        Message::parse(text)
            .map_err(|error| self.protocol(format!("received bad JSON-RPC message: {error}")))
    }

    fn not_json(&self, error: &weir_json::Error) -> Lost {
        self.protocol(format!("error parsing stream: {error}"))
    }

    /// The server sent what makes no sense: where there is a log, that is where it is told why.
    fn protocol(&self, reason: String) -> Lost {
        match &self.log {
            Some(log) => {
                log.log("jsonrpc", Level::Warn, &format!("{}: {reason}", self.peer));
                Lost::Io(Errno::PROTO.into())
            }
            None => Lost::Protocol(reason),
        }
    }

    /// Takes one message that is no awaited reply; answers probes.
    fn take(&mut self, range: Range<usize>) -> Result<Option<Notification>, Lost> {
        let mut notification = None;
        let mut echo = None;
        match self.parse(&range)? {
            Message::Notification { method, params } => {
                let params = params.elements().into_iter().flatten().map(Text::to_value).collect();
                notification = Some(Notification { method: method.to_owned(), params });
            }
            Message::Request { method: "echo", params, id } => {
                let mut reply = b"{\"error\":null,\"id\":".to_vec();
                id.write(&mut reply);
                reply.extend_from_slice(b",\"result\":");
                params.write(&mut reply);
                reply.push(b'}');
                echo = Some(reply);
            }
            // A server asks nothing else.
            Message::Request { .. } | Message::Reply { .. } | Message::Error { .. } => {}
        }
        self.forget(range);
        if let Some(reply) = echo {
            self.trace(|peer| trace::sent(peer, &reply));
            // What a server said before it went away still counts; reading tells of its end.
            if self.write(&reply).and_then(|()| self.flush()).is_err() {
                self.unsent.clear();
            }
        }
        Ok(notification)
    }

    /// Gives back a large buffer once nothing is in it.
    fn forget(&mut self, range: Range<usize>) {
        if range.end == self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
            if self.buffer.capacity() > BUFFER_KEPT {
                self.buffer = vec![];
            }
        }
    }

    /// Waits for the next message.
    fn next_message(&mut self) -> Result<Range<usize>, Lost> {
        loop {
            if let Some(range) = self.frame()? {
                return Ok(range);
            }
            self.fill()?;
        }
    }

    /// The next message, if all of it is here.
    fn frame(&mut self) -> Result<Option<Range<usize>>, Lost> {
        let start = self.used;
        let fresh = &self.buffer[start + self.scanned..];
        let length = match self.framer.feed(fresh) {
            Ok(Some(length)) => length,
            Ok(None) => {
                self.scanned += fresh.len();
                return Ok(None);
            }
            Err(error) => return Err(self.not_json(&error)),
        };
        let end = start + self.scanned + length;
        (self.used, self.scanned) = (end, 0);
        self.trace(|peer| trace::received(peer, &self.buffer[start..end]));
        Ok(Some(start..end))
    }

    /// Waits until the server has said something, if that has an end.
    fn hear(&mut self) -> Result<(), Lost> {
        let pause = Timespec { tv_sec: PROBE_SECONDS, tv_nsec: 0 };
        while self.probing != Probing::Off {
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&pause)) {
                Ok(0) if self.probing == Probing::Asked => {
                    if let Some(log) = &self.log {
                        let text = format!(
                            "{}: no response to inactivity probe after {PROBE_SECONDS} seconds, disconnecting",
                            self.peer
                        );
                        log.log("reconnect", Level::Err, &text);
                    }
                    return Err(Lost::Io(Errno::TIMEDOUT.into()));
                }
                Ok(0) => {
                    self.write(br#"{"id":"echo","method":"echo","params":[]}"#)?;
                    self.flush()?;
                    self.probing = Probing::Asked;
                }
                Ok(_) => {
                    self.probing = Probing::Heard;
                    break;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Lost::Io(error.into())),
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Lost> {
        self.hear()?;
        self.buffer.drain(..self.used);
        self.used = 0;
        let have = self.buffer.len();
        if have >= MESSAGE_MAX {
            return Err(Lost::Protocol(format!("a message of more than {MESSAGE_MAX} bytes")));
        }
        let size = have.clamp(READ_SIZE, READ_SIZE_MAX);
        self.buffer.reserve(size);
        let read = match &self.tape {
            Some(tape) => tape.read(&mut self.stream, &mut self.buffer),
            None => self.stream.read_to(&mut self.buffer),
        };
        if let Some(progress) = &mut self.progress {
            progress(self.buffer.len() as u64);
        }
        // With TLS 1.3 a client hears only now that it was refused.
        if let (Err(_), Some(log)) = (&read, &self.log) {
            for line in self.stream.take_log() {
                log.log("stream_ssl", line.severity.into(), &line.text);
            }
        }
        match read {
            Ok(0) => Err(Lost::Closed),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(Lost::Closed),
            Err(error) => Err(error.into()),
        }
    }

    /// Logs a message, if that is wanted.
    fn trace(&self, line: impl FnOnce(&str) -> String) {
        if let Some(log) = &self.log
            && log.enabled("jsonrpc", Level::Dbg)
        {
            log.log("jsonrpc", Level::Dbg, &line(&self.peer));
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Parameters that are all strings.
pub(crate) fn strings(params: &[&str]) -> Value {
    array(params.iter().map(|&param| Value::from(param)))
}

/// The parameters of `transact`.
pub(crate) fn transaction(database: &str, operations: Vec<Value>) -> Value {
    let mut params = vec![Value::from(database)];
    params.extend(operations);
    params.into()
}

/// A select of whole rows.
pub(crate) fn select(table: &str, condition: Value) -> Value {
    object([("op", "select".into()), ("table", table.into()), ("where", condition)])
}
