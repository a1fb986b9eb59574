//! Locks of a relay's clients at its source (RFC 7047 §4.1.8): the relay asks for one when a client first
//! asserts it, for the source judges that. Among its clients the relay's own queue decides.
//!
//! | standing | ends by | next |
//! |---|---|---|
//! | none, and asserted here | it can be asked for, or not | asked for; lost |
//! | asked for | the answer | owned; queued; out |
//! | owned | it is stolen; the connection ends | queued, or out if it was taken by force; lost |
//! | queued, and the owner here knows | the source gives it; the connection ends | owned; lost |
//! | out, and the owner here knows | its time | asked for again |
//! | lost, and the owner here knows | there is a connection again | asked for again |
//! | asked for again | the answer; the connection ends | owned, queued, out; lost |
//! | any | somebody takes it by force here | asked for, by force, where it is not the relay's |
//! | any | nobody here has it or waits for it | none: it is given back, once the source can be told |
//! | any | its owner here asserts it in the database of another relay, and not in this one | none, likewise |
//! | owned | clients here have taken turns for some time | asked for, behind others who wait at the source |

use std::collections::BTreeMap;

use crate::ids::earliest;

/// A source that cannot give a lock, for want of room say, is asked again after this long, in microseconds.
const REFUSED_US: u64 = 8_000_000;

/// Clients here may take turns for so long, in microseconds, before others who wait at the source have theirs.
const TURNS_US_MAX: u64 = 100_000;

/// How a lock stands at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Asked for, by the request of this number: the owner here takes it for his.
    Asked { number: u64, by_force: bool },
    /// Who took it by force is in no queue once it is stolen.
    Owned { by_force: bool, heard: u64, since_us: u64 },
    /// Others have it before.
    Queued { heard: u64 },
    /// In no queue there; it is to be asked for again then.
    Out { until_us: u64 },
    /// Nobody has asked for it since a connection ended.
    Lost,
    /// Asked for, by the request of this number, after it was lost.
    AskedAgain { number: u64 },
}

/// What has become of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The owner here has it no longer.
    Lost(String),
    /// The owner here has it again.
    Back(String),
}

/// Locks that have been asked for at a source.
#[derive(Debug, Default)]
pub(crate) struct SourceLocks {
    by_name: BTreeMap<String, Standing>,
    /// Which lock a request was for that the source has not answered.
    requests: BTreeMap<u64, String>,
    /// Nothing is to be asked for or given back while no more turns than these have begun or ended here.
    settled: Option<u64>,
    /// When one is to be asked for again that the source could not give.
    next_us: Option<u64>,
}

impl SourceLocks {
    /// Whether the owner here may assert a lock, as far as is known.
    pub(crate) fn may_assert(&self, name: &str) -> bool {
        self.by_name.get(name).is_none_or(Standing::may_assert)
    }

    /// Whether the lock is the relay's at the source.
    pub(crate) fn is_owned(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(Standing::Owned { .. }))
    }

    /// Whether the lock has been asked for, and is not the relay's.
    pub(crate) fn is_elsewhere(&self, name: &str) -> bool {
        !self.is_new(name) && !self.is_owned(name)
    }

    /// Whether the relay waits for the lock at the source.
    pub(crate) fn is_queued(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(Standing::Queued { .. }))
    }

    /// How often the source has said that a lock is the relay's now, or not any more, since it was asked for.
    pub(crate) fn heard(&self, name: &str) -> u64 {
        self.by_name.get(name).map_or(0, Standing::heard)
    }

    /// The locks that have been asked for.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.by_name.keys()
    }

    /// Whether the lock has never been asked for.
    pub(crate) fn is_new(&self, name: &str) -> bool {
        !self.by_name.contains_key(name)
    }

    /// Whether somebody here who takes the lock by force is to take it at the source: it has been asked for, and is
    /// not the relay's.
    pub(crate) fn may_be_taken(&self, name: &str) -> bool {
        let is_taken = |standing: &Standing| match standing {
            Standing::Asked { by_force, .. } => *by_force,
            standing => matches!(standing, Standing::Owned { .. }),
        };
        self.by_name.get(name).is_some_and(|standing| !is_taken(standing))
    }

    /// A lock is to be asked for anew. Whether the source must be told first that it is given back.
    pub(crate) fn forget(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some_and(|standing| standing.is_there())
    }

    /// A client has asserted a lock while the source could not be asked for it: others may have it there.
    pub(crate) fn asserted_away(&mut self, name: &str) -> Option<Turn> {
        self.is_new(name).then(|| self.stands(name.to_owned(), Standing::Lost)).flatten()
    }

    /// The source has been asked for a lock by the request of this number.
    pub(crate) fn asked(&mut self, name: &str, number: u64, by_force: bool) {
        let is_new = self.is_new(name);
        let again = Standing::AskedAgain { number };
        let standing = if is_new { Standing::Asked { number, by_force } } else { again };
        self.by_name.insert(name.to_owned(), standing);
        self.requests.insert(number, name.to_owned());
        self.settled = None;
    }

    /// Locks that have to be asked for again by now, and whether they are given back first.
    pub(crate) fn to_ask_again(&self, now_us: u64) -> Vec<(String, bool)> {
        let is_due = |standing: &Standing| {
            *standing == Standing::Lost || standing.until_us().is_some_and(|at| at <= now_us)
        };
        let due = self.by_name.iter().filter(|(_, standing)| is_due(standing));
        due.map(|(name, standing)| (name.clone(), standing.is_there())).collect()
    }

    /// Locks that have been the relay's for as long as clients here may take turns at one.
    pub(crate) fn due_to_others(&self, now_us: u64) -> impl Iterator<Item = &str> {
        let is_due = move |standing: &Standing| match standing {
            Standing::Owned { since_us, .. } => since_us.saturating_add(TURNS_US_MAX) <= now_us,
            _ => false,
        };
        let due = self.by_name.iter().filter(move |(_, standing)| is_due(standing));
        due.map(|(name, _)| name.as_str())
    }

    /// When one is to be asked for again that the source could not give.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.next_us
    }

    /// The source has answered whether a lock is the relay's, or that it cannot say; `None` if it was asked
    /// something else.
    pub(crate) fn answered(
        &mut self,
        number: u64,
        is_owned: Option<bool>,
        now_us: u64,
    ) -> Option<Option<Turn>> {
        let name = self.requests.remove(&number)?;
        let by_force = match self.by_name.get(&name) {
            Some(Standing::Asked { number: asked, by_force }) if *asked == number => *by_force,
            Some(Standing::AskedAgain { number: asked }) if *asked == number => false,
            // It has been given back since.
            _ => return Some(None),
        };
        let standing = match is_owned {
            Some(true) => Standing::Owned { by_force, heard: 0, since_us: now_us },
            Some(false) => Standing::Queued { heard: 0 },
            None => Standing::Out { until_us: now_us.saturating_add(REFUSED_US) },
        };
        Some(self.stands(name, standing))
    }

    /// The source says that a lock is the relay's now, or not any more. While it has not answered, that is of an
    /// earlier request.
    pub(crate) fn told(&mut self, name: &str, is_owned: bool, now_us: u64) -> Option<Turn> {
        let before = self.by_name.get(name)?;
        let heard = before.heard() + 1;
        let standing = match (before, is_owned) {
            (Standing::Queued { .. }, true) => {
                Standing::Owned { by_force: false, heard, since_us: now_us }
            }
            (Standing::Owned { by_force: false, .. }, false) => Standing::Queued { heard },
            (Standing::Owned { by_force: true, .. }, false) => Standing::Out { until_us: 0 },
            _ => return None,
        };
        self.stands(name.to_owned(), standing)
    }

    fn stands(&mut self, name: String, standing: Standing) -> Option<Turn> {
        let (could, may) = (self.may_assert(&name), standing.may_assert());
        self.by_name.insert(name.clone(), standing);
        (self.settled, self.next_us) = (None, earliest([self.next_us, standing.until_us()]));
        match (could, may) {
            (false, true) => Some(Turn::Back(name)),
            (true, false) => Some(Turn::Lost(name)),
            (true, true) | (false, false) => None,
        }
    }

    /// The connection has ended, and the locks with it. Others may have had them before it is back.
    pub(crate) fn disconnected(&mut self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (name, standing) in &mut self.by_name {
            if standing.may_assert() {
                turns.push(Turn::Lost(name.clone()));
            }
            *standing = Standing::Lost;
        }
        self.requests.clear();
        (self.settled, self.next_us) = (None, None);
        turns
    }

    /// Nobody here wants these any more; with each whether it must be given back at the source, if that can be told
    /// so now. What it cannot be told of stays, until it can or the connection ends.
    /// `is_wanted` hears of each whether it may be asserted.
    pub(crate) fn give_up(
        &mut self,
        may_tell: bool,
        is_wanted: impl Fn(&str, bool) -> bool,
    ) -> Vec<(String, bool)> {
        let gone = self.by_name.extract_if(.., |name, standing| {
            (may_tell || !standing.is_there()) && !is_wanted(name, standing.may_assert())
        });
        gone.map(|(name, standing)| (name, standing.is_there())).collect()
    }

    /// Whether nothing is to be asked for or given back, after so many turns have begun or ended here.
    pub(crate) fn is_settled(&self, changes: u64, now_us: u64) -> bool {
        self.settled == Some(changes) && self.next_us.is_none_or(|at| now_us < at)
    }

    /// All has been asked for and given back that was to be after so many turns, unless some lock `waits`.
    pub(crate) fn settle(&mut self, changes: u64, waits: impl Fn(&str) -> bool) {
        let are_any_waiting = self.by_name.keys().any(|name| waits(name));
        self.settled = (!are_any_waiting).then_some(changes);
        self.next_us = self.by_name.values().filter_map(Standing::until_us).min();
    }
}

impl Standing {
    fn may_assert(&self) -> bool {
        matches!(self, Self::Asked { .. } | Self::Owned { .. })
    }

    fn heard(&self) -> u64 {
        match self {
            Self::Owned { heard, .. } | Self::Queued { heard } => *heard,
            _ => 0,
        }
    }

    fn until_us(&self) -> Option<u64> {
        match self {
            Self::Out { until_us } => Some(*until_us),
            _ => None,
        }
    }

    /// Whether the source has been asked on this connection.
    fn is_there(&self) -> bool {
        *self != Self::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the source answers; no time passes.
    fn answer(locks: &mut SourceLocks, number: u64, is_owned: bool) -> Option<Option<Turn>> {
        locks.answered(number, Some(is_owned), 0)
    }

    /// What is given up that nobody wants, and the source is told of.
    fn give_up(locks: &mut SourceLocks, may_tell: bool, is_wanted: bool) -> Vec<(String, bool)> {
        locks.give_up(may_tell, |_, _| is_wanted)
    }

    fn one(is_there: bool) -> Vec<(String, bool)> {
        vec![("l".into(), is_there)]
    }

    #[test]
    fn news_of_an_earlier_request_is_no_answer() {
        let mut locks = SourceLocks::default();
        locks.asked("l", 4, false);
        assert_eq!(answer(&mut locks, 4, true), Some(None));
        // It is given back, while somebody steals it.
        assert_eq!(give_up(&mut locks, true, false), one(true));
        locks.asked("l", 5, false);
        assert_eq!(locks.told("l", false, 0), None, "that was the one before");
        assert_eq!(answer(&mut locks, 5, true), Some(None));
        assert!(locks.may_assert("l"));
    }

    #[test]
    fn who_takes_a_lock_by_force_asks_for_it_anew() {
        let mut locks = SourceLocks::default();
        assert!(!locks.may_be_taken("l"), "it is asked for by force at first");
        locks.asked("l", 4, false);
        assert!(locks.may_be_taken("l"), "it has been asked for without");
        assert_eq!(answer(&mut locks, 4, false), Some(Some(Turn::Lost("l".into()))));
        assert!(locks.may_be_taken("l") && !locks.may_assert("l"));
        assert!(locks.forget("l"));
        assert!(locks.is_new("l") && locks.may_assert("l"));
        locks.asked("l", 5, true);
        assert!(!locks.may_be_taken("l"));
        assert_eq!(answer(&mut locks, 5, true), Some(None));
        assert!(!locks.may_be_taken("l"));
    }

    #[test]
    fn a_lock_that_was_given_back_has_no_answer() {
        let mut locks = SourceLocks::default();
        locks.asked("l", 4, false);
        assert!(locks.forget("l"));
        locks.asked("l", 5, true);
        assert_eq!(answer(&mut locks, 4, false), Some(None));
        assert!(locks.may_assert("l"));
        assert_eq!(answer(&mut locks, 4, false), None, "it was the answer to that request");
    }

    #[test]
    fn who_is_robbed_of_what_he_took_by_force_asks_for_it_again() {
        let mut locks = SourceLocks::default();
        locks.asked("l", 4, true);
        assert_eq!(answer(&mut locks, 4, true), Some(None));
        assert_eq!(locks.told("l", false, 0), Some(Turn::Lost("l".into())));
        assert_eq!(locks.to_ask_again(0), one(true), "it is in no queue");
        locks.asked("l", 5, false);
        assert_eq!(locks.to_ask_again(0), []);
        assert_eq!(answer(&mut locks, 5, false), Some(None));
        assert_eq!(locks.to_ask_again(0), [], "now it waits at the source");
        assert_eq!(locks.told("l", true, 0), Some(Turn::Back("l".into())));
        assert_eq!(locks.told("l", false, 0), Some(Turn::Lost("l".into())));
        assert_eq!(locks.to_ask_again(0), [], "who waited is next");
    }

    #[test]
    fn what_the_source_cannot_give_is_asked_for_again_when_it_is_time() {
        let mut locks = SourceLocks::default();
        locks.asked("l", 4, false);
        assert_eq!(locks.answered(4, None, 10), Some(Some(Turn::Lost("l".into()))));
        let at_us = 10 + REFUSED_US;
        assert_eq!(locks.next_us(), Some(at_us));
        locks.settle(7, |_| false);
        assert!(locks.is_settled(7, at_us - 1) && !locks.is_settled(7, at_us));
        assert!(!locks.is_settled(8, 0), "somebody here has it, or has it no longer");
        assert_eq!(locks.to_ask_again(at_us - 1), []);
        assert_eq!(locks.to_ask_again(at_us), one(true));
        locks.asked("l", 5, false);
        locks.settle(7, |_| false);
        assert_eq!(locks.next_us(), None);
        assert_eq!(answer(&mut locks, 5, true), Some(Some(Turn::Back("l".into()))));
    }

    #[test]
    fn a_lock_is_lost_and_comes_back() {
        let mut locks = SourceLocks::default();
        assert!(locks.is_new("l") && locks.may_assert("l"));
        locks.asked("l", 4, false);
        assert!(locks.may_assert("l"), "the source judges");
        assert_eq!(answer(&mut locks, 5, true), None);
        assert_eq!(answer(&mut locks, 4, true), Some(None));
        assert_eq!(locks.told("l", false, 0), Some(Turn::Lost("l".into())));
        assert!(!locks.may_assert("l"));
        assert_eq!(locks.to_ask_again(0), [], "it waits at the source");
        assert_eq!(locks.told("l", true, 0), Some(Turn::Back("l".into())));
        assert_eq!(locks.disconnected(), [Turn::Lost("l".into())]);
        assert_eq!(locks.disconnected(), []);
        assert_eq!(locks.to_ask_again(0), one(false));
        locks.asked("l", 6, false);
        assert!(!locks.may_assert("l") && locks.to_ask_again(0).is_empty());
        assert_eq!(answer(&mut locks, 6, true), Some(Some(Turn::Back("l".into()))));
        assert_eq!(give_up(&mut locks, true, true), []);
        assert_eq!(give_up(&mut locks, false, false), [], "it is the relay's yet");
        assert_eq!(give_up(&mut locks, true, false), one(true));
        assert!(locks.by_name.is_empty());
        locks.asked("l", 7, false);
        locks.disconnected();
        assert_eq!(give_up(&mut locks, false, false), one(false), "it has ended");
        assert!(locks.by_name.is_empty());
    }

    #[test]
    fn others_have_their_turn_when_clients_here_have_taken_theirs_for_some_time() {
        let mut locks = SourceLocks::default();
        let due = |locks: &SourceLocks, at_us| locks.due_to_others(at_us).count();
        locks.asked("l", 4, false);
        assert_eq!(due(&locks, u64::MAX), 0, "it is not the relay's yet");
        assert_eq!(locks.answered(4, Some(false), 10), Some(Some(Turn::Lost("l".into()))));
        assert_eq!(due(&locks, u64::MAX), 0, "it waits itself");
        assert_eq!(locks.told("l", true, 50), Some(Turn::Back("l".into())));
        assert_eq!(due(&locks, 50 + TURNS_US_MAX - 1), 0);
        assert_eq!(due(&locks, 50 + TURNS_US_MAX), 1);
    }
}
