//! Batches of the leader, and committed entries.

use weir_cluster::{Content, Entry, Member, Position};
use weir_json::Text;
use weir_log::clustered::Data;

use crate::clusters::forwards::{Forward, State};
use crate::clusters::message::Outcome;
use crate::clusters::unapplied::{STEP_BYTES_MAX, text_bytes};
use crate::clusters::{End, Part};
use crate::database::{Done, Fate, Trigger};
use crate::effect::Level;
use crate::ids::DbId;
use crate::origin::Asker;
use crate::server::Server;

/// What it may cost in one step to find replies that were lost, in units of about 50 ns: the rows must not change while
/// one is looked for.
const REPLY_COST_MAX: u64 = 40_000_000;

/// With less left no more entries take effect in the step.
const REPLY_COST_ENOUGH: u64 = REPLY_COST_MAX / 8 * 7;

impl Server {
    /// What has run is proposed to the cluster: its changes are undone until they are committed.
    /// Other members get their replies ahead of the entries.
    pub(in crate::server) fn propose(&mut self, db: DbId) {
        self.settle_who_writes(db);
        if !self.databases.has_proposals(db) {
            // This member leads no more.
            return;
        }
        let proposals = self.databases.begin_batch(db);
        self.answer_peers(db);
        let now_us = self.shell.now_us();
        let first = self.clusters.part_mut(db).propose(now_us, proposals);
        self.databases.batch_proposed(db, first);
        self.run_member(db);
    }

    /// Answers the requests of other members that have run in a batch, or without one.
    pub(in crate::server) fn answer_peers(&mut self, db: DbId) {
        let Some(part) = self.clusters.parts.get(&db) else { return };
        let mut at = part.member.last_position();
        let mut replies = Vec::new();
        for Done { request, delta, .. } in self.databases.done_mut(db) {
            let is_entry = delta.is_some();
            at.index += u64::from(is_entry);
            if is_entry {
                at.term = part.member.term();
            }
            let is_of_peer = |(trigger, _): &mut (Trigger, Vec<u8>)| trigger.origin.is_of_peer();
            let Some((trigger, reply)) = request.take_if(is_of_peer) else { continue };
            // Under an id that a client chose others may have asked for the same.
            let outcome = match is_entry && !trigger.is_judged() {
                true => Outcome::Entry(at, reply),
                false => Outcome::Empty(at, reply),
            };
            replies.push((trigger.origin.asker, is_entry, (trigger.origin.eid, outcome)));
        }
        for (asker, is_entry, (eid, outcome)) in replies {
            let Asker::Peer(number) = asker else { continue };
            if is_entry {
                self.send_held_before(number);
            }
            self.answer_peer(number, eid, outcome);
        }
    }

    /// A request of a member becomes an entry: what its client asked before is answered before that takes effect there,
    /// or the member would ask for it once more, behind the entry, of the next leader.
    fn send_held_before(&mut self, asker: u64) {
        let Some(asked) = self.clusters.askers.get(asker) else { return };
        if let Some(part) = self.clusters.parts.get_mut(&asked.db) {
            part.send_held(asked.from, &asked.client);
        }
    }

    /// Tells a member what has come of its request.
    pub(in crate::server) fn answer_peer(
        &mut self,
        asker: u64,
        eid: weir_data::Uuid,
        outcome: Outcome,
    ) {
        let Some(asked) = self.clusters.askers.end(asker) else { return };
        if let Some(part) = self.clusters.parts.get_mut(&asked.db) {
            part.reply((asked.from, &asked.client), (eid, asked.attempt), outcome);
        }
    }

    /// The batch is over, if one is under way: what of it has taken effect is decided, and the rest is
    /// asked of whoever leads.
    pub(super) fn end_batch(&mut self, db: DbId) {
        if !self.databases.has_batch(db) {
            return;
        }
        let Self { shell, sessions, databases, .. } = self;
        let reads = databases.end_batch(shell, sessions, db);
        // Reads of other members, if the batch has never left.
        self.answer_peers(db);
        self.decide(db);
        if reads.is_empty() {
            return;
        }
        // Who wakes with them is not to write as the leader that this member was.
        self.settle_who_writes(db);
        for trigger in reads {
            let Self { shell, sessions, databases, .. } = self;
            databases.run_again_here(shell, sessions, trigger);
        }
    }

    /// Committed entries take effect, as far as the tables are here and show nothing else, and as
    /// many as a step may.
    pub(in crate::server) fn apply_entries(&mut self, db: DbId) {
        let Some(part) = self.clusters.parts.get_mut(&db) else { return };
        part.goes_on = false;
        let most = if self.databases.step_cost_max() == 0 { 1 } else { STEP_BYTES_MAX };
        let (mut bytes, mut reply_cost_left) = (0, REPLY_COST_MAX);
        while self.databases.can_follow(db) && self.is_next_applicable(db) {
            let Some(part) = self.clusters.parts.get_mut(&db) else { return };
            let is_long = bytes >= most || reply_cost_left < REPLY_COST_ENOUGH;
            part.goes_on = is_long && !part.to_apply.is_empty();
            if part.goes_on {
                break;
            }
            let Some(entry) = part.to_apply.pop_front() else { break };
            let index = entry.at.index;
            bytes += text_bytes(&entry);
            if !self.apply(db, &entry, &mut reply_cost_left) {
                self.clusters.part_mut(db).to_apply.push_front(entry);
                break;
            }
            let Some(part) = self.clusters.parts.get_mut(&db) else { return };
            part.applied = index;
        }
        if let Some(part) = self.clusters.parts.get_mut(&db) {
            part.member.take_entries(!part.to_apply.is_full());
        }
        self.load_if_due(db);
        self.release(db);
    }

    /// False if the entry does not fit the tables, and is the last one.
    fn apply(&mut self, db: DbId, entry: &Entry, reply_cost_left: &mut u64) -> bool {
        match self.databases.entry_committed(db, entry.at) {
            Fate::Own => {}
            Fate::Whole => self.end_batch(db),
            Fate::Foreign => {
                if let Content::Data { eid, text } = &entry.content
                    && let Err(why) = self.follow_entry(db, (entry.at, *eid), text, reply_cost_left)
                {
                    self.cannot_follow(db, entry.at, &why);
                    return false;
                }
            }
        }
        true
    }

    /// An entry that this member has not run takes effect, or the tables stay as they are.
    fn follow_entry(
        &mut self,
        db: DbId,
        (at, eid): (Position, weir_data::Uuid),
        text: &[u8],
        reply_cost_left: &mut u64,
    ) -> Result<(), String> {
        let len = text.len();
        let text = weir_json::validate(text).map_err(|_| "it is no JSON")?;
        let Some(Data { schema: None, transaction: Some(transaction) }) = Data::parse(text) else {
            return Err("it is no transaction".to_owned());
        };
        self.answer_passed(db, (at, eid), reply_cost_left);
        let request = match self.clusters.part_mut(db).forwards.take(eid) {
            Some(own) => self.reply_for_entry(db, own, at, reply_cost_left),
            None => self.reply_for_chosen(db, (at, eid), transaction, reply_cost_left),
        };
        let session = request.as_ref().and_then(|(trigger, _)| trigger.origin.session());
        let Self { shell, databases, .. } = self;
        let followed = databases.follow_entry(shell, db, (eid, len), transaction, request);
        if let (Err(_), Some(session)) = (&followed, session) {
            self.forget_session(db, session);
        }
        followed.map_err(|error| error.to_string())?;
        self.decide(db);
        Ok(())
    }

    /// The entry of this id is about to take effect. What its session asked before is answered as of the rows before
    /// it: of any later ones nothing would be true.
    fn answer_passed(
        &mut self,
        db: DbId,
        (at, eid): (Position, weir_data::Uuid),
        reply_cost_left: &mut u64,
    ) {
        let Part { member, forwards, .. } = self.clusters.part_mut(db);
        let is_before = |as_of: Position| as_of.index < at.index && has_entry(member, as_of);
        for (trigger, reply) in forwards.take_answered_before(eid, is_before) {
            self.answer_decided(db, trigger, reply);
            self.decide(db);
        }
        let Part { member, forwards, .. } = self.clusters.part_mut(db);
        let is_before = |as_of: Position| as_of.index < at.index && has_entry(member, as_of);
        if let Some(session) = forwards.passed_by_chosen(eid) {
            // Somebody else may have asked for it, and long ago.
            return self.forget_session(db, session);
        }
        let passed = forwards.take_passed(eid, is_before);
        let passed: Vec<(bool, Forward)> =
            passed.into_iter().map(|forward| (forward.is_answered(is_before), forward)).collect();
        for (is_answered, forward) in passed {
            if is_answered {
                let (trigger, reply) = forward.into_empty().expect("it is answered");
                self.answer_decided(db, trigger, reply);
                self.decide(db);
                continue;
            }
            let Forward { trigger, attempts, .. } = forward;
            let Self { shell, sessions, databases, .. } = self;
            match databases.reply_of(shell, sessions, &trigger, reply_cost_left) {
                Some((reply, None)) if attempts <= 1 => self.answer_decided(db, trigger, reply),
                // It would change something now, and has not; or it was asked for again behind this entry, perhaps, and
                // has changed something then.
                _ => self.forget_client(db, &trigger),
            }
            self.decide(db);
        }
    }

    /// The reply to a request whose entry is about to take effect.
    fn reply_for_entry(
        &mut self,
        db: DbId,
        mut own: Forward,
        at: Position,
        reply_cost_left: &mut u64,
    ) -> Option<(Trigger, Vec<u8>)> {
        let known = own.take_known(at);
        let trigger = own.trigger;
        if let Some(reply) = known {
            return Some((trigger, reply));
        }
        let Self { shell, sessions, databases, .. } = self;
        match databases.reply_of(shell, sessions, &trigger, reply_cost_left) {
            Some((reply, _)) => Some((trigger, reply)),
            None => {
                self.forget_client(db, &trigger);
                None
            }
        }
    }

    /// The reply to a request whose client chose the id of the entry that is about to take effect: whoever leads by now
    /// would only say that it is done, and a relay tells its client of no results then. Others may have asked for
    /// something else under that id.
    fn reply_for_chosen(
        &mut self,
        db: DbId,
        (at, eid): (Position, weir_data::Uuid),
        transaction: Text<'_>,
        reply_cost_left: &mut u64,
    ) -> Option<(Trigger, Vec<u8>)> {
        let Self { shell, sessions, databases, clusters, .. } = self;
        let forwards = &mut clusters.part_mut(db).forwards;
        let number = forwards.awaits_entry(eid, at)?;
        let own = forwards.number(number);
        let reply = own.take_known_of_chosen(at).or_else(|| {
            let is_made = (&own.trigger, transaction);
            databases.reply_of_chosen(shell, sessions, is_made, reply_cost_left)
        })?;
        Some((forwards.take_number(number).trigger, reply))
    }

    /// What is committed does not fit the tables, which then are not what they are elsewhere: this server
    /// has the database no more, and others go on without it.
    pub(super) fn cannot_follow(&mut self, db: DbId, at: Position, why: &str) {
        let part = self.clusters.part_mut(db);
        part.end = Some(End::Unfit);
        let name = part.member.name();
        let Position { term, index } = at;
        let text = format!("{name}: cannot apply entry {index} of term {term}: {why}");
        self.shell.log("raft", Level::Error, text);
    }

    /// What changes nothing is answered, or waits, once the entries have taken effect that it depends
    /// on; and so is what has changed something, if that came in a snapshot.
    fn release(&mut self, db: DbId) {
        let Some(part) = self.clusters.parts.get_mut(&db) else { return };
        if part.forwards.is_empty() || !self.databases.is_open(db) {
            return;
        }
        let (applied, term) = (part.applied, part.member.term());
        for Forward { trigger, state, .. } in part.forwards.decided(applied, term) {
            match state {
                State::Entry(_, Some(reply)) => self.answer_decided(db, trigger, reply),
                // The rows just before it are not to be had any more.
                State::Entry(_, None) => self.forget_client(db, &trigger),
                State::Empty(at, reply) if self.stands(db, at) => {
                    self.answer_decided(db, trigger, reply);
                }
                // What it was computed on never happened, or it waits.
                _ => {
                    let Self { shell, sessions, databases, .. } = self;
                    databases.run_again_here(shell, sessions, trigger);
                }
            }
        }
    }

    /// Whether the log has the entry of this place, as far as it still says.
    fn stands(&self, db: DbId, at: Position) -> bool {
        self.clusters.part(db).is_none_or(|part| has_entry(&part.member, at))
    }
}

/// Whether the log has the entry of this place, as far as it still says.
fn has_entry(member: &Member, at: Position) -> bool {
    member.position(at.index).is_none_or(|stands| stands == at)
}
