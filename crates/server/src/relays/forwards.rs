//! Requests of a relay's clients that its source has not answered, in order of arrival.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_data::Uuid;

use crate::database::Trigger;
use crate::ids::SessionId;
use crate::origin::Origin;
use crate::outbound::Outbound;
use crate::relays::window::Window;
use crate::session::locks::Held;

/// Most states that are remembered of those that came while requests were with the source. An answer that names
/// an older one, which the log of changes has lost, too, waits until the connection ends.
const PASSED_MAX: usize = 4096;

/// How far locks keep a transaction from being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// As far as is known, not at all.
    None,
    /// The transaction asserts locks, which end with the connection: it is not sent again.
    Locks,
    /// The client has chosen the transaction's id, and does not have the locks (any more): the source is asked
    /// whether the transaction has been made before, and cannot make it.
    Judged,
    /// The source has said that it has not been made.
    NotMade,
}

/// A request on its way to the source.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) trigger: Trigger,
    /// Where it may be sent again: a state that was known before it was sent at first.
    pub(crate) since: Option<Uuid>,
    /// The request has been sent before, on a connection that has ended.
    pub(crate) was_sent: bool,
    /// The source has answered what was sent again: it is asked what has come of the id.
    pub(crate) answer: Option<Vec<u8>>,
    /// All rows have been told again since that answer: its state is before them, and is told alone no more.
    pub(crate) is_told_anew: bool,
    /// The source cannot take it under an id.
    pub(crate) is_plain: bool,
    pub(crate) fence: Fence,
    /// A source has been asked what has come of the id: it may say that nothing has, and then the request is sent under
    /// another one.
    pub(crate) was_asked_of: bool,
    /// The client has taken the request back, which the source has been told.
    pub(crate) is_canceled: bool,
    /// The client has the locks no longer under which it was sent, and the source has been told to give it up.
    pub(crate) is_called_back: bool,
    /// Bytes that are kept for its session while it waits for the source.
    pub(crate) kept_bytes: usize,
}

impl Forward {
    pub(crate) fn new(trigger: Trigger) -> Self {
        Self {
            trigger,
            since: None,
            was_sent: false,
            answer: None,
            is_told_anew: false,
            is_plain: false,
            fence: Fence::None,
            was_asked_of: false,
            is_canceled: false,
            is_called_back: false,
            kept_bytes: 0,
        }
    }

    /// Whether nothing of its client goes before it is answered, for it may have to be sent under another id. What may wait
    /// for rows is waited for by nobody.
    fn bars(&self) -> bool {
        self.was_asked_of && !self.trigger.may_wait()
    }
}

/// What was sent under locks on a connection that has ended: the source that had it may make it yet, when others have had the
/// locks. The next source is asked what has come of it, which then is made no more.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) id: Uuid,
    /// A state that was known before it was sent.
    pub(crate) since: Uuid,
    locks: Vec<String>,
}

impl Doubt {
    fn of(forward: &Forward) -> Option<Self> {
        let trigger = &forward.trigger;
        let since = forward.since.filter(|_| forward.fence == Fence::Locks)?;
        let locks = trigger.locks.iter().flatten().map(|held| held.name.clone()).collect();
        let id = trigger.chosen().map_or(trigger.origin.eid, |chosen| chosen.id);
        Some(Self { id, since, locks })
    }
}

/// All requests that the source has not answered.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    /// Requests that are to be sent, by their places in the order.
    waiting: BTreeMap<i64, Forward>,
    /// The place of who comes next. Who comes again has his.
    next_place: i64,
    /// Which of them go now.
    window: Window,
    /// Whose these are. Bytes are kept for those that wait because the source is away.
    outbound: Outbound,
    /// By the number of the request at the source.
    sent: BTreeMap<u64, Forward>,
    /// Answered, as of a state that the relay does not have yet.
    early: Vec<Early>,
    /// Conversions that the source has made, and no rows have come under their schema.
    converted: Vec<Trigger>,
    /// The number of the request that the source was sent behind the last one of these.
    asked_behind: Option<u64>,
    /// What the source has refused to take under an id, by its number there: it is sent without one, in its order.
    refused: BTreeMap<u64, Forward>,
    /// States that the relay has come to while requests were with the source: the log of changes may have lost
    /// one of them when an answer names it.
    passed: Passed,
    /// What no source has been asked of.
    doubts: Vec<Doubt>,
    /// What the source is asked of, by the numbers of those requests.
    asked_of: BTreeMap<u64, Doubt>,
}

/// The last [`PASSED_MAX`] states that a relay has come to.
#[derive(Debug, Default)]
pub(crate) struct Passed(VecDeque<Uuid>);

impl Passed {
    pub(crate) fn push(&mut self, state: Uuid) {
        if self.0.len() == PASSED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(state);
    }

    pub(crate) fn has(&self, state: Uuid) -> bool {
        self.0.contains(&state)
    }
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

impl Early {
    /// Whose transaction it is.
    fn client(&self) -> Option<SessionId> {
        let origin = &self.trigger.origin;
        origin.session().filter(|_| !self.trigger.is_conversion())
    }
}

impl Forwards {
    /// A request has come; so many bytes are kept for it, none if the source is there.
    pub(crate) fn push(&mut self, mut trigger: Trigger, kept_bytes: usize) {
        // What a helper has had keeps its place, too.
        let place = trigger.forward.unwrap_or(self.next_place);
        self.next_place = self.next_place.max(place + 1);
        trigger.forward = Some(place);
        self.put(Forward { kept_bytes, ..Forward::new(trigger) });
    }

    /// A request is to be sent once more, in its order.
    pub(crate) fn again(&mut self, forward: Forward) {
        self.put(forward);
    }

    /// A request that the source is not asked for comes behind what it is to answer the session before.
    pub(crate) fn again_alone(&mut self, forward: Forward) {
        let place = self.put(forward);
        self.window.go_alone(place);
    }

    /// A request comes behind what a helper of this server has of its session, until [`Self::look_again`].
    pub(crate) fn again_behind_helper(&mut self, forward: Forward, session: SessionId) {
        let place = self.put(forward);
        self.window.hold_for_helper(place, session);
    }

    /// Helpers may have done what requests come behind.
    pub(crate) fn look_again(&mut self) {
        self.window.look_again();
    }

    /// Whether the source has yet to answer something that the session of a request has asked for before, or the answer
    /// has yet to be given. What may wait there may do so for ever, and is waited for by nobody.
    pub(crate) fn is_asked_by(&self, trigger: &Trigger) -> bool {
        let Some(session) = trigger.origin.session() else { return false };
        let sent =
            || self.sent.values().filter(|sent| sent.trigger.origin.session() == Some(session));
        self.window.has_some_of(session) && !sent().any(|sent| sent.trigger.may_wait())
    }

    /// The request that is to be sent next, if one may go.
    pub(crate) fn next(&mut self) -> Option<Forward> {
        if !self.refused.is_empty() {
            // What was sent with these will be refused as well, and comes before what has not been sent.
            let is_open = |sent: &Forward| sent.since.is_some() && sent.trigger.runs_once();
            if self.sent.values().any(is_open) {
                return None;
            }
            for forward in std::mem::take(&mut self.refused).into_values() {
                self.again(forward);
            }
        }
        let Self { waiting, window, .. } = self;
        let place = window.next(|place| &waiting[&place].trigger)?;
        self.take(place)
    }

    /// A request has been sent under this number.
    pub(crate) fn sent(&mut self, number: u64, forward: Forward) {
        let was_asked_of = forward.was_asked_of || forward.answer.is_some();
        let forward = Forward { kept_bytes: 0, was_asked_of, ..forward };
        self.window.sent(&forward.trigger, forward.bars());
        self.sent.insert(number, forward);
    }

    /// The source takes nothing under an id: what had this number is to be sent without one.
    pub(crate) fn refused(&mut self, number: u64, trigger: Trigger) {
        self.refused.insert(number, Forward { is_plain: true, ..Forward::new(trigger) });
    }

    /// The source has answered.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Forward> {
        let forward = self.sent.remove(&number)?;
        self.window.answered(&forward.trigger, forward.bars());
        Some(forward)
    }

    /// The relay comes to a state.
    pub(crate) fn pass(&mut self, state: Uuid) {
        match self.sent.is_empty() {
            true => self.passed = Passed::default(),
            false => self.passed.push(state),
        }
    }

    /// Whether the relay has come to a state since a request was sent that has just been answered.
    pub(crate) fn has_passed(&self, state: Uuid) -> bool {
        self.passed.has(state)
    }

    /// The connection has ended: what may be sent again waits for the next one, in its order, if `keep` says
    /// how many bytes that is; else nobody waits for it any more.
    /// Answers with what may not: nobody will say what has become of it.
    pub(crate) fn lost(
        &mut self,
        mut keep: impl FnMut(&mut Trigger) -> Option<usize>,
    ) -> Vec<Trigger> {
        self.await_all_rows();
        self.asked_behind = None;
        self.window.lost();
        let (mut lost, mut all) = (Vec::new(), std::mem::take(&mut self.sent));
        let refused: BTreeSet<u64> = self.refused.keys().copied().collect();
        self.doubts.extend(std::mem::take(&mut self.asked_of).into_values());
        let doubts = all.values().filter_map(Doubt::of);
        self.doubts.extend(doubts.inspect(|doubt| self.window.doubt(&doubt.locks)));
        all.append(&mut self.refused);
        for (number, mut forward) in all {
            if refused.contains(&number) {
                // It has come to nothing there.
                self.again(forward);
                continue;
            }
            let is_wanted = forward.fence == Fence::None && !forward.is_canceled;
            let may_be_sent_again = forward.since.is_some() && is_wanted;
            match may_be_sent_again.then(|| keep(&mut forward.trigger)).flatten() {
                Some(kept_bytes) => {
                    let answer = None;
                    self.again(Forward { was_sent: true, answer, kept_bytes, ..forward });
                }
                None => lost.push(forward.trigger),
            }
        }
        self.keep_unsent(&mut keep, &mut lost);
        // Another server may say something else.
        self.waiting.values_mut().for_each(|forward| forward.answer = None);
        // Nor need it have what these changed, and it would not say so.
        self.early.drain(..).map(|early| early.trigger).chain(lost).collect()
    }

    /// What the source is to be asked of. One that knows no ids (`has_ids`) can say nothing, and nobody waits for it.
    pub(crate) fn take_doubts(&mut self, has_ids: bool) -> Vec<Doubt> {
        let doubts = std::mem::take(&mut self.doubts);
        if !has_ids {
            doubts.iter().for_each(|doubt| self.window.settle(&doubt.locks));
            return Vec::new();
        }
        doubts
    }

    /// The source has been asked what has come of this, under this number.
    pub(crate) fn asked_of(&mut self, number: u64, doubt: Doubt) {
        self.asked_of.insert(number, doubt);
    }

    /// The source has answered what has come of something; false if it was asked something else.
    pub(crate) fn outcome_came(&mut self, number: u64) -> bool {
        let doubt = self.asked_of.remove(&number);
        doubt.iter().for_each(|doubt| self.window.settle(&doubt.locks));
        doubt.is_some()
    }

    /// What waited though the source was there is kept from now on, but for what nobody waits for any more.
    fn keep_unsent(
        &mut self,
        keep: &mut impl FnMut(&mut Trigger) -> Option<usize>,
        lost: &mut Vec<Trigger>,
    ) {
        let unkept = self.waiting.iter().filter(|(_, forward)| forward.kept_bytes == 0);
        let unkept: Vec<i64> = unkept.map(|(place, _)| *place).collect();
        for place in unkept {
            let mut forward = self.take(place).expect("it has just been found");
            match keep(&mut forward.trigger) {
                Some(kept_bytes) => self.again(Forward { kept_bytes, ..forward }),
                None => lost.push(forward.trigger),
            }
        }
    }

    /// A session has left: what waits for the source is not sent. That is returned.
    pub(crate) fn forget_session(&mut self, session: SessionId) -> Vec<Trigger> {
        let places: Vec<i64> = self.outbound.places_of(session).collect();
        let refused =
            self.refused.extract_if(.., |_, forward| forward.trigger.origin.is_of(session));
        let mut forgotten: Vec<Trigger> = refused.map(|(_, forward)| forward.trigger).collect();
        forgotten.extend(places.into_iter().filter_map(|place| Some(self.take(place)?.trigger)));
        forgotten
    }

    /// A session has left: what is with the source is taken back, unless it has been made. The numbers of that.
    pub(crate) fn cancel_all_sent(&mut self, session: SessionId) -> Vec<u64> {
        let is_meant = |forward: &Forward| {
            forward.trigger.origin.is_of(session) && !forward.trigger.is_conversion()
        };
        let sent = self.sent.iter_mut().filter(|(_, forward)| is_meant(forward));
        let cancel = |(number, forward): (&u64, &mut Forward)| {
            forward.is_canceled = true;
            *number
        };
        sent.map(cancel).collect()
    }

    /// Turns of locks have ended here: what may wait at the source under one of those is taken back there, for the
    /// relay has the lock yet. The numbers of that.
    pub(crate) fn call_back(&mut self, is_held: impl Fn(&Held) -> bool) -> Vec<u64> {
        let has_lost = |forward: &Forward| {
            let is_wanted = !forward.is_canceled && !forward.is_called_back;
            let mut locks = forward.trigger.locks.iter().flatten();
            is_wanted
                && forward.fence == Fence::Locks
                && locks.any(|held| !is_held(held))
                && forward.trigger.may_wait()
        };
        let sent = self.sent.iter_mut().filter(|(_, forward)| has_lost(forward));
        let call_back = |(number, forward): (&u64, &mut Forward)| {
            forward.is_called_back = true;
            *number
        };
        sent.map(call_back).collect()
    }

    /// All that are to be sent, are with the source, or have not taken effect here.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Trigger> {
        let all = self.waiting.values().chain(self.sent.values()).chain(self.refused.values());
        let early = self.early.iter().map(|early| &early.trigger);
        all.map(|forward| &forward.trigger).chain(early)
    }

    /// What the source has, or has made in a state that has not come.
    pub(crate) fn at_source(&self) -> impl Iterator<Item = &Trigger> {
        let early = self.early.iter().map(|early| &early.trigger);
        self.sent.values().map(|forward| &forward.trigger).chain(early)
    }

    /// The source is being asked for a lock, by the request of this number: what is asked for under it waits for the answer.
    pub(crate) fn await_lock(&mut self, number: u64, name: String) {
        self.window.await_lock(number, name);
    }

    /// The source has answered that request. Which lock it was for.
    pub(crate) fn lock_answered(&mut self, number: u64) -> Option<String> {
        self.window.lock_answered(number)
    }

    /// Whether something may be made yet that a source before had under a lock.
    pub(crate) fn is_in_doubt(&self, lock: &str) -> bool {
        self.window.is_in_doubt(lock)
    }

    /// Requests of a session that are to be sent.
    pub(crate) fn unsent(&self, session: SessionId) -> impl Iterator<Item = &Trigger> {
        let waiting = self.outbound.places_of(session).map(|place| &self.waiting[&place].trigger);
        let refused = self.refused.values().map(|forward| &forward.trigger);
        waiting.chain(refused.filter(move |trigger| trigger.origin.is_of(session)))
    }

    /// Takes back a request of a session that waits for the source.
    pub(crate) fn take_request(&mut self, session: SessionId, id: &[u8]) -> Option<Forward> {
        let is_meant = |place: &i64| {
            let trigger = &self.waiting[place].trigger;
            trigger.origin.id == id && !trigger.is_conversion()
        };
        let place = self.outbound.places_of(session).find(is_meant)?;
        self.take(place)
    }

    /// A request of a session that is with the source is taken back: its number there.
    pub(crate) fn cancel_sent(&mut self, session: SessionId, id: &[u8]) -> Option<u64> {
        let is_meant = |trigger: &Trigger| {
            trigger.origin.is_of(session) && trigger.origin.id == id && !trigger.is_conversion()
        };
        let mut sent = self.sent.iter_mut();
        let (number, forward) = sent.find(|(_, forward)| is_meant(&forward.trigger))?;
        forward.is_canceled = true;
        Some(*number)
    }

    /// What is kept for those that wait.
    pub(crate) fn outbound(&self) -> &Outbound {
        &self.outbound
    }

    /// A request waits at its place, which is returned.
    fn put(&mut self, forward: Forward) -> i64 {
        let place = forward.trigger.forward.expect("it has come");
        self.outbound.enter(&forward.trigger.origin, place, forward.kept_bytes);
        self.window.enter(place);
        let other = self.waiting.insert(place, forward);
        assert!(other.is_none(), "each has a place of its own");
        place
    }

    fn take(&mut self, place: i64) -> Option<Forward> {
        let forward = self.waiting.remove(&place)?;
        self.outbound.leave(&forward.trigger.origin, place, forward.kept_bytes);
        self.window.leave(place, &forward.trigger);
        Some(forward)
    }

    /// All rows are told again: answers wait for them, and for no state that is before.
    pub(crate) fn await_all_rows(&mut self) {
        self.early.iter_mut().for_each(|early| early.state = None);
        for forward in self.sent.values_mut().chain(self.waiting.values_mut()) {
            forward.is_told_anew = forward.answer.is_some();
        }
        let early = |trigger| Early { state: None, trigger, reply: Vec::new() };
        self.early.extend(self.converted.drain(..).map(early));
    }

    /// A conversion is answered when all rows are told again, or the source has answered this request and goes on
    /// telling changes.
    pub(crate) fn keep_conversion(&mut self, trigger: Trigger, number: Option<u64>) {
        self.converted.push(trigger);
        self.asked_behind = number;
    }

    /// The source has answered a request: conversions of which nothing more is told, if it goes on telling changes; `None` if
    /// the request was another one.
    pub(crate) fn asked_for_rows(&mut self, number: u64, goes_on: bool) -> Option<Vec<Trigger>> {
        self.asked_behind.take_if(|asked| *asked == number)?;
        Some(if goes_on { std::mem::take(&mut self.converted) } else { Vec::new() })
    }

    /// Who asked for a conversion whose rows have come.
    pub(crate) fn take_converter(&mut self) -> Option<Origin> {
        let is_conversion = |early: &Early| early.trigger.is_conversion();
        let at = self.early.iter().position(is_conversion)?;
        Some(self.early.remove(at).trigger.origin)
    }

    /// An answer waits until the relay has its state.
    pub(crate) fn keep_answer(&mut self, early: Early) {
        if let Some(session) = early.client() {
            self.window.keeps_early(session);
        }
        self.early.push(early);
    }

    /// Answers whose states the relay has by now.
    pub(crate) fn take_answers(&mut self, has: impl Fn(Option<Uuid>) -> bool) -> Vec<Early> {
        let taken: Vec<Early> = self.early.extract_if(.., |early| has(early.state)).collect();
        taken.iter().filter_map(Early::client).for_each(|session| self.window.gives_early(session));
        taken
    }

    /// Bytes of the messages of all of them.
    pub(crate) fn message_bytes(&self) -> usize {
        let answered = self.early.iter().map(|early| &early.trigger).chain(&self.converted);
        self.iter().chain(answered).map(|trigger| trigger.message.len()).sum()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.sent.len() + self.early.len() + self.converted.len()
    }

    /// The relay ends: those that nobody can have run, and those that somebody may have.
    pub(crate) fn take_all(&mut self) -> (Vec<Trigger>, Vec<Trigger>) {
        self.outbound.clear();
        self.window = Window::default();
        let sent = std::mem::take(&mut self.sent).into_values();
        let early = std::mem::take(&mut self.early).into_iter().map(|early| early.trigger);
        let (known, unknown): (Vec<Forward>, Vec<Forward>) =
            std::mem::take(&mut self.waiting).into_values().partition(|forward| !forward.was_sent);
        let known = std::mem::take(&mut self.refused).into_values().chain(known);
        let trigger = |forward: Forward| forward.trigger;
        let converted = std::mem::take(&mut self.converted);
        let unknown = sent.chain(unknown).map(trigger).chain(early).chain(converted).collect();
        (known.map(trigger).collect(), unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three requests, of which two are with the source, under ids.
    fn two_sent() -> Forwards {
        let mut forwards = Forwards::default();
        (1..=3).for_each(|n| forwards.push(Trigger::empty(Uuid::from_u128(n)), 0));
        for number in 1..=2 {
            let forward = forwards.next().expect("it waits");
            let since = Some(Uuid::from_u128(9));
            forwards.sent(number, Forward { since, ..forward });
        }
        forwards
    }

    fn next(forwards: &mut Forwards) -> Option<(u128, bool)> {
        let forward = forwards.next()?;
        Some((forward.trigger.origin.eid.to_u128(), forward.is_plain))
    }

    #[test]
    fn what_is_refused_goes_again_in_its_order_when_all_of_it_is() {
        let mut forwards = two_sent();
        for number in 1..=2 {
            let refused = forwards.answered(number).expect("it was sent");
            forwards.refused(number, refused.trigger);
            let may_go = number == 2;
            assert_eq!(next(&mut forwards), may_go.then_some((1, true)));
        }
        assert_eq!(next(&mut forwards), Some((2, true)));
        assert_eq!(next(&mut forwards), Some((3, false)));
    }

    #[test]
    fn what_is_refused_keeps_its_place_when_the_connection_ends() {
        let mut forwards = two_sent();
        let refused = forwards.answered(2).expect("it was sent");
        forwards.refused(2, refused.trigger);
        assert!(forwards.lost(|_| Some(0)).is_empty());
        let again: Vec<_> = std::iter::from_fn(|| next(&mut forwards)).collect();
        assert_eq!(again, [(1, false), (2, true), (3, false)]);
    }
}
