//! The dialogue with servers that have a database which is followed (ovsdb-server(7), "Notes on the
//! OVSDB protocol"): whose it is, what it is like, and what changes in it. What comes behind a
//! connect is that of a [`backup`], or that of `dialogue`, which a `relay` and a `replica` lead:
//! a replica wants some rows only, by `conditions` that change.
//!
//! The owner's rows are its own: it is told what to make of them, and says when it cannot. It may
//! send requests of its own on the connection.

pub mod backup;
mod conditions;
mod dialogue;
mod relay;
mod replica;
#[cfg(test)]
mod talk;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::{Error, Schema, Uuid, UuidSource};

use self::backup::{Backup, Step};
pub use self::conditions::Condition;
use self::conditions::Conditions;
use self::dialogue::canonical;
pub use self::replica::{Columns, Tables};
use crate::freshness::Freshness;
use crate::news::{EphemeralMonitor, EphemeralRows, Method, News, Read, RowReader, State};
use crate::path::Path;
use crate::remotes::Remotes;
use crate::server_row::ServerRows;
use crate::session::{Action, Input, Level, Options, Said, Session};

/// What logs name the module of what a relay says.
const MODULE: &str = "ovsdb_cs";

/// What is followed, and how.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of the database.
    pub database: String,
    /// Who has it.
    pub remotes: Remotes,
    /// Only a leader will do.
    pub leader_only: bool,
    /// How the connection is kept.
    pub options: Options,
    /// What the owner is to the source.
    pub model: Model,
}

/// What follows (ovsdb(7), "Service Models").
#[derive(Clone, Debug)]
pub enum Model {
    /// A relay, which becomes whatever the source is.
    Relay {
        /// What this server answers to `get_server_id`.
        own_id: Uuid,
    },
    /// A backup, which has rows and a schema of its own.
    Backup(Arc<Backup>),
    /// A replica of these tables, which a client has. Its owner says which of their rows
    /// ([`Follower::set_conditions`]), and is told of all rows until then.
    Replica(Tables),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The dialogue is under way, or has not begun.
    Connecting,
    /// Rows have come; it stays so while a lost connection is made again.
    Following,
    /// Following is over: the owner cannot be a backup of that server.
    Failed,
}

/// What the owner must do, in order.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Begin to connect.
    Connect {
        /// Where to.
        target: String,
    },
    /// Send this message.
    Send(Vec<u8>),
    /// Close the connection or give up the attempt; nothing more is heard of it.
    Close,
    /// Make the rows like that, in one transaction. Of a backup: those of all tables but the
    /// excluded.
    News(Box<News>),
    /// Give the rows these values of columns that no file keeps.
    Ephemeral(EphemeralRows),
    /// One of the owner's locks has become its own at the server, or has been taken from it.
    Lock {
        /// The lock's name.
        name: String,
        /// Whether the lock is the owner's now.
        is_owned: bool,
    },
    /// One of the owner's requests is answered.
    Reply {
        /// The request's number.
        number: u64,
        /// The result, or the error, as JSON text.
        reply: Result<Vec<u8>, Vec<u8>>,
    },
    /// The rows of a replica, as they are behind the [`Output::News`] before this, are all that
    /// match the conditions of this number ([`Follower::set_conditions`]), at one moment of the
    /// source. A number may come again, and be lower than before when following was resumed from an
    /// older state.
    Conditions {
        /// The number.
        number: u64,
        /// Tables of which there are all rows, whatever their conditions: the server has not all
        /// columns of these, or knows no conditions at all (`monitor`).
        whole: Vec<String>,
    },
    /// The server does not take the conditions of this number: the rows stay those of the
    /// conditions before, until the owner wants others, or another server is asked.
    Refused {
        /// The number.
        number: u64,
        /// The error, as JSON text.
        error: Vec<u8>,
    },
    /// Following is over.
    Failed,
    /// Write a log line.
    Log {
        /// vlog module.
        module: &'static str,
        /// Severity.
        level: Level,
        /// The text.
        text: String,
    },
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Nothing that matters is in the answer.
    Nothing,
    Features,
    ServerSchema,
    ServerRows,
    /// The way of the server's rows.
    Path,
    Schema,
    Rows,
    /// Columns that no file keeps.
    Ephemeral,
    /// Other conditions.
    Conditions,
    /// For the owner.
    Owner,
    /// What a backup asks for.
    Backup(Step),
}

/// How far it is on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Whether the server will do, and what it has, is not known yet.
    Looking,
    /// The rows have been asked for, by this request.
    Asking(u64),
    /// The owner has had them, and is told what changes.
    Following,
}

/// Follows one database.
#[derive(Debug)]
pub struct Follower {
    wanted: Wanted,
    session: Session,
    phase: Phase,
    status: Status,
    asked: BTreeMap<u64, Asked>,
    /// Names of what the server has beyond the reference.
    features: Vec<String>,
    rows: ServerRows,
    /// The way of the server's rows, as it was told last.
    path: Option<Path>,
    /// When it was last said that a server is not followed for its way.
    warned_us: Option<u64>,
    /// What the server says there of the schema may be from before a conversion.
    asks_for_schema: bool,
    /// What rows are read under, and the text of the source's schema.
    schema: Option<(Arc<Schema>, String)>,
    method: Method,
    /// How many names of monitors there have been on this connection.
    monitors: u64,
    /// The monitor of what is in no state.
    ephemeral: Option<EphemeralMonitor>,
    /// The id of the state that the owner has; zero for none.
    last: Uuid,
    /// Of a replica: which rows.
    conditions: Conditions,
    freshness: Freshness,
    /// The time of what is handled now.
    now_us: u64,
    /// What the server says of its own source.
    is_source_connected: bool,
    /// The server is a member of a cluster.
    is_source_clustered: bool,
    /// Why the only server will not do, as it was said last.
    complaint: Option<String>,
    /// Until when the only server that there is may come to do: another one may be at its address by then.
    unfit_until_us: Option<u64>,
    actions: Vec<Action>,
}

/// Why a message is not followed.
enum Stop {
    /// The next server may do better, or the same one on another connection.
    Other(Level, String),
    /// The next server may do better, and all has been said.
    Next,
    /// Something that stays wrong.
    Failed(Error),
    /// Something that stays wrong, and all has been said.
    Over,
}

impl Follower {
    /// A follower that begins with its first [`Input::Tick`]. Its pauses are a bit longer than the
    /// reference's, by what `random` says.
    pub fn new(wanted: Wanted, random: u64) -> Self {
        let mut session = Session::new("", &wanted.options);
        session.connection_mut().spread(random);
        let mut new = Self {
            wanted,
            session,
            phase: Phase::Looking,
            status: Status::Connecting,
            asked: BTreeMap::new(),
            features: Vec::new(),
            rows: ServerRows::default(),
            path: None,
            warned_us: None,
            asks_for_schema: false,
            schema: None,
            method: Method::CondSince,
            monitors: 0,
            ephemeral: None,
            last: Uuid::ZERO,
            conditions: Conditions::default(),
            freshness: Freshness::default(),
            now_us: 0,
            is_source_connected: false,
            is_source_clustered: false,
            complaint: None,
            unfit_until_us: None,
            actions: Vec::new(),
        };
        new.allow_free_tries();
        new
    }

    /// Changes how the connection is kept, without touching it.
    pub fn set_options(&mut self, options: Options) {
        self.session.set_options(&options);
        self.wanted.options = options;
    }

    /// Changes who has the database. The connection, or the attempt, stays unless its server is not
    /// among them.
    pub fn set_remotes(&mut self, now_us: u64, remotes: Remotes, out: &mut Vec<Output>) {
        let stays = remotes.servers().iter().any(|server| server == self.session.name());
        self.wanted.remotes = remotes;
        self.allow_free_tries();
        if !stays {
            self.forget();
            self.session.give_up(now_us, &mut self.actions);
            self.pass_on(out);
        }
    }

    /// Whether there is a connection, whatever has been heard on it.
    pub fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    /// Whether the server has been asked for the rows, or for the schema under which they are asked for.
    pub fn is_awaiting_rows(&self) -> bool {
        match self.phase {
            Phase::Looking => self.asked.values().any(|asked| *asked == Asked::Schema),
            Phase::Asking(_) => true,
            Phase::Following => false,
        }
    }

    /// Whether the owner's rows are those of the source, as far as that has been heard of.
    pub fn is_following(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Whether the server that is followed says that it is not cut off itself, nor anybody before
    /// it.
    pub fn is_current(&self) -> bool {
        let is_whole = self.path.as_ref().is_none_or(|path| path.is_connected);
        self.is_following() && self.is_source_connected && is_whole
    }

    /// Whether the server that is followed is a member of a cluster.
    pub fn is_source_clustered(&self) -> bool {
        self.is_source_clustered
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Who is being connected to, or has been.
    pub fn server(&self) -> &str {
        self.session.name()
    }

    /// The index of the rows that the owner has, or one before it (ovsdb-server(5)).
    pub fn index(&self) -> Option<u64> {
        self.freshness.own()
    }

    /// The id of the state that the owner has; zero for none.
    pub fn last(&self) -> Uuid {
        self.last
    }

    /// Whether the server has this beyond the reference (docs/decisions/013-wire-extensions.md).
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }

    /// Whether the owner may send requests: the server has the database.
    pub fn may_ask(&self) -> bool {
        self.is_following()
    }

    /// When [`Input::Tick`] has something to do, on the monotonic clock.
    pub fn next_wakeup_us(&self) -> Option<u64> {
        if self.status == Status::Failed {
            return None;
        }
        let ends_us = self.freshness.ends_us().into_iter().chain(self.unfit_until_us);
        self.session.next_wakeup_us().into_iter().chain(ends_us).min()
    }

    /// Sends a request of the owner's; its number.
    pub fn ask_for_owner(&mut self, method: &str, params: &[u8], out: &mut Vec<Output>) -> u64 {
        assert!(self.may_ask(), "the owner asks whether it may ask");
        let number = self.ask(method, params, Asked::Owner);
        self.pass_on(out);
        number
    }

    /// Tells the server something of the owner's; nothing where there is no connection.
    pub fn tell_for_owner(&mut self, method: &str, params: &[u8], out: &mut Vec<Output>) {
        if self.session.is_connected() {
            self.actions.push(Action::Send(weir_wire::notification(method, params)));
            self.pass_on(out);
        }
    }

    /// What reads the rows of the next message elsewhere, if it may have some; a replica's are read
    /// here.
    pub fn row_reader(&self) -> Option<RowReader> {
        self.reader().filter(|_| !self.is_replica())
    }

    fn reader(&self) -> Option<RowReader> {
        let (schema, _) = self.schema.as_ref()?;
        let request = match self.phase {
            Phase::Looking => return None,
            Phase::Asking(request) => Some(request),
            Phase::Following => None,
        };
        let (schema, method) = (Arc::clone(schema), self.method);
        let (monitor, ephemeral) = (self.monitor_id(), self.ephemeral.clone());
        Some(RowReader { schema, request, method, monitor, ephemeral })
    }

    /// The owner makes its rows like what a [`RowReader`] has read on this connection: this state.
    pub fn have_read(&mut self, state: State, out: &mut Vec<Output>) {
        if self.is_replica() {
            self.have_replica_rows();
        }
        if let Phase::Asking(request) = self.phase {
            self.asked.remove(&request);
            if self.is_backup() {
                self.say_reset(out);
            }
            (self.phase, self.status) = (Phase::Following, Status::Following);
            self.freshness.follow();
            self.allow_free_tries();
            self.ask_for_ephemeral();
        }
        self.last = state.id;
        if let Some(index) = state.index {
            self.hear_index(index, out);
        }
        self.freshness.have_rows();
        self.pass_on(out);
    }

    /// A [`RowReader`] has read values of columns that no file keeps, of all rows or of some.
    pub fn have_ephemeral(&mut self, is_all: bool) {
        if is_all && let Some(monitor) = &mut self.ephemeral {
            let request = monitor.request.take();
            request.inspect(|request| _ = self.asked.remove(request));
        }
    }

    /// Takes what happened.
    pub fn handle(
        &mut self,
        now_us: u64,
        input: Input<'_>,
        versions: &mut UuidSource,
        out: &mut Vec<Output>,
    ) {
        if self.status == Status::Failed {
            return;
        }
        self.now_us = now_us;
        match input {
            Input::Up => {
                self.session.connected(now_us, &mut self.actions);
                self.status = Status::Connecting;
                match self.is_backup() {
                    true => self.ask_for_server_id(),
                    false => self.ask_what_there_is(),
                }
            }
            Input::Message(bytes) => {
                self.session.heard(now_us);
                let done = self.message(bytes, versions, out);
                self.leave_if_stopped(done, out);
            }
            Input::Activity => self.session.heard(now_us),
            Input::Down(error) => {
                self.forget();
                self.session.disconnected(now_us, error, &mut self.actions);
            }
            Input::Tick => {
                if self.session.is_due(now_us) {
                    let next = self.wanted.remotes.take_next();
                    self.session.connection_mut().set_name(next);
                }
                self.session.run(now_us, &mut self.actions);
                if !self.session.is_connected() {
                    self.forget();
                }
                let done = self.believe_who_is_behind(out);
                self.leave_if_stopped(done, out);
                if self.unfit_until_us.is_some_and(|until_us| until_us <= now_us) {
                    self.leave(now_us);
                }
            }
        }
        self.pass_on(out);
    }

    /// Begins again with the next server, after a pause.
    pub fn restart(&mut self, now_us: u64, out: &mut Vec<Output>) {
        self.leave(now_us);
        self.pass_on(out);
    }

    /// The owner could not make its rows like those of the source: it is told all of them again.
    pub fn reset(&mut self, now_us: u64, out: &mut Vec<Output>) {
        self.last = Uuid::ZERO;
        self.freshness.lack_rows();
        self.restart(now_us, out);
    }

    fn leave_if_stopped(&mut self, done: Result<(), Stop>, out: &mut Vec<Output>) {
        match done {
            Ok(()) => {}
            Err(Stop::Other(level, text)) => {
                self.say(level, text, out);
                self.leave(self.now_us);
            }
            Err(Stop::Next) => self.leave(self.now_us),
            Err(Stop::Failed(error)) => self.fail(&error, out),
            Err(Stop::Over) => self.end(out),
        }
    }

    fn leave(&mut self, now_us: u64) {
        self.forget();
        self.session.restart(now_us, &mut self.actions);
    }

    /// What was said on the connection counts no longer.
    fn forget(&mut self) {
        self.phase = Phase::Looking;
        self.asked.clear();
        self.rows = ServerRows::default();
        self.path = None;
        self.features.clear();
        (self.is_source_connected, self.asks_for_schema) = (false, false);
        self.is_source_clustered = false;
        self.unfit_until_us = None;
        self.freshness.disconnected();
        (self.monitors, self.ephemeral) = (0, None);
        self.conditions.forget();
    }

    fn allow_free_tries(&mut self) {
        let others = self.wanted.remotes.servers().len().saturating_sub(1);
        let tries = u32::try_from(others).unwrap_or(u32::MAX);
        self.session.connection_mut().allow_free_tries(tries);
    }

    fn ask(&mut self, method: &str, params: &[u8], asked: Asked) -> u64 {
        let (id, message) = self.session.request(method, params);
        self.asked.insert(id, asked);
        self.actions.push(Action::Send(message));
        id
    }

    fn pass_on(&mut self, out: &mut Vec<Output>) {
        let name = self.session.name();
        out.extend(self.actions.drain(..).map(|action| match action {
            Action::Connect => Output::Connect { target: name.to_owned() },
            Action::Send(message) => Output::Send(message),
            Action::Close => Output::Close,
            Action::Log(level, text) => Output::Log { module: "reconnect", level, text },
        }));
    }

    /// Logs as the module of the model; what a relay says is about a server.
    fn say(&self, level: Level, text: String, out: &mut Vec<Output>) {
        let (module, text) = match self.is_backup() {
            true => (backup::MODULE, text),
            false => (MODULE, format!("{}: {text}", self.session.name())),
        };
        out.push(Output::Log { module, level, text });
    }

    fn is_backup(&self) -> bool {
        matches!(self.wanted.model, Model::Backup(_))
    }

    fn is_replica(&self) -> bool {
        matches!(self.wanted.model, Model::Replica(_))
    }

    fn message(
        &mut self,
        bytes: &[u8],
        versions: &mut UuidSource,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let said = Session::read(bytes, &mut self.actions);
        let said = said.map_err(|error| self.stop_for(error))?;
        let has_other_rows = self.look_at_name(&said) || self.phase != Phase::Following;
        let reader = self.reader();
        match reader.map_or(Read::Nothing, |reader| reader.read_said(bytes, &said, versions)) {
            Read::Nothing => {}
            Read::News(news) => {
                self.have_read(news.state, out);
                out.push(Output::News(Box::new(news)));
                if self.is_replica() && has_other_rows {
                    self.tell_conditions(out);
                }
                return Ok(());
            }
            Read::Ephemeral(rows) => {
                self.have_ephemeral(rows.is_all);
                out.push(Output::Ephemeral(rows));
                return Ok(());
            }
            Read::Wrong(error) if self.is_backup() => return Err(Stop::Failed(error)),
            Read::Wrong(error) => {
                self.last = Uuid::ZERO;
                let text = format!("cannot read the rows of the source: {error}");
                return Err(Stop::Other(Level::Warning, text));
            }
        }
        match said {
            Said::Nothing => Ok(()),
            Said::Notice(method, params) if self.is_backup() => {
                self.backup_notice(method, params, out)
            }
            Said::Notice(method, params) => self.notice(method, params, out),
            Said::Reply(id, reply) => {
                let number = id.integer().and_then(|id| u64::try_from(id).ok()).unwrap_or_default();
                match self.asked.remove(&number) {
                    Some(asked) => self.reply((number, asked), reply, out)?,
                    None => self.say_unexpected(out),
                }
                Ok(())
            }
        }
    }

    /// A message makes no sense.
    fn stop_for(&self, error: String) -> Stop {
        let text = match self.is_backup() {
            true => format!("{}: {error}", self.session.name()),
            false => error,
        };
        Stop::Other(Level::Warning, text)
    }

    fn say_unexpected(&self, out: &mut Vec<Output>) {
        let text = match self.is_backup() {
            true => format!("{}: received unexpected reply.", self.wanted.database),
            false => "received unexpected reply".to_owned(),
        };
        self.say(Level::Warning, text, out);
    }
}
