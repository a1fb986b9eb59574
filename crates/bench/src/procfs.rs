//! A server's CPU time and memory, as the kernel accounts for them.

use std::fs;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use rustix::process::{Pid as Process, Resource, Rlimit, getrlimit, prlimit};

use crate::Error;

/// CPU time of a process in nanoseconds, from its clock: user and system, all threads, those that
/// have ended too.
pub(crate) fn cpu_nanos(pid: u32) -> Result<u64, Error> {
    let read = || -> nix::Result<_> {
        let pid = i32::try_from(pid).map_err(|_| nix::Error::ESRCH)?;
        clock_getcpuclockid(Pid::from_raw(pid))?.now()
    };
    let time = read().map_err(|e| Error::Io(format!("CPU clock of process {pid}"), e.into()))?;
    Ok(Duration::from(time).as_nanos() as u64)
}

/// A process's memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Bytes that are resident now.
    pub(crate) rss: u64,
    /// The most bytes that were ever resident.
    pub(crate) peak: u64,
}

/// Reads `VmRSS` and `VmHWM`.
pub(crate) fn memory(pid: u32) -> Result<Memory, Error> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|e| Error::Io(format!("reading {path}"), e))?;
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib * 1024)
    };
    Ok(Memory { rss: field("VmRSS"), peak: field("VmHWM") })
}

/// Sets `VmHWM` to what is resident now. A process of another user refuses; then the peak is that
/// of its whole life.
pub(crate) fn reset_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// The number of a process's open files.
pub(crate) fn files(pid: u32) -> Result<u64, Error> {
    let path = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&path).map_err(|e| Error::Io(format!("reading {path}"), e))?;
    Ok(entries.count() as u64)
}

/// Lets a process that we have started open so many files and no more; returns what it was allowed
/// before.
pub(crate) fn limit_files(pid: u32, files: u64) -> Result<u64, Error> {
    // It has inherited ours, of which only the lower one changes.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = || {
        let pid = i32::try_from(pid).ok().and_then(Process::from_raw);
        let pid = pid.ok_or(rustix::io::Errno::SRCH)?;
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(files), maximum })
    };
    let before =
        limit().map_err(|e| Error::Io(format!("limiting the files of process {pid}"), e.into()))?;
    Ok(before.current.unwrap_or(u64::MAX))
}

/// Whether a process has ended, though nobody has reaped it.
pub(crate) fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// One line about the machine: CPUs that this thread may use, their model, the load of the last minute, the kernel.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown CPU", |(_, name)| name.trim());
    let all = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    // Those that we may use, which are those of the servers too.
    let cpus = match std::thread::available_parallelism().map_or(1, usize::from) {
        ours if ours < all => format!("{ours} of {all}"),
        ours => ours.to_string(),
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} x {model}, Linux {}, load average {load} at the start", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_uses_cpu_and_memory() {
        let pid = std::process::id();
        let before = cpu_nanos(pid).unwrap();
        let mut x = 1u64;
        while cpu_nanos(pid).unwrap() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let memory = memory(pid).unwrap();
        assert!(memory.rss > 0 && memory.peak > 0);
        assert!(cpu_nanos(u32::MAX).is_err());
        assert!(files(pid).unwrap() > 2 && files(u32::MAX).is_err());
        assert!(limit_files(u32::MAX, 100).is_err());
    }
}
