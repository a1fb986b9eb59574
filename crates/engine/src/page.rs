//! The order of a `select`'s rows, and which part of them is asked for: `order_by`, `limit` and
//! `after` (`docs/ordered-select.md`).
//!
//! The order is total, for `_uuid` ends it: pages that follow each other have every row once. Reals are
//! told with 15 digits, and come back so in `after`: they are in the order of what is told of them.

use std::cmp::Ordering;

use weir_data::{
    AtomRef, AtomType, ColumnId, Datum, DatumRef, Error, Row, SymbolTable, TableSchema,
};
use weir_json::Text;

use crate::meter;
use crate::planner::Few;
use crate::sorting::{Numbered, has_numbers, numbered};

/// A page of rows in order.
#[derive(Debug)]
pub(crate) struct Page {
    /// The columns, and whether each descends.
    order: Vec<(ColumnId, bool)>,
    /// Whether values of each have reals in them.
    has_reals: Vec<bool>,
    /// Values of the first column have numbers that sort as they do.
    has_numbers: bool,
    /// The columns that are sets or maps, and how many of their elements are compared for a unit.
    sets: Vec<(ColumnId, u64)>,
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
        let has_reals = |column: ColumnId| {
            let ty = &table.column(column).ty;
            let value = ty.value.as_ref().map(|value| value.ty);
            ty.key.ty == AtomType::Real || value == Some(AtomType::Real)
        };
        let has_reals: Vec<bool> = order.iter().map(|(column, _)| has_reals(*column)).collect();
        let has_numbers = has_numbers(table, order[0].0) && !has_reals[0];
        let sets = order.iter().zip(&has_reals);
        let sets = sets.filter(|((column, _), _)| table.column(*column).ty.is_composite());
        let each = |has_reals: bool| if has_reals { 1 } else { meter::COMPARED };
        let sets = sets.map(|((column, _), has_reals)| (*column, each(*has_reals))).collect();
        Ok(Self { has_numbers, has_reals, sets, order, limit, after })
    }

    /// Whether an ordered key has the rows in the order of the first column: reals that are told alike
    /// differ there.
    pub(crate) fn may_walk_key(&self) -> bool {
        !self.has_reals[0]
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
        self.in_order(|_, column| (a.get(column), b.get(column)))
    }

    fn is_behind(&self, row: &Row) -> bool {
        let Some(after) = &self.after else { return true };
        self.in_order(|at, column| (row.get(column), after[at].as_ref())).is_gt()
    }

    /// Compares two values in each column of the order, until some differ.
    fn in_order<'v>(
        &self,
        values: impl Fn(usize, ColumnId) -> (DatumRef<'v>, DatumRef<'v>),
    ) -> Ordering {
        let columns = self.order.iter().zip(&self.has_reals).enumerate();
        columns.fold(Ordering::Equal, |order, (at, ((column, descends), has_reals))| {
            order.then_with(|| {
                let (a, b) = values(at, *column);
                let order = if *has_reals { as_told(a, b) } else { a.cmp(&b) };
                directed(order, *descends)
            })
        })
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

    /// What it costs besides to compare sets and maps when rows are brought into their order.
    pub(crate) fn compared(&self, rows: &[&Row]) -> u64 {
        let of_column = |(column, each): &(ColumnId, u64)| {
            rows.iter().map(|row| row.get(*column).len() as u64).sum::<u64>() / each
        };
        let once: u64 = self.sets.iter().map(of_column).sum();
        once.saturating_mul(self.comparisons(rows.len()))
    }
}

/// Compares values of one type as clients are told them; else as [`DatumRef`]s are compared.
fn as_told(a: DatumRef<'_>, b: DatumRef<'_>) -> Ordering {
    let keys = |a: DatumRef<'_>, b: DatumRef<'_>| {
        let mut pairs = a.keys().zip(b.keys()).map(|(a, b)| atom_as_told(a, b));
        pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let values = |a: DatumRef<'_>, b: DatumRef<'_>| {
        let pairs = a.entries().zip(b.entries());
        let mut pairs = pairs.filter_map(|(a, b)| Some(atom_as_told(a.1?, b.1?)));
        pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    a.len().cmp(&b.len()).then_with(|| keys(a, b)).then_with(|| values(a, b))
}

fn atom_as_told(a: AtomRef<'_>, b: AtomRef<'_>) -> Ordering {
    /// Reals that differ by more are told apart, whatever they are: 15 digits are told.
    const TOLD_APART: f64 = 1e-14;
    let order = a.cmp(&b);
    let (AtomRef::Real(x), AtomRef::Real(y)) = (a, b) else { return order };
    if order.is_eq() || (x - y).abs() > TOLD_APART * x.abs().max(y.abs()) {
        return order;
    }
    let told = |real: f64| {
        let mut text = Vec::new();
        weir_json::write_real(&mut text, real);
        String::from_utf8_lossy(&text).parse::<f64>().expect("a real is written as a number")
    };
    AtomRef::Real(told(x)).cmp(&AtomRef::Real(told(y)))
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
    let mut values: Vec<Option<Datum>> = vec![None; order.len()];
    for (name, value) in text.members().into_iter().flatten() {
        let column = table.column_named(text, &name)?;
        if let Some(at) = order.iter().position(|(known, _)| *known == column) {
            // A row that is older than a constraint may have any value.
            let ty = table.column(column).ty.without_constraints();
            values[at] = Some(Datum::parse(value, &ty, Some(&mut *symbols))?);
        }
    }
    let values = values.into_iter().zip(order).map(|(value, (column, _))| {
        let name = &table.column(*column).name;
        let missing = || format!("\"after\" must have a value of column {name}");
        value.ok_or_else(|| Error::syntax(text, missing()))
    });
    values.collect()
}
