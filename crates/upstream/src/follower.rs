//! The dialogue with servers that have a database which is followed (ovsdb-server(7), "Notes on the
//! OVSDB protocol"): whose it is, what it is like, and what changes in it.
//!
//! After each connect:
//!
//! 1. `set_db_change_aware`, `weir_features`, and the schema of `_Server`, all at once.
//! 2. The rows of `_Server`: whether this server will do, and the schema of the database. Servers
//!    without `_Server` are asked for the schema.
//! 3. The rows, from the state on that the owner has: by `weir_monitor` with an update for each
//!    transaction, or else by the newest method of the reference that the server knows.
//! 4. Changes of the rows, until the connection ends, the schema changes, or the server is not fit
//!    any more: then the next one is tried.
//!
//! The owner's rows are its own: it is told what to make of them, and says when it cannot. It may
//! send requests of its own on the connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::{ColumnSchema, Schema, Uuid, UuidSource};
use weir_json::{Text, Value, array, object};

use crate::freshness::Freshness;
use crate::news::{EphemeralMonitor, EphemeralRows, Method, News, Read, RowReader, State};
use crate::remotes::Remotes;
use crate::server_row::{Search, ServerRows};
use crate::session::{Action, Input, Level, Options, Said, Session};

/// What logs name the module of what is said here.
const MODULE: &str = "ovsdb_cs";

/// The monitor of `_Server`.
const SERVER_MONITOR: &str = r#"["monid","_Server"]"#;

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
    /// Make the rows like that, in one transaction.
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
    Schema,
    Rows,
    /// Columns that no file keeps.
    Ephemeral,
    /// For the owner.
    Owner,
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
    asked: BTreeMap<u64, Asked>,
    /// Names of what the server has beyond the reference.
    features: Vec<String>,
    rows: ServerRows,
    /// The schema that rows are asked for under, and its text.
    schema: Option<(Arc<Schema>, String)>,
    method: Method,
    /// How many monitors there have been on this connection.
    monitors: u64,
    /// The monitor of what is in no state.
    ephemeral: Option<EphemeralMonitor>,
    /// The id of the state that the owner has; zero for none.
    last: Uuid,
    freshness: Freshness,
    /// The time of what is handled now.
    now_us: u64,
    /// What the server says of its own source.
    is_source_connected: bool,
    /// Why the only server will not do, as it was said last.
    complaint: Option<String>,
    actions: Vec<Action>,
}

/// Why a message is not followed.
enum Stop {
    /// The next server may do better.
    Other(Level, String),
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
            asked: BTreeMap::new(),
            features: Vec::new(),
            rows: ServerRows::default(),
            schema: None,
            method: Method::CondSince,
            monitors: 0,
            ephemeral: None,
            last: Uuid::ZERO,
            freshness: Freshness::default(),
            now_us: 0,
            is_source_connected: false,
            complaint: None,
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

    /// Changes who has the database. The connection stays unless its server is not among them.
    pub fn set_remotes(&mut self, now_us: u64, remotes: Remotes, out: &mut Vec<Output>) {
        let stays = remotes.servers().iter().any(|server| server == self.session.name());
        self.wanted.remotes = remotes;
        self.allow_free_tries();
        if !stays {
            self.restart(now_us, out);
        }
    }

    /// Whether the owner's rows are those of the source, as far as that has been heard of.
    pub fn is_following(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Whether the server that is followed says that it is not cut off itself.
    pub fn is_current(&self) -> bool {
        self.is_following() && self.is_source_connected
    }

    /// Who is being connected to, or has been.
    pub fn server(&self) -> &str {
        self.session.name()
    }

    /// The index of the database that the server has named, or one before it (ovsdb-server(5)).
    pub fn index(&self) -> Option<u64> {
        self.freshness.seen()
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
        let ends_us = self.freshness.ends_us();
        self.session.next_wakeup_us().into_iter().chain(ends_us).min()
    }

    /// Sends a request of the owner's; its number.
    pub fn ask_for_owner(&mut self, method: &str, params: &[u8], out: &mut Vec<Output>) -> u64 {
        assert!(self.may_ask(), "the owner asks whether it may ask");
        let number = self.ask(method, params, Asked::Owner);
        self.pass_on(out);
        number
    }

    /// What reads the rows of the next message, if it may have some.
    pub fn row_reader(&self) -> Option<RowReader> {
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
        if let Phase::Asking(request) = self.phase {
            self.asked.remove(&request);
            self.phase = Phase::Following;
            self.freshness.follow();
            self.allow_free_tries();
            self.ask_for_ephemeral();
        }
        self.last = state.id;
        if let Some(index) = state.index {
            self.hear_index(index, out);
        }
        self.pass_on(out);
    }

    /// A [`RowReader`] has read values of columns that no file keeps, of all rows or of some.
    pub fn have_ephemeral(&mut self, is_all: bool) {
        if is_all && let Some(monitor) = &mut self.ephemeral {
            let request = monitor.request.take();
            request.inspect(|request| _ = self.asked.remove(request));
        }
    }

    /// Asks for the columns that are in no state, if there are some: beside the states, for those have the
    /// same ids whatever these columns hold. The oldest method tells whole values, which do not depend on
    /// what was there before.
    fn ask_for_ephemeral(&mut self) {
        let (schema, _) = self.schema.as_ref().expect("rows have come under a schema");
        let is_wanted = |column: &ColumnSchema| !self.method.has_all() && !column.persistent;
        let mut requests = requests(schema, is_wanted).filter(|(_, columns)| !columns.is_empty());
        let Some(first) = requests.next() else { return };
        let requests = requests_text(std::iter::once(first).chain(requests));
        let (name, number) = (Value::from(schema.name.as_str()), self.monitors);
        let id = format!(r#"["ephemeral",{name},{number}]"#);
        let params = format!("[{name},{id},{requests}]");
        let request = self.ask("monitor", params.as_bytes(), Asked::Ephemeral);
        self.ephemeral = Some(EphemeralMonitor { request: Some(request), id: id.into_bytes() });
    }

    /// The server says its index.
    fn hear_index(&mut self, index: u64, out: &mut Vec<Output>) {
        if let Some(before) = self.freshness.hear(index) {
            let text = format!("the source has gone back from index {before} to {index}");
            self.say(Level::Warning, text, out);
        }
    }

    /// Servers that were refused because they are behind have been for so long that the source itself must
    /// have gone back: its rows are taken anew.
    fn believe_who_is_behind(&mut self, out: &mut Vec<Output>) -> Result<(), Stop> {
        let Some(before) = self.freshness.give_up(self.now_us) else { return Ok(()) };
        self.last = Uuid::ZERO;
        let text = format!(
            "no server has index {before}: the source has gone back, all rows are taken anew"
        );
        self.say(Level::Warning, text, out);
        match self.session.is_connected() && !self.rows.is_empty() {
            true => self.look_at_server(out),
            false => Ok(()),
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
        self.now_us = now_us;
        match input {
            Input::Up => {
                self.session.connected(now_us, &mut self.actions);
                self.ask("set_db_change_aware", b"[true]", Asked::Nothing);
                self.ask("weir_features", b"[]", Asked::Features);
                self.ask("get_schema", b"[\"_Server\"]", Asked::ServerSchema);
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
        self.restart(now_us, out);
    }

    fn leave_if_stopped(&mut self, done: Result<(), Stop>, out: &mut Vec<Output>) {
        if let Err(Stop::Other(level, text)) = done {
            self.say(level, text, out);
            self.leave(self.now_us);
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
        self.features.clear();
        self.is_source_connected = false;
        self.freshness.disconnected();
        (self.monitors, self.ephemeral) = (0, None);
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

    fn say(&self, level: Level, text: String, out: &mut Vec<Output>) {
        let text = format!("{}: {text}", self.session.name());
        out.push(Output::Log { module: MODULE, level, text });
    }

    fn message(
        &mut self,
        bytes: &[u8],
        versions: &mut UuidSource,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let said = Session::read(bytes, &mut self.actions);
        let said = said.map_err(|error| Stop::Other(Level::Warning, error))?;
        let reader = self.row_reader();
        match reader.map_or(Read::Nothing, |reader| reader.read_said(bytes, &said, versions)) {
            Read::Nothing => {}
            Read::News(news) => {
                self.have_read(news.state, out);
                out.push(Output::News(Box::new(news)));
                return Ok(());
            }
            Read::Ephemeral(rows) => {
                self.have_ephemeral(rows.is_all);
                out.push(Output::Ephemeral(rows));
                return Ok(());
            }
            Read::Wrong(error) => {
                self.last = Uuid::ZERO;
                let text = format!("cannot read the rows of the source: {error}");
                return Err(Stop::Other(Level::Warning, text));
            }
        }
        match said {
            Said::Nothing => Ok(()),
            Said::Notice(method, params) => self.notice(method, params, out),
            Said::Reply(id, reply) => self.reply(id, reply, out),
        }
    }

    fn notice(
        &mut self,
        method: &str,
        params: Text<'_>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let mut elements = params.elements().into_iter().flatten();
        let first = elements.next();
        if let ("locked" | "stolen", Some(name)) = (method, first.and_then(Text::str)) {
            out.push(Output::Lock { name: name.into_owned(), is_owned: method == "locked" });
            return Ok(());
        }
        let monitor = first.map(canonical);
        let is_server_db = monitor.as_deref() == Some(SERVER_MONITOR.as_bytes());
        match method {
            "update2" if is_server_db => {
                let updates = elements.next();
                self.take_server_rows(updates, out)
            }
            "monitor_canceled" if is_server_db => {
                Err(Stop::Other(Level::Info, "server has no _Server database any more".to_owned()))
            }
            "monitor_canceled" => {
                // `_Server` says what has become of the database, if there is a `_Server`.
                if self.phase != Phase::Looking && monitor == Some(self.monitor_id()) {
                    self.phase = Phase::Looking;
                    (self.schema, self.last, self.ephemeral) = (None, Uuid::ZERO, None);
                }
                Ok(())
            }
            // Of a monitor that has been canceled, or something that nobody has asked for.
            _ => Ok(()),
        }
    }

    fn reply(
        &mut self,
        id: Text<'_>,
        reply: Result<Text<'_>, Text<'_>>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let number = id.integer().and_then(|id| u64::try_from(id).ok()).unwrap_or_default();
        let Some(asked) = self.asked.remove(&number) else {
            self.say(Level::Warning, "received unexpected reply".to_owned(), out);
            return Ok(());
        };
        match (asked, reply) {
            (Asked::Nothing | Asked::Ephemeral, _) => Ok(()),
            (Asked::Features, reply) => {
                let names = reply.ok().and_then(Text::elements).into_iter().flatten();
                let names = names.filter_map(|name| name.str().map(|name| name.into_owned()));
                self.features = names.collect();
                Ok(())
            }
            (Asked::ServerSchema, Ok(_)) => {
                let params = format!(r#"["_Server",{SERVER_MONITOR},{{"Database":[{{}}]}}]"#);
                self.ask("monitor_cond", params.as_bytes(), Asked::ServerRows);
                Ok(())
            }
            (Asked::ServerSchema | Asked::ServerRows, Err(_)) => {
                let params = array([self.wanted.database.as_str()]).to_string();
                self.ask("get_schema", params.as_bytes(), Asked::Schema);
                Ok(())
            }
            (Asked::ServerRows, Ok(rows)) => self.take_server_rows(Some(rows), out),
            (Asked::Schema, Ok(schema)) => {
                self.is_source_connected = true;
                self.take_schema(&schema.to_value().to_string())
            }
            (Asked::Schema, Err(error)) => {
                let text = format!("refused the schema: {}", error.to_value());
                Err(Stop::Other(Level::Warning, text))
            }
            (Asked::Rows, Err(error)) => match self.method.fallback() {
                Some(method) => {
                    self.method = method;
                    self.ask_for_rows();
                    Ok(())
                }
                None => {
                    let text = format!("refused the rows: {}", error.to_value());
                    Err(Stop::Other(Level::Warning, text))
                }
            },
            (Asked::Rows, Ok(_)) => {
                let text = "answered with something that is no rows".to_owned();
                Err(Stop::Other(Level::Warning, text))
            }
            (Asked::Owner, reply) => {
                let owned = |text: Text<'_>| text.as_bytes().to_vec();
                let reply = reply.map(owned).map_err(owned);
                out.push(Output::Reply { number, reply });
                Ok(())
            }
        }
    }

    fn take_server_rows(
        &mut self,
        updates: Option<Text<'_>>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        if !updates.is_some_and(|updates| self.rows.update(updates)) {
            let text = "rows of _Server make no sense".to_owned();
            return Err(Stop::Other(Level::Warning, text));
        }
        self.look_at_server(out)
    }

    /// Whether the server will do, by what it has said of itself.
    fn look_at_server(&mut self, out: &mut Vec<Output>) -> Result<(), Stop> {
        let Wanted { database, remotes, leader_only, .. } = &self.wanted;
        let search = Search {
            database,
            cluster: remotes.cluster(),
            leader_only: *leader_only,
            index_min: self.freshness.least(),
        };
        match self.rows.find(search) {
            Ok(row) => {
                self.complaint = None;
                self.is_source_connected = row.is_connected;
                if let Some(index) = row.index {
                    self.hear_index(index, out);
                }
                self.take_schema(&row.schema)
            }
            // There is no other server: this one may do later, and says so then.
            Err(unfit) if remotes.servers().len() == 1 => {
                self.is_source_connected = false;
                if unfit.is_behind {
                    self.freshness.refuse(self.now_us);
                }
                let why = unfit.why.split(';').next().unwrap_or_default().to_owned();
                if self.complaint.replace(why.clone()).as_ref() != Some(&why) {
                    self.say(Level::Info, why, out);
                }
                Ok(())
            }
            Err(unfit) => {
                if unfit.is_behind {
                    self.freshness.refuse(self.now_us);
                }
                Err(Stop::Other(Level::Info, unfit.why))
            }
        }
    }

    /// The server has the database under this schema.
    fn take_schema(&mut self, text: &str) -> Result<(), Stop> {
        let known = self.schema.as_ref().filter(|(_, known)| known == text);
        if known.is_some() && self.phase != Phase::Looking {
            return Ok(());
        }
        if known.is_none() {
            let schema = Schema::parse_bytes(text.as_bytes())
                .map_err(|error| Stop::Other(Level::Warning, format!("bad schema: {error}")))?;
            if schema.name != self.wanted.database {
                let text = format!("schema has the name {}", schema.name);
                return Err(Stop::Other(Level::Warning, text));
            }
            let is_first = self.schema.is_none();
            self.schema = Some((Arc::new(schema), text.to_owned()));
            // What the owner has is of another schema.
            if !is_first {
                self.last = Uuid::ZERO;
            }
        }
        if self.phase != Phase::Looking {
            // Its rows are those of tables that the schema before had, too.
            let ephemeral = self.ephemeral.take().map(|monitor| monitor.id);
            for id in [Some(self.monitor_id()), ephemeral].into_iter().flatten() {
                let params = [b"[", &id[..], b"]"].concat();
                self.ask("monitor_cancel", &params, Asked::Nothing);
            }
        }
        let tells_each = self.has("weir_monitor") && self.has("weir_monitor.each");
        self.method = if tells_each { Method::Each } else { Method::CondSince };
        self.ask_for_rows();
        Ok(())
    }

    fn ask_for_rows(&mut self) {
        self.monitors += 1;
        let (schema, _) = self.schema.as_ref().expect("rows are asked for under a schema");
        let is_wanted = |column: &ColumnSchema| self.method.has_all() || column.persistent;
        let requests = requests_text(requests(schema, is_wanted));
        let monitor = String::from_utf8_lossy(&self.monitor_id()).into_owned();
        let name = Value::from(schema.name.as_str());
        let last = self.last;
        let params = match self.method {
            Method::Each => {
                let index = if self.has("weir_monitor.index") { r#","index":true"# } else { "" };
                format!(r#"[{name},{monitor},{requests},"{last}",{{"each":true{index}}}]"#)
            }
            Method::CondSince => format!(r#"[{name},{monitor},{requests},"{last}"]"#),
            Method::Cond | Method::Monitor => format!("[{name},{monitor},{requests}]"),
        };
        let number = self.ask(self.method.name(), params.as_bytes(), Asked::Rows);
        self.phase = Phase::Asking(number);
    }

    /// The name of the monitor, in the form in which it comes back.
    fn monitor_id(&self) -> Vec<u8> {
        let name = Value::from(self.wanted.database.as_str());
        let id = match self.monitors {
            0 | 1 => format!(r#"["monid",{name}]"#),
            more => format!(r#"["monid",{name},{more}]"#),
        };
        id.into_bytes()
    }
}

/// What a monitor asks for: these columns of each table.
fn requests(
    schema: &Schema,
    is_wanted: impl Fn(&ColumnSchema) -> bool,
) -> impl Iterator<Item = (&str, Vec<&str>)> {
    schema.table_ids().map(move |(_, table)| {
        let columns = table.data_columns().map(|(_, column)| column);
        let columns = columns.filter(|column| is_wanted(column));
        (table.name.as_str(), columns.map(|column| column.name.as_str()).collect())
    })
}

/// The requests as JSON.
fn requests_text<'a>(requests: impl Iterator<Item = (&'a str, Vec<&'a str>)>) -> String {
    let request = |columns| array([object([("columns", array::<&str>(columns))])]);
    let requests = requests.map(|(table, columns)| (table.to_owned(), request(columns)));
    Value::Object(requests.collect()).to_string()
}

fn canonical(text: Text<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    text.write(&mut out);
    out
}
