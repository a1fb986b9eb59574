//! From the bytes of a clustered file to tables and a log.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_cluster::{Content, Held, Logged, Opened, Place, Position};
use weir_data::{Schema, Store, Uuid, UuidSource};
use weir_engine::Database;
use weir_log::clustered::{self, LoggedEntry, Replayer, SnapshotHeader, Tail};
use weir_log::standalone::LoadError;

use crate::effect::MemberHeader;
use crate::storage::load::PIECES_MIN;
use crate::work::{has_schema, is_bare};

/// The election timer that files need not name, in milliseconds.
const ELECTION_TIMER_MS_DEFAULT: u64 = 1000;

/// Bytes of entries that stay in memory once they have taken effect, for members that lack them: who
/// lacks more is sent what is read back from the file.
const TEXTS_BYTES_MAX: usize = 2 << 20;

/// A member of a cluster as its file told.
pub(crate) struct MemberFile {
    /// What the raft library begins with. Entries are missing until [`MemberFile::read_texts`] has
    /// got their texts.
    pub(crate) opened: Opened,
    /// The tables as of the commit index; none of a server that has not joined.
    pub(crate) database: Option<Database>,
    entries: Vec<LoggedEntry>,
    /// Where the data of the snapshot begins in the file.
    pub(crate) snapshot_offset: u64,
    /// Where the records behind the first one begin.
    pub(crate) log_offset: u64,
    /// An entry has a schema and no rows.
    pub(crate) has_bare: bool,
    pub(crate) valid_len: u64,
    pub(crate) records: u64,
    pub(crate) warning: Option<String>,
}

/// What has come of a whole file.
pub(super) enum Finished {
    Loaded(Box<MemberFile>),
    Again(Box<Replayer>),
}

/// A replayer of a member's file that can be read again.
pub fn member_replayer(path: &str, seed: u64) -> Replayer {
    let mut replayer = Replayer::seekable(path, seed, PIECES_MIN);
    replayer.convert_with(convert);
    replayer
}

/// The rows under the schema of an entry that has nothing else.
fn convert(store: Store, schema: Arc<Schema>, seed: u64) -> Result<Store, String> {
    let mut uuids = UuidSource::new([seed, !seed, 0x7765_6972, 5]);
    let snapshot = store.snapshot();
    drop(store);
    let converted = weir_engine::convert(&snapshot, schema, &mut uuids, seed);
    converted.map(|converted| converted.database.into_store()).map_err(|error| error.to_string())
}

/// The file has ended.
pub(super) fn finish(replayer: Box<Replayer>, seed: u64) -> Result<Finished, String> {
    let loaded = match replayer.finish().map_err(|error: LoadError| error.to_string())? {
        clustered::Finished::Loaded(loaded) => *loaded,
        clustered::Finished::Again(again) => return Ok(Finished::Again(again)),
    };
    let again = joins_again(&loaded)?;
    let warning = match (&loaded.tail, &again) {
        (_, Some(Again { why, .. })) => Some(format!(
            "{why}: the server does not have what it has promised its cluster to keep, and joins it again \
             as a new one"
        )),
        (Tail::Torn { warning }, None) => Some(warning.clone()),
        (Tail::None | Tail::Damaged { .. }, None) => None,
    };
    let store = loaded.store.filter(|_| again.is_none());
    let database = store.map(|store| Database::from_store(store, seed));
    let database = database.transpose().map_err(|error| error.to_string())?;
    let is_damaged = matches!(loaded.tail, Tail::Damaged { .. });
    let (snapshot, data) = match &loaded.snapshot {
        Some(place) => (Position { term: place.term, index: place.index }, Some(place.data)),
        None => (Position::default(), None),
    };
    let opened = Opened {
        server: loaded.server_id,
        cluster: loaded.cluster_id,
        name: loaded.name,
        address: loaded.local_address,
        remotes: loaded.remotes,
        replaces: None,
        snapshot,
        snapshot_eid: data.map_or(Uuid::ZERO, |data| data.eid),
        snapshot_servers: loaded.base.servers,
        snapshot_timer: loaded.base.election_timer,
        snapshot_len: data.map_or(0, |data| data.len),
        entries: Vec::new(),
        log_len: loaded.valid_len - loaded.snapshot_len,
        texts_bytes_max: TEXTS_BYTES_MAX,
        term: loaded.term,
        vote: loaded.vote,
        commit: loaded.commit_index,
        seed,
    };
    let (opened, database, entries) = match again {
        None => (opened, database, loaded.entries),
        Some(Again { remotes, .. }) => (opened.anew(new_server(seed), remotes), None, Vec::new()),
    };
    Ok(Finished::Loaded(Box::new(MemberFile {
        opened,
        database,
        entries,
        snapshot_offset: data.map_or(0, |data| data.offset),
        log_offset: loaded.snapshot_len,
        has_bare: loaded.has_bare,
        // What is behind a bad record stays there, for who may be able to use it.
        valid_len: if is_damaged { loaded.file_len } else { loaded.valid_len },
        records: loaded.records,
        warning,
    })))
}

/// A server that does not have what it had promised to keep joins its cluster again.
struct Again {
    why: String,
    /// Whom it asks.
    remotes: Vec<String>,
}

/// Whether a server must join its cluster again.
fn joins_again(loaded: &clustered::Loaded) -> Result<Option<Again>, String> {
    let (damage, behind) = match &loaded.tail {
        Tail::Damaged { warning, good_offset, servers } => {
            let damage = format!("{warning} (there is a good record at offset {good_offset})");
            (Some(damage), servers.as_ref())
        }
        Tail::None | Tail::Torn { .. } => (None, None),
    };
    if damage.is_none() && !loaded.has_forgotten {
        return Ok(None);
    }
    let is_other = |(id, _): &(&Uuid, &String)| **id != loaded.server_id;
    let before = loaded.latest.servers.iter().chain(&loaded.committed.servers);
    let known = before.chain(behind.into_iter().flatten()).filter(is_other);
    let remotes: BTreeSet<&String> =
        known.map(|(_, address)| address).chain(&loaded.remotes).collect();
    let remotes: Vec<String> = remotes.into_iter().cloned().collect();
    let is_alone = behind.is_some_and(|servers| !servers.iter().any(|server| is_other(&server)));
    match damage {
        // Nobody else has what it has lost.
        Some(damage) if remotes.is_empty() || is_alone => Err(damage),
        damage => {
            let noted =
                || format!("{}: the log was an older one when it was opened last", loaded.name);
            Ok(Some(Again { why: damage.unwrap_or_else(noted), remotes }))
        }
    }
}

/// The id of a server that joins again: another one each time that the file is read, for the file keeps
/// nothing of it until the snapshot of a leader takes its place.
fn new_server(seed: u64) -> Uuid {
    UuidSource::new([seed, !seed, 0x7765_6972, 6]).next_uuid()
}

impl MemberFile {
    /// Gets the texts of entries that stay in memory, the last ones; `read` reads so many bytes from
    /// an offset of the file.
    pub(super) fn read_texts(
        &mut self,
        read: &mut dyn FnMut(u64, u64) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let mut bytes = 0;
        for entry in std::mem::take(&mut self.entries).into_iter().rev() {
            let at = Position { term: entry.term, index: entry.index };
            let here = match (&entry.data, entry.servers, entry.election_timer) {
                (Some(place), ..) => {
                    bytes += place.len;
                    let is_kept = bytes <= TEXTS_BYTES_MAX as u64 || at.index > self.opened.commit;
                    let text = is_kept.then(|| read(place.offset, place.len)).transpose()?;
                    text.map(|text| Content::Data { eid: place.eid, text: text.into() })
                }
                (None, Some(servers), _) => Some(Content::Servers(Arc::new(*servers))),
                (None, None, Some(ms)) => Some(Content::ElectionTimer(ms)),
                (None, None, None) => Some(Content::Empty),
            };
            if let Some(Content::Data { text, .. }) = &here {
                self.has_bare |= has_schema(text) && is_bare(text);
            }
            let eid = entry.data.map_or(Uuid::ZERO, |data| data.eid);
            let held = here.map_or(Held::InFile { eid }, Held::Here);
            let place = entry
                .data
                .map(|data| Place { offset: data.offset - self.log_offset, len: data.len });
            self.opened.entries.push(Logged { at, held, place });
        }
        self.opened.entries.reverse();
        self.opened.check().map_err(|why| format!("{}: {why}", self.opened.name))
    }
}

/// The header of a file that starts from a snapshot.
pub(crate) fn snapshot_header(header: &MemberHeader) -> SnapshotHeader<'_> {
    let MemberHeader { server, address, name, cluster, mark } = header;
    let timer = mark.election_timer;
    SnapshotHeader {
        server_id: *server,
        local_address: address,
        name,
        cluster_id: cluster.unwrap_or_default(),
        servers: &mark.servers,
        index: mark.last.index,
        term: mark.last.term,
        eid: mark.eid,
        election_timer: (timer != ELECTION_TIMER_MS_DEFAULT).then_some(timer),
    }
}
