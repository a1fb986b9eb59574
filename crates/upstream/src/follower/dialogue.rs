//! The dialogue of a relay or a replica with the servers of its source:
//!
//! 1. `set_db_change_aware`, `weir_features`, and the schema of `_Server`, all at once.
//! 2. The rows of `_Server`: whether this server will do, and the schema of the database. Servers
//!    without `_Server` are asked for the schema, and so are packaged ones that are no members of a cluster: their
//!    `_Server` still has the schema from before a conversion.
//! 3. The way of its rows, if it has `weir_path`: whether the owner is on it (`path`). The server tells
//!    again whenever that changes.
//! 4. The rows, from the state on that the owner has: by the newest method that the server knows. Which ones
//!    is the model's (`relay`, `replica`).
//! 5. Changes of the rows, until the connection ends, the schema changes, or the server is not fit
//!    any more: then the next one is tried.

use std::sync::Arc;

use weir_data::{Schema, Uuid};
use weir_json::{Text, TextBuf, Value, array};

use super::replica::is_unknown_method;
use super::{Asked, Follower, Model, Output, Phase, Stop, Wanted};
use crate::freshness::Fall;
use crate::news::Method;
use crate::path::{Fault, Path, SERVERS_MAX};
use crate::server_row::{Cause, Search, Unfit};
use crate::session::Level;

/// The monitor of `_Server`.
const SERVER_MONITOR: &str = r#"["monid","_Server"]"#;

/// The warning that a server is not followed because of the way of its rows comes this often at most, in
/// microseconds.
const WARNING_US: u64 = 60_000_000;

/// So long the only server that there is may come to do, in microseconds, before its address is asked anew.
const UNFIT_US_MAX: u64 = 8_000_000;

impl Follower {
    /// What the owner is as a server; a replica is none, and on nobody's way.
    pub(super) fn own_id(&self) -> Uuid {
        match &self.wanted.model {
            Model::Relay { own_id } => *own_id,
            Model::Backup(backup) => backup.own_id,
            Model::Replica(_) => Uuid::ZERO,
        }
    }

    /// The connection is open.
    pub(super) fn ask_what_there_is(&mut self) {
        self.ask("set_db_change_aware", b"[true]", Asked::Nothing);
        self.ask("weir_features", b"[]", Asked::Features);
        self.ask("get_schema", b"[\"_Server\"]", Asked::ServerSchema);
    }

    pub(super) fn notice(
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
            "weir_path" if first.and_then(Text::str).as_deref() == Some(&self.wanted.database) => {
                self.take_path(elements.next(), out)
            }
            "update2" if is_server_db => {
                let updates = elements.next();
                self.take_server_rows(updates, out)
            }
            "monitor_canceled" if is_server_db => {
                Err(Stop::Other(Level::Info, "server has no _Server database any more".to_owned()))
            }
            "monitor_canceled" => {
                // `_Server` says what has become of the database, if it is one that does; but a schema is not told again
                // if a conversion has left it as it was.
                let is_own = monitor.is_some_and(|name| self.is_monitor(name));
                if self.phase != Phase::Looking && is_own {
                    self.phase = Phase::Looking;
                    (self.schema, self.last) = (None, Uuid::ZERO);
                    self.conditions.forget();
                    // This one goes on where its tables are as they were.
                    if let Some(monitor) = self.ephemeral.take() {
                        self.cancel(&monitor.id);
                    }
                    self.ask_for_schema();
                }
                Ok(())
            }
            // Of a monitor that has been canceled, or something that nobody has asked for.
            _ => Ok(()),
        }
    }

    pub(super) fn reply(
        &mut self,
        (number, asked): (u64, Asked),
        reply: Result<Text<'_>, Text<'_>>,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        match (asked, reply) {
            (Asked::Nothing | Asked::Ephemeral, _) => Ok(()),
            (Asked::Backup(step), reply) => self.backup_reply(step, reply, out),
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
                self.ask_for_schema();
                Ok(())
            }
            (Asked::ServerRows, Ok(rows)) => self.take_server_rows(Some(rows), out),
            (Asked::Path, Ok(path)) => self.take_path(Some(path), out),
            (Asked::Path, Err(error)) => {
                let text = format!("does not say the way of its rows: {}", error.to_value());
                Err(Stop::Other(Level::Warning, text))
            }
            (Asked::Schema, reply) if self.server_says_schema() => match reply {
                Ok(schema) if self.phase == Phase::Looking && self.has_said(schema) => {
                    self.look_at_server(out)
                }
                _ => Ok(()),
            },
            (Asked::Schema, Ok(schema)) => {
                self.is_source_connected = true;
                self.take_schema(&schema.to_value().to_string())
            }
            (Asked::Schema, Err(error)) => {
                let text = format!("refused the schema: {}", error.to_value());
                Err(Stop::Other(Level::Warning, text))
            }
            // They are asked for again meanwhile, under another schema.
            (Asked::Rows, _) if self.phase != Phase::Asking(number) => Ok(()),
            (Asked::Rows, Err(error)) if self.is_replica() && !is_unknown_method(error) => {
                self.rows_refused(error, out)
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
            (Asked::Conditions, reply) => self.conditions_reply(number, reply, out),
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

    /// The server says by which way its rows come.
    fn take_path(&mut self, path: Option<Text<'_>>, out: &mut Vec<Output>) -> Result<(), Stop> {
        let Some(path) = path.and_then(Path::read) else {
            let text = "the way of its rows makes no sense".to_owned();
            return Err(Stop::Other(Level::Warning, text));
        };
        self.path = Some(path);
        self.look_at_server(out)
    }

    /// Whether the server will do, by what it has said of itself.
    fn look_at_server(&mut self, out: &mut Vec<Output>) -> Result<(), Stop> {
        let Wanted { database, remotes, leader_only, .. } = &self.wanted;
        self.freshness.look_at(self.rows.row_of(database, remotes.cluster()));
        // What an index is one of is known with the way.
        let may_judge = self.path.is_some() || !self.has("weir_path");
        let search = Search {
            database,
            cluster: remotes.cluster(),
            leader_only: *leader_only,
            index_min: if may_judge { self.freshness.least(self.origin()) } else { 0 },
        };
        let row = match self.rows.find(search) {
            Ok(row) => row,
            Err(unfit) => return self.refuse(unfit, out),
        };
        self.is_source_connected = row.is_connected;
        self.is_source_clustered = row.is_clustered;
        match &self.path {
            Some(path) => {
                if let Some(unfit) = self.unfit_by(path) {
                    return self.refuse(unfit, out);
                }
            }
            None if self.has("weir_path") => {
                let params = array([self.wanted.database.as_str()]).to_string();
                self.ask_once("weir_path", params.as_bytes(), Asked::Path);
                return Ok(());
            }
            None => {}
        }
        (self.complaint, self.unfit_until_us) = (None, None);
        if let Some(index) = row.index.filter(|index| self.freshness.is_news(*index)) {
            self.hear_index(index, out);
            if self.phase == Phase::Following {
                self.freshness.have_rows();
            }
        }
        self.asks_for_schema = !row.is_clustered && self.features.is_empty();
        match self.asks_for_schema {
            true if self.phase == Phase::Looking => self.ask_for_schema(),
            true => {}
            false => return self.take_schema(&row.schema),
        }
        Ok(())
    }

    /// What the server's index is one of, as far as it has said that.
    fn origin(&self) -> Option<Uuid> {
        let Wanted { database, remotes, .. } = &self.wanted;
        let of_path = self.path.as_ref().and_then(|path| path.origin);
        of_path.or_else(|| self.rows.cid_of(database, remotes.cluster()))
    }

    /// Whether a server will not do because of the way of its rows.
    fn unfit_by(&self, path: &Path) -> Option<Unfit> {
        let (fault, is_only) = (path.fault(self.own_id())?, self.has_one_server());
        let why = match fault {
            // Who is followed may find its source again, as may the only one that there is.
            Fault::Lost if is_only || self.phase != Phase::Looking => return None,
            Fault::Lost => return Some(Unfit::lost_relay()),
            Fault::Loop(ids) => {
                format!("relay database server has its rows from this relay ({ids})")
            }
            Fault::Long => format!("relay database server is behind {SERVERS_MAX} others"),
        };
        let advice = if is_only { ": name another source" } else { "; trying another server" };
        Some(Unfit { why: format!("{why}{advice}"), cause: Cause::Path })
    }

    /// A server will not do: the next one may. The only one that there is may do later, and says so then.
    fn refuse(&mut self, unfit: Unfit, out: &mut Vec<Output>) -> Result<(), Stop> {
        let Unfit { why, cause } = unfit;
        if cause == Cause::Behind {
            self.freshness.refuse(self.now_us);
        }
        let is_followed = self.phase != Phase::Looking;
        if self.has_one_server() && !(cause == Cause::Path && is_followed) {
            self.is_source_connected = false;
            if self.wanted.remotes.is_one_address() {
                self.unfit_until_us.get_or_insert(self.now_us + UNFIT_US_MAX);
            }
            let why = why.split(';').next().unwrap_or_default().to_owned();
            if self.complaint.replace(why.clone()).as_ref() != Some(&why) {
                self.say(Level::Info, why, out);
            }
            return Ok(());
        }
        if cause != Cause::Path {
            return Err(Stop::Other(Level::Info, why));
        }
        if self.warned_us.is_some_and(|at_us| self.now_us < at_us + WARNING_US) {
            return Err(Stop::Next);
        }
        self.warned_us = Some(self.now_us);
        Err(Stop::Other(Level::Warning, why))
    }

    fn has_one_server(&self) -> bool {
        self.wanted.remotes.servers().len() == 1
    }

    /// Asks for the schema itself.
    fn ask_for_schema(&mut self) {
        let params = array([self.wanted.database.as_str()]).to_string();
        self.ask_once("get_schema", params.as_bytes(), Asked::Schema);
    }

    /// Whether the schema is known from the server's rows of `_Server`, and from nothing else.
    fn server_says_schema(&self) -> bool {
        !self.rows.is_empty() && !self.asks_for_schema
    }

    /// Whether the server's rows of `_Server` have this schema already.
    fn has_said(&self, schema: Text<'_>) -> bool {
        let Wanted { database, remotes, .. } = &self.wanted;
        let said = self.rows.schema_of(database, remotes.cluster());
        let said = said.map(|said| TextBuf::validate(said.as_bytes().to_vec()));
        said.is_some_and(|said| said.is_ok_and(|said| said.text().to_value() == schema.to_value()))
    }

    /// Asks, unless that has been asked and is not answered yet.
    fn ask_once(&mut self, method: &str, params: &[u8], what: Asked) {
        if !self.asked.values().any(|asked| *asked == what) {
            self.ask(method, params, what);
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
            if self.phase != Phase::Looking {
                self.cancel_monitors();
            }
            self.conditions.forget();
        }
        let may_tell_each = !self.is_replica() && self.has("weir_monitor");
        let tells_each = may_tell_each && self.has("weir_monitor.each");
        self.method = if tells_each { Method::Each } else { Method::CondSince };
        self.ask_for_rows();
        Ok(())
    }

    /// Ends the monitors on this connection: others follow.
    pub(super) fn cancel_monitors(&mut self) {
        // Its rows are those of tables that the schema before had, too.
        let ephemeral = self.ephemeral.take().map(|monitor| monitor.id);
        // A change of conditions that is under way gives the monitor this name, if it is not refused.
        let next = self.next_name();
        let is_renamed = next.is_some();
        for id in [Some(self.monitor_id()), next, ephemeral].into_iter().flatten() {
            self.cancel(&id);
        }
        self.monitors += u64::from(is_renamed);
    }

    /// Ends a monitor, if it has not ended by itself.
    fn cancel(&mut self, id: &[u8]) {
        let params = [b"[", id, b"]"].concat();
        self.ask("monitor_cancel", &params, Asked::Nothing);
    }

    /// What rows are read under.
    pub(super) fn schema(&self) -> Arc<Schema> {
        let (schema, _) = self.schema.as_ref().expect("rows are asked for under a schema");
        Arc::clone(schema)
    }

    /// The name of the monitor, in the form in which it comes back.
    pub(super) fn monitor_id(&self) -> Vec<u8> {
        self.monitor_name(self.monitors)
    }

    /// The name of the monitor that is the first, second or any later one on a connection.
    pub(super) fn monitor_name(&self, number: u64) -> Vec<u8> {
        let name = Value::from(self.wanted.database.as_str());
        let id = match number {
            _ if self.is_backup() => name.to_string(),
            0 | 1 => format!(r#"["monid",{name}]"#),
            more => format!(r#"["monid",{name},{more}]"#),
        };
        id.into_bytes()
    }

    pub(super) fn ask_for_rows(&mut self) {
        self.monitors += 1;
        let (schema, last) = (self.schema(), self.last);
        let is_resumed = self.method == Method::CondSince && last != Uuid::ZERO;
        let conditions = self.conditions.of_rows(is_resumed).clone();
        let requests = match self.is_replica() {
            true => self.replica_requests(&schema, &conditions).to_string(),
            false => self.relay_requests(&schema),
        };
        let monitor = String::from_utf8_lossy(&self.monitor_id()).into_owned();
        let name = Value::from(schema.name.as_str());
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
        if self.is_replica() {
            self.conditions.request(number, conditions);
        }
    }

    /// The server says its index.
    pub(super) fn hear_index(&mut self, index: u64, out: &mut Vec<Output>) {
        let text = match self.freshness.hear(index, self.origin()) {
            None => return,
            Some(Fall { before, is_other: false }) => {
                format!("the source has gone back from index {before} to {index}")
            }
            Some(Fall { before, is_other: true }) => {
                format!("the source is another one, with index {index} in place of {before}")
            }
        };
        self.say(Level::Warning, text, out);
    }

    /// Servers that were refused because they are behind have been for so long that the source itself must
    /// have gone back: its rows are taken anew.
    pub(super) fn believe_who_is_behind(&mut self, out: &mut Vec<Output>) -> Result<(), Stop> {
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
}

/// A text in the form in which names are compared.
pub(super) fn canonical(text: Text<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    text.write(&mut out);
    out
}
