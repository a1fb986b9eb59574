//! `dump`: the rows of all tables, sorted.
//!
//! The steps:
//! 1. One transaction selects everything, so that all tables are of one moment.
//! 2. The reply stays where it was received. Of a table only the places of its cells are kept, and
//!    row numbers are sorted by what the cells say.
//! 3. The table is printed, and its places forgotten, before the next one is looked at.

use std::io::Write;
use std::ops::Range;

use weir_data::{AtomType, ColumnSchema, ColumnType, Datum, Schema, TableSchema, Uuid};
use weir_json::{Kind, Text, Value, array, object};
use weir_table::{Cell, Shape, Table, write_sort_key};

use super::Client;
use super::info::finish;
use super::output::{TablePrinter, printer, write_failure};
use super::remote::Target;
use super::schema::{fetch, sorted_columns, sorted_tables};
use super::session::transaction;
use super::transact::{results_of, rows_of};
use crate::program::{Failure, Outcome};

/// A table to show, and its columns in the order of their names.
struct Shown<'s> {
    table: &'s TableSchema,
    /// The columns to ask for, as they were named.
    asked: Vec<&'s ColumnSchema>,
    /// The columns to show.
    columns: Vec<&'s ColumnSchema>,
}

/// Runs the command `dump`.
pub(super) fn dump(client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    let shown = choose(&schema, &target.args)?;
    let operations = shown.iter().map(select).collect();
    let mut params = vec![];
    transaction(&target.database, operations).write(&mut params);
    let mut printer = printer(client.options.style);
    target.session.call_text("transact", &params, |reply| {
        let mut results = results_of(reply, shown.len())?;
        for shown in &shown {
            print_table(&mut printer, shown, results.next())?;
        }
        Ok::<_, Failure>(())
    })??;
    finish(printer.out().flush())
}

/// The tables and columns that the arguments name.
fn choose<'s>(schema: &'s Schema, args: &[String]) -> Result<Vec<Shown<'s>>, Failure> {
    let Some((name, columns)) = args.split_first() else {
        let all = |table| {
            let columns = shown_columns(sorted_columns(table));
            Shown { table, asked: columns.clone(), columns }
        };
        return Ok(sorted_tables(schema).into_iter().map(all).collect());
    };
    let Some(id) = schema.table_id(name) else {
        let names: Vec<&str> = schema.tables.iter().map(|table| table.name.as_str()).collect();
        return Err(Failure::new(format!("No table \"{name}\" found."))
            .hint(format!("there are: {}", names.join(" "))));
    };
    let table = schema.table(id);
    let mut asked = vec![];
    for column in columns {
        let Some(id) = table.column_id(column) else {
            let text = format!("Table \"{name}\" has no column {column}.");
            let names: Vec<&str> =
                sorted_columns(table).iter().map(|column| column.name.as_str()).collect();
            return Err(Failure::new(text).hint(format!("it has: {}", names.join(" "))));
        };
        asked.push(table.column(id));
    }
    if columns.is_empty() {
        asked = shown_columns(sorted_columns(table));
    }
    let mut columns = asked.clone();
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    columns.dedup_by(|a, b| a.name == b.name);
    Ok(vec![Shown { table, asked, columns: shown_columns(columns) }])
}

fn shown_columns(columns: Vec<&ColumnSchema>) -> Vec<&ColumnSchema> {
    columns.into_iter().filter(|column| column.name != "_version").collect()
}

fn select(shown: &Shown<'_>) -> Value {
    let columns = shown.asked.iter().map(|column| column.name.as_str());
    object([
        ("op", "select".into()),
        ("table", shown.table.name.as_str().into()),
        ("where", array::<Value>([])),
        ("columns", array(columns)),
    ])
}

fn print_table(
    printer: &mut TablePrinter,
    shown: &Shown<'_>,
    result: Option<Text<'_>>,
) -> Result<(), Failure> {
    let name = &shown.table.name;
    let rows = rows_of(result, name)?;
    let names: Vec<&str> = shown.columns.iter().map(|column| column.name.as_str()).collect();
    let shapes: Vec<Shape> = shown.columns.iter().map(|column| (&column.ty).into()).collect();
    let cells = Cells::read(rows, shown, &names)?;
    let order = cells.sorted(&shapes);
    let caption = format!("{name} table");
    let table = Table {
        caption: Some(&caption),
        time: None,
        headings: &names,
        rows: order.len(),
        cell: |row: usize, column: usize| {
            let cell = order.get(row).and_then(|row| cells.get(*row as usize, column));
            match (cell, shapes.get(column)) {
                (Some(text), Some(shape)) => Cell::Value(text, *shape),
                _ => Cell::Empty,
            }
        },
    };
    printer.print(&table).map_err(write_failure)
}

/// Whether a value is one of its column: what looks like one is not gone into.
fn check(text: Text<'_>, ty: &ColumnType) -> Result<(), Failure> {
    if looks_like(text, ty) {
        return Ok(());
    }
    let parsed = Datum::parse(text, ty, None);
    parsed.map(|_| ()).map_err(|error| Failure::new(error.to_string()))
}

fn looks_like(text: Text<'_>, ty: &ColumnType) -> bool {
    if ty.value.is_none() && is_atom(text, ty.key.ty) {
        return true;
    }
    let Some(mut parts) = text.elements() else { return false };
    let (Some(tag), Some(elements), None) =
        (parts.next(), parts.next().and_then(Text::elements), parts.next())
    else {
        return false;
    };
    let mut elements = elements;
    match &ty.value {
        None => {
            let is_scalar = (ty.n_min, ty.n_max) == (1, 1);
            tag.as_bytes() == b"\"set\"" && !is_scalar && elements.all(|e| is_atom(e, ty.key.ty))
        }
        Some(value) => {
            let is_pair = |pair: Text<'_>| {
                pair.elements().is_some_and(|mut pair| {
                    pair.next().is_some_and(|key| is_atom(key, ty.key.ty))
                        && pair.next().is_some_and(|other| is_atom(other, value.ty))
                        && pair.next().is_none()
                })
            };
            tag.as_bytes() == b"\"map\"" && elements.all(is_pair)
        }
    }
}

fn is_atom(text: Text<'_>, ty: AtomType) -> bool {
    match ty {
        AtomType::Integer => text.integer().is_some(),
        AtomType::Real => text.real().is_some(),
        AtomType::Boolean => text.bool().is_some(),
        AtomType::String => text.kind() == Kind::String,
        AtomType::Uuid => is_uuid(text).is_some(),
    }
}

/// `["uuid", "..."]`
fn is_uuid(text: Text<'_>) -> Option<()> {
    let mut parts = text.elements()?;
    let (tag, uuid) = (parts.next()?, parts.next()?.string()?);
    let is_uuid = tag.as_bytes() == b"\"uuid\"" && Uuid::parse_bytes(&uuid).is_some();
    (is_uuid && parts.next().is_none()).then_some(())
}

/// Where the cells of a table are, row by row.
struct Cells<'a> {
    columns: usize,
    places: Vec<Option<Text<'a>>>,
}

impl<'a> Cells<'a> {
    fn read(
        rows: impl Iterator<Item = Text<'a>>,
        shown: &Shown<'_>,
        names: &[&str],
    ) -> Result<Self, Failure> {
        let mut cells = Self { columns: names.len(), places: vec![] };
        // The members of one row are mostly in the order of those of the row before.
        let mut guess: Vec<usize> = (0..names.len()).collect();
        for (number, row) in rows.enumerate() {
            let bad = |what: &str| {
                let table = &shown.table.name;
                Failure::new(format!("row {number} in table {table} response {what}"))
            };
            let start = cells.places.len();
            cells.places.resize(start + names.len(), None);
            let mut reader = row.reader();
            if !reader.begin_object() {
                return Err(bad(&format!("is not a JSON object: {}", row.to_value())));
            }
            let mut member = 0;
            while let Some(key) = reader.next_key() {
                let is_it = |column: &usize| {
                    names.get(*column).is_some_and(|name| name.as_bytes() == key.as_ref())
                };
                let mut column = guess.get(member).copied().filter(is_it);
                if column.is_none() {
                    column = (0..names.len()).find(is_it);
                    if let (Some(column), Some(place)) = (column, guess.get_mut(member)) {
                        *place = column;
                    }
                }
                let text = reader.text();
                if let Some(place) = column.and_then(|column| cells.places.get_mut(start + column))
                {
                    *place = Some(text);
                }
                member += 1;
            }
            let here = cells.places.get(start..).unwrap_or_default();
            for (column, place) in shown.columns.iter().zip(here) {
                let name = &column.name;
                let text = place.ok_or_else(|| bad(&format!("lacks {name} column")))?;
                check(text, &column.ty)?;
            }
        }
        Ok(cells)
    }

    fn get(&self, row: usize, column: usize) -> Option<Text<'a>> {
        self.places.get(row * self.columns + column).copied().flatten()
    }

    fn rows(&self) -> usize {
        self.places.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Row numbers, by the columns that hold no UUIDs and then by the others, since UUIDs differ
    /// from one run of a script to the next.
    fn sorted(&self, shapes: &[Shape]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.rows()).unwrap_or(u32::MAX)).collect();
        let is_plain =
            |column: &usize| shapes.get(*column).is_some_and(|s| s.key != AtomType::Uuid);
        let (mut keys, uuids): (Vec<usize>, Vec<usize>) = (0..shapes.len()).partition(is_plain);
        keys.extend(uuids);
        let mut keys_of_rows = Keys::default();
        // Rows that are equal so far, and the next column to look at.
        let mut equal = vec![(0..order.len(), 0)];
        while let Some((range, place)) = equal.pop() {
            let Some(column) = keys.get(place) else { continue };
            let (Some(rows), Some(shape)) = (order.get_mut(range.clone()), shapes.get(*column))
            else {
                continue;
            };
            let value = |row: u32| self.get(row as usize, *column);
            keys_of_rows.sort(rows, value, *shape, |run| {
                equal.push((range.start + run.start..range.start + run.end, place + 1));
            });
        }
        order
    }
}

/// Room to sort rows by one column.
#[derive(Default)]
struct Keys {
    /// What the cells say, as bytes that compare like it.
    bytes: Vec<u8>,
    rows: Vec<Key>,
    values: Vec<u8>,
}

/// Where the key of a row is.
struct Key {
    /// The first bytes of the key that may differ, behind the number of entries: mostly they
    /// decide.
    prefix: u64,
    start: usize,
    end: usize,
    row: u32,
}

impl Keys {
    /// Sorts rows by what `value` says of them; tells `equal` where two or more are equal.
    fn sort<'a>(
        &mut self,
        rows: &mut [u32],
        value: impl Fn(u32) -> Option<Text<'a>>,
        shape: Shape,
        mut equal: impl FnMut(Range<usize>),
    ) {
        let text = |row: u32| value(row).map(Text::as_bytes);
        if rows.is_sorted_by(|a, b| text(*a) == text(*b)) {
            return if rows.len() > 1 {
                equal(0..rows.len())
            };
        }
        self.bytes.clear();
        self.rows.clear();
        for row in rows.iter() {
            let start = self.bytes.len();
            if let Some(value) = value(*row) {
                write_sort_key(value, shape, &mut self.values, &mut self.bytes);
            }
            let key = self.bytes.get(start..).unwrap_or_default();
            let mut prefix = [0; 8];
            // The number of entries needs two bytes nearly always; of a larger one all
            // of the key is looked at.
            if let Some((count, rest)) = key.split_first_chunk::<4>() {
                let fits = u16::try_from(u32::from_be_bytes(*count));
                let rest = if fits.is_ok() { rest } else { &[] };
                let count = fits.unwrap_or(u16::MAX).to_be_bytes();
                let sent = count.into_iter().chain(rest.iter().copied());
                prefix.iter_mut().zip(sent).for_each(|(place, byte)| *place = byte);
            }
            let (prefix, end) = (u64::from_be_bytes(prefix), self.bytes.len());
            self.rows.push(Key { prefix, start, end, row: *row });
        }
        let bytes = |key: &Key| self.bytes.get(key.start..key.end).unwrap_or_default();
        self.rows.sort_unstable_by(|a, b| {
            let by_key = a.prefix.cmp(&b.prefix).then_with(|| bytes(a).cmp(bytes(b)));
            by_key.then(a.row.cmp(&b.row))
        });
        rows.iter_mut().zip(&self.rows).for_each(|(row, key)| *row = key.row);
        let mut start = 0;
        for run in self.rows.chunk_by(|a, b| a.prefix == b.prefix && bytes(a) == bytes(b)) {
            if run.len() > 1 {
                equal(start..start + run.len());
            }
            start += run.len();
        }
    }
}
