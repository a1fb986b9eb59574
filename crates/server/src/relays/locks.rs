//! Locks of a relay's clients at its source (RFC 7047 §4.1.8): the relay asks for one when a client first
//! asserts it in a transaction that writes, for the source judges that. Among its clients the relay's own
//! queue decides.
//!
//! | standing | ends by | next |
//! |---|---|---|
//! | asked for | the answer | owned; queued |
//! | owned | it is stolen; the connection ends | queued; lost |
//! | queued, and the owner here knows | the source gives it; the connection ends | owned; lost |
//! | lost, and the owner here knows | there is a connection again | asked for again |
//! | asked for again | the answer; the connection ends | owned, queued; lost |
//! | any | nobody here has it or waits for it | none: it is given back, once the source can be told |

use std::collections::BTreeMap;

/// How a lock stands at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Asked for, by the request of this number: the owner here takes it for his.
    Asked(u64),
    Owned,
    /// Others have it before.
    Queued,
    /// Nobody has asked for it since a connection ended.
    Lost,
    /// Asked for, by the request of this number, after it was lost.
    AskedAgain(u64),
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
}

impl SourceLocks {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether the owner here may assert a lock, as far as is known.
    pub(crate) fn may_assert(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), None | Some(Standing::Asked(_) | Standing::Owned))
    }

    /// Whether the lock has never been asked for.
    pub(crate) fn is_new(&self, name: &str) -> bool {
        !self.by_name.contains_key(name)
    }

    /// Whether others have the lock at the source, where it waits for its turn.
    pub(crate) fn is_queued(&self, name: &str) -> bool {
        self.by_name.get(name) == Some(&Standing::Queued)
    }

    /// A lock is given back, to be asked for anew.
    pub(crate) fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// The source has been asked for a lock by the request of this number.
    pub(crate) fn asked(&mut self, name: &str, number: u64) {
        let is_new = self.is_new(name);
        let standing = if is_new { Standing::Asked(number) } else { Standing::AskedAgain(number) };
        self.by_name.insert(name.to_owned(), standing);
    }

    /// Locks that were lost with a connection, and have not been asked for since.
    pub(crate) fn to_ask_again(&self) -> Vec<String> {
        let lost = self.by_name.iter().filter(|(_, standing)| **standing == Standing::Lost);
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// The source has answered whether a lock is the relay's; `None` if it was asked something else.
    pub(crate) fn answered(&mut self, number: u64, is_owned: bool) -> Option<Option<Turn>> {
        let asked = [Standing::Asked(number), Standing::AskedAgain(number)];
        let (name, _) = self.by_name.iter().find(|(_, standing)| asked.contains(standing))?;
        let name = name.clone();
        Some(self.stands(&name, is_owned))
    }

    /// The source says that a lock is the relay's now, or not any more. While it has not answered, that is of an
    /// earlier request.
    pub(crate) fn told(&mut self, name: &str, is_owned: bool) -> Option<Turn> {
        match self.by_name.get(name)? {
            Standing::Asked(_) | Standing::AskedAgain(_) => None,
            Standing::Owned | Standing::Queued | Standing::Lost => self.stands(name, is_owned),
        }
    }

    fn stands(&mut self, name: &str, is_owned: bool) -> Option<Turn> {
        let could = self.may_assert(name);
        let standing = self.by_name.get_mut(name)?;
        *standing = if is_owned { Standing::Owned } else { Standing::Queued };
        match (could, is_owned) {
            (false, true) => Some(Turn::Back(name.to_owned())),
            (true, false) => Some(Turn::Lost(name.to_owned())),
            (true, true) | (false, false) => None,
        }
    }

    /// The connection has ended, and the locks with it. Others may have had them before it is back.
    pub(crate) fn disconnected(&mut self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (name, standing) in &mut self.by_name {
            if matches!(standing, Standing::Asked(_) | Standing::Owned) {
                turns.push(Turn::Lost(name.clone()));
            }
            *standing = Standing::Lost;
        }
        turns
    }

    /// Nobody here wants these any more: those that must be given back at the source, if it can be told so now.
    /// What it cannot be told of stays, until it can or the connection ends.
    pub(crate) fn give_up(
        &mut self,
        may_tell: bool,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let is_there = |standing: &Standing| *standing != Standing::Lost;
        let may_go = |standing: &Standing| may_tell || !is_there(standing);
        let gone =
            self.by_name.extract_if(.., |name, standing| may_go(standing) && !is_wanted(name));
        gone.filter(|(_, standing)| is_there(standing)).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_an_earlier_request_is_no_answer() {
        let mut locks = SourceLocks::default();
        locks.asked("l", 4);
        assert_eq!(locks.answered(4, true), Some(None));
        // It is given back, while somebody steals it.
        assert_eq!(locks.give_up(true, |_| false), ["l"]);
        locks.asked("l", 5);
        assert_eq!(locks.told("l", false), None, "that was the one before");
        assert_eq!(locks.answered(5, true), Some(None));
        assert!(locks.may_assert("l"));
    }

    #[test]
    fn who_takes_a_lock_by_force_asks_for_it_anew() {
        let mut locks = SourceLocks::default();
        locks.asked("l", 4);
        assert_eq!(locks.answered(4, false), Some(Some(Turn::Lost("l".into()))));
        assert!(locks.is_queued("l") && !locks.may_assert("l"));
        locks.forget("l");
        assert!(locks.is_new("l") && locks.may_assert("l"));
        locks.asked("l", 5);
        assert_eq!(locks.answered(5, true), Some(None));
    }

    #[test]
    fn a_lock_is_lost_and_comes_back() {
        let mut locks = SourceLocks::default();
        assert!(locks.is_new("l") && locks.may_assert("l"));
        locks.asked("l", 4);
        assert!(locks.may_assert("l"), "the source judges");
        assert_eq!(locks.answered(5, true), None);
        assert_eq!(locks.answered(4, true), Some(None));
        assert_eq!(locks.told("l", false), Some(Turn::Lost("l".into())));
        assert!(!locks.may_assert("l"));
        assert_eq!(locks.to_ask_again(), Vec::<String>::new(), "it waits at the source");
        assert_eq!(locks.told("l", true), Some(Turn::Back("l".into())));
        assert_eq!(locks.disconnected(), [Turn::Lost("l".into())]);
        assert_eq!(locks.disconnected(), []);
        assert_eq!(locks.to_ask_again(), ["l"]);
        locks.asked("l", 6);
        assert!(!locks.may_assert("l") && locks.to_ask_again().is_empty());
        assert_eq!(locks.answered(6, true), Some(Some(Turn::Back("l".into()))));
        assert_eq!(locks.give_up(true, |_| true), Vec::<String>::new());
        assert_eq!(locks.give_up(false, |_| false), Vec::<String>::new(), "it is the relay's yet");
        assert_eq!(locks.give_up(true, |_| false), ["l"]);
        assert!(locks.is_empty());
        locks.asked("l", 7);
        locks.disconnected();
        assert_eq!(locks.give_up(false, |_| false), Vec::<String>::new(), "it has ended");
        assert!(locks.is_empty());
    }
}
