//! A thousand clients, each of which has a condition of thousands of clauses and swaps one of them
//! every second, as `ovn-controller` does on every node of a cluster.
//!
//! The same clients send messages of the same length at the same pace that change nothing: the
//! condition that they have, and a method that no server knows. The one says what a server pays for
//! reading and checking a condition, the other what for reading JSON alone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DB;
use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::crowd::Crowd;
use crate::error::fail;
use crate::procfs;
use crate::report::Figures;
use crate::rounds::Bench;
use crate::running::Running;
use crate::stats::Latencies;

pub(super) const CLIENTS: usize = 1_000;
const CLAUSES: usize = 2_000;
const ROWS: usize = 30_000;
const SECONDS: f64 = 60.0;
/// How often a client sends.
const PERIOD: Duration = Duration::from_secs(1);
/// What the messages that change nothing take of the time of those that do.
const SHARE: u32 = 4;
/// How long it is tried whether the server keeps up.
const TRIAL: Duration = Duration::from_secs(3);
/// Of the messages that were due so many must be answered.
const KEPT_UP: f64 = 0.9;
const PATIENCE: Duration = Duration::from_secs(120);
/// Clients that begin at the same time.
const BEGIN: usize = 20;
/// How long all of them may take to begin; then it is as many as there are.
const BEGIN_MAX: Duration = Duration::from_secs(90);

/// What there is.
pub(super) struct Config {
    clients: usize,
    clauses: usize,
    time: Duration,
    trial: Duration,
}

impl Config {
    pub(super) fn from_args(args: &mut Args) -> Result<Self, Error> {
        let seconds = args.value("--swap-seconds")?.unwrap_or(SECONDS);
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|e| Error::Usage(format!("--swap-seconds {seconds}: {e}")))?;
        let clients = args.value("--swappers")?.unwrap_or(CLIENTS);
        let clauses = args.value("--clauses")?.unwrap_or(CLAUSES).clamp(2, ROWS / 2);
        Ok(Self { clients, clauses, time, trial: TRIAL.min(time) })
    }

    pub(super) fn is_standard(&self) -> bool {
        self.clients >= CLIENTS && self.clauses >= CLAUSES && self.time.as_secs_f64() >= SECONDS
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.clients > 0
    }

    pub(super) fn section(&self) -> String {
        format!("{} clients swap one of {} clauses a second", self.clients, self.clauses)
    }

    fn rows(&self) -> usize {
        // A short run has no more rows than it needs.
        ROWS.min(self.clauses * 15)
    }
}

/// What the clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// One clause goes, another one comes.
    Swapped,
    /// The condition that is there already.
    Same,
    /// A request of as many bytes, by a method that no server has.
    Unknown,
}

/// A client's condition, as the text of the message that sets it.
struct Condition {
    text: Vec<u8>,
    /// Where the first clause's row is, and how far it is to that of the next.
    first: usize,
    step: usize,
    /// The row that was last swapped in, and the clause that is swapped next.
    newest: usize,
    next: usize,
    rows: usize,
    clauses: usize,
}

const METHOD: &[u8] = b"monitor_cond_change";
const UNKNOWN: &[u8] = b"monitor_cond_chang_";

fn row(n: usize) -> String {
    format!("row-{n:06}")
}

impl Condition {
    fn new(n: usize, config: &Config) -> Self {
        let (rows, clauses) = (config.rows(), config.clauses);
        let begin = n * 31 % rows;
        let names = (begin..begin + clauses).map(|n| row(n % rows));
        let clause: Value = names.map(|name| json!(["name", "==", name])).collect();
        let params = json!(["m", "m", {"Item": [{"where": clause}]}]);
        let text = json!({"id": n, "method": "monitor_cond_change", "params": params}).to_string();
        let at = |name: &str| memchr::memmem::find(text.as_bytes(), name.as_bytes());
        let first = at(&row(begin)).expect("the first clause is in the text");
        // All clauses are equally long.
        let step = json!(["name", "==", row(0)]).to_string().len() + 1;
        let newest = begin + clauses - 1;
        Self { text: text.into_bytes(), first, step, newest, next: 0, rows, clauses }
    }

    /// Puts the row after the newest in the place of the oldest.
    fn swap(&mut self) {
        self.newest = (self.newest + 1) % self.rows;
        let at = self.first + self.next * self.step;
        let name = row(self.newest);
        self.text[at..at + name.len()].copy_from_slice(name.as_bytes());
        self.next = (self.next + 1) % self.clauses;
    }

    fn set_method(&mut self, method: &[u8]) {
        let old = if method == METHOD { UNKNOWN } else { METHOD };
        if let Some(at) = memchr::memmem::find(&self.text, old) {
            self.text[at..at + method.len()].copy_from_slice(method);
        }
    }

    /// The request that begins the monitor.
    fn begin(&self) -> Result<Vec<u8>, Error> {
        let mut message: Value = serde_json::from_slice(&self.text)
            .map_err(|e| Error::Check(format!("a condition is not JSON: {e}")))?;
        let mut requests = message["params"][2].take();
        requests["Item"][0]["columns"] = json!(["name", "value"]);
        message["method"] = "monitor_cond".into();
        message["params"] = json!([DB, "m", requests]);
        Ok(message.to_string().into_bytes())
    }
}

/// What a phase has shown.
struct Phase {
    latencies: Latencies,
    /// Messages that should have been sent, and those that were answered.
    due: u64,
    answered: u64,
    seconds: f64,
    cpu: Option<u64>,
    driver: u64,
}

/// Measures a server that is up.
pub(super) fn measure(
    config: &Config,
    bench: &Bench,
    running: &Running,
    figures: &mut Figures,
) -> Result<(), Error> {
    fill(running, config.rows())?;
    bench.progress.phase("conditions begin", config.clients);
    let mut clients = Clients::begin(config, bench, running)?;
    let section = config.section();
    bench.progress.wait(&section);
    let trial = clients.pace(Message::Swapped, config.trial, running)?;
    let share = trial.answered as f64 / trial.due as f64;
    if share < KEPT_UP {
        let fewer = (clients.conditions.len() as f64 * share * 0.75) as usize;
        clients.reduce(fewer.max(1))?;
    }
    let kept = clients.conditions.len();
    figures.push(&section, "clients that it keeps up with", 0, kept as f64);
    let swapped = clients.pace(Message::Swapped, config.time, running)?;
    let same = clients.pace(Message::Same, config.time / SHARE, running)?;
    let unknown = clients.pace(Message::Unknown, config.time / SHARE, running)?;
    let mut push = |name: &str, digits, value| figures.push(&section, name, digits, value);
    push("answers a second", 0, swapped.answered as f64 / swapped.seconds);
    push("answer p50 ms", 2, swapped.latencies.percentile(50.0) / 1e3);
    push("answer p99 ms", 2, swapped.latencies.percentile(99.0) / 1e3);
    push("longest wait ms", 1, swapped.latencies.percentile(100.0) / 1e3);
    let phases = [
        ("server CPU %", &swapped),
        ("server CPU %, the condition that is there", &same),
        ("server CPU %, an unknown method", &unknown),
    ];
    for (name, phase) in phases {
        if let Some(busy) = phase.busy() {
            push(name, 1, busy);
        }
    }
    if let Some((swapped, unknown)) = swapped.busy().zip(unknown.busy()) {
        push("server CPU % beside reading the messages", 1, swapped - unknown);
    }
    if let Some((swapped, unknown)) = swapped.cost().zip(unknown.cost()) {
        push("server CPU us/swap", 1, swapped);
        push("server CPU us/swap beside reading the message", 1, swapped - unknown);
    }
    push("driver busy %", 1, swapped.driver as f64 / 1e7 / swapped.seconds);
    if let Some(memory) = running.memory()? {
        push("RSS MB", 1, memory.rss as f64 / 1e6);
    }
    bench.progress.note(&format!("  {section}: {kept} kept up with"));
    Ok(())
}

impl Phase {
    /// Percent of one core.
    fn busy(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu as f64 / 1e7 / self.seconds)
    }

    /// Microseconds a message.
    fn cost(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu as f64 / 1e3 / self.answered.max(1) as f64)
    }
}

fn fill(running: &Running, rows: usize) -> Result<(), Error> {
    let mut client = Client::connect(&running.target)?;
    for begin in (0..rows).step_by(super::BATCH) {
        let names = (begin..rows.min(begin + super::BATCH)).map(row);
        let insert = |name| {
            let row = json!({"name": name, "value": "a value"});
            json!({"op": "insert", "table": "Item", "row": row})
        };
        client.transact(&std::iter::once(json!(DB)).chain(names.map(insert)).collect())?;
    }
    Ok(())
}

/// All clients.
struct Clients {
    crowd: Crowd,
    conditions: Vec<Condition>,
    /// Answers that each client has had before the messages that are counted, and those it waits
    /// for.
    asked: Vec<u64>,
}

impl Clients {
    fn begin(config: &Config, bench: &Bench, running: &Running) -> Result<Self, Error> {
        let mut crowd = Crowd::new()?;
        let mut conditions = Vec::with_capacity(config.clients);
        let start = Instant::now();
        for n in 0..config.clients {
            let condition = Condition::new(n, config);
            let token = crowd.join(&running.target)?;
            crowd.send(token, &condition.begin()?)?;
            conditions.push(condition);
            if (n + 1) % BEGIN == 0 || n + 1 == config.clients {
                let there = crowd.wait_for(1, PATIENCE)?;
                if !there || crowd.told().refused > 0 || crowd.told().closed > 0 {
                    fail!("client {n} could not begin its condition");
                }
                bench.progress.at(n);
                if start.elapsed() > BEGIN_MAX {
                    break;
                }
            }
        }
        let asked = vec![1; conditions.len()];
        Ok(Self { crowd, conditions, asked })
    }

    /// Has all but so many leave, once everything is answered.
    fn reduce(&mut self, clients: usize) -> Result<(), Error> {
        for token in clients..self.conditions.len() {
            self.crowd.leave(token);
        }
        self.conditions.truncate(clients);
        self.asked.truncate(clients);
        self.answered(PATIENCE)
    }

    /// Waits until nobody waits.
    fn answered(&mut self, patience: Duration) -> Result<(), Error> {
        let asked = &self.asked;
        self.crowd.until(patience, &mut |crowd| {
            Ok(asked.iter().enumerate().all(|(n, asked)| crowd.answers(n) >= *asked))
        })?;
        Ok(())
    }

    /// Everybody sends once in every period, evenly spread. A client that still waits for its
    /// answer when it is due again does not send; the latency goes on from when it was due.
    fn pace(
        &mut self,
        message: Message,
        time: Duration,
        running: &Running,
    ) -> Result<Phase, Error> {
        let method = if message == Message::Unknown { UNKNOWN } else { METHOD };
        self.conditions.iter_mut().for_each(|condition| condition.set_method(method));
        let clients = self.conditions.len();
        let (cpu, driver) = (running.cpu_nanos()?, procfs::cpu_nanos(std::process::id())?);
        let (mut latencies, mut due, start) = (Latencies::default(), 0_u64, Instant::now());
        let mut waiting = vec![None; clients];
        let before: u64 = (0..clients).map(|n| self.crowd.answers(n)).sum();
        while start.elapsed() < time {
            let now = Instant::now();
            loop {
                let at = start + PERIOD.mul_f64(due as f64 / clients as f64);
                if at > now {
                    self.crowd.turn((at - now).min(Duration::from_millis(1)))?;
                    break;
                }
                let n = due as usize % clients;
                due += 1;
                if !self.collect(n, &mut waiting, &mut latencies)? {
                    continue;
                }
                if message == Message::Swapped {
                    self.conditions[n].swap();
                }
                waiting[n] = Some(at);
                self.asked[n] += 1;
                self.crowd.send(n, &self.conditions[n].text)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let spent = running.cpu_nanos()?.zip(cpu).map(|(after, before)| after - before);
        let driver = procfs::cpu_nanos(std::process::id())? - driver;
        let after: u64 = (0..clients).map(|n| self.crowd.answers(n)).sum();
        // What is under way is not measured, nor is it in the way of the next phase; it may take
        // long where the server does not keep up.
        self.answered(PATIENCE)?;
        for n in 0..clients {
            self.collect(n, &mut waiting, &mut latencies)?;
        }
        Ok(Phase { latencies, due, answered: after - before, seconds, cpu: spent, driver })
    }

    /// Whether a client has its answer and can send again; what it waited is counted.
    fn collect(
        &self,
        n: usize,
        waiting: &mut [Option<Instant>],
        latencies: &mut Latencies,
    ) -> Result<bool, Error> {
        if !self.crowd.is_open(n) {
            fail!("the server closed the connection of client {n}");
        }
        if self.crowd.answers(n) < self.asked[n] {
            return Ok(false);
        }
        if let Some((due, at)) = waiting[n].take().zip(self.crowd.answered_at(n)) {
            latencies.push(at.saturating_duration_since(due));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_changes_one_clause_and_the_message_stays_as_long() {
        let config = Config {
            clients: 1,
            clauses: 3,
            time: Duration::from_secs(1),
            trial: Duration::from_secs(1),
        };
        let mut condition = Condition::new(0, &config);
        let rows = |condition: &Condition| {
            let message: Value = serde_json::from_slice(&condition.text).unwrap();
            let clauses = message["params"][2]["Item"][0]["where"].as_array().unwrap().clone();
            clauses.iter().map(|clause| clause[2].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let length = condition.text.len();
        assert_eq!(rows(&condition), ["row-000000", "row-000001", "row-000002"]);
        condition.swap();
        assert_eq!(rows(&condition), ["row-000003", "row-000001", "row-000002"]);
        (0..3).for_each(|_| condition.swap());
        assert_eq!(rows(&condition), ["row-000006", "row-000004", "row-000005"]);
        condition.set_method(UNKNOWN);
        assert!(memchr::memmem::find(&condition.text, METHOD).is_none());
        condition.set_method(METHOD);
        assert!(memchr::memmem::find(&condition.text, METHOD).is_some());
        assert_eq!(condition.text.len(), length);
        let begin: Value = serde_json::from_slice(&condition.begin().unwrap()).unwrap();
        assert_eq!(begin["params"][2]["Item"][0]["columns"], json!(["name", "value"]));
    }
}
