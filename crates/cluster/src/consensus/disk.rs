//! What of the log is on the disk. The library knows less: while other entries are to take the place of
//! the last ones, it does not count what stays before them.

use std::collections::VecDeque;

use crate::entry::Entry;

/// What of the log is on the disk.
pub(super) struct Disk {
    /// The entries of the log up to this one are on the disk.
    pub(super) last: u64,
    /// The entries that are on their way to the disk, by the [`Ready`](super::node::Ready) that has them: its
    /// number, its first entry and its last one.
    open: VecDeque<(u64, u64, u64)>,
}

impl Disk {
    pub(super) fn new(last: u64) -> Self {
        Self { last, open: VecDeque::new() }
    }

    /// Entries are on their way. What the disk has from the first one on is of the log no more.
    pub(super) fn write(&mut self, number: u64, entries: &[Entry]) {
        if let [first, ..] = entries
            && let [.., last] = entries
        {
            self.open.push_back((number, first.at.index, last.at.index));
            self.last = self.last.min(first.at.index - 1);
        }
    }

    /// All up to this [`Ready`](super::node::Ready) is on the disk. Those behind it may be about to replace
    /// some of that.
    pub(super) fn persisted(&mut self, number: u64) {
        while let Some((_, _, last)) = self.open.pop_front_if(|(open, ..)| *open <= number) {
            self.last = last;
        }
        let replaced = self.open.iter().map(|(_, first, _)| first - 1);
        self.last = replaced.fold(self.last, u64::min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Content;
    use crate::ids::Position;

    fn entries(indexes: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
        let entry = |index| Entry { at: Position { term: 1, index }, content: Content::Empty };
        indexes.map(entry).collect()
    }

    #[test]
    fn what_is_to_be_replaced_does_not_count_and_what_stays_does() {
        let mut disk = Disk::new(6);
        disk.write(1, &entries(7..=12));
        disk.write(2, &[]);
        disk.write(3, &entries(10..=10));
        disk.write(4, &entries(11..=14));
        assert_eq!(disk.last, 6, "nothing has come there yet");
        disk.persisted(2);
        assert_eq!(disk.last, 9);
        disk.persisted(3);
        assert_eq!(disk.last, 10);
        disk.write(5, &entries(8..=8));
        assert_eq!(disk.last, 7);
        disk.persisted(4);
        assert_eq!(disk.last, 7);
        disk.persisted(5);
        assert_eq!(disk.last, 8);
    }
}
