//! A whole server process, from its options to its exit status.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

use weir_net::error::strerror;
use weir_net::{Address, Listener};
use weir_server::Config;

use crate::daemon::{Daemon, DaemonOptions, Role};
use crate::driver::{Driver, Replay, Scene, Turn};
use crate::fault::kill_on_fault;
use crate::limits::{kept_bytes_max, raise_descriptor_limit};
use crate::recording::{End, ReadError, Reader, Recorder, Recording, Writer};
use crate::seed::seed;
use crate::signals::{self, Signals};
use crate::unixctl::Commands;
use crate::version;
use crate::vlog::{Level, Vlog};

/// What the command line said. All paths are absolute.
pub struct Options {
    /// What the core is to serve; its seed is filled in here.
    pub server: Config,
    /// Where relative Unix sockets and the default admin socket are.
    pub rundir: PathBuf,
    /// `--unixctl`.
    pub unixctl: Unixctl,
    /// `--detach` and its like.
    pub daemon: DaemonOptions,
    /// `--log-file`.
    pub log_file: Option<PathBuf>,
    /// `--record` or `--replay`.
    pub recording: Recording,
    /// `--run`.
    pub run_command: Option<String>,
    /// What all messages on their way and at work may take together, in bytes; by default a part of
    /// the memory that there is.
    pub input_bytes_max: Option<usize>,
    /// Gives freed memory back to the system.
    pub trim_memory: fn(),
}

/// Where the admin socket is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unixctl {
    /// `RUNDIR/PROGRAM.PID.ctl`.
    #[default]
    Default,
    /// This path; a relative one is in `RUNDIR`.
    Path(PathBuf),
    /// `--unixctl=none`.
    None,
}

/// Why the server did not run, for standard error.
struct Fatal(Vec<String>);

impl From<String> for Fatal {
    fn from(line: String) -> Self {
        Self(vec![line])
    }
}

impl From<std::io::Error> for Fatal {
    fn from(error: std::io::Error) -> Self {
        strerror(&error).into()
    }
}

/// Runs a server until it is told to stop. Must be called while the process has one thread.
///
/// `log` has the options `-v` and `--syslog-method` applied already.
pub fn run(options: Options, log: &Vlog) -> ExitCode {
    let program = options.server.server_name;
    log_panics(log);
    match catch_unwind(AssertUnwindSafe(|| serve(options, log))) {
        Ok(Ok(code)) => code,
        Ok(Err(Fatal(lines))) => {
            for line in lines {
                eprintln!("{program}: {line}");
            }
            ExitCode::FAILURE
        }
        // Sockets and pid file are gone; a monitor sees a crash and starts the server again.
        Err(_) => std::process::abort(),
    }
}

/// A bug of ours is told where operators look.
fn log_panics(log: &Vlog) {
    let (log, default) = (log.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let what = info.payload_as_str().unwrap_or("?");
        log.log_unless_busy("util", Level::Emer, &format!("{place}: assertion failed: {what}"));
        default(info);
    }));
}

fn serve(mut options: Options, log: &Vlog) -> Result<ExitCode, Fatal> {
    if let Some(path) = &options.log_file {
        log.open_file(path).map_err(|_| Fatal(Vec::new()))?;
    }
    kill_on_fault();
    raise_descriptor_limit();
    let saved = options.daemon.monitor.then(state_file).transpose()?;
    let mut daemon = match Daemon::start(&options.daemon, log)? {
        Role::Parent(code) => return Ok(ExitCode::from(code)),
        Role::Server(daemon) => daemon,
    };
    let program = options.server.server_name;
    if let Recording::Replay(directory) = &options.recording {
        let replay = open_replay(&options, directory, log)?;
        return serve_again(replay, &options, daemon, log);
    }
    options.server.kept_bytes_max.get_or_insert_with(kept_bytes_max);
    options.server.seed = seed()?;
    options.server.saved = saved.as_ref().and_then(read_state);
    let config = options.server.clone();
    let commands = Commands::new(program, log.clone(), weir_server::unixctl::commands(&config));
    let mut driver = Driver::new(
        config,
        Signals::catch()?,
        commands,
        options.rundir.clone(),
        begin_recording(&options, log)?,
        options.trim_memory,
        log.clone(),
    )?;
    if let Some(bytes_max) = options.input_bytes_max {
        driver.limit_input(bytes_max);
    }
    if let Some(file) = saved {
        driver.save_in(file);
    }
    loop {
        match driver.run()? {
            Turn::Ready => begin_service(&mut driver, &mut daemon, &options, log)?,
            Turn::Failed(lines) => {
                driver.abandon();
                return Err(Fatal(lines));
            }
            Turn::Exit => {
                driver.finish(End::Exit)?;
                driver.abandon();
                return Ok(ExitCode::SUCCESS);
            }
            Turn::Signal(signal) => {
                log_signal(log, signal);
                driver.abandon();
                drop(daemon);
                signals::die_of(signal);
                return Ok(ExitCode::FAILURE);
            }
            Turn::Command(result) => {
                driver.finish(End::of_command(&result))?;
                driver.abandon();
                return command_ended(options.run_command.as_deref().unwrap_or_default(), result);
            }
        }
    }
}

fn log_signal(log: &Vlog, signal: i32) {
    let text = format!("terminating with signal {signal} ({})", signals::name(signal));
    log.log("fatal_signal", Level::Warn, &text);
}

/// `--record`
fn begin_recording(options: &Options, log: &Vlog) -> Result<Option<Arc<Recorder>>, Fatal> {
    let Recording::Record(directory) = &options.recording else { return Ok(None) };
    let writer = Writer::create(directory, options.server.server_name);
    let writer = writer.map_err(|(path, error)| no_recording(log, &path, &error))?;
    Ok(Some(Arc::new(Recorder::new(writer, log.clone()))))
}

/// `--replay`
fn open_replay(options: &Options, directory: &Path, log: &Vlog) -> Result<Replay, Fatal> {
    let program = options.server.server_name;
    let commands =
        Commands::new(program, log.clone(), weir_server::unixctl::commands(&options.server));
    let opened = Reader::open(directory, program);
    let (items, path) = opened.map_err(|(path, error)| match error {
        ReadError::Io(error) => no_recording(log, &path, &error),
        error => Fatal(vec![format!("{}: {error}", path.display())]),
    })?;
    Ok(Replay::new(items, path, options.server.clone(), commands, log.clone())?)
}

fn no_recording(log: &Vlog, path: &Path, error: &std::io::Error) -> Fatal {
    let error = strerror(error);
    log.log("ovs_replay", Level::Err, &format!("{}: fopen failed: {error}", path.display()));
    format!("failed to open replay file: {error}.").into()
}

/// Runs from a recording; its own failures aside, the end is as it was.
fn serve_again(
    mut replay: Replay,
    options: &Options,
    mut daemon: Daemon,
    log: &Vlog,
) -> Result<ExitCode, Fatal> {
    loop {
        match replay.run()? {
            Scene::Ready => {
                daemon.ready(log)?;
                log_version(options, log);
            }
            Scene::Failed(lines) => return Err(Fatal(lines)),
            Scene::End(End::Signal(signal)) => {
                log_signal(log, signal);
                return Ok(ExitCode::SUCCESS);
            }
            Scene::End(End::Command(result)) => {
                let result = result.map(ExitStatus::from_raw).map_err(std::io::Error::other);
                return command_ended(options.run_command.as_deref().unwrap_or_default(), result);
            }
            Scene::End(End::Exit | End::Failed) => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// The line that the log of a server begins with; with `--run` there is none.
fn log_version(options: &Options, log: &Vlog) {
    if options.run_command.is_none() {
        log.log("ovsdb_server", Level::Info, &version::line(options.server.server_name));
    }
}

/// A file without a name that the monitor and all its children share: what admin commands have
/// configured survives a crash in it.
fn state_file() -> std::io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("ovsdb-server-configuration", flags)?.into())
}

/// What a child before this one has saved, if there was one that came so far.
fn read_state(file: &File) -> Option<Vec<u8>> {
    let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

/// All is open: admins may come, the parent may go.
fn begin_service(
    driver: &mut Driver,
    daemon: &mut Daemon,
    options: &Options,
    log: &Vlog,
) -> Result<(), Fatal> {
    if let Some(listener) = admin_socket(options, log)? {
        driver.listen_for_admins(listener)?;
    }
    // While the terminal and the directory are still those of the user.
    if let Some(command) = &options.run_command {
        driver.start_command(command);
    }
    daemon.ready(log)?;
    log_version(options, log);
    Ok(())
}

fn admin_socket(options: &Options, log: &Vlog) -> Result<Option<Listener>, Fatal> {
    let path = match &options.unixctl {
        Unixctl::None => return Ok(None),
        Unixctl::Path(path) => options.rundir.join(path),
        Unixctl::Default => {
            let name = format!("{}.{}.ctl", options.server.server_name, std::process::id());
            options.rundir.join(name)
        }
    };
    let shown = path.display().to_string();
    let listener = Listener::open(&Address::PassiveUnix(path), &shown, None);
    listener.map(Some).map_err(|failure| {
        log.log(failure.module, Level::Err, &failure.text);
        let error = strerror(&failure.error);
        format!("{shown}: could not initialize control socket ({error})").into()
    })
}

/// The server's exit status follows the command's.
fn command_ended(command: &str, result: std::io::Result<ExitStatus>) -> Result<ExitCode, Fatal> {
    match result {
        Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
        Ok(status) => {
            Err(format!("{command}: child exited, {}", signals::status_text(status)).into())
        }
        Err(error) => {
            Err(format!("{command}: process failed to start ({})", strerror(&error)).into())
        }
    }
}
