//! The one loop: readiness becomes events, effects become system calls.
//!
//! A round:
//! 1. Wait until something is ready, or until the core's or the shell's next deadline.
//! 2. Take from every ready client at most one message, and what else happened, as events.
//! 3. Hand the events to the core and end the round.
//! 4. Execute the effects in their order until there are none. An append is answered at once, and
//!    what was queued for clients before it leaves before it. What that leads to is told to the core
//!    in the same round: nobody has another message handled, and who has used up a share waits for
//!    the next round, so that the loop comes back to step 1.
//!
//! Updates to other sessions wait until a round finds nothing to do (`docs/decisions/003`).
//!
//! The files, as a transaction meets them: `events` (what is ready becomes events), `incoming`
//! (connections, messages), `execution` (the core, and what each effect means), `files` (appends,
//! helpers), `outside` and `outgoing` (answers). `replay` runs an `execution` from a recording.

mod events;
mod incoming;
mod token;

mod execution;
mod trace;

mod files;
mod lane;
mod threads;

mod outgoing;
mod outside;

mod replay;

#[cfg(test)]
mod tests;

pub use incoming::admission::UNPARSED_BYTES_MAX;
pub use incoming::links::LINK_MESSAGE_BYTES_MAX;
pub use incoming::{AdminRequest, AdminSocket};
pub(crate) use replay::{Replay, Scene};

use std::fs::File;
use std::io;
use std::mem;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use weir_net::Listener;
use weir_server::effect::Effect;
use weir_server::event::{Event, Now, SessionId};
use weir_server::{Config, StartStatus};

use crate::clock::Clock;
use crate::coverage::Counter;
use crate::memory::{Idleness, MemoryWatch};
use crate::poller::{Interest, Ready};
use crate::recording::{End, Item, Recorder, Start};
use crate::signals::Signals;
use crate::stall::{RoundTime, Stalls, Step};
use crate::unixctl::Commands;
use crate::usage::Usage;
use crate::vlog::{Level, Vlog};
use execution::Execution;
use files::jobs::Done;
use outside::Outside;
use token::Token;

/// How long clients may take, all together, to read what is queued when the server exits.
const EXIT_FLUSH_US: u64 = 1_000_000;

/// Who has not gone round for so much longer than there was nothing to do has stood still (SIGSTOP, or a virtual machine that
/// moves): clients and relays ask others then.
const STOOD_STILL: Duration = Duration::from_secs(4);

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
    execution: Execution,
    outside: Outside,
    signals: Signals,
    stalls: Stalls,
    time: RoundTime,
    memory: MemoryWatch,
    idleness: Idleness,
    /// The start is over.
    is_started: bool,
    /// Somebody wants it to end, and the core knows.
    is_stopping: bool,
    /// How the command of `--run` has ended.
    command: Option<io::Result<ExitStatus>>,
    ready: Vec<Ready>,
    effects: Vec<Effect>,
    /// For lines that no replay says.
    log: Vlog,
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
        let clock = Clock::start();
        let now = Now { monotonic_us: clock.monotonic_us(), wall_ms: clock.wall_ms() };
        if let Some(recorder) = &recorder {
            log.set_clock_ms(now.monotonic_us / 1000);
            recorder.item(&Item::Start(Start::of(now, &config)));
            commands.record(Arc::clone(recorder));
        }
        let socket_log = log.recorded(recorder.clone());
        let own_log = socket_log.clone();
        let outside = Outside::new(clock, commands, rundir, trim_memory, log.clone(), socket_log)?;
        let execution = Execution::new(now, config, recorder, log, false)?;
        outside.poller.add(&signals, Token::Signal.encode(), Interest::Read)?;
        outside.poller.add(&execution.jobs, Token::Jobs.encode(), Interest::Read)?;
        Ok(Self {
            execution,
            outside,
            signals,
            stalls: Stalls::default(),
            time: RoundTime::default(),
            memory: MemoryWatch::default(),
            idleness: Idleness::default(),
            is_started: false,
            is_stopping: false,
            command: None,
            ready: Vec::new(),
            effects: Vec::new(),
            log: own_log,
        })
    }

    /// Goes round until something happens that is not the loop's to decide.
    pub(crate) fn run(&mut self) -> io::Result<Turn> {
        self.execute_effects();
        let mut now_us = self.outside.monotonic_us();
        let mut begun_us = now_us;
        loop {
            if let Some(turn) = self.turn() {
                match &turn {
                    Turn::Ready => self.execution.record(&Item::Ready),
                    Turn::Failed(_) => self.execution.record(&Item::End(End::Failed)),
                    // More happens until then.
                    Turn::Exit | Turn::Signal(_) | Turn::Command(_) => {}
                }
                return Ok(turn);
            }
            let timeout = self.timeout(now_us);
            self.outside.poller.wait(timeout, &mut self.ready)?;
            if let Some(signal) = self.take_signal() {
                self.execution.record(&Item::End(End::Signal(signal)));
                return Ok(Turn::Signal(signal));
            }
            let now = self.outside.now();
            let since_us = now.monotonic_us.saturating_sub(begun_us);
            let has_stood_still = timeout
                .is_some_and(|timeout| Duration::from_micros(since_us) > timeout + STOOD_STILL);
            self.outside.sessions.note_late(has_stood_still, &self.outside.poller);
            begun_us = now.monotonic_us;
            self.round(now);
            now_us = self.outside.monotonic_us();
            self.note_time(now, now_us);
        }
    }

    /// A round is over: one that took long is told to the log.
    fn note_time(&mut self, begun: Now, done_us: u64) {
        self.time.mark(Step::Output, done_us);
        let took_us = self.stalls.note(begun.monotonic_us, done_us);
        if let Some(lines) = self.time.report(took_us, Usage::of_this_thread) {
            self.log.log_lines_limited("poll_interval", "timeval", Level::Warn, &lines);
        }
    }

    /// What all messages on their way and at work may take together from now on.
    pub(crate) fn limit_input(&mut self, bytes_max: usize) {
        self.outside.sessions.admission().limit_input(bytes_max);
    }

    /// Opens the admin socket.
    pub(crate) fn listen_for_admins(&mut self, listener: Listener) -> io::Result<()> {
        self.outside.admin.listen(&self.outside.poller, listener)
    }

    /// Where the core's configuration is kept from now on.
    pub(crate) fn save_in(&mut self, file: File) {
        self.outside.save_in(file);
    }

    /// Starts the command of `--run`; its end is a [`Turn`].
    pub(crate) fn start_command(&self, command: &str) {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.arg("-c").arg(command);
        let child = shell.spawn();
        let failed = |error| Done::Command(Err(io::Error::other(error)));
        let wait = move || Done::Command(child.and_then(|mut child| child.wait()));
        self.execution.jobs.spawn("run", wait, failed);
    }

    /// Sends what is pending and queued, as far as clients take it in a bounded time.
    pub(crate) fn finish(&mut self, end: End) -> io::Result<()> {
        let now = self.outside.now();
        self.execution.flush_updates(now);
        self.execution.end_round(now);
        self.execute_effects();
        self.execution.server.say_farewell();
        self.execute_effects();
        self.execution.record(&Item::End(end));
        let Self { outside, execution, ready, .. } = self;
        let limit = now.monotonic_us + EXIT_FLUSH_US;
        while outside.sessions.has_output() && outside.monotonic_us() < limit {
            outside.poller.wait(Some(Duration::from_millis(10)), ready)?;
            for ready in ready.drain(..) {
                if let Token::Session(id) = Token::decode(ready.token) {
                    let (id, coverage) = (SessionId(id), &mut execution.coverage);
                    outside.sessions.on_ready(&outside.poller, id, ready, coverage);
                }
            }
        }
        Ok(())
    }

    /// Leaves the heap to the end of the process, which takes no time; the rest is closed.
    pub(crate) fn abandon(self) {
        let Self { execution, outside, effects, .. } = self;
        execution.abandon();
        mem::forget((outside.sessions, effects));
    }

    fn turn(&mut self) -> Option<Turn> {
        if let Some(why) = self.execution.crash {
            return Some(Turn::Failed(vec![why.to_owned()]));
        }
        if let Some(result) = self.command.take() {
            return Some(Turn::Command(result));
        }
        if self.outside.admin.is_exiting() {
            if !mem::replace(&mut self.is_stopping, true) {
                self.execution.events.push(Event::Stopping);
                self.deliver_at_once(Step::Output);
                self.execute_effects();
            }
            return self.execution.server.may_stop().then_some(Turn::Exit);
        }
        if self.is_started {
            return None;
        }
        match self.execution.server.start_status() {
            StartStatus::Starting => None,
            StartStatus::Ready => {
                self.is_started = true;
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

    /// How long there is nothing to do unless something happens; `None` waits for ever.
    fn timeout(&self, now_us: u64) -> Option<Duration> {
        let Self { execution, outside, .. } = self;
        if outside.sessions.has_work() || execution.server.has_pending_updates() {
            return Some(Duration::ZERO);
        }
        let core = execution.server.next_wakeup_us();
        let sessions = outside.sessions.deadline_us();
        let listeners = [outside.listeners.deadline_us(), outside.admin.deadline_us()];
        let memory = [self.memory.deadline_us(), self.idleness.deadline_us()];
        let next = memory.into_iter().chain(listeners).chain([core, sessions]).flatten().min()?;
        Some(Duration::from_micros(next.saturating_sub(now_us)))
    }

    fn round(&mut self, now: Now) {
        self.time.begin(now.monotonic_us);
        if self.execution.coverage.is_due(now.monotonic_us) {
            self.execution.count_queries();
        }
        self.execution.coverage.tick(now.monotonic_us);
        self.execution.coverage.add(Counter::Rounds, 1);
        self.execution.begin_round();
        self.flush_updates_if_idle(now);
        self.take_ready(now);
        self.wake_listeners(now);
        self.report_memory(now);
        self.time.mark(Step::Input, self.outside.monotonic_us());
        self.trim_memory_if_idle(now);
        self.deliver(now);
        self.execution.end_round(now);
        self.time.mark(Step::Core, self.outside.monotonic_us());
        self.execute_effects();
        self.resume_paused();
    }

    /// Other sessions hear of changes when there is nothing more urgent to do.
    fn flush_updates_if_idle(&mut self, now: Now) {
        let has_work = !self.ready.is_empty() || self.outside.sessions.has_work();
        let server = &self.execution.server;
        let is_idle = || server.next_wakeup_us() != Some(0);
        if !has_work && server.has_pending_updates() && is_idle() {
            self.execution.coverage.add(Counter::UpdateFlushes, 1);
            self.execution.flush_updates(now);
            self.time.mark(Step::Core, self.outside.monotonic_us());
        }
    }

    /// Takes at most one message from every client, and what else is ready.
    fn take_ready(&mut self, now: Now) {
        let Self { execution, outside, .. } = self;
        let sessions = &mut outside.sessions;
        if sessions.admission().has_big() {
            sessions.admission().note_at_work(execution.server.message_bytes());
        }
        sessions.begin_round(now.monotonic_us, &mut execution.coverage);
        sessions.put_in_turn(&mut self.ready);
        let mut all_ready = mem::take(&mut self.ready);
        for ready in all_ready.drain(..) {
            self.on_ready(ready, now);
        }
        self.ready = all_ready;
        self.outside.sessions.expire(&self.outside.poller, now.monotonic_us);
    }

    /// Opens listeners again that are due.
    fn wake_listeners(&mut self, now: Now) {
        let Outside { listeners, admin, poller, .. } = &mut self.outside;
        admin.wake(poller, now.monotonic_us);
        if listeners.deadline_us().is_some_and(|deadline| deadline <= now.monotonic_us) {
            listeners.wake(poller, now.monotonic_us, &mut self.execution.events);
        }
    }

    /// Executes effects until there are none; what they cause is handled in between.
    fn execute_effects(&mut self) {
        let mut effects = mem::take(&mut self.effects);
        loop {
            self.execution.server.poll_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                let is_append = matches!(
                    effect,
                    Effect::Append { .. } | Effect::FinishCompaction { step: Some(_), .. }
                );
                // What hangs there is not to be taken for a client.
                let is_of_file = is_append || is_of_file(&effect);
                if is_of_file {
                    self.time.mark(Step::Output, self.outside.monotonic_us());
                }
                self.execution.execute(effect, Some(&mut self.outside));
                if is_append && self.execution.crash.is_none() {
                    // The core waits for what came of it.
                    self.deliver_at_once(Step::Files);
                } else if is_of_file {
                    self.time.mark(Step::Files, self.outside.monotonic_us());
                }
            }
            self.outside.flush_sessions(&mut self.execution.coverage);
            let Execution { coverage, events, .. } = &mut self.execution;
            self.outside.flush_links(coverage, events);
            self.outside.sessions.take_events(&mut self.execution.events);
            if !self.execution.events.is_empty() {
                self.deliver_at_once(Step::Output);
            }
        }
        self.effects = effects;
    }

    /// Tells the core what effects have caused, `after` the step that did.
    fn deliver_at_once(&mut self, after: Step) {
        let now = self.outside.now();
        self.time.mark(after, now.monotonic_us);
        self.deliver(now);
        self.execution.end_round(now);
        self.time.mark(Step::Core, self.outside.monotonic_us());
    }

    /// Reads again from clients that waited for room, if there is some now.
    fn resume_paused(&mut self) {
        let Self { execution, outside, .. } = self;
        if outside.sessions.admission().has_much() {
            let at_work = execution.server.message_bytes();
            outside.sessions.admission().note_at_work(at_work);
            outside.sessions.resume_paused(&outside.poller);
        }
    }
}

/// Whether the loop itself is at a file, or its directory, while it executes this.
fn is_of_file(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Open { .. }
            | Effect::Persist { .. }
            | Effect::Compact { .. }
            | Effect::FinishCompaction { .. }
            | Effect::DiscardCopy { .. }
            | Effect::BeginReceived { .. }
            | Effect::Close { .. }
    )
}
