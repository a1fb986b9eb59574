//! Unix socket addresses, also for paths that do not fit into one.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longest path that fits into `sun_path` with its final NUL (unix(7)).
const SUN_PATH_BYTES_MAX: usize = 107;

/// Connects to the socket at `path`, however long that is, for programs that wait.
///
/// # Errors
/// Whatever socket(2) or connect(2) says.
pub fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let (address, _directory) = unix_address(path)?;
    let kind = SocketType::STREAM;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

/// An address for `path`, and the directory that must stay open while the address is used.
///
/// A long path is reached as `/proc/self/fd/DIR/NAME`.
pub(crate) fn unix_address(path: &Path) -> io::Result<(SocketAddrUnix, Option<OwnedFd>)> {
    if path.as_os_str().len() <= SUN_PATH_BYTES_MAX {
        return Ok((SocketAddrUnix::new(path)?, None));
    }
    let too_long = || io::Error::from(rustix::io::Errno::NAMETOOLONG);
    let (directory, name) = path.parent().zip(path.file_name()).ok_or_else(too_long)?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    if short.as_os_str().len() > SUN_PATH_BYTES_MAX {
        return Err(too_long());
    }
    Ok((SocketAddrUnix::new(&short)?, Some(directory)))
}
