//! `weir bench ports`: ports and load balancers come and go in OVN_Northbound.
//!
//! The scenario of the talk "OVSDB: Performance and Scale Journey '21", with persistent
//! connections: a hundred switches, one load balancer group and one address set exist; writers
//! add ports (each to its switch, its address to the one set), add load balancers (each to the
//! one group), and remove all of them, while every monitor watches everything.

mod objects;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use self::objects::{Objects, STEPS, Step, check_reply};
use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::drive::{DRAIN_EVERY, Driver, Load};
use crate::peer::{Peers, Running};
use crate::procfs;
use crate::replica::Replica;
use crate::report::{Figures, Metric, Report};
use crate::tally::{Clients, Sizes, Tally};
use crate::watch::{Marker, uuid_hash, uuid_in};

/// The database of the scenario.
pub(crate) const DB: &str = "OVN_Northbound";
const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
/// Bytes a transaction in the update and in the file, where no server of this run showed them.
const USUAL: Sizes = Sizes { update: 450, record: 450 };

struct Config {
    rows: usize,
    clients: Clients,
    cycles: usize,
    rate: Option<f64>,
    schema: Value,
}

/// Runs the command.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let mut args = Args::new(args);
    let peers = Peers::from_args(&mut args)?;
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    let config = Config {
        rows: args.value("--rows")?.unwrap_or(30_000).max(1),
        clients: Clients {
            writers: args.value("--writers")?.unwrap_or(50).max(1),
            monitors: args.value("--monitors")?.unwrap_or(100),
            drain_every: args.value("--drain-us")?.map_or(DRAIN_EVERY, Duration::from_micros),
        },
        cycles: args.value("--cycles")?.unwrap_or(1).max(1),
        rate: args.value("--rate")?.filter(|&rate: &f64| rate > 0.0),
        schema: dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?,
    };
    if let Some(word) = args.words()?.first() {
        return Err(Error::Usage(format!("ports: unexpected '{word}'")));
    }
    let mut report = Report::new(config.title(), procfs::machine());
    let mut sizes = [USUAL; 4];
    for run in 1..=peers.repeat {
        for peer in peers.order(config.clients.monitors > 0) {
            eprintln!("{} ({run} of {})", peer.name, peers.repeat);
            let running = peer.start(peers.dir(), &|path| dbfile::create(path, &config.schema))?;
            let mut run = Run::new(&config, peer.is_floor(), &running, sizes);
            let figures = run.all().map_err(|e| running.explain(&peer.name, &e))?;
            report.add(&peer.name, peer.is_floor(), figures);
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
            self.rows, self.clients.writers, self.clients.monitors, self.cycles
        )
    }
}

/// One server's way through the scenario.
struct Run<'a> {
    config: &'a Config,
    running: &'a Running,
    floor: bool,
    objects: Objects,
    /// Bytes a transaction by phase.
    sizes: [Sizes; 4],
    tallies: [Tally; 4],
}

impl<'a> Run<'a> {
    fn new(config: &'a Config, floor: bool, running: &'a Running, sizes: [Sizes; 4]) -> Self {
        let objects = Objects {
            ports: vec![String::new(); config.rows],
            lbs: vec![String::new(); config.rows],
            ..Objects::default()
        };
        let tallies = std::array::from_fn(|_| Tally::default());
        Self { config, running, floor, objects, sizes, tallies }
    }

    fn all(&mut self) -> Result<Figures, Error> {
        let mut control = Client::connect(&self.running.target)?;
        self.objects.create(&mut control, self.floor)?;
        let mut replica = Replica::new(&self.config.schema);
        let target = &self.running.target;
        let mut driver = self.config.clients.connect(target, DB, &mut replica)?;
        let mut after_adds = procfs::memory(self.running.pid)?;
        for _ in 0..self.config.cycles {
            for (n, step) in STEPS.into_iter().enumerate() {
                if self.floor {
                    self.sizes[n].impose(&mut control)?;
                }
                self.step(n, step, &mut driver)?;
                eprintln!("  {}: {:.1} s", step.name(), self.tallies[n].seconds);
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
        if self.config.clients.monitors > 0 && !self.floor {
            replica.check_against(target, DB)?;
        }
        if !self.floor {
            for (tally, sizes) in self.tallies.iter().zip(&mut self.sizes) {
                tally.learn(sizes, self.config.clients.monitors);
            }
        }
        Ok(self.figures(after_adds, end))
    }

    fn step(&mut self, n: usize, step: Step, driver: &mut Driver) -> Result<(), Error> {
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
        let mut load = Load {
            total: self.config.rows,
            marker: if inserts { Marker::Insert } else { Marker::Delete },
            rate: self.config.rate,
            request: &mut |i, out| objects.request(step, i, &known, out),
            reply: &mut |i, reply| {
                check_reply(i, reply, step.counts())?;
                if !inserts {
                    return Ok(uuid_hash(known[i].as_bytes()));
                }
                let uuid = uuid_in(reply)?;
                if let Some(slot) = new.get_mut(i) {
                    uuid.clone_into(slot);
                }
                Ok(uuid_hash(uuid.as_bytes()))
            },
        };
        self.tallies[n].run(self.running, driver, &mut load)?;
        let now = if new.is_empty() { known } else { new };
        match step {
            Step::PortAdd | Step::PortDelete => objects.ports = now,
            Step::LbAdd | Step::LbDelete => objects.lbs = now,
        }
        Ok(())
    }

    fn figures(&mut self, after_adds: procfs::Memory, end: procfs::Memory) -> Figures {
        let mut figures = Figures::default();
        for (step, tally) in STEPS.into_iter().zip(&mut self.tallies) {
            tally.figures(step.name(), &mut figures);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_floor_goes_through_all_phases() {
        for paced in [false, true] {
            let (target, file) = crate::floor::tests::spawn(&format!("ports{paced}"), paced);
            let running = Running::found(target, std::process::id(), Some(file.clone()));
            let config = Config {
                rows: 300,
                clients: Clients {
                    writers: 7,
                    monitors: 3,
                    drain_every: Duration::from_micros(50),
                },
                cycles: 2,
                rate: None,
                schema: json!({"name": DB, "tables": {}}),
            };
            let mut run =
                Run::new(&config, true, &running, [Sizes { update: 400, record: 300 }; 4]);
            run.all().unwrap();
            for sum in &run.tallies {
                assert_eq!(sum.transactions, 600);
                assert!(sum.delivered >= 600 * 3 * 400, "{}", sum.delivered);
                assert!(sum.notifications >= 1 && sum.notifications <= 600);
                assert!(sum.file_growth >= 600 * 300);
            }
            crate::floor::tests::remove(&file);
        }
    }
}
