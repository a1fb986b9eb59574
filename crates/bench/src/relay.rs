//! `weir bench relay`: relays before a cluster, as they were measured when they were proposed for
//! Open vSwitch (ovs-dev, July 2021): three members with 0, 3 and 10 relays, 120 clients that watch an
//! OVN_Southbound-like database while it grows to 256 MB.
//!
//! Beside that: what a relay needs beyond the rows, whether the members notice how many clients there
//! are, and how long a change takes through a chain of relays.

mod behind;
mod depth;
mod load;
mod memory;

use std::time::Duration;

use serde_json::Value;

use crate::Error;
use crate::args::Args;
use crate::dbfile;
use crate::make_db;
use crate::peer::Peer;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::tally::drain_every;

const MEGABYTES: f64 = 256.0;
const CLIENTS: usize = 120;
/// What sizes are divided by in a short run.
const QUICK: usize = 50;
/// The figure of a line that did not come to its end.
const FAILED: &str = "failed";

/// One part of the scenario.
struct Line {
    name: &'static str,
    run: fn(&mut Scene<'_>) -> Result<(), Error>,
}

const LINES: &[Line] = &[
    Line { name: "memory", run: memory::run },
    Line { name: "depth", run: depth::run },
    Line { name: "crowd", run: load::crowd },
    Line { name: "0-relays", run: |scene| load::growth(scene, 0) },
    Line { name: "3-relays", run: |scene| load::growth(scene, 3) },
    Line { name: "10-relays", run: |scene| load::growth(scene, 10) },
];

/// The scenario's options in the help.
pub(crate) const OPTIONS: &[&str] = &[
    "--lines NAME[,NAME...]  memory, depth, crowd, 0-relays, 3-relays, 10-relays (all)",
    "--megabytes N  to which the database grows (256) --clients N (120)",
    "--drain-us N --schema FILE --quick  a fiftieth of everything",
];

/// What the lines go by, and what they found.
struct Scene<'a> {
    bench: &'a Bench,
    peer: &'a Peer,
    schema: &'a Value,
    /// The file of the schema.
    schema_path: &'a str,
    megabytes: f64,
    clients: usize,
    divisor: usize,
    drain_every: Duration,
    figures: Figures,
}

/// Runs the scenario `relay`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let lines = args.choose("--lines", LINES, |line| line.name)?;
    let divisor = if args.flag("--quick") { QUICK } else { 1 };
    let megabytes = args.value("--megabytes")?.unwrap_or(MEGABYTES / divisor as f64);
    let clients = args.value("--clients")?.unwrap_or(CLIENTS / divisor).max(1);
    let drain_every = drain_every(args)?;
    let schema_path = args.text("--schema")?.unwrap_or_else(|| make_db::SCHEMA.into());
    args.finish("relay")?;
    if bench.is_tls() {
        return Err(Error::Usage("relay: its clients do not speak TLS".into()));
    }
    if bench.has_running() {
        return Err(Error::Usage("relay: it starts its servers: --peer, not --server".into()));
    }
    let schema = dbfile::read_schema(schema_path.as_ref(), "of Debian's package ovn-common")?;
    let about = About {
        scenario: "relay".into(),
        title: format!("relay: {clients} clients, a database that grows to {megabytes} MB"),
        standard: divisor == 1 && megabytes == MEGABYTES,
    };
    bench.rounds(about, Floors::None, &mut |peer| {
        let (schema, schema_path) = (&schema, schema_path.as_str());
        let figures = Figures::default();
        let mut scene = Scene {
            bench,
            peer,
            schema,
            schema_path,
            megabytes,
            clients,
            divisor,
            drain_every,
            figures,
        };
        for line in &lines {
            bench.progress.note(&format!(" {}", line.name));
            if let Err(error) = (line.run)(&mut scene) {
                // The others go on: one server's failure is a figure too.
                scene.figures.push(line.name, FAILED, 0, 1.0);
                bench.progress.note(&format!("  {}: {error}", line.name));
            }
        }
        Ok(scene.figures)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_in_the_help() {
        let help = OPTIONS.join("\n");
        for line in LINES {
            assert!(help.contains(line.name), "{}", line.name);
        }
    }
}
