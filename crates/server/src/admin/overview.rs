//! `weir/status`: all that an operator wants to see first, as one JSON object.

use weir_json::{Value, object};

use crate::database::trigger::Trigger;
use crate::database::{Db, Standalone};
use crate::event::{DbId, HostStatus, Now, SessionId};
use crate::server::Server;
use crate::session::Session;
use crate::work::away::Out;

/// Most sessions that are told one by one, those with most bytes queued first.
pub const SESSIONS_SHOWN_MAX: usize = 1000;

impl Server {
    /// The answer to `weir/status`: `databases`, `sessions`, `sessions_total`, `work` and
    /// `process`. Times are in milliseconds, sizes in bytes.
    pub(crate) fn overview(&mut self, now: Now) -> String {
        let host = std::mem::take(&mut self.host_status);
        let databases = self.dbs.values().map(|db| database(db, now)).collect();
        let overview = object([
            ("databases", Value::Array(databases)),
            ("process", process(&host)),
            ("sessions", Value::Array(self.sessions_by_queue(now, &host))),
            ("sessions_total", number(self.sessions.len())),
            ("work", Value::Array(self.work_out(now))),
        ]);
        overview.to_string()
    }

    fn sessions_by_queue(&self, now: Now, host: &HostStatus) -> Vec<Value> {
        let queued = |id: SessionId| host.queued.get(&id).copied().unwrap_or(0);
        let mut order: Vec<(&SessionId, &Session)> = self.sessions.iter().collect();
        // Stable: equal ones stay in the order in which they came.
        order.sort_by_key(|(id, _)| std::cmp::Reverse(queued(**id)));
        let shown = order.into_iter().take(SESSIONS_SHOWN_MAX);
        shown.map(|(id, session)| self.session(now, session, queued(*id))).collect()
    }

    fn session(&self, now: Now, session: &Session, queued_bytes: u64) -> Value {
        let identity = &session.identity;
        object([
            ("held", session.hold.is_held().into()),
            ("locks", number(session.locks.len())),
            ("monitors", number(session.monitors.len())),
            ("name", identity.name.as_str().into()),
            ("queued_bytes", number(queued_bytes)),
            ("read_only", identity.read_only.into()),
            ("remote", self.remotes.target(session.remote).map_or(Value::Null, Into::into)),
            ("role", identity.role.as_str().into()),
            ("silent_ms", age(now, session.heard_us)),
        ])
    }

    /// Transactions that helpers run, and messages that they check.
    fn work_out(&self, now: Now) -> Vec<Value> {
        let name = |id: DbId| self.dbs.get(&id).map(|db| db.name.as_str());
        let session = |id: SessionId| self.session_name(id);
        let transaction = |what, trigger: &Trigger| {
            let origin = &trigger.origin;
            (what, name(origin.db), session(origin.session), Some(origin.created_us))
        };
        let work = self.out.values().filter_map(|out| match out {
            Out::Write(trigger, _) => Some(transaction("write", trigger)),
            Out::Read(trigger, _) => Some(transaction("read", trigger)),
            Out::Examine { session: id, came_us, .. } => {
                Some(("check", None, session(*id), Some(*came_us)))
            }
            Out::Initial { source, .. } => Some(("first rows", name(source.db), None, None)),
            Out::Piece { .. } => None,
            Out::Change(changing) => Some(("conditions", None, session(changing.session()), None)),
            Out::Mirror(_, db) => Some(("rows of the source", name(*db), None, None)),
            Out::Follow(db) => Some(("conversion", name(*db), None, None)),
            Out::Free => None,
        });
        let told = |(what, db, session, since): (&str, Option<&str>, Option<&str>, Option<u64>)| {
            let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
            object([
                ("age_ms", since.map_or(Value::Null, |since| age(now, since))),
                ("database", text(db)),
                ("session", text(session)),
                ("what", what.into()),
            ])
        };
        work.map(told).collect()
    }
}

fn database(db: &Db, now: Now) -> Value {
    let ids = db.engine.schema().table_ids();
    // None while a helper has the tables.
    let rows = db.engine.store().map(|store| ids.map(|(id, _)| store.table(id).len()).sum());
    let oldest = db.waiting.iter().map(|trigger| trigger.origin.created_us).min();
    object([
        ("atoms", number(db.engine.sizes().atoms)),
        ("conversion", db.conversions.is_busy().into()),
        ("file", db.standalone_ref().map_or(Value::Null, |standalone| file(standalone, now))),
        ("is_backup", db.is_backup().into()),
        ("monitors", number(db.monitors.len())),
        ("name", db.name.as_str().into()),
        ("oldest_waiting_ms", oldest.map_or(Value::Null, |since| age(now, since))),
        ("pending_bytes", number(db.monitors.pending_bytes())),
        ("queued", number(db.queue.len())),
        ("rows", rows.map_or(Value::Null, |rows: usize| number(rows))),
        ("waiting", number(db.waiting.len())),
    ])
}

fn file(file: &Standalone, now: Now) -> Value {
    let compaction = file.compaction.as_ref();
    object([
        ("compacting_ms", compaction.map_or(Value::Null, |began| age(now, began.started_us))),
        ("fault", file.fault.as_deref().map_or(Value::Null, Into::into)),
        ("path", file.path.as_str().into()),
        ("records", number(file.records)),
        ("size", number(file.size)),
        ("snapshot_size", number(file.snapshot_size)),
    ])
}

fn process(host: &HostStatus) -> Value {
    object([
        ("queued_bytes", number(host.queued.values().sum::<u64>())),
        ("resident_bytes", number(host.resident_bytes)),
        ("rounds", number(host.rounds)),
        ("stall_us", number(host.stall_us)),
        ("stall_ever_us", number(host.stall_ever_us)),
    ])
}

fn number(count: impl TryInto<i64>) -> Value {
    count.try_into().unwrap_or(i64::MAX).into()
}

/// Milliseconds since then.
fn age(now: Now, since_us: u64) -> Value {
    number(now.monotonic_us.saturating_sub(since_us) / 1000)
}
