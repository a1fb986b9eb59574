//! A blocking JSON-RPC client, for setting things up and for one client alone.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_net::address::Address;
use weir_net::tls::Connector;

use crate::Error;
use crate::error::fail;
use crate::frame::Framer;
use crate::tls::TlsSocket;

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Unix(PathBuf),
    Tcp(String),
    Ssl(String, Address, Connector),
}

impl Target {
    /// Parses `unix:PATH`, `tcp:HOST:PORT` or, where there is a connector, `ssl:HOST:PORT`.
    pub(crate) fn parse(method: &str, connector: Option<Connector>) -> Result<Self, Error> {
        match (method.split_once(':'), connector) {
            (Some(("unix", path)), None) => Ok(Self::Unix(path.into())),
            (Some(("tcp", address)), None) => Ok(Self::Tcp(address.to_owned())),
            (Some(("ssl", _)), Some(connector)) => {
                let address = Address::parse(method, Path::new("/"));
                let address = address.map_err(|e| Error::Usage(format!("'{method}': {e}")))?;
                Ok(Self::Ssl(method.to_owned(), address, connector))
            }
            (Some(("ssl", _)), None) => Err(Error::Usage(format!("{method} needs -p, -c and -C"))),
            (Some(("unix" | "tcp", _)), Some(_)) => {
                Err(Error::Usage(format!("-p, -c and -C are for ssl:HOST:PORT, not {method}")))
            }
            _ => Err(Error::Usage(format!(
                "'{method}' is neither unix:PATH nor tcp:HOST:PORT nor ssl:HOST:PORT"
            ))),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Ssl(..))
    }

    /// Connects, the handshake of TLS included.
    pub(crate) fn connect(&self) -> Result<Stream, Error> {
        let stream = match self {
            Self::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Self::Tcp(address) => TcpStream::connect(address.as_str()).and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }),
            Self::Ssl(_, address, connector) => {
                TlsSocket::connect(address, connector).map(Box::new).map(Stream::Tls)
            }
        };
        stream.map_err(|e| Error::Io(format!("connecting to {self}"), e))
    }

    /// Connects for use without waiting; the handshake of TLS goes on while the driver does other
    /// things.
    pub(crate) fn begin(&self) -> Result<Stream, Error> {
        if let Self::Ssl(_, address, connector) = self {
            let socket = TlsSocket::begin(address, connector);
            let socket = socket.map_err(|e| Error::Io(format!("connecting to {self}"), e))?;
            return Ok(Stream::Tls(Box::new(socket)));
        }
        let mut stream = self.connect()?;
        stream.set_nonblocking()?;
        Ok(stream)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Ssl(method, ..) => f.write_str(method),
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
}

impl Stream {
    pub(crate) fn set_nonblocking(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Tls(stream) => {
                stream.set_nonblocking();
                Ok(())
            }
        }
    }

    /// Whether the server probes for silent clients here.
    pub(crate) fn is_probed(&self) -> bool {
        !matches!(self, Self::Unix(_))
    }

    /// Whether a read would find something that epoll does not show.
    pub(crate) fn has_plain(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_plain())
    }

    /// Whether a write that would block waits for the peer rather than for room.
    pub(crate) fn awaits_peer(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.awaits_peer())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buf),
            Self::Tcp(stream) => stream.read(buf),
            Self::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buf),
            Self::Tcp(stream) => stream.write(buf),
            Self::Tls(stream) => stream.write(buf),
        }
    }

    /// Over TLS, `WouldBlock` where encrypted bytes wait for room.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Room for one read.
const READ_SIZE: usize = 256 * 1024;

/// One connection that waits for every answer.
pub(crate) struct Client {
    stream: Stream,
    input: Vec<u8>,
    chunk: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(target: &Target) -> Result<Self, Error> {
        Ok(Self { stream: target.connect()?, input: Vec::new(), chunk: vec![0; READ_SIZE] })
    }

    /// Sends a request that is already encoded and returns the bytes of the next message that is
    /// not an echo request of the server (those are answered).
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<&[u8], Error> {
        self.stream.write_all(request)?;
        loop {
            self.receive()?;
            if memchr::memmem::find(&self.input, br#""method":"echo""#).is_none() {
                return Ok(&self.input);
            }
            self.stream.write_all(ECHO_REPLY)?;
        }
    }

    /// Reads exactly one message into `input`. With one request outstanding nothing but an echo
    /// request can follow it at once, so bytes past the message's end are an error.
    fn receive(&mut self) -> Result<(), Error> {
        self.input.clear();
        let mut framer = Framer::default();
        loop {
            let n = self.stream.read(&mut self.chunk)?;
            if n == 0 {
                fail!("the server closed the connection");
            }
            let Some(end) = framer.scan(&self.chunk[..n]) else {
                self.input.extend_from_slice(&self.chunk[..n]);
                continue;
            };
            if end != n {
                fail!("unexpected bytes after a reply");
            }
            self.input.extend_from_slice(&self.chunk[..n]);
            return Ok(());
        }
    }

    /// Calls a method and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Error> {
        let request = json!({"id": 0, "method": method, "params": params}).to_string();
        let reply = self.exchange(request.as_bytes())?;
        let mut reply: Value = serde_json::from_slice(reply)
            .map_err(|e| Error::Check(format!("{method}: reply is not JSON: {e}")))?;
        match reply.get("error") {
            None | Some(Value::Null) => Ok(reply["result"].take()),
            Some(error) => fail!("{method} failed: {error}"),
        }
    }

    /// Runs a transaction of which every operation must succeed; returns the results.
    pub(crate) fn transact(&mut self, params: &Value) -> Result<Vec<Value>, Error> {
        match self.call("transact", params)? {
            Value::Array(results) => match results.iter().find(|r| r.get("error").is_some()) {
                Some(failed) => fail!("transaction failed: {failed}"),
                None => Ok(results),
            },
            other => fail!("transact answered {other}"),
        }
    }

    /// Gives the socket up.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }
}

/// The answer to a server's inactivity probe.
pub(crate) const ECHO_REPLY: &[u8] = br#"{"id":"echo","result":[],"error":null}"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;

    #[test]
    fn certificates_go_with_ssl_and_with_nothing_else() {
        let pki = Pki::make(&std::env::temp_dir()).unwrap();
        let connector = || Some(pki.connector.clone());
        let ssl = Target::parse("ssl:127.0.0.1:6640", connector()).unwrap();
        assert!(ssl.is_tls() && ssl.to_string() == "ssl:127.0.0.1:6640");
        assert!(!Target::parse("tcp:127.0.0.1:6640", None).unwrap().is_tls());
        for (method, connector) in [
            ("ssl:127.0.0.1:6640", None),
            ("ssl:127.0.0.1:many", connector()),
            ("tcp:127.0.0.1:6640", connector()),
            ("unix:/sock", connector()),
            ("127.0.0.1:6640", None),
        ] {
            assert!(Target::parse(method, connector).is_err(), "{method}");
        }
    }
}
