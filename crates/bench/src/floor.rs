//! The bare floor: what any server of this shape must at least do, and nothing else.
//!
//! An epoll loop reads requests, writes one log record a round, replies, and sends one merged
//! update to every monitor. It understands nothing: a request is whatever one read gives, and the
//! bytes in the record and the update are filler of the size that a real server needed. It runs
//! in a process of its own so that its CPU time is counted like a server's.
//!
//! The paced floor differs in one thing: it keeps updates for up to [`PACE`], so that more
//! transactions share one. Replies still go at once. What is large has a floor of its own.

mod bulk;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Error;

/// The command that the load test gives its own program.
pub(crate) const COMMAND: &str = "floor-server";
const LISTENER: u64 = u64::MAX;
/// How long the paced floor keeps an update.
const PACE: Duration = Duration::from_micros(500);
/// The databases that the scenario `connections` asks for.
const LIST_DBS: &[u8] = br#"{"id":0,"result":["Bench_Connections","_Server"],"error":null}"#;
const EVENTS: usize = 256;
const READ_SIZE: usize = 128 * 1024;

/// Which bare loop serves as the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A floor for transactions whose updates go at once.
    Plain,
    /// A floor for transactions whose updates are kept for a while.
    Paced,
    /// A floor for long strings, full replies and whole files.
    Bulk,
}

impl Kind {
    /// The last word of the command line.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Paced => Some("paced"),
            Self::Bulk => Some("bulk"),
        }
    }
}

/// The command line that runs a floor in a child of our own program.
pub(crate) fn child(socket: &Path, file: &Path, kind: Kind) -> Result<Command, Error> {
    let own =
        std::env::current_exe().map_err(|e| Error::Io("finding our own program".into(), e))?;
    let mut command = Command::new(own);
    command.arg(COMMAND).arg(socket).arg(file).args(kind.word());
    Ok(command)
}

/// Runs the floor until it is killed.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let [socket, file, kind @ ..] = args else {
        return Err(Error::Usage(format!("{COMMAND} needs SOCKET and FILE")));
    };
    let is = |kind_of: Kind| kind.first().map(String::as_str) == kind_of.word();
    if is(Kind::Bulk) {
        return bulk::serve(socket.as_ref(), file.as_ref());
    }
    let file = File::create(file).map_err(|e| Error::io("creating", file.as_ref(), e))?;
    let listener =
        UnixListener::bind(socket).map_err(|e| Error::io("binding", socket.as_ref(), e))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    Floor {
        epoll,
        listener,
        file,
        peers: BTreeMap::new(),
        next: 0,
        filler: Vec::new(),
        sizes: (0, 0),
        request: 0,
        rows: 0,
        pace: if is(Kind::Paced) { PACE } else { Duration::ZERO },
        oldest: None,
        update: Vec::new(),
        record: Vec::new(),
    }
    .serve()
}

struct Floor {
    epoll: OwnedFd,
    listener: UnixListener,
    file: File,
    peers: BTreeMap<u64, Connection>,
    next: u64,
    filler: Vec<u8>,
    /// Bytes a transaction in the update (with none, there is no update) and in the record.
    sizes: (usize, usize),
    /// Bytes of a request, where it is too long for one read.
    request: usize,
    rows: u64,
    pace: Duration,
    /// Since when the update waits.
    oldest: Option<Instant>,
    update: Vec<u8>,
    record: Vec<u8>,
}

struct Connection {
    stream: UnixStream,
    monitor: bool,
    /// The reply of this round, or what the socket did not take of it.
    out: Vec<u8>,
    /// Updates that the socket has not taken, the first one from this byte on.
    updates: VecDeque<Rc<[u8]>>,
    sent: usize,
    /// Of a long request: its id and the bytes that have come.
    partial: (usize, usize),
}

impl Connection {
    fn new(stream: UnixStream) -> Self {
        let (out, updates) = (Vec::new(), VecDeque::new());
        Self { stream, monitor: false, out, updates, sent: 0, partial: (0, 0) }
    }
}

impl Floor {
    fn serve(mut self) -> Result<ExitCode, Error> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut chunk = vec![0; READ_SIZE];
        let mut replies = Vec::new();
        loop {
            events.clear();
            let limit = self.oldest.map(|oldest| {
                let nanos = self.pace.saturating_sub(oldest.elapsed()).subsec_nanos();
                Timespec { tv_sec: 0, tv_nsec: nanos.into() }
            });
            epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref())?;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    token => {
                        if self.ready(token, &mut chunk)? {
                            replies.push(token);
                        }
                    }
                }
            }
            self.finish_round(&mut replies)?;
        }
    }

    fn accept(&mut self) -> Result<(), Error> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        epoll::add(&self.epoll, &stream, EventData::new_u64(self.next), EventFlags::IN)?;
        self.peers.insert(self.next, Connection::new(stream));
        self.next += 1;
        Ok(())
    }

    /// Reads a request, or goes on writing; true when there is a reply to send.
    fn ready(&mut self, token: u64, chunk: &mut [u8]) -> Result<bool, Error> {
        let Some(peer) = self.peers.get_mut(&token) else { return Ok(false) };
        if !peer.updates.is_empty() {
            go_on(&self.epoll, token, peer)?;
        }
        let n = match (&peer.stream).read(chunk) {
            Ok(0) => {
                let gone = self.peers.remove(&token);
                if let Some(gone) = gone {
                    epoll::delete(&self.epoll, gone.stream.as_fd())?;
                }
                return Ok(false);
            }
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let request = &chunk[..n];
        if request.starts_with(br#"{"id":0,"method":"floor""#) {
            let params = request.rsplit(|&b| b == b'[').next().unwrap_or_default();
            let mut numbers = params.split(|b| !b.is_ascii_digit()).map(number);
            self.sizes = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            self.request = numbers.next().unwrap_or(0);
            self.filler = vec![b'x'; self.sizes.0.max(self.sizes.1)];
            peer.out.extend_from_slice(br#"{"id":0,"result":[],"error":null}"#);
        } else if request.starts_with(br#"{"id":0,"method":"monitor"#) {
            peer.monitor = true;
            peer.out.extend_from_slice(br#"{"id":0,"result":[false,"0",{}],"error":null}"#);
        } else if request.starts_with(br#"{"id":0,"method":"list_dbs""#) {
            peer.out.extend_from_slice(LIST_DBS);
        } else if request.starts_with(br#"{"id":"db""#) {
            peer.out.extend_from_slice(br#"{"id":"db","result":[{"rows":[]}],"error":null}"#);
        } else {
            let id = request.get(6..).unwrap_or_default();
            let mut id = number(id.split(|b| !b.is_ascii_digit()).next().unwrap_or_default());
            if self.request > 0 {
                let (first, before) = peer.partial;
                id = if before == 0 { id } else { first };
                peer.partial = (id, before + n);
                if before + n < self.request {
                    return Ok(false);
                }
                peer.partial = (0, 0);
            }
            let counts = memchr::memmem::find_iter(request, br#""mutate""#).count()
                + usize::from(memchr::memmem::find(request, br#""delete","table""#).is_some());
            self.transaction(token, id, counts);
        }
        Ok(true)
    }

    /// Makes up a row: its uuid goes into the reply and the update, filler makes the sizes right.
    fn transaction(&mut self, token: u64, id: usize, counts: usize) {
        self.rows += 1;
        let uuid = format!("00000000-0000-4000-8000-{:012x}", self.rows);
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let _ = write!(peer.out, r#"{{"id":{id},"result":[{{"uuid":["uuid","{uuid}"]}}"#);
        (0..counts).for_each(|_| peer.out.extend_from_slice(br#",{"count":1}"#));
        peer.out.extend_from_slice(br#"],"error":null}"#);
        self.record.extend_from_slice(&self.filler[..self.sizes.1.min(self.filler.len())]);
        if self.sizes.0 == 0 {
            return;
        }
        const OPEN: &str = r#"{"method":"update3","params":[["monid","D"],"0",{"T":{"#;
        self.update.extend_from_slice(if self.update.is_empty() { OPEN } else { "," }.as_bytes());
        let start = self.update.len();
        let _ = write!(self.update, r#""{uuid}":{{"insert":""#);
        let fill = self.sizes.0.saturating_sub(self.update.len() - start + 3);
        self.update.extend_from_slice(&self.filler[..fill.min(self.filler.len())]);
        self.update.extend_from_slice(br#""}"#);
    }

    /// One write to the log, one reply to each writer, and the update if it is due.
    fn finish_round(&mut self, replies: &mut Vec<u64>) -> Result<(), Error> {
        if !self.record.is_empty() {
            self.record.push(b'\n');
            self.file.write_all(&self.record)?;
            self.record.clear();
        }
        for token in replies.drain(..) {
            if let Some(peer) = self.peers.get_mut(&token) {
                send(peer);
            }
        }
        if self.update.is_empty() {
            return Ok(());
        }
        if !self.pace.is_zero() {
            let oldest = *self.oldest.get_or_insert_with(Instant::now);
            if oldest.elapsed() < self.pace {
                return Ok(());
            }
            self.oldest = None;
        }
        self.fan_out()
    }

    /// Sends the update to every monitor; those that cannot take all of it share the rest.
    fn fan_out(&mut self) -> Result<(), Error> {
        self.update.extend_from_slice(br#"}}],"id":null}"#);
        let mut shared: Option<Rc<[u8]>> = None;
        for (&token, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.monitor) {
            let mut n = 0;
            let behind = !peer.updates.is_empty();
            if !behind {
                n = match (&peer.stream).write(&self.update) {
                    Ok(n) => n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
                    Err(_) => continue,
                };
                if n == self.update.len() {
                    continue;
                }
            }
            let rest = shared.get_or_insert_with(|| self.update.as_slice().into());
            peer.updates.push_back(Rc::clone(rest));
            if !behind {
                peer.sent = n;
                watch_room(&self.epoll, token, peer, true)?;
            }
        }
        self.update.clear();
        Ok(())
    }
}

/// Writes what a monitor's socket takes of the updates that wait.
fn go_on(epoll: &OwnedFd, token: u64, peer: &mut Connection) -> Result<(), Error> {
    while let Some(update) = peer.updates.front() {
        match (&peer.stream).write(&update[peer.sent..]) {
            Ok(n) => peer.sent += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            // The reading side notices that the peer is gone.
            Err(_) => peer.sent = update.len(),
        }
        if peer.sent < update.len() {
            return Ok(());
        }
        peer.updates.pop_front();
        peer.sent = 0;
    }
    watch_room(epoll, token, peer, false)
}

/// Writes a reply, which fits every socket's buffer.
fn send(peer: &mut Connection) {
    // A peer that is gone shows on the reading side.
    let _ = (&peer.stream).write(&peer.out);
    peer.out.clear();
}

fn watch_room(epoll: &OwnedFd, token: u64, peer: &Connection, on: bool) -> Result<(), Error> {
    let mut flags = EventFlags::IN;
    flags.set(EventFlags::OUT, on);
    epoll::modify(epoll, &peer.stream, EventData::new_u64(token), flags)?;
    Ok(())
}

fn number(digits: &[u8]) -> usize {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::client::{Client, Target};
    use serde_json::{Value, json};
    use std::path::PathBuf;

    /// A floor in a thread of this process; it lives as long as the process.
    pub(crate) fn spawn(name: &str, kind: Kind) -> (Target, PathBuf) {
        spawn_on(name, kind, b"")
    }

    /// Runs a floor in a thread of this process, with a file that has this content.
    pub(crate) fn spawn_on(name: &str, kind: Kind, content: &[u8]) -> (Target, PathBuf) {
        let own = format!("weir-floor-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(own);
        std::fs::create_dir(&dir).unwrap();
        let (socket, file) = (dir.join("sock"), dir.join("log"));
        std::fs::write(&file, content).unwrap();
        let mut args = vec![socket.display().to_string(), file.display().to_string()];
        args.extend(kind.word().map(str::to_owned));
        std::thread::spawn(move || command(&args));
        let target = Target::Unix(socket);
        while target.connect().is_err() {
            std::thread::yield_now();
        }
        (target, file)
    }

    /// Removes a floor's folder.
    pub(crate) fn remove(file: &Path) {
        std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }

    #[test]
    fn it_answers_logs_and_updates_in_the_sizes_asked_for() {
        let (target, file) = spawn("sizes", Kind::Plain);
        let mut writer = Client::connect(&target).unwrap();
        let mut monitor = Client::connect(&target).unwrap();
        monitor.call("monitor_cond_since", &json!([])).unwrap();
        writer.call("floor", &json!([300, 200, 0])).unwrap();
        let request = br#"{"id":17,"method":"transact","params":["D",{"op":"mutate"}]}"#;
        let reply: Value = serde_json::from_slice(writer.exchange(request).unwrap()).unwrap();
        assert_eq!(reply["id"], 17);
        assert_eq!(reply["result"][1], json!({"count": 1}));
        let uuid = reply["result"][0]["uuid"][1].as_str().unwrap().to_owned();
        let update: Value = serde_json::from_slice(monitor.exchange(b"").unwrap()).unwrap();
        let row = &update["params"][2]["T"];
        // A comma between rows belongs to the size.
        assert_eq!(row.to_string().len() + 1, 300 + "{}".len());
        assert!(row[&uuid]["insert"].is_string());
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 201);
        remove(&file);
    }
}
