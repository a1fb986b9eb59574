//! Clients that write through members of a cluster until they are told to stop, and know what they
//! have been told of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::client::{Client, Trouble};

use super::Trio;
use crate::support::eventually;

/// A client that has no answer for so long connects anew.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two rows of a client.
const PAUSE: Duration = Duration::from_millis(3);

/// What a client knows of its rows.
#[derive(Debug, Default)]
struct Written {
    acknowledged: Vec<String>,
    /// The connection ended before the answer came.
    unknown: Vec<String>,
    /// The longest time between two answers.
    longest: Duration,
}

/// Clients at work, one at each member.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    counts: Vec<Arc<AtomicU64>>,
    writers: Vec<JoinHandle<Written>>,
}

impl Load {
    pub(super) fn start(sockets: &[PathBuf], db: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let counts: Vec<_> = sockets.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        let start = |(number, socket): (usize, &PathBuf)| {
            let (socket, db, is_over) = (socket.clone(), db.to_owned(), Arc::clone(&is_over));
            let count = Arc::clone(&counts[number]);
            std::thread::spawn(move || write(&socket, &db, number, &is_over, &count))
        };
        let writers = sockets.iter().enumerate().map(start).collect();
        Self { is_over, counts, writers }
    }

    /// Waits until so many more rows have been acknowledged to the clients of each of these members.
    pub(crate) fn go_on(&self, rows: u64, members: &[usize]) {
        let count = |at: &usize| self.counts[*at].load(Ordering::Relaxed);
        let before: Vec<u64> = members.iter().map(count).collect();
        eventually("writes go on through each member", || {
            members.iter().zip(&before).all(|(at, before)| count(at) >= before + rows)
        });
    }

    /// Ends the load. Each member then has every row that was acknowledged once, and no row twice;
    /// what no answer came to may be there or not. The longest time that a client of each waited.
    pub(crate) fn check(self, trio: &Trio) -> Vec<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        let written = self.writers.into_iter().map(|writer| writer.join().expect("a writer"));
        let written: Vec<Written> = written.collect();
        let all = trio.names(super::ALL[0]).len();
        eventually("all members have the same rows", || {
            let rows = super::ALL.map(|at| names(&trio.socket(at), &trio.db).unwrap_or_default());
            rows[0].len() >= all && rows[1] == rows[0] && rows[2] == rows[0]
        });
        let rows = trio.names(super::ALL[0]);
        let twice: Vec<_> = rows.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "rows that are there twice: {twice:?}");
        for Written { acknowledged, .. } in &written {
            assert!(!acknowledged.is_empty(), "there was no load");
            let is_lost = |name: &&String| rows.binary_search(name).is_err();
            let lost: Vec<_> = acknowledged.iter().filter(is_lost).collect();
            assert!(lost.is_empty(), "rows that were acknowledged and are not there: {lost:?}");
        }
        written.into_iter().map(|written| written.longest).collect()
    }
}

fn write(
    socket: &Path,
    db: &str,
    number: usize,
    is_over: &AtomicBool,
    count: &AtomicU64,
) -> Written {
    let mut written = Written::default();
    let (mut client, mut last) = (None, Instant::now());
    for row in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        sleep(PAUSE);
        if client.is_none() {
            client = Client::connect(socket).ok();
            client.iter_mut().for_each(|client| client.set_patience(PATIENCE).expect("a socket"));
        }
        let Some(connected) = &mut client else { continue };
        let name = format!("w{number}-{row}");
        match insert(connected, db, &name) {
            Ok(()) => {
                written.acknowledged.push(name);
                written.longest = written.longest.max(last.elapsed());
                last = Instant::now();
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                written.unknown.push(name);
                client = None;
            }
        }
    }
    written
}

/// Inserts a row.
pub(super) fn insert(client: &mut Client, db: &str, name: &str) -> Result<(), Trouble> {
    let row = json!({"op": "insert", "table": "T", "row": {"name": name}});
    let result = client.transact(db, &[row])?;
    match result.as_array().map(Vec::as_slice) {
        Some([one]) if one["uuid"].is_array() => Ok(()),
        _ => Err(Trouble::Refused(result.to_string())),
    }
}

/// The names of all rows that a member has, in order.
pub(super) fn names(socket: &Path, db: &str) -> Result<Vec<String>, Trouble> {
    let select = json!({"op": "select", "table": "T", "where": [], "columns": ["name"]});
    let result = Client::connect(socket)?.transact(db, &[select])?;
    let rows = result[0]["rows"].as_array().cloned().unwrap_or_default();
    let name = |row: &serde_json::Value| row["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<String> = rows.iter().map(name).collect();
    names.sort();
    Ok(names)
}
