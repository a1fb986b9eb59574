//! Many rows in an order.
//!
//! Rows lie in many places, and a comparison visits two of them. So each is visited once for a number
//! that sorts as its values of one column do, and those of equal numbers are compared.

use std::cmp::Ordering;

use weir_data::{ColumnId, Row, TableSchema};

use crate::keys::{Number, order_of};

/// A row, and the number of its value in some column.
pub(crate) type Numbered<'t> = (Number, &'t Row);

/// Whether values of a column have numbers that sort as they do.
pub(crate) fn has_numbers(table: &TableSchema, column: ColumnId) -> bool {
    let ty = &table.column(column).ty;
    !ty.is_composite() && !ty.is_map()
}

/// The rows with the numbers of their values in `column`; all have one if there is no such column.
pub(crate) fn numbered<'t>(rows: &[&'t Row], column: Option<ColumnId>) -> Vec<Numbered<'t>> {
    let number = |row: &Row| column.map_or(0, |column| order_of(row.get(column)));
    rows.iter().map(|row| (number(row), *row)).collect()
}

/// Compares rows by these columns, in their order.
pub(crate) fn compare(a: &Row, b: &Row, columns: &[ColumnId]) -> Ordering {
    let order = |column: &ColumnId| a.get(*column).cmp(&b.get(*column));
    columns.iter().map(order).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}
