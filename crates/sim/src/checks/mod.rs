//! What must be true of what clients were told and of what servers wrote: a checker a file. Whatever
//! is wrong ends the run, with the name of the checker.

mod deleted;
mod durable;
mod entries;
mod leaders;
mod linear;
mod liveness;
pub(crate) mod locks;
mod once;
pub(crate) mod order;
mod reads;
mod replicas;
mod resume;
mod rings;
pub(crate) mod served;
pub(crate) mod states;

use serde_json::Value;

use crate::pipelines::is_uncounted;
use crate::world::{Counts, World};

pub(crate) use deleted::Items;
pub(crate) use linear::Kind;
pub(crate) use liveness::{Liveness, Looks};
pub(crate) use reads::{Known, Process};
pub(crate) use replicas::{Replica, same};
pub(crate) use resume::Resume;
pub(crate) use rings::Rings;

/// The row that counts the others.
pub(crate) const COUNTER: &str = "counter";

/// Rows that clients swap the numbers of.
pub(crate) const REGISTERS: usize = 3;

/// What a checker has found, if anything is wrong.
pub(crate) type Verdict = Result<(), String>;

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) n: u64,
}

/// The name of a register.
pub(crate) fn register(number: usize) -> String {
    format!("register {number}")
}

/// Ends the run if a checker has found something.
pub(crate) fn must(checker: &str, verdict: Verdict) {
    if let Err(why) = verdict {
        panic!("{checker}: {why}");
    }
}

/// All checkers.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) counts: Counts,
    once: once::Once,
    durable: durable::Durable,
    reads: reads::Reads,
    pub(crate) registers: [linear::History; REGISTERS],
    leaders: leaders::Leaders,
    /// Who was elected last, as which process.
    leader: Option<Process>,
    entries: entries::Entries,
    pub(crate) resume: Resume,
    pub(crate) liveness: Liveness,
    pub(crate) order: order::Order,
    pub(crate) guarded: locks::Guarded,
    pub(crate) served: served::Served,
    pub(crate) deleted: deleted::Deleted,
    states: states::States,
}

impl Checks {
    /// A process has told a client that a row is committed, with its id if that is known, which had been
    /// asked for at some time.
    pub(crate) fn acknowledged(
        &mut self,
        process: Process,
        (name, id): (&str, Option<&str>),
        asked_us: u64,
    ) {
        self.counts.acknowledged += 1;
        must("once", self.once.committed(name, id));
        self.durable.acknowledged(name);
        self.reads.told(process, name);
        self.liveness.wrote(asked_us);
    }

    pub(crate) fn refused(&mut self, name: &str) {
        self.counts.refused += 1;
        self.once.refused(name);
    }

    /// Nobody knows what has come of a row.
    pub(crate) fn unknown(&mut self) {
        self.counts.unknown += 1;
    }

    /// What a client may count on that reads from a process now; `of_all` if it has waited for all.
    pub(crate) fn known(&self, process: Process, of_all: bool) -> Known {
        let known = self.reads.known(process, if of_all { self.durable.len() } else { 0 });
        Known { items: self.deleted.known(process, of_all), ..known }
    }

    /// The rows that were told last, by a process and by anybody, of what a client may count on.
    pub(crate) fn last(&self, process: Process, known: Known) -> Vec<String> {
        let last =
            self.reads.last(process, known).into_iter().chain(self.durable.last(known.of_all));
        last.map(str::to_owned).collect()
    }

    /// A watcher has all rows, and was told of which state they are.
    pub(crate) fn watched(&mut self, (number, n): (usize, usize), id: &str, replica: &Replica) {
        must("replicas", replica.is_whole(true));
        let who = format!("watcher {number} at server {n}");
        must("states", self.states.told(&who, id, replica.hash()));
    }

    /// A process has shown somebody that it has rows.
    pub(crate) fn shows_rows(&mut self, process: Process) {
        self.reads.shows_rows(process);
    }

    /// Whether a process has shown that.
    pub(crate) fn has_rows(&self, process: Process) -> bool {
        self.reads.has_rows(process)
    }

    /// A process has told a client that an item is there, or gone, which had been asked for at some time.
    pub(crate) fn wrote_item(&mut self, asked_us: u64) {
        self.counts.acknowledged += 1;
        self.liveness.wrote(asked_us);
    }

    /// A client has read all items.
    pub(crate) fn read_items(&mut self, process: Process, known: Known, items: &Items) {
        must("deleted", self.deleted.read(process, known.items, items));
        self.note_read(known);
    }

    /// A client has read how many rows there are, and how often some are that it may count on.
    pub(crate) fn counted<'a>(
        &mut self,
        known: Known,
        counted: u64,
        found: impl Iterator<Item = (&'a str, usize)>,
    ) {
        must("reads", reads::Reads::counted(known, counted, found));
        self.note_read(known);
    }

    /// A client has read all rows.
    pub(crate) fn read(&mut self, process: Process, known: Known, rows: &Value) {
        let (rows, counted) = written(rows);
        must("once", self.once.rows(&rows, counted));
        must("reads", self.reads.rows(process, known, &rows));
        must("durable", self.durable.rows(&rows, known.of_all));
        self.note_read(known);
    }

    fn note_read(&mut self, known: Known) {
        self.counts.reads += 1;
        self.counts.synced_reads += u64::from(known.of_all > 0);
    }

    /// A server writes records to its file.
    pub(crate) fn written(&mut self, n: usize, bytes: &[u8]) {
        must("entries", self.entries.written(n, bytes));
    }

    /// A server has this file in place of another one.
    pub(crate) fn replaced(&mut self, n: usize, file: &[u8]) {
        must("entries", self.entries.replaced(n, file));
    }

    /// What comes is of another cluster than what came: it has terms and entries of its own.
    pub(crate) fn new_cluster(&mut self) {
        self.count_places();
        (self.leaders, self.entries, self.leader) = Default::default();
    }

    fn count_places(&mut self) {
        self.counts.terms += self.leaders.len() as u64;
        self.counts.entries += self.entries.len() as u64;
    }

    /// Who was elected last.
    pub(crate) fn leader(&self) -> Option<Process> {
        self.leader
    }

    /// A process has said something in its log.
    pub(crate) fn said(&mut self, (n, life): Process, text: &str) {
        // Rows that are not what they are elsewhere.
        let is_bad = text.contains("cannot apply");
        must("replicas", if is_bad { Err(format!("server {n} says: {text}")) } else { Ok(()) });
        must("leaders", self.leaders.heard(n, text));
        if text.contains(": elected leader by ") {
            self.leader = Some((n, life));
        }
    }

    /// All is over, and a server has these rows.
    fn end(&mut self, rows: &[Row], now_us: u64) {
        for (number, history) in self.registers.iter_mut().enumerate() {
            let name = register(number);
            if let Some(row) = rows.iter().find(|row| row.name == name) {
                history.push(now_us, Some(now_us), Kind::Read(row.n));
            }
            self.counts.swaps += history.len() as u64;
            must("linear", linear::verdict(number, history, &mut self.counts.undecided));
        }
        self.counts.deleted += self.deleted.count();
        self.counts.looks += self.order.looks();
        self.counts.guarded += self.guarded.looks();
        self.count_places();
    }
}

/// Whether two have the same items.
fn same_items(who: &str, expected: &Items, items: &Items) -> Verdict {
    match expected == items {
        true => Ok(()),
        false => Err(format!("{who} has {items:?}, and not {expected:?}")),
    }
}

/// Rows as a client reads them, in the order of their ids.
pub(crate) fn rows_of(rows: &Value) -> Vec<Row> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| Row {
        id: text(&row["_uuid"][1]),
        name: text(&row["name"]),
        n: row["n"].as_u64().unwrap_or_default(),
    };
    let mut rows: Vec<Row> = rows.as_array().into_iter().flatten().map(row).collect();
    rows.sort();
    rows
}

/// The rows that clients wrote once, and how often that was counted.
fn written(rows: &Value) -> (Vec<Row>, u64) {
    let mut rows = rows_of(rows);
    let counted = rows.iter().find(|row| row.name == COUNTER).map_or(0, |row| row.n);
    rows.retain(|row| !is_uncounted(&row.name));
    (rows, counted)
}

/// All is well for so long before an id that every server must know, in microseconds.
const WELL_US: u64 = 8_000_000;

impl World {
    /// All servers have the same rows, with everything in it that was acknowledged, and nothing that
    /// was never to be; watchers have them, too; what registers were can be explained; ids are known
    /// everywhere.
    pub fn check_converged(&mut self) {
        self.is_over = true;
        self.end_those_beyond_reach();
        self.run_for(10_000);
        let servers: Vec<usize> =
            (0..self.nodes.len()).filter(|n| !self.nodes[*n].is_spare).collect();
        let mut all: Option<(Vec<Row>, Items)> = None;
        let known = self.checks.known((usize::MAX, 0), true);
        for n in &servers {
            let rows = self.rows_of(*n);
            self.checks.read((usize::MAX, 0), known, &rows);
            let (rows, items) = (rows_of(&rows), self.items_of(*n));
            self.checks.read_items((usize::MAX, 0), known, &items);
            let (before, items_before) = all.get_or_insert_with(|| (rows.clone(), items.clone()));
            must("replicas", same(&format!("server {n}"), before.iter(), rows.iter()));
            must("replicas", same_items(&format!("server {n}"), items_before, &items));
        }
        let (all, items) = all.unwrap_or_default();
        for client in self.clients.iter().filter(|client| client.watches) {
            let who = format!("watcher {}", client.number);
            let rows = client.replica.rows();
            let verdict = match &client.following {
                Some(following) => same(&who, following.settled(all.iter()), rows),
                None => same(&who, all.iter(), rows),
            };
            must("replicas", verdict);
            must("replicas", same_items(&who, &items, client.replica.items()));
        }
        self.checks.end(&all, self.now_us);
        self.check_ids(&servers);
    }

    fn check_ids(&mut self, servers: &[usize]) {
        let Some(calm_us) = self.calm_us else { return };
        let Some(id) = self.checks.resume.first_since(calm_us + WELL_US).map(str::to_owned) else {
            return;
        };
        for n in servers {
            let is_found = self.knows_id(*n, &id);
            self.checks.counts.ids += 1;
            must("resume", Resume::asked(*n, &id, is_found));
        }
    }
}
