//! Long messages of a relay's source, such as the rows that it begins with: what they make of the
//! tables.

use std::collections::BTreeSet;

use weir_data::{
    ColumnEdit, Edit, Row, RowEdit, RowImage, Schema, Snapshot, Store, TableId, UuidSource,
};
use weir_upstream::news::{News, Read, RowReader, Rows as SourceRows, State};

use crate::work::Garbage;
use crate::work::load::{Rows, Target};
use crate::work::values::TakenValues;

/// [`Work::TakeIn`](crate::work::Work::TakeIn)
pub struct TakeIn {
    pub(crate) reader: RowReader,
    pub(crate) message: Vec<u8>,
    /// The tables, if there are some.
    pub(crate) before: Option<Snapshot>,
    pub(crate) seed: [u64; 4],
}

/// What came out of it.
pub struct TakenIn(pub(crate) Result<Taken, NotTaken>);

/// What a message makes of the tables.
#[derive(Debug)]
pub(crate) enum Taken {
    /// This state.
    State(State, Rows),
    /// Values that are in no state.
    Values(TakenValues),
}

impl Taken {
    /// Nobody needs it.
    pub(crate) fn into_garbage(self) -> Garbage {
        match self {
            Self::State(_, rows) => rows.into_garbage(),
            Self::Values(values) => Rows::Changed(values.difference).into_garbage(),
        }
    }
}

/// Why there are no rows.
pub(crate) enum NotTaken {
    /// The message has none: it is for somebody else.
    Unread(Vec<u8>),
    /// The rows make no sense, in words for the log.
    Wrong(String),
}

impl TakeIn {
    /// Reads the message.
    pub(crate) fn run(self) -> TakenIn {
        let Self { reader, message, before, seed } = self;
        let mut uuids = UuidSource::new(seed);
        TakenIn(match reader.read(&message, &mut uuids) {
            Read::Nothing => Err(NotTaken::Unread(message)),
            Read::Wrong(error) => Err(NotTaken::Wrong(error.to_string())),
            Read::Ephemeral(told) => {
                let values = TakenValues::of(told, before.as_ref(), &mut uuids);
                values.map(Taken::Values).map_err(NotTaken::Wrong)
            }
            Read::News(news) => {
                let rows = rows_of(news, message, before.as_ref(), &mut uuids);
                let rows = rows.map(|(state, rows)| Taken::State(state, rows));
                rows.map_err(NotTaken::Wrong)
            }
        })
    }
}

fn rows_of(
    news: News,
    message: Vec<u8>,
    before: Option<&Snapshot>,
    uuids: &mut UuidSource,
) -> Result<(State, Rows), String> {
    let News { state, schema, rows } = news;
    let message = match &rows {
        SourceRows::All(_) => message,
        // The rows are there already, and the text is not needed beside them.
        SourceRows::Edits(_) | SourceRows::Images(_) => Vec::new(),
    };
    let seed = uuids.next_u64();
    let difference = |store: &Store, edits, uuids: &mut UuidSource| {
        let delta = weir_engine::difference_of(store, edits, uuids);
        delta.map(|delta| (state, Rows::Changed(delta))).map_err(|error| error.to_string())
    };
    match rows {
        SourceRows::All(all) => {
            let target = Target::new(before, &schema, seed);
            let mut target = if all.has_ephemeral() { target } else { target.spare_ephemeral() };
            all.take(message, uuids, &mut |table, row| target.row(table, row))?;
            Ok((state, target.end(before, uuids)?))
        }
        SourceRows::Edits(edits) => {
            let tables = edits.iter().map(|edit| edit.table).collect();
            difference(&rows_before(before, &schema, &tables, seed)?, edits, uuids)
        }
        SourceRows::Images(images) => {
            let tables = images.iter().map(|image| image.table).collect();
            let store = rows_before(before, &schema, &tables, seed)?;
            let edits = edits_of_images(images, &store, uuids);
            difference(&store, edits, uuids)
        }
    }
}

/// The rows that changes are of, in these tables.
pub(super) fn rows_before(
    before: Option<&Snapshot>,
    schema: &Schema,
    tables: &BTreeSet<TableId>,
    seed: u64,
) -> Result<Store, &'static str> {
    let before = before.ok_or("changes of rows that are not there")?;
    if **before.schema() != *schema {
        return Err("changes of rows of another schema");
    }
    let tables: Vec<TableId> = tables.iter().copied().collect();
    Ok(before.to_store(&tables, seed))
}

/// What makes rows like images of them.
pub(crate) fn edits_of_images(
    images: Vec<RowImage>,
    store: &Store,
    uuids: &mut UuidSource,
) -> Vec<RowEdit> {
    let edit = |RowImage { table, uuid, values }| {
        let edit = match (store.get(table, uuid), values) {
            (Some(_), None) => Edit::Delete,
            (None, None) => return None,
            (Some(_), Some(values)) => Edit::Modify(
                values
                    .into_iter()
                    .map(|(column, value)| ColumnEdit { column, value, is_difference: false })
                    .collect(),
            ),
            (None, Some(values)) => {
                let schema = store.schema().table(table);
                Edit::Insert(Row::with_values(uuid, uuids.next_uuid(), schema, values))
            }
        };
        Some(RowEdit { table, uuid, edit })
    };
    images.into_iter().filter_map(edit).collect()
}
