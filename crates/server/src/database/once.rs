//! `weir_transact` and `weir_outcome`: a transaction under an id that its client chose is committed
//! at most once, and what has come of it can be asked (`docs/decisions/013`).
//!
//! A client that chooses an id also names a state that it knew before. Ids of what was committed
//! behind a state are known as far back as the change log reaches, so the answer is one of four:
//! committed, never to be, not yet, or nobody can say any more.
//!
//! 1. In a cluster the chosen id is that of the entry, and only the leader judges, with everything
//!    applied. Elsewhere the server remembers the ids itself, until it ends; the next process knows nothing of states
//!    before the file's last record.
//! 2. `weir_outcome` makes "not committed" a promise: an entry that changes nothing stands in the log
//!    under an id that follows from the chosen one, and who comes late finds that. A standalone file gets such a record, which
//!    the state that was named is before.

use std::collections::{BTreeMap, VecDeque};

use weir_data::{Delta, Error, IdKind, Uuid};
use weir_engine::Done as Executed;
use weir_history::{History, Name, Place};

use crate::database::commits::{Done, Writes};
use crate::database::trigger::Trigger;
use crate::database::{Databases, Db};
use crate::ids::DbId;
use crate::once::{Chosen, Once};
use crate::session::Sessions;
use crate::shell::Shell;

/// Most chosen ids that a server without a cluster remembers of a database; the oldest goes first.
const CHOSEN_MAX: usize = 16_384;

/// What is known of a chosen id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Committed,
    /// A client has been promised that the transaction will never be.
    Never,
    /// The transaction has run, and is not decided.
    UnderWay,
    /// The transaction has not been committed.
    Open,
    /// The state that the client knew is older than what is remembered.
    Unknown,
}

impl Verdict {
    /// The answer to `weir_outcome`.
    fn outcome(self) -> &'static [u8] {
        match self {
            Self::Committed => b"\"committed\"",
            Self::Never => b"\"not committed\"",
            Self::UnderWay | Self::Open | Self::Unknown => b"\"unknown\"",
        }
    }

    /// The results of a transaction that is not to run.
    fn results(self, chosen: Chosen) -> Vec<u8> {
        let Chosen { id, since } = chosen;
        let error = match self {
            // What its results were is not remembered.
            Self::Committed => return b"null".to_vec(),
            Self::Never => {
                let details = format!("weir_outcome has answered that {id} is not committed");
                Error::new("not committed", details)
            }
            Self::UnderWay | Self::Open | Self::Unknown => {
                let details = format!(
                    "whether {id} was committed is not known: this server does not remember all \
                     that has happened since {since}"
                );
                Error::new("unknown state", details)
            }
        };
        let mut results = b"[".to_vec();
        error.write(&mut results);
        results.push(b']');
        results
    }
}

/// Which chosen ids are known, where no cluster has entries under them.
#[derive(Debug, Default)]
pub(super) struct ChosenIds {
    /// Whether each was committed; else it never will be.
    by_id: BTreeMap<Uuid, bool>,
    /// In the order in which they were decided, with the place behind that.
    order: VecDeque<(Uuid, Place)>,
    /// What was decided before this place is not known.
    known_from: Place,
}

impl ChosenIds {
    /// What was decided before this place is not known.
    pub(super) fn from(place: Place) -> Self {
        Self { known_from: place, ..Self::default() }
    }

    /// Entries have come without their ids.
    pub(super) fn skip_to(&mut self, place: Place) {
        self.known_from = place;
    }

    /// An id is decided.
    pub(super) fn push(&mut self, id: Uuid, is_committed: bool, place: Place) {
        if self.order.len() == CHOSEN_MAX
            && let Some((oldest, place)) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
            self.known_from = Place(place.0 + 1);
        }
        self.by_id.insert(id, is_committed);
        self.order.push_back((id, place));
    }

    pub(super) fn judge(&self, history: &History, chosen: Chosen) -> Verdict {
        let find = |id| history.find_state(id);
        match self.by_id.get(&chosen.id) {
            Some(true) => Verdict::Committed,
            Some(false) => Verdict::Never,
            None if find(chosen.id).is_some() => Verdict::Committed,
            None if find(chosen.never()).is_some() => Verdict::Never,
            None if find(chosen.since).is_some_and(|since| since >= self.known_from) => {
                Verdict::Open
            }
            None => Verdict::Unknown,
        }
    }
}

impl Trigger {
    /// The id of the entry that it becomes in a cluster if it changes something.
    pub(crate) fn entry_id(&self) -> Uuid {
        match self.once.as_deref() {
            Some(Once::Transact(chosen)) => chosen.id,
            Some(Once::Outcome(chosen)) => chosen.never(),
            Some(Once::Plain | Once::Explain) | None => self.origin.eid,
        }
    }

    pub(crate) fn chosen(&self) -> Option<Chosen> {
        self.once.as_deref().and_then(|once| once.chosen())
    }

    /// Whether its client has chosen the id of the entry that it becomes.
    pub(crate) fn is_judged(&self) -> bool {
        self.chosen().is_some()
    }

    /// Whether it asks what has come of an id.
    pub(crate) fn is_outcome(&self) -> bool {
        matches!(self.once.as_deref(), Some(Once::Outcome(_)))
    }

    /// Whether it asks how it would find its rows.
    pub(crate) fn explains(&self) -> bool {
        Once::explains(self.once.as_deref().copied())
    }

    /// What the request asks for that `transact` does not know.
    pub(crate) fn set_once(&mut self, once: Option<Once>) {
        if once.is_some_and(Once::is_judged) {
            // What has come of it is decided in its turn, whatever it asks for.
            self.is_read_only = Some(false);
        }
        if Once::explains(once) {
            self.is_read_only = Some(true);
        }
        self.once = once.map(Box::new);
    }
}

impl Databases {
    /// The id of the state that a database shows, to be told to a client: from now on what changes
    /// behind it is kept. Zeros where there are none.
    fn state_to_tell(&mut self, id: DbId) -> Uuid {
        let Some(db) = self.get_mut(id) else { return Uuid::ZERO };
        db.history.kept_mut().map_or(Uuid::ZERO, |history| {
            history.keep(IdKind::Recorded);
            history.ids().recorded
        })
    }

    /// What a request is answered, with what comes behind all of it.
    pub(crate) fn result_of(
        &mut self,
        id: DbId,
        once: Option<&Once>,
        results: Vec<u8>,
    ) -> (Vec<u8>, &'static [u8]) {
        let Some(once) = once.filter(|once| **once != Once::Explain) else {
            return (results, b"");
        };
        let (mut result, behind) = once.around(self.state_to_tell(id));
        result.extend_from_slice(&results);
        (result, behind)
    }

    /// Whether nobody can say what has come of an id.
    pub(crate) fn is_forgotten(&self, id: DbId, chosen: Chosen) -> bool {
        self.get(id).is_some_and(|db| db.verdict(chosen) == Verdict::Unknown)
    }

    /// A transaction is about to run. `None` if what has come of its id is known: that is filed as its answer.
    /// What ran once more would find its own rows.
    pub(super) fn judge_first(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        trigger: Trigger,
    ) -> Option<Trigger> {
        let db = self.open(trigger.origin.db);
        let Some(chosen) = trigger.chosen() else { return Some(trigger) };
        match db.verdict(chosen) {
            Verdict::Open => Some(trigger),
            // Only the leader knows of what has not taken effect here.
            Verdict::UnderWay | Verdict::Unknown if !db.storage.may_write() => Some(trigger),
            verdict => {
                self.file_verdict(shell, sessions, trigger, (chosen, verdict));
                None
            }
        }
    }

    /// A transaction does not run: it waits until what it repeats is decided, or is answered.
    fn file_verdict(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        (chosen, verdict): (Chosen, Verdict),
    ) {
        let db = self.open(trigger.origin.db);
        if verdict == Verdict::UnderWay && db.read_only(&trigger.origin.identity).is_none() {
            return self.set_aside(sessions, trigger, Writes::Accepted);
        }
        self.forget_attempt(shell, &mut trigger);
        let reply = match trigger.is_outcome() {
            true => verdict.outcome().to_vec(),
            false => verdict.results(chosen),
        };
        self.open(trigger.origin.db).file_done(Some((trigger, reply)), None);
    }

    /// A transaction has run: what is to be filed of it. `None` if it runs elsewhere or later, or has
    /// been filed already.
    pub(super) fn judge(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        mut trigger: Trigger,
        mut executed: Executed,
        writes: Writes<'_>,
    ) -> Option<(Trigger, Executed)> {
        let chosen = trigger.chosen();
        let db = self.open(trigger.origin.db);
        if db.is_too_late(&trigger) {
            // It has been asked of the next leader, or will be.
            take_back(db, &mut executed);
            db.commits.peers_too_late.push(trigger.origin);
            return None;
        }
        let may_write = db.storage.may_write();
        if !may_write && trigger.origin.is_of_peer() {
            // What that asks behind it waits for it here.
            take_back(db, &mut executed);
            self.set_aside(sessions, trigger, Writes::Accepted);
            return None;
        }
        let is_for_here = may_write || executed.delta.is_none();
        if chosen.is_none() && is_for_here || trigger.lacks_locks && executed.delta.is_none() {
            return Some((trigger, executed));
        }
        let verdict = chosen.filter(|_| may_write).map(|chosen| (chosen, db.verdict(chosen)));
        if let Some((_, Verdict::Open)) = verdict
            && !trigger.is_outcome()
        {
            return Some((trigger, executed));
        }
        let changes = executed.delta.is_some();
        take_back(db, &mut executed);
        let Some((chosen, verdict)) = verdict else {
            // Only the leader of the cluster, or the source of a relay, decides: it is asked.
            trigger.is_idle_here = !changes
                && !trigger.is_outcome()
                && db.storage.is_relay()
                && !trigger.origin.identity.may_all();
            self.forward(sessions, trigger);
            return None;
        };
        if verdict == Verdict::Open && db.read_only(&trigger.origin.identity).is_none() {
            db.promise_never(shell, trigger, chosen, writes);
        } else {
            self.file_verdict(shell, sessions, trigger, (chosen, verdict));
        }
        None
    }
}

/// Undoes what has just run.
fn take_back(db: &mut Db, executed: &mut Executed) {
    if let Some(delta) = executed.delta.take() {
        let database = db.tables.here_mut();
        database.expect("the change has just been made there").revert(&delta);
    }
}

impl Db {
    fn verdict(&self, chosen: Chosen) -> Verdict {
        let is_it = |done: &Done| {
            let of_request = done.request.as_ref().and_then(|(trigger, _)| trigger.chosen());
            let name = done.record.as_ref().map(|recorded| recorded.record.name);
            let of_entry = [chosen.id, chosen.never()].map(|id| Some(Name::Entry(id)));
            done.delta.is_some()
                && (of_request.is_some_and(|other| other.id == chosen.id)
                    || of_entry.contains(&name))
        };
        if self.commits.done().iter().any(is_it) {
            return Verdict::UnderWay;
        }
        self.history.judge(chosen)
    }

    /// A transaction is not committed, and will never be, if that can be written.
    fn promise_never(
        &mut self,
        shell: &Shell,
        trigger: Trigger,
        chosen: Chosen,
        writes: Writes<'_>,
    ) {
        if let Writes::Refused(_) = writes {
            let reply = Verdict::Unknown.outcome().to_vec();
            self.file_done(Some((trigger, reply)), None);
            return;
        }
        let recorded = self.record_nothing(shell, trigger.entry_id(), never_text(chosen.id));
        let change = recorded.map(|recorded| {
            let (nothing, database) = (Delta::default(), self.tables.here_mut());
            // It is undone and done like others.
            database.expect("tables are here when something has run").apply(&nothing);
            (nothing, Some(recorded))
        });
        if change.is_none() {
            self.history.promise_never(chosen.id);
        }
        self.file_done(Some((trigger, Verdict::Never.outcome().to_vec())), change);
    }
}

/// What the log says of a transaction that is not to be.
fn never_text(id: Uuid) -> String {
    format!("weir_outcome: transaction {id} is not committed")
}
