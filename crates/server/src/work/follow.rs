//! What a conversion has missed while a helper was at work on its snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::{Delta, Snapshot, TableId, Uuid, UuidSource};
use weir_engine::Converted;
use weir_log::standalone;

use crate::work::{CONVERSION_COMMENT, MadeRecord, record_of};

/// [`Work::Follow`](crate::work::Work::Follow)
pub struct Follow {
    pub(crate) converted: Box<Converted>,
    /// The rows under the old schema as they are now.
    pub(crate) snapshot: Snapshot,
    /// The rows that have changed since the snapshot.
    pub(crate) changed: BTreeSet<(TableId, Uuid)>,
    /// Changes of many rows, all of which have changed, too.
    pub(crate) large: Vec<Arc<Delta>>,
    /// Wall clock for the log record.
    pub(crate) date_ms: i64,
    pub(crate) seed: [u64; 4],
}

/// The result of a [`Work::Follow`](crate::work::Work::Follow).
pub struct Followed {
    pub(crate) converted: Box<Converted>,
    /// What has changed in the converted file, if anything.
    pub(crate) record: Result<Option<MadeRecord>, CannotFollow>,
}

/// The conversion must begin anew.
#[derive(Debug)]
pub(crate) struct CannotFollow;

impl Follow {
    /// Converts them, too.
    pub(crate) fn run(self) -> Followed {
        let Self { mut converted, snapshot, mut changed, large, date_ms, seed } = self;
        let mut uuids = UuidSource::new(seed);
        for delta in large {
            changed.extend(delta.rows().map(|(table, uuid, _)| (table, uuid)));
        }
        let tables: BTreeSet<TableId> = changed.iter().map(|(table, _)| *table).collect();
        let tables: Vec<TableId> = tables.into_iter().collect();
        let source = snapshot.to_store(&tables, uuids.next_u64());
        let delta = converted.follow(&source, &changed, &mut uuids);
        let record = delta.map(|delta| {
            let (mut bytes, store) = (Vec::new(), converted.database.store());
            let comment = Some(CONVERSION_COMMENT);
            let written =
                standalone::write_transaction(&mut bytes, &delta, store, date_ms, comment);
            written.map(|written| MadeRecord { bytes, record: record_of(written), date_ms })
        });
        Followed { converted, record: record.map_err(|_| CannotFollow) }
    }
}
