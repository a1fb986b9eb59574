//! `ovsdb-tool recover-cluster`: a new cluster from one file of an old one that lost most of its servers.
//!
//! All that stands in the file's log is taken, also what is not known to be committed: whether it was,
//! nobody can tell any more, and what was acknowledged must not be lost. The new cluster has other ids,
//! so that no server of the old one takes part by mistake.

use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_data::UuidSource;
use weir_host::vlog::Level;
use weir_log::clustered::{ELECTION_TIMER_MS_DEFAULT, Finished, Loaded, Tail};
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
        let loaded = replay(path, seed)?;
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
        Ok(Self { loaded, last, commit })
    }
}

/// Reads a file and applies all entries of its log. It stays open: what a server that runs puts in
/// its place meanwhile is not looked at, nor what it appends.
fn replay(path: &Path, seed: u64) -> Result<Loaded, Failure> {
    let shown = path.display().to_string();
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let file = LogFile::open_clustered(path)?.into_file();
    let len = file.metadata().map_err(|error| failed(&error))?.len();
    let mut buffer = vec![0; READ_BYTES];
    let mut replayer = member_replayer(&shown, seed);
    replayer.salvage();
    let mut progress = Progress::bytes("reading", Some(len));
    let mut at = 0;
    loop {
        let most = usize::try_from(len.saturating_sub(at)).unwrap_or(READ_BYTES).min(READ_BYTES);
        let count = file.read_at(&mut buffer[..most], at).map_err(|error| failed(&error))?;
        if count == 0 {
            match replayer.finish().map_err(|error| failed(&error))? {
                Finished::Loaded(loaded) => return Ok(*loaded),
                Finished::Again(again) => replayer = *again,
            }
        } else {
            at += count as u64;
            progress.at(at);
            replayer.feed(&buffer[..count]).map_err(|error| failed(&error))?;
        }
        if let Some(from) = replayer.again_from() {
            at = from;
        }
    }
}
