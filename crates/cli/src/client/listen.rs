//! A server that connects: `punix:`, `ptcp:` and `pssl:` (ovsdb(7), "Passive Connections").

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use weir_host::vlog::Level;
use weir_net::{Accepted, Address, Listener};

use super::Client;
use super::address::Stream;
use super::process::{forget_file, remember_file};

/// How far waiting for a server to connect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is no socket that listens yet.
    Listen,
    /// There is a socket, and nobody has connected yet.
    Accept,
    /// A server has connected, which is to speak TLS.
    Handshake,
}

/// Listens and waits for one connection: the stream, and what messages call the server.
/// `listening` is called when a server may come; `stage` is where an error is from.
pub(super) fn wait_for_server(
    client: &Client,
    address: &Address,
    remote: &str,
    listening: impl FnOnce(),
    stage: &mut Stage,
) -> io::Result<(Stream, String)> {
    *stage = Stage::Listen;
    let socket = ListeningSocket::open(client, address, remote)?;
    listening();
    *stage = Stage::Accept;
    let Accepted { stream, peer } = socket.accept()?;
    let name = peer.name(0);
    if socket.listener.is_tls() {
        let acceptor = client.acceptor()?;
        *stage = Stage::Handshake;
        return Ok((client.shake_hands(stream.accept_tls(&acceptor)?)?, name));
    }
    Ok((blocking(stream)?, name))
}

/// A socket that listens; a fatal signal removes its file too.
struct ListeningSocket {
    listener: Listener,
    file: Option<PathBuf>,
}

impl ListeningSocket {
    fn open(client: &Client, address: &Address, remote: &str) -> io::Result<Self> {
        let listener = Listener::open(address, remote, None).map_err(|failure| {
            client.log.log(failure.module, Level::Err, &failure.text);
            failure.error
        })?;
        if let Some(text) = listener.announcement(address, remote) {
            client.log.log("socket_util", Level::Info, &text);
        }
        let file = listener.path().map(PathBuf::from);
        file.iter().cloned().for_each(remember_file);
        Ok(Self { listener, file })
    }

    fn accept(&self) -> io::Result<Accepted> {
        loop {
            if let Some(accepted) = self.listener.accept()? {
                return Ok(accepted);
            }
            match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            forget_file(file);
        }
    }
}

/// Makes reads and writes of a connection wait.
fn blocking(stream: weir_net::Stream) -> io::Result<Stream> {
    let awaken = |fd: &OwnedFd| rustix::io::ioctl_fionbio(fd, false);
    match stream {
        weir_net::Stream::Unix(fd) => {
            awaken(&fd)?;
            Ok(Stream::Unix(UnixStream::from(fd)))
        }
        weir_net::Stream::Tcp(fd) => {
            awaken(&fd)?;
            Ok(Stream::Tcp(TcpStream::from(fd)))
        }
        weir_net::Stream::Tls(_) => Err(rustix::io::Errno::PROTO.into()),
    }
}
