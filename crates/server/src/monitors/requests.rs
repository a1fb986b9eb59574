//! Monitor requests (RFC 7047 §4.1.5, ovsdb-server(7) §4.1.12-15).

use std::sync::Arc;

use weir_data::{Error, Uuid};
use weir_history::Place;
use weir_json::{Kind, Text};
use weir_monitor::{ConditionChange, MonitorKey, Prepare, Prepared, Version, bytes_of_text};
use weir_wire::Method;

use crate::database::searches::search;
use crate::database::{Databases, FeedOptions, server_db};
use crate::ids::{Bytes, DbId, SessionId, WorkId};
use crate::monitors::first_rows::{Newcomer, around};
use crate::monitors::pages::Beginning;
use crate::monitors::{INITIAL_KEPT_US, Monitor, OfSession, Out, Subscriptions};
use crate::origin::Asker;
use crate::reply::{Handled, Reply, exactly};
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::shell::Shell;
use crate::work::Work;

/// A monitor whose conditions have changed, and which has not been told what that changes.
#[derive(Debug)]
pub(super) struct Changing {
    session: SessionId,
    db: DbId,
    key: MonitorKey,
    /// The request's id, as JSON text.
    request: Vec<u8>,
    /// The message up to the table updates.
    head: Bytes,
}

impl Changing {
    /// Who asked for the other conditions.
    pub(super) fn session(&self) -> SessionId {
        self.session
    }
}

/// What other conditions change, composed.
pub(crate) struct Changed {
    changing: Changing,
    difference: Vec<u8>,
}

/// The parts of a request for a monitor.
struct Parsed<'a> {
    version: Version,
    id: Text<'a>,
    requests: Text<'a>,
    /// The state that the client says it knows.
    known: Option<Uuid>,
    /// Each change is told by itself, with this.
    each: Option<FeedOptions>,
}

/// Takes the parameters of `monitor`, `monitor_cond` and `monitor_cond_since` apart.
fn parse(method: Method, params: Text<'_>) -> Result<Parsed<'_>, Reply> {
    let refused = || Reply::from(Error::syntax(params, "invalid parameters"));
    let is_each = method == Method::MonitorEach;
    let mut each = None;
    let (version, id, requests, known) = match method {
        Method::MonitorCondSince | Method::MonitorEach => {
            let (id, requests, last) = if is_each {
                let [_, id, requests, last, options] = exactly(params).ok_or_else(refused)?;
                each = Some(feed_options(options)?);
                (id, requests, last)
            } else {
                let [_, id, requests, last] = exactly(params).ok_or_else(refused)?;
                (id, requests, last)
            };
            let Some(last_id) = last.string() else {
                return Err(Error::syntax(last, "last-txn-id must be string").into());
            };
            let Some(known) = Uuid::parse_bytes(&last_id) else {
                return Err(Error::syntax(last, "last-txn-id must be UUID format.").into());
            };
            (Version::V3, id, requests, Some(known).filter(|known| *known != Uuid::ZERO))
        }
        Method::MonitorCond => {
            let [_, id, requests] = exactly(params).ok_or_else(refused)?;
            (Version::V2, id, requests, None)
        }
        _ => {
            // What follows is ignored, as by the reference.
            let mut rest = params.elements().into_iter().flatten().skip(1);
            let (id, requests) = rest.next().zip(rest.next()).ok_or_else(refused)?;
            (Version::V1, id, requests, None)
        }
    };
    if requests.kind() != Kind::Object {
        return Err(Error::syntax(requests, "monitor-requests must be object").into());
    }
    Ok(Parsed { version, id, requests, known, each })
}

/// The options of `weir_monitor`: what is not known is not ignored.
fn feed_options(options: Text<'_>) -> Result<FeedOptions, Reply> {
    let wrong = |details: &str| Reply::from(Error::syntax(options, details));
    let members = options.members().filter(|_| options.kind() == Kind::Object);
    let (mut is_each, mut asked) = (false, FeedOptions::default());
    for (name, value) in members.ok_or_else(|| wrong("an object with options expected"))? {
        match (&*name, value.bool()) {
            (b"each", Some(each)) => is_each = each,
            (b"index", Some(index)) => asked.index = index,
            (b"low_water", Some(low_water)) => asked.low_water = low_water,
            _ => {
                let known = "options are \"each\", \"index\" and \"low_water\", true or false";
                return Err(wrong(known));
            }
        }
    }
    is_each.then_some(asked).ok_or_else(|| wrong("\"each\" is wanted: there is no other way yet"))
}

fn text_of(id: Text<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    id.write(&mut text);
    text
}

impl Subscriptions {
    /// Whether a method is there at all.
    pub(crate) fn knows(&self, method: Method) -> bool {
        !self.no_conditions || !matches!(method, Method::MonitorCond | Method::MonitorCondSince)
    }

    /// How to parse the conditions of a request for a monitor or for other conditions; `None` if there
    /// are none, or it is refused anyway.
    pub(crate) fn prepare(
        &self,
        sessions: &Sessions,
        databases: &Databases,
        (session, db): (SessionId, DbId),
        (method, params): (Method, Text<'_>),
    ) -> Option<Prepare> {
        let db = databases.get(db)?;
        let (prepare, name, requests) = match method {
            Method::MonitorCondChange => {
                let [old, new, requests] = exactly(params)?;
                let monitor = self.find(session, &text_of(old))?;
                (db.monitors().prepare_change(monitor.key, db.schema())?, new, requests)
            }
            Method::MonitorCond | Method::MonitorCondSince | Method::MonitorEach => {
                let Parsed { version, id, requests, .. } = parse(method, params).ok()?;
                (db.monitors().prepare(version, db.schema()), id, requests)
            }
            _ => return None,
        };
        let bytes = bytes_of_text(name.as_bytes().len(), requests.as_bytes().len());
        sessions.check_room(session, bytes).ok().map(|()| prepare)
    }

    /// `monitor`, `monitor_cond`, `monitor_cond_since`; all before it on the database is decided.
    pub(crate) fn monitor(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        (session, db_id): (SessionId, DbId),
        (method, params, prepared): (Method, Text<'_>, Option<Box<Prepared>>),
        request: &[u8],
    ) -> Handled {
        let Parsed { version, id, requests, known, each } = parse(method, params)?;
        let name = text_of(id);
        if self.find(session, &name).is_some() {
            return Err(Error::syntax(id, "duplicate monitor ID").into());
        }
        sessions.check_room(session, bytes_of_text(name.len(), requests.as_bytes().len()))?;
        let schema = Arc::clone(databases.get(db_id).expect("it was looked up").schema());
        let monitors = databases.monitors_mut(db_id);
        let added = prepared
            .and_then(|ready| monitors.add_prepared(version, name.clone(), *ready, &schema));
        let key =
            added.unwrap_or_else(|| monitors.add(version, name.clone(), requests, &schema))?;
        if let Err(error) = sessions.check_room(session, monitors.bytes_of(key)) {
            monitors.remove(key, &schema);
            return Err(error.into());
        }
        databases.own_monitor(db_id, key, session);
        if let Some(options) = each
            && let Err(error) = databases.add_feed(db_id, (key, options), session, &name)
        {
            databases.remove_monitor(db_id, key);
            return Err(error.into());
        }
        if version == Version::V3 {
            databases.keep_changes(db_id, key);
        }
        let since = known.and_then(|known| databases.find_state(db_id, key, known));
        let rows = match since {
            Some(_) => self.missed_rows(databases, (db_id, key), since),
            None => databases.initial_rows(db_id, key),
        };
        let monitor = Monitor { id: name, db: db_id, key, bytes: 0 };
        let bytes = self.push(databases, session, monitor);
        sessions.note_kept(session, bytes);
        self.forget_us = Some(shell.now_us() + INITIAL_KEPT_US);
        let learns_from_updates = self.learns_from_updates(databases, session);
        let Some(body) = rows else {
            let request = request.to_vec();
            let newcomer = Newcomer { session, key, request, known, learns_from_updates };
            self.join_herd(sessions, databases, (db_id, since), newcomer);
            return Ok(Reply::Later);
        };
        let state = databases.monitors_mut(db_id).state_id(key);
        let (before, behind) = around(since.is_some(), state);
        let at = (db_id, key);
        let follow = databases.begin_updates(shell, at, (known, state), learns_from_updates);
        Ok(Reply::Shared { before, body, behind, follow })
    }

    /// Whether the client may not take the ids of states from replies. The Python library up to 3.1 does not; it
    /// watches `_Server` first, by `monitor`, as no other does.
    fn learns_from_updates(&self, databases: &Databases, session: SessionId) -> bool {
        let Some(server_db) = databases.by_name(server_db::NAME) else { return false };
        let monitors = databases.get(server_db).expect("it was found").monitors();
        let mut own = self.of(session).iter().filter(|monitor| monitor.db == server_db);
        own.any(|monitor| monitors.version(monitor.key) == Some(Version::V1))
    }

    /// What a monitor has missed since a state, if that is known, or costs no more than a step may.
    fn missed_rows(
        &mut self,
        databases: &Databases,
        (db, key): (DbId, MonitorKey),
        since: Option<Place>,
    ) -> Option<Bytes> {
        let group = databases.get(db)?.monitors().group(key)?;
        self.resumed.missed(databases, Beginning { db, group, since }, key)
    }

    /// `monitor_cond_change`: what was pending has gone out under the old condition; now comes the
    /// difference that the new one makes, then the reply. All before it on the database is decided,
    /// and the tables are here.
    pub(crate) fn monitor_cond_change(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: SessionId,
        (params, prepared): (Text<'_>, Option<Box<Prepared>>),
        request: &[u8],
    ) -> Handled {
        let refused = || Reply::from(Error::syntax(params, "invalid parameters"));
        let [old, new, requests] = exactly(params).ok_or_else(refused)?;
        let (old_name, new_name) = (text_of(old), text_of(new));
        let Some(monitor) = self.find(id, &old_name).cloned() else {
            return Err(Error::syntax(old, "unknown monitor session").into());
        };
        if databases.is_fed(monitor.db, monitor.key) {
            let details = "monitor_cond_change: what is told each change has no conditions";
            return Err(Error::syntax(old, details).into());
        }
        if new_name != old_name && self.find(id, &new_name).is_some() {
            return Err(Error::syntax(new, "duplicate monitor ID").into());
        }
        if requests.kind() != Kind::Object {
            let details = "monitor-cond-change-requests must be object";
            return Err(Error::plain_syntax(details).into());
        }
        // As if the old conditions stayed: for a moment they do. What comes of the text is counted
        // when the round ends.
        sessions.check_room(id, bytes_of_text(new_name.len(), requests.as_bytes().len()))?;
        let schema = Arc::clone(databases.get(monitor.db).expect("its monitor is there").schema());
        let monitors = databases.monitors_mut(monitor.db);
        let (key, name) = (monitor.key, new_name.clone());
        let changed =
            prepared.and_then(|ready| monitors.change_prepared(key, name.clone(), *ready, &schema));
        let change =
            changed.unwrap_or_else(|| monitors.change_condition(key, name, requests, &schema))?;
        let (before, after) = self.recount(databases, id, monitor.key, new_name);
        sessions.note_kept(id, after.saturating_sub(before));
        let Some(change) = change else { return Ok(Reply::empty()) };
        Ok(self.tell_change(shell, sessions, databases, id, &monitor, change, request))
    }

    /// A monitor has other conditions and another name; what it occupied, and what it does now.
    fn recount(
        &mut self,
        databases: &Databases,
        session: SessionId,
        key: MonitorKey,
        name: Vec<u8>,
    ) -> (usize, usize) {
        let of = self.by_session.get_mut(&session).expect("its monitor was looked up");
        let monitor = of.monitors.iter_mut().find(|monitor| monitor.key == key);
        let monitor = monitor.expect("it was looked up");
        self.own_bytes -= monitor.own_bytes();
        monitor.id = name;
        self.own_bytes += monitor.own_bytes();
        let (before, after) = monitor.count(databases);
        of.bytes = of.bytes - before + after;
        (before, after)
    }

    /// Composes the difference that new conditions make, here or elsewhere.
    fn tell_change(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        session: SessionId,
        monitor: &Monitor,
        change: ConditionChange,
        request: &[u8],
    ) -> Reply {
        let Monitor { key, db: db_id, .. } = *monitor;
        let db = databases.get(db_id).expect("its monitor is there");
        let rows = db.committed_rows().expect("a change of conditions waits for that");
        let most = if db.is_reserved() { u64::MAX } else { databases.step_cost_max() };
        let head = Arc::clone(change.head());
        let (body, searches) = search(rows, |rows| change.compose(rows, most));
        databases.note_searches(db_id, searches);
        if let Ok(body) = body {
            if let Some(body) = body {
                shell.send_parts(vec![session], head, Arc::new(body));
            }
            return Reply::empty();
        }
        let db = databases.get(db_id).expect("its monitor is there");
        let snapshot = db.tables().snapshot();
        // From now on what changes merges for it, under the new conditions.
        sessions.hold(session, Reason::Work, Lane::Db(db_id));
        let changing = Changing { session, db: db_id, key, request: request.to_vec(), head };
        let work = shell
            .send_out(Asker::Session(session), Work::Change { change: Box::new(change), snapshot });
        self.out.insert(work, Out::Change(changing));
        Reply::Later
    }

    /// A helper has composed what other conditions change: it leaves when the database is decided.
    pub(crate) fn have_changed(&mut self, work: WorkId, difference: Vec<u8>) -> (DbId, Changed) {
        let Some(Out::Change(changing)) = self.out.remove(&work) else {
            panic!("a helper answers what it was asked")
        };
        (changing.db, Changed { changing, difference })
    }

    /// The difference goes out, then the reply.
    pub(crate) fn give_change(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        changed: Changed,
    ) {
        let Changed { changing, difference } = changed;
        let Changing { session, db, key, request, head } = changing;
        // The session may have left meanwhile, or the monitor gone with its database.
        if sessions.has(session) {
            if databases.has_monitor(db, key) && !difference.is_empty() {
                shell.send_parts(vec![session], head, Arc::new(difference));
            }
            shell.send(session, weir_wire::reply_result(&request, b"{}"));
            databases.release(shell, sessions, session, Reason::Work, Lane::Db(db));
        }
    }

    /// `monitor_cancel`
    pub(crate) fn monitor_cancel(
        &mut self,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: SessionId,
        params: Text<'_>,
    ) -> Handled {
        let unknown = || Reply::error_string("unknown monitor");
        let [name] = exactly(params).ok_or_else(|| Reply::error_string("invalid parameters"))?;
        let name = text_of(name);
        let OfSession { monitors, bytes } = self.by_session.get_mut(&id).ok_or_else(unknown)?;
        let at = monitors.iter().position(|monitor| monitor.id == name);
        let monitor = monitors.remove(at.ok_or_else(unknown)?);
        *bytes -= monitor.bytes;
        self.own_bytes -= monitor.own_bytes();
        databases.remove_monitor(monitor.db, monitor.key);
        sessions.note_kept(id, 0);
        Ok(Reply::empty())
    }
}
