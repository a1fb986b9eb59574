//! A snapshot on its way from another member: bytes to the file beside the file, and to rows.

use weir_cluster::Position;
use weir_data::{Store, Uuid};
use weir_log::clustered::{ReceivedSnapshot, SnapshotHeader, SnapshotReader};

/// A snapshot on its way.
pub(crate) struct Receiving {
    pub(crate) last: Position,
    /// The id of the state that it is of.
    pub(crate) eid: Uuid,
    record: Option<ReceivedSnapshot>,
    reader: Option<SnapshotReader>,
    /// Bytes of the file so far.
    pub(crate) offset: u64,
    /// Where the data begins in the file.
    pub(crate) data_offset: u64,
    /// The rows, once all have come.
    pub(crate) store: Option<Store>,
    /// The data makes no sense.
    pub(crate) has_failed: bool,
}

impl Receiving {
    /// It begins; the first bytes of the file.
    pub(crate) fn begin(
        header: &SnapshotHeader<'_>,
        (last, eid): (Position, Uuid),
        len: u64,
        seed: u64,
    ) -> (Self, Vec<u8>) {
        let (record, head) = ReceivedSnapshot::begin(header, len);
        let receiving = Self {
            last,
            eid,
            offset: head.len() as u64,
            data_offset: record.data_offset(),
            record: Some(record),
            reader: Some(SnapshotReader::new(seed)),
            store: None,
            has_failed: false,
        };
        (receiving, head)
    }

    /// More of the data has come; where it goes in the file.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> u64 {
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.record.as_mut().expect("nothing comes behind the end").update(bytes);
        let reader = self.reader.as_mut().expect("nothing comes behind the end");
        self.has_failed |= reader.feed(bytes).is_err();
        offset
    }

    /// All data has come: what goes to the file's end, and over its beginning.
    pub(crate) fn end(&mut self) -> (u64, &'static [u8], Vec<u8>) {
        let record = self.record.take().expect("the data ends once");
        let (tail, head) = record.end();
        let offset = self.offset;
        self.offset += tail.len() as u64;
        let reader = self.reader.take().expect("the data ends once");
        match reader.finish() {
            Ok(store) => self.store = Some(store),
            Err(_) => self.has_failed = true,
        }
        (offset, tail, head)
    }
}
