//! From the bytes of a clustered file to tables and a log.

use std::sync::Arc;

use weir_cluster::{Content, Held, Logged, Opened, Place, Position};
use weir_data::{Schema, Store, Uuid, UuidSource};
use weir_engine::Database;
use weir_log::clustered::{self, LoggedEntry, Replayer, SnapshotHeader, Tail};
use weir_log::standalone::LoadError;

use crate::effect::MemberHeader;
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

/// A replayer of a file that can be read again.
pub(super) fn replayer(path: &str, seed: u64, pieces_min: u64) -> Replayer {
    let mut replayer = Replayer::seekable(path, seed, pieces_min);
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
    let warning = match &loaded.tail {
        Tail::None => None,
        Tail::Torn { warning } | Tail::Damaged { warning, .. } => Some(warning.clone()),
    };
    if let Tail::Damaged { warning, good_offset } = &loaded.tail {
        return Err(format!("{warning} (there is a good record at offset {good_offset})"));
    }
    let database = loaded.store.map(|store| Database::from_store(store, seed));
    let database = database.transpose().map_err(|error| error.to_string())?;
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
    Ok(Finished::Loaded(Box::new(MemberFile {
        opened,
        database,
        entries: loaded.entries,
        snapshot_offset: data.map_or(0, |data| data.offset),
        log_offset: loaded.snapshot_len,
        has_bare: loaded.has_bare,
        valid_len: loaded.valid_len,
        records: loaded.records,
        warning,
    })))
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
        Ok(())
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
