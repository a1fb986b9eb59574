//! How long to wait before a connection is tried again, and what to say of it.
//!
//! At first not at all, then 1 s, and twice as long after each failure up to the longest pause;
//! beyond that nothing more is logged. Times and texts are the reference's.

/// First pause, and the shortest that can be configured, in milliseconds.
pub const MS_MIN: u64 = 1000;

/// Longest pause unless configured, in milliseconds.
pub const MS_MAX: u64 = 8000;

/// What is tried again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// To connect.
    Connect,
    /// To listen for one who connects.
    Listen,
}

/// The pause of one connection. The longest pause, in ms, may change at any time: it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    ms: u64,
}

impl Backoff {
    /// The pause, in microseconds.
    pub fn us(self) -> u64 {
        self.ms * 1000
    }

    /// How long an attempt may take, in milliseconds.
    pub fn patience_ms(self) -> u64 {
        self.ms.max(MS_MIN)
    }

    /// Whether the pause is the longest, so that attempts are not worth a line.
    pub fn is_longest(self, max_ms: u64) -> bool {
        self.ms >= max_ms
    }

    /// Keeps the pause within a new longest one.
    pub fn limit(&mut self, max_ms: u64) {
        self.ms = self.ms.min(max_ms);
    }

    /// The first pause again, after a connection that lasted.
    pub fn begin_anew(&mut self, max_ms: u64) {
        self.ms = MS_MIN.min(max_ms);
    }

    /// A longer pause, after a failure; what to log.
    pub fn lengthen(&mut self, max_ms: u64, attempt: Attempt) -> Option<String> {
        if self.ms < MS_MIN {
            self.begin_anew(max_ms);
            return None;
        }
        if self.ms < max_ms / 2 {
            self.ms *= 2;
            let what = match attempt {
                Attempt::Connect => "reconnect",
                Attempt::Listen => "trying to listen again",
            };
            return Some(format!("waiting {} seconds before {what}", seconds(self.ms)));
        }
        let what = match attempt {
            Attempt::Connect => "reconnect",
            Attempt::Listen => "try to listen",
        };
        let was_longest = self.is_longest(max_ms);
        self.ms = max_ms;
        (!was_longest).then(|| {
            format!("continuing to {what} in the background but suppressing further logging")
        })
    }
}

/// Milliseconds as seconds in at most three digits (`%.3g`).
pub(crate) fn seconds(ms: u64) -> String {
    // Nobody waits for longer than 49 days.
    let seconds = f64::from(u32::try_from(ms).unwrap_or(u32::MAX)) / 1000.0;
    let text = format!("{seconds:.2e}");
    let (mantissa, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format has an exponent");
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    match usize::try_from(2 - exponent) {
        Ok(0) => format!("{seconds:.0}"),
        Ok(decimals) => trimmed(&format!("{seconds:.decimals$}")),
        Err(_) => format!("{}e+{exponent:02}", trimmed(mantissa)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_three_digits_at_most() {
        for (ms, text) in [
            (2000, "2"),
            (2500, "2.5"),
            (1234, "1.23"),
            (16_000, "16"),
            (65_536, "65.5"),
            (0, "0"),
            (500, "0.5"),
            (5005, "5"),
            (2345, "2.35"),
            (9996, "10"),
            (100_400, "100"),
            (999_400, "999"),
            (999_600, "1e+03"),
            (1_024_000, "1.02e+03"),
        ] {
            assert_eq!(seconds(ms), text);
        }
    }
}
