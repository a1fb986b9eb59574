//! Steps of a task: each prints its name and how many there are when it begins; then how it ended,
//! how long it took, of the clock and of the processors, and what comes next.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step ended, when it could be run at all.
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// Not run, and why: shown again at the end, so that nobody takes silence for success.
    Skipped(String),
}

/// The steps of one task, in their order.
#[derive(Default)]
pub(crate) struct Steps<'a> {
    steps: Vec<Step<'a>>,
}

struct Step<'a> {
    name: &'static str,
    run: Box<dyn FnOnce() -> Result<Outcome> + 'a>,
}

impl<'a> Steps<'a> {
    /// Adds one step, which runs with the others.
    pub(crate) fn add(&mut self, name: &'static str, run: impl FnOnce() -> Result<Outcome> + 'a) {
        self.steps.push(Step { name, run: Box::new(run) });
    }

    /// Runs all of them, even after one failed: one run shows everything. True when none failed.
    pub(crate) fn run(self) -> bool {
        let names: Vec<&str> = self.steps.iter().map(|step| step.name).collect();
        let start = Instant::now();
        let (mut lines, mut failed) = (Vec::new(), false);
        for (index, step) in self.steps.into_iter().enumerate() {
            let place = format!("[{}/{}]", index + 1, names.len());
            println!("{place} {}", step.name);
            let (begun, busy) = (Instant::now(), processors());
            let outcome = (step.run)();
            failed |= matches!(outcome, Ok(Outcome::Failed) | Err(_));
            let took = Took { clock: begun.elapsed(), processors: processors() - busy };
            let line = describe(step.name, &outcome, took);
            println!("{place} {line}; {}\n", outlook(&names[index + 1..], start.elapsed()));
            lines.push(line);
        }
        println!("Summary, {}:", seconds(start.elapsed()));
        for line in &lines {
            println!("  {line}");
        }
        !failed
    }
}

/// How long a step took.
#[derive(Clone, Copy)]
struct Took {
    clock: Duration,
    /// Of all processors, by what has ended meanwhile; on a busy machine the better measure.
    processors: Duration,
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, processors {}", seconds(self.clock), seconds(self.processors))
    }
}

/// What processes that we have waited for, and those that they have waited for, took of the processors
/// until now: nothing where proc(5) is not.
fn processors() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    waited_for(&stat).unwrap_or_default()
}

/// The fields `cutime` and `cstime`, which are in hundredths of a second on every Linux.
fn waited_for(stat: &str) -> Option<Duration> {
    // The program's name may have blanks; the third field follows its parenthesis.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<u64>);
    Some(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>().ok()?))
}

/// How a step ended, in one line.
fn describe(name: &str, outcome: &Result<Outcome>, took: Took) -> String {
    match outcome {
        Ok(Outcome::Passed) => format!("ok      {name} ({took})"),
        Ok(Outcome::Skipped(why)) => format!("skipped {name}: {why}"),
        Ok(Outcome::Failed) => format!("FAILED  {name} ({took})"),
        Err(error) => format!("FAILED  {name}: {error:#}"),
    }
}

/// What comes next, and how long all has taken so far.
fn outlook(rest: &[&str], all: Duration) -> String {
    match rest.first() {
        Some(next) => format!("{} so far, next: {next}", seconds(all)),
        None => format!("{} in all", seconds(all)),
    }
}

/// Runs `command` with its output on ours.
pub(crate) fn passes(command: &mut Command) -> Result<Outcome> {
    let shown = show(command);
    println!("    $ {shown}");
    let status = command.status().map_err(|e| anyhow::anyhow!("{shown}: {e}"))?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

/// A command as a person would type it.
pub(crate) fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_stop_the_next_step() {
        let mut ran = Vec::new();
        let order = std::cell::RefCell::new(&mut ran);
        let mut steps = Steps::default();
        steps.add("one", || {
            order.borrow_mut().push(1);
            Ok(Outcome::Failed)
        });
        steps.add("two", || {
            order.borrow_mut().push(2);
            Ok(Outcome::Passed)
        });
        assert!(!steps.run(), "one of them failed");
        assert_eq!(ran, [1, 2]);
    }

    #[test]
    fn a_skipped_step_is_no_failure() {
        let mut steps = Steps::default();
        steps.add("one", || Ok(Outcome::Skipped("no network".into())));
        assert!(steps.run());
    }

    #[test]
    fn each_step_says_what_comes_next() {
        let second = Duration::from_secs(1);
        assert_eq!(outlook(&["tests", "doctests"], second), "1.0 s so far, next: tests");
        assert_eq!(outlook(&[], second), "1.0 s in all");
        let took = Took { clock: second, processors: 2 * second };
        let line = describe("build", &Ok(Outcome::Passed), took);
        assert_eq!(line, "ok      build (1.0 s, processors 2.0 s)");
    }

    #[test]
    fn what_processes_took_is_read_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 10 20 0 0 5 6 120 30 20 0 1 0 99 1 2";
        assert_eq!(waited_for(stat), Some(Duration::from_millis(1500)));
        assert_eq!(waited_for(""), None);
    }
}
