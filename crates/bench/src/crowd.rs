//! Many connections in one thread, none of which the driver ever waits for.
//!
//! What comes is counted, not understood: answers, refusals, notifications. Who wants to know more
//! is handed the ends of every message. A member may stop reading, as a client does that has fallen
//! behind, and may leave in the middle of a message.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Error;
use crate::client::{ECHO_REPLY, Stream, Target};
use crate::frame::Framer;

const EVENTS: usize = 256;
const READ_SIZE: usize = 256 * 1024;
/// Bytes kept of the beginning and of the end of a message: enough to see what it is, whatever the
/// order of its members.
const EDGE: usize = 96;
/// How long a turn waits for anything.
const TURN: Duration = Duration::from_millis(20);
/// How often members whom the server probes say something.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// What they say: it has no answer, and nothing is canceled by it.
const ALIVE: &[u8] = br#"{"id":null,"method":"cancel","params":["alive"]}"#;

/// The connections, by their numbers from 0; the number of one that is gone is not given again.
pub(crate) struct Crowd {
    set: OwnedFd,
    members: Vec<Member>,
    chunk: Vec<u8>,
    spoke: Instant,
    told: Told,
    /// The messages that nobody has taken yet, where somebody takes them.
    heard: Option<Vec<Message>>,
}

/// A message, by its ends.
pub(crate) struct Message {
    /// Whose it is.
    pub(crate) token: usize,
    pub(crate) edges: Edges,
    /// Length of the message in bytes.
    pub(crate) length: usize,
    /// All of it, of members that keep their messages.
    pub(crate) whole: Option<Vec<u8>>,
}

/// What all members have been told together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Answers, refusals among them.
    pub(crate) answers: u64,
    /// Answers with an error, of the request or of an operation.
    pub(crate) refused: u64,
    /// Connections that the server has closed.
    pub(crate) closed: u64,
    /// Bytes received.
    pub(crate) bytes: u64,
}

struct Member {
    /// None once the connection has ended.
    stream: Option<Stream>,
    framer: Framer,
    message: Edges,
    /// Bytes of the message so far.
    length: usize,
    /// The message so far, of a member that keeps its messages.
    whole: Option<Vec<u8>>,
    out: Vec<u8>,
    sent: usize,
    reads: bool,
    flags: EventFlags,
    answers: u64,
    last: Option<Instant>,
}

/// The beginning and the end of a message.
#[derive(Default)]
pub(crate) struct Edges {
    pub(crate) begin: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Answer,
    Refusal,
    Notification,
    /// The server asks whether the client is there.
    Probe,
}

impl Edges {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let room = EDGE.saturating_sub(self.begin.len()).min(bytes.len());
        self.begin.extend_from_slice(&bytes[..room]);
        self.end.extend_from_slice(&bytes[bytes.len().saturating_sub(EDGE)..]);
        let extra = self.end.len().saturating_sub(EDGE);
        self.end.drain(..extra);
    }

    pub(crate) fn kind(&self) -> Kind {
        let has = |text: &[u8]| {
            [&self.begin, &self.end].iter().any(|edge| memchr::memmem::find(edge, text).is_some())
        };
        if has(br#""method":"echo""#) {
            Kind::Probe
        } else if has(br#""method":""#) {
            Kind::Notification
        } else if has(br#""error":""#) || has(br#""error":{"#) {
            Kind::Refusal
        } else {
            Kind::Answer
        }
    }
}

impl Crowd {
    pub(crate) fn new() -> Result<Self, Error> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let chunk = vec![0; READ_SIZE];
        let (spoke, told) = (Instant::now(), Told::default());
        Ok(Self { set, members: Vec::new(), chunk, spoke, told, heard: None })
    }

    /// Connects so many at once, whose numbers are 0 and on.
    pub(crate) fn of(count: usize, target: &Target) -> Result<Self, Error> {
        let mut crowd = Self::new()?;
        for _ in 0..count {
            crowd.join(target)?;
        }
        Ok(crowd)
    }

    /// From now on hands out every message by its ends.
    pub(crate) fn listen(&mut self) {
        self.heard = Some(Vec::new());
    }

    /// From now on hands out the whole of a member's messages too.
    pub(crate) fn keep(&mut self, token: usize) {
        self.members[token].whole = Some(Vec::new());
    }

    /// The messages that have come since the last call.
    pub(crate) fn heard(&mut self) -> Vec<Message> {
        self.heard.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Connects one more; returns its number.
    pub(crate) fn join(&mut self, target: &Target) -> Result<usize, Error> {
        let mut stream = target.begin()?;
        stream.set_nonblocking()?;
        let token = self.members.len();
        epoll::add(&self.set, &stream, EventData::new_u64(token as u64), EventFlags::IN)?;
        self.members.push(Member::new(stream));
        Ok(token)
    }

    /// Ends a connection, whatever is on its way.
    pub(crate) fn leave(&mut self, token: usize) {
        let member = &mut self.members[token];
        member.stream = None;
        (member.out, member.sent) = (Vec::new(), 0);
    }

    pub(crate) fn told(&self) -> Told {
        self.told
    }

    /// Answers that one member has had.
    pub(crate) fn answers(&self, token: usize) -> u64 {
        self.members[token].answers
    }

    /// When the member's last answer came.
    pub(crate) fn answered_at(&self, token: usize) -> Option<Instant> {
        self.members[token].last
    }

    pub(crate) fn is_open(&self, token: usize) -> bool {
        self.members[token].stream.is_some()
    }

    /// Whether all that was to be sent is in the socket.
    pub(crate) fn has_sent(&self, token: usize) -> bool {
        let member = &self.members[token];
        member.sent == member.out.len()
    }

    /// Has a member read, or leave in the socket what comes.
    pub(crate) fn set_reading(&mut self, token: usize, reads: bool) -> Result<(), Error> {
        self.members[token].reads = reads;
        self.members[token].watch(&self.set, token)
    }

    /// Sends what the socket takes at once, and the rest in later turns.
    pub(crate) fn send(&mut self, token: usize, bytes: &[u8]) -> Result<(), Error> {
        let member = &mut self.members[token];
        if member.sent == member.out.len() {
            member.out.clear();
            member.sent = 0;
        }
        member.out.extend_from_slice(bytes);
        self.flush(token)
    }

    fn flush(&mut self, token: usize) -> Result<(), Error> {
        let member = &mut self.members[token];
        if member.write().is_err() {
            self.close(token);
            return Ok(());
        }
        self.members[token].watch(&self.set, token)
    }

    fn close(&mut self, token: usize) {
        if self.is_open(token) {
            self.told.closed += 1;
        }
        self.leave(token);
    }

    /// Reads and writes what can be read and written, for at most so long where nothing can.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<(), Error> {
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.set, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let (token, flags) = (event.data.u64() as usize, event.flags);
            if flags.contains(EventFlags::OUT) {
                self.flush(token)?;
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                self.read(token)?;
            }
        }
        self.keep_alive()
    }

    /// Turns until `done`, or until the time is over: then false.
    pub(crate) fn until(
        &mut self,
        patience: Duration,
        done: &mut dyn FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let start = Instant::now();
        while !done(self)? {
            if start.elapsed() >= patience {
                return Ok(false);
            }
            self.turn(TURN.min(patience))?;
        }
        Ok(true)
    }

    /// Reads and writes for so long.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), Error> {
        self.until(time, &mut |_| Ok(false)).map(drop)
    }

    /// Sends a request and waits for the answer; none where it does not come in time, or never.
    pub(crate) fn ask(
        &mut self,
        token: usize,
        request: &[u8],
        patience: Duration,
    ) -> Result<Option<Duration>, Error> {
        let (start, before) = (Instant::now(), self.answers(token));
        self.send(token, request)?;
        let there = |crowd: &Self| crowd.answers(token) > before;
        self.until(patience, &mut |crowd| Ok(there(crowd) || !crowd.is_open(token)))?;
        let at = if there(self) { self.answered_at(token) } else { None };
        Ok(at.map(|at| at.duration_since(start)))
    }

    /// Waits until everybody who is still there has had so many answers; false where that takes
    /// too long.
    pub(crate) fn wait_for(&mut self, answers: u64, patience: Duration) -> Result<bool, Error> {
        // Those that are done need not be asked again.
        let mut first = 0;
        self.until(patience, &mut |crowd| {
            while let Some(member) = crowd.members.get(first) {
                if member.stream.is_some() && member.answers < answers {
                    return Ok(false);
                }
                first += 1;
            }
            Ok(true)
        })
    }

    fn read(&mut self, token: usize) -> Result<(), Error> {
        loop {
            let Some(member) = self.members.get_mut(token) else { return Ok(()) };
            let Some(stream) = &mut member.stream else { return Ok(()) };
            let n = match stream.read(&mut self.chunk) {
                Ok(n @ 1..) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // Reset, or whatever else: the connection has ended.
                Ok(_) | Err(_) => {
                    self.close(token);
                    return Ok(());
                }
            };
            self.told.bytes += n as u64;
            let probed = member.take(token, &self.chunk[..n], &mut self.told, &mut self.heard);
            let more = member.stream.as_ref().is_some_and(Stream::has_plain);
            for _ in 0..probed {
                self.send(token, ECHO_REPLY)?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Over TCP and TLS, has everybody who reads say something from time to time, so that the
    /// server need not probe.
    fn keep_alive(&mut self) -> Result<(), Error> {
        let probed = |member: &Member| member.stream.as_ref().is_some_and(Stream::is_probed);
        if self.spoke.elapsed() < KEEPALIVE || !self.members.iter().any(probed) {
            return Ok(());
        }
        self.spoke = Instant::now();
        for token in 0..self.members.len() {
            let member = &self.members[token];
            // One in the middle of a message says enough.
            if member.reads && probed(member) && self.has_sent(token) {
                self.send(token, ALIVE)?;
            }
        }
        Ok(())
    }
}

impl Member {
    fn new(stream: Stream) -> Self {
        Self {
            stream: Some(stream),
            framer: Framer::default(),
            message: Edges::default(),
            length: 0,
            whole: None,
            out: Vec::new(),
            sent: 0,
            reads: true,
            flags: EventFlags::IN,
            answers: 0,
            last: None,
        }
    }

    /// Counts what has come; returns how many probes were in it.
    fn take(
        &mut self,
        token: usize,
        mut bytes: &[u8],
        told: &mut Told,
        heard: &mut Option<Vec<Message>>,
    ) -> usize {
        let mut probes = 0;
        while let Some(end) = self.framer.scan(bytes) {
            self.extend(&bytes[..end]);
            bytes = &bytes[end..];
            let edges = std::mem::take(&mut self.message);
            let length = std::mem::take(&mut self.length);
            let whole = self.whole.as_mut().map(std::mem::take);
            match edges.kind() {
                kind @ (Kind::Answer | Kind::Refusal) => {
                    self.answers += 1;
                    self.last = Some(Instant::now());
                    told.answers += 1;
                    told.refused += u64::from(kind == Kind::Refusal);
                }
                Kind::Probe => probes += 1,
                Kind::Notification => {}
            }
            if let Some(heard) = heard {
                heard.push(Message { token, edges, length, whole });
            }
        }
        self.extend(bytes);
        probes
    }

    /// Takes in bytes of one message.
    fn extend(&mut self, bytes: &[u8]) {
        self.message.extend(bytes);
        self.length += bytes.len();
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(bytes);
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        match stream.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }

    /// Asks the kernel for what the member waits for.
    fn watch(&mut self, set: &OwnedFd, token: usize) -> Result<(), Error> {
        let Some(stream) = &self.stream else { return Ok(()) };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.reads || stream.awaits_peer());
        flags.set(EventFlags::OUT, self.sent < self.out.len() && !stream.awaits_peer());
        if flags != self.flags {
            self.flags = flags;
            epoll::modify(set, stream, EventData::new_u64(token as u64), flags)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        let mut edges = Edges::default();
        for part in text.as_bytes().chunks(7) {
            edges.extend(part);
        }
        edges.kind()
    }

    #[test]
    fn messages_are_known_by_their_edges_in_either_order_of_members() {
        let long = "x".repeat(3 * EDGE);
        for (text, expected) in [
            (r#"{"id":1,"result":["LONG"],"error":null}"#, Kind::Answer),
            (r#"{"error":null,"id":1,"result":["LONG"]}"#, Kind::Answer),
            (r#"{"error":{"error":"syntax error"},"id":1,"result":null}"#, Kind::Refusal),
            (r#"{"id":1,"result":[{"error":"timed out"}],"error":null}"#, Kind::Refusal),
            (r#"{"id":1,"result":null,"error":"unknown method"}"#, Kind::Refusal),
            (r#"{"id":null,"method":"update2","params":["LONG"]}"#, Kind::Notification),
            (r#"{"params":["LONG"],"method":"update3","id":null}"#, Kind::Notification),
            (r#"{"id":"echo","method":"echo","params":[]}"#, Kind::Probe),
        ] {
            assert_eq!(kind(&text.replace("LONG", &long)), expected, "{text}");
        }
    }
}
