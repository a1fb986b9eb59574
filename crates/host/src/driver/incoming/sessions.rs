//! Clients: their sockets, what they sent and what they are to get.
//!
//! A session is watched for input while its outbox is empty and for room while it is not, never
//! for both: no message is taken from a client that does not take its answers.

use std::collections::BTreeMap;
use std::mem;

use weir_net::Stream;
use weir_net::error::strerror;
use weir_net::tls::Line;
use weir_server::event::{Bytes, Event, RemoteId, SessionId};

use crate::coverage::{Counter, Coverage};
use crate::driver::incoming::admission::{Admission, Verdict};
use crate::driver::incoming::channel::{Channel, Received};
use crate::driver::incoming::inbox::{Inbox, READ_BYTES};
use crate::driver::incoming::unfinished::FREE_BYTES;
use crate::driver::outgoing::backlog::Backlog;
use crate::driver::outgoing::lag::Lag;
use crate::driver::outgoing::outbox::{BACKLOG_BYTES_MAX, Flushed, Outbox};
use crate::driver::token::Token;
use crate::poller::{Interest, Poller, Ready};

/// Bytes written in one round to clients that have much to take; the others have their turn in the
/// next one, so that a herd of them does not hold up who commits.
const ROUND_BYTES_MAX: usize = 2 << 20;

/// Bytes read in one round from clients with big messages; the others have their turn in the next
/// one, so that hundreds of them do not hold up who has little to say.
const ROUND_READ_BYTES_MAX: usize = 8 << 20;

/// What no socket takes at once, in bytes: it may as well wait for its turn.
const LONG_BYTES_MIN: usize = 512 << 10;

/// How long a disconnected client may take to read what was already queued for it.
const LINGER_US: u64 = 5_000_000;

/// Bits of a session number that are its slot; the others count sessions.
const SLOT_BITS: u32 = 20;

/// Why a session ends that has made room for others, as the log has it.
const LATE: &str = "no memory for a message that comes too slowly";

/// Why a session that is named must be there.
const LIVING: &str = "the session was looked up, and nothing has removed it since";

/// All clients of the core.
pub(crate) struct Sessions {
    slots: Vec<Option<Session>>,
    free: Vec<usize>,
    /// Sessions ever accepted.
    accepted: u64,
    /// Sessions with output queued since the last flush.
    dirty: Vec<SessionId>,
    /// Sessions whose inboxes may hold another complete message.
    unscanned: Vec<SessionId>,
    /// Sessions that the core has let go, in the order of their deadlines.
    closing: Vec<(u64, SessionId)>,
    admission: Admission,
    /// The beginning of this round on the monotonic clock.
    now_us: u64,
    /// The number of this round; a client is served once a round.
    round: u64,
    /// What is ready in this round may have been for as long as the process stood still.
    is_late: bool,
    /// A client was watched for room only while the process stood still: whether it has gone is reported in the next round.
    was_deaf: bool,
    /// Bytes written in this round to clients that had been blocked.
    round_bytes: usize,
    /// Bytes read in this round of big messages.
    round_read_bytes: usize,
    /// The first client that was not written to in the last round for want of time, and the first
    /// one that was not read.
    unwritten: Option<SessionId>,
    unread: Option<SessionId>,
    scratch: Box<[u8]>,
    lag: Lag,
    backlog: Backlog,
    /// Sessions that have more queued than they may.
    overfull: Vec<SessionId>,
    /// What the core is to be told.
    events: Vec<Event>,
    /// What TLS had to say of connections that have ended by themselves.
    tls_log: Vec<Line>,
}

struct Session {
    id: SessionId,
    channel: Channel,
    phase: Phase,
    /// The core wants no more of the session's messages for now.
    is_stopped: bool,
    /// The core waits for the outbox to be empty.
    tells_drained: bool,
    /// The core knows that the session is behind.
    is_blocked: bool,
    /// The round in which the session fell behind.
    fell_in: u64,
    /// The session stands in `Sessions::dirty`.
    is_dirty: bool,
    /// The session stands in `Sessions::unscanned`.
    is_unscanned: bool,
    /// Bytes that were here of the last message that was passed over.
    passed_bytes: u64,
    /// The round in which the last message was taken.
    served_in: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The core knows the session.
    Open,
    /// The client has sent what is no JSON; the core will disconnect it.
    Deaf,
    /// The core has let the session go; the rest of its outbox is being written.
    Closing,
}

impl Sessions {
    /// No clients yet; `input_bytes_max` is what all messages on their way and at work may take
    /// together, `backlog_bytes_max` what all clients together may leave untaken.
    pub(crate) fn new(input_bytes_max: usize, backlog_bytes_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            accepted: 0,
            dirty: Vec::new(),
            unscanned: Vec::new(),
            closing: Vec::new(),
            admission: Admission::new(input_bytes_max),
            now_us: 0,
            round: 0,
            is_late: false,
            was_deaf: false,
            round_bytes: 0,
            round_read_bytes: 0,
            unwritten: None,
            unread: None,
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            lag: Lag::default(),
            backlog: Backlog::new(backlog_bytes_max),
            overfull: Vec::new(),
            events: Vec::new(),
            tls_log: Vec::new(),
        }
    }

    /// Who may go on with big messages.
    pub(crate) fn admission(&mut self) -> &mut Admission {
        &mut self.admission
    }

    /// Bytes that clients have not taken yet.
    pub(crate) fn backlog(&self) -> usize {
        self.slots.iter().flatten().map(|session| session.channel.outbox.bytes()).sum()
    }

    /// Bytes that each client has not taken yet, of those that have not taken all.
    pub(crate) fn backlogs(&self) -> BTreeMap<SessionId, u64> {
        let sessions = self.slots.iter().flatten();
        let behind = sessions.filter(|session| !session.channel.outbox.is_empty());
        behind.map(|session| (session.id, session.channel.outbox.bytes() as u64)).collect()
    }

    /// Tells the core how far the bytes of these sessions have come.
    pub(crate) fn look_at_outboxes(&mut self, of: Vec<SessionId>) {
        let progress = |id| Some((id, self.get(id)?.channel.progress()));
        let outboxes = of.into_iter().filter_map(progress).collect();
        self.events.push(Event::Outboxes { outboxes });
    }

    /// Moves what happened to `out`.
    pub(crate) fn take_events(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.events);
    }

    /// What TLS had to say of connections that have ended by themselves.
    pub(crate) fn take_tls_log(&mut self) -> Vec<Line> {
        mem::take(&mut self.tls_log)
    }

    /// A client is connected, its handshake over.
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
        let opened = Channel::open(poller, Token::Session(id.0), stream, Inbox::default());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        let Ok(channel) = opened else {
            return self.free.push(slot);
        };
        let client = channel.peer_name();
        self.slots[slot] = Some(Session::new(id, channel));
        self.events.push(Event::Accepted { session: id, remote, name, client });
        self.receive_early(poller, id);
    }

    /// Reads what a client has sent right behind its handshake.
    fn receive_early(&mut self, poller: &Poller, id: SessionId) {
        let session = living(&mut self.slots, id);
        let received = session.channel.receive_early(&mut self.scratch);
        self.admission.note_held(id, 0, session.channel.inbox.held_bytes());
        match received {
            Ok(Received::Bytes(_)) => session.scan_later(&mut self.unscanned),
            Ok(Received::Nothing) => {}
            Ok(Received::End) => return self.end(poller, id, None),
            Err(error) => return self.end(poller, id, Some(strerror(&error))),
        }
        self.answer_for_tls(poller, id);
    }

    /// TLS may answer what was read by itself (that it does not begin anew, say). As of all output, the
    /// client takes that before it is heard again.
    fn answer_for_tls(&mut self, poller: &Poller, id: SessionId) {
        if living(&mut self.slots, id).channel.has_pending() {
            self.wait_for_room(poller, id);
        }
    }

    /// A new round begins: clients that sent several messages at once have their next one taken.
    pub(crate) fn begin_round(&mut self, now_us: u64, coverage: &mut Coverage) {
        self.round += 1;
        self.now_us = now_us;
        (self.round_bytes, self.round_read_bytes) = (0, 0);
        for (id, fell) in self.lag.begin_round(now_us) {
            let Some(session) = get_mut(&mut self.slots, id) else { continue };
            let is_behind = session.is_waiting_for_room() && session.fell_in == fell;
            if is_behind
                && session.phase == Phase::Open
                && !mem::replace(&mut session.is_blocked, true)
            {
                self.events.push(Event::Blocked { session: id });
            }
        }
        for id in mem::take(&mut self.unscanned) {
            let Some(session) = get_mut(&mut self.slots, id) else { continue };
            session.is_unscanned = false;
            if session.may_be_heard() {
                self.take_message(id, coverage);
            }
        }
    }

    /// What was reported last may have been ready for long, if the process `has_stood_still`.
    pub(crate) fn note_late(&mut self, has_stood_still: bool, poller: &Poller) {
        let goes_on = mem::take(&mut self.was_deaf) || poller.goes_on();
        self.is_late = has_stood_still || self.is_late && goes_on;
    }

    /// Puts clients first that did not have their turn in the last round.
    pub(crate) fn put_in_turn(&mut self, ready: &mut [Ready]) {
        let place = |first: Option<SessionId>| {
            let token = Token::Session(first?.0).encode();
            ready.iter().position(|ready| ready.token == token)
        };
        let (write_at, read_at) = (place(self.unwritten.take()), place(self.unread.take()));
        if write_at.is_none() && read_at.is_none() {
            return;
        }
        let mut at = 0;
        let (first, last): (Vec<Ready>, Vec<Ready>) = ready.iter().partition(|ready| {
            let begin_at = if self.is_to_be_written(ready) { write_at } else { read_at };
            at += 1;
            begin_at.is_none_or(|begin_at| at > begin_at)
        });
        ready[..first.len()].copy_from_slice(&first);
        ready[first.len()..].copy_from_slice(&last);
    }

    /// Whether a client can take more of what is queued.
    fn is_to_be_written(&self, ready: &Ready) -> bool {
        let Token::Session(id) = Token::decode(ready.token) else { return false };
        self.get(SessionId(id)).is_some_and(Session::is_waiting_for_room)
    }

    /// True when [`Sessions::begin_round`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.unscanned.is_empty()
    }

    /// The socket of a session is ready, unless the session ended earlier in this round.
    pub(crate) fn on_ready(
        &mut self,
        poller: &Poller,
        id: SessionId,
        ready: Ready,
        coverage: &mut Coverage,
    ) {
        let Some(session) = self.get(id) else { return };
        let (inbox, hung_up) = (&session.channel.inbox, ready.hung_up);
        match session.phase {
            Phase::Closing if hung_up => self.remove(poller, id),
            Phase::Closing => self.flush_in_turn(poller, id, coverage),
            _ if session.is_waiting_for_room() => self.flush_in_turn(poller, id, coverage),
            Phase::Deaf => {}
            // Who has gone meanwhile may have asked others, which have done more since: what was asked here comes too late.
            Phase::Open if self.is_late && ready.has_ended => self.end(poller, id, None),
            // Nobody is left to take its answers, and nothing else would ever be read of it.
            Phase::Open if hung_up && session.is_stopped => self.end(poller, id, None),
            Phase::Open if hung_up && session.served_in != self.round && !inbox.has_unscanned() => {
                self.read(poller, id, coverage);
            }
            Phase::Open => self.read_in_turn(poller, id, coverage),
        }
    }

    /// Reads from a client that is to be heard, unless it has been served in this round, or others come first.
    fn read_in_turn(&mut self, poller: &Poller, id: SessionId, coverage: &mut Coverage) {
        let session = living(&mut self.slots, id);
        let inbox = &session.channel.inbox;
        if session.served_in == self.round || inbox.has_unscanned() {
            return;
        }
        let held = inbox.held_bytes();
        if self.has_time(id, held) && self.is_admitted(poller, id, held) {
            self.read(poller, id, coverage);
        }
    }

    /// Whether a client may be read in this round, whose inbox holds `held` bytes of a message.
    fn has_time(&mut self, id: SessionId, held: usize) -> bool {
        if held < FREE_BYTES {
            return true;
        }
        let has_time = self.round_read_bytes < ROUND_READ_BYTES_MAX;
        if !has_time {
            self.unread.get_or_insert(id);
            self.admission.note_left(id);
        }
        has_time
    }

    /// Writes to a client that has waited for room, or leaves it to the next round.
    fn flush_in_turn(&mut self, poller: &Poller, id: SessionId, coverage: &mut Coverage) {
        if self.round_bytes < ROUND_BYTES_MAX {
            self.flush(poller, id, coverage);
        } else {
            self.unwritten.get_or_insert(id);
        }
    }

    /// Whether a client is read now, whose inbox holds `held` bytes of a message.
    fn is_admitted(&mut self, poller: &Poller, id: SessionId, held: usize) -> bool {
        loop {
            match self.admission.judge(id, held, self.now_us) {
                Verdict::Read => return true,
                Verdict::PassOver => {
                    self.pass_over(id);
                    return true;
                }
                Verdict::LetGo(longest) => {
                    self.end(poller, longest, Some(LATE.to_owned()));
                    if longest == id {
                        return false;
                    }
                }
                Verdict::Wait => {
                    self.events.push(Event::Activity { session: id });
                    self.watch(poller, id, Interest::Nothing);
                    return false;
                }
            }
        }
    }

    /// Lets the message go that somebody has begun to send.
    fn pass_over(&mut self, id: SessionId) {
        let session = living(&mut self.slots, id);
        let held = session.channel.inbox.held_bytes();
        session.channel.inbox.pass_over();
        session.passed_bytes = held as u64;
        self.admission.note_held(id, held, session.channel.inbox.held_bytes());
        self.admission.give_up_right(id);
        self.events.push(Event::TooLong { session: id, bytes: held as u64 });
    }

    fn read(&mut self, poller: &Poller, id: SessionId, coverage: &mut Coverage) {
        let channel = &mut living(&mut self.slots, id).channel;
        let held = channel.inbox.held_bytes();
        let received = channel.receive(&mut self.scratch);
        self.admission.note_read(id, held, channel.inbox.held_bytes());
        match received {
            Ok(Received::Bytes(count)) => {
                if held >= FREE_BYTES {
                    self.round_read_bytes += count;
                }
                coverage.add(Counter::BytesReceived, count as u64);
                if !self.take_message(id, coverage) {
                    self.events.push(Event::Activity { session: id });
                }
            }
            Ok(Received::Nothing) => {}
            Ok(Received::End) => return self.end(poller, id, None),
            Err(error) => return self.end(poller, id, Some(strerror(&error))),
        }
        self.answer_for_tls(poller, id);
    }

    /// Tells the core of the next complete message, if there is one.
    fn take_message(&mut self, id: SessionId, coverage: &mut Coverage) -> bool {
        let session = living(&mut self.slots, id);
        let inbox = &mut session.channel.inbox;
        let held = inbox.held_bytes();
        let is_outline = inbox.passes_over();
        let result = inbox.next_message();
        self.admission.note_held(id, held, inbox.held_bytes());
        match result {
            Ok(Some(bytes)) => {
                session.served_in = self.round;
                if inbox.has_unscanned() {
                    session.scan_later(&mut self.unscanned);
                }
                self.admission.give_up_right(id);
                coverage.add(Counter::Messages, 1);
                self.events.push(if is_outline {
                    let passed_bytes = session.passed_bytes;
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

    /// Queues output; it leaves at the next [`Sessions::flush_dirty`]. The core may not know yet
    /// that the session has ended.
    pub(crate) fn send(&mut self, id: SessionId, head: &Bytes, body: &Bytes) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        if session.phase == Phase::Closing {
            return;
        }
        session.channel.outbox.push(head);
        session.channel.outbox.push(body);
        if session.channel.outbox.is_overfull() && self.overfull.last() != Some(&id) {
            self.overfull.push(id);
        }
        if session.is_waiting_for_room() {
            return self.lag.note(body);
        }
        if !mem::replace(&mut session.is_dirty, true) {
            self.dirty.push(id);
        }
    }

    /// The core is to be told when everything that is queued has left.
    pub(crate) fn tell_drained(&mut self, id: SessionId) {
        if let Some(session) = get_mut(&mut self.slots, id) {
            session.tells_drained = true;
        }
    }

    /// Disconnects clients that leave too much untaken.
    fn bound_backlog(&mut self, poller: &Poller) {
        for id in mem::take(&mut self.overfull) {
            let outbox = self.get(id).map(|session| &session.channel.outbox);
            if outbox.is_some_and(Outbox::is_overfull) {
                self.end_backlog(poller, id, BACKLOG_BYTES_MAX);
            }
        }
        if self.backlog.is_due(self.now_us) {
            let sessions = self.slots.iter().flatten();
            let behind = sessions.filter(|session| session.is_waiting_for_room());
            let outboxes = behind.map(|session| (session.id, &session.channel.outbox));
            for (id, bytes) in self.backlog.who_goes(outboxes) {
                self.end_backlog(poller, id, bytes);
            }
        }
    }

    fn end_backlog(&mut self, poller: &Poller, id: SessionId, bytes: usize) {
        match self.get(id).map(|session| session.phase) {
            Some(Phase::Closing) => self.remove(poller, id),
            Some(_) => {
                let error = format!("it has not read {bytes} bytes and more");
                self.end(poller, id, Some(error));
            }
            None => {}
        }
    }

    /// Writes what was queued.
    pub(crate) fn flush_dirty(&mut self, poller: &Poller, coverage: &mut Coverage) {
        let mut dirty = mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            // Ended since it was queued for.
            let Some(session) = get_mut(&mut self.slots, id) else { continue };
            session.is_dirty = false;
            if session.is_waiting_for_room() {
                continue;
            }
            let is_late = self.round_bytes >= ROUND_BYTES_MAX;
            let is_long = session.channel.outbox.bytes() >= LONG_BYTES_MIN;
            if is_late && session.phase == Phase::Open && is_long {
                self.wait_for_room(poller, id);
            } else {
                self.flush(poller, id, coverage);
            }
        }
        self.dirty = dirty;
        self.bound_backlog(poller);
    }

    /// A client could not be given everything in this round.
    fn wait_for_room(&mut self, poller: &Poller, id: SessionId) {
        living(&mut self.slots, id).fell_in = self.round;
        self.watch(poller, id, Interest::Write);
        self.lag.falls_behind(id, self.round);
    }

    fn flush(&mut self, poller: &Poller, id: SessionId, coverage: &mut Coverage) {
        let session = living(&mut self.slots, id);
        let flush = session.channel.flush();
        coverage.add(Counter::Writes, flush.calls);
        self.round_bytes += flush.bytes;
        let is_all = matches!(flush.result, Ok(Flushed::All));
        let is_told =
            is_all && (mem::take(&mut session.tells_drained) | mem::take(&mut session.is_blocked));
        let (phase, was_blocked) = (session.phase, session.is_waiting_for_room());
        match flush.result {
            Ok(Flushed::All) if phase == Phase::Closing => self.remove(poller, id),
            Ok(Flushed::All) if was_blocked => {
                if session.channel.inbox.has_unscanned() {
                    session.scan_later(&mut self.unscanned);
                }
                let is_heard = phase == Phase::Open && !session.is_stopped;
                let interest = if is_heard { Interest::Read } else { Interest::Nothing };
                self.watch(poller, id, interest);
                self.events.push(match is_told {
                    true => Event::Drained { session: id },
                    false => Event::Activity { session: id },
                });
                // The core may have more for it at once than there is room for: it would not be heard for as long as
                // that is so.
                self.was_deaf |= is_heard && self.is_late;
                if is_heard && !self.is_late {
                    self.read_in_turn(poller, id, coverage);
                }
            }
            Ok(Flushed::All) if is_told => self.events.push(Event::Drained { session: id }),
            Ok(Flushed::Part) if !was_blocked => self.wait_for_room(poller, id),
            // A long answer on a slow line is no silence.
            Ok(Flushed::Part) if flush.bytes > 0 && phase == Phase::Open => {
                self.events.push(Event::Activity { session: id });
            }
            Ok(_) => {}
            Err(_) if phase == Phase::Closing => self.remove(poller, id),
            Err(error) => self.end(poller, id, Some(strerror(&error))),
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
        // It may have ended by itself meanwhile, and must not linger twice.
        let session = get_mut(&mut self.slots, id);
        let Some(session) = session.filter(|session| session.phase != Phase::Closing) else {
            return;
        };
        session.phase = Phase::Closing;
        let inbox = mem::take(&mut session.channel.inbox);
        self.admission.note_held(id, inbox.held_bytes(), 0);
        self.admission.give_up_right(id);
        if session.channel.is_drained() {
            return self.remove(poller, id);
        }
        self.closing.push((now_us + LINGER_US, id));
        if !session.is_waiting_for_room() {
            self.flush(poller, id, coverage);
        }
    }

    /// The core wants no more messages of a session for now.
    pub(crate) fn stop_reading(&mut self, poller: &Poller, id: SessionId) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        session.is_stopped = true;
        self.admission.stand_aside(id);
        if session.phase == Phase::Open && session.channel.interest() == Interest::Read {
            self.watch(poller, id, Interest::Nothing);
        }
    }

    /// The core wants messages of a session again.
    pub(crate) fn go_on_reading(&mut self, poller: &Poller, id: SessionId) {
        let Some(session) = get_mut(&mut self.slots, id) else { return };
        session.is_stopped = false;
        // What is queued for it leaves with the next flush, which watches only those that it could not give all.
        if session.phase == Phase::Open && session.channel.interest() == Interest::Nothing {
            if session.channel.inbox.has_unscanned() {
                session.scan_later(&mut self.unscanned);
            }
            self.watch(poller, id, Interest::Read);
        }
    }

    /// When the next lingering session is to be closed, or the right to go on with a big message is
    /// to be another's.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let closing = self.closing.first().map(|(deadline, _)| *deadline);
        closing.into_iter().chain(self.admission.deadline_us()).min()
    }

    /// Closes lingering sessions whose time is over.
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
        self.slots.iter().flatten().any(|session| !session.channel.is_drained())
    }

    /// Looks who is late, and reads again from those that waited for others to be done.
    pub(crate) fn resume_paused(&mut self, poller: &Poller) {
        self.admission.expire(self.now_us);
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            for id in self.admission.take_resumed(self.now_us) {
                let is_paused = |session: &Session| {
                    session.channel.interest() == Interest::Nothing && !session.is_stopped
                };
                if self.get(id).is_some_and(is_paused) {
                    self.watch(poller, id, Interest::Read);
                } else {
                    // Let go, or stopped, or behind with its answers: its turn is another's.
                    self.admission.stand_aside(id);
                    is_settled = false;
                }
            }
        }
        let waiting = self.admission.take_pulse(self.now_us);
        self.events.extend(waiting.into_iter().map(|session| Event::Activity { session }));
    }

    /// A connection has ended by itself.
    fn end(&mut self, poller: &Poller, id: SessionId, error: Option<String>) {
        if let Some(session) = get_mut(&mut self.slots, id) {
            self.tls_log.append(&mut session.channel.take_log());
        }
        self.events.push(Event::Closed { session: id, error });
        self.remove(poller, id);
    }

    fn remove(&mut self, poller: &Poller, id: SessionId) {
        let slot = slot_of(&self.slots, id).expect(LIVING);
        let session = self.slots[slot].take().expect(LIVING);
        self.admission.note_held(id, session.channel.inbox.held_bytes(), 0);
        self.admission.give_up_right(id);
        self.free.push(slot);
        if session.phase == Phase::Closing {
            self.closing.retain(|(_, closing)| *closing != id);
        }
        session.channel.close(poller);
    }

    fn watch(&mut self, poller: &Poller, id: SessionId, interest: Interest) {
        self.admission.note_watched(id, interest == Interest::Read);
        let channel = &mut living(&mut self.slots, id).channel;
        if let Err(error) = channel.watch(poller, Token::Session(id.0), interest) {
            self.end(poller, id, Some(strerror(&error)));
        }
    }

    fn get(&self, id: SessionId) -> Option<&Session> {
        self.slots[slot_of(&self.slots, id)?].as_ref()
    }
}

impl Session {
    fn new(id: SessionId, channel: Channel) -> Self {
        Self {
            id,
            channel,
            phase: Phase::Open,
            is_stopped: false,
            tells_drained: false,
            is_blocked: false,
            fell_in: 0,
            is_dirty: false,
            is_unscanned: false,
            passed_bytes: 0,
            served_in: 0,
        }
    }

    /// The inbox is looked at again in the next round.
    fn scan_later(&mut self, unscanned: &mut Vec<SessionId>) {
        if !mem::replace(&mut self.is_unscanned, true) {
            unscanned.push(self.id);
        }
    }

    /// Another message may be taken.
    fn may_be_heard(&self) -> bool {
        self.phase == Phase::Open && self.channel.is_drained() && !self.is_stopped
    }

    /// The socket did not take all that was queued.
    fn is_waiting_for_room(&self) -> bool {
        self.channel.interest() == Interest::Write
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

/// A session that must be there.
fn living(slots: &mut [Option<Session>], id: SessionId) -> &mut Session {
    get_mut(slots, id).expect(LIVING)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "session_schedules.rs"]
mod schedules;
