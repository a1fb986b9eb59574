//! Becoming a daemon: `--detach`, `--monitor`, `--pidfile` (ovsdb-server(1), "Daemon Options").
//!
//! With both, there are three processes: the one that the user started waits until the server is
//! ready; the monitor, its child, starts the server again when it crashes; the server is the
//! monitor's child and owns the pid file.

mod fork;
mod monitor;
mod pidfile;

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use weir_net::error::strerror;

use crate::vlog::{Level, Vlog};
use fork::Side;
use pidfile::PidFile;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// `--detach`.
    pub detach: bool,
    /// `--monitor`.
    pub monitor: bool,
    /// `--no-chdir`.
    pub no_chdir: bool,
    /// `--pidfile`, absolute.
    pub pidfile: Option<PathBuf>,
    /// `--overwrite-pidfile`.
    pub overwrite_pidfile: bool,
    /// Standard output stays open in the background, for a client that prints there.
    pub keep_stdout: bool,
    /// Standard error stays open as well.
    pub keep_stderr: bool,
}

/// Which process this has become.
pub enum Role {
    /// The one that does the work goes on.
    Server(Daemon),
    /// A parent that has nothing left to do but to exit with this status.
    Parent(u8),
}

/// The process that does the work. Dropping it removes the pid file.
pub struct Daemon {
    options: DaemonOptions,
    /// Tells the parent that the server is ready.
    notify: Option<io::PipeWriter>,
    _pidfile: Option<PidFile>,
}

impl Daemon {
    /// Forks as asked. No other thread may exist yet.
    ///
    /// # Errors
    /// The text for standard error.
    pub fn start(options: &DaemonOptions, log: &Vlog) -> Result<Role, String> {
        let mut notify = None;
        if options.detach {
            match fork_and_wait(None).map_err(|e| fork_error(&e))? {
                Startup::Child(writer) => notify = Some(writer),
                Startup::Ready(_) => return Ok(Role::Parent(0)),
                Startup::Died(status) => return died_early(status),
            }
            let _ = rustix::process::setsid();
        }
        if options.monitor {
            match monitor::run(options, notify, log).map_err(|e| fork_error(&e))? {
                monitor::End::Child(writer) => notify = Some(writer),
                monitor::End::Exit(code) => return Ok(Role::Parent(code)),
                monitor::End::Died(status) => return died_early(status),
            }
        }
        let overwrite = options.overwrite_pidfile;
        let pidfile = options.pidfile.as_deref().map(|path| PidFile::create(path, overwrite, log));
        let pidfile = pidfile.transpose().inspect_err(|error| {
            // Standard error says it anyway.
            let _ = log.set("daemon_unix:console:off");
            log.log("daemon_unix", Level::Emer, error);
        })?;
        Ok(Role::Server(Self { options: options.clone(), notify, _pidfile: pidfile }))
    }

    /// The server serves: leaves the terminal and releases the parent, in this order, so that nobody
    /// who has waited for the parent still reads from this process what belongs in its log.
    ///
    /// # Errors
    /// What dup2(2) or chdir(2) say.
    pub fn ready(&mut self, log: &Vlog) -> io::Result<()> {
        if self.options.detach {
            leave_terminal(&self.options, log)?;
        }
        if let Some(mut writer) = self.notify.take() {
            let _ = writer.write_all(b"\n");
        }
        Ok(())
    }
}

/// What was started in a terminal, and in some directory, holds on to neither.
fn leave_terminal(options: &DaemonOptions, log: &Vlog) -> io::Result<()> {
    if !options.no_chdir {
        std::env::set_current_dir("/")?;
    }
    log.close_console();
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    if !options.keep_stdout {
        rustix::stdio::dup2_stdout(&null)?;
    }
    if !options.keep_stderr {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(())
}

/// How the start of a child went.
enum Startup {
    /// This process is the child; it writes here when it is ready.
    Child(io::PipeWriter),
    /// The child with this id is ready.
    Ready(i32),
    /// The child ended before it was ready.
    Died(ExitStatus),
}

/// Forks; the parent waits until the child is ready. `drop_in_child` is what only the parent keeps.
fn fork_and_wait(drop_in_child: Option<&mut Option<io::PipeWriter>>) -> io::Result<Startup> {
    let (mut reader, writer) = io::pipe()?;
    match fork::fork()? {
        Side::Child => {
            if let Some(place) = drop_in_child {
                *place = None;
            }
            Ok(Startup::Child(writer))
        }
        Side::Parent(pid) => {
            drop(writer);
            let ready = matches!(reader.read(&mut [0]), Ok(1));
            if ready { Ok(Startup::Ready(pid)) } else { Ok(Startup::Died(wait(pid)?)) }
        }
    }
}

/// Waits for the end of a child.
fn wait(pid: i32) -> io::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_raw(pid);
    loop {
        match rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A child that exited has said why; its status is passed on.
fn died_early(status: ExitStatus) -> Result<Role, String> {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) if code != 0 => Ok(Role::Parent(code)),
        _ => {
            let how = crate::signals::status_text(status);
            Err(format!("fork child died before signaling startup ({how})"))
        }
    }
}

fn fork_error(error: &io::Error) -> String {
    format!("could not detach from foreground session ({})", strerror(error))
}
