//! How much a leader is asked for at a time.
//!
//! What a leader has been asked waits in front of its connection, which ends when too much does, and in its memory
//! until it has run.
//!
//! 1. Requests go in the order in which they have come, as many as fit into [`ASKED_BYTES_MAX`] with those that it has
//!    not answered ([`Way::InOrder`]).
//! 2. When the next one does not fit, who has nothing with the leader does not wait for those who have much there: the
//!    first request of each session goes all the same if it is short ([`Way::Past`]).
//! 3. Those count by themselves, so that they do not keep what is long from having its turn.
//! 4. Nobody knows how long answers will be. A connection that has ended with some of them missing may have ended since
//!    they were too many: behind that the leader is asked for one at a time on either way, and for twice as many with
//!    each answer; but for so many only as would have answers of [`ANSWERS_BYTES_MAX`] if all were as long as the longest one
//!    lately ([`Pace`]).

/// The leader is asked for no more than this, or for one request that is longer, before it has answered, in bytes.
pub(crate) const ASKED_BYTES_MAX: usize = 16 << 20;

/// As much more is asked for by sessions of which it has nothing.
pub(crate) const PAST_BYTES_MAX: usize = 64 << 20;

/// Each of those requests is shorter than this, in bytes.
pub(crate) const PAST_REQUEST_BYTES_MAX: usize = 1 << 20;

/// The leader is asked for any number of requests once it has answered so often without a loss that twice as many would
/// be more than this.
const PACED_MAX: usize = 1024;

/// About as many bytes of answers may be on their way at once to what is asked on either way.
const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// The longest answer is forgotten by this part with each one that is shorter.
const FORGOTTEN: usize = 64;

/// How many requests the leader is asked for at a time on either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// By what was lost; `None` is any number.
    most: Option<usize>,
    /// Bytes of the longest answer lately.
    longest: usize,
}

impl Pace {
    /// Answers may have been lost.
    pub(crate) fn slow_down(&mut self) {
        self.most = Some(1);
    }

    /// An answer of so many bytes has come.
    pub(crate) fn note_answer(&mut self, bytes: usize) {
        self.most = self.most.map(|most| most * 2).filter(|most| *most <= PACED_MAX);
        self.longest = bytes.max(self.longest - self.longest.div_ceil(FORGOTTEN));
    }

    /// So many may be with the leader at once, or one.
    fn most(self) -> usize {
        let by_length = ANSWERS_BYTES_MAX / self.longest.max(1);
        self.most.unwrap_or(usize::MAX).min(by_length)
    }
}

/// How a request goes to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// After all that came before it.
    InOrder,
    /// Past what is too long to go now.
    Past,
}

/// What the leader has been asked on one way and has not answered.
#[derive(Debug, Default)]
struct Asked {
    requests: usize,
    bytes: usize,
}

/// What the leader has been asked and has not answered.
#[derive(Debug)]
pub(crate) struct Window {
    pace: Pace,
    backlog_bytes_max: usize,
    in_order: Asked,
    past: Asked,
}

impl Window {
    /// Nothing has been asked. So many bytes may wait in front of the connection.
    pub(crate) fn new(pace: Pace, backlog_bytes_max: usize) -> Self {
        let (in_order, past) = Default::default();
        Self { pace, backlog_bytes_max, in_order, past }
    }

    /// A request of so many bytes is with the leader.
    pub(crate) fn note(&mut self, way: Way, bytes: usize) {
        let asked = match way {
            Way::InOrder => &mut self.in_order,
            Way::Past => &mut self.past,
        };
        asked.requests += 1;
        asked.bytes += bytes;
    }

    /// Whether the next request may go, which is noted then.
    pub(crate) fn admits(&mut self, way: Way, bytes: usize) -> bool {
        let (asked, bytes_max) = match way {
            Way::InOrder => (&self.in_order, ASKED_BYTES_MAX),
            Way::Past if bytes >= PAST_REQUEST_BYTES_MAX => return false,
            Way::Past => (&self.past, PAST_BYTES_MAX),
        };
        // Both may wait there at once, and beside them what members say to each other.
        let bytes_max = bytes_max.min(self.backlog_bytes_max / 4);
        let is_few = asked.requests < self.pace.most();
        let fits = asked.requests == 0 || asked.bytes + bytes <= bytes_max && is_few;
        if fits {
            self.note(way, bytes);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhurt() -> Window {
        Window::new(Pace::default(), usize::MAX)
    }

    #[test]
    fn the_leader_is_asked_for_so_much_at_a_time_and_for_anything_if_it_has_answered() {
        let mut window = unhurt();
        let half = ASKED_BYTES_MAX / 2;
        assert!(window.admits(Way::InOrder, half));
        assert!(window.admits(Way::InOrder, half));
        assert!(!window.admits(Way::InOrder, 1));
        assert!(unhurt().admits(Way::InOrder, 10 * ASKED_BYTES_MAX));
    }

    #[test]
    fn less_is_asked_for_where_less_may_wait() {
        let mut window = Window::new(Pace::default(), 400);
        for way in [Way::InOrder, Way::Past] {
            assert!(window.admits(way, 99));
            assert!(window.admits(way, 1));
            assert!(!window.admits(way, 1));
        }
    }

    #[test]
    fn what_goes_past_what_is_long_does_not_keep_it_from_going() {
        let mut window = unhurt();
        window.note(Way::Past, PAST_BYTES_MAX - 1);
        assert!(!window.admits(Way::Past, 2), "that is too much");
        assert!(window.admits(Way::Past, 1));
        assert!(window.admits(Way::InOrder, 10 * ASKED_BYTES_MAX));
        assert!(!unhurt().admits(Way::Past, PAST_REQUEST_BYTES_MAX), "too long");
    }

    fn most(pace: Pace) -> [usize; 2] {
        let mut window = Window::new(pace, usize::MAX);
        [Way::InOrder, Way::Past].map(|way| (0..9999).take_while(|_| window.admits(way, 1)).count())
    }

    #[test]
    fn behind_a_loss_the_leader_is_asked_for_one_at_a_time_and_then_for_twice_as_many() {
        let mut pace = Pace::default();
        assert_eq!(most(pace), [9999; 2]);
        pace.slow_down();
        assert_eq!(most(pace), [1; 2]);
        pace.note_answer(10);
        assert_eq!(most(pace), [2; 2]);
        (0..9).for_each(|_| pace.note_answer(10));
        assert_eq!(most(pace), [1024; 2]);
        pace.note_answer(10);
        assert_eq!(most(pace), [9999; 2]);
    }

    #[test]
    fn where_answers_are_long_the_leader_is_asked_for_few() {
        let mut pace = Pace::default();
        pace.note_answer(2 * ANSWERS_BYTES_MAX);
        assert_eq!(most(pace), [1; 2]);
        pace.note_answer(ANSWERS_BYTES_MAX / 4);
        assert_eq!(most(pace), [1; 2], "the next one may be as long as the one before");
        (0..9999).for_each(|_| pace.note_answer(ANSWERS_BYTES_MAX / 4));
        assert_eq!(most(pace), [4; 2]);
        (0..9999).for_each(|_| pace.note_answer(0));
        assert_eq!(most(pace), [9999; 2]);
    }
}
