//! Monitors that watch while everything changes.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use serde_json::{Value, json};

use super::DB;
use crate::Error;
use crate::client::{Client, Stream, Target};
use crate::error::fail;
use crate::frame::Framer;
use crate::watch::{Marker, ReadBuffer, Watch, keep_alive};

const EVENTS: usize = 256;
const READ_SIZE: usize = 1 << 20;
/// What a row that has become visible begins with.
const ROW: &[u8] = br#":{"insert""#;
/// How long to wait for anything.
const TURN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// A wait in which nothing arrives for so long has failed.
const STALLED: Duration = Duration::from_secs(600);

/// Monitors of `Logical_Flow`, and how many changed rows they are to see, all together.
pub(super) struct Audience {
    set: std::os::fd::OwnedFd,
    watches: Vec<Watch>,
    rows: u64,
}

impl Audience {
    /// Connects one monitor for each request.
    pub(super) fn gather(
        target: &Target,
        requests: impl Iterator<Item = Value>,
        rows: u64,
    ) -> Result<Self, Error> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut watches = Vec::new();
        for mut request in requests {
            let mut client = Client::connect(target)?;
            request["select"] = json!({"initial": false});
            let params = json!([DB, "m", {"Logical_Flow": [request]}]);
            client.call("monitor_cond", &params)?;
            let mut stream = client.into_stream();
            stream.set_nonblocking()?;
            let token = EventData::new_u64(watches.len() as u64);
            epoll::add(&set, &stream, token, EventFlags::IN)?;
            watches.push(Watch::new(stream, false));
        }
        Ok(Self { set, watches, rows })
    }

    /// Reads until everybody has seen every change.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        let search = Marker::Modify.search();
        let (mut buffer, mut events) = (ReadBuffer::new(), Vec::with_capacity(EVENTS));
        let mut heard = Instant::now();
        loop {
            let seen: u64 = self.watches.iter().map(|watch| watch.seen.rows).sum();
            match seen.cmp(&self.rows) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(()),
                std::cmp::Ordering::Greater => {
                    fail!("monitors saw {seen} changes of {}", self.rows)
                }
            }
            events.clear();
            epoll::wait(&self.set, spare_capacity(&mut events), Some(&TURN))?;
            if !events.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() > STALLED {
                fail!("monitors saw {seen} changes of {}", self.rows);
            }
            for event in &events {
                self.watches[event.data.u64() as usize].drain(&mut buffer, &search)?;
            }
            keep_alive(&mut self.watches)?;
        }
    }
}

/// One monitor that is shown rows.
pub(super) struct Shown {
    stream: Stream,
    framer: Framer,
    buffer: Vec<u8>,
}

impl Shown {
    pub(super) fn new(client: Client) -> Self {
        let buffer = vec![0; ROW.len() - 1 + READ_SIZE];
        Self { stream: client.into_stream(), framer: Framer::default(), buffer }
    }

    pub(super) fn ask(&mut self, request: &Value) -> Result<(), Error> {
        self.stream.write_all(request.to_string().as_bytes()).map_err(Error::from)
    }

    /// Reads two messages, the update and the answer, with so many new rows.
    pub(super) fn wait_for(&mut self, rows: usize) -> Result<(), Error> {
        let (mut messages, mut seen, mut tail) = (0, 0, 0);
        while messages < 2 {
            let n = self.stream.read(&mut self.buffer[tail..])?;
            if n == 0 {
                fail!("the server closed the connection of a monitor");
            }
            let mut rest = &self.buffer[tail..tail + n];
            while let Some(end) = self.framer.scan(rest) {
                rest = &rest[end..];
                messages += 1;
            }
            let bytes = &self.buffer[..tail + n];
            seen += memchr::memmem::find_iter(bytes, ROW).count();
            let keep = bytes.len().min(ROW.len() - 1);
            let all = bytes.len();
            self.buffer.copy_within(all - keep..all, 0);
            tail = keep;
        }
        if seen != rows {
            fail!("new conditions brought {seen} rows of {rows}");
        }
        Ok(())
    }
}
