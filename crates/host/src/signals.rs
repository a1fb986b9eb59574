//! Signals that end a process, as readiness of a file descriptor.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// The signals after which the reference cleans up.
const FATAL: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGALRM];

/// Catches fatal signals.
pub struct Signals {
    wake: UnixStream,
    /// The first one that came, 0 for none.
    caught: Arc<AtomicUsize>,
}

impl Signals {
    /// Begins to catch; a signal that the parent ignores (as nohup(1) does) stays ignored. A file that may not become
    /// longer (RLIMIT_FSIZE, setrlimit(2)) does not end the process: write(2) says so, as of a full disk.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn catch() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let caught = Arc::new(AtomicUsize::new(0));
        let ignored = ignored_signals();
        for signal in FATAL.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Self { wake, caught })
    }

    /// Catches nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        let (wake, sender) = UnixStream::pair().expect("a test has descriptors");
        // Its end would be news.
        std::mem::forget(sender);
        wake.set_nonblocking(true).expect("a socket of our own");
        Self { wake, caught: Arc::default() }
    }

    /// The signal that came, if any.
    pub fn take(&self) -> Option<i32> {
        let mut bytes = [0; 16];
        while matches!((&self.wake).read(&mut bytes), Ok(count) if count > 0) {}
        i32::try_from(self.caught.swap(0, Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Ends the process as the signal would have ended it.
pub fn die_of(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// Bit N-1 for every ignored signal N (proc_pid_status(5)).
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// What strsignal(3) says.
pub fn name(signal: i32) -> String {
    let name = match signal {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        other => return format!("Unknown signal {other}"),
    };
    name.to_owned()
}

/// How a process ended, as the reference puts it.
pub(crate) fn status_text(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    let core = if status.core_dumped() { ", core dumped" } else { "" };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed ({}){core}", name(signal)),
        (None, None) => "stopped".to_owned(),
    }
}
