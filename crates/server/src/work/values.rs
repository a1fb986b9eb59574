//! Values of columns that no file keeps, which the source of a relay tells beside the states: what they change
//! in the rows that are here.

use std::collections::BTreeSet;

use weir_data::{
    ColumnEdit, ColumnId, Datum, Delta, Edit, Row, RowEdit, RowImage, Schema, Snapshot, Store,
    TableId, TableSchema, Uuid, UuidSource,
};
use weir_upstream::news::EphemeralRows;

use crate::work::take_in::rows_before;

/// Values of some columns of a row.
pub(crate) type Values = Vec<(ColumnId, Datum)>;

/// What a long message of them makes of the tables.
#[derive(Debug)]
pub(crate) struct TakenValues {
    /// The message has those of all rows.
    pub(crate) is_all: bool,
    pub(crate) difference: Delta,
    /// Rows that are not here, and those that are gone.
    pub(crate) absent: Vec<RowImage>,
}

impl TakenValues {
    /// What a message makes of tables.
    ///
    /// # Errors
    /// The tables are not those that it is about, in words for the log.
    pub(super) fn of(
        told: EphemeralRows,
        before: Option<&Snapshot>,
        uuids: &mut UuidSource,
    ) -> Result<Self, String> {
        let is_all = told.is_all;
        let tables: BTreeSet<TableId> = tables(&told.schema).map(|(table, _)| table).collect();
        let store = rows_before(before, &told.schema, &tables, uuids.next_u64())?;
        let (edits, absent) = sorted(told, &store);
        let difference = weir_engine::difference_of(&store, edits, uuids);
        let difference = difference.map_err(|error| error.to_string())?;
        Ok(Self { is_all, difference, absent })
    }
}

/// What values change in the rows that are here, and the others: rows that are not here, and those that are
/// gone.
pub(crate) fn sorted(told: EphemeralRows, store: &Store) -> (Vec<RowEdit>, Vec<RowImage>) {
    let mut edits = if told.is_all { of_others(&told.images, store) } else { Vec::new() };
    let mut absent = Vec::new();
    for RowImage { table, uuid, values } in told.images {
        match values {
            Some(values) if store.get(table, uuid).is_some() => {
                edits.push(modification(table, uuid, values));
            }
            values => absent.push(RowImage { table, uuid, values }),
        }
    }
    (edits, absent)
}

/// A row gets these values.
pub(crate) fn modification(table: TableId, uuid: Uuid, values: Values) -> RowEdit {
    let edit = |(column, value)| ColumnEdit { column, value, is_difference: false };
    RowEdit { table, uuid, edit: Edit::Modify(values.into_iter().map(edit).collect()) }
}

/// The tables with such columns.
fn tables(schema: &Schema) -> impl Iterator<Item = (TableId, &TableSchema)> {
    let has_some = |table: &TableSchema| table.data_columns().any(|(_, column)| !column.persistent);
    schema.table_ids().filter(move |(_, table)| has_some(table))
}

/// Rows that the source has said nothing of have the values that rows begin with.
fn of_others(images: &[RowImage], store: &Store) -> Vec<RowEdit> {
    let mut edits = Vec::new();
    for (table, schema) in tables(store.schema()) {
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
