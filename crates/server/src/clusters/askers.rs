//! Requests of other members that run here, and whom to answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_data::Uuid;

use crate::ids::DbId;
use crate::origin::Identity;

/// A request of another member that runs here.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) db: DbId,
    /// Who is to be answered.
    pub(crate) from: Uuid,
    /// The client of that member who has asked.
    pub(crate) client: Arc<Identity>,
    /// The id of the entry that it becomes.
    pub(crate) eid: Uuid,
    /// The term that it is for.
    pub(crate) term: u64,
    /// The last time that it was asked for: see [`Request`](super::message::Request).
    pub(crate) attempt: u64,
}

/// All requests of other members that run here, by the number that their origin has.
#[derive(Debug, Default)]
pub(crate) struct Askers {
    by_number: BTreeMap<u64, Asked>,
    by_eid: BTreeMap<Uuid, u64>,
    last: u64,
}

impl Askers {
    /// A request begins to run: its number. `None` if one of this id runs already, for an earlier term: a member
    /// gives an id to one client, who waits for that, so that this one has not been given it.
    pub(crate) fn begin(&mut self, asked: Asked) -> Option<u64> {
        if self.by_eid.contains_key(&asked.eid) {
            return None;
        }
        self.last += 1;
        self.by_eid.insert(asked.eid, self.last);
        self.by_number.insert(self.last, asked);
        Some(self.last)
    }

    /// Whether the request of this id runs in this term; if so, it is this attempt that is answered, unless a later
    /// one has come. What a helper has of an earlier term comes to nothing, and stands for no other attempt.
    pub(crate) fn runs(&mut self, eid: Uuid, term: u64, attempt: u64) -> bool {
        if !self.has(eid, term) {
            return false;
        }
        let asked = self.by_number.get_mut(&self.by_eid[&eid]).expect("both maps have it");
        asked.attempt = asked.attempt.max(attempt);
        true
    }

    /// Whether the request of this id runs in this term.
    pub(crate) fn has(&self, eid: Uuid, term: u64) -> bool {
        self.by_eid.get(&eid).is_some_and(|number| self.by_number[number].term == term)
    }

    /// The request of this number, unless it has been answered.
    pub(crate) fn get(&self, number: u64) -> Option<&Asked> {
        self.by_number.get(&number)
    }

    /// A request is about to be answered.
    pub(crate) fn end(&mut self, number: u64) -> Option<Asked> {
        let asked = self.by_number.remove(&number)?;
        self.by_eid.remove(&asked.eid);
        Some(asked)
    }

    /// A database is no longer part of its cluster here: nobody is answered.
    pub(crate) fn forget(&mut self, db: DbId) {
        for (_, asked) in self.by_number.extract_if(.., |_, asked| asked.db == db) {
            self.by_eid.remove(&asked.eid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leader was deposed, leads again, and a helper still has what it was asked before.
    #[test]
    fn what_runs_for_an_earlier_term_is_no_attempt_of_this_one() {
        let (db, from, eid) = (DbId(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let mut askers = Askers::default();
        let client = Arc::new(Identity::default());
        let asked = |term, attempt| {
            let client = Arc::clone(&client);
            Asked { db, from, client, eid, term, attempt }
        };
        let number = askers.begin(asked(5, 0)).expect("the id is a new one");
        assert!(askers.has(eid, 5) && !askers.has(eid, 7));
        assert!(!askers.runs(eid, 7, 1));
        assert_eq!(askers.begin(asked(7, 1)), None, "its client waits, and nobody else has the id");
        let ended = askers.end(number).expect("it ran");
        assert_eq!(ended.attempt, 0, "its end says nothing of the later attempt");
        assert!(askers.begin(asked(7, 1)).is_some());
        assert!(askers.runs(eid, 7, 2));
    }
}
