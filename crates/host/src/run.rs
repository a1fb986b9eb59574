//! A whole server process, from its options to its exit status.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use weir_net::error::strerror;
use weir_net::{Address, Listener};
use weir_server::{Config, Server};

use crate::daemon::{Daemon, DaemonOptions, Role};
use crate::driver::{Driver, Turn};
use crate::fault::kill_on_fault;
use crate::limits::raise_descriptor_limit;
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
    /// `--run`.
    pub run_command: Option<String>,
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
    options.server.seed = seed()?;
    options.server.saved = saved.as_ref().and_then(read_state);
    let config = options.server.clone();
    let commands = Commands::new(program, log.clone(), weir_server::unixctl::commands(&config));
    let mut driver = Driver::new(
        |now| Server::new(now, config),
        Signals::catch()?,
        commands,
        options.rundir.clone(),
        options.trim_memory,
        log.clone(),
    )?;
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
                driver.finish()?;
                driver.abandon();
                return Ok(ExitCode::SUCCESS);
            }
            Turn::Signal(signal) => {
                let name = signals::name(signal);
                let text = format!("terminating with signal {signal} ({name})");
                log.log("fatal_signal", Level::Warn, &text);
                driver.abandon();
                drop(daemon);
                signals::die_of(signal);
                return Ok(ExitCode::FAILURE);
            }
            Turn::Command(result) => {
                driver.finish()?;
                driver.abandon();
                return command_ended(options.run_command.as_deref().unwrap_or_default(), result);
            }
        }
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
    let program = options.server.server_name;
    if let Some(listener) = admin_socket(options, log)? {
        driver.listen_for_admins(listener)?;
    }
    daemon.ready(log)?;
    match &options.run_command {
        Some(command) => driver.start_command(command),
        None => log.log("ovsdb_server", Level::Info, &version::line(program)),
    }
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
fn command_ended(
    command: &str,
    result: std::io::Result<std::process::ExitStatus>,
) -> Result<ExitCode, Fatal> {
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
