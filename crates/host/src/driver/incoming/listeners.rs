//! Remotes that listen: opened, tried again, accepted from.

use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use weir_net::error::strerror;
use weir_net::{Accepted, Address, AddressError, Listener};
use weir_server::effect::RemoteOptions;
use weir_server::event::{Event, RemoteId};

use crate::driver::token::Token;
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

/// Remotes that listen, or will when they can.
pub(crate) struct Listeners {
    remotes: BTreeMap<RemoteId, Remote>,
    rundir: PathBuf,
    log: Vlog,
}

struct Remote {
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
    /// Is to be opened at this time, in microseconds.
    Failed(u64),
}

impl Listeners {
    pub(crate) fn new(rundir: PathBuf, log: Vlog) -> Self {
        Self { remotes: BTreeMap::new(), rundir, log }
    }

    /// Opens a listener, now and whenever it is due until it works.
    pub(crate) fn listen(
        &mut self,
        poller: &Poller,
        id: RemoteId,
        target: String,
        options: RemoteOptions,
        events: &mut Vec<Event>,
    ) {
        let state = State::Failed(0);
        let remote = Remote { target, options, state, reported: None, refusing: false };
        self.remotes.insert(id, remote);
        self.wake(poller, 0, events);
    }

    /// Closes a listener; its socket file goes.
    pub(crate) fn unlisten(&mut self, poller: &Poller, id: RemoteId) {
        if let Some(Remote { state: State::Open(listener) | State::Paused(listener, _), .. }) =
            self.remotes.remove(&id)
        {
            poller.remove(&listener);
        }
    }

    /// Whether TLS is to be spoken with who comes in.
    pub(crate) fn is_tls(&self, id: RemoteId) -> bool {
        self.remotes.get(&id).is_some_and(|remote| match &remote.state {
            State::Open(listener) | State::Paused(listener, _) => listener.is_tls(),
            State::Failed(_) => false,
        })
    }

    /// Whether the core still wants a remote.
    pub(crate) fn is_wanted(&self, id: RemoteId) -> bool {
        self.remotes.contains_key(&id)
    }

    /// Accepts nobody for a moment.
    pub(crate) fn rest(&mut self, poller: &Poller, id: RemoteId, now_us: u64) {
        if let Some(remote) = self.remotes.get_mut(&id) {
            remote.pause(poller, now_us, REST_US);
        }
    }

    /// When [`Listeners::wake`] is due.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let due = |remote: &Remote| match remote.state {
            State::Open(_) => None,
            State::Paused(_, at) | State::Failed(at) => Some(at),
        };
        self.remotes.values().filter_map(due).min()
    }

    /// Tries again what is due.
    pub(crate) fn wake(&mut self, poller: &Poller, now_us: u64, events: &mut Vec<Event>) {
        for (id, remote) in &mut self.remotes {
            let due = match remote.state {
                State::Open(_) => false,
                State::Paused(_, at) | State::Failed(at) => at <= now_us,
            };
            if due {
                let token = Token::Listener(id.0).encode();
                let result = remote.open(poller, token, &self.rundir, now_us, &self.log);
                remote.report(*id, result, events);
            }
        }
    }

    /// Takes the connections of a listener that is ready.
    pub(crate) fn accept(
        &mut self,
        poller: &Poller,
        id: RemoteId,
        now_us: u64,
        mut take: impl FnMut(Accepted),
    ) {
        let remote = self.remotes.get_mut(&id).expect("a listener is watched until it is closed");
        let State::Open(listener) = &remote.state else {
            unreachable!("a listener is watched only while it is open");
        };
        for _ in 0..ACCEPTS_MAX {
            match listener.accept() {
                Ok(Some(accepted)) => {
                    remote.refusing = false;
                    take(accepted);
                }
                Ok(None) => return,
                Err(error) => {
                    if !mem::replace(&mut remote.refusing, true) {
                        let target = &remote.target;
                        let text = format!("{target}: accept failed: {}", strerror(&error));
                        self.log.log_limited("accept", "ovsdb_jsonrpc_server", Level::Warn, &text);
                    }
                    return remote.pause(poller, now_us, ACCEPT_PAUSE_US);
                }
            }
        }
    }
}

impl Remote {
    /// Opens the listener or, after a pause, watches it again.
    fn open(
        &mut self,
        poller: &Poller,
        token: u64,
        rundir: &Path,
        now_us: u64,
        log: &Vlog,
    ) -> Result<Option<u16>, String> {
        let paused = mem::replace(&mut self.state, State::Failed(now_us + RETRY_US));
        let listener = match paused {
            State::Paused(listener, _) => listener,
            State::Open(_) | State::Failed(_) => self.bind(rundir, log)?,
        };
        poller.add(&listener, token, Interest::Read).map_err(|error| strerror(&error))?;
        let port = listener.port();
        self.state = State::Open(listener);
        Ok(port)
    }

    fn bind(&self, rundir: &Path, log: &Vlog) -> Result<Listener, String> {
        // The core hears of every failure once; so does the log.
        let first = self.reported.is_none();
        let address = Address::parse(&self.target, rundir).map_err(|error| {
            if let (AddressError::Malformed(text), true) = (&error, first) {
                let is_inherited = self.target.starts_with("pfd:");
                let module = if is_inherited { "stream_fd" } else { "socket_util" };
                log.log(module, Level::Err, text);
            }
            strerror(&Errno::AFNOSUPPORT.into())
        })?;
        let listener = Listener::open(&address, &self.target, self.options.dscp);
        let listener = listener.map_err(|failure| {
            if first {
                log.log(failure.module, Level::Err, &failure.text);
            }
            strerror(&failure.error)
        })?;
        if let Some(text) = listener.announcement(&address, &self.target) {
            log.log("socket_util", Level::Info, &text);
        }
        Ok(listener)
    }

    /// Tells the core how it went, unless that is what it knows already.
    fn report(
        &mut self,
        id: RemoteId,
        result: Result<Option<u16>, String>,
        events: &mut Vec<Event>,
    ) {
        let text = match &result {
            Ok(_) => String::new(),
            Err(error) => error.clone(),
        };
        if self.reported.as_ref() != Some(&text) {
            self.reported = Some(text);
            events.push(Event::Listening { remote: id, result });
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
