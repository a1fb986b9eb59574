//! What a run has and a replay has not: the clock, sockets, and the process around it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use weir_net::error::strerror;
use weir_server::effect::{Framing, RemoteOptions};
use weir_server::event::{Bytes, CommandId, Event, LinkId, Now, PeerPortId, RemoteId, SessionId};

use crate::clock::Clock;
use crate::coverage::{Counter, Coverage};
use crate::driver::incoming::admin::Admin;
use crate::driver::incoming::dialling::{Call, Dialling, PEER_PATIENCE};
use crate::driver::incoming::handshakes::{Finished, Purpose};
use crate::driver::incoming::links::Links;
use crate::driver::incoming::listeners::{Door, Listeners};
use crate::driver::incoming::sessions::Sessions;
use crate::driver::token::Token;
use crate::limits::{backlog_bytes_max, input_bytes_max};
use crate::poller::{Interest, Poller};
use crate::unixctl::Commands;
use crate::vlog::{Level, Vlog};

/// The number of a command that no admin has sent: what the server holds, for the log. Those of
/// admins count from 1.
pub(crate) const MEMORY_REPORT: CommandId = CommandId(0);

/// The outside of a run.
pub(crate) struct Outside {
    pub(crate) poller: Poller,
    pub(crate) sessions: Sessions,
    pub(crate) listeners: Listeners,
    pub(crate) dialling: Dialling,
    pub(crate) links: Links,
    pub(crate) admin: Admin,
    clock: Clock,
    /// Where a configuration is kept for the next child of the monitor.
    saved: Option<File>,
    /// Gives freed memory back to the system.
    trim_memory: fn(),
    /// Unix connections so far, for their names.
    unix_serial: u64,
    log: Vlog,
}

impl Outside {
    /// Nothing is connected yet. `socket_log` is for lines that no replay says.
    pub(crate) fn new(
        clock: Clock,
        commands: Commands,
        rundir: PathBuf,
        trim_memory: fn(),
        log: Vlog,
        socket_log: Vlog,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let dialling = Dialling::new(rundir.clone(), socket_log.clone())?;
        poller.add(&dialling, Token::Dialling.encode(), Interest::Read)?;
        let listeners = Listeners::new(rundir, socket_log.clone())?;
        poller.add(&listeners, Token::Opened.encode(), Interest::Read)?;
        Ok(Self {
            poller,
            sessions: Sessions::new(input_bytes_max(), backlog_bytes_max()),
            listeners,
            dialling,
            links: Links::new(socket_log.clone()),
            admin: Admin::new(commands, socket_log),
            clock,
            saved: None,
            trim_memory,
            unix_serial: 0,
            log,
        })
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        Now { monotonic_us: self.clock.monotonic_us(), wall_ms: self.clock.wall_ms() }
    }

    /// Microseconds on the clock that never steps back.
    pub(crate) fn monotonic_us(&self) -> u64 {
        self.clock.monotonic_us()
    }

    /// Where the core's configuration is kept from now on.
    pub(crate) fn save_in(&mut self, file: File) {
        self.saved = Some(file);
    }

    // What comes in.

    /// A listener is ready: who comes in is a session or a link, or goes to the handshake first.
    pub(crate) fn accept(
        &mut self,
        door: Door,
        now_us: u64,
        coverage: &mut Coverage,
        events: &mut Vec<Event>,
    ) {
        let Self { listeners, dialling, sessions, links, poller, unix_serial, .. } = self;
        let is_tls = listeners.is_tls(door);
        if is_tls && !dialling.has_room() {
            return listeners.rest(poller, door, now_us);
        }
        listeners.accept(poller, door, now_us, |accepted| {
            coverage.add(Counter::Accepts, 1);
            let name = accepted.peer.name(*unix_serial);
            *unix_serial += u64::from(accepted.peer == weir_net::Peer::Unix);
            match door {
                Door::Clients(remote) if is_tls => {
                    dialling.accept_tls(accepted, Purpose::Client(remote), name);
                }
                Door::Clients(remote) => sessions.accept(poller, accepted.stream, remote, name),
                Door::Peers(port) if is_tls => {
                    dialling.accept_tls(accepted, Purpose::Caller(port), name);
                }
                Door::Peers(port) => links.accept(poller, port, accepted.stream, name, events),
            }
        });
    }

    /// Threads have opened listeners, or have not.
    pub(crate) fn take_opened(&mut self, now_us: u64, events: &mut Vec<Event>) {
        self.listeners.take_opened(&self.poller, now_us, events);
    }

    /// The admin socket is ready.
    pub(crate) fn accept_admin(&mut self, now_us: u64) {
        self.admin.accept(&self.poller, &mut self.unix_serial, now_us);
    }

    /// Connections are made, or not.
    pub(crate) fn take_dialled(&mut self, events: &mut Vec<Event>) {
        for Finished { result, purpose, name, .. } in self.dialling.take_finished() {
            match (purpose, result) {
                (Purpose::Client(remote), Ok(stream)) => {
                    // It may have come too late.
                    if self.listeners.is_wanted(Door::Clients(remote)) {
                        self.sessions.accept(&self.poller, stream, remote, name);
                    }
                }
                (Purpose::Caller(port), Ok(stream)) => {
                    if self.listeners.is_wanted(Door::Peers(port)) {
                        self.links.accept(&self.poller, port, stream, name, events);
                    }
                }
                // Nobody was told of it.
                (Purpose::Client(_) | Purpose::Caller(_), Err(_)) => {}
                (Purpose::Manager(remote), Ok(stream)) => {
                    self.sessions.accept(&self.poller, stream, remote, name);
                }
                (Purpose::Link(link), Ok(stream)) => {
                    self.links.open(&self.poller, link, stream, Framing::Json, events);
                }
                (Purpose::Peer(link), Ok(stream)) => {
                    self.links.open(&self.poller, link, stream, Framing::Bytes, events);
                }
                (Purpose::Manager(remote), Err(error)) => {
                    let error = error.as_ref().map(strerror);
                    events.push(Event::ConnectFailed { remote, error });
                }
                (Purpose::Link(link), Err(error)) => {
                    let error = error.as_ref().map(strerror);
                    events.push(Event::LinkDown { link, error });
                }
                (Purpose::Peer(link), Err(error)) => {
                    let error = error.unwrap_or_else(|| Errno::TIMEDOUT.into());
                    events.push(Event::LinkDown { link, error: Some(strerror(&error)) });
                }
            }
        }
    }

    // What goes out.

    /// Writes what is queued for clients.
    pub(crate) fn flush_sessions(&mut self, coverage: &mut Coverage) {
        self.sessions.flush_dirty(&self.poller, coverage);
    }

    /// Tells the core how far what was queued has come, once all has been written that can be.
    pub(crate) fn look_at_outboxes(&mut self, of: Vec<SessionId>, coverage: &mut Coverage) {
        self.flush_sessions(coverage);
        self.sessions.look_at_outboxes(of);
    }

    pub(crate) fn stop_reading(&mut self, session: SessionId) {
        self.sessions.stop_reading(&self.poller, session);
    }

    pub(crate) fn go_on_reading(&mut self, session: SessionId) {
        self.sessions.go_on_reading(&self.poller, session);
    }

    pub(crate) fn disconnect(&mut self, session: SessionId, coverage: &mut Coverage) {
        let now_us = self.clock.monotonic_us();
        self.sessions.disconnect(&self.poller, session, now_us, coverage);
    }

    pub(crate) fn listen(
        &mut self,
        remote: RemoteId,
        target: String,
        options: RemoteOptions,
        events: &mut Vec<Event>,
    ) {
        let door = Door::Clients(remote);
        self.listeners.listen(&self.poller, door, target, options, events);
    }

    /// Opens a port for the other members of a cluster.
    pub(crate) fn listen_for_peers(
        &mut self,
        port: PeerPortId,
        address: String,
        events: &mut Vec<Event>,
    ) {
        let options = RemoteOptions::default();
        self.listeners.listen(&self.poller, Door::Peers(port), address, options, events);
    }

    pub(crate) fn close_for_peers(&mut self, port: PeerPortId) {
        self.listeners.unlisten(&self.poller, Door::Peers(port));
    }

    /// A remote listens no more, or is connected to no more.
    pub(crate) fn unlisten(&mut self, remote: RemoteId) {
        self.listeners.unlisten(&self.poller, Door::Clients(remote));
        self.dialling.give_up(Purpose::Manager(remote));
    }

    pub(crate) fn connect_remote(
        &mut self,
        remote: RemoteId,
        target: String,
        dscp: Option<u8>,
        patience_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let patience = Some(Duration::from_millis(patience_ms));
        let call = Call { purpose: Purpose::Manager(remote), target, dscp, patience };
        if let Err(error) = self.dialling.call(call) {
            let error = Some(strerror(&error));
            events.push(Event::ConnectFailed { remote, error });
        }
    }

    pub(crate) fn connect_link(
        &mut self,
        link: LinkId,
        target: String,
        dscp: Option<u8>,
        framing: Framing,
        events: &mut Vec<Event>,
    ) {
        let (purpose, patience) = match framing {
            // The core gives it up in its own time.
            Framing::Json => (Purpose::Link(link), None),
            Framing::Bytes => (Purpose::Peer(link), Some(PEER_PATIENCE)),
        };
        self.dialling.note_ends(|link| self.links.is_open(link));
        if let Err(error) = self.dialling.call(Call { purpose, target, dscp, patience }) {
            events.push(Event::LinkDown { link, error: Some(strerror(&error)) });
        }
    }

    /// Queues bytes for another server, which leave with [`Outside::flush_links`].
    pub(crate) fn send_on_link(&mut self, link: LinkId, bytes: &Bytes) {
        self.links.send(link, bytes);
    }

    /// Lets at most so many bytes be queued for another server.
    pub(crate) fn limit_link(&mut self, link: LinkId, bytes_max: usize) {
        self.links.limit(link, bytes_max);
    }

    /// Writes what is queued for other servers.
    pub(crate) fn flush_links(&mut self, coverage: &mut Coverage, events: &mut Vec<Event>) {
        self.links.flush(&self.poller, coverage, events);
    }

    pub(crate) fn close_link(&mut self, link: LinkId) {
        self.dialling.give_up(Purpose::Link(link));
        self.dialling.give_up(Purpose::Peer(link));
        self.links.close(&self.poller, link);
    }

    pub(crate) fn read_configuration(&mut self, path: &str, events: &mut Vec<Event>) {
        let result = std::fs::read(path).map_err(|error| strerror(&error));
        events.push(Event::ConfigurationRead { result });
    }

    /// Keeps a configuration: what a new child finds is either whole or, after a crash in between,
    /// no configuration at all.
    pub(crate) fn save_configuration(&mut self, bytes: &[u8]) {
        let Some(file) = &self.saved else { return };
        let written = file.set_len(0).and_then(|()| file.write_all_at(bytes, 0));
        if let Err(error) = written {
            let text = format!("failed to write temporary file ({})", strerror(&error));
            self.log.log("ovsdb_server", Level::Warn, &text);
        }
    }

    pub(crate) fn trim_memory(&self) {
        (self.trim_memory)();
    }

    /// What gives freed memory back to the system, on any thread.
    pub(crate) fn trimmer(&self) -> fn() {
        self.trim_memory
    }

    /// Answers an admin, or logs what the server holds.
    pub(crate) fn reply(
        &mut self,
        id: CommandId,
        reply: Result<String, String>,
        coverage: &Coverage,
        events: &mut Vec<Event>,
    ) {
        if id != MEMORY_REPORT {
            return self.admin.reply(&self.poller, id, reply, coverage, events);
        }
        if let Some(text) = reply.ok().filter(|text| !text.is_empty()) {
            self.log.log("memory", Level::Info, text.trim_end());
        }
    }
}
