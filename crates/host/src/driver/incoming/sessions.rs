//! Clients: their sockets, what they sent and what they are to get.
//!
//! A session is watched for input while its outbox is empty and for room while it is not, never
//! for both: no message is taken from a client that does not take its answers.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::mem;

use weir_net::Stream;
use weir_net::error::strerror;
use weir_net::tls::Line;
use weir_server::event::{Bytes, Event, RemoteId, SessionId};

use crate::coverage::{Counter, Coverage};
use crate::driver::incoming::inbox::{Inbox, READ_BYTES};
use crate::driver::outgoing::lag::Lag;
use crate::driver::outgoing::outbox::{Flushed, Outbox};
use crate::driver::token::Token;
use crate::poller::{Interest, Poller, Ready};

/// Bytes of messages on their way and at work, beyond which big ones arrive one by one; at most
/// half of what there may be of them. What is left is the longest that one may be.
pub const UNPARSED_BYTES_MAX: usize = 512 << 20;

/// How long the one client that may go on with a big message may be silent while others wait.
const HOLDER_PATIENCE_US: u64 = 1_000_000;

/// Bytes written in one round to clients that have much to take; the others have their turn in the
/// next one, so that a herd of them does not hold up who commits.
const ROUND_BYTES_MAX: usize = 2 << 20;

/// What no socket takes at once, in bytes: it may as well wait for its turn.
const LONG_BYTES_MIN: usize = 512 << 10;

/// How long a disconnected client may take to read what was already queued for it.
const LINGER_US: u64 = 5_000_000;

/// Bits of a session number that are its slot; the others count sessions.
const SLOT_BITS: u32 = 20;

/// All clients.
pub(crate) struct Sessions {
    slots: Vec<Option<Session>>,
    free: Vec<usize>,
    /// Sessions ever accepted.
    accepted: u64,
    /// Those with output queued since the last flush.
    dirty: Vec<SessionId>,
    /// Those that may hold another complete message.
    unscanned: Vec<SessionId>,
    /// Those that the core has let go, in the order of their deadlines.
    closing: Vec<(u64, SessionId)>,
    /// Those not read because of the budget.
    paused: Vec<SessionId>,
    /// The one client that may go on sending a big message when there are too many, and when it was
    /// last heard.
    holder: Option<(SessionId, u64)>,
    /// Unparsed input of all clients.
    held_bytes: usize,
    /// Messages that are at work.
    core_bytes: usize,
    /// What both may be together.
    input_bytes_max: usize,
    /// On the monotonic clock.
    now_us: u64,
    /// Of this round; a client is served once a round.
    round: u64,
    /// Bytes written in this round to clients that had been blocked.
    round_bytes: usize,
    /// The last client whose turn it was, if others are still to have theirs.
    cut_at: Option<SessionId>,
    last_flushed: Option<SessionId>,
    scratch: Box<[u8]>,
    lag: Lag,
    /// What the core is to be told.
    events: Vec<Event>,
    /// What TLS had to say of those that were lost.
    tls_log: Vec<Line>,
}

struct Session {
    id: SessionId,
    stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    interest: Interest,
    phase: Phase,
    /// The core wants no more of its messages for now.
    stopped: bool,
    /// The core waits for its outbox to be empty.
    tells_drained: bool,
    /// The core knows that it is behind.
    is_blocked: bool,
    /// The round in which it fell behind.
    fell: u64,
    /// In `Sessions::dirty`.
    dirty: bool,
    /// It had the right to go on with a big message, and was silent.
    is_silent: bool,
    /// Bytes that were here of the last message that was passed over.
    passed_bytes: u64,
    /// The round in which its last message was taken.
    served: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The core knows it.
    Open,
    /// What it sent is no JSON; the core will disconnect it.
    Deaf,
    /// The core has let it go; the rest of its outbox is being written.
    Closing,
}

impl Sessions {
    /// No clients yet; `input_bytes_max` is what all messages on their way and at work may take
    /// together.
    pub(crate) fn new(input_bytes_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            accepted: 0,
            dirty: Vec::new(),
            unscanned: Vec::new(),
            closing: Vec::new(),
            paused: Vec::new(),
            holder: None,
            held_bytes: 0,
            core_bytes: 0,
            input_bytes_max,
            now_us: 0,
            round: 0,
            round_bytes: 0,
            cut_at: None,
            last_flushed: None,
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            lag: Lag::default(),
            events: Vec::new(),
            tls_log: Vec::new(),
        }
    }

    /// What all messages on their way and at work may take together.
    pub(crate) fn limit_input(&mut self, bytes_max: usize) {
        self.input_bytes_max = bytes_max;
    }

    /// Bytes that clients have not taken yet.
    pub(crate) fn backlog(&self) -> usize {
        self.slots.iter().flatten().map(|session| session.outbox.bytes()).sum()
    }

    /// The same of each client that has not taken all.
    pub(crate) fn backlogs(&self) -> BTreeMap<SessionId, u64> {
        let behind = self.slots.iter().flatten().filter(|session| !session.outbox.is_empty());
        behind.map(|session| (session.id, session.outbox.bytes() as u64)).collect()
    }

    /// Moves what happened to `out`.
    pub(crate) fn take_events(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.events);
    }

    /// What TLS had to say of those that were lost.
    pub(crate) fn take_tls_log(&mut self) -> Vec<Line> {
        mem::take(&mut self.tls_log)
    }

    /// A client connected.
    pub(crate) fn accept(
        &mut self,
        poller: &Poller,
        stream: Stream,
        remote: RemoteId,
        name: String,
    ) {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot >> SLOT_BITS != 0 {
            return; // More than the system has descriptors for.
        }
        self.accepted += 1;
        let id = SessionId(self.accepted << SLOT_BITS | slot as u64);
        if poller.add(&stream, Token::Session(id.0).encode(), Interest::Read).is_err() {
            self.free.push(slot);
            return;
        }
        let (inbox, outbox) = (Inbox::default(), Outbox::default());
        let (interest, phase) = (Interest::Read, Phase::Open);
        let client = stream.peer_name();
        let session = Session {
            id,
            stream,
            inbox,
            outbox,
            interest,
            phase,
            stopped: false,
            tells_drained: false,
            is_blocked: false,
            fell: 0,
            dirty: false,
            is_silent: false,
            passed_bytes: 0,
            served: 0,
        };
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(session);
        self.events.push(Event::Accepted { session: id, remote, name, client });
        self.take_early(poller, id);
    }

    /// What came right behind the handshake of TLS is deciphered already, and the socket does not
    /// show it.
    fn take_early(&mut self, poller: &Poller, id: SessionId) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        let Stream::Tls(_) = session.stream else { return };
        let result = session.stream.read_spare(session.inbox.buffer(), &mut self.scratch);
        self.held_bytes += session.inbox.held_bytes();
        match result {
            Ok(0) => self.lost(poller, id, None),
            Ok(_) => self.unscanned.push(id),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.lost(poller, id, Some(strerror(&error))),
        }
    }

    /// A new round begins: clients that sent several messages at once have their next one taken.
    pub(crate) fn begin_round(&mut self, now_us: u64, coverage: &mut Coverage) {
        self.round += 1;
        self.now_us = now_us;
        self.round_bytes = 0;
        for (id, fell) in self.lag.begin_round(now_us) {
            let Some(session) = get_mut(&mut self.slots, id) else { continue };
            let is_behind = session.interest == Interest::Write && session.fell == fell;
            if is_behind
                && session.phase == Phase::Open
                && !mem::replace(&mut session.is_blocked, true)
            {
                self.events.push(Event::Blocked { session: id });
            }
        }
        for id in mem::take(&mut self.unscanned) {
            if self.get(id).is_some_and(Session::listens) {
                self.take_message(id, coverage);
            }
        }
    }

    /// Who did not have their turn in the last round are the first in this one.
    pub(crate) fn take_turns(&mut self, ready: &mut [Ready]) {
        let Some(SessionId(last)) = self.cut_at.take() else { return };
        let token = Token::Session(last).encode();
        if let Some(at) = ready.iter().position(|ready| ready.token == token) {
            ready.rotate_left(at + 1);
        }
    }

    /// True when [`Sessions::begin_round`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.unscanned.is_empty()
    }

    /// The socket of a session is ready.
    pub(crate) fn ready(
        &mut self,
        poller: &Poller,
        id: SessionId,
        hung_up: bool,
        coverage: &mut Coverage,
    ) {
        let Some(session) = self.get(id) else { return };
        match (session.phase, session.interest) {
            (Phase::Closing, _) if hung_up => self.remove(poller, id),
            (Phase::Closing, _) | (_, Interest::Write) => {
                if self.round_bytes < ROUND_BYTES_MAX {
                    self.last_flushed = Some(id);
                    self.flush(poller, id, coverage);
                } else {
                    self.cut_at = self.last_flushed;
                }
            }
            (Phase::Deaf, _) => {}
            (Phase::Open, _) if session.served == self.round || session.inbox.has_unscanned() => {}
            (Phase::Open, _) => {
                if hung_up || self.may_read(poller, id) {
                    self.read(poller, id, coverage);
                }
            }
        }
    }

    /// As long as there is not much on its way, everybody is read; then, who sends little and one
    /// who sends much, as long as its message is not too long for what is left. Where there is too
    /// much, that one waits for what is at work, or takes the place of who has begun and is silent.
    fn may_read(&mut self, poller: &Poller, id: SessionId) -> bool {
        let held = self.get(id).map_or(0, |session| session.inbox.held_bytes());
        if !self.is_crowded() || held < READ_BYTES {
            return true;
        }
        if self.holder.is_none_or(|(holder, _)| holder == id) {
            self.holder = Some((id, self.now_us));
            if held >= self.input_bytes_max - self.crowd_bytes() {
                self.pass_over(id);
                return true;
            }
            if self.held_bytes + self.core_bytes < self.input_bytes_max {
                return true;
            }
            if self.core_bytes == 0 {
                let silent = self.slots.iter().flatten().filter(|s| s.is_silent && s.id != id);
                let longest = silent.max_by_key(|session| session.inbox.held_bytes());
                if let Some(silent) = longest.map(|session| session.id) {
                    self.pass_over(silent);
                }
                return true;
            }
        }
        self.watch(poller, id, Interest::Nothing);
        self.paused.push(id);
        false
    }

    /// Big messages arrive one by one while there is more than this on its way and at work.
    fn crowd_bytes(&self) -> usize {
        UNPARSED_BYTES_MAX.min(self.input_bytes_max / 2)
    }

    fn is_crowded(&self) -> bool {
        self.held_bytes + self.core_bytes > self.crowd_bytes()
    }

    /// Lets the message go that somebody has begun to send.
    fn pass_over(&mut self, id: SessionId) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        let held = session.inbox.held_bytes();
        session.inbox.pass_over();
        session.is_silent = false;
        session.passed_bytes = held as u64;
        self.held_bytes = self.held_bytes - held + session.inbox.held_bytes();
        self.take_from_holder(id);
        self.events.push(Event::TooLong { session: id, bytes: held as u64 });
    }

    /// True while somebody waits for others to be done.
    pub(crate) fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// True when it matters how much is at work.
    pub(crate) fn has_big(&self) -> bool {
        self.held_bytes >= READ_BYTES
    }

    /// So much is at work, in bytes.
    pub(crate) fn note_at_work(&mut self, bytes: usize) {
        self.core_bytes = bytes;
    }

    fn read(&mut self, poller: &Poller, id: SessionId, coverage: &mut Coverage) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        let held = session.inbox.held_bytes();
        let result = if session.inbox.is_big() {
            session.stream.read_spare(session.inbox.spare(), &mut self.scratch)
        } else if let Stream::Tls(_) = session.stream {
            session.stream.read_spare(session.inbox.buffer(), &mut self.scratch)
        } else {
            let result = session.stream.read(&mut self.scratch);
            result.inspect(|count| session.inbox.push(&self.scratch[..*count]))
        };
        self.held_bytes = self.held_bytes - held + session.inbox.held_bytes();
        match result {
            Ok(0) => self.lost(poller, id, None),
            Ok(count) => {
                coverage.add(Counter::BytesReceived, count as u64);
                if !self.take_message(id, coverage) {
                    self.events.push(Event::Activity { session: id });
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                _ => self.lost(poller, id, Some(strerror(&error))),
            },
        }
    }

    /// Tells the core of the next complete message, if there is one.
    fn take_message(&mut self, id: SessionId, coverage: &mut Coverage) -> bool {
        let Some(session) = get_mut(&mut self.slots, id) else { return false };
        let held = session.inbox.held_bytes();
        let is_outline = session.inbox.passes_over();
        let result = session.inbox.next_message();
        self.held_bytes = self.held_bytes - held + session.inbox.held_bytes();
        match result {
            Ok(Some(bytes)) => {
                session.served = self.round;
                session.is_silent = false;
                let passed_bytes = session.passed_bytes;
                if session.inbox.has_unscanned() {
                    self.unscanned.push(id);
                }
                self.take_from_holder(id);
                coverage.add(Counter::Messages, 1);
                self.events.push(if is_outline {
                    Event::Refused { session: id, outline: bytes, bytes: passed_bytes }
                } else {
                    Event::Message { session: id, bytes }
                });
                true
            }
            Ok(None) => false,
            Err(error) => {
                session.phase = Phase::Deaf;
                self.events.push(Event::BadStream { session: id, error });
                true
            }
        }
    }

    /// Queues output; it leaves at the next [`Sessions::flush_dirty`].
    pub(crate) fn send(&mut self, id: SessionId, head: &Bytes, body: &Bytes) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        if session.phase == Phase::Closing {
            return;
        }
        session.outbox.push(head);
        session.outbox.push(body);
        if session.interest == Interest::Write {
            return self.lag.note(body);
        }
        if !mem::replace(&mut session.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// The core is to be told when everything that is queued has left.
    pub(crate) fn tell_drained(&mut self, id: SessionId) {
        if let Some(session) = get_mut(&mut self.slots, id) {
            session.tells_drained = true;
        }
    }

    /// Writes what was queued.
    pub(crate) fn flush_dirty(&mut self, poller: &Poller, coverage: &mut Coverage) {
        let mut dirty = mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(session) = get_mut(&mut self.slots, id) else { continue };
            session.dirty = false;
            if session.interest == Interest::Write {
                continue;
            }
            let is_late = self.round_bytes >= ROUND_BYTES_MAX;
            if is_late && session.phase == Phase::Open && session.outbox.bytes() >= LONG_BYTES_MIN {
                session.fell = self.round;
                self.watch(poller, id, Interest::Write);
                self.lag.falls_behind(id, self.round);
            } else {
                self.flush(poller, id, coverage);
            }
        }
        self.dirty = dirty;
    }

    fn flush(&mut self, poller: &Poller, id: SessionId, coverage: &mut Coverage) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        let (result, written) = session.flush(coverage);
        self.round_bytes += written;
        let is_all = matches!(result, Ok(Flushed::All));
        let is_told =
            is_all && (mem::take(&mut session.tells_drained) | mem::take(&mut session.is_blocked));
        let (phase, was_blocked) = (session.phase, session.interest == Interest::Write);
        match result {
            Ok(Flushed::All) if phase == Phase::Closing => self.remove(poller, id),
            Ok(Flushed::All) if was_blocked => {
                if session.inbox.has_unscanned() {
                    self.unscanned.push(id);
                }
                let deaf = phase == Phase::Deaf || session.stopped;
                self.watch(poller, id, if deaf { Interest::Nothing } else { Interest::Read });
                self.events.push(match is_told {
                    true => Event::Drained { session: id },
                    false => Event::Activity { session: id },
                });
            }
            Ok(Flushed::All) if is_told => self.events.push(Event::Drained { session: id }),
            Ok(Flushed::Part) if !was_blocked => {
                session.fell = self.round;
                self.watch(poller, id, Interest::Write);
                self.lag.falls_behind(id, self.round);
            }
            // A long answer on a slow line is no silence.
            Ok(Flushed::Part) if written > 0 && phase == Phase::Open => {
                self.events.push(Event::Activity { session: id });
            }
            Ok(_) => {}
            Err(_) if phase == Phase::Closing => self.remove(poller, id),
            Err(error) => self.lost(poller, id, Some(strerror(&error))),
        }
    }

    /// The core lets a session go: what is queued is written, within limits, and nothing is read.
    pub(crate) fn disconnect(
        &mut self,
        poller: &Poller,
        id: SessionId,
        now_us: u64,
        coverage: &mut Coverage,
    ) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        session.phase = Phase::Closing;
        self.held_bytes -= mem::take(&mut session.inbox).held_bytes();
        if session.is_drained() {
            return self.remove(poller, id);
        }
        self.closing.push((now_us + LINGER_US, id));
        if session.interest != Interest::Write {
            self.flush(poller, id, coverage);
        }
    }

    /// The core wants no more messages of a session for now.
    pub(crate) fn stop_reading(&mut self, poller: &Poller, id: SessionId) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        session.stopped = true;
        if session.phase == Phase::Open && session.interest == Interest::Read {
            self.watch(poller, id, Interest::Nothing);
        }
    }

    /// It wants them again.
    pub(crate) fn go_on_reading(&mut self, poller: &Poller, id: SessionId) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        session.stopped = false;
        if session.listens() && session.interest == Interest::Nothing {
            if session.inbox.has_unscanned() {
                self.unscanned.push(id);
            }
            self.watch(poller, id, Interest::Read);
        }
    }

    /// When the next lingering session is to be closed, or the right to go on with a big message is
    /// to be another's.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let closing = self.closing.first().map(|(deadline, _)| *deadline);
        closing.into_iter().chain(self.holder_deadline_us()).min()
    }

    /// When a silent holder loses its right, if others wait for it.
    fn holder_deadline_us(&self) -> Option<u64> {
        let (holder, heard_us) = self.holder?;
        let is_silent = !self.paused.is_empty() && !self.paused.contains(&holder);
        is_silent.then_some(heard_us + HOLDER_PATIENCE_US)
    }

    fn take_from_holder(&mut self, id: SessionId) {
        if self.holder.is_some_and(|(holder, _)| holder == id) {
            self.holder = None;
        }
    }

    /// Closes those whose time is over.
    pub(crate) fn expire(&mut self, poller: &Poller, now_us: u64) {
        if self.closing.is_empty() {
            return;
        }
        let due = self.closing.iter().take_while(|(deadline, _)| *deadline <= now_us).count();
        let due: Vec<_> = self.closing.drain(..due).collect();
        due.into_iter().for_each(|(_, id)| self.remove(poller, id));
    }

    /// True when somebody has not yet got everything.
    pub(crate) fn has_output(&self) -> bool {
        self.slots.iter().flatten().any(|session| !session.is_drained())
    }

    /// The connection has ended by itself.
    fn lost(&mut self, poller: &Poller, id: SessionId, error: Option<String>) {
        if let Some(session) = get_mut(&mut self.slots, id) {
            self.tls_log.append(&mut session.stream.take_log());
        }
        self.events.push(Event::Closed { session: id, error });
        self.remove(poller, id);
    }

    fn remove(&mut self, poller: &Poller, id: SessionId) {
        let Some(slot) = slot_of(&self.slots, id) else { return };
        let Some(session) = self.slots[slot].take() else { return };
        poller.remove(&session.stream);
        self.held_bytes -= session.inbox.held_bytes();
        self.free.push(slot);
        if session.phase == Phase::Closing {
            self.closing.retain(|(_, closing)| *closing != id);
        }
        self.take_from_holder(id);
    }

    /// Reads again from those that waited for others to be done.
    pub(crate) fn resume_paused(&mut self, poller: &Poller) {
        if self.holder_deadline_us().is_some_and(|deadline| deadline <= self.now_us)
            && let Some((holder, _)) = self.holder.take()
            && let Some(session) = get_mut(&mut self.slots, holder)
        {
            session.is_silent = true;
        }
        let holder_goes_on = self.holder.is_some_and(|(holder, _)| !self.paused.contains(&holder));
        let is_full = self.held_bytes + self.core_bytes >= self.input_bytes_max;
        if (holder_goes_on && self.is_crowded()) || (is_full && self.core_bytes > 0) {
            return;
        }
        for id in mem::take(&mut self.paused) {
            if self
                .get(id)
                .is_some_and(|session| session.interest == Interest::Nothing && !session.stopped)
            {
                self.watch(poller, id, Interest::Read);
            }
        }
    }

    fn watch(&mut self, poller: &Poller, id: SessionId, interest: Interest) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        session.interest = interest;
        let token = Token::Session(id.0).encode();
        if let Err(error) = poller.change(&session.stream, token, interest) {
            self.lost(poller, id, Some(strerror(&error)));
        }
    }

    fn get(&self, id: SessionId) -> Option<&Session> {
        self.slots[slot_of(&self.slots, id)?].as_ref()
    }
}

impl Session {
    /// Another message may be taken.
    fn listens(&self) -> bool {
        self.phase == Phase::Open && self.is_drained() && !self.stopped
    }

    /// Everything that was sent is in the socket.
    fn is_drained(&self) -> bool {
        self.outbox.is_empty() && !self.stream.has_pending()
    }

    /// Writes what the socket takes; also how many bytes it took.
    fn flush(&mut self, coverage: &mut Coverage) -> (std::io::Result<Flushed>, usize) {
        let (stream, mut taken) = (&mut self.stream, 0);
        let flushed = self.outbox.flush(|slices| {
            coverage.add(Counter::Writes, 1);
            let written = stream.write_vectored(slices);
            taken += written.as_ref().copied().unwrap_or(0);
            written
        });
        // What TLS has taken may still be on this side.
        let result = match flushed {
            Ok(Flushed::All) => stream
                .write_pending()
                .map(|is_done| if is_done { Flushed::All } else { Flushed::Part }),
            other => other,
        };
        (result, taken)
    }
}

/// The slot of a living session.
fn slot_of(slots: &[Option<Session>], id: SessionId) -> Option<usize> {
    let slot = usize::try_from(id.0 & ((1 << SLOT_BITS) - 1)).ok()?;
    slots.get(slot)?.as_ref().is_some_and(|session| session.id == id).then_some(slot)
}

fn get_mut(slots: &mut [Option<Session>], id: SessionId) -> Option<&mut Session> {
    let slot = slot_of(slots, id)?;
    slots[slot].as_mut()
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
