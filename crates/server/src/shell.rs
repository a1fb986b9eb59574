//! The shell as the core sees it: what time it is, fresh randomness, and what the shell is asked to
//! do. Every owner below the server's face gets it as its first argument.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::UuidSource;

use crate::effect::{Effect, Level};
use crate::ids::{Bytes, CommandId, DbId, Now, SessionId, WorkId};
use crate::origin::Asker;
use crate::work::{Garbage, Search, Work};

/// Most bytes that wait for a session behind a long message that it does not take; beyond it, the
/// session is disconnected.
const BEHIND_BYTES_MAX: usize = 64 << 20;

/// What a short message counts for, in bytes.
const COUNTED_BYTES_MIN: usize = 256;

/// What a session is to be sent behind a long message.
#[derive(Default)]
struct Behind {
    messages: Vec<(Bytes, Bytes)>,
    bytes: usize,
}

impl Behind {
    /// A message of this length has to wait; true if that is more than may, for the first time.
    fn count(&mut self, bytes: usize) -> bool {
        let before = self.bytes;
        self.bytes += bytes.max(COUNTED_BYTES_MIN);
        before <= BEHIND_BYTES_MAX && self.bytes > BEHIND_BYTES_MAX
    }

    /// True if that is more than may wait, for the first time.
    fn push(&mut self, head: &Bytes, body: &Bytes) -> bool {
        self.messages.push((Arc::clone(head), Arc::clone(body)));
        self.count(head.len() + body.len())
    }
}

/// What has come of a command that several databases answer.
#[derive(Default)]
struct Gathered {
    /// How many have not answered.
    left: usize,
    errors: Vec<String>,
}

/// Time and randomness come in through it, effects go out.
pub(crate) struct Shell {
    now: Now,
    uuids: UuidSource,
    effects: Vec<Effect>,
    next_work: u64,
    /// Sessions in the middle of a long message, and what they are to be sent behind it.
    behind: BTreeMap<SessionId, Behind>,
    /// Sessions that are to be sent more than may wait.
    overflowed: Vec<SessionId>,
    /// Commands that several databases answer.
    gathered: BTreeMap<CommandId, Gathered>,
    /// What comes before a message that is in one piece.
    no_head: Bytes,
}

impl Shell {
    pub(crate) fn new(now: Now, seed: [u64; 4]) -> Self {
        Self {
            now,
            uuids: UuidSource::new(seed),
            effects: Vec::new(),
            next_work: 0,
            behind: BTreeMap::new(),
            overflowed: Vec::new(),
            gathered: BTreeMap::new(),
            no_head: Bytes::default(),
        }
    }

    /// Takes the time of what happens now.
    pub(crate) fn tick(&mut self, now: Now) {
        self.now = now;
    }

    /// The monotonic clock, in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        self.now.monotonic_us
    }

    /// The wall clock, in milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> i64 {
        self.now.wall_ms
    }

    /// Milliseconds since a moment on the monotonic clock.
    pub(crate) fn elapsed_ms(&self, since_us: u64) -> u64 {
        self.now.monotonic_us.saturating_sub(since_us) / 1000
    }

    /// Fresh UUIDs and random numbers.
    pub(crate) fn uuids(&mut self) -> &mut UuidSource {
        &mut self.uuids
    }

    /// Randomness for a helper's own source of UUIDs.
    pub(crate) fn seed(&mut self) -> [u64; 4] {
        std::array::from_fn(|_| self.uuids.next_u64())
    }

    /// Asks the shell for anything but a message to sessions.
    pub(crate) fn ask(&mut self, effect: Effect) {
        debug_assert!(
            !matches!(effect, Effect::Send { .. }),
            "a message may have to wait behind another: it goes through `send_parts`"
        );
        self.effects.push(effect);
    }

    /// So many databases answer a command, each by [`Shell::answer_command`].
    pub(crate) fn gather(&mut self, id: CommandId, databases: usize) {
        self.gathered.insert(id, Gathered { left: databases, errors: Vec::new() });
    }

    /// Answers a command. Where several databases do, the last of them does, with the errors of all, one in a line.
    pub(crate) fn answer_command(&mut self, id: CommandId, reply: Result<String, String>) {
        let Some(gathered) = self.gathered.get_mut(&id) else {
            return self.ask(Effect::CommandReply { id, reply });
        };
        gathered.left -= 1;
        gathered.errors.extend(reply.err());
        if gathered.left == 0 {
            let Gathered { errors, .. } = self.gathered.remove(&id).expect("it was just there");
            let reply = if errors.is_empty() { Ok(String::new()) } else { Err(errors.join("\n")) };
            self.ask(Effect::CommandReply { id, reply });
        }
    }

    /// Moves all effects so far to `out`, in their order.
    pub(crate) fn poll_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// Sends a whole message.
    pub(crate) fn send(&mut self, session: SessionId, message: Vec<u8>) {
        let (head, body) = (Arc::clone(&self.no_head), Arc::new(message));
        self.send_parts(vec![session], head, body);
    }

    /// Sends `head` and `body`; who is in the middle of a long message gets them behind it.
    pub(crate) fn send_parts(&mut self, mut to: Vec<SessionId>, head: Bytes, body: Bytes) {
        to.iter_mut().for_each(|session| *session = session.connection());
        if !self.behind.is_empty() {
            to.retain(|session| match self.behind.get_mut(session) {
                Some(behind) => {
                    if behind.push(&head, &body) {
                        self.overflowed.push(*session);
                    }
                    false
                }
                None => true,
            });
        }
        if !to.is_empty() {
            self.effects.push(Effect::Send { to, head, body });
        }
    }

    /// Sends a piece of the long message that these sessions are in the middle of.
    pub(crate) fn send_piece(&mut self, to: Vec<SessionId>, head: Bytes, body: Bytes) {
        debug_assert!(to.iter().all(|session| self.behind.contains_key(session)));
        self.effects.push(Effect::Send { to, head, body });
    }

    /// A long message begins: all else waits until it has ended.
    pub(crate) fn begin_message(&mut self, session: SessionId) {
        let others = self.behind.insert(session, Behind::default());
        assert!(others.is_none(), "a session is sent one long message at a time");
    }

    /// Whether a session is in the middle of a long message.
    pub(crate) fn is_in_message(&self, session: SessionId) -> bool {
        self.behind.contains_key(&session.connection())
    }

    /// What a session in the middle of a long message is to be sent later waits elsewhere.
    pub(crate) fn count_behind(&mut self, session: SessionId, bytes: usize) {
        let session = session.connection();
        if self.behind.get_mut(&session).is_some_and(|behind| behind.count(bytes)) {
            self.overflowed.push(session);
        }
    }

    /// A long message ends with `tail`; what has waited for that follows.
    pub(crate) fn end_message(&mut self, session: SessionId, tail: Vec<u8>) {
        let behind = self.behind.remove(&session);
        self.send(session, tail);
        for (head, body) in behind.expect("the message was begun").messages {
            self.send_parts(vec![session], head, body);
        }
    }

    /// Whether a session is to be sent more than may wait behind a long message.
    pub(crate) fn has_overflowed(&self) -> bool {
        !self.overflowed.is_empty()
    }

    /// Sessions that are to be sent more than may wait behind a long message.
    pub(crate) fn take_overflowed(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.overflowed)
    }

    /// A session has left: nothing more is sent to it.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.behind.remove(&session);
    }

    /// Writes a line to the log.
    pub(crate) fn log(&mut self, module: &'static str, level: Level, text: impl Into<String>) {
        self.effects.push(Effect::Log { module, level, text: text.into(), limit: None });
    }

    /// Logs what a peer can provoke as often as it likes; `place` is where in the program.
    pub(crate) fn log_limited(
        &mut self,
        place: &'static str,
        module: &'static str,
        level: Level,
        text: String,
    ) {
        self.effects.push(Effect::Log { module, level, text, limit: Some(place) });
    }

    /// A number for something that the shell does in its own time.
    pub(crate) fn next_work(&mut self) -> WorkId {
        self.next_work += 1;
        WorkId(self.next_work)
    }

    /// Hands a piece of work to a helper; its result comes back under this number. `of` is who
    /// waits for it.
    pub(crate) fn send_out(&mut self, of: Asker, work: Work) -> WorkId {
        self.next_work += 1;
        let id = WorkId(self.next_work);
        self.effects.push(Effect::Work { id, of, work });
        id
    }

    /// Has a helper search what is known of a database, and its file if that is to be read, for a session.
    pub(crate) fn search(
        &mut self,
        of: SessionId,
        (db, has_file): (DbId, bool),
        search: Box<Search>,
    ) -> WorkId {
        if !has_file {
            return self.send_out(Asker::Session(of), Work::Search(search));
        }
        self.next_work += 1;
        let id = WorkId(self.next_work);
        self.effects.push(Effect::Search { id, of, db, search });
        id
    }

    /// Forgets what nobody needs any more, elsewhere if there is much of it.
    pub(crate) fn free(&mut self, garbage: Garbage) {
        if garbage.is_big() {
            self.send_out(Asker::Server, Work::Free(garbage));
        }
    }
}
