//! The system log: datagrams, silently nothing where nobody listens.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// The system log's socket.
const SOCKET: &str = "/dev/log";

/// Where system logs listen (RFC 5426, section 3.3).
const SYSLOG_PORT: u16 = 514;

/// The facility without a `FACILITY` setting: `daemon`.
pub(crate) const FACILITY_DAEMON: u8 = 3 << 3;

/// What goes to a `--syslog-target`: RFC 5424 with a byte order mark, as the reference sends it.
pub(crate) const RFC5424: &str = "<%B>1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";

/// Where to send log lines for the system.
pub(crate) struct Syslog {
    method: Method,
    socket: Option<Socket>,
}

enum Method {
    /// Nowhere.
    Null,
    /// To an address that cannot be.
    Nowhere,
    /// As syslog(3) of the C library.
    Libc,
    /// To a Unix socket.
    Unix(PathBuf),
    /// To another machine.
    Udp(SocketAddr),
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Syslog {
    /// A method as `--syslog-method` and the environment's `OVS_SYSLOG_METHOD` name it.
    ///
    /// # Errors
    /// The text for standard error.
    pub(crate) fn new(method: &str) -> Result<Self, String> {
        let method = match method {
            "null" => Method::Null,
            "libc" => Method::Libc,
            other => match (other.strip_prefix("unix:"), other.strip_prefix("udp:")) {
                (Some(path), _) => Method::Unix(path.into()),
                // As in the reference, an address that leads nowhere is no mistake.
                (None, Some(address)) => {
                    let address = udp_address(address)
                        .or_else(|_| udp_address(&format!("{address}:{SYSLOG_PORT}")));
                    address.map_or(Method::Nowhere, Method::Udp)
                }
                (None, None) => return Err(format!("unsupported syslog method '{other}'")),
            },
        };
        Ok(Self { method, socket: None })
    }

    /// A `--syslog-target`.
    ///
    /// # Errors
    /// The text for the log.
    pub(crate) fn target(address: &str) -> Result<Self, String> {
        Ok(Self { method: Method::Udp(udp_address(address)?), socket: None })
    }

    /// Whether lines begin as those of syslog(3) do.
    pub(crate) fn is_libc(&self) -> bool {
        matches!(self.method, Method::Libc)
    }

    /// What `vlog/list-pattern` shows in front of the pattern.
    pub(crate) fn prefix(&self) -> &'static str {
        match self.method {
            Method::Null => "",
            Method::Libc => "<%B> %D{%h %e %T} %E %A:",
            Method::Unix(_) | Method::Udp(_) | Method::Nowhere => "<%B>",
        }
    }

    /// Sends one line; a log that cannot be reached is no reason to stop.
    pub(crate) fn send(&mut self, line: &str) {
        if !self.try_send(line) {
            self.socket = self.connect().ok();
            self.try_send(line);
        }
    }

    fn connect(&self) -> std::io::Result<Socket> {
        let unix = |path: &std::path::Path| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect(path)?;
            Ok(Socket::Unix(socket))
        };
        match &self.method {
            Method::Null | Method::Nowhere => Err(std::io::ErrorKind::NotConnected.into()),
            Method::Libc => unix(SOCKET.as_ref()),
            Method::Unix(path) => unix(path),
            Method::Udp(address) => {
                let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(local)?;
                socket.set_nonblocking(true)?;
                socket.connect(address)?;
                Ok(Socket::Udp(socket))
            }
        }
    }

    fn try_send(&self, line: &str) -> bool {
        match &self.socket {
            Some(Socket::Unix(socket)) => socket.send(line.as_bytes()).is_ok(),
            Some(Socket::Udp(socket)) => socket.send(line.as_bytes()).is_ok(),
            None => false,
        }
    }
}

/// `IP:PORT`, IPv6 in brackets.
fn udp_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.parse::<std::net::Ipv4Addr>().is_ok() || !text.contains(':') {
        return Err(format!("{text}: port must be specified"));
    }
    Err(format!("{text}: bad IP address"))
}
