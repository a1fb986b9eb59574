//! The work of helper threads on databases: what takes long is done beside the loop, and its end is
//! an event of the loop.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use weir_server::event::{ConversionError, DbId};
use weir_server::load::{Converted, Loaded};
use weir_server::work::{Finished, Work, WorkId};

use crate::disk::Replacement;
use crate::driver::threads::{Reporter, Threads};

/// Most pieces of the core's work that run at once; others wait in their order.
pub(crate) const WORKERS_MAX: usize = 2;

/// Most pieces of urgent work that run besides.
const URGENT_WORKERS_MAX: usize = 2;

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
    /// Something that nobody waits for.
    Nothing,
}

/// How much a helper yields to the loop, where both want a processor: its nice(2) value.
const HELPER_NICE: i32 = 10;

/// Helpers with one thing to do, and workers for the core's pieces of work.
pub(crate) struct Jobs {
    threads: Threads<Done>,
    /// What helpers and workers are at, or have done and nobody has taken.
    unanswered: Cell<usize>,
    /// Urgent work, and all other.
    urgent: Lane,
    other: Lane,
}

/// Workers for one kind of work.
struct Lane {
    queue: Arc<Queue>,
    /// Workers that have been started.
    workers: usize,
    workers_max: usize,
    /// The workers yield to the loop.
    is_nice: bool,
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

impl Jobs {
    pub(crate) fn new() -> io::Result<Self> {
        let urgent = Lane::new(URGENT_WORKERS_MAX, false);
        let other = Lane::new(WORKERS_MAX, true);
        Ok(Self { threads: Threads::new()?, unanswered: Cell::new(0), urgent, other })
    }

    /// Runs a piece of the core's work in a worker, as soon as there is one.
    pub(crate) fn work(&mut self, id: WorkId, work: Work) {
        self.unanswered.update(|count| count + 1);
        let lane = if work.is_urgent() { &mut self.urgent } else { &mut self.other };
        lane.push(id, work, self.threads.reporter());
    }

    /// Runs `work` in a thread of its own; `failed` makes the result of one that panicked or never
    /// began.
    pub(crate) fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + Clone + 'static,
    ) {
        self.unanswered.update(|count| count + 1);
        self.threads.spawn(name, work, failed);
    }

    /// As [`Jobs::spawn`], for what yields to the loop.
    pub(crate) fn spawn_nice(
        &self,
        name: &str,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + Clone + 'static,
    ) {
        let work = move || {
            be_nice();
            work()
        };
        self.spawn(name, work, failed);
    }

    /// What has been done since the last call.
    pub(crate) fn take(&self) -> Vec<Done> {
        let done = self.threads.take();
        let left = self.unanswered.get().checked_sub(done.len());
        self.unanswered.set(left.expect("what is done was begun here"));
        done
    }

    /// Waits for the next thing that is done; `None` if no helper is at anything.
    pub(crate) fn wait(&self) -> Option<Done> {
        let left = self.unanswered.get().checked_sub(1)?;
        self.unanswered.set(left);
        Some(self.threads.wait())
    }
}

impl Lane {
    fn new(workers_max: usize, is_nice: bool) -> Self {
        Self { queue: Arc::default(), workers: 0, workers_max, is_nice }
    }

    fn push(&mut self, id: WorkId, work: Work, reporter: &Reporter<Done>) {
        let is_taken = self.queue.push(id, work);
        if !is_taken && self.workers < self.workers_max {
            self.start_worker(reporter);
        }
    }

    fn start_worker(&mut self, reporter: &Reporter<Done>) {
        let (queue, is_nice, own) = (Arc::clone(&self.queue), self.is_nice, reporter.clone());
        let body = move || {
            if is_nice {
                be_nice();
            }
            loop {
                let (id, work) = queue.pop();
                own.report(run(id, work));
            }
        };
        if thread::Builder::new().name("work".to_owned()).spawn(body).is_ok() {
            self.workers += 1;
        } else if self.workers == 0
            && let Some((id, work)) = self.queue.try_pop()
        {
            // The system has no thread for us: better slowly than never.
            reporter.report(run(id, work));
        }
    }
}

/// The calling thread yields to those that answer clients.
fn be_nice() {
    // Where that is refused, it goes on as it is.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), HELPER_NICE);
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
        self.threads.as_fd()
    }
}
