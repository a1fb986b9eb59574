//! A connection over TLS as the driver wants one: plain bytes in and out, waiting or not.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use weir_net::address::Address;
use weir_net::stream::{Progress, Stream};
use weir_net::tls::Connector;

/// Room for decrypted bytes that is kept while there are none.
const KEPT: usize = 32 * 1024;

/// A connection over TLS that waits or does not, as it is told.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: Stream,
    /// What the handshake waits for.
    handshake: Progress,
    waits: bool,
    /// Decrypted bytes, the first `taken` of which have been read.
    plain: Vec<u8>,
    taken: usize,
}

impl TlsSocket {
    /// Begins to connect. The handshake goes on with each read and write.
    pub(crate) fn begin(address: &Address, connector: &Connector) -> io::Result<Self> {
        let stream = Stream::connect(address, Some(connector))?;
        let handshake = Progress::Write;
        Ok(Self { stream, handshake, waits: false, plain: Vec::new(), taken: 0 })
    }

    /// Connects; reads and writes wait until they are told otherwise.
    pub(crate) fn connect(address: &Address, connector: &Connector) -> io::Result<Self> {
        let mut socket = Self::begin(address, connector)?;
        socket.waits = true;
        socket.shake_hands()?;
        Ok(socket)
    }

    /// From now on reads and writes do not wait.
    pub(crate) fn set_nonblocking(&mut self) {
        self.waits = false;
    }

    /// Whether there is something to read that the socket does not show.
    pub(crate) fn has_plain(&self) -> bool {
        self.taken < self.plain.len()
    }

    /// Whether the next write needs the peer's part of the handshake first, not room.
    pub(crate) fn awaits_peer(&self) -> bool {
        self.handshake == Progress::Read
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        while self.handshake != Progress::Done {
            self.handshake = self.stream.finish_connect().map_err(|error| self.explain(error))?;
            if self.handshake != Progress::Done {
                self.wait(self.handshake)?;
            }
        }
        Ok(())
    }

    /// An error with what TLS has to say of it.
    fn explain(&mut self, error: io::Error) -> io::Error {
        match self.stream.take_log().pop() {
            Some(line) => io::Error::new(error.kind(), format!("{error} ({})", line.text)),
            None => error,
        }
    }

    /// Waits, or says that one would have to.
    fn wait(&self, progress: Progress) -> io::Result<()> {
        if !self.waits {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.stream.wait(progress, None).map(drop)
    }
}

impl Read for TlsSocket {
    /// Reads the socket at most once unless it has to wait. `buffer` takes what is encrypted too;
    /// what comes out may be a little more than that, see [`TlsSocket::has_plain`].
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.shake_hands()?;
        while !self.has_plain() {
            self.plain.clear();
            self.plain.shrink_to(KEPT);
            self.taken = 0;
            match self.stream.read_spare(&mut self.plain, buffer) {
                Ok(0) => return Ok(0),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(Progress::Read)?,
                Err(error) => return Err(self.explain(error)),
            }
        }
        let count = buffer.len().min(self.plain.len() - self.taken);
        buffer[..count].copy_from_slice(&self.plain[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

impl Write for TlsSocket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.shake_hands()?;
        loop {
            match self.stream.write_vectored(&[IoSlice::new(buffer)]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(Progress::Write)?,
                Err(error) => return Err(error),
                Ok(count) if self.waits => return self.flush().map(|()| count),
                Ok(count) => return Ok(count),
            }
        }
    }

    /// Puts everything that was written into the socket; `WouldBlock` where it has no room.
    fn flush(&mut self) -> io::Result<()> {
        while !self.stream.write_pending()? {
            self.wait(Progress::Write)?;
        }
        Ok(())
    }
}

impl AsFd for TlsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;
    use std::net::TcpListener;
    use std::path::Path;
    use std::thread::JoinHandle;
    use weir_net::BlockingStream;

    /// Larger than a record of TLS, a socket's buffers, and what rustls holds.
    const LARGE: usize = 20 << 20;

    /// A server that reads as many bytes as it will then send.
    fn mirror(pki: &Pki) -> (Address, JoinHandle<()>) {
        let acceptor = pki.server().acceptor().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = std::thread::spawn(move || {
            let (tcp, _) = listener.accept().unwrap();
            tcp.set_nonblocking(true).unwrap();
            let stream = Stream::Tcp(tcp.into()).accept_tls(&acceptor).unwrap();
            let mut stream = BlockingStream::finish(stream, None).unwrap();
            assert_eq!(stream.get_mut().peer_name().as_deref(), Some("client"));
            let mut bytes = vec![0; LARGE];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            stream.flush().unwrap();
        });
        (Address::parse(&format!("ssl:127.0.0.1:{port}"), Path::new("/")).unwrap(), serve)
    }

    fn blocks<T>(result: &io::Result<T>) -> bool {
        result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn pattern() -> Vec<u8> {
        (0..LARGE).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn all_bytes_come_back_to_one_who_waits() {
        let pki = Pki::make(&std::env::temp_dir()).unwrap();
        let (address, serve) = mirror(&pki);
        let mut socket = TlsSocket::connect(&address, &pki.connector).unwrap();
        socket.write_all(&pattern()).unwrap();
        let mut back = vec![0; LARGE];
        socket.read_exact(&mut back).unwrap();
        assert!(back == pattern());
        serve.join().unwrap();
    }

    #[test]
    fn all_bytes_come_back_to_one_who_does_not() {
        let pki = Pki::make(&std::env::temp_dir()).unwrap();
        let (address, serve) = mirror(&pki);
        let mut socket = TlsSocket::begin(&address, &pki.connector).unwrap();
        assert!(blocks(&socket.read(&mut [0])), "there is no connection yet");
        let (sent, mut at, mut back) = (pattern(), 0, Vec::new());
        let mut buffer = vec![0; 1000];
        while back.len() < LARGE {
            if at < LARGE {
                let written = socket.write(&sent[at..]);
                let progress = if socket.awaits_peer() { Progress::Read } else { Progress::Write };
                if blocks(&written) {
                    socket.stream.wait(progress, None).unwrap();
                } else {
                    at += written.unwrap();
                }
                continue;
            }
            let flushed = socket.flush();
            if blocks(&flushed) {
                socket.stream.wait(Progress::Write, None).unwrap();
                continue;
            }
            flushed.unwrap();
            // What the socket shows and `has_plain` must be all that a driver needs to know.
            if !socket.has_plain() {
                socket.stream.wait(Progress::Read, None).unwrap();
            }
            let read = socket.read(&mut buffer);
            if !blocks(&read) {
                back.extend_from_slice(&buffer[..read.unwrap()]);
            }
        }
        assert!(back == sent);
        serve.join().unwrap();
    }
}
