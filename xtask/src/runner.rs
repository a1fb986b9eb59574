//! Runs tests where cargo-nextest is not installed, which takes a minute to build: each test is a
//! process of its own with a time limit, twice as many at once as there are processors.
//!
//! 1. [`build`] has cargo compile all test programs; `list` reads from cargo where they are.
//! 2. Each program lists its tests.
//! 3. Workers take tests from one queue. A test that hangs is ended with all its processes.
//! 4. What failed is shown with its output, and at the end again by name.

mod list;
mod run;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::tools::cargo;
use list::Test;
use run::{End, Ran};

/// The task's name: `cargo xtask test` calls it in a process of its own, so that `tini` can be
/// its parent.
pub(crate) const TASK: &str = "run-tests";

/// How long a test may take. A machine with busy processors is slow, not broken: only a real hang
/// meets this. The same limit is in `.config/nextest.toml`.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// Tests at once for each processor: many wait for other processes most of their time.
const AT_ONCE: usize = 2;

/// Between two lines that say how far the run is.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// How many of the slowest tests are named at the end.
const SLOWEST: usize = 20;

/// The packages that have tests. Without a word about targets cargo builds examples as programs,
/// one of which tests run: that of the load tests.
pub(crate) const TARGETS: [&str; 1] = ["--workspace"];

/// Compiles all test programs.
pub(crate) fn build(root: &Path) -> Command {
    let mut build = cargo(root);
    build.arg("test").args(TARGETS).args(["--no-run", "--no-fail-fast"]);
    build
}

/// Runs the tests whose names contain one of `words`, or all; true when all passed.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let mut tests = Vec::new();
    for program in list::programs(root)? {
        tests.extend(program.tests()?);
    }
    tests.retain(|test| words.is_empty() || words.iter().any(|word| test.label().contains(word)));
    let total = tests.len();
    let start = Instant::now();
    let all = run_all(tests);
    let failed: Vec<&Ran> = all.iter().filter(|ran| !ran.passed()).collect();
    let mut slowest: Vec<&Ran> = all.iter().collect();
    slowest.sort_by_key(|ran| std::cmp::Reverse(ran.took));
    for ran in slowest.iter().take(SLOWEST) {
        println!("    slowest: {:.1} s {}", ran.took.as_secs_f64(), ran.label);
    }
    for ran in &failed {
        println!("    FAILED: {} ({})", ran.label, ran.end);
    }
    let took = start.elapsed().as_secs_f64();
    println!("    {} of {total} tests passed in {took:.1} s", total - failed.len());
    Ok(failed.is_empty() && total > 0)
}

/// Runs all of them, with a line about it now and then.
fn run_all(tests: Vec<Test>) -> Vec<Ran> {
    let next = AtomicUsize::new(0);
    let progress = Mutex::new(Progress::new(tests.len()));
    let workers = AT_ONCE * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (tests, next, progress) = (&tests, &next, &progress);
            scope.spawn(move || {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ran = run::run(test, worker, TEST_LIMIT);
                    progress.lock().expect("no worker panics with the lock").add(ran);
                }
            });
        }
    });
    progress.into_inner().expect("no worker panics with the lock").done
}

/// What has run so far.
struct Progress {
    total: usize,
    done: Vec<Ran>,
    failed: usize,
    begun: Instant,
    shown: Instant,
}

impl Progress {
    fn new(total: usize) -> Self {
        let now = Instant::now();
        Self { total, done: Vec::with_capacity(total), failed: 0, begun: now, shown: now }
    }

    fn add(&mut self, ran: Ran) {
        if !ran.passed() {
            self.failed += 1;
            println!("    FAILED: {} ({})\n{}", ran.label, ran.end, ran.output);
        }
        self.done.push(ran);
        if self.shown.elapsed() >= PROGRESS_EVERY {
            self.shown = Instant::now();
            let (done, took) = (self.done.len(), self.begun.elapsed().as_secs());
            println!("    {done} of {} tests, {} failed, {took} s", self.total, self.failed);
        }
    }
}

impl Ran {
    fn passed(&self) -> bool {
        self.end == End::Passed
    }
}
