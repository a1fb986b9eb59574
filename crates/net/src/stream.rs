//! A connected byte stream.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
};

use crate::address::{Address, socket_addr};
use crate::listener::{DSCP_DEFAULT, set_dscp};
use crate::tls::{Acceptor, Connector, Line, TlsStream};
use crate::unacknowledged::unacknowledged;
use crate::unix::unix_address;

/// A connection; reads and writes never block.
#[derive(Debug)]
pub enum Stream {
    /// A connection over a Unix domain socket.
    Unix(OwnedFd),
    /// A connection over TCP without TLS.
    Tcp(OwnedFd),
    /// A connection over TCP with TLS.
    Tls(Box<TlsStream>),
}

/// How far a connection has come, and what the socket must be ready for to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The connection is there.
    Done,
    /// The socket must have something to read.
    Read,
    /// The socket must have room to write.
    Write,
}

impl Stream {
    /// Begins to connect; go on with [`Stream::finish_connect`]. A host name is resolved by the
    /// system, which may take a while. `ssl:` needs a connector.
    ///
    /// # Errors
    /// Whatever socket(2), connect(2) or the resolver says at once.
    pub fn connect(address: &Address, tls: Option<&Connector>) -> io::Result<Self> {
        Self::connect_with(address, tls, None, 0)
    }

    /// Begins to connect, as [`Stream::connect`] does, with a differentiated services code point
    /// for TCP, to the `nth` address of a host that is a name: IPv4 before IPv6, and the first one behind the last.
    ///
    /// # Errors
    /// As [`Stream::connect`].
    pub fn connect_with(
        address: &Address,
        tls: Option<&Connector>,
        dscp: Option<u8>,
        nth: usize,
    ) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                let (address, _directory) = unix_address(path)?;
                in_progress(rustix::net::connect(&fd, &address))?;
                Ok(Self::Unix(fd))
            }
            Address::Tcp { host, port } => Ok(Self::Tcp(connect_tcp((host, *port), nth, dscp)?)),
            Address::Ssl { host, port } => {
                let connector = tls.ok_or(Errno::NOPROTOOPT)?;
                let fd = connect_tcp((host, *port), nth, dscp)?;
                Ok(Self::Tls(Box::new(TlsStream::connect(fd, host, connector)?)))
            }
            Address::PassiveUnix(_)
            | Address::PassiveTcp { .. }
            | Address::PassiveSsl { .. }
            | Address::PassiveFd(_) => Err(Errno::AFNOSUPPORT.into()),
        }
    }

    /// Puts TLS on a connection that came in; go on with [`Stream::finish_connect`].
    ///
    /// # Errors
    /// `EPROTO` on anything but TCP; what rustls says.
    pub fn accept_tls(self, acceptor: &Acceptor) -> io::Result<Self> {
        match self {
            Self::Tcp(fd) => Ok(Self::Tls(Box::new(TlsStream::accept(fd, acceptor)?))),
            Self::Unix(_) | Self::Tls(_) => Err(Errno::PROTO.into()),
        }
    }

    /// Goes on with what [`Stream::connect`] or [`Stream::accept_tls`] began, the handshake of TLS
    /// included. To be called again when the socket is ready for what it says.
    ///
    /// # Errors
    /// Why there will be no connection; [`Stream::take_log`] may know more.
    pub fn finish_connect(&mut self) -> io::Result<Progress> {
        if !self.is_ready(PollFlags::OUT, Some(Duration::ZERO))? {
            return Ok(Progress::Write);
        }
        sockopt::socket_error(&*self)?.map_err(io::Error::from)?;
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(Progress::Done),
            Self::Tls(stream) => stream.handshake(),
        }
    }

    /// Sleeps until the socket is ready for `progress`, at most `timeout`; false if it is not.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn wait(&self, progress: Progress, timeout: Option<Duration>) -> io::Result<bool> {
        match progress {
            Progress::Done => Ok(true),
            Progress::Read => self.is_ready(PollFlags::IN, timeout),
            Progress::Write => self.is_ready(PollFlags::OUT, timeout),
        }
    }

    fn is_ready(&self, flags: PollFlags, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(self, flags)], timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The common name of the peer's certificate, if there is one.
    pub fn peer_name(&self) -> Option<String> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => None,
            Self::Tls(stream) => stream.peer_name(),
        }
    }

    /// Takes the lines that TLS wants to be logged.
    pub fn take_log(&mut self) -> Vec<Line> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Vec::new(),
            Self::Tls(stream) => stream.take_log(),
        }
    }

    /// Reads once. 0 is the end of the stream. Over TLS, bytes may be left that the socket does not
    /// show: read until it would block.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there, and what recv(2) says.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(fd) | Self::Tcp(fd) => receive(fd, buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    /// Reads once, at most what fits into the capacity of `buffer`, and appends it there. Over TLS
    /// more may come, so that nothing is left that the socket does not show.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn read_spare(&mut self, buffer: &mut Vec<u8>, scratch: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(fd) | Self::Tcp(fd) => {
                let spare = rustix::buffer::spare_capacity(buffer);
                Ok(rustix::net::recv(fd, spare, RecvFlags::empty())?.0)
            }
            Self::Tls(stream) => stream.read_into(buffer, scratch),
        }
    }

    /// Writes once; a vanished peer is an error, never a signal. Over TLS, what is taken may still
    /// be on this side: see [`Stream::write_pending`].
    ///
    /// # Errors
    /// `WouldBlock` when the peer takes nothing, and what sendmsg(2) says.
    pub fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(fd) | Self::Tcp(fd) => send(fd, slices),
            Self::Tls(stream) => stream.write_vectored(slices),
        }
    }

    /// Whether bytes that were taken wait for room in the socket.
    #[inline]
    pub fn has_pending(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Tcp(_) => false,
            Self::Tls(stream) => stream.has_pending(),
        }
    }

    /// At most so many bytes that were taken are not in the socket.
    pub fn pending_bytes(&self) -> u64 {
        match self {
            Self::Unix(_) | Self::Tcp(_) => 0,
            Self::Tls(stream) => stream.pending_bytes(),
        }
    }

    /// At most so many bytes in the socket have not been acknowledged by the peer's kernel, or, of a
    /// Unix domain socket, not been read by the peer.
    ///
    /// # Errors
    /// What ioctl(2) and poll(2) say, and `EPIPE` once both directions have ended.
    pub fn unacknowledged(&self) -> io::Result<u64> {
        unacknowledged(self)
    }

    /// Writes bytes that were taken and wait for room in the socket; true when none are left.
    ///
    /// # Errors
    /// What sendmsg(2) says.
    pub fn write_pending(&mut self) -> io::Result<bool> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(true),
            Self::Tls(stream) => stream.write_pending(),
        }
    }

    /// Has the connection end when its peer's system is silent for so long: it acknowledges nothing of
    /// what was sent, or, where nothing is sent, that it is still there (tcp(7), `TCP_USER_TIMEOUT`,
    /// `SO_KEEPALIVE`). TCP itself doubles the time between its attempts, up to two minutes: a
    /// connection over a network that was cut says nothing for long after that is whole again. Without
    /// effect on Unix domain sockets.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn end_if_silent(&self, after: Duration) -> io::Result<()> {
        if let Self::Unix(_) = self {
            return Ok(());
        }
        let ms = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(self, ms)?;
        let seconds = Duration::from_secs(after.as_secs().max(1));
        sockopt::set_tcp_keepidle(self, seconds)?;
        sockopt::set_tcp_keepintvl(self, Duration::from_secs(1))?;
        Ok(sockopt::set_socket_keepalive(self, true)?)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(fd) | Self::Tcp(fd) => fd.as_fd(),
            Self::Tls(stream) => stream.as_fd(),
        }
    }
}

/// Receives by recv(2).
#[inline]
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buffer, RecvFlags::empty())?.0)
}

/// Sends by sendmsg(2), without SIGPIPE.
#[inline]
pub(crate) fn send(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    if let [single] = slices {
        return Ok(rustix::net::send(fd, single, SendFlags::NOSIGNAL)?);
    }
    let mut control = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(fd, slices, &mut control, SendFlags::NOSIGNAL)?)
}

/// A non-blocking stream socket.
pub(crate) fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// A non-blocking TCP socket of the family of `address`.
pub(crate) fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })
}

fn connect_tcp((host, port): (&str, u16), nth: usize, dscp: Option<u8>) -> io::Result<OwnedFd> {
    let address = match socket_addr(host, port) {
        Some(address) => address,
        None => resolve(host, port, nth)?,
    };
    let fd = tcp_socket(&address)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    set_dscp(&fd, &address, dscp.unwrap_or(DSCP_DEFAULT));
    in_progress(rustix::net::connect(&fd, &address))?;
    Ok(fd)
}

fn in_progress(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::INPROGRESS) => Ok(()),
        other => Ok(other?),
    }
}

/// Where a name is, by its `nth` address; it may take the system's resolver its time.
pub(crate) fn resolve(host: &str, port: u16, nth: usize) -> io::Result<SocketAddr> {
    let unreachable = || io::Error::from(Errno::HOSTUNREACH);
    let found = (host, port).to_socket_addrs().map_err(|_| unreachable())?.collect();
    nth_of(found, nth).ok_or_else(unreachable)
}

/// Servers listen on IPv4 unless they are told otherwise, so those addresses come first, as for the reference.
fn nth_of(mut found: Vec<SocketAddr>, nth: usize) -> Option<SocketAddr> {
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    found.get(nth.checked_rem(found.len())?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_name_have_their_turns() {
        let ip = |text: &str| text.parse::<SocketAddr>().unwrap();
        let found = || vec![ip("[::1]:1"), ip("10.0.0.2:1"), ip("10.0.0.1:1")];
        let turns: Vec<_> = (0..4).filter_map(|nth| nth_of(found(), nth)).collect();
        assert_eq!(turns, [found()[1], found()[2], found()[0], found()[1]]);
        assert_eq!(nth_of(vec![], 1), None);
    }
}
