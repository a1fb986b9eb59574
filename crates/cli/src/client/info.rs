//! Commands that only look: `list-dbs`, `get-schema`, `list-tables` and their like.

use std::process::ExitCode;

use weir_json::validate_value;
use weir_table::{Cell, Table};

use super::Client;
use super::output::{print_value, printer, write_all, write_failure};
use super::remote::{Target, list_databases};
use super::schema::{fetch, sorted_columns, sorted_tables};
use crate::program::Outcome;

/// Runs the command `list-dbs`.
pub(super) fn list_dbs(_client: &Client, mut target: Target) -> Outcome {
    let names = list_databases(&mut target.session)?;
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    finish(write_all(lines.as_bytes()))
}

/// Runs the command `get-schema`.
pub(super) fn get_schema(client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    finish(print_value(&schema.to_value(), client.options.style.pretty))
}

/// Runs the command `get-schema-version`.
pub(super) fn get_schema_version(_client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    finish(write_all(format!("{}\n", schema.version).as_bytes()))
}

/// Runs the command `get-schema-cksum`.
pub(super) fn get_schema_cksum(_client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    finish(write_all(format!("{}\n", schema.cksum).as_bytes()))
}

/// Runs the command `list-tables`.
pub(super) fn list_tables(client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    let names: Vec<&str> =
        sorted_tables(&schema).into_iter().map(|table| table.name.as_str()).collect();
    let table = Table {
        caption: None,
        time: None,
        headings: &["Table"],
        rows: names.len(),
        cell: |row: usize, _| names.get(row).map_or(Cell::Empty, |name| Cell::Text(name)),
    };
    print_table(client, &table)
}

/// Runs the command `list-columns`.
pub(super) fn list_columns(client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    let only = target.args.first();
    let mut lines = vec![];
    for table in sorted_tables(&schema) {
        if only.is_some_and(|only| *only != table.name) {
            continue;
        }
        for column in sorted_columns(table) {
            let ty = column.ty.to_value().to_string();
            lines.push((table.name.as_str(), column.name.as_str(), ty));
        }
    }
    let headings: &[&str] =
        if only.is_some() { &["Column", "Type"] } else { &["Table", "Column", "Type"] };
    let skipped = 3 - headings.len();
    let table = Table {
        caption: None,
        time: None,
        headings,
        rows: lines.len(),
        cell: |row: usize, column: usize| match (lines.get(row), column + skipped) {
            (Some((table, _, _)), 0) => Cell::Text(table),
            (Some((_, column, _)), 1) => Cell::Text(column),
            (Some((_, _, ty)), _) => validate_value(ty.as_bytes()).map_or(Cell::Empty, Cell::Json),
            (None, _) => Cell::Empty,
        },
    };
    print_table(client, &table)
}

fn print_table<'a, F>(client: &Client, table: &Table<'_, 'a, F>) -> Outcome
where
    F: Fn(usize, usize) -> Cell<'a>,
{
    let mut printer = printer(client.options.style);
    let printed = printer.print(table).and_then(|()| std::io::Write::flush(printer.out()));
    finish(printed)
}

/// The end of a command that has written everything.
pub(super) fn finish(written: std::io::Result<()>) -> Outcome {
    written.map_err(write_failure)?;
    Ok(ExitCode::SUCCESS)
}
