//! Listening sockets.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::address::{Address, passive_addr};
use crate::error::strerror;
use crate::inherited::duplicate;
use crate::stream::{Stream, resolve, socket, tcp_socket};
use crate::unix::unix_address;

/// Connections the kernel holds until they are accepted; the kernel lowers this to
/// `net.core.somaxconn`.
pub const LISTEN_BACKLOG: i32 = 4096;

/// Differentiated services code point where none is configured (the reference's).
pub const DSCP_DEFAULT: u8 = 48;

/// Permissions of Unix sockets, less the umask: owner and group (ovs-vswitchd(8)).
const SOCKET_MODE: u32 = 0o770;

/// A socket that accepts connections. A Unix socket's file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    endpoint: Endpoint,
}

#[derive(Debug)]
enum Endpoint {
    Unix(SocketFile),
    Tcp {
        port: u16,
    },
    /// A TCP port over which TLS is to be spoken.
    Ssl {
        port: u16,
    },
    /// A socket that was inherited and listens already.
    Inherited(Family),
}

/// The address family of an inherited socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Unix,
    Tcp,
}

/// A connection that came in.
#[derive(Debug)]
pub struct Accepted {
    /// The accepted connection, non-blocking.
    pub stream: Stream,
    /// The peer of a connection that came in.
    pub peer: Peer,
}

/// The peer of a connection that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Somebody on this machine.
    Unix,
    /// A TCP client.
    Tcp(SocketAddr),
    /// A TCP client that is to speak TLS.
    Ssl(SocketAddr),
}

impl Peer {
    /// What logs call the session; `serial` numbers the Unix ones.
    pub fn name(&self, serial: u64) -> String {
        match self {
            Self::Unix => format!("unix#{serial}"),
            Self::Tcp(address) => format!("tcp:{address}"),
            Self::Ssl(address) => format!("ssl:{address}"),
        }
    }
}

/// Why listening failed, and what the reference logs about it.
#[derive(Debug)]
pub struct ListenError {
    /// The system's error that listening failed with.
    pub error: io::Error,
    /// The vlog module that logs `text`.
    pub module: &'static str,
    /// The line that the reference logs.
    pub text: String,
}

impl Listener {
    /// Binds and listens. `target` is the text of `address`, for logs; `dscp` is for TCP only. It takes its time
    /// where [`Address::needs_lookup`] says so.
    ///
    /// # Errors
    /// An active address or a name that nobody knows (`EAFNOSUPPORT`), or what the system says.
    pub fn open(address: &Address, target: &str, dscp: Option<u8>) -> Result<Self, ListenError> {
        match address {
            Address::PassiveUnix(path) => open_unix(path).map_err(|error| ListenError {
                text: format!("{}: binding failed: {}", path.display(), strerror(&error)),
                module: "stream_unix",
                error,
            }),
            Address::PassiveTcp { host, port } => {
                let (fd, port) = open_tcp((host, *port), target, dscp)?;
                Ok(Self { fd, endpoint: Endpoint::Tcp { port } })
            }
            Address::PassiveSsl { host, port } => {
                let (fd, port) = open_tcp((host, *port), target, dscp)?;
                Ok(Self { fd, endpoint: Endpoint::Ssl { port } })
            }
            Address::PassiveFd(number) => inherit(*number).map_err(|(why, error)| ListenError {
                text: format!("{target}: {why}"),
                module: "stream_fd",
                error,
            }),
            Address::Unix(_) | Address::Tcp { .. } | Address::Ssl { .. } => {
                let error = io::Error::from(Errno::AFNOSUPPORT);
                Err(ListenError { text: strerror(&error), module: "stream", error })
            }
        }
    }

    /// The TCP port, also when the kernel chose it.
    pub fn port(&self) -> Option<u16> {
        match self.endpoint {
            Endpoint::Unix(_) | Endpoint::Inherited(_) => None,
            Endpoint::Tcp { port } | Endpoint::Ssl { port } => Some(port),
        }
    }

    /// What the log says of a port that the kernel chose; `target` is the text of `address`.
    pub fn announcement(&self, address: &Address, target: &str) -> Option<String> {
        match address {
            Address::PassiveTcp { port: 0, .. } | Address::PassiveSsl { port: 0, .. } => {
                Some(format!("{}: listening on port {}", address_of(target), self.port()?))
            }
            _ => None,
        }
    }

    /// Whether TLS is to be spoken with those who connect.
    pub fn is_tls(&self) -> bool {
        matches!(self.endpoint, Endpoint::Ssl { .. })
    }

    /// The file of a Unix socket, if this is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.endpoint {
            Endpoint::Unix(file) => Some(&file.path),
            Endpoint::Tcp { .. } | Endpoint::Ssl { .. } | Endpoint::Inherited(_) => None,
        }
    }

    /// The next connection, `None` when there is none. A connection that died in the queue counts
    /// as none.
    ///
    /// # Errors
    /// What accept(2) says, for example `EMFILE`.
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (fd, address) = match rustix::net::acceptfrom_with(&self.fd, flags) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match self.endpoint {
            Endpoint::Unix(_) | Endpoint::Inherited(Family::Unix) => {
                Ok(Some(Accepted { stream: Stream::Unix(fd), peer: Peer::Unix }))
            }
            Endpoint::Tcp { .. } | Endpoint::Ssl { .. } | Endpoint::Inherited(Family::Tcp) => {
                let Some(Ok(address)) = address.map(SocketAddr::try_from) else { return Ok(None) };
                if sockopt::set_tcp_nodelay(&fd, true).is_err() {
                    return Ok(None);
                }
                let peer = if self.is_tls() { Peer::Ssl(address) } else { Peer::Tcp(address) };
                Ok(Some(Accepted { stream: Stream::Tcp(fd), peer }))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open_unix(path: &Path) -> io::Result<Listener> {
    let fd = socket(AddressFamily::UNIX)?;
    remove_stale_socket(path)?;
    // On Linux the socket's mode becomes the file's, less the umask; it can be set only before.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(SOCKET_MODE))?;
    let (address, _directory) = unix_address(path)?;
    rustix::net::bind(&fd, &address)?;
    let file = SocketFile::bound(path);
    rustix::net::listen(&fd, LISTEN_BACKLOG)?;
    Ok(Listener { fd, endpoint: Endpoint::Unix(file) })
}

/// Removes the socket that an earlier server left behind, but no other kind of file: a database,
/// say, whose name was given by mistake.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) => {
            let kind = metadata.file_type();
            if kind.is_socket() || kind.is_symlink() {
                return fs::remove_file(path);
            }
            Err(if kind.is_dir() { Errno::ISDIR } else { Errno::EXIST }.into())
        }
    }
}

/// An address without its method, as the log has it.
fn address_of(target: &str) -> &str {
    target.split_once(':').map_or(target, |(_, address)| address)
}

fn tcp_error(target: &str, (call, error): (&'static str, io::Error)) -> ListenError {
    let address = address_of(target);
    let text = format!("{address}: {call}: {}", strerror(&error));
    ListenError { text, module: "socket_util", error }
}

/// A socket that listens already; or what is wrong with it, in the reference's words.
fn inherit(number: RawFd) -> Result<Listener, (String, io::Error)> {
    let no_socket = |error: io::Error| (format!("not a socket ({})", strerror(&error)), error);
    let fd = duplicate(number).map_err(no_socket)?;
    let kind = sockopt::socket_type(&fd).map_err(|error| no_socket(error.into()))?;
    if kind != SocketType::STREAM {
        let why = format!("not a stream socket (type {})", kind.as_raw());
        return Err((why, Errno::INVAL.into()));
    }
    if !sockopt::socket_acceptconn(&fd).map_err(|error| no_socket(error.into()))? {
        return Err(("not a listening socket".to_owned(), Errno::INVAL.into()));
    }
    let other = |error: Errno| (strerror(&error.into()), error.into());
    let family = match sockopt::socket_domain(&fd).map_err(other)? {
        AddressFamily::UNIX => Family::Unix,
        AddressFamily::INET | AddressFamily::INET6 => Family::Tcp,
        _ => return Err(other(Errno::AFNOSUPPORT)),
    };
    rustix::io::ioctl_fionbio(&fd, true).map_err(other)?;
    Ok(Listener { fd, endpoint: Endpoint::Inherited(family) })
}

fn open_tcp(
    (host, port): (&str, u16),
    target: &str,
    dscp: Option<u8>,
) -> Result<(OwnedFd, u16), ListenError> {
    let found = passive_addr(host, port).or_else(|| resolve(host, port, 0).ok());
    let address = found.ok_or_else(|| ListenError {
        text: format!("{}: bad IP address \"{host}\"", address_of(target)),
        module: "socket_util",
        error: Errno::AFNOSUPPORT.into(),
    })?;
    open_tcp_at(&address, dscp).map_err(|error| tcp_error(target, error))
}

fn open_tcp_at(
    address: &SocketAddr,
    dscp: Option<u8>,
) -> Result<(OwnedFd, u16), (&'static str, io::Error)> {
    let fail = |call: &'static str| move |error: Errno| (call, io::Error::from(error));
    let fd = tcp_socket(address).map_err(|error| ("socket", error))?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(fail("setsockopt(SO_REUSEADDR)"))?;
    rustix::net::bind(&fd, address).map_err(fail("bind"))?;
    set_dscp(&fd, address, dscp.unwrap_or(DSCP_DEFAULT));
    rustix::net::listen(&fd, LISTEN_BACKLOG).map_err(fail("listen"))?;
    let bound = rustix::net::getsockname(&fd).map_err(fail("getsockname"))?;
    let port = port_of(&bound).unwrap_or(address.port());
    Ok((fd, port))
}

/// Sets the differentiated services code point of a socket; what a listener accepts inherits it.
/// Some systems refuse it, which harms nobody.
pub(crate) fn set_dscp(fd: &OwnedFd, address: &SocketAddr, dscp: u8) {
    let tos = (dscp & 0x3f) << 2;
    let _ = match address {
        SocketAddr::V4(_) => sockopt::set_ip_tos(fd, tos),
        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(fd, u32::from(tos)),
    };
}

fn port_of(address: &SocketAddrAny) -> Option<u16> {
    SocketAddr::try_from(address.clone()).ok().map(|address| address.port())
}

/// The file of a bound Unix socket, removed on drop unless somebody else has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn bound(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
