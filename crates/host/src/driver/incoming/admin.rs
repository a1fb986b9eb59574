//! Connections of `ovs-appctl`: one command at a time each.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use weir_json::Value;
use weir_net::error::strerror;
use weir_net::{Accepted, Listener};
use weir_server::event::{CommandId, Event};

use crate::coverage::Coverage;
use crate::driver::incoming::channel::{Channel, Received};
use crate::driver::incoming::inbox::Inbox;
use crate::driver::incoming::listeners::ACCEPT_PAUSE_US;
use crate::driver::token::Token;
use crate::poller::{Interest, Poller};
use crate::unixctl::{Commands, Outcome, Request, reply};
use crate::vlog::{Level, Vlog};
use weir_wire::trace;

/// Bytes of one read; commands are short.
const READ_BYTES: usize = 4096;

/// Longest command accepted, in bytes.
const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Why a connection that is named must be there.
const OPEN: &str = "the connection was looked up, and is closed only when its fate is decided";

/// The admin socket and its connections.
pub(crate) struct Admin {
    listener: Option<Listener>,
    /// Until when nobody is accepted, in microseconds: the listener is not watched.
    paused_us: Option<u64>,
    /// The last accept failed, and the log says so.
    refusing: bool,
    commands: Commands,
    connections: BTreeMap<u64, Connection>,
    /// Connections ever accepted.
    accepted: u64,
    /// Commands that the core is answering, and whose they are.
    awaited: BTreeMap<CommandId, u64>,
    /// Commands ever forwarded.
    forwarded: u64,
    scratch: Box<[u8]>,
    /// Somebody said `exit`.
    exiting: bool,
    log: Vlog,
}

struct Connection {
    name: String,
    log: Vlog,
    channel: Channel,
    /// `set-options --format json`.
    json: bool,
    /// The request that the core is answering.
    awaiting: Option<Value>,
}

/// What is to become of a connection.
#[derive(PartialEq, Eq)]
enum Fate {
    Keep,
    Drop,
}

impl Admin {
    pub(crate) fn new(commands: Commands, log: Vlog) -> Self {
        Self {
            listener: None,
            paused_us: None,
            refusing: false,
            commands,
            connections: BTreeMap::new(),
            accepted: 0,
            awaited: BTreeMap::new(),
            forwarded: 0,
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            exiting: false,
            log,
        }
    }

    /// Begins to listen.
    pub(crate) fn listen(&mut self, poller: &Poller, listener: Listener) -> std::io::Result<()> {
        poller.add(&listener, Token::AdminListener.encode(), Interest::Read)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Somebody said `exit`.
    pub(crate) fn is_exiting(&self) -> bool {
        self.exiting
    }

    /// Takes one connection; the others are still there in the next round, or after a pause if the
    /// system has no descriptor left.
    pub(crate) fn accept(&mut self, poller: &Poller, unix_serial: &mut u64, now_us: u64) {
        let Some(listener) = &self.listener else { return };
        let accepted = match listener.accept() {
            Ok(Some(accepted)) => {
                self.refusing = false;
                accepted
            }
            Ok(None) => return,
            Err(error) => {
                if !mem::replace(&mut self.refusing, true) {
                    let path = listener.path().map(|path| path.display().to_string());
                    let (path, error) = (path.unwrap_or_default(), strerror(&error));
                    let text = format!("punix:{path}: accept failed: {error}");
                    self.log.log_limited("admin_accept", "unixctl", Level::Warn, &text);
                }
                poller.remove(listener);
                self.paused_us = Some(now_us + ACCEPT_PAUSE_US);
                return;
            }
        };
        let Accepted { stream, peer } = accepted;
        self.accepted += 1;
        let name = peer.name(*unix_serial);
        *unix_serial += 1;
        let token = Token::Admin(self.accepted);
        if let Ok(channel) = Channel::open(poller, token, stream, Inbox::default()) {
            let (log, json, awaiting) = (self.log.clone(), false, None);
            let connection = Connection { name, log, channel, json, awaiting };
            self.connections.insert(self.accepted, connection);
        }
    }

    /// When [`Admin::wake`] is due.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.paused_us
    }

    /// Accepts again after a pause, if it is over.
    pub(crate) fn wake(&mut self, poller: &Poller, now_us: u64) {
        let Some(listener) = &self.listener else { return };
        if self.paused_us.is_none_or(|until| now_us < until) {
            return;
        }
        let watched = poller.add(listener, Token::AdminListener.encode(), Interest::Read);
        self.paused_us = watched.is_err().then_some(now_us + ACCEPT_PAUSE_US);
    }

    /// The socket of a connection is ready, unless the connection was closed earlier in this round.
    pub(crate) fn on_ready(
        &mut self,
        poller: &Poller,
        number: u64,
        coverage: &Coverage,
        events: &mut Vec<Event>,
    ) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut fate = match connection.channel.interest() {
            Interest::Write => connection.flush(),
            _ => connection.read(&mut self.scratch),
        };
        if fate == Fate::Keep {
            fate = self.run(number, coverage, events);
        }
        self.watch_or_drop(poller, number, fate);
    }

    /// The core has answered a command.
    pub(crate) fn reply(
        &mut self,
        poller: &Poller,
        id: CommandId,
        result: Result<String, String>,
        coverage: &Coverage,
        events: &mut Vec<Event>,
    ) {
        let number = self.awaited.remove(&id).expect("every command is answered once");
        // Nobody waits any more if the connection is gone.
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let request = connection.awaiting.take();
        let request = request.expect("a connection waits until its command is answered");
        let mut fate = connection.answer(&request, result);
        if fate == Fate::Keep {
            fate = self.run(number, coverage, events);
        }
        self.watch_or_drop(poller, number, fate);
    }

    /// Runs what has come in, until a command must wait for the core.
    fn run(&mut self, number: u64, coverage: &Coverage, events: &mut Vec<Event>) -> Fate {
        loop {
            let connection = self.connections.get_mut(&number).expect(OPEN);
            if connection.awaiting.is_some() || !connection.channel.outbox.is_empty() {
                return Fate::Keep;
            }
            let message = match connection.channel.inbox.next_message() {
                Ok(Some(message)) => message,
                Ok(None) if connection.channel.inbox.held_bytes() <= COMMAND_BYTES_MAX => {
                    return Fate::Keep;
                }
                Ok(None) | Err(_) => return Fate::Drop,
            };
            let request = match Request::parse(&message) {
                Ok(request) => request,
                Err(misfit) => {
                    let (module, text) = misfit.line();
                    let text = format!("{}: {text}", connection.name);
                    let place = if module == "unixctl" { "admin_kind" } else { "admin_bad" };
                    self.log.log_limited(place, module, Level::Warn, &text);
                    return Fate::Drop;
                }
            };
            connection.trace_request(&message, &request);
            if self.execute(number, request, coverage, events) == Fate::Drop {
                return Fate::Drop;
            }
        }
    }

    fn execute(
        &mut self,
        number: u64,
        request: Request,
        coverage: &Coverage,
        events: &mut Vec<Event>,
    ) -> Fate {
        let connection = self.connections.get_mut(&number).expect(OPEN);
        let Request { id, method, args } = request;
        match self.commands.run(&method, &args, coverage) {
            Outcome::Reply(result) => connection.answer(&id, result),
            Outcome::Format { json } => {
                connection.json = json;
                connection.answer(&id, Ok(String::new()))
            }
            Outcome::Exit => {
                self.exiting = true;
                connection.answer(&id, Ok(String::new()))
            }
            Outcome::Forward => {
                self.forwarded += 1;
                let command = CommandId(self.forwarded);
                connection.awaiting = Some(id);
                self.awaited.insert(command, number);
                let args = args.expect("the table of commands refuses arguments that are no text");
                events.push(Event::Command { id: command, name: method, args });
                Fate::Keep
            }
        }
    }

    /// Watches a connection for what it waits for, or closes it.
    fn watch_or_drop(&mut self, poller: &Poller, number: u64, fate: Fate) {
        let connection = self.connections.get_mut(&number).expect(OPEN);
        let wanted = if !connection.channel.outbox.is_empty() {
            Interest::Write
        } else if connection.awaiting.is_some() {
            Interest::Nothing
        } else {
            Interest::Read
        };
        let token = Token::Admin(number);
        if fate == Fate::Drop || connection.channel.watch(poller, token, wanted).is_err() {
            let connection = self.connections.remove(&number).expect(OPEN);
            connection.channel.close(poller);
        }
    }
}

impl Connection {
    fn read(&mut self, scratch: &mut [u8]) -> Fate {
        match self.channel.receive(scratch) {
            Ok(Received::Bytes(_)) => Fate::Keep,
            // While it waits it is watched only for its end.
            Ok(Received::Nothing) if self.awaiting.is_none() => Fate::Keep,
            Ok(Received::Nothing | Received::End) | Err(_) => Fate::Drop,
        }
    }

    /// `-vjsonrpc:dbg` and `-vunixctl:dbg`: what came.
    fn trace_request(&self, message: &[u8], request: &Request) {
        if self.log.traces_messages() {
            self.log.log("jsonrpc", Level::Dbg, &trace::received(&self.name, message));
        }
        if self.log.enabled("unixctl", Level::Dbg) {
            let Request { id, method, args } = request;
            let args = weir_json::array(args.iter().flatten().map(String::as_str));
            let text = format!("received request {method}{args}, id={id}");
            self.log.log("unixctl", Level::Dbg, &text);
        }
    }

    fn answer(&mut self, id: &Value, result: Result<String, String>) -> Fate {
        if self.log.enabled("unixctl", Level::Dbg) {
            let (how, text) = match &result {
                Ok(text) => ("success", text),
                Err(text) => ("error", text),
            };
            let text = format!("replying with {how}, id={id}: \"{text}\"");
            self.log.log("unixctl", Level::Dbg, &text);
        }
        let message = reply(id, result, self.json);
        if self.log.traces_messages() {
            self.log.log("jsonrpc", Level::Dbg, &trace::sent(&self.name, &message));
        }
        self.channel.outbox.push(&Arc::new(message));
        self.flush()
    }

    fn flush(&mut self) -> Fate {
        if self.channel.flush().result.is_ok() { Fate::Keep } else { Fate::Drop }
    }
}
