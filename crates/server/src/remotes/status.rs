//! The status of remotes, written to the tables that they come from (ovsdb-server(1), "Remote").
//!
//! Every 2.5 s, and once at the start, the rows of `db:` remotes are compared with how things
//! stand; what differs is written in a transaction of the server's own, one a database.

use std::sync::Arc;

use weir_data::{AtomType, ColumnId, Row, TableId};
use weir_engine::Outcome;
use weir_json::{Value, object};

use crate::database::trigger::Origin;
use crate::database::{Db, Storage};
use crate::effect::Level;
use crate::event::{DbId, Now, SessionId};
use crate::remotes::reconnect::{Phase, Reconnect};
use crate::remotes::{Place, Remote, Way, column_place, referred};
use crate::server::Server;
use crate::session::{Identity, LockMode};

/// Between two looks, in microseconds.
const STATUS_US: u64 = 2_500_000;

/// Whose requests the server's own are: nobody's.
const NOBODY: SessionId = SessionId(u64::MAX);

/// How a remote stands.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    is_connected: bool,
    /// Keys and values, in the order of the keys.
    status: Vec<(String, String)>,
}

impl Server {
    /// When the next look is due; never while no table wants it.
    pub(crate) fn next_status_us(&self) -> Option<u64> {
        // While tables are away there is nothing to compare with; it is looked when they are back.
        (self.remotes.have_tables() && !self.remote_tables_are_closed()).then_some(self.status_us)
    }

    /// Writes what has changed, if it is time.
    pub(crate) fn update_status_if_due(&mut self, now: Now) {
        let is_time = self.status_us <= now.monotonic_us;
        if !is_time || self.next_status_us().is_none() || !self.is_settled() {
            return;
        }
        self.status_us = now.monotonic_us + STATUS_US;
        for (db, operations) in self.status_operations(now) {
            self.write_status(now, db, operations);
        }
    }

    fn write_status(&mut self, now: Now, id: DbId, operations: Vec<Value>) {
        let Some(db) = self.dbs.get(&id) else { return };
        let params: Vec<Value> =
            std::iter::once(db.name.as_str().into()).chain(operations).collect();
        let message = object([
            ("id", Value::Null),
            ("method", "transact".into()),
            ("params", Value::Array(params)),
        ]);
        let message = message.to_string().into_bytes();
        let identity = Identity {
            name: "remote status".into(),
            read_only: false,
            role: String::new(),
            client: None,
        };
        let (identity, id_text) = (Arc::new(identity), b"null".to_vec());
        let created_us = now.monotonic_us;
        let origin = Origin { session: NOBODY, identity, id: id_text, db: id, created_us };
        let Ok(message) = weir_json::TextBuf::validate(message) else { return };
        let operations = crate::database::trigger::Trigger::operations(message.text());
        let outcome = self.execute(now, &origin, &operations);
        drop(operations);
        // One that is too long for this step is done by a helper.
        if let Some(outcome @ (Outcome::Done(_) | Outcome::TooLong)) = outcome {
            self.transact(now, origin, message, outcome);
        }
    }

    /// The updates to make, a list a database.
    fn status_operations(&mut self, now: Now) -> Vec<(DbId, Vec<Value>)> {
        let mut found: Vec<(DbId, Vec<Value>)> = Vec::new();
        let mut missing = Vec::new();
        for remote in self.remotes.in_tables() {
            let Ok((db, place)) = column_place(self, remote) else { continue };
            if !matches!(db.storage, Storage::Standalone(_)) || db.is_backup() {
                continue;
            }
            let operations = self.operations_of(now, db, &place, &mut missing);
            if !operations.is_empty() {
                found.push((place.db, operations));
            }
        }
        let lines: Vec<String> = missing
            .into_iter()
            .map(|(column, table)| format!("No {column} column present in the {table} table"))
            .collect();
        // Once, until it changes.
        if lines != self.status_complaints {
            for text in &lines {
                self.log("ovsdb_util", Level::Warning, text.clone());
            }
            self.status_complaints = lines;
        }
        found
    }

    fn operations_of(
        &self,
        now: Now,
        db: &Db,
        place: &Place,
        missing: &mut Vec<(&'static str, String)>,
    ) -> Vec<Value> {
        let Some((table, rows)) = referred(db, place) else { return Vec::new() };
        let schema = db.engine.schema().table(table);
        let mut operations = Vec::new();
        let mut seen = Vec::new();
        for row in rows {
            let target = schema.column_id("target").and_then(|id| row.get(id).scalar());
            let Some(target) = target.and_then(|atom| atom.as_str()) else { continue };
            // Two rows may refer to one; it is written once.
            if !seen.contains(&row.uuid()) {
                seen.push(row.uuid());
                let status = self.remotes.get(target).map(|remote| self.status_of(now, remote));
                operations.extend(update(db, table, row, &status.unwrap_or_default()));
            }
        }
        for name in ["is_connected", "status"] {
            if !seen.is_empty() && schema.column_id(name).is_none() {
                missing.push((name, schema.name.clone()));
            }
        }
        operations
    }

    fn status_of(&self, now: Now, remote: &Remote) -> Status {
        let mut status = match &remote.way {
            Way::In { port } => {
                let sessions = self.sessions.values().filter(|s| s.remote == remote.id).count();
                let mut pairs = vec![
                    ("sec_since_connect", "0".to_owned()),
                    ("sec_since_disconnect", "0".to_owned()),
                ];
                pairs.extend(port.map(|port| ("bound_port", port.to_string())));
                if sessions > 1 {
                    pairs.push(("n_connections", sessions.to_string()));
                }
                Status { is_connected: sessions > 0, status: owned(pairs) }
            }
            Way::Out(connection) => self.status_of_connection(now, connection),
        };
        status.status.sort();
        status
    }

    fn status_of_connection(&self, now: Now, connection: &Reconnect) -> Status {
        let session = match connection.phase() {
            Phase::Active(id) => Some(id),
            Phase::Backoff | Phase::Connecting => None,
        };
        let state = match connection.phase() {
            Phase::Backoff => "BACKOFF",
            Phase::Connecting => "CONNECTING",
            Phase::Active(id) if self.sessions.get(&id).is_some_and(|s| s.probing) => "IDLE",
            Phase::Active(_) => "ACTIVE",
        };
        let since = |at_us: u64| (now.monotonic_us.saturating_sub(at_us) / 1_000_000).to_string();
        let mut pairs = vec![("state", state.to_owned())];
        pairs.extend(connection.connected_us.map(|at| ("sec_since_connect", since(at))));
        pairs.extend(connection.disconnected_us.map(|at| ("sec_since_disconnect", since(at))));
        pairs.extend(connection.last_error.clone().map(|error| ("last_error", error)));
        if let Some(id) = session {
            let names = ["locks_held", "locks_waiting", "locks_lost"];
            let locks = names.into_iter().zip(self.locks_of(id));
            pairs.extend(locks.filter(|(_, locks)| !locks.is_empty()));
        }
        Status { is_connected: session.is_some(), status: owned(pairs) }
    }

    /// The names of locks that a session has, waits for, and has lost.
    fn locks_of(&self, id: SessionId) -> [String; 3] {
        let mut names: [Vec<&str>; 3] = Default::default();
        let locks = self.sessions.get(&id).map(|session| &session.locks);
        for (name, mode) in locks.into_iter().flatten() {
            let place = match mode {
                _ if self.locks.owner(name) == Some(id) => 0,
                LockMode::Wait => 1,
                LockMode::Steal => 2,
            };
            names[place].push(name);
        }
        names.map(|names| names.join(" "))
    }
}

fn owned(pairs: Vec<(&str, String)>) -> Vec<(String, String)> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The operation that brings a row up to date, if it is not.
fn update(db: &Db, table: TableId, row: &Row, status: &Status) -> Option<Value> {
    let schema = db.engine.schema().table(table);
    let column = |name: &str, is_map: bool, key: AtomType| {
        let id = schema.column_id(name)?;
        let ty = &schema.column(id).ty;
        (ty.is_map() == is_map && ty.key.ty == key).then_some(id)
    };
    let mut columns = std::collections::BTreeMap::new();
    if let Some(id) = column("is_connected", false, AtomType::Boolean) {
        let is_connected = weir_data::AtomRef::Boolean(status.is_connected);
        if row.get(id).scalar() != Some(is_connected) {
            columns.insert("is_connected".to_owned(), status.is_connected.into());
        }
    }
    if let Some(id) = column("status", true, AtomType::String)
        && !is_map(row, id, &status.status)
    {
        let pair = |(key, value): &(String, String)| {
            Value::Array(vec![key.as_str().into(), value.as_str().into()])
        };
        let pairs = Value::Array(status.status.iter().map(pair).collect());
        columns.insert("status".to_owned(), Value::Array(vec!["map".into(), pairs]));
    }
    if columns.is_empty() {
        return None;
    }
    let uuid = Value::Array(vec!["uuid".into(), row.uuid().to_string().into()]);
    let clause = Value::Array(vec!["_uuid".into(), "==".into(), uuid]);
    Some(object([
        ("op", "update".into()),
        ("table", schema.name.as_str().into()),
        ("where", Value::Array(vec![clause])),
        ("row", Value::Object(columns)),
    ]))
}

/// Whether a map of strings is these pairs.
fn is_map(row: &Row, column: ColumnId, pairs: &[(String, String)]) -> bool {
    let datum = row.get(column);
    datum.len() == pairs.len()
        && pairs.iter().all(|(key, value)| {
            let key = weir_data::Atom::string(key.as_str());
            let found = datum.value_of(key.as_ref());
            found.and_then(|found| found.as_str().map(|found| found == value)) == Some(true)
        })
}
