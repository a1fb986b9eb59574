//! Whether a server is behind what has been seen elsewhere (ovsdb-server(5), column `index`), and what to
//! make of sources that have gone back, as from a file that was restored, or that others have taken the place of.

use std::collections::VecDeque;

use weir_data::Uuid;

/// How long servers are refused because all of them are behind what was seen, in microseconds. Then the
/// source itself must have gone back.
pub const BEHIND_US_MAX: u64 = 60_000_000;

/// So many origins of indexes are remembered, the latest ones.
const ORIGINS_MAX: usize = 16;

/// An index that a server has said, and what it is one of, as far as that is known (`path::Path::origin`).
#[derive(Clone, Copy, Debug)]
struct Index {
    number: u64,
    origin: Option<Uuid>,
}

/// What is known of indexes of one database.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// The index that was seen last of a server that was followed.
    seen: Option<Index>,
    /// The index of the rows that the owner has, or one before it.
    own: Option<Index>,
    /// Origins of indexes that have been seen. Who says an index of one of these may be behind; a new one is
    /// that of another source, in the place of what was there before.
    origins: VecDeque<Uuid>,
    /// The row of `_Server` that is looked at.
    row: Option<Vec<u8>>,
    /// The index that stands there, if it was believed.
    row_number: Option<u64>,
    /// The server has said one in this row, or beside it on the same connection, and was believed.
    has_said: bool,
    /// Since when all servers that would do otherwise have been behind.
    behind_us: Option<u64>,
}

/// A server that is believed says less than was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fall {
    pub(crate) before: u64,
    /// The two are of different origins.
    pub(crate) is_other: bool,
}

impl Freshness {
    /// The index of the rows that the owner has, or one before it. A server may be ahead of these, and says so before it
    /// tells its own.
    pub(crate) fn own(&self) -> Option<u64> {
        self.own.map(|own| own.number)
    }

    /// What that index is one of.
    pub(crate) fn own_origin(&self) -> Option<Uuid> {
        self.own.and_then(|own| own.origin)
    }

    /// The owner has the rows of which the server has said how far they are, if it has.
    pub(crate) fn have_rows(&mut self) {
        if self.has_said {
            self.own = self.seen;
        }
    }

    /// The owner could not take rows that it was told: how far its own are is not known.
    pub(crate) fn lack_rows(&mut self) {
        self.own = None;
    }

    /// The server has the database in this row of `_Server`. In another one it has opened it anew, and may be
    /// behind what it had before.
    pub(crate) fn look_at(&mut self, row: Option<&[u8]>) {
        if self.row.as_deref() != row {
            self.row = row.map(<[u8]>::to_vec);
            (self.row_number, self.has_said) = (None, false);
        }
    }

    /// Whether the row has another index than before. One that has not changed is of the origin that it was of when it came,
    /// though the way of the rows may be another one by now.
    pub(crate) fn is_news(&mut self, number: u64) -> bool {
        self.row_number.replace(number) != Some(number)
    }

    /// Who says less than this, of this origin, is refused. A server that says less than it has said itself before,
    /// on the same connection and in the same row, is not behind others: its source has gone back.
    pub(crate) fn least(&self, origin: Option<Uuid>) -> u64 {
        let Some(seen) = self.seen.filter(|_| !self.has_said) else { return 0 };
        let is_new = |origin: Uuid| seen.origin.is_some() && !self.origins.contains(&origin);
        if origin.is_some_and(is_new) { 0 } else { seen.number }
    }

    /// A server that will do says its index. What that was before if it was more.
    pub(crate) fn hear(&mut self, number: u64, origin: Option<Uuid>) -> Option<Fall> {
        (self.has_said, self.behind_us) = (true, None);
        if let Some(origin) = origin.filter(|origin| !self.origins.contains(origin)) {
            self.origins.truncate(ORIGINS_MAX - 1);
            self.origins.push_front(origin);
        }
        let before = self.seen.replace(Index { number, origin })?;
        let is_other = origin.is_some_and(|origin| before.origin.is_some_and(|it| it != origin));
        (number < before.number).then_some(Fall { before: before.number, is_other })
    }

    /// A server was refused for its index.
    pub(crate) fn refuse(&mut self, now_us: u64) {
        self.behind_us.get_or_insert(now_us);
    }

    /// The connection has ended.
    pub(crate) fn disconnected(&mut self) {
        (self.row, self.row_number, self.has_said) = (None, None, false);
    }

    /// A server is followed, whatever it says of indexes.
    pub(crate) fn follow(&mut self) {
        self.behind_us = None;
    }

    /// When servers have been refused for long enough.
    pub(crate) fn ends_us(&self) -> Option<u64> {
        self.behind_us.map(|since| since.saturating_add(BEHIND_US_MAX))
    }

    /// Servers have been refused for long enough: what was seen counts no longer. Answers with it.
    pub(crate) fn give_up(&mut self, now_us: u64) -> Option<u64> {
        self.ends_us().filter(|at| *at <= now_us)?;
        self.behind_us = None;
        self.seen.take().map(|seen| seen.number)
    }
}
