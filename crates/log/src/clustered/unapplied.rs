//! Texts of entries that may yet be taken back: kept until they are known to be committed.

use std::collections::VecDeque;

/// Entries that are not applied yet, of ascending index.
#[derive(Debug)]
pub(super) struct Unapplied {
    bytes_max: usize,
    bytes: usize,
    kept: VecDeque<(u64, Vec<u8>)>,
    /// From this index on nothing is kept.
    skipped_from: Option<u64>,
}

impl Unapplied {
    /// Keeps up to so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, kept: VecDeque::new(), skipped_from: None }
    }

    /// An entry has come whose data this is; all that were at its index and behind it are gone.
    pub(super) fn push(&mut self, index: u64, text: &[u8]) {
        self.truncate(index);
        if self.skipped_from.is_some() || self.bytes.saturating_add(text.len()) > self.bytes_max {
            self.skip(index);
        } else {
            self.bytes += text.len();
            self.kept.push_back((index, text.to_vec()));
        }
    }

    /// As [`Unapplied::push`], for data that cannot be kept.
    pub(super) fn skip(&mut self, index: u64) {
        self.truncate(index);
        self.skipped_from.get_or_insert(index);
    }

    /// All entries from this index on are gone.
    pub(super) fn truncate(&mut self, index: u64) {
        while let Some((_, text)) = self.kept.pop_back_if(|(last, _)| *last >= index) {
            self.bytes -= text.len();
        }
        self.skipped_from = self.skipped_from.filter(|from| *from < index);
    }

    /// The next entry up to an index, if it has been kept.
    pub(super) fn take(&mut self, commit_index: u64) -> Option<(u64, Vec<u8>)> {
        let (index, text) = self.kept.pop_front_if(|(index, _)| *index <= commit_index)?;
        self.bytes -= text.len();
        Some((index, text))
    }

    /// The first entry that has not been kept.
    pub(super) fn next(&self) -> Option<u64> {
        self.skipped_from
    }

    /// Entries up to this index, which were not kept, have been applied.
    pub(super) fn applied_to(&mut self, index: u64) {
        self.skipped_from = Some(index + 1);
    }
}
