//! `ovsdb-tool recover-cluster`: a new cluster from what is left of an old one that lost most of
//! its servers.
//!
//! Of several files that one is taken whose last entry has the highest term, then the highest
//! index, as raft judges who may lead (section 5.4.1 of its paper). The index alone would be wrong:
//! a leader that was cut off may have written a long tail that nobody else has, while the others
//! went on in a later term.
//!
//! All that stands in that file's log is taken, also what is not known to be committed: whether it
//! was, nobody can tell any more, and what was acknowledged must not be lost. What the new cluster
//! begins with is up to `weir_server::recovery`.

use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_data::{Store, UuidSource};
use weir_host::vlog::Level;
use weir_log::clustered::{Finished, Loaded, Tail, check_address};
use weir_server::load::member_replayer;
use weir_server::recovery::{Position, log_end, new_cluster, new_file};

use super::create::{finish, refused};
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
    let local = local.unwrap_or(&loaded.local_address);
    check_address(local).map_err(|error| refused(tool, &error))?;
    let header = new_cluster(&loaded, local, &mut UuidSource::new(random));
    let comment = format!("recovered from {source}");
    let content = new_file(&header, &store.snapshot(), &comment, weir_host::wall_ms());
    let (server, first) = (header.server, header.mark.last.index + 1);
    let cluster = header.cluster.expect("a new cluster has an id");
    let name = &header.name;
    let done = finish(tool, Path::new(db), &content)?;
    let unknown = match last.index {
        last if last > commit => {
            let after = commit + 1;
            format!("entries {after} to {last} were not known to be committed, and are there\n")
        }
        _ => String::new(),
    };
    say(&format!(
        "{chosen}{db}: a new cluster, {cluster}, with one server, {server} at {local}; it has \
         {} of the old one, and its own begin with {first}\n{unknown}other servers join it with files of ovsdb-tool \
         --cid={cluster} join-cluster FILE {name} ADDRESS {local}\n",
        shown(last)
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
        let Some(found) = Found::read(tool, source, seed)? else {
            told += &format!("{source} is left out: its server has not joined the cluster\n");
            continue;
        };
        told += &format!("{source} ends with {}\n", shown(found.last));
        if let Some(best) = &best {
            found.check_beside(best)?;
        }
        if best.as_ref().is_none_or(|best| found.last > best.last) {
            best = Some(found);
        }
    }
    let best = best.ok_or_else(|| {
        let named = sources.join(", ");
        Failure::new(format!("ovsdb error: {named}: the server has not joined its cluster"))
    })?;
    if sources.len() == 1 {
        return Ok((best, String::new()));
    }
    let taken = best.source;
    told += &format!("{taken} is taken: the highest term, and in it the highest index\n");
    Ok((best, told))
}

/// The last entry of a log.
fn shown(last: Position) -> String {
    format!("entry {} of term {}", last.index, last.term)
}

/// What a file has, with all entries of its log applied.
struct Found<'a> {
    source: &'a str,
    loaded: Loaded,
    store: Store,
    /// The last entry.
    last: Position,
    /// Index of the last one that the file knows to be committed.
    commit: u64,
}

impl<'a> Found<'a> {
    /// `None` of a server that has not joined: it has nothing.
    fn read(tool: &Tool, source: &'a str, seed: u64) -> Result<Option<Self>, Failure> {
        let mut loaded = replay(Path::new(source), seed)?;
        let Some(store) = loaded.store.take() else { return Ok(None) };
        match &loaded.tail {
            Tail::None => {}
            Tail::Torn { warning } => tool.log.log("ovsdb", Level::Warn, warning),
            Tail::Damaged { warning, good_offset, .. } if tool.accepts_damage => {
                let text = format!("{warning}; what is behind it is left out");
                tool.log.log("ovsdb", Level::Warn, &text);
                let text = format!("there is a good record at offset {good_offset}");
                tool.log.log("ovsdb", Level::Warn, &text);
            }
            Tail::Damaged { warning, good_offset, .. } => {
                return Err(Failure::new(format!(
                    "{warning} (there is a good record at offset {good_offset}): use the file of another \
                     server; --accept-damage takes what is before"
                )));
            }
        }
        let commit = loaded.commit_index;
        let last = log_end(&loaded);
        Ok(Some(Self { source, loaded, store, last, commit }))
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
