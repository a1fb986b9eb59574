//! What a socket's peer has not acknowledged (tcp(7), `SIOCOUTQ`), by an ioctl(2) that has no safe
//! wrapper.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// On sockets it is called `SIOCOUTQ`.
const OUTQ: Opcode = libc::TIOCOUTQ as Opcode;

/// Bytes in a socket's send queue: of TCP those that the peer's kernel has not acknowledged, of a
/// Unix domain socket the memory that the kernel keeps for what the peer has not read, which is
/// more than its bytes.
///
/// # Errors
/// What ioctl(2) and poll(2) say, and `EPIPE` once both directions have ended: the kernel throws away
/// what the peer of a Unix domain socket has not read when that closes, and then counts nothing.
pub(crate) fn unacknowledged(fd: impl AsFd) -> io::Result<u64> {
    // SAFETY: this ioctl writes one int through the pointer that it is given, whatever kind of
    // descriptor it is called on, and `Getter` gives it one to write to.
    #[allow(unsafe_code)]
    let count: c_int = unsafe { ioctl(fd.as_fd(), Getter::<OUTQ, c_int>::new()) }?;
    // The end is there for poll(2) before anything is thrown away, so it is asked for last.
    let mut polled = [PollFd::new(&fd, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut polled, Some(&at_once)))?;
    if polled[0].revents().contains(PollFlags::HUP) {
        return Err(Errno::PIPE.into());
    }
    Ok(u64::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::unacknowledged;

    #[test]
    fn a_unix_socket_has_what_its_peer_has_not_read() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(unacknowledged(&ours).unwrap(), 0);
        ours.write_all(b"twelve bytes").unwrap();
        assert!(unacknowledged(&ours).unwrap() >= 12);
        theirs.read_exact(&mut [0; 12]).unwrap();
        assert_eq!(unacknowledged(&ours).unwrap(), 0);
    }

    #[test]
    fn what_a_peer_that_has_closed_did_not_read_is_not_taken_for_read() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"twelve bytes").unwrap();
        drop(theirs);
        let error = unacknowledged(&ours).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_peer_s_kernel_acknowledges_what_the_peer_has_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _theirs = listener.accept().unwrap();
        ours.write_all(b"twelve bytes").unwrap();
        for _ in 0..10_000 {
            if unacknowledged(&ours).unwrap() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the kernel does not acknowledge 12 bytes");
    }
}
