//! Who asked for the changes that were made last, and when they were made: what neither the change
//! log nor the file keeps (`docs/log-of-changes.md`).

use std::collections::VecDeque;
use std::sync::Arc;

use weir_data::Uuid;

use crate::origin::Identity;

/// Most bytes of what is remembered for a database of changes with a comment, or of clients that
/// have shown a certificate; the oldest goes first.
const ASKED_BYTES_MAX: usize = 1 << 20;

/// Most changes of a database of which nothing but the date is remembered; the oldest goes first.
const DATES_MAX: usize = 8192;

/// Longest comment that is remembered or shown, in bytes; the rest is cut off.
pub(crate) const COMMENT_BYTES_MAX: usize = 4 << 10;

/// What a change occupies beside its texts, in bytes.
const OVERHEAD_BYTES: usize = 128;

/// What is remembered of a change.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The recorded id of the state behind the change.
    pub(crate) id: Uuid,
    /// Wall clock of its record.
    pub(crate) date_ms: i64,
    /// Who asked for it; nobody if it came from the database's source.
    pub(crate) client: Option<Arc<Identity>>,
    pub(crate) comment: Option<String>,
}

impl Asked {
    fn bytes(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |client| {
            client.name.len() + client.role.len() + client.client.as_ref().map_or(0, String::len)
        });
        OVERHEAD_BYTES + client + self.comment.as_ref().map_or(0, String::len)
    }
}

/// What is remembered of the changes of a database, the oldest first. A clone costs no more than
/// the references in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    asked: VecDeque<Arc<Asked>>,
    bytes: usize,
    dates: VecDeque<(Uuid, i64)>,
}

impl Memory {
    /// Remembers a change.
    pub(crate) fn push(&mut self, mut asked: Asked) {
        if let Some(comment) = &mut asked.comment {
            cut(comment);
        }
        self.bytes += asked.bytes();
        self.asked.push_back(Arc::new(asked));
        while self.bytes > ASKED_BYTES_MAX
            && let Some(oldest) = self.asked.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }

    /// Remembers the date of a change that nothing else is to be remembered of.
    pub(crate) fn push_date(&mut self, id: Uuid, date_ms: i64) {
        if self.dates.len() == DATES_MAX {
            self.dates.pop_front();
        }
        self.dates.push_back((id, date_ms));
    }

    /// Changes with what is remembered of them.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Arc<Asked>> {
        self.asked.iter()
    }

    /// Ids and dates of the others.
    pub(crate) fn dates(&self) -> impl Iterator<Item = (Uuid, i64)> {
        self.dates.iter().copied()
    }
}

/// Cuts off what of a comment is too long.
pub(crate) fn cut(comment: &mut String) {
    if comment.len() > COMMENT_BYTES_MAX {
        comment.truncate(comment.floor_char_boundary(COMMENT_BYTES_MAX));
        comment.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(id: u128, comment: &str) -> Asked {
        let comment = Some(comment.to_owned());
        Asked { id: Uuid::from_u128(id), date_ms: 0, client: None, comment }
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut memory = Memory::default();
        let comment = "é".repeat(COMMENT_BYTES_MAX);
        for id in 0..1000 {
            memory.push(asked(id, &comment));
        }
        let kept: Vec<Uuid> = memory.asked().map(|asked| asked.id).collect();
        let each = COMMENT_BYTES_MAX + OVERHEAD_BYTES;
        assert_eq!(kept.len(), ASKED_BYTES_MAX / each);
        assert_eq!(kept.last(), Some(&Uuid::from_u128(999)));
        assert_eq!(memory.bytes, kept.len() * each);
        for id in 0..DATES_MAX as u128 + 7 {
            memory.push_date(Uuid::from_u128(id), 1);
        }
        assert_eq!(memory.dates().count(), DATES_MAX);
        assert_eq!(memory.dates().next(), Some((Uuid::from_u128(7), 1)));
    }
}
