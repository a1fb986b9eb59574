//! `--monitor`: a parent that starts the server again when it crashes.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{DaemonOptions, Startup, fork_and_wait, leave_terminal, wait};
use crate::fault;
use crate::signals::status_text;
use crate::vlog::{Level, Vlog};

/// Restarts are at least this far apart.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// Longest backtrace that is logged; a pipe holds as much.
const BACKTRACE_BYTES_MAX: u64 = 64 << 10;

/// Signals that mean a crash: SEGV, ABRT, BUS, FPE, ILL, PIPE, XCPU, XFSZ, ALRM.
const CRASHES: [i32; 9] = [11, 6, 7, 8, 4, 13, 24, 25, 14];

/// Why the monitor stops monitoring.
pub(super) enum End {
    /// This process is the server, and tells here that it is ready.
    Child(io::PipeWriter),
    /// The server ended in order; exit with this status.
    Exit(u8),
    /// The server ended before it was ready.
    Died(ExitStatus),
}

/// Starts the server and watches it. `notify` is told once it is ready.
pub(super) fn run(
    options: &DaemonOptions,
    mut notify: Option<io::PipeWriter>,
    log: &Vlog,
) -> io::Result<End> {
    let mut crashes = 0;
    let mut last_restart: Option<Instant> = None;
    loop {
        let (mut backtrace, sink) = io::pipe()?;
        let pid = match fork_and_wait(Some(&mut notify))? {
            Startup::Child(writer) => {
                fault::set_monitor(sink.into());
                if crashes > 0 {
                    log.set_subprogram(&log.application());
                }
                return Ok(End::Child(writer));
            }
            Startup::Died(status) => return Ok(End::Died(status)),
            Startup::Ready(pid) => pid,
        };
        if crashes == 0 {
            log.set_subprogram("monitor");
            if options.detach {
                leave_terminal(options, log)?;
            }
        }
        if let Some(mut writer) = notify.take() {
            let _ = writer.write_all(b"\n");
        }
        drop(sink);
        log.close_file_while_idle();
        let status = wait(pid)?;
        let _ = log.reopen();
        tell_backtrace(&mut backtrace, log);
        let how = format!("pid {pid} died, {}", status_text(status));
        if !status.signal().is_some_and(|signal| CRASHES.contains(&signal)) {
            log.log("daemon_unix", Level::Info, &format!("{how}, exiting"));
            return Ok(End::Exit(0));
        }
        crashes += 1;
        let how = format!("{crashes} crashes: {how}");
        if let Some(remaining) = last_restart.and_then(remaining) {
            let text = format!("{how}, waiting until 10 seconds since last restart");
            log.log("daemon_unix", Level::Warn, &text);
            sleep(remaining);
        }
        last_restart = Some(Instant::now());
        log.log("daemon_unix", Level::Err, &format!("{how}, restarting"));
    }
}

/// What the server wrote when it died; nobody else has the other end.
fn tell_backtrace(pipe: &mut io::PipeReader, log: &Vlog) {
    let mut bytes = Vec::new();
    let _ = pipe.take(BACKTRACE_BYTES_MAX).read_to_end(&mut bytes);
    if !bytes.is_empty() {
        let text = String::from_utf8_lossy(&bytes);
        log.log("backtrace", Level::Warn, text.trim_end());
    }
}

fn remaining(last_restart: Instant) -> Option<Duration> {
    RESTART_INTERVAL.checked_sub(last_restart.elapsed()).filter(|left| !left.is_zero())
}
