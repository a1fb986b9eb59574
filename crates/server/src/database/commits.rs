//! The commit pipeline of one database: what has run and is not decided, and its records.
//!
//! 1. Transactions run and change the tables; each is filed with its reply and its change.
//! 2. Their records go to the file together. Until the shell has answered, nothing more runs.
//! 3. Written: all of them are decided. Not written: they are undone, newest first.

use std::sync::Arc;

use weir_data::{Delta, Error};
use weir_history::Record;
use weir_log::standalone::{self, Style};

use crate::database::Db;
use crate::database::trigger::Trigger;
use crate::effect::Effect;
use crate::ids::DbId;
use crate::shell::Shell;
use crate::work::{MadeRecord, record_of};

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
}

/// Whether a transaction that runs may write to the file.
#[derive(Clone, Copy)]
pub(crate) enum Writes<'a> {
    Accepted,
    /// The file refuses, with this strerror(3) text.
    Refused(&'a str),
}

impl Commits {
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
        comment: Option<String>,
        is_durable: bool,
        writes: Writes<'_>,
    ) -> Result<Option<Recorded>, Error> {
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

    /// Adds a record that has been made elsewhere, if there is one.
    pub(super) fn add_record(
        &mut self,
        made: Option<MadeRecord>,
        comment: Option<String>,
        is_durable: bool,
    ) -> Option<Recorded> {
        let MadeRecord { bytes, record, date_ms } = made?;
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
