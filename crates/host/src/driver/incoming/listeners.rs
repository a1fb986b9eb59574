//! Remotes that listen, and ports for members of clusters: opened, tried again, accepted from.
//!
//! One whose host is a name is opened by a thread, for the system's resolver may take its time.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use weir_net::error::strerror;
use weir_net::{Accepted, Address, AddressError, ListenError, Listener};
use weir_server::effect::RemoteOptions;
use weir_server::event::{Event, PeerPortId, RemoteId};

use crate::driver::threads::Threads;
use crate::driver::token::Token;
use crate::limits::admit_client;
use crate::poller::{Interest, Poller};
use crate::vlog::{Level, Vlog};

/// Connections taken from one listener in one round.
const ACCEPTS_MAX: usize = 64;

/// Pause after the system had no descriptor or memory left for a connection.
pub(super) const ACCEPT_PAUSE_US: u64 = 100_000;

/// Pause while as many clients as may be are at their handshakes.
const REST_US: u64 = 10_000;

/// A listener that cannot be opened is tried again this often.
const RETRY_US: u64 = 1_000_000;

/// Who comes in through a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// Clients of a remote.
    Clients(RemoteId),
    /// Other members of a cluster.
    Peers(PeerPortId),
}

impl Door {
    fn token(self) -> Token {
        match self {
            Self::Clients(RemoteId(number)) => Token::Listener(number),
            Self::Peers(PeerPortId(number)) => Token::PeerPort(number),
        }
    }

    /// What the target says: those of members say where others connect to.
    fn address(self, target: &str, rundir: &Path) -> Result<Address, AddressError> {
        match self {
            Self::Clients(_) => Address::parse(target, rundir),
            Self::Peers(_) => Address::parse_peer(target, rundir).map(Address::listening),
        }
    }

    /// The module that logs what becomes of a listener.
    fn module(self) -> &'static str {
        match self {
            Self::Clients(_) => "ovsdb_jsonrpc_server",
            Self::Peers(_) => "raft",
        }
    }
}

/// What has come of opening a listener: who knows what was asked for says how it went.
type Opened = Result<(Address, Listener), ListenError>;

/// What listens, or will when it can. Readable when [`Listeners::take_opened`] has work.
pub(crate) struct Listeners {
    remotes: BTreeMap<Door, Remote>,
    threads: Threads<(Door, Opened)>,
    rundir: PathBuf,
    log: Vlog,
}

struct Remote {
    door: Door,
    target: String,
    options: RemoteOptions,
    state: State,
    /// What the core was told last: the failure, or nothing if it listens.
    reported: Option<String>,
    /// The last accept failed, and the log says so.
    refusing: bool,
}

enum State {
    Open(Listener),
    /// Accepts nobody until this time, in microseconds.
    Paused(Listener, u64),
    /// A thread opens it.
    LookingUp,
    /// Is to be opened at this time, in microseconds.
    Failed(u64),
}

impl Listeners {
    pub(crate) fn new(rundir: PathBuf, log: Vlog) -> io::Result<Self> {
        Ok(Self { remotes: BTreeMap::new(), threads: Threads::new()?, rundir, log })
    }

    /// Opens a listener, now and whenever it is due until it works.
    pub(crate) fn listen(
        &mut self,
        poller: &Poller,
        door: Door,
        target: String,
        options: RemoteOptions,
        events: &mut Vec<Event>,
    ) {
        let state = State::Failed(0);
        let remote = Remote { door, target, options, state, reported: None, refusing: false };
        self.remotes.insert(door, remote);
        self.wake(poller, 0, events);
    }

    /// Closes a listener; its socket file goes.
    pub(crate) fn unlisten(&mut self, poller: &Poller, door: Door) {
        if let Some(Remote { state: State::Open(listener) | State::Paused(listener, _), .. }) =
            self.remotes.remove(&door)
        {
            poller.remove(&listener);
        }
    }

    /// Whether TLS is to be spoken with who comes in.
    pub(crate) fn is_tls(&self, door: Door) -> bool {
        self.remotes.get(&door).is_some_and(|remote| match &remote.state {
            State::Open(listener) | State::Paused(listener, _) => listener.is_tls(),
            State::LookingUp | State::Failed(_) => false,
        })
    }

    /// Whether the core still wants who comes in there.
    pub(crate) fn is_wanted(&self, door: Door) -> bool {
        self.remotes.contains_key(&door)
    }

    /// Accepts nobody for a moment.
    pub(crate) fn rest(&mut self, poller: &Poller, door: Door, now_us: u64) {
        if let Some(remote) = self.remotes.get_mut(&door) {
            remote.pause(poller, now_us, REST_US);
        }
    }

    /// When [`Listeners::wake`] is due.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let due = |remote: &Remote| match remote.state {
            State::Open(_) | State::LookingUp => None,
            State::Paused(_, at) | State::Failed(at) => Some(at),
        };
        self.remotes.values().filter_map(due).min()
    }

    /// Tries again what is due.
    pub(crate) fn wake(&mut self, poller: &Poller, now_us: u64, events: &mut Vec<Event>) {
        for remote in self.remotes.values_mut() {
            let due = match remote.state {
                State::Open(_) | State::LookingUp => false,
                State::Paused(_, at) | State::Failed(at) => at <= now_us,
            };
            if due {
                let by = (&self.threads, &self.log);
                if let Some(result) = remote.open(poller, &self.rundir, now_us, by) {
                    remote.report(result, events);
                }
            }
        }
    }

    /// Threads have opened listeners, or have not.
    pub(crate) fn take_opened(&mut self, poller: &Poller, now_us: u64, events: &mut Vec<Event>) {
        for (door, opened) in self.threads.take() {
            // Nobody may want it any more.
            let Some(remote) = self.remotes.get_mut(&door) else { continue };
            assert!(
                matches!(remote.state, State::LookingUp),
                "a listener is opened once at a time"
            );
            remote.state = State::Failed(now_us + RETRY_US);
            let result = remote.opened(opened, &self.log);
            let result = result.and_then(|listener| remote.watch(poller, listener));
            remote.report(result, events);
        }
    }

    /// Takes the connections of a listener that is ready.
    pub(crate) fn accept(
        &mut self,
        poller: &Poller,
        door: Door,
        now_us: u64,
        mut take: impl FnMut(Accepted),
    ) {
        let remote = self.remotes.get_mut(&door).expect("a listener is watched until it is closed");
        let State::Open(listener) = &remote.state else {
            unreachable!("a listener is watched only while it is open");
        };
        for _ in 0..ACCEPTS_MAX {
            // Other members, and who looks after the server, need what is left.
            let may_accept = match door {
                Door::Clients(_) => admit_client(listener),
                Door::Peers(_) => Ok(()),
            };
            match may_accept.and_then(|()| listener.accept()) {
                Ok(Some(accepted)) => {
                    remote.refusing = false;
                    take(accepted);
                }
                Ok(None) => return,
                Err(error) => {
                    if !mem::replace(&mut remote.refusing, true) {
                        let target = &remote.target;
                        let text = format!("{target}: accept failed: {}", strerror(&error));
                        self.log.log_limited("accept", door.module(), Level::Warn, &text);
                    }
                    return remote.pause(poller, now_us, ACCEPT_PAUSE_US);
                }
            }
        }
    }
}

impl Remote {
    /// Opens the listener or, after a pause, watches it again. `None` if a thread is at it.
    fn open(
        &mut self,
        poller: &Poller,
        rundir: &Path,
        now_us: u64,
        (threads, log): (&Threads<(Door, Opened)>, &Vlog),
    ) -> Option<Result<Option<u16>, String>> {
        let paused = mem::replace(&mut self.state, State::Failed(now_us + RETRY_US));
        let listener = match paused {
            State::Paused(listener, _) => Ok(listener),
            State::Open(_) | State::LookingUp | State::Failed(_) => {
                match self.address(rundir, log) {
                    Ok(address) if address.needs_lookup() => {
                        self.look_up(threads, address);
                        return None;
                    }
                    Ok(address) => {
                        let listener = Listener::open(&address, &self.target, self.options.dscp);
                        self.opened(listener.map(|listener| (address, listener)), log)
                    }
                    Err(error) => Err(error),
                }
            }
        };
        Some(listener.and_then(|listener| self.watch(poller, listener)))
    }

    /// Where to listen.
    fn address(&self, rundir: &Path, log: &Vlog) -> Result<Address, String> {
        self.door.address(&self.target, rundir).map_err(|error| {
            if let (AddressError::Malformed(text), true) = (&error, self.is_first()) {
                let is_inherited = self.target.starts_with("pfd:");
                let module = if is_inherited { "stream_fd" } else { "socket_util" };
                log.log(module, Level::Err, text);
            }
            strerror(&Errno::AFNOSUPPORT.into())
        })
    }

    /// A thread finds out where a name is, and opens the listener there.
    fn look_up(&mut self, threads: &Threads<(Door, Opened)>, address: Address) {
        let (door, target, dscp) = (self.door, self.target.clone(), self.options.dscp);
        let open = move || {
            let listener = Listener::open(&address, &target, dscp);
            (door, listener.map(|listener| (address, listener)))
        };
        let failed = move |text: String| {
            let error = io::Error::other(text.clone());
            (door, Err(ListenError { error, module: "socket_util", text }))
        };
        threads.spawn("resolve", open, failed);
        self.state = State::LookingUp;
    }

    /// Whether what goes wrong now is told: the core hears of every failure once, and so does the log.
    fn is_first(&self) -> bool {
        self.reported.is_none()
    }

    /// Says in the log what has come of opening the listener.
    fn opened(&self, opened: Opened, log: &Vlog) -> Result<Listener, String> {
        let (address, listener) = opened.map_err(|failure| {
            if self.is_first() {
                log.log(failure.module, Level::Err, &failure.text);
            }
            strerror(&failure.error)
        })?;
        if let Some(text) = listener.announcement(&address, &self.target) {
            log.log("socket_util", Level::Info, &text);
        }
        Ok(listener)
    }

    /// Whoever comes in is told from now on; answers with the port.
    fn watch(&mut self, poller: &Poller, listener: Listener) -> Result<Option<u16>, String> {
        let token = self.door.token().encode();
        poller.add(&listener, token, Interest::Read).map_err(|error| strerror(&error))?;
        let port = listener.port();
        self.state = State::Open(listener);
        Ok(port)
    }

    /// Tells the core how it went, unless that is what it knows already.
    fn report(&mut self, result: Result<Option<u16>, String>, events: &mut Vec<Event>) {
        let text = match &result {
            Ok(_) => String::new(),
            Err(error) => error.clone(),
        };
        if self.reported.as_ref() != Some(&text) {
            self.reported = Some(text);
            events.push(match self.door {
                Door::Clients(remote) => Event::Listening { remote, result },
                Door::Peers(port) => Event::PeerPort { port, result: result.map(drop) },
            });
        }
    }

    fn pause(&mut self, poller: &Poller, now_us: u64, pause_us: u64) {
        let failed = State::Failed(now_us + RETRY_US);
        if let State::Open(listener) = mem::replace(&mut self.state, failed) {
            poller.remove(&listener);
            self.state = State::Paused(listener, now_us + pause_us);
        }
    }
}

impl AsFd for Listeners {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.threads.as_fd()
    }
}
