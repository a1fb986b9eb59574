//! One JSON-RPC connection to a server, kept up: attempts, back-off, probes.
//!
//! The exits of each state:
//!
//! | state | ends by | next |
//! |---|---|---|
//! | `Waiting` | its time | `Connecting` |
//! | `Connecting` | connected; failure; a time-out of one back-off | `Active`; `Waiting` |
//! | `Active` | silence for a probe interval; the end of the connection | `Probing`; `Waiting` |
//! | `Probing` | anything that arrives; silence for an interval; the end | `Active`; `Waiting` |

use crate::backoff::{Attempt, Backoff, MS_MIN};

/// Probe intervals below this, in milliseconds, would only measure the scheduler; 0 is off.
const PROBE_MS_MIN: u64 = 1000;

/// The id of a probe, as JSON text.
const PROBE_ID: &[u8] = b"\"echo\"";

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

/// How a connection is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Inactivity probe interval in ms, 0 for none.
    pub probe_ms: u64,
    /// Longest pause between attempts in ms.
    pub max_backoff_ms: u64,
}

/// Where a session stands. Times are microseconds on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { until: u64 },
    Connecting { since: u64 },
    Active,
    Probing { since: u64 },
}

/// A connection that is tried again and again.
#[derive(Debug)]
pub struct Session {
    /// What logs call the other side: its target.
    name: String,
    options: Options,
    state: State,
    backoff: Backoff,
    connected_us: u64,
    heard_us: u64,
    next_id: u64,
}

impl Session {
    /// A session that connects at its first [`Session::run`].
    pub fn new(name: String, options: Options) -> Self {
        Self {
            name,
            options,
            state: State::Waiting { until: 0 },
            backoff: Backoff::default(),
            connected_us: 0,
            heard_us: 0,
            next_id: 0,
        }
    }

    /// Changes how the connection is kept, without touching it.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Whether messages can be sent.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Probing { .. })
    }

    /// When [`Session::run`] has something to do.
    pub fn next_wakeup_us(&self) -> Option<u64> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Connecting { since } => Some(since + self.backoff.patience_ms() * 1000),
            State::Active => self.probe_us().map(|probe| self.heard_us + probe),
            State::Probing { since } => self.probe_us().map(|probe| since + probe),
        }
    }

    fn probe_us(&self) -> Option<u64> {
        let ms = self.options.probe_ms;
        (ms > 0).then(|| ms.max(PROBE_MS_MIN).saturating_mul(1000))
    }

    /// Does what is due by now.
    pub fn run(&mut self, now_us: u64, out: &mut Vec<Action>) {
        if self.next_wakeup_us().is_none_or(|at| at > now_us) {
            return;
        }
        match self.state {
            State::Waiting { .. } => {
                if !self.backoff.is_longest(self.backoff_max_ms()) {
                    self.log(Level::Info, "connecting...", out);
                }
                self.state = State::Connecting { since: now_us };
                out.push(Action::Connect);
            }
            State::Connecting { .. } => {
                out.push(Action::Close);
                self.end(now_us, "connection attempt timed out", out);
            }
            State::Active => {
                let idle_ms = now_us.saturating_sub(self.heard_us) / 1000;
                let text = format!("idle {idle_ms} ms, sending inactivity probe");
                self.log(Level::Debug, &text, out);
                self.state = State::Probing { since: now_us };
                out.push(Action::Send(weir_wire::request(b"\"echo\"", "echo", b"[]")));
            }
            State::Probing { since } => {
                let seconds = now_us.saturating_sub(since) / 1_000_000;
                let text = format!(
                    "no response to inactivity probe after {seconds} seconds, disconnecting"
                );
                self.log(Level::Error, &text, out);
                out.push(Action::Close);
                self.back_off(now_us, out);
            }
        }
    }

    /// The attempt has succeeded.
    pub fn connected(&mut self, now_us: u64, out: &mut Vec<Action>) {
        self.state = State::Active;
        (self.connected_us, self.heard_us) = (now_us, now_us);
        self.log(Level::Info, "connected", out);
    }

    /// Bytes have arrived.
    pub fn heard(&mut self, now_us: u64) {
        self.heard_us = now_us;
        if let State::Probing { .. } = self.state {
            self.state = State::Active;
        }
    }

    /// The attempt has failed or the connection has ended by itself; `None` for an orderly end.
    pub fn disconnected(&mut self, now_us: u64, error: Option<&str>, out: &mut Vec<Action>) {
        let text = match (self.is_connected(), error) {
            (true, Some(error)) => format!("connection dropped ({error})"),
            (true, None) => "connection closed by peer".to_owned(),
            (false, error) => {
                format!("connection attempt failed ({})", error.unwrap_or("End of file"))
            }
        };
        self.end(now_us, &text, out);
    }

    /// Ends the connection from this side, to begin again after a pause.
    pub fn restart(&mut self, now_us: u64, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Waiting { .. }) {
            out.push(Action::Close);
            self.back_off(now_us, out);
        }
    }

    /// The text of a request, and its id.
    pub fn request(&mut self, method: &str, params: &[u8]) -> (u64, Vec<u8>) {
        self.next_id += 1;
        let id = self.next_id.to_string();
        (self.next_id, weir_wire::request(id.as_bytes(), method, params))
    }

    /// Whether a reply is to a probe of this session.
    pub fn is_probe(id: &[u8]) -> bool {
        id == PROBE_ID
    }

    fn end(&mut self, now_us: u64, text: &str, out: &mut Vec<Action>) {
        // A routine event, however often it happens.
        self.log(Level::Info, text, out);
        self.back_off(now_us, out);
    }

    /// The pause is short again after a connection that was of use for longer than it.
    fn back_off(&mut self, now_us: u64, out: &mut Vec<Action>) {
        let max_ms = self.backoff_max_ms();
        let lasted = self.heard_us.saturating_sub(self.connected_us) >= self.backoff.us();
        if self.is_connected() && lasted {
            self.backoff.begin_anew(max_ms);
        } else if let Some(text) = self.backoff.lengthen(max_ms, Attempt::Connect) {
            out.push(Action::Log(Level::Info, format!("{}: {text}", self.name)));
        }
        self.state = State::Waiting { until: now_us + self.backoff.us() };
    }

    fn backoff_max_ms(&self) -> u64 {
        self.options.max_backoff_ms.max(MS_MIN)
    }

    fn log(&self, level: Level, text: &str, out: &mut Vec<Action>) {
        // Beyond the longest back-off only success is worth a line.
        let quiet = self.backoff.is_longest(self.backoff_max_ms()) && !self.is_connected();
        let level = if quiet && level == Level::Info { Level::Debug } else { level };
        out.push(Action::Log(level, format!("{}: {text}", self.name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn session(probe_ms: u64) -> Session {
        Session::new("tcp:h:1".into(), Options { probe_ms, max_backoff_ms: crate::backoff::MS_MAX })
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
    }
}
