//! Requests on their way to the leader, and those that have come to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_cluster::Found;
use weir_data::Uuid;
use weir_engine::Outcome as Executed;
use weir_json::{Text, TextBuf};

use crate::clusters::arrived::Arrived;
use crate::clusters::askers::Asked;
use crate::clusters::forwards::State;
use crate::clusters::message::{Message, Outcome, Request};
use crate::clusters::repetitions::Attempt;
use crate::clusters::window::Way;
use crate::clusters::{AGAIN_US, Part, Told};
use crate::database::{Answer, Databases, Trigger, server_db};
use crate::ids::{DbId, SessionId, Ticket};
use crate::once::Once;
use crate::origin::{Asker, Identity, Origin};
use crate::outbound;
use crate::reply::error_text;
use crate::server::Server;
use crate::session::locks::Held;
use crate::text_limit::{TEXT_BYTES_MAX, too_long};
use crate::work::Nature;

/// What grows in a request to the leader: its text, whose it is, and the locks that it asserts.
fn bytes_to_forward(trigger: &Trigger) -> usize {
    let Identity { name, role, client, read_only: _ } = &*trigger.origin.identity;
    let identity = name.len() + role.len() + client.as_ref().map_or(0, String::len);
    let locks = trigger.locks.iter().flatten();
    let locks: usize = locks.map(|held| held.name.len() + size_of::<u64>()).sum();
    trigger.message.len() + identity + locks
}

impl Server {
    /// Requests that are for the leader go there, or run here if this member leads.
    pub(in crate::server) fn dispatch(&mut self, db: DbId) {
        self.queue_for_leader(db);
        let waiting = self.databases.take_peers_waiting(db);
        let too_late = self.databases.take_peers_too_late(db);
        let part = self.clusters.part_mut(db);
        let at = part.member.last_position();
        self.begin_conversion(db);
        let waiting = waiting.into_iter().map(|origin| (origin, Outcome::Waits(at)));
        let too_late = too_late.into_iter().map(|origin| (origin, Outcome::NotLeader));
        for (origin, outcome) in waiting.chain(too_late) {
            if let Asker::Peer(number) = origin.asker {
                self.answer_peer(number, origin.eid, outcome);
            }
        }
        self.run_arrived(db);
        if self.clusters.part_mut(db).member.may_propose() {
            self.run_all_own(db);
        } else {
            self.ask_leader(db);
        }
        self.hurry_for_members(db);
    }

    /// This member leads: what its clients have asked for runs here.
    fn run_all_own(&mut self, db: DbId) {
        for number in self.clusters.part_mut(db).forwards.new_ones() {
            let part = self.clusters.part_mut(db);
            // Whose client was disconnected by one before it is gone.
            if !part.forwards.has(number) {
                continue;
            }
            // What its session asked before, and a helper of this member has since it led, comes first.
            let session = part.forwards.number(number).trigger.origin.session();
            if session.is_some_and(|session| self.at_work(db).any(|busy| busy == session)) {
                continue;
            }
            if !self.run_own(db, number) {
                break;
            }
        }
    }

    /// Another member leads, and is asked for what it has not been asked.
    fn ask_leader(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        let Some(leader) = part.member.leader().filter(|id| *id != part.member.id()) else {
            return;
        };
        // What a session asked before, and a helper of this member has since it led, comes first.
        let busy: BTreeSet<SessionId> = self.at_work(db).collect();
        let part = self.clusters.part_mut(db);
        let backlog_bytes_max = part.backlog_bytes_max();
        let is_free = |session| !busy.contains(&session);
        for (number, way) in part.forwards.to_ask(backlog_bytes_max, is_free) {
            let part = self.clusters.part_mut(db);
            // Who could not be asked is asked again later, and who comes behind that after it.
            if part.again_us.is_some() {
                break;
            }
            // What it may have become in an earlier term takes effect first, and so does what its session asked
            // behind it: a leader that has that would run it anew on top.
            if part.forwards.number(number).attempts > 0 && !part.has_earlier_terms() {
                break;
            }
            self.send_request(db, number, (leader, way));
        }
    }

    /// What clients asked of the leader that have left it is not asked once more.
    pub(super) fn forget_gone(&mut self, db: DbId) {
        let Self { sessions, clusters, .. } = self;
        let gone = clusters.part_mut(db).forwards.take_gone(|session| sessions.has(session));
        for trigger in gone {
            self.lose_request(trigger);
        }
    }

    /// Whoever has the tables is not to keep other members waiting, nor what they have committed.
    fn hurry_for_members(&mut self, db: DbId) {
        if self.databases.get(db).is_none_or(|db| !db.tables().is_away()) {
            return;
        }
        let part = self.clusters.part(db).expect("its requests have just been dispatched");
        let sessions: BTreeSet<SessionId> = self.at_work(db).collect();
        let is_free = |session: Option<SessionId>| session.is_none_or(|id| !sessions.contains(&id));
        let may_run = part.forwards.new_sessions().any(is_free);
        let wants_to_run = may_run || self.next_arrived(db).is_some();
        if wants_to_run && part.member.may_propose() || part.is_behind() {
            let Self { shell, databases, .. } = self;
            databases.hurry(shell, db);
        }
    }

    /// The request of another member that is to run next, if one need not wait for what is at work.
    fn next_arrived(&self, db: DbId) -> Option<u64> {
        let part = self.clusters.part(db).expect("it has been asked as a member");
        let runs = |of: &Request| self.clusters.askers.has(of.eid, of.term);
        self.busy(db).next_of(&part.arrived, runs, |from| part.is_full(from))
    }

    /// Clients of this server for whom something is at work: what they ask behind that waits.
    pub(in crate::server) fn at_work(&self, db: DbId) -> impl Iterator<Item = SessionId> {
        self.databases.unfinished(db).filter_map(|trigger| trigger.origin.session())
    }

    /// Clients of other members for whom something is at work.
    fn busy(&self, db: DbId) -> Busy<'_> {
        let mut busy = Busy::default();
        for Trigger { origin, locks, .. } in self.databases.unfinished(db) {
            if let Asker::Peer(number) = origin.asker
                && let Some(Asked { from, .. }) = self.clusters.askers.get(number)
            {
                let from = *from;
                busy.clients.insert((from, &origin.identity.name));
                busy.locks.extend(locks.iter().flatten().map(|held| (from, held.name.as_str())));
            }
        }
        busy
    }

    /// What is for the leader waits for its turn. While nobody leads it counts as kept for its session.
    pub(super) fn queue_for_leader(&mut self, db: DbId) {
        for mut trigger in self.databases.take_to_forward(db) {
            let checked = match bytes_to_forward(&trigger) > TEXT_BYTES_MAX {
                true => Err(too_long("a request")),
                false => trigger.check_versions(),
            };
            if let Err(error) = checked {
                if trigger.since.is_some() {
                    // It was asked for here, while this member led, and may be an entry.
                    self.forget_client(db, &trigger);
                } else {
                    self.refuse_request(trigger, &error_text(&error));
                }
                continue;
            }
            let Self { shell, sessions, databases, clusters, .. } = self;
            let part = clusters.part_mut(db);
            // What may be an entry is not refused.
            if part.member.leader().is_some() || trigger.since.is_some() {
                part.forwards.push(trigger, 0);
                continue;
            }
            match outbound::admit(sessions, &mut trigger) {
                Ok(Some(bytes)) => part.forwards.push(trigger, bytes),
                Ok(None) => databases.cancel(shell, sessions, trigger),
                Err(error) => self.refuse_request(trigger, &error_text(&error)),
            }
        }
    }

    /// A session takes back a transaction that waits for a leader. What one has been asked is answered.
    pub(in crate::server) fn cancel_for_leader(&mut self, session: SessionId, request: &[u8]) {
        for db in self.clusters.parts.keys().copied().collect::<Vec<_>>() {
            self.queue_for_leader(db);
            let part = self.clusters.part_mut(db);
            if let Some(trigger) = part.forwards.take_request(session, request) {
                let Self { shell, sessions, databases, .. } = self;
                databases.cancel(shell, sessions, trigger);
            }
        }
    }

    /// Whether a transaction of a client goes to the leader of its cluster as it is. One that may
    /// wait is tried here first: what it waits for comes here, too.
    pub(in crate::server) fn is_for_leader(
        &self,
        db: DbId,
        once: Option<Once>,
        nature: impl Fn() -> Nature,
    ) -> bool {
        let Some(part) = self.clusters.part(db) else { return false };
        let leader = part.member.leader();
        let is_judged = || once.is_some_and(Once::is_judged);
        let is_meant = |Nature { only_reads, may_wait, by_version, .. }: Nature| {
            !may_wait && !by_version && (!only_reads || is_judged())
        };
        leader.is_some_and(|leader| leader != part.member.id())
            && !Once::explains(once)
            && is_meant(nature())
    }

    /// Whether others have asked something of the leader under one of these locks, which this session owns now, and
    /// it is not decided: what is read under the lock would not have it.
    pub(in crate::server) fn are_asked_of_leader_under(
        &self,
        db: DbId,
        locks: &[Held],
        session: SessionId,
    ) -> bool {
        !locks.is_empty()
            && self.clusters.part(db).is_some_and(|part| part.forwards.has_under(locks, session))
    }

    /// Answers a transaction that only reads while the cluster decides what has run, as long as the
    /// tables have all that is committed. False if it is to wait.
    pub(in crate::server) fn read_beside(
        &mut self,
        origin: &Origin,
        operations: &[Text<'_>],
        locks: &[Held],
    ) -> bool {
        let Asker::Session(session) = origin.asker else { return false };
        if !locks.is_empty() {
            // Others may have written under them what is not decided yet.
            return false;
        }
        // Another member may have told its client of an entry that this leader's disk has not got yet.
        let is_behind = |part: &Part| part.told.leads && part.member.committed() > part.applied;
        if self.clusters.part(origin.db).is_some_and(is_behind) {
            return false;
        }
        let Self { shell, sessions, databases, .. } = self;
        if !databases.shows_committed(origin) || !weir_engine::only_reads_once(operations) {
            return false;
        }
        let outcome = databases.execute(shell, sessions, origin, (Some(locks), None), operations);
        // One that takes long is for a helper.
        let Executed::Done(done) = outcome else { return false };
        assert!(done.delta.is_none(), "what reads changes nothing");
        self.give(origin.db, Answer::new(session, origin.clone(), done.reply));
        true
    }

    /// A request of this member's own clients runs here. False if the tables are not open.
    fn run_own(&mut self, db: DbId, number: i64) -> bool {
        let part = self.clusters.part_mut(db);
        if !self.databases.is_open(db) || part.lacks_rows() {
            return false;
        }
        let forward = part.forwards.number(number);
        let eid = forward.trigger.origin.eid;
        let found = match forward.since {
            // The id that its client chose is looked for when it has run.
            Some(since) if !forward.trigger.is_judged() => part.member.find(eid, since),
            Some(_) if is_forgotten(&self.databases, db, forward.trigger.once.as_deref()) => {
                Found::Unknown
            }
            _ => Found::No,
        };
        match found {
            Found::Yes(at) => part.forwards.number(number).state = State::Entry(at, None),
            Found::No => {
                let forward = part.forwards.take(eid).expect("it has just been looked at");
                let Self { shell, sessions, databases, .. } = self;
                databases.run_again_here(shell, sessions, forward.trigger);
            }
            Found::Unknown => {
                let forward = part.forwards.take(eid).expect("it has just been looked at");
                self.forget_client(db, &forward.trigger);
            }
        }
        true
    }

    fn send_request(&mut self, db: DbId, number: i64, (leader, way): (Uuid, Way)) {
        let now_us = self.shell.now_us();
        let Self { sessions, clusters, .. } = self;
        let part = clusters.part_mut(db);
        let (committed, term) = (part.member.committed(), part.member.term());
        let forward = part.forwards.number(number);
        let trigger = &forward.trigger;
        let origin = &trigger.origin;
        let request = Request {
            eid: origin.eid,
            since: forward.since.unwrap_or(committed),
            attempt: forward.attempts,
            term,
            elapsed_ms: now_us.saturating_sub(origin.created_us) / 1000,
            identity: (*origin.identity).clone(),
            locks: sessions.held_names(trigger.locks.as_deref().unwrap_or_default()),
            once: trigger.once.as_deref().copied(),
            text: trigger.message.text().as_bytes().to_vec(),
        };
        let body = Message::Request(Box::new(request)).write();
        if part.member.send_request(leader, body) {
            let forward = part.forwards.number(number);
            forward.since.get_or_insert(committed);
            forward.attempts += 1;
            forward.state = State::Asked(way);
        } else {
            part.again_us.get_or_insert(now_us + AGAIN_US);
        }
    }

    /// Another member's server has said something.
    pub(in crate::server) fn peer_message(&mut self, db: DbId, from: Uuid, body: &[u8]) {
        let Some(message) = Message::parse(body) else {
            let text = format!("message of member {from} makes no sense");
            return self.shell.log_limited("peer", "raft", crate::effect::Level::Warning, text);
        };
        let now_us = self.shell.now_us();
        let part = self.clusters.part_mut(db);
        match message {
            Message::Taken(bytes) => part.answers_taken(from, bytes),
            Message::WhatIsCommitted(number) => self.asked_what_is_committed(db, from, number),
            Message::Committed(number, index) => {
                if part.member.leader() == Some(from) {
                    self.told_what_is_committed(db, number, index);
                }
            }
            Message::Request(request) => {
                // One that was for an earlier term may have been asked elsewhere since, and come late.
                let leads = part.member.leader() == Some(part.member.id());
                if leads && part.member.term() == request.term {
                    part.arrived.push(from, *request);
                } else {
                    let Request { eid, attempt, identity, .. } = *request;
                    part.reply((from, &Arc::new(identity)), (eid, attempt), Outcome::NotLeader);
                }
            }
            Message::Reply { eid, attempt, outcome } => {
                if let Some(bytes) = part.answers.taken(from, body.len()) {
                    // If this cannot be told, a connection has ended, and with that the leader's count.
                    part.member.send_request(from, Message::Taken(bytes).write());
                }
                // What was asked of an earlier leader may be answered late, and mean nothing any more.
                if part.member.leader() != Some(from) {
                    return;
                }
                let Some(forward) = part.forwards.answered(eid, attempt) else { return };
                let session = forward.trigger.origin.session();
                let gone = session.filter(|session| !self.sessions.has(*session));
                match outcome {
                    Outcome::Entry(at, reply) => forward.state = State::Entry(at, Some(reply)),
                    Outcome::Empty(at, reply) => forward.state = State::Empty(at, reply),
                    Outcome::Waits(at) => forward.state = State::Waits(at),
                    Outcome::Known(at) => forward.state = State::Entry(at, None),
                    Outcome::NotLeader => {
                        forward.state = State::New;
                        part.again_us.get_or_insert(now_us + AGAIN_US);
                    }
                    Outcome::Unknown => {
                        let forward = part.forwards.take(eid).expect("it has just been found");
                        self.forget_client(db, &forward.trigger);
                    }
                }
                let part = self.clusters.part_mut(db);
                let unwanted = gone.map(|session| part.forwards.forget_session(session));
                unwanted.into_iter().flatten().for_each(|trigger| self.lose_request(trigger));
            }
        }
    }

    /// Requests of other members run, if this one leads and its tables are open.
    fn run_arrived(&mut self, db: DbId) {
        loop {
            if !self.databases.is_open(db) {
                return;
            }
            let part = self.clusters.part_mut(db);
            // What is committed and has not taken effect may be what is asked for.
            if !part.member.may_propose() || part.lacks_rows() || part.arrived.is_empty() {
                return;
            }
            let next = self.next_arrived(db);
            let part = self.clusters.part_mut(db);
            let Some((from, request)) = next.map(|next| part.arrived.take(next)) else { return };
            // It may have come twice, the later attempt first, for that takes another connection: it runs
            // once, and the later attempt is answered.
            let attempt = part.repetitions.note(request.eid, request.attempt);
            if attempt == Attempt::TooLate
                || self.clusters.askers.runs(request.eid, request.term, request.attempt)
            {
                continue;
            }
            let part = self.clusters.part_mut(db);
            let once = request.once.as_ref();
            let found = match attempt == Attempt::Again {
                true if !once.is_some_and(|once| once.is_judged()) => {
                    part.member.find(request.eid, request.since)
                }
                // Of too many requests the first attempt may be another one, too. Its answer is heeded if it is the only one.
                true if request.attempt > 0 && is_forgotten(&self.databases, db, once) => {
                    Found::Unknown
                }
                _ => Found::No,
            };
            let outcome = match found {
                Found::Yes(at) => Some(Outcome::Known(at)),
                Found::Unknown => Some(Outcome::Unknown),
                Found::No => None,
            };
            if let Some(outcome) = outcome {
                let Request { eid, attempt, identity, .. } = request;
                part.reply((from, &Arc::new(identity)), (eid, attempt), outcome);
                continue;
            }
            self.run_request(db, from, request);
        }
    }

    fn run_request(&mut self, db: DbId, from: Uuid, request: Request) {
        let Request { eid, attempt, term, elapsed_ms, identity, locks, once, text, .. } = request;
        let client = Arc::new(identity);
        let asked = Asked { db, from, client: Arc::clone(&client), eid, term, attempt };
        let message = TextBuf::validate(text).ok();
        let begun = message.and_then(|message| Some((message, self.clusters.askers.begin(asked)?)));
        let Some((message, number)) = begun else {
            let part = self.clusters.part_mut(db);
            return part.reply((from, &client), (eid, attempt), Outcome::Unknown);
        };
        let origin = Origin {
            asker: Asker::Peer(number),
            identity: client,
            id: b"null".to_vec(),
            db,
            place: Ticket::default(),
            created_us: self.shell.now_us().saturating_sub(elapsed_ms.saturating_mul(1000)),
            eid,
        };
        let mut trigger = Trigger::new(origin, Arc::new(message));
        trigger.locks = Some(locks.into_iter().map(Held::elsewhere).collect());
        trigger.term = term;
        trigger.set_once(once);
        let Self { shell, sessions, databases, .. } = self;
        databases.run_again_here(shell, sessions, trigger);
    }

    /// Nobody can say any more what has come of a request: its client is to find out, and so is who has its locks next.
    pub(in crate::server) fn forget_client(&mut self, db: DbId, trigger: &Trigger) {
        if trigger.has_locks() {
            self.states.doubt(db, trigger.locks.iter().flatten().map(|held| held.name.clone()));
        }
        if let Some(session) = trigger.origin.session() {
            self.forget_session(db, session);
        }
    }

    /// As [`Self::forget_client`], of a client's session.
    pub(super) fn forget_session(&mut self, db: DbId, session: SessionId) {
        let name = self.databases.get(db).map_or("", |db| db.name());
        let text = format!("{name}: whether a transaction was committed is not known");
        self.shell.log_limited("unknown", "raft", crate::effect::Level::Warning, text);
        self.disconnect(session);
    }

    /// `_Server` says how the database is.
    pub(in crate::server) fn tell_server_db(&mut self, db: DbId) {
        let Some(name) = self.databases.get(db).map(|db| db.name().to_owned()) else {
            return self.tell_of_joining(db);
        };
        let part = self.clusters.part_mut(db);
        // What was given up is committed, and not on this leader's disk.
        let is_behind = part.applied < part.given_up_to && part.member.lacks_committed();
        // Who leads from its start on has what its file holds for certain before clients come.
        let has_rows = part.told.is_connected || !part.member.may_propose() || !part.lacks_rows();
        let told = Told {
            is_connected: part.member.is_connected() && !part.is_unread() && has_rows,
            // Clients that want the leader want all that is committed.
            leads: part.member.may_propose()
                && (part.told.leads && !is_behind || !part.lacks_rows()),
            index: part.applied,
            cluster: part.member.cluster(),
        };
        if part.told == told {
            return;
        }
        let was_connected = std::mem::replace(&mut part.told, told.clone()).is_connected;
        if was_connected && !told.is_connected {
            // There has been no leader for long, and nobody can say when there is one again: who gives a lock up does not
            // wait for what has been asked for under it.
            self.let_unlocks_pass(db);
        }
        let part = self.clusters.part_mut(db);
        let sid = part.member.id();
        let Told { is_connected, leads, index, cluster } = told;
        let state = server_db::ClusterState { is_connected, leads, index, cluster, sid };
        let update = server_db::set_cluster(&name, &state);
        self.databases.change_server_db(&mut self.shell, &update);
    }

    /// `_Server` says which cluster it is that a server is to join, once it knows.
    fn tell_of_joining(&mut self, db: DbId) {
        let part = self.clusters.part_mut(db);
        let Some(cluster) = part.member.cluster().filter(|_| part.has_row) else { return };
        if part.told.cluster.replace(cluster) != Some(cluster) {
            let update = server_db::set_cid(part.member.name(), cluster);
            self.databases.change_server_db(&mut self.shell, &update);
        }
    }
}

/// Of other members, what is at work that takes long: what comes behind that waits, and the rest passes.
#[derive(Debug, Default)]
struct Busy<'a> {
    /// Clients for whom something is at work, by the names that they have at their members.
    clients: BTreeSet<(Uuid, &'a str)>,
    /// Locks under which something is at work: who has taken one since comes behind it.
    locks: BTreeSet<(Uuid, &'a str)>,
}

impl<'a> Busy<'a> {
    /// The first request that need not wait.
    fn next_of(
        mut self,
        arrived: &'a Arrived,
        runs: impl Fn(&Request) -> bool,
        is_full: impl Fn(Uuid) -> bool,
    ) -> Option<u64> {
        let may_run = |&(_, from, request): &(u64, Uuid, &'a Request)| {
            if is_full(from) {
                return false;
            }
            if self.clients.is_empty() {
                return true;
            }
            let client = (from, request.identity.name.as_str());
            let locks = || request.locks.iter().map(|name| (from, name.as_str()));
            // Another attempt at what is at work is what that will be answered to.
            let must_wait = !runs(request)
                && (self.clients.contains(&client)
                    || locks().any(|lock| self.locks.contains(&lock)));
            if must_wait {
                // What comes later of it, or under its locks, must not pass.
                self.clients.insert(client);
                self.locks.extend(locks());
            }
            !must_wait
        };
        arrived.iter().find(may_run).map(|(place, _, _)| place)
    }
}

/// Whether nobody can say what has come of a transaction under a chosen id. One that was asked for before is
/// not answered with `unknown state` then: who asked once would take that for a promise that nothing was done.
fn is_forgotten(databases: &Databases, db: DbId, once: Option<&Once>) -> bool {
    matches!(once, Some(Once::Transact(chosen)) if databases.is_forgotten(db, *chosen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Identity;

    /// This member has not taken its answers.
    const FULL: Uuid = Uuid::from_u128(99);

    fn request(eid: u128, from: u128, client: &str, lock: Option<&str>) -> (Uuid, Request) {
        let identity = Identity { name: client.into(), ..Identity::default() };
        let request = Request {
            eid: Uuid::from_u128(eid),
            since: 0,
            attempt: 0,
            term: 1,
            elapsed_ms: 0,
            identity,
            locks: lock.into_iter().map(str::to_owned).collect(),
            once: None,
            text: vec![],
        };
        (Uuid::from_u128(from), request)
    }

    fn next(
        busy: &[(u128, &str)],
        locks: &[(u128, &str)],
        arrived: &[(u128, &str, Option<&str>)],
    ) -> Option<u64> {
        let of = |&(from, name)| (Uuid::from_u128(from), name);
        let clients = busy.iter().map(of).collect();
        let locks = locks.iter().map(of).collect();
        let arrived = (1..).zip(arrived);
        let arrived = arrived.map(|(eid, (from, client, lock))| request(eid, *from, client, *lock));
        Busy { clients, locks }.next_of(&arrived.collect(), |_| false, |from| from == FULL)
    }

    #[test]
    fn who_has_something_at_work_waits_and_others_pass() {
        let arrived = [(1, "a", None), (1, "b", None)];
        assert_eq!(next(&[], &[], &arrived), Some(0));
        assert_eq!(next(&[(1, "a")], &[], &arrived), Some(1));
        assert_eq!(next(&[(2, "a")], &[], &arrived), Some(0), "of another member");
        assert_eq!(next(&[(1, "a"), (1, "b")], &[], &arrived), None);
    }

    #[test]
    fn who_has_not_taken_its_answers_waits_and_nobody_else() {
        let of_full = (FULL.to_u128(), "a", None);
        assert_eq!(next(&[], &[], &[of_full]), None);
        assert_eq!(next(&[], &[], &[of_full, (1, "b", None)]), Some(1));
        assert_eq!(next(&[(1, "b")], &[], &[of_full, (1, "b", None), (1, "c", None)]), Some(2));
    }

    #[test]
    fn who_has_taken_a_lock_comes_behind_what_is_at_work_under_it() {
        let busy = [(1, "a")];
        let under = [(1, "l")];
        assert_eq!(next(&busy, &under, &[(1, "b", Some("l")), (1, "c", None)]), Some(1));
        assert_eq!(
            next(&busy, &under, &[(2, "b", Some("l"))]),
            Some(0),
            "a lock of another member"
        );
        let order = [(1, "b", Some("l")), (1, "b", None), (1, "c", None)];
        assert_eq!(next(&busy, &under, &order), Some(2), "nor does what it asks later pass");
        let order = [(1, "a", Some("m")), (1, "c", Some("m"))];
        assert_eq!(next(&busy, &[], &order), None, "nor what comes later under its lock");
    }
}
