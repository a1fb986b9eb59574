//! fork(2): the only call here that the language cannot check.

use std::io;

/// Which side of a fork this is.
pub(super) enum Side {
    Child,
    /// With the child's process id.
    Parent(i32),
}

/// Forks a process that has only one thread.
///
/// # Errors
/// There are other threads, or what fork(2) says.
pub(super) fn fork() -> io::Result<Side> {
    if threads() != 1 {
        return Err(io::Error::other("fork in a process with several threads"));
    }
    // SAFETY: the process has one thread, checked above, so the child has all that the parent had
    // and no lock is held by a thread that is gone.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent(pid)),
    }
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}
