//! Locks of clients at the source (`relays::locks`).

use std::collections::BTreeSet;

use weir_data::parser::is_id;
use weir_engine::Outcome;
use weir_upstream::follower::Output;

use crate::database::{Databases, Db, Trigger};
use crate::ids::{DbId, SessionId};
use crate::relays::Relay;
use crate::relays::forwards::{Fence, Forward, Forwards};
use crate::relays::locks::Turn;
use crate::server::Server;
use crate::session::Sessions;
use crate::session::locks::Held;
use crate::work::asserted;
use crate::work::operations;

/// What becomes of a transaction, as far as the locks go that it asserts.
pub(super) enum Locked {
    /// The transaction goes to the source, which judges.
    Goes,
    /// The transaction's client does not have the locks: this is the answer.
    Refused(Vec<u8>),
    /// The source cannot be asked for it: this is the error.
    Ends(Vec<u8>),
    /// The client does not have the locks; before the transaction came to say so it would wait for rows, or take
    /// longer than a step may: it goes to a helper.
    Aside,
    /// The source has just been asked for the locks: it goes when that is answered.
    Asked,
    /// What it is to be answered can be said when the tables are settled.
    Waits,
}

/// Tells the source that the relay does not have a lock any more, nor waits for it.
fn give_back(relay: &mut Relay, name: &str, out: &mut Vec<Output>) {
    let params = weir_json::array([name]).to_string();
    relay.follower.ask_for_owner("unlock", params.as_bytes(), out);
}

/// Whether something has yet to go to the source that was asked for under a lock before its owner gave that up: behind
/// something that may wait at the source, since `unlock` comes behind all else.
fn is_yet_to_go(
    sessions: &Sessions,
    databases: &Databases,
    (db, forwards): (DbId, &Forwards),
    name: &str,
) -> bool {
    let Some(owner) = sessions.last_owner(name) else { return false };
    let with_helpers = databases.unfinished(db).filter(|trigger| trigger.origin.is_of(owner));
    let mut triggers = forwards.unsent(owner).chain(with_helpers);
    let is_under = |locks: &[Held]| locks.iter().any(|held| held.name == name);
    triggers.any(|trigger| trigger.locks.as_deref().is_some_and(is_under))
}

impl Server {
    /// A transaction is about to go to the source: the locks that it asserts are asked for before it.
    pub(super) fn lock_at_source(&mut self, db: DbId, forward: &mut Forward) -> Locked {
        if forward.trigger.is_conversion() {
            return Locked::Goes;
        }
        if forward.trigger.is_idle_here {
            return self.judge_at_source(db, forward);
        }
        let trigger = &mut forward.trigger;
        let asked = operations(trigger.message.text());
        let names = asserted(asked.iter().copied());
        if names.is_empty() {
            return Locked::Goes;
        }
        let sessions = &self.sessions;
        let session = trigger.origin.session();
        // It may have waited, and others have had the lock here meanwhile.
        let now =
            || session.map_or_else(Vec::new, |id| sessions.owned_among(id, asked.into_iter()));
        let mut owned = trigger.locks.take().unwrap_or_else(now);
        let is_asserted = |held: &Held| names.contains(&held.name);
        owned.retain(|held| is_asserted(held) && sessions.is_held(held));
        owned.retain(|held| self.may_assert(db, session, held));
        if owned.len() < names.len() {
            trigger.locks = Some(owned);
            let may_be_made = trigger.is_judged() && forward.fence != Fence::NotMade;
            if may_be_made || forward.fence == Fence::Judged {
                forward.fence = Fence::Judged;
                return Locked::Goes;
            }
            return self.answer_here(db, trigger).unwrap_or(Locked::Waits);
        }
        let Self { sessions, relays, .. } = self;
        let by_force =
            |name: &str| session.is_some_and(|session| sessions.has_stolen(session, name));
        let locks = &relays.get_mut(db).locks;
        let new = owned.iter().map(|held| &held.name).filter(|name| locks.is_new(name));
        let new: Vec<(String, bool)> = new.map(|name| (name.clone(), by_force(name))).collect();
        let is_only = relays.by_db.len() == 1;
        owned.iter().for_each(|held| sessions.note_asserted(&held.name, db, is_only));
        trigger.locks = Some(owned);
        if !new.is_empty() {
            if self.give_back_at_others(db, &new) {
                // It goes to the same source first.
                self.round.postpone();
                return Locked::Waits;
            }
            new.iter().for_each(|(name, by_force)| self.ask_for_lock_first(db, name, *by_force));
            return Locked::Asked;
        }
        forward.fence = Fence::Locks;
        Locked::Goes
    }

    /// A relay is about to ask for locks. What other relays of this server have of them, and is not for them any more, they
    /// give back before. Whether they have.
    fn give_back_at_others(&mut self, db: DbId, new: &[(String, bool)]) -> bool {
        let others = self.relays.by_db.keys().copied().filter(|other| *other != db);
        let others: Vec<DbId> = others.collect();
        let mut has_given_back = false;
        for other in others {
            let has =
                |relay: &Relay| new.iter().filter(|(name, _)| !relay.locks.is_new(name)).count();
            let before = has(&self.relays.by_db[&other]);
            let changes = self.call_back(other);
            self.settle_locks(other, changes);
            has_given_back |= has(&self.relays.by_db[&other]) < before;
        }
        has_given_back
    }

    /// A transaction under an id that its client chose changes nothing here, for lack of rights as a rule. It may have been
    /// made before, which only the source knows, but the source makes whatever the relay asks for: it is kept from that,
    /// and if it says that it has not made it, the answer is that of the rows here.
    fn judge_at_source(&mut self, db: DbId, forward: &mut Forward) -> Locked {
        if forward.fence != Fence::NotMade {
            forward.fence = Fence::Judged;
            return Locked::Goes;
        }
        let answer = self.answer_here(db, &forward.trigger);
        // What it may do, or what it would do, may be different by now.
        forward.trigger.is_idle_here = answer.is_none();
        answer.unwrap_or(Locked::Waits)
    }

    /// What a transaction is answered here, that the source has not made; `None` while the tables are not settled.
    fn answer_here(&mut self, db: DbId, trigger: &Trigger) -> Option<Locked> {
        let Self { shell, sessions, databases, .. } = self;
        if !databases.can_follow(db) {
            return None;
        }
        Some(match databases.outcome_of(shell, sessions, trigger) {
            Outcome::Done(done) if done.delta.is_none() => Locked::Refused(done.reply),
            Outcome::Done(_) | Outcome::Wait { .. } | Outcome::TooLong { .. } => Locked::Aside,
        })
    }

    /// Whether the owner of a lock here may assert it, as far as is known. Others may have had it at the source since
    /// before his turn began: he takes it from them if he has taken it here, and else hears of them, once.
    fn may_assert(&mut self, db: DbId, session: Option<SessionId>, held: &Held) -> bool {
        let Self { sessions, relays, .. } = self;
        let (name, relay) = (held.name.as_str(), relays.get_mut(db));
        let knows = sessions.knows_of_loss(name);
        let by_force = session.is_some_and(|session| sessions.has_stolen(session, name));
        if by_force && !knows && relay.locks.may_be_taken(name) && relay.follower.may_ask() {
            let mut out = Vec::new();
            if relay.locks.forget(name) {
                give_back(relay, name, &mut out);
            }
            self.carry_out_relay(db, out);
            return true;
        }
        let may_assert = relay.locks.may_assert(name);
        if may_assert || knows {
            return may_assert;
        }
        self.tell_owner(Turn::Lost(name.to_owned()));
        false
    }

    /// A transaction comes while the source cannot be asked for the locks that it asserts: who owns them here hears that
    /// others may have them.
    pub(super) fn assert_away(&mut self, db: DbId, trigger: &Trigger) {
        if trigger.is_conversion() {
            return;
        }
        for name in asserted(operations(trigger.message.text()).into_iter()) {
            let session = trigger.origin.session();
            if session.is_some_and(|session| self.sessions.owns_lock(session, &name)) {
                self.sessions.note_asserted(&name, db, self.relays.by_db.len() == 1);
                if let Some(turn) = self.relays.get_mut(db).locks.asserted_away(&name) {
                    self.tell_owner(turn);
                }
            }
        }
    }

    /// Somebody here is about to own a lock that nobody else here has. Where all that the server has is one relay, the
    /// source is asked for it at once, so that he is told of it when it is the relay's; where there is more, when he first
    /// asserts it, for nobody knows before that in which database.
    pub(in crate::server) fn ask_source_for_lock(&mut self, name: &str) {
        let Some(db) = self.relay_alone() else { return };
        let relay = self.relays.get_mut(db);
        if relay.follower.may_ask() && relay.locks.is_new(name) && is_id(name) {
            self.ask_for_lock_first(db, name, false);
        }
    }

    /// The database of the relay that is all that this server has.
    pub(in crate::server) fn relay_alone(&self) -> Option<DbId> {
        let mut relays = self.relays.by_db.keys();
        let (Some(db), None) = (relays.next(), relays.next()) else { return None };
        let is_other = |(other, of): (DbId, &Db)| other != *db && !of.is_reserved();
        (!self.databases.iter().any(is_other)).then_some(*db)
    }

    /// Asks for a lock, by which what is asked for under it waits for the answer.
    fn ask_for_lock_first(&mut self, db: DbId, name: &str, by_force: bool) {
        let number = self.ask_for_lock(db, name, by_force);
        self.relays.get_mut(db).forwards.await_lock(number, name.to_owned());
    }

    fn ask_for_lock(&mut self, db: DbId, name: &str, by_force: bool) -> u64 {
        let (mut out, params) = (Vec::new(), weir_json::array([name]).to_string());
        let method = if by_force { "steal" } else { "lock" };
        let relay = self.relays.get_mut(db);
        let number = relay.follower.ask_for_owner(method, params.as_bytes(), &mut out);
        relay.locks.asked(name, number, by_force);
        self.carry_out_relay(db, out);
        number
    }

    /// The source has answered whether a lock is the relay's; false if that was something else.
    pub(super) fn lock_reply(
        &mut self,
        db: DbId,
        number: u64,
        reply: &Result<Vec<u8>, Vec<u8>>,
    ) -> bool {
        let is_owned = reply
            .as_ref()
            .ok()
            .and_then(|result| weir_json::validate(result).ok()?.object()?.get("locked")?.bool());
        let Self { shell, sessions, relays, .. } = self;
        let Relay { locks, forwards, .. } = relays.get_mut(db);
        let Some(turn) = locks.answered(number, is_owned, shell.now_us()) else { return false };
        sessions.note_lock_change();
        let granted = forwards.lock_answered(number).filter(|name| locks.is_owned(name));
        // Who has taken the lock here since it was asked for takes it from the others when he asserts it.
        let is_taken = |turn: &Turn| match turn {
            Turn::Lost(name) => is_owned.is_some() && sessions.is_stolen(name),
            Turn::Back(_) => false,
        };
        let turn = turn.filter(|turn| !is_taken(turn));
        let missed = granted.clone().filter(|name| self.has_missed(db, name));
        self.tell_of_turn(db, turn.or(missed.map(Turn::Back)));
        if let Some(name) = granted {
            self.tell_owner_if_back(name);
        }
        true
    }

    /// Whether the owner of a lock here watches a database that has changed since he was told that he has it. What the
    /// source's lock was free for may have been written under it by others, and he computes from what was before.
    fn has_missed(&self, db: DbId, name: &str) -> bool {
        let Self { sessions, databases, subscriptions, .. } = self;
        let Some(owner) = sessions.lock_owner(name) else { return false };
        let known = sessions.known_under(owner, name, db);
        let has_changed = known.is_some_and(|known| databases.shown(db) != Some(known));
        has_changed && subscriptions.dbs_of(owner).contains(&db)
    }

    /// The source says that a lock is the relay's, or not any more.
    pub(super) fn lock_told(&mut self, db: DbId, name: &str, is_owned: bool) {
        let now_us = self.shell.now_us();
        let turn = self.relays.get_mut(db).locks.told(name, is_owned, now_us);
        self.sessions.note_lock_change();
        self.tell_of_turn(db, turn);
    }

    /// The connection has ended.
    pub(super) fn lose_locks(&mut self, db: DbId) {
        let turns = self.relays.get_mut(db).locks.disconnected();
        turns.into_iter().for_each(|turn| self.tell_of_turn(db, Some(turn)));
        // What is asked for under them is not made any more.
        self.let_unlocks_pass(db);
    }

    /// Takes back what waits at the source under locks that its clients have no longer here: the relay has them there
    /// yet, for others. That comes before what those send. Answers with how many turns of locks it has looked at.
    pub(super) fn call_back(&mut self, db: DbId) -> u64 {
        let Self { shell, sessions, relays, .. } = self;
        let (relay, changes) = (relays.get_mut(db), sessions.lock_changes());
        if !relay.locks.is_settled(changes, shell.now_us()) {
            let numbers = relay.forwards.call_back(|held| sessions.is_held(held));
            self.tell_canceled(db, numbers);
        }
        changes
    }

    /// Gives back what nobody wants any more, and asks again for what was lost. What was asked for under the locks
    /// has been looked at after so many turns of locks.
    pub(super) fn settle_locks(&mut self, db: DbId, changes: u64) {
        let now_us = self.shell.now_us();
        if self.relays.get_mut(db).locks.is_settled(changes, now_us) {
            return;
        }
        let names = self.relays.by_db[&db].locks.names();
        let is_unwanted = |name: &&String| !self.is_wanted_at_source(db, name);
        let unwanted: BTreeSet<String> = names.filter(is_unwanted).cloned().collect();
        let Self { sessions, databases, relays, .. } = self;
        let relay = relays.get_mut(db);
        let may_ask = relay.follower.may_ask();
        let given_up = relay.locks.give_up(may_ask, |name, may_assert| {
            !unwanted.contains(name)
                || may_assert && is_yet_to_go(sessions, databases, (db, &relay.forwards), name)
        });
        given_up.iter().for_each(|(name, _)| sessions.forget_ended(name));
        let again = if may_ask { relay.locks.to_ask_again(now_us) } else { Vec::new() };
        let mut out = Vec::new();
        for (name, _) in given_up.iter().chain(&again).filter(|(_, is_there)| *is_there) {
            give_back(relay, name, &mut out);
        }
        self.carry_out_relay(db, out);
        for (name, _) in &again {
            self.ask_for_lock(db, name, false);
        }
        for (name, _) in given_up {
            self.tell_owner_if_back(name);
        }
        if may_ask {
            self.let_others_have_turns(db);
            self.relays.get_mut(db).locks.settle(changes, |name| unwanted.contains(name));
        }
    }

    /// Whether a relay is to have a lock at its source, or to wait for it there: its owner here has asserted it in the relay's
    /// database, or can assert it in no other. What the relay has, and its owner has asserted nowhere, stays with it in case
    /// he asserts it there; of several relays that have it, with the first one.
    fn is_wanted_at_source(&self, db: DbId, name: &str) -> bool {
        let Self { sessions, relays, .. } = self;
        let is_owned = |db: &DbId| relays.get(*db).is_some_and(|relay| relay.locks.is_owned(name));
        if !sessions.is_locked(name) {
            return false;
        }
        if self.relay_alone() == Some(db) {
            return true;
        }
        let asserted_in = sessions.asserted_in(name);
        match asserted_in.iter().position(|asserted| *asserted == db) {
            // Of two at one source, one waits for the other: it is for the one whose database it was asserted in last.
            Some(at) => {
                let is_queued =
                    |db: &DbId| relays.get(*db).is_some_and(|relay| relay.locks.is_queued(name));
                let has_it = is_owned(&db);
                let is_for = |later: &DbId| if has_it { is_queued(later) } else { is_owned(later) };
                !asserted_in[at + 1..].iter().any(is_for)
            }
            None => {
                let is_first = || relays.by_db.keys().find(|db| is_owned(db)) == Some(&db);
                let is_of_relay = |db: &DbId| relays.get(*db).is_some();
                !asserted_in.iter().any(is_of_relay) && is_first()
            }
        }
    }

    /// A relay has given a lock up, or has gone, or has come to have it. If its owner here was told that others have it at
    /// the source, and no relay of this server waits for it, he may assert it again.
    pub(super) fn tell_owner_if_back(&mut self, name: String) {
        let is_elsewhere = self.relays.by_db.values().any(|relay| relay.locks.is_elsewhere(&name));
        if self.sessions.knows_of_loss(&name) && !is_elsewhere {
            self.tell_owner(Turn::Back(name));
        }
    }

    /// Locks that clients here have taken turns at for long go to those who wait at the source before the next one here,
    /// who has not been told of it yet, has his.
    fn let_others_have_turns(&mut self, db: DbId) {
        let Self { shell, sessions, relays, .. } = self;
        let due = relays.get_mut(db).locks.due_to_others(shell.now_us());
        let due: Vec<String> =
            due.filter(|name| sessions.is_yet_to_be_told(name)).map(str::to_owned).collect();
        for name in due {
            let (mut out, relay) = (Vec::new(), self.relays.get_mut(db));
            relay.locks.forget(&name);
            give_back(relay, &name, &mut out);
            self.sessions.forget_ended(&name);
            self.carry_out_relay(db, out);
            self.ask_for_lock_first(db, &name, false);
        }
    }

    /// Something has become of a lock at a relay's source: its owner here hears of it, if it concerns him. What others may
    /// have written under a lock in a database in which he has not asserted it he learns when he does (`has_missed`).
    fn tell_of_turn(&mut self, db: DbId, turn: Option<Turn>) {
        let Some(turn) = turn else { return };
        let (Turn::Lost(name) | Turn::Back(name)) = &turn;
        if self.sessions.is_asserted_in(name, db) || self.relay_alone() == Some(db) {
            self.tell_owner(turn);
        }
    }

    /// Who owns the lock here hears what has become of it at the source.
    fn tell_owner(&mut self, turn: Turn) {
        let Self { shell, sessions, .. } = self;
        match turn {
            Turn::Lost(name) => sessions.tell_owner(shell, &name, false),
            Turn::Back(name) => {
                // Who came to own it here meanwhile has not asserted it yet.
                if !sessions.knows_of_loss(&name) {
                    sessions.tell_owner(shell, &name, false);
                }
                sessions.tell_owner(shell, &name, true);
            }
        }
    }
}
