//! Steps of a task: each prints its name, its duration and how it ended.

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

/// The steps of one task so far.
#[derive(Default)]
pub(crate) struct Steps {
    lines: Vec<String>,
    failed: bool,
}

impl Steps {
    /// Runs one step. A failure does not stop the next: one run shows everything.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Outcome>) {
        println!("==> {name}");
        let start = Instant::now();
        let outcome = step();
        let line = match outcome {
            Ok(Outcome::Passed) => format!("ok      {name} ({})", seconds(start.elapsed())),
            Ok(Outcome::Skipped(why)) => format!("skipped {name}: {why}"),
            Ok(Outcome::Failed) => {
                self.failed = true;
                format!("FAILED  {name} ({})", seconds(start.elapsed()))
            }
            Err(error) => {
                self.failed = true;
                format!("FAILED  {name}: {error:#}")
            }
        };
        println!("<== {line}\n");
        self.lines.push(line);
    }

    /// Prints the summary; true when no step failed.
    pub(crate) fn finish(self) -> bool {
        println!("Summary:");
        for line in &self.lines {
            println!("  {line}");
        }
        !self.failed
    }
}

/// Runs `command` with its output on ours.
pub(crate) fn passes(command: &mut Command) -> Result<Outcome> {
    let shown = show(command);
    println!("    $ {shown}");
    let status = command.status().map_err(|e| anyhow::anyhow!("{shown}: {e}"))?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
