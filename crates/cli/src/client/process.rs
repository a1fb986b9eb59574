//! The process around a command: its time limit, fatal signals, running in the background.
//!
//! A thread of its own waits for signals and for the end of the time limit, so that a command may
//! block wherever it likes. It starts behind the last fork.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_host::daemon::{Daemon, DaemonOptions, Role};
use weir_host::signals::{self, Signals};
use weir_host::vlog::{Level, Vlog};

use crate::program::{Failure, strerror};

/// The signal of a time limit (ovsdb-client(1), `--timeout`).
const SIGALRM: i32 = 14;

/// Files of this process that a fatal signal removes: its pid file and its admin socket.
static FILES: Mutex<Vec<PathBuf>> = Mutex::new(vec![]);

/// What a command must know of its process.
pub(super) struct Process {
    /// Seconds that the command may take.
    timeout: Option<u32>,
    guarded: Cell<bool>,
    daemon: RefCell<Option<Daemon>>,
}

impl Process {
    /// A process in the foreground.
    pub(super) fn new(timeout: Option<u32>) -> Self {
        Self { timeout, guarded: Cell::new(false), daemon: RefCell::new(None) }
    }

    /// A process that never begins to wait for signals.
    #[cfg(fuzzing)]
    pub(super) fn unguarded() -> Self {
        Self { timeout: None, guarded: Cell::new(true), daemon: RefCell::new(None) }
    }

    /// Begins to wait for signals and the end of the time limit.
    pub(super) fn guard(&self, log: &Vlog) {
        if self.guarded.replace(true) {
            return;
        }
        let Ok(signals) = Signals::catch() else { return };
        let (log, timeout) = (log.clone(), self.timeout);
        let limit = timeout.map(|seconds| Duration::from_secs(seconds.into()));
        // Without the thread a signal is noticed by nobody; the system has no room for one then.
        let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let signal = wait_for_signal(&signals, limit);
            let name = signals::name(signal);
            let text = format!("terminating with signal {signal} ({name})");
            log.log("fatal_signal", Level::Warn, &text);
            remove_files();
            signals::die_of(signal);
        });
    }

    /// Forks as asked; a parent ends here.
    pub(super) fn start(&self, options: &DaemonOptions, log: &Vlog) -> Result<(), Failure> {
        match Daemon::start(options, log).map_err(Failure::new)? {
            Role::Parent(status) => std::process::exit(status.into()),
            Role::Server(daemon) => {
                if let Some(path) = &options.pidfile {
                    remember_file(path.clone());
                }
                *self.daemon.borrow_mut() = Some(daemon);
                self.guard(log);
                Ok(())
            }
        }
    }

    /// Releases the parent that waits; further calls do nothing.
    pub(super) fn ready(&self, log: &Vlog) -> Result<(), Failure> {
        match self.daemon.borrow_mut().as_mut() {
            Some(daemon) => daemon.ready(log).map_err(|error| Failure::new(strerror(&error))),
            None => Ok(()),
        }
    }
}

/// Has a fatal signal remove this file.
pub(super) fn remember_file(path: PathBuf) {
    FILES.lock().unwrap_or_else(PoisonError::into_inner).push(path);
}

/// Forgets a file that is gone, or somebody else's.
pub(super) fn forget_file(path: &Path) {
    FILES.lock().unwrap_or_else(PoisonError::into_inner).retain(|file| file != path);
}

/// Removes the files of this process.
pub(super) fn remove_files() {
    for path in FILES.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = std::fs::remove_file(path);
    }
}

fn wait_for_signal(signals: &Signals, limit: Option<Duration>) -> i32 {
    let end = limit.map(|limit| std::time::Instant::now() + limit);
    loop {
        let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], timeout.as_ref());
        if let Some(signal) = signals.take() {
            return signal;
        }
        if left.is_some_and(|left| left.is_zero()) {
            return SIGALRM;
        }
    }
}
