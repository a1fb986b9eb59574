//! `<row>` members (RFC 7047 §5.1), and rows seen through some of their columns.

use std::cmp::Ordering;

use weir_data::{ColumnId, Datum, Error, Row, SymbolTable, TableSchema};
use weir_json::{Kind, Text};

use crate::planner::Few;

/// Parses a `<row>` into its values, by column name.
pub(crate) fn parse(
    text: Text<'_>,
    table: &TableSchema,
    symbols: &mut SymbolTable<'_>,
) -> Result<Vec<(ColumnId, Datum)>, Error> {
    let Some(object) = text.object().filter(|_| text.kind() == Kind::Object) else {
        return Err(Error::syntax(text, "row must be JSON object"));
    };
    let mut values = Vec::with_capacity(object.len());
    for (name, value) in object.iter() {
        let column = table.column_named(text, name)?;
        let ty = &table.column(column).ty;
        values.push((column, Datum::parse(value, ty, Some(&mut *symbols))?));
    }
    Ok(values)
}

/// Whether the column is `_uuid` or `_version`.
pub(super) fn is_system(column: ColumnId) -> bool {
    column <= ColumnId::VERSION
}

/// Compares rows by these columns, in their order.
pub(super) fn compare(a: &Row, b: &Row, columns: &[ColumnId]) -> Ordering {
    let order = |column: &ColumnId| a.get(*column).cmp(&b.get(*column));
    columns.iter().map(order).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Drops rows that differ from an earlier one in none of the columns.
pub(super) fn retain_distinct(rows: &mut Few<&Row>, columns: &[ColumnId]) {
    if rows.len() < 2 || columns.contains(&ColumnId::UUID) {
        return;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| compare(rows[a], rows[b], columns).then(a.cmp(&b)));
    order.dedup_by(|&mut later, &mut first| compare(rows[later], rows[first], columns).is_eq());
    order.sort_unstable();
    *rows = order.into_iter().map(|at| rows[at]).collect();
}
