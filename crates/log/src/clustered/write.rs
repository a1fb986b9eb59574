//! Records spliced from texts: what is in them already as JSON is copied, never taken apart.
//!
//! ```text
//! {"term":T,"index":I,"servers":{..},"election_timer":MS,"eid":"..","data":[null,TRANSACTION]}
//! {"server_id":"..",…,"prev_index":I,…,"prev_eid":"..","prev_data":[SCHEMA,TRANSACTION]}
//! ```
//!
//! The long member comes last, so that who reads a file in pieces knows the others by then.

use std::ops::Range;

use weir_data::{Snapshot, Uuid};

use super::Servers;
use crate::record::{Hash, Magic, Measure, Unfinished, write_header_of};
use crate::standalone::stream_snapshot_json;

/// The text of an entry's `data`. What the parts hold is valid JSON; nobody looks at it here.
#[derive(Clone, Copy, Debug)]
pub enum DataText<'a> {
    /// `[SCHEMA,TRANSACTION]` as it is.
    Whole(&'a [u8]),
    /// The elements of the pair; what is missing becomes `null`.
    Pair {
        /// A new schema, in force from the entry on.
        schema: Option<&'a [u8]>,
        /// The transaction, as [`crate::standalone::write_transaction_json`] composes it.
        transaction: Option<&'a [u8]>,
    },
}

/// What stands for a part that is missing.
const NULL: &[u8] = b"null";

/// About how many bytes the body of an entry's record has besides its data: `{"term":12,"index":123456,"eid":"..","data":..}`.
const AROUND_DATA: usize = 100;

impl DataText<'_> {
    /// How many bytes [`DataText::write`] appends.
    fn len(self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Pair { schema, transaction } => {
                let len = |part: Option<&[u8]>| part.unwrap_or(NULL).len();
                len(schema) + len(transaction) + 3
            }
        }
    }

    /// Appends `[SCHEMA,TRANSACTION]`.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Whole(text) => out.extend_from_slice(text),
            Self::Pair { schema, transaction } => {
                out.push(b'[');
                out.extend_from_slice(schema.unwrap_or(NULL));
                out.push(b',');
                out.extend_from_slice(transaction.unwrap_or(NULL));
                out.push(b']');
            }
        }
    }
}

/// An entry of the cluster's log whose data is a text.
#[derive(Clone, Copy, Debug)]
pub struct EntryText<'a> {
    /// A remark for people.
    pub comment: Option<&'a str>,
    /// The entry's term.
    pub term: u64,
    /// The entry's index in the log.
    pub index: u64,
    /// The servers from here on, if they change.
    pub servers: Option<&'a Servers>,
    /// The election timer from here on in milliseconds, if it changes.
    pub election_timer: Option<u64>,
    /// The data, and the entry's id.
    pub data: Option<(DataText<'a>, Uuid)>,
    /// Whether the record carries the [`crate::record::MARK`].
    pub is_marked: bool,
}

impl EntryText<'_> {
    /// Appends the entry's record; answers where in `out` the text of its data is, empty if there
    /// is none.
    pub fn write(&self, out: &mut Vec<u8>) -> Range<usize> {
        let data_len = self.data.map_or(0, |(data, _)| data.len());
        let record = Unfinished::begin_of(Magic::Clustered, out, data_len + AROUND_DATA);
        let mut members = Members::begin(out);
        members.optional_string("comment", self.comment);
        members.unsigned("term", self.term);
        members.unsigned("index", self.index);
        if let Some(servers) = self.servers {
            members.servers("servers", servers);
        }
        members.optional_unsigned("election_timer", self.election_timer);
        // How far from the end of the body, the header's length being known last.
        let mut from_end = 0..0;
        if let Some((data, eid)) = self.data {
            members.uuid("eid", eid);
            let json = members.key("data");
            let start = json.len();
            data.write(json);
            // Behind it come `}`, perhaps the mark, and the newline.
            let behind = 2 + usize::from(self.is_marked);
            from_end = json.len() - start + behind..behind;
        }
        members.end();
        record.finish(out, self.is_marked);
        out.len() - from_end.start..out.len() - from_end.end
    }
}

/// The header of a file that starts from a snapshot of the tables.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotHeader<'a> {
    /// The id of the server whose file this is.
    pub server_id: Uuid,
    /// The address at which other servers reach this one.
    pub local_address: &'a str,
    /// The database's name.
    pub name: &'a str,
    /// The cluster's id.
    pub cluster_id: Uuid,
    /// The servers as of the last entry in the snapshot.
    pub servers: &'a Servers,
    /// Index of the last entry in the snapshot.
    pub index: u64,
    /// Term of the last entry in the snapshot.
    pub term: u64,
    /// Id of the last entry with data in the snapshot.
    pub eid: Uuid,
    /// The election timer in milliseconds, if it is not the default.
    pub election_timer: Option<u64>,
}

/// What has been written as the first record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Bytes of the record, its header line included: the next one begins there.
    pub len: u64,
    /// Where in the file the text of the snapshot's data is, in bytes.
    pub data: Range<u64>,
}

/// Bytes of a record's first line but for the digits of its length: `OVSDB CLUSTER `, a space, the
/// hash, a newline.
const LINE_BYTES: u64 = 14 + 1 + 40 + 1;

impl SnapshotHeader<'_> {
    /// Where in a file of `size` bytes, which ends with the first record, the snapshot's data begins,
    /// and how many bytes it has.
    pub fn data_in(&self, size: u64) -> (u64, u64) {
        let beginning = self.beginning().len() as u64;
        // The first line has the length of what follows it, in as many digits as that takes.
        let line_without_digits = LINE_BYTES;
        let body = |digits: u64| size.checked_sub(line_without_digits + digits);
        let fits =
            |body: u64, digits: u64| body.checked_ilog10().map_or(1, |n| n + 1) == digits as u32;
        let found = (1..=20).find_map(|digits| body(digits).filter(|body| fits(*body, digits)));
        let body = found.expect("the file has a whole record");
        let data_offset = size - body + beginning;
        (data_offset, body - beginning - 2)
    }

    /// The record's body up to the snapshot's data.
    fn beginning(&self) -> Vec<u8> {
        let mut json = Vec::new();
        let mut members = Members::begin(&mut json);
        members.uuid("server_id", self.server_id);
        members.string("local_address", self.local_address);
        members.string("name", self.name);
        members.uuid("cluster_id", self.cluster_id);
        members.servers("prev_servers", self.servers);
        members.unsigned("prev_index", self.index);
        members.unsigned("prev_term", self.term);
        members.uuid("prev_eid", self.eid);
        members.optional_unsigned("prev_election_timer", self.election_timer);
        members.key("prev_data");
        json
    }
}

/// Writes the first record of a file to `sink`, in bounded memory: length and hash come first, so
/// the rows are gone through twice.
///
/// # Errors
/// The first one of `sink`.
pub fn write_snapshot<E>(
    header: &SnapshotHeader<'_>,
    snapshot: &Snapshot,
    date_ms: i64,
    comment: Option<&str>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<SnapshotRecord, E> {
    let beginning = header.beginning();
    let (mut measure, mut data_len) = (Measure::default(), 0);
    measure.update(&beginning);
    stream_snapshot_data(snapshot, date_ms, comment, &mut |piece: &[u8]| {
        measure.update(piece);
        data_len += piece.len() as u64;
        Ok::<(), E>(())
    })?;
    measure.update(b"}\n");
    let mut start = measure.header_of(Magic::Clustered);
    start.extend_from_slice(&beginning);
    sink(&start)?;
    stream_snapshot_data(snapshot, date_ms, comment, sink)?;
    sink(b"}\n")?;
    let data_start = start.len() as u64;
    let data = data_start..data_start + data_len;
    Ok(SnapshotRecord { len: data.end + 2, data })
}

/// The first record of a file whose snapshot comes in pieces from another server.
#[derive(Debug)]
pub struct ReceivedSnapshot {
    measure: Measure,
    /// Where the data begins in the file.
    data_offset: u64,
}

impl ReceivedSnapshot {
    /// What the file begins with, up to the data, which will have so many bytes. The hash in it is
    /// a placeholder: [`ReceivedSnapshot::end`] says what is to be written over it.
    pub fn begin(header: &SnapshotHeader<'_>, data_len: u64) -> (Self, Vec<u8>) {
        let beginning = header.beginning();
        let mut measure = Measure::default();
        measure.update(&beginning);
        let mut start = Vec::new();
        let body_len = beginning.len() as u64 + data_len + 2;
        write_header_of(Magic::Clustered, &mut start, body_len, Hash([0; 20]));
        start.extend_from_slice(&beginning);
        (Self { measure, data_offset: start.len() as u64 }, start)
    }

    /// Where the data begins in the file.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// More of the data has come.
    pub fn update(&mut self, data: &[u8]) {
        self.measure.update(data);
    }

    /// The data is complete: what comes behind it, and what the file begins with.
    pub fn end(mut self) -> (&'static [u8], Vec<u8>) {
        self.measure.update(b"}\n");
        (b"}\n", self.measure.header_of(Magic::Clustered))
    }
}

/// Writes `[SCHEMA,TRANSACTION]` to `sink` in pieces, the transaction being one that inserts all
/// rows: what a header has as `prev_data`, and what is sent to a server that is far behind.
///
/// # Errors
/// The first one of `sink`.
pub fn stream_snapshot_data<E>(
    snapshot: &Snapshot,
    date_ms: i64,
    comment: Option<&str>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    sink(format!("[{},", snapshot.schema()).as_bytes())?;
    stream_snapshot_json(snapshot, date_ms, comment, sink)?;
    sink(b"]")
}

/// An object that is being appended, member by member.
pub(super) struct Members<'a> {
    json: &'a mut Vec<u8>,
    /// What comes before the next key.
    separator: u8,
}

impl<'a> Members<'a> {
    pub(super) fn begin(json: &'a mut Vec<u8>) -> Self {
        Self { json, separator: b'{' }
    }

    pub(super) fn end(self) {
        if self.separator == b'{' {
            self.json.push(b'{');
        }
        self.json.push(b'}');
    }

    /// A key; the value is appended by the caller.
    pub(super) fn key(&mut self, name: &str) -> &mut Vec<u8> {
        self.json.push(std::mem::replace(&mut self.separator, b','));
        weir_json::write_string(self.json, name);
        self.json.push(b':');
        self.json
    }

    pub(super) fn raw(&mut self, name: &str, json: &[u8]) {
        self.key(name).extend_from_slice(json);
    }

    pub(super) fn string(&mut self, name: &str, text: &str) {
        weir_json::write_string(self.key(name), text);
    }

    pub(super) fn optional_string(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.string(name, text);
        }
    }

    pub(super) fn strings(&mut self, name: &str, texts: &[String]) {
        let json = self.key(name);
        json.push(b'[');
        for (at, text) in texts.iter().enumerate() {
            if at > 0 {
                json.push(b',');
            }
            weir_json::write_string(json, text);
        }
        json.push(b']');
    }

    /// Numbers above the signed ones become negative ones: JSON has no others here.
    pub(super) fn unsigned(&mut self, name: &str, number: u64) {
        weir_json::write_integer(self.key(name), number.cast_signed());
    }

    pub(super) fn optional_unsigned(&mut self, name: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.unsigned(name, number);
        }
    }

    pub(super) fn uuid(&mut self, name: &str, uuid: Uuid) {
        let json = self.key(name);
        json.push(b'"');
        json.extend_from_slice(&uuid.text());
        json.push(b'"');
    }

    pub(super) fn servers(&mut self, name: &str, servers: &Servers) {
        let mut members = Members::begin(self.key(name));
        for (id, address) in servers {
            members.string(&id.to_string(), address);
        }
        members.end();
    }
}
