//! Logging as the reference does it: modules, levels, three destinations, patterns.

mod date;
mod level;
mod limit;
mod modules;
mod pattern;
mod spec;
mod syslog;

pub use date::format_date;
pub use level::{Destination, Level};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use level::PerDestination;
use limit::{Limits, Verdict};
use modules::MODULES;
use pattern::Line;
use spec::Spec;
use syslog::{FACILITY_DAEMON, RFC5424, Syslog};
use weir_net::error::strerror;

use crate::fault;
use crate::recording::{Item, Recorder};

/// Mode of a new log file, less the umask.
const FILE_MODE: u32 = 0o660;

/// `%B` without a `FACILITY` setting: `local0`.
const FACILITY_PATTERN: u8 = 16 << 3;

/// The process's log; clones are the same log.
#[derive(Clone)]
pub struct Vlog {
    shared: Arc<Shared>,
    /// Writes lines down as well.
    recorder: Option<Arc<Recorder>>,
}

struct Shared {
    state: Mutex<State>,
    /// Whether messages are traced; asked for each of them, so it needs no lock.
    traces: AtomicBool,
}

struct State {
    application: String,
    subprogram: String,
    hostname: String,
    levels: BTreeMap<&'static str, PerDestination<Level>>,
    patterns: PerDestination<String>,
    facility: Option<u8>,
    file: LogFile,
    syslog: Syslog,
    /// `--syslog-target`.
    syslog_target: Option<Syslog>,
    limits: Limits,
    /// Modules whose lines are not limited.
    unlimited: BTreeSet<&'static str>,
    serial: u64,
    started: Instant,
    /// The time for limits, in milliseconds, if somebody sets it.
    clock_ms: Option<u64>,
}

#[derive(Default)]
struct LogFile {
    path: Option<PathBuf>,
    open: Option<File>,
}

impl Vlog {
    /// A log for the program of that name, with the levels and patterns of the reference.
    pub fn new(application: &str) -> Self {
        let info = PerDestination { syslog: Level::Info, console: Level::Info, file: Level::Info };
        let syslog = Syslog::new("libc").expect("a known method");
        let state = State {
            application: application.to_owned(),
            subprogram: String::new(),
            hostname: hostname(),
            levels: MODULES.iter().map(|module| (*module, info.clone())).collect(),
            patterns: PerDestination {
                syslog: "ovs|%05N|%c%T|%p|%m".to_owned(),
                console: "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m".to_owned(),
                file: "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m".to_owned(),
            },
            facility: None,
            file: LogFile::default(),
            syslog,
            syslog_target: None,
            limits: Limits::default(),
            unlimited: BTreeSet::new(),
            serial: 0,
            started: Instant::now(),
            clock_ms: None,
        };
        let shared = Shared { state: Mutex::new(state), traces: AtomicBool::new(false) };
        Self { shared: Arc::new(shared), recorder: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is logged.
    fn apply(&self, spec: Spec) {
        let mut state = self.state();
        state.apply(spec);
        self.note_tracing(&state);
    }

    /// A file that opens or closes can be the only place where messages are traced.
    fn note_tracing(&self, state: &State) {
        let traces = state.destinations("jsonrpc", Level::Dbg).next().is_some();
        self.shared.traces.store(traces, Ordering::Relaxed);
    }

    /// Whether every message is to be logged (`-vjsonrpc:dbg`).
    pub(crate) fn traces_messages(&self) -> bool {
        self.shared.traces.load(Ordering::Relaxed)
    }

    /// A handle to this log; what is logged through the handle is recorded as well.
    pub(crate) fn recorded(&self, recorder: Option<Arc<Recorder>>) -> Self {
        Self { recorder, ..self.clone() }
    }

    /// Limits go by this time from now on: they are the same in a recorded run and in its replay.
    pub(crate) fn set_clock_ms(&self, now_ms: u64) {
        self.state().clock_ms = Some(now_ms);
    }

    /// Logs one line.
    pub fn log(&self, module: &str, level: Level, text: &str) {
        self.state().log(module, level, text);
        self.record(module, level, text);
    }

    fn record(&self, module: &str, level: Level, text: &str) {
        if let Some(recorder) = &self.recorder {
            let (module, text) = (module.to_owned(), text.to_owned());
            recorder.item(&Item::Said { module, level, text });
        }
    }

    /// Logs one line unless somebody is logging: a panic may come from there.
    pub(crate) fn log_unless_busy(&self, module: &str, level: Level, text: &str) {
        if let Ok(mut state) = self.shared.state.try_lock() {
            state.log(module, level, text);
        }
    }

    /// Logs a line that a peer can provoke; `place` names where in the program, for the rate limit.
    pub fn log_limited(&self, place: &'static str, module: &str, level: Level, text: &str) {
        self.log_lines_limited(place, module, level, &[text]);
    }

    /// Logs lines that belong together, all of them or none; to the rate limit they are one.
    pub(crate) fn log_lines_limited(
        &self,
        place: &'static str,
        module: &str,
        level: Level,
        lines: &[impl AsRef<str>],
    ) {
        let verdict = self.state().judge(place, module, level);
        let Verdict::Pass(dropped) = verdict else { return };
        for line in dropped.as_deref().into_iter().chain(lines.iter().map(AsRef::as_ref)) {
            self.log(module, level, line);
        }
    }

    /// `vlog/enable-rate-limit` and `vlog/disable-rate-limit`; `None` is all modules.
    ///
    /// # Errors
    /// There is no such module.
    pub fn set_rate_limit(&self, module: Option<&str>, limited: bool) -> Result<(), String> {
        let chosen = match module {
            Some(name) => vec![spec::find_module(name).ok_or("unknown module")?],
            None => MODULES.to_vec(),
        };
        let unlimited = &mut self.state().unlimited;
        if limited {
            unlimited.retain(|module| !chosen.contains(module));
        } else {
            unlimited.extend(chosen);
        }
        Ok(())
    }

    /// Whether a line of this module and level would go anywhere.
    pub fn enabled(&self, module: &str, level: Level) -> bool {
        self.state().destinations(module, level).next().is_some()
    }

    /// Applies the argument of `-v` or `vlog/set`.
    ///
    /// # Errors
    /// The reference's text.
    pub fn set(&self, spec: &str) -> Result<(), String> {
        self.apply(Spec::parse(spec)?);
        Ok(())
    }

    /// `--syslog-method`.
    ///
    /// # Errors
    /// An unknown method.
    pub fn set_syslog_method(&self, method: &str) -> Result<(), String> {
        self.state().syslog = Syslog::new(method)?;
        Ok(())
    }

    /// `--syslog-target`: lines for the system log go there too. What is wrong with it is logged.
    pub fn set_syslog_target(&self, address: &str) {
        let mut state = self.state();
        let deprecated = "--syslog-target flag is deprecated, use --syslog-method instead";
        match Syslog::target(address) {
            Ok(target) => {
                state.syslog_target = Some(target);
                state.log("vlog", Level::Warn, deprecated);
            }
            Err(error) => state.log("socket_util", Level::Err, &error),
        }
    }

    /// Turns the console off; a detached daemon has none.
    pub fn close_console(&self) {
        let level = Level::Off;
        self.apply(Spec::Levels { module: None, destination: Some(Destination::Console), level });
    }

    /// The program that logs.
    pub fn application(&self) -> String {
        self.state().application.clone()
    }

    /// What `%T` and `%t` print; empty in the main process.
    pub fn set_subprogram(&self, name: &str) {
        name.clone_into(&mut self.state().subprogram);
    }

    /// Begins to log to a file. A failure is logged besides.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_file(&self, path: &Path) -> Result<(), String> {
        let mut state = self.state();
        let result = state.open_file(path).map_err(|error| strerror(&error));
        self.note_tracing(&state);
        result
    }

    /// `vlog/reopen`.
    ///
    /// # Errors
    /// No log file was ever configured, or it cannot be opened.
    pub fn reopen(&self) -> Result<(), String> {
        let mut state = self.state();
        let result = state.reopen_checked();
        self.note_tracing(&state);
        result
    }

    /// `vlog/close`.
    pub fn close_file(&self) {
        let mut state = self.state();
        fault::set_log_file(None);
        state.file.open = None;
        self.note_tracing(&state);
    }

    /// A monitor waits for days: it must not hold on to a file that has been rotated away.
    pub(crate) fn close_file_while_idle(&self) {
        if self.state().file.open.is_some() {
            self.log("vlog", Level::Info, "closing log file");
            self.close_file();
        }
    }

    /// The reply to `vlog/list`.
    pub fn list(&self) -> String {
        let mut out = String::from("                 console    syslog    file\n");
        out.push_str("                 -------    ------    ------\n");
        let state = self.state();
        for (module, levels) in &state.levels {
            let (console, syslog, file) =
                (levels.console.name(), levels.syslog.name(), levels.file.name());
            let unlimited = state.unlimited.contains(module);
            let note = if unlimited { "    (rate limiting disabled)" } else { "" };
            let _ =
                writeln!(out, "{module:<16}  {console:>4}       {syslog:>4}       {file:>4}{note}");
        }
        out
    }

    /// The reply to `vlog/list-pattern`.
    pub fn list_patterns(&self) -> String {
        let mut out = String::from("         prefix                            format\n");
        out.push_str("         ------                            ------\n");
        let state = self.state();
        for destination in Destination::ALL {
            let prefix = match destination {
                Destination::Syslog => state.syslog.prefix(),
                Destination::Console | Destination::File => "none",
            };
            let (name, pattern) = (destination.name(), state.patterns.get(destination));
            let _ = writeln!(out, "{name:<7}  {prefix:<32}  {pattern}");
        }
        out
    }
}

impl State {
    fn apply(&mut self, spec: Spec) {
        let chosen = |one: Option<Destination>| {
            Destination::ALL.into_iter().filter(move |each| one.is_none_or(|one| one == *each))
        };
        match spec {
            Spec::Levels { module, destination, level } => {
                let modules = self.levels.iter_mut();
                for (_, levels) in modules.filter(|(each, _)| module.is_none_or(|m| m == **each)) {
                    chosen(destination).for_each(|each| *levels.get_mut(each) = level);
                }
            }
            Spec::Pattern { destination, pattern } => {
                for each in chosen(destination) {
                    pattern.clone_into(self.patterns.get_mut(each));
                }
            }
            Spec::Facility(facility) => self.facility = Some(facility),
        }
    }

    /// Where a line goes.
    fn destinations(
        &self,
        module: &str,
        level: Level,
    ) -> impl Iterator<Item = Destination> + use<> {
        let levels = self.levels.get(module).or_else(|| self.levels.get("util")).cloned();
        let has_file = self.file.open.is_some();
        Destination::ALL.into_iter().filter(move |destination| {
            let wanted = levels.as_ref().is_some_and(|levels| *levels.get(*destination) >= level);
            wanted && (*destination != Destination::File || has_file)
        })
    }

    /// Whether a line goes anywhere at this rate.
    fn judge(&mut self, place: &'static str, module: &str, level: Level) -> Verdict {
        if self.destinations(module, level).next().is_none() {
            return Verdict::Drop;
        }
        if self.unlimited.contains(module) {
            return Verdict::Pass(None);
        }
        let uptime_ms = || u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now_ms = self.clock_ms.unwrap_or_else(uptime_ms);
        self.limits.judge(place, now_ms)
    }

    fn log(&mut self, module: &str, level: Level, text: &str) {
        let mut destinations = self.destinations(module, level).peekable();
        if destinations.peek().is_none() {
            return;
        }
        self.serial += 1;
        for destination in destinations {
            let mut out = String::with_capacity(text.len() + 80);
            if destination == Destination::Syslog {
                self.syslog_header(level, &mut out);
            }
            let line = self.line(module, level, text);
            pattern::format(self.patterns.get(destination), &line, &mut out);
            if destination != Destination::Syslog {
                out.push('\n');
            }
            match destination {
                Destination::Syslog => {
                    let mut copy = String::new();
                    if self.syslog_target.is_some() {
                        pattern::format(RFC5424, &line, &mut copy);
                    }
                    self.syslog.send(&out);
                    self.syslog_target.iter_mut().for_each(|target| target.send(&copy));
                }
                Destination::Console => {
                    let _ = std::io::stderr().write_all(out.as_bytes());
                }
                Destination::File => {
                    if let Some(file) = &mut self.file.open {
                        let _ = file.write_all(out.as_bytes());
                    }
                }
            }
        }
    }

    /// What stands in front of the pattern in the system log.
    fn syslog_header(&self, level: Level, out: &mut String) {
        let priority = self.facility.unwrap_or(FACILITY_DAEMON) | level.severity();
        let _ = write!(out, "<{priority}>");
        if self.syslog.is_libc() {
            // What syslog(3) adds.
            date::format("%h %e %T ", wall_ms(), date::Zone::Local, out);
            let _ = write!(out, "{}: ", self.application);
        }
    }

    fn line<'a>(&'a self, module: &'a str, level: Level, text: &'a str) -> Line<'a> {
        Line {
            application: &self.application,
            subprogram: &self.subprogram,
            module,
            level,
            text,
            serial: self.serial,
            wall_ms: wall_ms(),
            uptime_ms: self.started.elapsed().as_millis(),
            facility: self.facility.unwrap_or(FACILITY_PATTERN),
            hostname: &self.hostname,
        }
    }

    fn reopen_checked(&mut self) -> Result<(), String> {
        let path = self.file.path.clone().ok_or("Logging to file not configured")?;
        self.open_file(&path).map_err(|error| strerror(&error))
    }

    /// Logs to this file from now on; the one before says that it ends. Of the same file nothing
    /// is said.
    fn open_file(&mut self, path: &Path) -> std::io::Result<()> {
        let opened = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path);
        let file = opened.inspect_err(|error| {
            let error = strerror(error);
            let text = format!("failed to open {} for logging: {error}", path.display());
            self.log("vlog", Level::Warn, &text);
        })?;
        if let Some(before) = &self.file.open {
            if identity(before).is_some_and(|before| Some(before) == identity(&file)) {
                return Ok(());
            }
            self.log("vlog", Level::Info, "closing log file");
        }
        fault::set_log_file(Some(file.as_fd()));
        self.file = LogFile { path: Some(path.to_owned()), open: Some(file) };
        self.log("vlog", Level::Info, &format!("opened log file {}", path.display()));
        Ok(())
    }
}

/// Device and inode.
fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Milliseconds since 1970.
fn wall_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "-".to_owned() } else { name.trim().to_owned() }
}

#[cfg(test)]
mod tests;
