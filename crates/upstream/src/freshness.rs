//! Whether a server is behind what has been seen elsewhere (ovsdb-server(5), column `index`), and what to
//! make of sources that have gone back, as from a file that was restored.

/// How long servers are refused because all of them are behind what was seen, in microseconds. Then the
/// source itself must have gone back.
pub const BEHIND_US_MAX: u64 = 60_000_000;

/// What is known of indexes of one database.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// The index that was seen last of a server that was followed.
    seen: Option<u64>,
    /// The index of the rows that the owner has, or one before it.
    own: Option<u64>,
    /// The row of `_Server` that is looked at.
    row: Option<Vec<u8>>,
    /// The server has said one in this row, or beside it on the same connection, and was believed.
    has_said: bool,
    /// Since when all servers that would do otherwise have been behind.
    behind_us: Option<u64>,
}

impl Freshness {
    /// The index of the rows that the owner has, or one before it. A server may be ahead of these, and says so before it
    /// tells its own.
    pub(crate) fn own(&self) -> Option<u64> {
        self.own
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
            self.has_said = false;
        }
    }

    /// Who says less than this is refused. A server that says less than it has said itself before, on the
    /// same connection and in the same row, is not behind others: its source has gone back.
    pub(crate) fn least(&self) -> u64 {
        self.seen.filter(|_| !self.has_said).unwrap_or(0)
    }

    /// A server that will do says its index. What it was before if that was more.
    pub(crate) fn hear(&mut self, index: u64) -> Option<u64> {
        (self.has_said, self.behind_us) = (true, None);
        self.seen.replace(index).filter(|before| index < *before)
    }

    /// A server was refused for its index.
    pub(crate) fn refuse(&mut self, now_us: u64) {
        self.behind_us.get_or_insert(now_us);
    }

    /// The connection has ended.
    pub(crate) fn disconnected(&mut self) {
        (self.row, self.has_said) = (None, false);
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
        self.seen.take()
    }
}
