//! Small commits at a steady rate while something large goes on beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Error;
use crate::client::{Client, Target};
use crate::error::fail;
use crate::report::Figures;
use crate::stats::Latencies;

/// From one commit to the next. Long enough to wake nobody who would not be awake, and a stall of a
/// hundredth of a second still meets some.
const BEAT: Duration = Duration::from_millis(5);

/// How often a client that is to end is looked at.
const STEP: Duration = Duration::from_millis(5);

/// A client that commits until it is stopped.
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<(), Error>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    latencies: Latencies,
    /// Since when the exchange that is under way has been due.
    due: Option<Instant>,
}

/// Where a pulse writes: one row of `Address_Set` in OVN_Southbound, always equally long.
pub(crate) fn prepare(target: &Target) -> Result<(), Error> {
    let row = json!({"name": "weir-bench-pulse", "addresses": "pulse-0000000"});
    let insert = json!({"op": "insert", "table": "Address_Set", "row": row});
    Client::connect(target)?.transact(&json!(["OVN_Southbound", insert])).map(drop)
}

impl Pulse {
    /// Begins; [`prepare`] must have been called.
    pub(crate) fn start(target: &Target) -> Result<Self, Error> {
        Self::begin(target, commit)
    }

    /// Begins to send `echo` instead, which needs no database.
    pub(crate) fn echo(target: &Target) -> Result<Self, Error> {
        Self::begin(target, echo)
    }

    /// Begins to send what `exchange` does.
    pub(crate) fn begin(target: &Target, exchange: Exchange) -> Result<Self, Error> {
        let mut client = Client::connect(target)?;
        // Who does not know of changes is disconnected by a conversion.
        client.call("set_db_change_aware", &json!([true]))?;
        let shared = Arc::new(Shared::default());
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.beat(client, exchange)
        });
        Ok(Self { shared, thread })
    }

    /// Ends; returns the latency of every beat from when it was due, also of one that could not be
    /// sent because the exchange before it was under way.
    pub(crate) fn stop(self) -> Result<Latencies, Error> {
        self.stop_within(Duration::MAX)
    }

    /// Ends, and gives up the answer to the last exchange where it does not come in time: then its
    /// latency is the time until now.
    pub(crate) fn stop_within(self, patience: Duration) -> Result<Latencies, Error> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while !self.thread.is_finished() && start.elapsed() < patience {
            std::thread::sleep(STEP);
        }
        if self.thread.is_finished() {
            match self.thread.join() {
                Ok(beaten) => beaten?,
                Err(_) => fail!("the client that commits at a steady rate has failed"),
            }
        }
        let mut heard = self.shared.heard();
        if let Some(due) = heard.due.take() {
            heard.latencies.push(due.elapsed());
        }
        Ok(std::mem::take(&mut heard.latencies))
    }
}

/// One request, the number of which is given, and its answer.
pub(crate) type Exchange = fn(&mut Client, u32) -> Result<(), Error>;

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self, mut client: Client, exchange: Exchange) -> Result<(), Error> {
        let start = Instant::now();
        let mut n = 0_u32;
        while !self.stop.load(Ordering::Relaxed) || n == 0 {
            let due = start + BEAT * n;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.heard().due = Some(due);
            exchange(&mut client, n)?;
            let mut heard = self.heard();
            heard.due = None;
            // Beats that came due meanwhile would have been answered now at the earliest. Sending
            // them, too, would make the client's own queue of what the server has taken long for.
            let answered = Instant::now();
            while n == 0 || start + BEAT * n < answered {
                heard.latencies.push(answered.saturating_duration_since(start + BEAT * n));
                n += 1;
            }
        }
        Ok(())
    }
}

fn commit(client: &mut Client, n: u32) -> Result<(), Error> {
    let request = format!(
        r#"{{"id":{n},"method":"transact","params":["OVN_Southbound",{{"op":"update","table":"Address_Set","where":[["name","==","weir-bench-pulse"]],"row":{{"addresses":"pulse-{:07}"}}}}]}}"#,
        n % 10_000_000
    );
    let reply = client.exchange(request.as_bytes())?;
    if memchr::memmem::find(reply, br#"[{"count":1}]"#).is_none() {
        fail!("a commit was answered {}", String::from_utf8_lossy(reply));
    }
    Ok(())
}

/// Sends `echo`, which needs no database.
fn echo(client: &mut Client, n: u32) -> Result<(), Error> {
    let request = format!(r#"{{"id":{n},"method":"echo","params":[]}}"#);
    client.exchange(request.as_bytes()).map(drop)
}

/// What the table says of the commits.
pub(crate) fn figures(latencies: &Latencies, section: &str, figures: &mut Figures) {
    let mut push = |name, digits, value| figures.push(section, name, digits, value);
    push("commit p50 ms", 2, latencies.percentile(50.0) / 1e3);
    push("commit p99 ms", 2, latencies.percentile(99.0) / 1e3);
    push("longest stall ms", 1, latencies.percentile(100.0) / 1e3);
    push("commits due meanwhile", 0, latencies.count() as f64);
}
