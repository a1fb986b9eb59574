//! A `transact` request, or a `convert` request in a cluster, from its arrival to its reply; it may wait in between.

use std::sync::Arc;

use weir_cluster::Position;
use weir_data::Error;
use weir_json::TextBuf;

use crate::database::attempts::Way;
use crate::ids::Ticket;
use crate::once::Once;
use crate::origin::Origin;
use crate::session::Sessions;
use crate::session::gate::Reason;
use crate::session::locks::Held;
use crate::work::{asserted, operations};

/// What has come of a request that ran in a leader's batch.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The place of its entry, or of the one before it if it changes nothing.
    pub(crate) at: Position,
    pub(crate) is_entry: bool,
    /// The results, as JSON text.
    pub(crate) reply: Vec<u8>,
}

/// One `transact` request.
#[derive(Debug)]
pub(crate) struct Trigger {
    /// Where it came from.
    pub(crate) origin: Origin,
    /// The whole message: a transaction that waits or is undone is executed from scratch.
    pub(crate) message: Arc<TextBuf>,
    /// When its `wait` operation gives up.
    pub(crate) deadline_us: Option<u64>,
    /// The number among those that wait, once it has waited: it keeps its place.
    pub(crate) place: Option<u64>,
    /// When a helper got it last.
    pub(crate) sent_us: u64,
    /// A long one that waits runs again only then, unless its time is up: so its session has a turn
    /// in between, and so have others.
    pub(crate) rest_us: Option<u64>,
    /// The transaction costs more than a step may: it runs with a helper from now on.
    pub(crate) is_long: bool,
    /// The session has taken it back while a helper was at work: it does not wait.
    pub(crate) is_canceled: bool,
    /// Where it runs there.
    pub(super) way: Way,
    /// Whether it changes nothing, if that is known.
    pub(crate) is_read_only: Option<bool>,
    /// What is kept for it has been counted: it has waited before.
    pub(crate) has_waited: bool,
    /// Why its session is held until it is answered, if it is.
    pub(crate) holds: Option<Reason>,
    /// The place of the answer among those of the session that others decide, if they decide this one.
    pub(crate) ticket: Option<Ticket>,
    /// Locks that the session owned when the request came, if it did not run at once.
    pub(crate) locks: Option<Vec<Held>>,
    /// The client has said which locks it had heard of: no others count when the request runs again, either.
    pub(crate) has_heard: bool,
    /// Of a relay's client: it asserts a lock that is not the client's. If it changes nothing, that is its answer,
    /// whoever decides.
    pub(crate) lacks_locks: bool,
    /// Of a relay's client with less than all rights: it changes nothing here. The source does not know what the
    /// client may do, and must not make it.
    pub(crate) is_idle_here: bool,
    /// The file refuses what it writes, with this strerror(3) text.
    pub(crate) refused: Option<String>,
    /// In a cluster: it may have become an entry behind this index, and nobody here can know.
    pub(crate) since: Option<u64>,
    /// In a cluster: how often its leaders have been asked.
    pub(crate) attempts: u64,
    /// The number of this request among those for the leader, or for the source of a relay, once it has one: it keeps
    /// its place there.
    pub(crate) forward: Option<i64>,
    /// In a cluster: what it was answered in a batch that is not decided.
    pub(crate) ran: Option<Box<Ran>>,
    /// The term in which another member asked this one as its leader; 0 if nobody did.
    pub(crate) term: u64,
    /// What it asks for that `transact` does not know.
    pub(crate) once: Option<Box<Once>>,
}

impl Trigger {
    /// Whether locks count for it that its session owned when it asked.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks.as_ref().is_some_and(|locks| !locks.is_empty())
    }

    /// A request that has just come.
    pub(crate) fn new(origin: Origin, message: Arc<TextBuf>) -> Self {
        Self {
            origin,
            message,
            deadline_us: None,
            place: None,
            sent_us: 0,
            rest_us: None,
            is_long: false,
            is_canceled: false,
            way: Way::default(),
            is_read_only: None,
            has_waited: false,
            holds: None,
            ticket: None,
            locks: None,
            has_heard: false,
            lacks_locks: false,
            is_idle_here: false,
            refused: None,
            since: None,
            attempts: 0,
            forward: None,
            ran: None,
            term: 0,
            once: None,
        }
    }

    /// Whether it asks for a conversion of a clustered database: then its message is the parameters,
    /// an array.
    pub(crate) fn is_conversion(&self) -> bool {
        self.message.text().as_bytes().first() == Some(&b'[')
    }

    /// A client's request: `locks` are those that it is known to have owned when it asked; `has_heard` if it says which.
    pub(crate) fn asked(
        origin: Origin,
        message: TextBuf,
        (locks, has_heard): (Option<Vec<Held>>, bool),
        once: Option<Once>,
    ) -> Self {
        let mut trigger = Self { locks, has_heard, ..Self::new(origin, Arc::new(message)) };
        trigger.set_once(once);
        trigger
    }

    /// The locks that it asserts and its session owns now count whenever it runs, unless others do already.
    pub(super) fn keep_locks(&mut self, sessions: &Sessions) {
        if let (Some(session), None) = (self.origin.session(), &self.locks) {
            // A long message is gone through only for a session that has locks.
            let asked = std::iter::once(self.message.text()).flat_map(operations);
            self.locks = Some(sessions.owned_among(session, asked));
        }
    }

    /// Whether it asserts a lock that its session owns now, or owned when that was looked at.
    pub(super) fn is_under_lock(&mut self, sessions: &Sessions) -> bool {
        self.keep_locks(sessions);
        self.has_locks()
    }

    /// Whether no operation can change anything.
    pub(crate) fn reads_only(&self) -> bool {
        self.explains()
            || !self.is_judged() && weir_engine::is_read_only(&operations(self.message.text()))
    }

    /// Whether no operation can change anything, or wait.
    pub(crate) fn reads_once(&self) -> bool {
        self.explains()
            || !self.is_judged() && weir_engine::only_reads_once(&operations(self.message.text()))
    }

    /// Whether it asserts a lock that its session owned, of those that are meant if that has been looked at.
    pub(crate) fn is_under(&self, name: &str, is_meant: impl Fn(&Held) -> bool) -> bool {
        match &self.locks {
            Some(locks) => locks.iter().any(is_meant),
            None => {
                let text = self.message.text();
                text.may_say("assert") && asserted(operations(text).into_iter()).contains(name)
            }
        }
    }

    /// Whether it may wait for rows.
    pub(crate) fn may_wait(&self) -> bool {
        let text = self.message.text();
        !self.is_conversion() && text.may_say("wait") && weir_engine::may_wait(&operations(text))
    }

    /// Whether it comes to the same on another server, which has other versions of the same rows.
    ///
    /// # Errors
    /// A condition names `_version`.
    pub(crate) fn check_versions(&self) -> Result<(), Error> {
        let text = self.message.text();
        let is_so = || weir_engine::judges_by_version(&operations(text));
        // A long request is not gone through for this alone.
        if self.is_conversion() || !text.may_say("_version") || !is_so() {
            return Ok(());
        }
        Err(other_versions())
    }

    /// Whether it runs at once, and nobody but its session has its id.
    pub(crate) fn runs_once(&self) -> bool {
        !self.is_conversion() && !self.is_judged() && !self.may_wait()
    }
}

/// The error of who would have rows found by `_version` on another server.
pub(crate) fn other_versions() -> Error {
    let details = "\"_version\" in a condition: writes are made by another server, \
                   which has versions of its own; name the columns that are meant";
    Error::new("not supported", details)
}

#[cfg(test)]
impl Trigger {
    /// A transaction of nobody's without operations.
    pub(crate) fn empty(eid: weir_data::Uuid) -> Self {
        let (asker, identity, id) = (crate::origin::Asker::Server, Arc::default(), vec![]);
        let db = crate::ids::DbId(1);
        let origin =
            Origin { asker, identity, id, db, place: Ticket::default(), created_us: 0, eid };
        let text = br#"{"id":0,"method":"transact","params":["D"]}"#;
        let message = TextBuf::validate(text.to_vec()).expect("JSON");
        Self::new(origin, Arc::new(message))
    }
}
