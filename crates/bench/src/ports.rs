//! `weir bench ports`: ports and load balancers come and go in OVN_Northbound.
//!
//! The scenario of the talk "OVSDB: Performance and Scale Journey '21", with persistent
//! connections: a hundred switches, one load balancer group and one address set exist; writers
//! add ports (each to its switch, its address to the one set), add load balancers (each to the
//! one group), and remove all of them, while every monitor watches everything.

mod objects;

use serde_json::Value;

use self::objects::{Objects, STEPS, Step, check_reply};
use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::drive::{Driver, Load};
use crate::procfs;
use crate::progress::Progress;
use crate::replica::Replica;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::tally::{Clients, Sizes, Tally};
use crate::watch::{Marker, uuid_hash, uuid_in};

/// The database of the scenario.
pub(crate) const DB: &str = "OVN_Northbound";
/// Where Debian's package ovn-common has its schema.
pub(crate) const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
/// Bytes a transaction in the update and in the file, where no server of this run showed them.
const USUAL: Sizes = Sizes { update: 450, record: 450, request: 0 };
const ROWS: usize = 30_000;
/// The section of memory and file sizes, and the figure of the fullest database in it.
pub(crate) const SPACE: &str = "memory and disk";
pub(crate) const AFTER_ADDS: &str = "RSS after both adds MB";
const WRITERS: usize = 50;
const MONITORS: usize = 100;
/// Rows of the short form, of which one fits every cache.
const SHORT_ROWS: usize = 1_500;

/// What the phases are called.
pub(crate) fn step_names() -> impl Iterator<Item = &'static str> {
    STEPS.into_iter().map(Step::name)
}

/// How many rows come and go, and by whom.
pub(crate) struct Config {
    pub(crate) rows: usize,
    pub(crate) clients: Clients,
    pub(crate) cycles: usize,
    pub(crate) rate: Option<f64>,
    pub(crate) one_shot: bool,
    pub(crate) schema: Value,
}

/// Runs the scenario `ports`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    let config = Config {
        rows: args.value("--rows")?.unwrap_or(ROWS).max(1),
        clients: Clients::from_args(args, WRITERS, MONITORS)?,
        cycles: args.value("--cycles")?.unwrap_or(1).max(1),
        rate: args.value("--rate")?.filter(|&rate: &f64| rate > 0.0),
        one_shot: args.flag("--one-shot"),
        schema: dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?,
    };
    args.finish("ports")?;
    let floors = if config.clients.monitors > 0 { Floors::Both } else { Floors::Plain };
    let mut sizes = [USUAL; 4];
    bench.rounds(config.about(), floors, &mut |peer| {
        let running = bench.start(peer, Source::Schema(&config.schema))?;
        let servers = std::slice::from_ref(&running);
        let mut run = Run::new(&config, peer.is_floor(), servers, sizes);
        let figures = run.all(&bench.progress).map_err(|e| running.explain(&peer.name, &e))?;
        sizes = run.sizes;
        Ok(figures)
    })
}

impl Config {
    /// What happens at servers that have the same rows, with clients in turn at each.
    pub(crate) fn measure(
        &self,
        servers: &[Running],
        progress: &Progress,
    ) -> Result<Figures, Error> {
        Run::new(self, false, servers, [USUAL; 4]).all(progress)
    }

    fn about(&self) -> About {
        let Clients { writers, monitors, .. } = self.clients;
        let pace = match (self.rate, self.one_shot) {
            (Some(rate), _) => format!("open loop, {rate} tx/s"),
            (None, true) => "a connection for each transaction".into(),
            (None, false) => "closed loop".into(),
        };
        let title = format!(
            "ports: {} rows, {writers} writers ({pace}), {monitors} monitors, {} cycle(s)",
            self.rows, self.cycles
        );
        let scenario = match (self.rate, self.one_shot, writers, self.rows) {
            (Some(_), _, _, _) => "ports, fixed rate",
            (_, true, _, _) => "ports, one-shot",
            (_, _, 1, _) => "ports, one writer",
            (_, _, _, rows) if rows <= SHORT_ROWS => "ports, short",
            _ => "ports",
        };
        let usual = monitors == MONITORS && matches!(writers, 1 | WRITERS);
        let standard = usual && (matches!(self.rows, ROWS | SHORT_ROWS) || writers == 1);
        About { scenario: scenario.into(), title, standard }
    }
}

/// One server's way through the scenario.
struct Run<'a> {
    config: &'a Config,
    /// One server, or the members of a cluster.
    servers: &'a [Running],
    floor: bool,
    objects: Objects,
    /// Bytes a transaction by phase.
    sizes: [Sizes; 4],
    tallies: [Tally; 4],
}

impl<'a> Run<'a> {
    fn new(config: &'a Config, floor: bool, servers: &'a [Running], sizes: [Sizes; 4]) -> Self {
        let objects = Objects {
            ports: vec![String::new(); config.rows],
            lbs: vec![String::new(); config.rows],
            ..Objects::default()
        };
        let tallies = std::array::from_fn(|_| Tally::default());
        Self { config, servers, floor, objects, sizes, tallies }
    }

    fn all(&mut self, progress: &Progress) -> Result<Figures, Error> {
        let targets: Vec<_> = self.servers.iter().map(|server| &server.target).collect();
        let mut control = Client::connect(targets[0])?;
        self.objects.create(&mut control, self.floor)?;
        targets[1..].iter().try_for_each(|target| objects::await_at(target))?;
        let mut replica = Replica::new(&self.config.schema);
        let mut driver = self.config.clients.connect_to(&targets, DB, &mut replica, progress)?;
        driver.one_shot = self.config.one_shot.then(|| targets[0].clone());
        let mut after_adds = self.memory()?;
        for _ in 0..self.config.cycles {
            for (n, step) in STEPS.into_iter().enumerate() {
                if self.floor {
                    self.sizes[n].configure_floor(&mut control)?;
                }
                progress.phase(step.name(), self.config.rows);
                self.step(n, step, &mut driver)?;
                progress.note(&format!("  {}: {:.1} s", step.name(), self.tallies[n].seconds));
                if step == Step::LbAdd {
                    after_adds = self.memory()?;
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
        if self.config.clients.monitors > 0 && !self.floor {
            targets.iter().try_for_each(|target| replica.check_against(target, DB))?;
        }
        if !self.floor {
            for (tally, sizes) in self.tallies.iter().zip(&mut self.sizes) {
                tally.learn(sizes, self.config.clients.monitors);
            }
        }
        self.figures(after_adds)
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
            unseen: false,
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
        self.tallies[n].run_at(self.servers, driver, &mut load)?;
        let now = if new.is_empty() { known } else { new };
        match step {
            Step::PortAdd | Step::PortDelete => objects.ports = now,
            Step::LbAdd | Step::LbDelete => objects.lbs = now,
        }
        Ok(())
    }

    /// Memory of each server, where its process is known.
    fn memory(&self) -> Result<Vec<Option<procfs::Memory>>, Error> {
        self.servers.iter().map(Running::memory).collect()
    }

    fn figures(&self, after_adds: Vec<Option<procfs::Memory>>) -> Result<Figures, Error> {
        let mut figures = Figures::default();
        for (step, tally) in STEPS.into_iter().zip(&self.tallies) {
            tally.figures(step.name(), &mut figures);
        }
        for (n, (server, memory)) in self.servers.iter().zip(after_adds).enumerate() {
            let section = match self.servers.len() {
                1 => SPACE.to_owned(),
                _ => format!("{SPACE} of member {}", n + 1),
            };
            if let Some(memory) = memory {
                figures.push(&section, AFTER_ADDS, 1, memory.rss as f64 / 1e6);
            }
            server.finish(&section, &mut figures)?;
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::Kind;
    use serde_json::json;

    #[test]
    fn the_floor_goes_through_all_phases() {
        for kind in [Kind::Plain, Kind::Paced] {
            let (target, file) = crate::floor::tests::spawn(&format!("ports{kind:?}"), kind);
            let running = Running::found(target, Some(std::process::id()), Some(file.clone()));
            let config = Config {
                rows: 300,
                clients: Clients {
                    writers: 7,
                    monitors: 3,
                    drain_every: std::time::Duration::from_micros(50),
                },
                cycles: 2,
                rate: None,
                one_shot: false,
                schema: json!({"name": DB, "tables": {}}),
            };
            let mut run = Run::new(
                &config,
                true,
                std::slice::from_ref(&running),
                [Sizes { update: 400, record: 300, request: 0 }; 4],
            );
            run.all(&Progress::hidden()).unwrap();
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
