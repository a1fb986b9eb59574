//! The server: its owners, and how events and effects pass between the shell and them.
//!
//! Each field is an owner with state of its own. What concerns one of them is done there; what
//! concerns several is in this folder, a file for each kind of occasion.

mod checks;
mod clustering;
mod commands;
mod delivering;
mod ending;
mod locks;
mod opening;
mod reconfiguring;
mod relaying;
mod requests;
mod round;

use weir_data::Uuid;
use weir_upstream::Input;

use crate::admin::Admin;
use crate::backup::Backups;
use crate::clusters::Clusters;
use crate::database::{Databases, Db, server_db};
use crate::delivery::Deliveries;
use crate::effect::Effect;
use crate::event::Event;
use crate::ids::{DbId, LinkId, Now, SessionId, WorkId, earliest};
use crate::log_searches::LogSearches;
use crate::monitors::Subscriptions;
use crate::options::{Config, StartStatus};
use crate::relays::Relays;
use crate::remotes::Remotes;
use crate::server::checks::Checks;
use crate::server::round::{Round, Turn};
use crate::session::Sessions;
use crate::session::message::Incoming;
use crate::shell::Shell;
use crate::states::States;
use crate::storage::Storage;
use crate::work::Finished;

/// The server core.
pub struct Server {
    /// What get_server_id answers.
    id: Uuid,
    shell: Shell,
    sessions: Sessions,
    databases: Databases,
    subscriptions: Subscriptions,
    deliveries: Deliveries,
    log_searches: LogSearches,
    states: States,
    remotes: Remotes,
    backups: Backups,
    clusters: Clusters,
    relays: Relays,
    admin: Admin,
    /// What waits until its database is decided.
    round: Round,
    /// Big messages that helpers look at.
    checks: Checks,
}

impl Server {
    /// A server that begins by opening its databases.
    pub fn new(now: Now, config: Config) -> Self {
        let mut shell = Shell::new(now, config.seed);
        let id = shell.uuids().next_uuid();
        let mut server = Self {
            id,
            sessions: Sessions::default(),
            databases: Databases::new(),
            subscriptions: Subscriptions::default(),
            deliveries: Deliveries::default(),
            log_searches: LogSearches::default(),
            states: States::of_process(id),
            remotes: Remotes::new(config.tls.clone()),
            backups: Backups::new(id, config.config_file.is_some()),
            clusters: Clusters::default(),
            relays: Relays::default(),
            admin: Admin::new(config.config_file.clone(), config.files),
            round: Round::default(),
            checks: Checks::default(),
            shell,
        };
        match server_db::new(server.shell.uuids().next_u64()) {
            Ok(database) => {
                let db = server.databases.next_id();
                server.add_database(db, database, (Storage::Reserved, None));
            }
            Err(error) => server.admin.fail_start(error),
        }
        if let Some(bytes_max) = config.kept_bytes_max {
            server.sessions.limit_kept(bytes_max);
        }
        server.begin(config);
        server
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Now, event: Event) {
        self.shell.tick(now);
        self.let_waiting_go();
        match event {
            Event::Accepted { session, remote, name, client } => {
                self.accept(session, remote, name, client);
            }
            Event::Message { session, bytes } => self.receive(session, Incoming::Raw(bytes)),
            Event::TooLong { session, bytes } => self.too_long(session, bytes),
            Event::Refused { session, outline, bytes } => {
                self.receive(session, Incoming::Refused { outline, bytes });
            }
            Event::WorkDone { id, finished } => self.work_done(id, *finished),
            Event::Activity { session } => self.sessions.heard(&self.shell, session),
            Event::BadStream { session, error } => self.bad_stream(session, &error),
            Event::Closed { session, error } => self.closed(session, error.as_deref()),
            Event::Blocked { session } => {
                self.sessions.set_blocked(session, true);
            }
            Event::Drained { session } => self.drained(session),
            Event::Appended { db, result } => self.appended(db, &result),
            Event::Opened { db, result } => self.opened(db, result.map(|loaded| *loaded)),
            Event::FileSuspect { db } => self.file_suspect(db),
            Event::CompactionWritten { db, result } if self.clusters.part(db).is_some() => {
                self.member_copy_written(db, result);
            }
            Event::CompactionWritten { db, result } => {
                self.await_turn(db, Turn::CompactionWritten(result));
            }
            Event::CompactionFinished { db, result } => self.replaced(db, result),
            Event::KeysKept { db, result } => {
                let Self { shell, sessions, databases, .. } = self;
                databases.keys_kept(shell, sessions, db, result);
            }
            Event::Converted { db, result } => self.await_turn(db, Turn::Converted(result)),
            Event::Listening { remote, result } => {
                self.remotes.listening(&mut self.shell, remote, result);
            }
            Event::LinkUp { link } if self.clusters.has_link(link) => self.peer_up(link),
            Event::LinkUp { link } => self.link_event(link, Input::Up),
            Event::LinkMessage { link, bytes } if let Some(db) = self.relays.of_link(link) => {
                self.relay_message(db, bytes);
            }
            Event::LinkMessage { link, bytes } => {
                let Self { shell, sessions, databases, backups, .. } = self;
                backups.link_message(shell, sessions, databases, link, bytes);
            }
            Event::LinkActivity { link } => self.link_event(link, Input::Activity),
            Event::LinkDown { link, error } if self.clusters.has_link(link) => {
                self.peer_down(link, error);
            }
            Event::LinkDown { link, error } => {
                self.link_event(link, Input::Down(error.as_deref()));
            }
            Event::LinkBytes { link, bytes } => self.peer_bytes(link, bytes),
            Event::LinkAccepted { port, link, name } => self.peer_accepted(port, link, name),
            Event::PeerPort { port, result } => self.peer_port(port, result.is_ok()),
            Event::Persisted { db, step, result } => self.persisted(db, step, result),
            Event::FileRead { db, id, result } => self.file_read(db, id, result),
            Event::ReceivedWritten { db, upto, result } => {
                self.received_written(db, result.map(|()| upto));
            }
            Event::ReceivedSynced { db, result } => self.received_synced(db, result),
            Event::ConfigurationRead { result } => self.round.configuration_read(result),
            Event::ConnectFailed { remote, error } => {
                self.remotes.connect_failed(&mut self.shell, remote, error.as_deref());
            }
            Event::Outboxes { outboxes } => {
                let Self { shell, sessions, databases, deliveries, .. } = self;
                deliveries.looked(shell, sessions, databases, outboxes);
            }
            Event::HostStatus(status) => self.admin.set_host_status(*status),
            Event::Stopping => self.hand_leadership_over(),
            Event::Idle => self.databases.shrink(),
            Event::Backlog { bytes, peers } => self.admin.set_backlog(bytes, peers),
            Event::Command { id, name, args } => {
                self.round.command(id, name, args, self.shell.now_us());
            }
        }
    }

    /// A round begins: each session may have one more message handled, and what has a share of a round
    /// has it again.
    pub fn begin_round(&mut self) {
        self.databases.begin_round();
        self.backups.begin_round();
        self.relays.begin_round();
        self.sessions.begin_round();
        self.round.begin();
    }

    /// All ready events have been handled: runs timers, asks for appends, answers what needs none.
    /// Called again behind what effects of the round have led to at once, so that what is decided then
    /// is answered; what has used up its share waits for the next round.
    pub fn end_round(&mut self, now: Now) {
        self.shell.tick(now);
        self.let_waiting_go();
        self.run_timers();
        if !self.clusters.is_empty() {
            self.run_members();
        }
        self.take_queued();
        self.advance();
        if !self.clusters.is_empty() {
            self.run_members();
            // What members had run is proposed now, and not when the next thing happens.
            self.advance();
        }
        if !self.relays.is_idle() {
            self.run_relays();
        }
        if !self.relays.paths.is_empty() {
            self.tell_paths();
        }
        if !self.states.is_empty() {
            self.run_states();
        }
        if self.sessions.has_lock_news() {
            self.tell_of_locks();
        }
        self.end_who_exceeds();
        self.databases.flush_if_due(&mut self.shell, &mut self.sessions);
        self.deliveries.run(&mut self.shell, &self.sessions, &self.databases);
        self.databases.tend_keys(&mut self.shell);
        self.databases.sweep();
        self.compact_if_due();
        self.databases.start_conversions(&mut self.shell, &mut self.sessions);
        if self.remotes.is_stale() {
            self.follow_if_stale();
        }
        if !self.admin.serves() {
            self.admin.note_status(self.remotes.all_tried());
        }
    }

    /// Moves all effects so far to `out`, in their order.
    pub fn poll_effects(&mut self, out: &mut Vec<Effect>) {
        self.shell.poll_effects(out);
    }

    /// When a round must be had even if nothing happens, on the monotonic clock; 0 if something waits for
    /// nothing else.
    pub fn next_wakeup_us(&self) -> Option<u64> {
        let may_connect = self.admin.serves() || self.start_status() == StartStatus::Ready;
        let is_postponed = self.round.is_postponed() || self.databases.are_turns_postponed();
        let has_mail_of = |(id, db): (DbId, &Db)| db.is_decided() && self.backups.has_waiting(id);
        earliest([
            (self.sessions.are_any_ready() || is_postponed).then_some(0),
            self.sessions.is_order_to_be_looked_at().then_some(0),
            self.sessions.have_released_unlocks().then_some(0),
            (self.databases.want_tending() || self.databases.are_to_be_swept()).then_some(0),
            self.databases.next_us(),
            (self.has_mail() || self.databases.iter().any(has_mail_of)).then_some(0),
            self.backups.next_us().filter(|_| may_connect),
            self.clusters.next_us(),
            self.relays.next_us().filter(|_| may_connect),
            self.remotes.next_us().filter(|_| may_connect),
            self.remotes.next_status_us(&self.databases),
            self.databases.has_grown().then(|| self.admin.next_compaction_us()),
            self.admin.to_open_again.next_us(),
            self.subscriptions.next_us(),
            self.deliveries.next_us(),
            self.states.next_us(),
            self.sessions.next_probe_us(),
            self.sessions.next_deaf_us(),
        ])
    }

    /// Whether updates wait for an idle moment. Those of a stream of transactions wait for their
    /// deadline instead, which [`Server::next_wakeup_us`] knows.
    pub fn has_pending_updates(&self) -> bool {
        self.databases.want_idle_moment()
    }

    /// Sends what is pending to every session that keeps up.
    pub fn flush_updates(&mut self, now: Now) {
        self.shell.tick(now);
        self.databases.flush_all(&mut self.shell, &mut self.sessions);
        self.end_who_exceeds();
    }

    /// Sets the most that one transaction may cost in a step of the core, in units of about 50 ns.
    /// 0 sends everything to helpers, `u64::MAX` nothing; answers do not depend on it.
    pub fn set_step_cost_max(&mut self, units: u64) {
        self.databases.set_step_cost_max(units);
    }

    /// Bytes of the changes that are kept for clients that come back, or are behind.
    pub fn change_log_bytes(&self) -> usize {
        self.databases.values().map(|db| db.history().counts().bytes).sum()
    }

    /// How many times waiting transactions have run again.
    pub fn ran_again(&self) -> u64 {
        self.databases.ran_again()
    }

    /// Whether nothing is left that must be done before the end, behind [`Event::Stopping`].
    pub fn may_stop(&self) -> bool {
        self.clusters.may_stop(self.shell.now_us())
    }

    /// How often rows were looked for in each way, by requests that were answered and for monitors, by
    /// the names of the coverage counters.
    pub fn query_counts(&self) -> [(&'static str, u64); 8] {
        self.databases.query_counts()
    }

    /// How far the start has come.
    pub fn start_status(&self) -> StartStatus {
        self.admin.start_status(self.remotes.all_tried())
    }

    /// What logs call a session.
    pub fn session_name(&self, session: SessionId) -> Option<&str> {
        self.sessions.get(session).map(crate::session::Session::name)
    }

    /// Bytes of messages that are at work, are for leaders of clusters and sources of relays, or wait for their turn, but for
    /// short ones that wait: what the shell need not wait for before it takes more is not counted.
    pub fn message_bytes(&self) -> usize {
        // What waits for a leader or a source that is not there may do so for long, and keeps nobody else's messages out.
        let led = self.clusters.parts.values().filter(|part| part.member.leader().is_some());
        let asked = led.map(|part| part.forwards.message_bytes());
        let fed = self.relays.by_db.values().filter(|relay| relay.follower.may_ask());
        let relayed = fed.map(|relay| relay.forwards.message_bytes());
        let here = self.checks.bytes() + self.databases.message_bytes();
        here + self.sessions.stopped_bytes() + asked.chain(relayed).sum::<usize>()
    }

    /// Everything that time alone brings about.
    fn run_timers(&mut self) {
        let Self { shell, sessions, databases, subscriptions, remotes, backups, .. } = self;
        databases.run_waits(shell, sessions);
        if self.admin.serves() {
            backups.run(shell, sessions, databases);
            remotes.connect_if_due(shell);
        }
        subscriptions.forget_initial_if_due(shell, databases);
        for dead in self.sessions.run_probes(&mut self.shell) {
            self.disconnect(dead);
        }
        for deaf in self.sessions.take_deaf(&mut self.shell) {
            self.disconnect(deaf);
        }
        let Self { shell, sessions, databases, remotes, .. } = self;
        remotes.write_status_if_due(shell, sessions, databases);
        self.open_again_if_due();
    }

    /// fdatasync(2) has failed: the file takes nothing until it is rewritten.
    fn file_suspect(&mut self, db: DbId) {
        let Self { shell, databases, clusters, .. } = self;
        if let Some(part) = clusters.parts.get_mut(&db) {
            part.growth.note_suspect();
            if databases.get(db).is_none() {
                part.growth.fail_copy(shell.now_us());
            }
        } else if databases.get(db).is_some() {
            databases.file_suspect(shell, db);
        }
    }

    fn compact_if_due(&mut self) {
        let is_time = self.admin.next_compaction_us() <= self.shell.now_us();
        if is_time && self.databases.has_grown() {
            self.admin.note_compaction_check(&self.shell);
            self.databases.compact_if_due(&mut self.shell);
        }
        self.databases.rewrite_if_due(&mut self.shell);
        if !self.clusters.is_empty() {
            self.copy_member_files_if_due();
        }
    }

    /// A session's outbox is empty again: what waited for that may go.
    fn drained(&mut self, id: SessionId) {
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        sessions.set_blocked(id, false);
        sessions.heard(shell, id);
        subscriptions.feed(shell, sessions, databases, id);
        databases.want_updates(shell);
    }

    fn link_event(&mut self, link: LinkId, input: Input<'_>) {
        if let Some(db) = self.relays.of_link(link) {
            return self.relay_event(db, link, input);
        }
        let Self { shell, sessions, databases, backups, .. } = self;
        backups.link_event(shell, sessions, databases, link, input);
    }

    /// A piece of work is done. What it leads to may have to wait until its database is decided.
    fn work_done(&mut self, id: WorkId, finished: Finished) {
        let Self { shell, sessions, databases, subscriptions, backups, .. } = self;
        let turn: Option<(DbId, Turn)> = match finished {
            Finished::Examined(examined) => {
                self.checked(id, examined);
                None
            }
            Finished::Prepared(ready) => {
                self.prepared(id, ready);
                None
            }
            Finished::Written(written) => {
                let answer = databases.have_written(shell, sessions, id, written);
                answer.map(|(db, answer)| (db, Turn::Answer(answer)))
            }
            Finished::Read(outcome) => {
                let answer = databases.have_read(shell, sessions, id, outcome);
                answer.map(|(db, answer)| (db, Turn::Answer(answer)))
            }
            Finished::Tried(tried) => {
                let answer = databases.have_tried(shell, sessions, id, tried);
                answer.map(|(db, answer)| (db, Turn::Answer(answer)))
            }
            Finished::Piece(piece) => {
                let begun = subscriptions.have_composed(shell, sessions, databases, id, piece);
                begun.map(|(db, begun)| (db, Turn::Initial(begun)))
            }
            Finished::Changed(difference) => {
                let (db, changed) = subscriptions.have_changed(id, difference);
                Some((db, Turn::Changed(changed)))
            }
            Finished::Updated(bodies) => {
                self.updated(id, bodies);
                None
            }
            Finished::Mirrored(mirrored) => {
                backups.have_mirrored(shell, sessions, databases, id, mirrored);
                None
            }
            Finished::Followed(followed) => {
                let converted = databases.have_followed(shell, id, followed);
                converted.map(|(db, converted)| (db, Turn::Converted(Ok(converted))))
            }
            Finished::Recasted(recasted) => {
                self.recasted(id, recasted);
                None
            }
            Finished::Loaded(loaded) => {
                self.have_loaded(id, loaded);
                None
            }
            Finished::TakenIn(taken) => {
                self.have_taken_in(id, taken);
                None
            }
            Finished::TakenOver(taken) => {
                if let Some(taken) = self.have_taken_over_relay(id, taken) {
                    self.have_taken_over(id, taken);
                }
                None
            }
            Finished::Found(found) => {
                let (session, request, reply) = self.log_searches.have_found(id, found);
                self.answer(session, &request, reply);
                None
            }
            Finished::Freed => None,
        };
        if let Some((db, turn)) = turn {
            self.await_turn(db, turn);
        }
    }

    /// Something has changed that remotes may depend on.
    fn remotes_changed(&mut self) {
        self.remotes.note_changed();
        self.follow_if_stale();
    }

    /// Remotes follow what has changed, if that can be read.
    fn follow_if_stale(&mut self) {
        // What is wrong while databases are being opened may be right at the end.
        if !self.remotes.is_stale() || self.admin.is_reconfiguring() {
            return;
        }
        let Self { shell, sessions, databases, remotes, .. } = self;
        for remote in remotes.follow(shell, sessions, databases) {
            for session in self.sessions.of_remote(remote) {
                self.disconnect(session);
            }
        }
    }
}
