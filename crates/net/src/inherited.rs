//! Descriptors that the process was started with, for `pfd:FD` (socket activation).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;

/// A duplicate of descriptor `number`, closed on exec; the number itself stays open, so that a
/// remote can be closed and opened again.
///
/// # Errors
/// `EBADF` if there is no such descriptor.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 || !Path::new("/proc/self/fd").join(number.to_string()).exists() {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the number is not -1 and was open just now, and the borrow ends with this function.
    // Nobody closes it meanwhile if it was inherited, for then nobody in the process owns it. If a
    // user names a descriptor of our own by mistake, the worst is a duplicate of another one or
    // EBADF: no memory depends on it, and what is no listening socket is refused by the caller.
    #[allow(unsafe_code)]
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(borrowed, 0)?)
}
