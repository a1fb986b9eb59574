//! The work of helper threads on databases: what takes long is done beside the loop, and its end is
//! an event of the loop.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitStatus;

use weir_server::event::{ConversionError, DbId, SyncTime};
use weir_server::load::{Converted, Loaded};
use weir_server::work::{Asker, Finished, Word, Work, WorkId};

use crate::disk::Replacement;
use crate::driver::files::copies::Copy;
use crate::driver::files::workers::{Workers, be_nice};
use crate::driver::lane::Lane;
use crate::driver::threads::Threads;

/// Most pieces of the core's work that run at once; others wait for their turn.
pub(crate) const WORKERS_MAX: usize = 2;

/// Most transactions on the tables themselves that run besides.
const URGENT_WORKERS_MAX: usize = 2;

/// Most pieces of work on all rows of a database, which never rest, that run besides: writers of
/// other databases do not wait for them.
const WHOLE_WORKERS_MAX: usize = 4;

/// Most pieces of work that run at once and take as much memory as a database.
const BIG_WORKERS_MAX: usize = 1;

/// What a helper has done.
pub(crate) enum Done {
    /// A database file is read.
    Loaded(DbId, Result<Box<Loaded>, String>),
    /// The compacted copy of a database is written and synced; the number is how often copies had
    /// been given up when it was begun, here and in the next one.
    Compacted(DbId, u64, Result<Copy, String>),
    /// The converted copy of a database is written and synced.
    Converted(DbId, u64, Result<(Copy, Box<Converted>), ConversionError>),
    /// A piece of the core's work is done; `None` if it panicked.
    Work(WorkId, Option<Box<Finished>>),
    /// What was appended to a database's file is on the disk, or not; the number is that of the
    /// file among those of the database.
    Synced(DbId, u64, Result<SyncTime, String>),
    /// A piece of a database's file is read.
    Read(DbId, WorkId, Result<Vec<u8>, String>),
    /// A piece of a file that comes from elsewhere is written, or not; how long the file is now. The
    /// number is that of the file among those of the database, here and in the next one.
    Received(DbId, u64, u64, Result<(), String>),
    /// Such a file is complete and synced.
    ReceivedSynced(DbId, u64, Result<Replacement, String>),
    /// The file that says which keys are declared is written, or not.
    KeysKept(DbId, Result<(), String>),
    /// The command of `--run` has ended.
    Command(io::Result<ExitStatus>),
    /// Freed memory has gone back, but for what threads keep for themselves.
    Trimmed,
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
    /// Urgent work that may rest, and that never rests.
    urgent: Workers,
    whole: Workers,
    /// All other but for the biggest.
    other: Workers,
    /// Work of which one piece runs at a time.
    big: Workers,
}

impl Jobs {
    /// Helpers and workers that nobody has asked for anything yet. `is_watched` is whether work may
    /// be stopped: a replay goes by what was stopped then.
    pub(crate) fn new(is_watched: bool) -> io::Result<Self> {
        let threads = Threads::new()?;
        let workers = |max, nice| Workers::new(max, nice, is_watched, threads.reporter().clone());
        let urgent = workers(URGENT_WORKERS_MAX, None);
        let whole = workers(WHOLE_WORKERS_MAX, None);
        let other = workers(WORKERS_MAX, Some(HELPER_NICE));
        let big = workers(BIG_WORKERS_MAX, Some(HELPER_NICE));
        Ok(Self { threads, unanswered: Cell::new(0), urgent, whole, other, big })
    }

    /// Runs a piece of the core's work in a worker, when it is the turn of whom it is for.
    pub(crate) fn work(&self, id: WorkId, of: Asker, work: Work) {
        self.unanswered.update(|count| count + 1);
        let workers = match (work.is_urgent(), work.may_rest(), work.is_big()) {
            (true, true, _) => &self.urgent,
            (true, false, _) => &self.whole,
            (false, _, true) => &self.big,
            (false, _, false) => &self.other,
        };
        workers.push(id, of, work);
    }

    /// Says something to a piece of work that is not done yet.
    pub(crate) fn say(&self, id: WorkId, word: Word) {
        self.urgent.say(id, word);
        self.whole.say(id, word);
        self.other.say(id, word);
        self.big.say(id, word);
    }

    /// The workers that wait for work give back the memory that is kept for them, by `trim`.
    pub(crate) fn trim_idle(&self, trim: fn()) {
        self.urgent.trim_idle(trim);
        self.whole.trim_idle(trim);
        self.other.trim_idle(trim);
        self.big.trim_idle(trim);
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

    /// As [`Jobs::spawn`], in a lane.
    pub(crate) fn spawn_in(
        &self,
        lane: &mut Lane,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + 'static,
    ) {
        self.unanswered.update(|count| count + 1);
        self.threads.spawn_in(lane, work, failed);
    }

    /// As [`Jobs::spawn`], for what yields to the loop.
    pub(crate) fn spawn_nice(
        &self,
        name: &str,
        work: impl FnOnce() -> Done + Send + 'static,
        failed: impl FnOnce(String) -> Done + Send + Clone + 'static,
    ) {
        let work = move || {
            be_nice(HELPER_NICE);
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

impl AsFd for Jobs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.threads.as_fd()
    }
}
