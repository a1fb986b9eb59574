//! `ovsdb-tool check-cluster`: whether the files of a cluster's servers agree with raft's promises.
//!
//! 1. Each file by itself: entries in order, votes and leaders one a term, commit indexes that only
//!    grow, nothing committed taken back.
//! 2. Together: one leader a term; leaders that had what was committed before; equal entries at
//!    equal indexes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::ExitCode;

use weir_data::Uuid;
use weir_json::{Text, Value};
use weir_log::clustered::{Entry, Header, Kind, Record, State};
use weir_log::record::Magic;

use super::{Identity, short};
use crate::program::{Failure, Outcome, say};
use crate::tool::log_file::LogFile;
use crate::tool::options::Tool;

/// What the file of one server of a cluster says.
struct Server {
    file: String,
    identity: Identity,
    /// Index of the first entry behind the snapshot.
    log_start: u64,
    snapshot_term: u64,
    /// The entries from `log_start` on.
    entries: Vec<CheckedEntry>,
    /// Terms in which the server led, and the end of its log when it began to.
    led: Vec<(u64, u64)>,
    /// Who led in a term, and the record that said so.
    leaders: BTreeMap<u64, (Uuid, u64)>,
    /// What the server knew to be committed, by the term in which it learned that.
    commits: Vec<(u64, u64)>,
    commit_index: u64,
    term: u64,
    vote: Option<Uuid>,
    /// Whether any record tells of a term.
    has_terms: bool,
    /// Whether the server was ever among the cluster's.
    is_member: bool,
}

/// An entry of a server's log, as far as it is compared with those of others.
struct CheckedEntry {
    term: u64,
    content: u64,
    record: u64,
}

/// Runs `check-cluster DB...`.
pub(in crate::tool) fn check_cluster(_tool: &Tool, args: &[String]) -> Outcome {
    let mut servers: Vec<Server> = Vec::new();
    for file in args {
        let Some((mut server, mut log)) = open(file)? else { continue };
        if let Some(first) = servers.first() {
            check_identity(first, &servers, &server)?;
        }
        let mut number = 0;
        while let Some(checked) = log.next(|json| {
            number += 1;
            match Record::parse(json) {
                Ok(record) => server.record(number, &record, json),
                Err(error) => Err(error.to_string()),
            }
        })? {
            checked.map_err(Failure::new)?;
        }
        servers.push(server);
    }
    if !servers.iter().any(|server| server.has_terms) {
        return Err(Failure::new("all logs are empty"));
    }
    check_leaders(&servers)?;
    check_completeness(&servers)?;
    check_entries(&servers)?;
    if let Some(stranger) = servers.iter().find(|server| !server.is_member) {
        let (file, id) = (&stranger.file, short(stranger.identity.server_id));
        return Err(Failure::new(format!("{file}: server {id} not found in server list")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a file; `None` if its server has not joined.
fn open(file: &str) -> Result<Option<(Server, LogFile)>, Failure> {
    let path = Path::new(file);
    let empty = |failure: Failure| match path.metadata() {
        Ok(file) if file.is_file() && file.len() == 0 => {
            Failure::new("syntax error: Parsing raft header failed: Object expected.")
        }
        _ => failure,
    };
    let (mut log, magic) = LogFile::open(path).map_err(empty)?;
    if magic != Magic::Clustered {
        return Err(Failure::new(format!("ovsdb error: {file}: cannot identify file type")));
    }
    let server = super::header(&mut log, path, |header: Header<'_>| {
        let snapshot = match &header.state {
            State::Joined { snapshot: Some(snapshot), .. } => (snapshot.index, snapshot.term),
            _ => (0, 0),
        };
        let mut server = Server::new(file, Identity::of(&header), snapshot);
        if let State::Joined { servers, .. } = &header.state {
            server.is_member = servers.contains_key(&header.server_id);
        }
        server
    })?;
    if server.identity.is_joining {
        say(&format!("{file} has not joined the cluster, omitting\n"))?;
        return Ok(None);
    }
    Ok(Some((server, log)))
}

/// Checks that files are of one cluster and of different servers.
fn check_identity(first: &Server, others: &[Server], server: &Server) -> Result<(), Failure> {
    let this = &server.identity;
    if let Some(other) = others.iter().find(|other| other.identity.server_id == this.server_id) {
        let (id, a, b) = (short(this.server_id), &server.file, &other.file);
        return Err(Failure::new(format!("Duplicate server ID {id} in {a} and {b}.")));
    }
    let text = |id: Option<Uuid>| short(id.unwrap_or_default());
    let (a, b) = (&first.identity, this);
    if a.cluster_id != b.cluster_id {
        let (a, b) = (text(a.cluster_id), text(b.cluster_id));
        let (first, this) = (&first.file, &server.file);
        let text = format!("{first} has cluster ID {a} but {this} has cluster ID {b}");
        return Err(Failure::new(text));
    }
    if a.name != b.name {
        let (first, this, a, b) = (&first.file, &server.file, &a.name, &b.name);
        return Err(Failure::new(format!("{first} is named \"{a}\" but {this} is named \"{b}\"")));
    }
    Ok(())
}

impl Server {
    fn new(file: &str, identity: Identity, (index, term): (u64, u64)) -> Self {
        Self {
            file: file.to_owned(),
            identity,
            log_start: index + 1,
            snapshot_term: term,
            entries: Vec::new(),
            led: Vec::new(),
            leaders: BTreeMap::new(),
            commits: Vec::new(),
            commit_index: index,
            term,
            vote: None,
            has_terms: false,
            is_member: false,
        }
    }

    /// What a server is called in messages about this file.
    fn name(&self, id: Uuid) -> String {
        if id == self.identity.server_id { self.file.clone() } else { short(id) }
    }

    fn log_end(&self) -> u64 {
        self.log_start + self.entries.len() as u64
    }

    /// Checks one record; the error is the whole message.
    fn record(&mut self, number: u64, record: &Record<'_>, json: Text<'_>) -> Result<(), String> {
        let at = format!("{}: record {number}", self.file);
        self.has_terms |= record.term > 0;
        if record.term > self.term {
            self.term = record.term;
            self.vote = None;
        }
        match &record.kind {
            Kind::Term => Ok(()),
            Kind::Note(note) => {
                if note == "left" {
                    say(&format!("{at} shows that the server left the cluster\n"))
                        .map_err(|failure| failure.text)?;
                }
                Ok(())
            }
            Kind::Entry(entry) => self.entry(&at, number, record.term, entry, json),
            Kind::Vote(vote) => self.vote(&at, record.term, *vote),
            Kind::Leader(leader) => self.leader(&at, number, self.term, *leader),
            Kind::CommitIndex(index) => self.commit(&at, *index),
        }
    }

    fn entry(
        &mut self,
        at: &str,
        number: u64,
        term: u64,
        entry: &Entry<'_>,
        json: Text<'_>,
    ) -> Result<(), String> {
        let (index, end) = (entry.index, self.log_end());
        if index > end {
            return Err(format!("{at} with index {index} skips past expected index {end}"));
        }
        if index < end {
            let text = format!("log from {end} to {index} entries");
            let commit = self.commit_index;
            if index <= commit {
                let why = format!("but commit index is already {commit}");
                return Err(format!("{at} attempts to truncate {text}, {why}"));
            }
            let leads = self.leaders.get(&self.term).map(|(id, _)| *id);
            if leads == Some(self.identity.server_id) {
                return Err(format!("{at} truncates {text} while server is leader"));
            }
            say(&format!("{at} truncates {text}\n")).map_err(|failure| failure.text)?;
            self.entries.truncate(usize::try_from(index - self.log_start).unwrap_or(usize::MAX));
        }
        let before = self.entries.last().map_or(self.snapshot_term, |entry| entry.term);
        if term < before {
            let text = format!("with index {index} term {term} precedes previous entry's term");
            return Err(format!("{at} {text} {before}"));
        }
        let id = self.identity.server_id;
        self.is_member |= entry.servers.as_ref().is_some_and(|servers| servers.contains_key(&id));
        let mut hasher = DefaultHasher::new();
        let mut content = Vec::new();
        json.write(&mut content);
        content.hash(&mut hasher);
        self.entries.push(CheckedEntry { term, content: hasher.finish(), record: number });
        Ok(())
    }

    fn vote(&mut self, at: &str, term: u64, vote: Uuid) -> Result<(), String> {
        if term < self.term {
            let current = self.term;
            return Err(format!("{at} votes for term {term} but current term is {current}"));
        }
        match self.vote.replace(vote).filter(|before| *before != vote) {
            None => Ok(()),
            Some(before) => {
                let (vote, before) = (self.name(vote), self.name(before));
                let text = "but a previous record for the same term voted for";
                Err(format!("{at} votes for {vote} in term {term} {text} {before}"))
            }
        }
    }

    fn leader(&mut self, at: &str, number: u64, term: u64, leader: Uuid) -> Result<(), String> {
        if leader == self.identity.server_id {
            self.led.push((term, self.log_end()));
        }
        let (before, record) = *self.leaders.entry(term).or_insert((leader, number));
        if before == leader {
            return Ok(());
        }
        let (leader, before) = (self.name(leader), self.name(before));
        Err(format!(
            "{at} reports leader {leader} for term {term} but record {record} previously reported \
             the leader as {before} in that term"
        ))
    }

    fn commit(&mut self, at: &str, index: u64) -> Result<(), String> {
        let before = self.commit_index;
        if index < before {
            return Err(format!("{at} regresses commit index from {before} to {index}"));
        }
        let last = self.log_end() - 1;
        if index > last {
            let text = format!("advances commit index to {index} but last log index is {last}");
            return Err(format!("{at} {text}"));
        }
        self.commit_index = index;
        self.commits.push((self.term, index));
        Ok(())
    }
}

/// Checks that each term had one leader, whoever tells.
fn check_leaders(servers: &[Server]) -> Result<(), Failure> {
    let mut leaders: BTreeMap<u64, (Uuid, &Server)> = BTreeMap::new();
    for server in servers {
        for (term, (leader, _)) in &server.leaders {
            let (before, other) = *leaders.entry(*term).or_insert((*leader, server));
            if before != *leader {
                let (a, b) = (&other.file, &server.file);
                let (x, y) = (name(servers, before), name(servers, *leader));
                return Err(Failure::new(format!(
                    "term {term} has two different leaders: {a} says that the leader is {x} and \
                     {b} says that the leader is {y}"
                )));
            }
        }
    }
    Ok(())
}

/// A server's file, if it is one of those checked.
fn name(servers: &[Server], id: Uuid) -> String {
    let server = servers.iter().find(|server| server.identity.server_id == id);
    server.map_or_else(|| short(id), |server| server.file.clone())
}

/// Checks that what was committed in a term is in the logs of the leaders of all later ones.
fn check_completeness(servers: &[Server]) -> Result<(), Failure> {
    for leader in servers {
        for (term, end) in &leader.led {
            let commits = |server: &'_ Server| {
                server.commits.iter().filter(|(in_term, _)| in_term < term).map(|c| c.1).max()
            };
            let most = servers.iter().filter_map(|s| Some((commits(s)?, s)));
            let Some((index, other)) = most.max_by_key(|(index, _)| *index) else { continue };
            if index >= *end {
                let (id, by) = (&leader.file, &other.file);
                let last = end - 1;
                return Err(Failure::new(format!(
                    "leader {id} for term {term} has log entries only up to index {last}, but \
                     index {index} was committed in a previous term (e.g. by {by})"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that entries of one index and one term are equal, and so are all before them.
fn check_entries(servers: &[Server]) -> Result<(), Failure> {
    let mut seen: BTreeMap<(u64, u64), (&Server, &CheckedEntry)> = BTreeMap::new();
    for server in servers {
        for (index, entry) in (server.log_start..).zip(&server.entries) {
            let (other, before) = *seen.entry((index, entry.term)).or_insert((server, entry));
            if before.content != entry.content {
                let (a, b) = (content(other, before)?, content(server, entry)?);
                let (x, y) = (&other.file, &server.file);
                return Err(Failure::new(format!(
                    "log entries with index {index} differ:\n{x} has {a}\n{y} has {b}"
                )));
            }
        }
    }
    Ok(())
}

/// An entry's text, read again.
fn content(server: &Server, entry: &CheckedEntry) -> Result<String, Failure> {
    let mut log = LogFile::open_clustered(Path::new(&server.file))?;
    for _ in 0..entry.record {
        log.next(|_| ())?;
    }
    let text = log.next(|json| {
        let mut value = json.to_value();
        if let Value::Object(members) = &mut value {
            members.remove("index");
        }
        value.to_string()
    })?;
    Ok(text.unwrap_or_default())
}
