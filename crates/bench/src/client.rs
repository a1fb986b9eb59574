//! A blocking JSON-RPC client, for setting things up and for one client alone.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Error;
use crate::error::fail;
use crate::frame::Framer;

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Unix(PathBuf),
    Tcp(String),
}

impl Target {
    /// Parses `unix:PATH` or `tcp:HOST:PORT`.
    pub(crate) fn parse(method: &str) -> Result<Self, Error> {
        match method.split_once(':') {
            Some(("unix", path)) => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => Ok(Self::Tcp(address.to_owned())),
            _ => Err(Error::Usage(format!("'{method}' is neither unix:PATH nor tcp:HOST:PORT"))),
        }
    }

    pub(crate) fn connect(&self) -> Result<Stream, Error> {
        let stream = match self {
            Self::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Self::Tcp(address) => TcpStream::connect(address.as_str()).and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }),
        };
        stream.map_err(|e| Error::Io(format!("connecting to {self}"), e))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(buf),
            Stream::Tcp(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).write(buf),
            Stream::Tcp(stream) => (&mut &*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        (&self.stream).write_all(request)?;
        loop {
            self.receive()?;
            if memchr::memmem::find(&self.input, br#""method":"echo""#).is_none() {
                return Ok(&self.input);
            }
            (&self.stream).write_all(ECHO_REPLY)?;
        }
    }

    /// Reads exactly one message into `input`. With one request outstanding nothing but an echo
    /// request can follow it at once, so bytes past the message's end are an error.
    fn receive(&mut self) -> Result<(), Error> {
        self.input.clear();
        let mut framer = Framer::default();
        loop {
            let n = (&self.stream).read(&mut self.chunk)?;
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
