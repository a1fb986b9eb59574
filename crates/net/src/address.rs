//! Connection methods as users write them (ovsdb(7), "Active Connections", "Passive Connections").

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};

/// The port of OVSDB (RFC 7047, section 7) where none is given.
pub const DEFAULT_PORT: u16 = 6640;

/// Where to listen or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:FILE`: a Unix domain socket to connect to.
    Unix(PathBuf),
    /// `tcp:HOST[:PORT]`; the host is a name or an IP address without brackets.
    Tcp {
        /// The name or IP address to connect to.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// `ssl:HOST[:PORT]`: TCP as in [`Address::Tcp`], with TLS.
    Ssl {
        /// The name or IP address to connect to.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// `punix:FILE`: a Unix domain socket to listen on.
    PassiveUnix(PathBuf),
    /// `ptcp:[PORT][:HOST]`: a TCP port to listen on.
    PassiveTcp {
        /// The name or IP address to listen on; empty for every IPv4 address.
        host: String,
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
    /// `pssl:[PORT][:HOST]`: TCP as in [`Address::PassiveTcp`], with TLS.
    PassiveSsl {
        /// The name or IP address to listen on; empty for every IPv4 address.
        host: String,
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
    /// `pfd:FD`: a socket that listens already, inherited under this number.
    PassiveFd(i32),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// There is no such connection method.
    Unsupported,
    /// The method is known, the rest is wrong: what the reference logs from `socket_util`.
    Malformed(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("Address family not supported by protocol"),
            Self::Malformed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Reads an address; relative socket paths are taken from `rundir`.
    ///
    /// # Errors
    /// An unknown method, or a port or host that cannot be read.
    pub fn parse(text: &str, rundir: &Path) -> Result<Self, AddressError> {
        let (method, rest) = text.split_once(':').ok_or(AddressError::Unsupported)?;
        match method {
            "unix" => Ok(Self::Unix(rundir.join(rest))),
            "punix" => Ok(Self::PassiveUnix(rundir.join(rest))),
            "tcp" => active_tcp(rest).map(|(host, port)| Self::Tcp { host, port }),
            "ssl" => active_tcp(rest).map(|(host, port)| Self::Ssl { host, port }),
            "ptcp" => passive_tcp(rest).map(|(host, port)| Self::PassiveTcp { host, port }),
            "pssl" => passive_tcp(rest).map(|(host, port)| Self::PassiveSsl { host, port }),
            "pfd" => match rest.parse() {
                Ok(number) if number >= 0 => Ok(Self::PassiveFd(number)),
                _ => Err(malformed(text, "bad file descriptor")),
            },
            _ => Err(AddressError::Unsupported),
        }
    }

    /// Reads the address of a cluster's member, to connect to it: `tcp:HOST:PORT`, `ssl:HOST:PORT`
    /// or `unix:FILE`. Nothing stands for a port that is missing.
    ///
    /// # Errors
    /// As [`Address::parse`], also for addresses to listen on and where there is no port.
    pub fn parse_peer(text: &str, rundir: &Path) -> Result<Self, AddressError> {
        let address = Self::parse(text, rundir)?;
        if address.is_passive() {
            return Err(AddressError::Unsupported);
        }
        if let (Self::Tcp { .. } | Self::Ssl { .. }, Some((_, rest))) =
            (&address, text.split_once(':'))
            && tokens(rest)?.get(1).is_none_or(|port| port.is_empty())
        {
            return Err(malformed(rest, "port must be specified"));
        }
        Ok(address)
    }

    /// Where to listen so that others connect by this address.
    pub fn listening(self) -> Self {
        match self {
            Self::Unix(path) => Self::PassiveUnix(path),
            Self::Tcp { host, port } => Self::PassiveTcp { host, port },
            Self::Ssl { host, port } => Self::PassiveSsl { host, port },
            passive => passive,
        }
    }

    /// Whether the host is a name, so that connecting or listening begins with asking the system's resolver.
    pub fn needs_lookup(&self) -> bool {
        match self {
            Self::Tcp { host, port } | Self::Ssl { host, port } => {
                socket_addr(host, *port).is_none()
            }
            Self::PassiveTcp { host, port } | Self::PassiveSsl { host, port } => {
                passive_addr(host, *port).is_none()
            }
            Self::Unix(_) | Self::PassiveUnix(_) | Self::PassiveFd(_) => false,
        }
    }

    /// Whether the address is one to listen on.
    pub fn is_passive(&self) -> bool {
        match self {
            Self::PassiveUnix(_) | Self::PassiveTcp { .. } => true,
            Self::PassiveSsl { .. } | Self::PassiveFd(_) => true,
            Self::Unix(_) | Self::Tcp { .. } | Self::Ssl { .. } => false,
        }
    }
}

/// `HOST[:PORT]`.
fn active_tcp(target: &str) -> Result<(String, u16), AddressError> {
    let tokens = tokens(target)?;
    let (host, port) = match tokens.as_slice() {
        [host] => (host, None),
        [host, port] => (host, Some(port)),
        _ => return Err(malformed(target, "port must be specified")),
    };
    if host.is_empty() {
        return Err(malformed(target, "host must be specified"));
    }
    let port = match port {
        Some(text) if !text.is_empty() => parse_port(target, text)?,
        _ => DEFAULT_PORT,
    };
    if port == 0 {
        return Err(bad_port(target, "0"));
    }
    Ok(((*host).to_owned(), port))
}

/// `[PORT][:HOST]`.
fn passive_tcp(target: &str) -> Result<(String, u16), AddressError> {
    let tokens = tokens(target)?;
    let (port, host) = match tokens.as_slice() {
        [port] => (port, ""),
        [port, host] => (port, *host),
        _ => return Err(malformed(target, "port must be specified")),
    };
    let port = if port.is_empty() { DEFAULT_PORT } else { parse_port(target, port)? };
    Ok((host.to_owned(), port))
}

/// Splits at colons outside brackets and removes the brackets.
fn tokens(target: &str) -> Result<Vec<&str>, AddressError> {
    let mut tokens = Vec::new();
    let mut rest = target;
    loop {
        let (token, after) = match rest.strip_prefix('[') {
            Some(inner) => {
                let end = inner.find(']').ok_or_else(|| malformed(target, "missing ']'"))?;
                (&inner[..end], &inner[end + 1..])
            }
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        tokens.push(token);
        match after.strip_prefix(':') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(tokens),
            None => return Err(malformed(target, "bad syntax after ']'")),
        }
    }
}

fn parse_port(target: &str, text: &str) -> Result<u16, AddressError> {
    text.parse().map_err(|_| bad_port(target, text))
}

fn bad_port(target: &str, text: &str) -> AddressError {
    malformed(target, &format!("bad port number \"{text}\""))
}

fn malformed(target: &str, text: &str) -> AddressError {
    AddressError::Malformed(format!("{target}: {text}"))
}

/// An IP address, an IPv6 one perhaps with `%SCOPE` (a name or a number).
pub(crate) fn socket_addr(ip: &str, port: u16) -> Option<SocketAddr> {
    if ip == "localhost" {
        return Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    if let Some((ip, scope)) = ip.split_once('%') {
        let ip: Ipv6Addr = ip.parse().ok()?;
        return Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope_id(scope)?)));
    }
    ip.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port))
}

/// Where to listen, unless the host is a name.
pub(crate) fn passive_addr(host: &str, port: u16) -> Option<SocketAddr> {
    match host {
        "" => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        host => socket_addr(host, port),
    }
}

/// The number of an interface.
fn scope_id(scope: &str) -> Option<u32> {
    if let Ok(number) = scope.parse() {
        return Some(number);
    }
    if scope.contains('/') {
        return None;
    }
    let text = std::fs::read_to_string(format!("/sys/class/net/{scope}/ifindex")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, AddressError> {
        Address::parse(text, Path::new("/run/ovs"))
    }

    fn listens_on(text: &str, expected: &str) {
        let Ok(Address::PassiveTcp { host, port }) = parse(text) else { panic!("{text}") };
        assert_eq!(passive_addr(&host, port), Some(expected.parse().unwrap()), "{text}");
    }

    fn refuses(text: &str, expected: &str) {
        assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
    }

    #[test]
    fn relative_socket_paths_are_in_the_run_directory() {
        assert_eq!(parse("punix:db.sock"), Ok(Address::PassiveUnix("/run/ovs/db.sock".into())));
        assert_eq!(parse("unix:/tmp/x:y"), Ok(Address::Unix("/tmp/x:y".into())));
    }

    #[test]
    fn passive_tcp_defaults_to_every_ipv4_address_and_port_6640() {
        listens_on("ptcp:", "0.0.0.0:6640");
        listens_on("ptcp:0", "0.0.0.0:0");
        listens_on("ptcp::127.0.0.1", "127.0.0.1:6640");
        listens_on("ptcp:1234:127.0.0.1", "127.0.0.1:1234");
        listens_on("ptcp:0:[::1]", "[::1]:0");
        listens_on("ptcp:6640:[::]", "[::]:6640");
    }

    #[test]
    fn active_tcp_takes_names_and_brackets() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.into(), port });
        assert_eq!(parse("tcp:192.0.2.1"), tcp("192.0.2.1", 6640));
        assert_eq!(parse("tcp:example.org:99"), tcp("example.org", 99));
        assert_eq!(parse("tcp:[::1]:99"), tcp("::1", 99));
    }

    #[test]
    fn members_of_a_cluster_listen_where_others_connect_to() {
        let listening =
            |text: &str| Address::parse_peer(text, Path::new("/run/ovs")).map(Address::listening);
        let tcp = |host: &str, port| Address::PassiveTcp { host: host.to_owned(), port };
        let tls = |host: &str, port| Address::PassiveSsl { host: host.to_owned(), port };
        let expected = [
            ("tcp:127.0.0.1:6643", tcp("127.0.0.1", 6643)),
            ("tcp:host.example:6643", tcp("host.example", 6643)),
            ("ssl:[fd00::1]:6644", tls("fd00::1", 6644)),
            ("unix:s1.raft", Address::PassiveUnix("/run/ovs/s1.raft".into())),
        ];
        for (text, address) in expected {
            assert_eq!(address.needs_lookup(), text.contains("example"), "{text}");
            assert_eq!(listening(text), Ok(address));
        }
        for (text, error) in [
            ("tcp:127.0.0.1", "127.0.0.1: port must be specified"),
            ("ssl:127.0.0.1:", "127.0.0.1:: port must be specified"),
            ("tcp:127.0.0.1:0", "127.0.0.1:0: bad port number \"0\""),
            ("ptcp:6643:127.0.0.1", "Address family not supported by protocol"),
            ("punix:s1.raft", "Address family not supported by protocol"),
        ] {
            assert_eq!(listening(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn errors_are_the_texts_of_the_reference() {
        refuses("foo", "Address family not supported by protocol");
        refuses("", "Address family not supported by protocol");
        refuses("pfd:x", "pfd:x: bad file descriptor");
        refuses("pfd:-1", "pfd:-1: bad file descriptor");
        refuses("ptcp:foo", "foo: bad port number \"foo\"");
        refuses("ptcp:99999", "99999: bad port number \"99999\"");
        refuses("ptcp:0:::1", "0:::1: port must be specified");
    }
}
