//! Many rows in an order.
//!
//! Rows lie in many places, and a comparison visits two of them. So each is visited once for a number
//! that sorts as its values of one column do, and those of equal numbers are compared.

use std::cmp::Ordering;

use weir_data::{ColumnId, Row, TableSchema};

use crate::keys::{Number, order_of};
use crate::meter;

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

/// What it costs besides to compare the sets and maps of these columns when rows are brought into
/// their order: each row is compared with a few others.
pub(crate) fn compared(rows: &[&Row], columns: &[ColumnId], table: &TableSchema) -> u64 {
    let sets = columns.iter().filter(|column| table.column(**column).ty.is_composite());
    let elements = sets.map(|column| rows.iter().map(|row| row.get(*column).len()).sum::<usize>());
    let others = rows.len().max(1).ilog2() + 1;
    (elements.sum::<usize>() as u64).saturating_mul(u64::from(others)) / meter::COMPARED
}

/// Compares rows by these columns, in their order.
pub(crate) fn compare(a: &Row, b: &Row, columns: &[ColumnId]) -> Ordering {
    let order = |column: &ColumnId| a.get(*column).cmp(&b.get(*column));
    columns.iter().map(order).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}
