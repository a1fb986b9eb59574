//! Big messages: helpers look at them, and parse what they say of conditions.

use std::collections::BTreeMap;

use weir_json::{Text, TextBuf};
use weir_monitor::Prepared;
use weir_wire::Method;

use crate::database::cancel::tell_canceled;
use crate::database::{Trigger, other_versions};
use crate::effect::Effect;
use crate::ids::{DbId, SessionId, WorkId};
use crate::origin::{Asker, Origin};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::gate::{Lane, Reason};
use crate::session::locks::Held;
use crate::session::message::{Incoming, Marks};
use crate::shell::Shell;
use crate::work::{Content, EXAMINE_BYTES_MIN, Examined, Prepare, Ready, Word, Work};

/// The ids of so many canceled requests are kept for a message that is looked at; if it is another
/// one, it is completed.
const CANCELED_MAX: usize = 16;

/// Big messages that helpers look at.
#[derive(Default)]
pub(super) struct Checks {
    out: BTreeMap<WorkId, Check>,
    /// The messages whose conditions are being parsed.
    preparing: BTreeMap<WorkId, Preparing>,
    /// Of the message that a session's lane of a database begins with, which has come back; and how long
    /// that is.
    prepared: BTreeMap<(SessionId, DbId), (Box<Prepared>, usize)>,
}

struct Preparing {
    session: SessionId,
    db: DbId,
    since_us: u64,
    /// Length of the message.
    bytes: usize,
}

/// Where the conditions in a big request are parsed.
pub(super) enum Conditions {
    /// A helper has parsed the conditions.
    Ready(Box<Prepared>),
    /// A helper is to parse the conditions of a monitor of this database.
    Long(DbId, weir_monitor::Prepare),
    /// There are none, or the request is refused anyway.
    Here,
}

struct Check {
    session: SessionId,
    came_us: u64,
    /// Length of the message.
    bytes: usize,
    /// The locks that the session owned then.
    locks: Vec<Held>,
    /// Ids of requests that the session has taken back since, as JSON text.
    canceled: Vec<Vec<u8>>,
}

impl Checks {
    /// A session takes back a request, which may be one of these.
    pub(super) fn cancel(&mut self, session: SessionId, request: &[u8]) {
        for check in self.out.values_mut().filter(|check| check.session == session) {
            if check.canceled.len() < CANCELED_MAX {
                check.canceled.push(request.to_owned());
            }
        }
    }

    /// Bytes of the messages.
    pub(super) fn bytes(&self) -> usize {
        let preparing = self.preparing.values().map(|preparing| preparing.bytes);
        let prepared = self.prepared.values().map(|(_, bytes)| *bytes);
        self.out.values().map(|check| check.bytes).chain(preparing).chain(prepared).sum()
    }

    /// A session has left: nobody waits for what it has sent.
    pub(super) fn forget_session(&mut self, shell: &mut Shell, session: SessionId) {
        let out = self.out.iter().map(|(work, check)| (work, check.session));
        let preparing = self.preparing.iter().map(|(work, preparing)| (work, preparing.session));
        for (work, _) in out.chain(preparing).filter(|(_, of)| *of == session) {
            shell.ask(Effect::Say { id: *work, word: Word::Stop });
        }
        self.prepared.retain(|(of, _), _| *of != session);
    }

    /// A database has gone, or has another schema: what has been parsed for it is good for nothing.
    pub(super) fn forget_database(&mut self, db: DbId) {
        self.prepared.retain(|(_, of), _| *of != db);
    }

    /// Whose messages they are, and when they came.
    pub(super) fn at_work(&self) -> impl Iterator<Item = (SessionId, u64)> {
        let preparing = self.preparing.values().map(|of| (of.session, of.since_us));
        self.out.values().map(|check| (check.session, check.came_us)).chain(preparing)
    }
}

impl Server {
    /// A message that is too big to be looked at here.
    pub(super) fn check(&mut self, session: SessionId, message: Vec<u8>, locks: Option<Vec<Held>>) {
        self.sessions.hold(session, Reason::Check, Lane::Every);
        let (came_us, bytes) = (self.shell.now_us(), message.len());
        // All clients of a relay wait for what one of them sends, which is soon looked at.
        let asker = match self.sessions.has_channels(session) {
            true => Asker::Server,
            false => Asker::Session(session),
        };
        let work = self.shell.send_out(asker, Work::Examine(message));
        let locks = locks.unwrap_or_else(|| self.sessions.owned_locks(session));
        self.checks.out.insert(work, Check { session, came_us, bytes, locks, canceled: vec![] });
    }

    /// A helper has looked at a big message.
    pub(super) fn checked(&mut self, work: WorkId, examined: Examined) {
        let check = self.checks.out.remove(&work).expect("a helper answers what it was asked");
        let Check { session: id, came_us, locks, canceled, .. } = check;
        // The session may have left meanwhile.
        if !self.sessions.has(id) {
            return;
        }
        let (message, content) = match examined {
            Examined(Ok(examined)) => examined,
            Examined(Err(error)) => return self.bad_stream(id, &error),
        };
        self.sessions.note_handled(id);
        let Self { shell, sessions, databases, .. } = self;
        databases.release(shell, sessions, id, Reason::Check, Lane::Every);
        match content {
            Content::Transact { db, id: request, nature, once, heard, channel } => {
                let db = self.databases.by_name(&db);
                if db.is_some() && canceled.contains(&request) {
                    return tell_canceled(&mut self.shell, &self.sessions, id, &request);
                }
                let id = match channel.zip(db) {
                    None => id,
                    Some((number, db)) => {
                        let of_what_is_asked = once.as_ref().map(|(once, _)| *once);
                        let lane = self.lane_of_transaction(id, db, of_what_is_asked, || nature);
                        let channel = self.sessions.channel(id, number);
                        if !self.sessions.passes_into(channel, lane) {
                            let marks = Marks::of_transaction(request, locks);
                            let (message, Self { shell, sessions, .. }) =
                                (Incoming::Checked(message), self);
                            return sessions.queue(shell, channel, message, lane, marks);
                        }
                        channel
                    }
                };
                let origin = db.map(|db| self.origin(id, request, db));
                if let Some(origin) = origin.filter(|origin| !self.databases.is_in_flight(origin)) {
                    let origin = Origin { created_us: came_us, ..origin };
                    let of_what_is_asked = once.as_ref().map(|(once, _)| *once);
                    let is_for_others =
                        self.is_for_others(id, origin.db, of_what_is_asked, || nature);
                    let has_heard = !heard.is_empty();
                    let locks: Vec<Held> =
                        locks.into_iter().filter(|held| held.is_known(&heard)).collect();
                    let later = (!is_for_others)
                        .then(|| self.comes_later(id, origin.db, || locks.clone()))
                        .flatten();
                    if let Some(later) = later {
                        return self.put_behind(id, origin, message, locks, later);
                    }
                    if self.is_by_other_versions(id, origin.db, of_what_is_asked, || nature) {
                        return self.answer(id, &origin.id, other_versions().into());
                    }
                    let (once, message) = match once {
                        Some((once, plain)) => (Some(once), plain),
                        None => (None, message),
                    };
                    let mut trigger =
                        Trigger::asked(origin, message, (Some(locks), has_heard), once);
                    trigger.is_read_only.get_or_insert(nature.only_reads);
                    return match is_for_others {
                        true => self.databases.forward(&mut self.sessions, trigger),
                        false => self.databases.set_aside_new(&mut self.sessions, trigger),
                    };
                }
                self.take_checked(id, message, Some(locks));
            }
            Content::Echo { id: request, result } => {
                self.answer(id, &request, Reply::Result(result));
            }
            Content::Other => self.take_checked(id, message, Some(locks)),
        }
    }

    /// Where the conditions are parsed in a request of so many bytes.
    pub(super) fn conditions(
        &mut self,
        session: SessionId,
        (method, params): (&str, Text<'_>),
        bytes: usize,
    ) -> Conditions {
        if bytes < EXAMINE_BYTES_MIN {
            return Conditions::Here;
        }
        let Some((Lane::Db(db), method)) =
            self.concerned(session, method, params).zip(Method::parse(method))
        else {
            return Conditions::Here;
        };
        if let Some((prepared, _)) = self.checks.prepared.remove(&(session, db)) {
            return Conditions::Ready(prepared);
        }
        let Self { sessions, databases, subscriptions, .. } = self;
        let prepare = subscriptions.prepare(sessions, databases, (session, db), (method, params));
        prepare.map_or(Conditions::Here, |prepare| Conditions::Long(db, prepare))
    }

    /// A request waits until a helper has parsed its conditions.
    pub(super) fn prepare(
        &mut self,
        session: SessionId,
        db: DbId,
        message: TextBuf,
        prepare: weir_monitor::Prepare,
    ) {
        self.sessions.hold(session, Reason::Work, Lane::Db(db));
        let (since_us, bytes) = (self.shell.now_us(), message.len());
        let work = Work::Prepare(Box::new(Prepare { message, prepare }));
        let work = self.shell.send_out(Asker::Session(session), work);
        self.checks.preparing.insert(work, Preparing { session, db, since_us, bytes });
    }

    /// A helper has parsed the conditions of a request: it comes first of what its session asks of
    /// the database.
    pub(super) fn prepared(&mut self, work: WorkId, Ready(ready): Ready) {
        let preparing = self.checks.preparing.remove(&work);
        let Preparing { session, db, bytes, .. } =
            preparing.expect("a helper answers what it was asked");
        // The session may have left meanwhile.
        let Some((message, prepared)) = ready.filter(|_| self.sessions.has(session)) else {
            return;
        };
        if self.databases.get(db).is_some() {
            self.checks.prepared.insert((session, db), (prepared, bytes));
        }
        self.sessions.put_back(session, Incoming::Checked(message), Lane::Db(db), Marks::default());
        let Self { shell, sessions, databases, .. } = self;
        databases.release(shell, sessions, session, Reason::Work, Lane::Db(db));
    }
}
