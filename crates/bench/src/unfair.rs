//! `weir bench unfair`: clients that ask for too much, and what others wait for it.
//!
//! Each line is one misbehaviour at a server that was started for it: conditions of thousands of
//! clauses, monitors that fall behind, waits that expire, messages that never end, transactions of
//! seconds, things that add up, connections that break. Meanwhile victims send `echo`, commit and
//! read at a steady rate, and what they wait is the figure, with the server's CPU time and memory.

mod clauses;
mod drip;
mod idle;
mod long;
mod monitors;
mod scene;
mod soak;
mod sums;
mod waits;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use self::scene::{Scene, Size, TWO};
use crate::Error;
use crate::args::Args;
use crate::peer::Peer;
use crate::report::{About, Figures, Report};
use crate::rounds::{Bench, Floors};
use crate::running::Source;

const DB: &str = "Bench_Unfair";
/// The table of the victims.
const VICTIM: &str = "Victim";
/// What everything is divided by in a short run.
const QUICK: usize = 50;
/// What everything is divided by in a soak, where all lines go on at the same time.
const SOAK: usize = 10;
const SECONDS: f64 = 5.0;
const MEGABYTES: usize = 200;

/// What a line does at its scene.
type Run = fn(&mut Scene<'_>) -> Result<(), Error>;

/// One kind of misbehaviour.
struct Line {
    name: &'static str,
    /// A table of its own.
    table: &'static str,
    /// Whether others can go on at the same server.
    mixes: bool,
    run: Run,
}

const fn line(name: &'static str, table: &'static str, run: Run) -> Line {
    Line { name, table, mixes: true, run }
}

const LINES: &[Line] = &[
    line("quiet", "Quiet", |scene| {
        let limit = scene.size.limit;
        scene.beside(TWO, &mut |_| {
            std::thread::sleep(limit);
            Ok(())
        })
    }),
    line("clauses", "Clauses", clauses::one_client),
    line("swap", "Swap", clauses::swap),
    line("audience", "Audience", monitors::audience),
    line("behind", "Behind", monitors::behind),
    line("ranges", "Ranges", monitors::ranges),
    line("one-session", "One_Session", monitors::one_session),
    line("many-rows", "Many_Rows", monitors::many_rows),
    line("few-of-many", "Few_Of_Many", monitors::few_of_many),
    line("long-texts", "Long_Texts", monitors::long_texts),
    line("waits", "Waits", waits::expire),
    line("waits-elsewhere", "Waits_Elsewhere", waits::elsewhere),
    line("drip", "Drip", drip::few),
    line("drip-mixed", "Drip_Mixed", drip::mixed),
    line("drip-many", "Drip_Many", drip::many),
    line("scans", "Scans", long::transaction),
    line("reads", "Reads", long::readers),
    line("big-set", "Big_Set", long::big_set),
    line("gone", "Gone", long::gone),
    line("sum-waits", "Sum_Waits", sums::waits),
    line("sum-locks", "Sum_Locks", sums::locks),
    line("sum-monitors", "Sum_Monitors", sums::monitors),
    line("broken", "Broken", idle::broken),
    Line { name: "files", table: "Files", mixes: false, run: idle::files },
    line("memory", "Memory", idle::memory),
];

/// The scenario's options in the help.
pub(crate) const OPTIONS: &[&str] = &[
    "--lines NAME[,NAME...]  quiet, clauses, swap, audience, behind, ranges,",
    "  one-session, many-rows, few-of-many, long-texts, waits, waits-elsewhere, drip,",
    "  drip-mixed, drip-many, scans, reads, big-set, gone, sum-waits, sum-locks,",
    "  sum-monitors, broken, files, memory (all of them)",
    "--seconds N  of a line that ends by time (5) --megabytes N  of a sum (200)",
    "--quick  a fiftieth of everything",
    "--minutes N  a soak: all at the same time for so long, memory and files told",
];

/// Runs the scenario `unfair`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let lines = chosen(args)?;
    let quick = args.flag("--quick");
    let seconds = args.value("--seconds")?.unwrap_or(if quick { 0.3 } else { SECONDS });
    let megabytes = args.value("--megabytes")?;
    let minutes: Option<f64> = args.value("--minutes")?;
    args.finish("unfair")?;
    let duration = |seconds: f64| {
        Duration::try_from_secs_f64(seconds).map_err(|e| Error::Usage(format!("{seconds} s: {e}")))
    };
    let divisor = if quick { QUICK } else { 1 };
    let bytes = megabytes.unwrap_or((MEGABYTES / divisor).max(1)).saturating_mul(1_000_000);
    let size = Size { divisor, limit: duration(seconds)?, bytes };
    let soak = minutes.map(|minutes| duration(60.0 * minutes)).transpose()?;
    let mixed: Vec<_> = lines.iter().copied().filter(|line| line.mixes).collect();
    let about = About {
        scenario: if soak.is_some() { "unfair, soak" } else { "unfair" }.into(),
        title: match minutes {
            Some(minutes) => format!("unfair: {} lines mixed for {minutes} minutes", mixed.len()),
            None => format!("unfair: {} kinds of misbehaviour, one by one", lines.len()),
        },
        standard: !quick && seconds >= SECONDS && megabytes.is_none_or(|n| n >= MEGABYTES),
    };
    let schema = schema();
    bench.rounds(about, Floors::None, &mut |peer| match soak {
        Some(time) => {
            let running = bench.start(peer, Source::Schema(&schema))?;
            let limit = size.limit.min(Duration::from_secs(1));
            let divisor = divisor.max(SOAK);
            let size = Size { divisor, limit, bytes: bytes / SOAK };
            let soaked = soak::run(bench, &running, &mixed, size, time);
            soaked.map_err(|e| running.explain(&peer.name, &e))
        }
        None => one_by_one(&lines, size, &schema, bench, peer),
    })
}

/// The lines that the options name, or all of them.
fn chosen(args: &mut Args) -> Result<Vec<&'static Line>, Error> {
    args.choose("--lines", LINES, |line| line.name)
}

/// Every line at a server of its own. One that fails is told, and the others go on.
fn one_by_one(
    lines: &[&'static Line],
    size: Size,
    schema: &Value,
    bench: &Bench,
    peer: &Peer,
) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    for line in lines {
        let running = bench.start(peer, Source::Schema(schema))?;
        bench.progress.wait(line.name);
        scene::prepare(&running.target)?;
        let fresh = |file: &Path| bench.start(peer, Source::File(file));
        let mut scene = Scene::new(line, size, &running);
        if !running.is_found() {
            scene.fresh = Some(&fresh);
        }
        let run = (line.run)(&mut scene);
        if let Err(error) = run {
            scene.push("failed", 0, 1.0);
            bench.progress.note(&format!("  {}", running.explain(line.name, &error)));
        }
        bench.progress.note(&format!("  {}: {:.1} s", line.name, running.age().as_secs_f64()));
        figures.append(scene.figures);
    }
    Ok(figures)
}

pub(crate) fn schema() -> Value {
    let table = json!({"isRoot": true, "indexes": [["name"]], "columns": {
        "name": {"type": "string"},
        "owner": {"type": "string"},
        "number": {"type": "integer"},
        "value": {"type": "string"},
        "numbers": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
    }});
    let names = LINES.iter().map(|line| line.table).chain([VICTIM]);
    let tables: serde_json::Map<String, Value> =
        names.map(|name| (name.to_owned(), table.clone())).collect();
    json!({"name": DB, "version": "1.0.0", "tables": tables})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_table_and_is_in_the_help() {
        let help = OPTIONS.join("\n");
        for (index, line) in LINES.iter().enumerate() {
            let others = || LINES.iter().skip(index + 1);
            assert!(others().all(|o| o.name != line.name && o.table != line.table));
            assert!(help.contains(line.name), "{}", line.name);
            assert!(line.table != VICTIM);
        }
    }

    #[test]
    fn lines_are_chosen_by_name() {
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&mut Args::new(&words)).map(|lines| lines.len())
        };
        assert_eq!(chosen(&[]).unwrap(), LINES.len());
        assert_eq!(chosen(&["--lines=drip,waits"]).unwrap(), 2);
        assert!(chosen(&["--lines=drops"]).is_err());
    }
}
