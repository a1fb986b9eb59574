//! What a run and its replay do alike: the core hears events, and its effects are executed.
//!
//! [`Execution::execute`] is the one place that says what each effect means. Files, helpers and the
//! log are of every run; what is [`Outside`], a replay has not.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use weir_server::effect::{self, Effect, Framing};
use weir_server::event::{DbId, Event, Now};
use weir_server::work::{Asker, Work};
use weir_server::{Config, Server};

use crate::coverage::Coverage;
use crate::driver::files::copies::Source;
use crate::driver::files::databases::Databases;
use crate::driver::files::jobs::{Done, Jobs};
use crate::driver::files::received::Piece;
use crate::driver::outside::Outside;
use crate::driver::trace::Trace;
use crate::recording::{Item, Recorder, digest};
use crate::vlog::{Level, Vlog};

/// The core, its files and helpers, and the log.
pub(crate) struct Execution {
    pub(crate) server: Server,
    pub(crate) jobs: Jobs,
    pub(crate) coverage: Coverage,
    pub(crate) log: Vlog,
    /// What has happened and the core has not been told.
    pub(crate) events: Vec<Event>,
    databases: Databases,
    trace: Trace,
    recorder: Option<Arc<Recorder>>,
    /// The last words of a process that is to end here.
    pub(crate) crash: Option<&'static str>,
}

impl Execution {
    /// A core of that configuration; `recorder` writes down what it is told. A replay stops no
    /// work by itself.
    ///
    /// # Errors
    /// The system has no descriptor for helpers.
    pub(crate) fn new(
        now: Now,
        config: Config,
        recorder: Option<Arc<Recorder>>,
        log: Vlog,
        is_replay: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            server: Server::new(now, config),
            jobs: Jobs::new(!is_replay)?,
            coverage: Coverage::default(),
            log,
            events: Vec::new(),
            databases: Databases::default(),
            trace: Trace::default(),
            recorder,
            crash: None,
        })
    }

    /// Takes over what the core has counted.
    pub(crate) fn count_queries(&mut self) {
        self.coverage.set(self.server.query_counts());
    }

    /// Whether the run is written down.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Writes down something that is no event.
    pub(crate) fn record(&self, item: &Item) {
        if let Some(recorder) = &self.recorder {
            recorder.item(item);
        }
    }

    /// Tells the core of an event.
    pub(crate) fn handle(&mut self, now: Now, event: Event) {
        if let Some(recorder) = &self.recorder {
            self.log.set_clock_ms(now.monotonic_us / 1000);
            recorder.event(now, &event);
        }
        if self.log.traces_messages() {
            self.trace.log_event(&self.server, &self.log, &event);
        }
        self.trace.forget_ended(&event);
        self.server.handle(now, event);
    }

    /// Tells the core that a round begins.
    pub(crate) fn begin_round(&mut self) {
        self.record(&Item::BeginRound);
        self.server.begin_round();
    }

    /// Tells the core that all is told that has happened in a round so far.
    pub(crate) fn end_round(&mut self, now: Now) {
        if self.is_recorded() {
            self.log.set_clock_ms(now.monotonic_us / 1000);
            self.record(&Item::EndRound(now));
        }
        self.server.end_round(now);
    }

    /// Has the core compose the updates that wait for a quiet moment.
    pub(crate) fn flush_updates(&mut self, now: Now) {
        self.record(&Item::Flush(now));
        self.server.flush_updates(now);
    }

    /// What a helper has done becomes an event. Answers with how the command of `--run` ended, if
    /// that is what was done.
    pub(crate) fn take_done(&mut self, done: Done) -> Option<io::Result<ExitStatus>> {
        let Self { databases, jobs, coverage, events, log, .. } = self;
        match done {
            Done::Loaded(db, result) => databases.loaded(db, result, log, events),
            Done::Compacted(db, number, result) => {
                databases.compacted(db, number, result, log, events);
            }
            Done::Converted(db, number, result) => {
                databases.converted(db, number, result, jobs, log, events);
            }
            Done::Work(id, finished) => {
                // The tables may have gone with it; as a panic of the loop itself, this ends the
                // process.
                let finished = finished.expect("a piece of work panicked");
                events.push(Event::WorkDone { id, finished });
            }
            Done::Synced(db, file, result) => {
                databases.synced(db, file, &result, jobs, coverage, events);
            }
            Done::Read(db, id, result) => databases.has_read(db, id, result, events),
            Done::Received(db, number, upto, result) => {
                databases.has_received(db, number, (upto, result), events);
            }
            Done::ReceivedSynced(db, number, result) => {
                databases.received_synced(db, number, result, events);
            }
            Done::KeysKept(db, result) => databases.keys_kept(db, result, events),
            Done::Command(result) => return Some(result),
            Done::Trimmed | Done::Nothing => {}
        }
        None
    }

    /// Executes an effect, as far as there is something outside.
    #[allow(clippy::too_many_lines, reason = "a flat match")]
    pub(crate) fn execute(&mut self, effect: Effect, outside: Option<&mut Outside>) {
        if self.crash.is_some() {
            return;
        }
        let Self { databases, jobs, coverage, log, events, trace, server, .. } = self;
        match effect {
            // Files.
            Effect::Open { db, path, seed } => databases.open(db, path, seed, jobs, log, events),
            Effect::Append { db, bytes, sync } => {
                // What was queued before it leaves before it.
                if let Some(outside) = outside {
                    outside.flush_sessions(coverage);
                    outside.flush_links(coverage, events);
                }
                if let Some(recorder) = &self.recorder {
                    let (length, digest) = (bytes.len() as u64, digest(&bytes));
                    recorder.item(&Item::Append { db, length, digest });
                }
                databases.append(db, &bytes, sync, coverage, log, events);
            }
            Effect::Persist { db, step, bytes, sync, is_urgent } => {
                // A replay hears from the recording what came of it.
                let how = (sync && outside.is_some(), is_urgent);
                let is_written =
                    databases.persist(db, step, &bytes, how, jobs, coverage, log, events);
                if let Some(recorder) = &self.recorder {
                    let (length, digest) = (bytes.len() as u64, digest(&bytes));
                    let step = step.number;
                    recorder.item(&Item::Persist { db, step, length, digest, is_written });
                }
            }
            Effect::ReadFile { db, id, offset, len } => databases.read(db, id, offset, len, jobs),
            Effect::Compact { db, snapshot, comment, date_ms, history, member } => {
                let source = Source { snapshot, comment, date_ms, history, member };
                databases.compact(db, source, jobs, events);
            }
            Effect::ExtendCopy { db, records } => databases.extend_copy(db, records, jobs, events),
            Effect::DiscardCopy { db } => {
                forget_copies(db, events);
                databases.discard_copy(db);
            }
            Effect::BeginReceived { db, head } => {
                forget_copies(db, events);
                databases.begin_received(db, head, jobs);
            }
            Effect::WriteReceived { db, offset, bytes } => {
                databases.write_received(db, Piece::Write { offset, bytes }, jobs);
            }
            Effect::PatchReceived { db, offset, bytes } => {
                databases.write_received(db, Piece::Patch { offset, bytes }, jobs);
            }
            Effect::SyncReceived { db } => databases.sync_received(db, jobs),
            Effect::Convert { db, snapshot, schema, comment, date_ms, seed, history } => {
                let snapshot = *snapshot;
                let source = Source { snapshot, comment, date_ms, history, member: None };
                databases.convert(db, source, schema, seed, jobs, events);
            }
            Effect::FinishCompaction { db, tail, sync, step } => {
                databases.finish_compaction(db, &tail, sync, step, jobs, coverage, log, events);
            }
            Effect::KeepKeys { db, text } => {
                // A replay hears from the recording what came of it.
                if outside.is_some() {
                    databases.keep_keys(db, text, jobs);
                }
            }
            Effect::Close { db } => databases.close(db),

            // Helpers and the log.
            Effect::Work { id, of, work } => jobs.work(id, of, work),
            Effect::Search { id, of, db, search } => {
                jobs.work(id, Asker::Session(of), Work::Search(databases.give_file(db, search)));
            }
            Effect::Load { id, db, is_received, load } => {
                jobs.work(
                    id,
                    Asker::Server,
                    Work::Load(databases.give_loaded(db, is_received, load)),
                );
            }
            Effect::Say { id, word } => {
                if outside.is_some() {
                    jobs.say(id, word);
                }
            }
            Effect::Log { module, level, text, limit } => {
                log_line(log, module, level, &text, limit);
            }

            // Clients.
            Effect::Send { to, head, body } => {
                if log.traces_messages() {
                    trace.log_sent(server, log, &to, &[&head, &body]);
                }
                if let Some(outside) = outside {
                    to.into_iter().for_each(|id| outside.sessions.send(id, &head, &body));
                }
            }
            Effect::TellDrained { to } => {
                if let Some(outside) = outside {
                    to.into_iter().for_each(|id| outside.sessions.tell_drained(id));
                }
            }
            Effect::LookAtOutboxes { of } => {
                if let Some(outside) = outside {
                    outside.look_at_outboxes(of, coverage);
                }
            }
            Effect::StopReading { session } => {
                if let Some(outside) = outside {
                    outside.stop_reading(session);
                }
            }
            Effect::GoOnReading { session } => {
                if let Some(outside) = outside {
                    outside.go_on_reading(session);
                }
            }
            Effect::Disconnect { session } => {
                trace.forget_client(session);
                if let Some(outside) = outside {
                    outside.disconnect(session, coverage);
                }
            }

            // Remotes.
            Effect::Listen { remote, target, options } => {
                if let Some(outside) = outside {
                    outside.listen(remote, target, options, events);
                }
            }
            Effect::ConnectRemote { remote, target, options, patience_ms } => {
                if let Some(outside) = outside {
                    outside.connect_remote(remote, target, options.dscp, patience_ms, events);
                }
            }
            Effect::Unlisten { remote } => {
                if let Some(outside) = outside {
                    outside.unlisten(remote);
                }
            }
            Effect::Tls(settings) => {
                if let Some(outside) = outside {
                    outside.dialling.configure_tls(*settings);
                }
            }

            // Other servers.
            Effect::Connect { link, target, dscp, framing } => {
                if framing == Framing::Json {
                    trace.connect(link, &target);
                }
                if let Some(outside) = outside {
                    outside.connect_link(link, target, dscp, framing, events);
                }
            }
            Effect::SendTo { link, bytes } => {
                if log.traces_messages() {
                    trace.log_sent_to(log, link, &bytes);
                }
                if let Some(outside) = outside {
                    outside.send_on_link(link, &bytes);
                }
            }
            Effect::LimitLink { link, bytes_max } => {
                if let Some(outside) = outside {
                    outside.limit_link(link, bytes_max);
                }
            }
            Effect::CloseLink { link } => {
                trace.close(link);
                if let Some(outside) = outside {
                    outside.close_link(link);
                }
            }
            Effect::ListenForPeers { port, address } => {
                if let Some(outside) = outside {
                    outside.listen_for_peers(port, address, events);
                }
            }
            Effect::CloseForPeers { port } => {
                if let Some(outside) = outside {
                    outside.close_for_peers(port);
                }
            }

            // The process.
            Effect::ReadConfiguration { path } => {
                if let Some(outside) = outside {
                    outside.read_configuration(&path, events);
                }
            }
            Effect::SaveConfiguration { bytes } => {
                if let Some(outside) = outside {
                    outside.save_configuration(&bytes);
                }
            }
            Effect::Crash { why } => {
                log.log("raft", Level::Emer, why);
                self.crash = Some(why);
            }
            Effect::TrimMemory => {
                if let Some(outside) = outside {
                    outside.trim_memory();
                }
            }
            Effect::CommandReply { id, reply } => {
                if let Some(outside) = outside {
                    outside.reply(id, reply, coverage, events);
                }
            }
        }
    }

    /// Writes the run down from now on.
    #[cfg(test)]
    pub(crate) fn record_by(&mut self, recorder: Arc<Recorder>) {
        self.recorder = Some(recorder);
    }

    /// The files, for tests in which they fail.
    #[cfg(test)]
    pub(crate) fn databases(&mut self) -> &mut Databases {
        &mut self.databases
    }

    /// Leaves the core to the end of the process: to free all rows one by one takes its time.
    pub(crate) fn abandon(self) {
        let Self { server, events, .. } = self;
        std::mem::forget((server, events));
    }
}

/// The core has given up what is to take the place of a file, and hears no more of it.
fn forget_copies(db: DbId, events: &mut Vec<Event>) {
    events.retain(|event| match event {
        Event::ReceivedWritten { db: of, .. }
        | Event::ReceivedSynced { db: of, .. }
        | Event::CompactionWritten { db: of, .. }
        | Event::Converted { db: of, .. } => *of != db,
        _ => true,
    });
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

fn severity(level: effect::Level) -> Level {
    match level {
        effect::Level::Emergency => Level::Emer,
        effect::Level::Error => Level::Err,
        effect::Level::Warning => Level::Warn,
        effect::Level::Info => Level::Info,
        effect::Level::Debug => Level::Dbg,
    }
}
