//! What must be true of what clients were told.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::world::{Counts, World};

/// The row that counts the others.
pub(crate) const COUNTER: &str = "counter";

/// What clients were told.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) counts: Counts,
    /// Rows that are committed, in the order in which clients heard of it.
    acknowledged: Vec<String>,
    /// What each process has told clients of that: they find it there.
    by_process: BTreeMap<(usize, u64), Vec<String>>,
    /// Rows that are never to be.
    refused: BTreeSet<String>,
    /// Rows of which nobody knows.
    unknown: BTreeSet<String>,
}

/// What a client may count on when it begins to read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// So many rows that a process has told of.
    of_process: usize,
    /// So many rows that anybody was told of.
    of_all: usize,
}

impl Checks {
    pub(crate) fn acknowledged(&mut self, (node, life): (usize, u64), name: &str) {
        self.counts.acknowledged += 1;
        assert!(!self.refused.contains(name), "{name} was never to be, and is committed");
        self.acknowledged.push(name.to_owned());
        self.by_process.entry((node, life)).or_default().push(name.to_owned());
    }

    pub(crate) fn refused(&mut self, name: &str) {
        self.counts.refused += 1;
        self.refused.insert(name.to_owned());
    }

    pub(crate) fn unknown(&mut self, name: &str) {
        self.counts.unknown += 1;
        self.unknown.insert(name.to_owned());
    }

    /// What a client may count on that reads from a process now; `of_all` if it has waited for all.
    pub(crate) fn known(&self, process: (usize, u64), of_all: bool) -> Known {
        let of_process = self.by_process.get(&process).map_or(0, Vec::len);
        Known { of_process, of_all: if of_all { self.acknowledged.len() } else { 0 } }
    }

    /// A client has read how many rows there are.
    pub(crate) fn counted(&mut self, known: Known, counted: u64) {
        let known_rows = known.of_process.max(known.of_all) as u64;
        assert!(counted >= known_rows, "{counted} rows, and {known_rows} are known");
        self.counts.reads += 1;
        self.counts.synced_reads += u64::from(known.of_all > 0);
    }

    /// A client has read all rows.
    pub(crate) fn read(&mut self, process: (usize, u64), known: Known, rows: &Value) {
        let rows = rows.as_array().expect("rows");
        let mut names: HashMap<&str, u32> = HashMap::with_capacity(rows.len());
        let mut counted = None;
        for row in rows {
            let name = row["name"].as_str().expect("a name");
            *names.entry(name).or_insert(0) += 1;
            if name == COUNTER {
                counted = row["n"].as_u64();
            }
        }
        for (name, count) in &names {
            assert_eq!(*count, 1, "{name} is there more than once");
            assert!(!self.refused.contains(*name), "{name} was never to be, and is there");
        }
        let rows = names.len().saturating_sub(1) as u64;
        if counted != Some(rows) {
            let is_missing = |name: &&String| !names.contains_key(name.as_str());
            let missing: Vec<&String> = self.acknowledged.iter().filter(is_missing).collect();
            panic!("{rows} rows, counted {counted:?} times; committed, and not there: {missing:?}");
        }
        let told = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
        for name in &told[..known.of_process] {
            assert!(
                names.contains_key(name.as_str()),
                "{name} was answered here, and is not there"
            );
        }
        for name in &self.acknowledged[..known.of_all] {
            assert!(
                names.contains_key(name.as_str()),
                "{name} was committed before, and is not there"
            );
        }
        self.counts.reads += 1;
        self.counts.synced_reads += u64::from(known.of_all > 0);
    }
}

impl World {
    /// All servers have the same rows, with everything in it that was acknowledged, and nothing that
    /// was never to be; watchers have them, too.
    pub fn check_converged(&mut self) {
        self.is_over = true;
        self.run_for(10_000);
        let mut all: Option<Vec<(String, String, u64)>> = None;
        let members = (0..self.nodes.len()).filter(|n| !self.nodes[*n].is_spare);
        for n in members.collect::<Vec<_>>() {
            let rows = self.rows_of(n);
            self.checks.read(
                (usize::MAX, 0),
                Known { of_process: 0, of_all: self.checks.acknowledged.len() },
                &rows,
            );
            let mut rows: Vec<(String, String, u64)> = rows
                .as_array()
                .expect("rows")
                .iter()
                .map(|row| {
                    let text = |value: &Value| value.as_str().expect("text").to_owned();
                    (
                        text(&row["_uuid"][1]),
                        text(&row["name"]),
                        row["n"].as_u64().expect("a number"),
                    )
                })
                .collect();
            rows.sort();
            let before = all.get_or_insert_with(|| rows.clone());
            assert_eq!(*before, rows, "server {n} has other rows");
        }
        let all = all.unwrap_or_default();
        for client in self.clients.iter().filter(|client| client.watches) {
            let replica: Vec<(String, String, u64)> = client
                .replica
                .iter()
                .map(|(uuid, (name, n))| (uuid.clone(), name.clone(), *n))
                .collect();
            assert_eq!(replica, all, "watcher {} has other rows", client.number);
        }
    }
}
