//! Long messages: composed by helpers piece by piece, as their receivers take them.
//!
//! 1. A helper has composed the first piece of a message, and there is more. Its receivers get that
//!    piece, and a stream is what is left to do.
//! 2. Whose outbox is empty is hungry: it gets the next piece. One piece is composed ahead of the
//!    receiver that is furthest.
//! 3. Pieces stay for those behind, and for equal monitors that come while nothing has changed, up
//!    to [`STREAM_BYTES_MAX`]. Beyond that the last ones get a stream of their own, which composes
//!    their pieces again: nobody waits for a client that does not read.
//! 4. The last piece has left: what was to be sent meanwhile follows, and the session goes on.
//!
//! A receiver is held all the time, and takes no updates: nothing may come between the pieces.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_monitor::GroupId;

use crate::effect::Effect;
use crate::event::{Bytes, DbId, Now, SessionId};
use crate::server::Server;
use crate::work::away::Out;
use crate::work::{Garbage, Piece, Rest, Work};

/// Pieces that one stream keeps for receivers that are behind, in bytes.
pub(crate) const STREAM_BYTES_MAX: usize = 32 << 20;

/// Whole messages that are kept for equal monitors to come, in bytes, all together.
pub(crate) const KEPT_BYTES_MAX: usize = 64 << 20;

/// Pieces that are composed before anybody asks for them.
const AHEAD: usize = 1;

/// A stream, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(u64);

/// What equal monitors begin with, as of a position of their database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) db: DbId,
    pub(crate) group: GroupId,
    pub(crate) position: u64,
}

/// Who receives a stream.
#[derive(Debug)]
pub(crate) struct Receiver {
    session: SessionId,
    /// What comes before the first piece, until it has been sent.
    head: Option<Bytes>,
    /// What comes behind the last one.
    tail: Vec<u8>,
    /// The piece that it gets next.
    next: usize,
    /// It has taken all that it got.
    is_hungry: bool,
    /// What it is to be sent afterwards.
    behind: Vec<(Bytes, Bytes)>,
}

impl Receiver {
    pub(crate) fn new(session: SessionId, head: Vec<u8>, tail: Vec<u8>) -> Self {
        let head = Some(Arc::new(head));
        Self { session, head, tail, next: 0, is_hungry: true, behind: Vec::new() }
    }

    /// The session, and what comes before and behind the rows.
    pub(crate) fn into_parts(self) -> (SessionId, Bytes, Vec<u8>) {
        (self.session, self.head.unwrap_or_default(), self.tail)
    }
}

/// A piece that is composed.
#[derive(Debug)]
struct Made {
    bytes: Bytes,
    /// Composes it again, and what comes behind it.
    from: Option<Rest>,
}

/// A message on its way.
#[derive(Debug)]
struct Stream {
    source: Option<Source>,
    pieces: VecDeque<Made>,
    /// The number of the first of them.
    first: usize,
    /// Their bytes.
    bytes: usize,
    /// What comes behind them; `None` if that is being composed, or nothing.
    rest: Option<Rest>,
    is_composing: bool,
    receivers: Vec<Receiver>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    by_id: BTreeMap<StreamId, Stream>,
    by_session: BTreeMap<SessionId, StreamId>,
    next: u64,
}

impl Streams {
    /// Whether the session is in the middle of a message.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.by_session.contains_key(&session)
    }

    /// Takes what is for sessions in the middle of a message; answers with what is for others.
    pub(crate) fn divert(&mut self, effect: Effect) -> Option<Effect> {
        if self.by_session.is_empty() {
            return Some(effect);
        }
        let Effect::Send { mut to, head, body } = effect else { return Some(effect) };
        to.retain(|session| {
            let Some(receiver) = self.receiver(*session) else { return true };
            receiver.behind.push((Arc::clone(&head), Arc::clone(&body)));
            false
        });
        (!to.is_empty()).then_some(Effect::Send { to, head, body })
    }

    fn receiver(&mut self, session: SessionId) -> Option<&mut Receiver> {
        let stream = self.by_id.get_mut(self.by_session.get(&session)?)?;
        stream.receivers.iter_mut().find(|receiver| receiver.session == session)
    }

    /// The stream that equal monitors may still receive from its beginning.
    pub(crate) fn joinable(&self, source: Source) -> Option<StreamId> {
        let is_meant = |stream: &Stream| stream.source == Some(source) && stream.first == 0;
        self.by_id.iter().find(|(_, stream)| is_meant(stream)).map(|(id, _)| *id)
    }

    fn insert(&mut self, stream: Stream) -> StreamId {
        self.next += 1;
        let id = StreamId(self.next);
        self.by_session.extend(stream.receivers.iter().map(|receiver| (receiver.session, id)));
        self.by_id.insert(id, stream);
        id
    }

    /// Bytes of whole messages that nobody receives any more.
    fn kept_bytes(&self) -> usize {
        let idle = self.by_id.values().filter(|stream| stream.receivers.is_empty());
        idle.map(|stream| stream.bytes).sum()
    }
}

impl Stream {
    /// The number of the piece behind the last that is composed.
    fn end(&self) -> usize {
        self.first + self.pieces.len()
    }

    fn is_complete(&self) -> bool {
        self.rest.is_none() && !self.is_composing
    }

    /// Whether the next piece is to be composed now.
    fn wants_more(&self) -> bool {
        let furthest = self.receivers.iter().map(|receiver| receiver.next).max();
        self.rest.is_some() && furthest.is_some_and(|next| next + AHEAD > self.end())
    }

    /// What it takes to compose its pieces again.
    fn garbage(self) -> Vec<Rest> {
        self.pieces.into_iter().filter_map(|made| made.from).chain(self.rest).collect()
    }
}

impl Server {
    /// The first piece of a message is composed, and there is more.
    pub(crate) fn begin_stream(
        &mut self,
        now: Now,
        source: Option<Source>,
        piece: Piece,
        from: Option<Rest>,
        receivers: Vec<Receiver>,
    ) {
        let Piece { bytes, rest } = piece;
        let stream = Stream {
            source,
            bytes: bytes.len(),
            pieces: VecDeque::from([Made { bytes, from }]),
            first: 0,
            rest,
            is_composing: false,
            receivers,
        };
        let id = self.streams.insert(stream);
        self.serve(now, id);
    }

    /// Others receive the same from its beginning.
    pub(crate) fn join_stream(&mut self, now: Now, id: StreamId, receivers: Vec<Receiver>) {
        let Some(stream) = self.streams.by_id.get_mut(&id) else { return };
        for receiver in receivers {
            self.streams.by_session.insert(receiver.session, id);
            stream.receivers.push(receiver);
        }
        self.serve(now, id);
    }

    /// A session's outbox is empty.
    pub(crate) fn is_hungry(&mut self, now: Now, session: SessionId) {
        let Some(&id) = self.streams.by_session.get(&session) else { return };
        if let Some(receiver) = self.streams.receiver(session) {
            receiver.is_hungry = true;
        }
        self.serve(now, id);
    }

    /// Another piece is composed.
    pub(crate) fn piece_composed(
        &mut self,
        now: Now,
        id: StreamId,
        from: Option<Rest>,
        piece: Piece,
    ) {
        let Piece { bytes, rest } = piece;
        let Some(stream) = self.streams.by_id.get_mut(&id) else {
            return self.free(Garbage::Rest(from.into_iter().chain(rest).collect()));
        };
        self.herds.note_outstanding(now, &bytes);
        stream.is_composing = false;
        stream.rest = rest;
        stream.bytes += bytes.len();
        stream.pieces.push_back(Made { bytes, from });
        if let (true, Some(Source { db, group, .. })) = (stream.is_complete(), stream.source) {
            self.herds.may_begin(db, group);
        }
        self.serve(now, id);
    }

    /// Gives the hungry what there is, and has more composed.
    fn serve(&mut self, now: Now, id: StreamId) {
        let Some(stream) = self.streams.by_id.get_mut(&id) else { return };
        let (first, end, is_complete) = (stream.first, stream.end(), stream.is_complete());
        let mut sends: BTreeMap<usize, Vec<SessionId>> = BTreeMap::new();
        let mut effects = Vec::new();
        let mut served = Vec::new();
        for receiver in &mut stream.receivers {
            if !receiver.is_hungry || receiver.next >= end {
                continue;
            }
            let (session, next) = (receiver.session, receiver.next);
            match receiver.head.take() {
                Some(head) => {
                    let body = Arc::clone(&stream.pieces[next - first].bytes);
                    effects.push(Effect::Send { to: vec![session], head, body });
                }
                None => sends.entry(next).or_default().push(session),
            }
            receiver.next += 1;
            receiver.is_hungry = false;
            if !(is_complete && receiver.next == end) {
                served.push(session);
            }
        }
        for (next, to) in sends {
            let (head, body) = (Bytes::default(), Arc::clone(&stream.pieces[next - first].bytes));
            effects.push(Effect::Send { to, head, body });
        }
        let is_done = |receiver: &mut Receiver| is_complete && receiver.next == end;
        let done: Vec<Receiver> = stream.receivers.extract_if(.., is_done).collect();
        self.push_effects(effects);
        if !served.is_empty() {
            self.effect(Effect::TellDrained { to: served });
        }
        done.into_iter().for_each(|receiver| self.end_receiving(now, receiver));
        self.trim_stream(now, id);
        self.compose_more(id);
    }

    /// Everything has been sent: what waited for that follows.
    fn end_receiving(&mut self, now: Now, receiver: Receiver) {
        let Receiver { session, tail, behind, .. } = receiver;
        self.streams.by_session.remove(&session);
        self.send(session, tail);
        for (head, body) in behind {
            self.effect(Effect::Send { to: vec![session], head, body });
        }
        self.let_go(now, session);
    }

    fn compose_more(&mut self, id: StreamId) {
        let Some(stream) = self.streams.by_id.get_mut(&id).filter(|s| s.wants_more()) else {
            return;
        };
        let Some(rest) = stream.rest.take() else { return };
        stream.is_composing = true;
        // Only what several may receive is ever composed again.
        let from = stream.source.is_some().then(|| rest.clone());
        self.send_out(Work::Piece(rest), Out::Piece { stream: id, from });
    }

    /// Forgets the pieces that nobody needs, and the stream itself when it is of no more use.
    fn trim_stream(&mut self, now: Now, id: StreamId) {
        let kept_bytes = self.streams.kept_bytes();
        let Some(stream) = self.streams.by_id.get_mut(&id) else { return };
        let mut behind = Vec::new();
        let mut garbage = Vec::new();
        loop {
            let is_needed = stream.receivers.iter().any(|receiver| receiver.next <= stream.first);
            let most = if stream.source.is_some() { STREAM_BYTES_MAX } else { 0 };
            let is_ahead = stream.pieces.len() <= AHEAD;
            if stream.bytes <= most || is_ahead || (is_needed && stream.source.is_none()) {
                break;
            }
            let Some(Made { bytes, from }) = stream.pieces.pop_front() else { break };
            stream.bytes -= bytes.len();
            let first = stream.first;
            stream.first += 1;
            let late = stream.receivers.extract_if(.., |receiver| receiver.next == first);
            let late: Vec<Receiver> = late.collect();
            match from {
                Some(from) if !late.is_empty() => behind.push((first, from, late)),
                from => garbage.extend(from),
            }
        }
        let is_idle = stream.receivers.is_empty();
        let may_stay = stream.is_complete() && stream.first == 0 && stream.source.is_some();
        if is_idle && !(may_stay && kept_bytes <= KEPT_BYTES_MAX) {
            garbage.extend(self.streams.by_id.remove(&id).into_iter().flat_map(Stream::garbage));
        }
        if !garbage.is_empty() {
            self.free(Garbage::Rest(garbage));
        }
        for (first, from, receivers) in behind {
            let pieces = VecDeque::new();
            let (source, rest, is_composing) = (None, Some(from), false);
            let late = Stream { source, pieces, first, bytes: 0, rest, is_composing, receivers };
            let late = self.streams.insert(late);
            self.serve(now, late);
        }
    }

    /// A session is no more.
    pub(crate) fn leave_stream(&mut self, session: SessionId) {
        let Some(id) = self.streams.by_session.remove(&session) else { return };
        let Some(stream) = self.streams.by_id.get_mut(&id) else { return };
        stream.receivers.retain(|receiver| receiver.session != session);
        if stream.receivers.is_empty() && !stream.is_complete() {
            let garbage = self.streams.by_id.remove(&id).map(Stream::garbage);
            self.free(Garbage::Rest(garbage.unwrap_or_default()));
        }
    }

    /// Nobody has asked for a while: whole messages that were kept go.
    pub(crate) fn forget_idle_streams(&mut self) {
        let idle = |_: &StreamId, stream: &mut Stream| stream.receivers.is_empty();
        let idle = self.streams.by_id.extract_if(.., idle);
        let garbage: Vec<Rest> = idle.flat_map(|(_, stream)| stream.garbage()).collect();
        if !garbage.is_empty() {
            self.free(Garbage::Rest(garbage));
        }
    }
}
