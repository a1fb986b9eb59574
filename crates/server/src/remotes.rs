//! Remotes: where the server listens, given on the command line, by admin commands, or in tables.

use std::collections::BTreeMap;

use weir_data::{AtomType, ColumnId, DatumRef, Delta, Row, TableId};

use crate::database::Db;
use crate::effect::{Effect, Level, RemoteOptions};
use crate::event::{DbId, RemoteId};
use crate::server::Server;

/// One listener that should be.
#[derive(Clone, Debug)]
struct Remote {
    id: RemoteId,
    options: RemoteOptions,
    tried: bool,
}

/// The configured remotes and the listeners that follow from them.
#[derive(Debug)]
pub(crate) struct Remotes {
    /// As configured; `db:` ones stand for what a table says.
    configured: BTreeMap<String, RemoteOptions>,
    /// By target.
    listeners: BTreeMap<String, Remote>,
    /// The tables that `db:` remotes are read from.
    sources: Vec<(DbId, TableId)>,
    /// Complaints about `db:` remotes that have been logged.
    complaints: BTreeMap<String, String>,
    started: bool,
    /// Tables that they are read from were away when something changed.
    stale: bool,
    next: u64,
}

impl Remotes {
    pub(crate) fn new() -> Self {
        Self {
            configured: BTreeMap::new(),
            listeners: BTreeMap::new(),
            sources: Vec::new(),
            complaints: BTreeMap::new(),
            started: false,
            stale: false,
            next: 0,
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

    /// Whether every listener has been opened, or has failed once.
    pub(crate) fn all_tried(&self) -> bool {
        self.started && self.listeners.values().all(|remote| remote.tried)
    }

    /// The options of a listener's sessions.
    pub(crate) fn options(&self, id: RemoteId) -> RemoteOptions {
        let found = self.listeners.values().find(|remote| remote.id == id);
        found.map(|remote| remote.options.clone()).unwrap_or_default()
    }

    /// Whether a change may be one of remotes: it touches a table that names them.
    pub(crate) fn are_named_in(&self, db: DbId, delta: &Delta) -> bool {
        let is_meant = |table: TableId| self.sources.contains(&(db, table));
        !self.sources.is_empty() && delta.tables.iter().any(|table| is_meant(table.table))
    }
}

/// The parts of `db:DB,TABLE,COLUMN`.
struct Place {
    db: DbId,
    table: TableId,
    column: ColumnId,
}

fn place<'d>(server: &'d Server, remote: &str) -> Result<(&'d Db, Place), String> {
    let rest = remote.strip_prefix("db:").unwrap_or(remote);
    let parts: Vec<&str> = rest.splitn(3, ',').collect();
    let &[db_name, table_name, column_name] = parts.as_slice() else {
        return Err(format!("\"{remote}\": invalid syntax"));
    };
    let found = server.db_names.get(db_name).and_then(|id| server.dbs.get_key_value(id));
    let (&id, db) = found.ok_or_else(|| format!("\"{remote}\": no database named {db_name}"))?;
    let schema = db.engine.schema();
    let table = schema
        .table_id(table_name)
        .ok_or_else(|| format!("\"{remote}\": no table named {table_name}"))?;
    let column = schema.table(table).column_id(column_name).ok_or_else(|| {
        format!("\"{remote}\": table \"{table_name}\" has no column \"{column_name}\"")
    })?;
    let ty = &schema.table(table).column(column).ty;
    let is_reference = ty.key.reference().is_some();
    if ty.is_map() || !(ty.key.ty == AtomType::String || is_reference) {
        return Err(format!(
            "\"{remote}\": type of table \"{table_name}\" column \"{column_name}\" is not string or UUID"
        ));
    }
    Ok((db, Place { db: id, table, column }))
}

/// Targets that the column names, directly or through rows that it refers to.
fn targets(db: &Db, place: &Place) -> Vec<(String, RemoteOptions)> {
    let Some(store) = db.engine.store() else { return Vec::new() };
    let schema = db.engine.schema();
    let reference = schema.table(place.table).column(place.column).refs.key;
    let mut found = Vec::new();
    for row in store.table(place.table).iter() {
        for atom in row.get(place.column).keys() {
            if let Some(target) = atom.as_str() {
                found.push((target.to_owned(), RemoteOptions::default()));
            } else if let (Some((table, _)), Some(uuid)) = (reference, atom.as_uuid())
                && let Some(row) = store.get(table, uuid)
            {
                found.extend(target_of_row(db, table, row));
            }
        }
    }
    found
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

/// Whether a target is something to listen on; the error is the reference's.
pub(crate) fn check_target(target: &str) -> Result<(), String> {
    let listens = ["punix:", "ptcp:", "ptcp"].iter().any(|method| target.starts_with(method));
    if listens {
        return Ok(());
    }
    if target.starts_with("pssl:") || target.starts_with("ssl:") {
        return Err(format!("{target}: TLS is not available in this version"));
    }
    Err(format!("{target}: listen failed (Address family not supported by protocol)"))
}

impl Server {
    /// What is wrong with `db:` remotes, a line each: that fails a reconfiguration, while later it is
    /// only worth a warning.
    pub(crate) fn remote_errors(&self) -> String {
        let remotes = self.remotes.configured.keys().filter(|remote| remote.starts_with("db:"));
        let errors = remotes.filter_map(|remote| place(self, remote).err());
        errors.map(|error| error + "\n").collect()
    }

    /// Something that remotes may depend on has changed: opens and closes listeners accordingly.
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
        let (wanted, complaints) = self.wanted_remotes();
        for (remote, complaint) in &complaints {
            if self.remotes.complaints.get(remote) != Some(complaint) {
                self.log("ovsdb_server", Level::Warning, complaint.clone());
            }
        }
        self.remotes.complaints = complaints;
        let gone: Vec<String> = self
            .remotes
            .listeners
            .iter()
            .filter(|(target, remote)| wanted.get(*target) != Some(&remote.options))
            .map(|(target, _)| target.clone())
            .collect();
        for target in gone {
            self.close_remote(&target);
        }
        for (target, options) in wanted {
            if !self.remotes.listeners.contains_key(&target) {
                self.open_remote(target, options);
            }
        }
    }

    fn remote_tables_are_away(&self) -> bool {
        let remotes = self.remotes.configured.keys().filter(|remote| remote.starts_with("db:"));
        let places = remotes.filter_map(|remote| place(self, remote).ok());
        places.into_iter().any(|(db, _)| db.engine.is_away())
    }

    /// Tables are back: what could not be read meanwhile is.
    pub(crate) fn remotes_may_have_changed(&mut self) {
        if self.remotes.stale {
            self.remotes_changed();
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
        sources
    }

    fn wanted_remotes(&self) -> (BTreeMap<String, RemoteOptions>, BTreeMap<String, String>) {
        let mut wanted = BTreeMap::new();
        let mut complaints = BTreeMap::new();
        for (remote, options) in &self.remotes.configured {
            let named = if remote.starts_with("db:") {
                match place(self, remote) {
                    Ok((db, place)) => targets(db, &place),
                    Err(error) => {
                        complaints.insert(remote.clone(), error);
                        continue;
                    }
                }
            } else {
                vec![(remote.clone(), options.clone())]
            };
            for (target, options) in named {
                match check_target(&target) {
                    Ok(()) => {
                        wanted.insert(target, options);
                    }
                    Err(error) => {
                        complaints.insert(target, error);
                    }
                }
            }
        }
        (wanted, complaints)
    }

    fn open_remote(&mut self, target: String, options: RemoteOptions) {
        self.remotes.next += 1;
        let id = RemoteId(self.remotes.next);
        let remote = Remote { id, options: options.clone(), tried: false };
        self.remotes.listeners.insert(target.clone(), remote);
        self.effect(Effect::Listen { remote: id, target, options });
    }

    fn close_remote(&mut self, target: &str) {
        let Some(remote) = self.remotes.listeners.remove(target) else { return };
        self.log("ovsdb_jsonrpc_server", Level::Info, format!("{target}: remote deconfigured"));
        self.effect(Effect::Unlisten { remote: remote.id });
        let sessions = self.sessions.iter().filter(|(_, session)| session.remote == remote.id);
        let sessions: Vec<_> = sessions.map(|(id, _)| *id).collect();
        for session in sessions {
            self.disconnect(session);
        }
    }

    pub(crate) fn listening(&mut self, id: RemoteId, result: Result<Option<u16>, String>) {
        let found = self.remotes.listeners.iter_mut().find(|(_, remote)| remote.id == id);
        let Some((target, remote)) = found else { return };
        let first = !std::mem::replace(&mut remote.tried, true);
        if let (true, Err(error)) = (first, result) {
            let text = format!("{target}: listen failed: {error}");
            self.log("ovsdb_jsonrpc_server", Level::Error, text);
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
