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
//!
//! How much is answered at a time is for the leader (`clusters::answers`).

/// The leader is asked for no more than this, or for one request that is longer, before it has answered, in bytes.
pub(crate) const ASKED_BYTES_MAX: usize = 16 << 20;

/// As much more is asked for by sessions of which it has nothing.
pub(crate) const PAST_BYTES_MAX: usize = 64 << 20;

/// Each of those requests is shorter than this, in bytes.
pub(crate) const PAST_REQUEST_BYTES_MAX: usize = 1 << 20;

/// How a request goes to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// After all that came before it.
    InOrder,
    /// Past what is too long to go now.
    Past,
}

/// What the leader has been asked and has not answered.
#[derive(Debug)]
pub(crate) struct Window {
    backlog_bytes_max: usize,
    in_order: Asked,
    past: Asked,
}

/// On one way.
#[derive(Debug, Default)]
struct Asked {
    is_any: bool,
    bytes: usize,
}

impl Window {
    /// Nothing has been asked. So many bytes may wait in front of the connection.
    pub(crate) fn new(backlog_bytes_max: usize) -> Self {
        let (in_order, past) = Default::default();
        Self { backlog_bytes_max, in_order, past }
    }

    /// A request of so many bytes is with the leader.
    pub(crate) fn note(&mut self, way: Way, bytes: usize) {
        let asked = match way {
            Way::InOrder => &mut self.in_order,
            Way::Past => &mut self.past,
        };
        asked.is_any = true;
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
        let fits = !asked.is_any || asked.bytes + bytes <= bytes_max;
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
        Window::new(usize::MAX)
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
        let mut window = Window::new(400);
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
}
