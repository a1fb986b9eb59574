//! Requests of this member's clients that the cluster has not decided, in order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use weir_cluster::Position;
use weir_data::Uuid;

use crate::clusters::window::{Way, Window};
use crate::database::{Ran, Trigger};
use crate::ids::SessionId;
use crate::outbound::Outbound;
use crate::session::locks::Held;

/// Bytes of replies that wait for what they are of to take effect here, beyond which the leader is asked nothing more:
/// it may be long until then, as on a full disk.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// What a transaction under a chosen id is answered of which only that is known.
const ONLY_DONE: &[u8] = b"null";

/// What is known of a request.
#[derive(Debug)]
pub(crate) enum State {
    /// Nobody has been asked, or not the one who leads now.
    New,
    /// The leader has been asked, and has not answered.
    Asked(Way),
    /// The entry of its id is on its way, at this place, with this reply if it is known.
    Entry(Position, Option<Vec<u8>>),
    /// The request changes nothing, as of an entry.
    Empty(Position, Vec<u8>),
    /// The request waits, as of an entry.
    Waits(Position),
}

/// A request that is not decided.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) trigger: Trigger,
    /// The commit index when it was first sent anywhere.
    pub(crate) since: Option<u64>,
    /// How often it has been sent.
    pub(crate) attempts: u64,
    pub(crate) state: State,
    /// The reply of an earlier leader to the entry that he made of it: if that entry takes effect, at this place, so
    /// has all that was before it, and the reply is true.
    known: Option<(Position, Vec<u8>)>,
    /// Bytes that are kept for its session: it has come while nobody led.
    kept_bytes: usize,
}

impl Forward {
    /// Whether the request has run and changed nothing, for it is no entry, and a later one of its session is. False
    /// as well if the leader may have run it again, or says by itself what has come of it.
    fn is_passed(&self) -> bool {
        match self.state {
            State::New => self.attempts > 0 && self.trigger.runs_once(),
            // What reads may have been read again, behind the entry.
            State::Asked(_) | State::Empty(..) => self.trigger.reads_once(),
            State::Entry(..) | State::Waits(_) => false,
        }
    }

    /// The reply to a request whose entry takes effect at this place, if it is known.
    pub(crate) fn take_known(&mut self, place: Position) -> Option<Vec<u8>> {
        match &mut self.state {
            State::Entry(at, reply @ Some(_)) => reply.take_if(|_| *at == place),
            _ => self.known.take_if(|(at, _)| *at == place).map(|(_, reply)| reply),
        }
    }

    /// As [`Self::take_known`], of what is asked under a chosen id, which the leader answers as if it changed nothing.
    pub(crate) fn take_known_of_chosen(&mut self, place: Position) -> Option<Vec<u8>> {
        match &mut self.state {
            State::Empty(at, reply) if *at == place && reply != ONLY_DONE => {
                Some(std::mem::take(reply))
            }
            _ => self.take_known(place),
        }
    }

    /// Whether the leader has been asked for something under a chosen id whose entry is at this place, and the answer is
    /// that of the entry, or that of a transaction is not known: nothing has been answered since the leader changed, or
    /// only that it is done. What the leader is asked for the first time it answers behind what it was asked before.
    fn awaits_entry(&self, place: Position) -> bool {
        match &self.state {
            State::Empty(at, reply) if reply != ONLY_DONE => *at == place,
            State::Asked(_) if self.attempts == 1 => false,
            State::New | State::Asked(_) | State::Entry(..) | State::Empty(..) => {
                self.attempts > 0 && !self.trigger.is_outcome()
            }
            State::Waits(_) => false,
        }
    }

    /// Whether the leader has said that it changes nothing, as of a state that `is_it`.
    pub(crate) fn is_answered(&self, is_it: impl Fn(Position) -> bool) -> bool {
        matches!(self.state, State::Empty(at, _) if is_it(at))
    }

    /// The request with its answer, if it changes nothing.
    pub(crate) fn into_empty(self) -> Option<(Trigger, Vec<u8>)> {
        match self.state {
            State::Empty(_, reply) => Some((self.trigger, reply)),
            _ => None,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    next: i64,
    by_number: BTreeMap<i64, Forward>,
    by_eid: BTreeMap<Uuid, i64>,
    /// The ids of their entries, of those whose clients chose one.
    chosen: BTreeSet<(Uuid, i64)>,
    outbound: Outbound,
    /// Bytes of the messages of all requests.
    message_bytes: usize,
}

impl Forwards {
    /// A request has come; so many bytes are kept for it, none if somebody leads.
    pub(crate) fn push(&mut self, mut trigger: Trigger, kept_bytes: usize) {
        // What has been here before, and has run meanwhile, comes before what has come since.
        let number = trigger.forward.unwrap_or(self.next + 1);
        self.next = self.next.max(number);
        self.outbound.enter(&trigger.origin, number, kept_bytes);
        self.by_eid.insert(trigger.origin.eid, number);
        self.message_bytes += trigger.message.len();
        if trigger.is_judged() {
            self.chosen.insert((trigger.entry_id(), number));
        }
        let since = trigger.since;
        let attempts = trigger.attempts.max(u64::from(since.is_some()));
        let state = match trigger.ran.take().map(|ran| *ran) {
            Some(Ran { at, is_entry: true, reply }) => State::Entry(at, Some(reply)),
            Some(Ran { at, is_entry: false, reply }) => State::Empty(at, reply),
            None => State::New,
        };
        let forward = Forward { trigger, since, attempts, state, known: None, kept_bytes };
        self.by_number.insert(number, forward);
    }

    /// What the answer to this attempt is about, unless another attempt has followed it, or is to.
    pub(crate) fn answered(&mut self, eid: Uuid, attempt: u64) -> Option<&mut Forward> {
        let forward = self.by_number.get_mut(self.by_eid.get(&eid)?)?;
        let is_asked = matches!(forward.state, State::Asked(_));
        let is_last = attempt.checked_add(1) == Some(forward.attempts);
        (is_asked && is_last).then_some(forward)
    }

    /// Takes a request out that is decided, or runs here.
    pub(crate) fn take(&mut self, eid: Uuid) -> Option<Forward> {
        let number = *self.by_eid.get(&eid)?;
        Some(self.take_number(number))
    }

    /// Takes out the request of this number.
    pub(crate) fn take_number(&mut self, number: i64) -> Forward {
        let mut forward = self.by_number.remove(&number).expect("the number is that of a request");
        let Forward { trigger, attempts, kept_bytes, .. } = &mut forward;
        (trigger.attempts, trigger.forward) = (*attempts, Some(number));
        self.by_eid.remove(&trigger.origin.eid);
        self.message_bytes -= trigger.message.len();
        let is_noted = self.chosen.remove(&(trigger.entry_id(), number));
        assert_eq!(is_noted, trigger.is_judged(), "a request keeps the id that its client chose");
        self.outbound.leave(&trigger.origin, number, *kept_bytes);
        forward
    }

    /// The number of a request under this id, which a client has chosen and whose entry takes effect next, at this place, if
    /// it is answered with that.
    pub(crate) fn awaits_entry(&self, id: Uuid, place: Position) -> Option<i64> {
        self.under(id).find(|number| self.by_number[number].awaits_entry(place))
    }

    /// Numbers of the requests whose clients have chosen this id.
    fn under(&self, id: Uuid) -> impl Iterator<Item = i64> {
        self.chosen.range((id, i64::MIN)..=(id, i64::MAX)).map(|(_, number)| *number)
    }

    /// A session that chose this id, whose entry takes effect next, and had asked before for something that is not
    /// decided by that.
    pub(crate) fn passed_by_chosen(&self, id: Uuid) -> Option<SessionId> {
        self.under(id).find_map(|number| {
            let session = self.by_number[&number].trigger.origin.session()?;
            let mut before = self.before(number, session);
            before.any(|place| self.by_number[&place].is_passed()).then_some(session)
        })
    }

    /// Sessions of which nobody can say what they were answered, in which order: a snapshot up to this index has taken
    /// effect, and they had asked for more than one thing before.
    pub(crate) fn in_doubt(&self, index: u64) -> BTreeSet<SessionId> {
        let (mut open, mut in_doubt) = (BTreeSet::new(), BTreeSet::new());
        for forward in self.by_number.values() {
            let Some(session) = forward.trigger.origin.session() else { continue };
            let is_sent = forward.attempts > 0 && forward.since.is_some_and(|since| since < index);
            if is_sent && open.contains(&session) {
                in_doubt.insert(session);
            }
            let is_open = matches!(forward.state, State::New | State::Asked(_));
            if is_sent && is_open && forward.trigger.runs_once() {
                open.insert(session);
            }
        }
        in_doubt
    }

    /// What sessions have asked before the requests of this id, whose entry takes effect next, and what the leader has
    /// answered as of a state before, if that `is_it`.
    pub(crate) fn take_answered_before(
        &mut self,
        id: Uuid,
        is_it: impl Fn(Position) -> bool,
    ) -> Vec<(Trigger, Vec<u8>)> {
        let own = self.by_eid.get(&id).copied();
        let numbers: BTreeSet<i64> = own.into_iter().chain(self.under(id)).collect();
        let mut answered = BTreeSet::new();
        for number in numbers {
            let session = self.by_number[&number].trigger.origin.session();
            let before = session.into_iter().flat_map(|session| self.before(number, session));
            // Behind what is not answered nothing is.
            answered.extend(before.take_while(|place| self.by_number[place].is_answered(&is_it)));
        }
        answered.into_iter().filter_map(|number| self.take_number(number).into_empty()).collect()
    }

    /// What a session asked before the request of this id, whose entry takes effect next, and what is not decided by
    /// that, or has been answered as of a state before.
    pub(crate) fn take_passed(
        &mut self,
        eid: Uuid,
        is_it: impl Fn(Position) -> bool,
    ) -> Vec<Forward> {
        let Some(number) = self.by_eid.get(&eid).copied() else { return Vec::new() };
        let session = self.by_number[&number].trigger.origin.session();
        let before = session.into_iter().flat_map(|session| self.before(number, session));
        let is_meant = |place: &i64| {
            let forward = &self.by_number[place];
            forward.is_passed() || forward.is_answered(&is_it)
        };
        let passed: Vec<i64> = before.filter(is_meant).collect();
        passed.into_iter().map(|number| self.take_number(number)).collect()
    }

    /// Numbers of a session's requests before this one.
    fn before(&self, number: i64, session: SessionId) -> impl Iterator<Item = i64> {
        self.outbound.places_of(session).take_while(move |place| *place < number)
    }

    /// Whether the leader has been asked for something by others who owned one of these locks then. What it has not been
    /// asked yet counts as under no lock that others have owned since.
    pub(crate) fn has_under(&self, locks: &[Held], session: SessionId) -> bool {
        let is_under = |trigger: &Trigger| {
            let mut held = trigger.locks.iter().flatten();
            held.any(|held| locks.iter().any(|lock| lock.name == held.name))
        };
        let mut sent = self.by_number.values().filter(|forward| forward.since.is_some());
        sent.any(|Forward { trigger, .. }| {
            trigger.origin.session() != Some(session) && is_under(trigger)
        })
    }

    /// A session has left: what the leader is not asked yet, or is to be asked once more, it is not
    /// asked any more, and what it has answered nobody waits for. What has been asked under locks stays until it is
    /// decided, also if it is to be asked once more, as what is an entry does, but without its reply.
    pub(crate) fn forget_session(&mut self, session: SessionId) -> Vec<Trigger> {
        let mut numbers = self.new_ones_of(session);
        numbers.retain(|number| {
            let Forward { trigger, since, .. } = &self.by_number[number];
            since.is_none() || !trigger.has_locks()
        });
        for place in self.outbound.places_of(session) {
            let forward = self.by_number.get_mut(&place).expect("it has a place");
            let is_under_lock = forward.trigger.has_locks();
            match &mut forward.state {
                State::Entry(_, Some(reply)) => *reply = Vec::new(),
                State::Empty(_, reply) if is_under_lock => *reply = Vec::new(),
                State::Empty(..) => numbers.push(place),
                State::Entry(_, None) | State::Waits(_) | State::New | State::Asked(_) => {}
            }
        }
        numbers.into_iter().map(|number| self.take_number(number).trigger).collect()
    }

    /// Takes back a request of a session that nobody has been asked.
    pub(crate) fn take_request(&mut self, session: SessionId, id: &[u8]) -> Option<Trigger> {
        let is_meant = |number: &i64| {
            let Forward { trigger, since, .. } = &self.by_number[number];
            trigger.origin.id == id && since.is_none() && !trigger.is_conversion()
        };
        let number = self.new_ones_of(session).into_iter().find(is_meant)?;
        Some(self.take_number(number).trigger)
    }

    fn new_ones_of(&self, session: SessionId) -> Vec<i64> {
        let is_new = |number: &i64| matches!(self.by_number[number].state, State::New);
        self.outbound.places_of(session).filter(is_new).collect()
    }

    /// All that are not decided and a leader has been asked for: it may have made entries of them.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Trigger> {
        let asked = self.by_number.values().filter(|forward| forward.since.is_some());
        asked.map(|forward| &forward.trigger)
    }

    /// All that no leader has been asked for.
    pub(crate) fn unasked(&self) -> impl Iterator<Item = &Trigger> {
        let unasked = self.by_number.values().filter(|forward| forward.since.is_none());
        unasked.map(|forward| &forward.trigger)
    }

    /// Bytes of the messages of all requests that are not decided.
    pub(crate) fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// The requests that the leader is to be asked now, of sessions that are free to ask, in order, and how. So many bytes may
    /// wait in front of its connection.
    pub(crate) fn to_ask(
        &self,
        backlog_bytes_max: usize,
        is_free: impl Fn(SessionId) -> bool,
    ) -> Vec<(i64, Way)> {
        let (mut window, mut reply_bytes) = (Window::new(backlog_bytes_max), 0);
        for Forward { trigger, state, .. } in self.by_number.values() {
            match state {
                State::Asked(way) => window.note(*way, trigger.message.len()),
                State::Entry(_, Some(reply)) | State::Empty(_, reply) => reply_bytes += reply.len(),
                State::New | State::Entry(_, None) | State::Waits(_) => {}
            }
        }
        if reply_bytes > REPLY_BYTES_MAX {
            return Vec::new();
        }
        let is_free = |number: &i64| {
            let session = self.by_number[number].trigger.origin.session();
            session.is_none_or(&is_free)
        };
        let mut admits =
            |way, number| window.admits(way, self.by_number[&number].trigger.message.len());
        let (mut asked, mut next) = (Vec::new(), None);
        for number in self.new_ones().into_iter().filter(is_free) {
            if !admits(Way::InOrder, number) {
                next = Some(number);
                break;
            }
            asked.push((number, Way::InOrder));
        }
        if let Some(next) = next {
            let is_new = |number: &i64| matches!(self.by_number[number].state, State::New);
            let mut firsts: Vec<i64> = self.outbound.first_places().collect();
            firsts.retain(|number| *number >= next && is_new(number) && is_free(number));
            firsts.sort_unstable();
            let past = firsts.into_iter().filter(|number| admits(Way::Past, *number));
            asked.extend(past.map(|number| (number, Way::Past)));
        }
        asked
    }

    /// Takes out what clients have asked for that have left, but what is under locks: who owns those now waits until
    /// it is decided.
    pub(crate) fn take_gone(&mut self, is_there: impl Fn(SessionId) -> bool) -> Vec<Trigger> {
        let is_gone = |(_, forward): &(&i64, &Forward)| {
            let trigger = &forward.trigger;
            let is_gone = trigger.origin.session().is_some_and(|session| !is_there(session));
            is_gone && !trigger.has_locks()
        };
        let gone: Vec<i64> =
            self.by_number.iter().filter(is_gone).map(|(number, _)| *number).collect();
        gone.into_iter().map(|number| self.take_number(number).trigger).collect()
    }

    /// What is kept for those that have come while nobody led.
    pub(crate) fn outbound(&self) -> &Outbound {
        &self.outbound
    }

    /// The requests that the leader is to be asked, in order.
    pub(crate) fn new_ones(&self) -> Vec<i64> {
        let is_new = |(_, forward): &(&i64, &Forward)| matches!(forward.state, State::New);
        self.by_number.iter().filter(is_new).map(|(number, _)| *number).collect()
    }

    /// Whose those are.
    pub(crate) fn new_sessions(&self) -> impl Iterator<Item = Option<SessionId>> {
        let new = self.by_number.values().filter(|forward| matches!(forward.state, State::New));
        new.map(|forward| forward.trigger.origin.session())
    }

    pub(crate) fn has(&self, number: i64) -> bool {
        self.by_number.contains_key(&number)
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Forward {
        self.by_number.get_mut(&number).expect("it has just been listed")
    }

    /// What was to be decided up to an index, is by now: requests that change nothing, that wait, and
    /// whose entries have come in a snapshot. A reply is that of an entry if the leader of this term has
    /// given it.
    pub(crate) fn decided(&mut self, applied: u64, term: u64) -> Vec<Forward> {
        let is_due = |(_, forward): &(&i64, &Forward)| match &forward.state {
            State::Entry(at, Some(_)) => at.index <= applied && at.term == term,
            State::Empty(at, _) | State::Waits(at) | State::Entry(at, None) => at.index <= applied,
            State::New | State::Asked(_) => false,
        };
        let due: Vec<i64> =
            self.by_number.iter().filter(is_due).map(|(number, _)| *number).collect();
        due.into_iter().map(|number| self.take_number(number)).collect()
    }

    /// The connection to the leader has ended: what it has not answered it is asked again.
    pub(crate) fn ask_unanswered_again(&mut self) {
        for forward in self.by_number.values_mut() {
            if matches!(forward.state, State::Asked(_)) {
                forward.state = State::New;
            }
        }
    }

    /// Who leads has changed: all are asked again.
    pub(crate) fn ask_again(&mut self) {
        for forward in self.by_number.values_mut() {
            let before = std::mem::replace(&mut forward.state, State::New);
            if let State::Entry(at, Some(reply)) = before {
                forward.known = Some((at, reply));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Forward> {
        self.by_eid.clear();
        self.chosen.clear();
        self.outbound.clear();
        self.message_bytes = 0;
        std::mem::take(&mut self.by_number).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::window::ASKED_BYTES_MAX;
    use crate::once::{Chosen, Once};

    /// This server came to lead, and leads no more before it has run the first of them.
    #[test]
    fn what_comes_back_has_its_old_place() {
        let (first, second) = (Uuid::from_u128(5), Uuid::from_u128(6));
        let mut forwards = Forwards::default();
        [first, second].into_iter().for_each(|eid| forwards.push(Trigger::empty(eid), 0));
        let came = forwards.new_ones();
        let ran = forwards.take(first).expect("it is there").trigger;
        forwards.push(ran, 0);
        assert_eq!(forwards.new_ones(), came);
        assert_eq!(forwards.number(came[0]).trigger.origin.eid, first);
    }

    #[test]
    fn only_the_last_attempt_is_answered() {
        let eid = Uuid::from_u128(5);
        let mut forwards = Forwards::default();
        forwards.push(Trigger::empty(eid), 0);
        assert!(forwards.answered(eid, 0).is_none(), "nobody has been asked");
        let [number] = forwards.new_ones()[..] else { panic!("one request") };
        let ask = |forwards: &mut Forwards| {
            let asked = forwards.number(number);
            (asked.attempts, asked.state) = (asked.attempts + 1, State::Asked(Way::InOrder));
        };
        ask(&mut forwards);
        assert!(forwards.answered(eid, 0).is_some());
        forwards.ask_again();
        assert!(forwards.answered(eid, 0).is_none(), "that was the leader before");
        ask(&mut forwards);
        assert!(forwards.answered(eid, 0).is_none(), "the second attempt may become an entry");
        assert!(forwards.answered(eid, 1).is_some());
        // What waits here is asked again when that has ended: a leader takes nothing that comes behind a
        // later attempt.
        let waited = forwards.take(eid).expect("it is there").trigger;
        forwards.push(waited, 0);
        let [number] = forwards.new_ones()[..] else { panic!("one request") };
        assert_eq!(forwards.number(number).attempts, 2);
    }

    /// A request of so many bytes by this session.
    fn of(session: u64, eid: u128, bytes: usize) -> Trigger {
        let mut trigger = Trigger::empty(Uuid::from_u128(eid));
        let text = format!("[\"{}\"]", "x".repeat(bytes - 4));
        let text = weir_json::TextBuf::validate(text.into_bytes()).expect("an array");
        trigger.message = std::sync::Arc::new(text);
        trigger.origin.asker = crate::origin::Asker::Session(SessionId(session));
        trigger
    }

    fn ask(forwards: &mut Forwards) -> Vec<(u128, Way)> {
        let to_ask = forwards.to_ask(usize::MAX, |session| session != SessionId(9));
        let asked = to_ask.into_iter().map(|(number, way)| {
            let forward = forwards.number(number);
            forward.state = State::Asked(way);
            (forward.trigger.origin.eid.to_u128(), way)
        });
        asked.collect()
    }

    #[test]
    fn who_asks_for_much_has_nobody_else_wait() {
        let mut forwards = Forwards::default();
        let asked =
            [(1, ASKED_BYTES_MAX), (1, 10), (2, 10), (3, 2 << 20), (2, 10), (4, 10), (9, 10)];
        for (eid, (session, bytes)) in (1..).zip(asked) {
            forwards.push(of(session, eid, bytes), 0);
        }
        let bytes: usize = asked.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(forwards.message_bytes(), bytes);
        // The second ones of sessions 1 and 2, the long one of 3, and session 9, which is busy, wait.
        assert_eq!(ask(&mut forwards), [(1, Way::InOrder), (3, Way::Past), (6, Way::Past)]);
        assert_eq!(ask(&mut forwards), []);
        forwards.take(Uuid::from_u128(3));
        assert_eq!(ask(&mut forwards), [(5, Way::Past)], "that was answered");
        forwards.take(Uuid::from_u128(1));
        assert_eq!(ask(&mut forwards), [(2, Way::InOrder), (4, Way::InOrder)]);
        forwards.ask_again();
        assert_eq!(ask(&mut forwards), [2, 4, 5, 6].map(|eid| (eid, Way::InOrder)));
    }

    #[test]
    fn what_is_longer_than_all_goes_when_nothing_is_asked_in_order() {
        let mut forwards = Forwards::default();
        forwards.push(of(1, 1, 10), 0);
        assert_eq!(ask(&mut forwards), [(1, Way::InOrder)]);
        forwards.push(of(2, 2, ASKED_BYTES_MAX + 1), 0);
        forwards.push(of(3, 3, 10), 0);
        assert_eq!(ask(&mut forwards), [(3, Way::Past)]);
        forwards.take(Uuid::from_u128(1));
        assert_eq!(ask(&mut forwards), [(2, Way::InOrder)]);
        forwards.push(of(4, 4, 10), 0);
        assert_eq!(ask(&mut forwards), [(4, Way::Past)]);
    }

    #[test]
    fn what_nobody_waits_for_is_not_asked_again_but_under_locks() {
        let mut forwards = Forwards::default();
        let mut under_lock = of(1, 2, 10);
        under_lock.locks = Some(vec![Held::elsewhere("lock".to_owned())]);
        forwards.push(of(1, 1, 10), 0);
        forwards.push(under_lock, 0);
        forwards.push(of(2, 3, 10), 0);
        let gone = forwards.take_gone(|session| session == SessionId(2));
        let gone: Vec<u128> = gone.iter().map(|trigger| trigger.origin.eid.to_u128()).collect();
        assert_eq!(gone, [1]);
        assert_eq!(forwards.new_ones().len(), 2);
    }

    /// An earlier leader may have made an entry of it, on which the next owner of the lock has to wait.
    #[test]
    fn what_a_leader_was_asked_for_under_a_lock_is_asked_for_again_though_its_client_has_left() {
        let mut forwards = Forwards::default();
        for eid in 1..=3 {
            let mut trigger = of(1, eid, 10);
            trigger.locks = (eid > 1).then(|| vec![Held::elsewhere("lock".to_owned())]);
            trigger.since = (eid < 3).then_some(7);
            forwards.push(trigger, 0);
        }
        let gone = forwards.forget_session(SessionId(1));
        let gone: Vec<u128> = gone.iter().map(|trigger| trigger.origin.eid.to_u128()).collect();
        assert_eq!(gone, [1, 3]);
        assert_eq!(forwards.asked().count(), 1);
        assert_eq!(forwards.new_ones().len(), 1);
    }

    /// This member takes no entries, for its disk is full, say.
    #[test]
    fn replies_that_wait_are_bounded_and_go_with_their_clients() {
        let at = Position { term: 1, index: 7 };
        let mut forwards = Forwards::default();
        for eid in 1..=3 {
            forwards.push(of(1, eid, 10), 0);
        }
        let numbers = forwards.new_ones();
        let long = || vec![b' '; REPLY_BYTES_MAX / 2 + 1];
        forwards.number(numbers[0]).state = State::Empty(at, long());
        forwards.push(of(2, 4, 10), 0);
        assert_eq!(ask(&mut forwards), [2, 3, 4].map(|eid| (eid, Way::InOrder)));
        forwards.number(numbers[1]).state = State::Entry(at, Some(long()));
        forwards.push(of(2, 5, 10), 0);
        assert_eq!(ask(&mut forwards), []);
        let gone = forwards.forget_session(SessionId(1));
        assert_eq!(
            gone.iter().map(|trigger| trigger.origin.eid.to_u128()).collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(ask(&mut forwards), [(5, Way::InOrder)]);
        let State::Entry(_, Some(reply)) = &forwards.number(numbers[1]).state else {
            panic!("an entry")
        };
        assert!(reply.is_empty());
    }

    #[test]
    fn a_reply_is_that_of_its_entry_whoever_leads() {
        let at = |term, index| Position { term, index };
        let known_at = |place| {
            let eid = Uuid::from_u128(5);
            let mut forwards = Forwards::default();
            forwards.push(Trigger::empty(eid), 0);
            let [number] = forwards.new_ones()[..] else { panic!("one request") };
            forwards.number(number).state = State::Entry(at(3, 7), Some(b"[]".to_vec()));
            forwards.ask_again();
            forwards.take(eid).expect("it is there").take_known(place)
        };
        assert_eq!(known_at(at(3, 7)), Some(b"[]".to_vec()));
        assert_eq!(known_at(at(4, 7)), None, "the next leader has made another entry of it");
    }

    /// Or the leader has said something of it that is as of another state.
    #[test]
    fn a_transaction_under_a_chosen_id_is_answered_with_its_entry() {
        let (eid, id) = (Uuid::from_u128(5), Uuid::from_u128(6));
        let chosen = Chosen { id, since: Uuid::ZERO };
        let place = Position { term: 3, index: 7 };
        let is_answered_so = |once, attempts, state| {
            let mut trigger = Trigger::empty(eid);
            trigger.set_once(Some(once));
            let mut forwards = Forwards::default();
            forwards.push(trigger, 0);
            let [number] = forwards.new_ones()[..] else { panic!("one request") };
            let forward = forwards.number(number);
            (forward.attempts, forward.state) = (attempts, state);
            forwards.awaits_entry(id, place).is_some()
        };
        let at = Position { term: 3, index: 6 };
        let empty = |reply: &[u8]| State::Empty(at, reply.to_vec());
        assert!(is_answered_so(Once::Transact(chosen), 1, State::New));
        assert!(!is_answered_so(Once::Transact(chosen), 0, State::New), "nobody was asked");
        assert!(is_answered_so(Once::Transact(chosen), 1, empty(b"null")));
        assert!(!is_answered_so(Once::Transact(chosen), 1, empty(b"[{}]")));
        assert!(is_answered_so(Once::Transact(chosen), 1, State::Empty(place, b"[{}]".to_vec())));
        assert!(!is_answered_so(Once::Transact(chosen), 1, State::Waits(at)));
        assert!(!is_answered_so(Once::Outcome(chosen), 1, State::New), "it is no transaction");
    }
}
