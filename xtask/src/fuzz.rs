//! Fuzzing with libFuzzer, by the stable compiler: every parser that a peer, a file or a command
//! line reaches has a target in `fuzz/fuzz_targets`, and its corpus is kept in `fuzz/corpus`.
//!
//! `cargo xtask fuzz 3600 transact` fuzzes one target for an hour; what it finds new goes to the
//! build folder, and `cargo xtask fuzz --keep` merges what is worth keeping into the corpus.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::background::Background;
use crate::step::{Outcome, passes};
use crate::tools::{self, cargo, has};

/// Seconds for each target when nothing else is said.
const SECONDS: u32 = 60;

/// Seconds for each target in CI, where chance begins at the same place each time: above all it runs the corpora.
const SECONDS_IN_CI: u32 = 20;

/// All targets together take at most so many times the seconds of one, on however few processors.
const ROUNDS: usize = 3;

/// Longest that one input may take, in seconds, and most memory, in MB.
const LIMITS: [&str; 2] = ["-timeout=30", "-rss_limit_mb=2048"];

/// Where chance begins in a soak, so that it can be repeated; a task of its own begins anywhere.
const STEP_SEED: u32 = 1;

/// What cargo-fuzz passes as well; all of it is known to the stable compiler.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The only platform that servers run on and that libFuzzer is tried on.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Begins to build the targets beside something that leaves the processors idle now and then.
pub(crate) fn begin_build(root: &Path) -> Background {
    match unfit(root) {
        Some(_) => Background::none(),
        None => Background::begin(root, "fuzz", &build_command(root, "build")),
    }
}

/// Why nothing can be fuzzed here.
fn unfit(root: &Path) -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some(format!("the fuzzer is built for {PLATFORM}"));
    }
    (!has(root, "c++")).then(|| "libFuzzer wants a C++ compiler".to_owned())
}

/// As one of the checks: every target compiles, and so does what is compiled for fuzzing only. CI wants the
/// programs themselves for the soak, and compiles nothing twice.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    match (unfit(root), is_ci()) {
        (Some(why), _) => Ok(Outcome::Skipped(why)),
        (None, true) => build(root),
        (None, false) => passes(&mut build_command(root, "check")),
    }
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// As a step of the soak: every target for [`SECONDS`], or [`SECONDS_IN_CI`].
pub(crate) fn step(root: &Path, building: Background) -> Result<Outcome> {
    if let Some(why) = unfit(root) {
        return Ok(Outcome::Skipped(why));
    }
    building.wait();
    let seconds = if is_ci() { SECONDS_IN_CI } else { SECONDS };
    Ok(if fuzz(root, seconds, STEP_SEED, &[])? { Outcome::Passed } else { Outcome::Failed })
}

/// As a task of its own: `[SECONDS] [TARGET]...` or `--keep`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    if args == ["--keep"] {
        return keep(root);
    }
    let seconds = args.first().and_then(|first| first.parse().ok());
    let targets = if seconds.is_some() { &args[1..] } else { args };
    fuzz(root, seconds.unwrap_or(SECONDS), 0, targets)
}

fn fuzz(root: &Path, seconds: u32, seed: u32, chosen: &[&str]) -> Result<bool> {
    let all = targets(root)?;
    if let Some(unknown) = chosen.iter().find(|name| !all.iter().any(|each| each == *name)) {
        bail!("no target {unknown}; there are {}", all.join(", "));
    }
    let Outcome::Passed = build(root)? else { return Ok(false) };
    let chosen: Vec<&String> =
        all.iter().filter(|name| chosen.is_empty() || chosen.contains(&name.as_str())).collect();
    let mut passed = true;
    let at_once = chosen.len().div_ceil(ROUNDS).max(1);
    let rounds = chosen.len().div_ceil(at_once);
    for (round, some) in (1..).zip(chosen.chunks(at_once)) {
        println!("    round {round} of {rounds}, {seconds} s each: {} targets", some.len());
        let running = some.iter().map(|name| Running::start(root, name, seconds, seed));
        for running in running.collect::<Result<Vec<_>>>()? {
            passed &= running.finish()?;
        }
    }
    Ok(passed)
}

/// Names of the targets, sorted.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn build_folder(root: &Path) -> PathBuf {
    tools::target(root).join("fuzz")
}

fn build(root: &Path) -> Result<Outcome> {
    passes(&mut build_command(root, "build"))
}

/// `how` is a command of cargo; all of them share what build scripts have made.
fn build_command(root: &Path, how: &str) -> Command {
    let mut command = cargo(root);
    command.args([how, "--release", "--bins", "--target", PLATFORM, "--manifest-path"]);
    command.arg("fuzz/Cargo.toml").env("RUSTFLAGS", FLAGS);
    command.env("CARGO_TARGET_DIR", build_folder(root));
    command
}

/// The program of a target.
fn program(root: &Path, name: &str) -> Command {
    Command::new(build_folder(root).join(PLATFORM).join("release").join(name))
}

/// Where a target's new inputs go.
fn found(root: &Path, name: &str) -> PathBuf {
    build_folder(root).join("found").join(name)
}

/// What a target begins with.
fn corpus(root: &Path, name: &str) -> PathBuf {
    root.join("fuzz/corpus").join(name)
}

/// A target being fuzzed.
struct Running {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Running {
    fn start(root: &Path, name: &str, seconds: u32, seed: u32) -> Result<Self> {
        let (found, corpus) = (found(root, name), corpus(root, name));
        std::fs::create_dir_all(&found)?;
        let log = build_folder(root).join(format!("{name}.log"));
        let mut command = program(root, name);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-seed={seed}")).args(LIMITS);
        command.arg(format!("-artifact_prefix={}/{name}-", build_folder(root).display()));
        command.arg("-close_fd_mask=1").arg(&found);
        if corpus.exists() {
            command.arg(corpus);
        }
        let output = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self { name: name.to_owned(), log, child })
    }

    /// Waits for the end; shows what went wrong.
    fn finish(mut self) -> Result<bool> {
        let passed = self.child.wait()?.success();
        let log = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        let done = log.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or("");
        println!("    {:20} {} {done}", self.name, if passed { "ok" } else { "FAILED" });
        if !passed {
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(40)..].join("\n");
            println!("{end}\n    {}", self.log.display());
        }
        Ok(passed)
    }
}

/// Adds those new inputs to the corpora that reach something new.
fn keep(root: &Path) -> Result<bool> {
    let Outcome::Passed = build(root)? else { return Ok(false) };
    let mut passed = true;
    for name in targets(root)? {
        let (found, corpus) = (found(root, &name), corpus(root, &name));
        if found.exists() {
            std::fs::create_dir_all(&corpus)?;
            let mut command = program(root, &name);
            let merge = command.arg("-merge=1").args(LIMITS).arg(corpus).arg(found);
            passed &= matches!(passes(merge)?, Outcome::Passed);
        }
    }
    Ok(passed)
}
