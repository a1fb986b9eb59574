//! A `transact` request from its arrival to its reply; it may wait in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_json::TextBuf;

use crate::ids::SessionId;
use crate::origin::{Asker, Origin};
use crate::session::gate::Reason;
use crate::session::limits::OVERHEAD_BYTES;
use crate::work::operations;

/// One `transact` request.
#[derive(Debug)]
pub(crate) struct Trigger {
    /// Where it came from.
    pub(crate) origin: Origin,
    /// The whole message: a transaction that waits or is undone is executed from scratch.
    pub(crate) message: Arc<TextBuf>,
    /// When its `wait` operation gives up.
    pub(crate) deadline_us: Option<u64>,
    /// The transaction costs more than a step may: it runs with a helper from now on.
    pub(crate) is_long: bool,
    /// Whether it changes nothing, if that is known.
    pub(crate) is_read_only: Option<bool>,
    /// Why its session is held until it is answered, if it is.
    pub(crate) holds: Option<Reason>,
    /// Locks that the session owned when the request came, if it did not run at once.
    pub(crate) locks: Option<Vec<String>>,
    /// The file refuses what it writes, with this strerror(3) text.
    pub(crate) refused: Option<String>,
}

impl Trigger {
    /// A request that has just come.
    pub(crate) fn new(origin: Origin, message: Arc<TextBuf>) -> Self {
        Self {
            origin,
            message,
            deadline_us: None,
            is_long: false,
            is_read_only: None,
            holds: None,
            locks: None,
            refused: None,
        }
    }

    /// Whether no operation can change anything.
    pub(crate) fn reads_only(&self) -> bool {
        weir_engine::is_read_only(&operations(self.message.text()))
    }
}

/// Transactions that wait, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    triggers: Vec<Trigger>,
    /// How many of them give up when.
    deadlines: BTreeMap<u64, usize>,
    /// Whose they are.
    sessions: BTreeMap<SessionId, OfSession>,
}

/// The waiting transactions of one session.
#[derive(Debug, Default)]
struct OfSession {
    /// The ids of the requests, as JSON text.
    ids: BTreeSet<Vec<u8>>,
    /// What is kept for them.
    bytes: usize,
}

impl Waiting {
    pub(crate) fn push(&mut self, trigger: Trigger) {
        if let Some(at) = trigger.deadline_us {
            *self.deadlines.entry(at).or_default() += 1;
        }
        let Asker::Session(session) = trigger.origin.asker else {
            panic!("the server's own transactions do not wait")
        };
        let of_session = self.sessions.entry(session).or_default();
        of_session.ids.insert(trigger.origin.id.clone());
        of_session.bytes += kept_bytes(&trigger);
        self.triggers.push(trigger);
    }

    /// All transactions that wait, where they are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Trigger> {
        self.triggers.iter()
    }

    /// Takes out all transactions that wait.
    pub(crate) fn take(&mut self) -> Vec<Trigger> {
        if self.triggers.is_empty() {
            return Vec::new();
        }
        self.deadlines.clear();
        self.sessions.clear();
        std::mem::take(&mut self.triggers)
    }

    /// Takes out the transactions of a session that are meant.
    pub(crate) fn take_of(
        &mut self,
        session: SessionId,
        is_meant: impl Fn(&Trigger) -> bool,
    ) -> Vec<Trigger> {
        let Some(of_session) = self.sessions.get_mut(&session) else { return Vec::new() };
        let is_meant = |trigger: &Trigger| trigger.origin.is_of(session) && is_meant(trigger);
        let taken: Vec<Trigger> =
            self.triggers.extract_if(.., |trigger| is_meant(trigger)).collect();
        for trigger in &taken {
            of_session.ids.remove(&trigger.origin.id);
            of_session.bytes -= kept_bytes(trigger);
        }
        if of_session.bytes == 0 {
            self.sessions.remove(&session);
        }
        for at in taken.iter().filter_map(|trigger| trigger.deadline_us) {
            if let Some(count) = self.deadlines.get_mut(&at) {
                *count -= 1;
                if *count == 0 {
                    self.deadlines.remove(&at);
                }
            }
        }
        taken
    }

    /// Whether a request of this session with this id is among them.
    pub(crate) fn has(&self, origin: &Origin) -> bool {
        let of_session = origin.session().and_then(|session| self.sessions.get(&session));
        of_session.is_some_and(|session| session.ids.contains(&origin.id))
    }

    /// What is kept for the requests of a session, in bytes.
    pub(crate) fn kept_bytes(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |session| session.bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.triggers.len()
    }

    /// When the first of them gives up.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.deadlines.keys().next().copied()
    }
}

fn kept_bytes(trigger: &Trigger) -> usize {
    trigger.message.len() + OVERHEAD_BYTES
}
