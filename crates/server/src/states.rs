//! Who waits until a database has a state: that of an id (`weir_wait_id`), or one with all that was
//! committed when it was asked for (`weir_sync`).
//!
//! What is committed in a cluster, its leader says once a majority has said that it still leads. There
//! is one such question of a database at a time: it is asked for all who have come before it.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::{Error, Uuid};
use weir_json::Text;

use crate::ids::{DbId, SessionId};
use crate::reply::error_text;
use crate::shell::Shell;

/// Most that wait for states at the same time; more are refused.
const WAITS_MAX: usize = 4096;

/// Most waits of one session; more are refused.
const WAITS_OF_SESSION_MAX: usize = 64;

/// How long a wait takes at most, in milliseconds, whatever somebody says.
const TIMEOUT_MS_MAX: u64 = 3_600_000;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The state of this id.
    Id(Uuid),
    /// The state of this id, of which the source of a relay has said that it has all that was committed.
    Source(Uuid),
    /// One with all that is committed now: it is to be asked what that is.
    Latest,
    /// The answer to the question of this number.
    Answer(u64),
    /// One with this entry of the cluster's log.
    Entry(u64),
}

impl Wanted {
    /// The parameters of `weir_wait_id`, `[DB, UUID, MS]`: what is waited for, and how long, in
    /// microseconds.
    ///
    /// # Errors
    /// What is wrong with them, for the client.
    pub(crate) fn of_id(params: Text<'_>) -> Result<(Self, u64), Error> {
        let wrong = |details: &str| Error::syntax(params, format!("weir_wait_id: {details}"));
        let mut rest = params.elements().into_iter().flatten().skip(1);
        let id = rest.next().and_then(|id| Uuid::parse_bytes(id.str()?.as_bytes()));
        let id = id.ok_or_else(|| wrong("the id of a transaction expected"))?;
        let timeout_us = timeout_us(rest.next()).map_err(wrong)?;
        if rest.next().is_some() {
            return Err(wrong("three parameters expected"));
        }
        Ok((Self::Id(id), timeout_us))
    }

    /// The parameters of `weir_sync`, `[DB, MS]`: what is waited for, and how long, in microseconds.
    ///
    /// # Errors
    /// What is wrong with them, for the client.
    pub(crate) fn of_sync(params: Text<'_>) -> Result<(Self, u64), Error> {
        let wrong = |details: &str| Error::syntax(params, format!("weir_sync: {details}"));
        let mut rest = params.elements().into_iter().flatten().skip(1);
        let timeout_us = timeout_us(rest.next()).map_err(wrong)?;
        if rest.next().is_some() {
            return Err(wrong("two parameters expected"));
        }
        Ok((Self::Latest, timeout_us))
    }
}

fn timeout_us(ms: Option<Text<'_>>) -> Result<u64, &'static str> {
    let ms = ms.and_then(|ms| u64::try_from(ms.integer()?).ok());
    let ms = ms.ok_or("a number of milliseconds expected")?;
    Ok(ms.min(TIMEOUT_MS_MAX) * 1000)
}

/// One who waits.
#[derive(Debug)]
struct Wait {
    session: SessionId,
    /// The id of the request.
    request: Vec<u8>,
    db: DbId,
    until_us: u64,
    wanted: Wanted,
    /// The database has it: the answer comes when the session has been told what led there, and no time limits that.
    is_there: bool,
}

/// What a cluster's leader is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) number: u64,
    /// Who is asked, in which term: another leader has to be asked anew.
    pub(crate) leader: (Uuid, u64),
}

/// What clients have asked for under locks, of which nobody can say what has become.
#[derive(Debug)]
struct Doubt {
    db: DbId,
    locks: BTreeSet<String>,
    /// Behind this, who has the locks next knows it.
    wanted: Wanted,
}

/// All who wait.
#[derive(Debug, Default)]
pub(crate) struct States {
    waits: Vec<Wait>,
    doubts: Vec<Doubt>,
    questions: BTreeMap<DbId, Question>,
    next_question: u64,
    /// When to ask again where nobody could be asked.
    again_us: Option<u64>,
}

impl States {
    /// Of a process with this id, by which its first question has a number of chance: a late answer to one of the
    /// process before is none to this one's.
    pub(crate) fn of_process(id: Uuid) -> Self {
        Self { next_question: (id.to_u128() as u64) >> 2, ..Self::default() }
    }

    /// Somebody waits.
    ///
    /// # Errors
    /// Too many do.
    pub(crate) fn wait(
        &mut self,
        shell: &Shell,
        (session, request): (SessionId, &[u8]),
        db: DbId,
        (wanted, timeout_us): (Wanted, u64),
    ) -> Result<(), Error> {
        let own = self.waits.iter().filter(|wait| wait.session == session);
        let is_over = own.count() >= WAITS_OF_SESSION_MAX;
        if is_over || self.waits.len() >= WAITS_MAX {
            let whose = if is_over { "this client waits" } else { "clients wait" };
            let details = format!("{whose} for as many states as the server keeps");
            return Err(Error::new("resources exhausted", details));
        }
        let until_us = shell.now_us() + timeout_us;
        let request = request.to_owned();
        self.waits.push(Wait { session, request, db, until_us, wanted, is_there: false });
        Ok(())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.doubts.is_empty()
    }

    /// Nobody can say what has become of something that was asked for under these locks: who has them next is told so when the
    /// database has all that is committed by now.
    pub(crate) fn doubt(&mut self, db: DbId, locks: impl IntoIterator<Item = String>) {
        let mut doubts = self.doubts.iter_mut();
        match doubts.find(|doubt| doubt.db == db && doubt.wanted == Wanted::Latest) {
            Some(doubt) => doubt.locks.extend(locks),
            None => {
                let (locks, wanted) = (locks.into_iter().collect(), Wanted::Latest);
                self.doubts.push(Doubt { db, locks, wanted });
            }
        }
    }

    /// Whether something is in doubt that was asked for under this lock.
    pub(crate) fn is_in_doubt(&self, db: DbId, lock: &str) -> bool {
        self.doubts.iter().any(|doubt| doubt.db == db && doubt.locks.contains(lock))
    }

    /// Databases may have all by now that was in doubt.
    pub(crate) fn settle(&mut self, has: impl Fn(DbId, Wanted) -> bool) {
        self.doubts.retain(|doubt| !has(doubt.db, doubt.wanted));
    }

    /// When somebody has waited long enough, or it is time to ask again.
    #[inline]
    pub(crate) fn next_us(&self) -> Option<u64> {
        let away = self.waits.iter().filter(|wait| !wait.is_there);
        let until_us = away.map(|wait| wait.until_us).min();
        let is_asked = until_us.is_some() || !self.doubts.is_empty();
        until_us.into_iter().chain(self.again_us.filter(|_| is_asked)).min()
    }

    /// Databases of which it is to be asked what is committed.
    pub(crate) fn to_ask(&self, now_us: u64) -> BTreeSet<DbId> {
        if self.again_us.is_some_and(|at_us| at_us > now_us) {
            return BTreeSet::new();
        }
        let waits = self.waits.iter().map(|wait| (wait.db, wait.wanted));
        let all = waits.chain(self.doubts.iter().map(|doubt| (doubt.db, doubt.wanted)));
        let is_new = |(db, wanted): &(DbId, Wanted)| {
            *wanted == Wanted::Latest && !self.questions.contains_key(db)
        };
        all.filter(is_new).map(|(db, _)| db).collect()
    }

    /// The leader of a database's cluster is about to be asked: the question's number.
    pub(crate) fn ask(&mut self, db: DbId, leader: (Uuid, u64)) -> u64 {
        self.next_question += 1;
        let number = self.next_question;
        self.questions.insert(db, Question { number, leader });
        self.change(db, Wanted::Latest, Wanted::Answer(number));
        number
    }

    /// Questions that are not answered.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (DbId, Question)> {
        self.questions.iter().map(|(db, question)| (*db, *question))
    }

    /// Nobody will answer what was asked: it is asked again.
    pub(crate) fn ask_again(&mut self, db: DbId, at_us: u64) {
        let Some(question) = self.questions.remove(&db) else { return };
        self.change(db, Wanted::Answer(question.number), Wanted::Latest);
        self.again_us = Some(self.again_us.map_or(at_us, |again_us| again_us.min(at_us)));
    }

    /// Nobody can be asked now.
    pub(crate) fn ask_later(&mut self, at_us: u64) {
        self.again_us = Some(at_us);
    }

    /// A leader has answered: everything up to this entry was committed. What an earlier leader says
    /// late is an answer to no question.
    pub(crate) fn answered(&mut self, db: DbId, number: u64, entry: u64) {
        if self.questions.get(&db).is_some_and(|question| question.number == number) {
            self.questions.remove(&db);
            self.change(db, Wanted::Answer(number), Wanted::Entry(entry));
        }
    }

    /// A source has answered: the state of this id has all that was committed.
    pub(crate) fn answered_with_id(&mut self, db: DbId, number: u64, id: Uuid) {
        if self.questions.get(&db).is_some_and(|question| question.number == number) {
            self.questions.remove(&db);
            self.change(db, Wanted::Answer(number), Wanted::Source(id));
        }
    }

    /// A relay has got all rows, or all that was missed, at once: the states of which a source has said that they
    /// have all that was committed may be among those that it has skipped. It asks again.
    pub(crate) fn has_skipped(&mut self, db: DbId) {
        for wait in self.waits.iter_mut().filter(|wait| wait.db == db && !wait.is_there) {
            if matches!(wait.wanted, Wanted::Source(_)) {
                wait.wanted = Wanted::Latest;
            }
        }
    }

    /// Nobody can say which state has all that was committed: who waits for the answer is told so.
    pub(crate) fn refuse(&mut self, shell: &mut Shell, (db, number): (DbId, u64), error: &Error) {
        if self.questions.get(&db).is_some_and(|question| question.number == number) {
            self.questions.remove(&db);
        }
        let waits = |wait: &mut Wait| wait.db == db && wait.wanted == Wanted::Answer(number);
        for wait in self.waits.extract_if(.., waits) {
            shell.send(wait.session, weir_wire::reply_error(&wait.request, &error_text(error)));
        }
    }

    /// A database without a cluster has all that is committed.
    pub(crate) fn has_all(&mut self, db: DbId) {
        self.change(db, Wanted::Latest, Wanted::Entry(0));
    }

    fn change(&mut self, db: DbId, from: Wanted, to: Wanted) {
        let waits = self.waits.iter_mut().map(|wait| (wait.db, &mut wait.wanted));
        let doubts = self.doubts.iter_mut().map(|doubt| (doubt.db, &mut doubt.wanted));
        for (_, wanted) in waits.chain(doubts).filter(|(of, wanted)| *of == db && **wanted == from)
        {
            *wanted = to;
        }
    }

    /// Looks which databases have what is waited for by now: whose waits that ends, once they have been told.
    pub(crate) fn reached(&mut self, has: impl Fn(DbId, Wanted) -> bool) -> BTreeSet<SessionId> {
        self.waits.iter_mut().for_each(|wait| wait.is_there |= has(wait.db, wait.wanted));
        self.waits.iter().filter(|wait| wait.is_there).map(|wait| wait.session).collect()
    }

    /// Answers those whose databases have what they wait for and who have been `told`, and those whose time is up.
    pub(crate) fn answer(&mut self, shell: &mut Shell, told: &BTreeSet<SessionId>) {
        let now_us = shell.now_us();
        self.again_us = self.again_us.filter(|at_us| *at_us > now_us);
        let is_over = |wait: &mut Wait| match wait.is_there {
            true => told.contains(&wait.session),
            false => wait.until_us <= now_us,
        };
        for wait in self.waits.extract_if(.., is_over) {
            let reply = if wait.is_there {
                weir_wire::reply_result(&wait.request, b"{}")
            } else {
                let details = "the database has not had that state within the time that was given";
                let error = Error::new("timed out", details);
                weir_wire::reply_error(&wait.request, &error_text(&error))
            };
            shell.send(wait.session, reply);
        }
    }

    /// A session has left.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.waits.retain(|wait| wait.session != session);
    }

    /// A database has been removed.
    pub(crate) fn forget_database(&mut self, shell: &mut Shell, db: DbId) {
        self.questions.remove(&db);
        self.doubts.retain(|doubt| doubt.db != db);
        for wait in self.waits.extract_if(.., |wait| wait.db == db) {
            shell.send(wait.session, weir_wire::reply_error_string(&wait.request, "canceled"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_of(session: SessionId, db: DbId, wanted: Wanted) -> Wait {
        Wait { session, request: vec![], db, until_us: 900, wanted, is_there: false }
    }

    #[test]
    fn no_time_limits_how_long_who_waits_is_told_what_led_to_the_state() {
        let (session, db) = (SessionId(1), DbId(1));
        let waits = vec![wait_of(session, db, Wanted::Entry(3))];
        let mut states = States { waits, ..States::default() };
        assert_eq!(states.reached(|_, _| false), BTreeSet::new());
        assert_eq!(states.next_us(), Some(900));
        assert_eq!(states.reached(|_, _| true), BTreeSet::from([session]));
        assert_eq!(states.next_us(), None, "it has come in time");
        assert_eq!(states.reached(|_, _| false), BTreeSet::from([session]), "and stays");
    }

    /// The update that would bring the state that the source has named was lost with the connection.
    #[test]
    fn what_a_relay_has_skipped_is_asked_again() {
        let (session, db, id) = (SessionId(1), DbId(1), Uuid::from_u128(7));
        let wait = |wanted| wait_of(session, db, wanted);
        let waits = vec![wait(Wanted::Latest), wait(Wanted::Id(id))];
        let mut states = States { waits, ..States::default() };
        let question = states.ask(db, (Uuid::ZERO, 0));
        states.answered_with_id(db, question, id);
        assert!(states.to_ask(100).is_empty());
        states.has_skipped(db);
        assert_eq!(states.to_ask(100), BTreeSet::from([db]));
        assert_eq!(
            states.waits[1].wanted,
            Wanted::Id(id),
            "who has named a state waits for that one"
        );
    }

    #[test]
    fn what_is_in_doubt_is_until_the_database_has_all_that_was_committed() {
        let db = DbId(1);
        let mut states = States::default();
        states.doubt(db, ["l".to_owned()]);
        assert!(states.is_in_doubt(db, "l") && !states.is_in_doubt(db, "m"));
        states.ask_later(500);
        assert_eq!((states.next_us(), states.to_ask(100)), (Some(500), BTreeSet::new()));
        assert_eq!(states.to_ask(500), BTreeSet::from([db]));
        let question = states.ask(db, (Uuid::ZERO, 0));
        states.answered(db, question, 7);
        let has =
            |applied| move |_, wanted| matches!(wanted, Wanted::Entry(entry) if applied >= entry);
        states.settle(has(6));
        assert!(states.is_in_doubt(db, "l"));
        states.settle(has(7));
        assert!(states.is_empty());
    }

    #[test]
    fn nobody_is_asked_again_for_clients_that_have_gone() {
        let (session, db) = (SessionId(1), DbId(1));
        let wait = wait_of(session, db, Wanted::Latest);
        let mut states = States { waits: vec![wait], ..States::default() };
        states.ask_later(500);
        assert_eq!(states.next_us(), Some(500));
        states.forget_session(session);
        assert_eq!(states.next_us(), None);
    }

    /// The process was killed while its leader could not answer yet, and its server started again.
    #[test]
    fn a_late_answer_to_a_process_is_none_to_the_next_one() {
        let (session, db, leader) = (SessionId(1), DbId(1), (Uuid::ZERO, 0));
        let mut before = States::of_process(Uuid::from_u128(0x8001_0203_0405_0607));
        let mut now = States::of_process(Uuid::from_u128(0x9001_0203_0405_0607));
        now.waits = vec![wait_of(session, db, Wanted::Latest)];
        let late = before.ask(db, leader);
        now.ask(db, leader);
        now.answered_with_id(db, late, Uuid::from_u128(7));
        assert!(matches!(now.waits[0].wanted, Wanted::Answer(number) if number != late));
    }
}
