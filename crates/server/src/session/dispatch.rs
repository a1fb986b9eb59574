//! From a message to the handler of its method.

use std::sync::Arc;

use weir_data::Error;
use weir_json::{Kind, Text, TextBuf};
use weir_wire::{Message, Method};

use crate::database::Db;
use crate::database::trigger::{Origin, Trigger};
use crate::effect::{Effect, Level};
use crate::event::{Bytes, DbId, Now, RemoteId, SessionId};
use crate::remotes::reconnect::End;
use crate::round::Asked;
use crate::server::Server;
use crate::session::gate::Incoming;
use crate::session::{Identity, LockMode, Session};
use crate::work::away::EXAMINE_BYTES_MIN;

/// Results from this size on are not copied into their message, in bytes.
const SHARED_BYTES_MIN: usize = 64 << 10;

/// What a request is answered with.
pub(crate) enum Reply {
    /// JSON text of the result.
    Result(Vec<u8>),
    /// JSON text of the error.
    Error(Vec<u8>),
    /// None yet.
    Later,
    /// A result whose middle many sessions share.
    Shared {
        /// What comes before it.
        before: Vec<u8>,
        /// The shared JSON text.
        body: Bytes,
        /// What comes behind it.
        behind: &'static [u8],
    },
}

impl Reply {
    /// The empty object.
    pub(crate) fn empty() -> Self {
        Self::Result(b"{}".to_vec())
    }

    /// An error that is a bare string.
    pub(crate) fn error_string(text: &str) -> Self {
        let mut out = Vec::new();
        weir_json::write_string(&mut out, text);
        Self::Error(out)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        let mut out = Vec::new();
        error.write(&mut out);
        Self::Error(out)
    }
}

/// A handler's result; both sides are answers.
pub(crate) type Handled = Result<Reply, Reply>;

impl Server {
    pub(crate) fn accept(
        &mut self,
        now: Now,
        id: SessionId,
        remote: RemoteId,
        name: String,
        client: Option<String>,
    ) {
        let options = self.remotes.options(remote);
        let mut session = Session {
            probe_us: self.probes.interval_us(&name, options.probe_ms),
            identity: Arc::new(Identity {
                name,
                read_only: options.read_only,
                role: options.role,
                client,
            }),
            remote,
            db_change_aware: false,
            blocked: false,
            monitors: Vec::new(),
            locks: std::collections::BTreeMap::new(),
            heard_us: now.monotonic_us,
            probing: false,
            hold: crate::session::gate::Hold::default(),
            probe_at_us: 0,
        };
        session.probe_at_us = self.probes.watch(id, now.monotonic_us, session.probe_us);
        self.sessions.insert(id, session);
        self.connection_made(now, remote, id);
    }

    /// Takes one framed message.
    pub(crate) fn receive(&mut self, now: Now, id: SessionId, message: Incoming) {
        self.heard(now, id);
        self.take_or_queue(now, id, message);
    }

    /// Handles a message whose turn it is.
    pub(crate) fn take(&mut self, now: Now, id: SessionId, message: Incoming) {
        match message {
            Incoming::Raw(bytes) if bytes.len() >= EXAMINE_BYTES_MIN => {
                self.examine(now, id, bytes);
            }
            Incoming::Raw(bytes) => match TextBuf::validate(bytes) {
                Ok(message) => self.take_checked(now, id, message),
                Err(error) => self.bad_stream(id, &error.to_string()),
            },
            Incoming::Checked(message) => self.take_checked(now, id, message),
            refused @ Incoming::Refused { .. } => self.ask(id, refused, true),
        }
    }

    fn take_checked(&mut self, now: Now, id: SessionId, message: TextBuf) {
        match Message::parse(message.text()) {
            Err(malformed) => self.protocol_error(id, &malformed.to_string()),
            Ok(Message::Request { method: "transact", params, id: request }) => {
                let mut params = params.elements();
                let name = params.as_mut().and_then(Iterator::next);
                if let Some(origin) = self.transaction_origin(now, id, name, request) {
                    if self.is_closed(origin.db) {
                        return self.wait_for(id, origin.db, Incoming::Checked(message));
                    }
                    let operations = params.map_or_else(Vec::new, Iterator::collect);
                    if let Some(outcome) = self.execute(now, &origin, &operations) {
                        self.transact(now, origin, message, outcome);
                    }
                } else {
                    self.ask(id, Incoming::Checked(message), false);
                }
            }
            Ok(Message::Request { method: "echo", .. }) => {
                self.ask(id, Incoming::Checked(message), false);
            }
            Ok(Message::Request { method: "convert", .. }) => {
                self.begin_conversion(id);
                self.ask(id, Incoming::Checked(message), true);
            }
            Ok(Message::Request { .. } | Message::Notification { .. }) => {
                self.ask(id, Incoming::Checked(message), true);
            }
            Ok(Message::Reply { id: reply, .. }) => self.unasked(id, "reply", reply),
            Ok(Message::Error { id: reply, .. }) => self.unasked(id, "error", reply),
        }
    }

    /// Lets a request wait until the round's transactions are decided; `holds` what comes behind it.
    pub(crate) fn ask(&mut self, session: SessionId, message: Incoming, holds: bool) {
        if holds {
            self.has_asked(session);
        }
        self.round.requests.push(Asked { session, message, holds });
    }

    /// Where a `transact` request runs whose first parameter is `name`, unless it is to be refused.
    fn transaction_origin(
        &self,
        now: Now,
        session: SessionId,
        name: Option<Text<'_>>,
        id: Text<'_>,
    ) -> Option<Origin> {
        let name = name?.str()?;
        let db = *self.db_names.get(&*name)?;
        let mut canonical = Vec::with_capacity(id.as_bytes().len());
        id.write(&mut canonical);
        let identity = Arc::clone(&self.sessions.get(&session)?.identity);
        let created_us = now.monotonic_us;
        let origin = Origin { session, identity, id: canonical, db, created_us };
        (!self.is_in_flight(&origin)).then_some(origin)
    }

    /// Whether a request of the session with the same id is not answered yet.
    pub(crate) fn is_in_flight(&self, origin: &Origin) -> bool {
        let is_same = |other: &Origin| other.session == origin.session && other.id == origin.id;
        self.dbs.values().any(|db| {
            db.waiting.has(origin) || db.conversions.in_flight().any(|(other, _)| is_same(other))
        })
    }

    /// Handles a request or notification that is not a running transaction.
    pub(crate) fn request(&mut self, now: Now, session: SessionId, message: Incoming) {
        if !self.sessions.contains_key(&session) {
            return;
        }
        let message = match message {
            Incoming::Checked(message) => message,
            Incoming::Refused { outline, bytes } => {
                return self.refuse(session, &outline, bytes);
            }
            Incoming::Raw(_) => return,
        };
        match Message::parse(message.text()) {
            Ok(Message::Request { method, params, id }) => {
                if let Some(db) = self.away_tables(session, method, params) {
                    return self.wait_for(session, db, Incoming::Checked(message));
                }
                let mut request = Vec::new();
                id.write(&mut request);
                if method == "convert" {
                    if let Err(reply) = self.convert(now, session, params, &request) {
                        self.answer(session, &request, reply);
                        self.end_conversion(session);
                    }
                    return;
                }
                let (Ok(reply) | Err(reply)) = self.method(now, session, method, params, &request);
                self.answer(session, &request, reply);
                if method.starts_with("monitor") || matches!(method, "lock" | "steal") {
                    self.check_kept(session);
                }
            }
            Ok(Message::Notification { method: "cancel", params }) => self.cancel(session, params),
            _ => {}
        }
    }

    /// Whether no transaction can run on a database now.
    pub(crate) fn is_closed(&self, db: DbId) -> bool {
        self.dbs.get(&db).is_some_and(Db::is_closed)
    }

    /// Whether a helper has the tables.
    pub(crate) fn is_away(&self, db: DbId) -> bool {
        self.dbs.get(&db).is_some_and(|db| db.engine.is_away())
    }

    /// The database whose tables a request needs, if they are away.
    fn away_tables(&self, id: SessionId, method: &str, params: Text<'_>) -> Option<DbId> {
        let first = params.elements()?.next()?;
        let db = match Method::parse(method)? {
            Method::Convert => *self.db_names.get(&*first.str()?)?,
            Method::MonitorCondChange => {
                let mut name = Vec::new();
                first.write(&mut name);
                self.sessions.get(&id)?.monitor(&name)?.db
            }
            _ => return None,
        };
        self.is_away(db).then_some(db)
    }

    /// Answers with a result, copied only if that costs little.
    pub(crate) fn reply_result(&mut self, session: SessionId, request: &[u8], result: Vec<u8>) {
        if result.len() < SHARED_BYTES_MIN {
            return self.reply(session, weir_wire::reply_result(request, &result));
        }
        let body = Arc::new(result);
        self.answer(session, request, Reply::Shared { before: Vec::new(), body, behind: b"" });
    }

    fn answer(&mut self, session: SessionId, request: &[u8], reply: Reply) {
        if !self.sessions.contains_key(&session) {
            return;
        }
        match reply {
            Reply::Result(result) => self.reply_result(session, request, result),
            Reply::Later => {}
            Reply::Error(error) => self.reply(session, weir_wire::reply_error(request, &error)),
            Reply::Shared { before, body, behind } => {
                let (mut head, tail) = weir_wire::reply_result_around(request);
                head.extend_from_slice(&before);
                self.flush_session(session);
                self.effect(Effect::Send { to: vec![session], head: Arc::new(head), body });
                self.send(session, [behind, tail].concat());
            }
        }
    }

    fn method(
        &mut self,
        now: Now,
        session: SessionId,
        name: &str,
        params: Text<'_>,
        request: &[u8],
    ) -> Handled {
        let Some(method) = Method::parse(name) else {
            return Err(Reply::error_string("unknown method"));
        };
        match method {
            Method::Transact => {
                self.lookup(params, name)?;
                Err(Error::syntax(params, "transact: duplicate request ID").into())
            }
            Method::Echo => {
                let mut result = Vec::new();
                params.write(&mut result);
                Ok(Reply::Result(result))
            }
            Method::ListDbs => Ok(self.list_dbs()),
            Method::GetSchema => {
                let (_, db) = self.lookup(params, name)?;
                let schema = self.dbs.get(&db).map(|db| db.engine.schema().to_string());
                Ok(Reply::Result(schema.unwrap_or_default().into_bytes()))
            }
            Method::GetServerId => Ok(Reply::Result(format!("\"{}\"", self.id).into_bytes())),
            Method::Monitor | Method::MonitorCond | Method::MonitorCondSince => {
                self.monitor(now, session, method, params, request)
            }
            Method::MonitorCondChange => self.monitor_cond_change(session, params, request),
            Method::MonitorCancel => self.monitor_cancel(session, params),
            Method::Lock => self.lock(session, params, name, LockMode::Wait),
            Method::Steal => self.lock(session, params, name, LockMode::Steal),
            Method::Unlock => self.unlock(session, params, name),
            Method::SetDbChangeAware => self.set_db_change_aware(session, params),
            // Answered elsewhere, and no request.
            Method::Convert | Method::Cancel => Err(Reply::error_string("unknown method")),
        }
    }

    /// The database that a request's parameters begin with.
    pub(crate) fn lookup(&self, params: Text<'_>, method: &str) -> Result<(String, DbId), Reply> {
        let name = params.elements().into_iter().flatten().next().and_then(|name| name.string());
        let Some(name) = name else {
            let details = format!("{method} request params must begin with <db-name>");
            return Err(Error::syntax(params, details).into());
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        match self.db_names.get(&name) {
            Some(&db) => Ok((name, db)),
            None => {
                let details = format!("{method} request specifies unknown database {name}");
                Err(Error::syntax_tagged(params, "unknown database", details).into())
            }
        }
    }

    fn list_dbs(&self) -> Reply {
        let names = weir_json::array(self.db_names.keys().map(String::as_str));
        Reply::Result(names.to_string().into_bytes())
    }

    fn set_db_change_aware(&mut self, session: SessionId, params: Text<'_>) -> Handled {
        let mut elements = params.elements().into_iter().flatten();
        match (elements.next().and_then(Text::bool), elements.next()) {
            (Some(aware), None) => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.db_change_aware = aware;
                }
                Ok(Reply::empty())
            }
            _ => {
                let details = "set_db_change_aware: true or false parameter expected";
                Err(Error::syntax(params, details).into())
            }
        }
    }

    fn cancel(&mut self, session: SessionId, params: Text<'_>) {
        let Some([id]) = exactly(params) else { return };
        let mut request = Vec::new();
        id.write(&mut request);
        let mut canceled = Vec::new();
        for db in self.dbs.values_mut() {
            canceled.extend(db.waiting.take_of(session, |trigger| trigger.origin.id == request));
        }
        for trigger in canceled {
            self.reply_canceled(&trigger);
        }
    }

    /// The reference answers a canceled transaction only to sessions that know of such things.
    pub(crate) fn reply_canceled(&mut self, trigger: &Trigger) {
        let session = trigger.origin.session;
        if self.sessions.get(&session).is_some_and(|session| session.db_change_aware) {
            let message = weir_wire::reply_error_string(&trigger.origin.id, "canceled");
            // It has changed nothing that the session would have to see before.
            self.send(session, message);
        }
    }

    fn lock(&mut self, id: SessionId, params: Text<'_>, method: &str, mode: LockMode) -> Handled {
        let name = self.lock_name(id, params, method)?;
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(Reply::empty()) };
        if session.locks.contains_key(&name) {
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(Error::syntax(params, details).into());
        }
        session.locks.insert(name.clone(), mode);
        let locked = match mode {
            LockMode::Wait => self.locks.lock(&name, id),
            LockMode::Steal => {
                if let Some(victim) = self.locks.steal(&name, id) {
                    self.notify_lock(victim, "stolen", &name);
                }
                true
            }
        };
        let result: &[u8] = if locked { b"{\"locked\":true}" } else { b"{\"locked\":false}" };
        Ok(Reply::Result(result.to_vec()))
    }

    fn unlock(&mut self, id: SessionId, params: Text<'_>, method: &str) -> Handled {
        let name = self.lock_name(id, params, method)?;
        let held = self.sessions.get_mut(&id).and_then(|session| session.locks.remove(&name));
        if held.is_none() {
            let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
            return Err(Error::syntax(params, details).into());
        }
        self.release(id, &name);
        Ok(Reply::empty())
    }

    fn release(&mut self, id: SessionId, name: &str) {
        if let Some(next) = self.locks.unlock(name, id) {
            self.notify_lock(next, "locked", name);
        }
    }

    fn lock_name(&self, id: SessionId, params: Text<'_>, method: &str) -> Result<String, Reply> {
        let is_read_only = |session: &Session| session.identity.read_only;
        if self.sessions.get(&id).is_some_and(is_read_only) || self.is_all_backup() {
            let text = "lock and unlock methods not allowed, DB server is read only.";
            return Err(Reply::error_string(text));
        }
        let mut elements = params.elements().into_iter().flatten();
        let name = elements.next().and_then(|name| name.str().map(|name| name.into_owned()));
        match name.filter(|name| weir_data::parser::is_id(name)) {
            Some(name) if elements.next().is_none() => Ok(name),
            _ => {
                let details = format!("{method} request params must be <id>");
                Err(Error::syntax(params, details).into())
            }
        }
    }

    fn notify_lock(&mut self, session: SessionId, method: &str, lock: &str) {
        let params = weir_json::array([lock]).to_string();
        self.send(session, weir_wire::notification(method, params.as_bytes()));
    }

    /// A message has become too long for what the server may keep.
    pub(crate) fn too_long(&mut self, id: SessionId, bytes: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let text = format!(
            "{}: passing over a message of more than {bytes} bytes, for which there is no memory",
            session.identity.name
        );
        self.log_limited("too_long", "jsonrpc", Level::Warning, text);
    }

    /// Answers a message that was too long, if it was a request.
    fn refuse(&mut self, id: SessionId, outline: &[u8], bytes: u64) {
        let parsed = weir_json::validate(outline).ok().map(Message::parse);
        let Some(Ok(Message::Request { id: request, .. })) = parsed else {
            return self.bad_stream(id, "message is too long");
        };
        let mut text = Vec::new();
        request.write(&mut text);
        let details =
            format!("request of more than {bytes} bytes, for which this server has no memory");
        self.answer(id, &text, Error::new("resources exhausted", details).into());
    }

    pub(crate) fn bad_stream(&mut self, id: SessionId, error: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let text = format!("{}: error parsing stream: {error}", session.identity.name);
        self.log_limited("bad_stream", "jsonrpc", Level::Warning, text);
        self.drop_misfit(id);
    }

    fn protocol_error(&mut self, id: SessionId, reason: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let text = format!("{}: received bad JSON-RPC message: {reason}", session.identity.name);
        self.log_limited("protocol_error", "jsonrpc", Level::Warning, text);
        self.drop_misfit(id);
    }

    /// Ends a session that does not speak JSON-RPC.
    fn drop_misfit(&mut self, id: SessionId) {
        let is_ours = self.connection_lost(id, End::Failed("Protocol error"));
        if let (false, Some(session)) = (is_ours, self.sessions.get(&id)) {
            let text = format!("{}: connection dropped (Protocol error)", session.identity.name);
            self.log_limited("misfit", "reconnect", Level::Warning, text);
        }
        self.forget(id);
        self.effect(Effect::Disconnect { session: id });
    }

    /// A reply, which only a probe is entitled to.
    fn unasked(&mut self, id: SessionId, kind: &str, reply: Text<'_>) {
        let Some(session) = self.sessions.get(&id) else { return };
        if reply.as_bytes() == crate::session::probes::ID {
            return;
        }
        let text = format!("{}: received unexpected {kind} message", session.identity.name);
        self.log_limited("unexpected_reply", "ovsdb_jsonrpc_server", Level::Warning, text);
        self.disconnect(id);
    }

    pub(crate) fn closed(&mut self, id: SessionId, error: Option<&str>) {
        let is_ours = self.connection_lost(id, error.map_or(End::Closed, End::Failed));
        if let (false, Some(session), Some(error)) = (is_ours, self.sessions.get(&id), error) {
            let text = format!("{}: connection dropped ({error})", session.identity.name);
            self.log("reconnect", Level::Info, text);
        }
        self.forget(id);
    }

    /// Ends a session from this side.
    pub(crate) fn disconnect(&mut self, id: SessionId) {
        self.connection_lost(id, End::Dropped);
        self.forget(id);
        self.effect(Effect::Disconnect { session: id });
    }

    /// Ends everything that a session had going.
    fn forget(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.mute -= usize::from(session.takes_no_updates());
        self.leave_stream(id);
        for monitor in session.monitors {
            self.monitor_sessions.remove(&monitor.key);
            if let Some(db) = self.dbs.get_mut(&monitor.db) {
                db.monitors.remove(monitor.key, db.engine.schema());
            }
        }
        for db in self.dbs.values_mut() {
            db.waiting.take_of(id, |_| true);
            db.conversions.forget(id);
        }
        for name in session.locks.into_keys() {
            self.release(id, &name);
        }
    }

    /// Databases came or went: clients that cannot be told are disconnected, so that they look.
    pub(crate) fn disconnect_unaware(&mut self, reason: &str) {
        self.disconnect_where(reason, |session| !session.db_change_aware);
    }

    pub(crate) fn disconnect_where(&mut self, reason: &str, is_meant: impl Fn(&Session) -> bool) {
        let meant: Vec<(SessionId, String)> = self
            .sessions
            .iter()
            .filter(|(_, session)| is_meant(session))
            .map(|(id, session)| (*id, session.identity.name.clone()))
            .collect();
        for (id, name) in meant {
            self.log(
                "ovsdb_jsonrpc_server",
                Level::Info,
                format!("{name}: disconnecting ({reason})"),
            );
            self.disconnect(id);
        }
    }

    /// Changes whether a session takes updates.
    pub(crate) fn change_session(&mut self, id: SessionId, change: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let before = session.takes_no_updates();
        change(session);
        let after = session.takes_no_updates();
        self.mute = self.mute - usize::from(before) + usize::from(after);
    }

    pub(crate) fn set_blocked(&mut self, id: SessionId, blocked: bool) {
        self.change_session(id, |session| session.blocked = blocked);
    }
}

/// Whether a value is an array of exactly `n` elements; if so, they.
pub(crate) fn exactly<'a, const N: usize>(params: Text<'a>) -> Option<[Text<'a>; N]> {
    debug_assert_eq!(params.kind(), Kind::Array);
    let elements: Vec<Text<'a>> = params.elements()?.take(N + 1).collect();
    elements.try_into().ok()
}
