//! One connection: its stream, the bytes that have come on it, and those that wait to leave.
//!
//! Clients, links and admins differ in what a message means and in when they are read. How bytes
//! come from a socket to an inbox, and from an outbox to a socket, is the same for all and stands
//! here.

use std::io::{self, ErrorKind};

use weir_net::Stream;
use weir_net::tls::Line;
use weir_server::event::Outbox as Progress;

use crate::driver::incoming::inbox::Inbox;
use crate::driver::incoming::unfinished::FREE_BYTES;
use crate::driver::outgoing::outbox::{Flushed, Outbox};
use crate::driver::token::Token;
use crate::poller::{Interest, Poller};

/// What one read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes, which are in the inbox.
    Bytes(usize),
    /// Nothing is there yet.
    Nothing,
    /// The peer sends no more.
    End,
}

/// What one flush has come to.
pub(crate) struct Flush {
    pub(crate) result: io::Result<Flushed>,
    /// Bytes that the stream took.
    pub(crate) bytes: usize,
    /// Calls of the system that it took.
    pub(crate) calls: u64,
}

/// A connection whose socket is watched.
pub(crate) struct Channel {
    stream: Stream,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    interest: Interest,
}

impl Channel {
    /// Watches a stream for input.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub(crate) fn open(
        poller: &Poller,
        token: Token,
        stream: Stream,
        inbox: Inbox,
    ) -> io::Result<Self> {
        let interest = Interest::Read;
        poller.add(&stream, token.encode(), interest)?;
        Ok(Self { stream, inbox, outbox: Outbox::default(), interest })
    }

    /// What the socket is watched for.
    pub(crate) fn interest(&self) -> Interest {
        self.interest
    }

    /// Watches the socket for something else from now on.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub(crate) fn watch(
        &mut self,
        poller: &Poller,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        if interest == self.interest {
            return Ok(());
        }
        self.interest = interest;
        poller.change(&self.stream, token.encode(), interest)
    }

    /// Closes the stream.
    pub(crate) fn close(self, poller: &Poller) {
        poller.remove(&self.stream);
    }

    /// Whether TLS is spoken: what came right behind the handshake, the socket does not show.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// The common name of the peer's certificate.
    pub(crate) fn peer_name(&self) -> Option<String> {
        self.stream.peer_name()
    }

    /// What TLS has to say.
    pub(crate) fn take_log(&mut self) -> Vec<Line> {
        self.stream.take_log()
    }

    /// Reads once.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> io::Result<Received> {
        // Before, one read brings at most what `scratch` holds, so that what clients have here
        // without turns is known.
        let result = if self.inbox.held_bytes() >= FREE_BYTES {
            self.stream.read_spare(self.inbox.spare(), scratch)
        } else if let Stream::Tls(_) = self.stream {
            self.stream.read_spare(self.inbox.buffer(), scratch)
        } else {
            let result = self.stream.read(scratch);
            result.inspect(|count| self.inbox.push(&scratch[..*count]))
        };
        match result {
            Ok(0) => Ok(Received::End),
            Ok(count) => Ok(Received::Bytes(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Received::Nothing),
                _ => Err(error),
            },
        }
    }

    /// Reads past the inbox what has come, at most `bytes_max`; over TLS also what is deciphered
    /// with it. Also why nothing more comes, if that is so.
    pub(crate) fn receive_bytes(
        &mut self,
        scratch: &mut [u8],
        bytes_max: usize,
    ) -> (Vec<u8>, io::Result<Received>) {
        let mut bytes = Vec::new();
        while bytes.len() < bytes_max {
            let room = scratch.len().min(bytes_max - bytes.len());
            let result = if self.is_tls() {
                self.stream.read_spare(&mut bytes, scratch)
            } else {
                let result = self.stream.read(&mut scratch[..room]);
                result.inspect(|count| bytes.extend_from_slice(&scratch[..*count]))
            };
            match result {
                Ok(0) => return (bytes, Ok(Received::End)),
                // The socket is empty, and tells when it is no more.
                Ok(count) if count < room => break,
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => break,
                    _ => return (bytes, Err(error)),
                },
            }
        }
        let received =
            if bytes.is_empty() { Received::Nothing } else { Received::Bytes(bytes.len()) };
        (bytes, Ok(received))
    }

    /// Reads what came right behind the handshake of TLS: it is deciphered already, and the socket
    /// does not show it. Without TLS there is no such thing.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub(crate) fn receive_early(&mut self, scratch: &mut [u8]) -> io::Result<Received> {
        match self.stream {
            Stream::Tls(_) => self.receive(scratch),
            Stream::Unix(_) | Stream::Tcp(_) => Ok(Received::Nothing),
        }
    }

    /// Everything that was queued is in the socket.
    pub(crate) fn is_drained(&self) -> bool {
        self.outbox.is_empty() && !self.has_pending()
    }

    /// Whether TLS has bytes that the socket has not: the rest of what it has taken, or something of its
    /// own.
    pub(crate) fn has_pending(&self) -> bool {
        self.stream.has_pending()
    }

    /// Leaves bytes with TLS that the socket does not take.
    #[cfg(test)]
    pub(crate) fn leave_pending(&mut self) {
        while !self.has_pending() {
            let spaces = [io::IoSlice::new(&[b' '; 1 << 14])];
            self.stream.write_vectored(&spaces).expect("the peer is there");
        }
    }

    /// How far all has come that was ever queued.
    pub(crate) fn progress(&self) -> Progress {
        let taken = self.outbox.written_ever();
        let written = taken.saturating_sub(self.stream.pending_bytes());
        // Of a socket that cannot tell nothing has arrived, for all that is known.
        let unacknowledged = self.stream.unacknowledged().unwrap_or(u64::MAX);
        Progress {
            queued: taken + self.outbox.bytes() as u64,
            written,
            acknowledged: written.saturating_sub(unacknowledged),
        }
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> Flush {
        let (stream, mut bytes, mut calls) = (&mut self.stream, 0, 0);
        let flushed = self.outbox.flush(|slices| {
            calls += 1;
            let written = stream.write_vectored(slices);
            bytes += written.as_ref().copied().unwrap_or(0);
            written
        });
        // What TLS has taken may still be on this side.
        let result = match flushed {
            Ok(Flushed::All) => stream
                .write_pending()
                .map(|is_done| if is_done { Flushed::All } else { Flushed::Part }),
            other => other,
        };
        Flush { result, bytes, calls }
    }
}
