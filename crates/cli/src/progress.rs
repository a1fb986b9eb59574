//! How far a long command is: one line on a terminal, and nothing anywhere else.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Work that is done sooner shows no progress: nobody has wondered yet.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// Time between two drawings of the line.
const INTERVAL: Duration = Duration::from_millis(100);

/// Characters of a full bar.
const BAR_WIDTH: usize = 32;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Rows,
}

/// A line on the terminal about the progress of some work; it is wiped at the end.
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    /// How many there are in all, if that is known.
    total: Option<u64>,
    begun: Instant,
    /// When the line may be drawn; never without a terminal.
    next: Option<Instant>,
    is_drawn: bool,
}

impl Progress {
    /// A line about so many bytes, if their number is known. Nothing is drawn yet.
    pub(crate) fn bytes(what: &'static str, total: Option<u64>) -> Self {
        Self::new(what, Unit::Bytes, total)
    }

    /// A line about so many rows.
    pub(crate) fn rows(what: &'static str, total: u64) -> Self {
        Self::new(what, Unit::Rows, Some(total))
    }

    fn new(what: &'static str, unit: Unit, total: Option<u64>) -> Self {
        let begun = Instant::now();
        let next = std::io::stderr().is_terminal().then(|| begun + SHOWN_AFTER);
        Self { what, unit, total, begun, next, is_drawn: false }
    }

    /// Tells how many are done.
    pub(crate) fn at(&mut self, done: u64) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        self.is_drawn = true;
        draw(&line(self.what, self.unit, done, self.total, self.begun.elapsed()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_drawn {
            draw("");
        }
    }
}

/// The line of something whose end only the server knows: how long it takes already.
pub(crate) struct Waiting {
    /// The end of this channel ends the line.
    stop: Option<Sender<()>>,
    drawer: Option<std::thread::JoinHandle<()>>,
}

impl Waiting {
    /// A line that is drawn when some time has passed.
    pub(crate) fn new(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { stop: None, drawer: None };
        }
        let (stop, stopped) = channel::<()>();
        let drawer = std::thread::spawn(move || {
            let begun = Instant::now();
            let mut is_drawn = false;
            while stopped.recv_timeout(SHOWN_AFTER) == Err(RecvTimeoutError::Timeout) {
                is_drawn = true;
                draw(&format!("{what:<11} {} s", begun.elapsed().as_secs()));
            }
            if is_drawn {
                draw("");
            }
        });
        Self { stop: Some(stop), drawer: Some(drawer) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(drawer) = self.drawer.take() {
            let _ = drawer.join();
        }
    }
}

/// Puts this text in the place of the line. A terminal that went away does not stop the work.
fn draw(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

fn line(what: &str, unit: Unit, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let (divisor, name) = match unit {
        Unit::Bytes => (1e6, "MB"),
        Unit::Rows => (1.0, "rows"),
    };
    let shown = |count: u64| count as f64 / divisor;
    let rate = shown(done) / elapsed.as_secs_f64().max(0.001);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!("{what:<11} {:.0} {name}  {rate:.0} {name}/s", shown(done));
    };
    let done = done.min(total);
    let share = done as f64 / total as f64;
    let full = (share * BAR_WIDTH as f64) as usize;
    let bar = "#".repeat(full) + &"-".repeat(BAR_WIDTH.saturating_sub(full));
    let (percent, done, total) = (share * 100.0, shown(done), shown(total));
    format!(
        "{what:<11} [{bar}] {percent:3.0} %  {done:.0} of {total:.0} {name}  {rate:.0} {name}/s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_bar_fills_from_the_left() {
        let half = line("reading", Unit::Bytes, 50_000_000, Some(100_000_000), SECOND);
        assert_eq!(
            half,
            "reading     [################----------------]  50 %  50 of 100 MB  50 MB/s"
        );
        let full = line("reading", Unit::Bytes, 9, Some(7), SECOND);
        assert!(full.contains(&"#".repeat(BAR_WIDTH)) && full.contains("100 %"), "{full}");
        let rows = line("sending", Unit::Rows, 5, Some(10), SECOND);
        assert!(rows.ends_with(" 50 %  5 of 10 rows  5 rows/s"), "{rows}");
    }

    #[test]
    fn an_unknown_end_has_no_bar() {
        assert_eq!(
            line("backup", Unit::Bytes, 5_000_000, None, SECOND),
            "backup      5 MB  5 MB/s"
        );
        assert_eq!(line("writing", Unit::Bytes, 0, Some(0), SECOND), "writing     0 MB  0 MB/s");
    }
}
