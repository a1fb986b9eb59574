//! `ovsdb-tool recover-cluster`: a new cluster from what is left of an old one that lost most of
//! its servers.
//!
//! Of several files that one is taken whose last entry has the highest term, then the highest
//! index, as raft judges who may lead (section 5.4.1 of its paper). The index alone would be wrong:
//! a leader that was cut off may have written a long tail that nobody else has, while the others
//! went on in a later term.
//!
//! All that stands in that file's log is taken, also what is not known to be committed: whether it
//! was, nobody can tell any more, and what was acknowledged must not be lost. The new cluster has
//! other ids, so that no server of the old one takes part by mistake.

use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_data::{Store, UuidSource};
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

/// Runs `recover-cluster DB CLUSTERDB... [LOCAL]`.
pub(in crate::tool) fn recover_cluster(tool: &Tool, args: &[String]) -> Outcome {
    let [db, sources @ ..] = args else { return Err(Failure::silent(1)) };
    let (sources, local) = match sources {
        [sources @ .., local] if !sources.is_empty() && is_like_address(local) => {
            (sources, Some(local))
        }
        sources => (sources, None),
    };
    let random = random()?;
    let (found, chosen) = choose(tool, sources, random[0])?;
    let Found { source, loaded, store, last, commit } = found;
    let rows = store.snapshot();
    let mut data = b"[".to_vec();
    data.extend_from_slice(rows.schema().to_string().as_bytes());
    data.push(b',');
    let comment = format!("recovered from {source}");
    snapshot_json(&rows, weir_host::wall_ms(), Some(&comment), &mut data);
    data.push(b']');
    let data = String::from_utf8(data).expect("what is written is text");
    let (name, local) = (&loaded.name, local.unwrap_or(&loaded.local_address));
    let timer = loaded.latest.election_timer;
    let timer = (timer != ELECTION_TIMER_MS_DEFAULT).then_some(timer);
    let new = NewCluster { name, local, data, timer };
    let mut uuids = UuidSource::new(random);
    let Written { cluster, server, content } = new.write(tool, source, &mut uuids)?;
    let done = finish(tool, Path::new(db), &content)?;
    let unknown = match commit + 1 {
        first if last.index > commit => {
            let last = last.index;
            format!("entries {first} to {last} were not known to be committed, and are there\n")
        }
        _ => String::new(),
    };
    say(&format!(
        "{chosen}{db}: a new cluster, {cluster}, with one server, {server} at {local}; it has \
         {last} of the old one\n{unknown}other servers join it with files of ovsdb-tool \
         --cid={cluster} join-cluster FILE {name} ADDRESS {local}\n"
    ))?;
    Ok(done)
}

/// Whether the last argument is where the server listens, and no file.
fn is_like_address(argument: &str) -> bool {
    ["tcp:", "ssl:", "unix:"].iter().any(|start| argument.starts_with(start))
}

/// Of which file the new cluster is made, and what people are told about that if there are several.
fn choose<'a>(
    tool: &Tool,
    sources: &'a [String],
    seed: u64,
) -> Result<(Found<'a>, String), Failure> {
    let mut best: Option<Found<'_>> = None;
    let mut told = String::new();
    for source in sources {
        let found = Found::read(tool, source, seed)?;
        told += &format!("{source} ends with {}\n", found.last);
        if let Some(best) = &best {
            found.check_beside(best)?;
        }
        if best.as_ref().is_none_or(|best| found.last > best.last) {
            best = Some(found);
        }
    }
    let best = best.ok_or_else(|| Failure::silent(1))?;
    if sources.len() == 1 {
        return Ok((best, String::new()));
    }
    let taken = best.source;
    told += &format!("{taken} is taken: the highest term, and in it the highest index\n");
    Ok((best, told))
}

/// Where a log ends, in the order of who may lead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Last {
    term: u64,
    index: u64,
}

impl std::fmt::Display for Last {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {} of term {}", self.index, self.term)
    }
}

/// What a file has, with all entries of its log applied.
struct Found<'a> {
    source: &'a str,
    loaded: Loaded,
    store: Store,
    /// The last entry.
    last: Last,
    /// Index of the last one that the file knows to be committed.
    commit: u64,
}

impl<'a> Found<'a> {
    fn read(tool: &Tool, source: &'a str, seed: u64) -> Result<Self, Failure> {
        let mut loaded = replay(Path::new(source), seed)?;
        let store = loaded.store.take().ok_or_else(|| {
            Failure::new(format!("ovsdb error: {source}: the server has not joined its cluster"))
        })?;
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
        let snapshot = loaded.snapshot.as_ref();
        let last = loaded.entries.last().map(|entry| (entry.term, entry.index));
        let last = last.or_else(|| snapshot.map(|snapshot| (snapshot.term, snapshot.index)));
        let (term, index) = last.unwrap_or_default();
        Ok(Self { source, loaded, store, last: Last { term, index }, commit })
    }

    /// Both must be files of one cluster.
    fn check_beside(&self, other: &Self) -> Result<(), Failure> {
        let differs = if self.loaded.name != other.loaded.name {
            "another database"
        } else if self.loaded.cluster_id != other.loaded.cluster_id {
            "another cluster"
        } else {
            return Ok(());
        };
        let (here, there) = (self.source, other.source);
        Err(Failure::new(format!("ovsdb error: {here}: this is of {differs} than {there}")))
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
