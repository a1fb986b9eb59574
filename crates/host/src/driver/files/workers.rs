//! Workers for the core's pieces of work: threads of which a few run at once, and clients that take
//! turns.
//!
//! 1. A client's pieces of work are done in their order, one at a time.
//! 2. Clients take turns. A turn ends with the piece of work, or when it has lasted for
//!    [`TURN`] while others wait: then the thread rests in the middle of its work, and
//!    another goes on. So what is short never waits long for what is long.
//! 3. Who has had a turn lets one turn of others pass for each millisecond of it, up to
//!    [`PASSED_BY_MAX`]. So what is short does not wait for a turn of each that is long, and what is
//!    long goes on, however many short ones come.
//! 4. What a client has no interest in any more is not begun, and is told to stop if it has.
//! 5. [`BEGUN_MAX`] clients have something begun that may rest. Who has had a long turn just now
//!    leaves [`SPARE_MAX`] of these places to others, but for one at a time that has let pass all it
//!    had to; and while somebody waits for a place, what was
//!    asked for first runs to its end, beside the turns of the others. What is nobody's in
//!    particular, as updates of a database, needs no place, and goes first among those that have
//!    waited for less than twice [`PASSED_BY_MAX`] turns.
//!
//! A transaction that runs asks about once a millisecond whether it is to go on, as do updates that
//! are composed; that is when turns end. Other pieces of work are done in one go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_server::event::SessionId;
use weir_server::work::{Asker, Watcher, Word, Work, WorkId};

use crate::driver::files::jobs::Done;
use crate::driver::threads::Reporter;

/// How long a turn lasts at least, while others wait.
const TURN: Duration = Duration::from_millis(20);

/// Most turns of others that pass a client because it has had a long one.
const PASSED_BY_MAX: u64 = 16;

/// Most pieces of clients' work that have been begun and may rest; beyond that, only other work is
/// begun until one of them is done.
const BEGUN_MAX: usize = 32;

/// How many of those places are for clients that have not had a long turn just now.
const SPARE_MAX: usize = 8;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Client {
    Session(SessionId),
    /// A request of another member of a cluster.
    Peer(u64),
    /// A piece of work that is for nobody in particular.
    Own(WorkId),
}

/// A piece of work.
struct Task {
    id: WorkId,
    client: Client,
    work: Work,
    /// What has been said to it before it began.
    word: Word,
    /// The work is a client's, asks whether it is to go on, and may rest in between: one of the
    /// places for such work is its own from its first turn to its end.
    takes_place: bool,
}

/// Threads for one kind of work.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    turns: Mutex<Turns>,
    /// A piece of work is to be begun.
    came: Condvar,
    /// A piece of work that rests is to go on.
    resumed: Condvar,
    running_max: usize,
    /// How much the threads yield to the loop.
    nice: Option<i32>,
    /// Whether work asks if it is to go on.
    is_watched: bool,
    reporter: Reporter<Done>,
}

/// Who waits for a turn, and who has one.
#[derive(Default)]
struct Turns {
    order: Order,
    /// Turns ever given.
    given: u64,
    /// Clients that had a turn lately, and how many turns must have been given before their next.
    places: BTreeMap<Client, u64>,
    clients: BTreeMap<Client, Wishes>,
    /// Whose each piece of work is that is not done.
    of: BTreeMap<WorkId, Client>,
    /// What has been given a turn, and no thread has begun.
    ready: VecDeque<Task>,
    /// What has been given a turn in the middle of its work.
    to_resume: BTreeSet<WorkId>,
    /// How many have a turn.
    running: usize,
    /// What has been given its first turn and is not done, and what was said to it.
    begun: BTreeMap<WorkId, Word>,
    /// What of the begun work takes a place.
    taken: BTreeSet<WorkId>,
    /// Which of that took a spare place, though its client had had a long turn.
    overdue: Option<WorkId>,
    threads: usize,
    /// Threads with nothing to do.
    idle: usize,
    /// How often these were asked to give memory back, and how they do it.
    trims: (u64, Option<fn()>),
}

/// What is to be done for a client.
#[derive(Default)]
struct Wishes {
    waiting: VecDeque<Task>,
    /// What rests in the middle.
    resting: Option<WorkId>,
    /// Where the client stands while it waits for its turn.
    standing: Option<(Kind, Standing)>,
    /// Since when the client has its turn.
    since: Option<Instant>,
}

impl Wishes {
    /// What comes next.
    fn kind(&self, had_much: bool) -> Kind {
        match (self.resting, self.waiting.front()) {
            (Some(_), _) => Kind::Resting,
            (None, Some(task)) if !task.takes_place => Kind::Free,
            (None, Some(_)) if had_much => Kind::Sated,
            (None, Some(_)) => Kind::Fresh,
            (None, None) => unreachable!("who has nothing to do waits for no turn"),
        }
    }
}

/// What a client that waits for a turn is to do in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To go on with what rests.
    Resting,
    /// To begin what needs no place.
    Free,
    /// To begin what needs one.
    Fresh,
    /// To begin what needs one, and it had a long turn just before it lined up.
    Sated,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Resting, Self::Free, Self::Fresh, Self::Sated];

    /// How many places must be left for who is of this kind; `None` if there need be none.
    fn places_left_min(self) -> Option<usize> {
        match self {
            Self::Resting | Self::Free => None,
            Self::Fresh => Some(1),
            Self::Sated => Some(1 + SPARE_MAX),
        }
    }
}

/// Where a client stands: those with a lower place have their turns first, and of these who has waited longest.
type Standing = (u64, i64);

/// Clients with something to do and without a turn.
#[derive(Default)]
struct Order {
    by_kind: [BTreeMap<Standing, Client>; 4],
    /// Numbers have been given in this range, to who comes last at its end.
    numbers: Range<i64>,
}

impl Order {
    fn is_empty(&self) -> bool {
        self.by_kind.iter().all(BTreeMap::is_empty)
    }

    fn has(&self, kind: Kind) -> bool {
        !self.by_kind[kind as usize].is_empty()
    }

    fn first(&self, kind: Kind) -> Option<(Standing, Client)> {
        let (standing, client) = self.by_kind[kind as usize].first_key_value()?;
        Some((*standing, *client))
    }

    /// Lines a client up behind all with the same place.
    fn push_last(&mut self, client: Client, kind: Kind, place: u64) -> (Kind, Standing) {
        self.numbers.end += 1;
        self.push(client, kind, (place, self.numbers.end - 1))
    }

    /// Lines a client up before all others.
    fn push_first(&mut self, client: Client, kind: Kind) -> (Kind, Standing) {
        self.numbers.start -= 1;
        self.push(client, kind, (0, self.numbers.start))
    }

    fn push(&mut self, client: Client, kind: Kind, standing: Standing) -> (Kind, Standing) {
        self.by_kind[kind as usize].insert(standing, client);
        (kind, standing)
    }

    fn remove(&mut self, (kind, standing): (Kind, Standing)) {
        let client = self.by_kind[kind as usize].remove(&standing);
        assert!(client.is_some(), "who leaves has lined up");
    }
}

impl Workers {
    /// Threads of which `running_max` run at once, started when they are needed.
    pub(super) fn new(
        running_max: usize,
        nice: Option<i32>,
        is_watched: bool,
        reporter: Reporter<Done>,
    ) -> Self {
        let (turns, came, resumed) = Default::default();
        let shared = Shared { turns, came, resumed, running_max, nice, is_watched, reporter };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a piece of work, which waits for its turn.
    pub(super) fn push(&self, id: WorkId, of: Asker, work: Work) {
        let client = match of {
            Asker::Session(session) => Client::Session(session),
            Asker::Peer(number) => Client::Peer(number),
            Asker::Server => Client::Own(id),
        };
        let mut turns = self.shared.lock();
        let may_rest = self.shared.is_watched && work.may_rest();
        let takes_place = may_rest && of != Asker::Server;
        turns.add(Task { id, client, work, word: Word::GoOn, takes_place });
        self.shared.give_turns(&mut turns);
        // The system has no thread for us: better slowly than never.
        while turns.threads == 0
            && let Some(task) = turns.ready.pop_front()
        {
            drop(turns);
            self.shared.run(task);
            turns = self.shared.lock();
        }
    }

    /// Each thread with nothing to do calls `trim` once.
    pub(super) fn trim_idle(&self, trim: fn()) {
        let mut turns = self.shared.lock();
        turns.trims.0 += 1;
        turns.trims.1 = Some(trim);
        self.shared.came.notify_all();
    }

    /// Says something to a piece of work, if it is here and not done.
    pub(super) fn say(&self, id: WorkId, word: Word) {
        let mut turns = self.shared.lock();
        if turns.say(id, word) {
            self.shared.give_turns(&mut turns);
        }
    }
}

impl Turns {
    fn add(&mut self, task: Task) {
        let client = task.client;
        let is_new = !self.clients.contains_key(&client);
        self.of.insert(task.id, client);
        self.clients.entry(client).or_default().waiting.push_back(task);
        if is_new {
            self.line_up(client);
        }
    }

    /// What is to be done for a client that waits for a turn or has one.
    fn wishes(&mut self, client: Client) -> &mut Wishes {
        self.clients.get_mut(&client).expect("who waits for a turn or has one has wishes")
    }

    /// A client waits for its turn from now on.
    fn line_up(&mut self, client: Client) {
        let place = match client {
            Client::Session(_) | Client::Peer(_) => {
                self.places.get(&client).copied().unwrap_or(self.given)
            }
            Client::Own(_) => self.given.saturating_sub(PASSED_BY_MAX),
        };
        let had_much = place > self.given + PASSED_BY_MAX / 2;
        let wishes = self.wishes(client);
        let kind = wishes.kind(had_much);
        let is_thrown_away = kind == Kind::Free
            && wishes.waiting.front().is_some_and(|task| task.word == Word::Stop);
        let standing = match is_thrown_away {
            true => self.order.push_first(client, kind),
            false => self.order.push_last(client, kind, place),
        };
        self.wishes(client).standing = Some(standing);
    }

    /// A client's turn is over.
    fn end_turn(&mut self, client: Client, now: Instant) {
        self.running -= 1;
        let since = self.wishes(client).since.take().expect("a turn that ends has begun");
        let millis = now.saturating_duration_since(since).as_millis();
        let passed_by = u64::try_from(millis).unwrap_or(u64::MAX).min(PASSED_BY_MAX);
        self.places.insert(client, self.given + passed_by);
        // No more of them are left than turns were given while the last of them may be passed.
        self.places.retain(|_, place| *place > self.given);
    }

    /// Whether the turn that a client has has lasted as long as it may while others wait.
    fn has_had_turn(&self, client: Client, now: Instant) -> bool {
        let since = self.clients[&client].since.expect("who runs has a turn");
        now.saturating_duration_since(since) >= TURN
    }

    /// Gives the next client a turn, if one may have it.
    fn give_turn(&mut self, may_begin: bool, now: Instant) -> bool {
        let first = || {
            let may_go = |kind: &Kind| match kind {
                Kind::Resting => true,
                Kind::Sated => may_begin && (self.has_place_for(*kind) || self.may_overdue_begin()),
                Kind::Free | Kind::Fresh => may_begin && self.has_place_for(*kind),
            };
            let first =
                Kind::ALL.into_iter().filter(may_go).filter_map(|kind| self.order.first(kind));
            first.min_by_key(|(standing, _)| *standing).map(|(_, client)| client)
        };
        let Some(client) = self.first_to_end().or_else(first) else { return false };
        let has_own_place = self.has_place_for(Kind::Sated);
        let wishes = self.wishes(client);
        wishes.since = Some(now);
        let standing = wishes.standing.take().expect("who is given a turn has waited for it");
        let kind = standing.0;
        if let Some(id) = wishes.resting.take() {
            self.to_resume.insert(id);
        } else {
            let task = wishes.waiting.pop_front().expect("who has nothing to do has no turn");
            self.begun.insert(task.id, task.word);
            let is_overdue = kind == Kind::Sated && !has_own_place;
            if is_overdue {
                self.overdue = Some(task.id);
            }
            if task.takes_place {
                self.taken.insert(task.id);
            }
            self.ready.push_back(task);
        }
        self.order.remove(standing);
        self.running += 1;
        self.given += 1;
        true
    }

    /// Whether what a client has waiting may be begun.
    fn has_place_for(&self, kind: Kind) -> bool {
        kind.places_left_min().is_none_or(|least| self.taken.len() + least <= BEGUN_MAX)
    }

    /// Whether the first of those that had a long turn has let pass all it had to, and may take a spare place: always
    /// others might come who have had none.
    fn may_overdue_begin(&self) -> bool {
        let first = self.order.first(Kind::Sated);
        let is_due = first.is_some_and(|((place, _), _)| place <= self.given);
        is_due && self.overdue.is_none() && self.has_place_for(Kind::Fresh)
    }

    /// Who rests and whose work is to end first, for others wait for its place.
    fn first_to_end(&self) -> Option<Client> {
        let first = self.taken.first()?;
        let waits = |kind: Kind| self.order.has(kind) && !self.has_place_for(kind);
        let client = Kind::ALL.into_iter().any(waits).then(|| self.of[first])?;
        (self.clients[&client].resting == Some(*first)).then_some(client)
    }

    /// A piece of work has ended, or could not begin: its place is free.
    fn is_begun_no_more(&mut self, id: WorkId) {
        self.begun.remove(&id);
        self.taken.remove(&id);
        self.overdue = self.overdue.filter(|overdue| *overdue != id);
    }

    /// There is no thread for what was given its first turn last.
    fn put_back(&mut self) {
        let Some(task) = self.ready.pop_back() else { return };
        self.running -= 1;
        self.is_begun_no_more(task.id);
        let client = task.client;
        let wishes = self.wishes(client);
        wishes.since = None;
        wishes.waiting.push_front(task);
        self.line_up(client);
    }

    /// A turn is over, and the piece of work rests.
    fn rest(&mut self, client: Client, id: WorkId, now: Instant) {
        self.end_turn(client, now);
        self.wishes(client).resting = Some(id);
        self.line_up(client);
    }

    /// A piece of work is done.
    fn end(&mut self, client: Client, id: WorkId, now: Instant) {
        self.end_turn(client, now);
        self.of.remove(&id);
        self.is_begun_no_more(id);
        if self.wishes(client).waiting.is_empty() {
            self.clients.remove(&client);
        } else {
            self.line_up(client);
        }
    }

    /// True if turns may have changed.
    fn say(&mut self, id: WorkId, word: Word) -> bool {
        let Some(client) = self.of.get(&id).copied() else { return false };
        let wishes = self.clients.get_mut(&client).expect("it has something to do");
        if let Some(said) = self.begun.get_mut(&id) {
            *said = word.max(*said);
            if wishes.resting != Some(id) {
                return false;
            }
        } else {
            let task = wishes.waiting.iter_mut().find(|task| task.id == id);
            let task = task.expect("what has not begun waits");
            task.word = word.max(task.word);
            // What is only thrown away does not wait for a place: its message stays as long.
            task.takes_place &= task.word != Word::Stop;
        }
        // What ends soon goes first.
        let Some(standing) = wishes.standing.filter(|_| word == Word::Stop) else { return false };
        self.order.remove(standing);
        let kind = wishes.kind(standing.0 == Kind::Sated);
        wishes.standing = Some(self.order.push_first(client, kind));
        true
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All clients' work that may rest does, and as much other runs as may.
    fn threads_max(&self) -> usize {
        BEGUN_MAX + self.running_max
    }

    /// Gives turns as long as there are any.
    fn give_turns(self: &Arc<Self>, turns: &mut Turns) {
        let (mut may_begin, now) = (true, Instant::now());
        loop {
            while turns.running < self.running_max && turns.give_turn(may_begin, now) {}
            while turns.ready.len() > turns.idle
                && turns.threads < self.threads_max()
                && self.start_thread()
            {
                turns.threads += 1;
                // The thread counts as one with nothing to do until it has begun.
                turns.idle += 1;
            }
            if turns.threads == 0 || turns.ready.len() <= turns.idle {
                break;
            }
            // The system has no more threads: those that rest go on.
            while turns.ready.len() > turns.idle {
                turns.put_back();
            }
            may_begin = false;
        }
        self.came.notify_all();
        self.resumed.notify_all();
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let shared = Arc::clone(self);
        let body = move || {
            shared.nice.into_iter().for_each(be_nice);
            let mut trims = 0;
            loop {
                let task = shared.begin(&mut trims);
                shared.run(task);
            }
        };
        thread::Builder::new().name("work".to_owned()).spawn(body).is_ok()
    }

    /// Waits for a piece of work that has been given a turn; `trims` is how often the thread was
    /// asked to give memory back, and did.
    fn begin(&self, trims: &mut u64) -> Task {
        let mut turns = self.lock();
        loop {
            if let Some(task) = turns.ready.pop_front() {
                turns.idle -= 1;
                return task;
            }
            turns = match turns.trims {
                (asked, Some(trim)) if std::mem::replace(trims, asked) < asked => {
                    drop(turns);
                    trim();
                    self.lock()
                }
                _ => self.came.wait(turns).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn run(self: &Arc<Self>, task: Task) {
        let Task { id, client, work, word, .. } = task;
        let finished = catch_unwind(AssertUnwindSafe(|| {
            if word == Word::Stop {
                return work.stopped();
            }
            let watcher = self.is_watched.then(|| self.watcher(client, id));
            work.run_watched(watcher.as_ref())
        }));
        let mut turns = self.lock();
        turns.end(client, id, Instant::now());
        if turns.threads > 0 {
            turns.idle += 1;
        }
        self.give_turns(&mut turns);
        drop(turns);
        self.reporter.report(Done::Work(id, finished.ok().map(Box::new)));
    }

    /// Whom a piece of work asks whether it is to go on: the answer waits for its next turn.
    fn watcher(self: &Arc<Self>, client: Client, id: WorkId) -> Watcher {
        let shared = Arc::clone(self);
        Watcher::new(move || {
            let mut turns = shared.lock();
            let now = Instant::now();
            if turns.has_had_turn(client, now) && !turns.order.is_empty() {
                turns.rest(client, id, now);
                shared.give_turns(&mut turns);
                while !turns.to_resume.remove(&id) {
                    turns = shared.resumed.wait(turns).unwrap_or_else(PoisonError::into_inner);
                }
            }
            turns.begun.get(&id).copied().unwrap_or(Word::Stop)
        })
    }
}

/// The calling thread yields to those that answer clients.
pub(super) fn be_nice(nice: i32) {
    // Where that is refused, it goes on as it is.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::driver::threads::Threads;

    const A: Client = Client::Session(SessionId(1));
    const B: Client = Client::Session(SessionId(2));
    const C: Client = Client::Session(SessionId(3));

    /// One moment, however long a test is held up: no turn takes any time but where a test says so.
    fn now() -> Instant {
        static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
        *NOW
    }

    fn add(turns: &mut Turns, client: Client, id: u64) {
        let (id, work) = (WorkId(id), Work::Examine(Vec::new()));
        turns.add(Task { id, client, work, word: Word::GoOn, takes_place: true });
    }

    /// Who gets the next turn, and goes on with what.
    fn next(turns: &mut Turns) -> Option<WorkId> {
        turns.give_turn(true, now()).then(|| match turns.ready.pop_front() {
            Some(task) => task.id,
            None => turns.to_resume.pop_first().expect("a turn begins something or goes on"),
        })
    }

    #[test]
    fn who_asks_for_much_holds_up_nobody_else() {
        let mut turns = Turns::default();
        (0..100).for_each(|id| add(&mut turns, A, id));
        assert_eq!(next(&mut turns), Some(WorkId(0)));
        assert_eq!(next(&mut turns), None, "one thing at a time for each");
        add(&mut turns, B, 200);
        assert_eq!(next(&mut turns), Some(WorkId(200)));
        turns.end(A, WorkId(0), now());
        add(&mut turns, C, 300);
        turns.end(B, WorkId(200), now());
        // B is not there any more.
        assert_eq!(next(&mut turns), Some(WorkId(1)));
        assert_eq!(next(&mut turns), Some(WorkId(300)));
    }

    #[test]
    fn what_is_long_rests_while_others_have_their_turns() {
        let mut turns = Turns::default();
        add(&mut turns, A, 1);
        add(&mut turns, A, 2);
        add(&mut turns, B, 3);
        assert_eq!(next(&mut turns), Some(WorkId(1)));
        turns.rest(A, WorkId(1), now());
        assert_eq!(next(&mut turns), Some(WorkId(3)));
        turns.rest(B, WorkId(3), now());
        // What has been begun goes on before the client's next begins.
        assert_eq!(next(&mut turns), Some(WorkId(1)));
        turns.end(A, WorkId(1), now());
        assert_eq!(next(&mut turns), Some(WorkId(3)));
        assert_eq!(next(&mut turns), Some(WorkId(2)));
        turns.end(B, WorkId(3), now());
        turns.end(A, WorkId(2), now());
        assert_eq!((turns.running, turns.clients.len(), turns.of.len()), (0, 0, 0));
        assert!(turns.order.is_empty());
    }

    #[test]
    fn what_is_short_passes_what_is_long_and_not_for_ever() {
        let (mut turns, begin) = (Turns::default(), now());
        let long = [10, 11, 12].map(|n| Client::Session(SessionId(n)));
        for (n, client) in (0..).zip(long) {
            add(&mut turns, client, n);
            assert_eq!(next(&mut turns), Some(WorkId(n)));
            turns.rest(client, WorkId(n), begin + Duration::from_secs(3600));
        }
        // Two clients with short pieces, and always one of them waits.
        let of = |id: u64| if id.is_multiple_of(2) { A } else { B };
        add(&mut turns, A, 100);
        let passed = (101..).position(|id| {
            add(&mut turns, of(id), id);
            let given = next(&mut turns).expect("two wait");
            if given.0 >= 100 {
                turns.end(of(given.0), given, begin);
            }
            given == WorkId(0)
        });
        let most = PASSED_BY_MAX as usize;
        assert!(passed.is_some_and(|passed| (1..=most).contains(&passed)), "{passed:?} passed it");
        // Who asks again at once for what is long does not pass for it.
        turns.end(long[0], WorkId(0), begin + Duration::from_secs(7200));
        add(&mut turns, long[0], 3);
        let mut given = std::iter::from_fn(|| next(&mut turns)).filter(|id| id.0 < 100);
        assert_eq!([given.next(), given.next(), given.next()].map(|id| id.unwrap().0), [1, 2, 3]);
    }

    #[test]
    fn what_is_to_stop_goes_first() {
        let mut turns = Turns::default();
        add(&mut turns, A, 1);
        assert_eq!(next(&mut turns), Some(WorkId(1)));
        add(&mut turns, B, 2);
        add(&mut turns, C, 3);
        assert!(turns.say(WorkId(3), Word::Stop));
        assert_eq!(next(&mut turns), Some(WorkId(3)));
        assert_eq!(turns.begun[&WorkId(3)], Word::Stop);
        turns.rest(A, WorkId(1), now());
        assert!(turns.say(WorkId(1), Word::Stop));
        assert!(!turns.say(WorkId(1), Word::Hurry), "a word is never taken back");
        assert_eq!(next(&mut turns), Some(WorkId(1)));
        assert_eq!(turns.begun[&WorkId(1)], Word::Stop);
        assert!(!turns.say(WorkId(77), Word::Stop), "what is done hears nothing");
    }

    #[test]
    fn a_request_of_another_member_takes_turns_as_a_client_does() {
        let mut turns = Turns::default();
        let (peer, later) = (Client::Peer(1), now() + Duration::from_secs(1));
        add(&mut turns, peer, 1);
        add(&mut turns, A, 2);
        for (client, id) in [(peer, 1), (A, 2), (peer, 1), (A, 2)] {
            assert_eq!(next(&mut turns), Some(WorkId(id)));
            turns.rest(client, WorkId(id), later);
        }
    }

    /// All places are taken by clients whose work rests.
    fn fill(turns: &mut Turns) {
        let clients = (0..BEGUN_MAX as u64).map(|id| (id, Client::Session(SessionId(100 + id))));
        for (id, client) in clients.clone() {
            add(turns, client, id);
            assert_eq!(next(turns), Some(WorkId(id)));
        }
        clients.for_each(|(id, client)| turns.rest(client, WorkId(id), now()));
    }

    #[test]
    fn no_more_is_begun_than_there_may_be_threads() {
        let mut turns = Turns::default();
        fill(&mut turns);
        add(&mut turns, A, 100);
        // What was asked for first goes on without a rest, beside the turns of the others.
        let first = Client::Session(SessionId(100));
        assert_eq!([next(&mut turns), next(&mut turns)], [0, 1].map(|id| Some(WorkId(id))));
        turns.rest(first, WorkId(0), now());
        assert_eq!(next(&mut turns), Some(WorkId(0)));
        turns.end(first, WorkId(0), now());
        let has_turn = (0..BEGUN_MAX).any(|_| next(&mut turns) == Some(WorkId(100)));
        assert!(has_turn, "it has its place");
    }

    #[test]
    fn what_is_only_thrown_away_needs_no_place() {
        let mut turns = Turns::default();
        fill(&mut turns);
        add(&mut turns, A, 100);
        add(&mut turns, A, 101);
        assert!(turns.say(WorkId(101), Word::Stop) && turns.say(WorkId(100), Word::Stop));
        let mut given = Vec::new();
        while let Some(id) = next(&mut turns).filter(|_| given.len() < 4) {
            given.push(id);
            if id.0 >= 100 {
                turns.end(A, id, now());
            }
        }
        assert_eq!(given[..2], [100, 101].map(WorkId));
    }

    #[test]
    fn what_is_nobody_s_needs_no_place() {
        let mut turns = Turns::default();
        fill(&mut turns);
        let (id, work) = (WorkId(200), Work::Examine(Vec::new()));
        let client = Client::Own(id);
        turns.add(Task { id, client, work, word: Word::GoOn, takes_place: false });
        let turns_before = (0..=BEGUN_MAX).position(|_| next(&mut turns) == Some(id));
        assert!(turns_before.is_some());
    }

    #[test]
    fn some_places_are_for_those_that_have_not_had_much() {
        let mut turns = Turns::default();
        fill(&mut turns);
        let begin = now();
        // Three end after a long turn, and their clients come again at once.
        let three = [100, 101, 102].map(|n| Client::Session(SessionId(n)));
        for (n, client) in (0..).zip(three) {
            assert_eq!(next(&mut turns), Some(WorkId(n)));
            add(&mut turns, client, 300 + n);
        }
        let later = begin + Duration::from_secs(3600);
        (0..).zip(three).for_each(|(n, client)| turns.end(client, WorkId(n), later));
        add(&mut turns, A, 400);
        let given: Vec<_> = std::iter::from_fn(|| next(&mut turns)).collect();
        assert!(given.contains(&WorkId(400)), "{given:?}");
        // One of the three is not passed for ever, however many others come.
        let places = (0..).zip(&given).filter(|(_, id)| (300..303).contains(&id.0));
        let places: Vec<u64> = places.map(|(place, _)| place).collect();
        assert!(matches!(places[..], [place] if place >= PASSED_BY_MAX), "{given:?}");
        // The next one of them may begin when that is done.
        assert_eq!(turns.overdue, Some(WorkId(300)));
        turns.end(three[0], WorkId(300), later);
        assert_eq!(next(&mut turns), Some(WorkId(301)));
    }

    #[test]
    fn threads_with_nothing_to_do_give_memory_back_when_they_are_asked() {
        static TRIMS: AtomicU32 = AtomicU32::new(0);
        let trim: fn() = || {
            TRIMS.fetch_add(1, Ordering::Relaxed);
        };
        let wait_for = |trims| {
            let start = Instant::now();
            while TRIMS.load(Ordering::Relaxed) != trims {
                assert!(start.elapsed() < Duration::from_secs(60), "{TRIMS:?} for {trims}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let threads = Threads::new().expect("a pipe");
        let workers = Workers::new(1, None, false, threads.reporter().clone());
        workers.trim_idle(trim);
        workers.push(WorkId(1), Asker::Server, Work::Examine(Vec::new()));
        // One that was asked before it was there gives back what it has.
        wait_for(1);
        for asked in 2..5 {
            workers.trim_idle(trim);
            wait_for(asked);
        }
    }
}
