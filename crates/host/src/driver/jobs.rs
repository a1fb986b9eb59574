//! Helper threads: what takes long is done beside the loop, and its end is an event of the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use weir_server::event::{ConversionError, DbId};
use weir_server::load::{Converted, Database, Loaded};

use crate::disk::Replacement;

/// What a helper has done.
pub(crate) enum Done {
    /// A database file is read.
    Loaded(DbId, Result<Box<Loaded>, String>),
    /// The compacted copy of a database is written and synced.
    Compacted(DbId, Result<Replacement, String>),
    /// The converted copy of a database is written and synced.
    Converted(DbId, Result<(Replacement, Box<Converted>), ConversionError>),
    /// The command of `--run` has ended.
    Command(io::Result<ExitStatus>),
    /// Something that nobody waits for.
    Nothing,
}

/// Starts helpers and collects what they did.
pub(crate) struct Jobs {
    wake: Arc<OwnedFd>,
    sender: Sender<Done>,
    done: Receiver<Done>,
}

impl Jobs {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, done) = channel();
        Ok(Self { wake: Arc::new(wake), sender, done })
    }

    /// Runs `work` in a thread; `failed` makes the result of one that panicked or never began.
    pub(crate) fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + Clone + 'static,
    ) {
        let (sender, wake, panicked) =
            (self.sender.clone(), Arc::clone(&self.wake), failed.clone());
        let body = move || {
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                panicked("internal error: a helper thread panicked".to_owned())
            });
            report(&sender, &wake, done);
        };
        if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(body) {
            let done = failed(weir_net::error::strerror(&error));
            report(&self.sender, &self.wake, done);
        }
    }

    /// Frees a database, which takes a while.
    pub(crate) fn free(&self, database: Box<Database>) {
        let work = move || {
            drop(database);
            Done::Nothing
        };
        self.spawn("free", work, |_| Done::Nothing);
    }

    /// What has been done since the last call.
    pub(crate) fn take(&self) -> Vec<Done> {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        self.done.try_iter().collect()
    }
}

fn report(sender: &Sender<Done>, wake: &OwnedFd, done: Done) {
    // Nobody listens only when the server is ending.
    if sender.send(done).is_ok() {
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Jobs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
