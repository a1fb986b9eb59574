//! The commit pipeline of one database: what has run and is not decided, and its records.
//!
//! 1. Transactions run and change the tables; each is filed with its reply and its change.
//! 2. Their records go to the file together. Until the shell has answered, nothing more runs.
//! 3. Written: all of them are decided. Not written: they are undone, newest first.

use std::sync::Arc;

use weir_cluster::{Position, Proposal};
use weir_data::{Delta, Error, Uuid};
use weir_history::{Name, Record};
use weir_json::object;
use weir_log::standalone::{self, Style};

use crate::database::Db;
use crate::database::clustered::Follower;
use crate::database::trigger::Trigger;
use crate::effect::Effect;
use crate::ids::DbId;
use crate::origin::Origin;
use crate::shell::Shell;
use crate::text_limit::EntryLimit;
use crate::work::{Made, MadeRecord, entry_text, record_of};

/// Room that is made for a batch's records at once, if the last batch's were as long, in bytes.
const RECORDS_ROOM_MAX: usize = 64 << 10;

/// A batch's list of transactions is used again, with room for at most so many.
const DONE_KEPT: usize = 64;

/// A change that has been made and is not decided yet.
pub(crate) struct Done {
    /// The request and its reply; none if the change came from the database's source.
    pub(crate) request: Option<(Trigger, Vec<u8>)>,
    /// What was changed, if anything.
    pub(crate) delta: Option<Arc<Delta>>,
    /// What the file says of it: none of what it does not keep.
    pub(crate) record: Option<Recorded>,
}

/// What the file says of a change.
pub(crate) struct Recorded {
    /// What the change log is told of it.
    pub(crate) record: Record,
    /// `_date`
    pub(crate) date_ms: i64,
    /// `_comment`
    pub(crate) comment: Option<String>,
}

impl Recorded {
    /// Of a change that is an entry of a cluster's log.
    pub(super) fn of_entry(
        eid: Uuid,
        len: usize,
        (date_ms, comment): (i64, Option<String>),
    ) -> Self {
        let (name, body_len) = (Name::Entry(eid), len as u64);
        Self { record: Record { name, body_len, is_marked: true }, date_ms, comment }
    }
}

/// What has run since the last batch was decided.
#[derive(Default)]
pub(super) struct Commits {
    done: Vec<Done>,
    /// Transactions that are too long for a step: they leave once the others are decided.
    pub(super) long: Vec<Trigger>,
    /// Records that the file does not have yet.
    records: Vec<u8>,
    record_count: u64,
    /// Somebody has asked for durability.
    is_durable: bool,
    /// How many bytes the last batch had.
    room: usize,
    /// In a cluster: how entries take effect that others have made.
    pub(super) follower: Follower,
    /// In a cluster: what the batch wants to be the next entries.
    proposals: Vec<Proposal>,
    /// How many bytes these are.
    proposed_bytes: usize,
    /// In a cluster: the batch, whose changes take effect when its entries are committed.
    pub(super) batch: Option<Batch>,
    /// In a cluster: transactions that the leader is to run.
    pub(super) to_forward: Vec<Trigger>,
    /// In a cluster: requests of other members that would wait.
    pub(super) peers_waiting: Vec<Origin>,
    /// In a cluster: requests of other members to one that does not lead any more.
    pub(super) peers_too_late: Vec<Origin>,
}

/// Entries that have been proposed. The changes that they stand for are undone meanwhile.
#[derive(Debug)]
pub(super) struct Batch {
    /// Where the first of them stands; `None` until that is known.
    first: Option<Position>,
    /// Which of what has run each of them stands for.
    items: Vec<usize>,
    /// How many of them have taken effect.
    applied: usize,
}

/// What the next committed entry is to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The entry is at none of the batch's places.
    Foreign,
    /// The entry is the batch's, which goes on.
    Own,
    /// The entry is the batch's last one.
    Whole,
}

/// Whether a transaction that runs may write to the file.
#[derive(Clone, Copy)]
pub(crate) enum Writes<'a> {
    Accepted,
    /// The file refuses, with this strerror(3) text.
    Refused(&'a str),
}

impl Commits {
    /// What has run and is not decided.
    pub(super) fn done(&self) -> &[Done] {
        &self.done
    }

    /// Whether all that has run is decided.
    pub(super) fn is_decided(&self) -> bool {
        self.done.is_empty()
    }
}

impl Db {
    /// Whether the tables are as the file has them and as the monitors know them.
    pub(crate) fn is_decided(&self) -> bool {
        self.commits.is_decided()
    }

    /// Whether all that has run is decided, or a cluster is to decide it.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_decided() || self.has_batch()
    }

    /// Files what has run. True if it changed something.
    pub(super) fn file_done(
        &mut self,
        request: Option<(Trigger, Vec<u8>)>,
        change: Option<(Delta, Option<Recorded>)>,
    ) -> bool {
        assert!(!self.tables.is_writing(), "nothing runs while a batch is being written");
        let committed = change.is_some();
        let (delta, record) = change.unzip();
        delta.iter().for_each(|delta| self.note_change(delta));
        let (delta, record) = (delta.map(Arc::new), record.flatten());
        self.commits.done.push(Done { request, delta, record });
        committed
    }

    /// Wakes those who wait for what has just changed.
    pub(super) fn note_change(&mut self, delta: &Delta) {
        let position = self.position();
        let store = self.tables.store().expect("the change has just been made there");
        self.waiting.note_change(delta, store, position);
    }

    /// How records are written; `None` if there are none.
    pub(super) fn record_style(&self) -> Option<Style> {
        let form = self.storage.record_form()?;
        Some(Style { form, is_marked: self.history.marks_records() })
    }

    /// Adds a change's record to the batch, if it changes what the file keeps.
    pub(super) fn record(
        &mut self,
        shell: &Shell,
        delta: &Delta,
        (eid, comment): (Uuid, Option<String>),
        is_durable: bool,
        writes: Writes<'_>,
    ) -> Result<Option<Recorded>, Error> {
        if let Some(limit) = self.storage.entry_limit() {
            return self.propose(shell, delta, (eid, comment), limit);
        }
        let Some(style) = self.record_style() else { return Ok(None) };
        let store = self.tables.store().expect("the change has just been made there");
        let Commits { records, room, .. } = &mut self.commits;
        if records.is_empty() {
            records.reserve(*room);
        }
        let (start, date_ms) = (records.len(), shell.wall_ms());
        let text = comment.as_deref();
        let written = standalone::write_transaction_as(style, records, delta, store, date_ms, text);
        let Some(written) = written else { return Ok(None) };
        if let Writes::Refused(error) = writes {
            records.truncate(start);
            return Err(Error::io(None, error));
        }
        self.commits.record_count += 1;
        self.commits.is_durable |= is_durable;
        Ok(Some(Recorded { record: record_of(written), date_ms, comment }))
    }

    /// Adds a change to those that are to be the next entries of the cluster's log.
    fn propose(
        &mut self,
        shell: &Shell,
        delta: &Delta,
        (eid, comment): (Uuid, Option<String>),
        limit: EntryLimit,
    ) -> Result<Option<Recorded>, Error> {
        let store = self.tables.store().expect("the change has just been made there");
        let date_ms = shell.wall_ms();
        let text = entry_text(Vec::new(), delta, store, date_ms, comment.as_deref(), limit)?;
        Ok(text.map(|text| self.propose_text(eid, text, (date_ms, comment))))
    }

    /// Adds an entry, or a durable record, that changes nothing. `None` if there is nothing to add it to.
    pub(super) fn record_nothing(
        &mut self,
        shell: &Shell,
        eid: Uuid,
        comment: String,
    ) -> Option<Recorded> {
        let date_ms = shell.wall_ms();
        if self.storage.is_clustered() {
            let said = object([("_date", date_ms.into()), ("_comment", comment.as_str().into())]);
            let text = format!("[null,{said}]").into_bytes();
            return Some(self.propose_text(eid, text, (date_ms, Some(comment))));
        }
        let Style { is_marked, .. } = self.record_style()?;
        let commits = &mut self.commits;
        let written = standalone::write_nothing(is_marked, &mut commits.records, date_ms, &comment);
        commits.record_count += 1;
        commits.is_durable = true;
        Some(Recorded { record: record_of(written), date_ms, comment: Some(comment) })
    }

    fn propose_text(
        &mut self,
        eid: Uuid,
        text: Vec<u8>,
        (date_ms, comment): (i64, Option<String>),
    ) -> Recorded {
        let recorded = Recorded::of_entry(eid, text.len(), (date_ms, comment));
        self.commits.proposed_bytes += text.len();
        self.commits.proposals.push(Proposal { eid, text: text.into() });
        let limit = self.storage.entry_limit().unwrap_or_default();
        if self.commits.proposed_bytes >= limit.batch_bytes_max() {
            self.tables.set_full();
        }
        recorded
    }

    /// Whether the batch is to be proposed to the cluster.
    pub(super) fn has_proposals(&self) -> bool {
        !self.commits.proposals.is_empty()
    }

    /// Whether a batch of the cluster is under way.
    pub(crate) fn has_batch(&self) -> bool {
        self.commits.batch.is_some()
    }

    /// Whether the tables are as of the last commit. While a cluster decides on a batch they are: a leader
    /// under load is hardly ever without one.
    pub(crate) fn shows_last_commit(&self) -> bool {
        self.is_decided() || self.has_untouched_batch()
    }

    /// Whether a batch of the cluster is under way, and nothing of it has taken effect yet.
    fn has_untouched_batch(&self) -> bool {
        self.commits.batch.as_ref().is_some_and(|batch| batch.applied == 0)
    }

    /// The batch leaves to be decided by the cluster: until then its changes have not happened.
    pub(super) fn begin_batch(&mut self) -> Vec<Proposal> {
        assert!(self.commits.batch.is_none(), "one batch is under way at a time");
        let database = self.tables.here_mut().expect("tables do not leave before all is decided");
        let mut items = Vec::new();
        for (at, done) in self.commits.done.iter().enumerate().rev() {
            let Some(delta) = &done.delta else { continue };
            database.revert(delta);
            assert!(done.record.is_some(), "a clustered database keeps all that changes");
            items.push(at);
        }
        items.reverse();
        let position = database.position();
        self.waiting.note_undone(position);
        self.commits.batch = Some(Batch { first: None, items, applied: 0 });
        self.tables.begin_writing();
        self.commits.proposed_bytes = 0;
        std::mem::take(&mut self.commits.proposals)
    }

    /// The batch stands in the log.
    pub(super) fn batch_proposed(&mut self, first: Position) {
        self.commits.batch.as_mut().expect("it has left").first = Some(first);
    }

    /// An entry is committed: its part of the batch takes effect, if it is one of it.
    pub(super) fn entry_committed(&mut self, at: Position) -> Fate {
        let Some(batch) = &mut self.commits.batch else { return Fate::Foreign };
        let first = batch.first.expect("a batch is proposed when it leaves");
        let next = first.index + batch.applied as u64;
        if at.index != next {
            assert!(at.index < next, "entries are committed in their order");
            return Fate::Foreign;
        }
        assert_eq!(at.term, first.term, "a batch ends with the term of its leader");
        let delta = self.commits.done[batch.items[batch.applied]].delta.clone();
        batch.applied += 1;
        let is_whole = batch.applied == batch.items.len();
        let delta = delta.expect("a proposal is a change");
        self.tables.here_mut().expect("the tables stay during a batch").apply(&delta);
        // It was undone since it was noted, and who has been with a helper meanwhile has not seen it.
        self.note_change(&delta);
        if is_whole { Fate::Whole } else { Fate::Own }
    }

    /// The batch is over: what of it has taken effect stays. What has not comes back, with the place of its first
    /// entry, if they stand anywhere.
    pub(super) fn end_batch(&mut self) -> (Vec<Done>, Option<Position>) {
        let batch = self.commits.batch.take().expect("a batch is under way");
        self.tables.end_writing();
        let at = |first: Position| Position { index: first.index + batch.applied as u64, ..first };
        let first_open = batch.items.get(batch.applied);
        let open = first_open.map(|first| self.commits.done.split_off(*first));
        (open.unwrap_or_default(), batch.first.map(at))
    }

    /// What has run.
    pub(super) fn done_mut(&mut self) -> &mut Vec<Done> {
        &mut self.commits.done
    }

    /// Adds what has been made elsewhere, if there is anything.
    pub(super) fn add_made(
        &mut self,
        made: Option<Made>,
        (eid, comment): (Uuid, Option<String>),
        is_durable: bool,
    ) -> Option<Recorded> {
        let MadeRecord { bytes, record, date_ms } = match made? {
            Made::Record(made) => made,
            Made::Entry { text, date_ms } => {
                return Some(self.propose_text(eid, text, (date_ms, comment)));
            }
        };
        assert!(!self.storage.is_clustered(), "a cluster keeps entries");
        let commits = &mut self.commits;
        if commits.records.is_empty() {
            commits.records = bytes;
        } else {
            commits.records.extend_from_slice(&bytes);
        }
        commits.record_count += 1;
        commits.is_durable |= is_durable;
        Some(Recorded { record, date_ms, comment })
    }

    /// The batch's records go to the file, if there are any: nothing more runs meanwhile.
    pub(super) fn take_append(&mut self, db: DbId) -> Option<Effect> {
        let commits = &mut self.commits;
        if commits.records.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut commits.records);
        let sync = std::mem::take(&mut commits.is_durable);
        commits.room = bytes.len().min(RECORDS_ROOM_MAX);
        self.storage.note_append(&bytes, std::mem::take(&mut commits.record_count));
        self.tables.begin_writing();
        Some(Effect::Append { db, bytes, sync })
    }

    /// What is decided now.
    pub(super) fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.commits.done)
    }

    /// Gives the list back, to be used again.
    pub(super) fn reuse(&mut self, mut done: Vec<Done>) {
        if self.commits.done.is_empty() {
            done.clear();
            done.shrink_to(DONE_KEPT);
            self.commits.done = done;
        }
    }

    /// Undoes what could not be written, newest first.
    pub(super) fn undo(&mut self) -> Vec<Done> {
        let undone = self.take_done();
        let database = self.tables.here_mut().expect("tables do not leave before all is decided");
        for done in undone.iter().rev() {
            if let Some(delta) = &done.delta {
                database.revert(delta);
            }
        }
        // What made others wait may be undone.
        let position = database.position();
        self.waiting.note_undone(position);
        undone
    }
}
