//! `ovsdb-tool recover-cluster`: a new cluster from one file of an old one that lost most of its servers.
//!
//! All that stands in the file's log is taken, also what is not known to be committed: whether it was,
//! nobody can tell any more, and what was acknowledged must not be lost. The new cluster has other ids,
//! so that no server of the old one takes part by mistake.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_data::UuidSource;
use weir_host::vlog::Level;
use weir_log::clustered::{ELECTION_TIMER_MS_DEFAULT, Finished, Kind, Loaded, Record, Tail};
use weir_log::standalone::snapshot_json;
use weir_server::load::member_replayer;

use super::create::{NewCluster, Written, finish};
use crate::program::{Failure, Outcome, say};
use crate::progress::Progress;
use crate::tool::log_file::LogFile;
use crate::tool::options::Tool;
use crate::tool::rewrite::random;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Runs `recover-cluster DB CLUSTERDB [LOCAL]`.
pub(in crate::tool) fn recover_cluster(tool: &Tool, args: &[String]) -> Outcome {
    let [db, source, local @ ..] = args else { return Err(Failure::silent(1)) };
    let random = random()?;
    let Found { loaded, last, commit } = Found::read(tool, Path::new(source), random[0])?;
    let store = loaded.store.ok_or_else(|| {
        Failure::new(format!("ovsdb error: {source}: the server has not joined its cluster"))
    })?;
    let rows = store.snapshot();
    let mut data = b"[".to_vec();
    data.extend_from_slice(rows.schema().to_string().as_bytes());
    data.push(b',');
    let comment = format!("recovered from {source}");
    snapshot_json(&rows, weir_host::wall_ms(), Some(&comment), &mut data);
    data.push(b']');
    let data = String::from_utf8(data).expect("what is written is text");
    let (name, local) = (&loaded.name, local.first().unwrap_or(&loaded.local_address));
    let timer = loaded.latest.election_timer;
    let timer = (timer != ELECTION_TIMER_MS_DEFAULT).then_some(timer);
    let new = NewCluster { name, local, data, timer };
    let mut uuids = UuidSource::new(random);
    let Written { cluster, server, content } = new.write(tool, source, &mut uuids)?;
    let done = finish(tool, Path::new(db), &content)?;
    let unknown = match commit + 1 {
        first if last > commit => {
            format!("entries {first} to {last} were not known to be committed, and are there\n")
        }
        _ => String::new(),
    };
    say(&format!(
        "{db}: a new cluster, {cluster}, with one server, {server} at {local}; it has entry {last} of the \
         old one\n{unknown}other servers join it with files of ovsdb-tool --cid={cluster} join-cluster \
         FILE {name} ADDRESS {local}\n"
    ))?;
    Ok(done)
}

/// What a file has, with all entries of its log applied.
struct Found {
    loaded: Loaded,
    /// The last entry.
    last: u64,
    /// The last one that the file knows to be committed.
    commit: u64,
}

impl Found {
    fn read(tool: &Tool, path: &Path, seed: u64) -> Result<Self, Failure> {
        // It says so of files that are none, or of another kind.
        drop(LogFile::open_clustered(path)?);
        let loaded = replay(path, seed, None)?;
        match &loaded.tail {
            Tail::None => {}
            Tail::Torn { warning } => tool.log.log("ovsdb", Level::Warn, warning),
            Tail::Damaged { warning, good_offset } if tool.accepts_damage => {
                let text = format!("{warning}; what is behind it is left out");
                tool.log.log("ovsdb", Level::Warn, &text);
                let text = format!("there is a good record at offset {good_offset}");
                tool.log.log("ovsdb", Level::Warn, &text);
            }
            Tail::Damaged { warning, good_offset } => {
                return Err(Failure::new(format!(
                    "{warning} (there is a good record at offset {good_offset}): use the file of another \
                     server; --accept-damage takes what is before"
                )));
            }
        }
        let commit = loaded.commit_index;
        let last = loaded.entries.last().map_or(commit, |entry| entry.index);
        if last <= commit {
            return Ok(Self { loaded, last, commit });
        }
        let mut record = Vec::new();
        Record { comment: None, term: 0, kind: Kind::CommitIndex(last) }.write(&mut record);
        let loaded = replay(path, seed, Some((loaded.valid_len, record)))?;
        Ok(Self { loaded, last, commit })
    }
}

/// Reads a file; of some only so many bytes, with a record behind them that the file has not.
fn replay(path: &Path, seed: u64, ends: Option<(u64, Vec<u8>)>) -> Result<Loaded, Failure> {
    let shown = path.display().to_string();
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let (len, record) = match ends {
        Some((len, record)) => (len, record),
        None => (file.metadata().map_err(|error| failed(&error))?.len(), Vec::new()),
    };
    let mut buffer = vec![0; READ_BYTES];
    let mut read = |at: u64| -> Result<Vec<u8>, Failure> {
        if let Some(behind) = at.checked_sub(len) {
            let behind = usize::try_from(behind).unwrap_or(usize::MAX);
            return Ok(record.get(behind..).unwrap_or_default().to_vec());
        }
        let most = usize::try_from(len - at).unwrap_or(READ_BYTES).min(READ_BYTES);
        let count = file.read_at(&mut buffer[..most], at).map_err(|error| failed(&error))?;
        Ok(buffer[..count].to_vec())
    };
    let mut replayer = member_replayer(&shown, seed);
    let mut progress = Progress::bytes("reading", Some(len));
    let mut at = 0;
    loop {
        let piece = read(at)?;
        if piece.is_empty() {
            match replayer.finish().map_err(|error| failed(&error))? {
                Finished::Loaded(loaded) => return Ok(*loaded),
                Finished::Again(again) => replayer = *again,
            }
        } else {
            at += piece.len() as u64;
            progress.at(at);
            replayer.feed(&piece).map_err(|error| failed(&error))?;
        }
        if let Some(from) = replayer.again_from() {
            at = from;
        }
    }
}
