//! `weir bench big`: transactions of 100 KB, mostly strings, to many monitors.
//!
//! The test "100K" of the talk "OVSDB: Performance and Scale Journey '21": each transaction
//! creates a port group with 500 external ids of 100-byte keys and values.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::dbfile;
use crate::drive::{Driver, Load};
use crate::error::fail;
use crate::ports::{DB, SCHEMA};
use crate::report::{About, Curve, Figures, Report};
use crate::rng::Rng;
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::tally::{Sizes, Tally, drain_every};
use crate::watch::{Marker, Watch, uuid_hash, uuid_in};

const PAIRS: usize = 500;
const STRING: usize = 100;
/// Digits that make a string of one transaction differ from those of the others.
const DIGITS: usize = 8;
/// Added to ids, so that all requests are equally long.
const FIRST_ID: usize = 1_000_000;
const WRITERS: usize = 50;
const MONITORS: usize = 100;
const OPS: usize = 1_000;
/// Bytes that all monitors together get in one measurement, at most.
const GIGABYTES: f64 = 20.0;
/// Fewest transactions of a measurement, however many monitors there are.
const OPS_MIN: usize = 50;

/// How many transactions, and by whom.
pub(crate) struct Config {
    ops: usize,
    writers: usize,
    drain_every: Duration,
    template: Template,
}

/// Runs the scenario `big`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let monitors: Vec<usize> = args.list("--monitors")?.unwrap_or_else(|| vec![MONITORS]);
    let ops = args.value("--ops")?.unwrap_or(OPS).max(1);
    let gigabytes: f64 = args.value("--gigabytes")?.unwrap_or(GIGABYTES);
    let writers = args.value("--writers")?.unwrap_or(WRITERS).max(1);
    let mut config = Config::new(ops, writers, drain_every(args)?);
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    args.finish("big")?;
    let schema = dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?;
    let size = config.template.text.len();
    let about = About {
        scenario: "big".into(),
        title: format!(
            "big: up to {ops} transactions of {size} bytes, {} writers, {monitors:?} monitors",
            config.writers
        ),
        standard: monitors.contains(&MONITORS) && ops >= OPS && config.writers == WRITERS,
    };
    let mut sizes = Sizes { update: size as u64, record: size as u64, request: size as u64 };
    bench.rounds(about, Floors::Plain, &mut |peer| {
        let (mut figures, mut rates) = (Figures::default(), Vec::new());
        for &monitors in &monitors {
            let affordable = gigabytes * 1e9 / (size * monitors.max(1)) as f64;
            config.ops = ops.min((affordable as usize).max(OPS_MIN));
            let running = bench.start(peer, Source::Schema(&schema))?;
            if peer.is_floor() {
                sizes.configure_floor(&mut Client::connect(&running.target)?)?;
            }
            let section = format!("{monitors} monitors");
            bench.progress.phase(&section, config.ops);
            let tally = config.measure(bench, std::slice::from_ref(&running), monitors);
            let tally = tally.map_err(|e| running.explain(&peer.name, &e))?;
            if !peer.is_floor() {
                tally.learn(&mut sizes, monitors);
            }
            bench.progress.note(&format!("  {section}: {:.1} s", tally.seconds));
            tally.figures(&section, &mut figures);
            running.finish(&section, &mut figures)?;
            rates.push((monitors as f64, tally.delivered as f64 / 1e6 / tally.seconds));
        }
        if rates.len() > 1 {
            figures.draw(Curve {
                plot: "delivered against monitors".into(),
                axes: ["monitors".into(), "MB/s".into()],
                log: [true, false],
                points: rates,
            });
        }
        Ok(figures)
    })
}

impl Config {
    pub(crate) fn new(ops: usize, writers: usize, drain_every: Duration) -> Self {
        Self { ops, writers, drain_every, template: Template::new() }
    }

    /// What happens at servers that have the same rows, with clients in turn at each.
    pub(crate) fn measure(
        &self,
        bench: &Bench,
        servers: &[Running],
        monitors: usize,
    ) -> Result<Tally, Error> {
        measure(self, bench, servers, monitors)
    }
}

fn measure(
    config: &Config,
    bench: &Bench,
    servers: &[Running],
    monitors: usize,
) -> Result<Tally, Error> {
    let target = |n: usize| &servers[n % servers.len()].target;
    let columns = json!(["name", "ports", "acls", "external_ids"]);
    let params = json!([
        DB,
        ["monid", DB],
        {"Port_Group": [{"columns": columns}]},
        "00000000-0000-0000-0000-000000000000"
    ]);
    let watches: Result<Vec<Watch>, Error> = (0..monitors)
        .map(|n| {
            let mut client = Client::connect(target(n))?;
            client.call("monitor_cond_since", &params)?;
            let watch = Watch::new(client.into_stream(), false);
            Ok(if n == 0 { watch.count_only() } else { watch })
        })
        .collect();
    let writers: Result<Vec<_>, Error> = (0..config.writers).map(|n| target(n).connect()).collect();
    let mut driver = Driver::new(writers?, watches?, config.drain_every, bench.progress.clone())?;
    let mut tally = Tally::default();
    let mut load = Load {
        total: config.ops,
        marker: Marker::Insert,
        rate: None,
        unseen: false,
        request: &mut |i, out| config.template.request(i, out),
        reply: &mut |i, reply| {
            if memchr::memmem::find(reply, format!(r#""id":{}"#, FIRST_ID + i).as_bytes()).is_none()
            {
                fail!("transaction {i} was answered {}", String::from_utf8_lossy(reply));
            }
            Ok(uuid_hash(uuid_in(reply)?.as_bytes()))
        },
    };
    tally.run_at(servers, &mut driver, &mut load)?;
    Ok(tally)
}

/// The request, and where each transaction's own digits go.
struct Template {
    text: Vec<u8>,
    id: usize,
    slots: Vec<usize>,
}

impl Template {
    fn new() -> Self {
        let mut rng = Rng::new(100);
        let mut text = br#"{"id":"#.to_vec();
        let id = text.len();
        let _ = write!(
            text,
            r#"{FIRST_ID},"method":"transact","params":["{DB}",{{"op":"insert","table":"Port_Group","row":{{"name":"group-"#
        );
        let mut slots = vec![text.len()];
        let _ = write!(text, r#"{:0DIGITS$}","external_ids":["map",["#, 0);
        for n in 0..PAIRS {
            text.extend_from_slice(if n == 0 { b"[\"" } else { b",[\"" });
            for part in ["key", "val"] {
                let head = format!("{part}-{n:03}-");
                text.extend_from_slice(head.as_bytes());
                slots.push(text.len());
                text.extend_from_slice(&[b'0'; DIGITS]);
                for _ in head.len() + DIGITS..STRING {
                    text.push(b'a' + rng.below(26) as u8);
                }
                text.extend_from_slice(if part == "key" { b"\",\"" } else { b"\"]" });
            }
        }
        text.extend_from_slice(b"]]}}]}");
        Self { text, id, slots }
    }

    /// Appends transaction `i`; its strings are no other's.
    fn request(&self, i: usize, out: &mut Vec<u8>) {
        let base = out.len();
        out.extend_from_slice(&self.text);
        let id = (FIRST_ID + i).to_string();
        out[base + self.id..base + self.id + id.len()].copy_from_slice(id.as_bytes());
        let digits = format!("{i:0DIGITS$}");
        for slot in &self.slots {
            out[base + slot..base + slot + DIGITS].copy_from_slice(digits.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn requests_are_equally_long_and_share_no_string() {
        let template = Template::new();
        let request = |i| {
            let mut out = Vec::new();
            template.request(i, &mut out);
            out
        };
        let (one, other) = (request(0), request(98_765));
        assert_eq!(one.len(), other.len());
        assert!((100_000..110_000).contains(&one.len()), "{}", one.len());
        let pairs = |text: &[u8]| {
            let request: Value = serde_json::from_slice(text).unwrap();
            let map = request["params"][1]["row"]["external_ids"][1].clone();
            map.as_array().unwrap().clone()
        };
        let (ours, theirs) = (pairs(&one), pairs(&other));
        assert_eq!(ours.len(), PAIRS);
        for (a, b) in ours.iter().zip(&theirs) {
            assert_eq!(a[0].as_str().unwrap().len(), STRING);
            assert_eq!(a[1].as_str().unwrap().len(), STRING);
            assert!(a[0] != b[0] && a[1] != b[1]);
        }
    }
}
