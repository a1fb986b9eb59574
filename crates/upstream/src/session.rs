//! One JSON-RPC dialogue on a connection that is kept up: [`Connection`] says when to try and what
//! to log, [`Probe`] whether the other side is still there.

use weir_json::Text;
use weir_wire::Message;

use crate::backoff::Attempt;
use crate::connection::{Connection, End, Phase};
use crate::probe::{self, Probe, Silence};

/// Severity of a log line (vlog(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `err`
    Error,
    /// `warn`
    Warning,
    /// `info`
    Info,
    /// `dbg`
    Debug,
}

/// What the owner of a session must do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin to connect.
    Connect,
    /// Send this message on the open connection.
    Send(Vec<u8>),
    /// Close the connection, or give up the attempt; nothing more is heard of it.
    Close,
    /// Log a line as the module `reconnect`.
    Log(Level, String),
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The connection is open.
    Up,
    /// A whole message has come.
    Message(&'a [u8]),
    /// A part of one has come.
    Activity,
    /// The attempt failed or the connection ended, with the text of strerror(3) unless it was an
    /// orderly end.
    Down(Option<&'a str>),
    /// Time has passed.
    Tick,
}

/// What is in a message, for whoever leads the dialogue.
#[derive(Debug)]
pub(crate) enum Said<'a> {
    /// Nothing: the message is about whether anybody is there, and has been answered if that was asked.
    Nothing,
    /// A notification: its method and parameters.
    Notice(&'a str, Text<'a>),
    /// The answer to the request of this id.
    Reply(Text<'a>, Result<Text<'a>, Text<'a>>),
}

/// How a connection is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Inactivity probe interval in ms, 0 for none.
    pub probe_ms: u64,
    /// Longest pause between attempts in ms, 0 for the usual one.
    pub max_backoff_ms: u64,
}

/// A dialogue that begins anew with each connection. Times are microseconds on the monotonic clock.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    probe: Probe,
    next_id: u64,
}

impl Session {
    /// A session that connects at its first [`Session::run`]; logs call the other side `name`.
    pub fn new(name: &str, options: &Options) -> Self {
        Self {
            connection: Connection::new(name, Attempt::Connect, options.max_backoff_ms),
            probe: Probe::new(options.probe_ms, 0),
            next_id: 0,
        }
    }

    /// Changes how the connection is kept, without touching it.
    pub fn set_options(&mut self, options: &Options) {
        self.connection.set_backoff_max(options.max_backoff_ms);
        self.probe.set_interval(options.probe_ms);
    }

    /// The connection, for whom it is to.
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// What logs call the other side.
    pub(crate) fn name(&self) -> &str {
        self.connection.name()
    }

    /// Whether messages can be sent.
    pub fn is_connected(&self) -> bool {
        self.connection.phase() == Phase::Active
    }

    /// When [`Session::run`] has something to do.
    pub fn next_wakeup_us(&self) -> Option<u64> {
        match self.connection.phase() {
            Phase::Backoff => self.connection.due_us(),
            Phase::Connecting => self.connection.attempt_ends_us(),
            Phase::Active => self.probe.next_us(),
        }
    }

    /// Whether an attempt to connect is due by now.
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        self.connection.due_us().is_some_and(|at| at <= now_us)
    }

    /// Does what is due by now.
    pub fn run(&mut self, now_us: u64, out: &mut Vec<Action>) {
        if self.next_wakeup_us().is_none_or(|at| at > now_us) {
            return;
        }
        match self.connection.phase() {
            Phase::Backoff => {
                log(self.connection.connecting(now_us), out);
                out.push(Action::Connect);
            }
            Phase::Connecting => {
                out.push(Action::Close);
                log(self.connection.failed(now_us, None), out);
            }
            Phase::Active => {
                // Who has stood still himself may have the answer, and has not read it yet.
                let Some(silence) = self.probe.run(now_us) else { return };
                let text = silence.text(self.connection.name());
                match silence {
                    Silence::Idle(_) => {
                        out.push(Action::Log(Level::Debug, text));
                        out.push(Action::Send(probe::request()));
                    }
                    Silence::Lost(_) => {
                        out.push(Action::Log(Level::Error, text));
                        self.restart(now_us, out);
                    }
                }
            }
        }
    }

    /// The attempt has succeeded.
    pub fn connected(&mut self, now_us: u64, out: &mut Vec<Action>) {
        log([self.connection.connected(now_us)], out);
        self.probe.heard(now_us);
    }

    /// Bytes have arrived.
    pub fn heard(&mut self, now_us: u64) {
        assert!(self.is_connected(), "bytes arrive on an open connection");
        self.probe.heard(now_us);
    }

    /// The attempt has failed or the connection has ended by itself; `None` for an orderly end.
    pub fn disconnected(&mut self, now_us: u64, error: Option<&str>, out: &mut Vec<Action>) {
        let lines = if self.is_connected() {
            let end = error.map_or(End::Closed, End::Failed);
            self.connection.disconnected(now_us, self.probe.heard_us(), end)
        } else {
            self.connection.failed(now_us, error.or(Some("End of file")))
        };
        log(lines, out);
    }

    /// Ends the connection from this side, to begin again after a pause. Where there is none, the
    /// dialogue begins with the next anyway.
    pub fn restart(&mut self, now_us: u64, out: &mut Vec<Action>) {
        if self.is_connected() {
            out.push(Action::Close);
            let heard_us = self.probe.heard_us();
            log(self.connection.disconnected(now_us, heard_us, End::Dropped), out);
        }
    }

    /// Ends the connection, or the attempt to make it: this server is not wanted any more.
    pub(crate) fn give_up(&mut self, now_us: u64, out: &mut Vec<Action>) {
        if self.connection.phase() == Phase::Connecting {
            out.push(Action::Close);
            log(self.connection.failed(now_us, Some("this server is not wanted any more")), out);
        }
        self.restart(now_us, out);
    }

    /// The text of a request, and its id.
    pub fn request(&mut self, method: &str, params: &[u8]) -> (u64, Vec<u8>) {
        self.next_id += 1;
        let id = self.next_id.to_string();
        (self.next_id, weir_wire::request(id.as_bytes(), method, params))
    }

    /// What is in a message. An `echo` is answered; servers ask for nothing else.
    ///
    /// # Errors
    /// The message makes no sense, or is none of a server, in words for the log.
    pub(crate) fn read<'a>(bytes: &'a [u8], out: &mut Vec<Action>) -> Result<Said<'a>, String> {
        let text =
            weir_json::validate(bytes).map_err(|error| format!("error parsing stream: {error}"))?;
        let message = Message::parse(text)
            .map_err(|error| format!("received bad JSON-RPC message: {error}"))?;
        Ok(match message {
            Message::Request { method: "echo", params, id } => {
                let reply = weir_wire::reply_result(id.as_bytes(), params.as_bytes());
                out.push(Action::Send(reply));
                Said::Nothing
            }
            // As a connection to itself does, which a port that is not listened to may lead to.
            Message::Request { .. } => {
                return Err("is asked for something in return: that is no server".to_owned());
            }
            Message::Notification { method, params } => Said::Notice(method, params),
            Message::Reply { id, .. } | Message::Error { id, .. }
                if Self::is_probe(id.as_bytes()) =>
            {
                Said::Nothing
            }
            Message::Reply { result, id } => Said::Reply(id, Ok(result)),
            Message::Error { error, id } => Said::Reply(id, Err(error)),
        })
    }

    /// Whether a reply is to a probe of this session.
    pub fn is_probe(id: &[u8]) -> bool {
        id == probe::ID
    }
}

fn log(lines: impl IntoIterator<Item = String>, out: &mut Vec<Action>) {
    out.extend(lines.into_iter().map(|line| Action::Log(Level::Info, line)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn session(probe_ms: u64) -> Session {
        Session::new("tcp:h:1", &Options { probe_ms, max_backoff_ms: 0 })
    }

    /// Runs at the next deadline; when that was, and what was done besides logging.
    fn step(session: &mut Session) -> (u64, Vec<Action>) {
        let at = session.next_wakeup_us().unwrap();
        let mut out = Vec::new();
        session.run(at, &mut out);
        out.retain(|action| !matches!(action, Action::Log(..)));
        (at, out)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut session = session(0);
        let mut pauses = Vec::new();
        let mut failed = 0;
        for _ in 0..6 {
            let (at, actions) = step(&mut session);
            assert_eq!(actions, [Action::Connect]);
            pauses.push((at - failed) / SECOND);
            failed = at;
            session.disconnected(at, Some("Connection refused"), &mut Vec::new());
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 8]);
    }

    #[test]
    fn a_connection_of_some_use_makes_the_pause_short_again() {
        let mut session = session(0);
        for _ in 0..4 {
            let (at, _) = step(&mut session);
            session.disconnected(at, None, &mut Vec::new());
        }
        let (at, _) = step(&mut session);
        session.connected(at, &mut Vec::new());
        session.heard(at + 20 * SECOND);
        session.disconnected(at + 30 * SECOND, None, &mut Vec::new());
        assert_eq!(session.next_wakeup_us(), Some(at + 31 * SECOND));
    }

    #[test]
    fn silence_is_probed_and_then_ends_the_connection() {
        let mut session = session(5000);
        step(&mut session);
        session.connected(0, &mut Vec::new());
        session.heard(2 * SECOND);
        let (at, actions) = step(&mut session);
        assert_eq!(at, 7 * SECOND);
        let probe = br#"{"id":"echo","method":"echo","params":[]}"#.to_vec();
        assert_eq!(actions, [Action::Send(probe)]);
        session.heard(8 * SECOND);
        assert_eq!(step(&mut session).0, 13 * SECOND);
        let (at, actions) = step(&mut session);
        assert_eq!((at, actions), (18 * SECOND, vec![Action::Close]));
        assert!(!session.is_connected());
    }

    /// The process is stopped, or its host sleeps, while a probe is out.
    #[test]
    fn who_has_stood_still_waits_for_the_answer_to_his_probe_once_more() {
        let mut session = session(5000);
        step(&mut session);
        session.connected(0, &mut Vec::new());
        assert_eq!(step(&mut session).0, 5 * SECOND);
        let mut out = Vec::new();
        session.run(70 * SECOND, &mut out);
        assert_eq!(out, []);
        assert_eq!(step(&mut session), (75 * SECOND, vec![Action::Close]));
    }

    #[test]
    fn an_end_from_this_side_is_told() {
        let texts = |actions: Vec<Action>| -> Vec<String> {
            let text = |action| match action {
                Action::Log(level, text) => Some(format!("{level:?} {text}")),
                _ => None,
            };
            actions.into_iter().filter_map(text).collect()
        };
        let mut session = session(5000);
        step(&mut session);
        session.connected(0, &mut Vec::new());
        let mut out = Vec::new();
        session.run(5 * SECOND, &mut out);
        session.run(10 * SECOND, &mut out);
        let lost = "no response to inactivity probe after 5 seconds, disconnecting";
        let expected = [
            "Debug tcp:h:1: idle 5000 ms, sending inactivity probe".to_owned(),
            format!("Error tcp:h:1: {lost}"),
            "Info tcp:h:1: connection dropped".to_owned(),
        ];
        assert_eq!(texts(out), expected);
        step(&mut session);
        session.connected(20 * SECOND, &mut Vec::new());
        let mut out = Vec::new();
        session.restart(21 * SECOND, &mut out);
        assert_eq!(out.first(), Some(&Action::Close));
        assert_eq!(texts(out)[0], "Info tcp:h:1: connection dropped");
    }

    #[test]
    fn an_attempt_without_an_answer_is_given_up() {
        let mut session = session(0);
        step(&mut session);
        let (at, actions) = step(&mut session);
        assert_eq!((at, actions), (SECOND, vec![Action::Close]));
        assert_eq!(session.next_wakeup_us(), Some(2 * SECOND));
    }

    #[test]
    fn failures_are_told_quietly_and_not_for_ever() {
        let mut session = session(0);
        let mut log = Vec::new();
        for _ in 0..10 {
            let at = session.next_wakeup_us().unwrap();
            session.run(at, &mut log);
            session.disconnected(at, Some("Connection refused"), &mut log);
        }
        let lines = |wanted: Level| {
            log.iter().filter(|a| matches!(a, Action::Log(level, _) if *level == wanted)).count()
        };
        assert_eq!((lines(Level::Error), lines(Level::Warning)), (0, 0));
        assert!((4..16).contains(&lines(Level::Info)), "{log:#?}");
        assert_eq!(lines(Level::Debug), 0, "the reference has none either");
    }
}
