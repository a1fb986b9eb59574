//! The status of remotes, written to the tables that they come from (ovsdb-server(1), "Remote").
//!
//! Every 2.5 s, and once at the start, the rows of `db:` remotes are compared with how things
//! stand; what differs is written in a transaction of the server's own, one a database.

use weir_data::{AtomType, ColumnId, Row, TableId};
use weir_json::{TextBuf, Value, object};
use weir_upstream::connection::Phase;

use crate::database::{Databases, Db};
use crate::effect::Level;
use crate::ids::{DbId, SessionId};
use crate::remotes::connections::Outgoing;
use crate::remotes::tables::{Place, column_place, referred};
use crate::remotes::{Remote, Remotes, Way};
use crate::session::locks::LockMode;
use crate::session::{Session, Sessions};
use crate::shell::Shell;

/// Between two looks, in microseconds.
const STATUS_US: u64 = 2_500_000;

/// When the status is written, and what has been said about it.
#[derive(Debug, Default)]
pub(super) struct StatusWriter {
    /// When to look next.
    at_us: u64,
    /// Lines about columns that are missing, which have been logged.
    complaints: Vec<(Level, String)>,
}

/// How a remote stands.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    is_connected: bool,
    /// Keys and values, in the order of the keys.
    status: Vec<(String, String)>,
}

impl Remotes {
    /// When the next look is due; never while no table wants it. The first one waits until listeners
    /// have been tried, so that their ports are there with the first read. While a table is not open
    /// there is nothing to compare with; it is looked when it is.
    #[inline]
    pub(crate) fn next_status_us(&self, databases: &Databases) -> Option<u64> {
        if self.homes.is_empty() {
            return None;
        }
        let has_looked = self.status.at_us > 0;
        let may_look =
            (has_looked || self.all_tried()) && self.homes.iter().all(|db| databases.is_open(*db));
        may_look.then_some(self.status.at_us)
    }

    /// Writes what has changed, if it is time.
    pub(crate) fn write_status_if_due(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
    ) {
        if self.next_status_us(databases).is_none_or(|at| at > shell.now_us()) {
            return;
        }
        self.status.at_us = shell.now_us() + STATUS_US;
        for (db, operations) in self.status_operations(shell, sessions, databases) {
            let name = databases.get(db).expect("its tables were just looked at").name();
            let params = std::iter::once(name.into()).chain(operations).collect();
            let message = object([
                ("id", Value::Null),
                ("method", "transact".into()),
                ("params", Value::Array(params)),
            ]);
            let message = message.to_string().into_bytes();
            let message = TextBuf::validate(message).expect("a value is written as JSON");
            databases.transact_own(shell, sessions, db, "remote status", message);
        }
    }

    /// The updates to make, a list a database.
    fn status_operations(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        databases: &Databases,
    ) -> Vec<(DbId, Vec<Value>)> {
        let mut found: Vec<(DbId, Vec<Value>)> = Vec::new();
        let mut missing = Vec::new();
        for remote in self.in_tables() {
            // The database of a remote may have been removed.
            let Ok((db, place)) = column_place(databases, remote) else { continue };
            // What one member says of itself the others would have in their log; the reference writes nothing either.
            let is_own = !db.is_backup() && !db.storage().is_clustered();
            if db.is_reserved() || !is_own || !db.storage().may_write() {
                continue;
            }
            let operations = self.operations_of(shell, sessions, db, &place, &mut missing);
            if !operations.is_empty() {
                found.push((place.db, operations));
            }
        }
        // Once, until it changes.
        if missing != self.status.complaints {
            for (level, text) in &missing {
                shell.log("ovsdb_util", *level, text.clone());
            }
            self.status.complaints = missing;
        }
        found
    }

    fn operations_of(
        &self,
        shell: &Shell,
        sessions: &Sessions,
        db: &Db,
        place: &Place,
        missing: &mut Vec<(Level, String)>,
    ) -> Vec<Value> {
        let Some((table, rows)) = referred(db, place) else { return Vec::new() };
        let schema = db.schema().table(table);
        let mut operations = Vec::new();
        let mut seen = Vec::new();
        for row in rows {
            let target = schema.column_id("target").and_then(|id| row.get(id).scalar());
            let Some(target) = target.and_then(|atom| atom.as_str()) else { continue };
            // Two rows may refer to one; it is written once.
            if !seen.contains(&row.uuid()) {
                seen.push(row.uuid());
                let status = self.get(target).map(|remote| status_of(shell, sessions, remote));
                operations.extend(update(db, table, row, &status.unwrap_or_default()));
            }
        }
        let name = &schema.name;
        if !seen.is_empty() && schema.column_id("is_connected").is_none() {
            let text = format!("Table `{name}' has no `is_connected' column");
            missing.push((Level::Debug, text));
        }
        if !seen.is_empty() && schema.column_id("status").is_none() {
            missing.push((Level::Warning, format!("No status column present in the {name} table")));
        }
        operations
    }
}

fn status_of(shell: &Shell, sessions: &Sessions, remote: &Remote) -> Status {
    let mut status = match &remote.way {
        Way::In { port } => {
            let sessions = sessions.of_remote(remote.id).len();
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
        Way::Out(outgoing) => status_of_connection(shell, sessions, outgoing),
    };
    status.status.sort();
    status
}

fn status_of_connection(shell: &Shell, sessions: &Sessions, outgoing: &Outgoing) -> Status {
    let Outgoing { connection, session } = outgoing;
    let is_probing = || {
        let session = session.and_then(|id| sessions.get(id));
        session.expect("an active connection has a session").is_probing()
    };
    let state = match connection.phase() {
        Phase::Backoff => "BACKOFF",
        Phase::Connecting => "CONNECTING",
        Phase::Active if is_probing() => "IDLE",
        Phase::Active => "ACTIVE",
    };
    let since = |at_us: u64| (shell.elapsed_ms(at_us) / 1000).to_string();
    let mut pairs = vec![("state", state.to_owned())];
    pairs.extend(connection.connected_us().map(|at| ("sec_since_connect", since(at))));
    pairs.extend(connection.disconnected_us().map(|at| ("sec_since_disconnect", since(at))));
    pairs.extend(connection.last_error().map(|error| ("last_error", error.to_owned())));
    if let &Some(id) = session {
        let names = ["locks_held", "locks_waiting", "locks_lost"];
        let locks = names.into_iter().zip(locks_of(sessions, id));
        pairs.extend(locks.filter(|(_, locks)| !locks.is_empty()));
    }
    Status { is_connected: session.is_some(), status: owned(pairs) }
}

/// The names of locks that a session has, waits for, and has lost.
fn locks_of(sessions: &Sessions, id: SessionId) -> [String; 3] {
    let mut names: [Vec<&str>; 3] = Default::default();
    let locks = sessions.get(id).map(Session::locks);
    for (name, mode) in locks.into_iter().flatten() {
        let place = match mode {
            _ if sessions.owns_lock(id, name) => 0,
            LockMode::Wait => 1,
            LockMode::Steal => 2,
        };
        names[place].push(name);
    }
    names.map(|names| names.join(" "))
}

fn owned(pairs: Vec<(&str, String)>) -> Vec<(String, String)> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The operation that brings a row up to date, if it is not.
fn update(db: &Db, table: TableId, row: &Row, status: &Status) -> Option<Value> {
    let schema = db.schema().table(table);
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
