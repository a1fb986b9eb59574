//! What the system lets the process have: open files, memory.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::{fs, io};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Messages on their way may take this part of the memory that there is: handling one takes four
/// times its length.
const INPUT_SHARE: u64 = 4;

/// Unparsed messages may take as much, in bytes, however little memory there is.
const INPUT_BYTES_MIN: u64 = 256 << 20;

/// Waiting transactions, results, monitors and locks of all clients may take this part of the memory.
const KEPT_SHARE: u64 = 8;

/// Waiting transactions, results, monitors and locks may take as much, in bytes, on the smallest machine.
const KEPT_BYTES_MIN: u64 = 64 << 20;

/// What clients have not taken may take this part of the memory, of all together.
const BACKLOG_SHARE: u64 = 8;

/// What clients have not taken may take as much, in bytes, however little memory there is.
const BACKLOG_BYTES_MIN: u64 = 128 << 20;

/// What all messages that are on their way, or at work, may take together, in bytes.
pub(crate) fn input_bytes_max() -> usize {
    part_of_memory(INPUT_SHARE, INPUT_BYTES_MIN)
}

/// What is kept for all clients between their requests may take so much, in bytes.
pub(crate) fn kept_bytes_max() -> usize {
    part_of_memory(KEPT_SHARE, KEPT_BYTES_MIN)
}

/// What all clients together have not taken yet may be so much, in bytes.
pub(crate) fn backlog_bytes_max() -> usize {
    part_of_memory(BACKLOG_SHARE, BACKLOG_BYTES_MIN)
}

fn part_of_memory(share: u64, least: u64) -> usize {
    let part = memory_bytes().unwrap_or(0) / share;
    usize::try_from(part.max(least)).unwrap_or(usize::MAX)
}

/// The memory of the machine, or of the control group that the process is in (cgroups(7)), if that
/// is less.
fn memory_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().trim_end_matches(" kB").parse::<u64>().ok()?.saturating_mul(1024);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_bytes(&groups, Path::new("/sys/fs/cgroup")).into_iter().chain([total]).min()
}

/// The least limit of the control groups in `groups`, as /proc/self/cgroup has them, and of those
/// around them, of version 2 and version 1.
fn group_bytes(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let (controllers, group) = line
            .split_once(':')
            .and_then(|(_, rest)| rest.split_once(":/"))
            .unwrap_or(("none", ""));
        let (root, name) = if controllers.is_empty() {
            (root.to_owned(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (root.join(controllers), "memory.limit_in_bytes")
        } else {
            return vec![];
        };
        let own = root.join(group);
        let all = own.ancestors().take_while(|path| path.starts_with(&root));
        all.filter_map(|path| fs::read_to_string(path.join(name)).ok()).collect()
    });
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
}

/// Raises the soft limit of descriptors, 1024 by custom, to the hard one: every client needs one.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where it is refused, the server accepts as many clients as before.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Descriptors that clients leave for files, other servers and the admin socket, or an eighth of all.
const SPARE_DESCRIPTORS: u64 = 64;

/// Whether one more client leaves enough descriptors for what the server itself has to open. `any` is an
/// open one.
///
/// # Errors
/// `EMFILE` if not, as accept(2) says where none are left at all.
pub(crate) fn admit_client(any: impl AsFd) -> io::Result<()> {
    let all = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The lowest one that is free is what accept(2) would take.
    let next = fcntl_dupfd_cloexec(any, 0)?;
    let next = u64::try_from(next.as_raw_fd()).expect("descriptors are not negative");
    let is_spare = next.saturating_add(SPARE_DESCRIPTORS.min(all / 8)) >= all;
    if is_spare { Err(Errno::MFILE.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_control_groups_counts() {
        let root = std::env::temp_dir().join(format!("weir-groups-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        };
        write("memory.max", "max\n");
        write("a/memory.max", "700\n");
        write("a/b/memory.max", "900\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/c/memory.limit_in_bytes", "500\n");
        assert_eq!(group_bytes("0::/a/b\n", &root), Some(700));
        assert_eq!(group_bytes("0::/\n", &root), None);
        // Where the group is mounted as the root, as in a container, its path is not there.
        assert_eq!(group_bytes("9:memory:/x/c\n0::/\n", &root), Some(9_223_372_036_854_771_712));
        assert_eq!(group_bytes("9:cpu:/a\n4:memory:/c\n0::/a\n", &root), Some(500));
        fs::remove_dir_all(&root).expect("our own folder");
    }

    #[test]
    fn the_system_says_how_much_memory_there_is() {
        let memory = memory_bytes().expect("proc(5)");
        assert!(memory > 1 << 20, "{memory}");
        assert!(input_bytes_max() as u64 >= INPUT_BYTES_MIN.max(memory / INPUT_SHARE));
    }
}
