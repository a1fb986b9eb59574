//! `weir bench cluster`: clusters of three or five members on this machine.
//!
//! Each line starts a cluster of its own of every server, so that the reference's stands beside
//! Weir's in the same run: the load of `ports`, transactions of 100 KB, many monitors, slow disks,
//! and members that are killed, away, compacted or restarted while clients write.

mod bare;
mod big;
mod faults;
mod held;
mod limit;
pub(crate) mod members;
mod paced;
mod ports;
mod requests;
mod slow;

use std::time::Duration;

use serde_json::Value;

use self::limit::Limit;
use crate::Error;
use crate::args::Args;
use crate::dbfile;
use crate::peer::Peer;
use crate::ports::SCHEMA;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::tally::drain_every;

/// Ports, and as many load balancers.
const ROWS: usize = 30_000;
/// What every number is divided by in a short run.
const QUICK: usize = 50;
/// One writer adds so many times fewer.
const ONE_WRITER: usize = 10;
const MEMBERS: usize = 3;
/// Seconds that a line may take.
const LIMIT: f64 = 1_800.0;
/// The part of a section that tells of the members together.
const CLUSTER: &str = "cluster";
/// The figure of a line that did not come to its end.
const FAILED: &str = "failed";
/// Sections of the one writer.
const AT_LEADER: &str = "1 writer at the leader";
const AT_FOLLOWER: &str = "1 writer at a follower";

/// One load of the scenario.
struct Line {
    name: &'static str,
    run: fn(&mut Scene<'_>) -> Result<(), Error>,
}

const fn line(name: &'static str, run: fn(&mut Scene<'_>) -> Result<(), Error>) -> Line {
    Line { name, run }
}

/// The line that has a floor.
const ONE_WRITER_LINE: &str = "one-writer";

const LINES: &[Line] = &[
    line("ports", ports::many),
    line(ONE_WRITER_LINE, ports::one),
    line("big", big::run),
    line("monitors", ports::monitors),
    line("requests", requests::run),
    line("slow", slow::run),
    line("leader-killed", faults::leader_killed),
    line("follower-killed", faults::follower_killed),
    line("returns", faults::returns),
    line("compaction", faults::compaction),
    line("rolling", faults::rolling),
];

/// The scenario's options in the help.
pub(crate) const OPTIONS: &[&str] = &[
    "--lines NAME[,NAME...]  ports, one-writer, big, monitors, requests, slow,",
    "  leader-killed, follower-killed, returns, compaction, rolling (all of them)",
    "--members 3|5 (3) --rows N  ports, and as many load balancers (30000)",
    "--drain-us N --quick  a fiftieth of everything",
    "--limit SECONDS  of a line: beyond it its servers are killed (1800)",
];

/// What the lines go by, and what they found.
struct Scene<'a> {
    bench: &'a Bench,
    peer: &'a Peer,
    schema: &'a Value,
    members: usize,
    rows: usize,
    divisor: usize,
    drain_every: Duration,
    figures: Figures,
}

impl<'a> Scene<'a> {
    /// This scene at another server, with figures of its own.
    fn of<'b>(&self, peer: &'b Peer) -> Scene<'b>
    where
        'a: 'b,
    {
        let Self { bench, schema, members, rows, divisor, drain_every, .. } = *self;
        let figures = Figures::default();
        Scene { bench, peer, schema, members, rows, divisor, drain_every, figures }
    }

    /// So many, or fewer where the run is a short one.
    fn count(&self, full: usize) -> usize {
        (full / self.divisor).max(2)
    }

    /// Rows that one writer adds.
    fn rows_of_one(&self) -> usize {
        (self.rows / ONE_WRITER).max(1)
    }
}

/// Runs the scenario `cluster`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let lines = args.choose("--lines", LINES, |line| line.name)?;
    let divisor = if args.flag("--quick") { QUICK } else { 1 };
    let members = args.value("--members")?.unwrap_or(MEMBERS);
    let rows = args.value("--rows")?.unwrap_or(ROWS / divisor).max(1);
    let drain_every = drain_every(args)?;
    let seconds: f64 = args.value("--limit")?.unwrap_or(LIMIT);
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    args.finish("cluster")?;
    if bench.is_tls() {
        return Err(Error::Usage("cluster: its clients do not speak TLS".into()));
    }
    if !matches!(members, 3 | 5) {
        return Err(Error::Usage(format!("--members {members}: there are 3 or 5")));
    }
    let limit = Duration::try_from_secs_f64(seconds)
        .map_err(|e| Error::Usage(format!("--limit {seconds}: {e}")))?;
    if bench.has_running() {
        return Err(Error::Usage("cluster: it starts its servers: --peer, not --server".into()));
    }
    let schema = dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?;
    let about = About {
        scenario: "cluster".into(),
        title: format!("cluster of {members}: {} loads, {rows} rows", lines.len()),
        standard: divisor == 1 && members == MEMBERS && rows == ROWS,
    };
    // Only what one writer waits for has a floor.
    let has_floor = lines.iter().any(|line| line.name == ONE_WRITER_LINE);
    let floors = if has_floor { Floors::Plain } else { Floors::None };
    bench.rounds(about, floors, &mut |peer| {
        let figures = Figures::default();
        let schema = &schema;
        let mut scene = Scene { bench, peer, schema, members, rows, divisor, drain_every, figures };
        if peer.is_floor() {
            bare::run(&mut scene)?;
            return Ok(scene.figures);
        }
        for line in &lines {
            bench.progress.note(&format!(" {}", line.name));
            let limit = Limit::start(limit);
            if let Err(error) = (line.run)(&mut scene) {
                // The others go on: one server's failure is a figure too.
                scene.figures.push(line.name, FAILED, 0, 1.0);
                let late = if limit.is_over() { "it took too long: " } else { "" };
                bench.progress.note(&format!("  {}: {late}{error}", line.name));
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
