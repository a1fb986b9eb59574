//! How far a long command is: one line on a terminal, and nothing anywhere else.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Nothing is shown of commands that are done sooner.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// Between two drawings of the line.
const INTERVAL: Duration = Duration::from_millis(100);

/// Columns of the bar.
const BAR_WIDTH: usize = 24;

/// The line.
pub(super) struct Progress {
    what: &'static str,
    /// Bytes in all, if they are known.
    total: Option<u64>,
    begun: Instant,
    drawn: Option<Instant>,
    on_terminal: bool,
}

impl Progress {
    /// Nothing is drawn yet.
    pub(super) fn new(what: &'static str, total: Option<u64>) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        Self { what, total, begun: Instant::now(), drawn: None, on_terminal }
    }

    /// How long something takes is not known.
    pub(super) fn waiting(what: &'static str) -> Self {
        Self::new(what, None)
    }

    /// So many bytes are done.
    pub(super) fn at(&mut self, done: u64) {
        if !self.on_terminal || self.begun.elapsed() < SHOWN_AFTER {
            return;
        }
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = line(self.what, done, self.total, self.begun.elapsed());
        // Nobody is harmed by a line that is missing.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let rate = megabytes(done) / elapsed.as_secs_f64().max(0.001);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!("{what}  {:.0} MB  {rate:.0} MB/s", megabytes(done));
    };
    let share = (done as f64 / total as f64).min(1.0);
    let full = (share * BAR_WIDTH as f64) as usize;
    let bar = "#".repeat(full) + &"-".repeat(BAR_WIDTH - full.min(BAR_WIDTH));
    format!("{what}  [{bar}] {:3.0} %  {rate:.0} MB/s", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let second = Duration::from_secs(1);
        assert_eq!(line("restore", 5_000_000, None, second), "restore  5 MB  5 MB/s");
        let half = line("restore", 50_000_000, Some(100_000_000), second);
        assert_eq!(half, "restore  [############------------]  50 %  50 MB/s");
        assert!(line("restore", 9, Some(3), second).contains("100 %"));
    }
}
