//! Where a line of `unfair` happens: a server, a table of the line's own, and the victims, clients
//! that commit, read or send `echo` at a steady rate while somebody misbehaves.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{DB, Line, VICTIM};
use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::procfs;
use crate::pulse::{Exchange, Pulse};
use crate::report::Figures;
use crate::running::Running;
use crate::stats::Latencies;

/// Rows inserted in one transaction while filling a table.
const FILL: usize = 1_000;
/// How long the victims go on where the misbehaviour is over at once: what it has left behind
/// counts.
const SETTLE: Duration = Duration::from_millis(300);
/// How long anybody waits for an answer before it counts as not coming.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Who suffers, and is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Echo,
    Commit,
    Read,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Commit => "commit",
            Self::Read => "read",
        }
    }

    fn exchange(self) -> Exchange {
        match self {
            Self::Echo => echo,
            Self::Commit => commit,
            Self::Read => read,
        }
    }

    pub(super) fn begin(self, target: &Target) -> Result<Pulse, Error> {
        Pulse::begin(target, self.exchange())
    }
}

/// The victims of most lines.
pub(super) const TWO: &[Victim] = &[Victim::Echo, Victim::Commit];
/// The victims of lines with long transactions.
pub(super) const THREE: &[Victim] = &[Victim::Echo, Victim::Commit, Victim::Read];

/// How large and how long the lines are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// What every number is divided by.
    pub(super) divisor: usize,
    /// How long a line goes on that ends by time.
    pub(super) limit: Duration,
    /// Bytes that a line of sums sends.
    pub(super) bytes: usize,
}

/// The setting of one line.
pub(super) struct Scene<'a> {
    pub(super) target: &'a Target,
    /// The server, where the line has it to itself; in a soak it has not.
    pub(super) alone: Option<&'a Running>,
    pub(super) pid: Option<u32>,
    /// Starts another server on a copy of a file, where that can be.
    pub(super) fresh: Option<Fresh<'a>>,
    name: &'static str,
    pub(super) table: &'static str,
    pub(super) size: Size,
    pub(super) figures: Figures,
    is_filled: bool,
}

/// Starts a server of the same kind on a copy of the database file.
pub(super) type Fresh<'a> = &'a dyn Fn(&Path) -> Result<Running, Error>;

impl<'a> Scene<'a> {
    pub(super) fn new(line: &Line, size: Size, running: &'a Running) -> Self {
        let mut scene = Self::among_others(line, size, &running.target);
        (scene.alone, scene.pid) = (Some(running), running.pid);
        scene
    }

    /// One of many lines at the same server, where nobody is measured.
    pub(super) fn among_others(line: &Line, size: Size, target: &'a Target) -> Self {
        Self {
            target,
            alone: None,
            pid: None,
            fresh: None,
            name: line.name,
            table: line.table,
            size,
            figures: Figures::default(),
            is_filled: false,
        }
    }

    /// So many, or fewer where the run is a short one.
    pub(super) fn count(&self, full: usize) -> usize {
        (full / self.size.divisor).max(2)
    }

    pub(super) fn push(&mut self, name: &str, digits: usize, value: f64) {
        self.figures.push(self.name, name, digits, value);
    }

    /// Gives the table so many rows, once.
    pub(super) fn fill(&mut self, rows: usize) -> Result<(), Error> {
        if !self.is_filled {
            let mut client = Client::connect(self.target)?;
            for begin in (0..rows).step_by(FILL) {
                let rows = begin..rows.min(begin + FILL);
                client.transact(&insert(self.table, rows))?;
            }
            self.is_filled = true;
        }
        Ok(())
    }

    /// Has `work` done while the victims wait; figures of both are the line's.
    pub(super) fn beside(
        &mut self,
        victims: &[Victim],
        work: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(running) = self.alone else { return work(self) };
        running.reset_peak();
        let cpu = running.cpu_nanos()?;
        let start = Instant::now();
        let pulses: Result<Vec<_>, Error> =
            victims.iter().map(|victim| victim.begin(self.target)).collect();
        let worked = work(self);
        std::thread::sleep(SETTLE);
        let heard: Result<Vec<_>, Error> =
            pulses?.into_iter().map(|pulse| pulse.stop_within(PATIENCE)).collect();
        let seconds = start.elapsed().as_secs_f64();
        worked?;
        for (victim, latencies) in victims.iter().zip(heard?) {
            waited(*victim, &latencies, self.name, &mut self.figures);
        }
        if let Some((before, after)) = cpu.zip(running.cpu_nanos()?) {
            let busy = (after - before) as f64 / 1e9;
            self.push("server CPU s", 2, busy);
            self.push("server CPU %", 1, 100.0 * busy / seconds);
        }
        if let Some(memory) = running.memory()? {
            self.push("RSS MB", 1, memory.rss as f64 / 1e6);
            self.push("peak RSS MB", 1, memory.peak as f64 / 1e6);
        }
        Ok(())
    }

    /// Resident memory of the server in bytes, where it is the line's own.
    pub(super) fn rss(&self) -> Result<Option<f64>, Error> {
        Ok(self.pid.map(procfs::memory).transpose()?.map(|memory| memory.rss as f64))
    }
}

/// What a victim has waited.
pub(super) fn waited(victim: Victim, latencies: &Latencies, section: &str, figures: &mut Figures) {
    for (what, at) in [("p50", 50.0), ("p99", 99.0), ("longest wait", 100.0)] {
        let name = format!("{} {what} ms", victim.name());
        figures.push(section, &name, 2, latencies.percentile(at) / 1e3);
    }
}

/// The unique name of row `n`.
pub(super) fn name(n: usize) -> String {
    format!("row-{n:07}")
}

/// The owner of row `n`, a column in no index.
pub(super) fn owner(n: usize) -> String {
    format!("own-{n:07}")
}

/// A transaction that inserts rows.
pub(super) fn insert(table: &str, rows: std::ops::Range<usize>) -> Value {
    let row = |n: usize| {
        json!({"op": "insert", "table": table, "row": {
            "name": name(n),
            "owner": owner(n),
            "number": n,
            "value": format!("the value that row {n} was inserted with, before anybody changed it"),
        }})
    };
    std::iter::once(json!(DB)).chain(rows.map(row)).collect()
}

/// A request, as bytes, with an id that no other has: two at work with one id would be an error.
pub(super) fn request(method: &str, params: &Value) -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    json!({"id": id, "method": method, "params": params}).to_string().into_bytes()
}

/// Makes the row that victims change and read.
pub(super) fn prepare(target: &Target) -> Result<(), Error> {
    let row = json!({"name": "victim", "value": "victim 0000000"});
    let insert = json!({"op": "insert", "table": VICTIM, "row": row});
    Client::connect(target)?.transact(&json!([DB, insert])).map(drop)
}

fn echo(client: &mut Client, n: u32) -> Result<(), Error> {
    let request = format!(r#"{{"id":{n},"method":"echo","params":[]}}"#);
    client.exchange(request.as_bytes()).map(drop)
}

fn commit(client: &mut Client, n: u32) -> Result<(), Error> {
    let operation = format!(r#""op":"update","row":{{"value":"victim {:07}"}}"#, n % 10_000_000);
    transact(client, n, &operation, br#"[{"count":1}]"#)
}

fn read(client: &mut Client, n: u32) -> Result<(), Error> {
    transact(client, n, r#""op":"select","columns":["value"]"#, br#""value":"victim "#)
}

fn transact(client: &mut Client, n: u32, operation: &str, expected: &[u8]) -> Result<(), Error> {
    let request = format!(
        r#"{{"id":{n},"method":"transact","params":["{DB}",{{{operation},"table":"{VICTIM}","where":[["name","==","victim"]]}}]}}"#
    );
    let reply = client.exchange(request.as_bytes())?;
    if memchr::memmem::find(reply, expected).is_none() {
        fail!("a victim's request was answered {}", String::from_utf8_lossy(reply));
    }
    Ok(())
}
