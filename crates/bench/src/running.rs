//! A server that is up: started in a folder of its own, measured, stopped.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::Error;
use crate::client::{Client, Target};
use crate::dbfile;
use crate::error::fail;
use crate::interrupt;
use crate::pki::Pki;
use crate::procfs::{self, Memory};
use crate::report::Figures;
use crate::sampler::Sampler;

/// How long a server may take until it listens: the largest databases take the reference half a
/// minute on a quiet machine.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a server may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// The database file and the socket in a server's folder.
pub(crate) const FILE: &str = "db";
pub(crate) const SOCKET: &str = "sock";
pub(crate) const CONTROL: &str = "ctl";
/// Where a server listens with TLS.
const LOOPBACK: &str = "127.0.0.1";
/// Lines of a server's log shown with a failure.
const LOG_LINES: usize = 5;

/// What a server's database begins as.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// An empty database of this schema.
    Schema(&'a Value),
    /// A copy of this database file.
    File(&'a Path),
    /// What this makes at the path that it is given.
    Made(&'a dyn Fn(&Path) -> Result<(), Error>),
    /// No file: the rows of another server, as `relay:DB:REMOTES`.
    Relay(&'a str),
}

impl Source<'_> {
    /// Makes the database file at `path`.
    pub(crate) fn create_file(self, path: &Path) -> Result<(), Error> {
        match self {
            Self::Schema(schema) => dbfile::create(path, schema),
            Self::File(from) => fs::copy(from, path)
                .map(drop)
                .map_err(|e| Error::io("copying a database to", path, e)),
            Self::Made(make) => make(path),
            Self::Relay(_) => Ok(()),
        }
    }

    /// The database as a server's command line names it.
    pub(crate) fn argument(self, dir: &Path) -> OsString {
        match self {
            Self::Relay(relay) => relay.into(),
            Self::Schema(_) | Self::File(_) | Self::Made(_) => dir.join(FILE).into(),
        }
    }
}

/// A server that is up.
pub(crate) struct Running {
    /// Where the server listens.
    pub(crate) target: Target,
    /// The server's process, where it is known.
    pub(crate) pid: Option<u32>,
    file: Option<PathBuf>,
    sampler: Option<Sampler>,
    own: Option<Own>,
}

/// What is ours to stop and remove.
struct Own {
    command: Command,
    child: Child,
    dir: PathBuf,
    log: PathBuf,
    started: Instant,
}

/// How a server is brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By the administrators' command `exit`, as packages stop servers; a leader may hand over.
    Asked,
    /// By TERM, and by KILL where that takes too long.
    Clean,
    /// By KILL, in the middle of whatever it does.
    Killed,
}

/// Starts what `command` gives in a new folder and waits until it listens.
pub(crate) fn launch(
    name: &str,
    parent: &Path,
    pki: Option<&Pki>,
    command: &dyn Fn(&Path) -> Result<Command, Error>,
) -> Result<Running, Error> {
    let dir = make_dir(parent)?;
    let log = dir.join("log");
    let mut command = command(&dir)?;
    let started = Instant::now();
    let child = interrupt::start_server(|| spawn(&mut command, &dir, &log))?;
    let pid = child.id();
    let mut running = Running {
        target: Target::Unix(dir.join(SOCKET)),
        pid: Some(pid),
        file: Some(dir.join(FILE)),
        sampler: Some(Sampler::start(pid)),
        own: Some(Own { command, child, dir, log, started }),
    };
    running.wait_until_listening(name, pki)?;
    Ok(running)
}

/// A new folder of our own, named so that two runs at a time do not meet.
fn make_dir(parent: &Path) -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let parent = parent.canonicalize().map_err(|e| Error::io("finding", parent, e))?;
    let dir = parent.join(format!("weir-bench-{}-{n}", std::process::id()));
    interrupt::remember_path(&dir);
    fs::create_dir(&dir).map_err(|e| Error::io("creating", &dir, e))?;
    Ok(dir)
}

/// The command line of a server. One that goes by its link's name gets such a link.
pub(crate) fn server_command(
    program: &Path,
    dir: &Path,
    pki: Option<&Pki>,
    source: Source<'_>,
) -> Result<Command, Error> {
    let named = program.file_name().is_some_and(|name| name == "ovsdb-server");
    let start = if named { program.to_owned() } else { dir.join("ovsdb-server") };
    if !named {
        symlink(program, &start).map_err(|e| Error::io("linking", &start, e))?;
    }
    let mut command = Command::new(start);
    command.arg("-vconsole:warn");
    if let Some(pki) = pki {
        // The log says which port it got.
        command.arg("-vsocket_util:console:info").arg(format!("--remote=pssl:0:{LOOPBACK}"));
        pki.serve(&mut command);
    } else {
        command.arg(format!("--remote=punix:{}", dir.join(SOCKET).display()));
    }
    command.arg(format!("--unixctl={}", dir.join(CONTROL).display())).arg(source.argument(dir));
    Ok(command)
}

/// CPU time so far of several servers in nanoseconds, as far as their processes are known.
pub(crate) fn cpu_nanos(servers: &[Running]) -> Result<Option<u64>, Error> {
    let of_each: Result<Vec<_>, _> = servers.iter().map(Running::cpu_nanos).collect();
    Ok(of_each?.into_iter().sum())
}

fn spawn(command: &mut Command, dir: &Path, log: &Path) -> Result<Child, Error> {
    let output = File::create(log).map_err(|e| Error::io("creating", log, e))?;
    command
        .env("OVS_RUNDIR", dir)
        .env("OVS_LOGDIR", dir)
        .env("OVS_DBDIR", dir)
        .env("OVS_SYSLOG_METHOD", "null")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let program = command.get_program().to_owned();
    command.spawn().map_err(|e| Error::io("starting", Path::new(&program), e))
}

impl Running {
    /// A server that somebody else runs.
    pub(crate) fn found(target: Target, pid: Option<u32>, file: Option<PathBuf>) -> Self {
        Self { target, pid, file, sampler: pid.map(Sampler::start), own: None }
    }

    /// Ends a server of our own and starts it again on the same file, socket and folder.
    pub(crate) fn restart(&mut self, name: &str, end: End, pki: Option<&Pki>) -> Result<(), Error> {
        self.stop(end);
        self.start_again(name, pki)
    }

    /// Ends a server of our own; its file stays.
    pub(crate) fn stop(&mut self, end: End) {
        self.sampler = None;
        if let Some(own) = &mut self.own {
            own.stop(end);
        }
    }

    /// Starts a server of our own that has been stopped, on the same file, socket and folder.
    pub(crate) fn start_again(&mut self, name: &str, pki: Option<&Pki>) -> Result<(), Error> {
        let Some(own) = &mut self.own else { fail!("{name}: not ours to start again") };
        own.started = Instant::now();
        let Own { command, dir, log, .. } = own;
        own.child = interrupt::start_server(|| spawn(command, dir, log))?;
        let pid = own.child.id();
        self.pid = Some(pid);
        self.sampler = Some(Sampler::start(pid));
        self.wait_until_listening(name, pki)
    }

    pub(crate) fn is_found(&self) -> bool {
        self.own.is_none()
    }

    /// Whether the process is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.pid.is_some_and(procfs::has_ended)
    }

    /// CPU time so far in nanoseconds, where the process is known.
    pub(crate) fn cpu_nanos(&self) -> Result<Option<u64>, Error> {
        self.pid.map(procfs::cpu_nanos).transpose()
    }

    /// Memory now, where the process is known.
    pub(crate) fn memory(&self) -> Result<Option<Memory>, Error> {
        self.pid.map(procfs::memory).transpose()
    }

    /// Lets the peak begin anew at what is resident now, where the kernel allows that.
    pub(crate) fn reset_peak(&self) {
        if let Some(pid) = self.pid {
            procfs::reset_peak(pid);
        }
    }

    /// How long ago the server was started.
    pub(crate) fn age(&self) -> Duration {
        self.own.as_ref().map_or(Duration::ZERO, |own| own.started.elapsed())
    }

    /// Where the server takes administrators' commands.
    pub(crate) fn control(&self) -> Option<Target> {
        self.own.as_ref().map(|own| Target::Unix(own.dir.join(CONTROL)))
    }

    /// The database file, where it is known.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Lines that the server has logged so far, where its log is ours.
    pub(crate) fn log_lines(&self) -> Option<usize> {
        let log = fs::read(&self.own.as_ref()?.log).ok()?;
        Some(memchr::memchr_iter(b'\n', &log).count())
    }

    /// The database file's size in bytes, where the file is known.
    pub(crate) fn file_size(&self) -> Option<u64> {
        Some(fs::metadata(self.file.as_ref()?).ok()?.len())
    }

    /// Adds memory and file size at the end of a run, and memory over time.
    pub(crate) fn finish(&self, section: &str, figures: &mut Figures) -> Result<(), Error> {
        if let Some(memory) = self.memory()? {
            let peak = memory.peak.max(self.sampler.as_ref().map_or(0, Sampler::peak));
            figures.push(section, "RSS at the end MB", 1, memory.rss as f64 / 1e6);
            figures.push(section, "peak RSS MB", 1, peak as f64 / 1e6);
        }
        if let Some(size) = self.file_size() {
            figures.push(section, "file MB", 1, size as f64 / 1e6);
        }
        if let Some(sampler) = &self.sampler {
            figures.draw(sampler.curve());
        }
        Ok(())
    }

    /// Empties the database of a server that somebody else runs, or refuses where it holds rows
    /// that are not ours.
    pub(crate) fn make_empty(&self, schema: &Value, ours: bool) -> Result<(), Error> {
        let db = &schema["name"];
        let mut client = Client::connect(&self.target)?;
        let tables = schema["tables"].as_object().into_iter().flat_map(|tables| tables.keys());
        let mut deletes = vec![db.clone()];
        for table in tables {
            let select = json!({"op": "select", "table": table, "where": [], "columns": ["_uuid"]});
            let results = client.transact(&json!([db, select]))?;
            let empty = results[0]["rows"].as_array().is_none_or(Vec::is_empty);
            if !empty && !ours {
                fail!("table {table} of {db} has rows; --clear deletes all rows of the database");
            }
            deletes.push(json!({"op": "delete", "table": table, "where": []}));
        }
        client.transact(&Value::Array(deletes)).map(drop)
    }

    /// Waits until the server listens; with TLS, learns from its log where that is.
    fn wait_until_listening(&mut self, name: &str, pki: Option<&Pki>) -> Result<(), Error> {
        let start = Instant::now();
        while !self.is_listening(name, pki)? {
            if let Some(own) = &mut self.own
                && let Some(status) = own.child.try_wait()?
            {
                let log = fs::read_to_string(&own.log).unwrap_or_default();
                fail!("{name}: the server ended at once ({status}): {}", log.trim());
            }
            if start.elapsed() > START_TIMEOUT {
                fail!("{name}: the server does not listen");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn is_listening(&mut self, name: &str, pki: Option<&Pki>) -> Result<bool, Error> {
        let (Some(pki), Some(own)) = (pki, &self.own) else {
            return Ok(self.target.connect().is_ok());
        };
        let log = fs::read_to_string(&own.log).unwrap_or_default();
        let Some(port) = port_in(&log) else { return Ok(false) };
        let method = format!("ssl:{LOOPBACK}:{port}");
        self.target = Target::parse(&method, Some(pki.connector.clone()))?;
        // What is wrong with TLS will not become right.
        self.target.connect().map(|_| true).map_err(|e| self.explain(name, &e))
    }

    /// A failure with the server's name and the end of its log.
    pub(crate) fn explain(&self, name: &str, error: &Error) -> Error {
        let log = self.own.as_ref().map(|own| fs::read_to_string(&own.log).unwrap_or_default());
        let lines: Vec<_> = log.iter().flat_map(|log| log.lines().rev().take(LOG_LINES)).collect();
        let tail: String = lines.into_iter().rev().map(|line| format!("\n  {line}")).collect();
        Error::Check(format!("{name}: {error}{tail}"))
    }
}

/// The port of a whole line such as `0:127.0.0.1: listening on port 6640`.
fn port_in(log: &str) -> Option<u16> {
    let (_, rest) = log.split_once(&format!("{LOOPBACK}: listening on port "))?;
    rest.split_once('\n')?.0.trim().parse().ok()
}

impl Own {
    fn ask_to_exit(&self) -> Result<(), Error> {
        let control = Target::Unix(self.dir.join(CONTROL));
        Client::connect(&control)?.call("exit", &json!([])).map(drop)
    }

    /// Ends the process and reaps it.
    fn stop(&mut self, end: End) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            // Reaped: its number may be somebody else's by now.
            interrupt::forget_server(self.child.id());
            return;
        }
        let signal = if end == End::Killed { Signal::KILL } else { Signal::TERM };
        if end == End::Asked && self.ask_to_exit().is_ok() {
            // The wait below is for what it does now.
        } else if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
        interrupt::forget_server(self.child.id());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > STOP_TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut own) = self.own.take() else { return };
        own.stop(End::Clean);
        let _ = fs::remove_dir_all(&own.dir);
        interrupt::forget_path(&own.dir);
    }
}
