//! From a message to the handler of its method.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::Error;
use weir_json::{Text, TextBuf};
use weir_monitor::Prepared;
use weir_upstream::probe;
use weir_wire::{Message, Method};

use crate::database::{Trigger, conversion_bytes, other_versions, server_db};
use crate::effect::{Effect, Level};
use crate::ids::{DbId, RemoteId, SessionId};
use crate::once::{Heard, Once, Transaction};
use crate::origin::{Asker, Identity, Origin};
use crate::reply::{Handled, Reply, exactly};
use crate::server::Server;
use crate::server::checks::Conditions;
use crate::server::round::Turn;
use crate::session::gate::{Lane, Reason};
use crate::session::locks::{Held, LockMode};
use crate::session::message::{About, Asserts, Incoming, Marks};
use crate::states::Wanted;
use crate::work::{EXAMINE_BYTES_MIN, Nature, asserted, operations};

/// Where the updates are that a change of conditions comes behind.
enum Late {
    /// A helper composes them.
    Helper,
    /// Others are told first.
    Turn,
}

/// What a transaction that is to run here comes behind: it is asked of others, and not decided yet.
pub(super) enum Later {
    /// What its own session has asked before.
    BehindItsOwn,
    /// What other sessions have asked under these locks, which this one owns by now.
    BehindOthers(Vec<Held>),
}

/// Whether a message that has been looked at asks for other conditions of a monitor.
pub(super) fn changes_conditions(message: &Incoming) -> bool {
    let Incoming::Checked(message) = message else { return false };
    let parsed = Message::parse(message.text());
    matches!(
        parsed,
        Ok(Message::Request { method, .. }) if Method::parse(method) == Some(Method::MonitorCondChange)
    )
}

impl Server {
    /// A client has connected, or the server to somebody.
    pub(super) fn accept(
        &mut self,
        id: SessionId,
        remote: RemoteId,
        name: String,
        client: Option<String>,
    ) {
        if self.remotes.is_closed(remote) {
            // It came in just before; without its remote nobody knows what it may do.
            return self.shell.ask(Effect::Disconnect { session: id });
        }
        let options = self.remotes.options(remote);
        let (read_only, role) = (options.read_only, options.role.clone());
        let identity = Identity { name, read_only, role, client };
        self.sessions.accept(&self.shell, id, remote, identity, &options);
        if !self.relays.is_empty() && self.relays.keeps_waiting(id) {
            self.sessions.hold(id, Reason::Source, Lane::Every);
        }
        self.remotes.connected(&mut self.shell, remote, id);
    }

    /// Takes one framed message.
    pub(super) fn receive(&mut self, id: SessionId, message: Incoming) {
        match self.sessions.message_came(&self.shell, id) {
            Some(true) => return self.take(id, message, None),
            Some(false) => {}
            // The core may have ended a session from whom the shell still has a message.
            None => return,
        }
        let about = About::of(&message);
        let lane = self.lane_of(id, &about);
        if self.sessions.may_pass(id, lane) {
            self.take(id, message, None);
        } else {
            let marks = self.marks_of(id, &about);
            self.sessions.queue(&mut self.shell, id, message, lane, marks);
        }
    }

    /// Handles what has waited and need not wait any more: one message a session and round.
    pub(super) fn take_queued(&mut self) {
        if self.sessions.have_released_unlocks() {
            self.judge_released_unlocks();
        }
        for _ in 0..self.sessions.ready_len() {
            self.let_waiting_go();
            let Some((id, queued)) = self.sessions.next_queued(&mut self.shell) else { return };
            assert_eq!(queued.marks.undecided, None, "what decides that comes before it");
            self.take(id, queued.message, queued.marks.locks);
            // What is for channels has its turns there.
            while let Some(queued) = self.sessions.next_for_channel(&mut self.shell, id) {
                self.take(id, queued.message, queued.marks.locks);
            }
        }
    }

    /// What a message that comes behind others concerns.
    pub(super) fn lane_of(&self, id: SessionId, about: &About<'_>) -> Lane {
        match about {
            About::Probe => Lane::Probe,
            // Where nobody else is asked a conversion is made at once, and is answered first, as by the reference.
            About::Echo if self.has_others() || self.databases.feeds_any_to(id) => Lane::Echo,
            About::Echo if self.sessions.has_unlock(id) => Lane::Aside,
            About::Cancel => Lane::Aside,
            About::Unlock(name)
                if name.str().is_some_and(|name| self.has_under_lock(id, &name, None)) =>
            {
                Lane::Unlock
            }
            About::Lock(_) | About::Unlock(_) => Lane::Lock,
            About::Echo | About::None => Lane::None,
            // The name is free when that one has been canceled, which may wait.
            About::NewMonitor(db, Some(name)) if self.is_of_other_database(id, *db, *name) => {
                Lane::Every
            }
            // A database or a monitor that is not there yet may be by the time.
            about => self.known_lane(id, about).unwrap_or(Lane::Every),
        }
    }

    /// What others may ask for of a message that waits.
    pub(super) fn marks_of(&self, session: SessionId, about: &About<'_>) -> Marks {
        let marks = self.decided_marks_of(session, about);
        if !self.sessions.get(session).expect("it has sent this").gate().changes_locks() {
            return marks;
        }
        let undecided = match about {
            About::Transaction { params, .. } => {
                Some(Asserts::These(asserted(params.elements().into_iter().flatten())))
            }
            About::Unknown => Some(Asserts::Any),
            About::Unlock(_) => Some(Asserts::These(BTreeSet::new())),
            _ => None,
        };
        Marks { undecided, ..marks }
    }

    /// As [`Self::marks_of`], where no message before it changes what its session owns.
    pub(super) fn decided_marks_of(&self, session: SessionId, about: &About<'_>) -> Marks {
        match about {
            About::Transaction { id, params, .. } => {
                let mut text = Vec::new();
                id.write(&mut text);
                let operations = params.elements().into_iter().flatten();
                Marks::of_transaction(text, self.sessions.owned_among(session, operations))
            }
            // It may be a transaction, too big to be looked at here.
            About::Unknown => {
                Marks { locks: Some(self.sessions.owned_locks(session)), ..Marks::default() }
            }
            About::Lock(_) | About::Unlock(_) => Marks { changes_locks: true, ..Marks::default() },
            _ => Marks::default(),
        }
    }

    /// A session has asked for a lock, or has given one up, of this name if that has changed anything: which locks count for
    /// what it has asked for behind that is decided, up to the next message of that kind.
    fn decide_locks(&mut self, id: SessionId, name: Option<&str>) {
        if let Some((at, name)) = self.sessions.decide_locks(id, name)
            && self.has_under_lock(id, &name, None)
        {
            self.sessions.set_lane(id, at, Lane::Unlock);
        }
    }

    /// The database that a message names, directly or by a monitor, if it is there.
    fn known_lane(&self, id: SessionId, about: &About<'_>) -> Option<Lane> {
        let by_name = |name: Text<'_>| name.str().and_then(|name| self.databases.by_name(&name));
        match about {
            About::Db(name) | About::NewMonitor(name, _) => by_name(*name).map(Lane::Db),
            About::Transaction { has_channel: true, .. } if !id.is_channel() => Some(Lane::Channel),
            About::Transaction { params, .. } => {
                // One without a database is refused, in its turn among all.
                let mut params = params.elements()?;
                let db = by_name(params.next()?)?;
                let nature = || Nature::of(&params.clone().collect::<Vec<_>>());
                Some(self.lane_of_transaction(id, db, None, nature))
            }
            About::Conversion(name) => by_name(*name).map(Lane::Conversion),
            About::Monitor(name) => self.db_of_monitor(id, *name).map(Lane::Db),
            About::Probe
            | About::Echo
            | About::Cancel
            | About::None
            | About::Lock(_)
            | About::Unlock(_)
            | About::Unknown => None,
        }
    }

    /// Whether a session has a monitor of this name, and it is of another database than this one.
    fn is_of_other_database(&self, id: SessionId, db: Text<'_>, monitor: Text<'_>) -> bool {
        let db = db.str().and_then(|name| self.databases.by_name(&name));
        self.db_of_monitor(id, monitor).is_some_and(|of| Some(of) != db)
    }

    fn db_of_monitor(&self, id: SessionId, name: Text<'_>) -> Option<DbId> {
        let mut text = Vec::new();
        name.write(&mut text);
        self.subscriptions.db_of(id, &text)
    }

    /// Handles a message whose turn it is. `locks` are those that the session owned when it came, if
    /// it had to wait.
    pub(super) fn take(&mut self, id: SessionId, message: Incoming, locks: Option<Vec<Held>>) {
        match message {
            Incoming::Raw(bytes) if bytes.len() >= EXAMINE_BYTES_MIN => {
                self.check(id, bytes, locks);
            }
            Incoming::Raw(bytes) => match TextBuf::validate(bytes) {
                Ok(message) => self.take_checked(id, message, locks),
                Err(error) => self.bad_stream(id, &error.to_string()),
            },
            Incoming::Checked(message) => self.take_checked(id, message, locks),
            Incoming::Refused { outline, bytes } => self.refuse(id, &outline, bytes),
        }
    }

    pub(super) fn take_checked(
        &mut self,
        id: SessionId,
        message: TextBuf,
        locks: Option<Vec<Held>>,
    ) {
        let db = match Message::parse(message.text()) {
            Err(malformed) => return self.protocol_error(id, &malformed.to_string()),
            Ok(Message::Reply { id: reply, .. }) => return self.unasked(id, "reply", reply),
            Ok(Message::Error { id: reply, .. }) => return self.unasked(id, "error", reply),
            Ok(Message::Request { method: "unlock", params, .. })
                if let Some(db) = self.comes_behind_own_write(id, params) =>
            {
                return self.await_own_write(id, Incoming::Checked(message), db);
            }
            Ok(Message::Request { method, params, id: request })
                if let Some(Ok(asked)) = Transaction::of(method, params) =>
            {
                let id = match asked.channel.filter(|_| !id.is_channel()) {
                    None => id,
                    Some(number) => {
                        let name = asked.name.and_then(Text::str);
                        let db = name.and_then(|name| self.databases.by_name(&name));
                        let nature = || Nature::of(&asked.operations);
                        let lane = db.map_or(Lane::Every, |db| {
                            self.lane_of_transaction(id, db, asked.once, nature)
                        });
                        let channel = self.sessions.channel(id, number);
                        if !self.sessions.passes_into(channel, lane) {
                            drop(asked);
                            return self.queue_in_channel(channel, message, lane, locks);
                        }
                        channel
                    }
                };
                if let Some(origin) = self.transaction_origin(id, asked.name, request) {
                    let plain = asked.message();
                    let Transaction { operations, once, heard, .. } = asked;
                    let has_heard = !heard.is_empty();
                    let locks = self.known_locks(id, (&operations, heard), locks);
                    let nature = || Nature::of(&operations);
                    if self.is_for_others(id, origin.db, once, nature) {
                        drop(operations);
                        let message = plain.unwrap_or(message);
                        let trigger = Trigger::asked(origin, message, (locks, has_heard), once);
                        return self.databases.forward(&mut self.sessions, trigger);
                    }
                    let owned = || self.sessions.owned_among(id, operations.iter().copied());
                    let owned = || locks.clone().unwrap_or_else(owned);
                    if let Some(later) = self.comes_later(id, origin.db, owned) {
                        let locks = owned();
                        drop(operations);
                        return self.put_behind(id, origin, message, locks, later);
                    }
                    if self.is_by_other_versions(id, origin.db, once, nature) {
                        return self.answer(id, &origin.id, other_versions().into());
                    }
                    if message.len() >= EXAMINE_BYTES_MIN {
                        let (locks, only_reads) = (owned(), nature().only_reads);
                        drop(operations);
                        let message = plain.unwrap_or(message);
                        let mut trigger =
                            Trigger::asked(origin, message, (Some(locks), has_heard), once);
                        trigger.is_read_only.get_or_insert(only_reads);
                        return self.databases.set_aside_new(&mut self.sessions, trigger);
                    }
                    if !self.databases.is_open(origin.db) {
                        let locks = owned();
                        if once.is_none() && self.read_beside(&origin, &operations, &locks) {
                            return;
                        }
                        drop(operations);
                        let is_plain = once.is_none();
                        return self.await_tables(id, origin, (message, is_plain), locks);
                    }
                    let Self { shell, sessions, databases, .. } = self;
                    if once.is_some_and(Once::is_judged) {
                        drop(operations);
                        let message = plain.unwrap_or(message);
                        let trigger = Trigger::asked(origin, message, (locks, has_heard), once);
                        return databases.run_again_here(shell, sessions, trigger);
                    }
                    let owned = locks.as_deref();
                    let how = (owned, once);
                    let outcome = databases.execute(shell, sessions, &origin, how, &operations);
                    drop(operations);
                    let message = plain.unwrap_or(message);
                    let trigger = Trigger::asked(origin, message, (locks, has_heard), once);
                    return databases.transact(shell, sessions, trigger, outcome);
                }
                None
            }
            Ok(Message::Request { method, params, .. }) => {
                let lane = self.concerned(id, method, params);
                if let Some(Lane::Db(db) | Lane::Conversion(db)) = lane {
                    self.note_knows_tables(id, db);
                }
                lane
            }
            Ok(Message::Notification { .. }) => None,
        };
        match db {
            Some(lane @ (Lane::Db(db) | Lane::Conversion(db)))
                if !self.databases.is_decided(db) =>
            {
                let (reason, lane) = match lane {
                    Lane::Conversion(_) => (Reason::Conversion, Lane::Every),
                    lane => (Reason::Turn, lane),
                };
                self.sessions.hold(id, reason, lane);
                let message = Incoming::Checked(message);
                self.await_turn(db, Turn::Request { session: id, message, reason, lane });
            }
            _ => self.request(id, Incoming::Checked(message)),
        }
    }

    /// What a transaction on this database concerns.
    pub(super) fn lane_of_transaction(
        &self,
        id: SessionId,
        db: DbId,
        once: Option<Once>,
        nature: impl Fn() -> Nature,
    ) -> Lane {
        match self.is_for_others(id, db, once, nature) {
            true => Lane::Leader(db),
            false => Lane::Db(db),
        }
    }

    /// A transaction waits behind others in the gate of its channel. `locks` are those that the connection owned when it
    /// came, if it had to wait there.
    fn queue_in_channel(
        &mut self,
        channel: SessionId,
        message: TextBuf,
        lane: Lane,
        locks: Option<Vec<Held>>,
    ) {
        let message = Incoming::Checked(message);
        let marks = self.marks_of(channel, &About::of(&message));
        let marks = Marks { locks: locks.or(marks.locks), ..marks };
        self.sessions.queue(&mut self.shell, channel, message, lane, marks);
    }

    /// Whether others may decide what is asked here: leaders of clusters, sources of relays.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        !self.clusters.is_empty() || !self.relays.is_empty()
    }

    /// Whether a transaction goes to one of them as it is.
    pub(super) fn is_for_others(
        &self,
        id: SessionId,
        db: DbId,
        once: Option<Once>,
        nature: impl Fn() -> Nature,
    ) -> bool {
        self.has_others()
            && (self.is_for_leader(db, once, &nature) || self.is_for_source(id, db, once, &nature))
    }

    /// Whether a transaction would go to one of them but for conditions that name `_version`.
    pub(super) fn is_by_other_versions(
        &self,
        id: SessionId,
        db: DbId,
        once: Option<Once>,
        nature: impl Fn() -> Nature,
    ) -> bool {
        let is_meant = || Nature { by_version: false, ..nature() };
        self.has_others() && nature().by_version && self.is_for_others(id, db, once, is_meant)
    }

    /// The database that a request must find decided.
    pub(super) fn concerned(&self, id: SessionId, method: &str, params: Text<'_>) -> Option<Lane> {
        self.known_lane(id, &About::of_request(method, params))
    }

    /// Where a `transact` request runs whose first parameter is `name`, unless it is to be refused.
    fn transaction_origin(
        &mut self,
        session: SessionId,
        name: Option<Text<'_>>,
        id: Text<'_>,
    ) -> Option<Origin> {
        let name = name?.str()?;
        let db = self.databases.by_name(&name)?;
        let mut canonical = Vec::with_capacity(id.as_bytes().len());
        id.write(&mut canonical);
        let origin = self.origin(session, canonical, db);
        (!self.databases.is_in_flight(&origin)).then_some(origin)
    }

    pub(super) fn origin(&mut self, session: SessionId, id: Vec<u8>, db: DbId) -> Origin {
        self.note_knows_tables(session, db);
        let state = self.sessions.get(session).expect("its message is being handled");
        let (identity, place) = (Arc::clone(state.identity()), state.next_in_order());
        let created_us = self.shell.now_us();
        let eid = self.databases.fresh_eid(&mut self.shell, db);
        Origin { asker: Asker::Session(session), identity, id, db, place, created_us, eid }
    }

    /// A request is about a database: unless that is `_Server`, its client knows what a conversion
    /// would make wrong.
    #[inline]
    fn note_knows_tables(&mut self, id: SessionId, db: DbId) {
        let id = id.connection();
        let session = self.sessions.get(id).expect("its message is being handled");
        let is_server_db = || self.databases.get(db).is_some_and(|db| db.name() == server_db::NAME);
        if !session.knows_tables() && !is_server_db() {
            self.sessions.note_knows_tables(id);
        }
    }

    /// The locks of a transaction's client that count, if that is not to be looked at when the transaction runs: those
    /// that it owned when it asked, if it had heard of all that it was told of them by then.
    fn known_locks(
        &self,
        id: SessionId,
        (operations, heard): (&[Text<'_>], Heard),
        locks: Option<Vec<Held>>,
    ) -> Option<Vec<Held>> {
        if heard.is_empty() {
            return locks;
        }
        let owned = || self.sessions.owned_among(id, operations.iter().copied());
        let mut locks = locks.unwrap_or_else(owned);
        locks.retain(|held| held.is_known(&heard));
        Some(locks)
    }

    /// Whether a transaction is to run behind what has been asked of others and is not decided yet: by its session,
    /// or under one of these locks.
    pub(super) fn comes_later(
        &self,
        id: SessionId,
        db: DbId,
        locks: impl FnOnce() -> Vec<Held>,
    ) -> Option<Later> {
        if self.has_others() && self.sessions.has_forwarded(id, db) {
            return Some(Later::BehindItsOwn);
        }
        let locks = (!self.clusters.is_empty()).then(locks);
        let under = locks.filter(|locks| self.are_asked_of_leader_under(db, locks, id));
        under.map(Later::BehindOthers)
    }

    /// A transaction waits in its session's gate.
    pub(super) fn put_behind(
        &mut self,
        id: SessionId,
        origin: Origin,
        message: TextBuf,
        locks: Vec<Held>,
        later: Later,
    ) {
        let db = origin.db;
        let marks = Marks::of_transaction(origin.id, locks);
        self.sessions.put_back(id, Incoming::Checked(message), Lane::Db(db), marks);
        match later {
            // The gate is held until that is decided.
            Later::BehindItsOwn => {}
            Later::BehindOthers(locks) => self.await_others_under(id, locks, db),
        }
    }

    /// A transaction finds the tables closed: it waits for them, unless a helper has them and it only
    /// reads what was committed last.
    fn await_tables(
        &mut self,
        id: SessionId,
        origin: Origin,
        (message, is_plain): (TextBuf, bool),
        locks: Vec<Held>,
    ) {
        let db = origin.db;
        let is_away = self.databases.get(db).is_some_and(|db| db.tables().is_away());
        if is_plain && is_away && weir_engine::only_reads_once(&operations(message.text())) {
            let mut trigger = Trigger::new(origin, Arc::new(message));
            (trigger.is_read_only, trigger.locks) = (Some(true), Some(locks));
            return self.databases.set_aside_new(&mut self.sessions, trigger);
        }
        let marks = Marks::of_transaction(origin.id, locks);
        self.wait_for(id, db, Lane::Db(db), Incoming::Checked(message), marks);
    }

    /// A session's message waits until the database is open.
    fn wait_for(&mut self, id: SessionId, db: DbId, lane: Lane, message: Incoming, marks: Marks) {
        self.sessions.put_back(id, message, lane, marks);
        self.databases.wait_for(&mut self.sessions, id, db);
        self.databases.hurry(&mut self.shell, db);
    }

    /// Handles a request or notification that is not a running transaction; what it concerns is
    /// decided.
    pub(super) fn request(&mut self, session: SessionId, message: Incoming) {
        // A session may have left while its request waited.
        if !self.sessions.has(session) {
            return;
        }
        let Incoming::Checked(message) = message else {
            unreachable!("what is asked for has been looked at")
        };
        match Message::parse(message.text()) {
            Ok(Message::Request { method, params, id }) => {
                if let Some((db, lane)) = self.away_tables(session, method, params) {
                    let (message, marks) = (Incoming::Checked(message), Marks::default());
                    return self.wait_for(session, db, lane, message, marks);
                }
                if let Some((late, db)) = self.late_updates(session, method, params) {
                    let message = Incoming::Checked(message);
                    return match late {
                        Late::Helper => {
                            let lane = Lane::Db(db);
                            self.sessions.put_back(session, message, lane, Marks::default());
                        }
                        Late::Turn => self.await_own_turn(session, message, db),
                    };
                }
                let asked = (method, params);
                let prepared = match self.conditions(session, asked, message.len()) {
                    Conditions::Ready(prepared) => Some(prepared),
                    Conditions::Long(db, prepare) => {
                        return self.prepare(session, db, message, prepare);
                    }
                    Conditions::Here => None,
                };
                let mut request = Vec::new();
                id.write(&mut request);
                let asked = (method, params, prepared);
                let handled = self.method(session, asked, &request);
                let has_changed = handled.is_ok();
                let (Ok(reply) | Err(reply)) = handled;
                self.answer(session, &request, reply);
                if let About::Lock(name) | About::Unlock(name) = About::of_request(method, params) {
                    let name = name.str().filter(|_| has_changed);
                    self.decide_locks(session, name.as_deref());
                }
            }
            Ok(Message::Notification { method: "cancel", params }) => self.cancel(session, params),
            Ok(Message::Notification { .. }) => {}
            Ok(Message::Reply { .. } | Message::Error { .. }) | Err(_) => {
                unreachable!("only what asks for something is asked for")
            }
        }
    }

    /// The database whose tables a request needs, if they are away.
    fn away_tables(&self, id: SessionId, method: &str, params: Text<'_>) -> Option<(DbId, Lane)> {
        if !matches!(Method::parse(method)?, Method::Convert | Method::MonitorCondChange) {
            return None;
        }
        let lane = self.concerned(id, method, params)?;
        let (Lane::Db(db) | Lane::Conversion(db)) = lane else { return None };
        self.databases.get(db).is_some_and(|db| db.tables().is_away()).then_some((db, lane))
    }

    /// A change of conditions comes behind all that was to be told under the old ones: where that is,
    /// and of which database, if it is not told at once.
    fn late_updates(
        &mut self,
        id: SessionId,
        method: &str,
        params: Text<'_>,
    ) -> Option<(Late, DbId)> {
        if Method::parse(method)? != Method::MonitorCondChange {
            return None;
        }
        let Lane::Db(db) = self.concerned(id, method, params)? else { return None };
        if self.is_behind_others(db, id) {
            return Some((Late::Turn, db));
        }
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        subscriptions.flush_session(shell, sessions, databases, id);
        if databases.owes_before(db, id) {
            // What is pending would be lost with the old conditions.
            subscriptions.flush_of(shell, sessions, databases, (id, db));
        }
        databases.is_told_late(db, id).then_some((Late::Helper, db))
    }

    pub(super) fn answer(&mut self, session: SessionId, request: &[u8], reply: Reply) {
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        subscriptions.answer(shell, sessions, databases, session, request, reply);
    }

    fn method(
        &mut self,
        session: SessionId,
        (name, params, prepared): (&str, Text<'_>, Option<Box<Prepared>>),
        request: &[u8],
    ) -> Handled {
        let unknown = || Reply::error_string("unknown method");
        let method = Method::parse(name).ok_or_else(unknown)?;
        match method {
            Method::Transact => {
                self.lookup(params, name)?;
                Err(Error::syntax(params, "transact: duplicate request ID").into())
            }
            Method::TransactOnce | Method::Outcome | Method::Explain => {
                Transaction::of(name, params).transpose()?;
                self.lookup(params, name)?;
                let details = format!("{name}: duplicate request ID");
                Err(Error::syntax(params, details).into())
            }
            Method::Echo => {
                let mut result = Vec::new();
                params.write(&mut result);
                Ok(Reply::Result(result))
            }
            Method::ListDbs => {
                let names = weir_json::array(self.names_of_databases());
                Ok(Reply::Result(names.to_string().into_bytes()))
            }
            Method::GetSchema => {
                self.sessions.note_asks_anew(session);
                let db = self.lookup(params, name)?;
                let db = self.databases.get(db).expect("it was looked up");
                Ok(Reply::Result(db.schema().to_string().into_bytes()))
            }
            Method::GetServerId => Ok(Reply::Result(format!("\"{}\"", self.id).into_bytes())),
            Method::Monitor
            | Method::MonitorCond
            | Method::MonitorCondSince
            | Method::MonitorEach => {
                self.sessions.note_asks_anew(session);
                if !self.subscriptions.knows(method) {
                    return Err(unknown());
                }
                let db = self.lookup(params, name)?;
                let Self { shell, sessions, databases, subscriptions, .. } = self;
                let (at, asked) = ((session, db), (method, params, prepared));
                subscriptions.monitor(shell, sessions, databases, at, asked, request)
            }
            Method::MonitorCondChange => {
                let Self { shell, sessions, databases, subscriptions, .. } = self;
                let asked = (params, prepared);
                subscriptions
                    .monitor_cond_change(shell, sessions, databases, session, asked, request)
            }
            Method::MonitorCancel => {
                let Self { sessions, databases, subscriptions, .. } = self;
                subscriptions.monitor_cancel(sessions, databases, session, params)
            }
            Method::Lock => self.lock(session, params, LockMode::Wait),
            Method::Steal => self.lock(session, params, LockMode::Steal),
            Method::Unlock => {
                self.check_may_lock(session)?;
                self.sessions.unlock(&mut self.shell, session, params)
            }
            Method::SetDbChangeAware => self.set_db_change_aware(session, params),
            Method::Convert => self.convert(session, params, request),
            Method::WaitDelivered => {
                let db = self.lookup(params, name)?;
                self.wait_delivered(session, db, params, request)
            }
            Method::WaitId => {
                let db = self.lookup(params, name)?;
                self.wait_for_state(session, db, Wanted::of_id(params), request)
            }
            Method::Sync => {
                let db = self.lookup(params, name)?;
                self.wait_for_state(session, db, Wanted::of_sync(params), request)
            }
            Method::Path => {
                let db = self.lookup(params, name)?;
                self.ask_path(session, db, params)
            }
            Method::Features => {
                let names = weir_json::array(Method::extensions());
                Ok(Reply::Result(names.to_string().into_bytes()))
            }
            Method::Log => {
                let db = self.lookup(params, name)?;
                let Self { shell, sessions, databases, log_searches, .. } = self;
                log_searches.search(shell, sessions, databases, (session, db), params, request)
            }
            // A notification, and no request.
            Method::Cancel => Err(unknown()),
        }
    }

    /// The names of all databases, in order; relays that have not heard from their sources are
    /// among them, and servers that have not joined their clusters.
    pub(super) fn names_of_databases(&self) -> BTreeSet<&str> {
        let relays = self.relays.by_db.values().map(|relay| relay.name.as_str());
        let joining = self.joining().map(|(_, part)| part.member.name());
        self.databases.names().map(|(name, _)| name).chain(relays).chain(joining).collect()
    }

    /// The database that a request's parameters begin with.
    fn lookup(&self, params: Text<'_>, method: &str) -> Result<DbId, Reply> {
        let name = params.elements().into_iter().flatten().next().and_then(|name| name.string());
        let Some(name) = name else {
            let details = format!("{method} request params must begin with <db-name>");
            return Err(Error::syntax(params, details).into());
        };
        let name = String::from_utf8_lossy(&name);
        self.databases.by_name(&name).ok_or_else(|| {
            if self.clusters.is_joining(&name) || self.relays.by_name(&name).is_some() {
                let details = format!(
                    "{method} request specifies database {name} which is not yet available because \
                     it has not completed joining its cluster"
                );
                return Error::new("database not available", details).into();
            }
            let details = format!("{method} request specifies unknown database {name}");
            Error::syntax_tagged(params, "unknown database", details).into()
        })
    }

    /// `convert`: the answer comes later, and all behind it waits for that, unless it is refused.
    fn convert(&mut self, session: SessionId, params: Text<'_>, request: &[u8]) -> Handled {
        let db = self.lookup(params, "convert")?;
        let origin = self.origin(session, request.to_owned(), db);
        let bytes = conversion_bytes(params.as_bytes().len());
        self.sessions.check_room(session, bytes)?;
        self.databases.convert(origin, params)?;
        self.sessions.hold(session, Reason::Conversion, Lane::Every);
        self.sessions.note_kept(session, bytes);
        Ok(Reply::Later)
    }

    pub(super) fn check_may_lock(&self, id: SessionId) -> Result<(), Reply> {
        let session = self.sessions.get(id).expect("its request is being handled");
        if session.identity().read_only || self.databases.are_all_backups() {
            let text = "lock and unlock methods not allowed, DB server is read only.";
            return Err(Reply::error_string(text));
        }
        Ok(())
    }

    fn set_db_change_aware(&mut self, session: SessionId, params: Text<'_>) -> Handled {
        let mut elements = params.elements().into_iter().flatten();
        match (elements.next().and_then(Text::bool), elements.next()) {
            (Some(is_aware), None) => {
                self.sessions.set_db_change_aware(session, is_aware);
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
        for id in std::iter::once(session).chain(self.sessions.channels_of(session)) {
            // What is taken back may have been of a client that is disconnected for it.
            if !self.sessions.has(id) {
                return;
            }
            let Self { shell, sessions, databases, .. } = self;
            databases.cancel_request(shell, sessions, id, &request);
            self.cancel_forward(id, &request);
            self.cancel_for_leader(id, &request);
        }
        self.checks.cancel(session, &request);
    }

    /// A message has become too long for what the server may keep.
    pub(crate) fn too_long(&mut self, id: SessionId, bytes: u64) {
        let Some(session) = self.sessions.get(id) else { return };
        let text = format!(
            "{}: passing over a message of more than {bytes} bytes, for which there is no memory",
            session.name()
        );
        self.shell.log_limited("too_long", "jsonrpc", Level::Warning, text);
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
        let Some(session) = self.sessions.get(id) else { return };
        let text = format!("{}: error parsing stream: {error}", session.name());
        self.shell.log_limited("bad_stream", "jsonrpc", Level::Warning, text);
        self.drop_misfit(id);
    }

    fn protocol_error(&mut self, id: SessionId, reason: &str) {
        let Some(session) = self.sessions.get(id) else { return };
        let text = format!("{}: received bad JSON-RPC message: {reason}", session.name());
        self.shell.log_limited("protocol_error", "jsonrpc", Level::Warning, text);
        self.drop_misfit(id);
    }

    /// A reply, which only a probe is entitled to.
    fn unasked(&mut self, id: SessionId, kind: &str, reply: Text<'_>) {
        if reply.as_bytes() == probe::ID {
            return;
        }
        let name = self.session_name(id).unwrap_or_default();
        let text = format!("{name}: received unexpected {kind} message");
        self.shell.log_limited("unexpected_reply", "ovsdb_jsonrpc_server", Level::Warning, text);
        self.disconnect(id);
    }
}
