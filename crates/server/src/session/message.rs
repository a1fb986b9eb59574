//! A message on its way to its handler, and what it concerns.

use std::collections::BTreeSet;

use weir_json::{Text, TextBuf};
use weir_wire::{Message, Method};

use crate::once::names_channel;
use crate::session::gate::QUEUED_BYTES_MAX;
use crate::session::locks::Held;

/// A message on its way to its handler.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The message as it came.
    Raw(Vec<u8>),
    /// The message is JSON.
    Checked(TextBuf),
    /// The message was too long to be kept: its outline, and how much of it was here before it was let go.
    Refused { outline: Vec<u8>, bytes: u64 },
}

impl Incoming {
    /// The length in bytes, as far as the message is here.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Raw(bytes) | Self::Refused { outline: bytes, .. } => bytes.len(),
            Self::Checked(text) => text.len(),
        }
    }

    /// Parses a message that is to wait, unless it is too big to be looked at here.
    fn text(&self) -> Option<Text<'_>> {
        match self {
            Self::Raw(bytes) if bytes.len() < QUEUED_BYTES_MAX => weir_json::validate(bytes).ok(),
            Self::Checked(text) => Some(text.text()),
            Self::Raw(_) | Self::Refused { .. } => None,
        }
    }
}

/// What a message is about, as far as its order among others goes.
pub(crate) enum About<'m> {
    /// A reply to a probe.
    Probe,
    /// Nothing but whether the server is there.
    Echo,
    /// A transaction that its client wants no more.
    Cancel,
    /// No database.
    None,
    /// The session asks for the lock of this name.
    Lock(Text<'m>),
    /// The session gives up the lock of this name.
    Unlock(Text<'m>),
    /// The database of this name.
    Db(Text<'m>),
    /// A transaction: the id of the request, its parameters, and whether they name a channel.
    Transaction { id: Text<'m>, params: Text<'m>, has_channel: bool },
    /// The conversion of the database of this name.
    Conversion(Text<'m>),
    /// The database of the monitor of this name.
    Monitor(Text<'m>),
    /// A new monitor: its database, and its name, if it has one.
    NewMonitor(Text<'m>, Option<Text<'m>>),
    /// Nobody can say.
    Unknown,
}

impl<'m> About<'m> {
    /// Looks at a message that comes behind others.
    pub(crate) fn of(message: &'m Incoming) -> Self {
        match message.text().map(Message::parse) {
            Some(Ok(Message::Request {
                method: method @ ("transact" | "weir_transact" | "weir_outcome" | "weir_explain"),
                params,
                id,
            })) => Self::Transaction { id, params, has_channel: names_channel(method, params) },
            Some(Ok(Message::Request { method, params, .. })) => Self::of_request(method, params),
            Some(Ok(Message::Notification { method: "cancel", .. })) => Self::Cancel,
            Some(Ok(Message::Reply { .. } | Message::Error { .. })) => Self::Probe,
            Some(Ok(Message::Notification { .. }) | Err(_)) | None => Self::Unknown,
        }
    }

    /// What a request is about.
    pub(crate) fn of_request(method: &str, params: Text<'m>) -> Self {
        let first = || params.elements().and_then(|mut params| params.next());
        let second = || params.elements().and_then(|mut params| params.nth(1));
        match Method::parse(method) {
            Some(
                Method::Transact
                | Method::TransactOnce
                | Method::Outcome
                | Method::Explain
                | Method::GetSchema
                | Method::WaitDelivered
                | Method::WaitId
                | Method::Sync
                | Method::Log,
            ) => first().map_or(Self::None, Self::Db),
            Some(
                Method::Monitor
                | Method::MonitorCond
                | Method::MonitorCondSince
                | Method::MonitorEach,
            ) => first().map_or(Self::None, |db| Self::NewMonitor(db, second())),
            Some(Method::Convert) => first().map_or(Self::None, Self::Conversion),
            Some(Method::MonitorCondChange | Method::MonitorCancel) => {
                first().map_or(Self::None, Self::Monitor)
            }
            Some(Method::Echo) => Self::Echo,
            Some(Method::Lock | Method::Steal) => first().map_or(Self::None, Self::Lock),
            Some(Method::Unlock) => first().map_or(Self::None, Self::Unlock),
            Some(
                Method::ListDbs
                | Method::Features
                | Method::GetServerId
                | Method::Path
                | Method::SetDbChangeAware
                | Method::Cancel,
            )
            | None => Self::None,
        }
    }
}

/// Which locks a message asserts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asserts {
    These(BTreeSet<String>),
    /// Nobody knows which.
    Any,
}

impl Asserts {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::These(names) => names.contains(name),
            Self::Any => true,
        }
    }
}

/// What a queued message is, as far as others ask for that while it waits.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The id of a `transact` request, as JSON text: `cancel` asks for it.
    pub(crate) id: Option<Vec<u8>>,
    /// The locks that the session owned when the message came, as far as it asks for them: it may
    /// `assert` them, whatever the session asks for meanwhile, until somebody else has them. `None` if it asserts nothing.
    pub(crate) locks: Option<Vec<Held>>,
    /// Messages before it that wait, too, change what its session owns: so it is not decided which of these locks count for
    /// it, or what is under the lock that it gives up.
    pub(crate) undecided: Option<Asserts>,
    /// The session asks for a lock, or gives one up.
    pub(crate) changes_locks: bool,
}

impl Marks {
    /// The marks of a `transact` request whose turn it was: which locks count for it has been decided.
    pub(crate) fn of_transaction(id: Vec<u8>, locks: Vec<Held>) -> Self {
        Self { id: Some(id), locks: Some(locks), ..Self::default() }
    }

    /// What its session owned is another thing by the time at which a message before it has been handled: this lock.
    pub(super) fn change(&mut self, name: &str, held: Option<&Held>) {
        let (Some(locks), Some(asserts)) = (&mut self.locks, &self.undecided) else { return };
        locks.retain(|held| held.name != name);
        locks.extend(held.filter(|_| asserts.has(name)).cloned());
    }

    /// What it occupies besides the message, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let locks = self.locks.iter().flatten().map(|held| held.name.len() + size_of::<Held>());
        let asserts = match &self.undecided {
            Some(Asserts::These(names)) => names.iter().map(String::len).sum(),
            Some(Asserts::Any) | None => 0,
        };
        self.id.as_ref().map_or(0, Vec::len) + locks.sum::<usize>() + asserts
    }
}
