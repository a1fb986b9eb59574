//! Remotes: where the server listens and to whom it connects, given on the command line, by admin
//! commands, or in tables.

pub(crate) mod reconnect;
pub(crate) mod status;
pub(crate) mod tls;

use std::collections::BTreeMap;

use weir_data::{AtomType, ColumnId, DatumRef, Delta, Row, TableId};

use crate::database::Db;
use crate::effect::{Effect, Level, RemoteOptions};
use crate::event::{DbId, Now, RemoteId, SessionId};
use crate::remotes::reconnect::{End, Phase, Reconnect};
use crate::server::Server;

/// What strerror(3) says of an address that nobody can listen on or connect to.
const NOT_SUPPORTED: &str = "Address family not supported by protocol";

/// One listener or connection that should be.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) id: RemoteId,
    pub(crate) options: RemoteOptions,
    pub(crate) way: Way,
    tried: bool,
}

/// In or out.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Clients come in, at this port if it is one of TCP.
    In { port: Option<u16> },
    /// We go out.
    Out(Reconnect),
}

/// What is wrong with a remote or a target, and how much it matters.
type Complaints = BTreeMap<String, (Level, String)>;

/// The configured remotes and what follows from them.
#[derive(Debug)]
pub(crate) struct Remotes {
    /// As configured; `db:` ones stand for what a table says.
    configured: BTreeMap<String, RemoteOptions>,
    /// By target.
    open: BTreeMap<String, Remote>,
    /// The tables that `db:` remotes, and options of TLS, are read from.
    sources: Vec<(DbId, TableId)>,
    /// The databases that `db:` remotes are read from.
    homes: Vec<DbId>,
    /// Complaints about `db:` remotes that have been logged.
    complaints: Complaints,
    started: bool,
    /// Tables that they are read from were away when something changed.
    stale: bool,
    next: u64,
    /// The time of what is being handled.
    now_us: u64,
}

impl Remotes {
    pub(crate) fn new() -> Self {
        Self {
            configured: BTreeMap::new(),
            open: BTreeMap::new(),
            sources: Vec::new(),
            homes: Vec::new(),
            complaints: Complaints::new(),
            started: false,
            stale: false,
            next: 0,
            now_us: 0,
        }
    }

    /// What is configured, from now on.
    pub(crate) fn configure(&mut self, configured: BTreeMap<String, RemoteOptions>) {
        self.configured = configured;
    }

    /// What is configured.
    pub(crate) fn configured(&self) -> &BTreeMap<String, RemoteOptions> {
        &self.configured
    }

    /// The databases of the start are open: remotes may be looked up in them.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }

    /// It is later now.
    pub(crate) fn tick(&mut self, now: Now) {
        self.now_us = now.monotonic_us;
    }

    /// Whether any of them is read from a table.
    pub(crate) fn have_tables(&self) -> bool {
        !self.homes.is_empty()
    }

    /// Whether every listener has been opened, or has failed once.
    pub(crate) fn all_tried(&self) -> bool {
        self.started && self.open.values().all(|remote| remote.tried)
    }

    /// The options of a remote's sessions.
    pub(crate) fn options(&self, id: RemoteId) -> RemoteOptions {
        let found = self.open.values().find(|remote| remote.id == id);
        found.map(|remote| remote.options.clone()).unwrap_or_default()
    }

    /// What is listened on or connected to.
    pub(crate) fn target(&self, id: RemoteId) -> Option<&str> {
        self.open.iter().find(|(_, remote)| remote.id == id).map(|(target, _)| target.as_str())
    }

    /// What has come of a target.
    pub(crate) fn get(&self, target: &str) -> Option<&Remote> {
        self.open.get(target)
    }

    /// The configured remotes that a table stands for.
    pub(crate) fn in_tables(&self) -> impl Iterator<Item = &str> {
        self.configured.keys().map(String::as_str).filter(|remote| remote.starts_with("db:"))
    }

    /// The connection of a remote, if it is one that goes out.
    fn connection(&mut self, id: RemoteId) -> Option<&mut Reconnect> {
        self.open.values_mut().find(|remote| remote.id == id).and_then(|remote| {
            match &mut remote.way {
                Way::In { .. } => None,
                Way::Out(connection) => Some(connection),
            }
        })
    }

    /// Connections that go out and are not there: the reference counts them as sessions.
    pub(crate) fn unconnected(&self) -> usize {
        let is_missing = |remote: &&Remote| match &remote.way {
            Way::In { .. } => false,
            Way::Out(connection) => !matches!(connection.phase(), Phase::Active(_)),
        };
        self.open.values().filter(is_missing).count()
    }

    /// When the next connection is to be tried, in microseconds.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let ways = self.open.values().map(|remote| &remote.way);
        let due = ways.filter_map(|way| match way {
            Way::In { .. } => None,
            Way::Out(connection) => connection.due_us(),
        });
        due.min()
    }

    /// Whether a change may be one of remotes: it touches a table that names them.
    pub(crate) fn are_named_in(&self, db: DbId, delta: &Delta) -> bool {
        let is_meant = |table: TableId| self.sources.contains(&(db, table));
        !self.sources.is_empty() && delta.tables.iter().any(|table| is_meant(table.table))
    }
}

/// The parts of `db:DB,TABLE,COLUMN`.
pub(crate) struct Place {
    pub(crate) db: DbId,
    pub(crate) table: TableId,
    pub(crate) column: ColumnId,
}

/// The column that `db:DB,TABLE,COLUMN` names, of whatever type.
pub(crate) fn column_place<'d>(
    server: &'d Server,
    remote: &str,
) -> Result<(&'d Db, Place), String> {
    let rest = remote.strip_prefix("db:").unwrap_or(remote);
    let parts: Vec<&str> = rest.split(',').filter(|part| !part.is_empty()).collect();
    let [db_name, table_name, column_name, ..] = parts[..] else {
        return Err(format!("\"{remote}\": invalid syntax"));
    };
    let found = server.db_names.get(db_name).and_then(|id| Some((*id, server.dbs.get(id)?)));
    let (id, db) = found.ok_or_else(|| format!("\"{remote}\": no database named {db_name}"))?;
    let schema = db.engine.schema();
    let table = schema
        .table_id(table_name)
        .ok_or_else(|| format!("\"{remote}\": no table named {table_name}"))?;
    let column = schema.table(table).column_id(column_name).ok_or_else(|| {
        format!("\"{remote}\": table \"{table_name}\" has no column \"{column_name}\"")
    })?;
    Ok((db, Place { db: id, table, column }))
}

/// The same for a column that can name remotes.
fn place<'d>(server: &'d Server, remote: &str) -> Result<(&'d Db, Place), String> {
    let (db, place) = column_place(server, remote)?;
    let schema = db.engine.schema().table(place.table);
    let column = schema.column(place.column);
    let is_reference = column.ty.key.reference().is_some();
    if column.ty.is_map() || !(column.ty.key.ty == AtomType::String || is_reference) {
        let (table, column) = (&schema.name, &column.name);
        return Err(format!(
            "\"{remote}\": type of table \"{table}\" column \"{column}\" is not string or UUID"
        ));
    }
    Ok((db, place))
}

/// The rows that a column of references names, and their table.
pub(crate) fn referred<'d>(
    db: &'d Db,
    place: &Place,
) -> Option<(TableId, impl Iterator<Item = &'d Row>)> {
    let store = db.engine.store()?;
    let (table, _) = db.engine.schema().table(place.table).column(place.column).refs.key?;
    let column = place.column;
    let uuids = store.table(place.table).iter().flat_map(move |row| row.get(column).keys());
    Some((table, uuids.filter_map(move |atom| store.get(table, atom.as_uuid()?))))
}

/// Targets that the column names, directly or through rows that it refers to; a row without one is
/// `Err` with the name of its table.
fn targets(db: &Db, place: &Place) -> Vec<Result<(String, RemoteOptions), String>> {
    if let Some((table, rows)) = referred(db, place) {
        let name = &db.engine.schema().table(table).name;
        return rows.map(|row| target_of_row(db, table, row).ok_or_else(|| name.clone())).collect();
    }
    let Some(store) = db.engine.store() else { return Vec::new() };
    let rows = store.table(place.table).iter();
    let texts = rows.flat_map(|row| row.get(place.column).keys());
    texts
        .filter_map(|atom| Some(Ok((atom.as_str()?.to_owned(), RemoteOptions::default()))))
        .collect()
}

/// Reads one row of the referenced table; columns that are missing or of another type count as
/// unset.
fn target_of_row(db: &Db, table: TableId, row: &Row) -> Option<(String, RemoteOptions)> {
    let schema = db.engine.schema().table(table);
    let column = |name: &str| schema.column_id(name).map(|id| row.get(id));
    let scalar = |name: &str| column(name).and_then(DatumRef::scalar);
    let integer = |name: &str| match scalar(name) {
        Some(weir_data::AtomRef::Integer(value)) => u64::try_from(value).ok(),
        _ => None,
    };
    let other = |key: &str| {
        let key = weir_data::Atom::string(key);
        column("other_config")?.value_of(key.as_ref())?.as_str().map(str::to_owned)
    };
    let target = scalar("target")?.as_str()?.to_owned();
    let options = RemoteOptions {
        probe_ms: integer("inactivity_probe"),
        read_only: matches!(scalar("read_only"), Some(weir_data::AtomRef::Boolean(true))),
        role: scalar("role").and_then(|role| role.as_str()).unwrap_or_default().to_owned(),
        dscp: other("dscp").and_then(|dscp| dscp.parse().ok()).filter(|dscp| *dscp < 64),
        max_backoff_ms: integer("max_backoff"),
    };
    Some((target, options))
}

/// Whether a target is something to listen on.
fn listens(target: &str) -> bool {
    ["punix:", "ptcp:", "pssl:", "pfd:"].iter().any(|method| target.starts_with(method))
}

impl Server {
    /// What is wrong with `db:` remotes, a line each: that fails a reconfiguration, while later it is
    /// only worth a warning.
    pub(crate) fn remote_errors(&self) -> String {
        let remotes = self.remotes.configured.keys().filter(|remote| remote.starts_with("db:"));
        let errors = remotes.filter_map(|remote| place(self, remote).err());
        let errors: Vec<String> = errors.chain(self.tls_errors()).collect();
        errors.into_iter().map(|error| error + "\n").collect()
    }

    /// Something that remotes may depend on has changed: opens, closes and adjusts accordingly.
    pub(crate) fn remotes_changed(&mut self) {
        // What is wrong while databases are being opened may be right at the end.
        if !self.remotes.started || self.reconfiguring.is_some() {
            return;
        }
        self.remotes.stale = self.remote_tables_are_away();
        if self.remotes.stale {
            return;
        }
        self.remotes.sources = self.remote_sources();
        self.remotes.homes = self.remote_homes();
        self.tls_changed();
        let (wanted, complaints) = self.wanted_remotes();
        for (about, (level, text)) in &complaints {
            if self.remotes.complaints.get(about).is_none_or(|(_, old)| old != text) {
                self.log("ovsdb_server", *level, text.clone());
            }
        }
        self.remotes.complaints = complaints;
        let open: Vec<String> = self.remotes.open.keys().cloned().collect();
        for target in open {
            match wanted.get(&target) {
                Some(options) => self.adjust_remote(&target, options),
                None => {
                    let text = format!("{target}: remote deconfigured");
                    self.log("ovsdb_jsonrpc_server", Level::Info, text);
                    self.close_remote(&target);
                }
            }
        }
        for (target, options) in wanted {
            if !self.remotes.open.contains_key(&target) {
                self.open_remote(target, options);
            }
        }
    }

    fn remote_tables_are_away(&self) -> bool {
        let places = self.remotes.in_tables().chain(self.tls_columns());
        let mut places = places.filter_map(|place| column_place(self, place).ok());
        places.any(|(db, _)| db.engine.is_away())
    }

    /// Whether a table of remotes can be written by nobody now.
    pub(crate) fn remote_tables_are_closed(&self) -> bool {
        self.remotes.homes.iter().any(|db| self.is_closed(*db))
    }

    /// Tables are back: what could not be read meanwhile is.
    pub(crate) fn remotes_may_have_changed(&mut self) {
        if self.remotes.stale {
            self.remotes_changed();
        }
    }

    /// Other options for what is open: some need it to be opened anew, the others count at once.
    fn adjust_remote(&mut self, target: &str, options: &RemoteOptions) {
        let Some(remote) = self.remotes.open.get_mut(target) else { return };
        if (remote.options.dscp, &remote.options.role) != (options.dscp, &options.role) {
            return self.close_remote(target);
        }
        let old = std::mem::replace(&mut remote.options, options.clone());
        if let Way::Out(connection) = &mut remote.way {
            connection.set_backoff_max(options.max_backoff_ms);
        }
        let id = remote.id;
        if old.probe_ms != options.probe_ms {
            self.probe_sessions_of(id, options.probe_ms);
        }
    }

    fn remote_sources(&self) -> Vec<(DbId, TableId)> {
        let mut sources = Vec::new();
        let remotes = self.remotes.configured.keys().filter(|remote| remote.starts_with("db:"));
        for (db, place) in remotes.filter_map(|remote| place(self, remote).ok()) {
            let column = db.engine.schema().table(place.table).column(place.column);
            sources.push((place.db, place.table));
            sources.extend(column.refs.key.map(|(table, _)| (place.db, table)));
        }
        sources.extend(self.tls_sources());
        sources
    }

    fn remote_homes(&self) -> Vec<DbId> {
        let places = self.remotes.in_tables().filter_map(|place| column_place(self, place).ok());
        places.map(|(_, place)| place.db).collect()
    }

    fn wanted_remotes(&self) -> (BTreeMap<String, RemoteOptions>, Complaints) {
        let mut wanted = BTreeMap::new();
        let mut complaints = Complaints::new();
        for (remote, options) in &self.remotes.configured {
            if !remote.starts_with("db:") {
                wanted.insert(remote.clone(), options.clone());
                continue;
            }
            let named = match place(self, remote) {
                Ok((db, place)) => targets(db, &place),
                Err(error) => {
                    complaints.insert(remote.clone(), (Level::Warning, error));
                    continue;
                }
            };
            for named in named {
                match named {
                    Ok((target, _)) if target.starts_with("pfd:") => {
                        let text = format!(
                            "pfd: remotes can only be specified on the command line; \
                             ignoring \"{target}\" from database"
                        );
                        complaints.insert(target, (Level::Warning, text));
                    }
                    Ok((target, options)) => {
                        wanted.insert(target, options);
                    }
                    Err(table) => {
                        let text =
                            format!("Table `{table}' has missing or invalid `target' column");
                        complaints.insert(format!("{remote} {table}"), (Level::Info, text));
                    }
                }
            }
        }
        (wanted, complaints)
    }

    fn open_remote(&mut self, target: String, options: RemoteOptions) {
        self.remotes.next += 1;
        let id = RemoteId(self.remotes.next);
        let is_in = listens(&target);
        let way = if is_in {
            Way::In { port: None }
        } else {
            Way::Out(Reconnect::new(&target, false, options.max_backoff_ms, 0))
        };
        let remote = Remote { id, options: options.clone(), way, tried: !is_in };
        self.remotes.open.insert(target.clone(), remote);
        if is_in {
            self.effect(Effect::Listen { remote: id, target, options });
        }
    }

    fn close_remote(&mut self, target: &str) {
        let Some(remote) = self.remotes.open.remove(target) else { return };
        self.effect(Effect::Unlisten { remote: remote.id });
        let sessions = self.sessions.iter().filter(|(_, session)| session.remote == remote.id);
        let sessions: Vec<_> = sessions.map(|(id, _)| *id).collect();
        for session in sessions {
            self.disconnect(session);
        }
    }

    pub(crate) fn listening(&mut self, id: RemoteId, result: Result<Option<u16>, String>) {
        let found = self.remotes.open.iter_mut().find(|(_, remote)| remote.id == id);
        let Some((target, remote)) = found else { return };
        let first = !std::mem::replace(&mut remote.tried, true);
        let error = match result {
            Ok(port) => {
                remote.way = Way::In { port };
                return;
            }
            Err(error) => error,
        };
        if error == NOT_SUPPORTED {
            // As the reference: what nobody can listen on is tried as if it were a connection.
            let max_ms = remote.options.max_backoff_ms;
            remote.way = Way::Out(Reconnect::new(target, true, max_ms, 0));
            self.effect(Effect::Unlisten { remote: id });
        } else if first {
            let text = format!("{target}: listen failed: {error}");
            self.log("ovsdb_jsonrpc_server", Level::Error, text);
        }
    }

    /// Has the shell try the connections that are due.
    pub(crate) fn run_connections(&mut self, now: Now) {
        if self.remotes.next_us().is_none_or(|due| due > now.monotonic_us) {
            return;
        }
        let (mut lines, mut effects) = (Vec::new(), Vec::new());
        for (target, remote) in &mut self.remotes.open {
            let Way::Out(connection) = &mut remote.way else { continue };
            if connection.due_us().is_some_and(|due| due <= now.monotonic_us) {
                lines.extend(connection.connecting(now.monotonic_us));
                effects.push(Effect::ConnectRemote {
                    remote: remote.id,
                    target: target.clone(),
                    options: remote.options.clone(),
                    patience_ms: connection.patience_ms(),
                });
            }
        }
        self.log_connections(lines);
        effects.into_iter().for_each(|effect| self.effect(effect));
    }

    /// A connection that we tried is there: its session has just been accepted.
    pub(crate) fn connection_made(&mut self, now: Now, id: RemoteId, session: SessionId) {
        if let Some(connection) = self.remotes.connection(id) {
            let line = connection.connected(now.monotonic_us, session);
            self.log_connections([line]);
        }
    }

    pub(crate) fn connection_failed(&mut self, now: Now, id: RemoteId, error: Option<&str>) {
        if let Some(connection) = self.remotes.connection(id)
            && connection.phase() == Phase::Connecting
        {
            let lines = connection.failed(now.monotonic_us, error);
            self.log_connections(lines);
        }
    }

    /// A session has ended; true if it was one that we had made.
    pub(crate) fn connection_lost(&mut self, session: SessionId, end: End<'_>) -> bool {
        let now_us = self.remotes.now_us;
        let Some((id, heard_us)) = self.sessions.get(&session).map(|s| (s.remote, s.heard_us))
        else {
            return false;
        };
        let Some(connection) = self.remotes.connection(id) else { return false };
        if connection.phase() != Phase::Active(session) {
            return false;
        }
        let lines = connection.disconnected(now_us, heard_us, end);
        self.log_connections(lines);
        true
    }

    fn log_connections(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            self.log("reconnect", Level::Info, line);
        }
    }

    /// `ovsdb-server/add-remote`
    pub(crate) fn add_remote(&mut self, remote: &str) -> Result<String, String> {
        if remote.starts_with("db:") {
            place(self, remote)?;
        } else if remote.starts_with("pfd:") {
            return Err("pfd: remotes can only be specified on the command line".into());
        }
        if !self.remotes.configured.contains_key(remote) {
            self.remotes.configured.insert(remote.to_owned(), RemoteOptions::default());
            self.remotes_changed();
            self.save_configuration();
        }
        Ok(String::new())
    }

    /// `ovsdb-server/remove-remote`
    pub(crate) fn remove_remote(&mut self, remote: &str) -> Result<String, String> {
        self.remotes.configured.remove(remote).ok_or("no such remote")?;
        self.remotes_changed();
        self.save_configuration();
        Ok(String::new())
    }

    /// `ovsdb-server/list-remotes`
    pub(crate) fn list_remotes(&self) -> String {
        self.remotes.configured.keys().map(|remote| format!("{remote}\n")).collect()
    }
}
