//! Locks that change hands: what the last owner has asked for comes first, and who is told that a lock is his has been
//! told of that before. Clients compute what they write under a lock from what they have been told.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_json::Text;

use crate::database::Trigger;
use crate::ids::{DbId, SessionId};
use crate::relays::Relay;
use crate::reply::Handled;
use crate::server::Server;
use crate::session::locks::{AsOf, Held, LockMode};

/// How much a session knows of what it watches.
enum Told {
    All,
    /// The rest of this database has its turn later.
    Later(DbId),
    /// A helper composes the rest, or has the tables.
    AtHelper,
}

impl Server {
    /// `lock` and `steal`
    pub(super) fn lock(&mut self, id: SessionId, params: Text<'_>, mode: LockMode) -> Handled {
        self.check_may_lock(id)?;
        let name = params.elements().and_then(|mut params| params.next()?.str());
        // Of a lock that others have, nothing is told yet.
        let comes_next = |name: &str| mode == LockMode::Wait && !self.sessions.is_locked(name);
        let next = name.as_deref().filter(|name| comes_next(name));
        let is_free = next.is_none_or(|name| {
            self.ask_source_for_lock(name);
            !self.are_others_under_lock(id, name) && self.is_told(id)
        });
        let relays = self.relays.by_db.len();
        // A thief is answered at once, though he may have something yet to be told.
        let knows_all = mode == LockMode::Wait || self.is_told(id);
        let reply = self.sessions.lock(&mut self.shell, id, params, (mode, is_free), relays)?;
        self.note_known(id, name.as_deref(), knows_all);
        Ok(reply)
    }

    /// Whether a session has asked for something under a lock of its own that is not made yet: it has the lock until then.
    /// What waits elsewhere, at a relay's source, may wait for what the next owner does.
    /// Who makes what is asked of the `lost` database is lost.
    pub(super) fn has_under_lock(&self, id: SessionId, name: &str, lost: Option<DbId>) -> bool {
        if !self.sessions.owns_lock(id, name) {
            return false;
        }
        // What cannot be made under it, for nobody is there to make it or others have it there, need not be waited for.
        let may_be_made = |db: &DbId| {
            let relay = self.relays.get(*db);
            let part = self.clusters.part(*db);
            lost != Some(*db)
                && relay
                    .is_none_or(|relay| relay.follower.may_ask() && relay.locks.may_assert(name))
                && part.is_none_or(|part| part.member.leader().is_some())
        };
        let all = self.databases.iter().map(|(db, _)| db).filter(may_be_made);
        let all = all.flat_map(|db| self.begun(db).chain(self.not_asked(db)));
        let his: Vec<&Trigger> = all.filter(|trigger| trigger.origin.is_of(id)).collect();
        let is_at_source = |trigger: &Trigger| self.relays.get(trigger.origin.db).is_some();
        if his.iter().any(|trigger| is_at_source(trigger) && trigger.may_wait()) {
            return false;
        }
        let is_held = |held: &Held| held.name == name && self.sessions.is_held(held);
        let gate = self.sessions.get(id).expect("it has sent this").gate();
        let is_under = |db: Option<DbId>, locks: &[Held]| {
            db.as_ref().is_none_or(may_be_made) && locks.iter().any(is_held)
        };
        gate.has_coming(is_under) || his.iter().any(|trigger| trigger.is_under(name, is_held))
    }

    /// A relay's source, or the leader of a cluster, is lost: who gives a lock up does not wait any more for what he has asked
    /// of that database under it.
    pub(super) fn let_unlocks_pass(&mut self, lost: DbId) {
        for id in self.sessions.waiting_unlocks() {
            self.judge_unlocks(id, Some(lost));
        }
    }

    /// Something that sessions have waited for is done: who gives a lock up does not wait for what else he has asked for,
    /// unless that is under the lock.
    pub(super) fn judge_released_unlocks(&mut self) {
        for id in self.sessions.take_released_unlocks() {
            self.judge_unlocks(id, None);
        }
    }

    fn judge_unlocks(&mut self, id: SessionId, lost: Option<DbId>) {
        let gate = self.sessions.get(id).expect("it is there with what waits in its gate").gate();
        let may_pass = !gate.unlocks().iter().any(|name| self.has_under_lock(id, name, lost));
        self.sessions.let_unlock_pass(id, || may_pass);
    }

    /// The database in which a write has run, and is not decided, that a session has asked for under the lock that it gives
    /// up with these parameters of `unlock`. What has run holds up nothing else that its session asks.
    pub(super) fn comes_behind_own_write(&self, id: SessionId, params: Text<'_>) -> Option<DbId> {
        if !self.sessions.has_locks(id) {
            return None;
        }
        let name = params.elements()?.next()?.str()?;
        let is_held = |held: &Held| held.name == name && self.sessions.is_held(held);
        let is_his =
            |trigger: &Trigger| trigger.origin.is_of(id) && trigger.is_under(&name, is_held);
        let mut dbs = self.databases.iter().map(|(db, _)| db);
        dbs.find(|db| self.databases.has_run(*db).any(is_his))
    }

    /// Whether others have asked for something under a lock that is not decided, or not known here: they have had it before.
    fn are_others_under_lock(&self, id: SessionId, name: &str) -> bool {
        let is_of_other = |trigger: &&Trigger| {
            let session = trigger.origin.session().map(SessionId::connection);
            session.is_some_and(|session| session != id)
        };
        let alone = self.relay_alone();
        self.databases.iter().any(|(db, _)| {
            let relay = self.relays.get(db);
            let is_under = |trigger: &Trigger| trigger.is_under(name, |held| held.name == name);
            let is_at_source = |relay: &Relay| {
                relay.follower.is_connected()
                    && relay.forwards.at_source().filter(is_of_other).any(is_under)
            };
            let may_ask = relay.is_none_or(|relay| relay.follower.may_ask());
            if self.states.is_in_doubt(db, name) {
                return true;
            }
            // Others have it there, or may have it.
            if may_ask && relay.is_some_and(|relay| relay.locks.is_elsewhere(name)) {
                return true;
            }
            // What waits there is taken back, or is made in this moment.
            if relay.is_some_and(is_at_source) {
                return true;
            }
            // While its source is away nobody can know of the rest; rows that are on their way are waited for, where the
            // lock is known to be for this database.
            if !may_ask {
                let is_meant = |relay: &Relay| alone == Some(db) || !relay.locks.is_new(name);
                return relay
                    .is_some_and(|relay| is_meant(relay) && relay.follower.is_awaiting_rows());
            }
            let is_meant =
                |trigger: &Trigger| is_under(trigger) && (relay.is_none() || !trigger.may_wait());
            let part = self.clusters.part(db);
            // Nobody knows when there is a leader to ask.
            let is_led = part.is_none_or(|part| part.member.leader().is_some());
            let mut open = self.begun(db).chain(self.not_asked(db).filter(|_| is_led));
            relay.is_some_and(|relay| relay.forwards.is_in_doubt(name))
                || open.any(|trigger| is_of_other(&trigger) && is_meant(trigger))
        })
    }

    /// What clients have asked for and is not decided, or has not taken effect here; but for what is [`Self::not_asked`].
    fn begun(&self, db: DbId) -> impl Iterator<Item = &Trigger> {
        let at_source = self.relays.get(db).into_iter().flat_map(|relay| relay.forwards.iter());
        let at_leader = self.clusters.part(db).into_iter().flat_map(|part| part.forwards.asked());
        let here = self.databases.unfinished(db).chain(self.databases.has_run(db));
        // This member may have made an entry of it, while it led.
        let was_here = self.databases.to_forward(db).filter(|trigger| trigger.since.is_some());
        here.chain(was_here).chain(at_leader).chain(at_source)
    }

    /// What no leader has been asked for yet, or no source: it is not made under a lock that others have had by then.
    fn not_asked(&self, db: DbId) -> impl Iterator<Item = &Trigger> {
        let part = self.clusters.part(db).into_iter();
        let new = self.databases.to_forward(db).filter(|trigger| trigger.since.is_none());
        new.chain(part.flat_map(|part| part.forwards.unasked()))
    }

    /// Tells sessions whose locks have come to be theirs, or have been, once they have been told all that came before.
    pub(super) fn tell_of_locks(&mut self) {
        for id in self.sessions.take_lock_news() {
            self.tell_of_locks_of(id);
        }
    }

    /// Tells a session, if it has not left, of its locks, or has it wait for what comes before that.
    pub(super) fn tell_of_locks_of(&mut self, id: SessionId) {
        let count = self.sessions.count_lock_news(id);
        if count == 0 {
            return;
        }
        let is_late = |name: &String| self.are_others_under_lock(id, name);
        let new = self.sessions.new_locks(id).map(str::to_owned);
        let (mut late, own): (BTreeSet<String>, BTreeSet<String>) = new.partition(is_late);
        late.extend(self.sessions.lock_repeats(id).filter(|name| is_late(name)).cloned());
        // There may be thousands, of which nobody knows for how long.
        if late.len() == count || !self.is_told(id) {
            return self.sessions.keep_lock_news(id);
        }
        self.sessions.tell_lock_news(&mut self.shell, id, |name| late.contains(name));
        self.note_known(id, own.iter().map(String::as_str), true);
        if !late.is_empty() {
            self.sessions.keep_lock_news(id);
        }
    }

    /// A session may have been told just now that these locks are its own: of relays' databases it knows as much as there
    /// has been to know, if it `knows_all`. Where a source is asked for such a lock when it is asserted, others may have had
    /// it there by then.
    fn note_known<'n>(
        &mut self,
        id: SessionId,
        locks: impl IntoIterator<Item = &'n str>,
        knows_all: bool,
    ) {
        let Self { sessions, databases, relays, .. } = self;
        let mut locks = locks.into_iter().peekable();
        if !relays.is_empty() && locks.peek().is_some() {
            let known = |db: &DbId| databases.shown(*db).filter(|_| knows_all);
            let shown = |db: &DbId| (*db, known(db).unwrap_or_default());
            let as_of: Arc<AsOf> = Arc::new(relays.by_db.keys().map(shown).collect());
            locks.for_each(|lock| sessions.note_known(id, lock, &as_of));
        }
    }

    /// Tells a session, if it takes that, what it watches and has not been told. Whether it knows all of it then; if not, it
    /// has its turn later.
    pub(super) fn is_told(&mut self, id: SessionId) -> bool {
        self.sessions.takes_notices(&self.shell, id)
            && match self.tell_rows(id) {
                Told::All => true,
                Told::Later(db) => {
                    self.await_rows(db, id);
                    false
                }
                Told::AtHelper => false,
            }
    }

    /// Tells a session what it watches and has not been told, as far as that is for now.
    fn tell_rows(&mut self, id: SessionId) -> Told {
        let dbs = self.subscriptions.dbs_of(id);
        for db in &dbs {
            let is_late = self.databases.is_told_late(*db, id);
            if !is_late && self.is_told_later(*db, id) || self.is_fed_later(*db, id) {
                return Told::Later(*db);
            }
        }
        let Self { shell, sessions, databases, subscriptions, .. } = self;
        subscriptions.flush_session(shell, sessions, databases, id);
        // Nothing is composed while what others have just written is on its way to the file.
        let is_held_back =
            |db: &DbId| !databases.is_decided(*db) && subscriptions.has_pending(databases, *db, id);
        if let Some(db) = dbs.iter().find(|db| is_held_back(db)) {
            return Told::Later(*db);
        }
        let is_at_helper = |db: &DbId| {
            let is_away = databases.get(*db).is_some_and(|db| db.tables().is_away());
            databases.is_told_late(*db, id)
                || is_away && subscriptions.has_pending(databases, *db, id)
        };
        if dbs.iter().any(is_at_helper) { Told::AtHelper } else { Told::All }
    }
}
