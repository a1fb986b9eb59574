//! The thread in which connections become ready for messages: outgoing ones until they are
//! connected, those of TLS until the handshake is over. A signature costs more than a transaction,
//! so a thousand clients that come at once, or a server that is followed over TLS, do not hold up
//! the loop.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use weir_net::tls::Line;
use weir_net::{Progress, Stream};
use weir_server::event::{LinkId, PeerPortId, RemoteId};

use crate::driver::threads::{bell, quieten, ring};
use crate::poller::{Interest, Poller, Ready};

/// Handshakes that go on at the same time; beyond it, the oldest of a client is given up.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Handshakes of those who come in through ports for members of clusters; beyond it, the oldest of
/// them is given up.
pub(crate) const PEER_HANDSHAKES_MAX: usize = 64;

/// Connections that wait for the thread to look at them; while there are as many, no client is
/// accepted.
const QUEUE_MAX: usize = 256;

/// Token of the event that wakes the thread.
const WAKE: u64 = u64::MAX;

/// Whom a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// A client that has come in through a remote.
    Client(RemoteId),
    /// A client that a remote connects to.
    Manager(RemoteId),
    /// A server that a database follows.
    Link(LinkId),
    /// Another member of a cluster.
    Peer(LinkId),
    /// One who has come in through a port for members of a cluster.
    Caller(PeerPortId),
}

/// A connection in the making.
pub(crate) struct Unfinished {
    pub(crate) stream: Stream,
    pub(crate) purpose: Purpose,
    /// What logs call the connection.
    pub(crate) name: String,
    /// How long it may take from now on; without a limit until it is given up.
    pub(crate) patience: Option<Duration>,
}

/// What has come of a connection in the making.
pub(crate) struct Finished {
    /// The stream, or why there is none: `None` for lack of time.
    pub(crate) result: Result<Stream, Option<io::Error>>,
    pub(crate) purpose: Purpose,
    /// What logs call the connection.
    pub(crate) name: String,
    /// What TLS has to say.
    pub(crate) log: Vec<Line>,
}

/// How the thread tells what has come of a connection.
pub(crate) type Report = Box<dyn Fn(Finished) + Send>;

/// What the loop asks of the thread.
enum Request {
    Begin(Unfinished),
    GiveUp(Purpose),
}

/// The loop's end of the thread; the thread ends when it is dropped.
pub(crate) struct Handshakes {
    sender: Sender<Request>,
    wake: Arc<OwnedFd>,
    queued: Arc<AtomicUsize>,
}

impl Handshakes {
    /// Starts the thread.
    pub(crate) fn start(report: Report) -> io::Result<Self> {
        let wake = Arc::new(bell()?);
        let (sender, requests) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let (heard, counted) = (Arc::clone(&wake), Arc::clone(&queued));
        // Without a poller nobody receives what is begun, and it is closed.
        let body = move || {
            if let Ok(worker) = Worker::new(requests, heard, counted, report) {
                worker.run();
            }
        };
        std::thread::Builder::new().name("handshakes".to_owned()).spawn(body)?;
        Ok(Self { sender, wake, queued })
    }

    /// Whether another client may come in.
    pub(crate) fn has_room(&self) -> bool {
        self.queued.load(Ordering::Relaxed) < QUEUE_MAX
    }

    /// Goes on with a connection; what comes of it is reported.
    pub(crate) fn begin(&self, unfinished: Unfinished) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.ask(Request::Begin(unfinished));
    }

    /// Closes a connection that nobody wants any more. What has come of it may be on its way.
    pub(crate) fn give_up(&self, purpose: Purpose) {
        self.ask(Request::GiveUp(purpose));
    }

    fn ask(&self, request: Request) {
        if self.sender.send(request).is_ok() {
            ring(&self.wake);
        }
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        let (sender, _) = channel();
        drop(std::mem::replace(&mut self.sender, sender));
        ring(&self.wake);
    }
}

struct Worker {
    poller: Poller,
    requests: Receiver<Request>,
    wake: Arc<OwnedFd>,
    queued: Arc<AtomicUsize>,
    report: Report,
    /// Connections by number, the oldest first.
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

struct Pending {
    unfinished: Unfinished,
    deadline: Option<Instant>,
    interest: Interest,
}

impl Worker {
    fn new(
        requests: Receiver<Request>,
        wake: Arc<OwnedFd>,
        queued: Arc<AtomicUsize>,
        report: Report,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*wake, WAKE, Interest::Read)?;
        Ok(Self { poller, requests, wake, queued, report, pending: BTreeMap::new(), next: 0 })
    }

    fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            let now = Instant::now();
            let next = self.pending.values().filter_map(|pending| pending.deadline).min();
            let timeout = next.map(|deadline| deadline.saturating_duration_since(now));
            if self.poller.wait(timeout, &mut ready).is_err() {
                return;
            }
            for Ready { token, .. } in ready.drain(..) {
                if token == WAKE {
                    quieten(&self.wake);
                } else {
                    self.go_on(token);
                }
            }
            if !self.take_requests() {
                return;
            }
            self.expire();
        }
    }

    /// False when the loop is gone.
    fn take_requests(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Begin(unfinished)) => {
                    self.queued.fetch_sub(1, Ordering::Relaxed);
                    self.begin(unfinished);
                }
                Ok(Request::GiveUp(purpose)) => self.give_up(purpose),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn begin(&mut self, unfinished: Unfinished) {
        if self.pending.len() >= HANDSHAKES_MAX {
            self.give_up_oldest(|purpose| matches!(purpose, Purpose::Client(_)), 1);
        }
        if let Purpose::Caller(_) = unfinished.purpose {
            let is_caller = |purpose: &Purpose| matches!(purpose, Purpose::Caller(_));
            self.give_up_oldest(is_caller, PEER_HANDSHAKES_MAX);
        }
        let number = self.next;
        self.next += 1;
        let deadline = unfinished.patience.map(|patience| Instant::now() + patience);
        let interest = Interest::Write;
        if let Err(error) = self.poller.add(&unfinished.stream, number, interest) {
            return self.report(unfinished, Err(Some(error)));
        }
        self.pending.insert(number, Pending { unfinished, deadline, interest });
        self.go_on(number);
    }

    /// Gives up the oldest connection of a kind, if there are as many as `max` of it.
    fn give_up_oldest(&mut self, is_meant: impl Fn(&Purpose) -> bool, max: usize) {
        let of_kind = |pending: &Pending| is_meant(&pending.unfinished.purpose);
        let mut numbers = self.pending.iter().filter(|(_, pending)| of_kind(pending));
        let oldest = numbers.next().map(|(number, _)| *number);
        if let Some(number) = oldest.filter(|_| numbers.count() + 1 >= max) {
            self.finish(number, Err(None));
        }
    }

    /// Closes a connection, unless it is finished already.
    fn give_up(&mut self, purpose: Purpose) {
        let is_meant = |pending: &Pending| pending.unfinished.purpose == purpose;
        let found = self.pending.iter().find(|(_, pending)| is_meant(pending));
        if let Some(number) = found.map(|(number, _)| *number)
            && let Some(pending) = self.pending.remove(&number)
        {
            self.poller.remove(&pending.unfinished.stream);
        }
    }

    /// The socket of a connection is ready for what it waits for.
    fn go_on(&mut self, number: u64) {
        // Given up for another, or for lack of time, earlier in this turn.
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let interest = match pending.unfinished.stream.finish_connect() {
            Ok(Progress::Done) => return self.finish(number, Ok(())),
            Ok(Progress::Read) => Interest::Read,
            Ok(Progress::Write) => Interest::Write,
            Err(error) => return self.finish(number, Err(Some(error))),
        };
        if interest != pending.interest {
            pending.interest = interest;
            let changed = self.poller.change(&pending.unfinished.stream, number, interest);
            if let Err(error) = changed {
                self.finish(number, Err(Some(error)));
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let is_due = |pending: &Pending| pending.deadline.is_some_and(|deadline| deadline <= now);
        let due = self.pending.iter().filter(|(_, pending)| is_due(pending));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.finish(number, Err(None)));
    }

    fn finish(&mut self, number: u64, result: Result<(), Option<io::Error>>) {
        let pending = self.pending.remove(&number).expect("it was found by its number just now");
        self.poller.remove(&pending.unfinished.stream);
        self.report(pending.unfinished, result);
    }

    fn report(&self, unfinished: Unfinished, result: Result<(), Option<io::Error>>) {
        let Unfinished { mut stream, purpose, name, .. } = unfinished;
        let log = stream.take_log();
        let result = result.map(|()| stream);
        (self.report)(Finished { result, purpose, name, log });
    }
}
