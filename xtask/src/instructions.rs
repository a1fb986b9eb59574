//! `cargo xtask instructions`: what one transaction costs in instructions and system calls,
//! against the baseline in `xtask/baselines/instructions.toml`.
//!
//! 1. The fixed workload `instructions` of `weir-server` runs under callgrind twice, with N and
//!    2 N transactions. The difference divided by N is a transaction, without the start. Functions
//!    are counted by the crate that they belong to.
//! 2. `weir bench set` with one writer runs against a server under `strace -c`, likewise twice.
//!
//! Neither depends on how busy the machine is. The compiler matters, so the baseline names it.

mod callgrind;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use toml::Table;

use crate::step::{Outcome, passes};
use crate::tools::{self, cargo, has, program, target};

const BASELINE: &str = "xtask/baselines/instructions.toml";
/// Transactions of the shorter run.
const TRANSACTIONS: usize = 300;
const MONITORS: &str = "10";
/// A total may grow by so much, and the part of one crate by so much: inlining moves work between
/// crates.
const TOTAL_GROWTH_MAX: f64 = 1.03;
const PART_GROWTH_MAX: f64 = 1.10;
/// Growth below this is no growth, in instructions or calls.
const SLACK: f64 = 0.05;
const SLACK_INSTRUCTIONS: f64 = 400.0;
/// System calls of the shorter run: two blocks of `weir bench set`.
const CALLS_RUN: usize = 1_000;
/// How long strace may take to write its table once the server is gone.
const STRACE_PATIENCE: Duration = Duration::from_secs(20);

/// Section, name, figure.
type Counts = BTreeMap<String, BTreeMap<String, f64>>;

/// Compares with the baseline, or writes it.
pub(crate) fn run(root: &Path, update: bool) -> Result<bool> {
    match compare(root, update)? {
        Outcome::Passed => Ok(true),
        Outcome::Failed => Ok(false),
        Outcome::Skipped(why) => {
            println!("skipped: {why}");
            Ok(true)
        }
    }
}

/// Compares, as a step of `cargo xtask soak`, or updates.
pub(crate) fn compare(root: &Path, update: bool) -> Result<Outcome> {
    if !has(root, "valgrind") {
        return Ok(Outcome::Skipped("valgrind is not installed".into()));
    }
    let path = root.join(BASELINE);
    let compiler = compiler(root)?;
    let baseline = read(&path)?;
    if !update && baseline.compiler != compiler {
        let why = format!("the baseline is of {}, here is {compiler}", baseline.compiler);
        return Ok(Outcome::Skipped(why));
    }
    let mut counts = Counts::new();
    counts.insert("instructions".into(), instructions(root)?);
    match system_calls(root)? {
        Ok(calls) => drop(counts.insert("syscalls".into(), calls)),
        Err(why) => println!("    system calls are not counted: {why}"),
    }
    if update {
        write(&path, &compiler, &counts)?;
        println!("    written: {BASELINE}");
    }
    let worse = show(&baseline.counts, &counts);
    if worse.is_empty() || update {
        return Ok(Outcome::Passed);
    }
    println!("    more than the baseline allows: {}", worse.join(", "));
    println!("    if that is meant: cargo xtask instructions --update, with the reason");
    Ok(Outcome::Failed)
}

fn compiler(root: &Path) -> Result<String> {
    let output = program(root, "rustc").arg("--version").output().context("rustc --version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Instructions of one transaction by what they are for.
fn instructions(root: &Path) -> Result<BTreeMap<String, f64>> {
    let build = ["build", "--release", "-p", "weir-server", "--example", "instructions"];
    if !matches!(passes(cargo(root).args(build))?, Outcome::Passed) {
        bail!("the workload does not compile");
    }
    let workload = target(root).join("release/examples/instructions");
    let count = |transactions: usize| -> Result<BTreeMap<String, u64>> {
        let out = target(root).join(format!("callgrind.{transactions}"));
        let run = program(root, "valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(&workload)
            .args([&transactions.to_string(), MONITORS])
            .output()?;
        if !run.status.success() {
            bail!("valgrind: {}", String::from_utf8_lossy(&run.stderr));
        }
        let text = fs::read(&out).with_context(|| out.display().to_string())?;
        Ok(callgrind::by_purpose(&String::from_utf8_lossy(&text)))
    };
    let (short, long) = (count(TRANSACTIONS)?, count(2 * TRANSACTIONS)?);
    let per = |name: &str| {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0) as f64;
        (of(&long) - of(&short)) / TRANSACTIONS as f64
    };
    let mut counts: BTreeMap<_, _> = long.keys().map(|name| (name.clone(), per(name))).collect();
    counts.insert("total".into(), counts.values().sum());
    Ok(counts)
}

/// System calls of one transaction of a lone client, or why they cannot be counted.
fn system_calls(root: &Path) -> Result<std::result::Result<BTreeMap<String, f64>, String>> {
    let traces = program(root, "strace").args(["-c", "-o", "/dev/null", "true"]).output();
    if !traces.is_ok_and(|run| run.status.success()) {
        return Ok(Err("strace is not installed, or may not trace here".into()));
    }
    if !matches!(passes(&mut tools::build_programs(root))?, Outcome::Passed) {
        bail!("weir and its load tests do not compile");
    }
    let weir = tools::weir(root).canonicalize()?;
    let dir = target(root).join("strace");
    fs::create_dir_all(&dir)?;
    let dir = dir.canonicalize()?;
    let short = trace(root, &weir, &dir, CALLS_RUN)?;
    let long = trace(root, &weir, &dir, 2 * CALLS_RUN)?;
    let mut calls = BTreeMap::new();
    for (name, count) in &long {
        let before = short.get(name).copied().unwrap_or(0);
        let per = count.saturating_sub(before) as f64 / CALLS_RUN as f64;
        // What is called now and then has nothing to do with a transaction.
        if per >= SLACK {
            calls.insert(name.clone(), per);
        }
    }
    calls.insert("total".into(), calls.values().sum());
    Ok(Ok(calls))
}

/// Runs a server under strace for so many transactions; the calls by name.
fn trace(root: &Path, weir: &Path, dir: &Path, ops: usize) -> Result<BTreeMap<String, u64>> {
    use std::os::unix::fs::PermissionsExt;
    let (script, out) = (dir.join("server"), dir.join(format!("calls.{ops}")));
    // With -D the server is the process that the load test starts and stops.
    let text = format!(
        "#!/bin/sh\nexec strace -D -f -c -o '{}' '{}' server \"$@\"\n",
        out.display(),
        weir.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let _ = fs::remove_file(&out);
    let ops = format!("--ops={ops}");
    let load = ["bench", "set", "--sizes=0", "--writers=1", "--monitors=0", "--no-floor", &ops];
    let run = program(root, weir)
        .args(load)
        .arg(format!("--peer=traced={}", script.display()))
        .output()?;
    if !run.status.success() {
        bail!("weir bench: {}", String::from_utf8_lossy(&run.stderr));
    }
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(&out).unwrap_or_default();
        if text.contains("total") {
            return Ok(calls(&text));
        }
        if begun.elapsed() > STRACE_PATIENCE {
            bail!("strace wrote no table");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads strace's table: the fourth column is the calls, the last one the name.
fn calls(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, count) = (*words.last()?, words.get(3)?.parse().ok()?);
        (name != "total").then(|| (name.to_owned(), count))
    };
    text.lines().filter_map(line).collect()
}

struct Baseline {
    compiler: String,
    counts: Counts,
}

fn read(path: &PathBuf) -> Result<Baseline> {
    let Ok(text) = fs::read_to_string(path) else {
        return Ok(Baseline { compiler: "nothing".into(), counts: Counts::new() });
    };
    let table: Table = text.parse().context(BASELINE)?;
    let mut counts = Counts::new();
    for (section, of) in table.iter().filter_map(|(name, value)| Some((name, value.as_table()?))) {
        let number = |value: &toml::Value| {
            value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
        };
        let figures = of.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?)));
        counts.insert(section.clone(), figures.collect());
    }
    let compiler = table.get("rustc").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    Ok(Baseline { compiler, counts })
}

fn write(path: &Path, compiler: &str, counts: &Counts) -> Result<()> {
    let mut text = format!(
        "# Instructions and system calls of one transaction: see xtask/src/instructions.rs.\n\
         # cargo xtask instructions --update\n\nrustc = \"{compiler}\"\n"
    );
    for (section, figures) in counts {
        let _ = write!(text, "\n[{section}]\n");
        for (name, value) in figures {
            let digits = if section == "instructions" { 0 } else { 2 };
            let _ = writeln!(text, "{name} = {value:.digits$}");
        }
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, text).with_context(|| BASELINE.to_owned())
}

/// Prints both sides; the names of what has grown too much.
fn show(baseline: &Counts, counts: &Counts) -> Vec<String> {
    let mut worse = Vec::new();
    for (section, figures) in counts {
        println!("    {section} a transaction     baseline      now");
        for (name, now) in figures {
            let before = baseline.get(section).and_then(|of| of.get(name)).copied();
            let (mark, shown) = match before {
                Some(before) if is_worse(section, name, before, *now) => {
                    worse.push(format!("{section} of {name}"));
                    ("  WORSE", format!("{before:.1}"))
                }
                Some(before) => ("", format!("{before:.1}")),
                None => ("  new", "-".into()),
            };
            println!("      {name:<24} {shown:>10} {now:>10.1}{mark}");
        }
    }
    worse
}

fn is_worse(section: &str, name: &str, before: f64, now: f64) -> bool {
    let growth = if name == "total" { TOTAL_GROWTH_MAX } else { PART_GROWTH_MAX };
    let slack = match (section, name) {
        ("instructions", "total") => 0.0,
        ("instructions", _) => SLACK_INSTRUCTIONS,
        _ => SLACK,
    };
    now > before * growth + slack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_strace_is_read_with_and_without_errors() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 20.41    0.005879           5      1008         1 epoll_pwait
 41.86    0.012060          11      1006           sendto
------ ----------- ----------- --------- --------- ----------------
100.00    0.028807           6      4262        14 total
";
        let calls = calls(text);
        assert_eq!(calls, BTreeMap::from([("epoll_pwait".into(), 1008), ("sendto".into(), 1006)]));
    }

    #[test]
    fn what_grows_beyond_its_tolerance_is_named() {
        let of = |total: f64, engine: f64| {
            let figures = [("total".to_owned(), total), ("execute".to_owned(), engine)];
            Counts::from([("instructions".to_owned(), BTreeMap::from(figures))])
        };
        let baseline = of(80_000.0, 40_000.0);
        assert!(show(&baseline, &of(82_000.0, 43_000.0)).is_empty());
        assert!(show(&baseline, &of(50_000.0, 20_000.0)).is_empty(), "less is never wrong");
        assert_eq!(show(&baseline, &of(83_000.0, 41_000.0)), ["instructions of total"]);
        assert_eq!(show(&baseline, &of(80_000.0, 45_000.0)), ["instructions of execute"]);
        assert!(
            is_worse("syscalls", "total", 4.0, 5.0) && !is_worse("syscalls", "total", 4.0, 4.0)
        );
    }
}
