//! Readiness of file descriptors: epoll(7), level-triggered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// Most descriptors reported at once; the others come in the next round.
const READY_MAX: usize = 1024;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Bytes to read, or the end of them.
    Read,
    /// Room to write.
    Write,
    /// Bytes to read, and room to write.
    ReadWrite,
    /// Only that the peer is gone.
    Nothing,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN | EventFlags::RDHUP,
            Self::Write => EventFlags::OUT,
            Self::ReadWrite => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
            Self::Nothing => EventFlags::empty(),
        }
    }
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token that the descriptor was added with.
    pub(crate) token: u64,
    /// Both directions are gone; to a reader this is an end or an error to be read.
    pub(crate) hung_up: bool,
    /// The peer sends nothing behind what is here to be read.
    pub(crate) has_ended: bool,
}

/// An epoll instance.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
    /// The last wait, and the one before, may have left something out that was ready.
    is_partial: [bool; 2],
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(READY_MAX), is_partial: [false; 2] })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), interest.flags())?)
    }

    pub(crate) fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), interest.flags())?)
    }

    /// Stops watching; must come before the descriptor is closed, or its duplicates stay watched.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until something is ready, at most `timeout`; `None` is for ever.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let timeout = timeout.map(timespec);
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        let result = epoll::wait(&self.epoll, spare, timeout.as_ref());
        let is_interrupted = result == Err(Errno::INTR);
        if !is_interrupted {
            result?;
        }
        // A process that is stopped and goes on hears of that first.
        self.is_partial = [is_interrupted || self.events.len() == READY_MAX, self.is_partial[0]];
        ready.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            let has_ended = hung_up || flags.contains(EventFlags::RDHUP);
            Ready { token: event.data.u64(), hung_up, has_ended }
        }));
        Ok(())
    }

    /// Whether what was reported last may have been ready at the wait before, too.
    pub(crate) fn goes_on(&self) -> bool {
        self.is_partial[1]
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Longest wait; longer ones do not fit into the call that every kernel has.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// In whole milliseconds, rounded up, which every kernel takes in one call.
fn timespec(timeout: Duration) -> Timespec {
    let timeout = timeout.min(WAIT_MAX);
    let millis = timeout.subsec_nanos().div_ceil(1_000_000);
    let seconds = timeout.as_secs() + u64::from(millis / 1000);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(millis % 1000) * 1_000_000 }
}
