//! The server: databases, sessions, locks and remotes behind `handle` and `poll_effects`.
//!
//! Method families: `handle` and `end_round` take what happened; `poll_effects`,
//! `next_wakeup_us`, `has_pending_updates` and `start_status` say what to do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use weir_data::{Uuid, UuidSource};
use weir_log::compact;
use weir_monitor::MonitorKey;

use crate::admin::configuration::{DbConfig, Model};
use crate::admin::reconfigure::{Opening, Reconfiguration};
use crate::backup::replication::Sync;
use crate::database::databases::Databases;
use crate::database::server_db;
use crate::database::{Db, Standalone, Storage};
use crate::effect::{Effect, Level, TlsSettings};
use crate::event::{Bytes, CommandId, DbId, Event, HostStatus, LinkId, Now, SessionId};
use crate::monitors::first_rows::Herds;
use crate::monitors::pages::Streams;
use crate::remotes::Remotes;
use crate::remotes::tls::TlsState;
use crate::round::{Deferred, Round};
use crate::session::Session;
use crate::session::gate::Incoming;
use crate::session::locks::Locks;
use crate::session::probes::Probes;
use crate::storage::load::{Loaded, PassedOver};
use crate::work::away::{Out, STEP_COST_MAX};
use crate::work::{Garbage, WorkId};
use weir_upstream::replication::Input;

/// What the server is told at its start.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Fresh randomness: UUIDs and hash seeds derive from it.
    pub seed: [u64; 4],
    /// Name in messages, `ovsdb-server`.
    pub server_name: &'static str,
    /// `--remote` options in their order: `punix:`, `ptcp:`, `db:DB,TABLE,COLUMN`.
    pub remotes: Vec<String>,
    /// Options of TLS; each but `peer_ca_cert` may be a `db:DB,TABLE,COLUMN`.
    pub tls: TlsSettings,
    /// Absolute paths of database files.
    pub databases: Vec<String>,
    /// `--sync-from`: the server that databases follow.
    pub sync_from: Option<String>,
    /// `--sync-exclude-tables`, which [`crate::admin::configuration::check_excluded`] has accepted.
    pub sync_exclude: Option<String>,
    /// `--active`: they do not follow it yet.
    pub sync_active: bool,
    /// `--config-file`, absolute: it says what the fields above say otherwise.
    pub config_file: Option<String>,
    /// What a child of the same monitor process was told to save last
    /// ([`Effect::SaveConfiguration`]); it counts instead of the command line.
    pub saved: Option<Vec<u8>>,
    /// In which form they are written.
    pub files: FileForms,
}

/// In which form database files are written: as servers of an older version can read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileForms {
    /// `--disable-file-column-diff`: changed columns whole, for servers before 2.16. An admin
    /// command ends it.
    pub whole_columns: bool,
    /// `--disable-file-no-data-conversion`: the rows with every conversion, which standalone files
    /// have anyway.
    pub whole_conversions: bool,
}

/// How far the start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartStatus {
    /// Databases or listeners are still being opened.
    Starting,
    /// Every database is open and every listener has been tried.
    Ready,
    /// It cannot start; these lines say why.
    Failed(Vec<String>),
}

/// The server core.
pub struct Server {
    pub(crate) uuids: UuidSource,
    /// What get_server_id answers.
    pub(crate) id: Uuid,
    pub(crate) dbs: Databases,
    pub(crate) db_names: BTreeMap<String, DbId>,
    pub(crate) opening: BTreeMap<DbId, Opening>,
    pub(crate) reconfiguring: Option<Reconfiguration>,
    pub(crate) config_file: Option<String>,
    pub(crate) sync: Sync,
    /// Connections that databases have made to their sources.
    pub(crate) links: BTreeMap<LinkId, DbId>,
    pub(crate) next_link: u64,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// How many of them take no updates.
    pub(crate) mute: usize,
    pub(crate) monitor_sessions: HashMap<MonitorKey, SessionId, FixedState>,
    pub(crate) locks: Locks,
    pub(crate) remotes: Remotes,
    pub(crate) tls: TlsState,
    /// When the status of remotes is to be written to their tables.
    pub(crate) status_us: u64,
    /// What has been said about columns for it that are missing.
    pub(crate) status_complaints: Vec<String>,
    pub(crate) probes: Probes,
    pub(crate) round: Round,
    /// Work that is out.
    pub(crate) out: BTreeMap<WorkId, Out>,
    pub(crate) next_work: u64,
    /// Sessions with messages that wait for nothing but their turn.
    pub(crate) ready: VecDeque<SessionId>,
    /// Monitors that wait for their first rows.
    pub(crate) herds: Herds,
    /// Long messages on their way.
    pub(crate) streams: Streams,
    /// See [`STEP_COST_MAX`].
    pub(crate) step_cost_max: u64,
    /// Bytes queued for clients, as told last.
    pub(crate) backlog: usize,
    /// What the shell has told for `weir/status`.
    pub(crate) host_status: HostStatus,
    pub(crate) trim_on_compaction: bool,
    pub(crate) files: FileForms,
    /// `disable-monitor-cond`
    pub(crate) no_conditions: bool,
    pub(crate) compaction_check_us: u64,
    /// The shell has heard that all is open: what is connected to comes after that.
    pub(crate) serves: bool,
    /// When initial rows kept for a herd of equal monitors go.
    pub(crate) forget_initial_us: Option<u64>,
    pub(crate) start_errors: Vec<String>,
    /// What the shell is to do.
    pub(crate) effects: Vec<Effect>,
    next_db: u64,
    /// What comes before a message that is in one piece.
    no_head: Bytes,
}

impl Server {
    /// A server that begins by opening its databases.
    pub fn new(now: Now, config: Config) -> Self {
        let mut uuids = UuidSource::new(config.seed);
        let mut server = Self {
            id: uuids.next_uuid(),
            dbs: Databases::default(),
            db_names: BTreeMap::new(),
            opening: BTreeMap::new(),
            reconfiguring: None,
            config_file: config.config_file.clone(),
            sync: Sync::default(),
            links: BTreeMap::new(),
            next_link: 0,
            sessions: BTreeMap::new(),
            mute: 0,
            monitor_sessions: HashMap::with_hasher(FixedState::with_seed(uuids.next_u64())),
            locks: Locks::default(),
            remotes: Remotes::new(),
            tls: TlsState { configured: config.tls.clone(), ..TlsState::default() },
            status_us: 0,
            status_complaints: Vec::new(),
            probes: Probes::default(),
            round: Round::default(),
            out: BTreeMap::new(),
            next_work: 0,
            ready: VecDeque::new(),
            herds: Herds::default(),
            streams: Streams::default(),
            step_cost_max: STEP_COST_MAX,
            backlog: 0,
            host_status: HostStatus::default(),
            trim_on_compaction: true,
            files: config.files,
            no_conditions: false,
            compaction_check_us: 0,
            forget_initial_us: None,
            serves: false,
            start_errors: Vec::new(),
            effects: Vec::new(),
            next_db: 0,
            no_head: Bytes::default(),
            uuids,
        };
        match server_db::new(server.uuids.next_u64()) {
            Ok(engine) => {
                let db = server.next_db_id();
                server.add_database(now, db, engine, Storage::Memory);
            }
            Err(error) => server.start_errors.push(error),
        }
        server.begin(now, config);
        server
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Now, event: Event) {
        self.remotes.tick(now);
        match event {
            Event::Accepted { session, remote, name, client } => {
                self.accept(now, session, remote, name, client);
            }
            Event::Message { session, bytes } => {
                self.receive(now, session, Incoming::Raw(bytes));
            }
            Event::TooLong { session, bytes } => self.too_long(session, bytes),
            Event::Refused { session, outline, bytes } => {
                self.receive(now, session, Incoming::Refused { outline, bytes });
            }
            Event::WorkDone { id, finished } => self.work_done(now, id, *finished),
            Event::Activity { session } => self.heard(now, session),
            Event::BadStream { session, error } => self.bad_stream(session, &error),
            Event::Closed { session, error } => self.closed(session, error.as_deref()),
            Event::Blocked { session } => self.set_blocked(session, true),
            Event::Drained { session } => self.drained(now, session),
            Event::Appended { db, result } => self.appended(now, db, result),
            Event::Opened { db, result } => self.opened(now, db, result.map(|loaded| *loaded)),
            Event::FileSuspect { db } => self.file_suspect(now, db),
            Event::CompactionWritten { db, result } => {
                self.round.deferred.push(Deferred::CompactionWritten { db, result });
            }
            Event::CompactionFinished { db, result } => {
                if self.dbs.get(&db).is_some_and(|db| db.conversions.is_busy()) {
                    self.round.deferred.push(Deferred::ConversionFinished { db, result });
                } else {
                    self.compaction_finished(now, db, result);
                }
            }
            Event::Converted { db, result } => {
                self.round.deferred.push(Deferred::Converted { db, result });
            }
            Event::Listening { remote, result } => self.listening(remote, result),
            Event::LinkUp { link } => self.link_event(now, link, Input::Up),
            Event::LinkMessage { link, bytes } => self.link_message(now, link, bytes),
            Event::LinkActivity { link } => self.link_event(now, link, Input::Activity),
            Event::LinkDown { link, error } => {
                self.link_event(now, link, Input::Down(error.as_deref()));
            }
            Event::ConfigurationRead { result } => {
                self.round.deferred.push(Deferred::ConfigurationRead { result });
            }
            Event::ConnectFailed { remote, error } => {
                self.connection_failed(now, remote, error.as_deref());
            }
            Event::HostStatus(status) => self.host_status = *status,
            Event::Backlog { bytes } => self.backlog = bytes,
            Event::Command { id, name, args } => {
                self.round.deferred.push(Deferred::Command { id, name, args });
            }
        }
    }

    /// All ready events have been handled: runs timers, asks for appends, answers what needs none.
    pub fn end_round(&mut self, now: Now) {
        self.remotes.tick(now);
        self.run_timers(now);
        self.take_queued(now);
        self.finish_round(now);
        if self.round.is_decided() {
            self.flush_if_due(now);
            self.compact_if_due(now);
            self.rewrite_if_due(now);
            self.start_conversions(now);
        }
        self.serves = self.serves || matches!(self.start_status(), StartStatus::Ready);
    }

    /// Moves all effects so far to `out`, in their order.
    pub fn poll_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// When `end_round` must be called even if nothing happens, on the monotonic clock.
    pub fn next_wakeup_us(&self) -> Option<u64> {
        let may_connect = self.serves || matches!(self.start_status(), StartStatus::Ready);
        let all = [
            (!self.ready.is_empty()).then_some(0),
            self.dbs.values().filter_map(Db::deadline_us).min(),
            self.next_replication_us().filter(|_| may_connect),
            self.remotes.next_us().filter(|_| may_connect),
            self.next_status_us(),
            self.next_compaction_us(),
            self.next_rewrite_us(),
            self.herds.next_us(),
            self.probes.next_us(),
            self.forget_initial_us,
        ];
        all.into_iter().flatten().min()
    }

    /// Sets the most that one transaction may cost in a step of the core, in units of about 50 ns.
    /// 0 sends everything to helpers, `u64::MAX` nothing; answers do not depend on it.
    pub fn set_step_cost_max(&mut self, units: u64) {
        self.step_cost_max = units;
    }

    /// How far the start has come.
    pub fn start_status(&self) -> StartStatus {
        if !self.start_errors.is_empty() {
            StartStatus::Failed(self.start_errors.clone())
        } else if self.reconfiguring.is_none() && self.remotes.all_tried() {
            StartStatus::Ready
        } else {
            StartStatus::Starting
        }
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.extend(self.streams.divert(effect));
    }

    /// Effects as they are, also for sessions in the middle of a long message.
    pub(crate) fn push_effects(&mut self, effects: Vec<Effect>) {
        self.effects.extend(effects);
    }

    pub(crate) fn log(&mut self, module: &'static str, level: Level, text: impl Into<String>) {
        self.effects.push(Effect::Log { module, level, text: text.into(), limit: None });
    }

    /// Logs what a peer can provoke as often as it likes; `place` is where in the program.
    pub(crate) fn log_limited(
        &mut self,
        place: &'static str,
        module: &'static str,
        level: Level,
        text: String,
    ) {
        self.effects.push(Effect::Log { module, level, text, limit: Some(place) });
    }

    /// What logs call a session.
    pub fn session_name(&self, session: SessionId) -> Option<&str> {
        self.sessions.get(&session).map(|session| session.identity.name.as_str())
    }

    pub(crate) fn send(&mut self, session: SessionId, message: Vec<u8>) {
        let (head, body) = (Arc::clone(&self.no_head), Arc::new(message));
        self.effect(Effect::Send { to: vec![session], head, body });
    }

    pub(crate) fn next_db_id(&mut self) -> DbId {
        self.next_db += 1;
        DbId(self.next_db)
    }

    /// Asks the shell for a database file.
    pub(crate) fn open_database(
        &mut self,
        path: String,
        config: DbConfig,
        command: Option<CommandId>,
    ) {
        let db = self.next_db_id();
        let name = path.clone();
        self.opening.insert(db, Opening { name, config, command });
        let seed = self.uuids.next_u64();
        self.effect(Effect::Open { db, path, seed });
    }

    fn opened(&mut self, now: Now, db: DbId, result: Result<Loaded, String>) {
        let Some(Opening { name, config, command }) = self.opening.remove(&db) else { return };
        let is_clustered = config.model == Some(Model::Clustered);
        let result = result.and_then(|loaded| match is_clustered {
            true => Err(format!("ovsdb error: {name}: database is standalone and not clustered")),
            false => self.check_name(loaded),
        });
        let reply = match result {
            Ok(loaded) => {
                self.install(now, db, loaded);
                self.configure_database(db, config);
                Ok(String::new())
            }
            Err(error) => {
                self.effect(Effect::Close { db });
                Err(error)
            }
        };
        match (command, reply) {
            (Some(id), reply) => {
                self.effect(Effect::CommandReply { id, reply });
                self.save_configuration();
            }
            (None, Err(error)) => self.open_failed(&name, &error),
            (None, Ok(_)) => {}
        }
        self.continue_reconfiguration();
    }

    fn check_name(&self, loaded: Loaded) -> Result<Loaded, String> {
        let name = &loaded.database.schema().name;
        if name.starts_with('_') {
            return Err(format!("ovsdb error: {name}: names beginning with \"_\" are reserved"));
        }
        if self.db_names.contains_key(name) {
            return Err(format!("ovsdb error: {name}: duplicate database name"));
        }
        Ok(loaded)
    }

    fn install(&mut self, now: Now, db: DbId, loaded: Loaded) {
        let size = loaded.valid_len();
        if let Some(warning) = loaded.warning {
            self.log("ovsdb_server", Level::Error, warning);
        }
        let PassedOver { records: passed_over, reasons } = loaded.passed_over;
        for reason in reasons {
            self.log("ovsdb_server", Level::Error, reason);
        }
        if passed_over > 0 {
            let path = &loaded.path;
            let text = format!(
                "{path}: {passed_over} records that break integrity were passed over; they stay in \
                 the file until somebody asks for its compaction"
            );
            self.log("ovsdb_server", Level::Warning, text);
        }
        let storage = Storage::Standalone(Standalone {
            path: loaded.path,
            size,
            snapshot_size: loaded.snapshot_len,
            records: loaded.records.saturating_sub(2),
            passed_over,
            appended: (0, 0),
            compacted_us: now.monotonic_us,
            jitter_ms: self.uuids.next_u64() % compact::JITTER_MS,
            fault: None,
            rewrite_us: None,
            compaction: None,
        });
        self.add_database(now, db, loaded.database, storage);
    }

    fn add_database(
        &mut self,
        now: Now,
        id: DbId,
        engine: weir_engine::Database,
        storage: Storage,
    ) {
        let db = Db::new(engine, storage, self.uuids.next_u64());
        let name = db.name.clone();
        let row = self.uuids.next_uuid();
        let insert = server_db::insert(&name, db.engine.schema(), row);
        self.db_names.insert(name.clone(), id);
        self.dbs.insert(id, db);
        self.change_server_db(now, &insert);
        self.disconnect_unaware(&format!("adding {name} database"));
        self.remotes_changed();
    }

    /// Removes a database and everything that depends on it.
    pub(crate) fn remove_database(&mut self, now: Now, id: DbId, reason: &str) {
        self.stop_following(id);
        let Some(mut db) = self.dbs.remove(&id) else { return };
        self.db_names.remove(&db.name);
        self.cancel_monitors(id, &[]);
        self.cancel_conversions(std::mem::take(&mut db.conversions));
        for trigger in db.waiting.take() {
            self.reply_canceled(&trigger);
        }
        self.go_on(std::mem::take(&mut db.queue));
        if let Some(engine) = db.engine.leave() {
            self.free(Garbage::Database(engine));
        }
        self.effect(Effect::Close { db: id });
        self.change_server_db(now, &server_db::delete(&db.name));
        self.disconnect_unaware(reason);
        self.remotes_changed();
        self.save_configuration();
    }

    /// Makes one change to `_Server` and shows it to its monitors.
    pub(crate) fn change_server_db(&mut self, now: Now, operation: &weir_json::Value) {
        let Some(&id) = self.db_names.get(server_db::NAME) else { return };
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(engine) = db.engine.here_mut() else { return };
        if let Some(delta) = server_db::execute(engine, operation, &mut self.uuids) {
            self.publish(now, id, Arc::new(delta), false);
            self.wake(now, id);
        }
    }
}
