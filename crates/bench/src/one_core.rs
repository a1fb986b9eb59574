//! `--one-core`: the driver and every server that it starts share one core.
//!
//! With one client in a closed loop, one of the two always sleeps. On an idle virtual machine
//! each message then wakes a sleeping core, which costs more than everything else; on one core
//! the wake-up is a context switch.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Error;

/// While it lives, this thread, the threads that it starts and the servers stay on one core.
pub(crate) struct OneCore {
    before: CpuSet,
}

impl OneCore {
    /// Takes the lowest core that we may use.
    pub(crate) fn begin() -> Result<Self, Error> {
        let before = affinity()?;
        let mut one = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .find(|&core| before.is_set(core))
            .into_iter()
            .for_each(|core| one.set(core));
        sched_setaffinity(None, &one).map_err(|e| refused("choosing a core", e))?;
        Ok(Self { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // What was allowed before is allowed again; a core that is gone meanwhile is left out.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn affinity() -> Result<CpuSet, Error> {
    sched_getaffinity(None).map_err(|e| refused("asking for our cores", e))
}

fn refused(what: &str, error: rustix::io::Errno) -> Error {
    Error::Io(what.into(), error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The cores that the kernel lets a new process use, e.g. `0-1`.
    fn cores_of_a_child() -> String {
        let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn one_core_is_chosen_for_us_and_our_children_and_given_back() {
        let (before, of_child) = (affinity().unwrap(), cores_of_a_child());
        let lowest = of_child.split(['-', ',']).next().unwrap();
        let one = OneCore::begin().unwrap();
        assert_eq!(affinity().unwrap().count(), 1);
        assert_eq!(cores_of_a_child(), lowest);
        let thread = std::thread::spawn(|| affinity().unwrap().count());
        assert_eq!(thread.join().unwrap(), 1);
        drop(one);
        assert_eq!(affinity().unwrap(), before);
        assert_eq!(cores_of_a_child(), of_child);
    }
}
