//! Helper threads: what takes long is done beside the loop, and its end is an event of the loop.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use weir_net::Stream;
use weir_server::event::{ConversionError, DbId, LinkId};
use weir_server::load::{Converted, Loaded};
use weir_server::work::{Finished, Work, WorkId};

use crate::disk::Replacement;
use crate::driver::incoming::handshakes::{Begun, Shaken};

/// Most pieces of the core's work that run at once; others wait in their order.
pub(crate) const WORKERS_MAX: usize = 2;

/// Most pieces of urgent work that run besides.
const URGENT_WORKERS_MAX: usize = 2;

/// Most threads that wait for the system's resolver at once; further attempts to connect fail.
const RESOLVERS_MAX: usize = 64;

/// What a helper has done.
pub(crate) enum Done {
    /// A database file is read.
    Loaded(DbId, Result<Box<Loaded>, String>),
    /// The compacted copy of a database is written and synced.
    Compacted(DbId, Result<Replacement, String>),
    /// The converted copy of a database is written and synced.
    Converted(DbId, Result<(Replacement, Box<Converted>), ConversionError>),
    /// A piece of the core's work is done; `None` if it panicked.
    Work(WorkId, Option<Box<Finished>>),
    /// The command of `--run` has ended.
    Command(io::Result<ExitStatus>),
    /// A connection is made, or not.
    Connected(Box<Shaken>),
    /// An outgoing connection whose host had to be looked up has begun, or not.
    Begun(Box<Begun>),
    /// A connection to a server that is followed, whose host had to be looked up, has begun, or not.
    LinkBegun(LinkId, io::Result<Box<Stream>>),
    /// Something that nobody waits for.
    Nothing,
}

/// How much a helper yields to the loop, where both want a processor: its nice(2) value.
const HELPER_NICE: i32 = 10;

/// Starts helpers and collects what they did.
pub(crate) struct Jobs {
    reporter: Reporter,
    done: Receiver<Done>,
    /// Urgent work, and all other.
    urgent: Lane,
    other: Lane,
    /// What helpers are at, or have done and nobody has taken.
    unanswered: Cell<usize>,
    /// Threads that wait for the system's resolver.
    resolving: Arc<AtomicUsize>,
}

/// Workers for one kind of work.
struct Lane {
    queue: Arc<Queue>,
    /// Workers that have been started.
    workers: usize,
    workers_max: usize,
    /// They yield to the loop.
    is_nice: bool,
}

/// How a helper tells what it has done.
#[derive(Clone)]
pub(crate) struct Reporter {
    wake: Arc<OwnedFd>,
    sender: Sender<Done>,
}

/// The core's work that waits for a worker.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<(WorkId, Work)>,
    /// Workers with nothing to do.
    idle: usize,
}

impl Reporter {
    pub(crate) fn report(&self, done: Done) {
        // Nobody listens only when the server is ending.
        if self.sender.send(done).is_ok() {
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Jobs {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, done) = channel();
        let reporter = Reporter { wake: Arc::new(wake), sender };
        let urgent = Lane::new(URGENT_WORKERS_MAX, false);
        let other = Lane::new(WORKERS_MAX, true);
        Ok(Self {
            reporter,
            done,
            urgent,
            other,
            unanswered: Cell::new(0),
            resolving: Arc::default(),
        })
    }

    /// Runs a piece of the core's work in a worker, as soon as there is one.
    pub(crate) fn work(&mut self, id: WorkId, work: Work) {
        self.unanswered.update(|count| count + 1);
        let lane = if work.is_urgent() { &mut self.urgent } else { &mut self.other };
        lane.push(id, work, &self.reporter);
    }

    /// For a helper that lives longer than one job.
    pub(crate) fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// As [`Jobs::spawn`], for what asks the system's resolver, which may take its time.
    ///
    /// # Errors
    /// `EAGAIN`: too many wait for it.
    pub(crate) fn look_up(
        &self,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + Clone + 'static,
    ) -> io::Result<()> {
        let resolving = Waiter::enter(&self.resolving).ok_or(rustix::io::Errno::AGAIN)?;
        let work = move || {
            let done = work();
            drop(resolving);
            done
        };
        self.spawn("resolve", work, failed);
        Ok(())
    }

    /// Runs `work` in a thread; `failed` makes the result of one that panicked or never began.
    pub(crate) fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + Clone + 'static,
    ) {
        self.unanswered.update(|count| count + 1);
        let (reporter, panicked) = (self.reporter.clone(), failed.clone());
        let is_nice = name == "compact";
        let body = move || {
            if is_nice {
                be_nice();
            }
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                panicked("internal error: a helper thread panicked".to_owned())
            });
            reporter.report(done);
        };
        if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(body) {
            self.reporter.report(failed(weir_net::error::strerror(&error)));
        }
    }

    /// What has been done since the last call.
    pub(crate) fn take(&self) -> Vec<Done> {
        let _ = rustix::io::read(&self.reporter.wake, &mut [0; 8]);
        let done: Vec<Done> = self.done.try_iter().collect();
        self.unanswered.update(|count| count.saturating_sub(done.len()));
        done
    }

    /// Waits for the next thing that is done, for who has nothing else to do; `None` if no helper
    /// is at anything.
    pub(crate) fn wait(&self) -> Option<Done> {
        let left = self.unanswered.get().checked_sub(1)?;
        self.unanswered.set(left);
        self.done.recv().ok()
    }
}

impl Lane {
    fn new(workers_max: usize, is_nice: bool) -> Self {
        Self { queue: Arc::default(), workers: 0, workers_max, is_nice }
    }

    fn push(&mut self, id: WorkId, work: Work, reporter: &Reporter) {
        let is_taken = self.queue.push(id, work);
        if !is_taken && self.workers < self.workers_max {
            self.start_worker(reporter.clone());
        }
    }

    fn start_worker(&mut self, reporter: Reporter) {
        let (queue, is_nice, here) = (Arc::clone(&self.queue), self.is_nice, reporter.clone());
        let body = move || {
            if is_nice {
                be_nice();
            }
            loop {
                let (id, work) = queue.pop();
                reporter.report(run(id, work));
            }
        };
        if thread::Builder::new().name("work".to_owned()).spawn(body).is_ok() {
            self.workers += 1;
        } else if self.workers == 0
            && let Some((id, work)) = self.queue.try_pop()
        {
            // The system has no thread for us: better slowly than never.
            here.report(run(id, work));
        }
    }
}

/// The calling thread yields to those that answer clients.
fn be_nice() {
    // Where that is refused, it goes on as it is.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), HELPER_NICE);
}

/// One of those that wait for the resolver.
struct Waiter(Arc<AtomicUsize>);

impl Waiter {
    fn enter(count: &Arc<AtomicUsize>) -> Option<Self> {
        let add = |waiting| (waiting < RESOLVERS_MAX).then_some(waiting + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Whether a worker will take it without another being started.
    fn push(&self, id: WorkId, work: Work) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.work.push_back((id, work));
        self.came.notify_one();
        waiting.idle >= waiting.work.len()
    }

    fn pop(&self) -> (WorkId, Work) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(work) = waiting.work.pop_front() {
                return work;
            }
            waiting.idle += 1;
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.idle -= 1;
        }
    }

    fn try_pop(&self) -> Option<(WorkId, Work)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).work.pop_front()
    }
}

fn run(id: WorkId, work: Work) -> Done {
    let finished = catch_unwind(AssertUnwindSafe(|| work.run()));
    Done::Work(id, finished.ok().map(Box::new))
}

impl AsFd for Jobs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reporter.wake.as_fd()
    }
}
