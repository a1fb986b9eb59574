//! `weir bench growth`: what one change costs, from small tables and sets to large ones.
//!
//! Rows: a table with a unique name holds 100 to 1,000,000 rows, and one row joins it and leaves
//! again. Elements: the same with one element of a set of 10 to 100,000. Both curves should be
//! flat.

use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::drive::{Driver, Load};
use crate::error::fail;
use crate::peer::Peer;
use crate::report::{About, Curve, Figures, Report};
use crate::rng::Rng;
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::set;
use crate::tally::{Clients, ENOUGH_SECONDS, Sizes, Tally, seconds_from};
use crate::watch::{Marker, Watch, uuid_hash, uuid_in};

const DB: &str = "Bench_Growth";
const ROWS: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
const ELEMENTS: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Rows that join before they leave again.
const BLOCK: usize = 2_000;
const USUAL: Sizes = Sizes { update: 160, record: 260, request: 0 };

/// Adds the plot of cost against size, and the cost at the last size divided by that at the first.
pub(crate) fn draw(name: &str, what: &str, costs: &[(f64, f64)], figures: &mut Figures) {
    let [first, .., last] = costs else { return };
    let metric = format!("{name}, {} / {}", last.0, first.0);
    figures.push("growth", &metric, 2, last.1 / first.1);
    figures.draw(Curve {
        plot: format!("cost against size: {name}"),
        axes: [what.into(), "server CPU us/tx".into()],
        log: [true, costs.iter().any(|&(_, cost)| cost > 10.0 * first.1)],
        points: costs.to_vec(),
    });
}

/// Adds each cost divided by the first one, and their plot.
pub(crate) fn relate(what: &str, costs: &[(f64, f64)], figures: &mut Figures) {
    let Some((first, others)) = costs.split_first() else { return };
    for other in others {
        let metric = format!("{} / {} {what}", other.0, first.0);
        figures.push("growth", &metric, 2, other.1 / first.1);
    }
    if !others.is_empty() {
        figures.draw(Curve {
            plot: format!("cost against {what}"),
            axes: [what.into(), "server CPU us/tx".into()],
            log: [false; 2],
            points: costs.to_vec(),
        });
    }
}

/// Runs the scenario `growth`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let rows: Vec<usize> = args.list("--rows")?.unwrap_or_else(|| ROWS.to_vec());
    let elements: Vec<usize> = args.list("--elements")?.unwrap_or_else(|| ELEMENTS.to_vec());
    let ops = args.value("--ops")?.unwrap_or(20_000).max(1);
    let seconds = seconds_from(args)?;
    let clients = Clients::from_args(args, 20, 10)?;
    args.finish("growth")?;
    let title = format!(
        "growth: {ops} changes at {rows:?} rows and {elements:?} elements, {} writers, {} monitors",
        clients.writers, clients.monitors
    );
    let standard =
        rows == ROWS && elements == ELEMENTS && ops >= 20_000 && seconds >= ENOUGH_SECONDS;
    let about = About { scenario: "growth".into(), title, standard };
    let sets = set::Config { sizes: elements, ops, seconds, clients };
    let (mut of_rows, mut of_sets) = ([USUAL; 2], set::USUAL);
    bench.rounds(about, Floors::Plain, &mut |peer| {
        let mut figures = Figures::default();
        let mut costs = [const { Vec::new() }; 2];
        for &size in &rows {
            let table = Table { size, ops, seconds, clients };
            let tallies = table.measure(bench, peer, &mut of_rows)?;
            for ((tally, name), costs) in tallies.iter().zip(STEPS).zip(&mut costs) {
                tally.figures(&format!("{name}, {size} rows"), &mut figures);
                costs.extend(tally.cpu_micros().map(|cost| (size as f64, cost)));
            }
        }
        for (name, costs) in STEPS.into_iter().zip(&costs) {
            draw(name, "rows in the table", costs, &mut figures);
        }
        figures.append(set::sweep(&sets, bench, peer, &mut of_sets)?);
        Ok(figures)
    })
}

const STEPS: [&str; 2] = ["insert", "delete"];

/// A table of one size.
struct Table {
    size: usize,
    ops: usize,
    /// Seconds after which no more operations begin.
    seconds: f64,
    clients: Clients,
}

impl Table {
    fn measure(
        &self,
        bench: &Bench,
        peer: &Peer,
        shapes: &mut [Sizes; 2],
    ) -> Result<[Tally; 2], Error> {
        let file = bench.scratch("growth");
        if !peer.is_floor() {
            write_table(&file, self.size)?;
        }
        let running = bench.start(peer, Source::File(&file));
        let _ = std::fs::remove_file(&file);
        let running = running?;
        bench.progress.phase(&format!("{} rows", self.size), BLOCK);
        let tallies = self.steps(bench, &running, peer.is_floor(), shapes);
        let tallies = tallies.map_err(|e| running.explain(&peer.name, &e))?;
        bench.progress.note(&format!("  {} rows: {:.1} s", self.size, tallies[0].seconds));
        Ok(tallies)
    }

    fn steps(
        &self,
        bench: &Bench,
        running: &Running,
        floor: bool,
        shapes: &mut [Sizes; 2],
    ) -> Result<[Tally; 2], Error> {
        let mut driver = self.connect(bench, running)?;
        let mut control = Client::connect(&running.target)?;
        let mut tallies = [Tally::default(), Tally::default()];
        let [insert, delete] = &mut tallies;
        while insert.transactions < self.ops && insert.seconds < self.seconds {
            let mut uuids = vec![String::new(); BLOCK];
            if floor {
                shapes[0].configure_floor(&mut control)?;
            }
            let mut load = Load {
                total: BLOCK,
                marker: Marker::Insert,
                rate: None,
                unseen: false,
                request: &mut |i, out| request(i, true, out),
                reply: &mut |i, reply| {
                    uuid_in(reply)?.clone_into(&mut uuids[i]);
                    Ok(uuid_hash(uuids[i].as_bytes()))
                },
            };
            insert.run(running, &mut driver, &mut load)?;
            if floor {
                shapes[1].configure_floor(&mut control)?;
            }
            let mut gone = 0;
            while let count @ 1.. = delete.next_of(self.ops, self.seconds).min(BLOCK - gone) {
                let mut load = Load {
                    total: count,
                    marker: if floor { Marker::Insert } else { Marker::Delete },
                    rate: None,
                    unseen: false,
                    request: &mut |i, out| request(gone + i, false, out),
                    reply: &mut |i, reply| deleted(&uuids[gone + i], reply, floor),
                };
                delete.run(running, &mut driver, &mut load)?;
                gone += count;
            }
            if !floor {
                remove(&uuids[gone..], &mut driver)?;
            }
        }
        for (tally, shape) in tallies.iter().zip(shapes).filter(|_| !floor) {
            tally.learn(shape, self.clients.monitors);
        }
        Ok(tallies)
    }

    /// Monitors want changes only: a million rows for each of them would be another test.
    fn connect(&self, bench: &Bench, running: &Running) -> Result<Driver, Error> {
        let select = json!({"initial": false});
        let requests = json!({"Item": [{"columns": ["name", "value"], "select": select}]});
        let params = json!([DB, "m", requests, "00000000-0000-0000-0000-000000000000"]);
        let target = &running.target;
        let watches: Result<Vec<Watch>, Error> = (0..self.clients.monitors)
            .map(|n| {
                let mut client = Client::connect(target)?;
                client.call("monitor_cond_since", &params)?;
                let watch = Watch::new(client.into_stream(), false);
                Ok(if n == 0 { watch.count_only() } else { watch })
            })
            .collect();
        let writers: Result<Vec<_>, Error> =
            (0..self.clients.writers).map(|_| target.connect()).collect();
        Driver::new(writers?, watches?, self.clients.drain_every, bench.progress.clone())
    }
}

/// Takes rows away by uuid, unmeasured: those for which deletion by name takes too long.
fn remove(uuids: &[String], driver: &mut Driver) -> Result<(), Error> {
    let mut load = Load {
        total: uuids.len(),
        marker: Marker::Delete,
        rate: None,
        unseen: false,
        request: &mut |i, out| {
            let _ = write!(
                out,
                r#"{{"id":{i},"method":"transact","params":["{DB}",{{"op":"delete","table":"Item","where":[["_uuid","==",["uuid","{}"]]]}}]}}"#,
                uuids[i]
            );
        },
        reply: &mut |i, reply| deleted(&uuids[i], reply, false),
    };
    driver.run(&mut load).map(drop)
}

/// Checks that one row went; returns what monitors must have seen go.
fn deleted(uuid: &str, reply: &[u8], floor: bool) -> Result<u64, Error> {
    if floor {
        return Ok(uuid_hash(uuid_in(reply)?.as_bytes()));
    }
    if memchr::memmem::find(reply, br#"[{"count":1}]"#).is_none() {
        fail!("the deletion of {uuid} was answered {}", String::from_utf8_lossy(reply));
    }
    Ok(uuid_hash(uuid.as_bytes()))
}

fn request(i: usize, insert: bool, out: &mut Vec<u8>) {
    let _ = write!(out, r#"{{"id":{i},"method":"transact","params":["{DB}",{{"#);
    let _ = if insert {
        write!(
            out,
            r#""op":"insert","table":"Item","row":{{"name":"new-{i:07}","value":"value {i}"}}}}]}}"#
        )
    } else {
        write!(out, r#""op":"delete","table":"Item","where":[["name","==","new-{i:07}"]]}}]}}"#)
    };
}

fn schema() -> Value {
    json!({"name": DB, "version": "1.0.0", "tables": {"Item": {
        "isRoot": true,
        "indexes": [["name"]],
        "columns": {"name": {"type": "string"}, "value": {"type": "string"}}
    }}})
}

/// Writes a database with `size` rows.
fn write_table(path: &Path, size: usize) -> Result<(), Error> {
    let mut file = Vec::new();
    let schema = schema().to_string();
    let written =
        dbfile::record(&mut file, &mut |out| out.write_all(schema.as_bytes())).and_then(|_| {
            dbfile::record(&mut file, &mut |out| {
                let mut rng = Rng::new(7);
                out.write_all(br#"{"_date":1767225600000,"_is_diff":true,"Item":{"#)?;
                for n in 0..size {
                    let comma = if n == 0 { "" } else { "," };
                    let uuid = rng.uuid();
                    write!(
                        out,
                        r#"{comma}"{uuid}":{{"name":"item-{n:07}","value":"value of item {n}"}}"#
                    )?;
                }
                out.write_all(b"}}")
            })
        });
    written.and_then(|_| std::fs::write(path, file)).map_err(|e| Error::io("writing", path, e))
}
