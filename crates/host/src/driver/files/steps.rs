//! Which steps of a file are written, which of them are on the disk, and who has been told.
//!
//! 1. A step is written at once, or refused. One that does not follow the step that was written last
//!    is refused, too: what it stands on is not there.
//! 2. If it is to be on the disk, an fdatasync(2) is begun elsewhere. While one is under way, what is
//!    written waits for the next one, which is for all of it.
//! 3. Steps are answered in their order, so one that has nothing to wait for waits for those before.

use std::collections::VecDeque;

use weir_server::effect::Step;
use weir_server::event::SyncTime;

/// What a step is told that stands on one of which nobody knows more.
const NOTHING_BEFORE: &str = "an earlier step is not in the file";

/// The steps of one file.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The one that was written last.
    last: u64,
    /// Why the last one that failed has failed.
    error: Option<String>,
    /// The steps that are not answered.
    waiting: VecDeque<(u64, State)>,
    /// An fdatasync(2) is under way.
    is_syncing: bool,
}

#[derive(Debug)]
enum State {
    /// Written, and to be on the disk.
    Written,
    /// The fdatasync(2) under way is for it.
    Syncing,
    Answer(Result<SyncTime, String>),
}

impl Steps {
    /// Whether a step may be written: it follows what is there.
    ///
    /// # Errors
    /// The answer to it.
    pub(super) fn check(&self, step: Step) -> Result<(), String> {
        if step.behind.is_none_or(|behind| behind == self.last) {
            return Ok(());
        }
        Err(self.error.clone().unwrap_or_else(|| NOTHING_BEFORE.to_owned()))
    }

    /// A step was written, or not.
    pub(super) fn note(&mut self, number: u64, result: Result<(), String>, sync: bool) {
        let state = match result {
            Ok(()) => {
                self.last = number;
                if sync { State::Written } else { State::Answer(Ok(SyncTime(0))) }
            }
            Err(error) => {
                self.error = Some(error.clone());
                State::Answer(Err(error))
            }
        };
        self.waiting.push_back((number, state));
    }

    /// Whether an fdatasync(2) is to begin now: for all that is written and not on the disk.
    pub(super) fn begin_sync(&mut self) -> bool {
        if self.is_syncing || !self.has_unsynced() {
            return false;
        }
        self.is_syncing = true;
        for (_, state) in &mut self.waiting {
            if let State::Written = state {
                *state = State::Syncing;
            }
        }
        true
    }

    /// What came of the fdatasync(2). Behind one that failed nobody knows what is on the disk, also
    /// of what has been written since.
    pub(super) fn synced(&mut self, result: &Result<SyncTime, String>) {
        self.is_syncing = false;
        for (_, state) in &mut self.waiting {
            let is_meant = match state {
                State::Syncing => true,
                State::Written => result.is_err(),
                State::Answer(_) => false,
            };
            if is_meant {
                *state = State::Answer(result.clone());
            }
        }
    }

    /// Another file has taken this one's place, with all that was written; `is_safe` if that is on
    /// the disk. The fdatasync(2) of the old file means nothing any more.
    pub(super) fn replaced(&mut self, step: Option<Step>, is_safe: bool) {
        self.is_syncing = false;
        self.last = step.map_or(self.last, |step| step.number);
        for (_, state) in &mut self.waiting {
            match state {
                State::Written | State::Syncing if is_safe => {
                    *state = State::Answer(Ok(SyncTime(0)))
                }
                State::Syncing => *state = State::Written,
                State::Written | State::Answer(_) => {}
            }
        }
    }

    /// Whether something is written that is to be on the disk, and may not be.
    pub(super) fn has_unsynced(&self) -> bool {
        self.waiting.iter().any(|(_, state)| !matches!(state, State::Answer(_)))
    }

    /// The next step that can be answered.
    pub(super) fn pop_answer(&mut self) -> Option<(u64, Result<SyncTime, String>)> {
        match self.waiting.pop_front()? {
            (number, State::Answer(result)) => Some((number, result)),
            other => {
                self.waiting.push_front(other);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(steps: &mut Steps) -> Vec<(u64, Result<SyncTime, String>)> {
        std::iter::from_fn(|| steps.pop_answer()).collect()
    }

    #[test]
    fn what_is_written_during_a_sync_shares_the_next_one() {
        let mut steps = Steps::default();
        steps.note(1, Ok(()), true);
        assert!(steps.begin_sync());
        steps.note(2, Ok(()), true);
        steps.note(3, Ok(()), false);
        steps.note(4, Ok(()), true);
        assert!(!steps.begin_sync(), "one at a time");
        assert_eq!(answers(&mut steps), []);
        steps.synced(&Ok(SyncTime(7)));
        assert_eq!(answers(&mut steps), [(1, Ok(SyncTime(7)))]);
        assert!(steps.begin_sync());
        steps.synced(&Ok(SyncTime(8)));
        let expected = [(2, Ok(SyncTime(8))), (3, Ok(SyncTime(0))), (4, Ok(SyncTime(8)))];
        assert_eq!(answers(&mut steps), expected);
        assert!(!steps.begin_sync());
    }

    #[test]
    fn behind_a_step_that_was_not_written_none_is_until_it_is_tried_again() {
        let mut steps = Steps::default();
        let after = |number, behind| Step { number, behind: Some(behind) };
        assert_eq!(steps.check(after(1, 0)), Ok(()));
        steps.note(1, Ok(()), false);
        let full = || Err::<(), _>("No space left on device".to_owned());
        steps.note(2, full(), true);
        assert_eq!(steps.check(after(3, 2)), full());
        steps.note(3, full(), true);
        assert_eq!(steps.check(after(4, 1)), Ok(()));
        assert_eq!(steps.check(Step { number: 4, behind: None }), Ok(()));
        let full = Err("No space left on device".to_owned());
        assert_eq!(answers(&mut steps), [(1, Ok(SyncTime(0))), (2, full.clone()), (3, full)]);
    }

    #[test]
    fn behind_a_failed_sync_nothing_is_safe() {
        let mut steps = Steps::default();
        steps.note(1, Ok(()), true);
        assert!(steps.begin_sync());
        steps.note(2, Ok(()), true);
        let bad = Err("Input/output error".to_owned());
        steps.synced(&bad);
        assert_eq!(answers(&mut steps), [(1, bad.clone()), (2, bad)]);
        assert!(!steps.begin_sync());
    }

    #[test]
    fn a_copy_that_takes_the_place_has_everything() {
        let mut steps = Steps::default();
        steps.note(1, Ok(()), true);
        assert!(steps.begin_sync());
        steps.note(2, Ok(()), true);
        // Without the directory on the disk, the old file may come back.
        steps.replaced(None, false);
        assert_eq!(answers(&mut steps), []);
        assert!(steps.begin_sync());
        let step = Step { number: 9, behind: None };
        steps.replaced(Some(step), true);
        assert_eq!(answers(&mut steps), [(1, Ok(SyncTime(0))), (2, Ok(SyncTime(0)))]);
        assert_eq!(steps.check(Step { number: 10, behind: Some(9) }), Ok(()));
    }
}
