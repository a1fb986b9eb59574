//! One phase of a load, measured: time, CPU of server and driver, latencies, bytes.

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::{Client, Stream, Target};
use crate::drive::{DRAIN_EVERY, Driver, Load};
use crate::procfs;
use crate::progress::Progress;
use crate::replica::Replica;
use crate::report::{Curve, Figures};
use crate::running::{self, Running};
use crate::stats::Latencies;
use crate::watch::Watch;

use std::time::Duration;

/// Seconds after which a figure is steady, however few transactions they were; `--seconds` says
/// otherwise.
pub(crate) const ENOUGH_SECONDS: f64 = 5.0;
/// Takes `--seconds`. However few they are, something is measured.
pub(crate) fn seconds_from(args: &mut Args) -> Result<f64, Error> {
    Ok(args.value("--seconds")?.unwrap_or(ENOUGH_SECONDS).max(f64::MIN_POSITIVE))
}

/// Takes `--drain-us`.
pub(crate) fn drain_every(args: &mut Args) -> Result<Duration, Error> {
    Ok(args.value("--drain-us")?.map_or(DRAIN_EVERY, Duration::from_micros))
}

/// Transactions that show how long one takes.
const FIRST: usize = 20;

/// A phase's figures, summed over all times that it ran.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    pub(crate) transactions: usize,
    pub(crate) seconds: f64,
    /// CPU time of the server in nanoseconds, as long as its process is known.
    pub(crate) server_cpu: Option<u64>,
    pub(crate) driver_cpu: u64,
    pub(crate) latencies: Latencies,
    pub(crate) delivered: u64,
    pub(crate) notifications: u64,
    pub(crate) file_growth: u64,
    /// The longest time in which no reply came.
    pub(crate) stall: Duration,
    /// Whether requests were due at fixed times.
    open: bool,
}

/// What one transaction takes up, in bytes. The floor gets it from a server of the same run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes in one monitor's updates.
    pub(crate) update: u64,
    /// Bytes in the file.
    pub(crate) record: u64,
    /// Bytes of the request, where it is too long for one read of the floor and all are equally
    /// long.
    pub(crate) request: u64,
}

impl Sizes {
    /// Has the floor make transactions of this size.
    pub(crate) fn configure_floor(self, control: &mut Client) -> Result<(), Error> {
        control.call("floor", &json!([self.update, self.record, self.request])).map(drop)
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
        self.run_at(std::slice::from_ref(running), driver, load)
    }

    /// Runs a phase at several servers: CPU time is that of all of them, the file the first one's.
    pub(crate) fn run_at(
        &mut self,
        servers: &[Running],
        driver: &mut Driver,
        load: &mut Load<'_>,
    ) -> Result<(), Error> {
        let me = std::process::id();
        let file_size = || servers.first().and_then(Running::file_size);
        let server_cpu = || running::cpu_nanos(servers);
        let file_before = file_size();
        let (server_before, driver_before) = (server_cpu()?, procfs::cpu_nanos(me)?);
        let outcome = driver.run(load)?;
        self.driver_cpu += procfs::cpu_nanos(me)?.saturating_sub(driver_before);
        if let (Some(before), Some(after)) = (server_before, server_cpu()?) {
            let spent = after.saturating_sub(before);
            self.server_cpu = Some(self.server_cpu.unwrap_or(0) + spent);
        }
        self.transactions += load.total;
        self.seconds += outcome.wall.as_secs_f64();
        self.latencies.extend(&outcome.latencies);
        self.delivered += outcome.delivered;
        self.stall = self.stall.max(outcome.stall);
        self.open = load.rate.is_some();
        self.notifications +=
            driver.watches.first().and_then(|watch| watch.notifications).unwrap_or(0);
        if let (Some(before), Some(after)) = (file_before, file_size()) {
            self.file_growth += after.saturating_sub(before);
        }
        Ok(())
    }

    /// How many transactions of so many are to come next: after a few, the others at once, or as
    /// many as these seconds have room for; none when it is over.
    pub(crate) fn next_of(&self, wanted: usize, seconds: f64) -> usize {
        let left = wanted.saturating_sub(self.transactions);
        if self.transactions == 0 {
            return left.min(FIRST);
        }
        let room = seconds - self.seconds;
        if room <= 0.0 {
            return 0;
        }
        // The first ones may have been slow: what is left of the time is not used up in crumbs.
        let fit = (room / self.seconds * self.transactions as f64) as usize;
        left.min(fit.max(self.transactions))
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

    /// Server CPU a transaction in microseconds, where it is known.
    pub(crate) fn cpu_micros(&self) -> Option<f64> {
        Some(self.server_cpu? as f64 / 1e3 / self.transactions as f64)
    }

    /// What the table says of this phase, and the plot of its latencies.
    pub(crate) fn figures(&self, section: &str, figures: &mut Figures) {
        let transactions = self.transactions as f64;
        // A closed loop's latencies are corrected; at fixed rates they count from the due time.
        let corrected = if self.open { self.latencies.clone() } else { self.latencies.corrected() };
        let mut push = |name, digits, value: f64| figures.push(section, name, digits, value);
        push("tx/s, all drained", 0, transactions / self.seconds);
        if let Some(micros) = self.cpu_micros() {
            push("server CPU us/tx", 1, micros);
        }
        push("p50 us", 1, self.latencies.percentile(50.0));
        push("p99 us", 0, corrected.percentile(99.0));
        push("p99.9 us", 0, corrected.percentile(99.9));
        push("longest stall ms", 1, self.stall.as_secs_f64() * 1e3);
        if self.notifications > 0 {
            push("tx a round", 1, transactions / self.notifications as f64);
            push("delivered MB", 1, self.delivered as f64 / 1e6);
            push("delivered MB/s", 0, self.delivered as f64 / 1e6 / self.seconds);
        }
        push("driver CPU us/tx", 1, self.driver_cpu as f64 / 1e3 / transactions);
        push("driver busy %", 0, self.driver_cpu as f64 / 1e7 / self.seconds);
        figures.draw(Curve {
            plot: format!("latency: {section}"),
            axes: ["one transaction in ... takes longer".into(), "us".into()],
            log: [true; 2],
            points: corrected.distribution(),
        });
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
    /// Takes the clients' options, with the numbers that are usual in a scenario.
    pub(crate) fn from_args(
        args: &mut Args,
        writers: usize,
        monitors: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            writers: args.value("--writers")?.unwrap_or(writers).max(1),
            monitors: args.value("--monitors")?.unwrap_or(monitors),
            drain_every: drain_every(args)?,
        })
    }

    /// Connects all of them; monitors watch all of `db`, and the first one keeps what it gets so
    /// that `replica` can follow.
    pub(crate) fn connect(
        self,
        target: &Target,
        db: &str,
        replica: &mut Replica,
        progress: &Progress,
    ) -> Result<Driver, Error> {
        self.connect_to(&[target], db, replica, progress)
    }

    /// Connects all of them in turn to several servers that have the same rows.
    pub(crate) fn connect_to(
        self,
        targets: &[&Target],
        db: &str,
        replica: &mut Replica,
        progress: &Progress,
    ) -> Result<Driver, Error> {
        let target = |n: usize| targets[n % targets.len()];
        let writers: Result<Vec<Stream>, Error> =
            (0..self.writers).map(|n| target(n).connect()).collect();
        let requests = replica.requests();
        let watches: Result<Vec<Watch>, Error> = (0..self.monitors)
            .map(|n| subscribe(target(n), db, &requests, (n == 0).then_some(&mut *replica)))
            .collect();
        Driver::new(writers?, watches?, self.drain_every, progress.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks that a server is given, and what they take.
    fn blocks(seconds_each: f64, wanted: usize) -> (Vec<usize>, f64) {
        let (mut tally, mut blocks) = (Tally::default(), Vec::new());
        while let count @ 1.. = tally.next_of(wanted, 5.0) {
            tally.transactions += count;
            tally.seconds += count as f64 * seconds_each;
            blocks.push(count);
        }
        (blocks, tally.seconds)
    }

    #[test]
    fn a_fast_server_does_everything_and_a_slow_one_as_much_as_fits() {
        assert_eq!(blocks(1e-5, 20_000), (vec![FIRST, 20_000 - FIRST], 0.2));
        assert_eq!(blocks(1e-5, 7).0, [7]);
        let (slow, seconds) = blocks(0.01, 20_000);
        assert!(slow.len() <= 4 && (4.9..10.0).contains(&seconds), "{slow:?} {seconds}");
        assert_eq!(blocks(1.0, 20_000).0, [FIRST]);
    }
}
