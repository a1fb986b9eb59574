//! A server's CPU time and memory, as the kernel accounts for them.

use std::fs;

use crate::Error;

/// CPU time of a process in nanoseconds: what the scheduler accounts to its live threads (the
/// first field of `schedstat`), or where threads have ended and took more with them, the
/// process's total in clock ticks.
pub(crate) fn cpu_nanos(pid: u32) -> Result<u64, Error> {
    Ok(live_threads(pid)?.max(ticks(pid).unwrap_or(0)))
}

/// User and system time of `/proc/PID/stat`, with that of threads that have ended.
fn ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map_while(|n| n.parse::<u64>().ok());
    let ticks = fields.next()? + fields.next()?;
    Some(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

fn live_threads(pid: u32) -> Result<u64, Error> {
    let dir = format!("/proc/{pid}/task");
    let mut sum = 0;
    for entry in fs::read_dir(&dir).map_err(|e| Error::Io(format!("reading {dir}"), e))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// A process's memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) rss: u64,
    /// The most that was ever resident.
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

/// One line about the machine: CPUs, their model, the load of the last minute, the kernel.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown CPU", |(_, name)| name.trim());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
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
        assert!(ticks(pid).is_some());
        assert!(cpu_nanos(u32::MAX).is_err());
    }
}
