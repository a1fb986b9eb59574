//! Named UUIDs of one transaction (RFC 7047 §5.1 `<named-uuid>`).

use hashbrown::HashMap;

use crate::uuid::{Uuid, UuidSource};

/// What one name stands for.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// The row UUID the name stands for.
    pub uuid: Uuid,
    /// Whether an `insert` has claimed the name.
    pub created: bool,
}

/// What names stand for, of a transaction that is over.
pub type Names = HashMap<String, Symbol, foldhash::fast::FixedState>;

/// The names of one transaction; a name gets a random UUID when first met, before or at its insert.
#[derive(Debug)]
pub struct SymbolTable<'u> {
    symbols: Names,
    uuids: &'u mut UuidSource,
}

impl<'u> SymbolTable<'u> {
    /// An empty table that draws UUIDs from `uuids`.
    pub fn new(uuids: &'u mut UuidSource) -> Self {
        // Seeded, because clients choose the names.
        let hasher = foldhash::fast::FixedState::with_seed(uuids.next_u64());
        Self { symbols: HashMap::with_hasher(hasher), uuids }
    }

    /// What the names stand for, which is forgotten here.
    pub fn take_names(&mut self) -> Names {
        let none = HashMap::with_hasher(self.symbols.hasher().clone());
        std::mem::replace(&mut self.symbols, none)
    }

    /// From now on names stand for this.
    pub fn set_names(&mut self, names: Names) {
        self.symbols = names;
    }

    /// The UUID that `name` stands for.
    pub fn refer(&mut self, name: &str) -> Uuid {
        self.symbol(name).uuid
    }

    /// The entry for `name`, made if new.
    pub fn symbol(&mut self, name: &str) -> &mut Symbol {
        let uuids = &mut *self.uuids;
        self.symbols
            .entry_ref(name)
            .or_insert_with(|| Symbol { uuid: uuids.next_uuid(), created: false })
    }

    /// A random UUID for a row without a name.
    pub fn fresh(&mut self) -> Uuid {
        self.uuids.next_uuid()
    }
}
