//! Copies of the member's own file, which begin with a snapshot of its tables: how the log gets shorter.
//!
//! 1. [`Member::begin_copy`]: a helper writes the snapshot. What comes behind it stays in memory, up to
//!    [`BEHIND_BYTES_MAX`]: beyond that the copy is given up.
//! 2. [`Event::CopyWritten`](crate::Event::CopyWritten): while much has come since, a helper appends a part
//!    of it and brings that to the disk ([`Effect::ExtendCopy`]), so that little is left for the last step.
//! 3. [`Effect::FinishCopy`]: the rest is appended, and the copy takes the file's place.

use std::sync::Arc;

use super::Member;
use crate::consensus::Mark;
use crate::effect::Effect;
use crate::entry::Entry;
use crate::file::{self, Onto, Texts};

/// Most bytes of entries that are kept in memory for a copy while it is written.
const BEHIND_BYTES_MAX: usize = 256 << 20;

/// Bytes of entries that a helper appends at once, but for one that is longer.
const PART_BYTES: usize = 4 << 20;

/// A copy with as many bytes behind its snapshot as that has, and as this, is finished even if much more
/// has come: the file would not get shorter.
const PARTS_BYTES_MIN: u64 = 64 << 20;

/// At most one copy of the file.
#[derive(Debug, Default)]
pub(super) enum Copies {
    #[default]
    None,
    /// The snapshot of a copy, or a part behind that, is being written.
    Writing(Copying),
    /// The copy is about to take the file's place.
    Finishing(Begins),
}

/// What a copy begins with.
#[derive(Debug)]
pub(super) struct Begins {
    mark: Mark,
    /// Bytes of the snapshot's data.
    len: u64,
}

#[derive(Debug)]
pub(super) struct Copying {
    /// The last entry in the snapshot.
    first: u64,
    /// Once the snapshot is written.
    begins: Option<Begins>,
    /// The last entry that the copy has, or that is being appended.
    upto: u64,
    /// Bytes of the entries that were appended last.
    last_part: usize,
    /// Bytes of records behind the snapshot, and where texts are in them.
    len: u64,
    texts: Texts,
}

impl Copies {
    pub(super) fn is_finishing(&self) -> bool {
        matches!(self, Self::Finishing(_))
    }

    /// Texts behind this entry must stay in memory: a copy of the file has to end with them, and
    /// until it is in the file's place, nobody knows where they are.
    pub(super) fn keeps_behind(&self) -> u64 {
        match self {
            Self::None => u64::MAX,
            Self::Writing(copying) => copying.first,
            Self::Finishing(begins) => begins.mark.last.index,
        }
    }

    /// The copy that is being written is of no use any more.
    pub(super) fn give_up(&mut self) {
        self.take_writing();
    }

    /// The copy that is being written: a snapshot of another member may have taken its place.
    fn take_writing(&mut self) -> Option<Copying> {
        match std::mem::take(self) {
            Self::Writing(copying) => Some(copying),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Something could not be written; perhaps it was the end of a copy.
    pub(super) fn note_failure(&mut self, is_finishing: bool) {
        if self.is_finishing() && !is_finishing {
            *self = Self::None;
        }
    }
}

impl Member {
    /// What has taken effect by now, for a copy of the file that begins with a snapshot of the
    /// tables as they are. It is answered with [`Event::CopyWritten`](crate::Event::CopyWritten), or
    /// [`Member::copy_ended`].
    pub fn begin_copy(&mut self) -> Mark {
        assert!(!self.snapshots.copies.is_finishing(), "there is one copy at a time");
        let index = self.node.applied();
        let copying = Copying {
            first: index,
            begins: None,
            upto: index,
            last_part: usize::MAX,
            len: 0,
            texts: Texts::new(),
        };
        self.snapshots.copies = Copies::Writing(copying);
        Mark {
            last: self.node.position(index).expect("the log has what took effect last"),
            eid: self.applied_eid,
            servers: Arc::clone(&self.servers),
            election_timer: self.election_timer,
        }
    }

    /// The copy that was begun will not be written.
    pub fn copy_ended(&mut self) {
        self.snapshots.copies.give_up();
    }

    /// A copy is given up for which more would have to be kept in memory than is.
    pub(super) fn limit_copy(&mut self) {
        let is_writing = matches!(self.snapshots.copies, Copies::Writing(_));
        // What the file does not take stays in any case, and nothing else than a copy may end that.
        let is_kept_for_copy = is_writing && !self.steps.is_failing_for(0, self.now_us);
        if is_kept_for_copy && self.node.entry_bytes() > BEHIND_BYTES_MAX {
            self.snapshots.copies.give_up();
            let why = format!("more than {BEHIND_BYTES_MAX} bytes were committed meanwhile");
            self.effects.push_back(Effect::FailCopy { why });
        }
    }

    /// A copy of the file lacks nothing but what is to stand behind its snapshot.
    pub(super) fn copy_written(&mut self, mark: Mark, len: u64) {
        if let Some(mut copying) = self.snapshots.copies.take_writing() {
            copying.begins = Some(Begins { mark, len });
            self.extend_copy(copying);
        }
    }

    /// A copy has a part of what is to stand behind its snapshot.
    pub(super) fn copy_extended(&mut self) {
        if let Some(copying) = self.snapshots.copies.take_writing() {
            self.extend_copy(copying);
        }
    }

    /// Has a helper append a part, or finishes the copy.
    fn extend_copy(&mut self, mut copying: Copying) {
        let begins = copying.begins.as_ref().expect("the snapshot is written");
        // One that says no more is written where the file takes nothing more, or cannot be read.
        let is_of_use = begins.mark.last.index >= self.node.mark().last.index;
        // Nor is one whose file tells nothing of its removal any more.
        if !is_of_use || self.is_gone() || self.removals.is_departing() {
            return self.effects.push_back(Effect::DropCopy);
        }
        let (part, bytes) = self.part_behind(copying.upto);
        let gets_on = match bytes >= PART_BYTES {
            true => copying.len < begins.len.max(PARTS_BYTES_MIN),
            // The whole rest: where it does not get less, it never ends.
            false => bytes <= copying.last_part / 2,
        };
        if bytes <= self.texts.bytes_max() || !gets_on {
            return self.finish_copy(copying);
        }
        let mut records = Vec::new();
        let texts = file::write_step(Onto::Copy(copying.len), None, &part, None, &mut records);
        copying.take(texts, records.len());
        copying.last_part = bytes;
        copying.upto = part.last().expect("it is not empty").at.index;
        self.snapshots.copies = Copies::Writing(copying);
        self.effects.push_back(Effect::ExtendCopy { records });
    }

    /// What a helper can append behind this entry, and bytes of it: of those that have taken effect, for
    /// no leader takes these back.
    fn part_behind(&self, upto: u64) -> (Vec<Entry>, usize) {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for index in upto + 1..=self.node.applied() {
            let entry = self.node.entry(index).expect("what a copy lacks stays in memory");
            bytes += entry.content.len();
            part.push(entry);
            if bytes >= PART_BYTES {
                break;
            }
        }
        (part, bytes)
    }

    /// The copy gets everything that the log has, even what is still on its way to the old file.
    fn finish_copy(&mut self, mut copying: Copying) {
        let begins = copying.begins.take().expect("the snapshot is written");
        let entry = |index| self.node.entry(index).expect("what a copy lacks stays in memory");
        let entries: Vec<Entry> = (copying.upto + 1..=self.node.last()).map(entry).collect();
        let commit = Some(self.node.commit()).filter(|commit| *commit > begins.mark.last.index);
        let (len, mut tail) = (copying.len, Vec::new());
        let vote = (self.node.term(), self.node.vote());
        let texts = file::write_step(Onto::Copy(len), Some(vote), &entries, commit, &mut tail);
        self.write_joins_at(len, &mut tail);
        copying.take(texts, tail.len());
        let effect = self.steps.finish(len, tail, copying.texts);
        self.snapshots.copies = Copies::Finishing(begins);
        self.cut_outgoing();
        self.gather();
        self.effects.push_back(effect);
    }

    /// A copy is in the file's place.
    pub(super) fn finished(&mut self) {
        let copies = std::mem::take(&mut self.snapshots.copies);
        let Copies::Finishing(Begins { mark, len }) = copies else { panic!("a copy was to be") };
        self.snapshots.len = len;
        self.steps.has_on_disk(mark.last.index);
        if mark.last.index > self.node.mark().last.index {
            self.node.compacted(mark);
        }
    }
}

impl Copying {
    /// Records are behind those that it has; `texts` are where they begin.
    fn take(&mut self, texts: Texts, len: usize) {
        let before = usize::try_from(self.len).expect("a file that this machine can have");
        let moved =
            |(at, text): (_, std::ops::Range<usize>)| (at, before + text.start..before + text.end);
        self.texts.extend(texts.into_iter().map(moved));
        self.len += len as u64;
    }
}
