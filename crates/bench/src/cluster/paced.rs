//! Clients that write at a steady pace through all members, and what they waited for it.
//!
//! A client whose connection ends goes on at the next member, as one does that has been given all
//! of them; what it was not answered is not asked again. Every write is a row of its own, so that
//! in the end each can be looked for at every member. One thread does it all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::Target;
use crate::crowd::{Crowd, Kind};
use crate::error::fail;
use crate::ports::DB;
use crate::report::Curve;
use crate::stats::Latencies;

/// Clients at each member in the beginning.
const CLIENTS: usize = 4;
/// A client writes so often, if it has been answered.
const PACE: Duration = Duration::from_millis(20);
/// A client that has no answer for so many seconds connects anew.
const GIVES_UP: f64 = 10.0;
/// How long one turn waits.
const TURN: Duration = Duration::from_millis(2);
/// Seconds that a point of the plot stands for.
const BUCKET: f64 = 0.1;
/// What the names of the clients' rows begin with.
const PREFIX: &str = "paced_";
/// Between two looks at who has been answered.
const STEP: Duration = Duration::from_millis(1);

/// Clients at work.
pub(super) struct Paced {
    shared: Arc<Shared>,
    start: Instant,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    heard: Mutex<Heard>,
}

/// A write that succeeded.
struct Write {
    number: u64,
    /// Seconds since the start: when it was sent and answered.
    asked: f64,
    answered: f64,
}

/// What the clients have been told.
#[derive(Default)]
struct Heard {
    writes: Vec<Write>,
    /// When each client last succeeded, and its longest wait since this was asked for.
    clients: Vec<(f64, f64)>,
    /// The numbers of writes that were answered with an error.
    refused: Vec<u64>,
    lost: u64,
    unanswered: u64,
    /// From when on writes are counted.
    begun: f64,
}

/// What the clients did from when it was to be counted.
pub(super) struct Done {
    /// The numbers of all writes that succeeded, and of those that were answered with an error.
    pub(super) written: Vec<u64>,
    pub(super) refused: Vec<u64>,
    /// Connections that ended.
    pub(super) lost: u64,
    /// Writes that had no answer in time, where the connection was open all the while.
    pub(super) unanswered: u64,
    pub(super) seconds: f64,
    pub(super) latencies: Latencies,
    /// Writes a second over time.
    pub(super) curve: Curve,
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Paced {
    pub(super) fn start(targets: Vec<Target>) -> Self {
        let (shared, start) = (Arc::new(Shared::default()), Instant::now());
        shared.heard().clients = vec![(0.0, 0.0); CLIENTS * targets.len()];
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || Writers::new(&targets)?.run(&shared, start)
        });
        Self { shared, start, thread: Some(thread) }
    }

    /// Seconds since the start.
    pub(super) fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Waits until a write has succeeded that was sent after this moment; how long after it, in
    /// milliseconds.
    pub(super) fn await_after(&self, moment: f64, patience: Duration) -> Result<f64, Error> {
        self.await_that(patience, |heard| {
            let late = heard.writes.iter().rev().take_while(|write| write.answered > moment);
            let first = late.filter(|write| write.asked > moment).map(|write| write.answered);
            first.reduce(f64::min).map(|answered| 1e3 * (answered - moment))
        })
    }

    /// Waits until each client has had a write that was answered after this moment.
    pub(super) fn await_all(&self, moment: f64, patience: Duration) -> Result<(), Error> {
        self.await_that(patience, |heard| {
            heard.clients.iter().all(|(last, _)| *last > moment).then_some(())
        })
    }

    fn await_that<T>(
        &self,
        patience: Duration,
        mut found: impl FnMut(&Heard) -> Option<T>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        loop {
            if let Some(found) = found(&self.shared.heard()) {
                return Ok(found);
            }
            if start.elapsed() > patience {
                fail!("no write succeeded within {} s", patience.as_secs());
            }
            std::thread::sleep(STEP);
        }
    }

    /// The longest time between two writes of one client in milliseconds, since the start or the
    /// last call; waits under way are included.
    pub(super) fn stall(&self) -> f64 {
        let now = self.now();
        let mut heard = self.shared.heard();
        let waits = heard.clients.iter().map(|(last, longest)| longest.max(now - last));
        let stall = 1e3 * waits.fold(0.0, f64::max);
        heard.clients.iter_mut().for_each(|(_, longest)| *longest = 0.0);
        stall
    }

    /// From now on writes count. What it took to connect is nobody's wait.
    pub(super) fn begin(&self) {
        self.stall();
        self.shared.heard().begun = self.now();
    }

    /// Ends; what the clients have done.
    pub(super) fn stop(mut self, plot: &str) -> Result<Done, Error> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done?,
            _ => fail!("the clients that write at a steady pace have failed"),
        }
        let mut heard = self.shared.heard();
        let (begun, seconds) = (heard.begun, self.now() - heard.begun);
        let mut counts = vec![0.0; (seconds / BUCKET) as usize + 1];
        let mut latencies = Latencies::default();
        for write in heard.writes.iter().filter(|write| write.answered >= begun) {
            latencies.push(Duration::from_secs_f64(write.answered - write.asked));
            if let Some(count) = counts.get_mut(((write.answered - begun) / BUCKET) as usize) {
                *count += 1.0 / BUCKET;
            }
        }
        // The last one is not over.
        counts.pop();
        let point = |(n, count): (usize, f64)| ((n as f64 + 0.5) * BUCKET, count);
        Ok(Done {
            written: heard.writes.iter().map(|write| write.number).collect(),
            refused: std::mem::take(&mut heard.refused),
            lost: heard.lost,
            unanswered: heard.unanswered,
            seconds,
            latencies,
            curve: Curve {
                plot: plot.to_owned(),
                axes: ["seconds".into(), "writes a second".into()],
                log: [false; 2],
                points: counts.into_iter().enumerate().map(point).collect(),
            },
        })
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connections.
struct Writers<'a> {
    targets: &'a [Target],
    crowd: Crowd,
    clients: Vec<Writer>,
    /// The client of each connection.
    owners: Vec<usize>,
    sent: u64,
}

struct Writer {
    /// Where it is, or tries to be.
    target: usize,
    token: Option<usize>,
    /// The write whose answer is awaited, and since when.
    asked: Option<(u64, f64)>,
    due: f64,
}

impl<'a> Writers<'a> {
    fn new(targets: &'a [Target]) -> Result<Self, Error> {
        let mut crowd = Crowd::new()?;
        crowd.listen();
        let count = CLIENTS * targets.len();
        let client = |n: usize| {
            // Not all at the same time.
            let due = PACE.as_secs_f64() * n as f64 / count as f64;
            Writer { target: n % targets.len(), token: None, asked: None, due }
        };
        let clients = (0..count).map(client).collect();
        Ok(Self { targets, crowd, clients, owners: Vec::new(), sent: 0 })
    }

    fn run(mut self, shared: &Shared, start: Instant) -> Result<(), Error> {
        while !shared.stop.load(Ordering::Relaxed) {
            self.crowd.turn(TURN)?;
            let now = start.elapsed().as_secs_f64();
            self.hear(now, &mut shared.heard());
            for n in 0..self.clients.len() {
                self.go_on(n, now, shared)?;
            }
        }
        Ok(())
    }

    /// Takes the answers that have come.
    fn hear(&mut self, now: f64, heard: &mut Heard) {
        for message in self.crowd.heard() {
            let n = self.owners[message.token];
            let client = &mut self.clients[n];
            if client.token != Some(message.token) {
                continue;
            }
            match (message.edges.kind(), client.asked.take()) {
                (Kind::Answer, Some((number, asked))) => {
                    let (last, longest) = heard.clients[n];
                    heard.clients[n] = (now, longest.max(now - last));
                    heard.writes.push(Write { number, asked, answered: now });
                }
                (Kind::Refusal, Some((number, _))) => heard.refused.push(number),
                (_, asked) => client.asked = asked,
            }
        }
    }

    /// Sends what is due, or connects to the next member.
    fn go_on(&mut self, n: usize, now: f64, shared: &Shared) -> Result<(), Error> {
        let client = &mut self.clients[n];
        if let (Some(token), Some((_, asked))) = (client.token, client.asked)
            && now - asked > GIVES_UP
            && self.crowd.is_open(token)
        {
            self.crowd.leave(token);
            shared.heard().unanswered += 1;
        }
        if client.token.is_some_and(|token| !self.crowd.is_open(token)) {
            shared.heard().lost += 1;
            (client.token, client.asked) = (None, None);
            client.target = (client.target + 1) % self.targets.len();
        }
        let token = match client.token {
            Some(token) => token,
            None => match self.crowd.join(&self.targets[client.target]) {
                Ok(token) => {
                    self.owners.push(n);
                    client.token = Some(token);
                    token
                }
                Err(_) => {
                    client.target = (client.target + 1) % self.targets.len();
                    return Ok(());
                }
            },
        };
        if client.asked.is_none() && client.due <= now {
            self.sent += 1;
            (client.asked, client.due) = (Some((self.sent, now)), now + PACE.as_secs_f64());
            self.crowd.send(token, request(self.sent).as_bytes())?;
        }
        Ok(())
    }
}

/// The write of this number: a row that no other write makes, so that one that is lost is missed,
/// and one that runs twice is refused.
fn request(number: u64) -> String {
    format!(
        concat!(
            r#"{{"id":{},"method":"transact","params":["{}",{{"op":"insert","#,
            r#""table":"Address_Set","row":{{"name":"{}{}"}}}}]}}"#
        ),
        number, DB, PREFIX, number
    )
}

/// The number of the write that has made the row of this name.
pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_which_write_made_it() {
        let request: serde_json::Value = serde_json::from_str(&request(17)).unwrap();
        let name = request["params"][1]["row"]["name"].as_str().unwrap();
        assert_eq!(number(name), Some(17));
        assert_eq!(number("before-17"), None);
    }
}
