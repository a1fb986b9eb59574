//! One phase of a load, measured: time, CPU of server and driver, latencies, bytes.

use serde_json::{Value, json};

use crate::Error;
use crate::client::{Client, Stream, Target};
use crate::drive::{Driver, Load};
use crate::peer::Running;
use crate::procfs;
use crate::replica::Replica;
use crate::report::{Figures, Metric};
use crate::stats::Latencies;
use crate::watch::Watch;

use std::time::Duration;

/// A phase's figures, summed over all times that it ran.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    pub(crate) transactions: usize,
    pub(crate) seconds: f64,
    pub(crate) server_cpu: u64,
    pub(crate) driver_cpu: u64,
    pub(crate) latencies: Latencies,
    pub(crate) delivered: u64,
    pub(crate) notifications: u64,
    pub(crate) file_growth: u64,
}

/// What one transaction takes up, in bytes. The floor gets it from a server of the same run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// In one monitor's updates.
    pub(crate) update: u64,
    /// In the file.
    pub(crate) record: u64,
}

impl Sizes {
    /// Has the floor take this shape.
    pub(crate) fn impose(self, control: &mut Client) -> Result<(), Error> {
        control.call("floor", &json!([self.update, self.record])).map(drop)
    }
}

impl Tally {
    /// Runs a phase and adds what it took.
    pub(crate) fn run(
        &mut self,
        running: &Running,
        driver: &mut Driver,
        load: &mut Load<'_>,
    ) -> Result<(), Error> {
        let me = std::process::id();
        let file_before = running.file_size();
        let (server_before, driver_before) =
            (procfs::cpu_nanos(running.pid)?, procfs::cpu_nanos(me)?);
        let outcome = driver.run(load)?;
        self.server_cpu += procfs::cpu_nanos(running.pid)?.saturating_sub(server_before);
        self.driver_cpu += procfs::cpu_nanos(me)?.saturating_sub(driver_before);
        self.transactions += load.total;
        self.seconds += outcome.wall.as_secs_f64();
        self.latencies.extend(&outcome.latencies);
        self.delivered += outcome.delivered;
        if let Some(kept) = driver.watches.first().and_then(|watch| watch.kept.as_ref()) {
            self.notifications += memchr::memmem::find_iter(kept, br#""update3""#).count() as u64;
        }
        if let (Some(before), Some(after)) = (file_before, running.file_size()) {
            self.file_growth += after.saturating_sub(before);
        }
        Ok(())
    }

    /// Corrects `sizes` where this phase shows what they are.
    pub(crate) fn learn(&self, sizes: &mut Sizes, monitors: usize) {
        let transactions = self.transactions.max(1) as u64;
        if monitors > 0 {
            sizes.update = self.delivered / (monitors as u64 * transactions);
        }
        if self.file_growth > 0 {
            sizes.record = self.file_growth / transactions;
        }
    }

    /// Server CPU a transaction in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.server_cpu as f64 / 1e3 / self.transactions as f64
    }

    pub(crate) fn figures(&mut self, section: &str, figures: &mut Figures) {
        let transactions = self.transactions as f64;
        let mut push = |name, digits, value: f64| {
            figures.push(section, Metric { name, digits }, value);
        };
        push("tx/s, all drained", 0, transactions / self.seconds);
        push("server CPU us/tx", 1, self.cpu_micros());
        push("p50 us", 0, self.latencies.percentile(50.0));
        push("p99 us", 0, self.latencies.percentile(99.0));
        push("max us", 0, self.latencies.percentile(100.0));
        if self.notifications > 0 {
            push("tx a round", 1, transactions / self.notifications as f64);
            push("delivered MB", 1, self.delivered as f64 / 1e6);
        }
        push("driver CPU us/tx", 1, self.driver_cpu as f64 / 1e3 / transactions);
    }
}

/// How many clients there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) writers: usize,
    pub(crate) monitors: usize,
    /// How often monitors are drained.
    pub(crate) drain_every: Duration,
}

impl Clients {
    /// Connects all of them; monitors watch all of `db`, and the first one keeps what it gets so
    /// that `replica` can follow.
    pub(crate) fn connect(
        self,
        target: &Target,
        db: &str,
        replica: &mut Replica,
    ) -> Result<Driver, Error> {
        let writers: Result<Vec<Stream>, Error> =
            (0..self.writers).map(|_| target.connect()).collect();
        let requests = replica.requests();
        let watches: Result<Vec<Watch>, Error> = (0..self.monitors)
            .map(|n| subscribe(target, db, &requests, (n == 0).then_some(&mut *replica)))
            .collect();
        Driver::new(writers?, watches?, self.drain_every)
    }
}

/// Connects a monitor of everything; the first one's initial rows go into the replica.
fn subscribe(
    target: &Target,
    db: &str,
    requests: &Value,
    replica: Option<&mut Replica>,
) -> Result<Watch, Error> {
    const NEVER: &str = "00000000-0000-0000-0000-000000000000";
    let mut client = Client::connect(target)?;
    let params = json!([db, ["monid", db], requests, NEVER]);
    let reply = client.call("monitor_cond_since", &params)?;
    let keep = replica.is_some();
    if let Some(replica) = replica {
        replica.apply(&reply[2])?;
    }
    Ok(Watch::new(client.into_stream(), keep))
}
