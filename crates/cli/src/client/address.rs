//! Where a client connects: `unix:FILE` and `tcp:HOST:PORT`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dirs::Dirs;
use crate::program::Failure;

/// The port of OVSDB.
pub(crate) const DEFAULT_PORT: u16 = 6640;

/// The longest path that fits a socket address, without its final zero byte.
const SOCKET_PATH_MAX: usize = 107;

/// How long a TCP connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `unix:FILE`
    Unix(PathBuf),
    /// `tcp:HOST:PORT`, ready for the resolver.
    Tcp(String, u16),
}

/// Whether a first argument is a server, by the rule of ovsdb-client: it starts with a letter and
/// contains a colon.
pub(crate) fn looks_like_server(arg: &str) -> bool {
    arg.starts_with(|c: char| c.is_ascii_alphabetic()) && arg.contains(':')
}

impl Address {
    /// Reads a connection method. A relative socket path is looked for here, then in the
    /// directory of Open vSwitch's sockets.
    pub(crate) fn parse(text: &str, dirs: &Dirs) -> Result<Self, Failure> {
        let Some((method, rest)) = text.split_once(':') else {
            return Err(Failure::new(format!("{text}: expected unix:FILE or tcp:HOST:PORT")));
        };
        match method {
            "unix" => {
                let here = PathBuf::from(rest);
                let found = here.is_absolute() || here.exists();
                Ok(Self::Unix(if found { here } else { dirs.run.join(rest) }))
            }
            "tcp" => tcp(rest).ok_or_else(|| {
                Failure::new(format!("{text}: expected tcp:HOST[:PORT], IPv6 hosts in brackets"))
            }),
            "ssl" => Err(Failure::not_yet(format!("{text}: TLS"))),
            _ => Err(Failure::new(format!("{text}: unknown connection method \"{method}\""))),
        }
    }

    /// Opens the connection: one half to read, one to write.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => connect_unix(path).map(Stream::Unix),
            Self::Tcp(host, port) => connect_tcp(host, *port).map(Stream::Tcp),
        }
    }
}

fn tcp(rest: &str) -> Option<Address> {
    let (host, port) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let (host, behind) = bracketed.split_once(']')?;
            (host, behind.strip_prefix(':'))
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| Address::Tcp(host.to_owned(), port))
}

fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in std::net::ToSocketAddrs::to_socket_addrs(&(host, port))? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A path too long for a socket address is reached through its open directory.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    if path.as_os_str().as_bytes().len() <= SOCKET_PATH_MAX {
        return UnixStream::connect(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let dir = File::open(dir)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// An open connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Over a unix domain socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl io::Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buf),
            Self::Tcp(stream) => stream.read(buf),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buf),
            Self::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_by_their_looks() {
        for (arg, expected) in [
            ("unix:x", true),
            ("tcp:1.2.3.4:5", true),
            ("Network", false),
            ("[\"Network\",{\"a\":1}]", false),
            ("/tmp/x:y", false),
        ] {
            assert_eq!(looks_like_server(arg), expected, "{arg}");
        }
    }

    #[test]
    fn addresses() {
        let dirs = Dirs::from_env();
        for (text, expected) in [
            ("tcp:127.0.0.1:6641", Some(("127.0.0.1", 6641))),
            ("tcp:[::1]:6641", Some(("::1", 6641))),
            ("tcp:[fe80::1%eth0]", Some(("fe80::1%eth0", DEFAULT_PORT))),
            ("tcp:localhost", Some(("localhost", DEFAULT_PORT))),
            ("tcp::6641", None),
            ("tcp:host:port", None),
            ("tcp:host:66000", None),
            ("ssl:host:6640", None),
            ("ftp:host", None),
            ("nothing", None),
        ] {
            let parsed = Address::parse(text, &dirs).ok();
            let expected = expected.map(|(host, port)| Address::Tcp(host.to_owned(), port));
            assert_eq!(parsed, expected, "{text}");
        }
        let absolute = Address::parse("unix:/nowhere/sock", &dirs).ok();
        assert_eq!(absolute, Some(Address::Unix("/nowhere/sock".into())));
        let relative = Address::parse("unix:no-such.sock", &dirs).ok();
        assert_eq!(relative, Some(Address::Unix(dirs.run.join("no-such.sock"))));
    }
}
