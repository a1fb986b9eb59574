//! Time, what is due when, and what ends a run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_cluster::{Mark, Position};
use weir_data::{Schema, Uuid};
use weir_engine::Database;
use weir_server::effect::MemberHeader;
use weir_server::event::{CommandId, DbId, Event, SessionId, WorkId};
use weir_server::load::member_snapshot;
use weir_testkit::rng::Rng;

use crate::bystanders::Bystander;
use crate::checks::{self, Checks, must};
use crate::clients::{Client, schema};
use crate::coverage::Coverage;
use crate::disk::Disk;
use crate::faults::{Faults, Lie};
use crate::network::{Attempt, End, Network, Socket};
use crate::node::{Node, addresses, client_address};
use crate::pipelines::Pipeline;
use crate::plan::{Part, Plan};
use crate::sources::Sources;

/// The election timer, in milliseconds.
pub(crate) const TIMER_MS: u64 = 1000;

/// From a failed attempt to rewrite a file, or to open it, to the end of the next one, in microseconds.
pub(crate) const AGAIN_US: u64 = 6_000_000;

/// Lines of the trace that are kept.
const TRACE_MAX: usize = 20_000;

/// Clients that write and read, and clients that watch, the last of them as a replica.
pub(crate) const CLIENTS: usize = 6;
const WATCHERS: usize = 4;

/// How often something has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that their clients were told are committed.
    pub acknowledged: u64,
    /// Transactions of which nobody knows.
    pub unknown: u64,
    /// Answers that a transaction is never to be.
    pub refused: u64,
    /// Transactions that were committed, by what `weir_outcome` says.
    pub found: u64,
    /// Reads that were compared.
    pub reads: u64,
    /// Reads behind a `weir_sync`.
    pub synced_reads: u64,
    /// Times that a watcher came back and was told what it had missed.
    pub resumed: u64,
    /// Times that a watcher came back and was told all again.
    pub began_anew: u64,
    /// Times that the rows of a replica came to be those of other conditions.
    pub conditions: u64,
    /// Times that the rows of a replica were compared with those of another watcher at the same state.
    pub compared: u64,
    /// Conversions that were answered.
    pub conversions: u64,
    /// Clusters that were made of what was left of one.
    pub recoveries: u64,
    /// Servers that began to join.
    pub joins: u64,
    /// Servers that were started at another address.
    pub moves: u64,
    /// Servers that left, or were removed.
    pub left: u64,
    /// Servers that somebody wanted to be removed since they were silent.
    pub silent: u64,
    /// Times that a session found in its own row what it had written last.
    pub looks: u64,
    /// Writes under a lock that found what the one before had left.
    pub guarded: u64,
    /// Items that were deleted.
    pub deleted: u64,
    /// Answers to clients that change nothing.
    pub served: u64,
    /// Operations on registers, all of which can be explained.
    pub swaps: u64,
    /// Registers of which that was not found out.
    pub undecided: u64,
    /// Terms that had a leader.
    pub terms: u64,
    /// Entries that were seen committed.
    pub entries: u64,
    /// Servers that were asked for an id that somebody was told elsewhere.
    pub ids: u64,
    /// Crashes, kills, cuts, pauses, compactions, files that were not what they had been, full disks, failed
    /// fdatasync(2)s, disks that answered nothing.
    pub faults: [u64; 9],
}

/// What is due.
#[derive(Debug)]
pub(crate) enum Due {
    /// Something has happened to a server.
    Event(Event),
    /// A helper is done.
    Work(WorkId),
    /// A helper has written a copy, unless that many have been begun or let go since.
    Copy(u64, Event),
    /// A step is in the file; up to where the file is synced, and which file.
    Persisted { db: DbId, step: u64, synced: Option<(usize, u64)>, took_us: u64 },
    /// A round in which several things have happened ends.
    Round,
    /// A server's own time has come.
    Wakeup,
    /// A client has been sent something.
    Sent(SessionId),
    /// A session has been ended by the server.
    Ended(SessionId),
    /// A process that was asked to end does, and starts again after so long.
    End { while_us: u64 },
    /// A process starts.
    Start,
    /// The older file that a server came back with comes once more, if that can be.
    Again,
    /// A server that is no member any more ends, with its file.
    Gone,
    /// A client goes on.
    Client(usize),
    /// A client goes on that does not wait for answers.
    Pipeline(usize),
    /// A client goes on that changes nothing.
    Bystander(usize),
    /// A visitor of a standalone server goes on.
    Visitor(usize),
    /// The operator of a standalone server looks after its file.
    Operator,
    /// A host may have heard nothing on a connection for too long: the other end is gone, or cut off.
    Silent(Socket),
    /// A server tries once more to connect to a host of which it has heard nothing.
    Connect(Attempt),
    /// Faults are thought of.
    Faults,
    /// All cuts end.
    Heal,
}

/// Everything.
pub struct World {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    /// The parts that there have been, the faults in their order.
    pub(crate) parts: Vec<Part>,
    pub(crate) coverage: Coverage,
    /// A leader hands over until then.
    pub(crate) transfer_until_us: u64,
    /// The time, in microseconds.
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), (usize, u64, Due)>,
    next: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) clients: Vec<Client>,
    pub(crate) pipelines: Vec<Pipeline>,
    pub(crate) bystanders: Vec<Bystander>,
    /// Clients ask in another tempo each second, and not in the same one all the time.
    pub(crate) tempo_changes: bool,
    pub(crate) checks: Checks,
    /// A standalone server is in the place of the cluster.
    pub(crate) sources: Option<Box<Sources>>,
    pub(crate) faults: Faults,
    /// Faults are over.
    pub(crate) is_calm: bool,
    /// Since when.
    pub(crate) calm_us: Option<u64>,
    /// No faults until then: a server hears what it has forgotten.
    pub(crate) careful_until_us: u64,
    /// Nobody writes any more.
    pub(crate) is_over: bool,
    /// Who has a lock reads what is written under it in requests of their own, too.
    pub(crate) reads_under_locks: bool,
    /// Who takes a lock watches what is written under it.
    pub(crate) watches_under_locks: bool,
    /// Clients that do not wait for answers leave whom they have asked a while ago.
    pub(crate) are_hasty: bool,
    /// Clients that do not wait for answers gather at one server after the other, for its lock alone, and leave in the middle.
    pub(crate) crowds_at_locks: bool,
    /// Clients that do not wait for answers ask for what changes nothing, as well.
    pub(crate) asks_for_nothing: bool,
    /// Clients of relays take locks, too.
    pub(crate) locks_at_relays: bool,
    pub(crate) sessions: u64,
    commands: u64,
    trace: VecDeque<String>,
}

impl World {
    /// A cluster of so many servers, with clients.
    pub fn new(seed: u64, servers: usize, faults: Faults) -> Self {
        let mut rng = Rng::new(seed);
        let ids: Vec<Uuid> = (0..servers)
            .map(|_| Uuid::parse_bytes(rng.uuid().as_bytes()).expect("an id"))
            .collect();
        let mut nodes: Vec<Node> = (0..servers).map(|n| Node::new(n, Vec::new())).collect();
        let members =
            ids.iter().zip(&nodes).map(|(id, node)| (*id, node.address.clone())).collect();
        let cluster = Uuid::parse_bytes(rng.uuid().as_bytes());
        let eid = Uuid::parse_bytes(rng.uuid().as_bytes()).expect("an id");
        let last = Position { term: 1, index: 1 };
        let mark = Mark { last, eid, servers: Arc::new(members), election_timer: TIMER_MS };
        // Without indexes: what is written twice is there twice.
        let schema = Arc::new(
            Schema::parse_bytes(schema("1.0.0").to_string().as_bytes()).expect("a schema"),
        );
        let rows = Database::new(schema, 1).snapshot();
        let file = |n: usize| {
            let (server, name, mark) = (ids[n], "Sim".to_owned(), mark.clone());
            let address = nodes[n].address.clone();
            member_snapshot(&MemberHeader { server, address, name, cluster, mark }, &rows, "", 1)
        };
        let files: Vec<Vec<u8>> = (0..servers).map(file).collect();
        for ((node, file), id) in nodes.iter_mut().zip(files).zip(ids) {
            node.disk = Disk::new(file);
            node.id = Some(id);
        }
        let mut world = Self {
            seed,
            rng,
            plan: Plan::default(),
            parts: (1..CLIENTS + WATCHERS).map(Part::Client).collect(),
            coverage: Coverage::default(),
            transfer_until_us: 0,
            now_us: 1_000_000,
            queue: BTreeMap::new(),
            next: 0,
            nodes,
            network: Network::default(),
            clients: Vec::new(),
            pipelines: Vec::new(),
            bystanders: Vec::new(),
            tempo_changes: false,
            checks: Checks::default(),
            sources: None,
            faults,
            is_calm: false,
            calm_us: None,
            careful_until_us: 0,
            is_over: false,
            reads_under_locks: false,
            watches_under_locks: false,
            are_hasty: false,
            crowds_at_locks: false,
            asks_for_nothing: false,
            locks_at_relays: false,
            sessions: 0,
            commands: 0,
            trace: VecDeque::new(),
        };
        world.checks.served = checks::served::Served::on_lines_of(world.faults.delay_us);
        for n in 0..servers {
            world.due(world.now_us, n, Due::Start);
        }
        for number in 0..CLIENTS + WATCHERS {
            world.clients.push(match number + 1 == CLIENTS + WATCHERS {
                true => Client::replica(number),
                false => Client::new(number, number >= CLIENTS),
            });
            world.due(world.now_us + 1_500_000, 0, Due::Client(number));
        }
        world.due(world.now_us + 2_000_000, 0, Due::Faults);
        world
    }

    /// Nobody visits the cluster.
    pub(crate) fn forget_clients(&mut self) {
        self.clients.clear();
        self.parts.clear();
        self.queue.retain(|_, (_, _, due)| !matches!(due, Due::Client(_)));
    }

    /// The world without some of what would happen in it.
    #[must_use]
    pub fn with_plan(mut self, plan: Plan) -> Self {
        self.parts.retain(|part| plan.has(*part));
        self.plan = plan;
        self
    }

    /// The world with clients that ask all the time in some seconds, and for nothing in others.
    #[must_use]
    pub fn with_tempo_changes(mut self) -> Self {
        self.tempo_changes = true;
        self
    }

    /// What it was made of: clients, and faults in their order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Which faults have met which servers.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// One more server, which has no file.
    pub(crate) fn add_node(&mut self) {
        let mut node = Node::new(self.nodes.len(), Vec::new());
        node.is_spare = true;
        self.nodes.push(node);
    }

    /// One more server, which relays what one of these has. Answers with its number.
    pub fn add_relay(&mut self, sources: &[usize]) -> usize {
        let n = self.nodes.len();
        let mut node = Node::new(n, Vec::new());
        node.sources = Some(addresses(sources));
        self.nodes.push(node);
        self.due(self.now_us, n, Due::Start);
        n
    }

    /// How many servers one may have to try until it finds one to follow: none if it is no relay.
    pub(crate) fn tries_at(&self, n: usize) -> usize {
        let sources = |node: &Node| node.sources.as_ref().map_or(0, |list| list.split(',').count());
        match self.nodes[n].is_relay() {
            true => self.nodes.iter().map(sources).max().unwrap_or(0) + self.refuses_for_s(),
            false => 0,
        }
    }

    /// As many as each server tries that a client writes at: 0 unless all of those are at relays, where they may have
    /// gathered behind a source that was silent.
    pub(crate) fn tries_of_writers(&self) -> usize {
        let writers = self.clients.iter().filter(|client| !client.watches);
        let tries = writers.map(|client| client.session.map_or(0, |(n, ..)| self.tries_at(n)));
        tries.min().unwrap_or(0)
    }

    /// What has happened last, for people.
    pub fn trace(&self, lines: usize) -> String {
        let from = self.trace.len().saturating_sub(lines);
        self.trace.iter().skip(from).cloned().collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn note(&mut self, n: usize, text: &str) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>10.3} ms  {n}  {text}", self.now_us as f64 / 1000.0));
    }

    pub(crate) fn delay_us(&mut self) -> u64 {
        self.rng.below(self.faults.delay_us.max(1)) as u64
    }

    pub(crate) fn due(&mut self, at_us: u64, n: usize, due: Due) {
        self.next += 1;
        self.queue.insert((at_us, self.next), (n, self.nodes[n].life, due));
    }

    pub(crate) fn event_at(&mut self, at_us: u64, n: usize, event: Event) {
        self.due(at_us, n, Due::Event(event));
    }

    /// Lets so many milliseconds go by.
    pub fn run_for(&mut self, ms: u64) {
        let end_us = self.now_us + ms * 1000;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end_us) {
            let ((at_us, _), (n, life, due)) = entry.remove_entry();
            self.now_us = self.now_us.max(at_us);
            self.run(n, life, due);
        }
        self.now_us = end_us;
    }

    fn run(&mut self, n: usize, life: u64, due: Due) {
        match due {
            // The first one writes what all others count.
            Due::Client(number) if number > 0 && !self.plan.has(Part::Client(number)) => return,
            Due::Client(number) => return self.client_goes_on(number),
            Due::Pipeline(number) => return self.pipeline_goes_on(number),
            Due::Bystander(number) => return self.bystander_goes_on(number),
            Due::Visitor(number) => return self.visitor_goes_on(number),
            Due::Operator => return self.operate(),
            Due::Faults => return self.think_of_faults(),
            Due::Heal => return self.heal(),
            _ => {}
        }
        let node = &self.nodes[n];
        if node.life != life {
            // A client hears that its session has ended, also of a process that ends meanwhile.
            if let Due::Ended(session) = due {
                self.session_ended(n, session);
            }
            return;
        }
        if node.paused_until_us > self.now_us {
            return self.due(node.paused_until_us, n, due);
        }
        match due {
            Due::Event(event) => self.handle(n, event),
            Due::Connect(attempt) => self.connect(n, attempt),
            Due::Silent(socket) => self.end_if_silent(End { node: n, socket }),
            Due::Work(id) => self.do_work(n, id),
            Due::Copy(copies, event) if copies == node.disk.copies => self.handle(n, event),
            Due::Copy(..) => {}
            Due::Persisted { db, step, synced, took_us } => {
                self.persisted(n, (db, step), synced, took_us);
            }
            Due::Round => self.settle_node(n),
            Due::Wakeup => {
                let wakeup_us = &mut self.nodes[n].wakeup_us;
                if wakeup_us.take_if(|at_us| *at_us <= self.now_us).is_none() {
                    // It is to be later by now, or was earlier.
                    return;
                }
                let node = &mut self.nodes[n];
                let looked = node.looks.look(self.now_us, n, node.has_short_steps);
                must("liveness", looked);
                self.wake(n);
            }
            Due::Sent(session) if self.sources.is_some() => self.visitor_is_told(n, session),
            Due::Sent(session) if self.is_of_pipeline(session) => self.pipeline_is_told(n, session),
            Due::Sent(session) if self.is_of_bystander(session) => {
                self.bystander_is_told(n, session);
            }
            Due::Sent(session) => self.sent(n, session),
            Due::Ended(session) => self.disconnected(n, session),
            Due::End { while_us } => {
                self.end_process(n, false);
                let while_us = if self.is_calm { 0 } else { while_us };
                self.due(self.now_us + while_us, n, Due::Start);
            }
            Due::Start if node.is_spare => {}
            Due::Start if node.server.is_none() => {
                self.may_move(n);
                self.start(n);
            }
            Due::Start => {}
            Due::Again if self.is_calm => {}
            Due::Again => self.forget(n),
            Due::Gone => {
                self.end_process(n, false);
                self.nodes[n].disk.put(Vec::new());
            }
            Due::Client(_)
            | Due::Pipeline(_)
            | Due::Bystander(_)
            | Due::Visitor(_)
            | Due::Operator
            | Due::Faults
            | Due::Heal => unreachable!("it concerns no server"),
        }
    }

    pub(crate) fn end_process(&mut self, n: usize, is_crash: bool) {
        if self.nodes[n].server.is_none() {
            return;
        }
        self.checks.counts.faults[usize::from(!is_crash)] += 1;
        self.note(n, if is_crash { "has no power" } else { "is killed" });
        // A host without power says nothing, and one that comes back at once has closed what it had.
        let is_told = !(is_crash && self.rng.chance(50));
        self.close_all(n, is_told);
        let sessions: Vec<SessionId> = self.nodes[n].sessions.iter().copied().collect();
        self.nodes[n].end();
        self.nodes[n].is_dark = !is_told;
        match is_crash {
            true if self.faults.lie == Some(Lie::ForgetsAll) => self.nodes[n].disk.forget(),
            true => self.nodes[n].disk.crash(&mut self.rng),
            false => self.nodes[n].disk.kill(),
        }
        sessions.into_iter().for_each(|session| self.session_ended(n, session));
    }

    pub(crate) fn command(&mut self, n: usize, name: &str, args: &[&str]) -> CommandId {
        self.command_at(self.now_us, n, name, args)
    }

    pub(crate) fn command_at(
        &mut self,
        at_us: u64,
        n: usize,
        name: &str,
        args: &[&str],
    ) -> CommandId {
        self.commands += 1;
        let id = CommandId(self.commands);
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.event_at(at_us, n, Event::Command { id, name: name.to_owned(), args });
        id
    }

    /// Ends all faults: every server runs, and everybody hears everybody.
    pub fn calm(&mut self) {
        self.is_calm = true;
        // Who stands still, or whose disk or helpers do, goes on by then, and so does who could not open its file.
        let goes_on_us = |node: &Node| {
            let helped_us = node.slow_until_us.max(node.last_step_us);
            node.paused_until_us.max(helped_us).max(node.opened_by_us)
        };
        let going_us = self.nodes.iter().map(goes_on_us).max().unwrap_or(0);
        // A file that takes nothing is rewritten by then, though that may have failed a moment ago.
        let is_suspect = self.nodes.iter().any(|node| node.disk.is_suspect);
        let rewritten_us = if is_suspect { self.now_us + AGAIN_US } else { 0 };
        let calm_us = self.now_us.max(going_us).max(rewritten_us);
        self.calm_us = Some(calm_us);
        self.checks.liveness.calm(calm_us, TIMER_MS * 1000);
        self.faults = Faults { sync_us: 500, delay_us: 500, ..Faults::default() };
        self.heal();
        self.renew_sources();
        for n in 0..self.nodes.len() {
            (self.nodes[n].full_until_us, self.nodes[n].breaks_sync) = (0, false);
            if self.nodes[n].server.is_none() && !self.nodes[n].is_spare {
                self.nodes[n].life += 1;
                self.due(self.now_us, n, Due::Start);
            }
        }
    }

    /// A relay all of whose sources have left for good finds nobody: its operator names others and starts it again.
    fn renew_sources(&mut self) {
        let stays = |n: &usize| {
            self.nodes[*n].is_relay() || self.nodes[*n].is_member() && !self.nodes[*n].is_leaving
        };
        let staying: Vec<usize> = (0..self.nodes.len()).filter(stays).collect();
        for n in 0..self.nodes.len() {
            let Some(sources) = &self.nodes[n].sources else { continue };
            let is_named =
                |other: &usize| sources.split(',').any(|source| source == client_address(*other));
            if !staying.iter().any(is_named) {
                let members = staying.iter().copied().filter(|n| !self.nodes[*n].is_relay());
                self.nodes[n].sources = Some(addresses(&members.collect::<Vec<_>>()));
                self.end_process(n, false);
            }
        }
    }

    /// What `cluster/status` says of each member that runs, and `weir/status` of each relay.
    pub fn status(&mut self) -> String {
        // What is wrong has been found.
        self.is_over = true;
        let mut all = String::new();
        for n in 0..self.nodes.len() {
            for (command, args) in [("cluster/status", &["Sim"][..]), ("weir/status", &[])] {
                let id = self.command(n, command, args);
                self.run_for(1);
                if let Some(Ok(status)) = self.nodes[n].replies.remove(&id) {
                    all.push_str(&format!("--- server {n}\n{status}\n"));
                }
            }
        }
        all
    }

    /// How often something has happened.
    pub fn counts(&self) -> Counts {
        self.checks.counts
    }
}
