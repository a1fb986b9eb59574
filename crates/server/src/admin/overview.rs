//! `weir/status`: all that an operator wants to see first, as one JSON object.

use weir_data::Uuid;
use weir_json::{Value, array, object};

use crate::backup::Backups;
use crate::database::{Databases, Db, ShownKey};
use crate::event::HostStatus;
use crate::ids::{DbId, SessionId};
use crate::monitors::Subscriptions;
use crate::relays::{Relay, Relays};
use crate::remotes::Remotes;
use crate::session::{Session, Sessions};
use crate::shell::Shell;
use crate::storage::Standalone;

/// Most sessions that are told one by one, those with most bytes queued first.
pub const SESSIONS_SHOWN_MAX: usize = 1000;

/// Whom to ask.
pub(crate) struct Overview<'s> {
    pub(crate) shell: &'s Shell,
    pub(crate) sessions: &'s Sessions,
    pub(crate) databases: &'s Databases,
    pub(crate) subscriptions: &'s Subscriptions,
    pub(crate) remotes: &'s Remotes,
    pub(crate) backups: &'s Backups,
    pub(crate) relays: &'s Relays,
    /// Whose big messages helpers look at, and when they came.
    pub(crate) checks: Vec<(SessionId, u64)>,
    pub(crate) host: &'s HostStatus,
}

impl Overview<'_> {
    /// The answer to `weir/status`: `databases`, `sessions`, `sessions_total`, `work` and
    /// `process`. Times are in milliseconds, sizes in bytes.
    pub(crate) fn to_json(&self) -> String {
        let databases = self.databases.iter().map(|(id, db)| self.database(id, db)).collect();
        let overview = object([
            ("databases", Value::Array(databases)),
            ("process", self.process()),
            ("sessions", Value::Array(self.sessions_by_queue())),
            ("sessions_total", number(self.sessions.len())),
            ("work", Value::Array(self.work_out())),
        ]);
        overview.to_string()
    }

    fn sessions_by_queue(&self) -> Vec<Value> {
        let queued = |id: SessionId| self.host.queued.get(&id).copied().unwrap_or(0);
        let mut order: Vec<(SessionId, &Session)> = self.sessions.iter().collect();
        // Stable: equal ones stay in the order in which they came.
        order.sort_by_key(|(id, _)| std::cmp::Reverse(queued(*id)));
        let shown = order.into_iter().take(SESSIONS_SHOWN_MAX);
        shown.map(|(id, session)| self.session(id, session, queued(id))).collect()
    }

    fn session(&self, id: SessionId, session: &Session, queued_bytes: u64) -> Value {
        let identity = session.identity();
        object([
            ("held", session.gate().is_closed().into()),
            ("kept_bytes", number(self.sessions.kept_for(id))),
            ("locks", number(session.locks().len())),
            ("monitors", number(self.subscriptions.count(id))),
            ("name", identity.name.as_str().into()),
            ("queued_bytes", number(queued_bytes)),
            ("read_only", identity.read_only.into()),
            ("remote", self.remotes.target(session.remote()).map_or(Value::Null, Into::into)),
            ("role", identity.role.as_str().into()),
            ("silent_ms", self.age(session.heard_us())),
        ])
    }

    /// Transactions that helpers run, messages that they check, and what they compose.
    fn work_out(&self) -> Vec<Value> {
        let databases = self.databases.at_work();
        let databases =
            databases.map(|(what, db, session, since)| (what, Some(db), session, since));
        let checks = self.checks.iter().map(|(id, came)| ("check", None, Some(*id), Some(*came)));
        let composed = self.subscriptions.at_work();
        let composed = composed.map(|(what, db, session)| (what, db, session, None));
        let rows = self.backups.at_work().map(|db| ("rows of the source", Some(db), None, None));
        let work = databases.chain(checks).chain(composed).chain(rows);
        work.map(|(what, db, session, since)| self.work(what, db, session, since)).collect()
    }

    fn work(
        &self,
        what: &str,
        db: Option<DbId>,
        session: Option<SessionId>,
        since_us: Option<u64>,
    ) -> Value {
        let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
        let name = db.and_then(|db| self.databases.get(db)).map(Db::name);
        let session = session.and_then(|id| self.sessions.get(id)).map(Session::name);
        object([
            ("age_ms", since_us.map_or(Value::Null, |since| self.age(since))),
            ("database", text(name)),
            ("session", text(session)),
            ("what", what.into()),
        ])
    }

    fn database(&self, id: DbId, db: &Db) -> Value {
        let ids = db.schema().table_ids();
        // None while a helper has the tables.
        let rows = db.tables().store().map(|store| ids.map(|(id, _)| store.table(id).len()).sum());
        let (waiting, oldest) = db.waiting();
        let keys = db.shown_keys();
        let keys = keys.iter().map(|shown| key(db, shown));
        object([
            ("atoms", number(db.sizes().atoms)),
            ("conversion", db.is_converting().into()),
            ("file", db.file().map_or(Value::Null, |file| self.file(file))),
            ("is_backup", db.is_backup().into()),
            ("keys", Value::Array(keys.collect())),
            ("monitors", number(db.monitors().len())),
            ("name", db.name().into()),
            ("oldest_waiting_ms", oldest.map_or(Value::Null, |since| self.age(since))),
            ("pending_bytes", number(db.monitors().pending_bytes())),
            ("queued", number(db.tables().queue().len())),
            ("relay", self.relays.get(id).map_or(Value::Null, |relay| self.relay(relay))),
            ("rows", rows.map_or(Value::Null, |rows: usize| number(rows))),
            ("waiting", number(waiting)),
        ])
    }

    fn relay(&self, relay: &Relay) -> Value {
        let forwarded = relay.forwards.len();
        let path = relay.follower.path().servers;
        object([
            ("behind_ms", relay.lost_us().map_or(number(0u64), |since| self.age(since))),
            ("connected", relay.follower.is_current().into()),
            ("forwarded", number(forwarded)),
            ("path", array(path.iter().map(Uuid::to_string))),
            ("source", relay.follower.server().into()),
        ])
    }

    fn file(&self, file: &Standalone) -> Value {
        let since_us = file.compacting_since_us();
        let (size, snapshot_size, records) = file.sizes();
        object([
            ("compacting_ms", since_us.map_or(Value::Null, |since| self.age(since))),
            ("fault", file.fault().map_or(Value::Null, Into::into)),
            ("path", file.path().into()),
            ("records", number(records)),
            ("size", number(size)),
            ("snapshot_size", number(snapshot_size)),
        ])
    }

    fn process(&self) -> Value {
        let (host, (kept, kept_max)) = (self.host, self.sessions.kept());
        object([
            ("kept_bytes", number(kept)),
            ("kept_bytes_max", number(kept_max)),
            ("queued_bytes", number(host.queued.values().sum::<u64>())),
            ("resident_bytes", number(host.resident_bytes)),
            ("rounds", number(host.rounds)),
            ("stall_us", number(host.stall_us)),
            ("stall_ever_us", number(host.stall_ever_us)),
        ])
    }

    /// Milliseconds since then.
    fn age(&self, since_us: u64) -> Value {
        number(self.shell.elapsed_ms(since_us))
    }
}

/// A key on a column: figures are 0 where there is no such key now.
fn key(db: &Db, shown: &ShownKey) -> Value {
    let state = shown.state.as_ref();
    object([
        ("bytes", number(state.map_or(0, |state| state.bytes))),
        ("column", shown.column.as_str().into()),
        ("entries", number(state.map_or(0, |state| state.entries))),
        ("kind", shown.kind().into()),
        ("rows_saved", number(state.map_or(0, |state| state.saved))),
        ("state", db.state_of(shown).into()),
        ("table", shown.table.as_str().into()),
        ("wanted_by", shown.wanted_by().into()),
    ])
}

fn number(count: impl TryInto<i64>) -> Value {
    count.try_into().unwrap_or(i64::MAX).into()
}
