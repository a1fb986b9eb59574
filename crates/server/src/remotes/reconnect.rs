//! A connection that this server makes to somebody: when to try, when to wait, what to log.
//!
//! 1. *Backoff*: wait, at first not at all, then 1 s, and twice as long after each failure.
//! 2. *Connecting*: the shell tries, at least 1 s long. Failed: back to 1.
//! 3. *Active*: there is a session. When it ends: back to 1, without doubling if it had lasted.
//!
//! Texts and times are the reference's; beyond the longest pause nothing more is logged.

use weir_upstream::backoff::{self, Attempt, Backoff};

use crate::ids::SessionId;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting to try again.
    Backoff,
    /// The shell tries.
    Connecting,
    /// There is this session.
    Active(SessionId),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End<'a> {
    /// The peer closed it.
    Closed,
    /// It broke.
    Failed(&'a str),
    /// We ended it.
    Dropped,
}

/// One connection's state.
#[derive(Clone, Debug)]
pub(crate) struct Reconnect {
    name: String,
    /// The name is one to listen on, which could not be understood.
    is_passive: bool,
    phase: Phase,
    /// When the phase began.
    since_us: u64,
    backoff: Backoff,
    backoff_ms_max: u64,
    pub(crate) connected_us: Option<u64>,
    pub(crate) disconnected_us: Option<u64>,
    /// How the last session ended.
    pub(crate) last_error: Option<String>,
}

impl Reconnect {
    pub(crate) fn new(name: &str, is_passive: bool, max_ms: Option<u64>, now_us: u64) -> Self {
        let mut new = Self {
            name: name.to_owned(),
            is_passive,
            phase: Phase::Backoff,
            since_us: now_us,
            backoff: Backoff::default(),
            backoff_ms_max: 0,
            connected_us: None,
            disconnected_us: None,
            last_error: None,
        };
        new.set_backoff_max(max_ms);
        new
    }

    pub(crate) fn set_backoff_max(&mut self, max_ms: Option<u64>) {
        let max = max_ms.filter(|ms| *ms > 0).unwrap_or(backoff::MS_MAX);
        self.backoff_ms_max = max.max(backoff::MS_MIN);
        self.backoff.limit(self.backoff_ms_max);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// When to connect, in microseconds.
    pub(crate) fn due_us(&self) -> Option<u64> {
        (self.phase == Phase::Backoff).then(|| self.since_us + self.backoff.us())
    }

    /// How long an attempt may take, in milliseconds.
    pub(crate) fn patience_ms(&self) -> u64 {
        self.backoff.patience_ms()
    }

    /// The shell tries now; what to log.
    pub(crate) fn connecting(&mut self, now_us: u64) -> Option<String> {
        self.enter(Phase::Connecting, now_us);
        let what = if self.is_passive { "listening" } else { "connecting" };
        self.is_talkative().then(|| format!("{}: {what}...", self.name))
    }

    /// It worked; what to log.
    pub(crate) fn connected(&mut self, now_us: u64, session: SessionId) -> String {
        self.enter(Phase::Active(session), now_us);
        self.connected_us = Some(now_us);
        format!("{}: connected", self.name)
    }

    /// It did not, `None` for lack of time; what to log.
    pub(crate) fn failed(&mut self, now_us: u64, error: Option<&str>) -> Vec<String> {
        let mut lines = Vec::new();
        if self.is_talkative() {
            let what = if self.is_passive { "listen" } else { "connection" };
            let how = match error {
                Some(error) => format!("failed ({error})"),
                None => "timed out".to_owned(),
            };
            lines.push(format!("{}: {what} attempt {how}", self.name));
        }
        self.wait_longer(&mut lines);
        self.enter(Phase::Backoff, now_us);
        lines
    }

    /// The session is over; something last came in at `heard_us`. What to log.
    pub(crate) fn disconnected(&mut self, now_us: u64, heard_us: u64, end: End<'_>) -> Vec<String> {
        let (how, error) = match end {
            End::Closed => ("connection closed by peer".to_owned(), Some("End of file")),
            End::Failed(error) => (format!("connection dropped ({error})"), Some(error)),
            End::Dropped => ("connection dropped".to_owned(), None),
        };
        let mut lines = vec![format!("{}: {how}", self.name)];
        self.last_error = error.map(str::to_owned);
        let lasted_us = heard_us.saturating_sub(self.connected_us.unwrap_or(now_us));
        if lasted_us >= self.backoff.us() {
            self.backoff.begin_anew(self.backoff_ms_max);
        } else {
            self.wait_longer(&mut lines);
        }
        self.disconnected_us = Some(now_us);
        self.enter(Phase::Backoff, now_us);
        lines
    }

    fn wait_longer(&mut self, lines: &mut Vec<String>) {
        let attempt = if self.is_passive { Attempt::Listen } else { Attempt::Connect };
        let text = self.backoff.lengthen(self.backoff_ms_max, attempt);
        lines.extend(text.map(|text| format!("{}: {text}", self.name)));
    }

    /// Attempts are worth a line until they have become rare.
    fn is_talkative(&self) -> bool {
        !self.backoff.is_longest(self.backoff_ms_max)
    }

    fn enter(&mut self, phase: Phase, now_us: u64) {
        (self.phase, self.since_us) = (phase, now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(max_ms: Option<u64>, failures: usize) -> (Vec<u64>, Vec<String>) {
        let mut now_us = 5;
        let mut connection = Reconnect::new("tcp:x", false, max_ms, now_us);
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
        assert_eq!(run(None, 6).0, [0, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(run(Some(3000), 5).0, [0, 1000, 2000, 3000, 3000]);
        assert_eq!(run(Some(5000), 6).0, [0, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(run(Some(1), 3).0, [0, 1000, 1000]);
    }

    #[test]
    fn the_log_falls_silent() {
        let (_, lines) = run(None, 8);
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
    fn a_session_that_lasted_forgives_what_was_before() {
        let mut connection = Reconnect::new("tcp:x", false, None, 0);
        for _ in 0..3 {
            connection.connecting(0);
            connection.failed(0, None);
        }
        connection.connected(10_000_000, SessionId(1));
        let lines = connection.disconnected(30_000_000, 20_000_000, End::Closed);
        assert_eq!(lines, ["tcp:x: connection closed by peer"]);
        assert_eq!(connection.due_us(), Some(31_000_000));
        connection.connected(31_000_000, SessionId(2));
        let lines = connection.disconnected(31_000_000, 31_000_000, End::Failed("Broken pipe"));
        assert_eq!(
            lines,
            [
                "tcp:x: connection dropped (Broken pipe)",
                "tcp:x: waiting 2 seconds before reconnect"
            ]
        );
    }
}
