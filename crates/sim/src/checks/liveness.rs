//! When faults have ended, somebody leads and writes are acknowledged within five election timers, and
//! whoever asks is answered within as much; from then on nobody is sent away. And a server never looks at
//! itself all the time.

use super::Verdict;

/// Election timers that all that takes at most.
const TIMERS_MAX: u64 = 5;

/// A relay gives an address of its list so long before it tries the next one, in microseconds.
const TRY_US: u64 = 1_000_000;

/// A server looks at itself less often than so many times in so many microseconds, however busy it is. One whose steps are
/// short may have one entry of a long log take effect in each.
const LOOKS_MAX: u32 = 10_000;
const SHORT_LOOKS_MAX: u32 = 100_000;
const LOOKS_US: u64 = 100_000;

/// How often a server looked at itself though nothing had happened to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    since_us: u64,
    count: u32,
}

impl Looks {
    /// The server's own time has come.
    pub(crate) fn look(&mut self, now_us: u64, n: usize, has_short_steps: bool) -> Verdict {
        if now_us >= self.since_us + LOOKS_US {
            *self = Self { since_us: now_us, count: 0 };
        }
        self.count += 1;
        let most = if has_short_steps { SHORT_LOOKS_MAX } else { LOOKS_MAX };
        match self.count < most {
            true => Ok(()),
            false => Err(format!("server {n} looks at itself all the time")),
        }
    }
}

/// When faults ended, and what happened then.
#[derive(Default)]
pub(crate) struct Liveness {
    timer_us: u64,
    /// Faults have ended at this time.
    calm_us: Option<u64>,
    /// A row that was asked for after that was acknowledged.
    has_written: bool,
}

impl Liveness {
    /// Faults end at this time.
    pub(crate) fn calm(&mut self, now_us: u64, timer_us: u64) {
        *self = Self { timer_us, calm_us: Some(now_us), has_written: false };
    }

    /// What serves has been taken away: nothing is to be expected until it is calm again.
    pub(crate) fn disturb(&mut self) {
        self.calm_us = None;
    }

    /// A row is acknowledged that was asked for at this time.
    pub(crate) fn wrote(&mut self, asked_us: u64) {
        self.has_written |= self.calm_us.is_some_and(|calm_us| asked_us >= calm_us);
    }

    /// Somebody looks at the clock, and has perhaps asked for something that is not answered: at a server
    /// that tries so many others one after the other, each of which it gives a second. Whoever writes does so at servers
    /// one of which tries `writers_try` others, and none fewer.
    pub(crate) fn looked(
        &self,
        now_us: u64,
        who: &str,
        asked_us: Option<u64>,
        (tries, writers_try): (usize, usize),
    ) -> Verdict {
        let Some(calm_us) = self.calm_us else { return Ok(()) };
        let with = |tries: usize| TIMERS_MAX * self.timer_us + tries as u64 * TRY_US;
        let most_us = with(tries);
        if !self.has_written && now_us > calm_us + with(tries.max(writers_try)) {
            return Err(format!("nothing was written for {TIMERS_MAX} election timers"));
        }
        match asked_us.map(|asked_us| asked_us.max(calm_us)) {
            Some(since_us) if now_us > since_us + most_us => {
                Err(format!("{who} was not answered for {TIMERS_MAX} election timers"))
            }
            _ => Ok(()),
        }
    }

    /// Somebody is told that there is nothing to ask, or that nobody knows what has come of something, or is
    /// disconnected: by a server that tries so many others.
    pub(crate) fn sent_away(&self, now_us: u64, who: &str, tries: usize) -> Verdict {
        let most_us = TIMERS_MAX * self.timer_us + tries as u64 * TRY_US;
        match self.calm_us.is_some_and(|calm_us| now_us > calm_us + most_us) {
            true => Err(format!("{who}, {TIMERS_MAX} election timers behind the faults")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_five_timers_all_goes_on() {
        let mut liveness = Liveness::default();
        assert_eq!(liveness.looked(999, "a", Some(1), (0, 0)), Ok(()), "there are faults");
        liveness.calm(1000, 10);
        liveness.wrote(999);
        assert_eq!(liveness.looked(1050, "a", Some(1), (0, 0)), Ok(()));
        assert!(liveness.looked(1051, "a", None, (0, 0)).is_err(), "nothing was written");
        assert_eq!(liveness.looked(1051, "a", None, (0, 1)), Ok(()), "all who write are at relays");
        liveness.wrote(1001);
        assert_eq!(liveness.looked(1051, "a", None, (0, 0)), Ok(()));
        assert!(liveness.looked(1051, "a", Some(1), (0, 0)).is_err(), "no answer");
        assert_eq!(
            liveness.looked(1051, "a", Some(1), (1, 0)),
            Ok(()),
            "there is another one to try"
        );
        assert_eq!(liveness.looked(1051, "a", Some(1001), (0, 0)), Ok(()));
    }

    #[test]
    fn behind_five_timers_nobody_is_sent_away() {
        let mut liveness = Liveness::default();
        assert_eq!(liveness.sent_away(9000, "a", 0), Ok(()), "there are faults");
        liveness.calm(1000, 10);
        assert_eq!(liveness.sent_away(1050, "a", 0), Ok(()));
        assert!(liveness.sent_away(1051, "a", 0).is_err());
        assert_eq!(liveness.sent_away(1051, "a", 1), Ok(()), "there is another one to try");
        liveness.disturb();
        assert_eq!(liveness.sent_away(9000, "a", 0), Ok(()), "what serves is away");
    }

    #[test]
    fn a_server_sleeps_now_and_then() {
        let mut looks = Looks::default();
        assert!((0..1000).all(|ms| looks.look(ms * 1000, 1, false).is_ok()));
        assert!((0..20_000).any(|us| looks.look(us, 1, false).is_err()));
        let mut short = Looks::default();
        assert!((0..20_000).all(|us| short.look(us, 1, true).is_ok()));
        assert!((20_000..100_000).any(|us| short.look(us, 1, true).is_err()));
    }
}
