//! When a member's file is to be written anew.

use weir_log::compact;

use crate::storage::REWRITE_PAUSE_US;

/// From a copy that could not be written, or not take the file's place, to the next one that nobody asks
/// for, in microseconds: while one is written where it does not fit, the log finds no room either.
const AGAIN_US: u64 = compact::PAUSE_MS_MIN * 1000;

/// How a member's file has grown since it was written anew, and what else is a reason to do that.
#[derive(Debug)]
pub(crate) struct Growth {
    records: u64,
    size: u64,
    size_before: u64,
    since_us: u64,
    /// The file has what not every version of the reference reads.
    is_bare: bool,
    /// The file had such things when the copy was begun that is being written.
    was_bare: bool,
    /// fdatasync(2) has failed: the file takes nothing until another one is in its place.
    is_suspect: bool,
    /// Something in the file could not be read back.
    is_unread: bool,
    /// A copy has failed, or has not helped: none is due before this, monotonic.
    again_us: u64,
}

impl Growth {
    /// A file that has just been written anew, or opened.
    pub(crate) fn new(size: u64, now_us: u64) -> Self {
        Self {
            records: 0,
            size,
            size_before: size,
            since_us: now_us,
            is_bare: false,
            was_bare: false,
            is_suspect: false,
            is_unread: false,
            again_us: 0,
        }
    }

    /// Another file is in its place. What was to be written anew since that was begun still is. Where nothing can be
    /// read, that cannot either.
    pub(crate) fn end_copy(&mut self, size: u64, now_us: u64) {
        let again_us = if self.is_unread { now_us + AGAIN_US } else { 0 };
        *self = Self { is_bare: self.is_bare, again_us, ..Self::new(size, now_us) };
    }

    /// A step is appended.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.records += 1;
        self.size += bytes as u64;
    }

    /// The file is to be written anew soon, however little it has grown.
    pub(crate) fn note_bare(&mut self) {
        self.is_bare = true;
    }

    /// What of the file is on the disk is not known (`docs/decisions/006`).
    pub(crate) fn note_suspect(&mut self) {
        (self.is_suspect, self.again_us) = (true, 0);
    }

    /// Something in the file could not be read back. The rows are in memory.
    pub(crate) fn note_unread(&mut self) {
        self.is_unread = true;
    }

    /// Whether the file takes nothing until another one is in its place.
    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Whether the file must be written anew whatever is in it.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_suspect || self.is_unread
    }

    /// The file is being written anew.
    pub(crate) fn begin_copy(&mut self) {
        self.was_bare = std::mem::take(&mut self.is_bare);
    }

    /// The copy is given up.
    pub(crate) fn drop_copy(&mut self) {
        self.is_bare |= std::mem::take(&mut self.was_bare);
    }

    /// The copy could not be written, or could not take the file's place.
    pub(crate) fn fail_copy(&mut self, now_us: u64) {
        self.drop_copy();
        self.again_us = now_us + if self.is_suspect { REWRITE_PAUSE_US } else { AGAIN_US };
    }

    /// Whether the file is to be written anew now.
    pub(crate) fn is_due(&self, now_us: u64, jitter_ms: u64) -> bool {
        let since_ms = now_us.saturating_sub(self.since_us) / 1000;
        let is_wanted = self.is_bare
            || self.is_broken()
            || compact::is_due(self.records, self.size, self.size_before, since_ms, jitter_ms);
        is_wanted && now_us >= self.again_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_due(growth: &Growth, now_us: u64) -> bool {
        growth.is_due(now_us, 0)
    }

    /// A member that starts has its file written anew for an entry that takes effect only meanwhile.
    #[test]
    fn what_comes_while_the_file_is_written_anew_makes_it_be_written_once_more() {
        let mut growth = Growth::new(100, 0);
        assert!(!is_due(&growth, 1_000_000));
        growth.note_bare();
        assert!(is_due(&growth, 1_000_000));
        growth.begin_copy();
        growth.note_bare();
        growth.end_copy(90, 500_000);
        assert!(is_due(&growth, 1_000_000));
        growth.begin_copy();
        growth.end_copy(80, 600_000);
        assert!(!is_due(&growth, 1_000_000));
    }

    /// Else a disk that is too full for it would be full of attempts.
    #[test]
    fn a_copy_that_fails_is_tried_again_after_a_pause() {
        let mut growth = Growth::new(100, 0);
        growth.note_bare();
        growth.begin_copy();
        growth.fail_copy(1_000_000);
        assert!(!is_due(&growth, 1_000_000 + AGAIN_US - 1));
        assert!(is_due(&growth, 1_000_000 + AGAIN_US));
        growth.begin_copy();
        growth.drop_copy();
        assert!(is_due(&growth, 1_000_000 + AGAIN_US), "what made way need not wait");
    }

    /// A leader whose file cannot be read sends nothing to who lacks what is in it.
    #[test]
    fn a_file_that_cannot_be_read_is_written_anew_however_little_it_has_grown() {
        let mut growth = Growth::new(100, 0);
        growth.note_unread();
        assert!(is_due(&growth, 1_000_000) && growth.is_broken() && !growth.is_suspect());
        growth.begin_copy();
        growth.fail_copy(1_000_000);
        assert!(!is_due(&growth, 1_000_000) && is_due(&growth, 1_000_000 + AGAIN_US));
        growth.begin_copy();
        growth.end_copy(80, 9_000_000);
        assert!(!is_due(&growth, 9_000_000) && !growth.is_broken());
        growth.note_unread();
        assert!(!is_due(&growth, 9_000_000) && is_due(&growth, 9_000_000 + AGAIN_US));
        growth.note_suspect();
        assert!(is_due(&growth, 9_000_000));
    }

    #[test]
    fn a_suspect_file_is_written_anew_at_once_and_as_often_as_it_takes() {
        let mut growth = Growth::new(100, 0);
        growth.fail_copy(1_000_000);
        growth.note_suspect();
        assert!(is_due(&growth, 1_000_000));
        growth.begin_copy();
        growth.fail_copy(2_000_000);
        assert!(!is_due(&growth, 2_000_000 + REWRITE_PAUSE_US - 1));
        assert!(is_due(&growth, 2_000_000 + REWRITE_PAUSE_US));
        growth.begin_copy();
        growth.end_copy(80, 9_000_000);
        assert!(!growth.is_suspect() && !is_due(&growth, 9_000_000));
    }
}
