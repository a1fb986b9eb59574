//! The tables of one database, and whether transactions can run on them: they may be away with a
//! helper, on the point of being replaced, or hold what is still being written.
//!
//! Who needs them meanwhile waits here, in order of arrival, and goes on when they are open again.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_data::{Schema, Snapshot, Store};
use weir_engine::Database;

use crate::database::trigger::Trigger;
use crate::ids::SessionId;

/// Sizes, for memory/show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) atoms: usize,
    pub(crate) cells: usize,
    pub(crate) weak_refs: usize,
}

/// Who waits for tables that are not open.
#[derive(Debug)]
pub(crate) enum Queued {
    /// The first message about this database in a session's queue.
    Session(SessionId),
    /// A long transaction.
    Trigger(Trigger),
}

/// What stays while a helper has the tables: nothing is committed meanwhile, so what was committed
/// when they left is what everybody may read.
#[derive(Debug)]
struct Left {
    snapshot: Snapshot,
    sizes: Sizes,
}

/// The tables of one database.
#[derive(Debug)]
pub(crate) struct Tables {
    schema: Arc<Schema>,
    here: Option<Box<Database>>,
    /// How often others have taken the place of these, in which positions begin again.
    replaced: u64,
    left: Option<Left>,
    /// Records of what has run are on their way to the file: it may be undone.
    is_writing: bool,
    /// What has run has as many bytes as may be written together.
    is_full: bool,
    /// A conversion is about to replace the tables.
    is_frozen: bool,
    queue: VecDeque<Queued>,
}

impl Tables {
    pub(super) fn new(database: Database) -> Self {
        let schema = Arc::clone(database.schema());
        let here = Some(Box::new(database));
        Self {
            schema,
            here,
            replaced: 0,
            left: None,
            is_writing: false,
            is_full: false,
            is_frozen: false,
            queue: VecDeque::new(),
        }
    }

    /// What the rows conform to.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Whether a transaction can run now.
    pub(crate) fn is_open(&self) -> bool {
        self.here.is_some() && !self.is_writing && !self.is_full && !self.is_frozen
    }

    /// Whether a helper has the tables.
    pub(crate) fn is_away(&self) -> bool {
        self.here.is_none()
    }

    /// Whether records are on their way.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// The database, unless it is away.
    pub(crate) fn here(&self) -> Option<&Database> {
        self.here.as_deref()
    }

    /// The database, unless it is away.
    pub(super) fn here_mut(&mut self) -> Option<&mut Database> {
        self.here.as_deref_mut()
    }

    /// What was committed: how often others have taken the place of these, and the position. `None` while they are
    /// away.
    pub(crate) fn version(&self) -> Option<(u64, u64)> {
        self.here().map(|here| (self.replaced, here.position()))
    }

    /// The rows, unless they are away.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.here().map(Database::store)
    }

    /// All rows as they are; while they are away, as they were committed last.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match (&self.here, &self.left) {
            (Some(here), _) => here.snapshot(),
            (None, Some(left)) => left.snapshot.clone(),
            (None, None) => unreachable!("a snapshot stays when the tables leave"),
        }
    }

    /// The sizes of the tables; while they are away, those of when they left.
    pub(crate) fn sizes(&self) -> Sizes {
        let left = || self.left.as_ref().map_or_else(Sizes::default, |left| left.sizes);
        self.here().map_or_else(left, sizes)
    }

    /// Lets the tables go to a helper.
    pub(super) fn leave(&mut self) -> Box<Database> {
        assert!(!self.is_writing, "what leaves has no change that may be undone");
        let database = self.here.take().expect("tables that are away cannot leave");
        self.left = Some(Left { snapshot: database.snapshot(), sizes: sizes(&database) });
        database
    }

    /// The tables are back. Answers with the snapshot, which is to be forgotten.
    pub(super) fn come_home(&mut self, database: Box<Database>) -> Option<Snapshot> {
        assert!(self.here.is_none(), "nothing takes the place of tables that are away");
        self.here = Some(database);
        self.left.take().map(|left| left.snapshot)
    }

    /// Others take the place of these, which nobody needs any more.
    pub(super) fn replace(&mut self, database: Database) -> Box<Database> {
        assert!(!self.is_writing, "what is replaced has no change that may be undone");
        self.schema = Arc::clone(database.schema());
        self.replaced += 1;
        let old = self.here.replace(Box::new(database));
        old.expect("a conversion waits until the tables are here")
    }

    /// The database is removed: the tables, if they are here.
    pub(super) fn into_here(self) -> Option<Box<Database>> {
        self.here
    }

    /// Records of what has run are on their way.
    pub(super) fn begin_writing(&mut self) {
        assert!(!self.is_writing && self.here.is_some(), "one batch is written at a time");
        (self.is_writing, self.is_full) = (true, false);
    }

    /// Nothing more runs until what has run is written.
    pub(super) fn set_full(&mut self) {
        self.is_full = true;
    }

    /// The records are in the file, or not.
    pub(super) fn end_writing(&mut self) {
        assert!(self.is_writing, "an append is answered once");
        self.is_writing = false;
    }

    /// Transactions are held until the tables are replaced, or not after all.
    pub(super) fn set_frozen(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Whether transactions are held.
    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Waits until the tables are open.
    pub(super) fn wait(&mut self, queued: Queued) {
        debug_assert!(!self.is_open(), "who finds them open does not wait");
        self.queue.push_back(queued);
    }

    /// Who waits, in order.
    pub(crate) fn queue(&self) -> impl ExactSizeIterator<Item = &Queued> {
        self.queue.iter()
    }

    /// Who goes on now: all that have waited, if the tables are open.
    pub(super) fn take_queue_if_open(&mut self) -> VecDeque<Queued> {
        if self.is_open() { std::mem::take(&mut self.queue) } else { VecDeque::new() }
    }

    /// Takes out the long transactions that are meant.
    pub(super) fn take_queued(&mut self, is_meant: impl Fn(&Trigger) -> bool) -> Vec<Trigger> {
        let is_taken =
            |queued: &Queued| matches!(queued, Queued::Trigger(trigger) if is_meant(trigger));
        if !self.queue.iter().any(is_taken) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for queued in std::mem::take(&mut self.queue) {
            match queued {
                Queued::Trigger(trigger) if is_meant(&trigger) => taken.push(trigger),
                other => self.queue.push_back(other),
            }
        }
        taken
    }

    /// The database is removed: all that have waited.
    pub(super) fn take_queue(&mut self) -> VecDeque<Queued> {
        std::mem::take(&mut self.queue)
    }
}

fn sizes(database: &Database) -> Sizes {
    let store = database.store();
    let rows = |(id, _): (_, &_)| store.table(id).len();
    // `_uuid` and `_version` are atoms too.
    let atoms = store.atoms() + 2 * store.schema().table_ids().map(rows).sum::<usize>();
    Sizes { atoms, cells: store.cells(), weak_refs: database.weak_refs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a snapshot of another member was compared with must not pass for what took its place.
    #[test]
    fn tables_that_came_and_went_are_not_the_same_though_schema_and_position_are() {
        let schema = br#"{"name":"D","version":"1.0.0","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}"#;
        let schema = Arc::new(Schema::parse_bytes(schema).expect("a schema"));
        let database = || Database::new(Arc::clone(&schema), 7);
        let mut tables = Tables::new(database());
        let before = tables.version();
        assert_eq!(tables.version(), before);
        (0..2).for_each(|_| drop(tables.replace(database())));
        assert_eq!(tables.here().map(Database::position), Some(0));
        assert_ne!(tables.version(), before);
    }
}
