//! Where a client connects, or waits for a server that connects (ovsdb(7), "Connection Methods").

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use weir_net::BlockingStream;
use weir_net::tls::Line;

use crate::dirs::Dirs;

/// The port of OVSDB.
pub(crate) const DEFAULT_PORT: u16 = 6640;

/// Bytes read at once over TLS.
const TLS_READ_SIZE: usize = 64 << 10;

/// How long connecting may take, with the handshake of TLS.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `unix:FILE`
    Unix(PathBuf),
    /// `tcp:HOST:PORT`, ready for the resolver.
    Tcp(String, u16),
    /// `ssl:HOST:PORT`
    Tls(String, u16),
    /// `punix:FILE`, `ptcp:[PORT][:IP]` or `pssl:[PORT][:IP]`
    Passive(weir_net::Address),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressError {
    /// The reason, which stands in brackets behind a message.
    pub(crate) reason: String,
    /// Lines for the log: module and text.
    pub(crate) log: Vec<(&'static str, String)>,
}

impl AddressError {
    /// The reference's reason, whatever is wrong.
    fn new(log: Vec<(&'static str, String)>) -> Self {
        Self { reason: "Address family not supported by protocol".to_owned(), log }
    }
}

/// Whether a server is one that connects.
pub(crate) fn is_passive(server: &str) -> bool {
    ["punix:", "ptcp:", "pssl:"].iter().any(|method| server.starts_with(method))
}

impl Address {
    /// Reads a connection method. A relative socket path is looked for in the directory of Open
    /// vSwitch's sockets, then here.
    pub(crate) fn parse(text: &str, dirs: &Dirs) -> Result<Self, AddressError> {
        let Some((method, rest)) = text.split_once(':') else {
            return Err(AddressError::new(vec![]));
        };
        match method {
            "unix" => {
                let there = dirs.run.join(rest);
                let here = !there.exists() && !rest.is_empty() && Path::new(rest).exists();
                Ok(Self::Unix(if here { PathBuf::from(rest) } else { there }))
            }
            "tcp" => host_and_port(method, rest).map(|(host, port)| Self::Tcp(host, port)),
            "ssl" => host_and_port(method, rest).map(|(host, port)| Self::Tls(host, port)),
            "punix" | "ptcp" | "pssl" => {
                weir_net::Address::parse(text, &dirs.run).map(Self::Passive).map_err(|error| {
                    let text = match error {
                        weir_net::AddressError::Malformed(text) => Some(text),
                        weir_net::AddressError::Unsupported => None,
                    };
                    AddressError::new(text.map(|text| ("socket_util", text)).into_iter().collect())
                })
            }
            _ => Err(AddressError::new(vec![])),
        }
    }

    /// Opens the connection: one half to read, one to write.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => weir_net::connect_unix(path).map(Stream::Unix),
            Self::Tcp(host, port) => connect_tcp(host, *port).map(Stream::Tcp),
            Self::Tls(..) | Self::Passive(_) => Err(rustix::io::Errno::NOPROTOOPT.into()),
        }
    }
}

/// `HOST[:PORT]`, an IPv6 address in brackets.
fn host_and_port(method: &str, rest: &str) -> Result<(String, u16), AddressError> {
    // The port of OVSDB is appended where there are not two words behind one another.
    let words = rest.split(':').filter(|word| !word.is_empty()).count();
    let shown = if words < 2 { format!("{rest}:{DEFAULT_PORT}") } else { rest.to_owned() };
    let port = weir_log::clustered::port_of(&shown);
    let host = port.and_then(|port| shown.get(..shown.len() - port.len() - 1)).unwrap_or(&shown);
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut log = vec![];
    let number = match port {
        Some(port) => {
            let number = port.trim_ascii_start().parse().ok();
            if number.is_none() {
                log.push(("socket_util", format!("{shown}: bad port number \"{port}\"")));
            }
            number
        }
        None if is_bracketed => Some(DEFAULT_PORT),
        None if method == "tcp" => {
            log.push(("socket_util", format!("{shown}: port must be specified")));
            None
        }
        None => None,
    };
    if let Some(number) = number.filter(|_| is_resolved(host)) {
        return Ok((host.to_owned(), number));
    }
    let module = if method == "ssl" { "stream_ssl" } else { "stream_tcp" };
    let reason = "Address family not supported by protocol";
    log.push((module, format!("{method}:{shown}: connect: {reason}")));
    Err(AddressError::new(log))
}

/// Whether a host is known at all.
fn is_resolved(host: &str) -> bool {
    use std::net::{IpAddr, ToSocketAddrs};
    let is_ip = host.split('%').next().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    let is_number = host.bytes().all(|c| c.is_ascii_digit());
    is_ip || (!host.is_empty() && !is_number && (host, 0).to_socket_addrs().is_ok())
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

/// An open connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connection over a unix domain socket.
    Unix(UnixStream),
    /// A connection over TCP.
    Tcp(TcpStream),
    /// A connection over TCP with TLS.
    Tls(Box<BlockingStream>),
    /// The connection of a replay: what is written is lost.
    Nowhere(File),
}

impl Stream {
    /// What TLS has to say.
    pub(crate) fn take_log(&mut self) -> Vec<Line> {
        match self {
            Self::Unix(_) | Self::Tcp(_) | Self::Nowhere(_) => Vec::new(),
            Self::Tls(stream) => stream.get_mut().take_log(),
        }
    }

    /// Whether the other end may be gone without a word.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Tls(_))
    }

    /// Waits until there is something to read and appends it, at most what fits into the capacity
    /// of `buffer`; 0 is the end. Nothing stays behind that poll(2) would not show.
    pub(crate) fn read_to(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => Ok(rustix::io::read(&*stream, spare_capacity(buffer))?),
            Self::Tcp(stream) => Ok(rustix::io::read(&*stream, spare_capacity(buffer))?),
            Self::Tls(stream) => {
                let have = buffer.len();
                buffer.resize(have + TLS_READ_SIZE, 0);
                let read = stream.read(buffer.get_mut(have..).unwrap_or_default());
                buffer.truncate(have + read.as_ref().copied().unwrap_or(0));
                read
            }
            Self::Nowhere(_) => Ok(0),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buf),
            Self::Tcp(stream) => stream.write(buf),
            Self::Tls(stream) => stream.write(buf),
            Self::Nowhere(file) => file.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(_) | Self::Tcp(_) | Self::Nowhere(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.as_fd(),
            Self::Nowhere(file) => file.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let dirs = Dirs::from_env();
        for (text, expected) in [
            ("tcp:127.0.0.1:6641", Some(("127.0.0.1", 6641))),
            ("tcp:[::1]:6641", Some(("::1", 6641))),
            ("tcp:[fe80::1%eth0]", Some(("fe80::1%eth0", DEFAULT_PORT))),
            ("tcp:localhost", Some(("localhost", DEFAULT_PORT))),
            ("tcp:1:6640", None),
            ("tcp::6641", None),
            ("tcp:localhost:port", None),
            ("tcp:localhost:66000", None),
            ("tcp:localhost: 6641", Some(("localhost", 6641))),
            ("tcp:[::1]6641", None),
            ("tcp:::1:6641", None),
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
