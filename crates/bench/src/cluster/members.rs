//! The members of a cluster on this machine: their files are made by the server's own tool, each
//! has a folder and a process of its own, and they speak TCP at 127.0.0.1 to one another.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::peer::Peer;
use crate::report::Figures;
use crate::rounds::Bench;
use crate::running::{self, End, Running, Source};
use crate::tools::programs::Programs;

/// How long a cluster may take until it is whole.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often members are asked.
const STEP: Duration = Duration::from_millis(10);
/// Ports below those that the system gives to clients.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 20_000;

/// A cluster that is up.
pub(crate) struct Cluster<'a> {
    bench: &'a Bench,
    peer: Peer,
    /// The database's name.
    db: String,
    pub(crate) members: Vec<Running>,
    /// CPU time in nanoseconds of processes that have been stopped.
    stopped_cpu: u64,
}

/// What a member says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) connected: bool,
    pub(super) leader: bool,
    /// The last log entry that it has.
    pub(super) index: Option<i64>,
}

impl<'a> Cluster<'a> {
    /// Makes the files and starts the members, one after the other; all are there in the end.
    pub(crate) fn start(
        bench: &'a Bench,
        peer: &Peer,
        schema: &Value,
        count: usize,
    ) -> Result<Self, Error> {
        let addresses = addresses(count);
        let db = schema["name"].as_str().unwrap_or_default().to_owned();
        let (members, stopped_cpu) = (Vec::new(), 0);
        let mut cluster = Self { bench, peer: peer.clone(), db, members, stopped_cpu };
        for (n, address) in addresses.iter().enumerate() {
            let first = (n > 0).then(|| addresses[0].as_str());
            let make = |file: &Path| make_file(peer, schema, file, address, first);
            cluster.members.push(bench.start(peer, Source::Made(&make))?);
            cluster.settle()?;
        }
        Ok(cluster)
    }

    /// Waits until one of those that run leads, and all have what it has; its number.
    pub(super) fn settle(&self) -> Result<usize, Error> {
        let all: Vec<_> = (0..self.members.len()).collect();
        self.settle_among(&all)
    }

    /// Waits until one of these leads, and the others have what it has; its number.
    pub(super) fn settle_among(&self, members: &[usize]) -> Result<usize, Error> {
        let start = Instant::now();
        // What the leader had first: writes may go on.
        let mut wanted = None;
        loop {
            let said: Vec<_> = members.iter().map(|&n| self.said(n).ok().flatten()).collect();
            let leader = said.iter().position(|said| said.is_some_and(|said| said.leader));
            wanted = wanted.or_else(|| said[leader?]?.index);
            let is_there = |said: &Option<Said>| {
                said.is_some_and(|said| said.connected && said.index >= wanted)
            };
            let is_whole = wanted.is_some() && said.iter().all(is_there);
            if let (Some(leader), true) = (leader, is_whole) {
                return Ok(members[leader]);
            }
            let ended = members.iter().find(|&&n| self.members[n].has_ended());
            if let Some(&ended) = ended {
                return Err(self.explain(ended, &Error::Check("the process has ended".into())));
            }
            if start.elapsed() > PATIENCE {
                let error = Error::Check(format!("the cluster does not become whole: {said:?}"));
                let silent = said.iter().position(|said| !is_there(said)).unwrap_or(0);
                return Err(self.explain(members[silent], &error));
            }
            std::thread::sleep(STEP);
        }
    }

    /// What a member says of itself; none where it does not have the database yet.
    pub(super) fn said(&self, member: usize) -> Result<Option<Said>, Error> {
        let mut client = Client::connect(&self.members[member].target)?;
        let select = json!(["_Server", {"op": "select", "table": "Database",
            "where": [["name", "==", self.db]], "columns": ["connected", "leader", "index"]}]);
        let results = client.transact(&select)?;
        Ok(results[0]["rows"].get(0).map(|row| Said {
            connected: row["connected"] == true,
            leader: row["leader"] == true,
            index: row["index"].as_i64(),
        }))
    }

    /// Puts the leader at the first place, or at the last one; writers go to the first one first.
    pub(crate) fn place_leader(&mut self, first: bool) -> Result<(), Error> {
        let leader = self.settle()?;
        self.members.rotate_left(if first { leader } else { leader + 1 });
        Ok(())
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        self.members.iter().map(|member| member.target.clone()).collect()
    }

    pub(super) fn stop(&mut self, member: usize, end: End) {
        // What it does from now on until it has ended is not counted.
        self.stopped_cpu += self.members[member].cpu_nanos().ok().flatten().unwrap_or(0);
        self.members[member].stop(end);
    }

    /// CPU time of all members in nanoseconds, that of processes that have been stopped too.
    pub(super) fn cpu_nanos(&self) -> Result<u64, Error> {
        Ok(self.stopped_cpu + running::cpu_nanos(&self.members)?.unwrap_or(0))
    }

    /// The latest term that a member knows: each election begins one.
    pub(super) fn term(&self) -> Result<f64, Error> {
        Ok(self.told("Term: ")?.into_iter().fold(0.0, f64::max))
    }

    /// How members' cluster has fared since this term.
    pub(super) fn fared(
        &self,
        term: f64,
        section: &str,
        figures: &mut Figures,
    ) -> Result<(), Error> {
        figures.push(section, "elections", 0, self.term()? - term);
        // The reference does not say this.
        let delays = self.told("Worst heartbeat delay: ")?.into_iter();
        if let Some(worst) = delays.reduce(f64::max) {
            figures.push(section, "worst heartbeat delay ms", 0, worst);
        }
        Ok(())
    }

    /// The numbers behind these words in the members' `cluster/status`.
    fn told(&self, words: &str) -> Result<Vec<f64>, Error> {
        let mut told = Vec::new();
        for (n, member) in self.members.iter().enumerate() {
            let Some(control) = member.control() else { continue };
            let status = Client::connect(&control)
                .and_then(|mut client| client.call("cluster/status", &json!([self.db])));
            let status = status.map_err(|e| self.explain(n, &e))?;
            told.extend(number_behind(words, status.as_str().unwrap_or_default()));
        }
        Ok(told)
    }

    /// Starts a member again; it listens when this returns.
    pub(super) fn start_again(&mut self, member: usize) -> Result<(), Error> {
        self.bench.start_again(&self.peer, &mut self.members[member])
    }

    /// A failure with the end of a member's log.
    pub(super) fn explain(&self, member: usize, error: &Error) -> Error {
        self.members[member].explain(&format!("{}, member {}", self.peer.name, member + 1), error)
    }

    /// A failure with the ends of all logs.
    pub(crate) fn explain_all(&self, error: &Error) -> Error {
        let one = |error: Error, n| self.explain(n, &error);
        let text = error.to_string();
        (0..self.members.len()).fold(Error::Check(text), one)
    }
}

/// The number that a line has behind these words.
fn number_behind(words: &str, text: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(words))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Addresses that nobody listens on.
fn addresses(count: usize) -> Vec<String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap_or_default();
    let mut addresses = Vec::new();
    while addresses.len() < count {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + own.wrapping_mul(31).wrapping_add(step) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            addresses.push(format!("tcp:127.0.0.1:{port}"));
        }
    }
    addresses
}

/// Makes the file of a member: of the first one of a cluster, or of one that joins it.
fn make_file(
    peer: &Peer,
    schema: &Value,
    file: &Path,
    address: &str,
    first: Option<&str>,
) -> Result<(), Error> {
    let dir = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let tool = Programs::beside(peer, &dir)?.tool;
    let mut command = Command::new(&tool);
    match first {
        Some(first) => {
            let db = schema["name"].as_str().unwrap_or_default();
            command.arg("join-cluster").arg(file).args([db, address, first])
        }
        None => {
            let path = dir.join("schema");
            std::fs::write(&path, schema.to_string())
                .map_err(|e| Error::io("writing", &path, e))?;
            command.arg("create-cluster").arg(file).arg(path).arg(address)
        }
    };
    let made = command.output().map_err(|e| Error::io("starting", &tool, e))?;
    if !made.status.success() {
        fail!("{}: {}", tool.display(), String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_its_numbers() {
        let text = "Status: cluster member\nTerm: 17\nWorst heartbeat delay: 3 ms\n";
        assert_eq!(number_behind("Term: ", text), Some(17.0));
        assert_eq!(number_behind("Worst heartbeat delay: ", text), Some(3.0));
        assert_eq!(number_behind("Worst fdatasync: ", text), None);
    }

    #[test]
    fn addresses_are_of_ports_of_their_own() {
        let all: std::collections::BTreeSet<_> =
            addresses(5).into_iter().chain(addresses(5)).collect();
        assert_eq!(all.len(), 10);
    }
}
