//! A `transact` request from its arrival to its reply; it may wait in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_json::{Text, TextBuf};

use crate::event::{DbId, SessionId};
use crate::session::Identity;
use crate::session::limits::OVERHEAD_BYTES;

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Who asked.
    pub(crate) session: SessionId,
    /// Who that is.
    pub(crate) identity: Arc<Identity>,
    /// The request's id, as JSON text.
    pub(crate) id: Vec<u8>,
    /// On which database.
    pub(crate) db: DbId,
    /// When it came.
    pub(crate) created_us: u64,
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
    /// It costs more than a step may: it runs with a helper from now on.
    pub(crate) is_long: bool,
    /// Whether it changes nothing, if that is known.
    pub(crate) is_read_only: Option<bool>,
    /// Its session is held until it is answered.
    pub(crate) holds: bool,
    /// As one whose own work is out, for it has been handed over.
    pub(crate) is_out: bool,
    /// Locks that its session owned when it was set aside.
    pub(crate) locks: Vec<String>,
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
            holds: false,
            is_out: false,
            locks: Vec::new(),
            refused: None,
        }
    }

    /// The operations of a `transact` message: the parameters behind the database's name.
    pub(crate) fn operations(message: Text<'_>) -> Vec<Text<'_>> {
        let params = message.members().into_iter().flatten().filter(|(key, _)| **key == *b"params");
        let params = params.last().and_then(|(_, params)| params.elements());
        params.into_iter().flatten().skip(1).collect()
    }

    /// Whether no operation can change anything.
    pub(crate) fn reads_only(&self) -> bool {
        weir_engine::is_read_only(&Self::operations(self.message.text()))
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

/// Those of one session.
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
        let of_session = self.sessions.entry(trigger.origin.session).or_default();
        of_session.ids.insert(trigger.origin.id.clone());
        of_session.bytes += kept_bytes(&trigger);
        self.triggers.push(trigger);
    }

    /// All of them, where they are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Trigger> {
        self.triggers.iter()
    }

    /// All of them.
    pub(crate) fn take(&mut self) -> Vec<Trigger> {
        if self.triggers.is_empty() {
            return Vec::new();
        }
        self.deadlines.clear();
        self.sessions.clear();
        std::mem::take(&mut self.triggers)
    }

    /// Those of a session that are meant.
    pub(crate) fn take_of(
        &mut self,
        session: SessionId,
        is_meant: impl Fn(&Trigger) -> bool,
    ) -> Vec<Trigger> {
        let Some(of_session) = self.sessions.get_mut(&session) else { return Vec::new() };
        let is_meant = |trigger: &Trigger| trigger.origin.session == session && is_meant(trigger);
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
        self.sessions.get(&origin.session).is_some_and(|session| session.ids.contains(&origin.id))
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
