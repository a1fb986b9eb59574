//! A stream for programs that do one thing at a time: it waits, up to a deadline.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::address::Address;
use crate::stream::{Progress, Stream};
use crate::tls::Connector;

/// A connection whose reads and writes wait; `ETIMEDOUT` when the deadline is over.
#[derive(Debug)]
pub struct BlockingStream {
    stream: Stream,
    deadline: Option<Instant>,
}

impl BlockingStream {
    /// Connects, the handshake of TLS included. `timeout` is for all of it; afterwards there is no
    /// deadline until [`BlockingStream::set_timeout`] sets one.
    ///
    /// # Errors
    /// As [`Stream::connect`] and [`Stream::finish_connect`]; `ETIMEDOUT`.
    pub fn connect(
        address: &Address,
        tls: Option<&Connector>,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        Self::finish(Stream::connect(address, tls)?, timeout)
    }

    /// Waits until a stream that has begun to connect is connected.
    ///
    /// # Errors
    /// As [`BlockingStream::connect`].
    pub fn finish(stream: Stream, timeout: Option<Duration>) -> io::Result<Self> {
        let mut blocking = Self { stream, deadline: None };
        blocking.set_timeout(timeout);
        loop {
            match blocking.stream.finish_connect()? {
                Progress::Done => break,
                progress => blocking.wait(progress)?,
            }
        }
        blocking.deadline = None;
        Ok(blocking)
    }

    /// Lets reads and writes fail from now on when this time is over; `None` waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    }

    /// The stream, for use without waiting.
    pub fn get_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// The stream itself, for use without waiting.
    pub fn into_inner(self) -> Stream {
        self.stream
    }

    /// Waits until there is something to read; false when the deadline is over.
    ///
    /// # Errors
    /// What poll(2) says.
    fn wait(&self, progress: Progress) -> io::Result<()> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if self.stream.wait(progress, left)? || left.is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        Err(Errno::TIMEDOUT.into())
    }
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(Progress::Read)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.write_vectored(&[IoSlice::new(buffer)]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(Progress::Write)?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Waits until everything that was written is in the socket.
    fn flush(&mut self) -> io::Result<()> {
        while !self.stream.write_pending()? {
            self.wait(Progress::Write)?;
        }
        Ok(())
    }
}

impl AsFd for BlockingStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
