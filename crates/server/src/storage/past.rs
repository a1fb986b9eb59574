//! The change log of a database file, made while the file is read (`docs/decisions/012`).

use std::sync::Arc;

use weir_data::{Delta, IdKind, Schema};
use weir_history::{
    BUDGET_BYTES_MAX, Binding, History, Name, Record, RecordHash, SideFileError, budget_of,
};
use weir_log::record::End;

/// So much may be torn off a file's end, in bytes, before the file is read again for its log: more
/// of it is taken apart than the whole file's log has room for.
const TORN_BYTES: u64 = 1 << 20;

/// The change log of a file that is being read.
pub(super) struct Past {
    nonce: u64,
    /// Length of the file, if that is known.
    file_len: Option<u64>,
    side_files: Vec<Arc<[u8]>>,
    /// Nothing that is in the file is taken for a change that somebody may resume over.
    is_blind: bool,
    /// From the first record on.
    history: Option<History>,
    schema: RecordHash,
    /// How much the log may cost, from the second record on.
    budget: usize,
    /// The file whose side file was among those that were offered.
    adopted: Option<Binding>,
    /// Why that one does not count.
    problem: Option<SideFileError>,
    /// Whether the last word was a record that carries the mark, or a side file.
    is_kept: bool,
}

impl Past {
    pub(super) fn new(nonce: u64) -> Self {
        Self {
            nonce,
            file_len: None,
            side_files: Vec::new(),
            is_blind: false,
            history: None,
            schema: [0; 20],
            budget: BUDGET_BYTES_MAX,
            adopted: None,
            problem: None,
            is_kept: false,
        }
    }

    /// A log that begins behind the last record: the file has records that do not count.
    pub(super) fn blind(nonce: u64) -> Self {
        Self { is_blind: true, ..Self::new(nonce) }
    }

    pub(super) fn expect_len(&mut self, bytes: u64) {
        self.file_len = Some(bytes);
    }

    pub(super) fn file_len(&self) -> Option<u64> {
        self.file_len
    }

    pub(super) fn offer_side_file(&mut self, bytes: Vec<u8>) {
        self.side_files.push(bytes.into());
    }

    /// From which file offset on records must be taken apart, as far as is known: what costs more
    /// than the budget goes, and no record costs less than it is long.
    pub(super) fn deltas_from(&self) -> u64 {
        let needed = |len| self.needed_from(len).saturating_sub(TORN_BYTES);
        if self.is_blind { u64::MAX } else { self.file_len.map_or(0, needed) }
    }

    fn needed_from(&self, len: u64) -> u64 {
        len.saturating_sub(self.budget as u64)
    }

    /// A record has been read; `delta` is what it changed if it was taken apart.
    pub(super) fn record(
        &mut self,
        number: u64,
        end: &End,
        delta: Option<&Delta>,
        schema: &Schema,
    ) {
        let hash = end.hash.0;
        if number == 2 {
            // Whoever serves a file that has only a schema does not know this yet, and forgets
            // nothing that is kept here.
            self.budget = budget_of(end.offset);
            let binding = Binding { schema: self.schema, snapshot: hash };
            if let Some(mut adopted) = self.adopt(&binding, schema) {
                adopted.set_budget(self.budget);
                (self.history, self.is_kept) = (Some(adopted), true);
                self.adopted = Some(binding);
                return;
            }
        }
        let Some(history) = &mut self.history else {
            self.schema = hash;
            let history = History::new(hash, schema.tables.len(), self.budget, self.nonce);
            self.history = Some(history);
            return;
        };
        let (body_len, is_marked) = (end.body_len, end.is_marked);
        history.push(delta, schema, Some(Record { name: Name::Hash(hash), body_len, is_marked }));
        self.is_kept = is_marked;
        if number == 2 {
            history.set_budget(self.budget);
        }
    }

    /// The log of the side file that belongs to the file, if there is one.
    fn adopt(&mut self, binding: &Binding, schema: &Schema) -> Option<History> {
        if self.is_blind {
            return None;
        }
        for bytes in &self.side_files {
            match History::from_side_file(bytes, binding, schema, self.budget, self.nonce) {
                Ok(history) => return Some(history),
                Err(SideFileError::Foreign) => {}
                Err(problem) => self.problem = Some(problem),
            }
        }
        None
    }

    /// If what follows `valid_len` is torn off, and less was taken apart than the log has room for
    /// then: another one, for the file up to there.
    pub(super) fn again(&self, valid_len: u64) -> Option<Self> {
        if self.is_blind || self.deltas_from() <= self.needed_from(valid_len) {
            return None;
        }
        let (file_len, side_files) = (Some(valid_len), self.side_files.clone());
        Some(Self { file_len, side_files, ..Self::new(self.nonce) })
    }

    /// The whole file has been read.
    pub(super) fn finish(self) -> Told {
        let mut history = self.history.expect("what was loaded began with a schema");
        if self.is_kept {
            history.keep(IdKind::Recorded);
        }
        Told {
            history,
            side_file: self.adopted,
            problem: self.problem.filter(|_| self.adopted.is_none()).map(|why| why.to_string()),
        }
    }
}

/// What has come of the log.
pub(super) struct Told {
    pub(super) history: History,
    /// The file to which the side file belonged that was taken.
    pub(super) side_file: Option<Binding>,
    /// Why a side file was not taken that was offered.
    pub(super) problem: Option<String>,
}
