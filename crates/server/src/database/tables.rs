//! The tables of one database: here, or away with a helper that runs a long transaction on them.
//!
//! Nothing is committed while they are away, so what was committed when they left is what everybody
//! may read meanwhile: a snapshot of it stays.

use std::sync::Arc;

use weir_data::{Schema, Snapshot, Store};
use weir_engine::Database;

/// A snapshot of more atoms than this takes a while to be forgotten.
const BIG_ATOMS: usize = 100_000;

/// Sizes, for memory/show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) atoms: usize,
    pub(crate) cells: usize,
    pub(crate) weak_refs: usize,
}

/// What stays while the tables are away.
#[derive(Debug)]
struct Left {
    snapshot: Snapshot,
    sizes: Sizes,
}

/// The tables of one database.
#[derive(Debug)]
pub(crate) struct Engine {
    schema: Arc<Schema>,
    here: Option<Box<Database>>,
    left: Option<Left>,
}

impl Engine {
    pub(crate) fn new(database: Database) -> Self {
        let schema = Arc::clone(database.schema());
        Self { schema, here: Some(Box::new(database)), left: None }
    }

    /// What the rows conform to.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Whether a helper has the tables.
    pub(crate) fn is_away(&self) -> bool {
        self.here.is_none()
    }

    /// The database, unless it is away.
    pub(crate) fn here(&self) -> Option<&Database> {
        self.here.as_deref()
    }

    /// The database, unless it is away.
    pub(crate) fn here_mut(&mut self) -> Option<&mut Database> {
        self.here.as_deref_mut()
    }

    /// The rows, unless they are away.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.here().map(Database::store)
    }

    /// All rows as they are; while they are away, as they were committed last.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let left = || self.left.as_ref().map(|left| left.snapshot.clone());
        self.here().map(Database::snapshot).or_else(left)
    }

    /// Sizes; while the tables are away, those of when they left.
    pub(crate) fn sizes(&self) -> Sizes {
        let left = || self.left.as_ref().map_or_else(Sizes::default, |left| left.sizes);
        self.here().map_or_else(left, sizes)
    }

    /// Lets the tables go.
    pub(crate) fn leave(&mut self) -> Option<Box<Database>> {
        let database = self.here.take()?;
        self.left = Some(Left { snapshot: database.snapshot(), sizes: sizes(&database) });
        Some(database)
    }

    /// The tables are back. Answers with the snapshot, if it takes a while to be forgotten.
    pub(crate) fn come_home(&mut self, database: Box<Database>) -> Option<Snapshot> {
        self.here = Some(database);
        let left = self.left.take().filter(|left| left.sizes.atoms > BIG_ATOMS);
        left.map(|left| left.snapshot)
    }
}

fn sizes(database: &Database) -> Sizes {
    let store = database.store();
    let rows = |(id, _): (_, &_)| store.table(id).len();
    // `_uuid` and `_version` are atoms too.
    let atoms = store.atoms() + 2 * store.schema().table_ids().map(rows).sum::<usize>();
    Sizes { atoms, cells: store.cells(), weak_refs: database.weak_refs() }
}
