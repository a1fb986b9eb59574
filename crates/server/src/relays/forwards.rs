//! Requests of a relay's clients that its source has not answered, in order of arrival.

use std::collections::{BTreeMap, VecDeque};

use weir_data::Uuid;

use crate::database::Trigger;

/// A request on its way to the source.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) trigger: Trigger,
    /// Where it may be sent again: a state that was known before it was sent at first.
    pub(crate) since: Option<Uuid>,
    /// The request has been sent before, on a connection that has ended.
    pub(crate) was_sent: bool,
    /// The source cannot take it under an id.
    pub(crate) is_plain: bool,
    /// The transaction asserts a lock, which ends with the connection: it is not sent again.
    pub(crate) is_fenced: bool,
}

impl Forward {
    pub(crate) fn new(trigger: Trigger) -> Self {
        Self { trigger, since: None, was_sent: false, is_plain: false, is_fenced: false }
    }
}

/// All requests that the source has not answered.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    waiting: VecDeque<Forward>,
    /// By the number of the request at the source.
    sent: BTreeMap<u64, Forward>,
    /// Answered, as of a state that the relay does not have yet.
    early: Vec<Early>,
}

/// An answer that has come before what it has changed.
#[derive(Debug)]
pub(crate) struct Early {
    /// The state that it is of; `None` if the source has told, or will tell, all rows since: they have
    /// what it changed, and nobody tells it alone.
    pub(crate) state: Option<Uuid>,
    pub(crate) trigger: Trigger,
    pub(crate) reply: Vec<u8>,
}

impl Forwards {
    /// A request has come.
    pub(crate) fn push(&mut self, trigger: Trigger) {
        self.waiting.push_back(Forward::new(trigger));
    }

    /// A request is to be sent once more, before those that wait.
    pub(crate) fn again(&mut self, forward: Forward) {
        self.waiting.push_front(forward);
    }

    /// The request that is to be sent next.
    pub(crate) fn next(&mut self) -> Option<Forward> {
        self.waiting.pop_front()
    }

    /// A request has been sent under this number.
    pub(crate) fn sent(&mut self, number: u64, forward: Forward) {
        self.sent.insert(number, forward);
    }

    /// The source has answered.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Forward> {
        self.sent.remove(&number)
    }

    /// The connection has ended: what may be sent again waits for the next one, in its order.
    /// Answers with what may not: nobody will say what has become of it.
    pub(crate) fn lost(&mut self) -> Vec<Trigger> {
        self.await_all_rows();
        let (again, lost): (Vec<Forward>, Vec<Forward>) = std::mem::take(&mut self.sent)
            .into_values()
            .partition(|forward| forward.since.is_some() && !forward.is_fenced);
        for forward in again.into_iter().rev() {
            self.waiting.push_front(Forward { was_sent: true, ..forward });
        }
        lost.into_iter().map(|forward| forward.trigger).collect()
    }

    /// All rows are told again: answers wait for them, and for no state that is before.
    pub(crate) fn await_all_rows(&mut self) {
        self.early.iter_mut().for_each(|early| early.state = None);
    }

    /// An answer waits until the relay has its state.
    pub(crate) fn keep_answer(&mut self, early: Early) {
        self.early.push(early);
    }

    /// Answers whose states the relay has by now.
    pub(crate) fn take_answers(&mut self, has: impl Fn(Option<Uuid>) -> bool) -> Vec<Early> {
        self.early.extract_if(.., |early| has(early.state)).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.sent.len() + self.early.len()
    }

    /// The relay ends: those that nobody can have run, and those that somebody may have.
    pub(crate) fn take_all(&mut self) -> (Vec<Trigger>, Vec<Trigger>) {
        let sent = std::mem::take(&mut self.sent).into_values();
        let early = std::mem::take(&mut self.early).into_iter().map(|early| early.trigger);
        let (known, unknown): (Vec<Forward>, Vec<Forward>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|forward| !forward.was_sent);
        let trigger = |forward: Forward| forward.trigger;
        let unknown = sent.chain(unknown).map(trigger).chain(early).collect();
        (known.into_iter().map(trigger).collect(), unknown)
    }
}
