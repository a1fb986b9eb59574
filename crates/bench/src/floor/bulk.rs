//! The floor of what is large: long strings, full replies to many, whole files.
//!
//! It reads and hashes its file before it listens, keeps what it is sent in the one buffer that
//! it came in, sends everybody from one buffer, and hashes what it writes, as the file's format
//! demands. It understands nothing and holds no rows.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use sha1::{Digest, Sha1};

use super::number;
use crate::error::fail;
use crate::running;
use crate::{Error, dbfile};

/// Token of the set of those whose sockets were full.
const ROOM: u64 = u64::MAX;
const EVENTS: usize = 256;
/// Full replies that go on before requests are looked at again.
const AT_A_TIME: usize = 8;
const BLOCK: usize = 128 * 1024;
const PAGE: usize = 4096;
/// What a stored string's reply has around it.
const HEAD: &[u8] = br#"{"id":0,"result":["#;
const TAIL: &[u8] = br#"],"error":null}"#;

/// Serves until it is killed.
pub(super) fn serve(socket: &Path, path: &Path) -> Result<ExitCode, Error> {
    let length = take_in(path)?;
    let file = File::options().append(true).open(path)?;
    let (requests, room) = (new_set()?, new_set()?);
    epoll::add(&requests, &room, EventData::new_u64(ROOM), EventFlags::IN)?;
    // Who sees the socket may use the other one at once.
    let sockets = [socket.with_file_name(running::CONTROL), socket.to_owned()];
    let mut listeners = Vec::new();
    for (token, socket) in sockets.iter().enumerate() {
        let listener = UnixListener::bind(socket).map_err(|e| Error::io("binding", socket, e))?;
        epoll::add(&requests, &listener, EventData::new_u64(token as u64), EventFlags::IN)?;
        listeners.push(listener);
    }
    let next = listeners.len() as u64;
    let (path, peers) = (path.to_owned(), BTreeMap::new());
    let body = Rc::default();
    let bulk =
        Bulk { requests, room, listeners, path, file, length, peers, next, body, stored: false };
    bulk.run()
}

fn new_set() -> Result<OwnedFd, Error> {
    Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?)
}

/// Reads every record and checks its hash; returns the file's length.
fn take_in(path: &Path) -> Result<u64, Error> {
    let file = File::open(path).map_err(|e| Error::io("opening", path, e))?;
    let mut input = BufReader::with_capacity(BLOCK, file);
    let (mut header, mut total) = (String::new(), 0);
    while input.read_line(&mut header)? > 0 {
        let mut words = header.split_whitespace().skip(2);
        let length = number(words.next().unwrap_or_default().as_bytes());
        let (mut left, mut hash) = (length, Sha1::new());
        while left > 0 {
            let block = input.fill_buf()?;
            let n = block.len().min(left);
            hash.update(&block[..n]);
            input.consume(n);
            left -= n;
            if n == 0 {
                fail!("{} ends in a record", path.display());
            }
        }
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if words.next() != Some(&hash) {
            fail!("{}: a record is not what its hash says", path.display());
        }
        total += (header.len() + length) as u64;
        header.clear();
    }
    Ok(total)
}

struct Bulk {
    /// Who may have something to say; in it the set of those whose sockets were full.
    requests: OwnedFd,
    room: OwnedFd,
    listeners: Vec<UnixListener>,
    path: PathBuf,
    file: File,
    /// Length of the file at the start.
    length: u64,
    peers: BTreeMap<u64, Peer>,
    next: u64,
    /// The reply to whoever wants everything.
    body: Rc<Vec<u8>>,
    /// Whether the reply is a string that was stored.
    stored: bool,
}

struct Peer {
    stream: UnixStream,
    /// Bytes of a long request that are still to come.
    long: usize,
    incoming: Vec<u8>,
    /// The reply that the peer is being sent, and from which byte on.
    sending: Option<(Rc<Vec<u8>>, usize)>,
}

impl Bulk {
    fn run(mut self) -> Result<ExitCode, Error> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut chunk = vec![0; BLOCK];
        loop {
            events.clear();
            epoll::wait(&self.requests, spare_capacity(&mut events), None)?;
            for event in &events {
                match event.data.u64() {
                    ROOM => self.go_on()?,
                    token if (token as usize) < self.listeners.len() => self.accept(token)?,
                    token => self.ready(token, &mut chunk)?,
                }
            }
        }
    }

    fn accept(&mut self, listener: u64) -> Result<(), Error> {
        let (stream, _) = self.listeners[listener as usize].accept()?;
        stream.set_nonblocking(true)?;
        epoll::add(&self.requests, &stream, EventData::new_u64(self.next), EventFlags::IN)?;
        let peer = Peer { stream, long: 0, incoming: Vec::new(), sending: None };
        self.peers.insert(self.next, peer);
        self.next += 1;
        Ok(())
    }

    fn ready(&mut self, token: u64, chunk: &mut [u8]) -> Result<(), Error> {
        let Some(peer) = self.peers.get_mut(&token) else { return Ok(()) };
        if peer.long > 0 {
            return self.store(token);
        }
        match (&peer.stream).read(chunk) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            Ok(n) if n > 0 => self.answer(token, &chunk[..n]),
            // Its socket leaves both sets with it.
            _ => {
                self.peers.remove(&token);
                Ok(())
            }
        }
    }

    fn answer(&mut self, token: u64, request: &[u8]) -> Result<(), Error> {
        let has = |word: &str| memchr::memmem::find(request, word.as_bytes()).is_some();
        let Some(peer) = self.peers.get_mut(&token) else { return Ok(()) };
        let digits = request.get(6..).unwrap_or_default().split(|b| !b.is_ascii_digit());
        let id = digits.map(number).next().unwrap_or(0);
        if has(r#""method":"floor""#) {
            let params = request.rsplit(|&b| b == b'[').next().unwrap_or_default();
            let mut numbers = params.split(|b| !b.is_ascii_digit()).map(number);
            let mut next = || numbers.next().unwrap_or(0);
            (peer.long, self.stored) = (next(), false);
            peer.incoming = Vec::with_capacity(HEAD.len() + peer.long + TAIL.len());
            peer.incoming.extend_from_slice(HEAD);
            self.body = Rc::new(everything(next(), next()));
            return reply(&peer.stream, id, "[]");
        }
        let select = has(r#""op":"select""#);
        if has(r#""method":"monitor_cond_since""#) || select && self.stored {
            peer.sending = Some((Rc::clone(&self.body), 0));
            return send(&self.room, token, peer, true);
        }
        if has(r#""method":"convert""#) || has(r#""method":"ovsdb-server/compact""#) {
            return self.rewrite(token, id);
        }
        if select {
            return reply(&peer.stream, id, r#"[{"rows":[{"tunnel_key":1}]}]"#);
        }
        if !has(r#""method":"transact""#) {
            return reply(&peer.stream, id, "{}");
        }
        append(&self.file, request)?;
        reply(&peer.stream, id, r#"[{"count":1}]"#)
    }

    /// Takes what has come of a long request; the last byte makes it a record and a reply.
    fn store(&mut self, token: u64) -> Result<(), Error> {
        let Some(peer) = self.peers.get_mut(&token) else { return Ok(()) };
        let before = peer.incoming.len();
        let read = (&peer.stream).take(peer.long as u64).read_to_end(&mut peer.incoming);
        peer.long -= peer.incoming.len() - before;
        if peer.long > 0 {
            // It ended in the middle, or more is to come.
            if read.is_ok() {
                self.peers.remove(&token);
            }
            return Ok(());
        }
        let mut body = std::mem::take(&mut peer.incoming);
        append(&self.file, &body[HEAD.len()..])?;
        body.extend_from_slice(TAIL);
        (self.body, self.stored) = (Rc::new(body), true);
        reply(&peer.stream, 0, r#"[{"uuid":["uuid","00000000-0000-4000-8000-000000000000"]}]"#)
    }

    /// Sends some of those more whose sockets have room again.
    fn go_on(&mut self) -> Result<(), Error> {
        let mut events = Vec::with_capacity(AT_A_TIME);
        epoll::wait(&self.room, spare_capacity(&mut events), Some(&Timespec::default()))?;
        for event in &events {
            let token = event.data.u64();
            if let Some(peer) = self.peers.get_mut(&token) {
                send(&self.room, token, peer, false)?;
            }
        }
        Ok(())
    }

    /// Writes as many bytes as the file had to a new one that takes its place; others go on.
    fn rewrite(&self, token: u64, id: usize) -> Result<(), Error> {
        let Some(peer) = self.peers.get(&token) else { return Ok(()) };
        let (stream, path, length) = (peer.stream.try_clone()?, self.path.clone(), self.length);
        std::thread::spawn(move || {
            // Without a reply, the one who asked fails when the connection ends.
            match replace(&path, length).and_then(|()| reply(&stream, id, "{}")) {
                Ok(()) => {}
                Err(_) => drop(stream.shutdown(std::net::Shutdown::Both)),
            }
        });
        Ok(())
    }
}

/// A reply of so many bytes with so many rows, as the driver counts them.
fn everything(bytes: usize, rows: usize) -> Vec<u8> {
    const OPEN: &[u8] = br#"{"id":1,"result":[false,"0",{"T":{"#;
    const CLOSE: &[u8] = br#"}}],"error":null}"#;
    const ROW: [&[u8]; 2] = [br#","":{"initial":""#, br#""}"#];
    let rest = bytes.saturating_sub(OPEN.len() + CLOSE.len());
    let mut text = Vec::with_capacity(bytes);
    text.extend_from_slice(OPEN);
    for n in 0..rows {
        text.extend_from_slice(&ROW[0][usize::from(n == 0)..]);
        let end = (OPEN.len() + rest * (n + 1) / rows).saturating_sub(ROW[1].len());
        text.resize(end.max(text.len()), b'x');
        text.extend_from_slice(ROW[1]);
    }
    text.extend_from_slice(CLOSE);
    text
}

/// Appends a record with its length and hash.
fn append(file: &File, body: &[u8]) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(PAGE, file);
    dbfile::record(&mut out, &mut |out| out.write_all(body))?;
    Ok(out.flush()?)
}

fn replace(path: &Path, length: u64) -> Result<(), Error> {
    let part = path.with_extension("part");
    let (mut file, block) = (File::create(&part)?, vec![b'x'; BLOCK]);
    let (mut left, mut hash) = (length, Sha1::new());
    while left > 0 {
        let block = &block[..BLOCK.min(usize::try_from(left).unwrap_or(BLOCK))];
        hash.update(block);
        file.write_all(block)?;
        left -= block.len() as u64;
    }
    black_box(hash.finalize());
    file.sync_all()?;
    Ok(fs::rename(&part, path)?)
}

/// Writes a reply, which fits every socket's buffer.
fn reply(mut stream: &UnixStream, id: usize, result: &str) -> Result<(), Error> {
    let text = format!(r#"{{"id":{id},"result":{result},"error":null}}"#);
    // A peer that is gone shows on the reading side.
    let _ = stream.write(text.as_bytes());
    Ok(())
}

/// Writes what the socket takes; `first`, if this is the beginning.
fn send(room: &OwnedFd, token: u64, peer: &mut Peer, first: bool) -> Result<(), Error> {
    let Some((body, sent)) = &mut peer.sending else { return Ok(()) };
    *sent += match (&peer.stream).write(&body[*sent..]) {
        Ok(n) => n,
        Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
        // The reading side notices that the peer is gone.
        Err(_) => body.len() - *sent,
    };
    let done = *sent == body.len();
    if done {
        peer.sending = None;
    }
    match (first, done) {
        (true, false) => {
            epoll::add(room, &peer.stream, EventData::new_u64(token), EventFlags::OUT)?;
        }
        (false, true) => epoll::delete(room, &peer.stream)?,
        (true, true) | (false, false) => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
