//! Databases whose commits a cluster decides (`clusters` speaks with the cluster).

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_cluster::{Position, Proposal};
use weir_data::{Delta, Schema, TableDelta, Uuid, UuidSource};
use weir_engine::{Database, Outcome};
use weir_json::Text;
use weir_log::standalone::{Decoder, Note};

use crate::database::commits::{Done, Fate, Recorded, Writes};
use crate::database::pacing::Flush;
use crate::database::trigger::{Ran, Trigger};
use crate::database::{Databases, Db};
use crate::ids::DbId;
use crate::origin::Origin;
use crate::session::Sessions;
use crate::session::gate::{Lane, Reason};
use crate::session::locks::Held;
use crate::shell::Shell;
use crate::text_limit::EntryLimit;
use crate::work::operations;

impl Databases {
    /// The id for a request that somebody else may have to run: a cluster's leader, a relay's source;
    /// zeros elsewhere.
    pub(crate) fn fresh_eid(&self, shell: &mut Shell, id: DbId) -> Uuid {
        let is_shared = self.get(id).is_some_and(|db| db.storage.is_shared());
        if is_shared { shell.uuids().next_uuid() } else { Uuid::ZERO }
    }

    /// In which term this server leads the cluster, if it does, whether the cluster takes what it proposes, and how long
    /// entries may be.
    pub(crate) fn set_leads(
        &mut self,
        id: DbId,
        term: Option<u64>,
        may_write: bool,
        limit: EntryLimit,
    ) {
        if let Some(db) = self.get_mut(id) {
            db.storage.set_leads(term, may_write, limit);
        }
    }

    /// A transaction is for the leader of the cluster: what its session asks next about the database
    /// follows it there, or waits for it.
    pub(crate) fn forward(&mut self, sessions: &mut Sessions, mut trigger: Trigger) {
        assert!(!trigger.origin.is_of_peer(), "who was asked as the leader asks nobody else");
        let id = trigger.origin.db;
        if let (Some(session), None) = (trigger.origin.session(), trigger.holds) {
            trigger.keep_locks(sessions);
            trigger.holds = Some(Reason::Forwarded);
            sessions.hold(session, Reason::Forwarded, Lane::Db(id));
        }
        if let (Some(session), None) = (trigger.origin.session(), trigger.ticket)
            && !trigger.is_conversion()
        {
            trigger.ticket = sessions.enter_order(session, id, trigger.may_wait());
        }
        self.open(id).commits.to_forward.push(trigger);
    }

    /// Transactions that have come in this round and are for others.
    pub(crate) fn to_forward(&self, id: DbId) -> impl Iterator<Item = &Trigger> {
        self.get(id).into_iter().flat_map(|db| &db.commits.to_forward)
    }

    /// Transactions that the leader is to run.
    pub(crate) fn take_to_forward(&mut self, id: DbId) -> Vec<Trigger> {
        self.get_mut(id).map_or_else(Vec::new, |db| std::mem::take(&mut db.commits.to_forward))
    }

    /// Requests of other members that would wait.
    pub(crate) fn take_peers_waiting(&mut self, id: DbId) -> Vec<Origin> {
        self.get_mut(id).map_or_else(Vec::new, |db| std::mem::take(&mut db.commits.peers_waiting))
    }

    /// Requests of other members that have run too late: they ask the next leader, or have.
    pub(crate) fn take_peers_too_late(&mut self, id: DbId) -> Vec<Origin> {
        self.get_mut(id).map_or_else(Vec::new, |db| std::mem::take(&mut db.commits.peers_too_late))
    }

    /// Whether something has run that is to be proposed to the cluster.
    pub(crate) fn has_proposals(&self, id: DbId) -> bool {
        self.get(id).is_some_and(Db::has_proposals)
    }

    /// The batch leaves to be decided by the cluster.
    pub(crate) fn begin_batch(&mut self, id: DbId) -> Vec<Proposal> {
        self.open(id).begin_batch()
    }

    /// The batch stands in the log.
    pub(crate) fn batch_proposed(&mut self, id: DbId, first: Position) {
        self.open(id).batch_proposed(first);
    }

    /// What has run, for who answers other members.
    pub(crate) fn done_mut(&mut self, id: DbId) -> &mut Vec<Done> {
        self.open(id).done_mut()
    }

    /// An entry is committed: what it is to the batch that is under way.
    pub(crate) fn entry_committed(&mut self, id: DbId, at: Position) -> Fate {
        self.open(id).entry_committed(at)
    }

    /// The batch is over. What has not taken effect of it is the cluster's to decide, now or when somebody
    /// leads: clients ask for it as if it had been forwarded. Answers with reads, which may have seen what will
    /// never be.
    pub(crate) fn end_batch(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
    ) -> Vec<Trigger> {
        let mut to_read = Vec::new();
        let (open, first) = self.open(id).end_batch();
        if open.is_empty() {
            // All of it has taken effect: nothing is left for anybody to follow.
            return to_read;
        }
        let since = first.map(|first| first.index - 1);
        // Where the last entry stands of those that have come back so far.
        let (mut next, mut last) = (first, None);
        for Done { request, delta, .. } in open {
            let is_entry = delta.is_some();
            if let (Some(at), true) = (&mut next, is_entry) {
                last = Some(*at);
                at.index += 1;
            }
            let Some((mut trigger, reply)) = request else { continue };
            let reads = trigger.once.is_none() && trigger.reads_only();
            let is_behind = |session| sessions.has_forwarded(session, id);
            if self.open(id).is_too_late(&trigger) {
                self.open(id).commits.peers_too_late.push(trigger.origin);
            } else if trigger.origin.is_of_peer() {
                // It keeps its place among what that asks in this term.
                self.set_aside(sessions, trigger, Writes::Accepted);
            } else if reads
                && !trigger.origin.session().is_some_and(is_behind)
                // Others may have written under it in the batch.
                && !trigger.is_under_lock(sessions)
            {
                to_read.push(trigger);
            } else {
                trigger.ran = last.map(|at| Box::new(Ran { at, is_entry, reply }));
                trigger.since = since.or(trigger.since);
                self.forward(sessions, trigger);
            }
        }
        // What waits for the batch to be over, behind something of its session that was in it, follows that; and what is
        // asked for under a lock, for others may have written under it.
        let is_behind = |trigger: &mut Trigger| {
            trigger.origin.session().is_some_and(|session| {
                sessions.has_forwarded(session, id) || trigger.is_under_lock(sessions)
            })
        };
        let behind: Vec<Trigger> =
            self.open(id).commits.long.extract_if(.., |trigger| is_behind(trigger)).collect();
        for mut trigger in behind {
            self.forget_attempt(shell, &mut trigger);
            self.forward(sessions, trigger);
        }
        to_read
    }

    /// An entry of another member's, or of this one's own with a reply that is not known, takes
    /// effect: `request` is what it came from, if that was asked here.
    ///
    /// # Errors
    /// The entry does not fit the tables: they are not what they are elsewhere.
    pub(crate) fn follow_entry(
        &mut self,
        shell: &mut Shell,
        id: DbId,
        (eid, len): (Uuid, usize),
        transaction: Text<'_>,
        request: Option<(Trigger, Vec<u8>)>,
    ) -> Result<(), weir_data::Error> {
        let db = self.open(id);
        assert!(db.commits.is_decided(), "what others have committed comes behind all that ran");
        let database = db.tables.here_mut().expect("entries take effect on tables that are here");
        let delta = db.commits.follower.follow(database, transaction, shell.uuids())?;
        let note = Note::of_beginning(transaction.as_bytes());
        let date_ms = note.date_ms.unwrap_or_default();
        // One that changes nothing is a state, too: its id may mean something.
        let recorded = Recorded::of_entry(eid, len, (date_ms, note.comment));
        db.file_done(request, Some((delta, Some(recorded))));
        Ok(())
    }

    /// Whether a batch of the cluster is under way.
    pub(crate) fn has_batch(&self, id: DbId) -> bool {
        self.get(id).is_some_and(Db::has_batch)
    }

    /// Whether the tables have what is committed, with nothing under way of this asker that he would
    /// look for.
    pub(crate) fn shows_committed(&self, origin: &Origin) -> bool {
        let is_under_way = |db: &&Db| db.has_batch() || db.is_recast();
        let Some(db) = self.get(origin.db).filter(is_under_way) else { return false };
        let is_his = |done: &Done| {
            done.request.as_ref().is_some_and(|(trigger, _)| trigger.origin.asker == origin.asker)
        };
        !db.tables.is_away() && !db.commits.done().iter().any(is_his)
    }

    /// The tables leave, to become like those of another member, of which this one lacked too much
    /// to follow it.
    pub(crate) fn send_tables_to_snapshot(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
    ) -> Box<Database> {
        // What others have not been told cannot be composed while the tables are away.
        self.flush(shell, sessions, id, Flush::Now);
        let db = self.open(id);
        assert!(db.commits.is_decided(), "what a snapshot has in it is committed");
        db.tables.leave()
    }

    /// The rows have become those of another member, as of the state of this id.
    pub(crate) fn have_rows_of(&mut self, shell: &Shell, id: DbId, delta: Delta, eid: Uuid) {
        let recorded = Recorded::of_entry(eid, 0, (shell.wall_ms(), None));
        let db = self.open(id);
        if delta.tables.is_empty() && db.history.is_at(eid) {
            return;
        }
        db.history.note_skipped();
        db.file_done(None, Some((delta, Some(recorded))));
    }

    /// A transaction is answered that changed nothing.
    pub(crate) fn file_answer(&mut self, id: DbId, trigger: Trigger, reply: Vec<u8>) {
        self.open(id).file_done(Some((trigger, reply)), None);
    }

    /// What a transaction is answered on the rows as they are, and what it would change of them, which stay as they
    /// are; `None` if it would wait, or cost more than is left. Its locks counted when it ran,
    /// whoever has them by now.
    pub(crate) fn reply_of(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        trigger: &Trigger,
        cost_left: &mut u64,
    ) -> Option<(Vec<u8>, Option<Delta>)> {
        let counted = |held: &Held| Held::elsewhere(held.name.clone());
        let locks: Option<Vec<Held>> =
            trigger.locks.as_ref().map(|locks| locks.iter().map(counted).collect());
        let operations = operations(trigger.message.text());
        let how = (locks.as_deref(), trigger.once.as_deref().copied());
        let origin = &trigger.origin;
        let outcome = self.execute_within(shell, sessions, origin, how, &operations, *cost_left);
        *cost_left = cost_left.saturating_sub(outcome.cost());
        let Outcome::Done(done) = outcome else { return None };
        done.delta.iter().for_each(|delta| self.take_back(trigger.origin.db, delta));
        Some((done.reply, done.delta))
    }

    /// What a transaction is answered that is about to take effect, from its text in the log; `None` as well if it would
    /// not change all rows that this one does: the names of those that it inserts are its own.
    pub(crate) fn reply_of_chosen(
        &mut self,
        shell: &mut Shell,
        sessions: &Sessions,
        (trigger, made): (&Trigger, Text<'_>),
        cost_left: &mut u64,
    ) -> Option<Vec<u8>> {
        let (reply, delta) = self.reply_of(shell, sessions, trigger, cost_left)?;
        let (delta, schema) = (delta?, self.get(trigger.origin.db)?.schema());
        let of_table = |TableDelta { table, rows }: &TableDelta| {
            let name = schema.table(*table).name.as_bytes();
            rows.iter().map(move |(id, _)| (name, *id)).collect::<Vec<_>>()
        };
        let own: BTreeSet<(&[u8], Uuid)> = delta.tables.iter().flat_map(of_table).collect();
        let mut tables = made.members()?.filter(|(name, _)| !name.starts_with(b"_"));
        let is_own = tables.all(|(name, rows)| {
            let has =
                |id: &[u8]| Uuid::parse_bytes(id).is_some_and(|id| own.contains(&(&*name, id)));
            rows.members().is_some_and(|mut rows| rows.all(|(id, _)| has(&id)))
        });
        is_own.then_some(reply)
    }

    /// Whether committed entries can take effect.
    pub(crate) fn can_follow(&self, id: DbId) -> bool {
        self.get(id).is_some_and(Db::can_follow)
    }
}

impl Db {
    /// Whether transactions wait for a conversion of the cluster.
    fn is_recast(&self) -> bool {
        self.tables.is_frozen() && self.storage.is_clustered() && self.is_decided()
    }

    /// Whether a request is of another member, and for a term in which this one led and does not any more.
    pub(super) fn is_too_late(&self, trigger: &Trigger) -> bool {
        trigger.origin.is_of_peer() && !self.storage.leads_since(trigger.term)
    }

    fn can_follow(&self) -> bool {
        !self.tables.is_away() && (self.has_batch() || self.is_decided())
    }
}

/// Makes entries take effect.
#[derive(Default)]
pub(super) struct Follower {
    /// What reads entries under a schema: it takes longer to make than to use.
    decoder: Option<(Arc<Schema>, Decoder)>,
}

impl Follower {
    /// Makes a transaction's text take effect.
    fn follow(
        &mut self,
        database: &mut Database,
        transaction: Text<'_>,
        uuids: &mut UuidSource,
    ) -> Result<Delta, weir_data::Error> {
        let schema = database.schema();
        self.decoder.take_if(|(of, _)| !Arc::ptr_eq(of, schema));
        let make = || (Arc::clone(schema), Decoder::new(schema));
        let (_, decoder) = self.decoder.get_or_insert_with(make);
        let edits = decoder.decode(transaction, database.store(), uuids)?;
        weir_engine::follow_entry(database, edits, uuids)
    }
}
