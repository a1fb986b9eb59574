//! What a relay asks its source for at a time: how much of one client, and under a lock of one client only.
//!
//! What a source has not begun waits in the gate of the client's channel there, and a source with a full gate reads nothing
//! more of the connection: nobody else's requests would come through. So a client that asks for much waits here, and those
//! who come behind it go past.
//!
//! To the source the clients of a relay have a lock together, and it runs what different ones ask in any order. So what is
//! asked for under a lock waits as long as the source has something that another client has asked for under it, who may have
//! left since, or lost it; as long as nobody knows what has become of something that a source before had under it, which
//! may stand still with it; and until the source has answered whether the relay has the lock.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::Trigger;
use crate::ids::SessionId;
use crate::session::gate::QUEUED_BYTES_MAX;

/// The source has no more of a client than this, or one request that is longer, before it has answered, in bytes. What
/// stands around the requests has room in the gate there, too.
const CLIENT_BYTES_MAX: usize = QUEUED_BYTES_MAX / 2;

/// Which of the requests that wait are to be sent, by their places in the order of all.
#[derive(Debug, Default)]
pub(super) struct Window {
    ready: BTreeSet<i64>,
    /// Requests that go when the source has nothing of their clients, and nothing that it has answered is to come here.
    alone: BTreeSet<i64>,
    /// Requests of clients of whom the source has enough.
    held: BTreeMap<SessionId, BTreeSet<i64>>,
    /// Some of those come behind what a helper of this server has of their clients.
    is_held_for_helpers: bool,
    at_source: BTreeMap<SessionId, Asked>,
    /// How many answers of a client wait for the states that they are of.
    early: BTreeMap<SessionId, usize>,
    /// How many requests the source has under each lock, and whose.
    under: BTreeMap<String, BTreeMap<SessionId, usize>>,
    /// How many requests a source before had under each lock that may be made yet.
    in_doubt: BTreeMap<String, usize>,
    /// Locks that the source is being asked for, by the numbers of those requests.
    asked_for: BTreeMap<u64, String>,
}

/// What the source has of a client.
#[derive(Debug, Default)]
struct Asked {
    count: usize,
    bytes: usize,
    /// How many of those may have to be sent once more: what the client asks next comes behind them.
    bars: usize,
}

impl Window {
    /// A request waits at this place.
    pub(super) fn enter(&mut self, place: i64) {
        self.ready.insert(place);
    }

    /// The request at this place is not for the source: it goes when nothing of its client is on its way there or back.
    pub(super) fn go_alone(&mut self, place: i64) {
        self.alone.insert(place);
    }

    /// The request at this place comes behind what a helper has of its client.
    pub(super) fn hold_for_helper(&mut self, place: i64, session: SessionId) {
        assert!(self.ready.remove(&place), "it was to be sent next");
        self.held.entry(session).or_default().insert(place);
        self.is_held_for_helpers = true;
    }

    /// Helpers may have done what requests come behind.
    pub(super) fn look_again(&mut self) {
        if std::mem::take(&mut self.is_held_for_helpers) {
            self.release_all();
        }
    }

    /// Whether the source has something of a client, or has answered what has not come here.
    pub(super) fn has_some_of(&self, session: SessionId) -> bool {
        self.at_source.contains_key(&session) || self.early.contains_key(&session)
    }

    /// An answer to a client waits for the state that it is of.
    pub(super) fn keeps_early(&mut self, session: SessionId) {
        *self.early.entry(session).or_default() += 1;
    }

    /// An answer to a client is given, for the state that it is of has come.
    pub(super) fn gives_early(&mut self, session: SessionId) {
        let count = self.early.get_mut(&session).expect("the answer was kept");
        *count -= 1;
        if *count == 0 {
            self.early.remove(&session);
            self.ready.extend(self.held.remove(&session).into_iter().flatten());
        }
    }

    /// The request at this place waits no more.
    pub(super) fn leave(&mut self, place: i64, trigger: &Trigger) {
        self.alone.remove(&place);
        if self.ready.remove(&place) {
            return;
        }
        let session = trigger.origin.session().expect("only clients are held");
        let held = self.held.get_mut(&session).expect("who is not ready is held");
        assert!(held.remove(&place), "who leaves a place has entered it");
        if held.is_empty() {
            self.held.remove(&session);
        }
    }

    /// The place of the request that is to be sent next.
    pub(super) fn next<'a>(&mut self, of: impl Fn(i64) -> &'a Trigger) -> Option<i64> {
        loop {
            let place = *self.ready.first()?;
            let trigger = of(place);
            let Some(session) = trigger.origin.session() else { return Some(place) };
            let asked = self.at_source.get(&session);
            let (bytes, is_barred) =
                asked.map_or((0, false), |asked| (asked.bytes, asked.bars > 0));
            let has_room = bytes == 0 || bytes + trigger.message.len() <= CLIENT_BYTES_MAX;
            let must_wait = is_barred || self.alone.contains(&place) && self.has_some_of(session);
            let is_next = has_room && !must_wait && !self.held.contains_key(&session);
            if is_next && !self.is_under_lock_of_others(trigger, session) {
                return Some(place);
            }
            self.ready.remove(&place);
            self.held.entry(session).or_default().insert(place);
        }
    }

    /// Whether something that others have asked for under a lock that a client asserts is to come first.
    fn is_under_lock_of_others(&self, trigger: &Trigger, session: SessionId) -> bool {
        locks(trigger).any(|name| {
            let mut sessions = self.under.get(name).into_iter().flat_map(BTreeMap::keys);
            self.is_in_doubt(name)
                || self.asked_for.values().any(|asked| asked == name)
                || sessions.any(|other| *other != session)
        })
    }

    /// Whether something may be made yet that a source before had under this lock.
    pub(super) fn is_in_doubt(&self, lock: &str) -> bool {
        self.in_doubt.contains_key(lock)
    }

    /// Something may be made yet that a source before had under these locks.
    pub(super) fn doubt(&mut self, locks: &[String]) {
        for name in locks {
            *self.in_doubt.entry(name.clone()).or_default() += 1;
        }
    }

    /// Something that a source before had under these locks has been made, or never will be.
    pub(super) fn settle(&mut self, locks: &[String]) {
        for name in locks {
            let count = self.in_doubt.get_mut(name).expect("it was in doubt");
            *count -= 1;
            if *count == 0 {
                self.in_doubt.remove(name);
            }
        }
        self.release_all();
    }

    /// The source is being asked for a lock, by the request of this number.
    pub(super) fn await_lock(&mut self, number: u64, name: String) {
        self.asked_for.insert(number, name);
    }

    /// The source has answered that request. Which lock it was for.
    pub(super) fn lock_answered(&mut self, number: u64) -> Option<String> {
        let name = self.asked_for.remove(&number)?;
        self.release_all();
        Some(name)
    }

    /// The source has been asked. What the client asks next waits for the answer if that `bars` it.
    pub(super) fn sent(&mut self, trigger: &Trigger, bars: bool) {
        let Some(session) = trigger.origin.session() else { return };
        for name in locks(trigger) {
            *self.under.entry(name.to_owned()).or_default().entry(session).or_default() += 1;
        }
        let asked = self.at_source.entry(session).or_default();
        asked.count += 1;
        asked.bytes += trigger.message.len();
        asked.bars += usize::from(bars);
    }

    /// The source has answered what was [`Self::sent`] so, and may have more of that client.
    pub(super) fn answered(&mut self, trigger: &Trigger, bars: bool) {
        let Some(session) = trigger.origin.session() else { return };
        let asked = self.at_source.get_mut(&session).expect("what is answered was sent");
        asked.count -= 1;
        asked.bytes -= trigger.message.len();
        asked.bars -= usize::from(bars);
        if asked.count == 0 {
            self.at_source.remove(&session);
        }
        self.ready.extend(self.held.remove(&session).into_iter().flatten());
        for name in locks(trigger) {
            let sessions = self.under.get_mut(name).expect("it was sent under that lock");
            let count = sessions.get_mut(&session).expect("it was sent by that client");
            *count -= 1;
            if *count == 0 {
                sessions.remove(&session);
            }
            if sessions.is_empty() {
                self.under.remove(name);
            }
        }
        if trigger.has_locks() {
            self.release_all();
        }
    }

    /// The connection has ended: the next source has nothing.
    pub(super) fn lost(&mut self) {
        self.at_source.clear();
        self.early.clear();
        self.under.clear();
        self.asked_for.clear();
        self.release_all();
    }

    /// All that is held is looked at again.
    fn release_all(&mut self) {
        self.ready.extend(std::mem::take(&mut self.held).into_values().flatten());
    }
}

/// The locks under which something is asked for.
fn locks(trigger: &Trigger) -> impl Iterator<Item = &str> {
    trigger.locks.iter().flatten().map(|held| held.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_data::Uuid;
    use weir_json::TextBuf;

    use super::*;
    use crate::ids::DbId;
    use crate::origin::{Asker, Origin};
    use crate::session::locks::Held;

    /// Requests by their places: whose each is, of how many bytes, and whether it is under a lock.
    struct Requests(Vec<Trigger>);

    impl Requests {
        fn new(requests: &[(u64, usize, bool)]) -> Self {
            let of = |&(session, bytes, is_under_lock): &(u64, usize, bool)| {
                let text = format!("[{}]", " ".repeat(bytes - 2)).into_bytes();
                let origin = Origin {
                    asker: Asker::Session(SessionId(session)),
                    identity: Arc::default(),
                    id: vec![],
                    db: DbId(1),
                    place: Default::default(),
                    created_us: 0,
                    eid: Uuid::ZERO,
                };
                let message = TextBuf::validate(text).expect("it is JSON");
                let mut trigger = Trigger::new(origin, Arc::new(message));
                let lock = is_under_lock.then(|| Held::elsewhere("l".to_owned()));
                trigger.locks = Some(lock.into_iter().collect());
                trigger
            };
            Self(requests.iter().map(of).collect())
        }

        fn window(&self) -> Window {
            let mut window = Window::default();
            (0..).zip(&self.0).for_each(|(place, _)| window.enter(place));
            window
        }

        fn of(&self, place: i64) -> &Trigger {
            &self.0[usize::try_from(place).expect("a place of the test")]
        }

        /// Sends all that may go: their places.
        fn send(&self, window: &mut Window) -> Vec<i64> {
            let next = || {
                let place = window.next(|place| self.of(place))?;
                window.leave(place, self.of(place));
                window.sent(self.of(place), false);
                Some(place)
            };
            std::iter::from_fn(next).collect()
        }
    }

    const HALF: usize = CLIENT_BYTES_MAX / 2;

    #[test]
    fn who_asks_for_much_waits_and_the_others_go_past() {
        let requests = Requests::new(&[
            (1, HALF, false),
            (1, HALF, false),
            (1, HALF, false),
            (2, 9, false),
            (1, 9, false),
            (2, 9, false),
        ]);
        let mut window = requests.window();
        assert_eq!(requests.send(&mut window), [0, 1, 3, 5]);
        window.answered(requests.of(3), false);
        assert_eq!(requests.send(&mut window), [0; 0]);
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [2], "what is short comes behind what is long");
        window.answered(requests.of(1), false);
        assert_eq!(requests.send(&mut window), [4]);
    }

    #[test]
    fn what_is_too_long_goes_alone() {
        let long = 3 * CLIENT_BYTES_MAX;
        let requests = Requests::new(&[(1, long, false), (1, long, false), (1, 9, false)]);
        let mut window = requests.window();
        assert_eq!(requests.send(&mut window), [0]);
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [1]);
        window.answered(requests.of(1), false);
        assert_eq!(requests.send(&mut window), [2]);
    }

    #[test]
    fn what_is_under_a_lock_waits_in_its_order() {
        let requests = Requests::new(&[
            (1, 2 * HALF, false),
            (1, 9, false),
            (1, HALF, true),
            (2, 9, true),
            (1, 9, true),
        ]);
        let mut window = requests.window();
        assert_eq!(requests.send(&mut window), [0, 3]);
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [1]);
        window.answered(requests.of(3), false);
        assert_eq!(requests.send(&mut window), [2, 4]);
    }

    #[test]
    fn what_is_under_a_lock_comes_behind_what_others_have_asked_for_under_it() {
        let requests = Requests::new(&[
            (1, 9, true),
            (2, 9, true),
            (2, 9, false),
            (3, 9, false),
            (1, 9, true),
            (3, 9, true),
        ]);
        let mut window = requests.window();
        assert_eq!(requests.send(&mut window), [0, 3, 4]);
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [0; 0]);
        window.answered(requests.of(4), false);
        assert_eq!(requests.send(&mut window), [1, 2]);
        window.answered(requests.of(2), false);
        assert_eq!(requests.send(&mut window), [0; 0]);
        window.answered(requests.of(1), false);
        assert_eq!(requests.send(&mut window), [5]);
    }

    #[test]
    fn what_is_under_a_lock_waits_for_what_a_source_before_had_under_it() {
        let requests = Requests::new(&[(1, 9, true), (1, 9, true), (2, 9, false)]);
        let mut window = requests.window();
        let doubt = ["l".to_owned()];
        window.lost();
        window.doubt(&doubt);
        window.doubt(&doubt);
        assert_eq!(requests.send(&mut window), [2]);
        window.settle(&doubt);
        assert_eq!(requests.send(&mut window), [0; 0]);
        window.settle(&doubt);
        assert_eq!(requests.send(&mut window), [0, 1]);
    }

    #[test]
    fn what_the_source_is_not_asked_for_comes_behind_what_it_is_to_answer() {
        let requests = Requests::new(&[(1, 9, false), (1, 9, false), (2, 9, false), (1, 9, false)]);
        let mut window = requests.window();
        window.go_alone(1);
        assert_eq!(requests.send(&mut window), [0, 2]);
        assert!(window.has_some_of(SessionId(1)) && !window.has_some_of(SessionId(3)));
        window.answered(requests.of(2), false);
        assert_eq!(requests.send(&mut window), [0; 0]);
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [1, 3]);
    }

    #[test]
    fn what_may_have_to_be_sent_once_more_has_the_rest_wait() {
        // Something else of the client stays with the source.
        let requests = Requests::new(&[(1, 9, false), (1, 9, false), (1, 9, false), (2, 9, false)]);
        let mut window = requests.window();
        for (place, bars) in [(0, false), (1, true)] {
            window.leave(place, requests.of(place));
            window.sent(requests.of(place), bars);
        }
        assert_eq!(requests.send(&mut window), [3]);
        window.answered(requests.of(1), true);
        window.enter(1);
        assert_eq!(requests.send(&mut window), [1, 2]);
    }

    #[test]
    fn what_is_answered_here_comes_behind_answers_whose_states_have_not_come() {
        let requests = Requests::new(&[(1, 9, false), (1, 9, false), (2, 9, false)]);
        let mut window = requests.window();
        window.go_alone(1);
        assert_eq!(requests.send(&mut window), [0, 2]);
        window.keeps_early(SessionId(1));
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [0; 0]);
        window.gives_early(SessionId(1));
        assert_eq!(requests.send(&mut window), [1]);
    }

    #[test]
    fn nothing_is_held_when_the_connection_has_ended() {
        let requests = Requests::new(&[(1, 2 * HALF, false), (1, 9, false), (1, 9, false)]);
        let mut window = requests.window();
        assert_eq!(requests.send(&mut window), [0]);
        window.lost();
        assert_eq!(requests.send(&mut window), [1, 2]);
        // One of those that wait is taken back.
        let mut window = requests.window();
        assert_eq!(requests.send(&mut window), [0]);
        window.leave(1, requests.of(1));
        window.answered(requests.of(0), false);
        assert_eq!(requests.send(&mut window), [2]);
    }
}
