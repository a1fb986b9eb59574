//! A bar on a terminal while something long goes on.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// What takes less is done before anybody wonders.
const DELAY: Duration = Duration::from_millis(500);
/// Between two pictures.
const INTERVAL: Duration = Duration::from_millis(100);
/// Characters of a full bar.
const WIDTH: usize = 40;

/// One bar; the line is wiped when it goes.
pub(super) struct Progress {
    what: &'static str,
    is_shown: bool,
    next: Option<Instant>,
}

impl Progress {
    /// Nothing is shown unless standard error is a terminal.
    pub(super) fn new(what: &'static str) -> Self {
        let next = std::io::stderr().is_terminal().then(|| Instant::now() + DELAY);
        Self { what, is_shown: false, next }
    }

    /// `done` of `total` is done.
    pub(super) fn show(&mut self, done: u64, total: u64) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + INTERVAL);
        self.is_shown = true;
        // A terminal that went away does not stop the work.
        let _ = write!(std::io::stderr(), "\r{}", line(self.what, done, total));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, total: u64) -> String {
    let (done, total) = (done.min(total), total.max(1));
    let full = (done as u128 * WIDTH as u128 / u128::from(total)) as usize;
    let percent = done as u128 * 100 / u128::from(total);
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{what:<11}[{}{}] {percent:3} %  {} of {} MiB",
        "#".repeat(full),
        " ".repeat(WIDTH.saturating_sub(full)),
        mib(done),
        mib(total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_the_left() {
        let half = line("reading", 50 << 20, 100 << 20);
        assert!(half.starts_with("reading    [####################    "), "{half}");
        assert!(half.ends_with("]  50 %  50 of 100 MiB"), "{half}");
        let full = line("reading", 7, 7);
        assert!(full.contains(&"#".repeat(WIDTH)), "{full}");
        assert!(line("writing", 0, 0).contains("   0 %"));
    }
}
