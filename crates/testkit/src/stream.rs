//! What a client talks through: a unix socket, or TLS with a certificate of its own.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use weir_net::{Address, BlockingStream, Tls};

use crate::pki::Pki;

/// A connection whose reads and writes wait, up to its patience.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connection to `unix:PATH`.
    Unix(UnixStream),
    /// A connection to `ssl:HOST:PORT`, and how long a read or write may wait.
    Tls(Box<BlockingStream>, Duration),
}

impl Stream {
    pub(crate) fn unix(path: &Path, patience: Duration) -> io::Result<Self> {
        let stream = Self::Unix(UnixStream::connect(path)?);
        stream.with_patience(patience)
    }

    /// Connects as `name`, a certificate of `pki` that its authority `ca` has signed.
    pub(crate) fn tls(
        server: SocketAddr,
        pki: &Pki,
        name: &str,
        patience: Duration,
    ) -> io::Result<Self> {
        let mut tls = Tls::new(&pki.options(name, "ca"));
        let address = Address::Ssl { host: server.ip().to_string(), port: server.port() };
        let connector = tls.connector()?;
        let stream = BlockingStream::connect(&address, Some(&connector), Some(patience))?;
        Ok(Self::Tls(Box::new(stream), patience))
    }

    fn with_patience(mut self, patience: Duration) -> io::Result<Self> {
        self.set_patience(patience)?;
        Ok(self)
    }

    pub(crate) fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))
            }
            Self::Tls(_, of_stream) => {
                *of_stream = patience;
                Ok(())
            }
        }
    }

    /// A second handle for another thread to write to.
    pub(crate) fn try_clone(&self) -> io::Result<UnixStream> {
        match self {
            Self::Unix(stream) => stream.try_clone(),
            Self::Tls(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tls(stream, patience) => {
                stream.set_timeout(Some(*patience));
                stream.read(buffer)
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buffer),
            Self::Tls(stream, patience) => {
                stream.set_timeout(Some(*patience));
                stream.write(buffer)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream, patience) => {
                stream.set_timeout(Some(*patience));
                stream.flush()
            }
        }
    }
}
