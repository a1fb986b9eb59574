//! A connected byte stream.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
};

use crate::address::{Address, socket_addr};
use crate::unix::unix_address;

/// A connection; reads and writes never block.
#[derive(Debug)]
pub enum Stream {
    /// A Unix domain socket.
    Unix(OwnedFd),
    /// TCP without TLS.
    Tcp(OwnedFd),
}

impl Stream {
    /// Begins to connect. The stream becomes writable when that is decided; then ask
    /// [`Stream::connect_error`]. A host name is resolved by the system, which may take a while.
    ///
    /// # Errors
    /// Whatever socket(2), connect(2) or the resolver says at once.
    pub fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                let (address, _directory) = unix_address(path)?;
                in_progress(rustix::net::connect(&fd, &address))?;
                Ok(Self::Unix(fd))
            }
            Address::Tcp { host, port } => {
                let address = match socket_addr(host, *port) {
                    Some(address) => address,
                    None => resolve(host, *port)?,
                };
                let fd = tcp_socket(&address)?;
                rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
                in_progress(rustix::net::connect(&fd, &address))?;
                Ok(Self::Tcp(fd))
            }
            Address::PassiveUnix(_) | Address::PassiveTcp(_) => Err(Errno::AFNOSUPPORT.into()),
        }
    }

    /// The error a connection attempt ended with, if any.
    ///
    /// # Errors
    /// That error.
    pub fn connect_error(&self) -> io::Result<()> {
        rustix::net::sockopt::socket_error(self)?.map_err(io::Error::from)
    }

    /// Reads once. 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there, and what recv(2) says.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, buffer, RecvFlags::empty())?.0)
    }

    /// Reads once, at most what fits into the capacity of `buffer`, and appends it there.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn read_spare(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let spare = rustix::buffer::spare_capacity(buffer);
        Ok(rustix::net::recv(self, spare, RecvFlags::empty())?.0)
    }

    /// Writes once; a vanished peer is an error, never a signal.
    ///
    /// # Errors
    /// `WouldBlock` when the peer takes nothing, and what sendmsg(2) says.
    pub fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [single] = slices {
            return Ok(rustix::net::send(self, single, SendFlags::NOSIGNAL)?);
        }
        let mut control = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self, slices, &mut control, SendFlags::NOSIGNAL)?)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(fd) | Self::Tcp(fd) => fd.as_fd(),
        }
    }
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

fn in_progress(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::INPROGRESS) => Ok(()),
        other => Ok(other?),
    }
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let unreachable = || io::Error::from(Errno::HOSTUNREACH);
    (host, port).to_socket_addrs().map_err(|_| unreachable())?.next().ok_or_else(unreachable)
}
