//! Clients that write through members of a cluster until they are told to stop, and know what they
//! have been told of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::client::{Client, Trouble};

use super::Group;
use crate::support::eventually;

/// A client that has no answer for so long connects anew.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clients at each member.
const CLIENTS: usize = 3;

/// Between two rows of a client.
const PAUSE: Duration = Duration::from_millis(3);

/// Between two rows of all clients together while packaged servers do the work: with more rows a slow machine leaves
/// those servers no processor for each other, and a leader of theirs sends a member away again and again that is 500
/// messages behind.
const PAUSE_PACKAGED: Duration = Duration::from_millis(10);

/// What a client knows of its rows.
#[derive(Debug, Default)]
struct Written {
    acknowledged: Vec<String>,
    /// The connection ended before the answer came.
    unknown: Vec<String>,
    /// The longest time between two answers.
    longest: Duration,
}

/// Clients at work, some at each member.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    /// Packaged servers do the work.
    is_packaged: Arc<AtomicBool>,
    counts: Vec<Arc<AtomicU64>>,
    writers: Vec<JoinHandle<Written>>,
}

impl Load {
    pub(super) fn start(sockets: &[PathBuf], db: &str) -> Self {
        let [is_over, is_packaged] = [false; 2].map(|is| Arc::new(AtomicBool::new(is)));
        let counts: Vec<_> = sockets.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        let clients = CLIENTS * sockets.len();
        let pause_packaged = PAUSE_PACKAGED * u32::try_from(clients).expect("not many");
        let start = |number: usize| {
            let at = number % sockets.len();
            let (socket, db) = (sockets[at].clone(), db.to_owned());
            let flags = [&is_over, &is_packaged].map(Arc::clone);
            let count = Arc::clone(&counts[at]);
            std::thread::spawn(move || write(&socket, &db, number, &flags, &count, pause_packaged))
        };
        let mut first = Client::connect(&sockets[0]).expect("the member listens");
        let counter = json!({"op": "insert", "table": "T", "row": {"name": COUNTER}});
        first.transact(db, &[counter]).expect("the row that counts");
        // Each member has it before anybody adds to it.
        eventually("the row that counts is everywhere", || {
            sockets.iter().all(|socket| names(socket, db).is_ok_and(|names| !names.is_empty()))
        });
        let writers = (0..clients).map(start).collect();
        Self { is_over, is_packaged, counts, writers }
    }

    /// Packaged servers do the work from now on, or no longer: those may run a transaction twice when
    /// their leader changes.
    pub(crate) fn led_by_packaged(&self, is_so: bool) {
        self.is_packaged.store(is_so, Ordering::Relaxed);
    }

    /// Waits until so many more rows have been acknowledged to the clients of each of these members.
    pub(crate) fn go_on(&self, rows: u64, members: &[usize]) {
        let count = |at: &usize| self.counts[*at].load(Ordering::Relaxed);
        let before: Vec<u64> = members.iter().map(count).collect();
        eventually("writes go on through each member", || {
            members.iter().zip(&before).all(|(at, before)| count(at) >= before + rows)
        });
    }

    /// Ends the load where something else changes the clients' rows as well.
    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.writers.into_iter().for_each(|writer| drop(writer.join().expect("a writer")));
    }

    /// Ends the load. Each member then has every row that was acknowledged once, and no row twice;
    /// what no answer came to may be there or not. The longest time that a client of each waited.
    pub(crate) fn check(self, group: &Group) -> Vec<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        let written = self.writers.into_iter().map(|writer| writer.join().expect("a writer"));
        let written: Vec<Written> = written.collect();
        let count = group.names(0).len();
        eventually("all members have the same rows", || {
            let names = |at: usize| names(&group.socket(at), &group.db).unwrap_or_default();
            let first = names(0);
            first.len() >= count && group.all().into_iter().all(|at| names(at) == first)
        });
        let rows = group.names(0);
        let is_twice = |pair: &&[String]| pair[0] == pair[1] && !pair[0].starts_with(PACKAGED);
        let twice: Vec<_> = rows.windows(2).filter(is_twice).collect();
        assert!(twice.is_empty(), "rows that are there twice: {twice:?}");
        for Written { acknowledged, .. } in &written {
            assert!(!acknowledged.is_empty(), "there was no load");
            let is_lost = |name: &&String| rows.binary_search(name).is_err();
            let lost: Vec<_> = acknowledged.iter().filter(is_lost).collect();
            assert!(lost.is_empty(), "rows that were acknowledged and are not there: {lost:?}");
        }
        for at in group.all() {
            let (rows, counted) = rows_and_counter(group, at);
            assert_eq!(counted, rows, "rows and how often they were counted, member {at}");
        }
        let longest = |at: usize| {
            let of_member = written.iter().skip(at).step_by(group.all().len());
            of_member.map(|written| written.longest).max().unwrap_or_default()
        };
        group.all().into_iter().map(longest).collect()
    }
}

fn write(
    socket: &Path,
    db: &str,
    number: usize,
    [is_over, is_packaged]: &[Arc<AtomicBool>; 2],
    answers: &AtomicU64,
    pause_packaged: Duration,
) -> Written {
    let mut written = Written::default();
    let (mut client, mut last): (Option<Client>, Instant) = (None, Instant::now());
    for row in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let is_packaged = is_packaged.load(Ordering::Relaxed);
        sleep(if is_packaged { pause_packaged } else { PAUSE });
        if client.is_none() {
            client = Client::connect(socket).ok();
            client.iter_mut().for_each(|client| client.set_patience(PATIENCE).expect("a socket"));
        }
        let Some(connected) = &mut client else { continue };
        let led_by = if is_packaged { PACKAGED } else { "weir" };
        let name = format!("{led_by}{number}-{row}");
        match count(connected, db, &name) {
            Ok(()) => {
                written.acknowledged.push(name);
                written.longest = written.longest.max(last.elapsed());
                last = Instant::now();
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                written.unknown.push(name);
                client = None;
            }
        }
    }
    written
}

/// What names of rows begin with that packaged servers are to write.
const PACKAGED: &str = "packaged";

/// The row that counts the others.
const COUNTER: &str = "counter";

/// How many rows there are, and what the row says that counts them: read together, for what no answer
/// came to may still be under way.
fn rows_and_counter(group: &Group, at: usize) -> (usize, usize) {
    let select = |function: &str| {
        json!({"op": "select", "table": "T", "where": [["name", function, COUNTER]],
            "columns": ["_uuid", "n"]})
    };
    let asked = [select("!="), select("==")];
    let result = group.client(at).transact(&group.db, &asked).expect("a reply");
    let rows = result[0]["rows"].as_array().map_or(0, Vec::len);
    let counted = result[1]["rows"][0]["n"].as_u64().expect("the row that counts is there");
    (rows, usize::try_from(counted).expect("not many"))
}

/// Inserts a row that is counted.
fn count(client: &mut Client, db: &str, name: &str) -> Result<(), Trouble> {
    let row = json!({"op": "insert", "table": "T", "row": {"name": name}});
    let one_more = json!({"op": "mutate", "table": "T", "where": [["name", "==", COUNTER]],
        "mutations": [["n", "+=", 1]]});
    let result = client.transact(db, &[row, one_more])?;
    match result.as_array().map(Vec::as_slice) {
        Some([row, counter]) if row["uuid"].is_array() && counter["count"] == 1 => Ok(()),
        _ => Err(Trouble::Refused(result.to_string())),
    }
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
    // With their ids, for equal rows are told once.
    let select = json!({"op": "select", "table": "T", "where": [], "columns": ["_uuid", "name"]});
    let result = Client::connect(socket)?.transact(db, &[select])?;
    let rows = result[0]["rows"].as_array().cloned().unwrap_or_default();
    let name = |row: &serde_json::Value| row["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<String> = rows.iter().map(name).collect();
    names.sort();
    Ok(names)
}
