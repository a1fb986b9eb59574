//! Threads beside the loop, and how they tell it what they have done: a queue, and a descriptor
//! that wakes the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use crate::driver::lane::Lane;

/// Starts helpers whose results are `T` and collects what they did.
pub(crate) struct Threads<T> {
    reporter: Reporter<T>,
    done: Receiver<T>,
}

/// How a helper tells what it has done.
pub(crate) struct Reporter<T> {
    wake: Arc<OwnedFd>,
    sender: Sender<T>,
}

impl<T> Clone for Reporter<T> {
    fn clone(&self) -> Self {
        Self { wake: Arc::clone(&self.wake), sender: self.sender.clone() }
    }
}

impl<T> Reporter<T> {
    pub(crate) fn report(&self, done: T) {
        // Nobody listens only when the server is ending.
        if self.sender.send(done).is_ok() {
            ring(&self.wake);
        }
    }
}

/// A descriptor that a thread can wait for and another can [`ring`].
pub(crate) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes who waits for a [`bell`].
pub(crate) fn ring(bell: &OwnedFd) {
    // It fails only where it has been rung already, 2^64 - 1 times.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Makes a [`bell`] quiet that has been rung.
pub(crate) fn quieten(bell: &OwnedFd) {
    // It fails only where it has not been rung.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

impl<T: Send + 'static> Threads<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, done) = channel();
        let reporter = Reporter { wake: Arc::new(bell()?), sender };
        Ok(Self { reporter, done })
    }

    /// For a helper that is started elsewhere, or that does more than one piece of work.
    pub(crate) fn reporter(&self) -> &Reporter<T> {
        &self.reporter
    }

    /// Runs `work` in a thread; `failed` makes the result of one that panicked or never began.
    pub(crate) fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
        failed: impl FnOnce(String) -> T + Send + Clone + 'static,
    ) {
        let (reporter, panicked) = (self.reporter.clone(), failed.clone());
        let body = move || {
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                panicked("internal error: a helper thread panicked".to_owned())
            });
            reporter.report(done);
        };
        if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(body) {
            self.reporter.report(failed(weir_net::error::strerror(&error)));
        }
    }

    /// Runs `work` in a lane, as [`Threads::spawn`] does in a thread of its own.
    pub(crate) fn spawn_in(
        &self,
        lane: &mut Lane,
        work: impl FnOnce() -> T + Send + 'static,
        failed: impl FnOnce(String) -> T + Send + 'static,
    ) {
        let reporter = self.reporter.clone();
        lane.push(Box::new(move || {
            let done = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| failed("internal error: a helper thread panicked".to_owned()));
            reporter.report(done);
        }));
    }

    /// What has been done since the last call.
    pub(crate) fn take(&self) -> Vec<T> {
        quieten(&self.reporter.wake);
        self.done.try_iter().collect()
    }

    /// Waits for the next thing that is done, for who has nothing else to do. Some helper must be
    /// at something.
    pub(crate) fn wait(&self) -> T {
        self.done.recv().expect("the queue is open as long as a reporter of ours lives")
    }
}

impl<T> AsFd for Threads<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reporter.wake.as_fd()
    }
}
