//! A command, with the kernel's account of it.
//!
//! `wait4` tells what a child has used only of all children together, at their end. So a process of
//! our own program runs the command and nothing else, and prints the account of its children. It
//! begins a process group, so that an interruption ends both.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::{Value, json};

use super::words;
use crate::error::fail;
use crate::{Error, interrupt};

/// The command that the load test gives its own program.
pub(crate) const COMMAND: &str = "measured-command";

/// What a command has used.
pub(super) struct Measured {
    /// The time of each run, from its start to its end.
    pub(super) seconds: Vec<f64>,
    /// User and system time of all runs, in seconds.
    pub(super) cpu: f64,
    /// The most memory that was ever resident, in bytes.
    pub(super) peak: f64,
}

/// A command to run.
pub(super) struct Task {
    words: Vec<OsString>,
    input: PathBuf,
    output: PathBuf,
    dir: PathBuf,
}

impl Task {
    pub(super) fn new(program: &Path, args: &[&str], dir: &Path) -> Self {
        let mut all = vec![program.into()];
        all.extend(words(args));
        let nowhere = PathBuf::from("/dev/null");
        Self { words: all, input: nowhere.clone(), output: nowhere, dir: dir.to_owned() }
    }

    pub(super) fn word(mut self, word: &str) -> Self {
        self.words.push(word.into());
        self
    }

    pub(super) fn file(mut self, path: &Path) -> Self {
        self.words.push(path.into());
        self
    }

    pub(super) fn from(self, input: &Path) -> Self {
        Self { input: input.to_owned(), ..self }
    }

    pub(super) fn to(self, output: &Path) -> Self {
        Self { output: output.to_owned(), ..self }
    }

    /// Runs it so many times; every run must succeed.
    pub(super) fn run(&self, runs: usize) -> Result<Measured, Error> {
        let own =
            std::env::current_exe().map_err(|e| Error::Io("finding our own program".into(), e))?;
        let errors = self.dir.join("errors");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |e| Error::io("creating", &path, e)
        };
        let mut command = Command::new(own);
        command.arg(COMMAND).arg(runs.to_string());
        command.arg(&self.input).arg(&self.output).args(&self.words);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &self.dir);
        }
        command.env("OVS_SYSLOG_METHOD", "null").process_group(0).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(File::create(&errors).map_err(failed(&errors))?);
        let child = command.spawn().map_err(|e| Error::Io("starting a command".into(), e))?;
        let group = interrupt::Group::remember(child.id());
        let output = child.wait_with_output()?;
        drop(group);
        let account: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let Some(account) = account.filter(|_| output.status.success()) else {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            fail!("{:?} failed: {}", self.words, said.trim());
        };
        let number = |name: &str| account[name].as_f64().unwrap_or_default();
        let seconds = account["seconds"].as_array().into_iter().flatten();
        Ok(Measured {
            seconds: seconds.filter_map(Value::as_f64).collect(),
            cpu: number("cpu"),
            peak: number("peak"),
        })
    }
}

/// Runs a command so many times and prints what it used.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let [runs, input, output, program, words @ ..] = args else {
        return Err(Error::Usage(format!("{COMMAND} needs RUNS, IN, OUT and PROGRAM")));
    };
    let runs: usize = runs.parse().map_err(|_| Error::Usage(format!("{COMMAND}: {runs} runs")))?;
    let mut seconds = Vec::with_capacity(runs);
    for _ in 0..runs {
        let input = File::open(input).map_err(|e| Error::io("opening", input.as_ref(), e))?;
        let output = File::create(output).map_err(|e| Error::io("creating", output.as_ref(), e))?;
        let mut command = Command::new(program);
        command.args(words).stdin(input).stdout(output);
        let start = Instant::now();
        let status = command.status().map_err(|e| Error::io("starting", program.as_ref(), e))?;
        seconds.push(start.elapsed().as_secs_f64());
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(std::io::Error::from)?;
    let micros = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
    let cpu = micros(usage.user_time()) + micros(usage.system_time());
    // Linux counts in KiB.
    let peak = usage.max_rss() as f64 * 1024.0;
    println!("{}", json!({"seconds": seconds, "cpu": cpu, "peak": peak}));
    Ok(ExitCode::SUCCESS)
}
