//! Long messages of a relay's source, such as the rows that it begins with: what they make of the
//! tables.

use std::collections::BTreeSet;

use weir_data::{
    ColumnEdit, Edit, Row, RowEdit, RowImage, Snapshot, Store, TableId, Uuid, UuidSource,
};
use weir_upstream::news::{News, Read, RowReader, Rows as SourceRows};

use crate::work::load::{Rows, Target};

/// [`Work::TakeIn`](crate::work::Work::TakeIn)
pub struct TakeIn {
    pub(crate) reader: RowReader,
    pub(crate) message: Vec<u8>,
    /// The tables, if there are some.
    pub(crate) before: Option<Snapshot>,
    pub(crate) seed: [u64; 4],
}

/// What came out of it.
pub struct TakenIn(pub(crate) Result<(Uuid, Rows), NotTaken>);

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
            Read::News(news) => {
                drop(message);
                rows_of(news, before.as_ref(), &mut uuids).map_err(NotTaken::Wrong)
            }
        })
    }
}

fn rows_of(
    news: News,
    before: Option<&Snapshot>,
    uuids: &mut UuidSource,
) -> Result<(Uuid, Rows), String> {
    let News { id, schema, rows } = news;
    let seed = uuids.next_u64();
    let all = match rows {
        SourceRows::All(all) => all,
        SourceRows::Edits(_) | SourceRows::Images(_) => {
            let before = before.ok_or("changes of rows that are not there")?;
            if **before.schema() != *schema {
                return Err("changes of rows of another schema".to_owned());
            }
            let tables: BTreeSet<TableId> = match &rows {
                SourceRows::Edits(edits) => edits.iter().map(|edit| edit.table).collect(),
                SourceRows::Images(images) => images.iter().map(|image| image.table).collect(),
                SourceRows::All(_) => unreachable!("it was looked at"),
            };
            let tables: Vec<TableId> = tables.into_iter().collect();
            let store = before.to_store(&tables, seed);
            let edits = match rows {
                SourceRows::Edits(edits) => edits,
                SourceRows::Images(images) => edits_of_images(images, &store, uuids),
                SourceRows::All(_) => unreachable!("it was looked at"),
            };
            let delta = weir_engine::difference_of(&store, edits, uuids);
            return delta
                .map(|delta| (id, Rows::Changed(delta)))
                .map_err(|error| error.to_string());
        }
    };
    let mut target = Target::new(before, &schema, seed);
    for (table, row) in all {
        target.row(table, row)?;
    }
    Ok((id, target.end(before, uuids)?))
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
