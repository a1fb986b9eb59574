//! Connections in the making: outgoing ones until they are connected, those of TLS until the
//! handshake is over. A thread of its own does it, so that a thousand clients that come at once do
//! not hold up the loop; a session is born when its stream is ready for messages.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use weir_net::tls::Line;
use weir_net::{Progress, Stream};
use weir_server::event::RemoteId;

use crate::driver::files::jobs::{Done, Reporter};
use crate::poller::{Interest, Poller, Ready};

/// Handshakes of clients that go on at the same time; beyond it, the oldest is given up.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Connections that wait for the thread to look at them; while there are as many, none are
/// accepted.
const QUEUE_MAX: usize = 256;

/// How long a client may take over its handshake.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Token of the event that wakes the thread.
const WAKE: u64 = u64::MAX;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A listener.
    In,
    /// We made it.
    Out,
}

/// A connection in the making.
pub(crate) struct Begun {
    pub(crate) stream: Stream,
    pub(crate) origin: Origin,
    pub(crate) remote: RemoteId,
    /// For logs.
    pub(crate) name: String,
    /// How long it may take from now on.
    pub(crate) patience: Duration,
}

/// What has come of one.
pub(crate) struct Shaken {
    /// The stream, or why there is none: `None` for lack of time.
    pub(crate) result: Result<Stream, Option<io::Error>>,
    pub(crate) origin: Origin,
    pub(crate) remote: RemoteId,
    pub(crate) name: String,
    /// What TLS has to say.
    pub(crate) log: Vec<Line>,
}

/// The loop's end of the thread; the thread ends when it is dropped.
pub(crate) struct Shaking {
    sender: Sender<Begun>,
    wake: Arc<OwnedFd>,
    queued: Arc<AtomicUsize>,
}

impl Shaking {
    /// Starts the thread.
    pub(crate) fn start(reporter: Reporter) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, incoming) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let (heard, counted) = (Arc::clone(&wake), Arc::clone(&queued));
        // Without a poller nobody receives what is begun, and it is closed.
        let body = move || {
            if let Ok(worker) = Worker::new(incoming, heard, counted, reporter) {
                worker.run();
            }
        };
        std::thread::Builder::new().name("handshakes".to_owned()).spawn(body)?;
        Ok(Self { sender, wake, queued })
    }

    /// Whether another connection may be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.queued.load(Ordering::Relaxed) < QUEUE_MAX
    }

    pub(crate) fn begin(&self, begun: Begun) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(begun).is_ok() {
            ring(&self.wake);
        }
    }
}

impl Drop for Shaking {
    fn drop(&mut self) {
        let (sender, _) = channel();
        drop(std::mem::replace(&mut self.sender, sender));
        ring(&self.wake);
    }
}

fn ring(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

struct Worker {
    poller: Poller,
    incoming: Receiver<Begun>,
    wake: Arc<OwnedFd>,
    queued: Arc<AtomicUsize>,
    reporter: Reporter,
    /// By number, the oldest first.
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

struct Pending {
    begun: Begun,
    deadline: Instant,
    interest: Interest,
}

impl Worker {
    fn new(
        incoming: Receiver<Begun>,
        wake: Arc<OwnedFd>,
        queued: Arc<AtomicUsize>,
        reporter: Reporter,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*wake, WAKE, Interest::Read)?;
        let pending = BTreeMap::new();
        Ok(Self { poller, incoming, wake, queued, reporter, pending, next: 0 })
    }

    fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            let now = Instant::now();
            let next = self.pending.values().map(|pending| pending.deadline).min();
            let timeout = next.map(|deadline| deadline.saturating_duration_since(now));
            if self.poller.wait(timeout, &mut ready).is_err() {
                return;
            }
            for Ready { token, .. } in ready.drain(..) {
                if token == WAKE {
                    let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                } else {
                    self.go_on(token);
                }
            }
            if !self.take_new() {
                return;
            }
            self.expire();
        }
    }

    /// False when the loop is gone.
    fn take_new(&mut self) -> bool {
        loop {
            match self.incoming.try_recv() {
                Ok(begun) => {
                    self.queued.fetch_sub(1, Ordering::Relaxed);
                    self.add(begun);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn add(&mut self, begun: Begun) {
        if self.pending.len() >= HANDSHAKES_MAX {
            self.give_up_oldest();
        }
        let number = self.next;
        self.next += 1;
        let deadline = Instant::now() + begun.patience;
        let interest = Interest::Write;
        if let Err(error) = self.poller.add(&begun.stream, number, interest) {
            return self.report(begun, Err(Some(error)));
        }
        self.pending.insert(number, Pending { begun, deadline, interest });
        self.go_on(number);
    }

    fn give_up_oldest(&mut self) {
        let is_in = |pending: &Pending| pending.begun.origin == Origin::In;
        let oldest = self.pending.iter().find(|(_, pending)| is_in(pending));
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.finish(number, Err(None));
        }
    }

    fn go_on(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let interest = match pending.begun.stream.finish_connect() {
            Ok(Progress::Done) => return self.finish(number, Ok(())),
            Ok(Progress::Read) => Interest::Read,
            Ok(Progress::Write) => Interest::Write,
            Err(error) => return self.finish(number, Err(Some(error))),
        };
        if interest != pending.interest {
            pending.interest = interest;
            if let Err(error) = self.poller.change(&pending.begun.stream, number, interest) {
                self.finish(number, Err(Some(error)));
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let is_due = |pending: &Pending| pending.deadline <= now;
        let due = self.pending.iter().filter(|(_, pending)| is_due(pending));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.finish(number, Err(None)));
    }

    fn finish(&mut self, number: u64, result: Result<(), Option<io::Error>>) {
        let Some(pending) = self.pending.remove(&number) else { return };
        self.poller.remove(&pending.begun.stream);
        self.report(pending.begun, result);
    }

    fn report(&self, begun: Begun, result: Result<(), Option<io::Error>>) {
        let Begun { mut stream, origin, remote, name, .. } = begun;
        let log = stream.take_log();
        let result = result.map(|()| stream);
        let finished = Shaken { result, origin, remote, name, log };
        self.reporter.report(Done::Connected(Box::new(finished)));
    }
}
