//! The order of a `select`'s rows, and which part of them is asked for: `order_by`, `limit` and
//! `after` (`docs/ordered-select.md`).
//!
//! The order is total, for `_uuid` ends it: pages that follow each other have every row once.

use std::cmp::Ordering;

use weir_data::{ColumnId, Datum, DatumRef, Error, Row, SymbolTable, TableSchema};
use weir_json::Text;

use crate::planner::Few;
use crate::sorting::{Numbered, has_numbers, numbered};

/// A page of rows in order.
#[derive(Debug)]
pub(crate) struct Page {
    /// The columns, and whether each descends.
    order: Vec<(ColumnId, bool)>,
    /// Values of the first column have numbers that sort as they do.
    has_numbers: bool,
    limit: usize,
    /// The values, in the columns of the order, of the row that the page comes behind.
    after: Option<Vec<Datum>>,
}

impl Page {
    /// Parses `order_by`, `limit` and `after`.
    ///
    /// # Errors
    /// What is wrong with them, for the client.
    pub(crate) fn parse(
        order: Text<'_>,
        (limit, after): (Option<Text<'_>>, Option<Text<'_>>),
        table: &TableSchema,
        symbols: &mut SymbolTable<'_>,
    ) -> Result<Self, Error> {
        let order = parse_order(order, table)?;
        let limit = limit.map(parse_limit).transpose()?.unwrap_or(usize::MAX);
        let after = after.map(|after| parse_after(after, &order, table, symbols)).transpose()?;
        Ok(Self { has_numbers: has_numbers(table, order[0].0), order, limit, after })
    }

    /// The column that comes first in the order, and whether it descends.
    pub(crate) fn first(&self) -> (ColumnId, bool) {
        self.order[0]
    }

    /// The most rows that are asked for.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The value in the first column of the row that the page comes behind.
    pub(crate) fn after(&self) -> Option<DatumRef<'_>> {
        self.after.as_ref().map(|values| values[0].as_ref())
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        self.order.iter().fold(Ordering::Equal, |order, (column, descends)| {
            order.then_with(|| directed(a.get(*column).cmp(&b.get(*column)), *descends))
        })
    }

    fn is_behind(&self, row: &Row) -> bool {
        let Some(after) = &self.after else { return true };
        let columns = self.order.iter().zip(after);
        let order = columns.fold(Ordering::Equal, |order, ((column, descends), after)| {
            order.then_with(|| directed(row.get(*column).cmp(&after.as_ref()), *descends))
        });
        order.is_gt()
    }

    /// Keeps the rows of the page, and brings them into their order.
    pub(crate) fn apply(&self, rows: &mut Few<&Row>) {
        rows.retain(|row| self.is_behind(row));
        let (column, descends) = self.first();
        let mut order = numbered(rows, self.has_numbers.then_some(column));
        let compare = |(n, a): &Numbered<'_>, (m, b): &Numbered<'_>| {
            directed(n.cmp(m), descends).then_with(|| self.compare(a, b))
        };
        if self.limit < order.len() {
            order.select_nth_unstable_by(self.limit, compare);
            order.truncate(self.limit);
        }
        order.sort_unstable_by(compare);
        *rows = order.into_iter().map(|(_, row)| row).collect();
    }

    /// How often a row is compared with others when so many rows are brought into their order.
    pub(crate) fn comparisons(&self, rows: usize) -> u64 {
        u64::from(rows.min(self.limit).max(1).ilog2()) + 2
    }
}

fn directed(order: Ordering, descends: bool) -> Ordering {
    if descends { order.reverse() } else { order }
}

/// Columns, each alone or with a direction; `_uuid` is added if it is not there.
fn parse_order(text: Text<'_>, table: &TableSchema) -> Result<Vec<(ColumnId, bool)>, Error> {
    let refused = || {
        let details = "array of distinct columns expected, each a name or \
                       [<column>, \"asc\"|\"desc\"]";
        Error::syntax(text, details)
    };
    let mut order: Vec<(ColumnId, bool)> = Vec::new();
    for element in text.elements().ok_or_else(refused)? {
        let (name, descends) = match element.elements() {
            None => (element, false),
            Some(mut pair) => {
                let (name, direction) = (pair.next(), pair.next().and_then(Text::str));
                let descends = match (direction.as_deref(), pair.next()) {
                    (Some("asc"), None) => false,
                    (Some("desc"), None) => true,
                    _ => return Err(refused()),
                };
                (name.ok_or_else(refused)?, descends)
            }
        };
        let name = name.str().ok_or_else(refused)?;
        let Some(column) = table.column_id(&name) else {
            return Err(Error::syntax(text, format!("{name} is not a valid column name")));
        };
        if order.iter().any(|(known, _)| *known == column) {
            return Err(refused());
        }
        order.push((column, descends));
    }
    if order.iter().all(|(column, _)| *column != ColumnId::UUID) {
        order.push((ColumnId::UUID, false));
    }
    Ok(order)
}

fn parse_limit(text: Text<'_>) -> Result<usize, Error> {
    let limit = text.integer().and_then(|limit| usize::try_from(limit).ok());
    limit.ok_or_else(|| Error::syntax(text, "\"limit\" must not be negative"))
}

/// The values of a row in the columns of the order; the row may have others.
fn parse_after(
    text: Text<'_>,
    order: &[(ColumnId, bool)],
    table: &TableSchema,
    symbols: &mut SymbolTable<'_>,
) -> Result<Vec<Datum>, Error> {
    let mut values = crate::ops::rows::parse(text, table, symbols)?;
    let mut value = |column: ColumnId| {
        let at = values.iter().rposition(|(known, _)| *known == column)?;
        Some(values.swap_remove(at).1)
    };
    let values = order.iter().map(|(column, _)| {
        let name = &table.column(*column).name;
        let missing = || format!("\"after\" must have a value of column {name}");
        value(*column).ok_or_else(|| Error::syntax(text, missing()))
    });
    values.collect()
}
