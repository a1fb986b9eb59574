//! One connection that is kept up: when to try, when to wait, what to log.
//!
//! The exits of each phase:
//!
//! | phase | ends by | next |
//! |---|---|---|
//! | `Backoff` | its time: the owner tries | `Connecting` |
//! | `Connecting` | success; failure, or no answer for one back-off | `Active`; `Backoff` |
//! | `Active` | the end of the connection, by whomever | `Backoff` |
//!
//! Whether an active connection is idle, with a probe out, is for its
//! [`Probe`](crate::probe::Probe) to say: a server probes connections that others have made to it
//! as well.
//!
//! Texts and times are the reference's. All lines are INFO of the module `reconnect`; once the
//! pause is the longest, attempts and their failures are not worth one.

use crate::backoff::{self, Attempt, Backoff};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting to try again.
    Backoff,
    /// An attempt is under way.
    Connecting,
    /// Messages can be sent.
    Active,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// The peer closed it.
    Closed,
    /// The connection broke, with the text of strerror(3).
    Failed(&'a str),
    /// This side closed it.
    Dropped,
}

/// A connection that is tried again and again. Times are microseconds on the monotonic clock.
#[derive(Clone, Debug)]
pub struct Connection {
    /// What logs call the other side: its target.
    name: String,
    attempt: Attempt,
    phase: Phase,
    /// When the phase began.
    since_us: u64,
    backoff: Backoff,
    backoff_ms_max: u64,
    /// Pauses are longer by so many 1024ths.
    jitter: u64,
    /// So many failures are followed by no pause, for another server is tried next.
    free_tries: u32,
    connected_us: Option<u64>,
    disconnected_us: Option<u64>,
    last_error: Option<String>,
}

/// By how much a pause can be longer than it would be, in 1024ths.
const JITTER_MAX: u64 = 256;

impl Connection {
    /// A connection that is due at once. The longest pause is in ms, 0 for the usual one.
    pub fn new(name: &str, attempt: Attempt, backoff_ms_max: u64) -> Self {
        let mut new = Self {
            name: name.to_owned(),
            attempt,
            phase: Phase::Backoff,
            since_us: 0,
            backoff: Backoff::default(),
            backoff_ms_max: 0,
            jitter: 0,
            free_tries: 0,
            connected_us: None,
            disconnected_us: None,
            last_error: None,
        };
        new.set_backoff_max(backoff_ms_max);
        new
    }

    /// Another longest pause in ms, 0 for the usual one; it counts for a pause under way too.
    pub fn set_backoff_max(&mut self, ms: u64) {
        let ms = if ms == 0 { backoff::MS_MAX } else { ms };
        self.backoff_ms_max = ms.max(backoff::MS_MIN);
        self.backoff.limit(self.backoff_ms_max);
    }

    /// Makes pauses longer by up to a quarter, so that those who lost the same server do not come back
    /// at the same moment.
    pub fn spread(&mut self, random: u64) {
        self.jitter = random % JITTER_MAX;
    }

    /// The next attempts go to other servers each: so many may fail without a pause behind them.
    pub fn allow_free_tries(&mut self, tries: u32) {
        self.free_tries = tries;
    }

    /// The next attempt goes to this server.
    pub fn set_name(&mut self, name: String) {
        self.name = name;
    }

    /// What logs call the other side.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the connection stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// When the connection was last made.
    pub fn connected_us(&self) -> Option<u64> {
        self.connected_us
    }

    /// When the connection last ended.
    pub fn disconnected_us(&self) -> Option<u64> {
        self.disconnected_us
    }

    /// How the connection last ended, unless this side closed it.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// When to try, while it waits.
    pub fn due_us(&self) -> Option<u64> {
        let pause_us = self.backoff.us();
        let pause_us = pause_us + pause_us / 1024 * self.jitter;
        (self.phase == Phase::Backoff).then(|| self.since_us + pause_us)
    }

    /// When the attempt under way has lasted for too long.
    pub fn attempt_ends_us(&self) -> Option<u64> {
        let ends_us = self.since_us + self.backoff.patience_ms() * 1000;
        (self.phase == Phase::Connecting).then_some(ends_us)
    }

    /// How long an attempt may take, in milliseconds.
    pub fn patience_ms(&self) -> u64 {
        self.backoff.patience_ms()
    }

    /// The owner tries now; what to log.
    pub fn connecting(&mut self, now_us: u64) -> Option<String> {
        self.enter(Phase::Backoff, Phase::Connecting, now_us);
        let what = match self.attempt {
            Attempt::Connect => "connecting",
            Attempt::Listen => "listening",
        };
        self.is_talkative().then(|| format!("{}: {what}...", self.name))
    }

    /// The attempt has succeeded; what to log.
    pub fn connected(&mut self, now_us: u64) -> String {
        self.enter(Phase::Connecting, Phase::Active, now_us);
        self.connected_us = Some(now_us);
        format!("{}: connected", self.name)
    }

    /// The attempt has failed, `None` for lack of time; what to log.
    pub fn failed(&mut self, now_us: u64, error: Option<&str>) -> Vec<String> {
        self.enter(Phase::Connecting, Phase::Backoff, now_us);
        let mut lines = Vec::new();
        if self.is_talkative() {
            let what = match self.attempt {
                Attempt::Connect => "connection",
                Attempt::Listen => "listen",
            };
            let how = match error {
                Some(error) => format!("failed ({error})"),
                None => "timed out".to_owned(),
            };
            lines.push(format!("{}: {what} attempt {how}", self.name));
        }
        self.wait_longer(&mut lines);
        lines
    }

    /// The connection has ended; something last came in at `heard_us`. What to log.
    ///
    /// The pause is short again after a connection that was of use for longer than it.
    pub fn disconnected(&mut self, now_us: u64, heard_us: u64, end: End<'_>) -> Vec<String> {
        self.enter(Phase::Active, Phase::Backoff, now_us);
        let (how, error) = match end {
            End::Closed => ("connection closed by peer".to_owned(), Some("End of file")),
            End::Failed(error) => (format!("connection dropped ({error})"), Some(error)),
            End::Dropped => ("connection dropped".to_owned(), None),
        };
        let mut lines = vec![format!("{}: {how}", self.name)];
        self.last_error = error.map(str::to_owned);
        self.disconnected_us = Some(now_us);
        let connected_us = self.connected_us.expect("an active connection has been connected");
        assert!(heard_us >= connected_us, "being connected counts as heard of");
        if heard_us - connected_us >= self.backoff.us() {
            self.backoff.begin_anew(self.backoff_ms_max);
        } else {
            self.wait_longer(&mut lines);
        }
        lines
    }

    fn wait_longer(&mut self, lines: &mut Vec<String>) {
        if self.free_tries > 0 {
            self.free_tries -= 1;
            self.backoff = Backoff::default();
            return;
        }
        let text = self.backoff.lengthen(self.backoff_ms_max, self.attempt);
        lines.extend(text.map(|text| format!("{}: {text}", self.name)));
    }

    /// Attempts are worth a line until they have become rare.
    fn is_talkative(&self) -> bool {
        !self.backoff.is_longest(self.backoff_ms_max)
    }

    fn enter(&mut self, from: Phase, to: Phase, now_us: u64) {
        assert_eq!(self.phase, from, "an attempt has one result, and a connection one end");
        assert!(self.since_us <= now_us, "the monotonic clock does not go back");
        (self.phase, self.since_us) = (to, now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(max_ms: u64, failures: usize) -> (Vec<u64>, Vec<String>) {
        let mut now_us = 0;
        let mut connection = Connection::new("tcp:x", Attempt::Connect, max_ms);
        let (mut pauses, mut lines) = (Vec::new(), Vec::new());
        for _ in 0..failures {
            let due = connection.due_us().unwrap();
            pauses.push((due - now_us) / 1000);
            now_us = due;
            lines.extend(connection.connecting(now_us));
            lines.extend(connection.failed(now_us, Some("no")));
        }
        (pauses, lines)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        assert_eq!(run(0, 6).0, [0, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(run(3000, 5).0, [0, 1000, 2000, 3000, 3000]);
        assert_eq!(run(5000, 6).0, [0, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(run(1, 3).0, [0, 1000, 1000]);
    }

    #[test]
    fn the_log_falls_silent() {
        let (_, lines) = run(0, 8);
        assert_eq!(
            lines,
            [
                "tcp:x: connecting...",
                "tcp:x: connection attempt failed (no)",
                "tcp:x: connecting...",
                "tcp:x: connection attempt failed (no)",
                "tcp:x: waiting 2 seconds before reconnect",
                "tcp:x: connecting...",
                "tcp:x: connection attempt failed (no)",
                "tcp:x: waiting 4 seconds before reconnect",
                "tcp:x: connecting...",
                "tcp:x: connection attempt failed (no)",
                "tcp:x: continuing to reconnect in the background but suppressing further logging",
            ]
        );
    }

    #[test]
    fn a_name_to_listen_on_is_listened_on() {
        let mut connection = Connection::new("ptcp:x", Attempt::Listen, 0);
        let mut lines: Vec<String> = connection.connecting(0).into_iter().collect();
        lines.extend(connection.failed(0, Some("no")));
        lines.extend(connection.connecting(1));
        lines.extend(connection.failed(1, None));
        assert_eq!(
            lines,
            [
                "ptcp:x: listening...",
                "ptcp:x: listen attempt failed (no)",
                "ptcp:x: listening...",
                "ptcp:x: listen attempt timed out",
                "ptcp:x: waiting 2 seconds before trying to listen again",
            ]
        );
    }

    #[test]
    fn a_connection_that_lasted_forgives_what_was_before() {
        let mut connection = Connection::new("tcp:x", Attempt::Connect, 0);
        for _ in 0..3 {
            connection.connecting(0);
            connection.failed(0, None);
        }
        connection.connecting(10_000_000);
        connection.connected(10_000_000);
        let lines = connection.disconnected(30_000_000, 20_000_000, End::Closed);
        assert_eq!(lines, ["tcp:x: connection closed by peer"]);
        assert_eq!(connection.due_us(), Some(31_000_000));
        assert_eq!(connection.last_error(), Some("End of file"));
        connection.connecting(31_000_000);
        connection.connected(31_000_000);
        let lines = connection.disconnected(31_000_000, 31_000_000, End::Failed("Broken pipe"));
        assert_eq!(
            lines,
            [
                "tcp:x: connection dropped (Broken pipe)",
                "tcp:x: waiting 2 seconds before reconnect"
            ]
        );
        assert_eq!(connection.last_error(), Some("Broken pipe"));
        connection.connecting(33_000_000);
        connection.connected(33_000_000);
        let lines = connection.disconnected(43_000_000, 38_000_000, End::Dropped);
        assert_eq!(lines, ["tcp:x: connection dropped"]);
        assert_eq!(connection.last_error(), None);
        assert_eq!(connection.connected_us(), Some(33_000_000));
        assert_eq!(connection.disconnected_us(), Some(43_000_000));
    }

    #[test]
    fn a_shorter_longest_pause_counts_at_once() {
        let mut connection = Connection::new("tcp:x", Attempt::Connect, 0);
        for _ in 0..4 {
            connection.connecting(0);
            connection.failed(0, None);
        }
        assert_eq!(connection.due_us(), Some(8_000_000));
        connection.set_backoff_max(2000);
        assert_eq!(connection.due_us(), Some(2_000_000));
        connection.connecting(2_000_000);
        assert_eq!(connection.attempt_ends_us(), Some(4_000_000));
    }
}
