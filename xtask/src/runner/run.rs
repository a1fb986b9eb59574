//! Runs one test in a process group of its own, until its end or its time limit.

use std::fmt;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::list::Test;

/// How long the processes of a test that is ended have to tidy up.
const GRACE: Duration = Duration::from_secs(5);

/// Between two looks at a process: at first, and at most.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(20);

/// A test that has run.
pub(super) struct Ran {
    pub(super) label: String,
    pub(super) end: End,
    pub(super) took: Duration,
    /// What a test that failed has written.
    pub(super) output: String,
}

/// How a test has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    /// How its process ended, or why it could not begin.
    Failed(String),
    /// The test's time was up.
    Hung,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(how) => f.write_str(how),
            Self::Hung => f.write_str("it did not end in time"),
        }
    }
}

/// Runs `test` for at most `limit`; no other test runs as the same `worker`.
pub(super) fn run(test: &Test, worker: usize, limit: Duration) -> Ran {
    let begun = Instant::now();
    // A file, not a pipe: a daemon that a test leaves behind would keep a pipe open.
    let file = std::env::temp_dir().join(format!("weir-test-{}-{worker}", std::process::id()));
    let end = match finish(&mut test.command(), &file, limit) {
        Ok(Some(status)) if status.success() => End::Passed,
        Ok(Some(status)) => End::Failed(status.to_string()),
        Ok(None) => End::Hung,
        Err(error) => End::Failed(format!("{error:#}")),
    };
    let output =
        if end == End::Passed { Vec::new() } else { std::fs::read(&file).unwrap_or_default() };
    let output = String::from_utf8_lossy(&output).into_owned();
    let _ = std::fs::remove_file(&file);
    Ran { label: test.label(), end, took: begun.elapsed(), output }
}

/// Runs `command` with its output in `file`; `None` if it had to be ended.
fn finish(command: &mut Command, file: &PathBuf, limit: Duration) -> Result<Option<ExitStatus>> {
    let output = File::create(file)?;
    command.stdout(output.try_clone()?).stderr(output).process_group(0);
    let mut child = command.spawn()?;
    if let Some(status) = wait(&mut child, limit)? {
        return Ok(Some(status));
    }
    signal(&child, "TERM");
    let ended = wait(&mut child, GRACE)?;
    // Also if the test itself is gone: those it has started may not be.
    signal(&child, "KILL");
    if ended.is_none() {
        child.wait()?;
    }
    Ok(None)
}

/// Waits for the end of `child`, for at most `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let begun = Instant::now();
    let mut pause = LOOK_FIRST;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(LOOK_MAX);
    }
}

/// Sends a signal to all processes of the group that `child` leads.
fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} -{}", child.id());
    // A group that is empty by now is no error.
    let _ = Command::new("sh").args(["-c", &kill]).current_dir(Path::new("/")).output();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    #[test]
    fn a_test_passes_by_its_status() {
        let ran = run(&Test::script("passes", "exit 0"), 100, LIMIT);
        assert_eq!((ran.end, ran.output.as_str()), (End::Passed, ""));
    }

    #[test]
    fn a_failure_is_shown_with_what_it_wrote() {
        let ran =
            run(&Test::script("fails", "echo expected 1; echo got 2 >&2; exit 3"), 101, LIMIT);
        assert!(matches!(ran.end, End::Failed(_)), "{}", ran.end);
        assert_eq!(ran.output, "expected 1\ngot 2\n");
    }

    #[test]
    fn a_test_that_hangs_is_ended_with_those_it_started() {
        let pid = std::env::temp_dir().join(format!("weir-hangs-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $! > {}; wait", pid.display());
        let begun = Instant::now();
        let ran = run(&Test::script("hangs", &script), 102, Duration::from_secs(2));
        assert_eq!(ran.end, End::Hung);
        assert!(begun.elapsed() < Duration::from_secs(500), "the sleep was not waited for");
        let started = std::fs::read_to_string(&pid).expect("it has begun").trim().to_owned();
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{started}/stat"));
            // A zombie is gone, too: whoever adopted it has not looked yet.
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !is_gone() {
            assert!(begun.elapsed() < LIMIT, "{started} is still there");
            std::thread::sleep(LOOK_MAX);
        }
        std::fs::remove_file(&pid).expect("it is there");
    }
}
