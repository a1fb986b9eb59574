//! `weir bench ports`: ports and load balancers come and go in OVN_Northbound.
//!
//! The scenario of the talk "OVSDB: Performance and Scale Journey '21", with persistent
//! connections: a hundred switches, one load balancer group and one address set exist; writers
//! add ports (each to its switch, its address to the one set), add load balancers (each to the
//! one group), and remove all of them, while every monitor watches everything.

mod objects;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use self::objects::{Objects, STEPS, Step, check_reply, uuid_of};
use crate::Error;
use crate::args::Args;
use crate::client::{Client, Stream, Target};
use crate::dbfile;
use crate::drive::{DRAIN_EVERY, Driver, Load, Outcome};
use crate::peer::{Peers, Running};
use crate::procfs;
use crate::replica::Replica;
use crate::report::{Figures, Metric, Report};
use crate::stats::Latencies;
use crate::watch::{Marker, Watch, uuid_hash};

/// The database of the scenario.
pub(crate) const DB: &str = "OVN_Northbound";
const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
/// Bytes a transaction in the update and in the file, where no server of this run showed them.
const USUAL_SIZES: (u64, u64) = (450, 450);

struct Config {
    rows: usize,
    writers: usize,
    monitors: usize,
    cycles: usize,
    rate: Option<f64>,
    drain_every: Duration,
    schema: Value,
}

/// Runs the command.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let mut args = Args::new(args);
    let peers = Peers::from_args(&mut args)?;
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    let config = Config {
        rows: args.value("--rows")?.unwrap_or(30_000).max(1),
        writers: args.value("--writers")?.unwrap_or(50).max(1),
        monitors: args.value("--monitors")?.unwrap_or(100),
        cycles: args.value("--cycles")?.unwrap_or(1).max(1),
        rate: args.value("--rate")?.filter(|&rate: &f64| rate > 0.0),
        drain_every: args.value("--drain-us")?.map_or(DRAIN_EVERY, Duration::from_micros),
        schema: dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?,
    };
    if let Some(word) = args.words()?.first() {
        return Err(Error::Usage(format!("ports: unexpected '{word}'")));
    }
    let mut report = Report::new(config.title(), procfs::machine());
    let mut sizes = [USUAL_SIZES; 4];
    for run in 1..=peers.repeat {
        for peer in peers.order(config.monitors > 0) {
            eprintln!("{} ({run} of {})", peer.name, peers.repeat);
            let running = peer.start(peers.dir(), &|path| dbfile::create(path, &config.schema))?;
            let mut run = Run::new(&config, peer.is_floor(), &running, sizes);
            match run.all() {
                Ok(figures) => report.add(&peer.name, peer.is_floor(), figures),
                Err(error) => {
                    return Err(Error::Check(format!(
                        "{}: {error}\n{}",
                        peer.name,
                        running.log_tail()
                    )));
                }
            }
            sizes = run.sizes;
        }
    }
    report.publish(peers.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

impl Config {
    fn title(&self) -> String {
        let rate = self.rate.map_or("closed loop".into(), |rate| format!("open loop, {rate} tx/s"));
        format!(
            "ports: {} rows, {} writers ({rate}), {} monitors, {} cycle(s)",
            self.rows, self.writers, self.monitors, self.cycles
        )
    }
}

/// One server's way through the scenario.
struct Run<'a> {
    config: &'a Config,
    running: &'a Running,
    floor: bool,
    objects: Objects,
    /// Bytes a transaction by phase: in one monitor's updates, in the file.
    sizes: [(u64, u64); 4],
    sums: [Sum; 4],
}

/// A phase's figures over all cycles.
#[derive(Clone, Default)]
struct Sum {
    transactions: usize,
    seconds: f64,
    server_cpu: u64,
    driver_cpu: u64,
    latencies: Latencies,
    delivered: u64,
    notifications: u64,
    file_growth: u64,
}

impl<'a> Run<'a> {
    fn new(config: &'a Config, floor: bool, running: &'a Running, sizes: [(u64, u64); 4]) -> Self {
        let objects = Objects {
            ports: vec![String::new(); config.rows],
            lbs: vec![String::new(); config.rows],
            ..Objects::default()
        };
        let sums = std::array::from_fn(|_| Sum::default());
        Self { config, running, floor, objects, sizes, sums }
    }

    fn all(&mut self) -> Result<Figures, Error> {
        let mut control = Client::connect(&self.running.target)?;
        self.objects.create(&mut control, self.floor)?;
        let mut replica = Replica::new(&self.config.schema);
        let mut driver = self.connect(&mut replica)?;
        let mut after_adds = procfs::memory(self.running.pid)?;
        for _ in 0..self.config.cycles {
            for (n, step) in STEPS.into_iter().enumerate() {
                if self.floor {
                    let (update, record) = self.sizes[n];
                    control.call("floor", &json!([update, record]))?;
                }
                self.step(n, step, &mut driver)?;
                if step == Step::LbAdd {
                    after_adds = procfs::memory(self.running.pid)?;
                }
                let kept = driver.watches.first_mut().and_then(|watch| watch.kept.take());
                if let (Some(kept), false) = (&kept, self.floor) {
                    replica.apply_stream(kept)?;
                    self.objects.check(step, &replica)?;
                }
                if let Some(watch) = driver.watches.first_mut() {
                    watch.kept = kept;
                }
            }
        }
        let end = procfs::memory(self.running.pid)?;
        if self.config.monitors > 0 && !self.floor {
            replica.check_against(&mut control, DB)?;
        }
        self.learn_sizes();
        Ok(self.figures(after_adds, end))
    }

    fn connect(&self, replica: &mut Replica) -> Result<Driver, Error> {
        let target = &self.running.target;
        let writers: Result<Vec<Stream>, Error> =
            (0..self.config.writers).map(|_| target.connect()).collect();
        let requests = replica.requests();
        let watches: Result<Vec<Watch>, Error> = (0..self.config.monitors)
            .map(|n| subscribe(target, &requests, (n == 0).then_some(&mut *replica)))
            .collect();
        Driver::new(writers?, watches?, self.config.drain_every)
    }

    fn step(&mut self, n: usize, step: Step, driver: &mut Driver) -> Result<(), Error> {
        let me = std::process::id();
        let file_before = self.running.file_size();
        let (server_before, driver_before) =
            (procfs::cpu_nanos(self.running.pid)?, procfs::cpu_nanos(me)?);
        let outcome = self.drive(step, driver)?;
        let sum = &mut self.sums[n];
        sum.server_cpu += procfs::cpu_nanos(self.running.pid)?.saturating_sub(server_before);
        sum.driver_cpu += procfs::cpu_nanos(me)?.saturating_sub(driver_before);
        sum.transactions += self.config.rows;
        sum.seconds += outcome.wall.as_secs_f64();
        sum.latencies.extend(&outcome.latencies);
        sum.delivered += outcome.delivered;
        if let Some(kept) = driver.watches.first().and_then(|watch| watch.kept.as_ref()) {
            sum.notifications += memchr::memmem::find_iter(kept, r#""update3""#).count() as u64;
        }
        if let (Some(before), Some(after)) = (file_before, self.running.file_size()) {
            sum.file_growth += after.saturating_sub(before);
        }
        eprintln!("  {}: {:.1} s", step.name(), outcome.wall.as_secs_f64());
        Ok(())
    }

    fn drive(&mut self, step: Step, driver: &mut Driver) -> Result<Outcome, Error> {
        let objects = &mut self.objects;
        // Requests and replies of a phase both look at the uuids, one of them writing.
        let known = match step {
            Step::PortAdd | Step::PortDelete => std::mem::take(&mut objects.ports),
            Step::LbAdd | Step::LbDelete => std::mem::take(&mut objects.lbs),
        };
        let mut new = Vec::new();
        if step.marker() == Marker::Insert {
            new = vec![String::new(); self.config.rows];
        }
        // The floor knows only insertions.
        let inserts = self.floor || step.marker() == Marker::Insert;
        let outcome = driver.run(&mut Load {
            total: self.config.rows,
            marker: if inserts { Marker::Insert } else { Marker::Delete },
            rate: self.config.rate,
            request: &mut |i, out| objects.request(step, i, &known, out),
            reply: &mut |i, reply| {
                check_reply(i, reply, step.counts())?;
                if !inserts {
                    return Ok(uuid_hash(known[i].as_bytes()));
                }
                let uuid = uuid_of(reply)?;
                if let Some(slot) = new.get_mut(i) {
                    uuid.clone_into(slot);
                }
                Ok(uuid_hash(uuid.as_bytes()))
            },
        })?;
        let now = if new.is_empty() { known } else { new };
        match step {
            Step::PortAdd | Step::PortDelete => objects.ports = now,
            Step::LbAdd | Step::LbDelete => objects.lbs = now,
        }
        Ok(outcome)
    }

    /// The floor takes its shape from what a server wrote and sent in this run.
    fn learn_sizes(&mut self) {
        if self.floor {
            return;
        }
        for (sum, (update, record)) in self.sums.iter().zip(&mut self.sizes) {
            let transactions = sum.transactions as u64;
            if self.config.monitors > 0 {
                *update = sum.delivered / (self.config.monitors as u64 * transactions);
            }
            if sum.file_growth > 0 {
                *record = sum.file_growth / transactions;
            }
        }
    }

    fn figures(&mut self, after_adds: procfs::Memory, end: procfs::Memory) -> Figures {
        let mut figures = Figures::default();
        for (step, sum) in STEPS.into_iter().zip(&mut self.sums) {
            let transactions = sum.transactions as f64;
            let mut push = |name, digits, value: f64| {
                figures.push(step.name(), Metric { name, digits }, value);
            };
            push("tx/s, all drained", 0, transactions / sum.seconds);
            push("server CPU us/tx", 1, sum.server_cpu as f64 / 1e3 / transactions);
            push("p50 us", 0, sum.latencies.percentile(50.0));
            push("p99 us", 0, sum.latencies.percentile(99.0));
            push("max us", 0, sum.latencies.percentile(100.0));
            if sum.notifications > 0 {
                push("tx a round", 1, transactions / sum.notifications as f64);
                push("delivered MB", 1, sum.delivered as f64 / 1e6);
            }
            push("driver CPU us/tx", 1, sum.driver_cpu as f64 / 1e3 / transactions);
        }
        let mut push = |name, bytes: u64| {
            figures.push("memory and disk", Metric { name, digits: 1 }, bytes as f64 / 1e6);
        };
        push("RSS after both adds MB", after_adds.rss);
        push("RSS at the end MB", end.rss);
        push("peak RSS MB", end.peak);
        if let Some(size) = self.running.file_size() {
            push("file MB", size);
        }
        figures
    }
}

/// Connects a monitor of everything; the first one's initial rows go into the replica.
fn subscribe(
    target: &Target,
    requests: &Value,
    replica: Option<&mut Replica>,
) -> Result<Watch, Error> {
    const NEVER: &str = "00000000-0000-0000-0000-000000000000";
    let mut client = Client::connect(target)?;
    let params = json!([DB, ["monid", DB], requests, NEVER]);
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

    #[test]
    fn the_floor_goes_through_all_phases() {
        for paced in [false, true] {
            let (target, file) = crate::floor::tests::spawn(&format!("ports{paced}"), paced);
            let running = Running::found(target, std::process::id(), Some(file.clone()));
            let config = Config {
                rows: 300,
                writers: 7,
                monitors: 3,
                cycles: 2,
                rate: None,
                drain_every: Duration::from_micros(50),
                schema: json!({"name": DB, "tables": {}}),
            };
            let mut run = Run::new(&config, true, &running, [(400, 300); 4]);
            run.all().unwrap();
            for sum in &run.sums {
                assert_eq!(sum.transactions, 600);
                assert!(sum.delivered >= 600 * 3 * 400, "{}", sum.delivered);
                assert!(sum.notifications >= 1 && sum.notifications <= 600);
                assert!(sum.file_growth >= 600 * 300);
            }
            crate::floor::tests::remove(&file);
        }
    }
}
