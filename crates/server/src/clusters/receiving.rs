//! A snapshot on its way from another member: bytes to the file beside the file, and from there, by
//! a helper, to what it makes of the tables (`server/clustering/loading.rs`).

use std::ops::Range;

use weir_cluster::Position;
use weir_data::Uuid;
use weir_log::clustered::{ReceivedSnapshot, SnapshotHeader};

use crate::work::Rows;

/// A snapshot on its way.
pub(crate) struct Receiving {
    pub(crate) last: Position,
    /// The id of the state that it is of.
    pub(crate) eid: Uuid,
    pub(crate) stage: Stage,
    /// The snapshot has taken the file's place, and could not be read back there.
    pub(crate) is_unread: bool,
    /// Bytes of the file so far.
    offset: u64,
    /// Where the data is in the file.
    pub(crate) place: Range<u64>,
}

/// How far it has come.
pub(crate) enum Stage {
    /// The snapshot's data comes.
    Coming(ReceivedSnapshot),
    /// All is there, and on its way to the disk.
    Written,
    /// The whole snapshot is on the disk, to be read.
    Synced,
    /// A helper compares it with tables as they were then.
    Loading(Base),
    /// This it makes of such tables.
    Loaded(Base, Rows),
    /// A helper has the tables.
    TakingOver,
}

/// The tables that a snapshot is compared with, as [`Tables::version`](crate::database::Tables::version) names
/// them, if there are some.
pub(crate) type Base = Option<(u64, u64)>;

impl Receiving {
    /// Begins to receive a snapshot; the first bytes of its file.
    pub(crate) fn begin(
        header: &SnapshotHeader<'_>,
        (last, eid): (Position, Uuid),
        len: u64,
    ) -> (Self, Vec<u8>) {
        let (record, head) = ReceivedSnapshot::begin(header, len);
        let data_offset = record.data_offset();
        let receiving = Self {
            last,
            eid,
            stage: Stage::Coming(record),
            is_unread: false,
            offset: head.len() as u64,
            place: data_offset..data_offset.saturating_add(len),
        };
        (receiving, head)
    }

    /// More of the data has come; where it goes in the file.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> u64 {
        let Stage::Coming(record) = &mut self.stage else { panic!("nothing comes behind the end") };
        record.update(bytes);
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        offset
    }

    /// All data has come: what goes to the file's end, and over its beginning.
    pub(crate) fn end(&mut self) -> (u64, &'static [u8], Vec<u8>) {
        let Stage::Coming(record) = std::mem::replace(&mut self.stage, Stage::Written) else {
            panic!("the data ends once")
        };
        let (tail, head) = record.end();
        let offset = self.offset;
        self.offset += tail.len() as u64;
        (offset, tail, head)
    }

    /// The snapshot is given up: what a helper has made of it.
    pub(crate) fn into_rows(self) -> Option<Rows> {
        match self.stage {
            Stage::Loaded(_, rows) => Some(rows),
            _ => None,
        }
    }
}
