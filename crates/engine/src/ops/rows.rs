//! `<row>` members (RFC 7047 §5.1), and rows seen through some of their columns.

use weir_data::{ColumnId, Datum, Error, Row, SymbolTable, TableSchema};
use weir_json::{Kind, Text};

use crate::meter::{Meter, TooLong};
use crate::planner::Few;
use crate::sorting::{Numbered, compare, compared, has_numbers, numbered};

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

/// Brings rows into the order of these columns; those that look alike stay as they are.
pub(super) fn sort(
    meter: &Meter,
    rows: &mut Few<&Row>,
    columns: &[ColumnId],
    table: &TableSchema,
) -> Result<(), TooLong> {
    if rows.len() < 2 || columns.is_empty() {
        return Ok(());
    }
    meter.afford(compared(rows, columns, table))?;
    let first = columns.first().filter(|column| has_numbers(table, **column));
    let mut order = numbered(rows, first.copied());
    order.sort_by(|(n, a), (m, b)| n.cmp(m).then_with(|| compare(a, b, columns)));
    rows.iter_mut().zip(order).for_each(|(place, (_, row))| *place = row);
    Ok(())
}

/// Drops rows that differ from an earlier one in none of the columns.
pub(super) fn retain_distinct(
    meter: &Meter,
    rows: &mut Few<&Row>,
    columns: &[ColumnId],
    table: &TableSchema,
) -> Result<(), TooLong> {
    if rows.len() < 2 || columns.contains(&ColumnId::UUID) {
        return Ok(());
    }
    meter.afford(compared(rows, columns, table))?;
    let by = columns.iter().find(|column| has_numbers(table, **column)).copied();
    let order = numbered(rows, by).into_iter().enumerate();
    let mut order: Vec<(usize, Numbered<'_>)> = order.collect();
    order.sort_by(|(_, (n, a)), (_, (m, b))| n.cmp(m).then_with(|| compare(a, b, columns)));
    order.dedup_by(|(_, (n, later)), (_, (m, first))| {
        n == m && compare(later, first, columns).is_eq()
    });
    order.sort_unstable_by_key(|(at, _)| *at);
    *rows = order.into_iter().map(|(_, (_, row))| row).collect();
    Ok(())
}
