//! `weir bench herd`: hundreds of clients ask for the whole database at once, as after a restart.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Error;
use crate::args::Args;
use crate::client::{Stream, Target};
use crate::error::fail;
use crate::large::{Database, Dump, dump_request};
use crate::make_db;
use crate::procfs;
use crate::progress::Progress;
use crate::pulse::{self, Pulse};
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;

const CLIENTS: usize = 500;
const MEGABYTES: f64 = 24.0;
const READ_SIZE: usize = 1 << 20;
const EVENTS: usize = 256;
/// A run in which nothing arrives for so long has failed.
const STALLED: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// What an initial row begins with.
const ROW: &[u8] = br#":{"initial""#;

/// Runs the scenario `herd`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let clients = args.value("--clients")?.unwrap_or(CLIENTS).max(1);
    let megabytes: f64 = args.value("--megabytes")?.unwrap_or(MEGABYTES);
    let schema = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("herd")?;
    let about = About {
        scenario: "herd".into(),
        title: format!("herd: {clients} clients ask for {megabytes} MB each at once"),
        standard: clients == CLIENTS && megabytes == MEGABYTES,
    };
    let database = Database::make(bench, megabytes, &schema, 1)?;
    let mut one = Dump::default();
    bench.rounds(about, Floors::Bulk, &mut |peer| {
        let running = bench.start(peer, Source::File(&database.path))?;
        if peer.is_floor() {
            one.configure_floor(&running.target)?;
        }
        let figures = measure(&database, clients, bench, &running, &mut one);
        figures.map_err(|e| running.explain(&peer.name, &e))
    })
}

fn measure(
    database: &Database,
    clients: usize,
    bench: &Bench,
    running: &Running,
    one: &mut Dump,
) -> Result<Figures, Error> {
    const SECTION: &str = "herd";
    pulse::prepare(&running.target)?;
    *one = Dump::take(&running.target)?;
    database.check(one)?;
    running.reset_peak();
    let me = std::process::id();
    let before = (running.cpu_nanos()?, procfs::cpu_nanos(me)?);
    bench.progress.phase(SECTION, clients);
    let pulse = Pulse::start(&running.target)?;
    let start = Instant::now();
    let done = Herd::ask(&running.target, clients, one)
        .and_then(|mut herd| herd.drain(start, &bench.progress));
    let seconds = start.elapsed().as_secs_f64();
    let commits = pulse.stop()?;
    let done = done?;
    bench.progress.note(&format!("  {SECTION}: {seconds:.1} s"));
    let mut figures = Figures::default();
    let mut push = |name, digits, value: f64| figures.push(SECTION, name, digits, value);
    push("s", 2, seconds);
    push("delivered MB/s", 0, (one.bytes * clients) as f64 / 1e6 / seconds);
    push("half of the clients done after s", 2, done.percentile(50.0) / 1e6);
    if let Some((after, before)) = running.cpu_nanos()?.zip(before.0) {
        push("server CPU s", 2, (after - before) as f64 / 1e9);
    }
    push("driver CPU s", 2, (procfs::cpu_nanos(me)? - before.1) as f64 / 1e9);
    pulse::figures(&commits, SECTION, &mut figures);
    running.finish("memory and disk", &mut figures)?;
    Ok(figures)
}

/// All clients, each in the middle of its reply.
struct Herd {
    set: OwnedFd,
    clients: Vec<Member>,
    /// Bytes and rows of a reply.
    bytes: usize,
    rows: usize,
}

struct Member {
    stream: Stream,
    bytes: usize,
    rows: usize,
    tail: Vec<u8>,
}

impl Herd {
    /// Connects everybody, then has everybody ask.
    fn ask(target: &Target, clients: usize, one: &Dump) -> Result<Self, Error> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut members = Vec::with_capacity(clients);
        for token in 0..clients {
            let stream = target.connect()?;
            epoll::add(&set, &stream, EventData::new_u64(token as u64), EventFlags::IN)?;
            members.push(Member { stream, bytes: 0, rows: 0, tail: Vec::new() });
        }
        let request = dump_request();
        for member in &mut members {
            member.stream.write_all(&request)?;
            member.stream.set_nonblocking()?;
        }
        Ok(Self { set, clients: members, bytes: one.bytes, rows: one.rows })
    }

    /// Reads until everybody has a reply of the right length with all rows.
    fn drain(&mut self, start: Instant, progress: &Progress) -> Result<Latencies, Error> {
        let mut done = Latencies::default();
        let mut buffer = vec![0; ROW.len() + READ_SIZE];
        let mut events = Vec::with_capacity(EVENTS);
        while done.count() < self.clients.len() as u64 {
            events.clear();
            epoll::wait(&self.set, spare_capacity(&mut events), Some(&STALLED))?;
            if events.is_empty() {
                fail!("nothing arrived for {} s", STALLED.tv_sec);
            }
            for event in &events {
                let member = &mut self.clients[event.data.u64() as usize];
                if member.read(&mut buffer, self.bytes)? {
                    if member.rows != self.rows {
                        fail!("a client received {} rows of {}", member.rows, self.rows);
                    }
                    // What comes after the reply, updates of the commits, does not matter.
                    epoll::delete(&self.set, &member.stream)?;
                    done.push(start.elapsed());
                    progress.at(done.count() as usize);
                }
            }
        }
        Ok(done)
    }
}

impl Member {
    /// Reads once, and what the socket no longer shows; true when the reply's last byte has come.
    fn read(&mut self, buffer: &mut [u8], whole: usize) -> Result<bool, Error> {
        loop {
            let is_whole = self.read_once(buffer, whole)?;
            if is_whole || !self.stream.has_plain() {
                return Ok(is_whole);
            }
        }
    }

    fn read_once(&mut self, buffer: &mut [u8], whole: usize) -> Result<bool, Error> {
        let start = self.tail.len();
        buffer[..start].copy_from_slice(&self.tail);
        let most = (whole - self.bytes).min(READ_SIZE);
        let n = match self.stream.read(&mut buffer[start..start + most]) {
            Ok(0) => fail!("the server closed a connection in the middle of a reply"),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let bytes = &buffer[..start + n];
        self.bytes += n;
        self.rows += memchr::memmem::find_iter(bytes, ROW).count();
        if self.bytes < whole {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(ROW.len() - 1)..]);
            return Ok(false);
        }
        if bytes.last() != Some(&b'}') {
            fail!("a reply is not as long as that of a lone client");
        }
        Ok(true)
    }
}
