//! A scripted shell around the core: a fake disk, fake outboxes and a clock that only moves when
//! told to. What the host does with effects, a few lines each.

#![allow(dead_code, unused_imports, reason = "every test uses another part")]

mod disk;

pub(crate) use disk::{Job, Lost};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_server::effect::{Effect, RemoteOptions, TlsSettings};
use weir_server::event::{
    Bytes, CommandId, ConversionError, DbId, Event, LinkId, Now, Outbox, RemoteId, SessionId,
};
use weir_server::load::{convert_rows, converted_image, load_with, write_snapshot};
use weir_server::work::{Asker, Watcher, Word, Work, WorkId};
use weir_server::{Config, FileForms, Server, StartStatus};

pub(crate) const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "Port":{"columns":{
        "name":{"type":"string"},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "up":{"type":"boolean","ephemeral":true}},
        "indexes":[["name"]]}}}"#;

/// The longest that updates wait.
const FLUSH_DELAY_US_MIN: u64 = 500;
const FLUSH_DELAY_US_MAX: u64 = 2000;
const FLUSH_DELAY_US_EACH: u64 = 16;

/// The port that the system chooses.
pub(crate) const CHOSEN_PORT: u16 = 40_000;

/// How many files have been opened: each with other randomness, as processes have it.
static OPENED: AtomicU64 = AtomicU64::new(42);

pub(crate) const PATH: &str = "/db/net.db";

/// What the core has told about commands and databases.
pub(crate) enum Told {
    Reply(CommandId),
    /// The database that was in this file.
    Closed(String),
}

/// The core and everything around it.
pub(crate) struct Shell {
    pub(crate) server: Server,
    pub(crate) now: Now,
    /// Files by path, as the system shows them.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    disk: disk::Disk,
    /// Something has happened since the last round ended.
    is_in_round: bool,
    /// After so many effects nothing happens any more.
    pub(crate) fuse: Option<usize>,
    /// Compactions are written only when [`Shell::helper_is_done`] says so.
    pub(crate) slow_helper: bool,
    /// Which keys are declared cannot be written.
    pub(crate) keys_are_refused: bool,
    /// Which keys are declared is written, but nobody knows whether that lasts.
    pub(crate) keys_may_not_last: bool,
    helper: VecDeque<Event>,
    /// Appends are done only when [`Shell::disk_is_done`] says so.
    pub(crate) slow_disk: bool,
    /// Appends to these files are done only when [`Shell::disk_is_done`] says so.
    pub(crate) slow_files: BTreeSet<String>,
    /// Copies take the place of their files only when [`Shell::do_disk`] says so.
    pub(crate) slow_finish: bool,
    /// What waits for the disk, in order for each file.
    pub(crate) disk_jobs: VecDeque<Job>,
    /// Files are opened only when [`Shell::do_open`] says so.
    pub(crate) slow_open: bool,
    opening: VecDeque<(DbId, String)>,
    /// Configurations are read only when [`Shell::do_read`] says so.
    pub(crate) slow_read: bool,
    reading: VecDeque<String>,
    /// Work is done only when [`Shell::do_work`] says so.
    pub(crate) slow_work: bool,
    /// Work that waits for [`Shell::do_work`].
    pub(crate) work: Vec<(WorkId, Work)>,
    /// Whom it is for.
    pub(crate) work_of: BTreeMap<WorkId, SessionId>,
    /// What the core has said to it since.
    pub(crate) said: BTreeMap<WorkId, Word>,
    /// Pieces of work that the core has sent out, by kind.
    pub(crate) sent_out: Vec<String>,
    /// What is sent stays in memory, as if clients did not read.
    pub(crate) hoard: bool,
    /// Clients that read nothing.
    pub(crate) stuck: BTreeSet<SessionId>,
    /// Sessions of which the core wants to know when they have read everything.
    undrained: Vec<SessionId>,
    hoarded: Vec<Bytes>,
    /// Bytes that were ever sent to each session.
    sent: BTreeMap<SessionId, u64>,
    /// Bytes that are on their way to a client's kernel.
    pub(crate) in_flight: BTreeMap<SessionId, u64>,
    /// The core is told of outboxes only when [`Shell::do_look`] says so.
    pub(crate) slow_look: bool,
    looking: VecDeque<Event>,
    /// How many times the core has asked for outboxes, and for how many.
    pub(crate) looks: Vec<usize>,
    /// Sessions from which no messages are taken.
    pub(crate) stopped: BTreeSet<SessionId>,
    pub(crate) open: BTreeMap<DbId, String>,
    /// Set to make every append fail with this text.
    pub(crate) disk_error: Option<&'static str>,
    /// Set to make every fdatasync(2) of a file that was not replaced since fail with this text.
    pub(crate) sync_error: Option<&'static str>,
    /// Number of appends that asked for durability.
    pub(crate) syncs: usize,
    pub(crate) appends: usize,
    /// How often a helper appended to a copy.
    pub(crate) copies_extended: usize,
    received: BTreeMap<SessionId, Vec<u8>>,
    pub(crate) disconnected: Vec<SessionId>,
    /// How many admin commands have been run.
    commands: u64,
    pub(crate) replies: BTreeMap<CommandId, Result<String, String>>,
    /// Whose replies they are, in order, and when databases were closed among them.
    pub(crate) story: Vec<Told>,
    pub(crate) log: Vec<String>,
    /// Targets of open listeners, in the order of their opening.
    pub(crate) listening: Vec<String>,
    /// Connections that are to be made, and the ms that they may take.
    pub(crate) reaching: Vec<(RemoteId, String, RemoteOptions, u64)>,
    /// The options of TLS that were told, newest last.
    pub(crate) tls: Vec<TlsSettings>,
    pub(crate) remotes: BTreeMap<RemoteId, String>,
    next_session: u64,
    /// What the core has sent on each connection of its own.
    pub(crate) links: BTreeMap<LinkId, Vec<u8>>,
    /// Connections that the core has begun to make, and where to.
    pub(crate) connecting: Vec<(LinkId, String)>,
    /// What the core wants to be told after a crash.
    pub(crate) saved: Option<Vec<u8>>,
}

impl Shell {
    /// A server with one database of [`SCHEMA`], empty.
    pub(crate) fn start() -> Self {
        Self::start_in(FileForms::default())
    }

    /// A server with one database of [`SCHEMA`], empty, whose file is written in this form.
    pub(crate) fn start_in(files: FileForms) -> Self {
        let mut file = Vec::new();
        let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
        weir_log::standalone::write_schema(&mut file, &schema);
        Self::start_with(file, Config { files, ..Config::default() })
    }

    /// A server with one database, in a file of these bytes.
    pub(crate) fn start_on(file: Vec<u8>) -> Self {
        let shell = Self::start_with(file, Config::default());
        assert_eq!(shell.server.start_status(), StartStatus::Ready);
        shell
    }

    /// A server with one database, in a file of these bytes, with these options; perhaps it does
    /// not start.
    pub(crate) fn start_with(file: Vec<u8>, config: Config) -> Self {
        Self::start_on_files(file, BTreeMap::new(), config)
    }

    /// A server with one database, in a file of these bytes, with these options, where other files
    /// are.
    pub(crate) fn start_on_files(
        file: Vec<u8>,
        mut files: BTreeMap<String, Vec<u8>>,
        config: Config,
    ) -> Self {
        let now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let config = Config {
            // Another one for every other file: UUIDs that are in it never come again.
            seed: [1, 2, 3, BuildHasherDefault::<DefaultHasher>::default().hash_one(&file)],
            server_name: "ovsdb-server",
            remotes: if config.remotes.is_empty() {
                vec!["punix:/sock".into()]
            } else {
                config.remotes.clone()
            },
            databases: if config.databases.is_empty() {
                vec![PATH.into()]
            } else {
                config.databases.clone()
            },
            ..config
        };
        let mut shell = Self {
            server: Server::new(now, config),
            now,
            files: {
                files.insert(PATH.to_owned(), file);
                files
            },
            disk: disk::Disk::default(),
            is_in_round: false,
            fuse: None,
            slow_helper: false,
            keys_are_refused: false,
            keys_may_not_last: false,
            helper: VecDeque::new(),
            slow_disk: false,
            slow_files: BTreeSet::new(),
            slow_finish: false,
            disk_jobs: VecDeque::new(),
            slow_open: false,
            opening: VecDeque::new(),
            slow_read: false,
            reading: VecDeque::new(),
            slow_work: false,
            work: Vec::new(),
            work_of: BTreeMap::new(),
            said: BTreeMap::new(),
            sent_out: Vec::new(),
            hoard: false,
            stuck: BTreeSet::new(),
            undrained: Vec::new(),
            hoarded: Vec::new(),
            sent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            slow_look: false,
            looking: VecDeque::new(),
            looks: Vec::new(),
            stopped: BTreeSet::new(),
            open: BTreeMap::new(),
            disk_error: None,
            sync_error: None,
            syncs: 0,
            appends: 0,
            copies_extended: 0,
            received: BTreeMap::new(),
            disconnected: Vec::new(),
            commands: 0,
            replies: BTreeMap::new(),
            story: Vec::new(),
            log: Vec::new(),
            listening: Vec::new(),
            connecting: Vec::new(),
            tls: Vec::new(),
            remotes: BTreeMap::new(),
            next_session: 0,
            links: BTreeMap::new(),
            reaching: Vec::new(),
            saved: None,
        };
        if env!("CARGO_CRATE_NAME").ends_with("_long") {
            shell.server.set_step_cost_max(0);
        }
        shell.settle();
        shell
    }

    /// A new client on the unix socket.
    pub(crate) fn connect(&mut self) -> SessionId {
        self.connect_as("unix")
    }

    /// A new client whose name begins with `kind`.
    pub(crate) fn connect_as(&mut self, kind: &str) -> SessionId {
        let session = SessionId(self.next_session);
        let name = format!("{kind}#{}", self.next_session);
        self.next_session += 1;
        // A server without remotes is as good for most tests: the core does not know this one.
        let remote = self.remotes.keys().next().copied().unwrap_or(RemoteId(u64::MAX));
        self.event(Event::Accepted { session, remote, name, client: None });
        session
    }

    /// A session of this remote, whose name begins with `kind`.
    pub(crate) fn accept(&mut self, remote: RemoteId, kind: &str) -> SessionId {
        let session = SessionId(self.next_session);
        let name = format!("{kind}:{}", self.next_session);
        self.next_session += 1;
        self.event(Event::Accepted { session, remote, name, client: None });
        session
    }

    /// A session of no remote in particular.
    pub(crate) fn accept_anywhere(&mut self) -> SessionId {
        self.accept(RemoteId(u64::MAX), "unix")
    }

    /// Nothing is left of a session that has ended.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.received.remove(&session);
        self.sent.remove(&session);
        self.stuck.remove(&session);
        self.stopped.remove(&session);
        self.undrained.retain(|id| *id != session);
    }

    /// The messages that a session has received since last asked, but for one that is not complete.
    pub(crate) fn whole_messages(&mut self, session: SessionId) -> Vec<String> {
        let Some(stream) = self.received.get_mut(&session) else { return Vec::new() };
        let mut messages = Vec::new();
        while let Some(end) = weir_json::Framer::new().feed(stream).unwrap() {
            let message: Vec<u8> = stream.drain(..end).collect();
            messages.push(String::from_utf8_lossy(&message).into_owned());
        }
        if stream.is_empty() {
            self.received.remove(&session);
        }
        messages
    }

    /// A new client through this remote; `None` if it is not there.
    pub(crate) fn connect_to(&mut self, target: &str) -> Option<SessionId> {
        let (&remote, _) = self.remotes.iter().find(|(_, open)| *open == target)?;
        let name = if target.starts_with("punix:") { "unix#0" } else { "tcp:192.0.2.1:4711" };
        Some(self.connect_through(remote, name))
    }

    /// A session of this remote.
    pub(crate) fn connect_through(&mut self, remote: RemoteId, name: &str) -> SessionId {
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let name = name.to_owned();
        self.event(Event::Accepted { session, remote, name, client: None });
        self.settle();
        session
    }

    /// Lets time pass, with everything that it brings.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let end = self.now.monotonic_us + ms * 1000;
        while let Some(at) = self.server.next_wakeup_us().filter(|at| *at <= end) {
            self.now.monotonic_us = at.max(self.now.monotonic_us);
            self.settle();
        }
        self.now.monotonic_us = end;
        self.settle();
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.begin_round();
        self.server.handle(self.now, event);
    }

    /// Queues a message for this round.
    pub(crate) fn send(&mut self, session: SessionId, message: &str) {
        self.event(Event::Message { session, bytes: message.as_bytes().to_vec() });
    }

    /// Tells the core who has read everything.
    pub(crate) fn tell_drained(&mut self) {
        let drained = self.undrained.extract_if(.., |id| !self.stuck.contains(id));
        let drained: Vec<SessionId> = drained.collect();
        drained.into_iter().for_each(|session| self.event(Event::Drained { session }));
    }

    /// Executes effects until there are none, without the end of a round; how many there were.
    pub(crate) fn pump(&mut self) -> usize {
        let (mut effects, mut count) = (Vec::new(), 0);
        loop {
            self.server.poll_effects(&mut effects);
            if effects.is_empty() {
                return count;
            }
            count += effects.len();
            for effect in effects.drain(..) {
                self.execute(effect);
            }
        }
    }

    /// Ends the round and executes its effects; monitor updates may go on waiting.
    pub(crate) fn round(&mut self) {
        self.begin_round();
        let mut effects = Vec::new();
        loop {
            self.tell_drained();
            self.server.end_round(self.now);
            self.server.poll_effects(&mut effects);
            if effects.is_empty() {
                self.is_in_round = false;
                return;
            }
            for effect in effects.drain(..) {
                self.execute(effect);
            }
        }
    }

    /// A round that is ended once, with its effects; how many there were.
    pub(crate) fn short_round(&mut self) -> usize {
        self.begin_round();
        self.server.end_round(self.now);
        let count = self.pump();
        self.is_in_round = false;
        count
    }

    /// A round begins with the first thing that happens.
    fn begin_round(&mut self) {
        if !std::mem::replace(&mut self.is_in_round, true) {
            self.server.begin_round();
        }
    }

    /// Rounds until nothing more happens, updates included.
    pub(crate) fn settle(&mut self) {
        self.round();
        loop {
            if self.server.has_pending_updates() {
                self.server.flush_updates(self.now);
            } else {
                // Updates of a stream of transactions wait for their deadline.
                let delay = self.next_session * FLUSH_DELAY_US_EACH;
                let delay = delay.clamp(FLUSH_DELAY_US_MIN, FLUSH_DELAY_US_MAX);
                let soon = self.now.monotonic_us + delay;
                let Some(at) = self.server.next_wakeup_us().filter(|at| *at <= soon) else {
                    return;
                };
                self.now.monotonic_us = at.max(self.now.monotonic_us);
            }
            self.round();
        }
    }

    /// Sends one message and answers with what came back for it.
    pub(crate) fn call(&mut self, session: SessionId, message: &str) -> String {
        self.send(session, message);
        self.settle();
        self.received(session).pop().unwrap_or_default()
    }

    /// The messages that a session has received since last asked.
    pub(crate) fn received(&mut self, session: SessionId) -> Vec<String> {
        let mut stream = self.received.remove(&session).unwrap_or_default();
        let mut messages = Vec::new();
        while !stream.is_empty() {
            let end = weir_json::Framer::new().feed(&stream).unwrap().expect("whole messages");
            let message: Vec<u8> = stream.drain(..end).collect();
            messages.push(String::from_utf8_lossy(&message).into_owned());
        }
        messages
    }

    pub(crate) fn advance_ms(&mut self, ms: u64) {
        self.now.monotonic_us += ms * 1000;
        self.now.wall_ms += ms as i64;
    }

    /// Runs an admin command.
    pub(crate) fn command(&mut self, name: &str, args: &[&str]) -> Option<Result<String, String>> {
        let id = CommandId(1000 + self.commands);
        self.commands += 1;
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.event(Event::Command { id, name: name.to_owned(), args });
        self.settle();
        self.replies.get(&id).cloned()
    }

    /// The helper reports the compaction that it has written, if there is one.
    pub(crate) fn helper_is_done(&mut self) {
        if let Some(event) = self.helper.pop_front() {
            self.event(event);
        }
    }

    /// Whether anything has come for a session.
    pub(crate) fn has_received(&self, session: SessionId) -> bool {
        self.received.contains_key(&session)
    }

    /// How far what was sent to a client has come: what one that does not read has not taken is
    /// still in its outbox.
    fn outbox(&self, session: SessionId) -> Outbox {
        let queued = self.sent.get(&session).copied().unwrap_or(0);
        let unread = self.received.get(&session).map_or(0, Vec::len) as u64;
        let unwritten = if self.stuck.contains(&session) { unread } else { 0 };
        let in_flight = self.in_flight.get(&session).copied().unwrap_or(0);
        let written = queued - unwritten;
        Outbox { queued, written, acknowledged: written.saturating_sub(in_flight) }
    }

    /// Whether the core waits to be told of outboxes.
    pub(crate) fn is_looking(&self) -> bool {
        !self.looking.is_empty()
    }

    /// The core is told of outboxes, as they were when it asked.
    pub(crate) fn do_look(&mut self) {
        if let Some(event) = self.looking.pop_front() {
            self.event(event);
        }
    }

    /// How many reports of helpers wait for [`Shell::do_helper`].
    pub(crate) fn helpers_out(&self) -> usize {
        self.helper.len()
    }

    /// A helper reports a copy that it has written.
    pub(crate) fn do_helper(&mut self, at: usize) {
        let at = at % self.helper.len().max(1);
        if let Some(event) = self.helper.remove(at) {
            self.event(event);
        }
    }

    /// How many files are being opened.
    pub(crate) fn opening(&self) -> usize {
        self.opening.len()
    }

    /// A file has been read.
    pub(crate) fn do_open(&mut self, at: usize) {
        let at = at % self.opening.len().max(1);
        if let Some((db, path)) = self.opening.remove(at) {
            self.open(db, path);
        }
    }

    /// How many configurations are being read.
    pub(crate) fn reading(&self) -> usize {
        self.reading.len()
    }

    /// A configuration has been read.
    pub(crate) fn do_read(&mut self) {
        if let Some(path) = self.reading.pop_front() {
            self.read_configuration(&path);
        }
    }

    fn read_configuration(&mut self, path: &str) {
        let missing = || "No such file or directory".to_owned();
        let result = self.files.get(path).cloned().ok_or_else(missing);
        self.event(Event::ConfigurationRead { result });
    }

    /// Does a piece of the work that waits.
    pub(crate) fn do_work(&mut self, at: usize) {
        if !self.work.is_empty() && !self.is_dead() {
            let (id, work) = self.work.remove(at % self.work.len());
            let word = self.said.remove(&id).unwrap_or(Word::GoOn);
            self.work_of.remove(&id);
            let watcher = Watcher::new(move || word);
            let is_stopped = word == Word::Stop;
            let finished =
                if is_stopped { work.stopped() } else { work.run_watched(Some(&watcher)) };
            self.event(Event::WorkDone { id, finished: Box::new(finished) });
        }
    }

    /// The fuse has blown: nothing happens any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.fuse == Some(0)
    }

    fn execute(&mut self, effect: Effect) {
        match &mut self.fuse {
            Some(0) => return,
            Some(1) => {
                self.fuse = Some(0);
                return self.last_effect(effect);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match effect {
            Effect::Append { db, bytes, sync }
                if self.slow_disk
                    || self.slow_files.contains(&self.open[&db])
                    || self.has_disk_jobs(db) =>
            {
                self.disk_jobs.push_back(Job::Append { db, bytes, sync });
            }
            Effect::Append { db, bytes, sync } => self.append(db, &bytes, sync),
            Effect::Send { to, head, body } => {
                if self.hoard {
                    self.hoarded.push(body.clone());
                }
                for session in to {
                    *self.sent.entry(session).or_default() += (head.len() + body.len()) as u64;
                    let stream = self.received.entry(session).or_default();
                    stream.extend_from_slice(&head);
                    stream.extend_from_slice(&body);
                }
            }
            Effect::TellDrained { to } => self.undrained.extend(to),
            Effect::LookAtOutboxes { of } => {
                self.looks.push(of.len());
                let outboxes = of.into_iter().map(|session| (session, self.outbox(session)));
                let event = Event::Outboxes { outboxes: outboxes.collect() };
                if self.slow_look { self.looking.push_back(event) } else { self.event(event) }
            }
            Effect::Disconnect { session } => {
                self.undrained.retain(|id| *id != session);
                assert!(!self.disconnected.contains(&session), "{session:?} is let go once");
                self.disconnected.push(session);
            }
            Effect::Listen { remote, target, .. } => {
                let port = target.starts_with("ptcp:0:").then_some(CHOSEN_PORT);
                self.remotes.insert(remote, target.clone());
                self.listening.push(target);
                self.event(Event::Listening { remote, result: Ok(port) });
            }
            Effect::Unlisten { remote } => {
                let target = self.remotes.remove(&remote);
                self.reaching.retain(|(reached, ..)| *reached != remote);
                self.listening.retain(|open| Some(open) != target.as_ref());
            }
            Effect::Connect { link, target, .. } => {
                self.links.insert(link, Vec::new());
                self.connecting.push((link, target));
            }
            Effect::SendTo { link, bytes } => {
                self.links.entry(link).or_default().extend_from_slice(&bytes);
            }
            Effect::CloseLink { link } => {
                self.links.remove(&link);
            }
            Effect::ListenForPeers { .. }
            | Effect::CloseForPeers { .. }
            | Effect::LimitLink { .. }
            | Effect::Crash { .. }
            | Effect::Persist { .. }
            | Effect::ReadFile { .. }
            | Effect::BeginReceived { .. }
            | Effect::WriteReceived { .. }
            | Effect::PatchReceived { .. }
            | Effect::SyncReceived { .. }
            | Effect::Load { .. } => {
                unreachable!("no database is a member of a cluster here")
            }
            Effect::ReadConfiguration { path } if self.slow_read => self.reading.push_back(path),
            Effect::ReadConfiguration { path } => self.read_configuration(&path),
            Effect::SaveConfiguration { bytes } => self.saved = Some(bytes),
            Effect::ConnectRemote { remote, target, options, patience_ms } => {
                self.reaching.push((remote, target, options, patience_ms));
            }
            Effect::Tls(settings) => self.tls.push(*settings),
            Effect::TrimMemory => {}
            Effect::StopReading { session } => {
                self.stopped.insert(session);
            }
            Effect::GoOnReading { session } => {
                self.stopped.remove(&session);
            }
            Effect::Say { id, word } => {
                if self.work.iter().any(|(out, _)| *out == id) {
                    self.said.insert(id, word);
                }
            }
            Effect::Search { id, of, db, search } => {
                let search = Work::Search(self.give_file(db, search));
                self.execute(Effect::Work { id, of: Asker::Session(of), work: search });
            }
            Effect::Work { id, of, work } => {
                self.sent_out.push(format!("{work:?}"));
                if self.slow_work {
                    if let Asker::Session(of) = of {
                        self.work_of.insert(id, of);
                    }
                    self.work.push((id, work));
                } else {
                    self.event(Event::WorkDone { id, finished: Box::new(work.run()) });
                }
            }
            Effect::Open { db, path, .. } if self.slow_open => self.opening.push_back((db, path)),
            Effect::Open { db, path, .. } => self.open(db, path),
            Effect::Close { db } => self.close(db),
            Effect::Compact { db, snapshot, comment, date_ms, history, .. } => {
                let write = |sink: &mut dyn FnMut(&[u8]) -> _| {
                    write_snapshot(&snapshot, &comment, date_ms, sink)
                };
                let result = self.write_copy(db, write, |_| history.map(|image| *image));
                self.helper_has_done(Event::CompactionWritten { db, result });
            }
            Effect::ExtendCopy { db, records } => {
                let result = self.extend_copy(db, &records);
                self.helper_has_done(Event::CompactionWritten { db, result });
            }
            Effect::DiscardCopy { db } => self.discard_copy(db),
            Effect::KeepKeys { db, text } => {
                let result = self.keep_keys(db, text);
                self.helper_has_done(Event::KeysKept { db, result });
            }
            Effect::Convert { db, snapshot, schema, comment, date_ms, seed, history } => {
                let old = Arc::clone(snapshot.schema());
                let result = convert_rows(&snapshot, schema, seed).and_then(|converted| {
                    let rows = converted.database.snapshot();
                    let write = |sink: &mut dyn FnMut(&[u8]) -> _| {
                        write_snapshot(&rows, &comment, date_ms, sink)
                    };
                    let image = |binding: &_| {
                        let image = *history?;
                        Some(converted_image(image, &old, &converted, binding))
                    };
                    self.write_copy(db, write, image)
                        .map_err(ConversionError::Failed)
                        .map(|_| converted)
                });
                self.helper_has_done(Event::Converted { db, result });
            }
            Effect::FinishCompaction { db, tail, sync, .. } if self.slow_finish => {
                self.disk_jobs.push_back(Job::Finish { db, tail, sync });
            }
            Effect::FinishCompaction { db, tail, sync, .. } => self.finish(db, &tail, sync),
            Effect::CommandReply { id, reply } => {
                self.story.push(Told::Reply(id));
                self.replies.insert(id, reply);
            }
            Effect::Log { text, .. } => self.log.push(text),
        }
    }

    /// A helper has written a file: it says so now, or later.
    fn helper_has_done(&mut self, event: Event) {
        if self.slow_helper {
            self.helper.push_back(event);
        } else {
            self.event(event);
        }
    }

    fn keep_keys(&mut self, db: DbId, text: Option<Vec<u8>>) -> Result<(), String> {
        if self.keys_are_refused {
            return Err("Read-only file system".to_owned());
        }
        let path = key_path(&self.open[&db]);
        match text {
            Some(text) => drop(self.files.insert(path, text)),
            None => drop(self.files.remove(&path)),
        }
        if self.keys_may_not_last {
            return Err("Input/output error".to_owned());
        }
        Ok(())
    }

    /// Nobody hears any more of what was to be done with the file.
    fn close(&mut self, db: DbId) {
        self.helper.retain(|event| match event {
            Event::CompactionWritten { db: of, .. } | Event::Converted { db: of, .. } => *of != db,
            _ => true,
        });
        self.disk_jobs.retain(|job| job.db() != db);
        let path = self.open.remove(&db);
        self.story.extend(path.map(Told::Closed));
    }

    fn open(&mut self, db: DbId, path: String) {
        let is_open = self.open.values().any(|open| *open == path);
        let result = match self.files.get(&path) {
            Some(_) if is_open => Err(format!("ovsdb error: {path}: already open")),
            None => Err(format!("{path}: open failed (No such file or directory)")),
            Some(bytes) => {
                let seed = OPENED.fetch_add(1, Ordering::Relaxed);
                let mut result = load_with(&path, seed, bytes, self.side_files(&path));
                if let Ok(loaded) = &mut result {
                    loaded.set_key_file(self.files.get(&key_path(&path)).cloned());
                }
                result
            }
        };
        if let Ok(loaded) = &result {
            self.note_opened(&path, loaded.valid_len());
            self.open.insert(db, path);
        }
        self.event(Event::Opened { db, result });
    }
}

/// Where it is kept which keys of a file are declared.
pub(crate) fn key_path(path: &str) -> String {
    format!("{path}.weir-keys")
}

/// A `transact` request on [`SCHEMA`].
pub(crate) fn transact(id: u32, operations: &str) -> String {
    format!(r#"{{"id":{id},"method":"transact","params":["Net",{operations}]}}"#)
}

/// An insertion of a port.
pub(crate) fn insert(name: &str) -> String {
    format!(r#"{{"op":"insert","table":"Port","row":{{"name":"{name}"}}}}"#)
}

/// The names of all ports, as a client reads them.
pub(crate) fn ports(shell: &mut Shell) -> Vec<String> {
    let session = shell.connect();
    let select = r#"{"op":"select","table":"Port","where":[],"columns":["name"]}"#;
    let reply = shell.call(session, &transact(1, select));
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    let rows = reply["result"][0]["rows"].as_array().unwrap();
    let mut names: Vec<String> =
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}
