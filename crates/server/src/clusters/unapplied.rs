//! Committed entries that have not taken effect in the tables.

use std::collections::VecDeque;

use weir_cluster::{Content, Entry};

/// What the texts of these entries may take, in bytes, before the member takes no more entries of its
/// leader: they pile up while a helper has the tables.
pub(crate) const UNAPPLIED_BYTES_MAX: usize = 64 << 20;

/// What one step lets take effect, in bytes of texts of others: more is left to the next one.
pub(crate) const STEP_BYTES_MAX: usize = 256 << 10;

/// Entries in their order, with the bytes of their texts counted.
#[derive(Default)]
pub(crate) struct Unapplied {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Unapplied {
    /// More is committed.
    pub(crate) fn extend(&mut self, entries: Vec<Entry>) {
        self.bytes += entries.iter().map(text_bytes).sum::<usize>();
        self.entries.extend(entries);
    }

    /// The next entry.
    pub(crate) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// The next entry, which takes effect.
    pub(crate) fn pop_front(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= text_bytes(&entry);
        Some(entry)
    }

    /// An entry that was taken has not taken effect yet.
    pub(crate) fn push_front(&mut self, entry: Entry) {
        self.bytes += text_bytes(&entry);
        self.entries.push_front(entry);
    }

    /// A snapshot has all up to this index in it.
    pub(crate) fn forget_until(&mut self, index: u64) {
        self.entries.retain(|entry| entry.at.index > index);
        self.bytes = self.entries.iter().map(text_bytes).sum();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is so much that the member takes no more entries.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= UNAPPLIED_BYTES_MAX
    }

    /// Whether any of them changes rows.
    pub(crate) fn has_data(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.content, Content::Data { .. }))
    }
}

/// Bytes of an entry's text.
pub(crate) fn text_bytes(entry: &Entry) -> usize {
    match &entry.content {
        Content::Data { text, .. } => text.len(),
        Content::Servers(_) | Content::ElectionTimer(_) | Content::Empty => 0,
    }
}

#[cfg(test)]
mod tests {
    use weir_cluster::Position;
    use weir_data::Uuid;

    use super::*;

    fn entry(index: u64, bytes: usize) -> Entry {
        let text = vec![b' '; bytes].into();
        let at = Position { term: 1, index };
        Entry { at, content: Content::Data { eid: Uuid::ZERO, text } }
    }

    #[test]
    fn what_has_not_taken_effect_is_counted_wherever_it_leaves() {
        let mut unapplied = Unapplied::default();
        let half = UNAPPLIED_BYTES_MAX / 2;
        unapplied.extend(vec![entry(1, half), entry(2, half - 1)]);
        assert!(!unapplied.is_full());
        unapplied.extend(vec![entry(3, 1)]);
        assert!(unapplied.is_full());
        let first = unapplied.pop_front().unwrap();
        assert!(!unapplied.is_full());
        unapplied.push_front(first);
        assert!(unapplied.is_full());
        unapplied.forget_until(1);
        assert!(!unapplied.is_full() && unapplied.has_data());
        unapplied.forget_until(3);
        assert_eq!((unapplied.bytes, unapplied.is_empty()), (0, true));
    }
}
