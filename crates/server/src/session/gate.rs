//! Sessions that are held: their messages wait while work of theirs is out, or while a helper has
//! the tables that their next request needs.
//!
//! So a session's requests are handled in the order in which they came, and it sees the states of a
//! database in their order, however long some of it takes. Only `echo`, and replies to probes, go
//! past the queue; and behind `convert` only those replies. While work of its own is out, no update
//! is composed for a session: what changes meanwhile merges, as for one that does not read.

use std::collections::VecDeque;

use weir_json::TextBuf;
use weir_wire::Message;

use crate::effect::Effect;
use crate::event::{DbId, Now, SessionId};
use crate::server::Server;

/// Most bytes of messages that wait for one session, beyond which it is not read.
pub(crate) const QUEUED_BYTES_MAX: usize = 1 << 20;

/// What a queued message costs besides its text, in bytes.
const OVERHEAD_BYTES: usize = 64;

/// A message on its way to its handler.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// As it came.
    Raw(Vec<u8>),
    /// It is JSON.
    Checked(TextBuf),
    /// It was too long to be kept: its outline, and how much of it was here before it was let go.
    Refused { outline: Vec<u8>, bytes: u64 },
}

impl Incoming {
    /// Its length in bytes, as far as it is here.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Raw(bytes) | Self::Refused { outline: bytes, .. } => bytes.len(),
            Self::Checked(text) => text.len(),
        }
    }
}

/// The waiting room of one session.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// Pieces of work of its own that are out.
    working: u32,
    /// Requests of its own that run when the round is decided.
    asking: u32,
    /// A conversion that it has asked for is not answered yet.
    converting: bool,
    /// The database that its first message waits for.
    waits_for: Option<DbId>,
    /// Messages not handled yet, and whether each asks for a conversion.
    queue: VecDeque<(Incoming, bool)>,
    /// How many of them do.
    queued_conversions: usize,
    queued_bytes: usize,
    /// The shell does not read from it.
    stopped: bool,
    /// The round in which its last message was handled.
    taken_in: Option<u64>,
}

impl Hold {
    /// Whether its own work is out: no update is composed for it.
    pub(crate) fn is_working(&self) -> bool {
        self.working > 0
    }

    /// Whether its next message must wait.
    pub(crate) fn is_held(&self) -> bool {
        self.working > 0 || self.asking > 0 || self.converting || self.waits_for.is_some()
    }

    /// Whether nothing is read from it, so that it cannot be heard.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Bytes of the messages that wait.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn push_back(&mut self, message: Incoming, is_conversion: bool) {
        self.queued_bytes += message.len() + OVERHEAD_BYTES;
        self.queued_conversions += usize::from(is_conversion);
        self.queue.push_back((message, is_conversion));
    }

    fn push_front(&mut self, message: Incoming) {
        self.queued_bytes += message.len() + OVERHEAD_BYTES;
        let is_conversion = std::mem::take(&mut self.converting);
        self.queued_conversions += usize::from(is_conversion);
        self.queue.push_front((message, is_conversion));
    }

    fn pop_front(&mut self) -> Option<Incoming> {
        let (message, is_conversion) = self.queue.pop_front()?;
        self.queued_conversions -= usize::from(is_conversion);
        self.queued_bytes -= message.len() + OVERHEAD_BYTES;
        Some(message)
    }
}

impl Server {
    /// Handles a message, or lets it wait behind others of its session.
    pub(crate) fn take_or_queue(&mut self, now: Now, id: SessionId, message: Incoming) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let hold = &mut session.hold;
        if !hold.is_held() && hold.queue.is_empty() {
            hold.taken_in = Some(self.round.number);
            return self.take(now, id, message);
        }
        let is_free = !self.streams.has(id);
        let kind = match &message {
            Incoming::Raw(message) => Kind::of(message),
            Incoming::Checked(_) | Incoming::Refused { .. } => Kind::Other,
        };
        let may_pass = match kind {
            Kind::Reply => true,
            Kind::Echo => !hold.converting && hold.queued_conversions == 0,
            Kind::Conversion | Kind::Other => false,
        };
        if is_free && may_pass {
            return self.take(now, id, message);
        }
        hold.push_back(message, kind == Kind::Conversion);
        if hold.queued_bytes > QUEUED_BYTES_MAX && !hold.stopped {
            hold.stopped = true;
            self.effect(Effect::StopReading { session: id });
        }
    }

    /// Handles what has waited and need not wait any more: one message a session and round.
    pub(crate) fn take_queued(&mut self, now: Now) {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            let number = self.round.number;
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let hold = &mut session.hold;
            if hold.is_held() {
                continue;
            }
            if hold.taken_in == Some(number) {
                self.ready.push_back(id);
                continue;
            }
            let Some(message) = hold.pop_front() else { continue };
            hold.taken_in = Some(number);
            self.take(now, id, message);
            self.after_queue(id);
        }
    }

    /// A message of a session that a helper looked at is handled in this round.
    pub(crate) fn took(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.hold.taken_in = Some(self.round.number);
        }
    }

    /// A session's queue has become shorter.
    fn after_queue(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let hold = &mut session.hold;
        if !hold.is_held() && !hold.queue.is_empty() {
            self.ready.push_back(id);
        }
        if hold.stopped && hold.queued_bytes == 0 {
            hold.stopped = false;
            self.effect(Effect::GoOnReading { session: id });
        }
    }

    /// Work of a session's own goes out.
    pub(crate) fn hold(&mut self, id: SessionId) {
        self.change_session(id, |session| session.hold.working += 1);
    }

    /// It is done: the session goes on.
    pub(crate) fn let_go(&mut self, now: Now, id: SessionId) {
        self.change_session(id, |session| {
            session.hold.working = session.hold.working.saturating_sub(1);
        });
        let Some(session) = self.sessions.get(&id) else { return };
        let hold = &session.hold;
        if hold.working > 0 {
            return;
        }
        if !hold.is_held() && !hold.queue.is_empty() {
            self.ready.push_back(id);
        }
        self.want_updates(now, id);
    }

    /// A request is in that what comes behind must wait for; updates need not.
    pub(crate) fn has_asked(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.hold.asking += 1;
        }
    }

    /// Its turn has come.
    pub(crate) fn is_heard_out(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let hold = &mut session.hold;
        hold.asking = hold.asking.saturating_sub(1);
        if !hold.is_held() && !hold.queue.is_empty() {
            self.ready.push_back(id);
        }
    }

    /// A conversion that a session has asked for begins: its answer comes before those to what is
    /// behind it, `echo` included.
    pub(crate) fn begin_conversion(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.hold.converting = true;
        }
    }

    /// It is answered.
    pub(crate) fn end_conversion(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let hold = &mut session.hold;
        hold.converting = false;
        if !hold.is_held() && !hold.queue.is_empty() {
            self.ready.push_back(id);
        }
    }

    /// A session's message waits until the database is back.
    pub(crate) fn wait_for(&mut self, id: SessionId, db: DbId, message: Incoming) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.hold.waits_for = Some(db);
        session.hold.push_front(message);
        if let Some(db) = self.dbs.get_mut(&db) {
            db.queue.push_back(crate::work::away::Queued::Session(id));
        }
    }

    /// The database that a session's message waited for is back, or gone.
    pub(crate) fn stop_waiting(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.hold.waits_for = None;
        if !session.hold.is_held() {
            self.ready.push_back(id);
        }
    }
}

/// What a message that comes behind others is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To a probe: it waits for nobody.
    Reply,
    /// `echo`: it waits behind conversions only.
    Echo,
    /// `convert`
    Conversion,
    /// Anything else, or too big to be looked at here.
    Other,
}

impl Kind {
    pub(crate) fn of(message: &[u8]) -> Self {
        if message.len() >= QUEUED_BYTES_MAX {
            return Self::Other;
        }
        let parsed = weir_json::validate(message).ok().and_then(|text| Message::parse(text).ok());
        match parsed {
            Some(Message::Request { method: "echo", .. }) => Self::Echo,
            Some(Message::Request { method: "convert", .. }) => Self::Conversion,
            Some(Message::Reply { .. } | Message::Error { .. }) => Self::Reply,
            Some(Message::Request { .. } | Message::Notification { .. }) | None => Self::Other,
        }
    }
}
