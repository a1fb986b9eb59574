//! A snapshot that another member of a cluster has sent: from the file, to which it was written
//! while it came, to what it makes of the tables.
//!
//! - No tables yet: they are made of it.
//! - Tables of its schema: what it changes in them ([`TakeOver`]).
//! - Tables of another schema: new ones, which share the rows that are the same.
//!
//! The text is read piece by piece, so what this takes beside the tables follows what is new.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weir_data::{Delta, Error, Row, Schema, Snapshot, Store, TableId, TableSchema, UuidSource};
use weir_engine::convert::{adopt, is_unaffected};
use weir_engine::difference::{self, Difference};
use weir_engine::{Converted, Database};
use weir_log::clustered::SnapshotReader;

use crate::work::{Garbage, ReadAt};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// [`Work::Load`](crate::work::Work::Load)
pub struct Load {
    /// The tables, if there are some.
    pub(crate) before: Option<Snapshot>,
    /// Where in the file the data is.
    pub(crate) place: Range<u64>,
    pub(crate) seed: [u64; 4],
    /// The shell's part.
    pub(crate) read_at: Option<ReadAt>,
}

/// What came out of it.
pub struct LoadedRows(pub(crate) Result<Rows, String>);

/// What a snapshot makes of the tables.
#[derive(Debug)]
pub(crate) enum Rows {
    /// There were none.
    Fresh(Box<Database>),
    /// This is to change.
    Changed(Delta),
    /// The tables become these, of another schema.
    Recast(Box<Converted>),
}

impl Rows {
    /// Nobody needs them.
    pub(crate) fn into_garbage(self) -> Garbage {
        match self {
            Self::Fresh(database) => Garbage::Database(database),
            Self::Changed(delta) => Garbage::Delta(delta.into()),
            Self::Recast(converted) => Garbage::Database(Box::new(converted.database)),
        }
    }
}

/// Why a snapshot is of no use, in words for the log.
fn nonsense<E>(_: E) -> String {
    "its data makes no sense".to_owned()
}

/// Where rows go that come.
pub(super) enum Target {
    Store(Store),
    /// As [`Target::Store`]; a row that is as it was is taken from the second one, in which the
    /// table has the number given here, if it is the same under both schemas.
    Shared(Store, Store, Vec<Option<TableId>>),
    Difference(Difference),
}

impl Target {
    pub(super) fn new(before: Option<&Snapshot>, schema: &Arc<Schema>, seed: u64) -> Self {
        let store = Store::new(Arc::clone(schema), seed);
        let Some(before) = before else { return Self::Store(store) };
        let (from, to) = (before.schema(), schema);
        if from == to {
            return Self::Difference(Difference::new(before, seed));
        }
        let alike = |(_, table): (TableId, &TableSchema)| {
            let id = from.table_id(&table.name)?;
            is_unaffected(from.table(id), table).then_some(id)
        };
        let alike: Vec<Option<TableId>> = to.table_ids().map(alike).collect();
        let searched: Vec<TableId> = alike.iter().flatten().copied().collect();
        Self::Shared(store, before.to_store(&searched, seed), alike)
    }

    /// The rows come without the columns that no file keeps.
    pub(super) fn spare_ephemeral(self) -> Self {
        match self {
            Self::Difference(difference) => Self::Difference(difference.spare_ephemeral()),
            other => other,
        }
    }

    pub(super) fn row(&mut self, table: TableId, row: Row) -> Result<(), String> {
        let (store, row) = match self {
            Self::Difference(difference) => return difference.row(table, row).map_err(nonsense),
            Self::Store(store) => (store, row),
            Self::Shared(store, before, alike) => {
                let same = alike[table.index()].and_then(|old| before.get(old, row.uuid()));
                let schema = store.schema().table(table);
                let is_same = |old: &&Row| {
                    schema.data_columns().all(|(column, _)| old.datum(column) == row.datum(column))
                };
                let same = same.filter(is_same).cloned();
                (store, same.unwrap_or(row))
            }
        };
        if store.get(table, row.uuid()).is_some() {
            return Err(nonsense(()));
        }
        store.insert(table, row);
        Ok(())
    }

    pub(super) fn end(
        self,
        before: Option<&Snapshot>,
        uuids: &mut UuidSource,
    ) -> Result<Rows, String> {
        let seed = uuids.next_u64();
        match self {
            Self::Difference(difference) => difference.end().map(Rows::Changed).map_err(nonsense),
            Self::Store(store) | Self::Shared(store, ..) => match before {
                None => Database::from_told(store, seed).map(|it| Rows::Fresh(Box::new(it))),
                Some(before) => {
                    adopt(before, store, uuids, seed).map(|it| Rows::Recast(Box::new(it)))
                }
            }
            .map_err(|error| error.to_string()),
        }
    }
}

impl Load {
    /// Has the file read by `read_at`.
    pub fn in_file(mut self: Box<Self>, read_at: ReadAt) -> Box<Self> {
        self.read_at = Some(read_at);
        self
    }

    /// Reads the file.
    pub(crate) fn run(self) -> LoadedRows {
        LoadedRows(self.load())
    }

    fn load(self) -> Result<Rows, String> {
        let Self { before, place, seed, read_at } = self;
        let mut read_at = read_at.expect("the shell has given it the file");
        let mut uuids = UuidSource::new(seed);
        let mut reader = SnapshotReader::new(uuids.next_u64());
        let (seed, mut target) = (uuids.next_u64(), None);
        let mut take = |reader: &mut SnapshotReader| {
            let Some(schema) = reader.schema() else { return Ok(()) };
            let new = || Target::new(before.as_ref(), schema, seed);
            let target = target.get_or_insert_with(new);
            reader.take_rows().try_for_each(|(table, row)| target.row(table, row))
        };
        let (mut buffer, mut at) = (vec![0; READ_BYTES], place.start);
        while at < place.end {
            let left = usize::try_from(place.end - at).unwrap_or(usize::MAX);
            let room = buffer.get_mut(..left.min(READ_BYTES)).unwrap_or_default();
            let count = read_at(at, room)?;
            let bytes = room.get(..count).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or("unexpected end of file")?;
            reader.feed(bytes).map_err(nonsense)?;
            take(&mut reader)?;
            at += bytes.len() as u64;
        }
        reader.end().map_err(nonsense)?;
        take(&mut reader)?;
        drop(reader);
        let target = target.ok_or_else(|| nonsense(()))?;
        target.end(before.as_ref(), &mut uuids)
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").field("place", &self.place).finish_non_exhaustive()
    }
}

/// [`Work::TakeOver`](crate::work::Work::TakeOver)
pub struct TakeOver {
    pub(crate) database: Box<Database>,
    pub(crate) difference: Delta,
    pub(crate) seed: [u64; 4],
}

/// The tables, and what has changed in them.
pub struct TakenOver {
    pub(crate) database: Box<Database>,
    pub(crate) result: Result<Delta, Error>,
}

impl TakeOver {
    /// Changes the tables.
    pub(crate) fn run(self) -> TakenOver {
        let Self { mut database, difference, seed } = self;
        let mut uuids = UuidSource::new(seed);
        let result = difference::take_over(&mut database, difference, &mut uuids);
        TakenOver { database, result }
    }
}

#[cfg(test)]
mod tests;
