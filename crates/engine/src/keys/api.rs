//! What owners of a database ask of its keys, and what they are told.

use std::fmt;

use super::advice::KeyBudget;
use super::{Key, KeyKind, KeyName, Keys, Origin, fits, kind_for};
use crate::database::Database;
use weir_data::{ColumnId, Snapshot, TableId};

/// Why a key was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Such a key is declared already.
    Exists,
    /// Columns of this type have no keys of this kind.
    Unfit,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "the key exists",
            Self::Unfit => "the column cannot have a key of this kind",
        })
    }
}

impl std::error::Error for KeyError {}

/// A key as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Which one.
    pub key: KeyName,
    /// Who wants it.
    pub origin: Origin,
    /// Whether the key serves; else it is being built.
    pub serves: bool,
    /// Number of entries.
    pub entries: usize,
    /// Bytes that the key takes, about.
    pub bytes: usize,
    /// Rows that nobody had to look at thanks to it, since it was made or last found to pay.
    pub saved: u64,
    /// Entries that commits have filed in it, since then.
    pub filed: u64,
}

/// A key that is gone, to be freed where that holds up nobody.
#[derive(Debug)]
pub struct DroppedKey(#[expect(dead_code, reason = "it is only there to be freed")] pub(super) Key);

/// What the engine did to its keys.
#[derive(Debug)]
pub enum KeyEvent {
    /// A key of the engine's own is being built from now on.
    Begun {
        /// Which one.
        key: KeyName,
        /// Rows that scans had looked at for want of the key.
        scanned: u64,
    },
    /// A key is built, and serves.
    Ready {
        /// Which one.
        key: KeyName,
        /// Who wanted it.
        origin: Origin,
        /// Bytes that the key takes, about.
        bytes: usize,
        /// Rows that scans had looked at for want of the key; 0 if it was declared.
        scanned: u64,
        /// The rows that the key was built from, to be freed where that holds up nobody.
        snapshot: Snapshot,
    },
    /// A key of the engine's own is gone.
    Dropped {
        /// Which one.
        key: KeyName,
        /// For what reason.
        why: Why,
        /// What is to be freed.
        dropped: DroppedKey,
    },
}

/// Why the engine dropped a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The key saved too few looks at rows for what it cost to keep.
    DoesNotPay {
        /// Rows that it saved a look at.
        saved: u64,
        /// Entries that commits filed in it.
        filed: u64,
    },
    /// The budget does not suffice for all, and this key saved least.
    Room,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoesNotPay { saved, filed } => {
                write!(f, "it saved looking at {saved} rows for {filed} entries filed")
            }
            Self::Room => f.write_str("its memory serves better elsewhere"),
        }
    }
}

impl KeyKind {
    /// The kind's name, for logs and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Ordered => "ordered",
            Self::Inverted => "inverted",
        }
    }
}

impl Database {
    /// Adds a key, which serves once [`Database::build_keys`] has filed all rows. One that the engine
    /// has on its own account stays, and counts as declared.
    ///
    /// # Errors
    /// The key is declared already, or the column cannot have it.
    pub fn add_key(&mut self, key: KeyName) -> Result<(), KeyError> {
        let Self { keys, store, .. } = self;
        if !fits(key.kind, store.schema().table(key.table).column(key.column)) {
            return Err(KeyError::Unfit);
        }
        if let Some(there) = keys.get_mut(key) {
            let before = std::mem::replace(&mut there.origin, Origin::Declared);
            return if before == Origin::Automatic { Ok(()) } else { Err(KeyError::Exists) };
        }
        keys.begin(key, Origin::Declared, store, 0);
        Ok(())
    }

    /// The key that serves a column best: `by_order` if by more than equality.
    pub fn key_for(&self, table: TableId, column: ColumnId, by_order: bool) -> KeyName {
        KeyName { table, column, kind: kind_for(self.schema().table(table), column, by_order) }
    }

    /// Drops a key, whether or not it serves; answers with what is to be freed.
    pub fn drop_key(&mut self, key: KeyName) -> Option<DroppedKey> {
        self.keys.remove(key).map(DroppedKey)
    }

    /// Whether a key waits for [`Database::build_keys`].
    pub fn has_keys_to_build(&self) -> bool {
        self.keys.all().any(|key| key.building.is_some())
    }

    /// Files about so many rows and entries in keys that are being built: a step. A row is filed
    /// whole, so one of a big set may take it beyond.
    pub fn build_keys(&mut self, step: usize) -> Vec<KeyEvent> {
        let Self { keys, store, .. } = self;
        let Keys { tables, numbers, .. } = keys;
        let (mut left, mut events) = (step.max(1), Vec::new());
        for key in tables.iter_mut().flatten().filter(|key| key.building.is_some()) {
            let (done, built) = key.build(numbers, store, left);
            if let Some((snapshot, scanned)) = built {
                let (key, origin, bytes) = (key.name, key.origin, key.bytes());
                events.push(KeyEvent::Ready { key, origin, bytes, scanned, snapshot });
            }
            left = left.saturating_sub(done);
            if left == 0 {
                break;
            }
        }
        events
    }

    /// One step of keeping keys: builds those that are begun, drops one that the engine began and
    /// that does not pay, or begins one that would. Without calls the engine keeps no keys of its
    /// own.
    pub fn tend_keys(&mut self, budget: KeyBudget) -> Vec<KeyEvent> {
        let mut events = self.build_keys(budget.step);
        let decided = self.keys.decide(&self.store, budget);
        self.keys.is_restless = decided.is_some() || self.has_keys_to_build();
        events.extend(decided);
        events
    }

    /// Whether there is anything to do for [`Database::tend_keys`].
    #[inline]
    pub fn wants_tending(&self) -> bool {
        self.keys.is_restless
    }

    /// All keys, by table and column.
    pub fn keys(&self) -> impl Iterator<Item = KeyState> {
        self.keys.all().map(|key| KeyState {
            key: key.name,
            origin: key.origin,
            serves: key.building.is_none(),
            entries: key.entries.len(),
            bytes: key.bytes(),
            saved: key.saved,
            filed: key.filed,
        })
    }

    /// Whether each key that serves is what a walk over all rows finds. Visits everything; made for
    /// tests.
    pub fn keys_match_rows(&self) -> bool {
        self.keys.match_rows(&self.store)
    }
}
