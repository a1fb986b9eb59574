//! From the bytes of a database file to a database, and back for compaction.
//!
//! Files are read quickly: records are replayed, and integrity is checked once, at the end. Only if
//! it is broken, which no server does, the file is read again and every record is checked as a
//! commit would be. Those that fail are passed over, as the reference does, and stay in the file.

use std::sync::Arc;

use crate::effect::MemberHeader;
pub use crate::storage::member_file::member_replayer;
use crate::storage::member_file::{self, MemberFile, snapshot_header};
use crate::storage::member_past::MemberPast;
use crate::storage::past::{Past, Told};
pub use crate::work::{convert_rows, untouched_tables};
use weir_data::store::Snapshot;
use weir_data::{DeclaredKeys, RowImage, Schema, Store, TableId, Uuid, UuidSource};
use weir_engine::replicate;
pub use weir_engine::{Converted, Database};
use weir_history::{Binding, History, Image};
use weir_log::standalone::{self, Replayed, Replayer};
use weir_log::{clustered, key_file};

/// Records with bodies of at least so many bytes are read row by row while they come, instead of
/// being held as a whole.
pub(super) const PIECES_MIN: u64 = 1 << 20;

/// What a clustered file begins with.
const CLUSTERED: &[u8] = b"OVSDB CLUSTER ";

/// Of how many records that are passed over the log has the reason.
const REASONS_MAX: usize = 20;

/// Takes a database file's bytes as they are read.
pub struct Loader {
    replayer: Replayer,
    path: String,
    seed: u64,
    is_seekable: bool,
    check: Option<Check>,
    past: Past,
    /// The file is one of a cluster's members.
    member: Option<(Box<clustered::Replayer>, MemberPast)>,
    has_begun: bool,
}

/// What has come of a whole file.
pub enum Finished {
    /// A database.
    Loaded(Box<Loaded>),
    /// Integrity is broken, or much of the end is, or some texts were too many to keep: this one wants the
    /// file from where [`Loader::again_from`] says, else from its beginning.
    Again(Loader),
}

/// Checks every record as a commit would be.
struct Check {
    /// The rows of the records that passed; from the schema on.
    database: Option<Database>,
    uuids: UuidSource,
    passed_over: PassedOver,
}

/// Records that were not replayed because they break integrity.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    /// How many.
    pub(crate) records: u64,
    /// What is wrong with the first of them.
    pub(crate) reasons: Vec<String>,
}

/// What the file beside a database's says of declared keys, or why it is not used; `None` if there is
/// none.
pub(crate) type KeptKeys = Option<Result<DeclaredKeys, String>>;

/// A database as its file told.
pub struct Loaded {
    pub(crate) database: Option<Database>,
    /// What makes the server a member of a cluster.
    pub(crate) member: Option<Box<MemberFile>>,
    /// The change log, behind the last good record.
    pub history: History,
    side_file: Option<Binding>,
    side_file_problem: Option<String>,
    /// What the file beside it says about keys.
    keys: Option<Vec<u8>>,
    pub(crate) path: String,
    pub(crate) records: u64,
    pub(crate) snapshot_len: u64,
    pub(crate) warning: Option<String>,
    pub(crate) passed_over: PassedOver,
    valid_len: u64,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Loader {
    /// Starts on the file called `path`; `seed` is fresh randomness.
    pub fn new(path: &str, seed: u64) -> Self {
        Self::quick(path, seed, false, Past::new(nonce(seed)))
    }

    /// As [`Loader::new`], for a caller who can go back in the file: a big record is then never held
    /// as a whole. After each [`Loader::feed`] the caller must ask [`Loader::again_from`].
    pub fn seekable(path: &str, seed: u64) -> Self {
        Self::quick(path, seed, true, Past::new(nonce(seed)))
    }

    fn quick(path: &str, seed: u64, is_seekable: bool, past: Past) -> Self {
        let replayer = match is_seekable {
            true => Replayer::seekable(path, seed, PIECES_MIN),
            false => Replayer::new(path, seed),
        };
        let path = path.to_owned();
        let (check, member, has_begun) = (None, None, false);
        Self { replayer, path, seed, is_seekable, check, past, member, has_begun }
    }

    fn careful(path: String, seed: u64) -> Self {
        let uuids = UuidSource::new([seed, !seed, 0x7765_6972, 2]);
        let check = Check { database: None, uuids, passed_over: PassedOver::default() };
        let replayer = Replayer::noting(&path, seed);
        let past = Past::blind(nonce(seed));
        let (check, member, has_begun) = (Some(check), None, true);
        Self { replayer, path, seed, is_seekable: false, check, past, member, has_begun }
    }

    /// How long the file is, in bytes: only what is near its end is then taken apart for the change
    /// log. To be told before the first [`Loader::feed`].
    pub fn expect_len(&mut self, bytes: u64) {
        self.past.expect_len(bytes);
    }

    /// What a file beside the database's holds that may be its side file. To be told before the
    /// first [`Loader::feed`].
    pub fn offer_side_file(&mut self, bytes: Vec<u8>) {
        self.past.offer_side_file(bytes);
    }

    /// Where in the file the next bytes must come from, if not from behind the last ones.
    pub fn again_from(&mut self) -> Option<u64> {
        if let Some((member, _)) = &mut self.member {
            return member.again_from();
        }
        self.replayer.again_from()
    }

    /// Takes the next bytes; an error means that this is no database the server can open.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !self.has_begun {
            self.has_begun = true;
            if self.is_seekable && bytes.starts_with(CLUSTERED) {
                let replayer = member_replayer(&self.path, self.seed);
                let past = MemberPast::new(nonce(self.seed), self.past.file_len());
                self.member = Some((Box::new(replayer), past));
            }
        }
        if let Some((member, past)) = &mut self.member {
            member.tell_deltas_from(past.deltas_from());
            let fed = member.feed_with(bytes, &mut |entry| past.entry(&entry));
            return fed.map_err(|error| error.to_string());
        }
        let Self { replayer, seed, check, past, .. } = self;
        replayer.tell_deltas_from(past.deltas_from());
        let each = &mut |record: Replayed<'_>| {
            let Replayed { number, end, delta, store, rows, .. } = record;
            past.record(number, &end, delta.as_ref(), store.schema());
            if let Some(check) = check {
                check.record(store, rows, *seed);
            }
        };
        replayer.feed_with(bytes, each).map_err(|error| error.to_string())
    }

    /// The file has ended.
    pub fn finish(mut self) -> Result<Finished, String> {
        if let Some((member, past)) = self.member.take() {
            return self.finish_member(member, past);
        }
        let loaded = self.replayer.finish().map_err(|error| error.to_string())?;
        if let Some(past) = self.past.again(loaded.valid_len) {
            let again = Self::quick(&self.path, self.seed, self.is_seekable, past);
            return Ok(Finished::Again(again));
        }
        let (checked, passed_over) = match self.check {
            None => (None, PassedOver::default()),
            Some(check) => (check.database, check.passed_over),
        };
        let database = match checked {
            Some(database) => database,
            None => match Database::from_store(loaded.store, self.seed) {
                Ok(database) => database,
                Err(_) => return Ok(Finished::Again(Self::careful(self.path, self.seed))),
            },
        };
        let Told { history, side_file, problem } = self.past.finish();
        Ok(Finished::Loaded(Box::new(Loaded {
            database: Some(database),
            member: None,
            history,
            side_file,
            side_file_problem: problem,
            keys: None,
            path: self.path,
            records: loaded.records,
            snapshot_len: loaded.snapshot_len,
            warning: loaded.warning,
            passed_over,
            valid_len: loaded.valid_len,
        })))
    }
}

impl Loader {
    fn finish_member(
        self,
        member: Box<clustered::Replayer>,
        past: MemberPast,
    ) -> Result<Finished, String> {
        let mut file = match member_file::finish(member, self.seed)? {
            member_file::Finished::Loaded(file) => file,
            member_file::Finished::Again(again) => {
                return Ok(Finished::Again(Self { member: Some((again, past)), ..self }));
            }
        };
        let schema = file.database.as_ref().map(|database| &**database.schema());
        let history = past.finish(file.opened.snapshot_eid, schema);
        let (records, valid_len) = (file.records, file.valid_len);
        Ok(Finished::Loaded(Box::new(Loaded {
            database: file.database.take(),
            warning: file.warning.take(),
            member: Some(file),
            history,
            side_file: None,
            side_file_problem: None,
            keys: None,
            path: self.path,
            records,
            snapshot_len: 0,
            passed_over: PassedOver::default(),
            valid_len,
        })))
    }
}

/// The database of a file whose bytes are at hand; `seed` is fresh randomness.
///
/// # Errors
/// Why the server cannot open it.
pub fn load(path: &str, seed: u64, bytes: &[u8]) -> Result<Box<Loaded>, String> {
    load_with(path, seed, bytes, Vec::new())
}

/// As [`load`], with what may be the side file.
///
/// # Errors
/// Why the server cannot open it.
pub fn load_with(
    path: &str,
    seed: u64,
    bytes: &[u8],
    side_files: Vec<Vec<u8>>,
) -> Result<Box<Loaded>, String> {
    let mut loader = Loader::new(path, seed);
    side_files.into_iter().for_each(|side_file| loader.offer_side_file(side_file));
    loop {
        loader.feed(bytes)?;
        match loader.finish()? {
            Finished::Loaded(loaded) => return Ok(loaded),
            Finished::Again(again) => loader = again,
        }
    }
}

impl Check {
    /// A record has been replayed on `store`, which differs from the checked rows in `changed` only:
    /// it is committed here, or undone there.
    fn record(&mut self, store: &mut Store, changed: &[(TableId, Uuid)], seed: u64) {
        let schema = store.schema();
        let database = self.database.get_or_insert_with(|| Database::new(Arc::clone(schema), seed));
        let image = |&(table, uuid): &(TableId, Uuid)| {
            let columns = || schema.table(table).data_columns();
            let values = store.get(table, uuid).map(|row| {
                columns().map(|(column, _)| (column, row.datum(column).clone())).collect()
            });
            RowImage { table, uuid, values }
        };
        let images = changed.iter().map(image).collect();
        let mut differing = changed.to_vec();
        match replicate::apply_images(database, images, &mut self.uuids) {
            Ok(delta) => differing.extend(delta.rows().map(|(table, uuid, _)| (table, uuid))),
            Err(error) => self.passed_over.add(&error.to_string()),
        }
        for (table, uuid) in differing {
            store.remove(table, uuid);
            if let Some(row) = database.store().get(table, uuid) {
                store.insert(table, row.clone());
            }
        }
    }
}

impl PassedOver {
    fn add(&mut self, reason: &str) {
        self.records += 1;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason.to_owned());
        }
    }
}

impl Loaded {
    /// Gets the texts of the entries of a cluster's log; `read` reads so many bytes from an offset
    /// of the file.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read_texts(
        &mut self,
        read: &mut dyn FnMut(u64, u64) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        self.member.as_mut().map_or(Ok(()), |member| member.read_texts(read))
    }

    /// Whether it is the file of a member of a cluster.
    pub fn is_clustered(&self) -> bool {
        self.member.is_some()
    }

    /// What the file beside it holds that says which keys are declared; `None` if there is none.
    pub fn set_key_file(&mut self, bytes: Option<Vec<u8>>) {
        self.keys = bytes;
    }

    /// Of a member: bytes of entries that stay in memory once they have taken effect, instead of 2 MiB.
    pub fn set_texts_bytes_max(&mut self, bytes: usize) {
        if let Some(member) = &mut self.member {
            member.opened.texts_bytes_max = bytes;
        }
    }

    /// What [`Loaded::set_key_file`] was told.
    pub fn key_file(&self) -> Option<&[u8]> {
        self.keys.as_deref()
    }

    /// The keys that the file beside it declares for a database.
    pub(crate) fn declared_keys(&self, name: &str) -> KeptKeys {
        let bytes = self.keys.as_deref()?;
        Some(key_file::read(bytes, name).map_err(|error| error.to_string()))
    }

    /// Where the last good record ends: appends go there, whatever follows is cut off first.
    pub fn valid_len(&self) -> u64 {
        self.valid_len
    }

    /// What the side file's name ends in that was read with the file.
    pub fn side_file(&self) -> Option<String> {
        self.side_file.as_ref().map(Binding::text)
    }

    /// Why none was read though one was offered that is not another file's.
    pub fn side_file_problem(&self) -> Option<&str> {
        self.side_file_problem.as_deref()
    }
}

/// The nonce of volatile ids.
fn nonce(seed: u64) -> u64 {
    UuidSource::new([seed, !seed, 0x7765_6972, 3]).next_u64()
}

/// Streams a compacted file: schema record, then one record with all rows. Answers with what names
/// its side file.
pub fn write_snapshot(
    snapshot: &Snapshot,
    comment: &str,
    date_ms: i64,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<Binding, String> {
    let mut record = Vec::new();
    let schema = standalone::write_schema(&mut record, snapshot.schema());
    sink(&record)?;
    let mut sink = |bytes: &[u8]| sink(bytes);
    let snapshot = standalone::write_snapshot(snapshot, date_ms, Some(comment), &mut sink)?;
    Ok(Binding { schema: schema.0, snapshot: snapshot.0 })
}

/// Streams what the file of a member of a cluster begins with, and its snapshot.
///
/// # Errors
/// Those of `sink`.
pub fn write_member_snapshot(
    header: &MemberHeader,
    snapshot: &Snapshot,
    comment: &str,
    date_ms: i64,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut sink = |bytes: &[u8]| sink(bytes);
    let header = snapshot_header(header);
    clustered::write_snapshot(&header, snapshot, date_ms, Some(comment), &mut sink)?;
    Ok(())
}

/// What the file of a member of a cluster begins with, and its snapshot, in memory.
pub fn member_snapshot(
    header: &MemberHeader,
    snapshot: &Snapshot,
    comment: &str,
    date_ms: i64,
) -> Vec<u8> {
    let mut file = Vec::new();
    let mut sink = |bytes: &[u8]| {
        file.extend_from_slice(bytes);
        Ok(())
    };
    write_member_snapshot(header, snapshot, comment, date_ms, &mut sink).expect("memory takes all");
    file
}

/// The change log of a converted database's file, which `binding` names, from that of the database
/// with the `old` schema.
pub fn converted_image(
    image: Image,
    old: &Schema,
    converted: &Converted,
    binding: &Binding,
) -> Image {
    let tables = untouched_tables(old, converted);
    let target = |table: TableId| tables.get(table.index()).copied().flatten();
    image.converted(&target, converted.database.schema().tables.len(), binding.schema)
}
