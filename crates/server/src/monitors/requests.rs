//! Monitor requests (RFC 7047 §4.1.5, ovsdb-server(7) §4.1.12-15) and the sending of updates.

use std::sync::Arc;

use weir_data::{Error, Uuid};
use weir_json::{Kind, Text};
use weir_monitor::{Change, MonitorKey, Update, Version};
use weir_wire::Method;

use crate::database::Db;
use crate::effect::{Effect, Level};
use crate::event::{Bytes, DbId, Now, SessionId};
use crate::monitors::first_rows::{Newcomer, around};
use crate::server::Server;
use crate::session::dispatch::{Handled, Reply, exactly};
use crate::session::{Session, SessionMonitor};
use crate::work::Work;
use crate::work::away::Out;

/// How long initial rows are kept for others who ask for the same, after the last who did, in
/// microseconds.
const INITIAL_KEPT_US: u64 = 2_000_000;

/// A monitor whose conditions have changed, and which has not been told what that changes.
#[derive(Debug)]
pub(crate) struct Changing {
    session: SessionId,
    key: MonitorKey,
    /// The request's id, as JSON text.
    request: Vec<u8>,
    /// The message up to the table updates.
    head: Bytes,
}

impl Changing {
    /// Who asked for it.
    pub(crate) fn session(&self) -> SessionId {
        self.session
    }
}

impl Server {
    /// `monitor`, `monitor_cond`, `monitor_cond_since`.
    pub(crate) fn monitor(
        &mut self,
        now: Now,
        session: SessionId,
        method: Method,
        params: Text<'_>,
        request: &[u8],
    ) -> Handled {
        if self.no_conditions && method != Method::Monitor {
            return Err(Reply::error_string("unknown method"));
        }
        let (_, db_id) = self.lookup(params, method.name())?;
        let refused = || Reply::from(Error::syntax(params, "invalid parameters"));
        let (version, id, requests) = match method {
            Method::MonitorCondSince => {
                let [_, id, requests, last] = exactly(params).ok_or_else(refused)?;
                let Some(last_id) = last.string() else {
                    return Err(Error::syntax(last, "last-txn-id must be string").into());
                };
                if Uuid::parse_bytes(&last_id).is_none() {
                    let details = "last-txn-id must be UUID format.";
                    return Err(Error::syntax(last, details).into());
                }
                (Version::V3, id, requests)
            }
            Method::MonitorCond => {
                let [_, id, requests] = exactly(params).ok_or_else(refused)?;
                (Version::V2, id, requests)
            }
            _ => {
                // What follows is ignored, as by the reference.
                let mut rest = params.elements().into_iter().flatten().skip(1);
                let (id, requests) = rest.next().zip(rest.next()).ok_or_else(refused)?;
                (Version::V1, id, requests)
            }
        };
        if requests.kind() != Kind::Object {
            return Err(Error::syntax(requests, "monitor-requests must be object").into());
        }
        let mut name = Vec::new();
        id.write(&mut name);
        let Some(state) = self.sessions.get_mut(&session) else { return Ok(Reply::empty()) };
        if state.monitor(&name).is_some() {
            return Err(Error::syntax(id, "duplicate monitor ID").into());
        }
        let Some(db) = self.dbs.get_mut(&db_id) else { return Ok(Reply::empty()) };
        let key = db.monitors.add(version, name.clone(), requests, db.engine.schema())?;
        let most = if db.is_reserved() { u64::MAX } else { self.step_cost_max };
        // While the tables are away, what was committed last is what there is.
        let rows = match (db.monitors.known_initial(key), db.engine.store()) {
            (Some(rows), _) => Some(rows),
            (None, Some(store)) if db.monitors.initial_cost(key, store, most) <= most => {
                Some(db.monitors.initial(key, store))
            }
            _ => None,
        };
        let bytes = name.len() + requests.as_bytes().len();
        state.monitors.push(SessionMonitor { id: name, db: db_id, key, bytes });
        self.monitor_sessions.insert(key, session);
        self.forget_initial_us = Some(now.monotonic_us + INITIAL_KEPT_US);
        let Some(body) = rows else {
            let request = request.to_vec();
            self.join_herd(db_id, Newcomer { session, key, request, version });
            return Ok(Reply::Later);
        };
        let (before, behind) = around(version);
        Ok(Reply::Shared { before, body, behind })
    }

    /// `monitor_cond_change`: what was pending goes out under the old condition, then the
    /// difference that the new one makes, then the reply.
    pub(crate) fn monitor_cond_change(
        &mut self,
        id: SessionId,
        params: Text<'_>,
        request: &[u8],
    ) -> Handled {
        let refused = || Reply::from(Error::syntax(params, "invalid parameters"));
        let [old, new, requests] = exactly(params).ok_or_else(refused)?;
        let (mut old_name, mut new_name) = (Vec::new(), Vec::new());
        old.write(&mut old_name);
        new.write(&mut new_name);
        let Some(session) = self.sessions.get(&id) else { return Ok(Reply::empty()) };
        let Some(monitor) = session.monitor(&old_name).cloned() else {
            return Err(Error::syntax(old, "unknown monitor session").into());
        };
        if new_name != old_name && session.monitor(&new_name).is_some() {
            return Err(Error::syntax(new, "duplicate monitor ID").into());
        }
        if requests.kind() != Kind::Object {
            let details = "monitor-cond-change-requests must be object";
            return Err(Error::plain_syntax(details).into());
        }
        self.flush_session(id);
        let Some(db) = self.dbs.get_mut(&monitor.db) else { return Ok(Reply::empty()) };
        let schema = Arc::clone(db.engine.schema());
        let change =
            db.monitors.change_condition(monitor.key, new_name.clone(), requests, &schema)?;
        if let Some(session) = self.sessions.get_mut(&id) {
            let renamed = session.monitors.iter_mut().find(|m| m.key == monitor.key);
            renamed.into_iter().for_each(|m| {
                m.id.clone_from(&new_name);
                m.bytes = m.bytes.max(new_name.len() + requests.as_bytes().len());
            });
        }
        let Some(change) = change else { return Ok(Reply::empty()) };
        Ok(self.tell_change(id, &monitor, change, request))
    }

    /// Composes the difference that new conditions make, here or elsewhere.
    fn tell_change(
        &mut self,
        session: SessionId,
        monitor: &SessionMonitor,
        change: Change,
        request: &[u8],
    ) -> Reply {
        let SessionMonitor { key, db, .. } = *monitor;
        let Some(db) = self.dbs.get(&db) else { return Reply::empty() };
        let Some(store) = db.engine.store() else { return Reply::empty() };
        let most = if db.is_reserved() { u64::MAX } else { self.step_cost_max };
        let head = Arc::clone(change.head());
        if change.cost(store, most) <= most {
            let body = change.compose(store).map(Arc::new);
            body.into_iter().for_each(|body| {
                self.effect(Effect::Send { to: vec![session], head: Arc::clone(&head), body });
            });
            return Reply::empty();
        }
        let Some(snapshot) = db.engine.snapshot() else { return Reply::empty() };
        // From now on what changes merges for it, under the new conditions.
        self.hold(session);
        let out = Changing { session, key, request: request.to_vec(), head };
        self.send_out(Work::Change { change, snapshot }, Out::Change(Box::new(out)));
        Reply::Later
    }

    /// The difference is composed: it goes out, then the reply.
    pub(crate) fn give_change(&mut self, now: Now, changing: Changing, difference: Vec<u8>) {
        let Changing { session, key, request, head } = changing;
        if !self.sessions.contains_key(&session) {
            return;
        }
        // The monitor may have gone with its database meanwhile.
        if self.monitor_sessions.get(&key) == Some(&session) && !difference.is_empty() {
            let body = Arc::new(difference);
            self.effect(Effect::Send { to: vec![session], head, body });
        }
        self.send(session, weir_wire::reply_result(&request, b"{}"));
        self.let_go(now, session);
    }

    /// `monitor_cancel`
    pub(crate) fn monitor_cancel(&mut self, id: SessionId, params: Text<'_>) -> Handled {
        let unknown = || Reply::error_string("unknown monitor");
        let [name] = exactly(params).ok_or_else(|| Reply::error_string("invalid parameters"))?;
        let mut canonical = Vec::new();
        name.write(&mut canonical);
        let session = self.sessions.get_mut(&id).ok_or_else(unknown)?;
        let at = session.monitors.iter().position(|monitor| monitor.id == canonical);
        let monitor = session.monitors.remove(at.ok_or_else(unknown)?);
        self.monitor_sessions.remove(&monitor.key);
        if let Some(db) = self.dbs.get_mut(&monitor.db) {
            db.monitors.remove(monitor.key, db.engine.schema());
        }
        Ok(Reply::empty())
    }

    /// A database goes: sessions that know of such things learn which monitors went with it.
    /// `kept` are the keys, ascending, of those that go on.
    pub(crate) fn cancel_monitors(&mut self, db: DbId, kept: &[MonitorKey]) {
        let mut canceled = Vec::new();
        let ends = |monitor: &SessionMonitor| {
            monitor.db == db && kept.binary_search(&monitor.key).is_err()
        };
        for (&id, session) in &mut self.sessions {
            for monitor in session.monitors.extract_if(.., |monitor| ends(monitor)) {
                self.monitor_sessions.remove(&monitor.key);
                if session.db_change_aware {
                    canceled.push((id, monitor.id));
                }
            }
        }
        for (session, id) in canceled {
            let params = [b"[".as_slice(), &id, b"]"].concat();
            self.send(session, weir_wire::notification("monitor_canceled", &params));
        }
    }

    /// The server is about to exit: sessions that know of such things learn that their databases
    /// go, `_Server` last.
    pub fn say_farewell(&mut self) {
        let mut ids: Vec<DbId> = self.db_names.values().copied().collect();
        ids.sort_by_key(|id| self.db_names.get(crate::database::server_db::NAME) == Some(id));
        for id in ids {
            self.cancel_monitors(id, &[]);
            let waiting = self.dbs.get_mut(&id).map(|db| db.waiting.take());
            waiting.into_iter().flatten().for_each(|trigger| self.reply_canceled(&trigger));
        }
    }

    /// Sends a reply, after the session's own updates: what it changed, it has seen.
    pub(crate) fn reply(&mut self, id: SessionId, message: Vec<u8>) {
        if self.sessions.contains_key(&id) {
            self.flush_session(id);
            self.send(id, message);
        }
    }

    pub(crate) fn flush_session(&mut self, id: SessionId) {
        let found = self.sessions.get(&id).filter(|session| !session.hold.is_working());
        let Some(session) = found else { return };
        let mut updates = Vec::new();
        let mut monitors = session.monitors.as_slice();
        while let Some(first) = monitors.first() {
            let length = monitors.iter().take_while(|m| m.db == first.db).count();
            let (these, rest) = monitors.split_at(length);
            monitors = rest;
            let Some(db) = self.dbs.get_mut(&first.db) else { continue };
            if let Some(store) = db.engine.store().filter(|_| db.monitors.has_pending()) {
                let keys: Vec<MonitorKey> = these.iter().map(|m| m.key).collect();
                db.monitors.flush(&keys, store, &mut updates);
            }
        }
        self.send_updates(updates);
    }

    fn send_updates(&mut self, updates: Vec<Update>) {
        for Update { to, head, body } in updates {
            let to: Vec<SessionId> =
                to.iter().filter_map(|key| self.monitor_sessions.get(key).copied()).collect();
            self.effect(Effect::Send { to, head, body });
        }
    }

    /// Whether updates wait for an idle moment. Those of a stream of transactions wait for their
    /// deadline instead, which [`Server::next_wakeup_us`] knows.
    pub fn has_pending_updates(&self) -> bool {
        self.dbs.values().any(Db::is_flush_wanted)
    }

    /// Sends what is pending to every session that keeps up.
    pub fn flush_updates(&mut self, now: Now) {
        if !self.round.is_decided() {
            return;
        }
        for id in self.dbs.ids_where(|db| db.updates_since_us.is_some()) {
            self.flush_db(now, id);
        }
    }

    /// The herd is over: what was kept for it goes.
    pub(crate) fn forget_initial_if_due(&mut self, now: Now) {
        if self.forget_initial_us.is_some_and(|at| at <= now.monotonic_us) {
            self.forget_initial_us = None;
            self.dbs.values_mut().for_each(|db| db.monitors.forget_initial());
            self.forget_idle_streams();
        }
    }

    pub(crate) fn flush_db(&mut self, now: Now, id: DbId) {
        let Some(db) = self.dbs.get_mut(&id) else { return };
        let Some(store) = db.engine.store() else { return };
        db.flushed_us = now.monotonic_us;
        let (sessions, owners, mute) = (&self.sessions, &self.monitor_sessions, self.mute);
        let session = |key: MonitorKey| owners.get(&key).and_then(|id| sessions.get(id));
        // Where all take updates, which is as a rule, none of them is looked at.
        let blocked =
            |key: MonitorKey| mute > 0 && session(key).is_none_or(Session::takes_no_updates);
        let mut updates = Vec::new();
        let has_more = db.monitors.flush_all(store, &blocked, &mut updates);
        db.updates_since_us = has_more.then_some(now.monotonic_us);
        let overflowed = db.monitors.overflowed();
        self.send_updates(updates);
        for key in overflowed {
            let Some(&session) = self.monitor_sessions.get(&key) else { continue };
            let Some(name) = self.sessions.get(&session).map(|s| s.identity.name.clone()) else {
                continue;
            };
            let text = format!("{name}: pending updates exceed their limit, disconnecting");
            self.log("ovsdb_jsonrpc_server", Level::Warning, text);
            self.disconnect(session);
        }
    }

    /// A session's outbox is empty again: what waited for that may go.
    pub(crate) fn drained(&mut self, now: Now, id: SessionId) {
        self.set_blocked(id, false);
        self.heard(now, id);
        self.is_hungry(now, id);
        self.want_updates(now, id);
    }

    /// What has been held back from a session may go.
    pub(crate) fn want_updates(&mut self, now: Now, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let dbs: Vec<DbId> = session.monitors.iter().map(|monitor| monitor.db).collect();
        for db in dbs {
            if let Some(db) = self.dbs.get_mut(&db).filter(|db| db.monitors.has_pending()) {
                db.updates_since_us.get_or_insert(now.monotonic_us);
            }
        }
    }

    pub(crate) fn flush_if_due(&mut self, now: Now) {
        for id in self.dbs.ids_where(|db| db.is_flush_due(now)) {
            self.flush_db(now, id);
        }
    }
}
