//! Long messages: composed by helpers piece by piece, as their receivers take them.
//!
//! 1. A helper has composed the first piece of a message, and there is more. Its receivers get that
//!    piece, and a stream is what is left to do.
//! 2. Whose outbox is empty is hungry: it gets the next piece. One piece is composed ahead of the
//!    receiver that is furthest.
//! 3. Pieces stay for those behind, and for equal monitors that come while nothing has changed, up
//!    to [`STREAM_BYTES_MAX`], and of all streams to [`STREAMS_BYTES_MAX`]. Beyond that the last ones
//!    get a stream of their own, which composes their pieces again: nobody waits for a client that
//!    does not read.
//! 4. The last piece has left: what was to be sent meanwhile follows, and the session goes on.
//!
//! A receiver is held all the time, and takes no updates: nothing may come between the pieces.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_history::Place;
use weir_monitor::GroupId;

use crate::database::Databases;
use crate::effect::Effect;
use crate::ids::{Bytes, DbId, SessionId};
use crate::monitors::{INITIAL_KEPT_US, Out, Subscriptions};
use crate::origin::Asker;
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::shell::Shell;
use crate::work::{Garbage, Piece, Rest, Work};

/// Pieces that one stream keeps for receivers that are behind, in bytes.
const STREAM_BYTES_MAX: usize = 32 << 20;

/// Pieces that a stream of those who were behind keeps for those among them that are behind again, in
/// bytes: as a rule each of them is alone soon.
const LATE_BYTES_MAX: usize = 4 << 20;

/// Pieces that all streams keep, in bytes. Beyond it the longest ones keep what they cannot do
/// without, and compose again the rest.
const STREAMS_BYTES_MAX: usize = 256 << 20;

/// Whole messages that are kept for equal monitors to come, in bytes, all together.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Pieces that are composed before anybody asks for them.
const AHEAD: usize = 1;

/// A stream, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(u64);

/// What equal monitors begin with, as of a position of their database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) of: Beginning,
    pub(super) position: u64,
}

/// What monitors begin with: those for which this is equal are given the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Beginning {
    pub(super) db: DbId,
    pub(super) group: GroupId,
    /// The state from which the differences lead on; without it, all rows.
    pub(super) since: Option<Place>,
}

/// Who receives a stream.
#[derive(Debug)]
pub(crate) struct Receiver {
    session: SessionId,
    /// The session, or the channel of it, that the request is of.
    asker: SessionId,
    /// The database that the session's request is about.
    db: DbId,
    /// What comes before the first piece, until it has been sent.
    head: Option<Bytes>,
    /// What comes behind the last one.
    tail: Vec<u8>,
    /// A message that follows.
    follow: Option<Vec<u8>>,
    /// Bytes that are kept for the session until it has got all of the message.
    kept: usize,
    /// The piece that it gets next.
    next: usize,
    /// The session has taken all that it was sent.
    is_hungry: bool,
}

impl Receiver {
    pub(crate) fn new(asker: SessionId, db: DbId, head: Vec<u8>, tail: Vec<u8>) -> Self {
        let (session, head) = (asker.connection(), Some(Arc::new(head)));
        Self { session, asker, db, head, tail, follow: None, kept: 0, next: 0, is_hungry: true }
    }

    /// Gets another message behind this one.
    pub(super) fn with_follow(self, follow: Option<Vec<u8>>) -> Self {
        Self { follow, ..self }
    }

    /// Gives the whole message, of which this piece is all.
    pub(super) fn give_whole(self, shell: &mut Shell, piece: &Bytes) {
        let Self { session, head, tail, follow, .. } = self;
        shell.send_parts(vec![session], head.unwrap_or_default(), Arc::clone(piece));
        shell.send(session, tail);
        follow.into_iter().for_each(|message| shell.send(session, message));
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
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
    /// The number of the first piece that is kept.
    first: usize,
    /// Bytes of the pieces that are kept.
    bytes: usize,
    /// What comes behind them; `None` if that is being composed, or nothing.
    rest: Option<Rest>,
    is_composing: bool,
    receivers: Vec<Receiver>,
}

/// All long messages on their way.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_id: BTreeMap<StreamId, Stream>,
    by_session: BTreeMap<SessionId, StreamId>,
    /// Long messages to sessions in the middle of another one.
    pending: BTreeMap<SessionId, VecDeque<(Piece, Receiver)>>,
    /// What is kept of results for each session, and for all.
    results: BTreeMap<SessionId, usize>,
    all_results: usize,
    next: u64,
}

impl Streams {
    fn receiver(&mut self, session: SessionId) -> Option<&mut Receiver> {
        let stream = self.by_id.get_mut(self.by_session.get(&session)?)?;
        stream.receivers.iter_mut().find(|receiver| receiver.session == session)
    }

    /// What is kept of results for a session, in bytes.
    pub(super) fn results_of(&self, session: SessionId) -> usize {
        self.results.get(&session).copied().unwrap_or(0)
    }

    /// What is kept of results for all sessions, in bytes.
    pub(super) fn all_results(&self) -> usize {
        self.all_results
    }

    fn keep_results(&mut self, session: SessionId, bytes: usize) {
        *self.results.entry(session).or_insert(0) += bytes;
        self.all_results += bytes;
    }

    fn have_given_results(&mut self, session: SessionId, bytes: usize) {
        let left = self.results.get_mut(&session).expect("they have been kept");
        *left -= bytes;
        if *left == 0 {
            self.results.remove(&session);
        }
        self.all_results -= bytes;
    }

    fn forget_results(&mut self, session: SessionId) {
        self.all_results -= self.results.remove(&session).unwrap_or(0);
    }

    /// The stream that equal monitors may still receive from its beginning.
    pub(super) fn joinable(&self, source: Source) -> Option<StreamId> {
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

    /// The stream that keeps most among those that can do with less, if all together keep more than
    /// `most` bytes.
    fn longest_beyond(&self, most: usize) -> Option<StreamId> {
        let bytes: usize = self.by_id.values().map(|stream| stream.bytes).sum();
        if bytes <= most {
            return None;
        }
        let can = self.by_id.iter().filter(|(_, stream)| stream.may_forget_first());
        can.max_by_key(|(_, stream)| stream.bytes).map(|(id, _)| *id)
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

/// What a stream is of, if equal monitors may join it, and what composes its first piece again.
type Of = (Option<Source>, Option<Rest>);

impl Subscriptions {
    /// The first piece of a message is composed, and there is more. From now on its receivers get
    /// nothing else, until it has ended.
    pub(super) fn begin_stream(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        (source, from): Of,
        piece: Piece,
        mut receivers: Vec<Receiver>,
    ) {
        let is_busy = |receiver: &mut Receiver| shell.is_in_message(receiver.session);
        for receiver in receivers.extract_if(.., is_busy) {
            let pending = self.streams.pending.entry(receiver.session).or_default();
            pending.push_back((piece.clone(), receiver));
        }
        let Piece { bytes, rest } = piece;
        if receivers.is_empty() {
            return shell.free(Garbage::Rest(from.into_iter().chain(rest).collect()));
        }
        receivers.iter().for_each(|receiver| begin_receiving(shell, sessions, receiver));
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
        self.serve(shell, sessions, databases, id);
    }

    /// The results of a reader that come in several pieces.
    pub(crate) fn begin_results(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        piece: Piece,
        mut receiver: Receiver,
    ) {
        receiver.kept = piece.rest.as_ref().map_or(0, Rest::own_bytes);
        if receiver.kept > 0 {
            self.streams.keep_results(receiver.session, receiver.kept);
            sessions.note_kept(receiver.session, receiver.kept);
        }
        self.begin_alone(shell, sessions, databases, piece, receiver);
    }

    fn begin_alone(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        piece: Piece,
        receiver: Receiver,
    ) {
        let of = (None, None);
        self.begin_stream(shell, sessions, databases, of, piece, vec![receiver]);
    }

    /// Others receive the same from its beginning.
    pub(super) fn join_stream(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: StreamId,
        receivers: Vec<Receiver>,
    ) {
        let stream = self.streams.by_id.get_mut(&id).expect("it has just been found");
        for receiver in receivers {
            begin_receiving(shell, sessions, &receiver);
            self.streams.by_session.insert(receiver.session, id);
            stream.receivers.push(receiver);
        }
        self.serve(shell, sessions, databases, id);
    }

    /// A session's outbox is empty: it gets the next piece, if it is in the middle of a message.
    pub(crate) fn feed(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        session: SessionId,
    ) {
        let Some(&id) = self.streams.by_session.get(&session) else { return };
        let receiver = self.streams.receiver(session);
        receiver.expect("who is in a stream receives it").is_hungry = true;
        self.serve(shell, sessions, databases, id);
    }

    /// Another piece is composed.
    pub(super) fn piece_composed(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: StreamId,
        from: Option<Rest>,
        piece: Piece,
    ) {
        let Piece { bytes, rest } = piece;
        // All who received it may have left meanwhile.
        let Some(stream) = self.streams.by_id.get_mut(&id) else {
            return shell.free(Garbage::Rest(from.into_iter().chain(rest).collect()));
        };
        self.herds.note_outstanding(shell.now_us(), &bytes);
        stream.is_composing = false;
        stream.rest = rest;
        stream.bytes += bytes.len();
        stream.pieces.push_back(Made { bytes, from });
        if let (true, Some(Source { of, .. })) = (stream.is_complete(), stream.source) {
            self.herds.may_begin(of);
        }
        self.serve(shell, sessions, databases, id);
    }

    /// Gives the hungry what there is, and has more composed.
    fn serve(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: StreamId,
    ) {
        let stream = self.streams.by_id.get_mut(&id).expect("a stream is served while it is there");
        let unserved = stream.give_pieces(shell);
        let (end, is_complete) = (stream.end(), stream.is_complete());
        let is_done = |receiver: &mut Receiver| is_complete && receiver.next == end;
        let done: Vec<Receiver> = stream.receivers.extract_if(.., is_done).collect();
        if !unserved.is_empty() {
            shell.ask(Effect::TellDrained { to: unserved });
        }
        for Receiver { session, asker, db, tail, follow, kept, .. } in done {
            self.streams.by_session.remove(&session);
            if kept > 0 {
                self.streams.have_given_results(session, kept);
                sessions.note_kept(session, 0);
            }
            shell.end_message(session, tail);
            follow.into_iter().for_each(|message| shell.send(session, message));
            databases.release(shell, sessions, asker, Reason::Work, Lane::Db(db));
            databases.release(shell, sessions, session, Reason::Message, Lane::Every);
            self.begin_pending(shell, sessions, databases, session);
        }
        self.trim_stream(shell, sessions, databases, id);
        self.compose_more(shell, id);
    }

    /// A session has got the whole of a long message: the next one that waits for that begins.
    fn begin_pending(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        session: SessionId,
    ) {
        let Some(pending) = self.streams.pending.get_mut(&session) else { return };
        let (piece, receiver) = pending.pop_front().expect("a list without an end is removed");
        if pending.is_empty() {
            self.streams.pending.remove(&session);
        }
        self.begin_alone(shell, sessions, databases, piece, receiver);
    }

    fn compose_more(&mut self, shell: &mut Shell, id: StreamId) {
        let stream = self.streams.by_id.get_mut(&id);
        let Some(stream) = stream.filter(|stream| stream.wants_more()) else { return };
        let rest = stream.rest.take().expect("there is more");
        stream.is_composing = true;
        // Only what several may receive is ever composed again.
        let is_shared = stream.source.is_some() || stream.receivers.len() > 1;
        let from = is_shared.then(|| rest.clone());
        let work = shell.send_out(Asker::Server, Work::Piece(rest));
        self.out.insert(work, Out::Piece { stream: id, from });
    }

    /// Forgets the pieces that nobody needs, and the stream itself when it is of no more use.
    fn trim_stream(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        databases: &mut Databases,
        id: StreamId,
    ) {
        let stream = self.streams.by_id.get_mut(&id).expect("it has just been served");
        let most = stream.keeps_most();
        let mut late = stream.trim(shell, most);
        self.end_if_idle(shell, id);
        while let Some(longest) = self.streams.longest_beyond(STREAMS_BYTES_MAX) {
            let stream = self.streams.by_id.get_mut(&longest).expect("it has just been found");
            late.extend(stream.trim(shell, 0));
            self.end_if_idle(shell, longest);
        }
        for late in late {
            let late = self.streams.insert(late);
            self.serve(shell, sessions, databases, late);
        }
    }

    /// Forgets a stream that nobody receives any more, unless it is kept for others to come.
    fn end_if_idle(&mut self, shell: &mut Shell, id: StreamId) {
        let stream = &self.streams.by_id[&id];
        if !stream.receivers.is_empty() {
            return;
        }
        let is_whole = stream.is_complete() && stream.first == 0 && stream.source.is_some();
        if is_whole && self.streams.kept_bytes() <= KEPT_BYTES_MAX {
            // The herd that it is of may be over already.
            self.forget_us.get_or_insert(shell.now_us() + INITIAL_KEPT_US);
            return;
        }
        let garbage = self.streams.by_id.remove(&id).map_or_else(Vec::new, Stream::garbage);
        if !garbage.is_empty() {
            shell.free(Garbage::Rest(garbage));
        }
    }

    /// A session has left.
    pub(super) fn leave_stream(&mut self, shell: &mut Shell, session: SessionId) {
        self.streams.forget_results(session);
        let pending = self.streams.pending.remove(&session).into_iter().flatten();
        let garbage: Vec<Rest> = pending.filter_map(|(piece, _)| piece.rest).collect();
        if !garbage.is_empty() {
            shell.free(Garbage::Rest(garbage));
        }
        let Some(id) = self.streams.by_session.remove(&session) else { return };
        let stream = self.streams.by_id.get_mut(&id).expect("its receiver was there");
        stream.receivers.retain(|receiver| receiver.session != session);
        self.end_if_idle(shell, id);
    }

    /// Nobody has asked for a while: whole messages that were kept go.
    pub(super) fn forget_idle_streams(&mut self, shell: &mut Shell) {
        let idle = |_: &StreamId, stream: &mut Stream| stream.receivers.is_empty();
        let idle = self.streams.by_id.extract_if(.., idle);
        let garbage: Vec<Rest> = idle.flat_map(|(_, stream)| stream.garbage()).collect();
        if !garbage.is_empty() {
            shell.free(Garbage::Rest(garbage));
        }
    }
}

fn begin_receiving(shell: &mut Shell, sessions: &mut Sessions, receiver: &Receiver) {
    shell.begin_message(receiver.session);
    sessions.hold(receiver.session, Reason::Message, Lane::Every);
}

impl Stream {
    /// Gives the hungry what there is; answers with those that are to say when they have taken it.
    fn give_pieces(&mut self, shell: &mut Shell) -> Vec<SessionId> {
        let (first, end, is_complete) = (self.first, self.end(), self.is_complete());
        let mut equal: BTreeMap<usize, Vec<SessionId>> = BTreeMap::new();
        let mut unserved = Vec::new();
        for receiver in &mut self.receivers {
            if !receiver.is_hungry || receiver.next >= end {
                continue;
            }
            let (session, next) = (receiver.session, receiver.next);
            match receiver.head.take() {
                Some(head) => {
                    let body = Arc::clone(&self.pieces[next - first].bytes);
                    shell.send_piece(vec![session], head, body);
                }
                None => equal.entry(next).or_default().push(session),
            }
            receiver.next += 1;
            receiver.is_hungry = false;
            if !(is_complete && receiver.next == end) {
                unserved.push(session);
            }
        }
        for (next, to) in equal {
            let body = Arc::clone(&self.pieces[next - first].bytes);
            shell.send_piece(to, Bytes::default(), body);
        }
        unserved
    }

    /// Most bytes of pieces that are kept for those who are behind, and for others to come.
    fn keeps_most(&self) -> usize {
        if self.source.is_some() { STREAM_BYTES_MAX } else { LATE_BYTES_MAX }
    }

    /// Whether the first piece may be forgotten: those who need it can have it composed again, and
    /// it is not the one that somebody gets next.
    fn may_forget_first(&self) -> bool {
        let is_needed = || self.receivers.iter().any(|receiver| receiver.next <= self.first);
        let first = self.pieces.front().filter(|_| self.pieces.len() > AHEAD);
        first.is_some_and(|first| first.from.is_some() || !is_needed())
    }

    /// Forgets the first pieces as far as nobody needs them, or more than `most` bytes are kept.
    /// Answers with streams for those that are behind.
    fn trim(&mut self, shell: &mut Shell, most: usize) -> Vec<Self> {
        let (mut behind, mut garbage) = (Vec::new(), Vec::new());
        // What nobody may join is kept for its receivers only.
        let is_useless = |stream: &Self| {
            stream.source.is_none() && stream.receivers.iter().all(|one| one.next > stream.first)
        };
        while self.may_forget_first() && (self.bytes > most || is_useless(self)) {
            let Made { bytes, from } = self.pieces.pop_front().expect("there are more than some");
            self.bytes -= bytes.len();
            let first = self.first;
            self.first += 1;
            let late = self.receivers.extract_if(.., |receiver| receiver.next == first);
            let receivers: Vec<Receiver> = late.collect();
            match from {
                Some(from) if !receivers.is_empty() => behind.push(Self {
                    source: None,
                    pieces: VecDeque::new(),
                    first,
                    bytes: 0,
                    rest: Some(from),
                    is_composing: false,
                    receivers,
                }),
                from => garbage.extend(from),
            }
        }
        if !garbage.is_empty() {
            shell.free(Garbage::Rest(garbage));
        }
        behind
    }
}
