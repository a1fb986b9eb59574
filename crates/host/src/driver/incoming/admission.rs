//! Which clients may go on with big messages, so that input has a bound.
//!
//! Messages on their way, and those that the core is at, count against one budget. As long as there
//! is not much of them everybody is read; then, who sends little, and one client that sends much,
//! the holder. A message that is too long for what is left is passed over. Where as much is here as
//! may be, the holder waits for what is at work, or takes the place of a client that has begun a
//! message and is silent.

use std::collections::BTreeSet;
use std::mem;

use weir_server::event::SessionId;

use crate::driver::incoming::inbox::READ_BYTES;

/// Bytes of messages on their way and at work, beyond which big ones arrive one by one; at most
/// half of what there may be of them. What is left is the longest that one may be.
pub const UNPARSED_BYTES_MAX: usize = 512 << 20;

/// How long the one client that may go on with a big message may be silent while others wait.
const HOLDER_PATIENCE_US: u64 = 1_000_000;

/// What is to become of a client whose socket has something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client is read now.
    Read,
    /// The message is too long: it is passed over as it comes, and the client is read.
    PassOver,
    /// The client is read once the longest message of a silent client, if there is one, has been
    /// let go.
    MakeRoom,
    /// The client is not read before [`Admission::take_resumed`] names it.
    Wait,
}

/// The budget and who waits for it.
pub(crate) struct Admission {
    /// Clients that are not read because of the budget.
    paused: Vec<SessionId>,
    /// The one client that may go on sending a big message when there are too many, and when it was
    /// last heard.
    holder: Option<(SessionId, u64)>,
    /// Clients that were the holder, and were silent in the middle of their message.
    silent: BTreeSet<SessionId>,
    /// Input of all clients that is no message yet.
    held_bytes: usize,
    /// Messages that the core is at.
    core_bytes: usize,
    /// What input and messages at work may be together.
    input_bytes_max: usize,
}

impl Admission {
    /// Nobody sends yet; `input_bytes_max` is what all messages on their way and at work may take
    /// together.
    pub(crate) fn new(input_bytes_max: usize) -> Self {
        Self {
            paused: Vec::new(),
            holder: None,
            silent: BTreeSet::new(),
            held_bytes: 0,
            core_bytes: 0,
            input_bytes_max,
        }
    }

    /// What all messages on their way and at work may take together from now on.
    pub(crate) fn limit_input(&mut self, bytes_max: usize) {
        self.input_bytes_max = bytes_max;
    }

    /// The inbox of a client held `before` bytes and holds `after`.
    #[inline]
    pub(crate) fn note_held(&mut self, before: usize, after: usize) {
        assert!(self.held_bytes >= before, "what an inbox holds was counted when it came");
        self.held_bytes = self.held_bytes - before + after;
    }

    /// So many bytes of messages are at work in the core.
    pub(crate) fn note_at_work(&mut self, bytes: usize) {
        self.core_bytes = bytes;
    }

    /// True when it matters how much is at work.
    pub(crate) fn has_big(&self) -> bool {
        self.held_bytes >= READ_BYTES
    }

    /// Whether a client may be read whose inbox holds `held` bytes.
    #[inline]
    pub(crate) fn judge(&mut self, id: SessionId, held: usize, now_us: u64) -> Verdict {
        if !self.is_crowded() || held < READ_BYTES {
            return Verdict::Read;
        }
        self.judge_big(id, held, now_us)
    }

    fn judge_big(&mut self, id: SessionId, held: usize, now_us: u64) -> Verdict {
        if self.holder.is_none_or(|(holder, _)| holder == id) {
            self.holder = Some((id, now_us));
            if held >= self.input_bytes_max - self.crowd_bytes() {
                return Verdict::PassOver;
            }
            if !self.is_full() {
                return Verdict::Read;
            }
            if self.core_bytes == 0 {
                return Verdict::MakeRoom;
            }
        }
        self.paused.push(id);
        Verdict::Wait
    }

    /// Big messages arrive one by one while there is more than this on its way and at work.
    fn crowd_bytes(&self) -> usize {
        UNPARSED_BYTES_MAX.min(self.input_bytes_max / 2)
    }

    fn is_crowded(&self) -> bool {
        self.held_bytes + self.core_bytes > self.crowd_bytes()
    }

    fn is_full(&self) -> bool {
        self.held_bytes + self.core_bytes >= self.input_bytes_max
    }

    /// Clients other than `id` that were silent in the middle of a big message.
    pub(crate) fn silent_besides(&self, id: SessionId) -> impl Iterator<Item = SessionId> {
        self.silent.iter().copied().filter(move |silent| *silent != id)
    }

    /// A client has ended its message, has had it passed over, or is gone: its right to go on is
    /// another's.
    #[inline]
    pub(crate) fn give_up_right(&mut self, id: SessionId) {
        if self.holder.is_some_and(|(holder, _)| holder == id) {
            self.holder = None;
        }
        if !self.silent.is_empty() {
            self.silent.remove(&id);
        }
    }

    /// When the right to go on is to be taken from a silent holder, if others wait for it.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let (holder, heard_us) = self.holder?;
        let is_silent = !self.paused.is_empty() && !self.paused.contains(&holder);
        is_silent.then_some(heard_us + HOLDER_PATIENCE_US)
    }

    /// True while somebody waits for others to be done.
    pub(crate) fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Clients that waited and may be read again.
    pub(crate) fn take_resumed(&mut self, now_us: u64) -> Vec<SessionId> {
        if self.deadline_us().is_some_and(|deadline| deadline <= now_us)
            && let Some((holder, _)) = self.holder.take()
        {
            self.silent.insert(holder);
        }
        let holder_goes_on = self.holder.is_some_and(|(holder, _)| !self.paused.contains(&holder));
        if (holder_goes_on && self.is_crowded()) || (self.is_full() && self.core_bytes > 0) {
            return Vec::new();
        }
        mem::take(&mut self.paused)
    }

    /// Input of all clients that is no message yet, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: usize = 2 * READ_BYTES;

    /// So many clients have sent `BIG` bytes of a message each, numbered from 1.
    fn crowd(clients: u64, input_bytes_max: usize) -> (Admission, Vec<SessionId>) {
        let mut admission = Admission::new(input_bytes_max);
        let clients: Vec<SessionId> = (1..=clients).map(SessionId).collect();
        clients.iter().for_each(|_| admission.note_held(0, BIG));
        (admission, clients)
    }

    #[test]
    fn in_a_crowd_one_goes_on_and_who_sends_little() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], BIG, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[1], BIG, 0), Verdict::Wait);
        assert_eq!(admission.judge(clients[2], READ_BYTES - 1, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[0], BIG, 1), Verdict::Read);
        assert_eq!(admission.take_resumed(1), []);
        admission.give_up_right(clients[0]);
        assert_eq!(admission.take_resumed(1), [clients[1]]);
        assert!(!admission.has_paused());
    }

    #[test]
    fn without_a_crowd_everybody_goes_on() {
        let (mut admission, clients) = crowd(3, 6 * BIG);
        for id in clients {
            assert_eq!(admission.judge(id, BIG, 0), Verdict::Read);
        }
        assert_eq!(admission.deadline_us(), None);
    }

    #[test]
    fn who_is_silent_loses_the_right_and_then_makes_room() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], BIG, 0), Verdict::Read);
        assert_eq!(admission.judge(clients[1], BIG, 0), Verdict::Wait);
        assert_eq!(admission.deadline_us(), Some(HOLDER_PATIENCE_US));
        assert_eq!(admission.take_resumed(HOLDER_PATIENCE_US), [clients[1]]);
        // As much is here as there may be, and nothing is at work.
        admission.note_held(0, BIG);
        assert_eq!(admission.judge(clients[1], BIG, HOLDER_PATIENCE_US), Verdict::MakeRoom);
        assert_eq!(admission.silent_besides(clients[1]).collect::<Vec<_>>(), [clients[0]]);
        // With something at work it waits for that.
        admission.note_at_work(1);
        assert_eq!(admission.judge(clients[1], BIG, HOLDER_PATIENCE_US), Verdict::Wait);
    }

    #[test]
    fn a_message_that_is_too_long_for_what_is_left_is_passed_over() {
        let (mut admission, clients) = crowd(3, 4 * BIG);
        assert_eq!(admission.judge(clients[0], 2 * BIG, 0), Verdict::PassOver);
    }
}
