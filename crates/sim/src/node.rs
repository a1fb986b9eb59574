//! One server with its files: what the core asks for is carried out, sooner or later.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::Uuid;
use weir_server::effect::Effect;
use weir_server::event::{
    CommandId, DbId, Event, LinkId, Now, PeerPortId, RemoteId, SessionId, WorkId,
};
use weir_server::load::member_snapshot;
use weir_server::work::{Watcher, Word, Work};
use weir_server::{Config, Server};

use crate::checks::Looks;
use crate::disk::Disk;
use crate::files::load;
use crate::forgetting::Copy;
use crate::network::{Attempt, End};
use crate::world::{AGAIN_US, Due, World};

/// Where every server has its database.
pub(crate) const PATH: &str = "/db/sim.db";

/// Bytes of entries that members keep in memory in every other seed, so that texts are read back, and
/// copies extended.
const TEXTS_BYTES_MAX: usize = 2000;

/// How long a round lasts at most in which several things happen, in microseconds.
const ROUND_US: usize = 1000;

/// A server, whether its process runs or not.
pub(crate) struct Node {
    /// Where members of its cluster reach it.
    pub(crate) address: String,
    /// Where they did before it moved.
    pub(crate) address_before: Option<String>,
    /// Where relays reach it.
    pub(crate) client_address: String,
    /// A relay has no file, and these sources.
    pub(crate) sources: Option<String>,
    /// The process.
    pub(crate) server: Option<Server>,
    /// How often the process has been started: what was due to an earlier one is not told.
    pub(crate) life: u64,
    pub(crate) disk: Disk,
    pub(crate) db: Option<DbId>,
    /// In which life it has opened a file last.
    opened_in: Option<u64>,
    /// Where its peers reach it.
    pub(crate) port: Option<PeerPortId>,
    /// Through which its clients come.
    pub(crate) remote: Option<RemoteId>,
    /// Connections to peers that have not ended, as far as it knows.
    pub(crate) links: BTreeSet<LinkId>,
    pub(crate) sessions: BTreeSet<SessionId>,
    /// What came on sessions, until whole messages are taken out.
    pub(crate) received: BTreeMap<SessionId, Vec<u8>>,
    work: BTreeMap<WorkId, Work>,
    said: BTreeMap<WorkId, Word>,
    /// The process has answered a client that changes nothing.
    pub(crate) has_answered: bool,
    /// For how long slow helpers will have been at work when the last one of them is done, and when that is.
    slow_us: u64,
    pub(crate) slow_until_us: u64,
    /// The process is down until then.
    pub(crate) down_until_us: u64,
    /// The host has no power until the process is started again: whoever connects hears nothing.
    pub(crate) is_dark: bool,
    /// Nothing happens here before (SIGSTOP).
    pub(crate) paused_until_us: u64,
    /// How far its clock is from that of the world.
    pub(crate) skew_ms: i64,
    /// How much faster its clocks go than those of the world, in millionths.
    pub(crate) drift_ppm: u64,
    /// When the last step is answered.
    pub(crate) last_step_us: u64,
    /// When the last piece of a file from elsewhere is written.
    pub(crate) last_piece_us: u64,
    /// The next fdatasync(2) fails.
    pub(crate) breaks_sync: bool,
    /// No copy of the file can be begun, and how often that was tried.
    pub(crate) refuses_copies: bool,
    pub(crate) copies_tried: u64,
    /// How often helpers appended to one.
    pub(crate) copies_extended: u64,
    /// What happens until then is handled before what it leads to is carried out.
    round_us: u64,
    /// When it is to be looked at though nothing happens.
    pub(crate) wakeup_us: Option<u64>,
    pub(crate) looks: Looks,
    /// What others do in one step its server does in many.
    pub(crate) has_short_steps: bool,
    /// A database that could not be opened has been by then.
    pub(crate) opened_by_us: u64,
    pub(crate) replies: BTreeMap<CommandId, Result<String, String>>,
    /// When the process was started.
    pub(crate) started_us: u64,
    /// Copies of the file, from times before.
    pub(crate) copies: Vec<Copy>,
    /// The older file that it came back with last, which may come once more.
    pub(crate) image: Option<Copy>,
    /// Which server it is, as far as its operator knows.
    pub(crate) id: Option<Uuid>,
    /// The server has no file, or one that is of no use.
    pub(crate) is_spare: bool,
    /// The server is to join, and has not.
    pub(crate) is_joining: bool,
    /// The server was told to leave, or others to remove it.
    pub(crate) is_leaving: bool,
    /// Others have wanted to remove it since it was silent.
    pub(crate) was_silent: bool,
    /// When that was.
    pub(crate) leaving_us: u64,
    /// Until when its disk is full.
    pub(crate) full_until_us: u64,
    /// The file was not what it had been, and the server has not joined again.
    pub(crate) is_joining_again: bool,
}

impl Node {
    /// A server of this number, with its file.
    pub(crate) fn new(n: usize, file: Vec<u8>) -> Self {
        Self {
            address: format!("tcp:10.0.0.{}:6643", n + 1),
            address_before: None,
            client_address: client_address(n),
            sources: None,
            server: None,
            life: 0,
            disk: Disk::new(file),
            db: None,
            opened_in: None,
            port: None,
            remote: None,
            links: BTreeSet::new(),
            sessions: BTreeSet::new(),
            received: BTreeMap::new(),
            work: BTreeMap::new(),
            said: BTreeMap::new(),
            has_answered: false,
            slow_us: 0,
            slow_until_us: 0,
            down_until_us: 0,
            is_dark: false,
            paused_until_us: 0,
            skew_ms: 0,
            drift_ppm: 0,
            last_step_us: 0,
            last_piece_us: 0,
            breaks_sync: false,
            refuses_copies: false,
            copies_tried: 0,
            copies_extended: 0,
            round_us: 0,
            wakeup_us: None,
            looks: Looks::default(),
            has_short_steps: false,
            opened_by_us: 0,
            replies: BTreeMap::new(),
            started_us: 0,
            copies: Vec::new(),
            image: None,
            id: None,
            is_spare: false,
            is_joining: false,
            is_leaving: false,
            was_silent: false,
            leaving_us: 0,
            full_until_us: 0,
            is_joining_again: false,
        }
    }

    /// What its clock says at a time of the world, in microseconds.
    fn monotonic_us(&self, world_us: u64) -> u64 {
        world_us + world_us * self.drift_ppm / 1_000_000
    }

    /// When its clock says at least so much.
    fn world_us(&self, monotonic_us: u64) -> u64 {
        let scaled = u128::from(monotonic_us) * 1_000_000;
        let at_us = scaled.div_ceil(u128::from(1_000_000 + self.drift_ppm));
        u64::try_from(at_us).expect("no clock goes backwards")
    }

    pub(crate) fn is_relay(&self) -> bool {
        self.sources.is_some()
    }

    /// Whether it is a member of the cluster, or about to be one.
    pub(crate) fn is_member(&self) -> bool {
        !self.is_spare && !self.is_relay()
    }

    /// Whether it is a member of the cluster.
    pub(crate) fn has_joined(&self) -> bool {
        self.is_member() && !self.is_joining && !self.is_joining_again
    }

    /// The process has ended, with all that was under way.
    pub(crate) fn end(&mut self) {
        let disk = std::mem::take(&mut self.disk);
        let (life, skew_ms, drift_ppm) = (self.life + 1, self.skew_ms, self.drift_ppm);
        let new = Self::new(0, Vec::new());
        *self = Self {
            address: std::mem::take(&mut self.address),
            address_before: self.address_before.take(),
            client_address: std::mem::take(&mut self.client_address),
            sources: self.sources.take(),
            disk,
            life,
            skew_ms,
            drift_ppm,
            copies: std::mem::take(&mut self.copies),
            image: self.image.take(),
            id: self.id,
            is_spare: self.is_spare,
            is_joining: self.is_joining,
            is_leaving: self.is_leaving,
            was_silent: self.was_silent,
            leaving_us: self.leaving_us,
            is_joining_again: self.is_joining_again,
            full_until_us: self.full_until_us,
            ..new
        };
    }

    /// Whether an event is news to a process: what it has closed is not told any more.
    fn is_news(&self, event: &Event) -> bool {
        match event {
            Event::LinkBytes { link, .. }
            | Event::LinkMessage { link, .. }
            | Event::LinkDown { link, .. }
            | Event::LinkUp { link } => self.links.contains(link),
            Event::Message { session, .. } | Event::Closed { session, .. } => {
                self.sessions.contains(session)
            }
            _ => true,
        }
    }
}

/// Where relays reach these servers.
pub(crate) fn addresses(servers: &[usize]) -> String {
    servers.iter().map(|n| client_address(*n)).collect::<Vec<_>>().join(",")
}

/// Where relays reach the server of this number.
pub(crate) fn client_address(n: usize) -> String {
    format!("tcp:10.0.0.{}:6642", n + 1)
}

impl World {
    /// Starts the process of a server.
    pub(crate) fn start(&mut self, n: usize) {
        let seed = [0; 4].map(|_| self.rng.bits());
        let database = match &self.nodes[n].sources {
            Some(sources) => format!("relay:Sim:{sources}"),
            None => PATH.into(),
        };
        let config = Config {
            seed,
            server_name: "ovsdb-server",
            remotes: vec!["punix:/sock".into()],
            databases: vec![database],
            ..Config::default()
        };
        let step_cost_max = match self.rng.below(3) {
            0 => 0,
            1 => 200,
            _ => u64::MAX,
        };
        let now = self.now(n);
        let mut server = Server::new(now, config);
        server.set_step_cost_max(step_cost_max);
        self.note(n, &format!("starts; steps cost {step_cost_max} at most"));
        self.nodes[n].server = Some(server);
        self.nodes[n].has_short_steps = step_cost_max != u64::MAX;
        self.nodes[n].is_dark = false;
        self.nodes[n].started_us = self.now_us;
        if self.nodes[n].is_relay() {
            // Most of its sources may have left for good, and the run is too short for long pauses.
            self.command_at(self.now_us, n, "weir/set-relay-source-max-backoff", &["1000"]);
        }
        if n == 0 && self.sources.as_ref().is_some_and(|sources| sources.is_without_ids) {
            self.command_at(self.now_us, n, "weir/standalone-history", &["off"]);
        }
        self.settle_node(n);
    }

    pub(crate) fn now(&self, n: usize) -> Now {
        let monotonic_us = self.nodes[n].monotonic_us(self.now_us);
        let wall_ms =
            1_700_000_000_000 + (monotonic_us / 1000).cast_signed() + self.nodes[n].skew_ms;
        Now { monotonic_us, wall_ms }
    }

    /// Something has happened to a server.
    pub(crate) fn handle(&mut self, n: usize, event: Event) {
        let now = self.now(n);
        let node = &mut self.nodes[n];
        if !node.is_news(&event) {
            return;
        }
        match &event {
            Event::LinkDown { link, .. } => drop(node.links.remove(link)),
            Event::LinkAccepted { link, .. } => drop(node.links.insert(*link)),
            Event::Closed { session, .. } => drop(node.sessions.remove(session)),
            Event::CompactionFinished { .. } => node.disk.has_replaced(),
            _ => {}
        }
        let Some(server) = &mut node.server else { return };
        server.begin_round();
        server.handle(now, event);
        if node.round_us > self.now_us {
            return;
        }
        if self.faults.round > 0 && self.rng.chance(self.faults.round) {
            let round_us = self.now_us + 1 + self.rng.below(ROUND_US) as u64;
            self.nodes[n].round_us = round_us;
            return self.due(round_us, n, Due::Round);
        }
        self.settle_node(n);
    }

    /// The time has come that a server wanted to be woken at.
    pub(crate) fn wake(&mut self, n: usize) {
        if let Some(server) = &mut self.nodes[n].server {
            server.begin_round();
            self.settle_node(n);
        }
    }

    /// Ends the round of a server's loop, with what its effects lead to.
    pub(crate) fn settle_node(&mut self, n: usize) {
        let mut effects = Vec::new();
        loop {
            let now = self.now(n);
            let Some(server) = &mut self.nodes[n].server else { return };
            server.end_round(now);
            server.poll_effects(&mut effects);
            if effects.is_empty() {
                if !server.has_pending_updates() {
                    break;
                }
                server.flush_updates(now);
                server.poll_effects(&mut effects);
                if effects.is_empty() {
                    break;
                }
            }
            for effect in effects.drain(..) {
                self.carry_out(n, effect);
            }
        }
        let Some(server) = &self.nodes[n].server else { return };
        if let Some(at_us) = server.next_wakeup_us() {
            let at_us = self.nodes[n].world_us(at_us).max(self.now_us + 1);
            if self.nodes[n].wakeup_us.is_none_or(|before| before > at_us) {
                self.nodes[n].wakeup_us = Some(at_us);
                self.due(at_us, n, Due::Wakeup);
            }
        }
    }

    /// Whether something cannot be read.
    fn is_unread(&mut self) -> bool {
        self.faults.unread > 0 && self.rng.below(10_000) < self.faults.unread
    }

    fn carry_out(&mut self, n: usize, effect: Effect) {
        if self.nodes[n].server.is_none() {
            return;
        }
        match effect {
            Effect::Persist { db, step, bytes, sync, is_urgent } => {
                self.persist(n, db, (step.number, step.behind), &bytes, (sync, is_urgent));
            }
            Effect::ReadFile { db, id, offset, len } => {
                let range = offset as usize..(offset + len) as usize;
                let bytes = self.nodes[n].disk.file.get(range).map(<[u8]>::to_vec);
                let result = match self.is_unread() {
                    true => Err("Input/output error".to_owned()),
                    false => bytes.ok_or_else(|| "Unexpected end of file".to_owned()),
                };
                let at = self.now_us + 100 + self.rng.below(2000) as u64;
                let at = at.max(self.nodes[n].last_step_us);
                self.event_at(at, n, Event::FileRead { db, id, result });
            }
            Effect::Send { to, head, body } => {
                for session in to {
                    if self.is_of_relay(n, session) {
                        self.send(End::session(n, session), &[&head[..], &body[..]].concat());
                        continue;
                    }
                    let stream = self.nodes[n].received.entry(session).or_default();
                    stream.extend_from_slice(&head);
                    stream.extend_from_slice(&body);
                    self.due(self.now_us + 50, n, Due::Sent(session));
                }
            }
            Effect::TellDrained { to } => {
                for session in to {
                    let at = match self.is_of_relay(n, session) {
                        true => self.drained_us(n, session),
                        false => Some(self.now_us + 10),
                    };
                    if let Some(at) = at {
                        self.event_at(at, n, Event::Drained { session });
                    }
                }
            }
            Effect::Disconnect { session } => {
                self.nodes[n].sessions.remove(&session);
                self.close(End::session(n, session));
                self.due(self.now_us + 100, n, Due::Ended(session));
            }
            Effect::Listen { remote, .. } => {
                self.nodes[n].remote = Some(remote);
                self.event_at(self.now_us, n, Event::Listening { remote, result: Ok(None) });
            }
            Effect::ListenForPeers { port, .. } => {
                self.nodes[n].port = Some(port);
                self.event_at(self.now_us, n, Event::PeerPort { port, result: Ok(()) });
            }
            Effect::CloseForPeers { .. } => self.nodes[n].port = None,
            Effect::Connect { link, target, framing, .. } => {
                self.nodes[n].links.insert(link);
                let since_us = self.now_us;
                self.connect(n, Attempt { link, target, framing, since_us });
            }
            Effect::SendTo { link, bytes } => self.send(End::link(n, link), &bytes),
            Effect::CloseLink { link } => {
                self.nodes[n].links.remove(&link);
                self.close(End::link(n, link));
            }
            Effect::Work { id, work, .. } => self.send_out(n, id, work),
            Effect::Load { id, is_received, load, .. } => {
                let disk = &self.nodes[n].disk;
                let file = if is_received { disk.copy.clone() } else { Some(disk.file.clone()) };
                let (file, is_unread) = (file.unwrap_or_default(), self.is_unread());
                let read_at = move |offset: u64, room: &mut [u8]| {
                    if is_unread {
                        return Err("Input/output error".to_owned());
                    }
                    let left = file.get(offset as usize..).unwrap_or_default();
                    let count = left.len().min(room.len()).min(10_000);
                    room[..count].copy_from_slice(&left[..count]);
                    Ok(count)
                };
                self.send_out(n, id, Work::Load(load.in_file(Box::new(read_at))));
            }
            Effect::Say { id, word } => {
                let node = &mut self.nodes[n];
                if node.work.contains_key(&id) {
                    node.said.insert(id, word);
                }
            }
            Effect::Open { db, path, seed } => {
                let mut result = match self.sources.is_some() {
                    true => self.load_standalone(seed),
                    false => load(&path, seed, &self.nodes[n].disk.file),
                };
                // One whose process goes on, for it begins anew.
                let life = Some(self.nodes[n].life);
                let is_again = std::mem::replace(&mut self.nodes[n].opened_in, life) == life;
                // Who comes with the same older file twice may wait for half a minute if its leader is another one by then.
                let is_twice = self.nodes[n].image.is_some();
                if is_again && !self.is_calm && self.rng.chance(30) && !is_twice {
                    self.note(n, "cannot open its database once more");
                    self.nodes[n].opened_by_us = self.now_us + AGAIN_US;
                    result = Err("Input/output error".to_owned());
                }
                if let Ok(loaded) = &mut result {
                    loaded.set_key_file(self.nodes[n].disk.keys.clone());
                    if self.seed.is_multiple_of(2) {
                        loaded.set_texts_bytes_max(TEXTS_BYTES_MAX);
                    }
                    self.nodes[n].disk.open(loaded.valid_len());
                    self.nodes[n].db = Some(db);
                }
                let at = self.now_us + 1000 + self.rng.below(20_000) as u64;
                self.event_at(at, n, Event::Opened { db, result });
                self.remove_silent_at(at + 1000, n);
            }
            Effect::Compact { db, snapshot, comment, date_ms, member, history } => {
                let copy = match member {
                    Some(header) => member_snapshot(&header, &snapshot, &comment, date_ms),
                    None => {
                        let rows = (&snapshot, comment.as_str(), date_ms);
                        self.standalone_copy(rows, |_| history.map(|image| *image))
                    }
                };
                self.write_copy(n, db, copy);
            }
            Effect::Convert { db, snapshot, schema, comment, date_ms, seed, history } => {
                let history = history.map(|image| *image);
                let rows = (&*snapshot, schema, seed);
                let converted = self.standalone_converted(rows, (&comment, date_ms), history);
                self.write_converted(n, db, converted);
            }
            Effect::ExtendCopy { db, records } => self.extend_copy(n, db, &records),
            Effect::FinishCompaction { db, tail, step, .. } => {
                self.finish_copy(n, db, &tail, step.map(|step| (step.number, step.behind)));
            }
            Effect::BeginReceived { db, head } => self.begin_received(n, db, head),
            Effect::WriteReceived { db, offset, bytes } => {
                self.write_received(n, db, offset, &bytes);
            }
            Effect::PatchReceived { db, offset, bytes } => {
                self.patch_received(n, db, offset, &bytes);
            }
            Effect::SyncReceived { db } => self.sync_received(n, db),
            Effect::DiscardCopy { .. } => self.nodes[n].disk.discard(),
            Effect::KeepKeys { db, text } => {
                self.nodes[n].disk.keys = text;
                self.event_at(self.now_us + 100, n, Event::KeysKept { db, result: Ok(()) });
            }
            Effect::CommandReply { id, reply } => drop(self.nodes[n].replies.insert(id, reply)),
            Effect::Log { text, level, .. } => {
                self.note(n, &format!("{level:?}: {text}"));
                self.checks.said((n, self.nodes[n].life), &text);
                self.note_membership(n, &text);
            }
            Effect::Close { .. } => {
                self.note(n, "closes its database");
                self.nodes[n].db = None;
            }
            Effect::LookAtOutboxes { .. }
            | Effect::StopReading { .. }
            | Effect::GoOnReading { .. }
            | Effect::LimitLink { .. }
            | Effect::Tls(_)
            | Effect::TrimMemory
            | Effect::Unlisten { .. }
            | Effect::SaveConfiguration { .. } => {}
            Effect::Append { db, bytes, sync } => self.append(n, db, &bytes, sync),
            Effect::Search { .. }
            | Effect::ConnectRemote { .. }
            | Effect::ReadConfiguration { .. }
            | Effect::Crash { .. } => unreachable!("nobody asks for {effect:?} here"),
        }
    }

    fn send_out(&mut self, n: usize, id: WorkId, work: Work) {
        self.nodes[n].work.insert(id, work);
        let is_slow = self.rng.chance(self.faults.slow_helper);
        let most = if is_slow { 2_000_000 } else { 3000 };
        let at = self.now_us + 10 + self.rng.below(most) as u64;
        if is_slow {
            let node = &mut self.nodes[n];
            node.slow_us += at.saturating_sub(node.slow_until_us.max(self.now_us));
            node.slow_until_us = node.slow_until_us.max(at);
        }
        self.due(at, n, Due::Work(id));
    }

    /// For how long slow helpers of a server have been at work, as long as its process lives.
    pub(crate) fn slow_us_at(&self, n: usize) -> u64 {
        let node = &self.nodes[n];
        node.slow_us - node.slow_until_us.saturating_sub(self.now_us)
    }

    /// A helper is done.
    pub(crate) fn do_work(&mut self, n: usize, id: WorkId) {
        let node = &mut self.nodes[n];
        let Some(work) = node.work.remove(&id) else { return };
        let word = node.said.remove(&id).unwrap_or(Word::GoOn);
        let watcher = Watcher::new(move || word);
        let finished = match word {
            Word::Stop => work.stopped(),
            _ => work.run_watched(Some(&watcher)),
        };
        self.handle(n, Event::WorkDone { id, finished: Box::new(finished) });
    }
}
