//! `weir bench all`: the whole table, scenario by scenario, to be resumed where it stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::args::Args;
use crate::report::{self, Report};
use crate::rounds::Bench;
use crate::scenarios::ONE_CORE;
use crate::{Error, scenarios};

/// A line of the table: its name, the scenario and its options, and those of the short form.
struct Line {
    name: &'static str,
    scenario: &'static str,
    full: &'static [&'static str],
    quick: &'static [&'static str],
}

const fn line(
    name: &'static str,
    scenario: &'static str,
    full: &'static [&'static str],
    quick: &'static [&'static str],
) -> Line {
    Line { name, scenario, full, quick }
}

const BY_KEY_QUICK: &[&str] = &["--rows=1000,4000", "--seconds=0.3", ONE_CORE];

/// The lines of the table. Scenarios with one client run on one core, where its messages wake
/// nobody.
const LINES: &[Line] = &[
    line("ports", "ports", &[], &["--rows=2000", "--monitors=20"]),
    line(
        "ports-short",
        "ports",
        &["--rows=1500", "--cycles=10"],
        &["--rows=500", "--monitors=20", "--cycles=2"],
    ),
    line(
        "ports-one-writer",
        "ports",
        &["--writers=1", "--rows=10000", ONE_CORE],
        &["--writers=1", "--rows=500", "--monitors=20", ONE_CORE],
    ),
    line(
        "ports-5000",
        "ports",
        &["--rate=5000", "--rows=30000"],
        &["--rate=2000", "--rows=2000", "--monitors=5"],
    ),
    line(
        "ports-10000",
        "ports",
        &["--rate=10000", "--rows=30000"],
        &["--rate=3000", "--rows=2000", "--monitors=2"],
    ),
    line(
        "ports-one-shot",
        "ports",
        &["--one-shot", "--rows=10000"],
        &["--one-shot", "--rows=500", "--monitors=5"],
    ),
    line("set", "set", &[], &["--ops=2000", "--sizes=300,10000"]),
    line("big", "big", &[], &["--ops=100", "--monitors=20"]),
    line(
        "big-monitors",
        "big",
        &["--monitors=10,50,100,250,500,1000", "--gigabytes=10"],
        &["--ops=50", "--monitors=5,50"],
    ),
    line("by-name", "by-name", &[ONE_CORE], BY_KEY_QUICK),
    line("by-column", "by-column", &[ONE_CORE], BY_KEY_QUICK),
    line("may-exist", "may-exist", &[ONE_CORE], BY_KEY_QUICK),
    line("queries", "queries", &[ONE_CORE], &["--rows=1000,4000", "--seconds=0.1", ONE_CORE]),
    line(
        "conditions",
        "conditions",
        &[],
        &["--ops=2000", "--monitors=0,50,200", "--swappers=50", "--swap-seconds=2"],
    ),
    line("growth", "growth", &[], &["--rows=100,10000", "--elements=10,5000", "--ops=2000"]),
    line("openstack", "openstack", &[], &["--ports=100"]),
    line("connections", "connections", &[], &["--clients=300", "--seconds=0.5", "--ops=500"]),
    line("strings", "strings", &[], &["--sizes=100000,2000000", "--volume=10000000"]),
    line("herd", "herd", &[], &["--clients=20", "--megabytes=4"]),
    line("resume", "resume", &[], &["--clients=10", "--megabytes=1", "--changes=20"]),
    line("snapshot-memory", "snapshot-memory", &[], &["--megabytes=8"]),
    line("large", "large", &[], &["--megabytes=10"]),
    line("tools", "tools", &[], &["--megabytes=4", "--one-shots=5"]),
    line("tools-600", "tools", &["--megabytes=600"], &["--megabytes=8", "--one-shots=2"]),
    line("steps", "steps", &[], &["--megabytes=5", "--monitors=10", "--ops=5000"]),
    line("unfair", "unfair", &[], &["--quick"]),
    line("cluster", "cluster", &[], &["--quick"]),
    line("relay", "relay", &[], &["--quick"]),
    line("large-600", "large", &["--megabytes=600"], &["--megabytes=20"]),
];

/// The scenarios of all lines.
#[cfg(test)]
pub(crate) fn scenarios() -> impl Iterator<Item = &'static str> {
    LINES.iter().map(|line| line.scenario)
}

/// Runs every line, or takes the results of an earlier call from `--results`. A line that fails
/// does not stop the others; the second value says whether all went well.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<(Vec<Report>, bool), Error> {
    let (quick, one_core) = (args.flag("--quick"), args.flag(ONE_CORE));
    let only: Option<Vec<String>> = args.list("--only")?;
    let results = args.text("--results")?.map(PathBuf::from);
    args.finish("all")?;
    if let Some(unknown) = only.iter().flatten().find(|name| LINES.iter().all(|l| l.name != **name))
    {
        let names: Vec<_> = LINES.iter().map(|line| line.name).collect();
        return Err(Error::Usage(format!("--only {unknown}: there are {}", names.join(", "))));
    }
    if let Some(dir) = &results {
        fs::create_dir_all(dir).map_err(|e| Error::io("creating", dir, e))?;
    }
    let suffix = if bench.is_tls() { "-tls" } else { "" };
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    for line in LINES.iter().filter(|l| only.as_ref().is_none_or(|o| o.iter().any(|n| n == l.name)))
    {
        let file = results.as_ref().map(|dir| dir.join(format!("{}{suffix}.json", line.name)));
        if let Some(done) = file.as_deref().filter(|file| file.exists()) {
            bench.progress.note(&format!("== {}: from {}", line.name, done.display()));
            reports.append(&mut report::read(done)?);
            continue;
        }
        let mut words = (if quick { line.quick } else { line.full }).to_vec();
        if one_core && !words.contains(&ONE_CORE) {
            words.push(ONE_CORE);
        }
        bench.progress.note(&format!("== {} {}", line.scenario, words.join(" ")));
        let start = Instant::now();
        let report = match one(line, &words, bench) {
            Ok(report) => report,
            Err(error) => {
                bench.progress.note(&format!("== {}: FAILED: {error}", line.name));
                failed.push(line.name);
                continue;
            }
        };
        bench.progress.note(&format!("== {}: {:.0} s", line.name, start.elapsed().as_secs_f64()));
        if let Some(file) = file {
            keep(&report, &file)?;
        }
        reports.push(report);
    }
    if !failed.is_empty() {
        bench.progress.note(&format!("== failed: {}", failed.join(", ")));
    }
    Ok((reports, failed.is_empty()))
}

fn one(line: &Line, words: &[&str], bench: &Bench) -> Result<Report, Error> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let mut report = scenarios::run(line.scenario, &mut Args::new(&words), bench)?;
    let tls = if bench.is_tls() { "--tls " } else { "" };
    report.set_command(format!("weir bench {} {tls}{}", line.scenario, words.join(" ")));
    Ok(report)
}

/// Writes a result under its name at once: half a file would be taken for a whole one.
fn keep(report: &Report, file: &Path) -> Result<(), Error> {
    let part = file.with_extension("part");
    report::write_json(std::slice::from_ref(report), &part)?;
    fs::rename(&part, file).map_err(|e| Error::io("renaming to", file, e))
}
