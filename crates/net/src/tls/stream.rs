//! One TLS connection over a non-blocking socket.

use std::io::{self, BufRead as _, ErrorKind, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::certificate::Certificate;
use super::settings::{Acceptor, Connector};
use super::{Line, Severity, bootstrap, words};
use crate::stream::{Progress, receive, send};

/// Most slices taken into one call.
const SLICES_MAX: usize = 64;

/// Encrypted bytes that wait for room in the socket: rustls takes no more plain text beyond them.
const ENCRYPTED_BYTES_MAX: usize = 64 << 10;

/// A connection with TLS. Reads and writes never block; dropping it says goodbye, if the socket has
/// room.
pub struct TlsStream {
    fd: OwnedFd,
    connection: Connection,
    /// The CA file to be made of what the peer sends; then the connection ends.
    bootstrap: Option<String>,
    /// Whether the handshake is over.
    is_open: bool,
    /// Plain bytes that were taken to be written.
    taken: u64,
    /// How many of them had been taken when nothing was left to be written.
    sent: u64,
    log: Vec<Line>,
}

impl TlsStream {
    /// The side that was connected to.
    pub(crate) fn accept(fd: OwnedFd, acceptor: &Acceptor) -> io::Result<Self> {
        let connection =
            ServerConnection::new(acceptor.config.clone()).map_err(io::Error::other)?;
        Ok(Self::new(fd, connection.into(), None))
    }

    /// The side that connects to `host`.
    pub(crate) fn connect(fd: OwnedFd, host: &str, connector: &Connector) -> io::Result<Self> {
        let name = connector.server_name.as_deref().unwrap_or(host);
        // Where there is no name to send, an address makes rustls send none.
        let nowhere = ServerName::IpAddress(IpAddr::from([127, 0, 0, 1]).into());
        let name = ServerName::try_from(name.to_owned()).unwrap_or(nowhere);
        let connection = ClientConnection::new(connector.config.clone(), name);
        let connection = connection.map_err(io::Error::other)?;
        Ok(Self::new(fd, connection.into(), connector.bootstrap.clone()))
    }

    fn new(fd: OwnedFd, mut connection: Connection, bootstrap: Option<String>) -> Self {
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        Self { fd, connection, bootstrap, is_open: false, taken: 0, sent: 0, log: Vec::new() }
    }

    /// Goes on with the handshake.
    ///
    /// # Errors
    /// `EPROTO` where the peer or its certificate is not as it should be; the log says why. What
    /// the socket says.
    pub(crate) fn handshake(&mut self) -> io::Result<Progress> {
        while self.connection.is_handshaking() {
            if !self.write_pending()? {
                return Ok(Progress::Write);
            }
            if !self.connection.is_handshaking() {
                break;
            }
            match self.connection.read_tls(&mut Socket(&self.fd)) {
                Ok(0) => {
                    let text = format!("{}: unexpected SSL connection close", self.call());
                    return Err(self.fail(Severity::Info, text, Errno::PROTO));
                }
                Ok(_) => self.process(Errno::PROTO)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !self.write_pending()? {
            return Ok(Progress::Write);
        }
        if !self.is_open {
            self.is_open = true;
            self.name_server();
        }
        if let Some(file) = self.bootstrap.take() {
            let chain = self.connection.peer_certificates().unwrap_or_default();
            bootstrap::bootstrap(&file, chain, &mut self.log);
            return Err(Errno::PROTO.into());
        }
        Ok(Progress::Done)
    }

    /// Says which server the client asked for.
    fn name_server(&mut self) {
        let Connection::Server(connection) = &self.connection else { return };
        let Some(name) = connection.server_name() else { return };
        let text = format!("connection indicated server name {name}");
        self.log.push(Line::new(Severity::Debug, text));
    }

    /// The common name of the certificate that the peer has shown and we have believed.
    pub fn peer_name(&self) -> Option<String> {
        let leaf = self.connection.peer_certificates()?.first()?;
        Certificate::parse(leaf)?.common_name
    }

    /// Takes the lines that are to be logged.
    pub fn take_log(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.log)
    }

    /// Reads what has come, decrypts it and appends it to `out`; `scratch` is for what is
    /// encrypted. Whole records come out: 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come that is complete; `EIO` for what is not TLS.
    pub(crate) fn read_into(&mut self, out: &mut Vec<u8>, scratch: &mut [u8]) -> io::Result<usize> {
        let before = out.len();
        let mut is_end = self.read_plain(out)?;
        if out.len() == before && !is_end {
            let count = receive(&self.fd, scratch)?;
            is_end |= count == 0;
            let mut encrypted = scratch.get(..count).unwrap_or_default();
            while !encrypted.is_empty() && !is_end {
                self.connection.read_tls(&mut encrypted)?;
                self.process(Errno::IO)?;
                is_end |= self.read_plain(out)?;
            }
        }
        match out.len() - before {
            0 if is_end => Ok(0),
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// Moves decrypted bytes to `out`; true at the end of the stream.
    fn read_plain(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let mut reader = self.connection.reader();
        loop {
            match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(chunk) => {
                    let count = chunk.len();
                    out.extend_from_slice(chunk);
                    reader.consume(count);
                }
                // Without close_notify, as after a kill: JSON shows where a message ends.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads at most what fits into `buffer`. Some may be left that the socket does not show as
    /// readable: read until it would block.
    ///
    /// # Errors
    /// As [`TlsStream::read_into`].
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.connection.read_tls(&mut Socket(&self.fd))? == 0 {
                return Ok(0);
            }
            self.process(Errno::IO)?;
        }
    }

    /// Encrypts and writes as much as the socket takes, and at most 64 KiB beyond it, which
    /// [`TlsStream::write_pending`] writes later. Plain text is read in its place: what is sent to
    /// many is copied by nobody but the cipher.
    ///
    /// # Errors
    /// `WouldBlock` when bytes wait already; what the socket says.
    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.write_pending()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut kept = [IoSlice::new(&[]); SLICES_MAX];
        let count = slices.len().min(SLICES_MAX);
        kept[..count].copy_from_slice(&slices[..count]);
        let mut rest = &mut kept[..count];
        let mut total = 0;
        while rest.iter().any(|slice| !slice.is_empty()) {
            let taken = self.connection.writer().write_vectored(rest)?;
            total += taken;
            self.taken += taken as u64;
            IoSlice::advance_slices(&mut rest, taken);
            if !self.write_pending()? || taken == 0 {
                break;
            }
        }
        Ok(total)
    }

    /// Whether encrypted bytes wait for room in the socket.
    pub(crate) fn has_pending(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes encrypted bytes that wait for room in the socket; true when none are left.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn write_pending(&mut self) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(&self.fd)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = self.taken;
        Ok(true)
    }

    /// At most so many plain bytes that were taken are not in the socket.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.taken - self.sent
    }

    /// Deciphers what was read; a peer that does not speak TLS is told so and given up.
    fn process(&mut self, otherwise: Errno) -> io::Result<()> {
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                let _ = self.write_pending();
                let call = if self.is_open { "SSL_read" } else { self.call() };
                let text = format!("{call}: {}", words::openssl(&error));
                Err(self.fail(Severity::Warning, text, otherwise))
            }
        }
    }

    fn call(&self) -> &'static str {
        match self.connection {
            Connection::Client(_) => "SSL_connect",
            Connection::Server(_) => "SSL_accept",
        }
    }

    fn fail(&mut self, severity: Severity, text: String, error: Errno) -> io::Error {
        self.log.push(Line::new(severity, text));
        error.into()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if self.is_open && !self.connection.wants_write() {
            self.connection.send_close_notify();
            let _ = self.write_pending();
        }
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// The socket as rustls wants it.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.0, buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        send(self.0, &[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self.0, slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
