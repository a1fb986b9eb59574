//! The change log of a member's file, made while the file is read (`docs/decisions/012`): the ids of
//! states are those of the cluster's entries.

use std::sync::Arc;

use weir_data::{Schema, Uuid};
use weir_history::{BUDGET_BYTES_MAX, History, Name, Record};
use weir_log::clustered::Applied;

/// The change log of a member's file that is being read.
pub(super) struct MemberPast {
    nonce: u64,
    /// Length of the file, if that is known.
    file_len: Option<u64>,
    /// From the first entry with data on, with the schema that it was made under.
    log: Option<(History, Arc<Schema>)>,
}

impl MemberPast {
    pub(super) fn new(nonce: u64, file_len: Option<u64>) -> Self {
        Self { nonce, file_len, log: None }
    }

    /// From which file offset on entries must be taken apart: what lies before it costs more than
    /// the log may.
    pub(super) fn deltas_from(&self) -> u64 {
        self.file_len.map_or(0, |len| len.saturating_sub(BUDGET_BYTES_MAX as u64))
    }

    /// A committed entry has been read.
    pub(super) fn entry(&mut self, entry: &Applied<'_>) {
        let Applied { eid, len, is_marked, snapshot_eid, delta, store, .. } = entry;
        let schema = store.schema();
        // An entry that brings a schema has no delta: the log begins behind it.
        self.log.take_if(|(_, of)| !Arc::ptr_eq(of, schema));
        let begin = || {
            let state = snapshot_eid.unwrap_or(*eid);
            let history = History::of_cluster(state, schema.tables.len(), self.nonce);
            (history, Arc::clone(schema))
        };
        let (history, _) = self.log.get_or_insert_with(begin);
        let record = Record { name: Name::Entry(*eid), body_len: *len, is_marked: *is_marked };
        history.push(delta.as_ref(), schema, Some(record));
    }

    /// The whole file has been read, which begins with the state of this id.
    pub(super) fn finish(self, snapshot_eid: Uuid, schema: Option<&Schema>) -> History {
        let tables = schema.map_or(0, |schema| schema.tables.len());
        let begin = || History::of_cluster(snapshot_eid, tables, self.nonce);
        self.log.map_or_else(begin, |(history, _)| history)
    }
}
