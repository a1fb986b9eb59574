//! The one loop: readiness becomes events, effects become system calls.
//!
//! A round:
//! 1. Wait until something is ready, or until the core's or the shell's next deadline.
//! 2. Take from every ready client at most one message, and what else happened, as events.
//! 3. Hand the events to the core and end the round.
//! 4. Execute the effects in their order until there are none. An append is answered at once, and
//!    what was queued for clients before it leaves before it.
//!
//! Updates to other sessions wait until a round finds nothing to do (DESIGN, "Flush pacing").

mod incoming;
mod token;

mod files;

mod outgoing;
mod trace;

mod replay;

pub use incoming::links::LINK_MESSAGE_BYTES_MAX;
pub use incoming::sessions::UNPARSED_BYTES_MAX;
pub use incoming::{AdminRequest, AdminSocket};
pub(crate) use replay::{Replay, Scene};

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use weir_net::Listener;
use weir_net::error::strerror;
use weir_server::effect::{self, Effect};
use weir_server::event::{CommandId, Event, HostStatus, LinkId, Now, SessionId};
use weir_server::load::convert_rows;
use weir_server::{Config, Server, StartStatus};

use crate::clock::Clock;
use crate::coverage::{Counter, Coverage};
use crate::limits::input_bytes_max;
use crate::memory::MemoryWatch;
use crate::poller::{Interest, Poller, Ready};
use crate::recording::{End, Item, Recorder, Start, digest};
use crate::signals::Signals;
use crate::stall::{self, Stalls};
use crate::unixctl::Commands;
use crate::vlog::{Level, Vlog};
use files::databases::Databases;
use files::jobs::{Done, Jobs};
use incoming::admin::Admin;
use incoming::dialling::Connections;
use incoming::handshakes::{Origin, Shaken};
use incoming::links::Links;
use incoming::listeners::Listeners;
use incoming::sessions::Sessions;
use token::Token;
use trace::Trace;
use weir_server::event::RemoteId;

/// How long clients may take, all together, to read what is queued when the server exits.
const EXIT_FLUSH_US: u64 = 1_000_000;

/// A command of nobody, for the log; those of admins count from 1.
const MEMORY_REPORT: CommandId = CommandId(0);

/// Why the loop paused.
pub(crate) enum Turn {
    /// Every database is open and every listener has been tried; go on.
    Ready,
    /// The server cannot start; these lines say why.
    Failed(Vec<String>),
    /// The command `exit`.
    Exit,
    /// A fatal signal.
    Signal(i32),
    /// The command of `--run` has ended.
    Command(io::Result<ExitStatus>),
}

/// The loop and everything it owns.
pub(crate) struct Driver {
    server: Server,
    poller: Poller,
    signals: Signals,
    clock: Clock,
    sessions: Sessions,
    listeners: Listeners,
    links: Links,
    /// Where a configuration is kept for the next child of the monitor.
    saved: Option<File>,
    connections: Connections,
    databases: Databases,
    admin: Admin,
    jobs: Jobs,
    coverage: Coverage,
    stalls: Stalls,
    memory: MemoryWatch,
    log: Vlog,
    recorder: Option<Arc<Recorder>>,
    trace: Trace,
    /// Gives freed memory back to the system.
    trim_memory: fn(),
    /// Unix connections so far, for their names.
    unix_serial: u64,
    /// The start is over.
    started: bool,
    command: Option<io::Result<ExitStatus>>,
    ready: Vec<Ready>,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Driver {
    /// A driver for a server of that configuration.
    pub(crate) fn new(
        config: Config,
        signals: Signals,
        mut commands: Commands,
        rundir: std::path::PathBuf,
        recorder: Option<Arc<Recorder>>,
        trim_memory: fn(),
        log: Vlog,
    ) -> io::Result<Self> {
        let (poller, jobs, clock) = (Poller::new()?, Jobs::new()?, Clock::start());
        poller.add(&signals, Token::Signal.encode(), Interest::Read)?;
        poller.add(&jobs, Token::Jobs.encode(), Interest::Read)?;
        let now = now(&clock);
        if let Some(recorder) = &recorder {
            log.set_clock_ms(now.monotonic_us / 1000);
            recorder.item(&Item::Start(Start::of(now, &config)));
            commands.record(Arc::clone(recorder));
        }
        // What these say is about sockets, and no replay says it.
        let socket_log = log.recorded(recorder.clone());
        Ok(Self {
            server: Server::new(now, config),
            poller,
            signals,
            clock,
            sessions: Sessions::new(input_bytes_max()),
            listeners: Listeners::new(rundir.clone(), socket_log.clone()),
            links: Links::new(rundir.clone(), socket_log.clone()),
            saved: None,
            connections: Connections::new(rundir, socket_log.clone()),
            databases: Databases::default(),
            admin: Admin::new(commands, socket_log),
            jobs,
            coverage: Coverage::default(),
            stalls: Stalls::default(),
            memory: MemoryWatch::default(),
            log,
            recorder,
            trace: Trace::default(),
            trim_memory,
            unix_serial: 0,
            started: false,
            command: None,
            ready: Vec::new(),
            events: Vec::new(),
            effects: Vec::new(),
        })
    }

    /// Goes round until something happens that is not the loop's to decide.
    pub(crate) fn run(&mut self) -> io::Result<Turn> {
        self.execute_effects();
        let mut now_us = self.clock.monotonic_us();
        loop {
            if let Some(turn) = self.turn() {
                match &turn {
                    Turn::Ready => self.record(&Item::Ready),
                    Turn::Failed(_) => self.record(&Item::End(End::Failed)),
                    // More happens until then.
                    Turn::Exit | Turn::Signal(_) | Turn::Command(_) => {}
                }
                return Ok(turn);
            }
            let timeout = self.timeout(now_us);
            self.poller.wait(timeout, &mut self.ready)?;
            if let Some(signal) = self.take_signal() {
                self.record(&Item::End(End::Signal(signal)));
                return Ok(Turn::Signal(signal));
            }
            let now = now(&self.clock);
            self.round(now);
            now_us = self.clock.monotonic_us();
            self.stalls.note(now.monotonic_us, now_us);
        }
    }

    /// What all messages on their way and at work may take together from now on.
    pub(crate) fn limit_input(&mut self, bytes_max: usize) {
        self.sessions.limit_input(bytes_max);
    }

    /// Opens the admin socket.
    pub(crate) fn listen_for_admins(&mut self, listener: Listener) -> io::Result<()> {
        self.admin.listen(&self.poller, listener)
    }

    /// Where the core's configuration is kept from now on.
    pub(crate) fn save_in(&mut self, file: File) {
        self.saved = Some(file);
    }

    /// Starts the command of `--run`; its end is a [`Turn`].
    pub(crate) fn start_command(&self, command: &str) {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.arg("-c").arg(command);
        let child = shell.spawn();
        let failed = |error| Done::Command(Err(io::Error::other(error)));
        let wait = move || Done::Command(child.and_then(|mut child| child.wait()));
        self.jobs.spawn("run", wait, failed);
    }

    /// Sends what is pending and queued, as far as clients take it in a bounded time.
    pub(crate) fn finish(&mut self, end: End) -> io::Result<()> {
        let now = now(&self.clock);
        self.flush_updates(now);
        self.end_round(now);
        self.execute_effects();
        self.server.say_farewell();
        self.execute_effects();
        self.record(&Item::End(end));
        let limit = now.monotonic_us + EXIT_FLUSH_US;
        while self.sessions.has_output() && self.clock.monotonic_us() < limit {
            self.poller.wait(Some(Duration::from_millis(10)), &mut self.ready)?;
            for ready in mem::take(&mut self.ready) {
                if let Token::Session(id) = Token::decode(ready.token) {
                    let (id, hung_up) = (SessionId(id), ready.hung_up);
                    self.sessions.ready(&self.poller, id, hung_up, &mut self.coverage);
                }
            }
        }
        Ok(())
    }

    /// Leaves the heap to the end of the process, which takes no time; the rest is closed.
    pub(crate) fn abandon(self) {
        let Self { server, sessions, effects, events, .. } = self;
        mem::forget((server, sessions, effects, events));
    }

    fn turn(&mut self) -> Option<Turn> {
        if let Some(result) = self.command.take() {
            return Some(Turn::Command(result));
        }
        if self.admin.is_exiting() {
            return Some(Turn::Exit);
        }
        if self.started {
            return None;
        }
        match self.server.start_status() {
            StartStatus::Starting => None,
            StartStatus::Ready => {
                self.started = true;
                Some(Turn::Ready)
            }
            StartStatus::Failed(lines) => Some(Turn::Failed(lines)),
        }
    }

    fn take_signal(&self) -> Option<i32> {
        let signal = Token::Signal.encode();
        let came = self.ready.iter().any(|ready| ready.token == signal);
        if came { self.signals.take() } else { None }
    }

    /// `None` waits for ever.
    fn timeout(&self, now_us: u64) -> Option<Duration> {
        if self.sessions.has_work() || self.server.has_pending_updates() {
            return Some(Duration::ZERO);
        }
        let core = self.server.next_wakeup_us();
        let own =
            [self.sessions.deadline_us(), self.listeners.deadline_us(), self.memory.deadline_us()];
        let next = own.into_iter().chain([core]).flatten().min()?;
        Some(Duration::from_micros(next.saturating_sub(now_us)))
    }

    fn round(&mut self, now: Now) {
        self.coverage.tick(now.monotonic_us);
        self.coverage.add(Counter::Rounds, 1);
        if self.ready.is_empty() && !self.sessions.has_work() && self.server.has_pending_updates() {
            self.coverage.add(Counter::UpdateFlushes, 1);
            self.flush_updates(now);
        }
        if self.sessions.has_big() {
            self.sessions.note_at_work(self.server.message_bytes());
        }
        self.sessions.begin_round(now.monotonic_us, &mut self.coverage);
        self.sessions.take_turns(&mut self.ready);
        let mut all_ready = mem::take(&mut self.ready);
        for ready in all_ready.drain(..) {
            self.take_ready(ready, now);
        }
        self.ready = all_ready;
        self.sessions.expire(&self.poller, now.monotonic_us);
        if self.listeners.deadline_us().is_some_and(|deadline| deadline <= now.monotonic_us) {
            self.listeners.wake(&self.poller, now.monotonic_us, &mut self.events);
        }
        self.report_memory(now);
        self.deliver(now);
        self.end_round(now);
        self.execute_effects();
        if self.sessions.has_paused() {
            self.sessions.note_at_work(self.server.message_bytes());
            self.sessions.resume_paused(&self.poller);
        }
    }

    /// Memory that has grown is told in the log, and what the server holds.
    fn report_memory(&mut self, now: Now) {
        let grown = self.memory.check(now.monotonic_us, stall::peak_kib);
        // A replay has another memory.
        if let Some(text) = grown.filter(|_| self.recorder.is_none()) {
            self.log.log("memory", Level::Info, &text);
            let (id, name, args) = (MEMORY_REPORT, "memory/show".to_owned(), vec![]);
            self.events.push(Event::Command { id, name, args });
        }
    }

    fn take_ready(&mut self, ready: Ready, now: Now) {
        match Token::decode(ready.token) {
            Token::Session(id) => {
                let (id, hung_up) = (SessionId(id), ready.hung_up);
                self.sessions.ready(&self.poller, id, hung_up, &mut self.coverage);
            }
            Token::Listener(remote) => self.accept(RemoteId(remote), now),
            Token::Admin(number) => {
                self.admin.ready(&self.poller, number, &self.coverage, &mut self.events);
            }
            Token::Link(id) => self.links.ready(&self.poller, LinkId(id), &mut self.events),
            Token::AdminListener => self.admin.accept(&self.poller, &mut self.unix_serial),
            Token::Jobs => self.take_jobs(),
            Token::Signal => {}
        }
    }

    fn accept(&mut self, remote: RemoteId, now: Now) {
        let Self { listeners, connections, jobs, sessions, poller, coverage, unix_serial, .. } =
            self;
        let is_tls = listeners.is_tls(remote);
        if is_tls && !connections.has_room() {
            return listeners.rest(poller, remote, now.monotonic_us);
        }
        listeners.accept(poller, remote, now.monotonic_us, |accepted| {
            coverage.add(Counter::Accepts, 1);
            let name = accepted.peer.name(*unix_serial);
            *unix_serial += u64::from(accepted.peer == weir_net::Peer::Unix);
            if is_tls {
                connections.accept_tls(jobs, accepted, remote, name);
            } else {
                sessions.accept(poller, accepted.stream, remote, name);
            }
        });
    }

    fn take_jobs(&mut self) {
        for done in self.jobs.take() {
            match done {
                Done::Loaded(db, result) => self.databases.loaded(db, result, &mut self.events),
                Done::Compacted(db, result) => {
                    self.databases.compacted(db, result, &mut self.events);
                }
                Done::Converted(db, result) => {
                    self.databases.converted(db, result, &mut self.events);
                }
                Done::Work(id, finished) => {
                    // The tables may have gone with it; as a panic of the loop itself, this ends
                    // the process.
                    let finished = finished.expect("a piece of work panicked");
                    self.events.push(Event::WorkDone { id, finished });
                }
                Done::Command(result) => self.command = Some(result),
                Done::Begun(begun) => {
                    self.connections.looked_up(&self.jobs, *begun, &mut self.events);
                }
                Done::Connected(finished) => self.connected(*finished),
                Done::LinkBegun(link, stream) => {
                    self.links.looked_up(&self.poller, link, stream, &mut self.events);
                }
                Done::Nothing => {}
            }
        }
    }

    /// A handshake is over, or an outgoing connection is made, or not.
    fn connected(&mut self, finished: Shaken) {
        let (remote, origin) = (finished.remote, finished.origin);
        let Some((stream, name)) = self.connections.finish(finished, &mut self.events) else {
            return;
        };
        if origin == Origin::Out || self.listeners.has(remote) {
            self.sessions.accept(&self.poller, stream, remote, name);
        }
    }

    /// Hands the core what happened.
    fn deliver(&mut self, now: Now) {
        self.sessions.take_events(&mut self.events);
        self.connections.say("ssl_read", self.sessions.take_tls_log());
        let mut events = mem::take(&mut self.events);
        for event in events.drain(..) {
            if let Event::Command { name, .. } = &event {
                self.inform(now, name);
            }
            self.handle(now, event);
        }
        self.events = events;
    }

    /// Tells the core what it will need to know for an admin command.
    fn inform(&mut self, now: Now, command: &str) {
        if command == "memory/show" {
            let bytes = self.sessions.backlog();
            self.handle(now, Event::Backlog { bytes });
        } else if command == "weir/status" {
            let status = HostStatus {
                resident_bytes: stall::resident_bytes(),
                rounds: self.coverage.total(Counter::Rounds),
                stall_us: self.stalls.recent_us(now.monotonic_us),
                stall_ever_us: self.stalls.ever_us(),
                queued: self.sessions.backlogs(),
            };
            self.handle(now, Event::HostStatus(Box::new(status)));
        }
    }

    fn handle(&mut self, now: Now, event: Event) {
        if let Some(recorder) = &self.recorder {
            self.log.set_clock_ms(now.monotonic_us / 1000);
            recorder.event(now, &event);
        }
        if self.log.traces_messages() {
            self.trace.log_event(&self.server, &self.log, &event);
        }
        self.trace.note(&event);
        self.server.handle(now, event);
    }

    fn end_round(&mut self, now: Now) {
        if self.recorder.is_some() {
            self.log.set_clock_ms(now.monotonic_us / 1000);
            self.record(&Item::EndRound(now));
        }
        self.server.end_round(now);
    }

    fn flush_updates(&mut self, now: Now) {
        self.record(&Item::Flush(now));
        self.server.flush_updates(now);
    }

    fn record(&self, item: &Item) {
        if let Some(recorder) = &self.recorder {
            recorder.item(item);
        }
    }

    /// Executes effects until there are none; what they cause is handled in between.
    fn execute_effects(&mut self) {
        let mut effects = mem::take(&mut self.effects);
        loop {
            self.server.poll_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                self.execute(effect);
            }
            self.sessions.flush_dirty(&self.poller, &mut self.coverage);
            self.sessions.take_events(&mut self.events);
            if !self.events.is_empty() {
                let now = now(&self.clock);
                self.deliver(now);
                self.end_round(now);
            }
        }
        self.effects = effects;
    }

    fn execute(&mut self, effect: Effect) {
        let Self { poller, sessions, databases, events, coverage, .. } = self;
        match effect {
            Effect::Append { db, bytes, sync } => {
                sessions.flush_dirty(poller, coverage);
                if let Some(recorder) = &self.recorder {
                    let (length, digest) = (bytes.len() as u64, digest(&bytes));
                    recorder.item(&Item::Append { db, length, digest });
                }
                databases.append(db, &bytes, sync, coverage, &self.log, events);
                let now = now(&self.clock);
                self.deliver(now);
                self.end_round(now);
            }
            Effect::Send { to, head, body } => {
                if self.log.traces_messages() {
                    self.trace.log_sent(&self.server, &self.log, &to, &[&head, &body]);
                }
                to.into_iter().for_each(|id| sessions.send(id, &head, &body));
            }
            Effect::TellDrained { to } => to.into_iter().for_each(|id| sessions.tell_drained(id)),
            Effect::StopReading { session } => sessions.stop_reading(poller, session),
            Effect::GoOnReading { session } => sessions.go_on_reading(poller, session),
            Effect::Work { id, work } => self.jobs.work(id, work),
            Effect::Disconnect { session } => {
                let now_us = self.clock.monotonic_us();
                self.trace.forget(session);
                sessions.disconnect(poller, session, now_us, coverage);
            }
            Effect::Listen { remote, target, options } => {
                self.listeners.listen(poller, remote, target, options, events);
            }
            Effect::Connect { link, target, dscp } => {
                self.trace.connect(link, &target);
                let Self { links, connections, jobs, .. } = self;
                links.connect(poller, link, &target, dscp, (connections.tls(), jobs), events);
            }
            Effect::SendTo { link, bytes } => {
                if self.log.traces_messages() {
                    self.trace.log_sent_to(&self.log, link, &bytes);
                }
                self.links.send(poller, link, bytes, events);
            }
            Effect::CloseLink { link } => {
                self.trace.close(link);
                self.links.close(poller, link);
            }
            Effect::ReadConfiguration { path } => {
                let result = std::fs::read(path).map_err(|error| strerror(&error));
                events.push(Event::ConfigurationRead { result });
            }
            Effect::SaveConfiguration { bytes } => save(self.saved.as_ref(), &bytes, &self.log),
            Effect::Unlisten { remote } => {
                self.listeners.unlisten(poller, remote);
                self.connections.forget(remote);
            }
            Effect::ConnectRemote { remote, target, options, patience_ms } => {
                let Self { connections, jobs, .. } = self;
                connections.connect(jobs, remote, target, &options, patience_ms, events);
            }
            Effect::Tls(settings) => self.connections.configure_tls(*settings),
            Effect::Open { db, path, seed } => {
                databases.open(db, path, seed, &self.jobs, &self.log, events);
            }
            Effect::Close { db } => databases.close(db),
            Effect::Compact { db, snapshot, comment, date_ms } => {
                databases.compact(db, snapshot, comment, date_ms, &self.jobs, events);
            }
            Effect::FinishCompaction { db, tail, sync } => {
                events.push(databases.finish_compaction(db, &tail, sync, &self.jobs, &self.log));
            }
            Effect::Convert { db, snapshot, schema, comment, date_ms, seed } => {
                let convert = move || {
                    let converted = convert_rows(&snapshot, schema, seed)?;
                    Ok((converted.database.snapshot(), converted))
                };
                databases.convert(db, convert, comment, date_ms, &self.jobs, events);
            }
            Effect::TrimMemory => (self.trim_memory)(),
            Effect::CommandReply { id, reply } if id == MEMORY_REPORT => {
                if let Some(text) = reply.ok().filter(|text| !text.is_empty()) {
                    self.log.log("memory", Level::Info, text.trim_end());
                }
            }
            Effect::CommandReply { id, reply } => {
                self.admin.reply(poller, id, reply, coverage, events);
            }
            Effect::Log { module, level, text, limit } => {
                log_line(&self.log, module, level, &text, limit);
            }
        }
    }
}

fn log_line(
    log: &Vlog,
    module: &str,
    level: effect::Level,
    text: &str,
    limit: Option<&'static str>,
) {
    match limit {
        Some(place) => log.log_limited(place, module, severity(level), text),
        None => log.log(module, severity(level), text),
    }
}

/// What a new child finds is either whole or, after a crash in between, no configuration at all.
fn save(file: Option<&File>, bytes: &[u8], log: &Vlog) {
    let Some(file) = file else { return };
    let written = file.set_len(0).and_then(|()| file.write_all_at(bytes, 0));
    if let Err(error) = written {
        let text = format!("failed to write temporary file ({})", strerror(&error));
        log.log("ovsdb_server", Level::Warn, &text);
    }
}

fn now(clock: &Clock) -> Now {
    Now { monotonic_us: clock.monotonic_us(), wall_ms: clock.wall_ms() }
}

fn severity(level: effect::Level) -> Level {
    match level {
        effect::Level::Emergency => Level::Emer,
        effect::Level::Error => Level::Err,
        effect::Level::Warning => Level::Warn,
        effect::Level::Info => Level::Info,
        effect::Level::Debug => Level::Dbg,
    }
}
