//! The load driver: one thread, all writers and monitors.
//!
//! It shares the machine with the server under test, so it does as little as it can: one read a
//! ready socket, one write a request, and a search through what monitors receive.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Error;
use crate::client::{Stream, Target};
use crate::error::fail;
use crate::progress::Progress;
use crate::stats::Latencies;
use crate::watch::{Marker, ReadBuffer, Search, Seen, Watch, keep_alive};
use crate::writer::Writer;

/// A phase in which nothing at all arrives for so long has failed.
const STALLED: Duration = Duration::from_secs(60);
/// How long to sleep where nothing but replies can come.
const IDLE: Duration = Duration::from_secs(1);
/// Ready sockets taken at a time.
const EVENTS: usize = 256;
/// How often monitors are drained unless the options say otherwise. Not at once: a driver that
/// sleeps until each single update makes the server pay for waking it, and reads a hundred small
/// pieces where it could read a hundred larger ones.
pub(crate) const DRAIN_EVERY: Duration = Duration::from_micros(500);
/// With so few writers, their replies are looked for between monitors: the time that a reply
/// waits behind a hundred monitors' updates would otherwise be the driver's, not the server's.
const FEW_WRITERS: usize = 4;
/// How many monitors are drained between two such looks.
const MONITORS_AT_A_TIME: usize = 8;
/// Room for a reply.
const REPLY_SIZE: usize = 64 * 1024;

/// The load of one phase: what is sent, how fast, and what must come back.
pub(crate) struct Load<'a> {
    /// Number of transactions.
    pub(crate) total: usize,
    /// What each transaction does to one row.
    pub(crate) marker: Marker,
    /// Transactions a second in an open loop; without it, the loop is closed.
    pub(crate) rate: Option<f64>,
    /// Whether no monitor may see any of it.
    pub(crate) unseen: bool,
    /// Appends transaction `i`, with `i` as its id.
    pub(crate) request: &'a mut dyn FnMut(usize, &mut Vec<u8>),
    /// Takes the reply to transaction `i`.
    pub(crate) reply: &'a mut CheckReply<'a>,
}

/// Checks a reply; returns the [`crate::watch::uuid_hash`] of the row that changed.
pub(crate) type CheckReply<'a> = dyn FnMut(usize, &[u8]) -> Result<u64, Error> + 'a;

/// What one phase took, in time and bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Time until the last monitor had everything.
    pub(crate) wall: Duration,
    /// Time from the sending of each transaction (open loop: from when it was due) to its reply.
    pub(crate) latencies: Latencies,
    /// Bytes that all monitors received.
    pub(crate) delivered: u64,
    /// The longest time in which no reply came.
    pub(crate) stall: Duration,
}

/// All connections of a run.
pub(crate) struct Driver {
    writer_set: OwnedFd,
    watch_set: OwnedFd,
    drain_every: Duration,
    stalled_after: Duration,
    writers: Vec<Writer>,
    pub(crate) watches: Vec<Watch>,
    /// Where every transaction connects anew, if it does.
    pub(crate) one_shot: Option<Target>,
    progress: Progress,
    buffer: ReadBuffer,
    chunk: Vec<u8>,
}

/// A phase under way.
struct Phase<'a, 'b> {
    load: &'a mut Load<'b>,
    search: Search,
    start: Instant,
    idle: VecDeque<usize>,
    begun: usize,
    answered: usize,
    expected: Seen,
    latencies: Latencies,
    /// When the last reply came.
    replied: Instant,
    stall: Duration,
}

impl Driver {
    pub(crate) fn new(
        mut writers: Vec<Stream>,
        mut watches: Vec<Watch>,
        drain_every: Duration,
        progress: Progress,
    ) -> Result<Self, Error> {
        let writer_set = ready_set(writers.iter_mut())?;
        let watch_set = ready_set(watches.iter_mut().map(Watch::stream))?;
        let writers = writers.into_iter().map(Writer::new).collect();
        let (buffer, chunk) = (ReadBuffer::new(), vec![0; REPLY_SIZE]);
        Ok(Self {
            writer_set,
            watch_set,
            drain_every,
            stalled_after: STALLED,
            writers,
            watches,
            one_shot: None,
            progress,
            buffer,
            chunk,
        })
    }

    /// Runs one phase until every reply is there and every monitor has seen every row.
    pub(crate) fn run(&mut self, load: &mut Load<'_>) -> Result<Outcome, Error> {
        self.watches.iter_mut().for_each(Watch::reset);
        let start = Instant::now();
        let mut phase = Phase {
            search: load.marker.search(),
            load,
            start,
            idle: (0..self.writers.len()).collect(),
            begun: 0,
            answered: 0,
            expected: Seen::default(),
            latencies: Latencies::default(),
            replied: start,
            stall: Duration::ZERO,
        };
        let (mut progress, mut drained) = (phase.start, phase.start);
        self.feed(&mut phase)?;
        while !self.complete(&phase)? {
            let before_drain = self.drain_every.saturating_sub(drained.elapsed());
            let mut moved = self.write(&mut phase, before_drain)?;
            if drained.elapsed() >= self.drain_every {
                moved |= self.drain(&mut phase)?;
                drained = Instant::now();
                self.progress.at(phase.answered);
            }
            if moved {
                progress = drained;
            } else if progress.elapsed() > self.stalled_after {
                return Err(self.stalled(&phase));
            }
        }
        let wall = phase.start.elapsed();
        let delivered = self.watches.iter().map(|watch| watch.bytes).sum();
        Ok(Outcome { wall, latencies: phase.latencies, delivered, stall: phase.stall })
    }

    /// Whether the phase is over. A monitor that saw as many rows as it should but other ones, or
    /// more, will never be right.
    fn complete(&self, phase: &Phase<'_, '_>) -> Result<bool, Error> {
        if phase.answered < phase.load.total {
            return Ok(false);
        }
        for (n, watch) in self.watches.iter().enumerate() {
            if watch.seen.rows < phase.expected.rows || !watch.whole() {
                return Ok(false);
            }
            if watch.seen != phase.expected {
                fail!(
                    "monitor {n} saw {} rows where {} changed, or other rows",
                    watch.seen.rows,
                    phase.expected.rows
                );
            }
        }
        Ok(true)
    }

    fn stalled(&self, phase: &Phase<'_, '_>) -> Error {
        let behind = self.watches.iter().filter(|w| w.seen.rows < phase.expected.rows).count();
        let least = self.watches.iter().map(|w| w.seen.rows).min().unwrap_or(0);
        Error::Check(format!(
            "nothing arrived for {} s: {} of {} transactions were answered; {behind} of {} \
             monitors have not seen all, one only {least} rows of {}",
            self.stalled_after.as_secs_f32(),
            phase.answered,
            phase.load.total,
            self.watches.len(),
            phase.expected.rows
        ))
    }

    /// Waits for replies, until monitors are due, and takes what is there.
    fn write(&mut self, phase: &mut Phase<'_, '_>, limit: Duration) -> Result<bool, Error> {
        let limit = if self.watches.is_empty() { IDLE } else { limit };
        let events = ready(&self.writer_set, phase.wait(limit))?;
        for event in &events {
            self.writer_ready(event.data.u64() as usize, phase)?;
        }
        self.feed(phase)?;
        Ok(!events.is_empty())
    }

    /// Takes what monitors have received.
    fn drain(&mut self, phase: &mut Phase<'_, '_>) -> Result<bool, Error> {
        let events = ready(&self.watch_set, Duration::ZERO)?;
        for (n, event) in events.iter().enumerate() {
            let watch = &mut self.watches[event.data.u64() as usize];
            watch.drain(&mut self.buffer, &phase.search)?;
            if self.writers.len() <= FEW_WRITERS && n % MONITORS_AT_A_TIME == 0 {
                for token in 0..self.writers.len() {
                    self.writer_ready(token, phase)?;
                }
            }
        }
        keep_alive(&mut self.watches)?;
        Ok(!events.is_empty())
    }

    /// Goes on writing, reads what has come, and in a closed loop sends the next request.
    fn writer_ready(&mut self, token: usize, phase: &mut Phase<'_, '_>) -> Result<(), Error> {
        let writer = &mut self.writers[token];
        if writer.blocked {
            writer.flush(&self.writer_set, token)?;
        }
        if !writer.receive(&mut self.chunk)? {
            return Ok(());
        }
        if writer.release(&self.writer_set, token)? {
            return Ok(());
        }
        let Some((i, since)) = writer.busy.take() else { fail!("a reply without a request") };
        let now = Instant::now();
        phase.latencies.push(now.saturating_duration_since(since));
        phase.stall = phase.stall.max(now - phase.replied);
        phase.replied = now;
        let row = (phase.load.reply)(i, &writer.input)?;
        if !phase.load.unseen {
            phase.expected.add(row);
        }
        writer.input.clear();
        phase.answered += 1;
        phase.idle.push_back(token);
        self.feed(phase)
    }

    /// Gives idle writers what is due.
    fn feed(&mut self, phase: &mut Phase<'_, '_>) -> Result<(), Error> {
        while phase.begun < phase.load.total {
            let now = Instant::now();
            let due = phase.due(phase.begun).unwrap_or(now);
            if due > now {
                return Ok(());
            }
            let Some(token) = phase.idle.pop_front() else { return Ok(()) };
            let writer = &mut self.writers[token];
            writer.out.clear();
            (phase.load.request)(phase.begun, &mut writer.out);
            writer.busy = Some((phase.begun, due));
            phase.begun += 1;
            match &self.one_shot {
                Some(target) => writer.begin_anew(target, &self.writer_set, token)?,
                None => writer.begin(&self.writer_set, token)?,
            }
        }
        Ok(())
    }
}

impl Phase<'_, '_> {
    /// When transaction `i` is to be sent in an open loop.
    fn due(&self, i: usize) -> Option<Instant> {
        let rate = self.load.rate?;
        Some(self.start + Duration::from_secs_f64(i as f64 / rate))
    }

    /// How long to sleep at most. An open loop spins while it still has to send: sleeping would
    /// make it late.
    fn wait(&self, limit: Duration) -> Duration {
        let spin = self.load.rate.is_some() && self.begun < self.load.total;
        if spin { Duration::ZERO } else { limit }
    }
}

/// An epoll set of sockets to read from; each one's data is its index.
fn ready_set<'a>(streams: impl Iterator<Item = &'a mut Stream>) -> Result<OwnedFd, Error> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (token, stream) in streams.enumerate() {
        stream.set_nonblocking()?;
        epoll::add(&set, &*stream, EventData::new_u64(token as u64), EventFlags::IN)?;
    }
    Ok(set)
}

fn ready(set: &OwnedFd, limit: Duration) -> Result<Vec<epoll::Event>, Error> {
    let mut events = Vec::with_capacity(EVENTS);
    let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    epoll::wait(set, spare_capacity(&mut events), Some(&timeout))?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ECHO_REPLY;
    use crate::watch::uuid_hash;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const UUIDS: [&str; 2] =
        ["01234567-89ab-4cde-8f01-23456789abcd", "fedcba98-7654-4210-8fed-cba987654321"];

    /// A server that answers two requests and sends the monitors what it is told.
    fn phase(updates: [&'static str; 2], rate: Option<f64>) -> Result<Outcome, Error> {
        let (writer, server) = UnixStream::pair().unwrap();
        let (watch, monitored) = UnixStream::pair().unwrap();
        let serve = std::thread::spawn(move || {
            let mut request = [0; 64];
            for update in updates {
                if (&server).read(&mut request).unwrap() == 0 {
                    return;
                }
                // An echo request may come first.
                (&server).write_all(br#"{"id":"echo","method":"echo","params":[]}"#).unwrap();
                assert_eq!((&server).read(&mut request).unwrap(), ECHO_REPLY.len());
                for part in update.as_bytes().chunks(7) {
                    (&monitored).write_all(part).unwrap();
                }
                (&server).write_all(br#"{"ok":1}"#).unwrap();
            }
            // Stays open until the driver is done.
            let _ = (&server).read(&mut request);
        });
        let watches = vec![Watch::new(Stream::Unix(watch), true)];
        let (writers, pause) = (vec![Stream::Unix(writer)], Duration::from_micros(10));
        let mut driver = Driver::new(writers, watches, pause, Progress::hidden()).unwrap();
        driver.stalled_after = Duration::from_millis(200);
        let outcome = driver.run(&mut Load {
            total: 2,
            marker: Marker::Insert,
            rate,
            unseen: false,
            request: &mut |i, out| out.extend_from_slice(format!("request {i}").as_bytes()),
            reply: &mut |i, _| Ok(uuid_hash(UUIDS[i].as_bytes())),
        });
        drop(driver);
        serve.join().unwrap();
        outcome
    }

    const FIRST: &str = r#"{"T":{"01234567-89ab-4cde-8f01-23456789abcd":{"insert":{}}}}"#;
    const SECOND: &str = r#"{"T":{"fedcba98-7654-4210-8fed-cba987654321":{"insert":{}}}}"#;

    #[test]
    fn a_phase_ends_when_replies_and_updates_are_there() {
        for rate in [None, Some(1000.0)] {
            let outcome = phase([FIRST, SECOND], rate).unwrap();
            assert_eq!(outcome.delivered, (FIRST.len() + SECOND.len()) as u64);
            assert!(outcome.latencies.clone().percentile(100.0) > 0.0);
        }
    }

    #[test]
    fn a_monitor_that_missed_a_row_fails_the_run() {
        let error = phase([FIRST, ""], None).unwrap_err().to_string();
        assert!(error.contains("1 of 1 monitors have not seen all"), "{error}");
    }

    #[test]
    fn a_monitor_that_saw_another_row_fails_the_run() {
        let error = phase([FIRST, FIRST], None).unwrap_err().to_string();
        assert!(error.contains("or other rows"), "{error}");
    }
}
