//! Columns that no file keeps, of a source of ours: told beside the states, so values may come before
//! their rows do.

use std::collections::BTreeMap;

use weir_data::{
    ColumnEdit, ColumnId, Datum, Edit, Row, RowEdit, RowImage, Store, TableId, TableSchema, Uuid,
};
use weir_upstream::news::EphemeralRows;

type Values = Vec<(ColumnId, Datum)>;

/// Values whose rows have not come. They are as many as rows are on their way at most: who tells values of a
/// row also tells that it is gone.
#[derive(Debug, Default)]
pub(crate) struct Unplaced {
    by_row: BTreeMap<(TableId, Uuid), Values>,
}

impl Unplaced {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// What the source says of rows that are here; the rest is kept.
    pub(crate) fn place(&mut self, told: EphemeralRows, store: &Store) -> Vec<RowEdit> {
        let mut edits = Vec::new();
        if told.is_all {
            self.by_row.clear();
            edits = of_others(&told.images, store);
        }
        for RowImage { table, uuid, values } in told.images {
            match values {
                Some(values) if store.get(table, uuid).is_some() => {
                    edits.push(modification(table, uuid, values));
                }
                Some(values) => _ = self.by_row.insert((table, uuid), values),
                None => _ = self.by_row.remove(&(table, uuid)),
            }
        }
        edits
    }

    /// Takes the values that waited for these rows, which have come.
    pub(crate) fn take(&mut self, rows: &[(TableId, Uuid)]) -> Vec<RowEdit> {
        let take = |row: &(TableId, Uuid)| {
            self.by_row.remove(row).map(|values| modification(row.0, row.1, values))
        };
        rows.iter().filter_map(take).collect()
    }

    /// Any rows have come: the values of those that are here now.
    pub(crate) fn take_all(&mut self, store: &Store) -> Vec<RowEdit> {
        let here = |(table, uuid): &(TableId, Uuid)| store.get(*table, *uuid).is_some();
        let rows = self.by_row.extract_if(.., |row, _| here(row));
        rows.map(|((table, uuid), values)| modification(table, uuid, values)).collect()
    }
}

fn modification(table: TableId, uuid: Uuid, values: Values) -> RowEdit {
    let edit = |(column, value)| ColumnEdit { column, value, is_difference: false };
    RowEdit { table, uuid, edit: Edit::Modify(values.into_iter().map(edit).collect()) }
}

/// Rows that the source has said nothing of have the values that rows begin with.
fn of_others(images: &[RowImage], store: &Store) -> Vec<RowEdit> {
    let mut edits = Vec::new();
    for (table, schema) in store.schema().table_ids() {
        if schema.data_columns().all(|(_, column)| column.persistent) {
            continue;
        }
        for row in store.table(table).iter() {
            let place = (table, row.uuid());
            if images.binary_search_by_key(&place, |image| (image.table, image.uuid)).is_err() {
                let values = beginnings(row, schema);
                edits.extend((!values.is_empty()).then(|| modification(table, row.uuid(), values)));
            }
        }
    }
    edits
}

/// The first values of such columns, where they are others now.
fn beginnings(row: &Row, schema: &TableSchema) -> Values {
    let ephemeral = schema.data_columns().filter(|(_, column)| !column.persistent);
    let values = ephemeral.map(|(id, column)| (id, Datum::default_of(&column.ty)));
    values.filter(|(id, value)| row.datum(*id) != value).collect()
}
